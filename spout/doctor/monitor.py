"""What ``windhover check`` tells a monitor: a state, the problems behind it, and the figures; pure.

It judges the snapshot of ``windhover status`` by the attention list of the page, once with the
thresholds of a warning and once with those of a critical state. Where something is unknown the
state is UNKNOWN, unless something that could be read is wrong.

The page flags what two readings show; here there is one. The log has the time at which a new cause
failed its first record: if that is as long ago as two readings are apart, a page would have flagged
the cause. All else is judged by this one reading.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    Flag,
    Thresholds,
    causes_unknown,
    new_causes,
    new_letters,
    problems,
)

NEAR_CRITICAL: Final = 0.0
"""Retention is critical only where it has deleted what is needed."""

JUDGED: Final = frozenset({
    "pending", "oldest_ms", "lag", "dead_letters", "replays_wait",
    "query_lives", "ackers", "replay_workers",
})  # fmt: skip
"""The values of a row that problems come from; `lag` is unknown if the end of a log is."""


class MonitorState(IntEnum):
    """The states of Nagios; the number is the exit code."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


STATES_WORST_FIRST: Final = (
    MonitorState.CRITICAL,
    MonitorState.WARNING,
    MonitorState.UNKNOWN,
    MonitorState.OK,
)
"""What is wrong for certain comes before what is unknown."""


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
    """The answer to a monitor; the worst problem comes first."""

    state: MonitorState
    problems: Sequence[MonitorProblem]
    figures: Sequence[MonitorFigure]
    input_count: int
    troubles: Sequence[PartitionTrouble] = ()


def monitor_report(
    snapshot: Snapshot,
    topics: Topics,
    warning: Thresholds,
    critical: Thresholds,
    causes: Reading[Sequence[SeenCause]],
) -> MonitorReport:
    """Judge a snapshot, once by the thresholds of a critical state and once by those of a warning.

    `causes` are the causes of failures that the log has, for what is new among them.
    """
    criticals = {flag.name: flag for flag in problems(snapshot, topics, critical)}
    warnings = [flag for flag in problems(snapshot, topics, warning) if flag.name not in criticals]
    now_ms = snapshot.at_ms
    # a page would have seen these causes in both of its readings
    old_enough = [cause for cause in causes.value or () if now_ms - cause.first_ms >= APART_MS]
    warnings += new_causes(old_enough, now_ms)

    unknown = [Flag("unknown", text, now_ms) for text in _unknown(snapshot, causes)]
    judged = [
        *_problems_of(MonitorState.CRITICAL, criticals.values()),
        *_problems_of(MonitorState.WARNING, warnings),
        *_problems_of(MonitorState.UNKNOWN, unknown),
    ]
    judged.sort(key=lambda problem: STATES_WORST_FIRST.index(problem.state))
    state = judged[0].state if judged else MonitorState.OK

    inputs = summaries(snapshot, topics)
    figures: list[MonitorFigure] = []
    for input in inputs:
        figures += _figures(input, snapshot.at_ms, warning, critical)
    return MonitorReport(state, judged, figures, len(inputs), snapshot.partition_troubles)


def _problems_of(state: MonitorState, flags: Iterable[Flag]) -> list[MonitorProblem]:
    """Return the flags as problems of one state, in their order."""
    return [MonitorProblem(state, flag.name, flag.text) for flag in flags]


def _unknown(snapshot: Snapshot, causes: Reading[Sequence[SeenCause]]) -> Iterator[str]:
    """Yield what is unknown and would be judged, each with the reason."""
    if snapshot.broker_error is not None:
        yield str(snapshot.broker_error)
        return
    if not snapshot.partitions:
        yield "topics.yaml has no tracked input"
    rows = snapshot.rows()
    for row in rows:
        row["unknown"] = {name: why for name, why in row["unknown"].items() if name in JUDGED}
    yield from unknown_values(rows)
    causes_text = causes_unknown(causes)
    if causes_text:
        yield causes_text


def _figures(
    input: InputSummary, now_ms: int, warning: Thresholds, critical: Thresholds
) -> Iterator[MonitorFigure]:
    """Yield the figures of an input, with its limits at both thresholds; a figure may have none."""

    def figure(
        name: str, value: Reading[int], unit: str, limit_of: Callable[[Thresholds], float | None]
    ) -> MonitorFigure:
        """Return a figure of the input; `limit_of` reads its limit, None: it has none."""
        shown: Reading[float] = Reading(unknown=value.unknown)
        if not value.unknown:
            # the reading of a time is in ms
            shown = value.then(lambda number: number / 1000 if unit == "s" else number)
        return MonitorFigure(name, input.name, shown, unit, limit_of(warning), limit_of(critical))

    timeout_s = input.timeout_ms / 1000 or None  # None: the input has no timeout

    def oldest_limit_s(limits: Thresholds) -> float | None:
        return timeout_s and limits.stuck_timeouts * timeout_s

    letters = new_letters(input, warning.new_ms, now_ms)
    yield figure("pending", input.pending, "", lambda limits: limits.pending * input.pending_max)
    yield figure("oldest", input.oldest_ms, "s", oldest_limit_s)
    yield figure("new_dead", letters, "", lambda limits: limits.dead or None)
    yield figure("due", input.due, "", lambda _: None)
    yield figure("lag", input.lag, "", lambda _: None)


