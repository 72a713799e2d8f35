"""What a copy's headers say of the emissions before it, against what anybody may have written there."""

from __future__ import annotations

from itertools import product

import pytest

from acker.identity import OFFSET_MAX
from replay.records.headers import (
    ATTEMPT_MAX,
    Lineage,
    build_headers,
    our_values,
    parse_lineage,
    parse_location,
)

COUNTS = (None, b"0", b"1", b"2", b"5", b"1000000", b"1000001", b"many")


def number_of(value: bytes | None, default: int) -> int:
    """Read a count as the table in `replay.records.headers` says: what no worker wrote is missing."""
    if value is None or not value.isdigit() or int(value) > ATTEMPT_MAX:
        return default
    return int(value)


@pytest.mark.parametrize("attempt", COUNTS)
def test_no_more_emissions_ended_in_other_ways_than_there_were_before_this_one(attempt: bytes | None) -> None:
    """However the four counts contradict each other: the first ones are believed."""
    for abandoned, timed_out, held in product(COUNTS, repeat=3):
        headers = (
            ("windhover.origin", b"t/1@5"),
            ("windhover.attempt", attempt),
            ("windhover.abandoned", abandoned),
            ("windhover.timed-out", timed_out),
            ("windhover.held", held),
        )
        found = parse_lineage(headers, "t", 0, 1)
        before = left = max(1, number_of(attempt, 1)) - 1
        expected = []
        for value in (abandoned, timed_out, held):
            expected.append(min(number_of(value, 0), left))
            left -= expected[-1]
        assert (found.attempt, found.abandoned, found.timed_out, found.held) == (before + 1, *expected)
        assert found.abandoned + found.timed_out + found.held < found.attempt
        assert found == parse_lineage(build_headers(found), "t", 0, 1), "it is the same when it is read again"


@pytest.mark.parametrize("counts", list(product((0, 1, 3), repeat=3)))
def test_each_count_that_a_worker_wrote_is_read_again(counts: tuple[int, int, int]) -> None:
    abandoned, timed_out, held = counts
    written = Lineage(
        "t/1@5", sum(counts) + 1, abandoned, 7, "FAILED", "x", "it", timed_out, held, "id/1@5#0"
    )
    assert parse_lineage(build_headers(written), "t", 0, 1) == written


@pytest.mark.parametrize(
    ("offset", "is_place"), [(0, True), (OFFSET_MAX - 1, True), (OFFSET_MAX, True), (OFFSET_MAX + 1, False)]
)
def test_a_place_lies_in_a_log_that_can_be_as_long(offset: int, is_place: bool) -> None:
    assert parse_location(f"t/1@{offset}") == (("t", 1, offset) if is_place else None)


@pytest.mark.parametrize(
    ("headers", "values"),
    [
        ((), {}),
        ((("trace", b"1"),), {}),
        ((("windhover.cause", None),), {}),
        ((("trace", None), ("windhover.cause", b"x"), ("other", b"y")), {"windhover.cause": b"x"}),
        ((("windhover.own", b"0"), ("other", b"y"), ("windhover.cause", None)), {}),
        ((("windhover.own", b"0"), ("other", b"y"), ("windhover.cause", b"x")), {"windhover.cause": b"x"}),
        ((("windhover.cause", b"0"), ("windhover.own", b"1")), {}),
        ((("a", b"0"), ("windhover.cause", b"x"), ("windhover.own", b"2")), {}),
    ],
)
def test_only_values_under_names_of_ours_are_ours(
    headers: tuple[tuple[str, bytes | None], ...], values: dict[str, bytes]
) -> None:
    """Those behind the border alone, and none of another's name; the border may be the last header."""
    assert our_values(headers) == values
