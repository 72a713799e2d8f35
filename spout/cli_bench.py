"""The commands ``windhover bench``: programs that measure, for whoever wants to hold a figure to account."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

bench_app = typer.Typer(help="Measure, each against what it is compared with.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")]


@bench_app.command("ledger")
def bench_ledger(
    roots: Annotated[int, typer.Option(min=1, help="Open roots.")] = 10_000_000, json: Json = False
) -> int:
    """Contributions folded per second by one acker, and the memory of open roots."""
    from spout.bench.ledger import run

    return interruptible(lambda: run(roots, json=json))


@bench_app.command("tracking")
def bench_tracking(
    records: Annotated[int, typer.Option(min=1, help="Records in a round.")] = 2_000_000,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, tracked and untracked in turn.")] = 7,
    pipeline: Annotated[list[str] | None, typer.Option(help="narrow or grouped; default: both.")] = None,
    json: Json = False,
) -> int:
    """The same pipeline in Spark, tracked and untracked, in one run."""
    from spout.bench.tracking import TrackingOptions, run

    options = TrackingOptions(records=records, rounds=rounds)
    if pipeline:
        options = TrackingOptions(records=records, rounds=rounds, pipelines=tuple(pipeline))
    return interruptible(lambda: run(options, json=json))


@bench_app.command("restart")
def bench_restart(
    roots: Annotated[int, typer.Option(min=1, help="Open roots when it is killed.")] = 1_000_000,
    json: Json = False,
) -> int:
    """Kill an acker and start it again: the time until it gives verdicts, and the replays it caused."""
    from spout.bench.restart import run

    return interruptible(lambda: run(roots, json=json))


def interruptible(command: Callable[[], int]) -> int:
    """Run a command whose parts end when a signal unwinds it."""
    from spout.up import Interrupted, ending_on_signals

    try:
        with ending_on_signals():
            return command()
    except Interrupted as interrupted:
        return interrupted.exit_code
