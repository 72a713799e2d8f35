"""The writer of one start: what it fences, publishes, leaves out and refuses, and in which order."""

from __future__ import annotations

from dataclasses import dataclass, field
from dataclasses import replace as changed
from typing import Final
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest

from acker.config.settings import AckTopics
from acker.errors import RowsChanged, StoreFenced, TrackingError, Unreachable, UsageError
from acker.identity import child_edge, root_edge
from acker.wire.codec import wire_codec
from acker.wire.events import Acks, Fails, SourceRun, positions
from spout.exactly_once.acked_roots import ACROSS_BATCHES, acked_roots, without_open
from spout.exactly_once.rooted_rows import RootedRows
from spout.exactly_once.store import BatchKey, LastBatch, StoreGrant
from spout.exactly_once.writer import ExactWriter, SettledBatch, settled_batch
from spout.planning.plan import BatchPlan
from spout.publishing.fold import BatchOutcome, TaskId, TaskReport
from spout.publishing.publish import BatchLane, PublicationRecords, publication_of
from spout.publishing.root_marks import RootMark, RootMarks
from spout.tuples.failures import Cause
from tests.support.outcomes import outcome_from

A: Final = 1 << 16
TOPICS: Final = AckTopics.with_prefix("")
BAD: Final = Cause("split", "ValueError", "bad")
FIRST, LAST = 10, 16


@dataclass
class Store:
    """A store in memory, that counts what is called; it fails where it is told to."""

    epoch: int = 0
    last: LastBatch | None = None
    rows: list[int] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    fails_after_commit: bool = False

    def open(self, group: str, epoch_min: int) -> StoreGrant:
        self.calls.append("open")
        self.epoch = max(self.epoch + 1, epoch_min)
        return StoreGrant(self.epoch, self.last)

    def commit(self, key: BatchKey, rows: pa.Table, publication: bytes) -> None:
        self.calls.append("commit")
        if key.epoch != self.epoch:
            raise StoreFenced("a later start has opened the store")
        self.rows += rows.column("position").to_pylist()
        self.last = LastBatch(key, publication)
        if self.fails_after_commit:
            raise Unreachable("no answer")


@dataclass
class Published:
    """What was published, one publication after the other."""

    store: Store
    publications: list[PublicationRecords] = field(default_factory=list)

    def __call__(self, records: PublicationRecords) -> None:
        self.store.calls.append("publish")
        self.publications.append(records)


def writer_of(store: Store) -> tuple[ExactWriter, Published]:
    """Make a writer of a store."""
    published = Published(store)
    return ExactWriter(store, "g", TOPICS, published), published


def outcome_of(epoch: int) -> BatchOutcome:
    """Make a batch: 10 fails, 11 is left open, 12 holds no record, and 13 to 15 are done."""
    plan = BatchPlan("g", "s", epoch, 4, 77, 30_000, True, (SourceRun(A, FIRST, LAST),))
    left_open = np.array([1], np.int64)
    edges = np.array([child_edge(root_edge(A, 11), 7, 0)], np.uint64)
    failed = ((BAD, np.array([0], np.int64)),)
    return outcome_from(plan, failed, (SourceRun(A, 12, 13),), left_open, edges)


def rows_of(*row_positions: int) -> RootedRows:
    """Make a row for each position of A."""
    array = np.array(row_positions, np.int64)
    table = pa.table({"position": array})
    return RootedRows(table, np.full(len(array), A), array)


def batch_of(outcome: BatchOutcome, batch: int = 3) -> SettledBatch:
    """Make a settled batch."""
    return SettledBatch("q", batch, outcome)


ROWS: Final = rows_of(10, 11, 13, 13, 14)


def test_a_batch_is_committed_with_its_key_and_only_then_to_be_published() -> None:
    store = Store()
    writer, published = writer_of(store)
    epoch = writer.open(5)

    records = writer.commit(batch_of(outcome_of(epoch)), ROWS)

    assert store.calls == ["open", "commit"]
    assert published.publications == []
    assert store.last is not None
    assert store.last.key == BatchKey("g", 5, "s", "q", 3)
    [acks] = [wire_codec().decode(record.value) for record in records.acks]
    assert isinstance(acks, Acks)
    assert (acks.lane, acks.seq, acks.session, acks.epoch) == ("q/s", 3, "s", 5)
    assert acks.runs == ((13, 16),)
    assert acks.positions == b"", "what was left open contributes nothing"


def test_rows_of_roots_that_failed_or_were_left_open_are_left_out() -> None:
    """And the last root has no row, which is no fault."""
    store = Store()
    writer, _ = writer_of(store)

    writer.commit(batch_of(outcome_of(writer.open(1))), ROWS)

    assert store.rows == [13, 13, 14]


def test_a_root_without_a_record_is_not_acked() -> None:
    assert acked_roots(outcome_of(1)).runs() == [(A, 13, 16)]


def test_a_root_that_was_left_open_contributes_nothing_so_that_no_other_lane_completes_it() -> None:
    outcome = outcome_of(1)
    [acks] = publication_of(outcome, batch_of(outcome).lane).acks
    [withheld] = publication_of(without_open(outcome), batch_of(outcome).lane).acks

    assert positions(acks.positions).tolist() == [11]
    assert positions(withheld.positions).tolist() == []
    assert withheld.runs == acks.runs == ((13, 16),)


