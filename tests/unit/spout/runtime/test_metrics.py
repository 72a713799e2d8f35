"""A status as metrics."""

from __future__ import annotations

from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from spout.runtime import metrics


@dataclass(frozen=True)
class Counts:
    acked: int = 7


@dataclass(frozen=True)
class Status:
    partitions: tuple[int, ...] = (0, 3)
    open_roots: int = 5
    counts: Counts = field(default_factory=Counts)
    replayed_by_input: dict[str, int] = field(default_factory=lambda: {"sentences": 2})
    next_due_ms: int | None = None


def collector() -> metrics.StatusCollector:
    """An acker's metrics, of one status."""
    made = metrics.StatusCollector("acker")
    made.update(Status())
    return made


def test_each_number_of_a_status_is_a_metric_and_a_collection_counts_its_members() -> None:
    registry = CollectorRegistry()
    registry.register(collector())

    assert registry.get_sample_value("windhover_acker_partitions") == 2
    assert registry.get_sample_value("windhover_acker_open_roots") == 5
    assert registry.get_sample_value("windhover_acker_acked_total") == 7
    by_input = registry.get_sample_value("windhover_acker_replayed_by_input_total", {"input": "sentences"})
    assert by_input == 2
    assert registry.get_sample_value("windhover_acker_next_due_ms") is None
