"""The demo's topology: sentences -> split -> count, with lines that misbehave on purpose.

`SplitSentence` is a rich bolt, since a line that is never acked at its first attempt is one that an
ordinary `BasicBolt` cannot express. `CountWord` stands behind a fields grouping, so that the demo's
trees have two levels and cross a shuffle.
"""

from __future__ import annotations

from spout.bolts import BasicBolt, Bolt, BoltContext
from spout.collector import BasicCollector, OutputCollector, Tuple
from spout.demo.text import ALWAYS_FAILS, FAILS_TWICE, NEVER_ACKED_AT_FIRST

FAILING_ATTEMPTS = 2
"""Attempts at which a line of the key `FAILS_TWICE` fails."""


class PoisonLineError(Exception):
    """The line fails whatever is done with it."""


class FlakyLineError(Exception):
    """The line fails now and will go through later."""


class SplitSentence(Bolt):
    """Split a line into words; fail, or forget to ack, the lines whose key says so."""

    output = "origin string, ordinal int, word string"

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Keep the collector."""
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        """Emit (origin, ordinal, word) for every word, anchored on the line, and ack the line."""
        key, attempt = tuple["key"], tuple.message_id.attempt
        if key == ALWAYS_FAILS:
            self._collector.fail(tuple, PoisonLineError("this line fails at every attempt"))
            return
        fails = key == FAILS_TWICE and attempt <= FAILING_ATTEMPTS
        words = tuple["value"].decode().split()
        if fails:
            words = words[: len(words) // 2]  # what is emitted before the failure is written again later
        for ordinal, word in enumerate(words):
            self._collector.emit((tuple.message_id.origin, ordinal, word), anchors=tuple)
        if fails:
            self._collector.fail(tuple, FlakyLineError(f"this line fails at attempt {attempt}"))
        elif key != NEVER_ACKED_AT_FIRST or attempt > 1:
            self._collector.ack(tuple)


class CountWord(BasicBolt):
    """Hand every word on to the table that counts it; same word, same task."""

    output = "origin string, ordinal int, word string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit the word with its identity: the table counts identities, so that a replay counts once."""
        collector.emit((tuple["origin"], tuple["ordinal"], tuple["word"]))
