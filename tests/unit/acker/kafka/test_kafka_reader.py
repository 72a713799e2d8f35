"""How a reader of partitions follows librdkafka: positions, ends, errors, damage, and what it asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import pytest
from confluent_kafka import KafkaError, Message

from acker.errors import Damaged, LogError, NotAuthorized, OutOfRange, TopicError, Unreachable
from acker.kafka.client import PASSED_OVER_MAX, WAIT_MS_MAX, KafkaClient
from acker.kafka.port import NO_EPOCH, DamagedRun, Record, TimestampType, TopicPartition
from acker.kafka.reader import (
    PATIENT,
    PICKING,
    TAKEN_BYTES_MAX,
    KafkaOffsetReader,
    KafkaPicker,
    KafkaReader,
    before_damage,
    record_of,
)
from tests.support.fake_consumer import Batch, FakeKafka, batch, event, message

A, B, OTHER = TopicPartition("words", 0), TopicPartition("words", 1), TopicPartition("lines", 1)
NO_RIGHT = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
GONE = KafkaError(KafkaError.OFFSET_OUT_OF_RANGE)
POLL_MS = 200


def read(reader: KafkaReader, polls: int = 10, max_records: int = 1_000) -> list[tuple[str, int, int]]:
    """Return the places of what some polls bring."""
    records = [record for _ in range(polls) for record in reader.poll(POLL_MS, max_records)]
    return [(record.topic, record.partition, record.offset) for record in records]


def reader_of(kafka: FakeKafka, positions: Mapping[TopicPartition, int]) -> KafkaReader:
    """Return a reader of these partitions."""
    reader = KafkaReader(kafka.client(), committed=True)
    reader.assign(positions)
    return reader


# what is read ---------------------------------------------------------------------------------------------


def test_records_come_once_and_positions_follow_them_past_holes_to_the_ends() -> None:
    """Markers and aborted records are no records, also in the middle and at the end of a partition."""
    kafka = FakeKafka(
        logs={
            A: [batch(0, 3), Batch(3, 5), Batch(5, 9, (6, 7))],
            B: [Batch(0, 4)],
            OTHER: [batch(10, 12)],
        },
        partition_counts={"lines": 2},
    )
    reader = reader_of(kafka, {A: 1, B: 0, OTHER: 10})
    assert read(reader) == [("lines", 1, offset) for offset in (10, 11)] + [
        ("words", 0, offset) for offset in (1, 2, 6, 7)
    ]
    assert {place: reader.position(place) for place in (A, B, OTHER)} == {A: 9, B: 4, OTHER: 12}
    assert kafka.clock.now_s > 1_000, "then a poll waits for more"


@pytest.mark.parametrize("records", [0, 1, 5])
def test_a_poll_ends_with_the_first_thing_that_moves_a_position(records: int) -> None:
    """Whoever waits for an end would wait a whole poll longer for each partition that ends in a marker."""
    kafka = FakeKafka(
        logs={A: [batch(0, records), Batch(records, records + 1)]} if records else {A: [Batch(0, 1)]}
    )
    reader = reader_of(kafka, {A: 0})
    begun_s = kafka.clock.now_s
    taken = reader.poll(POLL_MS)
    if records:
        assert [record.offset for record in taken] == list(range(records))
    else:
        assert taken == ()
    assert reader.position(A) == records + 1
    assert kafka.clock.now_s == begun_s
    assert reader.poll(POLL_MS) == ()
    assert kafka.clock.now_s == pytest.approx(begun_s + POLL_MS / 1000)


@pytest.mark.parametrize("most", [1, 2, 3, 7, 40])
def test_a_poll_brings_no_more_records_than_it_may_and_the_next_one_the_rest(most: int) -> None:
    kafka = FakeKafka(logs={A: [batch(0, 40)], B: [batch(0, 3)]})
    reader = reader_of(kafka, {A: 0, B: 0})
    sizes = []
    for _ in range(60):
        sizes.append(len(reader.poll(POLL_MS, most)))
        assert reader.position(A) + reader.position(B) == sum(sizes)
    assert max(sizes) == most
    assert sum(sizes) == 43


def test_a_poll_that_has_its_bytes_takes_no_further_record() -> None:
    """Each is copied into Python."""
    kafka = FakeKafka(logs={A: [batch(0, 3, size=TAKEN_BYTES_MAX)]})
    reader = reader_of(kafka, {A: 0})
    assert [len(reader.poll(POLL_MS)) for _ in range(3)] == [1, 1, 1]


def test_an_end_that_is_told_late_moves_no_position_back() -> None:
    """The client tells the end at which it stood when it asked; and of partitions that were given up."""
    kafka = FakeKafka(logs={A: [batch(0, 10)]})
    reader = reader_of(kafka, {A: 0})
    assert len(reader.poll(POLL_MS)) == 10
    late = KafkaError(KafkaError._PARTITION_EOF)
    kafka.last.queue += [event(A, late, 4), event(A, late, 10), event(B, late, 7)]
    begun_s = kafka.clock.now_s
    assert reader.poll(POLL_MS) == ()
    assert reader.position(A) == 10
    assert kafka.clock.now_s > begun_s, "none of these is a move"
    with pytest.raises(LogError, match="is not assigned to this reader"):
        reader.position(B)


def test_a_record_says_where_it_lies_when_it_was_made_and_by_which_leader() -> None:
    whole = Message(
        topic="words",
        partition=3,
        offset=7,
        key=b"k",
        value=b"v",
        headers=[("h", b"1")],
        timestamp=(2, 99),
        leader_epoch=0,
    )
    assert record_of(whole) == Record(
        "words", 3, 7, b"k", b"v", (("h", b"1"),), 99, TimestampType.APPENDED, 0
    )
    created = record_of(message(A, 5))
    assert (created.timestamp_ms, created.timestamp_type) == (1_005, TimestampType.CREATED)
    assert created.leader_epoch == NO_EPOCH


# what is assigned -------------------------------------------------------------------------------------------


def test_a_partition_that_stays_where_it_is_keeps_what_was_fetched() -> None:
    kafka = FakeKafka(logs={A: [batch(0, 9)], B: [batch(0, 9)], OTHER: [batch(0, 9)]})
    reader = reader_of(kafka, {A: 0, B: 0})
    read(reader)
    reader.assign({A: 9, B: 3, OTHER: 4})
    assert kafka.last.calls[1:] == [("unassign", {B: 0})]
    assert read(reader) == [("lines", 1, offset) for offset in range(4, 9)] + [
        ("words", 1, offset) for offset in range(3, 9)
    ]
    assert kafka.last.calls[2:] == [("assign", {B: 3, OTHER: 4})]
    reader.assign({OTHER: 9})
    assert kafka.last.assigned == {OTHER: 4}
    with pytest.raises(LogError):
        reader.position(A)
    assert len(kafka.consumers) == 1


def test_what_was_never_fetched_is_not_taken_from_the_client() -> None:
    """It refuses that. Two assignments may follow one another without a poll."""
    kafka = FakeKafka(logs={A: [batch(0, 4)], B: [batch(0, 4)]})
    reader = reader_of(kafka, {A: 0, B: 0})
    reader.assign({A: 2})
    reader.assign({A: 2, B: 1})
    assert kafka.last.calls == []
    assert read(reader) == [
        ("words", 0, 2),
        ("words", 0, 3),
        ("words", 1, 1),
        ("words", 1, 2),
        ("words", 1, 3),
    ]
    assert kafka.last.calls == [("assign", {A: 2, B: 1})]


def test_nothing_is_assigned_twice_by_polls() -> None:
    kafka = FakeKafka(logs={A: [batch(0, 4)]})
    reader = reader_of(kafka, {A: 0})
    read(reader)
    assert kafka.last.calls == [("assign", {A: 0})]
    assert kafka.topics_asked == ["words"]


def test_a_partition_that_is_not_there_is_an_error_before_anything_is_fetched() -> None:
    kafka = FakeKafka(logs={A: [batch(0, 4)], B: [batch(0, 4)]})
    reader = reader_of(kafka, {A: 0, TopicPartition("words", 2): 0})
    for _ in range(2):
        with pytest.raises(TopicError, match="reading words/2: it has 2 partitions"):
            reader.poll(POLL_MS)
    assert kafka.last.calls == []
    kafka.partition_counts["words"] = 3
    kafka.logs[TopicPartition("words", 2)] = [batch(0, 1)]
    assert len(read(reader)) == 5


def test_a_topic_is_asked_for_its_size_only_for_a_partition_above_the_known_ones() -> None:
    kafka = FakeKafka(
        logs={A: [batch(0, 1)], B: [batch(0, 1)], OTHER: [batch(0, 1)]}, partition_counts={"words": 3}
    )
    reader = reader_of(kafka, {A: 0})
    read(reader)
    reader.assign({A: 1, TopicPartition("words", 2): 0})
    read(reader)
    assert kafka.topics_asked == ["words"]
    reader.assign({A: 1, B: 0, OTHER: 0})
    read(reader)
    assert kafka.topics_asked == ["words", "lines"]
    kafka.partition_counts["words"] = 4
    reader.assign({TopicPartition("words", 3): 0})
    read(reader)
    assert kafka.topics_asked == ["words", "lines", "words"]


def test_a_topic_that_is_not_there_is_an_error() -> None:
    with pytest.raises(TopicError, match="looking for nothing: there is no such topic"):
        reader_of(FakeKafka(), {TopicPartition("nothing", 0): 0}).poll(POLL_MS)


# errors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "raised", "text"),
    [
        (NO_RIGHT, NotAuthorized, "reading words/1 at 5: the right to Read on Topic words is missing"),
        (GONE, OutOfRange, "reading words/1 at 5: the position is not in the log"),
    ],
)
def test_an_error_of_one_partition_comes_behind_the_records_of_others_and_until_it_is_assigned_anew(
    error: KafkaError, raised: type[Exception], text: str
) -> None:
    kafka = FakeKafka(logs={A: [batch(0, 3)], B: [batch(0, 9)]}, errors={B: error})
    reader = KafkaOffsetReader(kafka.client())
    reader.assign({A: 0, B: 5})
    assert reader.offsets(POLL_MS) == {A: [0, 1, 2]}
    assert set(reader.troubled) == {B}
    for _ in range(2):
        with pytest.raises(raised, match=text):
            reader.offsets(POLL_MS)
    kafka.errors.clear()
    reader.assign({A: 3, B: 5})
    assert not reader.troubled
    assert kafka.last.calls[1:] == [("unassign", {B: 0})], "the other one keeps what was fetched"
    assert reader.offsets(POLL_MS) == {B: [5, 6, 7, 8]}
    assert (reader.position(A), reader.position(B)) == (3, 9)


def test_an_error_that_comes_alone_is_raised_by_the_poll_that_meets_it() -> None:
    kafka = FakeKafka(logs={A: [batch(0, 3)]}, errors={A: NO_RIGHT})
    with pytest.raises(NotAuthorized):
        reader_of(kafka, {A: 0}).poll(POLL_MS)


def test_an_error_of_a_partition_that_was_given_up_is_nobodys() -> None:
    kafka = FakeKafka(logs={A: [batch(0, 3)]})
    reader = reader_of(kafka, {A: 0})
    assert len(read(reader)) == 3
    kafka.last.queue.append(event(OTHER, NO_RIGHT, 0))
    assert reader.poll(POLL_MS) == ()
    assert reader.position(A) == 3


def test_what_is_fatal_for_the_client_is_raised_whoever_it_names() -> None:
    fatal = KafkaError(KafkaError._FATAL, "it is over", fatal=True)
    kafka = FakeKafka(logs={A: [batch(0, 3)]})
    reader = reader_of(kafka, {A: 0})
    read(reader)
    kafka.last.queue.append(event(OTHER, fatal, 0))
    with pytest.raises(LogError, match="reading: refused by kafka:9092: _FATAL: it is over"):
        reader.poll(POLL_MS)
    kafka.dying = fatal
    with pytest.raises(LogError, match="reading: refused by kafka:9092: _FATAL: it is over"):
        reader.poll(POLL_MS)


@pytest.mark.parametrize("silent", [True, False])
def test_a_reader_that_gets_nothing_asks_whether_anybody_is_there(silent: bool) -> None:
    kafka = FakeKafka(logs={A: [batch(0, 3)]})
    reader = reader_of(kafka, {A: 0})
    read(reader)
    kafka.silent = silent
    kafka.last.settings["error_cb"](KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    kafka.topics_asked.clear()
    if silent:
        with pytest.raises(Unreachable, match="reading: no answer from Kafka at kafka:9092 within 30000 ms"):
            read(reader, polls=30_000 // POLL_MS + 2)
    else:
        for _ in range(20):
            assert reader.poll(WAIT_MS_MAX) == ()
        assert kafka.topics_asked == [""], "once there was an answer, all is well"


def test_a_record_is_an_answer() -> None:
    kafka = FakeKafka(logs={A: [batch(0, 3)]})
    reader = reader_of(kafka, {A: 0})
    read(reader, polls=2)
    kafka.last.settings["error_cb"](KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    kafka.clock.now_s += 60
    kafka.silent = True
    kafka.last.queue.append(message(A, 3))
    assert len(reader.poll(POLL_MS)) == 1
    assert reader.poll(POLL_MS) == (), "nobody is asked: somebody has answered just now"


# damage -----------------------------------------------------------------------------------------------------

DAMAGED_LOG = [batch(0, 4), batch(4, 8, damage=KafkaError._BAD_MSG), batch(8, 10)]


@pytest.mark.parametrize("most", [1, 2, 1_000])
def test_damage_is_raised_once_when_it_is_met_then_only_where_there_is_nothing_else(most: int) -> None:
    """And of what the client makes of the bytes behind it nothing is believed."""
    kafka = FakeKafka(logs={A: list(DAMAGED_LOG), B: [batch(0, 30)]})
    reader = reader_of(kafka, {A: 2, B: 0})
    raised, offsets = list[str](), list[tuple[int, int]]()
    begun_s = kafka.clock.now_s
    while not raised or len(offsets) < 32:
        try:
            offsets += [(record.partition, record.offset) for record in reader.poll(POLL_MS, most)]
        except Damaged as error:
            raised.append(str(error))
    assert [text.startswith("words/0@4: ") for text in raised] == [True]
    assert "its checksum is wrong; _BAD_MSG" in raised[0]
    assert kafka.clock.now_s == begun_s, "at first at once, then only after a wait"
    assert offsets == [(0, 2), (0, 3)] + [(1, offset) for offset in range(30)]
    assert reader.position(A) == 4
    assert A not in kafka.last.assigned, "the client reads on in the middle of the batch"
    for _ in range(2):
        begun_s = kafka.clock.now_s
        with pytest.raises(Damaged, match="words/0@4: "):
            reader.poll(POLL_MS)
        assert kafka.clock.now_s == pytest.approx(begun_s + POLL_MS / 1000)


def test_each_damaged_partition_is_named_and_passed_over_by_itself() -> None:
    kafka = FakeKafka(
        logs={A: list(DAMAGED_LOG), B: [batch(0, 5, damage=KafkaError._BAD_COMPRESSION), batch(5, 6)]}
    )
    client = kafka.client()
    reader = KafkaReader(client, committed=True)
    reader.assign({A: 0, B: 0})
    assert [record.offset for record in reader.poll(POLL_MS)] == [0, 1, 2, 3]
    named = []
    for _ in range(2):
        with pytest.raises(Damaged) as met:
            reader.poll(POLL_MS)
        named.append((met.value.partition, met.value.first))
    assert sorted(named) == [(0, 4), (1, 0)]
    first = kafka.consumers[0]
    run = reader.pass_over(B)
    assert (run.topic, run.partition, run.start, run.end) == ("words", 1, 0, 5)
    assert "receive.message.max.bytes" in run.why
    assert first.is_closed
    with pytest.raises(Damaged, match="words/0@4: "):
        reader.poll(POLL_MS)
    assert read(reader, polls=1) == [("words", 1, 5)], "the first one was met anew"
    reader.pass_over(A)
    assert sorted(read(reader)) == [("words", 0, 8), ("words", 0, 9)]
    assert [(run.partition, run.start, run.end) for run in client.passed_over] == [(1, 0, 5), (0, 4, 8)]


def test_a_damaged_partition_that_is_assigned_anew_gets_a_client_of_its_own() -> None:
    """The old one may have asked for offsets that there are none of, and stop when the answer comes."""
    kafka = FakeKafka(logs={A: list(DAMAGED_LOG), B: [batch(0, 2)]})
    reader = reader_of(kafka, {A: 4, B: 2})
    with pytest.raises(Damaged):
        read(reader)
    kafka.logs[B].append(batch(2, 3))
    reader.assign({B: 2})
    assert len(kafka.consumers) == 1, "nothing is read again where the damage was"
    assert kafka.last.assigned == {B: 2}
    reader.assign({A: 4, B: 2})
    with pytest.raises(Damaged):
        read(reader)
    reader.assign({A: 8, B: 2})
    assert len(kafka.consumers) == 2
    assert kafka.consumers[0].is_closed
    assert read(reader) == [("words", 0, 8), ("words", 0, 9), ("words", 1, 2)]


def test_what_can_be_read_meanwhile_is_passed_over_by_nothing() -> None:
    """A whole replica may lead by now: then there is nothing to show."""
    kafka = FakeKafka(logs={A: [batch(0, 4)]})
    client = kafka.client()
    reader = KafkaReader(client, committed=True)
    reader.assign({A: 1})
    run = reader.pass_over(A)
    assert run == DamagedRun("words", 0, 1, 1, "nothing of it can be read")
    assert not client.passed_over
    assert [offset for _, _, offset in read(reader)] == [1, 2, 3]


def test_of_very_many_runs_the_first_ones_are_kept() -> None:
    client: KafkaClient = FakeKafka().client()
    runs = [DamagedRun("words", 0, start, start + 1, "why") for start in range(PASSED_OVER_MAX + 5)]
    for run in [*runs, *runs[:3]]:
        client.record_passed_over(run)
    assert list(client.passed_over) == runs[:PASSED_OVER_MAX]


def test_only_behind_the_damage_of_its_own_partition_a_message_is_left_out() -> None:
    damage = KafkaError(KafkaError._BAD_MSG)
    messages = [
        message(A, 1),
        event(A, damage, 2),
        message(B, 1),
        message(A, 3),
        event(B, damage, 2),
        message(B, 3),
    ]
    assert before_damage(messages) == [messages[0], messages[1], messages[2], messages[4]]


# how a client is set ----------------------------------------------------------------------------------------


def settings_of(reader: KafkaReader) -> Mapping[str, object]:
    """Return what a reader's client was made with."""
    return cast("Mapping[str, object]", reader._consumer.settings)  # type: ignore[attr-defined]  # a fake


