"""One bolt that settles its tuples by itself, at work on a batch of rows.

An exception of user code fails the input that it was raised for, and nothing that was emitted for that
input is delivered; one that the bolt stops on ends the task. Untracked, `FailTuple` drops the input and any
other exception ends the task, since nobody would replay it.

Source: docs/design/protocol.md, section 5.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from acker.errors import TupleError, UsageError
from acker.identity import I64
from spout.bolts.bolts import (
    AnyBolt,
    ArrowBolt,
    BasicBolt,
    BatchCollector,
    columns_of,
    invoke,
    returned_error,
    stop_on,
)
from spout.bolts.hooks import TaskHook
from spout.execution.watching import ReportingCollector, Watch
from spout.tuples.collector import (
    DEFAULT_STREAM,
    BasicCollector,
    Cause,
    Emit,
    FailTuple,
    Rows,
    StreamId,
    Tuple,
    Values,
    cause_of,
    row_of,
)
from spout.tuples.rows import (
    MISFITS,
    ArrowRows,
    ListRows,
    Misfit,
    arrow_of,
    batch_of,
    in_order,
    misfits,
    missized,
)

RowFailure = tuple[int, Cause]
"""A failed input row, and why."""


class Step(NamedTuple):
    """A bolt in a pass: its name (unique in the topology), itself, its output's Arrow schema, its hooks."""

    name: str
    bolt: AnyBolt
    schema: pa.Schema
    hooks: tuple[TaskHook, ...] = ()


class Emitted(NamedTuple):
    """What a step made of its input: rows, the input row of each, and the input rows that failed."""

    rows: Rows
    parents: I64
    failures: list[RowFailure]


@dataclass(slots=True)
class RowGate:
    """Holds back rows that stand behind one that failed.

    Attributes:
        holds: tells why an input row is held by now; None: it may go. Asked when its turn comes.
        failed: told of each row that fails, at once.
        held: how many rows were held; they fail, unseen by the bolt.
    """

    holds: Callable[[int], Cause | None]
    failed: Callable[[int], None]
    held: int = 0


def run_simple(
    step: Step, rows: Rows, watch: Watch, *, tracked: bool, arrow: bool, gate: RowGate | None = None
) -> Emitted:
    """Run one `BasicBolt` or `ArrowBolt`.

    Args:
        step: the bolt.
        rows: its input.
        watch: counts, tells the hooks, and says what the bolt is at.
        tracked: whether an exception fails the input; otherwise it is raised.
        arrow: whether the emitted rows must be an Arrow batch of the bolt's output schema.
        gate: asked before each row of a `BasicBolt`.
    """
    began_ns = watch.now_ns()
    if isinstance(step.bolt, ArrowBolt):
        out = _run_batch(step, step.bolt, rows, watch, tracked=tracked)
        took_ns = watch.now_ns() - began_ns
    elif isinstance(step.bolt, BasicBolt):
        if watch.has_hooks or gate is not None:
            emitted, ends, failures = _run_each_watched(step, watch, step.bolt, rows, gate, tracked=tracked)
        else:
            emitted, ends, failures = _run_each(watch, step.bolt, rows, tracked=tracked)
        took_ns = watch.now_ns() - began_ns
        out = _related(step, emitted, ends, failures, tracked=tracked, arrow=arrow)
    else:
        raise UsageError(f"bolt {step.name!r} is no BasicBolt, Bolt or ArrowBolt: {type(step.bolt).__name__}")
    held = gate.held if gate is not None else 0
    executed, failed = len(rows) - held, len({row for row, _ in out.failures}) - held
    watch.count_executed(rows.came_from, executed, took_ns)
    watch.count_settled(rows.came_from, executed, failed, took_ns)
    watch.count_emitted(len(out.rows))
    return out


def _related(
    step: Step, emitted: list[Sequence[Any]], ends: list[int], failures: list[RowFailure],
    *, tracked: bool, arrow: bool,
) -> Emitted:  # fmt: skip
    """Tell which input row each emitted row descends from."""
    edges = np.array([0, *ends], np.int64)
    counts = edges[1:] - edges[:-1]
    parents = np.repeat(np.arange(len(counts)), counts)
    if unordered := in_order(emitted, step.schema.names, step.name):
        if not tracked:
            raise unordered[0].error
        emitted, parents, failures = _without(step, emitted, parents, failures, unordered)
    if arrow:
        return _to_arrow(step, emitted, parents, failures, tracked=tracked)
    bad = missized(emitted, step.schema.names, step.name)
    if bad:
        if not tracked:
            raise bad[0].error
        emitted, parents, failures = _without(step, emitted, parents, failures, bad)
    rows_out = ListRows(step.schema.names, emitted, came_from=StreamId(step.name), schema=step.schema)
    return Emitted(rows_out, parents, failures)


