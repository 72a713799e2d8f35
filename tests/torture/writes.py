"""The sink: a table of everything that was ever written, upserted by row identity and attempt.

A row's identity is the origin of its record and its place in it. The table keeps each attempt's row on its
own and counts how often it came, so that it can be told afterwards what was written again, by whom.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

_CREATE: Final = """
CREATE TABLE IF NOT EXISTS writes (
    origin TEXT NOT NULL, ordinal INTEGER NOT NULL, attempt INTEGER NOT NULL,
    word TEXT NOT NULL, first_ms INTEGER NOT NULL, times INTEGER NOT NULL,
    PRIMARY KEY (origin, ordinal, attempt)
) WITHOUT ROWID
"""

# SQLite's own clock, which no stepped clock of a Python process touches: Julian day 2440587.5 is 1970.
# A word that comes back as another one is kept as both, so that it is seen.
_UPSERT: Final = """
INSERT INTO writes VALUES (?, ?, ?, ?, CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER), 1)
ON CONFLICT DO UPDATE SET
    times = times + 1,
    word = CASE WHEN word = excluded.word THEN word ELSE word || '|' || excluded.word END
"""

LOCK_SECONDS_MAX: Final = 90.0
"""A driver that is stopped within a write holds the file until it goes on: longer than any blow is held."""


class Write(NamedTuple):
    """A row of the table. `first_ms` is the wall time of its first write, `times` how often it came."""

    origin: str
    ordinal: int
    attempt: int
    word: str
    first_ms: int
    times: int


class WriteTable:
    """The table in one SQLite file."""

    def __init__(self, path: Path) -> None:
        """Open the table, and make it where there is none. `path` is the file."""
        # foreachBatch runs on a thread of Spark's; one batch at a time, so one connection serves
        self._db = sqlite3.connect(path, timeout=LOCK_SECONDS_MAX, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        # a process that dies loses nothing that the kernel has; the machine does not die here
        self._db.execute("PRAGMA synchronous=OFF")
        self._db.execute(_CREATE)

    def upsert(self, rows: Iterable[tuple[str, int, int, str]]) -> None:
        """Write (origin, ordinal, attempt, word) rows, all or none."""
        with self._db:
            self._db.executemany(_UPSERT, rows)

    def writes(self) -> list[Write]:
        """Return all rows."""
        return [Write(*row) for row in self._db.execute("SELECT * FROM writes")]

    def close(self) -> None:
        """Close the file."""
        self._db.close()
