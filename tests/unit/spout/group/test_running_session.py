"""What a session has in hand: free, pending, settled and not journalled, held against plain sets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker.identity import ACKER_BLOCK_BITS, acker_partition, position_at, source_of
from acker.ledger.sessions import SIBLING_MS
from acker.root_sets.position_set import PositionSet
from acker.waits import READING_MS_MAX
from acker.wire.events import (
    Lost,
    PositionRun,
    SourceRun,
    Taken,
    TakenSource,
    Verdicts,
    pack_positions,
)
from acker.wire.verdict import Verdict
from spout.group.announce import REPEAT_MS
from spout.group.opening import Opened
from spout.group.running_session import RunningSession, Sibling, running_session_of
from spout.planning.intake import SourceCursor
from spout.planning.journal import BEGINNING, Journal, SourceMark
from spout.planning.session import STEP_MS_MAX, Answers, SessionClock, SessionName, SourceHistory

PARTITIONS: Final = 3
SOURCES: Final[tuple[int, ...]] = (source_of(1, 0), source_of(1, 1), source_of(1, 0, replay=True))
A, B = SOURCES[:2]
NAME: Final = SessionName(4, "s")
WALL_MS: Final = 1_800_000_000_000

EDGE: Final = next(
    block << ACKER_BLOCK_BITS
    for block in range(1, 100)
    if acker_partition(A, (block - 1) << ACKER_BLOCK_BITS, PARTITIONS)
    != acker_partition(A, block << ACKER_BLOCK_BITS, PARTITIONS)
)
"""Positions of A below it are another acker partition's than those from it on."""

SPAN: Final = 24
FIRST: Final = EDGE - SPAN // 2
"""The positions of these tests are `SPAN` from here on, of two acker partitions."""

POSITIONS = st.sets(st.integers(FIRST, FIRST + SPAN - 1))


def runs_of_set(source: int, positions: Iterable[int]) -> list[SourceRun]:
    return [SourceRun(source, *run) for run in PositionSet((p, p + 1) for p in positions)]


def set_of(runs: Iterable[tuple[int, int]]) -> set[int]:
    return {position for start, end in runs for position in range(start, end)}


def settled_after(session: RunningSession, journal: Journal) -> dict[int, set[int]]:
    """Return, by source, the settled positions that a journal does not have."""
    found: dict[int, set[int]] = {}
    for source, *run in session.settled_not_journalled(journal).runs():
        found.setdefault(source, set()).update(range(*run))
    return found


def owner_of(source: int, position: int) -> int:
    return acker_partition(source, position, PARTITIONS)


def lost_of(source: int, positions: Sequence[int], reason: Verdict) -> Lost:
    packed = pack_positions(np.array(positions, np.int64))
    return Lost(reason, "g", "sentences", "id", "", "", "", 0, 0, 0, source, packed)


class PlainSession:
    """What a session should know, position by position."""

    def __init__(self) -> None:
        self.used: dict[int, set[int]] = {source: set() for source in SOURCES}
        self.pending: dict[int, set[int]] = {source: set() for source in SOURCES}
        self.counts: dict[str, int] = {}

    def emit(self, source: int, positions: set[int]) -> None:
        self.used[source] |= positions
        self.pending[source] |= positions

    def settle(self, source: int, positions: set[int], verdict: str) -> int:
        settled = len(positions & self.pending[source])
        self.pending[source] -= positions
        self.used[source] |= positions
        self.counts[verdict] = self.counts.get(verdict, 0) + settled
        return settled

    def first_uninitialised(self, source: int) -> int:
        return next(p for p in range(FIRST, FIRST + SPAN + 1) if p not in self.used[source])

    def committable(self) -> dict[int, int]:
        return {source: min([*self.pending[source], self.first_uninitialised(source)]) for source in SOURCES}

    def ticked_partitions(self) -> list[int]:
        owners = {owner_of(source, p) for source in SOURCES for p in self.pending[source]}
        return sorted(owners)


VERDICTS = st.sampled_from(list(Verdict))
STEPS = st.lists(
    st.tuples(st.sampled_from(SOURCES), st.one_of(st.just("emit"), VERDICTS), POSITIONS), max_size=12
)


def verdicts_of(source: int, positions: set[int], verdict: str) -> Verdicts:
    """Return a verdict record; its runs are in no order, and what is lost may be named twice."""
    backwards = sorted(positions, reverse=True)
    runs = tuple(SourceRun(source, p, p + 1) for p in backwards)
    if verdict == Verdict.ACKED:
        return Verdicts(runs, (), ())
    if verdict == Verdict.ABSENT:
        return Verdicts((), runs, ())
    return Verdicts((), (), (lost_of(source, [*backwards, *backwards[:1]], Verdict(verdict)),))


