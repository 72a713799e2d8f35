"""The command ``windhover submit``: run a topology from a YAML file, to its end or a signal."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spout.cli.common import say, say_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spout.builder.submitted import SubmittedTopology

CHECK_SECONDS = 1
"""How often a signal is checked for, in seconds."""

File = Annotated[Path, typer.Argument(help="A topology's YAML file.")]
Explain = Annotated[
    bool, typer.Option("--explain", help="Print the compiled plan and end; Spark is not started.")
]

Once = Annotated[
    bool,
    typer.Option("--once", help="End when all that the inputs have at the start is done."),
]


def _checked_address(address: str | None) -> str | None:
    """Return the address of ``--metrics-port``; refuse a wrong one before anything is started.

    None: the option was left out.
    """
    if address is not None:
        from spout.runtime.endpoints import address_of

        address_of(address)  # it raises `UsageError`
    return address


def _checked_hosts(hosts: list[str] | None) -> list[str]:
    """Return the hosts of ``--allow-host``; refuse a wrong one before anything is started."""
    if not hosts:
        return []  # Typer 0.16 takes no None from a callback of a list
    from spout.serving.hosts import AllowedHosts

    AllowedHosts.of(listens_on="", machine="", named=hosts)  # it raises `UsageError`
    return hosts


MetricsPort = Annotated[
    str | None,
    typer.Option(
        "--metrics-port",
        help="Serve Prometheus metrics at this port, or address: 127.0.0.1:9100.",
        callback=_checked_address,
    ),
]
AllowHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host",
        help="Answer requests for this host, too: a name or an address, without port. It may be given"
        " several times; this machine and an address in numbers need none.",
        callback=_checked_hosts,
    ),
]
PyFiles = Annotated[
    str | None,
    typer.Option("--py-files", help="Python modules for Spark's workers: .zip, .egg and .py, with commas."),
]


def submit_topology(
    file: File,
    explain: Explain = False,
    once: Once = False,
    metrics_port: MetricsPort = None,
    allow_hosts: AllowHosts = None,
    py_files: PyFiles = None,
) -> int:
    """Run a topology; the first SIGTERM or Ctrl-C lets running batches finish, and then ends it."""
    from spout.builder.flux import load_topology

    # 1. the topology; its classes are imported from the folders that Spark's workers have, too
    shipped = shipped_files(py_files)
    shipped_folders = [path.parent if path.suffix == ".py" else path for path in shipped]
    import_folders = [os.getcwd(), *map(str, shipped_folders), str(file.resolve().parent)]
    sys.path[:0] = import_folders
    topology = load_topology(file, os.environ)
    if explain:
        say_lines(topology.builder.explain(os.cpu_count() or 1, topology.sink).splitlines())
        return 0
    from spout.streaming.application import OwnFolder, refuse_connect

    refuse_connect(topology.file_section.spark, os.environ)
    # 2. the same folders for the workers, which are started with this environment
    python_path = list(import_folders)
    path_before = os.environ.get("PYTHONPATH")
    if path_before:
        python_path.append(path_before)
    os.environ["PYTHONPATH"] = os.pathsep.join(python_path)
    # 3. Spark and the query
    with OwnFolder("windhover-submit-") as folder:
        spark = _session(topology.file_section.name, topology.file_section.spark, Path(folder))
        try:
            for path in shipped:
                spark.sparkContext.addPyFile(str(path))
            options: Any = {
                **topology.options,
                "metrics_port": metrics_port,
                "metrics_hosts": allow_hosts or (),
            }
            running = topology.builder.submit(spark, sink=topology.sink, **options)
            say_lines(running.explain().splitlines())
            return _until_all_is_done(running) if once else _until_ended(running)
        finally:
            spark.stop()


def shipped_files(py_files: str | None) -> list[Path]:
    """Return the files that ``--py-files`` names, with commas; empty: the option was left out.

    Raises `UsageError`: Spark's workers could not import one of them.
    """
    if py_files is None:
        return []
    from acker.errors import UsageError
    from spout.streaming.application import refuse_workers

    refuse_workers(python="", shipped_files=py_files)
    names = [name.strip() for name in py_files.split(",")]
    files = [Path(name).resolve() for name in names if name]
    for file in files:
        if not file.is_file():
            raise UsageError(f"--py-files {file}: there is no such file")
        if file.suffix not in (".zip", ".egg", ".py"):
            cure = "Spark's workers import .zip, .egg and .py files; zip it"
            raise UsageError(f"--py-files {file}: {cure}")
    return files


def _until_all_is_done(running: SubmittedTopology) -> int:
    """End a topology when all that its inputs have now is done, or at a signal.

    Return the exit code.

    Raises `UsageError`: it would never be done. `WindhoverError`: the topology failed.
    """
    from acker.errors import UsageError
    from spout.builder.ending import run_once

    # the main thread looks for signals
    with ThreadPoolExecutor(max_workers=1) as thread:
        ending = thread.submit(run_once, running)
        exit_code = _until_ended(running, ending)
    refusal = ending.exception()
    if isinstance(refusal, UsageError):
        raise refusal
    return exit_code


def _until_ended(running: SubmittedTopology, ending: Future[bool] | None = None) -> int:
    """Wait until a topology ends, or stop it at a signal; return the exit code.

    `ending`: runs `run_once` for the topology; None: nothing does. If it is over, so is the wait.
    Raises `WindhoverError`: the topology failed.
    """
    from acker.errors import WindhoverError
    from acker.untrusted import untrusted_lines
    from spout.runtime.process import Signals

    with Signals() as signals:
        while signals.received is None and running.query is not None and running.query.isActive:
            if ending is not None and ending.done():
                break
            running.await_termination(CHECK_SECONDS)
        if signals.received is not None:
            running.pause()
            say("stopping: no new tuples are emitted; what runs finishes")
        end_status = running.stop()
    if end_status.error:
        raise WindhoverError(f"the topology failed: {untrusted_lines(end_status.error)}")
    roots = end_status.spout  # counts of roots; None: no process has counted any
    if roots is not None:
        counts = f"acked {roots.acked:,}, failed {roots.failed:,}, pending {roots.pending:,}"
        say(f"{end_status.state}: {counts}")
    return 0 if signals.received is None else 128 + signals.received


def _session(name: str, settings: Mapping[str, Any], folder: Path) -> SparkSession:
    """Start a session of Spark with the file's settings: a local one, unless they have a master."""
    from spout.local.spark_session import cluster_session, local_session

    if "spark.master" not in settings:
        return local_session(name, folder, further=settings)
    # Executors import from the same folders, where these have the same paths; Spark brings the
    # shipped files to every machine.
    executor_path = {"spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"]}
    return cluster_session(name, str(settings["spark.master"]), {**executor_path, **settings})
