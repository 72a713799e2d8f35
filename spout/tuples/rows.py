"""Rows from which tuples read: emitted lists and Arrow batches; and the
conversion from lists to Arrow.

Rows of a topic are in `spout.tuples.messages`. A value is converted when
somebody uses it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Sized
from operator import countOf
from typing import Any, Final, NamedTuple, NoReturn

import pyarrow as pa

from acker.errors import MessageIdUnknown, TupleError
from acker.identity import Position, Root, Source
from spout.tuples.casts import check_nulls, with_zone
from spout.tuples.exact import CONVERSION_ERRORS, exact_values
from spout.tuples.places import Places
from spout.tuples.tuple import SPARK, MessageId, StreamId, Tuple, short_repr, text_of, values_in_order

ARRAY_BYTES_MAX: Final = (1 << 31) - 2
"""Bytes of the texts of one Arrow array."""

FindId = Callable[[int], MessageId]
"""Returns the message id of a row."""


def unknown_id(row: int) -> NoReturn:
    """Raise for a row whose message id is not available, only its place in a tree."""
    raise MessageIdUnknown(
        "message_id is known in the bolts directly behind read_stream only; let one of those emit what is"
        f" needed (tuple.message_id.origin, an ordinal) as fields (row {row})"
    )


class ListRows:
    """Rows that a bolt emitted, as lists of values.

    Attributes:
        names: of the fields, in the order of each row's values.
        came_from: the stream that the rows were emitted on.
        message_id: returns what a row descends from, by its number.
    """

    __slots__ = ("_batch", "_index_by_name", "_rows", "came_from", "message_id", "names")

    def __init__(
        self,
        names: Sequence[str],
        rows: Sequence[Sequence[Any]],
        find_id: FindId = unknown_id,
        came_from: StreamId = SPARK,
        batch: pa.RecordBatch | None = None,
    ) -> None:
        """Take emitted rows.

        `batch`: the same rows in the types of the bolt's output; None: nobody
        behind the bolt reads Arrow.
        """
        self.names = names
        self.came_from = came_from
        self.message_id = find_id
        self._index_by_name = {name: index for index, name in enumerate(names)}
        self._rows = rows
        self._batch = batch

    def __len__(self) -> int:
        return len(self._rows)

    def value(self, name: str, row: int) -> Any:
        return self._rows[row][self._index_by_name[name]]

    def arrow(self, fields: Sequence[str] | None) -> pa.RecordBatch:
        if self._batch is None:
            raise TypeError(f"the rows of {self.came_from} were not converted, since no ArrowBolt reads them")
        return self._batch if fields is None else self._batch.select(list(fields))


def tuple_of(values: Mapping[str, Any], *, origin: str | None = None, attempt: int = 1) -> Tuple:
    """Return a tuple of these values, to call a bolt in a test.

    >>> line = spout.tuple_of({"value": b"the hawk"}, origin="sentences/3@1042", attempt=2)
    >>> line["value"], line.message_id.origin, line.message_id.attempt
    (b'the hawk', 'sentences/3@1042', 2)

    Without an `origin` it has no `message_id`, as in a bolt that is not
    directly behind `read_stream`.
    """
    message_id = MessageId(Root(Source(0), Position(0)), attempt, origin or "", None, origin or "")
    find_id = unknown_id if origin is None else lambda _row: message_id
    return Tuple(ListRows(tuple(values), [tuple(values.values())], find_id), 0)


class ArrowRows:
    """Rows of an Arrow batch; a column becomes a list when its first value is used.

    Attributes:
        batch: the columns.
        places: of the rows in the trees of their roots; None: the batch has a
            column of them, or nobody knows them.
        names, came_from, message_id: as of `ListRows`.
    """

    __slots__ = ("_odd_columns", "_values_by_column", "batch", "came_from", "message_id", "names", "places")

    def __init__(
        self,
        batch: pa.RecordBatch,
        find_id: FindId = unknown_id,
        came_from: StreamId = SPARK,
        places: Places | None = None,
    ) -> None:
        """Take a batch; see the attributes."""
        self.batch = batch
        self.places = places
        self.came_from = came_from
        self.message_id = find_id
        self.names: Sequence[str] = batch.schema.names
        self._values_by_column: dict[str, list[Any]] = {}
        # names of the columns with a value that Python has no form of: these
        # are read value by value
        self._odd_columns: set[str] = set()

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def value(self, name: str, row: int) -> Any:
        """Return one value of a column.

        A time has the column's zone, that of the session. It is in UTC where
        the calendar of Python has no such day in that zone, or Python does
        not know the zone.

        Raises `ValueError` or `OverflowError`: the value is a text that is no
        UTF-8, or a time beyond the year 9999.
        """
        values = self._values_by_column.get(name)
        if values is not None:
            return values[row]
        column = self.batch.column(name)
        if name not in self._odd_columns:
            try:
                values = column.to_pylist()
            except CONVERSION_ERRORS:
                self._odd_columns.add(name)
            else:
                self._values_by_column[name] = values
                return values[row]
        try:  # one by one, so that only the tuple fails whose value it is
            return column[row].as_py()
        except CONVERSION_ERRORS:
            # a time may have a form in UTC; of a text that is no UTF-8 this raises again
            return column.slice(row, 1).cast(with_zone(column.type, "UTC"))[0].as_py()

    def arrow(self, fields: Sequence[str] | None) -> pa.RecordBatch:
        """Return the named columns; None: all."""
        return self.batch if fields is None else self.batch.select(list(fields))


class Misfit(NamedTuple):
    """An emitted row that does not fit the bolt's output."""

    row: int
    error: Exception


