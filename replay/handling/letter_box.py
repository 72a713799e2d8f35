"""Looks through the dead-letter topic of one input for the letters that are meant.

Each partition is read to its end, since a letter's mark comes after it. Payloads are not kept. If there are
more letters than are kept, handled ones keep out later ones until their marks come; then the partition is
read once more, from the first letter that was left out.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from acker.config.settings import Input
from acker.errors import TopicError
from acker.hot_paths import uncollected
from acker.kafka.port import Log, Record, TopicPartition
from acker.kafka.read_to_end import pass_damage, read_piece
from replay.records.headers import parse_location
from replay.records.letters import Filter, Letter, Mark, parse_letter
from replay.records.redrives import parse_audit

KEPT_MAX: Final = 100_000
"""Letters that are kept of one topic, some 2 kB each; further ones that match are only counted."""


class LetterBox:
    """The letters of one topic that are meant, in the order of the log.

    `left_out` are those beyond `kept_max`; `others` are records that are not Windhover's.
    """

    def __init__(self, chosen: Filter, kept_max: int = KEPT_MAX) -> None:
        self._filter = chosen
        self._kept_max = kept_max
        self._letters: dict[str, Letter] = {}
        self.left_out = 0
        self.others = 0
        self._left_out_before = 0
        self._first_left_out: Letter | None = None
        self._marks = array("q")  # the offsets of letters whose mark is behind the first that was left out
        self._handled: Sequence[int] | None = None  # these offsets ascending, while a partition is read again

    @property
    def letters(self) -> list[Letter]:
        return list(self._letters.values())

    def put(self, record: Record) -> None:
        """Take in the records of a partition in the order of its log."""
        entry = parse_letter(record)
        if entry is None:
            # when a partition is read again, its strangers have been counted
            self.others += self._handled is None and parse_audit(record) is None
        elif isinstance(entry, Mark):
            letter = self._letters.get(entry.letter)
            if letter is not None and self._filter.handled:
                self._letters[entry.letter] = replace(letter, mark=entry)
            else:
                self._letters.pop(entry.letter, None)
            if self._first_left_out is not None:
                topic, partition, offset = parse_location(entry.letter) or ("", 0, 0)
                if (topic, partition) == (record.topic, record.partition):
                    self._marks.append(offset)
        elif self._filter.matches(entry) and not self._is_handled(entry.offset):
            if len(self._letters) < self._kept_max:
                self._letters[entry.place] = entry
            else:
                self.left_out += 1
                self._first_left_out = self._first_left_out or entry

    def read_again(self) -> int | None:
        """End a partition; return the offset from which it is to be put in once more, None if it is not.

        With room for 2 letters, of A, B, C and a mark on A, the letter C is left out though A makes room. So
        the partition is read again from C, and what the marks say is known then.
        """
        first_left_out, marks = self._first_left_out, self._marks
        is_again = self._handled is not None
        self._first_left_out, self._marks, self._handled = None, array("q"), None
        if first_left_out is None or is_again or not marks or self._filter.handled:
            self._left_out_before = self.left_out
            return None
        self._handled = np.unique(np.frombuffer(marks, np.int64)).data
        self.left_out = self._left_out_before
        self._letters = {
            place: letter
            for place, letter in self._letters.items()
            if letter.partition != first_left_out.partition or letter.offset < first_left_out.offset
        }
        return first_left_out.offset

    def _is_handled(self, offset: int) -> bool:
        handled = self._handled
        if handled is None:
            return False
        place = bisect_left(handled, offset)
        return place < len(handled) and handled[place] == offset


def find_letters(
    log: Log, input: Input, chosen: Filter, *, wait_ms: int, kept_max: int = KEPT_MAX, waits: bool = False
) -> LetterBox:
    """Read the letters of an input that are meant.

    `waits`: for the ends of open transactions, behind which there may be marks that nobody sees until then.

    Raises `TopicError`: its dead-letter topic does not exist; `Unreachable`: nothing came for `wait_ms`.
    """
    box = LetterBox(chosen, kept_max)
    starts = _starts(log, input.dead_letter.topic, input.name, chosen)
    ends = log.ends(starts) if waits else log.stable_ends(starts)
    with uncollected():
        for place, start in starts.items():
            next_offset: int | None = start
            while next_offset is not None:
                piece = read_piece(
                    log,
                    place,
                    next_offset,
                    ends[place],
                    committed=True,
                    wait_ms=wait_ms,
                    on_damage=pass_damage,
                )
                for record in piece:
                    box.put(record)
                next_offset = box.read_again()
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
    first_offsets = _first_of(topic, info.partitions, chosen)
    return {place: max(starts[place], offset) for place, offset in first_offsets.items() if place in starts}


def _first_of(topic: str, partitions: int, chosen: Filter) -> dict[TopicPartition, int]:
    """Return the partitions that the named letters may be in, and from which offset on to read them."""
    first_offsets: dict[TopicPartition, int] = {}
    for text in chosen.places:
        letter_topic, partition, offset = parse_location(text) or ("", 0, 0)
        if letter_topic == topic:
            place = TopicPartition(topic, partition)
            first_offsets[place] = min(first_offsets.get(place, offset), offset)
        else:
            first_offsets |= {
                TopicPartition(topic, number): 0 for number in letters_of(partition, partitions)
            }
    return first_offsets


def letters_of(origin_partition: int, partitions: int) -> set[int]:
    """Return the partitions of a dead-letter topic that may have the letter of a record.

    It was written when the topic had as many `partitions` as now, or fewer.
    """
    return {origin_partition % count for count in range(1, partitions + 1)}
