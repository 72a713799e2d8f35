"""Bolts that kill or hang their worker; in a module of their own, since workers import them by its name."""

from __future__ import annotations

import ctypes
import os
import threading
import traceback

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from spout.bolts.bolts import ArrowBolt, BasicBolt, BatchCollector, Bolt
from spout.bolts.collectors import BasicCollector, OutputCollector
from spout.bolts.hooks import BoltContext
from spout.tuples.tuple import Tuple


def act(line: str) -> None:
    """Do to the process what a line requests."""
    if line == "exit":
        os._exit(3)
    if line == "crash":
        ctypes.string_at(0)
    if line == "hang":
        threading.Event().wait()
    if line == "slow":
        threading.Event().wait(0.5)


def text(value: bytes | str) -> str:
    """Return a line as text."""
    return value.decode() if isinstance(value, bytes) else value


class Decode(BasicBolt):
    """Hands lines on as text."""

    output = "value string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit the line."""
        collector.emit((tuple["value"].decode(),))


class Poisoned(BasicBolt):
    """Acts as each line requests."""

    output = "value string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit the line, then act; a slow line reports how often its task was tried before."""
        line = text(tuple["value"])
        context = TaskContext.get()
        if line == "slow" and context is not None:
            collector.emit((f"slow in attempt {context.attemptNumber()}",))
        else:
            collector.emit((line,))
        act(line)


class WhereAmI(BasicBolt):
    """Tells whether it works in a child of the worker."""

    output = "value string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Add to the line where this is."""
        guarded = any(frame.filename.endswith("guards.py") for frame in traceback.extract_stack())
        collector.emit((f"{text(tuple['value'])} {'child' if guarded else 'worker'}",))


class HangsTogether(ArrowBolt):
    """Hangs when it is called for many rows at once, as by a lock that two of them need; few rows pass."""

    output = "value string"

    def __init__(self, rows_max: int) -> None:
        self.rows_max = rows_max

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Emit the lines, if they are few."""
        if batch.num_rows > self.rows_max:
            act("hang")
        lines = [text(value) for value in batch.column("value").to_pylist()]
        collector.emit([pa.array(lines, pa.string())], np.arange(len(lines)))


class HangsOnce(BasicBolt):
    """Hangs at one line, the first time that it comes to any worker."""

    output = "value string"

    def __init__(self, at: str, mark: str) -> None:
        """Hang at the line `at`; the file `mark` says that this was done."""
        self.at, self.mark = at, mark

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Hang, or emit the line."""
        line = text(tuple["value"])
        if line == self.at and not os.path.exists(self.mark):
            with open(self.mark, "w", encoding="utf-8"):
                act("hang")
        collector.emit((line,))


class PoisonedBatch(ArrowBolt):
    """Acts as the lines request, whole batches at once."""

    output = "value string"

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Act for all, then emit them."""
        lines = [text(value) for value in batch.column("value").to_pylist()]
        for line in lines:
            act(line)
        collector.emit([pa.array(lines, pa.string())], np.arange(len(lines)))


class PoisonedRich(Bolt):
    """Acts as the lines request, and keeps all others to the end of the task."""

    output = "value string"

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Begin with nothing."""
        self._collector = collector
        self._held: list[Tuple] = []

    def execute(self, tuple: Tuple) -> None:
        """Act, then hold the line."""
        act(tuple["value"])
        self._held.append(tuple)

    def cleanup(self) -> None:
        """Emit and ack what was kept."""
        for each in self._held:
            self._collector.emit((each["value"],), anchors=each)
            self._collector.ack(each)
