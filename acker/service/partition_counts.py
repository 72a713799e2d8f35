"""Checks that each ack topic has N partitions, the number in topics.yaml, as long as a process runs.

A root's acker partition is computed from N. If partitions are added to an ack
topic, no process reads or writes them; and a process that starts with the new
N computes other acker partitions for the same roots.

Source: docs/design/protocol.md, section 4: every process stops when broker,
topics.yaml and State disagree.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from acker.errors import Disagreement, TopicError
from acker.kafka.port import Log

CHECK_EVERY_MS: Final = 30_000
"""How often a running process checks again."""


class PartitionCounts:
    """The partition counts of some ack topics, checked every `CHECK_EVERY_MS`."""

    def __init__(self, log: Log, names: Iterable[str], partitions: int) -> None:
        """Check for the first time; `names` are the ack topics that the process reads or writes.

        Raises:
            TopicError: a topic is missing.
            Disagreement: one has another number than `partitions`.
        """
        self._log = log
        self._names = tuple(names)
        self._partitions = partitions
        self._checked_ms: int | None = None
        self._check()

    def check_if_due(self, now_ms: int) -> None:
        """Check again whether each topic has N partitions, if `CHECK_EVERY_MS` are over by wall
        time.

        Raises the errors of `__init__`.
        """
        # a clock that was set back ends the wait
        if self._checked_ms is not None and 0 <= now_ms - self._checked_ms < CHECK_EVERY_MS:
            return
        # the first call comes just after the check of `__init__`, and only sets the time
        if self._checked_ms is not None:
            self._check()
        self._checked_ms = now_ms

    def require(self, assigned_partitions: Iterable[int]) -> None:
        """Check at once if the group has assigned a partition number that is not below N.

        Raises the errors of `__init__`.
        """
        if any(partition >= self._partitions for partition in assigned_partitions):
            self._check()

    def _check(self) -> None:
        """Ask for the topics; raise the errors of `__init__`."""
        infos = self._log.topics(self._names)
        missing = [name for name in self._names if name not in infos]
        if missing:
            raise TopicError(f"no topic {', '.join(missing)}; create them with `windhover topics create`")
        for info in infos.values():
            if info.partitions != self._partitions:
                raise Disagreement(
                    f"topic {info.name} has {info.partitions} partitions, topics.yaml says acker.partitions:"
                    f" {self._partitions}. N is fixed for life: set acker.partitions to {info.partitions} if"
                    " the topics were created so; if partitions were added to one, Kafka takes none back:"
                    " begin anew under another acker.topic_prefix, where groups go on at their committed"
                    " offsets"
                )
