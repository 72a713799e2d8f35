"""The status of a `KafkaSpout` as metrics of Prometheus; pure."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric

from spout.builder.tuple_metrics import root_metrics
from spout.runtime.metrics import counter, gauge
from spout.standalone.queues import SpoutStatus

_PREFIX = "windhover_spout"


def spout_metrics(status: SpoutStatus, now_ms: int) -> Iterator[Metric]:
    """Yield the metrics of a spout; wall time now. Clients, whose names may be random, count together."""
    group = status.group.group
    yield from root_metrics(_PREFIX, {(group,): status.group}, ["group"], now_ms)
    open_items = {name: sum(clients.values()) for name, clients in status.open.items()}
    for name, text, found in (
        ("waiting_records", "records that are ready to be opened", status.waiting),
        ("open_records", "records that clients have open", open_items),
    ):
        samples = {(each, group): float(count) for each, count in found.items()}
        yield gauge(f"{_PREFIX}_{name}", text, samples, ["input", "group"])
    text = "records that were settled after their root had timed out"
    yield counter(f"{_PREFIX}_settled_late", text, {(group,): status.late}, ["group"])
