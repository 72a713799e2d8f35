"""What a bolt emits becomes a value of its field that is equal to it, or is refused; nothing is cut."""

from __future__ import annotations

import re
from collections import OrderedDict, UserDict, deque, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
import pytz  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row, types
from pyspark.sql.types import VariantVal

from acker.errors import TupleError
from spout.tuples import exact
from spout.tuples.exact import exact_values, python_values, zone_of
from spout.tuples.rows import batch_of, misfits
from spout.tuples.tuple import by_names, values_in_order

NEW_YORK = ZoneInfo("America/New_York")
ZONED = pa.timestamp("us", "America/New_York")
NTZ = pa.timestamp("us")
INTS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
PAIR = pa.struct([("a", pa.int32()), ("b", pa.int32())])
WORDS = pa.map_(pa.string(), pa.int32())
VARIANT = pa.struct(
    [("value", pa.binary()), pa.field("metadata", pa.binary(), metadata={b"variant": b"true"})]
)
NOON = datetime(2026, 1, 1, 12, 0, 0, 5)

Swapped = namedtuple("Swapped", ["b", "a"])
Other = namedtuple("Other", ["x", "y"])


class Grade(IntEnum):
    """A number with a name."""

    GOOD = 1


class OwnDuration(timedelta):
    """A duration of somebody's own."""


class NoOffset(tzinfo):
    """A zone that has no offset: a time with it counts as one without a zone."""

    def utcoffset(self, _: datetime | None) -> timedelta | None:
        """Have none."""
        return None


def converted(value: Any, kind: pa.DataType) -> Any:
    """Return what reaches Spark of a value."""
    [found] = pa.array(exact_values([value], kind), kind).to_pylist()
    return found


