"""What librdkafka answers when asked for offsets, and what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_INVALID

from acker.kafka.cluster import LEADERLESS_S, KafkaLog
from acker.kafka.port import TopicPartition

A, B = TopicPartition("lines", 0), TopicPartition("lines", 1)


class Admin:
    """Answers what it was told to, one answer after the other."""

    def __init__(self, *answers: Mapping[TopicPartition, int]) -> None:
        self.answers = list(answers)

    def list_offsets(self, wanted: Any, **_: object) -> dict[confluent_kafka.TopicPartition, Future[object]]:
        """Answer as the admin client does, with a future for each partition."""
        answer = self.answers.pop(0)
        found: dict[confluent_kafka.TopicPartition, Future[object]] = {}
        for place in wanted:
            found[place] = Future()
            found[place].set_result(
                SimpleNamespace(offset=answer[TopicPartition(place.topic, place.partition)])
            )
        return found


def log_of(admin: Any) -> KafkaLog:
    """Make a log that asks this admin client."""
    return KafkaLog({"bootstrap.servers": "127.0.0.1:1"}, make_admin=lambda _settings: admin)


@pytest.mark.parametrize("nothing", [OFFSET_INVALID, -1])
def test_a_partition_that_an_answer_leaves_out_is_asked_for_again(nothing: int) -> None:
    """Found under load: a stable end of -1001, which is no offset, ended a query."""
    admin = Admin({A: 7, B: nothing}, {A: 8, B: 9})
    log = log_of(admin)
    assert log.stable_ends([A, B]) == {A: 8, B: 9}
    assert not admin.answers


def test_that_there_is_no_record_so_late_is_an_answer() -> None:
    """It is the end that counts then, as it was before: what comes between the two questions is so late."""
    admin = Admin({A: 8, B: 9}, {A: 7, B: -1}, {A: 8, B: 10})
    log = log_of(admin)
    assert log.offsets_at([A, B], 1_000) == {A: 7, B: 9}


class Forgetful(Admin):
    """Leaves a partition out for ever, as a client that has seen its leader die may."""

    def list_offsets(self, wanted: Any, **_: object) -> dict[confluent_kafka.TopicPartition, Future[object]]:
        """Leave out all."""
        self.answers = [{A: OFFSET_INVALID}]
        return super().list_offsets(wanted)

    def poll(self, _timeout: float) -> None:
        """Nothing was reported."""


def test_a_client_that_goes_on_leaving_out_a_partition_is_replaced() -> None:
    """It asked the leader that had died for the 30 s that an operation may take."""
    clients: list[Any] = [Forgetful(), Admin({A: 7})]
    now_s = 0.0

    def pause(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    log = KafkaLog(
        {"bootstrap.servers": "127.0.0.1:1"},
        clock=lambda: now_s,
        sleep=pause,
        make_admin=lambda _settings: clients.pop(0),
    )
    assert log.ends([A]) == {A: 7}
    assert LEADERLESS_S <= now_s < 2 * LEADERLESS_S, "not before: there may be no leader for a while"
