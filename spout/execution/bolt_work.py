"""One bolt at work in one task: it is called, hooks watch it, what it does is counted and reported.

The three forms of a bolt do the same: a tuple is received, emissions are anchored on it, it is
acked or failed. They are called in one way (`spout.execution.calls`). Here an adapter is chosen for
the bolt's form, wrappers for what is asked for are put around it, and what comes out is counted,
and kept for the report of the task.

The *places* of a tuple are its `Deliveries`: one for each root that it descends from.

Source: docs/design/protocol.md, section 5.2.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from threading import Lock

import numpy as np

from acker.errors import UsageError
from spout.bolts.bolts import ArrowBolt, BasicBolt, Bolt
from spout.bolts.collectors import EmittedStream, OutputCollector, Sent
from spout.bolts.hooks import BoltContext, TaskHook
from spout.bolts.trace_hook import TraceHook
from spout.execution.adapters import (
    BatchCall,
    Causes,
    CollectorObserver,
    RowCall,
    TupleCall,
    WatchedBatchCall,
    execute_function_of_rich,
    execute_function_with_hooks,
)
from spout.execution.calls import (
    Block,
    BoltCall,
    ClockNs,
    Outcome,
    RootFailure,
    RowFailure,
    RowsToCall,
)
from spout.execution.emitted import (
    Emissions,
    RowCollector,
    StreamCollector,
    TreeCollector,
    emissions_of_rows,
    emissions_of_sent,
    outside_execute_error,
    pop_first,
)
from spout.execution.fitting import fitted_sent
from spout.execution.guards import GuardedArrow
from spout.execution.wrappers import FitRows, GuardWithPlaces, Ordered, Pulsed, Timed
from spout.planning.order import Gate
from spout.runtime.pulse import Pulse
from spout.topology.stage_pass import BoltPass
from spout.tuples.counts import Counted, Tally, What
from spout.tuples.places import Deliveries
from spout.tuples.raised import place_of_code
from spout.tuples.tuple import Rows, StreamId


class BoltWork:
    """A bolt in one task.

    Attributes:
        name: the bolt's name.
        collector: what a rich bolt emits, acks and fails by. Its failures, what is left open,
            errors and tracebacks are those of bolts of all forms.
        tally: the counts of what the bolt did.
    """

    def __init__(
        self,
        bolt_pass: BoltPass,
        context: BoltContext,
        *,
        tracked: bool,
        pulse: Pulse | None = None,
        clock_ns: ClockNs = time.perf_counter_ns,
    ) -> None:
        """Prepare a bolt; its hooks before it, so that they see all that it does.

        1. Make what counts and what collects emissions.
        2. Prepare the hooks, and take a hook off that only traces.
        3. Prepare the bolt, which may add hooks.
        4. Put together how it is called, which depends on its hooks.

        Args:
            tracked: whether an exception fails the input; otherwise it is
                raised.
            pulse: is called when a call of the bolt begins and ends, for the thread that watches
                for hangs; None: nobody watches.
        """
        # step 1
        self.name = bolt_pass.name
        self.tally = Tally()
        self._bolt = bolt_pass.bolt
        self._pulse = pulse
        self._pid = os.getpid()
        self._clock_ns = clock_ns
        self._hooks: Sequence[TaskHook] = context.hooks
        self._streams = bolt_pass.streams
        emits_by_stream: dict[str, EmittedStream] = {}
        self._task_count_by_stream: dict[str, int] = {}  # to how many tasks each of its tuples goes
        for stream_name, stream in bolt_pass.streams.items():
            emits_by_stream[stream_name] = stream.emitted_stream
            self._task_count_by_stream[stream_name] = stream.delivery_count
        # those that `pop_emissions` is still to return; those in `collector.sent` come on top
        self._emissions: list[Emissions] = []
        self._observer = CollectorObserver(
            bolt_pass.name,
            self.tally,
            context.hooks,
            self._task_count_by_stream,
            self._report_error,
            clock_ns,
        )
        self.collector = OutputCollector(bolt_pass.name, emits_by_stream, self._observer, Lock())
        self.collector.tracebacks.code_place = place_of_code(bolt_pass.bolt)
        # gets the errors of emissions that do not fit; None: nothing is tracked, so they are raised
        self._misfit_log = self.collector.tracebacks if tracked else None
        self._causes = Causes(bolt_pass.name, bolt_pass.bolt, self.collector, tracked=tracked)
        # a basic bolt emits by one of these two: by the first one where hooks watch its tuples
        self._watched_collector = TreeCollector(bolt_pass.name, self.collector)
        self._unwatched_collector = self._make_row_collector(emits_by_stream)
        # step 2
        context.hooks.extend(bolt_pass.hooks)
        for hook in tuple(self._hooks):  # a copy, since a hook may take itself off
            hook.prepare(context)
        self._trace_hook = self._detach_trace_hook(context)
        # step 3
        self._prepare_bolt(context)
        # step 4; the bolt may add hooks or take some off at any time
        self._has_hooks = bool(self._hooks)
        self._bolt_call = self._assembled_call()

    def _make_row_collector(self, emits_by_stream: Mapping[str, EmittedStream]) -> RowCollector:
        """Return what a basic bolt without hooks emits by."""
        is_on_frame = any(emits.on_frame for emits in emits_by_stream.values())
        if is_on_frame:  # then it has no other stream, so that nothing is checked when it emits
            return RowCollector(self._streams, self.collector.report_error)
        return StreamCollector(self._streams, self.collector, emits_by_stream)

    def _detach_trace_hook(self, context: BoltContext) -> TraceHook | None:
        """Take a hook that only traces off the context, and return it; None: nothing was taken off.

        That is done if a basic bolt has this hook alone. Its tracing is put around ``execute``
        instead: then tuples without a trace context are not watched one by one, which is slow.
        """
        only_hook = context.hooks[0] if len(context.hooks) == 1 else None
        if not isinstance(self._bolt, BasicBolt):
            return None
        if isinstance(only_hook, TraceHook) and only_hook.only_traces:
            context.hooks.clear()
            return only_hook
        return None

    def _prepare_bolt(self, context: BoltContext) -> None:
        """Prepare the bolt itself; `UsageError`: it is no bolt."""
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
        """What blocks the records that must not pass a failed one; None: order does not matter."""
        return self._observer.gate

    @gate.setter
    def gate(self, gate: Gate | None) -> None:
        self._observer.gate = gate
        self._bolt_call = self._assembled_call()

    def call_bolt(self, rows: Rows, places: Sequence[Deliveries]) -> None:
        """Call the bolt for rows; keep what it emitted for `pop_emissions`, and count.

        `places`: of each row, in the trees of its roots.
        """
        # the bolt may have added its first hook, or taken off its last one
        if bool(self._hooks) != self._has_hooks:
            self._has_hooks = bool(self._hooks)
            self._bolt_call = self._assembled_call()
        outcome = self._bolt_call.call(Block(rows, places, RowsToCall(len(rows))))
        if os.getpid() != self._pid:
            # the bolt has forked, and its child has come back here: all that
            # follows is the parent's, which would be written twice
            os._exit(1)
        self._keep_emitted(outcome, rows, places)
        not_done = [*outcome.failures, *outcome.blocked]
        self.collector.failures += _failures_of_roots(not_done, places)
        self._count_outcome(outcome, rows)

    def cleanup(self) -> None:
        """Clean the bolt up, then its hooks, so that they see what it does in its cleanup."""
        # no input is worked on now, so an emission would have no anchor: it raises
        self._watched_collector.current = None
        self._bolt.cleanup()
        # a basic bolt whose tuples no hook watches emits by this collector, and may do so in
        # `execute` alone
        if self._unwatched_collector.values:
            raise outside_execute_error(self.name)
        for hook in self._hooks:
            hook.cleanup()

    def pop_emissions(self) -> list[Emissions]:
        """Remove what the bolt has emitted since the last call, and return it by stream.

        What was emitted by the `OutputCollector` is counted and made to fit here; the roots of an
        emission that does not fit fail. The rest was kept by `call_bolt`, which has done that.
        """
        emissions = self._emissions
        self._emissions = []
        sent_by_stream: dict[str, list[Sent]] = {}
        for emission in pop_first(self.collector.sent, len(self.collector.sent)):
            sent_by_stream.setdefault(emission.stream, []).append(emission)
        for stream_name, sent in sent_by_stream.items():
            stream = self._streams[stream_name]
            self._count_emitted(stream_name, len(sent))
            fit = fitted_sent(stream, sent, self._misfit_log)
            self.collector.failures += fit.failures
            if self.gate is not None:
                self.gate.fail_all(root for root, _ in fit.failures)
            emissions.append(emissions_of_sent(stream, fit.sent, fit.arrow_rows))
        return emissions

    def clear_report(self) -> None:
        """Remove what was reported: failures, what is left open, touched roots, errors and counts.

        Called while the bolt holds no tuples.
        """
        self.collector.failures.clear()
        self.collector.left_open.clear()
        self.collector.touched.clear()
        self.collector.errors.clear()
        self.collector.tracebacks.clear()
        self.tally.clear()

    def _assembled_call(self) -> BoltCall:
        """Return how the bolt is called: the adapter for its form, in the wrappers that are needed.

        A wrapper that nobody needs costs nothing, since it is not there. So this is done again when
        hooks or a gate come or go.
        """
        # from the inside out: each wrapper is put around what there is
        call = self._adapter()
        is_by_row = isinstance(call, RowCall)
        if self._pulse is not None:
            is_one_call = isinstance(self._bolt, ArrowBolt)
            call = Pulsed(call, self._pulse, self.name, is_one_call)
        call = Timed(call, self._clock_ns)
        if is_by_row:
            # Outside of the clock, since it is no time of the bolt's. Other forms do not need it:
            # a `BatchCall` has made columns fit, and `pop_emissions` does so for an
            # `OutputCollector`
            call = FitRows(call, self._misfit_log)
        if self.gate is not None:
            # outside of all, so that a row that does not fit blocks others, too
            call = Ordered(call, self.gate)
        return call

    def _adapter(self) -> BoltCall:
        """Return the adapter for the form of the bolt; if there are hooks, one that calls them."""
        if isinstance(self._bolt, ArrowBolt):
            return self._arrow_adapter(self._bolt)
        if isinstance(self._bolt, BasicBolt) and not self._has_hooks:
            wrap_execute = None if self._trace_hook is None else self._trace_hook.around
            return RowCall(
                self.name,
                self._bolt,
                self._unwatched_collector,
                self._causes,
                wrap_execute,
            )
        if isinstance(self._bolt, BasicBolt):
            execute = execute_function_with_hooks(
                self.name,
                self._bolt,
                self.collector,
                self._watched_collector,
            )
        else:
            execute = execute_function_of_rich(self.name, self._bolt)
        return TupleCall(
            self.name,
            execute,
            self.collector,
            self._causes,
            self._observer,
            self._clock_ns,
            drops_emissions_on_error=isinstance(self._bolt, BasicBolt),
        )

    def _arrow_adapter(self, bolt: ArrowBolt) -> BoltCall:
        """Return the adapter for an Arrow bolt."""
        call: BoltCall = BatchCall(
            self.name, bolt, self._streams, self.collector, self._causes, self._misfit_log
        )
        if self._has_hooks:
            call = WatchedBatchCall(self.name, call, self.collector, self._causes, self._clock_ns)
        if isinstance(bolt, GuardedArrow):  # in a child process
            call = GuardWithPlaces(call, bolt.guard)
        return call

    def _keep_emitted(self, outcome: Outcome, rows: Rows, places: Sequence[Deliveries]) -> None:
        """Keep the rows that a call emitted for `pop_emissions`.

        Add the deliveries that it left open to `collector.left_open`.
        What a bolt emits for a row that it leaves open is open with the row.
        """
        places_left_open = self.collector.left_open
        for emitted in outcome.emitted:
            emissions = emissions_of_rows(emitted, rows, places)
            if outcome.left_open:
                is_open = emitted.is_emitted_for(outcome.left_open)
                # numbers of the emitted rows whose input row is left open
                rows_left_open = np.flatnonzero(is_open).tolist()
                for places_of_copy in emissions.places_by_copy:
                    for emission_number in rows_left_open:
                        places_left_open.update(places_of_copy[emission_number])
            if len(emissions.rows):
                self._count_emitted(emitted.stream.id.stream, len(emissions.rows))
                self._emissions.append(emissions)
        for row in outcome.left_open:
            places_left_open.update(places[row])

    def _count_outcome(self, outcome: Outcome, rows: Rows) -> None:
        """Count executed, acked and failed rows of a block, with their times.

        They are timed together, so that counting costs a tuple nothing.
        """
        executed_count = len(rows) - len(outcome.blocked)
        if not executed_count:
            return
        executed = Counted(What.EXECUTED, self.name, rows.came_from)
        self.tally.add(executed, executed_count, outcome.took_ns)
        if outcome.settled_by_collector:  # each tuple was counted when it was acked or failed
            return
        failed_count = len({row for row, _ in outcome.failures})
        acked_count = executed_count - failed_count - len(outcome.left_open)
        for what, count in ((What.ACKED, acked_count), (What.FAILED, failed_count)):
            if count:
                # the call's time is shared: of 10 ms for ten rows, two that failed have 2 ms
                took_ns = outcome.took_ns * count // executed_count
                self.tally.add(Counted(what, self.name, rows.came_from), count, took_ns)

    def _count_emitted(self, stream_name: str, row_count: int) -> None:
        """Count rows that were emitted on a stream, and their deliveries to tasks."""
        stream = StreamId(self.name, stream_name)
        self.tally.add(Counted(What.EMITTED, self.name, stream), row_count)
        task_count = self._task_count_by_stream[stream_name]
        if task_count:
            transferred = Counted(What.TRANSFERRED, self.name, stream)
            self.tally.add(transferred, task_count * row_count)

    def _report_error(self, error: BaseException) -> None:
        # a method, since the observer is made before the collector, which
        # observes by it
        self.collector.report_error(error)


def _failures_of_roots(
    failures: Sequence[RowFailure],
    places: Sequence[Deliveries],
) -> list[RootFailure]:
    """Return each root of each failed row, by its index in the batch's plan, with the cause."""
    root_failures: list[RootFailure] = []
    for row, cause in failures:
        root_failures += [(delivery.root, cause) for delivery in places[row]]
    return root_failures
