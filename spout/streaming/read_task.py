"""What a read task does on an executor: read exact ranges, run the bolts behind the source, and report.

Source: docs/design/protocol.md, sections 5.1 ("Executors read exact ranges") and 5.2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message

from acker.errors import Damaged, unreadable_kind
from acker.identity import (
    I64,
    copies_source,
    first_source,
    is_replay,
    offset_of,
    partition_of,
)
from acker.kafka.headers import headers_of
from acker.root_sets.root_set import RootSet
from acker.wire.events import SourceRun
from spout.execution.stage_run import TaskRun
from spout.isolation.task_runs import no_garbage_collection, running_stage
from spout.planning.order import Gate, LineUp, list_of
from spout.planning.plan import ReadTask, holes
from spout.publishing.delayed import HighestTime
from spout.publishing.fold import TaskReport, not_done
from spout.publishing.report_accumulator import add
from spout.publishing.root_marks import PLANNED, RootMark, RootMarks, roots_of
from spout.runtime.tracing import trace_ids
from spout.streaming.consume import CHUNK_RECORDS, Share, TaskReader
from spout.streaming.options import SourceOptions
from spout.streaming.ordered_read import Copies, Copy, origin_of
from spout.tuples.anchors import ORDINAL_BITS, Anchors, Carry, wide_column
from spout.tuples.casts import in_zone
from spout.tuples.columns import ANCHOR
from spout.tuples.counts import Counted, Counts, Measure, What, added
from spout.tuples.failures import Cause, cause_of
from spout.tuples.messages import SPOUT, MessageRows, record_key, record_keys
from spout.tuples.raised import Tracebacks, first_of_each
from spout.tuples.tuple import Tuple

TRACED_MAX: Final = 10_000
"""A task reports the traces of so many records at most, in 400 kB: a report is to stay below a megabyte."""


_A_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""How many of Arrow's units of time are in a second."""


def read(task: ReadTask, options: SourceOptions, *, again: bool = False) -> Iterator[pa.RecordBatch]:
    """Read a task's share of a batch, and return the rows that its bolts emit.

    The report is added after the last row was taken: an evaluation that stops early reports nothing. `again`:
    the batch runs again, because its query ended in it.
    """
    running: AbstractContextManager[TaskRun | _Bare] = nullcontext(_Bare(options))
    if options.narrow is not None:
        running = running_stage(options.narrow.stage, options.safety, again=again)
    with running as worker:
        with closing(_Reading(task, options, worker)) as reading, no_garbage_collection():
            # a Python source hands its times out in UTC: Spark compares the types, names of zones included
            for batch in _rows(task, reading, worker):
                yield in_zone(batch, "UTC")
        if options.ledger is not None:
            add(options.ledger, options.stream, reading.report() if reading.tracked else None)


UNTRACKED_CURE: Final = (
    "set on_data_loss: skip for the input to go on without such batches; a query that is tracked goes on"
    " behind them when it is started again"
)


def _rows(task: ReadTask, reading: _Reading, worker: TaskRun | _Bare) -> Iterator[pa.RecordBatch]:
    for share in task.ranges:
        if first_source(share.source) not in task.order:
            yield from reading.share(share)
    for source, line_up in sorted(task.order.items()):
        yield from reading.in_order(source, line_up)
    yield from worker.finish()


