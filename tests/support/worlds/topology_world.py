"""A topology without Spark: its stages run one task after another, and what they report is settled."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from contextlib import closing
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from acker.config.topics import Topics, parse
from acker.identity import position_at, source_of
from acker.wire.events import SourceRun
from spout.bolts.ddl_types import read_ddl
from spout.bolts.hooks import BoltContext, TaskHook
from spout.bolts.outputs import arrow_output
from spout.builder.compiled import Compiled
from spout.builder.topology import TopologyBuilder
from spout.execution.stage_run import StageRun
from spout.isolation.isolation import IsolatedRun
from spout.planning.plan import BatchPlan
from spout.publishing.blob import decode, encode
from spout.publishing.fold import BatchOutcome, TaskReport
from spout.publishing.publish import BatchLane, Publication, publication_of
from spout.publishing.settle import settle
from spout.topology.chain import Chain, Step
from spout.topology.stage_pass import Parts, StagePass, passes_of
from spout.tuples.anchors import ORDINAL_BITS, AnchorForm, Anchors, wide_column
from spout.tuples.columns import TASK
from spout.tuples.messages import MessageRows
from spout.tuples.rows import ArrowRows
from tests.support.outcomes import failed_by_cause
from tests.support.reports import failures_in, reported

TOPICS: Topics = parse(
    """
inputs:
  lines: {id: 3, group: g}
  more: {id: 4, group: g}
  other: {id: 5, group: h}
