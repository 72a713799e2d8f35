"""What ``windhover check`` tells a monitor: a state, the problems behind it, and the figures; pure.

It judges the snapshot of ``windhover status`` by the attention list of the page, once with the thresholds of
a warning and once with those of a critical state. Where something is unknown the state is UNKNOWN, unless
something that could be read is wrong.

The page waits for a second reading before it flags anything; here there is one. The log says when a new cause
failed its first record: where that is as long ago as two readings are apart, a page would have flagged it.
All else is judged as it is now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any, Final

from acker.config.topics import Topics
from acker.kafka.partition_troubles import PartitionTrouble
from acker.listing import and_more
from spout.inspect.failures import SeenCause
from spout.inspect.overview import Snapshot, unknown_values
from spout.inspect.readings import Reading
from spout.inspect.summary import InputSummary, summaries
from spout.ui.attention import (
    APART_MS,
    Thresholds,
    causes_unknown,
    new_causes,
    new_letters,
    problems,
)

NEAR_CRITICAL: Final = 0.0
"""Retention is critical only where it has deleted what is needed."""

JUDGED: Final = frozenset({
    "pending", "oldest_ms", "lag", "dead_letters", "replays_wait", "query_lives", "ackers", "replay_workers",
})  # fmt: skip
"""The values of a row that the problems are read from; `lag` is unknown where an end of a log is."""


class MonitorState(IntEnum):
    """What a monitor of Nagios's kind knows; the number is the exit code."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class MonitorProblem:
    """What is wrong; `name` stays the same while figures in `text` change."""

    state: MonitorState
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class MonitorFigure:
    """A figure of an input, with its thresholds in the same unit; None: there is none."""

    name: str
    input: str
    value: Reading[float]
    unit: str
    warning: float | None
    critical: float | None


@dataclass(frozen=True, slots=True)
class MonitorReport:
    """The whole answer; the worst problem comes first."""

    state: MonitorState
    problems: Sequence[MonitorProblem]
    figures: Sequence[MonitorFigure]
    inputs: int
    troubles: Sequence[PartitionTrouble] = ()


def monitor_report(
    snapshot: Snapshot,
    topics: Topics,
    warning: Thresholds,
    critical: Thresholds,
    causes: Reading[Sequence[SeenCause]],
) -> MonitorReport:
    worst = {each.name: each for each in problems(snapshot, topics, critical)}
    found = [MonitorProblem(MonitorState.CRITICAL, each.name, each.text) for each in worst.values()]
    found += [
        MonitorProblem(MonitorState.WARNING, each.name, each.text)
        for each in problems(snapshot, topics, warning)
        if each.name not in worst
    ]
    seen = [each for each in causes.value or () if snapshot.at_ms - each.first_ms >= APART_MS]
    found += [
        MonitorProblem(MonitorState.WARNING, each.name, each.text)
        for each in new_causes(seen, snapshot.at_ms)
    ]
    found += [MonitorProblem(MonitorState.UNKNOWN, "unknown", text) for text in _unknown(snapshot, causes)]
    order = (MonitorState.CRITICAL, MonitorState.WARNING, MonitorState.UNKNOWN, MonitorState.OK)
    found.sort(key=lambda each: order.index(each.state))
    inputs = summaries(snapshot, topics)
    figures = [each for one in inputs for each in _figures(one, snapshot.at_ms, warning, critical)]
    state = found[0].state if found else MonitorState.OK
    return MonitorReport(state, found, figures, len(inputs), snapshot.partition_troubles)


def _unknown(snapshot: Snapshot, causes: Reading[Sequence[SeenCause]]) -> Iterator[str]:
    if snapshot.away is not None:
        yield str(snapshot.away)
        return
    if not snapshot.partitions:
        yield "topics.yaml has no tracked input"
    rows = snapshot.rows()
    for row in rows:
        row["unknown"] = {name: why for name, why in row["unknown"].items() if name in JUDGED}
    yield from unknown_values(rows)
    yield from filter(None, [causes_unknown(causes)])


