"""Bolts that pass values on, or emit values that their fields may not hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

import spout

TIMED = (
    "at timestamp, times array<timestamp>, named struct<at: timestamp>, by map<string, timestamp>,"
    " ntz timestamp_ntz"
)


def wall(value: Any) -> str:
    """Return what a clock on the wall shows of a time, whatever its zone."""
    return str(value.replace(tzinfo=None)) if value is not None else ""


class PassesByRow(spout.BasicBolt):
    """Emits what it reads, and what the clock on the wall shows of a time."""

    output = f"{TIMED}, wall string"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit it."""
        collector.emit((*tuple.values[:5], wall(tuple["at"])))


class PassesByHand(spout.Bolt):
    """The same, by hand."""

    output = f"{TIMED}, wall string"

    def prepare(self, context: spout.BoltContext, collector: spout.OutputCollector) -> None:
        """Keep the collector."""
        self._collector = collector

    def execute(self, tuple: spout.Tuple) -> None:
        """Emit it."""
        self._collector.emit((*tuple.values[:5], wall(tuple["at"])), anchors=tuple)
        self._collector.ack(tuple)


class PassesColumns(spout.ArrowBolt):
    """The same, by the column."""

    output = f"{TIMED}, wall string"

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> None:
        """Emit them."""
        walls = pa.array([wall(value) for value in batch.column("at").to_pylist()])
        collector.emit([*batch.columns[:5], walls], np.arange(batch.num_rows))


class Localizes(spout.BasicBolt):
    """Emits times without a zone, written as text, in each place that a field has for one."""

    output = TIMED

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit it."""
        from datetime import datetime

        at = datetime.fromisoformat(tuple["text"]).replace(fold=tuple["fold"])
        collector.emit((at, [at], {"at": at}, {"k": at}, at))


class LocalizesColumns(spout.ArrowBolt):
    """The same, by the column."""

    output = TIMED

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> None:
        """Emit them."""
        at = pa.array([text.as_py() for text in batch.column("text")]).cast(pa.timestamp("us"))
        ends = pa.array(range(len(at) + 1), pa.int32())
        by = pa.MapArray.from_arrays(ends, pa.array(["k"] * len(at)), at)
        lists, named = pa.ListArray.from_arrays(ends, at), pa.StructArray.from_arrays([at], ["at"])
        collector.emit([at, lists, named, by, at], np.arange(len(at)))


class Times(spout.BasicBolt):
    """Emits the time of a record as it reads it, and its own text of it."""

    output = "line string, at timestamp, wall string, half int"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit it; ``half`` is no whole number."""
        line = tuple["value"].decode()
        collector.emit((line, tuple["timestamp"], wall(tuple["timestamp"]), 1.5 if "half" in line else 1.0))


class Forwards(spout.BasicBolt):
    """Emits what it gets, behind a shuffle."""

    output = "line string, at timestamp, wall string, half int"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit it."""
        collector.emit((tuple["line"], tuple["at"], wall(tuple["at"]), tuple["half"]))


class HoldsTimes(spout.KeyedBolt):
    """Emits each tuple as it reads it when the next one of its key comes; ``half`` emits no whole number."""

    output = "line string, at timestamp, wall string, half int, key timestamp not null, ratio double"

    def execute(
        self,
        key: tuple[Any, ...],
        held: Sequence[spout.KeyedTuple],
        collector: spout.KeyedCollector,
    ) -> None:
        """Emit them once there are two."""
        if len(held) < 2:
            return
        for each in held:
            half = 1.5 if "half" in each["line"] else 1.0
            found = each["at"] if isinstance(key[0], str) else key[0]
            time = None if "null" in each["line"] else found
            row = (each["line"], each["at"], wall(each["at"]), half, time, float("nan"))
            collector.emit(row, anchors=each)
        collector.ack(*held)


class PassesKeyed(spout.KeyedBolt):
    """Emits what it reads."""

    output = (
        "id bigint, line string, day date, local timestamp_ntz, at timestamp, ratios array<double>,"
        " lines array<string>, by map<string, date>, named struct<line: string>"
    )

    def execute(
        self, key: tuple[Any, ...], held: Sequence[spout.KeyedTuple], collector: spout.KeyedCollector
    ) -> None:
        """Emit it."""
        for each in held:
            collector.emit(each.values, anchors=each)
        collector.ack(*held)


class Whole(spout.BasicBolt):
    """Emits a line; ``null`` is none, ``in`` has a null within."""

    output: ClassVar[str] = (
        "line string not null, named struct<n: int not null> not null,"
        " `a ``b` array<struct<`c d`: int not null>>"
    )

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit it."""
        line = tuple["value"].decode()
        number = None if line == "in" else 7
        collector.emit((None if line == "null" else line, {"n": number}, [{"c d": 7}]))


class WholeColumns(spout.ArrowBolt):
    """The same, by the column."""

    output = Whole.output

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> None:
        """Emit them."""
        lines = [line.decode() for line in batch.column("value").to_pylist()]
        collector.emit(
            [
                pa.array([None if line == "null" else line for line in lines], pa.string()),
                pa.array([{"n": None if line == "in" else 7} for line in lines]),
                pa.array([[{"c d": 7}] for _ in lines]),
            ],
            np.arange(len(lines)),
        )


class PassesWhole(spout.BasicBolt):
    """Emits what it gets of such a line."""

    output = Whole.output

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit it."""
        collector.emit(tuple.values)
