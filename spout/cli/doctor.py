"""The command ``windhover doctor``: the faults of an installation, each with a code and a cure."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spout.cli import start_path
from spout.cli.common import (
    DEFAULT_CONFIG,
    FOUND,
    Config,
    loaded,
    named_role,
    say,
    say_lines,
    wall_ms,
)
from spout.cli.submit import PyFiles, shipped_files
from spout.inspect.tables import As, OutputFormat, print_encoded

if TYPE_CHECKING:
    from acker.config.topics import Topics
    from acker.provisioning.roles import Role
    from spout.doctor.codes import CheckResult


class Only(StrEnum):
    """A part of the checks."""

    FILES = "files"
    LIVE = "live"
    EXECUTORS = "executors"


Pre = Annotated[
    bool,
    typer.Option("--pre", help="Before you install: check only Python, platform and Java; no topics.yaml."),
]
OnlyPart = Annotated[
    Only | None,
    typer.Option("--only", help="Machine and files, the broker, or the executors of --master; default: all."),
]
RoleName = Annotated[
    str | None,
    typer.Option("--role", help="Role of the user of topics.yaml: a right that it lacks is a failure."),
]
Master = Annotated[
    str | None,
    typer.Option("--master", help="A Spark cluster, as in spark.master; a job asks each of its executors."),
]
Checkpoint = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        help="The folder of a query's checkpoint: is it usable, of which query, is its disk full?",
    ),
]
Bundle = Annotated[
    Path | None,
    typer.Option("--bundle", help="Write an archive for a report here: no secret and no payload is in it."),
]
Logs = Annotated[
    list[Path] | None,
    typer.Option("--log", help="With --bundle: add the last lines of this log of Windhover. Repeatable."),
]
Doubts = Annotated[
    bool,
    typer.Option("--exit-code", help="End with 5 if nothing failed, but something is a warning or unknown."),
]


@dataclass(frozen=True, slots=True)
class DoctorParts:
    """What is to be checked: the values of the command's options, None where one was left out."""

    pre: bool
    only: Only | None
    role: Role | None
    master: str | None
    py_files: str | None
    checkpoint: str | None
    config: Path


def doctor(
    pre: Pre = False,
    only: OnlyPart = None,
    role: RoleName = None,
    master: Master = None,
    py_files: PyFiles = None,
    checkpoint: Checkpoint = None,
    bundle: Bundle = None,
    log: Logs = None,
    exit_code: Doubts = False,
    output: As = OutputFormat.TABLE,
    config: Config = DEFAULT_CONFIG,
) -> int:
    """Check machine, files, broker and executors: each fault has a code and a cure. Nothing is changed."""
    from spout.doctor.codes import CheckHealth, closing_line

    if pre and (master is not None or only in (Only.LIVE, Only.EXECUTORS)):
        cure = "leave out --only and --master, or --pre"
        raise typer.BadParameter(f"--pre checks the machine alone; {cure}")
    if only is Only.EXECUTORS and master is None:
        raise typer.BadParameter("--only executors needs --master, which names their cluster")
    if checkpoint is not None and (pre or only in (Only.LIVE, Only.EXECUTORS)):
        cure = "leave out --pre and --only, or say --only files"
        raise typer.BadParameter(f"--checkpoint names files: {cure}")
    if py_files is not None and master is None:
        cure = "--master, which names the cluster that gets them"
        raise typer.BadParameter(f"--py-files needs {cure}")
    if log and bundle is None:
        cure = "--bundle, which names the archive that its lines go into"
        raise typer.BadParameter(f"--log needs {cure}")
    if bundle is not None and bundle.exists():
        raise typer.BadParameter(f"--bundle {bundle} is there already; name another file")
    if bundle is not None and not bundle.absolute().parent.is_dir():
        raise typer.BadParameter(
            f"--bundle {bundle}: its folder is missing; name a file in one that is there"
        )
    results = []
    parts = DoctorParts(pre, only, named_role(role), master, py_files, checkpoint, config)
    for result in _results(parts):
        results.append(result)
        if output is OutputFormat.TABLE:
            say_lines(result.lines())  # at once: the next one may take a minute
    if output is not OutputFormat.TABLE:
        print_encoded([result.row() for result in results], output)
    say(closing_line(results), err=output is not OutputFormat.TABLE)
    if bundle is not None:
        _write_archive(bundle, results, config, log or [])
    healths = {result.health for result in results}
    if CheckHealth.FAILED in healths:
        return 1
    return FOUND if exit_code and healths != {CheckHealth.OK} else 0


def _write_archive(bundle: Path, results: Sequence[CheckResult], config: Path, logs: Sequence[Path]) -> None:
    """Write the archive for a report, and print which files are in it."""
    from spout.doctor.bundle import BundleSources, write_bundle

    topics, _ = _topics_or_problem(config)
    sources = BundleSources(config, topics, results, logs, wall_ms())
    names = write_bundle(bundle, sources, os.environ)
    say(f"{bundle}: {', '.join(names)}; look through it before you send it", err=True)


