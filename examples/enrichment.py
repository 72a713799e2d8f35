"""Three steps with a service between that fails 5 % of its calls: parse, look up, format.

What fails is the one visit that was looked up, not its micro-batch: it alone comes again after a back-off,
until the service answers. The three bolts run in one Python pass inside the source's read task. A row's
origin stays the same in every attempt; with it a reader tells a row that was written twice.

    windhover up --config examples/topics.yaml
    python examples/enrichment.py OUT CHECKPOINT
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import spout


def look_up(address: str, attempt: int) -> str:
    """Ask a service for the country of an address; every twentieth call fails, another one each time."""
    if zlib.crc32(f"{address}/{attempt}".encode()) % 20 == 0:
        raise ConnectionError(f"no answer for {address}")
    return ("AT", "CH", "DE")[int(address.rpartition(".")[2]) % 3]


class Parse(spout.BasicBolt):
    """Split a line, "user address"."""

    output = "user string, address string"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit the two fields; a line with another number of them fails."""
        user, address = tuple["value"].decode().split()
        collector.emit((user, address))


class LookUp(spout.BasicBolt):
    """Find out the country of an address."""

    output = "user string, country string, origin string"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Ask the service; what it raises fails the tuple under its own name."""
        message = tuple.message_id
        collector.emit((tuple["user"], look_up(tuple["address"], message.attempt), message.origin))


class Format(spout.BasicBolt):
    """Write a visit as one line."""

    output = "visit string, origin string"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit the line and where it came from."""
        collector.emit((f"{tuple['user']} from {tuple['country']}", tuple["origin"]))


def visits(lines: DataFrame) -> DataFrame:
    """Put the three steps behind each other."""
    return (
        lines.transform(spout.bolt(Parse())).transform(spout.bolt(LookUp())).transform(spout.bolt(Format()))
    )


def main(out: str, checkpoint: str) -> None:
    """Write visits until the query is stopped."""
    spark = SparkSession.builder.appName("visits").getOrCreate()
    topics = spout.load(Path(__file__).with_name("topics.yaml"))
    rows = visits(spout.read_stream(spark, topics, "visits", startingOffsets="earliest"))
    files = rows.writeStream.format("json").option("path", out).option("checkpointLocation", checkpoint)
    spout.start(files).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
