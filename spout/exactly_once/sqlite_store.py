"""A store in a file of SQLite, for laptops and tests.

Each call opens the file, and is one transaction that begins with the lock of writers (`BEGIN
IMMEDIATE`). So between the comparison of the epoch and the commit no other process can open the
store.

Source: docs/design/protocol.md, section 3 (rule 12).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa

from acker.errors import StoreFenced, Unreachable, UsageError
from spout.exactly_once.column_names import refuse_columns_of_one_name
from spout.exactly_once.store import BatchKey, LastBatch, StoreGrant
from spout.exactly_once.value_encoding import column_values

LOCKED_S_MAX: Final = 30.0
"""So long a call waits for other writers of the file."""

_CREATE: Final = """
    CREATE TABLE IF NOT EXISTS windhover_sink (
        consumer_group TEXT PRIMARY KEY,
        granted_epoch INTEGER NOT NULL,
        epoch INTEGER,
        session TEXT,
        query TEXT,
        batch INTEGER,
        publication BLOB
    )
"""
"""The columns from `epoch` on are those of the last batch; NULL: there was none yet."""

_READ: Final = "SELECT * FROM windhover_sink WHERE consumer_group = ?"

_GRANT: Final = """
    INSERT INTO windhover_sink (consumer_group, granted_epoch) VALUES (?, ?)
    ON CONFLICT (consumer_group) DO UPDATE SET granted_epoch = excluded.granted_epoch
"""

_KEEP: Final = """
    UPDATE windhover_sink SET epoch = ?, session = ?, query = ?, batch = ?, publication = ?
    WHERE consumer_group = ?
"""


class SQLiteStore:
    """Writes rows into a table of a file; the table has the columns of the rows, by name.

    >>> import os, sqlite3, tempfile
    >>> file = os.path.join(tempfile.mkdtemp(), "words.sqlite")
    >>> connection = sqlite3.connect(file)
    >>> _ = connection.execute("CREATE TABLE words (word TEXT)")
    >>> connection.close()
    >>> spout.SQLiteStore(file, "words").open("word-count", epoch_min=1).epoch
    1
    """

    def __init__(self, path: Path | str, table: str, *, locked_s_max: float = LOCKED_S_MAX) -> None:
        """Prepare; nothing is opened before the first call.

        Args:
            path: of the file, which is made if it is missing.
            table: its name; whoever uses the store creates it.
            locked_s_max: how many seconds a call waits for other writers of the file.
        """
        self._path = Path(path)
        self._table = table
        self._locked_s_max = locked_s_max

    def open(self, group: str, epoch_min: int) -> StoreGrant:
        """Grant an epoch; see `Store.open`.

        Raises:
            UsageError: the file has no such table.
            Unreachable: the file is locked, or cannot be written.
        """
        with self._transaction() as connection:
            self._refuse_missing_table(connection)
            connection.execute(_CREATE)
            entry = connection.execute(_READ, (group,)).fetchone()
            granted_before = 0 if entry is None else int(entry[1])
            epoch = max(epoch_min, granted_before + 1)
            connection.execute(_GRANT, (group, epoch))
        return StoreGrant(epoch, None if entry is None else _last_batch(entry))

    def commit(self, key: BatchKey, rows: pa.Table, publication: bytes) -> None:
        """Write a batch; see `Store.commit`.

        Raises:
            StoreFenced: a later start has opened the store.
            UsageError: the table lacks a column of the rows, or a value is none that SQLite has.
            Unreachable: the file is locked, or cannot be written.
        """
        with self._transaction() as connection:
            entry = connection.execute(_READ, (key.group,)).fetchone()
            granted = 0 if entry is None else int(entry[1])
            if granted != key.epoch:
                raise StoreFenced(
                    f"a later start has opened {self._path} for group {key.group}: epoch {granted}"
                    f" is granted, and this one has {key.epoch}; nothing of batch {key.batch} is"
                    " written. Let one query read the group"
                )
            self._insert(connection, rows)
            last_batch = (key.epoch, key.session, key.query, key.batch, publication)
            connection.execute(_KEEP, (*last_batch, key.group))

    def _insert(self, connection: sqlite3.Connection, rows: pa.Table) -> None:
        refuse_columns_of_one_name(rows)
        names = ", ".join(_quoted(name) for name in rows.column_names)
        marks = ", ".join("?" for _ in rows.column_names)
        columns = [column_values(rows.column(name), name) for name in rows.column_names]
        insert = f"INSERT INTO {_quoted(self._table)} ({names}) VALUES ({marks})"
        try:
            connection.executemany(insert, zip(*columns, strict=True))
        except (sqlite3.ProgrammingError, sqlite3.InterfaceError, OverflowError) as error:
            types = ", ".join(f"{field.name} {field.type}" for field in rows.schema)
            raise UsageError(
                f"a value of the rows ({types}) is none that SQLite has ({error}); make it a whole"
                " number of 64 bits, a float, a text or bytes"
            ) from error
        except sqlite3.OperationalError as error:
            if "no column named" not in str(error):
                raise
            raise UsageError(
                f"{error}; give the table {self._table} in {self._path} the columns"
                f" {', '.join(rows.column_names)}"
            ) from error

    def _refuse_missing_table(self, connection: sqlite3.Connection) -> None:
        select = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?"
        if not connection.execute(select, (self._table,)).fetchone()[0]:
            raise UsageError(
                f"{self._path} has no table {self._table}; create it, with the columns of the rows"
            )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection within a transaction; commit it at the end, or undo it all."""
        try:
            # without an isolation level no transaction begins but those that are begun here
            opened = sqlite3.connect(self._path, timeout=self._locked_s_max, isolation_level=None)
            with closing(opened) as connection:
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise Unreachable(
                f"the store {self._path} cannot be written: {error}; nobody knows whether the last"
                " transaction counts, and the next start finds out"
            ) from error


def _last_batch(entry: tuple[str, int, int | None, str, str, int, bytes]) -> LastBatch | None:
    """Return the last batch of a row of `windhover_sink`; None: there was none yet."""
    group, _, epoch, session, query, batch, publication = entry
    if epoch is None:
        return None
    return LastBatch(BatchKey(group, epoch, session, query, batch), publication)


def _quoted(name: str) -> str:
    """Return a name as SQL has it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'
