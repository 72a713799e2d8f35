"""What a read task does on an executor: it reads exact ranges, runs bolts, and reports.

A task gets some *runs* of a batch's positions. A root is named here by its *index*, its number
within the plan of the batch. Records of an ordered input go through the `Gate` of their
partition, which fails those that are blocked.

Source: docs/design/protocol.md, sections 5.1 ("Executors read exact ranges") and 5.2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

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
from acker.listing import offsets_text
from acker.root_sets.root_set import RootSet
from acker.wire.events import SourceRun
from spout.execution.stage_run import TaskRun
from spout.isolation.task_runs import no_garbage_collection, running_stage
from spout.planning.order import Gate, LineUp, list_of
from spout.planning.plan import ReadTask, runs_without_record
from spout.publishing.delayed import HighestTime
from spout.publishing.fold import Missing, TaskReport, indices_not_done
from spout.publishing.report_accumulator import add_report
from spout.publishing.root_marks import PLANNED, RootMark, RootMarks, roots_of
from spout.runtime.tracing import trace_ids
from spout.streaming.consume import CHUNK_RECORDS, Share, TaskReader
from spout.streaming.options import SourceOptions
from spout.streaming.ordered_read import Copies, Copy, origin_of
from spout.tuples.anchors import ORDINAL_BITS, AnchorForm, Anchors, wide_column
from spout.tuples.casts import in_zone
from spout.tuples.columns import ANCHOR
from spout.tuples.counts import Counted, Counts, Measure, What, sum_of_counts
from spout.tuples.failures import Cause, cause_of
from spout.tuples.messages import SPOUT, MessageRows, record_key, record_keys
from spout.tuples.raised import Tracebacks, first_of_each
from spout.tuples.tuple import Tuple

TRACED_MAX: Final = 10_000
"""A task reports the traces of this many records at most, in 400 kB: a report is to stay below
a megabyte."""

_UNITS_IN_A_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""How many of Arrow's units of time are in a second."""


def read(task: ReadTask, options: SourceOptions, *, runs_again: bool = False) -> Iterator[pa.RecordBatch]:
    """Read a task's records of a batch, and yield the rows that its bolts emit.

    The report is added after the last row was taken: an evaluation that stops early reports
    nothing. `runs_again`: another process had planned the batch, and the query ended in it.
    """
    # a source without bolts has one in their place, which returns the records' own columns
    running: AbstractContextManager[TaskRun | _WithoutBolts] = nullcontext(_WithoutBolts(options))
    if options.sealed_stage is not None:
        running = running_stage(options.sealed_stage.stage, options.safety, runs_again=runs_again)
    with running as bolts:
        with closing(_Reading(task, options, bolts)) as reading, no_garbage_collection():
            # a Python source hands its times out in UTC: Spark compares the types, names of
            # zones included
            for batch in _emitted_batches(task, reading, bolts):
                yield in_zone(batch, "UTC")
        if options.ledger is not None:
            # None: there are no roots to report, but the driver counts which tasks have ended
            report = reading.report() if reading.tracked else None
            add_report(options.ledger, options.stream, report)


UNTRACKED_CURE: Final = (
    "set on_data_loss: skip for the input to go on without such batches; a query that is"
    " tracked goes on behind them when it is started again"
)


class _Chunk(NamedTuple):
    """Records of one source that are read together: messages, positions and indices, row by row.

    An index is the number of a root within the plan of the batch.
    """

    source: int
    messages: Sequence[Message]
    positions: I64
    indices: I64

    def at_rows(self, rows: Sequence[int]) -> _Chunk:
        """Return the records of some rows, in the order of `rows`."""
        messages = [self.messages[row] for row in rows]
        return _Chunk(self.source, messages, self.positions[rows], self.indices[rows])

    def without(self, rows: Collection[int]) -> _Chunk:
        """Return the records without those of some rows."""
        if not rows:
            return self
        return self.at_rows([row for row in range(len(self.messages)) if row not in rows])


def _emitted_batches(
    task: ReadTask, reading: _Reading, bolts: TaskRun | _WithoutBolts
) -> Iterator[pa.RecordBatch]:
    """Yield what the bolts emit for all runs of a task: first those of inputs without an order."""
    # a run of copies belongs to the source of its partition, by which `order` has the partition
    for run in task.ranges:
        if first_source(run.source) not in task.order:
            yield from reading.read_unordered(run)
    for source, line_up in sorted(task.order.items()):
        yield from reading.read_in_order(source, line_up)
    # what bolts emit in their cleanup, and what was not returned before
    yield from bolts.finish()


