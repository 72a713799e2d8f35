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
from spout.store_columns.first_row import ValueTest, first_row

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

_KINDS: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
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
    columns = connection.execute(_COLUMNS, (table,)).fetchall()
    return {folded_name(name): _affinity_of(kind, sql or "") for name, kind, sql in columns}


def _affinity_of(declared_type: str, table_sql: str) -> Affinity:
    """Return the affinity of a declared type; the order of the rules is SQLite's."""
    kind = declared_type.upper()
    if "INT" in kind:
        return Affinity.NUMBERS
    if any(word in kind for word in ("CHAR", "CLOB", "TEXT")):
        return Affinity.TEXTS
    if not kind or "BLOB" in kind or (kind == "ANY" and _STRICT.search(table_sql)):
        return Affinity.NONE
    if any(word in kind for word in ("REAL", "FLOA", "DOUB")):
        return Affinity.FLOATS
    return Affinity.NUMBERS


def refuse_columns_of_one_folded_name(names: Sequence[str]) -> None:
    """Refuse rows of which SQLite takes two columns for one: it would write the first one alone.

    Raises `UsageError`: there are two.
    """
    first_by_folded: dict[str, str] = {}
    for name in names:
        first = first_by_folded.setdefault(folded_name(name), name)
        if first != name:
            raise UsageError(
                f"the columns {first} and {name} of the rows are one for SQLite, which does not tell"
                " upper from lower case in names; rename one, by withColumnRenamed or an alias"
            )


def refuse_names_of_row_numbers(names: Sequence[str], affinities: Affinities, table: str) -> None:
    """Refuse a column that the table lacks, and that SQLite takes for the number of a row.

    Raises `UsageError`: there is one.
    """
    for name in names:
        if folded_name(name) in _ROW_NUMBERS - affinities.keys():
            raise UsageError(
                f"the table {table} has no column {name}, and SQLite would number its rows by the"
                " values; create the column, or rename that of the rows"
            )


def stored_values(
    values: list[Any], kind: pa.DataType, name: str, affinity: Affinity, table: str
) -> list[Any]:
    """Return the values of a column as SQLite gets them.

    Args:
        values: as Python has them; `kind` is the type that Arrow has for them.
        name: of the column; `table` is that of the table.
        affinity: of the column in the table.

    Raises `UsageError`: SQLite has no such value, or its column would change it.
    """
    if not any(is_kind(kind) for is_kind in _KINDS):
        row = first_row(values, _is_any)
        if row is not None:
            raise UsageError(
                f"row {row} of the batch has in {name} a {kind}, which is none that SQLite has; make"
                " it a whole number of 64 bits, a float, a text or bytes"
            )
    bends, cure = _bend_of(kind, affinity)
    row = first_row(values, bends)
    if row is not None:
        raise UsageError(
            f"row {row} of the batch has in {name} a value that the column of {table} would change"
            f" ({Untrusted(f'{values[row]!r:.100}')}): {cure}, or fail such tuples in a bolt"
        )
    if pa.types.is_timestamp(kind):
        return [None if value is None else value.isoformat(" ") for value in values]
    if pa.types.is_date(kind):
        return [None if value is None else value.isoformat() for value in values]
    return values


def _bend_of(kind: pa.DataType, affinity: Affinity) -> tuple[ValueTest | None, str]:
    """Return what tells a value that a column changes, None: it changes none; and the cure."""
    if pa.types.is_floating(kind):
        if affinity is Affinity.TEXTS:
            return _is_any, "declare the column as REAL, or make the value a text"
        return math.isnan, "SQLite has no NaN and would write NULL, so make it a null"
    if pa.types.is_integer(kind) and affinity is Affinity.FLOATS:
        return _is_between_floats, "declare the column as INTEGER"
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if is_text and affinity in (Affinity.NUMBERS, Affinity.FLOATS):
        return _is_text_of_number, "declare the column as TEXT, or make the value a number"
    return None, ""


def _is_any(_value: Any) -> bool:
    return True


def _is_between_floats(value: int) -> bool:
    """Return whether no float is equal to a whole number."""
    return int(float(value)) != value


def _is_text_of_number(value: str) -> bool:
    return _NUMBER_TEXT.fullmatch(value) is not None