def _figures(
    one: InputSummary, now_ms: int, warning: Thresholds, critical: Thresholds
) -> Iterator[MonitorFigure]:
    def figure(
        name: str, value: Reading[int], unit: str, limit: Callable[[Thresholds], float | None]
    ) -> MonitorFigure:
        shown: Reading[float] = Reading(unknown=value.unknown)
        if not value.unknown:
            shown = value.then(lambda number: number / 1000 if unit == "s" else number)
        return MonitorFigure(name, one.name, shown, unit, limit(warning), limit(critical))

    timeout_s = one.timeout_ms / 1000 or None
    yield figure("pending", one.pending, "", lambda each: each.pending * one.pending_max)
    yield figure("oldest", one.oldest_ms, "s", lambda each: timeout_s and each.stuck * timeout_s)
    yield figure("new_dead", new_letters(one, warning.new_ms, now_ms), "", lambda each: each.dead or None)
    yield figure("due", one.due, "", lambda _: None)
    yield figure("lag", one.lag, "", lambda _: None)


def nagios_lines(report: MonitorReport) -> list[str]:
    """Return it as a plugin of Nagios prints it: a line with the figures, then a line for each problem."""
    count = f"{report.inputs} input{'' if report.inputs == 1 else 's'}"
    first = report.problems[0].text if report.problems else f"{count}, nothing needs attention"
    others = and_more(len(report.problems) - 1)
    more = f" ({others})" if others else ""
    figures = " ".join(
        f"'{each.input}_{each.name}'={_plain(each.value.value, 'U', each.unit)}"
        f";{_plain(each.warning)};{_plain(each.critical)}"
        for each in report.figures
    )
    line = f"WINDHOVER {report.state.name} - {_clean(first)}{more}"
    return [
        f"{line} | {figures}" if figures else line,
        *(f"{each.state.name}: {_clean(each.text)}" for each in report.problems),
    ]


def _plain(value: float | None, none: str = "", unit: str = "") -> str:
    """Return a number as Nagios has it; `none` stands for None, which has no unit."""
    if value is None:
        return none
    return (f"{value:g}" if value < 1_000_000 else str(int(value))) + unit


def _clean(text: str) -> str:
    """Return a text for one line of Nagios, where ``|`` begins the figures."""
    return " ".join(text.replace("|", "/").split())


def prometheus_lines(report: MonitorReport) -> list[str]:
    """Return it for node_exporter's textfile collector; a figure that is unknown is absent."""
    lines = [
        "# HELP windhover_check_state 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.",
        "# TYPE windhover_check_state gauge",
        f"windhover_check_state {int(report.state)}",
        "# HELP windhover_check_problems Problems of each state.",
        "# TYPE windhover_check_problems gauge",
        *(
            f'windhover_check_problems{{state="{state.name.lower()}"}}'
            f" {sum(each.state is state for each in report.problems)}"
            for state in MonitorState
            if state is not MonitorState.OK
        ),
    ]
    for name, (family, text) in _FAMILIES.items():
        found = [each for each in report.figures if each.name == name and each.value.value is not None]
        if found:
            lines += [f"# HELP {family} {text}", f"# TYPE {family} gauge"]
            for each in found:
                lines.append(f'{family}{{input="{_escaped(each.input)}"}} {_plain(each.value.value)}')
    return [*lines, *_trouble_lines(report.troubles)]


def _trouble_lines(troubles: Sequence[PartitionTrouble]) -> list[str]:
    """Return a line for each kind of trouble of each partition: several damaged ranges have one."""
    if not troubles:
        return []
    samples: dict[str, None] = {}
    for trouble in troubles:
        topic, partition = _escaped(trouble.place.topic), trouble.place.partition
        labels = f'kind="{trouble.kind}",topic="{topic}",partition="{partition}"'
        samples[f"windhover_check_partition_trouble{{{labels}}} 1"] = None
    return [
        "# HELP windhover_check_partition_trouble 1: something is the matter with the partition.",
        "# TYPE windhover_check_partition_trouble gauge",
        *samples,
    ]


_FAMILIES: Final[Mapping[str, tuple[str, str]]] = {
    "pending": ("windhover_check_pending", "Open roots."),
    "oldest": ("windhover_check_oldest_seconds", "Age of the oldest open root."),
    "new_dead": ("windhover_check_new_dead_letters", "Dead letters that are new."),
    "due": ("windhover_check_due", "Lost roots that wait for a replay."),
    "lag": ("windhover_check_lag", "Records that are not done."),
}


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def monitor_row(report: MonitorReport) -> dict[str, Any]:
    """Return it as JSON has it; a figure that is unknown is null, with the reason."""
    return {
        "state": report.state.name,
        "code": int(report.state),
        "problems": [
            {"state": each.state.name, "name": each.name, "text": each.text} for each in report.problems
        ],
        "figures": [
            {**asdict(each), "value": each.value.value, "unknown": each.value.unknown}
            for each in report.figures
        ],
        "troubles": [trouble.row() for trouble in report.troubles],
    }
