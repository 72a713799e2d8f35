"""Dead letters as the rows that ``windhover dlq`` prints; pure."""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from acker.errors import UsageError
from acker.kafka.port import Record
from acker.units import TIME_MS_MAX, TIME_MS_MIN, time_text
from replay.handling.outcomes import LetterOutcome, RedriveOutcomes, RedriveRecord
from replay.records.dead_letter import OUR_PREFIXES
from replay.records.due import LEFT_OUT, Loss, left_out_by, left_out_of
from replay.records.headers import parted_headers
from replay.records.letters import Letter, LetterAction
from spout.inspect.tables import Column, count, cut_message, cut_to, span

NO_TIME_MS: Final = -1
"""Kafka's timestamp of a record that has none."""

PREVIEW_BYTES: Final = 1_024
"""A payload or the value of a header is shown up to this many bytes."""

TOP: Final = 10
"""How many operators, errors and keys the statistics show: those with the most letters."""

SAMPLE: Final = 5
"""How many letters a dry run shows, spread over all that it found."""

_AGES_MS: Final = (
    ("below 1 min", 60_000),
    ("below 1 h", 3_600_000),
    ("below 1 d", 86_400_000),
    ("below 7 d", 604_800_000),
)
_OLDER: Final = "7 d or more"

LIST: Final = (
    Column("letter", "letter"),
    Column("origin", "origin"),
    Column("died", "died"),
    Column("dead", "dead"),
    Column("operator", "operator", cut_to(30)),
    Column("error", "error", cut_to(40)),
    Column("message", "message", cut_message(60)),
    Column("key", "key", cut_to(30)),
    Column("bytes", "bytes", count),
    Column("handled", "handled"),
)

HISTORY: Final = (
    Column("attempt", "attempt"),
    Column("emitted", "emitted"),
    Column("root", "root"),
    Column("lost", "reason"),
    Column("after", "age_ms", span),
    Column("operator", "operator", cut_to(30)),
    Column("error", "error", cut_to(40)),
    Column("message", "message", cut_message(80)),
)

