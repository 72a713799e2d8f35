"""Reads the state of all inputs again and again for the pages, and takes a newer topics.yaml.

`Watch` reads, and keeps the latest state for every tab; `CauseWatch` reads the causes of failures
for it. `TopicsFile` notices that the file has changed, and `Site` replaces the pages by new ones.
"""

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
"""The pause between two readings while a tab is open: it shows a change within a second."""

IDLE_EVERY_S: Final = 5.0
"""The pause while no tab is open."""

PAGE_READ_MAX: Final = 20_000
"""How many records of one topic are read at once, so that the page answers while it fills."""

CHECK_EVERY_S: Final = 0.05
"""How soon it is noticed that a tab was opened, or that the watch is over."""

NO_CAUSES: Final[Reading[Sequence[SeenCause]]] = Reading(())


@dataclass(frozen=True, slots=True)
class LatestState:
    """What all pages show.

    Attributes:
        reading_number: counts the readings from 1; 0: nothing was read yet.
        series: the figures of the last fifteen minutes, by input and name of the figure.
        causes: the causes of failures.
        file_note: why the page does not show what its topics.yaml has now; empty: it does.
        rates: how many verdicts there were in the last fifteen minutes, by input.
    """

    reading_number: int
    snapshot: Snapshot
    flags: Sequence[Flag] = ()
    series: Mapping[tuple[str, str], Sequence[Point]] = field(default_factory=dict)
    causes: Reading[Sequence[SeenCause]] = NO_CAUSES
    file_note: str = ""
    rates: Mapping[str, RateSeries] = field(default_factory=dict)


class Watch:
    """Reads again and again, and keeps the `LatestState`; one thread at a time reads.

    Attributes:
        now_ms: the wall clock.
        tabs: how many are open.
        is_over: returns whether to end, which ends the streams of all tabs too.
        file_note: why the page does not show what its topics.yaml has now; empty: it does.
        latest: what the pages show.
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
        """Prepare; nothing is read yet.

        Args:
            read: returns the state as of a wall time, and may block.
            causes: reads and returns the causes of failures as of a wall time.
            rates: returns how many verdicts of each input `causes` has read, up to a wall time.
            is_filling: returns whether `causes` has stopped before the end, and has to go on.
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
        self.latest = LatestState(0, Snapshot(now_ms(), ()))

    async def run(self) -> None:
        """Read until `is_over`."""
        while not self.is_over():
            await asyncio.to_thread(self.read)
            waited_s = 0.0
            # the pause becomes shorter when somebody opens a tab meanwhile
            while waited_s < self.pause_s and not self.is_over():
                await asyncio.sleep(CHECK_EVERY_S)
                waited_s += CHECK_EVERY_S

    @property
    def pause_s(self) -> float:
        """The pause until the next reading: short while somebody looks, or much is left to read."""
        return EVERY_S if self.tabs or self._is_filling() else IDLE_EVERY_S

    def read(self) -> None:
        """Read once, and replace `latest`."""
        snapshot = self._read(self.now_ms())
        if snapshot.broker_error is None:
            causes = self._causes(snapshot.at_ms)
        else:  # no broker answers, so a second question would only wait for it again
            causes = Reading(unknown=str(snapshot.broker_error))
        flags = self._attention.check(snapshot, causes.value or ())
        series = self._history.record(snapshot, self._topics)
        rates = self._rates(snapshot.at_ms)
        self.latest = LatestState(
            reading_number=self.latest.reading_number + 1,
            snapshot=snapshot,
            flags=flags,
            series=series,
            causes=causes,
            file_note=self.file_note,
            rates=rates,
        )

    @contextmanager
    def open_tab(self) -> Iterator[None]:
        """Count a tab as open while the context lasts: while one is open, readings come often."""
        self.tabs += 1
        try:
            yield
        finally:
            self.tabs -= 1


class CauseWatch:
    """Follows the causes of failures, and counts verdicts; a `read` reads `read_max` records."""

    def __init__(self, log: Log, topics: Topics, read_max: int = PAGE_READ_MAX) -> None:
        self._log = log
        self._topics = topics
        self._read_max = read_max
        self._first_failures: FirstFailures | None = None  # None: the next call of `read` begins anew
        self._last_counts = VerdictCounts()
        self._has_read_all = False  # whether all verdicts were read in the last call

    def is_filling(self) -> bool:
        """Return whether the last call of `read` has left something to be read."""
        return self._first_failures is not None and not self._has_read_all

    def read(self, now_ms: int) -> Reading[Sequence[SeenCause]]:
        """Return the causes as of a wall time; they are unknown until all verdicts were read."""
        try:
            if self._first_failures is None:
                self._first_failures = FirstFailures(self._log, self._topics, now_ms, self._read_max)
            causes = self._first_failures.read(now_ms)
            self._has_read_all = not causes.unknown
        except WindhoverError as error:
            self.close()  # the next call begins anew
            return Reading(unknown=str(error))
        # 0: a new FirstFailures has not read all verdicts yet, so the former counts stay
        counts = self._first_failures.counts
        if counts.counted_to_ms:
            self._last_counts = counts
        return causes

    def rates(self, now_ms: int) -> Mapping[str, RateSeries]:
        """Return the verdicts of each input up to a wall time, as far as `read` has read them."""
        return self._last_counts.series(self._topics.inputs, now_ms)

    def close(self) -> None:
        """Stop following; the counts of verdicts stay."""
        if self._first_failures is not None:
            self._first_failures.close()
        self._first_failures = None


