"""The demo's topology: sentences -> check -> split -> count, with lines that misbehave on purpose.

`CheckLine` is a rich bolt, since a line that is never acked at its first attempt is one that an ordinary
`BasicBolt` cannot express. `SplitSentence` and `CountWord` work on Arrow batches; `CountWord` stands behind a
fields grouping, so that the demo's trees have three levels and cross a shuffle.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acker.identity import position_at
from spout.bolts.bolts import ArrowBolt, BatchCollector, Bolt
from spout.bolts.hooks import BoltContext
from spout.demo.text import ALWAYS_FAILS, FAILS_TWICE, NEVER_ACKED_AT_FIRST
from spout.tuples.collector import OutputCollector, Tuple

FAILING_ATTEMPTS = 2
"""Attempts at which a line of the key `FAILS_TWICE` fails."""


class PoisonLineError(Exception):
    """The line fails whatever is done with it."""


class FlakyLineError(Exception):
    """The line fails now and will go through later."""


class CheckLine(Bolt):
    """Hand lines on with their origin; fail, or forget to ack, the lines whose key says so."""

    output = "origin long, line string"

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Keep the collector."""
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        """Emit (origin, line), anchored on the line, and ack it."""
        key, line, identity = tuple["key"], tuple["value"].decode(), tuple.message_id
        if key is None:
            self._collector.emit((origin_number(identity.origin), line), anchors=tuple)
            self._collector.ack(tuple)
            return
        attempt = identity.attempt
        if key == ALWAYS_FAILS:
            self._collector.fail(tuple, PoisonLineError("this line fails at every attempt"))
            return
        fails = key == FAILS_TWICE and attempt <= FAILING_ATTEMPTS
        if fails:
            words = line.split()
            line = " ".join(words[: len(words) // 2])  # what is emitted before the failure comes again later
        self._collector.emit((origin_number(identity.origin), line), anchors=tuple)
        if fails:
            self._collector.fail(tuple, FlakyLineError(f"this line fails at attempt {attempt}"))
        elif key != NEVER_ACKED_AT_FIRST or attempt > 1:
            self._collector.ack(tuple)


class SplitSentence(ArrowBolt):
    """Split lines into words."""

    output = "origin long, ordinal int, word string"
    fields = ("origin", "line")

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Emit (origin, ordinal, word) for every word, anchored on its line."""
        words = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(batch.column("line")))
        parents = pc.list_parent_indices(words).to_numpy(zero_copy_only=False)
        lengths = pc.list_value_length(words).to_numpy(zero_copy_only=False)
        starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
        ordinals = pa.array(np.arange(len(parents)) - starts, pa.int32())
        origins = batch.column("origin").take(pa.array(parents))
        collector.emit([origins, ordinals, pc.list_flatten(words)], parents)


class CountWord(ArrowBolt):
    """Hand every word on to the table that counts it; same word, same task."""

    output = "origin long, ordinal int, word string"
    fields = ("origin", "ordinal", "word")

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Emit each word with its identity: the table counts identities, so that a replay counts once."""
        collector.emit(batch.columns, np.arange(batch.num_rows))


def origin_number(origin: str) -> int:
    """Put partition and offset of an origin (``topic/partition@offset``) into one number."""
    place, _, offset = origin.rpartition("@")
    return position_at(int(place.rpartition("/")[2]), int(offset))
