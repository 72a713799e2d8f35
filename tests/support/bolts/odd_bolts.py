"""Bolts over odd records: some note how these look at each attempt, others fail a share of them."""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import spout

ATTEMPTS = 3


def note(path: str, *seen: object) -> None:
    """Append a line to a file; the executors run on this machine."""
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(json.dumps(seen) + "\n")


def text_pairs(headers: pa.Scalar) -> list[tuple[str, str | None]]:
    """Return the value of a column of headers as pairs."""
    pairs = ((pair["key"], pair["value"]) for pair in headers.as_py())
    return [(name, None if value is None else value.decode()) for name, value in pairs]


class Rows(spout.BasicBolt):
    """Notes how a record looks as a tuple, and fails it but for the last attempt."""

    output = "value string"

    def __init__(self, path: str) -> None:
        self.path = path

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Note value, attempt, time or the error of reading it, its type, and the headers."""
        try:
            time = tuple["timestamp"].isoformat()
        except ValueError as error:
            time = str(error)
        headers = [(name, value and value.decode()) for name, value in tuple["headers"]]
        value, attempt = tuple["value"].decode(), tuple.message_id.attempt
        note(self.path, value, attempt, time, tuple["timestampType"], headers)
        if attempt < ATTEMPTS:
            raise spout.FailTuple("not yet")
        collector.emit((value,))


class Columns(spout.ArrowBolt):
    """The same by the columns; the attempt is in what Windhover wrote on a copy."""

    output = "value string"
    fields = ("value", "timestamp", "timestampType", "headers", "windhover")

    def __init__(self, path: str) -> None:
        self.path = path

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> None:
        """Note value, attempt, time in microseconds, its type, and the headers."""
        micros = batch.column("timestamp").cast(pa.int64())
        kept: list[int] = []
        for row in range(batch.num_rows):
            value, kind = (batch.column(name)[row].as_py() for name in ("value", "timestampType"))
            headers, ours = (
                [
                    (pair["key"], pair["value"] and pair["value"].decode())
                    for pair in batch.column(name)[row].as_py()
                ]
                for name in ("headers", "windhover")
            )
            attempt = int(dict(ours).get("windhover.attempt", "1"))
            note(self.path, value.decode(), attempt, micros[row].as_py(), kind, headers)
            if attempt < ATTEMPTS:
                collector.fail(row, ValueError("not yet"))
            else:
                kept.append(row)
        values = pa.array([batch.column("value")[row].as_py().decode() for row in kept], pa.string())
        collector.emit([values], np.array(kept, np.int64))


FORMS = ("row", "hand", "columns")
"""The bolts of a query over odd records, in their order, by the form that each has."""

LAST_ATTEMPT = 2
NO_TIME = "no time of Python's"
POISON = b"ends its process"
"""A value at which the worker ends."""


def fails_at(origin: str, attempt: int) -> str:
    """Return which bolt fails an attempt of a record: one of `FORMS`, or none.

    Of 24 records each bolt fails one at its first attempt, and one always.
    """
    place = origin.rpartition("/")[2]  # without its topic, whose name differs from test to test
    number = zlib.crc32(place.encode()) % 24
    is_first = number < len(FORMS) and attempt == 1
    is_always = len(FORMS) <= number < 2 * len(FORMS)
    return FORMS[number % len(FORMS)] if is_first or is_always else ""


def seen_of(key: bytes | None, headers: Iterable[tuple[str, bytes | None]]) -> str:
    """Return a text that two records share only if they have the same key and headers."""
    pairs = [(name, value) for name, value in headers]
    return hashlib.sha1(repr((key, pairs)).encode("utf-8", "surrogatepass")).hexdigest()


class ReadsRows(spout.BasicBolt):
    """Says what it sees of a record; ends its process for `POISON`."""

    output = "origin string, attempt int, seen string, time string, value binary"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit it, or fail."""
        origin, attempt = tuple.message_id.origin, tuple.message_id.attempt
        if tuple["value"] == POISON:
            os._exit(3)
        if fails_at(origin, attempt) == "row":
            raise ValueError("the row is refused")
        try:
            time = tuple["timestamp"].isoformat()
        except ValueError:
            time = NO_TIME
        seen = seen_of(tuple["key"], tuple["headers"])
        collector.emit((origin, attempt, seen, time, tuple["value"]))


class HandsOn(spout.Bolt):
    """Hands it on by hand."""

    output = ReadsRows.output

    def prepare(self, context: spout.BoltContext, collector: spout.OutputCollector) -> None:
        """Keep the collector."""
        self.collector = collector

    def execute(self, tuple: spout.Tuple) -> None:
        """Emit and ack it, or fail it."""
        if fails_at(tuple["origin"], tuple["attempt"]) == "hand":
            self.collector.fail(tuple, KeyError(tuple["value"]))
        else:
            self.collector.emit(tuple.values, anchors=tuple)
            self.collector.ack(tuple)


class HandsColumnsOn(spout.ArrowBolt):
    """Hands the columns on."""

    output = ReadsRows.output

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> None:
        """Emit all rows but those that fail."""
        kept: list[int] = []
        rows = zip(batch.column("origin").to_pylist(), batch.column("attempt").to_pylist(), strict=True)
        for row, (origin, attempt) in enumerate(rows):
            if fails_at(origin, attempt) == "columns":
                collector.fail(row, TypeError(origin))
            else:
                kept.append(row)
        collector.emit(batch.take(pa.array(kept, pa.int64())).columns, np.array(kept, np.int64))


class HoldsByKey(spout.KeyedBolt):
    """Emits what its key holds; a share of the records fails, once or always."""

    output = "origin string, attempt int, seen string, value binary"

    def execute(
        self, key: tuple[Any, ...], held: Sequence[spout.KeyedTuple], collector: spout.KeyedCollector
    ) -> None:
        """Ack or fail each tuple."""
        for held_tuple in held:
            attempt = held_tuple["attempt"]
            if held_tuple["key"] != key[0]:
                raise ValueError("it is not of this key")
            if fails_at(held_tuple["origin"], attempt):
                collector.fail(held_tuple, "held, and refused")
                continue
            row = [held_tuple[name] for name in ("origin", "attempt", "seen", "value")]
            collector.emit(row, anchors=held_tuple)
            collector.ack(held_tuple)


class ReadsKeys(ReadsRows):
    """The same with the key, for a keyed bolt behind it; it fails nothing itself."""

    output = "origin string, attempt int, seen string, key binary, value binary"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit it."""
        seen = seen_of(tuple["key"], tuple["headers"])
        message_id = tuple.message_id
        collector.emit((message_id.origin, message_id.attempt, seen, tuple["key"], tuple["value"]))


class Traces(spout.TraceHook):
    """Traces in a worker, where nobody else sets up a provider."""

    def prepare(self, context: spout.BoltContext) -> None:
        """Set one up, which keeps nothing."""
        if not isinstance(trace.get_tracer_provider(), TracerProvider):
            trace.set_tracer_provider(TracerProvider())
        super().prepare(context)