def batch_of(rows: Sequence[Sequence[Any]], schema: pa.Schema, bolt: str) -> pa.RecordBatch:
    """Turn rows that a bolt emitted into an Arrow batch.

    Raises:
        TupleError: all together are too large for an Arrow array.
        Exception: a row has other values, or of another type. It may be any
            exception, since a value may have code of its own, as a time has
            that of its zone.
    """
    if not rows:
        return pa.RecordBatch.from_pylist([], schema=schema)
    if len(schema) == 1:
        column = _array([value for (value,) in rows], schema[0], bolt)
        return pa.RecordBatch.from_arrays([column], schema=schema)
    columns = list(zip(*rows, strict=True))
    if len(columns) != len(schema):
        raise ValueError(f"emitted {len(columns)} values where the output is {', '.join(schema.names)}")
    arrays = [_array(column, field, bolt) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: Sequence[Any], field: pa.Field, bolt: str) -> pa.Array:
    """Return the values of a field as an array; errors as `batch_of`."""
    array = pa.array(exact_values(values, field.type), field.type)
    if isinstance(array, pa.ChunkedArray):
        raise too_large(bolt, len(values), array.nbytes, f" as {field.name!r}")
    check_nulls(bolt, field, array)
    return array


def too_large(bolts: str, rows: int, size: int, what: str = "") -> TupleError:
    """Build the error for tuples of which a column has more than `ARRAY_BYTES_MAX`."""
    return TupleError(
        f"bolt {bolts!r} emitted {rows:,} tuples of {size:,} bytes{what} at once, and one column has room for"
        f" {ARRAY_BYTES_MAX:,}: emit smaller tuples, or fewer for one record, or give a batch fewer records"
        " (maxOffsetsPerTrigger)"
    )


def one_batch(parts: Sequence[pa.RecordBatch], schema: pa.Schema, bolts: str) -> pa.RecordBatch:
    """Return batches of one schema, which bolts emitted, as one;
    `TupleError`: they are too large for it.
    """
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return pa.RecordBatch.from_pylist([], schema=schema)
    try:
        return pa.concat_batches(parts)
    except pa.ArrowInvalid as error:
        row_count = sum(part.num_rows for part in parts)
        size_bytes = sum(part.nbytes for part in parts)
        raise too_large(bolts, row_count, size_bytes) from error


