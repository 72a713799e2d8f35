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

Place = tuple[int, int]
"""An input's id, and a partition of its topic."""


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
        due: how many roots of each place wait.
        offsets: where they wait in their topic, whichever of their copies was lost, without those whose
            origin is unknown.
        copies: where the copies among them are on the replay topic.
        blocked: what waits in each partition of an ordered input.
        aside: how many roots of each place were put aside.
        pauses: the inputs that are paused in some partition, by id.
        partitions: what is to be done in each verdict partition.
        written: when the last progress of each was written, by its worker's clock and the broker's.
    """

    due: Counter[Place]
    offsets: Mapping[Place, WaitingOffsets]
    copies: Mapping[Place, WaitingOffsets]
    blocked: Mapping[Place, BlockedRecords]
    aside: Mapping[Place, int]
    pauses: Mapping[int, Pause]
    partitions: Sequence[ReplayPartition]
    written: Mapping[int, WriterTime] = MappingProxyType({})


class _WaitingRoot(NamedTuple):
    """One root that waits.

    Attributes:
        offset: of its record in its own topic; -1: that of a copy, whose origin is unknown.
        copy: offset of that copy on the replay topic; -1: it is none.
        origin: of an ordered input ``topic/partition@offset`` of the record; else None.
    """

    place: Place
    offset: int
    copy: int
    due_ms: int
    is_blocked: bool
    is_aside: bool = False
    origin: str | None = None


class _LostRoot(NamedTuple):
    """A root that no replay worker has taken over: the offset of its verdict, and its number there."""

    verdict_offset: int
    number: int
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
        self._due_follower = Follower(log, places, read_max, on_damage=pass_damage)
        # by verdict partition: lost roots that no worker has taken over, in the order of the log
        self._lost_by_partition: dict[int, deque[_LostRoot]] = {number: deque() for number in numbers}
        # reads the verdicts that no worker has taken over, and where it began or is
        self._verdict_follower: Follower | None = None
        self._verdict_offsets: dict[TopicPartition, int] = {}
        # by verdict partition: when its worker wrote its last progress
        self._progress_times: dict[int, WriterTime] = {}
        ordered_inputs = frozenset(input.id for input in topics.inputs.values() if input.ordered)
        self._entries = _ShownEntries(ordered_inputs)
        self._fold = DueFold(self._entries.read_entry, self._entries)

    def read(self) -> Waiting:
        """Read what is new, and return what waits.

        Raises:
            NotWhole: not all was read.
        """
        # 1. what the workers have taken over
        for record in self._due_follower.read():
            self._read_record(record)
        if not self._due_follower.is_whole:
            raise NotWhole(not_whole(self._due_topic, self._due_follower))
        # 2. up to where each worker has taken verdicts over
        what = "what is lost and not taken over"
        starts = all_answers(self._log.bounds(Bound.START, self._verdict_places), what)
        ends = all_answers(self._log.bounds(Bound.STABLE_END, self._verdict_places), what)
        committed = self._log.committed(self._group, self._verdict_places)
        # a worker that has written no progress begins at its group's commit
        progress_by_place = {
            place: self._fold.progress.get(place.partition) or Progress(committed.get(place, 0), 0)
            for place in self._verdict_places
        }
        next_offsets = {
            place: max(progress.next, starts[place]) for place, progress in progress_by_place.items()
        }
        # 3. the lost roots in the verdicts from there on
        follower = self._follower_from(next_offsets)
        for record in follower.read():
            lost_roots = self._lost_by_partition[record.partition]
            for number, root in enumerate(_lost_roots(record)):
                lost_roots.append(_LostRoot(record.offset, number, root))
            self._verdict_offsets[TopicPartition(record.topic, record.partition)] = record.offset + 1
        due_by_partition = Counter(partition for partition, _ in self._entries.waiting)
        partitions: list[ReplayPartition] = []
        for place, progress in progress_by_place.items():
            lost_roots = self._lost_by_partition[place.partition]
            # of the verdict at `next` the worker has taken over the first `skip` roots
            first_untaken = (progress.next, progress.skip)
            while lost_roots and (lost_roots[0].verdict_offset, lost_roots[0].number) < first_untaken:
                lost_roots.popleft()
            partition = ReplayPartition(
                due=due_by_partition[place.partition],
                untaken=len(lost_roots),
                lag=max(0, ends[place] - next_offsets[place]),
                next=next_offsets[place],
            )
            partitions.append(partition)
        if not follower.is_whole:
            raise NotWhole(not_whole(self._verdict_places[0].topic, follower))
        return Waiting(
            due=Counter(root.place for root in self._all_roots()),
            offsets=self._offsets(lambda root: root.offset),
            copies=self._offsets(lambda root: root.copy),
            blocked=self._blocked(),
            aside=Counter(root.place for root in self._entries.waiting.values() if root.is_aside),
            pauses=self._fold.paused(),
            partitions=partitions,
            written=dict(self._progress_times),
        )

    def _follower_from(self, next_offsets: Mapping[TopicPartition, int]) -> Follower:
        """Return what reads the verdicts from `next_offsets` on, or from where it is already.

        A worker that took many verdicts over meanwhile is caught up with by a new follower, which does not
        read them.
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
        yield from self._entries.waiting.values()
        yield from self._roots_not_taken_over()

    def _roots_not_taken_over(self) -> Iterator[_WaitingRoot]:
        """Yield the lost roots that no worker has taken over."""
        for lost_roots in self._lost_by_partition.values():
            for lost in lost_roots:
                yield lost.root

    def _offsets(self, offset_of_root: Callable[[_WaitingRoot], int]) -> Mapping[Place, WaitingOffsets]:
        """Return where roots wait by one of their offsets, without those for which it is -1."""
        roots_by_place: dict[Place, list[_WaitingRoot]] = {}
        for root in self._all_roots():
            if offset_of_root(root) >= 0:
                roots_by_place.setdefault(root.place, []).append(root)
        return {
            place: WaitingOffsets(
                offsets=np.array([offset_of_root(root) for root in roots], np.int64),
                due_ms=np.array([root.due_ms for root in roots], np.int64),
                is_blocked=np.array([root.is_blocked for root in roots], bool),
            )
            for place, roots in roots_by_place.items()
        }

    def _blocked(self) -> Mapping[Place, BlockedRecords]:
        """Return what waits in each partition of the ordered inputs."""
        blocked: dict[Place, BlockedRecords] = {}
        ordered_roots = [root for root in self._entries.waiting.values() if root.origin is not None]
        # a copy that was put aside comes last: where it is from is still unknown
        ordered_roots.sort(key=lambda root: OFFSET_MAX if root.offset < 0 else root.offset)
        for root in ordered_roots:
            line = blocked.get(root.place) or BlockedRecords(0, root.origin or "", root.due_ms)
            blocked[root.place] = line._replace(blocked=line.blocked + root.is_blocked)
        counts = Counter(root.place for root in self._roots_not_taken_over() if root.is_blocked)
        for place, count in counts.items():
            line = blocked.get(place, BlockedRecords())
            blocked[place] = line._replace(blocked=line.blocked + count)
        return blocked

    def close(self) -> None:
        self._due_follower.close()
        if self._verdict_follower is not None:
            self._verdict_follower.close()

    def _read_record(self, record: Record) -> None:
        """Take in a record of ``_ack_due``."""
        meaning = self._fold.put(record)
        if isinstance(meaning, Progress):
            self._progress_times[record.partition] = writer_time(record)
        elif isinstance(meaning, Flawed) and meaning.root is not None:
            self._entries.note_flawed(record, meaning.root)


