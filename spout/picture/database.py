"""The database of a picture: made in memory, filled by the loader, written to a file as a whole.

It is SQLite, from Python's own library; docs/design/picture.md has the reasons. A row is a mapping
from the names of columns to values as the loader has them: a time is int milliseconds. Here, and
nowhere else, it becomes what the database has.

What a file for others must not have is left out here, too, before it is in the database: so nothing
of it stands in a free page of the file.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from functools import cache, lru_cache
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple, assert_never
from urllib.parse import quote

from acker.errors import NewerPicture, NoPicture, NoRoom, WindhoverError
from acker.redaction import cut
from acker.units import TIME_MS_MAX, TIME_MS_MIN
from acker.untrusted import Untrusted
from spout.distribution import installed_version
from spout.picture.schema import (
    APPLICATION_ID,
    KEPT_APPLICATION_ID,
    TABLES,
    VALUE_BYTES_MAX,
    VERSION,
    ColumnKind,
    Holds,
    Table,
    TableColumn,
    statements,
)

Value = str | int | bool | None
"""What a column of a row may have; a time is int milliseconds since 1970, and a flag a bool."""

Row = Mapping[str, Value]

Json = str | int | float | list["Json"] | dict[str, "Json"] | None

ROWS_BUFFERED: Final = 10_000
"""So many rows of a table are collected before they go into the database together."""

_EPOCH: Final = datetime(1970, 1, 1)  # all times of a picture are UTC
_NO_TIME_MS: Final = -1
_WRITES_ONE: Final = "`windhover picture --out FILE` writes one"
_INT64_MAX: Final = (1 << 63) - 1
_LOCK_WAIT_S: Final = 1.0
_TIMES_KEPT: Final = 65_536
_SHORT_TEXT: Final = 1_000

_NO_ROOM_CODES: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
_PRIMARY_CODE: Final = 0xFF
"""The lowest byte of SQLite's error codes: the others say more of the same error."""


class RowGroup(NamedTuple):
    """Rows of one table that differ in some columns of numbers alone.

    Attributes:
        common: the columns in which all rows have one value.
        differing_values: for each row its numbers in the other columns, which
            `Picture.insert_groups` names.
    """

    common: Row
    differing_values: Sequence[Sequence[int]]

    def with_columns(self, further: Row) -> RowGroup:
        """Return as many rows, which have these columns in common, too."""
        return RowGroup({**self.common, **further}, self.differing_values)


