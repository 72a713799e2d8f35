"""The page of the tables is what the schema says, and the schema uses the words that the house has."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from spout.picture.database import Picture
from spout.picture.schema import TABLES, ColumnKind, Table

PROJECT = Path(__file__).resolve().parents[4]
PAGE = PROJECT / "docs/reference/picture.md"


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the script that writes the generated parts of pages."""
    monkeypatch.syspath_prepend(PROJECT / "docs" / "hooks")
    return import_module("keys")


def test_the_page_is_what_the_schema_says(written: ModuleType) -> None:
    text = PAGE.read_text(encoding="utf-8")
    part = written.PARTS["reference/picture.md"]()
    assert text == written.with_part(text, part), f"write it anew: `{written.COMMAND}`"


def test_the_database_has_the_columns_of_the_schema_in_their_order() -> None:
    with closing(Picture(has_payloads=True)) as picture:
        for table in TABLES.values():
            columns = picture.connection.execute(f"SELECT * FROM {table.name}").description
            assert [name for name, *_rest in columns] == [column.name for column in table.columns]


@pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
def test_units_come_last_in_names_and_each_column_has_a_meaning(table: Table) -> None:
    for column in table.columns:
        assert column.meaning, column.name
        assert (column.kind is ColumnKind.TIME) == column.name.endswith("_at"), column.name
        assert (column.kind is ColumnKind.FLAG) == (re.match(r"(is|has)_", column.name) is not None), (
            column.name
        )


def test_no_name_has_to_be_quoted() -> None:
    """Whoever types a query knows no list of SQL's words."""
    with closing(sqlite3.connect(":memory:")) as database:
        for table in TABLES.values():
            names = ", ".join(column.name for column in table.columns)
            database.execute(f"CREATE TABLE {table.name} ({names})")
            assert database.execute(f"SELECT {names} FROM {table.name}").fetchall() == []
