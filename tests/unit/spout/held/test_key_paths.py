"""The way from a name that Spark takes for a column of the key to the value in a tuple."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

import spout
from spout.held.key_paths import FieldPath, field_path, type_at, value_at
from spout.held.keyed_exit import EMITTED, REPORT
from spout.held.keyed_rows import ANCHOR, TUPLE, KeyedTask, KeyForm
from spout.held.keyed_values import TupleDecoder
from tests.support.bolts.keyed_bolts import ShowsKey
from tests.support.fake_state import FakeState


def struct_of(**types: DataType) -> StructType:
    """Return a struct with these fields."""
    struct = StructType()
    for name, field_type in types.items():
        struct.add(name, field_type)
    return struct


INNER = struct_of(time=TimestampType(), Local=TimestampNTZType())
TUPLES = StructType()
for _name, _type in {
    "event": INNER,
    "at": TimestampType(),
    "a.b": struct_of(**{"c`d": LongType()}),
    "Twice": LongType(),
    "TWICE": LongType(),
    "times": MapType(StringType(), TimestampType()),
    "events": ArrayType(INNER),
}.items():
    TUPLES.add(_name, _type)

PATHS: dict[str, FieldPath | None] = {
    "at": ("at",),
    "AT": ("at",),
    "`at`": ("at",),
    "event": ("event",),
    "event.time": ("event", "time"),
    "Event.TIME": ("event", "time"),
    "`event`.`time`": ("event", "time"),
    "event.local": ("event", "Local"),
    "`a.b`": ("a.b",),
    "`A.B`.`c``d`": ("a.b", "c`d"),
    "Twice": ("Twice",),
    "TWICE": ("TWICE",),
    "twice": None,
    "times.noon": None,
    "events.time": None,
    "at.year": None,
    "event.day": None,
    "`event.time`": None,
}


@pytest.mark.parametrize(("name", "path"), PATHS.items(), ids=list(PATHS))
def test_a_name_leads_to_the_field_that_spark_takes_it_for(name: str, path: FieldPath | None) -> None:
    assert field_path(TUPLES, name) == path


def test_a_path_leads_to_its_type() -> None:
    assert type_at(TUPLES, ("event", "time")) == TimestampType()
    assert type_at(TUPLES, ()) == TUPLES


def test_a_path_leads_to_its_value_through_dictionaries_and_rows() -> None:
    path = ("event", "time")
    assert value_at({"event": {"time": 7}}, path) == 7
    assert value_at({"event": Row(time=7)}, path) == 7
    assert value_at({"event": None}, path, default=1) is None
    assert value_at({"event": {"time": None}}, path, default=1) is None
    for of_older_state in ({}, {"event": {}}, {"event": Row(day=7)}):
        assert value_at(of_older_state, path, default=1) == 1


NAMES = st.text(st.characters(exclude_categories=("Cs",)), min_size=1)


@given(st.lists(NAMES, min_size=1, max_size=4))
def test_any_names_in_backticks_lead_to_the_struct_within_the_struct(names: list[str]) -> None:
    inner: DataType = LongType()
    for name in reversed(names):
        inner = StructType().add(name, inner)
    assert isinstance(inner, StructType)
    quoted = ".".join(f"`{name.replace('`', '``')}`" for name in names)
    path = field_path(inner, quoted)
    assert path == tuple(names)
    assert type_at(inner, path) == LongType()


FAR_US = 2**61
NOON_US = 1_767_268_800_000_000


@pytest.mark.parametrize("name", ["at", "AT", "event.time", "Event.TIME", "`event`.time"])
@pytest.mark.parametrize("far_us", [FAR_US, -FAR_US, 32_503_680_000_000_000])
def test_a_tuple_whose_key_pandas_cannot_have_fails_alone_by_whatever_name(name: str, far_us: int) -> None:
    """Else the bolt was called with the substitute, 1970, for all such tuples together."""
    path = field_path(TUPLES, name)
    assert path is not None
    types = struct_of(event=INNER, at=TimestampType())
    key: Any = (pd.Timestamp("1970-01-01"),)
    task = KeyedTask(
        "shows", ShowsKey(), pa.schema([("shown", pa.string()), ("ids", pa.string())]), tracked=True,
        key_paths={TUPLE: [path]}, decoders={TUPLE: TupleDecoder(types)},
        key_forms=(KeyForm(has_times=True),),
    )  # fmt: skip
    values = [{"event": {"time": us, "Local": None}, "at": us} for us in (far_us, NOON_US)]
    anchors = [{"source": 1, "position": number, "edge": 7} for number in range(2)]
    frame = pd.DataFrame({TUPLE: values[:1], ANCHOR: anchors[:1]})
    rows = [row for part in task(key, [frame], FakeState()) for row in part.to_dict("records")]  # type: ignore[arg-type]
    assert [row[EMITTED] for row in rows if row[EMITTED] is not None] == []
    assert any("OverflowError" in str(row[REPORT]) and row[ANCHOR] for row in rows)


def test_a_float_in_a_struct_is_null_or_nan_as_its_tuple_has_it() -> None:
    keys: list[Any] = []

    class Keeps(spout.KeyedBolt):
        output = "n bigint"

        def execute(self, key: Any, held: Any, collector: spout.KeyedCollector) -> None:
            keys.append(key)
            collector.ack(*held)

    types = struct_of(reading=struct_of(ratio=DoubleType()))
    for ratio in (None, float("nan")):
        task = KeyedTask(
            "keeps", Keeps(), pa.schema([("n", pa.int64())]), tracked=True,
            key_paths={TUPLE: [("reading", "ratio")]}, decoders={TUPLE: TupleDecoder(types)},
            key_forms=(KeyForm(is_float=True, loses_nulls=True),),
        )  # fmt: skip
        anchor = {"source": 1, "position": 0, "edge": 7}
        frame = pd.DataFrame({TUPLE: [{"reading": {"ratio": ratio}}], ANCHOR: [anchor]})
        list(task((float("nan"),), [frame], FakeState()))  # type: ignore[arg-type]
    [[of_null], [of_nan]] = keys
    assert of_null is None
    assert of_nan != of_nan
