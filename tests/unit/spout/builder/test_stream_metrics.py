"""What tracked streams say of themselves in Prometheus' words."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from spout.builder.streams import StreamStatus, stream_metrics
from spout.planner.mailbox import PlannerStatus
from spout.runtime.metrics import Scraped
from spout.tuples.counts import Counted, Measure, What
from spout.tuples.tuple import StreamId

SPLIT = StreamId("spout")


def registry(*statuses: StreamStatus) -> CollectorRegistry:
    """Collect what streams say."""
    found = CollectorRegistry()
    found.register(Scraped(lambda: stream_metrics(statuses)))
    return found


def test_tuples_are_counted_by_group_component_and_source() -> None:
    counts = {
        Counted(What.EXECUTED, "split", SPLIT): Measure(7, 14_000_000),
        Counted(What.EMITTED, "split", StreamId("split")): Measure(20),
    }
    found = registry(StreamStatus("words", None, counts), StreamStatus("others", None, {}))
    labels = {"group": "words", "component": "split", "source": "spout", "stream": "default"}
    assert found.get_sample_value("windhover_stream_executed_total", labels) == 7
    assert found.get_sample_value("windhover_stream_execute_seconds_total", labels) == 0.014
    del labels["source"]
    assert found.get_sample_value("windhover_stream_emitted_total", labels) == 20


def test_tuples_that_came_too_late_are_counted_by_group() -> None:
    found = registry(StreamStatus("words", None, {}, late=3), StreamStatus("others", None, {}))
    assert found.get_sample_value("windhover_stream_late_total", {"group": "words"}) == 3
    assert found.get_sample_value("windhover_stream_late_total", {"group": "others"}) == 0


def test_roots_are_told_as_the_planning_process_has_them() -> None:
    planner = PlannerStatus("running", "words", pending=5, acked=11)
    found = registry(StreamStatus("words", planner, {}), StreamStatus("others", None, {}))
    assert found.get_sample_value("windhover_stream_roots_pending", {"group": "words"}) == 5
    assert found.get_sample_value("windhover_stream_roots_acked_total", {"group": "words"}) == 11
    assert found.get_sample_value("windhover_stream_roots_acked_total", {"group": "others"}) is None
