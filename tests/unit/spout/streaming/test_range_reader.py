"""A share of a partition, read from a log in memory: what comes, what is passed over, what is kept."""

from __future__ import annotations

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from acker.errors import DataLoss, Disagreement, NotAuthenticated, NotAuthorized, Unreachable
from acker.kafka.port import DamagedRun
from spout.streaming import consume
from spout.streaming.consume import (
    COPIES_WAIT_MS,
    STALL_MS,
    WAIT_MS,
    FirstRecords,
    KeptConsumers,
    Place,
    RangeReader,
    Share,
)
from tests.support.fake_consumer import (
    SILENT_DAMAGE,
    Batch,
    FakeConsumer,
    FakeKafka,
    batch,
    event,
    message,
)
from tests.support.range_logs import LINES, SETTINGS, range_logs

CHECKSUM = KafkaError._BAD_MSG


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    return range_logs(monkeypatch)


def share_of(start: int, end: int, *, skips_loss: bool = False, of_copies: bool = False) -> Share:
    return Share("lines", 0, start, end, skips_loss, of_copies)


def reader_of(share: Share, kept: KeptConsumers | None = None) -> RangeReader:
    return RangeReader(SETTINGS, share, KeptConsumers(0) if kept is None else kept)


def offsets_of(chunks: object) -> list[list[int | None]]:
    assert isinstance(chunks, list)
    return [[record.offset() for record in chunk] for chunk in chunks]


def read(reader: RangeReader) -> list[int]:
    """Return the offsets of all records that a reader returns; no chunk may be empty."""
    chunks = list(reader.chunks())
    assert all(chunks)
    return [record.offset() or 0 for chunk in chunks for record in chunk]


def timed(kafka: FakeKafka, reader: RangeReader) -> tuple[list[int], int]:
    """Return what a reader returns, and how long it waited for that, ms."""
    began_s = kafka.clock.now_s
    return read(reader), round(1000 * (kafka.clock.now_s - began_s))


# consumers that are kept ------------------------------------------------------------------------------------


def test_a_consumer_goes_on_where_the_batch_before_ended(kafka: FakeKafka) -> None:
    kafka.logs[LINES] = [batch(0, 12)]
    kept = KeptConsumers()
    for start, end in ((0, 4), (4, 9), (9, 12)):
        assert timed(kafka, reader_of(share_of(start, end), kept)) == (list(range(start, end)), 0)
    assert len(kafka.consumers) == 1
    read(reader_of(share_of(3, 4), kept))
    assert len(kafka.consumers) == 2, "it stands elsewhere"
    other_cluster = RangeReader({"bootstrap.servers": "other:9092"}, share_of(4, 5), kept)
    read(other_cluster)
    assert len(kafka.consumers) == 3, "its records are those of another cluster"


def test_of_too_many_kept_consumers_the_one_that_has_waited_longest_is_closed(
    kafka: FakeKafka,
) -> None:
    kept = KeptConsumers(2)
    places = [Place("kafka", "lines", 0, offset) for offset in range(3)]
    consumers = [FakeConsumer(kafka, {}) for _ in places]
    for place, consumer in zip(places, consumers, strict=True):
        kept.put(place, consumer)
    assert [consumer.is_closed for consumer in consumers] == [True, False, False]
    assert [kept.take(place) for place in places] == [None, *consumers[1:]]
    assert kept.take(places[1]) is None, "each is used by one reader"


def test_the_consumer_of_a_replay_topic_waits_little_and_is_not_kept(kafka: FakeKafka) -> None:
    """It would ask the broker fifty times a second."""
    kafka.logs[LINES] = [batch(0, 4)]
    kept = KeptConsumers()
    for of_copies, wait_ms in ((True, COPIES_WAIT_MS), (False, None)):
        assert read(reader_of(share_of(0, 4, of_copies=of_copies), kept)) == [0, 1, 2, 3]
        assert kafka.last.settings.get("fetch.wait.max.ms") == wait_ms
        assert kafka.last.is_closed is of_copies


