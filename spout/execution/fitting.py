"""Makes what a bolt emitted fit its stream: rows of the right size, in the
order of the fields, as Arrow.

An emission that does not fit fails the input row that it descends from, and
nothing else that was emitted for that row is delivered. Untracked it ends the
task, since nobody would replay the input.

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
from spout.execution.calls import EmittedRows, RowFailure
from spout.topology.stage_pass import StreamPass
from spout.tuples.casts import cell_text, check_nulls, exact_cast
from spout.tuples.failures import Cause, cause_of_output
from spout.tuples.raised import Tracebacks
from spout.tuples.rows import ARRAY_BYTES_MAX, Misfit, batch_of, in_order, misfits, missized, with_message
from spout.tuples.tuple import text_of, values_in_order


class Fitted(NamedTuple):
    """Emissions on one stream that fit it.

    `failures`: the input rows that failed, each because a row that was
    emitted for it does not fit.
    """

    emitted: EmittedRows
    failures: list[RowFailure]

    def with_failed(self, unfit: list[Misfit], log: Tracebacks | None) -> Fitted:
        """Fail the inputs of emitted rows that do not fit, and drop all that
        was emitted for them.

        Args:
            unfit: rows of `emitted`, by number, each with its error.
            log: gets the errors; None: nothing is tracked.

        Raises the first error if there is one and nothing is tracked.
        """
        if not unfit:
            return self
        if log is None:
            raise unfit[0].error
        bolt = self.emitted.stream.id.component
        causes: dict[int, Cause] = {}  # by input row; of several the first one counts
        for row, error in unfit:
            parent = int(self.emitted.parents[row])
            causes.setdefault(parent, cause_of_output(bolt, error, log))
        return Fitted(self.emitted.without_inputs(causes), [*self.failures, *causes.items()])

    def as_arrow(self) -> Fitted:
        """Return the same with a `batch` of its rows, in the types of the stream."""
        stream = self.emitted.stream
        values = self.emitted.values or []
        batch = batch_of(values, stream.schema, stream.id.component)
        return Fitted(self.emitted._replace(batch=batch), self.failures)


def fitted(emitted: EmittedRows, log: Tracebacks | None) -> Fitted:
    """Return the emissions of one stream that fit it; as Arrow, where `StreamPass.as_arrow`.

    Raises:
        TupleError: all together are too large for an Arrow array, and those
            of no input row alone.
        Exception: one does not fit, and `log` is None, since nothing is
            tracked.
    """
    stream = emitted.stream
    if emitted.values is None:  # columns, which were fitted when they were emitted
        return Fitted(emitted, [])
    bolt, fields = stream.id.component, stream.schema.names
    # 1. The order of the fields: what is no row at all fails its input.
    # in_order also reorders the values of those that fit, in place
    unordered_rows = in_order(emitted.values, fields, bolt)
    fit = Fitted(emitted, []).with_failed(unordered_rows, log)
    values = fit.emitted.values or []
    # 2. The size alone, where nobody reads Arrow.
    if not stream.as_arrow:
        return fit.with_failed(missized(values, fields, bolt), log)
    # 3. The types. All rows are converted at once; which of them do not fit
    # is asked only if that fails.
    try:
        return fit.as_arrow()
    except TupleError as error:
        # every row fits, but together they are too large for an array
        unfit = _of_too_large_inputs(fit.emitted, values, error)
        if not unfit:
            raise
    except Exception:  # noqa: BLE001 - values of the user, which have code of the user
        unfit = misfits(values, stream.schema, bolt)
    return fit.with_failed(unfit, log).as_arrow()


def _of_too_large_inputs(
    emitted: EmittedRows, values: Sequence[Sequence[Any]], error: TupleError
) -> list[Misfit]:
    """Return the rows of each input row for which more was emitted than an array can have."""
    stream, parents = emitted.stream, emitted.parents
    sizes = [batch_of([row], stream.schema, stream.id.component).nbytes for row in values]
    bytes_by_parent = np.bincount(parents, sizes)
    is_too_large = bytes_by_parent[parents] > ARRAY_BYTES_MAX
    return [Misfit(row, error) for row in np.flatnonzero(is_too_large).tolist()]


class FittedByHand(NamedTuple):
    """Emissions on one stream that came one by one, and fit it.

    Attributes:
        batch: the same as Arrow rows, where `StreamPass.as_arrow`; else None.
        failures: the roots that failed, by their index in the plan, each
            because an emission that descends from it does not fit.
    """

    batch: pa.RecordBatch | None
    sent: Sequence[Sent]
    failures: list[tuple[int, Cause]]


def fitted_by_hand(stream: StreamPass, sent: Sequence[Sent], log: Tracebacks | None) -> FittedByHand:
    """Return the emissions that fit their stream, where they came one by one.

    Raises `Exception`: one does not fit, and `log` is None, since nothing is
    tracked; or it is unanchored.
    """
    # each alone, as if it descended from an input row of its own
    values = [emission.values for emission in sent]
    fit = fitted(EmittedRows(stream, values, np.arange(len(sent))), log)
    failures: list[tuple[int, Cause]] = []
    for row, cause in fit.failures:
        roots: list[int] = []
        for anchor in sent[row].anchors:
            roots += [delivery.root for delivery in anchor.deliveries]
        if not roots:
            output = "its output" if stream.on_frame else f"stream {stream.id.stream!r}"
            raise TupleError(
                f"bolt {cause.operator!r} emitted, unanchored, what does not fit {output}: {cause.message};"
                " no input fails for it, so the query ends: anchor it, and its input fails alone, or emit"
                " what fits"
            )
        failures += [(root, cause) for root in roots]
    if fit.failures:
        sent = [sent[row] for row in fit.emitted.parents.tolist()]
    return FittedByHand(fit.emitted.batch, sent, failures)


def batches_of(
    bolt: str,
    streams: Mapping[str, StreamPass],
    declared: OutputCollector,
    collector: BatchCollector,
    log: Tracebacks | None,
) -> tuple[list[EmittedRows], list[RowFailure]]:
    """Return what an Arrow bolt emitted, one batch for each stream, and the
    input rows that failed by it.

    An input row fails if a row that was emitted for it does not fit. What was
    emitted for input rows that failed is left out.

    Args:
        streams: of the bolt, by name.
        declared: refuses a stream that the bolt does not declare.
        collector: what the bolt emitted and failed.
        log: gets the errors of what does not fit; None: nothing is tracked.

    Raises:
        TupleError: another number of columns than the stream has, or a stream
            that it does not declare.
        ArrowException: a column has a type that does not go with its field;
            or a value does not fit, and `log` is None, since nothing is
            tracked.
    """
    emitted: list[EmittedRows] = []
    causes: dict[int, Cause] = {}  # by input row; of several the first one counts
    emissions_by_stream: dict[str, list[int]] = {}
    for emission, name in enumerate(collector.streams):
        emissions_by_stream.setdefault(name, []).append(emission)
    for name, emissions in emissions_by_stream.items():
        if declared.emits_on(name).direct:
            # an Arrow bolt names no tasks, so this raises
            declared.checked((), name)
        stream = streams[name]
        parents = np.concatenate([collector.parents[emission] for emission in emissions])
        fitter = _ColumnFitter(bolt)
        columns = [collector.columns[emission] for emission in emissions]
        batch = fitter.fit(stream.schema, columns)
        for row, error in sorted(fitter.errors_by_row.items()):
            if log is None:
                raise error
            causes.setdefault(int(parents[row]), cause_of_output(bolt, error, log))
        emitted.append(EmittedRows(stream, None, parents, batch=batch))
    failed_rows = {row for row, _ in collector.failures} | causes.keys()
    if failed_rows:
        emitted = [rows.without_inputs(failed_rows) for rows in emitted]
    return emitted, list(causes.items())


class _ColumnFitter:
    """Makes emitted columns fit the fields of one stream.

    `errors_by_row` has why a row does not fit, by its number among all rows
    of the stream.
    """

    def __init__(self, bolt: str) -> None:
        self._bolt = bolt
        self.errors_by_row: dict[int, Exception] = {}

    def fit(
        self, schema: pa.Schema, emitted: Sequence[Sequence[pa.Array] | Mapping[str, pa.Array]]
    ) -> pa.RecordBatch:
        """Return all emissions of one stream as one batch; a value that does
        not fit is null there, and its error is in `errors_by_row`.

        `emitted`: of each emission its columns, in order or by name.
        """
        # of each field the arrays that make up its column; the empty one gives
        # a field without rows its type
        chunks_by_field: list[list[pa.Array]] = [[pa.array([], field.type)] for field in schema]
        rows_before = 0
        for emission in emitted:
            columns = self._in_order(schema, emission)
            for field, column, chunks in zip(schema, columns, chunks_by_field, strict=True):
                first_row = rows_before
                for chunk in self._chunks_of(field, column):
                    chunks += self._fitted(field, chunk, first_row)
                    first_row += len(chunk)
            rows_before += len(columns[0]) if columns else 0
        arrays: list[pa.Array] = []
        for field, chunks in zip(schema, chunks_by_field, strict=True):
            arrays.append(self._joined(field, chunks))
        # not by its schema: a value that does not fit is null until its row
        # is left out
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _in_order(
        self, schema: pa.Schema, emission: Sequence[pa.Array] | Mapping[str, pa.Array]
    ) -> Sequence[pa.Array]:
        """Return the columns of one emission in the order of the fields;
        `TupleError`: too few or many.
        """
        columns = emission
        if isinstance(columns, Mapping):
            columns = values_in_order(columns, schema.names, self._bolt)
        if len(columns) != len(schema):
            fields = ", ".join(schema.names)
            raise TupleError(f"bolt {self._bolt!r} emitted {len(columns)} columns, whose fields are {fields}")
        return columns

    def _joined(self, field: pa.Field, chunks: Sequence[pa.Array]) -> pa.Array:
        """Return a column as one array; the first of its chunks is the empty one."""
        if len(chunks) == 2:
            return chunks[1]  # nothing is copied
        try:
            return pa.concat_arrays(chunks)
        except pa.ArrowInvalid as error:  # a table of them would go on in a second batch
            raise TupleError(
                f"bolt {self._bolt!r} emitted more as {field.name!r} than one array can have;"
                f" emit less at once: {error}"
            ) from error

    def _chunks_of(self, field: pa.Field, column: Any) -> Sequence[pa.Array]:
        """Return the arrays of an emitted column; `TupleError`: it is none of Arrow."""
        if isinstance(column, pa.ChunkedArray):
            return column.chunks  # type: ignore[no-any-return]
        if isinstance(column, pa.Array):
            return (column,)
        raise TupleError(
            f"bolt {self._bolt!r} emitted a {type(column).__name__} as {field.name!r}, no Arrow array"
        )

    def _fitted(self, field: pa.Field, column: pa.Array, first_row: int) -> list[pa.Array]:
        """Return a column as its field's type, in parts; `first_row`: the
        number of its first row.

        Where a value does not fit, the column is halved until the value is
        alone, so that the rows beside it pass.

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
                lower = self._fitted(field, column.slice(0, half), first_row)
                upper = self._fitted(field, column.slice(half), first_row + half)
                return [*lower, *upper]
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
    from spout.spark.private import spark_type_of  # only where something does not fit

    return str(spark_type_of(field.type).simpleString())
