"""What an executor does: read the exact ranges of a task, run the bolts behind the source, and report.

Source: DESIGN.md, sections 5.1 ("Executors read exact ranges") and 5.2 ("inside the source's own read
task").
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pyarrow as pa

from acker.events import Run, SourceRun, runs_of
from acker.identity import I64, offset_of, partition_of
from spout.anchored import AnchoredRun
from spout.anchors import ORDINAL_BITS, Anchors, Carry
from spout.bolts import BoltContext
from spout.consume import RangeReader
from spout.fold import TaskReport
from spout.ledger import add, task_name
from spout.messages import MessageRows
from spout.options import ANCHOR, SourceOptions
from spout.passes import FastRun, Pass
from spout.passes import Run as PassRun
from spout.plan import ReadTask


def read(task: ReadTask, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Read a task's share of a batch, and return what its bolts make of it.

    The report is added when the last row was taken: an evaluation that stops early reports nothing.
    """
    tracked = options.tracked and task.plan.tracked
    worker = _Bare(options) if options.narrow is None else start(options.narrow)
    absent: list[SourceRun] = []
    with no_garbage_collection():
        for share in task.ranges:
            first = int(task.plan.index_of(share.source, np.array([share.start]))[0])
            offsets = offset_of(share.start), offset_of(share.start) + share.end - share.start
            reader = RangeReader(
                options.topics.kafka, task.topics[share.source], partition_of(share.source), *offsets
            )
            expected = share.start
            for messages in reader.chunks():
                positions = np.fromiter((m.offset() for m in messages), np.int64, len(messages))
                positions += share.start - offsets[0]
                absent += holes(share.source, expected, positions)
                expected = int(positions[-1]) + 1
                packed = (positions - share.start + first) << ORDINAL_BITS
                anchors = Anchors(Carry.PACKED, pa.array(packed)) if tracked else None
                yield worker.feed(MessageRows(messages, share.source, positions), anchors)
            if expected < share.end:
                absent.append(SourceRun(share.source, expected, share.end))
        yield from worker.finish()
    if options.ledger is not None:
        report = replace(worker.report(), plan=task.plan, ranges=task.ranges, absent=tuple(absent))
        add(options.ledger, options.stream, report if tracked else None)


def start(pass_: Pass) -> PassRun:
    """Start a pass in the task that this process works on."""
    name = task_name()
    context = BoltContext(pass_.name, name.partition, name.batch)
    return AnchoredRun(pass_, context) if pass_.rich else FastRun(pass_, context)


def holes(source: int, expected: int, positions: I64) -> list[SourceRun]:
    """Return what lies between `expected`, the ascending positions, and each other."""
    if int(positions[-1]) - expected + 1 == len(positions):
        return []
    present = runs_of(positions)
    starts = [expected, *(run.end for run in present[:-1])]
    gaps = (Run(start, run.start) for start, run in zip(starts, present, strict=True))
    return [SourceRun(source, *gap) for gap in gaps if gap.start < gap.end]


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Switch the cyclic collector off: thousands of messages, none of them in a cycle, would trigger it."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Bare:
    """Returns the source's own columns, with anchors where they are wanted."""

    def __init__(self, options: SourceOptions) -> None:
        self._columns = options.columns
        self._anchored = options.anchored

    def feed(self, rows: MessageRows, anchors: Anchors | None) -> pa.RecordBatch:
        batch = rows.arrow(self._columns)
        if not self._anchored:
            return batch
        column = pa.nulls(len(rows), pa.int64()) if anchors is None else anchors.column
        return pa.RecordBatch.from_arrays([*batch.columns, column], names=[*self._columns, ANCHOR])

    def finish(self) -> list[pa.RecordBatch]:
        return []

    def report(self) -> TaskReport:
        return TaskReport(operator="read_stream")
