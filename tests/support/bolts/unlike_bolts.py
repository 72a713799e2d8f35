"""A bolt that does something else at each evaluation; in a module of its own, since the workers import it."""

from __future__ import annotations

import random
import uuid

from spout.bolts.bolts import BasicBolt
from spout.bolts.collectors import BasicCollector
from spout.tuples.tuple import Tuple

ROWS_MAX = 3


class Unlike(BasicBolt):
    """Emit one to three rows of a line, as chance has it, each with the name of this evaluation.

    A line that begins with ``bad`` fails each time, one that begins with ``flaky`` every second time or so;
    both after their rows.
    """

    output = "line string, evaluation string, ordinal int, rows int"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit the rows; then fail, or not."""
        chance = random.SystemRandom()  # a worker is forked, and would share another's state
        line = tuple["value"].decode()
        rows = chance.randint(1, ROWS_MAX)
        evaluation = uuid.uuid4().hex
        for ordinal in range(rows):
            collector.emit((line, evaluation, ordinal, rows))
        if line.startswith("bad") or (line.startswith("flaky") and chance.random() < 0.5):
            raise ValueError("not this time")


class FlakyWords(BasicBolt):
    """Emit the words of a line, in capitals, always the same; fail a tenth of the evaluations after them."""

    output = "word string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit the words; then fail, or not."""
        for word in tuple["value"].decode().split():
            collector.emit((word.upper(),))
        if random.SystemRandom().random() < 0.1:
            raise ValueError("not this time")
