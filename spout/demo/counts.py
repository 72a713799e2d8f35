"""The demo's sink: a table of words that is upserted by row identity.

A word's identity is the origin of its line (the first emission, which a replayed copy names in its headers)
and its ordinal in the line. A line that is replayed writes the same rows again, so nothing counts twice.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from acker.errors import CheckFailed

_CREATE = """
CREATE TABLE IF NOT EXISTS words (
    origin TEXT NOT NULL, ordinal INTEGER NOT NULL, word TEXT NOT NULL,
    PRIMARY KEY (origin, ordinal)
) WITHOUT ROWID
"""

# Busy for ten seconds means that another process holds the file for good, not that it is busy.
_LOCK_SECONDS_MAX = 10.0


class WordTable:
    """A table (origin, ordinal) -> word in one SQLite file."""

    def __init__(self, path: Path) -> None:
        """Open the table, and make it where there is none. `path` is the file."""
        # foreachBatch runs on a thread of Spark's; one batch at a time, so one connection serves
        self._db = sqlite3.connect(path, timeout=_LOCK_SECONDS_MAX, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=OFF")  # the demo proves deliveries, not this disk
        self._db.execute(_CREATE)

    def upsert(self, rows: Iterable[tuple[str, int, str]]) -> None:
        """Write (origin, ordinal, word) rows, all or none; a row that is there already is replaced."""
        with self._db:
            self._db.executemany("INSERT OR REPLACE INTO words VALUES (?, ?, ?)", rows)

    def counts(self) -> Counter[str]:
        """Count the rows of each word."""
        return Counter(dict(self._db.execute("SELECT word, COUNT(*) FROM words GROUP BY word")))

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def first_difference(expected: Counter[str], found: Counter[str]) -> str:
    """Name the first word, in alphabetical order, whose counts differ; empty when none does."""
    for word in sorted(expected.keys() | found.keys()):
        if expected[word] != found[word]:
            return f"{word!r} was counted {found[word]} times, and stands {expected[word]} times in the text"
    return ""


def require_equal(expected: Counter[str], found: Counter[str]) -> None:
    """Compare two counts.

    Raises:
        CheckFailed: a word was counted more or less often than it stands in the text.
    """
    difference = first_difference(expected, found)
    if difference:
        raise CheckFailed(difference)
