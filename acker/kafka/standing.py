"""Notices partitions that do not go on although there is more to read in them.

A reader of several partitions that gets nothing of one of them looks healthy: the others go on. A partition
*stands* when for longer than a limit, all the time,

* its position did not move;
* its log goes on behind the position, or nobody can say whether it does: it has no leader;
* its reader had nothing else to return. What is read of one partition waits in the client behind what was
  read of others before: a slow reader of 100,000 records of one may get those of another an hour later.

What a reader leaves unread on purpose is not reported, and does not stand: a limit is reached, an input is
paused. How far a log goes is the high watermark for a reader of all records, and the last stable offset for a
reader of committed ones: an open transaction holds up nobody's reader.

Time is what is counted between two looks, at most `LOOK_MS_MAX`: a process that was stopped, or a clock that
was set, makes nothing stand.

`StandingPartitions` is pure. `StandingWatch` asks for the ends that it needs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from acker.config.limits import STANDS_MS
from acker.errors import PartitionStands
from acker.kafka.port import Bound, Log, OffsetAnswers, TopicPartition
from acker.units import time_text

ASKS_PER_LIMIT: Final = 3
"""So often in the limit the end is asked of a partition that does not move."""

REPEAT_MS: Final = 60_000
"""So often it is said of a partition that it still stands."""

INTERVAL_MS_MAX: Final = 5_000
"""The time between two looks counts as so much at most."""

QUEUED_MAX: Final = 200_000
"""Twice as many records as a client fetches ahead: behind so many others nothing waits that was sent."""


UNKNOWN: Final = -1
"""The position in a partition of which nobody knows yet where to begin."""


def all_answers(answers: OffsetAnswers, what: str) -> Mapping[TopicPartition, int]:
    """Return offsets for who needs all of them, and does not wait for an election.

    Raises `PartitionStands`: partitions have no answer, so `what` is unknown.
    """
    if answers.troubles:
        raise PartitionStands(f"{what} is unknown: {named_troubles(answers.troubles)}; start what is missing")
    return answers.offsets


def named_troubles(troubles: Mapping[TopicPartition, str]) -> str:
    """Return one text for partitions that have no answer."""
    return "; ".join(f"{place.topic}/{place.partition} {text}" for place, text in sorted(troubles.items()))


class StandingPartition(NamedTuple):
    """A partition that stands, at a position (or `UNKNOWN`) since a wall time (ms).

    `end` is how far its log goes; None: it could not be asked, and `why` says so.
    """

    place: TopicPartition
    position: int
    since_ms: int
    stood_ms: int
    end: int | None = None
    why: str = ""

    @property
    def name(self) -> str:
        """Its name, as ``topic/partition``."""
        return f"{self.place.topic}/{self.place.partition}"

    def __str__(self) -> str:
        since = time_text(self.since_ms // 1000 * 1000)
        where = f" at {self.position:,}" if self.position != UNKNOWN else ""
        stands = f"{self.name} stands{where} since {since}, {self.stood_ms // 1000} s"
        if self.end is None:
            return f"{stands}: it {self.why}; start what is missing, and it goes on"
        return (
            f"{stands}: its log goes on to {self.end:,}, and nothing of it arrives; see what the log of its"
            " leader says, then start this process again"
        )


class StandingNews(NamedTuple):
    """What is to be said now: which partitions stand, at first and now and then, and which go on again."""

    stand: Sequence[StandingPartition] = ()
    go_on: Sequence[TopicPartition] = ()


@dataclass(slots=True)
class _Progress:
    """What is known of a partition since its position moved.

    Attributes:
        passed: how many records the reader had passed then, of all partitions.
        still_ms: for how long it has not moved, and `stood_ms` for how long although there is more to read.
        requested_at_ms: `still_ms` when its end was asked; negative: it was not.
        end: how far its log goes; None: unknown. `why` says what is the matter, if it cannot be asked.
        reported_at_ms: `stood_ms` when it was said that it stands; negative: it was not.
    """

    position: int
    passed: int
    still_ms: int = 0
    stood_ms: int = 0
    requested_at_ms: int = -1
    end: int | None = None
    why: str = ""
    reported_at_ms: int = -1

    @property
    def is_behind(self) -> bool:
        return bool(self.why) or (self.end is not None and self.end > self.position)


class StandingPartitions:
    """Which of the partitions of one reader stand; it gets positions, ends and the time."""

    def __init__(self, limit_ms: int = STANDS_MS) -> None:
        """Begin with none; one stands after `limit_ms`."""
        self._limit_ms = limit_ms
        self._progress: dict[TopicPartition, _Progress] = {}
        self._looked_ms: int | None = None
        self._passed = 0
        self._gone_on: list[TopicPartition] = []

    def look(self, positions: Mapping[TopicPartition, int], now_ms: int, *, is_drained: bool = True) -> None:
        """Take the positions of all partitions that are read now, at a wall time.

        `is_drained`: the reader had nothing else to return. A partition that is missing is forgotten.
        """
        passed_ms = 0 if self._looked_ms is None else min(max(0, now_ms - self._looked_ms), INTERVAL_MS_MAX)
        self._looked_ms = now_ms
        before, self._progress = self._progress, {}
        for place, position in positions.items():
            if (answers := before.get(place)) is not None:
                self._passed += max(0, position - answers.position)
        for place, position in positions.items():
            progress = before.get(place)
            if progress is None or progress.position != position:
                self._progress[place] = _Progress(position, self._passed)
                if progress is not None and progress.reported_at_ms >= 0:
                    self._gone_on.append(place)
                continue
            self._progress[place] = progress
            progress.still_ms += passed_ms
            if progress.is_behind and (is_drained or self._passed - progress.passed > QUEUED_MAX):
                progress.stood_ms += passed_ms

    def to_ask(self) -> Collection[TopicPartition]:
        """Return the partitions whose ends should be asked now: those that have not moved for a while."""
        wait_ms = self._limit_ms // ASKS_PER_LIMIT
        places: list[TopicPartition] = []
        for place, progress in self._progress.items():
            since_ms = (
                progress.still_ms
                if progress.requested_at_ms < 0
                else progress.still_ms - progress.requested_at_ms
            )
            if since_ms >= wait_ms:
                places.append(place)
        return places

    def learn(self, answers: OffsetAnswers) -> None:
        """Take ends, or why there are none."""
        for place, progress in self._progress.items():
            if place not in answers.offsets and place not in answers.troubles:
                continue
            progress.requested_at_ms = progress.still_ms
            progress.end, progress.why = answers.offsets.get(place), answers.troubles.get(place, "")
            if not progress.is_behind:
                progress.stood_ms = 0
                if progress.reported_at_ms >= 0:
                    self._gone_on.append(place)
                progress.reported_at_ms = -1

    def standing(self) -> tuple[StandingPartition, ...]:
        """Return the partitions that stand as of the last look."""
        now_ms = self._looked_ms or 0
        return tuple(
            StandingPartition(
                place,
                progress.position,
                now_ms - progress.stood_ms,
                progress.stood_ms,
                progress.end,
                progress.why,
            )
            for place, progress in sorted(self._progress.items())
            if progress.is_behind and progress.stood_ms >= self._limit_ms
        )

    def news(self) -> StandingNews:
        """Return what is to be said now, and was not said yet."""
        stand: list[StandingPartition] = []
        for partition in self.standing():
            progress = self._progress[partition.place]
            if progress.reported_at_ms < 0 or partition.stood_ms - progress.reported_at_ms >= REPEAT_MS:
                progress.reported_at_ms = partition.stood_ms
                stand.append(partition)
        go_on, self._gone_on = self._gone_on, []
        return StandingNews(stand, go_on)


class LateReaders:
    """Which readers stand, as somebody sees it who only knows up to where they have read; pure.

    A reader that has not read what was written long ago stands, or catches up. Who looks once sees no
    difference; who looks again sees that a position has not moved for as long.
    """

    def __init__(self, limit_ms: int = STANDS_MS) -> None:
        """Begin; a reader is late with a record that is older than `limit_ms`."""
        self._limit_ms = limit_ms
        self._first_ms: int | None = None
        self._seen: dict[TopicPartition, tuple[int, int]] = {}

    def look(
        self,
        positions: Mapping[TopicPartition, int],
        young: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        now_ms: int,
    ) -> list[StandingPartition]:
        """Return the readers that stand, at a wall time.

        Args:
            positions: up to where each partition is read.
            young: the first offset of each that is younger than the limit; missing: unknown. So `ends`.
        """
        is_first = self._first_ms is None or now_ms < self._first_ms
        self._first_ms = now_ms if is_first else self._first_ms
        before, self._seen = self._seen, {}
        standing: list[StandingPartition] = []
        for place, position in sorted(positions.items()):
            if position >= young.get(place, position):
                continue
            seen_position, since_ms = before.get(place, (UNKNOWN, now_ms))
            # where the clock was set back it stands from now on: else it would be named an hour later
            since_ms = min(since_ms, now_ms)
            if seen_position != position:
                since_ms = now_ms - self._limit_ms if is_first else now_ms
            self._seen[place] = position, since_ms
            stood_ms = now_ms - since_ms
            if stood_ms >= self._limit_ms:
                end = ends.get(place)
                standing.append(StandingPartition(place, position, since_ms, stood_ms, end))
        return standing


class StandingWatch:
    """Watches the partitions of a reader, and asks for their ends where they do not move."""

    def __init__(self, log: Log, bound: Bound, limit_ms: int = STANDS_MS) -> None:
        """Begin with none; `bound` is how far the reader can read."""
        self._log = log
        self._bound = bound
        self._partitions = StandingPartitions(limit_ms)

    def look(
        self, positions: Mapping[TopicPartition, int], now_ms: int, *, is_drained: bool = True
    ) -> StandingNews:
        """Look at the positions as `StandingPartitions.look` does; return what is to be said.

        Raises `Unreachable`: Kafka does not answer at all.
        """
        self._partitions.look(positions, now_ms, is_drained=is_drained)
        if places := self._partitions.to_ask():
            self._partitions.learn(self._log.bounds(self._bound, places))
        return self._partitions.news()

    def standing(self) -> tuple[StandingPartition, ...]:
        """Return the partitions that stand as of the last look."""
        return self._partitions.standing()
