"""Makes what a bolt emitted fit its stream: the size of rows, the order of fields, and types.

An emission that does not fit (a *misfit*) fails the input row that it descends from, and nothing
else that was emitted for that row is delivered. The error goes into `misfit_log`. Where nothing is
tracked there is no such log, and the error ends the task, since nobody would replay the input.

Source: docs/design/protocol.md, section 5.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from acker.errors import TupleError
from spout.bolts.bolts import BatchCollector
from spout.bolts.collectors import OutputCollector, Sent
from spout.execution.calls import EmittedRows, RootFailure, RowFailure
from spout.topology.stage_pass import StreamPass
from spout.tuples.casts import cell_text, check_nulls, exact_cast
from spout.tuples.failures import Cause, cause_of_output
from spout.tuples.raised import Tracebacks
from spout.tuples.rows import (
    ARRAY_BYTES_MAX,
    Misfit,
    batch_of,
    misfits,
    put_in_order,
    rows_of_wrong_size,
    with_message,
)
from spout.tuples.tuple import text_of, values_in_order


class Fitted(NamedTuple):
    """Emissions on one stream that fit it.

    `failures`: the input rows that failed, each because a row that was
    emitted for it does not fit.
    """

    emitted: EmittedRows
    failures: list[RowFailure]

    def without_unfit(self, unfit_rows: list[Misfit], misfit_log: Tracebacks | None) -> Fitted:
        """Return the same without all that was emitted for the inputs of rows that do not fit.

        These inputs are failures.

        Args:
            unfit_rows: rows of `emitted`, by number, each with its error.
            misfit_log: gets the errors; None: nothing is tracked.

        Raises the first error if there is one and nothing is tracked.
        """
        if not unfit_rows:
            return self
        if misfit_log is None:
            raise unfit_rows[0].error
        bolt = self.emitted.stream.id.component
        cause_by_input: dict[int, Cause] = {}  # of several causes the first one counts
        for row, error in unfit_rows:
            input_row = int(self.emitted.parents[row])
            cause_by_input.setdefault(input_row, cause_of_output(bolt, error, misfit_log))
        fitting_rows = self.emitted.without_inputs(cause_by_input)
        return Fitted(fitting_rows, [*self.failures, *cause_by_input.items()])

    def as_arrow(self) -> Fitted:
        """Return the same with its rows as Arrow rows, in the types of the stream."""
        stream = self.emitted.stream
        values = self.emitted.values or []
        arrow_rows = batch_of(values, stream.schema, stream.id.component)
        return Fitted(self.emitted._replace(arrow_rows=arrow_rows), self.failures)


def fitted(emitted: EmittedRows, misfit_log: Tracebacks | None) -> Fitted:
    """Return the emissions of one stream that fit it; as Arrow, if it `needs_arrow_rows`.

    Raises:
        TupleError: all together are too large for an Arrow array, and no input row alone is the
            reason: what was emitted for each one fits.
        Exception: one does not fit, and `misfit_log` is None, since nothing is tracked.
    """
    stream = emitted.stream
    if emitted.values is None:  # columns of an Arrow bolt, which `fitted_batches` has made fit
        return Fitted(emitted, [])
    bolt, fields = stream.id.component, stream.schema.names
    # 1. The order of the fields. `put_in_order` changes the values of a row by names, in place, into
    # one by position; it returns what it refuses, as what is no row at all.
    refused_rows = put_in_order(emitted.values, fields, bolt)
    ordered = Fitted(emitted, []).without_unfit(refused_rows, misfit_log)
    values = ordered.emitted.values or []  # never None: see above
    # 2. The size alone, where nobody reads Arrow.
    if not stream.needs_arrow_rows:
        return ordered.without_unfit(rows_of_wrong_size(values, fields, bolt), misfit_log)
    # 3. The types. All rows are converted together, which is fast; only if that fails it is
    # asked which of them do not fit.
    try:
        return ordered.as_arrow()
    except TupleError as error:
        # every row fits, but together they are too large for an array
        unfit_rows = _rows_of_too_large_inputs(ordered.emitted, values, error)
        if not unfit_rows:
            raise
    except BaseException:  # noqa: BLE001 - values of the user, which have code of the user
        unfit_rows = misfits(values, stream.schema, bolt)
    return ordered.without_unfit(unfit_rows, misfit_log).as_arrow()


def _rows_of_too_large_inputs(
    emitted: EmittedRows, values: Sequence[Sequence[Any]], error: TupleError
) -> list[Misfit]:
    """Return the emitted rows of each input row for which more was emitted than an array can have.

    `error`: which all of them get.
    """
    stream, parents = emitted.stream, emitted.parents
    row_bytes = [batch_of([row], stream.schema, stream.id.component).nbytes for row in values]
    bytes_by_input = np.bincount(parents, row_bytes)
    is_of_too_large_input = bytes_by_input[parents] > ARRAY_BYTES_MAX
    return [Misfit(row, error) for row in np.flatnonzero(is_of_too_large_input).tolist()]


class FittedSent(NamedTuple):
    """Emissions of an `OutputCollector` on one stream that fit it.

    Attributes:
        arrow_rows: the same as Arrow rows, where `StreamPass.needs_arrow_rows`; else None.
        failures: the roots that failed, by their index in the plan, each
            because an emission that descends from it does not fit.
    """

    arrow_rows: pa.RecordBatch | None
    sent: Sequence[Sent]
    failures: list[RootFailure]


def fitted_sent(
    stream: StreamPass,
    sent: Sequence[Sent],
    misfit_log: Tracebacks | None,
) -> FittedSent:
    """Return what an `OutputCollector` has sent that fits its stream, and failures for the rest.

    Raises `Exception`: one does not fit, and `misfit_log` is None, since nothing is
    tracked; or it is unanchored.
    """
    # An emission has any number of anchors, not one input row. So for `fitted` each one is its own
    # input: emission 3 descends from input row 3, and fails alone.
    values = [emission.values for emission in sent]
    fit = fitted(EmittedRows(stream, values, parents=np.arange(len(sent))), misfit_log)
    root_failures: list[RootFailure] = []
    for emission_number, cause in fit.failures:
        roots = _roots_of_anchors(sent[emission_number])
        if not roots:
            output = "its output" if stream.on_frame else f"stream {stream.id.stream!r}"
            raise TupleError(
                f"bolt {cause.operator!r} emitted, unanchored, what does not fit {output}:"
                f" {cause.message}; no input fails for it, so the query ends: anchor it, and its input"
                " fails alone, or emit what fits"
            )
        root_failures += [(root, cause) for root in roots]
    fitting = sent
    if fit.failures:
        fitting = [sent[emission_number] for emission_number in fit.emitted.parents.tolist()]
    return FittedSent(fit.emitted.arrow_rows, fitting, root_failures)


def _roots_of_anchors(emission: Sent) -> list[int]:
    """Return the roots of an emission's anchors; empty: it is unanchored or untracked."""
    roots: list[int] = []
    for anchor in emission.anchors:
        roots += [delivery.root for delivery in anchor.deliveries]
    return roots


