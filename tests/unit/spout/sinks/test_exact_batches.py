"""Which batches an exact sink writes: those that its own start has planned."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from acker.config.settings import AckTopics
from acker.errors import TrackingError
from acker.wire.events import SourceRun
from spout.exactly_once.store import BatchKey, StoreGrant
from spout.planning.plan import BatchPlan
from spout.sinks.exact_sink import ExactSink
from spout.tuples.anchors import AnchorForm


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
    return ExactSink(Store(), stream, AnchorForm.PACKED, application)


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
    assert not sink._accept_planned_batch(plan_of(epoch), "run 2", 7), "though no run has had it"
    assert "batch_of_an_earlier_start batch=7 group=g" in caplog.text


def test_a_batch_that_a_run_has_had_is_not_another_run_s_though_nobody_says_that_it_runs_again() -> None:
    """A query that is started again in one driver has the sink of before, which may not be open anew yet."""
    sink = sink_of(Link())
    epoch = sink.open(5)
    assert sink._accept_planned_batch(plan_of(epoch), "run 1", 7)
    assert not sink._accept_planned_batch(plan_of(epoch), "run 2", 7)
    later_epoch = sink.open(5)
    assert sink._accept_planned_batch(plan_of(later_epoch), "run 2", 8)


@pytest.mark.parametrize("is_opened", [False, True])
def test_a_batch_that_a_session_without_the_store_has_planned_ends_the_run(is_opened: bool) -> None:
    sink = sink_of(Link())
    if is_opened:
        sink.open(5)
    with pytest.raises(TrackingError, match=r"call spout\.exact_sink before the query starts"):
        sink._accept_planned_batch(plan_of(4), "run 1", 7)
