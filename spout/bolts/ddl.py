"""The text of an output, as far as it can be read without Spark: fields, and the kinds of their types.

A bolt is attached before there is a session, and a topology's file is checked without one. So what is wrong
with an output for sure is found here, at once; Spark's own parser has the last word when there is a session.

Source: Spark's SQL reference, data types: ``name [:] type [NOT NULL] [COMMENT 'text']``, separated by commas.
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

_KIND: Final = re.compile(
    "array|bigint|binary|boolean|byte|date|dec|decimal|double|float|int|integer|interval|long|map|numeric"
    "|real|short|smallint|string|struct|time|timestamp|timestamp_ltz|timestamp_ntz|tinyint|variant|void"
)
"""The first words of the types that a bolt can emit."""

_NESTED: Final = frozenset({"array", "map", "struct"})
_CLOSING: Final = {"<": ">", "(": ")"}
_TOKEN: Final = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|.", re.S)
_NAME: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s:`]+))\s*:?\s*(.*)$", re.S)
_WORD: Final = re.compile(r"[a-z_]+")
_STRUCT: Final = re.compile(r"\s*struct\s*<(.*)>\s*", re.S | re.I)
_BEHIND: Final = re.compile(r"(?: not null)?(?: comment)?")
_LONG: Final = frozenset({"interval", "timestamp", "double", "time"})
"""Types that may have several words, as ``interval day to second``."""


def field_names(bolt: str, output: object) -> list[str]:
    """Return the names of an output's fields.

    Raises `UsageError`: it is no text, is empty, cannot be read, has a name twice or one that is taken, or a
    type that no bolt can emit.
    """
    if not isinstance(output, str):
        raise UsageError(
            f"bolt {bolt!r}: output = {output!r} ({type(output).__name__}); it is a text in Spark's DDL:"
            ' output = "word string, length int"'
        )
    if not output.strip():
        raise UsageError(
            f'bolt {bolt!r}: output = {output!r}; name fields and types, as "word string", each once, in the'
            " class of the bolt. In a topology a bolt that emits nothing declares no stream:"
            " def declare(self, declarer): pass"
        )
    try:
        whole = _STRUCT.fullmatch(output)
        names = [_checked(field) for field in outer_parts(output if whole is None else whole[1])]
    except ValueError as error:
        raise UsageError(
            f"bolt {bolt!r}: output = {output!r} is no schema: {error}; name fields and types, as"
            ' "word string"'
        ) from error
    taken = [name for name in names if name.lower() in (TASK, TO) or name.lower().startswith(ANCHOR)]
    refuse_twice(bolt, output, taken + taken)
    refuse_twice(bolt, output, names)
    return names


def refuse_twice(bolt: str, output: str, names: Sequence[str], *, case_sensitive: bool = True) -> None:
    """Raise `UsageError` if a name is there twice; where case does not count, ``a`` and ``A`` are one."""
    spelled = names if case_sensitive else [name.lower() for name in names]
    twice = [name for name, count in Counter(spelled).items() if count > 1]
    if twice:
        raise UsageError(
            f'bolt {bolt!r}: output = {output!r}; name fields and types, as "word string", each once, and'
            f" none {TASK} or {TO}, or with a name that begins with {ANCHOR}: not {', '.join(twice)}"
        )


def outer_parts(text: str) -> Iterator[str]:
    """Yield the parts of a text between its outer commas; `ValueError`: a bracket or quote is missing."""
    part = ""
    open_brackets: list[str] = []
    for token in _TOKEN.findall(text):
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


def _checked(field: str) -> str:
    """Check one field, and return its name."""
    name, kind = name_and_type(field)
    if not kind.strip():
        raise ValueError(f"field {name!r} has no type")
    _check_kind(name, kind)
    return name


def name_and_type(field: str) -> tuple[str, str]:
    """Return the name of a field, and the text behind it; `ValueError`: it is empty."""
    found = _NAME.match(field)
    if not field.strip() or found is None:
        raise ValueError("a field is empty")
    quoted, plain, kind = found.groups()
    return plain if quoted is None else quoted.replace("``", "`"), kind


def _check_kind(name: str, text: str) -> None:
    """Raise `ValueError` if a type begins with no word that is one, or is one that Arrow does not carry."""
    words = _WORD.findall(without_brackets(text).lower())
    first = words[0] if words else text.strip()
    refused = _refused(words)
    if refused in _CURES:
        raise ValueError(
            f"field {name!r} is {text.strip()}, which no bolt can emit; declare {_CURES[refused]}"
        )
    if _KIND.fullmatch(first) is None:
        raise ValueError(f"field {name!r} has the type {text.strip()!r}, which is none")
    behind = "".join(f" {word}" for word in words[1:])
    if first not in _LONG and not _BEHIND.fullmatch(behind):
        raise ValueError(f"field {name!r} has{behind!r} behind its type")
    if first in _NESTED:
        _check_parts(name, first, text)


def without_brackets(text: str) -> str:
    """Return a type without what stands in brackets and quotes."""
    depth, outside = 0, ""
    for token in _TOKEN.findall(text):
        depth -= token in _CLOSING.values()
        if not depth and token not in ("<", "(", ">", ")") and len(token) == 1:
            outside += token
        depth += token in _CLOSING
    return outside


def _refused(words: Sequence[str]) -> str:
    """Return the word for which a type of these words is not carried; empty: there is none."""
    if words[:2] == ["string", "collate"]:
        return "collate"
    if words[:1] != ["interval"]:
        return words[0] if words else ""
    units = {"day", "hour", "minute", "second", "year", "month"} & set(words)
    if not units:
        return "interval"
    return "month" if units & {"year", "month"} else ""


def _check_parts(name: str, first: str, text: str) -> None:
    begin, end = text.find("<"), text.rfind(">")
    inner = text[begin + 1 : end]
    if first == "struct" and begin >= 0 and not inner.strip():
        return
    parts = list(outer_parts(inner)) if begin >= 0 else []
    if first == "struct":
        names = [_checked(part) for part in parts]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"field {name!r}, a struct, names each of its fields once: struct<word: string>")
    elif len(parts) != (2 if first == "map" else 1):
        raise ValueError(f"field {name!r} is to be as array<int> or map<string, int>, not {text.strip()}")
    else:
        for part in parts:
            _check_kind(name, part)