def test_a_consumer_that_stands_before_markers_is_not_kept(kafka: FakeKafka) -> None:
    kafka.logs[LINES] = [Batch(0, 6, (0, 1, 2))]
    kept = KeptConsumers()
    assert timed(kafka, reader_of(share_of(0, 6), kept)) == ([0, 1, 2], 0)
    assert kafka.last.is_closed


def test_a_reader_that_nobody_reads_to_its_end_closes_its_consumer(kafka: FakeKafka) -> None:
    kafka.logs[LINES] = [batch(0, 4)]
    kept = KeptConsumers()
    chunks = reader_of(share_of(0, 9), kept).chunks()
    assert next(chunks)
    assert not kafka.last.is_closed
    chunks.close()  # type: ignore[attr-defined]  # it is a generator
    assert kafka.last.is_closed


def test_what_was_begun_before_is_used_once_and_closed_if_nobody_reads(kafka: FakeKafka) -> None:
    kafka.logs[LINES] = [batch(0, 4)]
    reader = reader_of(share_of(0, 4))
    reader.close()
    for _ in range(2):
        reader.fetch()
    assert len(kafka.consumers) == 1
    assert read(reader) == [0, 1, 2, 3]
    assert len(kafka.consumers) == 1
    unread = reader_of(share_of(0, 4))
    unread.fetch()
    unread.close()
    assert kafka.last.is_closed
    begun = RangeReader(SETTINGS, share_of(0, 4), KeptConsumers(0), FirstRecords([], 0))
    begun.fetch()
    assert len(kafka.consumers) == 2, "some of it was read before, from where it goes on"


def test_a_reader_whose_chunks_have_begun_closes_nothing_that_they_use(kafka: FakeKafka) -> None:
    kafka.logs[LINES] = [batch(0, 4)]
    reader = reader_of(share_of(0, 9))
    reader.fetch()
    chunks = reader.chunks()
    assert next(chunks)
    reader.close()
    assert not kafka.last.is_closed
    chunks.close()  # type: ignore[attr-defined]  # it is a generator


def test_a_kept_consumer_has_an_older_end_of_the_partition_behind_it(kafka: FakeKafka) -> None:
    """Its event comes although records have come since: a new consumer sees the present end."""
    kafka.logs[LINES] = [batch(0, 4)]
    kept = KeptConsumers()
    assert read(reader_of(share_of(0, 4), kept)) == [0, 1, 2, 3]
    kafka.logs[LINES] = [batch(0, 8)]
    assert timed(kafka, reader_of(share_of(4, 8), kept)) == ([4, 5, 6, 7], WAIT_MS)
    assert [consumer.is_closed for consumer in kafka.consumers] == [True, False]


def test_a_kept_consumer_that_only_waits_is_not_replaced(kafka: FakeKafka) -> None:
    """Nothing has said that the partition ends: the broker is slow."""
    kept = KeptConsumers()
    kafka.logs[LINES] = [batch(0, 4)]
    read(reader_of(share_of(0, 4), kept))
    kafka.last.queue.clear()
    kafka.silent = True
    with pytest.raises(Unreachable):
        read(reader_of(share_of(4, 8), kept))
    assert len(kafka.consumers) == 1


# chunks -----------------------------------------------------------------------------------------------------


def test_chunks_have_so_many_records_and_so_many_bytes_at_most(
    kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume, "CHUNK_RECORDS", 3)
    kafka.logs[LINES] = [batch(0, 20)]
    chunks = list(reader_of(share_of(1, 9)).chunks())
    assert offsets_of(chunks) == [[1, 2, 3], [4, 5, 6], [7, 8]]
    monkeypatch.setattr(consume, "CHUNK_RECORDS", 80)
    monkeypatch.setattr(consume, "CHUNK_BYTES", 20)
    kafka.logs[LINES] = [batch(0, 100, size=10)]
    first = next(iter(reader_of(share_of(0, 90)).chunks()))
    assert 2 <= len(first) < 80, "the client is asked for few at first, since nobody knows their sizes"


