"""Columns of an ArrowBolt become columns of its output without a loss, or are refused."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spout.tuples.casts import check_nulls, exact_cast, has_not_null, in_zone, with_zone
from spout.tuples.exact import exact_values

NEW_YORK = ZoneInfo("America/New_York")
ZONED = pa.timestamp("us", "America/New_York")
NTZ = pa.timestamp("us")
PAIR = pa.struct([("a", pa.int32()), ("b", pa.int32())])
NOON = datetime(2026, 1, 1, 12, 0, 0, 5)
INTS = pa.list_(pa.int32())
WORDS = pa.map_(pa.string(), pa.int32())


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
    *((pa.array([zero]), pa.decimal128(10, 2), Decimal("0.00"))
      for zero in ("0e-39", "-0.0E-77", "0e-99999999", "0." + "0" * 99)),
    (pa.array(["100e-2"]), pa.decimal128(10, 2), Decimal("1.00")),
    (pa.array([f"12{'0' * 20}e-20"]), pa.decimal128(10, 2), Decimal("12.00")),
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
    (pa.array([1e-50]), pa.float32()), (pa.array(["1e-400"]), pa.float64()),
    (pa.array([Decimal("1.005")]), pa.decimal128(10, 2)), (pa.array([Decimal("1.5")]), pa.int32()),
    (pa.array([Decimal("0.1234567890123456789")]), pa.float64()),
    *((pa.array([text]), kind) for kind in (pa.decimal128(10, 2), pa.decimal128(38, 38), pa.decimal256(76, 2))
      for text in ("1e-39", "-1E-77", "1e-153", "1e-99999999", "1e-0999999999", f"0.{'0' * 99}1")),
    (pa.array([5e-324]), pa.decimal128(38, 38)),
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


def test_bytes_that_stand_for_a_uuid_are_no_text_of_it() -> None:
    """O805: those of a small one are UTF-8; a field of bytes takes them."""
    stored = pa.array([bytes(16)], pa.binary(16))
    column = pa.ExtensionArray.from_storage(pa.uuid(), stored)
    assert exact_cast(column, pa.binary()).to_pylist() == [bytes(16)]
    with pytest.raises(pa.ArrowTypeError, match=r"uuid.* is no string: emit its text"):
        exact_cast(column, pa.string())


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


UINTS = pa.array([2**64 - 1, 7, None], pa.uint64())


@pytest.mark.parametrize("scale", [0, 1, 18])
def test_the_largest_number_of_64_bits_becomes_a_decimal_that_has_room(scale: int) -> None:
    found = exact_cast(UINTS, pa.decimal128(38, scale))
    assert found.to_pylist() == [Decimal(2**64 - 1), Decimal(7), None]


@pytest.mark.parametrize("scale", [19, 30, 37])
def test_a_number_becomes_a_decimal_of_any_scale_if_it_has_room_itself(scale: int) -> None:
    """Whatever others of its type would need."""
    assert exact_cast(UINTS.slice(1), pa.decimal128(38, scale)).to_pylist() == [Decimal(7), None]
    with pytest.raises(pa.ArrowInvalid):
        exact_cast(UINTS, pa.decimal128(38, scale))


def in_forms(number: Decimal, scale: int) -> list[pa.Array]:
    """Return columns of each type that can hold a number of so many digits behind the point."""
    forms: list[tuple[Any, pa.DataType]] = [
        (number, pa.decimal128(38, scale)), (number, pa.decimal256(76, scale)), (f"{number:f}", pa.string()),
        (str(number), pa.large_string()), (str(number).encode(), pa.binary()), (float(number), pa.float64()),
    ]  # fmt: skip
    if number == int(number) and abs(number) < 2**63:
        forms.append((int(number), pa.int64()))
    if number == int(number) and 0 <= number < 2**64:
        forms.append((int(number), pa.uint64()))
    columns = []
    for value, kind in forms:
        with suppress(pa.ArrowInvalid):  # it does not fit the form
            columns.append(pa.array([value], kind))
    return columns


@pytest.mark.parametrize("scale", range(39))
@pytest.mark.parametrize("precision", [10, 28, 38])
def test_a_number_becomes_the_same_decimal_or_is_refused(precision: int, scale: int) -> None:
    """O805: 2^63 became 46826544.815... in a decimal(38, 30), and 1 with 15 zeros 6.387... in a (38, 37)."""
    if scale > precision:
        return
    random = Random(100 * precision + scale)
    kind = pa.decimal128(precision, scale)
    edge = precision - scale
    kept = 0
    for digits in [*range(max(1, edge - 2), edge + 3), *random.choices(range(1, 39), k=8)]:
        behind = random.choice([0, 0, 3, scale])
        for unscaled in (10**digits, 10**digits - 1, 2**63, 2**64 - 1, random.randrange(10**digits)):
            number = Decimal(random.choice([-1, 1]) * unscaled).scaleb(-min(behind, digits))
            for column in in_forms(number, min(behind, digits)):
                meant = number if column.type != pa.float64() else Decimal(repr(float(number)))
                try:
                    [found] = exact_cast(column, kind).to_pylist()
                except pa.ArrowInvalid:
                    has_room = abs(meant) < 10**edge and meant == round(meant, scale)
                    assert (
                        not has_room or pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
                    )
                else:
                    kept += 1
                    assert found == meant, column.type
    assert kept or not edge


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([True]), pa.decimal128(10, 2)),
        (pa.array([{"a": 1}], PAIR), WORDS),
        (pa.array([[("a", 1)]], WORDS), pa.int32()),
        (pa.array([[("a", 1)]], WORDS), PAIR),
        (pa.array([1]), WORDS),
        (pa.array([[1]]), WORDS),
    ],
)
def test_no_column_of_these_types_becomes_one_of_those(column: pa.Array, kind: pa.DataType) -> None:
    with pytest.raises((pa.ArrowTypeError, pa.ArrowNotImplementedError)):
        exact_cast(column, kind)


def test_a_column_of_nulls_has_no_local_times() -> None:
    for rows in (0, 1, 3):
        found = exact_cast(pa.nulls(rows, NTZ), ZONED)
        assert found.equals(pa.nulls(rows, ZONED))


@pytest.mark.parametrize("digits", [1, 15, 16, 17, 20, 37, 38])
def test_a_decimal_becomes_a_float_only_if_it_is_the_same_number(digits: int) -> None:
    """Up to the largest decimal, which no float is: 38 nines would become 1 with 38 zeros."""
    nines = Decimal("9" * digits)
    column = pa.array([None, Decimal(5), nines], pa.decimal128(38, 0))
    if Decimal(float(nines)) == nines:
        assert exact_cast(column, pa.float64()).to_pylist() == [None, 5.0, float(nines)]
        return
    with pytest.raises(pa.ArrowInvalid):
        exact_cast(column, pa.float64())


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
@pytest.mark.parametrize("type_", [pa.decimal128(9, 3), pa.decimal128(38, 18), pa.decimal256(60, 20)])
def test_a_decimal_becomes_the_nearest_float(type_: pa.DataType, kind: pa.DataType) -> None:
    """O804: 63.8 became 63.800000000000004, and -0.999 a float beside the nearest one."""
    numbers = [Decimal(text) for text in ("63.8", "-0.999", "0.9", "0.005", "9999.9", "0", "-0.8")]
    column = pa.array([None, *numbers], type_)
    nearest = np.array([float(number) for number in numbers], kind.to_pandas_dtype()).tolist()
    assert exact_cast(column, kind).to_pylist() == [None, *nearest]


def test_a_decimal_that_is_no_float_is_found_beside_others_that_are() -> None:
    """2 to the power of 60 is one, though its shortest digits are others."""
    numbers = [Decimal(2**60), Decimal("0.5"), None, Decimal("0.123456789012345678")]
    column = pa.array(numbers, pa.decimal128(38, 18))
    with pytest.raises(pa.ArrowInvalid, match="would become"):
        exact_cast(column, pa.float64())
    assert exact_cast(column.slice(0, 3), pa.float64()).to_pylist() == [2.0**60, 0.5, None]


TINY = ["5e-324", "-1e-100", "12e-239", "1e-39", "123e-45", "1000e-135", "0.0001e-80"]


@pytest.mark.parametrize("text", [pa.string(), pa.large_string(), pa.string_view()])
@pytest.mark.parametrize("tiny", TINY)
def test_a_number_does_not_vanish(tiny: str, text: pa.DataType) -> None:
    """O805: Arrow refuses 1e-30 as a decimal of three digits, and makes 0 of 1e-100."""
    for column in (pa.array(["0", tiny]).cast(text), pa.array([0.0, float(tiny)])):
        for kind in (pa.decimal128(3, 3), pa.decimal128(38, 0)):
            with pytest.raises(pa.ArrowInvalid):
                exact_cast(column, kind)
    zeros = pa.array(["0", "0e-324", "-0.00", None, "0E5"]).cast(text)
    assert exact_cast(zeros, pa.decimal128(3, 2)).to_pylist() == [Decimal(0)] * 3 + [None, Decimal(0)]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_duration_is_no_text(unit: str) -> None:
    """O805: it became its number, without the unit; as a value of Python it was refused."""
    for text in (pa.string(), pa.list_(pa.string())):
        durations = pa.array([timedelta(1)], pa.duration(unit))
        column = pa.ListArray.from_arrays([0, 1], durations) if pa.types.is_list(text) else durations
        with pytest.raises(pa.ArrowTypeError):
            exact_cast(column, text)


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["a", "c"], "the struct has no field c"),
        (["d", "c"], "the struct has no field c, d"),
        (["a", "a"], "the value has a more than once"),
        (["a", "b", "b"], "the value has b more than once"),
        (["a", "a", "b", "a", "b"], "the value has a, b more than once"),
        (["b", "c", "b"], "the struct has no field c; the value has b more than once"),
        (["c", "c"], "the struct has no field c; the value has c more than once"),
    ],
)
def test_a_struct_with_other_fields_is_told_with_those_that_are_wrong(names: list[str], says: str) -> None:
    column = pa.StructArray.from_arrays([pa.array([1])] * len(names), names)
    with pytest.raises(pa.ArrowTypeError, match=rf"{says}; the fields of the struct are a, b$"):
        exact_cast(column, PAIR)


INT32_MAX = 2**31 - 1


def test_a_column_has_as_many_elements_as_its_offsets_can_count() -> None:
    """Elements that are all null take no memory."""
    longest = pa.FixedSizeListArray.from_arrays(pa.nulls(INT32_MAX), INT32_MAX)
    found = exact_cast(longest, pa.list_(pa.null()))
    assert found.offsets.to_pylist() == [0, INT32_MAX]
    too_long = pa.FixedSizeListArray.from_arrays(pa.nulls(2**31), 2**30)
    with pytest.raises(pa.ArrowInvalid, match="2,147,483,648 elements are more than one column can have"):
        exact_cast(too_long, pa.list_(pa.null()))


# -- keys of maps

STRUCT_KEY = pa.struct([("x", pa.int32())])
NAN, OTHER_NAN = (np.array([bits], np.uint64).view(np.float64)[0] for bits in (0x7FF8 << 48, 0x7FF9 << 48))
KEYS: list[tuple[pa.DataType, Any, Any]] = [
    (pa.int32(), 1, 2), (pa.int64(), 0, -1), (pa.string(), "a", "b"), (pa.binary(), b"a", b"b"),
    (pa.date32(), date(2026, 1, 1), date(2026, 1, 2)), (pa.float64(), 0.5, 0.25),
    (pa.float64(), NAN, 0.25), (NTZ, NOON, NOON + timedelta(1)), (pa.bool_(), True, False),
    (pa.decimal128(10, 2), Decimal(1), Decimal(2)), (STRUCT_KEY, {"x": 1}, {"x": 2}),
    (pa.list_(pa.int32()), [1], [1, 2]),
]  # fmt: skip


@pytest.mark.parametrize("nested", range(4))
@pytest.mark.parametrize(("kind", "key", "other"), KEYS)
def test_a_key_that_a_map_has_twice_is_refused_and_two_maps_may_have_it(
    kind: pa.DataType, key: Any, other: Any, nested: int
) -> None:
    """Of each type; alone, in a list, in a struct, and in the values of a map. It is seen nowhere else."""
    map_type = pa.map_(kind, pa.int32())
    good = pa.array([[(key, 1), (other, 2)], None, [(key, 1)], [(other, 1)]], map_type)
    bad = pa.array([[(other, 1)], [(key, 1), (other, 2), (key, 3)]], map_type)
    for column, twice in ((good, False), (bad, True)):
        rows = len(column)
        whole: pa.Array = (
            column,
            pa.ListArray.from_arrays([0, 1, rows], column),
            pa.StructArray.from_arrays([pa.array(range(rows)), column], ["n", "map"]),
            pa.MapArray.from_arrays([0, 1, rows], pa.array([str(row) for row in range(rows)]), column),
        )[nested]
        if twice:
            with pytest.raises(pa.ArrowInvalid, match=r"the map has the key .* twice"):
                exact_cast(whole, whole.type)
        else:
            assert repr(exact_cast(whole, whole.type)) == repr(whole)


def test_a_number_that_is_none_is_one_key_whatever_its_bits() -> None:
    keys = pa.array(np.array([NAN, OTHER_NAN]))
    column = pa.MapArray.from_arrays([0, 2], keys, pa.array([1, 2], pa.int32()))
    with pytest.raises(pa.ArrowInvalid, match="the map has the key nan twice"):
        exact_cast(column, column.type)


FAR = pa.array([253_402_300_800_000_000 + micros for micros in range(4)], pa.int64())
"""Times of the year 10000, which Python has not."""

FIRST_US = -62_135_596_800_000_000
FIRST_AND_OTHERS = pa.array([FIRST_US, 1, FIRST_US, 2], pa.int64())
"""The first time of Python's calendar, of which there is none in a zone behind UTC."""

