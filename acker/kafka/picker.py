"""Picking single records out of Kafka's logs, near each other or far between.

A consumer that fetches far ahead pays for each jump: with 8 MB of a partition under way one takes 170 ms,
with 64 KB 3 to 10 ms, and reads straight on as fast. The broker sends whole batches all the same.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from types import MappingProxyType
from typing import Any

from confluent_kafka import Message

from acker.hot_paths import uncollected
from acker.kafka import reader as kafka_reader
from acker.kafka.client import KafkaClient
from acker.kafka.port import Picked, Record, TopicPartition
from acker.kafka.reader import KafkaReader, record_of

DEFAULTS: Mapping[str, Any] = MappingProxyType({**kafka_reader.DEFAULTS, "max.partition.fetch.bytes": 65_536})

_Last = Mapping[tuple[str, int], int]
_Offsets = Mapping[TopicPartition, Container[int]]


class KafkaPicker(KafkaReader):
    """Reads single committed records; implements `acker.kafka.port.Picker`."""

    def __init__(self, client: KafkaClient) -> None:
        super().__init__(client, committed=True, defaults=DEFAULTS)
        self._offsets: _Offsets = {}
        self._passed = self._passed_bytes = 0

    def pick(self, timeout_ms: int, offsets: _Offsets, max_records: int = 1000) -> Picked:
        self._offsets, self._passed, self._passed_bytes = offsets, 0, 0
        return Picked(self.poll(timeout_ms, max_records), self._passed, self._passed_bytes)

    def _records(self, first: Message, max_records: int) -> tuple[list[Record], bool]:
        with uncollected():
            messages, events = self._queued(first, max_records)
            last, kept = self._alone(messages) if self._are_alone(messages) else self._several(messages)
            records = [record_of(message) for message in kept]
            # a message's length is that of its value
            self._passed_bytes += sum(map(len, messages)) - sum(map(len, kept))
        self._passed += len(messages) - len(kept)
        self._advance(last)
        return records, self._note(events) or bool(messages)

    def _are_alone(self, messages: list[Message]) -> bool:
        return len(self._positions) == 1 and all(
            (message.topic(), message.partition()) in self._positions
            for message in (*messages[:1], *messages[-1:])
        )

    def _alone(self, messages: list[Message]) -> tuple[_Last, list[Message]]:
        """Return the last offset and what is wanted, where all messages are of one partition."""
        if not messages:
            return {}, []
        (name,) = self._positions
        offsets = self._offsets.get(name, ())
        return {name: messages[-1].offset() or 0}, [m for m in messages if m.offset() in offsets]

    def _several(self, messages: list[Message]) -> tuple[_Last, list[Message]]:
        last: dict[tuple[str, int], int] = {}
        kept: list[Message] = []
        for message in messages:
            name, offset = TopicPartition(message.topic() or "", message.partition() or 0), message.offset()
            last[name] = offset or 0
            if offset in self._offsets.get(name, ()):
                kept.append(message)
        return last, kept
