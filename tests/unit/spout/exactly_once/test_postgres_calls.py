"""What the store asks of PostgreSQL, in which order, and what its answers come to; the server is a fake.

`tests/contract/test_postgres_store.py` has the same on a real one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from acker.errors import NotAuthorized, StoreFenced, Unreachable, UsageError
from spout.exactly_once.postgres_store import CONNECTION, PostgresStore
from spout.exactly_once.store import LastBatch, StoreGrant
from tests.support.exact_batches import key_of

DSN: Final = "postgresql://kim:secret@db.example:5433/shop"
COPY: Final = 'COPY "words" ("word") FROM STDIN'
Columns = list[tuple[str, str, int]]
"""Of each column of the table its name, type and modifier."""


class Answer(list[tuple[Any, ...]]):
    """The rows of a statement."""

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the first row."""
        return self[0] if self else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all rows."""
        return list(self)


class Server:
    """PostgreSQL with a table, as far as the store can see it."""

    def __init__(self, columns: Columns | None = None) -> None:
        self.columns: Columns = [("word", "text", -1)] if columns is None else columns
        self.persistence = {'"words"': "p", '"s"."words"': "p"}
        self.unfit_parts: list[str] = []
        # by the name of `windhover_sink` with its schema, and by group
        self.entries: dict[str, dict[str, list[Any]]] = {}
        self.rows: list[tuple[Any, ...]] = []
        self.statements: list[str] = []
        """The first words of each, in the order of their calls."""
        self.connections: list[Connection] = []
        self.raises: dict[str, Exception] = {}
        """By the first words of a statement, what it raises; `connect` and `row` are statements here."""

    def connect(self, dsn: str) -> Connection:
        """Connect."""
        self.note("connect")
        self.connections.append(Connection(self, dsn))
        return self.connections[-1]

    def note(self, statement: str) -> None:
        """Note a statement, and raise what it raises."""
        self.statements.append(statement)
        if statement in self.raises:
            raise self.raises[statement]


class Connection:
    """A connection to a `Server`; its `with` block is its transaction."""

    connection = None
    """Psycopg asks for it where it writes a name: none, so that it takes no encoding from it."""

    def __init__(self, server: Server, dsn: str) -> None:
        self.server = server
        self.settings = conninfo_to_dict(dsn)
        self.isolation_level: psycopg.IsolationLevel | None = None
        self.read_only: bool | None = None
        self.patience = ""
        self._copied: list[tuple[Any, ...]] = []
        self._kept: Callable[[], None] = lambda: None

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.server.rows += self._copied
            self._kept()

    def execute(self, query: str | sql.Composable, values: Sequence[Any] = ()) -> Answer:
        """Answer a statement."""
        text = query if isinstance(query, str) else query.as_string(None)
        words = " ".join(text.split())
        if "max_identifier_length" in words:  # a question about the server, which changes nothing
            return Answer([(63,)])
        name = next(name for name in ANSWERS if name in words)
        self.server.note(name)
        return Answer(ANSWERS[name](self, words, values))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Begin a savepoint."""
        self.server.note("SAVEPOINT")
        yield

    @contextmanager
    def cursor(self) -> Iterator[Connection]:
        """Return a cursor."""
        yield self

    @property
    def rowcount(self) -> int:
        """How many rows a copy wrote."""
        return len(self._copied)

    @contextmanager
    def copy(self, statement: sql.Composable) -> Iterator[Connection]:
        """Begin to copy rows."""
        self.server.note(statement.as_string(None))
        yield self

    def write_row(self, row: tuple[Any, ...]) -> None:
        """Copy a row."""
        self.server.note("row")
        self._copied.append(row)

    def kept(self, words: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Keep the last batch of a group, once the transaction is committed."""
        *last_batch, group = values
        entry = self.entries(words)[group]

        def keep() -> None:
            entry[1:] = last_batch

        self._kept = keep
        return []

    def entries(self, words: str) -> dict[str, list[Any]]:
        """Return the rows of the `windhover_sink` that a statement names."""
        return next(rows for name, rows in self.server.entries.items() if name in words)

    def granted(self, words: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Raise the epoch of a group."""
        group, epoch_min = values
        entry = self.entries(words).setdefault(group, [0, None, None, None, None, None])
        entry[0] = max(epoch_min, entry[0] + 1)
        return [tuple(entry)]

    def created(self, words: str) -> list[tuple[Any, ...]]:
        """Create a `windhover_sink`."""
        self.server.entries[words.split()[2]] = {}
        return []

    def persistence_of(self, name: str) -> list[tuple[Any, ...]]:
        """Return how a table is kept."""
        kept = {**self.server.persistence, **dict.fromkeys(self.server.entries, "p")}
        return [(kept[name],)] if name in kept else []

    def wait(self, patience: str) -> list[tuple[Any, ...]]:
        """Set for how long a lock is waited for."""
        self.patience = patience
        return []


Reply = Callable[[Connection, str, Sequence[Any]], list[tuple[Any, ...]]]
ANSWERS: Final[dict[str, Reply]] = {
    "set_config('synchronous_commit', 'on', true)": lambda *_: [],
    "set_config('lock_timeout'": lambda one, _, values: one.wait(values[0]),
    "relpersistence::text": lambda one, _, values: one.persistence_of(values[0]),
    "pg_partition_tree": lambda one, *_: [(part,) for part in one.server.unfit_parts],
    "pg_terminate_backend": lambda *_: [],
    "CREATE TABLE": lambda one, words, _: one.created(words),
    "INSERT INTO": lambda one, words, values: one.granted(words, values),
    "FOR UPDATE": lambda one, words, values: [
        (entry[0],) for group, entry in one.entries(words).items() if group == values[0]
    ],
    "FROM pg_attribute": lambda one, *_: [tuple(column) for column in one.server.columns],
    "UPDATE": lambda one, words, values: one.kept(words, values),
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return served(monkeypatch, Server())


def served(monkeypatch: pytest.MonkeyPatch, server: Server) -> Server:
    """Let whoever connects reach a server."""
    monkeypatch.setattr(psycopg, "connect", server.connect)
    return server


def opened(table: str = "words", **options: int) -> PostgresStore:
    """Return a store that is granted epoch 1."""
    store = PostgresStore(DSN, table, **options)
    assert store.open("g", 1).epoch == 1
    return store


def words(*names: str) -> pa.Table:
    return pa.table({"word": list(names)})


def test_a_start_looks_at_the_table_ends_earlier_writers_and_is_granted_an_epoch(server: Server) -> None:
    """The table of the store is created where it is missing, and no second time."""
    store = PostgresStore(DSN, "words")
    assert store.open("g", 7) == StoreGrant(7, None)
    looked = [
        "connect",
        "set_config('synchronous_commit', 'on', true)",
        "set_config('lock_timeout'",
        "relpersistence::text",
        "pg_partition_tree",
        "pg_terminate_backend",
        "relpersistence::text",
    ]
    assert server.statements == [*looked, "SAVEPOINT", "CREATE TABLE", "INSERT INTO"]
    server.statements.clear()
    assert store.open("g", 3) == StoreGrant(8, None)
    assert server.statements == [*looked, "INSERT INTO"]
    assert list(server.entries) == ['"windhover_sink"']


def test_another_start_may_create_the_stores_table_at_the_same_time(server: Server) -> None:
    server.entries['"windhover_sink"'] = {}
    persistence_of = Connection.persistence_of
    for error in (psycopg.errors.DuplicateTable(), psycopg.errors.UniqueViolation()):
        server.raises["CREATE TABLE"] = error
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                Connection,
                "persistence_of",
                lambda one, name: persistence_of(one, name) * ("sink" not in name),
            )
            assert PostgresStore(DSN, "words").open("g", 1).last_batch is None
        assert server.statements[-2:] == ["CREATE TABLE", "INSERT INTO"]


def test_rows_key_and_publication_are_one_transaction_and_the_next_start_has_them(server: Server) -> None:
    store = opened()
    server.statements.clear()
    store.commit(key_of(1, batch=4), words("the", "hawk"), b"published")
    assert server.statements == [
        "connect", "set_config('synchronous_commit', 'on', true)", "set_config('lock_timeout'",
        "relpersistence::text", "FOR UPDATE", "FROM pg_attribute", COPY, "row", "row", "UPDATE",
    ]  # fmt: skip
    assert server.rows == [("the",), ("hawk",)]
    assert store.open("g", 1) == StoreGrant(2, LastBatch(key_of(1, batch=4), b"published"))


def test_a_table_of_a_schema_has_the_stores_own_one_beside_it(server: Server) -> None:
    store = opened("s.words")
    store.commit(key_of(1), words("hawk"), b"1")
    assert list(server.entries) == ['"s"."windhover_sink"']
    assert 'COPY "s"."words" ("word") FROM STDIN' in server.statements
    assert store.open("g", 1).last_batch == LastBatch(key_of(1), b"1")


@pytest.mark.parametrize("table", ["windhover_sink", "s.windhover_sink"])
def test_the_stores_own_table_takes_no_rows(table: str) -> None:
    with pytest.raises(UsageError, match=f"the table {table} is what the store keeps for itself"):
        PostgresStore(DSN, table)


def test_a_dsn_that_cannot_be_read_is_not_shown() -> None:
    with pytest.raises(UsageError, match="libpq cannot read the dsn of the store") as refused:
        PostgresStore("password=secret nonsense", "words")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (None, "it has nothing of the group now, and this one has 1"),
        (2, "epoch 2 is granted, and this one has 1"),
        (0, "it has nothing of the group now, and this one has 1"),
    ],
    ids=["emptied", "opened by a later start", "restored"],
)
def test_under_an_epoch_that_is_not_the_last_one_nothing_is_copied(
    server: Server, entry: int | None, why: str
) -> None:
    store = opened()
    entries = server.entries['"windhover_sink"']
    if entry is None:
        entries.clear()
    else:
        entries["g"][0] = entry
    with pytest.raises(StoreFenced, match=f"{why}; nothing of batch 0"):
        store.commit(key_of(1), words("late"), b"1")
    assert server.rows == []
    assert server.statements[-1] == "FOR UPDATE"


