"""Whatever a bolt emits or raises, the ways to call it and the ways behind it lead to the same result."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spout
from spout.bolts.hooks import TaskHook
from spout.execution.stage_run import StageRun
from spout.isolation.isolation import IsolatedRun
from spout.topology.stage_pass import StagePass
from tests.support.outcomes import failed_by_cause, open_roots_of
from tests.support.worlds.topology_world import TOPICS, ran, run


class NoZone(tzinfo):
    """A zone that somebody did not finish."""


class Mute(Exception):
    """An exception whose text raises."""

    def __str__(self) -> str:
        return self.args[1]  # type: ignore[no-any-return]


class Lazy:
    """A value that is read when somebody asks for its length, and is not there."""

    def __len__(self) -> int:
        raise OSError("gone")


MAKE: tuple[Callable[[], Any], ...] = (
    lambda: 7, lambda: -1, lambda: 2**31, lambda: 2**70, lambda: True, lambda: 1.5, lambda: math.nan,
    lambda: -0.0, lambda: None, lambda: "7", lambda: "", lambda: "caf\udce9", lambda: b"7", lambda: b"\xff",
    lambda: Decimal("1.5"), lambda: np.int64(7), lambda: np.float32(1.5), lambda: np.array(7),
    lambda: datetime(2026, 1, 1, tzinfo=UTC), lambda: datetime(2026, 1, 1), lambda: [7],
    lambda: datetime(2026, 1, 1, tzinfo=NoZone()), lambda: {"a": 7}, lambda: {7}, Lazy, lambda: object,
    lambda: "x" * 100_000,
)  # fmt: skip
"""Odd values, each made anew."""

ROWS: tuple[Callable[[int, Any], Any], ...] = (
    lambda number, value: (number, value), lambda number, value: [number, value],
    lambda number, value: {"value": value, "number": number}, lambda number, value: (number,),
    lambda number, value: (number, value, 1), lambda number, value: {"number": number}, lambda *_: None,
    lambda *_: "ab", lambda *_: Lazy(), lambda number, value: iter((number, value)),
    lambda number, value: np.array([number, 7]),
)  # fmt: skip
"""Forms of a row, most of them right."""

RAISES: tuple[Callable[[], Exception], ...] = (
    lambda: ValueError("bad"), spout.FailTuple, lambda: spout.RejectTuple("no"), Mute,
    lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"), lambda: ValueError("caf\udce9"), StopIteration,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Deed:
    """What a bolt does with one record: the numbers of rows and values that it emits, and what it raises."""

    emits: tuple[tuple[int, int], ...]
    raises: int | None

    def rows(self, number: int) -> list[Any]:
        return [ROWS[form](number, MAKE[value]()) for form, value in self.emits]


RIGHT = st.integers(0, 2)
EMITS = st.tuples(RIGHT | RIGHT | RIGHT | st.integers(0, len(ROWS) - 1), st.integers(0, len(MAKE) - 1))
DEEDS = st.lists(
    st.builds(
        Deed,
        st.lists(EMITS, max_size=3).map(tuple),
        st.sampled_from((None,) * 9 + tuple(range(len(RAISES)))),
    ),
    min_size=1,
    max_size=6,
)
KINDS = st.sampled_from(["string", "int", "bigint", "binary"])


class Does(spout.BasicBolt):
    """Does with each record what is drawn."""

    def __init__(self, deeds: list[Deed], kind: str) -> None:
        self._deeds = deeds
        self.output = f"number int,value {kind}"  # type: ignore[misc]  # drawn, so of the instance

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit, then perhaps raise."""
        number = int(tuple["value"])
        for row in self._deeds[number].rows(number):
            collector.emit(row)
        if (raises := self._deeds[number].raises) is not None:
            raise RAISES[raises]()


class DoesByHand(spout.Bolt):
    """The same, anchored and acked by hand."""

    def __init__(self, deeds: list[Deed], kind: str) -> None:
        self._deeds = deeds
        self.output = f"number int,value {kind}"  # type: ignore[misc]  # drawn, so of the instance

    def prepare(self, context: spout.BoltContext, collector: spout.OutputCollector) -> None:
        """Keep the collector."""
        self._collector = collector

    def execute(self, tuple: spout.Tuple) -> None:
        """Emit, then perhaps raise."""
        number = int(tuple["value"])
        for row in self._deeds[number].rows(number):
            self._collector.emit(row, anchors=tuple)
        if (raises := self._deeds[number].raises) is not None:
            raise RAISES[raises]()
        self._collector.ack(tuple)


def shown(rows: list[Any], failed: dict[int, Any]) -> list[str]:
    """Return the rows of records that did not fail, as text: a NaN differs from itself."""
    return sorted(repr(row) for row in rows if row[0] not in failed)


