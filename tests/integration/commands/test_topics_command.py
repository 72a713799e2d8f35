"""`windhover topics create` and `windhover topics check` on a real broker."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from acker.provisioning.admin import KafkaAdmin
from acker.provisioning.topic_specs import TopicRole, TopicSpec
from spout.cli import main as cli
from tests.support.brokers import Broker, set_topic
from tests.support.waiting import eventually


class Installation:
    """A topics.yaml of its own on a broker, and the commands on it."""

    def __init__(self, broker: Broker, prefix: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.prefix = prefix
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        self._bootstrap = broker.bootstrap
        self.file = folder / "topics.yaml"
        self._capsys = capsys
        self.write(partitions=2)

    def write(self, partitions: int) -> None:
        self.file.write_text(
            f"kafka: {{bootstrap.servers: '{self._bootstrap}'}}\n"
            f"acker: {{partitions: {partitions}, topic_prefix: '{self.prefix}'}}\n"
            f"inputs: {{a: {{id: 1, group: g, topic: '{self.prefix}a', partitions: 3}}}}\n"
        )

    def command(self, name: str) -> tuple[int, list[str]]:
        """Run a command; return its exit code and what it said."""
        exit_code = cli.run(["topics", name, str(self.file)])
        captured = self._capsys.readouterr()
        return exit_code, [
            line.removeprefix("windhover: ") for line in (captured.out + captured.err).splitlines()
        ]

    def command_once(self, name: str, exit_code: int) -> list[str]:
        """Run a command until it ends with an exit code: a broker hears of a change a little later."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            ended, said = self.command(name)
            if ended == exit_code:
                return said
        raise AssertionError(
            f"topics {name} did not end with {exit_code} within 30 s, but with {ended}: {said}"
        )

    def set(self, topic: str, setting: str, value: str) -> None:
        set_topic(self._bootstrap, self.prefix + topic, setting, value)

    def grow(self, topic: str, partitions: int) -> None:
        for future in self.admin.create_partitions([NewPartitions(self.prefix + topic, partitions)]).values():
            future.result()

    def delete(self, topic: str) -> None:
        for future in self.admin.delete_topics([self.prefix + topic], operation_timeout=10).values():
            future.result()

    def count(self, topic: str) -> int:
        return len(
            self.admin.list_topics(self.prefix + topic, timeout=10).topics[self.prefix + topic].partitions
        )


@pytest.fixture
def installation(
    broker: Broker, prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Installation:
    return Installation(broker, prefix, tmp_path, capsys)


def test_create_makes_every_topic_once_and_check_agrees(installation: Installation) -> None:
    exit_code, missing = installation.command("check")
    assert (exit_code, len(missing)) == (4, 10)
    assert all(f"run `windhover topics create {installation.file}`" in line for line in missing)

    exit_code, said = installation.command("create")
    assert exit_code == 0
    assert sum(line.startswith(f"made {installation.prefix}") for line in said) == 11
    assert installation.count("_ack_verdict") == 2
    assert installation.count("a.g.replay") == 3

    exit_code, said = installation.command("create")
    assert exit_code == 0
    assert not any(line.startswith("made") for line in said)

    exit_code, said = installation.command("check")
    assert exit_code == 0
    assert not any("error" in line for line in said)


def test_a_raised_partition_count_of_an_ack_topic_is_refused(installation: Installation) -> None:
    installation.command("create")
    installation.grow("_ack_ack", 3)

    for command in ("check", "create"):
        said = installation.command_once(command, 4)
        assert [line for line in said if "has 3 partitions, acker.partitions is 2" in line]


def test_another_n_in_the_file_is_refused_for_every_ack_topic(installation: Installation) -> None:
    installation.command("create")
    installation.write(partitions=4)

    exit_code, said = installation.command("create")

    assert exit_code == 4
    assert sum("give acker.partitions: 2" in line for line in said) == 8


@pytest.mark.parametrize(
    ("topic", "setting", "value"),
    [
        ("_ack_ack", "retention.ms", "1000"),
        ("_ack_verdict", "cleanup.policy", "compact"),
        ("_ack_state", "cleanup.policy", "compact,delete"),
        ("a.g.replay", "retention.ms", "1000"),
    ],
)
def test_a_setting_that_loses_records_is_refused_and_nothing_is_changed(
    installation: Installation, topic: str, setting: str, value: str
) -> None:
    installation.command("create")
    installation.set(topic, setting, value)

    for command in ("check", "create"):
        said = installation.command_once(command, 4)
        assert [
            line for line in said if line.startswith(f"{installation.prefix}{topic}: has {setting}={value}")
        ]


def test_a_replay_topic_grows_with_its_source(installation: Installation) -> None:
    installation.command("create")
    installation.grow("a", 5)

    installation.command_once("check", 4)
    said = installation.command_once("create", 0)

    assert f"raised {installation.prefix}a.g.replay to 5 partitions" in said
    assert installation.count("a.g.replay") == 5


def test_what_somebody_else_has_made_or_added_meanwhile_is_as_good(
    broker: Broker, installation: Installation
) -> None:
    """Two processes that provision at once: one was refused, or waited for partitions that never came."""
    admin = KafkaAdmin({"bootstrap.servers": broker.bootstrap})
    small, large = (
        TopicSpec(f"{installation.prefix}b", TopicRole.REPLAY, "key", partitions, -1, {})
        for partitions in (2, 5)
    )
    admin.make([small])
    admin.make([large])
    assert installation.count("b") == 2
    admin.grow([large])
    admin.grow([large])
    assert installation.count("b") == 5


def test_an_ack_topic_that_vanished_beside_full_ones_is_not_made_anew(
    installation: Installation, broker: Broker
) -> None:
    installation.command("create")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(f"{installation.prefix}_ack_verdict", b"x", partition=0)
    assert producer.flush(30) == 0
    installation.delete("_ack_state")

    said = installation.command_once("create", 4)

    assert [line for line in said if "_ack_state: is gone while" in line and "_ack_verdict hold" in line]


def test_an_installation_from_before_exactly_once_goes_on_and_gets_its_topic(
    installation: Installation, broker: Broker
) -> None:
    """It lacks `_ack_sink`, and its other topics hold records."""
    installation.command("create")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(f"{installation.prefix}_ack_verdict", b"x", partition=0)
    assert producer.flush(30) == 0
    installation.delete("_ack_sink")

    def warned() -> bool:
        exit_code, lines = installation.command("check")
        assert exit_code == 0
        return any("_ack_sink: does not exist: queries that write exactly once" in line for line in lines)

    eventually(warned, 30)
    said = installation.command_once("create", 0)
    assert f"made {installation.prefix}_ack_sink (ack table, 2 partitions)" in said
    assert installation.count("_ack_sink") == 2


def test_a_source_that_deletes_records_too_early_is_a_warning(installation: Installation) -> None:
    """Nothing is lost by it yet, so the exit code is 0."""
    installation.command("create")
    installation.set("a", "retention.ms", "60000")
    said: list[str] = []

    def warned() -> bool:
        exit_code, lines = installation.command("check")
        assert exit_code == 0
        said[:] = [line for line in lines if "retention.ms=60000 (1m)" in line]
        return bool(said)

    eventually(warned, 30)
    (line,) = said
    assert line.startswith(f"warning: {installation.prefix}a: has retention.ms")
    assert "input a may need a record for 1082s" in line
