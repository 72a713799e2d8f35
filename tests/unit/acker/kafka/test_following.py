"""How partitions are followed to their ends."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from acker.kafka.port import Bound, OffsetAnswers, Outgoing, Record, TopicPartition
from acker.kafka.read_to_end import Follower
from tests.support.memory.cluster import MemoryCluster

PLACES = [TopicPartition("due", partition) for partition in range(8)]


class Marked:
    """A log of partitions that end in a marker each; its reader moves past one of these in a poll."""

    def __init__(self) -> None:
        self.polls = 0
        self._at: dict[TopicPartition, int] = {}

    def bounds(self, bound: Bound, places: Any) -> OffsetAnswers:
        """All begin at 0, and a marker is all there is."""
        return OffsetAnswers(dict.fromkeys(places, 0 if bound is Bound.START else 1), {})

    def reader(self, *, committed: bool) -> Marked:
        """It reads itself."""
        return self

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Begin."""
        self._at = dict(positions)

    def poll(self, _timeout_ms: int, _max_records: int) -> tuple[Record, ...]:
        """Return nothing, and one position has moved, as at Kafka's event of a partition's end."""
        self.polls += 1
        self._at[next(place for place, at in self._at.items() if at == 0)] = 1
        return ()

    def position(self, place: TopicPartition) -> int:
        """Where it is."""
        return self._at[place]

    def log_progress(self, *_: object) -> None:
        """Nothing takes long."""

    def close(self) -> None:
        """Nothing is open."""


def test_partitions_that_end_in_markers_are_read_to_their_ends_at_once() -> None:
    """One call for each of them was needed, a tenth of a second apart: ordered inputs waited for seconds."""
    log: Any = Marked()
    with closing(Follower(log, PLACES, patience_ms=10)) as follower:
        assert list(follower.read()) == []
        assert follower.is_whole
        assert log.polls == len(PLACES)


def test_a_partition_without_a_leader_keeps_the_others_from_nobody() -> None:
    """O408: they are read, the call says that these were not all and why; its own records come later."""
    cluster = MemoryCluster()
    cluster.create_topic("due", 3)
    places = PLACES[:3]
    log = cluster.log()
    producer = log.producer()
    for place in places:
        producer.send(Outgoing(*place, b"%d" % place.partition))
    producer.flush(1_000)
    cluster.lose_leader("due", 1)
    for first in (None, dict.fromkeys(places, 0)):
        with closing(Follower(log, places, patience_ms=10, first_offsets=first)) as follower:
            assert sorted(record.partition for record in follower.read()) == [0, 2]
            assert not follower.is_whole
            assert follower.why_not_whole() == "due/1 has no leader: its replicas are on broker 1"
            cluster.elect_leader("due", 1)
            assert [record.partition for record in follower.read()] == [1]
            assert (follower.is_whole, follower.why_not_whole()) == (True, "")
            cluster.lose_leader("due", 1)


def test_a_partition_of_which_nothing_arrives_is_named() -> None:
    cluster = MemoryCluster()
    cluster.create_topic("due", 2)
    log = cluster.log()
    producer = log.producer()
    producer.send(Outgoing("due", 1, b"x"))
    producer.flush(1_000)
    cluster.fall_silent("due", 1)
    with closing(Follower(log, PLACES[:2], patience_ms=10)) as follower:
        assert list(follower.read()) == []
        assert not follower.is_whole
        assert follower.why_not_whole() == "due/1 stands at 0 of 1"
