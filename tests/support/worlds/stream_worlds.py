"""Worlds for tests of queries: topics of their own, ackers and replay workers beside the one Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spout
from acker.config.topics import Topics, load_topics, parse
from acker.identity import is_replay, partition_of, source_of
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Log, Outgoing, Record, TopicPartition
from acker.provisioning.provision import create_topics
from acker.wire.codec import wire_codec
from acker.wire.events import Acks, Fails, Verdicts, positions
from spout.builder.submitted import SubmittedTopology
from spout.builder.topology import TopologyBuilder
from spout.planning_process.status import PlannerStatus
from spout.runtime.child import Child
from spout.tuples.columns import ANCHOR
from tests.support.brokers import Broker
from tests.support.waiting import committed, eventually

DEADLINE_S = 180.0
"""How long a test waits for a query."""

TEXT = """
kafka: {{bootstrap.servers: "{bootstrap}"}}
acker: {{partitions: 2, topic_prefix: "{prefix}", limits: {{retention_interval: 1d}}}}
inputs:
{inputs}
"""
INPUT = (
    '  {name}: {{id: {id}, topic: "{prefix}{name}", group: "{prefix}{name}", partitions: 2, timeout: 300s,'
    " retry: {{attempts: 5}}}}"
)


def config_of(folder: Path, broker: Broker, names: Sequence[str], *more: str) -> Path:
    """Write a topics.yaml with an input for each name, and `more` inputs as they are; create its topics."""
    prefix = f"{folder.name}-"
    inputs = [INPUT.format(name=name, id=n, prefix=prefix) for n, name in enumerate(names, 1)]
    text = "\n".join([*inputs, *(each.format(prefix=prefix) for each in more)])
    config = folder / "topics.yaml"
    config.write_text(TEXT.format(bootstrap=broker.bootstrap, prefix=prefix, inputs=text), encoding="utf-8")
    create_topics(load_topics(config, {}))
    return config


def produce_lines(log: Log, topic: str, lines: Iterable[str]) -> None:
    """Write lines to a topic, half of them to each of its two partitions."""
    producer = log.producer()
    for number, line in enumerate(lines):
        producer.send(Outgoing(topic, number % 2, line.encode()))
    producer.flush(30_000)
    producer.close()


@contextmanager
def serving(config: Path, *kinds: Literal["acker", "replay"]) -> Iterator[None]:
    """Run services as long as the context lasts."""
    with ExitStack() as stack:
        for child in [stack.enter_context(Child(kind, config)) for kind in kinds]:
            child.wait_ready()
        yield


@dataclass
class Published:
    """What was published of first emissions, by line: the n-th line lies in partition n % 2 at n // 2."""

    acked: set[int] = field(default_factory=set)
    open: set[int] = field(default_factory=set)
    failed: dict[int, tuple[str, str, str]] = field(default_factory=dict)

    @property
    def said(self) -> int:
        """Of how many roots something was said."""
        return len(self.acked) + len(self.open) + len(self.failed)

    def add(self, event: Acks | Fails) -> None:
        """Take a record in."""
        if is_replay(event.source):  # a copy, which may come before a test has ended or not
            return
        side = partition_of(event.source)
        if isinstance(event, Acks):
            self.acked |= {2 * at + side for run in event.runs for at in range(*run)}
            self.open |= {2 * at + side for at in positions(event.positions).tolist()}
            return
        for operator, error, message, packed in event.causes:
            for at in positions(packed).tolist():
                self.failed[2 * at + side] = (operator, error, message)


