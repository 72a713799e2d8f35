"""The processes under torture, each with its own way through the network and its own wall clock."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from spout.runtime.child import Child
from tests.torture.schedule import Victim
from tests.torture.stage.clock import SteppedClock
from tests.torture.stage.family import Member, family_of, signal_all
from tests.torture.stage.proxy import Proxy


@dataclass(slots=True)
class Part:
    """An acker, a replay worker, or the Spark driver that is the group's present one.

    Attributes:
        victim: who it is.
        child: the process.
        proxy: its way to the broker; None: it has no way of its own.
        clock: its wall clock.
        wanted: whether it should run now; one that does not although it should has ended by itself.
        frozen: the processes that are stopped.
    """

    victim: Victim
    child: Child
    proxy: Proxy | None
    clock: SteppedClock
    wanted: bool = True
    frozen: list[Member] = field(default_factory=list)

    def family(self) -> list[Member]:
        """List the process and all that it started."""
        return [] if self.child.pid is None else family_of(self.child.pid)

    def kill(self) -> None:
        """Kill the process; what it started is left to notice."""
        self.wanted = False
        self.child.kill()

    def stop(self) -> bool:
        """End the process by SIGTERM; tell whether it ended cleanly."""
        self.wanted = False
        return self.child.stop()

    def kill_family(self) -> None:
        """Kill the process and all that it started, at once."""
        members = self.family()
        self.kill()
        signal_all(members, signal.SIGKILL)

    def start(self) -> None:
        """Start the process, unless it runs."""
        self.wanted = True
        self.child.start()

    def freeze(self) -> None:
        """Stop the process and all that it started."""
        self.frozen = self.family()
        signal_all(self.frozen, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let go on what was stopped."""
        signal_all(self.frozen, signal.SIGCONT)
        self.frozen = []


@dataclass(slots=True)
class Driver(Part):
    """The Spark driver. Its checkpoint has a number: a fresh one is a new session of the group.

    Attributes:
        make: makes the child for a checkpoint's folder.
        checkpoints: where those folders are.
        number: of the present checkpoint.
        left: processes of drivers that were killed alone; they end by themselves, or at the end of the run.
    """

    make: Callable[[Path], Child] = field(kw_only=True)
    checkpoints: Path = field(kw_only=True)
    number: int = 1
    left: list[Member] = field(default_factory=list)

    def kill(self) -> None:
        """Kill the Python process; its JVM and workers notice within moments."""
        self.left += self.family()
        # not super(): a dataclass with slots is another class than the one that super() would look for
        Part.kill(self)

    def stop(self) -> bool:
        """End the process that is the driver now by SIGTERM, and what it leaves behind."""
        members = self.family()
        Part.stop(self)
        signal_all(members, signal.SIGKILL)
        return True

    def take_over(self) -> None:
        """Let the next start have a fresh checkpoint."""
        self.number += 1
        self.renew()

    def renew(self) -> None:
        """Let the next start be another process, beside the present one if that still runs."""
        self.child = self.make(self.checkpoints / str(self.number))


@dataclass(slots=True)
class Zombie:
    """A driver whose place another one has taken while it was stopped.

    Attributes:
        child: the process.
        frozen: it and what it had started.
        thawed_ms: since when it goes on; None: it is still stopped.
        rival_since_ms: since when the other one works while it goes on; None: nobody has looked yet.
    """

    child: Child
    frozen: list[Member]
    thawed_ms: int | None = None
    rival_since_ms: int | None = None