KEPT: list[tuple[pa.DataType, Any, Any]] = [
    *((kind, value, 1) for kind in INTS for value in (
        1, 1.0, Decimal(1), Decimal("1.00"), np.int8(1), np.uint64(1), np.float32(1), np.array(1),
        Fraction(1), Grade.GOOD, pa.scalar(1), pa.scalar(1.0),
    )),
    (pa.int8(), -128, -128), (pa.int64(), 2**63 - 1, 2**63 - 1), (pa.int64(), 1e18, 10**18),
    (pa.int32(), -0.0, 0),
    (pa.float32(), 0.1, np.float32(0.1)), (pa.float32(), float("inf"), float("inf")),
    (pa.float32(), 2**24, 2.0**24),
    (pa.float64(), 2**53, 2.0**53), (pa.float64(), np.float32(0.5), 0.5),
    (pa.decimal128(10, 2), 7, Decimal("7.00")), (pa.decimal128(10, 2), np.int64(7), Decimal("7.00")),
    (pa.decimal128(10, 2), Decimal("1.5"), Decimal("1.50")),
    (pa.decimal128(10, 2), Decimal("1.500"), Decimal("1.50")),
    *((pa.decimal128(10, 2), Decimal(zero), Decimal("0.00"))
      for zero in ("0E-39", "-0E-77", "0E-99999999", "0E-999999999")),
    (pa.decimal128(38, 38), Decimal("1E-38"), Decimal("1E-38")),
    (pa.string(), b"word", "word"), (pa.binary(), "ä", "ä".encode()),
    (pa.date32(), date(2026, 1, 1), date(2026, 1, 1)), (pa.date32(), datetime(2026, 1, 1), date(2026, 1, 1)),
    (pa.date32(), np.datetime64("2026-01-01"), date(2026, 1, 1)),
    (pa.date32(), pd.Timestamp("2026-01-01"), date(2026, 1, 1)),
    (ZONED, NOON, NOON.replace(tzinfo=NEW_YORK)), (ZONED, NOON.replace(tzinfo=UTC), NOON.replace(tzinfo=UTC)),
    (ZONED, NOON.replace(tzinfo=NoOffset()), NOON.replace(tzinfo=NEW_YORK)),
    (ZONED, pd.Timestamp(NOON), NOON.replace(tzinfo=NEW_YORK)),
    (ZONED, pd.Timestamp(NOON, tz="UTC"), NOON.replace(tzinfo=UTC)),
    (ZONED, np.datetime64(NOON), NOON.replace(tzinfo=NEW_YORK)),
    (ZONED, np.datetime64("2026-01-01T12", "h"), datetime(2026, 1, 1, 12, tzinfo=NEW_YORK)),
    (ZONED, pa.scalar(NOON), NOON.replace(tzinfo=NEW_YORK)),
    (NTZ, NOON, NOON), (NTZ, pd.Timestamp(NOON), NOON), (NTZ, np.datetime64(NOON), NOON),
    (pa.time64("ns"), time(12, 0, 0, 5), time(12, 0, 0, 5)),
    (pa.duration("us"), timedelta(days=1, microseconds=1), timedelta(days=1, microseconds=1)),
    (pa.duration("us"), pd.Timedelta(1, "us"), timedelta(microseconds=1)),
    (pa.duration("us"), np.timedelta64(1_000, "ns"), timedelta(microseconds=1)),
    (pa.duration("us"), np.timedelta64(3, "D"), timedelta(days=3)),
    *((pa.list_(pa.int32()), value, [1, 2]) for value in (
        [1, 2], (1, 2), [1.0, 2], np.array([1, 2]), np.array([1.0, 2.0]), deque([1, 2]), range(1, 3),
        pd.Series([1, 2]), pa.array([1, 2]),
    )),
    (pa.list_(pa.int32()), np.ma.array([1, 2], mask=[False, True]), [1, None]),
    (pa.list_(NTZ), np.array([NOON], "datetime64[us]"), [NOON]),
    (pa.list_(NTZ), np.array(["2026"], "M8[s]"), [datetime(2026, 1, 1)]),
    (pa.list_(pa.duration("us")), np.array([5], "m8[s]"), [timedelta(seconds=5)]),
    (pa.list_(pa.list_(pa.int32())), np.array([[1], [2]]), [[1], [2]]),
    *((PAIR, value, {"a": 1, "b": 2}) for value in (
        {"a": 1, "b": 2}, {"b": 2, "a": 1.0}, OrderedDict(b=2, a=1), UserDict(a=1, b=2), (1, 2),
        Row(a=1, b=2), Row(b=2, a=1), Row(1, 2), Swapped(b=2, a=1), Other(1, 2), [("b", 2), ("a", 1)],
    )),
    (PAIR, {"a": 1}, {"a": 1, "b": None}),
    *((WORDS, value, [("a", 1)]) for value in (
        {"a": 1}, {"a": 1.0}, UserDict(a=1), [("a", 1)], {b"a": 1}, [{"key": "a", "value": 1}],
    )),
    (pa.map_(pa.int32(), pa.list_(ZONED)), {1.0: [NOON]}, [(1, [NOON.replace(tzinfo=NEW_YORK)])]),
    (VARIANT, VariantVal(b"\x0c\x01", b"\x01\x00\x00"), {"value": b"\x0c\x01", "metadata": b"\x01\x00\x00"}),
]  # fmt: skip
"""Field, emitted value, and what it becomes."""


@pytest.mark.parametrize(("kind", "value", "expected"), KEPT)
def test_a_value_that_loses_nothing_is_converted(kind: pa.DataType, value: Any, expected: Any) -> None:
    """O801: alone, and in a column with others; a null stays one."""
    assert converted(value, kind) == expected
    column = pa.array(exact_values([value, None, value], kind), kind).to_pylist()
    assert column == [expected, None, expected]
    nested = converted({"in": [value, None]}, pa.struct([("in", pa.list_(kind))]))
    assert nested == {"in": [expected, None]}


@pytest.mark.parametrize(
    "kind", [*INTS, pa.date32(), ZONED, NTZ, pa.duration("us"), pa.time64("ns"), PAIR, WORDS]
)
@pytest.mark.parametrize("missing", [None, pd.NaT, pd.NA])
def test_what_is_missing_is_null(kind: pa.DataType, missing: Any) -> None:
    """O801: NaT became the first day of the year 1 in a date."""
    assert converted(missing, kind) is None


