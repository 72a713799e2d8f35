"""Finds what stops the readers of the ack topics, and marks it so that all readers pass over it.

That is a record of an unknown version in the topics whose readers act by what
it says, and a damaged batch in any topic that a service of ours reads. A *mark*
is a record behind it in the same partition, with which readers pass over it.

Source: `acker.service.passed_over`; docs/design/protocol.md, section 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from acker.config.topics import AckTopics, Topics
from acker.errors import CodecError, UnknownVersion
from acker.kafka.port import Log, Record, TopicPartition
from acker.kafka.read_to_end import pass_damage, read_piece
from acker.listing import range_text
from acker.service.passed_over import (
    likely_writer,
    offset_to_pass_over,
    offsets_to_pass_over,
    passed_over_mark,
)
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
        first_bytes_hex: the first bytes of a record in hex; of a batch empty.
        what_is_wrong: a text for people.
        is_marked: whether readers pass over it, by a mark.
        until: the offset behind a batch; of a record 0.
    """

    partition: TopicPartition
    offset: int
    size: int
    first_bytes_hex: str
    what_is_wrong: str
    is_marked: bool
    until: int = 0

    def __str__(self) -> str:
        mark_text = "; passed over" if self.is_marked else ""
        if self.until:
            location = f"{self.partition.name}@{range_text(self.offset, self.until)}"
            return f"{location}: a damaged batch ({self.what_is_wrong}){mark_text}"
        location = f"{self.partition.name}@{self.offset}"
        first_text = self.first_bytes_hex or "none"
        return f"{location}: {self.size:,} bytes, first {first_text}; {self.what_is_wrong}{mark_text}"


def find_unreadable(log: Log, topics: Topics) -> Iterator[Unreadable]:
    """Yield what stops the readers of the ack topics, by topic and partition.

    Of a partition damaged batches come last. Readers that act by what a record says stop at an
    unreadable one: those of verdicts, of what is due, and of State. The others pass over it.
    """
    names = topics.ack_topics
    wait_ms = topics.replay.limits.operation_timeout_ms
    topic_names = (names.verdict, names.due, names.state, names.init, names.ack, names.fail)
    existing = log.topics(topic_names)
    for topic in topic_names:
        if topic not in existing:
            continue
        for number in range(topics.acker.partitions):
            partition = TopicPartition(topic, number)
            reading = _PartitionReading(log, partition, wait_ms)
            yield from _unreadable_records(names, partition, reading)
            yield from _damaged_batches(log, names, partition, reading.marks)


class _PartitionReading:
    """The committed records of a partition, read while one iterates, past damaged batches.

    Attributes:
        marks: the offsets that each mark among the records is about. They are
            all there once the records are read to the end: a mark stands
            behind what it is about.
    """

    def __init__(self, log: Log, partition: TopicPartition, wait_ms: int) -> None:
        """Prepare to read up to the present stable end.

        `wait_ms` is how long the broker may send nothing.
        """
        self.marks: list[range] = []  # filled while the records are iterated
        self._records = read_piece(
            log,
            partition,
            log.starts([partition])[partition],
            log.stable_ends([partition])[partition],
            committed=True,
            wait_ms=wait_ms,
            on_damage=pass_damage,  # `_damaged_batches` yields what was passed over
        )

    def __iter__(self) -> Iterator[Record]:
        """Yield the records, and remember the marks among them."""
        for record in self._records:
            offsets = offsets_to_pass_over(record)
            if offsets:
                self.marks.append(offsets)
            yield record


def _unreadable_records(
    names: AckTopics, partition: TopicPartition, reading: _PartitionReading
) -> Iterator[Unreadable]:
    """Read a partition to its end, and yield the records that stop its readers."""
    if partition.topic == names.state:
        yield from _unreadable_states(partition, reading)
    elif partition.topic == names.verdict:
        yield from _records_of_unknown_version(partition, reading, wire_codec())
    elif partition.topic == names.due:
        yield from _records_of_unknown_version(partition, reading, due_codec())
    else:
        # init, acks, fails: their readers pass over what they cannot read. The
        # partition is read all the same: only then `log.passed_over` has its
        # damaged batches.
        for _record in reading:
            pass


