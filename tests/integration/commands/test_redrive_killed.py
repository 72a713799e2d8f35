"""A redrive by command or page on a real broker, killed and repeated: each letter has one copy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from acker.config.topics import load_topics
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Log, Outgoing, Record, TopicPartition
from acker.kafka.read_to_end import read_piece
from acker.provisioning.provision import create_topics
from replay.handling.letter_box import find_letters
from replay.handling.outcomes import find_redrives
from replay.records.dead_letter import DEAD
from replay.records.headers import ORIGIN
from replay.records.letters import LETTER, Filter
from replay.records.redrives import redrive_of
from tests.support.brokers import Broker
from tests.support.waiting import eventually

LETTERS = 300
DEADLINE_S = 60.0
WAIT_MS = 30_000
KILLS = 3


def committed(log: Log, topic: str) -> list[Record]:
    """Return the committed records of partition 0."""
    place = TopicPartition(topic, 0)
    end = log.stable_ends([place])[place]
    return list(read_piece(log, place, 0, end, committed=True, wait_ms=WAIT_MS))


def by_command(config: Path) -> subprocess.Popen[str]:
    """Start a redrive by the command, which ends with it."""
    command = "dlq replay --input sentences --rate 150 --execute --why fixed --config"
    return start(*command.split(), str(config))


def by_page(config: Path) -> subprocess.Popen[str]:
    """Start a page, and a redrive by its form; the page goes on behind its end."""
    started = start("ui", "--allow-actions", "--port", "0", "--config", str(config))
    assert started.stdout is not None
    address = started.stdout.readline().strip()
    token = started.stdout.readline().strip().removeprefix("token: ")
    form = urlencode({"input": "sentences", "rate": "150", "why": "fixed", "token": token})
    headers = {"origin": address.rstrip("/"), "accept": "application/json"}
    request = Request(f"{address}redrives", form.encode(), headers)
    with urlopen(request, timeout=DEADLINE_S) as answer:
        assert answer.status == 201
    return started


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "spout.cli", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


@pytest.mark.parametrize(
    ("begin", "exit_code"), [(by_command, 0), pytest.param(by_page, 143, marks=pytest.mark.slow)]
)
def test_a_redrive_that_is_killed_three_times_replays_each_letter_once(
    broker: Broker,
    prefix: str,
    tmp_path: Path,
    begin: Callable[[Path], subprocess.Popen[str]],
    exit_code: int,
) -> None:
    config = tmp_path / "topics.yaml"
    config.write_text(f"""
kafka: {{bootstrap.servers: '{broker.bootstrap}'}}
acker: {{partitions: 1, topic_prefix: '{prefix}'}}
inputs:
  sentences: {{id: 1, group: g, topic: {prefix}s, partitions: 1}}
""")
    topics = load_topics(config, {})
    create_topics(topics)
    one = topics.input("sentences")
    with closing(KafkaLog(topics.kafka)) as log:
        producer = log.producer()
        for number in range(LETTERS):
            origin = (ORIGIN, f"{one.topic}/0@{number}".encode())
            producer.send(
                Outgoing(one.dead_letter.topic, 0, b"%d" % number, headers=((DEAD, b"ATTEMPTS"), origin))
            )
        producer.flush(WAIT_MS)
        producer.close()
        for kills in range(1, KILLS + 1):
            before = len(committed(log, one.replay_topic))
            running = begin(config)
            eventually(lambda before=before: len(committed(log, one.replay_topic)) > before)  # type: ignore[misc]
            os.kill(running.pid, signal.SIGKILL)
            running.communicate()
            assert len(find_redrives(log, one, wait_ms=WAIT_MS)) == kills
        assert len(committed(log, one.replay_topic)) < LETTERS, "it was killed midway"
        last = begin(config)
        eventually(lambda: find_redrives(log, one, wait_ms=WAIT_MS)[-1].state == "DONE")
        if exit_code:
            last.terminate()
        said, _ = last.communicate(timeout=DEADLINE_S)
        assert last.returncode == exit_code, said
        copies = committed(log, one.replay_topic)
        assert Counter(copy.value for copy in copies) == Counter(b"%d" % n for n in range(LETTERS))
        assert len({dict(copy.headers)[LETTER] for copy in copies}) == LETTERS
        assert find_letters(log, one, Filter(), wait_ms=WAIT_MS).letters == []
        records = find_redrives(log, one, wait_ms=WAIT_MS)
        assert [each.state for each in records] == ["INTERRUPTED"] * KILLS + ["DONE"]
        copied = Counter(redrive_of(copy.headers) for copy in copies)
        assert len(copied) == KILLS + 1
        assert records[-1].ended is not None
        assert records[-1].ended.handled == copied[records[-1].begun.redrive]
