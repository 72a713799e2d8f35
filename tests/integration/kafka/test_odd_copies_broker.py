"""Against a real broker: copies and letters of records of odd times, and of such as are refused."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from acker.config.topics import parse
from acker.identity import position_at, source_of
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing, Record, TopicPartition
from acker.provisioning.provision import check_topics, create_topics
from acker.wire.codec import wire_codec
from acker.wire.events import Lost, Verdicts, pack_positions
from acker.wire.verdict import Verdict
from replay.handling.letter_handling import LetterHandling, Order
from replay.records.letters import Filter, Letter, LetterAction, parse_letter
from replay.records.record_time import RecordTime, time_of
from replay.worker.report import ReplayEvent
from replay.worker.service import ReplayService
from tests.support.brokers import Broker, set_topic
from tests.support.odd_times import ODD_TIMES_MS
from tests.support.raw_records import RawRecord, encode_batch, produce
from tests.support.waiting import committed, eventually

DEADLINE_S = 120.0
TIMEOUT_MS = 30_000
AFTER, TYPE = "message.timestamp.after.max.ms", "message.timestamp.type"
NO_LIMIT = str((1 << 63) - 1)
DAY_MS = 86_400_000

YAML = """
kafka: {bootstrap.servers: "%(bootstrap)s"%(more)s}
acker: {partitions: 1, topic_prefix: "%(prefix)s"}
inputs:
  odd:
    id: 1
    group: %(prefix)sg
    topic: %(prefix)sodd
    partitions: 1
    retry: {attempts: 5, initial: 0s, jitter: 0}
    dead_letter: {max_ratio: 1.0}
"""


def now_ms() -> int:
    """Return wall time."""
    return int(time.time() * 1_000)


class Installation:
    """The topics of one input, whose acker is the test, and replay workers in this process."""

    def __init__(self, broker: Broker, prefix: str, more: str = "") -> None:
        self.bootstrap = broker.bootstrap
        text = YAML % {"bootstrap": broker.bootstrap, "prefix": prefix, "more": more}
        self.topics = parse(text, file="topics.yaml", environ={})
        self.input = self.topics.input("odd")
        self.log = KafkaLog(self.topics.kafka)
        self.events: list[ReplayEvent] = []

    def make(self, name: str, **settings: str) -> None:
        """Make a topic by hand, before the others."""
        config = {key.replace("_", "."): value for key, value in settings.items()}
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.create_topics([NewTopic(name, 1, 1, config=config)]).values():
            future.result()

    def produce(self, values: Sequence[bytes], stamps_ms: Sequence[int | None]) -> None:
        """Append records, each in a batch of its own, by no client of ours."""
        place = TopicPartition(self.input.topic, 0)
        for value, stamp_ms in zip(values, stamps_ms, strict=True):
            produce(self.bootstrap, place, encode_batch([RawRecord(value, b"k", (), stamp_ms)]))

    def lose(self, topic: str, offsets: Sequence[int], reason: Verdict = Verdict.FAILED) -> None:
        """Let an acker say that records of a topic failed."""
        source = source_of(1, 0, replay=topic == self.input.replay_topic)
        positions = pack_positions(np.array([position_at(0, offset) for offset in offsets]))
        lost = Lost(
            reason, self.input.group, topic, self.log.topics([topic])[topic].id, "split", "ValueError", "bad",
            0, 1, 2, source, positions,
        )  # fmt: skip
        writer = self.log.transactions(f"{self.input.group}-acker")
        writer.init(TIMEOUT_MS)
        writer.begin()
        verdicts = wire_codec().encode(Verdicts((), (), (lost,)))
        writer.send(Outgoing(self.topics.ack_topics.verdict, 0, verdicts))
        writer.commit(TIMEOUT_MS)
        writer.close()

    def replay(self, is_done: Callable[[ReplayService], bool]) -> ReplayService:
        """Run a replay worker until something is the case."""
        service = ReplayService(self.log, self.topics, jitter=lambda: 0.0, report=self.events.append)
        eventually(
            lambda: is_done(service), DEADLINE_S, told=service.status, step=lambda: service.step(now_ms())
        )
        service.close()
        return service

    def redrive(self) -> None:
        """Let all dead letters be emitted again."""
        order = Order(LetterAction.REPLAYED, Filter(), "kim", "", "r1")
        handling = LetterHandling(
            self.log,
            self.input,
            order,
            transactional_id_prefix=f"{self.input.group}-dlq",
            limits=self.topics.replay.limits,
        )
        handling.open()
        while not handling.is_done:
            handling.step(100, now_ms())
        handling.close()

    def read(self, topic: str) -> list[Record]:
        """Return what is committed in a topic's partition 0."""
        return committed(self.log, [TopicPartition(topic, 0)])

    def letters(self) -> list[Letter]:
        """Return the dead letters."""
        parsed = [parse_letter(record) for record in self.read(self.input.dead_letter.topic)]
        return [letter for letter in parsed if isinstance(letter, Letter)]


@pytest.fixture
def installation(broker: Broker, prefix: str) -> Iterator[Installation]:
    """An installation whose topics do not exist yet."""
    made = Installation(broker, prefix)
    yield made
    made.log.close()


