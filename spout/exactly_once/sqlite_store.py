"""A store in a file of SQLite, for laptops and tests.

Each call opens the file, and is one transaction that begins with the lock of writers (`BEGIN
IMMEDIATE`). So between the comparison of the epoch and the commit no other process can open the
store.

Source: docs/design/protocol.md, section 3 (rule 12).
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from acker.errors import Unreachable, UsageError
from acker.untrusted import Untrusted
from spout.exactly_once.column_names import refuse_columns_of_one_name
from spout.exactly_once.store import BatchKey, LastBatch, StoreGrant, fenced_error, refuse_left_out
from spout.exactly_once.value_encoding import column_values
from spout.store_columns.sqlite_columns import (
    Affinity,
    column_affinities,
    folded_name,
    refuse_columns_of_one_folded_name,
    refuse_names_of_row_numbers,
    stored_values,
)

LOCKED_S_MAX: Final = 30.0
"""So long a call waits for other writers of the file."""

_REPLACES: Final = re.compile(r"ON\s+CONFLICT\s+REPLACE", re.IGNORECASE)
"""A rule in the declaration of a table by which a row, or a default, takes the place of another."""

_SINK: Final = "windhover_sink"

_NO_DATABASE_CODES: Final = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)

_FILE_CODES: Final = (
    *_NO_DATABASE_CODES,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_INTERRUPT,
)
"""What SQLite says of a file that it cannot read or write; all else is about the statement."""

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

        Raises `UsageError`: no file has that name, or the store has that table for itself.
        """
        if "\0" in str(path):
            raise UsageError("the path of the store has a null byte; no file has such a name")
        if folded_name(table) == _SINK:
            raise UsageError(f"the table {table} is what the store keeps for itself; name another")
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
            group_row = connection.execute(_READ, (group,)).fetchone()
            # the second column is the epoch that was granted last
            granted_before = 0 if group_row is None else int(group_row[1])
            epoch = max(epoch_min, granted_before + 1)
            connection.execute(_GRANT, (group, epoch))
        last_batch = None if group_row is None else _last_batch(group_row)
        return StoreGrant(epoch, last_batch)

    def commit(self, key: BatchKey, rows: pa.Table, publication: bytes) -> None:
        """Write a batch; see `Store.commit`.

        Raises:
            StoreFenced: a later start has opened the store, or it was emptied or restored meanwhile.
            UsageError: the table lacks a column of the rows or refuses a value, or would change it.
            Unreachable: the file is locked, or cannot be written.
        """
        with self._transaction(mode="rw") as connection:  # a missing file is not made again
            group_row = None
            # the table of the store may be gone: the file was replaced
            if self._has_table(connection, _SINK):
                group_row = connection.execute(_READ, (key.group,)).fetchone()
            # the second column is the epoch that was granted last
            granted_epoch = 0 if group_row is None else int(group_row[1])
            if granted_epoch != key.epoch:
                raise fenced_error(str(self._path), key, granted_epoch)
            self._insert(connection, rows)
            last_batch = (key.epoch, key.session, key.query, key.batch, publication)
            connection.execute(_KEEP, (*last_batch, key.group))

    def _insert(self, connection: sqlite3.Connection, rows: pa.Table) -> None:
        """Insert rows into the table.

        Raises `UsageError`: the table does not take the rows as they are.
        """
        refuse_columns_of_one_name(rows)
        refuse_columns_of_one_folded_name(rows.column_names)
        affinities = column_affinities(connection, self._table)
        refuse_names_of_row_numbers(rows.column_names, affinities, self._table)
        self._refuse_replacing_table(connection)
        values_by_column: list[list[Any]] = []
        for field in rows.schema:
            values = column_values(rows.column(field.name), field.name)
            # a column that the table lacks is named by SQLite's own error, below
            affinity = affinities.get(folded_name(field.name), Affinity.NONE)
            stored = stored_values(values, field.type, field.name, affinity, self._table)
            values_by_column.append(stored)
        names = ", ".join(_quoted(name) for name in rows.column_names)
        marks = ", ".join("?" for _ in rows.column_names)
        # not INSERT OR ABORT, which would overrule what the table's triggers do about conflicts
        insert = f"INSERT INTO {_quoted(self._table)} ({names}) VALUES ({marks})"
        taken_count = 0  # rows that SQLite has begun to insert: the last of them may be refused

        def taken_rows() -> Iterator[tuple[Any, ...]]:
            nonlocal taken_count
            for row in zip(*values_by_column, strict=True):
                taken_count += 1
                yield row

        try:
            written_count = connection.executemany(insert, taken_rows()).rowcount
        except (sqlite3.Error, OverflowError) as error:
            if _is_about_the_file(error):
                raise
            # a statement that cannot be compiled has taken no row
            row_text = f"row {taken_count - 1} of the batch" if taken_count else "the rows"
            raise self._refused_error(rows, row_text, error) from error
        refuse_left_out(f"{self._table} in {self._path}", rows.num_rows, written_count)

    def _refused_error(self, rows: pa.Table, row_text: str, error: Exception) -> UsageError:
        """Return the error of rows that the table does not take.

        `row_text` says which row it is, as "row 7 of the batch"; `error` is SQLite's.
        """
        reason = f"{Untrusted(str(error))}"
        if isinstance(error, OverflowError):
            reason += ", so a value is none that SQLite has; make it a whole number of 64 bits"
        elif "no column named" in reason:
            return UsageError(
                f"{reason}; give the table {self._table} in {self._path} the columns"
                f" {', '.join(rows.column_names)}"
            )
        return UsageError(
            f"the table {self._table} in {self._path} does not take {row_text}: {reason}; nothing"
            " of the batch is written. Change the table or the query, or fail such tuples in a bolt"
        )

    def _refuse_missing_table(self, connection: sqlite3.Connection) -> None:
        if not self._has_table(connection, self._table):
            raise UsageError(
                f"{self._path} has no table {self._table}; create it, with the columns of the rows"
            )

    def _refuse_replacing_table(self, connection: sqlite3.Connection) -> None:
        """Refuse a table in which a row takes the place of an older one, whose record is acked."""
        select = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE"
        declaration = connection.execute(select, (self._table,)).fetchone()
        if declaration is not None and _REPLACES.search(str(declaration[0])):
            raise UsageError(
                f"the table {self._table} in {self._path} is declared with ON CONFLICT REPLACE: a"
                " row would take away an older one, or a default the place of a null, and records"
                " would be acked; nothing of the batch is written. Write into a table without that"
                " rule, and let a trigger keep the newest rows in another"
            )

    def _has_table(self, connection: sqlite3.Connection, name: str) -> bool:
        is_table = "type = 'table' AND name = ? COLLATE NOCASE"
        select = f"SELECT count(*) FROM sqlite_master WHERE {is_table}"
        return bool(connection.execute(select, (name,)).fetchone()[0])

    @contextmanager
    def _transaction(self, mode: str = "rwc") -> Iterator[sqlite3.Connection]:
        """Yield a connection within a transaction; commit it at the end, or undo it all.

        `mode` is SQLite's: ``rwc`` makes the file if it is missing, ``rw`` does not.
        """
        try:
            address = f"{self._path.absolute().as_uri()}?mode={mode}"
            # without an isolation level no transaction begins but those that are begun here
            opened = sqlite3.connect(
                address,
                uri=True,
                timeout=self._locked_s_max,
                isolation_level=None,
            )
            with closing(opened) as connection:
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                except BaseException:
                    # a constraint of the table may have ended the transaction: ON CONFLICT ROLLBACK
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            if _primary_code(error) in _NO_DATABASE_CODES:
                raise UsageError(
                    f"the store {self._path} is no database of SQLite, or damaged: {error}; name"
                    " another file, or restore it from a backup"
                ) from error
            raise Unreachable(
                f"the store {self._path} cannot be written: {error}; nobody knows whether the last"
                " transaction counts, and the next start finds out"
            ) from error


def _primary_code(error: sqlite3.Error) -> int:
    """Return SQLite's code of an error, without what its higher bytes say more of it."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _is_about_the_file(error: Exception) -> bool:
    """Return whether a statement failed for the file or its disk, and not for its rows."""
    return isinstance(error, sqlite3.Error) and _primary_code(error) in _FILE_CODES


def _last_batch(group_row: tuple[str, int, int | None, str, str, int, bytes]) -> LastBatch | None:
    """Return the last batch of a row of `windhover_sink`; None: there was none yet."""
    group, _granted_epoch, epoch, session, query, batch, publication = group_row
    if epoch is None:
        return None
    return LastBatch(BatchKey(group, epoch, session, query, batch), publication)


def _quoted(name: str) -> str:
    """Return a name as SQL has it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'
