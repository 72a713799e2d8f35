"""Reads the state of all inputs again and again, and keeps the latest for every tab."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from acker.config.topics import Topics
from acker.errors import WindhoverError
from acker.kafka.port import Log
from spout.inspect.failures import FirstFailures, SeenCause
from spout.inspect.overview import Snapshot
from spout.inspect.readings import Reading
from spout.inspect.summary import History, Point, RateSeries, VerdictCounts
from spout.ui.attention import Attention, Flag

EVERY_S: Final = 0.3
"""The pause between two readings while a tab is open: what changes is on the screen within a second."""

IDLE_EVERY_S: Final = 5.0
"""The pause while no tab is open."""

PAGE_READ_MAX: Final = 20_000
"""So many records of one topic are read at once, so that the page goes on while it fills."""

CHECK_EVERY_S: Final = 0.05
"""How soon a tab that was opened, or a new moment, is noticed."""

NO_CAUSES: Final[Reading[Sequence[SeenCause]]] = Reading(())


@dataclass(frozen=True, slots=True)
class LatestState:
    """What all pages show; `number` counts the readings from 1, and 0 says that nothing was read yet."""

    number: int
    snapshot: Snapshot
    flags: Sequence[Flag] = ()
    series: Mapping[tuple[str, str], Sequence[Point]] = field(default_factory=dict)
    causes: Reading[Sequence[SeenCause]] = NO_CAUSES
    rates: Mapping[str, RateSeries] = field(default_factory=dict)


class Watch:
    """The latest `LatestState`. What it reads with is used by one thread at a time.

    Attributes:
        tabs: how many are open.
        is_over: whether the process ends; then all streams end too.
    """

    def __init__(
        self,
        read: Callable[[int], Snapshot],
        topics: Topics,
        now_ms: Callable[[], int],
        causes: Callable[[int], Reading[Sequence[SeenCause]]] = lambda _: NO_CAUSES,
        rates: Callable[[int], Mapping[str, RateSeries]] = lambda _: {},
        is_filling: Callable[[], bool] = lambda: False,
    ) -> None:
        """Prepare. `read` returns the state as of a wall time, and may block, and `causes` those of failures;
        `rates` returns the verdicts that `causes` has read; `now_ms` is the wall clock. While `is_filling`
        there is more to read at once.
        """
        self._is_filling = is_filling
        self._read = read
        self._causes = causes
        self._rates = rates
        self._topics = topics
        self._attention = Attention(topics)
        self._history = History()
        self.now_ms = now_ms
        self.tabs = 0
        self.is_over: Callable[[], bool] = lambda: False
        self.latest = LatestState(0, Snapshot(now_ms(), ()))

    async def run(self) -> None:
        """Read until `is_over`."""
        while not self.is_over():
            await asyncio.to_thread(self.read)
            waited_s = 0.0
            while waited_s < self.pause_s and not self.is_over():
                await asyncio.sleep(CHECK_EVERY_S)
                waited_s += CHECK_EVERY_S

    @property
    def pause_s(self) -> float:
        """The pause until the next reading: short while somebody looks, or much is left to read."""
        return EVERY_S if self.tabs or self._is_filling() else IDLE_EVERY_S

    def read(self) -> None:
        """Read once."""
        snapshot = self._read(self.now_ms())
        away = snapshot.away
        causes = self._causes(snapshot.at_ms) if away is None else Reading(unknown=str(away))
        flags = self._attention.check(snapshot, causes.value or ())
        series = self._history.put(snapshot, self._topics)
        rates = self._rates(snapshot.at_ms)
        self.latest = LatestState(self.latest.number + 1, snapshot, flags, series, causes, rates)

    @contextmanager
    def tab(self) -> Iterator[None]:
        """Read often as long as the context lasts."""
        self.tabs += 1
        try:
            yield
        finally:
            self.tabs -= 1


class CauseWatch:
    """Follows the causes of failures, and counts verdicts; a call of `read` reads `read_max` records."""

    def __init__(self, log: Log, topics: Topics, read_max: int = PAGE_READ_MAX) -> None:
        self._log = log
        self._topics = topics
        self._read_max = read_max
        self._failures: FirstFailures | None = None
        self._counts = VerdictCounts()
        self._is_whole = False

    def is_filling(self) -> bool:
        """Return whether the last call of `read` has left something to be read."""
        return self._failures is not None and not self._is_whole

    def read(self, now_ms: int) -> Reading[Sequence[SeenCause]]:
        """Return the causes as of a wall time; they are unknown until all verdicts were read."""
        try:
            if self._failures is None:
                self._failures = FirstFailures(self._log, self._topics, now_ms, self._read_max)
            found = self._failures.read(now_ms)
            self._is_whole = not found.unknown
        except WindhoverError as error:
            self.close()
            return Reading(unknown=str(error))
        if self._failures.counts.counted_to_ms:  # until then those of before an error are shown
            self._counts = self._failures.counts
        return found

    def rates(self, now_ms: int) -> Mapping[str, RateSeries]:
        """Return the verdicts of each input up to a wall time, as far as `read` has read them."""
        return self._counts.series(self._topics.inputs, now_ms)

    def close(self) -> None:
        if self._failures is not None:
            self._failures.close()
        self._failures = None
