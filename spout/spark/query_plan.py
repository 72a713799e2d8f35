"""What Spark's plan of a DataFrame says.

Before a query runs it tells the streams that are read, what cuts them short, and operators that are called
alike; while a batch runs, whether rows are shuffled behind the last bolt.

Source: DESIGN.md, sections 5.1 and 5.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from acker.errors import TrackingError, UsageError
from spout.publishing.settle import namesakes
from spout.spark.options import BOLTS_OPTION, STREAM_OPTION
from spout.tuples.columns import ANCHOR, TASK, TO

JavaObject = Any  # py4j ships no types

_SOURCE = "StreamingRelationV2"
_OPERATOR = "MapInArrow"
_LABEL = "windhover "
_CUT_SHORT = frozenset({"GlobalLimit", "LocalLimit", "LimitAll", "Offset", "Tail"})

# Physical plans.
_ADAPTIVE = "AdaptiveSparkPlan"
_SCAN = "MicroBatchScan"
_EXCHANGE = "Exchange"  # BroadcastExchange and ReusedExchange too: the stage behind them is another one
_REUSED = "ReusedExchange"
_BETWEEN_STAGES = frozenset({TO, TASK, ANCHOR})

# Whatever else Spark has may shuffle, and is looked at in the physical plan of each batch.
_STAYS = frozenset({
    "Project", "Filter", "SubqueryAlias", "View", "Generate", "EventTimeWatermark", "CollectMetrics",
    "MapInArrow", "MapInPandas", "ResolvedHint",
})  # fmt: skip


def streams_read(rows: DataFrame) -> frozenset[str]:
    """Return the ids of the tracked `read_stream` calls that a DataFrame reads."""
    return frozenset(filter(None, map(stream_of, nodes(analyzed(rows)))))


def refuse_limit(rows: DataFrame) -> None:
    """See that nothing cuts a tracked stream short.

    Raises:
        UsageError: `limit` or `offset` stands behind a tracked stream.
    """
    _refuse_limit(analyzed(rows))


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
    return not any(map(_is_exchange, _stages(rows._jdf.queryExecution().executedPlan())))


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
        if node.nodeName() not in _STAYS and any(map(stream_of, nodes(node))):
            return True
        todo += children_of(node)
    return False


def crosses_stages(plan: JavaObject) -> bool:
    """Tell whether rows of a physical plan leave the stage of the last bolt, or of the source without one."""
    todo = [(plan, False)]
    while todo:
        node, has_crossed = todo.pop()
        if node.nodeName() == _SCAN or _works(node) or _is_stage(node):
            if has_crossed:
                return True
        else:
            has_crossed = has_crossed or _is_exchange(node)
            todo += [(child, has_crossed) for child in _as_planned(node)]
    return False


def running(session: SparkSession, query: str) -> JavaObject:
    """Return the execution of a query that runs, by its id.

    Raises:
        TrackingError: Spark does not know the query.
    """
    # The rows of foreachBatch show nothing of the plan, and their session, a clone, knows no query.
    jvm: Any = session.sparkContext._jvm
    queries = session._jsparkSession.sharedState().activeStreamingQueries()
    running = queries.get(jvm.java.util.UUID.fromString(query))
    if running is None:
        raise TrackingError(
            f"Spark does not know query {query}, so nobody can tell whether its plan would ack records"
            " without work"
        )
    return running


def _refuse_limit(plan: JavaObject) -> None:
    for node in nodes(plan):
        if node.nodeName() in _CUT_SHORT and any(map(stream_of, nodes(node))):
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
    if node.nodeName() == _SOURCE:
        return _option(node, BOLTS_OPTION)
    found = str(node.functionExpr().name()) if node.nodeName() == _OPERATOR else ""
    return found if found.startswith(_LABEL) else ""


def analyzed(rows: DataFrame) -> JavaObject:
    """Return the logical plan of rows."""
    return rows._jdf.queryExecution().analyzed()


def _works(node: JavaObject) -> bool:
    """Tell whether a node of a physical plan is an operator of ours behind Spark's own ones."""
    return node.nodeName() == _OPERATOR and str(node.func().name()).startswith(_LABEL)


def _is_stage(node: JavaObject) -> bool:
    """Tell whether a node is a stage of a topology behind its first one, by the rows that it reads."""
    if node.nodeName() != _OPERATOR:
        return False
    columns = node.children().apply(0).output()
    return _BETWEEN_STAGES.issubset(str(columns.apply(place).name()) for place in range(columns.size()))


def _is_exchange(node: JavaObject) -> bool:
    return str(node.nodeName()).endswith(_EXCHANGE)


def _stages(plan: JavaObject) -> Iterator[JavaObject]:
    """Yield a physical plan's nodes, from the top."""
    return nodes(plan, _as_planned)


def _as_planned(node: JavaObject) -> list[JavaObject]:
    """Return what a node of a physical plan reads.

    Adaptive execution hides what it has run, and may have replaced it all by "no rows": what it began with
    has every exchange.
    """
    if node.nodeName() == _ADAPTIVE:
        return [node.initialPlan()]
    return [node.child()] if node.nodeName() == _REUSED else children_of(node)


def children_of(node: JavaObject) -> list[JavaObject]:
    """Return what a node of a plan reads."""
    children = node.children()
    return [children.apply(place) for place in range(children.size())]


def nodes(
    plan: JavaObject, below: Callable[[JavaObject], list[JavaObject]] = children_of
) -> Iterator[JavaObject]:
    """Yield a plan's nodes, from the top."""
    todo = [plan]
    while todo:
        node = todo.pop()
        yield node
        todo += below(node)


def stream_of(node: JavaObject) -> str:
    """Return the id of the tracked stream that a node of a plan is; empty for any other node."""
    return _option(node, STREAM_OPTION) if node.nodeName() == _SOURCE else ""


def _option(source: JavaObject, name: str) -> str:
    found: str | None = source.extraOptions().get(name)
    return found or ""
