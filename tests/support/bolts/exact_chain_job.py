"""A query that writes exactly once from an input into a topic; a program for a test to kill.

python -m tests.support.bolts.exact_chain_job TOPICS_YAML FOLDER INPUT TOPIC RUN

It reads INPUT and writes its words into TOPIC. RUN is `until-killed`, or `to-the-end`: of what is there now.
In a folder of its own it takes the orders of `tests.torture.exact.struck_store`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import spout
from spout.local.spark_session import local_session
from tests.support.bolts.unlike_bolts import FlakyWords
from tests.torture.exact.struck_store import Order, StruckStore

UNTIL_KILLED = "until-killed"
TO_THE_END = "to-the-end"


def folder_of(folder: Path, source: str) -> Path:
    """Return the folder of the query that reads an input."""
    return folder / f"query-{source}"


def main(config: str, folder: str, source: str, topic: str, run: str) -> None:
    """Write what comes, or what is there now."""
    topics = spout.load(config)
    own_folder = folder_of(Path(folder), source)
    own_folder.mkdir(exist_ok=True)
    spark = local_session(f"exact-{source}", own_folder / "spark", cores=1)
    lines = spout.read_stream(spark, topics, source, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    rows = lines.transform(spout.bolt(FlakyWords(), name="words", anchored=True))
    rows = rows.selectExpr("CAST(word AS BINARY) AS word", "_windhover")
    store = StruckStore(spout.KafkaStore(topics, topic, key="word", value="word"), Order(own_folder))
    writer = rows.writeStream.foreachBatch(spout.exact_sink(store, rows))
    writer = writer.option("checkpointLocation", str(own_folder / "checkpoint"))
    if run == TO_THE_END:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime="500 milliseconds")
    writer.start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
