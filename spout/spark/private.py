"""What PySpark and Spark may change without notice: underscore names, Catalyst's nodes.

No other file uses them. Each function returns plain values, or Java objects that are passed to
another function of this file. If a name is missing, the error has the name and the cure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import pyspark
from py4j.java_gateway import JavaClass
from pyspark import SparkContext, StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from acker.errors import TrackingError
from spout.spark.versions import ROWS_HAVE_FOUR_ARGUMENTS

RUN_ON: Final = "4.0 to 4.3"
"""The versions of PySpark on which these names were run."""

JavaObject = Any  # py4j ships no types

# Catalyst's names of its nodes.
SOURCE: Final = "StreamingRelationV2"
OPERATOR: Final = "MapInArrow"
UNION: Final = "Union"
_KEYED: Final = "FlatMapGroupsInPandasWithState"
_NO_TICKS: Final = "NoTimeout"
WATERMARK: Final = "EventTimeWatermark"
CUT_SHORT: Final = frozenset({"GlobalLimit", "LocalLimit", "LimitAll", "Offset", "Tail"})
NEVER_SHUFFLED: Final = frozenset({
    "Project", "Filter", "SubqueryAlias", "View", "Generate", "EventTimeWatermark", "CollectMetrics",
    "MapInArrow", "MapInPandas", "ResolvedHint",
})  # fmt: skip
"""Logical nodes for which Spark never shuffles."""
SCAN: Final = "MicroBatchScan"
BATCH_ROWS: Final = "LogicalRDD"
"""What a function of foreachBatch gets: rows as they came, without a plan below."""
_ADAPTIVE: Final = "AdaptiveSparkPlan"
_DROPPED: Final = "numRowsDroppedByWatermark"
# BroadcastExchange and ReusedExchange end like this too; another stage is behind them
_EXCHANGE: Final = "Exchange"
_REUSED: Final = "ReusedExchange"
_ALIAS: Final = "Alias"
_FUNCTION: Final = "PythonUDF"
_PROJECT: Final = "Project"
_TASKS_MAX: Final = 1_000


@contextmanager
def requiring(name: str) -> Iterator[None]:
    """Raise `TrackingError`, with the cure, where the body finds that PySpark lacks a name."""
    try:
        yield
    except (AttributeError, ImportError) as error:
        raise TrackingError(
            f"PySpark {pyspark.__version__} has no {name} ({error}); Windhover was run on"
            f" {RUN_ON}: install one of them"
        ) from error


def logical_plan(rows: DataFrame) -> JavaObject:
    """Return the analyzed plan of rows, as it was written."""
    with requiring("DataFrame._jdf"):
        return rows._jdf.queryExecution().analyzed()


def physical_plan(rows: DataFrame) -> JavaObject:
    """Return the plan by which Spark runs rows, with its shuffles; it takes some ms."""
    with requiring("DataFrame._jdf"):
        return rows._jdf.queryExecution().executedPlan()


def are_of_batch(rows: DataFrame) -> bool:
    """Return whether rows are an RDD without a plan, as foreachBatch gives them."""
    return bool(logical_plan(rows).nodeName() == BATCH_ROWS)


def _rdd_of_batch(rows: DataFrame) -> JavaObject:
    """Return the RDD that rows of foreachBatch are (`are_of_batch`)."""
    return logical_plan(rows).rdd()


def are_kept(rows: DataFrame) -> bool:
    """Return whether somebody has persisted rows, so that Spark reads them from its cache."""
    return rows.storageLevel != StorageLevel.NONE


def prefer_executors(rows: DataFrame) -> bool:
    """Return whether Spark prefers executors for rows of foreachBatch: those that have their state.

    It tells by the first partition. On a local master there is one executor, so none is preferred.
    """
    context: Any = rows.sparkSession.sparkContext
    if context.master == "local" or context.master.startswith("local["):
        return False
    with requiring("SparkContext.getPreferredLocs"):
        rdd = _rdd_of_batch(rows)
        if not rdd.getNumPartitions():
            return False
        locations = sequence(context._jsc.sc().getPreferredLocs(rdd, 0))
        # such as executor_host7_3; a host alone is host7
        return any(str(location).startswith("executor_") for location in locations)


def partition_count_of(rows: DataFrame) -> int:
    """Return how many partitions rows have.

    `rows.rdd` has the same number, but would plan the rows once more for Python.
    """
    with requiring("DataFrame._jdf"):
        execution = rows._jdf.queryExecution()
        plan = execution.analyzed()
        # rows of foreachBatch are an RDD already; to plan them once more would take 5 ms of each
        # batch
        rdd = plan.rdd() if plan.nodeName() == BATCH_ROWS else execution.toRdd()
        return int(rdd.getNumPartitions())


def continue_partitions(rows: DataFrame, ends: DataFrame) -> DataFrame:
    """Return rows of foreachBatch, with a partition of `ends` behind the rows of each partition.

    Spark begins a partition of `ends` when a task has taken the last row before it, and asks for
    one more. The result has the columns and statistics of the batch, and says the same of how its
    rows are spread and sorted: so `ends` has as many partitions, and no rows.

    Source: Spark's `ForeachBatchSink` and `PartitionerAwareUnionRDDBase`.
    """
    with requiring("SQLPartitioningAwareUnionRDD or LogicalRDD.fromDataset"):
        session = rows.sparkSession
        context: Any = session.sparkContext
        client = context._jvm._gateway_client
        batch_rdd = _rdd_of_batch(rows)
        ends_rdd = ends._jdf.queryExecution().toRdd()
        to_seq = JavaClass("org.apache.spark.api.python.PythonUtils", client).toSeq
        union = JavaClass("org.apache.spark.rdd.SQLPartitioningAwareUnionRDD", client)(
            batch_rdd.sparkContext(),
            # in this order: a task takes all of the first before it begins the second
            to_seq([batch_rdd, ends_rdd]),
            batch_rdd.getNumPartitions(),
            batch_rdd.elementClassTag(),
        )
        # Scala's companion object of a class
        companion_class = JavaClass("org.apache.spark.sql.execution.LogicalRDD$", client)
        logical_rdd = getattr(companion_class, "MODULE$")
        arguments = [union, rows._jdf, False]  # False: the rows are no stream any more
        if ROWS_HAVE_FOUR_ARGUMENTS:
            arguments.append(getattr(logical_rdd, "fromDataset$default$4")())
        plan = logical_rdd.fromDataset(*arguments)
        dataset = JavaClass("org.apache.spark.sql.classic.Dataset", client)
        return DataFrame(dataset.ofRows(session._jsparkSession, plan), session)


def execution_of(session: SparkSession, query_id: str) -> JavaObject | None:
    """Return the execution of a running query, by its id; None: Spark has no such query.

    The rows of foreachBatch do not show the query's plan, and their session is a clone, without
    queries.
    """
    with requiring("SparkSession._jsparkSession or SparkContext._jvm"):
        # the class by its full name: as jvm.java.util.UUID it would cost a call to the JVM for
        # each of
        # the three names, in every batch
        jvm: Any = session.sparkContext._jvm
        uuid = JavaClass("java.util.UUID", jvm._gateway_client)
        queries = session._jsparkSession.sharedState().activeStreamingQueries()
        return queries.get(uuid.fromString(query_id))


def rows_of(writer: DataStreamWriter) -> DataFrame:
    """Return the rows that a writer would write."""
    with requiring("DataStreamWriter._df"):
        return writer._df


def java_query(query: StreamingQuery) -> JavaObject:
    """Return the execution behind a query's handle."""
    with requiring("StreamingQuery._jsq"):
        return query._jsq.streamingQuery()


