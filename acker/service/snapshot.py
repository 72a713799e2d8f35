"""Makes State from an acker partition, and an acker partition from State.

A *range* of State is a *cohort* of the ledger: the roots of one init in one block of positions. It
is *carried* if a *bin* of State, a record beside it, has the values of its roots. Else it is
*pinned*: a restart needs the contributions and verdicts of its roots, and reads the logs again from
the oldest of them on. Its *pins* are the places of these, by offset and by the bytes before it.

A *lane* is one query of one session, as a writer of numbered batches; its *mark* says which records
of the last batch were applied.

Names that begin with `Stored` are the rows of State: their fields are those of the wire's schema.
"""

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
from acker.ledger.sessions import Clock, Group, QueuedTick, SourceGeneration
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


def carry_old_cohorts(core: PartitionCore) -> None:
    """Put into bins of State the cohorts for which a restart would have to read more of a log
    than it may.

    A bin has the XOR values of their roots, so a restart needs nothing of the
    logs for them. If there are any, an event reports it.
    """
    bytes_max = core.limits.refold_bytes
    ledger = core.ledger
    carried_cohorts: list[RootCohort] = []
    # The pin of a cohort is the place of the first record that a restart
    # needs for it. A cohort in a bin needs none, so each call returns another
    # one: the one whose pin is the oldest by then.
    # 1. those whose first contribution is too far back
    cohort = ledger.oldest_ack_pinned()
    while cohort is not None and _bytes_since(cohort.ack_pin, core.ack_bytes) > bytes_max:
        _carry_cohort(core, cohort)
        carried_cohorts.append(cohort)
        cohort = ledger.oldest_ack_pinned()
    # 2. those whose first verdict is too far back
    verdict_bytes = ledger.verdict_end_pin.bytes
    cohort = ledger.oldest_verdict_pinned()
    while cohort is not None and _bytes_since(cohort.verdict_pin, verdict_bytes) > bytes_max:
        _carry_cohort(core, cohort)
        carried_cohorts.append(cohort)
        cohort = ledger.oldest_verdict_pinned()
    if carried_cohorts:
        oldest = carried_cohorts[0]
        root_count = sum(cohort.roots.open_count for cohort in carried_cohorts)
        text = (
            f"{root_count} open roots are carried in State, since what they need of a log is more than"
            f" {bytes_max} bytes back: {len(carried_cohorts)} ranges, the first of source"
            f" {oldest.roots.source} from {oldest.start}"
        )
        core.outbox.report(AckerEventKind.CARRIED, text)


def _bytes_since(pin: Pin | None, end_bytes: int) -> int:
    """Return how many bytes a log has from a pin to its end, `end_bytes`; 0 without a pin."""
    return end_bytes - pin.bytes if pin else 0


def _carry_cohort(core: PartitionCore, cohort: RootCohort) -> None:
    """Put a cohort into a bin, which this step writes."""
    core.bins.add(cohort)
    core.ledger.mark_bin_changed(cohort)
    core.ledger.counts.carried += 1


def take_snapshot(core: PartitionCore) -> State:
    """Return the State of an acker partition; this also moves the marks of contributions forward.

    State has each session and emission once; its other parts name them by
    their numbers.
    """
    # A restart reads contributions again from `safe_offset` on: that is the
    # first one to a root that is open and in no bin, or where reading is now.
    pinned_cohort = core.ledger.oldest_ack_pinned()
    safe_offset = core.ack_next
    if pinned_cohort and pinned_cohort.ack_pin:
        safe_offset = pinned_cohort.ack_pin.offset
    # The marks say which records were applied. State has them as they were
    # before `safe_offset`, or a restart would take what it reads again for
    # repeats. Fails are not read again, so their marks are those of now.
    core.ack_marks.move_safe_position(safe_offset)
    # owners and sessions with a clock get the first numbers
    numbers = _Numbers()
    for group in core.sessions.groups.values():
        for session in (group.owner, *group.clocks):
            numbers.number_session(session)
    # Ranges and lanes give numbers to further sessions and emissions. So the
    # lists of emissions and sessions are made after them, in this order.
    ranges = _stored_ranges(core.ledger.cohorts(), numbers.emissions)
    acks = _stored_lanes(core.ack_marks.safe, numbers)
    fails = _stored_lanes(core.fail_marks, numbers)
    emissions = tuple([_stored_emission(emission, numbers) for emission in numbers.emissions])
    queued_ticks = tuple(_stored_ticks(core.sessions.queue, numbers.number_session))
    groups = core.sessions.groups
    return State(
        partition=core.partition,
        partitions=core.partitions,
        init=core.init_next,
        ack=core.ack_next,
        fail=core.fail_next,
        safe=safe_offset,
        verdict=_first_verdict_needed(core.ledger),
        sources=tuple([_stored_source(core, source) for source in sorted(core.sessions.sources)]),
        sessions=tuple([_stored_session(session, groups.get(session.group)) for session in numbers.sessions]),
        pending=queued_ticks,
        acks=acks,
        fails=fails,
        emissions=emissions,
        ranges=pack_ranges(ranges),
    )


