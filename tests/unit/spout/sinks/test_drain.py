"""What a drain reports and counts, and which plans ask for one; without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from spout.publishing.report_accumulator import Batch, LedgerParam, SentReport, Value
from spout.sinks.drain import partition_reporter, partitions_ended_in
from spout.streaming.options import BOLTS_OPTION, STREAM_OPTION
from spout.streaming.query_plan import crosses_stages, is_wide, label
from spout.tuples.columns import ANCHOR, TASK, TO

BATCH: Batch = ("drain of q", 7)


@dataclass
class Tasks:
    """Stands for the accumulator: merges what tasks add, as Spark does."""

    value: Value = field(default_factory=dict)

    def add(self, term: Value) -> None:
        """Merge what a task added."""
        LedgerParam().addInPlace(self.value, pickle.loads(pickle.dumps(term)))

    def run(self, run: str, *columns: list[int], takes: int = 1_000) -> list[list[bool]]:
        """Let a task follow columns of partition numbers; whoever asks for them `takes` so many."""
        followed = partition_reporter(cast("Any", self), BATCH, run)(
            pa.array(each, pa.int32()) for each in columns
        )
        return [column.to_pylist() for _, column in zip(range(takes), followed, strict=False)]

    def ended(self, run: str) -> frozenset[int]:
        """Return what a run has read to its end."""
        return partitions_ended_in(self.value.get(BATCH, {}).values(), run)


def test_a_partition_is_reported_when_its_last_row_was_taken() -> None:
    """Rule 3: what stops early says nothing."""
    tasks = Tasks()
    assert tasks.run("r", [3, 3], [3], takes=2) == [[True, True], [True]]
    assert tasks.ended("r") == frozenset()
    assert tasks.run("r", [3, 3], [3]) == [[True, True], [True]]
    assert tasks.run("r", [0]) == [[True]]
    assert tasks.ended("r") == {0, 3}


def test_a_partition_without_rows_tells_nothing() -> None:
    """It knows no number, and a task may read several partitions."""
    tasks = Tasks()
    assert tasks.run("r") == []
    assert tasks.run("r", []) == [[]]
    assert tasks.ended("r") == frozenset()


def test_a_batch_that_runs_again_does_not_count_what_was_read_before() -> None:
    tasks = Tasks()
    tasks.run("before", [1])
    tasks.run("now", [2])
    assert tasks.ended("now") == {2}
    read: list[SentReport] = [("before", b"1")]
    assert partitions_ended_in(read, "now") == frozenset()


class Node:
    """A node of one of Spark's plans, as py4j shows it."""

    def __init__(self, name: str, *children: Node, function: str = "", columns: tuple[str, ...] = ()) -> None:
        self._name = name
        self._children = children
        self._function = SimpleNamespace(name=lambda: function)
        self._columns = [SimpleNamespace(name=lambda name=name: name) for name in columns]
        self._child: Node | None = None
        self.options: dict[str, str] = {}

    def nodeName(self) -> str:  # noqa: N802 - Spark's name
        """Return its name."""
        return self._name

    def children(self) -> Any:
        """Return a sequence of Scala's."""
        return _sequence(self._children)

    def output(self) -> Any:
        """Return its columns."""
        return _sequence(self._columns)

    def initialPlan(self) -> Node:  # noqa: N802 - Spark's name
        """Return what adaptive execution began with."""
        return self._children[0]

    def child(self) -> Node:
        """Return the exchange that is used again."""
        return self._child or self

    def func(self) -> Any:
        """Return the function of a physical operator."""
        return self._function

    def functionExpr(self) -> Any:  # noqa: N802 - Spark's name
        """Return the function of a logical operator."""
        return self._function

    def projectList(self) -> Any:  # noqa: N802 - Spark's name
        """Return what a projection computes: nothing."""
        return SimpleNamespace(lastOption=lambda: SimpleNamespace(isEmpty=lambda: True))

    def extraOptions(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Return the options of a source."""
        return self.options


def _sequence(values: Any) -> Any:
    listed = list(values)
    return SimpleNamespace(size=lambda: len(listed), apply=lambda place: listed[place])


def source(*, tracked: bool = True) -> Node:
    """Make what a stream is read by."""
    node = Node("StreamingRelationV2")
    node.options = {STREAM_OPTION: "s", BOLTS_OPTION: label("split", "source")} if tracked else {}
    return node


def bolt(below: Node) -> Node:
    """Put a bolt behind rows."""
    return Node("MapInArrow", below, function=label("keep", "1"))


def stage(below: str, *under: Node) -> Node:
    """Put a stage of a topology behind a shuffle of this name."""
    return Node("MapInArrow", Node(below, *under, columns=("s0", TO, TASK, ANCHOR)), function="run")


def users(below: Node) -> Node:
    """Put a function of the user's behind rows."""
    return Node("MapInArrow", below, function="run")


@pytest.mark.parametrize(
    ("plan", "wide"),
    [
        (Node("Project", Node("Filter", source())), False),
        (Node("Project", users(source())), False),
        (Node("Project", bolt(Node("RepartitionByExpression", source()))), False),
        (Node("Project", stage("RepartitionByExpression", source())), False),
        (Node("Join", source(), Node("LocalRelation")), True),
        (Node("Project", users(Node("Repartition", bolt(source())))), True),
        (Node("Union", bolt(source()), Node("Project", Node("Deduplicate", bolt(source())))), True),
        (Node("Join", source(tracked=False), Node("Aggregate", source(tracked=False))), False),
    ],
)
def test_a_query_may_be_shuffled_by_what_stands_behind_its_last_bolt(plan: Node, wide: bool) -> None:
    assert is_wide(plan) == wide


def reused(exchange: Node) -> Node:
    """Use an exchange again."""
    node = Node("ReusedExchange")
    node._child = exchange
    return node


SCAN = Node("MicroBatchScan")
TABLE = Node("BroadcastExchange", Node("Scan parquet"))


@pytest.mark.parametrize(
    ("plan", "crosses"),
    [
        (Node("WholeStageCodegen (1)", Node("Filter", Node("InputAdapter", SCAN))), False),
        (Node("AdaptiveSparkPlan", Node("BroadcastHashJoin", SCAN, TABLE)), False),
        (Node("AdaptiveSparkPlan", Node("BroadcastHashJoin", Node("BroadcastExchange", SCAN), TABLE)), True),
        (Node("AdaptiveSparkPlan", Node("SortMergeJoin", Node("Exchange", bolt(SCAN)), TABLE)), True),
        (Node("SortMergeJoin", bolt(SCAN), Node("Exchange", Node("Scan parquet"))), False),
        (Node("Project", bolt(Node("Exchange", SCAN))), False),
        (Node("Project", stage("Exchange", SCAN)), False),
        (Node("Project", users(Node("Exchange", SCAN))), True),
        (Node("Union", bolt(SCAN), Node("Exchange", SCAN)), True),
        (Node("Union", bolt(Node("Exchange", SCAN)), reused(Node("Exchange", SCAN))), True),
        (Node("HashAggregate", Node("StateStoreSave", Node("Exchange", SCAN))), True),
    ],
)
def test_a_batch_is_shuffled_where_its_rows_leave_the_stage_of_the_last_bolt(
    plan: Node, crosses: bool
) -> None:
    assert crosses_stages(plan) == crosses


def test_what_is_followed_is_handed_on_one_by_one() -> None:
    """A batch of Arrow's is let go before the next is asked for: nothing is collected."""
    asked: list[int] = []

    def columns() -> Iterator[pa.Array]:
        for number in range(3):
            asked.append(number)
            yield pa.array([5] * number, pa.int32())

    followed = partition_reporter(cast("Any", Tasks()), BATCH, "r")(columns())
    assert [next(followed).to_pylist(), asked] == [[], [0]]
    assert [next(followed).to_pylist(), asked] == [[True], [0, 1]]
