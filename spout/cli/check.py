"""The command ``windhover check``: one answer for a monitor, with the exit codes of Nagios."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from enum import StrEnum
from typing import Annotated

import typer

from spout.cli.common import (
    DEFAULT_CONFIG,
    Config,
    not_default,
    opened,
    parse_duration,
    say_lines,
    wall_ms,
)

UNKNOWN_CODE = 3
"""Nagios's code of UNKNOWN; a wrong call has it, too, so that no monitor takes it for CRITICAL."""


class CheckFormat(StrEnum):
    """The monitor for which a report is printed."""

    NAGIOS = "nagios"
    PROMETHEUS = "prometheus"
    JSON = "json"


ForMonitor = Annotated[CheckFormat, typer.Option("--output", "-o", help="The monitor that reads it.")]
OldestWarning = Annotated[
    float,
    typer.Option(min=0, max=1e6, help="WARNING if the oldest open root is so many timeouts old."),
]
OldestCritical = Annotated[
    float,
    typer.Option(min=0, max=1e6, help="CRITICAL if the oldest open root is so many timeouts old."),
]
PendingWarning = Annotated[
    float, typer.Option(min=0, max=1e6, help="WARNING if this share of max_spout_pending is used.")
]
PendingCritical = Annotated[
    float, typer.Option(min=0, max=1e6, help="CRITICAL if this share of max_spout_pending is used.")
]
DeadWarning = Annotated[int, typer.Option(min=0, help="WARNING at so many new dead letters; 0: never.")]
DeadCritical = Annotated[int, typer.Option(min=0, help="CRITICAL at so many new dead letters; 0: never.")]
DeadWithin = Annotated[str, typer.Option(help="How long a dead letter counts as new.")]
Inputs = Annotated[list[str] | None, typer.Option("--input", help="Only this input, by its name or topic.")]
Groups = Annotated[list[str] | None, typer.Option("--group", help="Only the inputs of this group.")]


def check_once(
    output: ForMonitor = CheckFormat.NAGIOS,
    oldest_warning: OldestWarning = 1.5,
    oldest_critical: OldestCritical = 2.0,
    pending_warning: PendingWarning = 0.8,
    pending_critical: PendingCritical = 1.0,
    dead_warning: DeadWarning = 1,
    dead_critical: DeadCritical = 100,
    dead_within: DeadWithin = "15m",
    inputs: Inputs = None,
    groups: Groups = None,
    config: Config = DEFAULT_CONFIG,
) -> int:
    """Check once for a monitor: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN, which is never OK."""
    from acker.errors import WindhoverError
    from acker.kafka.read_to_end import READ_MAX
    from acker.service.state import NEARLY_FULL_SHARE
    from spout.doctor import monitor
    from spout.inspect.dead_letters import topics_of_some
    from spout.inspect.overview import Overview, with_right_clock
    from spout.inspect.readings import Reading
    from spout.inspect.tables import OutputFormat, print_encoded, with_configs
    from spout.ui.attention import Thresholds
    from spout.ui.watch import CauseWatch

    # 1. from which values on the state is WARNING or CRITICAL
    new_ms = parse_duration("--dead-within", dead_within, "15m or 1h")
    warning = Thresholds(
        stuck_timeouts=oldest_warning,
        pending=pending_warning,
        dead=dead_warning,
        new_ms=new_ms,
    )
    # what came too late, other members of a group and wrong clocks are a WARNING at most
    critical = Thresholds(
        stuck_timeouts=oldest_critical,
        pending=pending_critical,
        dead=dead_critical,
        new_ms=new_ms,
        near_share=monitor.NEAR_CRITICAL,
        late=False,
        strangers=False,
        filling=NEARLY_FULL_SHARE,
        clocks=False,
    )
    # 2. the report; an error of ours is the state UNKNOWN
    try:
        with ExitStack() as stack:
            all_topics, log = stack.enter_context(opened(config, "check"))
            topics = topics_of_some(all_topics, inputs or (), groups or ())
            overview = stack.enter_context(closing(Overview(log, topics)))
            cause_watch = stack.enter_context(closing(CauseWatch(log, topics, READ_MAX)))
            snapshot = overview.snapshot(wall_ms())
            if snapshot.broker_error is None:
                # it compares the machine's clock with the broker's, and asks again if it is wrong
                snapshot = with_right_clock(overview, snapshot, wall_ms)
            if snapshot.broker_error is None:
                causes = cause_watch.read(snapshot.at_ms)
            else:
                causes = Reading(unknown=str(snapshot.broker_error))
            report = monitor.monitor_report(snapshot, topics, warning, critical, causes)
    except WindhoverError as error:
        unknown = monitor.MonitorState.UNKNOWN
        problem = monitor.MonitorProblem(unknown, "unknown", str(error))
        report = monitor.MonitorReport(unknown, [problem], figures=[], input_count=0)

    # 3. commands in the problems name the topics.yaml, unless it is the default one
    problems: list[monitor.MonitorProblem] = []
    for problem in report.problems:
        text = with_configs(problem.text, not_default(config))
        problems.append(replace(problem, text=text))
    report = replace(report, problems=problems)
    # 4. the output
    match output:
        case CheckFormat.JSON:
            print_encoded(monitor.monitor_row(report), OutputFormat.JSON)
        case CheckFormat.NAGIOS:
            say_lines(monitor.nagios_lines(report))
        case CheckFormat.PROMETHEUS:
            say_lines(monitor.prometheus_lines(report))
    return int(report.state)
