"""The commands that read topics: ``windhover inspect``, ``roots``, ``status``, ``failures``,
``latency`` and ``machinery``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from spout.cli.common import (
    DEFAULT_CONFIG,
    FOUND,
    Config,
    ExitCode,
    not_default,
    opened,
    parse_duration,
    parse_time,
    print_notes,
    say,
    wall_ms,
)
from spout.inspect.tables import (
    As,
    Column,
    OutputFormat,
    count,
    print_encoded,
    span,
    with_configs,
    write,
)

if TYPE_CHECKING:
    from acker.config.settings import Input
    from acker.config.topics import Topics
    from acker.kafka.port import Log, MissingBroker
    from spout.inspect.failures import LogFigures
    from spout.inspect.overview import Snapshot

STATUS: Final = (
    Column("source", "source"),
    Column("pending", "pending", count),
    Column("oldest", "oldest_ms", span),
    Column("committed", "committed", count, "-"),
    Column("lag ≤", "lag", count),
    Column("due", "replays_due", count),
    Column("dead", "dead_letters", count),
)
"""The columns that fit into 80 characters; other values of a row follow in a line of their own."""

Place = Annotated[
    str | None,
    typer.Argument(help="A record (sentences/3@1042), a copy of it, or a dead letter, by its place."),
]
Names = Annotated[
    list[str] | None, typer.Option("--input", help="With --key: an input by its name or topic.")
]
Inputs = Annotated[list[str] | None, typer.Option("--input", help="An input by its name or topic.")]
Key = Annotated[str | None, typer.Option(help="Find records by this key, written as it is shown.")]
Since = Annotated[str | None, typer.Option("--from", help="With --key: from this time on, or 2h ago.")]
OlderThan = Annotated[str, typer.Option(help="Only roots that are open for at least so long: 10s, 5m.")]
Group = Annotated[str | None, typer.Option(help="Only the roots of this group.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="Roots shown at most.")]
Watch = Annotated[
    float | None,
    typer.Option(min=0.1, max=86_400, help="Repeat after so many seconds, until Ctrl-C."),
]


def inspect(
    place: Place = None,
    key: Key = None,
    since: Since = None,
    inputs: Names = None,
    watch: Watch = None,
    output: As = OutputFormat.TABLE,
    config: Config = DEFAULT_CONFIG,
) -> int:
    """Show everything about one record: every attempt, where it is now, why it is not done, what to do."""
    from acker.errors import TopicError

    if (place is None) is (key is None):
        cure = "name a record, such as sentences/3@1042, or give --key and --from"
        raise typer.BadParameter(cure)
    if place is not None and (since is not None or inputs):
        raise typer.BadParameter("--from and --input go with --key; a place alone names the record")
    with opened(config, "inspect") as (topics, log):
        from spout.inspect.dead_letters import inputs_named
        from spout.inspect.diagnosis import explained
        from spout.inspect.overview import missing_brokers
        from spout.inspect.trail import EvidenceReader

        for _ in _rounds(log, watch):
            evidence_reader = EvidenceReader(log, topics)
            notes: list[str] = []
            # 1. the records that the place or the key names
            if place is not None:
                records = evidence_reader.records_at(place)
            else:
                searched_inputs = inputs_named(topics, inputs or ())
                # errors name the options as they are typed: --key, --from
                records, notes = evidence_reader.search(
                    searched_inputs, key or "", since, wall_ms(), option_prefix="--"
                )
            # 2. what became of each: the records and events about it, and what is so around it
            stories = []
            is_topic_missing = False
            brokers = missing_brokers(log, topics)
            for record in records:
                evidence = evidence_reader.read_evidence(record)
                is_topic_missing |= bool(evidence.missing)
                circumstances = evidence_reader.circumstances(record, evidence, wall_ms(), brokers)
                stories.append(explained(evidence, circumstances, wall_ms(), not_default(config)))
            # 3. the output
            _begin_output(brokers, watch, output, config)
            if output is not OutputFormat.TABLE:
                print_encoded(stories, output)
            else:
                for story in stories:
                    _print_story(story, config)
            print_notes(notes, config)
    return TopicError.exit_code if is_topic_missing else 0


def roots(
    older_than: OlderThan = "0s",
    group: Group = None,
    limit: Limit = 100,
    exit_code: ExitCode = False,
    watch: Watch = None,
    output: As = OutputFormat.TABLE,
    config: Config = DEFAULT_CONFIG,
) -> int:
    """List open roots, the oldest first.

    --exit-code: 5 if a root is open, 3 if none is and some are unknown.
    """
    from acker.errors import Unreachable

    older_than_ms = parse_duration("--older-than", older_than)
    with opened(config, "roots") as (topics, log), ExitStack() as stack:
        from spout.inspect.overview import missing_brokers, missing_members, missing_queries
        from spout.questions.open_roots import ROOTS, root_picture

        inputs = _inputs_of(topics, group)
        picture = stack.enter_context(root_picture(log, topics, inputs))
        open_count = 0
        unknown_notes: list[str] = []  # on acker partitions of which all or some roots are unknown
        for _ in _rounds(log, watch):  # once, or with --watch again and again
            # 1. the roots, and what is unknown of them
            open_roots = picture.open_roots(older_than_ms=older_than_ms, limit=limit, now_ms=wall_ms())
            open_count = open_roots.total
            unknown_notes = [
                f"acker partition {partition} has no State: its roots are unknown"
                for partition in open_roots.unknown
            ]
            # by partition: how old its State is, if that is more than it should be
            unknown_notes += [
                f"the State of acker partition {partition} is {span(age_ms)} old: roots emitted"
                " since are unknown"
                for partition, age_ms in open_roots.old_ms.items()
            ]
            # 2. the table
            brokers = missing_brokers(log, topics)
            # clears the screen with --watch, and names missing brokers
            _begin_output(brokers, watch, output, config)
            write(open_roots.rows, ROOTS, output)
            # 3. the notes
            hidden_count = open_count - len(open_roots.rows)
            notes = [f"{hidden_count:,} more are not shown; see --limit"] if hidden_count else []
            notes += [*unknown_notes, *missing_members(log, topics, topics.acker.group, brokers)]
            groups = dict.fromkeys(row["group"] for row in open_roots.rows)
            print_notes([*notes, *missing_queries(log, topics, groups, wall_ms(), brokers)], config)
            if output is OutputFormat.TABLE:
                and_unknown = ", and those that are unknown" if unknown_notes else ""
                say(f"{open_count:,} open root{'' if open_count == 1 else 's'}{and_unknown}")
    if exit_code and open_count:
        return FOUND
    return Unreachable.exit_code if exit_code and unknown_notes else 0


def status(watch: Watch = None, output: As = OutputFormat.TABLE, config: Config = DEFAULT_CONFIG) -> int:
    """Show the state of each partition of each input; a value that cannot be found is unknown, never 0."""
    for topics, snapshot in _snapshots("status", config, watch):
        from spout.inspect.overview import late_notes, missing_processes, notes_on, unknown_values

        rows = snapshot.rows()
        _begin_output(snapshot.missing_brokers, watch, output, config)
        if output is OutputFormat.TABLE:
            # a table marks what an old State has: more may be pending by now
            table_rows = [
                row | {"pending": state.pending_shown.value}
                for state, row in zip(snapshot.partitions, rows, strict=True)
            ]
            write(table_rows, STATUS, output)
            for line in (*notes_on(rows), *late_notes(snapshot, topics)):
                say(with_configs(line, not_default(config)))
        else:
            write(rows, STATUS, output)
        notes = [*missing_processes(rows, topics), *snapshot.troubles(), *unknown_values(rows)]
        print_notes([*notes, *snapshot.of_no_input], config)
    return _exit_code(snapshot)


def failures(
    inputs: Inputs = None,
    since: Annotated[str, typer.Option(help="Count from this time on; 2h: from two hours ago on.")] = "1h",
    watch: Watch = None,
    output: As = OutputFormat.TABLE,
    config: Config = DEFAULT_CONFIG,
) -> int:
    """Count failures by bolt and cause: how many, since when, and which share a replay repairs."""
    since_ms = parse_time("--since", since, wall_ms()) or 0
    with opened(config, "failures") as (topics, log):
        from spout.inspect.dead_letters import inputs_named
        from spout.inspect.failures import FAILURES, FailureLog
        from spout.inspect.letter_rows import moment
        from spout.inspect.overview import missing_brokers, missing_members

        counted_inputs = inputs_named(topics, inputs or ())
        with closing(FailureLog(log, topics, counted_inputs, since_ms)) as failure_log:
            for _ in _rounds(log, watch):
                _read_all(failure_log)
                brokers = missing_brokers(log, topics)
                _begin_output(brokers, watch, output, config)
                rows = failure_log.rows(wall_ms())
                write(rows, FAILURES, output)
                notes = failure_log.all_notes()
                if not rows and failure_log.is_whole:
                    notes = [f"no failure since {moment(since_ms)} was found", *notes]
                no_acker = missing_members(log, topics, topics.acker.group, brokers)
                print_notes([*notes, *no_acker], config)
    return 0


def latency(
    inputs: Inputs = None,
    timeout: Annotated[
        str | None,
        typer.Option(help="Show which share would time out with this timeout; default: the input's."),
    ] = None,
    driver: Annotated[
        list[str] | None,
        typer.Option(help="HOST:PORT of a driver's metrics, to show the time of each bolt."),
    ] = None,
    watch: Watch = None,
    output: As = OutputFormat.TABLE,
    config: Config = DEFAULT_CONFIG,
) -> int:
    """Show how long records take from emission to verdict, and how many another timeout would lose."""
    timeout_ms = None if timeout is None else parse_duration("--timeout", timeout)
    with opened(config, "latency") as (topics, log):
        from spout.inspect.dead_letters import inputs_named
        from spout.inspect.latency import LATENCY, CompletionLog
        from spout.inspect.overview import missing_brokers, missing_members
        from spout.runtime.scrape import metrics_address, read_metrics
        from spout.ui.graph import BOLTS, Drivers, with_bolts

        drivers = Drivers([metrics_address(address) for address in driver or ()], read_metrics)
        counted_inputs = inputs_named(topics, inputs or ())
        with closing(CompletionLog(log, topics, counted_inputs)) as completions:
            for _ in _rounds(log, watch):
                _read_all(completions)
                brokers = missing_brokers(log, topics)
                _begin_output(brokers, watch, output, config)
                rows = completions.rows(wall_ms(), timeout_ms)
                rows = with_bolts(rows, topics, drivers, wall_ms())
                write(rows, LATENCY, output)
                for row in rows:
                    if output is OutputFormat.TABLE and row["by_bolt"]:
                        say(f"bolts of {row['input']}:")
                        write(row["by_bolt"], BOLTS, output)
                # a dict, since several inputs may have the same note, which is printed once
                unknown_notes = dict.fromkeys(
                    f"by bolt: {row['unknown']['by_bolt']}" for row in rows if row["unknown"]
                )
                no_acker = missing_members(log, topics, topics.acker.group, brokers)
                print_notes([*completions.notes(), *unknown_notes, *no_acker], config)
    return 0


def machinery(watch: Watch = None, output: As = OutputFormat.TABLE, config: Config = DEFAULT_CONFIG) -> int:
    """Show acker partitions, replay workers and the sessions that own the groups."""
    for _, snapshot in _snapshots("machinery", config, watch):
        from spout.ui import machinery as page

        machinery_now = page.machinery_of(snapshot)
        rows = machinery_now.rows()
        _begin_output(snapshot.missing_brokers, watch, output, config)
        if output is not OutputFormat.TABLE:
            print_encoded(rows, output)
            continue
        write(machinery_now.shown_partitions(), page.ACKER_PARTITIONS, output)
        write(rows["workers"] or [], page.REPLAY_WORKERS, output)
        write(machinery_now.shown_groups(), page.SESSIONS, output)
        unknown_notes = [f"unknown, since {why}" for why in page.machinery_notes(rows)]
        print_notes([*snapshot.troubles(), *unknown_notes], config)
    return _exit_code(snapshot)


def _rounds(log: Log, every_s: float | None) -> Iterator[None]:
    """Yield at once, and then every `every_s` seconds without end; None: yield only once.

    All that a round asks of the broker shares one deadline.
    """
    log.share_deadline()
    yield
    while every_s is not None:
        time.sleep(every_s)
        log.share_deadline()
        yield


def _read_all(figures: LogFigures) -> None:
    """Read up to the present ends; a terminal shows between the steps which share was read."""
    for share in figures.read_all():
        if sys.stderr.isatty():
            say(f"{int(100 * share)} % read ...", err=True)


def _snapshots(command: str, config: Path, watch: float | None) -> Iterator[tuple[Topics, Snapshot]]:
    """Yield topics.yaml and a snapshot of all inputs, in each round of ``--watch``.

    Raises the error of a broker that does not answer in the first round; later it is in the
    snapshot.
    """
    with ExitStack() as stack:
        topics, log = stack.enter_context(opened(config, command))
        from spout.inspect.overview import Overview, silent_groups, with_right_clock

        overview = stack.enter_context(closing(Overview(log, topics)))
        for round_index, _ in enumerate(_rounds(log, watch)):
            snapshot = overview.snapshot(wall_ms())
            # a query seems to be gone also where this machine's clock is wrong
            if snapshot.broker_error is None and silent_groups(snapshot.rows()):
                snapshot = with_right_clock(overview, snapshot, wall_ms)
            if snapshot.broker_error is not None and round_index == 0:
                raise snapshot.broker_error
            yield topics, snapshot


def _inputs_of(topics: Topics, group: str | None) -> Sequence[Input]:
    """Return the inputs that a group reads; without a group, all inputs."""
    if not group:
        return tuple(topics.inputs.values())
    from spout.inspect.operate import inputs_of  # here, since it loads what plans batches

    return inputs_of(topics, group)


def _begin_output(
    brokers: Sequence[MissingBroker], watch: float | None, output: OutputFormat, config: Path
) -> None:
    """Clear the screen, if a table is printed again, and name the brokers that are missing.

    They come first, since all that follows may be wrong because of them.
    """
    from spout.inspect.overview import missing_broker_texts

    if watch is not None and output is OutputFormat.TABLE:
        from rich.console import Console

        Console().clear()
    print_notes(missing_broker_texts(brokers), config)


def _exit_code(snapshot: Snapshot) -> int:
    """Return the exit code of a right that is missing, else of a topic; 0: none is missing."""
    from acker.errors import TopicError

    if snapshot.refused is not None:
        return snapshot.refused.exit_code
    return TopicError.exit_code if snapshot.missing else 0


def _print_story(story: dict[str, Any], config: Path) -> None:
    """Print a record's story, as `explained` returns it."""
    from spout.inspect.letter_rows import field_text
    from spout.inspect.story import ATTEMPTS

    # 1. single values
    for name, value in story.items():
        if not isinstance(value, list | dict):
            say(f"{name.replace('_', ' '):>14}  {field_text(story, name)}")
    # 2. its attempts
    shown_attempts = [attempt for attempt in story["attempts"] if not attempt["repeats"]]
    write(shown_attempts, ATTEMPTS, OutputFormat.TABLE)
    hidden_count = len(story["attempts"]) - len(shown_attempts)
    if hidden_count:
        text = f"{hidden_count:,} more emissions, blocked by the same record; see -o json"
        say(f"{'not shown':>14}  {text}")
    # 3. lists, a line for each entry, with its stack in lines below
    for name in ("passed_calls", "waiting", "dead_letters", "dropped"):
        for row in story[name]:
            texts = []
            for key, value in row.items():
                if value != "" and key != "stack":
                    texts.append(f"{key.replace('_', ' ')} {value}")
            say(f"{name.replace('_', ' '):>14}  {', '.join(texts)}")
            for line in row.get("stack", "").splitlines():
                say(f"{'stack':>14}  {line}")
    # 4. what is unknown
    unknown_notes: list[str] = []
    for name, why in story["unknown"].items():
        unknown_notes.append(f"unknown is {name.replace('_', ' ')}: {why}")
    print_notes([*story["not_read"], *unknown_notes], config)
