"""One bolt that settles its tuples by itself, at work on a batch of rows.

An exception of user code fails the input that it was raised for, and nothing that was emitted for that
input is delivered. Untracked, `FailTuple` drops the input and any other exception ends the task, since
nobody would replay it.

Source: DESIGN.md, section 5.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from acker.errors import UsageError
from acker.identity import I64
from spout.bolts import AnyBolt, ArrowBolt, BasicBolt, BatchCollector
from spout.collector import BasicCollector, Cause, FailTuple, Rows, Tuple, cause_of
from spout.rows import MISFITS, ArrowRows, ListRows, arrow_of, batch_of, misfits

RowFailure = tuple[int, Cause]
"""A failed input row, and why."""


class Step(NamedTuple):
    """A bolt in a pass: its name (unique in the topology), itself, and the Arrow schema of its output."""

    name: str
    bolt: AnyBolt
    schema: pa.Schema


class Emitted(NamedTuple):
    """What a step made of its input: rows, the input row of each, and the input rows that failed."""

    rows: Rows
    parents: I64
    failures: list[RowFailure]


def run_simple(step: Step, rows: Rows, *, tracked: bool, arrow: bool) -> Emitted:
    """Run one `BasicBolt` or `ArrowBolt`.

    Args:
        step: the bolt.
        rows: its input.
        tracked: whether an exception fails the input; otherwise it is raised.
        arrow: whether the emitted rows must be an Arrow batch of the bolt's output schema.
    """
    if isinstance(step.bolt, ArrowBolt):
        return _run_batch(step, step.bolt, rows, tracked=tracked)
    if not isinstance(step.bolt, BasicBolt):
        raise UsageError(f"bolt {step.name!r} is no BasicBolt, Bolt or ArrowBolt: {type(step.bolt).__name__}")
    emitted, ends, failures = _run_each(step.name, step.bolt, rows, tracked=tracked)
    edges = np.array([0, *ends], np.int64)
    counts = edges[1:] - edges[:-1]
    parents = np.repeat(np.arange(len(counts)), counts)
    if not arrow:
        return Emitted(ListRows(step.schema.names, emitted), parents, failures)
    return _to_arrow(step, emitted, parents, failures, tracked=tracked)


def _run_each(
    name: str, bolt: BasicBolt, rows: Rows, *, tracked: bool
) -> tuple[list[Sequence[Any]], list[int], list[RowFailure]]:
    """Call a basic bolt for each row; return what it emitted, where each call ended, and what failed."""
    emitted: list[Sequence[Any]] = []
    ends: list[int] = []
    failures: list[RowFailure] = []
    execute = bolt.execute
    collector = BasicCollector(emitted.append)
    ended = ends.append
    for received in map(Tuple, repeat(rows), range(len(rows))):
        try:
            execute(received, collector)
        except Exception as error:  # whatever user code raises fails its input
            if not tracked and not isinstance(error, FailTuple):
                raise
            del emitted[ends[-1] if ends else 0 :]
            failures.append((len(ends), cause_of(name, error)))
        ended(len(emitted))
    return emitted, ends, failures


def _to_arrow(
    step: Step, emitted: list[Sequence[Any]], parents: I64, failures: list[RowFailure], *, tracked: bool
) -> Emitted:
    """Convert emitted rows; where one does not fit the output, its input fails."""
    try:
        return Emitted(ArrowRows(batch_of(emitted, step.schema)), parents, failures)
    except MISFITS:
        bad = misfits(emitted, step.schema)
        if not tracked:
            raise
    causes: dict[int, Cause] = {}
    for row, error in bad:
        causes.setdefault(int(parents[row]), cause_of(step.name, error))
    keep = ~np.isin(parents, list(causes))
    batch = batch_of([emitted[row] for row in np.flatnonzero(keep).tolist()], step.schema)
    return Emitted(ArrowRows(batch), parents[keep], [*failures, *causes.items()])


def _run_batch(step: Step, bolt: ArrowBolt, rows: Rows, *, tracked: bool) -> Emitted:
    """Call an Arrow bolt for the whole batch."""
    collector = BatchCollector(step.name, len(rows))
    try:
        bolt.execute(arrow_of(rows, bolt.fields), collector)
        batch = _joined(collector, step.schema)
    except Exception as error:  # whatever user code raises fails its input
        if not tracked and not isinstance(error, FailTuple):
            raise
        cause = cause_of(step.name, error)
        nothing = ArrowRows(batch_of([], step.schema))
        return Emitted(nothing, np.empty(0, np.int64), [(row, cause) for row in range(len(rows))])
    parents = np.concatenate([np.empty(0, np.int64), *collector.parents])
    if collector.failures:
        keep = ~np.isin(parents, [row for row, _ in collector.failures])
        batch, parents = batch.filter(pa.array(keep)), parents[keep]
    return Emitted(ArrowRows(batch), parents, collector.failures)


def _joined(collector: BatchCollector, schema: pa.Schema) -> pa.RecordBatch:
    """Join everything that an Arrow bolt emitted into one batch of its output's types.

    Raises:
        ValueError: another number of columns than the output has.
        ArrowException: a column cannot be cast to the output's type.
    """
    if any(len(columns) != len(schema) for columns in collector.columns):
        raise ValueError(f"emitted another number of columns than the output has: {', '.join(schema.names)}")
    tables = [
        pa.Table.from_arrays([pa.chunked_array([column]) for column in columns], names=schema.names).cast(
            schema
        )
        for columns in collector.columns
    ]
    if not tables:
        return batch_of([], schema)
    batches = pa.concat_tables(tables).combine_chunks().to_batches()
    return batches[0] if batches else batch_of([], schema)
