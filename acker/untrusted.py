"""Text that somebody else wrote, as a type of its own; pure.

Whatever comes with a record, from a broker or from a request, may be written so that it looks like a word of
Windhover's: with backticks, between which our sentences have commands to copy; with characters that move the
cursor, begin a line, or turn it around. So such text is no `str` here but `Untrusted`, and a sentence of ours
takes it up by formatting it, f"{cause}", which makes it harmless:

- A character that nobody can see becomes an escape (`acker.notation`).
- A backtick becomes an apostrophe, or ``%60`` in a name, which somebody may give back. So the backticks of a
  sentence are those of our templates.
- Letters that are written from right to left are isolated, so that the words around keep their places.

A view shows a sentence by `sentence_line`, or by `sentence_pieces` where it can mark what is isolated. Each
view passes through these all that it prints, so a text that nobody has wrapped may look odd, and commands
nothing.
"""

from __future__ import annotations

import re
import shlex
import traceback
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeGuard

from acker.notation import readable, show_text
from acker.redaction import cut

ISOLATE: Final = "\u2068"
"""Begins a part of a sentence with a direction of its own, whatever that is (FIRST STRONG ISOLATE)."""

END: Final = "\u2069"
"""Ends what `ISOLATE` begins (POP DIRECTIONAL ISOLATE)."""

ENTRY_CHARACTERS_MAX: Final = 1 << 16
"""Of a longer entry of a traceback, as of a message that quotes a record, half of this is shown."""

_FROM_THE_RIGHT: Final = frozenset({"R", "AL", "AN"})
"""Unicode's classes of letters and digits that are written from right to left."""

_NO_BACKTICK: Final = {ord("`"): "'"}


@dataclass(frozen=True, slots=True)
class Untrusted:
    """A message, or other text that nobody gives back.

    >>> f"it failed: {Untrusted('no `rm -rf /`' + chr(10) + 'all is well')}"
    "it failed: no 'rm -rf /'%0Aall is well"
    """

    raw: str

    def __bool__(self) -> bool:
        return bool(self.raw)

    def __str__(self) -> str:
        return isolated(readable(self.raw).translate(_NO_BACKTICK))

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


def untrusted_lines(text: str) -> str:
    """Return a text of several lines for the end of a sentence."""
    return "\n".join(str(Untrusted(line)) for line in text.splitlines())


class UntrustedName(Untrusted):
    """A name, such as that of an operator, as a sentence has it; somebody may give it to an option.

    >>> f"bolt {UntrustedName('a`b%')}"
    'bolt a%60b%25'
    """

    __slots__ = ()

    def __str__(self) -> str:
        return in_sentence(show_text(self.raw)) if self.raw else ""


def in_sentence(shown: str) -> str:
    """Return a text that is in the notation as a sentence has it; it names the same value.

    >>> in_sentence("a`b%0A")
    'a%60b%0A'
    """
    return isolated(shown.replace("`", "%60"))


def sentence_line(sentence: str) -> str:
    """Return a sentence as a terminal or a log has it: one line, of which each character can be seen."""
    return readable(_without_isolates(sentence))


class Piece(NamedTuple):
    """A part of a sentence, and whether it has a direction of its own."""

    text: str
    is_isolated: bool


def sentence_pieces(sentence: str) -> Iterator[Piece]:
    """Yield the parts of a sentence, each as `sentence_line` has it.

    Together they have the text of the sentence, without `ISOLATE` and `END`. Only a mark that
    would be drawn over the letter before (an accent) is written by its bytes where a part begins
    with it, since that letter is another's. A part between `ISOLATE` and `END` is isolated: it has
    a direction of its own.
    """
    for part_number, part in enumerate(sentence.split(ISOLATE)):
        isolated_text, end_or_empty, plain_text = part.partition(END)
        # The part before the first `ISOLATE` is not isolated. A part without `END` is not either:
        # nothing ends its `ISOLATE`, which is dropped.
        if part_number and end_or_empty:
            yield Piece(readable(isolated_text), is_isolated=True)
        else:
            plain_text = _without_isolates(part)
        if plain_text:
            yield Piece(sentence_line(plain_text), is_isolated=False)


def isolated(text: str) -> str:
    """Return a text as a part of a sentence whose other words it does not move."""
    if any(unicodedata.bidirectional(character) in _FROM_THE_RIGHT for character in text):
        return f"{ISOLATE}{text}{END}"
    return text


def _without_isolates(text: str) -> str:
    return text.replace(ISOLATE, "").replace(END, "")


def shell_word(text: str) -> str:
    r"""Return a text as one word of a command that somebody copies into a shell, in one line.

    >>> print(shell_word("g"), shell_word("my group"), shell_word("`id`\n"))
    g 'my group' $'\x60id\x60\n'
    """
    if "`" not in text and text == readable(text):
        return shlex.quote(text)
    escaped = "".join(map(_shell_character, text))
    return f"$'{escaped}'"


def _shell_character(character: str) -> str:
    """Return a character as it stands in $'...' of a shell; what is not visible as its bytes."""
    if character in "'\\":
        return f"\\{character}"
    if character == "\n":
        return r"\n"
    if character == "`" or readable(character) != character:
        return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))
    return character


def trace_lines(error: BaseException) -> list[str]:
    """Return the traceback of an error, line by line: a message with line breaks is one line all
    the same.

    What has the form of a secret is cut out of it. Of a very long message only the beginning is
    searched and shown: to search megabytes for secrets would take minutes.
    """
    lines: list[str] = []
    for entry in traceback.format_exception(error):
        text = _shown_part_of(entry).rstrip("\n")
        if _PYTHON_ENTRY.match(entry):  # an entry of Python: its line breaks stay
            lines += text.split("\n")
        else:  # the error's message, whose line breaks become escapes
            lines.append(text)
    return [readable(line) for line in lines]


def _shown_part_of(entry: str) -> str:
    """Return an entry of a traceback without secrets, and without its end where it is too long."""
    if len(entry) <= ENTRY_CHARACTERS_MAX:
        return cut(entry)
    # a secret that is cut in two has not its form, so what stands just before the cut is not shown
    shown = cut(entry[:ENTRY_CHARACTERS_MAX])[: ENTRY_CHARACTERS_MAX // 2]
    return f"{shown}… of {len(entry):,} characters"


_PYTHON_ENTRY: Final = re.compile(r"[\s|+-]*(File \"|Traceback |Exception Group Traceback |\Z)|\n")
"""How entries begin that have several lines of Python's own; the message of an error is another entry."""


def is_whole_number(value: object, least: int, end: int) -> TypeGuard[int]:
    """Return whether a value is a whole number from `least` to the one before `end`.

    JSON's ``true`` is none, although Python counts it as 1.

    >>> is_whole_number(5, 0, 6), is_whole_number(6, 0, 6), is_whole_number(True, 0, 6)
    (True, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < end
