"""Reads the last records of partitions for one search, and keeps notes of what was not read.

Source: docs/design/protocol.md, section 3 rule 10.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from acker.kafka.port import Log, Record, TopicPartition
from acker.kafka.read_to_end import pass_damage, read_piece
from acker.listing import offsets_text

RECORDS_MAX: Final = 200_000
"""How many records of one partition are read for one search, the last ones."""


@dataclass(slots=True)
class Tails:
    """Reads at most `records_max` of a partition's records.

    If a method does not read all records, it adds a note. Its argument `what_is_unknown` is the
    end of the note: what nobody knows then.

    Attributes:
        wait_ms: how long a read waits for a record.
        notes: sentences on what was not read, and what is therefore unknown.
        missing: topics that do not exist: nothing is read of them.
    """

    log: Log
    wait_ms: int
    records_max: int = RECORDS_MAX
    notes: list[str] = field(default_factory=list)
    missing: frozenset[str] = frozenset()

    def read_last(self, topic: str, partition: int, what_is_unknown: str) -> Iterator[Record]:
        """Read the last committed records of a partition."""
        if self.add_note_if_missing(topic, what_is_unknown):
            return iter(())
        topic_partition = TopicPartition(topic, partition)
        start = self.log.starts([topic_partition])[topic_partition]
        end = self.log.stable_ends([topic_partition])[topic_partition]
        read_from = max(start, end - self.records_max)
        self._add_note_of_unread(topic_partition, start, read_from, what_is_unknown)
        return self._read(topic_partition, read_from, end, committed=True)

    def read_from(
        self, topic: str, partition: int, first_offset: int, what_is_unknown: str
    ) -> Iterator[Record]:
        """Read the committed records of a partition from an offset on, at most the first
        `records_max`.
        """
        topic_partition = TopicPartition(topic, partition)
        stable_end = self.log.stable_ends([topic_partition])[topic_partition]
        read_to = min(stable_end, first_offset + self.records_max)
        self._add_note_of_unread(topic_partition, read_to, stable_end, what_is_unknown)
        return self._read(topic_partition, first_offset, read_to, committed=True)

    def read_rest(
        self, topic: str, partition: int, first_offset: int, what_is_unknown: str
    ) -> Iterator[Record]:
        """Read the records of a partition from an offset on, the last `records_max` of them.

        Uncommitted ones are read, too. Records that an acker has deleted concern no open root, so
        there is no note of them.
        """
        if self.add_note_if_missing(topic, what_is_unknown):
            return iter(())
        topic_partition = TopicPartition(topic, partition)
        start = max(first_offset, self.log.starts([topic_partition])[topic_partition])
        end = self.log.ends([topic_partition])[topic_partition]
        read_from = max(start, end - self.records_max)
        self._add_note_of_unread(topic_partition, start, read_from, what_is_unknown)
        return self._read(topic_partition, read_from, end, committed=False)

    def _read(
        self,
        topic_partition: TopicPartition,
        start: int,
        end: int,
        *,
        committed: bool,
    ) -> Iterator[Record]:
        """Read the records of [start, end); `committed`: without those of aborted transactions."""
        return read_piece(
            self.log,
            topic_partition,
            start,
            end,
            committed=committed,
            wait_ms=self.wait_ms,
            on_damage=pass_damage,
        )

    def add_note_if_missing(self, topic: str, what_is_unknown: str) -> bool:
        """Add a note that a topic is missing, once, if it is; return whether it is."""
        if topic not in self.missing:
            return False
        note = f"topic {topic} is missing: {what_is_unknown}; run `windhover topics create`"
        if note not in self.notes:
            self.notes.append(note)
        return True

    def _add_note_of_unread(
        self,
        topic_partition: TopicPartition,
        start: int,
        end: int,
        what_is_unknown: str,
    ) -> None:
        """Add a note on offsets [start, end) that are not read, if there are any."""
        if start < end:
            name = f"{topic_partition.topic}/{topic_partition.partition}"
            was_or_were = "was" if end - start == 1 else "were"
            unread_text = f"{offsets_text(start, end)} {was_or_were} not read"
            self.notes.append(f"{name}: {unread_text}; {what_is_unknown}")