LOST: list[tuple[pa.DataType, Any]] = [
    *((kind, value) for kind in INTS for value in (
        1.5, -0.9, 0.1, float("nan"), float("inf"), Decimal("1.5"), Decimal("0.1"), Decimal("NaN"),
        np.float32(1.5), np.float64(-0.9), Fraction(3, 2), np.array(1.5), True, np.True_, 1 + 0j,
        pa.scalar(1.5), 2**63, -(2**63) - 1,
        np.timedelta64(5, "ns"), np.array([1]), "1",
    )),
    (pa.int8(), 300), (pa.int8(), 128.0), (pa.int16(), 2**15), (pa.int32(), np.int64(2**31)),
    (pa.float32(), 1e300), (pa.float32(), -1e39), (pa.float32(), 2**24 + 1),
    (pa.float32(), np.float64(1e300)),
    (pa.float32(), 1e-50), (pa.float32(), np.float64(-1e-300)),
    (pa.float64(), 2**53 + 1), (pa.float64(), np.int64(2**53 + 1)),
    *((kind, value) for kind in (pa.float32(), pa.float64()) for value in (
        True, np.False_, pa.scalar(True), np.longdouble("1e4000"), -np.longdouble("1e-4000"),
    )),
    (pa.decimal128(10, 2), Decimal("1.005")), (pa.decimal128(10, 2), Decimal("123456789")),
    *((kind, Decimal(number)) for kind in (pa.decimal128(10, 2), pa.decimal128(38, 38), pa.decimal256(76, 2))
      for number in ("1E-39", "-1E-77", "1E-153", "1E-1000", "1E-99999999", "-1E-999999999")),
    (pa.decimal128(10, 2), 1.5),
    (pa.decimal128(10, 2), Decimal("NaN")), (pa.decimal128(10, 2), True),
    (pa.string(), "\ud800"), (pa.string(), b"\xff"),
    (pa.date32(), NOON), (pa.date32(), datetime(2026, 1, 1, tzinfo=UTC)), (pa.date32(), pd.Timestamp(NOON)),
    (pa.date32(), np.datetime64("2026-01-01T12")), (pa.date32(), np.timedelta64(1_500, "ns")),
    (pa.date32(), 1),
    *((kind, value) for kind in (ZONED, NTZ) for value in (
        1, 1.5, Decimal(1), True, date(2026, 1, 1), "2026-01-01", np.timedelta64(1, "s"),
        np.datetime64("2026-01-01T12:00:00.123456789"), pd.Timestamp("2026-01-01 12:00:00.123456789"),
        np.datetime64("20000-01-01"),
    )),
    (NTZ, NOON.replace(tzinfo=UTC)), (NTZ, pd.Timestamp(NOON, tz="UTC")),
    (pa.time64("ns"), time(12, tzinfo=UTC)), (pa.time64("ns"), 1), (pa.time64("ns"), NOON),
    (pa.time64("ns"), np.timedelta64(1_500, "ns")),
    (pa.time64("ns"), np.datetime64("2026-01-01T12:00:00.123456789")),
    (pa.duration("us"), pd.Timedelta(1_500, "ns")), (pa.duration("us"), np.timedelta64(1_500, "ns")),
    (pa.duration("us"), np.timedelta64(1, "M")), (pa.duration("us"), 1), (pa.duration("us"), 1.5),
    (pa.duration("us"), timedelta.max),
    *((pa.list_(pa.int32()), value) for value in (
        [1.5], np.array([1.5]), pd.Series([1.5]), np.array([True]), "ab", {1: 2}, 1, b"ab",
    )),
    *((pa.list_(kind), value) for kind in (pa.string(), pa.binary()) for value in ("ab", b"ab", {"a": 1})),
    (pa.list_(pa.float64()), [True]), (pa.list_(pa.bool_()), b"ab"),
    (pa.list_(pa.duration("us")), np.array([1_500], "m8[ns]")),
    (pa.list_(pa.int8()), np.array([300])),
    *((PAIR, value) for value in (
        {"a": 1, "b": 2, "c": 3}, {"A": 1, "b": 2}, {"a": 1.5, "b": 2}, (1,), (1, 2, 3), (1, 2.5), [1, 2],
        "ab", [("a", 1), ("a", 2)], {1, 2},
    )),
    *((WORDS, value) for value in (
        {"a": 1.5}, {None: 1}, [("a", 1), ("a", 2)], {"a": 1, b"a": 2}, [("a",)], [None], "ab", 1,
    )),
    (pa.map_(pa.int32(), pa.int32()), {1.5: 1}),
    (pa.map_(pa.float32(), pa.int32()), {0.1: 1, 0.10000000001: 2}),
    (pa.map_(ZONED, pa.int32()), {datetime(2026, 1, 1): 1, datetime(2026, 1, 1, 5, tzinfo=UTC): 2}),
    (pa.null(), 1),
]  # fmt: skip
"""Field, and a value of which something would be lost."""


