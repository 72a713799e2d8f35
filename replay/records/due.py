"""What `_ack_due` holds: each lost root that waits, and how far the verdicts are accepted.

The topic is compacted. A root's key is its source and position; the record under it is its *entry*.
A tombstone removes it in the transaction that writes its copy or dead letter. Under the key
``progress`` is where in the verdict partition to go on, which may be the middle of a large verdict
record. A key ``pause/<input id>`` is there while the input is paused (`replay.handling.resume`
removes it). A tombstone under ``owner`` says nothing: only the owner of the partition can write it.
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass, field, fields
from functools import cache, lru_cache
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple, assert_never

from acker.errors import CodecError
from acker.hot_paths import tuple_maker
from acker.identity import Root, is_replay, offset_of, partition_of
from acker.kafka.port import NO_EPOCH, Headers
from acker.untrusted import is_whole_number
from acker.wire.causes import HELD, clipped
from acker.wire.checks import wrong_source
from acker.wire.codec import HEADER_BYTES, Codec, load_schema
from acker.wire.verdict import LostVerdict, Verdict, lost_verdict
from replay.policy.disposition import DeadReason
from replay.records.headers import HISTORY, RecordPlace, our_values

PROGRESS_KEY: Final = b"progress"
OWNER_KEY: Final = b"owner"
PAUSE_KEY: Final = b"pause/"
"""Before the id of an input, in decimal digits."""

HISTORY_MAX: Final = 100
"""Entries of a history. If there are more, `append_loss` keeps the first loss and the latest ones."""

HISTORY_BYTES_MAX: Final = 48_000
"""Text in a history; a hundred causes of usual length have half of it. Many roots are in memory at once."""

LEFT_OUT: Final = "LEFT_OUT"
"""Error of the entry of a history that represents those that were left out."""

MESSAGE_BYTES_MAX: Final = 512

NAME_BYTES_MAX: Final = 256
"""For an operator's name and an error's class."""

BATCH_SKIPPED: Final = ("sink", "BATCH_SKIPPED")
"""Operator and error of all roots of a batch that the sink skipped."""

_LOSS_BYTES_MAX: Final = 2 * NAME_BYTES_MAX + 2 * MESSAGE_BYTES_MAX
_LOSSES_THAT_FIT: Final = HISTORY_BYTES_MAX // _LOSS_BYTES_MAX
"""So few losses always fit, however long their texts are."""

_JSON_BYTES_MAX: Final = HISTORY_MAX * (6 * _LOSS_BYTES_MAX + 400)
"""What `history_json` may write of what `parse_history` returns, if every character has to be escaped."""

_LEFT_OUT_TEXT: Final = "losses left out here: "
_LEFT_OUT = re.compile(re.escape(_LEFT_OUT_TEXT) + r"([0-9]{1,9})\Z")
_KEY = struct.Struct(">iq")
_root_of = tuple_maker(Root)  # a new owner makes two for each record
_record_place = tuple_maker(RecordPlace)

ROOT_KEY_BYTES: Final = _KEY.size
"""No other key of `_ack_due` is as long as a root's."""

_DEAD_VALUES: Final = frozenset({"", *DeadReason})
"""What `Due.dead` may be."""


class Loss(NamedTuple):
    """How one emission was lost.

    Attributes:
        attempt: which emission it was, from 1.
        operator: who failed it; empty when nobody did. Likewise `error`, its class, and `message`.
        age_ms: from the emission to the verdict, by the session's clock.
        root: ``topic/partition@offset`` of the emission.
    """

    attempt: int
    reason: LostVerdict
    operator: str
    error: str
    message: str
    emitted_ms: int
    age_ms: int
    root: str


