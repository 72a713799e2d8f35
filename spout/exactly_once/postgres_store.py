"""A store in PostgreSQL.

Theory of operation
===================

Each call has a connection of its own, and is one transaction. `windhover_sink` has a row for each
group.

`open`
    1. The connections on which earlier starts write for the group are ended: one whose process is
       stopped could hold its locks for ever. What it has not committed is undone.
    2. One statement raises the epoch and returns the last batch. It waits until the transaction of
       a writer that is just committing is over, and sees what became of it.

`commit`
    1. The row of the group is locked, and its epoch compared (`FOR UPDATE`): until the end of the
       transaction nobody opens the store.
    2. The rows are copied, and key and publication put into the row.

Where the role or the database say something else, a transaction has the isolation `READ COMMITTED`,
so that the statement that waited sees what was committed meanwhile; and `synchronous_commit` is not
off: what is acked has to be on the disk.

Source: docs/design/protocol.md, section 3 (rule 12); PostgreSQL 17, 13.2.1 and 19.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, Final, LiteralString

import pyarrow as pa

from acker.errors import NotAuthorized, Unreachable, UsageError
from acker.untrusted import Untrusted, UntrustedName
from spout.exactly_once.column_names import refuse_columns_of_one_name
from spout.exactly_once.store import BatchKey, LastBatch, StoreGrant, fenced_error, refuse_left_out
from spout.exactly_once.value_encoding import column_values, json_texts
from spout.store_columns.first_row import first_row
from spout.store_columns.postgres_columns import COLUMNS, PostgresColumn, changes, takes

try:
    import psycopg
    from psycopg import sql
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
except ModuleNotFoundError as error:
    raise UsageError(
        "a store in PostgreSQL needs the package psycopg: run `pip install 'psycopg[binary]>=3.2'`"
    ) from error

LOCKED_S_MAX: Final = 30
"""So long a call waits for a lock of others, in seconds."""

NAME_BYTES: Final = 63
"""PostgreSQL cuts longer names, where a server does not say otherwise."""

ROWS_AT_ONCE: Final = 10_000
"""So many rows are in memory as Python's values at a time."""

CONNECTION: Final = {
    "connect_timeout": "10",
    # a server whose machine is gone is noticed after half a minute
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "4",
    "tcp_user_timeout": "30000",
}
"""Settings of a connection that says nothing else."""

_TABLE: Final = "windhover_sink"

_CREATE: Final[LiteralString] = """
    CREATE TABLE {} (
        consumer_group text PRIMARY KEY,
        granted_epoch bigint NOT NULL,
        epoch bigint,
        session text,
        query text,
        batch bigint,
        publication bytea
    )
"""
"""The columns from `epoch` on are those of the last batch; NULL: there was none yet."""

_END_EARLIER: Final[LiteralString] = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = current_setting('application_name')
        AND datname = current_database() AND usename = current_user
        AND pid <> pg_backend_pid() AND backend_start < (
            SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()
        )
"""
"""Of two that open at once the one that connected later ends the other."""

_DURABLE: Final[LiteralString] = """
    SELECT set_config('synchronous_commit', 'on', true)
    WHERE current_setting('synchronous_commit') IN ('off', 'local')
"""
"""The stronger values, such as `remote_apply`, stay."""

_PATIENT: Final[LiteralString] = "SELECT set_config('lock_timeout', %s, true)"

_GRANT: Final[LiteralString] = """
    INSERT INTO {} AS entry (consumer_group, granted_epoch) VALUES (%s, %s)
    ON CONFLICT (consumer_group) DO UPDATE
        SET granted_epoch = greatest(excluded.granted_epoch, entry.granted_epoch + 1)
    RETURNING granted_epoch, epoch, session, query, batch, publication
"""

_LOCK: Final[LiteralString] = "SELECT granted_epoch FROM {} WHERE consumer_group = %s FOR UPDATE"

_KEEP: Final[LiteralString] = """
    UPDATE {} SET epoch = %s, session = %s, query = %s, batch = %s, publication = %s
    WHERE consumer_group = %s
