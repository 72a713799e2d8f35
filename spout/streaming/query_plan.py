"""What Spark's plan shows: streams that it reads, operators that may not be there, shuffles.

Source: docs/design/protocol.md, sections 5.1 and 5.2.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession

from acker.errors import TrackingError, UsageError
from spout.publishing.settle import namesakes_message
from spout.spark.private import (
    CUT_SHORT,
    NEVER_SHUFFLED,
    OPERATOR,
    SCAN,
    SOURCE,
    JavaObject,
    are_of_batch,
    columns_read,
    execution_of,
    function_of,
    is_exchange,
    java_query,
    logical_plan,
    nodes,
    option_of,
    physical_plan,
    plan_children,
    planned_children,
    planned_function_of,
    trigger_of,
)
from spout.streaming.options import BOLTS_OPTION, STREAM_OPTION
from spout.tuples.columns import ANCHOR, BUNDLE, TASK, TO

_LABEL = "windhover "
"""Begins the name that a plan shows for an operator of this package, before the names of its bolts."""

_COLUMNS_BETWEEN_STAGES = frozenset({TO, TASK, ANCHOR}), frozenset({TASK, BUNDLE})
"""Tuples cross from one stage of a topology to the next one by one, or in bundles."""


def streams_read(rows: DataFrame) -> frozenset[str]:
    """Return the ids of the tracked streams that a DataFrame reads; empty: it reads none."""
    stream_ids = map(stream_of, nodes(logical_plan(rows)))
    # most nodes are no source, and have no id
    return frozenset(filter(None, stream_ids))


def trigger_of_reader(session: SparkSession, stream_id: str) -> str:
    """Return the class of the trigger of the query that reads a stream.

    Empty: no such query runs.
    """
    for query in session.streams.active:
        plan = java_query(query).analyzedPlan()
        if stream_id in map(stream_of, nodes(plan)):
            return trigger_of(query)
    return ""


def refuse_limit(plan: JavaObject) -> None:
    """Raise `UsageError` if `limit` or `offset` is applied to a tracked stream."""
    for node in nodes(plan):
        if node.nodeName() in CUT_SHORT and any(map(stream_of, nodes(node))):
            raise UsageError(
                f"{node.nodeName()} stands behind a tracked stream: records that it cuts off"
                " would be acked without having been written. Filter by a condition, take the"
                " limit within the function given to spout.sink from rows that were evaluated"
                " whole, or read with tracked=False"
            )


def stays(rows: DataFrame) -> bool:
    """Return whether rows still lie in the partitions of their batch: no shuffle came since."""
    if are_of_batch(rows):
        # the usual case: these are the batch's own rows. The physical plan would cost 7 ms.
        return True
    return not any(map(is_exchange, nodes(physical_plan(rows), planned_children)))


def new_identity() -> str:
    """Return an id that distinguishes operators of the same name behind Spark's own operators."""
    return uuid.uuid4().hex[:12]


def label(operator: str, identity: str = "") -> str:
    """Return the function name that plans show for an operator.

    `identity` tells operators of one name apart; empty: a new one.
    """
    return f"{_LABEL}{operator} #{identity or new_identity()}"


def may_shuffle(plan: JavaObject) -> bool:
    """Return whether Spark may shuffle the rows of some batch behind the last bolt of a query.

    `plan` is the query's logical plan, whose top is what leaves the query.
    """
    unvisited = [plan]
    while unvisited:
        node = unvisited.pop()
        if operator_of(node) or stream_of(node) or is_stage(node):
            # the last bolt, or the source: what is below runs before it
            continue
        reads_stream = any(map(stream_of, nodes(node)))
        if reads_stream and node.nodeName() not in NEVER_SHUFFLED:
            return True
        unvisited += plan_children(node)
    return False


def crosses_stages(plan: JavaObject) -> bool:
    """Return whether Spark shuffles the rows of a batch behind the last bolt, or behind the source.

    `plan` is the physical plan of the batch: from its top, an exchange then comes before the
    bolt.
    """
    # each node, with whether an exchange is above it
    unvisited = [(plan, False)]
    while unvisited:
        node, has_crossed = unvisited.pop()
        name = node.nodeName()  # each call takes a fraction of a ms, of every batch
        is_last_bolt = name == OPERATOR and (_is_ours(node) or is_stage(node))
        if name == SCAN or is_last_bolt:
            if has_crossed:
                return True
            continue
        has_crossed = has_crossed or is_exchange(node)
        unvisited += [(child, has_crossed) for child in planned_children(node)]
    return False


def execution_of_running_query(session: SparkSession, query_id: str) -> JavaObject:
    """Return the execution of a running query.

    Raises `TrackingError`: Spark has no running query of this id.
    """
    execution = execution_of(session, query_id)
    if execution is None:
        raise TrackingError(
            f"Spark does not know query {query_id}, so nobody can tell whether its plan would ack"
            " records without work"
        )
    return execution


def refuse_namesakes(labels: Iterable[str]) -> None:
    """Raise `UsageError` if two operators of a query have the same name.

    The same label may occur twice, since Spark's plan repeats a DataFrame that is used twice.

    `labels`: of the operators in a plan, as `label` returns them.
    """
    identity_by_name: dict[str, str] = {}
    for operator_label in labels:
        # "split+count #1f" has the names "split" and "count", and the identity "1f"
        identity = operator_label.rpartition(" #")[2]
        for name in operators_in(operator_label):
            first_identity = identity_by_name.setdefault(name, identity)
            if first_identity != identity:
                raise UsageError(namesakes_message(name))


def operators_in(label: str) -> list[str]:
    """Return the names of the bolts in a label, in the order in which tuples pass them.

    The label of `split` and `count` is the product's name, then ``split+count #1f``. An empty label
    has none.
    """
    operator = label.removeprefix(_LABEL).rpartition(" #")[0]
    return operator.split("+") if operator else []


def operator_of(node: JavaObject) -> str:
    """Return the label of a node that runs bolts, in an operator or in the source.

    Empty: it is any other node.
    """
    if node.nodeName() == SOURCE:
        return option_of(node, BOLTS_OPTION)
    function_name = function_of(node)
    return function_name if function_name.startswith(_LABEL) else ""


def _is_ours(node: JavaObject) -> bool:
    """Return whether a node of a physical plan runs bolts of this package."""
    return node.nodeName() == OPERATOR and planned_function_of(node).startswith(_LABEL)


def is_stage(node: JavaObject) -> bool:
    """Return whether a node is a later stage of a topology, by the columns that it reads."""
    if node.nodeName() != OPERATOR:
        return False
    columns_of_node = columns_read(node)
    # >= : the node reads all of these columns, and perhaps more
    return any(columns_of_node >= columns for columns in _COLUMNS_BETWEEN_STAGES)


def stream_of(node: JavaObject) -> str:
    """Return the id of the tracked stream that a node reads; empty: it is no source of ours."""
    return option_of(node, STREAM_OPTION) if node.nodeName() == SOURCE else ""
