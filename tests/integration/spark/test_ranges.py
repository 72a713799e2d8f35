"""Exact ranges from a real broker: control records, aborted ones, ends, kept consumers, lost records."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Message
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from acker.errors import DataLoss, Disagreement
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing, TopicPartition
from spout.streaming import consume
from spout.streaming.consume import (
    CHUNK_RECORDS,
    KeptConsumers,
    Place,
    RangeReader,
    Share,
    TaskReader,
    Together,
)
from tests.support.brokers import Broker
from tests.support.waiting import eventually, settled

FLUSH_MS = 30_000

Row = tuple[int | None, bytes | None]


class Topic:
    """A topic, of one partition for most tests, written and read as tasks do."""

    def __init__(self, bootstrap: str, name: str, partitions: int = 1) -> None:
        self.name = name
        self.lost = 0
        self.settings = {"bootstrap.servers": bootstrap}
        self.log = KafkaLog(self.settings)
        self.kept = KeptConsumers()
        self.together = Together()
        admin = AdminClient({**self.settings, "log_level": 0})
        for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
            future.result(30)
        eventually(lambda: name in self.log.topics([name]))

    def write(self, *values: bytes, partition: int = 0) -> None:
        """Write records outside any transaction."""
        producer = self.log.producer()
        for value in values:
            producer.send(Outgoing(self.name, partition, value))
        producer.flush(FLUSH_MS)
        producer.close()

    def transact(self, *values: bytes, commit: bool) -> None:
        """Write records in a transaction; it ends with a control record, which takes an offset."""
        transactions = self.log.transactions(f"{self.name}-{commit}")
        transactions.init(FLUSH_MS)
        transactions.begin()
        here = TopicPartition(self.name, 0)
        end = self.log.ends([here])[here] + len(values)
        for value in values:
            transactions.send(Outgoing(self.name, 0, value))
        # An abort drops what has not reached the broker.
        eventually(lambda: self.log.ends([here])[here] >= end)
        if commit:
            transactions.commit(FLUSH_MS)
        else:
            transactions.abort(FLUSH_MS)
        transactions.close()
        settled(self.log, [here])

    def read(self, start: int, end: int) -> list[Row]:
        """Read a range, as one read task after another does in one worker."""
        return self.rows(RangeReader(self.settings, Share(self.name, 0, start, end), self.kept))

    def task(self, *shares: Share) -> list[tuple[str, int | None, bytes | None]]:
        """Read the shares of a task; return topic, offset and value of each record."""
        reader = TaskReader(self.settings, shares, self.kept, self.together)
        chunks = (chunk for share in shares for chunk in reader.chunks(share))
        found = [
            (message.topic() or "", message.offset(), message.value()) for each in chunks for message in each
        ]
        self.lost = reader.lost
        return found

    @property
    def keeps_none(self) -> bool:
        """Tell whether no consumer of a single range is kept, as when none was needed."""
        return not any(self.stands_at(offset) for offset in range(20))

    @staticmethod
    def rows(reader: RangeReader) -> list[Row]:
        """Return offset and value of each record."""
        return [(message.offset(), message.value()) for chunk in reader.chunks() for message in chunk]

    def stands_at(self, offset: int) -> bool:
        """Tell whether a consumer is kept that stands at an offset, and keep it."""
        place = Place(self.settings["bootstrap.servers"], self.name, 0, offset)
        consumer = self.kept.take(place)
        if consumer is not None:
            self.kept.put(place, consumer)
        return consumer is not None


@pytest.fixture
def topic(broker: Broker, prefix: str) -> Iterator[Topic]:
    """An empty topic."""
    made = Topic(broker.bootstrap, f"{prefix}lines")
    yield made
    made.log.close()


def test_a_range_is_read_exactly_and_the_consumer_goes_on_where_it_stands(topic: Topic) -> None:
    topic.write(*(b"%d" % n for n in range(10)))
    assert topic.read(2, 5) == [(n, b"%d" % n) for n in range(2, 5)]
    assert topic.stands_at(5)
    assert topic.read(5, 10) == [(n, b"%d" % n) for n in range(5, 10)]
    topic.write(b"10")
    assert topic.read(10, 11) == [(10, b"10")]
    assert topic.read(0, 1) == [(0, b"0")]


def test_a_range_ends_although_it_ends_in_records_that_nobody_sees(topic: Topic) -> None:
    """S149: markers and aborted records take offsets; a reader that waits for them never ends."""
    topic.transact(b"a", b"b", commit=True)  # 0, 1, marker 2
    topic.transact(b"x", b"y", commit=False)  # 3, 4, marker 5
    assert topic.read(0, 6) == [(0, b"a"), (1, b"b")]
    assert topic.read(2, 6) == []
    topic.write(b"c")  # 6
    assert topic.read(2, 7) == [(6, b"c")]
    assert topic.read(1, 4) == [(1, b"b")]


def test_a_range_of_copies_that_ends_in_a_marker_does_not_wait_for_more_records(topic: Topic) -> None:
    """The broker waits 500 ms for them by default, and every micro-batch with a replay would."""
    topic.transact(b"a", commit=True)  # 0, marker 1
    took_s: dict[bool, float] = {}
    for of_copies in (False, True):
        share = Share(topic.name, 0, 0, 2, of_copies=of_copies)
        began = time.monotonic()
        assert topic.rows(RangeReader(topic.settings, share, topic.kept)) == [(0, b"a")]
        took_s[of_copies] = time.monotonic() - began
    assert 2 * took_s[True] < took_s[False]
    assert not topic.stands_at(2), "an idle one would ask the broker fifty times a second"


def test_a_kept_consumer_that_has_seen_an_older_end_reads_on(topic: Topic) -> None:
    topic.write(b"a", b"b")
    assert topic.read(0, 2) == [(0, b"a"), (1, b"b")]
    topic.transact(b"c", commit=True)  # 2, marker 3
    assert topic.stands_at(2)
    assert topic.read(2, 4) == [(2, b"c")]


def test_a_record_that_is_gone_is_an_error_and_never_a_jump(topic: Topic) -> None:
    topic.write(*(b"%d" % n for n in range(5)))
    topic.log.delete_before({TopicPartition(topic.name, 0): 3})
    with pytest.raises(DataLoss, match=r"lines/0@1.*set on_data_loss: skip"):
        topic.read(1, 5)
    assert topic.read(3, 5) == [(3, b"3"), (4, b"4")]


def test_a_record_that_is_gone_is_passed_over_and_counted_where_that_is_wanted(topic: Topic) -> None:
    """With `on_data_loss: skip` the read task reports what it did not find as absent."""
    topic.write(*(b"%d" % n for n in range(5)))
    topic.log.delete_before({TopicPartition(topic.name, 0): 3})
    reader = RangeReader(topic.settings, Share(topic.name, 0, 1, 5, skips_loss=True), topic.kept)
    assert topic.rows(reader) == [(3, b"3"), (4, b"4")]
    assert reader.lost == 2
    reader = RangeReader(topic.settings, Share(topic.name, 0, 0, 2, skips_loss=True), topic.kept)
    assert (topic.rows(reader), reader.lost) == ([], 2)
    topic.log.delete_before({TopicPartition(topic.name, 0): 5})
    reader = RangeReader(topic.settings, Share(topic.name, 0, 0, 5, skips_loss=True), topic.kept)
    assert (topic.rows(reader), reader.lost) == ([], 5)


def test_a_log_that_ends_before_what_was_planned_was_created_again(topic: Topic) -> None:
    """Skipped, the positions of the old topic would be settled by what the new one does not hold."""
    topic.write(b"a", b"b")
    for skips in (False, True):
        with pytest.raises(Disagreement, match="offsets reset"):
            topic.rows(RangeReader(topic.settings, Share(topic.name, 0, 5, 9, skips), topic.kept))


@pytest.fixture
def other(broker: Broker, prefix: str) -> Iterator[Topic]:
    """Another topic, as a task reads several."""
    made = Topic(broker.bootstrap, f"{prefix}others")
    yield made
    made.log.close()


def test_the_small_ranges_of_a_task_are_read_together_and_exactly(topic: Topic, other: Topic) -> None:
    topic.write(*(b"%d" % n for n in range(10)))
    other.write(*(b"%d" % n for n in range(10)))
    one, two = topic.name, other.name
    for first, last in ((2, 5), (5, 10), (0, 1)):  # by one consumer, which stood elsewhere
        rows = [(name, n, b"%d" % n) for name in (one, two) for n in range(first, last)]
        assert topic.task(Share(one, 0, first, last), Share(two, 0, first, last)) == rows
    assert topic.keeps_none


def test_a_connected_consumer_reads_topics_that_are_new_to_it_at_once(
    topic: Topic, broker: Broker, prefix: str
) -> None:
    """Each of them waited for the client's next search for leaders, which is up to a second away."""
    new = [Topic(broker.bootstrap, f"{prefix}new-{number}") for number in range(3)]
    for each in (topic, *new):
        each.write(b"a")
    assert len(topic.task(Share(topic.name, 0, 0, 1))) == 1
    begun = time.monotonic()
    for each in new:
        assert topic.task(Share(each.name, 0, 0, 1)) == [(each.name, 0, b"a")]
    assert time.monotonic() - begun < 1
    for each in new:
        each.log.close()


