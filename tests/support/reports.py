"""A task's report, as tests write and read it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from acker.identity import I64
from spout.publishing.delayed import Held
from spout.publishing.fold import TaskReport
from spout.tuples.failures import Cause

Failures = tuple[tuple[Cause, I64], ...]
"""Causes, each with the roots that it is of, as the report names roots."""


def task_report(operator: str, upstream: str = "", consumer: str = "", **facts: Any) -> TaskReport:
    """Make a report; `failures` and `passed` are causes with their roots, `touched` and so on are roots."""
    return TaskReport(operator, upstream, consumer, **facts)


def changed_report(report: TaskReport, **facts: Any) -> TaskReport:
    """Return a report with other facts, named as by `task_report`."""
    return replace(report, **facts)


def failures_of(failed: Iterable[tuple[int, Cause]]) -> Failures:
    """Return failed roots by cause."""
    roots_by_cause: dict[Cause, list[int]] = {}
    for root, cause in failed:
        roots_by_cause.setdefault(cause, []).append(root)
    return tuple((cause, np.array(roots, np.int64)) for cause, roots in roots_by_cause.items())


def failures_in(report: TaskReport) -> Failures:
    """Return what a task failed, by cause."""
    return report.failures


def passed_in(report: TaskReport) -> Failures:
    """Return the calls that passed when they came again."""
    return report.passed


def touched_in(report: TaskReport) -> list[int]:
    """Return the roots whose timeout a task reset."""
    return report.touched.tolist()


def untracked_in(report: TaskReport) -> list[int]:
    """Return the roots that are best effort."""
    return report.untracked.tolist()


def held_in(report: TaskReport) -> Held:
    """Return what a task handed to Spark's state."""
    return report.held
