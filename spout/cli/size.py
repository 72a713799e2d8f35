"""The command that computes how large an installation must be."""

from __future__ import annotations

from typing import Annotated

import typer

from spout.cli.common import parse_duration
from spout.inspect.tables import As, Column, OutputFormat, count, write

COLUMNS = (Column("what", "what"), Column("value", "value", count), Column("unit", "unit"))


def size(
    records: Annotated[float, typer.Option(min=0.001, max=1e9, help="Records/s of the input.")],
    record_bytes: Annotated[int, typer.Option(min=1, help="Size of one record, in bytes.")] = 1_000,
    tuples: Annotated[int, typer.Option(min=0, help="Tuples that descend from one record.")] = 10,
    timeout: Annotated[str, typer.Option(help="Timeout of the input, as in topics.yaml.")] = "30s",
    batch: Annotated[str, typer.Option(help="Time from one micro-batch to the next.")] = "1s",
    work: Annotated[
        str | None,
        typer.Option(help="How long a micro-batch takes; default: the whole of --batch."),
    ] = None,
    sources: Annotated[int, typer.Option(min=1, help="Partitions of the input.")] = 4,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, max=1_024, help="acker.partitions, if you have decided on it."),
    ] = None,
    lost: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of emissions that fail or time out.")
    ] = 0.001,
    wait: Annotated[str, typer.Option(help="Average time from the loss of a record to its replay.")] = "10s",
    holds: Annotated[
        bool, typer.Option("--holds", help="Tuples are held across micro-batches: windows, joins.")
    ] = False,
    output: As = OutputFormat.TABLE,
) -> int:
    """Compute what a load needs: open roots, memory, processes, and the traffic of the ack topics."""
    from acker.provisioning.sizing import Load, size_of

    load = Load(
        records_per_s=records,
        record_bytes=record_bytes,
        tuples=tuples,
        timeout_s=_seconds("--timeout", timeout),
        batch_s=_seconds("--batch", batch),
        work_s=0.0 if work is None else _seconds("--work", work),  # 0: as long as a batch
        sources=sources,
        partitions=partitions or 0,  # 0: as many as are computed
        lost=lost,
        wait_s=_seconds("--wait", wait),
        holds=holds,
    )
    size = size_of(load)
    values = [
        ("open roots, in a steady state", size.pending, "roots"),
        ("open roots at most, where nothing is acked until the timeout", size.pending_max, "roots"),
        ("acker.partitions", size.acker_partitions, "partitions"),
        ("ackers", size.acker_processes, "processes"),
        ("replay workers", size.replay_processes, "processes"),
        ("memory of an acker that is alone", _mebibytes(size.acker_bytes), "MiB"),
        ("memory of a replay worker that is alone", _mebibytes(size.replay_bytes), "MiB"),
        *((name, round(value), "bytes/s") for name, value in size.topic_bytes_per_s.items()),
        ("all ack topics", round(size.ack_bytes_per_s), "bytes/s"),
        ("replay topic", round(size.replay_topic_bytes_per_s), "bytes/s"),
        ("requests of all ackers", round(size.acker_requests_per_s), "requests/s"),
        ("requests of all replay workers", round(size.replay_requests_per_s), "requests/s"),
        (
            "requests of the query, without its reads",
            round(size.query_requests_per_s),
            "requests/s",
        ),
    ]
    rows = [{"what": what, "value": value, "unit": unit} for what, value, unit in values]
    write(rows, COLUMNS, output)
    return 0


def _seconds(option: str, text: str) -> float:
    """Parse a duration into seconds; `BadParameter`: it is none, or not above 0."""
    duration_ms = parse_duration(option, text, "500ms, 30s or 5m")
    if duration_ms <= 0:
        raise typer.BadParameter(f"{option} {text}: it must be above 0; give 500ms, 30s or 5m")
    return duration_ms / 1_000


def _mebibytes(size_bytes: int) -> int:
    """Return a number of bytes in MiB, rounded up: 1,048,577 bytes are 2 MiB."""
    return -(-size_bytes // (1 << 20))
