"""Makes what a bolt emitted fit its stream: rows of the right size, in the order of the fields, as Arrow.

An emission that does not fit fails the input row that it descends from, and nothing else that was emitted for
that row is delivered. Untracked it ends the task, since nobody would replay the input.

Source: docs/design/protocol.md, section 5.2.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from acker.errors import TupleError
from acker.identity import I64
from spout.bolts.bolts import BatchCollector
from spout.bolts.collectors import OutputCollector, Sent
from spout.topology.stage_pass import StreamPass
from spout.tuples.failures import Cause, cause_of
from spout.tuples.raised import Tracebacks
from spout.tuples.rows import ARRAY_BYTES_MAX, Misfit, batch_of, check_nulls, in_order, misfits, missized
from spout.tuples.tuple import values_in_order

RowFailure = tuple[int, Cause]
"""A failed input row, and why."""


class Fitted(NamedTuple):
    """Emissions on one stream.

    Attributes:
        parents: `(n,) int64`: the number of the input row of each.
        tasks: `(n,) int64`: on a direct stream the task of each; else None.
        failures: the input rows that failed, since an emission for them does not fit.
        batch: the emissions as Arrow rows, where tuples of the stream leave the task; else None.
    """

    emitted: Sequence[Sequence[Any]]
    parents: I64
    tasks: I64 | None
    failures: list[RowFailure]
    batch: pa.RecordBatch | None = None

    def without(self, bolt: str, bad: list[Misfit], log: Tracebacks | None) -> Fitted:
        """Fail the inputs of rows that do not fit, and drop all that was emitted for them; log why.

        Raises `Exception`: there is such a row, and `log` is None, since nothing is tracked.
        """
        if not bad:
            return self
        if log is None:
            raise bad[0].error
        causes: dict[int, Cause] = {}
        for row, error in bad:
            cause = cause_of(bolt, error)
            log.keep(bolt, cause.error, "", error)
            causes.setdefault(int(self.parents[row]), cause)
        return self.apart_from(causes)._replace(failures=[*self.failures, *causes.items()])

    def apart_from(self, failed: Collection[int]) -> Fitted:
        """Leave out what was emitted for input rows that failed."""
        keep = ~np.isin(self.parents, list(failed))
        return self._replace(
            emitted=[self.emitted[row] for row in np.flatnonzero(keep).tolist()],
            parents=self.parents[keep],
            tasks=None if self.tasks is None else self.tasks[keep],
            batch=None if self.batch is None else self.batch.filter(pa.array(keep)),
        )


def fitted(
    stream: StreamPass, emitted: list[Sequence[Any]], parents: I64, tasks: I64 | None, log: Tracebacks | None
) -> Fitted:
    """Return the emissions of one stream that fit it; as Arrow, where they leave the task.

    Raises:
        TupleError: all together are too large for an Arrow array, and those of no input row alone.
        Exception: one does not fit, and `log` is None, since nothing is tracked.
    """
    bolt, fields = stream.id.component, stream.schema.names
    unordered = in_order(emitted, fields, bolt)
    found = Fitted(emitted, parents, tasks, []).without(bolt, unordered, log)
    if not stream.as_arrow:
        return found.without(bolt, missized(found.emitted, fields, bolt), log)
    try:
        return found._replace(batch=batch_of(found.emitted, stream.schema, bolt))
    except TupleError as error:  # each of them alone would fit
        sizes = [batch_of([row], stream.schema, bolt).nbytes for row in found.emitted]
        own = np.bincount(found.parents, sizes)[found.parents]
        bad = [Misfit(row, error) for row in np.flatnonzero(own > ARRAY_BYTES_MAX).tolist()]
        if not bad:
            raise
    except Exception:  # noqa: BLE001 - values of the user, which have code of the user
        bad = misfits(found.emitted, stream.schema, bolt)
    found = found.without(bolt, bad, log)
    return found._replace(batch=batch_of(found.emitted, stream.schema, bolt))


def fitted_by_hand(
    stream: StreamPass, emissions: Sequence[Sent], log: Tracebacks | None
) -> tuple[pa.RecordBatch | None, Sequence[Sent], list[tuple[int, Cause]]]:
    """Convert emissions that came one by one, where they leave the task.

    Returns:
        The Arrow rows, or None; the emissions that fit; the failed roots of the others, by index.

    Raises `Exception`: one does not fit, and `log` is None, since nothing is tracked, or it is unanchored.
    """
    values = [each.values for each in emissions]
    fit = fitted(stream, values, np.arange(len(values)), None, log)  # each alone
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
    kept = [emissions[row] for row in fit.parents.tolist()] if fit.failures else emissions
    return fit.batch, kept, failed


def batches_of(
    bolt: str, streams: Mapping[str, StreamPass], named: OutputCollector, collector: BatchCollector
) -> list[tuple[StreamPass, pa.RecordBatch, I64]]:
    """Return what an Arrow bolt emitted, one batch for each stream, and the input row of each row.

    Rows that descend from input rows that it failed are left out.

    Raises:
        TupleError: another number of columns than the stream has, or a stream that it does not declare.
        ArrowException: a column cannot be cast to the type of its field.
    """
    failed = [row for row, _ in collector.failures]
    found: list[tuple[StreamPass, pa.RecordBatch, I64]] = []
    for name in dict.fromkeys(collector.streams):
        if named.named(name).direct:
            named.checked((), name)
        stream = streams[name]
        here = [n for n, each in enumerate(collector.streams) if each == name]
        batch = _joined(bolt, stream.schema, [collector.columns[n] for n in here])
        parents = np.concatenate([collector.parents[n] for n in here])
        if failed:
            keep = ~np.isin(parents, failed)
            batch, parents = batch.filter(pa.array(keep)), parents[keep]
        found.append((stream, batch, parents))
    return found


def _joined(
    bolt: str, schema: pa.Schema, emitted: Sequence[Sequence[pa.Array] | Mapping[str, pa.Array]]
) -> pa.RecordBatch:
    parts: list[list[pa.ChunkedArray]] = []
    for columns in emitted:
        listed = values_in_order(columns, schema.names, bolt) if isinstance(columns, Mapping) else columns
        if len(listed) != len(schema):
            fields = ", ".join(schema.names)
            raise TupleError(f"bolt {bolt!r} emitted {len(listed)} columns, whose fields are {fields}")
        parts.append([_cast(bolt, field, column) for field, column in zip(schema, listed, strict=True)])
    arrays: list[pa.Array] = []
    for field, columns in zip(schema, zip(*parts, strict=True), strict=True):
        chunks = [chunk for column in columns for chunk in column.chunks]
        try:
            empty = pa.array([], field.type)
            arrays.append(chunks[0] if len(chunks) == 1 else pa.concat_arrays([empty, *chunks]))
        except pa.ArrowInvalid as error:  # a table of them would go on in a second batch
            says = f"bolt {bolt!r} emitted more as {field.name!r} than one array can have; emit less at once"
            raise TupleError(f"{says}: {error}") from error
        check_nulls(bolt, field, arrays[-1])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(bolt: str, field: pa.Field, column: pa.Array) -> pa.ChunkedArray:
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        raise TupleError(f"bolt {bolt!r} emitted a {type(column).__name__} as {field.name!r}, no Arrow array")
    chunked = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    try:
        return chunked.cast(field.type)
    except pa.ArrowException as error:
        says = f"bolt {bolt!r} emitted {column.type} as {field.name!r}, which is {field.type}: {error}"
        raise type(error)(says) from error