class StreamWorld:
    """Topics with a running acker, the one Spark, and what was published so far."""

    def __init__(self, topics: Topics, spark: SparkSession, folder: Path) -> None:
        self.topics = topics
        self.spark = spark
        self.folder = folder
        self.log = KafkaLog(topics.kafka)
        self.rows: dict[str, list[tuple[object, ...]]] = {}
        self._found: dict[str, Published] = {}
        self._reading = threading.Lock()
        names = topics.ack_topics
        self._parts = [TopicPartition(topic, n) for topic in (names.ack, names.fail) for n in range(2)]
        # Read along from the beginning: ackers delete what they no longer need.
        self._reader = self.log.reader(committed=False)
        self._reader.assign(dict.fromkeys(self._parts, 0))

    def close(self) -> None:
        """Leave Kafka."""
        self._reader.close()
        self.log.close()

    def produce(self, name: str, *lines: str) -> None:
        """Write lines, half of them to each partition."""
        produce_lines(self.log, self.topics.input(name).topic, lines)

    def read(self, name: str) -> DataFrame:
        """Read an input from its beginning."""
        return spout.read_stream(self.spark, self.topics, name, startingOffsets="earliest")

    @contextmanager
    def running(
        self, name: str, frame: DataFrame, write: Callable[[DataFrame, int], object] | None = None
    ) -> Iterator[StreamingQuery]:
        """Run a query as long as the context lasts; `write` is a sink or its function, else it collects."""
        kept = self.rows.setdefault(name, [])

        def collect(batch: DataFrame, _batch_id: int) -> None:
            assert ANCHOR not in batch.columns
            kept.extend(tuple(row) for row in batch.collect())

        sink = write if isinstance(write, spout.Sink) else spout.sink(write or collect)
        query = (
            frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(self.folder / name)).start()
        )
        try:
            yield query
        finally:
            query.stop()

    def published(self, name: str) -> Published:
        """Return what was published for an input up to now; sinks of some tests ask too, in their thread."""
        with self._reading:
            ends = self.log.ends(self._parts)
            while any(self._reader.position(part) < end for part, end in ends.items()):
                for record in self._reader.poll(1_000):
                    event = wire_codec().decode(record.value)
                    if isinstance(event, Acks | Fails):
                        self._found.setdefault(event.group, Published()).add(event)
            return self._found.setdefault(self.topics.input(name).group, Published())

    def copies(self, name: str) -> list[str]:
        """Return the lines that were emitted again up to now."""
        places = [TopicPartition(self.topics.input(name).replay_topic, part) for part in range(2)]
        return [(record.value or b"").decode() for record in committed(self.log, places)]

    def wait_for(self, name: str, said: int, query: StreamingQuery) -> Published:
        """Wait until something was said of so many roots."""

        def enough() -> bool:
            if error := query.exception():
                raise error
            return self.published(name).said >= said

        eventually(enough, DEADLINE_S)
        return self.published(name)


@contextmanager
def stream_world(
    spark: SparkSession, config: Path, *kinds: Literal["acker", "replay"]
) -> Iterator[StreamWorld]:
    """Make a world of a topics.yaml in a folder of its own, with services as long as the context lasts."""
    world = StreamWorld(load_topics(config, {}), spark, config.parent)
    with serving(config, *kinds):
        yield world
    world.close()


