"""The topology that is tortured: split -> keep, two bolts with a shuffle between them.

As the demo's, and each row says which attempt wrote it, so that what was written twice can be told by cause.
"""

from __future__ import annotations

from spout.bolts.bolts import BasicBolt, Bolt
from spout.bolts.collectors import BasicCollector, OutputCollector
from spout.bolts.hooks import BoltContext
from spout.demo.words import (
    ALWAYS_FAILS,
    FAILING_ATTEMPTS,
    FAILS_TWICE,
    NEVER_ACKED_AT_FIRST,
    FlakyLineError,
    PoisonLineError,
)
from spout.tuples.tuple import Tuple

ROW = "origin string, ordinal int, attempt int, word string"
"""A word, by its identity (origin of the record, place in it) and by who wrote it."""


class Split(Bolt):
    """Split a record into words; fail, or forget to ack, the records whose key says so."""

    output = ROW

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Keep the collector."""
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        """Emit a row for every word, anchored on the record, and ack it; of one that fails only half."""
        key, origin, attempt = tuple["key"], tuple.message_id.origin, tuple.message_id.attempt
        fails = key == ALWAYS_FAILS or (key == FAILS_TWICE and attempt <= FAILING_ATTEMPTS)
        words = tuple["value"].decode().split()
        for ordinal, word in enumerate(words[: len(words) // 2] if fails else words):
            self._collector.emit((origin, ordinal, attempt, word), anchors=tuple)
        if fails:
            error = PoisonLineError if key == ALWAYS_FAILS else FlakyLineError
            self._collector.fail(tuple, error(f"this record fails at attempt {attempt}"))
        elif key != NEVER_ACKED_AT_FIRST or attempt > 1:
            self._collector.ack(tuple)


class Keep(BasicBolt):
    """Hand every row on to the table; same word, same task."""

    output = ROW

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit the row as it is."""
        collector.emit((tuple["origin"], tuple["ordinal"], tuple["attempt"], tuple["word"]))
