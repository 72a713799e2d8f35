"""The stores of the contract suite, with what a test does to one besides the protocol."""

from __future__ import annotations

import io
import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import fastavro
import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from acker.config.topics import Topics, parse
from acker.errors import Unreachable
from acker.kafka.port import Log, Outgoing, OutgoingColumns, TopicPartition, Transactions
from spout.exactly_once.kafka_store import KafkaStore
from spout.exactly_once.postgres_store import PostgresStore
from spout.exactly_once.sqlite_store import SQLiteStore
from spout.exactly_once.store import Store
from tests.contract.clusters import Cluster
from tests.support.forking import in_a_fork
from tests.support.waiting import committed

DIED: Final = ""
"""What a child says that was killed."""

ENDED: Final = "ended"


class Row(NamedTuple):
    """A row of the table, or topic, of each store."""

    word: str
    number: int = 0
    note: str | None = None
    blob: bytes | None = None


_SCHEMA: Final = pa.schema(
    {"word": pa.string(), "number": pa.int64(), "note": pa.string(), "blob": pa.binary()}
)


def rows_of(*rows: Row) -> pa.Table:
    """Return rows as a store gets them."""
    return pa.Table.from_pylist([row._asdict() for row in rows], schema=_SCHEMA)


def words_of(*words: str) -> pa.Table:
    """Return a row for each word."""
    return rows_of(*(Row(word) for word in words))


class TestedStore(ABC):
    """A store under test, which is empty at first."""

    __test__ = False  # it is no test, whatever its name begins with

    @abstractmethod
    def new(self) -> Store:
        """Return the store as another process has it."""

    @abstractmethod
    def rows(self) -> list[Row]:
        """Return the rows that a reader sees, sorted by word and number."""

    @abstractmethod
    def unfit(self) -> pa.Table:
        """Return rows that the store refuses by `UsageError`."""

    @abstractmethod
    def dies(self, step: int, work: Callable[[Store], object]) -> bool:
        """Do some work with a new store in a process that dies before its step of this number.

        Return whether it died; otherwise the work has fewer steps.
        """

    @abstractmethod
    def losing_answers(self, *, is_done: bool) -> Callable[[], object]:
        """Let answers to commits be lost from now on: of those that are done, or of none.

        Returns a function after which they come again.
        """

    def words(self) -> list[str]:
        """Return the words of the rows, sorted."""
        return [row.word for row in self.rows()]

    @contextmanager
    def lost_answers(self, *, is_done: bool) -> Iterator[None]:
        """Let each transaction's answer be lost; `is_done`: it is committed all the same."""
        undo = self.losing_answers(is_done=is_done)
        try:
            yield
        finally:
            undo()


class TestedSQLite(TestedStore):
    """A file."""

    def __init__(self, path: Path) -> None:
        """Create the table."""
        self._path = path
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE words (word TEXT, number INTEGER, note TEXT, blob BLOB)")

    def new(self) -> Store:
        """Return another store of the file."""
        return SQLiteStore(self._path, "words")

    def rows(self) -> list[Row]:
        """Read the table."""
        with closing(sqlite3.connect(self._path)) as connection:
            return [Row(*row) for row in connection.execute("SELECT * FROM words ORDER BY word, number")]

    def unfit(self) -> pa.Table:
        """Return rows with a column that the table lacks."""
        return pa.table({"word": ["unfit"], "length": [5]})

    def dies(self, step: int, work: Callable[[Store], object]) -> bool:
        """Let a child die before a statement."""

        class Dying(sqlite3.Connection):
            """Counts the statements of its process."""

            count = 0

            def execute(self, *args: Any) -> sqlite3.Cursor:
                self._next()
                return super().execute(*args)

            def executemany(self, *args: Any) -> sqlite3.Cursor:
                self._next()
                return super().executemany(*args)

            def _next(self) -> None:
                if Dying.count == step:
                    os._exit(9)
                Dying.count += 1

        def call() -> str:
            with _connecting_by(Dying):
                work(self.new())
            return ENDED

        said = in_a_fork(call)
        assert said in (DIED, ENDED)
        return said == DIED

    def losing_answers(self, *, is_done: bool) -> Callable[[], object]:
        """Let the disk fail at each commit, before or after it."""

        class Losing(sqlite3.Connection):
            """Fails at its commit."""

            def execute(self, *args: Any) -> sqlite3.Cursor:
                if args != ("COMMIT",):
                    return super().execute(*args)
                if is_done:
                    super().execute("COMMIT")
                raise sqlite3.OperationalError("disk I/O error")

        patch = _connecting_by(Losing)
        patch.__enter__()
        return lambda: patch.__exit__(None, None, None)


