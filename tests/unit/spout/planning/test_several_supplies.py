"""What batches take of several sources, what is owed to new records, and what a window keeps of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from acker.errors import Disagreement
from acker.identity import source_of
from acker.wire.events import PositionRun, SourceRun
from acker.wire.verdict import Verdict
from spout.planning.intake import NEW_SHARE, BatchIntake, NewShare, Room, Sharing, SourceCursor
from spout.planning.journal import Journal, SourceMark, journal_of
from spout.planning.order import LineUp, WaitingRecord, line_up_of, turn_of
from spout.planning.plan import runs_without_record
from spout.planning.session import SessionClock
from spout.planning.supply import EMPTY_MAX, Portion, Sighting, Supply
from spout.planning.window import EMISSIONS_MAX, Window

A, B, OTHER = source_of(1, 0), source_of(1, 1), source_of(2, 0)
COPIES = source_of(1, 0, replay=True)
IDS: dict[int, int] = {A: 1, B: 1, COPIES: 1, OTHER: 2}


@pytest.mark.parametrize("room", [1, 2, 3, 5, 7, 8])
def test_new_records_get_a_quarter_of_the_room_in_the_long_run(room: int) -> None:
    """Whatever the room: what cannot be divided is owed, and paid as soon as it is a whole record."""
    share = NewShare()
    got = 0
    for number in range(1, 41):
        kept = share.kept_in(room)
        share.record_share(room, kept)
        got += kept
        assert got == number * room // NEW_SHARE


def test_what_is_owed_is_never_more_than_a_record_nor_less_than_none() -> None:
    share = NewShare()
    for _ in range(5):
        share.record_share(3, 0)
    assert [share.kept_in(0), share.kept_in(1)] == [0, 1]
    share.record_share(1, 9)
    assert [share.kept_in(3), share.kept_in(4)] == [0, 1]


def batches(room: Room, counts: dict[int, int], number: int) -> list[dict[int, int]]:
    """Return what so many batches in a row take of sources that have so many records each time."""
    sharing = Sharing()
    taken: list[dict[int, int]] = []
    for _ in range(number):
        supplies = [Supply(source, [PositionRun(0, count)]) for source, count in counts.items()]
        portions = BatchIntake(supplies, IDS, room, sharing).take()
        taken.append({source: portion.records for source, portion in portions.items() if portion.records})
    return taken


@pytest.mark.parametrize("room", [Room(1, {1: 100}), Room(None, {1: 1}), Room(1, {1: 1})])
def test_each_fourth_room_of_one_record_is_for_a_new_one(room: Room) -> None:
    """Records that always fail would else keep every other one waiting."""
    assert batches(room, {A: 9, COPIES: 9}, 8) == [{COPIES: 1}, {COPIES: 1}, {COPIES: 1}, {A: 1}] * 2
    assert batches(room, {COPIES: 9}, 4) == [{COPIES: 1}] * 4, "without a new record nothing is kept for one"
    assert batches(room, {A: 9}, 4) == [{A: 1}] * 4


def test_nothing_is_owed_by_a_batch_that_takes_all() -> None:
    """There was room for each record, so that nobody competed."""
    sharing = Sharing()
    for counts, room in (({A: 1, COPIES: 2}, 3), ({A: 9, COPIES: 9}, 1)):
        supplies = [Supply(source, [PositionRun(0, count)]) for source, count in counts.items()]
        intake = BatchIntake(supplies, IDS, Room(room, {1: 100}), sharing)
        portions = intake.take()
    assert {source: portion.records for source, portion in portions.items()} == {A: 0, COPIES: 1}


def test_copies_that_are_chosen_already_take_their_part_of_the_room() -> None:
    room = Room(8, {1: 100, 2: 3}, chosen={COPIES: 10})
    supplies = [Supply(source, [PositionRun(0, 50)]) for source in (A, OTHER)]
    intake = BatchIntake(supplies, IDS, room, Sharing())
    assert intake.granted_copies == 6
    assert intake.is_limited
    portions = intake.take()
    assert {source: portion.records for source, portion in portions.items()} == {A: 1, OTHER: 1}


def seen(start: int, to: int, *records: int) -> Sighting:
    """Return what was seen of a source."""
    return Sighting(start, to, np.array(records, np.int64))


def test_what_is_seen_of_one_source_changes_what_others_get() -> None:
    """A source that is empty to its end leaves its part; one that nobody can read yet is left out."""
    supplies = [Supply(source, [PositionRun(0, 50)]) for source in (A, B, OTHER)]
    intake = BatchIntake(supplies, IDS, Room(30, {1: 100, 2: 100}), Sharing())
    assert intake.records_to_find() == {A: 10, B: 10, OTHER: 10}
    assert intake.uninitialised_runs(A) == [PositionRun(0, 50)]
    assert intake.add_sightings({A: seen(0, 50), B: seen(0, 50, *range(50))}, [])
    assert intake.records_to_find() == {OTHER: 15}
    assert not intake.add_sightings({B: seen(0, 50, *range(50))}, [])
    assert intake.add_sightings({}, [OTHER])
    assert intake.records_to_find() == {}
    portions = intake.take(hole_min=5)
    assert {source: portion.records for source, portion in portions.items()} == {A: 0, B: 30}
    assert portions[A].holes == (SourceRun(A, 0, 50),)
    assert not BatchIntake([Supply(A, [PositionRun(0, 5)])], IDS, Room(None, {1: 5}), Sharing()).is_limited


def test_what_is_used_below_the_end_leaves_the_gaps_above_it() -> None:
    cursor = SourceCursor(0, 10)
    cursor.mark_initialised(15, 20)
    cursor.mark_initialised(11, 12)
    assert cursor.uninitialised_runs(25) == [PositionRun(10, 11), PositionRun(12, 15), PositionRun(20, 25)]
    assert cursor.uninitialised_runs(20) == [PositionRun(10, 11), PositionRun(12, 15)]
    assert cursor.count_uninitialised_below(25) == 9
    assert cursor.mark() == SourceMark(0, 20, (PositionRun(10, 11), PositionRun(12, 15)))


JOURNAL = Journal("s", 1, 2, 1, {A: SourceMark(0, 9)}, (SourceRun(A, 3, 9),), waits=(B,), cluster="c")


def test_a_journal_names_who_waits_and_its_cluster_only_where_there_are_any() -> None:
    written = JOURNAL.to_json()
    assert (written["waits"], written["cluster"]) == ([B], "c")
    assert journal_of(written).waits == (B,)
    assert not {"waits", "cluster"} & Journal("s", 1, 2, 1, {}, ()).to_json().keys()


@pytest.mark.parametrize(
    "change",
    [{"epoch": True}, {"epoch": -1}, {"now": 1 << 63}, {"now": 1.0}, {"tasks": 0}, {"session": 7},
     {"v": 2}, {"ranges": [[A, 9, 3]]}, {"cluster": None}],
    ids=str,
)  # fmt: skip
def test_a_journal_with_a_value_that_cannot_stand_there_is_refused(change: dict[str, object]) -> None:
    journal_of(JOURNAL.to_json() | {"now": (1 << 63) - 1})
    with pytest.raises(Disagreement):
        journal_of(JOURNAL.to_json() | change)


@pytest.mark.parametrize("packed", ["AAAAAAAA", "AAAAAAAAAAA="])
def test_lines_that_are_no_pairs_are_refused(packed: str) -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        line_up_of({"by": "key", "waiting": packed})
    assert line_up_of({"by": "key", "waiting": "", "most": 1}) == LineUp("key", {}, 1)


def test_one_record_that_nobody_can_read_makes_its_partition_wait_as_a_whole() -> None:
    waiting = [WaitingRecord(7, 1, False), WaitingRecord(5, None, False, is_unreadable=True)]
    turn = turn_of("key", 10, waiting, 0, "t/0")
    assert (turn.takes_copies, turn.new_max, turn.line_up) == (False, 0, LineUp("partition", {0: 5}))
    assert turn.why == "waits for t/0@5; a record that waits cannot be read, so its key is unknown"


@pytest.mark.parametrize("expected", [0, 3, 5])
@pytest.mark.parametrize("positions", [(5,), (5, 6), (5, 7), (5, 6, 9, 10, 12)])
def test_holes_are_all_that_is_missing_up_to_the_last(expected: int, positions: Sequence[int]) -> None:
    runs = runs_without_record(A, expected, np.array(positions))
    missing = [at for _, start, end in runs for at in range(start, end)]
    assert missing == [at for at in range(expected, positions[-1]) if at not in positions]
    assert all(start < end for _, start, end in runs)


@pytest.mark.parametrize(("lifted", "now"), [(9_000, 9_000), (10, 50)])
def test_a_clock_is_lifted_and_never_lowered(lifted: int, now: int) -> None:
    clock = SessionClock(50, 0)
    clock.lift(lifted)
    assert clock.now == now
    assert clock.advance(100_000, idle=False) > now
    assert clock.advance(200_000, idle=False) == clock.advance(300_000, idle=False), (
        "no tick has gone out since"
    )
    sent = clock.now
    clock.lift(0)
    assert clock.advance(400_000, idle=False) > sent


def test_a_portion_without_a_source_keeps_the_others() -> None:
    runs = SourceRun(A, 0, 1), SourceRun(B, 0, 1)
    assert Portion(runs, runs, runs).without([A]) == Portion(runs[1:], runs[1:], runs[1:])


def test_records_are_looked_for_behind_the_first_free_run_too() -> None:
    free = [PositionRun(0, 5), PositionRun(10, 15)]
    supply = Supply(A, free, seen(0, 15, 1, 2, 11))
    assert [supply.is_seen(count) for count in (2, 3, 9)] == [True, True, True]
    partly = Supply(A, free, seen(0, 12, 1, 2, 11))
    assert [partly.is_seen(count) for count in (3, 4)] == [True, False]
    assert partly.take(2).ranges == (SourceRun(A, 0, 5),)


@pytest.mark.parametrize(("length", "is_hole"), [(9, False), (10, True)])
def test_a_hole_is_as_long_as_it_must_be(length: int, is_hole: bool) -> None:
    end = 1 + length
    portion = Supply(A, [PositionRun(0, end + 1)], seen(0, end + 1, 0, end)).take(5, hole_min=10)
    assert bool(portion.holes) is is_hole
    assert portion.records == 2


@pytest.mark.parametrize(("empty", "ranges"), [(EMPTY_MAX, 1), (EMPTY_MAX + 1, 0)])
def test_so_many_empty_positions_go_into_a_range_and_no_more(empty: int, ranges: int) -> None:
    """The range ends before them, and nothing behind them is taken."""
    end = 1 + empty
    supply = Supply(
        A, [PositionRun(0, end + 1), PositionRun(end + 5, end + 6)], seen(0, end + 6, 0, end, end + 5)
    )
    portion = supply.take(9, hole_min=EMPTY_MAX * 2)
    assert portion.ranges[0] == (SourceRun(A, 0, end + 1) if ranges else SourceRun(A, 0, 1))
    assert len(portion.ranges) == 1 + ranges


def test_two_holes_share_what_is_left_for_them() -> None:
    supply = Supply(A, [PositionRun(0, 30)], seen(0, 30, 0, 10, 29))
    portion = supply.take(9, hole_min=5, holes_left=12)
    assert portion.holes == (SourceRun(A, 1, 10), SourceRun(A, 11, 14))
    assert portion.ranges == (SourceRun(A, 0, 1), SourceRun(A, 10, 11))


def test_a_window_counts_emitted_empty_and_restored_positions_of_each_source() -> None:
    window = Window()
    window.emit([SourceRun(A, 0, 10), SourceRun(B, 5, 6)], 100, [SourceRun(A, 2, 5)])
    window.restore([SourceRun(OTHER, 7, 9)], 50)
    assert (window.emitted, window.pending) == (11, 13)
    assert (window.count_records(A), window.count_empty(A)) == (7, 3)
    window.settle(A, [PositionRun(3, 8)], Verdict.ACKED)
    assert (window.count_records(A), window.count_empty(A)) == (4, 1)
    window.settle(OTHER, [PositionRun(7, 10)], Verdict.ACKED)
    assert (window.committable(OTHER), window.unknown, window.late) == (9, 1, 0)
    window.settle(99, [PositionRun(0, 2)], Verdict.ACKED)
    assert (window.unknown, window.late) == (3, 0)


def test_a_source_opens_at_the_highest_position_and_never_falls() -> None:
    window = Window()
    for high, committable in ((5, 5), (9, 9), (3, 9)):
        window.open_source(A, high)
        assert window.committable(A) == committable
    window.emit([SourceRun(A, 2, 3)], 0)
    window.settle(A, [PositionRun(2, 3)], Verdict.ACKED)
    assert window.committable(A) == 9


def test_the_oldest_root_may_be_in_any_range_of_a_restored_cohort() -> None:
    window = Window()
    window.restore([SourceRun(A, 0, 2), SourceRun(B, 0, 2)], 40)
    window.emit([SourceRun(A, 5, 6)], 90)
    window.settle(A, [PositionRun(0, 2)], Verdict.ACKED)
    assert window.oldest_emitted_ms() == 40
    window.settle(B, [PositionRun(0, 2)], Verdict.ACKED)
    assert window.oldest_emitted_ms() == 90


def test_cohorts_are_looked_through_seldom_where_all_of_them_stay_open() -> None:
    """Twice as many must come before they are looked through again."""
    window = Window()
    for number in range(EMISSIONS_MAX + 1):
        window.emit([SourceRun(A, number, number + 1)], number)
    assert window._emissions_max == 2 * (EMISSIONS_MAX + 1)
