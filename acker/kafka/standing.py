"""Finds partitions that do not go on although there is more to read in them.

A reader of several partitions that gets nothing of one of them looks healthy:
the others go on. A partition *stands* when for longer than a limit, all the time,

* its position did not move;
* its log goes on behind the position, or nobody can say whether it does: it has no leader;
* its reader had nothing else to return. Records of one partition wait in the client behind the
  records of other partitions that were fetched before: a slow reader of 100,000 records of one may
  get those of another an hour later.

A partition that is left unread on purpose is not among the positions that are
recorded, and so does not stand: a limit is reached, an input is paused. How
far a log goes is the high watermark for a reader of all records, and the last
stable offset for a reader of committed ones: behind an open transaction there
is nothing that it could read.

Time is what is counted between two records of positions, at most
`INTERVAL_MS_MAX`: a process that was stopped, or a clock that was set, makes
nothing stand.

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
"""So often within the limit a partition that does not move is asked for its end."""

REPEAT_MS: Final = 60_000
"""So often it is reported that a partition still stands."""

INTERVAL_MS_MAX: Final = 5_000
"""The time between two records of positions counts as so much at most."""

QUEUED_MAX: Final = 200_000
"""Twice as many records as a client fetches ahead. Once the reader has
returned so many of other partitions, those of this one would have come, too,
if they had been sent."""


UNKNOWN: Final = -1
"""The position in a partition that is not begun: it is not known yet where."""


def all_answers(answers: OffsetAnswers, subject: str) -> Mapping[TopicPartition, int]:
    """Return the offsets, for a caller that needs all of them and does not wait for an election.

    Raises `PartitionStands`: partitions have no answer, so the `subject` of the message is unknown.
    """
    if answers.troubles:
        raise PartitionStands(
            f"{subject} is unknown: {named_troubles(answers.troubles)}; start what is missing"
        )
    return answers.offsets


def named_troubles(troubles: Mapping[TopicPartition, str]) -> str:
    """Return one text for partitions that have no answer, by their trouble texts."""
    return "; ".join(f"{partition.name} {text}" for partition, text in sorted(troubles.items()))


class StandingPartition(NamedTuple):
    """A partition that stands, at a position (or `UNKNOWN`) since a wall time.

    Attributes:
        since_ms: the wall time, and `stood_ms` for how long it has stood.
        end: how far its log goes; None: it could not be asked.
        why: why it could not be asked, in words that follow the partition's
            name; else empty.
    """

    partition: TopicPartition
    position: int
    since_ms: int
    stood_ms: int
    end: int | None = None
    why: str = ""

    @property
    def name(self) -> str:
        """The partition's name, ``topic/partition``."""
        return self.partition.name

    def __str__(self) -> str:
        """Return a sentence that names the partition, for how long it stands, and what to do."""
        since = time_text(self.since_ms // 1000 * 1000)  # whole seconds
        where = f" at {self.position:,}" if self.position != UNKNOWN else ""
        stands = f"{self.name} stands{where} since {since}, {self.stood_ms // 1000} s"
        if self.end is None:
            return f"{stands}: it {self.why}; start what is missing, and it goes on"
        return (
            f"{stands}: its log goes on to {self.end:,}, and nothing of it arrives; see what the log of its"
            " leader says, then start this process again"
        )


class StandingNews(NamedTuple):
    """What is to be reported now.

    Attributes:
        stand: partitions that stand; each is reported at first, and then
            every `REPEAT_MS`.
        go_on: partitions that were reported, and do not stand any more.
    """

    stand: Sequence[StandingPartition] = ()
    go_on: Sequence[TopicPartition] = ()


@dataclass(slots=True)
class _Progress:
    """What is known of a partition since its position moved.

    Attributes:
        read_count: how many records the reader had read of all partitions
            when it moved.
        unmoved_ms: for how long its position has not moved.
        stood_ms: for how long it has not moved although there is more to
            read.
        unmoved_at_request_ms: what `unmoved_ms` was when its end was asked
            last; negative: it was not since the position moved.
        end: how far its log goes; None: unknown.
        trouble: why its end cannot be asked (a trouble text); else empty.
        stood_at_report_ms: what `stood_ms` was when it was last reported;
            negative: it is not reported.
    """

    position: int
    read_count: int
    unmoved_ms: int = 0
    stood_ms: int = 0
    unmoved_at_request_ms: int = -1
    end: int | None = None
    trouble: str = ""
    stood_at_report_ms: int = -1

    @property
    def is_behind(self) -> bool:
        """Whether there is more to read, or nobody can say it."""
        return bool(self.trouble) or (self.end is not None and self.end > self.position)

    @property
    def is_reported(self) -> bool:
        """Whether it was reported that it stands."""
        return self.stood_at_report_ms >= 0


class StandingPartitions:
    """Knows which of the partitions of one reader stand; it gets positions, ends and the time."""

    def __init__(self, limit_ms: int = STANDS_MS) -> None:
        """Begin with no partition; one stands after `limit_ms`."""
        self._limit_ms = limit_ms
        self._progress_by_partition: dict[TopicPartition, _Progress] = {}
        self._recorded_at_ms: int | None = None  # wall time of the last positions; None before any
        self._read_count = 0  # how many records of all partitions were read
        self._unreported_recoveries: list[TopicPartition] = []  # they go on: for the next news

    def record_positions(
        self, positions: Mapping[TopicPartition, int], now_ms: int, *, is_drained: bool = True
    ) -> None:
        """Record the positions of all partitions that are read now, at a wall time.

        `is_drained`: the reader had nothing else to return. A partition that
        is missing is forgotten.
        """
        # the time since the last call, at most `INTERVAL_MS_MAX`
        interval_ms = 0
        if self._recorded_at_ms is not None:
            # not how long this process was stopped, nor by how much its clock was set
            interval_ms = min(max(0, now_ms - self._recorded_at_ms), INTERVAL_MS_MAX)
        self._recorded_at_ms = now_ms
        former_progress_by_partition, self._progress_by_partition = self._progress_by_partition, {}
        # 1. Count what was read of all partitions, before step 2 notes the
        # count for those that have moved.
        for partition, position in positions.items():
            progress = former_progress_by_partition.get(partition)
            if progress is not None:
                self._read_count += max(0, position - progress.position)
        # 2. A partition that has moved begins anew, with 0 ms; for another one count the interval.
        for partition, position in positions.items():
            progress = former_progress_by_partition.get(partition)
            if progress is None or progress.position != position:
                self._progress_by_partition[partition] = _Progress(position, self._read_count)
                if progress is not None and progress.is_reported:
                    self._unreported_recoveries.append(partition)
                continue
            self._progress_by_partition[partition] = progress
            progress.unmoved_ms += interval_ms
            # False: its records may still wait in the client, behind those of other partitions, so
            # the time does not count as standing
            would_have_come = is_drained or self._read_count - progress.read_count > QUEUED_MAX
            # `is_behind`: there is more to read, or no leader could answer
            if progress.is_behind and would_have_come:
                progress.stood_ms += interval_ms

    def partitions_to_ask(self) -> Collection[TopicPartition]:
        """Return the partitions whose ends should be asked now: those that have not moved for a
        while.

        With a limit of 30 s those are asked that have not moved for 10 s, and
        again after each 10 s.
        """
        wait_ms = self._limit_ms // ASKS_PER_LIMIT
        partitions: list[TopicPartition] = []
        for partition, progress in self._progress_by_partition.items():
            # How long ago its end was requested. If it was not since the position moved,
            # `unmoved_at_request_ms` is negative and counts as 0: then it is how long ago the
            # position moved.
            since_request_ms = progress.unmoved_ms - max(0, progress.unmoved_at_request_ms)
            if since_request_ms >= wait_ms:
                partitions.append(partition)
        return partitions

    def record_ends(self, answers: OffsetAnswers) -> None:
        """Record the ends of partitions, or why they could not be asked.

        Others stay as they are.
        """
        for partition, progress in self._progress_by_partition.items():
            if partition not in answers.offsets and partition not in answers.troubles:
                continue
            progress.unmoved_at_request_ms = progress.unmoved_ms
            # each partition is in one of the two, see `OffsetAnswers`
            progress.end = answers.offsets.get(partition)
            progress.trouble = answers.troubles.get(partition, "")
            if not progress.is_behind:  # it has read all there is: it does not stand any more
                progress.stood_ms = 0
                if progress.is_reported:
                    self._unreported_recoveries.append(partition)
                progress.stood_at_report_ms = -1

    def standing(self) -> tuple[StandingPartition, ...]:
        """Return the partitions that stand as of the last positions, in the order of their names."""
        now_ms = self._recorded_at_ms or 0
        standing: list[StandingPartition] = []
        for partition, progress in sorted(self._progress_by_partition.items()):
            if progress.is_behind and progress.stood_ms >= self._limit_ms:
                since_ms = now_ms - progress.stood_ms
                standing_partition = StandingPartition(
                    partition,
                    progress.position,
                    since_ms,
                    progress.stood_ms,
                    end=progress.end,
                    why=progress.trouble,
                )
                standing.append(standing_partition)
        return tuple(standing)

    def take_news(self) -> StandingNews:
        """Return what is to be reported now; it counts as reported from now on.

        A partition that stands is reported at once, and every `REPEAT_MS`; one
        that goes on again, once.
        """
        to_report: list[StandingPartition] = []
        for standing_partition in self.standing():
            progress = self._progress_by_partition[standing_partition.partition]
            is_repeat_due = standing_partition.stood_ms - progress.stood_at_report_ms >= REPEAT_MS
            if not progress.is_reported or is_repeat_due:
                progress.stood_at_report_ms = standing_partition.stood_ms
                to_report.append(standing_partition)
        recoveries, self._unreported_recoveries = self._unreported_recoveries, []
        return StandingNews(to_report, recoveries)


class _SeenPosition(NamedTuple):
    """Up to where a late reader has read, and since when (wall time) it is known to stand there."""

    position: int
    since_ms: int


class StandingReaders:
    """Knows which readers stand, from outside: only from the positions up to which they have read;
    pure.

    A reader that has not read what was written long ago stands, or catches
    up. The first call shows no difference: both are called standing. Later
    calls show which position has not moved for as long as the limit.
    """

    def __init__(self, limit_ms: int = STANDS_MS) -> None:
        """Begin; a reader is late if it has not read a record that is older than `limit_ms`."""
        self._limit_ms = limit_ms
        self._began_ms: int | None = None  # wall time of the first call; None before it
        self._seen_by_partition: dict[TopicPartition, _SeenPosition] = {}

    def find_standing(
        self,
        positions: Mapping[TopicPartition, int],
        first_young_offsets: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        now_ms: int,
    ) -> list[StandingPartition]:
        """Record the positions at a wall time (`now_ms`), and return the partitions that stand.

        Those are partitions whose readers are late and have not moved for the limit.

        Args:
            positions: up to where each partition is read.
            first_young_offsets: of each partition the first offset of a record that
                is younger than the limit; missing: unknown, so its reader is
                not late.
            ends: how far each log goes; missing: unknown.
        """
        # a clock that was set back makes this call the first one again
        begins_anew = self._began_ms is None or now_ms < self._began_ms
        if begins_anew:
            self._began_ms = now_ms
        former_seen_by_partition, self._seen_by_partition = self._seen_by_partition, {}
        standing: list[StandingPartition] = []
        for partition, position in sorted(positions.items()):
            # it has read all records older than the limit, or that is unclear: it is not late, and
            # forgotten
            if position >= first_young_offsets.get(partition, position):
                continue
            # UNKNOWN is no position, so a partition that is late for the first time counts as one
            # that has just moved
            seen = former_seen_by_partition.get(partition, _SeenPosition(UNKNOWN, now_ms))
            # where the clock was set back by an hour, it stands from now on:
            # else it would be named an hour later
            since_ms = min(seen.since_ms, now_ms)
            if seen.position != position:
                # At the first call nobody can see whether it moves: it counts as standing for the
                # whole limit. Later it stands from now on at the earliest.
                since_ms = now_ms - self._limit_ms if begins_anew else now_ms
            self._seen_by_partition[partition] = _SeenPosition(position, since_ms)
            stood_ms = now_ms - since_ms
            if stood_ms >= self._limit_ms:
                end = ends.get(partition)
                standing.append(StandingPartition(partition, position, since_ms, stood_ms, end=end))
        return standing


class StandingWatch:
    """Watches the partitions of a reader, and asks for the ends of those that do not move."""

    def __init__(self, log: Log, bound: Bound, limit_ms: int = STANDS_MS) -> None:
        """Begin with no partition; `bound` is how far the reader can read."""
        self._log = log
        self._bound = bound
        self._partitions = StandingPartitions(limit_ms)

    def check_positions(
        self, positions: Mapping[TopicPartition, int], now_ms: int, *, is_drained: bool = True
    ) -> StandingNews:
        """Record positions, ask for the ends that are needed, and return what is to be reported
        now.

        The arguments are those of `StandingPartitions.record_positions`.

        Raises `Unreachable`: Kafka does not answer at all.
        """
        self._partitions.record_positions(positions, now_ms, is_drained=is_drained)
        partitions = self._partitions.partitions_to_ask()
        if partitions:
            self._partitions.record_ends(self._log.bounds(self._bound, partitions))
        return self._partitions.take_news()

    def standing(self) -> tuple[StandingPartition, ...]:
        """Return the partitions that stand as of the last positions."""
        return self._partitions.standing()
