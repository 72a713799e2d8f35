"""Each type of Spark with the values at its ends, alone and within others, and bolts that pass them on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

import spout

LEAVES: Final[Mapping[str, tuple[Any, ...]]] = {
    "boolean": (True, False),
    "tinyint": (-(1 << 7), (1 << 7) - 1),
    "smallint": (-(1 << 15), (1 << 15) - 1),
    "int": (-(1 << 31), (1 << 31) - 1),
    # no float is this last one
    "bigint": (-(1 << 63), (1 << 63) - 1, (1 << 53) + 1),
    "float": (math.nan, -0.0, math.inf, -math.inf, 1.401298464324817e-45, 3.4028234663852886e38),
    "double": (math.nan, -0.0, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, 0.1),
    "decimal(38,0)": (Decimal("9" * 38), Decimal(0)),
    "decimal(38,38)": (Decimal("0." + "9" * 38), Decimal("-1E-38")),
    "decimal(10,2)": (Decimal("1.10"), Decimal("-99999999.99")),
    "string": ("", "\x00", "a\x00b", "null", "\U0001f4a9", "e\u0301", "x" * 70_000),
    "binary": (b"", b"\x00\xff", b"text", b"\xed\xa0\x80"),
    "date": (date(1, 1, 1), date(1582, 10, 10), date(1600, 2, 29), date(9999, 12, 31)),
    "timestamp": (
        datetime(1, 1, 3, tzinfo=UTC), datetime(1582, 10, 10, tzinfo=UTC), datetime(2263, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC),
        # half past one in New York, twice
        datetime(2026, 11, 1, 5, 30, tzinfo=UTC), datetime(2026, 11, 1, 6, 30, tzinfo=UTC),
    ),
    "timestamp_ntz": (
        datetime(1, 1, 1), datetime(1582, 10, 10, 0, 0, 0, 1), datetime(2026, 3, 8, 2, 30),
        datetime(9999, 12, 31, 23, 59, 59, 999_999),
    ),
    "interval day to second": (
        timedelta(106_751_990), timedelta(-106_751_990), timedelta(microseconds=1), timedelta(-1, 0, 1),
    ),
}  # fmt: skip
"""Of each type values that Python has as well; also at both ends, and such as are often taken for others."""


def _within(kind: str, values: Sequence[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the types that have a type within, each with values; a map has no key that is NaN."""
    first, last = values[0], values[-1]
    keys = [value for value in values if value == value]
    yield f"array<{kind}>", [[*values, None], [None], [], None]
    # lists of different lengths, and a null beside them: no table of NumPy
    yield f"array<array<{kind}>>", [[[first, None], None, [], [last]], [[first], [last]]]
    yield f"array<array<array<{kind}>>>", [[[[first], [last, None]], [[first], [last]], None, []]]
    yield f"map<string,{kind}>", [{"a": first, "b": None, "": last}, {}]
    yield f"map<{kind},string>", [{keys[0]: "x"}, {keys[-1]: None}]
    yield f"struct<f:{kind},g:{kind}>", [{"f": first, "g": None}, {"f": last, "g": first}, None]
    yield f"array<struct<f:{kind}>>", [[{"f": first}, {"f": None}, None]]
    yield f"array<array<struct<f:{kind}>>>", [[[{"f": first}, {"f": last}], [None], None, []], [[None]]]
    yield f"array<array<map<string,{kind}>>>", [[[{"a": first}, {}], [{"a": None}], None]]
    yield f"struct<m:map<string,array<{kind}>>>", [{"m": {"k": [first, None]}}, {"m": {"k": None}}]


def _columns() -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {}
    for kind, values in LEAVES.items():
        columns[kind] = list(values)
        columns.update(_within(kind, values))
    return columns


COLUMNS: Final = _columns()
"""The values of each type."""

ROWS: Final = max(len(values) for values in COLUMNS.values()) + 1
"""The last one is null everywhere."""

NAMES: Final = {f"c{number}": kind for number, kind in enumerate(COLUMNS)}
OUTPUT: Final = ", ".join(["id bigint", *(f"{name} {kind}" for name, kind in NAMES.items())])


def row(number: int) -> tuple[Any, ...]:
    """Return one row: the n-th value of each type, or null where it has fewer."""
    values = (column[number] if number < len(column) else None for column in COLUMNS.values())
    return number, *values


def shown(value: Any) -> str:
    """Return a value as text, to compare it: NaN differs from itself, and 0.0 is -0.0.

    A map may be the list of its pairs, as Arrow has it.
    """
    if isinstance(value, list) and value and all(isinstance(pair, tuple) for pair in value):
        return shown(dict(value))
    if isinstance(value, list):
        return str([shown(element) for element in value])
    if isinstance(value, dict):
        return str(sorted((shown(key), shown(item)) for key, item in value.items()))
    if isinstance(value, datetime) and value.tzinfo is not None:
        return repr(value.astimezone(UTC))
    return repr(value)


class EmitsTypes(spout.BasicBolt):
    """Emits the row with the number that a record has."""

    output = OUTPUT

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit it."""
        collector.emit(row(int(tuple["value"])))


class PassesTypes(spout.BasicBolt):
    """Emits what it reads."""

    output = OUTPUT

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit it."""
        collector.emit(tuple.values[: len(NAMES) + 1])


class PassesTypesByHand(spout.Bolt):
    """The same, by hand and by the names of the fields."""

    output = OUTPUT

    def prepare(self, context: spout.BoltContext, collector: spout.OutputCollector) -> None:
        """Keep the collector."""
        self._collector = collector

    def execute(self, tuple: spout.Tuple) -> None:
        """Emit it."""
        self._collector.emit({name: tuple[name] for name in ("id", *NAMES)}, anchors=tuple)
        self._collector.ack(tuple)


class PassesTypesAsColumns(spout.ArrowBolt):
    """The same, by the column."""

    output = OUTPUT

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> None:
        """Emit them."""
        collector.emit(batch.columns[: len(NAMES) + 1], np.arange(batch.num_rows))


class PassesTypesAsNewColumns(spout.ArrowBolt):
    """The same, as columns of Python's values."""

    output = OUTPUT

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> None:
        """Emit them."""
        columns = batch.columns[: len(NAMES) + 1]
        made = [pa.array(column.to_pylist(), column.type) for column in columns]
        collector.emit(made, np.arange(batch.num_rows))


class PassesTypesByKey(spout.KeyedBolt):
    """The same, of each key when its second tuple has come: the first one has been in Spark's state."""

    output = OUTPUT

    def __init__(self, names: Sequence[str] = tuple(NAMES)) -> None:
        """`names`: the columns that it passes on, beside the number."""
        self.names = ("id", *names)
        self.output = ", ".join(["id bigint", *(f"{name} {NAMES[name]}" for name in names)])

    def execute(
        self, key: tuple[Any, ...], held: Sequence[spout.KeyedTuple], collector: spout.KeyedCollector
    ) -> None:
        """Emit them once there are two."""
        if len(held) < 2:
            return
        for received in held:
            collector.emit({name: received[name] for name in self.names}, anchors=received)
        collector.ack(*held)
