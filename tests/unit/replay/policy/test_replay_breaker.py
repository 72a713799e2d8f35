"""The breaker."""

from __future__ import annotations

from fractions import Fraction

import pytest

from replay.policy.breaker import Breaker

HOUR_MS = 3_600_000


def breaker(
    max_ratio: float = 1.0, max_consecutive: int = 1_000, dead_min: int = 10, settled_min: int = 0
) -> Breaker:
    return Breaker(
        max_ratio=max_ratio,
        max_consecutive=max_consecutive,
        window_ms=60_000,
        dead_min=dead_min,
        settled_min=settled_min,
    )


def test_as_many_in_a_row_may_die_as_max_consecutive_says() -> None:
    """P62"""
    one = breaker(max_consecutive=3)
    assert one.allow_letters_or_open(0) == 3
    one.count_dead(2, 0)
    assert one.allow_letters_or_open(0) == 1
    one.count_dead(1, 0)
    assert one.allow_letters_or_open(0) == 0
    assert "max_consecutive 3" in one.why
    one.close()
    assert (one.allow_letters_or_open(0), one.why) == (3, "")


def test_a_root_that_is_acked_begins_the_row_anew() -> None:
    one = breaker(max_consecutive=3)
    one.count_dead(3, 0)
    one.count_acked(1, 0)
    assert one.allow_letters_or_open(0) == 3


@pytest.mark.parametrize("twentieths", range(1, 20))
def test_just_so_many_may_die_that_the_share_is_not_above_the_ratio(twentieths: int) -> None:
    """A ratio such as 0.7 has no exact float: 139 of 199 dead allowed none, and 140 of 200 are 0.7."""
    ratio = Fraction(twentieths, 20)
    for settled in range(1, 61):
        for dead in range(1, settled + 1):
            one = breaker(max_ratio=float(ratio), max_consecutive=100_000, dead_min=0)
            one.count_dead(dead, 0)
            one.count_acked(settled - dead, 0)
            allowed = one.allow_letters_or_open(0)
            share_with_one_more = Fraction(dead + allowed + 1, settled + allowed + 1)
            assert share_with_one_more > ratio, (settled, dead, allowed)
            assert not allowed or Fraction(dead + allowed, settled + allowed) <= ratio, (
                settled,
                dead,
                allowed,
            )


def test_the_share_of_the_window_bounds_what_may_die() -> None:
    """P62"""
    one = breaker(max_ratio=0.1)
    one.count_acked(900, 0)
    assert one.allow_letters_or_open(0) == 100
    one.count_dead(100, 0)
    assert one.allow_letters_or_open(0) == 0
    assert one.why.startswith("100 of 1000 roots")
    assert one.why.endswith("(max_ratio 0.1)")


def test_few_dead_letters_never_open_the_breaker_by_their_share() -> None:
    one = breaker(max_ratio=0.0, dead_min=10)
    one.count_dead(9, 0)
    assert one.allow_letters_or_open(0) == 1


def test_a_stream_that_is_too_small_to_tell_never_opens_the_breaker_by_its_share() -> None:
    one = breaker(max_ratio=0.1, settled_min=1_000)
    one.count_acked(100, 0)
    one.count_dead(899, 0)
    assert one.allow_letters_or_open(0) == 1
    one.count_dead(1, 0)
    assert one.allow_letters_or_open(0) == 0


def test_what_is_older_than_the_window_does_not_count() -> None:
    one = breaker(max_ratio=0.1)
    one.count_dead(50, 0)
    assert one.allow_letters_or_open(59_999) == 0
    assert one.allow_letters_or_open(61_000) == 10


def test_a_clock_that_steps_back_does_no_harm() -> None:
    one = breaker(max_ratio=0.1)
    one.count_acked(90, 10_000)
    one.count_dead(1, 2_000)
    assert one.allow_letters_or_open(1_000) == 9


def test_how_near_it_is_to_open_follows_the_nearer_of_its_two_rules() -> None:
    one = breaker(max_consecutive=4, dead_min=400)
    assert one.used_share(0) == 0
    one.count_dead(1, 0)
    assert one.used_share(0) == 0.25
    one.count_dead(3, 0)
    assert (one.used_share(0), one.why) == (1, ""), "nothing is paused before a record is to die"
    one.count_acked(1, 0)
    assert one.used_share(0) == 0.01, "4 of the 400 that may die in a window whatever their share"

    one = breaker(max_ratio=0.1)
    one.count_acked(900, 0)
    one.count_dead(80, 0)
    assert 0.7 < one.used_share(0) < 0.9
    assert one.used_share(60_001) < 0.1, "they have left the window"


