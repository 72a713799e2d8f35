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

    `notes` are sentences on what was not read, and what is therefore unknown (`lacking`). Of a topic in
    `missing` nothing is read.
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
        where = TopicPartition(topic, partition)
        start, end = self.log.starts([where])[where], self.log.stable_ends([where])[where]
        first = max(start, end - self.records_max)
        self._note(where, start, first, lacking)
        return self._read(where, first, end, committed=True)

    def since(self, topic: str, partition: int, first: int, lacking: str) -> Iterator[Record]:
        """Read the committed records of a partition from an offset on."""
        where = TopicPartition(topic, partition)
        stable = self.log.stable_ends([where])[where]
        end = min(stable, first + self.records_max)
        self._note(where, end, stable, lacking)
        return self._read(where, first, end, committed=True)

    def rest(self, topic: str, partition: int, first: int, lacking: str) -> Iterator[Record]:
        """Read all records of a partition from an offset on; if there are too many, the last ones.

        Records that an acker has deleted concern no open root, so they are not missed.
        """
        if self.lacks(topic, lacking):
            return iter(())
        where = TopicPartition(topic, partition)
        start, end = max(first, self.log.starts([where])[where]), self.log.ends([where])[where]
        read_from = max(start, end - self.records_max)
        self._note(where, start, read_from, lacking)
        return self._read(where, read_from, end, committed=False)

    def _read(self, where: TopicPartition, first: int, end: int, *, committed: bool) -> Iterator[Record]:
        return read_piece(
            self.log,
            where,
            first,
            end,
            committed=committed,
            wait_ms=self.wait_ms,
            on_damage=pass_damage,
        )

    def lacks(self, topic: str, lacking: str) -> bool:
        """Tell whether a topic is missing, and note it."""
        note = f"topic {topic} is missing: {lacking}; run `windhover topics create`"
        if topic in self.missing and note not in self.notes:
            self.notes.append(note)
        return topic in self.missing

    def _note(self, where: TopicPartition, first: int, end: int, lacking: str) -> None:
        if first < end:
            self.notes.append(
                f"{where.topic}/{where.partition}: offsets {first:,} to {end:,} were not read; {lacking}"
            )
