"""The forms of a bolt, each called for a block.

`RowCall`
    A `BasicBolt`, for one row after the other. Of an emission only the number of its input row is kept.
`BatchCall`
    An `ArrowBolt`, for all rows at once.
`HandCall`
    A rich `Bolt`, and a `BasicBolt` that hooks watch: each tuple has a state, and places in trees of its own.
`WatchedBatchCall`
    An `ArrowBolt` that hooks watch: its rows are emitted, acked and failed one by one.

An exception of user code fails the input that it was raised for, and nothing that was emitted for that input
is delivered (a rich bolt's emissions are); one that the bolt stops on ends the task. Untracked, `FailTuple`
drops the input and any other exception ends the task, since nobody would replay it.

Source: docs/design/protocol.md, section 5.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from spout.bolts.bolts import (
    AnyBolt,
    ArrowBolt,
    BasicBolt,
    BatchCollector,
    Bolt,
    invoke,
    returned_error,
    stop_on,
)
from spout.bolts.collectors import BasicCollector, BoltObserver, OutputCollector, Sent
from spout.bolts.hooks import AckInfo, EmitInfo, ExecuteInfo, FailInfo, TaskHook
from spout.execution.calls import Block, BoltCall, ClockNs, EmittedRows, Outcome, RowFailure
from spout.execution.emitted import RowCollector, TreeCollector, too_late
from spout.execution.fitting import batches_of
from spout.planning.order import Gate
from spout.topology.stage_pass import StreamPass
from spout.tuples.counts import Counted, Tally, What
from spout.tuples.exact import python_values
from spout.tuples.failures import Cause, FailTuple, cause_of
from spout.tuples.raised import Tracebacks
from spout.tuples.tuple import AnchoredTuple, PlacedTuple, Rows, StreamId

ExecuteRow = Callable[[Any, BasicCollector], object]
"""``execute`` of a basic bolt."""


@dataclass(frozen=True, slots=True)
class Causes:
    """Names what an exception of a bolt's code failed.

    `tracked`: whether an exception fails the input; otherwise it is raised.
    """

    name: str
    bolt: AnyBolt
    collector: OutputCollector
    tracked: bool

    def of(self, error: Exception, raised: Exception | None = None) -> Cause:
        """Return the cause; raise the error if it ends the task, from what was `raised` in other words."""
        stop_on(self.name, self.bolt, error)
        if not self.tracked and not isinstance(error, FailTuple):
            if raised in (None, error):
                raise error
            raise error from raised
        return cause_of(self.name, error, self.collector.tracebacks)


@dataclass(frozen=True, slots=True)
class RowCall:
    """Calls a basic bolt for each row.

    `around`: returns what to call in place of ``execute`` for the rows of a block; None: ``execute`` itself.
    """

    name: str
    bolt: BasicBolt
    streams: Mapping[str, StreamPass]
    collector: RowCollector
    causes: Causes
    around: Callable[[ExecuteRow, Rows], ExecuteRow] | None = None

    def call(self, block: Block) -> Outcome:
        """Call the bolt; the rows that it emitted are as it emitted them."""
        collector = self.collector
        if collector.values:
            raise too_late(self.name)
        rows, places, turns = block
        values, ended = collector.values, collector.ends.append
        failures: list[RowFailure] = []
        execute: ExecuteRow = self.bolt.execute
        if self.around is not None:
            execute = self.around(execute, rows)
        for received in map(PlacedTuple, repeat(rows), turns, repeat(places)):
            try:
                if (returned := execute(received, collector)) is not None:
                    raise returned_error(self.name, self.bolt.execute, returned)
            except Exception as raised:  # noqa: BLE001 - whatever user code raises fails its input
                error = collector.named(self.name, raised)
                cause = self.causes.of(error, raised)
                collector.drop()
                failures.append((received.row, cause))
                turns.failed(received.row)
                # its traceback holds this frame, and with it the rows: nothing collects cycles here
                del error
            ended(len(values))
        emitted = [
            EmittedRows(self.streams[name], values, parents, tasks)
            for name, values, parents, tasks in collector.by_stream(turns.taken())
        ]
        return Outcome(emitted, failures)


@dataclass(frozen=True, slots=True)
class BatchCall:
    """Calls an Arrow bolt for all rows; what it raises, or emits in columns of a wrong form, fails every row.

    `misfits`: as `spout.execution.fitting` has the log.
    """

    name: str
    bolt: ArrowBolt
    streams: Mapping[str, StreamPass]
    collector: OutputCollector
    causes: Causes
    misfits: Tracebacks | None

    def call(self, block: Block) -> Outcome:
        """Call the bolt; the rows that it emitted are of the types of their streams."""
        count = len(block.rows)
        if not count:  # bolts before it may have failed them all; its code may well need a row
            return Outcome()
        collector = BatchCollector(self.name, count, self.collector.tracebacks)
        try:
            invoke(self.name, self.bolt.execute, block.rows.arrow(self.bolt.fields), collector)
            emitted, unfit = batches_of(self.name, self.streams, self.collector, collector, self.misfits)
        except Exception as error:  # noqa: BLE001 - whatever user code raises fails its input
            cause = self.causes.of(error)
            return Outcome(failures=[(row, cause) for row in range(count)])
        finally:
            collector.is_closed = True
        failures = [*unfit, *collector.failures]
        if not collector.left_open:
            return Outcome(emitted, failures)
        left_open = set(collector.left_open).difference(row for row, _ in failures)
        return Outcome(emitted, failures, left_open=sorted(left_open))


class HandObserver(BoltObserver):
    """Counts what a bolt acks and fails by hand, blocks what comes behind a failed tuple, and tells hooks.

    Attributes:
        gate: blocks records behind others that failed, while records are fed in order; else None.
        hooks: in the order in which they are called; the bolt may add some at any time.
    """

    def __init__(
        self,
        name: str,
        tally: Tally,
        hooks: Sequence[TaskHook],
        deliveries: Mapping[str, int],
        report_error: Callable[[Exception], None],
        clock_ns: ClockNs,
    ) -> None:
        """Observe a bolt.

        Args:
            deliveries: by stream, to how many tasks each of its tuples goes.
            report_error: is called with what a hook raises for a tuple that has failed already.
        """
        self.gate: Gate | None = None
        self.hooks = hooks
        self._name = name
        self._tally = tally
        self._deliveries = deliveries
        self._report_error = report_error
        self._clock_ns = clock_ns
        self._slots: dict[tuple[What, StreamId], list[int]] = {}

    def emitted(self, sent: Sent) -> None:
        for hook in self.hooks:
            invoke(self._name, hook.emit, EmitInfo(sent.values, sent.stream, self._deliveries[sent.stream]))

    def executed(self, received: AnchoredTuple) -> None:
        """Tell the hooks that ``execute`` has returned for a tuple."""
        for hook in self.hooks:
            took_ns = self._clock_ns() - received.since_ns
            invoke(self._name, hook.execute, ExecuteInfo(received, took_ns / 1_000_000))

    def acked(self, received: AnchoredTuple) -> None:
        took_ns = self._count(What.ACKED, received)
        for hook in self.hooks:
            invoke(self._name, hook.ack, AckInfo(received, took_ns / 1_000_000))

    def failed(self, received: AnchoredTuple, cause: Cause) -> None:
        took_ns = self._count(What.FAILED, received)
        if self.gate is not None:
            self.gate.fail_all(delivery.root for delivery in received.deliveries)
        for hook in self.hooks:
            try:
                hook.fail(FailInfo(received, took_ns / 1_000_000, cause))
            except Exception as error:  # noqa: BLE001 - code of the user; there is no input left to fail for it
                self._report_error(error)

    def _count(self, what: What, received: AnchoredTuple) -> int:
        """Count a tuple that is acked or failed; return how long it took, ns."""
        took_ns = self._clock_ns() - received.since_ns
        stream = received.came_from
        slot = self._slots.get((what, stream))
        if slot is None:
            slot = self._slots[what, stream] = self._tally.slot(Counted(what, self._name, stream))
        slot[0] += 1
        slot[1] += took_ns
        return took_ns


@dataclass(frozen=True, slots=True)
class HandCall:
    """Calls a bolt for each row, as a tuple that is acked and failed by the collector.

    `takes_back`: what `execute` has emitted for a tuple is not delivered if it raises.
    """

    name: str
    execute: Callable[[AnchoredTuple], None]
    collector: OutputCollector
    causes: Causes
    observer: HandObserver
    clock_ns: ClockNs
    takes_back: bool = False

    def call(self, block: Block) -> Outcome:
        """Call the bolt; the collector has what it did with the tuples, and with those of former blocks."""
        rows, places, turns = block
        name, execute, collector, clock_ns = self.name, self.execute, self.collector, self.clock_ns
        hooks = self.observer.hooks
        for row in turns:
            received = AnchoredTuple(rows, row, places, name, clock_ns())
            collector.receive(received)
            before = len(collector.sent)
            try:
                execute(received)
                if hooks:
                    self.observer.executed(received)
            except Exception as error:  # noqa: BLE001 - whatever user code raises fails its input
                cause = self.causes.of(error)
                if self.takes_back:
                    del collector.sent[before:]
                collector.refuse(received, cause)
        return Outcome(by_hand=True)


def rich_execute(name: str, bolt: Bolt) -> Callable[[AnchoredTuple], None]:
    """Return what calls a rich bolt for a tuple."""

    def execute(received: AnchoredTuple) -> None:
        invoke(name, bolt.execute, received)

    return execute


def watched_execute(
    name: str, bolt: BasicBolt, collector: OutputCollector, emits: TreeCollector
) -> Callable[[AnchoredTuple], None]:
    """Return what calls a basic bolt for a tuple, and acks it; what it emits is anchored on the tuple."""

    def execute(received: AnchoredTuple) -> None:
        emits.current = received
        invoke(name, bolt.execute, received, emits)
        collector.ack(received)

    return execute


@dataclass(frozen=True, slots=True)
class WatchedBatchCall:
    """Lets hooks see each row of an Arrow bolt; what one of them raises fails every row of the block.

    What `inner` returns is done by the collector, which calls them.
    """

    name: str
    inner: BoltCall
    collector: OutputCollector
    causes: Causes
    clock_ns: ClockNs

    def call(self, block: Block) -> Outcome:
        """Call the bolt; the collector has what it did with the rows."""
        rows, places, _ = block
        began_ns = self.clock_ns()
        inputs = [AnchoredTuple(rows, row, places, self.name, began_ns) for row in range(len(rows))]
        for received in inputs:
            self.collector.receive(received)
        before = len(self.collector.sent)
        outcome = self.inner.call(block)
        causes = dict(outcome.failures)
        try:
            for emitted in outcome.emitted:
                self._emit(emitted, inputs)
            for row in sorted(set(range(len(inputs))).difference(causes, outcome.left_open)):
                self.collector.ack(inputs[row])
        except Exception as error:  # noqa: BLE001 - whatever user code raises fails its input
            cause = self.causes.of(error)
            del self.collector.sent[before:]
            causes = dict.fromkeys(range(len(inputs)), cause)
        for row, cause in causes.items():
            self.collector.refuse(inputs[row], cause)
        return Outcome(by_hand=True)

    def _emit(self, emitted: EmittedRows, inputs: Sequence[AnchoredTuple]) -> None:
        columns = [] if emitted.batch is None else emitted.batch.columns
        rows = zip(*map(python_values, columns), strict=True)
        for parent, row in zip(emitted.parents.tolist(), rows, strict=True):
            self.collector.emit(row, inputs[parent], emitted.stream.id.stream)
