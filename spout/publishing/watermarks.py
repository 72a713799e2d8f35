"""What a watermark drops, and the record that moved it there; pure, except for the log.

A batch's watermark is the highest event time that Spark had seen at a `withWatermark` some batches
before, less its delay. So each rise is kept with the record that brought it about, and a watermark
that drops something is looked up among them. Where the record itself is unknown (an event time that
Spark's own expressions compute, in a query without `hold`), the positions of its batch are kept.

A `hold` is the operator (`spout.hold`) that tells which tuples Spark's state holds behind it, and
from which event time on a watermark drops each. A *mover* is the record, or the records among which
it is, that raised a watermark to where it stands.

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

    def rows_without_record(self, tuple_count: int) -> int:
        """Return how many rows were dropped besides the tuples that a `hold` knows of.

        `tuple_count`: how many these are.

        An aggregate drops what its tasks have summed up before, so it counts fewer rows than
        tuples.
        """
        return max(0, self.rows - tuple_count)


NOTHING_DROPPED: Final = Dropped()


class Watermarks:
    """The watermarks of one query, as far as its driver has seen them rise.

    Attributes:
        unpublished_row_count: how many rows were dropped in batches whose acks had no record that
        could say
            so; the next batch with one says it.
    """

    def __init__(self) -> None:
        self.unpublished_row_count = 0
        # Both by (column with the event time, name of the `hold`), which names one watermark of the
        # query: the highest event time,
        self._highest_ms: dict[tuple[str, str], int] = {}
        # and, by the time to which it was moved, what moved it there; the oldest rise first.
        self._movers: dict[tuple[str, str], OrderedDict[int, Mover]] = {}

    def record_rises(self, outcome: BatchOutcome, watermarks: Iterable[WatermarkStats]) -> None:
        """Record each watermark that a batch raises, with what raised it; forget the oldest
        rises."""
        for stats in watermarks:
            watermark = stats.column, stats.hold
            if stats.highest_ms <= self._highest_ms.get(watermark, stats.highest_ms - 1):
                continue
            self._highest_ms[watermark] = stats.highest_ms
            mover_by_watermark_ms = self._movers.setdefault(watermark, OrderedDict())
            runs = tuple(_runs_with_highest(outcome, stats)[:MOVED_BY_MAX])
            watermark_ms = stats.highest_ms - stats.delay_ms
            mover_by_watermark_ms[watermark_ms] = Mover(stats.highest_ms, runs)
            if len(mover_by_watermark_ms) > RISES_KEPT:
                mover_by_watermark_ms.popitem(last=False)  # the oldest

    def mover_to(self, watermark_ms: int) -> Mover | None:
        """Return what moved one of the query's watermarks to this event time, where it stands.

        None: it was moved before this driver began, or nobody knows by which records.
        """
        for mover_by_watermark_ms in self._movers.values():
            mover = mover_by_watermark_ms.get(watermark_ms)
            if mover is not None and mover.runs:
                return mover
        return None


def _runs_with_highest(outcome: BatchOutcome, stats: WatermarkStats) -> Sequence[SourceRun]:
    """Return the run of the record with the highest time of a batch, or the runs in which it lies.

    If nothing is known of it, these are all that the batch read.
    """
    if stats.hold:
        held_runs = [
            highest.run for highest in outcome.highest_times if highest.is_held and highest.name == stats.hold
        ]
        return held_runs or outcome.plan.ranges
    # the columns of read tasks whose highest time is the one that Spark saw
    candidates = [
        highest
        for highest in outcome.highest_times
        if not highest.is_held and highest.at_ms == stats.highest_ms
    ]
    if not candidates:
        return outcome.plan.ranges
    # A column of the same name is the one, and another one with the very same time most likely is.
    # Of several, the shortest run tells most.
    best = min(
        candidates,
        key=lambda highest: (highest.name != stats.column, highest.run.end - highest.run.start),
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
        """Log how much came too late since the last line, and what moved the watermark.

        Within `WARN_MS` of the last line it is only counted.

        Args:
            group: the consumer group.
            tuples: how many tuples were dropped that a `hold` would have held.
            note: the rows besides, and the watermark.
            inputs: the inputs of the stream, by whose names records are named.
        """
        self._unlogged_tuple_count += tuples
        self._unlogged_row_count += note.row_count
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
