"""Everything that PySpark and Spark do not promise to keep: underscore names, Catalyst's nodes, Arrow types.

No other file touches them. Each function says what it needs and returns plain values, or Java objects that
are handed to another function of this file. Run on PySpark 4.2 and 4.3; where a name is gone, the error says
which one and what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
import pyspark
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import DataType, StructType

from acker.errors import TrackingError

RUN_ON: Final = "4.2 and 4.3"
"""The versions of PySpark that these names were seen in."""

JavaObject = Any  # py4j ships no types

# What Catalyst calls its nodes.
SOURCE: Final = "StreamingRelationV2"
OPERATOR: Final = "MapInArrow"
UNION: Final = "Union"
WATERMARK: Final = "EventTimeWatermark"
CUT_SHORT: Final = frozenset({"GlobalLimit", "LocalLimit", "LimitAll", "Offset", "Tail"})
NEVER_SHUFFLED: Final = frozenset({
    "Project", "Filter", "SubqueryAlias", "View", "Generate", "EventTimeWatermark", "CollectMetrics",
    "MapInArrow", "MapInPandas", "ResolvedHint",
})  # fmt: skip
"""Logical nodes that Spark never shuffles for."""
SCAN: Final = "MicroBatchScan"
_ADAPTIVE: Final = "AdaptiveSparkPlan"
# BroadcastExchange and ReusedExchange end so too: the stage behind them is another one
_EXCHANGE: Final = "Exchange"
_REUSED: Final = "ReusedExchange"
_ALIAS: Final = "Alias"


@contextmanager
def _there(name: str) -> Iterator[None]:
    """Say what is not there where a version of PySpark lacks a name.

    Raises:
        TrackingError: it is gone.
    """
    try:
        yield
    except (AttributeError, ImportError) as error:
        raise TrackingError(
            f"PySpark {pyspark.__version__} has no {name} ({error}); Windhover was run on {RUN_ON}: install"
            " one of them"
        ) from error


def logical_plan(rows: DataFrame) -> JavaObject:
    """Return the analysed logical plan of rows."""
    with _there("DataFrame._jdf"):
        return rows._jdf.queryExecution().analyzed()


def physical_plan(rows: DataFrame) -> JavaObject:
    """Return the physical plan of rows, as it is executed."""
    with _there("DataFrame._jdf"):
        return rows._jdf.queryExecution().executedPlan()


def execution_of(session: SparkSession, query: str) -> JavaObject | None:
    """Return the execution of a query that runs, by its id; None: Spark does not know it.

    The rows of foreachBatch show nothing of the plan, and their session, a clone, knows no query.
    """
    with _there("SparkSession._jsparkSession or SparkContext._jvm"):
        jvm: Any = session.sparkContext._jvm
        queries = session._jsparkSession.sharedState().activeStreamingQueries()
        return queries.get(jvm.java.util.UUID.fromString(query))


def java_query(query: StreamingQuery) -> JavaObject:
    """Return the execution behind a query's handle."""
    with _there("StreamingQuery._jsq"):
        return query._jsq.streamingQuery()


def trigger_of(query: StreamingQuery) -> str:
    """Return the class of a query's trigger, without its package."""
    return str(java_query(query).trigger().getClass().getSimpleName())


def session_uuid(session: SparkSession) -> str:
    """Name a Spark session within its application; each Python object of it has the same name."""
    with _there("SparkSession._jsparkSession"):
        return str(session._jsparkSession.sessionUUID())


def most_tasks(context: SparkContext, stage: int) -> int:
    """Return the tasks of the attempt of a stage that had most of them."""
    with _there("SparkContext._jsc"):
        store = context._jsc.sc().statusStore()
    # Spark's own way of leaving arguments out, which py4j lacks
    left_out = [getattr(store, f"stageData$default${place}")() for place in range(2, 6)]
    attempts = store.stageData(stage, *left_out)
    return max(int(attempts.apply(place).numTasks()) for place in range(attempts.size()))


def jobs_of(context: SparkContext, group: str | None) -> JavaObject:
    """Return the ids of the jobs of a group that Spark remembers, as Java has them.

    A list of them would ask the JVM once for each.
    """
    with _there("StatusTracker._jtracker"):
        return context.statusTracker()._jtracker.getJobIdsForGroup(group)


def children_of(node: JavaObject) -> list[JavaObject]:
    """Return what a node of a plan reads."""
    children = node.children()
    return [children.apply(place) for place in range(children.size())]


def planned_children(node: JavaObject) -> list[JavaObject]:
    """Return what a node of a physical plan reads.

    Adaptive execution hides what it has run, and may have replaced it all by "no rows": what it began with
    has every exchange.
    """
    if node.nodeName() == _ADAPTIVE:
        return [node.initialPlan()]
    return [node.child()] if node.nodeName() == _REUSED else children_of(node)


def nodes(
    plan: JavaObject, below: Callable[[JavaObject], list[JavaObject]] = children_of
) -> Iterator[JavaObject]:
    """Yield a plan's nodes, from the top."""
    todo = [plan]
    while todo:
        node = todo.pop()
        yield node
        todo += below(node)


def is_exchange(node: JavaObject) -> bool:
    """Tell whether a node of a physical plan begins another stage."""
    return str(node.nodeName()).endswith(_EXCHANGE)


def is_alias(expression: JavaObject) -> bool:
    """Tell whether an expression gives another one a name."""
    return str(expression.getClass().getSimpleName()) == _ALIAS


def option_of(source: JavaObject, name: str) -> str:
    """Return an option of a source; empty: it has none of that name."""
    found: str | None = source.extraOptions().get(name)
    return found or ""


def function_of(operator: JavaObject) -> str:
    """Return the name of the function of a logical `OPERATOR`."""
    return str(operator.functionExpr().name())


def planned_function_of(operator: JavaObject) -> str:
    """Return the name of the function of a physical `OPERATOR`."""
    return str(operator.func().name())


def columns_read(operator: JavaObject) -> set[str]:
    """Return the names of the columns that an `OPERATOR` reads."""
    columns = operator.children().apply(0).output()
    return {str(columns.apply(place).name()) for place in range(columns.size())}


def arrow_schema_of(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of Spark's, with times in UTC."""
    with _there("pyspark.sql.pandas.types.to_arrow_schema"):
        from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def arrow_type_of(kind: DataType) -> pa.DataType:
    """Return the Arrow type of Spark's, with times in UTC."""
    with _there("pyspark.sql.pandas.types.to_arrow_type"):
        from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(kind, timezone="UTC")


def spark_schema_of(schema: pa.Schema) -> StructType:
    """Return Spark's schema of Arrow's."""
    with _there("pyspark.sql.pandas.types.from_arrow_schema"):
        from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def spark_type_of(kind: pa.DataType) -> DataType:
    """Return Spark's type of Arrow's."""
    with _there("pyspark.sql.pandas.types.from_arrow_type"):
        from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(kind)


def pandas_converter_of(kind: DataType) -> Callable[[Any], Any]:
    """Return the function by which Spark brings a pandas Series of a nested type into Arrow's form."""
    with _there("pyspark.sql.pandas.types._create_converter_from_pandas"):
        from pyspark.sql.pandas.types import _create_converter_from_pandas

    found: Callable[[Any], Any] = _create_converter_from_pandas(
        kind, timezone="UTC", error_on_duplicated_field_names=False
    )
    return found
