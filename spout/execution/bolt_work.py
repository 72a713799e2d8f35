"""One bolt of a topology at work in one task: it executes, its hooks watch, and all is counted.

All three forms of a bolt come down to one: a tuple is received, emissions are anchored on it, it is acked or
failed. A `BasicBolt` and an `ArrowBolt` have that done for them; what they emitted in a failed call is not
delivered.

Source: docs/design/protocol.md, section 5.2.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import pyarrow as pa

from acker.errors import TupleError
from spout.bolts.bolts import (
    ArrowBolt,
    BasicBolt,
    BatchCollector,
    Bolt,
    columns_of,
    invoke,
    returned_error,
    stop_on,
)
from spout.bolts.emitting import InTree, Sent, TopologyCollector
from spout.bolts.hooks import AckInfo, BoltContext, EmitInfo, ExecuteInfo, FailInfo, TaskHook
from spout.execution.emitted_block import Block, BlockCollector, PlacedTuple, blocks_of
from spout.execution.guards import Guarded
from spout.planning.order import Gate
from spout.runtime.pulse import Pulse
from spout.topology.stage_pass import BoltPass
from spout.tuples.collector import (
    DEFAULT_STREAM,
    AnchoredTuple,
    BasicCollector,
    Cause,
    Delivery,
    FailTuple,
    Rows,
    StreamId,
    Tuple,
    Values,
    cause_of,
)
from spout.tuples.counts import Counted, Tally, What
from spout.tuples.rows import arrow_of


class TreeCollector(BasicCollector):
    """The collector of a `BasicBolt` in a topology: anchors everything on the tuple that is executed."""

    __slots__ = ("_collector", "current")

    def __init__(self, collector: TopologyCollector) -> None:
        """Emit by a collector of a rich bolt."""
        super().__init__(self._emit)
        self._collector = collector
        self.current: InTree | None = None

    def _emit(self, values: Values, /, stream: str = DEFAULT_STREAM) -> None:
        self._collector.emit(values, self.current or (), stream)

    def emit_direct(self, task: int, values: Values, stream: str = DEFAULT_STREAM) -> None:
        """Emit one tuple to a task; see `BasicCollector.emit_direct`."""
        self._collector.emit_direct(task, values, self.current or (), stream)

    def report_error(self, error: BaseException | str) -> None:
        """Show an error in the topology's status."""
        self._collector.report_error(error)


