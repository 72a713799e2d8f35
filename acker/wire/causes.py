"""How the wire names an exception: its class, and those of its parents that only its own program
knows.

A cause's `error` is a text that a person reads: ``ValueError``, or ``NoSuchOrder(OrderError,
LookupError)``. The parents in parentheses, nearest first, let a rule that names a class fit its
subclasses in a process that cannot import them. What stands above a built-in class is left out,
since every Python knows it. An explicit fail has no class, and counts as `FailTuple`. Windhover's
own causes (``BATCH_SKIPPED``) are written in capitals without parentheses: no exception was raised
there, and no rule for exceptions fits them.

Where an exception was raised stands at the end of the cause's message, ``no words (split.py:12)``:
a label of a metric is the class alone, and has no line in it.

`Cause.of` makes a cause, and is the only place where one is cut: bolts, the spout and ackers all
use it. So a stack is found by its cause wherever both of them went.

Source: docs/design/protocol.md, section 3 rule 11; the texts stand in `Fails` and `Verdicts`
(section 4).
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple, Self

from acker.errors import UnreadableKind

HELD: Final = "HELD"
"""Error of a root that was not handed to any bolt, since a record before it waits (`ordering`)."""

DAMAGED: Final = UnreadableKind.DAMAGED.value
"""Error of a root whose record nobody could read, since it lies in a damaged batch.

It has no operator.
"""

UNREADABLE_CAUSES: Final[Mapping[str, UnreadableKind]] = {kind.value: kind for kind in UnreadableKind}
"""Errors of roots whose records nobody could read, `DAMAGED` and its siblings.

They have no operator.
"""

LATE: Final = "LATE"
"""Error of a root of which a tuple came too late for its watermark."""

EXPLICIT: Final = "FailTuple"
"""The class that an explicit fail counts as."""

PARENTS_MAX: Final = 8
"""So many parents are named, the nearest ones."""

NAME_CHARACTERS_MAX: Final = 100
"""A class's name is cut to this many characters: with its parents it stays below 1,000."""

TEXT_BYTES_MAX: Final = 500
"""Operator, error and message are cut to so many bytes of UTF-8: 256 causes fit into a record of the wire."""

_BASE_CLASSES: Final = ("Exception", "BaseException")
_CODE_LINE: Final = re.compile(r"(?:\A| )\([^()\n]{1,60}:[0-9]{1,9}\)\Z")


class Cause(NamedTuple):
    """Why a tuple failed. `error` is the exception's class as the wire has it, empty for an
    explicit fail.

    The message of an exception ends with the file and line where it was raised: ``no words
    (split.py:12)``.
    """

    operator: str
    error: str
    message: str

    @classmethod
    def of(cls, operator: str, error: str, message: str) -> Self:
        """Make a cause: each of its texts is cut to `TEXT_BYTES_MAX` bytes of UTF-8.

        The line of code at the end of its message stays, such as `` (split.py:12)``.

        >>> Cause.of("split", "ValueError", "x" * 1_000 + " (split.py:12)").message[-20:]
        'xxxxxx (split.py:12)'
        """
        return cls(clipped(operator, TEXT_BYTES_MAX), clipped(error, TEXT_BYTES_MAX), cut_text(message))


def cut_text(text: str) -> str:
    """Cut a text to `TEXT_BYTES_MAX` bytes of UTF-8, never inside a character.

    A line of code at its end stays, such as `` (split.py:12)``, where an exception was raised.
    What is no character becomes a question mark: a file's name may have some, and no record of
    the wire can.
    """
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= TEXT_BYTES_MAX:
        return encoded.decode()
    message, code_line = without_code_line(text)
    return clipped(message, TEXT_BYTES_MAX - len(code_line.encode("utf-8", "replace"))) + code_line


def clipped(text: str, bytes_max: int) -> str:
    """Cut a text so that its UTF-8 form has at most `bytes_max` bytes, never within a character."""
    return text.encode("utf-8", "replace")[:bytes_max].decode("utf-8", "ignore")


