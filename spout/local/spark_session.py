"""A SparkSession: a local one, quiet and with settings that are fast here, or the driver of a cluster."""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyspark
from pyspark.sql import SparkSession

from spout.local import java
from spout.local.jars import cache_directory, make_folder, written_whole
from spout.spark.renamed import CHECKPOINT_FILES

SHUFFLE_PARTITIONS = 2
"""Partitions behind a shuffle; all runs on one machine, and each further partition costs a task per batch."""

HASHED_GROUPS = 100_000
"""Groups that a task aggregates in memory; of more, it sorts all rows, and by default that is of 128."""

_HOME_NAME: Final = "spark-without-zip-"
_HOME_ENTRIES: Final = ("bin", "jars", "sbin")
"""The entries of SPARK_HOME that Spark itself uses."""


def local_session(
    name: str, cache: Path, *, cores: int | None = None, further: Mapping[str, Any] | None = None
) -> SparkSession:
    """Start a local SparkSession with `cores` tasks at once, or one for each core; a task is tried thrice.

    `cache` is a folder for Spark's own temporary files. `further` settings override those of this module,
    `spark.master` of a cluster on this machine included.
    """
    # workers run PYSPARK_PYTHON, or else the python3 of PATH, which may be another one
    python = str((further or {}).get("spark.pyspark.python") or sys.executable)
    os.environ["PYSPARK_PYTHON"] = python
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    windhover_cache = cache_directory(os.environ)
    java_home = java.java_home_for_spark(java.find(os.environ), windhover_cache)
    os.environ["JAVA_HOME"] = str(java_home)
    if python == sys.executable:  # else workers import the PySpark of another installation
        installed = Path(pyspark.__file__).parent
        os.environ["SPARK_HOME"] = str(home_without_zip(installed, os.environ, windhover_cache))
    # so many tasks at once, and each is tried three times
    builder = SparkSession.builder.master(f"local[{cores or '*'},3]").appName(name)
    return builder.config(map=local_settings(cache, further or {})).getOrCreate()


def cluster_session(name: str, master: str, settings: Mapping[str, Any]) -> SparkSession:
    """Start the driver of a cluster here, with the settings of an installation and these.

    Its Python processes run `spark.pyspark.python`, else PYSPARK_PYTHON, else this program's interpreter.
    """
    # without this Spark would run the python3 of PATH: only spark-submit passes on the setting
    python = settings.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable
    os.environ["PYSPARK_PYTHON"] = str(python)
    builder = SparkSession.builder.master(master).appName(name)
    return builder.config(map=dict(settings)).getOrCreate()


def local_settings(cache: Path, further: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a local session; `further` overrides them."""
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": str(HASHED_GROUPS),
        "spark.local.dir": str(cache),
        "spark.sql.warehouse.dir": str(cache / "warehouse"),
        "spark.driver.memory": "2g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # stopping a query with a long plan overflows the default stack
        "spark.driver.extraJavaOptions": "-Xss16m",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINT_FILES,
        **further,
    }


def warm_up(spark: SparkSession) -> None:
    """Run a small job through Python, a shuffle and Arrow.

    Otherwise the time to start Python workers and to load classes would count against the timeout of the
    records in a stream's first batch.
    """
    rows = spark.range(SHUFFLE_PARTITIONS).mapInArrow(lambda batches: batches, "id long")
    rows.repartition(SHUFFLE_PARTITIONS, "id").mapInArrow(lambda batches: batches, "id long").toArrow()


def home_without_zip(installed: Path, environ: Mapping[str, str], cache: Path) -> Path:
    """Return a SPARK_HOME with which Python processes import the installed PySpark, not the sources
    in a zip.

    Spark puts ``SPARK_HOME/python/lib/pyspark.zip`` first on the path of each Python process that it starts.
    Python keeps no bytecode of modules in a zip, so each process compiles PySpark again. On a slow or busy
    machine that takes longer than the 10 s after which Spark gives a process up ("Python worker failed to
    connect back"), and no setting changes this limit.

    That of `environ` goes first, as it is. Else a folder in `cache` with links to the installed one
    is created once.
    """
    named_home = environ.get("SPARK_HOME")
    # a home by our own name was set by `local_session` before, perhaps for another installation
    if named_home and not Path(named_home).name.startswith(_HOME_NAME):
        return Path(named_home)
    home = cache / f"{_HOME_NAME}{zlib.crc32(os.fsencode(installed)):08x}"
    if _is_complete(home):
        return home
    make_folder(cache)
    try:
        with written_whole(home) as draft:
            draft.mkdir()
            for name in _HOME_ENTRIES:
                (draft / name).symlink_to(installed / name)
    except OSError:  # another process was first
        if not _is_complete(home):
            raise
    return home


def _is_complete(home: Path) -> bool:
    """Return whether a folder has all that Spark uses of its SPARK_HOME."""
    return all((home / name).exists() for name in _HOME_ENTRIES)
