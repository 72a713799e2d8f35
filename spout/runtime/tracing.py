"""Spans of OpenTelemetry, for records with a trace context: the header ``traceparent``.

OpenTelemetry is optional: where its SDK is not installed, or no tracer provider is configured,
nothing is imported and nothing is made. The configuration is the user's, by
`opentelemetry-instrument` or by code.

Source: W3C, "Trace Context"; docs/operate/monitoring.md.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, assert_never

from acker.config.settings import Input
from acker.identity import input_id_of, is_replay, offset_of, partition_of
from acker.kafka.port import Headers, Outgoing
from acker.wire.events import Verdicts, positions
from acker.wire.verdict import Verdict
from replay.records.due import Due

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

TRACEPARENT: Final = "traceparent"
NS_PER_MS: Final = 1_000_000

_IDS = struct.Struct("<3q")
"""Trace id (16 bytes) and parent id (8 bytes) as three numbers."""

_CONTEXT_FORM = re.compile(
    rb"[0-9a-f]{2}"  # version
    rb"-(?!0{32})[0-9a-f]{32}"  # trace id
    rb"-(?!0{16})[0-9a-f]{16}"  # parent id
    rb"-[0-9a-f]{2}"  # flags
    rb"(?:-.*)?\Z"  # what a later version may add
)


def traceparent_in(headers: Iterable[tuple[str, bytes | None]]) -> str:
    """Return the trace context of a record; empty: it has none, or one of another form."""
    traceparent = b""
    for name, value in headers:
        if name == TRACEPARENT:
            traceparent = value or b""  # of a header that comes twice the last counts
    return traceparent.decode("ascii") if _CONTEXT_FORM.match(traceparent) else ""


def trace_ids(headers: Iterable[tuple[str, bytes | None]]) -> tuple[int, int, int] | None:
    """Return trace id and parent id as the three numbers of `acker.wire.events.traces`.

    None: the record has no trace context, or its trace is not sampled.
    """
    # version, trace id, parent id, flags; the dashes are for a record without a trace context,
    # where all four are empty
    _version, trace_id, parent_id, flags, *_ = f"{traceparent_in(headers)}----".split("-")
    is_sampled = bool(flags) and bool(int(flags, 16) & 1)
    if not is_sampled:
        return None
    return _IDS.unpack(bytes.fromhex(trace_id + parent_id))


def traceparent_of(ids: Sequence[int]) -> str:
    """Return the trace context, sampled, with the ids that `trace_ids` returned."""
    ids_hex = _IDS.pack(*ids).hex()
    trace_id = ids_hex[:32]
    parent_id = ids_hex[32:]
    return f"00-{trace_id}-{parent_id}-01"


def configured_spans() -> Spans | None:
    """Return what writes spans.

    None: no SDK is installed, or nobody has configured it in this process.
    """
    try:
        from opentelemetry.sdk.trace import TracerProvider as ConfiguredProvider
        from opentelemetry.trace import get_tracer_provider
    except ImportError:
        return None
    provider = get_tracer_provider()
    return Spans(provider) if isinstance(provider, ConfiguredProvider) else None


class Spans:
    """Writes spans whose begin and end have already been."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = provider.get_tracer("windhover")
        self._propagator = TraceContextTextMapPropagator()

    def write(
        self,
        name: str,
        parent: str,
        begin_ns: int,
        end_ns: int,
        attributes: Mapping[str, str | int],
        error: str = "",
    ) -> None:
        """Write one span.

        Args:
            name: one of few, such as ``bolt split``.
            parent: the trace context below which it is.
            begin_ns: wall time.
            end_ns: wall time.
            attributes: their names get the prefix ``windhover.``.
            error: empty: it did not fail.
        """
        from opentelemetry.trace import Status, StatusCode

        context = self._propagator.extract({TRACEPARENT: parent})
        prefixed: dict[str, Any] = {}
        for attribute, value in attributes.items():
            prefixed[f"windhover.{attribute}"] = value
        span = self._tracer.start_span(name, context, attributes=prefixed, start_time=begin_ns)
        if error:
            span.set_status(Status(StatusCode.ERROR, error))
        # the wall clock may have been set back in between
        span.end(max(begin_ns, end_ns))

    def write_acked(
        self,
        name: str,
        topic: str,
        source: int,
        position: int,
        parent: str,
        emitted_ms: int,
        now_ms: int,
    ) -> None:
        """Write the span of an acked root, from its emission to now.

        Args:
            name: of the input.
            topic: of the record; empty: the root is a copy, and the span names no origin.
            source: of the root.
            position: of the root.
            parent: the trace context that its record carries.
            emitted_ms: wall time.
            now_ms: wall time.
        """
        attributes: dict[str, str | int] = {"input": name, "verdict": Verdict.ACKED.value}
        if topic:
            attributes["origin"] = f"{topic}/{partition_of(source)}@{offset_of(position)}"
        self.write(f"spout {name}", parent, emitted_ms * NS_PER_MS, now_ms * NS_PER_MS, attributes)


