"""A group's coordinator moves from broker to broker, and nobody who asks it falls over.

An admin client of librdkafka that had asked a group for its offsets ended the process by SIGSEGV at the next
question after such a move (its issue 5315), and one that had committed some went on asking the old broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient

from acker.config.topics import load_topics
from acker.provisioning.provision import create_topics
from spout.local.embedded_cluster import EmbeddedCluster
from spout.runtime.child import Child
from tests.support.programs import Program, running
from tests.support.waiting import eventually

OFFSETS = "__consumer_offsets"
ONE = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
"""So that all groups have one coordinator."""
ANSWERS = 50
TIMEOUT_S = 60.0

YAML = """
kafka: {bootstrap.servers: "%s"}
acker: {partitions: 1, limits: {retention_interval: 1s}}
inputs: {lines: {id: 1, topic: lines, group: lines, partitions: 1}}
"""
"""The acker asks how far the replay workers are each time it shortens a log."""

ASKING = """
import sys, time
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import TopicPartition

log, place, number = KafkaLog({"bootstrap.servers": sys.argv[1]}), TopicPartition("lines", 0), 0
while True:
    number += 1
    log.commit("asking", {place: number}, f"text {number}")
    assert log.committed("asking", [place]) == {place: number}
    assert log.commit_metadata("asking", [place]) == {place: f"text {number}"}
    print("answered", flush=True)
    time.sleep(0.02)
"""


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(settings=ONE) as cluster:
        yield cluster


def go_on(asking: Program) -> None:
    """Wait for further answers, for longer than an acker waits between its questions."""
    before = asking.said.count("answered")
    asking.until(lambda: asking.said.count("answered") >= before + ANSWERS)


@pytest.mark.slow
def test_whoever_asks_a_group_lives_through_moves_of_its_coordinator(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

    def leader() -> int:
        return int(admin.list_topics(OFFSETS, timeout=TIMEOUT_S).topics[OFFSETS].partitions[0].leader)

    def in_sync() -> int:
        return len(admin.list_topics(OFFSETS, timeout=TIMEOUT_S).topics[OFFSETS].partitions[0].isrs)

    config = tmp_path / "topics.yaml"
    config.write_text(YAML % cluster.bootstrap)
    create_topics(load_topics(config, {}))
    with ExitStack() as stack:
        children = [
            stack.enter_context(Child("acker", config, log=tmp_path / "acker.kafka.port")),
            stack.enter_context(Child("replay", config, log=tmp_path / "replay.log")),
        ]
        asking = stack.enter_context(running(["-c", ASKING, cluster.bootstrap], tmp_path / "asking.log"))
        for child in children:
            child.wait_ready()
        go_on(asking)
        first = leader()

        cluster.brokers[first - 1].stop()
        go_on(asking)
        eventually(lambda: leader() not in (first, -1))

        cluster.brokers[first - 1].restart()
        eventually(lambda: in_sync() == len(cluster.brokers))
        admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(OFFSETS, 0)]).result(TIMEOUT_S)
        eventually(lambda: leader() == first)
        go_on(asking)

        assert [child.exit_code for child in children] == [None, None]
        assert [child.stop() for child in children] == [True, True]
