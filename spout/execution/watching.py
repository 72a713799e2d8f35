"""What one bolt on a DataFrame does in one task: counted exactly, and shown to its hooks.

A bolt that settles its tuples by itself is timed by the batch of rows, so that counting costs nothing for a
tuple; one with hooks, and a rich one, by the tuple.

Source: docs/design/protocol.md, section 5.2; `spout.execution.bolt_work` does the same in a topology.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from spout.bolts.bolts import AnyBolt, Bolt, invoke
from spout.bolts.emitting import InTree
from spout.bolts.hooks import AckInfo, BoltContext, EmitInfo, ExecuteInfo, FailInfo, TaskHook
from spout.runtime.pulse import Pulse
from spout.tuples.collector import (
    DEFAULT_STREAM,
    ERRORS_MAX,
    AnchoredTuple,
    BasicCollector,
    Cause,
    Emit,
    OutputCollector,
    StreamId,
    Tuple,
    Values,
    cause_of,
)
from spout.tuples.counts import Counted, Counts, Tally, What
from spout.tuples.raised import Tracebacks

ClockNs = Callable[[], int]


class Watch:
    """Counts what a bolt does in one task, and tells its hooks.

    Attributes:
        name: the bolt's.
        errors: what it reported by ``report_error``, the first `ERRORS_MAX`.
        now_ns: the clock.
        pulse: is told what the bolt is at.
        tracebacks: those of the exceptions by which it failed tuples.
    """

    __slots__ = (
        "_bolt", "_context", "_deliveries", "_hooks", "_tally", "errors", "name", "now_ns", "pulse",
        "tracebacks",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        bolt: AnyBolt,
        context: BoltContext,
        hooks: Sequence[TaskHook] = (),
        *,
        pulse: Pulse | None = None,
        delivers: bool = False,
        now_ns: ClockNs = time.perf_counter_ns,
    ) -> None:
        """Watch the bolt of this name; `delivers` says that another bolt gets what it emits directly."""
        self.name = name
        self.errors: list[Cause] = []
        self.now_ns = now_ns
        self.pulse = pulse or Pulse()
        self.tracebacks = Tracebacks()
        self._bolt = bolt
        self._context = BoltContext(name, context.partition, context.batch_id, hooks=list(hooks))
        self._hooks = self._context.hooks
        self._deliveries = int(delivers)
        self._tally = Tally()

    @property
    def has_hooks(self) -> bool:
        """Whether anybody wants to see single tuples; known when the bolt is prepared."""
        return bool(self._hooks)

    @property
    def counts(self) -> Counts:
        """What was counted."""
        return self._tally.counts()

    def forget(self) -> None:
        """Begin to count anew."""
        self._tally = Tally()
        self.errors = []
        self.tracebacks.clear()

    def prepare(self, collector: OutputCollector | None = None) -> None:
        """Prepare the bolt; its hooks before it, so that they see all it does."""
        for hook in self._hooks:
            hook.prepare(self._context)
        if not isinstance(self._bolt, Bolt):
            self._bolt.prepare(self._context)
        elif collector is not None:
            self._bolt.prepare(self._context, collector)

    def cleanup(self) -> None:
        """Clean the bolt up, then its hooks."""
        self._bolt.cleanup()
        for hook in self._hooks:
            hook.cleanup()

    def cause_of(self, error: BaseException) -> Cause:
        """Name what an exception failed, and keep its traceback."""
        return cause_of(self.name, error, self.tracebacks)

    def report_error(self, error: BaseException | str) -> None:
        """Take note of an error that the bolt wants to be seen."""
        if len(self.errors) < ERRORS_MAX:
            self.errors.append(cause_of(self.name, error))

    def count_executed(self, came_from: StreamId, rows: int, took_ns: int) -> None:
        """Count tuples that the bolt has received."""
        if rows:
            self._tally.add(Counted(What.EXECUTED, self.name, came_from), rows, took_ns)

    def count_settled(self, came_from: StreamId, rows: int, failed: int, took_ns: int) -> None:
        """Count the tuples of a batch, all but `failed` of them as acked."""
        for what, share in ((What.ACKED, rows - failed), (What.FAILED, failed)):
            if share:
                self._tally.add(Counted(what, self.name, came_from), share, took_ns * share // rows)

    def count_emitted(self, rows: int) -> None:
        """Count emissions, and their deliveries."""
        if rows:
            stream = StreamId(self.name)
            self._tally.add(Counted(What.EMITTED, self.name, stream), rows)
            if self._deliveries:
                self._tally.add(Counted(What.TRANSFERRED, self.name, stream), rows)

    def count_ack(self, received: Tuple, took_ns: int) -> None:
        """Count one ack."""
        self._count_one(What.ACKED, received, took_ns)

    def count_fail(self, received: Tuple, took_ns: int) -> None:
        """Count one fail."""
        self._count_one(What.FAILED, received, took_ns)

    def emitted(self, values: Sequence[Any]) -> None:
        """Show an emission to the hooks."""
        for hook in self._hooks:
            invoke(self.name, hook.emit, EmitInfo(values, DEFAULT_STREAM, self._deliveries))

    def executed(self, received: Tuple, took_ns: int) -> None:
        """Show to the hooks that ``execute`` has returned."""
        for hook in self._hooks:
            invoke(self.name, hook.execute, ExecuteInfo(received, took_ns / 1_000_000))

    def acked(self, received: Tuple, took_ns: int) -> None:
        """Show an ack to the hooks."""
        for hook in self._hooks:
            invoke(self.name, hook.ack, AckInfo(received, took_ns / 1_000_000))

    def failed(self, received: Tuple, took_ns: int, cause: Cause) -> None:
        """Show a fail to the hooks."""
        for hook in self._hooks:
            hook.fail(FailInfo(received, took_ns / 1_000_000, cause))

    def _count_one(self, what: What, received: Tuple, took_ns: int) -> None:
        stream = StreamId(received.source_component, received.source_stream)
        self._tally.add(Counted(what, self.name, stream), 1, took_ns)


class ReportingCollector(BasicCollector):
    """The collector of a `BasicBolt` whose errors somebody reads."""

    __slots__ = ("_watch",)

    def __init__(self, emit: Emit, watch: Watch) -> None:
        """Emit by `emit`; report to `watch`."""
        super().__init__(emit)
        self._watch = watch

    def report_error(self, error: BaseException | str) -> None:
        """Show an error in the stream's status."""
        self._watch.report_error(error)


