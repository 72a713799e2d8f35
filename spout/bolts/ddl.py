"""The text of an output, as far as it can be read without Spark: fields, and the kinds of their types.

A bolt is attached before there is a session, and a topology's file is checked without one. So
what is wrong with an output for sure is found here, at once; Spark's own parser has the last
word when there is a session.

Source: Spark's SQL reference, data types: ``name [:] type [NOT NULL] [COMMENT 'text']``,
separated by commas.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from acker.errors import UsageError
from spout.tuples.columns import ANCHOR, TASK, TO

_CURES: Final = {
    "char": "string",
    "character": "string",
    "varchar": "string",
    "collate": "string, and a cast behind the bolt",
    "geography": "binary, and a function of Spark behind the bolt",
    "geometry": "binary, and a function of Spark behind the bolt",
    "month": "int, for a number of months",
    "interval": "interval day to second",
}
"""What Arrow does not carry, or not as it is declared, and what to declare in its place."""

_FIRST_WORD_OF_TYPE: Final = re.compile(
    "array|bigint|binary|boolean|byte|date|dec|decimal|double|float|int|integer|interval|long"
    "|map|numeric|real|short|smallint|string|struct|time|timestamp|timestamp_ltz|timestamp_ntz"
    "|tinyint|variant|void"
)
"""The first words of the types that a bolt can emit."""

_NESTED: Final = frozenset({"array", "map", "struct"})
_CLOSING: Final = {"<": ">", "(": ")"}
_TOKEN: Final = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|.", re.S)
_NAME: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s:`]+))\s*:?\s*(.*)$", re.S)
_WORD: Final = re.compile(r"[a-z_]+")
_STRUCT: Final = re.compile(r"\s*struct\s*<(.*)>\s*", re.S | re.I)
_WORDS_BEHIND_TYPE: Final = re.compile(r"(?: not null)?(?: comment)?")
_TYPES_OF_SEVERAL_WORDS: Final = frozenset({"interval", "timestamp", "double", "time"})
"""Types that may have several words, as ``interval day to second``."""


def field_names(bolt: str, output: object) -> list[str]:
    """Return the names of an output's fields.

    Raises `UsageError`: it is no text, is empty, cannot be read, has a name twice or that of a
    hidden column, or a type that no bolt can emit.
    """
    if not isinstance(output, str):
        raise UsageError(
            f"bolt {bolt!r}: output = {output!r} ({type(output).__name__}); it is a text in"
            ' Spark\'s DDL: output = "word string, length int"'
        )
    if not output.strip():
        raise UsageError(
            f'bolt {bolt!r}: output = {output!r}; name fields and types, as "word string", each once, in the'
            " class of the bolt. In a topology a bolt that emits nothing declares no stream:"
            " def declare(self, declarer): pass"
        )
    try:
        whole_struct = _STRUCT.fullmatch(output)  # "struct<word: string>" has the fields of "word string"
        fields = output if whole_struct is None else whole_struct[1]
        names = [_checked_name(field) for field in outer_parts(fields)]
    except ValueError as error:
        raise UsageError(
            f"bolt {bolt!r}: output = {output!r} is no schema: {error}; name fields and types, as"
            ' "word string"'
        ) from error
    hidden_names = [name for name in names if name.lower() in (TASK, TO) or name.lower().startswith(ANCHOR)]
    # twice, since there are such columns already
    refuse_repeated_names(bolt, output, hidden_names + hidden_names)
    refuse_repeated_names(bolt, output, names)
    return names


def refuse_repeated_names(
    bolt: str, output: str, names: Sequence[str], *, case_sensitive: bool = True
) -> None:
    """Raise `UsageError` if two fields of a bolt's output have one name.

    `case_sensitive` False: ``a`` and ``A`` are one name.
    """
    compared_names = names if case_sensitive else [name.lower() for name in names]
    repeated_names = [name for name, count in Counter(compared_names).items() if count > 1]
    if repeated_names:
        raise UsageError(
            f'bolt {bolt!r}: output = {output!r}; name fields and types, as "word string", each once, and'
            f" none {TASK} or {TO}, or with a name that begins with {ANCHOR}: not {', '.join(repeated_names)}"
        )


def outer_parts(text: str) -> Iterator[str]:
    """Yield the parts of a text between its outer commas.

    Raises `ValueError`: a bracket or quote is missing.
    """
    part = ""
    open_brackets: list[str] = []
    for token in _TOKEN.findall(text):
        # a quoted text is one token, so a quote by itself has no end
        if token in ("`", "'", '"'):
            raise ValueError(f"a {token} is not closed")
        if token in _CLOSING:
            open_brackets.append(_CLOSING[token])
        elif token in _CLOSING.values() and (not open_brackets or open_brackets.pop() != token):
            raise ValueError(f"a {token} closes nothing")
        if token == "," and not open_brackets:
            yield part
            part = ""
        else:
            part += token
    if open_brackets:
        raise ValueError(f"a {open_brackets[-1]} is missing")
    yield part


def _checked_name(field: str) -> str:
    """Return the name of a field; `ValueError`: it has no type, or one that no bolt can emit."""
    name, type_text = name_and_type(field)
    if not type_text.strip():
        raise ValueError(f"field {name!r} has no type")
    _check_type(name, type_text)
    return name


def name_and_type(field: str) -> tuple[str, str]:
    """Return the name of a field, and the text of its type; `ValueError`: the field is empty."""
    match = _NAME.match(field)
    if not field.strip() or match is None:
        raise ValueError("a field is empty")
    quoted_name, plain_name, type_text = match.groups()
    if quoted_name is None:
        return plain_name, type_text
    return quoted_name.replace("``", "`"), type_text


def _check_type(name: str, text: str) -> None:
    """Raise `ValueError` if a text is no type, or one that Arrow does not carry.

    Also for types within it.

    `name`: of the field, for the message.
    """
    words = _WORD.findall(without_brackets(text).lower())
    first_word = words[0] if words else text.strip()
    refused_word = _refused_word(words)
    if refused_word in _CURES:
        raise ValueError(
            f"field {name!r} is {text.strip()}, which no bolt can emit; declare {_CURES[refused_word]}"
        )
    if _FIRST_WORD_OF_TYPE.fullmatch(first_word) is None:
        raise ValueError(f"field {name!r} has the type {text.strip()!r}, which is none")
    text_behind = "".join(f" {word}" for word in words[1:])
    may_have_more_words = first_word in _TYPES_OF_SEVERAL_WORDS
    if not may_have_more_words and not _WORDS_BEHIND_TYPE.fullmatch(text_behind):
        raise ValueError(f"field {name!r} has{text_behind!r} behind its type")
    if first_word in _NESTED:
        _check_types_within(name, first_word, text)


def without_brackets(text: str) -> str:
    """Return a type without what stands in brackets and quotes: ``decimal`` of ``decimal(10, 2)``."""
    open_brackets = 0
    text_outside = ""
    for token in _TOKEN.findall(text):
        if token in _CLOSING.values():
            open_brackets -= 1
        elif token in _CLOSING:
            open_brackets += 1
        elif open_brackets == 0 and len(token) == 1:  # longer ones are quoted
            text_outside += token
    return text_outside


def _refused_word(words: Sequence[str]) -> str:
    """Return the word of a type that is looked up in `_CURES`.

    Empty: none, and the type is carried.

    It is the first one, but ``collate`` of a string with a collation, and of an interval ``month``
    or ``interval``, by its units.
    """
    if words[:2] == ["string", "collate"]:
        return "collate"
    if words[:1] != ["interval"]:
        return words[0] if words else ""
    units = {"day", "hour", "minute", "second", "year", "month"} & set(words)
    if not units:
        return "interval"
    return "month" if units & {"year", "month"} else ""


def _check_types_within(name: str, type_word: str, text: str) -> None:
    """Raise `ValueError` if a type within an array, a map or a struct is none, or their number is
    wrong.

    A struct may have no fields: ``struct<>``.

    Args:
        name: of the field, for the message.
        type_word: ``array``, ``map`` or ``struct``.
        text: the whole type, as ``map<string, int>``.
    """
    begin = text.find("<")
    end = text.rfind(">")
    inner_text = text[begin + 1 : end]
    if type_word == "struct" and begin >= 0 and not inner_text.strip():
        return
    inner_parts = list(outer_parts(inner_text)) if begin >= 0 else []
    if type_word == "struct":
        names = [_checked_name(part) for part in inner_parts]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"field {name!r}, a struct, names each of its fields once: struct<word: string>")
        return
    types_needed = 2 if type_word == "map" else 1
    if len(inner_parts) != types_needed:
        raise ValueError(f"field {name!r} is to be as array<int> or map<string, int>, not {text.strip()}")
    for inner_type in inner_parts:
        _check_type(name, inner_type)
