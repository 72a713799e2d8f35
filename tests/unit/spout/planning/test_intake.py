"""How much a batch takes, from where: cursors, fair shares, gates, and the pace."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acker.identity import acker_partition, position_at, source_of
from acker.root_sets.position_set import PositionSet
from acker.wire.events import PositionRun, SourceRun
from spout.planning.intake import (
    BatchIntake,
    Room,
    Sharing,
    SourceCursor,
    cursor_of,
    fair_shares,
)
from spout.planning.journal import SourceMark
from spout.planning.pace import FIRST_BATCH_RECORDS, PROBE_RECORDS, TIMEOUT_SHARE, BatchPace
from spout.planning.supply import Supply, joined_portions

A, B = source_of(1, 0), source_of(1, 1)
REPLAY = source_of(1, 0, replay=True)
IDS = {A: 1, B: 1, REPLAY: 1}
BLOCK = 1 << 16


def cursors(**next_: int) -> dict[int, SourceCursor]:
    """Make cursors that begin at 0, for a, b and replay."""
    return {{"a": A, "b": B, "replay": REPLAY}[name]: SourceCursor(0, at) for name, at in next_.items()}


def taken(found: dict[int, SourceCursor], ends: dict[int, int], room: Room) -> list[SourceRun]:
    """Return what one batch takes, of which nothing was seen before."""
    supplies = [
        Supply(source, cursor.uninitialised_runs(cursor.position_of(ends[source])))
        for source, cursor in found.items()
    ]
    portions = BatchIntake(supplies, IDS, room, Sharing()).take()
    return list(joined_portions(portions.values()).ranges)


@given(st.dictionaries(st.integers(0, 9), st.integers(0, 100)), st.integers(0, 300))
def test_shares_use_the_budget_and_nobody_gets_more_than_it_has(
    available: dict[int, int], budget: int
) -> None:
    """And who gets less than another has no more, give or take what cannot be divided."""
    shares = fair_shares(available, budget)
    assert sum(shares.values()) == min(budget, sum(available.values()))
    assert all(0 < share <= available[source] for source, share in shares.items())
    for source, count in available.items():
        got = shares.get(source, 0)
        if got < count:
            assert all(other <= got + len(available) for other in shares.values())


def test_a_share_ends_with_a_block_when_that_gives_up_less_than_a_quarter() -> None:
    """Whole blocks fold fastest."""
    ends = [
        Supply(A, [PositionRun(start, 1_000_000)]).take(count, ends_with_block=True).end_of(A)
        for start, count in ((0, 40_000), (0, 60_000), (32_768, 100))
    ]
    assert ends == [32_768, 60_000, 32_868]


def test_replays_come_before_new_records() -> None:
    """docs/design/protocol.md, section 5.1; P9."""
    found = taken(cursors(a=0, b=0, replay=5), {A: 100, B: 100, REPLAY: 25}, Room(60, {1: 1_000}))
    assert found == [SourceRun(A, 0, 20), SourceRun(B, 0, 20), SourceRun(REPLAY, 5, 25)]


def test_never_more_is_taken_than_may_be_pending() -> None:
    """S65: with the window full nothing is taken."""
    assert taken(cursors(a=0), {A: 100}, Room(None, {1: 0})) == []
    assert taken(cursors(a=0), {A: 100}, Room(None, {1: 30})) == [SourceRun(A, 0, 30)]


def test_a_partition_without_records_leaves_its_share_to_the_others() -> None:
    """S121: one partition never blocks another."""
    assert taken(cursors(a=0, b=7), {A: 100, B: 7}, Room(50, {1: 1_000})) == [SourceRun(A, 0, 50)]


def test_gaps_are_taken_before_what_lies_above() -> None:
    """What a crash between two parts left out comes first."""
    cursor = SourceCursor(0, 100, PositionSet([(20, 30), (50, 60)]))
    found = taken({A: cursor}, {A: 200}, Room(25, {1: 1_000}))
    assert found == [SourceRun(A, 20, 30), SourceRun(A, 50, 60), SourceRun(A, 100, 105)]
    for run in found:
        cursor.mark_initialised(run.start, run.end)
    assert cursor.mark() == SourceMark(0, 105)


def test_everything_is_taken_when_there_is_room_for_everything() -> None:
    """Nothing is left behind for the sake of a block's end."""
    cursor = SourceCursor(0, 40_000, PositionSet([(0, 30_000)]))
    found = taken({A: cursor}, {A: 80_000}, Room(None, {1: 1_000_000}))
    assert found == [SourceRun(A, 0, 30_000), SourceRun(A, 40_000, 80_000)]


def test_an_end_below_the_cursor_takes_nothing() -> None:
    """An end that went back, and a generation whose offsets begin anew."""
    assert taken(cursors(a=100), {A: 40}, Room(None, {1: 10})) == []
    at = position_at(3, 10)
    found = taken({A: SourceCursor(at, at)}, {A: 12}, Room(None, {1: 10}))
    assert found == [SourceRun(A, at, at + 2)]