class _Reading:
    """A read task at work: reads its runs, feeds the bolts, and keeps what goes into the report.

    Attributes:
        tracked: whether the batch has roots.
    """

    def __init__(self, task: ReadTask, options: SourceOptions, bolts: TaskRun | _WithoutBolts) -> None:
        """Prepare; nothing is read yet. `bolts` receive the records; they are running already."""
        self.tracked = options.tracked and task.plan.tracked
        self._bolts = bolts
        self._task = task
        self._options = options
        self._plan_index = task.plan.index()
        # positions without a record in the log
        self._absent_runs: list[SourceRun] = []
        # positions that nobody can read, each run with the cause of its failure
        self._unreadable_runs: list[tuple[SourceRun, Cause]] = []
        self._damaged_count = 0  # how many of `TaskReader.damaged` were handled
        self._emitted_count = 0  # records that the bolts received
        self._best_effort_indices = [np.empty(0, np.int64)]
        # index and cause of each record that no bolt received: it was blocked, or
        # `tracked_when` raised
        self._failures: list[tuple[int, Cause]] = []
        # of the ordered partitions that were read; a gate knows which records failed, and blocks
        # the later ones of their keys
        self._gates: list[Gate] = []
        self._tracebacks = Tracebacks()
        self._first_emissions: list[RootMarks] = []
        # of each traced record source, position and the three numbers of `trace_ids`
        self._traces: list[tuple[int, int, int, int, int]] = []
        self._highest_times: dict[str, HighestTime] = {}  # by column
        self._time_column_names: Sequence[str] | None = None  # None: no batch has come yet
        # `TaskReader` fetches the next share ahead, so it has to know in which order they come
        runs_in_order = sorted(task.ranges, key=self._reading_order)
        shares = [self._share_of(run) for run in runs_in_order]
        self._task_reader = TaskReader(options.topics.kafka, shares)

    def close(self) -> None:
        """Close the consumers of shares that were not read."""
        self._task_reader.close()

    def read_unordered(self, run: SourceRun) -> Iterator[pa.RecordBatch]:
        """Read a run of an input without an order; yield what the bolts emit for it."""
        first_index = self._index_of(run.source, run.start)
        for messages, positions in self._read_run(run):
            # A run has neighbouring indices, so none is looked up: if position 500 of a run from
            # 500 on has index 20, position 503 has index 23.
            indices = positions - run.start + first_index
            chunk = _Chunk(run.source, messages, positions, indices)
            best_effort_rows, causes_by_row = self._apply_tracked_when(chunk)
            yield from self._feed(chunk, best_effort_rows, causes_by_row)

    def read_in_order(self, source: int, line_up: LineUp) -> Iterator[pa.RecordBatch]:
        """Read a partition of an ordered input, and yield what the bolts emit.

        First come its copies, sorted by their origins, then its new records. While the bolts
        work, they have the gate of the partition: they report to it each record that fails,
        and it blocks the later ones of the same line (the records of one key, or of the
        partition). `line_up` says which are blocked already.
        """
        # 1. the copies: all are read before the first is fed, since the one that is read last
        # may be the first in order
        ordered_input = self._options.input_of(source)
        gate = Gate(f"{ordered_input.topic}/{partition_of(source)}", ordered_input.name, line_up)
        replay_source = copies_source(source)
        copies = self._read_copies(source, gate)
        self._bolts.gate = gate
        for sorted_copies in copies.in_order(CHUNK_RECORDS):
            messages = [copy.message for copy in sorted_copies]
            # None: the first emission was in another partition
            origins = [copy.origin for copy in sorted_copies]
            positions = np.array([copy.position for copy in sorted_copies], np.int64)
            chunk = _Chunk(replay_source, messages, positions, self._plan_index.of(replay_source, positions))
            yield from self._feed_in_order(gate, chunk, origins)
        # copies for which there was no memory fail, and block what is behind them
        self._failures += copies.refuse_left_over(gate, partial(self._index_of, replay_source))
        # 2. the new records
        gate.begin_new()
        for run in self._task.ranges:
            if run.source != source:
                continue
            for messages, positions in self._read_run(run, gate):
                # the origin of a new record is its own offset
                offsets = positions - run.start + offset_of(run.start)
                chunk = _Chunk(source, messages, positions, self._plan_index.of(source, positions))
                yield from self._feed_in_order(gate, chunk, offsets)
        self._bolts.gate = None
        # the report says which records are in one line, that is of one key or partition
        self._gates.append(gate)

    def _read_copies(self, source: int, gate: Gate) -> Copies:
        """Read all copies that the task has of an ordered partition.

        `source` is the partition's; its copies have one of their own. The `gate` is that of the
        partition: a copy that cannot be read stops everything in it.
        """
        topic = self._options.input_of(source).topic
        partition = partition_of(source)
        copies = Copies()
        for run in self._task.ranges:
            if run.source != copies_source(source):
                continue
            for messages, positions in self._read_run(run, gate):
                records = zip(messages, positions.tolist(), strict=True)
                copies.add(
                    Copy(origin_of(headers_of(message), topic, partition), position, message)
                    for message, position in records
                )
        return copies

    def report(self) -> TaskReport:
        """Return what the task did, once all of its rows were taken."""
        # 1. what has failed: in the bolts, before them, and what could not be read
        bolts_report = self._bolts.report()
        unreadable_marks: list[RootMarks] = []
        for run, cause in self._unreadable_runs:
            roots = roots_of(PLANNED, self._indices_of(run))
            unreadable_marks.append(RootMarks.of_roots(RootMark.FAILED, roots, cause=cause))
        failure_marks = RootMarks.of_failures(PLANNED, self._failures)
        marks = RootMarks.together([bolts_report.marks, failure_marks, *unreadable_marks])
        bolts_report = replace(bolts_report, marks=marks)
        # 2. the lines of ordered partitions (a line is the records of one key or partition):
        # if tuples end here, only those in which a record failed; None: tuples go on and may
        # fail in other tasks, so all lines go with the report
        sealed_stage = self._options.sealed_stage
        ends_here = sealed_stage is not None and sealed_stage.stage.leaving_form is AnchorForm.NONE
        undone_indices = indices_not_done(bolts_report) if ends_here else None
        # 3. traces, and roots that are acked whatever becomes of them
        # of each: source, position, and the three numbers of the trace
        traces = np.array(self._traces, np.int64).reshape(-1, 5)
        trace_marks = RootMarks.of_traces((traces[:, 0], traces[:, 1]), traces[:, 2:])
        best_effort_roots = roots_of(PLANNED, np.concatenate(self._best_effort_indices))
        best_effort_marks = RootMarks.of_roots(RootMark.UNTRACKED, best_effort_roots)
        # 4. what the log did not have; a position that cannot be read fails, and is not absent
        failed_set = RootSet.of_runs(run for run, _ in self._unreadable_runs)
        absent = RootSet.of_runs(self._absent_runs) - failed_set
        source_counts = _source_counts(self._options, self._emitted_count)
        return replace(
            bolts_report,
            plan=self._task.plan,
            ranges=self._task.ranges,
            missing=Missing(
                absent=absent,
                lost_count=self._task_reader.lost,
                damaged=tuple(self._task_reader.damaged),
            ),
            lined_records=tuple(gate.lined_records(undone_indices) for gate in self._gates),
            raised=first_of_each((*bolts_report.raised, *self._tracebacks)),
            counts=sum_of_counts([source_counts, bolts_report.counts]),
            marks=RootMarks.together([marks, best_effort_marks, *self._first_emissions, trace_marks]),
            highest_times=tuple(self._highest_times.values()),
        )

    def _reading_order(self, run: SourceRun) -> tuple[bool, int, bool]:
        """Return a key that sorts runs as they are read.

        Runs of ordered partitions come last, and of each partition its copies come first.
        """
        source = first_source(run.source)
        if source not in self._task.order:
            # one key for all of them: they stay in the order of the task
            return False, 0, False
        return True, source, not is_replay(run.source)

    def _index_of(self, source: int, position: int) -> int:
        """Return the index of one root within the plan."""
        return int(self._plan_index.of(source, np.array([position]))[0])

    def _indices_of(self, run: SourceRun) -> I64:
        """Return the indices of the roots of a run within the plan."""
        return self._plan_index.of(run.source, np.arange(run.start, run.end, dtype=np.int64))

    def _read_run(self, run: SourceRun, gate: Gate | None = None) -> Iterator[tuple[list[Message], I64]]:
        """Read a run; yield its records with their positions, and record which positions have none.

        A position that cannot be read fails, or is absent where the input's `on_data_loss` is
        skip. Behind one that fails the `gate` of an ordered partition lets nothing pass, since
        nobody can read whose key it has.
        """
        next_position = run.start
        for messages in self._task_reader.chunks(self._share_of(run)):
            self._fail_damaged_runs(run, gate)
            offsets = np.fromiter(map(Message.offset, messages), np.int64, len(messages))
            # a run is of one generation: from its offsets to its positions is one distance
            positions = offsets + (run.start - offset_of(run.start))
            self._absent_runs += runs_without_record(run.source, next_position, positions)
            next_position = int(positions[-1]) + 1
            yield messages, positions
        self._fail_damaged_runs(run, gate)
        if next_position < run.end:
            self._absent_runs.append(SourceRun(run.source, next_position, run.end))

    def _fail_damaged_runs(self, run: SourceRun, gate: Gate | None) -> None:
        """Fail the positions of a run that could not be read since the last call.

        The `gate` stops what is behind them. Where the input's `on_data_loss` is skip, nothing
        fails: for `_read_run` they are absent. Raises `Damaged` where nothing of the stream is
        tracked, so that no report would name them.
        """
        damaged_runs = self._task_reader.damaged[self._damaged_count :]
        self._damaged_count += len(damaged_runs)
        if self._share_of(run).skips_loss:
            return
        shift = run.start - offset_of(run.start)  # from offsets to positions
        for damaged in damaged_runs:
            place = f"{damaged.topic}/{damaged.partition}"
            if not self.tracked:
                raise Damaged(damaged.topic, damaged.partition, damaged.start, damaged.why, UNTRACKED_CURE)
            offsets = offsets_text(damaged.start, damaged.end)
            text = f"{offsets} of {place} cannot be read: {damaged.why}"
            kind = unreadable_kind(damaged.why).value
            # no operator: no bolt has received the record
            cause = Cause.of(operator="", error=kind, message=text)
            unreadable = SourceRun(run.source, damaged.start + shift, damaged.end + shift)
            self._unreadable_runs.append((unreadable, cause))
            if gate is not None:
                # a copy that cannot be read may have had any origin; -1 is below all of them
                origin = -1 if is_replay(run.source) else damaged.start
                gate.stop_all(origin, f"waits for {place}@{damaged.start}, which cannot be read")

    def _share_of(self, run: SourceRun) -> Share:
        """Return the share that a run is: its offsets, and how they are read."""
        source_input = self._options.input_of(run.source)
        fails_on_loss = source_input.fails_on_loss(self._options.fail_on_data_loss)
        first_offset = offset_of(run.start)  # a run is of one generation
        return Share(
            topic=self._task.topics[run.source],
            partition=partition_of(run.source),
            start=first_offset,
            end=first_offset + run.end - run.start,
            skips_loss=not fails_on_loss,
            of_copies=is_replay(run.source),
        )

    def _feed(
        self, chunk: _Chunk, best_effort_rows: Collection[int], causes_by_row: Mapping[int, Cause]
    ) -> Iterator[pa.RecordBatch]:
        """Pass records to the bolts, and yield what these emit.

        Rows that have a cause fail; no bolt receives them. `best_effort_rows` are acked with the
        batch, whatever the bolts do.
        """
        if best_effort_rows:
            self._best_effort_indices.append(chunk.indices[sorted(best_effort_rows)])
        self._failures += [(int(chunk.indices[row]), cause) for row, cause in causes_by_row.items()]
        passed = chunk.without(causes_by_row)
        if not passed.messages:
            return
        self._emitted_count += len(passed.messages)
        rows = self._message_rows(passed)
        if self.tracked and is_replay(chunk.source):
            self._record_first_emissions(chunk.source, rows)
        if self.tracked and self._options.traced:
            self._record_traces(passed)
        batch = self._bolts.feed(rows, self._anchors(passed))
        # behind the bolts: a watermark sees the times of the rows that leave
        if self.tracked:
            self._record_highest_times(batch, chunk.source, passed.positions)
        yield batch

    def _record_first_emissions(self, source: int, rows: MessageRows) -> None:
        """Record when the record of each copy was first emitted, as the copy's headers say."""
        copies, wall_ms = rows.first_emissions()
        roots = np.full(len(copies), source, np.int64), copies
        self._first_emissions.append(RootMarks.of_roots(RootMark.FIRST_EMITTED, roots, wall_ms))

    def _record_traces(self, chunk: _Chunk) -> None:
        """Keep the trace ids of records whose headers name a trace, `TRACED_MAX` in a task at most."""
        for message, position in zip(chunk.messages, chunk.positions.tolist(), strict=True):
            if len(self._traces) >= TRACED_MAX:
                return
            three_ids = trace_ids(headers_of(message))
            if three_ids is not None:
                self._traces.append((chunk.source, position, *three_ids))

    def _record_highest_times(self, batch: pa.RecordBatch, source: int, positions: I64) -> None:
        """Record the highest time of each column of times, and which records may have it.

        `batch` has the rows that leave, `positions` the records of which they were made. Without
        bolts each row is a record, so one record has the time. Bolts may emit any number of rows
        for a record, so behind them each record at `positions` may have it.
        """
        for name in self._time_columns(batch.schema):
            column = batch.column(name)
            highest = pc.max(column)
            if not highest.is_valid:  # no row has a time
                continue
            highest_ms = highest.value * 1_000 // _UNITS_IN_A_SECOND[column.type.unit]
            highest_before = self._highest_times.get(name)
            if highest_before is not None and highest_ms <= highest_before.at_ms:
                continue
            possible_positions = positions
            if self._options.sealed_stage is None:
                # no bolt: the rows are the records
                row = pc.index(column, highest).as_py()
                possible_positions = positions[row : row + 1]
            first_position = int(possible_positions.min())
            last_position = int(possible_positions.max())
            records = SourceRun(source, first_position, last_position + 1)
            self._highest_times[name] = HighestTime(name, highest_ms, records)

    def _time_columns(self, schema: pa.Schema) -> Sequence[str]:
        """Return the names of the columns of times; all batches of a task have one schema."""
        if self._time_column_names is None:
            fields = [field for field in schema if pa.types.is_timestamp(field.type)]
            self._time_column_names = [field.name for field in fields]
        return self._time_column_names

    def _message_rows(self, chunk: _Chunk) -> MessageRows:
        """Return the records as rows that bolts can read."""
        rows = MessageRows(chunk.messages, chunk.source, chunk.positions, self._options.zone)
        rows.topic_id = self._task.topic_ids.get(self._task.topics[chunk.source], "")
        return rows

    def _feed_in_order(
        self, gate: Gate, chunk: _Chunk, origins: I64 | Sequence[int | None]
    ) -> Iterator[pa.RecordBatch]:
        """Pass records to the bolts, and yield what these emit; fail the records that are blocked.

        A record of best effort is never blocked. `origins` has, row by row, the offset of the
        record's first emission; None: it was in another partition.
        """
        best_effort_rows, causes_of_tracked_when = self._apply_tracked_when(chunk)
        if not best_effort_rows and not causes_of_tracked_when:
            # the usual case: all go through the gate at once
            causes_by_row = gate.admit_all(chunk.indices, record_keys(chunk.messages), origins)
        else:
            causes_by_row = self._admit_one_by_one(
                gate, chunk, origins, best_effort_rows, causes_of_tracked_when
            )
        yield from self._feed(chunk, best_effort_rows, causes_by_row)

    def _admit_one_by_one(
        self,
        gate: Gate,
        chunk: _Chunk,
        origins: I64 | Sequence[int | None],
        best_effort_rows: Collection[int],
        causes_of_tracked_when: Mapping[int, Cause],
    ) -> dict[int, Cause]:
        """Take records through the gate one by one; return the causes of the rows that do not pass.

        A record for which `tracked_when` raised fails at its place in the line, and blocks those
        behind it. Rows of best effort do not go through the gate.
        """
        causes_by_row: dict[int, Cause] = {}
        records = zip(chunk.indices.tolist(), chunk.messages, list_of(origins), strict=True)
        for row, (index, message, origin) in enumerate(records):
            if row in best_effort_rows:
                continue
            cause = gate.admit(index, record_key(message), origin)
            if cause is None and row in causes_of_tracked_when:
                cause = causes_of_tracked_when[row]
                gate.fail(index)
            if cause is not None:
                causes_by_row[row] = cause
        return causes_by_row

    def _apply_tracked_when(self, chunk: _Chunk) -> tuple[set[int], dict[int, Cause]]:
        """Call `tracked_when` for each record; return the rows of best effort, and causes by row.

        A row has a cause if `tracked_when` raised for it: it fails, and stays tracked. Both are
        empty where there is no `tracked_when`.
        """
        predicate = self._options.tracked_when
        best_effort_rows: set[int] = set()
        causes_by_row: dict[int, Cause] = {}
        if predicate is None or not self.tracked:
            return best_effort_rows, causes_by_row
        rows = self._message_rows(chunk)
        for row in range(len(chunk.messages)):
            try:
                if not predicate(Tuple(rows, row)):
                    best_effort_rows.add(row)
            except BaseException as error:  # noqa: BLE001 - what user code raises fails its record
                # the operator of what arises before any bolt is the input
                operator = self._options.input_of(chunk.source).name
                cause = cause_of(operator, error, self._tracebacks)
                text = f"tracked_when: {cause.message}"
                causes_by_row[row] = Cause.of(cause.operator, cause.error, text)
        return best_effort_rows, causes_by_row

    def _anchors(self, chunk: _Chunk) -> Anchors | None:
        """Return the anchors of records, each of which is the first tuple of its own root.

        None: nothing is tracked. A *packed* anchor is one number: the root's index in the upper
        bits, in the `ORDINAL_BITS` below it the tuple's ordinal among those of its root. A *wide*
        one, for rows that may be held across batches, has the root's source and position, too.
        """
        if not self.tracked:
            return None
        anchor_form = self._options.root_form  # packed or wide
        packed = pa.array(chunk.indices << ORDINAL_BITS)  # the first tuple has the ordinal 0
        if anchor_form is not AnchorForm.WIDE:
            return Anchors(anchor_form, packed)
        sources = pa.array(np.full(len(chunk.positions), chunk.source))
        return Anchors(AnchorForm.WIDE, wide_column(packed, sources, pa.array(chunk.positions)))


