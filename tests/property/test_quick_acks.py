"""The reader of `Acks` that copies nothing agrees with the generic decoder, or leaves the record to it."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from acker.wire.codec import RUNS_MAX, read_acks, wire_codec
from acker.wire.events import Acks, PositionRun

CODEC = wire_codec()
HEADER = CODEC.header(Acks)

longs = st.integers(-(1 << 63), (1 << 63) - 1)
runs = st.lists(st.builds(PositionRun, longs, longs), max_size=RUNS_MAX + 2).map(tuple)
packed = st.binary(max_size=40)
records = st.builds(
    Acks, st.text(), longs, st.text(), st.text(), longs, st.integers(-(1 << 31), (1 << 31) - 1), longs,
    runs, packed, packed, runs, packed, longs,
)  # fmt: skip


@given(records)
def test_every_record_reads_as_the_generic_decoder_reads_it(record: Acks) -> None:
    """One with many runs is left to it."""
    found = read_acks(CODEC.encode(record), HEADER)
    if max(len(record.runs), len(record.absent)) > RUNS_MAX:
        assert found is None
    else:
        assert found == record


@given(records, st.data())
def test_what_is_cut_short_or_goes_on_is_left_to_the_generic_decoder(
    record: Acks, data: st.DataObject
) -> None:
    """Which says what is wrong with it."""
    value = CODEC.encode(record)
    end = data.draw(st.integers(0, len(value) - 1))
    assert read_acks(value[:end], HEADER) is None
    assert read_acks(value + b"\0", HEADER) is None


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_left(rubbish: bytes) -> None:
    """Never an error."""
    found = read_acks(HEADER + rubbish, HEADER)
    assert found is None or CODEC.decode(HEADER + rubbish) == found