@dataclass(frozen=True, slots=True)
class Due:
    """A lost root that waits: an entry of `_ack_due`. Its counts include the lost emission.

    Attributes:
        source, position: the root.
        due_ms: wall time at which it is replayed or given up, not before.
        dead: a `DeadReason`, or empty when it is to be replayed.
        topic: the topic of the lost emission, whose id in Kafka was `topic_id`.
        origin: ``topic/partition@offset`` of the first emission.
        attempt: which emission was lost, from 1.
        abandoned, timed_out: how many emissions were lost so.
        held: how many were blocked behind another record; 0 in what older workers wrote.
        first_emitted_ms: wall time of the first emission; below 0: it is unknown.
        history: how each emission was lost, oldest first; at most `HISTORY_MAX` (see `append_loss`).
        leader_epoch: an epoch of the partition's leader in which the lost emission's record was there. A
            record with a higher one is another record. `NO_EPOCH` in what older workers wrote.
        stack: of the exception that failed it, a part of it if it is to be replayed; a header of its entry,
            and no part of the value.
    """

    source: int
    position: int
    due_ms: int
    dead: str
    group: str
    topic: str
    topic_id: str
    origin: str
    attempt: int
    abandoned: int
    first_emitted_ms: int
    history: tuple[Loss, ...]
    timed_out: int = 0
    held: int = 0
    leader_epoch: int = NO_EPOCH
    stack: str = field(default="", compare=False)

    @property
    def root(self) -> Root:
        """The root that waits."""
        return _root_of((self.source, self.position))

    @property
    def place(self) -> RecordPlace:
        """Where the record of the lost emission is; of a copy that is on the replay topic."""
        return _record_place((self.topic, partition_of(self.source), offset_of(self.position)))

    @property
    def last_was_blocked(self) -> bool:
        """Whether no bolt has seen the lost emission."""
        return bool(self.history) and self.history[-1].error == HELD


@dataclass(frozen=True, slots=True)
class Aside(Due):
    """A lost root that waits since its input cannot go on: nothing is decided about it.

    It has what its verdict says, `error` in the form of the wire. The headers of a copy are read when it is
    decided; until then `attempt` is 1 and `origin` is empty.
    """

    error: str = ""


@dataclass(frozen=True, slots=True)
class RefusedRoot(Due):
    """A lost root that waits until somebody corrects a topic, which refuses its dead letter, or its copy.

    `due_ms` is when it is tried again. `copy_why` has the broker's words on the copy, and is empty if none
    was tried; `letter_why` those on the letter, and is empty if the root is to be replayed.
    """

    copy_why: str = ""
    letter_why: str = ""


