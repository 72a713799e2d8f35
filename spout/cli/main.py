"""The command ``windhover``: arguments in, exit code out.

========= ================================================================================================
exit code what happened
========= ================================================================================================
0         done
1         a check failed, or an unexpected error
2         usage: the call itself is wrong
3         the broker, or a part of Windhover, cannot be reached
4         topics.yaml or the topics are wrong
5         the condition of --exit-code is true
70        something hung, and the process ended itself; or it did not end in time after a signal
130, 143  ended by SIGINT, SIGTERM after a clean stop
142       the same as 70 (killed by SIGALRM), where C code kept the interpreter's lock
========= ================================================================================================

``windhover check`` has the codes of Nagios: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.

A command imports its modules when it runs: ``windhover --help`` loads neither Kafka nor Spark,
and an acker never loads Spark.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, cast

import typer

from acker.errors import ConfigError, WindhoverError
from acker.redaction import cut
from acker.terminal import drop_what_cannot_be_written, open_closed_streams, replace_unwritable
from acker.untrusted import Untrusted, trace_lines
from spout.cli.check import UNKNOWN_CODE, check_once
from spout.cli.common import (
    DEFAULT_CONFIG,
    INTERRUPTED,
    Config,
    Execute,
    File,
    loaded,
    named_role,
    not_default,
    opened,
    print_notes,
    say,
    say_lines,
    system_user,
    wall_ms,
    when_fenced_workers_go_on,
)
from spout.cli.dlq import dlq_app
from spout.cli.doctor import doctor
from spout.cli.explain import explain_key
from spout.cli.inspect import failures, inspect, latency, machinery, roots, status
from spout.cli.operate import acker_app, offsets_app, release
from spout.cli.picture import picture, sql
from spout.cli.size import size
from spout.cli.submit import AllowHosts, MetricsPort, submit_topology

if TYPE_CHECKING:
    from prometheus_client import Metric

    from acker.config.limits import AckerLimits, ReplayLimits
    from acker.config.topics import Topics
    from spout.runtime.process import Service

LOCAL: Final = "127.0.0.1"

FURTHER: Final = "         "
"""Begins each further line of an error, so that it does not look like another error."""

_USAGE_ERROR: Final = cast("type[Exception]", typer.BadParameter.__bases__[0])
"""Base class of typer's errors for a wrong call; it has no public name."""

_CURE_BY_ERRNO: Final = {
    errno.EDQUOT: "free some space, or send the output elsewhere",
    errno.EIO: "look for the disk in the machine's log, or send the output elsewhere",
    errno.EMFILE: "this process may open no more files: let it open more, as by `ulimit -n 1024`",
    errno.ENFILE: "all processes together may open no more files: end some, or raise fs.file-max",
    errno.ENOSPC: "free some space, or send the output elsewhere",
    errno.EROFS: "name a file that can be written",
}
"""What to do about errors of the machine, by their numbers."""

_OF_SPARK: Final = ("pyspark", "py4j")
"""If one of these packages cannot be imported, Spark is not installed."""

