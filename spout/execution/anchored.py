"""A pass with rich bolts: tuples that are anchored, acked and failed by hand.

Every tuple knows its deliveries. A tuple that a rich bolt keeps stays open across the batches of the task,
up to the bolt's `cleanup`; what is open then is outstanding.

Source: docs/design/protocol.md, section 5.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, count

import pyarrow as pa

from spout.bolts.bolts import Bolt, invoke, stop_on
from spout.bolts.emitting import InTree
from spout.bolts.hooks import BoltContext
from spout.execution.guards import Guarded
from spout.execution.passes import Pass, ordinals_of, watches_of
from spout.execution.steps import RowGate, Step, run_simple
from spout.execution.watching import WatchedCollector
from spout.planning.order import Gate
from spout.publishing.fold import TaskReport, failures_of, outstanding_of
from spout.runtime.pulse import Pulse
from spout.tuples.anchors import Anchors, Carry, Fingerprint, fingerprint_of, paths_column
from spout.tuples.collector import (
    Cause,
    Emission,
    FailTuple,
    MessageId,
    Rows,
    StreamId,
    cause_of,
)
from spout.tuples.counts import added
from spout.tuples.places import Deliveries
from spout.tuples.raised import first_of_each
from spout.tuples.rows import MISFITS, FindId, ListRows, batch_of, misfits, unanchored_misfit, unknown_id


class Placed:
    """Rows with the deliveries of each."""

    __slots__ = ("deliveries", "rows")

    def __init__(self, rows: Rows, deliveries: Sequence[Deliveries]) -> None:
        """Place rows in trees; a row without deliveries is unanchored."""
        self.rows = rows
        self.deliveries = deliveries


class AnchoredRun:
    """A pass with at least one rich bolt at work in one task."""

    def __init__(self, pass_: Pass, context: BoltContext, pulse: Pulse | None = None) -> None:
        """Prepare the bolts for one task; `pulse` is told what they are at."""
        self.gate: Gate | None = None
        self._pass = pass_
        self._partition = context.partition
        self._rows = count()
        self._failed: list[tuple[int, Cause]] = []
        self._took = Fingerprint()
        self._gave = Fingerprint()
        self._collectors: dict[int, WatchedCollector] = {}
        self._watches = watches_of(pass_, context, pulse or Pulse())
        for place, (step, watch) in enumerate(zip(pass_.steps, self._watches, strict=True)):
            if isinstance(step.bolt, Bolt):
                self._collectors[place] = WatchedCollector(pass_.hop(place), watch, step.schema.names)
            watch.prepare(self._collectors.get(place))

    def feed(self, rows: Rows, anchors: Anchors | None) -> pa.RecordBatch:
        """Work on a batch of rows and return what was emitted."""
        if anchors is None:
            return self._through(0, Placed(rows, [()] * len(rows)))
        if self._pass.upstream:
            self._took = self._took.plus(fingerprint_of(anchors.carry, anchors.column))
        deliveries = list(anchors.deliveries())
        if self._pass.loose:
            deliveries = [self._enter(each) for each in deliveries]
        return self._through(0, Placed(rows, deliveries))

    def finish(self) -> list[pa.RecordBatch]:
        """Clean the bolts up, and return what was emitted meanwhile."""
        batches: list[pa.RecordBatch] = []
        for place, step in enumerate(self._pass.steps):
            self._watches[place].cleanup()
            collector = self._collectors.get(place)
            if collector is not None and collector.emissions:
                batches.append(self._through(place + 1, self._taken(place, step, collector)))
        return batches

    def report(self) -> TaskReport:
        """Return what was done."""
        collectors = self._collectors.values()
        touched = sorted(set().union(*(collector.touched for collector in collectors)))
        return TaskReport(
            operator=self._pass.name,
            upstream=self._pass.upstream,
            consumer=self._pass.consumer,
            failures=failures_of(chain(self._failed, *(collector.failures for collector in collectors))),
            outstanding=outstanding_of(chain.from_iterable(each.outstanding() for each in collectors)),
            touched=pa.array(touched, pa.int64()).to_numpy(),
            took=self._took,
            gave=self._gave,
            counts=added(watch.counts for watch in self._watches),
            errors=tuple(chain(*(w.errors for w in self._watches), *(c.errors for c in collectors))),
            raised=first_of_each(chain(*(watch.tracebacks for watch in self._watches))),
        )

    def _enter(self, deliveries: Deliveries) -> Deliveries:
        """Tell apart what Spark's operators may have repeated: two equal edges would cancel."""
        number = next(self._rows)
        entry = self._pass.entry
        return tuple(each.child(entry, self._partition).child(entry, number) for each in deliveries)

    def _through(self, place: int, placed: Placed) -> pa.RecordBatch:
        """Send rows through the bolts from a place on, and give what comes out its anchors."""
        for number in range(place, len(self._pass.steps)):
            placed = self._step(number, placed)
        return self._anchor(placed)

    def _step(self, place: int, placed: Placed) -> Placed:
        step = self._pass.steps[place]
        collector = self._collectors.get(place)
        if collector is None:
            return self._simple(place, step, placed)
        watch = self._watches[place]
        first_ns = began_ns = watch.now_ns()
        executed = 0
        for row, deliveries in enumerate(placed.deliveries):
            held = None if self.gate is None else self.gate.holds_any(each.root for each in deliveries)
            if held is not None:
                self._failed += [(each.root, held) for each in deliveries]
                continue
            executed += 1
            received = InTree(placed.rows, row, placed.deliveries, step.name, began_ns)
            known = len(collector.failures)
            collector.receive(received)
            watch.pulse.begin(step.name)
            try:
                invoke(step.name, step.bolt.execute, received)
                watch.executed(received, watch.now_ns() - began_ns)
            except Exception as error:  # whatever user code raises fails its input
                stop_on(step.name, step.bolt, error)
                if not self._pass.tracked and not isinstance(error, FailTuple):
                    raise
                collector.refuse(received, watch.cause_of(error))
            if self.gate is not None:
                for root, _ in collector.failures[known:]:
                    self.gate.fail(root)
            began_ns = watch.now_ns()
        watch.pulse.end()
        watch.count_executed(placed.rows.came_from, executed, began_ns - first_ns)
        return self._taken(place, step, collector)

    def _simple(self, place: int, step: Step, placed: Placed) -> Placed:
        """Run a bolt that anchors and acks by itself; its input's edges and its output's cancel."""
        if isinstance(step.bolt, Guarded):
            step.bolt.post.places = placed.deliveries
        gate = None if self.gate is None else self._row_gate(self.gate, placed)
        out = run_simple(
            step, placed.rows, self._watches[place], tracked=self._pass.tracked, arrow=False, gate=gate
        )
        for row, cause in out.failures:
            self._failed += [(delivery.root, cause) for delivery in placed.deliveries[row]]
            if self.gate is not None:
                self._fail(self.gate, placed.deliveries[row])
        hop = self._pass.hop(place)
        ordinals = ordinals_of(out.parents, len(placed.deliveries)).tolist()
        parents = out.parents.tolist()
        deliveries = [
            tuple(each.child(hop, ordinal) for each in placed.deliveries[parent])
            for parent, ordinal in zip(parents, ordinals, strict=True)
        ]
        values = [tuple(out.rows.value(name, row) for name in out.rows.names) for row in range(len(out.rows))]

        def find(row: int) -> MessageId:
            return placed.rows.message_id(parents[row])

        return Placed(ListRows(step.schema.names, values, find, StreamId(step.name), step.schema), deliveries)

    @staticmethod
    def _fail(gate: Gate, deliveries: Deliveries) -> None:
        for each in deliveries:
            gate.fail(each.root)

    def _row_gate(self, gate: Gate, placed: Placed) -> RowGate:
        return RowGate(
            lambda row: gate.holds_any(each.root for each in placed.deliveries[row]),
            lambda row: self._fail(gate, placed.deliveries[row]),
        )

    def _taken(self, place: int, step: Step, collector: WatchedCollector) -> Placed:
        """Take what a rich bolt emitted."""
        emissions, collector.emissions = collector.emissions, []
        self._watches[place].count_emitted(len(emissions))
        values = [each.values for each in emissions]
        rows = ListRows(step.schema.names, values, first_anchor(emissions), StreamId(step.name), step.schema)
        return Placed(rows, [each.deliveries for each in emissions])

    def _anchor(self, placed: Placed) -> pa.RecordBatch:
        pass_ = self._pass
        rows = placed.rows
        values = rows.rows if isinstance(rows, ListRows) else []
        batch, deliveries = self._fitting(pass_.steps[-1], values, placed.deliveries)
        if pass_.carry is Carry.NONE:
            return batch
        column = paths_column(deliveries)
        if pass_.consumer:
            self._gave = self._gave.plus(fingerprint_of(pass_.carry, column))
        return pa.RecordBatch.from_arrays([*batch.columns, column], schema=pass_.schema)

    def _fitting(
        self, step: Step, values: Sequence[Sequence[object]], deliveries: Sequence[Deliveries]
    ) -> tuple[pa.RecordBatch, Sequence[Deliveries]]:
        """Convert emitted rows; those that do not fit the output fail their roots."""
        try:
            return batch_of(values, step.schema), deliveries
        except MISFITS as misfit:
            bad = dict(misfits(values, step.schema, step.name))
            if not self._pass.tracked:
                raise next(iter(bad.values()), misfit) from None
        for row, error in bad.items():
            if not deliveries[row]:
                raise unanchored_misfit(step.name, "its output", error)
            self._failed += [(each.root, cause_of(step.name, error)) for each in deliveries[row]]
        kept = [row for row in range(len(values)) if row not in bad]
        return batch_of([values[row] for row in kept], step.schema), [deliveries[row] for row in kept]


def first_anchor(emissions: Sequence[Emission]) -> FindId:
    """Let emitted rows find the message id of their first anchor."""

    def find(row: int) -> MessageId:
        anchor = emissions[row].anchor
        return unknown_id(row) if anchor is None else anchor.message_id

    return find
