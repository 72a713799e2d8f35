"""What Spark's plan of a DataFrame says.

Before a query runs it tells the streams that are read, what cuts them short, and operators that are called
alike; while a batch runs, whether rows are shuffled behind the last bolt.

Source: docs/design/protocol.md, sections 5.1 and 5.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyspark.sql import DataFrame, SparkSession

from acker.errors import TrackingError, UsageError
from spout.publishing.settle import namesakes
from spout.spark.private import (
    CUT_SHORT,
    NEVER_SHUFFLED,
    OPERATOR,
    SCAN,
    SOURCE,
    JavaObject,
    children_of,
    columns_read,
    execution_of,
    function_of,
    is_exchange,
    logical_plan,
    nodes,
    option_of,
    physical_plan,
    planned_children,
    planned_function_of,
)
from spout.streaming.options import BOLTS_OPTION, STREAM_OPTION
from spout.tuples.columns import ANCHOR, TASK, TO

_LABEL = "windhover "
_BETWEEN_STAGES = frozenset({TO, TASK, ANCHOR})


def streams_read(rows: DataFrame) -> frozenset[str]:
    """Return the ids of the tracked `read_stream` calls that a DataFrame reads."""
    return frozenset(filter(None, map(stream_of, nodes(logical_plan(rows)))))


def refuse_limit(rows: DataFrame) -> None:
    """See that nothing cuts a tracked stream short.

    Raises:
        UsageError: `limit` or `offset` stands behind a tracked stream.
    """
    _refuse_limit(logical_plan(rows))


def refuse_plan(plan: JavaObject) -> None:
    """See that nothing of a query would be acked without work.

    Raises:
        UsageError: as `refuse_limit`; or two of its operators have one name.
    """
    _refuse_limit(plan)
    refuse_namesakes(filter(None, map(operator_of, nodes(plan))))


def may_shuffle(session: SparkSession, query: str) -> bool:
    """Tell whether some batch of a query that runs may be shuffled behind its last bolt.

    Raises:
        TrackingError: Spark does not know the query.
    """
    return is_wide(running(session, query).analyzedPlan())


def shuffles(session: SparkSession, query: str) -> bool:
    """Tell whether the batch of a query that runs now is shuffled behind its last bolt.

    Raises:
        TrackingError: Spark does not know the query.
    """
    return crosses_stages(running(session, query).lastExecution().executedPlan())


def stays(rows: DataFrame) -> bool:
    """Tell whether rows are what a batch came to, with nothing shuffled since: their partitions are fixed."""
    return not any(map(is_exchange, _stages(physical_plan(rows))))


def label(operator: str, identity: str) -> str:
    """Name the function of an operator behind Spark's own ones, as plans show it.

    Args:
        operator: the names of its bolts, joined by ``+``.
        identity: tells it from another one of that name.
    """
    return f"{_LABEL}{operator} #{identity}"


def is_wide(plan: JavaObject) -> bool:
    """Tell whether a logical plan has, behind a tracked stream, what Spark may shuffle for."""
    todo = [plan]
    while todo:
        node = todo.pop()
        if operator_of(node) or stream_of(node) or _is_stage(node):
            continue
        if node.nodeName() not in NEVER_SHUFFLED and any(map(stream_of, nodes(node))):
            return True
        todo += children_of(node)
    return False


def crosses_stages(plan: JavaObject) -> bool:
    """Tell whether rows of a physical plan leave the stage of the last bolt, or of the source without one."""
    todo = [(plan, False)]
    while todo:
        node, has_crossed = todo.pop()
        if node.nodeName() == SCAN or _works(node) or _is_stage(node):
            if has_crossed:
                return True
        else:
            has_crossed = has_crossed or is_exchange(node)
            todo += [(child, has_crossed) for child in planned_children(node)]
    return False


def running(session: SparkSession, query: str) -> JavaObject:
    """Return the execution of a query that runs, by its id.

    Raises:
        TrackingError: Spark does not know the query.
    """
    running = execution_of(session, query)
    if running is None:
        raise TrackingError(
            f"Spark does not know query {query}, so nobody can tell whether its plan would ack records"
            " without work"
        )
    return running


def _refuse_limit(plan: JavaObject) -> None:
    for node in nodes(plan):
        if node.nodeName() in CUT_SHORT and any(map(stream_of, nodes(node))):
            raise UsageError(
                f"{node.nodeName()} stands behind a tracked stream: records that it cuts off would be acked"
                " without having been written. Filter by a condition, take the limit within the function"
                " given to spout.sink from rows that were evaluated whole, or read with tracked=False"
            )


def refuse_namesakes(labels: Iterable[str]) -> None:
    """See that what operators of a query are called tells them apart.

    One label may come twice: Spark's plan repeats a DataFrame that is used twice.

    Raises:
        UsageError: two operators have one name.
    """
    known: dict[str, str] = {}
    for each in labels:
        operator, _, identity = each.removeprefix(_LABEL).rpartition(" #")
        for name in operator.split("+"):
            if known.setdefault(name, identity) != identity:
                raise UsageError(namesakes(name))


def operator_of(node: JavaObject) -> str:
    """Return the label of the operator, or of the source's bolts, that a node is; empty for any other."""
    if node.nodeName() == SOURCE:
        return option_of(node, BOLTS_OPTION)
    found = function_of(node) if node.nodeName() == OPERATOR else ""
    return found if found.startswith(_LABEL) else ""


def _works(node: JavaObject) -> bool:
    """Tell whether a node of a physical plan is an operator of ours behind Spark's own ones."""
    return node.nodeName() == OPERATOR and planned_function_of(node).startswith(_LABEL)


def _is_stage(node: JavaObject) -> bool:
    """Tell whether a node is a stage of a topology behind its first one, by the rows that it reads."""
    if node.nodeName() != OPERATOR:
        return False
    return columns_read(node) >= _BETWEEN_STAGES


def _stages(plan: JavaObject) -> Iterator[JavaObject]:
    """Yield a physical plan's nodes, from the top."""
    return nodes(plan, planned_children)


def stream_of(node: JavaObject) -> str:
    """Return the id of the tracked stream that a node of a plan is; empty for any other node."""
    return option_of(node, STREAM_OPTION) if node.nodeName() == SOURCE else ""
