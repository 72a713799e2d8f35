"""A SparkSession for the demo and the benchmarks: local, quiet, and with settings that are fast here."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from spout.local import java
from spout.local.jars import cache_directory
from spout.local.java import java_home_for_spark
from spout.local.spark_home import home_without_zip

SHUFFLE_PARTITIONS = 2
"""Partitions behind a shuffle; all runs on one machine, and each further partition costs a task per batch."""


def local_session(
    name: str, cache: Path, *, cores: int | None = None, further: Mapping[str, Any] | None = None
) -> SparkSession:
    """Start a local SparkSession.

    Args:
        name: the application's name.
        cache: a folder for Spark's own temporary files.
        cores: how many tasks run at once; all cores when None. A task is tried three times.
        further: settings that override those of this module, `spark.master` of a cluster on this machine
            included.
    """
    # workers run PYSPARK_PYTHON, or else the python3 of PATH, which may be another one
    python = str((further or {}).get("spark.pyspark.python") or sys.executable)
    os.environ["PYSPARK_PYTHON"] = python
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["JAVA_HOME"] = str(java_home_for_spark(java.find(os.environ), cache_directory(os.environ)))
    if python == sys.executable:
        installed = Path(pyspark.__file__).parent
        os.environ["SPARK_HOME"] = str(home_without_zip(installed, os.environ, cache_directory(os.environ)))
    builder = SparkSession.builder.master(f"local[{cores or '*'},3]").appName(name)
    for key, value in local_settings(cache, further or {}).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def local_settings(cache: Path, further: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a local session; `further` overrides them."""
    chosen = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        "spark.local.dir": str(cache),
        "spark.sql.warehouse.dir": str(cache / "warehouse"),
        "spark.driver.memory": "2g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # stopping a query with a long plan overflows the default stack
        "spark.driver.extraJavaOptions": "-Xss16m",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
    }
    return {**chosen, **further}


def warm_up(spark: SparkSession) -> None:
    """Run a small job through Python, a shuffle and Arrow.

    A first job starts Python workers, compiles and loads classes. Without this, that time would count against
    the timeout of the records in a stream's first batch.
    """
    rows = spark.range(SHUFFLE_PARTITIONS).mapInArrow(lambda batches: batches, "id long")
    rows.repartition(SHUFFLE_PARTITIONS, "id").mapInArrow(lambda batches: batches, "id long").toArrow()