class Picture:
    """A picture that is being made, in memory.

    Attributes:
        connection: of the database. Who asks it what a person wrote takes `spout.picture.query`.
        has_payloads: whether payloads and headers are kept.
        has_limits: whether long texts are left out, and payloads of many letters.
        left_out_counts: by table and column, how many values were too long for a query to read; one
            that many rows share counts once.
    """

    def __init__(
        self,
        *,
        has_payloads: bool,
        hides_secrets: bool = False,
        has_limits: bool = True,
        file: Path | None = None,
    ) -> None:
        """Open an empty picture in memory, or the one in a file.

        Args:
            has_payloads: whether payloads and headers of records are kept.
            hides_secrets: whether what looks like a secret is cut out of messages.
            has_limits: whether a value that is too long for a query is left out, and payloads
                beyond the limit of all together. Without limits a picture is for a few letters.
            file: where it is kept, for this process alone; None: in memory. `sqlite3.Error`: the
                file cannot be used.
        """
        self.has_payloads = has_payloads
        self.has_limits = has_limits
        self._hides_secrets = hides_secrets
        self.left_out_counts: Counter[tuple[str, str]] = Counter()
        self.connection = sqlite3.connect(
            file or ":memory:",
            isolation_level=None,
            timeout=_LOCK_WAIT_S,
            # several threads use a picture in a file; its owner lets one at a time do so
            check_same_thread=file is None,
        )
        try:
            self.connection.execute("PRAGMA temp_store = MEMORY")
            if file is not None:
                self._lock_file()
            if not self._statements_in_database():  # a database without a table is new
                self._make_tables(APPLICATION_ID if file is None else KEPT_APPLICATION_ID)
        except sqlite3.Error:
            self.connection.close()
            raise
        # by table and column: the function that turns a value of a row into what SQLite stores
        self._converters: dict[str, dict[str, Callable[[Value], Value]]] = {}
        for table in TABLES.values():
            self._converters[table.name] = {
                column.name: self._limited_converter(table, column) for column in table.columns
            }

    def _lock_file(self) -> None:
        """Keep all others from the file until it is closed."""
        self.connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        self.connection.execute("BEGIN EXCLUSIVE")
        self.connection.execute("COMMIT")

    def _statements_in_database(self) -> set[str]:
        """Return the statements by which the database's tables and indexes were made."""
        query = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL"
        return {statement for (statement,) in self.connection.execute(query)}

    def _make_tables(self, application_id: int) -> None:
        """Make all tables, or none of them."""
        with self.transaction():
            self.connection.execute(f"PRAGMA application_id = {application_id}")
            self.connection.execute(f"PRAGMA user_version = {VERSION}")
            for statement in statements():
                self.connection.execute(statement)

    def has_its_tables(self) -> bool:
        """Return whether the tables are those of this version; else another one made the file."""
        (version_of_file,) = self.connection.execute("PRAGMA user_version").fetchone()
        return version_of_file == VERSION and self._statements_in_database().issuperset(statements())

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make all changes of the context in one transaction; none of them if it raises."""
        self.connection.execute("BEGIN")
        try:
            yield
            self.connection.execute("COMMIT")
        except BaseException:
            # a disk that is full has ended it already
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise

    @property
    def size_bytes(self) -> int:
        """How much memory, or room in the file, the rows take."""
        (page_count,) = self.connection.execute("PRAGMA page_count").fetchone()
        (free_count,) = self.connection.execute("PRAGMA freelist_count").fetchone()
        (page_bytes,) = self.connection.execute("PRAGMA page_size").fetchone()
        return (int(page_count) - int(free_count)) * int(page_bytes)

    def insert(self, table: str, rows: Iterable[Row]) -> None:
        """Add rows to a table; a column that a row lacks is NULL."""
        # one statement adds all neighbours that have the same columns, as nearly all rows have
        for column_names, neighbours in groupby(rows, tuple):
            statement = _insert_statement(table, column_names)
            values = self._database_values(table, column_names, neighbours)
            self.connection.executemany(statement, values)

    def insert_groups(
        self,
        table: str,
        differing_columns: tuple[str, ...],
        groups: Iterable[RowGroup],
    ) -> None:
        """Add all rows of some groups to a table.

        Of the columns ("offset", "end_offset") a group with {"topic": "words"} in common and the
        differing values (1, 3) and (7, 9) is two rows of topic `words`: 1 to 3, and 7 to 9.

        Args:
            differing_columns: the columns of the groups' `differing_values`, in their order.
        """
        # one statement adds all neighbours whose rows have the same columns in common
        for common_columns, neighbours in groupby(groups, lambda group: tuple(group.common)):
            statement = _insert_statement(table, (*common_columns, *differing_columns))
            self.connection.executemany(statement, self._values_of_groups(table, neighbours))

    def _values_of_groups(
        self,
        table: str,
        groups: Iterable[RowGroup],
    ) -> Iterator[tuple[Value, ...]]:
        """Yield the values of all rows of some groups, as the database has them."""
        for group in groups:
            # a value in common is converted once: there may be a hundred thousand of these rows
            common_values = tuple(self.converted(table, group.common).values())
            for differing_values in group.differing_values:
                yield (*common_values, *differing_values)

    def _database_values(
        self,
        table: str,
        column_names: tuple[str, ...],
        rows: Iterable[Row],
    ) -> Iterator[list[Value]]:
        """Yield the values of rows as the database stores them; each row has just `column_names`."""
        converters = [self._converters[table][name] for name in column_names]
        for row in rows:
            yield [convert(value) for convert, value in zip(converters, row.values(), strict=True)]

    def converted(self, table: str, row: Row) -> dict[str, Value]:
        """Return a row with its values as the database has them; NULL: the value is left out."""
        converters = self._converters[table]
        return {name: converters[name](value) for name, value in row.items()}

    def replace(self, table: str, rows: Iterable[Row]) -> None:
        """Put these rows in the place of all that a table has."""
        self.connection.execute(f"DELETE FROM {table}")  # the names are ours
        self.insert(table, rows)

    def describe(self, read_at_ms: int, since_ms: int | None, cluster: str | None) -> None:
        """Write the one row of the table `picture`: when and of which cluster the topics were read.

        Args:
            read_at_ms: wall time of the last reading.
            since_ms: wall time of the oldest records that were read; None: all were.
            cluster: Kafka's id of the cluster; None: it is not known.
        """
        row: Row = {
            "version": VERSION,
            "windhover": installed_version(),
            "read_at": read_at_ms,
            "since_at": since_ms,
            "cluster": cluster,
            "has_payloads": self.has_payloads,
        }
        self.replace("picture", [row])

    def write_file(self, path: Path) -> None:
        """Write the picture to a file, whole or not at all; a file of that name is replaced.

        Behind a link it is the file that the link names.

        Raises:
            NoRoom: it cannot be written.
            NoPicture: the name is that of something else than a file.
        """
        refuse_other_than_file(path)
        path = path.resolve()
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            # only its owner may read it, since it says what failed, and why; nobody has put a link here
            part.touch(mode=0o600, exist_ok=False)
            with closing(sqlite3.connect(part, isolation_level=None)) as file:
                # nobody uses a part that a crash left behind, so SQLite needs no journal to mend it
                file.execute("PRAGMA journal_mode = OFF")
                self.connection.backup(file)
            part.replace(path)
        except (OSError, sqlite3.Error) as error:
            if not _is_about_room(error):
                raise
            raise NoRoom(
                f"{path}: cannot be written: {Untrusted(str(error))}; nothing of it is left. Make"
                " room, or name a file elsewhere with --out"
            ) from error
        finally:
            part.unlink(missing_ok=True)

    def close(self) -> None:
        self.connection.close()

    def _limited_converter(self, table: Table, column: TableColumn) -> Callable[[Value], Value]:
        """Return what turns a column's value into the database's; one that is too long into NULL.

        A value that is left out is counted in `left_out_counts`.
        """
        convert = self._converter(column)
        if column.kind not in (ColumnKind.TEXT, ColumnKind.JSON) or not self.has_limits:
            return convert

        keeps_ascii_as_it_is = convert is _text_column

        def limited(value: Value) -> Value:
            # nearly all texts take this way
            is_short = isinstance(value, str) and len(value) <= _SHORT_TEXT and value.isascii()
            if keeps_ascii_as_it_is and is_short:
                return value
            text = convert(value)
            # a character has four bytes at most, so the bytes of few texts need to be counted
            may_be_too_long = isinstance(text, str) and len(text) * 4 > VALUE_BYTES_MAX
            if may_be_too_long and len(str(text).encode()) > VALUE_BYTES_MAX:
                self.left_out_counts[table.name, column.name] += 1
                return None
            return text

        return limited

    def _converter(self, column: TableColumn) -> Callable[[Value], Value]:
        """Return what turns a value of a column into the database's, by what the column holds."""
        if column.holds is Holds.PAYLOAD and not self.has_payloads:
            return _nothing
        match column.kind:
            case ColumnKind.TIME:
                return time_column
            case ColumnKind.NUMBER | ColumnKind.FLAG:
                return _number_column
            case ColumnKind.TEXT:
                is_cut = self._hides_secrets and column.holds is Holds.MESSAGE
                return _message_column if is_cut else _text_column
            case ColumnKind.JSON:
                is_cut = self._hides_secrets and column.holds is Holds.MESSAGE
                return _json_message_column if is_cut else _text_column
            case _:
                assert_never(column.kind)


