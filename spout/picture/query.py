"""Asks a picture what a person wrote in SQL, and lets nothing happen beside reading it.

Two fences stand one behind the other. The database is opened for reading, or has orders to change
nothing (``query_only``). And SQLite asks an authorizer about each step of a statement before it
runs: it may read the picture's tables, and call functions that compute. So no statement reaches a
file, another database, or a setting, whatever its name is: what is not listed here is refused.

A query ends after a time. A text in it, its whole answer, and the memory that it takes on its way have
greatest sizes.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Final, NamedTuple

from acker.errors import QueryRefused
from acker.notation import show_bytes
from acker.untrusted import Untrusted
from spout.picture.schema import TABLES

QUERY_MS_MAX: Final = 60_000
"""A query that takes longer is ended."""

ROWS_MAX: Final = 10_000
"""How many rows an answer has, if nobody names a limit."""

TEXT_BYTES_MAX: Final = 16 << 20
"""The longest value in a query or an answer, and the longest row: a row of a picture is shorter."""

SQL_BYTES_MAX: Final = 1 << 20

ANSWER_BYTES_MAX: Final = 64 << 20
"""So much all texts of an answer take together."""

MEMORY_BYTES_MAX: Final = 3 << 30
"""So much memory SQLite takes in this process: the picture itself has two thirds of it at most."""

_PATTERN_BYTES_MAX: Final = 500
"""The longest pattern of LIKE and GLOB: each of its signs may be compared with each one of a text."""

_STEPS_PER_CLOCK_READING: Final = 1_000
"""So many steps of SQLite's machine between two looks at the clock: some 0.01 ms, and of a step that
makes a text of 16 MB some 10 s."""

_ALLOWED_TABLES: Final = frozenset(
    [
        *TABLES,
        # which tables there are
        "sqlite_master",
        "sqlite_schema",
        # the parts of a JSON text, as rows
        "json_each",
        "json_tree",
    ]
)

_ALLOWED_FUNCTIONS: Final = frozenset(
    [
        # numbers
        "abs", "ceil", "ceiling", "exp", "floor", "ln", "log", "log10", "log2", "mod", "pow",
        "power", "random", "round", "sign", "sqrt", "trunc",
        # texts
        "char", "concat", "concat_ws", "format", "glob", "hex", "instr", "length", "like", "lower",
        "ltrim", "octet_length", "printf", "quote", "replace", "rtrim", "substr", "substring",
        "trim", "unhex", "unicode", "upper",
        # times
        "date", "datetime", "julianday", "strftime", "time", "timediff", "unixepoch",
        # choices
        "coalesce", "ifnull", "iif", "nullif", "typeof",
        # of several rows
        "avg", "count", "cume_dist", "dense_rank", "first_value", "group_concat", "lag",
        "last_value", "lead", "max", "median", "min", "nth_value", "ntile", "percent_rank",
        "percentile", "percentile_cont", "percentile_disc", "rank", "row_number", "string_agg",
        "sum", "total",
        # JSON
        "->", "->>", "json", "json_array", "json_array_length", "json_extract", "json_group_array",
        "json_group_object", "json_object", "json_quote", "json_type", "json_valid",
    ]
)  # fmt: skip
"""What computes a value from values. All others are refused, such as `load_extension`."""

_REFUSED: Final = {
    sqlite3.SQLITE_ATTACH: "opening another database",
    sqlite3.SQLITE_PRAGMA: "PRAGMA",
    sqlite3.SQLITE_TRANSACTION: "a transaction",
    sqlite3.SQLITE_INSERT: "changing a table",
    sqlite3.SQLITE_UPDATE: "changing a table",
    sqlite3.SQLITE_DELETE: "changing a table",
}
"""What is refused, in words, by SQLite's code of the action; of all others the code says enough."""

Cell = str | int | float | None

Value = str | int | float | bytes | None
"""What SQLite answers."""