@contextmanager
def _connecting_by(factory: type[sqlite3.Connection]) -> Iterator[None]:
    """Let each connection be of a class."""
    connect = sqlite3.connect
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", lambda *args, **kw: connect(*args, **kw, factory=factory))
        yield


_AVRO: Final = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "word", "type": "string"},
        {"name": "number", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "blob", "type": ["null", "bytes"]},
    ],
}


class Died(BaseException):
    """A process ends here, without a word."""


class Steps:
    """Counts the steps of a process that is to die, and says whose answers are lost."""

    def __init__(self, last_step: int | None = None) -> None:
        """Begin at step 0; the process dies before `last_step`, or lives on."""
        self._last_step = last_step
        self._count = 0
        self.has_died = False
        self.is_losing = False
        self.is_done = False

    def take(self) -> None:
        """Take a step, or die before it."""
        if self._count == self._last_step:
            self.has_died = True
            raise Died
        self._count += 1


class _SteppingTransactions:
    """Transactions with a step before and behind each call, and in the middle of a batch."""

    def __init__(self, transactions: Transactions, steps: Steps) -> None:
        """Wrap transactions."""
        self._transactions = transactions
        self._steps = steps

    def __getattr__(self, name: str) -> Any:
        """Wrap a method that takes one step."""
        method = getattr(self._transactions, name)

        def call(*args: Any) -> object:
            self._steps.take()
            result = method(*args)
            self._steps.take()
            return result

        return call

    def send_all(self, records: Iterable[Outgoing]) -> None:
        """Send one record after the other."""
        for record in records:
            self._steps.take()
            self._transactions.send(record)

    def send_columns(self, columns: OutgoingColumns) -> None:
        """Send one record after the other."""
        self.send_all(columns.records())

    def commit(self, timeout_ms: int) -> None:
        """Commit, or let the answer be lost."""
        self._steps.take()
        if self._steps.is_losing and not self._steps.is_done:
            raise Unreachable("the request is lost")
        self._transactions.commit(timeout_ms)
        if self._steps.is_losing:
            raise Unreachable("the answer is lost")
        self._steps.take()

    def abort(self, timeout_ms: int) -> None:
        """Abort, unless the process has died."""
        if not self._steps.has_died:
            self._transactions.abort(timeout_ms)

    def close(self) -> None:
        """Leave, as whoever dies does."""
        self._transactions.close()


class _SteppingLog:
    """A log with such transactions."""

    def __init__(self, log: Log, steps: Steps) -> None:
        """Wrap a log."""
        self._log = log
        self._steps = steps

    def __getattr__(self, name: str) -> Any:
        """Return all else as it is."""
        return getattr(self._log, name)

    def transactions(self, transactional_id: str) -> Transactions:
        """Make transactions with steps."""
        made = _SteppingTransactions(self._log.transactions(transactional_id), self._steps)
        return cast("Transactions", made)


