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
    if why := read.why_not_whole():
        return f"not all of {what} can be read: {why}"
    return (
        f"{what} has more records than are read at once, {int(100 * read.share_read)} % are read; the next"
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


class _Waits(NamedTuple):
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


_LostRoot = tuple[int, int, _Waits]
"""The offset of a verdict, the place of a root among those that it lost, and the root."""


class WaitingRoots:
    """Follows `_ack_due`, and the verdicts that are not in it yet."""

    def __init__(self, log: Log, topics: Topics, read_max: int) -> None:
        """Begin at the log start, and where the workers are; a call reads at most `read_max` records of each
        topic.
        """
        numbers = range(topics.acker.partitions)
        names = topics.ack_topics
        self._log = log
        self._group = topics.acker.replay_group
        self._read_max = read_max
        self._verdicts = [TopicPartition(names.verdict, number) for number in numbers]
        self._due_topic = names.due
        places = [TopicPartition(names.due, number) for number in numbers]
        self._due = Follower(log, places, read_max, on_damage=pass_damage)
        self._lost: dict[int, deque[_LostRoot]] = {number: deque() for number in numbers}
        self._untaken: Follower | None = None
        self._untaken_at: dict[TopicPartition, int] = {}
        self._written: dict[int, WriterTime] = {}
        ordered = frozenset(one.id for one in topics.inputs.values() if one.ordered)
        self._entries = _ShownEntries(ordered)
        self._fold = DueFold(self._entries.read_entry, self._entries)

    def read(self) -> Waiting:
        """Return what waits.

        Raises:
            NotWhole: not all was read.
        """
        for record in self._due.read():
            self._put(record)
        if not self._due.is_whole:
            raise NotWhole(not_whole(self._due_topic, self._due))
        what = "what is lost and not taken over"
        starts = all_answers(self._log.bounds(Bound.START, self._verdicts), what)
        ends = all_answers(self._log.bounds(Bound.STABLE_END, self._verdicts), what)
        committed = self._log.committed(self._group, self._verdicts)
        progress = {
            where: self._fold.progress.get(where.partition) or Progress(committed.get(where, 0), 0)
            for where in self._verdicts
        }
        untaken = self._follow({where: max(found.next, starts[where]) for where, found in progress.items()})
        for record in untaken.read():
            lost = self._lost[record.partition]
            lost.extend((record.offset, number, each) for number, each in enumerate(_lost(record)))
            self._untaken_at[TopicPartition(record.topic, record.partition)] = record.offset + 1
        due_in = Counter(number for number, _ in self._entries.waiting)
        partitions: list[ReplayPartition] = []
        for where, taken in progress.items():
            lost = self._lost[where.partition]
            while lost and lost[0][:2] < (taken.next, taken.skip):
                lost.popleft()
            lag = max(0, ends[where] - max(taken.next, starts[where]))
            next_offset = max(taken.next, starts[where])
            partitions.append(ReplayPartition(due_in[where.partition], len(lost), lag, next_offset))
        if not untaken.is_whole:
            raise NotWhole(not_whole(self._verdicts[0].topic, untaken))
        return Waiting(
            Counter(each.place for each in self._all()),
            self._offsets(lambda each: each.offset),
            self._offsets(lambda each: each.copy),
            self._blocked(),
            Counter(each.place for each in self._entries.waiting.values() if each.is_aside),
            self._fold.paused(),
            partitions,
            dict(self._written),
        )

    def _follow(self, first: Mapping[TopicPartition, int]) -> Follower:
        """Return what reads the verdicts from `first` on, or from where it is already."""
        at = self._untaken_at
        is_late = any(offset - at.get(where, 0) >= SKIPPED_MIN for where, offset in first.items())
        if self._untaken is None or is_late:
            if self._untaken is not None:
                self._untaken.close()
            self._untaken_at = {where: max(offset, at.get(where, 0)) for where, offset in first.items()}
            self._untaken = Follower(
                self._log, self._verdicts, self._read_max, first=self._untaken_at, on_damage=pass_damage
            )
        return self._untaken

    def _all(self) -> Iterator[_Waits]:
        yield from self._entries.waiting.values()
        for lost in self._lost.values():
            yield from (each for _, _, each in lost)

    def _offsets(self, where: Callable[[_Waits], int]) -> Mapping[Place, WaitingOffsets]:
        """Return where they wait by one of their offsets, without those for which it is -1."""
        found: dict[Place, list[_Waits]] = {}
        for each in self._all():
            if where(each) >= 0:
                found.setdefault(each.place, []).append(each)
        return {
            place: WaitingOffsets(
                np.array([where(one) for one in each], np.int64),
                np.array([one.due_ms for one in each], np.int64),
                np.array([one.is_blocked for one in each], bool),
            )
            for place, each in found.items()
        }

    def _blocked(self) -> Mapping[Place, BlockedRecords]:
        found: dict[Place, BlockedRecords] = {}
        ordered = [each for each in self._entries.waiting.values() if each.origin is not None]
        # a copy that was put aside comes last: where it is from is still unknown
        for each in sorted(ordered, key=lambda each: OFFSET_MAX if each.offset < 0 else each.offset):
            line = found.get(each.place) or BlockedRecords(0, each.origin or "", each.due_ms)
            found[each.place] = line._replace(blocked=line.blocked + each.is_blocked)
        lost = (each for found_in in self._lost.values() for _, _, each in found_in)
        for place, count in Counter(each.place for each in lost if each.is_blocked).items():
            line = found.get(place, BlockedRecords())
            found[place] = line._replace(blocked=line.blocked + count)
        return found

    def close(self) -> None:
        self._due.close()
        if self._untaken is not None:
            self._untaken.close()

    def _put(self, record: Record) -> None:
        meaning = self._fold.put(record)
        if isinstance(meaning, Progress):
            self._written[record.partition] = writer_time(record)
        elif isinstance(meaning, Flawed) and meaning.root is not None:
            self._entries.note_flawed(record, meaning.root)


class _ShownEntries:
    """What is shown of each root that waits."""

    def __init__(self, ordered: frozenset[int]) -> None:
        """Show of the inputs in `ordered`, which are read in order, which roots are blocked."""
        self.waiting: dict[EntryName, _Waits] = {}
        self._ordered = ordered
        self._is_aside = due_codec().is_aside

    def read_entry(self, record: Record, root: Root) -> _Waits:
        """Return what is shown by an entry; it is decoded where more than its due time is shown."""
        place, is_aside = _place(root.source), self._is_aside(record.value)
        is_ordered = input_id_of(root.source) in self._ordered
        if not is_ordered and not is_replay(root.source):
            return _Waits(place, _origin(root), -1, due_ms_of(record, root), False, is_aside)
        try:
            due = whole_entry(record, root)
        except CodecError:
            # if its due time can be read, the root waits for that
            return _Waits(place, _origin(root), _copy(root), due_ms_of(record, root), False, is_aside)
        origin = due.origin if is_ordered else None
        blocked = due.last_was_blocked
        return _Waits(place, _origin(root, due), _copy(root), due.due_ms, blocked, is_aside, origin)

    def put(self, record: Record, root: Root, entry: _Waits) -> None:
        self.waiting[name_of(record)] = entry

    def end(self, record: Record, root: Root) -> None:
        self.waiting.pop(name_of(record), None)

    def note_flawed(self, record: Record, root: Root) -> None:
        """Show a root whose entry cannot be read, unless an entry beneath is shown.

        The next owner of the partition writes that one again, or makes a dead letter of the root.
        """
        unknown = _Waits(_place(root.source), _origin(root), _copy(root), 0, False)
        self.waiting.setdefault(name_of(record), unknown)


def _origin(root: Root, due: Due | None = None) -> int:
    """Return the offset of a root's record in its own topic; -1: unknown."""
    if not is_replay(root.source):
        return int(offset_of(root.position))
    place = parse_location(due.origin) if due is not None else None
    return -1 if place is None else place[2]


def _copy(root: Root) -> int:
    return int(offset_of(root.position)) if is_replay(root.source) else -1


def _lost(record: Record) -> list[_Waits]:
    """Return the lost roots of a verdict record, in order."""
    event = read_verdicts(record.value)
    if event is None:
        return []  # the replay worker reports it
    return [
        _Waits(_place(lost.source), _origin(root), _copy(root), 0, lost.error == HELD)
        for lost in event.lost
        for root in (Root(Source(lost.source), position) for position in positions(lost.positions).tolist())
    ]


def _place(source: int) -> Place:
    return input_id_of(source), partition_of(source)
