"""The store in PostgreSQL, on a real server: stopped writers, what a table takes, what is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from threading import Thread
from typing import Any, Final

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from acker.errors import NotAuthorized, StoreFenced, Unreachable, UsageError
from spout.exactly_once.postgres_store import PostgresStore
from spout.exactly_once.store import LastBatch, StoreGrant
from tests.support import stopped_postgres_writer
from tests.support.exact_batches import key_of
from tests.support.postgres_tables import Copying, Tables, connecting_by

QUICK_S: Final = 1


@pytest.fixture
def tables(database: str) -> Tables:
    # PostgreSQL cuts names at 63 bytes, so that those of two long tests would be one
    return Tables(database, f"words-{uuid.uuid4().hex}")


def words(*names: str) -> pa.Table:
    return pa.table({"word": list(names)})


@contextmanager
def stopped_writer(tables: Tables, place: str) -> Iterator[subprocess.Popen[str]]:
    """Yield a process that stopped itself while it wrote a batch; kill it afterwards if it lives.

    It is a new interpreter: one that is forked beside librdkafka's threads may crash.
    """
    command = [sys.executable, "-m", stopped_postgres_writer.__name__, tables.dsn, tables.schema, place]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        _pid, status = os.waitpid(writer.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"the writer ended, with status {status}"
        try:
            yield writer
        finally:
            writer.kill()


@pytest.mark.parametrize("place", ["copy", "commit"])
@pytest.mark.timeout(60)
def test_a_writer_that_is_stopped_holds_up_no_start_and_writes_nothing(tables: Tables, place: str) -> None:
    with stopped_writer(tables, place) as writer:
        store = tables.store(locked_s_max=10)
        assert store.open("g", 1) == StoreGrant(2, None)
        store.commit(key_of(2), words("successor"), b"2")
        writer.send_signal(signal.SIGCONT)
        answer, _errors = writer.communicate()
    assert answer == Unreachable.__name__
    assert tables.words() == ["successor"]
    assert tables.store().open("g", 1).last_batch == LastBatch(key_of(2), b"2")


def test_a_start_ends_no_writer_of_another_group(tables: Tables) -> None:
    class Interrupted(psycopg.Connection[tuple[Any, ...]]):
        """Another group's store is opened within its transaction."""

        def commit(self) -> None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(psycopg, "connect", psycopg.Connection.connect)
                assert tables.store().open("another", 1).epoch >= 1
            super().commit()

    store = tables.store()
    store.open("g", 1)
    with connecting_by(Interrupted):
        store.commit(key_of(), words("whole"), b"1")
    assert tables.words() == ["whole"]


def test_a_start_between_the_comparison_and_the_commit_ends_the_writer(tables: Tables) -> None:
    opened: list[StoreGrant] = []

    class Interrupted(Copying):
        """Its group's store is opened before it copies its rows."""

        def before_copy(self) -> None:
            opened.append(plain(tables).open("g", 1))

    store = tables.store()
    store.open("g", 1)
    with connecting_by(Interrupted), pytest.raises(Unreachable):
        store.commit(key_of(), words("late"), b"1")
    assert opened == [StoreGrant(2, None)]
    assert tables.words() == []


def test_nobody_raises_the_epoch_between_its_comparison_and_the_commit(tables: Tables) -> None:
    """A start whose connection is older than the writer's does not end the writer: it waits for it."""
    refused: list[str] = []

    class Watched(Copying):
        """Somebody tries to raise the epoch before the rows are copied."""

        def before_copy(self) -> None:
            raise_epoch()

    def raise_epoch() -> None:
        statement = sql.SQL("UPDATE {} SET granted_epoch = 2").format(
            sql.Identifier(tables.schema, "windhover_sink")
        )
        with psycopg.Connection.connect(tables.dsn) as somebody:
            somebody.execute("SET lock_timeout = '200ms'")
            try:
                somebody.execute(statement)
            except psycopg.errors.LockNotAvailable as error:
                refused.append(str(error))

    store = tables.store()
    store.open("g", 1)
    with connecting_by(Watched):
        store.commit(key_of(), words("whole"), b"1")
    assert len(refused) == 1
    assert tables.words() == ["whole"]


def plain(tables: Tables) -> PostgresStore:
    """Return a store of another process, which connects as ever."""

    class Elsewhere(PostgresStore):
        def open(self, group: str, epoch_min: int) -> StoreGrant:
            with connecting_by(psycopg.Connection):
                return super().open(group, epoch_min)

    return Elsewhere(tables.dsn, f"{tables.schema}.words")


