"""Logs in memory from which the readers of `spout.streaming.consume` read, by a clock that stands."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Final

import pytest

from acker.kafka.client import KafkaClient
from acker.kafka.port import TopicPartition
from spout.streaming import consume
from tests.support.fake_consumer import FakeKafka

LINES: Final = TopicPartition("lines", 0)
SETTINGS: Final = {"bootstrap.servers": "kafka:9092"}


def range_logs(monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    """Return logs; all consumers of a read task read from them until the test ends."""
    kafka = FakeKafka()

    def client(settings: Mapping[str, str], _name: str, timeout_ms: int, _clock: object) -> KafkaClient:
        return kafka.client(settings, timeout_ms)

    monkeypatch.setattr(consume, "KafkaClient", client)
    monkeypatch.setattr(consume, "time", SimpleNamespace(monotonic=kafka.clock))
    return kafka