@given(st.integers(0, 200_000), st.integers(1, 5), st.data())
def test_a_position_is_free_at_or_above_from_and_the_watermark_of_its_own_partition(
    from_: int, partitions: int, data: st.DataObject
) -> None:
    """Section 4, "Take and Taken"."""
    marks = {p: data.draw(st.one_of(st.just(0), st.integers(0, 600_000))) for p in range(partitions)}
    cursor = cursor_of(A, from_, marks, partitions)
    end = 700_000
    free = PositionSet(cursor.uninitialised_runs(end))
    edges = {from_, from_ - 1, *marks.values(), *(m - 1 for m in marks.values()), *range(0, end, BLOCK)}
    for position in (p for p in edges if 0 <= p < end):
        mark = marks[acker_partition(A, position, partitions)]
        assert (position in free) == (position >= from_ and position >= mark)


def test_a_watermark_of_an_older_generation_leaves_the_new_one_free() -> None:
    """After `offsets reset` everything from the new beginning on is new."""
    at = position_at(1, 10)
    cursor = cursor_of(A, at, {0: 500, 1: position_at(1, 12)}, 2)
    owner = acker_partition(A, at, 2)
    assert cursor.first_uninitialised == (at if owner == 0 else at + 2)


def test_positions_used_out_of_order_leave_a_gap() -> None:
    """Decided before they were planned: what lies below stays free."""
    cursor = SourceCursor(0, 10)
    cursor.mark_initialised(20, 30)
    assert cursor.uninitialised_runs(40) == [PositionRun(10, 20), PositionRun(30, 40)]
    assert cursor.first_uninitialised == 10


def test_the_first_batch_is_small_and_the_next_fits_a_quarter_of_the_timeout() -> None:
    """docs/design/protocol.md, section 5.1: 10,000, then what the measured rate allows."""
    pace = BatchPace(30_000)
    assert pace.next_records_max() == FIRST_BATCH_RECORDS == 10_000
    pace.begin_batch(10_000, 0)
    assert pace.end_batch(1_500) == 1_500
    assert pace.end_batch(1_900) is None
    assert pace.next_records_max() == 60_000, "they took 1,250 ms, and the start of Spark the rest"


@pytest.mark.parametrize(
    ("took_ms", "second"), [(250, 600_000), (400, 375_000), (500, 300_000), (750, 150_000)]
)
def test_of_a_quick_first_batch_half_of_the_time_counts_as_fixed(took_ms: int, second: int) -> None:
    pace = BatchPace(30_000)
    pace.begin_batch(10_000, 0)
    pace.end_batch(took_ms)
    assert pace.next_records_max() == second


@pytest.mark.parametrize("took_ms", [1, 20, 400, 2_000, 7_500])
def test_the_second_batch_ends_within_half_of_the_timeout_if_all_time_was_its_records(took_ms: int) -> None:
    pace = BatchPace(30_000)
    pace.begin_batch(10_000, 0)
    pace.end_batch(took_ms)
    assert (pace.next_records_max() or 0) * took_ms / 10_000 <= 15_000


@pytest.mark.parametrize(
    ("timeout_ms", "first"),
    [(1_000, 10_000), (30_000, 10_000), (45_000, 15_000), (60_000, 20_000), (3_600_000, 20_000)],
)
def test_a_longer_timeout_has_room_for_a_larger_first_batch(timeout_ms: int, first: int) -> None:
    """One record for each 3 ms of it, between 10,000 and 20,000."""
    assert BatchPace(timeout_ms).next_records_max() == first


def test_a_trickle_does_not_make_the_next_batch_small() -> None:
    """Three records in 200 ms say nothing about a rate."""
    pace = BatchPace(30_000)
    pace.begin_batch(10_000, 0)
    pace.end_batch(500)
    pace.begin_batch(3, 1_000)
    pace.end_batch(1_200)
    assert (pace.next_records_max() or 0) >= 150_000


def paced(
    timeout_ms: int, fixed_ms: float, record_ms: float, batches: int, slow: dict[int, int] | None = None
) -> list[tuple[int, int]]:
    """Let batches run one after another, some of which take another time, and return records and ms."""
    pace, now_ms, ran = BatchPace(timeout_ms), 0, []
    for number in range(batches):
        count = pace.next_records_max() or 0
        took_ms = (slow or {}).get(number, round(fixed_ms + record_ms * count))
        pace.begin_batch(count, now_ms)
        now_ms += took_ms
        pace.end_batch(now_ms)
        ran.append((count, took_ms))
    return ran


def test_a_batch_that_took_too_long_makes_the_next_one_small() -> None:
    """However few records it had."""
    pace = BatchPace(4_000)
    pace.begin_batch(1_000, 0)
    pace.end_batch(500)
    pace.begin_batch(1_000, 1_000)
    pace.end_batch(3_000)
    assert pace.next_records_max() == 500


@pytest.mark.parametrize("fixed_ms", [100, 250, 400])
def test_a_first_batch_of_a_minute_is_not_judged_and_the_third_behind_it_is_large_again(
    fixed_ms: int,
) -> None:
    """At 100,000 records/s and a timeout of 5 s; nothing was warm."""
    sizes = [count for count, _ in paced(5_000, fixed_ms, 0.01, 7, {0: 60_000})]
    assert sizes[0] == FIRST_BATCH_RECORDS
    assert sizes[1] == PROBE_RECORDS
    assert sizes[3] >= FIRST_BATCH_RECORDS
    assert sizes[6] >= 60_000