@pytest.mark.parametrize("text", ["0000-12-31T23:59:59", "-0044-03-15", "10000-01-01", "20000-01-01"])
def test_a_time_in_no_year_of_python_is_refused_with_the_years_that_it_has(text: str) -> None:
    schema = pa.schema([("value", NTZ)])
    rows = [(np.datetime64("0001-01-01"),), (np.datetime64(text),), (np.datetime64("9999-12-31T23:59:59"),)]
    [misfit] = misfits(rows, schema, "it")
    assert misfit.row == 1
    assert "is no time of whole microseconds in the years 1 to 9999" in str(misfit.error)


@pytest.mark.parametrize(("kind", "value"), LOST)
def test_a_value_that_would_lose_something_fails_alone(kind: pa.DataType, value: Any) -> None:
    """O802: 1.5 became 1, a time a date, 300 ns no time at all, a second of two one key of a map."""
    if pa.types.is_time(kind) and not hasattr(types, "TimeType"):
        pytest.skip("Spark 4.0 has no time of day")
    schema = pa.schema([("number", pa.int32()), ("value", kind)])
    rows = [(0, None), (1, value), (2, None)]
    [misfit] = misfits(rows, schema, "it")
    assert misfit.row == 1
    assert str(misfit.error).startswith("bolt 'it' emitted ")
    assert " as 'value', which is " in str(misfit.error)
    assert batch_of([rows[0], rows[2]], schema, "it").num_rows == 2


@pytest.mark.parametrize(
    ("kind", "value"), [(kind, value) for kind, value in LOST if not pa.types.is_null(kind)]
)
def test_it_fails_within_a_list_a_struct_and_a_map_too(kind: pa.DataType, value: Any) -> None:
    """O802."""
    for outer, nested in (
        (pa.list_(kind), [None, value]),
        (pa.struct([("in", kind)]), {"in": value}),
        (pa.map_(pa.string(), kind), {"in": value}),
    ):
        with pytest.raises((pa.ArrowException, ValueError, OverflowError, TypeError)):
            converted(nested, outer)


FOLD = datetime(2026, 11, 1, 1, 30)
GAP = datetime(2026, 3, 8, 2, 30)


@pytest.mark.parametrize(
    ("local", "meant"),
    [
        (FOLD, datetime(2026, 11, 1, 5, 30, tzinfo=UTC)),
        (FOLD.replace(fold=1), datetime(2026, 11, 1, 6, 30, tzinfo=UTC)),
        (GAP, datetime(2026, 3, 8, 7, 30, tzinfo=UTC)),
        (datetime(1, 1, 1), datetime(1, 1, 1, 4, 56, 2, tzinfo=UTC)),
        (datetime(1883, 1, 1), datetime(1883, 1, 1, 4, 56, 2, tzinfo=UTC)),
        (datetime(1969, 12, 31, 23, 59, 59, 9), datetime(1970, 1, 1, 4, 59, 59, 9, tzinfo=UTC)),
        (datetime(9999, 12, 31), datetime(9999, 12, 31, 5, tzinfo=UTC)),
    ],
)
def test_a_time_without_a_zone_is_local_time(local: datetime, meant: datetime) -> None:
    """O901: it was taken as UTC; within lists, structs and maps too."""
    assert converted(local, ZONED).astimezone(UTC) == meant
    [nested] = converted([{"at": local}], pa.list_(pa.struct([("at", ZONED)])))
    assert nested["at"].astimezone(UTC) == meant
    [pair] = converted({local: local}, pa.map_(ZONED, ZONED))
    assert [at.astimezone(UTC) for at in pair] == [meant, meant]


