"""A stage of a topology at work in one task.

Tuples go through the stage's bolts in the order of the graph; what belongs to a later stage, or to the sink,
is put on rows and leaves the task.

Source: docs/design/protocol.md, section 5.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from acker.identity import I64, input_id_of
from spout.bolts.hooks import BoltContext
from spout.execution.bolt_work import BoltWork
from spout.execution.emitted_block import Block
from spout.execution.outbox import Outbox
from spout.planning.order import Gate
from spout.publishing.fold import TaskReport, failures_of, outstanding_of
from spout.runtime.pulse import Pulse
from spout.topology.graph import Kind
from spout.topology.routing import keys_of, tasks_for
from spout.topology.stage_pass import StagePass, StreamPass
from spout.topology.stages import Route
from spout.tuples.anchors import Anchors, Carry, Fingerprint, fingerprint_of
from spout.tuples.collector import Cause, Rows, StreamId, cause_of
from spout.tuples.columns import ANCHOR, TO
from spout.tuples.counts import Counted, Tally, What, added
from spout.tuples.messages import MessageRows
from spout.tuples.origins import ROOT
from spout.tuples.places import Deliveries, children_of, only_roots, places_of
from spout.tuples.raised import first_of_each
from spout.tuples.rows import MISFITS, ArrowRows, ListRows, batch_of, misfits, unanchored_misfit


class Inbox(NamedTuple):
    """Rows of one stream that a bolt receives, with the places of each in its trees."""

    rows: Rows
    deliveries: Sequence[Deliveries]


class StageRun:
    """A stage in one task."""

    def __init__(self, pass_: StagePass, context: BoltContext, pulse: Pulse | None = None) -> None:
        """Prepare the bolts that run in this task; `pulse` is told what they are at."""
        self._gate: Gate | None = None
        self._pass = pass_
        self._outbox = Outbox(pass_)
        self._dealt = 0
        self._failed: list[tuple[int, Cause]] = []
        self._took = Fingerprint()
        self._gave = Fingerprint()
        self._tally = Tally()
        self._works: dict[str, BoltWork] = {}
        self._inboxes: dict[str, list[Inbox]] = {}
        self._streams: dict[StreamId, StreamPass] = {}
        for bolt in pass_.bolts:
            self._inboxes[bolt.name] = []
            self._streams |= {stream.id: stream for stream in bolt.streams.values()}
            if not bolt.tasks or context.partition < bolt.tasks:
                here = BoltContext(bolt.name, context.partition, context.batch_id, pass_.tasks)
                self._works[bolt.name] = BoltWork(bolt, here, tracked=pass_.tracked, pulse=pulse)

    @property
    def gate(self) -> Gate | None:
        """What holds records that stand in lines; its bolts ask it before each tuple."""
        return self._gate

    @gate.setter
    def gate(self, gate: Gate | None) -> None:
        self._gate = gate
        for work in self._works.values():
            work.gate = gate

    def feed(self, rows: Rows, anchors: Anchors | None) -> pa.RecordBatch:
        """Emit records by their spout, let the bolts work on them, and return what leaves the task."""
        if not isinstance(rows, MessageRows):
            raise TypeError(f"the first stage reads messages, not {type(rows).__name__}")
        if self._pass.carries_roots and anchors is not None:
            self._outbox.origins.learn(anchors.roots(), anchors.column)
        stream = self._pass.spouts[input_id_of(rows.source)]
        rows.came_from = stream.id
        roots = places_of(anchors) if anchors is not None else [()] * len(rows)
        every = np.arange(len(rows))
        parcels = [
            children_of(roots, every, route.subscription.key, np.full(len(rows), copy))
            for route in stream.routes
            for copy in range(route.copies)
        ]
        self._tally.add(Counted(What.EMITTED, stream.id.component, stream.id), len(rows))
        if parcels:
            transferred = Counted(What.TRANSFERRED, stream.id.component, stream.id)
            self._tally.add(transferred, len(parcels) * len(rows))
        batch = rows.arrow(stream.schema.names) if stream.leaves else None
        self._distribute(stream, rows, batch, parcels)
        return self._worked()

    def arrive(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Take rows of the stage before, let the bolts work on them, and return what leaves the task."""
        anchors = batch.column(ANCHOR)
        self._took = self._took.plus(fingerprint_of(Carry.HOPS, anchors))
        numbers = batch.column(TO).to_numpy(zero_copy_only=False)
        for number in np.unique(numbers).tolist():
            here = numbers == number
            rows = batch if here.all() else batch.filter(pa.array(here))
            arrival = self._pass.arrivals.get(number)
            if arrival is None:
                self._outbox.pass_on(number, rows)
                continue
            stream = arrival.stream
            fields = rows.column(stream.column).flatten()
            tuples = pa.RecordBatch.from_arrays(fields, schema=stream.schema)
            deliveries = places_of(Anchors(Carry.HOPS, rows.column(ANCHOR)))
            if self._pass.carries_roots:
                self._outbox.origins.learn(only_roots(deliveries), rows.column(ROOT))
            self._inboxes[arrival.consumer].append(Inbox(ArrowRows(tuples, came_from=stream.id), deliveries))
        return self._worked()

    def finish(self) -> list[pa.RecordBatch]:
        """Clean the bolts up, in order, and return what was emitted meanwhile."""
        for name, work in self._works.items():
            self._receive(name)
            work.cleanup()
            self._send(name, work.take())
        return [self._left()]

    def report(self) -> TaskReport:
        """Return what was done."""
        collectors = [work.collector for work in self._works.values()]
        touched = sorted(set().union(*(collector.touched for collector in collectors)))
        return TaskReport(
            operator=self._pass.name,
            upstream=self._pass.upstream,
            consumer=self._pass.consumer,
            failures=failures_of(chain(self._failed, *(each.failures for each in collectors))),
            outstanding=outstanding_of(chain.from_iterable(each.outstanding() for each in collectors)),
            touched=np.array(touched, np.int64),
            took=self._took,
            gave=self._gave,
            counts=added([self._tally.counts(), *(work.tally.counts() for work in self._works.values())]),
            errors=self._errors(),
            raised=first_of_each(chain(*(each.tracebacks for each in collectors))),
        )

    def take_report(self) -> TaskReport:
        """Return what was done since this was called last; none of the bolts holds tuples."""
        report = self.report()
        self._failed = []
        self._took = self._gave = Fingerprint()
        self._tally.clear()
        for work in self._works.values():
            work.forget()
        return report

    def _errors(self) -> tuple[Cause, ...]:
        return tuple(chain.from_iterable(work.collector.errors for work in self._works.values()))

    def _worked(self) -> pa.RecordBatch:
        """Let every bolt work on what lies in its inbox, producers before consumers."""
        for name, work in self._works.items():
            self._receive(name)
            self._send(name, work.take())
        return self._left()

    def _receive(self, name: str) -> None:
        inbox, self._inboxes[name] = self._inboxes[name], []
        for rows, deliveries in inbox:
            self._works[name].receive(rows, deliveries)

    def _send(self, component: str, blocks: Sequence[Block]) -> None:
        """Distribute what a bolt emitted, stream by stream."""
        for block in blocks:
            self._send_block(self._streams[StreamId(component, block.stream)], block)

    def _send_block(self, stream: StreamPass, block: Block) -> None:
        batch = None
        if stream.leaves:
            batch, block = self._fitting(stream, block)
        rows = ListRows(stream.schema.names, block.values, block.find_id, stream.id, stream.schema)
        tasks = np.array(block.tasks, np.int64) if stream.direct else None
        self._distribute(stream, rows, batch, block.parcels, tasks)

    def _distribute(
        self,
        stream: StreamPass,
        rows: Rows,
        batch: pa.RecordBatch | None,
        parcels: Sequence[Sequence[Deliveries]],
        named: I64 | None = None,
    ) -> None:
        """Bring tuples of one stream to whoever reads it.

        Args:
            stream: the stream.
            rows: the tuples, for the bolts of this stage.
            batch: the same for those that leave the task; None where none does.
            parcels: for each subscription and copy of it, the places of each tuple in its trees.
            named: on a direct stream the task of each tuple.
        """
        left = iter(parcels)
        for route in stream.routes:
            for copy in range(route.copies):
                deliveries = next(left, ())
                if not len(rows):
                    continue
                if route.stays:
                    self._inboxes[route.subscription.consumer].append(Inbox(rows, deliveries))
                elif batch is not None:
                    tasks = self._tasks(route, copy, batch, deliveries) if named is None else named
                    self._outbox.add(stream, route.number, batch, tasks, deliveries)
        for output in stream.outputs:
            if batch is not None and len(rows):
                # by its values, since a tuple that runs again must take the same way
                tasks = (keys_of(batch, stream.schema.names) >> np.uint64(33)).astype(np.int64)
                self._outbox.add(stream, output.number, batch, tasks, [()] * len(rows))

    def _tasks(self, route: Route, copy: int, batch: pa.RecordBatch, deliveries: Sequence[Deliveries]) -> I64:
        """Return the task that each tuple of a subscription goes to."""
        if route.subscription.kind is Kind.ALL:
            return np.full(len(deliveries), copy, np.int64)
        fields = route.subscription.fields
        keys = keys_of(batch, fields) if fields else None
        first, self._dealt = self._dealt, self._dealt + len(deliveries)
        return tasks_for(route.subscription.kind, route.tasks, keys, deliveries, first)

    def _fitting(self, stream: StreamPass, block: Block) -> tuple[pa.RecordBatch, Block]:
        """Convert emissions to Arrow; those that do not fit their stream fail their roots."""
        try:
            return batch_of(block.values, stream.schema), block
        except MISFITS as misfit:
            bad = dict(misfits(block.values, stream.schema, stream.id.component))
            if not self._pass.tracked:
                raise next(iter(bad.values()), misfit) from None
        for row, error in bad.items():
            anchors = block.anchored_on(row)
            if not anchors:
                raise unanchored_misfit(stream.id.component, f"stream {stream.id.stream!r}", error)
            cause = cause_of(stream.id.component, error)
            self._failed += [(each.root, cause) for each in anchors]
        kept = block.kept([row for row in range(len(block.values)) if row not in bad])
        return batch_of(kept.values, stream.schema), kept

    def _left(self) -> pa.RecordBatch:
        batch = self._outbox.take()
        if self._pass.consumer:
            self._gave = self._gave.plus(fingerprint_of(Carry.HOPS, batch.column(ANCHOR)))
        return batch
