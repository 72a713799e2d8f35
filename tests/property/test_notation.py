"""What is shown of bytes can be given back: whatever the bytes, and whatever they look like."""

from __future__ import annotations

import json
import re
import shlex
import unicodedata
from urllib.parse import parse_qs, urlencode

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from acker.notation import CUT, MARKS_MAX, cut_shown, parse_bytes, parse_text, readable, show_bytes, show_text

ODD_TEXTS = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from(
            "%\"'\\`$ \n\t\x1b\x85\x9b\u00e9e\u0301\u0300\u202e\u2066\u200b\u2028\ufe0f\u3164\ufeff"
        ),
        st.sampled_from("0123456789abcdefxnull"),
    )
)
VALUES = st.one_of(st.none(), st.binary(), ODD_TEXTS.map(str.encode), st.sampled_from([b"null", b'""', b""]))

CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


@given(VALUES)
@example(b"null")
@example(b'""')
@example(b"%6Eull")
@example(b"%25")
@example(b"0xff")
@example("\ud7fb\u11a8\u1161".encode())
def test_a_value_comes_back_from_its_text(value: bytes | None) -> None:
    """O1601"""
    assert parse_bytes(show_bytes(value)) == value


@given(VALUES)
@example("e\u0301".encode())
@example("\u212b".encode())
@example("\u1100\u1161".encode())
@example(("a" + "\u0316\u0301" * 40).encode())
@example(b"  a  b  ")
def test_no_tool_between_changes_a_text(value: bytes | None) -> None:
    """Not a clipboard, a page, a shell, an address, JSON or YAML."""
    text = show_bytes(value)

    assert unicodedata.normalize("NFC", text) == text
    assert " ".join(text.split()) == text  # as a page shows it
    assert shlex.split(shlex.quote(text)) == [text]
    assert parse_qs(urlencode({"key": text}), keep_blank_values=True) == {"key": [text]}
    assert json.loads(json.dumps(text, ensure_ascii=False)) == text
    assert yaml.safe_load(yaml.safe_dump(text, allow_unicode=True)) == text


@given(VALUES)
def test_a_text_has_no_character_that_nobody_sees(value: bytes | None) -> None:
    text = show_bytes(value)

    assert text.isprintable()
    assert not CONTROLS.search(text)
    assert text


@given(VALUES, VALUES)
@example(b"\xff", b"0xff")
@example(b"\xff", b"%FF")
@example(None, b"null")
@example(b"", None)
@example("\u00e9".encode(), "e\u0301".encode())
@example(b"a", "a\u200b".encode())
def test_two_values_have_two_texts(one: bytes | None, other: bytes | None) -> None:
    """O1602"""
    assert (show_bytes(one) == show_bytes(other)) is (one == other)


@given(VALUES, st.integers(1, 40))
@example("grün".encode(), 3)
@example(b"\xff\xff\xff", 5)
@example(b"50 %", 4)
def test_what_was_cut_is_refused_and_never_taken_for_another_value(
    value: bytes | None, characters_max: int
) -> None:
    """O1603"""
    whole = show_bytes(value)
    text = cut_shown(whole, characters_max)

    if len(whole) <= characters_max:
        assert text == whole
        return
    head, end = text.split(CUT)
    assert end == f" ({len(whole):,} characters)"
    assert characters_max - 2 <= len(head) <= characters_max
    assert whole.startswith(head)
    parse_bytes(head)  # no escape is split
    with pytest.raises(ValueError, match="cut"):
        parse_bytes(text)


@given(st.binary())
def test_every_byte_may_be_escaped(value: bytes) -> None:
    assert parse_bytes("".join(f"%{byte:02x}" for byte in value)) == value


@given(ODD_TEXTS)
def test_a_plain_text_without_escapes_is_its_bytes(text: str) -> None:
    """So who types a line break, or a key as it always was, finds it."""
    if "%" not in text and text not in ("null", '""'):
        assert parse_bytes(text) == text.encode()


@given(ODD_TEXTS)
@example("null")
@example('""')
@example("")
def test_a_name_comes_back_from_its_text(name: str) -> None:
    text = show_text(name)

    assert parse_text(text) == name
    assert text.isprintable()


@given(ODD_TEXTS)
def test_a_message_is_one_line_that_moves_nothing(message: str) -> None:
    line = readable(message)

    assert line.isprintable()
    assert not CONTROLS.search(line)
    if message.isascii() and message.isprintable():
        assert line == message


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"", '""'),
        (None, "null"),
        (b"null", "%6Eull"),
        (b'""', '%22"'),
        (b'"', '"'),
        (b"\xff", "%FF"),
        (b"0xff", "0xff"),
        (b"50 %", "50 %25"),
        (b"a\nb\\n", r"a%0Ab\n"),
        (b" a  b ", "%20a %20b%20"),
        ("grün 🙂".encode(), "grün 🙂"),
        ("\u202eabc".encode(), "%E2%80%AEabc"),
        ("e\u0301".encode(), "e%CC%81"),
        ("\u0301".encode(), "%CC%81"),
        (b"\x1b[2J\x9b", "%1B[2J%9B"),
        ("\x9b".encode(), "%C2%9B"),
        (b"caf\xe9", "caf%E9"),
        (b"\xed\xa0\x80", "%ED%A0%80"),
        ("हिन्दी ไทยที่".encode(), "हिन्दी ไทยที่"),
        (b"`$(x)`'\"\\", "`$(x)`'\"\\"),
    ],
)
def test_the_notation_by_examples(value: bytes | None, text: str) -> None:
    """O1601"""
    assert show_bytes(value) == text
    assert parse_bytes(text) == value


@pytest.mark.parametrize("text", ["50 %", "%", "%0", "%zz", "a%…", "abc%… (2,000 bytes)"])
def test_what_is_no_escape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"cut|%25"):
        parse_bytes(text)


def test_bytes_that_are_no_text_are_no_name() -> None:
    with pytest.raises(ValueError, match="no text"):
        parse_text("%FF")


def test_an_argument_that_the_shell_gave_as_bytes_is_these_bytes() -> None:
    """Python hands on what is no UTF-8 of the command line as halves of surrogates."""
    assert parse_bytes("a\udcffb") == b"a\xffb"


def test_more_accents_than_a_language_has_are_escaped() -> None:
    """They would be drawn over the lines around."""
    text = show_bytes(("x" + "\u0335" * 50).encode())

    assert text.count("\u0335") == MARKS_MAX
