"""A hook that writes a span of OpenTelemetry for each tuple that has a trace context."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from acker.errors import MessageIdUnknown
from acker.wire.causes import class_name
from spout.bolts.collectors import BasicCollector
from spout.bolts.hooks import AckInfo, BoltContext, FailInfo, TaskHook
from spout.runtime.tracing import NS_PER_MS, TRACEPARENT, Spans, configured_spans, traceparent_in
from spout.tuples.tuple import PlacedTuple, Rows, Tuple

Execute = Callable[[Any, BasicCollector], object]


def traceparent(tuple: Tuple) -> str:
    """Return the trace context of a tuple.

    It is the field ``traceparent`` of the tuple, or that among the headers of its record.

    Emit it as a field of that name, and the bolts behind have it too, whatever lies between:

    >>> spout.traceparent(line)
    '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
    >>> class SplitSentence(spout.BasicBolt):
    ...     output = "word string, traceparent string"
    ...     def execute(self, tuple, collector):
    ...         for word in tuple["value"].decode().split():
    ...             collector.emit((word, spout.traceparent(tuple)))

    Empty: the record has no trace context.
    """
    for field, parse in _FIELDS_WITH_CONTEXT:
        # the first field that the tuple has counts, also if it is empty; if it has no such field,
        # the
        # next one is tried
        with suppress(*_FIELD_ERRORS):
            return parse(tuple[field] or ())
    return ""


def _of_headers(headers: Iterable[Any]) -> str:
    """Return the trace context that is among headers: pairs, or the rows of Spark's column."""
    pairs: list[tuple[str, bytes | None]] = []
    for header in headers:
        is_row = isinstance(header, dict)
        pairs.append((header["key"], header["value"]) if is_row else header)
    return traceparent_in(pairs)


_FIELDS_WITH_CONTEXT: Final[Sequence[tuple[str, Callable[[Any], str]]]] = (
    (TRACEPARENT, lambda value: str(value or "")),
    ("headers", _of_headers),
)
"""Where a tuple may have its trace context, and how it is read."""

_FIELD_ERRORS: Final = (KeyError, TypeError, ValueError, OverflowError)
"""What is raised where there is no such field, or it is a bolt's own, with something else in it."""

_EVENTS: Final = ("emit", "execute", "ack", "fail", "cleanup")


def _context_by_row(rows: Rows) -> dict[int, str]:
    """Return the trace context of each row that has one, by its number.

    If the rows have both fields, the first one counts.
    """
    for field, parse in _FIELDS_WITH_CONTEXT:
        with suppress(*_FIELD_ERRORS):  # then the next field is tried
            context_by_row: dict[int, str] = {}
            for row in range(len(rows)):
                value = rows.value(field, row)
                context = parse(value) if value else ""
                if context:
                    context_by_row[row] = context
            return context_by_row
    return {}


class TraceHook(TaskHook):
    """Writes a span ``bolt <name>`` for each tuple that has a trace context.

    The span goes from the tuple's ``execute`` to its ack or fail.

    Add it to bolts like any other hook. Without OpenTelemetry's SDK, or where no tracer
    provider was set up in the process of the task, it does nothing;
    `docs/operate/monitoring.md` says how to configure one.

    >>> hook = spout.TraceHook()
    >>> hook.is_tracing  # True in a task, behind spout.bolt(SplitSentence(), hooks=[hook])
    False
    """

    def __init__(self) -> None:
        self._name = ""
        self._spans: Spans | None = None

    @property
    def is_tracing(self) -> bool:
        """Return whether it writes spans in this process; False before `prepare`."""
        return self._spans is not None

    @property
    def only_traces(self) -> bool:
        """Return whether its class, if it is derived from this one, overrides no method for
        events.
        """
        hook_class = type(self)
        return all(getattr(hook_class, name) is getattr(TraceHook, name) for name in _EVENTS)

    def prepare(self, context: BoltContext) -> None:
        """Find out where spans are written; if nowhere, remove a hook that does nothing else."""
        self._name = context.name
        self._spans = configured_spans()
        if self._spans is None and self.only_traces and self in context.hooks:
            context.hooks.remove(self)  # a bolt that is watched takes ten times as long for a tuple

    def ack(self, info: AckInfo) -> None:
        """Write the span of a tuple that was acked."""
        self._write_span(info.tuple, info.latency_ms, error="")

    def fail(self, info: FailInfo) -> None:
        """Write the span of a tuple that failed."""
        self._write_span(info.tuple, info.latency_ms, error=info.cause.error or "FailTuple")

    def around(self, execute: Execute, rows: Rows) -> Execute:
        """Return ``execute`` of a basic bolt so that it writes the spans of some rows.

        It is the same function where none of them has a trace context: they cost nothing more.
        """
        context_by_row = {} if self._spans is None else _context_by_row(rows)
        if not context_by_row:
            return execute

        def traced(received: PlacedTuple, collector: BasicCollector) -> object:
            """Call ``execute``, and write the span of the tuple, if it has a trace context."""
            if received.row not in context_by_row:
                return execute(received, collector)
            began_ns = time.perf_counter_ns()
            error = "interrupted"  # unless the call returns or raises
            try:
                returned = execute(received, collector)
                error = ""
                return returned
            finally:
                # also if something ends the task from outside: a span without an end would never be
                # shown
                exception_class = sys.exc_info()[0]
                if error and exception_class is not None:
                    error = class_name(exception_class)
                took_ms = (time.perf_counter_ns() - began_ns) / NS_PER_MS
                self._write_span(received, took_ms, error)

        return traced

    def _write_span(self, tuple: Tuple, took_ms: float, error: str) -> None:
        """Write the span of a tuple that is acked or failed now, if it has a trace context.

        `error`: the class of what failed it; empty: it is acked.
        """
        parent = "" if self._spans is None else traceparent(tuple)
        if self._spans is None or not parent:
            return
        end_ns = time.time_ns()
        begin_ns = end_ns - int(took_ms * NS_PER_MS)
        attributes: dict[str, str | int] = {
            "operator": self._name,
            "source": tuple.source_component,
        }
        with suppress(MessageIdUnknown):  # behind a shuffle only its tree is there
            attributes |= {
                "origin": tuple.message_id.origin,
                "attempt": tuple.message_id.attempt,
            }
        self._spans.write(f"bolt {self._name}", parent, begin_ns, end_ns, attributes, error)
