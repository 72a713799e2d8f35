"""Reads the state of all inputs again and again, and keeps the latest for every tab."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

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
    file_note: str = ""
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
        self.file_note = ""
        """Why the page does not show what its topics.yaml has now; empty: it does."""
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
        self.latest = LatestState(
            self.latest.number + 1, snapshot, flags, series, causes, self.file_note, rates
        )

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


class TopicsFile:
    """The topics.yaml of a page; it may change while the page is served.

    Attributes:
        note: why its present text is not what the page shows; empty: it is.
    """

    def __init__(self, path: Path, load: Callable[[], Topics]) -> None:
        """Begin with what the file has now, which the page shows; `load` loads it."""
        self._path = path
        self._load = load
        self._seen = self._text()
        self.note = ""

    def renewed(self, *, may_change: bool) -> Topics | None:
        """Return what the file has, if it has changed since and can be loaded; else None, and `note`.

        While the page `may_change` nothing, since a redrive runs in it, the change waits.
        """
        text = self._text()
        if text in (None, self._seen):
            return None
        if not may_change:
            self.note = (
                "topics.yaml has changed; this page shows it when the redrive that runs here has ended"
            )
            return None
        self._seen = text
        try:
            topics = self._load()
        except WindhoverError as error:
            self.note = f"topics.yaml has changed and cannot be read, so this page shows what it was: {error}"
            return None
        self.note = ""
        return topics

    def _text(self) -> bytes | None:
        """Return its bytes; None: it cannot be read just now, as while somebody replaces it."""
        try:
            return self._path.read_bytes()
        except OSError:
            return None


FILE_EVERY_S: Final = 1.0
"""So often the page looks whether its topics.yaml has changed."""

Application = Callable[[Any, Any, Any], Awaitable[None]]
"""An ASGI application."""


class ServedPages(NamedTuple):
    """The pages of one topics.yaml, and what reads for them.

    `is_idle` says whether no redrive runs here, so that they may be replaced; `stop_work` ends those that do.
    """

    application: Application
    watch: Watch
    is_idle: Callable[[], bool] = lambda: True
    stop_work: Callable[[], None] = lambda: None


class Site:
    """What is served: the pages of the newest topics.yaml that could be loaded. An ASGI application.

    1. A changed file is loaded, and pages are built for it; they read once before anybody sees them.
    2. Requests go to these from then on. Streams of the former ones end, and a browser opens them again.
    3. What the former ones have open is closed.

    Attributes:
        is_over: whether the process ends.
    """

    def __init__(
        self, build: Callable[[ExitStack, Topics], ServedPages], topics: Topics, file: TopicsFile | None
    ) -> None:
        """Build the pages of `topics`. `file` is what they were loaded from; None: it never changes."""
        self._build = build
        self._file = file
        self._stack = ExitStack()
        self._pages = build(self._stack, topics)
        self._file_looked_s = time.monotonic()
        self._renewed: Topics | None = None
        self.is_over: Callable[[], bool] = lambda: False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer with the present pages."""
        await self._pages.application(scope, receive, send)

    async def run(self) -> None:
        """Read, and replace the pages when the file has changed, until `is_over`."""
        while not self.is_over():
            self._pages.watch.is_over = self._is_replaced
            await self._pages.watch.run()
            if self._renewed is not None and not self.is_over():
                await asyncio.to_thread(self._replace, self._renewed)
                self._renewed = None

    def stop(self) -> None:
        """End the redrives that run here, while a last reading may still run."""
        self._pages.stop_work()

    def close(self) -> None:
        self._stack.close()

    def _is_replaced(self) -> bool:
        """Return whether the present pages are to end: since all does, or others take their place."""
        if self.is_over() or self._renewed is not None:
            return True
        now_s = time.monotonic()
        if self._file is not None and now_s - self._file_looked_s >= FILE_EVERY_S:
            self._file_looked_s = now_s
            self._renewed = self._file.renewed(may_change=self._pages.is_idle())
            self._pages.watch.file_note = self._file.note
        return self._renewed is not None

    def _replace(self, topics: Topics) -> None:
        stack = ExitStack()
        pages = self._build(stack, topics)
        pages.watch.read()
        former, former_stack = self._pages, self._stack
        former.watch.is_over = lambda: True  # for its streams, which ask as long as they live
        self._pages, self._stack = pages, stack
        former_stack.close()
