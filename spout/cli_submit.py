"""The command ``windhover submit``: run a topology from a YAML file, until it ends or a signal comes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spout.submitted import SubmittedTopology

LOOK_SECONDS = 1
"""How often a signal is looked for."""

File = Annotated[Path, typer.Argument(help="A topology's YAML file.")]
Explain = Annotated[
    bool, typer.Option("--explain", help="Print the compiled plan and end; Spark is not started.")
]


def _checked_address(wanted: str | None) -> str | None:
    """Refuse what is no address before anything is started."""
    if wanted is not None:
        from spout.metrics import address_of

        address_of(wanted)
    return wanted


MetricsPort = Annotated[
    str | None,
    typer.Option(
        "--metrics-port",
        help="Serve Prometheus metrics at this port, or address: 127.0.0.1:9100.",
        callback=_checked_address,
    ),
]


def submit(file: File, explain: Explain = False, metrics_port: MetricsPort = None) -> int:
    """Run a topology; the first SIGTERM or Ctrl-C lets what is running finish, and ends it."""
    from spout.flux import load_topology

    sys.path.insert(0, os.getcwd())  # as Spark's workers have it, which import the same classes
    found = load_topology(file, os.environ)
    if explain:
        typer.echo(found.builder.explain(os.cpu_count() or 1, found.sink))
        return 0
    from spout.application import OwnFolder, refuse_connect

    refuse_connect(found.about.spark, os.environ)
    with OwnFolder("windhover-submit-") as folder:
        spark = _session(found.about.name, found.about.spark, Path(folder))
        try:
            options: Any = {**found.options, "metrics_port": metrics_port}
            running = found.builder.submit(spark, sink=found.sink, **options)
            typer.echo(running.explain())
            return _until_ended(running)
        finally:
            spark.stop()


def _until_ended(running: SubmittedTopology) -> int:
    """Wait for the end, or for a signal.

    Raises:
        WindhoverError: the query failed.
    """
    from acker.errors import WindhoverError
    from spout.process import Signals

    with Signals() as signals:
        while signals.received is None and running.query is not None and running.query.isActive:
            running.await_termination(LOOK_SECONDS)
        if signals.received is not None:
            running.pause()
            typer.echo("stopping: no new tuples are emitted; what runs finishes")
        last = running.stop()
    if last.error:
        raise WindhoverError(f"the topology failed: {last.error}")
    if last.spout is not None:
        typer.echo(f"{last.state}: acked {last.spout.acked:,}, failed {last.spout.failed:,},"
                   f" pending {last.spout.pending:,}")  # fmt: skip
    return 0 if signals.received is None else 128 + signals.received


def _session(name: str, settings: Mapping[str, Any], folder: Path) -> SparkSession:
    """Start a session: a local one, unless the file names a master."""
    from pyspark.sql import SparkSession

    from spout.demo.spark import local_session

    if "spark.master" not in settings:
        return local_session(name, folder)
    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, str(value))
    return builder.getOrCreate()
