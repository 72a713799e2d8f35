"""Bytes of any kind where a record should be: a value or a `CodecError` comes out, in bounded memory."""

from __future__ import annotations

import pickle
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acker.errors import CodecError, TrackingError, UnknownVersion
from acker.service.state import (
    CARRIED_BYTES_MAX,
    STATE_BYTES_MAX,
    Carried,
    State,
    StatePart,
    Stored,
    StoredRange,
    state_codec,
    unpack_carried,
    unpack_ranges,
    unpack_state,
)
from acker.wire.checks import NAMED_MAX, wrong_acks
from acker.wire.codec import Codec, wire_codec
from acker.wire.events import Acks, Fails, Init, PositionRun, Take, Taken, Verdicts
from replay.records.due import Due, Progress, due_codec
from spout.publishing import blob
from spout.publishing.fold import TaskReport
from spout.tuples.failures import Cause
from tests.support.garbage import golden_records, mutated, values
from tests.support.reports import failures_of, task_report

BYTES_MAX = 20_000_000
"""What reading one short record may take at most."""

CODECS: dict[Codec[Any], tuple[type, ...]] = {
    wire_codec(): (Take, Taken, Init, Acks, Fails, Verdicts),
    state_codec(): (StatePart, State, Carried),
    due_codec(): (Due, Progress),
}
SEEDS = tuple(golden_records().values())
HUGE = b"\x80\x80\x80\x80\x80\x80\x80\x80\x20"  # 2^60


@pytest.mark.parametrize("codec", CODECS, ids=["wire", "state", "due"])
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_only_a_codec_error_comes_out(codec: Codec[Any], data: st.DataObject) -> None:
    """What does decode has fields of its types, or else it could not be encoded again."""
    headers = st.sampled_from([codec.header(kind) for kind in CODECS[codec]])
    found = data.draw(mutated(SEEDS) | st.builds(bytes.__add__, headers, st.binary(max_size=200)))
    try:
        value = codec.decode(found)
    except CodecError:
        return
    assert codec.decode(codec.encode(value)) == value


@pytest.mark.parametrize("codec", CODECS, ids=["wire", "state", "due"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_what_was_encoded_decodes_to_itself(codec: Codec[Any], data: st.DataObject) -> None:
    """Numbers at the edges of their types, too long names, positions in any order."""
    value = data.draw(st.one_of([values(kind) for kind in CODECS[codec]]))
    assert codec.decode(codec.encode(value)) == value


@pytest.mark.parametrize("name", sorted(golden_records()))
def test_a_count_of_2_to_the_60_costs_nothing(name: str) -> None:
    """An array, a text or bytes that long, wherever in a record: refused before it is made."""
    right = golden_records()[name]
    tracemalloc.start()
    try:
        for at in range(10, len(right) + 1):
            for codec in CODECS:
                try:
                    codec.decode(right[:at] + HUGE + right[at:])
                except CodecError:
                    continue
        assert tracemalloc.get_traced_memory()[1] < BYTES_MAX
    finally:
        tracemalloc.stop()


def test_an_unknown_version_is_told_from_garbage() -> None:
    """Where only ackers write, what a newer one wrote must not be passed over."""
    with pytest.raises(UnknownVersion, match="unknown schema fingerprint 01 02"):
        wire_codec().decode(b"\xc3\x01\x01\x02" + bytes(20))
    with pytest.raises(CodecError) as raised:
        wire_codec().decode(b"\xc3\x02" + bytes(20))
    assert not isinstance(raised.value, UnknownVersion)


def test_runs_that_name_a_block_a_thousand_times_are_refused_before_they_are_unfolded() -> None:
    """Each run is right: unfolded, the 900,000 bytes of one such record would be 50 GB."""
    runs = (PositionRun(0, 32_768),) * 40
    acks = Acks("l", 1, "g", "s", 1, 65_539, 0, runs, b"", b"", (), b"", 0)
    assert wrong_acks(acks, 0, 1) == f"its runs name {40 * 32_768} positions"
    assert NAMED_MAX < 40 * 32_768


@pytest.mark.parametrize(
    ("unpack", "bytes_max"),
    [
        (lambda codec, bomb: unpack_state(codec, {0: bomb}), STATE_BYTES_MAX),
        (unpack_carried, CARRIED_BYTES_MAX),
    ],
    ids=["state", "bin"],
)
def test_a_state_that_unpacks_to_too_much_is_refused(
    unpack: Callable[[Codec[Stored], StatePart], object], bytes_max: int
) -> None:
    """O1901: a megabyte of deflated zeros is a gigabyte; no more of it is unpacked than is read."""
    packing = zlib.compressobj(9)
    deflated = b"".join([packing.compress(bytes(1 << 20)) for _ in range(400)]) + packing.flush()
    bomb = StatePart(0, 0, 1, deflated)
    tracemalloc.start()
    try:
        with pytest.raises(CodecError, match=f"unpacks to more than {bytes_max:,}"):
            unpack(state_codec(), bomb)
        # the pieces that zlib unpacks into, and what they are joined to
        assert tracemalloc.get_traced_memory()[1] < 2 * bytes_max + BYTES_MAX
    finally:
        tracemalloc.stop()


@settings(max_examples=100, deadline=None)
@given(body=mutated([zlib.compress(record) for record in SEEDS]) | mutated(SEEDS).map(zlib.compress))
def test_only_a_codec_error_comes_out_of_a_part_of_state(body: bytes) -> None:
    """A part is deflated, so what is in it is spoilt before and after that."""
    part = StatePart(0, 0, 1, body)
    with suppress(CodecError):
        found = unpack_state(state_codec(), {0: part})
        assert found is None or all(isinstance(each, StoredRange) for each in unpack_ranges(found.ranges))
        assert isinstance(unpack_carried(state_codec(), part), Carried)


REPORT = task_report("split", failures=failures_of([(3, Cause("split", "ValueError", "no"))]))


@settings(max_examples=100, deadline=None)
@given(
    garbage=mutated([blob.encode(REPORT)])
    | mutated([zlib.decompress(blob.encode(REPORT))]).map(zlib.compress)
)
def test_only_a_tracking_error_comes_out_of_a_report(garbage: bytes) -> None:
    """The driver stops the query with it; nothing is acked by a report that it cannot read."""
    with suppress(TrackingError):
        assert isinstance(blob.decode(garbage), TaskReport)


def test_a_report_cannot_bring_code() -> None:
    """A pickle may name any function to call; ours names none, and another is not read."""
    with pytest.raises(TrackingError, match="does not belong into a report"):
        blob.decode(zlib.compress(pickle.dumps(print)))
