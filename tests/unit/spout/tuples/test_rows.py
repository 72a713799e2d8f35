"""Rows from which tuples read, and emitted rows on their way to Arrow."""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Row

from acker.errors import MessageIdUnknown, TupleError
from acker.identity import Position, Root, Source
from spout.tuples.places import Places
from spout.tuples.rows import (
    ArrowRows,
    ListRows,
    batch_of,
    misfits,
    one_batch,
    put_in_order,
    rows_of_wrong_size,
    tuple_of,
)
from spout.tuples.tuple import (
    AnchoredTuple,
    Delivery,
    MessageId,
    PlacedTuple,
    StreamId,
    Tuple,
    TupleState,
    values_in_order,
)

PAIR = pa.schema([("word", pa.string()), ("length", pa.int32())])
STRICT = pa.schema([pa.field("word", pa.string(), nullable=False)])


def test_a_tuple_for_a_test_has_the_ids_of_a_record() -> None:
    line = tuple_of({"word": "a", "length": 1}, origin="lines/3@7", attempt=2)
    assert line.values == ("a", 1)
    assert line.message_id == MessageId(Root(Source(0), Position(0)), 2, "lines/3@7", None, "lines/3@7")
    assert tuple_of({}, origin="lines/3@7").message_id.attempt == 1
    assert tuple_of({}, origin="").message_id == MessageId(Root(Source(0), Position(0)), 1, "", None, "")
    with pytest.raises(MessageIdUnknown):
        _ = tuple_of({"word": "a"}).message_id


def test_rows_that_nobody_converted_are_no_columns() -> None:
    rows = ListRows(["word"], [["a"]], came_from=StreamId("split"))
    with pytest.raises(TypeError, match="the rows of split were not converted"):
        rows.arrow(None)
    batch = pa.RecordBatch.from_pydict({"word": ["a"], "length": [1]})
    converted = ListRows(["word", "length"], [["a", 1]], batch=batch)
    assert converted.arrow(None) is batch
    assert converted.arrow(["length"]).to_pydict() == {"length": [1]}


def test_rows_of_arrow_keep_their_places_and_the_list_of_a_column() -> None:
    batch = pa.RecordBatch.from_pydict({"word": ["a word that is no constant", "b"]})
    places = Places(np.array([4, 5]))
    rows = ArrowRows(batch, places=places)
    assert rows.places is places
    assert ArrowRows(batch).places is None
    assert rows.value("word", 0) is rows.value("word", 0), "a column is converted once"


def test_rows_of_arrow_have_names_and_say_what_they_descend_from() -> None:
    batch = pa.RecordBatch.from_pydict({"word": ["a", "b"], "length": [1, 2]})
    message_id = MessageId(Root(Source(1), Position(2)), 1, "lines/3@7", None)
    ids = [message_id, replace(message_id, attempt=2)]
    line = Tuple(ArrowRows(batch, ids.__getitem__, StreamId("split")), 1)
    assert line.fields == ("word", "length")
    assert (line.values, line[0], line.message_id, line.source_component) == (("b", 2), "b", ids[1], "split")
    with pytest.raises(MessageIdUnknown):
        _ = Tuple(ArrowRows(batch), 0).message_id


NEW_YORK = "America/New_York"
BEYOND_PYTHON_US = 253_402_300_800_000_000
"""The first microsecond of the year 10000."""


@pytest.mark.parametrize("odd", [0, 1, 2])
def test_only_the_row_fails_whose_time_python_has_not(odd: int) -> None:
    """Wherever it is in its column, and however often the others are read."""
    times = [0, 1_000_000, 2_000_000]
    times[odd] = BEYOND_PYTHON_US
    rows = ArrowRows(pa.RecordBatch.from_arrays([pa.array(times, pa.timestamp("us", NEW_YORK))], ["at"]))
    for _ in range(2):
        for row, micros in enumerate(times):
            if row == odd:
                with pytest.raises((ValueError, OverflowError), match="date value out of range"):
                    rows.value("at", row)
            else:
                found = rows.value("at", row)
                assert found == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
                assert found.utcoffset() == timedelta(hours=-5)


def test_the_last_hours_of_the_calendar_are_in_utc_in_a_zone_that_is_ahead() -> None:
    last_us = BEYOND_PYTHON_US - 1
    column = pa.array([last_us, 0], pa.timestamp("us", "Asia/Tokyo"))
    rows = ArrowRows(pa.RecordBatch.from_arrays([column], ["at"]))
    assert rows.value("at", 0) == datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    assert rows.value("at", 0).utcoffset() == timedelta(0)
    assert rows.value("at", 1) == datetime(1970, 1, 1, 9, tzinfo=ZoneInfo("Asia/Tokyo"))
    assert rows.value("at", 1).utcoffset() == timedelta(hours=9)


