"""Reads an input with its replay topic, as far as clients request; the records in its buffers may be planned.

Spark's planning requests the ends of partitions from the broker, and tasks
read the ranges later. Here the records are read first. So planning needs no
request, a new record is planned as soon as it arrives, and the ranges of a
plan are already read. Reading emits nothing: records leave by
`ReadAhead.take_run`, once their `Init` is durable.

Planning asks two things of what is read here: how far partitions reach (a
`Reach`), and where their records are (a `Sight`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from confluent_kafka import Message

from acker.errors import Damaged, OutOfRange
from acker.identity import I64, acker_partition, generation_of, offset_of, position_at
from acker.kafka.port import NO_EPOCH, Bound, DamagedRun, Log, OffsetAnswers, TopicPartition
from acker.kafka.reader import too_large_runs
from acker.kafka.standing import StandingNews, StandingPartition, StandingWatch
from acker.root_sets.root_set import RootSet
from acker.wire.events import SourceRun
from spout.group.announce import Sightings, SightRequest
from spout.group.sources import SourceSpec
from spout.planning.plan import holes
from spout.planning.supply import Sighting


class MessageReader(Protocol):
    """The methods of `acker.kafka.reader.KafkaReader` that are needed here."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None: ...
    def poll_messages(self, timeout_ms: int, max_records: int) -> Mapping[TopicPartition, list[Message]]: ...
    def position(self, partition: TopicPartition) -> int: ...
    def pass_over(self, partition: TopicPartition) -> DamagedRun: ...
    def close(self) -> None: ...


class PlannedRecords(NamedTuple):
    """Records that were planned and leave the buffer: messages of one source, with their positions.

    `topic_id` is Kafka's id of their topic.
    """

    source: int
    messages: list[Message]
    positions: I64
    topic_id: str


class UnreadableRun(NamedTuple):
    """Positions that were planned and cannot be read, and the damaged batch that they lie in."""

    run: SourceRun
    damaged: DamagedRun


class TakenRun(NamedTuple):
    """What leaves a buffer: records, positions without a record, and positions that cannot be read."""

    records: list[PlannedRecords]
    absent: list[SourceRun]
    unreadable: list[UnreadableRun]


