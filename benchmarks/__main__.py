"""The commands ``python -m benchmarks``, for whoever wants to check a figure."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Annotated

import typer

from spout.cli import main as windhover
from spout.local.up import interruptible

app = typer.Typer(
    help="Measure, each against what it is compared with.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


@app.command("ledger")
def ledger(
    roots: Annotated[int, typer.Option(min=1, help="Open roots.")] = 10_000_000, json: windhover.Json = False
) -> int:
    """Contributions folded per second by one acker, and the memory of open roots."""
    from benchmarks.services.ledger import run

    return interruptible(lambda: run(roots, json=json))


@app.command("tracking")
def tracking(
    records: Annotated[int, typer.Option(min=1, help="Records in a round.")] = 4_000_000,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, tracked and untracked in turn.")] = 5,
    warm: Annotated[int, typer.Option(min=0, help="Rounds before them, while JIT compilers work.")] = 1,
    pipeline: Annotated[
        list[str] | None,
        typer.Option(
            help="read, split, narrow, grouped, topology, shuffled, exact, start, delayed, exact-kafka,"
            " exact-postgres; default: narrow, grouped."
        ),
    ] = None,
    lead_in: Annotated[
        int, typer.Option(min=1, help="Records beside those of a round that do not count as steady.")
    ] = 1_000_000,
    batch: Annotated[int, typer.Option(min=1, help="Records of a micro-batch at most.")] = 1 << 20,
    json: windhover.Json = False,
) -> int:
    """The same pipeline in Spark, tracked and untracked, in one run."""
    from benchmarks.streams.tracking import TrackingOptions, run

    options = TrackingOptions(records=records, rounds=rounds, warm=warm, lead_in=lead_in, batch=batch)
    if pipeline:
        options = replace(options, pipelines=tuple(pipeline))
    return interruptible(lambda: run(options, json=json))


@app.command("first-output")
def first_output(
    rounds: Annotated[int, typer.Option(min=1, help="How often each command is started.")] = 9,
    json: windhover.Json = False,
) -> int:
    """Start commands, and Python with their libraries alone, in turn: the time until the first byte."""
    from benchmarks.services.first_output import run

    return interruptible(lambda: run(rounds, json=json))


@app.command("restart")
def restart(
    roots: Annotated[int, typer.Option(min=1, help="Open roots when it is killed.")] = 1_000_000,
    json: windhover.Json = False,
) -> int:
    """Kill an acker and start it again: the time until it gives verdicts, and the replays it caused."""
    from benchmarks.services.restart import run

    return interruptible(lambda: run(roots, json=json))


@app.command("spout")
def spout(
    records: Annotated[int, typer.Option(min=1, help="Records in a round.")] = 500_000,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, all contestants in turn.")] = 5,
    json: windhover.Json = False,
) -> int:
    """A spout without Spark, a plain consumer and a share consumer: the same work, in turn."""
    from benchmarks.streams.spout import SpoutOptions, run

    return interruptible(lambda: run(SpoutOptions(records, rounds), json=json))


@app.command("latency")
def latency(
    rate: Annotated[int, typer.Option(min=1, help="Records a second.")] = 2_000,
    seconds: Annotated[int, typer.Option(min=10, help="How long each contestant gets records.")] = 20,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, all contestants in turn.")] = 3,
    pipeline: Annotated[
        list[str] | None,
        typer.Option(
            help="split, grouped, exact-kafka, exact-postgres (through Spark), alone (without it); default:"
            " split, grouped, alone."
        ),
    ] = None,
    json: windhover.Json = False,
) -> int:
    """From `produce()` to the durable ack, at a steady rate: tracked, untracked, and by others."""
    from benchmarks.streams.latency import PIPELINES_MEASURED, LatencyOptions, run

    options = LatencyOptions(rate, seconds, rounds, tuple(pipeline or PIPELINES_MEASURED))
    return interruptible(lambda: run(options, json=json))


@app.command("idle")
def idle(
    seconds: Annotated[int, typer.Option(min=1, help="Seconds of a round.")] = 60,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds.")] = 5,
    warm: Annotated[int, typer.Option(min=0, help="Seconds of each that do not count.")] = 10,
    late: Annotated[int, typer.Option(min=1, help="Records that come behind a round, one by one.")] = 5,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of the source topic.")] = 4,
    ackers: Annotated[int, typer.Option(min=1, help="Acker partitions.")] = 4,
    json: windhover.Json = False,
) -> int:
    """Services and queries with nothing to do: CPU, requests to the broker, and how late a record is then."""
    from benchmarks.services.idle import IdleOptions, run

    return interruptible(lambda: run(IdleOptions(seconds, rounds, warm, late, partitions, ackers), json=json))


@app.command("planning")
def planning(
    partitions: Annotated[int, typer.Option(min=1, help="Source partitions.")] = 200,
    ackers: Annotated[int, typer.Option(min=1, help="Acker partitions.")] = 64,
    batches: Annotated[int, typer.Option(min=1, help="Batches.")] = 30,
    seconds: Annotated[int, typer.Option(min=1, help="How long it idles.")] = 20,
    json: windhover.Json = False,
) -> int:
    """Plan batches of few partitions, and of many: taking the group, the first batch, later ones, idling."""
    from benchmarks.services.planning import PlanningOptions, run

    return interruptible(lambda: run(PlanningOptions(partitions, ackers, batches, seconds), json=json))


@app.command("load")
def load(
    roots: Annotated[int, typer.Option(min=1_000_000, help="Roots that are pending, or pass.")] = 10_000_000,
    json: windhover.Json = False,
) -> int:
    """Ten million pending roots, a burst, a straggler, a tree of a million tuples, a thousand partitions."""
    from benchmarks.services.load import run

    return interruptible(lambda: run(roots, json=json))


@app.command("replay")
def replay(
    records: Annotated[int, typer.Option(min=100_000, help="Records of the source topic.")] = 1_000_000,
    scheduled: Annotated[int, typer.Option(min=10_000, help="Roots that wait at once.")] = 10_000_000,
    json: windhover.Json = False,
) -> int:
    """Lost roots: scheduled, taken over, fetched from near and far, and copied."""
    from benchmarks.services.replay import run

    return interruptible(lambda: run(records, scheduled, json=json))


@app.command("order")
def order(
    records: Annotated[int, typer.Option(min=1, help="Records in a round without failures.")] = 1_600_000,
    failing: Annotated[int, typer.Option(min=10, help="Records in a round with failures.")] = 800_000,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, all contestants in turn.")] = 3,
    json: windhover.Json = False,
) -> int:
    """The same pipeline without an ordering, by key and by partition, with and without failures."""
    from benchmarks.streams.order import OrderOptions, run

    return interruptible(lambda: run(OrderOptions(records, failing, rounds), json=json))


@app.command("failing")
def failing(
    records: Annotated[int, typer.Option(min=1, help="Records in a round.")] = 4_000_000,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, all contestants in turn.")] = 5,
    warm: Annotated[int, typer.Option(min=0, help="Rounds that do not count, before them.")] = 2,
    fail_every: Annotated[int, typer.Option("--every", min=2, help="One record in so many fails.")] = 1_000,
    rows: Annotated[bool, typer.Option("--rows", help="The bolt is called for each record.")] = False,
    lead_in: Annotated[
        int, typer.Option(min=1, help="Records beside those of a round that do not count.")
    ] = 1_000_000,
    batch: Annotated[int, typer.Option(min=1, help="Records of a micro-batch at most.")] = 1 << 20,
    json: windhover.Json = False,
) -> int:
    """What a failing record costs the others: untracked, tracked, and tracked with failures."""
    from benchmarks.streams.failing import FailingOptions, run

    options = FailingOptions(
        records, rounds, warm, fail_every, "rows" if rows else "columns", lead_in=lead_in, batch=batch
    )
    return interruptible(lambda: run(options, json=json))


@app.command("size")
def size(
    rate: Annotated[int, typer.Option(min=1, help="Records/s.")] = 2_000,
    batch: Annotated[float, typer.Option(min=0.2, help="Seconds between two micro-batches.")] = 1.0,
    sink: Annotated[float, typer.Option(min=0, help="Seconds that the sink takes for each.")] = 0.0,
    sources: Annotated[int, typer.Option(min=1, help="Partitions of the input.")] = 4,
    ackers: Annotated[int, typer.Option(min=1, help="Acker partitions.")] = 2,
    lost_every: Annotated[int, typer.Option(min=0, help="Each so manieth record fails once; 0: none.")] = 0,
    seconds: Annotated[float, typer.Option(min=5, help="How long it is measured.")] = 30.0,
    json: windhover.Json = False,
) -> int:
    """What `windhover size` computes, against a run on Spark: bytes of the ack topics, and requests."""
    from benchmarks.streams.size import SizeOptions, run

    options = SizeOptions(rate, batch, sink, sources, ackers, lost_every, seconds)
    return interruptible(lambda: run(options, json=json))


@app.command("page")
def page(
    rate: Annotated[int, typer.Option(min=40, help="Records a second.")] = 2_000,
    seconds: Annotated[int, typer.Option(min=1, help="Seconds of verdicts that are in the log.")] = 3_600,
    stuck: Annotated[bool, typer.Option("--stuck", help="A root is open since before all of them.")] = False,
    json: windhover.Json = False,
) -> int:
    """Start the page on a large log: how soon it shows something, how soon everything, and its memory."""
    from benchmarks.services.page import run

    return interruptible(lambda: run(rate, seconds, stuck=stuck, json=json))


if __name__ == "__main__":
    # modules are compiled once, as those of an installed package: to compile all takes a process 0.15 s
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.exit(windhover.run(sys.argv[1:], app, "uv run python -m benchmarks"))
