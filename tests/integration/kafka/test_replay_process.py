"""Replay workers as processes on a real broker: shared, killed, and exact all the same."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from acker.config import topics as topics_yaml
from acker.config.topics import Input, Topics
from acker.identity import source_of
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Headers, Outgoing, Reader, Record, TopicPartition
from acker.provisioning.provision import create_topics
from acker.wire.codec import wire_codec
from acker.wire.events import Lost, Verdicts, pack_positions
from acker.wire.verdict import Verdict
from replay.records.due import PROGRESS_KEY, Progress, due_codec
from spout.runtime.child import Child
from tests.support.brokers import Broker

RECORDS = 400
ATTEMPTS = 3
DEADLINE_S = 90.0
TIMEOUT_MS = 30_000

YAML = """
kafka: {bootstrap.servers: "%(bootstrap)s", session.timeout.ms: 6000}
acker: {partitions: 4, topic_prefix: "%(prefix)s"}
inputs:
  sentences:
    id: 7
    group: %(prefix)sg
    topic: %(prefix)ssentences
    partitions: 4
    retry: {attempts: 3, initial: 200ms, multiplier: 2, jitter: 0.5}
    dead_letter: {max_ratio: 1.0}
"""
"""Who is killed is a member of its group for the session timeout: the shortest that brokers take."""


class Installation:
    """Topics on a broker, an acker played by the test, and the replay workers' output as it comes."""

    def __init__(self, bootstrap: str, prefix: str, config: Path) -> None:
        self.config = config
        # Not now, so that a copy's time is known for its record's; nor long ago: the broker's first look at
        # retention, half a minute after its start, deletes what is older than a week.
        self.stamp_ms = time.time_ns() // 1_000_000 - 3_600_000
        config.write_text(YAML % {"bootstrap": bootstrap, "prefix": prefix})
        self.topics: Topics = topics_yaml.load_topics(config, {})
        self.input: Input = self.topics.input("sentences")
        create_topics(self.topics)
        self.log = KafkaLog(self.topics.kafka)
        self._codec = wire_codec()
        names = self.topics.ack_topics
        self._ids = self.log.topics([self.input.topic, self.input.replay_topic])
        self._copies = self._reader(self.input.replay_topic)
        self._letters = self._reader(self.input.dead_letter.topic)
        self._due = self._reader(names.due)
        self.copies: list[Record] = []
        self.letters: list[Record] = []
        self._last: dict[tuple[int, bytes | None], bytes | None] = {}
        self._acker = self.log.transactions(f"{prefix}acker")
        self._acker.init(TIMEOUT_MS)

    def produce(self) -> None:
        """Write the records of the source topic."""
        producer = self.log.producer()
        for number in range(RECORDS):
            headers: Headers = (("number", b"%d" % number),)
            producer.send(
                Outgoing(
                    self.input.topic,
                    number % 4,
                    b"line %d" % number,
                    b"%d" % number,
                    headers,
                    self.stamp_ms,
                )
            )
        producer.flush(TIMEOUT_MS)
        producer.close()

    def lose(self, topic: str, offsets: Mapping[int, list[int]], reason: Verdict = Verdict.FAILED) -> None:
        """Let an acker say that some offsets of a topic's partitions were lost; one transaction for all."""
        replay = topic == self.input.replay_topic
        self._acker.begin()
        for partition, lost in offsets.items():
            verdict = Lost(
                reason, self.input.group, topic, self._ids[topic].id, "split", "ValueError", "bad", 0, 1, 2,
                source_of(self.input.id, partition, replay=replay), pack_positions(np.array(lost)),
            )  # fmt: skip
            value = self._codec.encode(Verdicts((), (), (verdict,)))
            self._acker.send(Outgoing(self.topics.ack_topics.verdict, partition, value))
        self._acker.commit(TIMEOUT_MS)

    def look(self) -> None:
        """Read what the workers wrote since the last look; waits a moment for it."""
        self.copies += self._copies.poll(100, 10_000)
        self.letters += self._letters.poll(20, 10_000)
        for record in self._due.poll(20, 10_000):
            self._last[record.partition, record.key] = record.value

    def until(self, what: str, copies: int, letters: int = 0) -> None:
        """Wait until so many copies and dead letters are there."""
        deadline = time.monotonic() + DEADLINE_S
        while len(self.copies) < copies or len(self.letters) < letters:
            self.look()
            if time.monotonic() > deadline:
                pytest.fail(f"{what}: {len(self.copies)} copies of {copies}, {len(self.letters)} letters")

    def until_nothing_waits(self) -> None:
        """Wait until all verdicts are taken over and `_ack_due` lists no root any more."""
        verdict = self.topics.ack_topics.verdict
        places = [TopicPartition(verdict, number) for number in range(4)]
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            self.look()
            done = {}
            for (partition, key), value in self._last.items():
                if key == PROGRESS_KEY:
                    progress = due_codec().decode(value)
                    done[TopicPartition(verdict, partition)] = (
                        isinstance(progress, Progress) and progress.next
                    )
            waiting = [
                key for (_, key), value in self._last.items() if key != PROGRESS_KEY and value is not None
            ]
            if done == self.log.stable_ends(places) and not waiting:
                return
        pytest.fail(f"{len(waiting)} roots wait, taken over up to {done}")

    def close(self) -> None:
        """Close the clients."""
        for client in (self._copies, self._letters, self._due, self._acker, self.log):
            client.close()

    def _reader(self, topic: str) -> Reader:
        reader = self.log.reader(committed=True)
        reader.assign({TopicPartition(topic, number): 0 for number in range(4)})
        return reader


