"""``python -m tests.matrix.one_run TOPICS FOLDER``: run two queries on this Spark until all is done.

Both go on from their checkpoints in the folder, whichever version of Spark wrote them last:

- `plain` writes each line as it is;
- `pairs` holds a line in Spark's state until the second one with the same first word comes.

What a batch wrote is appended to `rows/QUERY.jsonl`, if its sink succeeds. With ``--broken`` each
sink fails behind its first batch with rows, so that the batch stays open in the checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import pyspark
import typer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

import spout
from acker.config.topics import load_topics
from spout.local.spark_session import local_session

PLAIN: Final = "plain"
PAIRS: Final = "pairs"

_BREAKS: Final = "this sink fails on purpose"


class Pairs(spout.KeyedBolt):
    """Hold a tuple until the second one of its key comes; emit and ack both."""

    output = "pair string"

    def execute(
        self, key: tuple[Any, ...], held: Sequence[spout.KeyedTuple], collector: spout.KeyedCollector
    ) -> None:
        """Emit the pair, such as ``x: 1 2``."""
        if len(held) > 1:
            collector.emit((f"{key[0]}: {' '.join(sorted(keyed['number'] for keyed in held))}",))
            collector.ack(*held)


class RowsFile:
    """A sink that appends the rows of each batch to a file; `is_broken` makes it fail behind them."""

    def __init__(self, path: Path, *, is_broken: bool) -> None:
        self._path = path
        self._is_broken = is_broken

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Append the rows of a batch, one JSON object a line."""
        rows = [{"batch": batch_id, "row": row[0]} for row in batch.collect()]
        if rows and self._is_broken:
            raise ConnectionError(_BREAKS)
        with self._path.open("a", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(row)}\n" for row in rows)


def one_run(
    topics_file: Path,
    folder: Path,
    broken: Annotated[bool, typer.Option(help="Each sink fails behind its first batch with rows.")] = False,
) -> None:
    """Run both queries until all is done, or until their sinks fail."""
    (folder / "rows").mkdir(exist_ok=True)
    topics = load_topics(topics_file, {})
    spark = local_session("one_run", folder / "spark", cores=2)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    lines = spout.read_stream(spark, topics, PLAIN, startingOffsets="earliest")
    held = spout.read_stream(spark, topics, [PAIRS], startingOffsets="earliest", delayed_acks=True)
    parts = held.selectExpr("split(CAST(value AS STRING), ' ') AS parts", "_windhover")
    words = parts.selectExpr("parts[0] AS word", "parts[1] AS number", "_windhover")
    frames = {
        PLAIN: lines.selectExpr("CAST(value AS STRING) AS line"),
        PAIRS: words.transform(spout.hold(None)).transform(spout.keyed(Pairs(), by="word")),
    }
    for name, frame in frames.items():
        rows_file = RowsFile(folder / "rows" / f"{name}.jsonl", is_broken=broken)
        writer = frame.writeStream.foreachBatch(spout.sink(rows_file.write))
        query = writer.option("checkpointLocation", str(folder / name)).start()
        try:
            is_done = spout.run_once(query)
        except StreamingQueryException as error:
            if not broken or _BREAKS not in str(error):
                raise
            typer.echo(f"{name}: broken on {pyspark.__version__}")
        else:
            if broken or not is_done:
                raise RuntimeError(f"{name}: ended, but no sink failed" if broken else f"{name}: was stopped")
            typer.echo(f"{name}: done on {pyspark.__version__}")
    spark.stop()


if __name__ == "__main__":
    typer.run(one_run)
