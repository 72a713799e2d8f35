"""Keys and values of records that nobody expects: null is not empty, and neither is text."""

from __future__ import annotations

from typing import Final

from replay.records.due import ROOT_KEY_BYTES
from tests.support.odd_records import A_SURROGATE, HALF_A_CHARACTER, NO_UTF8

KEYS: Final[dict[str, bytes | None]] = {
    "null": None,
    "empty": b"",
    "text": b"k",
    "no UTF-8": NO_UTF8,
    "half a character": HALF_A_CHARACTER,
    "a surrogate": A_SURROGATE,
    "a zero": b"\x00",
    "zeros around text": b"\x00k\x00",
    "as long as a key of _ack_due": b"\x00" * ROOT_KEY_BYTES,
    "long": b"k" * 5_000,
}
"""Keys, by what is odd in them."""

VALUES: Final[dict[str, bytes | None]] = {"null": None, "empty": b"", "bytes": b"v", "no UTF-8": NO_UTF8}
"""Values, by what is odd in them."""
