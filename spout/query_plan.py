"""What Spark's plan of a DataFrame says, looked at before a query runs: its streams, and what cuts it short.

Source: DESIGN.md, sections 5.1 and 5.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from acker.errors import UsageError
from spout.options import STREAM_OPTION

JavaObject = Any  # py4j ships no types

_SOURCE = "StreamingRelationV2"
_CUT_SHORT = frozenset({"GlobalLimit", "LocalLimit", "LimitAll", "Offset", "Tail"})


def streams_read(rows: DataFrame) -> frozenset[str]:
    """Return the ids of the tracked `read_stream` calls that a DataFrame reads."""
    return frozenset(filter(None, map(_stream, _nodes(_analyzed(rows)))))


def refuse_limit(rows: DataFrame) -> None:
    """See that nothing cuts a tracked stream short.

    Raises:
        UsageError: `limit` or `offset` stands behind a tracked stream.
    """
    for node in _nodes(_analyzed(rows)):
        if node.nodeName() in _CUT_SHORT and any(map(_stream, _nodes(node))):
            raise UsageError(
                f"{node.nodeName()} stands behind a tracked stream: records that it cuts off would be acked"
                " without having been written. Filter by a condition, take the limit within the function"
                " given to spout.sink from rows that were evaluated whole, or read with tracked=False"
            )


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
    if node.nodeName() != _SOURCE:
        return ""
    found: str | None = node.extraOptions().get(STREAM_OPTION)
    return found or ""
