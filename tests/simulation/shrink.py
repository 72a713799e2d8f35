"""Makes a failing run small: fewer faults, fewer records, fewer steps, as long as the same rule breaks.

What is left out is said by options of the command, so the small run is repeated by one command as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.simulation.ablations.ablations import ABLATIONS
from tests.simulation.options import Options
from tests.simulation.run import Run, run_options

TRIES: int = 150
"""Runs that shrinking may take: some seconds."""


def shrink(found: Run, ablate: str | None = None, tries: int = TRIES) -> Run:
    """Return the smallest run found that breaks the same rule.

    Args:
        found: a run that broke a rule.
        ablate: the safeguard that was taken out.
        tries: how many runs it may take.
    """
    if found.broken is None:
        return found
    rule = found.broken.rule
    ablation = ABLATIONS[ablate] if ablate else None
    best, improved = found, True
    while improved and tries > 0:
        improved = False
        for options in _smaller(best.options):
            tries -= 1
            run = run_options(options, ablation)
            if run.broken is not None and run.broken.rule == rule:
                best, improved = run, True
                break
            if tries <= 0:
                break
    return best


def _smaller(options: Options) -> Iterator[Options]:
    """Yield runs that are a little smaller, the best guesses first."""
    for fault in sorted(options.rates):
        yield options.without(fault)
    for field in ("steps", "records"):
        value: int = getattr(options, field)
        for share in (2, 4):
            less = value - value // share - (value < share)
            if 1 <= less < value:
                yield replace(options, **{field: less})  # type: ignore[arg-type]
    if options.groups > 1:
        yield replace(options, groups=1)