def test_starts_that_come_at_once_have_an_epoch_each(tables: Tables) -> None:
    """They also create the table of epochs at the same time."""
    epochs: list[int] = []
    unreachable: list[str] = []

    def opens() -> None:
        try:
            epochs.append(tables.store().open("g", 1).epoch)
        except Unreachable as error:  # the start that connected later has ended it
            unreachable.append(str(error))

    threads = [Thread(target=opens) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(epochs) + len(unreachable) == 8
    assert epochs
    assert len(set(epochs)) == len(epochs)
    assert tables.store().open("g", 1).epoch > max(epochs)


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("jsonb", [{"a": [1, None]}], {"a": [1, None]}),
        ("jsonb", pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), {"k": 1}),
        ("bigint[]", [[1, None, 3]], [1, None, 3]),
        ("text[]", [["a,b", '"', ""]], ["a,b", '"', ""]),
        ("numeric", [Decimal("1.10")], Decimal("1.10")),
        ("boolean", [True], True),
        ("double precision", [0.1], 0.1),
        ("timestamptz", [datetime(2026, 1, 1, 1, 2, 3, 4, UTC)], datetime(2026, 1, 1, 1, 2, 3, 4, UTC)),
        ("text", [7], "7"),
    ],
    ids=["struct", "map", "numbers", "texts", "numeric", "boolean", "double", "time", "number as text"],
)
def test_a_column_takes_what_its_type_takes(tables: Tables, kind: str, values: Any, expected: object) -> None:
    tables.run(f"CREATE TABLE {{}} (v {kind})", f"{tables.schema}.things")
    store = tables.store("things")
    store.open("g", 1)
    store.commit(key_of(), pa.table({"v": values}), b"1")
    assert tables.run("SELECT v FROM {}", f"{tables.schema}.things") == [(expected,)]


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (pa.table({"n": ["many"]}), "the column n of .* is a int8, which would change the string"),
        (pa.table({"n": [None]}), 'null value in column "n"'),
        (pa.table({"n": [1, 1]}), "duplicate key value"),
        (pa.table({"word": ["a"], "n": [1]}), 'column "word" of relation "numbers" does not exist'),
        (pa.table({"n": [1], "note": ["\x00"]}), "row 0 of the batch has in note .*a null byte"),
    ],
    ids=["another type", "a null", "a key twice", "a column too many", "a zero in a text"],
)
def test_rows_that_the_table_does_not_take_are_refused_and_the_writer_goes_on(
    tables: Tables, rows: pa.Table, why: str
) -> None:
    tables.run("CREATE TABLE {} (n bigint PRIMARY KEY, note text)", f"{tables.schema}.numbers")
    store = tables.store("numbers")
    store.open("g", 1)
    with pytest.raises(UsageError, match=f"(?s){why}.*nothing of the batch is written"):
        store.commit(key_of(), rows, b"1")
    store.commit(key_of(batch=1), pa.table({"n": [7]}), b"2")
    assert tables.run("SELECT n FROM {}", f"{tables.schema}.numbers") == [(7,)]
    assert store.open("g", 1).last_batch == LastBatch(key_of(batch=1), b"2")


def test_a_text_that_is_no_utf8_is_named_by_its_row_and_nothing_is_written(tables: Tables) -> None:
    """Also in the second part of the rows."""
    tables.run("CREATE TABLE {} (note text)", f"{tables.schema}.notes")
    store = tables.store("notes")
    store.open("g", 1)
    notes = pa.array([*[b"whole"] * 12_000, b"\xff"], pa.binary()).view(pa.string())
    with pytest.raises(UsageError, match="row 12000 of the batch has in note, which is a string"):
        store.commit(key_of(), pa.table({"note": notes}), b"1")
    store.commit(key_of(batch=1), pa.table({"note": ["whole"]}), b"2")
    assert tables.run("SELECT note FROM {}", f"{tables.schema}.notes") == [("whole",)]


def test_rows_of_several_parts_are_all_there_each_with_its_columns(tables: Tables) -> None:
    tables.run("CREATE TABLE {} (n bigint, note jsonb)", f"{tables.schema}.many")
    store = tables.store("many")
    store.open("g", 1)
    notes = [None if number % 3 == 0 else {"n": number} for number in range(21_000)]
    store.commit(key_of(), pa.table({"note": notes, "n": range(21_000)}), b"1")
    rows = tables.run("SELECT n, note FROM {} ORDER BY n", f"{tables.schema}.many")
    assert rows == list(enumerate(notes))


def test_a_table_that_is_missing_or_that_a_crash_empties_is_named_before_a_writer_is_fenced(
    tables: Tables,
) -> None:
    tables.run("CREATE UNLOGGED TABLE {} (word text)", f"{tables.schema}.notes")
    store = tables.store()
    store.open("g", 1)
    with pytest.raises(UsageError, match=r"has no table .*wrods that the user sees; create it"):
        tables.store("wrods").open("g", 1)
    with pytest.raises(UsageError, match=r"notes of .* is unlogged or temporary"):
        tables.store("notes").open("g", 1)
    store.commit(key_of(), words("still"), b"1")
    assert tables.words() == ["still"]


