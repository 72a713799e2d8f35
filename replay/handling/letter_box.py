"""Searches the dead-letter topic of one input for the letters that a filter matches.

A letter is *handled* once somebody had it emitted again, or dropped it; then a *mark*, a record
behind it in the same partition, says so. So each partition is read to its end. Payloads are not
kept.

A box keeps so many letters at most. Letters that are handled take up room until their marks come:
with room for 2, of the letters A, B, C and a mark on A, the letter C is left out though A makes
room. So a partition is read a second time, from the first letter that was left out; what the marks
say is known then.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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


@dataclass(slots=True)
class _FirstReading:
    """What the first reading of a partition leaves for a second one.

    Attributes:
        left_out_before: how many letters of earlier partitions were left out.
        first_left_out: the first letter of this one that was; None: none was.
        marked_offsets: of the letters whose marks came behind that one.
    """

    left_out_before: int
    first_left_out: Letter | None = None
    marked_offsets: array[int] = field(default_factory=lambda: array("q"))


@dataclass(slots=True)
class _SecondReading:
    """A partition that is read a second time.

    `marked_offsets` are those of its letters that are handled, ascending.
    """

    marked_offsets: Sequence[int]

    def is_handled(self, letter: Letter) -> bool:
        """Return whether a letter has a mark behind it."""
        index = bisect_left(self.marked_offsets, letter.offset)  # of the first that is not below it
        return index < len(self.marked_offsets) and self.marked_offsets[index] == letter.offset


class LetterBox:
    """The letters of one topic that a filter matches, in the order of the log.

    Put the records of each partition in their order, then call `end_partition`. A letter that is
    handled is taken out, unless the filter is for handled ones, too.

    Attributes:
        left_out_count: how many letters match beyond those that are kept.
        other_record_count: how many records are not Windhover's.
    """

    def __init__(self, letter_filter: Filter, kept_max: int = KEPT_MAX) -> None:
        """Begin without a letter; at most `kept_max` are kept in memory."""
        self._filter = letter_filter
        self._kept_max = kept_max
        self._letter_by_place: dict[str, Letter] = {}  # those that are kept
        self.left_out_count = 0
        self.other_record_count = 0
        # which reading of the present partition it is, and what that one has to remember
        self._reading: _FirstReading | _SecondReading = _FirstReading(left_out_before=0)

    @property
    def letters(self) -> list[Letter]:
        """The letters that are kept."""
        return list(self._letter_by_place.values())

    def put(self, record: Record) -> None:
        """Take in the next record of a partition: a letter, a mark, or something else."""
        entry = parse_letter(record)
        if entry is None:
            self._count_if_other(record)
        elif isinstance(entry, Mark):
            self._put_mark(entry, record)
        elif self._filter.matches(entry):
            self._put_letter(entry)

    def _count_if_other(self, record: Record) -> None:
        """Count a record that is neither letter nor mark, if it is not Windhover's.

        It is counted in the first reading alone, so once.
        """
        is_first = isinstance(self._reading, _FirstReading)
        if is_first and parse_audit(record) is None:
            self.other_record_count += 1

    def _put_letter(self, letter: Letter) -> None:
        """Keep a letter, or leave it out if there is no room."""
        reading = self._reading
        # In the second reading it is known whether its mark comes behind it;
        # in the first one `_put_mark` takes it out when the mark comes.
        if isinstance(reading, _SecondReading) and reading.is_handled(letter):
            return
        if len(self._letter_by_place) < self._kept_max:
            self._letter_by_place[letter.place] = letter
            return
        self.left_out_count += 1
        if isinstance(reading, _FirstReading) and reading.first_left_out is None:
            reading.first_left_out = letter

    def _put_mark(self, mark: Mark, mark_record: Record) -> None:
        """Remove the letter that a mark is about: it was handled.

        If the filter matches handled letters, too, keep it, with its mark.
        """
        letter = self._letter_by_place.get(mark.letter)
        if letter is not None and self._filter.handled:
            self._letter_by_place[mark.letter] = replace(letter, mark=mark)
        else:
            self._letter_by_place.pop(mark.letter, None)
        reading = self._reading
        # a letter was left out for want of room: a second reading must pass over
        # what is marked behind it
        if isinstance(reading, _FirstReading) and reading.first_left_out is not None:
            # only marks on letters of this partition count: offsets of another
            # one mean other letters
            partition = (mark_record.topic, mark_record.partition)
            marked = parse_location(mark.letter)
            if marked is not None and marked.topic_partition == partition:
                reading.marked_offsets.append(marked.offset)

    def end_partition(self) -> int | None:
        """End the reading of a partition; return from which offset on to read it a second time.

        That is the first letter that was left out, if marks have made room
        since. None: go on with the next partition. This was the second reading,
        or no letter was left out, or no mark has freed room.
        """
        reading = self._reading
        if (
            isinstance(reading, _SecondReading)
            or reading.first_left_out is None
            or not self._has_room_again(reading)
        ):
            self._reading = _FirstReading(left_out_before=self.left_out_count)
            return None
        first_left_out = reading.first_left_out
        # the second reading puts in all letters from that offset on: remove them
        # first, and take their count back
        self.left_out_count = reading.left_out_before
        for place, letter in list(self._letter_by_place.items()):
            is_same_partition = letter.partition == first_left_out.partition
            if is_same_partition and letter.offset >= first_left_out.offset:
                del self._letter_by_place[place]
        marked_offsets = np.unique(np.frombuffer(reading.marked_offsets, np.int64))  # ascending
        self._reading = _SecondReading(marked_offsets.data)
        return first_left_out.offset

    def _has_room_again(self, reading: _FirstReading) -> bool:
        """Return whether marks have made room for letters that were left out."""
        # who means handled letters, too, leaves them where they are
        return bool(reading.marked_offsets) and not self._filter.handled


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
        wait_ms: how long the broker may send nothing.
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
        for partition, start in starts.items():
            # a partition is read once, or twice if marks have made room
            next_offset: int | None = start
            while next_offset is not None:
                records = read_piece(
                    log,
                    partition,
                    next_offset,
                    ends[partition],
                    committed=True,
                    wait_ms=wait_ms,
                    on_damage=pass_damage,
                )
                for record in records:
                    box.put(record)
                next_offset = box.end_partition()
    return box


def _partitions_of_topic(log: Log, input: Input) -> list[TopicPartition]:
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
    """Return which partitions may have letters that a filter matches, and at which offset to begin.

    Raises `TopicError`: the dead-letter topic of the input does not exist.
    """
    topic = input.dead_letter.topic
    partitions = _partitions_of_topic(log, input)
    # 1. where the log begins, or the filter's time
    starts = dict(log.starts(partitions))
    if letter_filter.since_ms is not None:
        offset_at_since = log.offsets_at(partitions, letter_filter.since_ms)
        for partition, log_start in starts.items():
            starts[partition] = max(log_start, offset_at_since[partition])
    if not letter_filter.places:
        return starts
    # 2. of these the partitions of the letters that are named, from their offsets on
    starts_of_named: dict[TopicPartition, int] = {}
    for partition, offset in _offsets_of_named(topic, len(partitions), letter_filter).items():
        if partition in starts:
            starts_of_named[partition] = max(starts[partition], offset)
    return starts_of_named


def _offsets_of_named(topic: str, partition_count: int, letter_filter: Filter) -> dict[TopicPartition, int]:
    """Return which partitions the named letters may be in, and where to begin in each.

    A name is ``topic/partition@offset``: the place of a letter in this topic, or the origin of its
    record in another one; then the letter may be anywhere in a few partitions. A text that is no
    place names no letter. It is treated as the origin of partition 0, offset 0 of a topic without
    a name: partition 0 is then read, and no letter there matches.
    """
    first_offsets: dict[TopicPartition, int] = {}
    no_place = ("", 0, 0)
    for name in letter_filter.places:
        named_topic, named_partition, offset = parse_location(name) or no_place
        if named_topic == topic:
            partition = TopicPartition(topic, named_partition)
            first_offsets[partition] = min(first_offsets.get(partition, offset), offset)
        else:
            # an origin: its offset is of another topic, so the partition is read
            # from its beginning
            for number in letter_partitions(named_partition, partition_count):
                first_offsets[TopicPartition(topic, number)] = 0
    return first_offsets


def letter_partitions(origin_partition: int, partition_count: int) -> set[int]:
    """Return the partitions of a dead-letter topic that may have the letter of a record.

    The topic has `partition_count` now, and had as many or fewer when the letter was written: that
    of a record of partition 5 is in 0, 1 or 2 of three partitions, since 5 % 1 = 0, 5 % 2 = 1 and
    5 % 3 = 2.
    """
    return {origin_partition % count for count in range(1, partition_count + 1)}
