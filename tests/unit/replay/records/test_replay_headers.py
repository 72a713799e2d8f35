"""The headers of a replayed record."""

from __future__ import annotations

import pytest

from acker.wire.causes import clipped
from replay.records.dead_letter import OUR_PREFIXES
from replay.records.headers import (
    Lineage,
    build_headers,
    joined_headers,
    our_values,
    parse_lineage,
    parse_location,
    parted_headers,
)

FULL = Lineage("sentences/3@1042", 4, 2, 1_700_000_000_000, "FAILED", "ValueError: ünicode", "split")


def test_a_lineage_that_is_written_is_read_again() -> None:
    assert parse_lineage(build_headers(FULL), "sentences.g.replay", 3, 7) == FULL


@pytest.mark.parametrize("headers", [None, (), (("trace", b"1"),), (("windhover.attempt", None),)])
def test_a_record_that_tells_nothing_is_a_first_emission(
    headers: tuple[tuple[str, bytes | None], ...] | None,
) -> None:
    assert parse_lineage(headers, "sentences", 3, 7) == Lineage("sentences/3@7")


@pytest.mark.parametrize(
    "value", [b"", b"0", b"-1", b"1.5", b" 2", b"2\n", b"1e3", b"\xff", b"9" * 5_000, None]
)
def test_an_attempt_that_is_no_count_is_the_first(value: bytes | None) -> None:
    headers = (("windhover.attempt", value), ("windhover.reason", b"FAILED"))
    assert parse_lineage(headers, "t", 0, 1).attempt == 1


@pytest.mark.parametrize(
    "value", [b"", b"t", b"t/1", b"t/x@1", b"t/1@x", b"/1@2", b"a b/1@2", b"t/1@2\n", b"\xff/1@2"]
)
def test_an_origin_that_names_no_record_is_the_record_itself(value: bytes) -> None:
    assert parse_lineage((("windhover.origin", value),), "t", 0, 1).origin == "t/0@1"


def test_more_emissions_cannot_have_been_abandoned_than_there_were() -> None:
    headers = (("windhover.attempt", b"3"), ("windhover.abandoned", b"50"))
    assert parse_lineage(headers, "t", 0, 1).abandoned == 2


def test_of_a_header_that_comes_twice_the_last_counts() -> None:
    headers = (("windhover.attempt", b"3"), ("windhover.attempt", b"4"))
    assert parse_lineage(headers, "t", 0, 1).attempt == 4


def test_a_long_cause_is_cut_between_characters() -> None:
    long = Lineage("t/0@1", cause="ü" * 2_000)
    (cause,) = [value for name, value in build_headers(long) if name == "windhover.cause"]
    assert cause == ("ü" * 512).encode()
    assert clipped("üü", 3) == "ü"


def test_a_text_that_is_no_unicode_is_still_written() -> None:
    assert build_headers(Lineage("t/0@1", cause="\ud800"))[4] == ("windhover.cause", b"?")


def test_a_copy_of_an_earlier_version_is_parted_by_the_names_alone() -> None:
    """On it nothing that came with the record has a name that could be ours."""
    headers = (("a", b"1"), ("windhover.attempt", b"1"), ("a", b"2"), ("__dlq.errors.topic", b"t"))
    assert parted_headers(headers).original == (("a", b"1"), ("a", b"2"), ("__dlq.errors.topic", b"t"))
    assert parted_headers(headers, OUR_PREFIXES).original == (("a", b"1"), ("a", b"2"))


def test_a_record_without_headers_like_ours_gets_none_that_counts_them() -> None:
    """So its copies are to an earlier version what they always were."""
    own, ours = (("trace", b"1"), ("__dlq.errors.topic", b"t")), build_headers(FULL)
    assert joined_headers(own, ours) == own + ours


FORMER: tuple[tuple[str, bytes | None], ...] = (
    ("windhover.held", b"3"),
    ("windhover.timed-out", b"2"),
    ("windhover.first-emitted", b"5"),
    ("windhover.handled", b"REPLAYED"),
    ("windhover.note", None),
    ("a", b"1"),
    ("windhover.own", b"6"),
    ("windhover.own", b"1"),
    ("__dlq.errors.group", b"another"),
)
"""Headers of an earlier life: those that ours do not always have, and such as tell where ours begin."""


@pytest.mark.parametrize("prefixes", [("windhover.",), OUR_PREFIXES], ids=["copy", "letter"])
@pytest.mark.parametrize("count", range(len(FORMER) + 1))
def test_what_came_with_a_record_is_parted_from_ours_in_each_of_its_lives(
    count: int, prefixes: tuple[str, ...]
) -> None:
    """O1301: whatever it came with, and however often it was a copy or a dead letter before."""
    own, ours = FORMER[:count], build_headers(FULL)
    for _ in range(3):
        headers = joined_headers(own, ours, prefixes)
        assert parted_headers(headers, prefixes) == (own, ours)
        assert parse_lineage(headers, "sentences.g.replay", 3, 7) == FULL
        assert our_values(headers).keys() == dict(ours).keys()
        own = headers


def test_a_place_in_a_log_is_split_into_its_parts() -> None:
    assert parse_location("my.topic-1/12@34") == ("my.topic-1", 12, 34)
    assert parse_location("nonsense") is None


@pytest.mark.parametrize("value", [b"", b"0", b"2", b"-1", b"x", b"01", None])
def test_a_border_that_no_worker_wrote_is_none(value: bytes | None) -> None:
    """O1303: in a replay topic, to which anybody may write; then the names alone count."""
    headers = (("windhover.attempt", b"3"), ("windhover.own", value), ("a", b"1"))
    assert parted_headers(headers) == ((("a", b"1"),), headers[:2])
    assert parse_lineage(headers, "t", 0, 1).attempt == 3
