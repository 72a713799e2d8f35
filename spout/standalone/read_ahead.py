"""Reads an input with its replay topic, as far as clients request; what was read may be planned.

Spark's planning requests the ends of partitions from the broker, and tasks
read the ranges later. Here the records are read first. So planning needs no
request, a new record is planned as soon as it arrives, and the ranges of a
plan are already read. Reading emits nothing: records leave by
`ReadAhead.take_run`, once their `Init` is durable.

Planning asks two things of what is read here: how far partitions reach (a
`Reach`), and where their records are (a `Sight`, which answers with a
`Sighting` for each partition).

What was read of a partition is in its *buffer*: offsets [begin, end), and the
messages in this range. A partition is a `TopicPartition`; other than a source
it does not name the input.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

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
from spout.planning.plan import runs_without_record
from spout.planning.supply import Sighting

_GROUP_OF_COPIES: Final = -1
"""In the place of an acker partition in `ReadAhead.source_groups`; below the first one, 0."""


class MessageReader(Protocol):
    """The methods of `acker.kafka.reader.KafkaReader` that are needed here."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None: ...
    def poll_messages(self, timeout_ms: int, max_records: int) -> Mapping[TopicPartition, list[Message]]: ...
    def position(self, partition: TopicPartition) -> int: ...
    def pass_over(self, partition: TopicPartition) -> DamagedRun: ...
    def close(self) -> None: ...


class PlannedRecords(NamedTuple):
    """Records that were planned and leave the buffer: messages of one source, with their positions.

    `topic_id` is Kafka's id of their topic; empty: it is not known.
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
    absent_runs: list[SourceRun]
    unreadable_runs: list[UnreadableRun]


class _PolledMessages(NamedTuple):
    """Messages of one poll of a partition, and their offsets, ascending."""

    messages: list[Message]
    offsets: I64


@dataclass(slots=True)
class _Buffer:
    """What was read of a source and not taken.

    Attributes:
        begin_offset, end_offset: the range of offsets that was read; none of
            it, if these are equal.
        polled: the messages in this range, of each poll.
        damaged_runs: offsets in this range that cannot be read.
        leader_epoch: that of the last record that was read.
    """

    spec: SourceSpec
    generation: int
    begin_offset: int
    end_offset: int
    leader_epoch: int = NO_EPOCH
    polled: deque[_PolledMessages] = field(default_factory=deque)
    damaged_runs: list[DamagedRun] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many messages it has."""
        return sum(len(polled.messages) for polled in self.polled)

    def first_position(self) -> int:
        """Return the position of its first offset."""
        return position_at(self.generation, self.begin_offset)

    def sighting(self, record_count: int) -> Sighting:
        """Return where the next records are, more than `record_count` of them.

        If fewer were read: where all are that were read.
        """
        offset_parts: list[I64] = [np.empty(0, np.int64)]
        seen_count = 0
        for polled in self.polled:
            offset_parts.append(polled.offsets)
            seen_count += len(polled.offsets)
            # one more than requested: the record behind the last one shows
            # what is empty before it
            if seen_count > record_count:
                end_offset = int(polled.offsets[-1]) + 1
                return Sighting(self.begin_offset, end_offset, np.concatenate(offset_parts))
        return Sighting(self.begin_offset, self.end_offset, np.concatenate(offset_parts))


