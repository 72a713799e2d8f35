"""What moved a watermark, in words: the record's place, its time, and that in another unit; pure.

Source: docs/design/protocol.md, section 5.2 ("What is too late").
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from acker.config.settings import Input
from acker.identity import input_id_of, is_replay, offset_of, partition_of
from acker.listing import first_of
from acker.units import UNITS_MS, any_time_text
from acker.wire.events import SourceRun
from acker.wire.lateness import Mover
from replay.records.headers import location

_WRONG_UNITS: Final = (("microseconds", 1_000), ("nanoseconds", 1_000_000))
_YEAR_MS: Final = 366 * UNITS_MS["d"]


def mover_text(mover: Mover | None, inputs: Iterable[Input], wall_ms: int) -> str:
    """Name what moved a watermark: the record's place and its time, and what that would be in other units."""
    if mover is None:
        return "a record that is unknown, since it was read before this driver began"
    topics = _topics_of(inputs)
    places = [_place(run, topics) for run in mover.runs]
    record_text = places[0] if mover.record is not None else f"one of {first_of(places, 3, what='runs')}"
    return f"{record_text} (event time {any_time_text(mover.at_ms)}{_unit_hint(mover.at_ms, wall_ms)})"


def mover_record(mover: Mover | None, inputs: Iterable[Input]) -> str:
    """Return the place of the record that moved a watermark; empty: it is not known."""
    if mover is None or mover.record is None:
        return ""
    return _place(mover.record, _topics_of(inputs))


def _topics_of(inputs: Iterable[Input]) -> dict[int, tuple[str, str]]:
    """Return the topic and the replay topic of each input, by its id."""
    return {spec.id: (spec.topic, spec.replay_topic) for spec in inputs}


def _place(run: SourceRun, topics_by_input: dict[int, tuple[str, str]]) -> str:
    """Name the records of a run: ``sentences/0@4``, or ``sentences/0@4 to 6`` for several."""
    source_name = str(run.source)  # in place of a topic that is unknown
    topic, replay_topic = topics_by_input.get(input_id_of(run.source), (source_name, source_name))
    run_topic = replay_topic if is_replay(run.source) else topic
    first_place = location(run_topic, partition_of(run.source), offset_of(run.start))
    return first_place if run.end - run.start == 1 else f"{first_place} to {offset_of(run.end - 1)}"


def _unit_hint(at_ms: int, wall_ms: int) -> str:
    """Return what a time far ahead is in the unit that was mistaken for milliseconds.

    Empty: in none.
    """
    if at_ms < wall_ms + _YEAR_MS:
        return ""
    for unit, factor in _WRONG_UNITS:
        if abs(at_ms // factor - wall_ms) < 10 * _YEAR_MS:
            return f"; as {unit} it is {any_time_text(at_ms // factor)}"
    return ""
