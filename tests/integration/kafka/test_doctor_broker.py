"""The doctor's questions on a real broker, with each fault brought about."""

from __future__ import annotations

import json
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from acker.config.topics import Topics, parse
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Operation, Right
from acker.provisioning.provision import create_topics
from acker.provisioning.roles import Role, rights
from spout.cli import main as cli
from spout.doctor.broker import BrokerProbe
from spout.doctor.codes import (
    CLOCKS,
    GROUPS,
    LOGIN,
    REACHABLE,
    REPLICAS,
    REQUESTS,
    RETENTION,
    RIGHTS,
    SIZES,
    TOPICS,
    CheckCode,
    CheckHealth,
    CheckResult,
)
from spout.doctor.live import judge_live
from spout.group.announce import Announcer
from spout.group.presence import Who
from spout.local.embedded import free_port
from spout.planning.session import SessionName
from tests.support.brokers import Broker, set_topic
from tests.support.servers.secured import Secured, secured
from tests.support.waiting import eventually


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Installation:
    """A topics.yaml on a broker, and the doctor's results for it."""

    topics: Topics
    text: str
    prefix: str
    deadline_ms: int = 5_000

    def judged(self, ahead_ms: int = 0, role: Role | None = None) -> list[CheckResult]:
        """Judge it on a machine whose clock is ahead by so much."""
        facts = BrokerProbe(self.topics, lambda: wall_ms() + ahead_ms, self.deadline_ms).facts("topics.yaml")
        return list(judge_live(facts, self.topics, role))

    def wrong(self, ahead_ms: int = 0, role: Role | None = None) -> set[tuple[CheckCode, CheckHealth]]:
        return {(each.code, each.health) for each in self.judged(ahead_ms, role) if each.cure}

    def set(self, topic: str, setting: str, value: str) -> None:
        set_topic(self.topics.kafka["bootstrap.servers"], self.prefix + topic, setting, value)


def installation_on(settings: dict[str, str], prefix: str) -> Installation:
    lines = "".join(f"  {name}: '{value}'\n" for name, value in settings.items())
    text = (
        f"kafka:\n{lines}acker: {{partitions: 2, replication_factor: 1, topic_prefix: '{prefix}'}}\n"
        f"inputs: {{a: {{id: 1, group: {prefix}g, topic: '{prefix}a', partitions: 1}}}}\n"
    )
    return Installation(parse(text, file="topics.yaml", environ={}), text, prefix)


@pytest.fixture
def installation(broker: Broker, prefix: str) -> Installation:
    return installation_on({"bootstrap.servers": broker.bootstrap}, prefix)


def test_missing_topics_fail_and_made_ones_pass_with_all_else_that_can_be_told(
    installation: Installation,
) -> None:
    assert (TOPICS, CheckHealth.FAILED) in installation.wrong()
    create_topics(installation.topics)
    found = {each.code: each.health for each in installation.judged() if each.code is not CLOCKS}
    assert set(found.values()) == {CheckHealth.OK}
    assert {REACHABLE, LOGIN, REQUESTS, RIGHTS, TOPICS, GROUPS} <= found.keys()


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("topic", "setting", "value", "expected"),
    [
        ("a", "retention.ms", "1000", (RETENTION, CheckHealth.WARNING)),
        ("_ack_init", "min.insync.replicas", "2", (REPLICAS, CheckHealth.WARNING)),
        ("_ack_init", "max.message.bytes", "1000", (SIZES, CheckHealth.FAILED)),
        ("_ack_state", "cleanup.policy", "delete", (TOPICS, CheckHealth.FAILED)),
    ],
)
def test_a_setting_that_loses_records_has_its_code(
    installation: Installation, topic: str, setting: str, value: str, expected: tuple[CheckCode, CheckHealth]
) -> None:
    create_topics(installation.topics)
    installation.set(topic, setting, value)
    eventually(lambda: expected in installation.wrong())


