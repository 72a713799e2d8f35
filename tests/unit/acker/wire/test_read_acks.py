"""The quick reader of contributions: it reads what the generic decoder reads, or returns None."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acker.wire.codec import HEADER_BYTES, READ_BYTES_MAX, RUNS_MAX, read_acks, wire_codec
from acker.wire.events import Acks, Fails, PositionRun
from tests.support.garbage import values

CODEC = wire_codec()
HEADER = CODEC.header(Acks)
EMPTY = Acks("", 0, "", "", 0, 0, 0, (), b"", b"", (), b"", 0)
ONE_RUN = (PositionRun(5, 9),)


def read(acks: Acks) -> Acks | None:
    return read_acks(CODEC.encode(acks), HEADER)


def runs(count: int) -> tuple[PositionRun, ...]:
    return tuple(PositionRun(3 * number, 3 * number + 2) for number in range(count))


@settings(max_examples=200, deadline=None)
@given(acks=values(Acks), more=st.binary(min_size=1, max_size=3))
def test_what_was_encoded_is_read_and_nothing_behind_it(acks: Acks, more: bytes) -> None:
    """A longer record would have to be quarantined, so it is left to the generic decoder."""
    expected = acks if max(len(acks.runs), len(acks.absent)) <= RUNS_MAX else None
    assert read(acks) == expected
    assert read_acks(CODEC.encode(acks) + more, HEADER) is None


@pytest.mark.parametrize("field", ["seq", "epoch", "touched_at"])
@pytest.mark.parametrize("bits", [0, 1, 5, 6, 7, 12, 13, 14, 31, 62, 63])
def test_numbers_of_any_length_are_read(field: str, bits: int) -> None:
    """One byte has room for six bits and the sign, two for thirteen, ten for all."""
    for number in {(1 << bits) - 1, min(1 << bits, (1 << 63) - 1), -(1 << bits), 1 - (1 << bits)}:
        acks = replace(EMPTY, **{field: number})
        assert read(acks) == acks


@pytest.mark.parametrize("field", ["runs", "absent"])
@pytest.mark.parametrize("count", [0, 1, 2, RUNS_MAX - 1, RUNS_MAX])
def test_a_few_runs_are_read(field: str, count: int) -> None:
    acks = replace(EMPTY, **{field: runs(count)})
    assert read(acks) == acks


@pytest.mark.parametrize("field", ["runs", "absent"])
def test_many_runs_are_left_to_the_generic_decoder(field: str) -> None:
    assert read(replace(EMPTY, **{field: runs(RUNS_MAX + 1)})) is None


def test_packed_columns_are_views_and_texts_are_not() -> None:
    acks = replace(EMPTY, lane="län", group="g" * 200, session="s", positions=b"p" * 80, values=b"v" * 64,
                   touched=b"t" * 8)  # fmt: skip
    result = read(acks)
    assert result == acks
    assert isinstance(result.positions, memoryview)
    assert [bytes(result.positions), bytes(result.values), bytes(result.touched)] == [
        acks.positions, acks.values, acks.touched,
    ]  # fmt: skip


@pytest.mark.parametrize(("more", "is_read"), [(0, True), (1, False)])
def test_records_are_read_up_to_the_size_that_the_decoder_reads(more: int, is_read: bool) -> None:
    """A larger one is refused there, with words."""
    others = len(CODEC.encode(replace(EMPTY, values=bytes(1_000_000)))) - 1_000_000
    acks = replace(EMPTY, values=bytes(READ_BYTES_MAX - others + more))
    assert len(CODEC.encode(acks)) == READ_BYTES_MAX + more
    assert (read(acks) == acks) is is_read
    assert (read(acks) is None) is not is_read


def test_a_record_of_another_kind_is_not_read() -> None:
    body = CODEC.encode(EMPTY)[HEADER_BYTES:]
    assert read_acks(CODEC.header(Fails) + body, HEADER) is None
    assert read_acks(b"", HEADER) is None


LANE, SEQ, OTHERS = b"\x00", b"\x02", bytes(11)
"""The parts of `EMPTY` with 1 as its seq: each of the other eleven is one zero."""


@pytest.mark.parametrize(
    ("body", "is_read"),
    [
        (LANE + SEQ + OTHERS, True),
        # a text of -1 bytes, whose end would be the number behind it
        (b"\x01" + OTHERS + b"\x00", False),
        (b"\x01" + OTHERS, False),
        # a text that ends behind the record, and one that ends with it
        (b"\x80\x01" + SEQ + OTHERS, False),
        (b"\x18" + SEQ + OTHERS, False),
        # numbers of eleven bytes; of ten with the bits 64, 65 and 63; of nine
        (LANE + b"\x82" + b"\x80" * 9 + b"\x00" + OTHERS, False),
        (LANE + b"\x80" * 9 + b"\x02" + OTHERS, False),
        (LANE + b"\x80" * 9 + b"\x04" + OTHERS, False),
        (LANE + b"\x80" * 9 + b"\x01" + OTHERS, True),
        (LANE + b"\x82" + b"\x80" * 7 + b"\x00" + OTHERS, True),
        # no UTF-8
        (b"\x02\xff" + SEQ + OTHERS, False),
        # runs: a block with its size in bytes, -1 of 2; one run and another block, one run and the end
        (LANE + SEQ + bytes(5) + b"\x01\x04\x0a\x12\x00" + bytes(5), False),
        (LANE + SEQ + bytes(5) + b"\x02\x0a\x12\x02\x0a\x12\x00" + bytes(5), False),
        (LANE + SEQ + bytes(5) + b"\x02\x0a\x12\x02" + bytes(5), False),
        (LANE + SEQ + bytes(5) + b"\x02\x0a\x12\x04" + bytes(5), False),
        (LANE + SEQ + bytes(5) + b"\x02\x0a\x12\x00" + bytes(5), True),
        # cut off
        (LANE + SEQ + OTHERS[1:], False),
        (b"", False),
    ],
)  # fmt: skip
def test_what_is_unusual_is_left_to_the_generic_decoder(body: bytes, is_read: bool) -> None:
    assert (read_acks(HEADER + body, HEADER) is not None) is is_read


def test_a_run_is_read_with_both_its_ends() -> None:
    body = LANE + SEQ + bytes(5) + b"\x02\x0a\x12\x00" + bytes(5)
    assert read_acks(HEADER + body, HEADER) == replace(EMPTY, seq=1, runs=ONE_RUN)
