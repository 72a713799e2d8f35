"""Garbage in the ack topics, topics that grow or are created again: all three parts on a real broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but the package has no __all__
    AdminClient,
    NewPartitions,
    NewTopic,
)

from acker.config.topics import parse
from acker.errors import Disagreement, WindhoverError
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing, Record, TopicPartition
from acker.provisioning.provision import create_topics
from spout.inspect.operate import GroupSession, moves_of_rewind
from spout.planning.journal import BEGINNING, Journal
from spout.planning_process.planner import Planner
from tests.support.brokers import Broker
from tests.support.waiting import eventually
from tests.support.worlds.planning import World

pytestmark = pytest.mark.slow

DEADLINE_S = 60.0
N = 3

YAML = """
kafka: {{bootstrap.servers: "{bootstrap}"}}
acker: {{partitions: 3, topic_prefix: "{prefix}"}}
inputs:
  sentences: {{id: 1, topic: "{prefix}sentences", group: g, partitions: 2, timeout: 1h}}
"""


class RealWorld(World):
    """The world of the planning tests, on a real broker and the real clock."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        """Create the topics and start an acker and a replay worker."""
        self.topics = parse(YAML.format(bootstrap=bootstrap, prefix=prefix), file="topics.yaml", environ={})
        create_topics(self.topics)
        self.opened: list[KafkaLog] = []
        self.cluster: Any = SimpleNamespace(log=self.client)
        self.log: Any = self.client()
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self.source = self.topics.input("sentences")
        self.planners: list[Planner] = []
        self.told: list[str] = []
        self.advice: list[object] = []
        self._names = self._seq = 0
        self.start_acker()
        self.start_replays()

    def client(self, _faults: object = None) -> KafkaLog:
        """Make a client of a part."""
        self.opened.append(KafkaLog(self.topics.kafka))
        return self.opened[-1]

    @property
    def now_ms(self) -> int:
        """Wall time."""
        return time.time_ns() // 1_000_000

    def step(self) -> None:
        """Step every part that is left."""
        for planner in self.planners:
            planner.step(planner.poll(0), self.now_ms)
        for part in (self.acker, self.replays):
            if part is not None:
                part.step(self.now_ms)

    def until(self, condition: Callable[[], bool]) -> None:
        """Step until a condition holds."""
        eventually(condition, DEADLINE_S, step=self.step)

    def until_stopped(self, match: str) -> None:
        """Step until a part stops with an error that names something."""
        with pytest.raises(Disagreement, match=match):
            self.until(lambda: False)

    def opened_planner(self, journal: Journal = BEGINNING) -> Planner:
        """Open a planning process and let it take its group."""
        planner = self.planner(journal)
        self.until(lambda: planner.is_ready)
        return planner

    def settled(self, planner: Planner, start: Journal) -> Journal:
        """Plan and publish until nothing is pending or due; return where that is."""
        at = [start]

        def is_done() -> bool:
            end = planner.plan(at[0], None, self.now_ms)
            if end != at[0]:
                self.publish(at[0], end)
                at[0] = end
            return planner.is_drained()

        self.until(is_done)
        return at[0]

    def send(self, topic: str, partition: int, *values: bytes, key: bytes | None = None) -> None:
        """Write bytes."""
        producer = self.log.producer()
        for value in values:
            producer.send(Outgoing(topic, partition, value, key))
        producer.flush(30_000)
        producer.close()

    def read(self, topic: str, count: int) -> list[Record]:
        """Wait for so many committed records of a topic."""
        reader = self.log.reader(committed=True)
        partitions = self.log.topics([topic])[topic].partitions
        reader.assign({TopicPartition(topic, partition): 0 for partition in range(partitions)})
        found: list[Record] = []

        def are_read() -> bool:
            found.extend(reader.poll(20))
            return len(found) >= count

        self.until(are_read)
        reader.close()
        return found

    def recreate(self, topic: str, partitions: int) -> None:
        """Delete a topic and create it again."""
        for future in self.admin.delete_topics([topic], operation_timeout=30).values():
            future.result(30)

        def made() -> bool:
            """Create it, unless the old one is still on its way out."""
            try:
                for future in self.admin.create_topics([NewTopic(topic, partitions, 1)]).values():
                    future.result(30)
            except KafkaException:
                return False
            return True

        eventually(made)

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic."""
        for future in self.admin.create_partitions([NewPartitions(topic, partitions)]).values():
            future.result(30)

    def close(self) -> None:
        """Leave, whatever was stopped."""
        for part in (*self.planners, self.acker, self.replays):
            try:
                if part is not None:
                    part.close()
            except WindhoverError:
                continue
        for log in self.opened:
            log.close()


