"""A damaged batch under a query in a real Spark, on a real broker, with an acker and a replay worker."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import spout
from acker.config.topics import Topics, load_topics
from acker.identity import offset_of, partition_of
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Record, TopicPartition
from acker.provisioning.provision import create_topics
from acker.wire.codec import wire_codec
from acker.wire.events import Verdicts, positions
from spout.local.embedded import EmbeddedBroker
from spout.runtime.child import Child
from tests.support.brokers import Broker
from tests.support.damage import Damage, batches, spoil
from tests.support.ended_queries import run_to_end
from tests.support.raw_records import Codec, RawRecord, encode_batch, produce
from tests.support.waiting import committed, eventually

pytestmark = pytest.mark.slow

PARTITIONS = 2
BATCHES = 3
BATCH_RECORDS = 100
TEXT = """
kafka: {{bootstrap.servers: "{bootstrap}"}}
acker: {{partitions: 2, topic_prefix: "{prefix}"}}
inputs:
  lines:
    id: 1
    topic: "{prefix}lines"
    group: "{prefix}g"
    partitions: 2
    timeout: 5m
    on_data_loss: LOSS
    retry: {{attempts: 5, initial: 100ms}}
"""

Place = tuple[int, int]
"""Partition and offset."""

DAMAGED = [(0, offset) for offset in range(BATCH_RECORDS, 2 * BATCH_RECORDS)]
READABLE = sorted(
    {(partition, offset) for partition in range(PARTITIONS) for offset in range(BATCHES * BATCH_RECORDS)}
    - set(DAMAGED)
)
DAMAGES = [(Codec.LZ4, Damage.VALUE), (Codec.NONE, Damage.VALUE), (Codec.GZIP, Damage.PACKED)]
IDS = [f"{codec.name.lower()}-{damage.name.lower()}" for codec, damage in DAMAGES]


class Installation:
    """An input of two partitions on a broker, of which batches are damaged on its disk."""

    def __init__(self, broker: Broker, prefix: str, folder: Path, loss: str) -> None:
        assert isinstance(broker, EmbeddedBroker)
        self.config = folder / "topics.yaml"
        self._broker = broker
        self._text = TEXT.format(bootstrap=broker.bootstrap, prefix=prefix)
        self.choose(loss)
        create_topics(self.topics)
        self.topic = self.topics.input("lines").topic

    @property
    def topics(self) -> Topics:
        return load_topics(self.config, {})

    def choose(self, loss: str) -> None:
        """Set `on_data_loss`."""
        self.config.write_text(self._text.replace("LOSS", loss), encoding="utf-8")

    def write(self, partition: int, count: int, codec: Codec = Codec.NONE) -> None:
        """Write batches."""
        records = [RawRecord(b"%d of %d" % (number, partition)) for number in range(BATCH_RECORDS)]
        for _ in range(count):
            place = TopicPartition(self.topic, partition)
            produce(self._broker.bootstrap, place, encode_batch(records, codec))

    def spoil(self, partition: int, batch: int, damage: Damage) -> None:
        place = TopicPartition(self.topic, partition)
        spoil(batches(self._broker.directory / "data", place)[batch], damage)

    def run(self, spark: SparkSession, checkpoint: Path, **options: object) -> tuple[list[Place], str]:
        """Run a query until all is read; return the places that its sink got, and why it ended."""
        rows: list[Place] = []

        def write(batch: DataFrame, _batch_id: int) -> None:
            rows.extend((row.partition, row.offset) for row in batch.collect())

        frame = spout.read_stream(spark, self.topics, "lines", **options)  # type: ignore[arg-type]
        tracked = bool(options.get("tracked", True))
        sink = spout.sink(write) if tracked else write
        stream = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
        why = ""
        try:
            if not run_to_end(stream, timeout_s=120, tracked=tracked):
                why = "it did not end"
        except StreamingQueryException as error:
            why = str(error)
        return sorted(rows), why

    def run_until(self, spark: SparkSession, checkpoint: Path, count: int) -> list[Place]:
        """Run a query until its sink has got so many rows; return their places."""
        rows: list[Place] = []

        def write(batch: DataFrame, _batch_id: int) -> None:
            rows.extend((row.partition, row.offset) for row in batch.collect())

        frame = spout.read_stream(spark, self.topics, "lines")
        stream = frame.writeStream.foreachBatch(spout.sink(write))
        query = stream.option("checkpointLocation", str(checkpoint)).start()
        try:
            eventually(lambda: len(rows) >= count, told=query.exception)
        finally:
            query.stop()
        return sorted(rows)

    def letters(self) -> int:
        """Return how many dead letters there are because of damage."""
        found = self._records(self.topics.input("lines").dead_letter.topic)
        return sum(("windhover.dead", b"DAMAGED") in record.headers for record in found)

    def verdicts(self) -> dict[str, list[Place]]:
        """Return the places of all roots that have a verdict, by the verdict or the cause."""
        found: dict[str, list[Place]] = {}
        for record in self._records(self.topics.ack_topics.verdict):
            event = wire_codec().decode(record.value)
            if not isinstance(event, Verdicts):
                continue
            for kind, runs in (("ACKED", event.acked), ("ABSENT", event.absent)):
                for source, start, end in runs:
                    offsets = range(offset_of(start), offset_of(start) + end - start)
                    found.setdefault(kind, []).extend((partition_of(source), at) for at in offsets)
            for lost in event.lost:
                named = positions(lost.positions).tolist()
                places = [(partition_of(lost.source), offset_of(at)) for at in named]
                found.setdefault(lost.error, []).extend(places)
        return {kind: sorted(places) for kind, places in found.items()}

    def _records(self, topic: str) -> list[Record]:
        with closing(KafkaLog(self.topics.kafka)) as log:
            return committed(log, [TopicPartition(topic, partition) for partition in range(PARTITIONS)])


Make = Callable[..., Installation]


@pytest.fixture
def make(broker: Broker, prefix: str, tmp_path: Path) -> Make:
    """Make an installation with three batches in each partition, of which one is damaged."""

    def build(loss: str, codec: Codec = Codec.LZ4, damage: Damage = Damage.VALUE) -> Installation:
        world = Installation(broker, prefix, tmp_path, loss)
        for partition in range(PARTITIONS):
            world.write(partition, BATCHES, codec)
        world.spoil(0, 1, damage)
        return world

    return build


@pytest.mark.parametrize(("codec", "damage"), DAMAGES, ids=IDS)
def test_all_but_the_damaged_batch_is_written_then_the_query_ends_and_a_restart_goes_on(
    spark: SparkSession, make: Make, tmp_path: Path, codec: Codec, damage: Damage
) -> None:
    """O361: the error has checksum, topic, partition and offset; nothing of the batch is acked or absent."""
    world = make("fail", codec, damage)
    with Child("acker", world.config) as acker:
        acker.wait_ready()
        rows, why = world.run(spark, tmp_path / "c")
        assert rows == READABLE
        is_packed = damage is Damage.PACKED
        what = "cannot be handled" if is_packed else "is damaged"
        assert f"{world.topic}/0@{BATCH_RECORDS}: a batch there {what}" in why
        assert ("unpack" if is_packed else "checksum") in why
        cause = "NOT_UNPACKED" if is_packed else "DAMAGED"
        eventually(lambda: world.verdicts() == {"ACKED": READABLE, cause: DAMAGED}, told=world.verdicts)
        world.write(0, 1)
        later = [(0, BATCHES * BATCH_RECORDS + number) for number in range(BATCH_RECORDS)]
        assert world.run_until(spark, tmp_path / "c", BATCH_RECORDS) == later


def test_roots_of_a_damaged_batch_wait_in_the_replay_worker_until_somebody_chooses(
    spark: SparkSession, make: Make, tmp_path: Path
) -> None:
    """O364: named by the worker; with skip they are dead letters, and a query to the end ends."""
    world = make("fail")
    with Child("acker", world.config) as acker, Child("replay", world.config) as worker:
        acker.wait_ready()
        worker.wait_ready()
        assert "is damaged" in world.run(spark, tmp_path / "c")[1]
        eventually(lambda: "held_up" in worker.log.read_text())
        assert re.search(rf"{world.topic}/0@1\d\d to {2 * BATCH_RECORDS}", worker.log.read_text())
        assert world.letters() == 0
        world.choose("skip")
        os.kill(worker.pid or 0, signal.SIGHUP)
        eventually(lambda: world.letters() == BATCH_RECORDS)
        assert world.run(spark, tmp_path / "c") == ([], "")


@pytest.mark.parametrize(("codec", "damage"), DAMAGES[:2], ids=IDS[:2])
def test_with_on_data_loss_skip_the_query_goes_on_and_its_roots_are_absent(
    spark: SparkSession, make: Make, tmp_path: Path, codec: Codec, damage: Damage
) -> None:
    """O362: of that partition alone, and no root waits for a verdict."""
    world = make("skip", codec, damage)
    status = tmp_path / "status.json"
    with Child("acker", world.config) as acker:
        acker.wait_ready()
        assert world.run(spark, tmp_path / "c", status_path=str(status)) == (READABLE, "")
        assert world.verdicts() == {"ACKED": READABLE, "ABSENT": DAMAGED}
    found = json.loads(status.read_text())
    assert (found["acked"], found["absent"], found["pending"]) == (len(READABLE), BATCH_RECORDS, 0)


def test_an_untracked_query_says_which_batch_it_cannot_read_or_skips_it(
    spark: SparkSession, make: Make, tmp_path: Path
) -> None:
    """O363: its checkpoint stays where it was, so that nothing is left out without a word."""
    world = make("fail")
    rows, why = world.run(spark, tmp_path / "c", tracked=False)
    assert rows == []
    assert f"{world.topic}/0@{BATCH_RECORDS}: a batch there is damaged" in why
    world.choose("skip")
    assert world.run(spark, tmp_path / "c", tracked=False) == (READABLE, "")