def test_a_batch_without_open_roots_is_published_as_it_is() -> None:
    outcome = changed(outcome_of(1), marks=outcome_of(1).marks.of(RootMark.FAILED))

    assert without_open(outcome) is outcome


def test_a_start_publishes_what_the_one_before_committed_before_it_has_its_epoch() -> None:
    """Bytes that are the same as those of the first time, so that marks take them for a repeat."""
    store = Store()
    first, _ = writer_of(store)
    committed = first.commit(batch_of(outcome_of(first.open(5))), ROWS)
    second, published = writer_of(store)

    assert second.open(1) == 6
    assert store.calls == ["open", "commit", "open", "publish"]
    assert published.publications == [committed]
    [fails] = [wire_codec().decode(record.value) for record in committed.fails]
    assert isinstance(fails, Fails)


def test_a_writer_writes_nothing_once_a_later_start_has_opened_the_store() -> None:
    store = Store()
    first, _ = writer_of(store)
    epoch = first.open(5)
    writer_of(store)[0].open(1)

    with pytest.raises(StoreFenced):
        first.commit(batch_of(outcome_of(epoch)), ROWS)
    assert store.rows == []


def test_of_two_starts_the_later_one_has_the_higher_session_whatever_the_ackers_said() -> None:
    """The first one may have asked them later, and its `Take` may come later."""
    store = Store()

    assert [writer_of(store)[0].open(epoch_min) for epoch_min in (7, 3, 8, 20)] == [7, 8, 9, 20]


def test_a_batch_that_another_start_planned_is_not_its_own() -> None:
    store = Store()
    writer, _ = writer_of(store)

    assert not writer.is_own(0)
    epoch = writer.open(5)
    assert [writer.is_own(planned) for planned in (4, 5, 6)] == [False, True, False]
    with pytest.raises(UsageError, match="another start has planned batch 3"):
        writer.commit(batch_of(outcome_of(epoch - 1)), ROWS)
    assert store.calls == ["open"]


def evaluated(stage: int, attempt: int, partition: int, operator: str = "split") -> TaskReport:
    return TaskReport(operator, task=TaskId(stage, attempt, partition))


ONCE = [evaluated(1, 10, 0), evaluated(1, 11, 1), evaluated(2, 12, 0, "count"), evaluated(2, 13, 1, "count")]


@pytest.mark.parametrize(
    "evaluations",
    [[], ONCE, [evaluated(1, 10, 0), evaluated(1, 10, 0)]],
    ids=["nothing", "once", "one task that coalesces two partitions of the source"],
)
def test_a_batch_whose_tasks_reported_once_is_settled(evaluations: list[TaskReport]) -> None:
    outcome = outcome_of(1)
    batch = settled_batch(BatchLane("q", 3), evaluations, lambda: outcome)
    assert batch == SettledBatch("q", 3, outcome)


@pytest.mark.parametrize(
    "again",
    [
        evaluated(1, 14, 1),
        evaluated(3, 14, 1),
        evaluated(3, 14, 1, "split+upper"),
        evaluated(2, 14, 0, "count"),
    ],
    ids=["another attempt", "another stage", "with one bolt more", "behind a shuffle"],
)
def test_a_batch_in_which_a_task_reported_twice_is_not_settled(again: TaskReport) -> None:
    """D3204: what is settled may be of the other run than the rows."""
    settle = Mock()
    with pytest.raises(RowsChanged, match="1 tasks of the batch reported twice"):
        settled_batch(BatchLane("q", 3), [*ONCE, again], settle)
    settle.assert_not_called()


def test_a_row_of_no_root_of_the_batch_leaves_the_store_as_it_is() -> None:
    store = Store()
    writer, _ = writer_of(store)
    rows = rows_of(13, 16)

    with pytest.raises(TrackingError, match="position 16"):
        writer.commit(batch_of(outcome_of(writer.open(1))), rows)
    assert store.calls == ["open"]


@pytest.mark.parametrize("kind", ACROSS_BATCHES)
def test_a_batch_that_holds_tuples_is_refused(kind: RootMark) -> None:
    store = Store()
    writer, _ = writer_of(store)
    outcome = outcome_of(writer.open(1))
    roots = np.array([A], np.int64), np.array([13], np.int64)
    cause = BAD if kind.has_cause else None
    held = RootMarks.of_roots(kind, roots, np.array([1], np.uint64), cause)
    outcome = changed(outcome, marks=RootMarks.together([outcome.marks, held]))

    with pytest.raises(TrackingError, match=r"holds tuples across batches.*spout\.sink"):
        writer.commit(batch_of(outcome), ROWS)
    assert store.calls == ["open"]


def test_a_commit_without_an_answer_is_found_by_the_next_start() -> None:
    store = Store(fails_after_commit=True)
    first, _ = writer_of(store)
    epoch = first.open(5)
    with pytest.raises(Unreachable):
        first.commit(batch_of(outcome_of(epoch)), ROWS)
    second, published = writer_of(store)
    second.open(1)

    assert len(published.publications) == 1
    assert store.rows == [13, 13, 14]
