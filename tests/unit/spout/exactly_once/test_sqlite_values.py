"""Values in a table of SQLite: each comes back as it was, or is refused by its row and its column."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from acker.errors import UsageError
from spout.exactly_once.sqlite_store import SQLiteStore
from spout.exactly_once.store import BatchKey
from tests.support.odd_values import ODD_VALUES

DECLARED: Final = ("", "BLOB", "TEXT", "VARCHAR(9)", "INTEGER", "BIGINT", "REAL", "DOUBLE", "NUMERIC", "DATE")
"""Types of each affinity, in several spellings."""


def made_store(path: Path, table: str = "(v)") -> SQLiteStore:
    """Return a store whose table `rows` has these columns, opened for group `g`."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE rows {table}")
    store = SQLiteStore(path, "rows")
    store.open("g", 1)
    return store


def written(store: SQLiteStore, rows: pa.Table, batch: int = 0) -> None:
    store.commit(BatchKey("g", 1, "s", "q", batch), rows, b"")


def refusal_of(store: SQLiteStore, rows: pa.Table) -> str:
    """Write rows; return why they were refused, empty: they were not."""
    try:
        written(store, rows)
    except UsageError as error:
        return str(error)
    return ""


def all_rows(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.execute("SELECT * FROM rows ORDER BY rowid"))


def is_same(value: Any, stored: Any) -> bool:
    """Return whether SQLite has what was written; it has times as texts, and may have a number as one."""
    if isinstance(value, datetime):
        return bool(stored == value.isoformat(" "))
    if isinstance(value, date):
        return bool(stored == value.isoformat())
    if isinstance(value, int):
        return stored in (int(value), str(int(value)))
    if isinstance(value, float):
        return isinstance(stored, float | int) and stored == value
    return type(stored) is type(value) and bool(stored == value)


@pytest.mark.sample(4)
@pytest.mark.parametrize("declared", DECLARED)
def test_a_value_is_what_was_written_or_is_refused_by_row_and_column(declared: str, tmp_path: Path) -> None:
    """D3226."""
    for name, (kind, values) in ODD_VALUES.items():
        path = tmp_path / f"{name}.db"
        store = made_store(path, f"(n INTEGER, v {declared})")
        for value in (None, *values):
            rows = pa.table({"n": [1, 2], "v": pa.array([None, value], kind)})
            (_, as_python) = rows.column("v").to_pylist() if kind.num_fields == 0 else (None, value)
            before = all_rows(path)
            refusal = refusal_of(store, rows)
            if refusal:
                assert "row 1 of the batch has in v" in refusal, (name, value, refusal)
                assert all_rows(path) == before
                continue
            (stored,) = [row[1] for row in all_rows(path)[len(before) + 1 :]]
            assert is_same(as_python, stored), (name, as_python, stored)


@pytest.mark.parametrize(
    ("declared", "value"),
    [("TEXT", "007"), ("REAL", 0.1), ("BIGINT", (1 << 63) - 1), ("DATE", date(1, 1, 1)), ("TEXT", "a\0b")],
)
def test_a_column_of_the_right_type_takes_its_values(declared: str, value: Any, tmp_path: Path) -> None:
    written(made_store(tmp_path / "a.db", f"(v {declared})"), pa.table({"v": [value]}))
    assert is_same(value, all_rows(tmp_path / "a.db")[0][0])


def test_a_column_of_a_strict_table_that_takes_anything_changes_nothing(tmp_path: Path) -> None:
    written(made_store(tmp_path / "a.db", "(v ANY) STRICT"), pa.table({"v": ["007"]}))
    assert all_rows(tmp_path / "a.db") == [("007",)]
    with pytest.raises(UsageError, match="row 0 of the batch has in v"):
        written(made_store(tmp_path / "b.db", "(v ANY)"), pa.table({"v": ["007"]}))


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("(v TEXT NOT NULL)", "NOT NULL constraint failed"),
        ("(v TEXT UNIQUE)", "UNIQUE constraint failed"),
        ("(v TEXT UNIQUE ON CONFLICT ROLLBACK)", "UNIQUE constraint failed"),
        ("(v TEXT UNIQUE ON CONFLICT FAIL)", "UNIQUE constraint failed"),
        ("(v TEXT CHECK (v <> 'a'))", "CHECK constraint failed"),
        ("(v INTEGER) STRICT", "cannot store TEXT value in INTEGER column"),
    ],
)
def test_a_row_that_breaks_a_rule_of_the_table_is_named(table: str, why: str, tmp_path: Path) -> None:
    """D3227: whatever the table does then; nothing of the batch is written."""
    store = made_store(tmp_path / "a.db", table)
    values = ["b", "b" if "UNIQUE" in table else None if "NOT NULL" in table else "a"]
    if "STRICT" in table:
        values = [None, "a"]
    with pytest.raises(UsageError, match=f"does not take row 1 of the batch: {why}.*nothing of the batch"):
        written(store, pa.table({"v": pa.array(values, pa.string())}))
    assert all_rows(tmp_path / "a.db") == []


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("(v TEXT UNIQUE ON CONFLICT IGNORE)", "took 1 of the 3 rows"),
        ("(v TEXT NOT NULL ON CONFLICT IGNORE)", "took 2 of the 3 rows"),
        ("(v TEXT UNIQUE ON CONFLICT REPLACE)", "is declared with ON CONFLICT REPLACE"),
        ("(v TEXT PRIMARY KEY on conflict  replace)", "is declared with ON CONFLICT REPLACE"),
        ("(v TEXT NOT NULL ON CONFLICT\nREPLACE DEFAULT 'none')", "is declared with ON CONFLICT REPLACE"),
    ],
)
def test_a_table_that_would_lose_a_row_without_an_error_is_refused(
    table: str, why: str, tmp_path: Path
) -> None:
    """D3227: the records of the rows that are left out or replaced would be acked."""
    store = made_store(tmp_path / "a.db", table)
    values = ["b", "b", "b"] if "NOT NULL" not in table else ["b", None, "c"]
    with pytest.raises(UsageError, match=f"{why}.*nothing of the batch is written"):
        written(store, pa.table({"v": pa.array(values, pa.string())}))
    assert all_rows(tmp_path / "a.db") == []


