"""Bolts of the topology tests; in a module of their own, since the workers import them by its name."""

from __future__ import annotations

from spout.bolts.bolts import BasicBolt, Bolt, OutputDeclarer
from spout.bolts.collectors import BasicCollector, OutputCollector
from spout.bolts.hooks import BoltContext
from spout.tuples.tuple import Tuple


class Sort(BasicBolt):
    """Sorts words: short ones, long ones to a task by their length, and bad lines as a whole."""

    def declare(self, declarer: OutputDeclarer) -> None:
        """Declare three streams."""
        declarer.declare("word string")
        declarer.declare("word string, length int", stream="long", direct=True)
        declarer.declare("line string", stream="bad")

    def prepare(self, context: BoltContext) -> None:
        """Learn how many tasks there are for long words."""
        self._tasks = context.tasks["measure"]

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit each word on its stream."""
        line = tuple["value"].decode()
        if line.startswith("bad"):
            collector.report_error(f"bad line {line!r}")
            collector.emit((line,), stream="bad")
            return
        for word in line.split():
            if len(word) > 3:
                collector.emit_direct(len(word) % self._tasks, (word, len(word)), stream="long")
            else:
                collector.emit((word,))


class Measure(BasicBolt):
    """Hands a long word on with the task that measured it."""

    output = "word string, task int"

    def prepare(self, context: BoltContext) -> None:
        """Know its own task."""
        self._task = context.partition

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit the word; ``broken`` fails."""
        if tuple["word"] == "broken":
            raise ValueError("cannot be measured")
        collector.emit((tuple["word"], self._task))


class Gather(Bolt):
    """Gathers from several components; forgets the word ``lost``."""

    output = "word string, source string, task int"

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Keep both."""
        self._context = context
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        """Emit the word with where it came from, and ack it."""
        row = (tuple[0], f"{tuple.source_component}/{tuple.source_stream}", self._context.partition)
        self._collector.emit(row, anchors=tuple)
        if tuple[0] != "lost":
            self._collector.ack(tuple)


class Pass(BasicBolt):
    """Hands lines on."""

    output = "line string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit the line."""
        collector.emit((tuple["value"].decode(),))
