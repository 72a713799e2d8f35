"""What the tasks behind `spout.hold` and of `spout.ack_anchors` make of rows, without Spark."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import spout
from acker.errors import UsageError
from acker.identity import source_of
from spout.held.holding import AckTask, HoldTask, RowAnchors, marks_of_anchors
from spout.isolation.safety import Safety
from spout.publishing.delayed import RootPositions
from spout.publishing.root_marks import RootMark
from spout.topology.chain import Step
from spout.tuples.anchor_columns import HELD_TYPE
from spout.tuples.anchors import ORDINAL_BITS
from spout.tuples.columns import ANCHOR
from spout.tuples.failures import Cause
from spout.tuples.poison import WORKER_DIED
from tests.support.fake_ledger import FakeLedger
from tests.support.outcomes import positions_by_cause
from tests.support.reports import held_in


def test_a_row_without_an_anchor_is_held_without_one() -> None:
    """It is of another stream in a union, or of a batch that was planned untracked: it is best effort."""
    ledger, source = FakeLedger(), source_of(1, 0)
    task = HoldTask("hold", "s", ledger, (), fails_late=False)
    columns = [
        [5 << ORDINAL_BITS, None, 7 << ORDINAL_BITS],
        [source, None, source],
        [50, None, 70],
        [9, 9, 9],
    ]
    [edges] = task([tuple(pa.array(column, pa.int64()) for column in columns)])
    assert edges.is_valid().to_pylist() == [True, False, True]
    [report] = ledger.reports
    assert held_in(report).indices.tolist() == [50, 70]
    assert held_in(report).edges.view(np.int64).tolist() == edges.drop_null().to_pylist()
    assert len(set(held_in(report).edges.tolist())) == len(held_in(report).until_ms) == 2


def test_the_columns_of_held_rows_leave_memory_before_the_end_of_their_task() -> None:
    """Edges and times stay until then, and the columns of a batch that Spark sends share one buffer."""
    numbers = pa.array(range(10_000))
    batch = pa.record_batch(dict.fromkeys(("packed", "source", "position", "until"), numbers))
    sent = batch.serialize()
    task = HoldTask("hold", "s", FakeLedger(), (), fails_late=False)
    before = pa.total_allocated_bytes()
    batches = (pa.ipc.read_record_batch(batch.serialize(), batch.schema) for _ in range(10))
    most = max(pa.total_allocated_bytes() for _ in task(tuple(each.columns) for each in batches))
    assert most - before < 5 * sent.size


def held(words: list[str], positions: list[int]) -> pa.RecordBatch:
    """Make rows that each have the anchor of one held tuple."""
    anchors = [[{"source": 1, "position": at, "edge": at}] for at in positions]
    return pa.record_batch({"word": words, ANCHOR: pa.array(anchors, pa.list_(HELD_TYPE))})


class Forgets(spout.ArrowBolt):
    """Fails the rows that say so, and leaves others open."""

    output = "value string"

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> None:
        """Emit all."""
        collector.emit(batch.columns, pa.array(range(batch.num_rows)))
        for row, word in enumerate(batch.column(0).to_pylist()):
            if word == "forget":
                collector.leave_open(row)
            elif word == "bad":
                collector.fail(row, word)


@pytest.mark.parametrize("hooks", [(), (spout.TaskHook(),)], ids=["bare", "watched"])
def test_a_row_that_its_bolt_leaves_open_acks_no_anchor(hooks: tuple[spout.TaskHook, ...]) -> None:
    """Its records time out, as of a bolt anywhere else; those of a later batch are their own."""
    words = pa.schema([("word", pa.string())])
    ledger = FakeLedger()
    task = AckTask("forgets", "s", ledger, Step("forgets", Forgets(), words, hooks))
    batches = [held(["a", "forget", "bad"], [1, 2, 3]), held(["b", "c", "d"], [4, 5, 6])]
    assert [batch.num_rows for batch in task(batches)] == [2, 3]
    [report] = ledger.reports
    assert report.marks.of(RootMark.RELEASED).positions.tolist() == [1, 4, 5, 6]
    [(_, failed)] = positions_by_cause(report.marks)
    assert failed == [3]
    left_open = report.marks.of(RootMark.LEFT_OPEN)
    assert (left_open.positions.tolist(), left_open.edges.tolist()) == ([2], [2])
    assert [cause.operator for cause in left_open.used_causes()] == ["forgets"]


@pytest.mark.parametrize("step", [None, Step("all", Forgets(), pa.schema([("word", pa.string())]), ())])
def test_the_rows_of_a_task_leave_memory_before_its_end(step: Step | None) -> None:
    """Its anchors stay until then, and the columns of a batch that Spark sends share one buffer."""
    batch = held(["x" * (1 << 20)] * 4, [1, 2, 3, 4])
    sent = batch.serialize()
    task = AckTask("all", "s", FakeLedger(), step)
    before = pa.total_allocated_bytes()
    batches = (pa.ipc.read_record_batch(batch.serialize(), batch.schema) for _ in range(10))
    most = max(pa.total_allocated_bytes() for _ in task(batches))
    assert most - before < 5 * sent.size


@pytest.mark.timeout(20)
def test_many_rows_that_fail_are_found_in_one_pass() -> None:
    """To look through all anchors for each of them takes minutes."""
    rows = 400_000
    numbers = np.arange(2 * rows)
    anchors = RowAnchors(numbers // 2, RootPositions(numbers, numbers), numbers)
    cause = Cause("bolt", "ValueError", "")
    found = marks_of_anchors(anchors, [(row, cause) for row in range(1, rows)])
    assert found.of(RootMark.RELEASED).positions.tolist() == [0, 1]
    assert positions_by_cause(found) == [(cause, list(range(2, 2 * rows)))]


class Dies(spout.BasicBolt):
    """Ends its process at a word."""

    output = "word string"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit, or end."""
        if tuple["word"] == "poison":
            os._exit(3)
        collector.emit((tuple["word"],))


def test_a_row_that_ends_its_process_fails_its_records_alone(tmp_path: Path) -> None:
    """Where the batch runs again; else its query would end whenever it is started."""
    mark = tmp_path / "again"
    mark.touch()
    ledger = FakeLedger()
    step = Step("dies", Dies(), pa.schema([("word", pa.string())]))
    task = AckTask("dies", "s", ledger, step, Safety(mark=str(mark)))
    rows = [held(["a"], [1]), held(["b", "poison", "c"], [2, 3, 4])]
    assert [batch.column(0).to_pylist() for batch in task(rows)] == [["a"], ["b", "c"]]
    [report] = ledger.reports
    assert report.marks.of(RootMark.RELEASED).positions.tolist() == [1, 2, 4]
    [(cause, failed)] = positions_by_cause(report.marks)
    assert (cause.error, failed) == (WORKER_DIED, [3])


@pytest.mark.parametrize("options", [{}, {"late": None}])
def test_what_comes_too_late_must_be_decided_where_rows_are_held_until_a_time(
    options: dict[str, None],
) -> None:
    """O1508: without `late` records were acked that no window counted, and nobody had chosen that."""
    with pytest.raises(UsageError, match=r'leaves open what becomes .*late="fail".*late="ack"'):
        spout.hold("ends_at", **options)


@pytest.mark.parametrize("late", ["", "drop", "ACK", True])
def test_a_choice_that_does_not_exist_is_refused_with_those_that_do(late: str) -> None:
    """O1508."""
    with pytest.raises(UsageError, match=r'ack or fail.*late="fail".*late="ack"'):
        spout.hold("ends_at", late=late)
