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

_SECOND = np.uint64(0x5851F42D4C957F2D)
"""Makes the second choice of a partial key independent of the first."""

_NULL = np.uint64(zlib.crc32(b"None"))


def tasks_for(
    kind: Kind,
    tasks: int,
    keys: U64 | None,
    deliveries: Sequence[tuple[Delivery, ...]],
    rows_before: int = 0,
) -> I64:
    """Return the task of each row, 0 up to `tasks`, one for one.

    Args:
        kind: the grouping; ALL and DIRECT name their tasks themselves.
        keys: `value_keys` of the grouping's fields, for groupings that have some.
        deliveries: each row's place in its trees; a row without one is dealt out by turns.
        rows_before: rows without a place that were dealt out before.
    """
    rows = len(deliveries)
    if kind is Kind.GLOBAL or tasks == 1:
        return np.zeros(rows, np.int64)
    if keys is None:
        return modulo(_place_numbers(deliveries, rows_before), tasks)
    if kind is Kind.FIELDS:
        return modulo(keys, tasks)
    # PARTIAL_KEY: a key has two tasks, and a tuple's place decides between them
    other_keys = keys + _SECOND
    mix64_in_place(other_keys)
    first_choice = modulo(keys, tasks)
    second_choice = modulo(other_keys, tasks - 1)
    # among the tasks that are not the first choice: with 2 as first, 0, 1, 2 become 0, 1, 3
    second_choice += second_choice >= first_choice
    is_odd = _place_numbers(deliveries, rows_before) & np.uint64(1)
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
    """Return a number for each value of a column, by its text: of each distinct one once, where Arrow can."""
    if pa.types.is_integer(column.type):
        numbers = np.asarray(column.fill_null(0)).astype(np.uint64)
        if column.null_count:
            numbers[np.asarray(column.is_null())] = _NULL
        return numbers
    if pa.types.is_floating(column.type):
        column = pc.add(column, pa.scalar(0, column.type))  # -0.0 equals 0.0, and has another text
    try:
        coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    except pa.ArrowNotImplementedError:  # lists and structs
        return _text_numbers(column)
    # null has the index behind the last value
    indices = coded.indices.fill_null(len(coded.dictionary)).to_numpy(zero_copy_only=False)
    distinct_numbers = np.append(_text_numbers(coded.dictionary), _NULL)
    numbers_by_row: U64 = distinct_numbers[indices]
    return numbers_by_row


def _text_numbers(column: pa.Array) -> U64:
    """Return the CRC-32 of each value's text, as Python writes it."""
    try:
        values = column.to_pylist()
    except (ValueError, OverflowError):
        # one has no form in Python, and one tuple must not end the query
        values = [_value_or_none(scalar) for scalar in column]
    return np.fromiter((zlib.crc32(repr(value).encode()) for value in values), np.uint64, len(values))


def _value_or_none(scalar: pa.Scalar) -> object:
    """Return a value; None: it has no form in Python, such as a time after the year 9999."""
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return None


def _place_numbers(deliveries: Sequence[tuple[Delivery, ...]], rows_before: int) -> U64:
    """Return a number for each row by the first of its places.

    One without a place is dealt out by turns.
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
    """Return the remainders of numbers by `tasks`, below 2**63.

    NumPy divides many numbers by one at a time, and takes remainders one by one: so each is the
    number less the multiple.
    """
    multiples = numbers // np.uint64(tasks)
    multiples *= np.uint64(tasks)
    remainders: I64 = np.subtract(numbers, multiples, out=multiples).view(np.int64)
    return remainders