class _Numbers:
    """The numbers of sessions and emissions in a State, 0, 1, 2 ...: they are written in this order."""

    def __init__(self) -> None:
        """Begin with no session and no emission."""
        self.sessions: dict[Session, int] = {}
        self.emissions: dict[InitEmission, int] = {}

    def number_session(self, session: Session) -> int:
        """Return the number of a session; one that has none gets the next."""
        return self.sessions.setdefault(session, len(self.sessions))


def _first_verdict_needed(ledger: Ledger) -> int:
    """Return the offset of the first verdict that a restart needs.

    If it needs none: -2 minus the end of the verdict log, a negative number that
    State.verdict has then.
    """
    pinned_cohort = ledger.oldest_verdict_pinned()
    # of verdicts before their inits (None: there are none), and of cohorts with a verdict
    pins = [ledger.first_pin_without_init]
    if pinned_cohort:
        pins.append(pinned_cohort.verdict_pin)
    offsets = [pin.offset for pin in pins if pin]
    return min(offsets, default=not_needed_from(ledger.verdict_end_pin.offset))


def _stored_ranges(
    cohorts: Iterable[RootCohort], emission_numbers: dict[InitEmission, int]
) -> list[StoredRange]:
    """Return the cohorts as the ranges of State; an emission without a number gets the next one.

    `emission_numbers` gets an entry for each such emission. A State may have a million ranges:
    a comprehension, and arguments by place, are faster.
    """
    # the fields of `StoredRange`, in order: emission, source, bin, size, start, ack_from
    return [
        StoredRange(
            emission_numbers.setdefault(cohort.emission, len(emission_numbers)),
            cohort.roots.source,
            NO_BIN if cohort.bin_number is None else cohort.bin_number,
            cohort.roots.size,  # how many positions, open or settled
            cohort.start,
            cohort.ack_from,
        )
        for cohort in cohorts
    ]


def _stored_emission(emission: InitEmission, numbers: _Numbers) -> StoredEmission:
    """Return an emission as State has it; its session gets a number if it has none yet."""
    return StoredEmission(
        session=numbers.number_session(emission.session),
        topic=emission.topic,
        topic_id=emission.topic_id,
        now=emission.at_ms,
        wall=emission.wall_ms,
        timeout_ms=emission.timeout_ms,
    )


def _stored_lanes(marks: Marks, numbers: _Numbers) -> tuple[StoredLane, ...]:
    """Return the marks of lanes as State has them; a session without a number gets the next one."""
    stored_lanes: list[StoredLane] = []
    for lane, mark in marks.items():
        session_number = numbers.number_session(lane.session)
        stored_lanes.append(_stored_lane(session_number, lane.name, mark))
    return tuple(stored_lanes)


def _stored_ticks(
    queue: Iterable[QueuedTick], number_session: Callable[[Session], int]
) -> Iterator[StoredPending]:
    """Yield the ticks and takes that do not count yet, each with the number of its session."""
    for queued in queue:
        former_clock_ms = RESTART if queued.former_clock_ms is None else queued.former_clock_ms
        yield StoredPending(
            session=number_session(queued.session),
            take=queued.is_take,
            now=queued.now_ms,
            before=former_clock_ms,
        )