@dataclass(frozen=True, slots=True)
class Pause:
    """That an input is paused in a verdict partition since `since_ms`, wall time."""

    input: int
    since_ms: int
    why: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How far verdicts are accepted: `skip` roots of record `next`, and all records before it."""

    next: int
    skip: int


Stored = Due | Progress | Pause


class DueCodec(Codec[Stored]):
    """Reads and writes the values of `_ack_due`; it reads former versions of each kind as the present one."""

    def __init__(self) -> None:
        """Load the schemas."""
        newest: dict[type[Stored], dict[str, Any]] = {
            Due: _schema("due_4"),
            Aside: _schema("aside_2"),
            RefusedRoot: _schema("refused_root_2"),
            Progress: _schema("progress"),
            Pause: _schema("pause"),
        }
        older: dict[type[Stored], tuple[dict[str, Any], ...]] = {
            Due: (_schema("due_3"), _schema("due_2"), _schema("due")),
            Aside: (_schema("aside"),),
            RefusedRoot: (_schema("refused_root"),),
        }
        super().__init__(newest, older=older)
        # what the values of these types begin with, in any version
        self._aside_headers = self.headers(Aside) | self.headers(RefusedRoot)
        self._root_headers = self.headers(Due) | self._aside_headers

    def is_aside(self, data: bytes | None) -> bool:
        """Return, without decoding a value, whether it is of a root that was put aside, for any reason."""
        return data is not None and data[:HEADER_BYTES] in self._aside_headers

    def read_root_and_due_ms(self, data: bytes) -> tuple[Root, int]:
        """Read only the root and the due time of a value, quickly; all versions begin with them.

        Raises `CodecError`: no root waits by it; `UnknownVersion`: a newer Windhover wrote it.
        """
        if data[:HEADER_BYTES] not in self._root_headers:
            self.decode(data)  # raises `UnknownVersion`, or `CodecError` for garbage
            raise CodecError("it tells of no root that waits")
        # the first three fields of the value: source, position, due_ms
        source, position_index = _read_avro_long(data, HEADER_BYTES)
        position, due_ms_index = _read_avro_long(data, position_index)
        due_ms, _end_index = _read_avro_long(data, due_ms_index)
        return _root_of((source, position)), due_ms


def _schema(name: str) -> dict[str, Any]:
    """Return a schema of this room by its name."""
    return load_schema("replay.records", name)


def _read_avro_long(data: bytes, index: int) -> tuple[int, int]:
    """Read the Avro long at an index; return it and the index behind it.

    A long has seven bits in each byte, the lowest first; all bytes but the last have the highest bit
    set. Its sign is in the lowest bit (zigzag): 0, -1, 1, -2 are written as 0, 1, 2, 3.

    Raises `CodecError`: it does not end, or is larger than 64 bits.
    """
    value = 0
    shift = 0
    while index < len(data) and shift < 64:
        byte = data[index]
        index += 1
        value |= (byte & 0x7F) << shift
        is_last = byte < 0x80
        if is_last and value < 1 << 64:
            return (value >> 1) ^ -(value & 1), index
        shift += 7
    raise CodecError(f"a number before byte {index} does not end, or has more than 64 bits")


@cache
def due_codec() -> DueCodec:
    """Make the codec of `_ack_due`."""
    return DueCodec()


def refused_entry(due: Due, due_ms: int, *, copy_why: str, letter_why: str = "") -> RefusedRoot:
    """Return the entry of a root whose copy or dead letter was refused, and is tried again at `due_ms`.

    `copy_why` and `letter_why` have the broker's words; empty: it refused none such.
    """
    # those of a `Due` alone: the entry may be one of a former refusal, which has fields of its own
    values_of_due = {field.name: getattr(due, field.name) for field in fields(Due)}
    values_of_due["due_ms"] = due_ms
    return RefusedRoot(
        **values_of_due,
        copy_why=clipped(copy_why, MESSAGE_BYTES_MAX),
        letter_why=clipped(letter_why, MESSAGE_BYTES_MAX),
    )


def root_key(root: Root | Due) -> bytes:
    """Return the key that a root has in `_ack_due`: 12 bytes."""
    return _KEY.pack(root.source, root.position)


def parse_root_key(key: bytes | None) -> Root | None:
    """Return the root that a key names; None when it names none."""
    return None if key is None or len(key) != ROOT_KEY_BYTES else root_of_key(key)


def root_of_key(key: bytes) -> Root:
    """Return the root that a key of `ROOT_KEY_BYTES` names."""
    return _root_of(_KEY.unpack(key))


def pause_key(input_id: int) -> bytes:
    """Return the key under which the pause of an input is in `_ack_due`."""
    return PAUSE_KEY + b"%d" % input_id


def flaw_of(key: bytes | None, value: Stored) -> str:
    """Return what is impossible in a decoded record under a key; empty: nothing is."""
    match value:
        case Pause():
            return "" if key == pause_key(value.input) else "it tells no pause"
        case Progress():
            is_sound = key == PROGRESS_KEY and value.next >= 0 and value.skip >= 0
            return "" if is_sound else "it tells no progress"
        case Due():
            return flaw_of_entry(parse_root_key(key), value)
        case _:
            assert_never(value)


def flaw_of_entry(root: Root | None, entry: Due) -> str:
    """Return what is impossible in a decoded entry; empty: nothing is.

    `root` is that of its key; None: the key is of no root.
    """
    if root != (entry.source, entry.position):
        return "the key is not that of the value"
    if wrong_source(entry.source) or entry.position < 0:
        return "it names no root"
    if isinstance(entry, Aside) and not entry.history:
        return "it has no loss"
    if isinstance(entry, RefusedRoot):
        # of a root that dies its letter was refused, of any other one its copy
        why = entry.letter_why if entry.dead else entry.copy_why
        if not why:
            return "it does not say what was refused"
    if entry.dead not in _DEAD_VALUES:
        return f"{entry.dead[:20]!r} is no reason to die"
    return ""


def append_loss(history: tuple[Loss, ...], loss: Loss) -> tuple[Loss, ...]:
    """Return a history with one more loss; if it becomes too long, the first loss and the latest ones stay.

    Then the second entry says how many were left out (`left_out_entry`). Of blocked emissions in a row only
    the last one stays; its attempt shows how many there were.
    """
    was_blocked_before = bool(history) and history[-1].error == HELD
    if was_blocked_before and loss.error == HELD:
        history = history[:-1]
    extended_history = (*history, _cut_texts(loss))
    # so few fit however long their texts are: nothing is measured
    if len(extended_history) <= _LOSSES_THAT_FIT:
        return extended_history
    return _shortened(extended_history)


def left_out_count(loss: Loss) -> int:
    """Return how many left-out losses an entry of a history represents; 0: it is a real loss."""
    # a real loss has a root; and a bolt may raise an exception of this name
    if loss.error != LEFT_OUT or loss.root:
        return 0
    count = _LEFT_OUT.match(loss.message)
    return int(count[1]) if count else 0


def left_out_entry(last_left_out: Loss, count: int) -> Loss:
    """Return the entry of a history that represents `count` left-out losses.

    It has the attempt and the time of the last one.
    """
    message = f"{_LEFT_OUT_TEXT}{count}"
    return last_left_out._replace(operator="", error=LEFT_OUT, message=message, age_ms=0, root="")


def left_out_of(history: tuple[Loss, ...]) -> int:
    """Return how many losses a history has left out."""
    return sum(map(left_out_count, history))


def _shortened(history: tuple[Loss, ...]) -> tuple[Loss, ...]:
    """Return a history that fits: the first loss, how many are left out, and as many last ones as fit.

    The texts of a loss are cut (`_cut_texts`), so two of them and the entry between them always fit.
    """
    first_loss, *later_losses = history
    size_bytes = sum(map(_text_bytes, history))
    if len(history) <= HISTORY_MAX and size_bytes <= HISTORY_BYTES_MAX:
        return history  # it fits as it is
    # If the history was shortened before, its second entry is no loss: it says
    # how many were left out. It is replaced.
    missing_count = left_out_count(later_losses[0])
    first_kept_index = 1 if missing_count else 0  # in later_losses
    last_left_out = later_losses[0]
    # Room for the new entry. An entry that it replaces still counts: that leaves
    # out one loss too many at most.
    size_bytes += _LOSS_BYTES_MAX
    # leave out the oldest of the later losses until all fits; 2: the first loss
    # and the entry
    while len(later_losses) - first_kept_index > HISTORY_MAX - 2 or size_bytes > HISTORY_BYTES_MAX:
        last_left_out = later_losses[first_kept_index]
        size_bytes -= _text_bytes(last_left_out)
        missing_count += 1
        first_kept_index += 1
    return (first_loss, left_out_entry(last_left_out, missing_count), *later_losses[first_kept_index:])


def _text_bytes(loss: Loss) -> int:
    """Return how many bytes the texts of a loss have."""
    texts = (loss.operator, loss.error, loss.message, loss.root)
    return sum(len(text.encode("utf-8", "replace")) for text in texts)


def history_json(history: tuple[Loss, ...]) -> bytes:
    """Write a history as its header's value: a JSON array of objects, oldest first."""
    if len(history) == 1:  # most have one, and there are many of them
        return f"[{_loss_json(history[0])}]".encode("utf-8", "replace")
    losses = ", ".join(map(_loss_json, history))
    return f"[{losses}]".encode("utf-8", "replace")


