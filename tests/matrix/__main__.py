"""``python -m tests.matrix``: run tests on other versions of Spark, Python and Kafka."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from tests.brokers.judging import passes_on_broker
from tests.matrix.checkpoints import run_chain
from tests.matrix.pythons import PYTHONS, make_python_environment, newest_python, run_on_python
from tests.matrix.rows import write_row
from tests.matrix.versions import QUICK, RELEASES, RING, make_environment, run_tests
from tests.support.servers.kafka_releases import RELEASES as KAFKA_RELEASES

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
    newest_python_here: Annotated[
        bool,
        typer.Option("--newest-python", help="The newest Python behind 3.11 that this machine has."),
    ] = False,
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
    """Run tests on other versions, each in an environment of its own; write their rows into limits.md.

    Without options: all versions of Spark and Python but those of `uv.lock`, whose tests are those of
    the project; one checkpoint through all of Spark; the releases of Kafka. Exits with 1 if a test
    fell, or if a version cannot be had; such a version gets no row.
    """
    has_failed = False
    is_whole = not (spark or pythons or newest_python_here or quick or checkpoint)
    is_of_python = bool(pythons) or newest_python_here
    # of the tests; the checkpoint goes through the last release, too, which is that of uv.lock
    sparks = spark or ([] if is_of_python else list(RELEASES[:-1]))
    pythons = list(PYTHONS) if is_whole else list(pythons or ())
    if newest_python_here:
        newest = newest_python()
        if newest is None:
            typer.echo(f"Python {', '.join(PYTHONS)}: NOT RUN: this machine has none of them")
        else:
            pythons.append(str(newest))
    with TemporaryDirectory() as temporary:
        kept = folder or Path(temporary)
        kept.mkdir(parents=True, exist_ok=True)
        if checkpoint or is_whole:
            has_failed |= not _passes_from_version_to_version(spark or list(RELEASES), kept)
        for version in [] if checkpoint else sparks:
            has_failed |= not _passes_on_spark(version, kept, is_quick=quick)
        for version in pythons:
            has_failed |= not _passes_on_python(version, kept, is_quick=quick)
        for release in KAFKA_RELEASES if is_whole else ():
            has_failed |= not passes_on_broker(release, kept, has_row=True)
    raise typer.Exit(int(has_failed))


def _passes_on_spark(version: str, folder: Path, *, is_quick: bool) -> bool:
    """Run the tests on a version of Spark; return whether all passed, False also if it cannot be had.

    `is_quick`: only the quick ones, and no row is written.
    """
    try:
        python = make_environment(folder, version)
    except subprocess.CalledProcessError as error:
        return _cannot_be_had("PySpark", version, error)
    outcome = run_tests(python, QUICK if is_quick else RING, folder)
    typer.echo(f"PySpark {outcome.version}: {outcome.counts or 'no tests ran'}")
    if outcome.exit_code:
        typer.echo((folder / f"spark-{outcome.version}.log").read_text(encoding="utf-8"), err=True)
    elif not is_quick:
        write_row("PySpark", outcome)
    return not outcome.exit_code


def _passes_on_python(version: str, folder: Path, *, is_quick: bool) -> bool:
    """Run the tests on a Python; return whether all passed, False also if uv cannot get this Python.

    `is_quick`: only the quick ones, and no row is written.
    """
    try:
        python = make_python_environment(folder, version)
    except subprocess.CalledProcessError as error:
        return _cannot_be_had("Python", version, error)
    outcome = run_on_python(python, folder, is_quick=is_quick)
    typer.echo(f"Python {outcome.version}: {outcome.counts or 'no tests ran'}")
    if outcome.exit_code:
        for log in sorted(folder.glob(f"python-{outcome.version}*.log")):
            typer.echo(log.read_text(encoding="utf-8"), err=True)
    elif not is_quick:
        write_row("Python", outcome)
    return not outcome.exit_code


def _passes_from_version_to_version(versions: Sequence[str], folder: Path) -> bool:
    """Run queries on one checkpoint by one version of Spark after the other, and back; return whether
    each record became a row once. False also if a version cannot be had.
    """
    pythons: list[Path] = []
    for version in versions:
        try:
            pythons.append(make_environment(folder, version))
        except subprocess.CalledProcessError as error:
            return _cannot_be_had("one checkpoint on PySpark", version, error)
    there_and_back = [*pythons, *pythons[-2::-1]]
    chain = run_chain(there_and_back, folder)
    for fault in chain.faults:
        typer.echo(fault, err=True)
    names = ", ".join([*versions, *versions[-2::-1]])
    typer.echo(f"one checkpoint on {names}: {chain.rows} rows, {len(chain.faults)} faults")
    return not chain.faults


def _cannot_be_had(product: str, version: str, error: subprocess.CalledProcessError) -> bool:
    """Print that a version was not run, and why; return that it did not pass."""
    typer.echo(f"{product} {version}: NOT RUN: `{shlex.join(error.cmd)}` ended with {error.returncode}")
    return False


if __name__ == "__main__":
    app()