def test_of_ranges_of_one_partition_the_first_is_read_together_with_others(topic: Topic) -> None:
    topic.write(*(b"%d" % n for n in range(10)))
    rows = topic.task(Share(topic.name, 0, 1, 3), Share(topic.name, 0, 5, 7))
    assert [offset for _, offset, _ in rows] == [1, 2, 5, 6]


def test_ranges_that_are_read_together_end_in_records_that_nobody_sees(topic: Topic, other: Topic) -> None:
    topic.transact(b"a", b"b", commit=True)  # 0, 1, marker 2
    topic.transact(b"x", b"y", commit=False)  # 3, 4, marker 5
    other.write(b"c")
    assert topic.task(Share(topic.name, 0, 0, 6), Share(other.name, 0, 0, 1)) == [
        (topic.name, 0, b"a"),
        (topic.name, 1, b"b"),
        (other.name, 0, b"c"),
    ]
    assert topic.task(Share(topic.name, 0, 2, 6)) == []
    topic.write(b"d")  # 6
    assert topic.task(Share(topic.name, 0, 2, 7)) == [(topic.name, 6, b"d")]
    assert topic.task(Share(topic.name, 0, 1, 4)) == [(topic.name, 1, b"b")]
    assert topic.keeps_none


class Counting(Consumer):
    """A consumer that counts the messages that it returned."""

    returned = 0

    def consume(self, *args: Any, **kwargs: Any) -> list[Message]:
        """Return messages."""
        found = super().consume(*args, **kwargs)
        Counting.returned += len(found)
        return found


