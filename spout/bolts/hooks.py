"""Storm's task hooks, by which a user watches bolts.

A hook is called in the task of the bolt, when the event happens: `emit` and `ack` while
``execute`` runs, `execute` when it has returned. An exception in a hook fails the input that
the bolt works on; one in `fail`, whose input has failed, is shown among the errors that the
bolt reports.

Source: Storm's ``ITaskHook``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from spout.tuples.failures import Cause
from spout.tuples.tuple import Tuple


class EmitInfo(NamedTuple):
    """A tuple that was emitted: its values, its stream, and how many deliveries it has.

    >>> class Wide(spout.TaskHook):
    ...     def emit(self, info):
    ...         if info.deliveries > 1:
    ...             print(f"{info.values} of {info.stream} goes {info.deliveries} ways")
    >>> Wide().emit(spout.EmitInfo(("hawk",), "default", deliveries=3))
    ('hawk',) of default goes 3 ways
    """

    values: Sequence[Any]
    stream: str
    deliveries: int


class ExecuteInfo(NamedTuple):
    """A tuple for which ``execute`` has returned, and how long the call took, ms.

    >>> info = spout.ExecuteInfo(line, latency_ms=1.5)
    >>> info.tuple["value"], info.latency_ms
    (b'the hawk waits', 1.5)
    """

    tuple: Tuple
    latency_ms: float


class AckInfo(NamedTuple):
    """A tuple that was acked, and the time from the start of its ``execute`` to the ack, ms.

    >>> info = spout.AckInfo(line, latency_ms=20.0)
    >>> info.tuple.message_id.origin
    'sentences/3@1042'
    """

    tuple: Tuple
    latency_ms: float


class FailInfo(NamedTuple):
    """A tuple that was failed: the ms from the start of its ``execute`` to that, and the cause.

    >>> class Tell(spout.TaskHook):
    ...     def fail(self, info):
    ...         print(f"{info.tuple.message_id.origin}: {info.cause.error}: {info.cause.message}")
    >>> Tell().fail(spout.FailInfo(line, 2.0, Cause("split", "ValueError", "no words")))
    sentences/3@1042: ValueError: no words
    """

    tuple: Tuple
    latency_ms: float
    cause: Cause


@dataclass(frozen=True, slots=True)
class BoltContext:
    """Where a bolt runs: in which task of which micro-batch.

    >>> context = spout.BoltContext("count", partition=1, batch_id=7, tasks={"count": 2})
    >>> f"task {context.partition} of {context.tasks[context.name]} in batch {context.batch_id}"
    'task 1 of 2 in batch 7'

    Attributes:
        name: the bolt's name.
        partition: the task's number.
        batch_id: the micro-batch's id.
        tasks: in a topology the number of tasks of each bolt, by name; 0: as many as read the
            micro-batch.
        hooks: the hooks of this task of the bolt; see `add_hook`.
    """

    name: str
    partition: int
    batch_id: int
    tasks: Mapping[str, int] = field(default_factory=dict)
    hooks: list[TaskHook] = field(default_factory=list)

    def add_hook(self, hook: TaskHook) -> None:
        """Watch this task of the bolt, from ``prepare`` on."""
        self.hooks.append(hook)


class TaskHook:
    """Override the methods for the events that you want to see; every task works on its own copy.

    Add it to a topology by `TopologyBuilder.add_hook`, to a bolt on DataFrames by
    ``spout.bolt(.., hooks=[..])``, and to one task by `BoltContext.add_hook`.

    >>> class Slow(spout.TaskHook):
    ...     def __init__(self, limit_ms):
    ...         self.limit_ms = limit_ms
    ...     def execute(self, info):
    ...         if info.latency_ms > self.limit_ms:
    ...             print(f"{info.tuple.message_id.origin} took {info.latency_ms} ms")
    >>> hook = Slow(limit_ms=100)
    >>> hook.execute(spout.ExecuteInfo(line, latency_ms=99.0))
    >>> hook.execute(spout.ExecuteInfo(line, latency_ms=120.0))
    sentences/3@1042 took 120.0 ms
    """

    def prepare(self, context: BoltContext) -> None:
        """Get ready for a bolt's task; called when the bolt is prepared."""

    def emit(self, info: EmitInfo) -> None:
        """React to a tuple that the bolt emitted."""

    def execute(self, info: ExecuteInfo) -> None:
        """React to the end of a call of ``execute``."""

    def ack(self, info: AckInfo) -> None:
        """React to a tuple that the bolt acked."""

    def fail(self, info: FailInfo) -> None:
        """React to a tuple that failed: the bolt failed it, or an exception escaped the bolt."""

    def cleanup(self) -> None:
        """Release what `prepare` acquired; called after the bolt's own cleanup."""
