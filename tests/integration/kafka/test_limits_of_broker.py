"""Against a real broker: records as large as it takes, and a group on a thousand partitions."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from acker.config.topics import parse
from acker.errors import LogError, TopicError
from acker.identity import is_replay, offset_of, partition_of, source_of
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Bound, Log, OffsetAnswers, Outgoing, Record, TopicPartition, record_bytes
from acker.provisioning.provision import check_topics, create_topics
from acker.provisioning.topic_specs import MESSAGE_BYTES
from acker.service.service import AckerService
from acker.wire.codec import wire_codec
from acker.wire.events import Lost, Verdicts, pack_positions
from acker.wire.verdict import Verdict
from replay.worker.report import ReplayEvent
from replay.worker.service import ReplayService
from spout.group.sources import PlannerSpec
from spout.local.embedded import EmbeddedBroker
from spout.planning.journal import BEGINNING, Journal, batch_ranges
from spout.planning.plan import BatchPlan
from spout.planning_process.planner import Planner
from spout.publishing.publish import BatchLane, Publisher, publication_of
from tests.support.brokers import Broker, set_topic
from tests.support.outcomes import outcome_from
from tests.support.waiting import committed, eventually

DEADLINE_S = 120.0
TIMEOUT_MS = 30_000

YAML = """
kafka: {bootstrap.servers: "%(bootstrap)s"}
acker: {partitions: 1, topic_prefix: "%(prefix)s"}
inputs:
  large:
    id: 1
    group: %(prefix)sg
    topic: %(prefix)slarge
    partitions: 1
    retry: {attempts: 5, initial: 0s, jitter: 0}
    dead_letter: {max_ratio: 1.0}
"""


def now_ms() -> int:
    """Return wall time."""
    return int(time.time() * 1_000)


class Installation:
    """The topics of one input, whose acker is the test, and a replay worker in this process."""

    def __init__(self, broker: Broker, prefix: str) -> None:
        text = YAML % {"bootstrap": broker.bootstrap, "prefix": prefix}
        self.topics = parse(text, file="topics.yaml", environ={})
        self.input = self.topics.input("large")
        self.log = KafkaLog(self.topics.kafka)

    def produce(self, size: int, key: bytes | None = None) -> None:
        """Append a record whose value does not compress, of `size` bytes for the broker; raise a refusal."""
        empty = record_bytes(Outgoing(self.input.topic, 0, b"", key))
        producer = self.log.producer()
        try:
            producer.send(Outgoing(self.input.topic, 0, random.Random(size).randbytes(size - empty), key))
            producer.flush(TIMEOUT_MS)
        finally:
            producer.close()

    def lose(self, offset: int) -> None:
        """Let an acker say that a record of the source topic failed."""
        name = self.input.topic
        lost = Lost(
            Verdict.FAILED, self.input.group, name, self.log.topics([name])[name].id, "split", "ValueError",
            "bad", 0, 1, 2, source_of(1, 0), pack_positions(np.array([offset])),
        )  # fmt: skip
        writer = self.log.transactions(f"{self.input.group}-acker")
        writer.init(TIMEOUT_MS)
        writer.begin()
        writer.send(
            Outgoing(self.topics.ack_topics.verdict, 0, wire_codec().encode(Verdicts((), (), (lost,))))
        )
        writer.commit(TIMEOUT_MS)
        writer.close()

    def replay(self) -> None:
        """Run a replay worker until everything that was lost is a copy or a dead letter."""
        service = ReplayService(self.log, self.topics, jitter=lambda: 0.0)
        eventually(
            lambda: service.status().replayed + service.status().dead_lettered,
            DEADLINE_S, told=service.status, step=lambda: service.step(now_ms()),
        )  # fmt: skip
        service.close()

    def read(self, topic: str) -> list[Record]:
        """Return what is committed in a topic's partition 0."""
        return committed(self.log, [TopicPartition(topic, 0)])


@pytest.fixture
def installation(broker: Broker, prefix: str) -> Iterator[Installation]:
    """An installation whose topics do not exist yet."""
    made = Installation(broker, prefix)
    yield made
    made.log.close()


def test_a_record_of_the_largest_size_comes_back_as_a_copy_with_its_headers(
    installation: Installation,
) -> None:
    """The replay topic takes a mebibyte more than its source, for headers and history."""
    create_topics(installation.topics)
    installation.produce(MESSAGE_BYTES, b"key")
    with pytest.raises(LogError, match="larg"):
        installation.produce(MESSAGE_BYTES + 100)
    [record] = installation.read(installation.input.topic)
    installation.lose(record.offset)
    installation.replay()
    [copy] = installation.read(installation.input.replay_topic)
    assert (copy.key, copy.value) == (record.key, record.value)
    assert dict(copy.headers)["windhover.cause"] == b"ValueError: bad"
    assert installation.read(installation.input.dead_letter.topic) == []