def nagios_lines(report: MonitorReport) -> list[str]:
    """Return the lines that a plugin of Nagios prints: state and figures, then each problem."""
    inputs_text = f"{report.input_count} input{'' if report.input_count == 1 else 's'}"
    summary_text = f"{inputs_text}, nothing needs attention"
    if report.problems:  # they are sorted, the worst first
        summary_text = report.problems[0].text
    line = f"WINDHOVER {report.state.name} - {_clean(summary_text)}"
    more_problems = and_more(len(report.problems) - 1)
    if more_problems:
        line += f" ({more_problems})"
    if report.figures:
        line += " | " + " ".join(_nagios_figure(figure) for figure in report.figures)
    return [line, *(f"{problem.state.name}: {_clean(problem.text)}" for problem in report.problems)]


def _nagios_figure(figure: MonitorFigure) -> str:
    """Return a figure as Nagios has it: ``'orders_oldest'=12s;30;60``; ``U``: it is unknown."""
    value = _plain(figure.value.value, none="U", unit=figure.unit)
    limits = f"{_plain(figure.warning)};{_plain(figure.critical)}"
    return f"'{figure.input}_{figure.name}'={value};{limits}"


def _plain(value: float | None, none: str = "", unit: str = "") -> str:
    """Return a number as Nagios has it; `none` stands for None, which has no unit."""
    if value is None:
        return none
    if value >= 1_000_000:  # from here on the short form has an exponent
        return f"{int(value)}{unit}"
    return f"{value:g}{unit}"


def _clean(text: str) -> str:
    """Return a text for one line of Nagios, where ``|`` begins the figures."""
    return " ".join(text.replace("|", "/").split())


def prometheus_lines(report: MonitorReport) -> list[str]:
    """Return the lines for node_exporter's textfile collector; an unknown figure is absent."""
    lines = [
        "# HELP windhover_check_state 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.",
        "# TYPE windhover_check_state gauge",
        f"windhover_check_state {int(report.state)}",
        "# HELP windhover_check_problems Problems of each state.",
        "# TYPE windhover_check_problems gauge",
    ]
    counts = Counter(problem.state for problem in report.problems)
    lines += [
        f'windhover_check_problems{{state="{state.name.lower()}"}} {counts[state]}'
        for state in (MonitorState.WARNING, MonitorState.CRITICAL, MonitorState.UNKNOWN)
    ]
    for name, (family, text) in _FAMILIES.items():
        figures_of_name = [figure for figure in report.figures if figure.name == name]
        figures = [figure for figure in figures_of_name if figure.value.value is not None]
        if figures:
            lines += [f"# HELP {family} {text}", f"# TYPE {family} gauge"]
        for figure in figures:
            labels = f'input="{_escaped(figure.input)}"'
            lines.append(f"{family}{{{labels}}} {_plain(figure.value.value)}")
    return [*lines, *_trouble_lines(report.troubles)]


def _trouble_lines(troubles: Sequence[PartitionTrouble]) -> list[str]:
    """Return a line for each kind of trouble of each partition: several damaged ranges have one."""
    if not troubles:
        return []
    samples: dict[str, None] = {}  # a set that keeps the order
    for trouble in troubles:
        topic, partition = _escaped(trouble.partition.topic), trouble.partition.partition
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
"""By the name of a figure its metric of Prometheus, and the help text of that."""


def _escaped(text: str) -> str:
    """Return the value of a label as Prometheus has it between quotes."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def monitor_row(report: MonitorReport) -> dict[str, Any]:
    """Return the report as JSON has it; an unknown figure is null, with the reason."""
    return {
        "state": report.state.name,
        "code": int(report.state),
        "problems": [
            {"state": problem.state.name, "name": problem.name, "text": problem.text}
            for problem in report.problems
        ],
        "figures": [
            {**asdict(figure), "value": figure.value.value, "unknown": figure.value.unknown}
            for figure in report.figures
        ],
        "troubles": [trouble.row() for trouble in report.troubles],
    }
