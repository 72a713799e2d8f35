"""Which session owns a group, which sources the group has, and what each session's clock shows.

Theory of operation. A `Take` makes its session the owner of the group (`Group.owner`) as soon as
it is read: from then on the inits and ticks of lower sessions are refused. But only when the take
*counts* are the roots of lower sessions abandoned, and the take answered. A take or tick counts
when all contributions and fails that were in the log when it was read have been applied; the ends
of these logs are its *barrier*. Until then takes and ticks wait in one queue, in the order of the
log::

    take, tick ──read──► queued, no barrier ──ends fetched──► queued, barrier ──both ends applied──► counts

An acker that was down for long reads a day's ticks of every group at once. So no operation of the
queue may become slower when more items wait: whatever is added, counted or dropped is found without
a search.

The clock of a session has two values: `counted_ms` expires roots, `read_ms` goes into answers.

Source: docs/design/protocol.md, rules 8 and 9; section 4, "Order between the three topics", "Take
and Taken" and "Fine print".
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple

from acker.identity import generation_of, input_id_of, offset_of, position_at
from acker.ledger.cohort import Session
from acker.wire.checks import wrong_epoch
from acker.wire.events import Take, TakeSource


class Barrier(NamedTuple):
    """The end offsets of ``_ack_ack`` and ``_ack_fail``, fetched after a record of ``_ack_init`` was read."""

    ack: int
    fail: int


@dataclass(slots=True, eq=False)
class QueuedTick:
    """A tick or take that was read and does not count yet.

    Attributes:
        now_ms: the time in the tick; 0 for a take.
        former_clock_ms: for a take that changes the owner, what the clock of the former owner
            showed, 0 without a former owner. None for a tick, and for a take of a session that
            owned the group already: it has restarted.
        barrier: the offsets below which all must be applied first; None until the ends were
            fetched.
    """

    session: Session
    now_ms: int
    is_take: bool = False
    former_clock_ms: int | None = None
    barrier: Barrier | None = None


class TickQueue(OrderedDict[QueuedTick, None]):
    """Ticks and takes that wait, as keys. Those without a barrier are always the last ones."""

    def __init__(self) -> None:
        """Begin with an empty queue."""
        super().__init__()
        # by (session, whether they are takes): those that wait, in the order of the queue
        self._waiting_by_session_and_kind: dict[tuple[Session, bool], deque[QueuedTick]] = {}

    def append(self, queued: QueuedTick) -> None:
        """Add a tick or take at the end."""
        self[queued] = None
        self._waiting_by_session_and_kind.setdefault((queued.session, queued.is_take), deque()).append(queued)

    def append_tick(self, tick: QueuedTick, ticks_max: int) -> None:
        """Add a tick at the end.

        If `ticks_max` of its session wait already, it replaces the last of them.
        """
        ticks = self._waiting_by_session_and_kind.get((tick.session, False))
        if ticks and len(ticks) >= ticks_max:
            del self[ticks.pop()]
        self.append(tick)

    def pop_oldest(self) -> QueuedTick:
        """Remove and return what has waited longest."""
        queued, _ = self.popitem(last=False)
        session_and_kind = (queued.session, queued.is_take)
        waiting = self._waiting_by_session_and_kind[session_and_kind]
        # it is the same tick or take: of its session and kind it was the first, too
        waiting.popleft()
        if not waiting:
            del self._waiting_by_session_and_kind[session_and_kind]
        return queued

    def withdraw_takes(self, session: Session) -> Iterable[QueuedTick]:
        """Remove from the queue and return the takes of a session, in their order."""
        takes = self._waiting_by_session_and_kind.pop((session, True), ())
        for take in takes:
            del self[take]
        return takes


UNSENT_MS_MAX: Final = 1_000
"""A process of a session sends its clock again before the clock has moved on by more than so many ms."""

SIBLING_MS: Final = 10_000
"""The former process may be alive for so long after a restart: Spark ends it within seconds."""


GENERATION_STEP_MAX: Final = 16
"""A take may raise a generation by so many. A rewind raises it by one; where some rewinds died
before they had reached every acker partition, the next session spreads them all."""

GENERATION_FIRST_MAX: Final = 1_024
"""A source that nobody has named yet may begin in a generation up to this: its group was rewound
so often under another `topic_prefix`."""

NO_ROOM: Final = " in this acker partition; `windhover acker free --group` makes room"

CLAIMED: Final = "is of group"
"""Part of the text for an input id that another group has."""

FREE: Final = ""
"""The group of a source that nobody has: the next take that names it has it.

