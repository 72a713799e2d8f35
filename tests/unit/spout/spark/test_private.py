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
        (lambda: private.partitions_of(BARE), "DataFrame._jdf"),
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
