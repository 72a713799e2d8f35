"""The dead letters that a filter means, read into a picture, and what is asked of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from acker.config.settings import Input
from acker.config.topics import Topics
from acker.errors import UsageError
from acker.hot_paths import uncollected
from acker.identity import OFFSET_MAX
from acker.kafka.port import Log, TopicPartition
from acker.notation import EMPTY
from acker.units import UNITS_MS
from acker.untrusted import Untrusted
from replay.handling.letter_box import letter_starts
from replay.records.due import left_out_of, parse_history
from replay.records.letters import Filter
from spout.inspect.dead_letters import filters_of_inputs, inputs_named
from spout.inspect.letter_rows import bytes_field, loss_row, sample_of, stored_moment
from spout.picture.database import Picture, time_column
from spout.picture.loader import PictureLoader, PicturePart
from spout.questions.asking import (
    AnswerRow,
    BoundValues,
    ask_picture,
    limits_of_question,
    name_of_row,
    number_of_row,
    place_of_row,
)

VALUES_MAX: Final = 10
"""How many values of each kind are counted by themselves: those with the most letters."""

LETTERS_BYTES_MAX: Final = 256 << 20
"""The memory of the letters that are read, some hundreds of bytes each; payloads are not kept."""

NAMES: Final = frozenset({"dead", "error", "operator"})
"""Kinds of values that are names, which strangers may have given."""


@dataclass(frozen=True, slots=True)
class LetterPicture:
    """The letters that are meant, in the order in which they died.

    Attributes:
        total: how many there are.
        other_records: how many records of their topics are no letters.
        left_unread: what was not read because of a limit.
    """

    _picture: Picture
    total: int
    other_records: int
    left_unread: Sequence[str]

    def rows(self, rows_max: int = OFFSET_MAX) -> list[dict[str, Any]]:
        """Return letters as rows of `LIST`, of too many the last ones."""
        return self._listed({"rows_max": rows_max, "numbers": None})

    def sample(self) -> list[dict[str, Any]]:
        """Return `SAMPLE` letters as rows of `LIST`, spread evenly over all that are meant."""
        numbers = sample_of(range(1, self.total + 1))
        return self._listed({"rows_max": OFFSET_MAX, "numbers": json.dumps(numbers)})

    def _listed(self, bound: BoundValues) -> list[dict[str, Any]]:
        """Ask for letters as rows of `LIST`.

        `bound` has `rows_max`, and `numbers`: which letters of all, counted from 1; None: any.
        """
        return [_listed_row(row) for row in ask_picture(self._picture, "letter_list", bound)]

    def details(self) -> list[dict[str, Any]]:
        """Return all that is known of letters that were named, and read with `has_details`."""
        return [_detailed_row(row) for row in ask_picture(self._picture, "letter_details", {})]

    @property
    def other_records_text(self) -> str:
        """How many records are no letters, for people; empty: none is."""
        if not self.other_records:
            return ""
        return f"{self.other_records:,} records are no letters of Windhover's and are left alone"

    def counts(self, now_ms: int) -> list[dict[str, Any]]:
        """Count letters by input, cause of death, error, operator, age and key, as rows of `STATS`.

        `now_ms` is wall time.
        """
        bound: BoundValues = {
            "a_minute_ago": time_column(now_ms - UNITS_MS["m"]),
            "an_hour_ago": time_column(now_ms - UNITS_MS["h"]),
            "a_day_ago": time_column(now_ms - UNITS_MS["d"]),
            "a_week_ago": time_column(now_ms - 7 * UNITS_MS["d"]),
            "values_max": VALUES_MAX,
        }
        return [_counted_row(row) for row in ask_picture(self._picture, "letter_counts", bound)]


InputFilters = Sequence[tuple[Input, Filter]]
"""Of each input which of its letters are meant."""

ReadsLetters = Callable[[Log, Topics, InputFilters], AbstractContextManager[LetterPicture]]
"""Reads the letters that are meant, as `letters_read` does."""


def details_of(log: Log, topics: Topics, places: Sequence[str]) -> list[dict[str, Any]]:
    """Read letters by their places or those of their origins, with all their details.

    Raises:
        UsageError: a place cannot be parsed, or there is no letter at any of them.
    """
    filters = filters_of_inputs(inputs_named(topics, ()), places, Filter(handled=True))
    with letters_read(log, topics, filters, has_details=True) as letters:
        details = letters.details()
    if not details:
        place_texts = ", ".join(str(Untrusted(place)) for place in places)
        raise UsageError(f"no dead letter at {place_texts}; see `windhover dlq list --all`")
    return details


@contextmanager
def letters_read(
    log: Log,
    topics: Topics,
    filters: InputFilters,
    *,
    has_details: bool = False,
) -> Iterator[LetterPicture]:
    """Read the letters that are meant, as long as the context lasts.

    Args:
        filters: of each input which of its letters are meant; they differ in their places alone.
        has_details: whether all is read that is known of each, with payloads of any size. Only for
            filters that name places: so they are few.

    Raises what keeps it from any of these letters, such as `TopicError` and `Unreachable`: a part
    of them would be taken for all.
    """
    starts: dict[TopicPartition, int] = {}
    for input, meant in filters:
        starts |= letter_starts(log, input, meant)
    names = [input.name for input, _meant in filters]
    places_by_input = {input.name: meant.places for input, meant in filters}
    limits = limits_of_question(topics, OFFSET_MAX if has_details else LETTERS_BYTES_MAX)
    parts = {PicturePart.LETTERS}
    if has_details:
        parts.add(PicturePart.LETTER_DETAILS)
    with closing(Picture(has_payloads=has_details, has_limits=not has_details)) as picture:
        loader = PictureLoader(
            log,
            topics,
            picture,
            limits=limits,
            input_names=names,
            parts=parts,
            letter_starts=starts,
            letter_places=places_by_input if any(places_by_input.values()) else None,
        )
        with closing(loader), uncollected():
            loader.read_or_raise(now_ms=0)  # nothing that is read here depends on it
        total = choose_letters(picture, filters)
        yield LetterPicture(picture, total, loader.other_letter_records, loader.left_unread)


def choose_letters(picture: Picture, filters: InputFilters) -> int:
    """Choose the letters that filters mean, for all questions that follow; return how many."""
    picture.connection.execute("DROP TABLE IF EXISTS temp.meant")
    ask_picture(picture, "meant_letters", _bound_filters(filters))
    (total,) = picture.connection.execute("SELECT count(*) FROM meant").fetchone()
    return int(total)


def _bound_filters(filters: InputFilters) -> BoundValues:
    """Return filters as the values of the query `meant_letters`; None means any."""
    # filters of inputs differ in their places alone, so all else is read from the first one
    meant = filters[0][1] if filters else Filter()
    places: list[str] = []
    for input, filter_of_input in filters:
        places += [f"{input.name} {place}" for place in filter_of_input.places]
    return {
        "inputs": json.dumps([input.name for input, _meant in filters]),
        "places": json.dumps(places) if meant.places else None,
        "error": meant.error,
        "operator": meant.operator,
        "dead": meant.dead,
        "since": time_column(meant.since_ms),
        "until": time_column(meant.until_ms),
        "has_handled": meant.handled,
        "has_notes": meant.includes_notes,
        "is_of_key": meant.key is not None,
        "key": None if meant.key is None else bytes_field(meant.key.key),
    }


def _listed_row(row: AnswerRow) -> dict[str, Any]:
    """Return a row of an answer as a row of `LIST`."""
    handled = ""
    if row["handled"] is not None:
        by = Untrusted(str(row["handled_by"]))
        handled = f"{row['handled']} {stored_moment(row['handled_at'])} by {by}"
    return {
        "letter": place_of_row(row),
        "input": row["input"],
        "origin": place_of_row(row, "origin_"),
        "died": stored_moment(row["died_at"]),
        "dead": name_of_row(row, "dead"),
        "reason": name_of_row(row, "verdict"),
        "operator": name_of_row(row, "operator"),
        "error": name_of_row(row, "error"),
        "message": row["message"],
        "attempts": row["attempts"],
        "key": row["key"],
        "bytes": row["letter_bytes"],
        "missing": row["missing"],
        "handled": handled,
    }


def _detailed_row(row: AnswerRow) -> dict[str, Any]:
    """Return a row of an answer as a letter with all its details."""
    history = parse_history(str(row["history"]).encode())
    return {
        **_listed_row(row),
        "group": name_of_row(row, "consumer_group"),
        "cause": row["cause"],
        "abandoned": row["abandoned"],
        "timed_out": row["timed_out"],
        "first_emitted": stored_moment(row["first_emitted_at"]),
        "timestamp": stored_moment(row["record_at"]) or row["time_in_no_calendar"],
        "why_handled": row["handled_why"] or "",
        "left_out": left_out_of(history),
        "stack": row["stack"],
        "history": [loss_row(loss) for loss in history],
        "headers": _header_rows(row["headers"]),
        "windhover": _header_rows(row["added_headers"]),
        "payload": row["payload"],
        "payload_bytes": row["payload_bytes"],
    }


def _header_rows(headers_json: str | int | None) -> list[dict[str, str | None]]:
    """Return the JSON of headers as rows of their names and values; no name is an empty text."""
    rows: list[dict[str, str | None]] = json.loads(str(headers_json))
    for row in rows:
        if row["name"] == EMPTY:
            row["name"] = ""
    return rows


def _counted_row(row: AnswerRow) -> dict[str, Any]:
    """Return a row of an answer as a row of `STATS`.

    A row that stands for many values says how many they are, and has no times.
    """
    kind = str(row["kind"])
    value = row["value"]
    first_time, last_time = stored_moment(row["first"]), stored_moment(row["last"])
    other_values = number_of_row(row, "other_values")
    if other_values:
        value, first_time, last_time = f"({other_values:,} others)", "", ""
    elif kind in NAMES:
        value = name_of_row(row, "value")
        if kind == "operator":
            value = value or None
    return {
        "of": kind,
        "value": value,
        "letters": row["letters"],
        "first": first_time,
        "last": last_time,
    }
