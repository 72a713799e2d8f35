"""What `python -m tests.simulation` prints: figures, findings and their shortest history, ablations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from tests.simulation.ablations.ablations import ABLATIONS
from tests.simulation.options import FAULTS, Options, draw
from tests.simulation.run import Fall, Run, Tally, profile_of

COMMAND: Final = "uv run python -m tests.simulation"

HISTORY_LINES_MAX: Final = 120

SHRUNK: Final = ("steps", "records", "groups")

_NOISE: Final = frozenset({"uneven", "commit", "lagging"})


def command(options: Options, ablate: str | None) -> str:
    """Return the one command that repeats a run."""
    drawn = draw(options.seed, profile_of(options.profile, ablate), options.profile)
    words = [f"{COMMAND} --seeds 1", f"--from {options.seed}"]
    if options.profile != "mixed":
        words.append(f"--profile {options.profile}")
    if ablate:
        words.append(f"--ablate {ablate}")
    without = [fault for fault in FAULTS if fault in drawn.rates and fault not in options.rates]
    if without:
        words.append(f"--without {','.join(without)}")
    changed = [name for name in SHRUNK if getattr(options, name) != getattr(drawn, name)]
    words += [f"--{name} {getattr(options, name)}" for name in changed]
    return " ".join(words)


def finding(found: Run, small: Run, ablate: str | None) -> Iterator[str]:
    """Tell of a run that broke a rule: seed, options, rule, shortest history, command."""
    yield f"seed {found.options.seed}: {found.broken}"
    if small.broken is not None and small is not found:
        yield f"shrunk: {small.broken}"
    options = small.options
    for name in options.__slots__:
        if name != "rates":
            yield f"  {name} = {getattr(options, name)}"
    rates = ", ".join(f"{fault} {rate:g}" for fault, rate in options.rates.items())
    yield f"  faults = {rates or 'none'}"
    events = [event for event in small.world.events if event[2] not in _NOISE]
    yield f"history, the last {min(len(events), HISTORY_LINES_MAX)} of {len(events)} events (step, ms, what):"
    for event in events[-HISTORY_LINES_MAX:]:
        yield f"  {' '.join(map(str, event))}"
    yield f"repeat it: {command(options, ablate)}"


def figures(tally: Tally, seconds: float) -> Iterator[str]:
    """Tell of all runs."""
    yield (
        f"{tally.runs:,} runs, {tally.steps:,} steps, {tally.events:,} events, {tally.verdicts:,} verdicts"
        f" in {seconds:,.0f} s ({tally.runs / max(seconds, 0.001):,.0f} a second)"
    )
    faults = ", ".join(f"{name} {count:,}" for name, count in sorted(tally.faults.items()) if count)
    yield f"faults: {faults or 'none'}"


def table(falls: Iterable[Fall]) -> Iterator[str]:
    """Yield the lines of the table of ablations, Markdown."""
    yield "| safeguard | without it | checker that fell | seeds |"
    yield "|---|---|---|---|"
    for fall in falls:
        yield row(fall)


def row(fall: Fall) -> str:
    """Return one line of the table."""
    ablation = ABLATIONS[fall.name]
    pair = f" (with {ablation.pair})" if ablation.pair else ""
    rule = fall.rule if fall.fell else f"none of {', '.join(ablation.falls)}"
    return f"| {fall.name}{pair} | {ablation.removes} | {rule} | {fall.seeds:,} |"


def entry(found: Run, small: Run, ablate: str | None) -> dict[str, object]:
    """Return what is to tell of a run that broke a rule as one JSON object."""
    return {
        "seed": found.options.seed,
        "rule": found.broken.rule if found.broken else "",
        "message": str(found.broken),
        "command": command(small.options, ablate),
        "digest": small.world.digest(),
    }


def as_json(tally: Tally, findings: Sequence[Mapping[str, object]], seconds: float) -> dict[str, object]:
    """Return the figures as one JSON object."""
    return {
        "runs": tally.runs,
        "steps": tally.steps,
        "events": tally.events,
        "verdicts": tally.verdicts,
        "seconds": round(seconds, 3),
        "faults": dict(sorted(tally.faults.items())),
        "findings": list(findings),
    }