def last_planned_batch(execution: JavaObject) -> int | None:
    """Return the id of the batch that a query runs, or ran last; None: it has planned none."""
    batch = execution.lastExecution()
    return None if batch is None else int(batch.currentBatchId())


def last_reported_batch(execution: JavaObject) -> int | None:
    """Return the id of the last batch whose progress Spark remembers; None: it remembers none."""
    progress = execution.lastProgress()
    return None if progress is None else int(progress.batchId())


def first_reported_batch(execution: JavaObject) -> int | None:
    """Return the id of the first batch whose progress Spark remembers; None: it remembers none."""
    progresses = execution.recentProgress()
    return int(progresses[0].batchId()) if len(progresses) else None


def has_committed(execution: JavaObject, batch: int) -> bool:
    """Return whether Spark's commit log has a batch; the last two are in memory."""
    return bool(execution.commitLog().get(batch).isDefined())


def trigger_of(query: StreamingQuery) -> str:
    """Return the class of a query's trigger, without its package and the `$` of an object."""
    return str(java_query(query).trigger().getClass().getSimpleName()).rstrip("$")


def session_uuid(session: SparkSession) -> str:
    """Return the id of a Spark session in its application.

    All Python objects of a session share it.
    """
    with requiring("SparkSession._jsparkSession"):
        return str(session._jsparkSession.sessionUUID())


