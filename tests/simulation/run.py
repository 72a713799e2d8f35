"""Runs seeds, and says what came of them."""

from __future__ import annotations

import struct
import traceback
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from acker.errors import WindhoverError
from tests.simulation.ablations.ablations import ABLATIONS, Ablation, removed
from tests.simulation.options import EXACT, Options, Profile, draw
from tests.simulation.truth.facts import Broken
from tests.simulation.world.world import World

PROFILES: dict[str, Profile] = {
    "mixed": Profile(),
    "calm": Profile(share=0.0),
    "rough": Profile(share=0.8),
    "ordered": Profile(orders=1.0),
    "forged": Profile(always=MappingProxyType({"forged": 0.1})),
    "exact": Profile(always=MappingProxyType({"lost": 0.2}), sizes=EXACT),
    "cut": Profile(always=MappingProxyType({"cut": 0.02})),
    "lagging": Profile(always=MappingProxyType({"lagging": 0.7})),
}
"""What `--profile` may say, besides the name of an ablation."""


NEVER_CRASHES: Final = "NeverCrashes"
"""The rule that an exception breaks which nothing has caught: no checker's, but of every step."""

BUGS: Final = (
    WindhoverError, ArithmeticError, AssertionError, AttributeError, BufferError, EOFError, ImportError,
    LookupError, MemoryError, NameError, OSError, ReferenceError, RuntimeError, StopIteration, TypeError,
    ValueError, struct.error, zlib.error,
)  # fmt: skip
"""What a bug raises: all of Python's own, what its modules raise beside them, and errors of ours that nothing
has caught."""

TRACE_FRAMES: Final = 5
"""So many calls are told, the innermost ones."""


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
            _run(world)
        except Broken as broken:
            return Run(options, world, broken)
    return Run(options, world, None)


def _run(world: World) -> None:
    """Run a world; a process of the product would have died of whatever it raises.

    Raises:
        Broken: a rule was broken, or nobody has caught an exception.
    """
    try:
        world.run()
    except Broken:
        raise
    except BUGS as error:
        raise crashed(error) from error


def crashed(error: Exception) -> Broken:
    """Make a finding of an exception that nothing has caught."""
    frames = traceback.extract_tb(error.__traceback__)[-TRACE_FRAMES:]
    lines = [f"  {frame.filename}:{frame.lineno}, in {frame.name}: {frame.line}" for frame in frames]
    told = "".join(traceback.format_exception_only(error)).strip()
    return Broken(NEVER_CRASHES, "\n".join([told, *lines]))


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
        run = run_options(draw(first + number, ABLATIONS[name].profile, name), ABLATIONS[name])
        if run.broken is not None:
            if run.broken.rule in wanted:
                return Fall(name, number + 1, run.broken.rule, str(run.broken), tuple(others))
            others[run.broken.rule] += 1
            message = str(run.broken)
    return Fall(name, count, "", message, tuple(others))