KEYS_BY_BITS: dict[str, pa.Array] = {
    "text": pa.array(["a", "b", "a", "c"]),
    "text that is no UTF-8": pa.Array.from_buffers(
        pa.string(), 4, pa.array([b"\xff", b"b", b"\xff", b"\xfe"], pa.binary()).buffers()
    ),
    "far times": FAR.take(pa.array([0, 1, 0, 2])).cast(NTZ),
    "far times with a zone": FAR.take(pa.array([0, 1, 0, 2])).cast(pa.timestamp("us", "Asia/Tokyo")),
    "the first time of all": FIRST_AND_OTHERS.cast(ZONED),
    "zeros": pa.array([0.0, 1.0, -0.0, 2.0]),
    "zeros in a list": pa.array([[0.0], [1.0], [-0.0], [2.0]]),
    "not a number": pa.array([np.nan, 1.0, -np.nan, 2.0], pa.float32()),
    "not a number in a struct": pa.array([{"x": np.nan}, {"x": 1.0}, {"x": np.nan}, {"x": 2.0}]),
    "maps": pa.array([[("k", 1)], [("k", 2)], [("k", 1)], []], pa.map_(pa.string(), pa.int32())),
    "nulls in a struct": pa.array([{"x": None}, {"x": 1}, {"x": None}, {"x": 2}]),
    "structs without fields": pa.array([{}, {}], pa.struct([])).take(pa.array([0, 1, 0, 1])),
    "dates": pa.array([1 << 30, 1, 1 << 30, 2], pa.int32()).cast(pa.date32()),
    "durations": pa.array([-(1 << 63), 1, -(1 << 63), 2], pa.int64()).cast(pa.duration("us")),
}  # fmt: skip
"""Four keys, of which the third is the first one again."""