def test_a_connection_has_the_stores_settings_except_what_the_dsn_says(server: Server) -> None:
    """Whatever the role or the database say: each statement sees what was committed before it, and writes."""
    opened(locked_s_max=7)
    opened_by_dsn = PostgresStore(f"{DSN}?connect_timeout=3", "words")
    opened_by_dsn.open("another", 1)
    first, second = server.connections
    assert first.settings == {
        **CONNECTION, "user": "kim", "password": "secret", "host": "db.example", "port": "5433",
        "dbname": "shop", "application_name": first.settings["application_name"],
    }  # fmt: skip
    assert (second.settings["connect_timeout"], second.patience) == ("3", "30s")
    assert (first.isolation_level, first.read_only) == (psycopg.IsolationLevel.READ_COMMITTED, False)
    assert first.patience == "7s"
    names = [str(one.settings["application_name"]) for one in (first, second)]
    assert names[0] != names[1], "the writer of one group does not end that of another"
    assert all(name.startswith("windhover-sink-") and len(name) < 64 for name in names)


@pytest.mark.parametrize(("persistence", "why"), [
    ("", "db.example/shop has no table words that the user sees; create it"),
    ("u", "the table words of db.example/shop is unlogged or temporary"),
    ("t", "the table words of db.example/shop is unlogged or temporary"),
])  # fmt: skip
def test_a_table_that_is_missing_or_that_a_crash_empties_is_refused_before_a_writer_is_ended(
    server: Server, persistence: str, why: str
) -> None:
    server.persistence = {'"words"': persistence} if persistence else {}
    with pytest.raises(UsageError, match=why):
        PostgresStore(DSN, "words").open("g", 1)
    assert "pg_terminate_backend" not in server.statements


