"""Bytes as text that a person can read, copy, and give back; pure.

Keys, payloads, and names and values of headers are bytes that anybody may
write. All that Windhover prints of them, in tables, JSON, pages, logs and
messages, and all that it is given of them, such as ``--key``, has one
notation, which is like the one of addresses in a browser:

======================================= ======================== ==========================================
bytes                                   as text                  because
======================================= ======================== ==========================================
printable text                          itself, ``grün``
``%``                                   ``%25``                  it begins an escape
no character, such as FF or an LF       ``%FF``, ``%0A``         nobody can see it, or it moves the cursor
a character that nobody can see         ``%E2%80%AE``            it would turn the line around, or be lost
a space at an end, or behind a space    ``%20``                  a page or a shell would drop it
an accent that a clipboard would join   ``e%CC%81``              ``é`` has another byte form, with that look
null, which is no bytes at all          ``null``
the four letters                        ``%6Eull``               it is not null
no bytes, which is not null             ``""``
two quotation marks                     ``%22"``                 they are not nothing
======================================= ======================== ==========================================

Two values never have the same text, and `parse_bytes` gives back exactly what `show_bytes` was given. Nothing
of an escape means anything to a shell, to JSON or to YAML. A text that was cut when it was shown ends with
``%…``, which is no escape: it is refused, since it would name another value.

A name, such as that of an operator, has the same notation (`show_text`); a
message, which nobody gives back, has it with ``%`` and spaces as they are
(`readable`).
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final
from urllib.parse import unquote_to_bytes

NULL: Final = "null"
"""The text for no value at all."""

EMPTY: Final = '""'
"""The text for a value without bytes."""

CUT: Final = "%…"
"""What stands behind the part that is shown of a longer value; no value has a text with it."""

MARKS_MAX: Final = 4
"""So many accents may stand on one character: more of them would be drawn over the lines around."""

_CHARACTERS_BEFORE_MAX: Final = 2 * MARKS_MAX
"""A character is judged together with so many before it: with those it could be joined to one."""

_NAME_TOKENS: Final = re.compile(
    r"(?P<beyond>[^\x00-\x7f]+)|(?P<hidden>[\x00-\x1f\x7f%]+)|(?P<spaces>(?<= ) +|\A +| +\Z)"
)
_MESSAGE_TOKENS: Final = re.compile(r"(?P<beyond>[^\x00-\x7f]+)|(?P<hidden>[\x00-\x1f\x7f]+)")
"""What may need an escape: characters beyond ASCII, and of ASCII those that always need one."""

_ESCAPES: Final = {
    **{code: f"%{code:02X}" for code in (*range(0x20), 0x20, 0x25, 0x7F)},
    **{0xDC00 + byte: f"%{byte:02X}" for byte in range(0x80, 0x100)},  # as Python decodes what is no UTF-8
}

_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Characters that Unicode counts as printable, and that nobody can see."""

_NO_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


def show_bytes(value: bytes | None) -> str:
    """Return bytes as a text that a person can read, copy, and give back to `parse_bytes`.

    What nobody can see, or is no UTF-8, becomes an escape such as ``%FF``.

    >>> show_bytes("grün".encode()), show_bytes(b"\\xff\\n"), show_bytes(None), show_bytes(b"null")
    ('grün', '%FF%0A', 'null', '%6Eull')
    """
    if value is None:
        return NULL
    if not value:
        return EMPTY
    text = _with_escapes(value.decode("utf-8", "surrogateescape"), is_message=False)
    if text in (NULL, EMPTY):  # these texts mean something else: the first byte becomes an escape
        return f"%{value[0]:02X}{text[1:]}"
    return text


def parse_bytes(text: str) -> bytes | None:
    """Return the bytes that `show_bytes` wrote as a text; None for ``null``.

    What needs no escape may have one, and what needs one may stand for
    itself, such as a line break.

    >>> parse_bytes("grün%FF"), parse_bytes("null"), parse_bytes("%6Eull"), parse_bytes("0xff")
    (b'gr\\xc3\\xbcn\\xff', None, b'null', b'0xff')

    Raises:
        ValueError: a ``%`` begins no escape, or the text was cut.
    """
    if text == NULL:
        return None
    if text == EMPTY:
        return b""
    if CUT in text:
        raise ValueError("was cut when it was shown; take all of it from `-o json`")
    if _NO_ESCAPE.search(text):
        raise ValueError("has a % that begins no escape; write %25 for a percent sign, and %FF for a byte")
    return unquote_to_bytes(_encoded(text))


def cut_shown(text: str, characters_max: int) -> str:
    """Return a text of `show_bytes` or `show_text`, cut to so many characters.

    Behind the cut stands how many characters the whole has.

    >>> cut_shown("ab%FFcd", 4), cut_shown("ab%FFcd", 7)
    ('ab%… (7 characters)', 'ab%FFcd')
    """
    if len(text) <= characters_max:
        return text
    head = text[:characters_max]
    if "%" in head[-2:]:  # the cut is within an escape of three characters: leave all of it out
        head = head[: head.rindex("%")]
    return f"{head}{CUT} ({len(text):,} characters)"


