"""The command ``windhover simulate``: the guarantee under random histories, and without each safeguard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from spout.cli_bench import Json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spout.simulation.options import Options
    from spout.simulation.run import Run, Tally

FAILED = 1

ABLATION_SEEDS = 5_000


def simulate(
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Runs; with --ablations the most for each. Default: 1000, 5000.")
    ] = None,
    first: Annotated[int, typer.Option("--from", min=0, help="The first seed.")] = 0,
    profile: Annotated[
        str, typer.Option(help="mixed, calm, rough, or the name of an ablation, whose bias is taken.")
    ] = "mixed",
    ablate: Annotated[str | None, typer.Option(help="Take one safeguard out.")] = None,
    ablations: Annotated[
        bool, typer.Option("--ablations", help="Take out each safeguard in turn, and print the table.")
    ] = False,
    without: Annotated[str, typer.Option(help="Faults that are left out, separated by commas.")] = "",
    steps: Annotated[int | None, typer.Option(min=1, help="Steps before all is healed.")] = None,
    records: Annotated[int | None, typer.Option(min=1, help="Source records.")] = None,
    groups: Annotated[int | None, typer.Option(min=1, max=2, help="Groups that read them.")] = None,
    json: Json = False,
) -> int:
    """Run the real services on an in-memory Kafka under faults drawn from seeds; checkers watch."""
    from spout.simulation.ablations import ABLATIONS
    from spout.simulation.options import FAULTS
    from spout.simulation.run import PROFILES

    left_out = [fault for fault in without.split(",") if fault]
    for name, known in ((profile, {*PROFILES, *ABLATIONS}), (ablate, {None, *ABLATIONS})):
        if name not in known:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(sorted(map(str, known - {None})))}")
    if unknown := set(left_out) - FAULTS.keys():
        raise typer.BadParameter(f"no fault is called {', '.join(sorted(unknown))}")
    if ablations:
        return _ablations(seeds or ABLATION_SEEDS, json=json)
    changed = {"steps": steps, "records": records, "groups": groups}
    chosen = {name: value for name, value in changed.items() if value is not None}
    return _simulate(seeds or 1_000, first, profile, ablate, left_out, chosen, json=json)


def _simulate(
    count: int, first: int, profile: str, ablate: str | None, without: Sequence[str],
    changed: dict[str, int], *, json: bool,
) -> int:  # fmt: skip
    import json as encoder
    from dataclasses import replace
    from time import monotonic

    from spout.simulation import report
    from spout.simulation.ablations import ABLATIONS
    from spout.simulation.options import draw
    from spout.simulation.run import Tally, profile_of, run_options
    from spout.simulation.shrink import shrink

    started, tally = monotonic(), Tally()
    ablation = ABLATIONS[ablate] if ablate else None
    is_first_hand = not (without or changed)
    found: list[tuple[Run, Run, str]] = []
    for seed in range(first, first + count):
        drawn = draw(seed, profile_of(profile, ablate), profile)
        options: Options = replace(drawn.without(*without), **changed)  # type: ignore[arg-type]
        run = run_options(options, ablation)
        tally.add(run)
        if run.broken is None:
            continue
        small = shrink(run, ablate) if is_first_hand else run
        found.append((run, small, report.command(small.options, ablate)))
        if not json:
            for line in report.finding(run, small, ablate):
                typer.echo(line)
    _print(tally, found, monotonic() - started, encoder.dumps if json else None)
    return FAILED if found else 0


def _print(tally: Tally, found: Sequence[tuple[Run, Run, str]], seconds: float, dumps: object) -> None:
    from spout.simulation import report

    if callable(dumps):
        typer.echo(dumps(report.as_json(tally, found, seconds)))
        return
    for line in report.figures(tally, seconds):
        typer.echo(line)
    typer.echo(f"findings: {len(found)}")


def _ablations(count: int, *, json: bool) -> int:
    import json as encoder

    from spout.simulation import report
    from spout.simulation.ablations import ABLATIONS
    from spout.simulation.run import ablate_all

    falls = []
    if not json:
        for line in report.table(()):
            typer.echo(line)
    for fall in ablate_all(ABLATIONS, count):
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
