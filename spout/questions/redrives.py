"""Redrives as a picture has them, and what became of their letters until now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from acker.config.settings import Input
from acker.config.topics import Topics
from acker.errors import UsageError
from acker.hot_paths import uncollected
from acker.kafka.port import Log, TopicPartition
from acker.untrusted import Untrusted
from replay.handling.outcomes import audit_start
from spout.inspect.dead_letters import inputs_named
from spout.inspect.letter_rows import parse_name, stored_moment
from spout.picture.database import Picture
from spout.picture.loader import PictureLoader, PicturePart
from spout.questions.asking import (
    AnswerRow,
    ask_picture,
    limits_of_question,
    name_of_row,
    place_of_row,
)


def redrive_rows(
    log: Log, topics: Topics, inputs: Sequence[Input], since_ms: int = 0
) -> list[dict[str, Any]]:
    """Read the redrives of inputs that began at `since_ms` (wall time) or later, the oldest first.

    They are rows of `REDRIVES`. Raises what keeps it from any of them, such as `TopicError` and
    `Unreachable`.
    """
    with _redrives_read(log, topics, inputs, since_ms, redrive=None) as picture:
        return _rows_of(picture, redrive=None)


def redrive_details(log: Log, topics: Topics, redrive: str) -> list[dict[str, Any]]:
    """Read one redrive: a row for each of its inputs, with what became of letters as `outcomes`.

    Args:
        redrive: its id in the notation, as the rows show it.

    Raises:
        UsageError: there is no such redrive.
    """
    redrive_id = parse_name(redrive, "redrive")
    with _redrives_read(log, topics, inputs_named(topics, ()), 0, redrive_id) as picture:
        rows = _rows_of(picture, redrive_id)
        letter_rows = ask_picture(picture, "outcome_list", {"redrive": redrive_id})
    if not rows:
        raise UsageError(f"there is no redrive {Untrusted(redrive)}; see `windhover dlq redrives`")
    for row in rows:
        row["outcomes"] = [
            {"letter": place_of_row(letter), "outcome": letter["outcome"]}
            for letter in letter_rows
            if letter["input"] == row["input"]
        ]
    return rows


@contextmanager
def _redrives_read(
    log: Log, topics: Topics, inputs: Sequence[Input], since_ms: int, redrive: str | None
) -> Iterator[Picture]:
    """Read the redrives of inputs since a time into a picture, as long as the context lasts.

    Of `redrive` alone the letters are followed; None: of all.
    """
    starts: dict[TopicPartition, int] = {}
    for input in inputs:
        audits = audit_start(log, input, since_ms)
        starts[audits.partition] = audits.offset
    with closing(Picture(has_payloads=False)) as picture:
        loader = PictureLoader(
            log,
            topics,
            picture,
            limits=limits_of_question(topics),
            input_names=[input.name for input in inputs],
            parts={PicturePart.OUTCOMES},
            letter_starts=starts,
            followed_redrive=redrive,
        )
        with closing(loader), uncollected():
            loader.read_or_raise(now_ms=0)  # nothing that is read here depends on it
        yield picture


def _rows_of(picture: Picture, redrive: str | None) -> list[dict[str, Any]]:
    """Return the redrives of a picture as rows of `REDRIVES`: that of an id, or all for None."""
    return [_redrive_row(row) for row in ask_picture(picture, "redrive_list", {"redrive": redrive})]


def _redrive_row(row: AnswerRow) -> dict[str, Any]:
    """Return a row of an answer as a row of `REDRIVES`."""
    has_ended = row["ended_by"] is not None
    return {
        "redrive": name_of_row(row, "redrive"),
        "input": row["input"],
        "action": name_of_row(row, "action"),
        "state": name_of_row(row, "state"),
        "by": row["begun_by"],
        "why": row["why"],
        "filter": row["which"],
        "letters": row["letters"],
        "handled": row["handled"],
        "acked": row["acked"],
        "died": row["died"],
        "open": row["open"],
        "not_found": row["not_found"],
        "begun": stored_moment(row["begun_at"]),
        "ended": stored_moment(row["ended_at"]) if has_ended else "",
        "ended_by": row["ended_by"] if has_ended else "",
    }
