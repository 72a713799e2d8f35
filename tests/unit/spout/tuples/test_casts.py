"""Columns of an ArrowBolt become columns of its output without a loss, or are refused."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spout.tuples.casts import exact_cast
from spout.tuples.exact import exact_values

NEW_YORK = ZoneInfo("America/New_York")
ZONED = pa.timestamp("us", "America/New_York")
NTZ = pa.timestamp("us")
PAIR = pa.struct([("a", pa.int32()), ("b", pa.int32())])
NOON = datetime(2026, 1, 1, 12, 0, 0, 5)
INTS = pa.list_(pa.int32())


def nanoseconds(count: int, kind: pa.DataType) -> pa.Array:
    return pa.array([count], pa.int64()).cast(kind)


KEPT: list[tuple[pa.Array, pa.DataType, Any]] = [
    (pa.array([1.0]), pa.int32(), 1), (pa.array([7]), pa.int8(), 7), (pa.array([True]), pa.int32(), 1),
    (pa.array([2**53]), pa.float64(), 2.0**53),
    (pa.array([0.1]), pa.float32(), pa.scalar(0.1, pa.float32()).as_py()),
    (pa.array([float("inf")]), pa.float32(), float("inf")), (pa.array(["inf"]), pa.float64(), float("inf")),
    (pa.array([7]), pa.decimal128(10, 2), Decimal("7.00")),
    (pa.array([7]), pa.decimal128(38, 30), Decimal(7)),
    (pa.array([0.1]), pa.decimal128(38, 18), Decimal("0.1")),
    (pa.array([1.5]), pa.decimal128(10, 2), Decimal("1.5")),
    (pa.array([Decimal("1.50")]), pa.decimal128(10, 1), Decimal("1.5")),
    (pa.array([Decimal("1.0")]), pa.int32(), 1), (pa.array([Decimal("0.1")]), pa.float64(), 0.1),
    (pa.array([1]), pa.bool_(), True), (pa.array(["1"]), pa.int32(), 1),
    (pa.array([1]), pa.string(), "1"), (pa.array(["2026-01-01"]), pa.date32(), date(2026, 1, 1)),
    (pa.array([b"word"]), pa.string(), "word"),
    (pa.array(["word"], pa.large_string()), pa.string(), "word"),
    (pa.array(["word"]).dictionary_encode(), pa.string(), "word"),
    (pa.RunEndEncodedArray.from_arrays([1], ["word"]), pa.string(), "word"),
    (pa.array([None]), pa.int32(), None),
    (nanoseconds(1_000, pa.timestamp("ns")), NTZ, datetime(1970, 1, 1, 0, 0, 0, 1)),
    (nanoseconds(1, pa.timestamp("s")), NTZ, datetime(1970, 1, 1, 0, 0, 1)),
    (pa.array([NOON]), ZONED, NOON.replace(tzinfo=NEW_YORK)),
    (pa.array([NOON]), pa.timestamp("us", "+05:00"), datetime(2026, 1, 1, 7, 0, 0, 5, tzinfo=UTC)),
    (pa.array([datetime(2050, 7, 1)]), ZONED, datetime(2050, 7, 1, 4, tzinfo=UTC)),
    (pa.array([NOON], pa.timestamp("us", "UTC")), ZONED, NOON.replace(tzinfo=UTC)),
    (pa.array([datetime(2026, 3, 8, 2, 30)]), ZONED, datetime(2026, 3, 8, 7, 30, tzinfo=UTC)),
    (pa.array([datetime(2026, 1, 1)]), pa.date32(), date(2026, 1, 1)),
    (pa.array([date(2026, 1, 1)], pa.date64()), pa.date32(), date(2026, 1, 1)),
    (pa.array([time(12, 0, 0, 5)], pa.time64("us")), pa.time64("ns"), time(12, 0, 0, 5)),
    (nanoseconds(1_000, pa.duration("ns")), pa.duration("us"), timedelta(microseconds=1)),
    (pa.array([[1.0, None]]), INTS, [1, None]), (pa.array([[1, 2]], pa.list_(pa.int64(), 2)), INTS, [1, 2]),
    (pa.array([[1, 2]], pa.large_list(pa.int64())), INTS, [1, 2]),
    (pa.array([[1, 2]], pa.list_view(pa.int64())), INTS, [1, 2]),
    (pa.array([{"b": 2.0, "a": 1}]), PAIR, {"a": 1, "b": 2}),
    (pa.array([{"a": 1}]), PAIR, {"a": 1, "b": None}),
    (pa.array([[{"at": NOON}]]), pa.list_(pa.struct([("at", ZONED)])),
     [{"at": NOON.replace(tzinfo=NEW_YORK)}]),
    (pa.array([[("a", 1.0)]], pa.map_(pa.string(), pa.float64())), pa.map_(pa.string(), pa.int32()),
     [("a", 1)]),
]  # fmt: skip
"""What is emitted, its field, and what it becomes."""


@pytest.mark.parametrize(("column", "kind", "expected"), KEPT)
def test_a_column_that_loses_nothing_is_cast(column: pa.Array, kind: pa.DataType, expected: Any) -> None:
    """O804: also as a part of a longer column, with nulls beside it, and within a list."""
    nothing = pa.array([None], column.type) if not pa.types.is_run_end_encoded(column.type) else column
    longer = pa.concat_arrays([nothing, column, nothing])
    for emitted in (column, longer.slice(1, 1), longer.slice(1)):
        found = exact_cast(emitted, kind)
        assert found.type == kind
        assert found[0].as_py() == expected
    nested = pa.ListArray.from_arrays([0, 1], column)
    assert exact_cast(nested, pa.list_(kind)).to_pylist() == [[expected]]


LOST: list[tuple[pa.Array, pa.DataType]] = [
    (pa.array([1.5]), pa.int32()), (pa.array([float("nan")]), pa.int32()), (pa.array([300]), pa.int8()),
    (pa.array([2**63], pa.uint64()), pa.int64()), (pa.array([2**53 + 1]), pa.float64()),
    (pa.array([1e300]), pa.float32()), (pa.array(["1e400"]), pa.float64()),
    (pa.array([Decimal("1.005")]), pa.decimal128(10, 2)), (pa.array([Decimal("1.5")]), pa.int32()),
    (pa.array([Decimal("0.1234567890123456789")]), pa.float64()),
    (pa.array([1.005]), pa.decimal128(10, 2)), (pa.array([float("nan")]), pa.decimal128(10, 2)),
    (pa.array([10**9]), pa.decimal128(10, 2)), (pa.array([2]), pa.bool_()), (pa.array([0.5]), pa.bool_()),
    (pa.array([b"\xff"]), pa.string()), (pa.array(["one"]), pa.int32()), (pa.array(["1.5"]), pa.int32()),
    (nanoseconds(1_500, pa.timestamp("ns")), NTZ), (nanoseconds(1_500, pa.duration("ns")), pa.duration("us")),
    (nanoseconds(1_500, pa.time64("ns")), pa.time64("ns")), (pa.array([NOON]), pa.date32()),
    (pa.array([[1.5]]), INTS), (pa.array([{"a": 1.5, "b": 2}]), PAIR),
    (pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int32())), pa.map_(pa.string(), pa.int32())),
    (pa.array([[("a", 1.5)]], pa.map_(pa.string(), pa.float64())), pa.map_(pa.string(), pa.int32())),
]  # fmt: skip
"""A column with a value that would lose something, and its field."""


@pytest.mark.parametrize(("column", "kind"), LOST)
def test_a_column_that_would_lose_something_is_refused(column: pa.Array, kind: pa.DataType) -> None:
    """O805: alone, in a list, a struct and a map."""
    with pytest.raises(pa.ArrowInvalid):
        exact_cast(column, kind)
    with pytest.raises(pa.ArrowInvalid):
        exact_cast(pa.ListArray.from_arrays([0, 1], column), pa.list_(kind))
    with pytest.raises(pa.ArrowInvalid):
        exact_cast(pa.StructArray.from_arrays([column], ["in"]), pa.struct([("in", kind)]))
    pairs = pa.MapArray.from_arrays([0, 1], pa.array(["k"]), column)
    with pytest.raises((pa.ArrowException, ValueError, OverflowError)):
        exact_cast(pairs, pa.map_(pa.string(), kind))


APART: list[tuple[pa.DataType, pa.DataType]] = [
    *((number, times) for number in (pa.int64(), pa.float64(), pa.decimal128(10, 2), pa.bool_())
      for times in (ZONED, NTZ, pa.date32(), pa.time64("ns"), pa.duration("us"))),
    (ZONED, pa.int64()), (ZONED, pa.date32()), (ZONED, pa.time64("ns")), (ZONED, NTZ), (pa.date32(), ZONED),
    (pa.date32(), NTZ), (pa.date32(), pa.int32()), (pa.duration("us"), pa.int64()),
    (pa.struct([("a", pa.int32()), ("c", pa.int32())]), PAIR), (pa.struct([("A", pa.int32())]), PAIR),
    (pa.int64(), pa.binary()), (pa.int64(), INTS), (PAIR, pa.int32()),
]  # fmt: skip
"""Types that do not go together."""


@pytest.mark.parametrize(("have", "kind"), APART)
def test_types_that_do_not_go_together_are_refused_whatever_the_values(
    have: pa.DataType, kind: pa.DataType
) -> None:
    """O805: 1 became a microsecond after 1970, a date midnight in UTC, and a field of no struct nothing."""
    for column in (pa.nulls(2, have), pa.array([], have)):
        with pytest.raises((pa.ArrowTypeError, pa.ArrowNotImplementedError)):
            exact_cast(column, kind)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.datetimes() | st.none(), min_size=1), st.sampled_from(["UTC", "America/New_York", "+05:45"])
)
def test_a_column_and_rows_mean_the_same_local_time(times: list[datetime | None], zone: str) -> None:
    """O903: also where a clock is set back, or skips an hour."""
    kind = pa.timestamp("us", zone)
    by_row = pa.array(exact_values(times, kind), kind)
    assert exact_cast(pa.array(times, NTZ), kind).cast(pa.int64()).equals(by_row.cast(pa.int64()))
