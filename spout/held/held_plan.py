"""What Spark's plan shows about held rows: whether all of them reach an operator that acks them, each once.

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
    """Check by its logical plan that nothing of a query would be acked without work, or never.

    Raises `UsageError`: as `refuse_limit` and `refuse_namesakes`; or rows that it holds are not acked once.
    """
    refuse_limit(plan)
    refuse_namesakes(filter(None, map(operator_of, nodes(plan))))
    _refuse_unacked(plan)
    _refuse_held_twice(plan)
    _refuse_unwatched(plan)
    _refuse_read_apart(plan)


def watermark_holds(plan: JavaObject) -> tuple[str, ...]:
    """Return, for each `withWatermark` of a logical plan, from its top, the `spout.hold` before it.

    Empty where there is none, or where several are. Their order is that of the physical plan's.
    """
    found: list[str] = []
    for node in nodes(plan, lambda node: list(reversed(plan_children(node)))):
        if node.nodeName() == WATERMARK:
            holds = [node_name(each) for each in nodes(node) if _is_hold(each)]
            found.append(holds[0] if len(holds) == 1 else "")
    return tuple(found)


def refuse_left_out(rows: DataFrame, operator: str) -> None:
    """Check that the anchors of all rows that are held before an operator reach it, since it acks them.

    Raises `UsageError`: a join dropped those of one side.
    """
    if left := left_out(logical_plan(rows)):
        raise UsageError(
            f"{operator!r}: the anchors of {_listed(left)} do not reach these rows, so what was held there"
            " would never be acked: keep those of both sides, .select(..., spout.join_anchors(left, right));"
            " where a side's rows may be acked as soon as Spark's state has them, do not hold them"
        )


def left_out(plan: JavaObject) -> list[str]:
    """Return the names of `spout.hold` operators whose anchors do not reach the rows of a plan."""
    holds: dict[int, str] = {}
    sources_of: dict[int, set[int]] = {}
    for node in _above_holds(plan):
        if _is_hold(node):
            holds[output_of(node)[-1].id] = node_name(node)
        else:
            for attribute, sources in _sources_of(node).items():
                sources_of.setdefault(attribute, set()).update(sources)
    reached = _reached((each.id for each in output_of(plan) if each.name == ANCHOR), sources_of)
    return sorted(name for attribute, name in holds.items() if attribute not in reached)


def node_name(node: JavaObject) -> str:
    """Return the name of an operator of this package behind Spark's own operators."""
    return operator_of(node).partition(" ")[2].rpartition(" #")[0]


def output_of(node: JavaObject) -> list[Attribute]:
    return [Attribute(int(each.exprId().id()), str(each.name())) for each in sequence(node.output())]


def _refuse_unacked(plan: JavaObject) -> None:
    """Check that an operator that acks is behind each operator that holds."""
    held = sorted({node_name(node) for node in _above_holds(plan) if _is_hold(node)})
    if held:
        raise UsageError(
            f"nothing acks what {_listed(held)} holds, so that every record of it would time out: put"
            " spout.ack_anchors(...) last, behind the aggregate with spout.collect_anchors() or behind the"
            " join, which keeps spout.join_anchors(left, right)"
        )


def _refuse_held_twice(plan: JavaObject) -> None:
    """Check that held rows go one way: in two places of Spark's state a row would have the same anchor."""
    seen: set[str] = set()
    for node in filter(_is_hold, nodes(plan)):
        if operator_of(node) in seen:
            raise UsageError(
                f"two branches stand behind one spout.hold ({node_name(node)!r}): a row would wait in two"
                " places and count as acked by the first of them; hold each branch by itself, with a name of"
                " its own: spout.hold(..., name=...)"
            )
        seen.add(operator_of(node))


def _refuse_unwatched(plan: JavaObject) -> None:
    """Check that a side whose tuples may come too late has a watermark: a batch has one for all sides."""
    todo = [(plan, False)]
    unwatched: set[str] = set()
    while todo:
        node, is_watched = todo.pop()
        if _is_hold(node) and not is_watched and _has_until(node):
            unwatched.add(node_name(node))
        is_watched = is_watched or node.nodeName() == WATERMARK
        todo += [(child, is_watched) for child in plan_children(node)]
    if unwatched and any(node.nodeName() == WATERMARK for node in nodes(plan)):
        raise UsageError(
            f"{_listed(sorted(unwatched))}: spout.hold(until=...) without a watermark behind it: Spark drops"
            " none of these rows, and by another side's watermark they would count as dropped. Call"
            " withWatermark behind it, or hold with until=None"
        )


def _has_until(hold: JavaObject) -> bool:
    """Return whether a watermark drops the rows of a hold, from the expression of its time."""
    constant = [
        each.child().foldable()
        for child in plan_children(hold)
        for each in sequence(child.expressions())
        if is_alias(each) and each.name() == UNTIL
    ]
    return not all(constant)


def _refuse_read_apart(plan: JavaObject) -> None:
    """Check that branches of one stream share its source: Spark runs a source for each one that differs."""
    sources: dict[str, JavaObject] = {}
    for node in nodes(plan):
        stream = stream_of(node)
        if stream and not node.equals(first := sources.setdefault(stream, node)):
            bolts = sorted({node_name(each) for each in (first, node) if operator_of(each)})
            by = f", by {' and '.join(bolts)}" if bolts else ""
            raise UsageError(
                f"one read_stream would be read more than once{by}: by two sources of Spark's, which take the"
                " group from each other. Bolts of branches that come together are a spout.TopologyBuilder's;"
                " what is joined later goes through Spark's operators (filter, select) first, then bolts"
                " and spout.hold behind those, and nothing is joined with itself before it is held"
            )


def _above_holds(plan: JavaObject) -> Iterator[JavaObject]:
    """Yield a plan's nodes from the top down to the first operator of this package on each way, inclusive."""
    return nodes(plan, lambda node: [] if operator_of(node) else plan_children(node))


def _is_hold(node: JavaObject) -> bool:
    """Return whether a node holds rows: its last column has their edges."""
    return bool(
        operator_of(node)
        and not stream_of(node)
        and any(each.name == UNTIL for child in plan_children(node) for each in output_of(child))
    )


def _sources_of(node: JavaObject) -> dict[int, set[int]]:
    """Return, for each column that a node computes, by id, the columns that it is computed from.

    A column without an alias (of a Python function) may be computed from all anchors that arrive.
    """
    if node.nodeName() == UNION:  # its columns have the ids of its first branch
        columns = zip(*map(output_of, plan_children(node)), strict=True)
        return {column[0].id: {each.id for each in column[1:]} for column in columns}
    computed: dict[int, set[int]] = {}
    for each in sequence(node.expressions()):
        if is_alias(each):
            references = sequence(each.references().toSeq())
            computed[int(each.exprId().id())] = {int(one.exprId().id()) for one in references}
    arriving = [each for child in plan_children(node) for each in output_of(child)]
    listed = {each.id for each in arriving} | computed.keys()
    anchors = {each.id for each in arriving if each.name == ANCHOR}
    return computed | {each.id: anchors for each in output_of(node) if each.id not in listed}


def _reached(begin: Iterable[int], sources_of: Mapping[int, Iterable[int]]) -> set[int]:
    """Return all columns from which the given ones are computed, directly or not."""
    found: set[int] = set()
    todo = list(begin)
    while todo:
        each = todo.pop()
        if each not in found:
            found.add(each)
            todo += sources_of.get(each, ())
    return found


def _listed(names: Iterable[str]) -> str:
    return " and ".join(map(repr, names))
