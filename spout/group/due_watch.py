"""Whether a lost root of a group still waits for its replay, for queries that end when none does.

`_ack_due` lists the waiting roots; its key ``progress`` has the verdict up to which the replay worker has
taken them over. A root leaves the list in the transaction that writes its copy or its dead letter. So once
the list is empty, every copy is on the replay topic.

Source: docs/design/protocol.md, sections 5.1 (`availableNow`) and 5.4.
"""

from __future__ import annotations

from collections.abc import Mapping

from acker.kafka.port import Log, Record
from replay.records.due import Due
from spout.group.due_reader import DueReader


class DueWatch:
    """Follows `_ack_due` from its beginning."""

    def __init__(self, log: Log, topic: str, partitions: int, sources: frozenset[int]) -> None:
        """Follow N partitions of the topic, for the roots of some sources."""
        self._sources = sources
        self._waiting: set[tuple[int, bytes]] = set()
        self._reader = DueReader(log, topic, partitions, self._put)

    def is_over(self, lost_below: Mapping[int, int]) -> bool:
        """Return whether nothing waits; False too as long as not everything was read.

        Args:
            lost_below: by verdict partition, the offset behind the last verdict of a lost root.
        """
        if not self._reader.read():
            return False
        taken_over = self._reader.taken_over
        behind = any(taken_over[partition] < offset for partition, offset in lost_below.items())
        return not behind and not self._waiting

    def close(self) -> None:
        """Leave."""
        self._reader.close()

    def _put(self, record: Record, due: Due | None) -> None:
        name = record.partition, record.key or b""
        if record.value is None:
            self._waiting.discard(name)
        elif due is not None and due.source in self._sources:
            self._waiting.add(name)
