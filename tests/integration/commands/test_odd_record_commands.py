"""Each kind of odd record in every topic of an installation, and all that a user runs beside it."""

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
from tests.support.odd_records import NO_UTF8, ODD_RECORDS
from tests.support.raw_records import RawRecord, encode_batch, produce

DEADLINE_S = 90.0
WAIT_MS = 5_000
UNEXPECTED_EXIT = 1
USAGE_EXIT = 2
"""Of a command that is not called as it should be; `check` has it for what is critical."""
UNKNOWN_VERSION = "value_garbage"
"""It stops who reads `_ack_verdict` or `_ack_due`, until an operator lets it pass."""
ODD = [odd.record for odd in ODD_RECORDS if odd.kind != UNKNOWN_VERSION]
SOUND = RawRecord(b"sound", b"k")
FAILING_AT = len(ODD) + 1
"""Where it is: behind the odd records, and a sound one."""
FAILING = RawRecord(b"fails", b"k", ((NO_UTF8, b"1"),))
COMMANDS = (
    "status", "roots", "machinery", "failures", "latency", "check", "inspect lines/0@0",
    f"inspect lines/0@{FAILING_AT}", "inspect --key k --from 1h", "dlq list --all", "dlq list --key k",
    "dlq stats --all", f"dlq show lines/0@{FAILING_AT}", "dlq redrives", "topics repair", "topics check",
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


def write_each_to_all(broker: Broker, topics: spout.Topics) -> int:
    """Write odd records of all kinds to every topic that somebody reads; return how many will be emitted.

    A topic that is compacted takes none without a key.
    """
    lines = topics.input("lines")
    emitted = (lines.topic, lines.replay_topic)
    own = topics.ack_topics
    for topic in (*emitted, lines.dead_letter.topic, *own.names()):
        for record in ODD:
            if record.key is not None or topic not in (own.state, own.due):
                produce(broker.bootstrap, TopicPartition(topic, 0), encode_batch([record]))
    return len(emitted) * len(ODD)


def settle(client: Client, count: int) -> list[bytes | None]:
    """Confirm so many records, and fail those that always fail; return the values that were confirmed."""
    confirmed: list[bytes | None] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(confirmed) < count:
        assert time.monotonic() < deadline, (len(confirmed), confirmed)
        items = client.open(50, wait_ms=WAIT_MS)
        for item in items:
            if item["value"] == FAILING.value:
                client.fail(item, "ValueError: no")
        others = [item for item in items if item["value"] != FAILING.value]
        if others:
            client.confirm(others, wait_ms=WAIT_MS)
        confirmed += [item["value"] for item in others]
    return confirmed


def test_everything_that_a_user_runs_comes_through(
    broker: Broker, prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """O120, O121, O126: what lay there before they started, and what comes while they run."""
    config = tmp_path / "topics.yaml"
    config.write_text(YAML.format(bootstrap=broker.bootstrap, prefix=prefix))
    topics = load_topics(config, {})
    create_topics(topics)
    source = TopicPartition(topics.input("lines").topic, 0)
    emitted = write_each_to_all(broker, topics)
    for record in (SOUND, FAILING, SOUND):
        produce(broker.bootstrap, source, encode_batch([record]))
    with Child("acker", config) as acker, Child("replay", config) as replay:
        acker.wait_ready()
        replay.wait_ready()
        with spout.KafkaSpout(topics, "lines") as lines, lines.client("worker") as client:
            confirmed = settle(client, emitted + 2)
            emitted_later = write_each_to_all(broker, topics)
            produce(broker.bootstrap, source, encode_batch([SOUND]))
            confirmed += settle(client, emitted_later + 1)
        odd_values = [record.value or b"" for record in ODD] * 4
        assert sorted(value or b"" for value in confirmed) == sorted([*odd_values, *[SOUND.value or b""] * 3])
        for command in COMMANDS:
            exit_code = cli.run([*command.split(), *_config_of(command, config)])
            printed = capsys.readouterr()
            assert "Traceback" not in printed.err, (command, printed.err)
            assert exit_code not in (UNEXPECTED_EXIT, USAGE_EXIT) or command == "check", (
                command,
                printed.err,
            )
        exit_code = cli.run(["dlq", "list", "--all", "-o", "json", "--config", str(config)])
        assert exit_code == 0
        assert "UNWRITABLE" in capsys.readouterr().out
        assert (acker.exit_code, replay.exit_code) == (None, None)


def _config_of(command: str, config: Path) -> list[str]:
    return [str(config)] if command.startswith("topics ") else ["--config", str(config)]