def test_a_part_of_the_table_that_a_crash_empties_is_refused(server: Server) -> None:
    server.unfit_parts = ["words_2026"]
    with pytest.raises(UsageError, match=r"words_2026 of .* is unlogged, or a foreign table"):
        PostgresStore(DSN, "words").open("g", 1)
    assert "pg_terminate_backend" not in server.statements


class WithContext(psycopg.errors.CheckViolation):
    """An error of which the server says in which line it is."""

    diag = SimpleNamespace(context="COPY words,\n line 3")  # type: ignore[assignment]


@pytest.mark.parametrize("statement", ["connect", "FOR UPDATE", COPY, "UPDATE"])
@pytest.mark.parametrize(
    ("error", "raised", "why"),
    [
        (psycopg.errors.InsufficientPrivilege("permission denied"), NotAuthorized,
         "cannot be written: permission denied; grant the right"),
        (psycopg.OperationalError("gone"), Unreachable, "cannot be written: gone; nobody knows"),
        (psycopg.InternalError("odd"), Unreachable, "cannot be written: odd; nobody knows"),
        (psycopg.InterfaceError("closed"), Unreachable, "cannot be written: closed; nobody knows"),
        (WithContext("refused\n  by a check"), UsageError, r"refused by a check \(COPY words, line 3\);"),
        (psycopg.IntegrityError("x" * 600), UsageError, f" {'x' * 500};"),
    ],
    ids=["no right", "gone", "internal", "closed", "refused", "long"],
)  # fmt: skip
def test_what_the_server_says_is_named_with_what_it_means(
    server: Server, statement: str, error: Exception, raised: type[Exception], why: str
) -> None:
    store = opened()
    server.raises[statement] = error
    with pytest.raises(raised, match=why):
        store.commit(key_of(1), words("hawk"), b"1")
    assert server.rows == []
    server.raises.clear()
    assert store.open("g", 1) == StoreGrant(2, None)