def narrow(installation: Installation, *topics: str, older_ms: int | None = None) -> None:
    """Make topics that take no larger records than their source, nor older ones, before the others."""
    admin = AdminClient({"bootstrap.servers": installation.topics.kafka["bootstrap.servers"]})
    settings = {"max.message.bytes": str(MESSAGE_BYTES), "retention.ms": "-1"}
    settings |= {} if older_ms is None else {"message.timestamp.before.max.ms": str(older_ms)}
    for future in admin.create_topics([NewTopic(name, 1, 1, config=settings) for name in topics]).values():
        future.result()


def test_a_copy_that_its_topic_does_not_take_is_a_dead_letter_that_says_so(
    installation: Installation,
) -> None:
    """A replay topic made by hand takes no more than its source; the payload is kept, whole."""
    narrow(installation, installation.input.replay_topic)
    create_topics(installation.topics)
    installation.produce(MESSAGE_BYTES)
    installation.lose(0)
    installation.replay()
    [letter] = installation.read(installation.input.dead_letter.topic)
    assert dict(letter.headers)["windhover.dead"] == b"TOO_LARGE"
    assert letter.value == installation.read(installation.input.topic)[0].value
    assert installation.read(installation.input.replay_topic) == []


def test_a_dead_letter_that_its_topic_does_not_take_says_where_the_payload_is(
    installation: Installation,
) -> None:
    """Both topics made by hand: the letter names the record, which is still in the source topic."""
    narrow(installation, installation.input.replay_topic, installation.input.dead_letter.topic)
    create_topics(installation.topics)
    installation.produce(MESSAGE_BYTES)
    installation.lose(0)
    installation.replay()
    [letter] = installation.read(installation.input.dead_letter.topic)
    headers = dict(letter.headers)
    assert (letter.value, headers["windhover.dead"]) == (None, b"TOO_LARGE")
    assert headers["windhover.origin"] == f"{installation.input.topic}/0@0".encode()
    assert b"more than" in (headers["windhover.missing"] or b"")


def test_a_copy_that_is_too_old_for_its_topic_waits_until_the_topic_is_corrected(
    installation: Installation,
) -> None:
    """The record was in time for its source, and its copy has the record's time."""
    replays, bootstrap = installation.input.replay_topic, installation.topics.kafka["bootstrap.servers"]
    narrow(installation, replays, older_ms=3_600_000)
    for made_or_checked in (create_topics, check_topics):  # its source, of which that follows, is made first
        with pytest.raises(TopicError, match=r"has message\.timestamp\.before\.max\.ms=3600000") as found:
            made_or_checked(installation.topics)
    producer = installation.log.producer()
    producer.send(Outgoing(installation.input.topic, 0, b"old", timestamp_ms=now_ms() - 7_200_000))
    producer.flush(TIMEOUT_MS)
    producer.close()
    installation.lose(0)
    events: list[ReplayEvent] = []
    worker = ReplayService(installation.log, installation.topics, jitter=lambda: 0.0, report=events.append)
    eventually(lambda: worker.status().aside, DEADLINE_S, step=lambda: worker.step(now_ms()))
    eventually(lambda: any(each.name == "put_aside" for each in events), step=lambda: worker.step(now_ms()))
    why, *_ = [str(each.fields["why"]) for each in events if each.name == "put_aside"]
    assert "INVALID_TIMESTAMP" in why
    assert replays in why

    _, _, cure = str(found.value).rpartition("set message.timestamp.before.max.ms=")
    set_topic(bootstrap, replays, "message.timestamp.before.max.ms", cure.split()[0])
    eventually(lambda: worker.status().replayed, DEADLINE_S, step=lambda: worker.step(now_ms()))
    worker.close()
    [copy] = installation.read(replays)
    assert copy.value == b"old"


@pytest.mark.parametrize("spare", [0, -1], ids=["just fits", "one byte too many"])
def test_the_size_of_a_copy_is_known_to_the_byte_before_it_is_written(
    installation: Installation, spare: int
) -> None:
    """What the worker takes for small enough the broker takes: a refusal would stop the partition."""
    narrow(installation, installation.input.replay_topic)
    create_topics(installation.topics)
    installation.produce(1_000)
    installation.lose(0)
    installation.replay()
    [copy] = installation.read(installation.input.replay_topic)
    headers = record_bytes(copy) - 1_000
    installation.produce(MESSAGE_BYTES - headers - spare)
    installation.lose(1)
    installation.replay()
    copies = installation.read(installation.input.replay_topic)
    letters = installation.read(installation.input.dead_letter.topic)
    assert (len(copies), len(letters)) == ((2, 0) if spare == 0 else (1, 1))


def test_garbage_of_the_largest_size_never_stops_an_acker(installation: Installation) -> None:
    """Its copy in the quarantine has headers besides, and is cut to fit."""
    create_topics(installation.topics)
    names = installation.topics.ack_topics
    producer = installation.log.producer()
    draw = random.Random(1)
    for key in (0, 200_000, MESSAGE_BYTES - 100):
        producer.send(Outgoing(names.ack, 0, draw.randbytes(MESSAGE_BYTES - 100 - key), draw.randbytes(key)))
    producer.flush(TIMEOUT_MS)
    settings = installation.topics.acker
    acker = AckerService(KafkaLog(installation.topics.kafka), names, 1, group=settings.group)
    eventually(
        lambda: acker.status().counts.transactions,
        DEADLINE_S, told=acker.status, step=lambda: acker.step(now_ms()),
    )  # fmt: skip
    acker.close()
    kept = installation.read(names.quarantine)
    assert [len(record.key or b"") + len(record.value or b"") for record in kept] == [900_000] * 3