def test_a_user_that_may_not_write_is_told_so(tables: Tables) -> None:
    tables.run("CREATE ROLE {} LOGIN", f"{tables.schema}reader")
    dsn = tables.dsn.replace("user=words", f"user={tables.schema}reader")
    with pytest.raises(NotAuthorized, match="permission denied for schema"):
        tables.store(dsn=dsn).open("g", 1)
    tables.run("GRANT USAGE ON SCHEMA {} TO {}", tables.schema, f"{tables.schema}reader")
    with pytest.raises(NotAuthorized, match=r"permission denied .*grant the right"):
        tables.store(dsn=dsn).open("g", 1)


def test_a_user_needs_no_right_to_create_what_is_there(tables: Tables) -> None:
    tables.store().open("g", 1)
    role = f"{tables.schema}writer"
    tables.run("CREATE ROLE {} LOGIN", role)
    tables.run("GRANT USAGE ON SCHEMA {} TO {}", tables.schema, role)
    tables.run("GRANT INSERT ON {} TO {}", f"{tables.schema}.words", role)
    tables.run("GRANT SELECT, INSERT, UPDATE ON {} TO {}", f"{tables.schema}.windhover_sink", role)
    store = tables.store(dsn=tables.dsn.replace("user=words", f"user={role}"))
    assert store.open("g", 1) == StoreGrant(2, None)
    store.commit(key_of(2), words("written"), b"1")
    assert tables.words() == ["written"]


def test_what_is_acked_is_on_the_disk_and_a_start_sees_what_was_committed_while_it_waited(
    tables: Tables,
) -> None:
    """Whatever role and database say."""
    seen: list[tuple[Any, ...]] = []

    class Telling(psycopg.Connection[tuple[Any, ...]]):
        """Says how its transactions end."""

        def commit(self) -> None:
            select = "SELECT current_setting('synchronous_commit'), current_setting('transaction_isolation')"
            seen.extend(self.execute(select).fetchall())
            super().commit()

    settings = {
        "off": ("on", "read committed"),
        "local": ("on", "read committed"),
        "remote_apply": ("remote_apply", "read committed"),
    }
    for synchronous in settings:
        options = f"-csynchronous_commit={synchronous} -cdefault_transaction_isolation=serializable"
        store = tables.store(dsn=f"{tables.dsn} options='{options} -cdefault_transaction_read_only=on'")
        with connecting_by(Telling):
            epoch = store.open("g", 1).epoch
            store.commit(key_of(epoch), words("w"), b"1")
    assert seen == [pair for pair in settings.values() for _ in range(2)]


def test_a_row_that_somebody_locks_is_unreachable_after_a_while(tables: Tables) -> None:
    store = tables.store(locked_s_max=QUICK_S)
    store.open("g", 1)
    lock = sql.SQL("SELECT 1 FROM {} FOR UPDATE").format(sql.Identifier(tables.schema, "windhover_sink"))
    calls: list[Callable[[], object]] = [
        lambda: store.open("g", 1),
        lambda: store.commit(key_of(), words("late"), b"1"),
    ]
    with psycopg.connect(tables.dsn) as somebody:
        somebody.execute(lock)
        for call in calls:
            with pytest.raises(Unreachable, match="lock timeout"):
                call()
    assert tables.words() == []


@pytest.mark.parametrize(
    ("dsn", "error"),
    [
        ("postgresql://me:s3cret@127.0.0.1:1/words?connect_timeout=2", Unreachable),
        ("host=/nowhere password=s3cret", Unreachable),
        ("postgresql://me:s3cret@h:port/words", Unreachable),
        ("password=s3cret what", UsageError),
    ],
)
def test_no_message_has_the_password(dsn: str, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        PostgresStore(dsn, "words").open("g", 1)
    assert "s3cret" not in f"{caught.value}"
    assert caught.value.__cause__ is None or "s3cret" not in f"{caught.value.__cause__}"


def test_names_may_be_odd_and_a_dot_ends_the_schema(tables: Tables) -> None:
    table = "select 'x'; --"
    tables.run('CREATE TABLE {} ({} bytea, "group" text)', f"{tables.schema}.{table}", 'a "b"')
    store = tables.store(table)
    store.open("g", 1)
    store.commit(key_of(), pa.table({'a "b"': [b"\x00", None], "group": ["x", None]}), b"1")
    assert tables.run("SELECT * FROM {}", f"{tables.schema}.{table}") == [(b"\x00", "x"), (None, None)]
    with pytest.raises(StoreFenced, match="it has epoch 1 now, and this one has 7"):
        store.commit(key_of(7), words("stray"), b"1")