def _damaged_batches(
    log: Log, names: AckTopics, partition: TopicPartition, marks: Sequence[range]
) -> Iterator[Unreadable]:
    """Yield the damaged batches that were passed over while a partition was read."""
    lost_with_it = LOST_WITH[_attribute_of_topic(names, partition.topic)]
    for run in log.passed_over():
        if (run.topic, run.partition) == partition:
            yield Unreadable(
                partition,
                offset=run.start,
                size=0,
                first_bytes_hex="",
                what_is_wrong=f"{run.why}; with it is lost: {lost_with_it}",
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


def _attribute_of_topic(names: AckTopics, topic: str) -> str:
    """Return which ack topic a topic is: an attribute of `names`, and a key of `LOST_WITH`."""
    return next(attribute for attribute in LOST_WITH if getattr(names, attribute) == topic)


def pass_over(log: Log, unreadable: Sequence[Unreadable], why: str, by: str) -> None:
    """Write the marks with which all readers pass over these; that may be repeated.

    `why` and `by`, who decided it, stand in each mark.
    """
    producer = log.producer()
    try:
        for record in unreadable:
            producer.send(passed_over_mark(record.partition, record.offset, why, by, record.until))
        producer.flush(FLUSH_MS_MAX)
    finally:
        producer.close()


def _records_of_unknown_version(
    partition: TopicPartition, reading: _PartitionReading, codec: Codec[Any]
) -> Iterator[Unreadable]:
    """Yield records of an unknown version; other garbage does not stop their readers."""
    unknown_version: list[Record] = []
    for record in reading:
        # a mark, or a tombstone
        if offset_to_pass_over(record) is not None or record.value is None:
            continue
        try:
            codec.decode(record.value)
        except UnknownVersion:
            unknown_version.append(record)
        except CodecError:  # its readers report it, and go on
            continue
    # only now all marks are known: they stand behind what they are about
    for record in unknown_version:
        yield _describe_unreadable(partition, record, likely_writer(record.value), reading.marks)


def _unreadable_states(partition: TopicPartition, reading: _PartitionReading) -> Iterator[Unreadable]:
    """Yield the unreadable records among the last ones under the keys of State.

    State is written in parts, each under its own key; a reader takes the last
    sound record of each.
    """
    codec = state_codec()
    # by the number of a part: the unreadable records that no sound one follows,
    # each with what is wrong
    unreadable_by_part: dict[int, list[tuple[Record, str]]] = {}
    for record in reading:
        part = part_of_key(partition.partition, record.key)
        if part is None or record.value is None:
            continue
        what_is_wrong = _wrong_with_part(codec, partition.partition, part, record, record.value)
        if what_is_wrong:
            unreadable_by_part.setdefault(part, []).append((record, what_is_wrong))
        else:  # a sound record takes the place of those before it
            unreadable_by_part.pop(part, None)
    # only now all marks are known
    for records_of_part in unreadable_by_part.values():
        for record, what_is_wrong in records_of_part:
            yield _describe_unreadable(partition, record, what_is_wrong, reading.marks)


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


def _describe_unreadable(
    partition: TopicPartition, record: Record, what_is_wrong: str, marks: Sequence[range]
) -> Unreadable:
    """Build the description of an unreadable record.

    `what_is_wrong` is a text; `marks` are the offsets that marks of its
    partition are about.
    """
    value = record.value or b""
    return Unreadable(
        partition,
        offset=record.offset,
        size=len(value),
        first_bytes_hex=value[:FIRST_BYTES].hex(" "),
        what_is_wrong=what_is_wrong,
        is_marked=any(record.offset in mark for mark in marks),
    )
