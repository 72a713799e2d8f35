"""A small pipeline: orders of a topic become rows of files. `test_pipeline.py` tests it as a whole."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spout
from acker.config.topics import Topics


class ParseOrder(spout.BasicBolt):
    """Reads the number of an order; a service that it asks is busy at the first attempt of order 42."""

    output = "order_id int, origin string"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit the number, and where the record lies."""
        text = tuple["value"].decode()
        if not text.isdigit():
            raise spout.RejectTuple(f"{text!r} is no order")
        if text == "42" and tuple.message_id.attempt == 1:
            raise ConnectionError("the service is busy")
        collector.emit((int(text), tuple.message_id.origin))


def start(spark: SparkSession, topics: Topics, folder: Path) -> StreamingQuery:
    """Work on the orders, from the first one on."""
    orders = spout.read_stream(spark, topics, "orders").transform(spout.bolt(ParseOrder()))
    writer = orders.writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return spout.start(writer.option("path", str(folder / "orders")))
