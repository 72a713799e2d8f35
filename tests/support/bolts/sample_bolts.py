"""Bolts of the tests; in a module of their own, since the workers import them by its name."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

import spout
from spout.bolts.bolts import ArrowBolt, BasicBolt, BatchCollector, Bolt
from spout.bolts.collectors import BasicCollector, OutputCollector
from spout.bolts.hooks import AckInfo, BoltContext, EmitInfo, ExecuteInfo, FailInfo, TaskHook
from spout.tuples.tuple import Tuple


def place_in(bolt: type, line: str) -> str:
    """Return file and line of a statement in a bolt of the samples."""
    lines, first = inspect.getsourcelines(bolt)
    return f"sample_bolts.py:{next(n for n, each in enumerate(lines, first) if each.strip() == line)}"


class Split(BasicBolt):
    """Split a line; the word ``bad`` fails it."""

    output = "word string, origin string, ordinal int"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit each word with its identity."""
        for ordinal, word in enumerate(tuple["value"].decode().split()):
            if word == "bad":
                raise ValueError("a bad word")
            collector.emit((word, tuple.message_id.origin, ordinal))


class Upper(ArrowBolt):
    """Make words big, whole batches at once."""

    output = "word string, origin string, ordinal int"

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Emit a word in capitals for each word; ``worse`` fails."""
        rows = pa.array(range(batch.num_rows))
        collector.emit([pc.utf8_upper(batch.column("word")), batch.column(1), batch.column(2)], rows)
        for row in pc.indices_nonzero(pc.equal(batch.column("word"), "worse")).to_pylist():
            collector.fail(row, "a worse word")


class Pairs(Bolt):
    """Split a line by hand; a line with ``forget`` is not acked."""

    output = "word string, origin string, ordinal int"

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Keep the collector."""
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        """Emit each word anchored on the line, then ack it."""
        words = tuple["value"].decode().split()
        for ordinal, word in enumerate(words):
            self._collector.emit((word, tuple.message_id.origin, ordinal), anchors=tuple)
        if "forget" not in words:
            self._collector.ack(tuple)


class Count(Bolt):
    """Count the words of a task; ``lost`` is neither acked nor failed, ``worst`` is failed."""

    output = "word string, count int"

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Begin with no words."""
        self._collector = collector
        self._held: dict[str, list[Tuple]] = {}

    def execute(self, tuple: Tuple) -> None:
        """Keep the word, or fail or forget it."""
        if tuple["word"] == "worst":
            self._collector.fail(tuple, "the worst word")
        elif tuple["word"] != "lost":
            self._held.setdefault(tuple["word"], []).append(tuple)

    def cleanup(self) -> None:
        """Emit one count for each word, anchored on all its tuples, and ack them."""
        for word, held in self._held.items():
            self._collector.emit((word, len(held)), anchors=held)
            for each in held:
                self._collector.ack(each)


class NoOrigin(BasicBolt):
    """Split a line that has no origin."""

    output = "word string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit each word; ``bad`` fails."""
        for word in tuple["value"].decode().split():
            if word == "bad":
                raise ValueError("a bad word")
            collector.emit((word,))


class Keep(BasicBolt):
    """Hand words on; ``worse`` fails."""

    output = "word string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit the word."""
        if tuple["word"] == "worse":
            raise spout.FailTuple("a worse word")
        collector.emit((tuple["word"],))


class Address(BasicBolt):
    """Works on the result of a window; pages called ``bad`` have no address."""

    output = "page string, clicks bigint"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit the row, or fail the tuples that went into it."""
        if tuple["page"] == "bad":
            raise KeyError("no address")
        collector.emit((tuple["page"], tuple["clicks"]))


class Pays(BasicBolt):
    """Works on purchases and payments; ``unpaid`` ones fail alone, ``flaky`` ones until they come again."""

    output = "bought string, paid string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit the row, or fail the tuples that went into it."""
        name = tuple["bought"] or tuple["paid"]
        if name.startswith("unpaid") and tuple["paid"] is None:
            raise spout.FailTuple("a purchase without a payment")
        if name.startswith("flaky") and not tuple["copies"]:
            raise ValueError("not yet")
        collector.emit((tuple["bought"], tuple["paid"]))


class Timed(BasicBolt):
    """Reads times."""

    output = "at timestamp"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit the time of a text, in UTC."""
        collector.emit((datetime.fromisoformat(tuple["text"]).replace(tzinfo=UTC),))


class Seen(TaskHook):
    """Writes to a file what it sees, in whatever process it works."""

    def __init__(self, path: str) -> None:
        """Append to this file."""
        self._path = path

    def emit(self, info: EmitInfo) -> None:
        """Write a word for it."""
        self._write("emit")

    def execute(self, info: ExecuteInfo) -> None:
        """Write a word for it."""
        self._write("execute")

    def ack(self, info: AckInfo) -> None:
        """Write a word for it."""
        self._write("ack")

    def fail(self, info: FailInfo) -> None:
        """Write what failed it too."""
        self._write(f"fail:{info.cause.error}")

    def _write(self, word: str) -> None:
        with open(self._path, "a") as file:
            file.write(f"{word}\n")


class FailsTwice(BasicBolt):
    """Fails a record named "bad" twice, and one named "worse" for ever."""

    output = "key string, partition int, origin bigint, attempt int"

    def execute(self, received: Tuple, collector: BasicCollector) -> None:
        """Emit where it comes from."""
        name = received["value"].decode()
        place = received.message_id.origin
        if name == "worse" or (name == "bad" and received.message_id.attempt <= 2):
            raise ValueError(name)
        partition, offset = place.rpartition("/")[2].split("@")
        collector.emit((received["key"].decode(), int(partition), int(offset), received.message_id.attempt))


class OnceBad(spout.BasicBolt):
    """Fails ``late`` at its first attempt, and gives ``never`` up."""

    output = "line string"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit the line."""
        line = tuple["value"].decode()
        if line == "never":
            raise spout.RejectTuple("never")
        if line == "late" and tuple.message_id.attempt == 1:
            raise ValueError("not yet")
        collector.emit((line,))
