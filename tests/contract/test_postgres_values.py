"""Values in a table of PostgreSQL: each comes back as it was, or is refused by its row and its column."""

from __future__ import annotations

import math
import uuid
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from acker.errors import StoreFenced, UsageError
from spout.exactly_once.postgres_store import PostgresStore
from tests.support.exact_batches import key_of
from tests.support.odd_values import ODD_VALUES
from tests.support.postgres_tables import Tables

COLUMNS: Final = (
    "text", "varchar(9)", "char(4)", "bytea", "boolean", "integer", "bigint", "real", "double precision",
    "numeric", "numeric(20, 2)", "date", "timestamp", "timestamptz", "timestamptz(3)", "timestamp(0)",
    "interval", "jsonb", "json", "text[]", "real[]", "bytea[]", "bigint[]", "name", "bpchar", "bpchar[]",
)  # fmt: skip


@pytest.fixture(name="tables")
def schema_of_a_test(database: str) -> Tables:
    return Tables(database, f"values-{uuid.uuid4().hex}")


def refusal_of(store: PostgresStore, rows: pa.Table) -> str:
    """Write rows; return why they were refused, empty: they were not."""
    try:
        store.commit(key_of(), rows, b"")
    except UsageError as error:
        return str(error)
    return ""


def plain(value: Any) -> Any:
    """Return a value in a form in which equal things are equal."""
    match value:
        case datetime(tzinfo=None):
            return "local", (value - datetime(1, 1, 1)) // timedelta(microseconds=1)
        case datetime():
            return "moment", (value.astimezone(UTC) - datetime(1, 1, 1, tzinfo=UTC)) // timedelta(
                microseconds=1
            )
        case bool():
            return str(value)
        case int() | float() | Decimal():
            number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
            return "no number" if number.is_nan() else number
        case list():
            return [plain(item) for item in value]
    return value


def is_same(value: Any, stored: Any, column: str) -> bool:
    """Return whether a column has what was written; in texts and JSON it has the form of a text."""
    if isinstance(stored, str) and value is not None and not isinstance(value, str):
        return stored != ""
    if "json" in column:
        return stored is not None
    if isinstance(value, list) and isinstance(stored, list):
        return len(value) == len(stored) and all(
            is_same(item, stored_item, column) for item, stored_item in zip(value, stored, strict=True)
        )
    if isinstance(stored, float) and value is not None:
        # PostgreSQL writes as few digits of a real as tell it from its neighbours
        is_real = column.startswith("real") and math.isfinite(stored)
        exact = np.float32(stored).item() if is_real else stored
        return exact == value or (math.isnan(stored) and math.isnan(value))
    if type(value) is date and isinstance(stored, datetime):
        return stored == datetime(value.year, value.month, value.day)
    return bool(plain(stored) == plain(value))


@pytest.mark.parametrize("is_array", [False, True])
@pytest.mark.parametrize(
    ("column", "value", "kind"),
    [
        ("bpchar", "abc", pa.string()), ("bpchar", "in spaces  ", pa.string()), ("bpchar", "", pa.string()),
        ("varchar", "abc  ", pa.string()), ("text", "abc  ", pa.string()),
        ("numeric", Decimal("1.500"), pa.decimal128(38, 3)),
        ("timestamp", datetime(2026, 1, 1, 0, 0, 0, 123_456), pa.timestamp("us")),
        ("timestamptz", datetime(2026, 1, 1, 0, 0, 0, 123_456, UTC), pa.timestamp("us", "UTC")),
        ("time", time(1, 2, 3, 456_789), pa.time64("us")),
        ("interval", timedelta(days=1, microseconds=1), pa.duration("us")),
    ],
)  # fmt: skip
def test_a_column_without_a_length_or_digits_takes_each_value_as_it_is(
    column: str, value: Any, kind: pa.DataType, is_array: bool, tables: Tables
) -> None:
    """Its modifier is -1; a char without a length, by its name `bpchar`, refused all texts."""
    name = f"{tables.schema}.things"
    tables.run(f"CREATE TABLE {{}} (v {column}{'[]' if is_array else ''})", name)
    store = tables.store("things")
    store.open("g", 1)
    array_of_value = pa.array([[value]], pa.list_(kind)) if is_array else pa.array([value], kind)
    store.commit(key_of(), pa.table({"v": array_of_value}), b"")
    assert tables.run("SELECT v FROM {}", name) == [([value] if is_array else value,)]


@pytest.mark.sample(5)
@pytest.mark.parametrize("column", COLUMNS)
def test_a_value_is_what_was_written_or_is_refused_by_row_and_column(column: str, tables: Tables) -> None:
    """D3226."""
    name = f"{tables.schema}.things"
    tables.run(f"CREATE TABLE {{}} (v {column})", name)
    store = tables.store("things")
    store.open("g", 1)
    for odd, (kind, values) in ODD_VALUES.items():
        for value in values:
            rows = pa.table({"v": pa.array([None, value], kind)})
            refusal = refusal_of(store, rows)
            if refusal:
                named = ("row 1 of the batch", "line 2, column v", "the column v of")
                assert any(place in refusal for place in named), (odd, value, refusal)
                assert tables.run("SELECT * FROM {}", name) == []
                if "the column v of" in refusal:
                    break  # so are all others of its type
                continue
            stored = tables.run("DELETE FROM {} WHERE v IS NOT NULL RETURNING v", name)
            tables.run("DELETE FROM {}", name)
            [as_python] = [value] if kind.num_fields else rows.column("v").to_pylist()[1:]
            assert [is_same(as_python, row[0], column) for row in stored] == [True], (odd, as_python, stored)


