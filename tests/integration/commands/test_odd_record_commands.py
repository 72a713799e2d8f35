"""Each kind of odd record in every topic of an installation, and all that a user runs beside it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

import spout
from acker.config.topics import load_topics
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing, TopicPartition
from acker.provisioning.provision import create_topics
from spout.cli import main as cli
from spout.local.embedded import free_port
from spout.runtime.child import Child
from spout.standalone.client import Client
from tests.support.brokers import Broker
from tests.support.odd_records import NO_UTF8, ODD_RECORDS, OddRecord, cut_golden
from tests.support.programs import running
from tests.support.raw_records import RawRecord, encode_batch, produce

DEADLINE_S = 240.0
TEST_S = 600
"""Alone it takes some 70 s; on a machine that runs other tests as well, several times that."""

WAIT_MS = 5_000
UNEXPECTED_EXIT = 1
USAGE_EXIT = 2
"""Of a command that is not called as it should be; `check` has it for what is critical."""
UNKNOWN_VERSION = "value_garbage"
"""It stops who reads `_ack_verdict` or `_ack_due`, until an operator lets it pass."""
WAIT_LONG_MS = 30_000
ODD = [odd for odd in ODD_RECORDS if odd.kind != UNKNOWN_VERSION]
CUT_EVERY = 9
"""Of the records that are cut short so many bytes apart one is written."""

LARGE_BYTES = 5_000
"""A record of so many bytes is a batch of its own."""

ABORTED = [odd for odd in ODD_RECORDS if odd.can_be_copied and odd.record.size < 100_000]
"""Written in a transaction that is given up: nobody may see any of them."""

SOUND = RawRecord(b"sound", b"k")
MARKER = 1
FAILING_AT = len([*ODD, *cut_golden("lines")[::CUT_EVERY], *ABORTED]) + MARKER + 1
"""Where it is: behind the odd records, and a sound one."""
FAILING = RawRecord(b"fails", b"k", ((NO_UTF8, b"1"),))
COMMANDS = (
    "status", "roots", "machinery", "failures", "latency", "check", "inspect lines/0@0",
    f"inspect lines/0@{FAILING_AT}", "inspect --key k --from 1h", "dlq list --all", "dlq list --key k",
    "dlq stats --all", f"dlq show lines/0@{FAILING_AT}", "dlq redrives", "topics repair", "topics check",
    "offsets reset lines --to earliest", "acker free lines", "doctor --only live",
    "sql SELECT*FROM(letters)",
)  # fmt: skip
PATHS = (
    "/", "/partition/lines/0", "/machinery", "/failures", "/letters", "/letters?all=on", "/latency",
    "/redrives", "/redrives/new?input=lines", "/record/lines/0@0", f"/record/lines/0@{FAILING_AT}",
    "/metrics",
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
    timeout: 10m
    retry: {{initial: 100ms, attempts: 2}}
    dead_letter: {{max_ratio: 1}}
"""


def write_each_to_all(broker: Broker, topics: spout.Topics) -> list[OddRecord]:
    """Write odd records of all kinds to every topic that somebody reads; return those that will be emitted.

    A topic that is compacted takes none without a key.
    """
    lines = topics.input("lines")
    emitted = (lines.topic, lines.replay_topic)
    own = topics.ack_topics
    compacted = (own.state, own.due, own.sink)
    written: list[OddRecord] = []
    for topic in (*emitted, lines.dead_letter.topic, *own.names()):
        place = TopicPartition(topic, 0)
        cut = cut_golden(topic)[::CUT_EVERY]
        odds = [odd for odd in ODD if odd.record.key is not None or topic not in compacted]
        large = [odd for odd in odds if odd.record.size >= LARGE_BYTES]
        small = [odd for odd in odds if odd.record.size < LARGE_BYTES]
        for batch in ([*small, *cut], *([odd] for odd in large)):
            produce(broker.bootstrap, place, encode_batch([odd.record for odd in batch]))
        give_up(topics, topic, ABORTED)
        if topic in emitted:
            written += [*ODD, *cut]
    return written


def give_up(topics: spout.Topics, topic: str, odds: Sequence[OddRecord]) -> None:
    """Write records in a transaction, and abort it."""
    with closing(KafkaLog(topics.kafka)) as log:
        owner = log.transactions(f"{topic}-given-up")
        owner.init(WAIT_LONG_MS)
        owner.begin()
        for odd in odds:
            owner.send(Outgoing(topic, 0, odd.record.value, odd.record.key or b"k", odd.headers))
        owner.flush(WAIT_LONG_MS)
        owner.abort(WAIT_LONG_MS)
        owner.close()


def look_by_page(config: Path, folder: Path) -> None:
    """Ask the page for each path."""
    page = f"http://127.0.0.1:{(port := free_port())}"
    arguments = ["-m", "spout.cli", "ui", "--config", str(config), "--port", str(port)]
    with running(arguments, folder / "log") as started:
        started.until(lambda: answer_of(f"{page}/readyz") == 200)
        assert {path: code for path in PATHS if (code := answer_of(page + path)) != 200} == {}


def answer_of(address: str) -> int:
    """Return the status of an answer; 0: there is none yet."""
    try:
        with urlopen(address, timeout=DEADLINE_S) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code
    except OSError:
        return 0


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


@pytest.mark.slow
@pytest.mark.timeout(TEST_S)
def test_everything_that_a_user_runs_comes_through(
    broker: Broker, prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """O120, O121, O126, O127, O129: what lay there before they started, and what comes while they run."""
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
            confirmed = settle(client, len(emitted) + 2)
            emitted += write_each_to_all(broker, topics)
            produce(broker.bootstrap, source, encode_batch([SOUND]))
            confirmed += settle(client, len(emitted) + 3 - len(confirmed))
        odd_values = [odd.record.value or b"" for odd in emitted]
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
        look_by_page(config, tmp_path)
        assert (acker.exit_code, replay.exit_code) == (None, None)


def _config_of(command: str, config: Path) -> list[str]:
    return [str(config)] if command.startswith("topics ") else ["--config", str(config)]
