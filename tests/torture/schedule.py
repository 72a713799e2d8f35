"""Which blow falls when, and on whom: drawn from a seed, the same for the same seed; pure.

A victim is left alone for a while after each blow, as long as it takes to come back: a process that is dead
already cannot be killed. Blows on different victims overlap as they please.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Victim(StrEnum):
    """Who is hurt."""

    ACKER_1 = "acker 1"
    ACKER_2 = "acker 2"
    REPLAY_1 = "replay worker 1"
    REPLAY_2 = "replay worker 2"
    DRIVER = "driver"
    BROKER = "broker"
    BROKER_2 = "broker 2"
    BROKER_3 = "broker 3"
    COORDINATORS = "coordinators"
    """The leaders of partitions, those that coordinate groups and transactions among them."""
    EXECUTOR = "executor"
    LISTENERS = "driver's listeners"
    TEMPORARY_FILES = "driver's temporary files"
    GROUP = "group"
    """The consumer group of the input, whose offsets the driver commits."""
    STORE = "store"
    """Where the driver writes exactly once, if it does."""
    SPARK_WORKER_1 = "Spark worker 1"
    SPARK_WORKER_2 = "Spark worker 2"

    @property
    def kind(self) -> str:
        """What it is, whichever of several."""
        return self.value.rstrip(" 123")


class Deed(StrEnum):
    """What is done to the victim."""

    KILL = "SIGKILL"
    """It is started again when the pause is over."""
    KILL_FAMILY = "SIGKILL with its children"
    """The driver's JVM and Python workers die with it."""
    TAKE_OVER = "SIGKILL, then a fresh checkpoint takes over"
    FREEZE = "SIGSTOP"
    """It goes on when the pause is over; longer than the group's session timeout."""
    ZOMBIE = "SIGSTOP, and another driver on its checkpoint"
    ZOMBIE_TAKEN_OVER = "SIGSTOP, and another driver on a fresh checkpoint"
    CUT = "connections refused"
    SILENCE = "network silent"
    FULL_DISK = "checkpoint disk full"
    CLOCK = "wall clock stepped"
    STOP = "SIGTERM"
    """It shuts down in order, and is started again when the pause is over."""
    ELECT = "preferred leaders elected"
    MOVE = "coordinators moved"
    """Another broker of the same three becomes the preferred one, and is elected when the pause is over."""
    SLEEP = "a listener sleeps"
    """Somebody else's `StreamingQueryListener` holds up Spark's queue of events until the pause is over."""
    CLEAN = "a cleaner removes them"
    """Again and again until the pause is over."""
    JOIN = "a stranger joins it"
    """A consumer, such as `kafka-console-consumer --group`. It commits nothing, and is killed at the end."""
    KILL_IN_COMMIT = "SIGKILL within a commit"
    ZOMBIE_IN_COMMIT = "SIGSTOP within a commit, and another driver on its checkpoint"
    ZOMBIE_IN_COMMIT_TAKEN_OVER = "SIGSTOP within a commit, and another driver on a fresh checkpoint"
    REFUSE = "refuses commits"


KILLS: Final = frozenset({Deed.KILL, Deed.KILL_FAMILY, Deed.TAKE_OVER, Deed.KILL_IN_COMMIT})
"""Deeds that send SIGKILL."""

IN_COMMIT: Final = frozenset({Deed.KILL_IN_COMMIT, Deed.ZOMBIE_IN_COMMIT, Deed.ZOMBIE_IN_COMMIT_TAKEN_OVER})
"""Deeds that the driver does to itself, in the middle of its next commit."""

ON_STORES: Final = IN_COMMIT | {Deed.REFUSE}
"""Deeds that only a driver with a store can feel."""


@dataclass(frozen=True, slots=True)
class Blow:
    """One blow: `at_ms` after the beginning, held for `hold_ms`; `amount_ms` is a clock's step."""

    at_ms: int
    victim: Victim
    deed: Deed
    hold_ms: int
    amount_ms: int = 0

    @property
    def end_ms(self) -> int:
        """When it is over, after the beginning."""
        return self.at_ms + self.hold_ms


