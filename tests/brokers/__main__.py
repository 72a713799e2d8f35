"""``python -m tests.brokers kfake 4.0``: run the contract, and a life without Spark, elsewhere."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from tests.brokers.judging import passes_on_broker
from tests.support.brokers import EMBEDDED, KFAKE
from tests.support.servers.kafka_releases import RELEASES

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)

KINDS = (EMBEDDED, KFAKE, *RELEASES)


@app.command()
def brokers(
    kinds: Annotated[list[str], typer.Argument(help=f"Of {', '.join(KINDS)}, one or more.")],
    folder: Annotated[
        Path | None, typer.Option(help="Where the output is kept; default a temporary folder.")
    ] = None,
    row: Annotated[
        bool, typer.Option(help="Write the row of each release that passed into limits.md.")
    ] = False,
) -> None:
    """Run the ring on each kind of broker. Exits with 1 if a test fell."""
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise typer.BadParameter(f"{', '.join(unknown)}: must be of {', '.join(KINDS)}")
    has_failed = False
    with TemporaryDirectory() as temporary:
        kept = folder or Path(temporary)
        kept.mkdir(parents=True, exist_ok=True)
        for kind in kinds:
            has_failed |= not passes_on_broker(kind, kept, has_row=row)
    raise typer.Exit(int(has_failed))


if __name__ == "__main__":
    app()