def _results(parts: DoctorParts) -> Iterator[CheckResult]:
    """Check one part after the other, and yield each result as soon as it is there.

    Modules are imported where their part begins, so that the first result comes soon.
    """
    only = parts.only  # None: all parts
    config = parts.config
    # 1. the machine
    if only in (None, Only.FILES):
        from spout.doctor.machine import judge_machine, machine_facts

        yield from judge_machine(machine_facts(os.environ))
    if parts.pre:
        return
    # 2. topics.yaml; without it the broker cannot be asked, so `--only live` says why
    topics, problem = _topics_or_problem(config)
    if only in (None, Only.FILES) or (topics is None and only is Only.LIVE):
        from spout.doctor.files import file_facts, judge_files

        import_folders = [os.getcwd(), *start_path.PATH]
        yield from judge_files(file_facts(config, topics, problem, os.environ, import_folders))
    # 3. Kafka's clients with its settings
    late_results: list[CheckResult] = []
    if topics is not None and only is not Only.EXECUTORS and _tries_clients(topics, only):
        from spout.doctor.client_kinds import judge_clients

        client_results = list(judge_clients(str(config), topics.kafka))
        if only is Only.LIVE and _are_ok(client_results):
            # they come after the broker's results: if a broker is missing, that is named first
            late_results = client_results
        else:
            yield from client_results
    # 4. disks and checkpoint
    if only in (None, Only.FILES):
        yield from _folder_results(parts.checkpoint, topics)
    # 5. the broker
    if only in (None, Only.LIVE) and topics is not None:
        yield from _broker_results(topics, parts.role, config)
        yield from late_results
    # 6. the executors
    if only in (None, Only.EXECUTORS) and parts.master is not None:
        yield from _executor_results(parts.master, parts.py_files, topics, problem)


def _are_ok(results: Iterable[CheckResult]) -> bool:
    """Return whether all results are OK."""
    from spout.doctor.codes import CheckHealth

    return all(result.health is CheckHealth.OK for result in results)


def _folder_results(checkpoint: str | None, topics: Topics | None) -> Iterator[CheckResult]:
    """Judge the disks of the machine, and the folder of a checkpoint; None: none was named."""
    from spout.doctor.files import checkpoint_facts, judge_checkpoint, local_folder
    from spout.doctor.machine import disk_facts, judge_disks

    folder = None if checkpoint is None else local_folder(checkpoint)
    yield from judge_disks(disk_facts(os.environ, folder))
    if checkpoint is not None:
        yield judge_checkpoint(checkpoint_facts(checkpoint), topics)


def _tries_clients(topics: Topics, only: Only | None) -> bool:
    """Return whether the settings are tried with Kafka's clients, which take a while to load."""
    from acker.config.kafka_bounds import needs_trial

    return only is not Only.FILES or needs_trial(topics.kafka)


def _broker_results(topics: Topics, role: Role | None, config: Path) -> Iterator[CheckResult]:
    """Ask the broker, and judge its answers; judge the services only if it answers."""
    from acker.errors import ConfigError
    from spout.doctor.broker import BrokerProbe
    from spout.doctor.codes import CLIENT, REACHABLE, SERVICES, CheckHealth
    from spout.doctor.live import judge_live, judge_unasked
    from spout.doctor.services import judge_service_clocks, judge_services

    servers = topics.kafka.get("bootstrap.servers", "no broker")
    try:
        probe = BrokerProbe(topics, wall_ms)
    except ConfigError:  # the result WH014 says what is wrong with the settings
        yield from judge_unasked(servers, f"{CLIENT.code} failed")
        return
    results = list(judge_live(probe.facts(str(config)), topics, role))
    yield from results
    if any(result.code is REACHABLE and result.health is CheckHealth.OK for result in results):
        facts = probe.services(str(config))
        yield from judge_services(facts, topics)
        yield from judge_service_clocks(facts, topics)
    else:
        yield SERVICES.unknown(servers, f"{REACHABLE.code} failed")


def _executor_results(
    master: str, py_files: str | None, topics: Topics | None, problem: str
) -> Iterator[CheckResult]:
    """Run tasks on a cluster of Spark, and judge its executors.

    They try to reach the brokers that `topics` names. `problem` is why there are no `topics`;
    empty: there are.
    """
    from acker.errors import ConfigError
    from spout.doctor.broker import BrokerProbe
    from spout.doctor.cluster import cluster_facts
    from spout.doctor.executors import judge_executors
    from spout.inspect.readings import Reading

    servers: Reading[Sequence[tuple[str, int]]] = Reading(unknown=problem)
    if topics is not None:
        try:
            servers = BrokerProbe(topics, wall_ms).servers()
        except ConfigError as error:
            servers = Reading(unknown=str(error))
    yield from judge_executors(cluster_facts(master, servers, shipped_files(py_files), wall_ms))


def _topics_or_problem(config: Path) -> tuple[Topics | None, str]:
    """Return topics.yaml and an empty text; or None and what is wrong with the file."""
    from acker.errors import ConfigError, UsageError

    try:
        return loaded(config), ""
    except (ConfigError, UsageError) as error:
        return None, str(error)
