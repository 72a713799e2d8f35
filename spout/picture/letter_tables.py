"""The tables `letters` and `redrives`: what the dead-letter topics of inputs hold."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from typing import Final, NamedTuple

from acker.config.settings import Input
from acker.kafka.port import Headers, Record
from acker.notation import show_bytes, show_text
from acker.wire.stacks import read_stack
from replay.handling.outcomes import BegunRedrive
from replay.records.dead_letter import OUR_PREFIXES
from replay.records.due import history_json
from replay.records.headers import parse_location, parted_headers
from replay.records.letters import Letter, Mark, parse_letter
from replay.records.redrives import RedriveBegun, RedriveEnded, parse_audit
from spout.picture.database import ROWS_BUFFERED, Picture, Row, Value, time_column
from spout.picture.holes import Holes
from spout.picture.places import origin_row

_NO_TIME_MS: Final = -1
"""The time of a record without one, as Kafka says it."""

PAYLOAD_BYTES_MAX: Final = 256 << 20
"""Of all payloads and headers together; those of further letters are a hole."""

_ADDED_HEADERS: Final = """
CREATE TEMP TABLE added_headers (topic TEXT, partition INTEGER, offset INTEGER, headers_json TEXT)
"""

_MARK: Final = """
UPDATE letters
SET handled = ?, handled_at = ?, handled_by = ?, handled_why = ?, redrive = ?
WHERE topic = ? AND partition = ? AND offset = ?
"""


class RedriveName(NamedTuple):
    """A redrive of one input: an order may be for several, and has the same id in each."""

    input: str
    redrive: str


class LetterTables:
    """Fills both tables from the records of dead-letter topics, each of which it gets once.

    Attributes:
        other_records: how many records were not Windhover's.
    """

    def __init__(
        self,
        picture: Picture,
        holes: Holes,
        *,
        has_letters: bool = True,
        has_details: bool = True,
        places_by_input: Mapping[str, Set[str]] | None = None,
    ) -> None:
        """Begin without a record.

        Args:
            has_letters: whether it gets all records, or those alone that redrives wrote.
            has_details: whether those columns are filled that say more than a list of letters does,
                such as `history` and `stack`: they take a third of the time of a letter.
            places_by_input: of each input the letters that are kept, by their own places or those
                of their records; None: all. For those that are named there is a temporary table
                `added_headers`, too, which for all letters would take half of their time.
        """
        self._picture = picture
        self._holes = holes
        self._has_letters = has_letters
        self._has_details = has_details
        self._places_by_input = places_by_input
        # the places of these letters; a mark of another letter changes nothing
        self._kept_places: set[str] = set()
        if places_by_input is not None:
            picture.connection.execute(_ADDED_HEADERS)
        self.other_records = 0
        # a mark comes behind its letter, so all of these marks belong behind all of these letters
        self._letter_rows: list[Row] = []
        self._mark_values: list[list[Value]] = []
        self._payload_bytes = 0
        self._begun: dict[RedriveName, RedriveBegun] = {}
        self._ended: dict[RedriveName, RedriveEnded] = {}
        self._handled_counts: Counter[RedriveName] = Counter()

    def put(self, input: Input, record: Record) -> None:
        """Collect what a record of an input's dead-letter topic says."""
        entry = parse_letter(record, last_loss_only=not self._has_details)
        match entry:
            case Letter():
                if self._places_by_input is None:  # the picture has all letters
                    self._letter_rows.append(self._letter_row(input, entry, record))
                # it has the named letters alone, and the headers that Windhover added to them
                elif self._is_named(input, entry):
                    self._letter_rows.append(self._letter_row(input, entry, record))
                    self._keep_added_headers(record)
            case Mark():
                self._put_mark(input, entry)
            case None:  # neither a letter nor a mark
                self._put_audit_or_foreign(input, record)
        if len(self._letter_rows) + len(self._mark_values) >= ROWS_BUFFERED:
            self.flush()

    def flush(self) -> None:
        """Write the letters that were collected, and then the marks."""
        self._picture.insert("letters", self._letter_rows)
        self._picture.connection.executemany(_MARK, self._mark_values)
        self._letter_rows = []
        self._mark_values = []

    def _is_named(self, input: Input, letter: Letter) -> bool:
        """Return whether a letter, or its record, is named by its place."""
        places_by_input = self._places_by_input or {}
        places = places_by_input.get(input.name, frozenset())
        return not places.isdisjoint((letter.place, letter.lineage.origin))

    def _keep_added_headers(self, record: Record) -> None:
        """Keep the headers that Windhover added to a letter that is named: few are."""
        self._kept_places.add(record.place)
        headers_json = _headers_json(parted_headers(record.headers, OUR_PREFIXES).added)
        values = (record.topic, record.partition, record.offset, headers_json)
        self._picture.connection.execute("INSERT INTO added_headers VALUES (?, ?, ?, ?)", values)

    def _letter_row(self, input: Input, letter: Letter, record: Record) -> Row:
        """Return the row of `letters` of a letter that nobody has handled yet."""
        lineage = letter.lineage
        last_loss = letter.history[-1] if letter.history else None
        return {
            "input": input.name,
            "topic": record.topic,
            "partition": letter.partition,
            "offset": letter.offset,
            **origin_row(lineage.origin),
            "key": _bytes_column(letter.key) if letter.has_key else None,
            "died_at": self._checked_time("letters.died_at", record, letter.died_ms),
            "dead": letter.dead,
            "verdict": lineage.reason,
            "operator": lineage.operator,
            "error": letter.error,
            "message": last_loss.message if last_loss is not None else lineage.cause,
            "attempts": lineage.attempt,
            "is_note": letter.is_note,
            "missing": letter.missing,
            "letter_bytes": letter.bytes,
            **self._details_row(letter, record),
            **self._content_row(letter, record),
        }

    def _details_row(self, letter: Letter, record: Record) -> Row:
        """Return the columns that only the details of a letter show; empty without `has_details`."""
        if not self._has_details:
            return {}
        return {
            "consumer_group": letter.group,
            "cause": letter.lineage.cause,
            "abandoned": letter.lineage.abandoned,
            "timed_out": letter.lineage.timed_out,
            # `missing`: why there is no payload; empty: there is one
            "payload_bytes": None if letter.missing else len(record.value or b""),
            "first_emitted_at": letter.lineage.first_emitted_ms,
            "record_at": self._record_ms(letter, record),
            "history": history_json(letter.history).decode(),
            "stack": read_stack(parted_headers(record.headers, OUR_PREFIXES).added),
        }

    def _record_ms(self, letter: Letter, record: Record) -> int | None:
        """Return the time of a letter's own record; None: the letter does not say it."""
        if letter.time is None:
            return None
        return self._checked_time("letters.record_at", record, letter.time.ms)

    def _checked_time(self, table_and_column: str, record: Record, time_ms: int) -> int:
        """Return `time_ms` as it is; if no calendar has it, note a hole of the column.

        The writer of such a time may count microseconds.
        """
        # -1: the record has no time
        if time_ms != _NO_TIME_MS and time_column(time_ms) is None:
            side = "after" if time_ms >= 0 else "before"
            why = f"no calendar has its time: {abs(time_ms)} ms {side} 1970"
            self._holes.note_record(table_and_column, record, why)
        return time_ms

    def _content_row(self, letter: Letter, record: Record) -> Row:
        """Return what the record itself held; empty: nobody needs it, or it is too much."""
        if not self._picture.has_payloads:
            return {}
        self._payload_bytes += letter.bytes
        if self._picture.has_limits and self._payload_bytes > PAYLOAD_BYTES_MAX:
            self._holes.note_record(
                "letters.payload, letters.headers", record, "the limit of all payloads is reached"
            )
            return {}
        headers = parted_headers(record.headers, OUR_PREFIXES).original
        payload = None if letter.missing else record.value
        return {
            "headers": _headers_json(headers),
            "payload": _bytes_column(payload),
            "payload_json": _json_text(payload),
        }

    def _put_mark(self, input: Input, mark: Mark) -> None:
        """Collect that a letter was handled, if the letter is in the picture."""
        if mark.redrive:
            self._handled_counts[RedriveName(input.name, mark.redrive)] += 1
        if self._places_by_input is not None and mark.letter not in self._kept_places:
            return
        topic, partition, offset = parse_location(mark.letter) or ("", -1, -1)
        row: Row = {
            "handled": mark.action.value,
            "handled_at": mark.at_ms,
            "handled_by": mark.by,
            "handled_why": mark.why,
            "redrive": mark.redrive or None,
        }
        stored = self._picture.converted("letters", row)
        self._mark_values.append([*stored.values(), topic, partition, offset])

    def _put_audit_or_foreign(self, input: Input, record: Record) -> None:
        """Keep the audit record of a redrive; count another record as none of Windhover's."""
        if not self.put_audit(input, record):
            self.other_records += 1
            self._holes.note_record("letters", record, "it is no letter of Windhover's")

    def put_audit(self, input: Input, record: Record) -> bool:
        """Keep how a redrive began or ended; return whether a record is such an audit record."""
        audit = parse_audit(record)
        match audit:
            case RedriveBegun():
                self._begun[RedriveName(input.name, audit.redrive)] = audit
            case RedriveEnded():
                # the first one counts
                self._ended.setdefault(RedriveName(input.name, audit.redrive), audit)
        return audit is not None

    def redrives_of(self, input: Input, redrive: str | None) -> list[RedriveBegun]:
        """Return an input's redrives, or that of one id, as they began; the oldest first."""
        return [
            begun
            for name, begun in self._begun.items()
            if name.input == input.name and redrive in (None, name.redrive)
        ]

    def write_redrives(self) -> None:
        """Write the redrives as they are known now."""
        self._picture.replace("redrives", self._redrive_rows())

    def _redrive_rows(self) -> Iterator[Row]:
        """Yield the row of each redrive that has begun."""
        # redrives of an input follow each other: a later one shows that those before it are over;
        # `_begun` is in the order of the log, so the last of an input stays
        newest_by_input = {name.input: name for name in self._begun}
        for name, begun in self._begun.items():
            is_over = name != newest_by_input[name.input]
            redrive = BegunRedrive(begun, self._ended.get(name), is_over)
            yield {
                "input": name.input,
                "redrive": begun.redrive,
                "action": begun.action,
                "state": redrive.state,
                "begun_at": begun.at_ms,
                "begun_by": begun.by,
                "why": begun.why,
                "which": begun.which,
                "letters": begun.letters,
                "handled": self._handled_counts[name] if self._has_letters else None,
                **_end_row(redrive.ended),
            }


def _end_row(ended: RedriveEnded | None) -> Row:
    """Return how a redrive ended; a count of -1 says that whoever ended it did not know it."""
    if ended is None:
        return {}
    return {
        "ended_at": ended.at_ms,
        "ended_by": ended.by,
        "acked": ended.acked if ended.acked >= 0 else None,
        "died": ended.died if ended.died >= 0 else None,
    }


def _bytes_column(value: bytes | None) -> str | None:
    """Return bytes in the notation of all commands; None: no value; no bytes: an empty text."""
    if value is None:
        return None
    return show_bytes(value) if value else ""


def _json_text(payload: bytes | None) -> str | None:
    """Return a payload as text, which may be JSON; None: it is no text.

    SQLite looks whether it is JSON. It reads a text only up to a zero byte, which no JSON has.
    """
    if not payload or b"\0" in payload:
        return None
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return None


def _headers_json(headers: Headers) -> str:
    """Return headers as a JSON list of their names and values, in the notation of all commands."""
    rows = [{"name": show_text(name), "value": _bytes_column(value)} for name, value in headers]
    return json.dumps(rows, ensure_ascii=False)
