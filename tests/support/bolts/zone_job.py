"""Compares bolts with Spark's own functions where the process has a time zone of its own.

python -m tests.support.bolts.zone_job FOLDER [ZONE OF THE SESSION]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
from pyspark.sql import functions as sql

import spout
from spout.local.spark_session import local_session
from tests.support.bolts.value_bolts import Localizes, PassesByRow

AT_US = 1_767_268_800_000_005
TEXT = "2026-07-01 12:00:00"


def of_pandas(parts: Iterator[Any]) -> Iterator[Any]:
    """Return a time without a zone for each row."""
    for part in parts:
        yield pd.DataFrame({"at": [datetime.fromisoformat(TEXT)] * len(part)})


def main(folder: Path, zone: str | None) -> None:
    """Print what a UDF, pandas and a bolt show of a time, and how they take one without a zone, µs."""
    further = {} if zone is None else {"spark.sql.session.timeZone": zone}
    spark = local_session("zones", folder, cores=1, further=further)
    rows = spark.sql(
        f"SELECT timestamp_micros({AT_US}) AS at, array(timestamp_micros(0)) AS times,"
        " named_struct('at', timestamp_micros(0)) AS named, map('k', timestamp_micros(0)) AS by,"
        f" timestamp_ntz'{TEXT}' AS ntz, '{TEXT}' AS text, 0 AS fold"
    )
    shown = sql.udf(str, "string")
    taken = sql.udf(lambda _: datetime.fromisoformat(TEXT), "timestamp")
    of_udf = rows.select(shown("at").alias("wall"), sql.unix_micros(taken("at")).alias("us"))
    of_bolt = (
        rows.select("text", "fold").transform(spout.bolt(Localizes())).selectExpr("unix_micros(at) AS us")
    )
    walls = rows.select("at", "times", "named", "by", "ntz").transform(spout.bolt(PassesByRow()))
    panda = rows.select("at").mapInPandas(of_pandas, "at timestamp").selectExpr("unix_micros(at) AS us")
    said = {
        "udf": list(of_udf.first() or ()),
        "bolt": [*(walls.select("wall").first() or ()), *(of_bolt.first() or ())],
        "pandas": [*(rows.selectExpr("CAST(at AS string)").first() or ()), *(panda.first() or ())],
    }
    sys.stdout.write(f"{json.dumps(said)}\n")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
