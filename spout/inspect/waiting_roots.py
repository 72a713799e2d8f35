"""Counts the lost roots that wait for a replay, or to become a dead letter.

Some have a record in ``_ack_due``. Roots of the latest verdicts may have none until a replay worker has taken
them over; its record ``progress`` shows how far it has.

Source: docs/design/protocol.md, section 5.4.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np

from acker.config.topics import Topics
from acker.errors import CodecError, WindhoverError
from acker.identity import I64, OFFSET_MAX, Root, Source, input_id_of, is_replay, offset_of, partition_of
from acker.kafka.port import Bound, Log, Record, TopicPartition
from acker.kafka.read_to_end import Follower, pass_damage
from acker.kafka.standing import all_answers
from acker.wire.causes import HELD
from acker.wire.checks import read_verdicts
from acker.wire.events import positions
from acker.writer_clocks import WriterTime, writer_time
from replay.records.due import Due, Pause, Progress, due_codec
from replay.records.due_fold import DueFold, EntryName, Flawed, due_ms_of, name_of, whole_entry
from replay.records.headers import parse_location

SKIPPED_MIN: Final = 10_000
"""So many verdicts, which a worker has taken over since the last call, are passed over and not read."""

PartitionId = tuple[int, int]
"""An input's id, and the number of a partition of its topic."""


def not_whole(what: str, read: Follower) -> str:
    """Describe why a call has read a part of a topic only."""
    why = read.why_not_whole()
    if why:
        return f"not all of {what} can be read: {why}"
    return (
        f"{what} has more records than are read at once, {int(100 * read.fraction_read)} % are read; the next"
        " reading goes on (`--watch 2`)"
    )


class NotWhole(WindhoverError):
    """A topic has more records than one call reads; the next call goes on."""


class BlockedRecords(NamedTuple):
    """What waits in one partition of an ordered input.

    Attributes:
        blocked: how many blocked records wait behind another one.
        first: the origin of the first that waits, ``topic/partition@offset``; empty where none does.
        due_ms: wall time at which that one is replayed, or becomes a dead letter.
    """

    blocked: int = 0
    first: str = ""
    due_ms: int = 0


class WaitingOffsets(NamedTuple):
    """Where roots of one partition wait; parallel arrays of shape (n,), in no order.

    Attributes:
        offsets: of their records; see `Waiting`.
        due_ms: wall time; 0: no replay worker has taken the verdict over.
        is_blocked: whether the record waits behind another one.
    """

    offsets: I64
    due_ms: I64
    is_blocked: np.ndarray


NOTHING_WAITS: Final = WaitingOffsets(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, bool))


class ReplayPartition(NamedTuple):
    """What the owner of one verdict partition has to do.

    Attributes:
        due: lost roots that it has taken over, and that wait for a replay or to become a dead letter.
        untaken: lost roots that it has not taken over.
        lag: offsets of ``_ack_verdict`` behind its progress, markers of transactions among them.
        next: offset of ``_ack_verdict`` up to which it has taken all over.
    """

    due: int
    untaken: int
    lag: int
    next: int = 0


class Waiting(NamedTuple):
    """What waits, as of one reading.

    Attributes:
        due: how many roots of each partition wait.
        offsets: where they wait in their topic, whichever of their copies was lost, without those whose
            origin is unknown.
        copies: where the copies among them are on the replay topic.
        blocked: what waits in each partition of an ordered input.
        aside: how many roots of each partition were put aside.
        pauses: the inputs that are paused in some partition, by id.
        partitions: what is to be done in each verdict partition.
        written: when the last progress of each was written, by its worker's clock and the broker's.
    """

    due: Counter[PartitionId]
    offsets: Mapping[PartitionId, WaitingOffsets]
    copies: Mapping[PartitionId, WaitingOffsets]
    blocked: Mapping[PartitionId, BlockedRecords]
    aside: Mapping[PartitionId, int]
    pauses: Mapping[int, Pause]
    partitions: Sequence[ReplayPartition]
    written: Mapping[int, WriterTime] = MappingProxyType({})


