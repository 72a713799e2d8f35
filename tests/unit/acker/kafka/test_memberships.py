"""When a member's commit of its group's offsets goes out again: after each end that the last one may have."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from acker.kafka.group import COMMIT_EVERY_S, COMMIT_PATIENCE_S, KafkaMembership
from acker.kafka.port import TopicPartition
from tests.support.steady_clock import SteadyClock

PLACE = TopicPartition("_ack_verdict", 0)
OTHER = TopicPartition("_ack_verdict", 1)
REFUSAL = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
PARTITION_REFUSAL = KafkaError(KafkaError.OFFSET_METADATA_TOO_LARGE)

WAITS_S = {
    "taken": COMMIT_EVERY_S,
    "refused": COMMIT_EVERY_S,
    "one refused": COMMIT_EVERY_S,
    "not sent": COMMIT_EVERY_S,
    "no answer": COMMIT_PATIENCE_S,
}
"""By what becomes of a commit, after which time the next one may go out."""


class Consumer:
    """Keeps what is committed, and answers when a test says so."""

    def __init__(self, answered: Callable[..., None]) -> None:
        """Begin with nothing."""
        self.commits: list[dict[TopicPartition, int]] = []
        self.cannot_send = False
        self.news: list[Callable[[], None]] = []
        self._answered = answered

    def subscribe(
        self, _topics: list[str], *, on_assign: Callable[..., None], on_lost: Callable[..., None], **_: object
    ) -> None:
        """Give the member both partitions at once."""
        self._assigned, self._lost = on_assign, on_lost
        self.share(PLACE, OTHER)

    def share(self, *places: TopicPartition) -> None:
        """Give the member partitions."""
        self._assigned(self, [confluent_kafka.TopicPartition(*place) for place in places])

    def put_out(self) -> None:
        """Take the place in the group from the member."""
        self._lost(self, [confluent_kafka.TopicPartition(*place) for place in (PLACE, OTHER)])

    def assign(self, _places: object) -> None:
        """Fetch nothing."""

    def unassign(self) -> None:
        """Fetch nothing."""

    def poll(self, _timeout_s: float) -> None:
        """Tell the member what has happened."""
        for happen in self.news:
            happen()
        self.news.clear()

    def commit(self, *, offsets: list[confluent_kafka.TopicPartition], asynchronous: bool) -> None:
        """Send a commit, or fail to."""
        assert asynchronous
        if self.cannot_send:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.sent = offsets
        self.commits.append({TopicPartition(place.topic, place.partition): place.offset for place in offsets})

    def answer(self, end: str) -> None:
        """Tell the member what became of its commit."""
        if end == "no answer":
            return
        partitions = [SimpleNamespace(error=None) for _ in self.sent]
        if end == "one refused":
            partitions[-1].error = PARTITION_REFUSAL
        self._answered(REFUSAL if end == "refused" else None, partitions)


def member_of(clock: SteadyClock) -> tuple[KafkaMembership, Consumer]:
    """Return a member that has joined, and its consumer."""
    made: list[Consumer] = []

    def make(_kind: object, _defaults: object, config: dict[str, Any], _background: object) -> Consumer:
        made.append(Consumer(config["on_commit"]))
        return made[0]

    client: Any = SimpleNamespace(
        clock=clock,
        settings={},
        make_client=make,
        partition_count=lambda *_: 2,
        require_answers=lambda *_: None,
    )
    return KafkaMembership(client, "windhover-replay", [PLACE.topic], client_id="replay"), made[0]


@pytest.mark.parametrize("ends", list(product(WAITS_S, repeat=3)), ids=" then ".join)
def test_a_commit_goes_out_again_as_soon_as_the_end_of_the_one_before_lets_it(ends: tuple[str, ...]) -> None:
    """D3004: only where the answer is still out it waits for a minute; so the second and third time."""
    clock = SteadyClock()
    member, consumer = member_of(clock)
    for number, end in enumerate(ends, 1):
        consumer.cannot_send = end == "not sent"
        before = len(consumer.commits)
        member.commit_soon({PLACE: number, OTHER: 10 * number})
        if end != "not sent":
            assert len(consumer.commits) == before + 1, "it went out at once"
            assert consumer.commits[-1][PLACE] == number
            consumer.answer(end)
        consumer.cannot_send = False
        sent = len(consumer.commits)
        clock.now_s += WAITS_S[end] - 0.01
        member.commit_soon({PLACE: 100 * number})
        assert len(consumer.commits) == sent, "it went out too early"
        clock.now_s += 0.02
        if number < len(ends):
            continue
        member.commit_soon({PLACE: 100 * number + 1})
        assert len(consumer.commits) == sent + 1


@pytest.mark.parametrize("end", WAITS_S)
def test_only_what_the_broker_has_taken_is_not_committed_again(end: str) -> None:
    clock = SteadyClock()
    member, consumer = member_of(clock)
    consumer.cannot_send = end == "not sent"
    member.commit_soon({PLACE: 7, OTHER: 9})
    if end != "not sent":
        consumer.answer(end)
    consumer.cannot_send = False
    sent = len(consumer.commits)
    clock.now_s += COMMIT_PATIENCE_S + 1
    member.commit_soon({PLACE: 7, OTHER: 9})
    assert len(consumer.commits) == sent + (end != "taken")


def test_a_member_that_was_put_out_goes_on_with_its_share_until_it_has_another() -> None:
    """D1011: it was without any for as long as its former session, and gave no verdict."""
    member, consumer = member_of(SteadyClock())
    assert (member.poll(0), member.is_out) == ({0, 1}, False)
    for share in ({1}, set[int](), {0, 1}):
        before = member.poll(0)
        consumer.news.append(consumer.put_out)
        for _ in range(3):
            assert (member.poll(0), member.is_out) == (before, True)
        places = [place for place in (PLACE, OTHER) if place.partition in share]
        consumer.news.append(partial(consumer.share, *places))
        for _ in range(3):
            assert (member.poll(0), member.is_out) == (share, False)


def test_a_member_that_was_put_out_commits_nothing_until_it_has_a_share_again() -> None:
    """Whoever has its partitions by then knows more of them."""
    clock = SteadyClock()
    member, consumer = member_of(clock)
    consumer.news.append(consumer.put_out)
    member.poll(0)
    member.commit_soon({PLACE: 7})
    clock.now_s += COMMIT_PATIENCE_S + 1
    member.poll(0)
    assert consumer.commits == []
    consumer.news.append(lambda: consumer.share(PLACE))
    member.poll(0)
    assert consumer.commits == [{PLACE: 7}]
