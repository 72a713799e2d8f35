"""The wire: golden bytes of every record, and what happens to bytes that are none."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from acker.errors import CodecError
from acker.service.state import (
    State,
    StatePart,
    StoredRange,
    pack_ranges,
    parts_of,
    state_codec,
    unpack_carried,
    unpack_ranges,
    unpack_state,
)
from acker.wire.codec import RECORD_BYTES_MAX, WIRE_TYPES, load_schema, wire_codec
from acker.wire.events import Event, Tick
from acker.wire.lateness import too_late_codec
from tests.support import golden

GOLDEN = json.loads(golden.PATH.read_text(encoding="utf-8"))
HEADERS = {
    "acks": "C3 01 EE ED AE 2B CD 89 C6 79",
    "fails": "C3 01 AB D1 31 F5 B2 34 4E 10",
    "init": "C3 01 8D 3C 4B 24 F4 27 EF B5",
    "take": "C3 01 2D BC 19 FB D6 94 61 1E",
    "taken": "C3 01 D2 78 22 4D 52 19 C4 DB",
    "tick": "C3 01 08 73 53 68 32 C1 FA 52",
    "verdicts": "C3 01 78 C2 EC 4E 46 E4 26 62",
}


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_every_record_has_the_bytes_that_it_always_had(name: str) -> None:
    """A published schema is never edited."""
    assert golden.encoded()[name] == GOLDEN[name]


@pytest.mark.parametrize(("name", "record"), sorted(golden.WIRE.items()))
def test_golden_bytes_decode_to_their_record(name: str, record: Event) -> None:
    """And begin with the header that the wire's description tells."""
    value = bytes.fromhex(GOLDEN[name])
    assert wire_codec().decode(value) == record
    assert value[:10] == bytes.fromhex(HEADERS[name])


def test_golden_state_decodes_to_its_record() -> None:
    """Every old version stays readable."""
    for name, record in golden.STORED.items():
        assert state_codec().decode(bytes.fromhex(GOLDEN[name])) == record


def test_golden_note_decodes_to_itself() -> None:
    """And begins with the header that the wire's description tells."""
    value = bytes.fromhex(GOLDEN["too_late"])
    assert too_late_codec().decode(value) == golden.NOTE
    assert value[:10] == bytes.fromhex("C3 01 6C 7C B7 1D 39 CF C7 95")


def test_every_kind_has_golden_bytes() -> None:
    """A kind that is added is pinned too."""
    assert set(WIRE_TYPES.values()) == set(golden.WIRE)


def test_schemas_name_their_fields_as_the_values_do() -> None:
    """The field `from` is `from_` in Python."""
    schema = load_schema("acker.wire", "take")
    named = [field["name"] for field in schema["fields"]]
    assert named == ["group", "session", "epoch", "now", "partitions", "sources"]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (None, "first two bytes"),
        (b"", "first two bytes"),
        (b"\xc3\x01", "first two bytes"),
        (b"\xc3\x02" + bytes(20), "first two bytes"),
        (b"\xc3\x01" + bytes(20), "unknown schema"),
        (bytes.fromhex(GOLDEN["tick"])[:-1], "does not decode"),
        (bytes.fromhex(GOLDEN["tick"]) + b"x", "followed by 1 bytes"),
        (bytes.fromhex(GOLDEN["acks"])[:40], "does not decode"),
        (bytes.fromhex(HEADERS["acks"]) + b"\xff" * 30, "does not decode"),
    ],
)
def test_bytes_that_are_no_record_raise_and_say_what_is_wrong(data: bytes | None, why: str) -> None:
    """An acker quarantines them."""
    with pytest.raises(CodecError, match=why):
        wire_codec().decode(data)


def test_every_truncation_of_every_record_raises() -> None:
    """No prefix is mistaken for a whole record."""
    for name in golden.WIRE:
        value = bytes.fromhex(GOLDEN[name])
        for end in range(len(value)):
            with pytest.raises(CodecError):
                wire_codec().decode(value[:end])


def test_a_value_outside_its_type_cannot_be_encoded() -> None:
    """An int of 64 bits at most."""
    with pytest.raises(CodecError):
        wire_codec().encode(Tick("g", "s", 1 << 63, 0))


def test_a_state_is_cut_into_records_below_the_limit_and_joined_again() -> None:
    """In any order, as a compacted log may hold them; with a piece missing it is none."""
    state = golden.STORED["state"]
    assert isinstance(state, State)
    lanes = tuple(
        replace_name(state.acks[0], bytes([i % 251, i // 251]).hex() * 100 + str(i)) for i in range(200)
    )
    large = replace(state, acks=lanes * 2, ranges=np_noise())
    parts = parts_of(state_codec(), large)
    assert len(parts) > 1
    assert max(len(state_codec().encode(part)) for part in parts) < RECORD_BYTES_MAX
    found = {part.part: part for part in reversed(parts)}
    assert unpack_state(state_codec(), found) == large
    del found[1]
    assert unpack_state(state_codec(), found) is None


def replace_name(lane: golden.StoredLane, name: str) -> golden.StoredLane:
    """Return a lane under another name."""
    return lane._replace(name=name)


def np_noise() -> bytes:
    """Return a megabyte that does not compress."""
    return bytes(golden.np.random.default_rng(1).integers(0, 256, 1_000_000, golden.np.uint8))


def test_a_bin_that_is_none_says_so() -> None:
    """Nothing is guessed."""
    with pytest.raises(CodecError, match="cannot be unpacked"):
        unpack_carried(state_codec(), StatePart(0, 1_000_000, 1, b"nonsense"))
    with pytest.raises(CodecError, match="multiple"):
        unpack_ranges(b"1234567")


def test_ranges_are_packed_as_columns_and_come_back() -> None:
    """In their order."""
    rows = [StoredRange(0, 65_539, -1, 5, 10, 0), StoredRange(1, 65_540, 3, 32_768, 1 << 50, 99)]
    assert list(unpack_ranges(pack_ranges(rows))) == rows
    assert list(unpack_ranges(pack_ranges([]))) == []
