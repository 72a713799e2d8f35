"""A process of the simulation: what all actors that may crash, sleep, or be zombies have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

from acker.config.topics import Topics
from acker.errors import WindhoverError
from tests.simulation.options import Options
from tests.simulation.truth.reader import TruthReader
from tests.simulation.world.cluster import Client, WatchedCluster
from tests.simulation.world.durable import Checkpoint, Store
from tests.simulation.world.exact_store import ExactStore


class Crash(BaseException):
    """The process ends here and now; nothing in the product catches it."""


class Setting(Protocol):
    """What a process and the operator know of the world that they live in."""

    options: Options
    rng: Random
    topics: Topics
    truth: TruthReader
    cluster: WatchedCluster
    faults: Counter[str]
    is_healed: bool
    away_until_ms: int
    slots: list[Slot]
    queries: dict[str, Slot]
    checkpoints: dict[str, Checkpoint]
    exact_store: ExactStore

    @property
    def now_ms(self) -> int:
        """The time."""

    def new_id(self, kind: str) -> str:
        """Return a name that was never used."""

    def remote_of(self, group: str) -> Store:
        """Return what the program in the other lane keeps for a group."""

    def draw_skew(self) -> int:
        """Return how far a new process's clock is off, ms."""

    def tell(self, what: str, *details: object) -> None:
        """Write down what happened."""

    def count(self, fault: str) -> None:
        """Count a fault."""

    def happens(self, fault: str, *who: object) -> bool:
        """Draw whether a fault happens now."""

    def effect(self, process: Process, operation: str, *, late: bool) -> None:
        """Decide what happens to a process before or after an effect."""

    def after_ms(self, wait_ms: int, happens: Callable[[], None]) -> None:
        """Let something happen later."""

    def replace(self, process: Process) -> None:
        """Start another process in the place of one that goes on as a zombie."""

    def died(self, process: Process, error: WindhoverError | None) -> None:
        """Take a process out."""


class Process:
    """One incarnation of a process: memory of its own, a clock of its own, and a view of the cluster.

    Attributes:
        name: for the history.
        is_dead: whether it has ended.
        is_busy: whether it is held in the middle of a step.
        is_doomed: whether it dies at its next effect.
        is_zombie: whether it was replaced.
        is_disturbed: whether a fault met it in its present step.
        asleep_until_ms: it does nothing before this time.
        turns: how often the scheduler chooses it, beside others.
    """

    turns = 1

    def __init__(self, world: Setting, name: str) -> None:
        """Start a process."""
        self.world = world
        self.name = name
        self.rng: Random = world.rng
        self.client = Client(world.cluster, self)
        self.skew_ms = world.draw_skew()
        self.is_dead = self.is_busy = self.is_doomed = self.is_zombie = self.is_disturbed = False
        self.asleep_until_ms = 0
        self.started_ms = world.now_ms

    @property
    def wall_ms(self) -> int:
        """The time by this process's clock."""
        return self.world.now_ms + self.skew_ms

    def act(self) -> None:
        """Do one step; a crash, or an error that ends the process, ends it."""
        self.is_disturbed = False
        try:
            self.step()
        except Crash:
            self.world.count("crash")
            self.world.tell("crash", self.name)
            self.world.died(self, None)
        except WindhoverError as error:
            self.world.tell("exit", self.name, type(error).__name__, str(error)[:160])
            self.world.died(self, error)

    def step(self) -> None:
        """Do what this process does."""
        raise NotImplementedError

    def ended(self) -> None:
        """Take note that the process has ended."""

    # -- the weather of its client

    def before(self, operation: str) -> None:
        """Meet a fault before an effect."""
        self.world.effect(self, operation, late=False)

    def after(self, operation: str) -> None:
        """Meet a fault after an effect."""
        self.world.effect(self, operation, late=True)

    def uneven(self) -> bool:
        """Tell whether a poll returns less than there is."""
        return self.world.happens("uneven")

    def lags(self) -> bool:
        """Tell whether a call that is under way is not over yet."""
        hit = self.world.happens("lagging")
        self.is_disturbed |= hit
        return hit

    def duplicates(self) -> bool:
        """Tell whether a partition's records are appended twice."""
        return self.world.happens("duplicate", self.name)

    def partial(self) -> bool:
        """Tell whether a flush makes only a part durable."""
        hit = self.world.happens("partial", self.name)
        self.is_disturbed |= hit
        return hit

    def late(self, deliver: Callable[[], None]) -> None:
        """Let the rest be delivered later, unless the process has ended by then."""

        def come() -> None:
            if not self.is_dead:
                deliver()

        self.world.after_ms(self.rng.randint(1, 2_000), come)


@dataclass(slots=True)
class Slot:
    """A place where one process should live.

    Attributes:
        make: starts a new one.
        current: the one that lives there.
        empty_until_ms: nobody starts another before this time.
    """

    make: Callable[[], Process]
    current: Process | None = None
    empty_until_ms: int = 0