@pytest.mark.parametrize("committed", [True, False])
def test_a_reader_sees_open_transactions_or_not_whatever_the_user_sets(committed: bool) -> None:
    user = {
        "isolation.level": "read_uncommitted" if committed else "read_committed",
        "enable.auto.commit": "true",
        "fetch.wait.max.ms": "77",
    }
    settings = settings_of(KafkaReader(FakeKafka().client(user), committed=committed))
    assert settings["isolation.level"] == ("read_committed" if committed else "read_uncommitted")
    assert settings["enable.auto.commit"] is False
    assert settings["enable.auto.offset.store"] is False
    assert settings["enable.partition.eof"] is True
    assert settings["check.crcs"] is True
    assert str(settings["fetch.wait.max.ms"]) == "77"


def test_the_kinds_of_readers_fetch_as_they_say() -> None:
    client = FakeKafka().client()
    assert settings_of(KafkaReader(client, committed=True, defaults=PATIENT))["fetch.wait.max.ms"] == 600
    picking = settings_of(KafkaPicker(client))
    assert picking["max.partition.fetch.bytes"] == PICKING["max.partition.fetch.bytes"]
    assert (
        picking["isolation.level"]
        == settings_of(KafkaOffsetReader(client))["isolation.level"]
        == "read_committed"
    )


