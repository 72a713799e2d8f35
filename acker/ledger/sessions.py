"""Who holds a group, what the group's sources are, and what time it is for a session.

Theory of operation. A `Take` makes its session the *holder* of the group as soon as it is read, so that the
lower session's inits and ticks are refused from there on; but it abandons, and is answered, only when it
*counts*. A tick counts likewise: when the contributions and fails that were in the log as it was read (the
*barrier*) have been applied. Ticks and takes wait in one line, in the order of the log::

    take, tick ──read──► line, no barrier ──ends asked──► line, with barrier ──positions reach it──► counts

Each session has its own clock, of two hands: `counted_ms` expires roots, `read_ms` is told in answers.

Source: docs/design/protocol.md, rules 8 and 9; section 4, "Order between the three topics", "Take and Taken"
and "Fine print".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from acker.identity import input_id_of
from acker.ledger.cohort import Session
from acker.ledger.pending_clock import Barrier, Line, Pending
from acker.wire.events import Take, TakeSource

UNTOLD_MS_MAX: Final = 1_000
"""A process of a session tells its clock before that has moved by more."""


class Standing(Enum):
    """What a session is to its group."""

    HOLDER = auto()
    LOWER = auto()
    HIGHER = auto()
    UNHELD = auto()


@dataclass(slots=True)
class Clock:
    """The clock of a session, ms: what counted, and what was read."""

    counted_ms: int
    read_ms: int


@dataclass(frozen=True, slots=True)
class KnownSource:
    """A source in its present generation, as the first `Take` of that generation named it."""

    group: str
    topic: str
    topic_id: str
    generation: int
    from_: int


@dataclass(slots=True)
class Group:
    """A group: its holder, and the clocks of the sessions that still matter."""

    holder: Session
    clocks: dict[Session, Clock] = field(default_factory=dict)


class Sessions:
    """All groups of one acker partition.

    Attributes:
        groups: by name.
        sources: what is known of each source, by its number.
        line: ticks and takes that do not count yet, in the order of the log.
    """

    def __init__(self, pending_ticks_max: int) -> None:
        """Begin without a group; at most `pending_ticks_max` ticks of a session wait in the line."""
        self._pending_ticks_max = pending_ticks_max
        self.groups: dict[str, Group] = {}
        self.sources: dict[int, KnownSource] = {}
        self.line = Line()
        self._topics: dict[int, str] = {}
        self._groups_of_inputs: dict[int, str] = {}

    # -- what is known

    def standing(self, session: Session) -> Standing:
        """Tell what a session is to its group."""
        group = self.groups.get(session.group)
        if group is None:
            return Standing.UNHELD
        if session == group.holder:
            return Standing.HOLDER
        return Standing.LOWER if session < group.holder else Standing.HIGHER

    def clock(self, session: Session) -> Clock:
        """Return the clock of a session; one at 0 for a session that never took."""
        group = self.groups.get(session.group)
        return group.clocks.get(session, Clock(0, 0)) if group else Clock(0, 0)

    def sources_of(self, group: str) -> list[tuple[int, KnownSource]]:
        """Return the sources that are known for a group, ascending."""
        return sorted((number, known) for number, known in self.sources.items() if known.group == group)

    def stranger(self, group: str, source: int, topic: str | None = None) -> str:
        """Tell how a source contradicts what is known of its input; empty if it does not.

        Args:
            group: the group that names the source.
            source: the source.
            topic: its topic; None where the record does not say.
        """
        known_group = self._groups_of_inputs.get(input_id_of(source), group)
        if known_group != group:
            return f"input {input_id_of(source)} is of group {known_group}, not of {group}"
        known_topic = self._topics.get(source >> 16, topic)
        if topic is not None and known_topic != topic:
            return f"input {input_id_of(source)} is topic {known_topic}, not {topic}"
        return ""

    # -- reading

    def learn(self, group: str, source: TakeSource) -> None:
        """Take note of a source, if it is the first of its generation."""
        known = self.sources.get(source.source)
        if known is None or source.generation > known.generation:
            self.know(
                source.source,
                KnownSource(group, source.topic, source.topic_id, source.generation, source.from_),
            )

    def know(self, source: int, known: KnownSource) -> None:
        """Set what is known of a source, as State has it."""
        self.sources[source] = known
        self._topics[source >> 16] = known.topic
        self._groups_of_inputs[input_id_of(source)] = known.group

    def objection(self, take: Take) -> str:
        """Return why the sources of a take contradict what is known, or each other; empty if not."""
        topics: dict[int, str] = {}
        for source in take.sources:
            found = self.stranger(take.group, source.source, source.topic)
            if found:
                return found
            if topics.setdefault(source.source >> 16, source.topic) != source.topic:
                return f"input {input_id_of(source.source)} is named with two topics"
        return ""

    def take(self, take: Take) -> list[Pending]:
        """Let a session that is not lower take its group; it waits in the line until it counts.

        Returns:
            The takes of lower sessions that it overtakes; they are out of the line and must be refused.
        """
        session = Session(take.group, take.epoch, take.session)
        group = self.groups.get(take.group)
        before_ms: int | None = None
        if group is None:
            before_ms = 0
            group = self.groups[take.group] = Group(session)
        elif group.holder != session:
            before_ms = self.clock(group.holder).read_ms
            group.holder = session
        group.clocks.setdefault(session, Clock(take.now, take.now))
        for source in take.sources:
            self.learn(take.group, source)
        waiting = [item for item in self.line if item.take and item.session.group == take.group]
        overtaken = [item for item in waiting if item.session < session]
        for item in overtaken:
            self.line.drop(item)
        self.line.append(Pending(session, 0, take=True, before_ms=before_ms))
        return overtaken

    def tick(self, session: Session, now_ms: int) -> None:
        """Let a tick of the holder wait in the line until it counts; the clock never falls."""
        clock = self.groups[session.group].clocks[session]
        clock.read_ms = max(clock.read_ms, now_ms)
        if self.line.ticks_of(session) >= self._pending_ticks_max:
            self.line.drop_last_tick(session)
        self.line.append(Pending(session, clock.read_ms))

    def emit(self, session: Session, now_ms: int) -> int:
        """Read the holder's clock off an init, and return by how much longer its roots may stay open, ms.

        Two processes of a session may live at once for some seconds, or one after the other. What the one
        with the slower clock emits has its whole timeout all the same, so the lag is added to it, and what
        the faster one has not told yet; and the one that comes next is not told a clock from before the
        last emission.
        """
        clock = self.groups[session.group].clocks[session]
        clock.read_ms = max(clock.read_ms, now_ms)
        behind_ms = clock.read_ms - now_ms
        return behind_ms + UNTOLD_MS_MAX if behind_ms else 0

    # -- counting

    def waits_for_ends(self) -> bool:
        """Tell whether something in the line has no barrier yet."""
        last = self.line.last
        return last is not None and last.barrier is None

    def set_barrier(self, barrier: Barrier) -> None:
        """Give what has no barrier yet the ends that were asked for after it was read."""
        for item in reversed(self.line):
            if item.barrier is not None:
                return
            item.barrier = barrier

    def counting(self, reached: Barrier) -> Iterator[Pending]:
        """Take out of the line, in order, what counts now that the given positions are applied."""
        while (first := self.line.first) is not None:
            barrier = first.barrier
            if barrier is None or barrier.ack > reached.ack or barrier.fail > reached.fail:
                return
            item = self.line.popleft()
            if not item.take:
                clock = self.groups[item.session.group].clocks[item.session]
                clock.counted_ms = max(clock.counted_ms, item.now_ms)
            yield item

    def forget(self, session: Session) -> None:
        """Drop the clock of a session that lost its group and has no open root any more."""
        group = self.groups[session.group]
        if session != group.holder:
            group.clocks.pop(session, None)
