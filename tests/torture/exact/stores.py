"""The stores of a torture, seen from outside: made, told to refuse commits, and read at the end."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

import psycopg
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but the package has no __all__
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from acker.config.topics import Topics
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import TopicPartition
from tests.support.servers.postgres import postgres
from tests.support.waiting import committed
from tests.torture.exact.rows import COLUMNS, StoredRow
from tests.torture.exact.struck_store import DATABASE, KAFKA, POSTGRES, SQLITE, TABLE

PARTITIONS: Final = 4
ADMIN_S_MAX: Final = 60.0

REFUSED_ABOVE_BYTES: Final = "120"
"""More than the marker at the end of a transaction has, some 80: a broker that cannot write that one never
ends the transaction, and lets nobody else begin one of its id."""

ASK_S_MAX: Final = 2.0

_TABLE_COLUMNS: Final = "origin TEXT, attempt INTEGER, evaluation TEXT, ordinal INTEGER, rows INTEGER"
_SELECT: Final = f"SELECT {', '.join(COLUMNS)} FROM {TABLE}"


class TorturedStore(Protocol):
    """A store of which the run is made."""

    @property
    def argument(self) -> str:
        """What names it to the driver (`tests.torture.exact.struck_store.store_of`)."""

    def refuse(self) -> None:
        """Begin to refuse commits."""

    def accept(self) -> bool:
        """Take commits again; return whether it does, else call it again."""

    def rows(self) -> list[StoredRow]:
        """Return all rows that are committed."""


class _SQLite:
    """A table in a file. A trigger refuses rows while the table `refusing` has one."""

    argument = SQLITE

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.execute(f"CREATE TABLE {TABLE} ({_TABLE_COLUMNS})")
        connection.execute("CREATE TABLE refusing (row INTEGER)")
        connection.execute(
            f"CREATE TRIGGER refuses BEFORE INSERT ON {TABLE}"
            " WHEN EXISTS (SELECT 1 FROM refusing) AND NEW.ordinal > 1"
            " BEGIN SELECT RAISE(ABORT, 'not now'); END"
        )

    def refuse(self) -> None:
        with suppress(sqlite3.OperationalError):  # a driver that is stopped holds the lock
            self._connection.execute("INSERT INTO refusing VALUES (1)")

    def accept(self) -> bool:
        try:
            self._connection.execute("DELETE FROM refusing")
        except sqlite3.OperationalError:
            return False
        return True

    def rows(self) -> list[StoredRow]:
        return [StoredRow(*row) for row in self._connection.execute(_SELECT)]


class _Postgres:
    """A table of a server. A deferred trigger refuses the commit while the table `refusing` has a row."""

    def __init__(self, connection: psycopg.Connection, dsn: str) -> None:
        self._connection = connection
        self.argument = f"{POSTGRES}:{dsn}"
        connection.execute(f"CREATE TABLE {TABLE} ({_TABLE_COLUMNS})".encode())
        connection.execute("CREATE TABLE refusing (row INTEGER)")
        connection.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " IF EXISTS (SELECT FROM refusing) THEN RAISE EXCEPTION 'not now'; END IF;"
            " RETURN NULL; END $$"
        )
        connection.execute(
            f"CREATE CONSTRAINT TRIGGER refuses AFTER INSERT ON {TABLE} DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION refuse()".encode()
        )

    def refuse(self) -> None:
        self._connection.execute("INSERT INTO refusing VALUES (1)")

    def accept(self) -> bool:
        self._connection.execute("DELETE FROM refusing")
        return True

    def rows(self) -> list[StoredRow]:
        return [StoredRow(*row) for row in self._connection.execute(_SELECT.encode())]


class _Kafka:
    """A topic. By its configuration the broker refuses each record of it, or of `_ack_sink`, in turn."""

    argument = KAFKA

    def __init__(self, topics: Topics) -> None:
        self._kafka = topics.kafka
        self._refusing = [TABLE, topics.ack_topics.sink]
        admin = self._admin()  # it has to live until the answer is there
        creating = admin.create_topics([NewTopic(TABLE, PARTITIONS, 1)])
        creating[TABLE].result(ADMIN_S_MAX)

    def refuse(self) -> None:
        # of `_ack_sink` it is the last record of the transaction, when all rows are taken
        self._refusing.reverse()
        with suppress(KafkaException):
            self._alter(self._refusing[0], AlterConfigOpType.SET)

    def accept(self) -> bool:
        try:
            for topic in self._refusing:
                self._alter(topic, AlterConfigOpType.DELETE)
        except KafkaException:
            return False
        return True

    def rows(self) -> list[StoredRow]:
        with closing(KafkaLog(self._kafka)) as log:
            records = committed(log, [TopicPartition(TABLE, part) for part in range(PARTITIONS)])
        rows = [json.loads(record.value or b"") for record in records]
        return [StoredRow(*(row[column] for column in COLUMNS)) for row in rows]

    def _alter(self, topic: str, operation: AlterConfigOpType) -> None:
        entry = ConfigEntry("max.message.bytes", REFUSED_ABOVE_BYTES, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin = self._admin()  # likewise
        altering = admin.incremental_alter_configs([resource], request_timeout=ASK_S_MAX)
        altering[resource].result(ADMIN_S_MAX)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._kafka["bootstrap.servers"], "log_level": 0})


@contextmanager
def tortured_store(kind: str, topics: Topics, folder: Path) -> Iterator[TorturedStore]:
    """Make a store, one of `SINKS`, with all that it needs; a server ends with the context."""
    if kind == KAFKA:
        yield _Kafka(topics)
    elif kind == SQLITE:
        opened = sqlite3.connect(folder / DATABASE, timeout=ASK_S_MAX, isolation_level=None)
        with closing(opened) as connection:
            yield _SQLite(connection)
    else:
        with postgres() as dsn, psycopg.connect(dsn, autocommit=True) as connection:
            yield _Postgres(connection, dsn)