TIMES = st.datetimes(
    timezones=st.sampled_from(
        [UTC, NEW_YORK, timezone(timedelta(hours=5, minutes=45)), ZoneInfo("Europe/Amsterdam")]
    )
)


@settings(max_examples=200, deadline=None)
@given(st.lists(TIMES | st.none()), st.sampled_from(["UTC", "America/New_York", "Asia/Kathmandu", "+05:45"]))
def test_a_time_with_a_zone_stays_the_same_instant(times: list[datetime | None], zone: str) -> None:
    """O902: whatever its zone, and that of the session."""
    kind = pa.timestamp("us", zone)
    micros = pa.array(exact_values(times, kind), kind).cast(pa.int64()).to_pylist()
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert micros == [None if at is None else (at - epoch) // timedelta(microseconds=1) for at in times]


@given(st.lists(st.integers(-(2**31), 2**31 - 1) | st.none()))
def test_values_that_are_exact_are_not_copied(values: list[int | None]) -> None:
    assert exact_values(values, pa.int32()) is values


ALREADY_EXACT: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int32(), [1, None]), (pa.int32(), [1, 2]), (pa.int32(), [None]), (pa.int32(), []),
    (pa.decimal128(10, 2), [1, Decimal("1.5"), None]), (pa.decimal128(10, 2), [Decimal(1)]),
    (pa.float32(), [1.0, 2, None]), (pa.float32(), [1.0]),
    (pa.date32(), [date(2026, 1, 1), None]), (pa.time64("ns"), [None, None]),
    (pa.duration("us"), [timedelta(1), None]),
    (NTZ, [NOON, None]), (NTZ, [NOON]),
    (ZONED, [NOON.replace(tzinfo=UTC), NOON.replace(tzinfo=NEW_YORK), None]), (ZONED, [None]),
    (pa.list_(pa.int32()), [[1, None], (2,), None, []]), (pa.list_(pa.int32()), [[1]]),
    (pa.list_(pa.float32()), [[1.0, 2, None], None]),
    (pa.list_(NTZ), [[NOON, None], (NOON,), None]),
    (pa.list_(pa.list_(pa.int32())), [[[1, None], None], None]),
    (PAIR, [{"a": 1, "b": 2}, None]), (PAIR, [{"a": 1, "b": None}, {"b": 2, "a": None}]), (PAIR, [{"a": 1}]),
    (WORDS, [{"a": 1, "b": None}, None, {}]), (WORDS, [{"a": 1}]),
    (pa.map_(pa.int32(), pa.list_(pa.int32())), [{1: [1, None], 2: None}, None]),
    (pa.string(), ["a", 1, None]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "values"), ALREADY_EXACT)
def test_what_pyarrow_converts_exactly_stays_the_same_object(kind: pa.DataType, values: list[Any]) -> None:
    """Of all classes that are exact, with nulls and without; a copy would cost as much as the conversion."""
    assert exact_values(values, kind) is values


