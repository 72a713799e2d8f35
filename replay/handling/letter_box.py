"""Looks through the dead-letter topic of one input for the letters that are meant.

Each partition is read to its end, since a letter's mark comes after it. Payloads are not kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from acker.config.settings import Input
from acker.errors import TopicError
from acker.hot_paths import uncollected
from acker.kafka.port import Log, Record, TopicPartition
from acker.kafka.reading import read_piece
from replay.records.headers import parse_location
from replay.records.letters import Filter, Letter, Mark, parse_letter
from replay.records.redrives import parse_audit

KEPT_MAX: Final = 100_000
"""Letters that are kept of one topic, some 2 kB each; further ones that match are only counted."""


class LetterBox:
    """The letters of one topic that are meant, in the order of the log.

    `left_out` are those beyond `kept_max`, handled or not; `others` are records that are not Windhover's.
    """

    def __init__(self, chosen: Filter, kept_max: int = KEPT_MAX) -> None:
        self._filter = chosen
        self._kept_max = kept_max
        self._letters: dict[str, Letter] = {}
        self.left_out = 0
        self.others = 0

    @property
    def letters(self) -> list[Letter]:
        return list(self._letters.values())

    def put(self, record: Record) -> None:
        """Take in the records of a partition in the order of its log."""
        found = parse_letter(record)
        if found is None:
            self.others += parse_audit(record) is None
        elif isinstance(found, Mark):
            letter = self._letters.get(found.letter)
            if letter is not None and self._filter.handled:
                self._letters[found.letter] = replace(letter, mark=found)
            else:
                self._letters.pop(found.letter, None)
        elif self._filter.matches(found):
            if len(self._letters) < self._kept_max:
                self._letters[found.place] = found
            else:
                self.left_out += 1


def find_letters(
    log: Log, found: Input, chosen: Filter, *, wait_ms: int, kept_max: int = KEPT_MAX, waits: bool = False
) -> LetterBox:
    """Read the letters of an input that are meant.

    `waits`: for the ends of open transactions, behind which there may be marks that nobody sees until then.

    Raises `TopicError`: its dead-letter topic does not exist; `Unreachable`: nothing came for `wait_ms`.
    """
    box = LetterBox(chosen, kept_max)
    starts = _starts(log, found.dead_letter.topic, found.name, chosen)
    ends = log.ends(starts) if waits else log.stable_ends(starts)
    with uncollected():
        for place, start in starts.items():
            for record in read_piece(log, place, start, ends[place], committed=True, wait_ms=wait_ms):
                box.put(record)
    return box


def _starts(log: Log, topic: str, name: str, chosen: Filter) -> Mapping[TopicPartition, int]:
    info = log.topics([topic]).get(topic)
    if info is None:
        raise TopicError(
            f"dead-letter topic {topic} of input {name} does not exist; run `windhover topics create`"
        )
    places = [TopicPartition(topic, number) for number in range(info.partitions)]
    starts = dict(log.starts(places))
    if chosen.since_ms is not None:
        since = log.offsets_at(places, chosen.since_ms)
        starts = {place: max(start, since[place]) for place, start in starts.items()}
    if not chosen.places:
        return starts
    first = _first_of(topic, info.partitions, chosen)
    return {place: max(starts[place], offset) for place, offset in first.items() if place in starts}


def _first_of(topic: str, partitions: int, chosen: Filter) -> dict[TopicPartition, int]:
    """Return the partitions that the named letters may be in, and from which offset on to read them."""
    first: dict[TopicPartition, int] = {}
    for text in chosen.places:
        of, partition, offset = parse_location(text) or ("", 0, 0)
        if of == topic:
            place = TopicPartition(topic, partition)
            first[place] = min(first.get(place, offset), offset)
        else:
            first |= {TopicPartition(topic, number): 0 for number in letters_of(partition, partitions)}
    return first


def letters_of(origin_partition: int, partitions: int) -> set[int]:
    """Return the partitions of a dead-letter topic that may have the letter of a record.

    It was written when the topic had as many `partitions` as now, or fewer.
    """
    return {origin_partition % count for count in range(1, partitions + 1)}
