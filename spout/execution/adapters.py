"""The forms of a bolt, each called for a block.

`RowCall`
    A `BasicBolt`, for one row after the other. Of an emission only the number of its input row is kept.
`BatchCall`
    An `ArrowBolt`, for all rows at once.
`HandCall`
    A rich `Bolt`, and a `BasicBolt` that hooks watch: each tuple has a state, and places in trees of its own.
`WatchedBatchCall`
    An `ArrowBolt` that hooks watch: its rows are emitted, acked and failed one by one.

An exception of user code fails the input that it was raised for, and nothing
that was emitted for that input is delivered (a rich bolt's emissions are);
one that the bolt stops on ends the task. So does a `SystemExit`, or what else
is no `Exception`, of an `ArrowBolt`: in a child its one row is found then, and
here all rows would fail. Untracked, `FailTuple` drops the
input and any other exception ends the task, since nobody would replay it.

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
from spout.tuples.failures import Cause, FailTuple, cause_of, with_class
from spout.tuples.raised import Tracebacks
from spout.tuples.tuple import AnchoredTuple, PlacedTuple, Rows, StreamId

ExecuteRow = Callable[[Any, BasicCollector], object]
"""``execute`` of a basic bolt."""


@dataclass(frozen=True, slots=True)
class Causes:
    """Makes causes of failures from what a bolt's code raises.

    `tracked`: whether an exception fails the input; otherwise it is raised.
    """

    name: str
    bolt: AnyBolt
    collector: OutputCollector
    tracked: bool

    def cause_or_raise(self, error: BaseException, raised: BaseException | None = None) -> Cause:
        """Return the cause by which the input fails, and keep its traceback for the log.

        Raises `error` itself if it ends the task.

        Args:
            error: what the bolt's code raised.
            raised: the same as the code raised it, where `error` says it in
                clearer words.
        """
        error = with_class(error)
        stop_on(self.name, self.bolt, error)
        ends_task = not self.tracked and not isinstance(error, FailTuple)
        if not ends_task:
            return cause_of(self.name, error, self.collector.tracebacks)
        if raised in (None, error):
            raise error
        raise error from raised


@dataclass(frozen=True, slots=True)
class RowCall:
    """Calls a basic bolt for each row.

    `wrap`: returns what to call in place of ``execute`` for the rows of a
    block; None: ``execute`` itself.
    """

    name: str
    bolt: BasicBolt
    streams: Mapping[str, StreamPass]
    collector: RowCollector
    causes: Causes
    wrap: Callable[[ExecuteRow, Rows], ExecuteRow] | None = None

    def call(self, block: Block) -> Outcome:
        """Call the bolt for each row whose turn comes; what it emitted is not
        made to fit yet.
        """
        collector = self.collector
        if collector.values:
            raise too_late(self.name)
        rows, places, turns = block
        values, append_end = collector.values, collector.ends.append
        failures: list[RowFailure] = []
        execute: ExecuteRow = self.bolt.execute
        if self.wrap is not None:
            execute = self.wrap(execute, rows)
        # `map` makes a `PlacedTuple` for each row whose turn comes, and does
        # so faster than a call in the loop
        for received in map(PlacedTuple, repeat(rows), turns, repeat(places)):
            try:
                returned = execute(received, collector)
                if returned is not None:
                    raise returned_error(self.name, self.bolt.execute, returned)
            except BaseException as raised:  # noqa: BLE001 - what user code raises fails its input
                error = collector.in_words_of_bolts(self.name, raised)
                cause = self.causes.cause_or_raise(error, raised)  # raises what ends the task
                collector.drop_current_row()
                failures.append((received.row, cause))
                turns.block_behind(received.row)
                # its traceback holds this frame, and with it the rows:
                # nothing collects cycles here
                del error
            append_end(len(values))
        emitted: list[EmittedRows] = []
        for name, rows_emitted, parents, tasks in collector.pop_by_stream(turns.rows_taken()):
            emitted.append(EmittedRows(self.streams[name], rows_emitted, parents, tasks))
        return Outcome(emitted, failures)


@dataclass(frozen=True, slots=True)
class BatchCall:
    """Calls an Arrow bolt for all rows; what it raises, or emits in columns
    of a wrong form, fails every row.

    `misfits`: the log of what does not fit (`spout.execution.fitting`); None:
    it is raised.
    """

    name: str
    bolt: ArrowBolt
    streams: Mapping[str, StreamPass]
    collector: OutputCollector
    causes: Causes
    misfits: Tracebacks | None

    def call(self, block: Block) -> Outcome:
        """Call the bolt; the rows that it emitted are of the types of their streams."""
        row_count = len(block.rows)
        if not row_count:  # bolts before it may have failed them all; its code may well need a row
            return Outcome()
        collector = BatchCollector(self.name, row_count, self.collector.tracebacks)
        try:
            batch = block.rows.arrow(self.bolt.fields)
            invoke(self.name, self.bolt.execute, batch, collector)
            emitted, unfit = batches_of(self.name, self.streams, self.collector, collector, self.misfits)
        except Exception as error:  # noqa: BLE001 - whatever user code raises fails its input
            cause = self.causes.cause_or_raise(error)
            return Outcome(failures=[(row, cause) for row in range(row_count)])
        finally:
            collector.is_closed = True
        failures = [*unfit, *collector.failures]
        if not collector.left_open:
            return Outcome(emitted, failures)
        failed_rows = {row for row, _ in failures}
        left_open = sorted(set(collector.left_open) - failed_rows)
        return Outcome(emitted, failures, left_open=left_open)


class HandObserver(BoltObserver):
    """Counts what a bolt acks and fails by hand, blocks what comes behind a
    failed tuple, and calls hooks.

    Attributes:
        gate: blocks records behind others that failed, while records are fed
            in order; else None.
        hooks: in the order in which they are called; the bolt may add some at
            any time.
    """

    def __init__(
        self,
        name: str,
        tally: Tally,
        hooks: Sequence[TaskHook],
        tasks_by_stream: Mapping[str, int],
        report_error: Callable[[Exception], None],
        clock_ns: ClockNs,
    ) -> None:
        """Observe a bolt.

        Args:
            tasks_by_stream: to how many tasks each tuple of the stream goes.
            report_error: is called with what a hook raises for a tuple that
                has failed already.
        """
        self.gate: Gate | None = None
        self.hooks = hooks
        self._name = name
        self._tally = tally
        self._tasks_by_stream = tasks_by_stream
        self._report_error = report_error
        self._clock_ns = clock_ns
        # the tally's own counts, [tuples, total ns], so that counting a tuple
        # is two additions
        self._slots: dict[tuple[What, StreamId], list[int]] = {}

    def emitted(self, sent: Sent) -> None:
        """Call the hooks, since the bolt has emitted a tuple."""
        for hook in self.hooks:
            task_count = self._tasks_by_stream[sent.stream]
            invoke(self._name, hook.emit, EmitInfo(sent.values, sent.stream, task_count))

    def executed(self, received: AnchoredTuple) -> None:
        """Call the hooks, since ``execute`` has returned for a tuple."""
        for hook in self.hooks:
            took_ns = self._clock_ns() - received.since_ns
            invoke(self._name, hook.execute, ExecuteInfo(received, took_ns / 1_000_000))

    def acked(self, received: AnchoredTuple) -> None:
        """Count a tuple that the bolt has acked, and call the hooks."""
        took_ns = self._count_settled(What.ACKED, received)
        for hook in self.hooks:
            invoke(self._name, hook.ack, AckInfo(received, took_ns / 1_000_000))

    def failed(self, received: AnchoredTuple, cause: Cause) -> None:
        """Count a failed tuple, block what comes behind it, and call the hooks."""
        took_ns = self._count_settled(What.FAILED, received)
        if self.gate is not None:
            self.gate.fail_all(delivery.root for delivery in received.deliveries)
        for hook in self.hooks:
            try:
                hook.fail(FailInfo(received, took_ns / 1_000_000, cause))
            except Exception as error:  # noqa: BLE001 - code of the user; there is no input left to fail for it
                self._report_error(error)

    def _count_settled(self, what: What, received: AnchoredTuple) -> int:
        """Count an acked or failed tuple; return the time since its ``execute`` began, ns."""
        took_ns = self._clock_ns() - received.since_ns
        stream = received.came_from
        slot = self._slots.get((what, stream))
        if slot is None:
            slot = self._tally.slot(Counted(what, self._name, stream))
            self._slots[what, stream] = slot
        # the number of tuples, and their time in all, ns
        slot[0] += 1
        slot[1] += took_ns
        return took_ns


@dataclass(frozen=True, slots=True)
class HandCall:
    """Calls a bolt for each row, as a tuple that is acked and failed by the collector.

    `takes_back`: what `execute` has emitted for a tuple is not delivered if
    it raises.
    """

    name: str
    execute: Callable[[AnchoredTuple], None]
    collector: OutputCollector
    causes: Causes
    observer: HandObserver
    clock_ns: ClockNs
    takes_back: bool = False

    def call(self, block: Block) -> Outcome:
        """Call the bolt; the collector has what it did with the tuples, and
        with those of former blocks.
        """
        rows, places, turns = block
        # looked up once, not for each tuple
        name, execute = self.name, self.execute
        collector, clock_ns = self.collector, self.clock_ns
        hooks = self.observer.hooks
        for row in turns:
            received = AnchoredTuple(rows, row, places, name, clock_ns())
            collector.receive(received)
            sent_before = len(collector.sent)
            try:
                execute(received)
                if hooks:
                    self.observer.executed(received)
            except BaseException as error:  # noqa: BLE001 - what user code raises fails its input
                cause = self.causes.cause_or_raise(error)
                if self.takes_back:
                    del collector.sent[sent_before:]
                collector.refuse(received, cause)
        return Outcome(by_hand=True)


def rich_execute(name: str, bolt: Bolt) -> Callable[[AnchoredTuple], None]:
    """Return what calls a rich bolt for a tuple."""

    def execute(received: AnchoredTuple) -> None:
        invoke(name, bolt.execute, received)

    return execute


def watched_execute(
    name: str, bolt: BasicBolt, collector: OutputCollector, tree_collector: TreeCollector
) -> Callable[[AnchoredTuple], None]:
    """Return what calls a basic bolt for a tuple that hooks watch, and acks the tuple.

    What the bolt emits is anchored on it by `tree_collector`.
    """

    def execute(received: AnchoredTuple) -> None:
        tree_collector.current = received
        invoke(name, bolt.execute, received, tree_collector)
        collector.ack(received)

    return execute


@dataclass(frozen=True, slots=True)
class WatchedBatchCall:
    """Shows hooks each row of an Arrow bolt; what one of them raises fails
    every row of the block.

    What `inner` returns as its outcome the collector then does row by row,
    and calls the hooks so.
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
        inputs: list[AnchoredTuple] = []
        for row in range(len(rows)):
            received = AnchoredTuple(rows, row, places, self.name, began_ns)
            self.collector.receive(received)
            inputs.append(received)
        sent_before = len(self.collector.sent)
        outcome = self.inner.call(block)
        causes_by_row = dict(outcome.failures)
        not_acked = causes_by_row.keys() | set(outcome.left_open)
        try:
            for emitted in outcome.emitted:
                self._emit(emitted, inputs)
            for row, received in enumerate(inputs):
                if row not in not_acked:
                    self.collector.ack(received)
        except Exception as error:  # noqa: BLE001 - whatever user code raises fails its input
            cause = self.causes.cause_or_raise(error)
            # of this block alone: what was sent before is of tuples that are
            # acked already
            del self.collector.sent[sent_before:]
            causes_by_row = dict.fromkeys(range(len(inputs)), cause)
        for row, cause in causes_by_row.items():
            self.collector.refuse(inputs[row], cause)
        return Outcome(by_hand=True)

    def _emit(self, emitted: EmittedRows, inputs: Sequence[AnchoredTuple]) -> None:
        """Emit rows one by one, each anchored on its input row."""
        columns = [] if emitted.batch is None else emitted.batch.columns
        value_rows = zip(*map(python_values, columns), strict=True)
        for parent, values in zip(emitted.parents.tolist(), value_rows, strict=True):
            self.collector.emit(values, inputs[parent], emitted.stream.id.stream)