@dataclass(slots=True)
class _Buffer:
    """What was read of a source and not taken: offsets [begin, end), and the messages in this range.

    Attributes:
        messages: the messages of each poll, with their offsets, ascending.
        damaged: offsets in the range that cannot be read.
        leader_epoch: that of the last record that was read.
    """

    spec: SourceSpec
    generation: int
    begin: int
    end: int
    leader_epoch: int = NO_EPOCH
    messages: deque[tuple[list[Message], I64]] = field(default_factory=deque)
    damaged: list[DamagedRun] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many messages it has."""
        return sum(len(messages) for messages, _ in self.messages)

    def first_position(self) -> int:
        """Return the position of its first offset."""
        return position_at(self.generation, self.begin)

    def seen(self, record_count: int) -> Sighting:
        """Return where the next records are, and at least so many of them, if so many were read."""
        parts: list[I64] = [np.empty(0, np.int64)]
        seen_count = 0
        for _, offsets in self.messages:
            parts.append(offsets)
            seen_count += len(offsets)
            # one more than requested: the record behind the last one shows
            # what is empty before it
            if seen_count > record_count:
                return Sighting(self.begin, int(offsets[-1]) + 1, np.concatenate(parts))
        return Sighting(self.begin, self.end, np.concatenate(parts))


class ReadAhead:
    """The records of a topic that were read and not planned.

    It is a `Reach` over the sources that are shown, and a `Sight`: what was
    read shows where there is no record.

    Attributes:
        count: how many records these are.
        doubt: the error that a position is not in its log, though the log does
            not begin behind it: planning finds out whether the log was cut.
            None: there is no such position.
    """

    def __init__(self, reader: MessageReader, log: Log) -> None:
        """Begin with nothing to read; see `add_sources`."""
        self.count = 0
        self._reader = reader
        self._log = log
        self._buffers: dict[TopicPartition, _Buffer] = {}
        self._shown: frozenset[TopicPartition] = frozenset()  # those that may be planned now
        # where partitions begin of which needed records have left the log
        self._starts: dict[TopicPartition, int] = {}
        # whether the last poll brought fewer records than it might have, and
        # whether there was one since the last `take_standing_news`
        self._is_drained = True
        self._was_polled = False
        self.doubt: OutOfRange | None = None
        self._watch = StandingWatch(log, Bound.STABLE_END)

    def add_sources(self, sources: Mapping[int, SourceSpec], free: Mapping[int, int]) -> None:
        """Read new sources, too, from their first free positions on, and those that began a new generation.

        What was read of such a one before is thrown away: it is of a log that
        was cut.

        Args:
            sources: all of the topic.
            free: the first free position of each source that may be planned.
        """
        new_buffers: dict[TopicPartition, _Buffer] = {}
        for source, first_free in free.items():
            spec = sources.get(source)
            generation = generation_of(first_free)
            offset = offset_of(first_free)
            if spec is not None and self._is_new(spec.place, generation):
                new_buffers[spec.place] = _Buffer(spec, generation, begin=offset, end=offset)
        if not new_buffers:
            return
        for place in new_buffers.keys() & self._buffers.keys():
            self.count -= self._buffers[place].count  # thrown away with the former buffer
        self._buffers |= new_buffers
        self.doubt = None  # planning has found out what became of the log: it is in a new generation
        self._assign_buffer_ends()

    def _is_new(self, place: TopicPartition, generation: int) -> bool:
        """Return whether this generation of a partition is not read yet."""
        buffer = self._buffers.get(place)
        return buffer is None or buffer.generation != generation

    def poll(self, wait_ms: int, records_max: int) -> int:
        """Read more records into the buffers and return how many came; none while there is a
        `doubt`.

        What cannot be read is passed over; `take_run` returns it as unreadable.
        """
        try:
            messages_by_place = self._reader.poll_messages(wait_ms, records_max)
        except OutOfRange:
            self._skip_gone_or_doubt()
            return 0
        except Damaged as error:
            place = TopicPartition(error.topic, error.partition)
            damaged_run = self._reader.pass_over(place)
            buffer = self._buffers[place]
            buffer.damaged.append(damaged_run)
            buffer.end = max(buffer.end, self._reader.position(place))
            return 0
        for place, messages in messages_by_place.items():
            self._add_messages(self._buffers[place], messages)
        # a reader goes on over markers of transactions, too, which are no
        # messages
        for place, buffer in self._buffers.items():
            buffer.end = max(buffer.end, self._reader.position(place))
        message_count = sum(map(len, messages_by_place.values()))
        self._is_drained = message_count < records_max
        self._was_polled = True
        return message_count

    def _add_messages(self, buffer: _Buffer, messages: list[Message]) -> None:
        """Add the messages of one poll, one or more of a partition, to its buffer.

        Those that are too large to be read count as damaged.
        """
        epoch = messages[-1].leader_epoch()
        buffer.leader_epoch = NO_EPOCH if epoch is None else epoch
        too_large = too_large_runs(messages)
        if too_large:
            buffer.damaged += too_large
            too_large_offsets = {run.start for run in too_large}  # each run is one message
            messages = [message for message in messages if message.offset() not in too_large_offsets]
        if messages:
            offsets = np.fromiter(map(Message.offset, messages), np.int64, len(messages))
            buffer.messages.append((messages, offsets))
            self.count += len(messages)

    def take_standing_news(self, now_ms: int) -> StandingNews:
        """Find out which partitions stand still, and which go on again; return what is to be
        reported.

        A partition stands still if it has records that do not come. Without a
        `poll` since the last call nothing is reported: what is not read on
        purpose does not stand.
        """
        if not self._was_polled:
            return StandingNews()
        self._was_polled = False
        positions = {place: buffer.end for place, buffer in self._buffers.items()}
        return self._watch.check_positions(positions, now_ms, is_drained=self._is_drained)

    def standing(self) -> tuple[StandingPartition, ...]:
        """Return the partitions that stand still."""
        return self._watch.standing()

    def groups(self, partitions: int) -> list[list[int]]:
        """Return the sources with unplanned records, in groups that are planned together.

        All copies are a group; of the others those of each acker partition, of
        which there are so many. Such a group needs one part of an Init, so it
        is ready after one write.
        """
        sources_by_group: dict[int, list[int]] = {}
        for buffer in self._buffers.values():
            if buffer.begin >= buffer.end:
                continue
            source = buffer.spec.source
            group = acker_partition(source, buffer.first_position(), partitions)
            if buffer.spec.is_replay:
                group = -1  # no acker partition has this number
            sources_by_group.setdefault(group, []).append(source)
        return [sources_by_group[group] for group in sorted(sources_by_group)]

    def show_only(self, sources: Iterable[int]) -> None:
        """Allow only these sources to be planned: for planning all others end at 0."""
        shown_sources = set(sources)
        shown: list[TopicPartition] = []
        for place, buffer in self._buffers.items():
            if buffer.spec.source in shown_sources:
                shown.append(place)
        self._shown = frozenset(shown)

    def starts(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return where partitions begin that have lost needed records; 0 for the others."""
        return {place: self._starts.get(place, 0) for place in partitions}

    def stable_ends(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the offsets up to which the shown partitions were read; 0 for the others."""
        return {place: self._buffers[place].end if place in self._shown else 0 for place in partitions}

    def epochs(self) -> Mapping[TopicPartition, int]:
        """Return the leader epoch of the last record that was read of each shown partition, where known."""
        epochs = {place: self._buffers[place].leader_epoch for place in self._shown}
        return {place: epoch for place, epoch in epochs.items() if epoch != NO_EPOCH}

    def find_records(self, requests: Mapping[TopicPartition, SightRequest]) -> Sightings:
        """Return where the records of partitions are, as far as these were read."""
        sightings: dict[TopicPartition, Sighting] = {}
        for place, request in requests.items():
            buffer = self._buffers.get(place)
            if buffer is not None:
                sightings[place] = buffer.seen(request.record_count)
        return Sightings(sightings, ())

    def take_run(self, place: TopicPartition, run: SourceRun) -> TakenRun:
        """Take a run's records out of a partition's buffer, and what of it has no record.

        Positions that cannot be read are not among those without a record.
        What the buffer has before the run is dropped.
        """
        buffer = self._buffers[place]
        # in one generation all positions are as much above their offsets
        shift = run.start - offset_of(run.start)
        planned: list[PlannedRecords] = []
        absent: list[SourceRun] = []
        next_position = run.start  # behind the last record that was taken
        is_beyond_run = False
        while buffer.messages and not is_beyond_run:
            messages, offsets = buffer.messages.popleft()
            positions = offsets + shift
            begin, end = np.searchsorted(positions, [run.start, run.end]).tolist()
            self.count -= end
            if end < len(positions):
                buffer.messages.appendleft((messages[end:], offsets[end:]))
                is_beyond_run = True
            if begin < end:
                taken_positions = positions[begin:end]
                absent += holes(run.source, next_position, taken_positions)
                next_position = int(taken_positions[-1]) + 1
                records = PlannedRecords(
                    run.source, messages[begin:end], taken_positions, buffer.spec.topic_id
                )
                planned.append(records)
        if next_position < run.end:
            absent.append(SourceRun(run.source, next_position, run.end))
        buffer.begin = offset_of(run.start) + run.end - run.start
        unreadable = _unreadable_in(run, buffer.damaged, shift)
        buffer.damaged = [damaged for damaged in buffer.damaged if damaged.end > buffer.begin]
        without_record = RootSet.of_runs(absent) - RootSet.of_runs(part.run for part in unreadable)
        return TakenRun(planned, without_record.runs(), unreadable)

    def forget_below(self, free: Mapping[int, int]) -> None:
        """Drop records that a former owner initialised: nothing below the first free position is planned.

        Where that lies beyond what was read, what is between is not read:
        nobody would take it out again.
        """
        must_read_on = False
        for buffer in self._buffers.values():
            source = buffer.spec.source
            begin = buffer.first_position()
            end = position_at(buffer.generation, buffer.end)
            first_free = free.get(source, 0)
            if begin < min(first_free, end):
                self.take_run(buffer.spec.place, SourceRun(source, begin, first_free))  # and drop it
                if buffer.end < buffer.begin:  # the first free position is beyond what was read
                    buffer.end = buffer.begin
                    must_read_on = True
        if must_read_on:
            self._assign_buffer_ends()

    def close(self) -> None:
        self._reader.close()

    def _skip_gone_or_doubt(self) -> None:
        """Go on where the log begins; planning finds that records are lost, and decides.

        If no log begins behind what was read, set `doubt`.
        """
        log_starts = self._log.bounds(Bound.START, self._buffers).offsets
        later_starts = {
            place: start for place, start in log_starts.items() if start > self._buffers[place].end
        }
        if not later_starts:
            ends = {f"{place.topic}/{place.partition}": buffer.end for place, buffer in self._buffers.items()}
            self.doubt = OutOfRange(
                f"a partition no longer reaches to where it was read, one of {ends}; if its topic was created"
                " anew, see `windhover offsets reset`"
            )
            return
        for place, start in later_starts.items():
            self._starts[place] = start
            self._buffers[place].end = start
        self._assign_buffer_ends()

    def _assign_buffer_ends(self) -> None:
        """Assign all partitions to the reader, each from where its buffer ends."""
        self._reader.assign({place: buffer.end for place, buffer in self._buffers.items()})


def _unreadable_in(run: SourceRun, damaged_runs: Iterable[DamagedRun], shift: int) -> list[UnreadableRun]:
    """Return what of a run lies in damaged offsets; `shift` is how much a position is above its
    offset.
    """
    unreadable: list[UnreadableRun] = []
    for damaged in damaged_runs:
        start = max(run.start, damaged.start + shift)
        end = min(run.end, damaged.end + shift)
        if start < end:
            unreadable.append(UnreadableRun(SourceRun(run.source, start, end), damaged))
    return unreadable


class InputAhead(NamedTuple):
    """What was read of an input and of its replay topic.

    Each has a reader of its own: a client fetches megabytes of each partition
    and returns them in the order in which they came, so new records would wait
    behind thousands of copies, or copies behind new records.
    """

    copies: ReadAhead
    new: ReadAhead

    def poll(self, wait_ms: int, count: int) -> bool:
        """Read until there are `count` of either; return whether some are lacking.

        That is whether both together were fewer, before new records were read.
        Then these are waited for, at most `wait_ms`.
        """
        if self.copies.count < count:
            self.copies.poll(0, count - self.copies.count)
        are_too_few = self.copies.count + self.new.count < count
        # new ones are read though copies are enough: they get a part of the
        # room
        if self.new.count < count:
            self.new.poll(wait_ms if are_too_few else 0, count - self.new.count)
        return are_too_few

    def take_standing_news(self, now_ms: int) -> StandingNews:
        """Do as `ReadAhead.take_standing_news` for both."""
        copies_news = self.copies.take_standing_news(now_ms)
        new_news = self.new.take_standing_news(now_ms)
        return StandingNews([*copies_news.stand, *new_news.stand], [*copies_news.go_on, *new_news.go_on])

    def standing(self) -> tuple[StandingPartition, ...]:
        """Return the partitions of either that stand still."""
        return (*self.copies.standing(), *self.new.standing())

    def add_sources(self, sources: Mapping[int, SourceSpec], free: Mapping[int, int]) -> None:
        """Read new sources of the input, too; see `ReadAhead.add_sources`."""
        replay_sources: dict[int, SourceSpec] = {}
        new_sources: dict[int, SourceSpec] = {}
        for source, spec in sources.items():
            if spec.is_replay:
                replay_sources[source] = spec
            else:
                new_sources[source] = spec
        self.copies.add_sources(replay_sources, free)
        self.new.add_sources(new_sources, free)

    def doubt(self) -> OutOfRange | None:
        """Return why it is not certain that a log is the one that was read; see `ReadAhead.doubt`."""
        return self.copies.doubt or self.new.doubt

    def close(self) -> None:
        for ahead in self:
            ahead.close()


class Reaches:
    """All that was read of a group as one `Reach`, and as one `Sight`."""

    def __init__(self, parts: Iterable[ReadAhead]) -> None:
        self._parts = tuple(parts)

    def starts(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return where partitions begin that have lost needed records; 0 for the others."""
        places = list(partitions)
        return _largest([ahead.starts(places) for ahead in self._parts])

    def stable_ends(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the offsets up to which the shown partitions were read; 0 for the others."""
        places = list(partitions)
        return _largest([ahead.stable_ends(places) for ahead in self._parts])

    def find_records(self, requests: Mapping[TopicPartition, SightRequest]) -> Sightings:
        """Return where the records of partitions are, as far as these were read."""
        seen: dict[TopicPartition, Sighting] = {}
        for ahead in self._parts:
            seen |= ahead.find_records(requests).by_partition
        return Sightings(seen, ())

    def fetch_ahead(self, next_offsets: Mapping[TopicPartition, int]) -> None:
        """Do nothing: what comes next is read when clients request it."""

    def close(self) -> None:
        """Do nothing: whoever made the inputs closes them."""

    def bounds(self, bound: Bound, partitions: Iterable[TopicPartition]) -> OffsetAnswers:
        """Return what was read; a partition that is in trouble brings nothing, and no request is needed."""
        if bound is Bound.START:
            return OffsetAnswers(self.starts(partitions), {})
        epochs: dict[TopicPartition, int] = {}
        for ahead in self._parts:
            epochs |= ahead.epochs()
        return OffsetAnswers(self.stable_ends(partitions), {}, epochs)


def _largest(answers: Sequence[Mapping[TopicPartition, int]]) -> Mapping[TopicPartition, int]:
    """Return of each partition the largest offset; all answers, one or more, are of the same partitions."""
    return {place: max(offsets[place] for offsets in answers) for place in answers[0]}