@given(STEPS)
def test_what_is_emitted_and_settled_agrees_with_plain_sets(
    steps: Sequence[tuple[int, str, set[int]]],
) -> None:
    """A verdict of what was never emitted takes it from what is free, since it will not come again."""
    cursors = {source: SourceCursor(FIRST, FIRST) for source in SOURCES}
    session, plain = RunningSession(NAME, SessionClock(0, 0), cursors, PARTITIONS), PlainSession()
    for source, step, positions in steps:
        if step == "emit":
            fresh = positions - plain.used[source]
            session.record_emitted(runs_of_set(source, fresh), WALL_MS)
            plain.emit(source, fresh)
        else:
            for partition in range(PARTITIONS):
                own = {p for p in positions if owner_of(source, p) == partition}
                settled = session.settle(partition, verdicts_of(source, own, step))
                assert settled == plain.settle(source, own, step)
        assert session.committable() == plain.committable()
        assert session.ticked_partitions() == plain.ticked_partitions()
        assert session.is_idle == (not any(plain.pending.values()))
        assert {verdict: n for verdict, n in session.window.counts.items() if n} == {
            verdict: n for verdict, n in plain.counts.items() if n
        }
        for name, mark in session.marks().items():
            assert set_of(mark.emitted(FIRST, FIRST + SPAN)) == plain.used[name]
            assert set_of(session.window.pending_within(name, FIRST, FIRST + SPAN)) == plain.pending[name]


def cursor_that_used(positions: set[int]) -> SourceCursor:
    cursor = SourceCursor(FIRST, FIRST)
    for _, start, end in runs_of_set(A, positions):
        cursor.mark_initialised(start, end)
    return cursor


def mark_of(positions: set[int]) -> SourceMark:
    next_position = max(positions, default=FIRST - 1) + 1
    gaps = PositionSet([(FIRST, next_position)])
    gaps.remove_all((p, p + 1) for p in sorted(positions))
    return SourceMark(FIRST, next_position, tuple(gaps))


def journal_with(marks: dict[int, SourceMark]) -> Journal:
    return Journal("s", 4, 0, 2, marks, ())


@given(
    st.tuples(POSITIONS, POSITIONS, POSITIONS),
    st.tuples(POSITIONS, POSITIONS, POSITIONS),
    st.sets(st.sampled_from(SOURCES)),
)
def test_a_restart_plans_again_what_is_pending_and_not_in_the_journal(
    a: tuple[set[int], set[int], set[int]], b: tuple[set[int], set[int], set[int]], unread: set[int]
) -> None:
    """`a` and `b` are of two sources: what was used, what of it is pending, and what the journal has."""
    used, drawn, journalled = ({A: a[n], B: b[n]} for n in range(3))
    pending = {source: drawn[source] & used[source] for source in used}
    cursors = {source: cursor_that_used(used[source]) for source in used}
    session = RunningSession(NAME, SessionClock(0, 0), cursors, PARTITIONS)
    journal = journal_with({source: mark_of(journalled[source]) for source in used if source not in unread})
    in_journal = {source: journalled[source] if source not in unread else set() for source in used}
    session.restore(
        [run for source in used for run in runs_of_set(source, pending[source])], journal, WALL_MS
    )

    behind = {
        source: used[source] - pending[source] - journalled[source] for source in used if source not in unread
    }
    assert settled_after(session, journal) == {
        source: positions for source, positions in behind.items() if positions
    }
    again = {source: pending[source] - in_journal[source] for source in used}
    for source, mark in session.marks().items():
        assert set_of(mark.emitted(FIRST, FIRST + SPAN)) == used[source] - again[source]
    owners = {owner_of(source, p) for source in used for p in pending[source]}
    assert session.ticked_partitions() == sorted(owners)

    settled = {p for p in again[A] if p % 3 == 0}
    for partition in range(PARTITIONS):
        own = {p for p in settled if owner_of(A, p) == partition}
        session.settle(partition, verdicts_of(A, own, Verdict.ACKED))
    planned = session.take_unjournalled()
    for source in used:
        left = again[source] - (settled if source == A else set())
        assert set_of(run[1:] for run in planned if run.source == source) == left
    assert session.take_unjournalled() == []
    for source, mark in session.marks().items():
        assert set_of(mark.emitted(FIRST, FIRST + SPAN)) == used[source]


