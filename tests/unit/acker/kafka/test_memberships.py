"""A member of a group: when its commit goes out again, what its polls raise and log, and how it leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from acker.errors import LogError, TopicError, WindhoverError
from acker.kafka.group import COMMIT_EVERY_S, COMMIT_PATIENCE_S, DEFAULTS, KafkaMembership
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

    joins_at_once = True

    def __init__(self, answered: Callable[..., None]) -> None:
        """Begin with nothing."""
        self.commits: list[dict[TopicPartition, int]] = []
        self.cannot_send = False
        self.news: list[Callable[[], None]] = []
        self.event: KafkaError | None = None
        self.dying: KafkaError | None = None
        self.is_closed = False
        self.unassigned = 0
        self.waits_s: list[float] = []
        self._answered = answered

    def subscribe(
        self,
        topics: list[str],
        *,
        on_assign: Callable[..., None],
        on_lost: Callable[..., None],
        on_revoke: Callable[..., None],
    ) -> None:
        """Give the member both partitions at once."""
        self.topics = topics
        self._assigned, self._lost, self.revoke = on_assign, on_lost, on_revoke
        if self.joins_at_once:
            self.share(*(TopicPartition(topic, number) for topic in topics for number in (0, 1)))

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
        self.unassigned += 1

    def poll(self, timeout_s: float) -> Any:
        """Tell the member what has happened."""
        self.waits_s.append(timeout_s)
        if self.dying is not None:
            raise KafkaException(self.dying)
        for happen in self.news:
            happen()
        self.news.clear()
        return None if self.event is None else SimpleNamespace(error=lambda: self.event)

    def close(self) -> None:
        """Leave the group."""
        self.is_closed = True

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


@dataclass
class Client:
    """Makes such consumers, and knows how many partitions the topics have."""

    clock: SteadyClock
    settings: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    counted: list[str] = field(default_factory=list)
    asked: list[tuple[object, str]] = field(default_factory=list)
    joins_at_once: bool = True

    def make_client(self, _kind: object, defaults: Any, forced: dict[str, Any], _: object) -> Consumer:
        self.made = Consumer(forced["on_commit"])
        self.made.joins_at_once = self.joins_at_once
        self.made_by = {**defaults, **forced}
        return self.made

    def partition_count(self, _asker: object, topic: str, _background: object) -> int:
        self.counted.append(topic)
        return self.counts.get(topic, 2)

    def require_answers(self, _asker: object, topic: str, doing: str, _background: object) -> None:
        self.asked.append((topic, doing))

    def error(self, cause: KafkaError, doing: str, **_: object) -> WindhoverError:
        return LogError(f"{doing}: {cause.str()}")


def member_of(clock: SteadyClock, *topics: str, **options: Any) -> tuple[KafkaMembership, Consumer]:
    """Return a member that has joined, and its consumer."""
    return member_with(Client(clock, **options), *topics)


def member_with(
    client: Client, *topics: str, pause_ms: int | None = None
) -> tuple[KafkaMembership, Consumer]:
    """Return a member that a client makes, and its consumer."""
    faked: Any = client
    member = KafkaMembership(
        faked, "windhover-replay", topics or [PLACE.topic], client_id="replay", pause_ms=pause_ms
    )
    return member, client.made


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


def test_a_member_owns_the_numbers_that_it_was_given_of_every_topic() -> None:
    member, consumer = member_of(SteadyClock(), "due", "verdict")
    assert consumer.topics == ["due", "verdict"]
    assert member.poll(250) == {0, 1}
    assert consumer.waits_s == [0.25]
    consumer.share(TopicPartition("due", 0), TopicPartition("verdict", 0), TopicPartition("due", 1))
    assert member.poll(0) == {0}
    consumer.share(TopicPartition("due", 1))
    assert member.poll(0) == frozenset()


def test_a_share_that_is_revoked_is_kept_until_there_is_another() -> None:
    """What is ours again a moment later must not be dropped and restored."""
    member, consumer = member_of(SteadyClock())
    consumer.revoke(consumer, [])
    assert (member.poll(0), member.is_out, consumer.unassigned) == ({0, 1}, False, 1)
    consumer.put_out()
    assert (member.is_out, consumer.unassigned) == (True, 2)


def test_offsets_of_partitions_that_went_to_others_are_not_committed_and_asked_for_anew() -> None:
    clock = SteadyClock()
    member, consumer = member_of(clock)
    member.commit_soon({PLACE: 1, OTHER: 2})
    consumer.answer("taken")
    consumer.share(PLACE)
    clock.now_s += COMMIT_EVERY_S
    member.commit_soon({PLACE: 1, OTHER: 3})
    assert len(consumer.commits) == 1, "one is committed, and the other one is somebody else's"
    consumer.share(PLACE, OTHER)
    member.commit_soon({OTHER: 2})
    assert consumer.commits[1:] == [{OTHER: 2}], "somebody may have committed less of it meanwhile"


def test_a_member_that_leaves_commits_at_once_what_is_due() -> None:
    member, consumer = member_of(SteadyClock())
    member.commit_soon({PLACE: 1})
    consumer.answer("taken")
    member.commit_soon({PLACE: 2})
    assert len(consumer.commits) == 1
    member.close()
    assert consumer.commits[1:] == [{PLACE: 2}]
    assert consumer.is_closed
    assert member._owned_partitions == frozenset()


def test_what_is_fatal_and_what_does_not_pass_is_raised_and_that_it_was_put_out_is_not() -> None:
    member, consumer = member_of(SteadyClock(), "due", "verdict")
    passing = [
        KafkaError(KafkaError.ILLEGAL_GENERATION),
        KafkaError(KafkaError.REBALANCE_IN_PROGRESS),
        KafkaError(KafkaError.UNKNOWN_MEMBER_ID),
        KafkaError(KafkaError._MAX_POLL_EXCEEDED),
        KafkaError(KafkaError._TRANSPORT, retriable=True),
    ]
    for consumer.event in passing:
        assert member.poll(0) == {0, 1}
    doing = "in group windhover-replay of due, verdict"
    consumer.event = REFUSAL
    with pytest.raises(LogError, match=f"{doing}: Broker: Group authorization failed"):
        member.poll(0)
    consumer.event, consumer.dying = None, KafkaError(KafkaError._FATAL, "dead", fatal=True)
    with pytest.raises(LogError, match=f"{doing}: dead"):
        member.poll(0)


def test_only_a_member_of_whom_nothing_is_heard_asks_whether_anybody_is_there() -> None:
    client = Client(SteadyClock())
    member, consumer = member_with(client, "due", "verdict")
    member.poll(0)
    assert client.asked == [("due", "in group windhover-replay")]
    consumer.event = KafkaError(KafkaError.REBALANCE_IN_PROGRESS)
    member.poll(0)
    assert len(client.asked) == 1


def test_topics_of_different_sizes_are_no_group_and_are_counted_once() -> None:
    client = Client(SteadyClock(), counts={"due": 4, "verdict": 3})
    member, _ = member_with(client, "due", "verdict")
    for _ in range(2):
        with pytest.raises(TopicError, match="as many partitions each: due has 4, verdict has 3"):
            member.poll(0)
    client.counts["verdict"] = 4
    client.counted.clear()
    for _ in range(3):
        member.poll(0)
    assert client.counted == ["due", "verdict"]


def test_a_member_that_is_not_let_in_says_so_each_minute_until_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = SteadyClock()
    member, consumer = member_of(clock, joins_at_once=False)
    for _ in range(130):
        assert member.poll(0) == frozenset()
        clock.now_s += 1
    text = "group windhover-replay has not let this member in for {} s; a member that hangs holds up all"
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition(": see")[0] for line in lines] == [text.format(60), text.format(120)]
    consumer.share()
    for _ in range(130):
        member.poll(0)
        clock.now_s += 1
    assert len(caplog.records) == 2, "it is in, without a partition"


@pytest.mark.parametrize(
    ("pause_ms", "session", "expected"),
    [
        (None, "", None),
        (600_000, "", 600_000),
        (1_000, "", DEFAULTS["session.timeout.ms"]),
        (1_000, "20000", 20_000),
        (30_000, "20000", 30_000),
    ],
)
def test_a_pause_is_at_least_as_long_as_a_session(
    pause_ms: int | None, session: str, expected: int | None
) -> None:
    """librdkafka refuses another one."""
    client = Client(SteadyClock(), {"session.timeout.ms": session} if session else {})
    member_with(client, pause_ms=pause_ms)
    assert client.made_by.get("max.poll.interval.ms") == expected
    assert client.made_by["client.id"] == "replay"
    assert client.made_by["group.id"] == "windhover-replay"
    assert client.made_by["enable.auto.commit"] is False
    assert "max.poll.interval.ms" not in DEFAULTS
