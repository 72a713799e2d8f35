"""Reads the last records of partitions for one search, and notes what was not read.

Source: docs/design/protocol.md, section 3 rule 10.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from acker.kafka.port import Log, Record, TopicPartition
from acker.kafka.read_to_end import pass_damage, read_piece

RECORDS_MAX: Final = 200_000
"""How many records of one partition are read for one search, the last ones."""


@dataclass(slots=True)
class Tails:
    """Reads at most `records_max` of a partition's records.

    `notes` are sentences on what was not read, and what is therefore unknown (`lacking`). Of a
    topic in `missing` nothing is read.
    """

    log: Log
    wait_ms: int
    records_max: int = RECORDS_MAX
    notes: list[str] = field(default_factory=list)
    missing: frozenset[str] = frozenset()

    def last(self, topic: str, partition: int, lacking: str) -> Iterator[Record]:
        """Read the last committed records of a partition."""
        if self.lacks(topic, lacking):
            return iter(())
        place = TopicPartition(topic, partition)
        start = self.log.starts([place])[place]
        end = self.log.stable_ends([place])[place]
        read_from = max(start, end - self.records_max)
        self._note_unread(place, start, read_from, lacking)
        return self._read(place, read_from, end, committed=True)

    def since(self, topic: str, partition: int, first_offset: int, lacking: str) -> Iterator[Record]:
        """Read the committed records of a partition from an offset on.

        Of too many the first ones.
        """
        place = TopicPartition(topic, partition)
        stable_end = self.log.stable_ends([place])[place]
        read_to = min(stable_end, first_offset + self.records_max)
        self._note_unread(place, read_to, stable_end, lacking)
        return self._read(place, first_offset, read_to, committed=True)

    def rest(self, topic: str, partition: int, first_offset: int, lacking: str) -> Iterator[Record]:
        """Read all records of a partition from an offset on; of too many the last ones.

        Records that an acker has deleted concern no open root, so they are not missed.
        """
        if self.lacks(topic, lacking):
            return iter(())
        place = TopicPartition(topic, partition)
        start = max(first_offset, self.log.starts([place])[place])
        end = self.log.ends([place])[place]
        read_from = max(start, end - self.records_max)
        self._note_unread(place, start, read_from, lacking)
        return self._read(place, read_from, end, committed=False)

    def _read(self, place: TopicPartition, start: int, end: int, *, committed: bool) -> Iterator[Record]:
        """Read the records of [start, end); `committed`: without those of aborted transactions."""
        return read_piece(
            self.log,
            place,
            start,
            end,
            committed=committed,
            wait_ms=self.wait_ms,
            on_damage=pass_damage,
        )

    def lacks(self, topic: str, lacking: str) -> bool:
        """Return whether a topic is missing.

        If it is, `notes` says so once, with what is `lacking` by that.
        """
        if topic not in self.missing:
            return False
        note = f"topic {topic} is missing: {lacking}; run `windhover topics create`"
        if note not in self.notes:
            self.notes.append(note)
        return True

    def _note_unread(self, place: TopicPartition, start: int, end: int, lacking: str) -> None:
        """Add a note on offsets [start, end) that are not read, if there are any."""
        if start < end:
            self.notes.append(
                f"{place.topic}/{place.partition}: offsets {start:,} to {end:,} were not read; {lacking}"
            )