app = typer.Typer(
    name="windhover",
    help="Storm's message guarantee for Kafka and Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
topics_app = typer.Typer(help="Make or check the topics that a topics.yaml needs.", no_args_is_help=True)
replay_app = typer.Typer(help="Replay workers: emit lost roots again.", no_args_is_help=True)
app.add_typer(topics_app, name="topics")
app.add_typer(acker_app, name="acker")
app.add_typer(replay_app, name="replay")
app.add_typer(offsets_app, name="offsets")
app.add_typer(dlq_app, name="dlq")
app.command()(inspect)
app.command()(roots)
app.command()(status)
app.command()(failures)
app.command()(latency)
app.command()(machinery)
app.command()(sql)
app.command()(picture)
app.command()(doctor)
app.command("check")(check_once)
app.command("explain")(explain_key)
app.command()(size)
app.command()(release)
app.command("submit")(submit_topology)

Port = Annotated[
    int | None,
    typer.Option("--port", min=1, max=65_535, help="Port of the broker; default: a free one."),
]

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")]

DriverAddresses = Annotated[
    list[str] | None,
    typer.Option("--driver", help="HOST:PORT of a driver's metrics, to draw its topology and streams."),
]

Brokers = Annotated[
    int,
    typer.Option(
        "--brokers",
        min=1,
        max=9,
        help="Run so many brokers as one cluster, with three copies of each topic.",
    ),
]


def main() -> None:
    """Run the command and end the process; the entry point of the package."""
    exit_code = run(sys.argv[1:])
    drop_what_cannot_be_written()
    sys.exit(exit_code)


def run(arguments: Sequence[str], command: typer.Typer = app, name: str = "windhover") -> int:
    """Run a command, and return its exit code: see the table at the head of this module.

    `command` may also be that of a tool in the checkout, with its `name`.
    """
    open_closed_streams()
    for output in (sys.stdout, sys.stderr):
        replace_unwritable(output)
    has_debug = "--debug" in arguments
    is_check = command is app and arguments[:1] == ["check"]
    # the command adds its topics.yaml, or None for the default one (`spout.cli.common.Config`)
    config_files: list[Path | None] = []
    try:
        result = command(args=list(arguments), prog_name=name, standalone_mode=False, obj=config_files)
        with suppress(BrokenPipeError):  # the reader has ended, as `head` does
            sys.stdout.flush()
    except _USAGE_ERROR as error:
        return _print_error(_usage_text(error), UNKNOWN_CODE if is_check else 2)
    except WindhoverError as error:
        from spout.inspect.tables import with_configs

        if has_debug:
            say_lines(trace_lines(error), err=True)
        text = with_configs(str(error), config_files[-1] if config_files else None)
        # each line of an error of a file or the topics is a problem; in any other error the further
        # lines belong to the first one
        indent = "" if isinstance(error, ConfigError) else FURTHER
        return _print_error(text.replace("\n", f"\n{indent}"), error.exit_code)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  # the one broad except: the process ends here, with a trace
        if isinstance(error, ModuleNotFoundError):
            package = str(error.name).partition(".")[0]
            if package in _OF_SPARK:
                where = "here, nor in the image of services"
                return _print_error(f"PySpark is not installed {where}; run `pip install pyspark`", 2)
        exit_code = UNKNOWN_CODE if is_check else 1
        if isinstance(error, OSError) and not has_debug:
            cure = _CURE_BY_ERRNO.get(error.errno or 0)
            if cure is not None:
                return _print_error(f"{_refusal(error)}; {cure}", exit_code)
        say_lines(trace_lines(error), err=True)
        text = f"unexpected {type(error).__name__}; this is a defect of Windhover"
        return _print_error(text, exit_code)
    return result if isinstance(result, int) else 0


def _print_error(text: str, exit_code: int) -> int:
    """Print an error on stderr, and return the exit code; that stderr takes nothing is ignored_lines."""
    with suppress(OSError):
        say_lines(f"windhover: {cut(text)}".split("\n"), err=True)
    return exit_code


def _refusal(error: OSError) -> str:
    """Return the machine's text of an error, behind the file that it is about, if it is."""
    where = f"{Untrusted(str(error.filename))}: " if error.filename is not None else ""
    return f"{where}{error.strerror}"


def _usage_text(error: Exception) -> str:
    """Return a usage error as one line, which ends with the command for more help."""
    # typer's errors are Click's: they have a text for people, and the context of the command
    click_text = getattr(error, "format_message", error.__str__)()
    message = " ".join(str(click_text).split()) or "no command given"
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "windhover"
    # versions of Click write this message differently
    is_config_refused = "No such option" in message and "--config" in message
    if is_config_refused:
        from spout.inspect.tables import OF_A_FILE

        if command.removeprefix("windhover ") in OF_A_FILE:
            return f"{message.rstrip('.')}: its file is an argument: `{command} topics.yaml`"
    return f"{message.rstrip('.')}; see `{command} --help`"


def _version(value: bool) -> None:
    """Print the version and end, if ``--version`` is there."""
    if value:
        from spout.distribution import installed_version

        say(f"windhover {installed_version() or '(a checkout that is not installed)'}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end."),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show traces of errors, and more logs.")]


@app.callback()
def options(version: Version = False, debug: Debug = False) -> None:
    """Storm's message guarantee for Kafka and Spark."""
    from spout.runtime import logs

    if debug:
        logs.configure(debug=True)
    else:
        logs.silence()


@app.command()
def validate(
    file: File = DEFAULT_CONFIG,
    newer: Annotated[
        Path | None,
        typer.Argument(
            metavar="[NEWER]", help="A newer file: print what it changes, and who must start again."
        ),
    ] = None,
) -> int:
    """Check a topics.yaml: print its problems, or its effective settings. The broker is not contacted.

    With a second file: check both, and print for each change which processes must start again.
    Exit code 4 where the newer file changes what a living installation cannot change.
    """
    if newer is not None:
        return _validate_change(file, newer)
    from acker.provisioning.describe import describe

    # a line for each key without a meaning; _load_and_try adds them
    ignored_lines: list[str] = []
    topics = _load_and_try(file, ignored_lines)
    say_lines(describe(topics))
    _print_warnings(topics, ignored_lines)
    return 0


def _load_and_try(file: Path, ignored_lines: list[str]) -> Topics:
    """Load a topics.yaml, and try its settings with each kind of Kafka client.

    A line for each key without a meaning is added to `ignored_lines`. Raises `ConfigError`: a client
    refuses a setting.
    """
    from acker.config.kafka_bounds import needs_trial

    topics = loaded(file, warn=ignored_lines.append)
    if needs_trial(topics.kafka):
        from spout.doctor.client_kinds import refused_by_clients

        refused_lines = refused_by_clients(topics.kafka)
        if refused_lines:
            raise ConfigError("\n".join(refused_lines))
    return topics


def _validate_change(file: Path, newer: Path) -> int:
    """Print what a newer file changes, and who must start again for it; return the exit code 0.

    Raises `ConfigError`: it changes what a living installation cannot change.
    """
    from acker.provisioning.changes import changes_between, summary

    # a line for each key without a meaning; _load_and_try adds them
    ignored_lines: list[str] = []
    former_topics = loaded(file)
    newer_topics = _load_and_try(newer, ignored_lines)
    changes = changes_between(former_topics, newer_topics)
    # why_refused: this key is not changed while the input or the topics are in use
    allowed_changes = [change for change in changes if not change.effect.why_refused]
    say_lines(change.line() for change in allowed_changes)
    say_lines(summary(changes) if changes else [f"{newer} means the same as {file}"])
    _print_warnings(newer_topics, ignored_lines)
    refused_lines = [f"{newer}: {change.line()}" for change in changes if change.effect.why_refused]
    if refused_lines:
        raise ConfigError("\n".join(refused_lines))
    return 0


def _print_warnings(topics: Topics, ignored_lines: Iterable[str]) -> None:
    """Print warnings of what is allowed in a topics.yaml, but has an effect that may surprise.

    `ignored_lines` are lines about keys without a meaning.
    """
    from acker.config.kafka_settings import missing_files
    from acker.provisioning.topic_times import long_retention_findings

    for line in ignored_lines:
        say(f"warning: {line}")
    for name in missing_files(topics.kafka):
        say(
            f"warning: kafka.{name}: is not on this machine, so it was not tried; the machines of"
            " your processes need it"
        )
    for need in long_retention_findings(topics):
        say(f"warning: {need.topic}: {need.text}")
    for name, input in topics.inputs.items():
        if input.ordered and not input.fails_on_loss():
            say(
                f"warning: inputs.{name}.on_data_loss: skip goes on after records that retention has"
                " removed; but if a log was cut, the query stops, since ordering:"
                f" {input.ordering} needs the keys of the lost records"
            )


@app.command()
def acls(
    file: File = DEFAULT_CONFIG,
    role: Annotated[
        str | None,
        typer.Option(help="operator, acker, replay, spout, observer or keeper; default: all of them."),
    ] = None,
    group: Annotated[str | None, typer.Option(help="Only the inputs of this group.")] = None,
    principal: Annotated[
        str | None,
        typer.Option(help="Print the commands that grant these rights to this User:name."),
    ] = None,
) -> int:
    """Print the rights that each role needs, as lists or as commands. The broker is not contacted."""
    from acker.provisioning.roles import Role, commands, rights, rights_text

    topics = loaded(file)
    chosen_role = named_role(role)
    if group is not None and not topics.inputs_of(group):
        groups = ", ".join(sorted({input.group for input in topics.inputs.values()})) or "none"
        raise typer.BadParameter(f"--group {group}: no input has it; the groups are {groups}")
    if principal is not None and ":" not in principal:
        cure = f"Kafka's begin with a type; give User:{principal}"
        raise typer.BadParameter(f"--principal {principal}: {cure}")
    roles = list(Role) if chosen_role is None else [chosen_role]
    for needing_role in roles:
        needed_rights = rights(topics, needing_role, group)
        if principal is None:
            lines = [f"{needing_role}:", *(f"  {line}" for line in rights_text(needed_rights))]
        else:
            servers = topics.kafka.get("bootstrap.servers", "")
            lines = list(commands(needed_rights, principal, servers))
        say_lines(lines)
    return 0


Without = Annotated[
    list[str] | None,
    typer.Option("--without", help="Make the topics without this setting, if the cluster refuses it."),
]


@topics_app.command("create")
def topics_create(file: File = DEFAULT_CONFIG, without: Without = None) -> int:
    """Create the missing topics; refuse settings that would lose records."""
    from acker.provisioning.provision import create_topics

    say_lines(create_topics(loaded(file), without or ()))
    return 0


@topics_app.command("check")
def topics_check(file: File = DEFAULT_CONFIG) -> int:
    """Compare the broker's topics with a topics.yaml; nothing is changed."""
    from acker.provisioning.provision import check_topics

    say_lines(check_topics(loaded(file)))
    return 0


@topics_app.command("repair")
def topics_repair(
    file: File = DEFAULT_CONFIG,
    execute: Annotated[
        bool, typer.Option("--execute", help="Let all processes pass over these records.")
    ] = False,
    why: Annotated[str, typer.Option(help="The reason; it is kept with the mark.")] = "",
) -> int:
    """Show records of the ack topics that stop their readers; with --execute, let all readers skip them."""
    if execute and not why:
        effect = "what a record said is lost by passing over it"
        raise typer.BadParameter(f"--execute needs --why TEXT: {effect}")
    with opened(file, "repair") as (topics, log):
        from replay.handling.repair import find_unreadable, pass_over

        unreadable = list(find_unreadable(log, topics))
        for record in unreadable:
            say(str(record))
        unmarked = [record for record in unreadable if not record.is_marked]
        if not unmarked:
            say("no record stops its readers")
            return 0
        if not execute:
            say(
                "nothing was changed. If a newer Windhover wrote these records, run that version: it"
                " reads them. With --execute --why TEXT all processes pass over them, and their"
                " content is lost"
            )
            return 0
        pass_over(log, unmarked, why, system_user())
    say(f"{len(unmarked)} records are passed over from now on; start again what they stopped")
    return 0


@acker_app.command("run")
def acker_run(
    context: typer.Context,
    config: Config = DEFAULT_CONFIG,
    metrics_port: MetricsPort = None,
    allow_hosts: AllowHosts = None,
) -> int:
    """Run an acker until SIGTERM or Ctrl-C. Any number of them share the partitions."""
    from acker.service.service import AckerService
    from spout.runtime.metrics import acker_metrics
    from spout.runtime.traced_tally import TracedTally
    from spout.runtime.tracing import configured_spans

    log_event = _logger(context)
    spans = configured_spans()
    with opened(config, "acker") as (topics, log):

        def make_acker(name_operation: Callable[[str], None]) -> Service:
            """Return the acker; it calls `name_operation` with each operation that it begins."""
            return AckerService(
                log,
                topics.ack_topics,
                topics.acker.partitions,
                group=topics.acker.group,
                replay_group=topics.acker.replay_group,
                verdict_retention_ms=topics.acker.verdict_retention_ms,
                limits=topics.acker.limits,
                tally=None if spans is None else TracedTally(spans, topics.inputs.values()),
                report=lambda event: log_event(
                    f"acker.{event.kind}", partition=event.partition, detail=event.detail
                ),
                name_operation=name_operation,
            )

        metrics_of = partial(acker_metrics, topics=topics)
        metrics_address = _MetricsAddress(metrics_port, allow_hosts or ())
        return _serve("acker", make_acker, metrics_of, log_event, metrics_address, topics.acker.limits)


@replay_app.command("run")
def replay_run(
    context: typer.Context,
    config: Config = DEFAULT_CONFIG,
    metrics_port: MetricsPort = None,
    allow_hosts: AllowHosts = None,
) -> int:
    """Run a replay worker until SIGTERM or Ctrl-C. Any number of them share the partitions."""
    import random

    from replay.worker.service import ReplayService
    from spout.runtime.metrics import replay_metrics
    from spout.runtime.tracing import configured_spans, lost_root_spans

    log_event = _logger(context)
    spans = configured_spans()
    with opened(config, "replay") as (topics, log):

        def make_worker(note_operation: Callable[[str], None]) -> Service:
            """Return the replay worker; it calls `note_operation` with each operation it begins."""
            return ReplayService(
                log,
                topics,
                jitter=random.SystemRandom().random,
                report=lambda event: log_event(f"replay.{event.name}", **event.fields),
                note_operation=note_operation,
                # None: no tracing is configured
                on_written=None if spans is None else lost_root_spans(spans),
            )

        def reload(service: ReplayService) -> None:
            """Load topics.yaml again."""
            service.take_topics(loaded(config))

        metrics_address = _MetricsAddress(metrics_port, allow_hosts or ())
        limits = topics.replay.limits
        return _serve("replay", make_worker, replay_metrics, log_event, metrics_address, limits, reload)


@replay_app.command("resume")
def replay_resume(
    name: Annotated[str, typer.Argument(metavar="INPUT", help="An input of topics.yaml that is paused.")],
    config: Config = DEFAULT_CONFIG,
) -> int:
    """Resume an input that its breaker paused; waiting roots are replayed or become dead letters."""
    with opened(config, "resume") as (topics, log):
        from replay.handling.resume import resume
        from spout.inspect.operate import tracked_input
        from spout.inspect.overview import missing_members

        ended_pauses = resume(log, topics, tracked_input(topics, name).id)
        worker_notes: list[str] = []  # that no replay worker lives, or that nobody knows
        if ended_pauses:
            worker_notes = missing_members(log, topics, topics.acker.replay_group)
    partition_names = ", ".join(f"{topics.ack_topics.due}/{number}" for number in ended_pauses)
    for why in sorted({pause.why for pause in ended_pauses.values()}):
        say(f"it was paused: {Untrusted(why)}")
    if ended_pauses:
        # resume has fenced the workers of these partitions: they go on after a pause
        when = "when a replay worker lives" if worker_notes else when_fenced_workers_go_on(topics)
        say(f"{name} goes on in {partition_names}, {when}")
    else:
        say(f"{name} is not paused")
    print_notes(worker_notes, config)
    return 0


@replay_app.command("drop")
def replay_drop(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[INPUT]",
            help="An input of topics.yaml. Another group emitted records under its id.",
        ),
    ] = None,
    input_id: Annotated[
        int | None, typer.Option("--id", min=0, help="In place of INPUT: an id that no input has.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", help="Only what this group emitted; default: what all other groups did."),
    ] = None,
    why: Annotated[str, typer.Option(help="The reason; it is kept with what is dropped.")] = "",
    execute: Execute = False,
    config: Config = DEFAULT_CONFIG,
) -> int:
    """Show lost roots that a group emitted without a right to the id; with --execute, drop them."""
    if (name is None) == (input_id is None):
        raise typer.BadParameter("give an INPUT, or --id ID")
    if execute and not why:
        raise typer.BadParameter("--execute needs --why TEXT: nobody replays what is dropped")
    with opened(config, "replay-drop") as (topics, log):
        from acker.errors import UsageError
        from replay.handling.dropping import Dropping
        from spout.inspect.operate import tracked_input

        name_by_id = {input.id: input.name for input in topics.inputs.values()}
        if input_id in name_by_id:
            raise UsageError(
                f"id {input_id} is of input {name_by_id[input_id]}; give that name in place of --id"
            )
        if name is not None:
            input_id = tracked_input(topics, name).id
        dropping = Dropping(log, topics, cast("int", input_id), group)
        roots_by_partition = dropping.find()
        for partition_roots in roots_by_partition:
            say_lines(partition_roots.lines())
        if not roots_by_partition:
            say("no root waits there that another group emitted")
            return 0
        if not execute:
            say(
                "nothing was changed; with --execute --why TEXT they are dropped, and nobody replays"
                " them. If they are of an input that this topics.yaml lacks, give the replay workers"
                " one that has it"
            )
            return 0
        dropped_count = dropping.drop(why, system_user())
    go_on = f"replay workers go on there {when_fenced_workers_go_on(topics)}"
    say(f"{dropped_count:,} roots are dropped; {go_on}")
    return 0


