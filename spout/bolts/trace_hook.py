"""A hook that writes a span of OpenTelemetry for each tuple whose record carries a trace context."""

from __future__ import annotations

import time
from contextlib import suppress

from acker.errors import MessageIdUnknown
from spout.bolts.hooks import AckInfo, BoltContext, FailInfo, TaskHook
from spout.runtime.tracing import NS_PER_MS, TRACEPARENT, Spans, configured_spans, traceparent_in
from spout.tuples.tuple import Tuple


def traceparent(tuple: Tuple) -> str:
    """Return the trace context of a tuple, from its field ``traceparent`` or from the headers of its record.

    Emit it as a field of that name, and the bolts behind have it too, whatever lies between:

    >>> spout.traceparent(line)
    '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
    >>> class SplitSentence(spout.BasicBolt):
    ...     output = "word string, traceparent string"
    ...     def execute(self, tuple, collector):
    ...         for word in tuple["value"].decode().split():
    ...             collector.emit((word, spout.traceparent(tuple)))

    Empty: the producer has sent none.
    """
    for name in (TRACEPARENT, "headers"):
        try:
            value = tuple[name]
        except KeyError:
            continue
        if name == TRACEPARENT:
            return str(value or "")
        return traceparent_in((each[0], each[1]) for each in value or ())
    return ""


class TraceHook(TaskHook):
    """Writes a span ``bolt <name>`` for each tuple that has a trace context: from its execute to ack or fail.

    Add it to bolts like any other hook. Without OpenTelemetry's SDK, or where no tracer provider was set
    up in the process of the task, it does nothing; `docs/operate/monitoring.md` says how to configure one.

    >>> hook = spout.TraceHook()  # builder.add_hook(hook), or spout.bolt(SplitSentence(), hooks=[hook])
    >>> hook.is_tracing
    False
    """

    def __init__(self) -> None:
        self._name = ""
        self._spans: Spans | None = None

    @property
    def is_tracing(self) -> bool:
        """Whether it writes spans in this process; False before `prepare`."""
        return self._spans is not None

    def prepare(self, context: BoltContext) -> None:
        self._name = context.name
        self._spans = configured_spans()
        if self._spans is None and self in context.hooks:
            context.hooks.remove(self)  # a bolt that is watched takes ten times as long for a tuple

    def ack(self, info: AckInfo) -> None:
        if self._spans is not None:
            self._write(self._spans, info.tuple, info.latency_ms, "")

    def fail(self, info: FailInfo) -> None:
        if self._spans is not None:
            self._write(self._spans, info.tuple, info.latency_ms, info.cause.error or "FailTuple")

    def _write(self, spans: Spans, tuple: Tuple, took_ms: float, error: str) -> None:
        if not (parent := traceparent(tuple)):
            return
        end_ns = time.time_ns()
        begin_ns = end_ns - int(took_ms * NS_PER_MS)
        attributes: dict[str, str | int] = {"operator": self._name, "source": tuple.source_component}
        with suppress(MessageIdUnknown):  # behind a shuffle only its tree is there
            attributes |= {"origin": tuple.message_id.origin, "attempt": tuple.message_id.attempt}
        spans.write(f"bolt {self._name}", parent, begin_ns, end_ns, attributes, error)