def test_a_slow_batch_of_records_that_are_slow_makes_batches_small_for_good() -> None:
    """From 100,000 to 1,000 records/s: a quarter of 5 s holds a thousand."""
    pace, now_ms, took_ms = BatchPace(5_000), 0, []
    for number in range(14):
        count = pace.next_records_max() or 0
        pace.begin_batch(count, now_ms)
        took_ms.append(round(250 + count * (0.01 if number < 7 else 1)))
        now_ms += took_ms[-1]
        pace.end_batch(now_ms)
    assert took_ms[7] > 50_000
    assert all(500 < each <= 1_300 for each in took_ms[10:])


@settings(max_examples=200)
@given(
    timeout_ms=st.sampled_from([1_000, 5_000, 30_000]),
    fixed_share=st.floats(0, 0.5),
    records=st.integers(100, 1_000_000),
    slow_share=st.integers(1, 60),
)
def test_after_a_slow_batch_the_next_three_recover(
    timeout_ms: int, fixed_share: float, records: int, slow_share: int
) -> None:
    """Whatever is fixed, however fast the records are, and however slow the one batch was."""
    target_ms = timeout_ms / TIMEOUT_SHARE
    fixed_ms = fixed_share * target_ms
    record_ms = (target_ms - fixed_ms) / records
    ran = paced(timeout_ms, fixed_ms, record_ms, 20, {16: round(slow_share * target_ms)})
    assert max(count for count, _ in ran[17:]) >= 0.6 * min(count for count, _ in ran[12:16])
    assert max(took_ms for _, took_ms in ran[17:]) <= 2.1 * target_ms


def test_a_batch_that_is_all_overhead_does_not_make_the_next_one_smaller() -> None:
    """A machine so busy that every batch takes 4 s: shrinking would end at one record at a time."""
    pace = BatchPace(5_000)
    now_ms, sizes = 0, []
    for _ in range(12):
        count = min(pace.next_records_max() or 0, 2_500)
        sizes.append(count)
        pace.begin_batch(count, now_ms)
        now_ms += 4_000 + count // 2
        pace.end_batch(now_ms)
    assert min(sizes[5:]) > 1_000


def sizes_while(took_ms: Callable[[int, int], float], batches: int) -> list[int]:
    """Run batches under a timeout of 5 s; `took_ms` gets the number of one and its records."""
    pace, now_ms, sizes = BatchPace(5_000), 0, []
    for number in range(batches):
        sizes.append(pace.next_records_max() or 0)
        pace.begin_batch(sizes[-1], now_ms)
        now_ms += round(took_ms(number, sizes[-1]))
        pace.end_batch(now_ms)
    return sizes


def test_batches_that_get_faster_as_things_get_warm_grow_again() -> None:
    """Each one was faster and smaller than the one before, so that their size seemed to have done it."""

    def took_ms(number: int, count: int) -> float:
        return 28_500 if number == 0 else (1 + 3 * math.exp(-number / 10)) * (1_200 + count)

    sizes = sizes_while(took_ms, 40)
    assert max(sizes[:20]) == FIRST_BATCH_RECORDS
    assert min(sizes[-10:]) > 500


def test_a_fixed_time_above_the_target_lets_batches_hold_what_their_records_may_take() -> None:
    sizes = sizes_while(lambda _, count: 1_500 + count / 20, 20)
    assert min(sizes[-8:]) >= 10_000


def test_one_record_in_a_batch_is_never_the_end_of_it() -> None:
    """Slow batches in a row bring it there; where one record takes no less than many, more are tried."""
    slow = {2: 60_000, 3: 90_000, 4: 130_000, 5: 200_000, 6: 300_000, 7: 400_000}
    sizes = [count for count, _ in paced(5_000, 950, 0.1, 24, slow)]
    assert min(sizes) < 10
    assert max(sizes[8:]) >= 1_000


def test_slow_records_make_batches_small_whatever_the_overhead() -> None:
    """At 100 ms for a record and a timeout of 30 s, some 70 records are a quarter of it."""
    pace = BatchPace(30_000)
    now_ms = 0
    for _ in range(6):
        count = pace.next_records_max() or 0
        pace.begin_batch(count, now_ms)
        now_ms += 300 + 100 * count
        pace.end_batch(now_ms)
    assert 60 <= (pace.next_records_max() or 0) <= 80


def test_a_batch_that_ends_before_it_began_says_nothing_about_its_time() -> None:
    """The wall clock has stepped back: as one of 1 ms it would let the next one have a hundred million."""
    pace = BatchPace(30_000)
    pace.begin_batch(10_000, 60_000)
    assert pace.end_batch(50_000) is None
    assert pace.next_records_max() == FIRST_BATCH_RECORDS


def test_without_a_timeout_no_batch_is_too_large() -> None:
    """S61: 0 means never."""
    assert BatchPace(0).next_records_max() is None
