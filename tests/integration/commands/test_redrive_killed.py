"""`windhover dlq replay` on a real broker, killed while it writes and repeated: each letter has one copy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

from acker.config.topics import load_topics
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Log, Outgoing, Record, TopicPartition
from acker.kafka.reading import read_piece
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


def test_a_redrive_that_is_killed_three_times_replays_each_letter_once(
    broker: Broker, prefix: str, tmp_path: Path
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
    command = [
        sys.executable, "-m", "spout.cli", "dlq", "replay", "--input", "sentences", "--rate", "150",
        "--execute", "--why", "fixed", "--config", str(config),
    ]  # fmt: skip
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
            running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            eventually(lambda before=before: len(committed(log, one.replay_topic)) > before)  # type: ignore[misc]
            os.kill(running.pid, signal.SIGKILL)
            running.wait()
            assert len(find_redrives(log, one, wait_ms=WAIT_MS)) == kills
        assert len(committed(log, one.replay_topic)) < LETTERS, "it was killed midway"
        ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=DEADLINE_S)
        assert ran.returncode == 0, ran.stderr
        copies = committed(log, one.replay_topic)
        assert Counter(copy.value for copy in copies) == Counter(b"%d" % n for n in range(LETTERS))
        assert len({dict(copy.headers)[LETTER] for copy in copies}) == LETTERS
        assert find_letters(log, one, Filter(), wait_ms=WAIT_MS).letters == []
        records = find_redrives(log, one, wait_ms=WAIT_MS)
        assert [each.state for each in records] == ["INTERRUPTED"] * KILLS + ["DONE"]
        last = Counter(redrive_of(copy.headers) for copy in copies)
        assert len(last) == KILLS + 1
        assert records[-1].ended is not None
        assert records[-1].ended.handled == last[records[-1].begun.redrive]
