"""How a batch's room is shared and where its parts end, held against plain counting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker.identity import WIRE_BLOCK_BITS, source_of
from acker.wire.events import PositionRun, SourceRun
from spout.planning.intake import BatchIntake, Room, Sharing, SourceCursor, fair_shares
from spout.planning.session import Answers, SessionName
from spout.planning.supply import Sighting, Supply

BLOCK: Final = 1 << WIRE_BLOCK_BITS
NEW: Final[int] = source_of(1, 0)
OTHER: Final[int] = source_of(1, 1)
COPIES: Final[int] = source_of(1, 0, replay=True)
INPUTS: Final = {NEW: 1, OTHER: 1, COPIES: 1}


@given(st.dictionaries(st.integers(1, 6), st.integers(0, 9), max_size=5), st.integers(-1, 30))
def test_a_budget_is_spent_and_no_source_gets_two_more_than_another_that_could_take_more(
    available: Mapping[int, int], budget: int
) -> None:
    shares = fair_shares(available, budget)
    assert sum(shares.values()) == min(max(0, budget), sum(available.values()))
    assert all(0 < share <= available[source] for source, share in shares.items())
    assert list(shares) == sorted(shares)
    for source, count in available.items():
        if shares.get(source, 0) < count:
            assert max(shares.values(), default=0) - shares.get(source, 0) <= 1


def test_what_cannot_be_divided_goes_to_those_that_have_most() -> None:
    assert fair_shares({1: 9, 2: 9, 3: 9}, 5) == {1: 1, 2: 2, 3: 2}
    assert fair_shares({1: 9, 2: 5, 3: 1}, 4) == {1: 2, 2: 1, 3: 1}


def shared(sharing: Sharing, counts: Mapping[int, int], room: int | None, **rooms: int) -> dict[int, int]:
    """Share a room out, of the batch or of an input, and take what is given."""
    of = Room(room, {1: rooms["input"]} if "input" in rooms else {1: 10**6})
    shares = sharing.share_out(counts, INPUTS, of)
    sharing.record_shares(counts, INPUTS, of, shares)
    return shares


BOTH: Final = {NEW: 10, COPIES: 10}


@pytest.mark.parametrize("kind", ["batch", "input"])
def test_what_is_owed_to_new_records_changes_only_where_copies_compete_with_them(kind: str) -> None:
    """New records get every fourth room for one."""

    def of(sharing: Sharing, counts: Mapping[int, int], room: int) -> dict[int, int]:
        return shared(sharing, counts, room) if kind == "batch" else shared(sharing, counts, None, input=room)

    alone: Mapping[int, int]
    for alone, room in (
        ({NEW: 0, COPIES: 10}, 3),
        ({COPIES: 10}, 3),
        ({NEW: 1, COPIES: 7}, 8),
    ):
        sharing = Sharing()
        of(sharing, alone, room)
        assert of(sharing, BOTH, 1) == {COPIES: 1}, "nothing was owed"
    for alone in ({NEW: 10, COPIES: 0}, {NEW: 10}):
        sharing = Sharing()
        assert [of(sharing, BOTH, 1) for _ in range(3)] == [{COPIES: 1}] * 3
        assert of(sharing, alone, 3) == {NEW: 3}
        assert of(sharing, BOTH, 1) == {NEW: 1}, "what was owed stays owed"
        assert of(sharing, BOTH, 1) == {COPIES: 1}


def supply(source: int, *runs: tuple[int, int], seen: Sighting | None = None) -> Supply:
    return Supply(source, [PositionRun(*run) for run in runs], seen)


def intake(room: Room, *supplies: Supply) -> BatchIntake:
    return BatchIntake(supplies, INPUTS, room, Sharing())


@pytest.mark.parametrize(
    ("counts", "total", "is_limited"),
    [((5, 5), 10, False), ((5, 5), 9, True), ((1, 9), 9, True), ((1, 1), 1, True), ((3, 3), None, False)],
)
def test_a_batch_is_limited_where_one_source_gets_less_than_it_has(
    counts: tuple[int, int], total: int | None, is_limited: bool
) -> None:
    batch = intake(Room(total, {1: 10**6}), supply(NEW, (0, counts[0])), supply(OTHER, (0, counts[1])))
    assert batch.is_limited == is_limited


@pytest.mark.parametrize(("total", "granted"), [(0, 0), (3, 3), (None, 5)])
def test_copies_that_a_batch_has_already_are_granted_as_far_as_there_is_room(
    total: int | None, granted: int
) -> None:
    batch = intake(Room(total, {1: 10**6}, chosen={COPIES: 5}), supply(NEW, (0, 0)))
    assert batch.granted_copies == granted


def test_each_source_is_looked_at_for_its_share_and_for_one_record_at_least() -> None:
    batch = intake(Room(3, {1: 10**6}), supply(NEW, (0, 9)), supply(OTHER, (0, 9)))
    assert batch.records_to_find() == {NEW: 1, OTHER: 2}
    assert intake(Room(0, {1: 10**6}), supply(NEW, (0, 9))).records_to_find() == {NEW: 1}


def test_a_source_that_gets_all_that_it_may_ends_there_and_not_at_a_block() -> None:
    """A cap is exact; where the room ends before that, whole blocks fold fastest."""
    for total, end in ((None, 40_000), (39_000, BLOCK)):
        batch = intake(Room(total, {1: 10**6}, caps={NEW: 40_000}), supply(NEW, (0, 100_000)))
        assert batch.take()[NEW].ranges == (SourceRun(NEW, 0, end),)


def test_a_run_that_is_taken_to_its_end_does_not_end_at_a_block() -> None:
    """What lies between would be passed over, since the next run follows."""
    portion = supply(NEW, (0, 40_000), (50_000, 90_000)).take(60_000, ends_with_block=True)
    assert portion.ranges == (SourceRun(NEW, 0, 40_000), SourceRun(NEW, 50_000, 2 * BLOCK))


@pytest.mark.parametrize(("count", "end"), [(400, BLOCK), (401, BLOCK + 101), (300, BLOCK), (299, BLOCK - 1)])
def test_a_batch_ends_at_a_block_where_three_quarters_of_its_records_are_below(count: int, end: int) -> None:
    start = BLOCK - 300
    portion = supply(NEW, (start, 2 * BLOCK)).take(count, ends_with_block=True)
    assert portion.ranges == (SourceRun(NEW, start, end),)


@pytest.mark.parametrize(("above", "is_cut"), [(1, True), (2, False)])
def test_where_records_are_seen_they_count_and_not_their_positions(above: int, is_cut: bool) -> None:
    """Three below the block's end and one above it; or four above three, of which two are left out."""
    below = 3 if is_cut else 2
    records = np.array([*range(BLOCK - below, BLOCK), *range(BLOCK, BLOCK + 4)], np.int64)
    seen = Sighting(BLOCK - 10, BLOCK + 50, records)
    portion = supply(NEW, (BLOCK - 10, BLOCK + 50), seen=seen).take(
        below + (1 if is_cut else above - 1), ends_with_block=True
    )
    assert portion.ranges[-1].end == (BLOCK if is_cut else BLOCK + 1)


def test_a_sighting_moves_with_its_records() -> None:
    moved = Sighting(5, 9, np.array([6, 8], np.int64)).moved(100)
    assert (moved.start, moved.end, moved.records.tolist()) == (105, 109, [106, 108])


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8)), max_size=8), st.integers(0, 30))
def test_a_cursor_knows_what_is_free(uses: list[tuple[int, int]], end: int) -> None:
    cursor = SourceCursor(0, 0)
    used: set[int] = set()
    for start, length in uses:
        if length and not used & set(range(start, start + length)):
            cursor.mark_initialised(start, start + length)
            used |= set(range(start, start + length))
    free = [p for run in cursor.uninitialised_runs(end) for p in range(*run)]
    assert free == [p for p in range(end) if p not in used]
    assert cursor.count_uninitialised_below(end) == len(free)
    assert cursor.first_uninitialised == next(p for p in range(40) if p not in used)
    assert cursor.next == max(used, default=-1) + 1


def test_without_any_answer_nobody_owns_a_group_and_its_clock_is_0() -> None:
    answers = Answers("g", "me", 2, ())
    assert (answers.owner, answers.highest_clock, answers.is_complete(0)) == (SessionName(0, ""), 0, False)