class ReadAhead:
    """The records of a topic that were read and not planned.

    It is a `Reach` over the sources that may be planned now (`plan_only`), and
    a `Sight`: what was read shows where there is no record.

    Attributes:
        count: how many records these are.
        out_of_range: the error that an offset to read at is not in its log,
            though the log does not begin behind it: whoever plans finds out
            whether the log was cut. None: there is no such offset.
    """

    def __init__(self, reader: MessageReader, log: Log) -> None:
        """Begin with nothing to read; see `add_sources`."""
        self.count = 0
        self._reader = reader
        self._log = log
        self._buffers: dict[TopicPartition, _Buffer] = {}  # of each partition that is read
        self._plannable_partitions: frozenset[TopicPartition] = frozenset()
        # the first offset of partitions of which needed records have left the
        # log; others are missing
        self._log_start_by_partition: dict[TopicPartition, int] = {}
        # whether the last poll brought fewer records than it might have
        self._is_drained = True
        # whether there was a poll since the last `take_standing_news`
        self._was_polled = False
        self.out_of_range: OutOfRange | None = None
        self._standing_watch = StandingWatch(log, Bound.STABLE_END)

    def add_sources(
        self,
        sources: Mapping[int, SourceSpec],
        first_free_by_source: Mapping[int, int],
    ) -> None:
        """Begin to read new sources, and new generations of sources, from their free positions on.

        A position is free if it was not initialised. What was read of the
        former generation of a source is thrown away: it is of a log that was
        cut.

        Args:
            sources: all of the topic.
            first_free_by_source: the first free position of each source that
                may be planned; may have sources of other topics, too.
        """
        new_buffers: dict[TopicPartition, _Buffer] = {}
        for source, first_free in first_free_by_source.items():
            spec = sources.get(source)
            generation = generation_of(first_free)
            offset = offset_of(first_free)
            if spec is not None and self._is_new(spec.place, generation):
                buffer = _Buffer(spec, generation, begin_offset=offset, end_offset=offset)
                new_buffers[spec.place] = buffer
        if not new_buffers:
            return
        for partition in new_buffers.keys() & self._buffers.keys():
            self.count -= self._buffers[partition].count  # thrown away with the former buffer
        self._buffers |= new_buffers
        # whoever plans has found out what became of the log: it is in a new
        # generation
        self.out_of_range = None
        self._assign_buffer_ends()

    def _is_new(self, partition: TopicPartition, generation: int) -> bool:
        """Return whether this generation of a partition is not read yet."""
        buffer = self._buffers.get(partition)
        return buffer is None or buffer.generation != generation

    def poll(self, wait_ms: int, records_max: int) -> int:
        """Read more records into the buffers, and return how many came.

        0 while there is an error in `out_of_range`. What cannot be read is
        passed over; `take_run` returns it as unreadable.
        """
        try:
            messages_by_partition = self._reader.poll_messages(wait_ms, records_max)
        except OutOfRange:
            self._go_on_at_log_starts()
            return 0
        except Damaged as error:
            damaged_partition = TopicPartition(error.topic, error.partition)
            damaged_run = self._reader.pass_over(damaged_partition)
            self._buffers[damaged_partition].damaged_runs.append(damaged_run)
            self._extend_to_reader(damaged_partition)
            return 0
        for partition, messages in messages_by_partition.items():
            self._add_messages(self._buffers[partition], messages)
        # also those without a message: a reader goes on over markers of
        # transactions, which are none
        for partition in self._buffers:
            self._extend_to_reader(partition)
        message_count = sum(map(len, messages_by_partition.values()))
        self._is_drained = message_count < records_max
        self._was_polled = True
        return message_count

    def _extend_to_reader(self, partition: TopicPartition) -> None:
        """Extend the buffer of a partition up to where its reader stands."""
        buffer = self._buffers[partition]
        buffer.end_offset = max(buffer.end_offset, self._reader.position(partition))

    def _add_messages(self, buffer: _Buffer, messages: list[Message]) -> None:
        """Add the messages of one poll, one or more of a partition, to its buffer.

        Those that are too large to be read count as damaged.
        """
        epoch = messages[-1].leader_epoch()
        buffer.leader_epoch = NO_EPOCH if epoch is None else epoch
        too_large = too_large_runs(messages)
        if too_large:
            buffer.damaged_runs += too_large
            too_large_offsets = {run.start for run in too_large}  # each run is one message
            messages = [
                message
                for message in messages
                if message.offset() not in too_large_offsets  # the others are damaged
            ]
        if messages:
            offsets = np.fromiter(map(Message.offset, messages), np.int64, len(messages))
            buffer.polled.append(_PolledMessages(messages, offsets))
            self.count += len(messages)

    def take_standing_news(self, now_ms: int) -> StandingNews:
        """Return which partitions stand still since the last call, and which go on again.

        A partition stands still if it has records that do not come. Empty
        without a `poll` since the last call: what is not read on purpose does
        not stand.
        """
        if not self._was_polled:
            return StandingNews()
        self._was_polled = False
        is_drained = self._is_drained
        return self._standing_watch.check_positions(self._end_offsets(), now_ms, is_drained=is_drained)

    def standing(self) -> tuple[StandingPartition, ...]:
        """Return the partitions that stand still."""
        return self._standing_watch.standing()

    def source_groups(self, acker_partition_count: int) -> list[list[int]]:
        """Return the sources with unplanned records, in groups that are planned together.

        All copies are a group, the first one; of the others those whose next
        record is of the same acker partition. Such a group needs one part of
        an Init, so it is ready after one write.
        """
        # by acker partition
        sources_by_group: dict[int, list[int]] = {}
        for buffer in self._buffers.values():
            if buffer.begin_offset >= buffer.end_offset:
                continue
            source = buffer.spec.source
            group = acker_partition(source, buffer.first_position(), acker_partition_count)
            if buffer.spec.is_replay:
                group = _GROUP_OF_COPIES
            sources_by_group.setdefault(group, []).append(source)
        return [sources_by_group[group] for group in sorted(sources_by_group)]

    def plan_only(self, sources: Iterable[int]) -> None:
        """Allow only these sources to be planned: for planning all others end at 0."""
        plannable_sources = set(sources)
        plannable_partitions: list[TopicPartition] = []
        for partition, buffer in self._buffers.items():
            if buffer.spec.source in plannable_sources:
                plannable_partitions.append(partition)
        self._plannable_partitions = frozenset(plannable_partitions)

    def starts(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the first offsets of partitions that lost needed records; 0 for the others."""
        log_starts = self._log_start_by_partition
        return {partition: log_starts.get(partition, 0) for partition in partitions}

    def stable_ends(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the offsets up to which partitions were read; 0: none may be planned now."""
        end_by_partition: dict[TopicPartition, int] = {}
        for partition in partitions:
            end_by_partition[partition] = 0
            if partition in self._plannable_partitions:
                end_by_partition[partition] = self._buffers[partition].end_offset
        return end_by_partition

    def epochs(self) -> Mapping[TopicPartition, int]:
        """Return the leader epoch of the last record that was read of each partition to be planned.

        Those of which it is not known are left out.
        """
        epoch_by_partition: dict[TopicPartition, int] = {}
        for partition in self._plannable_partitions:
            epoch = self._buffers[partition].leader_epoch
            if epoch != NO_EPOCH:
                epoch_by_partition[partition] = epoch
        return epoch_by_partition

    def find_records(self, requests: Mapping[TopicPartition, SightRequest]) -> Sightings:
        """Return where the records of partitions are, as far as these were read."""
        sightings: dict[TopicPartition, Sighting] = {}
        for partition, request in requests.items():
            buffer = self._buffers.get(partition)
            if buffer is not None:
                sightings[partition] = buffer.sighting(request.record_count)
        return Sightings(sightings, awaited=())

    def take_run(self, partition: TopicPartition, run: SourceRun) -> TakenRun:
        """Take a run's records out of a partition's buffer; return them, and what has no record.

        Positions that cannot be read are not among those without a record.
        What the buffer has before the run is dropped.
        """
        buffer = self._buffers[partition]
        # in one generation all positions are as much above their offsets
        position_shift = run.start - offset_of(run.start)
        planned: list[PlannedRecords] = []
        absent_runs: list[SourceRun] = []
        # 1. take records, and find the positions without one between them
        next_position = run.start  # behind the last record that was taken
        is_beyond_run = False
        while buffer.polled and not is_beyond_run:
            messages, offsets = buffer.polled.popleft()
            positions = offsets + position_shift
            # positions are ascending: those with the indices [begin, end) are
            # in the run, those before it are dropped
            begin, end = np.searchsorted(positions, [run.start, run.end]).tolist()
            self.count -= end
            if end < len(positions):
                # the others stay, for the next run
                buffer.polled.appendleft(_PolledMessages(messages[end:], offsets[end:]))
                is_beyond_run = True
            if begin < end:
                taken_positions = positions[begin:end]
                absent_runs += runs_without_record(run.source, next_position, taken_positions)
                next_position = int(taken_positions[-1]) + 1
                records = PlannedRecords(
                    run.source, messages[begin:end], taken_positions, buffer.spec.topic_id
                )
                planned.append(records)
        if next_position < run.end:
            absent_runs.append(SourceRun(run.source, next_position, run.end))
        # 2. the buffer begins behind the run
        buffer.begin_offset = offset_of(run.start) + run.end - run.start
        # 3. of what has no record, what cannot be read is returned by itself
        unreadable_runs = _unreadable_in(run, buffer.damaged_runs, position_shift)
        buffer.damaged_runs = [
            damaged for damaged in buffer.damaged_runs if damaged.end > buffer.begin_offset
        ]
        unreadable_roots = RootSet.of_runs(unreadable.run for unreadable in unreadable_runs)
        absent_roots = RootSet.of_runs(absent_runs) - unreadable_roots
        return TakenRun(planned, absent_roots.runs(), unreadable_runs)

    def drop_below(self, first_free_by_source: Mapping[int, int]) -> None:
        """Drop what lies below the first free positions, since nothing of it is planned.

        A former owner has initialised it. Where the first free position lies
        beyond what was read, what is between is not read: nobody would take it
        out again.
        """
        must_read_on = False
        for buffer in self._buffers.values():
            source = buffer.spec.source
            begin_position = buffer.first_position()
            end_position = position_at(buffer.generation, buffer.end_offset)
            first_free = first_free_by_source.get(source, 0)
            if begin_position < min(first_free, end_position):
                initialised_run = SourceRun(source, begin_position, first_free)
                self.take_run(buffer.spec.place, initialised_run)  # and drop it
                is_free_beyond_buffer = buffer.end_offset < buffer.begin_offset
                if is_free_beyond_buffer:
                    buffer.end_offset = buffer.begin_offset
                    must_read_on = True
        if must_read_on:
            self._assign_buffer_ends()

    def close(self) -> None:
        self._reader.close()

    def _go_on_at_log_starts(self) -> None:
        """Read on at the first offset of each log that begins behind what was read.

        Planning finds that records are lost, and decides. If no log begins
        behind what was read, set `out_of_range`.
        """
        log_starts = self._log.bounds(Bound.START, self._buffers).offsets
        later_starts = {
            partition: start
            for partition, start in log_starts.items()
            if start > self._buffers[partition].end_offset
        }
        if not later_starts:
            end_by_name = {
                f"{partition.topic}/{partition.partition}": end_offset
                for partition, end_offset in self._end_offsets().items()
            }
            self.out_of_range = OutOfRange(
                f"a partition no longer reaches to where it was read, one of {end_by_name}; if its"
                " topic was created anew, see `windhover offsets reset`"
            )
            return
        for partition, start in later_starts.items():
            self._log_start_by_partition[partition] = start
            self._buffers[partition].end_offset = start
        self._assign_buffer_ends()

    def _assign_buffer_ends(self) -> None:
        """Assign all partitions to the reader, each from where its buffer ends."""
        self._reader.assign(self._end_offsets())

    def _end_offsets(self) -> dict[TopicPartition, int]:
        """Return up to which offset each partition was read."""
        return {partition: buffer.end_offset for partition, buffer in self._buffers.items()}


def _unreadable_in(
    run: SourceRun, damaged_runs: Iterable[DamagedRun], position_shift: int
) -> list[UnreadableRun]:
    """Return what of a run lies in damaged offsets.

    `position_shift`: how much a position is above its offset.
    """
    unreadable_runs: list[UnreadableRun] = []
    for damaged in damaged_runs:
        start = max(run.start, damaged.start + position_shift)
        end = min(run.end, damaged.end + position_shift)
        if start < end:
            unreadable_runs.append(UnreadableRun(SourceRun(run.source, start, end), damaged))
    return unreadable_runs


class InputAhead(NamedTuple):
    """What was read of an input and of its replay topic.

    Each has a reader of its own: a client fetches megabytes of each partition
    and returns them in the order in which they came, so new records would wait
    behind thousands of copies, or copies behind new records.
    """

    copies: ReadAhead
    new: ReadAhead

    def poll(self, wait_ms: int, target_count: int) -> bool:
        """Read until there are `target_count` copies, and as many new records.

        Return whether both together were fewer when the copies had been read;
        only then new records are waited for, at most `wait_ms`.
        """
        if self.copies.count < target_count:
            self.copies.poll(0, target_count - self.copies.count)
        are_too_few = self.copies.count + self.new.count < target_count
        # also where there are copies enough: new records are planned beside
        # them
        if self.new.count < target_count:
            new_wait_ms = wait_ms if are_too_few else 0
            self.new.poll(new_wait_ms, target_count - self.new.count)
        return are_too_few

    def take_standing_news(self, now_ms: int) -> StandingNews:
        """Do as `ReadAhead.take_standing_news` for both."""
        copies_news = self.copies.take_standing_news(now_ms)
        new_news = self.new.take_standing_news(now_ms)
        return StandingNews(
            stand=[*copies_news.stand, *new_news.stand],
            go_on=[*copies_news.go_on, *new_news.go_on],
        )

    def standing(self) -> tuple[StandingPartition, ...]:
        """Return the partitions of either that stand still."""
        return (*self.copies.standing(), *self.new.standing())

    def add_sources(
        self,
        sources: Mapping[int, SourceSpec],
        first_free_by_source: Mapping[int, int],
    ) -> None:
        """Begin to read new sources of the input; see `ReadAhead.add_sources`."""
        replay_sources: dict[int, SourceSpec] = {}
        new_sources: dict[int, SourceSpec] = {}
        for source, spec in sources.items():
            if spec.is_replay:
                replay_sources[source] = spec
            else:
                new_sources[source] = spec
        self.copies.add_sources(replay_sources, first_free_by_source)
        self.new.add_sources(new_sources, first_free_by_source)

    def out_of_range(self) -> OutOfRange | None:
        """Return the error of either that an offset is not in its log; None: there is none.

        See `ReadAhead.out_of_range`.
        """
        return self.copies.out_of_range or self.new.out_of_range

    def close(self) -> None:
        for read_ahead in self:
            read_ahead.close()


class GroupReach:
    """All that was read of a group as one `Reach`, and as one `Sight`."""

    def __init__(self, read_aheads: Iterable[ReadAhead]) -> None:
        self._read_aheads = tuple(read_aheads)  # of different partitions

    def starts(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the first offsets of partitions that lost needed records; 0 for the others."""
        partition_list = list(partitions)
        return _largest([read_ahead.starts(partition_list) for read_ahead in self._read_aheads])

    def stable_ends(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the offsets up to which partitions were read; 0: none may be planned now."""
        partition_list = list(partitions)
        answers = [read_ahead.stable_ends(partition_list) for read_ahead in self._read_aheads]
        return _largest(answers)

    def find_records(self, requests: Mapping[TopicPartition, SightRequest]) -> Sightings:
        """Return where the records of partitions are, as far as these were read."""
        sightings: dict[TopicPartition, Sighting] = {}
        for read_ahead in self._read_aheads:
            sightings |= read_ahead.find_records(requests).by_partition
        return Sightings(sightings, awaited=())

    def fetch_ahead(self, next_offsets: Mapping[TopicPartition, int]) -> None:
        """Do nothing: what comes next is read when clients request it."""

    def close(self) -> None:
        """Do nothing: whoever made the inputs closes them."""

    def bounds(self, bound: Bound, partitions: Iterable[TopicPartition]) -> OffsetAnswers:
        """Return the starts or stable ends of partitions, from what was read, without a request.

        There is no error of a partition: one in trouble brings no record.
        """
        if bound is Bound.START:
            return OffsetAnswers(self.starts(partitions), troubles={})
        epochs: dict[TopicPartition, int] = {}
        for read_ahead in self._read_aheads:
            epochs |= read_ahead.epochs()
        return OffsetAnswers(self.stable_ends(partitions), troubles={}, epochs=epochs)


def _largest(answers: Sequence[Mapping[TopicPartition, int]]) -> Mapping[TopicPartition, int]:
    """Return the largest offset of each partition; all answers are of the same partitions.

    The partitions of an input are read by one `ReadAhead`; the others answer 0.
    """
    return {partition: max(offsets[partition] for offsets in answers) for partition in answers[0]}
