"""Deletes from the ack topics what no restart, no replay worker and no reader of verdicts needs any more.

Source: docs/design/protocol.md, section 4: "ackers delete records below what is still needed".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from acker.config.limits import AckerLimits
from acker.config.settings import AckTopics
from acker.kafka.port import Log, TopicPartition
from acker.service.partition import PartitionAcker


@dataclass(slots=True)
class Retention:
    """Deletes, every `retention_interval_ms`, records below those that are still needed.

    Attributes:
        log: the cluster.
        topics: names of the ack topics.
        replay_group: consumer group of the replay workers. Verdicts above its commit stay; without a commit
            all stay.
        limits: how often to delete, and how long a verdict stays readable.
    """

    log: Log
    topics: AckTopics
    replay_group: str
    limits: AckerLimits
    _next_ms: int | None = None
    _deleted: dict[TopicPartition, int] = field(default_factory=dict)

    def step(self, ackers: Iterable[PartitionAcker], now_ms: int) -> None:
        """Delete records, if it is due.

        Args:
            ackers: the partitions that this process owns.
            now_ms: wall time.

        Raises:
            Unreachable: the broker does not answer.
            LogError: the broker refuses to delete.
        """
        if self._next_ms is None:
            self._next_ms = now_ms + self.limits.retention_interval_ms
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + self.limits.retention_interval_ms
        bounds: dict[TopicPartition, int] = {}
        for acker in ackers:
            bounds |= acker.needed
        verdicts = [where for where in bounds if where.topic == self.topics.verdict]
        for where, offset in self._readable(verdicts, now_ms).items():
            bounds[where] = min(bounds[where], offset)
        bounds = {where: at for where, at in bounds.items() if at > self._deleted.get(where, 0)}
        if bounds:
            self.log.delete_before(bounds)
            self._deleted |= bounds

    def _readable(self, verdicts: list[TopicPartition], now_ms: int) -> dict[TopicPartition, int]:
        """Return by partition the offset of the first verdict that somebody may still read."""
        if not verdicts:
            return {}
        replayed = self.log.committed(self.replay_group, verdicts)
        young = self.log.offsets_at(verdicts, max(0, now_ms - self.limits.verdict_retention_ms))
        return {where: min(replayed.get(where, 0), young[where]) for where in verdicts}