class VerdictWorld(StreamWorld):
    """The verdicts on what was produced as well."""

    def __init__(self, topics: Topics, spark: SparkSession, folder: Path) -> None:
        super().__init__(topics, spark, folder)
        parts = [TopicPartition(topics.ack_topics.verdict, n) for n in range(topics.acker.partitions)]
        self._parts_decided = parts
        self._decided = self.log.reader(committed=True)
        self._decided.assign(dict.fromkeys(parts, 0))
        self._verdicts: dict[tuple[int, int], str] = {}

    def close(self) -> None:
        """Leave Kafka."""
        self._decided.close()
        super().close()

    def verdicts(self, name: str, *, replays: bool = False) -> dict[tuple[int, int], str]:
        """Return what became of the records of an input, or of their copies, by partition and offset."""
        for record in self._decisions():
            event = wire_codec().decode(record.value)
            if isinstance(event, Verdicts):
                for source, start, end in event.acked:
                    self._verdicts.update({(source, at): "ACKED" for at in range(start, end)})
                for lost in event.lost:
                    why = f"{lost.operator}: {lost.error or lost.message}"
                    self._verdicts.update(
                        {(lost.source, at): why for at in positions(lost.positions).tolist()}
                    )
        sources = {source_of(self.topics.input(name).id, part, replay=replays) for part in range(2)}
        return {(partition_of(s), at): why for (s, at), why in self._verdicts.items() if s in sources}

    def _decisions(self) -> Iterator[Record]:
        """Read on to where the verdicts end now."""
        ends = self.log.stable_ends(self._parts_decided)
        while any(self._decided.position(part) < end for part, end in ends.items()):
            yield from self._decided.poll(200)

    def start(self, name: str, rows: DataFrame, kind: str) -> StreamingQuery:
        """Write rows to files, in a folder and with a checkpoint of their own."""
        writer = rows.writeStream.format(kind).option("path", str(self.folder / f"{name}-out"))
        writer = writer.trigger(processingTime="300 milliseconds")
        return spout.start(writer.option("checkpointLocation", str(self.folder / name)))

    def written(self, name: str, schema: str) -> list[tuple[object, ...]]:
        """Return the rows in those files."""
        rows = self.spark.read.schema(schema).parquet(str(self.folder / f"{name}-out"))
        return sorted(tuple(row) for row in rows.collect())


def read_held(world: VerdictWorld, *names: str) -> DataFrame:
    """Read inputs of one group, to be held."""
    return spout.read_stream(world.spark, world.topics, names, startingOffsets="earliest", delayed_acks=True)


def wait_for(query: StreamingQuery, condition: Callable[[], object]) -> None:
    """Wait for a condition as long as the query runs."""

    def holds() -> bool:
        if error := query.exception():
            raise error
        return bool(condition())

    eventually(holds, DEADLINE_S)


@contextmanager
def running(world: VerdictWorld, name: str, rows: DataFrame) -> Iterator[StreamingQuery]:
    """Write rows to files as long as the context lasts."""
    query = world.start(name, rows, "parquet")
    try:
        yield query
    finally:
        query.stop()


class SubmittedWorld:
    """Topics with a running acker, the one Spark, and the topologies that a test has submitted."""

    def __init__(self, prefix: str, text: str, spark: SparkSession, folder: Path) -> None:
        self.prefix = prefix
        self.text = text
        self.topics = parse(text, file="topics.yaml", environ={})
        self.spark = spark
        self.folder = folder
        self.log = KafkaLog(self.topics.kafka)
        self.submitted: list[SubmittedTopology] = []

    def named(self, name: str) -> Topics:
        """Let an input be called ``sentences``, as the examples have it."""
        found = self.topics.input(name)
        text = self.text.replace(f"  {name}: {{", "  sentences: {")
        topics = parse(text, file="topics.yaml", environ={})
        assert topics.input("sentences").id == found.id
        return topics

    def produce(self, name: str, *lines: str) -> None:
        """Write lines, half of them to each partition."""
        produce_lines(self.log, self.topics.input(name).topic, lines)

    def submit(self, builder: TopologyBuilder, **options: Any) -> SubmittedTopology:
        """Submit a topology that is ended with its test."""
        self.submitted.append(builder.submit(self.spark, **options))
        return self.submitted[-1]


def spout_of(running: SubmittedTopology) -> PlannerStatus:
    """Return what the planning process says; its query has not failed."""
    status = running.status()
    assert not status.error
    return status.spout or PlannerStatus("none", "")


def wait_for_spout(running: SubmittedTopology, condition: Callable[[PlannerStatus], object]) -> PlannerStatus:
    """Wait until the planning process says something."""
    eventually(lambda: condition(spout_of(running)), DEADLINE_S, told=running.status)
    return spout_of(running)
