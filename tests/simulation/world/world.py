"""One run: everything that a seed draws, scheduled and clocked by it.

Each step lets some time pass, lets the operator do what it draws, and lets one process act. An effect on the
cluster asks `World.effect` what happens: the process may crash there, its call may fail, or it is held in the
middle of its step while the others go on, and wakes up as a zombie. After the drawn number of steps
everything is healed; then all must be settled within `HEAL_MS` of simulated time.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final

from acker.config.settings import Input
from acker.errors import (
    Aborted,
    ConfigError,
    DataLoss,
    SessionError,
    TrackingError,
    Unreachable,
    WindhoverError,
)
from tests.simulation.checkers.checkers import checkers
from tests.simulation.options import Options
from tests.simulation.truth.facts import Broken
from tests.simulation.truth.reader import TruthReader
from tests.simulation.world.cluster import WatchedCluster
from tests.simulation.world.durable import Checkpoint, CheckpointTaken, Store
from tests.simulation.world.exact_query import ExactQueryProcess
from tests.simulation.world.exact_store import ExactStore
from tests.simulation.world.layout import topics_of
from tests.simulation.world.operator import Operator
from tests.simulation.world.process import Crash, Process, Slot
from tests.simulation.world.query import QueryProcess
from tests.simulation.world.remote import RemoteProcess
from tests.simulation.world.services import AckerProcess, ReplayProcess
from tests.simulation.world.settled import left_of

START_MS: Final = 1_800_000_000_000
HEAL_MS: Final = 180_000
ORDERED_HEAL_MS: Final = 1_200_000
"""For ordered inputs, where 24 records may have to time out three times each, one behind the other."""

HELD_DEPTH: Final = 2
EFFECT_FAULTS: Final = ("pause", "crash", "unreachable", "aborted")


class World:
    """One run; see the module."""

    def __init__(self, options: Options) -> None:
        """Create the topics and fill the slots."""
        self.options = options
        self.rng = Random(f"windhover/{options.seed}/run")
        self.topics = topics_of(options)
        self.events: list[tuple[object, ...]] = []
        self.faults: Counter[str] = Counter()
        self.steps = 0
        self.is_healed = False
        self.away_until_ms = 0
        self.truth = TruthReader(self.topics, checkers(), self.tell)
        self.cluster = WatchedCluster(self.truth, START_MS)
        self.truth.cluster = self.cluster
        self.zombies: list[tuple[Process, int]] = []
        self._depth = 0
        self._effect_rates = [(fault, options.rate(fault)) for fault in EFFECT_FAULTS if options.rate(fault)]
        self._effect_share = sum(rate for _, rate in self._effect_rates)
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._timers_made = 0
        self._names: Counter[str] = Counter()
        self._create_topics()
        self.exact_store = ExactStore(self.truth.stored)
        self.truth.is_exact = options.exact
        self._stores = {found.group: Store(found.group) for found in self.topics.inputs.values()}
        self.queries: dict[str, Slot] = {}
        self.checkpoints: dict[str, Checkpoint] = {}
        self.slots: list[Slot] = self._fill()
        self.operator = Operator(self)

    # -- what there is

    @property
    def now_ms(self) -> int:
        """The time."""
        return self.cluster.now_ms

    def new_id(self, kind: str) -> str:
        """Return a name that was never used."""
        self._names[kind] += 1
        return f"{kind}{self._names[kind]}"

    def remote_of(self, group: str) -> Store:
        """Return what the program in the other lane keeps for a group."""
        return self._stores[group]

    def draw_skew(self) -> int:
        """Return how far a new process's clock is off, ms."""
        if self.is_healed or not self.happens("skew"):
            return 0
        skew_ms = self.rng.randint(-2_000, 2_000)
        self.truth.skew_ms_max = max(self.truth.skew_ms_max, abs(skew_ms))
        return skew_ms

    def _create_topics(self) -> None:
        names = self.topics.ack_topics
        for name in names.names():
            self.cluster.create_topic(
                name, self.options.partitions, compacted=name in (names.state, names.due)
            )
        self.cluster.create_topic(
            "lines", self.options.source_partitions, compacted=self.options.compacted_source
        )
        for number in range(self.options.source_partitions):
            self.cluster.at("lines", number).begin_at(self.options.first_offset)
        for found in self.topics.inputs.values():
            self.cluster.create_topic(found.replay_topic, self.options.source_partitions)
            self.cluster.create_topic(found.dead_letter.topic, self.options.source_partitions)

    def _fill(self) -> list[Slot]:
        slots = [Slot(lambda: AckerProcess(self, self.new_id("acker"))) for _ in range(self.options.ackers)]
        slots += [
            Slot(lambda: ReplayProcess(self, self.new_id("replay"))) for _ in range(self.options.replayers)
        ]
        for found in self.topics.inputs.values():
            self.checkpoints[found.group] = Checkpoint(self.new_id("q"), found.group)
            slot = self.queries[found.group] = Slot(self._query_maker(found))
            slots.append(slot)
            slots.append(Slot(self._remote_maker(found)))
        for slot in slots:
            slot.current = slot.make()
        return slots

    def _query_maker(self, found: Input) -> Callable[[], Process]:
        def make() -> Process:
            checkpoint = self.checkpoints[found.group]
            kind = ExactQueryProcess if self.options.exact else QueryProcess
            return kind(self, self.new_id("query"), checkpoint, found, take_over=True)

        return make

    def _remote_maker(self, found: Input) -> Callable[[], Process]:
        return lambda: RemoteProcess(self, self.new_id("remote"), self._stores[found.group])

    # -- history

    def tell(self, what: str, *details: object) -> None:
        """Write down what happened."""
        self.events.append((self.steps, self.now_ms - START_MS, what, *details))

    def count(self, fault: str) -> None:
        """Count a fault."""
        self.faults[fault] += 1

    def digest(self) -> str:
        """Return a hash of all that happened."""
        lines = "\n".join(" ".join(map(str, event)) for event in self.events)
        return hashlib.blake2b(lines.encode(), digest_size=16).hexdigest()

    # -- faults

    def happens(self, fault: str, *who: object) -> bool:
        """Draw whether a fault happens now; one that does is counted, and told if it has a victim."""
        rate = self.options.rates.get(fault)
        if rate is None or self.is_healed or self.rng.random() >= rate:
            return False
        self.faults[fault] += 1
        if who:
            self.tell(fault, *who)
        return True

    def effect(self, process: Process, operation: str, *, late: bool) -> None:
        """Decide what happens to a process before or after an effect."""
        if process.is_doomed:
            raise Crash
        if self.is_healed:
            return
        if self.now_ms < self.away_until_ms:
            process.is_disturbed = True
            raise Unreachable("the broker is away")
        draw = self.rng.random()
        if draw >= self._effect_share:
            return
        when = "after" if late else "before"
        for fault, rate in self._effect_rates:
            draw -= rate
            if draw < 0:
                self._strike(process, fault, operation, when)
                return

    def _strike(self, process: Process, fault: str, operation: str, when: str) -> None:
        """Let a fault meet a process at one of its effects."""
        if fault == "unreachable" and (operation, when) == ("poll", "after"):
            return  # what was read would be lost: a client hands it out or stays where it was
        if fault == "aborted" and (operation, when) != ("commit", "before"):
            return
        self.tell(fault, process.name, operation, when)
        if fault != "crash":
            self.count(fault)
        if fault == "pause":
            self.hold(process)
            return
        process.is_disturbed = True
        if fault == "crash":
            raise Crash
        if fault == "aborted":
            raise Aborted("the broker aborted the transaction")
        raise Unreachable(f"{operation} is not answered")

    def hold(self, process: Process) -> None:
        """Hold a process in the middle of its step while the others go on."""
        if self._depth >= HELD_DEPTH:
            return
        self._depth += 1
        process.is_busy = True
        if self.rng.random() < 0.5:
            self.replace(process)
        for _ in range(self.rng.randint(1, 20)):
            self.step()
        process.is_busy = False
        self._depth -= 1
        self.tell("resumes", process.name)
        if process.is_doomed or process.is_dead:
            raise Crash

    def replace(self, process: Process) -> None:
        """Start another process in the place of one that goes on as a zombie."""
        slot = next((slot for slot in self.slots if slot.current is process), None)
        if slot is None or process.is_dead:
            return
        self.count("zombie")
        process.is_zombie = True
        self.zombies.append((process, self.now_ms + self.rng.randint(100, 8_000)))
        self.after_ms(self.rng.randint(0, 2_000), process.client.vanish)
        slot.current = slot.make()
        self.tell("zombie", process.name, "replaced by", slot.current.name)

    def after_ms(self, wait_ms: int, happens: Callable[[], None]) -> None:
        """Let something happen later."""
        self._timers_made += 1
        heapq.heappush(self._timers, (self.now_ms + wait_ms, self._timers_made, happens))

    def died(self, process: Process, error: WindhoverError | None) -> None:
        """Take a process out; its place in the group is given up after a while.

        Raises:
            Broken: it ended for a reason that no fault explains.
        """
        process.is_dead = True
        process.ended()
        self.after_ms(self.rng.randint(200, 2_000), process.client.vanish)
        self.zombies = [(zombie, until) for zombie, until in self.zombies if zombie is not process]
        if not process.is_zombie:
            self._judge(process, error)
        for slot in self.slots:
            if slot.current is process:
                slot.current = None
                slot.empty_until_ms = self.now_ms + self.rng.choice((0, 0, 300, 3_000))

    def _judge(self, process: Process, error: WindhoverError | None) -> None:
        """Do what an operator does about a process that ended by itself."""
        if isinstance(error, DataLoss | ConfigError | TrackingError) or (
            isinstance(error, SessionError) and not isinstance(process, QueryProcess)
        ):
            raise Broken("NothingBlocks", f"{process.name} ended: {type(error).__name__}: {error}")
        if isinstance(error, CheckpointTaken):
            self.tell("driver gives way", process.name)

    # -- the scheduler

    def run(self) -> None:
        """Run until everything is settled.

        Raises:
            Broken: a rule was broken.
        """
        if self.options.is_warm:
            self._warm_up()
        while self.steps < self.options.steps:
            self.step()
        self.heal()
        heal_ms = HEAL_MS if self.options.ordering == "none" else ORDERED_HEAL_MS
        deadline_ms = self.now_ms + heal_ms
        while not self.is_settled():
            if self.now_ms > deadline_ms:
                self.truth.end()  # the rule that says what is missing, if one does
                raise Broken(
                    "NothingBlocks", f"not settled {heal_ms} ms after everything was healed: {left_of(self)}"
                )
            self._healed_step()
        self.truth.end()

    def _warm_up(self) -> None:
        """Let every group be taken before anything goes wrong, so that the faults meet records."""
        self.is_healed = True
        for _ in range(40):
            self._healed_step()
            if all(part.takes.keys() >= self.queries.keys() for part in self.truth.partitions):
                break
        self.is_healed = False
        self.steps = 0

    def step(self) -> None:
        """Let time pass, the operator act, and one process act."""
        self.steps += 1
        draw = self.rng.random()
        self._pass(
            self.rng.randint(1, 40) if draw < 0.7 else self.rng.randint(50, 300 if draw < 0.95 else 1_500)
        )
        self.operator.act()
        self._refill()
        living = [slot.current for slot in self.slots if slot.current is not None]
        living += [zombie for zombie, _ in self.zombies]
        ready = [one for one in living if not one.is_busy and one.asleep_until_ms <= self.now_ms]
        turns = [one for one in ready for _ in range(one.turns)]
        if turns:
            self.rng.choice(turns).act()

    def heal(self) -> None:
        """End all faults, and all zombies."""
        self.is_healed = True
        self.tell("heal")
        self.away_until_ms = 0
        for zombie, _ in self.zombies:
            zombie.is_doomed = zombie.is_dead = True
            zombie.ended()
            zombie.client.vanish()
        self.zombies = []
        self.operator.heal()
        for slot in self.slots:
            slot.empty_until_ms = 0
            if slot.current is not None:
                slot.current.asleep_until_ms = 0
                self.truth.skew_ms_max = max(self.truth.skew_ms_max, abs(slot.current.skew_ms))

    def _healed_step(self) -> None:
        self.steps += 1
        self._pass(100)
        self._refill()
        for slot in self.slots:
            if slot.current is not None:
                slot.current.act()

    def _pass(self, ms: int) -> None:
        self.cluster.now_ms += ms
        while self._timers and self._timers[0][0] <= self.now_ms:
            heapq.heappop(self._timers)[2]()
        for zombie, until_ms in self.zombies:
            if until_ms <= self.now_ms:
                zombie.is_doomed = True
                if not zombie.is_busy:
                    zombie.is_dead = True
                    zombie.ended()
                    zombie.client.vanish()
        if self.zombies:
            self.zombies = [(zombie, until) for zombie, until in self.zombies if not zombie.is_dead]

    def _refill(self) -> None:
        for slot in self.slots:
            if slot.current is None and slot.empty_until_ms <= self.now_ms:
                slot.current = slot.make()
                self.tell("start", slot.current.name)

    # -- the end

    def is_settled(self) -> bool:
        """Tell whether every record that is there was emitted and settled, and nothing waits."""
        truth = self.truth
        if truth.open_roots or truth.undisposed or self._timers:
            return False
        return not left_of(self)
