"""Makes State from an acker partition, and an acker partition from State."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from acker.hot_paths import as_array
from acker.identity import I64
from acker.ledger.cohort import InitEmission, Pin, RootCohort, Session
from acker.ledger.ledger import Ledger
from acker.ledger.marks import LaneMark, Marks, SessionLane
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
    needs_acks = core.ledger.ack_pin()
    safe_offset = needs_acks.ack_pin.offset if needs_acks and needs_acks.ack_pin else core.ack_next
    core.ack_marks.advance(safe_offset)
    numbers = _Numbers()
    for group in core.sessions.groups.values():
        for session in (group.owner, *group.clocks):
            numbers.of_session(session)
    # these give sessions and emissions their numbers, so both lists are written behind them
    ranges = _ranges(core.ledger.cohorts(), numbers.emissions)
    acks = _lanes(core.ack_marks.safe, numbers)
    fails = _lanes(core.fail_marks, numbers)
    emissions = tuple([_emission(emission, numbers) for emission in numbers.emissions])
    pending = tuple(_pending(core.sessions.line, numbers.of_session))
    groups = core.sessions.groups
    return State(
        partition=core.partition,
        partitions=core.partitions,
        init=core.init_next,
        ack=core.ack_next,
        fail=core.fail_next,
        safe=safe_offset,
        verdict=_first_verdict_needed(core.ledger),
        sources=tuple([_source(core, source) for source in sorted(core.sessions.sources)]),
        sessions=tuple([_stored(session, groups.get(session.group)) for session in numbers.sessions]),
        pending=pending,
        acks=acks,
        fails=fails,
        emissions=emissions,
        ranges=pack_ranges(ranges),
    )


class _Numbers:
    """The numbers of sessions and emissions in a State: each is written once, in the order of its number."""

    def __init__(self) -> None:
        self.sessions: dict[Session, int] = {}
        self.emissions: dict[InitEmission, int] = {}

    def of_session(self, session: Session) -> int:
        return self.sessions.setdefault(session, len(self.sessions))


def _first_verdict_needed(ledger: Ledger) -> int:
    """Return the offset of the first verdict that a restart needs; see `not_needed_from` if it needs none."""
    needs_verdicts = ledger.verdict_pin()
    pins = (needs_verdicts and needs_verdicts.verdict_pin, ledger.ahead_pin)
    offsets = [pin.offset for pin in pins if pin]
    return min(offsets, default=not_needed_from(ledger.verdict_next.offset))


def _ranges(cohorts: Iterable[RootCohort], emission_numbers: dict[InitEmission, int]) -> list[StoredRange]:
    """Return the ranges, and give their emissions numbers; there may be a million of them in each State."""
    return [
        StoredRange(
            emission_numbers.setdefault(cohort.emission, len(emission_numbers)),
            cohort.roots.source,
            NO_BIN if cohort.bin is None else cohort.bin,
            cohort.roots.size,
            cohort.start,
            cohort.ack_from,
        )
        for cohort in cohorts
    ]


def _emission(emission: InitEmission, numbers: _Numbers) -> StoredEmission:
    return StoredEmission(
        numbers.of_session(emission.session),
        emission.topic,
        emission.topic_id,
        emission.at_ms,
        emission.wall_ms,
        emission.timeout_ms,
    )


def _lanes(marks: Marks, numbers: _Numbers) -> tuple[StoredLane, ...]:
    return tuple([_lane(numbers.of_session(lane.session), lane.name, mark) for lane, mark in marks.items()])


def _pending(line: Iterable[Pending], number: Callable[[Session], int]) -> Iterator[StoredPending]:
    for waiting in line:
        before_ms = RESTART if waiting.before_ms is None else waiting.before_ms
        yield StoredPending(number(waiting.session), waiting.take, waiting.now_ms, before_ms)


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
        touched_indices, deadlines_ms = cohort.touched()
        ranges.append(
            CarriedRange(
                cohort.roots.source,
                cohort.start,
                as_array(cohort.roots.open_at()).astype("<i4").tobytes(),
                cohort.roots.missing().astype("<u8", copy=False).tobytes(),
                touched_indices.astype("<i4").tobytes(),
                deadlines_ms.astype("<i8").tobytes(),
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
        generation = SourceGeneration(
            source.group, source.topic, source.topic_id, source.generation, source.from_
        )
        core.sessions.set_source(source.source, generation)
        core.ledger.set_watermark(source.source, source.next)
    for waiting in state.pending:
        before_ms = None if waiting.before == RESTART else waiting.before
        core.sessions.line.append(Pending(sessions[waiting.session], waiting.now, waiting.take, before_ms))
    for lane in state.acks:
        core.ack_marks.load(SessionLane(sessions[lane.session], lane.name), _mark(lane))
    for lane in state.fails:
        core.fail_marks.load(SessionLane(sessions[lane.session], lane.name), _mark(lane))
    _load_ranges(core, state, sessions, bins)


def _load_ranges(
    core: PartitionCore, state: State, sessions: Sequence[Session], bins: Mapping[int, Carried]
) -> None:
    emissions = [
        InitEmission(
            sessions[emission.session],
            emission.topic,
            emission.topic_id,
            emission.now,
            emission.wall,
            emission.timeout_ms,
        )
        for emission in state.emissions
    ]
    carried = {
        (carried_range.source, carried_range.start): carried_range
        for carried_bin in bins.values()
        for carried_range in carried_bin.ranges
    }
    for stored in unpack_ranges(state.ranges):
        roots = Roots(stored.source, stored.start, stored.size)
        if stored.bin != NO_BIN:
            carried_values = carried[stored.source, stored.start]
            roots.load(_int32(carried_values.at), np.frombuffer(carried_values.missing, "<u8"))
        cohort = core.ledger.adopt(roots, emissions[stored.emission], stored.ack_from)
        if stored.bin != NO_BIN:
            core.bins.load(stored.bin, cohort)
            deadlines_ms = np.frombuffer(carried_values.deadlines, "<i8")
            cohort.load_touched(_int32(carried_values.touched), deadlines_ms)


def load_deadlines(core: PartitionCore, deadlines_ms: Mapping[int, int]) -> None:
    """Set the moved deadlines of ranges, by their numbers in a State that was just loaded.

    Only a viewer needs it; a restart reads again what moved them.
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