Called = tuple[list[Sequence[Any]], list[int], list[RowFailure]]
"""What a basic bolt emitted, where each call ended, and what failed."""


def _run_each(watch: Watch, bolt: BasicBolt, rows: Rows, *, tracked: bool) -> Called:
    """Call a basic bolt for each row."""
    emitted: list[Sequence[Any]] = []
    ends: list[int] = []
    failures: list[RowFailure] = []
    execute: Callable[[Tuple, BasicCollector], object] = bolt.execute
    # list.append itself, since a call in between would cost as much as the tuple: it takes no other stream
    collector = ReportingCollector(cast("Emit", emitted.append), watch)
    ended = ends.append
    watch.pulse.begin(watch.name, ends.__len__)
    for received in map(Tuple, repeat(rows), range(len(rows))):
        try:
            if (returned := execute(received, collector)) is not None:
                raise returned_error(watch.name, execute, returned)
        except Exception as raised:  # whatever user code raises fails its input
            error = _told(watch.name, raised)
            stop_on(watch.name, bolt, error)
            if not tracked and not isinstance(error, FailTuple):
                if error is not raised:
                    raise error from raised
                raise
            del emitted[ends[-1] if ends else 0 :]
            failures.append((len(ends), watch.cause_of(error)))
            del error  # its traceback holds this frame, and with it the rows: nothing collects cycles here
        ended(len(emitted))
    watch.pulse.end()
    return emitted, ends, failures


def _run_each_watched(
    step: Step, watch: Watch, bolt: BasicBolt, rows: Rows, gate: RowGate | None, *, tracked: bool
) -> Called:
    """Call a basic bolt for each row that may go, and show its hooks what it does.

    What the hooks raise fails the row.
    """
    emitted: list[Sequence[Any]] = []
    ends: list[int] = []
    failures: list[RowFailure] = []

    def emit(values: Values, /, stream: str = DEFAULT_STREAM) -> None:
        if stream != DEFAULT_STREAM:
            raise _one_stream(watch.name)
        row = row_of(values, step.schema.names, watch.name)
        emitted.append(row)
        watch.emitted(row)

    collector = ReportingCollector(emit, watch)
    watch.pulse.begin(watch.name, ends.__len__)
    for row, received in enumerate(map(Tuple, repeat(rows), range(len(rows)))):
        held = None if gate is None else gate.holds(row)
        if gate is not None and held is not None:
            gate.held += 1
            failures.append((row, held))
            ends.append(len(emitted))
            continue
        began_ns = watch.now_ns()
        try:
            invoke(watch.name, bolt.execute, received, collector)
            watch.acked(received, watch.now_ns() - began_ns)
            watch.executed(received, watch.now_ns() - began_ns)
        except Exception as error:  # whatever user code raises fails its input
            stop_on(watch.name, bolt, error)
            if not tracked and not isinstance(error, FailTuple):
                raise
            del emitted[ends[-1] if ends else 0 :]
            cause = watch.cause_of(error)
            failures.append((row, cause))
            if gate is not None:
                gate.failed(row)
            watch.failed(received, watch.now_ns() - began_ns, cause)
        ends.append(len(emitted))
    watch.pulse.end()
    return emitted, ends, failures


def _show_done(rows: Rows, out: Emitted, watch: Watch, took_ns: int) -> None:
    """Show the hooks of an Arrow bolt what it emitted, and which rows it acked."""
    for row in range(len(out.rows)):
        watch.emitted(tuple(out.rows.value(name, row) for name in out.rows.names))
    failed = {row for row, _ in out.failures}
    for row in range(len(rows)):
        if row not in failed:
            watch.acked(Tuple(rows, row), took_ns)


def _to_arrow(
    step: Step, emitted: list[Sequence[Any]], parents: I64, failures: list[RowFailure], *, tracked: bool
) -> Emitted:
    """Convert emitted rows; where one does not fit the output, its input fails."""
    try:
        return Emitted(ArrowRows(batch_of(emitted, step.schema)), parents, failures)
    except MISFITS as error:
        bad = misfits(emitted, step.schema, step.name)
        if not tracked:
            raise (bad[0].error if bad else error) from None
    emitted, parents, failures = _without(step, emitted, parents, failures, bad)
    return Emitted(ArrowRows(batch_of(emitted, step.schema)), parents, failures)


