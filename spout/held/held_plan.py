"""What Spark's plan shows about held rows: whether all of them reach an
operator that acks them, each once.

A *plan* is a tree of nodes, each below the nodes that read its rows; the top
one has the result. Operators of this package are nodes with a label
(`spout.streaming.query_plan.operator_of`). A *reference* is a column from
which another one is computed.

Source: docs/design/protocol.md, sections 3 (rule 3) and 5.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame

from acker.errors import UsageError
from spout.spark.private import (
    UNION,
    WATERMARK,
    JavaObject,
    is_alias,
    logical_plan,
    nodes,
    plan_children,
    sequence,
)
from spout.streaming.query_plan import operator_of, refuse_limit, refuse_namesakes, stream_of
from spout.tuples.anchor_columns import UNTIL
from spout.tuples.columns import ANCHOR


class Attribute(NamedTuple):
    """A column of a node: its id in the plan, and its name."""

    id: int
    name: str


def refuse_query(plan: JavaObject) -> None:
    """Refuse a query, by its logical plan, that would ack something without work, or never.

    Raises `UsageError`: as `refuse_limit` and `refuse_namesakes`; or not all
    held rows are acked exactly once.
    """
    refuse_limit(plan)
    refuse_namesakes(filter(None, map(operator_of, nodes(plan))))
    _refuse_unacked(plan)
    _refuse_held_twice(plan)
    _refuse_without_watermark(plan)
    _refuse_second_source(plan)


def watermark_holds(plan: JavaObject) -> tuple[str, ...]:
    """Return, for each `withWatermark` of a logical plan, from its top, the
    name of the `spout.hold` below it.

    The name is empty where there is none below, or where several are. The
    order is that in which Spark's physical plan has them: a node before its
    children, and all below the first child before the second one.
    """
    hold_names: list[str] = []
    for node in nodes(plan, _first_child_last):
        if node.nodeName() == WATERMARK:
            holds = [node_name(below) for below in nodes(node) if _is_hold(below)]
            hold_names.append(holds[0] if len(holds) == 1 else "")
    return tuple(hold_names)


def _first_child_last(node: JavaObject) -> list[JavaObject]:
    """Return a node's children in reverse: `nodes` goes on with the last one that it is given."""
    return list(reversed(plan_children(node)))


def refuse_holds_left_out(rows: DataFrame, operator: str) -> None:
    """Raise `UsageError` if anchors of held rows do not reach an operator that is to ack them.

    A join drops the anchors of one side where its output does not select them.
    """
    unreached = holds_left_out(logical_plan(rows))
    if unreached:
        raise UsageError(
            f"{operator!r}: the anchors of {_listed(unreached)} do not reach these rows, so what was held"
            " there would never be acked: keep those of both sides, .select(..., spout.join_anchors(left,"
            " right)); where a side's rows may be acked as soon as Spark's state has them, do not hold them"
        )


def holds_left_out(plan: JavaObject) -> list[str]:
    """Return the names of `spout.hold` operators whose anchors do not reach
    the rows of a plan.
    """
    # by the id of a column: the hold whose anchors it has; the ids of its references
    holds_by_column: dict[int, str] = {}
    references_by_column: dict[int, set[int]] = {}
    for node in _nodes_down_to_operators(plan):
        if _is_hold(node):
            anchors = output_of(node)[-1]  # the last column of a hold
            holds_by_column[anchors.id] = node_name(node)
        else:
            for column_id, reference_ids in _references_of(node).items():
                references_by_column.setdefault(column_id, set()).update(reference_ids)
    plan_anchors = [column.id for column in output_of(plan) if column.name == ANCHOR]
    reached = _with_all_references(plan_anchors, references_by_column)
    unreached = holds_by_column.keys() - reached
    return sorted(holds_by_column[column_id] for column_id in unreached)


def node_name(node: JavaObject) -> str:
    """Return the name of an operator of this package behind Spark's own operators."""
    return operator_of(node).partition(" ")[2].rpartition(" #")[0]


def output_of(node: JavaObject) -> list[Attribute]:
    """Return the columns of a node, in order."""
    return [Attribute(int(column.exprId().id()), str(column.name())) for column in sequence(node.output())]


def _refuse_unacked(plan: JavaObject) -> None:
    """Refuse a plan where no operator that acks is behind an operator that holds."""
    # an operator that acks would have been the last node before its hold is reached
    holds = sorted({node_name(node) for node in _nodes_down_to_operators(plan) if _is_hold(node)})
    if holds:
        raise UsageError(
            f"nothing acks what {_listed(holds)} holds, so that every record of it would time out: put"
            " spout.ack_anchors(...) last, behind the aggregate with spout.collect_anchors() or behind the"
            " join, which keeps spout.join_anchors(left, right)"
        )


def _refuse_held_twice(plan: JavaObject) -> None:
    """Refuse two branches behind one hold: in two places of Spark's state a row
    would have the same anchor.
    """
    operators: set[str] = set()
    for node in filter(_is_hold, nodes(plan)):
        if operator_of(node) in operators:
            raise UsageError(
                f"two branches stand behind one spout.hold ({node_name(node)!r}): a row would wait in two"
                " places and count as acked by the first of them; hold each branch by itself, with a name of"
                " its own: spout.hold(..., name=...)"
            )
        operators.add(operator_of(node))


