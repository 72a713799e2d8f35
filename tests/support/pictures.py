"""Pictures of in-memory installations, and their rows as tests compare them."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from acker.config.topics import Topics
from acker.kafka.port import Log
from spout.picture.database import Picture
from spout.picture.loader import PictureLoader
from spout.picture.reading import Limits

Rows = list[dict[str, Any]]


def picture_of(
    log: Log, topics: Topics, now_ms: int, *, has_payloads: bool = True, **options: Any
) -> Picture:
    """Read a picture once; `options` as of `PictureLoader`."""
    picture = Picture(has_payloads=has_payloads)
    with closing(PictureLoader(log, topics, picture, lambda: 0, **options)) as loader:
        loader.read(now_ms)
    return picture


def rows_of(picture: Picture, table: str, *columns: str) -> Rows:
    """Return the rows of a table, or of a query, with some of its columns; none: with all."""
    query = table if " " in table else f"SELECT * FROM {table}"
    cursor = picture.connection.execute(query)
    names = [description[0] for description in cursor.description]
    rows = [dict(zip(names, row, strict=True)) for row in cursor]
    return [{name: row[name] for name in columns or names} for row in rows]


def values_of(picture: Picture, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query as tuples."""
    return picture.connection.execute(query).fetchall()


def since(since_ms: int) -> Limits:
    """Return limits that leave out what is older."""
    return Limits(since_ms=since_ms)