def test_a_topic_of_one_copy_takes_writes_that_two_copies_must_have(
    installation: Installation,
) -> None:
    """So says the warning; before Kafka 3.7 it took none."""
    create_topics(installation.topics)
    installation.set("a", "min.insync.replicas", "2")
    eventually(lambda: (REPLICAS, CheckHealth.WARNING) in installation.wrong())
    errors: list[object] = []
    producer = Producer({**installation.topics.kafka, "acks": "all", "message.timeout.ms": 10_000})
    producer.produce(f"{installation.prefix}a", b"v", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush() == 0
    assert errors == [None]


def test_a_consumer_that_uses_the_group_is_named(installation: Installation) -> None:
    create_topics(installation.topics)
    stranger = Consumer(
        {**installation.topics.kafka, "group.id": f"{installation.prefix}g", "client.id": "kcat"}
    )
    stranger.subscribe([f"{installation.prefix}a"])
    try:
        eventually(lambda: stranger.poll(0.1) is not None or bool(stranger.assignment()))
        found = installation.judged()
    finally:
        stranger.close()
    (group,) = [each for each in found if (each.code, each.health) == (GROUPS, CheckHealth.FAILED)]
    assert group.observed.startswith("kcat on ")


@contextmanager
def transactions(installation: Installation) -> Iterator[None]:
    """Write transactions all the time, so that the broker writes into a topic of its own."""
    settings = {**installation.topics.kafka, "transactional.id": installation.prefix, "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(30)
    ended = threading.Event()

    def write() -> None:
        while not ended.wait(0.05):
            producer.begin_transaction()
            producer.produce(f"{installation.prefix}a", b"x")
            producer.commit_transaction(30)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(60)


def test_a_broker_whose_clock_differs_fails(installation: Installation) -> None:
    create_topics(installation.topics)
    with transactions(installation):
        assert (CLOCKS, CheckHealth.FAILED) not in installation.wrong()
        for ahead_ms in (60_000, -60_000):
            assert (CLOCKS, CheckHealth.FAILED) in installation.wrong(ahead_ms)


@contextmanager
def signs_of_life(installation: Installation, ahead_ms: int) -> Iterator[None]:
    """Let a driver whose clock is ahead by so much give signs of life meanwhile."""
    ended = threading.Event()

    def write() -> None:
        topics = installation.topics
        with closing(KafkaLog(topics.kafka)) as log:
            group = topics.inputs["a"].group
            announcer = Announcer(log, topics.ack_topics, group, 2, Who.here("shop", wall_ms()))
            while not ended.wait(0.2):
                announcer.send_tick(SessionName(1, "s"), 5, [0], wall_ms() + ahead_ms)
            announcer.close()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(60)


@pytest.mark.parametrize("ahead_ms", [0, 60_000, -60_000])
def test_a_driver_whose_clock_differs_fails(installation: Installation, ahead_ms: int) -> None:
    """D411."""
    create_topics(installation.topics)
    with signs_of_life(installation, ahead_ms):
        judged = [each for each in installation.judged() if each.code == CLOCKS]
    health = {each.subject: each.health for each in judged}
    expected = CheckHealth.FAILED if ahead_ms else CheckHealth.OK
    assert health["clock of the queries' drivers"] is expected


def test_an_archive_has_the_state_and_the_topics_and_no_payload(
    installation: Installation, tmp_path: Path
) -> None:
    create_topics(installation.topics)
    payload, source = b"order 1042 of Mrs Miller", installation.topics.input("a")
    producer = Producer(dict(installation.topics.kafka))
    for topic in (source.topic, source.dead_letter.topic):
        producer.produce(topic, payload, b"key of Mrs Miller", headers={"who": b"Mrs Miller"})
    assert producer.flush(30) == 0
    config, path = tmp_path / "topics.yaml", tmp_path / "report.zip"
    config.write_text(installation.text)
    cli.run(["doctor", "--only", "live", "--config", str(config), "--bundle", str(path)])
    with zipfile.ZipFile(path) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    assert not any("Miller" in text for text in texts.values())
    (row,) = json.loads(texts["status.json"])["partitions"]
    assert (row["source"], row["end"]) == ("a/0", 1)
    listed = {each["topic"]: each for each in json.loads(texts["topics.json"])}
    assert listed[source.topic]["partitions"] == 1
    assert listed[source.topic]["settings"]["cleanup.policy"] == "delete"


def test_no_broker_fails() -> None:
    installation = installation_on({"bootstrap.servers": f"127.0.0.1:{free_port()}"}, "")
    assert installation.wrong() == {(REACHABLE, CheckHealth.FAILED)}


def test_a_broker_that_lacks_requests_fails() -> None:
    """librdkafka's own cluster for tests answers fewer kinds than a broker."""
    with mock_cluster() as bootstrap:
        installation = installation_on({"bootstrap.servers": bootstrap}, "")
        installation.deadline_ms = 2_000
        assert (REQUESTS, CheckHealth.FAILED) in installation.wrong()


@contextmanager
def mock_cluster() -> Iterator[str]:
    producer = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": 1})
    yield ",".join(f"{each.host}:{each.port}" for each in producer.list_topics(timeout=10).brokers.values())


@pytest.fixture(scope="module")
def trusting_nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("secured")) as found:
        yield found


@pytest.mark.slow
@pytest.mark.kafka
def test_a_wrong_password_and_a_missing_right_fail_and_no_password_shows(trusting_nobody: Secured) -> None:
    admin = installation_on({"bootstrap.servers": trusting_nobody.broker.bootstrap}, "")
    create_topics(admin.topics)
    whole = rights(admin.topics, Role.ACKER)
    lacking = [each for each in whole if each != Right(Operation.READ, each.resource, "_ack_init")]
    assert len(lacking) == len(whole) - 1
    trusting_nobody.add({"whole": whole, "lacking": lacking})

    stranger = installation_on(trusting_nobody.settings("nobody"), "")
    assert (LOGIN, CheckHealth.FAILED) in stranger.wrong()

    found = installation_on(trusting_nobody.settings("lacking"), "").judged(role=Role.ACKER)
    (right,) = [each for each in found if (each.code, each.health) == (RIGHTS, CheckHealth.FAILED)]
    assert right.observed == "this user lacks Topic _ack_init: Read"
    assert not any(trusting_nobody.passwords["lacking"] in str(each.row()) for each in found)
    whole_found = installation_on(trusting_nobody.settings("whole"), "").wrong(role=Role.ACKER)
    assert (RIGHTS, CheckHealth.FAILED) not in whole_found
