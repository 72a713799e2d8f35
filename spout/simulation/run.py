"""Runs seeds, and says what came of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from spout.simulation.ablations import ABLATIONS, Ablation, removed
from spout.simulation.facts import Broken
from spout.simulation.options import Options, Profile, draw
from spout.simulation.world import World

PROFILES: dict[str, Profile] = {
    "mixed": Profile(),
    "calm": Profile(share=0.0),
    "rough": Profile(share=0.8),
    "ordered": Profile(orders=1.0),
}
"""What `--profile` may say, besides the name of an ablation."""


class Run(NamedTuple):
    """One run, and the rule that it broke, if it broke one."""

    options: Options
    world: World
    broken: Broken | None


@dataclass(slots=True)
class Tally:
    """Figures of many runs.

    Attributes:
        runs: how many.
        steps: of the scheduler, in all.
        events: that the histories tell.
        verdicts: that were given.
        faults: how often each happened.
    """

    runs: int = 0
    steps: int = 0
    events: int = 0
    verdicts: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, run: Run) -> None:
        """Count a run."""
        self.runs += 1
        self.steps += run.world.steps
        self.events += run.world.truth.at
        self.verdicts += run.world.truth.verdicts
        self.faults += run.world.faults

    def join(self, other: Tally) -> None:
        """Add the figures of other runs."""
        self.runs += other.runs
        self.steps += other.steps
        self.events += other.events
        self.verdicts += other.verdicts
        self.faults += other.faults


def run_options(options: Options, ablation: Ablation | None = None) -> Run:
    """Run what was drawn."""
    with removed(ablation):
        world = World(options)
        try:
            world.run()
        except Broken as broken:
            return Run(options, world, broken)
    return Run(options, world, None)


def profile_of(name: str, ablate: str | None = None) -> Profile:
    """Return the profile of a name; an ablation brings its own."""
    if name in PROFILES:
        return ABLATIONS[ablate].profile if ablate and name == "mixed" else PROFILES[name]
    return ABLATIONS[name].profile


def seeds(first: int, count: int, profile: str = "mixed", ablate: str | None = None) -> Iterator[Run]:
    """Run seeds one after another."""
    chosen = profile_of(profile, ablate)
    ablation = ABLATIONS[ablate] if ablate else None
    for seed in range(first, first + count):
        yield run_options(draw(seed, chosen, profile), ablation)


class Fall(NamedTuple):
    """What came of an ablation: the seeds that it took, and the checker that fell; none when it stood."""

    name: str
    seeds: int
    rule: str
    message: str
    others: tuple[str, ...] = ()

    @property
    def fell(self) -> bool:
        """Whether an expected checker fell."""
        return self.rule in ABLATIONS[self.name].falls


def ablate(name: str, count: int, first: int = 0) -> Fall:
    """Run an ablation until an expected checker falls."""
    others: Counter[str] = Counter()
    wanted = ABLATIONS[name].falls
    message = ""
    for number in range(count):
        options = draw(first + number, ABLATIONS[name].profile, name)
        try:
            run = run_options(options, ABLATIONS[name])
        except (LookupError, ValueError, TypeError, AttributeError, AssertionError, OverflowError) as error:
            others[type(error).__name__] += 1  # the product does not stand what the ablation makes of it
            message = str(error)
            continue
        if run.broken is not None:
            if run.broken.rule in wanted:
                return Fall(name, number + 1, run.broken.rule, str(run.broken), tuple(others))
            others[run.broken.rule] += 1
            message = str(run.broken)
    return Fall(name, count, "", message, tuple(others))