class _WaitingRoot(NamedTuple):
    """One root that waits.

    Attributes:
        record_offset: of its record in its own topic; -1: it is a copy, and its origin is unknown.
        copy_offset: of that copy on the replay topic; -1: it is none.
        origin: of an ordered input ``topic/partition@offset`` of the record; else None.
    """

    partition_id: PartitionId
    record_offset: int
    copy_offset: int
    due_ms: int
    is_blocked: bool
    is_aside: bool = False
    origin: str | None = None


class _LostRoot(NamedTuple):
    """A root that no replay worker has taken over.

    Attributes:
        verdict_offset: of the record in ``_ack_verdict`` that has its verdict.
        root_index: its index among the lost roots of that record.
    """

    verdict_offset: int
    root_index: int
    root: _WaitingRoot


class WaitingRoots:
    """Follows `_ack_due`, and the verdicts that are not in it yet."""

    def __init__(self, log: Log, topics: Topics, read_max: int) -> None:
        """Begin at the start of ``_ack_due``, and at the first verdicts that no worker has taken over.

        A call of `read` reads at most `read_max` records of each topic.
        """
        numbers = range(topics.acker.partitions)
        names = topics.ack_topics
        self._log = log
        self._group = topics.acker.replay_group
        self._read_max = read_max
        self._verdict_places = [TopicPartition(names.verdict, number) for number in numbers]
        self._due_topic = names.due
        places = [TopicPartition(names.due, number) for number in numbers]
        # damaged records are passed over
        self._due_follower = Follower(log, places, read_max, on_damage=pass_damage)
        # by verdict partition: lost roots that no worker has taken over, in the order of the log
        self._lost_by_partition: dict[int, deque[_LostRoot]] = {number: deque() for number in numbers}
        # reads the verdicts that no worker has accepted; None: no read has opened it
        self._verdict_follower: Follower | None = None
        # by partition: the offset behind the last verdict that it has read, at first where it begins
        self._verdict_offsets: dict[TopicPartition, int] = {}
        # by verdict partition: when its worker wrote its last progress
        self._progress_times: dict[int, WriterTime] = {}
        ordered_inputs = frozenset(input.id for input in topics.inputs.values() if input.ordered)
        self._shown_entries = _ShownEntries(ordered_inputs)
        self._due_fold = DueFold(self._shown_entries.read_entry, self._shown_entries)

    def read(self) -> Waiting:
        """Read what is new, and return what waits.

        1. ``_ack_due``: what replay workers have taken over, and up to where each has done so.
        2. Where verdicts begin that no worker has taken over.
        3. The lost roots in these verdicts.
        4. Roots among them that a worker has taken over since are forgotten: they are in 1.

        Raises:
            NotWhole: not all was read.
        """
        # 1. what the workers have taken over
        for record in self._due_follower.read():
            self._read_record(record)
        if not self._due_follower.is_whole:
            raise NotWhole(not_whole(self._due_topic, self._due_follower))
        # 2. up to where each worker has taken verdicts over
        what_is_unknown = "what is lost and not taken over"
        starts = all_answers(self._log.bounds(Bound.START, self._verdict_places), what_is_unknown)
        ends = all_answers(self._log.bounds(Bound.STABLE_END, self._verdict_places), what_is_unknown)
        committed = self._log.committed(self._group, self._verdict_places)
        # a worker that has written no progress begins at its group's commit
        progress_by_place = {
            place: self._due_fold.progress.get(place.partition) or Progress(committed.get(place, 0), 0)
            for place in self._verdict_places
        }
        next_offsets = {
            place: max(progress.next, starts[place]) for place, progress in progress_by_place.items()
        }
        # 3. the lost roots in the verdicts from there on
        follower = self._follower_from(next_offsets)
        for record in follower.read():
            lost_roots = self._lost_by_partition[record.partition]
            for index, root in enumerate(_lost_roots(record)):
                lost_roots.append(_LostRoot(record.offset, index, root))
            self._verdict_offsets[TopicPartition(record.topic, record.partition)] = record.offset + 1
        # 4. what each worker has taken over, and what it has not
        due_by_partition = Counter(partition for partition, _ in self._shown_entries.waiting)
        partitions: list[ReplayPartition] = []
        for place, progress in progress_by_place.items():
            lost_roots = self._lost_by_partition[place.partition]
            # of the verdict at `next` the worker has taken over the first `skip` roots
            first_not_accepted = (progress.next, progress.skip)
            while lost_roots:
                oldest = lost_roots[0]
                if (oldest.verdict_offset, oldest.root_index) >= first_not_accepted:
                    break
                lost_roots.popleft()
            partition = ReplayPartition(
                due=due_by_partition[place.partition],
                untaken=len(lost_roots),
                lag=max(0, ends[place] - next_offsets[place]),
                next=next_offsets[place],
            )
            partitions.append(partition)
        # only here: what was read stays, and the next call goes on
        if not follower.is_whole:
            raise NotWhole(not_whole(self._verdict_places[0].topic, follower))
        entries = self._shown_entries.waiting.values()
        return Waiting(
            due=Counter(root.partition_id for root in self._all_roots()),
            offsets=self._offsets(lambda root: root.record_offset),
            copies=self._offsets(lambda root: root.copy_offset),
            blocked=self._blocked(),
            aside=Counter(root.partition_id for root in entries if root.is_aside),
            pauses=self._due_fold.paused(),
            partitions=partitions,
            written=dict(self._progress_times),
        )

    def _follower_from(self, next_offsets: Mapping[TopicPartition, int]) -> Follower:
        """Return what reads the verdicts from `next_offsets` on, or from where it is already.

        If a worker has taken over many verdicts that it has not read, it is replaced by a new one,
        which does not read them.
        """
        offsets = self._verdict_offsets
        is_far_behind = any(
            offset - offsets.get(place, 0) >= SKIPPED_MIN for place, offset in next_offsets.items()
        )
        if self._verdict_follower is None or is_far_behind:
            if self._verdict_follower is not None:
                self._verdict_follower.close()
            self._verdict_offsets = {
                place: max(offset, offsets.get(place, 0)) for place, offset in next_offsets.items()
            }
            self._verdict_follower = Follower(
                self._log,
                self._verdict_places,
                self._read_max,
                first_offsets=self._verdict_offsets,
                on_damage=pass_damage,
            )
        return self._verdict_follower

    def _all_roots(self) -> Iterator[_WaitingRoot]:
        """Yield the roots that have an entry, and those that no worker has taken over."""
        yield from self._shown_entries.waiting.values()
        yield from self._roots_not_taken_over()

    def _roots_not_taken_over(self) -> Iterator[_WaitingRoot]:
        """Yield the lost roots that no worker has taken over."""
        for lost_roots in self._lost_by_partition.values():
            for lost in lost_roots:
                yield lost.root

    def _offsets(
        self,
        offset_of_root: Callable[[_WaitingRoot], int],
    ) -> Mapping[PartitionId, WaitingOffsets]:
        """Return by partition one of the offsets of each root that waits, and when the root is due.

        Roots of which `offset_of_root` returns -1, so that it is unknown, are left out.
        """
        roots_by_partition: dict[PartitionId, list[_WaitingRoot]] = {}
        for root in self._all_roots():
            if offset_of_root(root) >= 0:
                roots_by_partition.setdefault(root.partition_id, []).append(root)
        return {
            partition_id: WaitingOffsets(
                offsets=np.array([offset_of_root(root) for root in roots], np.int64),
                due_ms=np.array([root.due_ms for root in roots], np.int64),
                is_blocked=np.array([root.is_blocked for root in roots], bool),
            )
            for partition_id, roots in roots_by_partition.items()
        }

    def _blocked(self) -> Mapping[PartitionId, BlockedRecords]:
        """Return for each partition of the ordered inputs how many records are blocked.

        The first record that waits blocks the others. Roots that no worker has taken over are
        counted, and none of them is the first: when it is due is not decided yet.
        """
        blocked: dict[PartitionId, BlockedRecords] = {}
        ordered_roots = [root for root in self._shown_entries.waiting.values() if root.origin is not None]
        # a copy that was put aside comes last: where it is from is still unknown
        ordered_roots.sort(key=lambda root: OFFSET_MAX if root.record_offset < 0 else root.record_offset)
        for root in ordered_roots:
            # the first root of a partition makes its entry, with its own origin and due time
            blocker = BlockedRecords(0, root.origin or "", root.due_ms)
            records = blocked.setdefault(root.partition_id, blocker)
            count = records.blocked + root.is_blocked
            blocked[root.partition_id] = records._replace(blocked=count)
        for root in self._roots_not_taken_over():
            if root.is_blocked:
                records = blocked.get(root.partition_id, BlockedRecords())
                blocked[root.partition_id] = records._replace(blocked=records.blocked + 1)
        return blocked

    def close(self) -> None:
        self._due_follower.close()
        if self._verdict_follower is not None:
            self._verdict_follower.close()

    def _read_record(self, record: Record) -> None:
        """Apply a record of ``_ack_due`` to what waits; keep when a worker wrote its progress."""
        meaning = self._due_fold.put(record)
        if isinstance(meaning, Progress):
            self._progress_times[record.partition] = writer_time(record)
        elif isinstance(meaning, Flawed) and meaning.root is not None:
            self._shown_entries.note_flawed(record, meaning.root)


