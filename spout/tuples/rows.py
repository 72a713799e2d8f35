"""Rows from which tuples read: emitted lists and Arrow batches; and the
conversion from lists to Arrow.

Rows of a topic are in `spout.tuples.messages`. A value is converted when a
bolt first reads it.
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
from spout.tuples.tuple import (
    SPARK,
    MessageId,
    StreamId,
    Tuple,
    short_repr,
    text_of,
    values_in_order,
)

ARRAY_BYTES_MAX: Final = (1 << 31) - 2
"""All texts of one Arrow array have at most so many bytes together."""

FindId = Callable[[int], MessageId]
"""Returns the message id of a row, by the row's number."""


def unknown_id(row: int) -> NoReturn:
    """Raise `MessageIdUnknown`: this is the `FindId` of rows whose message ids are not available.

    Of them only the places in their trees are known.
    """
    raise MessageIdUnknown(
        "message_id is known in the bolts directly behind read_stream only; let one of those emit"
        f" what is needed (tuple.message_id.origin, an ordinal) as fields (row {row})"
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

        Args:
            names: see the attribute.
            rows: each row's values, in the order of `names`.
            find_id: the attribute `message_id`.
            came_from: see the attribute.
            batch: the same rows in the types of the bolt's output; None:
                nobody behind the bolt reads Arrow.
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
            why = "since no ArrowBolt reads them"
            raise TypeError(f"the rows of {self.came_from} were not converted, {why}")
        return self._batch if fields is None else self._batch.select(list(fields))


def tuple_of(values: Mapping[str, Any], *, origin: str | None = None, attempt: int = 1) -> Tuple:
    """Return a tuple of these values, to call a bolt in a test.

    >>> line = spout.tuple_of({"value": b"the hawk"}, origin="sentences/3@1042", attempt=2)
    >>> line["value"], line.message_id.origin, line.message_id.attempt
    (b'the hawk', 'sentences/3@1042', 2)

    Without an `origin` it has no `message_id`, as in a bolt that is not
    directly behind `read_stream`.
    """

    def id_of_only_row(_row: int) -> MessageId:
        return MessageId(
            root=Root(Source(0), Position(0)),
            attempt=attempt,
            origin=origin or "",
            first_emitted_ms=None,
            record_id=origin or "",
        )

    find_id = unknown_id if origin is None else id_of_only_row
    rows = ListRows(names=tuple(values), rows=[tuple(values.values())], find_id=find_id)
    return Tuple(rows, row=0)


class ArrowRows:
    """Rows of an Arrow batch; a column becomes a list when its first value is used.

    Attributes:
        batch: the columns.
        places: the place of each row in its tree; None: the batch has a
            column of anchors instead, or the places are not known.
        names, came_from, message_id: as of `ListRows`.
    """

    __slots__ = (
        "_unlisted_columns",
        "_values_by_column",
        "batch",
        "came_from",
        "message_id",
        "names",
        "places",
    )

    def __init__(
        self,
        batch: pa.RecordBatch,
        find_id: FindId = unknown_id,
        came_from: StreamId = SPARK,
        places: Places | None = None,
    ) -> None:
        """Take a batch; `find_id` is the attribute `message_id`."""
        self.batch = batch
        self.places = places
        self.came_from = came_from
        self.message_id = find_id
        self.names: Sequence[str] = batch.schema.names
        self._values_by_column: dict[str, list[Any]] = {}
        # Columns with a value that Python cannot represent, by name. They
        # become no list: each of their values is converted by itself.
        self._unlisted_columns: set[str] = set()

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
        if name not in self._unlisted_columns:
            try:
                values = column.to_pylist()
            except CONVERSION_ERRORS:
                self._unlisted_columns.add(name)
            else:
                self._values_by_column[name] = values
                return values[row]
        try:  # this value alone, so that only the tuple fails whose value cannot be represented
            return column[row].as_py()
        except CONVERSION_ERRORS:
            # in UTC a time may be within Python's calendar; a text that is no UTF-8 raises again
            return column.slice(row, 1).cast(with_zone(column.type, "UTC"))[0].as_py()

    def arrow(self, fields: Sequence[str] | None) -> pa.RecordBatch:
        """Return the named columns; None: all."""
        return self.batch if fields is None else self.batch.select(list(fields))


class Misfit(NamedTuple):
    """The number of an emitted row that does not fit the bolt's output, and why not."""

    row: int
    error: BaseException


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
        fields = ", ".join(schema.names)
        raise ValueError(f"emitted {len(columns)} values where the output is {fields}")
    arrays = [_array(column, field, bolt) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: Sequence[Any], field: pa.Field, bolt: str) -> pa.Array:
    """Return the values of a field as an array; errors as `batch_of`."""
    array = pa.array(exact_values(values, field.type), field.type)
    if isinstance(array, pa.ChunkedArray):  # what PyArrow builds if one array has no room for all
        raise _too_large_error(bolt, len(values), array.nbytes, field.name)
    check_nulls(bolt, field, array)
    return array


def _too_large_error(bolts: str, row_count: int, size_bytes: int, field: str = "") -> TupleError:
    """Build the error for tuples of which a column has more than `ARRAY_BYTES_MAX`.

    `field`: the name of the column; empty: of all columns together.
    """
    as_field = f" as {field!r}" if field else ""
    return TupleError(
        f"bolt {bolts!r} emitted {row_count:,} tuples of {size_bytes:,} bytes{as_field} at once,"
        f" and one column has room for {ARRAY_BYTES_MAX:,}: emit smaller tuples, or fewer for one"
        " record, or give a batch fewer records (maxOffsetsPerTrigger)"
    )


def one_batch(batches: Sequence[pa.RecordBatch], schema: pa.Schema, bolts: str) -> pa.RecordBatch:
    """Return batches of one schema as one.

    `bolts`: the name or names of those that emitted the rows, for the error.

    Raises `TupleError`: they are too large for one batch.
    """
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=schema)
    try:
        return pa.concat_batches(batches)
    except pa.ArrowInvalid as error:
        row_count = sum(batch.num_rows for batch in batches)
        size_bytes = sum(batch.nbytes for batch in batches)
        raise _too_large_error(bolts, row_count, size_bytes) from error