@app.command()
def up(
    config: Config = DEFAULT_CONFIG,
    port: Port = None,
    directory: Annotated[Path | None, typer.Option("--dir", help="Keep the broker's data here.")] = None,
    broker_only: Annotated[bool, typer.Option("--broker-only", help="Run the broker alone.")] = False,
    brokers: Brokers = 1,
    drivers: DriverAddresses = None,
) -> int:
    """Run a broker, the topics, an acker, a replay worker and the page, for experiments."""
    from spout.local.up import DRIVER_METRICS, UpOptions, run_up

    options = UpOptions(
        config=config,
        port=port,
        directory=directory,
        broker_only=broker_only,
        brokers=brokers,
        drivers=drivers or (DRIVER_METRICS,),
    )
    return run_up(options, os.environ, say)


@app.command()
def demo(
    records: Annotated[int, typer.Option(help="Lines of text, 1 or more.")] = 1_000_000,
    input_file: Annotated[
        Path | None,
        typer.Option("--input", help="A text to count; default: one that Python brings along."),
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Lines a second; default: as fast as it goes.")] = None,
    json: Json = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything running at the end.")] = False,
    bootstrap: Annotated[str | None, typer.Option(help="Use this broker; default: an embedded one.")] = None,
    port: Port = None,
    config: Annotated[Path | None, typer.Option(help="A topics.yaml; default: the project's.")] = None,
) -> int:
    """Run a word count with failures, replays, a killed acker and dead letters, and prove the counts."""
    from spout.demo.run import run_demo
    from spout.demo.stage import DemoOptions

    options = DemoOptions(
        records=records,
        input=input_file,
        rate=rate,
        json=json,
        keep=keep,
        bootstrap=bootstrap,
        port=port,
        config=config,
    )
    return run_demo(options, os.environ)


@app.command()
def ui(
    context: typer.Context,
    config: Config = DEFAULT_CONFIG,
    host: Annotated[
        str,
        typer.Option(help="Address to listen at. If others can reach it, they can read the page."),
    ] = LOCAL,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="Port to listen at; default: 8095. 0: a free one."),
    ] = None,
    allow_actions: Annotated[
        bool,
        typer.Option(
            "--allow-actions",
            help="Let whoever has the token start and cancel redrives on the page.",
        ),
    ] = False,
    drivers: DriverAddresses = None,
    allow_hosts: AllowHosts = None,
    keep: Annotated[
        Path | None,
        typer.Option(help="Keep dead letters in this file; the next start reads only what is new."),
    ] = None,
) -> int:
    """Serve the page: every input, every partition and every record, live; read-only by default."""
    import secrets

    from acker.kafka.cluster import KafkaLog
    from spout.runtime.endpoints import SystemdNotifier
    from spout.ui.jobs import Actions
    from spout.ui.serve import UI_PORT, PageAddress, ShownInstallation, serve_pages
    from spout.ui.watch import TopicsFile

    topics = loaded(config)
    log_event = _logger(context)
    systemd = SystemdNotifier(os.environ)
    actions = Actions(secrets.token_urlsafe(12), system_user()) if allow_actions else None
    page_address = PageAddress(host, UI_PORT if port is None else port, allow_hosts or ())

    def announce(address: str) -> None:
        """Print where the page is and the token for actions, and log that it answers."""
        say(address)
        exposure = page_address.exposure()  # a warning, if others can reach the page
        if exposure:
            log_event("ui.exposed", address=address, detail=exposure)
        if actions is not None:
            say(f"token: {actions.token}")
        log_event("ui.ready", address=address)
        systemd.notify("READY=1")

    shown = ShownInstallation(
        open_log=lambda topics_of_file: KafkaLog(topics_of_file.kafka, client_id="windhover-ui"),
        topics=topics,
        actions=actions,
        drivers=drivers or (),
        config=not_default(config),
        file=TopicsFile(config, partial(loaded, config)),
        keep=keep,
    )
    return serve_pages(shown, page_address, wall_ms, announce, systemd.alive)


