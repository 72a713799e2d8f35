"""``python -m tests.torture.exact``: writers of a store that are killed and stopped, and a judgement."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from spout.cli import main as windhover
from tests.torture.exact.writers import torture_writers

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)


@app.command()
def main(
    sink: Annotated[str, typer.Option(help="sqlite, kafka or postgres.")],
    strikes: Annotated[int, typer.Option(help="How many writers are struck.")] = 100,
    minutes: Annotated[float, typer.Option(help="Strike no longer than this.")] = 30.0,
    seed: Annotated[int, typer.Option(help="What befalls them is drawn from it.")] = 0,
) -> int:
    """Kill and stop writers of a store within their commits; judge the store by what was published."""
    with tempfile.TemporaryDirectory(prefix="windhover-writers-") as folder:
        report = torture_writers(sink, strikes, minutes, seed, Path(folder))
    Console().out(json.dumps(report.as_dict()), highlight=False)
    return 0 if report.held else 1


if __name__ == "__main__":
    sys.exit(windhover.run(sys.argv[1:], app, "uv run python -m tests.torture.exact"))
