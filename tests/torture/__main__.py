"""``python -m tests.torture``: real kills on a real broker and a real Spark, and a judgement."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from spout.cli import main as windhover
from spout.local.up import interruptible
from tests.torture.run import run
from tests.torture.stage.driver import UPSERT
from tests.torture.stage.stage import TortureOptions

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)


@app.command()
def torture(
    minutes: Annotated[float, typer.Option(help="How long blows fall; 30 are some 230 kills.")] = 5.0,
    seed: Annotated[int, typer.Option(help="Which blows fall is drawn from it.")] = 0,
    json: windhover.Json = False,
    records_per_second: Annotated[float, typer.Option(help="Written all the while.")] = 60.0,
    keep: Annotated[
        Path | None, typer.Option("--dir", help="Keep logs and data here; default: a folder that is removed.")
    ] = None,
    brokers: Annotated[int, typer.Option(help="1, or 3: a cluster, whose brokers are lost in turn.")] = 1,
    spark_workers: Annotated[
        int, typer.Option(help="0, or 2: Spark standalone, whose executors and workers are lost, too.")
    ] = 0,
    missing: Annotated[
        float, typer.Option(help="Minutes for which one of 3 brokers is missing; nothing else is hurt.")
    ] = 0.0,
    sink: Annotated[
        str, typer.Option(help="upsert; or sqlite, kafka, postgres: stores that are written exactly once.")
    ] = UPSERT,
    pace: Annotated[
        float, typer.Option(help="So many times less often blows fall: for a machine that is slower.")
    ] = 1.0,
) -> int:
    """Kill, stop, cut off and starve every part at random; prove from the topics that nothing was lost."""
    options = TortureOptions(
        minutes, seed, records_per_second, json, keep, brokers, spark_workers, missing, sink, pace
    )
    return interruptible(lambda: run(options, os.environ))


if __name__ == "__main__":
    sys.exit(windhover.run(sys.argv[1:], app, "uv run python -m tests.torture"))
