"""Where PySpark has lost a name, the error says which one, which version, and what to do.

That each function does what it says is seen by the tests that run Spark: tests/integration/spark.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

from acker.errors import TrackingError
from spout.spark import private

BARE: Any = SimpleNamespace(sparkContext=SimpleNamespace(), statusTracker=SimpleNamespace)


@pytest.mark.parametrize(
    ("called", "name"),
    [
        (lambda: private.logical_plan(BARE), "DataFrame._jdf"),
        (lambda: private.physical_plan(BARE), "DataFrame._jdf"),
        (lambda: private.partition_count_of(BARE), "DataFrame._jdf"),
        (lambda: private.are_of_batch(BARE), "DataFrame._jdf"),
        (lambda: private.continue_partitions(BARE, BARE), "SQLPartitioningAwareUnionRDD"),
        (lambda: private.execution_of(BARE, "q"), "SparkContext._jvm"),
        (lambda: private.rows_of(BARE), "DataStreamWriter._df"),
        (lambda: private.java_query(BARE), "StreamingQuery._jsq"),
        (lambda: private.trigger_of(BARE), "StreamingQuery._jsq"),
        (lambda: private.session_uuid(BARE), "SparkSession._jsparkSession"),
        (lambda: private.most_tasks(BARE, 1), "SparkContext._jsc"),
        (lambda: private.executors_of(BARE), "SparkContext._jsc"),
        (lambda: private.task_ends_of(BARE, 1), "SparkContext._jsc"),
        (lambda: private.jobs_of(BARE, "g"), "StatusTracker._jtracker"),
    ],
)
def test_a_name_that_is_gone_is_named_with_the_version_and_the_cure(
    called: Callable[[], Any], name: str
) -> None:
    with pytest.raises(TrackingError) as raised:
        called()
    assert name in str(raised.value)
    assert f"PySpark {pyspark.__version__} has no" in str(raised.value)
    assert f"run on {private.RUN_ON}: install one" in str(raised.value)


def rows_on(rdd: object, session: object = None) -> Any:
    """Make rows whose plan is an RDD, and which Spark runs as that."""
    plan = SimpleNamespace(rdd=lambda: rdd)
    execution = SimpleNamespace(analyzed=lambda: plan, toRdd=lambda: rdd)
    return SimpleNamespace(_jdf=SimpleNamespace(queryExecution=lambda: execution), sparkSession=session)


class JavaClasses:
    """Stands for py4j's classes: returns what it was called with, under the name of the class."""

    def __init__(self, name: str, _client: object) -> None:
        self.name = name.rpartition(".")[2]

    def __call__(self, *arguments: Any) -> Any:
        return self.name, *arguments

    def __getattr__(self, method: str) -> Any:
        if method == "MODULE$":
            return self
        return lambda *arguments: (f"{self.name}.{method}", *arguments)


@pytest.mark.parametrize("has_four", [True, False])
def test_a_partition_of_rows_comes_before_its_end(has_four: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 3: an end that came first would report rows that nobody has read yet."""
    rdd = SimpleNamespace(
        sparkContext=lambda: "context", getNumPartitions=lambda: 3, elementClassTag=lambda: "tag"
    )
    jvm = SimpleNamespace(_gateway_client="client")
    session = SimpleNamespace(sparkContext=SimpleNamespace(_jvm=jvm), _jsparkSession="java session")
    rows = rows_on(rdd, session)
    monkeypatch.setattr(private, "JavaClass", JavaClasses)
    monkeypatch.setattr(private, "DataFrame", lambda java_rows, session: (java_rows, session))
    monkeypatch.setattr(private, "ROWS_HAVE_FOUR_ARGUMENTS", has_four)
    java_rows, of_session = private.continue_partitions(rows, rows_on("ends"))
    union = (
        "SQLPartitioningAwareUnionRDD", "context", ("PythonUtils.toSeq", [rdd, "ends"]), 3, "tag",
    )  # fmt: skip
    default = [("LogicalRDD$.fromDataset$default$4",)] if has_four else []
    plan = ("LogicalRDD$.fromDataset", union, rows._jdf, False, *default)
    assert java_rows == ("Dataset.ofRows", "java session", plan)
    assert of_session is session


class Locations(list[str]):
    """A sequence of Scala's."""

    def size(self) -> int:
        return len(self)

    def apply(self, index: int) -> str:
        return self[index]


@pytest.mark.parametrize(
    ("master", "partitions", "locations", "expected"),
    [
        ("local[2]", 1, ["executor_a_1"], False),
        ("local", 1, ["executor_a_1"], False),
        ("local[2,3]", 1, ["executor_a_1"], False),
        ("local-cluster[2,1,1024]", 1, ["executor_a_1"], True),
        ("spark://a:7077", 1, ["a", "executor_a_1"], True),
        ("yarn", 1, ["a", "hdfs_cache_a"], False),
        ("yarn", 1, [], False),
        ("yarn", 0, ["executor_a_1"], False),
    ],
)
def test_rows_prefer_executors_where_one_of_a_cluster_has_their_state(
    master: str, partitions: int, locations: list[str], expected: bool
) -> None:
    java_context = SimpleNamespace(getPreferredLocs=lambda _rdd, _partition: Locations(locations))
    context = SimpleNamespace(master=master, _jsc=SimpleNamespace(sc=lambda: java_context))
    rdd = SimpleNamespace(getNumPartitions=lambda: partitions)
    assert private.prefer_executors(rows_on(rdd, SimpleNamespace(sparkContext=context))) is expected
