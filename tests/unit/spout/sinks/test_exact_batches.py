"""Which batches an exact sink writes: those that its own start has planned, and whose tasks reported once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from acker.config.settings import AckTopics
from acker.errors import RowsChanged, TrackingError
from acker.wire.events import SourceRun
from spout.exactly_once.store import BatchKey, StoreGrant
from spout.planning.plan import BatchPlan
from spout.publishing.fold import TaskId, TaskReport
from spout.sinks.exact_sink import ExactSink, refuse_repeated_tasks
from spout.tuples.anchors import Carry


class Store:
    """Grants epochs, and takes what comes."""

    epoch = 0

    def open(self, group: str, epoch_min: int) -> StoreGrant:
        self.epoch = max(epoch_min, self.epoch + 1)
        return StoreGrant(self.epoch, None)

    def commit(self, key: BatchKey, rows: pa.Table, publication: bytes) -> None:
        """Commit."""


class Link:
    """Knows which batches are run again."""

    again = False

    def runs_again(self, plan: BatchPlan) -> bool:
        return self.again


def sink_of(link: Link) -> ExactSink:
    publisher = SimpleNamespace(topics=AckTopics.with_prefix(""), write=lambda records: None)
    stream: Any = SimpleNamespace(group="g", publisher=publisher)
    application: Any = SimpleNamespace(link=lambda _: link)
    return ExactSink(Store(), stream, Carry.PACKED, application)


def plan_of(epoch: int) -> BatchPlan:
    return BatchPlan("g", "s-store", epoch, 1, 0, 0, True, (SourceRun(65_536, 0, 10),))


def test_a_batch_that_is_run_again_is_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Rule 12: the store has that one, or its records come again."""
    caplog.set_level("INFO")
    link = Link()
    sink = sink_of(link)
    epoch = sink.open(5)
    link.again = True
    assert not sink._is_own(plan_of(epoch), "run 2", 7), "though no run has had it"
    assert "batch_of_an_earlier_start batch=7 group=g" in caplog.text


def test_a_batch_that_a_run_has_had_is_not_another_run_s_though_nobody_says_that_it_runs_again() -> None:
    """A query that is started again in one driver has the sink of before, which may not be open anew yet."""
    sink = sink_of(Link())
    epoch = sink.open(5)
    assert sink._is_own(plan_of(epoch), "run 1", 7)
    assert not sink._is_own(plan_of(epoch), "run 2", 7)
    later_epoch = sink.open(5)
    assert sink._is_own(plan_of(later_epoch), "run 2", 8)


@pytest.mark.parametrize("is_opened", [False, True])
def test_a_batch_that_a_session_without_the_store_has_planned_ends_the_run(is_opened: bool) -> None:
    sink = sink_of(Link())
    if is_opened:
        sink.open(5)
    with pytest.raises(TrackingError, match=r"call spout\.exact_sink before the query starts"):
        sink._is_own(plan_of(4), "run 1", 7)


def evaluated(stage: int, attempt: int, partition: int, operator: str = "split") -> TaskReport:
    return TaskReport(operator, task=TaskId(stage, attempt, partition))


ONCE = [evaluated(1, 10, 0), evaluated(1, 11, 1), evaluated(2, 12, 0, "count"), evaluated(2, 13, 1, "count")]


@pytest.mark.parametrize(
    "evaluations",
    [[], ONCE, [evaluated(1, 10, 0), evaluated(1, 10, 0)]],
    ids=["nothing", "once", "one task that coalesces two partitions of the source"],
)
def test_a_batch_whose_tasks_reported_once_counts(evaluations: list[TaskReport]) -> None:
    before = list(evaluations)
    refuse_repeated_tasks(evaluations)
    assert evaluations == before


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
def test_a_batch_in_which_a_task_reported_twice_does_not_count(again: TaskReport) -> None:
    """D3204: what was settled may be of the other run than the rows."""
    with pytest.raises(RowsChanged, match="1 tasks of the batch reported twice"):
        refuse_repeated_tasks([*ONCE, again])
