"""Tables of a test in PostgreSQL, and stores that write into them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import sql

from spout.exactly_once.postgres_store import PostgresStore

Connection = psycopg.Connection[tuple[Any, ...]]


class Tables:
    """A schema of a test's own."""

    def __init__(self, dsn: str, schema: str) -> None:
        self.dsn = dsn
        self.schema = schema
        self.run("CREATE SCHEMA {}", schema)
        self.run("CREATE TABLE {} (word text)", f"{schema}.words")

    def run(self, statement: str, *names: str) -> list[tuple[Any, ...]]:
        """Run a statement in which braces stand for names; return the rows that it has."""
        identifiers = [sql.Identifier(*name.split(".")) for name in names]
        with psycopg.connect(self.dsn) as connection:
            cursor = connection.execute(sql.SQL(statement).format(*identifiers))  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def store(self, table: str = "words", dsn: str = "", **options: Any) -> PostgresStore:
        return PostgresStore(dsn or self.dsn, f"{self.schema}.{table}", **options)

    def words(self) -> list[str]:
        return [word for (word,) in self.run("SELECT word FROM {} ORDER BY 1", f"{self.schema}.words")]


class Copying(psycopg.Connection[tuple[Any, ...]]):
    """Does something when the lock is held, before rows are copied."""

    _is_executing = False

    def execute(self, *args: Any, **options: Any) -> psycopg.Cursor[tuple[Any, ...]]:
        self._is_executing = True
        try:
            return super().execute(*args, **options)
        finally:
            self._is_executing = False

    def cursor(self, *args: Any, **options: Any) -> Any:
        # psycopg's own `execute` asks for a cursor, too
        if not self._is_executing:
            self.before_copy()
        return super().cursor(*args, **options)

    def before_copy(self) -> None:
        """Do nothing."""


@contextmanager
def connecting_by(kind: type[Connection]) -> Iterator[None]:
    """Let each connection be of a class."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg, "connect", kind.connect)
        yield