class _Reading:
    """A task at work."""

    def __init__(self, task: ReadTask, options: SourceOptions, worker: TaskRun | _Bare) -> None:
        self.tracked = options.tracked and task.plan.tracked
        self.worker = worker
        self._task = task
        self._options = options
        self._index = task.plan.index()
        self._absent: list[SourceRun] = []
        self._unreadable: list[tuple[SourceRun, Cause]] = []
        self._damaged_seen = 0
        self._emitted = 0
        self._untracked = [np.empty(0, np.int64)]
        self._held: list[tuple[int, Cause]] = []
        self._gates: list[Gate] = []
        self._tracebacks = Tracebacks()
        self._first_emissions: list[RootMarks] = []
        self._traces: list[tuple[int, int, int, int, int]] = []
        self._newest: dict[str, HighestTime] = {}
        self._times: Sequence[str] | None = None
        in_turn = sorted(task.ranges, key=self._turn_of)
        self._log = TaskReader(options.topics.kafka, [self._exact(run) for run in in_turn])

    def close(self) -> None:
        self._log.close()

    def share(self, share: SourceRun) -> Iterator[pa.RecordBatch]:
        first = self._index_of(share.source, share.start)
        for messages, positions in self._read(share):
            indices = positions - share.start + first
            free, refused = self._apply_tracked_when(messages, share.source, positions)
            if refused:
                self._held += [(int(indices[row]), cause) for row, cause in refused.items()]
            kept = [row for row in range(len(messages)) if row not in refused] if refused else None
            yield from self._feed_kept(messages, share.source, positions, indices, kept, free)

    def in_order(self, source: int, line_up: LineUp) -> Iterator[pa.RecordBatch]:
        """Read a partition of an ordered input: its copies, sorted by their origins, then what is new."""
        task = self._task
        ordered = self._options.input_of(source)
        place = ordered.topic, partition_of(source)
        gate = Gate(f"{ordered.topic}/{partition_of(source)}", ordered.name, line_up)
        copies = Copies()
        of_copies = copies_source(source)
        for share in (run for run in task.ranges if run.source == of_copies):
            for messages, positions in self._read(share, gate):
                pairs = zip(messages, positions.tolist(), strict=True)
                copies.add(Copy(origin_of(headers_of(m), *place), position, m) for m, position in pairs)
        self.worker.gate = gate
        for some in copies.in_order(CHUNK_RECORDS):
            messages, origins = [copy.message for copy in some], [copy.origin for copy in some]
            positions = np.array([copy.position for copy in some], np.int64)
            yield from self._feed_in_order(gate, messages, of_copies, positions, origins)
        self._held += copies.refuse_left_over(gate, partial(self._index_of, of_copies))
        gate.begin_new()
        for share in (run for run in task.ranges if run.source == source):
            for messages, positions in self._read(share, gate):
                offsets = positions - share.start + offset_of(share.start)
                yield from self._feed_in_order(gate, messages, source, positions, offsets)
        self.worker.gate = None
        self._gates.append(gate)

    def report(self) -> TaskReport:
        done = self.worker.report()
        unreadable = [
            RootMarks.of_roots(RootMark.FAILED, roots_of(PLANNED, self._indices_of(run)), cause=cause)
            for run, cause in self._unreadable
        ]
        marks = RootMarks.together([done.marks, RootMarks.of_failures(PLANNED, self._held), *unreadable])
        done = replace(done, marks=marks)
        # where tuples go on, they may fail in other tasks
        narrow = self._options.narrow
        stops = not_done(done) if narrow is not None and narrow.stage.carry is Carry.NONE else None
        traces = np.array(self._traces, np.int64).reshape(-1, 5)
        traced = RootMarks.of_traces((traces[:, 0], traces[:, 1]), traces[:, 2:])
        untracked = roots_of(PLANNED, np.concatenate(self._untracked))
        best_effort = RootMarks.of_roots(RootMark.UNTRACKED, untracked)
        left_out = RootSet.of_runs(run for run, _ in self._unreadable)
        return replace(
            done,
            plan=self._task.plan,
            ranges=self._task.ranges,
            absent=tuple((RootSet.of_runs(self._absent) - left_out).runs()),
            lost=self._log.lost,
            damaged=tuple(self._log.damaged),
            lined=tuple(gate.lined(stops) for gate in self._gates),
            raised=first_of_each((*done.raised, *self._tracebacks)),
            counts=added([_of_source(self._options, self._emitted), done.counts]),
            marks=RootMarks.together([marks, best_effort, *self._first_emissions, traced]),
            newest=tuple(self._newest.values()),
        )

    def _turn_of(self, run: SourceRun) -> tuple[bool, int, bool]:
        """Return a key that sorts ranges as they are read: ordered inputs last, of each the copies first."""
        source = first_source(run.source)
        return (True, source, not is_replay(run.source)) if source in self._task.order else (False, 0, False)

    def _index_of(self, source: int, position: int) -> int:
        return int(self._index.of(source, np.array([position]))[0])

    def _indices_of(self, run: SourceRun) -> I64:
        return self._index.of(run.source, np.arange(run.start, run.end, dtype=np.int64))

    def _read(self, share: SourceRun, gate: Gate | None = None) -> Iterator[tuple[list[Message], I64]]:
        """Read a range; return its records with their positions, and note those that there are not.

        What cannot be read fails, or is absent where the input's `on_data_loss` is skip. Behind it the `gate`
        of an ordered partition lets nothing pass, since nobody knows whose record it is.
        """
        expected = share.start
        for messages in self._log.chunks(self._exact(share)):
            self._note_damage(share, gate)
            positions = np.fromiter(map(Message.offset, messages), np.int64, len(messages))
            positions += share.start - offset_of(share.start)
            self._absent += holes(share.source, expected, positions)
            expected = int(positions[-1]) + 1
            yield messages, positions
        self._note_damage(share, gate)
        if expected < share.end:
            self._absent.append(SourceRun(share.source, expected, share.end))

    def _note_damage(self, share: SourceRun, gate: Gate | None) -> None:
        """Note what of a range could not be read since the last call.

        Raises `Damaged`: nobody would learn of it, since nothing of the stream is tracked.
        """
        found = self._log.damaged[self._damaged_seen :]
        self._damaged_seen += len(found)
        if self._exact(share).skips_loss:
            return
        shift = share.start - offset_of(share.start)
        for run in found:
            place = f"{run.topic}/{run.partition}"
            if not self.tracked:
                raise Damaged(run.topic, run.partition, run.start, run.why, UNTRACKED_CURE)
            text = f"offsets {run.start} to {run.end} of {place} cannot be read: {run.why}"
            unreadable = SourceRun(share.source, run.start + shift, run.end + shift)
            self._unreadable.append((unreadable, Cause.of("", unreadable_kind(run.why).value, text)))
            if gate is not None:
                # of a copy the offset is not that of its first emission, which may be any
                origin = -1 if is_replay(share.source) else run.start
                gate.stop_all(origin, f"waits for {place}@{run.start}, which cannot be read")

    def _exact(self, share: SourceRun) -> Share:
        first = offset_of(share.start)
        place = self._task.topics[share.source], partition_of(share.source)
        offsets = first, first + share.end - share.start
        skips_loss = not self._options.input_of(share.source).fails_on_loss(self._options.fail_on_data_loss)
        return Share(*place, *offsets, skips_loss, is_replay(share.source))

    def _feed_kept(
        self,
        messages: Sequence[Message],
        source: int,
        positions: I64,
        indices: I64,
        kept: Sequence[int] | None,
        free: Collection[int],
    ) -> Iterator[pa.RecordBatch]:
        """Pass records to the bolts: the rows `kept` (None: all); the rows in `free` are best effort."""
        if free:
            self._untracked.append(indices[sorted(free)])
        if kept is not None:
            messages, positions, indices = [messages[row] for row in kept], positions[kept], indices[kept]
        if messages:
            self._emitted += len(messages)
            rows = self._rows(messages, source, positions)
            if self.tracked and is_replay(source):
                copies, wall_ms = rows.first_emissions()
                roots = np.full(len(copies), source, np.int64), copies
                self._first_emissions.append(RootMarks.of_roots(RootMark.FIRST_EMITTED, roots, wall_ms))
            if self.tracked and self._options.traced:
                for message, position in zip(messages, positions.tolist(), strict=True):
                    if len(self._traces) < TRACED_MAX and (ids := trace_ids(headers_of(message))) is not None:
                        self._traces.append((source, position, *ids))
            batch = self.worker.feed(rows, self._anchors(rows.source, positions, indices))
            if self.tracked:
                self._note_times(batch, source, positions)
            yield batch

    def _note_times(self, batch: pa.RecordBatch, source: int, positions: I64) -> None:
        """Note the highest time of each column of rows that leave, and which of the records has it.

        Bolts may emit any number of rows for a record, so behind them it is known of a chunk of records.
        """
        for name in self._time_columns(batch.schema):
            column = batch.column(name)
            highest = pc.max(column)
            if not highest.is_valid:
                continue
            at_ms = highest.value * 1_000 // _A_SECOND[column.type.unit]
            newest = self._newest.get(name)
            if newest is None or at_ms > newest.at_ms:
                first, last = int(positions.min()), int(positions.max())
                if self._options.narrow is None:
                    first = last = int(positions[pc.index(column, highest).as_py()])
                self._newest[name] = HighestTime(name, at_ms, SourceRun(source, first, last + 1))

    def _time_columns(self, schema: pa.Schema) -> Sequence[str]:
        if self._times is None:
            self._times = [field.name for field in schema if pa.types.is_timestamp(field.type)]
        return self._times

    def _rows(self, messages: Sequence[Message], source: int, positions: I64) -> MessageRows:
        rows = MessageRows(messages, source, positions, self._options.zone)
        rows.topic_id = self._task.topic_ids.get(self._task.topics[source], "")
        return rows

    def _feed_in_order(
        self,
        gate: Gate,
        messages: Sequence[Message],
        source: int,
        positions: I64,
        origins: I64 | Sequence[int | None],
    ) -> Iterator[pa.RecordBatch]:
        """Pass records to the bolts, and fail the blocked ones; best effort is never blocked."""
        indices = self._index.of(source, positions)
        free, refused = self._apply_tracked_when(messages, source, positions)
        if not free and not refused:
            held = gate.admit_all(indices, record_keys(messages), origins)
        else:
            held = {}
            records = zip(indices.tolist(), messages, list_of(origins), strict=True)
            for row, (index, message, origin) in enumerate(records):
                cause = None if row in free else gate.admit(index, record_key(message), origin)
                if cause is None and row in refused:
                    cause = refused[row]
                    gate.fail(index)
                if cause is not None:
                    held[row] = cause
        self._held += [(int(indices[row]), cause) for row, cause in held.items()]
        kept = [row for row in range(len(messages)) if row not in held] if held else None
        yield from self._feed_kept(messages, source, positions, indices, kept, free)

    def _apply_tracked_when(
        self, messages: Sequence[Message], source: int, positions: I64
    ) -> tuple[set[int], dict[int, Cause]]:
        """Call `tracked_when`: return the rows that are best effort, and causes of those for which it raised.

        Rows for which it raised are tracked, since they may need it.
        """
        predicate = self._options.tracked_when
        free: set[int] = set()
        refused: dict[int, Cause] = {}
        if predicate is None or not self.tracked:
            return free, refused
        rows = self._rows(messages, source, positions)
        for row in range(len(messages)):
            try:
                if not predicate(Tuple(rows, row)):
                    free.add(row)
            except Exception as error:  # noqa: BLE001 - whatever user code raises fails its record
                name = self._options.input_of(source).name  # the operator of what arises before any bolt
                cause = cause_of(name, error, self._tracebacks)
                refused[row] = Cause.of(cause.operator, cause.error, f"tracked_when: {cause.message}")
        return free, refused

    def _anchors(self, source: int, positions: I64, indices: I64) -> Anchors | None:
        if not self.tracked:
            return None
        carry = self._options.roots_carry
        anchors = Anchors(carry, pa.array(indices << ORDINAL_BITS))
        if carry is not Carry.WIDE:
            return anchors
        sources = pa.array(np.full(len(positions), source))
        return Anchors(Carry.WIDE, wide_column(anchors.column, sources, pa.array(positions)))


