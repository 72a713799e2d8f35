"""A bolt that does something else at each evaluation; in a module of its own, since the workers import it."""

from __future__ import annotations

import random
import uuid

from spout.bolts.bolts import BasicBolt, Bolt
from spout.bolts.collectors import BasicCollector, OutputCollector
from spout.bolts.hooks import BoltContext
from spout.tuples.tuple import Tuple

ROWS_MAX = 3


class Unlike(Bolt):
    """Emit one to three rows of a line, as chance has it, each with the name of this evaluation.

    A line that begins with ``bad`` fails each time, one that begins with ``flaky`` every second time or so;
    both after their rows, which are there: only those of a `BasicBolt` that fails are taken back.
    """

    output = "line string, evaluation string, ordinal int, rows int"

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Keep the collector."""
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        """Emit the rows; then fail, or ack."""
        chance = random.SystemRandom()  # a worker is forked, and would share another's state
        line = tuple["value"].decode()
        rows = chance.randint(1, ROWS_MAX)
        evaluation = uuid.uuid4().hex
        for ordinal in range(rows):
            self._collector.emit((line, evaluation, ordinal, rows), anchors=tuple)
        if line.startswith("bad") or (line.startswith("flaky") and chance.random() < 0.5):
            self._collector.fail(tuple, ValueError("not this time"))
        else:
            self._collector.ack(tuple)


class FlakyWords(BasicBolt):
    """Emit the words of a line, in capitals, always the same; fail a tenth of the evaluations after them."""

    output = "word string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit the words; then fail, or not."""
        for word in tuple["value"].decode().split():
            collector.emit((word.upper(),))
        if random.SystemRandom().random() < 0.1:
            raise ValueError("not this time")