class TopicsFile:
    """Follows the topics.yaml of a page, which may change while the page is served.

    Attributes:
        note: why its present text is not what the page shows; empty: it is.
    """

    def __init__(self, path: Path, load: Callable[[], Topics]) -> None:
        """Begin with the present text of the file, which the page shows; `load` loads the file."""
        self._path = path
        self._load = load
        self._handled_text = self._text()
        self._handled_note = ""  # why `_handled_text` could not be taken; empty: the page shows it
        self.note = ""

    def load_if_changed(self, *, may_change: bool) -> Topics | None:
        """Load the file if its text is new, and record in `note` why it cannot be taken.

        Args:
            may_change: False while a redrive runs in the page: then the change waits.

        Returns:
            The newer topics, once; None: the file has not changed, or cannot be taken.
        """
        text = self._text()
        if text is None:
            return None
        if text == self._handled_text:
            # it may have changed and changed back while a redrive ran
            self.note = self._handled_note
            return None
        if not may_change:
            cause = "when the redrive that runs here has ended"
            self.note = f"topics.yaml has changed; this page shows it {cause}"
            return None
        # also if the file cannot be loaded, so that it is not tried again each second
        self._handled_text = text
        try:
            topics = self._load()
        except WindhoverError as error:
            why = "topics.yaml has changed and cannot be read, so this page shows what it was"
            self.note = self._handled_note = f"{why}: {error}"
            return None
        self.note = self._handled_note = ""
        return topics

    def _text(self) -> bytes | None:
        """Return the file's bytes; None: it cannot be read, as while somebody replaces it."""
        try:
            return self._path.read_bytes()
        except OSError:
            return None


FILE_EVERY_S: Final = 1.0
"""How often the page looks whether its topics.yaml has changed."""

Application = Callable[[Any, Any, Any], Awaitable[None]]
"""An ASGI application."""


class ServedPages(NamedTuple):
    """The pages of one topics.yaml, and what reads for them.

    Attributes:
        is_idle: returns whether no redrive runs in them, so that they may be replaced.
        stop_work: ends the redrives that run in them.
    """

    application: Application
    watch: Watch
    is_idle: Callable[[], bool] = lambda: True
    stop_work: Callable[[], None] = lambda: None


class Site:
    """An ASGI application that serves the pages of the newest topics.yaml that could be loaded.

    When the file changes:

    1. It is loaded, and new pages are built for it. They read once before anybody sees them.
    2. Requests go to the new pages. The streams of the former ones end; browsers open them again.
    3. What the former pages have open is closed.

    Attributes:
        is_over: returns whether the process ends.
    """

    def __init__(
        self, build: Callable[[ExitStack, Topics], ServedPages], topics: Topics, file: TopicsFile | None
    ) -> None:
        """Build the pages of `topics`, which `file` has; None: they were not loaded from a file."""
        self._build = build
        self._file = file
        self._stack = ExitStack()  # closes what the present pages have open
        self._pages = build(self._stack, topics)
        self._file_checked_s = time.monotonic()
        # of a file that has changed, for which pages are still to be built
        self._newer_topics: Topics | None = None
        self.is_over: Callable[[], bool] = lambda: False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer with the present pages."""
        await self._pages.application(scope, receive, send)

    async def run(self) -> None:
        """Read until `is_over`, and replace the pages whenever the file has changed."""
        while not self.is_over():
            # the watch calls this between two readings; so the file is checked without a thread
            self._pages.watch.is_over = self._load_changed_file
            await self._pages.watch.run()
            if self._newer_topics is not None and not self.is_over():
                await asyncio.to_thread(self._replace_pages, self._newer_topics)
                self._newer_topics = None

    def stop(self) -> None:
        """End the redrives that run here; a last reading may still go on."""
        self._pages.stop_work()

    def close(self) -> None:
        """Close what the present pages have open."""
        self._stack.close()

    def _load_changed_file(self) -> bool:
        """Load the file if it has changed; return whether the present pages must stop reading.

        They stop for newer pages, or with the process. The file is read once a second at most.
        """
        if self.is_over() or self._newer_topics is not None:
            return True
        now_s = time.monotonic()
        if self._file is not None and now_s - self._file_checked_s >= FILE_EVERY_S:
            self._file_checked_s = now_s
            self._newer_topics = self._file.load_if_changed(may_change=self._pages.is_idle())
            self._pages.watch.file_note = self._file.note
        return self._newer_topics is not None

    def _replace_pages(self, topics: Topics) -> None:
        """Build pages for newer topics in place of the present ones, in the steps of the class."""
        # 1
        stack = ExitStack()
        pages = self._build(stack, topics)
        pages.watch.read()
        # 2: a stream asks the watch of its own pages whether it is over
        former, former_stack = self._pages, self._stack
        former.watch.is_over = lambda: True
        self._pages, self._stack = pages, stack
        # 3
        former_stack.close()
