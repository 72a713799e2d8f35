"""The bolts of a torture that writes exactly once: at each evaluation they do something else.

As `tests.torture.stage.topology`, two bolts with a shuffle between them. The first one draws how many rows a
record has, gives each evaluation a name, and fails a tenth of all at random.
"""

from __future__ import annotations

import random
import uuid
from typing import Final

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
from tests.torture.exact.rows import COLUMNS, ROWS_MAX
from tests.torture.workload import UnluckyLineError

ROW: Final = "origin string, attempt int, evaluation string, ordinal int, rows int"
"""Types of `COLUMNS`."""

UNLUCKY_SHARE: Final = 0.1
"""Of all evaluations this share fails, whatever the record."""


class UnlikeSplit(Bolt):
    """Make rows of a record, as chance has it; then ack it, fail it, or leave it open."""

    output = ROW

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Keep the collector."""
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        """Emit the rows, anchored on the record, before anything is decided about it."""
        chance = random.SystemRandom()  # a worker is forked, and would share another's state
        tuple["value"].decode()  # an odd record may have no text: this raises then, each time
        key, origin, attempt = tuple["key"], tuple.message_id.origin, tuple.message_id.attempt
        evaluation = uuid.uuid4().hex
        rows = chance.randint(1, ROWS_MAX)
        for ordinal in range(rows):
            self._collector.emit((origin, attempt, evaluation, ordinal, rows), anchors=tuple)
        if key == ALWAYS_FAILS:
            self._collector.fail(tuple, PoisonLineError("this record fails always"))
        elif key == FAILS_TWICE and attempt <= FAILING_ATTEMPTS:
            self._collector.fail(tuple, FlakyLineError(f"this record fails at attempt {attempt}"))
        elif chance.random() < UNLUCKY_SHARE:
            self._collector.fail(tuple, UnluckyLineError("not this time"))
        elif key != NEVER_ACKED_AT_FIRST or attempt > 1:
            self._collector.ack(tuple)


class UnlikeKeep(BasicBolt):
    """Hand every row on to the store; same place in its evaluation, same task."""

    output = ROW

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit the row as it is."""
        collector.emit([tuple[column] for column in COLUMNS])
