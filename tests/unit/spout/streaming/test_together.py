"""Small shares that a task reads together, by a consumer that stays connected."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from confluent_kafka import KafkaError, Message

from acker.kafka.port import TopicPartition
from spout.streaming import consume
from spout.streaming.consume import (
    TOGETHER_WAIT_MS,
    KeptConsumers,
    Share,
    TaskReader,
    Together,
)
from tests.support.fake_consumer import Batch, FakeConsumer, FakeKafka, batch, event
from tests.support.range_logs import LINES, SETTINGS, range_logs

MORE = TopicPartition("lines", 1)
WORDS = TopicPartition("words", 0)
ASKED_S = TOGETHER_WAIT_MS / 1000


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    return range_logs(monkeypatch)


def share_of(place: TopicPartition, start: int, end: int) -> Share:
    return Share(place.topic, place.partition, start, end)


def read(
    together: Together, *shares: Share, settings: dict[str, str] = SETTINGS
) -> list[tuple[list[int], int]]:
    """Read shares; return of each that was read its offsets, and where it is to be read on."""
    first_records = together.read(settings, shares)
    assert list(first_records) == list(dict.fromkeys(shares))[: len(first_records)]
    return [
        ([record.offset() or 0 for record in records], next_offset)
        for records, next_offset in first_records.values()
    ]


def test_each_share_is_read_exactly_and_nobody_waits(kafka: FakeKafka) -> None:
    """What its partition has behind it is left out, and offsets without a record are passed over."""
    kafka.logs = {
        LINES: [batch(0, 9)],
        MORE: [Batch(0, 6, (0, 1, 2))],
        WORDS: [Batch(0, 4, (0, 3)), batch(4, 8)],
    }
    began_s = kafka.clock.now_s
    shares = share_of(LINES, 2, 5), share_of(MORE, 1, 6), share_of(WORDS, 1, 4)
    assert read(Together(), *shares) == [([2, 3, 4], 5), ([1, 2], 6), ([3], 4)]
    assert kafka.clock.now_s == began_s
    assert kafka.last.assigned == {}, "it fetches nothing between two tasks"


def test_a_share_whose_partition_ends_before_it_is_read_on_from_there(kafka: FakeKafka) -> None:
    """`RangeReader` finds out whether the log was cut, or the replica is late."""
    kafka.logs = {LINES: [batch(0, 3)], MORE: [Batch(0, 3)], WORDS: [batch(0, 4)]}
    shares = share_of(LINES, 0, 4), share_of(MORE, 0, 4), share_of(WORDS, 0, 4)
    assert read(Together(), *shares) == [([0, 1, 2], 3), ([], 0), ([0, 1, 2, 3], 4)]
    assert not kafka.last.is_closed


def test_of_a_partition_the_first_share_is_read(kafka: FakeKafka) -> None:
    kafka.logs = {LINES: [batch(0, 9)], MORE: [batch(0, 9)]}
    shares = share_of(LINES, 0, 2), share_of(LINES, 2, 4), share_of(MORE, 0, 2)
    first_records = Together().read(SETTINGS, shares)
    assert list(first_records) == [shares[0], shares[2]]
    assert [first.next for first in first_records.values()] == [2, 2]


def test_the_consumer_stays_connected_and_looks_for_the_leaders_of_new_topics(
    kafka: FakeKafka,
) -> None:
    """By itself it looks for them once a second."""
    kafka.logs = {LINES: [batch(0, 9)], MORE: [batch(0, 9)], WORDS: [batch(0, 9)]}
    together = Together()
    for start in (0, 2):
        assert read(together, share_of(LINES, start, start + 2)) == [([start, start + 1], start + 2)]
    read(together, share_of(MORE, 0, 2), share_of(WORDS, 0, 2))
    assert len(kafka.consumers) == 1
    assert kafka.topics_asked == ["lines", "words"]
    assert kafka.last.waits_s == [ASKED_S] * 2
    assert [kind for kind, _ in kafka.last.calls] == ["assign", "unassign"] * 3


def test_a_consumer_of_other_settings_takes_the_place_of_the_one_before(kafka: FakeKafka) -> None:
    kafka.logs = {LINES: [batch(0, 9)]}
    together = Together()
    for number, bootstrap in enumerate(("one:9092", "one:9092", "two:9092", "one:9092")):
        settings = {"bootstrap.servers": bootstrap}
        assert read(together, share_of(LINES, number, number + 1), settings=settings) == [
            ([number], number + 1)
        ]
    assert [consumer.is_closed for consumer in kafka.consumers] == [True, True, False]
    assert kafka.topics_asked == ["lines"] * 3, "the next one knows no leader yet"


def silence(kafka: FakeKafka) -> None:
    """Let consumers that are made from now on get nothing."""
    kafka.logs = {place: [Batch(0, 9, (), damage=0)] for place in (LINES, MORE)}


def test_a_consumer_that_gets_nothing_at_first_is_kept_and_one_that_has_got_something_is_not(
    kafka: FakeKafka,
) -> None:
    """The first one is only connecting; the other one may unpack a large batch, and would hold it."""
    together = Together()
    silence(kafka)
    for _ in range(2):
        began_s = kafka.clock.now_s
        assert read(together, share_of(LINES, 0, 2)) == [([], 0)]
        assert kafka.clock.now_s - began_s == pytest.approx(ASKED_S)
    assert len(kafka.consumers) == 1
    kafka.logs = {LINES: [batch(0, 9)]}
    assert read(together, share_of(LINES, 0, 2)) == [([0, 1], 2)]
    silence(kafka)
    assert read(together, share_of(LINES, 2, 4)) == [([], 2)]
    assert kafka.last.is_closed
    assert read(together, share_of(LINES, 2, 4)) == [([], 2)]
    assert [consumer.is_closed for consumer in kafka.consumers] == [True, False], "a new one connects"


def test_what_the_client_raises_costs_the_consumer_and_not_what_was_read(kafka: FakeKafka) -> None:
    kafka.logs = {LINES: [batch(0, 9)], MORE: [Batch(0, 9, (), damage=0)]}
    together = Together()

    class Dying(FakeConsumer):
        def poll(self, timeout_s: float) -> Message | None:
            if not self.queue:
                kafka.dying = KafkaError(KafkaError._FATAL)
            return super().poll(timeout_s)

    shares = share_of(LINES, 0, 2), share_of(MORE, 0, 2)
    read(together, share_of(LINES, 0, 1))
    kafka.consumers[0].__class__ = Dying
    assert read(together, *shares) == [([0, 1], 2), ([], 0)]
    assert kafka.consumers[0].is_closed
    kafka.dying = None
    kafka.silent = True  # no metadata: nothing is read, and it is `RangeReader` that says why
    assert read(together, *shares) == [([], 0), ([], 0)]
    assert [consumer.is_closed for consumer in kafka.consumers] == [True, True]


@pytest.mark.parametrize("damaged_place", [LINES, MORE])
def test_behind_damage_nothing_is_believed_and_the_consumer_is_not_used_again(
    kafka: FakeKafka, damaged_place: TopicPartition
) -> None:
    kafka.logs = {LINES: [batch(0, 9)], MORE: [batch(0, 9)]}
    kafka.logs[damaged_place] = [batch(0, 2), batch(2, 4, damage=KafkaError._BAD_MSG), batch(4, 9)]
    expected = {LINES: ([0, 1, 2, 3, 4, 5], 6), MORE: ([0, 1, 2, 3, 4, 5], 6)}
    expected[damaged_place] = ([0, 1], 2)
    together = Together()
    assert read(together, share_of(LINES, 0, 6), share_of(MORE, 0, 6)) == list(expected.values())
    assert kafka.last.is_closed
    healthy = WORDS
    kafka.logs[healthy] = [batch(0, 2)]
    assert read(together, share_of(healthy, 0, 2)) == [([0, 1], 2)]
    assert not kafka.last.is_closed


def test_an_event_of_one_partition_does_not_end_the_others(kafka: FakeKafka) -> None:
    refused = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    kafka.logs = {LINES: [batch(0, 9)], WORDS: [batch(0, 9)]}
    kafka.errors[LINES] = refused
    shares = share_of(LINES, 0, 2), share_of(WORDS, 0, 2)
    assert read(Together(), *shares) == [([], 0), ([0, 1], 2)]


def test_an_event_of_a_partition_that_is_read_by_now_ends_nothing(kafka: FakeKafka) -> None:
    kafka.logs = {LINES: [batch(0, 2)], MORE: [batch(0, 2)]}

    class Late(FakeConsumer):
        def incremental_assign(self, partitions: list[object]) -> None:  # type: ignore[override]
            super().incremental_assign(partitions)  # type: ignore[arg-type]
            end = event(LINES, KafkaError(KafkaError._PARTITION_EOF), 2)
            self.queue[2:2] = [end, event(WORDS, KafkaError(KafkaError._PARTITION_EOF), 0), end]

    together = Together()
    read(together, share_of(LINES, 0, 1))
    kafka.last.__class__ = Late
    assert read(together, share_of(LINES, 0, 2), share_of(MORE, 0, 2)) == [([0, 1], 2), ([0, 1], 2)]


@pytest.mark.parametrize(("room", "kept"), [(60, False), (61, True)])
def test_so_much_is_held_that_its_consumer_is_not_kept(
    kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch, room: int, kept: bool
) -> None:
    """It holds what it has unpacked, while another client unpacks it again."""
    monkeypatch.setattr(consume, "CHUNK_BYTES", room)
    kafka.logs = {LINES: [batch(0, 3, size=20)], MORE: [batch(0, 3, size=0)]}
    shares = share_of(LINES, 0, 3), share_of(MORE, 0, 3)
    rows = read(Together(), *shares)
    assert rows[0] == ([0, 1, 2], 3)
    assert kafka.last.is_closed is not kept


def test_time_counts_from_the_last_record_that_was_wanted(kafka: FakeKafka) -> None:
    """Also from one that came late; records that nobody wants move nothing."""

    class Slow(FakeConsumer):
        """Takes nearly a second for each record."""

        def poll(self, timeout_s: float) -> Message | None:
            kafka.clock.now_s += 0.9 * ASKED_S
            return super().poll(timeout_s)

        def consume(self, most: int, timeout_s: float) -> list[Message]:
            return []

    kafka.logs = {LINES: [batch(0, 9)]}
    together = Together()
    read(together, share_of(LINES, 0, 1))
    kafka.last.__class__ = Slow
    assert read(together, share_of(LINES, 1, 5)) == [([1, 2, 3, 4], 5)]
    kafka.logs = {LINES: [batch(0, 9)], MORE: [Batch(0, 9, (), damage=0)]}
    shares = share_of(LINES, 0, 1), share_of(MORE, 0, 1)

    class Chatty(Slow):
        """Goes on to send what is read."""

        def incremental_unassign(self, partitions: list[object]) -> None:  # type: ignore[override]
            """Send on all the same."""

    kafka.last.__class__ = Chatty
    began_s = kafka.clock.now_s
    assert read(together, *shares) == [([0], 1), ([], 0)]
    # 0.9 s for the record that was wanted; two more until a second is over since then
    assert kafka.clock.now_s - began_s == pytest.approx(2.7 * ASKED_S)


@pytest.mark.parametrize("is_first", [True, False])
def test_what_nobody_wants_does_not_keep_a_task_waiting(kafka: FakeKafka, is_first: bool) -> None:
    """Events come all the time; a second after the last record that was wanted the rest is left."""

    class Noisy(FakeConsumer):
        """Has an event of another partition each half a second."""

        def poll(self, timeout_s: float) -> Message | None:
            kafka.clock.now_s += ASKED_S / 2
            if self.queue:
                return self.queue.pop(0)
            return event(WORDS, KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED), 0)

    kafka.logs = {LINES: [batch(0, 9)], MORE: [Batch(0, 9, (), damage=0)]}
    together = Together()
    read(together, share_of(LINES, 0, 1))
    kafka.last.__class__ = Noisy
    shares = [share_of(MORE, 0, 1)] if is_first else [share_of(LINES, 1, 2), share_of(MORE, 0, 1)]
    began_s = kafka.clock.now_s
    assert read(together, *shares)[-1] == ([], 0)
    assert kafka.clock.now_s - began_s == (1.0 if is_first else 1.5) * ASKED_S


# a task -----------------------------------------------------------------------------------------------------


def task_of(*shares: Share, kept: KeptConsumers | None = None) -> TaskReader:
    return TaskReader(SETTINGS, shares, KeptConsumers(0) if kept is None else kept, Together())


def test_a_task_counts_what_all_of_its_shares_have_lost_and_what_is_damaged(
    kafka: FakeKafka,
) -> None:
    damaged = batch(4, 6, damage=KafkaError._BAD_MSG)
    kafka.logs = {place: [batch(0, 4), damaged, batch(6, 9)] for place in (LINES, MORE)}
    kafka.log_starts = {LINES: 2, MORE: 3}
    shares = [Share("lines", number, 0, 8, skips_loss=True) for number in (0, 1)]
    task = task_of(*shares)
    offsets = [[record.offset() for chunk in task.chunks(share) for record in chunk] for share in shares]
    assert offsets == [[2, 3, 6, 7], [3, 6, 7]]
    assert task.lost == 5
    assert [run[:4] for run in task.damaged] == [("lines", 0, 4, 6), ("lines", 1, 4, 6)]
    assert task_of(*shares).lost == 0


@pytest.mark.parametrize("sizes", [(3, 3, 4), (5, 5, 5), (9, 1, 9), (2, 9, 2, 2), (10,), (1,)])
def test_all_shares_of_a_task_are_read_whatever_is_read_together(
    kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...]
) -> None:
    """Also from offsets far from 0, which say nothing of a share's size."""
    monkeypatch.setattr(consume, "TOGETHER_RECORDS", 6)
    monkeypatch.setattr(consume, "CHUNK_RECORDS", 4)
    shares = [Share("lines", number, 100, 100 + size) for number, size in enumerate(sizes)]
    kafka.logs = {TopicPartition("lines", number): [batch(0, 200)] for number in range(len(sizes))}
    kept = KeptConsumers(9)
    task = task_of(*shares, kept=kept)
    for share in shares:
        records = [record for chunk in task.chunks(share) for record in chunk]
        assert {record.partition() for record in records} == {share.partition}
        assert [record.offset() for record in records] == list(range(100, share.end))
    large = [share for share in shares if share.end - share.start > 4]
    assert len(kafka.consumers) <= len(large) + 1


def test_a_group_has_so_many_records_at_most_and_a_single_share_is_large_above_a_chunk(
    kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume, "TOGETHER_RECORDS", 6)
    monkeypatch.setattr(consume, "CHUNK_RECORDS", 4)
    groups: list[list[int]] = []

    class Noted(Together):
        def read(self, settings: object, shares: Sequence[Share]) -> dict[Share, consume.FirstRecords]:
            groups.append([share.partition for share in shares])
            return {share: consume.FirstRecords([], share.end) for share in shares}

    kafka.logs = {TopicPartition("lines", number): [batch(0, 200)] for number in range(9)}
    # together 3 + 3, then 4 + 2, a chunk, one more than a chunk, 1 + 1
    sizes = (3, 3, 4, 2, 4, 5, 7, 1, 1)
    shares = [Share("lines", number, 100, 100 + size) for number, size in enumerate(sizes)]
    task = TaskReader(SETTINGS, shares, KeptConsumers(9), Noted())
    for share in shares:
        list(task.chunks(share))
    assert groups == [[0, 1], [2, 3], [4], [7, 8]]
    assert [consumer.calls[0][1] for consumer in kafka.consumers] == [
        {TopicPartition("lines", number): 100} for number in (5, 6)
    ]