class WatchedCollector(OutputCollector):
    """The collector of a rich bolt that is watched."""

    __slots__ = ("_watch",)

    def __init__(self, subscription: int, watch: Watch, fields: Sequence[str] | None = None) -> None:
        """Collect for the bolt that `watch` watches; its emissions go out on one subscription."""
        super().__init__(watch.name, subscription, fields)
        self._watch = watch
        self.tracebacks = watch.tracebacks

    def emit(
        self, values: Values, anchors: Tuple | Iterable[Tuple] = (), stream: str = DEFAULT_STREAM
    ) -> None:
        """Emit one tuple; see `OutputCollector.emit`."""
        super().emit(values, anchors, stream)
        self._watch.emitted(self.emissions[-1].values)

    def ack(self, received: Tuple) -> None:
        """Settle an input tuple; see `OutputCollector.ack`."""
        super().ack(received)
        took_ns = self._since(received)
        self._watch.count_ack(received, took_ns)
        self._watch.acked(received, took_ns)

    def refuse(self, received: AnchoredTuple, named: Cause) -> None:
        """Fail an input tuple; see `OutputCollector.refuse`."""
        super().refuse(received, named)
        took_ns = self._since(received)
        self._watch.count_fail(received, took_ns)
        self._watch.failed(received, took_ns, named)

    def _since(self, received: Tuple) -> int:
        return self._watch.now_ns() - received.since_ns if isinstance(received, InTree) else 0