def _loss_json(loss: Loss) -> str:
    """Return a loss as a JSON object."""
    all_but_root = loss[:-1]  # the root is the last field
    return f"{_json_up_to_root(all_but_root)}{encode_basestring(loss.root)}}}"


@lru_cache(maxsize=1_024)
def _json_up_to_root(all_but_root: tuple[object, ...]) -> str:
    """Return the JSON of a loss up to where its root belongs: ``{"attempt": 2, ..., "root": ``.

    `all_but_root` are the fields of a `Loss` in their order. Roots that were lost together share it, so it
    is made once for them.
    """
    shared = dict(zip(Loss._fields[:-1], all_but_root, strict=True))
    closed_json = json.dumps(shared, ensure_ascii=False)
    return closed_json.removesuffix("}") + ', "root": '


def parse_history(value: bytes | None) -> tuple[Loss, ...]:
    """Read a history from the value of its header; empty: there is none that a worker wrote.

    Nothing raises; of a history with wrong losses those are left out.
    """
    return tuple(loss for loss in map(_parse_loss, _history_entries(value)) if loss is not None)


def parse_last_loss(value: bytes | None) -> tuple[Loss, ...]:
    """Read the last loss of a history, as a history of its own; else as `parse_history`.

    Of a record that was lost five times it takes a third of the time.

    >>> parse_last_loss(b'[{"attempt": 1}]'), parse_last_loss(None)
    ((), ())
    """
    for entry in reversed(_history_entries(value)):
        loss = _parse_loss(entry)
        if loss is not None:
            return (loss,)
    return ()