@pytest.mark.parametrize("rows", [[("a", 1), ("b",)], [("a", 1), ("b", 2, 3)], [("a",), ("b", 2)]])
def test_rows_of_several_sizes_are_no_batch(rows: list[tuple[Any, ...]]) -> None:
    """None of their values is left out in silence."""
    with pytest.raises(ValueError, match=r"zip\(\)"):
        batch_of(rows, PAIR, "it")


@pytest.mark.parametrize("size", [1, 3])
def test_rows_that_all_have_another_size_than_their_output_are_no_batch(size: int) -> None:
    with pytest.raises(ValueError, match=f"emitted {size} values where the output is word, length"):
        batch_of([("a",) * size] * 2, PAIR, "it")


def test_a_batch_of_no_rows_has_the_columns_of_the_output() -> None:
    assert batch_of([], PAIR, "it").schema.equals(PAIR)
    assert one_batch([], PAIR, "it").schema.equals(PAIR)


def test_parts_that_are_too_large_for_one_column_are_told_with_their_size() -> None:
    """Three times the same gigabyte of zeros, which nobody writes and so takes no memory."""
    gigabyte = 1 << 30
    zeros = mmap.mmap(-1, gigabyte)
    offsets = pa.py_buffer(np.array([0, gigabyte], np.int32))
    words = pa.StringArray.from_buffers(1, offsets, pa.py_buffer(zeros))
    part = pa.RecordBatch.from_arrays([words], ["word"])
    with pytest.raises(TupleError, match=r"'it' emitted 3 tuples of 3,221,225,484 bytes at once"):
        one_batch([part] * 3, part.schema, "it")


def test_parts_of_a_batch_become_one() -> None:
    parts = [batch_of(rows, PAIR, "it") for rows in ([("a", 1)], [("b", None), ("c", 3)])]
    assert one_batch(parts[:1], PAIR, "it") is parts[0]
    assert one_batch(parts, PAIR, "it").equals(batch_of([("a", 1), ("b", None), ("c", 3)], PAIR, "it"))


@pytest.mark.parametrize("rows", [[("a",), (None,)], [(None,)]])
def test_a_null_where_the_field_takes_none_is_found_with_its_row(rows: list[tuple[Any, ...]]) -> None:
    with pytest.raises(ValueError, match="'it' emitted a null as 'word', which is NOT NULL"):
        batch_of(rows, STRICT, "it")
    assert [misfit.row for misfit in misfits(rows, STRICT, "it")] == [len(rows) - 1]
    both = pa.schema([pa.field("length", pa.int32()), *STRICT])
    with pytest.raises(ValueError, match="NOT NULL"):
        batch_of([(None, word) for (word,) in rows], both, "it")


# -- order and size


def test_rows_by_name_come_into_the_order_of_the_fields_and_tuples_stay_themselves() -> None:
    row = ("a", 1)
    rows: list[Sequence[Any]] = [row, ["b", 2], {"length": 3, "word": "c"}, Row(length=4, word="d")]  # type: ignore[list-item]
    assert put_in_order(rows, PAIR.names, "it") == []
    assert [tuple(row) for row in rows] == [("a", 1), ("b", 2), ("c", 3), ("d", 4)]
    assert rows[0] is row


@pytest.mark.parametrize("repeated", [["a", 1], {"word": "a", "length": 1}], ids=type)
def test_what_may_have_changed_since_it_was_emitted_is_refused_each_time(repeated: Any) -> None:
    """And a tuple, which cannot change, may be emitted as often as one likes."""
    row = ("b", 2)
    rows: list[Any] = [row, repeated, row, repeated, ["c", 3]]
    bad = put_in_order(rows, PAIR.names, "it")
    assert [misfit.row for misfit in bad] == [1, 3]
    kind = type(repeated).__name__
    assert str(bad[0].error).startswith(f"bolt 'it' emitted one {kind} 2 times")
    assert (rows[0], rows[2], rows[4]) == (row, row, ("c", 3))


SHORT = Row("length", "word")("a")
"""A row that names two values and has one, as PySpark lets one make."""


@pytest.mark.parametrize(
    ("row", "size"),
    [(("a",), 1), (("a", 1, 2), 3), (SHORT, 1)],
    ids=["short", "long", "a row that lacks one"],
)
def test_a_row_without_one_value_for_each_field_is_told_with_its_size(row: Any, size: int) -> None:
    rows: list[Any] = [("a", 1), row, {"word": "b", "length": 2}]
    assert put_in_order(rows, PAIR.names, "it") == []
    [misfit] = rows_of_wrong_size(rows, PAIR.names, "it")
    assert misfit.row == 1
    assert isinstance(misfit.error, TupleError)
    assert str(misfit.error) == f"bolt 'it' emitted {size} values, whose fields are word, length"


