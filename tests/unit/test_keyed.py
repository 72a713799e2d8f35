"""A bolt that holds tuples of a key, over a state like Spark's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from acker.errors import TupleError, UsageError
from spout.bolts import BasicBolt, BatchCollector
from spout.collector import Cause
from spout.keyed_bolt import KeyedBolt, KeyedCollector, KeyedTuple
from spout.keyed_rows import SAID, Field, KeyedTask, columns_of, keyed, unwrap
from spout.options import ANCHOR


class FakeState:
    """What Spark hands in for one key."""

    def __init__(self) -> None:
        self.kept: tuple[Any, ...] | None = None
        self.hasTimedOut = False
        self.timeout_ms = 0

    @property
    def exists(self) -> bool:
        """Tell whether something is kept."""
        return self.kept is not None

    @property
    def get(self) -> tuple[Any, ...]:
        """Return it."""
        if self.kept is None:
            raise ValueError("nothing is kept")
        return self.kept

    def update(self, kept: tuple[Any, ...]) -> None:
        """Keep something."""
        self.kept = kept

    def remove(self) -> None:
        """Keep nothing."""
        self.kept = None

    def setTimeoutDuration(self, timeout_ms: int) -> None:  # noqa: N802 - Spark's name
        """Ask for a tick."""
        self.timeout_ms = timeout_ms


class Pairs(KeyedBolt):
    """Emits two at a time; fails ``bad``, breaks on ``worse``."""

    output = "both string"
    tick_ms = 500

    def execute(self, key: tuple[Any, ...], held: Sequence[KeyedTuple], collector: KeyedCollector) -> None:
        """Hold a single one."""
        if any(each["n"] == "worse" for each in held):
            collector.ack(held[0])
            raise ValueError("worse")
        for each in [each for each in held if each["n"] == "bad"]:
            collector.fail(each, "bad")
        if len(collector.held) == 2:
            collector.emit(("".join(each["n"] for each in held if each["n"] != "bad"),))
            collector.ack(*tuple(collector.held))


class Key:
    """One key at work, batch for batch."""

    def __init__(self) -> None:
        self.state = FakeState()
        self.task = KeyedTask("pairs", Pairs(), (Field.of("both", StringType()),))

    def get(self, *values: str, ticks: bool = False, tracked: bool = True) -> list[tuple[Any, ...]]:
        """Let tuples come, or a tick; return the rows: value, what is said, and offsets that are carried."""
        self.state.hasTimedOut = ticks
        anchors = [{"source": 1, "position": ord(n[0]), "edge": 7} if tracked else None for n in values]
        part = pd.DataFrame({"n": list(values), ANCHOR: anchors})
        frames = self.task(("k",), [] if ticks else [part], self.state)  # type: ignore[arg-type]
        return [
            (row["both"], row[SAID], "".join(chr(each["position"]) for each in row[ANCHOR]))
            for frame in frames
            for row in frame.to_dict("records")
        ]


def test_what_is_neither_acked_nor_failed_is_held_until_later() -> None:
    """S31, S81."""
    key = Key()
    assert key.get("a") == []
    assert key.get("c") == [("ac", None, ""), (None, "", "ac")]
    assert not key.state.exists


def test_a_tick_flushes_what_a_quiet_key_holds() -> None:
    key = Key()
    key.get("a")
    assert key.state.timeout_ms == 500
    assert key.get(ticks=True) == [(None, "", "a")]
    assert not key.state.exists


def test_one_tuple_fails_alone_and_an_exception_fails_all_that_the_key_holds() -> None:
    """S83, S84."""
    key = Key()
    assert key.get("a", "bad") == [(None, json.dumps(Cause("pairs", "", "bad")), "b")]
    assert key.get("worse") == [(None, json.dumps(Cause("pairs", "ValueError", "worse")), "aw")]
    assert not key.state.exists


def test_a_cause_keeps_its_class_on_the_way_to_the_bolt_that_fails_the_row() -> None:
    """A rule for exceptions fits it as it fits any bolt's."""
    cause = Cause("pairs", "Undecodable(RejectTuple, FailTuple)", "no text")
    said = pa.array([None, "", json.dumps(cause)])
    collector = BatchCollector("pairs", 3)
    batch = pa.RecordBatch.from_arrays([pa.array(["x", None, None]), said], names=["pair", SAID])
    unwrap("pair string").execute(batch, collector)
    assert collector.failures == [(2, cause)]
    assert [column.to_pylist() for columns in collector.columns for column in columns] == [["x"]]