def test_large_batches_of_a_partition_that_is_read_keep_no_other_one_waiting(
    broker: Broker, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker sends one that is larger than the client asks for, and then nothing of another partition."""
    monkeypatch.setattr(consume, "Consumer", Counting)
    monkeypatch.setattr(Counting, "returned", 0)
    topic = Topic(broker.bootstrap, f"{prefix}lines", partitions=2)
    for partition in (0, 1):
        for _ in range(40):
            topic.write(*(os.urandom(500) for _ in range(1_200)), partition=partition)
    rows = topic.task(Share(topic.name, 0, 0, 5), Share(topic.name, 1, 0, 5))
    assert [offset for _, offset, _ in rows] == [*range(5), *range(5)]
    assert Counting.returned < 10 * 1_200, "a few batches of each partition were fetched, not all of one"
    topic.log.close()


def test_many_records_are_read_range_by_range(topic: Topic) -> None:
    topic.write(*(b"" for _ in range(CHUNK_RECORDS + 1)))
    assert len(topic.task(Share(topic.name, 0, 0, CHUNK_RECORDS + 1))) == CHUNK_RECORDS + 1
    assert topic.stands_at(CHUNK_RECORDS + 1)


def test_what_is_wrong_with_one_of_several_ranges_is_found_out_alone(topic: Topic, other: Topic) -> None:
    topic.write(*(b"%d" % n for n in range(5)))
    other.write(b"a", b"b")
    topic.log.delete_before({TopicPartition(topic.name, 0): 3})
    gone, there = Share(topic.name, 0, 1, 5), Share(other.name, 0, 0, 2)
    with pytest.raises(DataLoss, match=r"lines/0@1.*set on_data_loss: skip"):
        topic.task(there, gone)
    rows = topic.task(gone._replace(skips_loss=True), there)
    assert [(offset, value) for _, offset, value in rows] == [(3, b"3"), (4, b"4"), (0, b"a"), (1, b"b")]
    assert topic.lost == 2
    with pytest.raises(Disagreement, match="offsets reset"):
        topic.task(there, Share(topic.name, 0, 7, 9))