REFUSED: list[tuple[pa.DataType, Any, type[Exception], str]] = [
    (PAIR, VariantVal(b"\x0c\x01", b"\x01\x00\x00"), pa.ArrowTypeError, "a VariantVal is no struct: emit"),
    (VARIANT, Grade.GOOD, pa.ArrowTypeError, "a Grade is no struct"),
    (PAIR, (1,), pa.ArrowInvalid, "1 values for the 2 fields of the struct: a, b"),
    (PAIR, (1, 2, 3), pa.ArrowInvalid, "3 values for the 2 fields"),
    (PAIR, [1, 2], pa.ArrowTypeError, "a list is no struct: emit a dictionary, or a tuple"),
    (PAIR, [("a", 1), 5], pa.ArrowTypeError, "a list is no struct"),
    (PAIR, [("a", 1), ("b", 2, 3)], pa.ArrowTypeError, "a list is no struct"),
    (PAIR, [["a", 1], ["b", 2]], pa.ArrowTypeError, "a list is no struct"),
    (PAIR, [("a", 1), ("a", 2)], pa.ArrowTypeError, "a list is no struct"),
    (PAIR, {1, 2}, pa.ArrowTypeError, "a set is no struct"),
    (PAIR, {"a": 1, "c": 2}, pa.ArrowInvalid, "the struct has no field 'c'; it has a, b"),
    (PAIR, {"a": 1, "b": 2, "c": 3}, pa.ArrowInvalid, "the struct has no field 'c'; it has a, b"),
    (WORDS, "ab", pa.ArrowTypeError, "a str is no map: emit a dictionary"),
    (WORDS, b"ab", pa.ArrowTypeError, "a bytes is no map: emit a dictionary"),
    (WORDS, 1, pa.ArrowTypeError, "a int is no map: emit a dictionary"),
    (WORDS, [("a", 1, 2)], pa.ArrowInvalid, "for a pair of key and value"),
    (WORDS, [["a", 1]], pa.ArrowInvalid, "for a pair of key and value"),
    (WORDS, [{"key": "a"}], pa.ArrowInvalid, "for a pair of key and value"),
    (WORDS, [("a", 1), ("b", 2), ("a", 3)], pa.ArrowInvalid, "the map has the key 'a' twice"),
    (pa.list_(pa.int32()), (n for n in [1]), pa.ArrowTypeError, "a generator is no list: emit a list"),
    (pa.list_(pa.int32()), {1: 2}, pa.ArrowTypeError, "a dict is no list: emit a list"),
    (pa.list_(pa.int32()), "ab", pa.ArrowTypeError, "a str is no list: emit a list"),
    (pa.list_(pa.int32()), 1, pa.ArrowTypeError, "a int is no list: emit a list"),
    (pa.int32(), np.array([1]), pa.ArrowTypeError, "is an array, no number: emit value.item"),
    (pa.int32(), np.array([[1]]), pa.ArrowTypeError, "is an array, no number: emit value.item"),
    (pa.int32(), np.array([], int), pa.ArrowTypeError, "is an array, no number: emit value.item"),
    (pa.int32(), 1.5, pa.ArrowInvalid, "1.5 is no whole number"),
    (pa.duration("us"), pd.Timedelta(1_500, "ns"), pa.ArrowInvalid, "has nanoseconds, and an interval has"),
    (pa.duration("us"), np.timedelta64(1, "M"), pa.ArrowInvalid, "is no duration of whole microseconds"),
    (pa.duration("us"), np.timedelta64(10**15, "D"), pa.ArrowInvalid, "is no duration of whole microseconds"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "error", "says"), REFUSED)
def test_what_is_refused_is_told_by_its_kind_and_its_cure(
    kind: pa.DataType, value: Any, error: type[Exception], says: str
) -> None:
    """The class tells whether another value of the same kind would fit."""
    with pytest.raises(error, match=re.escape(says)) as raised:
        exact_values([None, value], kind)
    assert type(raised.value) is error


