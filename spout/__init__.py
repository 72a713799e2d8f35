"""Windhover: Storm's message guarantee for Kafka and Spark.

::

    topics = spout.load("topics.yaml")
    words = spout.read_stream(spark, topics, "sentences").transform(spout.bolt(SplitSentence()))
    words.writeStream.foreachBatch(spout.sink(write)).start()

Without Spark::

    with spout.KafkaSpout(topics, "sentences") as spout_, spout_.client("worker-1") as client:
        client.confirm(client.open(10, wait_ms=1_000))

A name is loaded when it is first used. So the command ``windhover`` starts without Spark.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spout.bolts.bolts import ArrowBolt, BasicBolt, BatchCollector, Bolt, OutputDeclarer
    from spout.bolts.collectors import BasicCollector, OutputCollector
    from spout.bolts.groupings import Grouping, fields, shuffle
    from spout.bolts.hooks import AckInfo, BoltContext, EmitInfo, ExecuteInfo, FailInfo, TaskHook
    from spout.bolts.keyed_bolt import KeyedBolt, KeyedCollector, KeyedTuple
    from spout.bolts.trace_hook import TraceHook, traceparent
    from spout.builder.ending import run_once
    from spout.builder.streams import StreamStatus, serve_metrics, stream_status
    from spout.builder.submitted import SubmittedTopology, TopologyStatus
    from spout.builder.topology import BoltDeclarer, TopologyBuilder
    from spout.exactly_once.kafka_store import KafkaStore
    from spout.exactly_once.postgres_store import PostgresStore
    from spout.exactly_once.sqlite_store import SQLiteStore
    from spout.exactly_once.store import BatchKey, LastBatch, Store, StoreGrant
    from spout.execution.collect import collect
    from spout.held.conditions import fail_when
    from spout.held.holding import ack_anchors, hold
    from spout.held.keyed_rows import keyed
    from spout.sinks.any_sink import start
    from spout.sinks.exact_sink import ExactSink, exact_sink
    from spout.sinks.foreach_batch import Sink, sink, skipped
    from spout.standalone.client import Client
    from spout.standalone.items import Item, Items, Part
    from spout.standalone.kafka_spout import KafkaSpout
    from spout.streaming.stream import bolt, load, read_stream
    from spout.tuples.anchor_columns import collect_anchors, join_anchors
    from spout.tuples.failures import FailTuple, RejectTuple, Undecodable
    from spout.tuples.rows import tuple_of
    from spout.tuples.tuple import MessageId, Tuple

_HOME = {
    name: f"spout.{module}"
    for module, names in {
        "bolts.bolts": ("ArrowBolt", "BasicBolt", "BatchCollector", "Bolt", "OutputDeclarer"),
        "bolts.collectors": ("BasicCollector", "OutputCollector"),
        "bolts.groupings": ("Grouping", "fields", "shuffle"),
        "bolts.hooks": ("AckInfo", "BoltContext", "EmitInfo", "ExecuteInfo", "FailInfo", "TaskHook"),
        "bolts.keyed_bolt": ("KeyedBolt", "KeyedCollector", "KeyedTuple"),
        "bolts.trace_hook": ("TraceHook", "traceparent"),
        "builder.ending": ("run_once",),
        "builder.streams": ("StreamStatus", "serve_metrics", "stream_status"),
        "builder.submitted": ("SubmittedTopology", "TopologyStatus"),
        "builder.topology": ("BoltDeclarer", "TopologyBuilder"),
        "exactly_once.kafka_store": ("KafkaStore",),
        "exactly_once.postgres_store": ("PostgresStore",),
        "exactly_once.sqlite_store": ("SQLiteStore",),
        "exactly_once.store": ("BatchKey", "LastBatch", "Store", "StoreGrant"),
        "execution.collect": ("collect",),
        "held.conditions": ("fail_when",),
        "held.holding": ("ack_anchors", "hold"),
        "held.keyed_rows": ("keyed",),
        "sinks.any_sink": ("start",),
        "sinks.exact_sink": ("ExactSink", "exact_sink"),
        "sinks.foreach_batch": ("Sink", "sink", "skipped"),
        "standalone.client": ("Client",),
        "standalone.items": ("Item", "Items", "Part"),
        "standalone.kafka_spout": ("KafkaSpout",),
        "streaming.stream": ("bolt", "load", "read_stream"),
        "tuples.anchor_columns": ("collect_anchors", "join_anchors"),
        "tuples.failures": ("FailTuple", "RejectTuple", "Undecodable"),
        "tuples.rows": ("tuple_of",),
        "tuples.tuple": ("MessageId", "Tuple"),
    }.items()
    for name in names
}
"""The module of each public name."""

__all__ = [
    "AckInfo",
    "ArrowBolt",
    "BasicBolt",
    "BasicCollector",
    "BatchCollector",
    "BatchKey",
    "Bolt",
    "BoltContext",
    "BoltDeclarer",
    "Client",
    "EmitInfo",
    "ExactSink",
    "ExecuteInfo",
    "FailInfo",
    "FailTuple",
    "Grouping",
    "Item",
    "Items",
    "KafkaSpout",
    "KafkaStore",
    "KeyedBolt",
    "KeyedCollector",
    "KeyedTuple",
    "LastBatch",
    "MessageId",
    "OutputCollector",
    "OutputDeclarer",
    "Part",
    "PostgresStore",
    "RejectTuple",
    "SQLiteStore",
    "Sink",
    "Store",
    "StoreGrant",
    "StreamStatus",
    "SubmittedTopology",
    "TaskHook",
    "TopologyBuilder",
    "TopologyStatus",
    "TraceHook",
    "Tuple",
    "Undecodable",
    "ack_anchors",
    "bolt",
    "collect",
    "collect_anchors",
    "exact_sink",
    "fail_when",
    "fields",
    "hold",
    "join_anchors",
    "keyed",
    "load",
    "read_stream",
    "run_once",
    "serve_metrics",
    "shuffle",
    "sink",
    "skipped",
    "start",
    "stream_status",
    "traceparent",
    "tuple_of",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    home = _HOME.get(name)
    if home is None:
        near = [] if name.startswith("_") else get_close_matches(name, __all__, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"module 'spout' has no attribute {name!r}{hint}")
    try:
        module = import_module(home)
    except ImportError:
        # beside an older Spark names are missing: then that is the error, with its version
        import_module("spout.spark.versions")
        raise
    return getattr(module, name)


def __dir__() -> list[str]:
    """List the public names, including those that are not loaded yet."""
    return sorted(__all__)
