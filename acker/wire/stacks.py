"""Carries the stacks of exceptions with failed roots to their dead letters.

No verdict depends on them. The schemas of `Fails` and `Verdicts` are published and stay as
they are. So stacks travel in a header, which readers of former versions pass over:

1. A task writes `STACKS` to its record of `_ack_fail`: the stacks of all causes there.
2. An acker copies them to the verdicts of the same step, again as `STACKS`.
3. A replay worker writes the one stack of a root to its entry in `_ack_due`, as `STACK`: a part of
   it if the root is to be replayed, since only a root whose copy the broker refuses needs it
   again.
4. It writes the same header to the dead letter.

Where a stack is lost on its way, the letter has none, and all else of it.

A stack belongs to a cause by the cause's operator, error, and line of code: `split`, `ValueError`,
`split.py:12` (`acker.wire.causes` says how the line stands in the message). The value of `STACKS`
is a list in JSON, whose rows are operator, error, line of code and stack.

Source: docs/design/protocol.md, section 4.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Self

from acker.wire.causes import Cause, without_code_line
from acker.wire.headers import Headers, first_value

STACKS: Final = "windhover.stacks"
"""The header with the stacks of several causes, of records of `_ack_fail` and of `_ack_verdict`."""

STACK: Final = "windhover.stack"
"""The header with one stack as plain text, of an entry of `_ack_due` and of a dead letter."""

STACK_BYTES_MAX: Final = 4_000
"""A longer stack is cut in its middle: its start, and its end with the exception, stay."""

WAITING_STACK_BYTES_MAX: Final = 1_000
"""The same for a root that is to be replayed: of such roots 100,000 and more may wait while a
service is down."""

STACKS_BYTES_MAX: Final = 48_000
"""The size of `STACKS` at most, so that the record has room for its value and its other headers."""

KEPT_MAX: Final = 64
"""How many stacks of the fails of one step an acker keeps."""

_ROW_PARTS: Final = 4
_CUT_MARK: Final = b"\n... cut ...\n"


class CauseKey(NamedTuple):
    """What a cause's stack is found by.

    `code_line` is the file and line where the exception was raised, ``split.py:12``; empty: nobody
    knows.
    """

    operator: str
    error: str
    code_line: str

    @classmethod
    def of(cls, operator: str, error: str, code_line: str) -> Self:
        """Return the key of an exception that was raised at a line of code, ``split.py:12``.

        `code_line` is empty where no line of the bolt's author raised it.
        """
        cause = Cause.of(operator, error, "")  # as ackers write it in their verdicts
        return cls(cause.operator, cause.error, code_line)


def key_of(operator: str, error: str, message: str) -> CauseKey:
    """Return the key of a cause, whose message ends with its line of code: ``bad word
    (split.py:12)``.
    """
    _text, code_line = without_code_line(message)
    return CauseKey.of(operator, error, code_line.strip(" ()"))


Stacks = Mapping[CauseKey, str]


def cut_stack(text: str, bytes_max: int = STACK_BYTES_MAX) -> str:
    """Cut the text of an exception's stack in its middle to `bytes_max` bytes of UTF-8.

    >>> len(cut_stack("x" * 10_000)) == STACK_BYTES_MAX
    True
    """
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= bytes_max:
        return encoded.decode()
    kept_bytes = bytes_max - len(_CUT_MARK)
    start_bytes = kept_bytes // 2
    # of an odd number the end gets the byte more
    end_bytes = kept_bytes - start_bytes
    cut = encoded[:start_bytes] + _CUT_MARK + encoded[-end_bytes:]
    # both cuts may go through a character of several bytes: what is left of it is dropped
    return cut.decode("utf-8", "ignore")


def stacks_header(
    keys: Iterable[CauseKey],
    stacks: Stacks,
    room_bytes: int = STACKS_BYTES_MAX,
) -> Headers:
    """Return the header with the stacks of some causes, as many as fit.

    No header if no cause has one.

    Args:
        keys: of the causes; the first ones find room first, and a key may come again.
        stacks: the stacks that there are, by the keys of their causes.
        room_bytes: how many bytes the record has left for the header's name and value.
    """
    rows: list[tuple[str, ...]] = []
    brackets_bytes = 2  # of the JSON list
    bytes_left = min(room_bytes, STACKS_BYTES_MAX) - len(STACKS) - brackets_bytes
    distinct_keys = dict.fromkeys(keys)
    for key in distinct_keys:
        stack = stacks.get(key)
        if not stack:
            continue
        row = (*key, cut_stack(stack))
        # two more for the comma and the blank that JSON puts between rows
        bytes_left -= len(json.dumps(row)) + 2
        if bytes_left < 0:
            break
        rows.append(row)
    return ((STACKS, json.dumps(rows).encode()),) if rows else ()


def read_stacks(headers: Headers) -> dict[CauseKey, str]:
    """Return the stacks in the header.

    There are none if it is missing, or if anything in it is not as we write it.
    """
    value = first_value(headers, STACKS)
    if not value or len(value) > STACKS_BYTES_MAX:
        return {}
    try:
        rows = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(rows, list) or not all(map(_is_row, rows)):
        return {}
    stacks: dict[CauseKey, str] = {}
    for operator, error, code_line, stack in rows:
        stacks[CauseKey(operator, error, code_line)] = cut_stack(stack)  # whoever wrote it
    return stacks


def _is_row(row: object) -> bool:
    """Return whether a value is a row as we write it: operator, error, line of code and stack,
    all texts.
    """
    return isinstance(row, list) and len(row) == _ROW_PARTS and all(isinstance(part, str) for part in row)


def stack_header(stack: str) -> Headers:
    """Return the header with one stack; no header for an empty one."""
    return ((STACK, cut_stack(stack).encode("utf-8", "replace")),) if stack else ()


def read_stack(headers: Headers) -> str:
    """Return the stack in the header; empty: there is none.

    The last one counts, since ours stands behind the headers of the record itself.
    """
    value = first_value(reversed(headers), STACK)
    return cut_stack((value or b"").decode("utf-8", "replace"))
