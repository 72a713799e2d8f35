"""Fifty texts that want to be more than text, and the rule by which all that is printed is judged.

Each has the word `MARK` in it, so that a judge finds what has come of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any, Final

MARK: Final = "EvIl"

_FORMS: Final = (
    # commands to copy
    "`curl http://x | sh # {}`", "`windhover dlq drop {} --execute --why x`", "a ` b {}", "``{}``",
    "$(touch {})",
    "; rm -rf {} #", "' ; {} '", '" {} "', "\\`{}\\`", "<code>windhover release {}</code>",
    # lines of one's own
    "x\nwindhover: all is well {}", "x\r\nnote: {}", "x\rOK {}", "x\x0b{}\x0c", "x\x85{}",
    "x\u2028{}\u2029",
    "x\n\n{}\n", "\n{}", "{}\n",
    # the terminal
    "\x1b[31m{}\x1b[0m", "\x1b[2J\x1b[H{}", "\x1b]8;;http://x\x07{}\x1b]8;;\x07", "\x1b]0;{}\x07",
    "\x9b31m{}",
    "\x90{}\x9c", "{}\x08\x08\x08\x08", "{}\x00", "{}\x7f", "[bold red]{}[/bold red]",
    "[link=http://x]{}[/link]",
    "[/]{}", "{}[", ":skull: {}",
    # directions
    "\u202e{}\u202c", "\u202d{}", "\u2066{}", "\u2067{}\u2069", "\u2068{}\u2069", "\u2069{}\u2068",
    "\u200f{}",
    "\u05e9\u05dc\u05d5\u05dd {} 7", "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 {} \u0661\u0662\u0663",
    # what nobody sees
    "{}\u200b\u200c\u200d\u2060\ufeff", "\u0301{}", "{}" + "\u0335" * 60, "\u3164{}\u115f", "\U000e0041{}",
    # pages, documents, metrics
    "<script>alert('{}')</script>", "<img src=x onerror=alert({})>", "\"><b onmouseover='{}'>", "</pre>{}",
    "&lt;{}&#x1b;", "data: {}\n\nevent: x\n", "{{{{ {} }}}} {{% x %}}", '{{"a": "{}"}}',
    "!!python/object:{} x",
    "- {}: &a *a", '{}",x="y"}} 1\n# TYPE', "{}\\", "=cmd|' /C {}'!A0", "| {} |", "[x](javascript:{})",
    "%s %(x)s {} %n", "{}%", "%0A{}", "null {}", "{} " + "x" * 180,
)  # fmt: skip

HOSTILE: Final = tuple(form.format(MARK) for form in _FORMS)

_UNSEEN: Final = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_FORGED: Final = re.compile(rf"windhover: all|note: {MARK}|OK {MARK}|{MARK}|\"?{MARK}|event: x")
"""A line that a text of ours would not begin so."""

_FIELD: Final = re.compile(
    r"│|┃| *(?:header|key|payload|operator|error|message|cause|missing|reason|dead|group|stack"
    r"|why handled) "
)
"""The line of a cell or a field."""

_COMMAND: Final = re.compile(r"`[^`\n]*`")


def unseen(text: str) -> list[str]:
    """Return what nobody can see of an output, or what turns it around, each with what stands beside it."""
    return [
        f"{match[0]!a} in {text[max(0, match.start() - 40) : match.end() + 40]!a}"
        for match in _UNSEEN.finditer(text)
    ]


def wrong_lines(printed: str) -> list[str]:
    """Return what is wrong with lines for people: of a terminal, a monitor, or a log.

    A cell of a table, and a field behind its name, has a text as it is, and nothing of ours.
    """
    lines = printed.split("\n")
    sentences = [line for line in lines if not _FIELD.match(line)]
    commands = [
        command
        for line in sentences
        for command in _COMMAND.findall(line)
        if MARK in command and not _is_quoted(command[1:-1])
    ]
    begun = [line for line in lines if _FORGED.match(line)]
    return [*unseen(printed), *commands, *begun]


def wrong_page(page: str) -> list[str]:
    """Return what is wrong with a page: elements and commands that no template of ours has."""
    reader = _PageReader()
    reader.feed(page)
    reader.close()
    return [*unseen(page), *reader.wrong]


def texts_in(document: Any) -> Iterator[str]:
    """Yield all texts of plain data."""
    if isinstance(document, str):
        yield document
    elif isinstance(document, dict):
        for name, value in document.items():
            yield from texts_in(name)
            yield from texts_in(value)
    elif isinstance(document, list):
        for value in document:
            yield from texts_in(value)


def wrong_document(document: str) -> list[str]:
    """Return what is wrong with a document in JSON: it can be read, and all of it can be seen."""
    json.loads(document)
    return unseen(document)


class _PageReader(HTMLParser):
    """Reads a page as a browser does, and keeps where a hostile text is more than a text."""

    NEVER = frozenset({"script", "style", "code"})
    EMPTY = frozenset({"meta", "link", "input", "img", "br"})

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.wrong: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        is_foreign_script = tag == "script" and not (dict(attrs).get("src") or "").startswith("/static/")
        if tag in ("b", "img") or is_foreign_script:
            self.wrong.append(f"element {tag} {attrs}")
        for name, value in attrs:
            if name.startswith("on") or MARK.lower() in name:
                self.wrong.append(f"attribute {name} of {tag}")
            if name in ("href", "action", "src") and not (value or "").startswith(("/", "#", "?")):
                self.wrong.append(f"address {value!a} of {tag}")
        if tag not in self.EMPTY:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.EMPTY:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.wrong.append(f"the end of {tag} has no begin")

    def handle_data(self, data: str) -> None:
        inside = self.NEVER.intersection(self._open)
        if MARK in data and inside and not _is_quoted(data):
            self.wrong.append(f"{data!a} in {', '.join(inside)}")


def _is_quoted(command: str) -> bool:
    """Return whether a shell takes what is hostile in a command of ours as words of it."""
    plain = _QUOTED_WORD.sub("", command)
    return command.startswith("windhover ") and MARK not in plain and not re.search(r"[$`;|&<>#\n]", plain)


_QUOTED_WORD: Final = re.compile(r"\$'(?:\\.|[^'\\])*'|'[^']*'|\"'\"|(?<= )[\w.%/@:+-]+")
