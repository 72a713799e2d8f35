"""Values of records: JSON of many rows is that of each row, and what cannot be written is named."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker.errors import UsageError
from spout.exactly_once.value_encoding import json_values, python_rows

FLOATS: Final = [0.1, 1.0, 1e300, -0.0, 1e-7, 123456789.123]

BROKEN_TEXT: Final = pa.array([b"whole", b"\xff"], pa.binary()).view(pa.string())
"""A column of texts as Arrow has it, of which the second is no UTF-8."""

COLUMNS: Final[dict[str, tuple[pa.DataType, list[Any]]]] = {
    "text": (pa.string(), ["", "a", 'quote " and \\', "line\nfeed\r\t", "ä\U0001f985\u2028\x7f", "%s %"]),
    "number": (pa.int64(), [0, -1, (1 << 63) - 1, -(1 << 63)]),
    "float": (pa.float64(), FLOATS),
    "odd float": (pa.float64(), [1.5, float("nan"), float("inf"), -float("inf")]),
    "real": (pa.float32(), [0.1, 1.0]),
    "bool": (pa.bool_(), [True, False]),
    "bytes": (pa.binary(), [b"", b"\xff\n"]),
    "decimal": (pa.decimal128(10, 2), [Decimal("1.10"), Decimal("0.00")]),
    "time": (pa.timestamp("us", "UTC"), [datetime(2026, 1, 1, tzinfo=UTC)]),
    "date": (pa.date32(), [date(2026, 1, 1)]),
    "duration": (pa.duration("us"), [timedelta(microseconds=1)]),
    "interval": (pa.month_day_nano_interval(), [pa.MonthDayNano([1, 2, 3])]),
    "list": (pa.list_(pa.string()), [[], ["a\nb", None], ["c"]]),
    "struct": (pa.struct([("a", pa.int64()), ("b", pa.float64())]), [{"a": 1, "b": float("nan")}]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("k", 1), ("l", None)], []]),
    "words": (pa.dictionary(pa.int32(), pa.string()), ["a", "b\n", "a"]),
    "nothing": (pa.null(), []),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_json_of_a_column_is_that_of_each_of_its_rows(name: str) -> None:
    """Its rows alone, with nulls between them, and all at once."""
    kind, entries = COLUMNS[name]
    column = [None, *entries, None]
    rows = pa.table({name: pa.array(column, kind)})
    one_by_one = [json_values(rows.slice(number, 1))[0] for number in range(len(column))]
    assert json_values(rows) == one_by_one
    assert one_by_one[0] == f'{{"{name}":null}}'.encode()
    assert [list(json.loads(value or b"")) for value in one_by_one] == [[name]] * len(column)


@given(
    st.lists(st.tuples(st.text(), st.none() | st.integers(-5, 5), st.floats(allow_nan=False))),
    st.lists(st.text(min_size=1), min_size=3, max_size=3, unique=True),
)
def test_json_of_rows_is_what_pythons_encoder_writes_for_each(
    rows: list[tuple[str, int | None, float]], names: list[str]
) -> None:
    finite = [row for row in rows if abs(row[2]) != float("inf")]
    texts, numbers, floats = map(list, zip(*finite, strict=True)) if finite else ([], [], [])
    table = pa.table(
        [pa.array(texts, pa.string()), pa.array(numbers, pa.int64()), pa.array(floats, pa.float64())],
        names=names,
    )
    expected = [
        json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False, separators=(",", ":")).encode()
        for row in finite
    ]
    assert json_values(table) == expected


def test_rows_without_a_column_are_empty_objects() -> None:
    rows = pa.table({"a": [1, 2]}).select([])
    assert json_values(rows) == [b"{}", b"{}"]
    assert python_rows(rows) == [{}, {}]


@pytest.mark.parametrize("row", [0, 3, 9], ids=["first", "middle", "last"])
@pytest.mark.parametrize(
    ("kind", "good", "bad", "why"),
    [
        (pa.map_(pa.binary(), pa.int64()), [], [(b"k", 1)], r"\(v dict\) does not fit json: TypeError"),
        (pa.map_(pa.float64(), pa.int64()), [], [(float("nan"), 1)], r"does not fit json: ValueError"),
        (pa.timestamp("us"), 0, 253_402_300_800_000_000, r"timestamp\[us\], what Python has no value for"),
    ],
    ids=["a key of bytes", "a key that is no number", "a year that Python lacks"],
)
def test_a_value_that_json_has_no_form_for_is_named_by_its_row_in_the_batch(
    row: int, kind: pa.DataType, good: Any, bad: Any, why: str
) -> None:
    column = [good] * 10
    column[row] = bad
    with pytest.raises(UsageError, match=rf"row {8_000 + row} of the batch .*{why}"):
        json_values(pa.table({"n": [1] * 10, "v": pa.array(column, kind)}), first_row=8_000)


@pytest.mark.parametrize("encode", [json_values, python_rows])
def test_a_text_that_is_no_utf8_is_named_by_row_and_column(encode: Any) -> None:
    """Spark's texts may have any bytes, as those of ``cast(value as string)``."""
    rows = pa.table({"a": [1, 2], "text": BROKEN_TEXT})
    with pytest.raises(UsageError, match="row 1 of the batch has in text, which is a string, what Python"):
        encode(rows)


TWICE: Final[dict[str, tuple[pa.DataType, Any, Any]]] = {
    "map": (pa.map_(pa.string(), pa.int64()), [("k", 1)], [("k", 1), ("l", 2), ("k", 3)]),
    "the same item": (pa.map_(pa.string(), pa.int64()), [], [("k", 1), ("k", 1)]),
    "zeros": (pa.map_(pa.float64(), pa.int64()), [(0.0, 1)], [(0.0, 1), (-0.0, 2)]),
    "in a list": (
        pa.list_(pa.map_(pa.string(), pa.int64())),
        [[], [("k", 1)]],
        [[], [("k", 1), ("k", 2)]],
    ),
    "in a struct": (
        pa.struct([("m", pa.map_(pa.string(), pa.int64()))]),
        {"m": [("k", 1)]},
        {"m": [("k", 1), ("k", 2)]},
    ),
    "in a map": (
        pa.map_(pa.string(), pa.map_(pa.int64(), pa.int64())),
        [("k", [(1, 1)])],
        [("k", [(1, 1), (1, 2)])],
    ),
    "a key of lists": (pa.map_(pa.list_(pa.int64()), pa.int64()), [], [([1], 1)]),
    "a key of structs": (pa.map_(pa.struct([("a", pa.int64())]), pa.int64()), [], [({"a": 1}, 1)]),
}


@pytest.mark.parametrize("encode", [json_values, python_rows])
@pytest.mark.parametrize("name", TWICE)
def test_a_map_of_which_a_dict_would_lose_an_item_is_named_by_its_row(name: str, encode: Any) -> None:
    """D3226: `from_json` makes such a map of ``{"k": 1, "k": 2}``; the last item stayed alone."""
    kind, good, bad = TWICE[name]
    rows = pa.table({"v": pa.array([good, None, bad, good], kind)})
    with pytest.raises(UsageError, match=r"row 8002 of the batch has in v, which is a .*map<"):
        encode(rows, 8_000)
    assert len(encode(rows.slice(0, 2), 0)) == 2
