"""The headers of a replayed record."""

from __future__ import annotations

import pytest

from acker.wire.causes import clipped
from replay.records.headers import (
    Lineage,
    build_headers,
    parse_lineage,
    parse_location,
    without_ours,
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


def test_only_headers_of_the_given_prefixes_are_left_out() -> None:
    headers = (("a", b"1"), ("windhover.attempt", b"1"), ("a", b"2"), ("__dlq.errors.topic", b"t"))
    assert without_ours(headers) == (("a", b"1"), ("a", b"2"), ("__dlq.errors.topic", b"t"))
    assert without_ours(headers, "windhover.", "__dlq.errors.") == (("a", b"1"), ("a", b"2"))


def test_a_place_in_a_log_is_split_into_its_parts() -> None:
    assert parse_location("my.topic-1/12@34") == ("my.topic-1", 12, 34)
    assert parse_location("nonsense") is None