@pytest.fixture
def installation(broker: Broker, prefix: str, tmp_path: Path) -> Iterator[Installation]:
    made = Installation(broker.bootstrap, prefix, tmp_path / "topics.yaml")
    yield made
    made.close()


def headers_of(record: Record) -> dict[str, str]:
    return {name: (value or b"").decode() for name, value in record.headers}


def by_partition(records: list[Record]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for record in records:
        found.setdefault(record.partition, []).append(record.offset)
    return {partition: sorted(offsets) for partition, offsets in found.items()}


@pytest.mark.both_brokers
def test_two_workers_one_of_them_killed_write_each_outcome_once(installation: Installation) -> None:
    """Rules 5 and 7: every lost root becomes one copy, and after its last attempt one dead letter."""
    made = installation
    made.produce()
    with Child("replay", made.config) as first, Child("replay", made.config) as second:
        first.wait_ready()
        second.wait_ready()
        half = RECORDS // 8
        made.lose(made.input.topic, {number: list(range(half)) for number in range(4)})
        made.until("the first copies", copies=1)
        second.kill()
        made.lose(made.input.topic, {number: list(range(half, RECORDS // 4)) for number in range(4)})
        made.until("all copies", copies=RECORDS)
        second.start()
        made.lose(made.input.replay_topic, by_partition(made.copies), Verdict.TIMED_OUT)
        made.until("copies of the copies", copies=2 * RECORDS)
        again = [copy for copy in made.copies if headers_of(copy)["windhover.attempt"] == "3"]
        made.lose(made.input.replay_topic, by_partition(again))
        made.until("dead letters", copies=2 * RECORDS, letters=RECORDS)
        made.until_nothing_waits()
        assert first.stop()
        assert second.stop()
    made.look()
    attempts = Counter(
        (headers_of(copy)["windhover.origin"], headers_of(copy)["windhover.attempt"]) for copy in made.copies
    )
    topic = made.input.topic
    origins = [f"{topic}/{number % 4}@{number // 4}" for number in range(RECORDS)]
    assert attempts == Counter((origin, attempt) for origin in origins for attempt in ("2", "3"))
    assert Counter(headers_of(letter)["windhover.origin"] for letter in made.letters) == Counter(origins)
    for record in [*made.copies, *made.letters]:
        number = headers_of(record)["number"]
        assert (record.key, record.value) == (number.encode(), f"line {number}".encode())
        assert record.partition == int(number) % 4
    assert {copy.timestamp_ms for copy in made.copies} == {made.stamp_ms}
    assert {headers_of(letter)["windhover.dead"] for letter in made.letters} == {"ATTEMPTS"}