MORE_KEPT: list[tuple[pa.DataType, Any, Any]] = [
    (WORDS, [("a", 1), ("b", 2)], [("a", 1), ("b", 2)]),
    (pa.duration("us"), OwnDuration(days=1), timedelta(days=1)),
    (WORDS, [{"key": "a", "value": 1}, ("b", 2)], [("a", 1), ("b", 2)]),
    (pa.map_(pa.float64(), pa.int32()), {0.5: 1, 1: 2}, [(0.5, 1), (1.0, 2)]),
    (VARIANT, {"value": b"\x0c", "metadata": b"\x01"}, {"value": b"\x0c", "metadata": b"\x01"}),
    (VARIANT, (b"\x0c", b"\x01"), {"value": b"\x0c", "metadata": b"\x01"}),
    (pa.struct([("a", pa.int32())]), {"a": 1.0}, {"a": 1}),
    (pa.struct([("a", pa.int32())]), (1.0,), {"a": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "expected"), MORE_KEPT)
def test_forms_of_structs_and_maps_are_equal(kind: pa.DataType, value: Any, expected: Any) -> None:
    column = pa.array(exact_values([None, value, value], kind), kind).to_pylist()
    assert column == [None, expected, expected]


VARIANT_FIELDS = [pa.field("value", pa.binary()), pa.field("metadata", pa.binary())]
MARKED = pa.struct(
    [VARIANT_FIELDS[0], VARIANT_FIELDS[1].with_metadata({b"variant": b"true", b"of": b"test"})]
)
UNMARKED = pa.struct([VARIANT_FIELDS[0], VARIANT_FIELDS[1].with_metadata({b"of": b"test"})])


@pytest.mark.parametrize("nested", range(4))
@pytest.mark.parametrize("types", [[MARKED, UNMARKED], [UNMARKED, MARKED], [UNMARKED, UNMARKED, MARKED]])
def test_only_a_struct_that_spark_marks_is_a_variant(types: list[pa.DataType], nested: int) -> None:
    """O801: whichever of them was used first in the process: to Arrow their types are equal."""
    exact._converters_of_equal_types.cache_clear()
    variant = VariantVal(b"\x0c", b"\x01")
    for kind in types:
        value, outer = (
            (variant, kind),
            ([variant], pa.list_(kind)),
            ({"in": variant}, pa.struct([("in", kind)])),
            ({"in": [variant]}, pa.map_(pa.string(), pa.list_(kind))),
        )[nested]
        if kind is MARKED:
            [found] = pa.array(exact_values([value], outer), outer).to_pylist()
            assert "'value': b'\\x0c', 'metadata': b'\\x01'" in repr(found)
        else:
            with pytest.raises(pa.ArrowTypeError, match="a VariantVal is no struct"):
                exact_values([value], outer)


def test_durations_are_those_of_python() -> None:
    """A text is left to PyArrow, which refuses it."""
    values = [pd.Timedelta(1, "us"), np.timedelta64(1, "us"), timedelta(microseconds=1), pd.NaT, "1 us"]
    found = exact_values(values, pa.duration("us"))
    assert found == [*[timedelta(microseconds=1)] * 3, None, "1 us"]
    assert [type(value) for value in found[:3]] == [timedelta] * 3


def test_a_zone_that_is_not_known_is_refused() -> None:
    with pytest.raises(pa.ArrowInvalid, match="time zone 'Nowhere/Here' is not known"):
        zone_of("Nowhere/Here")


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (Row(b=2, a=1), (1, 2)), (Swapped(b=2, a=1), (1, 2)), (Row(a=1, b=2), (1, 2)), (Row(1, 2), (1, 2)),
        (Other(1, 2), (1, 2)), ((1, 2), (1, 2)), (Row(a=1, c=2), (1, 2)),
    ],
)  # fmt: skip
def test_a_row_that_names_its_values_is_taken_by_its_names(row: Any, expected: tuple[int, int]) -> None:
    """O803: a was b, and b was a."""
    assert by_names(row, ["a", "b"]) == expected


def test_a_bolt_may_emit_rows_by_their_names() -> None:
    """O803."""
    assert values_in_order(Row(b=2, a=1), ["a", "b"], "it") == (1, 2)
    with pytest.raises(TupleError):
        values_in_order({1, 2}, ["a", "b"], "it")


