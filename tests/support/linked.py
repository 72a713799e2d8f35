"""A driver that listens in a folder, and planning processes that are linked to it, without Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path

from acker.wire.events import SourceRun
from spout.link.connection import DriverAddress
from spout.link.driver_link import DriverLink
from spout.link.driver_socket import DriverSocket
from spout.link.messages import Hello
from spout.link.planner_link import PlannerLink
from spout.planning.plan import BatchPlan
from tests.support.waiting import eventually


class LinkedDriver:
    """A driver; `link` is that of its stream ``stream``, of group ``g``."""

    def __init__(self, folder: Path, links: MutableMapping[str, PlannerLink] | None = None) -> None:
        self.links: MutableMapping[str, PlannerLink] = {} if links is None else links
        self.folder = folder
        self.threads = NewThreads()
        self.link = self.stream("stream")
        self._over = threading.Event()
        self.socket = DriverSocket(str(folder), self.links.get, self._over.is_set)
        self.socket.start()
        self._planners: list[DriverLink] = []

    @property
    def address(self) -> DriverAddress:
        """Where it listens."""
        return self.socket.address

    def is_listening_in_this_thread(self) -> bool:
        """Return whether this thread is the driver's own, and not that of a Spark session of other tests."""
        return threading.current_thread() in self.threads()

    def stream(self, name: str, group: str = "g") -> PlannerLink:
        """Return the link of a stream."""
        return self.links.setdefault(name, PlannerLink(self.folder, name, group))

    def planner(self, process: str = "p", stream: str = "stream") -> DriverLink:
        """Link a planning process, which has heard all that holds."""
        link = self.links[stream]
        planner = DriverLink(self.address, Hello(stream, process), link.group, link.mark)
        self._planners.append(planner)
        planner.start()
        planner.wait_for_state()
        return planner

    def end(self) -> None:
        """End, as a driver does whose SparkContext has ended."""
        self._over.set()

    def close(self) -> None:
        """End it, and its planning processes, and wait for their threads."""
        self.end()
        for planner in self._planners:
            planner.close()
        eventually(lambda: not self.threads())


@contextmanager
def linked_driver(
    folder: Path, links: MutableMapping[str, PlannerLink] | None = None
) -> Iterator[LinkedDriver]:
    """Let a driver listen in a folder until the block is left."""
    driver = LinkedDriver(folder, links)
    try:
        yield driver
    finally:
        driver.close()


def others_run_again(planner: DriverLink) -> bool:
    """Return whether the driver has said that another process of the stream runs a batch again."""
    return planner._driver_state.others_run_again


class NewThreads:
    """The threads of links that began since; a Spark session of other tests may have some of its own."""

    def __init__(self) -> None:
        self._before = set(_link_threads())

    def __call__(self) -> set[threading.Thread]:
        """Return them."""
        return set(_link_threads()) - self._before


def _link_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("windhover-hears-")]


def batch_plan(session: str, ranges: tuple[SourceRun, ...]) -> BatchPlan:
    """Make the plan of a batch of group ``g``."""
    return BatchPlan("g", session, 1, 1, 0, 0, True, ranges)
