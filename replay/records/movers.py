"""What moved a watermark, in words: the record's place, its time, and that in another unit; pure.

A *mover* is the event time that moved a query's watermark last, and the record that has it. Where that is not
known, it has the runs of positions among which the record is.

Source: docs/design/protocol.md, section 5.2 ("What is too late").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from acker.config.settings import Input
from acker.identity import offset_of
from acker.listing import first_of
from acker.units import UNITS_MS, any_time_text
from acker.wire.events import SourceRun
from acker.wire.lateness import Mover
from replay.records.places import record_place

_WRONG_UNITS: Final = (("microseconds", 1_000), ("nanoseconds", 1_000_000))
"""Units that are taken for milliseconds by mistake, and how many of each are one millisecond."""

_YEAR_MS: Final = 366 * UNITS_MS["d"]


def mover_text(mover: Mover | None, inputs: Sequence[Input], wall_ms: int) -> str:
    """Name what moved a watermark: the record's place and its time.

    A time that is far ahead of `wall_ms` is named in the unit that it may be in, too.
    """
    if mover is None:
        return "a record that is unknown, since it was read before this driver began"
    if mover.record is not None:
        record_text = _run_text(mover.record, inputs)
    else:
        run_texts = [_run_text(run, inputs) for run in mover.runs]
        record_text = f"one of {first_of(run_texts, 3, what='runs')}"
    time_text = f"{any_time_text(mover.at_ms)}{_unit_hint(mover.at_ms, wall_ms)}"
    return f"{record_text} (event time {time_text})"


def mover_record(mover: Mover | None, inputs: Sequence[Input]) -> str:
    """Return the place of the record that moved a watermark; empty: it is not known."""
    if mover is None or mover.record is None:
        return ""
    return _run_text(mover.record, inputs)


def _run_text(run: SourceRun, inputs: Sequence[Input]) -> str:
    """Name the records of a run: ``sentences/0@4``, or ``sentences/0@4 to 6`` for several."""
    first_place = record_place(run.source, run.start, inputs)
    if run.end - run.start == 1:
        return first_place
    return f"{first_place} to {offset_of(run.end - 1)}"


def _unit_hint(event_time: int, wall_ms: int) -> str:
    """Return a hint if an event time was probably written in another unit than milliseconds.

    So it is if the time is more than a year ahead, and a plausible time in
    microseconds or nanoseconds. Empty: it is not far ahead, or not within ten
    years of `wall_ms` in any of the units.
    """
    if event_time < wall_ms + _YEAR_MS:  # not far ahead
        return ""
    for unit, units_per_millisecond in _WRONG_UNITS:
        time_ms = event_time // units_per_millisecond
        is_of_these_years = abs(time_ms - wall_ms) < 10 * _YEAR_MS
        if is_of_these_years:
            return f"; as {unit} it is {any_time_text(time_ms)}"
    return ""