def test_a_journal_of_another_generation_or_of_a_source_that_is_not_read_shows_nothing_behind() -> None:
    later = position_at(1, 0)
    cursors = {A: SourceCursor(later, later + 5), B: SourceCursor(0, 5)}
    session = RunningSession(NAME, SessionClock(0, 0), cursors, PARTITIONS)
    journal = journal_with({SOURCES[2]: SourceMark(0, 0), A: SourceMark(0, 3), B: SourceMark(0, 3)})
    assert settled_after(session, journal) == {B: {3, 4}}


def test_verdicts_of_a_former_generation_take_nothing_from_the_present_one() -> None:
    """They came late; what has the same offsets now is another record."""
    first = position_at(1, 0)
    session = RunningSession(NAME, SessionClock(0, 0), {A: SourceCursor(first, first)}, PARTITIONS)
    runs = (SourceRun(A, 0, 5), SourceRun(A, first + 2, first + 4))
    for partition in range(PARTITIONS):
        session.settle(partition, Verdicts(runs, (), ()))
    assert session.cursors[A].uninitialised_runs(first + 6) == [(first, first + 2), (first + 4, first + 6)]
    assert session.committable() == {A: first}
    session.settle(0, Verdicts((SourceRun(A, 5, 9),), (), ()))
    assert session.cursors[A].next == first + 4


def test_verdicts_of_a_source_that_is_not_read_settle_nothing() -> None:
    session = RunningSession(NAME, SessionClock(0, 0), {A: SourceCursor(0, 0)}, PARTITIONS)
    assert session.settle(0, Verdicts((SourceRun(B, 0, 5),), (), ())) == 0
    assert session.settle(0, Verdicts((), (), (lost_of(A, [], Verdict.FAILED),))) == 0
    assert session.cursors[A].next == 0


@pytest.mark.parametrize("joins_later", [False, True])
def test_verdicts_of_what_was_emitted_before_the_session_are_late_and_others_unknown(
    joins_later: bool,
) -> None:
    first = {} if joins_later else {A: SourceCursor(0, 10)}
    session = RunningSession(NAME, SessionClock(0, 0), first, PARTITIONS)
    if joins_later:
        session.add_source(A, SourceCursor(0, 10))
    session.settle(0, Verdicts((SourceRun(A, 8, 11),), (), ()))
    assert (session.window.late, session.window.unknown) == (2, 1)


@pytest.mark.parametrize("is_in_journal", [False, True])
def test_the_first_position_of_a_source_is_planned_again_where_the_journal_does_not_have_it(
    is_in_journal: bool,
) -> None:
    """Position 0 is no special one."""
    marks = {A: SourceMark(0, 1)} if is_in_journal else {}
    session = RunningSession(NAME, SessionClock(0, 0), {A: SourceCursor(0, 2)}, PARTITIONS)
    session.restore([SourceRun(A, 0, 2)], journal_with(marks), WALL_MS)
    assert session.take_unjournalled() == [SourceRun(A, int(is_in_journal), 2)]


def test_a_query_that_is_not_tracked_settles_what_it_emits_and_ticks_nowhere() -> None:
    session = RunningSession(SessionName(0, ""), SessionClock(0, 0), {A: SourceCursor(0, 0)}, PARTITIONS)
    session.record_emitted([SourceRun(A, 0, 4), SourceRun(A, 6, 8)], WALL_MS)
    assert session.is_idle
    assert session.ticked_partitions() == []
    assert session.window.counts == {Verdict.ACKED: 6}
    assert session.committable() == {A: 4}


def test_positions_without_a_record_are_pending_and_no_record() -> None:
    session = RunningSession(NAME, SessionClock(0, 0), {A: SourceCursor(0, 0)}, PARTITIONS)
    session.record_emitted([SourceRun(A, 0, 10)], WALL_MS, [SourceRun(A, 2, 5)])
    assert (session.window.count_pending(A), session.window.count_records(A)) == (10, 7)
    assert session.window.oldest_emitted_ms() == WALL_MS


# --- the process before


def taken(partition_clock: int = 0, *, asked_by: str = "s?", group: str = "g", **other: object) -> Taken:
    values: dict[str, object] = {"sources": (), "open": (), **other}
    return Taken(
        group=group, session="s", epoch=4, asked_by=asked_by, refused="", part=0, parts=1,
        clock=partition_clock, **values,  # type: ignore[arg-type]
    )  # fmt: skip