@pytest.fixture
def world(broker: Broker, prefix: str) -> Iterator[RealWorld]:
    """An installation of its own."""
    made = RealWorld(broker.bootstrap, prefix)
    yield made
    made.close()


def test_garbage_in_every_ack_topic_stops_nobody(world: RealWorld) -> None:
    """Quarantined where anybody may write; passed over where only ackers or replay workers do."""
    names = world.topics.ack_topics
    planner = world.opened_planner()
    for topic in (names.init, names.ack, names.fail):
        world.send(topic, 1, b"nonsense", b"\xc3\x01\x01\x02\x03\x04\x05\x06\x07\x08newer", b"")
    world.send(names.verdict, 1, b"nonsense")
    world.send(names.due, 1, b"nonsense", key=b"nonsense")
    world.send(names.state, 1, b"nonsense", key=b"nonsense")
    world.produce(10, topic=world.source.topic)
    end = planner.plan(BEGINNING, None, world.now_ms)
    world.publish(BEGINNING, end, fail=(3,))
    end = world.settled(planner, end)
    status = planner.status(world.now_ms)
    # nine, the copy of the tenth, and the marker behind it, which is published as if it were a record
    assert (status.pending, status.acked, status.failed, status.undecodable) == (0, 11, 1, 1)
    assert len(world.read(names.quarantine, 9)) == 9
    assert world.acker is not None
    world.acker.close()
    world.start_acker()
    world.produce(5, topic=world.source.topic)
    world.settled(planner, end)
    assert planner.status(world.now_ms).acked == 16


def test_a_source_topic_created_again_while_trees_are_open_converges_after_a_reset(world: RealWorld) -> None:
    """The query stops and names `windhover offsets reset`; no old position is settled by a new record."""
    topic = world.source.topic
    world.produce(20, topic=topic)
    planner = world.opened_planner()
    end = planner.plan(BEGINNING, None, world.now_ms)
    world.publish(BEGINNING, end, skip=(3, 7))
    world.until(lambda: planner.status(world.now_ms).acked == 18)
    world.recreate(topic, 2)
    world.produce(40, topic=topic)
    world.until_stopped(r"was re-created.*offsets reset")
    world.kill(planner)
    operation = GroupSession(
        world.client(),
        world.topics,
        "g",
        new_id="op",
        rewind=moves_of_rewind(world.log, world.source, "earliest"),
    )
    world.until(lambda: operation.step(world.now_ms))
    operation.finish()
    fresh = world.opened_planner()
    world.settled(fresh, BEGINNING)
    status = fresh.status(world.now_ms)
    assert (status.pending, status.acked) == (0, 40)
    letters = world.read(world.source.dead_letter.topic, 2)
    origins = sorted(dict(letter.headers)["windhover.origin"] or b"" for letter in letters)
    assert origins == [f"{topic}/0@{offset}".encode() for offset in (3, 7)]
    assert world.read(world.source.dead_letter.topic, 2)[0].value is None


@pytest.mark.parametrize("topics", [("init", "ack", "fail"), ("verdict",)])
def test_partitions_added_to_ack_topics_stop_who_runs(world: RealWorld, topics: tuple[str, ...]) -> None:
    """With the way out; the ackers learn of it by their group, at the latest when they look again."""
    world.produce(10, topic=world.source.topic)
    planner = world.opened_planner()
    planner.plan(BEGINNING, None, world.now_ms)
    for topic in topics:
        world.grow(getattr(world.topics.ack_topics, topic), N + 2)
    world.until_stopped(r"has 5 partitions.*another acker\.topic_prefix")


def test_partitions_added_to_a_source_topic_are_read_while_the_query_runs(world: RealWorld) -> None:
    """First those of the replay topic are waited for."""
    topic = world.source.topic
    world.produce(4, topic=topic)
    planner = world.opened_planner()
    end = world.settled(planner, BEGINNING)
    world.grow(topic, 3)
    world.until(lambda: "new_partitions_wait" in world.told)
    world.grow(world.source.replay_topic, 3)
    world.produce(5, topic=topic, partition=2)
    world.until(lambda: world.settled(planner, end) != end)
    status = planner.status(world.now_ms)
    assert (status.pending, status.acked) == (0, 9)
