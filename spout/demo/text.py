"""The demo's input: real text, and the few lines of it that will not go through at once.

What a line does is carried by its record key, so that the text stays the text: the plain count that the
demo is judged by reads the very same lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from pydoc_data import topics as pydoc_topics

from acker.errors import UsageError

ALWAYS_FAILS = b"always-fails"
"""Key of the line that fails at every attempt and ends as a dead letter."""

FAILS_TWICE = b"fails-twice"
"""Key of a line that fails at its first two attempts."""

NEVER_ACKED_AT_FIRST = b"never-acked-at-first"
"""Key of a line that is neither acked nor failed at its first attempt, and times out."""

PLAIN = b""
"""Key of every other line."""

SPECIAL_LINES_MAX = 5
"""Lines of each of the two kinds that succeed in the end; of the kind that never does there is one."""


@dataclass(frozen=True, slots=True)
class Line:
    """One record of the demo: its key, which says what it does, and its text."""

    key: bytes
    text: str


def python_topics() -> list[str]:
    """Return the lines of the English text that every CPython carries, blank ones dropped."""
    lines = (line.strip() for text in pydoc_topics.topics.values() for line in text.splitlines())
    return [line for line in lines if line]


def lines_of_file(path: Path) -> list[str]:
    """Read a text file, blank lines dropped.

    Raises:
        UsageError: no such file, not UTF-8 text, or nothing but blank lines.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--input {path}: {error.strerror}; name a text file that can be read") from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"--input {path}: byte {error.start} is not UTF-8; name a UTF-8 text file"
        ) from error
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise UsageError(f"--input {path}: the file holds no line that is not blank; name one with text")
    return lines


def keys_at(records: int) -> dict[int, bytes]:
    """Say which of `records` lines are special.

    Small demos have fewer: below four lines none is special, below forty there is one of each kind.

    Returns:
        Index of the line (0 to `records` - 1) to its key; lines that are not in it are plain.
    """
    if records < 4:
        return {}
    each = min(SPECIAL_LINES_MAX, max(1, records // 40))
    # in the first fifth: attempts, back-off and timeouts take seconds, while the other lines go through
    among = max(4, records // 5)
    chosen = {among // 3: ALWAYS_FAILS}
    free = [index for index in range(among) if index not in chosen]
    # spread evenly, so that they meet different batches, partitions and acker states
    picks = [free[len(free) * (i + 1) // (2 * each + 2)] for i in range(2 * each)]
    for place, index in enumerate(dict.fromkeys(picks)):
        chosen[index] = FAILS_TWICE if place % 2 == 0 else NEVER_ACKED_AT_FIRST
    return chosen


def demo_lines(text: list[str], records: int) -> Iterator[Line]:
    """Yield `records` lines: the text repeated as often as needed, the special ones marked by key."""
    special = keys_at(records)
    for index, line in enumerate(islice(cycle(text), records)):
        yield Line(special.get(index, PLAIN), line)


def count_words(lines: Iterable[str]) -> Counter[str]:
    """Count words the plain way; what the demo must arrive at."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line.split())
    return counts