def test_an_exception_is_raised_where_nothing_is_tracked() -> None:
    with pytest.raises(ValueError, match="worse"):
        Key().get("worse", tracked=False)


def test_a_tuple_is_settled_once() -> None:
    """S80: twice acked its edge would cancel."""
    one = KeyedTuple({"n": "a"}, (1, 2, 3))
    collector = KeyedCollector("pairs", [one])
    collector.ack(one)
    for again in (collector.ack, collector.fail):
        with pytest.raises(TupleError, match="which it does not hold"):
            again(one)
    assert collector.held == []


class Says(KeyedBolt):
    """Emits a good row, then what it was made with, and acks."""

    def __init__(self, values: Any) -> None:
        """Emit these values."""
        self._values = values

    def execute(self, key: tuple[Any, ...], held: Sequence[KeyedTuple], collector: KeyedCollector) -> None:
        """Emit."""
        collector.emit(("good",))
        collector.emit(self._values)
        collector.ack(*held)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ((1, 2), "bolt 'says' emitted 2 values, whose fields are both"),
        ((), "bolt 'says' emitted 0 values, whose fields are both"),
        ((7,), "bolt 'says' emitted 7 as 'both', which is string: "),
        (("\ud800",), r"bolt 'says' emitted '\ud800' as 'both', which is string: "),
    ],
)
def test_a_row_that_does_not_fit_fails_what_the_key_holds_and_not_the_query(values: Any, says: str) -> None:
    key = Key()
    key.task = KeyedTask("says", Says(values), key.task.fields)
    [(emitted, said, anchors)] = key.get("a", "b")
    assert (emitted, anchors) == (None, "ab")
    cause = Cause(*json.loads(said))
    assert cause.operator == "says"
    assert cause.error.startswith("TupleError")
    assert cause.message.startswith(says)
    assert not key.state.exists


NESTED = StructType([StructField("a", IntegerType())])


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (IntegerType(), [None, 1, 2.0, float("nan")], ["x", 2**40, [1]]),
        (
            TimestampType(),
            [None, datetime(2026, 1, 1, tzinfo=UTC), pd.Timestamp("2026-01-01")],
            ["now", True],
        ),
        (ArrayType(IntegerType()), [None, [1, None], (1,)], [["x"], 1]),
        (NESTED, [None, {"a": 1}, {}, (1,)], [{"a": "x"}, 1]),
        (MapType(StringType(), IntegerType()), [None, {"a": 1}], [[("a", 1)], {"a": "x"}]),
    ],
)
def test_a_value_fits_its_field_where_spark_can_convert_it(
    kind: DataType, good: Sequence[Any], bad: Sequence[Any]
) -> None:
    """What Spark refuses would end the query, with the rows of all keys of the task."""
    field = Field.of("f", kind)
    for value in good:
        field.check(value)
    for value in bad:
        with pytest.raises((TypeError, ValueError, AttributeError)):
            field.check(value)


def test_a_bolt_that_is_not_keyed_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="'Basic' is no KeyedBolt; derive it from one"):
        keyed(Basic(), by=["user"])  # type: ignore[arg-type]  # on purpose


class Basic(BasicBolt):
    """Is not keyed."""


def test_an_unknown_field_of_a_held_tuple_is_told_with_those_there_are() -> None:
    with pytest.raises(KeyError, match="no field 'usr' in a held tuple; its fields are: user, n"):
        KeyedTuple({"user": "u", "n": 1}, None)["usr"]


@pytest.mark.parametrize(
    ("by", "says"),
    [([], "needs a column"), ([7], "the columns of the key by name"), (7, "the columns of the key by name")],
)
def test_a_key_names_its_columns(by: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        keyed(Pairs(), by=by)


def test_one_column_is_a_key() -> None:
    assert columns_of("pairs", "user") == ("user",)
    assert columns_of("pairs", ["user", "day"]) == ("user", "day")
