"""What Spark's plan of a DataFrame says, looked at before a query runs.

It tells the streams that are read, what cuts them short, and operators that are called alike.

Source: DESIGN.md, sections 5.1 and 5.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from acker.errors import TrackingError, UsageError
from spout.options import BOLTS_OPTION, STREAM_OPTION
from spout.settle import namesakes

JavaObject = Any  # py4j ships no types

_SOURCE = "StreamingRelationV2"
_OPERATOR = "MapInArrow"
_LABEL = "windhover "
_CUT_SHORT = frozenset({"GlobalLimit", "LocalLimit", "LimitAll", "Offset", "Tail"})


def streams_read(rows: DataFrame) -> frozenset[str]:
    """Return the ids of the tracked `read_stream` calls that a DataFrame reads."""
    return frozenset(filter(None, map(_stream, _nodes(_analyzed(rows)))))


def refuse_limit(rows: DataFrame) -> None:
    """See that nothing cuts a tracked stream short.

    Raises:
        UsageError: `limit` or `offset` stands behind a tracked stream.
    """
    _refuse_limit(_analyzed(rows))


def refuse_plan(rows: DataFrame) -> None:
    """See that nothing of a query would be acked without work, before it starts.

    Raises:
        UsageError: as `refuse_limit`; or two of its operators have one name.
    """
    _refuse_plan(_analyzed(rows))


def refuse_plan_of(session: SparkSession, query: str) -> None:
    """See the same of a query that runs, by its id, from within its `foreachBatch`.

    Raises:
        UsageError: as `refuse_plan`.
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
    _refuse_plan(running.analyzedPlan())


def label(operator: str, identity: str) -> str:
    """Name the function of an operator behind Spark's own ones, as plans show it.

    Args:
        operator: the names of its bolts, joined by ``+``.
        identity: tells it from another one of that name.
    """
    return f"{_LABEL}{operator} #{identity}"


def _refuse_plan(plan: JavaObject) -> None:
    _refuse_limit(plan)
    refuse_namesakes(filter(None, map(_operator, _nodes(plan))))


def _refuse_limit(plan: JavaObject) -> None:
    for node in _nodes(plan):
        if node.nodeName() in _CUT_SHORT and any(map(_stream, _nodes(node))):
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


def _operator(node: JavaObject) -> str:
    """Return the label of the operator, or of the source's bolts, that a node is; empty for any other."""
    if node.nodeName() == _SOURCE:
        return _option(node, BOLTS_OPTION)
    found = str(node.functionExpr().name()) if node.nodeName() == _OPERATOR else ""
    return found if found.startswith(_LABEL) else ""


def _analyzed(rows: DataFrame) -> JavaObject:
    return rows._jdf.queryExecution().analyzed()


def _nodes(plan: JavaObject) -> Iterator[JavaObject]:
    """Yield a plan's nodes, from the top."""
    todo = [plan]
    while todo:
        node = todo.pop()
        yield node
        children = node.children()
        todo += [children.apply(place) for place in range(children.size())]


def _stream(node: JavaObject) -> str:
    """Return the id of the tracked stream that a node of a plan is; empty for any other node."""
    return _option(node, STREAM_OPTION) if node.nodeName() == _SOURCE else ""


def _option(source: JavaObject, name: str) -> str:
    found: str | None = source.extraOptions().get(name)
    return found or ""
