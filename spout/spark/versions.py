"""Which version of Spark this process runs on.

The modules of this room that differ by it ask here.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pyspark


class SparkVersion(NamedTuple):
    """The first two numbers of a version of Spark, such as (4, 3); versions compare by them."""

    major: int
    minor: int

    @classmethod
    def of(cls, text: str) -> SparkVersion:
        """Return the version that a text names, such as ``4.3.0`` or ``4.1.0.dev0``."""
        major, minor = text.split(".")[:2]
        return cls(int(major), int(minor))


SPARK: Final = SparkVersion.of(pyspark.__version__)
"""The version of this process. Spark's workers have it, too: Spark refuses others."""