def show_text(name: str) -> str:
    """Return a name as `show_bytes` writes bytes.

    ``null`` is a name as any other, since a name is never null.

    >>> show_text("split"), show_text("100 %"), show_text("a\\nb")
    ('split', '100 %25', 'a%0Ab')
    """
    text = _with_escapes(name, is_message=False)
    return f"%22{text[1:]}" if text == EMPTY else text or EMPTY


def parse_text(text: str) -> str:
    """Return the name that `show_text` wrote as a text.

    Raises:
        ValueError: a ``%`` begins no escape, the text was cut, or its bytes
            are no text.
    """
    value = text.encode("utf-8", "surrogateescape") if text == NULL else parse_bytes(text) or b""
    try:
        return value.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise ValueError("is no text in UTF-8") from error


def readable(message: str) -> str:
    """Return a message in one line that shows each of its characters; ``%`` stands for itself.

    >>> readable("95 % full\\n\\x1b[2J")
    '95 % full%0A%1B[2J'
    """
    return _with_escapes(message, is_message=True)


def is_visible(character: str) -> bool:
    """Return whether a reader can see a character, be it only as a space."""
    return character.isprintable() and not _BLANK.match(character)


def _with_escapes(text: str, *, is_message: bool) -> str:
    """Return a text in which what nobody can see, or would be lost, is written as escapes such as
    ``%0A``.

    In a message (`is_message`) ``%`` and spaces stay as they are: nobody passes a message back to
    `parse_bytes`.
    """

    def escaped_token(match: re.Match[str]) -> str:
        """Return a token, as one of the two patterns has matched it, as it is written."""
        token = match[0]
        # ASCII characters that always need an escape: the groups "hidden" and "spaces"
        if match.lastgroup != "beyond":
            return token.translate(_ESCAPES)
        # The character before. Empty at the beginning and behind what needs an escape, and behind a
        # space or a % in any case: an accent there is an escape, too.
        text_before = text[match.start() - 1 : match.start()]
        if text_before and ord(text_before) in _ESCAPES:
            text_before = ""
        return _beyond_ascii(token, text_before, is_message=is_message)

    tokens = _MESSAGE_TOKENS if is_message else _NAME_TOKENS
    return tokens.sub(escaped_token, text)


def _beyond_ascii(characters: str, text_before: str, *, is_message: bool) -> str:
    """Return neighbouring characters beyond ASCII, those of them as escapes that need it.

    `text_before` is the character before them; empty if that is an escape, or there is none.
    """
    # 1. mostly none needs an escape: a clipboard, which writes the form NFC, changes nothing
    is_kept_by_clipboard = is_message or unicodedata.is_normalized("NFC", text_before + characters)
    if is_kept_by_clipboard and all(map(_is_simple, set(characters))):
        return characters
    # 2. else each is judged behind those before it
    written: list[str] = []
    for character in characters:
        if _is_plain(character, text_before, is_message=is_message):
            written.append(character)
            text_before = (text_before + character)[-_CHARACTERS_BEFORE_MAX:]
        else:
            written.append(_ESCAPES.get(ord(character)) or _escaped(character))
            text_before = ""  # an accent must not join the digits of an escape
    return "".join(written)


@lru_cache(maxsize=10_000)
def _is_simple(character: str) -> bool:
    """Return whether a character stands for itself wherever it is, as far as it is seen alone."""
    return is_visible(character) and not _is_mark(character)


def _is_plain(character: str, text_before: str, *, is_message: bool) -> bool:
    """Return whether a character stands for itself behind `text_before`, which is empty behind an
    escape.
    """
    if not is_visible(character):
        return False
    if _is_mark(character):  # an accent, which is drawn over the character before
        mark_count = len(text_before) - len(_without_marks(text_before))
        if mark_count >= MARKS_MAX or not text_before:
            return False
    # a clipboard writes what it copies in the form NFC: only text in that
    # form comes out as it was
    return is_message or unicodedata.is_normalized("NFC", text_before + character)


def _without_marks(text: str) -> str:
    """Return a text without the accents at its end."""
    while text and _is_mark(text[-1]):
        text = text[:-1]
    return text


def _is_mark(character: str) -> bool:
    """Return whether a character is an accent on the one before it."""
    return unicodedata.category(character).startswith("M")


def _escaped(text: str) -> str:
    """Return a text with an escape for each of its bytes."""
    return "".join(f"%{byte:02X}" for byte in _encoded(text))


def _encoded(text: str) -> bytes:
    """Return the bytes of a text; a sign by which Python shows a byte that is no UTF-8 is that byte again."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
