"""``python -m tests.simulation``: the guarantee under random histories, and without each safeguard."""

from __future__ import annotations

import json as encoder
import sys
from collections.abc import Iterable
from time import monotonic
from typing import Annotated

import typer

from spout.cli import main as windhover
from tests.simulation import report
from tests.simulation.ablations.ablations import ABLATIONS
from tests.simulation.options import FAULTS
from tests.simulation.run import PROFILES, Tally
from tests.simulation.slices import Campaign, Finding, run_ablations, run_slices

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)

FAILED = 1

DEFAULT_SEEDS = 1_000

ABLATION_SEEDS = 5_000


@app.command()
def simulate(
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Runs; with --ablations the most for each. Default: 1000, 5000.")
    ] = None,
    first: Annotated[int | None, typer.Option("--from", min=0, help="The first seed. Default: 0.")] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            help="mixed, calm, rough, ordered, forged, exact, cut, or the name of an ablation, whose bias is"
            " taken. Default: mixed."
        ),
    ] = None,
    ablate: Annotated[str | None, typer.Option(help="Take one safeguard out.")] = None,
    ablations: Annotated[
        bool,
        typer.Option(
            "--ablations",
            help="Take out each safeguard in turn, under its own profile, and print the table."
            " Goes with --seeds, --jobs and --json alone.",
        ),
    ] = False,
    without: Annotated[str, typer.Option(help="Faults that are left out, separated by commas.")] = "",
    steps: Annotated[int | None, typer.Option(min=1, help="Steps before all is healed.")] = None,
    records: Annotated[int | None, typer.Option(min=1, help="Source records.")] = None,
    groups: Annotated[int | None, typer.Option(min=1, max=2, help="Groups that read them.")] = None,
    jobs: Annotated[int, typer.Option(min=1, max=256, help="Processes that share the work.")] = 1,
    json: windhover.Json = False,
) -> int:
    """Run the real services on an in-memory Kafka under faults drawn from seeds; checkers watch."""
    given = {
        "--from": first, "--profile": profile, "--ablate": ablate, "--without": without or None,
        "--steps": steps, "--records": records, "--groups": groups,
    }  # fmt: skip
    if ablations:
        _refuse(name for name, value in given.items() if value is not None)
        return _ablations(seeds or ABLATION_SEEDS, jobs, json=json)
    profile = profile or "mixed"
    left_out = [fault for fault in without.split(",") if fault]
    for name, known in ((profile, {*PROFILES, *ABLATIONS}), (ablate, {None, *ABLATIONS})):
        if name not in known:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(sorted(map(str, known - {None})))}")
    if unknown := set(left_out) - FAULTS.keys():
        raise typer.BadParameter(f"no fault is called {', '.join(sorted(unknown))}")
    changed = {"steps": steps, "records": records, "groups": groups}
    chosen = {name: value for name, value in changed.items() if value is not None}
    campaign = Campaign(first or 0, seeds or DEFAULT_SEEDS, profile, ablate, left_out, chosen)
    return _simulate(campaign, jobs, json=json)


def _refuse(names: Iterable[str]) -> None:
    """Refuse options that ``--ablations`` would not heed.

    Raises:
        BadParameter: there are some.
    """
    if refused := list(names):
        raise typer.BadParameter(
            f"--ablations runs each safeguard under a profile of its own, from seed 0, and takes no"
            f" {', '.join(refused)}; --ablate takes out one safeguard, with all of them"
        )


def _simulate(campaign: Campaign, jobs: int, *, json: bool) -> int:
    started, tally = monotonic(), Tally()
    found: list[Finding] = []
    for done in run_slices(campaign, jobs):
        tally.join(done.tally)
        found += done.findings
        if not json:
            for line in (line for finding in done.findings for line in finding.lines):
                typer.echo(line)
    seconds = monotonic() - started
    if json:
        typer.echo(encoder.dumps(report.as_json(tally, [finding.entry for finding in found], seconds)))
    else:
        for line in (*report.figures(tally, seconds), f"findings: {len(found)}"):
            typer.echo(line)
    return FAILED if found else 0


def _ablations(count: int, jobs: int, *, json: bool) -> int:
    falls = []
    if not json:
        for line in report.table(()):
            typer.echo(line)
    for fall in run_ablations(ABLATIONS, count, jobs):
        falls.append(fall)
        if not json:
            typer.echo(report.row(fall))
    if json:
        rows = [{"safeguard": f.name, "checker": f.rule, "seeds": f.seeds, "fell": f.fell} for f in falls]
        typer.echo(encoder.dumps({"ablations": rows}))
    standing = [fall.name for fall in falls if not fall.fell]
    if standing and not json:
        typer.echo(f"not fallen: {', '.join(standing)}")
    return FAILED if standing else 0


if __name__ == "__main__":
    sys.exit(windhover.run(sys.argv[1:], app, report.COMMAND))
