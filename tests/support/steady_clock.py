"""A clock that a test sets, in place of the monotonic one, and the lines of our Kafka client by it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest


@dataclass
class SteadyClock:
    """Monotonic seconds that stand until a test moves them."""

    now_s: float = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def client_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what the client of Kafka has logged: of a broker that is away or slow."""
    return [record.getMessage() for record in caplog.records if record.name == "acker.kafka.client"]
