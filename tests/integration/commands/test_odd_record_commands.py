"""A header whose name is no UTF-8 in every topic of an installation, and all that a user runs beside it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import spout
from acker.config.topics import load_topics
from acker.kafka.port import TopicPartition
from acker.provisioning.provision import create_topics
from spout.cli import main as cli
from spout.runtime.child import Child
from spout.standalone.client import Client
from tests.support.brokers import Broker
from tests.support.odd_records import NO_UTF8
from tests.support.raw_records import RawRecord, encode_batch, produce

DEADLINE_S = 90.0
WAIT_MS = 5_000
UNEXPECTED_EXIT = 1
ODD = RawRecord(b"odd", b"k", ((NO_UTF8, b"1"),))
SOUND = RawRecord(b"sound", b"k")
FAILING = RawRecord(b"fails", b"k", ((NO_UTF8, b"1"),))
COMMANDS = (
    "status", "roots", "machinery", "failures", "latency", "check", "inspect lines/0@0", "inspect lines/0@2",
    "inspect --key k --from 1h", "dlq list --all", "dlq list --key k", "dlq stats --all",
    "dlq show lines/0@2", "dlq redrives", "topics repair", "topics check",
    "offsets reset lines --to earliest", "acker free lines",
)  # fmt: skip

YAML = """
kafka: {{bootstrap.servers: "{bootstrap}"}}
acker: {{partitions: 1, topic_prefix: "{prefix}"}}
inputs:
  lines:
    id: 1
    group: {prefix}g
    topic: {prefix}lines
    partitions: 1
    retry: {{initial: 100ms, attempts: 2}}
    dead_letter: {{max_ratio: 1}}
"""


def write_one_to_each(broker: Broker, topics: spout.Topics) -> int:
    """Write an odd record to every topic that somebody reads; return how many of them will be emitted."""
    lines = topics.input("lines")
    emitted = (lines.topic, lines.replay_topic)
    for topic in (*emitted, lines.dead_letter.topic, *topics.ack_topics.names()):
        produce(broker.bootstrap, TopicPartition(topic, 0), encode_batch([ODD]))
    return len(emitted)


def settle(client: Client, count: int) -> list[bytes | None]:
    """Confirm so many records, and fail those that always fail; return the values that were confirmed."""
    confirmed: list[bytes | None] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(confirmed) < count:
        assert time.monotonic() < deadline, confirmed
        for item in client.open(10, wait_ms=WAIT_MS):
            if item["value"] == FAILING.value:
                client.fail(item, "ValueError: no")
            else:
                client.confirm(item, wait_ms=WAIT_MS)
                confirmed.append(item["value"])
    return confirmed


def test_everything_that_a_user_runs_comes_through(
    broker: Broker, prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """O120, O121: what lay there before they started, and what comes while they run."""
    config = tmp_path / "topics.yaml"
    config.write_text(YAML.format(bootstrap=broker.bootstrap, prefix=prefix))
    topics = load_topics(config, {})
    create_topics(topics)
    source = TopicPartition(topics.input("lines").topic, 0)
    emitted = write_one_to_each(broker, topics)
    for record in (SOUND, FAILING, SOUND):
        produce(broker.bootstrap, source, encode_batch([record]))
    with Child("acker", config) as acker, Child("replay", config) as replay:
        acker.wait_ready()
        replay.wait_ready()
        with spout.KafkaSpout(topics, "lines") as lines, lines.client("worker") as client:
            confirmed = settle(client, emitted + 2)
            emitted_later = write_one_to_each(broker, topics)
            produce(broker.bootstrap, source, encode_batch([SOUND]))
            confirmed += settle(client, emitted_later + 1)
        assert sorted(value or b"" for value in confirmed) == [ODD.value] * 4 + [SOUND.value] * 3
        for command in COMMANDS:
            exit_code = cli.run([*command.split(), *_config_of(command, config)])
            printed = capsys.readouterr()
            assert "Traceback" not in printed.err, (command, printed.err)
            assert exit_code != UNEXPECTED_EXIT or command == "check", (command, printed.err)
        exit_code = cli.run(["dlq", "list", "--all", "-o", "json", "--config", str(config)])
        assert exit_code == 0
        assert "UNWRITABLE" in capsys.readouterr().out
        assert (acker.exit_code, replay.exit_code) == (None, None)


def _config_of(command: str, config: Path) -> list[str]:
    option = "--file" if command.startswith("topics ") else "--config"
    return [option, str(config)]
