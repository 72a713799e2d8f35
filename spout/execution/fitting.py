"""Makes what a bolt emitted fit its stream: rows of the right size, in the order of the fields, as Arrow.

An emission that does not fit fails the input row that it descends from, and nothing else that was emitted for
that row is delivered. Untracked it ends the task, since nobody would replay the input.

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
    """Emissions on one stream that fit it, and the input rows that failed, since one for them does not."""

    emitted: EmittedRows
    failures: list[RowFailure]

    def without(self, bad: list[Misfit], log: Tracebacks | None) -> Fitted:
        """Fail the inputs of rows that do not fit, and drop all that was emitted for them; log why.

        Raises `Exception`: there is such a row, and `log` is None, since nothing is tracked.
        """
        if not bad:
            return self
        if log is None:
            raise bad[0].error
        bolt = self.emitted.stream.id.component
        causes: dict[int, Cause] = {}
        for row, error in bad:
            causes.setdefault(int(self.emitted.parents[row]), cause_of_output(bolt, error, log))
        return Fitted(self.emitted.apart_from(causes), [*self.failures, *causes.items()])

    def as_arrow(self) -> Fitted:
        """Return them with their rows in the types of the stream."""
        stream = self.emitted.stream
        batch = batch_of(self.emitted.values or [], stream.schema, stream.id.component)
        return self._replace(emitted=self.emitted._replace(batch=batch))


def fitted(emitted: EmittedRows, log: Tracebacks | None) -> Fitted:
    """Return the emissions of one stream that fit it; as Arrow, where they leave the task.

    Raises:
        TupleError: all together are too large for an Arrow array, and those of no input row alone.
        Exception: one does not fit, and `log` is None, since nothing is tracked.
    """
    stream = emitted.stream
    if emitted.values is None:  # columns, which were fitted when they were emitted
        return Fitted(emitted, [])
    bolt, fields = stream.id.component, stream.schema.names
    unordered = in_order(emitted.values, fields, bolt)
    fit = Fitted(emitted, []).without(unordered, log)
    values = fit.emitted.values or []
    if not stream.as_arrow:
        return fit.without(missized(values, fields, bolt), log)
    try:
        return fit.as_arrow()
    except TupleError as error:  # each of them alone would fit
        parents = fit.emitted.parents
        sizes = [batch_of([row], stream.schema, bolt).nbytes for row in values]
        own = np.bincount(parents, sizes)[parents]
        bad = [Misfit(row, error) for row in np.flatnonzero(own > ARRAY_BYTES_MAX).tolist()]
        if not bad:
            raise
    except Exception:  # noqa: BLE001 - values of the user, which have code of the user
        bad = misfits(values, stream.schema, bolt)
    return fit.without(bad, log).as_arrow()


def fitted_by_hand(
    stream: StreamPass, emissions: Sequence[Sent], log: Tracebacks | None
) -> tuple[pa.RecordBatch | None, Sequence[Sent], list[tuple[int, Cause]]]:
    """Convert emissions that came one by one, where they leave the task.

    Returns:
        The Arrow rows, or None; the emissions that fit; the failed roots of the others, by index.

    Raises `Exception`: one does not fit, and `log` is None, since nothing is tracked, or it is unanchored.
    """
    # each alone, as if it descended from an input row of its own
    emitted = EmittedRows(stream, [sent.values for sent in emissions], np.arange(len(emissions)))
    fit = fitted(emitted, log)
    failed: list[tuple[int, Cause]] = []
    for row, cause in fit.failures:
        roots = [each.root for anchor in emissions[row].anchors for each in anchor.deliveries]
        if not roots:
            output = "its output" if stream.on_frame else f"stream {stream.id.stream!r}"
            raise TupleError(
                f"bolt {cause.operator!r} emitted, unanchored, what does not fit {output}: {cause.message};"
                " no input fails for it, so the query ends: anchor it, and its input fails alone, or emit"
                " what fits"
            )
        failed += [(root, cause) for root in roots]
    kept = [emissions[row] for row in fit.emitted.parents.tolist()] if fit.failures else emissions
    return fit.emitted.batch, kept, failed


def batches_of(
    bolt: str,
    streams: Mapping[str, StreamPass],
    named: OutputCollector,
    collector: BatchCollector,
    log: Tracebacks | None,
) -> tuple[list[EmittedRows], list[RowFailure]]:
    """Return what an Arrow bolt emitted, one batch for each stream, and the input rows that failed by it.

    Such a row failed since one that was emitted for it does not fit; why goes to the log. What was emitted
    for input rows that failed is left out.

    Raises:
        TupleError: another number of columns than the stream has, or a stream that it does not declare.
        ArrowException: a column has a type that does not go with its field; or a value does not fit, and
            `log` is None, since nothing is tracked.
    """
    emitted: list[EmittedRows] = []
    causes: dict[int, Cause] = {}
    for name in dict.fromkeys(collector.streams):
        if named.named(name).direct:
            named.checked((), name)
        stream = streams[name]
        here = [n for n, each in enumerate(collector.streams) if each == name]
        parents = np.concatenate([collector.parents[n] for n in here])
        fit = _Columns(bolt)
        batch = fit.joined(stream.schema, [collector.columns[n] for n in here])
        for row, error in sorted(fit.errors.items()):
            if log is None:
                raise error
            causes.setdefault(int(parents[row]), cause_of_output(bolt, error, log))
        emitted.append(EmittedRows(stream, None, parents, batch=batch))
    failed = {row for row, _ in collector.failures} | causes.keys()
    if failed:
        emitted = [rows.apart_from(failed) for rows in emitted]
    return emitted, list(causes.items())


class _Columns:
    """Fits emitted columns to their fields; `errors` has those of rows that do not fit, by their number."""

    def __init__(self, bolt: str) -> None:
        self._bolt = bolt
        self.errors: dict[int, Exception] = {}

    def joined(
        self, schema: pa.Schema, emitted: Sequence[Sequence[pa.Array] | Mapping[str, pa.Array]]
    ) -> pa.RecordBatch:
        """Return all emissions of one stream as one batch; a value that does not fit is null there."""
        bolt = self._bolt
        chunks: list[list[pa.Array]] = [[pa.array([], field.type)] for field in schema]
        first = 0
        for columns in emitted:
            listed = values_in_order(columns, schema.names, bolt) if isinstance(columns, Mapping) else columns
            if len(listed) != len(schema):
                fields = ", ".join(schema.names)
                raise TupleError(f"bolt {bolt!r} emitted {len(listed)} columns, whose fields are {fields}")
            for field, column, fitting in zip(schema, listed, chunks, strict=True):
                row = first
                for chunk in self._chunks_of(field, column):
                    fitting += self._fitted(field, chunk, row)
                    row += len(chunk)
            first += len(listed[0]) if listed else 0
        arrays: list[pa.Array] = []
        for field, fitting in zip(schema, chunks, strict=True):
            try:
                arrays.append(fitting[1] if len(fitting) == 2 else pa.concat_arrays(fitting))
            except pa.ArrowInvalid as error:  # a table of them would go on in a second batch
                says = (
                    f"bolt {bolt!r} emitted more as {field.name!r} than one array can have; emit less at once"
                )
                raise TupleError(f"{says}: {error}") from error
        # not by its schema: a value that does not fit is null until its row is left out
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _chunks_of(self, field: pa.Field, column: Any) -> Sequence[pa.Array]:
        if isinstance(column, pa.ChunkedArray):
            return column.chunks  # type: ignore[no-any-return]
        if isinstance(column, pa.Array):
            return (column,)
        raise TupleError(
            f"bolt {self._bolt!r} emitted a {type(column).__name__} as {field.name!r}, no Arrow array"
        )

    def _fitted(self, field: pa.Field, column: pa.Array, first: int) -> list[pa.Array]:
        """Return a column as its field's type, in parts; `first`: the number of its first row.

        Where a value does not fit, it is found by halves, so that the rows beside it pass.

        Raises `ArrowException`: no column of this type fits the field.
        """
        try:
            fitted = exact_cast(column, field.type)
            check_nulls(self._bolt, field, fitted)
        except (pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            says = f"bolt {self._bolt!r} emitted {column.type} as {field.name!r}, which is {_shown(field)}"
            raise type(error)(f"{says}: {error}") from error
        except (ValueError, OverflowError) as error:
            if len(column) > 1:
                half = len(column) // 2
                return [
                    *self._fitted(field, column.slice(0, half), first),
                    *self._fitted(field, column.slice(half), first + half),
                ]
            value = cell_text(column, 0)
            says = f"bolt {self._bolt!r} emitted {value} as {field.name!r}, which is {_shown(field)}"
            self.errors[first] = with_message(error, f"{says}: {text_of(error)}")
            return [pa.nulls(1, field.type)]
        return [fitted]


def _shown(field: pa.Field) -> str:
    """Return the type of a field in Spark's words."""
    from spout.spark.private import spark_type_of  # only where something does not fit

    return str(spark_type_of(field.type).simpleString())