@pytest.mark.parametrize(
    ("name", "summer", "winter"),
    [
        ("America/New_York", "-04:00", "-05:00"), ("Europe/Vienna", "+02:00", "+01:00"),
        ("UTC", "+00:00", "+00:00"), ("+05:30", "+05:30", "+05:30"),
    ],
)  # fmt: skip
def test_a_zone_is_no_local_mean_time_where_arrow_prefers_pytz(
    name: str, summer: str, winter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D2203: PyArrow before 25 does so, where pandas has brought pytz along; noon was 11:56 in New York."""
    offsets = {"+05:30": pytz.FixedOffset(330)}
    monkeypatch.setattr(pa.lib, "string_to_tzinfo", lambda text: offsets.get(text) or pytz.timezone(text))
    zone = zone_of.__wrapped__(name)
    assert datetime(2026, 7, 1, 12, tzinfo=zone).isoformat() == f"2026-07-01T12:00:00{summer}"
    assert datetime(2026, 1, 1, 12, tzinfo=zone).isoformat() == f"2026-01-01T12:00:00{winter}"


NEW_YORK = pa.timestamp("us", "America/New_York")
ENDS = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)]


@pytest.mark.parametrize(("kind", "keys"), [(NEW_YORK, ENDS), (pa.timestamp("us", "Asia/Tokyo"), ENDS)])
def test_a_key_may_be_a_time_that_its_zone_has_no_day_for(kind: pa.DataType, keys: list[Any]) -> None:
    """O801: it is read in UTC, and so it can be emitted: the map failed its record."""
    map_type = pa.map_(kind, pa.int32())
    [pairs] = exact_values([dict.fromkeys(keys, 1)], map_type)
    micros = pa.array([pairs], map_type).keys.cast(pa.int64())
    assert micros.to_pylist() == [-62_135_596_800_000_000, 253_402_300_799_999_999]


@pytest.mark.parametrize(
    "keys", [[float("nan"), -float("nan")], [0.0, -0.0], [1, 1.0], [np.float32("nan"), float("nan")]]
)
def test_keys_that_spark_takes_for_one_are_refused(keys: list[Any]) -> None:
    """O809: a dictionary may have several that are no number, since none is equal to another."""
    with pytest.raises(pa.ArrowInvalid, match=r"the map has the key .* twice"):
        exact_values([[(key, 1) for key in keys]], pa.map_(pa.float64(), pa.int32()))


FAR = pa.array([253_402_300_800_000_000, 0, None], pa.int64()).cast(pa.timestamp("us"))
"""Of the year 10000, which Python has not; of 1970; and none."""

SECOND = pa.array([False, True, False])
ARROWS_VALUES: list[pa.Array] = [
    FAR,
    pa.array([[1], None, [], [None]]),
    pa.ListArray.from_arrays([0, 1, 1, 3], FAR, mask=SECOND),
    pa.StructArray.from_arrays([FAR, pa.array(["a", "b", None])], ["at", "n"], mask=SECOND),
    pa.MapArray.from_arrays([0, 1, 1, 3], pa.array(["k", "l", "m"]), FAR, mask=SECOND),
    pa.MapArray.from_arrays([0, 1, 1, 2], FAR.slice(0, 2), pa.array([1, None])),
]  # fmt: skip


@pytest.mark.parametrize("column", ARROWS_VALUES, ids=lambda column: str(column.type))
def test_a_value_of_arrow_is_itself_and_its_null_is_one(column: pa.Array) -> None:
    """O801: a null map became an empty one, and all others were refused; far times within failed."""
    values = list(column)
    assert pa.array(exact_values(values, column.type), column.type).equals(column)
    beside = exact_values([*values, None], column.type)
    assert pa.array(beside, column.type).slice(0, len(column)).equals(column)


@pytest.mark.parametrize("column", ARROWS_VALUES, ids=lambda column: str(column.type))
def test_only_a_value_that_python_has_no_form_of_stays_one_of_arrow(column: pa.Array) -> None:
    """O807: beside it all were, so that maps failed that were sound."""
    for row, value in enumerate(python_values(column)):
        try:
            assert value == column[row].as_py()
            assert not isinstance(value, pa.Scalar)
        except OverflowError:
            assert value is not None
            assert value.equals(column[row])
