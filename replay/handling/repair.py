"""Finds the records of the ack topics that stop their readers, and marks them so that all readers skip them.

Source: `acker.service.passed_over`; docs/design/protocol.md, section 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from acker.config.topics import Topics
from acker.errors import CodecError, UnknownVersion
from acker.kafka.port import Log, Record, TopicPartition
from acker.kafka.reading import read_piece
from acker.service.passed_over import kind_of, marked_offset, passed_over_mark
from acker.service.state import StatePart, part_of_key, state_codec
from acker.wire.codec import Codec, wire_codec
from replay.records.due import due_codec

FLUSH_MS_MAX = 30_000
"""How long the broker may take to make the marks durable."""

FIRST_BYTES = 16


class Unreadable(NamedTuple):
    """A record that stops its readers, unless it `is_marked`; `first` are some bytes in hex."""

    place: TopicPartition
    offset: int
    size: int
    first: str
    kind: str
    is_marked: bool

    def __str__(self) -> str:
        done = "; passed over" if self.is_marked else ""
        where = f"{self.place.topic}/{self.place.partition}@{self.offset}"
        return f"{where}: {self.size:,} bytes, first {self.first or 'none'}; {self.kind}{done}"


def find_unreadable(log: Log, topics: Topics) -> Iterator[Unreadable]:
    """Yield the records of `_ack_verdict`, `_ack_due` and `_ack_state` that stop their readers."""
    names, wait_ms = topics.ack_topics, topics.replay.limits.operation_timeout_ms
    codecs: dict[str, Codec[Any]] = {names.verdict: wire_codec(), names.due: due_codec()}
    for topic in (names.verdict, names.due, names.state):
        for number in range(topics.acker.partitions):
            place = TopicPartition(topic, number)
            start, end = log.starts([place])[place], log.stable_ends([place])[place]
            records = read_piece(log, place, start, end, committed=True, wait_ms=wait_ms)
            if topic == names.state:
                yield from _of_state(place, records)
            else:
                yield from _of(place, records, codecs[topic])


def pass_over(log: Log, found: Sequence[Unreadable], why: str, by: str) -> None:
    """Write the marks with which all readers skip these records; the command may be repeated."""
    producer = log.producer()
    try:
        for one in found:
            producer.send(passed_over_mark(one.place, one.offset, why, by))
        producer.flush(FLUSH_MS_MAX)
    finally:
        producer.close()


def _of(place: TopicPartition, records: Iterator[Record], codec: Codec[Any]) -> Iterator[Unreadable]:
    """Yield records of an unknown version; other garbage does not stop the readers of these topics."""
    found: dict[int, Record] = {}
    marked: set[int] = set()
    for record in records:
        offset = marked_offset(record)
        if offset is not None:
            marked.add(offset)
        elif record.value is not None:
            try:
                codec.decode(record.value)
            except UnknownVersion:
                found[record.offset] = record
            except CodecError:
                continue
    yield from (_unreadable(place, record, kind_of(record.value), marked) for record in found.values())


def _of_state(place: TopicPartition, records: Iterator[Record]) -> Iterator[Unreadable]:
    """Yield the unreadable records among the last ones under the keys of State."""
    codec, marked = state_codec(), set[int]()
    found: dict[int, list[tuple[Record, str]]] = {}
    for record in records:
        part, offset = part_of_key(place.partition, record.key), marked_offset(record)
        if offset is not None:
            marked.add(offset)
        if part is None or record.value is None:
            continue
        kind = "not the part of this partition's State that its key names"
        try:
            state = codec.decode(record.value)
        except CodecError:
            state, kind = None, kind_of(record.value)
        if isinstance(state, StatePart) and (state.partition, state.part) == (place.partition, part):
            found.pop(part, None)
        else:
            found.setdefault(part, []).append((record, kind))
    yield from (_unreadable(place, record, kind, marked) for each in found.values() for record, kind in each)


def _unreadable(place: TopicPartition, record: Record, kind: str, marked: set[int]) -> Unreadable:
    value = record.value or b""
    first = value[:FIRST_BYTES].hex(" ")
    return Unreadable(place, record.offset, len(value), first, kind, record.offset in marked)