STATS: Final = (
    Column("of", "of"),
    Column("value", "value", cut_to(60)),
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


class FoundLetter(NamedTuple):
    """A letter, and the name of its input."""

    input: str
    letter: Letter


def letter_row(found: FoundLetter) -> dict[str, Any]:
    """Return a letter as a row of the list."""
    letter, mark = found.letter, found.letter.mark
    return {
        "letter": letter.place,
        "input": found.input,
        "origin": letter.lineage.origin,
        "died": moment(letter.died_ms),
        "dead": letter.dead,
        "reason": letter.lineage.reason,
        "operator": letter.lineage.operator,
        "error": letter.error,
        "message": letter.history[-1].message if letter.history else letter.lineage.cause,
        "attempts": letter.lineage.attempt,
        "key": bytes_text(letter.key),
        "bytes": letter.bytes,
        "missing": letter.missing,
        "handled": f"{mark.action} {moment(mark.at_ms)} by {mark.by}" if mark else "",
    }


def letter_details(found: FoundLetter, record: Record) -> dict[str, Any]:
    """Return a letter with all its details."""
    letter, mark = found.letter, found.letter.mark
    own, ours = parted_headers(record.headers, OUR_PREFIXES)
    return {
        **letter_row(found),
        "group": letter.group,
        "cause": letter.lineage.cause,
        "abandoned": letter.lineage.abandoned,
        "timed_out": letter.lineage.timed_out,
        "first_emitted": moment(letter.lineage.first_emitted_ms),
        "timestamp": None if letter.time is None else moment(letter.time.ms),
        "why_handled": mark.why if mark else "",
        "left_out": left_out_of(letter.history),
        "history": [loss_row(loss) for loss in letter.history],
        "headers": _header_rows(own),
        "windhover": _header_rows(ours),
        "payload": None if letter.missing else bytes_text(record.value),
        "payload_bytes": None if letter.missing else len(record.value or b""),
    }


def redrive_row(name: str, one: RedriveRecord, outcomes: RedriveOutcomes) -> dict[str, Any]:
    """Return a redrive of an input as a row; it has no outcomes where letters were dropped."""
    begun, ended = one.begun, one.ended
    found = outcomes.letters(begun.redrive)
    is_replay = begun.action == LetterAction.REPLAYED
    counted = Counter(found.values()) if is_replay else Counter[LetterOutcome]()
    gone = counted[LetterOutcome.GONE] + counted[LetterOutcome.UNKNOWN]
    figures = (counted[LetterOutcome.ACKED], counted[LetterOutcome.DIED], counted[LetterOutcome.OPEN], gone)
    acked, died, open_, not_found = figures if is_replay else (None,) * len(figures)
    return {
        "redrive": begun.redrive, "input": name, "action": begun.action, "state": one.state, "by": begun.by,
        "why": begun.why, "filter": begun.which, "letters": begun.letters,
        "handled": outcomes.handled(begun.redrive), "acked": acked, "died": died, "open": open_,
        "not_found": not_found, "begun": moment(begun.at_ms), "ended": moment(ended.at_ms) if ended else "",
        "ended_by": ended.by if ended else "",
    }  # fmt: skip


def loss_row(loss: Loss) -> dict[str, Any]:
    """Return one lost emission as a row."""
    return {
        "attempt": loss.attempt,
        "emitted": moment(loss.emitted_ms),
        "root": loss.root,
        "reason": LEFT_OUT if left_out_by(loss) else loss.reason.value,
        "age_ms": loss.age_ms,
        "operator": loss.operator,
        "error": loss.error,
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


def bytes_text(value: bytes | None) -> str:
    """Format bytes: as text if they are UTF-8, else as ``0x`` and hexadecimal digits; a long value is cut."""
    if value is None:
        return "null"
    head = value[:PREVIEW_BYTES]
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(head, final=len(value) <= PREVIEW_BYTES)  # the cut may have split a character
    except UnicodeDecodeError:
        text = f"0x{head.hex()}"
    return text if len(value) <= PREVIEW_BYTES else f"{text}… ({len(value):,} bytes)"


def parse_key(text: str, option: str = "") -> bytes:
    """Parse a key in the format of `bytes_text`; `UsageError`: behind ``0x`` come no hexadecimal digits.

    A text may begin with ``0x`` as well: `other_key` has that.
    """
    try:
        return bytes.fromhex(text[2:]) if text.startswith("0x") else text.encode()
    except ValueError as error:
        raise UsageError(f"{option}key {text}: is no hexadecimal number; give text, or 0x6b6579") from error


def other_key(text: str) -> bytes | None:
    """Return the key that is itself such a text, as addresses are; None if it does not begin with ``0x``."""
    return text.encode() if text.startswith("0x") else None


def sample_of(found: Sequence[FoundLetter]) -> list[FoundLetter]:
    """Return letters spread evenly over those that were found, the first and the last among them."""
    if len(found) <= SAMPLE:
        return list(found)
    return [found[number * (len(found) - 1) // (SAMPLE - 1)] for number in range(SAMPLE)]


def stats_of(found: Sequence[FoundLetter], now_ms: int) -> list[dict[str, Any]]:
    """Count letters by input, cause of death, error, operator, age and key."""

    def age(one: FoundLetter) -> str:
        age_ms = now_ms - one.letter.died_ms
        return next((name for name, limit_ms in _AGES_MS if age_ms < limit_ms), _OLDER)

    dimensions: tuple[tuple[str, Callable[[FoundLetter], str]], ...] = (
        ("input", lambda one: one.input),
        ("dead", lambda one: one.letter.dead),
        ("error", lambda one: one.letter.error),
        ("operator", lambda one: one.letter.lineage.operator or "(none)"),
        ("age", age),
        ("handled", lambda one: one.letter.mark.action.value if one.letter.mark else "no"),
        ("key", lambda one: bytes_text(one.letter.key)),
    )
    return [row for name, of in dimensions for row in _counted(name, of, found)]


def _counted(
    name: str, of: Callable[[FoundLetter], str], found: Iterable[FoundLetter]
) -> Iterator[dict[str, Any]]:
    died: dict[str, list[int]] = {}
    for one in found:
        died.setdefault(of(one), []).append(one.letter.died_ms)
    largest = Counter({value: len(times) for value, times in died.items()}).most_common(TOP)
    for value, letters in largest:
        times = died[value]
        first, last = moment(min(times)), moment(max(times))
        yield {"of": name, "value": value, "letters": letters, "first": first, "last": last}
    rest = sum(map(len, died.values())) - sum(letters for _, letters in largest)
    if rest:
        yield {"of": name, "value": f"({len(died) - TOP:,} others)", "letters": rest, "first": "", "last": ""}


def _header_rows(headers: Iterable[tuple[str, bytes | None]]) -> list[dict[str, str]]:
    return [{"name": name, "value": bytes_text(value)} for name, value in headers]
