"""What a watermark drops, and the record that moved it there; pure, except for the log.

A batch's watermark is the highest event time that Spark had seen at a `withWatermark` some batches before,
less its delay. So each rise is kept with the record that brought it about, and a watermark that drops
something is looked up among them. Where the record itself is unknown (an event time that Spark's own
expressions compute, in a query without `hold`), the positions of its batch are kept.

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
"""Rises of one watermark that are remembered: what is dropped is so by one of the last few, or by one that
lay far ahead, which none has followed."""

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
    """What Spark counted of a batch: rows that it dropped, and each `withWatermark` that saw rows."""

    rows: int = 0
    watermarks: tuple[WatermarkStats, ...] = ()

    def rows_beside(self, held: int) -> int:
        """Return how many rows were dropped beside so many tuples of which `hold` knows it.

        An aggregate drops what its tasks have summed up before, so it counts fewer rows than tuples.
        """
        return max(0, self.rows - held)


NOTHING_DROPPED: Final = Dropped()


class Watermarks:
    """The watermarks of one query, as far as its driver has seen them rise.

    Attributes:
        unsaid_rows: rows that were dropped in batches that had no record to say it by.
    """

    def __init__(self) -> None:
        self.unsaid_rows = 0
        self._highest_ms: dict[tuple[str, str], int] = {}
        self._movers: dict[tuple[str, str], OrderedDict[int, Mover]] = {}

    def rise(self, outcome: BatchOutcome, watermarks: Iterable[WatermarkStats]) -> None:
        """Note what a batch has seen of each watermark."""
        for stats in watermarks:
            place = stats.column, stats.hold
            if stats.highest_ms <= self._highest_ms.get(place, stats.highest_ms - 1):
                continue
            self._highest_ms[place] = stats.highest_ms
            movers = self._movers.setdefault(place, OrderedDict())
            runs = tuple(_runs_of(outcome, stats)[:MOVED_BY_MAX])
            movers[stats.highest_ms - stats.delay_ms] = Mover(stats.highest_ms, runs)
            if len(movers) > RISES_KEPT:
                movers.popitem(last=False)

    def mover(self, watermark_ms: int) -> Mover | None:
        """Return what moved a watermark to where it stands; None: that was before this driver began."""
        candidates = (movers.get(watermark_ms) for movers in self._movers.values())
        return next((mover for mover in candidates if mover is not None and mover.runs), None)


def _runs_of(outcome: BatchOutcome, stats: WatermarkStats) -> Sequence[SourceRun]:
    """Return the record with the highest time of a batch, or the runs in which it lies."""
    if stats.hold:
        held = [time.run for time in outcome.newest if time.name == stats.hold and time.is_held]
        return held or outcome.plan.ranges
    equal = [time for time in outcome.newest if not time.is_held and time.at_ms == stats.highest_ms]
    # a column of the same name is the one, and another one with the very same time most likely is
    equal.sort(key=lambda time: (time.name != stats.column, time.run.end - time.run.start))
    return [equal[0].run] if equal else outcome.plan.ranges


class TooLateLog:
    """Logs what comes too late in the batches of one stream: at once, and then once a minute at most."""

    def __init__(self, now_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000) -> None:
        self._now_ms = now_ms
        self._logged_ms: int | None = None
        self._tuples = 0
        self._rows = 0

    def report(self, group: str, tuples: int, note: LateNote, inputs: Sequence[Input]) -> None:
        """Warn of tuples and rows of a batch, and name what moved the watermark."""
        self._tuples += tuples
        self._rows += note.rows
        now_ms = self._now_ms()
        if self._logged_ms is not None and now_ms - self._logged_ms < WARN_MS:
            return
        self._logged_ms = now_ms
        _LOGGER.warning(
            "too_late group=%s tuples=%d rows=%d watermark=%s moved_by=%s: what ends at the watermark, or"
            " before it, is in no window; keep records like the one that moved it out before withWatermark",
            group,
            self._tuples,
            self._rows,
            any_time_text(note.watermark_ms),
            mover_text(note.mover, inputs, note.wall_ms),
        )
        self._tuples = self._rows = 0