class _ShownEntries:
    """What is shown of each root that waits."""

    def __init__(self, ordered: frozenset[int]) -> None:
        """Show of the inputs in `ordered`, which are read in order, which roots are blocked."""
        self.waiting: dict[EntryName, _WaitingRoot] = {}
        self._ordered_inputs = ordered
        self._is_aside = due_codec().is_aside

    def read_entry(self, record: Record, root: Root) -> _WaitingRoot:
        """Return what is shown by an entry; it is decoded where more than its due time is shown."""
        place = _place(root.source)
        is_aside = self._is_aside(record.value)
        is_ordered = input_id_of(root.source) in self._ordered_inputs
        due: Due | None = None
        if is_ordered or is_replay(root.source):
            try:
                due = whole_entry(record, root)
            except CodecError:
                due = None  # if its due time can be read, the root waits for that
        if due is None:
            due_ms = due_ms_of(record, root)
            return _WaitingRoot(
                place, _origin(root), _copy(root), due_ms, is_blocked=False, is_aside=is_aside
            )
        return _WaitingRoot(
            place,
            _origin(root, due),
            _copy(root),
            due.due_ms,
            is_blocked=due.last_was_blocked,
            is_aside=is_aside,
            origin=due.origin if is_ordered else None,
        )

    def put(self, record: Record, root: Root, entry: _WaitingRoot) -> None:
        self.waiting[name_of(record)] = entry

    def end(self, record: Record, root: Root) -> None:
        self.waiting.pop(name_of(record), None)

    def note_flawed(self, record: Record, root: Root) -> None:
        """Show a root whose entry cannot be read, unless an entry beneath is shown.

        The next owner of the partition writes that one again, or makes a dead letter of the root.
        """
        without_due_time = _WaitingRoot(_place(root.source), _origin(root), _copy(root), 0, is_blocked=False)
        self.waiting.setdefault(name_of(record), without_due_time)


def _origin(root: Root, due: Due | None = None) -> int:
    """Return the offset of a root's record in its own topic; -1: unknown."""
    if not is_replay(root.source):
        return int(offset_of(root.position))
    location = parse_location(due.origin) if due is not None else None
    if location is None:
        return -1
    _topic, _partition, offset = location
    return offset


def _copy(root: Root) -> int:
    """Return the offset of a copy on the replay topic; -1: the root is none."""
    return int(offset_of(root.position)) if is_replay(root.source) else -1


def _lost_roots(record: Record) -> list[_WaitingRoot]:
    """Return the lost roots of a verdict record, in order; none: it cannot be read."""
    event = read_verdicts(record.value)
    if event is None:
        return []  # the replay worker reports it
    roots: list[_WaitingRoot] = []
    for lost in event.lost:
        place = _place(lost.source)
        for position in positions(lost.positions).tolist():
            root = Root(Source(lost.source), position)
            # when it is due is decided when a worker takes it over
            roots.append(_WaitingRoot(place, _origin(root), _copy(root), 0, is_blocked=lost.error == HELD))
    return roots


def _place(source: int) -> Place:
    return input_id_of(source), partition_of(source)
