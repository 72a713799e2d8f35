"""What the tasks behind `spout.hold` and of `spout.ack_anchors` make of rows, without Spark."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import spout
from acker.identity import source_of
from spout.held.holding import AckTask, HoldTask
from spout.topology.chain import Step
from spout.tuples.anchor_columns import HELD_TYPE
from spout.tuples.anchors import ORDINAL_BITS
from spout.tuples.columns import ANCHOR
from tests.support.fake_ledger import FakeLedger


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
    assert report.held.indices.tolist() == [5, 7]
    assert report.held.edges.view(np.int64).tolist() == edges.drop_null().to_pylist()
    assert len(set(report.held.edges.tolist())) == len(report.held.until_ms) == 2


class Forgets(spout.ArrowBolt):
    """Fails the rows that say so, and leaves others open."""

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
    batches = [
        pa.record_batch(
            {
                "word": row_words,
                ANCHOR: pa.array(
                    [[{"source": 1, "position": at, "edge": at}] for at in positions], pa.list_(HELD_TYPE)
                ),
            }
        )
        for row_words, positions in ((["a", "forget", "bad"], [1, 2, 3]), (["b", "c", "d"], [4, 5, 6]))
    ]
    assert [batch.num_rows for batch in task(batches)] == [2, 3]
    [report] = ledger.reports
    assert report.released.places.positions.tolist() == [1, 4, 5, 6]
    [(_, failed)] = report.released.failures
    assert failed.positions.tolist() == [3]
