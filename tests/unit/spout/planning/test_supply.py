"""What is taken of a source: records up to a limit, and what is empty for nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker.identity import position_at
from acker.wire.events import PositionRun, SourceRun
from spout.planning.supply import EMPTY_MAX, HOLE_MIN, HOLES_MAX, Portion, Sighting, Supply, joined_portions

A = 65_536


def seen(start: int, to: int, records: list[int] | range) -> Sighting:
    return Sighting(start, to, np.array(records, np.int64))


def plain(portion: Portion) -> tuple[list[tuple[int, int]], list[tuple[int, int]], int]:
    """Return ranges and holes as plain pairs, and how many records there are."""
    return [run[1:] for run in portion.ranges], [run[1:] for run in portion.holes], portion.records


def test_what_nobody_has_seen_counts_as_records() -> None:
    supply = Supply(A, [PositionRun(10, 30)])
    assert (supply.count_max, supply.is_seen(1)) == (20, False)
    assert plain(supply.take(5)) == ([(10, 15)], [], 5)
    assert plain(supply.take(100)) == ([(10, 30)], [], 20)


def test_a_hole_is_passed_beside_the_range_and_costs_nothing() -> None:
    """O501, at a source: 10 records, a hole of 50,000, 90 records."""
    hole_end = 10 + 50_000
    supply = Supply(
        A,
        [PositionRun(0, hole_end + 200)],
        seen(0, hole_end + 90, [*range(10), *range(hole_end, hole_end + 90)]),
    )
    assert supply.is_seen(100)
    assert plain(supply.take(100)) == ([(0, 10), (hole_end, hole_end + 90)], [(10, hole_end)], 100)
    assert plain(supply.take(10)) == ([(0, 10)], [(10, hole_end)], 10), (
        "it is passed with what comes before it"
    )


def test_shorter_empty_stretches_stay_in_the_range_and_do_not_count() -> None:
    """Each further range costs a task a seek."""
    supply = Supply(A, [PositionRun(0, 1_000)], seen(0, 1_000, range(0, 1_000, 2)))
    portion = supply.take(100)
    assert plain(portion) == ([(0, 200)], [], 100)
    assert portion.empty[:2] == (SourceRun(A, 1, 2), SourceRun(A, 3, 4))


def test_behind_what_was_seen_each_position_counts() -> None:
    supply = Supply(A, [PositionRun(0, 1_000)], seen(0, 100, range(0, 100, 2)))
    assert not supply.is_seen(51)
    assert supply.is_seen(50)
    assert plain(supply.take(60)) == ([(0, 110)], [], 60)
    assert supply.count_max == 50 + 900


def test_a_source_that_is_empty_to_its_end_is_passed() -> None:
    supply = Supply(A, [PositionRun(0, 20_000)], seen(0, 20_000, []))
    assert supply.count_max == 0
    assert plain(supply.take(1)) == ([], [(0, 20_000)], 0)


def test_what_was_seen_of_something_else_is_not_believed() -> None:
    """A look that came too late, and one at another place."""
    for look in (seen(0, 5, []), seen(20, 60, []), seen(0, 10, [])):
        assert Supply(A, [PositionRun(10, 50)], look).count_max == 40


def test_a_look_is_at_offsets_and_a_supply_has_positions() -> None:
    begin = position_at(3, 0)
    look = seen(5, 50, [7, 9]).moved(begin)
    assert plain(Supply(A, [PositionRun(begin + 5, begin + 30)], look).take(1)) == (
        [(begin + 5, begin + 9)],
        [],
        1,
    )


def test_gaps_that_a_crash_left_are_looked_at_as_well() -> None:
    free = [PositionRun(5, 10), PositionRun(20, 40)]
    assert plain(Supply(A, free, seen(5, 30, [6, 12, 25])).take(2)) == ([(5, 10), (20, 30)], [], 2)


def test_one_batch_passes_no_more_holes_than_a_task_should_seek() -> None:
    records = range(0, 100 * HOLE_MIN * 2, HOLE_MIN * 2)
    portion = Supply(A, [PositionRun(0, records[-1])], seen(0, records[-1], records)).take(1_000)
    assert len(portion.holes) == HOLES_MAX
    assert portion.end_of(A) == records[HOLES_MAX] + 1


def test_one_batch_has_no_more_empty_positions_than_an_acker_should_keep() -> None:
    width = HOLE_MIN - 1
    records = range(0, 100 * HOLE_MIN, HOLE_MIN)
    portion = Supply(A, [PositionRun(0, records[-1])], seen(0, records[-1], records)).take(1_000)
    assert sum(run.end - run.start for run in portion.empty) == EMPTY_MAX // width * width


@pytest.mark.parametrize("room", [0, 1, 7])
def test_a_hole_is_passed_as_far_as_there_is_room_for_it(room: int) -> None:
    end = 2 * HOLE_MIN
    portion = Supply(A, [PositionRun(0, end + 5)], seen(0, end + 1, [end])).take(10, holes_left=room)
    assert plain(portion) == ([], [(0, room)] if room else [], 0)


@st.composite
def supplies(draw: st.DrawFn) -> tuple[list[PositionRun], Sighting, set[int]]:
    """Draw free runs, what was seen of them, and which of the positions hold a record."""
    edges = sorted(draw(st.sets(st.integers(0, 60), min_size=2, max_size=6)))
    free = [PositionRun(start, end) for start, end in zip(edges[::2], edges[1::2], strict=False)]
    records = draw(st.sets(st.integers(0, 60)))
    start = draw(st.integers(0, free[0].start))
    to = draw(st.integers(start, 60))
    return free, seen(start, to, sorted(record for record in records if start <= record < to)), records


@given(supplies(), st.integers(1, 70), st.integers(1, 4), st.integers(0, 30), st.booleans())
def test_a_portion_is_a_prefix_that_holds_no_more_records_than_it_may(
    drawn: tuple[list[PositionRun], Sighting, set[int]], count: int, hole_min: int, room: int, blocks: bool
) -> None:
    """Nothing is skipped, no hole holds a record, and a limit is never broken."""
    free, look, records = drawn
    portion = Supply(A, free, look).take(count, hole_min=hole_min, holes_left=room, ends_with_block=blocks)
    taken = sorted(
        position for run in (*portion.ranges, *portion.holes) for position in range(run.start, run.end)
    )
    assert taken == [position for run in free for position in range(*run)][: len(taken)]
    in_ranges = {position for run in portion.ranges for position in range(run.start, run.end)}
    empty = {position for run in portion.empty for position in range(run.start, run.end)}
    holes = {position for run in portion.holes for position in range(run.start, run.end)}
    assert empty <= in_ranges
    assert not (empty | holes) & records
    assert len(in_ranges & records) <= len(in_ranges - empty) == portion.records <= count
    assert len(holes) <= room


def test_portions_of_sources_are_joined_in_order() -> None:
    one = Portion((SourceRun(A + 1, 0, 5),), (SourceRun(A + 1, 5, 9),))
    other = Portion((SourceRun(A, 0, 5),), (), (SourceRun(A, 1, 2),))
    joined = joined_portions([one, other])
    assert joined == Portion((SourceRun(A, 0, 5), SourceRun(A + 1, 0, 5)), one.holes, other.empty)
    assert joined.records == 9
