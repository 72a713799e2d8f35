"""Which partitions a planning process cannot ask about now, since when, and what is said of them.

A partition without a leader must not stop the others of its query: planning leaves it out and notes
it here. Nothing of it is passed over, so it goes on where it stood when it has a leader again.
Where the trouble lasts it is said in the log, and the status names it at once.

Source: docs/design/protocol.md, section 5.1, "Planning".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from acker.errors import PartitionStands
from acker.kafka.port import Bound, Log, OffsetAnswers, TopicPartition
from acker.kafka.standing import UNKNOWN, StandingNews, StandingPartitions
from acker.waits import LastTime

ASK_EVERY_MS: Final = 5_000
"""So often a process asks about the partitions in trouble by itself: a batch may run for minutes."""


class Troubles:
    """The partitions in trouble, each with words that follow its name, such as "has no leader"."""

    def __init__(self, log: Log) -> None:
        """Begin with no partition in trouble."""
        self._log = log
        self._text_by_place: dict[TopicPartition, str] = {}
        self._standing_watch = StandingPartitions()
        self._reported: set[TopicPartition] = set()  # that they stand, and not yet that they go on
        self._last_question = LastTime()  # to Kafka, about them

    def __contains__(self, place: TopicPartition) -> bool:
        return place in self._text_by_place

    def __bool__(self) -> bool:
        return bool(self._text_by_place)

    def record_answers(self, answers: OffsetAnswers) -> None:
        """Record what a question got: a partition with an answer is in no trouble any more."""
        for place in answers.offsets:
            self._text_by_place.pop(place, None)
        self._text_by_place |= answers.troubles

    def texts(self) -> dict[str, str]:
        """Return why partitions have no answer, by ``topic/partition``."""
        return {
            f"{place.topic}/{place.partition}": text for place, text in sorted(self._text_by_place.items())
        }

    def step(self, positions: Mapping[TopicPartition, int], now_ms: int) -> StandingNews:
        """Ask about them every `ASK_EVERY_MS`; return which partitions stand now, and which go on again.

        `positions` are the offsets that are to be read next, as far as they are known.

        Raises `Unreachable`: Kafka does not answer at all.
        """
        if self._text_by_place and self._last_question.begin_if_due(now_ms, ASK_EVERY_MS):
            self.record_answers(self._log.bounds(Bound.END, self._text_by_place))

        # A partition in trouble is news only when the trouble lasts. One that
        # was reported is watched until it has gone on, since that is news, too.
        watched = self._text_by_place.keys() | self._reported
        watched_positions = {place: positions.get(place, UNKNOWN) for place in watched}
        self._standing_watch.record_positions(watched_positions, now_ms)
        # One in no trouble any more goes on, also where it has nothing to read: so its end is given
        # as its position, behind which nothing waits.
        recovered = watched - self._text_by_place.keys()
        recovered_ends = {place: watched_positions[place] for place in recovered}
        self._standing_watch.record_ends(OffsetAnswers(recovered_ends, self._text_by_place))
        news = self._standing_watch.take_news()
        standing_now = {standing.partition for standing in news.stand}
        self._reported = (self._reported & self._text_by_place.keys()) | standing_now
        return news

    def raise_if_stood(self, limit_ms: int) -> None:
        """Raise `PartitionStands` if a partition has been in trouble for `limit_ms` or longer.

        For a caller that has nothing left to do but to wait for it.
        """
        standing = self._standing_watch.standing()
        if any(partition.stood_ms >= limit_ms for partition in standing):
            texts = "; ".join(map(str, standing))
            raise PartitionStands(
                f"{texts}. All else is done, and nothing was passed over. Once these partitions have"
                " leaders again, start the query again"
            )
