"""A status as metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry

from acker.errors import UsageError
from spout.local.ports import free_port
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


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (9100, ("0.0.0.0", 9100)),
        ("9100", ("0.0.0.0", 9100)),
        ("127.0.0.1:9100", ("127.0.0.1", 9100)),
        ("[::1]:9100", ("::1", 9100)),
        ("localhost:1", ("localhost", 1)),
    ],
)
def test_metrics_are_served_at_an_address(wanted: int | str, found: tuple[str, int]) -> None:
    assert metrics.address_of(wanted) == found


@pytest.mark.parametrize("wanted", [0, 65_536, "", "here", ":9100", "::1:9100", "[]:9100", "127.0.0.1:"])
def test_what_is_no_address_is_refused_with_those_that_are(wanted: int | str) -> None:
    with pytest.raises(UsageError, match=r"--metrics-port .*9100, 127\.0\.0\.1:9100, \[::1\]:9100"):
        metrics.address_of(wanted)


def test_metrics_for_this_machine_alone_are_not_served_to_others() -> None:
    port = free_port()
    metrics.serve(collector(), f"127.0.0.2:{port}")
    with urlopen(f"http://127.0.0.2:{port}/metrics", timeout=10) as answer:
        assert b"windhover_acker_open_roots 5.0" in answer.read()
    with pytest.raises(URLError):
        urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10)
    with pytest.raises(UsageError, match=r"--metrics-port 192\.0\.2\.99.*address of this machine"):
        metrics.serve(collector(), f"192.0.2.99:{port}")


def test_metrics_are_served_and_a_port_in_use_is_a_usage_error() -> None:
    port = free_port()
    metrics.serve(collector(), port)

    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert b"windhover_acker_open_roots 5.0" in answer.read()
    with pytest.raises(UsageError, match=f"--metrics-port {port}"):
        metrics.serve(collector(), port)
