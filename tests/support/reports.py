"""A task's report, as tests write and read it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from acker.identity import I64, U64
from acker.root_sets.root_set import RootSet
from acker.wire.causes import LATE
from acker.wire.events import SourceRun
from spout.publishing.delayed import RootPositions, held_marks, holder_of
from spout.publishing.fold import Missing, TaskId, TaskReport, report_behind_keyed
from spout.publishing.root_marks import NUMBERED, PLANNED, RootMark, RootMarks, roots_of
from spout.tuples.failures import Cause

Failures = tuple[tuple[Cause, I64], ...]
"""Causes, each with the roots that it is of, as the report names roots."""

_NONE: I64 = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Held:
    """Tuples that a task handed to Spark's state, with their roots by index, or by position in no plan."""

    indices: I64 = field(default_factory=_NONE.copy)
    edges: U64 = field(default_factory=lambda: np.empty(0, np.uint64))
    until_ms: I64 = field(default_factory=_NONE.copy)
    fails_late: bool = False

    def marks(self, operator: str) -> RootMarks:
        """Return them as a task marks them."""
        places = RootPositions(*roots_of(PLANNED, self.indices))
        holder = holder_of(operator, fails_late=self.fails_late)
        return held_marks(holder, places, self.edges, self.until_ms)


def task_report(operator: str, upstream: str = "", consumer: str = "", **facts: Any) -> TaskReport:
    """Make a report; `failures` and `passed` are causes with their roots, `touched` and so on are roots."""
    return changed_report(TaskReport(operator, upstream, consumer), **facts)


def changed_report(
    report: TaskReport,
    *,
    failures: Failures = (),
    touched: I64 = _NONE,
    untracked: I64 = _NONE,
    passed: Failures = (),
    held: Held | None = None,
    keyed_roots: RootMarks | None = None,
    absent: tuple[SourceRun, ...] = (),
    lost_count: int = 0,
    **facts: Any,
) -> TaskReport:
    """Return a report with more marks, and other facts, named as by `task_report`."""
    source = PLANNED if keyed_roots is None else NUMBERED
    if absent or lost_count:
        facts["missing"] = Missing(RootSet.of_runs(absent), lost_count)
    changed = replace(report, **facts)
    marks = [changed.marks]
    marks += [
        RootMarks.of_roots(RootMark.FAILED, roots_of(source, roots), cause=cause) for cause, roots in failures
    ]
    marks.append(RootMarks.of_roots(RootMark.TOUCHED, roots_of(source, touched)))
    marks.append(RootMarks.of_roots(RootMark.UNTRACKED, roots_of(source, untracked)))
    for number, (cause, roots) in enumerate(passed):
        numbers = np.full(len(roots), number)
        marks.append(RootMarks.of_roots(RootMark.PASSED, roots_of(source, roots), numbers, cause))
    if held is not None:
        marks.append(held.marks(report.operator))
    if keyed_roots is not None:
        marks.append(keyed_roots)
    changed = replace(changed, marks=RootMarks.together(marks))
    return changed if keyed_roots is None else report_behind_keyed(changed)


def keyed_marks(numbers: I64 = _NONE, roots: tuple[I64, I64] = (_NONE, _NONE)) -> RootMarks:
    """Return the marks of roots on which a keyed bolt emitted, each with its number."""
    return RootMarks.of_roots(RootMark.KEYED, roots, numbers)


def reported(stage: int, attempt: int, partition: int, report: TaskReport) -> TaskReport:
    """Return the report as a task sends it, with the task's name."""
    return replace(report, task=TaskId(stage, attempt, partition))


def failures_of(failed: Iterable[tuple[int, Cause]]) -> Failures:
    """Return failed roots by cause."""
    roots_by_cause: dict[Cause, list[int]] = {}
    for root, cause in failed:
        roots_by_cause.setdefault(cause, []).append(root)
    return tuple((cause, np.array(roots, np.int64)) for cause, roots in roots_by_cause.items())


def failures_in(report: TaskReport) -> Failures:
    """Return what a task failed, by cause."""
    failed = report.marks.of(RootMark.FAILED).by_cause()
    return tuple((cause, marks.positions) for cause, marks in failed)


def passed_in(report: TaskReport) -> Failures:
    """Return the calls that passed when they came again."""
    passed = report.marks.of(RootMark.PASSED)
    calls = [passed.at(passed.values == number) for number in np.unique(passed.values)]
    return tuple((call.used_causes()[0], call.positions) for call in calls)


def touched_in(report: TaskReport) -> list[int]:
    """Return the roots whose timeout a task reset."""
    return sorted(set(report.marks.of(RootMark.TOUCHED).positions.tolist()))


def untracked_in(report: TaskReport) -> list[int]:
    """Return the roots that are best effort."""
    return report.marks.of(RootMark.UNTRACKED).positions.tolist()


def held_in(report: TaskReport) -> Held:
    """Return what a task handed to Spark's state."""
    tuples, until_ms = report.marks.of(RootMark.HELD_TUPLE), report.marks.of(RootMark.HELD_UNTIL).values
    fails_late = any(holder.error == LATE for holder in tuples.used_causes())
    return Held(tuples.positions, tuples.edges, until_ms, fails_late)
