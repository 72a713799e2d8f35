"""Tell whether any lost root of a group still waits for its replay, for queries that end when none does.

`_ack_due` lists what waits; its key ``progress`` says up to which verdict the replay worker has taken over.
A root leaves the list in the transaction that writes its copy or its dead letter, so once the list is empty
every copy stands on the replay topic.

Source: DESIGN.md, sections 5.1 (`availableNow`) and 5.4.
"""

from __future__ import annotations

from collections.abc import Mapping

from acker.log import Log, TopicPartition
from replay.due import PROGRESS_KEY, Progress, due_codec, parse_root_key

POLL_MS = 10


class DueWatch:
    """Follows `_ack_due` from its beginning."""

    def __init__(self, log: Log, topic: str, partitions: int, sources: frozenset[int]) -> None:
        """Follow N partitions of the topic, for the roots of some sources."""
        self._log = log
        self._codec = due_codec()
        self._sources = sources
        self._places = [TopicPartition(topic, partition) for partition in range(partitions)]
        self._waiting: dict[int, set[bytes]] = {partition: set() for partition in range(partitions)}
        self._taken_over: dict[int, int] = dict.fromkeys(range(partitions), 0)
        self._reader = log.reader(committed=True)
        self._reader.assign(log.starts(self._places))

    def is_over(self, lost_below: Mapping[int, int]) -> bool:
        """Tell whether nothing waits; False also as long as not everything was read.

        Args:
            lost_below: of each verdict partition, the offset behind the last verdict that lost a root.
        """
        ends = self._log.stable_ends(self._places)
        for record in self._reader.poll(POLL_MS):
            self._read(record.partition, record.key, record.value)
        if any(self._reader.position(place) < end for place, end in ends.items()):
            return False
        behind = any(self._taken_over[partition] < offset for partition, offset in lost_below.items())
        return not behind and not any(self._waiting.values())

    def close(self) -> None:
        """Leave."""
        self._reader.close()

    def _read(self, partition: int, key: bytes | None, value: bytes | None) -> None:
        if key == PROGRESS_KEY and value is not None:
            progress = self._codec.decode(value)
            if isinstance(progress, Progress):
                self._taken_over[partition] = progress.next
            return
        root = parse_root_key(key)
        if key is None or root is None or root.source not in self._sources:
            return
        if value is None:
            self._waiting[partition].discard(key)
        else:
            self._waiting[partition].add(key)