def test_the_client_ends_with_the_reader() -> None:
    kafka = FakeKafka()
    reader = reader_of(kafka, {})
    reader.close()
    assert kafka.last.is_closed


# single records ---------------------------------------------------------------------------------------------


def picked(
    kafka: FakeKafka, offsets: Mapping[TopicPartition, Sequence[int]]
) -> tuple[list[tuple[int, int]], int, int]:
    """Pick records until nothing comes; return their places, how many were passed, and their bytes."""
    picker = KafkaPicker(kafka.client())
    picker.assign(dict.fromkeys(kafka.logs, 0))
    places: list[tuple[int, int]] = []
    passed = passed_bytes = 0
    for _ in range(20):
        answer = picker.pick(POLL_MS, offsets, 7)
        places += [(record.partition, record.offset) for record in answer.records]
        passed += answer.passed
        passed_bytes += answer.passed_bytes
    assert {place: picker.position(place) for place in kafka.logs} == {
        place: kafka.end(place) for place in kafka.logs
    }
    return places, passed, passed_bytes


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("offsets", [(), (0,), (4, 5), (19,), tuple(range(20))])
def test_only_the_records_that_are_asked_for_are_returned_and_the_others_are_counted(
    partitions: int, offsets: tuple[int, ...]
) -> None:
    places = [A, B][:partitions]
    kafka = FakeKafka(logs={place: [batch(0, 21, size=3), Batch(21, 22)] for place in places})
    records, passed, passed_bytes = picked(kafka, {A: offsets})
    assert records == [(0, offset) for offset in offsets]
    assert passed == 21 * partitions - len(offsets)
    assert passed_bytes == 3 * passed


