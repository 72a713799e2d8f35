"""The headers that tell a replayed record's story: where it began, how often it was tried, why it came back.

A record of a source topic is a first emission, whatever headers it carries: they may come from a dead letter
or from another pipeline, and they stay with the record. A record of a replay topic carries them first, and
then what the replay worker wrote:

===========================  ==================================================================
windhover.own                how many headers came with the record: those that stand before this one
windhover.origin             ``topic/partition@offset`` of the first emission
windhover.record-id          which record it is, among all that its topic ever has (`record_id`)
windhover.attempt            which emission this is; the first is 1
windhover.abandoned          how many of the emissions before ended because a session was taken over
windhover.timed-out          how many of them timed out; 0 where it is missing
windhover.held               how many of them were blocked behind a record that waited; 0 where missing
windhover.reason             why the emission before this one was lost: FAILED, TIMED_OUT, ABANDONED
windhover.cause              its error class and message
windhover.operator           the operator that failed it; empty when none did
windhover.first-emitted      wall time of the first emission, ms
windhover.history            every loss, JSON (`replay.records.due.Loss`); one that left some out says so
===========================  ==================================================================

`windhover.own` is there only where a header that came with the record has a name that could be ours, as those
of a dead letter have that another input reads. In all other copies the names alone tell ours from the
record's. So a copy of earlier versions, which has none, is read as ever.

Reading is tolerant, since anybody may write to a topic: what cannot be read counts as missing, and nothing
raises. Of a header that comes twice the last counts, as in Kafka's own clients.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from acker.identity import OFFSET_MAX
from acker.kafka.port import NO_EPOCH, Headers, TopicPartition, UnreadableName
from acker.wire.causes import clipped

PREFIX: Final = "windhover."
OWN: Final = "windhover.own"
ORIGIN: Final = "windhover.origin"
RECORD_ID: Final = "windhover.record-id"
ATTEMPT: Final = "windhover.attempt"
ABANDONED: Final = "windhover.abandoned"
TIMED_OUT: Final = "windhover.timed-out"
HELD: Final = "windhover.held"
REASON: Final = "windhover.reason"
CAUSE: Final = "windhover.cause"
OPERATOR: Final = "windhover.operator"
FIRST_EMITTED: Final = "windhover.first-emitted"
HISTORY: Final = "windhover.history"
UNREADABLE_NAMES: Final = "windhover.unreadable-names"
"""Among the headers that came with a record: which of their names are placeholders, a JSON list of these. The
names themselves were no UTF-8, which no client can write."""

CAUSE_BYTES_MAX: Final = 1_024
"""A header value of ours that holds free text is cut to this many bytes."""

ATTEMPT_MAX: Final = 1_000_000
"""A higher attempt, or abandoned count, is not one that a worker wrote."""

_NUMBER = re.compile(rb"[0-9]{1,15}\Z")
_ORIGIN = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})/(?P<partition>[0-9]{1,10})@(?P<offset>[0-9]{1,15})\Z")


@dataclass(frozen=True, slots=True)
class Lineage:
    """What the headers of an emission say about the emissions before it, as in the table above.

    Attributes:
        abandoned, timed_out, held: how many of them were abandoned, timed out, and were blocked.
        first_emitted_ms: None: this is the first emission, or it is unknown.
        reason, cause, operator: how the one before was lost; empty: nobody says so.
        record_id: empty on a copy that a worker of an older version wrote.
    """

    origin: str
    attempt: int = 1
    abandoned: int = 0
    first_emitted_ms: int | None = None
    reason: str = ""
    cause: str = ""
    operator: str = ""
    timed_out: int = 0
    held: int = 0
    record_id: str = ""


def record_id(topic_id: str, partition: int, offset: int, leader_epoch: int) -> str:
    """Name a record by Kafka's id of its topic, its place, and the epoch of the leader that wrote it.

    >>> record_id("t2Yz4Qb8R0u0qk1Xn3m1Wg", 3, 1042, 5)
    't2Yz4Qb8R0u0qk1Xn3m1Wg/3@1042#5'

    Another record never has it: not after the topic was created again, nor in another cluster, nor where a
    log was cut and grew again. Where the log has no epoch (as before Kafka 0.11), it ends in ``#-``.
    """
    epoch = "-" if leader_epoch == NO_EPOCH else leader_epoch
    return f"{topic_id}/{partition}@{offset}#{epoch}"


class RecordPlace(NamedTuple):
    """The place of a record in a log."""

    topic: str
    partition: int
    offset: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that the record is in."""
        return TopicPartition(self.topic, self.partition)