def _refuse_without_watermark(plan: JavaObject) -> None:
    """Refuse a hold with `until` that has no watermark above it, where another hold has one.

    A batch has one watermark for all branches, so its rows would count as dropped by that of the
    other.
    """
    # nodes that are still to be visited, each with whether a watermark is
    # above it
    unvisited = [(plan, False)]
    holds: set[str] = set()
    while unvisited:
        node, has_watermark_above = unvisited.pop()
        if _is_hold(node) and not has_watermark_above and _has_until(node):
            holds.add(node_name(node))
        is_below_watermark = has_watermark_above or node.nodeName() == WATERMARK
        unvisited += [(child, is_below_watermark) for child in plan_children(node)]
    if holds and any(node.nodeName() == WATERMARK for node in nodes(plan)):
        raise UsageError(
            f"{_listed(sorted(holds))}: spout.hold(until=...) without a watermark behind it: Spark drops"
            " none of these rows, and by another side's watermark they would count as dropped. Call"
            " withWatermark behind it, or hold with until=None"
        )


def _has_until(hold: JavaObject) -> bool:
    """Return whether a watermark drops the rows of a hold, from the expression of its time."""
    # without `until` the time is a literal, the same for all rows; Spark
    # calls what it can compute foldable
    for child in plan_children(hold):
        for expression in sequence(child.expressions()):
            is_until = is_alias(expression) and expression.name() == UNTIL
            if is_until and not expression.child().foldable():
                return True
    return False


def _refuse_second_source(plan: JavaObject) -> None:
    """Refuse branches that read one stream by different nodes: Spark would run a source for each of
    them.
    """
    reading_node_by_stream: dict[str, JavaObject] = {}
    for node in nodes(plan):
        stream = stream_of(node)
        if not stream:
            continue
        first_node = reading_node_by_stream.setdefault(stream, node)
        if not node.equals(first_node):
            bolts = sorted({node_name(reading) for reading in (first_node, node) if operator_of(reading)})
            by_bolts = f", by {' and '.join(bolts)}" if bolts else ""
            raise UsageError(
                f"one read_stream would be read more than once{by_bolts}: by two sources of Spark's,"
                " which take the group from each other. Bolts of branches that come together are a"
                " spout.TopologyBuilder's;"
                " what is joined later goes through Spark's operators (filter, select) first, then bolts"
                " and spout.hold behind those, and nothing is joined with itself before it is held"
            )


def _nodes_down_to_operators(plan: JavaObject) -> Iterator[JavaObject]:
    """Yield a plan's nodes from the top down to the first operator of this
    package in each branch, inclusive.
    """
    return nodes(plan, lambda node: [] if operator_of(node) else plan_children(node))


def _is_hold(node: JavaObject) -> bool:
    """Return whether a node holds rows: its last column has their edges."""
    if not operator_of(node) or stream_of(node):
        return False
    return any(column.name == UNTIL for column in _columns_of_children(node))


def _references_of(node: JavaObject) -> dict[int, set[int]]:
    """Return the references of each column that a node computes: its id, and theirs.

    Of a column without an alias (that of a Python function) nobody knows them; they are all anchors
    that the node gets.
    """
    if node.nodeName() == UNION:
        return _references_of_union(node)
    references_by_alias: dict[int, set[int]] = {}
    for expression in sequence(node.expressions()):
        if is_alias(expression):
            references = sequence(expression.references().toSeq())
            reference_ids = {int(column.exprId().id()) for column in references}
            references_by_alias[int(expression.exprId().id())] = reference_ids
    columns_of_children = _columns_of_children(node)
    explained_ids = {column.id for column in columns_of_children} | references_by_alias.keys()
    anchor_ids = {column.id for column in columns_of_children if column.name == ANCHOR}
    ids_without_alias = {column.id for column in output_of(node)} - explained_ids
    return references_by_alias | dict.fromkeys(ids_without_alias, anchor_ids)


def _references_of_union(union: JavaObject) -> dict[int, set[int]]:
    """Return the references of the columns of a union, which have the ids of its first branch.

    They are the columns of its other branches.
    """
    branches = map(output_of, plan_children(union))
    references_by_column: dict[int, set[int]] = {}
    for column, *columns_of_others in zip(*branches, strict=True):
        references_by_column[column.id] = {column_of_other.id for column_of_other in columns_of_others}
    return references_by_column


def _columns_of_children(node: JavaObject) -> list[Attribute]:
    """Return the columns of all children of a node."""
    columns: list[Attribute] = []
    for child in plan_children(node):
        columns += output_of(child)
    return columns


def _with_all_references(
    column_ids: Iterable[int], references_by_column: Mapping[int, Iterable[int]]
) -> set[int]:
    """Return the ids of columns, and of all from which they are computed, directly or not."""
    reached: set[int] = set()
    unvisited = list(column_ids)
    while unvisited:
        column_id = unvisited.pop()
        if column_id not in reached:
            reached.add(column_id)
            unvisited += references_by_column.get(column_id, ())
    return reached


def _listed(names: Iterable[str]) -> str:
    """Return names for a message: 'left' and 'right'."""
    return " and ".join(map(repr, names))
