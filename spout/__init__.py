"""Windhover: Storm's message guarantee for Kafka and Spark.

::

    topics = spout.load("topics.yaml")
    words = spout.read_stream(spark, topics, "sentences").transform(spout.bolt(SplitSentence()))
    words.writeStream.foreachBatch(spout.sink(write)).start()

The names are loaded when they are first used: the command needs none of them, and starts without Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spout.bolts import ArrowBolt, BasicBolt, BatchCollector, Bolt, BoltContext
    from spout.collector import BasicCollector, FailTuple, MessageId, OutputCollector, Tuple
    from spout.foreach_batch import Sink, sink, skipped
    from spout.groupings import Grouping, fields, shuffle
    from spout.stream import bolt, load, read_stream

_HOME = {
    "ArrowBolt": "spout.bolts",
    "BasicBolt": "spout.bolts",
    "BasicCollector": "spout.collector",
    "BatchCollector": "spout.bolts",
    "Bolt": "spout.bolts",
    "BoltContext": "spout.bolts",
    "FailTuple": "spout.collector",
    "Grouping": "spout.groupings",
    "MessageId": "spout.collector",
    "OutputCollector": "spout.collector",
    "Sink": "spout.foreach_batch",
    "Tuple": "spout.collector",
    "bolt": "spout.stream",
    "fields": "spout.groupings",
    "load": "spout.stream",
    "read_stream": "spout.stream",
    "shuffle": "spout.groupings",
    "sink": "spout.foreach_batch",
    "skipped": "spout.foreach_batch",
}

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


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'spout' has no attribute {name!r}")
    return getattr(import_module(home), name)