def _history_entries(value: bytes | None) -> list[Any]:
    """Read the entries of a history's JSON; none if it is no history."""
    if value is None or len(value) > _JSON_BYTES_MAX:  # no worker writes one so long
        return []
    try:
        entries = json.loads(value)
    except (ValueError, RecursionError):
        return []
    if not isinstance(entries, list) or len(entries) > HISTORY_MAX:
        return []
    return entries


def history_of(headers: Headers) -> tuple[Loss, ...]:
    """Read the history of a copy or dead letter; it is empty if there is none that a worker wrote."""
    return parse_history(our_values(headers).get(HISTORY))


def _parse_loss(entry: Any) -> Loss | None:
    """Read one entry of a history's JSON; None: it is not as a worker writes it."""
    try:
        loss = Loss(
            attempt=_whole_number(entry["attempt"]),
            reason=lost_verdict(entry["reason"]),
            operator=entry["operator"],
            error=entry["error"],
            message=entry["message"],
            emitted_ms=_whole_number(entry["emitted_ms"]),
            age_ms=_whole_number(entry["age_ms"]),
            root=entry["root"],
        )
        # encodes each text, so it also refuses what is no text
        return _cut_texts(loss)
    # KeyError: a field is missing. TypeError: the entry is no object. ValueError:
    # a wrong number or verdict. AttributeError: `_cut_texts` got what is no text.
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _cut_texts(loss: Loss) -> Loss:
    """Cut the texts of a loss to what a history has room for."""
    # a new one, since `_replace` takes twice as long, and there are many
    return Loss(
        loss.attempt,
        loss.reason,
        operator=clipped(loss.operator, NAME_BYTES_MAX),
        error=clipped(loss.error, NAME_BYTES_MAX),
        message=clipped(loss.message, MESSAGE_BYTES_MAX),
        emitted_ms=loss.emitted_ms,
        age_ms=loss.age_ms,
        root=clipped(loss.root, MESSAGE_BYTES_MAX),
    )


def _whole_number(value: Any) -> int:
    """Return a number of a history's JSON; `ValueError` if it is none that a worker writes."""
    if not is_whole_number(value, 0, 1 << 53):
        raise ValueError(f"{value!r} is no number of a history")
    return value


def proves_a_record(verdict: LostVerdict, operator: str, error: str) -> bool:
    """Return whether a loss proves that there was a record at its place.

    Then there was no transaction's marker. A failure by an operator proves it:
    the operator is a bolt, or what keeps the records of a key in order, and
    both receive only records, and no markers. A root that timed out, was
    abandoned, or was in a batch that the sink skipped may never have been a
    record.
    """
    match verdict:
        case Verdict.FAILED:
            # an empty operator: nobody failed it
            return operator != "" and (operator, error) != BATCH_SKIPPED
        case Verdict.TIMED_OUT | Verdict.ABANDONED:
            return False
        case _:
            assert_never(verdict)


def was_a_record(due: Due) -> bool:
    """Return whether it is proven that what waits was a record, and no marker and no aborted
    record.

    The log alone cannot tell: in a topic that was once compacted, a hole may be a record that is gone.
    Besides `proves_a_record`, an earlier emission proves it, since only what was read is emitted
    again; so does a root of a replay topic, whose headers were read when it was accepted.
    """
    if is_replay(due.source) or due.attempt > 1 or len(due.history) > 1:
        return True
    return any(proves_a_record(loss.reason, loss.operator, loss.error) for loss in due.history)
