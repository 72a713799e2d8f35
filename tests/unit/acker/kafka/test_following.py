"""How partitions are followed to their ends."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from acker.kafka.port import Record, TopicPartition
from acker.kafka.reading import Follower

PLACES = [TopicPartition("due", partition) for partition in range(8)]


class Marked:
    """A log of partitions that end in a marker each; its reader moves past one of these in a poll."""

    def __init__(self) -> None:
        self.polls = 0
        self._at: dict[TopicPartition, int] = {}

    def starts(self, places: Any) -> Mapping[TopicPartition, int]:
        """All begin at 0."""
        return dict.fromkeys(places, 0)

    def stable_ends(self, places: Any) -> Mapping[TopicPartition, int]:
        """A marker is all there is."""
        return dict.fromkeys(places, 1)

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

    def close(self) -> None:
        """Nothing is open."""


def test_partitions_that_end_in_markers_are_read_to_their_ends_at_once() -> None:
    """One call for each of them was needed, a tenth of a second apart: ordered inputs waited for seconds."""
    log: Any = Marked()
    with closing(Follower(log, PLACES, patience_ms=10)) as follower:
        assert list(follower.read()) == []
        assert follower.is_whole
        assert log.polls == len(PLACES)
