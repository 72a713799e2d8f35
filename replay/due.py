"""What `_ack_due` holds: each lost root that waits, and how far the verdicts are taken over.

The topic is compacted. A root's key is its source and position; a tombstone removes it in the transaction
that writes its copy or dead letter. One more key, ``progress``, says where in the verdict partition to go
on: it is written together with the roots, so it is exact where a committed group offset may have expired,
and it can point into the middle of a large verdict record.

Source: DESIGN.md, section 5.4.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

from acker.codec import Codec, load_schema
from acker.events import Reason
from acker.identity import Position, Root, Source
from replay.headers import clipped

PROGRESS_KEY: Final = b"progress"

HISTORY_MAX: Final = 16
"""A history keeps the first loss and the latest 15: with the limits below at most 24 kB."""

MESSAGE_BYTES_MAX: Final = 512
"""A cause's message in a history is cut to this many bytes."""

NAME_BYTES_MAX: Final = 256
"""An operator's name and an error's class are cut to this many bytes."""

_KEY = struct.Struct(">iq")


class Loss(NamedTuple):
    """How one emission was lost.

    Attributes:
        attempt: which emission it was, from 1.
        reason: why it was lost.
        operator: who failed it; empty when nobody did. Likewise `error`, its class, and `message`.
        error: see `operator`.
        message: see `operator`.
        emitted_ms: wall time of the emission.
        age_ms: from the emission to the verdict, by the session's clock.
        root: ``topic/partition@offset`` of the emission.
    """

    attempt: int
    reason: Reason
    operator: str
    error: str
    message: str
    emitted_ms: int
    age_ms: int
    root: str


@dataclass(frozen=True, slots=True)
class Due:
    """A lost root that waits.

    Attributes:
        source: of the lost emission, as `position`.
        position: see `source`.
        due_ms: wall time at which it is replayed or buried, not before.
        dead: a `DeadReason`, or empty when it is to be replayed.
        group: the group that it was emitted for.
        topic: the topic that the lost emission is read from.
        topic_id: Kafka's id of that topic when it was emitted.
        origin: ``topic/partition@offset`` of the first emission.
        attempt: which emission was lost, from 1.
        abandoned: how many emissions were abandoned, this one included.
        first_emitted_ms: wall time of the first emission.
        history: how each emission was lost, oldest first; at most `HISTORY_MAX`.
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

    @property
    def root(self) -> Root:
        """The lost emission."""
        return Root(Source(self.source), Position(self.position))


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a verdict partition is taken over.

    Attributes:
        next: offset of the first verdict record that is not wholly taken over.
        skip: how many lost roots of that record are.
    """

    next: int
    skip: int


@cache
def due_codec() -> Codec[Due | Progress]:
    """Return the codec of `_ack_due`, version 1; it is made once, since parsing schemas takes a while."""
    return Codec({Due: load_schema("replay", "due"), Progress: load_schema("replay", "progress")})


def root_key(root: Root) -> bytes:
    """Return the key that a root has in `_ack_due`: 12 bytes."""
    return _KEY.pack(root.source, root.position)


def parse_root_key(key: bytes | None) -> Root | None:
    """Return the root that a key names; None when it names none."""
    if key is None or len(key) != _KEY.size:
        return None
    source, position = _KEY.unpack(key)
    return Root(Source(source), Position(position))


def extended(history: tuple[Loss, ...], loss: Loss) -> tuple[Loss, ...]:
    """Append a loss to a history, within its limits: the first loss and the latest ones stay."""
    bounded = loss._replace(
        operator=clipped(loss.operator, NAME_BYTES_MAX),
        error=clipped(loss.error, NAME_BYTES_MAX),
        message=clipped(loss.message, MESSAGE_BYTES_MAX),
    )
    whole = (*history, bounded)
    return whole if len(whole) <= HISTORY_MAX else (whole[0], *whole[1 - HISTORY_MAX :])


def history_json(history: tuple[Loss, ...]) -> bytes:
    """Write a history as the value of its header: a JSON array of objects, oldest first."""
    return json.dumps([loss._asdict() for loss in history], ensure_ascii=False).encode("utf-8", "replace")


def parse_history(value: bytes | None) -> tuple[Loss, ...]:
    """Read a history from its header; what is not one of ours is empty, and nothing raises."""
    if value is None or len(value) > HISTORY_MAX * 8_192:
        return ()
    try:
        entries = json.loads(value)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(entries, list) or len(entries) > HISTORY_MAX:
        return ()
    losses = [_loss(entry) for entry in entries]
    return tuple(loss for loss in losses if loss is not None)


def _loss(entry: Any) -> Loss | None:
    try:
        return Loss(
            attempt=_whole(entry["attempt"]),
            reason=Reason(entry["reason"]),
            operator=clipped(entry["operator"], NAME_BYTES_MAX),
            error=clipped(entry["error"], NAME_BYTES_MAX),
            message=clipped(entry["message"], MESSAGE_BYTES_MAX),
            emitted_ms=_whole(entry["emitted_ms"]),
            age_ms=_whole(entry["age_ms"]),
            root=clipped(entry["root"], MESSAGE_BYTES_MAX),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 53:
        raise ValueError(f"{value!r} is no number of a history")
    return value