def _logger(context: typer.Context) -> Callable[..., Any]:
    """Begin to log to stderr, as processes that run for weeks do; return what logs an event."""
    from spout.runtime import logs

    logs.configure(debug=bool(context.find_root().params.get("debug")))
    return logs.log_event


class _MetricsAddress(NamedTuple):
    """Where a service serves its metrics, and for which further hosts it answers.

    `port` is a number, or ADDRESS:PORT; None: no metrics are served.
    """

    port: str | None
    allow_hosts: Sequence[str]


def _serve(
    service_name: str,
    make_service: Callable[[Callable[[str], None]], Service],
    metrics_of: Callable[[Any], Iterable[Metric]],
    log_event: Callable[..., Any],
    metrics_address: _MetricsAddress,
    limits: AckerLimits | ReplayLimits,
    reload: Callable[[Any], None] | None = None,
) -> int:
    """Run a service, with its metrics and signs of life, until a signal; return the exit code.

    Args:
        service_name: its name in metrics and the log, "acker" or "replay".
        make_service: returns the service. Its argument is a function that the service calls with
            the name of each operation that it begins.
        metrics_of: returns the metrics that a status of the service has.
        log_event: logs an event: its name, then its fields.
        metrics_address: where the metrics are served.
        limits: after which times the service counts as hung, or as not alive.
        reload: is called with the service at SIGHUP; None: nothing is loaded again.
    """
    from spout.runtime import endpoints, metrics, process
    from spout.runtime.step_watch import StepWatch

    systemd = endpoints.SystemdNotifier(os.environ)
    # ends the process if one operation takes longer than `hung_ms`, or its end after a signal
    # longer than `stop_ms`
    steps = StepWatch(service_name, limits.hung_ms, limits.stop_ms, log_event, alive=systemd.alive)
    # `age_s`: since the last step ended; `quiet_s`: since the loop began an operation
    collector = metrics.StatusCollector(service_name, metrics_of, lambda: steps.age_s)
    health = endpoints.Health(lambda: steps.quiet_s, limits.live_ms / 1_000)

    def publish(status: Any) -> None:
        """Pass on a status of the service, to metrics and probes."""
        collector.update(status)
        health.update(status)

    if metrics_address.port:
        endpoints.serve(collector, metrics_address.port, health.probes(), metrics_address.allow_hosts)
    surroundings = process.Surroundings(
        service_name, wall_ms, log_event, publish, steps, reload, systemd.notify
    )
    return process.run_until_signalled(lambda: make_service(steps.begin_operation), surroundings)


if __name__ == "__main__":
    main()
