"""Waits for the verdicts of one input; the only place where a benchmark counts them."""

from __future__ import annotations

import time
from collections.abc import Callable

from acker.config.topics import Input, Topics
from acker.errors import CheckFailed
from acker.identity import input_id_of
from acker.kafka.port import Log, TopicPartition
from acker.wire.codec import wire_codec
from acker.wire.events import SourceRun, Verdicts

POLL_MS = 50


class Settled:
    """Counts the verdicts that come from now on.

    Attributes:
        acked: how many roots were acked so far.
        first_acked_ms: wall time at which an acker wrote the first ACKED verdict; None: there is none yet.
    """

    def __init__(
        self,
        log: Log,
        topics: Topics,
        source: Input,
        *,
        losses: bool = False,
        acked: Callable[[SourceRun], None] = lambda _run: None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin at the present end of the verdicts, for the roots of an input; `losses` are meant to be.

        `acked` is called with each run of roots that is ACKED, when that was read.
        """
        self._losses = losses
        self._is_acked = acked
        self._clock_s = clock_s
        self.acked = 0
        self.first_acked_ms: int | None = None
        self._input_id = source.id
        verdicts = [TopicPartition(topics.ack_topics.verdict, p) for p in range(topics.acker.partitions)]
        self._reader = log.reader(committed=True)
        self._reader.assign(log.ends(verdicts))

    def wait_for(self, roots: int, seconds_max: float) -> tuple[float, float]:
        """Wait until so many roots are ACKED, and leave.

        Returns:
            When the first verdict came and when the last, in monotonic seconds.

        Raises:
            CheckFailed: a root was lost, or the verdicts did not come within `seconds_max`.
        """
        first_at = 0.0
        deadline = self._clock_s() + seconds_max
        while self.acked < roots:
            if self._clock_s() > deadline:
                raise CheckFailed(f"{self.acked} of {roots} roots were acked in {seconds_max:.0f} s")
            found = self._poll()
            first_at = first_at or (self._clock_s() if found else 0.0)
            self.acked += found
        self._reader.close()
        return first_at, self._clock_s()

    def _poll(self) -> int:
        """Return how many roots were acked by what came in."""
        acked, codec = 0, wire_codec()
        for record in self._reader.poll(POLL_MS):
            event = codec.decode(record.value)
            if not isinstance(event, Verdicts):
                continue
            for run in event.acked:
                if self._is_ours(run.source):
                    if self.first_acked_ms is None or record.timestamp_ms < self.first_acked_ms:
                        self.first_acked_ms = record.timestamp_ms
                    self._is_acked(run)
                    acked += run.end - run.start
            lost = next((each for each in event.lost if self._is_ours(each.source)), None)
            if lost is not None and not self._losses:
                raise CheckFailed(f"roots were lost: {lost.reason} {lost.error} {lost.message}")
        return acked

    def _is_ours(self, source: int) -> bool:
        return input_id_of(source) == self._input_id