@pytest.mark.parametrize("error", [psycopg.DataError("no"), psycopg.ProgrammingError("no")])
def test_a_value_that_psycopg_cannot_write_is_named_by_its_row(
    server: Server, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Also where the rows are copied in several parts."""
    monkeypatch.setattr("spout.exactly_once.postgres_store.ROWS_AT_ONCE", 2)
    store = opened()
    write_row = Connection.write_row

    def refuse_third(one: Connection, row: tuple[Any, ...]) -> None:
        if row == ("c",):
            raise error
        write_row(one, row)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "write_row", refuse_third)
        with pytest.raises(
            UsageError, match="row 2 of the batch has a value that cannot be written into words"
        ):
            store.commit(key_of(1), words("a", "b", "c", "d"), b"1")
    assert server.rows == []
    store.commit(key_of(1), words("a", "b", "c", "d", "e"), b"1")
    assert server.rows == [("a",), ("b",), ("c",), ("d",), ("e",)]


def test_rows_of_which_two_columns_have_one_name_are_refused(server: Server) -> None:
    store = opened()
    with pytest.raises(UsageError, match="2 columns of the rows are called word"):
        store.commit(key_of(1), pa.table([["a"], ["b"]], names=["word", "word"]), b"1")
    assert server.rows == []


STRUCT: Final = pa.struct([("a", pa.int64())])


@pytest.mark.parametrize(
    ("column", "values", "copied"),
    [
        ("jsonb", pa.array([{"a": 1}, None], STRUCT), ['{"a":1}', None]),
        ("text", pa.array([{"a": 1}], STRUCT), ['{"a":1}']),
        ("jsonb", pa.array([[1, 2]]), ["[1,2]"]),
        ("_int8", pa.array([[1, 2]]), [[1, 2]]),
        ("jsonb", pa.array(['{"b":2}']), ['{"b":2}']),
        ("text", pa.array(["a"]), ["a"]),
        ("int4", pa.array([None], pa.string()), [None]),
        (None, pa.array([[1, 2]]), [[1, 2]]),
    ],
    ids=["struct as json", "struct as text", "list as json", "array", "json as it is", "text", "only nulls",
         "no column"],
)  # fmt: skip
def test_values_are_copied_as_their_column_takes_them(
    monkeypatch: pytest.MonkeyPatch, column: str | None, values: pa.Array, copied: list[Any]
) -> None:
    """What the table has no column for is refused by the server, which names it."""
    server = served(monkeypatch, Server([("word", column, -1)] if column else []))
    opened().commit(key_of(1), pa.table({"word": values}), b"1")
    assert server.rows == [(value,) for value in copied]


@pytest.mark.parametrize(
    ("column", "values", "why"),
    [
        ("int4", ["a"], "the column word of words is a int4, which would change the string of the rows"),
        (
            "text",
            ["a", "b\0"],
            "row 1 of the batch has in word a value that the column of words would change",
        ),
        ("float4", [0.5, 0.1], "row 1 of the batch"),
    ],
)
def test_values_that_their_column_would_change_are_refused(
    monkeypatch: pytest.MonkeyPatch, column: str, values: list[Any], why: str
) -> None:
    server = served(monkeypatch, Server([("word", column, -1)]))
    store = opened()
    with pytest.raises(UsageError, match=why):
        store.commit(key_of(1), pa.table({"word": values}), b"1")
    assert server.rows == []


def test_the_row_of_a_changed_value_is_counted_through_all_parts(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spout.exactly_once.postgres_store.ROWS_AT_ONCE", 2)
    with pytest.raises(UsageError, match="row 3 of the batch has in word"):
        opened().commit(key_of(1), words("a", "b", "c", "d\0"), b"1")
    assert server.rows == []