def error_text(kind: type[BaseException]) -> str:
    """Return an exception's class as the wire has it: its name, and those parents that a reader
    cannot know.

    ``ValueError``, ``NoSuchOrder(OrderError, LookupError)``, or ``Lone`` for a class of a user
    that stands directly below Exception. A reader of the wire cannot import a user's classes; the
    parents of a built-in class it finds by itself.
    """
    name = class_name(kind)[:NAME_CHARACTERS_MAX]
    if _is_built_in(kind):
        return name
    parent_names: list[str] = []
    # what every Python knows by itself: of LookupError, that Exception stands above it
    implied: set[type] = {object, BaseException, Exception}
    for parent in kind.__mro__[1:]:
        if parent in implied:
            continue
        parent_names.append(class_name(parent)[:NAME_CHARACTERS_MAX])
        if _is_built_in(parent):
            implied.update(parent.__mro__)
    # A user's own ``class ValueError(Exception)`` is ``ValueError()``, and his ``class LATE`` is
    # ``LATE()``: the parentheses say that it is neither the built-in class nor a cause of
    # Windhover's own.
    looks_like_another = name in vars(builtins) or name.isupper()
    if not parent_names and not looks_like_another:
        return name
    return f"{name}({', '.join(parent_names[:PARENTS_MAX])})"


def class_name(kind: type) -> str:
    """Return the name of a class, whatever its own class makes of ``__name__``."""
    name: str = vars(type)["__name__"].__get__(kind)
    return name


def error_class(error: str) -> str:
    """Return the class's own name, without its parents; empty for an explicit fail."""
    return error.partition("(")[0]


@lru_cache(maxsize=1_024)
def error_classes(error: str) -> tuple[str, ...]:
    """Return the names of the class and of all its parents, by a text that `error_text` made.

    Of a cause of Windhover's own, written in capitals, that is its name alone.

    >>> error_classes("NoSuchOrder(LookupError)")
    ('NoSuchOrder', 'LookupError', 'Exception', 'BaseException')
    """
    name, has_parents, parent_names = error.partition("(")
    if name.isupper() and not has_parents:  # Windhover's own: no rule for exceptions fits it
        return (name,)
    if not name:  # a bolt failed the tuple without an exception
        return (EXPLICIT, *_BASE_CLASSES)
    # a class with parents is no built-in one, whatever it is called
    class_names = [name] if has_parents else _with_built_in_parents(name)
    for parent in parent_names.rstrip(")").split(", "):
        if parent:
            class_names += _with_built_in_parents(parent)
    # two parents may have one of their own in common; a dict keeps each name once, and their order
    return tuple(dict.fromkeys([*class_names, *_BASE_CLASSES]))


def with_code_line(message: str, code_line: str) -> str:
    """Write behind a message where its exception was raised, ``split.py:12``; empty: nobody knows."""
    if not code_line:
        return message
    return f"{message} ({code_line})" if message else f"({code_line})"


def without_code_line(message: str) -> tuple[str, str]:
    """Return a message without the line of code at its end, and that end: `` (split.py:12)``.

    Put together they are the message. Without a line the end is empty.
    """
    match = _CODE_LINE.search(message)
    if match is None:
        return message, ""
    return message[: match.start()], match[0]


def _is_built_in(kind: type) -> bool:
    """Return whether a class is Python's own, and needs no import."""
    return kind.__module__ == "builtins"


def _with_built_in_parents(name: str) -> list[str]:
    """Return a class's name and, if it is a built-in exception, those of its parents, nearest first."""
    kind = vars(builtins).get(name)
    if not isinstance(kind, type) or not issubclass(kind, BaseException):
        return [name]
    # the last one is `object`, which is no exception
    return [parent.__name__ for parent in kind.__mro__[:-1]]
