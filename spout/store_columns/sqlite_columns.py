"""What the columns of a table in SQLite make of values, and the values that they would change.

SQLite does not hold a value to the declared type of its column. It takes from that type an
*affinity*, and changes a value towards it without a word:

=============== ==================== ==================================================
affinity        as in                changes
=============== ==================== ==================================================
numbers         INTEGER, DATE        the text ``007`` to 7
floats          REAL, DOUBLE         the same text to 7.0, and 2**53 + 1 to 2**53
texts           TEXT, VARCHAR(9)     0.1 + 0.2 to ``0.3``: of a float 15 digits stay
none            BLOB, no type at all nothing
=============== ==================== ==================================================

In every column a float that is no number becomes NULL. All of these are refused here. A column of
any affinity takes -0.0 for 0.0, which is equal to it.

Source: https://www.sqlite.org/datatype3.html, sections 3 and 3.1.
"""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final

import pyarrow as pa

from acker.errors import UsageError
from acker.untrusted import Untrusted
from spout.store_columns.first_row import ValueTest, index_of_first

Affinities = Mapping[str, "Affinity"]
"""By the folded name of a column (`folded_name`)."""

_COLUMNS: Final = """
    SELECT name, type, (SELECT sql FROM sqlite_master WHERE name = ?1 COLLATE NOCASE)
    FROM pragma_table_xinfo(?1)
"""

_STRICT: Final = re.compile(r"\)[^)]*\bSTRICT\b[^)]*\Z", re.IGNORECASE)
"""The end of the statement that made a table whose columns of the type ANY change nothing."""

_NUMBER_TEXT: Final = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*", re.IGNORECASE | re.ASCII)
"""Texts that SQLite turns into numbers."""

_STORED_TYPES: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_date,
    pa.types.is_timestamp,
)
"""The types of which SQLite has a value: a time is a text there, as its own functions take it."""


class Affinity(Enum):
    """Towards what a column changes the values that it gets."""

    NUMBERS = auto()
    FLOATS = auto()
    TEXTS = auto()
    NONE = auto()


_ROW_NUMBERS: Final = frozenset({"rowid", "oid", "_rowid_"})
"""Names of the number of a row, in a table that has no such column."""


def folded_name(name: str) -> str:
    """Return a name as SQLite compares names: letters of ASCII in one case, all others as they are.

    >>> folded_name("Wort"), folded_name("Ä")
    ('wort', 'Ä')
    """
    return "".join(letter.lower() if letter.isascii() else letter for letter in name)


def column_affinities(connection: sqlite3.Connection, table: str) -> Affinities:
    """Return the affinity of each column of a table."""
    affinities: Affinities = {
        folded_name(name): _affinity_of(declared_type, table_sql or "")
        for name, declared_type, table_sql in connection.execute(_COLUMNS, (table,)).fetchall()
    }
    return affinities


def _affinity_of(declared_type: str, table_sql: str) -> Affinity:
    """Return the affinity of a column, by its declared type and the statement of its table.

    The rules and their order are SQLite's: ``CHARINT`` is a type of whole numbers.
    """
    upper_type = declared_type.upper()
    if "INT" in upper_type:
        return Affinity.NUMBERS
    if any(word in upper_type for word in ("CHAR", "CLOB", "TEXT")):
        return Affinity.TEXTS
    # in a strict table ANY changes nothing, in others it is a word like any other
    is_strict_any = upper_type == "ANY" and _STRICT.search(table_sql) is not None
    if not upper_type or "BLOB" in upper_type or is_strict_any:
        return Affinity.NONE
    if any(word in upper_type for word in ("REAL", "FLOA", "DOUB")):
        return Affinity.FLOATS
    return Affinity.NUMBERS


def refuse_columns_of_one_folded_name(names: Sequence[str]) -> None:
    """Refuse rows of which SQLite takes two columns for one: it would write the first one alone.

    Raises `UsageError`: there are two.
    """
    name_by_folded_name: dict[str, str] = {}
    for name in names:
        earlier_name = name_by_folded_name.setdefault(folded_name(name), name)
        if earlier_name != name:
            raise UsageError(
                f"the columns {earlier_name} and {name} of the rows are one for SQLite, which does not tell"
                " upper from lower case in names; rename one, by withColumnRenamed or an alias"
            )


def refuse_names_of_row_numbers(names: Sequence[str], affinities: Affinities, table: str) -> None:
    """Refuse a column that the table lacks, and that SQLite takes for the number of a row.

    `affinities` are those of the table's columns. Raises `UsageError`: there is one.
    """
    names_of_row_number = _ROW_NUMBERS - affinities.keys()
    for name in names:
        if folded_name(name) in names_of_row_number:
            raise UsageError(
                f"the table {table} has no column {name}, and SQLite would number its rows by the"
                " values; create the column, or rename that of the rows"
            )


def stored_values(
    values: list[Any], arrow_type: pa.DataType, name: str, affinity: Affinity, table: str
) -> list[Any]:
    """Return the values of a batch's column as SQLite gets them: dates and times as texts.

    Args:
        values: as Python has them.
        arrow_type: the type that Arrow has for them.
        name: of the column.
        affinity: of the column in the table.
        table: its name.

    Raises `UsageError`: SQLite has no such value, or its column would change it.
    """
    if not any(is_of_type(arrow_type) for is_of_type in _STORED_TYPES):
        # nulls are stored, whatever type they have
        row_number = index_of_first(values, _is_any)
        if row_number is not None:
            raise UsageError(
                f"row {row_number} of the batch has in {name} a {arrow_type}, which is none that"
                " SQLite has; make it a whole number of 64 bits, a float, a text or bytes"
            )
    would_change, cure = _test_and_cure(arrow_type, affinity)
    row_number = index_of_first(values, would_change)
    if row_number is not None:
        value_text = Untrusted(f"{values[row_number]!r:.100}")
        raise UsageError(
            f"row {row_number} of the batch has in {name} a value that the column of {table} would"
            f" change ({value_text}): {cure}, or fail such tuples in a bolt"
        )
    if pa.types.is_timestamp(arrow_type):
        return [None if value is None else value.isoformat(" ") for value in values]
    if pa.types.is_date(arrow_type):
        return [None if value is None else value.isoformat() for value in values]
    return values


def _test_and_cure(arrow_type: pa.DataType, affinity: Affinity) -> tuple[ValueTest | None, str]:
    """Return the test for the values of a type that a column would change, and the cure.

    None, and an empty cure: the column changes none of them.
    """
    if pa.types.is_floating(arrow_type):
        if affinity is Affinity.TEXTS:
            return _is_any, "declare the column as REAL, or make the value a text"
        return math.isnan, "SQLite has no NaN and would write NULL, so make it a null"
    if pa.types.is_integer(arrow_type) and affinity is Affinity.FLOATS:
        return _is_between_floats, "declare the column as INTEGER"
    is_text = pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type)
    if is_text and affinity in (Affinity.NUMBERS, Affinity.FLOATS):
        return _is_text_of_number, "declare the column as TEXT, or make the value a number"
    return None, ""


def _is_any(_value: Any) -> bool:
    return True


def _is_between_floats(value: int) -> bool:
    """Return whether no float is equal to a whole number, as 2**53 + 1."""
    return int(float(value)) != value


def _is_text_of_number(value: str) -> bool:
    return _NUMBER_TEXT.fullmatch(value) is not None
