"""One bolt at work in one task: it is called, its hooks watch, what fails is attributed, and all is counted.

The three forms of a bolt do the same: a tuple is received, emissions are anchored on it, it is acked or
failed. How the bolt is called depends on its form:

by row
    A `BasicBolt` is called for each row, an `ArrowBolt` for all rows at once. Each row is acked or failed
    when the call returns, so each emission descends from one input row, and only its number is kept.
by hand
    A rich `Bolt`, and any bolt that hooks watch: every tuple has a state and places in trees of its own.

An exception of user code fails the input that it was raised for, and nothing that was emitted for that input
is delivered (a rich bolt's emissions are); one that the bolt stops on ends the task. Untracked, `FailTuple`
drops the input and any other exception ends the task, since nobody would replay it.

Source: docs/design/protocol.md, section 5.2.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from operator import length_hint
from threading import Lock
from typing import Any

import numpy as np

from acker.errors import UsageError
from spout.bolts.bolts import (
    ArrowBolt,
    BasicBolt,
    BatchCollector,
    Bolt,
    invoke,
    returned_error,
    stop_on,
)
from spout.bolts.collectors import BasicCollector, BoltObserver, OutputCollector, Sent
from spout.bolts.hooks import AckInfo, BoltContext, EmitInfo, ExecuteInfo, FailInfo, TaskHook
from spout.bolts.trace_hook import TraceHook
from spout.execution.emitted import (
    Emissions,
    RowCollector,
    StreamCollector,
    TreeCollector,
    block_by_hand,
    block_by_row,
    taken_from,
    too_late,
)
from spout.execution.fitting import Fitted, RowFailure, batches_of, fitted, fitted_by_hand
from spout.execution.guards import Guarded
from spout.planning.order import Gate
from spout.runtime.pulse import Pulse
from spout.topology.stage_pass import BoltPass, StreamPass
from spout.tuples.counts import Counted, Tally, What
from spout.tuples.exact import python_values
from spout.tuples.failures import Cause, FailTuple, cause_of
from spout.tuples.places import Deliveries, only_roots
from spout.tuples.raised import place_of_code
from spout.tuples.tuple import AnchoredTuple, PlacedTuple, Rows, StreamId

ClockNs = Callable[[], int]


class BoltWork(BoltObserver):
    """A bolt in one task; it is the observer of its own collector.

    Attributes:
        gate: blocks records behind others that failed, while records are fed in order; else None.
        collector: what a rich bolt does; its lists of failures, errors and tracebacks serve all forms.
    """

    def __init__(
        self,
        pass_: BoltPass,
        context: BoltContext,
        *,
        tracked: bool,
        pulse: Pulse | None = None,
        clock_ns: ClockNs = time.perf_counter_ns,
    ) -> None:
        """Prepare a bolt; its hooks before it, so that they see all it does.

        Args:
            tracked: whether an exception fails the input; otherwise it is raised.
            pulse: is called when a call of the bolt begins and ends.
        """
        self.name = pass_.name
        self.gate: Gate | None = None
        self.tally = Tally()
        self._bolt = pass_.bolt
        self._tracked = tracked
        self._pulse = pulse or Pulse()
        self._clock_ns = clock_ns
        self._hooks: Sequence[TaskHook] = context.hooks
        self._streams = pass_.streams
        self._emits = {name: stream.emits for name, stream in pass_.streams.items()}
        self._deliveries = {name: stream.deliveries for name, stream in pass_.streams.items()}
        self._blocks: list[Emissions] = []
        self._settled: dict[tuple[What, StreamId], list[int]] = {}
        self.collector = OutputCollector(pass_.name, self._emits, self, Lock())
        self.collector.tracebacks.code_place = place_of_code(pass_.bolt)
        self._misfits = self.collector.tracebacks if tracked else None
        self._by_tuple = TreeCollector(pass_.name, self.collector)
        self._rows = (
            RowCollector(self.collector.report_error)
            if any(stream.on_frame for stream in pass_.streams.values())
            else StreamCollector(self.collector, self._emits)
        )
        context.hooks.extend(pass_.hooks)
        for hook in tuple(self._hooks):  # one may take itself off
            hook.prepare(context)
        self._trace: TraceHook | None = None
        only = context.hooks[0] if len(context.hooks) == 1 else None
        if isinstance(self._bolt, BasicBolt) and isinstance(only, TraceHook) and only.only_traces:
            self._trace = only  # tuples without a trace context need not be watched
            context.hooks.clear()
        if isinstance(self._bolt, Bolt):
            self._bolt.prepare(context, self.collector)
        elif isinstance(self._bolt, BasicBolt | ArrowBolt):
            self._bolt.prepare(context)
        else:
            raise UsageError(
                f"bolt {self.name!r} is no BasicBolt, Bolt or ArrowBolt: {type(self._bolt).__name__}"
            )

    def receive(self, rows: Rows, places: Sequence[Deliveries]) -> None:
        if isinstance(self._bolt, Guarded):
            self._bolt.guard.places = places
        if self._hooks or isinstance(self._bolt, Bolt):
            self._work_by_hand(rows, places)
        elif isinstance(self._bolt, BasicBolt):
            self._work_by_row(self._bolt, rows, places)
        elif len(rows):  # bolts before it may have failed them all; its code may well need a row
            self._work_on_batch(self._bolt, rows, places)

    def cleanup(self) -> None:
        self._by_tuple.current = None
        self._bolt.cleanup()
        if self._rows.values:
            raise too_late(self.name)
        for hook in self._hooks:
            hook.cleanup()

    def take(self) -> list[Emissions]:
        """Return what was emitted since this was called last."""
        blocks, self._blocks = self._blocks, []
        sent = taken_from(self.collector.sent, len(self.collector.sent))
        by_stream: dict[str, list[Sent]] = {}
        for each in sent:
            by_stream.setdefault(each.stream, []).append(each)
        for name, emissions in by_stream.items():
            stream = self._streams[name]
            self._count_emitted(name, len(emissions))
            batch, kept, failed = fitted_by_hand(stream, emissions, self._misfits)
            self._failed(failed)
            blocks.append(block_by_hand(stream, kept, batch))
        return blocks

    def forget(self) -> None:
        """Forget what was reported; the bolt holds nothing."""
        self.collector.failures.clear()
        self.collector.left_open.clear()
        self.collector.touched.clear()
        self.collector.errors.clear()
        self.collector.tracebacks.clear()
        self.tally.clear()

    def emitted(self, sent: Sent) -> None:
        for hook in self._hooks:
            invoke(self.name, hook.emit, EmitInfo(sent.values, sent.stream, self._deliveries[sent.stream]))

    def acked(self, received: AnchoredTuple) -> None:
        took_ns = self._settle(What.ACKED, received)
        for hook in self._hooks:
            invoke(self.name, hook.ack, AckInfo(received, took_ns / 1_000_000))

    def failed(self, received: AnchoredTuple, cause: Cause) -> None:
        took_ns = self._settle(What.FAILED, received)
        if self.gate is not None:
            self.gate.fail_all(each.root for each in received.deliveries)
        for hook in self._hooks:
            try:
                hook.fail(FailInfo(received, took_ns / 1_000_000, cause))
            except Exception as error:  # noqa: BLE001 - code of the user; there is no input left to fail for it
                self.collector.report_error(error)

    def _work_by_row(self, bolt: BasicBolt, rows: Rows, places: Sequence[Deliveries]) -> None:
        """Call a basic bolt for each row; all are timed together, so that counting costs a tuple nothing."""
        collector = self._rows
        if collector.values:
            raise too_late(self.name)
        emitted, ends = collector.values, collector.ends
        ended = ends.append
        failures: list[RowFailure] = []
        blocked: list[RowFailure] = []
        free: Iterator[int] = iter(range(len(rows)))
        if self.gate is not None:
            free = self._free(self.gate, places, collector, blocked)
        execute: Callable[[Any, BasicCollector], object] = bolt.execute
        if self._trace is not None:
            execute = self._trace.around(execute, rows)
        began_ns = self._clock_ns()
        # by the row that it works on: as many rows as are done stand before it
        self._pulse.begin(self.name, ends.__len__, lambda: _roots_of(places[len(ends) : len(ends) + 1]))
        for received in map(PlacedTuple, repeat(rows), free, repeat(places)):
            try:
                if (returned := execute(received, collector)) is not None:
                    raise returned_error(self.name, bolt.execute, returned)
            except Exception as raised:  # noqa: BLE001 - whatever user code raises fails its input
                error = collector.named(self.name, raised)
                cause = self._cause_of(error, raised)
                collector.drop()
                failures.append((received.row, cause))
                if self.gate is not None:
                    self.gate.fail_all(each.root for each in received.deliveries)
                # its traceback holds this frame, and with it the rows: nothing collects cycles here
                del error
            ended(len(emitted))
        self._pulse.end()
        took_ns = self._clock_ns() - began_ns
        fits: list[tuple[StreamPass, Fitted]] = []
        for name, values, parents, tasks in collector.by_stream():
            stream = self._streams[name]
            fits.append((stream, fitted(stream, values, parents, tasks, self._misfits)))
        unfit = {row for _, fit in fits for row, _ in fit.failures}
        blocks: list[Emissions] = []
        for stream, fit in fits:
            failures += fit.failures
            kept = fit.apart_from(unfit) if unfit else fit
            blocks.append(
                block_by_row(stream, kept.emitted, kept.batch, kept.parents, rows, places, kept.tasks)
            )
        self._done(rows.came_from, len(rows) - len(blocked), failures, blocked, places, took_ns, blocks)

    def _free(
        self, gate: Gate, places: Sequence[Deliveries], collector: RowCollector, blocked: list[RowFailure]
    ) -> Iterator[int]:
        """Yield the rows that nothing blocks when their turn comes; pass over the others."""
        failed, why_blocked = gate.failed, _why_blocked(gate, places)
        for row in range(len(places)):
            if failed and (cause := why_blocked(row)) is not None:
                blocked.append((row, cause))
                collector.ends.append(len(collector.values))
            else:
                yield row

    def _work_on_batch(self, bolt: ArrowBolt, rows: Rows, places: Sequence[Deliveries]) -> None:
        """Call an Arrow bolt for all rows; what it raises fails every row."""
        collector = BatchCollector(self.name, len(rows), self.collector.tracebacks)
        blocks: list[Emissions] = []
        failures: list[RowFailure] = []
        open_rows: list[int] = []
        began_ns = self._clock_ns()
        self._pulse.begin(self.name, roots=lambda: _roots_of(places))
        try:
            invoke(self.name, bolt.execute, rows.arrow(bolt.fields), collector)
            emitted, unfit = batches_of(self.name, self._streams, self.collector, collector, self._misfits)
            blocks = [
                block_by_row(stream, None, batch, parents, rows, places) for stream, batch, parents in emitted
            ]
            failures = [*collector.failures, *unfit]
            open_rows = sorted(set(collector.left_open).difference(row for row, _ in failures))
            for block, (_, _, parents) in zip(blocks, emitted, strict=True) if open_rows else ():
                children = np.flatnonzero(np.isin(parents, open_rows)).tolist()
                self.collector.left_open.update(
                    each for parcel in block.parcels for child in children for each in parcel[child]
                )
        except Exception as error:  # noqa: BLE001 - whatever user code raises fails its input
            cause = self._cause_of(error)
            failures = [(row, cause) for row in range(len(rows))]
        finally:
            collector.is_closed = True
            self._pulse.end()
        took_ns = self._clock_ns() - began_ns
        self.collector.left_open.update(each for row in open_rows for each in places[row])
        self._done(rows.came_from, len(rows), failures, [], places, took_ns, blocks, open_rows=len(open_rows))

    def _cause_of(self, error: Exception, raised: Exception | None = None) -> Cause:
        """Name what an exception failed, unless it ends the task."""
        stop_on(self.name, self._bolt, error)
        if not self._tracked and not isinstance(error, FailTuple):
            if raised in (None, error):
                raise error
            raise error from raised
        return cause_of(self.name, error, self.collector.tracebacks)

    def _done(
        self,
        came_from: StreamId,
        executed: int,
        failures: Sequence[RowFailure],
        blocked: Sequence[RowFailure],
        places: Sequence[Deliveries],
        took_ns: int,
        blocks: Sequence[Emissions],
        *,
        open_rows: int = 0,
    ) -> None:
        self._failed([(each.root, cause) for row, cause in failures for each in places[row]])
        self.collector.failures += [(each.root, cause) for row, cause in blocked for each in places[row]]
        failed = len({row for row, _ in failures})
        if executed:
            self.tally.add(Counted(What.EXECUTED, self.name, came_from), executed, took_ns)
        for what, share in ((What.ACKED, executed - failed - open_rows), (What.FAILED, failed)):
            if share:
                self.tally.add(Counted(what, self.name, came_from), share, took_ns * share // executed)
        for block in blocks:
            if len(block.rows):
                self._count_emitted(block.stream.id.stream, len(block.rows))
                self._blocks.append(block)

    def _failed(self, roots: Sequence[tuple[int, Cause]]) -> None:
        """Note roots that failed, by index, and block what comes behind them."""
        self.collector.failures += roots
        if self.gate is not None:
            self.gate.fail_all(root for root, _ in roots)

    def _count_emitted(self, name: str, rows: int) -> None:
        stream = StreamId(self.name, name)
        self.tally.add(Counted(What.EMITTED, self.name, stream), rows)
        if deliveries := self._deliveries[name]:
            self.tally.add(Counted(What.TRANSFERRED, self.name, stream), deliveries * rows)

    def _work_by_hand(self, rows: Rows, places: Sequence[Deliveries]) -> None:
        """Let the bolt work on tuples that have a state of their own; pass over those that are blocked."""
        began_ns = self._clock_ns()
        executed = len(rows)
        failures = self.collector.failures
        if isinstance(self._bolt, ArrowBolt):
            inputs = [AnchoredTuple(rows, row, places, self.name, began_ns) for row in range(len(rows))]
            self._execute_batch(self._bolt, rows, inputs)
        else:
            why_blocked = None if self.gate is None else _why_blocked(self.gate, places)
            turns = iter(range(len(rows)))

            def current() -> int:
                return max(len(rows) - 1 - length_hint(turns), 0)

            self._pulse.begin(self.name, current, lambda: _roots_of(places[current() : current() + 1]))
            for row in turns:
                if why_blocked is not None and (cause := why_blocked(row)) is not None:
                    failures += [(each.root, cause) for each in places[row]]
                    executed -= 1
                    continue
                self._execute(AnchoredTuple(rows, row, places, self.name))
        self._pulse.end()
        if executed:
            took_ns = self._clock_ns() - began_ns
            self.tally.add(Counted(What.EXECUTED, self.name, rows.came_from), executed, took_ns)

    def _execute(self, received: AnchoredTuple) -> None:
        collector = self.collector
        received.since_ns = began_ns = self._clock_ns()
        collector.receive(received)
        before = len(collector.sent)
        try:
            if isinstance(self._bolt, BasicBolt):
                self._by_tuple.current = received
                invoke(self.name, self._bolt.execute, received, self._by_tuple)
                collector.ack(received)
            elif isinstance(self._bolt, Bolt):
                invoke(self.name, self._bolt.execute, received)
            for hook in self._hooks:
                info = ExecuteInfo(received, (self._clock_ns() - began_ns) / 1_000_000)
                invoke(self.name, hook.execute, info)
        except Exception as error:  # noqa: BLE001 - whatever user code raises fails its input
            cause = self._cause_of(error)
            if isinstance(self._bolt, BasicBolt):
                del collector.sent[before:]
            collector.refuse(received, cause)

    def _execute_batch(self, bolt: ArrowBolt, rows: Rows, inputs: Sequence[AnchoredTuple]) -> None:
        """Call ``execute`` for a whole batch that hooks watch; an exception fails every row of it."""
        if not inputs:
            return
        collector = BatchCollector(self.name, len(inputs), self.collector.tracebacks)
        for received in inputs:
            self.collector.receive(received)
        before = len(self.collector.sent)
        self._pulse.begin(self.name, roots=lambda: _roots_of([received.deliveries for received in inputs]))
        try:
            invoke(self.name, bolt.execute, rows.arrow(bolt.fields), collector)
            emitted, unfit = batches_of(self.name, self._streams, self.collector, collector, self._misfits)
            for stream, batch, parents in emitted:
                values = zip(*map(python_values, batch.columns), strict=True)
                for parent, row in zip(parents.tolist(), values, strict=True):
                    self.collector.emit(row, inputs[parent], stream.id.stream)
            causes = dict([*unfit, *collector.failures])
            settled = {*causes, *collector.left_open}
            for number, received in enumerate(inputs):
                if number not in settled:
                    self.collector.ack(received)
        except Exception as error:  # noqa: BLE001 - whatever user code raises fails its input
            cause = self._cause_of(error)
            del self.collector.sent[before:]
            causes = dict.fromkeys(range(len(inputs)), cause)
        collector.is_closed = True
        for number, cause in causes.items():
            self.collector.refuse(inputs[number], cause)

    def _settle(self, what: What, received: AnchoredTuple) -> int:
        """Count a tuple that is acked or failed by hand; return how long it took, ns."""
        took_ns = self._clock_ns() - received.since_ns
        stream = received.came_from
        slot = self._settled.get((what, stream))
        if slot is None:
            slot = self._settled[what, stream] = self.tally.slot(Counted(what, self.name, stream))
        slot[0] += 1
        slot[1] += took_ns
        return took_ns


def _roots_of(places: Sequence[Deliveries]) -> set[int]:
    return {delivery.root for deliveries in places for delivery in deliveries}


def _why_blocked(gate: Gate, places: Sequence[Deliveries]) -> Callable[[int], Cause | None]:
    """Return what tells, when a row's turn comes, why it is blocked; None: it is not."""
    roots: list[int] = []

    def why_blocked(row: int) -> Cause | None:
        nonlocal roots
        if not gate.failed:
            return None
        roots = roots or only_roots(places).tolist()
        root = roots[row]
        return gate.holds(root) if root >= 0 else gate.holds_any(each.root for each in places[row])

    return why_blocked