class TestedKafka(TestedStore):
    """Topics of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        """Create the topics."""
        self.cluster = cluster
        self.topics = topics_of(cluster)
        self._topic = cluster.topic(3, name="words")
        cluster.create(self.topics.ack_topics.sink, self.topics.acker.partitions, compacted=True)
        self._steps = Steps()
        self._logs: list[Log] = []

    def new(self) -> KafkaStore:
        """Return another store of the topic."""
        return self._new(self._steps)

    def _new(self, steps: Steps) -> KafkaStore:
        def connect() -> Log:
            self._logs.append(self.cluster.new_log())
            return cast("Log", _SteppingLog(self._logs[-1], steps))

        return KafkaStore(self.topics, self._topic, value=_AVRO, key="word", connect=connect)

    def rows(self) -> list[Row]:
        """Read what is committed."""
        places = [TopicPartition(self._topic, number) for number in range(3)]
        rows = [_row_of(record.value) for record in committed(self.cluster.log, places)]
        return sorted(rows, key=lambda row: (row.word, row.number))

    def unfit(self) -> pa.Table:
        """Return rows that the schema does not fit."""
        return pa.table({"word": ["unfit"], "number": ["five"]})

    def dies(self, step: int, work: Callable[[Store], object]) -> bool:
        """Raise what nobody catches before a step of a producer."""
        try:
            work(self._new(Steps(step)))
        except Died:
            return True
        return False

    def losing_answers(self, *, is_done: bool) -> Callable[[], object]:
        """Let commits raise that nobody answers."""
        self._steps.is_losing, self._steps.is_done = True, is_done

        def undo() -> None:
            self._steps.is_losing = False

        return undo

    def close(self) -> None:
        """Disconnect."""
        for log in self._logs:
            log.close()


def topics_of(cluster: Cluster) -> Topics:
    """Return a file of two inputs whose ack topics have names of their own."""
    text = f"""
        acker: {{partitions: 2, topic_prefix: "{cluster.name("")}"}}
        inputs: {{lines: {{id: 1, group: g}}, others: {{id: 2, group: another}}}}
    """
    return parse(text, file="topics.yaml", environ={})


def _row_of(value: bytes | None) -> Row:
    row = fastavro.schemaless_reader(io.BytesIO(value or b""), _AVRO, None)
    assert isinstance(row, dict)
    return Row(**row)


class TestedPostgres(TestedStore):
    """A table of a real server, in a schema of its own."""

    def __init__(self, dsn: str, schema: str) -> None:
        """Create the table."""
        self._dsn = dsn
        self._schema = schema
        with psycopg.connect(dsn) as connection:
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
            connection.execute(
                sql.SQL("CREATE TABLE {} (word text NOT NULL, number bigint, note text, blob bytea)").format(
                    sql.Identifier(schema, "words")
                )
            )

    def new(self) -> PostgresStore:
        """Return another store of the table."""
        return PostgresStore(self._dsn, f"{self._schema}.words")

    def rows(self) -> list[Row]:
        """Read the table."""
        select = sql.SQL('SELECT * FROM {} ORDER BY word COLLATE "C", number')
        with psycopg.connect(self._dsn) as connection:
            entries = connection.execute(select.format(sql.Identifier(self._schema, "words")))
            return [Row(*entry) for entry in entries]

    def unfit(self) -> pa.Table:
        """Return rows with a column that the table lacks."""
        return pa.table({"word": ["unfit"], "length": [5]})

    def dies(self, step: int, work: Callable[[Store], object]) -> bool:
        """Let a child die before a statement."""

        class Dying(psycopg.Connection[tuple[Any, ...]]):
            """Counts the statements of its process."""

            count = 0

            def execute(self, *args: Any, **options: Any) -> psycopg.Cursor[tuple[Any, ...]]:
                self._next()
                return super().execute(*args, **options)

            def cursor(self, *args: Any, **options: Any) -> Any:
                self._next()
                return super().cursor(*args, **options)

            def commit(self) -> None:
                self._next()
                super().commit()
                self._next()

            def _next(self) -> None:
                if Dying.count == step:
                    os._exit(9)
                Dying.count += 1

        def call() -> str:
            with _psycopg_connecting_by(Dying):
                work(self.new())
            return ENDED

        said = in_a_fork(call)
        assert said in (DIED, ENDED)
        return said == DIED

    def losing_answers(self, *, is_done: bool) -> Callable[[], object]:
        """Let the connection be lost at each commit, before or after it."""

        class Losing(psycopg.Connection[tuple[Any, ...]]):
            """Fails at its commit."""

            def commit(self) -> None:
                if is_done:
                    super().commit()
                raise psycopg.OperationalError("server closed the connection unexpectedly")

        patch = _psycopg_connecting_by(Losing)
        patch.__enter__()
        return lambda: patch.__exit__(None, None, None)


@contextmanager
def _psycopg_connecting_by(kind: type[psycopg.Connection[tuple[Any, ...]]]) -> Iterator[None]:
    """Let each connection be of a class."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg, "connect", kind.connect)
        yield
