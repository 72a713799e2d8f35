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


KILLS: Final = frozenset({Deed.KILL, Deed.KILL_FAMILY, Deed.TAKE_OVER})
"""Deeds that send SIGKILL."""


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
)
"""A service comes back within a second or two and is hit often; a driver takes some 15 s, so it is hit
seldom, though often enough that it dies in each phase of a batch; a broker's death stops all others."""

REST_MS: Final = {
    **dict.fromkeys(SERVICES, 5_000),
    Victim.DRIVER: 35_000,
    Victim.BROKER: 40_000,
}
"""How long a victim is left alone after a blow."""

GAP_MS: Final = (2_500, 9_500)
"""From one blow to the next; 6 s on average, 300 in half an hour, at least 200 of them kills."""

CLOCK_STEP_MS_MAX: Final = 3_600_000
"""A driver's wall clock is stepped by at most an hour, forth and back."""

DUE_STEP_MS_MAX: Final = 20_000
"""A replay worker's by less: what is due waits for its wall clock, by design."""


def draw(seed: int, for_ms: int, available: Collection[Deed] = tuple(Deed)) -> list[Blow]:
    """Draw the blows of a run.

    Args:
        seed: any integer.
        for_ms: no blow begins or is held after this.
        available: deeds that can be done on this machine.

    Returns:
        Blows, ascending by when they begin.
    """
    dice = random.Random(seed)
    chances = [chance for chance in CHANCES if chance.deed in available]
    rested = dict.fromkeys(Victim, 0)
    blows: list[Blow] = []
    at_ms = 0
    while True:
        at_ms += dice.randint(*GAP_MS)
        blow = _draw_one(dice, chances, at_ms, rested)
        if blow.end_ms >= for_ms:
            return blows
        rested[blow.victim] = blow.end_ms + REST_MS[blow.victim]
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
    most = CLOCK_STEP_MS_MAX if victim is Victim.DRIVER else DUE_STEP_MS_MAX
    return dice.choice((-1, 1)) * dice.randint(1_000, most)
