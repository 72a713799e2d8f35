"""What a watermark drops, and the record that moved it there; pure, except for the log.

A batch's watermark is the highest event time that Spark had seen at a `withWatermark` some batches
before, less its delay. So each rise is kept with the record that brought it about, and a watermark
that drops something is looked up among them. Where the record itself is unknown (an event time that
Spark's own expressions compute, in a query without `hold`), the positions of its batch are kept.

Source: docs/design/protocol.md, section 5.2 ("What is too late").
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from acker.config.topics import Input
from acker.units import any_time_text
from acker.wire.events import SourceRun
from acker.wire.lateness import MOVED_BY_MAX, Mover
from replay.records.movers import mover_text
from spout.publishing.fold import BatchOutcome, LateNote

RISES_KEPT: Final = 100
"""Rises of one watermark that are remembered: what is dropped is so by one of the last few, or by
one that lay far ahead, which none has followed."""

WARN_MS: Final = 60_000
"""What comes too late is logged this often, and the first time at once."""

_LOGGER = logging.getLogger("windhover.spout")


class WatermarkStats(NamedTuple):
    """What Spark counted at one `withWatermark` in a batch.

    Attributes:
        column: the column with the event time.
        hold: the name of the `hold` before it; empty: there is none.
        delay_ms: how far the watermark stays behind.
        highest_ms: the highest event time of the batch.
    """

    column: str
    hold: str
    delay_ms: int
    highest_ms: int


class Dropped(NamedTuple):
    """What Spark counted in a batch.

    Attributes:
        rows: how many rows it dropped as too late.
        watermarks: of each `withWatermark` that saw rows, what it saw.
    """

    rows: int = 0
    watermarks: tuple[WatermarkStats, ...] = ()

    def rows_beside(self, held: int) -> int:
        """Return how many rows were dropped besides `held` tuples, of which `hold` knows it.

        An aggregate drops what its tasks have summed up before, so it counts fewer rows than
        tuples.
        """
        return max(0, self.rows - held)


NOTHING_DROPPED: Final = Dropped()


class Watermarks:
    """The watermarks of one query, as far as its driver has seen them rise.

    Attributes:
        unsaid_rows: how many rows were dropped in batches that had no record to say it by.
    """

    def __init__(self) -> None:
        self.unsaid_rows = 0
        # both by the column with the event time and the name of the `hold`
        self._highest_ms: dict[tuple[str, str], int] = {}
        self._movers_by_watermark_ms: dict[tuple[str, str], OrderedDict[int, Mover]] = {}

    def rise(self, outcome: BatchOutcome, watermarks: Iterable[WatermarkStats]) -> None:
        """Record each watermark that a batch raises, with what raised it; forget the oldest
        rises."""
        for stats in watermarks:
            place = stats.column, stats.hold
            if stats.highest_ms <= self._highest_ms.get(place, stats.highest_ms - 1):
                continue
            self._highest_ms[place] = stats.highest_ms
            movers = self._movers_by_watermark_ms.setdefault(place, OrderedDict())
            runs = tuple(_runs_of(outcome, stats)[:MOVED_BY_MAX])
            watermark_ms = stats.highest_ms - stats.delay_ms
            movers[watermark_ms] = Mover(stats.highest_ms, runs)
            if len(movers) > RISES_KEPT:
                movers.popitem(last=False)  # the oldest

    def mover(self, watermark_ms: int) -> Mover | None:
        """Return what moved a watermark to where it stands.

        None: it was moved before this driver began, or nobody knows by which records.
        """
        for movers in self._movers_by_watermark_ms.values():
            mover = movers.get(watermark_ms)
            if mover is not None and mover.runs:
                return mover
        return None


def _runs_of(outcome: BatchOutcome, stats: WatermarkStats) -> Sequence[SourceRun]:
    """Return the run of the record with the highest time of a batch, or the runs in which it lies.

    If nothing is known of it, these are all that the batch read.
    """
    if stats.hold:
        held_runs = [time.run for time in outcome.highest_times if time.is_held and time.name == stats.hold]
        return held_runs or outcome.plan.ranges
    column_times = [time for time in outcome.highest_times if not time.is_held]
    equal_times = [time for time in column_times if time.at_ms == stats.highest_ms]
    if not equal_times:
        return outcome.plan.ranges
    # A column of the same name is the one, and another one with the very same time most likely is.
    # Of several, the shortest run tells most.
    best = min(
        equal_times,
        key=lambda time: (time.name != stats.column, time.run.end - time.run.start),
    )
    return [best.run]


class TooLateLog:
    """Logs what comes too late in one stream: at once, and then once in `WARN_MS` at most."""

    def __init__(self, now_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000) -> None:
        self._now_ms = now_ms
        self._logged_at_ms: int | None = None
        self._unlogged_tuple_count = 0
        self._unlogged_row_count = 0

    def report(self, group: str, tuples: int, note: LateNote, inputs: Sequence[Input]) -> None:
        """Log how much of a batch came too late, and what moved the watermark.

        Args:
            group: the consumer group.
            tuples: how many tuples that `hold` would have held.
            note: the rows besides, and the watermark.
            inputs: the inputs of the stream, by whose names records are named.
        """
        self._unlogged_tuple_count += tuples
        self._unlogged_row_count += note.rows
        now_ms = self._now_ms()
        if self._logged_at_ms is not None and now_ms - self._logged_at_ms < WARN_MS:
            return
        self._logged_at_ms = now_ms
        _LOGGER.warning(
            "too_late group=%s tuples=%d rows=%d watermark=%s moved_by=%s: what ends at the watermark, or"
            " before it, is in no window; keep records like the one that moved it out before withWatermark",
            group,
            self._unlogged_tuple_count,
            self._unlogged_row_count,
            any_time_text(note.watermark_ms),
            mover_text(note.mover, inputs, note.wall_ms),
        )
        self._unlogged_tuple_count = 0
        self._unlogged_row_count = 0
