"""N at the broker: each ack topic has as many partitions as topics.yaml says, as long as a process runs.

A root's acker partition is computed from N. Partitions that were added to an ack topic would be written and
read by nobody, and a process that is started with the new number would look for open roots elsewhere.

Source: docs/design/protocol.md, section 4: every process stops when broker, topics.yaml and State disagree.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from acker.errors import Disagreement, TopicError
from acker.kafka.port import Log

LOOK_EVERY_MS: Final = 30_000
"""How often a process that runs asks again."""


class PartitionCounts:
    """The partition counts of some ack topics, looked at now and then."""

    def __init__(self, log: Log, names: Iterable[str], partitions: int) -> None:
        """Look for the first time.

        Args:
            log: the cluster.
            names: of the ack topics that the process reads or writes.
            partitions: N, as topics.yaml has it.

        Raises:
            TopicError: a topic is missing.
            Disagreement: a topic has another number of partitions.
        """
        self._log = log
        self._names = tuple(names)
        self._partitions = partitions
        self._looked_ms: int | None = None
        self._look()

    def step(self, now_ms: int) -> None:
        """Look again when it is time to; see `__init__` for the errors.

        Raises:
            Unreachable: the broker does not answer.
        """
        if self._looked_ms is not None and 0 <= now_ms - self._looked_ms < LOOK_EVERY_MS:
            return
        if self._looked_ms is not None:
            self._look()
        self._looked_ms = now_ms

    def require(self, numbers: Iterable[int]) -> None:
        """Look at once where a group shares partitions that N has not; see `__init__` for the errors."""
        if any(number >= self._partitions for number in numbers):
            self._look()

    def _look(self) -> None:
        found = self._log.topics(self._names)
        missing = [name for name in self._names if name not in found]
        if missing:
            raise TopicError(f"no topic {', '.join(missing)}; create them with 'windhover topics create'")
        for info in found.values():
            if info.partitions != self._partitions:
                raise Disagreement(
                    f"topic {info.name} has {info.partitions} partitions, topics.yaml says acker.partitions:"
                    f" {self._partitions}. N is fixed for life: set acker.partitions to {info.partitions} if"
                    " the topics were created so; if partitions were added to one, Kafka takes none back:"
                    " begin anew under another acker.topic_prefix, where groups go on at their committed"
                    " offsets"
                )
