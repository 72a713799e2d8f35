"""The spans of records that queries of Spark acked, as an acker writes them with its verdicts.

Apart from `spout.runtime.tracing`, which every Python worker of a query imports: this is of
ackers alone.

Source: docs/operate/monitoring.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

import numpy as np

from acker.config.settings import Input
from acker.hot_paths import Indices, among
from acker.identity import input_id_of, is_replay
from acker.kafka.port import Record
from acker.ledger.cohort import InitEmission
from acker.ledger.tally import VerdictTally
from acker.ledger.verdicts import VerdictSet
from acker.wire.events import TRACES, traces
from spout.runtime.tracing import Spans, traceparent_of

TRACED_ROOTS_MAX: Final = 100_000
"""Traced roots of a source that may wait in an acker for their verdict; of more the oldest get
no span."""


class TracedTally(VerdictTally):
    """The tally of an acker that writes a span ``spout <input>`` for acked roots.

    Only for those whose records carry a trace context.

    The trace comes with the ack: read tasks find it, where the driver of their query writes
    spans, and the driver publishes it with what it acks. An acker that restarts has forgotten
    those that are still open.
    """

    def __init__(self, spans: Spans, inputs: Iterable[Input]) -> None:
        """Begin without a trace; `inputs` have the names for the spans."""
        super().__init__()
        self._spans = spans
        self._name_by_input = {input.id: input.name for input in inputs}
        # by source, then by position of a root: the ids of its trace, as `traceparent_of` takes
        # them; the oldest first
        self._trace_ids_by_source: dict[int, dict[int, tuple[int, ...]]] = {}

    def record_headers(self, records: Sequence[Record]) -> None:
        """Keep the trace contexts that records of the ack topic carry.

        Besides, do what any tally does.
        """
        super().record_headers(records)
        for record in records:
            for name, value in record.headers:
                decoded = traces(value) if name == TRACES else None
                if decoded is not None:
                    source, positions, ids = decoded
                    self._keep_trace_ids(source, positions.tolist(), ids.tolist())

    def _keep_trace_ids(
        self,
        source: int,
        positions: Sequence[int],
        ids: Sequence[Sequence[int]],
    ) -> None:
        """Keep the ids of the traces of a source's roots.

        Of more than `TRACED_ROOTS_MAX` forget the oldest.

        Args:
            source: of the roots.
            positions: of the roots.
            ids: of each root's trace, as `traceparent_of` takes them.
        """
        trace_ids_by_position = self._trace_ids_by_source.setdefault(source, {})
        trace_ids_by_position.update(zip(positions, map(tuple, ids), strict=True))
        surplus = max(0, len(trace_ids_by_position) - TRACED_ROOTS_MAX)
        oldest_positions = list(islice(trace_ids_by_position, surplus))
        for position in oldest_positions:
            del trace_ids_by_position[position]

    def add(self, settled: Sequence[VerdictSet], now_ms: int) -> None:
        """Write the spans of acked roots, besides what any tally does."""
        super().add(settled, now_ms)
        if not self._trace_ids_by_source:
            return
        for verdicts in settled:
            for emission, source, start, indices in verdicts.acked_roots:
                self._write_spans(emission, source, start, indices, now_ms)
            for emission, source, positions in verdicts.acked_copies:
                # of copies the positions themselves are listed, so they are counted from 0
                self._write_spans(emission, source, 0, positions, now_ms)

    def _write_spans(
        self,
        emission: InitEmission,
        source: int,
        start: int,
        indices: Indices,
        now_ms: int,
    ) -> None:
        """Write a span for each root of an emission that is acked now and has a trace context.

        `indices` names the acked roots: their positions less `start`, as ascending numbers or as a
        range of them.
        """
        name = self._name_by_input.get(input_id_of(source), "")
        topic = "" if is_replay(source) else emission.topic  # empty: the span names no origin
        for position, parent in self._take_traces(source, start, indices).items():
            self._spans.write_acked(name, topic, source, position, parent, emission.wall_ms, now_ms)

    def _take_traces(self, source: int, start: int, indices: Indices) -> dict[int, str]:
        """Remove the traces of acked roots; return the trace context of each by position.

        `start` and `indices` are as for `_write_spans`. Roots without a trace are left out.
        """
        trace_ids_by_position = self._trace_ids_by_source.get(source)
        if not trace_ids_by_position:
            return {}
        traced_positions = np.fromiter(trace_ids_by_position, np.int64, len(trace_ids_by_position))
        traced_numbers = traced_positions - start
        if isinstance(indices, range):
            is_acked = (traced_numbers >= indices.start) & (traced_numbers < indices.stop)
        else:
            is_acked = among(traced_numbers, indices)
        parent_by_position: dict[int, str] = {}
        for position in traced_positions[is_acked].tolist():
            parent_by_position[position] = traceparent_of(trace_ids_by_position.pop(position))
        return parent_by_position
