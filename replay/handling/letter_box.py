"""Looks through the dead-letter topic of one input for the letters that are meant.

Each partition is read to its end, since a letter's mark comes after it. Payloads are not kept. If
there are more letters than are kept, handled ones keep out later ones until their marks come; then
the partition is read once more, from the first letter that was left out.
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
    """The letters of one topic that are *meant*, which a filter matches, in the order of the log.

    It keeps at most `kept_max` of them in memory.

    Attributes:
        left_out: how many there are beyond `kept_max`.
        others: how many records are not Windhover's.
    """

    def __init__(self, letter_filter: Filter, kept_max: int = KEPT_MAX) -> None:
        """Begin without a letter."""
        self._filter = letter_filter
        self._kept_max = kept_max
        self._letters: dict[str, Letter] = {}  # by their places
        self.left_out = 0
        self.others = 0
        # of the partition that is read: how many were left out before it, the
        # first letter of it that was, and the offsets of letters whose marks
        # came behind that one
        self._left_out_before = 0
        self._first_left_out: Letter | None = None
        self._marked_offsets = array("q")
        # the offsets of letters with a mark, ascending, while a partition is
        # read again; None: it is read for the first time
        self._handled: Sequence[int] | None = None

    @property
    def letters(self) -> list[Letter]:
        return list(self._letters.values())

    def put(self, record: Record) -> None:
        """Take in the next record of a partition; they come in the order of its log."""
        entry = parse_letter(record)
        if entry is None:
            is_first_time = self._handled is None  # else its other records have been counted
            if is_first_time and parse_audit(record) is None:
                self.others += 1
        elif isinstance(entry, Mark):
            self._put_mark(entry, record)
        elif self._filter.matches(entry) and not self._is_handled(entry.offset):
            if len(self._letters) < self._kept_max:
                self._letters[entry.place] = entry
            else:
                self.left_out += 1
                self._first_left_out = self._first_left_out or entry

    def _put_mark(self, mark: Mark, record: Record) -> None:
        """Take in the mark of a letter, which is handled: it leaves, unless handled ones are meant."""
        letter = self._letters.get(mark.letter)
        if letter is not None and self._filter.handled:
            self._letters[mark.letter] = replace(letter, mark=mark)
        else:
            self._letters.pop(mark.letter, None)
        if self._first_left_out is not None:
            topic, partition, offset = parse_location(mark.letter) or ("", 0, 0)
            if (topic, partition) == (record.topic, record.partition):
                self._marked_offsets.append(offset)

    def end_partition(self) -> int | None:
        """End a partition; return the offset from which it is to be read again, None if it is not.

        With room for 2 letters, of A, B, C and a mark on A, the letter C is left out though A makes
        room. So the partition is read again from C, and what the marks say is known then: C and
        those behind it are put in once more.
        """
        first_left_out = self._first_left_out
        marked_offsets = self._marked_offsets
        was_read_again = self._handled is not None
        self._first_left_out = None
        self._marked_offsets = array("q")
        self._handled = None
        # without a mark there is no more room; and who means handled letters
        # leaves them where they are
        is_needed = bool(marked_offsets) and not self._filter.handled
        if first_left_out is None or was_read_again or not is_needed:
            self._left_out_before = self.left_out
            return None
        self._handled = np.unique(np.frombuffer(marked_offsets, np.int64)).data  # ascending
        self.left_out = self._left_out_before
        # what is put in again must not be there twice
        for place, letter in list(self._letters.items()):
            if letter.partition == first_left_out.partition and letter.offset >= first_left_out.offset:
                del self._letters[place]
        return first_left_out.offset

    def _is_handled(self, offset: int) -> bool:
        """Return whether a letter of a partition that is read again has a mark behind it."""
        handled = self._handled
        if handled is None:
            return False
        index = bisect_left(handled, offset)  # of the first that is not below it
        return index < len(handled) and handled[index] == offset


def find_letters(
    log: Log,
    input: Input,
    letter_filter: Filter,
    *,
    wait_ms: int,
    kept_max: int = KEPT_MAX,
    waits_for_open: bool = False,
) -> LetterBox:
    """Read the letters of an input that a filter matches.

    Args:
        wait_ms: how long to wait for the next record.
        kept_max: so many letters are kept in memory at most.
        waits_for_open: wait for the ends of open transactions, too: they may
            have marks that nobody sees until then.

    Raises `TopicError`: its dead-letter topic does not exist; `Unreachable`:
    nothing came for `wait_ms`.
    """
    box = LetterBox(letter_filter, kept_max)
    starts = letter_starts(log, input, letter_filter)
    ends = log.ends(starts) if waits_for_open else log.stable_ends(starts)
    with uncollected():
        for place, start in starts.items():
            # a partition is read once, or twice if marks have made room
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
                next_offset = box.end_partition()
    return box


def _letter_places(log: Log, input: Input) -> list[TopicPartition]:
    """Return the partitions of the dead-letter topic of an input.

    Raises `TopicError`: it does not exist.
    """
    topic = input.dead_letter.topic
    info = log.topics([topic]).get(topic)
    if info is None:
        raise TopicError(
            f"dead-letter topic {topic} of input {input.name} does not exist; run `windhover topics create`"
        )
    return [TopicPartition(topic, number) for number in range(info.partitions)]


def letter_starts(log: Log, input: Input, letter_filter: Filter) -> Mapping[TopicPartition, int]:
    """Return which partitions may have letters that a filter matches, and where to begin in each.

    Raises `TopicError`: the dead-letter topic of the input does not exist.
    """
    places = _letter_places(log, input)
    starts = dict(log.starts(places))
    if letter_filter.since_ms is not None:
        offset_at_since = log.offsets_at(places, letter_filter.since_ms)
        starts = {place: max(start, offset_at_since[place]) for place, start in starts.items()}
    if not letter_filter.places:
        return starts
    starts_of_named: dict[TopicPartition, int] = {}
    for place, offset in _first_offsets(input.dead_letter.topic, len(places), letter_filter).items():
        if place in starts:
            starts_of_named[place] = max(starts[place], offset)
    return starts_of_named


def _first_offsets(topic: str, partitions: int, letter_filter: Filter) -> dict[TopicPartition, int]:
    """Return the partitions that the named letters may be in, and from which offset on to read them.

    A name is ``topic/partition@offset``: the place of a letter in this topic, or the origin of its
    record in another one; then the letter may be anywhere in a few partitions.
    """
    first_offsets: dict[TopicPartition, int] = {}
    for location in letter_filter.places:
        # a text that is no place names no letter: wherever it is looked for
        named_topic, partition, offset = parse_location(location) or ("", 0, 0)
        if named_topic == topic:
            place = TopicPartition(topic, partition)
            first_offsets[place] = min(first_offsets.get(place, offset), offset)
        else:
            for number in letter_partitions(partition, partitions):
                first_offsets[TopicPartition(topic, number)] = 0
    return first_offsets


def letter_partitions(origin_partition: int, partitions: int) -> set[int]:
    """Return the partitions of a dead-letter topic that may have the letter of a record.

    It was written when the topic had as many `partitions` as now, or fewer: that of a record of
    partition 5 is in 0, 1 or 2 of three partitions, since 5 % 1 = 0, 5 % 2 = 1 and 5 % 3 = 2.
    """
    return {origin_partition % count for count in range(1, partitions + 1)}