""",
    file="topics.yaml",
    environ={},
)
Begin = Callable[[StagePass, BoltContext], StageRun | IsolatedRun]
Entry = Callable[
    [StagePass, Compiled, list[pa.RecordBatch]], tuple[list[pa.RecordBatch], Sequence[TaskReport]]
]
SOURCE = source_of(3, 0)


def schema_of(bolt: str, output: str) -> pa.Schema:
    """Read an output without Spark; its times are in UTC."""
    return arrow_output(bolt, output, "UTC", read_ddl)


def record(value: bytes, offset: int) -> Message:
    """Make a record of ``lines`` as the client returns it; its key is its first letter."""
    return Message(
        topic="lines",
        partition=0,
        offset=offset,
        key=value[:1],
        value=value,
        headers=None,
        timestamp=(1, 1_000),
    )


@dataclass(slots=True)
class Ran:
    """What became of a batch.

    Attributes:
        outcome: what its tasks reported, settled.
        rows: what the last stage returned, task after task.
        evaluated: every report.
    """

    outcome: BatchOutcome
    rows: list[pa.RecordBatch]
    evaluated: list[TaskReport] = field(default_factory=list)

    @property
    def publication(self) -> Publication:
        """The records of the batch."""
        return publication_of(self.outcome, BatchLane("q/s", 5))

    @property
    def values(self) -> list[tuple[Any, ...]]:
        """The rows of the sink, where it gets one stream."""
        return [tuple(row.values()) for batch in self.rows for row in batch.to_pylist()]


def stages_of(compiled: Compiled, *, tracked: bool = True) -> tuple[StagePass, ...]:
    """Make the passes of a topology that reads `TOPICS`."""
    inputs = {
        name: tuple(TOPICS.input(each).id for each in inputs) for name, inputs in compiled.inputs.items()
    }
    parts = Parts(compiled.bolts, compiled.schemas, inputs, compiled.hooks, tracked)
    return passes_of(compiled.layout, parts)


def run(
    builder: TopologyBuilder,
    lines: Sequence[bytes],
    sink: Any = None,
    *,
    tasks: int = 2,
    first: int = 0,
    tracked: bool = True,
    cores: int = 2,
    begin: Begin | None = None,
    entry: Entry | None = None,
) -> Ran:
    """Run a batch of records through a topology.

    Args:
        builder: the topology; its spout reads ``lines``.
        lines: the records' values.
        sink: as `TopologyBuilder.submit` has it; nothing is written.
        tasks: read tasks.
        first: offset of the first record.
        tracked: whether tuples are acked and failed.
        cores: as `TopologyBuilder.compile` has it.
        begin: begins a stage in a task; None: in this process.
        entry: hands the rows of the last stage to the keyed bolt, and returns rows with the reports.
    """
    starts = begin or StageRun
    compiled = builder.compile(schema_of, sink, cores=cores)
    stages = stages_of(compiled, tracked=tracked)
    stages = stages[: compiled.layout.keyed_stage] if compiled.keyed else stages
    start = position_at(0, first)
    plan = BatchPlan("g", "s", 1, 4, 77, 30_000, True, (SourceRun(SOURCE, start, start + len(lines)),))
    evaluated: list[TaskReport] = []
    shares = np.array_split(np.arange(len(lines)), tasks)
    left = [
        batch
        for task, share in enumerate(shares)
        for batch in _read(starts, stages[0], plan, share.tolist(), lines, task, evaluated)
    ]
    for number, stage in enumerate(stages[1:], start=1):
        left = [
            batch
            for task in range(compiled.layout.partitions[number])
            for batch in _map(
                starts, stage, number, task, compiled.layout.partitions[number], left, evaluated
            )
        ]
    if entry is not None:
        left, reports = entry(stages[-1], compiled, left)
        evaluated += [reported(len(stages), len(evaluated) + n, n, each) for n, each in enumerate(reports)]
    outcome = settle(evaluated, (), lambda stage: None)
    return Ran(outcome, left, evaluated)


def _read(
    starts: Begin, stage: StagePass, plan: BatchPlan, share: list[int], lines: Sequence[bytes], task: int,
    evaluated: list[TaskReport],
) -> list[pa.RecordBatch]:  # fmt: skip
    """Run a read task."""
    at = np.array(share, np.int64) + plan.ranges[0].start
    records = [record(lines[row], plan.ranges[0].start + row) for row in share]
    rows = MessageRows(records, SOURCE, at)
    packed = pa.array(np.array(share, np.int64) << ORDINAL_BITS)
    anchors = Anchors(AnchorForm.PACKED, packed)
    if stage.carries_roots:
        sources = pa.array(np.full(len(share), SOURCE))
        anchors = Anchors(AnchorForm.WIDE, wide_column(packed, sources, pa.array(at)))
    worker = _start(starts, stage, task)
    batches = [worker.feed(rows, anchors if stage.tracked else None), *worker.finish()]
    ranges = (SourceRun(SOURCE, int(at[0]), int(at[-1]) + 1),) if share else ()
    report = replace(worker.report(), plan=plan, ranges=ranges)
    evaluated.append(reported(0, len(evaluated), task, decode(encode(report))))
    return batches


def _map(
    starts: Begin, stage: StagePass, number: int, task: int, partitions: int, rows: list[pa.RecordBatch],
    evaluated: list[TaskReport],
) -> list[pa.RecordBatch]:  # fmt: skip
    """Run a task behind a shuffle: what every task of the stage before sent it."""
    worker = _start(starts, stage, task)
    batches = []
    for batch in rows:
        mine = batch.filter(pa.array(batch.column(TASK).to_numpy() % partitions == task))
        if mine.num_rows:
            batches += [
                worker.feed(ArrowRows(rows, places=places), None)
                for rows, places, *_ in stage.arriving_rows(mine)
            ]
    batches += worker.finish()
    evaluated.append(reported(number, len(evaluated), task, decode(encode(worker.report()))))
    return batches


def _start(starts: Begin, stage: StagePass, task: int) -> StageRun | IsolatedRun:
    copied: StagePass = pickle.loads(pickle.dumps(stage))
    return starts(copied, BoltContext(stage.name, task, 5))


def ran(
    bolt: Any, lines: list[bytes], hooks: list[TaskHook], where: str, rows_out: list[Any] | None = None
) -> dict[int, Any]:
    """Let a bolt work on lines; return why roots failed, and add the rows that it emitted to `rows_out`."""
    out = [] if rows_out is None else rows_out
    bolt = copy(bolt)  # another run may have prepared it
    messages = [record(line, offset) for offset, line in enumerate(lines)]
    anchors = Anchors(AnchorForm.PACKED, pa.array(np.arange(len(lines)) << ORDINAL_BITS))
    rows = MessageRows(messages, SOURCE, np.arange(len(lines)))
    if where == "topology":
        builder = TopologyBuilder()
        builder.set_spout("lines", TOPICS, "lines")
        builder.set_bolt("it", bolt).shuffle_grouping("lines")
        for hook in hooks:
            builder.add_hook(hook)
        made = run(builder, lines, print, tasks=1)
        out += made.values
        failed = failed_by_cause(made.outcome)
    else:
        step = Step("it", bolt, schema_of("it", bolt.output), tuple(hooks))
        pass_ = Chain((step,), arriving_form=AnchorForm.PACKED).stage
        context = BoltContext("it", 0, 1)
        if where == "child":
            with closing(IsolatedRun(pass_, context, 0, partial(StageRun, context=context))) as worker:
                batches = [worker.feed(rows, anchors), *worker.finish()]
                failed = failures_in(worker.report())
        else:
            alone = StageRun(pass_, context)
            batches = [alone.feed(rows, anchors), *alone.finish()]
            failed = failures_in(alone.report())
        out += [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    return {index: cause for cause, indices in failed for index in indices.tolist()}
