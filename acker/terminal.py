"""Writes a sign that an output lacks with signs of ASCII, so that no command ends with an error for it; pure.

A terminal or a pipe has an encoding, which may lack signs: ASCII with ``PYTHONIOENCODING=ascii`` or in a
container without a locale, Latin-1, the code pages of Windows. A sign that it lacks is written so:

- one of ours in its usual spelling: ``<=``, ``>=``, ``...``;
- any other as the bytes of its UTF-8, in the notation of all names (`acker.notation`), so that a key or a
  name can be given back to an option as it is shown: ``%C3%BC``.

Tables replace such signs before they measure the widths of their columns (`as_written`). All else that
reaches an output, such as the help of a command, is replaced as it is written (`replace_unwritable`).

An output may also be closed, by `>&-` in a shell or by what starts services; see
`open_closed_streams`.
"""

from __future__ import annotations

import codecs
import os
import sys
from io import TextIOWrapper
from typing import Any, Final, TextIO, cast

ERRORS: Final = "windhover.ascii"
"""The name of this replacement among those of Python's codecs."""

OWN_SIGNS: Final = {"≤": "<=", "≥": ">=", "…": "...", "µ": "u"}
"""Signs that our own words have, in ASCII."""


def as_written(text: str, encoding: str | None) -> str:
    """Return a text as an output with this encoding writes it; None: that lacks no sign.

    >>> as_written("lag ≤ 5 … für Köln", "ascii"), as_written("lag ≤ 5 für Köln", "latin-1")
    ('lag <= 5 ... f%C3%BCr K%C3%B6ln', 'lag <= 5 für Köln')
    """
    if encoding is None or text.isascii():
        return text
    try:
        return text.encode(encoding, ERRORS).decode(encoding)
    except LookupError:  # Python has no such encoding
        return text.encode("ascii", ERRORS).decode("ascii")


def writes_all(encoding: str | None) -> bool:
    """Return whether an output with this encoding can write every text."""
    return encoding is None or encoding.lower().replace("_", "-").startswith("utf")


def replace_unwritable(output: TextIO | Any) -> None:
    """Change an output so that it replaces the signs that it lacks, and does not raise."""
    if isinstance(output, TextIOWrapper):
        output.reconfigure(errors=ERRORS)


def open_closed_streams() -> None:
    """Open the null device in place of each of stdin, stdout and stderr that is closed.

    Else the next file or socket would get the descriptor of the stream, and what C code reports on
    stderr would be written there.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:  # it is closed
            _send_to_null_device(descriptor)
    # Python's own object is missing if the descriptor was closed when the process began
    sys.stdin = sys.stdin or _null_device("r")
    sys.stdout = sys.stdout or _null_device("w")
    sys.stderr = sys.stderr or _null_device("w")


def drop_what_cannot_be_written() -> None:
    """Flush stdout and stderr; send what one of them does not take to the null device.

    Else Python flushes again when the process ends, prints that error, and ends with 120.
    """
    for descriptor, output in ((1, sys.stdout), (2, sys.stderr)):
        try:
            output.flush()
        except OSError:  # a full disk, or a reader that has gone
            _send_to_null_device(descriptor)


def _send_to_null_device(descriptor: int) -> None:
    """Make a descriptor one of the null device, which child processes inherit."""
    null = os.open(os.devnull, os.O_RDWR)
    if null != descriptor:  # else it was closed, and is the lowest one that is free
        os.dup2(null, descriptor)
        os.close(null)
    os.set_inheritable(descriptor, True)


def _null_device(mode: str) -> TextIO:
    """Open the null device for as long as the process lives."""
    return cast("TextIO", open(os.devnull, mode, encoding="utf-8"))


def _replace_in_ascii(error: UnicodeError) -> tuple[str, int]:
    """Return what is written in place of signs that cannot be encoded, and the index to go on
    behind them.

    Python's codecs call it as the error handler `ERRORS`.
    """
    if not isinstance(error, UnicodeEncodeError):  # a reader's error: only outputs use the handler
        raise error
    unwritable = error.object[error.start : error.end]
    return "".join(map(_sign_in_ascii, unwritable)), error.end


def _sign_in_ascii(sign: str) -> str:
    """Return what is written for a sign that cannot be encoded: our own spelling, or its bytes as %XX."""
    spelling = OWN_SIGNS.get(sign)
    if spelling is not None:
        return spelling
    # Python reads a byte that is no UTF-8 as one of these signs (PEP 383); that byte is written.
    # Any other half of a surrogate pair has no byte, and is written as three of them.
    is_byte = "\udc80" <= sign <= "\udcff"
    encoded = sign.encode("utf-8", "surrogateescape" if is_byte else "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in encoded)


codecs.register_error(ERRORS, _replace_in_ascii)