def location(topic: str, partition: int, offset: int) -> str:
    """Name one record of a log, ``topic/partition@offset``."""
    return f"{topic}/{partition}@{offset}"


def root_name(place: str, generation: int) -> str:
    """Return a root's name for people: its record's place, and a generation behind the first one.

    >>> root_name("sentences/3@1042", 0), root_name("sentences/3@1042", 2)
    ('sentences/3@1042', 'sentences/3@1042 (generation 2)')
    """
    return f"{place} (generation {generation})" if generation else place


def parse_location(text: str) -> RecordPlace | None:
    """Split ``topic/partition@offset``; return None for any other text, or where no log is that long."""
    match = _ORIGIN.match(text)
    if match is None:
        return None
    offset = int(match["offset"])
    if offset > OFFSET_MAX:
        return None
    return RecordPlace(match["topic"], int(match["partition"]), offset)


def parse_lineage(headers: Headers | None, topic: str, partition: int, offset: int) -> Lineage:
    """Read what the headers of an emission from a replay topic say about the emissions before it.

    The topic, partition and offset are its own place. If the headers say nothing, it is attempt 1,
    and its origin is that place.
    """
    return lineage_of(our_values(headers) if headers else {}, topic, partition, offset)


def lineage_of(ours: Mapping[str, bytes], topic: str, partition: int, offset: int) -> Lineage:
    """Read the past of an emission from our headers by their names, as `parse_lineage` does."""
    own_place = location(topic, partition, offset)
    if not ours:
        return Lineage(own_place)
    origin = header_text(ours.get(ORIGIN))
    attempt = max(1, _number(ours.get(ATTEMPT), default=1, number_max=ATTEMPT_MAX))
    # at attempt 3 there were 2 emissions before, so the three counts together cannot be more than 2
    uncounted = attempt - 1  # emissions before this one that no count includes yet
    abandoned = min(_count(ours.get(ABANDONED)), uncounted)
    uncounted -= abandoned
    timed_out = min(_count(ours.get(TIMED_OUT)), uncounted)
    uncounted -= timed_out
    held = min(_count(ours.get(HELD)), uncounted)  # blocked ones
    return Lineage(
        origin=origin if parse_location(origin) else own_place,
        record_id=header_text(ours.get(RECORD_ID)),
        attempt=attempt,
        abandoned=abandoned,
        first_emitted_ms=_number_or_none(ours.get(FIRST_EMITTED)),
        reason=header_text(ours.get(REASON)),
        cause=header_text(ours.get(CAUSE)),
        operator=header_text(ours.get(OPERATOR)),
        timed_out=timed_out,
        held=held,
    )


def build_headers(lineage: Lineage) -> Headers:
    """Write a lineage as headers, in the order of the table above; the history is not among them.

    The origin is the first of them.
    """
    headers = [(ORIGIN, lineage.origin.encode())]
    if lineage.record_id:
        headers.append((RECORD_ID, lineage.record_id.encode()))
    headers.append((ATTEMPT, b"%d" % lineage.attempt))
    headers.append((ABANDONED, b"%d" % lineage.abandoned))
    if lineage.timed_out:
        headers.append((TIMED_OUT, b"%d" % lineage.timed_out))
    if lineage.held:
        headers.append((HELD, b"%d" % lineage.held))
    headers.append((REASON, lineage.reason.encode()))
    headers.append((CAUSE, clipped(lineage.cause, CAUSE_BYTES_MAX).encode()))
    headers.append((OPERATOR, clipped(lineage.operator, CAUSE_BYTES_MAX).encode()))
    if lineage.first_emitted_ms is not None:
        headers.append((FIRST_EMITTED, b"%d" % lineage.first_emitted_ms))
    return tuple(headers)