@pytest.mark.parametrize("conflict", ["OR IGNORE", "OR REPLACE"])
def test_a_trigger_does_about_its_own_conflicts_what_it_says(conflict: str, tmp_path: Path) -> None:
    """A clause of our INSERT would overrule it, and every word that comes twice would end the query."""
    path = tmp_path / "a.db"
    store = made_store(path, "(v TEXT)")
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE counts (v TEXT PRIMARY KEY, n INTEGER DEFAULT 0);"
            f"CREATE TRIGGER t AFTER INSERT ON rows BEGIN"
            f" INSERT {conflict} INTO counts (v) VALUES (NEW.v);"
            " UPDATE counts SET n = n + 1 WHERE v = NEW.v; END"
        )
    written(store, pa.table({"v": ["a", "a", "b"]}))
    assert all_rows(path) == [("a",), ("a",), ("b",)]
    with closing(sqlite3.connect(path)) as connection:
        counts = dict(connection.execute("SELECT v, n FROM counts"))
    assert counts == {"a": 2 if conflict == "OR IGNORE" else 1, "b": 1}


@pytest.mark.parametrize(
    ("table", "rows", "why"),
    [
        ("(v TEXT, w AS (v))", {"v": ["a"], "w": ["b"]}, "cannot INSERT into generated column"),
        ("(v TEXT)", {"v": ["a"], "V": ["b"]}, "the columns v and V of the rows are one for SQLite"),
        ("(v TEXT)", {"v\0x": ["a"]}, "null character|no column named"),
        ("(v TEXT)", {"v": ["a"], "ROWID": ["7"]}, "has no column ROWID, and SQLite would number its rows"),
        ("(v TEXT, rowid TEXT)", {"v": ["a"], "rowid": ["7"], "oid": ["8"]}, "has no column oid"),
    ],
    ids=[
        "a generated column",
        "names that differ by case",
        "a null byte in a name",
        "a row number",
        "another",
    ],
)
def test_columns_that_the_table_cannot_take_are_refused(
    table: str, rows: dict[str, list[str]], why: str, tmp_path: Path
) -> None:
    """D3227: what is wrong with the rows is no trouble of the file."""
    with pytest.raises(UsageError, match=why):
        written(made_store(tmp_path / "a.db", table), pa.table(rows))
    assert all_rows(tmp_path / "a.db") == []


def test_a_row_that_a_trigger_leaves_out_ends_the_batch(tmp_path: Path) -> None:
    """D3227: its record would be acked, and nobody would miss it."""
    path = tmp_path / "a.db"
    store = made_store(path, "(v TEXT)")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "CREATE TRIGGER t BEFORE INSERT ON rows WHEN NEW.v = 'a' BEGIN SELECT RAISE(IGNORE); END"
        )
    with pytest.raises(UsageError, match=r"took 2 of the 3 rows of the batch: a trigger"):
        written(store, pa.table({"v": ["b", "a", "c"]}))
    assert all_rows(path) == []
    written(store, pa.table({"v": ["b", "c"]}))
    assert all_rows(path) == [("b",), ("c",)]


def test_a_column_may_be_called_as_the_number_of_a_row_is(tmp_path: Path) -> None:
    written(made_store(tmp_path / "a.db", "(rowid TEXT)"), pa.table({"rowid": ["007"]}))
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        assert connection.execute("SELECT oid, rowid FROM rows").fetchall() == [(1, "007")]


def test_names_that_are_two_for_sqlite_are_two_columns(tmp_path: Path) -> None:
    written(made_store(tmp_path / "a.db", "(ä, Ä)"), pa.table({"ä": ["a"], "Ä": ["b"]}))
    assert all_rows(tmp_path / "a.db") == [("a", "b")]


def test_a_name_of_a_table_in_another_case_is_the_table(tmp_path: Path) -> None:
    made_store(tmp_path / "a.db")
    assert SQLiteStore(tmp_path / "a.db", "ROWS").open("g", 1).epoch == 2


def test_a_file_that_is_no_database_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(b"no database" * 1_000)
    with pytest.raises(UsageError, match="is no database of SQLite, or damaged"):
        SQLiteStore(tmp_path / "a.db", "rows").open("g", 1)


@pytest.mark.parametrize("name", ["windhover_sink", "Windhover_Sink"])
def test_the_table_that_the_store_keeps_for_itself_takes_no_rows(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is what the store keeps for itself"):
        SQLiteStore(tmp_path / "a.db", name)