def test_a_small_stream_opens_the_breaker_by_the_share_of_its_last_roots() -> None:
    """D603: ten records an hour, of which each second one dies; a minute has none of them or one."""
    small = breaker(max_ratio=0.1, dead_min=20, settled_min=100)
    settled = 0
    while small.allow_letters_or_open(settled * HOUR_MS // 10) and settled < 200:
        now_ms = settled * HOUR_MS // 10
        if settled % 2:
            small.count_dead(1, now_ms)
        else:
            small.count_acked(1, now_ms)
        settled += 1
    assert settled == 100
    assert small.why == "50 of 100 roots settled within 10h became dead letters (max_ratio 0.1)"


def test_what_a_small_stream_settled_before_its_last_roots_does_not_count() -> None:
    """D603: a bad day is over when a hundred were acked behind it."""
    small = breaker(max_ratio=0.1, dead_min=20, settled_min=100)
    small.count_acked(90, 0)
    small.count_dead(19, 0)
    assert small.allow_letters_or_open(HOUR_MS) == 1
    for hour in range(1, 11):
        small.count_acked(10, hour * HOUR_MS)
    assert small.allow_letters_or_open(11 * HOUR_MS) == 20
    assert small.used_share(11 * HOUR_MS) == 0


def test_a_busy_stream_counts_its_last_minute_alone() -> None:
    """D603: it settles enough roots in that."""
    busy = breaker(max_ratio=0.1, dead_min=20, settled_min=100)
    busy.count_dead(50, 0)
    busy.count_acked(1_000, 59_000)
    assert busy.allow_letters_or_open(61_000) == 111


def test_how_much_it_remembers_is_bounded() -> None:
    """D603: by as many seconds as the least number of roots, beside those of the window."""
    small = breaker(max_ratio=0.1, dead_min=20, settled_min=100)
    for second in range(10_000):
        small.count_acked(1, second * 10_000)
        small.allow_letters_or_open(second * 10_000 + 5_000)
    assert len(small._seconds) <= 100 + 60


def test_how_much_it_remembers_is_bounded_though_nothing_is_lost() -> None:
    """D603: nobody asks for the room then."""
    small = breaker(max_ratio=0.1, dead_min=20, settled_min=100)
    for second in range(1_000):
        small.count_acked(1, second * 10_000)
    assert len(small._seconds) <= 100 + 60


def test_a_breaker_that_has_room_for_one_more_is_closed() -> None:
    in_a_row = breaker(max_consecutive=2)
    in_a_row.count_dead(1, 0)
    assert (in_a_row.allow_letters_or_open(0), in_a_row.why) == (1, "")
    in_window = breaker(max_ratio=0.5, dead_min=0)
    in_window.count_acked(2, 0)
    in_window.count_dead(1, 0)
    assert (in_window.allow_letters_or_open(0), in_window.why) == (1, "")


def test_a_person_who_resumes_an_input_lets_it_count_anew_in_a_row_and_in_its_window() -> None:
    """A closed breaker that remembered its window would open again at the next record."""
    one = breaker(max_ratio=0.1)
    one.count_acked(900, 0)
    one.count_dead(100, 0)
    assert one.allow_letters_or_open(0) == 0
    one.close()
    assert (one.allow_letters_or_open(0), one.used_share(0), one.why) == (10, 0, "")


@pytest.mark.parametrize(("settled_ms", "leaves_ms"), [(5_000, 65_000), (5_001, 65_000), (5_999, 65_000)])
def test_roots_leave_the_window_together_with_their_second(settled_ms: int, leaves_ms: int) -> None:
    """A window of a minute holds the second that began less than a minute ago."""
    one = breaker(max_ratio=0.1)
    one.count_dead(50, settled_ms)
    assert one.allow_letters_or_open(leaves_ms - 1) == 0
    assert one.allow_letters_or_open(leaves_ms) == 10


def test_the_roots_of_one_second_stay_together_where_few_settle() -> None:
    """The last three are two of one second, which has two more; all four count, or none."""
    small = breaker(max_ratio=0.5, dead_min=0, settled_min=3)
    small.count_dead(1, 0)
    small.count_dead(1, 400)
    small.count_dead(1, 999)
    small.count_acked(1, HOUR_MS)
    small.count_acked(1, HOUR_MS)
    assert small.used_share(2 * HOUR_MS) == 1
    assert small.why == ""
    assert small.allow_letters_or_open(2 * HOUR_MS) == 0
    assert small.why.startswith("3 of 5 roots")