class PartedHeaders(NamedTuple):
    """The headers of a copy or dead letter: those that came with the record, and those that we added."""

    original: Headers
    added: Headers


def joined_headers(original: Headers, added: Headers, prefixes: tuple[str, ...] = (PREFIX,)) -> Headers:
    """Return the headers that came with a record, then ours; `parted_headers` can part them again.

    If one of the original names looks like ours, the header `OWN` stands between, and says how many came with
    the record: of ``windhover.cause`` and ``x``, which a record came with, it says 2.

    Args:
        original: may have any names, among them those of ours from when the record was a dead
            letter before.
        added: ours.
        prefixes: what the names of ours begin with.
    """
    if any(name.startswith(prefixes) for name, _ in original):
        return (*original, (OWN, b"%d" % len(original)), *added)
    return original + added


def parted_headers(headers: Headers, prefixes: tuple[str, ...] = (PREFIX,)) -> PartedHeaders:
    """Part the headers of a copy or dead letter, which `joined_headers` joined.

    The header `OWN` says how many stand before it, and those came with the record. One that says
    another number came with the record itself, which was a copy or a dead letter before. Of those
    with the right number the last one counts: of ``windhover.own=7, x, windhover.own=2`` the second
    one, with two before it. If there is none, ours are the headers whose names begin with one of
    the `prefixes`.
    """
    # few records have that header, and many records are read: first by a search in C
    if OWN in [name for name, _value in headers]:
        for index in range(len(headers) - 1, -1, -1):
            name, value = headers[index]
            if name == OWN and value == b"%d" % index:
                return PartedHeaders(headers[:index], headers[index + 1 :])
    added = tuple([header for header in headers if header[0].startswith(prefixes)])
    if len(added) == len(headers):  # a record without headers of its own, as a mark is
        return PartedHeaders((), added)
    original = tuple([header for header in headers if not header[0].startswith(prefixes)])
    return PartedHeaders(original, added)


def our_values(headers: Headers) -> dict[str, bytes]:
    """Return the values of ours by name in a copy or dead letter; of a name that comes twice the last."""
    added = parted_headers(headers).added
    return {name: value for name, value in added if value is not None and name.startswith(PREFIX)}


def plain_headers(headers: Headers) -> Headers:
    """Return headers as a client can write them: placeholders as plain text, and a header that names them."""
    unreadable = [str(name) for name, _ in headers if isinstance(name, UnreadableName)]
    if not unreadable:
        return headers
    note = UNREADABLE_NAMES, json.dumps(unreadable).encode()
    return (*((str(name), value) for name, value in headers), note)


def header_text(value: bytes | None) -> str:
    """Decode a header's value, of which `CAUSE_BYTES_MAX` bytes are read; a missing one is empty."""
    return (value or b"")[:CAUSE_BYTES_MAX].decode("utf-8", "replace")


def _number_or_none(value: bytes | None) -> int | None:
    """Read a number of a header; None if it is missing, or no number that a worker wrote."""
    return int(value) if value is not None and _NUMBER.match(value) else None


def _count(value: bytes | None) -> int:
    """Read a count of emissions from a header; 0 if it is missing, or none that a worker wrote."""
    return _number(value, default=0, number_max=ATTEMPT_MAX)


def _number(value: bytes | None, default: int, number_max: int) -> int:
    """Read a number of a header; `default` if it is missing, no number, or above `number_max`."""
    number = _number_or_none(value)
    return default if number is None or number > number_max else number
