"""Windhover: Storm's message guarantee for Kafka and Spark.

::

    topics = spout.load("topics.yaml")
    words = spout.read_stream(spark, topics, "sentences").transform(spout.bolt(SplitSentence()))
    words.writeStream.foreachBatch(spout.sink(write)).start()

Without Spark::

    with spout.KafkaSpout(topics, "sentences") as spout_, spout_.client("worker-1") as client:
        client.confirm(client.open(10, wait_ms=1_000))

The names are loaded when they are first used: the command needs none of them, and starts without Spark.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spout.anchor_columns import collect_anchors, join_anchors
    from spout.any_sink import start
    from spout.bolts import ArrowBolt, BasicBolt, BatchCollector, Bolt, BoltContext, OutputDeclarer
    from spout.collector import (
        BasicCollector,
        FailTuple,
        MessageId,
        OutputCollector,
        RejectTuple,
        Tuple,
        Undecodable,
    )
    from spout.conditions import fail_when
    from spout.foreach_batch import Sink, sink, skipped
    from spout.groupings import Grouping, fields, shuffle
    from spout.holding import ack_anchors, hold
    from spout.hooks import AckInfo, EmitInfo, ExecuteInfo, FailInfo, TaskHook
    from spout.kestrel.client import Client
    from spout.kestrel.items import Item, Items, Part
    from spout.kestrel.kafka_spout import KafkaSpout
    from spout.keyed_bolt import KeyedBolt, KeyedCollector, KeyedTuple
    from spout.keyed_rows import keyed
    from spout.stream import bolt, load, read_stream
    from spout.streams import StreamStatus, serve_metrics, stream_status
    from spout.submitted import SubmittedTopology, TopologyStatus
    from spout.topology import BoltDeclarer, TopologyBuilder

_HOME = {
    "AckInfo": "spout.hooks",
    "ack_anchors": "spout.holding",
    "collect_anchors": "spout.anchor_columns",
    "hold": "spout.holding",
    "ArrowBolt": "spout.bolts",
    "BasicBolt": "spout.bolts",
    "BasicCollector": "spout.collector",
    "BatchCollector": "spout.bolts",
    "Bolt": "spout.bolts",
    "BoltContext": "spout.bolts",
    "BoltDeclarer": "spout.topology",
    "Client": "spout.kestrel.client",
    "EmitInfo": "spout.hooks",
    "ExecuteInfo": "spout.hooks",
    "FailInfo": "spout.hooks",
    "FailTuple": "spout.collector",
    "Grouping": "spout.groupings",
    "Item": "spout.kestrel.items",
    "Items": "spout.kestrel.items",
    "KafkaSpout": "spout.kestrel.kafka_spout",
    "KeyedBolt": "spout.keyed_bolt",
    "KeyedCollector": "spout.keyed_bolt",
    "KeyedTuple": "spout.keyed_bolt",
    "MessageId": "spout.collector",
    "OutputCollector": "spout.collector",
    "OutputDeclarer": "spout.bolts",
    "Part": "spout.kestrel.items",
    "RejectTuple": "spout.collector",
    "Sink": "spout.foreach_batch",
    "StreamStatus": "spout.streams",
    "SubmittedTopology": "spout.submitted",
    "TaskHook": "spout.hooks",
    "TopologyBuilder": "spout.topology",
    "TopologyStatus": "spout.submitted",
    "Tuple": "spout.collector",
    "Undecodable": "spout.collector",
    "bolt": "spout.stream",
    "fail_when": "spout.conditions",
    "fields": "spout.groupings",
    "join_anchors": "spout.anchor_columns",
    "keyed": "spout.keyed_rows",
    "load": "spout.stream",
    "read_stream": "spout.stream",
    "serve_metrics": "spout.streams",
    "shuffle": "spout.groupings",
    "sink": "spout.foreach_batch",
    "skipped": "spout.foreach_batch",
    "start": "spout.any_sink",
    "stream_status": "spout.streams",
}

__all__ = [
    "AckInfo",
    "ArrowBolt",
    "BasicBolt",
    "BasicCollector",
    "BatchCollector",
    "Bolt",
    "BoltContext",
    "BoltDeclarer",
    "Client",
    "EmitInfo",
    "ExecuteInfo",
    "FailInfo",
    "FailTuple",
    "Grouping",
    "Item",
    "Items",
    "KafkaSpout",
    "KeyedBolt",
    "KeyedCollector",
    "KeyedTuple",
    "MessageId",
    "OutputCollector",
    "OutputDeclarer",
    "Part",
    "RejectTuple",
    "Sink",
    "StreamStatus",
    "SubmittedTopology",
    "TaskHook",
    "TopologyBuilder",
    "TopologyStatus",
    "Tuple",
    "Undecodable",
    "ack_anchors",
    "bolt",
    "collect_anchors",
    "fail_when",
    "fields",
    "hold",
    "join_anchors",
    "keyed",
    "load",
    "read_stream",
    "serve_metrics",
    "shuffle",
    "sink",
    "skipped",
    "start",
    "stream_status",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    home = _HOME.get(name)
    if home is None:
        near = [] if name.startswith("_") else get_close_matches(name, __all__, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"module 'spout' has no attribute {name!r}{hint}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    """List the public names, those too that nothing has loaded yet."""
    return sorted(__all__)