"""

_UNFIT_PARTS: Final[LiteralString] = """
    SELECT oid::regclass::text FROM pg_class
    WHERE oid IN (SELECT to_regclass(%s) UNION SELECT relid FROM pg_partition_tree(to_regclass(%s)))
        AND (relkind = 'f' OR relpersistence <> 'p')
"""
"""Parts of a table, and the store's own table, that are not kept for good or not by this server."""

Connection = psycopg.Connection[tuple[Any, ...]]


class PostgresStore:
    """Writes rows into a table of PostgreSQL; the table has the columns of the rows, by name.

    >>> import psycopg
    >>> with psycopg.connect(dsn) as connection:
    ...     _ = connection.execute("CREATE TABLE words (word text)")
    >>> spout.PostgresStore(dsn, "words").open("word-count", epoch_min=1).epoch
    1
    """

    def __init__(self, dsn: str, table: str, *, locked_s_max: int = LOCKED_S_MAX) -> None:
        """Prepare; nothing is connected before the first call.

        Args:
            dsn: of the database, as libpq has it: ``postgresql://user@host/name``, or keys and
                values.
            table: its name; a dot stands between its schema and itself. Whoever uses the store
                creates it. `windhover_sink` is made beside it.
            locked_s_max: how many seconds a call waits for a lock of others.

        Raises `UsageError`: libpq cannot read the dsn, or the store has that table for itself.
        """
        try:
            self._dsn = conninfo_to_dict(dsn)
        except psycopg.ProgrammingError as error:
            # the words of libpq may have a password in them
            raise UsageError(
                "libpq cannot read the dsn of the store; write postgresql://user@host/database"
            ) from error.with_traceback(None)
        self._place = _place(self._dsn)
        parts = table.split(".")
        if parts[-1] == _TABLE:
            raise UsageError(f"the table {table} is what the store keeps for itself; name another")
        self._name = table
        self._table = sql.Identifier(*parts)
        self._sink = sql.Identifier(*parts[:-1], _TABLE)
        self._locked_s_max = locked_s_max

    def open(self, group: str, epoch_min: int) -> StoreGrant:
        """Grant an epoch; see `Store.open`.

        Raises:
            UsageError: there is no such table, or it is one that a crash empties.
            NotAuthorized: the user may not write, or may not create `windhover_sink`.
            Unreachable: PostgreSQL does not answer, or the row of the group stays locked.
        """
        with self._transaction(group) as connection:
            self._refuse_unfit_table(connection)
            connection.execute(_END_EARLIER)
            if not self._persistence(connection, self._sink):
                self._create_sink(connection)
            grant = sql.SQL(_GRANT).format(self._sink)
            # an INSERT with RETURNING has one row
            [(epoch, *columns)] = connection.execute(grant, (group, epoch_min)).fetchall()
        return StoreGrant(epoch, _last_batch(group, columns))

    def commit(self, key: BatchKey, rows: pa.Table, publication: bytes) -> None:
        """Write a batch; see `Store.commit`.

        Raises:
            StoreFenced: a later start has opened the store, or it was emptied or restored meanwhile.
            UsageError: the table lacks a column of the rows, or does not take a value of them.
            NotAuthorized: the user may not write.
            Unreachable: PostgreSQL does not answer, or a lock is not free.
        """
        with self._transaction(key.group) as connection:
            entry = None
            if self._persistence(connection, self._sink):
                entry = self._one(connection, _LOCK, (key.group,))
            granted = 0 if entry is None else entry[0]
            if granted != key.epoch:
                raise fenced_error(f"{self._name} of {self._place}", key, granted)
            self._copy(connection, rows)
            keep = sql.SQL(_KEEP).format(self._sink)
            last_batch = (key.epoch, key.session, key.query, key.batch, publication)
            connection.execute(keep, (*last_batch, key.group))

    def _copy(self, connection: Connection, rows: pa.Table) -> None:
        refuse_columns_of_one_name(rows)
        self._refuse_cut_names(connection, rows.column_names)
        table = self._table.as_string(connection)
        types = {
            name: PostgresColumn(kind, modifier)
            for name, kind, modifier in connection.execute(COLUMNS, (table,)).fetchall()
        }
        columns = sql.SQL(", ").join(map(sql.Identifier, rows.column_names))
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(self._table, columns)
        with connection.cursor() as cursor:
            with cursor.copy(statement) as copy:
                self._write_rows(copy, rows, types)
            # a trigger may leave rows out
            refuse_left_out(f"{self._name} of {self._place}", rows.num_rows, cursor.rowcount)

    def _write_rows(
        self,
        copy: psycopg.Copy,
        rows: pa.Table,
        types: Mapping[str, PostgresColumn],
    ) -> None:
        """Write rows into a copy; `types` has the columns of the table by name."""
        for start in range(0, rows.num_rows, ROWS_AT_ONCE):
            part = rows.slice(start, ROWS_AT_ONCE)
            columns_of_part = [
                self._copied_values(part.column(name), name, start, types.get(name))
                for name in rows.column_names
            ]
            for number, row in enumerate(zip(*columns_of_part, strict=True), start):
                try:
                    copy.write_row(row)
                except (psycopg.DataError, psycopg.ProgrammingError) as error:
                    raise UsageError(
                        f"row {number} of the batch has a value that cannot be written into"
                        f" {self._name}: {_text(error)}; cast it, or fail such tuples in a bolt"
                    ) from error

    def _copied_values(
        self, values_of_column: pa.ChunkedArray, name: str, start: int, column: PostgresColumn | None
    ) -> list[Any]:
        """Return a part of a column as psycopg writes it; `start` is the number of its first row.

        Raises `UsageError`: a value is none of Python's, or its column would change it.
        """
        kind = values_of_column.type
        values = column_values(values_of_column, name, start)
        if column is None or values_of_column.null_count == len(values):
            return values  # a column that the table lacks is named by PostgreSQL
        if not takes(kind, column):
            raise UsageError(
                f"the column {name} of {self._name} is a {column.type}, which would change the {kind}"
                " of the rows, or read it in its own way: cast one to the other's type; nothing of"
                " the batch is written"
            )
        if pa.types.is_nested(kind) and (column.is_json or not pa.types.is_list(kind)):
            return json_texts(values, name, start)
        changed_row = first_row(values, changes(column))
        if changed_row is not None:
            raise UsageError(
                f"row {start + changed_row} of the batch has in {name} a value that the column of"
                f" {self._name} would change ({Untrusted(f'{values[changed_row]!r:.100}')}): a null"
                " byte, or more digits or spaces than it holds; nothing of the batch is written."
                " Widen the column, or fail such tuples in a bolt"
            )
        return values

    def _refuse_cut_names(self, connection: Connection, names: Iterable[str]) -> None:
        """Refuse names that PostgreSQL would cut: the rows could go elsewhere, or be changed."""
        query = "SELECT current_setting('max_identifier_length')::int"
        setting = connection.execute(query).fetchone()
        bytes_max = NAME_BYTES if setting is None else int(setting[0])
        for name in names:
            name_bytes = len(name.encode("utf-8", "surrogatepass"))
            if name_bytes > bytes_max:
                raise UsageError(
                    f"the name {UntrustedName(name)} has {name_bytes} bytes, and PostgreSQL cuts"
                    f" names at {bytes_max}: {self._place} would take another one for it; nothing"
                    " is written."
                    " Give the table or column, and the rows, a shorter name"
                )

    def _refuse_unfit_table(self, connection: Connection) -> None:
        """Refuse a table that is missing, or that PostgreSQL empties after a crash."""
        self._refuse_cut_names(connection, self._name.split("."))
        persistence = self._persistence(connection, self._table)
        if not persistence:
            raise UsageError(
                f"{self._place} has no table {self._name} that the user sees; create it, with the"
                " columns of the rows"
            )
        if persistence != "p":
            raise UsageError(
                f"the table {self._name} of {self._place} is unlogged or temporary: a crash would"
                " empty it, and its rows are acked; run ALTER TABLE ... SET LOGGED"
            )
        table = self._table.as_string(connection)
        sink = self._sink.as_string(connection)
        unfit = connection.execute(_UNFIT_PARTS, (sink, table)).fetchone()
        if unfit is not None:
            raise UsageError(
                f"{unfit[0]} of {self._place} is unlogged, or a foreign table: a crash would empty it,"
                " or another server may keep its rows where this one does not; take another table"
            )

    def _persistence(self, connection: Connection, table: sql.Identifier) -> str:
        """Return how PostgreSQL keeps a table: p for good; empty: there is none."""
        entry = self._one(
            connection,
            "SELECT relpersistence::text FROM pg_class WHERE oid = to_regclass(%s)",
            (table.as_string(connection),),
        )
        return "" if entry is None else str(entry[0])

    def _create_sink(self, connection: Connection) -> None:
        """Create `windhover_sink`; another start may do so at the same time."""
        try:
            with connection.transaction():
                connection.execute(sql.SQL(_CREATE).format(self._sink))
        except (psycopg.errors.DuplicateTable, psycopg.errors.UniqueViolation):
            pass  # it is there now, and the savepoint is undone

    def _one(
        self, connection: Connection, query: LiteralString, values: tuple[object, ...]
    ) -> tuple[Any, ...] | None:
        """Return the only row of a query, in which braces stand for `windhover_sink`."""
        return connection.execute(sql.SQL(query).format(self._sink), values).fetchone()

    @contextmanager
    def _transaction(self, group: str) -> Iterator[Connection]:
        """Yield a connection within a transaction; commit it at the end, or undo it all."""
        try:
            with self._connected(group) as connection:
                connection.execute(_DURABLE)
                connection.execute(_PATIENT, (f"{self._locked_s_max}s",))
                yield connection
        except psycopg.errors.InsufficientPrivilege as error:
            raise NotAuthorized(
                f"the store {self._place} cannot be written: {_text(error)}; grant the right"
            ) from error
        except (psycopg.OperationalError, psycopg.InternalError, psycopg.InterfaceError) as error:
            raise Unreachable(
                f"the store {self._place} cannot be written: {_text(error)}; nobody knows whether"
                " the last transaction counts, and the next start finds out"
            ) from error
        except psycopg.Error as error:
            raise UsageError(
                f"the table {self._name} of {self._place} does not take the rows: {_text(error)};"
                " nothing of the batch is written. Give the table a column for each of the rows',"
                " by name and type, or change the query"
            ) from error

    def _connected(self, group: str) -> Connection:
        """Connect; the connection ends its transaction, and itself, with its `with` block."""
        dsn = make_conninfo("", **{**CONNECTION, **self._dsn}, application_name=_writer_name(group))
        connection = psycopg.connect(dsn)
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        connection.read_only = False
        return connection


def _writer_name(group: str) -> str:
    """Return the `application_name` by which a start finds the connections of earlier ones.

    PostgreSQL cuts a name at 63 bytes, and replaces what is not ASCII.
    """
    return f"windhover-sink-{sha256(group.encode()).hexdigest()[:32]}"


def _last_batch(group: str, columns: list[Any]) -> LastBatch | None:
    """Return the last batch of a row of `windhover_sink`; None: there was none yet."""
    epoch, session, query, batch, publication = columns
    if epoch is None:
        return None
    return LastBatch(BatchKey(group, epoch, session, query, batch), publication)


def _place(dsn: dict[str, Any]) -> str:
    """Return what messages call a database; never with its password."""
    return f"{dsn.get('host', 'localhost')}/{dsn.get('dbname', dsn.get('user', ''))}"


def _text(error: psycopg.Error) -> str:
    """Return what PostgreSQL said, in one line, with the row that it names."""
    context = f" ({error.diag.context})" if error.diag.context else ""
    return " ".join(f"{error}{context}".split())[:500]
