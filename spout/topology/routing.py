"""Which task a tuple goes to: Storm's groupings over a batch of rows; pure.

A choice depends on the tuple alone (its fields, or its place in its trees), never on what was sent before:
Spark may run a task again, and its tuples must take the same ways, or some would be lost and others doubled.
Storm's partial key grouping looks at the load instead; here a tuple's place in its tree decides between its
two tasks, which splits a hot key evenly as well.

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
from spout.tuples.places import Places, number_of
from spout.tuples.tuple import Delivery

_SECOND = np.uint64(0x5851F42D4C957F2D)
"""Makes the second choice of a partial key independent of the first."""

_NULL = np.uint64(zlib.crc32(b"None"))


def tasks_for(
    kind: Kind, tasks: int, keys: U64 | None, deliveries: Sequence[tuple[Delivery, ...]], first: int = 0
) -> I64:
    """Return the task of each row, 0 up to `tasks`, one for one.

    Args:
        kind: the grouping; ALL and DIRECT name their tasks themselves.
        keys: `value_keys` the grouping's fields, for groupings that have some.
        deliveries: each row's place in its trees; a row without one is dealt out by turns.
        first: rows without a place that were dealt out before.
    """
    rows = len(deliveries)
    if kind is Kind.GLOBAL or tasks == 1:
        return np.zeros(rows, np.int64)
    if keys is None:
        return modulo(_places(deliveries, first), tasks)
    if kind is Kind.FIELDS:
        return modulo(keys, tasks)
    other = keys + _SECOND
    mix64_in_place(other)
    one, two = modulo(keys, tasks), modulo(other, tasks - 1)
    two += two >= one  # among the tasks that are not the first choice
    chosen: I64 = np.where(_places(deliveries, first) & np.uint64(1), one, two)
    return chosen


def value_keys(batch: pa.RecordBatch, fields: Iterable[str]) -> U64:
    """Return a number for the values of fields in each row: equal values have one number, in any batch."""
    keys = np.zeros(batch.num_rows, np.uint64)
    for name in fields:
        keys += _values(batch.column(name))
        mix64_in_place(keys)
    return keys


def _values(column: pa.Array) -> U64:
    """Number the values of a column by their text, each distinct one once where Arrow can tell."""
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
        return _numbers(column)
    indices = coded.indices.fill_null(len(coded.dictionary)).to_numpy(zero_copy_only=False)
    found: U64 = np.append(_numbers(coded.dictionary), _NULL)[indices]
    return found


def _numbers(column: pa.Array) -> U64:
    try:
        values = column.to_pylist()
    except (ValueError, OverflowError):  # one has no form in Python, and one tuple must not end the query
        values = [_value_or_none(each) for each in column]
    return np.fromiter((zlib.crc32(repr(value).encode()) for value in values), np.uint64, len(values))


def _value_or_none(scalar: pa.Scalar) -> object:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return None


def _places(deliveries: Sequence[tuple[Delivery, ...]], first: int) -> U64:
    """Number each row by the first of its places; one without a place is dealt out by turns."""
    if isinstance(deliveries, Places):
        mixed = deliveries.numbers()
        mix64_in_place(mixed)
        return mixed
    turns = iter(range(first, first + len(deliveries)))
    numbers = (mix64(number_of(each[0])) if each else next(turns) for each in deliveries)
    return np.fromiter(numbers, np.uint64, len(deliveries))


def modulo(numbers: U64, tasks: int) -> I64:
    """Take the remainders; NumPy divides by one number many at a time, and takes remainders one by one."""
    whole = numbers // np.uint64(tasks)
    whole *= np.uint64(tasks)
    found: I64 = np.subtract(numbers, whole, out=whole).view(np.int64)
    return found
