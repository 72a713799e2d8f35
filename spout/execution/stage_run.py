"""A stage at work in one task: of a topology, or the bolts that stand one behind the other on a DataFrame.

Tuples go through the stage's bolts in the order of the graph; what belongs to a later stage, to the sink or
to the DataFrame is put on rows and leaves the task.

Source: docs/design/protocol.md, section 5.2.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from acker.errors import TupleError
from acker.identity import I64, input_id_of
from spout.bolts.hooks import BoltContext
from spout.execution.bolt_work import BoltWork
from spout.execution.calls import ClockNs
from spout.execution.emitted import Emissions
from spout.planning.order import Gate
from spout.publishing.fold import TaskReport, behind_keyed, outstanding_of
from spout.publishing.root_marks import NUMBERED, PLANNED, RootMark, RootMarks, roots_of
from spout.runtime.pulse import Pulse
from spout.topology.bundles import PlacedRows
from spout.topology.graph import Kind
from spout.topology.routing import tasks_for, value_keys
from spout.topology.stage_pass import Frame, StagePass, StreamPass
from spout.topology.stages import Route
from spout.tuples.anchors import Anchors, Carry, Fingerprint, fingerprint_of
from spout.tuples.columns import ANCHOR, ROOT, TASK, TO, Origins
from spout.tuples.counts import Counted, Tally, What, added
from spout.tuples.messages import MessageRows
from spout.tuples.places import Deliveries, Descendants, Places, children_of, column_of, only_roots, places_of
from spout.tuples.raised import first_of_each
from spout.tuples.rows import ArrowRows, one_batch
from spout.tuples.tuple import Delivery, Rows


class TaskRun(Protocol):
    """A stage at work in one task: here, or in a child. `gate` is set while records are fed in order."""

    gate: Gate | None

    def feed(self, rows: Rows, anchors: Anchors | None) -> pa.RecordBatch:
        """Work on a batch of rows and return what leaves the task."""

    def finish(self) -> list[pa.RecordBatch]:
        """Clean the bolts up, and return what was emitted meanwhile."""

    def report(self) -> TaskReport:
        """Return what was done; called last."""


class Arrived(NamedTuple):
    """Rows of one stream that a bolt receives, with the places of each in its trees."""

    rows: Rows
    deliveries: Sequence[Deliveries]


class StageRun:
    """A stage in one task."""

    def __init__(
        self,
        pass_: StagePass,
        context: BoltContext,
        pulse: Pulse | None = None,
        clock_ns: ClockNs = time.perf_counter_ns,
    ) -> None:
        """Prepare the bolts that run in this task; `pulse` is called when a call of one begins and ends."""
        self._gate: Gate | None = None
        self._pass = pass_
        self._outbox = TaskOutbox(pass_)
        self.arrived = 0  # rows before those that are fed next; in a child those of other children, too
        self._dealt = self._left_before = 0
        self._partition = context.partition
        self._took = Fingerprint()
        self._gave = Fingerprint()
        self._tally = Tally()
        self._works: dict[str, BoltWork] = {}
        self._inboxes: dict[str, list[Arrived]] = {}
        for bolt in pass_.bolts:
            self._inboxes[bolt.name] = []
            if not bolt.tasks or context.partition < bolt.tasks:
                here = BoltContext(bolt.name, context.partition, context.batch_id, pass_.tasks)
                self._works[bolt.name] = BoltWork(
                    bolt, here, tracked=pass_.tracked, pulse=pulse, clock_ns=clock_ns
                )

    @property
    def gate(self) -> Gate | None:
        """What blocks records behind others that failed; the bolts ask it before each tuple."""
        return self._gate

    @gate.setter
    def gate(self, gate: Gate | None) -> None:
        self._gate = gate
        for work in self._works.values():
            work.gate = gate

    def feed(self, rows: Rows, anchors: Anchors | None) -> pa.RecordBatch:
        """Let the bolts work on a batch of rows, and return what leaves the task.

        Args:
            rows: records, which their spout emits first; rows of a keyed bolt; rows of the stage before; or,
                where the bolts work on a DataFrame, its rows.
            anchors: of records, a keyed bolt's and a DataFrame's rows; None where nothing is tracked. Rows of
                the stage before have their places with them, or in a column.
        """
        if self._pass.frame is not None:
            self._enter(self._pass.frame, rows, anchors)
        elif isinstance(rows, MessageRows):
            if self._pass.carries_roots and anchors is not None:
                self._outbox.origins.learn(anchors.roots(), anchors.column)
            self._emit(self._pass.spouts[input_id_of(rows.source)], rows, anchors)
        elif self._pass.keyed is not None:
            self._emit(self._pass.keyed, rows, anchors)
        elif isinstance(rows, ArrowRows):
            self._arrive(rows.batch, rows.places)
        else:
            raise TypeError(f"a stage is fed messages or Arrow rows, not {type(rows).__name__}")
        return self._run_bolts()

    def _enter(self, frame: Frame, rows: Rows, anchors: Anchors | None) -> None:
        if anchors is not None and self._pass.upstream:
            self._took = self._took.plus(fingerprint_of(anchors.carry, anchors.column))
        first, self.arrived = self.arrived, self.arrived + len(rows)

        @cache
        def own() -> Sequence[Deliveries]:
            if anchors is None:
                return [()] * len(rows)
            places = places_of(anchors)
            return self._distinguished(places, frame.entry, first) if frame.entry else places

        places = Descendants(anchors, np.arange(len(rows)), own) if frame.by_row else own()
        self._inboxes[self._pass.bolts[0].name].append(Arrived(rows, places))

    def _distinguished(self, places: Sequence[Deliveries], entry: int, first: int) -> Sequence[Deliveries]:
        """Give each row a place of its own, since Spark's operators may repeat it: two equal edges cancel.

        `first`: how many rows arrived in this task before.
        """
        every = np.arange(len(places))
        here = children_of(places, every, entry, self._partition)
        return children_of(here, every, entry, every + first)

    def _emit(self, stream: StreamPass, rows: Rows, anchors: Anchors | None) -> None:
        rows.came_from = stream.id
        roots = places_of(anchors) if anchors is not None else [()] * len(rows)
        every = np.arange(len(rows))
        parcels = [
            children_of(roots, every, route.subscription.key, copy)
            for route in stream.routes
            for copy in range(route.copies)
        ]
        self._tally.add(Counted(What.EMITTED, stream.id.component, stream.id), len(rows))
        if parcels:
            transferred = Counted(What.TRANSFERRED, stream.id.component, stream.id)
            self._tally.add(transferred, len(parcels) * len(rows))
        batch = rows.arrow(stream.schema.names) if stream.leaves else None
        self._distribute(Emissions(stream, rows, batch, parcels))

    def _arrive(self, batch: pa.RecordBatch, every: Places | None) -> None:
        arrived = PlacedRows(batch, every)
        self._took = self._took.plus(arrived.fingerprint(Carry.HOPS))
        numbers = batch.column(TO).to_numpy(zero_copy_only=False)
        only = numbers[:1] if (numbers == numbers[:1]).all() else np.unique(numbers)
        for number in only.tolist():
            rows, places, *_ = arrived if len(only) == 1 else arrived.take(np.flatnonzero(numbers == number))
            arrival = self._pass.arrivals.get(number)
            if arrival is None:
                self._outbox.pass_on(number, rows, places)
                continue
            stream = arrival.stream
            fields = rows.column(stream.column).flatten()
            tuples = pa.RecordBatch.from_arrays(fields, schema=stream.schema)
            deliveries = places or places_of(Anchors(Carry.HOPS, rows.column(ANCHOR)))
            if self._pass.carries_roots:
                self._outbox.origins.learn(only_roots(deliveries), rows.column(ROOT))
            self._inboxes[arrival.consumer].append(
                Arrived(ArrowRows(tuples, came_from=stream.id), deliveries)
            )

    def finish(self) -> list[pa.RecordBatch]:
        left = self._run_bolts(ends=True)
        return [left] if left.num_rows else []

    def _run_bolts(self, *, ends: bool = False) -> pa.RecordBatch:
        """Let each bolt work on what it receives, producers first; return what leaves the task."""
        for name, work in self._works.items():
            inbox, self._inboxes[name] = self._inboxes[name], []
            for rows, deliveries in inbox:
                work.receive(rows, deliveries)
            if ends:
                work.cleanup()
            for block in work.take():
                self._distribute(block)
        return self._left()

    def report(self) -> TaskReport:
        collectors = [work.collector for work in self._works.values()]
        touched = np.array(sorted(set().union(*(collector.touched for collector in collectors))), np.int64)
        # two bolts may leave descendants of one row open, whose place is the row's: twice it would cancel
        left_open = set[Delivery]().union(*(collector.left_open for collector in collectors))
        open_tuples = chain.from_iterable(collector.outstanding() for collector in collectors)
        outstanding = outstanding_of(chain(open_tuples, left_open))
        for name, work in self._works.items():
            if work.collector.sent:  # by a thread that went on: what it acked since would be lost
                raise TupleError(
                    f"bolt {name!r} emitted after its task had ended, so that nobody receives it: let cleanup"
                    " wait for the threads of the bolt"
                )
        source = NUMBERED if self._pass.is_behind_keyed else PLANNED
        failed = chain.from_iterable(collector.failures for collector in collectors)
        marks = [
            RootMarks.of_failures(source, failed),
            RootMarks.of_roots(RootMark.TOUCHED, roots_of(source, touched)),
        ]
        report = TaskReport(
            operator=self._pass.name,
            upstream=self._pass.upstream,
            consumer=self._pass.consumer,
            outstanding=outstanding,
            marks=RootMarks.together(marks),
            took=self._took,
            gave=self._gave,
            counts=added([self._tally.counts(), *(work.tally.counts() for work in self._works.values())]),
            errors=tuple(chain.from_iterable(each.errors for each in collectors)),
            raised=first_of_each(chain(*(each.tracebacks for each in collectors))),
        )
        return behind_keyed(report) if self._pass.is_behind_keyed else report

    def take_report(self) -> TaskReport:
        """Return what was done since this was called last; none of the bolts holds tuples."""
        report = self.report()
        self._took = self._gave = Fingerprint()
        self._tally.clear()
        for work in self._works.values():
            work.forget()
        return report

    def _distribute(self, block: Emissions) -> None:
        stream, rows, batch, parcels, named = block
        if not len(rows):
            return
        if (
            batch is not None
            and stream.leaves
            and self._pass.bundling is not None
            and self._pass.frame is None
        ):
            batch = self._pass.bundling.coded(batch)  # once, and before tasks are found by its values
        left = iter(parcels)
        for route in stream.routes:
            for copy in range(route.copies):
                deliveries = next(left)
                if route.stays:
                    self._inboxes[route.subscription.consumer].append(Arrived(rows, deliveries))
                elif batch is not None:
                    tasks = self._tasks(route, copy, batch, deliveries) if named is None else named
                    self._outbox.add(stream, route.number, batch, tasks, deliveries)
        for output in stream.outputs:
            if batch is not None:
                tasks = np.zeros(0, np.int64)
                if not self._pass.is_last:  # by its values: a tuple that runs again must take the same way
                    tasks = (value_keys(batch, stream.schema.names) >> np.uint64(33)).astype(np.int64)
                self._outbox.add(stream, output.number, batch, tasks, [()] * len(rows))

    def _tasks(self, route: Route, copy: int, batch: pa.RecordBatch, deliveries: Sequence[Deliveries]) -> I64:
        """Return the task that each tuple of a subscription goes to."""
        if route.subscription.kind is Kind.ALL:
            return np.full(len(deliveries), copy, np.int64)
        fields = route.subscription.fields
        keys = value_keys(batch, fields) if fields else None
        first, self._dealt = self._dealt, self._dealt + len(deliveries)
        return tasks_for(route.subscription.kind, route.tasks, keys, deliveries, first)

    def _left(self) -> pa.RecordBatch:
        loads = self._outbox.take()
        if self._pass.consumer:
            for load in loads:
                self._gave = self._gave.plus(load.fingerprint(self._pass.carry))
        if self._pass.bundling is None:
            return one_batch([load.rows for load in loads], self._pass.schema, self._pass.name)
        first = self._left_before
        self._left_before += sum(load.rows.num_rows for load in loads)
        return self._pass.bundling.bundle(loads, first)


class TaskOutbox:
    """Collects the rows that leave one task. `origins` knows where their roots stand, where rows say so."""

    def __init__(self, pass_: StagePass) -> None:
        self.origins = Origins()
        self._pass = pass_
        self._loads: list[PlacedRows] = []

    def add(
        self,
        stream: StreamPass,
        number: int,
        tuples: pa.RecordBatch,
        tasks: I64,
        deliveries: Sequence[tuple[Delivery, ...]],
    ) -> None:
        """Put tuples on rows, for the subscription or output of this number, each for one of the tasks."""
        if self._pass.bare:
            self._loads.append(PlacedRows(tuples))
            return
        if self._pass.frame is not None:
            anchors = column_of(deliveries, self._pass.carry, stream.id.component)
            rows = pa.RecordBatch.from_arrays([*tuples.columns, anchors], schema=self._pass.schema)
            self._loads.append(PlacedRows(rows))
            return
        own = pa.StructArray.from_arrays(tuples.columns, names=stream.schema.names)
        columns = {stream.column: own}
        places = None
        if isinstance(deliveries, Places):
            places = deliveries
        elif not self._pass.is_last:
            columns[ANCHOR] = column_of(deliveries)
        if self._pass.carries_roots:
            columns[ROOT] = self.origins.column(only_roots(deliveries))
        self._put(PlacedRows(pa.RecordBatch.from_pydict(columns), places, number, tasks))

    def pass_on(self, number: int, rows: pa.RecordBatch, places: Places | None) -> None:
        """Hand rows of the stage before on, to a later stage or to the sink."""
        if self._pass.bare:
            stream = self._pass.passing[number]
            tuples = rows.column(stream.column).flatten()
            self._loads.append(PlacedRows(pa.RecordBatch.from_arrays(tuples, schema=stream.schema)))
            return
        tasks = np.asarray(rows.column(TASK), dtype=np.int64)
        self._put(PlacedRows(rows.drop_columns([TO, TASK]), places, number, tasks))

    def take(self) -> list[PlacedRows]:
        """Return what was collected since this was called last."""
        loads, self._loads = self._loads, []
        return loads

    def _put(self, load: PlacedRows) -> None:
        """Bring columns into the order of the rows that leave; those of other streams are null."""
        if self._pass.bundling is not None:  # which writes what is there
            self._loads.append(load)
            return
        rows, places, to, tasks = load
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        columns[TO] = pa.array(np.full(rows.num_rows, to, np.int32))
        columns[TASK] = pa.array(tasks, pa.int32())
        if places is not None and ANCHOR in self._pass.schema.names:
            columns[ANCHOR] = places.column()
        found = [
            columns[field.name] if field.name in columns else pa.nulls(rows.num_rows, field.type)
            for field in self._pass.schema
        ]
        self._loads.append(PlacedRows(pa.RecordBatch.from_arrays(found, schema=self._pass.schema)))