class _ShownEntries:
    """What is shown of each root that waits."""

    def __init__(self, ordered: frozenset[int]) -> None:
        """Show of the inputs in `ordered`, which are read in order, which roots are blocked."""
        self.waiting: dict[EntryName, _WaitingRoot] = {}
        self._ordered_inputs = ordered
        self._is_aside = due_codec().is_aside

    def read_entry(self, record: Record, root: Root) -> _WaitingRoot:
        """Return what is shown of a root by its entry in ``_ack_due``.

        An entry is decoded only where more than its due time is shown.
        """
        is_aside = self._is_aside(record.value)
        is_ordered = input_id_of(root.source) in self._ordered_inputs
        due: Due | None = None
        if is_ordered or is_replay(root.source):
            try:
                due = whole_entry(record, root)
            except CodecError:
                due = None  # if its due time can be read, the root waits for that
        if due is None:
            return _waiting_root(root, due_ms_of(record, root), is_aside=is_aside)
        return _waiting_root(
            root,
            due.due_ms,
            due,
            is_blocked=due.last_was_blocked,
            is_aside=is_aside,
            origin=due.origin if is_ordered else None,
        )

    def put(self, record: Record, root: Root, entry: _WaitingRoot) -> None:
        self.waiting[name_of(record)] = entry

    def end(self, record: Record, root: Root) -> None:
        self.waiting.pop(name_of(record), None)

    def note_flawed(self, record: Record, root: Root) -> None:
        """Show a root whose entry cannot be read; an earlier entry that is shown stays.

        The next owner of the partition writes the earlier entry again, or makes a dead letter of
        the root.
        """
        self.waiting.setdefault(name_of(record), _waiting_root(root, due_ms=0))