def _of_source(options: SourceOptions, emitted: int) -> Counts:
    """Count what `read_stream` emitted; a topology counts the emissions of its spouts in its first stage."""
    is_topology = options.narrow is not None and options.narrow.stage.frame is None
    if not emitted or is_topology:
        return {}
    whats = (What.EMITTED,) if options.narrow is None else (What.EMITTED, What.TRANSFERRED)
    return {Counted(what, SPOUT.component, SPOUT): Measure(emitted) for what in whats}


class _Bare:
    """Returns the source's own columns, with the anchors if the options say so."""

    def __init__(self, options: SourceOptions) -> None:
        self.gate: Gate | None = None  # only the driver sees failures behind Spark's operators
        self._columns = options.columns
        self._anchored = options.anchored
        self._carry = options.roots_carry

    def feed(self, rows: MessageRows, anchors: Anchors | None) -> pa.RecordBatch:
        batch = rows.arrow(self._columns)
        if not self._anchored:
            return batch
        column = pa.nulls(len(rows), self._carry.type) if anchors is None else anchors.column
        return pa.RecordBatch.from_arrays([*batch.columns, column], names=[*self._columns, ANCHOR])

    def finish(self) -> list[pa.RecordBatch]:
        return []

    def report(self) -> TaskReport:
        return TaskReport(operator="read_stream")
