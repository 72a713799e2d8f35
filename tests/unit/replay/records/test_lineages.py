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

MOST = b"%d" % ATTEMPT_MAX
Counts = tuple[int, int, int]
CONTRADICTIONS: list[tuple[bytes | None, tuple[bytes | None, ...], int, Counts]] = [
    (None, (None, None, None), 1, (0, 0, 0)),
    (b"5", (None, None, None), 5, (0, 0, 0)),
    (b"5", (b"many", b"-1", b""), 5, (0, 0, 0)),
    (b"5", (b"1", b"1", b"1"), 5, (1, 1, 1)),
    (b"5", (b"4", b"9", b"9"), 5, (4, 0, 0)),
    (b"5", (b"9", b"9", b"9"), 5, (4, 0, 0)),
    (b"5", (b"0", b"9", b"9"), 5, (0, 4, 0)),
    (b"5", (b"0", b"0", b"9"), 5, (0, 0, 4)),
    (b"5", (b"1", b"9", b"9"), 5, (1, 3, 0)),
    (b"5", (b"1", b"2", b"9"), 5, (1, 2, 1)),
    (b"5", (b"2", b"1", b"9"), 5, (2, 1, 1)),
    (b"1", (b"9", b"9", b"9"), 1, (0, 0, 0)),
    (b"0", (b"9", b"9", b"9"), 1, (0, 0, 0)),
    (None, (b"2", None, None), 1, (0, 0, 0)),
    (MOST, (MOST, b"1", None), ATTEMPT_MAX, (ATTEMPT_MAX - 1, 0, 0)),
    (MOST, (None, MOST, None), ATTEMPT_MAX, (0, ATTEMPT_MAX - 1, 0)),
    (MOST, (b"1000001", b"1", MOST), ATTEMPT_MAX, (0, 1, ATTEMPT_MAX - 2)),
    (b"1000001", (b"1", b"1", b"1"), 1, (0, 0, 0)),
]
"""What headers say of the attempt and of those that were abandoned, timed out and blocked; what counts."""


@pytest.mark.parametrize(("attempt", "counts", "is_attempt", "are_counts"), CONTRADICTIONS)
def test_no_more_emissions_ended_in_other_ways_than_there_were_before_this_one(
    attempt: bytes | None, counts: tuple[bytes | None, ...], is_attempt: int, are_counts: Counts
) -> None:
    """However the counts contradict each other: the first ones are believed."""
    names = ("windhover.abandoned", "windhover.timed-out", "windhover.held")
    headers = (("windhover.attempt", attempt), *zip(names, counts, strict=True), ("windhover.cause", b"x"))
    found = parse_lineage(headers, "t", 0, 1)
    assert (found.attempt, (found.abandoned, found.timed_out, found.held)) == (is_attempt, are_counts)
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