@pytest.mark.parametrize("keys", KEYS_BY_BITS.values(), ids=KEYS_BY_BITS)
def test_keys_are_told_apart_as_spark_does_also_where_python_has_no_form_of_them(keys: pa.Array) -> None:
    """O809: each map with a time that Python has not failed, and two zeros passed as two keys."""
    items = pa.array(range(4))
    kind = pa.map_(keys.type, items.type)
    good = pa.MapArray.from_arrays([0, 1, 2, 4], keys, items, type=kind)
    if keys.type != pa.struct([]):  # of which there is one value
        assert str(exact_cast(good, kind)) == str(good)
    with pytest.raises(pa.ArrowInvalid, match=r"^the map has the key .* twice$"):
        exact_cast(pa.MapArray.from_arrays([0, 3], keys.slice(0, 3), items.slice(0, 3), type=kind), kind)


def test_what_lies_behind_a_null_is_no_key() -> None:
    """O809: Arrow keeps the pairs of a map that was made a null; each row without one failed, or another."""
    kind = pa.map_(pa.bool_(), pa.int32())
    keys, items = pa.array([True, True, True, False]), pa.array(range(4), pa.int32())
    behind = pa.MapArray.from_arrays([0, 1, 2, 4], keys, items, mask=pa.array([True, False, False]))
    structs = pa.StructArray.from_arrays([behind], ["m"], mask=pa.array([False, True, False]))
    lists = pa.ListArray.from_arrays([0, 2, 3], behind, mask=pa.array([True, False]))
    assert behind.type == kind
    for column in (behind, structs, lists, behind.slice(0, 1), structs.slice(1), lists.slice(0, 1)):
        assert exact_cast(column, column.type).to_pylist() == column.to_pylist()