def _waiting_root(
    root: Root,
    due_ms: int,
    entry: Due | None = None,
    *,
    is_blocked: bool = False,
    is_aside: bool = False,
    origin: str | None = None,
) -> _WaitingRoot:
    """Return a root that waits.

    `entry` is that of `_ack_due`; None: it was not decoded. `copy_offset` -1: the root is no copy.
    """
    return _WaitingRoot(
        partition_id=(input_id_of(root.source), partition_of(root.source)),
        record_offset=_record_offset(root, entry),
        copy_offset=int(offset_of(root.position)) if is_replay(root.source) else -1,
        due_ms=due_ms,
        is_blocked=is_blocked,
        is_aside=is_aside,
        origin=origin,
    )


def _record_offset(root: Root, due: Due | None) -> int:
    """Return the offset of a root's record in its own topic; -1: unknown."""
    if not is_replay(root.source):
        return int(offset_of(root.position))
    location = parse_location(due.origin) if due is not None else None
    if location is None:
        return -1
    _topic, _partition, offset = location
    return offset


def _lost_roots(record: Record) -> list[_WaitingRoot]:
    """Return the lost roots of a verdict record, in order; none: it cannot be read."""
    event = read_verdicts(record.value)
    if event is None:
        return []  # the replay worker reports it
    roots: list[_WaitingRoot] = []
    for lost in event.lost:
        for position in positions(lost.positions).tolist():
            root = Root(Source(lost.source), position)
            # when it is due is decided when a worker takes it over
            roots.append(_waiting_root(root, due_ms=0, is_blocked=lost.error == HELD))
    return roots
