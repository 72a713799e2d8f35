"""The text of an output, as far as it can be read without Spark: fields, and whether types exist.

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
"""By the first word of a type that Arrow does not carry as it is declared: what to declare in its
place. ``collate`` is for strings with a collation, ``month`` for intervals of months."""

_FIRST_WORD_OF_TYPE: Final = re.compile(
    "array|bigint|binary|boolean|byte|date|dec|decimal|double|float|int|integer|interval|long"
    "|map|numeric|real|short|smallint|string|struct|time|timestamp|timestamp_ltz|timestamp_ntz"
    "|tinyint|variant|void"
)
"""The first words of the types that a bolt can emit."""

_NESTED: Final = frozenset({"array", "map", "struct"})
_CLOSING_BY_OPENING: Final = {"<": ">", "(": ")"}
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
            f'bolt {bolt!r}: output = {output!r}; name fields and types, as "word string", each'
            " once, in the class of the bolt. In a topology a bolt that emits nothing declares no"
            " stream: def declare(self, declarer): pass"
        )
    try:
        # "struct<word: string>" has the fields of "word string"
        whole_struct = _STRUCT.fullmatch(output)
        fields = output if whole_struct is None else whole_struct[1]
        names = [_checked_name(field) for field in outer_parts(fields)]
    except ValueError as error:
        raise UsageError(
            f"bolt {bolt!r}: output = {output!r} is no schema: {error}; name fields and types, as"
            ' "word string"'
        ) from error
    # the rows have hidden columns of these names already, so each of them counts twice
    hidden_names = list(filter(_is_hidden, names))
    refuse_repeated_names(bolt, output, hidden_names + hidden_names)
    refuse_repeated_names(bolt, output, names)
    return names


def _is_hidden(name: str) -> bool:
    """Return whether a column of this name is one of our own, which users do not see."""
    lower_name = name.lower()
    return lower_name in (TASK, TO) or lower_name.startswith(ANCHOR)


def refuse_repeated_names(
    bolt: str, output: str, names: Sequence[str], *, case_sensitive: bool = True
) -> None:
    """Raise `UsageError` if two fields of a bolt's output have one name.

    `field_names` passes each hidden name twice, so that it counts as repeated: that is why the
    message has them, too.

    Args:
        output: the whole DDL, for the message.
        names: of the fields.
        case_sensitive: False: ``a`` and ``A`` are one name.
    """
    compared_names = names if case_sensitive else [name.lower() for name in names]
    repeated_names = [name for name, count in Counter(compared_names).items() if count > 1]
    if repeated_names:
        raise UsageError(
            f'bolt {bolt!r}: output = {output!r}; name fields and types, as "word string", each'
            f" once, and none {TASK} or {TO}, or with a name that begins with {ANCHOR}:"
            f" not {', '.join(repeated_names)}"
        )


def outer_parts(text: str) -> Iterator[str]:
    """Yield the parts of a text between its outer commas.

    Raises `ValueError`: a bracket or quote is missing.
    """
    part = ""
    missing_brackets: list[str] = []  # that close those which are open, the innermost last
    for token in _TOKEN.findall(text):
        # a quoted text is one token, so a quote by itself has no end
        if token in ("`", "'", '"'):
            raise ValueError(f"a {token} is not closed")
        if token in _CLOSING_BY_OPENING:
            missing_brackets.append(_CLOSING_BY_OPENING[token])
        if token in _CLOSING_BY_OPENING.values():
            innermost_bracket = missing_brackets.pop() if missing_brackets else ""
            if token != innermost_bracket:
                raise ValueError(f"a {token} closes nothing")
        if token == "," and not missing_brackets:
            yield part
            part = ""
        else:
            part += token
    if missing_brackets:
        raise ValueError(f"a {missing_brackets[-1]} is missing")
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
    """Raise `ValueError` if a text is no type, or a type that Arrow does not carry.

    The types within an array, a map or a struct are checked, too.

    Args:
        name: of the field, for the message.
        text: the type, perhaps with NOT NULL and a comment behind it.
    """
    type_text = text.strip()
    words = _WORD.findall(without_brackets(text).lower())
    type_to_declare = _type_to_declare_for(words)
    if type_to_declare is not None:
        refusal = f"field {name!r} is {type_text}, which no bolt can emit"
        raise ValueError(f"{refusal}; declare {type_to_declare}")
    # a text without a word, such as (), is refused by the next line
    first_word = words[0] if words else type_text
    if _FIRST_WORD_OF_TYPE.fullmatch(first_word) is None:
        raise ValueError(f"field {name!r} has the type {type_text!r}, which is none")
    # behind a type of one word there may only be NOT NULL and a comment
    text_behind = "".join(f" {word}" for word in words[1:])
    is_of_one_word = first_word not in _TYPES_OF_SEVERAL_WORDS
    if is_of_one_word and not _WORDS_BEHIND_TYPE.fullmatch(text_behind):
        raise ValueError(f"field {name!r} has {text_behind.strip()!r} behind its type")
    if first_word in _NESTED:
        _check_types_within(name, first_word, text)


def without_brackets(text: str) -> str:
    """Return a type without what stands in brackets and quotes.

    Of ``decimal(10, 2)`` it is ``decimal``.
    """
    open_bracket_count = 0
    text_outside = ""
    for token in _TOKEN.findall(text):
        if token in _CLOSING_BY_OPENING.values():
            open_bracket_count -= 1
        elif token in _CLOSING_BY_OPENING:
            open_bracket_count += 1
        elif open_bracket_count == 0 and len(token) == 1:  # a longer token is a quoted text
            text_outside += token
    return text_outside


def _type_to_declare_for(words: Sequence[str]) -> str | None:
    """Return what to declare in place of a type that Arrow does not carry, by the type's words.

    None: the type is carried, or there is no such type.
    """
    if not words:
        return None
    if words[:2] == ["string", "collate"]:
        return _CURES["collate"]
    if words[0] != "interval":
        return _CURES.get(words[0])
    units = {"day", "hour", "minute", "second", "year", "month"} & set(words)
    # interval alone may have months, too
    if not units:
        return _CURES["interval"]
    # Arrow carries intervals of days and times, and none of months
    has_months = bool(units & {"year", "month"})
    return _CURES["month"] if has_months else None


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
            example = "struct<word: string>"
            raise ValueError(f"field {name!r}, a struct, names each of its fields once: {example}")
        return
    types_needed = 2 if type_word == "map" else 1
    if len(inner_parts) != types_needed:
        examples = "array<int> or map<string, int>"
        raise ValueError(f"field {name!r} is to be as {examples}, not {text.strip()}")
    for inner_type in inner_parts:
        _check_type(name, inner_type)
