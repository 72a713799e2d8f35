"""Runs the kinds of query that tests run: a source in Python, Arrow, rows that are held, and sinks.

`tests.support.spark_classes` keeps what Spark has loaded by its end.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from spout.local.spark_session import local_session, warm_up


class Rows(SimpleDataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"next": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[int, str]], dict[str, int]]:
        return iter([(start["next"], "word")]), {"next": start["next"] + 1}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[int, str]]:  # noqa: N802 - Spark's name
        return iter([(number, "word") for number in range(start["next"], end["next"])])


class Source(DataSource):
    @classmethod
    def name(cls) -> str:
        return "rows"

    def schema(self) -> str:
        return "number long, word string"

    def simpleStreamReader(self, schema: Any) -> Rows:  # noqa: N802 - Spark's name
        return Rows()


def main(folder: Path) -> None:
    """Run two batches of each query, with its files in a folder."""
    spark = local_session("windhover-classes", folder)
    warm_up(spark)
    spark.dataSource.register(Source)
    rows = spark.readStream.format("rows").load().repartition(2, "word")
    rows = rows.mapInArrow(lambda batches: batches, "number long, word string")

    def count(key: Any, groups: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        state.update((sum(map(len, groups)),))
        yield pd.DataFrame({"word": [key[0]], "count": [state.get[0]]})

    held = rows.groupBy("word").applyInPandasWithState(
        count, "word string, count long", "count long", "append", GroupStateTimeout.ProcessingTimeTimeout
    )

    def write(batch: DataFrame, _number: int) -> None:
        batch.persist()
        batch.groupBy("word").count().collect()
        batch.write.mode("append").parquet(str(folder / "rows"))
        batch.toArrow()
        batch.unpersist()

    for number, frame in enumerate((rows, held)):
        writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", f"{folder}/{number}")
        query = writer.trigger(processingTime="100 milliseconds").start()
        while query.lastProgress is None or query.lastProgress["batchId"] < 1:
            query.awaitTermination(0.2)
        query.stop()
    spark.read.parquet(str(folder / "rows")).orderBy("word").collect()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