class BoltWork:
    """A bolt in one task; it is the observer of its own collector."""

    def __init__(
        self,
        pass_: BoltPass,
        context: BoltContext,
        *,
        tracked: bool,
        pulse: Pulse | None = None,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """Prepare a bolt; its hooks before it, so that they see all it does. `pulse` is told of its calls."""
        self.name = pass_.name
        self.gate: Gate | None = None
        self.tally = Tally()
        self._bolt = pass_.bolt
        self._tracked = tracked
        self._pulse = pulse or Pulse()
        self._clock_ns = clock_ns
        self._hooks: Sequence[TaskHook] = context.hooks
        self._emits = {name: stream.emits for name, stream in pass_.streams.items()}
        self._blocks: list[Block] = []
        self._acked: dict[StreamId, list[int]] = {}
        self._refused: dict[StreamId, list[int]] = {}
        self.collector = TopologyCollector(pass_.name, self._emits, self)
        self._rows = BlockCollector(self.collector)
        self._basic = TreeCollector(self.collector)
        context.hooks.extend(pass_.hooks)
        for hook in self._hooks:
            hook.prepare(context)
        if isinstance(self._bolt, Bolt):
            self._bolt.prepare(context, self.collector)
        else:
            self._bolt.prepare(context)

    def receive(self, rows: Rows, deliveries: Sequence[tuple[Delivery, ...]]) -> None:
        """Let the bolt work on rows, each with its places in its trees."""
        came_from = rows.came_from
        if isinstance(self._bolt, Guarded):
            self._bolt.post.places = deliveries
        began_ns = self._clock_ns()
        if self.gate is not None and not isinstance(self._bolt, ArrowBolt):
            self._receive_in_order(self.gate, rows, deliveries)
            return
        if isinstance(self._bolt, BasicBolt) and not self._hooks:
            self._execute_rows(self._bolt, rows, deliveries, began_ns)
            return
        inputs = [InTree(rows, row, deliveries, self.name, began_ns) for row in range(len(rows))]
        if isinstance(self._bolt, ArrowBolt):
            self._execute_batch(self._bolt, rows, inputs)
        else:
            for received in inputs:
                self._execute(received)
        self._pulse.end()
        took_ns = self._clock_ns() - began_ns
        self.tally.add(Counted(What.EXECUTED, self.name, came_from), len(inputs), took_ns)

    def _receive_in_order(self, gate: Gate, rows: Rows, places: Sequence[tuple[Delivery, ...]]) -> None:
        """Let the bolt work on tuples that stand in lines, but for those that are held by now."""
        began_ns = self._clock_ns()
        executed = 0
        for row, deliveries in enumerate(places):
            held = gate.holds_any(each.root for each in deliveries)
            failures = self.collector.failures
            if held is not None:
                failures += [(each.root, held) for each in deliveries]
                continue
            known = len(failures)
            self._execute(InTree(rows, row, places, self.name, began_ns))
            executed += 1
            for root, _ in failures[known:]:
                gate.fail(root)
        self._pulse.end()
        took_ns = self._clock_ns() - began_ns
        self.tally.add(Counted(What.EXECUTED, self.name, rows.came_from), executed, took_ns)

    def cleanup(self) -> None:
        """Clean the bolt up, then its hooks."""
        self._basic.current = None
        self._bolt.cleanup()
        if not self._rows.is_empty:
            raise TupleError(
                f"bolt {self.name!r} emitted in cleanup; there is no input left to anchor on: make it a Bolt"
            )
        for hook in self._hooks:
            hook.cleanup()

    def take(self) -> list[Block]:
        """Return what was emitted since this was called last, and count it."""
        sent, self.collector.sent = self.collector.sent, []
        blocks, self._blocks = [*self._blocks, *blocks_of(sent, self._emits)], []
        for block in blocks:
            stream = StreamId(self.name, block.stream)
            self.tally.add(Counted(What.EMITTED, self.name, stream), len(block.values))
            if block.parcels:
                transferred = Counted(What.TRANSFERRED, self.name, stream)
                self.tally.add(transferred, len(block.parcels) * len(block.values))
        return blocks

    def forget(self) -> None:
        """Forget what was reported; the bolt holds nothing."""
        self.collector.failures.clear()
        self.collector.touched.clear()
        self.collector.errors.clear()
        self.collector.tracebacks.clear()
        self.tally.clear()

    def emitted(self, sent: Sent) -> None:
        """Show an emission to the hooks."""
        for hook in self._hooks:
            invoke(self.name, hook.emit, EmitInfo(sent.values, sent.stream, len(sent.ordinals)))

    def acked(self, received: AnchoredTuple) -> None:
        """Count an ack and show it to the hooks."""
        took_ns = self._settled(What.ACKED, self._acked, received)
        for hook in self._hooks:
            invoke(self.name, hook.ack, AckInfo(received, took_ns / 1_000_000))

    def failed(self, received: AnchoredTuple, cause: Cause) -> None:
        """Count a fail and show it to the hooks."""
        took_ns = self._settled(What.FAILED, self._refused, received)
        for hook in self._hooks:
            hook.fail(FailInfo(received, took_ns / 1_000_000, cause))

    def _settled(self, what: What, slots: dict[StreamId, list[int]], received: AnchoredTuple) -> int:
        since_ns = received.since_ns if isinstance(received, InTree) else 0
        took_ns = self._clock_ns() - since_ns
        stream = received.came_from
        slot = slots.get(stream)
        if slot is None:
            slot = slots[stream] = self.tally.slot(Counted(what, self.name, stream))
        slot[0] += 1
        slot[1] += took_ns
        return took_ns

    def _execute(self, received: InTree) -> None:
        """Call ``execute`` for one tuple; an exception fails it."""
        collector = self.collector
        received.since_ns = began_ns = self._clock_ns()
        collector.receive(received)
        before = len(collector.sent)
        self._pulse.begin(self.name)
        try:
            if isinstance(self._bolt, BasicBolt):
                self._basic.current = received
                invoke(self.name, self._bolt.execute, received, self._basic)
                collector.ack(received)
            elif isinstance(self._bolt, Bolt):
                invoke(self.name, self._bolt.execute, received)
            for hook in self._hooks:
                info = ExecuteInfo(received, (self._clock_ns() - began_ns) / 1_000_000)
                invoke(self.name, hook.execute, info)
        except Exception as error:  # whatever user code raises fails its input
            stop_on(self.name, self._bolt, error)
            if not self._tracked and not isinstance(error, FailTuple):
                raise
            if isinstance(self._bolt, BasicBolt):
                del collector.sent[before:]
            collector.refuse(received, cause_of(self.name, error, collector.tracebacks))

    def _execute_rows(
        self, bolt: BasicBolt, rows: Rows, places: Sequence[tuple[Delivery, ...]], began_ns: int
    ) -> None:
        """Call a basic bolt that no hook watches for each row; it is timed by the whole inbox."""
        collector = self._rows
        failed = 0
        execute: Callable[[Tuple, BasicCollector], object] = bolt.execute
        self._pulse.begin(self.name, lambda: collector.row)
        for row, received in enumerate(map(PlacedTuple, repeat(rows), range(len(rows)), repeat(places))):
            collector.row = row
            try:
                if (returned := execute(received, collector)) is not None:
                    raise returned_error(self.name, execute, returned)
            except Exception as error:  # whatever user code raises fails its input
                stop_on(self.name, bolt, error)
                if not self._tracked and not isinstance(error, FailTuple):
                    raise
                failed += 1
                collector.drop()
                cause = cause_of(self.name, error, self.collector.tracebacks)
                self.collector.failures += [(each.root, cause) for each in places[row]]
        self._pulse.end()
        took_ns = self._clock_ns() - began_ns
        self._blocks += collector.blocks(self._emits, rows, places)
        count = len(rows)
        came_from = rows.came_from
        self.tally.add(Counted(What.EXECUTED, self.name, came_from), count, took_ns)
        for what, share in ((What.ACKED, count - failed), (What.FAILED, failed)):
            if share:
                self.tally.add(Counted(what, self.name, came_from), share, took_ns * share // count)

    def _execute_batch(self, bolt: ArrowBolt, rows: Rows, inputs: Sequence[InTree]) -> None:
        """Call ``execute`` for a whole batch; an exception fails every row of it."""
        collector = BatchCollector(self.name, len(inputs), self.collector.tracebacks)
        for received in inputs:
            self.collector.receive(received)
        self._pulse.begin(self.name)
        try:
            invoke(self.name, bolt.execute, arrow_of(rows, bolt.fields), collector)
            self._emit_rows(collector, inputs)
        except Exception as error:  # whatever user code raises fails its input
            stop_on(self.name, self._bolt, error)
            if not self._tracked and not isinstance(error, FailTuple):
                raise
            self.collector.sent.clear()
            cause = cause_of(self.name, error, self.collector.tracebacks)
            for received in inputs:
                self.collector.refuse(received, cause)
            return
        causes = dict(collector.failures)
        for row, received in enumerate(inputs):
            if row in causes:
                self.collector.refuse(received, causes[row])
            else:
                self.collector.ack(received)

    def _emit_rows(self, collector: BatchCollector, inputs: Sequence[InTree]) -> None:
        """Emit what an Arrow bolt emitted, but for what it emitted on rows that it failed."""
        failed = {row for row, _ in collector.failures}
        for columns, parents, stream in zip(
            collector.columns, collector.parents, collector.streams, strict=True
        ):
            fields = self._emits[stream].fields if stream in self._emits else ()
            named = columns_of(columns, fields, self.name)
            values = zip(*(_values(column) for column in named), strict=True)
            for parent, row in zip(parents.tolist(), values, strict=True):
                if parent not in failed:
                    self.collector.emit(row, inputs[parent], stream)


def _values(column: pa.Array | Sequence[Any]) -> Sequence[Any]:
    to_pylist = getattr(column, "to_pylist", None)
    if to_pylist is None:
        raise TupleError(f"an ArrowBolt emits Arrow arrays, not a {type(column).__name__}")
    values: list[Any] = to_pylist()
    return values
