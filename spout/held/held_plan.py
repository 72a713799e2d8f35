"""What Spark's plan shows about held rows: whether all of them reach an
operator that acks them, each once.

A *plan* is a tree of nodes, each below the nodes that read its rows; the top
one has the result. The nodes that a node reads are its children. Operators of this package are
nodes with a label (`spout.streaming.query_plan.operator_of`). A *hold* is the node of a
`spout.hold`. The *references* of a column are the columns from which it is computed.

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


def hold_name_of_each_watermark(plan: JavaObject) -> tuple[str, ...]:
    """Return, for each `withWatermark` of a logical plan, the name of the `spout.hold` below it.

    Empty: there is none below it, or several, so that nobody can tell which.

    They are in the order in which the physical plan has the watermarks: a node comes before its
    children, and all below the first child before the second.
    """
    hold_of_each_watermark: list[str] = []
    # `nodes` goes on with the last child: so the first one is the last in the list
    for node in nodes(plan, _first_child_last):
        if node.nodeName() == WATERMARK:
            holds_below = [node_name(below) for below in nodes(node) if _is_hold(below)]
            hold_of_each_watermark.append(holds_below[0] if len(holds_below) == 1 else "")
    return tuple(hold_of_each_watermark)


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
    """Return the names of the holds whose anchors do not reach the rows of a plan, in order.

    The column of anchors of the rows is followed down the plan, by all columns from which it is
    computed.
    """
    # both by the id of a column: the hold that made it; and the ids of its references
    hold_by_column: dict[int, str] = {}
    references_by_column: dict[int, set[int]] = {}
    for node in _nodes_down_to_operators(plan):
        if _is_hold(node):
            anchor_column = output_of(node)[-1]  # the last column of a hold
            hold_by_column[anchor_column.id] = node_name(node)
        else:
            for column_id, reference_ids in _references_of(node).items():
                references_by_column.setdefault(column_id, set()).update(reference_ids)
    anchor_ids_of_rows = [column.id for column in output_of(plan) if column.name == ANCHOR]
    reached_ids = _with_all_references(anchor_ids_of_rows, references_by_column)
    unreached_ids = hold_by_column.keys() - reached_ids
    return sorted(hold_by_column[column_id] for column_id in unreached_ids)


def node_name(node: JavaObject) -> str:
    """Return the name in the label of a node: ``<kind> <name> #<number>``."""
    return operator_of(node).partition(" ")[2].rpartition(" #")[0]


def output_of(node: JavaObject) -> list[Attribute]:
    """Return the columns of a node, in order."""
    return [
        Attribute(id=int(column.exprId().id()), name=str(column.name())) for column in sequence(node.output())
    ]


def _refuse_unacked(plan: JavaObject) -> None:
    """Refuse a plan where no operator that acks is behind an operator that holds.

    Raises `UsageError`, as the other functions here that refuse.
    """
    # From the top down to the first operators of this package: if a hold is the first one, none
    # that acks is above it
    holds = sorted({node_name(node) for node in _nodes_down_to_operators(plan) if _is_hold(node)})
    if holds:
        raise UsageError(
            f"nothing acks what {_listed(holds)} holds, so that every record of it would time out: put"
            " spout.ack_anchors(...) last, behind the aggregate with spout.collect_anchors() or behind the"
            " join, which keeps spout.join_anchors(left, right)"
        )


def _refuse_held_twice(plan: JavaObject) -> None:
    """Refuse two branches behind one hold: a row's anchor would be twice in Spark's state."""
    labels: set[str] = set()  # of the holds that were visited; of two branches both have the same
    for node in filter(_is_hold, nodes(plan)):
        if operator_of(node) in labels:
            raise UsageError(
                f"two branches stand behind one spout.hold ({node_name(node)!r}): a row would wait in two"
                " places and count as acked by the first of them; hold each branch by itself, with a name of"
                " its own: spout.hold(..., name=...)"
            )
        labels.add(operator_of(node))


def _refuse_without_watermark(plan: JavaObject) -> None:
    """Refuse a hold with `until` without a watermark above it, if the plan has one elsewhere.

    A micro-batch has one watermark for all branches. So the rows of this hold would count as
    dropped by the watermark of another branch.
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
    """Refuse branches that read one stream by different nodes: Spark would read it twice."""
    reading_node_by_stream: dict[str, JavaObject] = {}
    for node in nodes(plan):
        stream = stream_of(node)  # empty: the node does not read a stream
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
    """Return for each column that a node computes, by its id, the ids of its references.

    The plan does not show from what a Python function computes its column, which has no alias. So
    all columns of anchors that the node reads are taken for its references.
    """
    if node.nodeName() == UNION:
        return _references_of_union(node)
    references_by_alias: dict[int, set[int]] = {}  # by the id of a column that is an alias
    for expression in sequence(node.expressions()):
        if is_alias(expression):
            references = sequence(expression.references().toSeq())
            reference_ids = {int(column.exprId().id()) for column in references}
            references_by_alias[int(expression.exprId().id())] = reference_ids
    read_columns = _columns_of_children(node)
    # columns that the node passes on keep their ids
    explained_ids = {column.id for column in read_columns} | references_by_alias.keys()
    unexplained_ids = {column.id for column in output_of(node)} - explained_ids
    read_anchor_ids = {column.id for column in read_columns if column.name == ANCHOR}
    return references_by_alias | dict.fromkeys(unexplained_ids, read_anchor_ids)


def _references_of_union(union: JavaObject) -> dict[int, set[int]]:
    """Return for each column of a union, by its id, the ids of its references.

    A column of a union has the id of the column of its first branch. So its references are the
    columns at the same place in the other branches.
    """
    branches = map(output_of, plan_children(union))
    references_by_column: dict[int, set[int]] = {}
    for column, *columns_of_others in zip(*branches, strict=True):
        ids_of_others = {column_of_other.id for column_of_other in columns_of_others}
        references_by_column[column.id] = ids_of_others
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
    """Return the ids of columns and of all columns from which they are computed."""
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