def open_picture(path: Path, *, may_lack_tables: bool = False) -> sqlite3.Connection:
    """Open the file of a picture for reading.

    Args:
        path: the file.
        may_lack_tables: a file is taken that an older Windhover made, which knew fewer tables: for
            whoever replaces it.

    Raises:
        NoPicture: there is no such file, or it is something else.
        NewerPicture: a newer version of Windhover made it.
    """
    refuse_other_than_file(path)
    if not path.exists():
        raise NoPicture(f"{path}: there is no such file; {_WRITES_ONE}")
    try:
        # of an address that begins with two slashes the first part would be a host
        address = f"file://{quote(os.fsencode(path.absolute()))}?mode=ro"
        connection = sqlite3.connect(address, uri=True, isolation_level=None)
    except sqlite3.Error as error:
        raise NoPicture(f"{path}: cannot be read ({Untrusted(str(error))}); {_WRITES_ONE}") from error
    try:
        # a schema that a stranger wrote calls nothing that reaches beyond the database
        connection.execute("PRAGMA trusted_schema = OFF")
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        (file_version,) = connection.execute("PRAGMA user_version").fetchone()
        if application_id != APPLICATION_ID:
            raise NoPicture(f"{path}: is no picture of Windhover; {_WRITES_ONE}")
        if file_version > VERSION:
            raise NewerPicture(
                f"{path}: a newer Windhover made it (tables of version {file_version}, and this"
                f" one knows {VERSION}); ask it with that version"
            )
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
        missing_names = sorted(TABLES.keys() - names)
        if missing_names and not may_lack_tables:
            raise NoPicture(f"{path}: lacks table {missing_names[0]}; make it again")
        connection.execute("PRAGMA temp_store = MEMORY")
    except sqlite3.DatabaseError as error:
        connection.close()
        raise NoPicture(
            f"{path}: is no picture, or damaged ({Untrusted(str(error))}); {_WRITES_ONE}"
        ) from error
    except WindhoverError:
        connection.close()
        raise
    return connection


