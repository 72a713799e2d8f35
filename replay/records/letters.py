"""What a dead-letter topic holds: letters, and the marks of those that were handled.

A letter is handled once somebody had it emitted again, or gave it up for good. A dead-letter topic
is not compacted, so the mark is a further record of the same partition, with neither key nor value.
It is written in the transaction that writes the copy.

==========================  ===================================================================
windhover.handled           ``REPLAYED`` or ``DROPPED``
windhover.letter            ``topic/partition@offset`` of the letter; it stands on the copy as well
windhover.by                who did it
windhover.why               for what reason, as they gave it
windhover.redrive           the id of the redrive that did it; on the copy as well
==========================  ===================================================================

What is neither of the two was written by somebody else, and is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple

from acker.kafka.port import Headers, Outgoing, Record, record_bytes
from acker.notation import show_bytes, show_text
from acker.units import time_text
from acker.wire.causes import clipped
from replay.policy.disposition import DeadReason
from replay.records.dead_letter import DEAD, KIP_PREFIX, MISSING, OUR_PREFIXES
from replay.records.due import Loss, history_json, parse_history, parse_last_loss
from replay.records.headers import (
    CAUSE_BYTES_MAX,
    HISTORY,
    Lineage,
    build_headers,
    header_text,
    joined_headers,
    lineage_of,
    parse_location,
    parted_headers,
    plain_headers,
)
from replay.records.record_time import RecordTime, WrittenTime, parse_record_time, written_time
from replay.records.redrives import REDRIVE

HANDLED: Final = "windhover.handled"
LETTER: Final = "windhover.letter"
BY: Final = "windhover.by"
WHY: Final = "windhover.why"


class LetterAction(StrEnum):
    """What was done with a letter."""

    REPLAYED = "REPLAYED"
    DROPPED = "DROPPED"


@dataclass(frozen=True, slots=True)
class Mark:
    """That the letter at ``topic/partition@offset`` was handled.

    `why` may be empty, and so is `redrive`, its id, where an older version wrote it; `at_ms` is wall time.
    """

    letter: str
    action: LetterAction
    by: str
    why: str
    at_ms: int
    redrive: str = ""


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter without its payload.

    Attributes:
        place: ``topic/partition@offset`` of the letter.
        dead: why it was given up, a `DeadReason` or one of a later version.
        lineage: of the last attempt.
        time: of the record when it was first emitted; None if the letter does not say.
        bytes: what the letter takes in its topic.
        missing: why there is no payload; empty if there is.
    """

    place: str
    partition: int
    offset: int
    dead: str
    group: str
    lineage: Lineage
    history: tuple[Loss, ...]
    died_ms: int
    time: RecordTime | None
    key: bytes | None
    bytes: int
    missing: str
    mark: Mark | None = None

    @property
    def error(self) -> str:
        """The class of the last error; if there was none, why the last emission was lost."""
        return (self.history[-1].error if self.history else "") or self.lineage.reason

    @property
    def is_note(self) -> bool:
        """Whether it only says that a rule dropped the record; nobody has to handle it."""
        return self.dead == DeadReason.DROPPED

    @property
    def has_key(self) -> bool:
        """Whether `key` is that of the record; of a record that could not be read there is none."""
        return self.key is not None or self.is_note or not self.missing

    @property
    def origin_partition(self) -> int:
        """The partition of the record's first emission.

        It is that of the letter if its origin is unknown.
        """
        location = parse_location(self.lineage.origin)
        return self.partition if location is None else location.partition


class KeyIs(NamedTuple):
    """That a record has this key; None is the key null."""

    key: bytes | None


@dataclass(frozen=True, slots=True)
class Filter:
    """Which letters are meant; what is None or empty does not matter.

    Notes about records that a rule dropped are meant only if their place or their reason is named, or if
    handled letters or `notes` are meant, too.

    Attributes:
        places: letters by their own place, or by their origin.
        error: the last error's class, or a reason such as ``TIMED_OUT`` where there was no error.
        operator: who failed it last.
        since_ms: given up at this wall time or later; `until_ms`: before it.
        handled: also letters that were handled before.
        notes: also the notes, to count them.
    """

    places: frozenset[str] = frozenset()
    error: str | None = None
    operator: str | None = None
    dead: str | None = None
    key: KeyIs | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    handled: bool = False
    notes: bool = False

    def matches(self, letter: Letter) -> bool:
        """Return whether a letter fulfils all conditions of the filter.

        `handled` is not among them: a mark on the letter comes later in the
        log, so the caller decides about it.
        """
        # a note only shows that a rule dropped the record
        if letter.is_note and not self.includes_notes:
            return False
        places_of_letter = (letter.place, letter.lineage.origin)
        # a condition that is None or empty matches each letter
        return (
            (not self.places or not self.places.isdisjoint(places_of_letter))
            and self.error in (None, letter.error)
            and self.operator in (None, letter.lineage.operator)
            and self.dead in (None, letter.dead)
            and (self.key is None or (letter.has_key and self.key.key == letter.key))
            and (self.since_ms is None or letter.died_ms >= self.since_ms)
            and (self.until_ms is None or letter.died_ms < self.until_ms)
        )

    @property
    def includes_notes(self) -> bool:
        """Whether notes are meant, too: somebody asks for them in one of four ways."""
        if self.notes or self.handled or self.places:
            return True
        return self.dead == DeadReason.DROPPED

    def __str__(self) -> str:
        """Return the conditions as a text: ``error ValueError; since 12:00``, or ``all``."""
        texts = [
            f"places {', '.join(sorted(self.places))}" if self.places else "",
            f"error {show_text(self.error)}" if self.error is not None else "",
            f"operator {show_text(self.operator)}" if self.operator is not None else "",
            f"dead {self.dead}" if self.dead is not None else "",
            f"key {show_bytes(self.key.key)}" if self.key is not None else "",
            f"since {time_text(self.since_ms)}" if self.since_ms is not None else "",
            f"until {time_text(self.until_ms)}" if self.until_ms is not None else "",
            "handled ones too" if self.handled else "",
        ]
        return "; ".join(text for text in texts if text) or "all"

    @property
    def is_everything(self) -> bool:
        """Whether nothing is left out but what was handled."""
        return self in (Filter(), Filter(handled=True))


