"""Whether a log is still the one that was read: what librdkafka's answers to an epoch mean."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from acker.errors import Disagreement, LogError
from acker.kafka.cluster import KafkaLog
from acker.kafka.epochs import ANSWER_MS, intact_to
from acker.kafka.port import ReadTo, TopicPartition
from tests.support.fake_consumer import FakeConsumer, FakeKafka, event, message

A, B, OTHER = TopicPartition("words", 0), TopicPartition("words", 1), TopicPartition("lines", 0)
RESET = KafkaError._AUTO_OFFSET_RESET


def cut_text(end: int) -> str:
    """Return what the client says of a log that was cut."""
    return (
        "Partition log truncation detected at offset 17 (leader epoch 3): broker end offset is"
        f" {end} (offset leader epoch 3)"
    )


def asked(
    read: dict[TopicPartition, ReadTo], *answers: Message
) -> tuple[dict[TopicPartition, int], FakeKafka]:
    """Ask about what was read, and return what these messages answer."""
    assigned: list[Any] = []

    def assign(consumer: FakeConsumer, partitions: list[Any]) -> None:
        assigned.extend(partitions)
        consumer.queue += answers

    kafka = FakeKafka(on_assign=assign)
    answer = intact_to(kafka.client(), read)
    assert {(part.topic, part.partition, part.offset, part.leader_epoch) for part in assigned} == {
        (*place, *position) for place, position in read.items()
    }
    assert kafka.last.settings["isolation.level"] == "read_uncommitted"
    return answer, kafka


@pytest.mark.parametrize(
    "answer",
    [
        message(A, 17),
        event(A, KafkaError(KafkaError._PARTITION_EOF), 17),
        event(A, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), 17),
        event(A, KafkaError(RESET, "fetch failed due to requested offset not available on the broker"), 17),
    ],
    ids=["record", "end", "refusal", "deleted"],
)
def test_whatever_is_no_cut_leaves_the_log_whole(answer: Message) -> None:
    """What else is wrong with the position a reader will say."""
    assert asked({A: ReadTo(17, 3)}, answer)[0] == {A: 17}


@pytest.mark.parametrize(("end", "intact"), [(10, 10), (0, 0), (17, 17), (25, 17)])
def test_a_log_that_was_cut_has_what_lies_before_the_cut(end: int, intact: int) -> None:
    assert asked({A: ReadTo(17, 3)}, event(A, KafkaError(RESET, cut_text(end)), 17))[0] == {A: intact}


def test_each_partition_has_its_own_answer_which_is_the_first_one() -> None:
    """What follows it was fetched behind it; of partitions that nobody asked for nothing is taken."""
    read = {A: ReadTo(17, 3), B: ReadTo(8, 0), OTHER: ReadTo(5, 2)}
    answer, kafka = asked(
        read,
        message(TopicPartition("strangers", 0), 3),
        message(B, 8),
        event(B, KafkaError(RESET, cut_text(2)), 8),
        event(A, KafkaError(RESET, cut_text(11)), 17),
        message(OTHER, 5),
    )
    assert answer == {A: 11, B: 8, OTHER: 5}
    assert kafka.clock.now_s == 1_000, "with the last answer it is over"
    assert kafka.last.is_closed


def test_a_partition_without_an_answer_is_left_out_after_a_while() -> None:
    answer, kafka = asked({A: ReadTo(17, 3), B: ReadTo(8, 1)}, message(A, 17))
    assert answer == {A: 17}
    assert kafka.clock.now_s - 1_000 == pytest.approx(ANSWER_MS / 1_000)
    assert kafka.last.is_closed


def test_a_leader_that_knows_no_such_epoch_is_of_another_cluster() -> None:
    unknown = event(
        A, KafkaError(RESET, "Partition log truncation detected: No epoch found less or equal"), 17
    )
    with pytest.raises(
        Disagreement, match=r"words/0 was read when its leader had the epoch 3, .* knows none"
    ):
        asked({A: ReadTo(17, 3)}, unknown)


def test_a_text_that_the_client_has_changed_is_an_error() -> None:
    """Else a log that was cut would pass for a whole one."""
    changed = event(A, KafkaError(RESET, "log truncation detected, somewhere"), 17)
    with pytest.raises(LogError, match=r"asking where words/0 was cut: the client only says: .*somewhere"):
        asked({A: ReadTo(17, 3)}, changed)


def test_who_asks_about_nothing_needs_no_client() -> None:
    assert KafkaLog({"bootstrap.servers": "nobody:1"}).intact_to({}) == {}
