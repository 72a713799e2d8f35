"""Exact ranges from a real broker: control records, aborted records, ends, kept consumers, lost records."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from acker.errors import DataLoss
from acker.kafka_admin import KafkaAdmin
from acker.kafka_log import KafkaLog
from acker.log import Outgoing, TopicPartition
from spout.consume import Kept, RangeReader
from tests.brokers import Broker

FLUSH_MS = 30_000


class Topic:
    """A topic of one partition, and what is read from it."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.name = name
        self.settings = {"bootstrap.servers": broker.bootstrap}
        self.log = KafkaLog(self.settings)
        admin = KafkaAdmin(self.settings)
        admin.create({name: (1, {})})
        self.kept = Kept()

    def write(self, *values: bytes) -> None:
        """Write records outside any transaction."""
        producer = self.log.producer()
        for value in values:
            producer.send(Outgoing(self.name, 0, value))
        producer.flush(FLUSH_MS)
        producer.close()

    def transact(self, *values: bytes, commit: bool) -> None:
        """Write records in a transaction, which ends with one control record."""
        transactions = self.log.transactions(f"{self.name}-{commit}")
        transactions.init(FLUSH_MS)
        transactions.begin()
        for value in values:
            transactions.send(Outgoing(self.name, 0, value))
        if commit:
            transactions.commit(FLUSH_MS)
        else:
            transactions.abort(FLUSH_MS)
        transactions.close()

    def read(self, start: int, end: int) -> list[tuple[int, bytes | None]]:
        """Read a range, as one read task after another does in one worker."""
        reader = RangeReader(self.settings, self.name, 0, start, end, self.kept)
        chunks: Sequence[list[object]] = list(reader.chunks())  # type: ignore[assignment]
        return [(m.offset(), m.value()) for chunk in chunks for m in chunk]  # type: ignore[attr-defined]
