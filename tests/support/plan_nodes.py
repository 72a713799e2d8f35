"""Nodes of Spark's plans, as py4j shows them, without a JVM."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from spout.streaming.options import BOLTS_OPTION, STREAM_OPTION
from spout.streaming.query_plan import label
from spout.tuples.columns import ANCHOR, TASK, TO


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


def source(*, tracked: bool = True, stream: str = "s") -> Node:
    """Make what a stream is read by."""
    node = Node("StreamingRelationV2")
    node.options = {STREAM_OPTION: stream, BOLTS_OPTION: label("split", "source")} if tracked else {}
    return node


def bolt(below: Node, name: str = "keep") -> Node:
    """Put a bolt behind rows."""
    return Node("MapInArrow", below, function=label(name, "1"))


def stage(below: str, *under: Node) -> Node:
    """Put a stage of a topology behind a shuffle of this name."""
    return Node("MapInArrow", Node(below, *under, columns=("s0", TO, TASK, ANCHOR)), function="run")


def users(below: Node) -> Node:
    """Put a function of the user's behind rows."""
    return Node("MapInArrow", below, function="run")


def reused(exchange: Node) -> Node:
    """Use an exchange again."""
    node = Node("ReusedExchange")
    node._child = exchange
    return node
