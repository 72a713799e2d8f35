"""Makes State from an acker partition, and an acker partition from State."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from acker.hot_paths import as_array
from acker.identity import I64
from acker.ledger.cohort import InitEmission, Pin, RootCohort, Session
from acker.ledger.marks import LaneMark, SessionLane
from acker.ledger.output import AckerEventKind
from acker.ledger.roots import Roots
from acker.ledger.sessions import Clock, Group, Pending, SourceGeneration
from acker.service.core import PartitionCore
from acker.service.state import (
    NO_BIN,
    RESTART,
    Carried,
    CarriedRange,
    State,
    StoredEmission,
    StoredLane,
    StoredPending,
    StoredRange,
    StoredSession,
    StoredSource,
    not_needed_from,
    pack_ranges,
    unpack_ranges,
)


def carry(core: PartitionCore) -> None:
    """Move into bins the cohorts for which a restart would have to read more of a log than it may."""
    limit = core.limits.refold_bytes
    ledger = core.ledger
    carried: list[RootCohort] = []
    while (cohort := ledger.ack_pin()) and _age(cohort.ack_pin, core.ack_bytes) > limit:
        carried.append(_carry(core, cohort))
    while (cohort := ledger.verdict_pin()) and _age(cohort.verdict_pin, ledger.verdict_next.bytes) > limit:
        carried.append(_carry(core, cohort))
    if carried:
        oldest, count = carried[0], sum(cohort.roots.open for cohort in carried)
        text = (
            f"{count} open roots are carried in State, since what they need of a log is more than {limit}"
            f" bytes back: {len(carried)} ranges, the first of source {oldest.roots.source} from"
            f" {oldest.start}"
        )
        core.outbox.report(AckerEventKind.CARRIED, text)


def _age(pin: Pin | None, now: int) -> int:
    return now - pin.bytes if pin else 0


def _carry(core: PartitionCore, cohort: RootCohort) -> RootCohort:
    core.bins.put(cohort)
    core.ledger.changed(cohort)
    core.ledger.counts.carried += 1
    return cohort


def state_of(core: PartitionCore) -> State:
    """Take a snapshot, and move the safe position of the contributions forward as far as possible.

    State has each session and emission once; the others name it by its number.
    """
    pinned, judged = core.ledger.ack_pin(), core.ledger.verdict_pin()
    safe = pinned.ack_pin.offset if pinned and pinned.ack_pin else core.ack_next
    own = not_needed_from(core.ledger.verdict_next.offset)
    floors = [pin.offset for pin in (judged and judged.verdict_pin, core.ledger.ahead_pin) if pin]
    verdict = min(floors, default=own)
    core.ack_marks.advance(safe)
    groups = core.sessions.groups
    sessions: dict[Session, int] = {}
    emissions: dict[InitEmission, int] = {}

    def number(session: Session) -> int:
        return sessions.setdefault(session, len(sessions))

    for group in groups.values():
        for session in (group.owner, *group.clocks):
            number(session)
    ranges = [
        StoredRange(
            emissions.setdefault(cohort.emission, len(emissions)),
            cohort.roots.source,
            NO_BIN if cohort.bin is None else cohort.bin,
            cohort.roots.size,
            cohort.start,
            cohort.ack_from,
        )
        for cohort in core.ledger.cohorts()
    ]
    acks, fails = (
        tuple(_lane(number(lane.session), lane.name, mark) for lane, mark in marks.items())
        for marks in (core.ack_marks.safe, core.fail_marks)
    )
    stored_emissions = tuple(
        StoredEmission(number(e.session), e.topic, e.topic_id, e.at_ms, e.wall_ms, e.timeout_ms)
        for e in emissions
    )
    pending = tuple(_pending(core.sessions.line, number))
    return State(
        core.partition,
        core.partitions,
        core.init_next,
        core.ack_next,
        core.fail_next,
        safe,
        verdict,
        tuple(_source(core, source) for source in sorted(core.sessions.sources)),
        tuple(_stored(session, groups.get(session.group)) for session in sessions),
        pending,
        acks,
        fails,
        stored_emissions,
        pack_ranges(ranges),
    )


def _pending(line: Iterable[Pending], number: Callable[[Session], int]) -> Iterator[StoredPending]:
    for item in line:
        before_ms = RESTART if item.before_ms is None else item.before_ms
        yield StoredPending(number(item.session), item.take, item.now_ms, before_ms)


def _source(core: PartitionCore, source: int) -> StoredSource:
    entry, end = core.sessions.sources[source], core.ledger.watermark(source)
    return StoredSource(source, entry.group, entry.topic, entry.topic_id, entry.generation, entry.from_, end)


def _stored(session: Session, group: Group | None) -> StoredSession:
    clock = group.clocks.get(session) if group else None
    holds = group is not None and group.owner == session
    hands = (clock.counted_ms, clock.read_ms) if clock else (0, 0)
    return StoredSession(session.group, session.epoch, session.id, holds, clock is not None, *hands)


def _lane(session: int, name: str, mark: LaneMark) -> StoredLane:
    return StoredLane(
        session,
        name,
        mark.seq,
        np.array([source for source, _ in mark.applied], "<i4").tobytes(),
        np.array([block for _, block in mark.applied], "<i8").tobytes(),
        np.array(list(mark.applied.values()), "<u4").tobytes(),
    )


def carried_of(cohorts: Iterable[RootCohort]) -> Carried:
    """Take a snapshot of the cohorts of a bin."""
    ranges = []
    for cohort in cohorts:
        at, later_ms = cohort.touched()
        ranges.append(
            CarriedRange(
                cohort.roots.source,
                cohort.start,
                as_array(cohort.roots.open_at()).astype("<i4").tobytes(),
                cohort.roots.missing().astype("<u8", copy=False).tobytes(),
                at.astype("<i4").tobytes(),
                later_ms.astype("<i8").tobytes(),
            )
        )
    return Carried(tuple(ranges))


def load_state(core: PartitionCore, state: State, bins: Mapping[int, Carried]) -> None:
    """Load a State, with its bins, into a new core; contributions and verdicts must still be read again."""
    core.init_next, core.ack_next, core.fail_next = state.init, state.ack, state.fail
    sessions = [Session(stored.group, stored.epoch, stored.session) for stored in state.sessions]
    for session, stored in zip(sessions, state.sessions, strict=True):
        if stored.holds:
            core.sessions.groups[session.group] = Group(session)
    for session, stored in zip(sessions, state.sessions, strict=True):
        if stored.timed:
            core.sessions.groups[session.group].clocks[session] = Clock(stored.counted, stored.read)
    for source in state.sources:
        entry = SourceGeneration(source.group, source.topic, source.topic_id, source.generation, source.from_)
        core.sessions.set_source(source.source, entry)
        core.ledger.set_watermark(source.source, source.next)
    for item in state.pending:
        before_ms = None if item.before == RESTART else item.before
        core.sessions.line.append(Pending(sessions[item.session], item.now, item.take, before_ms))
    for lane in state.acks:
        core.ack_marks.load(SessionLane(sessions[lane.session], lane.name), _mark(lane))
    for lane in state.fails:
        core.fail_marks.load(SessionLane(sessions[lane.session], lane.name), _mark(lane))
    _load_ranges(core, state, sessions, bins)


def _load_ranges(
    core: PartitionCore, state: State, sessions: Sequence[Session], bins: Mapping[int, Carried]
) -> None:
    emissions = [
        InitEmission(sessions[e.session], e.topic, e.topic_id, e.now, e.wall, e.timeout_ms)
        for e in state.emissions
    ]
    carried = {(r.source, r.start): r for one in bins.values() for r in one.ranges}
    for stored in unpack_ranges(state.ranges):
        roots = Roots(stored.source, stored.start, stored.size)
        if stored.bin != NO_BIN:
            values = carried[stored.source, stored.start]
            roots.load(_int32(values.at), np.frombuffer(values.missing, "<u8"))
        cohort = core.ledger.adopt(roots, emissions[stored.emission], stored.ack_from)
        if stored.bin != NO_BIN:
            core.bins.load(stored.bin, cohort)
            cohort.load_touched(_int32(values.touched), np.frombuffer(values.deadlines, "<i8"))


def load_deadlines(core: PartitionCore, deadlines_ms: Mapping[int, int]) -> None:
    """Set the moved deadlines of ranges, by their numbers in a State that was just loaded.

    Who only looks needs it; a restart reads again what moved them.
    """
    for number, cohort in enumerate(core.ledger.cohorts()):
        if number in deadlines_ms and cohort.bin is None:
            cohort.deadline_ms = max(cohort.deadline_ms, deadlines_ms[number])


def _int32(packed: bytes) -> I64:
    return np.frombuffer(packed, "<i4").astype(np.int64)


def _mark(lane: StoredLane) -> LaneMark:
    sources = np.frombuffer(lane.sources, "<i4").tolist()
    blocks = np.frombuffer(lane.blocks, "<i8").tolist()
    crcs = np.frombuffer(lane.crcs, "<u4").tolist()
    return LaneMark(lane.seq, dict(zip(zip(sources, blocks, strict=True), crcs, strict=True)))