@dataclass(frozen=True, slots=True)
class Chance:
    """How likely a blow is beside the others, and how long it is held: at least, at most."""

    weight: int
    victims: tuple[Victim, ...]
    deed: Deed
    hold_ms: tuple[int, int] = (0, 0)


ACKERS: Final = (Victim.ACKER_1, Victim.ACKER_2)
REPLAYS: Final = (Victim.REPLAY_1, Victim.REPLAY_2)
SERVICES: Final = (*ACKERS, *REPLAYS)

BROKERS: Final = (Victim.BROKER, Victim.BROKER_2, Victim.BROKER_3)
SPARK_WORKERS: Final = (Victim.SPARK_WORKER_1, Victim.SPARK_WORKER_2)

CHANCES: Final = (
    Chance(300, ACKERS, Deed.KILL),
    Chance(150, ACKERS, Deed.KILL, (500, 9_000)),
    Chance(130, REPLAYS, Deed.KILL),
    Chance(70, REPLAYS, Deed.KILL, (500, 9_000)),
    Chance(40, SERVICES, Deed.FREEZE, (8_000, 12_000)),
    Chance(40, SERVICES, Deed.CUT, (1_000, 8_000)),
    Chance(30, SERVICES, Deed.SILENCE, (2_000, 10_000)),
    Chance(20, SERVICES, Deed.CLOCK, (3_000, 8_000)),
    Chance(90, (Victim.DRIVER,), Deed.KILL, (0, 2_000)),
    Chance(60, (Victim.DRIVER,), Deed.KILL_FAMILY, (0, 2_000)),
    Chance(30, (Victim.DRIVER,), Deed.TAKE_OVER, (0, 1_000)),
    Chance(30, (Victim.DRIVER,), Deed.FREEZE, (8_000, 20_000)),
    Chance(15, (Victim.DRIVER,), Deed.ZOMBIE, (20_000, 25_000)),
    Chance(15, (Victim.DRIVER,), Deed.ZOMBIE_TAKEN_OVER, (20_000, 25_000)),
    Chance(25, (Victim.DRIVER,), Deed.CUT, (1_000, 8_000)),
    Chance(25, (Victim.DRIVER,), Deed.SILENCE, (2_000, 10_000)),
    Chance(15, (Victim.DRIVER,), Deed.FULL_DISK, (3_000, 8_000)),
    Chance(20, (Victim.DRIVER,), Deed.CLOCK, (3_000, 8_000)),
    Chance(50, (Victim.BROKER,), Deed.KILL, (0, 4_000)),
    Chance(15, (Victim.BROKER,), Deed.FREEZE, (2_000, 8_000)),
    Chance(20, (Victim.LISTENERS,), Deed.SLEEP, (18_000, 25_000)),
    Chance(20, (Victim.TEMPORARY_FILES,), Deed.CLEAN, (2_000, 10_000)),
    Chance(20, (Victim.GROUP,), Deed.JOIN, (4_000, 15_000)),
)
"""A service comes back within a second or two and is hit often; a driver takes some 15 s, so it is hit
seldom, though often enough that it dies in each phase of a batch; a broker's death stops all others."""

CHANCES_WITH_STORE: Final = (
    *CHANCES,
    # held as long as the order for it stands; the driver is started again as soon as it is dead
    Chance(300, (Victim.DRIVER,), Deed.KILL_IN_COMMIT, (10_000, 10_000)),
    # until the other one has opened the store, or nearly
    Chance(120, (Victim.DRIVER,), Deed.ZOMBIE_IN_COMMIT, (25_000, 45_000)),
    Chance(120, (Victim.DRIVER,), Deed.ZOMBIE_IN_COMMIT_TAKEN_OVER, (25_000, 45_000)),
    Chance(100, (Victim.STORE,), Deed.REFUSE, (2_000, 8_000)),
)
"""The same where the driver writes exactly once."""

