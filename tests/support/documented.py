"""The examples of public names: found in their docstrings, and run as a user would type them.

Names that an example can use without importing them, besides `spout`:

=====================  =====================================================================================
`line`                 the tuple of the record ``the hawk waits``, sentences/3@1042
`topics`               topics.yaml, with the input ``sentences``; where an example needs Kafka, it has two
                       records, and there is a topic ``words``
`SplitSentence`        the bolt of `spout.BasicBolt`'s example; `Upper` that of `spout.ArrowBolt`'s
`spark`, `sql`         a session, and ``pyspark.sql.functions``
`folder`, `port`       an empty folder, and a port that nobody uses
`dsn`                  the connection string of an empty PostgreSQL
`lines`, `client`      a `spout.KafkaSpout` that is open, and a client of it
=====================  =====================================================================================
"""

from __future__ import annotations

import doctest
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message
from pyspark.sql import functions

import spout
from acker.errors import WindhoverError
from acker.identity import position_at, source_of
from acker.kafka.port import Outgoing
from spout.tuples.failures import Cause
from spout.tuples.messages import MessageRows
from spout.tuples.tuple import Tuple
from tests.support.worlds.kestrel_world import KestrelWorld

ROOT = Path(__file__).parents[2]
RECORDS = (b"the hawk hovers", b"the hawk waits")
TRACEPARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

BESIDE = {"Topics": "acker.config.topics", "WindhoverError": "acker.errors"}
"""What users name of the other packages, by module."""

NAMES = (*spout.__all__, *BESIDE)

ON_SPARK = frozenset(
    {"BasicBolt", "Bolt", "Grouping", "OutputCollector", "ack_anchors", "bolt", "collect_anchors",
     "fail_when", "hold", "join_anchors", "keyed", "read_stream", "serve_metrics"}
)  # fmt: skip
"""Names whose examples need a Spark session."""

ON_KAFKA = frozenset(
    {"KafkaSpout", "KafkaStore", "SubmittedTopology", "exact_sink", "run_once", "sink", "skipped", "start",
     "stream_status"}
)  # fmt: skip
"""Names whose examples read or write a topic."""

ON_POSTGRES = frozenset({"PostgresStore"})
"""Names whose examples need a PostgreSQL."""


class SplitSentence(spout.BasicBolt):
    """Splits a line into words."""

    output = "word string"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit each word."""
        for word in tuple["value"].decode().split():
            collector.emit((word,))


class Upper(spout.ArrowBolt):
    """Makes words big."""

    output = "word string"
    fields = ("word",)

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> None:
        """Emit each word in capitals."""
        collector.emit([pc.utf8_upper(batch.column("word"))], pa.array(range(batch.num_rows)))


def examples_of(name: str) -> list[doctest.DocTest]:
    """Return the docstrings with examples of a public name and its methods."""
    found = getattr(import_module(BESIDE[name]), name) if name in BESIDE else getattr(spout, name)
    tests = doctest.DocTestFinder(exclude_empty=True).find(found, name, module=False, globs={})  # type: ignore[arg-type]
    return [test for test in tests if test.examples]


def run_examples(name: str, names: Mapping[str, Any]) -> None:
    """Run the examples of a name, each docstring with fresh names.

    Raises:
        AssertionError: an example printed or returned something other than its docstring shows.
    """
    for test in examples_of(name):
        said: list[str] = []
        test.globs = {"__name__": "__main__", **names}
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append)
        assert not said, "".join(said)


def plain_names() -> dict[str, Any]:
    """Return the names that need neither Spark nor Kafka."""
    topics = spout.load(ROOT / "topics.yaml", {})
    return {
        "spout": spout,
        "topics": topics,
        "line": line_of(source_of(topics.input("sentences").id, 3), 1042),
        "Cause": Cause,
        "SplitSentence": SplitSentence,
        "Upper": Upper,
        "WindhoverError": WindhoverError,
        "sql": functions,
    }


def line_of(source: int, offset: int) -> Tuple:
    """Make the tuple of a record as `read_stream` does."""
    message = Message(
        topic="sentences", partition=3, offset=offset, key=None, value=RECORDS[1],
        headers=[("traceparent", TRACEPARENT)], timestamp=(1, 1_000),
    )  # fmt: skip
    return Tuple(MessageRows([message], source, np.array([position_at(0, offset)])), 0)


def kestrel_names(records: Sequence[bytes] = RECORDS) -> dict[str, Any]:
    """Return an open spout on the in-memory Kafka, with records that wait, and a client."""
    world = KestrelWorld()
    producer = world.log.producer()
    for record in records:
        producer.send(Outgoing("sentences", 0, record))
    producer.flush(0)
    lines = world.spout()
    client = lines.client("example")
    for _ in range(30):
        if client.abort(client.open(len(records))):
            break
        world.run(100)
    return {"lines": lines, "client": client}
