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
from spout.store_columns.first_row import index_of_first
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
        self._database = _database_name(self._dsn)
        schema_and_name = table.split(".")
        if schema_and_name[-1] == _TABLE:
            raise UsageError(f"the table {table} is what the store keeps for itself; name another")
        self._name = table
        self._table = sql.Identifier(*schema_and_name)
        self._sink = sql.Identifier(*schema_and_name[:-1], _TABLE)
        self._locked_s_max = locked_s_max

    def open(self, group: str, epoch_min: int) -> StoreGrant:
        """Grant an epoch; see `Store.open`.

        Raises:
            UsageError: there is no such table, or it is one that a crash empties.
            NotAuthorized: the user may not write, or may not create `windhover_sink`.
            Unreachable: PostgreSQL does not answer, or the row of the group stays locked.
        """
        with self._transaction(group) as connection:
            # before an earlier writer is ended: a start that cannot write fences nobody
            self._refuse_unfit_table(connection)
            connection.execute(_END_EARLIER)
            if not self._persistence(connection, self._sink):
                self._create_sink(connection)
            grant = sql.SQL(_GRANT).format(self._sink)
            # an INSERT with RETURNING has one row
            rows = connection.execute(grant, (group, epoch_min)).fetchall()
            [(epoch, *columns_of_last_batch)] = rows
        return StoreGrant(epoch, _last_batch(group, columns_of_last_batch))

    def commit(self, key: BatchKey, rows: pa.Table, publication: bytes) -> None:
        """Write a batch; see `Store.commit`.

        Raises:
            StoreFenced: a later start has opened the store, or it was emptied or restored meanwhile.
            UsageError: the table lacks a column of the rows, or does not take a value of them.
            NotAuthorized: the user may not write.
            Unreachable: PostgreSQL does not answer, or a lock is not free.
        """
        with self._transaction(key.group) as connection:
            group_row = None
            # the table of the store may be gone: the database was emptied, or restored
            if self._persistence(connection, self._sink):
                group_row = self._only_row(connection, _LOCK, (key.group,))
            granted_epoch = 0 if group_row is None else group_row[0]
            if granted_epoch != key.epoch:
                raise fenced_error(f"{self._name} of {self._database}", key, granted_epoch)
            self._insert(connection, rows)
            keep_last_batch = sql.SQL(_KEEP).format(self._sink)
            last_batch = (key.epoch, key.session, key.query, key.batch, publication)
            connection.execute(keep_last_batch, (*last_batch, key.group))

    def _insert(self, connection: Connection, rows: pa.Table) -> None:
        """Insert rows into the table, by PostgreSQL's statement COPY.

        Raises `UsageError`: the table does not take the rows as they are.
        """
        refuse_columns_of_one_name(rows)
        self._refuse_cut_names(connection, rows.column_names)
        table = self._table.as_string(connection)
        table_columns = {
            name: PostgresColumn(type_name, modifier)
            for name, type_name, modifier in connection.execute(COLUMNS, (table,)).fetchall()
        }
        names = sql.SQL(", ").join(map(sql.Identifier, rows.column_names))
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(self._table, names)
        with connection.cursor() as cursor:
            with cursor.copy(statement) as copy_statement:
                self._write_rows(copy_statement, rows, table_columns)
            # a trigger may leave rows out
            refuse_left_out(f"{self._name} of {self._database}", rows.num_rows, cursor.rowcount)

    def _write_rows(
        self,
        copy_statement: psycopg.Copy,
        rows: pa.Table,
        table_columns: Mapping[str, PostgresColumn],
    ) -> None:
        """Send the rows of a batch to PostgreSQL, by a statement COPY that is being executed.

        `table_columns` has the columns of the table, by name.

        Raises `UsageError`: a value cannot be written, or its column would change it.
        """
        for first_row in range(0, rows.num_rows, ROWS_AT_ONCE):
            some_rows = rows.slice(first_row, ROWS_AT_ONCE)
            values_by_column = [
                self._written_values(some_rows, name, first_row, table_columns.get(name))
                for name in rows.column_names
            ]
            rows_of_values = zip(*values_by_column, strict=True)
            for row_number, row in enumerate(rows_of_values, first_row):
                try:
                    copy_statement.write_row(row)
                except (psycopg.DataError, psycopg.ProgrammingError) as error:
                    raise UsageError(
                        f"row {row_number} of the batch has a value that cannot be written into"
                        f" {self._name}: {_text(error)}; cast it, or fail such tuples in a bolt"
                    ) from error

    def _written_values(
        self, some_rows: pa.Table, name: str, first_row: int, table_column: PostgresColumn | None
    ) -> list[Any]:
        """Return the values of a column in some rows, in the form in which psycopg writes them.

        Args:
            some_rows: neighbouring rows of a batch.
            name: of the column.
            first_row: number of the first of the rows in the batch, for messages.
            table_column: the table's column of that name; None: it has none.

        Raises `UsageError`: a value is none of Python's, or its column would change it.
        """
        column = some_rows.column(name)
        arrow_type = column.type
        values = column_values(column, name, first_row)
        # a column that the table lacks is named by PostgreSQL's own error; nulls fit any type
        if table_column is None or column.null_count == len(values):
            return values
        if not takes(arrow_type, table_column):
            raise UsageError(
                f"the column {name} of {self._name} is a {table_column.type}, which would change"
                f" the {arrow_type} of the rows, or read it in its own way: cast one to the other's"
                " type; nothing of the batch is written"
            )
        # PostgreSQL has arrays for lists, and a map or a struct only as JSON
        is_list = pa.types.is_list(arrow_type)
        if pa.types.is_nested(arrow_type) and (table_column.is_json or not is_list):
            return json_texts(values, name, first_row)
        changed_index = index_of_first(values, changes(table_column))
        if changed_index is not None:
            changed_value = Untrusted(f"{values[changed_index]!r:.100}")
            raise UsageError(
                f"row {first_row + changed_index} of the batch has in {name} a value that the"
                f" column of {self._name} would change ({changed_value}): a null byte, or more digits or"
                " spaces than it holds; nothing of the batch is written. Widen the column, or fail"
                " such tuples in a bolt"
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
                    f" names at {bytes_max}: {self._database} would take another one for it;"
                    " nothing is written. Give the table or column, and the rows, a shorter name"
                )

    def _refuse_unfit_table(self, connection: Connection) -> None:
        """Refuse a table that is missing, or that PostgreSQL empties after a crash."""
        self._refuse_cut_names(connection, self._name.split("."))
        persistence = self._persistence(connection, self._table)
        if not persistence:
            raise UsageError(
                f"{self._database} has no table {self._name} that the user sees; create it, with"
                " the columns of the rows"
            )
        if persistence != "p":  # not PERMANENT
            raise UsageError(
                f"the table {self._name} of {self._database} is unlogged or temporary: a crash"
                " would empty it, and its rows are acked; run ALTER TABLE ... SET LOGGED"
            )
        # a permanent table may have other parts, and `windhover_sink` may be another kind of table
        table = self._table.as_string(connection)
        sink = self._sink.as_string(connection)
        unfit_part = connection.execute(_UNFIT_PARTS, (sink, table)).fetchone()
        if unfit_part is not None:
            raise UsageError(
                f"{unfit_part[0]} of {self._database} is unlogged, or a foreign table: a crash"
                " would empty it, or another server may keep its rows where this one does not; take"
                " another table"
            )

    def _persistence(self, connection: Connection, table: sql.Identifier) -> str:
        """Return how PostgreSQL keeps a table: p for good; empty: there is no such table."""
        row = self._only_row(
            connection,
            "SELECT relpersistence::text FROM pg_class WHERE oid = to_regclass(%s)",
            (table.as_string(connection),),
        )
        return "" if row is None else str(row[0])

    def _create_sink(self, connection: Connection) -> None:
        """Create `windhover_sink`; another start may do so at the same time."""
        try:
            with connection.transaction():  # a savepoint within the transaction of `open`
                connection.execute(sql.SQL(_CREATE).format(self._sink))
        except (psycopg.errors.DuplicateTable, psycopg.errors.UniqueViolation):
            pass  # the other start has created it, and what is done since the savepoint is undone

    def _only_row(
        self, connection: Connection, query: LiteralString, values: tuple[object, ...]
    ) -> tuple[Any, ...] | None:
        """Return the only row that a query has as its result; None: it has none.

        Braces in the query stand for the table `windhover_sink`.
        """
        return connection.execute(sql.SQL(query).format(self._sink), values).fetchone()

    @contextmanager
    def _transaction(self, group: str) -> Iterator[Connection]:
        """Yield a connection within a transaction; commit it at the end, or undo it all."""
        try:
            with self._new_connection(group) as connection:
                connection.execute(_DURABLE)
                connection.execute(_PATIENT, (f"{self._locked_s_max}s",))
                yield connection
        except psycopg.errors.InsufficientPrivilege as error:
            raise NotAuthorized(
                f"the store {self._database} cannot be written: {_text(error)}; grant the right"
            ) from error
        except (psycopg.OperationalError, psycopg.InternalError, psycopg.InterfaceError) as error:
            raise Unreachable(
                f"the store {self._database} cannot be written: {_text(error)}; nobody knows"
                " whether the last transaction counts, and the next start finds out"
            ) from error
        except psycopg.Error as error:
            raise UsageError(
                f"the table {self._name} of {self._database} does not take the rows:"
                f" {_text(error)}; nothing of the batch is written. Give the table a column for each"
                " of the rows', by name and type, or change the query"
            ) from error

    def _new_connection(self, group: str) -> Connection:
        """Return a new connection, which as a context ends its transaction and then itself.

        Its name is the one by which the next start of the group finds it, to end it.
        """
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
    """Return the last batch of a group; None: there was none yet.

    `columns` are those of its row in `windhover_sink`, from `epoch` on.
    """
    epoch, session, query, batch, publication = columns
    if epoch is None:
        return None
    return LastBatch(BatchKey(group, epoch, session, query, batch), publication)


def _database_name(dsn: dict[str, Any]) -> str:
    """Return what messages call a database; never with its password."""
    return f"{dsn.get('host', 'localhost')}/{dsn.get('dbname', dsn.get('user', ''))}"


def _text(error: psycopg.Error) -> str:
    """Return what PostgreSQL said, in one line, with the row that it names."""
    context = f" ({error.diag.context})" if error.diag.context else ""
    return " ".join(f"{error}{context}".split())[:500]
