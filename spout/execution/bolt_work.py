"""One bolt at work in one task: it is called, its hooks watch, what fails is
attributed, and all is counted.

The three forms of a bolt do the same: a tuple is received, emissions are
anchored on it, it is acked or failed. They are called in one way
(`spout.execution.calls`). Here an adapter is chosen for the bolt's form, what
is asked for is put around it, and what comes out is counted, and kept for the
report of the task.

Source: docs/design/protocol.md, section 5.2.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from threading import Lock

import numpy as np

from acker.errors import UsageError
from spout.bolts.bolts import ArrowBolt, BasicBolt, Bolt
from spout.bolts.collectors import Emits, OutputCollector, Sent
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
    emissions_by_hand,
    emissions_by_row,
    pop_first,
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
        collector: what a rich bolt does; its lists of failures, errors and
            tracebacks serve all forms.
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
            tracked: whether an exception fails the input; otherwise it is
                raised.
            pulse: is called when a call of the bolt begins and ends; None:
                nobody watches.
        """
        self.name = pass_.name
        self.tally = Tally()
        self._bolt = pass_.bolt
        self._pulse = pulse
        self._pid = os.getpid()
        self._clock_ns = clock_ns
        self._hooks: Sequence[TaskHook] = context.hooks
        self._streams = pass_.streams
        emits_by_stream: dict[str, Emits] = {}
        self._tasks_by_stream: dict[str, int] = {}  # how many tasks receive each of its tuples
        for name, stream in pass_.streams.items():
            emits_by_stream[name] = stream.emits
            self._tasks_by_stream[name] = stream.deliveries
        self._emissions: list[Emissions] = []  # those that were not emitted by hand
        self._observer = HandObserver(
            pass_.name,
            self.tally,
            context.hooks,
            self._tasks_by_stream,
            self._report_error,
            clock_ns,
        )
        self.collector = OutputCollector(pass_.name, emits_by_stream, self._observer, Lock())
        self.collector.tracebacks.code_place = place_of_code(pass_.bolt)
        # where `spout.execution.fitting` logs what does not fit; untracked
        # that is raised
        self._misfits = self.collector.tracebacks if tracked else None
        self._causes = Causes(pass_.name, pass_.bolt, self.collector, tracked=tracked)
        self._by_tuple = TreeCollector(pass_.name, self.collector)
        self._by_row: RowCollector
        if any(emits.on_frame for emits in emits_by_stream.values()):
            self._by_row = RowCollector(self.collector.report_error)
        else:
            self._by_row = StreamCollector(self.collector, emits_by_stream)
        context.hooks.extend(pass_.hooks)
        for hook in tuple(self._hooks):  # a copy, since a hook may take itself off
            hook.prepare(context)
        self._trace = self._take_lone_trace(context)
        self._prepare(context)
        # the bolt may have added its first hook, and may add or take off some
        # at any time
        self._has_hooks = bool(self._hooks)
        self._call = self._assemble_call()

    def _take_lone_trace(self, context: BoltContext) -> TraceHook | None:
        """Take off a hook that only traces, if a basic bolt has no other one, and return it.

        It is put around ``execute``: tuples without a trace context are then
        not watched one by one.
        """
        only_hook = context.hooks[0] if len(context.hooks) == 1 else None
        if not isinstance(self._bolt, BasicBolt):
            return None
        if isinstance(only_hook, TraceHook) and only_hook.only_traces:
            context.hooks.clear()
            return only_hook
        return None

    def _prepare(self, context: BoltContext) -> None:
        """Prepare the bolt itself; `UsageError`: it is none."""
        if isinstance(self._bolt, Bolt):
            self._bolt.prepare(context, self.collector)
        elif isinstance(self._bolt, BasicBolt | ArrowBolt):
            self._bolt.prepare(context)
        else:
            raise UsageError(
                f"bolt {self.name!r} is no BasicBolt, Bolt or ArrowBolt: {type(self._bolt).__name__}"
            )

    @property
    def gate(self) -> Gate | None:
        """What blocks records behind others that failed, while records are
        fed in order; else None.
        """
        return self._observer.gate

    @gate.setter
    def gate(self, gate: Gate | None) -> None:
        self._observer.gate = gate
        self._call = self._assemble_call()

    def receive(self, rows: Rows, places: Sequence[Deliveries]) -> None:
        """Call the bolt for rows, each with its places in its trees; keep and
        count what comes out.
        """
        if bool(self._hooks) != self._has_hooks:  # it has added its first hook, or taken off its last one
            self._has_hooks = bool(self._hooks)
            self._call = self._assemble_call()
        outcome = self._call.call(Block(rows, places, Turns(len(rows))))
        if os.getpid() != self._pid:
            # the bolt has forked, and its child has come back here: all that
            # follows is the parent's, which would be written twice
            os._exit(1)
        self._keep_emitted(outcome, rows, places)
        not_done = [*outcome.failures, *outcome.blocked]
        self.collector.failures += _with_roots(not_done, places)
        self._count(outcome, rows)

    def cleanup(self) -> None:
        """Clean the bolt up, then its hooks, which so see all it does."""
        self._by_tuple.current = None  # what a basic bolt emits now has no input to anchor on
        self._bolt.cleanup()
        if self._by_row.values:
            raise too_late(self.name)
        for hook in self._hooks:
            hook.cleanup()

    def pop_emissions(self) -> list[Emissions]:
        """Remove what the bolt has emitted, and return it by stream; count it.

        What was emitted by hand is made to fit first, and its roots fail
        where it does not.
        """
        emissions = self._emissions
        self._emissions = []
        sent_by_stream: dict[str, list[Sent]] = {}
        for emission in pop_first(self.collector.sent, len(self.collector.sent)):
            sent_by_stream.setdefault(emission.stream, []).append(emission)
        for name, sent in sent_by_stream.items():
            stream = self._streams[name]
            self._count_emitted(name, len(sent))
            fit = fitted_by_hand(stream, sent, self._misfits)
            self.collector.failures += fit.failures
            if self.gate is not None:
                self.gate.fail_all(root for root, _ in fit.failures)
            emissions.append(emissions_by_hand(stream, fit.sent, fit.batch))
        return emissions

    def forget(self) -> None:
        """Forget what was reported; the bolt holds no tuples."""
        self.collector.failures.clear()
        self.collector.left_open.clear()
        self.collector.touched.clear()
        self.collector.errors.clear()
        self.collector.tracebacks.clear()
        self.tally.clear()

    def _assemble_call(self) -> BoltCall:
        """Return how the bolt is called: the adapter for its form, and around
        it what is asked for.

        What nobody asks for costs nothing, so this is done anew when hooks or
        a gate come or go.
        """
        # from the inside out: each one is put around what there is
        call = self._adapter()
        is_by_row = isinstance(call, RowCall)
        if self._pulse is not None:
            at_once = isinstance(self._bolt, ArrowBolt)
            call = Pulsed(call, self._pulse, self.name, at_once)
        call = Timed(call, self._clock_ns)
        if is_by_row:
            # outside the clock, since it is no time of the bolt's; columns of
            # an Arrow bolt, and what is emitted by hand, are made to fit
            # elsewhere
            call = FitRows(call, self._misfits)
        if self.gate is not None:
            # outside of all, so that a row that does not fit blocks others, too
            call = Ordered(call, self.gate)
        return call

    def _adapter(self) -> BoltCall:
        """Return the adapter for the form of the bolt; with hooks each tuple is watched."""
        bolt, collector = self._bolt, self.collector
        call: BoltCall
        if isinstance(bolt, ArrowBolt):
            call = BatchCall(self.name, bolt, self._streams, collector, self._causes, self._misfits)
            if self._has_hooks:
                call = WatchedBatchCall(self.name, call, collector, self._causes, self._clock_ns)
            if isinstance(bolt, GuardedArrow):
                call = PlacesGuarded(call, bolt.guard)
            return call
        if isinstance(bolt, BasicBolt) and not self._has_hooks:
            wrap = None if self._trace is None else self._trace.around
            return RowCall(self.name, bolt, self._streams, self._by_row, self._causes, wrap)
        if isinstance(bolt, BasicBolt):
            execute = watched_execute(self.name, bolt, collector, self._by_tuple)
        else:
            execute = rich_execute(self.name, bolt)
        return HandCall(
            self.name,
            execute,
            collector,
            self._causes,
            self._observer,
            self._clock_ns,
            takes_back=isinstance(bolt, BasicBolt),
        )

    def _keep_emitted(self, outcome: Outcome, rows: Rows, places: Sequence[Deliveries]) -> None:
        """Keep what was emitted for `pop_emissions`, and in the collector the
        places of what is left open.

        What a bolt emits for a row that it leaves open is open with the row.
        """
        left_open = self.collector.left_open
        for emitted in outcome.emitted:
            emissions = emissions_by_row(emitted, rows, places)
            if outcome.left_open:
                is_open = np.isin(emitted.parents, outcome.left_open)
                open_children = np.flatnonzero(is_open).tolist()
                for places_of_copy in emissions.places_by_copy:
                    for child in open_children:
                        left_open.update(places_of_copy[child])
            if len(emissions.rows):
                self._count_emitted(emitted.stream.id.stream, len(emissions.rows))
                self._emissions.append(emissions)
        for row in outcome.left_open:
            left_open.update(places[row])

    def _count(self, outcome: Outcome, rows: Rows) -> None:
        """Count the rows, which are timed together, so that counting costs a tuple nothing."""
        executed_count = len(rows) - len(outcome.blocked)
        if not executed_count:
            return
        executed = Counted(What.EXECUTED, self.name, rows.came_from)
        self.tally.add(executed, executed_count, outcome.took_ns)
        if outcome.by_hand:  # each tuple was counted when it was acked or failed
            return
        failed_count = len({row for row, _ in outcome.failures})
        acked_count = executed_count - failed_count - len(outcome.left_open)
        for what, count in ((What.ACKED, acked_count), (What.FAILED, failed_count)):
            if count:
                # of 10 ms for ten rows, two that failed have 2 ms
                took_ns = outcome.took_ns * count // executed_count
                self.tally.add(Counted(what, self.name, rows.came_from), count, took_ns)

    def _count_emitted(self, name: str, row_count: int) -> None:
        """Count rows that were emitted on the stream of this name, and their deliveries."""
        stream = StreamId(self.name, name)
        self.tally.add(Counted(What.EMITTED, self.name, stream), row_count)
        tasks = self._tasks_by_stream[name]
        if tasks:
            transferred = Counted(What.TRANSFERRED, self.name, stream)
            self.tally.add(transferred, tasks * row_count)

    def _report_error(self, error: Exception) -> None:
        # a method, since the observer is made before the collector, which
        # observes by it
        self.collector.report_error(error)


def _with_roots(failures: Sequence[RowFailure], places: Sequence[Deliveries]) -> list[tuple[int, Cause]]:
    """Return each root of each failed row, by its index in the plan, with the cause."""
    failed_roots: list[tuple[int, Cause]] = []
    for row, cause in failures:
        failed_roots += [(delivery.root, cause) for delivery in places[row]]
    return failed_roots