def test_a_key_is_found_twice_beside_what_lies_behind_a_null() -> None:
    """O809."""
    keys, items = pa.array([1, 2, 7, 7]), pa.array(range(4))
    column = pa.MapArray.from_arrays([0, 2, 4], keys, items, mask=pa.array([True, False]))
    with pytest.raises(pa.ArrowInvalid, match="the map has the key 7 twice"):
        exact_cast(column, column.type)


# -- zones

TOKYO = pa.timestamp("us", "Asia/Tokyo")
IN_ZONES = [
    (ZONED, TOKYO), (pa.timestamp("s", "UTC"), pa.timestamp("s", "Asia/Tokyo")),
    (pa.list_(ZONED), pa.list_(TOKYO)), (pa.map_(ZONED, ZONED), pa.map_(TOKYO, TOKYO)),
    (pa.struct([("at", ZONED), ("local", NTZ)]), pa.struct([("at", TOKYO), ("local", NTZ)])),
    (pa.list_(pa.struct([("at", pa.list_(ZONED))])), pa.list_(pa.struct([("at", pa.list_(TOKYO))]))),
]  # fmt: skip
WITHOUT_ZONES = [NTZ, pa.int32(), pa.date32(), pa.list_(NTZ), pa.map_(NTZ, NTZ), pa.struct([("at", NTZ)])]