def parse_letter(record: Record, *, last_loss_only: bool = False) -> Letter | Mark | None:
    """Read a record of a dead-letter topic; None: it is neither letter nor mark.

    Headers that came with the record are passed over: it may have been a letter, or a mark, of another
    input. With `last_loss_only` the history of a letter has no more than its last loss: to read all
    of it takes up to half of the time.
    """
    our_headers = parted_headers(record.headers, OUR_PREFIXES).added
    ours = {name: value for name, value in our_headers if value is not None}
    if HANDLED in ours:
        return _parse_mark(record, ours)
    if DEAD not in ours:  # somebody else wrote it
        return None
    place = record.place
    parse_losses = parse_last_loss if last_loss_only else parse_history
    return Letter(
        place=place,
        partition=record.partition,
        offset=record.offset,
        dead=header_text(ours[DEAD]),
        group=header_text(ours.get(f"{KIP_PREFIX}group")),
        lineage=lineage_of(ours, record.topic, record.partition, record.offset),
        history=parse_losses(ours.get(HISTORY)),
        died_ms=record.timestamp_ms,
        time=parse_record_time(ours),
        key=record.key,
        bytes=record_bytes(record),
        missing=header_text(ours.get(MISSING)),
    )


def own_headers(headers: Headers) -> Headers:
    """Return the headers that the record had before it died, in order."""
    return parted_headers(headers, OUR_PREFIXES).original


def copy_of_letter(
    letter: Letter, record: Record, replay_topic: str, redrive: str = "", *, keeps_times: bool = True
) -> Outgoing:
    """Build the copy with which a letter is emitted again: its attempts and its age are counted anew.

    Its history goes with it, so that a further dead letter has it all.

    Args:
        record: the letter as it was read, with its payload.
        redrive: the id of the redrive that writes it; empty: none does.
        keeps_times: the replay topic does not set the times of its records itself.
    """
    time = WrittenTime(timestamp_ms=None, headers=())  # the letter does not say the record's time
    if letter.time:
        time = written_time(letter.time, topic_keeps=keeps_times)
    lineage = replace(letter.lineage, attempt=1, abandoned=0, timed_out=0, held=0, first_emitted_ms=None)
    original = plain_headers(own_headers(record.headers))
    added: Headers = (
        *build_headers(lineage),
        (LETTER, letter.place.encode()),
        *([(REDRIVE, redrive.encode())] if redrive else []),
        (HISTORY, history_json(letter.history)),
        *time.headers,
    )
    return Outgoing(
        topic=replay_topic,
        partition=letter.origin_partition,
        value=record.value,
        key=record.key,
        headers=joined_headers(original, added),
        timestamp_ms=time.timestamp_ms,
    )


def mark_record(letter: Letter, topic: str, mark: Mark) -> Outgoing:
    """Build the record that says of a letter that it was handled."""
    return Outgoing(
        topic=topic,
        partition=letter.partition,
        value=None,
        headers=(
            (HANDLED, mark.action.encode()),
            (LETTER, mark.letter.encode()),
            (BY, clipped(mark.by, CAUSE_BYTES_MAX).encode()),
            (WHY, clipped(mark.why, CAUSE_BYTES_MAX).encode()),
            *([(REDRIVE, mark.redrive.encode())] if mark.redrive else []),
        ),
        timestamp_ms=mark.at_ms,
    )


def _parse_mark(record: Record, ours: Mapping[str, bytes]) -> Mark | None:
    """Read a mark from our headers by their names; None if its action or its letter cannot be read."""
    try:
        action = LetterAction(header_text(ours[HANDLED]))
    except ValueError:
        return None
    letter = header_text(ours.get(LETTER))
    if parse_location(letter) is None:
        return None
    return Mark(
        letter=letter,
        action=action,
        by=header_text(ours.get(BY)),
        why=header_text(ours.get(WHY)),
        at_ms=record.timestamp_ms,
        redrive=header_text(ours.get(REDRIVE)),
    )
