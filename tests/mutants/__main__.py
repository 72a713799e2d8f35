"""``python -m tests.mutants``: plant bugs, one at a time, and see the named test of each fall."""

from __future__ import annotations

import json as encoder
import sys
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Annotated

import typer

from acker.errors import UsageError
from spout.cli import main as windhover
from tests.mutants.mutant import Mutant
from tests.mutants.run import Fate, failing_without, judged
from tests.mutants.table import MUTANTS

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)

FAILED = 1


@app.command()
def mutants(
    only: Annotated[
        list[str] | None, typer.Option(help="Only the mutant of this name; may be repeated.")
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="List the mutants; run nothing.")] = False,
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Copies of the tree at work.")] = 2,
    json: windhover.Json = False,
) -> int:
    """Plant realistic bugs in copies of the tree; exit with 1 if the named test of one does not fall."""
    chosen = _chosen(only)
    if show:
        _print([each._asdict() for each in chosen], [f"{m.name}\n    {m.test}" for m in chosen], json=json)
        return 0
    began = monotonic()
    failing = failing_without(chosen)
    if failing:
        typer.echo(f"a named test falls without any bug, so it proves nothing:\n{failing}", err=True)
        return FAILED
    survivors = 0
    for verdict in judged(chosen, jobs):
        survivors += verdict.fate is not Fate.FELL
        row: dict[str, object] = {
            "name": verdict.mutant.name,
            "fate": verdict.fate.value,
            "seconds": round(verdict.seconds, 1),
        }
        _print([row | {"test": verdict.mutant.test}], [str(verdict)], json=json)
    if not json:
        fell = len(chosen) - survivors
        typer.echo(f"{fell} of {len(chosen)} planted bugs fell, in {monotonic() - began:.0f} s")
    return FAILED if survivors else 0


def _chosen(only: list[str] | None) -> list[Mutant]:
    names = {each.name: each for each in MUTANTS}
    unknown = [name for name in only or () if name not in names]
    if unknown:
        raise UsageError(f"there is no mutant {unknown[0]!r}; --list shows all")
    return [names[name] for name in only] if only else list(MUTANTS)


def _print(rows: Sequence[Mapping[str, object]], lines: list[str], *, json: bool) -> None:
    for line in [encoder.dumps(row) for row in rows] if json else lines:
        typer.echo(line)


if __name__ == "__main__":
    sys.exit(windhover.run(sys.argv[1:], app, "python -m tests.mutants"))