def _without(
    step: Step, emitted: list[Sequence[Any]], parents: I64, failures: list[RowFailure], bad: list[Misfit]
) -> tuple[list[Sequence[Any]], I64, list[RowFailure]]:
    """Fail the inputs of rows that do not fit, and drop all that was emitted for them."""
    causes: dict[int, Cause] = {}
    for row, error in bad:
        causes.setdefault(int(parents[row]), cause_of(step.name, error))
    keep = ~np.isin(parents, list(causes))
    kept = [emitted[row] for row in np.flatnonzero(keep).tolist()]
    return kept, parents[keep], [*failures, *causes.items()]


def _told(bolt: str, error: Exception) -> Exception:
    """Say in the words of a collector what `list.append` says in its own; see `_run_each`."""
    if type(error) is not TypeError or not str(error).startswith("list.append() takes "):
        return error
    return _one_stream(bolt).with_traceback(error.__traceback__)


def _one_stream(bolt: str) -> TupleError:
    return TupleError(
        f"bolt {bolt!r} named a stream in emit; a bolt on DataFrames has one stream: emit the values alone,"
        " or declare streams in a bolt of a TopologyBuilder"
    )


def _run_batch(step: Step, bolt: ArrowBolt, rows: Rows, watch: Watch, *, tracked: bool) -> Emitted:
    """Call an Arrow bolt for the whole batch; what it or a hook of it raises fails every row."""
    if not len(rows):  # bolts before it failed them all; its code may well need a row
        return Emitted(ArrowRows(batch_of([], step.schema)), np.empty(0, np.int64), [])
    collector = BatchCollector(step.name, len(rows), watch.tracebacks)
    began_ns = watch.now_ns() if watch.has_hooks else 0
    watch.pulse.begin(step.name)
    try:
        invoke(step.name, bolt.execute, arrow_of(rows, bolt.fields), collector)
        out = _delivered(collector, step)
        if watch.has_hooks:
            _show_done(rows, out, watch, watch.now_ns() - began_ns)
    except Exception as error:  # whatever user code raises fails its input
        stop_on(step.name, bolt, error)
        if not tracked and not isinstance(error, FailTuple):
            raise
        cause = watch.cause_of(error)
        nothing = ArrowRows(batch_of([], step.schema))
        out = Emitted(nothing, np.empty(0, np.int64), [(row, cause) for row in range(len(rows))])
    finally:
        watch.pulse.end()
    if watch.has_hooks:
        for row, cause in dict(out.failures).items():
            watch.failed(Tuple(rows, row), watch.now_ns() - began_ns, cause)
    return out


def _delivered(collector: BatchCollector, step: Step) -> Emitted:
    """Return what an Arrow bolt emitted, but for what it emitted on rows that it failed."""
    batch = _joined(collector, step)
    parents = np.concatenate([np.empty(0, np.int64), *collector.parents])
    if collector.failures:
        keep = ~np.isin(parents, [row for row, _ in collector.failures])
        batch, parents = batch.filter(pa.array(keep)), parents[keep]
    return Emitted(ArrowRows(batch), parents, collector.failures)


def _joined(collector: BatchCollector, step: Step) -> pa.RecordBatch:
    """Join everything that an Arrow bolt emitted into one batch of its output's types.

    Raises:
        TupleError: another number of columns than the output has, or another stream.
        ArrowException: a column cannot be cast to the output's type.
    """
    schema = step.schema
    if any(stream != DEFAULT_STREAM for stream in collector.streams):
        raise _one_stream(step.name)
    tables = []
    for columns in collector.columns:
        listed = columns_of(columns, schema.names, step.name)
        if len(listed) != len(schema):
            fields = ", ".join(schema.names)
            raise TupleError(f"bolt {step.name!r} emitted {len(listed)} columns, whose fields are {fields}")
        cast = [_cast(step.name, field, column) for field, column in zip(schema, listed, strict=True)]
        tables.append(pa.Table.from_arrays(cast, schema=schema))
    if not tables:
        return batch_of([], schema)
    batches = pa.concat_tables(tables).combine_chunks().to_batches()
    return batches[0] if batches else batch_of([], schema)


def _cast(bolt: str, field: pa.Field, column: pa.Array) -> pa.ChunkedArray:
    """Cast a column to the type of its field; see `_joined`."""
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        raise TupleError(f"bolt {bolt!r} emitted a {type(column).__name__} as {field.name!r}, no Arrow array")
    chunked = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    try:
        return chunked.cast(field.type)
    except pa.ArrowException as error:
        says = f"bolt {bolt!r} emitted {column.type} as {field.name!r}, which is {field.type}: {error}"
        raise type(error)(says) from error