def _stored_source(core: PartitionCore, source: int) -> StoredSource:
    """Return a source, by its number, as State has it.

    That has the first position that its session reads (`from_`), and its watermark (`next`).
    """
    source_generation = core.sessions.sources[source]
    return StoredSource(
        source=source,
        group=source_generation.group,
        topic=source_generation.topic,
        topic_id=source_generation.topic_id,
        generation=source_generation.generation,
        from_=source_generation.from_,
        next=core.ledger.watermark(source),
    )


def _stored_session(session: Session, group: Group | None) -> StoredSession:
    """Return a session as State has it.

    `group` is what is stored of its group; None: nobody owns that.
    """
    clock = group.clocks.get(session) if group else None
    return StoredSession(
        group=session.group,
        epoch=session.epoch,
        session=session.id,
        holds=group is not None and group.owner == session,  # whether it owns its group
        timed=clock is not None,  # whether it has a clock
        counted=clock.counted_ms if clock else 0,  # ms, by the ticks that count
        read=clock.read_ms if clock else 0,  # ms, by all that were read
    )


def _stored_lane(session_number: int, name: str, mark: LaneMark) -> StoredLane:
    """Return the mark of a lane, by its name and the number of its session, as State has it.

    The mark says which records of the lane's last batch were applied.
    """
    # three columns of one length: source, block, and CRC-32 of each of these
    # records
    sources = np.array([source for source, _ in mark.applied_crcs], "<i4")
    blocks = np.array([block for _, block in mark.applied_crcs], "<i8")
    crcs = np.array(list(mark.applied_crcs.values()), "<u4")
    return StoredLane(
        session=session_number,
        name=name,
        seq=mark.seq,
        sources=sources.tobytes(),
        blocks=blocks.tobytes(),
        crcs=crcs.tobytes(),
    )


def carried_bin(cohorts: Iterable[RootCohort]) -> Carried:
    """Return a bin as a record of State.

    It has of each cohort the open roots, what each of them misses, and the deadlines that were
    moved.
    """
    ranges: list[CarriedRange] = []
    for cohort in cohorts:
        # the roots whose deadline was moved, since Spark's state holds a tuple of them
        touched_indices, deadlines_ms = cohort.touched()
        # Little-endian numbers, as `_load_ranges` reads them. All arrays ascend by the root's
        # index: `missing` has a value for each root of `at`, `deadlines` one for each of
        # `touched`. Mostly `missing` has its type already, and is not copied.
        carried_range = CarriedRange(
            source=cohort.roots.source,
            start=cohort.start,
            at=as_array(cohort.roots.open_at()).astype("<i4").tobytes(),
            missing=cohort.roots.missing().astype("<u8", copy=False).tobytes(),
            touched=touched_indices.astype("<i4").tobytes(),
            deadlines=deadlines_ms.astype("<i8").tobytes(),
        )
        ranges.append(carried_range)
    return Carried(tuple(ranges))


def load_state(core: PartitionCore, state: State, bins: Mapping[int, Carried]) -> None:
    """Load a State into a new acker partition (`core`).

    `bins` has the bins of State by number. Contributions and verdicts that are newer
    than State must be read from the logs afterwards.
    """
    # 1. the next offsets of the three topics
    core.init_next = state.init
    core.ack_next = state.ack
    core.fail_next = state.fail
    # 2. sessions, sources, and the ticks and takes that wait; the rows of
    # State name a session by its index in this list
    sessions = [Session(stored.group, stored.epoch, stored.session) for stored in state.sessions]
    _load_sessions(core, state, sessions)
    for stored_source in state.sources:
        source_generation = SourceGeneration(
            group=stored_source.group,
            topic=stored_source.topic,
            topic_id=stored_source.topic_id,
            generation=stored_source.generation,
            from_=stored_source.from_,
        )
        core.sessions.set_source(stored_source.source, source_generation)
        # `next` is the watermark
        core.ledger.set_watermark(stored_source.source, stored_source.next)
    for pending in state.pending:
        # State has no None: RESTART stands for it, of a tick and of the take of a restart
        former_clock_ms = None if pending.before == RESTART else pending.before
        queued = QueuedTick(
            sessions[pending.session], pending.now, is_take=pending.take, former_clock_ms=former_clock_ms
        )
        core.sessions.queue.append(queued)
    # 3. which records were applied, and the open roots
    for lane in state.acks:
        core.ack_marks.load(SessionLane(sessions[lane.session], lane.name), _lane_mark(lane))
    for lane in state.fails:
        core.fail_marks.load(SessionLane(sessions[lane.session], lane.name), _lane_mark(lane))
    _load_ranges(core, state, sessions, bins)