No session's group is empty.
"""


class SessionRank(Enum):
    """How a session compares with the owner of its group."""

    OWNER = auto()
    """It is the owner."""
    LOWER = auto()
    HIGHER = auto()
    NO_OWNER = auto()
    """Nobody owns the group."""


@dataclass(slots=True)
class Clock:
    """The clock of a session.

    Attributes:
        counted_ms: the latest time that counts: it expires roots.
        read_ms: the latest time that was read; it goes into answers.
        shared_until_ms: what `read_ms` shows when a second process of the session can no longer
            live; None: it never had a second one.
    """

    counted_ms: int
    read_ms: int
    shared_until_ms: int | None = None

    @property
    def is_shared(self) -> bool:
        """Whether another process of the session may live, with a clock of its own."""
        return self.shared_until_ms is not None and self.read_ms < self.shared_until_ms


@dataclass(frozen=True, slots=True)
class SourceGeneration:
    """A source in its present generation, as the first `Take` of that generation describes it.

    `from_` is the first position that its session reads.
    """

    group: str
    topic: str
    topic_id: str
    generation: int
    from_: int


@dataclass(slots=True)
class Group:
    """A group: the session that owns it, and the clocks of its sessions that still matter."""

    owner: Session
    clocks: dict[Session, Clock] = field(default_factory=dict)


class Sessions:
    """All groups of one acker partition.

    Attributes:
        groups: by name; one that no session ever took is missing.
        sources: by number, those that a take named.
        queue: the ticks and takes that do not count yet, in the order of the log.
    """

    def __init__(self, pending_ticks_max: int, sources_max: int = 1 << 31, groups_max: int = 1 << 31) -> None:
        """Begin with nothing read; further sources and groups than the limits allow are refused."""
        self._pending_ticks_max = pending_ticks_max
        self._sources_max = sources_max
        self._groups_max = groups_max
        self.groups: dict[str, Group] = {}
        self.sources: dict[int, SourceGeneration] = {}
        self.queue = TickQueue()
        # By the upper half of a source, its *wire id*: of an input's own topic and of its replay
        # topic these differ. The first source that named a topic counts, as that which named a
        # group.
        self._topic_by_wire_id: dict[int, str] = {}
        self._group_by_input_id: dict[int, str] = {}

    # -- groups and sources

    def rank(self, session: Session, written_ms: int | None = None) -> SessionRank:
        """Compare a session with the owner of its group.

        `written_ms` is the time of its take's record; None: it is no take. An owner whose epoch no
        session can have by then comes from a wrong record, and the session of any take is higher.
        """
        group = self.groups.get(session.group)
        if group is None:
            return SessionRank.NO_OWNER
        if session == group.owner:
            return SessionRank.OWNER
        if written_ms is not None and wrong_epoch(group.owner.epoch, written_ms):
            return SessionRank.HIGHER
        return SessionRank.LOWER if session < group.owner else SessionRank.HIGHER

    def clock(self, session: Session) -> Clock:
        """Return the clock of a session.

        Of a session whose `Take` was never read it shows 0.
        """
        group = self.groups.get(session.group)
        return group.clocks.get(session, Clock(0, 0)) if group else Clock(0, 0)

    def has_clock(self, session: Session) -> bool:
        """Return whether a session may have roots: it took its group, and no counted take has ended it."""
        group = self.groups.get(session.group)
        return group is not None and session in group.clocks

    def sources_of(self, group: str) -> list[tuple[int, SourceGeneration]]:
        """Return the sources of a group with their numbers, ascending."""
        return sorted(
            (number, source_generation)
            for number, source_generation in self.sources.items()
            if source_generation.group == group
        )

    def contradiction(self, group: str, source: int, topic: str | None = None) -> str:
        """Return how a record contradicts earlier ones about the input of a source.

        Empty if it does not. Either another group has the input, or it is another topic's.
        `group` is the one in the record; `topic` is None if the record does not contain it.
        """
        # without an earlier record about the input, what this one says agrees with itself
        group_of_input = self._group_by_input_id.get(input_id_of(source), group)
        if group_of_input != group:
            return f"input {input_id_of(source)} {CLAIMED} {group_of_input}, not of {group}"
        topic_of_wire_id = self._topic_by_wire_id.get(_wire_id(source), topic)
        if topic is not None and topic_of_wire_id != topic:
            return f"input {input_id_of(source)} is topic {topic_of_wire_id}, not {topic}"
        return ""

    # -- reading

    def add_source(self, group: str, source: TakeSource) -> None:
        """Keep what a take says of a source if it is the first of its generation; else ignore it.

        A source that was freed (group `FREE`) goes on in the generation that `free_sources` kept,
        at the offset in the take, even if the take has a lower generation: the positions of lower
        generations may be initialised.
        """
        stored = self.sources.get(source.source)
        was_freed = stored is not None and stored.group == FREE
        # unlisted, or a higher generation than the stored one: the take decides
        if stored is None or source.generation > stored.generation:
            generation, from_position = source.generation, source.from_
        elif was_freed:  # in the generation that was kept, from the offset that the taker names
            generation = stored.generation
            from_position = position_at(generation, offset_of(source.from_))
        else:  # no new generation, mostly a restart of its session: what is stored counts
            return
        source_generation = SourceGeneration(group, source.topic, source.topic_id, generation, from_position)
        self.set_source(source.source, source_generation)

    def set_source(self, source: int, source_generation: SourceGeneration) -> None:
        """Set what is stored of a source, from a `Take` or from State."""
        self.sources[source] = source_generation
        if source_generation.group != FREE:  # nobody has the input of a free one
            self._topic_by_wire_id[_wire_id(source)] = source_generation.topic
            self._group_by_input_id[input_id_of(source)] = source_generation.group

    def free_sources(self, sources: Iterable[int], generation_by_source: Mapping[int, int]) -> None:
        """Take sources from the group that has them; whichever group takes them next gets them.

        Args:
            sources: all of one input.
            generation_by_source: the sources of which some acker partition has initialised
                positions, each with the generation in which it goes on. It is kept, since
                positions only rise. Sources that are not here are forgotten.
        """
        for source in sources:
            self.sources.pop(source, None)
            self._topic_by_wire_id.pop(_wire_id(source), None)
            self._group_by_input_id.pop(input_id_of(source), None)
            generation = generation_by_source.get(source)
            if generation is not None:
                freed = SourceGeneration(
                    group=FREE,
                    topic="",
                    topic_id="",
                    generation=generation,
                    from_=position_at(generation, 0),
                )
                self.set_source(source, freed)

    def forget_group(self, name: str) -> None:
        """Remove a group, and its queued ticks and takes.

        It must have no source and no open root.
        """
        remaining = [queued for queued in self.queue if queued.session.group != name]
        self.queue = TickQueue()
        for queued in remaining:
            self.queue.append(queued)
        self.groups.pop(name, None)

    def objection_to(self, take: Take) -> str:
        """Return why a take is refused whichever session sends it; empty if it is not.

        Its sources contradict earlier records or each other, or jump over generations; or there is
        no room.
        """
        # by the id that the wire has for an input, or for its replay topic
        topic_by_wire_id: dict[int, str] = {}
        new_source_count = 0
        for source in take.sources:
            flaw = self.contradiction(take.group, source.source, source.topic)
            flaw = flaw or self._wrong_generation(source)
            if flaw:
                return flaw
            wire_id = _wire_id(source.source)
            if topic_by_wire_id.setdefault(wire_id, source.topic) != source.topic:
                return f"input {input_id_of(source.source)} is named with two topics"
            if source.source not in self.sources:
                new_source_count += 1
        if new_source_count and len(self.sources) + new_source_count > self._sources_max:
            return f"more than {self._sources_max:,} sources{NO_ROOM}"
        if take.group not in self.groups and len(self.groups) >= self._groups_max:
            return f"more than {self._groups_max:,} groups{NO_ROOM}"
        return ""

    def _wrong_generation(self, source: TakeSource) -> str:
        """Return what is wrong with the generation that a take names for a source.

        Empty: nothing is. A rewind leads to one of the next few generations, and its first
        position is of that one.
        """
        stored = self.sources.get(source.source)
        if stored is not None and source.generation <= stored.generation:
            return ""  # no new generation: then what is stored counts, and the take's is ignored
        highest = GENERATION_FIRST_MAX if stored is None else stored.generation + GENERATION_STEP_MAX
        if source.generation > highest:
            return (
                f"source {source.source} may go to generation {highest} now, and not to {source.generation}"
            )
        if generation_of(source.from_) != source.generation:
            return f"generation {source.generation} of source {source.source} cannot begin at {source.from_}"
        return ""

    def record_take(self, take: Take) -> Iterable[QueuedTick]:
        """Make the session of a take the owner of its group, and queue the take.

        The session must not be lower than the owner. Only takes of the owner may wait: those of the
        former owner are removed from the queue and returned, so that the caller refuses them.
        """
        session = Session(take.group, take.epoch, take.session)
        group = self.groups.get(take.group)
        # what the clock of the former owner shows: 0 without one, None for a restart of the session
        former_clock_ms: int | None = None
        withdrawn_takes: Iterable[QueuedTick] = ()
        if group is None:  # nobody owned it
            former_clock_ms = 0
            group = self.groups[take.group] = Group(session)
        elif group.owner != session:
            former_clock_ms = self.clock(group.owner).read_ms
            withdrawn_takes = self.queue.withdraw_takes(group.owner)
            group.owner = session
        else:
            # The same session again: perhaps by a process that has just begun, beside one that
            # still lives.
            clock = group.clocks[session]
            clock.shared_until_ms = clock.read_ms + SIBLING_MS
        # a session that had a clock keeps it: it never goes back
        group.clocks.setdefault(session, Clock(take.now, take.now))
        for source in take.sources:
            self.add_source(take.group, source)
        self.queue.append(QueuedTick(session, now_ms=0, is_take=True, former_clock_ms=former_clock_ms))
        return withdrawn_takes

    def record_tick(self, session: Session, tick_ms: int) -> None:
        """Move the session's clock (`read_ms`) on to the time in its tick, and queue the tick.

        Roots expire when it counts. A clock never goes back, so a lower tick is queued with
        `read_ms`. If `pending_ticks_max` ticks of the session wait already, this one replaces
        the last of them.
        """
        clock = self.groups[session.group].clocks[session]
        clock.read_ms = max(clock.read_ms, tick_ms)
        self.queue.append_tick(QueuedTick(session, clock.read_ms), self._pending_ticks_max)

    def record_init_clock(self, session: Session, init_ms: int) -> int:
        """Move the session's clock (`read_ms`) on to the time in an init (`init_ms`).

        Returns the grace of the init's roots: how many ms to add to their timeout. For some
        seconds two processes of one session may run at once, with different clocks, and the
        higher of the two clocks expires the roots of both. So what one process emits must get
        its whole timeout by the clock of the other,
        which stands at most `UNSENT_MS_MAX` above the highest clock that was read before.
        Example: one process sent 5,000; the other emits at 5,200. The first one's next tick may
        say 6,000 a moment later, so the root gets 800 ms more.

        `read_ms` moves on as well, so that the next process of the session does not start with a
        clock from before the last emission.
        """
        clock = self.groups[session.group].clocks[session]
        # A clock below the highest one that was read is that of another process, with or without a
        # take.
        # `is_shared`: after a take of the same session, for `SIBLING_MS`.
        has_another_process = clock.is_shared or init_ms < clock.read_ms
        grace_ms = max(0, clock.read_ms + UNSENT_MS_MAX - init_ms) if has_another_process else 0
        clock.read_ms = max(clock.read_ms, init_ms)
        return grace_ms

    def shared_until_ms(self) -> dict[Session, int]:
        """Return the sessions of which two processes may live, each with the clock at which that ends."""
        until_ms_by_session: dict[Session, int] = {}
        for group in self.groups.values():
            for session, clock in group.clocks.items():
                # `is_shared` implies the second, which the types do not know
                if clock.is_shared and clock.shared_until_ms is not None:
                    until_ms_by_session[session] = clock.shared_until_ms
        return until_ms_by_session

    def set_shared_until(self, session: Session, until_ms: int) -> None:
        """Set, after a restore, until when two processes of a session may live."""
        group = self.groups.get(session.group)
        if group is not None and session in group.clocks:
            group.clocks[session].shared_until_ms = until_ms

    # -- counting

    def lacks_barrier(self) -> bool:
        """Return whether a queued tick or take has no barrier yet."""
        newest = next(reversed(self.queue), None)
        return newest is not None and newest.barrier is None

    def set_barrier(self, barrier: Barrier) -> None:
        """Set the barrier of the ticks and takes that have none yet: ends fetched after these
        were read.
        """
        for queued in reversed(self.queue):
            if queued.barrier is not None:  # those before it have one, too
                return
            queued.barrier = barrier

    def pop_reached(self, reached: Barrier) -> Iterator[QueuedTick]:
        """Remove from the queue and yield, in order, the ticks and takes whose barrier is reached.

        A barrier is the offsets of acks and fails below which all must be applied first;
        `reached` is those below which all are applied now. A tick moves `counted_ms` of its
        session's clock before it is yielded.
        """
        while (oldest := next(iter(self.queue), None)) is not None:
            barrier = oldest.barrier
            if barrier is None or barrier.ack > reached.ack or barrier.fail > reached.fail:
                return
            queued = self.queue.pop_oldest()
            if not queued.is_take:
                clock = self.groups[queued.session.group].clocks[queued.session]
                clock.counted_ms = max(clock.counted_ms, queued.now_ms)
            yield queued

    def forget(self, session: Session) -> None:
        """Remove the clock of a session that lost its group and has no open roots any more."""
        group = self.groups[session.group]
        if session != group.owner:
            group.clocks.pop(session, None)


def _wire_id(source: int) -> int:
    """Return the upper half of a source: an input's id, or the higher one of its replay topic."""
    return source >> 16