@settings(max_examples=150, deadline=None)
@given(DEEDS, KINDS)
def test_a_bolt_that_is_called_by_row_or_by_hand_or_in_a_child_does_the_same(
    deeds: list[Deed], kind: str
) -> None:
    """Which records fail, and what the others leave behind; why, where only one thing is wrong."""
    lines = [b"%d" % number for number in range(len(deeds))]
    found = []
    for where in ("rows", "topology"):
        for bolt, hooks in ((Does, []), (Does, [TaskHook()]), (DoesByHand, [])):
            rows: list[Any] = []
            failed = ran(bolt(deeds, kind), lines, list(hooks), where, rows)
            wrong = {root: len(deeds[root].emits) + (deeds[root].raises is not None) for root in failed}
            whys = {root: cause.error for root, cause in failed.items() if wrong[root] == 1}
            found.append((shown(rows, failed), sorted(failed), whys))
    assert all(each == found[0] for each in found), found


class Columns(spout.ArrowBolt):
    """Emits what it gets."""

    def __init__(self, kind: str) -> None:
        self.output = f"number int,value {kind}"  # type: ignore[misc]  # drawn, so of the instance

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> None:
        """Emit all rows."""
        collector.emit(batch.columns, np.arange(batch.num_rows))


@settings(max_examples=100, deadline=None)
@given(DEEDS, KINDS, st.booleans())
def test_an_arrow_bolt_gets_the_same_beside_the_bolt_before_it_and_behind_a_shuffle(
    deeds: list[Deed], kind: str, rich: bool
) -> None:
    """A row that does not fit fails its own record, and none that shares a batch with it."""
    lines = [b"%d" % number for number in range(len(deeds))]
    found = []
    for parallelism in (None, 1):
        builder = spout.TopologyBuilder()
        builder.set_spout("lines", TOPICS, "lines")
        builder.set_bolt("does", (DoesByHand if rich else Does)(deeds, kind)).shuffle_grouping("lines")
        builder.set_bolt("columns", Columns(kind), parallelism).shuffle_grouping("does")
        made = run(builder, lines, print, tasks=1)
        failed = {root: cause for cause, named in failed_by_cause(made.outcome) for root in named.tolist()}
        assert open_roots_of(made.outcome).tolist() == []
        found.append((shown(made.values, failed), failed))
    assert found[0] == found[1]


ACTS = ("emit", "emit", "emit twice", "fail", "leave open", "raise", "emit and fail", "emit and leave open")


class Two(spout.BasicBolt):
    """Emits records with an even number on one stream, and the others on another."""

    def declare(self, declarer: spout.OutputDeclarer) -> None:
        """Declare both."""
        for stream in ("default", "odd"):
            declarer.declare("number int", stream=stream)

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit on one of them."""
        number = int(tuple["value"])
        collector.emit((number,), stream="odd" if number % 2 else "default")


class Acts(spout.ArrowBolt):
    """Does with each row what is drawn for it."""

    output = "number int,value bigint"

    def __init__(self, acts: list[str]) -> None:
        self._acts = acts

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> None:
        """Do it, row by row."""
        for row, number in enumerate(batch.column("number").to_pylist()):
            act = self._acts[number]
            for copy in range(2 if act == "emit twice" else int("emit" in act)):
                collector.emit({"value": pa.array([copy]), "number": pa.array([number])}, [row])  # type: ignore[arg-type]  # as good as an array
            if "fail" in act:
                collector.fail(row, "drawn")
            if "leave open" in act:
                collector.leave_open(row)
            if act == "raise":
                raise ValueError("drawn")


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(ACTS), min_size=1, max_size=6), st.booleans())
def test_an_arrow_bolt_that_hooks_watch_or_that_works_in_a_child_does_the_same(
    acts: list[str], moved: bool
) -> None:
    """It gets the rows of two streams, so that it is called twice before anything is taken from it."""
    lines = [b"%d" % number for number in range(len(acts))]
    found = []
    children: list[IsolatedRun] = []

    def child(stage: StagePass, context: spout.BoltContext) -> IsolatedRun:
        children.append(IsolatedRun(stage, context, 0, partial(StageRun, context=context)))
        return children[-1]

    for begin, hooks in ((None, 0), (None, 1), (child, 0), (child, 1)):
        builder = spout.TopologyBuilder()
        builder.set_spout("lines", TOPICS, "lines")
        builder.set_bolt("two", Two()).shuffle_grouping("lines")
        bolt = builder.set_bolt("acts", Acts(acts), 1 if moved else None)
        bolt.shuffle_grouping("two").shuffle_grouping("two", "odd")
        for _ in range(hooks):
            builder.add_hook(TaskHook())
        made = run(builder, lines, print, tasks=1, begin=begin)
        failed = {
            root: cause.error for cause, roots in failed_by_cause(made.outcome) for root in roots.tolist()
        }
        open_roots = set(open_roots_of(made.outcome).tolist()) - failed.keys()
        found.append((shown(made.values, failed), failed, open_roots))
    for each in children:
        each.close()
    assert all(each == found[0] for each in found), found
