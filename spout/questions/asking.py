"""Asks a picture the questions of commands: each is a query in a file whose name says it.

The queries are ours, and what a person gave is a value that is bound to a name such as ``:since``.
So none of it is ever part of a query.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from acker.config.topics import Topics
from acker.identity import OFFSET_MAX
from replay.records.headers import location
from spout.inspect.letter_rows import name_field
from spout.picture.database import Picture, Value
from spout.picture.reading import DEFAULT_LIMITS, Limits

BoundValues = Mapping[str, Value]
"""Values by the names that a query has for them; a time is as the database has it."""

AnswerRow = Mapping[str, str | int | None]


def limits_of_question(
    topics: Topics,
    picture_bytes_max: int = DEFAULT_LIMITS.picture_bytes_max,
) -> Limits:
    """Return the limits for a question about dead letters, which needs all of them.

    So many records are read as there are, and a broker that is silent is waited for as long as an
    operation may take.
    """
    return Limits(
        records_max=OFFSET_MAX,
        picture_bytes_max=picture_bytes_max,
        patience_ms=topics.replay.limits.operation_timeout_ms,
    )


def ask_picture(picture: Picture, question: str, bound: BoundValues) -> list[AnswerRow]:
    """Run the query of a question, and return the rows of its answer by the names of their columns.

    A query that makes a table for other questions has no rows.

    Args:
        question: the name of its file, without the ending.
        bound: the values of the names that the query has, such as ``:since``.
    """
    cursor = picture.connection.execute(_query(question), bound)
    names = [description[0] for description in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor]


@cache
def _query(question: str) -> str:
    """Return the query of a question."""
    return files("spout.questions").joinpath(f"{question}.sql").read_text(encoding="utf-8")


def place_of_row(row: AnswerRow, prefix: str = "") -> str:
    """Return the place that a row has in three columns, whose names begin with a prefix."""
    topic, partition = str(row[f"{prefix}topic"]), number_of_row(row, f"{prefix}partition")
    return location(topic, partition, number_of_row(row, f"{prefix}offset"))


def name_of_row(row: AnswerRow, column: str) -> str:
    """Return a name of a row in the notation."""
    return name_field(str(row[column]))


def number_of_row(row: AnswerRow, column: str) -> int:
    """Return a number of a row; 0: it is NULL."""
    value = row[column]
    return value if isinstance(value, int) else 0
