"""A bolt that holds tuples of a key, over a state like Spark's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from acker.errors import TupleError
from spout.bolts import BatchCollector
from spout.collector import Cause
from spout.keyed_bolt import KeyedBolt, KeyedCollector, KeyedTuple
from spout.keyed_rows import SAID, KeyedTask, unwrap
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
        self.task = KeyedTask("pairs", Pairs(), ("both",))

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