class FittedBatches(NamedTuple):
    """What an Arrow bolt emitted in one call, and fits its streams.

    Attributes:
        emitted: one for each stream.
        failures: the input rows that failed, each because a row that was emitted for it does not
            fit; without those that the bolt failed.
    """

    emitted: list[EmittedRows]
    failures: list[RowFailure]


def fitted_batches(
    bolt: str,
    streams: Mapping[str, StreamPass],
    output_collector: OutputCollector,
    collector: BatchCollector,
    misfit_log: Tracebacks | None,
) -> FittedBatches:
    """Return what an Arrow bolt emitted, a batch for each stream, and the input rows that failed.

    An input row fails if a row that was emitted for it does not fit. What was
    emitted for input rows that failed is left out.

    Args:
        streams: of the bolt, by name.
        output_collector: refuses a stream that the bolt does not declare.
        collector: what the bolt emitted and failed.
        misfit_log: gets the errors of what does not fit; None: nothing is tracked.

    Raises:
        TupleError: another number of columns than the stream has, or a stream
            that it does not declare, or that is direct.
        ArrowException: a column has a type that does not go with its field;
            or a value does not fit, and `misfit_log` is None, since nothing is
            tracked.
    """
    emitted: list[EmittedRows] = []
    cause_by_input: dict[int, Cause] = {}  # of several causes the first one counts
    # which calls of `emit` were for which stream
    emit_calls_by_stream: dict[str, list[int]] = {}
    for emit_call, stream_name in enumerate(collector.streams):
        emit_calls_by_stream.setdefault(stream_name, []).append(emit_call)
    for stream_name, emit_calls in emit_calls_by_stream.items():
        if output_collector.stream_of(stream_name).direct:
            raise TupleError(
                f"bolt {bolt!r} emitted on stream {stream_name!r}, which is direct, and an"
                " ArrowBolt names no tasks: declare it without direct=True, or make the bolt a"
                " BasicBolt"
            )
        stream = streams[stream_name]
        parents = np.concatenate([collector.parents[emit_call] for emit_call in emit_calls])
        columns_by_call = [collector.columns[emit_call] for emit_call in emit_calls]
        fitter = _ColumnFitter(bolt)
        arrow_rows = fitter.fit(stream.schema, columns_by_call)
        for row, error in sorted(fitter.errors_by_row.items()):
            if misfit_log is None:
                raise error
            input_row = int(parents[row])
            cause_by_input.setdefault(input_row, cause_of_output(bolt, error, misfit_log))
        emitted.append(EmittedRows(stream, None, parents, arrow_rows=arrow_rows))
    failed_inputs = {row for row, _ in collector.failures} | cause_by_input.keys()
    if failed_inputs:
        emitted = [rows.without_inputs(failed_inputs) for rows in emitted]
    return FittedBatches(emitted, list(cause_by_input.items()))