def misfits(rows: Sequence[Sequence[Any]], schema: pa.Schema, bolt: str) -> list[Misfit]:
    """Return the rows that `batch_of` cannot convert, each with its error;
    `bolt` emitted them.
    """
    unfit_rows: list[Misfit] = []
    for number, row in enumerate(rows):
        try:
            batch_of([row], schema, bolt)
        except BaseException as error:  # noqa: BLE001 - values of the user have code of the user
            # compared with None: an error of the user's class may have a truth of its own
            clearer_error: BaseException | None = size_error(row, schema.names, bolt)
            if clearer_error is None:
                clearer_error = _value_error(row, schema, bolt)
            unfit_rows.append(Misfit(number, error if clearer_error is None else clearer_error))
    return unfit_rows


def _value_error(row: Sequence[Any], schema: pa.Schema, bolt: str) -> BaseException | None:
    """Return an error that names the first value of a row that does not fit
    its field; None: all fit.

    The error keeps the class of PyArrow's error.
    """
    from spout.spark.arrow_types import spark_type_of  # only where something does not fit

    for value, field in zip(row, schema, strict=True):
        try:
            pa.array(exact_values([value], field.type), field.type)
        except BaseException as error:  # noqa: BLE001 - as in `misfits`
            spark_type = spark_type_of(field.type).simpleString()
            message = (
                f"bolt {bolt!r} emitted {short_repr(value)}, a {type(value).__name__},"
                f" as {field.name!r}, which is {spark_type}: {text_of(error)}"
            )
            return with_message(error, message)
    return None


def with_message(error: BaseException, message: str) -> BaseException:
    """Return an error of the same class with another message.

    The class stays, since the user's rules for failed tuples name classes.
    Where it takes more than a message, the error is a `ValueError`.
    """
    try:
        return type(error)(message)
    except BaseException:  # noqa: BLE001 - as UnicodeEncodeError does
        return ValueError(message)


def put_in_order(rows: list[Sequence[Any]], fields: Sequence[str], bolt: str) -> list[Misfit]:
    """Put the values of each row into the order of the fields, in place;
    return the rows that are refused.

    Example: of the fields word and count, ``{"count": 2, "word": "hawk"}``
    becomes ``("hawk", 2)``.

    It is called once for many emissions, because a call for each one would
    cost as much as the tuple itself. So a list or mapping that was emitted
    more than once is refused: it may have changed in between. What is no row
    at all (a set, a text) is refused, too.
    """
    # the most frequent cases, which need no look at each row: all are tuples,
    # or tuples and different lists
    if countOf(map(type, rows), tuple) == len(rows):
        return []
    if {tuple, list}.issuperset(map(type, rows)) and len(set(map(id, rows))) == len(rows):
        return []
    # a tuple may be there twice, since it cannot change
    times_emitted_by_id = Counter(id(row) for row in rows if isinstance(row, list | Mapping))
    refused_rows: list[Misfit] = []
    for number, row in enumerate(rows):
        try:
            times_emitted = times_emitted_by_id.get(id(row), 0)
            if times_emitted > 1:
                class_name = type(row).__name__
                raise TupleError(
                    f"bolt {bolt!r} emitted one {class_name} {times_emitted} times, which may have"
                    f" changed in between; emit a new one each time, as {class_name}(row)"
                )
            rows[number] = values_in_order(row, fields, bolt)
        except BaseException as error:  # noqa: BLE001 - rows of the user have code of the user
            refused_rows.append(Misfit(number, error))
    return refused_rows


def rows_of_wrong_size(
    rows: Sequence[Sequence[Any]],
    fields: Sequence[str],
    bolt: str,
) -> list[Misfit]:
    """Return the rows that do not have exactly one value for each field, each with its error."""
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
