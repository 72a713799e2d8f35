"""A client of Kafka that makes what a test gives it, in place of what connects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from acker.kafka.client import Background, KafkaClient, T


class GivenClient(KafkaClient):
    """Calls a function of the test with the settings that a real consumer or producer would get."""

    def __init__(
        self,
        make: Callable[[dict[str, Any]], Any],
        timeout_ms: int,
        clock: Callable[[], float],
        sleep: Callable[[float], None] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Keep what to make. `clock` gives steady seconds; without `sleep` nobody may have to wait."""
        named = {"bootstrap.servers": "kafka:9092", **(settings or {})}
        super().__init__(named, "test", timeout_ms, clock, sleep or _must_not_wait)
        self._make = make

    def make_client(
        self,
        kind: Callable[[dict[str, Any]], T],
        defaults: Mapping[str, Any],
        forced: Mapping[str, Any],
        background: Background,
    ) -> T:
        made: T = super().make_client(self._make, defaults, forced, background)
        return made


def _must_not_wait(_seconds: float) -> None:
    raise AssertionError("a test without a sleep of its own has come to wait")