class Answer(NamedTuple):
    """The answer to a query.

    Attributes:
        columns: the names of its columns; none: the text was no query.
        rows: at most as many as were wanted.
        is_cut: whether there are more rows.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    is_cut: bool


class Query:
    """Asks one picture, whoever wrote the question."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        clock_ms: Callable[[], int],
        *,
        query_ms_max: int = QUERY_MS_MAX,
    ) -> None:
        """Fence the connection of a picture: from now on it only reads.

        Args:
            clock_ms: returns the time that passes, in ms.
            query_ms_max: a query that takes longer is ended.
        """
        self._connection = connection
        self._clock_ms = clock_ms
        self._query_ms_max = query_ms_max
        self._ends_ms = 0
        # what the authorizer refused of the statement that is compiled
        self._refused_part = ""
        connection.execute("PRAGMA query_only = ON")
        # SQLite declares these two tables when they are first used, by a statement that the
        # authorizer would refuse; so they are used before it is there
        connection.execute("SELECT 1 FROM json_each('[]'), json_tree('[]')").fetchall()
        connection.text_factory = _decoded
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, TEXT_BYTES_MAX)
        connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, SQL_BYTES_MAX)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, _PATTERN_BYTES_MAX)
        # sorting and grouping take memory, too; the limit holds for the process, and is never raised
        connection.execute(f"PRAGMA hard_heap_limit = {MEMORY_BYTES_MAX}")
        connection.set_authorizer(self._authorize)
        connection.set_progress_handler(self._is_late, _STEPS_PER_CLOCK_READING)

    @property
    def ends_after_s(self) -> float:
        """So long a query takes at most, as long as SQLite comes from one step to the next."""
        return self._query_ms_max / 1_000

    def ask(self, sql: str, rows_max: int = ROWS_MAX) -> Answer:
        """Run one statement, and return its answer, of too many rows the first ones.

        Raises:
            QueryRefused: it is no SQL, it would do more than read, it takes too long or too much.
            KeyboardInterrupt: somebody has stopped it.
        """
        self._refused_part = ""
        self._ends_ms = self._clock_ms() + self._query_ms_max
        try:
            with closing(self._connection.execute(sql)) as cursor:
                columns = [description[0] for description in cursor.description or ()]
                rows = _answer_rows(cursor, rows_max)
        except MemoryError as error:
            raise QueryRefused(
                f"the query takes more memory than SQLite may have here ({MEMORY_BYTES_MAX >> 20:,} MB,"
                " with the picture itself): sort, group or join fewer rows, or shorter texts"
            ) from error
        except (sqlite3.Error, sqlite3.Warning, UnicodeError, ValueError) as error:
            if _was_interrupted(error) and not self._is_late():
                # Ctrl-C came while SQLite asked `_is_late`, and it takes no exception from there
                raise KeyboardInterrupt from error
            raise QueryRefused(self._why_refused(error)) from error
        cells = [[_cell(value) for value in row] for row in rows[:rows_max]]
        return Answer(columns, cells, is_cut=len(rows) > rows_max)

    def _why_refused(self, error: Exception) -> str:
        """Return why a statement was refused, and what to do."""
        if self._refused_part:
            return f"{self._refused_part} is refused: a picture can only be read, by SELECT"
        if _was_interrupted(error):
            seconds = self._query_ms_max // 1000
            return (
                f"the query takes longer than {seconds} s, and was ended: ask for less, or name how"
                " its tables belong together (ON)"
            )
        why = Untrusted(str(error))
        return (
            f"SQLite cannot run the query: {why}; `windhover sql 'SELECT sql FROM sqlite_schema'`"
            " lists the tables with their columns, and docs/reference/picture.md describes them"
        )

    def _authorize(
        self,
        action: int,
        name: str | None,
        detail: str | None,
        *_where: str | None,
    ) -> int:
        """Return SQLITE_OK for what reads the picture, and SQLITE_DENY for all else.

        SQLite calls it for each step of a statement that it compiles. If a function is called,
        `detail` is its name. If a table is read, `name` is the table, and `detail` the column.
        """
        match action:
            case sqlite3.SQLITE_SELECT | sqlite3.SQLITE_RECURSIVE:
                return sqlite3.SQLITE_OK
            case sqlite3.SQLITE_FUNCTION:
                if (detail or "").lower() in _ALLOWED_FUNCTIONS:
                    return sqlite3.SQLITE_OK
                self._refused_part = f"function {Untrusted(detail or '')}"
            case sqlite3.SQLITE_READ:
                # without a column no value is read, as in count(*); `name` may be the query's own then
                if (name or "").lower() in _ALLOWED_TABLES or not detail:
                    return sqlite3.SQLITE_OK
                self._refused_part = f"table {Untrusted(name or '')}"
            case _:
                what = _REFUSED.get(action, f"this statement (action {action})")
                # what was refused before stays: it names the function or table
                self._refused_part = self._refused_part or what
        return sqlite3.SQLITE_DENY

    def _is_late(self) -> bool:
        """Return whether the statement that runs has taken too long; then SQLite ends it."""
        return self._clock_ms() > self._ends_ms


def _decoded(text: bytes) -> str:
    """Return a text of the database; a query can make one that is no UTF-8."""
    return text.decode("utf-8", "backslashreplace")


def _was_interrupted(error: Exception) -> bool:
    """Return whether SQLite has ended a statement since `_is_late` asked for that, or raised."""
    return isinstance(error, sqlite3.OperationalError) and str(error) == "interrupted"


def _answer_rows(cursor: sqlite3.Cursor, rows_max: int) -> list[tuple[Value, ...]]:
    """Read the rows of an answer: `rows_max` of them, and one more if there are more.

    Raises `QueryRefused`: they are too large together.
    """
    rows: list[tuple[Value, ...]] = []
    answer_bytes = 0
    for row in cursor:
        answer_bytes += sum(len(value) for value in row if isinstance(value, str | bytes))
        if answer_bytes > ANSWER_BYTES_MAX:
            raise QueryRefused(
                f"the answer is larger than {ANSWER_BYTES_MAX >> 20} MB, at row {len(rows) + 1:,}: ask for"
                " fewer rows or columns, or for the beginning of a text, by substr"
            )
        rows.append(row)
        if len(rows) > rows_max:
            break
    return rows


def _cell(value: Value) -> Cell:
    """Return a value of an answer; bytes are written as all commands write them."""
    if isinstance(value, bytes):
        return show_bytes(value)
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"  # JSON has no such number
    return value