def has_ended(context: SparkContext) -> bool:
    """Return whether a SparkContext was stopped."""
    with requiring("SparkContext._jsc"):
        return context._jsc is None


def most_tasks(context: SparkContext, stage: int) -> int:
    """Return how many tasks a stage had; if Spark ran it several times, in its largest run.

    Spark calls a run an attempt.
    """
    with requiring("SparkContext._jsc"):
        store = context._jsc.sc().statusStore()
    # py4j does not fill in Scala's default arguments; Scala has a method for each:
    # stageData$default$2 and on
    defaults = [getattr(store, f"stageData$default${number}")() for number in range(2, 6)]
    runs = sequence(store.stageData(stage, *defaults))
    return max(int(run.numTasks()) for run in runs)


class WatermarkCount(NamedTuple):
    """What a node of a physical plan saw of its batch: its column, delay and highest event time, ms."""

    column: str
    delay_ms: int
    highest_ms: int


class PlanCounts(NamedTuple):
    """What the nodes of a physical plan counted of a batch.

    Attributes:
        dropped: rows that a watermark dropped, over all operators with state.
        watermarks: one for each `withWatermark` in the plan, from its top; None where it saw no
            row.
    """

    dropped: int
    watermarks: tuple[WatermarkCount | None, ...]


def counts_of_plan(plan: JavaObject) -> PlanCounts:
    """Return what a batch's physical plan has counted so far; what ran twice counts twice."""
    dropped = 0
    watermarks: list[WatermarkCount | None] = []
    unvisited = [plan]
    while unvisited:
        node = unvisited.pop()
        # reversed, since `pop` takes the last one: the first child comes first
        unvisited += reversed(planned_children(node))
        if node.nodeName() == WATERMARK:
            watermarks.append(_watermark_count(node))
        elif node.metrics().contains(_DROPPED):
            dropped += int(node.metrics().apply(_DROPPED).value())
    return PlanCounts(dropped, tuple(watermarks))


def _watermark_count(node: JavaObject) -> WatermarkCount | None:
    """Return what a watermark's node saw; None: it saw no row."""
    with requiring("EventTimeWatermarkExec.eventTimeStats"):
        stats = node.eventTimeStats().value()
        if not int(stats.count()):
            return None
        return WatermarkCount(str(node.eventTime().name()), int(node.delayMs()), int(stats.max()))


class SparkExecutor(NamedTuple):
    """An executor of an application: its id, its machine, and how many cores it has."""

    id: str
    host: str
    cores: int


class TaskEnd(NamedTuple):
    """Where a task ran, and with which error it failed; empty: it did not."""

    executor: str
    host: str
    error: str


def executors_of(context: SparkContext) -> list[SparkExecutor]:
    """Return the living executors; with a local master the driver is the only one."""
    with requiring("SparkContext._jsc"):
        java_executors = context._jsc.sc().statusStore().executorList(True)
    drivers: list[SparkExecutor] = []
    executors: list[SparkExecutor] = []
    for java_executor in sequence(java_executors):
        host = java_executor.hostPort().rpartition(":")[0]
        executor = SparkExecutor(java_executor.id(), host, int(java_executor.totalCores()))
        if executor.id == "driver":
            drivers.append(executor)
        else:
            executors.append(executor)
    is_local = (context.master or "").startswith("local")
    if not executors and is_local:
        return drivers
    return executors


