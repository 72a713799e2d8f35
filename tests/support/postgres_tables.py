"""Tables of a test in PostgreSQL, and stores that write into them."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from spout.exactly_once.postgres_store import PostgresStore


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