def test_what_json_has_no_word_for_is_a_text_in_it(tables: Tables) -> None:
    """D3226: a time, a decimal or bytes in a struct, as `value="json"` of KafkaStore writes them."""
    name = f"{tables.schema}.things"
    tables.run("CREATE TABLE {} (v jsonb)", name)
    store = tables.store("things")
    store.open("g", 1)
    kind, values = ODD_VALUES["struct of others"]
    store.commit(key_of(), pa.table({"v": pa.array(values, kind)}), b"")
    [(stored,)] = tables.run("SELECT v FROM {}", name)
    assert stored == {"t": "2025-12-31T19:00:00-05:00", "d": "0.100000000000000000", "x": "/w=="}


@pytest.mark.parametrize(
    "ddl",
    [
        "CREATE UNLOGGED TABLE {} PARTITION OF {} FOR VALUES FROM (0) TO (9)",
        "CREATE TABLE {} PARTITION OF {} FOR VALUES FROM (0) TO (9) PARTITION BY RANGE (v)",
    ],
    ids=["a part", "a part of a part"],
)
def test_a_table_of_which_a_part_is_emptied_by_a_crash_is_refused(ddl: str, tables: Tables) -> None:
    """D3227: it is the part that has the rows."""
    whole, part = f"{tables.schema}.things", f"{tables.schema}.part"
    tables.run("CREATE TABLE {} (v bigint) PARTITION BY RANGE (v)", whole)
    tables.run(ddl, part, whole)
    if "PARTITION BY" in ddl:
        tables.run("CREATE UNLOGGED TABLE {} PARTITION OF {} DEFAULT", f"{tables.schema}.inner", part)
    with pytest.raises(UsageError, match="is unlogged, or a foreign table"):
        tables.store("things").open("g", 1)


def test_a_store_whose_own_table_a_crash_empties_is_refused(tables: Tables) -> None:
    """D3227: nobody would know what the store has."""
    tables.store().open("g", 1)
    tables.run("ALTER TABLE {} SET UNLOGGED", f"{tables.schema}.windhover_sink")
    with pytest.raises(UsageError, match="is unlogged, or a foreign table"):
        tables.store().open("g", 1)
    with pytest.raises(UsageError, match="is what the store keeps for itself"):
        tables.store("windhover_sink")


def test_a_row_that_a_trigger_leaves_out_ends_the_batch(tables: Tables) -> None:
    """D3227: its record would be acked, and nobody would miss it."""
    function = f"{tables.schema}.leave_out"
    tables.run(
        "CREATE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN IF NEW.word = ''dove'' THEN RETURN NULL; END IF; RETURN NEW; END'",
        function,
    )
    tables.run(
        "CREATE TRIGGER t BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION {}()",
        f"{tables.schema}.words",
        function,
    )
    store = tables.store()
    store.open("g", 1)
    with pytest.raises(UsageError, match=r"took 2 of the 3 rows of the batch: a trigger"):
        store.commit(key_of(), pa.table({"word": ["hawk", "dove", "kite"]}), b"1")
    assert tables.words() == []
    store.commit(key_of(), pa.table({"word": ["hawk", "kite"]}), b"1")
    assert tables.words() == ["hawk", "kite"]


def test_a_name_that_postgresql_cuts_is_refused_by_name(tables: Tables) -> None:
    """D3226: the check of values knew no column of that name, and `numeric` rounded in silence."""
    long_name = "w" * 64
    tables.run("CREATE TABLE {} ({} numeric(5, 2))", f"{tables.schema}.sums", long_name)
    store = tables.store("sums")
    store.open("g", 1)
    with pytest.raises(UsageError, match="has 64 bytes, and PostgreSQL cuts names at 63"):
        store.commit(key_of(), pa.table({long_name: [Decimal("1.239")]}), b"1")
    tables.run("CREATE TABLE {} (word text)", f"{tables.schema}.{long_name}_a")
    with pytest.raises(UsageError, match="has 66 bytes, and PostgreSQL cuts names at 63"):
        tables.store(f"{long_name}_b").open("g", 1)


def test_a_domain_of_a_domain_changes_no_value(tables: Tables) -> None:
    """D3226: only the first of two was seen through, and `numeric` rounded a text in silence."""
    cents, price = f"{tables.schema}.cents", f"{tables.schema}.price"
    tables.run("CREATE DOMAIN {} AS numeric(5, 2)", cents)
    tables.run("CREATE DOMAIN {} AS {} CHECK (VALUE > 0)", price, cents)
    tables.run("CREATE TABLE {} (v {})", f"{tables.schema}.prices", price)
    store = tables.store("prices")
    store.open("g", 1)
    for values in (["1.239"], [Decimal("1.239")]):
        with pytest.raises(UsageError, match="would change"):
            store.commit(key_of(), pa.table({"v": values}), b"1")
    store.commit(key_of(), pa.table({"v": [Decimal("1.23")]}), b"1")
    assert tables.run("SELECT v FROM {}", f"{tables.schema}.prices") == [(Decimal("1.23"),)]


def test_a_store_whose_own_table_is_gone_was_replaced(tables: Tables) -> None:
    """The table of the rows has nothing to do with it."""
    store = tables.store()
    store.open("g", 1)
    tables.run("DROP TABLE {}", f"{tables.schema}.windhover_sink")
    with pytest.raises(StoreFenced, match="was emptied, replaced or restored"):
        store.commit(key_of(), pa.table({"word": ["hawk"]}), b"1")
    assert tables.words() == []