def test_rows_of_the_right_size_are_none_of_the_wrong_size() -> None:
    assert rows_of_wrong_size([], PAIR.names, "it") == []
    assert rows_of_wrong_size([("a", 1), ["b", 2]], PAIR.names, "it") == []


@pytest.mark.parametrize("value", [5, None, object()], ids=type)
def test_one_value_in_the_place_of_a_row_has_the_wrong_size(value: Any) -> None:
    [misfit] = rows_of_wrong_size([("a", 1), value], PAIR.names, "it")
    assert misfit.row == 1
    assert isinstance(misfit.error, TupleError)


class Broken(ListRows):
    """Rows of which a value cannot be read."""

    def value(self, name: str, row: int) -> Any:
        """Raise what a getter of somebody's own may raise."""
        raise KeyError("inside")


@pytest.mark.parametrize("field", ["word", "length", 0, 1, -1, -2])
def test_an_error_within_a_field_that_is_there_stays_what_it_is(field: str | int) -> None:
    with pytest.raises(KeyError) as raised:
        Tuple(Broken(PAIR.names, [("a", 1)]), 0)[field]
    assert raised.value.args == ("inside",)


@pytest.mark.parametrize("field", [2, -3, 9])
def test_a_position_beyond_the_fields_is_told_with_the_fields(field: int) -> None:
    with pytest.raises(IndexError, match=f"no field {field} in a tuple of spark; its fields are: word, len"):
        Tuple(ListRows(PAIR.names, [("a", 1)]), 0)[field]


# -- one emission

FIELDS = ("word", "length")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (("a", 1), ("a", 1)),
        (["a", 1], ("a", 1)),
        ({"length": 1, "word": "a"}, ["a", 1]),
        (deque(["a", 1]), ["a", 1]),
        (np.array([5, 6]), [5, 6]),
        ((), ()),
    ],
)
def test_an_emission_is_taken_in_the_order_of_its_fields(values: Any, expected: Any) -> None:
    found = values_in_order(values, FIELDS, "it")
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"word": "a"}, "emitted a mapping without length, whose fields are word, length"),
        ({}, "emitted a mapping without word, length, whose"),
        ({"word": "a", "length": 1, "n": 2}, "emitted a mapping with the unknown 'n', whose fields are"),
        ({"word": "a", 5: 1}, "emitted a mapping without length and with the unknown 5, whose"),
        ({"a", 1}, "for a row, a set, which has no order; emit a tuple of its values, whose fields are"),
        (frozenset("a"), "for a row, a frozenset, which has no order; emit a tuple of its values, whose"),
        ("ab", "emitted 'ab' for a row; emit a tuple of its values, whose fields are word, length"),
        (b"ab", "emitted b'ab' for a row; emit a tuple of its values, whose fields are"),
        (bytearray(b"ab"), "emitted bytearray(b'ab') for a row; emit a tuple of its values, whose"),
        (5, "emitted 5 for a row; emit a tuple of its values, whose fields are word, length"),
        (None, "emitted None for a row; emit a tuple of its values, whose fields are word, length"),
    ],
)
def test_what_is_no_row_of_the_fields_is_told_with_them(values: Any, says: str) -> None:
    """Where the fields are not known yet, without them; a mapping waits until they are."""
    with pytest.raises(TupleError) as raised:
        values_in_order(values, FIELDS, "it")
    assert str(raised.value).startswith("bolt 'it' emitted ")
    assert says in str(raised.value)
    if isinstance(values, dict):
        assert values_in_order(values, None, "it") == values
        return
    with pytest.raises(TupleError) as raised:
        values_in_order(values, None, "it")
    assert str(raised.value).endswith("emit a tuple of its values")


def test_a_tuple_of_a_task_is_open_at_its_places() -> None:
    rows = ListRows(FIELDS, [("a", 1), ("b", 2)])
    places: list[tuple[Delivery, ...]] = [(), (Delivery(3, ()),)]
    assert PlacedTuple(rows, 1, places).deliveries == places[1]
    assert PlacedTuple(rows, 1, places).row == 1
    line = AnchoredTuple(rows, 1, places, "split", since_ns=7)
    assert (line.state, line.receiver, line.since_ns, line["word"]) == (TupleState.OPEN, "split", 7, "b")
    assert list(line.children) == []
    assert [line.count_child(9), line.count_child(9), line.count_child(8)] == [0, 1, 0]
    assert list(line.children) == [Delivery(3, ((9, 0),)), Delivery(3, ((9, 1),)), Delivery(3, ((8, 0),))]
