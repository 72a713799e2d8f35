"""The forms of a bolt, each called for a block of rows.

`RowCall`
    A `BasicBolt`, called for one row after the other. Of an emission only its values and the number
    of its input row are kept.
`BatchCall`
    An `ArrowBolt`, called once for all rows.
`TupleCall`
    A rich `Bolt`, and a `BasicBolt` whose tuples hooks watch: each row is an `AnchoredTuple`, which
    the bolt's `OutputCollector` knows until it is acked or failed.
`WatchedBatchCall`
    An `ArrowBolt` whose tuples hooks watch: it is called once, and then its rows are emitted, acked
    and failed one by one by the collector.

What an exception of the bolt's code does:

* It fails the input for which it was raised, and nothing that was emitted for that input is
  delivered (a rich bolt's emissions are).
* One that the bolt stops on (`stops_on`) ends the task.
* `SystemExit`, and what else is no `Exception`, ends the task if an `ArrowBolt` raised it: all rows
  would fail for it. Spark tries the task again in a child process, which finds the one row.
* Where nothing is tracked, `FailTuple` drops the input, and any other exception ends the task,
  since nobody would replay the input.

The *places* of a tuple are its `Deliveries`: one for each root that it descends from.

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
    raise_if_it_ends_query,
    returned_error,
)
from spout.bolts.collectors import BasicCollector, BoltObserver, OutputCollector, Sent
from spout.bolts.hooks import AckInfo, EmitInfo, ExecuteInfo, FailInfo, TaskHook
from spout.execution.calls import Block, BoltCall, ClockNs, EmittedRows, Outcome, RowFailure
from spout.execution.emitted import RowCollector, TreeCollector, outside_execute_error
from spout.execution.fitting import fitted_batches
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
    """Decides what an exception of a bolt's code does, and makes the cause of the failure.

    Attributes:
        name: the bolt's name, as causes have it.
        collector: its `tracebacks` keep those of exceptions that fail an input.
        tracked: whether an exception fails the input; otherwise it ends the task.
    """

    name: str
    bolt: AnyBolt
    collector: OutputCollector
    tracked: bool

    def cause_or_raise(self, error: BaseException, original: BaseException | None = None) -> Cause:
        """Return the cause by which the input fails, and keep the traceback for the log.

        Raises `error` itself if it ends the task.

        Args:
            error: what the bolt's code raised, perhaps with a clearer message.
            original: the exception that the code raised, where `error` has replaced it; None: it
                is `error`.
        """
        error = with_class(error)
        raise_if_it_ends_query(self.name, self.bolt, error)  # raises what the bolt stops on
        ends_task = not self.tracked and not isinstance(error, FailTuple)
        if not ends_task:
            return cause_of(self.name, error, self.collector.tracebacks)
        if original in (None, error):
            raise error
        raise error from original


@dataclass(frozen=True, slots=True)
class RowCall:
    """Calls a basic bolt for each row.

    Attributes:
        collector: gets the emissions of all rows of a block.
        wrap_execute: returns, for the rows of a block, what is called in place of ``execute``;
            None: ``execute`` itself.
    """

    name: str
    bolt: BasicBolt
    collector: RowCollector
    causes: Causes
    wrap_execute: Callable[[ExecuteRow, Rows], ExecuteRow] | None = None

    def call(self, block: Block) -> Outcome:
        """Call the bolt for each of the `rows_to_call`; `FitRows` makes fit what it emitted."""
        collector = self.collector
        if collector.values:  # emissions of the last block were removed at its end
            raise outside_execute_error(self.name)
        rows, places, rows_to_call = block
        emitted_values, append_end = collector.values, collector.ends.append
        failures: list[RowFailure] = []
        execute: ExecuteRow = self.bolt.execute
        if self.wrap_execute is not None:
            execute = self.wrap_execute(execute, rows)
        # `map` makes a `PlacedTuple` of each row when the loop asks for it, and
        # does so faster than a call in the loop
        for received in map(PlacedTuple, repeat(rows), rows_to_call, repeat(places)):
            try:
                returned = execute(received, collector)
                if returned is not None:
                    raise returned_error(self.name, self.bolt.execute, returned)
            except BaseException as raised:  # noqa: BLE001 - what user code raises fails its input
                error = collector.reworded_error(self.name, raised)
                cause = self.causes.cause_or_raise(error, raised)  # raises what ends the task
                collector.drop_current_row()
                failures.append((received.row, cause))
                rows_to_call.block_later_rows(received.row)
                # its traceback holds this frame, and with it the rows:
                # nothing collects cycles here
                del error
            append_end(len(emitted_values))  # where the emissions for this row end
        return Outcome(collector.pop_by_stream(rows_to_call.called_rows()), failures)


@dataclass(frozen=True, slots=True)
class BatchCall:
    """Calls an Arrow bolt once for all rows.

    Every row fails if the bolt raises, or emits columns that are no columns of the stream's.

    Attributes:
        streams: of the bolt, by name.
        output_collector: knows the streams that the bolt declares, and keeps tracebacks.
        misfit_log: gets the errors of emitted rows that do not fit (`spout.execution.fitting`);
            None: nothing is tracked, so the first error is raised.
    """

    name: str
    bolt: ArrowBolt
    streams: Mapping[str, StreamPass]
    output_collector: OutputCollector
    causes: Causes
    misfit_log: Tracebacks | None

    def call(self, block: Block) -> Outcome:
        """Call the bolt; the rows that it emitted are of the types of their streams."""
        row_count = len(block.rows)
        if not row_count:  # bolts before it may have failed them all; its code may well need a row
            return Outcome()
        collector = BatchCollector(self.name, row_count, self.output_collector.tracebacks)
        try:
            batch = block.rows.arrow(self.bolt.fields)
            invoke(self.name, self.bolt.execute, batch, collector)
            fitted = fitted_batches(
                self.name, self.streams, self.output_collector, collector, self.misfit_log
            )
        except Exception as error:  # noqa: BLE001 - whatever user code raises fails its input
            cause = self.causes.cause_or_raise(error)
            return Outcome(failures=[(row, cause) for row in range(row_count)])
        finally:
            collector.is_closed = True
        failures = [*fitted.failures, *collector.failures]
        if not collector.left_open:
            return Outcome(fitted.emitted, failures)
        failed_rows = {row for row, _ in failures}
        left_open = sorted(set(collector.left_open) - failed_rows)
        return Outcome(fitted.emitted, failures, left_open=left_open)


class CollectorObserver(BoltObserver):
    """Counts what an `OutputCollector` reports, blocks behind failed tuples, and calls hooks.

    Attributes:
        gate: blocks the records that must not pass a failed one, while the task reads partitions in
            order; else None.
        hooks: in the order in which they are called; the bolt may add some at
            any time.
    """

    def __init__(
        self,
        name: str,
        tally: Tally,
        hooks: Sequence[TaskHook],
        task_count_by_stream: Mapping[str, int],
        report_error: Callable[[BaseException], None],
        clock_ns: ClockNs,
    ) -> None:
        """Observe a bolt.

        Args:
            task_count_by_stream: by name of a stream: to how many tasks each of its tuples goes.
            report_error: is called with what a hook raises for a tuple that
                has failed already.
        """
        self.gate: Gate | None = None
        self.hooks = hooks
        self._name = name
        self._tally = tally
        self._task_count_by_stream = task_count_by_stream
        self._report_error = report_error
        self._clock_ns = clock_ns
        # the tally's own lists, [tuples, their total ns], of what happened to tuples of a stream:
        # so that counting a tuple is two additions
        self._count_and_ns: dict[tuple[What, StreamId], list[int]] = {}

    def emitted(self, sent: Sent) -> None:
        """Call the hooks, since the bolt has emitted a tuple."""
        for hook in self.hooks:
            task_count = self._task_count_by_stream[sent.stream]
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
        """Count a failed tuple, block the records that must not pass it, and call the hooks."""
        took_ns = self._count_settled(What.FAILED, received)
        if self.gate is not None:
            self.gate.fail_all(delivery.root for delivery in received.deliveries)
        for hook in self.hooks:
            try:
                hook.fail(FailInfo(received, took_ns / 1_000_000, cause))
            except BaseException as error:  # noqa: BLE001 - code of the user; there is no input left to fail for it
                self._report_error(error)

    def _count_settled(self, what: What, received: AnchoredTuple) -> int:
        """Count an acked or failed tuple; return the time since its ``execute`` began, ns."""
        took_ns = self._clock_ns() - received.since_ns
        stream = received.came_from
        count_and_ns = self._count_and_ns.get((what, stream))
        if count_and_ns is None:
            count_and_ns = self._tally.slot(Counted(what, self._name, stream))
            self._count_and_ns[what, stream] = count_and_ns
        count_and_ns[0] += 1
        count_and_ns[1] += took_ns
        return took_ns


@dataclass(frozen=True, slots=True)
class TupleCall:
    """Calls a bolt for each row as a tuple that the collector knows until it is acked or failed.

    Attributes:
        execute: calls the bolt for one tuple.
        observer: calls the bolt's hooks.
        drops_emissions_on_error: whether what was emitted for a tuple is not delivered if `execute`
            raises (a basic bolt); a rich bolt's emissions are.
    """

    name: str
    execute: Callable[[AnchoredTuple], None]
    collector: OutputCollector
    causes: Causes
    observer: CollectorObserver
    clock_ns: ClockNs
    drops_emissions_on_error: bool = False

    def call(self, block: Block) -> Outcome:
        """Call the bolt; the collector has what became of tuples, also of former blocks."""
        rows, places, rows_to_call = block
        # looked up once, not for each tuple
        name, execute = self.name, self.execute
        collector, clock_ns = self.collector, self.clock_ns
        hooks = self.observer.hooks
        for row in rows_to_call:
            received = AnchoredTuple(rows, row, places, name, clock_ns())
            collector.receive(received)
            sent_count_before = len(collector.sent)
            try:
                execute(received)
                if hooks:
                    self.observer.executed(received)
            except BaseException as error:  # noqa: BLE001 - what user code raises fails its input
                cause = self.causes.cause_or_raise(error)
                if self.drops_emissions_on_error:
                    del collector.sent[sent_count_before:]
                collector.refuse(received, cause)
        return Outcome(settled_by_collector=True)


def execute_function_of_rich(name: str, bolt: Bolt) -> Callable[[AnchoredTuple], None]:
    """Return a function that calls a rich bolt for a tuple; the bolt itself acks it."""

    def execute(received: AnchoredTuple) -> None:
        # looked up for each tuple: the bolt may replace its `execute`, as by the first tuple
        invoke(name, bolt.execute, received)

    return execute


def execute_function_with_hooks(
    name: str, bolt: BasicBolt, collector: OutputCollector, tree_collector: TreeCollector
) -> Callable[[AnchoredTuple], None]:
    """Return a function that calls a basic bolt for a tuple, and acks the tuple.

    Emissions and the ack go through `collector`, which calls the hooks for them.

    `tree_collector`: given to the bolt; anchors what it emits on the tuple, and passes it on to
    `collector`.
    """

    def execute(received: AnchoredTuple) -> None:
        tree_collector.current = received
        invoke(name, bolt.execute, received, tree_collector)
        collector.ack(received)

    return execute


@dataclass(frozen=True, slots=True)
class WatchedBatchCall:
    """Calls an Arrow bolt, then emits, acks and fails its rows one by one, which calls hooks.

    If a hook raises, every row of the block fails.

    `inner`: calls the bolt; its outcome is repeated by the collector.
    """

    name: str
    inner: BoltCall
    collector: OutputCollector
    causes: Causes
    clock_ns: ClockNs

    def call(self, block: Block) -> Outcome:
        """Call the bolt; the collector has what became of the rows."""
        rows, places = block.rows, block.places
        began_ns = self.clock_ns()
        inputs: list[AnchoredTuple] = []
        for row in range(len(rows)):
            received = AnchoredTuple(rows, row, places, self.name, began_ns)
            self.collector.receive(received)
            inputs.append(received)
        sent_count_before = len(self.collector.sent)
        outcome = self.inner.call(block)
        causes_by_row = dict(outcome.failures)
        not_acked = causes_by_row.keys() | set(outcome.left_open)
        try:
            for emitted in outcome.emitted:
                self._emit_one_by_one(emitted, inputs)
            for row, received in enumerate(inputs):
                if row not in not_acked:
                    self.collector.ack(received)
        except BaseException as error:  # noqa: BLE001 - whatever a hook raises fails its input
            cause = self.causes.cause_or_raise(error)
            # of this block alone: what was sent before is of tuples that are
            # acked already
            del self.collector.sent[sent_count_before:]
            causes_by_row = dict.fromkeys(range(len(inputs)), cause)
        for row, cause in causes_by_row.items():
            self.collector.refuse(inputs[row], cause)
        return Outcome(settled_by_collector=True)

    def _emit_one_by_one(self, emitted: EmittedRows, inputs: Sequence[AnchoredTuple]) -> None:
        """Emit rows of one stream by the collector, each anchored on its input row."""
        columns = [] if emitted.arrow_rows is None else emitted.arrow_rows.columns
        value_rows = zip(*map(python_values, columns), strict=True)
        for parent, values in zip(emitted.parents.tolist(), value_rows, strict=True):
            self.collector.emit(values, inputs[parent], emitted.stream.id.stream)
