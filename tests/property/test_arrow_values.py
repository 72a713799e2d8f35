"""Values of Arrow: those that Python has are Python's, and all have a text and are keys of a map."""

from __future__ import annotations

import math

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spout.tuples.casts import cell_text
from spout.tuples.exact import map_keys, python_values
from spout.tuples.rows import with_message

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The ends of Python's calendar."""


@given(st.lists(INT64 | st.none() | st.integers(FIRST_US, LAST_US), max_size=20))
def test_a_time_is_pythons_where_python_has_it_and_always_has_a_text_and_a_key(
    micros: list[int | None],
) -> None:
    """O807, O809: also beside one that Python has not."""
    column = pa.array(micros, pa.int64()).cast(pa.timestamp("us"))
    for row, (us, value) in enumerate(zip(micros, python_values(column), strict=True)):
        assert isinstance(value, pa.Scalar) is (us is not None and not FIRST_US <= us <= LAST_US)
        assert cell_text(column, row)
    assert map_keys(column) == micros
    assert map_keys(pa.StructArray.from_arrays([column], ["at"])) == [(us,) for us in micros]


@given(st.lists(st.floats(), max_size=20))
def test_floats_are_one_key_where_they_are_equal_or_no_numbers(numbers: list[float]) -> None:
    """O809: NaN is one key, and so are 0.0 and -0.0."""
    distinct = {number for number in numbers if not math.isnan(number)}
    no_numbers = any(map(math.isnan, numbers))
    assert len(set(map_keys(pa.array(numbers, pa.float64())))) == len(distinct) + no_numbers


@given(st.text(), st.sampled_from([ValueError("a"), OverflowError("b"), pa.ArrowInvalid("c")]))
def test_an_error_keeps_its_class_with_another_message(text: str, error: Exception) -> None:
    """And one whose class takes more than a message becomes a `ValueError`."""
    assert type(with_message(error, text)) is type(error)
    assert str(with_message(error, text)) == text
    no_text = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid")
    assert type(with_message(no_text, text)) is ValueError
