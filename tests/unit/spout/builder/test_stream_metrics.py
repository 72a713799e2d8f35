"""What tracked streams say of themselves in Prometheus' words."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from spout.builder.streams import StreamStatus, stream_metrics
from spout.planning_process.status import PlannerStatus
from spout.runtime.metrics import Scraped
from spout.tuples.counts import Counted, Measure, What
from spout.tuples.tuple import StreamId

SPLIT = StreamId("spout")
NOW_MS = 1_800_000_000_000


def registry(*statuses: StreamStatus) -> CollectorRegistry:
    """Collect what streams say."""
    found = CollectorRegistry()
    found.register(Scraped(lambda: stream_metrics(statuses, NOW_MS)))
    return found


def test_tuples_are_counted_by_group_component_and_source() -> None:
    counts = {
        Counted(What.EXECUTED, "split", SPLIT): Measure(7, 14_000_000, ((3, 2), (9, 4), (24, 1))),
        Counted(What.EMITTED, "split", StreamId("split")): Measure(20),
    }
    found = registry(StreamStatus("words", None, counts), StreamStatus("others", None, {}))
    labels = {"group": "words", "operator": "split", "source": "spout", "stream": "default"}
    assert found.get_sample_value("windhover_stream_executed_total", labels) == 7
    assert found.get_sample_value("windhover_stream_execute_seconds_total", labels) == 0.014
    name = "windhover_stream_execute_per_tuple_seconds"
    at_most = {"5e-06": 0, "1e-05": 2, "0.0005": 2, "0.001": 6, "50.0": 6, "+Inf": 7}
    for bound, tuples in at_most.items():
        assert found.get_sample_value(f"{name}_bucket", {**labels, "le": bound}) == tuples
    assert found.get_sample_value(f"{name}_sum", labels) == 0.014
    del labels["source"]
    assert found.get_sample_value("windhover_stream_emitted_total", labels) == 20


def test_tuples_that_came_too_late_are_counted_by_group() -> None:
    found = registry(StreamStatus("words", None, {}, late=3), StreamStatus("others", None, {}))
    assert found.get_sample_value("windhover_stream_late_total", {"group": "words"}) == 3
    assert found.get_sample_value("windhover_stream_late_total", {"group": "others"}) == 0


def test_a_group_is_written_alike_in_all_metrics() -> None:
    """In the notation of names: a query that joins two metrics by the group finds both."""
    counts = {Counted(What.EXECUTED, "split", SPLIT): Measure(1, 1_000, ((0, 1),))}
    planner = PlannerStatus(
        "running", "50%", wall=NOW_MS, held_now={"words/0": 1}, stands={"words/1": "no leader"}
    )
    metrics = list(stream_metrics([StreamStatus("50%", planner, counts, late=1, dropped=1)], NOW_MS))
    groups_by_metric = {
        metric.name: {sample.labels["group"] for sample in metric.samples} for metric in metrics
    }
    with_samples = {name: groups for name, groups in groups_by_metric.items() if groups}
    assert len(with_samples) >= 15
    assert {name: groups for name, groups in with_samples.items() if groups != {"50%25"}} == {}


def test_roots_are_told_as_the_planning_process_has_them() -> None:
    planner = PlannerStatus(
        "running", "words", pending=5, acked=11, oldest_pending_ms=1_500, wall=NOW_MS - 29_999
    )
    found = registry(StreamStatus("words", planner, {}), StreamStatus("others", None, {}))
    assert found.get_sample_value("windhover_stream_roots_pending", {"group": "words"}) == 5
    assert found.get_sample_value("windhover_stream_roots_acked_total", {"group": "words"}) == 11
    assert (
        found.get_sample_value("windhover_stream_roots_oldest_pending_age_seconds", {"group": "words"}) == 1.5
    )
    assert found.get_sample_value("windhover_stream_roots_acked_total", {"group": "others"}) is None


@pytest.mark.parametrize(
    "planner",
    [
        PlannerStatus("running", "words", "s1", 1, pending=5, wall=NOW_MS - 30_000),
        PlannerStatus("running", "words", "s1", 1, pending=5, wall=NOW_MS + 3_600_000),
        PlannerStatus("taking", "words", wall=NOW_MS),
        PlannerStatus("failed", "words", wall=NOW_MS),
    ],
)
def test_of_a_planning_process_that_is_gone_or_owns_nothing_no_root_is_counted(
    planner: PlannerStatus,
) -> None:
    """Spark kills it at the end of a query, and its last status stays, also where the clock is set back."""
    found = registry(StreamStatus("words", planner, {}))
    assert found.get_sample_value("windhover_stream_roots_pending", {"group": "words"}) is None
    assert found.get_sample_value("windhover_stream_roots_acked_total", {"group": "words"}) is None
    assert found.get_sample_value("windhover_stream_late_total", {"group": "words"}) == 0
