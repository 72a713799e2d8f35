"""Windhover: Storm's message guarantee for Kafka and Spark.

::

    topics = spout.load("topics.yaml")
    words = spout.read_stream(spark, topics, "sentences").transform(spout.bolt(SplitSentence()))
    words.writeStream.foreachBatch(spout.sink(write)).start()
"""

from __future__ import annotations

from spout.bolts import ArrowBolt, BasicBolt, BatchCollector, Bolt, BoltContext
from spout.collector import BasicCollector, FailTuple, MessageId, OutputCollector, Tuple
from spout.foreach_batch import Sink, sink, skipped
from spout.groupings import Grouping, fields, shuffle
from spout.stream import bolt, load, read_stream

__all__ = [
    "ArrowBolt",
    "BasicBolt",
    "BasicCollector",
    "BatchCollector",
    "Bolt",
    "BoltContext",
    "FailTuple",
    "Grouping",
    "MessageId",
    "OutputCollector",
    "Sink",
    "Tuple",
    "bolt",
    "fields",
    "load",
    "read_stream",
    "shuffle",
    "sink",
    "skipped",
]