def test_a_chunk_waits_for_more_records_until_none_comes(
    kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its limits count all that has come since it began."""

    class Slow(FakeConsumer):
        """Has one record for each poll."""

        def consume(self, most: int, timeout_s: float) -> list[Message]:
            return []

    consumer = Slow(kafka, {})
    kafka.logs[LINES] = [batch(0, 9, size=10)]
    consumer.assign([confluent_kafka.TopicPartition("lines", 0, 0)])
    kept = KeptConsumers()
    kept.put(Place("kafka:9092", "lines", 0, 0), consumer)
    chunks = reader_of(share_of(0, 9), kept).chunks()
    monkeypatch.setattr(consume, "CHUNK_RECORDS", 3)
    assert offsets_of([next(chunks)]) == [[0, 1, 2]]
    monkeypatch.setattr(consume, "CHUNK_BYTES", 20)
    assert offsets_of([next(chunks)]) == [[3, 4]]
    monkeypatch.setattr(consume, "CHUNK_BYTES", 21)
    assert offsets_of([next(chunks)]) == [[5, 6, 7]]
    assert offsets_of(list(chunks)) == [[8]]


def test_what_was_read_before_comes_first_and_the_rest_from_where_it_ended(
    kafka: FakeKafka,
) -> None:
    kafka.logs[LINES] = [Batch(0, 6, (0, 1, 3, 4, 5))]
    for next_offset, rest in ((6, []), (5, [5]), (2, [3, 4, 5])):
        records = [message(LINES, offset) for offset in (0, 1)]
        first_records = FirstRecords(records, next_offset)
        reader = RangeReader(SETTINGS, share_of(0, 6), KeptConsumers(0), first_records)
        assert read(reader) == [0, 1, *rest]
    assert len(kafka.consumers) == 2, "what was read to its end needs none"


# ends -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [4, 5, 6, 7])
def test_a_range_ends_with_its_partition_or_with_a_record_behind_it(kafka: FakeKafka, end: int) -> None:
    """Offsets 4 and 5 are of a marker and of an aborted record, which no client returns."""
    kafka.logs[LINES] = [Batch(0, 6, (0, 1, 2, 3)), batch(6, 8)]
    expected = [offset for offset in (0, 1, 2, 3, 6, 7) if offset < end]
    assert timed(kafka, reader_of(share_of(0, end))) == (expected, 0)
    kafka.logs[LINES] = [Batch(0, end, (0, 1))]
    assert timed(kafka, reader_of(share_of(0, end))) == ([0, 1], 0)


def test_a_partition_that_ends_within_the_range_was_cut(kafka: FakeKafka) -> None:
    kafka.logs[LINES] = [batch(0, 4)]
    with pytest.raises(
        Disagreement, match=r"lines/0@4: the log begins at 0 and ends at 4: .*`windhover offsets reset`"
    ):
        read(reader_of(share_of(2, 5)))
    assert kafka.last.is_closed
    assert kafka.last.waits_s == [STALL_MS / 1000]


def test_a_leader_that_refuses_the_question_ends_the_reader(
    kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.logs[LINES] = [batch(0, 4)]

    def refuse(*_place: object, cached: bool) -> tuple[int, int]:
        raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    monkeypatch.setattr(FakeConsumer, "get_watermark_offsets", refuse)
    with pytest.raises(NotAuthorized, match="lines"):
        read(reader_of(share_of(0, 5)))
    assert kafka.last.is_closed


# what has left the log --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log_start", "lost", "rest"), [(4, 4, [4, 5]), (6, 6, []), (9, 6, []), (1, 1, [1, 2, 3, 4, 5])]
)
def test_lost_records_are_counted_and_passed_over_where_that_is_wanted(
    kafka: FakeKafka, log_start: int, lost: int, rest: list[int]
) -> None:
    kafka.logs[LINES] = [batch(0, 20)]
    kafka.log_starts[LINES] = log_start
    reader = reader_of(share_of(0, 6, skips_loss=True))
    assert timed(kafka, reader) == (rest, 0)
    assert reader.lost == lost
    assert kafka.consumers[0].is_closed
    with pytest.raises(DataLoss, match=f"lines/0@0 left the log, which begins at {log_start}, after the"):
        read(reader_of(share_of(0, 6)))


def test_what_is_lost_behind_records_counts_from_there(
    kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention has gone on while the range was read, more than once."""
    monkeypatch.setattr(consume, "CHUNK_RECORDS", 2)
    kafka.logs[LINES] = [batch(0, 20)]
    reader = reader_of(share_of(2, 18, skips_loss=True))
    chunks = reader.chunks()
    assert offsets_of([next(chunks)]) == [[2, 3]]
    for log_start, lost in ((8, 4), (13, 7)):
        consumer = kafka.last
        kafka.log_starts[LINES] = log_start
        consumer.queue[:] = [event(LINES, KafkaError(KafkaError._AUTO_OFFSET_RESET), 0)]
        assert offsets_of([next(chunks)]) == [[log_start, log_start + 1]]
        assert reader.lost == lost
        assert consumer.is_closed
    assert offsets_of(list(chunks)) == [[15, 16], [17]]


@pytest.mark.parametrize("skips_loss", [False, True])
def test_a_log_that_begins_before_what_it_does_not_have_was_cut(kafka: FakeKafka, skips_loss: bool) -> None:
    """Its topic was created again, so that the offset is none of the log's."""
    kafka.logs[LINES] = [batch(0, 3)]
    kafka.errors[LINES] = KafkaError(KafkaError.OFFSET_OUT_OF_RANGE)
    for start, log_start in ((5, 0), (5, 5)):
        kafka.log_starts[LINES] = log_start
        with pytest.raises(Disagreement, match=f"lines/0@5: the log begins at {log_start} and ends at 3"):
            read(reader_of(share_of(start, 9, skips_loss=skips_loss)))


# what cannot be read ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [CHECKSUM, KafkaError._BAD_COMPRESSION, SILENT_DAMAGE])
@pytest.mark.parametrize(
    ("start", "end", "records", "runs"),
    [
        (0, 16, [0, 1, 2, 3, 8, 9, 10, 11], [(4, 8), (12, 16)]),
        (0, 7, [0, 1, 2, 3], [(4, 7)]),
        (4, 10, [8, 9], [(4, 8)]),
        (6, 8, [], [(6, 8)]),
        (13, 18, [16, 17], [(13, 16)]),
        (0, 4, [0, 1, 2, 3], []),
    ],
)
def test_damaged_batches_are_passed_over_and_named(
    kafka: FakeKafka,
    damage: int,
    start: int,
    end: int,
    records: list[int],
    runs: list[tuple[int, int]],
) -> None:
    """What lies before, between and behind them comes; of a batch without an event within a minute."""
    damaged = [batch(4, 8, damage=damage), batch(12, 16, damage=damage)]
    kafka.logs[LINES] = [batch(0, 4), damaged[0], batch(8, 12), damaged[1], batch(16, 20)]
    reader = reader_of(share_of(start, end))
    assert read(reader) == records
    assert [run[:4] for run in reader.damaged] == [("lines", 0, *run) for run in runs]
    for run in reader.damaged:
        assert isinstance(run, DamagedRun)
        assert (run.why == "nothing of it can be read") is (damage == SILENT_DAMAGE)
        assert run.why
    # the consumers before the last one met damage, and may read on in the middle of it
    assert all(consumer.is_closed for consumer in kafka.consumers[:-1])


def test_what_cannot_be_read_and_nobody_reports_is_waited_for_a_minute_each_time(
    kafka: FakeKafka,
) -> None:
    kafka.logs[LINES] = [batch(0, 4), batch(4, 8, damage=SILENT_DAMAGE), batch(8, 12)]
    reader = reader_of(share_of(0, 12))
    began_s = kafka.clock.now_s
    chunks = reader.chunks()
    assert offsets_of([next(chunks)]) == [[0, 1, 2, 3]]
    assert kafka.clock.now_s - began_s == pytest.approx(WAIT_MS / 1000)
    kafka.logs[LINES] = [batch(0, 12)]  # another replica leads, which can be read
    assert not reader.damaged
    with pytest.raises(Unreachable, match="nothing came from its leader, kafka-1:9092"):
        next(chunks)
    assert not reader.damaged
    assert kafka.clock.now_s - began_s == pytest.approx((WAIT_MS + STALL_MS) / 1000)
    assert kafka.consumers[0].is_closed


def test_damage_that_can_be_read_by_now_is_read(kafka: FakeKafka) -> None:
    """Another replica leads the partition."""
    kafka.logs[LINES] = [batch(0, 4), batch(4, 8, damage=CHECKSUM)]
    chunks = (reader := reader_of(share_of(0, 8))).chunks()
    kafka.errors.clear()
    assert offsets_of([next(chunks)]) == [[0, 1, 2, 3]]
    kafka.logs[LINES] = [batch(0, 8)]
    assert offsets_of(list(chunks)) == [[4, 5, 6, 7]]
    assert reader.damaged == []


# errors -----------------------------------------------------------------------------------------------------


def test_an_event_that_concerns_the_group_ends_nothing(kafka: FakeKafka) -> None:
    """The client looks for the coordinator of a group that nobody uses."""
    kafka.logs[LINES] = [batch(0, 4)]
    reader = reader_of(share_of(0, 4))
    reader.fetch()
    refusal = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
    kafka.last.queue.insert(1, event(LINES, refusal, 0))
    assert read(reader) == [0, 1, 2, 3]


def test_an_event_of_the_partition_ends_the_reader_and_closes_its_consumer(
    kafka: FakeKafka,
) -> None:
    kafka.errors[LINES] = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(NotAuthorized, match=r"lines/0@3"):
        read(reader_of(share_of(3, 4)))
    assert kafka.last.is_closed


def test_what_the_client_raises_ends_the_reader_and_closes_its_consumer(kafka: FakeKafka) -> None:
    kafka.dying = KafkaError(KafkaError._FATAL)
    with pytest.raises(Exception, match="lines/0@3"):
        read(reader_of(share_of(3, 4)))
    assert kafka.last.is_closed


def deaf(consumer: FakeConsumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
    """Bring a consumer nothing of what it is assigned."""


def test_a_leader_that_sends_nothing_for_a_minute_is_named(kafka: FakeKafka) -> None:
    kafka.logs[LINES] = [batch(0, 4)]
    kafka.on_assign = deaf
    began_s = kafka.clock.now_s
    with pytest.raises(Unreachable, match=r"lines/0@0: .* within 60000 ms \(nothing came from its leader"):
        read(reader_of(share_of(0, 4)))
    assert kafka.clock.now_s - began_s == pytest.approx(STALL_MS / 1000)
    assert kafka.consumers[0].waits_s[0] == STALL_MS / 1000
    assert kafka.consumers[0].is_closed


def test_a_broker_that_lets_nobody_in_is_not_waited_for(kafka: FakeKafka) -> None:
    """Unless it has answered before: then its certificate is renewed, or the like."""
    kafka.logs[LINES] = [batch(0, 4)]
    kafka.on_assign = deaf
    refusal = KafkaError(KafkaError._AUTHENTICATION, "wrong password")
    reader = reader_of(share_of(0, 4))
    reader.fetch()
    kafka.last.settings["error_cb"](refusal)
    began_s = kafka.clock.now_s
    with pytest.raises(NotAuthenticated, match="wrong password"):
        read(reader)
    assert kafka.clock.now_s - began_s == pytest.approx(WAIT_MS / 1000)
    assert kafka.topics_asked == [], "it would not answer"
    answered = reader_of(share_of(0, 4))
    answered.fetch()
    kafka.last.queue += [message(LINES, offset) for offset in (0, 1)]
    chunks = answered.chunks()
    assert offsets_of([next(chunks)]) == [[0, 1]]
    kafka.last.settings["error_cb"](refusal)
    kafka.last.queue.append(event(LINES, KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED), 0))
    began_s = kafka.clock.now_s
    with pytest.raises((Unreachable, NotAuthenticated)):
        next(chunks)
    assert kafka.clock.now_s - began_s > STALL_MS / 2000
