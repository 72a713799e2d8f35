"""``python -m tests.matrix --spark 4.0 --python 3.13``: run tests on other versions of Spark and Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from tests.matrix.checkpoints import run_chain
from tests.matrix.pythons import make_python_environment, run_on_python
from tests.matrix.rows import write_row
from tests.matrix.versions import QUICK, RING, make_environment, run_tests

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)


@app.command()
def matrix(
    spark: Annotated[
        list[str] | None, typer.Option(help="A version, such as 4.0 or 4.1.4; may be repeated.")
    ] = None,
    pythons: Annotated[
        list[str] | None,
        typer.Option("--python", help="A version, such as 3.13, or a program; may be repeated."),
    ] = None,
    quick: Annotated[bool, typer.Option(help="Only what takes two minutes; no row is written.")] = False,
    checkpoint: Annotated[
        bool,
        typer.Option(
            help="No tests: one checkpoint goes through the versions of Spark in their order, and back."
        ),
    ] = False,
    folder: Annotated[
        Path | None, typer.Option(help="Where environments and logs are kept; default a temporary folder.")
    ] = None,
) -> None:
    """Make an environment for each version, run the tests there, and write its row into limits.md.

    Exits with 1 if a test fell. A version of which a test fell gets no row.
    """
    has_failed = False
    with TemporaryDirectory() as temporary:
        kept = folder or Path(temporary)
        kept.mkdir(parents=True, exist_ok=True)
        if checkpoint:
            has_failed = _go_through_versions(spark or [], kept)
            spark = None
        for version in spark or ():
            python = make_environment(kept, version)
            outcome = run_tests(python, QUICK if quick else RING, kept)
            typer.echo(f"PySpark {outcome.version}: {outcome.counts or 'no tests ran'}")
            if outcome.exit_code:
                has_failed = True
                typer.echo((kept / f"spark-{outcome.version}.log").read_text(encoding="utf-8"), err=True)
            elif not quick:
                write_row("PySpark", outcome)
        for version in pythons or ():
            outcome = run_on_python(make_python_environment(kept, version), kept)
            typer.echo(f"Python {outcome.version}: {outcome.counts or 'no tests ran'}")
            if outcome.exit_code:
                has_failed = True
                for log in sorted(kept.glob(f"python-{outcome.version}*.log")):
                    typer.echo(log.read_text(encoding="utf-8"), err=True)
            else:
                write_row("Python", outcome)
    raise typer.Exit(int(has_failed))


def _go_through_versions(versions: Sequence[str], folder: Path) -> bool:
    """Run queries on one checkpoint by one version after the other, and back; return whether they failed."""
    pythons = [make_environment(folder, version) for version in versions]
    there_and_back = [*pythons, *pythons[-2::-1]]
    chain = run_chain(there_and_back, folder)
    for fault in chain.faults:
        typer.echo(fault, err=True)
    names = ", ".join([*versions, *versions[-2::-1]])
    typer.echo(f"one checkpoint on {names}: {chain.rows} rows, {len(chain.faults)} faults")
    return bool(chain.faults)


if __name__ == "__main__":
    app()