def sibling_at(clock: SessionClock) -> Sibling:
    return Sibling("g", NAME, PARTITIONS, clock, WALL_MS)


def asked_on_the_way(sibling: Sibling, to_ms: int, from_ms: int = WALL_MS) -> list[int]:
    """Let time pass for a process that looks often; return the acker partitions that it wants to ask."""
    looks_ms = [*range(from_ms, to_ms, READING_MS_MAX // 2), to_ms]
    return [partition for look_ms in looks_ms for partition in sibling.start_question(look_ms)]


@pytest.mark.parametrize(
    ("passed_ms", "clock_ms", "grace_ms"),
    [
        (0, 0, STEP_MS_MAX),
        (400, 0, STEP_MS_MAX + 400),
        (400, 400, STEP_MS_MAX),
        (900, 400, STEP_MS_MAX + 500),
        (SIBLING_MS, 0, STEP_MS_MAX + SIBLING_MS),
        (SIBLING_MS + 1, 0, STEP_MS_MAX + SIBLING_MS),
        (-3_600_000, 0, STEP_MS_MAX),
        (400, 700, STEP_MS_MAX),
    ],
)
def test_what_a_restart_emits_has_as_much_more_time_as_its_clock_is_behind(
    passed_ms: int, clock_ms: int, grace_ms: int
) -> None:
    """Rule 8: a step of the other clock, and what this one has not moved, at most `SIBLING_MS`."""
    clock = SessionClock(5_000, WALL_MS)
    sibling = sibling_at(clock)
    clock.now += clock_ms
    assert sibling.grace_ms(WALL_MS + passed_ms) == grace_ms


def test_a_restart_asks_for_the_clock_when_the_process_before_is_gone_and_again_where_nobody_answers() -> (
    None
):
    sibling = sibling_at(SessionClock(0, WALL_MS))
    everybody = list(range(PARTITIONS))
    gone_ms = WALL_MS + SIBLING_MS
    assert asked_on_the_way(sibling, gone_ms - 1) == []
    assert [sibling.start_question(ms) for ms in (gone_ms, gone_ms, gone_ms + 1)] == [everybody, [], []]
    assert asked_on_the_way(sibling, gone_ms + REPEAT_MS - 1, gone_ms + 1) == []
    assert not sibling.read(1, taken())
    assert sibling.start_question(gone_ms + REPEAT_MS) == [0, 2]
    assert sibling.start_question(gone_ms + REPEAT_MS + 1) == []


@pytest.mark.parametrize("set_to_ms", [WALL_MS - 3_600_000, WALL_MS + 3_600_000])
def test_a_clock_that_is_set_neither_ends_the_process_before_nor_keeps_it(set_to_ms: int) -> None:
    sibling = sibling_at(SessionClock(0, WALL_MS))
    assert sibling.start_question(set_to_ms) == []
    assert asked_on_the_way(sibling, set_to_ms + SIBLING_MS - READING_MS_MAX - 1, set_to_ms) == []
    assert asked_on_the_way(sibling, set_to_ms + SIBLING_MS, set_to_ms + SIBLING_MS - READING_MS_MAX - 1)


def test_a_restart_goes_on_from_the_highest_clock_once_every_acker_partition_has_answered() -> None:
    """Answers to the question that was asked at the start do not count: they are older."""
    clock = SessionClock(5_000, WALL_MS)
    sibling = sibling_at(clock)
    assert sibling.question == SessionName(0, "s?")
    assert not any(sibling.read(partition, taken(9_000)) for partition in range(PARTITIONS))
    assert asked_on_the_way(sibling, WALL_MS + SIBLING_MS)
    assert not sibling.read(0, taken(7_000))
    assert not sibling.read(1, taken(8_000))
    assert not sibling.read(2, taken(9_999, group="another"))
    assert clock.now == 5_000
    assert sibling.read(2, taken(6_000))
    assert clock.now == 8_000
    clock.advance(WALL_MS, idle=False)
    assert clock.advance(WALL_MS + 5_000, idle=False) == 8_000 + STEP_MS_MAX


def restarted(*, is_restart: bool = True, open_runs: Sequence[SourceRun] = ()) -> RunningSession:
    answers = Answers("g", "s", PARTITIONS, [A])
    for partition in range(PARTITIONS):
        own = tuple(run for run in open_runs if owner_of(run.source, run.start) == partition)
        known = TakenSource(A, "id", 0, 0, 10)
        answers.add_part(partition, taken(asked_by="s", sources=(known,), open=own))
    histories = {A: SourceHistory(0, "id", 0, {owner_of(A, 0): 10})}
    opened = Opened(NAME, is_restart, histories, answers, 5_000, (), {})
    return running_session_of(opened, BEGINNING, "g", PARTITIONS, WALL_MS)


def test_while_the_process_before_may_live_the_clock_moves_and_goes_to_all() -> None:
    session = restarted()
    assert session.ticked_partitions() == list(range(PARTITIONS))
    assert session.advance_clock(WALL_MS + 300) == 5_300
    assert session.grace_ms(WALL_MS + 500) == STEP_MS_MAX + 200
    sibling = session.sibling
    assert sibling is not None
    assert asked_on_the_way(sibling, WALL_MS + SIBLING_MS)
    for partition in range(PARTITIONS):
        assert session.ticked_partitions() == list(range(PARTITIONS))
        session.read(partition, taken(7_000))
    assert session.clock.now == 7_000
    assert session.ticked_partitions() == []
    assert session.grace_ms(WALL_MS + 20_000) == 0


def test_an_idle_session_s_clock_stands_and_its_next_tick_adds_a_second_at_most() -> None:
    session = restarted(is_restart=False)
    assert session.sibling is None
    assert session.advance_clock(WALL_MS + 60_000) == 5_000
    session.record_emitted([SourceRun(A, 10, 12)], WALL_MS)
    assert session.advance_clock(WALL_MS + 60_400) == 5_400
    assert session.advance_clock(WALL_MS + 90_000) == 5_000 + STEP_MS_MAX
    assert session.advance_clock(WALL_MS + 120_000) == 5_000 + STEP_MS_MAX


def test_a_session_that_was_idle_for_a_while_may_add_a_whole_second_again() -> None:
    """The Init of its next batch carries the clock, so what was not ticked before it counts no more."""
    session = restarted(is_restart=False)
    runs = [SourceRun(A, 10, 12)]
    session.record_emitted(runs, WALL_MS)
    assert session.advance_clock(WALL_MS + 600) == 5_600
    session.settle(owner_of(A, 10), Verdicts(tuple(runs), (), ()))
    assert session.advance_clock(WALL_MS + 700) == 5_600
    session.record_emitted([SourceRun(A, 12, 13)], WALL_MS)
    assert session.advance_clock(WALL_MS + 9_000) == 5_600 + STEP_MS_MAX


def test_a_restart_has_what_the_ackers_have_open_of_the_sources_that_it_reads() -> None:
    open_runs = [SourceRun(A, 3, 6), SourceRun(B, 0, 9)]
    session = restarted(open_runs=open_runs)
    assert session.window.pending == 3
    assert session.unjournalled == [SourceRun(A, 3, 6)]
    assert session.cursors.keys() == {A}
    assert session.window.oldest_emitted_ms() == WALL_MS
    fresh = restarted(is_restart=False, open_runs=open_runs)
    assert (fresh.window.pending, fresh.unjournalled) == (0, [])


def test_a_clock_that_an_opening_has_sent_may_move_on_by_a_second_at_once() -> None:
    session = restarted()
    assert session.advance_clock(WALL_MS + 5_000) == 5_000 + STEP_MS_MAX


def test_a_source_that_joins_is_committable_to_its_beginning() -> None:
    session = restarted(is_restart=False)
    session.add_source(B, SourceCursor(7, 7))
    assert session.committable() == {A: 10, B: 7}
    assert PositionRun(7, 9) in session.cursors[B].uninitialised_runs(9)


def test_a_clock_that_was_stopped_stands_and_goes_on_from_there() -> None:
    """Rule 12: it is moved once more before it stands, and does not catch up."""
    session = restarted(is_restart=False)
    session.record_emitted([SourceRun(A, 10, 12)], WALL_MS)
    session.stop_clock(WALL_MS + 300)
    assert [session.advance_clock(WALL_MS + ms) for ms in (400, 900, 60_000)] == [5_300] * 3
    session.start_clock()
    assert session.advance_clock(WALL_MS + 60_200) == 5_500


def test_a_clock_that_was_stopped_adds_a_second_at_most_to_the_last_tick() -> None:
    """Rule 8: what it moved before it stood was not told, so it counts for the second, too."""
    session = restarted(is_restart=False)
    session.record_emitted([SourceRun(A, 10, 12)], WALL_MS)
    session.stop_clock(WALL_MS + 700)
    session.advance_clock(WALL_MS + 5_000)
    session.start_clock()
    assert session.advance_clock(WALL_MS + 15_000) == 5_000 + STEP_MS_MAX