THOUSAND = """
kafka: {bootstrap.servers: "%s"}
acker: {partitions: 4}
inputs:
  sentences: {id: 1, group: g, partitions: 1000, timeout: 10m, max_spout_pending: 3000}
"""


BATCHES_MAX = 5


class Told:
    """Asks the broker what can be read, and keeps what it said last."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.ends: dict[TopicPartition, int] = {}

    def bounds(self, bound: Bound, partitions: Iterable[TopicPartition]) -> OffsetAnswers:
        """Return what the broker answers of each partition."""
        answers = self._log.bounds(bound, partitions)
        if bound is Bound.STABLE_END:
            self.ends |= answers.offsets
        return answers


def short_of(log: Log, places: list[TopicPartition]) -> dict[int, tuple[int, int]]:
    """Return the partitions that do not show four records: what they show, and what of it is stable."""
    ends, stable = log.ends(places), log.stable_ends(places)
    return {p.partition: (ends[p], stable[p]) for p in places if (ends[p], stable[p]) != (4, 4)}


def reached(journal: Journal) -> dict[TopicPartition, int]:
    """Return how far each partition of the input is emitted."""
    marks = {s: mark for s, mark in journal.sources.items() if not is_replay(s)}
    return {TopicPartition("sentences", partition_of(s)): offset_of(mark.next) for s, mark in marks.items()}


class Both:
    """An acker and a planning process, in turn."""

    def __init__(self, acker: AckerService, planner: Planner) -> None:
        self._acker = acker
        self._planner = planner

    def until(self, done: Callable[[], bool]) -> None:
        """Step both until something is the case."""
        eventually(done, DEADLINE_S, told=lambda: self._planner.status(now_ms()), step=self._step)

    def _step(self) -> None:
        self._acker.step(now_ms())
        self._planner.step(self._planner.poll(20), now_ms())


def acked(publisher: Publisher, start: Journal, end: Journal, seq: int) -> None:
    """Publish a batch of which every root was acked."""
    runs = batch_ranges(start, end)
    plan = BatchPlan("g", end.session, end.epoch, 4, end.now, 600_000, True, runs)
    publisher.publish(publication_of(outcome_from(plan), BatchLane(f"query/{end.session}", seq)), 4)


@pytest.mark.kafka
@pytest.mark.slow
def test_a_group_reads_a_thousand_partitions_of_a_real_broker(tmp_path: Path) -> None:
    """Taken, planned up to what may be pending, acked, and committed; S121, S122."""
    with EmbeddedBroker(tmp_path / "kafka") as broker:
        topics = parse(THOUSAND % broker.bootstrap, file="topics.yaml", environ={})
        create_topics(topics)
        log = KafkaLog(topics.kafka)
        producer = log.producer()
        for number in range(4_000):
            producer.send(Outgoing("sentences", number % 1_000, b"%d" % number))
        producer.flush(int(DEADLINE_S * 1_000))
        places = [TopicPartition("sentences", partition) for partition in range(1_000)]
        # what was flushed stands in the log before anybody plans it
        eventually(lambda: not short_of(log, places), told=lambda: short_of(log, places))
        acker = AckerService(KafkaLog(topics.kafka), topics.ack_topics, 4, group=topics.acker.group)
        spec = PlannerSpec(tuple(topics.inputs.values()), topics.ack_topics, 4)
        told = Told(KafkaLog(topics.kafka))
        planner = Planner(KafkaLog(topics.kafka), spec, new_id="s1", reach=told)
        planner.open(BEGINNING, now_ms())
        both = Both(acker, planner)
        both.until(lambda: planner.is_ready)
        publisher = Publisher(lambda: KafkaLog(topics.kafka), topics.ack_topics)
        first = planner.plan(BEGINNING, None, now_ms())
        assert len(first.ranges) == 1_000
        assert sum(run.end - run.start for run in first.ranges) == 3_000
        assert planner.plan(first, None, now_ms()) == first
        acked(publisher, BEGINNING, first, 0)
        both.until(lambda: planner.status(now_ms()).acked == 3_000)
        journals = [first]
        for seq in range(1, BATCHES_MAX):
            journals.append(planner.plan(journals[-1], None, now_ms()))
            # a batch takes all that the broker says can be read; a busy one may say less than there is
            assert reached(journals[-1]) == {p: max(reached(journals[-2])[p], told.ends[p]) for p in places}
            acked(publisher, *journals[-2:], seq)  # type: ignore[call-arg]
            both.until(lambda: not planner.status(now_ms()).pending)
            if planner.status(now_ms()).emitted == 4_000:
                break
        assert planner.status(now_ms()).acked == 4_000
        planner.commit()
        assert log.committed("g", places) == dict.fromkeys(places, 4)
        planner.close()
        publisher.close()
        acker.close()
        log.close()