def test_a_picker_returns_at_each_move_and_counts_anew_with_each_call() -> None:
    kafka = FakeKafka(logs={A: [batch(0, 9, size=2)]})
    picker = KafkaPicker(kafka.client())
    picker.assign({A: 0})
    begun_s = kafka.clock.now_s
    answers = [picker.pick(POLL_MS, {A: [8]}, 4) for _ in range(3)]
    assert [(len(answer.records), answer.passed, answer.passed_bytes) for answer in answers] == [
        (0, 4, 8),
        (0, 4, 8),
        (1, 0, 0),
    ]
    assert kafka.clock.now_s == begun_s


def test_messages_of_a_partition_that_was_given_up_are_not_taken_for_those_of_the_present_one() -> None:
    kafka = FakeKafka(logs={A: [batch(0, 1)], B: [batch(0, 4)]})
    picker = KafkaPicker(kafka.client())
    picker.assign({A: 0})
    picker.pick(POLL_MS, {})
    picker.assign({A: 1, B: 0})
    picker.pick(POLL_MS, {})
    kafka.last.queue += [message(A, 1), message(B, 4), message(A, 2)]
    answer = picker.pick(POLL_MS, {A: [1, 4], B: [1, 4]})
    assert [(record.partition, record.offset) for record in answer.records] == [(0, 1), (1, 4)]
    assert (picker.position(A), picker.position(B)) == (3, 5)
