"""Which version of Spark this process runs on.

The modules of this room that differ by it ask here. Whoever imports Windhover's part for Spark
beside an older one gets the error of `supported`, and none about a name that is missing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pyspark

from acker.errors import UsageError


class SparkVersion(NamedTuple):
    """The first two numbers of a version of Spark, such as (4, 3); versions compare by them."""

    major: int
    minor: int

    @classmethod
    def of(cls, text: str) -> SparkVersion:
        """Return the version that a text names, such as ``4.3.0`` or ``4.1.0.dev0``."""
        major, minor = text.split(".")[:2]
        return cls(int(major), int(minor))


OLDEST: Final = SparkVersion(4, 0)
"""Older ones have no Python sources for streams."""

INSTALLED: Final = pyspark.__version__
"""The whole version of this process, as it is shown."""

RUNS_ON: Final = "classic PySpark 4.0 to 4.3"
"""What the tests run on, in words."""


def supported(text: str) -> SparkVersion:
    """Return the version that a text names; raise `UsageError` if it is older than `OLDEST`."""
    version = SparkVersion.of(text)
    if version < OLDEST:
        raise UsageError(
            f"PySpark {text} is installed, and Windhover needs {RUNS_ON}: older ones cannot read a"
            " stream by a source in Python. Install one of them (pip install 'pyspark>=4.0,<4.4'),"
            " and Spark of the same version on the cluster; spout.KafkaSpout needs no Spark"
        )
    return version


SPARK: Final = supported(INSTALLED)
"""The version of this process. Spark's workers have it, too: Spark refuses others."""

FRAMES_KEEP_WHOLE_NUMBERS: Final = SparkVersion(4, 2) <= SPARK
"""Whether whole numbers beside nulls stay so within structs, arrays and maps of a pandas frame.

Before, Spark made floats of them, without the last bits of a large one.
"""

CARRIES_NESTED_ARRAYS: Final = SparkVersion(4, 2) <= SPARK
"""Whether pandas frames may have arrays within arrays or maps.

Before, Spark sends no offsets for an inner array without any elements in a batch, as where the only
row has []. Its Python worker then reads what lies behind them in memory, and may end by signal 11.

Source: SPARK-55056, and arrow-java GH-343, which Arrow 19 for Java mends.
"""

CONTINUES_PARTITIONS: Final = SparkVersion(4, 1) <= SPARK
"""Whether Spark has an RDD whose partitions are those of several RDDs, one behind the other.

Source: SPARK-52921.
"""

ROWS_HAVE_FOUR_ARGUMENTS: Final = SparkVersion(4, 3) <= SPARK
"""Whether `LogicalRDD.fromDataset` has four arguments; before, it had three."""