def _source_counts(options: SourceOptions, emitted_count: int) -> Counts:
    """Return the counts of the spout: how many records `read_stream` emitted.

    Empty: it emitted none, or the stream is of a topology, whose first stage counts what its
    spouts emit.
    """
    sealed_stage = options.sealed_stage
    is_topology = sealed_stage is not None and sealed_stage.stage.frame is None
    if not emitted_count or is_topology:
        return {}
    measures = {Counted(What.EMITTED, SPOUT.component, SPOUT): Measure(emitted_count)}
    if sealed_stage is not None:
        # a bolt received each record
        measures[Counted(What.TRANSFERRED, SPOUT.component, SPOUT)] = Measure(emitted_count)
    return measures


class _WithoutBolts:
    """Takes the place of bolts in a source that has none: rows are the source's own columns.

    The anchors are one of these columns if the options say so.
    """

    def __init__(self, options: SourceOptions) -> None:
        """Take the columns from the options."""
        self.gate: Gate | None = None  # only the driver sees failures behind Spark's operators
        self._columns = options.columns
        self._has_anchor_column = options.anchored
        self._anchor_form = options.root_form

    def feed(self, rows: MessageRows, anchors: Anchors | None) -> pa.RecordBatch:
        """Return records as they leave the source: their columns, and behind these their anchors.

        The anchors are in the hidden column, if the options ask for it. None: nothing is tracked,
        and the column has nulls.
        """
        batch = rows.arrow(self._columns)
        if not self._has_anchor_column:
            return batch
        anchor_column = pa.nulls(len(rows), self._anchor_form.type)
        if anchors is not None:
            anchor_column = anchors.column
        columns = [*batch.columns, anchor_column]
        return pa.RecordBatch.from_arrays(columns, names=[*self._columns, ANCHOR])

    def finish(self) -> list[pa.RecordBatch]:
        """Return nothing: no bolt holds rows back."""
        return []

    def report(self) -> TaskReport:
        """Return an empty report, to which `_Reading.report` adds."""
        return TaskReport(operator="read_stream")
