"""The page on a Kafka in memory, served to a real browser from a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest
from starlette.testclient import TestClient

from acker.config.topics import Topics
from spout.inspect.overview import Overview, Snapshot
from spout.questions.letters import ReadsLetters, letters_read
from spout.serving.asgi import page_server
from spout.serving.connections import ConnectionLimits
from spout.ui.graph import Drivers
from spout.ui.jobs import Actions, RedriveJobs
from spout.ui.log_pages import LogPages
from spout.ui.pages import Pages
from spout.ui.redrive_pages import RedrivePages
from spout.ui.serve import LOOPBACK, listening, serve_watched
from spout.ui.watch import PAGE_READ_MAX, CauseWatch, Watch
from tests.support.memory.cluster import Faults, MemoryCluster
from tests.support.waiting import eventually
from tests.support.worlds.planning import World

PAGE_LIMITS = ConnectionLimits()
NO_DRIVER = Drivers((), lambda _: ())


class ShownWorld(Protocol):
    """What a page can be about."""

    topics: Topics
    cluster: MemoryCluster

    @property
    def now_ms(self) -> int: ...


def pages_of(
    world: ShownWorld,
    watch: Watch,
    faults: Faults | None = None,
    actions: Actions | None = None,
    drivers: Drivers = NO_DRIVER,
    config: Path | None = None,
    read_max: int = PAGE_READ_MAX,
    reads_letters: ReadsLetters = letters_read,
) -> tuple[Pages, RedriveJobs]:
    """Build the pages of a world, and the jobs that they start."""

    def now_ms() -> int:
        return world.now_ms

    jobs = RedriveJobs(lambda: world.cluster.log(faults), world.topics, now_ms)
    log = world.cluster.log(faults)
    log_pages = LogPages(world.topics, log, now_ms, drivers, config, read_max, reads_letters)
    redrives = RedrivePages(
        world.topics,
        log_pages.log_if_reachable,
        now_ms,
        log_pages.build_showing_errors,
        jobs,
        actions,
        reads_letters,
    )
    return Pages(world.topics, watch, log_pages, redrives, drivers, config), jobs


def client_of(
    world: ShownWorld,
    faults: Faults | None = None,
    actions: Actions | None = None,
    reads_letters: ReadsLetters = letters_read,
) -> tuple[TestClient, RedriveJobs]:
    """Return a client of the pages that read logs and not the status; it follows no redirection."""
    watch = Watch(lambda _: pytest.fail("not read"), world.topics, lambda: world.now_ms)
    pages, jobs = pages_of(world, watch, faults, actions, reads_letters=reads_letters)
    application = pages.application(LOOPBACK)
    return TestClient(application, base_url="http://localhost", follow_redirects=False), jobs


class PageServer:
    """Serves a world. Whoever changes the world holds `lock`, since the reading thread reads it."""

    def __init__(
        self,
        world: World,
        faults: Faults | None = None,
        port: int = 0,
        actions: Actions | None = None,
        drivers: Drivers = NO_DRIVER,
        limits: ConnectionLimits = PAGE_LIMITS,
    ) -> None:
        self.world = world
        self.lock = threading.Lock()
        self._listener = listening("127.0.0.1", port)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        overview = Overview(world.cluster.log(faults), world.topics)
        causes = CauseWatch(world.cluster.log(faults), world.topics)
        snapshot = self._locked(overview.snapshot)
        self.watch = Watch(snapshot, world.topics, lambda: world.now_ms, causes.read, causes.rates)
        pages, self.jobs = pages_of(world, self.watch, faults, actions, drivers)
        application = pages.application(LOOPBACK)
        self._server = page_server(application, limits)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        eventually(lambda: self.watch.latest.reading_number > 0)

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._server.server_state.connections)

    def _serve(self) -> None:
        asyncio.run(serve_watched(self._server, self.watch, self._listener))

    def _locked(self, read: Callable[[int], Snapshot]) -> Callable[[int], Snapshot]:
        def locked(now_ms: int) -> Snapshot:
            with self.lock:
                return read(now_ms)

        return locked

    def stop(self) -> None:
        self.jobs.close()
        self._server.should_exit = True
        self._thread.join(20)
        self._listener.close()


@contextmanager
def serving(
    world: World,
    faults: Faults | None = None,
    port: int = 0,
    actions: Actions | None = None,
    drivers: Drivers = NO_DRIVER,
    limits: ConnectionLimits = PAGE_LIMITS,
) -> Iterator[PageServer]:
    server = PageServer(world, faults, port, actions, drivers, limits)
    try:
        yield server
    finally:
        server.stop()
