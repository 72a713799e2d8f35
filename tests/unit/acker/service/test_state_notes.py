"""What an acker notes beside State for people, and what readers make of notes that nobody wrote."""

from __future__ import annotations

import zlib
from random import Random

import numpy as np
import pytest

from acker.service.state_notes import (
    DEADLINES_BYTES_MAX,
    DEADLINES_HEADER,
    LATE_HEADER,
    RESTORED_HEADER,
    LastRestore,
    StateNotes,
    read_notes,
)

SOME = {0: 5_000, 3: 259_200_000_000, 4: 259_200_000_900}


def packed(*numbers: int) -> bytes:
    return zlib.compress(np.array(numbers, "<i8").tobytes())


def test_notes_come_back_as_they_were_written() -> None:
    for notes in (
        StateNotes(),
        StateNotes(LastRestore(9, 8)),
        StateNotes(None, SOME),
        StateNotes(LastRestore(9, 8), SOME),
    ):
        assert read_notes(notes.headers()) == notes
    assert StateNotes().headers() == ()


def test_notes_of_very_many_ranges_have_the_oldest_ones_and_stay_small() -> None:
    draw = Random(7)
    deadlines_ms = {2 * number: draw.randrange(1 << 52) for number in range(40_000)}
    [(_, value)] = StateNotes(None, deadlines_ms).headers()
    assert value is not None
    assert len(value) <= DEADLINES_BYTES_MAX
    found = read_notes(((DEADLINES_HEADER, value),)).deadlines_ms
    assert 1_000 < len(found) < 40_000
    assert found == dict(list(deadlines_ms.items())[: len(found)])


@pytest.mark.parametrize(
    "value",
    [None, b"", b"\xff", b"x" * 100, zlib.compress(b"1234567"), packed(1, 2, 3), packed(1, 2)[:-3],
     zlib.compress(bytes(17_000_000)), packed(), b"[" * 100_000, b'{"a":' * 100_000, b"9" * 100_000,
     b"[1e999, 1]", b'["g", 1, null]',
     b"[1, 1%s]" % (b"0" * 400), b"[1%s, 1]" % (b"0" * 400), b"[9223372036854775808, 1]", b"[-1, 1]",
     b'["g", 1%s, 1]' % (b"0" * 400), b'["g", 1, 1%s]' % (b"0" * 400), b'["g", 9223372036854775808, 1]',
     b'["g", -1, 1]', b'["g", 1, 1.5]', b'["g", true, 1]', b'["1", "2"]'],
)  # fmt: skip
def test_notes_that_no_acker_wrote_count_as_none(value: bytes | None) -> None:
    """One unpacks to more than any acker's do, some are nested deeper than Python reads, and some
    have numbers that no float, or no 63 bits, can hold.
    """
    assert read_notes(((DEADLINES_HEADER, value),)).deadlines_ms == {}
    assert read_notes(((RESTORED_HEADER, value),)).restored is None
    assert read_notes(((LATE_HEADER, value),)).too_late == {}
