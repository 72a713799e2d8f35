"""The dead letters of inputs as a picture in memory, and what ``windhover dlq`` asks of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from acker.config.settings import Input
from acker.config.topics import Topics
from acker.hot_paths import uncollected
from acker.identity import OFFSET_MAX
from acker.kafka.port import Log
from acker.units import UNITS_MS
from replay.handling.letter_box import letter_places
from replay.records.letters import Filter
from spout.inspect.letter_rows import bytes_field, name_field, stored_moment
from spout.picture.database import Picture, time_column
from spout.picture.loader import PictureLoader, PicturePart
from spout.picture.reading import Limits
from spout.questions.asking import AnswerRow, BoundValues, ask_picture

VALUES_MAX: Final = 10
"""How many values of each kind are counted by themselves: those with the most letters."""

LETTERS_BYTES_MAX: Final = 256 << 20
"""The memory of the letters that are counted, some hundreds of bytes each; payloads are not kept."""

READ_MS_MAX: Final = 3_600_000
"""Nobody waits longer for an answer."""

NAMES: Final = frozenset({"dead", "error", "operator"})
"""Kinds of values that are names, which strangers may have given."""


class LetterCounts(NamedTuple):
    """How many letters are meant.

    Attributes:
        rows: by kind and value, as rows of `STATS`.
        total: all that are meant.
    """

    rows: Sequence[Mapping[str, Any]]
    total: int


@dataclass(frozen=True, slots=True)
class LetterPicture:
    """The letters of some inputs.

    Attributes:
        other_records: how many records of their topics are no letters.
        cuts: what was not read because of a limit.
    """

    _picture: Picture
    _input_names: Sequence[str]
    other_records: int
    cuts: Sequence[str]

    def counts(self, meant: Filter, now_ms: int) -> LetterCounts:
        """Count letters by input, cause of death, error, operator, age and key; `now_ms` is wall time."""
        bound = {
            **_bound_filter(meant),
            **_bound_ages(now_ms),
            "inputs": json.dumps(self._input_names),
            "values_max": VALUES_MAX,
        }
        answer_rows = ask_picture(self._picture, "letter_counts", bound)
        # each letter has one input
        total = sum(_number(row["letters"]) for row in answer_rows if row["kind"] == "input")
        return LetterCounts([_counted_row(row) for row in answer_rows], total)


@contextmanager
def letters_read(
    log: Log, topics: Topics, inputs: Sequence[Input], since_ms: int | None, passed_ms: Callable[[], int]
) -> Iterator[LetterPicture]:
    """Read the dead-letter topics of inputs, from a wall time on; None: from their beginnings.

    Args:
        passed_ms: returns the time that passes.

    Raises what keeps it from any of their letters, such as `TopicError` and `Unreachable`: numbers of a
    part of them would be taken for those of all.
    """
    # it waits for partitions that are without a leader for a moment, which no picture does
    log.starts([place for input in inputs for place in letter_places(log, input)])
    limits = Limits(OFFSET_MAX, READ_MS_MAX, since_ms, LETTERS_BYTES_MAX)
    names = [input.name for input in inputs]
    with closing(Picture(has_payloads=False)) as picture:
        loader = PictureLoader(
            log, topics, picture, passed_ms, limits=limits, input_names=names, parts={PicturePart.LETTERS}
        )
        with closing(loader):
            with uncollected():
                loader.read(now_ms=0)  # nothing that is read here depends on it
            if loader.errors:
                raise loader.errors[0]
            yield LetterPicture(picture, names, loader.other_letter_records, loader.cuts)


def _bound_filter(meant: Filter) -> BoundValues:
    """Return a filter as the values of a query; None means any."""
    return {
        "error": meant.error,
        "operator": meant.operator,
        "dead": meant.dead,
        "since": time_column(meant.since_ms),
        "until": time_column(meant.until_ms),
        "has_handled": meant.handled,
        "is_of_key": meant.key is not None,
        "key": None if meant.key is None else bytes_field(meant.key.key),
    }


def _bound_ages(now_ms: int) -> BoundValues:
    """Return the times before which letters of the ages in the statistics died."""
    return {
        "a_minute_ago": time_column(now_ms - UNITS_MS["m"]),
        "an_hour_ago": time_column(now_ms - UNITS_MS["h"]),
        "a_day_ago": time_column(now_ms - UNITS_MS["d"]),
        "a_week_ago": time_column(now_ms - 7 * UNITS_MS["d"]),
    }


def _counted_row(row: AnswerRow) -> dict[str, Any]:
    """Return a row of an answer as a row of `STATS`; one of many values has no times."""
    kind = str(row["kind"])
    value = row["value"]
    first, last = stored_moment(row["first"]), stored_moment(row["last"])
    other_values = _number(row["other_values"])
    if other_values:
        value, first, last = f"({other_values:,} others)", "", ""
    elif kind in NAMES:
        value = name_field(str(value))
        if kind == "operator":
            value = value or None
    return {"of": kind, "value": value, "letters": row["letters"], "first": first, "last": last}


def _number(value: str | int | None) -> int:
    """Return a number of an answer."""
    return value if isinstance(value, int) else 0
