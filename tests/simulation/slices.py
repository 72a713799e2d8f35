"""Many seeds on many cores: slices of the seeds, each run by a process, told in the order of the seeds.

What a run leaves behind is its whole world; between processes go only figures and the text of the findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from typing import Any, Final, NamedTuple, TypeVar

from tests.simulation import report
from tests.simulation.ablations.ablations import ABLATIONS
from tests.simulation.options import Options, draw
from tests.simulation.run import Fall, Tally, profile_of, run_options
from tests.simulation.run import ablate as run_ablation
from tests.simulation.shrink import shrink

T = TypeVar("T")
R = TypeVar("R")

SLICE_SEEDS: Final = 20
"""Seeds that a process runs at a stretch."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """Which seeds are run, and how.

    Attributes:
        first: the first seed.
        count: how many seeds.
        profile: a name of `PROFILES`, or of an ablation whose bias is taken.
        ablate: the safeguard that is taken out; None for none.
        without: faults that are left out.
        changed: options that are not drawn but given.
    """

    first: int
    count: int
    profile: str = "mixed"
    ablate: str | None = None
    without: Sequence[str] = ()
    changed: Mapping[str, int] = field(default_factory=dict)

    def slices(self) -> Iterator[Campaign]:
        """Cut it into slices, in the order of the seeds."""
        for first in range(self.first, self.first + self.count, SLICE_SEEDS):
            yield replace(self, first=first, count=min(SLICE_SEEDS, self.first + self.count - first))


class Finding(NamedTuple):
    """A run that broke a rule: the lines that tell of it, and the same for ``--json``."""

    lines: tuple[str, ...]
    entry: Mapping[str, Any]


class Slice(NamedTuple):
    """What came of a slice."""

    tally: Tally
    findings: tuple[Finding, ...]


def run_slice(campaign: Campaign) -> Slice:
    """Run the seeds of a slice one after another, and make what breaks a rule small."""
    tally, findings = Tally(), list[Finding]()
    ablation = ABLATIONS[campaign.ablate] if campaign.ablate else None
    profile = profile_of(campaign.profile, campaign.ablate)
    is_first_hand = not (campaign.without or campaign.changed)
    for seed in range(campaign.first, campaign.first + campaign.count):
        drawn = draw(seed, profile, campaign.profile).without(*campaign.without)
        options: Options = replace(drawn, **campaign.changed)  # type: ignore[arg-type]
        run = run_options(options, ablation)
        tally.add(run)
        if run.broken is not None:
            small = shrink(run, campaign.ablate) if is_first_hand else run
            lines = tuple(report.finding(run, small, campaign.ablate))
            findings.append(Finding(lines, report.entry(run, small, campaign.ablate)))
    return Slice(tally, tuple(findings))


def run_slices(campaign: Campaign, jobs: int) -> Iterator[Slice]:
    """Run all seeds, `jobs` slices at a time; yield what came of each slice, in the order of the seeds."""
    return _shared(run_slice, campaign.slices(), jobs)


def run_ablations(names: Iterable[str], count: int, jobs: int) -> Iterator[Fall]:
    """Run ablations, `jobs` at a time, each until an expected checker falls; yield them in their order."""
    return _shared(partial(run_ablation, count=count), names, jobs)


def _shared(run: Callable[[T], R], items: Iterable[T], jobs: int) -> Iterator[R]:
    if jobs == 1:
        yield from map(run, items)
        return
    # Processes that begin anew share nothing with this one, whatever it has imported or started.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(run, items)
