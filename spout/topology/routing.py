"""Which task a tuple goes to: Storm's groupings over a batch of rows; pure.

A choice depends on the tuple alone (its fields, or its place in its trees), never on what was
sent before: Spark may run a task again, and its tuples must take the same ways, or some would
be lost and others doubled. Storm's partial key grouping looks at the load instead; here a
tuple's place in its tree decides between its two tasks, which splits a hot key evenly as well.

Source: docs/design/protocol.md, section 2 ("Ids are deterministic"); Storm's ``FieldsGrouper``,
``PartialKeyGrouping``.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acker.identity import I64, U64, mix64, mix64_in_place
from spout.topology.graph import Kind
from spout.tuples.places import Places, place_number
from spout.tuples.tuple import Delivery

_SECOND_CHOICE = np.uint64(0x5851F42D4C957F2D)
"""Is added to a key's number, which is mixed then: so the second choice is independent of the
first.
"""

_NULL_NUMBER = np.uint64(zlib.crc32(b"None"))
"""The number of a null, as the text None would have it."""


def tasks_for(
    kind: Kind,
    task_count: int,
    keys: U64 | None,
    places: Sequence[tuple[Delivery, ...]],
    rows_before: int = 0,
) -> I64:
    """Return the task of each row, 0 up to `task_count`, one for one.

    Args:
        kind: the grouping; ALL and DIRECT name their tasks themselves.
        task_count: of the bolt that receives the rows.
        keys: `value_keys` of the grouping's fields; None: the grouping names no fields.
        places: each row's place in its trees; rows without one go to the tasks by turns.
        rows_before: how many rows without a place went to tasks before.
    """
    if kind is Kind.GLOBAL or task_count == 1:
        return np.zeros(len(places), np.int64)
    # a shuffle: the place of a tuple decides
    if keys is None:
        return modulo(_place_numbers(places, rows_before), task_count)
    if kind is Kind.FIELDS:
        return modulo(keys, task_count)
    # PARTIAL_KEY: a key has two tasks, so that a frequent one does not load one task alone, and a
    # tuple's place decides between them
    second_keys = keys + _SECOND_CHOICE
    mix64_in_place(second_keys)
    first_choice = modulo(keys, task_count)
    second_choice = modulo(second_keys, task_count - 1)
    # one of the tasks that are not the first choice: with 2 as first, 0, 1, 2 become 0, 1, 3
    is_behind_first = second_choice >= first_choice
    second_choice += is_behind_first
    is_odd = _place_numbers(places, rows_before) & np.uint64(1)
    chosen: I64 = np.where(is_odd, first_choice, second_choice)
    return chosen


def value_keys(batch: pa.RecordBatch, fields: Iterable[str]) -> U64:
    """Return a number for the values of fields in each row: equal values have one number, in any batch."""
    keys = np.zeros(batch.num_rows, np.uint64)
    for name in fields:
        keys += _value_numbers(batch.column(name))
        mix64_in_place(keys)
    return keys


def _value_numbers(column: pa.Array) -> U64:
    """Return a number for each value of a column; equal values have equal numbers.

    An integer is its own number. Of any other value it is the CRC-32 of its text, which is computed
    once for each distinct value where Arrow can find these.
    """
    if pa.types.is_integer(column.type):
        numbers = np.asarray(column.fill_null(0)).astype(np.uint64)
        if column.null_count:
            numbers[np.asarray(column.is_null())] = _NULL_NUMBER
        return numbers
    if pa.types.is_floating(column.type):
        column = pc.add(column, pa.scalar(0, column.type))  # -0.0 equals 0.0, and has another text
    try:
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    except pa.ArrowNotImplementedError:  # lists and structs
        return _text_numbers(column)
    # null has the index behind the last value
    indices = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)
    distinct_numbers = np.append(_text_numbers(encoded.dictionary), _NULL_NUMBER)
    row_numbers: U64 = distinct_numbers[indices]
    return row_numbers


def _text_numbers(column: pa.Array) -> U64:
    """Return the CRC-32 of each value's text, as Python writes it."""
    try:
        values = column.to_pylist()
    except (ValueError, OverflowError):
        # Python cannot represent one of them, and one tuple must not end the query
        values = [_value_or_none(scalar) for scalar in column]
    return np.fromiter((zlib.crc32(repr(value).encode()) for value in values), np.uint64, len(values))


def _value_or_none(scalar: pa.Scalar) -> object:
    """Return a value; None: Python cannot represent it, such as a time after the year 9999."""
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return None


def _place_numbers(deliveries: Sequence[tuple[Delivery, ...]], rows_before: int) -> U64:
    """Return a number for each row by the first of its places, and rising numbers for rows without
    one.
    """
    if isinstance(deliveries, Places):
        numbers = deliveries.numbers()
        mix64_in_place(numbers)
        return numbers
    dealt_numbers = iter(range(rows_before, rows_before + len(deliveries)))
    numbers_of_rows = (
        mix64(place_number(places[0])) if places else next(dealt_numbers) for places in deliveries
    )
    return np.fromiter(numbers_of_rows, np.uint64, len(deliveries))


def modulo(numbers: U64, tasks: int) -> I64:
    """Return the remainder of each number by `tasks`, which is below 2**63.

    Computed as 17 - 17 // 5 * 5: NumPy has a fast loop for the division of many numbers by one, and
    none for remainders.
    """
    multiples = numbers // np.uint64(tasks)
    multiples *= np.uint64(tasks)
    remainders: I64 = np.subtract(numbers, multiples, out=multiples).view(np.int64)
    return remainders
