"""Run the ring on one kind of broker, print how it ended, and write its row."""

from __future__ import annotations

from pathlib import Path

import typer

from tests.brokers.ring import run_ring
from tests.matrix.rows import write_row
from tests.support.servers.kafka_releases import RELEASES


def passes_on_broker(kind: str, folder: Path, *, has_row: bool) -> bool:
    """Run the ring on a broker of a kind; return whether all its tests passed.

    The output is kept in the folder, and printed if a test fell. `has_row`: a release of Kafka that
    passed gets its row in limits.md.
    """
    log = folder / f"broker-{kind}.log"
    outcome = run_ring(kind, log)
    typer.echo(f"{kind}: {outcome.counts or 'no tests ran'}")
    if outcome.exit_code:
        typer.echo(log.read_text(encoding="utf-8"), err=True)
    elif has_row and kind in RELEASES:
        write_row("Kafka", outcome)
    return not outcome.exit_code
