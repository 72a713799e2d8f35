"""The stacks of exceptions, which go with failed roots to their dead letters; no verdict depends on them.

The schemas of `Fails` and `Verdicts` are published and stay as they are. So the stacks of a record's causes
are in a header of it, `STACKS`, which readers of former versions pass over. An acker hands them on from the
fails of a step to the verdicts of the same step, a replay worker to the entry in `_ack_due` of a root that
dies, and to its letter, each in a header too. Where one is missing, nothing else is.

A stack belongs to a cause by operator, error, and the place at the end of the message (`acker.wire.causes`).
The header's value is a list of such four texts in JSON.

Source: docs/design/protocol.md, section 4.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Self

from acker.wire.causes import clipped, without_place

Headers = tuple[tuple[str, bytes | None], ...]

STACKS: Final = "windhover.stacks"
"""The header, of records of `_ack_fail` and of `_ack_verdict`."""

STACK: Final = "windhover.stack"
"""The header with one stack as it is, of an entry of `_ack_due` and of a dead letter."""

STACK_BYTES_MAX: Final = 4_000
"""A longer stack is cut in its middle: its start, and its end with the exception, stay."""

STACKS_BYTES_MAX: Final = 48_000
"""All stacks of one record: so much room it has beside its value and its other headers."""

KEPT_MAX: Final = 64
"""An acker keeps so many stacks of the fails of one step."""

NAME_BYTES_MAX: Final = 500
"""As ackers cut operators and errors (`acker.ledger.verdicts`)."""

_PARTS: Final = 4
_CUT: Final = b"\n... cut ...\n"


class CauseKey(NamedTuple):
    """To which causes a stack belongs."""

    operator: str
    error: str
    place: str

    @classmethod
    def of(cls, operator: str, error: str, place: str) -> Self:
        """Return the key of what was raised at a place, ``split.py:12``, or at none of the author's."""
        return cls(clipped(operator, NAME_BYTES_MAX), clipped(error, NAME_BYTES_MAX), place)


def key_of(operator: str, error: str, message: str) -> CauseKey:
    """Return the key of a cause, whose message ends with the place where it was raised."""
    return CauseKey.of(operator, error, without_place(message)[1].strip(" ()"))


Stacks = Mapping[CauseKey, str]


def cut_stack(text: str) -> str:
    """Cut a stack in its middle to `STACK_BYTES_MAX` of UTF-8.

    >>> len(cut_stack("x" * 10_000)) == STACK_BYTES_MAX
    True
    """
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= STACK_BYTES_MAX:
        return encoded.decode()
    half = (STACK_BYTES_MAX - len(_CUT)) // 2
    # the end gets the byte that an odd number leaves
    rest = STACK_BYTES_MAX - len(_CUT) - half
    return (encoded[:half] + _CUT + encoded[-rest:]).decode("utf-8", "ignore")


def stacks_header(keys: Iterable[CauseKey], stacks: Stacks, room: int = STACKS_BYTES_MAX) -> Headers:
    """Return the header with the stacks of some causes, as many as have room; nothing if none has one."""
    rows: list[tuple[str, ...]] = []
    left = min(room, STACKS_BYTES_MAX) - len(STACKS) - 2
    for key in dict.fromkeys(keys):
        text = stacks.get(key)
        if not text:
            continue
        row = (*key, cut_stack(text))
        # with the comma, and the blank that JSON puts behind it
        left -= len(json.dumps(row)) + 2
        if left < 0:
            break
        rows.append(row)
    return ((STACKS, json.dumps(rows).encode()),) if rows else ()


def read_stacks(headers: Headers) -> dict[CauseKey, str]:
    """Read the header; what no program of ours wrote counts as missing, as a whole."""
    value = next((value for name, value in headers if name == STACKS), None)
    if not value or len(value) > STACKS_BYTES_MAX:
        return {}
    try:
        rows = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(rows, list) or not all(map(_is_row, rows)):
        return {}
    return {CauseKey(*row[:3]): cut_stack(row[3]) for row in rows}


def _is_row(row: object) -> bool:
    return isinstance(row, list) and len(row) == _PARTS and all(isinstance(part, str) for part in row)


def stack_header(stack: str) -> Headers:
    """Return the header with one stack; nothing for none."""
    return ((STACK, cut_stack(stack).encode("utf-8", "replace")),) if stack else ()


def read_stack(headers: Headers) -> str:
    """Return the last stack among headers; empty: there is none."""
    value = next((value for name, value in reversed(headers) if name == STACK), None)
    return cut_stack((value or b"").decode("utf-8", "replace"))