class _ColumnFitter:
    """Makes emitted columns fit the fields of one stream.

    `errors_by_row`: why a row does not fit, by its number among all rows of the stream.
    """

    def __init__(self, bolt: str) -> None:
        self._bolt = bolt
        self.errors_by_row: dict[int, BaseException] = {}

    def fit(
        self,
        schema: pa.Schema,
        columns_by_call: Sequence[Sequence[pa.Array] | Mapping[str, pa.Array]],
    ) -> pa.RecordBatch:
        """Return all that was emitted on one stream as one batch.

        A value that does not fit is null there, and its error is in `errors_by_row`.

        `columns_by_call`: the columns of each call of `emit`, in order or by name.
        """
        # for each field the arrays that make up its column. The first one is empty: it gives a
        # field without rows its type
        chunks_by_field: list[list[pa.Array]] = [[pa.array([], field.type)] for field in schema]
        rows_before = 0
        for emitted_columns in columns_by_call:
            columns = self._in_order(schema, emitted_columns)
            for field, column, chunks in zip(schema, columns, chunks_by_field, strict=True):
                chunk_begin = rows_before
                for chunk in self._arrow_chunks(field, column):
                    chunks += self._cast_parts(field, chunk, chunk_begin)
                    chunk_begin += len(chunk)
            rows_before += len(columns[0]) if columns else 0
        arrays: list[pa.Array] = []
        for field, chunks in zip(schema, chunks_by_field, strict=True):
            arrays.append(self._joined(field, chunks))
        # `from_arrays` does not check the schema's NOT NULL, and must not: a value that does not
        # fit is null until its row is left out
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _in_order(
        self, schema: pa.Schema, emitted_columns: Sequence[pa.Array] | Mapping[str, pa.Array]
    ) -> Sequence[pa.Array]:
        """Return the columns of one call of `emit` in the order of the fields.

        Raises `TupleError`: too few or many.
        """
        columns = emitted_columns
        if isinstance(columns, Mapping):
            columns = values_in_order(columns, schema.names, self._bolt)
        if len(columns) != len(schema):
            fields = ", ".join(schema.names)
            raise TupleError(f"bolt {self._bolt!r} emitted {len(columns)} columns, whose fields are {fields}")
        return columns

    def _joined(self, field: pa.Field, chunks: Sequence[pa.Array]) -> pa.Array:
        """Return the chunks of a column as one array; the first chunk is the empty one of `fit`."""
        if len(chunks) == 2:  # the empty one and another one, which needs no copy
            return chunks[1]
        try:
            return pa.concat_arrays(chunks)
        except pa.ArrowInvalid as error:  # together they are too large for one array
            raise TupleError(
                f"bolt {self._bolt!r} emitted more as {field.name!r} than one array can have;"
                f" emit less at once: {error}"
            ) from error

    def _arrow_chunks(self, field: pa.Field, column: Any) -> Sequence[pa.Array]:
        """Return the arrays of an emitted column; `TupleError`: it is no column of Arrow's."""
        if isinstance(column, pa.ChunkedArray):
            return column.chunks  # type: ignore[no-any-return]
        if isinstance(column, pa.Array):
            return (column,)
        raise TupleError(
            f"bolt {self._bolt!r} emitted a {type(column).__name__} as {field.name!r}, no Arrow array"
        )

    def _cast_parts(self, field: pa.Field, column: pa.Array, first_row: int) -> list[pa.Array]:
        """Return a column as its field's type, in one part or several.

        If a value does not fit, the column is halved, and each half is cast by itself, until the
        value is alone. So the rows beside it pass. In its place is null, and its error is in
        `errors_by_row`.

        `first_row`: the number of the column's first row among all rows of the stream.

        Raises `ArrowException`: no column of this type fits the field.
        """
        try:
            exact_column = exact_cast(column, field.type)
            check_nulls(self._bolt, field, exact_column)
        except (pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            emission = self._emission_text(str(column.type), field)
            raise type(error)(f"{emission}: {error}") from error
        except (ValueError, OverflowError) as error:
            if len(column) > 1:
                half = len(column) // 2
                lower_parts = self._cast_parts(field, column.slice(0, half), first_row)
                upper_parts = self._cast_parts(field, column.slice(half), first_row + half)
                return [*lower_parts, *upper_parts]
            value = cell_text(column, 0)
            emission = self._emission_text(value, field)
            self.errors_by_row[first_row] = with_message(error, f"{emission}: {text_of(error)}")
            return [pa.nulls(1, field.type)]
        return [exact_column]

    def _emission_text(self, emitted: str, field: pa.Field) -> str:
        """Return how an error begins that is about something that was emitted as a field."""
        return f"bolt {self._bolt!r} emitted {emitted} as {field.name!r}, which is {_spark_type_text(field)}"


def _spark_type_text(field: pa.Field) -> str:
    """Return the type of a field in Spark's words."""
    from spout.spark.arrow_types import spark_type_of  # only where something does not fit

    return str(spark_type_of(field.type).simpleString())
