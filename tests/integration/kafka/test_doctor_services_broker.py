"""The doctor on services of a real broker that run with another file, or another version."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import dataclass

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from acker.config.limits import ReplayLimits
from acker.config.topics import Topics, parse
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing, Record, TopicPartition
from acker.provisioning.provision import create_topics
from acker.service.service import AckerService
from acker.service.state import part_key
from acker.wire.codec import wire_codec
from acker.wire.events import Take
from replay.worker.service import ReplayService
from spout.doctor.broker import BrokerProbe
from spout.doctor.codes import CLOCKS, SERVICES, CheckHealth, CheckResult
from spout.doctor.services import judge_service_clocks, judge_services
from tests.support.brokers import Broker
from tests.support.waiting import eventually

DEADLINE_S = 60.0
HOUR_MS = 3_600_000


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Installation:
    """Two acker partitions on a broker, and what the doctor says of their ackers."""

    topics: Topics
    prefix: str

    def judged(self, partitions: int = 2) -> list[CheckResult]:
        """Judge them by a file with so many acker partitions."""
        topics = topics_on(self.topics.kafka["bootstrap.servers"], self.prefix, partitions)
        return list(judge_services(BrokerProbe(topics, wall_ms).services("topics.yaml"), topics))

    def wrong(self, partitions: int = 2) -> list[CheckResult]:
        return [result for result in self.judged(partitions) if result.health is not CheckHealth.OK]

    def write_states(self) -> None:
        """Let an acker write the State of both partitions, and end."""
        names = self.topics.ack_topics
        take = Take(f"{self.prefix}g", "session", 1, 0, 2, ())
        with closing(KafkaLog(self.topics.kafka)) as log:
            producer = log.producer()
            for number in range(2):
                producer.send(Outgoing(names.init, number, wire_codec().encode(take)))
            producer.flush(30_000)
            states = [TopicPartition(names.state, number) for number in range(2)]
            group = self.topics.acker.group
            with closing(AckerService(log, names, 2, group=group)) as service:
                eventually(
                    lambda: all(end > 0 for end in log.stable_ends(states).values()),
                    DEADLINE_S,
                    told=service.status,
                    step=lambda: service.step(wall_ms()),
                )


def topics_on(bootstrap: str, prefix: str, partitions: int) -> Topics:
    return parse(
        f"kafka: {{bootstrap.servers: '{bootstrap}'}}\n"
        f"acker: {{partitions: {partitions}, replication_factor: 1, topic_prefix: '{prefix}'}}\n"
        f"inputs: {{a: {{id: 1, group: {prefix}g, topic: '{prefix}a', partitions: 1}}}}\n",
        file="topics.yaml",
        environ={},
    )


@pytest.fixture
def installation(broker: Broker, prefix: str) -> Installation:
    topics = topics_on(broker.bootstrap, prefix, 2)
    return Installation(topics, prefix)


def test_topics_that_are_missing_are_unknown_and_said_once(installation: Installation) -> None:
    """D2706"""
    (result,) = installation.wrong()
    assert result.health is CheckHealth.UNKNOWN
    assert result.subject == "State of acker partitions 0, 1"


def test_a_state_tells_for_how_many_partitions_and_by_which_version_it_was_written(
    installation: Installation,
) -> None:
    """D2706"""
    create_topics(installation.topics)
    assert installation.wrong() == []
    installation.write_states()
    assert [(r.subject, r.observed) for r in installation.wrong()] == []

    (result,) = installation.wrong(partitions=1)

    assert (result.code, result.health) == (SERVICES, CheckHealth.FAILED)
    assert "an acker with acker.partitions: 2 wrote it, this file has 1" in result.observed


def test_a_state_of_an_earlier_version_is_a_warning(installation: Installation) -> None:
    """D2706: its pieces have no header that names the cluster, or the last restore."""
    create_topics(installation.topics)
    installation.write_states()
    place = TopicPartition(installation.topics.ack_topics.state, 0)
    with closing(KafkaLog(installation.topics.kafka)) as log:
        with closing(log.reader(committed=True)) as reader:
            reader.assign({place: 0})
            records: list[Record] = []
            eventually(lambda: records, DEADLINE_S, step=lambda: records.extend(reader.poll(100)))
        producer = log.producer()
        for record in records:
            producer.send(Outgoing(place.topic, 0, record.value, record.key))
        producer.flush(30_000)

    (result,) = installation.wrong()

    assert (result.code, result.health) == (SERVICES, CheckHealth.WARNING)
    assert result.subject == "State of acker partition 0"


def test_a_state_of_a_later_version_is_a_failure_with_its_place(installation: Installation) -> None:
    """D2706"""
    create_topics(installation.topics)
    installation.write_states()
    names = installation.topics.ack_topics
    with closing(KafkaLog(installation.topics.kafka)) as log:
        producer = log.producer()
        producer.send(Outgoing(names.state, 1, b"\xc3\x01of a later version", part_key(1, 0)))
        producer.flush(30_000)

    (result,) = installation.wrong()

    assert (result.code, result.health) == (SERVICES, CheckHealth.FAILED)
    assert f"{names.state}/1" in result.observed


def test_a_service_of_another_prefix_in_the_group_is_named(installation: Installation) -> None:
    """D2706"""
    create_topics(installation.topics)
    admin = AdminClient({**installation.topics.kafka})
    other = f"{installation.prefix}other_ack_init"
    for future in admin.create_topics([NewTopic(other, 1, 1)]).values():
        future.result()
    member = Consumer(
        {
            **installation.topics.kafka,
            "group.id": installation.topics.acker.group,
            "client.id": "windhover-acker-elsewhere",
        }
    )
    member.subscribe([other])
    try:
        eventually(member.assignment, DEADLINE_S, step=lambda: member.poll(0.1))
        (result,) = installation.wrong()
    finally:
        member.close()

    assert (result.code, result.health) == (SERVICES, CheckHealth.FAILED)
    assert "windhover-acker-elsewhere on " in result.observed
    assert f"has partitions of {other}" in result.observed


@pytest.mark.sample(3)
@pytest.mark.parametrize("ahead_ms", [0, 2 * HOUR_MS, -2 * HOUR_MS], ids=["right", "ahead", "behind"])
def test_the_clocks_of_an_acker_and_of_a_replay_worker_are_judged(
    installation: Installation, ahead_ms: int
) -> None:
    """D414: they say what their clock says, the broker dates it."""
    topics = installation.topics
    create_topics(topics)
    probe = BrokerProbe(topics, wall_ms)

    def judged() -> list[CheckResult]:
        return list(judge_service_clocks(probe.services("topics.yaml"), topics))

    with closing(KafkaLog(topics.kafka)) as log, ExitStack() as undo:
        acker = AckerService(log, topics.ack_topics, 2, group=topics.acker.group)
        undo.callback(acker.close)
        limits = ReplayLimits(position_interval_ms=0)
        worker = ReplayService(log, topics, jitter=lambda: 0.0, limits=limits)
        undo.callback(worker.close)
        take = Take(f"{installation.prefix}g", "session", 1, 0, 2, ())
        producer = log.producer()
        for number in range(2):
            producer.send(Outgoing(topics.ack_topics.init, number, wire_codec().encode(take)))
        producer.flush(30_000)

        def step() -> None:
            acker.step(wall_ms() + ahead_ms)
            worker.step(wall_ms() + ahead_ms)

        due = [TopicPartition(topics.ack_topics.due, number) for number in range(2)]
        eventually(
            lambda: acker.status().partitions and all(end > 0 for end in log.stable_ends(due).values()),
            DEADLINE_S,
            told=worker.status,
            step=step,
        )
        results = judged()
    assert {result.code for result in results} == {CLOCKS}
    expected = CheckHealth.FAILED if ahead_ms else CheckHealth.OK
    assert {result.subject: result.health for result in results} == {
        "clocks of ackers": expected,
        "clocks of replay workers": expected,
    }
    how = "2.0 h ahead of" if ahead_ms > 0 else "2.0 h behind"
    assert all(how in result.observed for result in results if ahead_ms)