def task_ends_of(context: SparkContext, stage: int) -> list[TaskEnd]:
    """Return the tasks of a stage that Spark knows to have ended, at most `_TASKS_MAX`."""
    with requiring("SparkContext._jsc"):
        tasks = context._jsc.sc().statusStore().taskList(stage, 0, _TASKS_MAX)
    task_ends: list[TaskEnd] = []
    for task in sequence(tasks):
        if task.status() == "RUNNING":
            continue
        message = task.errorMessage()
        error = str(message.get()) if message.isDefined() else ""
        task_ends.append(TaskEnd(task.executorId(), task.host(), error))
    return task_ends


def jobs_of(context: SparkContext, group: str | None) -> JavaObject:
    """Return the ids of a group's jobs that Spark remembers, as a Java array.

    A Python list would need a call to the JVM for each id.
    """
    with requiring("StatusTracker._jtracker"):
        return context.statusTracker()._jtracker.getJobIdsForGroup(group)


def sequence(elements: JavaObject) -> list[JavaObject]:
    """Return the elements of one of Scala's sequences; each is a call to the JVM."""
    return [elements.apply(index) for index in range(elements.size())]


def plan_children(node: JavaObject) -> list[JavaObject]:
    """Return the children of a node of a logical plan."""
    return sequence(node.children())


def planned_children(node: JavaObject) -> list[JavaObject]:
    """Return the children of a node of a physical plan.

    Adaptive execution hides what it has run, and may have replaced all of it by "no rows"; its
    initial plan has every exchange.
    """
    name = node.nodeName()
    if name == _ADAPTIVE:
        return [node.initialPlan()]
    return [node.child()] if name == _REUSED else plan_children(node)


def nodes(
    plan: JavaObject, children_of: Callable[[JavaObject], list[JavaObject]] = plan_children
) -> Iterator[JavaObject]:
    """Yield a plan's nodes, from the top; of a physical plan with `planned_children`."""
    unvisited = [plan]
    while unvisited:
        node = unvisited.pop()
        yield node
        unvisited += children_of(node)


def is_exchange(node: JavaObject) -> bool:
    """Return whether a node of a physical plan begins another stage."""
    return str(node.nodeName()).endswith(_EXCHANGE)


def is_alias(expression: JavaObject) -> bool:
    """Return whether an expression gives another one a name."""
    return str(expression.getClass().getSimpleName()) == _ALIAS


def ticks(node: JavaObject) -> bool:
    """Return whether a node of a logical plan is a keyed bolt that Spark calls at ticks."""
    return node.nodeName() == _KEYED and str(node.timeout().toString()) != _NO_TICKS


def option_of(source: JavaObject, name: str) -> str:
    """Return an option of a source; empty if it has none of that name."""
    option: str | None = source.extraOptions().get(name)
    return option or ""


def function_of(node: JavaObject) -> str:
    """Return the name of the Python function of a node of a logical plan.

    The node runs it on its rows, or computes its last column by it. Empty: there is none.
    """
    if node.nodeName() == OPERATOR:
        return str(node.functionExpr().name())
    if node.nodeName() != _PROJECT:
        return ""
    # spout.hold adds its function as the last column of a Project
    last_column = node.projectList().lastOption()
    if last_column.isEmpty() or not is_alias(last_column.get()):
        return ""
    expression = last_column.get().child()
    is_function = expression.getClass().getSimpleName() == _FUNCTION
    return str(expression.name()) if is_function else ""


def planned_function_of(operator: JavaObject) -> str:
    """Return the name of the function of a physical `OPERATOR`."""
    return str(operator.func().name())


def columns_read(operator: JavaObject) -> set[str]:
    """Return the names of the columns that an operator gets from the node below it."""
    attributes = operator.children().apply(0).output()
    return {str(attribute.name()) for attribute in sequence(attributes)}