def values_of(records: Sequence[Record]) -> list[bytes | None]:
    """Return the values of records, sorted."""
    return sorted(record.value or b"" for record in records)


def test_a_record_dated_tomorrow_dies_alone_among_a_hundred_and_lives_again_when_the_topic_is_corrected(
    installation: Installation,
) -> None:
    """O201: before, the ninety-nine others waited as well, for ever."""
    topics, source = installation.topics, installation.input.topic
    installation.make(source, **{AFTER.replace(".", "_"): NO_LIMIT})
    installation.make(installation.input.replay_topic, retention_ms="-1")
    create_topics(topics)
    (warning,) = [line for line in check_topics(topics) if AFTER in line]
    assert f"set {AFTER}={NO_LIMIT}" in warning
    values = [b"%03d" % number for number in range(100)]
    tomorrow_ms = now_ms() + DAY_MS
    installation.produce(values, [tomorrow_ms if value == b"037" else None for value in values])
    installation.lose(source, range(100))
    installation.replay(lambda worker: worker.status().replayed + worker.status().dead_lettered == 100)
    copies = installation.read(installation.input.replay_topic)
    assert values_of(copies) == [value for value in values if value != b"037"]
    ((letter,), (record,)) = installation.letters(), installation.read(installation.input.dead_letter.topic)
    assert (record.value, letter.dead) == (b"037", "REFUSED")
    assert letter.time == RecordTime(tomorrow_ms)
    message = dict(record.headers)["__dlq.errors.message"] or b""
    assert (
        f"{installation.input.replay_topic}: INVALID_TIMESTAMP: Broker: Invalid timestamp".encode() in message
    )

    set_topic(installation.bootstrap, installation.input.replay_topic, AFTER, NO_LIMIT)
    installation.redrive()
    *_, copy = installation.read(installation.input.replay_topic)
    assert (copy.value, copy.timestamp_ms) == (b"037", tomorrow_ms)


def test_a_value_that_our_own_client_does_not_send_waits_alone_until_its_setting_is_corrected(
    broker: Broker, prefix: str
) -> None:
    """O205: before, the worker ended after twenty transactions, and so did each one after it."""
    small = Installation(broker, prefix, ", message.max.bytes: '50000'")
    create_topics(small.topics)
    large = random.Random(1).randbytes(100_000)
    small.produce([b"a", large, b"b"], [None] * 3)
    small.lose(small.input.topic, range(3))
    small.replay(lambda worker: worker.status().replayed == 2 and worker.status().aside == 1)
    assert values_of(small.read(small.input.replay_topic)) == [b"a", b"b"]
    (why, *_) = [str(event.fields["why"]) for event in small.events if event.name == "put_aside"]
    assert "MSG_SIZE_TOO_LARGE" in why
    small.log.close()

    corrected = Installation(broker, prefix)
    corrected.replay(lambda worker: worker.status().dead_lettered == 1)
    ((letter,), (record,)) = corrected.letters(), corrected.read(corrected.input.dead_letter.topic)
    assert (record.value, letter.dead) == (large, "REFUSED")
    corrected.log.close()


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("replays", ["CreateTime", "LogAppendTime"])
def test_each_time_of_a_record_comes_through_copies_letter_and_redrive(
    installation: Installation, kind: str, replays: str
) -> None:
    """O1001, O1004: 0 is written by clients in C and Java; librdkafka takes it for none."""
    source, copies_topic = installation.input.topic, installation.input.replay_topic
    installation.make(source, message_timestamp_type=kind, **{AFTER.replace(".", "_"): NO_LIMIT})
    create_topics(installation.topics)
    set_topic(installation.bootstrap, copies_topic, TYPE, replays)
    values = [b"%d" % number for number in range(len(ODD_TIMES_MS))]
    installation.produce(values, ODD_TIMES_MS)
    records = installation.read(source)
    times = {record.value: time_of(record, is_copy=False) for record in records}
    if kind == "CreateTime":
        assert [time.ms for time in times.values()] == list(ODD_TIMES_MS)
    eventually(
        lambda: installation.log.topics([copies_topic], settings=True)[copies_topic].settings[TYPE] == replays
    )

    installation.lose(source, [record.offset for record in records])
    for attempt in range(2, 6):
        count = len(records) * (attempt - 1)
        installation.replay(lambda _, count=count: len(installation.read(copies_topic)) == count)  # type: ignore[misc]
        copies = installation.read(copies_topic)[-len(records) :]
        assert {copy.value: time_of(copy, is_copy=True) for copy in copies} == times
        installation.lose(copies_topic, [copy.offset for copy in copies])
    installation.replay(lambda worker: worker.status().dead_lettered == len(records))
    letters = installation.read(installation.input.dead_letter.topic)
    parsed = {record.value: parse_letter(record) for record in letters}
    assert {value: letter.time for value, letter in parsed.items() if isinstance(letter, Letter)} == times
    installation.redrive()
    copies = installation.read(copies_topic)[-len(records) :]
    assert {copy.value: time_of(copy, is_copy=True) for copy in copies} == times
