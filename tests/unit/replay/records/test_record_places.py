"""The places of records in words: of roots, and of what moved a watermark."""

from __future__ import annotations

import pytest

from acker.config.settings import Input
from acker.identity import position_at, source_of
from acker.units import UNITS_MS, any_time_text
from acker.wire.events import SourceRun
from acker.wire.lateness import Mover
from replay.records.movers import mover_record, mover_text
from replay.records.places import PLACES_MAX, record_place, run_places

INPUTS = tuple(
    Input(name=name, id=number, group="g", topic=name) for number, name in ((1, "sentences"), (2, "words"))
)
WALL_MS = 1_800_000_000_000
YEAR_MS = 366 * UNITS_MS["d"]
FIRST_NEAR_MS, LAST_NEAR_MS = WALL_MS - 10 * YEAR_MS + 1, WALL_MS + 10 * YEAR_MS - 1


def run_of(
    first: int, last: int, *, input_id: int = 1, partition: int = 0, replay: bool = False
) -> SourceRun:
    """Make a run from the first offset to the last one, in generation 2."""
    source = source_of(input_id, partition, replay=replay)
    return SourceRun(source, position_at(2, first), position_at(2, last) + 1)


@pytest.mark.parametrize(
    ("run", "place"),
    [
        (run_of(4, 4), "sentences/0@4"),
        (run_of(0, 0, partition=3), "sentences/3@0"),
        (run_of(4, 4, input_id=2), "words/0@4"),
        (run_of(4, 4, replay=True), f"{INPUTS[0].replay_topic}/0@4"),
        (run_of(4, 4, input_id=2, replay=True), f"{INPUTS[1].replay_topic}/0@4"),
        (run_of(4, 4, input_id=9, partition=5), f"{source_of(9, 5)}/5@4"),
    ],
)
def test_a_record_is_named_by_its_own_topic_and_that_of_a_strange_input_by_its_number(
    run: SourceRun, place: str
) -> None:
    """The topic of copies for a copy, of each input."""
    assert INPUTS[0].replay_topic != INPUTS[0].topic
    assert record_place(run.source, run.start, INPUTS) == place
    assert run_places([run], INPUTS) == place
    mover = Mover(WALL_MS, (run,))
    if not place.startswith("sentences"):
        assert mover_record(mover, INPUTS[:1]).endswith(place.split("/")[1])
    assert mover_record(mover, INPUTS) == place
    assert mover_text(mover, INPUTS, WALL_MS) == f"{place} (event time {any_time_text(WALL_MS)})"


@pytest.mark.parametrize(
    ("last", "text"), [(4, "sentences/0@4"), (5, "sentences/0@4-5"), (9, "sentences/0@4-9")]
)
def test_a_run_is_named_by_its_first_and_its_last_record(last: int, text: str) -> None:
    assert run_places([run_of(4, last)], INPUTS) == text


@pytest.mark.parametrize("count", [0, 1, PLACES_MAX - 1, PLACES_MAX, PLACES_MAX + 1, 3 * PLACES_MAX])
def test_as_many_runs_are_named_as_one_can_read(count: int) -> None:
    runs = [run_of(10 * number, 10 * number) for number in range(count)]
    places = [f"sentences/0@{10 * number}" for number in range(min(count, PLACES_MAX))]
    more = ["..."] if count > PLACES_MAX else []
    assert run_places(runs, INPUTS) == (", ".join([*places, *more]) if count else "none")


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_a_mover_of_which_only_the_runs_are_known_is_one_of_them(count: int) -> None:
    mover = Mover(WALL_MS, tuple(run_of(10 * number, 10 * number + 1) for number in range(count)))
    named = ", ".join(f"sentences/0@{10 * number} to {10 * number + 1}" for number in range(min(count, 3)))
    more = f", and {count - 3} more runs" if count > 3 else ""
    assert mover_text(mover, INPUTS, WALL_MS) == f"one of {named}{more} (event time {any_time_text(WALL_MS)})"
    assert mover_record(mover, INPUTS) == ""


def test_a_mover_that_nobody_remembers_is_unknown() -> None:
    assert mover_text(None, INPUTS, WALL_MS).startswith("a record that is unknown")
    assert mover_record(None, INPUTS) == ""


@pytest.mark.parametrize(
    ("at_ms", "hint"),
    [
        (WALL_MS, ""),
        (WALL_MS + YEAR_MS - 1, ""),
        (WALL_MS + YEAR_MS, ""),  # a time of next year is no other unit
        (WALL_MS // 1_000, ""),
        (1_000 * WALL_MS, f"; as microseconds it is {any_time_text(WALL_MS)}"),
        (1_000_000 * WALL_MS, f"; as nanoseconds it is {any_time_text(WALL_MS)}"),
        (1_000 * LAST_NEAR_MS, f"; as microseconds it is {any_time_text(LAST_NEAR_MS)}"),
        (1_000 * FIRST_NEAR_MS, f"; as microseconds it is {any_time_text(FIRST_NEAR_MS)}"),
        (1_000 * (WALL_MS + 10 * YEAR_MS), ""),
        (1_000 * (WALL_MS - 10 * YEAR_MS), ""),
    ],
)  # fmt: skip
def test_a_time_far_ahead_is_told_in_the_unit_that_somebody_may_have_meant(at_ms: int, hint: str) -> None:
    """If that makes it a time within ten years of now, before or behind."""
    text = mover_text(Mover(at_ms, (run_of(4, 4),)), INPUTS, WALL_MS)
    assert text == f"sentences/0@4 (event time {any_time_text(at_ms)}{hint})"


@pytest.mark.parametrize("wall_ms", [0, 5_000])
def test_a_clock_that_stands_at_the_beginning_takes_no_small_time_for_another_unit(wall_ms: int) -> None:
    """A time that is less than a year ahead has no hint, though it would be near in any unit."""
    text = mover_text(Mover(wall_ms + YEAR_MS - 1, (run_of(4, 4),)), INPUTS, wall_ms)
    assert "; as" not in text
    ahead = mover_text(Mover(wall_ms + YEAR_MS, (run_of(4, 4),)), INPUTS, wall_ms)
    assert "; as microseconds it is" in ahead
