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
    pipeline: Annotated[
        list[str] | None,
        typer.Option(help="narrow, grouped, shuffled, exact, start or delayed; default: the first two."),
    ] = None,
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


@bench_app.command("spout")
def bench_spout(
    records: Annotated[int, typer.Option(min=1, help="Records in a round.")] = 500_000,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, all contestants in turn.")] = 5,
    rate: Annotated[int, typer.Option(min=1, help="Records/s at which latency is measured.")] = 2_000,
    seconds: Annotated[int, typer.Option(min=0, help="How long; 0: no latency.")] = 20,
    json: Json = False,
) -> int:
    """A spout without Spark, a plain consumer and a share consumer: the same work, in turn."""
    from spout.bench.spout import SpoutOptions, run

    return interruptible(lambda: run(SpoutOptions(records, rounds, rate, seconds), json=json))


@bench_app.command("load")
def bench_load(
    roots: Annotated[int, typer.Option(min=1_000_000, help="Roots that are pending, or pass.")] = 10_000_000,
    json: Json = False,
) -> int:
    """Ten million pending roots, a burst, a straggler, a tree of a million tuples, a thousand partitions."""
    from spout.bench.load import run

    return interruptible(lambda: run(roots, json=json))


@bench_app.command("replay")
def bench_replay(
    records: Annotated[int, typer.Option(min=100_000, help="Records of the source topic.")] = 1_000_000,
    scheduled: Annotated[int, typer.Option(min=10_000, help="Roots that wait at once.")] = 10_000_000,
    json: Json = False,
) -> int:
    """Lost roots: scheduled, taken over, fetched from near and far, and copied."""
    from spout.bench.replay import run

    return interruptible(lambda: run(records, scheduled, json=json))


@bench_app.command("order")
def bench_order(
    records: Annotated[int, typer.Option(min=1, help="Records in a round without failures.")] = 400_000,
    failing: Annotated[int, typer.Option(min=1, help="Records in a round with failures.")] = 40_000,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, all contestants in turn.")] = 3,
    json: Json = False,
) -> int:
    """The same pipeline without an ordering, by key and by partition, with and without failures."""
    from spout.bench.order import OrderOptions, run

    return interruptible(lambda: run(OrderOptions(records, failing, rounds), json=json))


def interruptible(command: Callable[[], int]) -> int:
    """Run a command whose parts end when a signal unwinds it."""
    from spout.local.up import Interrupted, ending_on_signals

    try:
        with ending_on_signals():
            return command()
    except Interrupted as interrupted:
        return interrupted.exit_code