def misfits(rows: Sequence[Sequence[Any]], schema: pa.Schema, bolt: str) -> list[Misfit]:
    """Find the rows that `batch_of` cannot convert, each with its error;
    `bolt` emitted them.
    """
    unfit: list[Misfit] = []
    for number, row in enumerate(rows):
        try:
            batch_of([row], schema, bolt)
        except Exception as error:  # noqa: BLE001 - values of the user, which have code of the user
            clearer_error = size_error(row, schema.names, bolt) or _value_error(row, schema, bolt)
            unfit.append(Misfit(number, clearer_error or error))
    return unfit


def _value_error(row: Sequence[Any], schema: pa.Schema, bolt: str) -> Exception | None:
    """Return an error that names the first value of a row that does not fit
    its field; None: all fit.

    The error keeps the class of PyArrow's error.
    """
    from spout.spark.arrow_types import spark_type_of  # only where something does not fit

    for value, field in zip(row, schema, strict=True):
        try:
            pa.array(exact_values([value], field.type), field.type)
        except Exception as error:  # noqa: BLE001 - as in `misfits`
            message = (
                f"bolt {bolt!r} emitted {short_repr(value)}, a {type(value).__name__}, as {field.name!r},"
                f" which is {spark_type_of(field.type).simpleString()}: {text_of(error)}"
            )
            return with_message(error, message)
    return None


def with_message(error: Exception, message: str) -> Exception:
    """Return an error of the same class with another message, since rules for
    causes name classes.

    It is a `ValueError` where that class takes more than a message.
    """
    try:
        return type(error)(message)
    except Exception:  # noqa: BLE001 - as UnicodeEncodeError does
        return ValueError(message)


def in_order(rows: list[Sequence[Any]], fields: Sequence[str], bolt: str) -> list[Misfit]:
    """Put emissions by field name into the order of the fields, in place;
    return those that are no rows.

    It is called once for many rows, because a call for each emission would
    cost as much as the tuple itself. So a list or mapping that was emitted
    more than once is refused: it may have changed in between.

    Example: of the fields word and count, ``{"count": 2, "word": "hawk"}``
    becomes ``("hawk", 2)``.
    """
    # the most frequent cases, which need no look at each row: all are tuples,
    # or tuples and different lists
    if countOf(map(type, rows), tuple) == len(rows):
        return []
    if {tuple, list}.issuperset(map(type, rows)) and len(set(map(id, rows))) == len(rows):
        return []
    # a tuple may be there twice, since it cannot change
    times_emitted = Counter(id(row) for row in rows if isinstance(row, list | Mapping))
    refused: list[Misfit] = []
    for number, row in enumerate(rows):
        try:
            if times_emitted.get(id(row), 0) > 1:
                kind = type(row).__name__
                raise TupleError(
                    f"bolt {bolt!r} emitted one {kind} {times_emitted[id(row)]} times, which may have changed"
                    f" in between; emit a new one each time, as {kind}(row)"
                )
            rows[number] = values_in_order(row, fields, bolt)
        except Exception as error:  # noqa: BLE001 - rows of the user, which have code of the user
            refused.append(Misfit(number, error))
    return refused


def missized(rows: Sequence[Sequence[Any]], fields: Sequence[str], bolt: str) -> list[Misfit]:
    """Find the rows that do not have exactly one value for each field, each with its error."""
    try:
        if set(map(len, rows)) <= {len(fields)}:
            return []
    except TypeError:
        pass  # one of them is no row at all
    errors = [size_error(row, fields, bolt) for row in rows]
    return [Misfit(number, error) for number, error in enumerate(errors) if error is not None]


def size_error(row: Any, fields: Sequence[str], bolt: str) -> TupleError | None:
    """Build the error for an emission without exactly one value for each
    field; None: it has them.
    """
    size = len(row) if isinstance(row, Sized) else -1  # -1: a single value, no row
    if size == len(fields):
        return None
    return TupleError(f"bolt {bolt!r} emitted {size} values, whose fields are {', '.join(fields)}")