class TracedRoot(NamedTuple):
    """A root whose record carries a trace context, the `parent` of its span; emitted at a wall
    time.
    """

    parent: str
    emitted_ms: int


class TracedRoots:
    """The pending roots of a `KafkaSpout` whose records carry a trace context.

    Those that are acked get a span ``spout <input>``; the replay worker writes that of a lost one.
    """

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        # by source, then by position
        self._roots_by_source: dict[int, dict[int, TracedRoot]] = {}

    def emit(
        self,
        source: int,
        headers_by_position: Iterable[tuple[int, Headers]],
        now_ms: int,
    ) -> None:
        """Keep the trace contexts of records that were emitted, which are pending now."""
        for position, headers in headers_by_position:
            parent = traceparent_in(headers) if headers else ""
            if parent:
                root_by_position = self._roots_by_source.setdefault(source, {})
                root_by_position[position] = TracedRoot(parent, now_ms)

    def settle(self, verdicts: Verdicts, inputs: Mapping[int, Input], now_ms: int) -> None:
        """Write a span for each acked root, and forget the lost ones.

        `inputs` has the inputs by id.
        """
        for verdict, runs in verdicts.done():
            for source, start, end in runs:
                root_by_position = self._remove_roots(source, start, end)
                match verdict:
                    case Verdict.ACKED:
                        self._write_acked(source, root_by_position, inputs, now_ms)
                    case Verdict.ABSENT:
                        pass  # the log has no such record, so there is nothing to trace
                    case _:
                        assert_never(verdict)
        # the replay worker writes the spans of lost roots
        for lost in verdicts.lost:
            if not self._roots_by_source.get(lost.source):
                continue
            for position in positions(lost.positions).tolist():
                self._remove_roots(lost.source, position, position + 1)

    def _write_acked(
        self,
        source: int,
        root_by_position: Mapping[int, TracedRoot],
        inputs: Mapping[int, Input],
        now_ms: int,
    ) -> None:
        """Write the spans of acked roots of a source."""
        if not root_by_position:  # the source may be of an input that others read, not of `inputs`
            return
        source_input = inputs[input_id_of(source)]
        topic = "" if is_replay(source) else source_input.topic  # empty: the span names no origin
        for position, root in root_by_position.items():
            self._spans.write_acked(
                source_input.name, topic, source, position, root.parent, root.emitted_ms, now_ms
            )

    def _remove_roots(self, source: int, start: int, end: int) -> dict[int, TracedRoot]:
        """Remove the traced roots at [start, end) of a source, and return them by position."""
        root_by_position = self._roots_by_source.get(source)
        if not root_by_position:
            return {}
        # The positions that are in both. Only the shorter of the two is walked through: a run may
        # have a million positions, or one.
        run = range(start, end)
        if len(run) < len(root_by_position):
            traced_positions = [position for position in run if position in root_by_position]
        else:
            traced_positions = [position for position in root_by_position if position in run]
        return {position: root_by_position.pop(position) for position in traced_positions}


def lost_root_spans(spans: Spans) -> Callable[[Due, Outgoing, Input, bool, int], None]:
    """Return what a replay worker calls for each record that it has written.

    It writes two spans: from the emission to the verdict, and from there to the copy or dead
    letter.
    """

    def write(due: Due, written: Outgoing, lost_input: Input, is_copy: bool, now_ms: int) -> None:
        """Write the spans of one lost root, whose copy or dead letter is `written`."""
        parent = traceparent_in(written.headers)
        if not parent or not due.history:
            return
        # the history ends with the loss for which this copy or dead letter was written
        loss = due.history[-1]
        decided_ms = loss.emitted_ms + loss.age_ms
        attributes: dict[str, str | int] = {
            "input": lost_input.name,
            "origin": due.origin,
            "attempt": due.attempt,
            "verdict": loss.reason.value,
            "operator": loss.operator,
            "cause": loss.error,
        }
        error = loss.error or loss.reason.value
        begin_ns = loss.emitted_ms * NS_PER_MS
        decided_ns = decided_ms * NS_PER_MS
        spans.write(f"spout {lost_input.name}", parent, begin_ns, decided_ns, attributes, error)
        next_step = "replay" if is_copy else "dead letter"
        end_ns = now_ms * NS_PER_MS
        spans.write(f"{next_step} {lost_input.name}", parent, decided_ns, end_ns, attributes)

    return write
