"""Dead letters as the rows that ``windhover dlq`` prints; pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from acker.errors import UsageError
from acker.notation import EMPTY, NULL, cut_shown, parse_bytes, parse_text, show_bytes, show_text
from acker.units import TIME_MS_MAX, TIME_MS_MIN, time_text
from acker.untrusted import Untrusted
from replay.policy.disposition import DeadReason
from replay.records.due import LEFT_OUT, Loss, left_out_count
from spout.inspect.tables import UNKNOWN, Column, Row, count, cut_message, cut_to, span

NO_TIME_MS: Final = -1
"""Kafka's timestamp of a record that has none."""

PREVIEW_CHARACTERS: Final = 1_024
"""For people a payload or the value of a header is shown up to this many characters; JSON has all of it."""

KEY_CHARACTERS_MAX: Final = 4_096
"""A key is given back to find its record, so none is cut that a screen can hold."""

_HEXADECIMAL: Final = re.compile(r"0[xX]((?:[0-9a-fA-F]{2})+)")

SAMPLE: Final = 5
"""How many letters a dry run shows, spread over all that match."""

NO_OPERATOR: Final = "(none)"


def bytes_text(field: str | None, characters_max: int = PREVIEW_CHARACTERS) -> str:
    """Return a `bytes_field` as people see it, cut to so many characters."""
    if field is None:
        return NULL
    return cut_shown(field or EMPTY, characters_max)


def key_text(field: str | None) -> str:
    """Return the `bytes_field` of a key as people see it, and give it back."""
    return bytes_text(field, KEY_CHARACTERS_MAX)


def _absent_key(letter: Row) -> str:
    """Return the text for a key that is None: it is null, or the letter has nothing of its record."""
    return UNKNOWN if letter["missing"] and letter["dead"] != DeadReason.DROPPED else NULL


def field_text(row: Row, name: str) -> str:
    """Return a value of a letter's details, or of a record's story, as people see it.

    Of a record that was read a key and a payload that are None are null; else nobody knows them.
    """
    value = row[name]
    is_of_record = name in ("key", "payload") and (value is not None or row["payload_bytes"] is not None)
    if is_of_record:
        return key_text(value) if name == "key" else bytes_text(value)
    return UNKNOWN if value is None else str(value)


LIST: Final = (
    Column("letter", "letter"),
    Column("origin", "origin"),
    Column("died", "died"),
    Column("dead", "dead"),
    Column("operator", "operator"),
    Column("error", "error"),
    Column("message", "message", cut_message(60)),
    Column("key", "key", key_text, _absent_key),
    Column("bytes", "bytes", count),
    Column("handled", "handled"),
)

HISTORY: Final = (
    Column("attempt", "attempt"),
    Column("emitted", "emitted"),
    Column("root", "root"),
    Column("lost", "reason"),
    Column("after", "age_ms", span),
    Column("operator", "operator"),
    Column("error", "error"),
    Column("message", "message", cut_message(80)),
)

STATS: Final = (
    Column("of", "of"),
    Column("value", "value", key_text, lambda row: NULL if row["of"] == "key" else NO_OPERATOR),
    Column("letters", "letters", count),
    Column("first", "first"),
    Column("last", "last"),
)

REDRIVES: Final = (
    Column("redrive", "redrive"),
    Column("input", "input"),
    Column("begun", "begun"),
    Column("state", "state"),
    Column("by", "by", cut_to(30)),
    Column("letters", "letters", count),
    Column("handled", "handled", count),
    Column("acked", "acked", count, "-"),
    Column("died again", "died", count, "-"),
    Column("open", "open", count, "-"),
    Column("unknown", "not_found", count, "-"),
)


LetterT = TypeVar("LetterT")


def loss_row(loss: Loss) -> dict[str, Any]:
    """Return one lost emission as a row."""
    return {
        "attempt": loss.attempt,
        "emitted": moment(loss.emitted_ms),
        "root": name_field(loss.root),
        "reason": LEFT_OUT if left_out_count(loss) else loss.reason.value,
        # 0: the session's clock did not move meanwhile, so nobody knows how long it took
        "age_ms": loss.age_ms or None,
        "operator": name_field(loss.operator),
        "error": name_field(loss.error),
        "message": loss.message,
    }


def moment(value_ms: int | None) -> str | None:
    """Format a time to the millisecond; None where it is unknown, which is -1 in Kafka's records, too.

    Producers write what they like: where theirs counts in microseconds, it is after all calendars.
    """
    if value_ms is None or value_ms == NO_TIME_MS:
        return None
    if value_ms > TIME_MS_MAX:
        return f"{value_ms} ms after 1970"
    if value_ms < TIME_MS_MIN:
        return f"{-value_ms} ms before 1970"
    text = time_text(value_ms)
    return f"{text[:-4]}Z" if "." in text else text  # the last three digits are below a millisecond


def stored_moment(column_value: str | int | None) -> str | None:
    """Format the value of a column of times in a picture as `moment` does; None: the row has no time.

    >>> stored_moment("2026-07-01 00:00:00.987"), stored_moment("2026-07-01 00:00:00.000")
    ('2026-07-01T00:00:00.987Z', '2026-07-01T00:00:00Z')
    """
    if column_value is None:
        return None
    return f"{str(column_value).replace(' ', 'T').removesuffix('.000')}Z"


def name_field(name: str) -> str:
    """Return a name as a row has it: in the notation, but none as an empty text."""
    return show_text(name) if name else ""


def bytes_field(value: bytes | None) -> str | None:
    """Return bytes as a row has them: in the notation, but null as None, and no bytes as an empty text."""
    if value is None:
        return None
    return show_bytes(value) if value else ""


def parse_key(text: str, option: str = "") -> bytes | None:
    """Parse a key in the notation of `acker.notation`; None is the key null.

    Raises:
        UsageError: it is not in the notation; the message has `option` before the word.
    """
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise UsageError(f"{option}key {Untrusted(text)}: {error}") from error


def parse_name(text: str, option: str) -> str:
    """Parse the name of an operator or error in the notation; `UsageError` names `option`."""
    try:
        return parse_text(text)
    except ValueError as error:
        raise UsageError(f"{option} {Untrusted(text)}: {error}") from error


def hexadecimal_note(key: str | None) -> list[str]:
    """Return how bytes are given, where nothing has a key that was written as ``0x…``; else nothing."""
    digits = _HEXADECIMAL.fullmatch(key or "")
    if digits is None:
        return []
    escapes = "".join(f"%{byte:02X}" for byte in bytes.fromhex(digits[1]))
    return [f"key {key} is that text; bytes that are no text are given as {escapes}"]


def sample_of(letters: Sequence[LetterT]) -> list[LetterT]:
    """Return `SAMPLE` letters, spread evenly, the first and the last among them; of few all."""
    if len(letters) <= SAMPLE:
        return list(letters)
    # of 9 letters those at 0, 2, 4, 6 and 8
    return [letters[number * (len(letters) - 1) // (SAMPLE - 1)] for number in range(SAMPLE)]
