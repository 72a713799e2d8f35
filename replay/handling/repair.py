"""Finds what stops the readers of the ack topics, and marks it so that all readers pass over it.

That is a record of an unknown version in the topics whose readers act by what
it says, and a damaged batch in any topic that a service of ours reads.

Source: `acker.service.passed_over`; docs/design/protocol.md, section 4.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from acker.config.topics import AckTopics, Topics
from acker.errors import CodecError, UnknownVersion
from acker.kafka.port import Log, Record, TopicPartition
from acker.kafka.read_to_end import pass_damage, read_piece
from acker.service.passed_over import likely_writer, marked_offset, marked_offsets, passed_over_mark
from acker.service.state import StatePart, Stored, is_sound_part, part_of_key, state_codec
from acker.wire.codec import Codec, wire_codec
from replay.records.due import due_codec

FLUSH_MS_MAX = 30_000
"""How long the broker may take to make the marks durable."""

FIRST_BYTES = 16
"""So many bytes of an unreadable record are shown."""


class Unreadable(NamedTuple):
    """What stops its readers: a record, or the offsets of a damaged batch.

    Attributes:
        offset: of the record, or the first one of the batch.
        size: how many bytes a record has; of a batch 0.
        first: the first bytes of a record in hex; of a batch empty.
        kind: what is wrong with it.
        is_marked: whether readers pass over it, by a mark.
        until: the offset behind a batch; of a record 0.
    """

    place: TopicPartition
    offset: int
    size: int
    first: str
    kind: str
    is_marked: bool
    until: int = 0

    def __str__(self) -> str:
        mark_text = "; passed over" if self.is_marked else ""
        location = f"{self.place.topic}/{self.place.partition}@{self.offset}"
        if self.until:
            return f"{location} to {self.until}: a damaged batch ({self.kind}){mark_text}"
        return f"{location}: {self.size:,} bytes, first {self.first or 'none'}; {self.kind}{mark_text}"


def find_unreadable(log: Log, topics: Topics) -> Iterator[Unreadable]:
    """Yield what stops the readers of the ack topics, by topic and partition.

    Of a partition damaged batches come last. Readers that act by what a record says stop at an
    unreadable one: those of verdicts, of what is due, and of State. The others pass over it.
    """
    names = topics.ack_topics
    wait_ms = topics.replay.limits.operation_timeout_ms
    codecs: dict[str, Codec[Any]] = {names.verdict: wire_codec(), names.due: due_codec()}
    readable_topics = (names.verdict, names.due, names.state, names.init, names.ack, names.fail)
    existing = log.topics(readable_topics)
    for topic in readable_topics:
        if topic not in existing:
            continue
        for number in range(topics.acker.partitions):
            place = TopicPartition(topic, number)
            start = log.starts([place])[place]
            end = log.stable_ends([place])[place]
            piece = read_piece(log, place, start, end, committed=True, wait_ms=wait_ms, on_damage=pass_damage)
            marks: list[range] = []  # filled while the records are read
            records = _collecting_marks(piece, marks)
            if topic == names.state:
                yield from _unreadable_states(place, records, marks)
            elif topic in codecs:
                yield from _records_of_unknown_version(place, records, codecs[topic], marks)
            else:
                deque(records, maxlen=0)  # read to the end, for the damaged batches alone
            lost_with_it = LOST_WITH[_kind_of_topic(names, topic)]
            for run in log.passed_over():
                if (run.topic, run.partition) == place:
                    yield Unreadable(
                        place,
                        offset=run.start,
                        size=0,
                        first="",
                        kind=f"{run.why}; with it is lost: {lost_with_it}",
                        is_marked=any(mark.start <= run.start and run.end <= mark.stop for mark in marks),
                        until=run.end,
                    )


LOST_WITH: Final[Mapping[str, str]] = MappingProxyType(
    {
        "init": "what spouts announced there; restart the queries, which emit again what has no verdict",
        "ack": "what was acked there; those roots time out and are replayed",
        "fail": "what failed there; those roots time out and are replayed, without their causes",
        "verdict": "which roots were settled there; restart the queries. Nobody replays what those verdicts"
        " lost: `windhover offsets reset` to a place before them emits it again",
        "due": "which roots waited there for their replay: `windhover offsets reset` to a place before them"
        " emits them again",
        "state": "an acker's state; the one before it counts, where the topic still has it whole",
    }
)
"""What an operator gives up with a damaged batch, and how it is had again."""


def _kind_of_topic(names: AckTopics, topic: str) -> str:
    """Return which of the ack topics a topic is: a key of `LOST_WITH`."""
    return next(kind for kind in LOST_WITH if getattr(names, kind) == topic)


def _collecting_marks(records: Iterator[Record], marks: list[range]) -> Iterator[Record]:
    """Yield records, and add to `marks` which offsets the marks among them are about."""
    for record in records:
        offsets = marked_offsets(record)
        if offsets:
            marks.append(offsets)
        yield record


def pass_over(log: Log, unreadable: Sequence[Unreadable], why: str, by: str) -> None:
    """Write the marks with which all readers skip these records; the command may be repeated."""
    producer = log.producer()
    try:
        for record in unreadable:
            producer.send(passed_over_mark(record.place, record.offset, why, by, record.until))
        producer.flush(FLUSH_MS_MAX)
    finally:
        producer.close()


def _records_of_unknown_version(
    place: TopicPartition, records: Iterator[Record], codec: Codec[Any], marks: list[range]
) -> Iterator[Unreadable]:
    """Yield records of an unknown version; other garbage does not stop the readers of these topics.

    `marks` is filled while `records` is read (`_collecting_marks`).
    """
    unknown_version: list[Record] = []
    for record in records:
        if marked_offset(record) is None and record.value is not None:
            try:
                codec.decode(record.value)
            except UnknownVersion:
                unknown_version.append(record)
            except CodecError:
                continue
    # only now `marks` has all of them: they stand behind the records that they
    # are about
    for record in unknown_version:
        yield _unreadable(place, record, likely_writer(record.value), marks)


def _unreadable_states(
    place: TopicPartition, records: Iterator[Record], marks: list[range]
) -> Iterator[Unreadable]:
    """Yield the unreadable records among the last ones under the keys of State.

    `marks` is filled while `records` is read (`_collecting_marks`).
    """
    codec = state_codec()
    # by part of State: the unreadable records that no sound one follows, each
    # with what is wrong
    unreadable: dict[int, list[tuple[Record, str]]] = {}
    for record in records:
        part = part_of_key(place.partition, record.key)
        if part is None or record.value is None:
            continue
        kind = _wrong_with_part(codec, place.partition, part, record, record.value)
        if kind:
            unreadable.setdefault(part, []).append((record, kind))
        else:
            unreadable.pop(part, None)
    for records_of_part in unreadable.values():
        for record, kind in records_of_part:
            yield _unreadable(place, record, kind, marks)


def _wrong_with_part(codec: Codec[Stored], partition: int, part: int, record: Record, value: bytes) -> str:
    """Return what is wrong with a record under the key of a part of State; empty: it is sound."""
    try:
        state = codec.decode(value)
    except CodecError:
        return likely_writer(value)
    if not isinstance(state, StatePart) or (state.partition, state.part) != (partition, part):
        return "not the part of this partition's State that its key names"
    if not is_sound_part(codec, part, record):
        return "a part of State that does not unpack, or to more than is read"
    return ""


def _unreadable(place: TopicPartition, record: Record, kind: str, marks: Sequence[range]) -> Unreadable:
    """Describe a record that stops its readers, unless one of the marks is about it."""
    value = record.value or b""
    return Unreadable(
        place,
        offset=record.offset,
        size=len(value),
        first=value[:FIRST_BYTES].hex(" "),
        kind=kind,
        is_marked=any(record.offset in mark for mark in marks),
    )