REST_MS: Final = {
    **dict.fromkeys(SERVICES, 5_000),
    Victim.DRIVER: 35_000,
    Victim.BROKER: 40_000,
    Victim.LISTENERS: 10_000,
    Victim.TEMPORARY_FILES: 10_000,
    # the broker forgets a consumer that was killed after 6 s
    Victim.GROUP: 20_000,
    Victim.STORE: 40_000,
}
"""How long a victim is left alone after a blow."""

GAP_MS: Final = (2_500, 9_500)
"""From one blow to the next; 6 s on average, 300 in half an hour, at least 200 of them kills."""

CLOCK_STEP_MS_MAX: Final = 3 * 3_600_000
"""A wall clock is stepped by at most three hours, forth and back."""

DUE_STEP_MS_MAX: Final = 20_000
"""A replay worker's is stepped forth by less: by design, what it schedules meanwhile waits for its clock."""


def draw(
    seed: int,
    for_ms: int,
    available: Collection[Deed] = tuple(Deed),
    chances: Sequence[Chance] = CHANCES,
    pace: float = 1.0,
) -> list[Blow]:
    """Draw the blows of a run.

    Args:
        seed: any integer.
        for_ms: no blow begins or is held after this.
        available: deeds that can be done on this machine.
        chances: what is drawn from.
        pace: how many times longer it is from one blow to the next, and how much longer a victim rests: on a
            machine that is so much slower.

    Returns:
        Blows, ascending by when they begin.
    """
    dice = random.Random(seed)
    chances = [chance for chance in chances if chance.deed in available]
    rested = {victim: 0 for chance in chances for victim in chance.victims}
    blows: list[Blow] = []
    at_ms = 0
    while True:
        at_ms += int(dice.randint(*GAP_MS) * pace)
        blow = _draw_one(dice, chances, at_ms, rested)
        if blow.end_ms >= for_ms:
            return blows
        rested[blow.victim] = blow.end_ms + int(REST_MS[blow.victim] * pace)
        blows.append(blow)


def _draw_one(dice: random.Random, chances: Sequence[Chance], at_ms: int, rested: dict[Victim, int]) -> Blow:
    """Draw a blow on a victim that is rested at `at_ms`, or as soon as one is."""
    at_ms = max(at_ms, min(rested.values()))
    ready = [(chance, victim) for chance in chances for victim in chance.victims if rested[victim] <= at_ms]
    weights = [chance.weight / len(chance.victims) for chance, _ in ready]
    chance, victim = dice.choices(ready, weights)[0]
    hold_ms = dice.randint(*chance.hold_ms)
    amount_ms = _step_of(dice, victim) if chance.deed is Deed.CLOCK else 0
    return Blow(at_ms, victim, chance.deed, hold_ms, amount_ms)


def _step_of(dice: random.Random, victim: Victim) -> int:
    is_forth = dice.random() < 0.5
    step_ms_max = DUE_STEP_MS_MAX if is_forth and victim in REPLAYS else CLOCK_STEP_MS_MAX
    step_ms = dice.randint(1_000, step_ms_max)
    return step_ms if is_forth else -step_ms


# -- a cluster

BROKER_DECK: Final = (
    *(Chance(1, (broker,), Deed.KILL, (2_000, 15_000)) for broker in BROKERS),
    Chance(1, BROKERS, Deed.STOP, (2_000, 8_000)),
    Chance(1, BROKERS, Deed.FREEZE, (4_000, 12_000)),
    *(Chance(1, (Victim.COORDINATORS,), Deed.MOVE, (5_000, 8_000)) for _ in range(2)),
    Chance(1, (Victim.COORDINATORS,), Deed.ELECT),
    *(Chance(1, (acker,), Deed.KILL, (0, 9_000)) for acker in ACKERS),
    Chance(1, ACKERS, Deed.FREEZE, (8_000, 12_000)),
    Chance(1, REPLAYS, Deed.KILL, (0, 9_000)),
    Chance(1, (Victim.DRIVER,), Deed.KILL, (0, 2_000)),
    Chance(1, (Victim.DRIVER,), Deed.KILL_FAMILY, (0, 2_000)),
)
"""What befalls a cluster, each card once before one comes again, so that a short run has seen each kind."""

