"""What librdkafka answers when asked for offsets, and what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError

from acker.errors import Unreachable
from acker.kafka.cluster import (
    FIRST_PATIENCE_MS,
    LEADERLESS_S,
    LEADERS_EVERY_S,
    LOST_S,
    SILENT_AGAIN_S,
    KafkaLog,
    missing_brokers_in,
    topics_lacking_replicas,
)
from acker.kafka.port import Bound, MissingBroker, OffsetAnswers, TopicPartition

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
                SimpleNamespace(
                    offset=answer[TopicPartition(place.topic, place.partition)], leader_epoch=None
                )
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


class Cluster:
    """Brokers of which some are silent: an answer waits for them as long as it may, and leaves them out."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.silent: set[TopicPartition] = set()
        self.asked: list[set[TopicPartition]] = []
        self.clients = 0
        self.leaders = {A: 7, B: 7}
        self.leaders_asked = 0
        self.reports: list[KafkaError] = []
        self.log = KafkaLog(
            {"bootstrap.servers": "127.0.0.1:1"},
            clock=lambda: self.now_s,
            sleep=self.pass_time,
            make_admin=self._client,
        )

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds

    def _client(self, settings: Any) -> Any:
        self.clients += 1
        self._report = settings["error_cb"]
        return self

    def poll(self, _timeout_s: float) -> None:
        """Report what the client's threads have seen."""
        for error in self.reports:
            self._report(error)
        self.reports.clear()

    def list_topics(self, topic: str, _timeout_s: float) -> object:
        """Name the leaders of the partitions."""
        self.leaders_asked += 1
        partitions = {
            place.partition: SimpleNamespace(leader=leader, replicas=[leader])
            for place, leader in self.leaders.items()
        }
        brokers = {
            leader: SimpleNamespace(host=f"kafka-{leader}", port=9092) for leader in self.leaders.values()
        }
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=partitions)}, brokers=brokers)

    def list_offsets(
        self, wanted: Any, *, request_timeout: float, **_: object
    ) -> dict[confluent_kafka.TopicPartition, Future[object]]:
        places = {TopicPartition(place.topic, place.partition) for place in wanted}
        self.asked.append(places)
        if places & self.silent:
            self.now_s += request_timeout
        offsets = {place: OFFSET_INVALID if place in self.silent else 7 for place in places}
        return Admin(offsets).list_offsets(wanted)


SAID = {B: "has no answer from its leader, kafka-7:9092 (_TIMED_OUT)"}


def test_a_silent_leader_holds_up_the_others_once_in_a_while() -> None:
    """O403: who asks all the time would wait for it all the time."""
    cluster = Cluster()
    cluster.silent = {B}
    for _ in range(3):
        assert cluster.log.bounds(Bound.END, [A, B]) == OffsetAnswers({A: 7}, SAID)
    assert cluster.asked == [{A, B}, {A}, {A}]
    assert cluster.now_s == FIRST_PATIENCE_MS / 1000
    assert cluster.log.bounds(Bound.END, [B]) == OffsetAnswers({}, SAID)

    cluster.now_s += SILENT_AGAIN_S
    cluster.silent = set()
    assert cluster.log.bounds(Bound.END, [A, B]) == OffsetAnswers({A: 7, B: 7}, {})


def test_a_partition_is_asked_for_as_soon_as_it_has_another_leader_than_the_silent_one() -> None:
    """O431. Its verdicts came 6 s later than they could: nobody asked the leader that had taken its place."""
    cluster = Cluster()
    cluster.silent = {B}
    cluster.log.bounds(Bound.END, [A, B])
    cluster.now_s += LEADERS_EVERY_S
    cluster.log.bounds(Bound.END, [A, B])
    assert cluster.asked[-1] == {A}, "the silent one leads it still"

    cluster.leaders[B], cluster.silent = 8, set()
    cluster.now_s += LEADERS_EVERY_S
    assert cluster.log.bounds(Bound.END, [A, B]) == OffsetAnswers({A: 7, B: 7}, {})
    assert cluster.now_s < SILENT_AGAIN_S


def test_a_leader_that_is_new_while_the_old_one_is_waited_for_is_asked_next() -> None:
    """O431: the client learns who leads before it asks, so the silent one is not taken for the new one."""
    cluster = Cluster()
    cluster.silent = {B}
    list_offsets = cluster.list_offsets

    def loses_its_leader(
        wanted: Any, **arguments: Any
    ) -> dict[confluent_kafka.TopicPartition, Future[object]]:
        cluster.leaders[B] = 8
        return list_offsets(wanted, **arguments)

    cluster.list_offsets = loses_its_leader  # type: ignore[method-assign]  # the election, while it waits
    cluster.log.bounds(Bound.END, [A, B])
    cluster.silent = set()
    cluster.now_s += LEADERS_EVERY_S
    assert cluster.log.bounds(Bound.END, [A, B]).offsets == {A: 7, B: 7}