def _load_sessions(core: PartitionCore, state: State, sessions: Sequence[Session]) -> None:
    """Load the groups of a State with their owners, then the clocks of sessions.

    A clock is kept in its group, so the groups come first. `sessions` are those
    of State, in its order.
    """
    for session, stored in zip(sessions, state.sessions, strict=True):
        if stored.holds:  # it owns its group
            core.sessions.groups[session.group] = Group(session)
    for session, stored in zip(sessions, state.sessions, strict=True):
        if stored.timed:  # it has a clock
            clock = Clock(counted_ms=stored.counted, read_ms=stored.read)
            core.sessions.groups[session.group].clocks[session] = clock


def _load_ranges(
    core: PartitionCore, state: State, sessions: Sequence[Session], bins: Mapping[int, Carried]
) -> None:
    """Open the roots of a State in a new acker partition (`core`).

    A range of State is a cohort; of one in a bin the roots get the values that
    the bin has.
    """
    emissions = [_init_emission(emission, sessions) for emission in state.emissions]
    carried_ranges: dict[tuple[int, int], CarriedRange] = {}  # by source and start
    for stored_bin in bins.values():
        for carried_range in stored_bin.ranges:
            carried_ranges[carried_range.source, carried_range.start] = carried_range
    for stored in unpack_ranges(state.ranges):
        roots = Roots(stored.source, stored.start, stored.size)
        emission = emissions[stored.emission]
        if stored.bin == NO_BIN:
            core.ledger.adopt(roots, emission, stored.ack_from)
            continue
        # before `adopt`, which counts the open roots: of a range in a bin some
        # may be settled
        carried_range = carried_ranges[stored.source, stored.start]
        roots.load(_unpack_int32(carried_range.at), np.frombuffer(carried_range.missing, "<u8"))
        cohort = core.ledger.adopt(roots, emission, stored.ack_from)
        core.bins.load(stored.bin, cohort)
        deadlines_ms = np.frombuffer(carried_range.deadlines, "<i8")
        cohort.load_touched(_unpack_int32(carried_range.touched), deadlines_ms)


def _init_emission(emission: StoredEmission, sessions: Sequence[Session]) -> InitEmission:
    """Return an emission of State as the ledger has it."""
    return InitEmission(
        session=sessions[emission.session],
        topic=emission.topic,
        topic_id=emission.topic_id,
        at_ms=emission.now,
        wall_ms=emission.wall,
        timeout_ms=emission.timeout_ms,
    )


def load_deadlines(core: PartitionCore, deadlines_ms: Mapping[int, int]) -> None:
    """Set the deadlines of cohorts that were moved, in an acker partition whose State was just
    loaded.

    Args:
        deadlines_ms: ms of the session's clock, by the number of a cohort in State. Only a view
            needs them: a restart reads the records again that moved them.
    """
    for number, cohort in enumerate(core.ledger.cohorts()):
        # a cohort in a bin got its deadlines with the bin
        if number in deadlines_ms and cohort.bin_number is None:
            cohort.deadline_ms = max(cohort.deadline_ms, deadlines_ms[number])


def _unpack_int32(packed: bytes) -> I64:
    """Unpack numbers of 32 bits, as int64."""
    return np.frombuffer(packed, "<i4").astype(np.int64)


def _lane_mark(lane: StoredLane) -> LaneMark:
    """Return the mark of a lane of State."""
    sources = np.frombuffer(lane.sources, "<i4").tolist()
    blocks = np.frombuffer(lane.blocks, "<i8").tolist()
    crcs = np.frombuffer(lane.crcs, "<u4").tolist()
    applied = zip(zip(sources, blocks, strict=True), crcs, strict=True)
    return LaneMark(lane.seq, dict(applied))