def refuse_other_than_file(path: Path) -> None:
    """Refuse the name of a folder, a device or a pipe; a file that is not there is none of them.

    Raises `NoPicture`: it is one.
    """
    if path.is_dir():
        raise NoPicture(f"{path}: is a folder, and no picture; {_WRITES_ONE}")
    if path.exists() and not path.is_file():
        raise NoPicture(f"{path}: is no file, and no picture; {_WRITES_ONE}")


def _is_about_room(error: OSError | sqlite3.Error) -> bool:
    """Return whether a file could not be written for a reason of its disk or folder."""
    if isinstance(error, OSError):
        return True
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code & _PRIMARY_CODE in _NO_ROOM_CODES


@cache
def _insert_statement(table: str, names: tuple[str, ...]) -> str:
    """Return the SQL statement that adds a row with these columns, whose values are its parameters.

    A value that is no JSON becomes NULL in a column of JSON.

    Raises `KeyError`: the table has no such column.
    """
    column_by_name = {column.name: column for column in TABLES[table].columns}
    parameters: list[str] = []
    for number, name in enumerate(names, start=1):
        parameter = f"?{number}"  # SQLite's name of the value at this index, counted from 1
        if column_by_name[name].kind is ColumnKind.JSON:
            parameter = f"CASE WHEN json_valid({parameter}) THEN {parameter} END"
        parameters.append(parameter)
    # quoted, since `partition` and others are words of SQL, too
    columns = ", ".join(f'"{name}"' for name in names)
    return f"INSERT INTO {table} ({columns}) VALUES ({', '.join(parameters)})"


@lru_cache(maxsize=_TIMES_KEPT)
def time_column(value_ms: Value) -> str | None:
    """Return a time as SQLite's own functions have it, UTC; None: it is unknown, or in no calendar.

    >>> time_column(1_782_864_000_987)
    '2026-07-01 00:00:00.987'
    """
    if not isinstance(value_ms, int) or value_ms == _NO_TIME_MS:
        return None
    if not TIME_MS_MIN <= value_ms <= TIME_MS_MAX:
        return None
    return (_EPOCH + timedelta(milliseconds=value_ms)).isoformat(" ", "milliseconds")


def _number_column(value: Value) -> int | None:
    """Return a number; None: it has more than 64 bits, so a stranger wrote it."""
    if isinstance(value, int) and -_INT64_MAX - 1 <= value <= _INT64_MAX:
        return value
    return None


def _text_column(value: Value) -> str | None:
    """Return a text; what is no character, and has no form in UTF-8, becomes a question mark."""
    if not isinstance(value, str):
        return None if value is None else str(value)
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def _message_column(value: Value) -> str | None:
    """Return a text without what looks like a secret."""
    text = _text_column(value)
    return None if text is None else cut(text)


def _json_message_column(value: Value) -> str | None:
    """Return a JSON text, in the texts of which nothing looks like a secret."""
    if value is None:
        return None
    return json.dumps(_cut_texts(json.loads(str(value))), ensure_ascii=False)


def _cut_texts(data: Json) -> Json:
    """Return JSON data with what looks like a secret cut out of its texts.

    The names of fields are left as they are: they are ours.
    """
    match data:
        case str():
            return _message_column(data)
        case list():
            return [_cut_texts(item) for item in data]
        case dict():
            return {name: _cut_texts(item) for name, item in data.items()}
        case _:
            return data


def _nothing(_value: Value) -> None:
    """Keep nothing of a value."""
