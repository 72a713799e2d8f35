"""Bolts that note how odd records look at each attempt, and fail them but for the last one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa

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