def test_who_leads_is_asked_once_and_again_for_a_while_after_a_broker_was_lost() -> None:
    """O432: librdkafka would wait for the dead one, since it remembers leaders for a quarter of an hour."""
    cluster = Cluster()
    for _ in range(3):
        cluster.now_s += LEADERS_EVERY_S
        cluster.log.bounds(Bound.END, [A, B])
    assert cluster.leaders_asked == 1

    cluster.reports = [KafkaError(KafkaError._TRANSPORT, "connection refused")]
    for _ in range(3):
        cluster.log.bounds(Bound.END, [A, B])
    assert cluster.leaders_asked == 2, "not with each question"
    cluster.now_s += LEADERS_EVERY_S
    cluster.log.bounds(Bound.END, [A, B])
    assert cluster.leaders_asked == 3

    cluster.now_s += LOST_S
    cluster.log.bounds(Bound.END, [A, B])
    assert cluster.leaders_asked == 3


def test_what_a_silent_broker_leads_besides_is_not_waited_for_either() -> None:
    """D1006: a view asks about one topic after the other, and each question waited for the same broker."""
    cluster = Cluster()
    first, second = TopicPartition("lines", 2), TopicPartition("lines", 3)
    cluster.leaders = {A: 7, B: 8, first: 8, second: 7}
    cluster.silent = {B, first}
    cluster.log.bounds(Bound.END, [A, B])
    assert cluster.log.bounds(Bound.END, [first, second]).offsets == {second: 7}
    assert cluster.asked == [{A, B}, {second}]
    assert cluster.now_s == FIRST_PATIENCE_MS / 1000

    cluster.now_s += SILENT_AGAIN_S
    cluster.silent = set()
    assert cluster.log.bounds(Bound.END, [A, B, first]).offsets == {A: 7, B: 7, first: 7}


def test_a_leader_that_answers_for_another_partition_is_no_silent_broker() -> None:
    """D1006: one partition without an answer says nothing of the others of its broker."""
    cluster = Cluster()
    cluster.silent = {B}
    cluster.log.bounds(Bound.END, [A, B])
    other = TopicPartition("lines", 2)
    cluster.leaders[other] = cluster.leaders[B]
    assert cluster.log.bounds(Bound.END, [other]).offsets == {other: 7}


def metadata(brokers: set[int], **topics: list[tuple[int, list[int], list[int]]]) -> Any:
    """Return metadata: of each partition its leader, its replicas, and those in sync."""
    found = {
        name: SimpleNamespace(
            partitions={
                number: SimpleNamespace(leader=leader, replicas=replicas, isrs=in_sync)
                for number, (leader, replicas, in_sync) in enumerate(partitions)
            }
        )
        for name, partitions in topics.items()
    }
    return SimpleNamespace(topics=found, brokers=dict.fromkeys(brokers))


def test_a_broker_that_the_others_do_not_see_is_missing() -> None:
    """D1001: its number is in the replicas of our partitions, and not among the brokers."""
    seen = metadata({1, 2}, ours=[(1, [1, 2, 3], [1, 2]), (-1, [3], [3])], others=[(1, [1, 4], [1])], none=[])
    assert missing_brokers_in(seen, ["ours", "not there"]) == [MissingBroker(3, replicas=2, leaderless=1)]
    assert missing_brokers_in(seen, ["none"]) == []


def test_a_broker_that_the_others_see_and_that_is_silent_is_named_too() -> None:
    """D1001: for nine seconds the others count on a broker that has died."""
    seen = metadata({1, 2, 3}, ours=[(3, [1, 2, 3], [1, 2, 3])])
    assert missing_brokers_in(seen, ["ours"], {3}) == [MissingBroker(3, replicas=1, is_silent=True)]
    assert missing_brokers_in(seen, ["ours"]) == []


def test_copies_in_sync_are_counted_on_brokers_that_are_there() -> None:
    """D1007: doctor called two of three copies in sync no fault; of a partition without a leader Kafka names
    the last one in sync, which is gone.
    """
    seen = metadata(
        {1, 2},
        ours=[(1, [1, 2, 3], [1, 2]), (1, [1, 2], [1, 2])],
        alone=[(-1, [3], [3])],
        sound=[(1, [1, 2], [2, 1])],
    )
    assert topics_lacking_replicas(seen, ["ours", "alone", "sound", "not there"]) == {
        "ours": (2, 3),
        "alone": (0, 1),
    }


def test_a_client_that_waited_for_a_silent_leader_is_given_up() -> None:
    """librdkafka ends the process where such a client meets the broker again."""
    cluster = Cluster()
    cluster.silent = {B}
    cluster.log.bounds(Bound.END, [A, B])
    assert cluster.clients == 2, "another one was asked who the silent leader is"


def test_where_nobody_answers_it_is_no_trouble_of_a_partition() -> None:
    cluster = Cluster()
    cluster.silent = {A, B}
    with pytest.raises(Unreachable, match="no answer from Kafka at"):
        cluster.log.bounds(Bound.END, [A, B])