@pytest.mark.parametrize(("kind", "expected"), [*IN_ZONES, *((kind, kind) for kind in WITHOUT_ZONES)])
def test_only_times_that_have_a_zone_get_another(kind: pa.DataType, expected: pa.DataType) -> None:
    assert with_zone(kind, "Asia/Tokyo") == expected


def test_a_batch_has_the_same_instants_in_another_zone_and_is_not_copied_in_its_own() -> None:
    instants = pa.array([0, None, 5], pa.int64())
    batch = pa.record_batch(
        {"n": [1, 2, 3], "at": instants.cast(ZONED), "local": instants.cast(NTZ), "word": ["a", "b", "c"]}
    )
    assert in_zone(batch, "America/New_York") is batch
    found = in_zone(batch, "Asia/Tokyo")
    assert found.schema.types == [pa.int64(), TOKYO, NTZ, pa.string()]
    assert found.schema.names == batch.schema.names
    assert found.column("at").cast(pa.int64()).equals(instants)
    assert found.drop_columns(["at"]).equals(batch.drop_columns(["at"]))
    without = batch.drop_columns(["at"])
    assert in_zone(without, "Asia/Tokyo") is without


# -- nulls

FULL = pa.field("full", pa.int32(), nullable=False)
FREE = pa.field("free", pa.int32())
NULLS: list[tuple[pa.DataType, Any, Any]] = [
    (pa.struct([FREE, FULL]), {"free": None, "full": 1}, {"free": 1, "full": None}),
    (pa.list_(FULL), [1], [1, None]),
    (pa.map_(pa.string(), FULL), [("a", 1)], [("a", 1), ("b", None)]),
    (pa.list_(pa.struct([FREE, FULL])), [{"free": None, "full": 1}], [None, {"free": 1, "full": None}]),
    (pa.map_(pa.string(), pa.list_(FULL)), [("a", None)], [("a", [1, None])]),
    (pa.struct([("in", pa.struct([FREE, FULL]))]), {"in": None}, {"in": {"free": 1, "full": None}}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "good", "bad"), NULLS)
def test_a_null_is_found_in_each_part_that_takes_none(kind: pa.DataType, good: Any, bad: Any) -> None:
    """Below a null, which has no parts, there is none."""
    field = pa.field("outer", kind)
    assert has_not_null(field)
    check_nulls("it", field, pa.array([good, None], kind))
    with pytest.raises(
        ValueError, match=r"'it' emitted a null as '(full|item|value|element)', which is NOT|non-nullable"
    ):
        check_nulls("it", field, pa.array([good, None, bad], kind))


@pytest.mark.parametrize("kind", [pa.int32(), pa.list_(pa.int32()), pa.struct([FREE]), pa.struct([]), WORDS])
def test_a_field_that_takes_nulls_everywhere_needs_no_look(kind: pa.DataType) -> None:
    assert not has_not_null(pa.field("outer", kind))
    assert has_not_null(pa.field("outer", kind, nullable=False))
    check_nulls("it", pa.field("outer", kind), pa.nulls(2, kind))
    with pytest.raises(ValueError, match="'it' emitted a null as 'outer', which is NOT NULL"):
        check_nulls("it", pa.field("outer", kind, nullable=False), pa.nulls(2, kind))
