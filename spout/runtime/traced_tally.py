"""The spans of records that queries of Spark acked, as an acker writes them with its verdicts.

Apart from `spout.runtime.tracing`, which every Python worker of a query imports: this is of ackers alone.

Source: docs/operate/monitoring.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

import numpy as np

from acker.config.settings import Input
from acker.hot_paths import Hits, among
from acker.identity import input_id_of, is_replay
from acker.kafka.port import Record
from acker.ledger.tally import VerdictTally
from acker.ledger.verdicts import VerdictSet
from acker.wire.events import TRACES, traces
from spout.runtime.tracing import Spans, traceparent_of

TRACED_ROOTS_MAX: Final = 100_000
"""So many traced roots of a source may wait in an acker for their verdict; of more the oldest get no span."""


class TracedTally(VerdictTally):
    """The tally of an acker that writes a span ``spout <input>`` for each acked root with a trace context.

    The trace comes with the ack: read tasks find it, where the driver of their query writes spans, and the
    driver publishes it with what it acks. An acker that restarts has forgotten those that are still open.
    """

    def __init__(self, spans: Spans, inputs: Iterable[Input]) -> None:
        super().__init__()
        self._spans = spans
        self._names = {each.id: each.name for each in inputs}
        self._roots: dict[int, dict[int, tuple[int, ...]]] = {}

    def note(self, records: Sequence[Record]) -> None:
        super().note(records)
        for record in records:
            for name, value in record.headers:
                if name == TRACES and (found := traces(value)) is not None:
                    source, at, ids = found
                    roots = self._roots.setdefault(source, {})
                    roots.update(zip(at.tolist(), map(tuple, ids.tolist()), strict=True))
                    for position in list(islice(roots, max(0, len(roots) - TRACED_ROOTS_MAX))):
                        del roots[position]

    def add(self, settled: Sequence[VerdictSet], now_ms: int) -> None:
        super().add(settled, now_ms)
        for each in settled if self._roots else ():
            every = [*each.completed, *((emission, source, 0, at) for emission, source, at in each.copies)]
            for emission, source, start, hits in every:
                name = self._names.get(input_id_of(source), "")
                topic = "" if is_replay(source) else emission.topic
                for at, parent in self._take(source, start, hits):
                    self._spans.write_acked(name, topic, source, at, parent, emission.wall_ms, now_ms)

    def _take(self, source: int, start: int, hits: Hits) -> Iterator[tuple[int, str]]:
        """Take out the traced ones of some roots: their positions and trace contexts."""
        roots = self._roots.get(source)
        if not roots:
            return
        noted = np.fromiter(roots, np.int64, len(roots))
        if isinstance(hits, range):
            taken = noted[(noted >= start + hits.start) & (noted < start + hits.stop)]
        else:
            taken = noted[among(noted - start, hits)]
        for position in taken.tolist():
            yield position, traceparent_of(roots.pop(position))
