"""What `_ack_sink` holds: of each group the epoch that was granted last, and the last batch.

The topic is compacted. All records of a group lie in one partition:

- ``state/`` and the group: `SinkOpened` while there is no batch, then `SinkBatch`. An `open` writes
  it again with the epoch that it grants.
- ``part/``, a number and the group: `SinkPart`, for a publication that does not fit into one
  record. The state says how many parts belong to its batch. Those of an earlier batch stay until a
  later one has as many, and count for nothing.

A batch is written in one transaction, so a reader of committed records that reads to the end has
its state and all its parts.

Source: docs/design/protocol.md, sections 3 (rule 12) and 4.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final, NamedTuple

from acker.errors import CodecError, TrackingError, UnknownVersion
from acker.kafka.port import Outgoing, Record, TopicPartition
from acker.wire.codec import Codec, load_schema
from spout.exactly_once.store import BatchKey, LastBatch

PART_BYTES: Final = 800_000
"""So much of a publication is in one record, which has to stay below 900,000 bytes."""


class SinkOpened(NamedTuple):
    """A group without a batch; the fields are those of the schema, as with the others."""

    granted_epoch: int


class SinkBatch(NamedTuple):
    """The last batch of a group; `parts` are those besides the one that is in it."""

    granted_epoch: int
    epoch: int
    session: str
    query: str
    batch: int
    parts: int
    publication: bytes


class SinkPart(NamedTuple):
    """A further part of a publication, with the batch to which it belongs."""

    epoch: int
    session: str
    query: str
    batch: int
    publication: bytes


SinkRecord = SinkOpened | SinkBatch | SinkPart


class SinkState(NamedTuple):
    """What a store has of a group.

    Attributes:
        granted_epoch: the epoch that was granted last; 0: none was.
        last_batch: None: there is none.
    """

    granted_epoch: int
    last_batch: LastBatch | None


@cache
def sink_codec() -> Codec[SinkRecord]:
    """Return the codec of the values of records in `_ack_sink`."""
    types: dict[type[SinkRecord], dict[str, Any]] = {
        SinkOpened: load_schema("spout.exactly_once", "sink_opened"),
        SinkBatch: load_schema("spout.exactly_once", "sink_batch"),
        SinkPart: load_schema("spout.exactly_once", "sink_part"),
    }
    return Codec(types)


def sink_partition(topic: str, partitions: int, group: str) -> TopicPartition:
    """Return the partition that has the records of a group."""
    return TopicPartition(topic, zlib.crc32(group.encode()) % partitions)


def state_records(
    partition: TopicPartition, group: str, granted_epoch: int, last_batch: LastBatch | None
) -> Iterator[Outgoing]:
    """Yield the records of a group's state, to be written in one transaction.

    They take the place of those before. Records of `last_batch`, if there is one: what of its
    publication does not fit into the state, part by part, and the state behind them.

    Args:
        partition: that of `_ack_sink` that has the records of the group.
        group: its name.
        granted_epoch: the epoch that the store granted last.
        last_batch: None: the store has no batch of the group yet.
    """
    if last_batch is None:
        yield _outgoing(partition, _state_key(group), SinkOpened(granted_epoch))
        return
    key = last_batch.key
    batch_fields = (key.epoch, key.session, key.query, key.batch)
    publication = last_batch.publication
    # an empty publication has one part, too
    starts = range(0, max(len(publication), 1), PART_BYTES)
    parts = [publication[start : start + PART_BYTES] for start in starts]
    # the first part is in the state itself, the others have records of their own
    for number, part in enumerate(parts[1:], 1):
        yield _outgoing(partition, _part_key(group, number), SinkPart(*batch_fields, part))
    further_parts = len(parts) - 1
    state = SinkBatch(granted_epoch, *batch_fields, further_parts, parts[0])
    yield _outgoing(partition, _state_key(group), state)


def read_state(records: Iterable[Record], group: str) -> SinkState:
    """Return the state of a group after all committed records of its partition.

    It has the epoch 0 and no batch if there is no record of the group.

    Raises:
        UnknownVersion: a newer Windhover wrote a record of it.
        TrackingError: a record of it cannot be read, or a part is missing.
    """
    newest_by_key: dict[bytes, Record] = {}
    for record in records:
        if record.key is not None and _group_of(record.key) == group.encode():
            newest_by_key[record.key] = record
    state_record = newest_by_key.get(_state_key(group))
    if state_record is None or state_record.value is None:
        return SinkState(0, None)
    match _decoded(state_record, group):
        case SinkOpened(granted_epoch):
            return SinkState(granted_epoch, None)
        case SinkBatch() as state:
            part_keys = [_part_key(group, number) for number in range(1, state.parts + 1)]
            part_records = [newest_by_key.get(key) for key in part_keys]
            return SinkState(state.granted_epoch, _last_batch(group, state, part_records))
        case SinkPart():
            why = "it is a part, under the key of a state"
            raise _unreadable(state_record, group, why)


def _last_batch(group: str, state: SinkBatch, part_records: Iterable[Record | None]) -> LastBatch:
    """Return the batch of a state, with the publication put together.

    `part_records` has the records of the further parts, in order; None: the topic has none.

    Raises `TrackingError`: a part is missing, or cannot be read.
    """
    key = BatchKey(group, state.epoch, state.session, state.query, state.batch)
    publication = [state.publication]
    for record in part_records:
        part = None if record is None or record.value is None else _decoded(record, group)
        # a part of an earlier batch may stand under the key of one that was deleted; without the
        # publication and the group both tuples are epoch, session, query and batch
        if not isinstance(part, SinkPart) or part[:4] != key[1:]:
            raise TrackingError(
                f"the publication of batch {state.batch} of group {group} lacks a part in"
                " `_ack_sink`: somebody has deleted records there. Take the group over without its"
                " store, or restore the topic"
            )
        publication.append(part.publication)
    return LastBatch(key, b"".join(publication))


def _decoded(record: Record, group: str) -> SinkRecord:
    """Return what a record of a group says.

    Raises:
        UnknownVersion: a newer Windhover wrote it.
        TrackingError: a program that is none of Windhover's wrote it.
    """
    try:
        return sink_codec().decode(record.value)
    except UnknownVersion as error:
        raise UnknownVersion(
            f"{record.place} has the last batch of group {group}, and a newer Windhover wrote it"
            f" ({error}); run that one"
        ) from error
    except CodecError as error:
        raise _unreadable(record, group, str(error)) from error


def _unreadable(record: Record, group: str, why: str) -> TrackingError:
    return TrackingError(
        f"{record.place} has the last batch of group {group}, and cannot be read ({why}): a program"
        " that is none of Windhover's wrote it. Nobody knows what the store has of the group; find"
        " out who wrote, and write the record before it again under the same key"
    )


def _outgoing(partition: TopicPartition, key: bytes, value: SinkRecord) -> Outgoing:
    return Outgoing(partition.topic, partition.partition, sink_codec().encode(value), key)


def _state_key(group: str) -> bytes:
    return b"state/" + group.encode()


def _part_key(group: str, number: int) -> bytes:
    return b"part/%d/" % number + group.encode()


def _group_of(key: bytes) -> bytes | None:
    """Return the group of a key, which may have slashes itself; None: it is no key of ours."""
    kind, _, group = key.partition(b"/")
    if kind == b"part":
        _, _, group = group.partition(b"/")
        return group
    return group if kind == b"state" else None
