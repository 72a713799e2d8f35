"""One bolt at work in one task: it is called, its hooks watch, what fails is attributed, and all is counted.

The three forms of a bolt do the same: a tuple is received, emissions are anchored on it, it is acked or
failed. They are called in one way (`spout.execution.calls`). Here an adapter is chosen for the bolt's form,
what is asked for is put around it, and what comes out is counted, and kept for the report of the task.

Source: docs/design/protocol.md, section 5.2.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from threading import Lock

import numpy as np

from acker.errors import UsageError
from spout.bolts.bolts import ArrowBolt, BasicBolt, Bolt
from spout.bolts.collectors import OutputCollector, Sent
from spout.bolts.hooks import BoltContext, TaskHook
from spout.bolts.trace_hook import TraceHook
from spout.execution.adapters import (
    BatchCall,
    Causes,
    HandCall,
    HandObserver,
    RowCall,
    WatchedBatchCall,
    rich_execute,
    watched_execute,
)
from spout.execution.calls import Block, BoltCall, ClockNs, Outcome, RowFailure, Turns
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
from spout.execution.fitting import fitted_by_hand
from spout.execution.guards import GuardedArrow
from spout.execution.wrappers import FitRows, Ordered, PlacesGuarded, Pulsed, Timed
from spout.planning.order import Gate
from spout.runtime.pulse import Pulse
from spout.topology.stage_pass import BoltPass
from spout.tuples.counts import Counted, Tally, What
from spout.tuples.failures import Cause
from spout.tuples.places import Deliveries
from spout.tuples.raised import place_of_code
from spout.tuples.tuple import Rows, StreamId


class BoltWork:
    """A bolt in one task.

    Attributes:
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
            pulse: notes when a call of the bolt begins and ends; None: nobody watches.
        """
        self.name = pass_.name
        self.tally = Tally()
        self._bolt = pass_.bolt
        self._pulse = pulse
        self._clock_ns = clock_ns
        self._hooks: Sequence[TaskHook] = context.hooks
        self._streams = pass_.streams
        self._deliveries = {name: stream.deliveries for name, stream in pass_.streams.items()}
        self._blocks: list[Emissions] = []
        self._observer = HandObserver(
            pass_.name, self.tally, context.hooks, self._deliveries, self._report_error, clock_ns
        )
        emits = {name: stream.emits for name, stream in pass_.streams.items()}
        self.collector = OutputCollector(pass_.name, emits, self._observer, Lock())
        self.collector.tracebacks.code_place = place_of_code(pass_.bolt)
        self._misfits = self.collector.tracebacks if tracked else None
        self._causes = Causes(pass_.name, pass_.bolt, self.collector, tracked=tracked)
        self._by_tuple = TreeCollector(pass_.name, self.collector)
        self._by_row = (
            RowCollector(self.collector.report_error)
            if any(stream.on_frame for stream in pass_.streams.values())
            else StreamCollector(self.collector, emits)
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
        self._has_hooks = bool(self._hooks)
        self._call = self._put_together()

    @property
    def gate(self) -> Gate | None:
        """What blocks records behind others that failed, while records are fed in order; else None."""
        return self._observer.gate

    @gate.setter
    def gate(self, gate: Gate | None) -> None:
        self._observer.gate = gate
        self._call = self._put_together()

    def receive(self, rows: Rows, places: Sequence[Deliveries]) -> None:
        """Let the bolt work on rows, each with its places in its trees."""
        if bool(self._hooks) != self._has_hooks:  # it has added its first hook, or taken off its last one
            self._has_hooks = bool(self._hooks)
            self._call = self._put_together()
        outcome = self._call.call(Block(rows, places, Turns(len(rows))))
        self._emitted(outcome, rows, places)
        self.collector.failures += _with_roots([*outcome.failures, *outcome.blocked], places)
        self._count(outcome, rows)

    def cleanup(self) -> None:
        self._by_tuple.current = None
        self._bolt.cleanup()
        if self._by_row.values:
            raise too_late(self.name)
        for hook in self._hooks:
            hook.cleanup()

    def take(self) -> list[Emissions]:
        """Return what was emitted since this was called last."""
        blocks, self._blocks = self._blocks, []
        by_stream: dict[str, list[Sent]] = {}
        for sent in taken_from(self.collector.sent, len(self.collector.sent)):
            by_stream.setdefault(sent.stream, []).append(sent)
        for name, emissions in by_stream.items():
            stream = self._streams[name]
            self._count_emitted(name, len(emissions))
            batch, kept, failed = fitted_by_hand(stream, emissions, self._misfits)
            self.collector.failures += failed
            if self.gate is not None:
                self.gate.fail_all(root for root, _ in failed)
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

    def _put_together(self) -> BoltCall:
        """Choose the adapter for the bolt, and put around it what is asked for, and no more."""
        bolt, collector = self._bolt, self.collector
        call: BoltCall
        is_by_row = False
        if isinstance(bolt, ArrowBolt):
            call = BatchCall(self.name, bolt, self._streams, collector, self._causes, self._misfits)
            if self._has_hooks:
                call = WatchedBatchCall(self.name, call, collector, self._causes, self._clock_ns)
            if isinstance(bolt, GuardedArrow):
                call = PlacesGuarded(call, bolt.guard)
        elif isinstance(bolt, BasicBolt) and not self._has_hooks:
            is_by_row = True
            around = None if self._trace is None else self._trace.around
            call = RowCall(self.name, bolt, self._streams, self._by_row, self._causes, around)
        else:
            if isinstance(bolt, BasicBolt):
                execute = watched_execute(self.name, bolt, collector, self._by_tuple)
            else:
                execute = rich_execute(self.name, bolt)
            takes_back = isinstance(bolt, BasicBolt)
            call = HandCall(
                self.name, execute, collector, self._causes, self._observer, self._clock_ns, takes_back
            )
        if self._pulse is not None:
            call = Pulsed(call, self._pulse, self.name, at_once=isinstance(bolt, ArrowBolt))
        call = Timed(call, self._clock_ns)
        if is_by_row:
            call = FitRows(call, self._misfits)
        return call if self.gate is None else Ordered(call, self.gate)

    def _emitted(self, outcome: Outcome, rows: Rows, places: Sequence[Deliveries]) -> None:
        """Keep what was emitted for `take`, with its places; and the places of what is left open."""
        left_open = self.collector.left_open
        for emitted in outcome.emitted:
            block = block_by_row(emitted, rows, places)
            if outcome.left_open:
                open_children = np.flatnonzero(np.isin(emitted.parents, outcome.left_open)).tolist()
                for parcel in block.parcels:
                    left_open.update(place for child in open_children for place in parcel[child])
            if len(block.rows):
                self._count_emitted(emitted.stream.id.stream, len(block.rows))
                self._blocks.append(block)
        left_open.update(place for row in outcome.left_open for place in places[row])

    def _count(self, outcome: Outcome, rows: Rows) -> None:
        """Count the rows, which are timed together, so that counting costs a tuple nothing."""
        executed = len(rows) - len(outcome.blocked)
        if not executed:
            return
        self.tally.add(Counted(What.EXECUTED, self.name, rows.came_from), executed, outcome.took_ns)
        if outcome.by_hand:  # each tuple was counted when it was acked or failed
            return
        failed = len({row for row, _ in outcome.failures})
        acked = executed - failed - len(outcome.left_open)
        for what, count in ((What.ACKED, acked), (What.FAILED, failed)):
            if count:
                counted = Counted(what, self.name, rows.came_from)
                self.tally.add(counted, count, outcome.took_ns * count // executed)

    def _count_emitted(self, name: str, rows: int) -> None:
        stream = StreamId(self.name, name)
        self.tally.add(Counted(What.EMITTED, self.name, stream), rows)
        if deliveries := self._deliveries[name]:
            self.tally.add(Counted(What.TRANSFERRED, self.name, stream), deliveries * rows)

    def _report_error(self, error: Exception) -> None:
        self.collector.report_error(error)


def _with_roots(failures: Sequence[RowFailure], places: Sequence[Deliveries]) -> list[tuple[int, Cause]]:
    """Return for each root of each failed row the cause."""
    return [(delivery.root, cause) for row, cause in failures for delivery in places[row]]
