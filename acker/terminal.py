"""What an output can write of a text; pure.

A terminal or a pipe has an encoding, which may lack signs: ASCII with ``PYTHONIOENCODING=ascii`` or in a
container without a locale, Latin-1, the code pages of Windows. A command must not end for that reason. So a
sign that an output lacks is written with signs of ASCII:

- one of ours in its usual spelling: ``<=``, ``>=``, ``...``;
- any other as the bytes of its UTF-8, in the notation of all names (`acker.notation`), so that a key or a
  name can be given back to an option as it is shown: ``%C3%BC``.

Texts of tables are written so before their widths are measured; `replace_unwritable` is for all else that
reaches an output, such as the help of a command.
"""

from __future__ import annotations

import codecs
from io import TextIOWrapper
from typing import Any, Final, TextIO

ERRORS: Final = "windhover.ascii"
"""The name of this replacement among those of Python's codecs."""

OWN_SIGNS: Final = {"≤": "<=", "≥": ">=", "…": "...", "µ": "u"}
"""Signs that our own words have, in ASCII."""


def as_written(text: str, encoding: str | None) -> str:
    """Return a text as an output with this encoding writes it; None: it writes all.

    >>> as_written("lag ≤ 5 … für Köln", "ascii"), as_written("lag ≤ 5 für Köln", "latin-1")
    ('lag <= 5 ... f%C3%BCr K%C3%B6ln', 'lag <= 5 für Köln')
    """
    if encoding is None or text.isascii():
        return text
    try:
        return text.encode(encoding, ERRORS).decode(encoding)
    except LookupError:  # no codec of Python's
        return text.encode("ascii", ERRORS).decode("ascii")


def writes_all(encoding: str | None) -> bool:
    """Return whether an output with this encoding can write every text."""
    return encoding is None or encoding.lower().replace("_", "-").startswith("utf")


def replace_unwritable(output: TextIO | Any) -> None:
    """Let an output write the signs that it lacks as described above, and not raise."""
    if isinstance(output, TextIOWrapper):
        output.reconfigure(errors=ERRORS)


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    """Replace what cannot be encoded; a handler of Python's codecs."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    unwritable = error.object[error.start : error.end]
    return "".join(map(_sign_in_ascii, unwritable)), error.end


def _sign_in_ascii(sign: str) -> str:
    own = OWN_SIGNS.get(sign)
    if own is not None:
        return own
    # "surrogatepass" for a half of a pair that no byte stands for
    is_byte = "\udc80" <= sign <= "\udcff"
    encoded = sign.encode("utf-8", "surrogateescape" if is_byte else "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in encoded)


codecs.register_error(ERRORS, _in_ascii)