SPARK_DECK: Final = (
    *(Chance(1, (Victim.EXECUTOR,), Deed.KILL) for _ in range(2)),
    Chance(1, (Victim.EXECUTOR,), Deed.FREEZE, (30_000, 30_000)),
    *(Chance(1, (worker,), Deed.KILL, (2_000, 8_000)) for worker in SPARK_WORKERS),
)
"""What befalls executors and workers of Spark; a worker's executor dies with it."""

ROLLING: Final = (
    *((broker, 20_000) for broker in BROKERS),
    *((service, 5_000) for service in SERVICES),
    (Victim.DRIVER, 20_000),
)
"""A rolling restart: who is restarted, and how long the next one waits at least, ms."""

DEAL_GAP_MS: Final = (10_000, 16_000)
"""From the end of one blow to the next, so that each recovery can be measured by itself."""


def deal(seed: int, for_ms: int, *, spark: bool) -> list[Blow]:
    """Deal the blows of a run on a cluster: the deck once in an order drawn from the seed, then again.

    Args:
        seed: any integer.
        for_ms: no blow begins or is held after this.
        spark: whether Spark has workers and executors of its own.

    Returns:
        Blows, ascending by when they begin.
    """
    dice = random.Random(seed)
    deck = [*BROKER_DECK, *(SPARK_DECK if spark else ()), None]
    blows: list[Blow] = []
    end_ms = 0
    while True:
        dice.shuffle(deck)
        for card in deck:
            blows += _rolling(dice, end_ms) if card is None else [_dealt(dice, card, end_ms)]
            end_ms = blows[-1].end_ms
            if end_ms >= for_ms:
                return [blow for blow in blows if blow.end_ms < for_ms]


def _dealt(dice: random.Random, card: Chance, after_ms: int) -> Blow:
    at_ms = after_ms + dice.randint(*DEAL_GAP_MS)
    return Blow(at_ms, dice.choice(card.victims), card.deed, dice.randint(*card.hold_ms))


def _rolling(dice: random.Random, after_ms: int) -> list[Blow]:
    """Restart everything, one after the other."""
    at_ms = after_ms + dice.randint(*DEAL_GAP_MS)
    blows = []
    for victim, wait_ms in ROLLING:
        blows.append(Blow(at_ms, victim, Deed.STOP, 1_000))
        at_ms += wait_ms
    return blows


MISSING_FROM_MS: Final = 90_000
"""So long all views are asked while all brokers are there."""

MISSING_REST_MS: Final = 30_000
"""So long they are asked when it is back."""


def missing(minutes: float) -> tuple[Blow, int]:
    """Return the blow by which one of three brokers is missing, and how long the run lasts, ms."""
    blow = Blow(MISSING_FROM_MS, Victim.BROKER_2, Deed.KILL, int(minutes * 60_000))
    return blow, blow.end_ms + MISSING_REST_MS


# -- in CI


@dataclass(frozen=True, slots=True)
class Cut:
    """A run that is short enough for CI, of a seed whose blows fall on everything early."""

    seed: int
    minutes: float
    brokers: int = 1
    spark_workers: int = 0

    def blows(self) -> list[Blow]:
        """Return the blows of the run, on a machine on which every deed can be done."""
        for_ms = int(self.minutes * 60_000)
        if self.brokers == 1:
            return draw(self.seed, for_ms)
        return deal(self.seed, for_ms, spark=self.spark_workers > 0)


CUTS: Final = (Cut(1_251_356, 2.0), Cut(26_344, 1.75, brokers=3, spark_workers=2))
"""Together they have every deed but a zombie's rival on its own checkpoint, orderly stops and elections.

A driver takes longest to come back, so they share what befalls it: two drivers on a fresh checkpoint and a
full disk in the first, SIGKILL alone and with its children in the second. Both seeds are rare ones, whose
blows have all of it in so short a time, and on the cluster a minute between the two.
"""
