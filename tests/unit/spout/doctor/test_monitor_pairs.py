"""``windhover check`` with two findings at once: the worst that could be read is its state, in each pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from spout.doctor.monitor import (
    NEAR_CRITICAL,
    MonitorReport,
    MonitorState,
    monitor_report,
    monitor_row,
    nagios_lines,
    prometheus_lines,
)
from spout.inspect.failures import FailureGroup, SeenCause
from spout.inspect.overview import Overview, Snapshot
from spout.inspect.readings import DeadRecords, Reading
from spout.ui.attention import APART_MS, Thresholds
from spout.ui.watch import NO_CAUSES
from tests.support.worlds.planning import WALL_MS, World, world_with_one_open

WARNING = Thresholds(1.5, 0.8, 1, 900_000)
CRITICAL = Thresholds(2.0, 1.0, 3, 900_000, NEAR_CRITICAL)
GONE: Reading[Any] = Reading(unknown="the broker is away")
WORST_FIRST = (MonitorState.CRITICAL, MonitorState.WARNING, MonitorState.UNKNOWN, MonitorState.OK)
"""What could be read and is wrong goes before what could not be read, and that before all is well."""

OLD_CAUSE = SeenCause(FailureGroup("sentences", "split", "ValueError"), WALL_MS - APART_MS, WALL_MS, 2)


@dataclass(frozen=True)
class Finding:
    """What a check finds: other values of a partition, or of the causes of failures."""

    state: MonitorState
    values: Mapping[str, object] = field(default_factory=dict)
    causes: Reading[Sequence[SeenCause]] | None = None


FINDINGS = {
    "nothing": Finding(MonitorState.OK),
    "a young root": Finding(MonitorState.OK, {"oldest_ms": Reading(6_000)}),
    "an old root": Finding(MonitorState.WARNING, {"oldest_ms": Reading(6_001)}),
    "a log that is nearly deleted": Finding(
        MonitorState.WARNING, {"start": Reading(2), "end": Reading(1_000)}
    ),
    "a dead letter": Finding(
        MonitorState.WARNING, {"dead_at": Reading(DeadRecords(np.arange(1), np.full(1, WALL_MS)))}
    ),
    "a new cause": Finding(MonitorState.WARNING, causes=Reading([OLD_CAUSE])),
    "no query": Finding(MonitorState.CRITICAL, {"query_lives": Reading(False)}),
    "no acker": Finding(MonitorState.CRITICAL, {"ackers": Reading(0)}),
    "no replay worker": Finding(MonitorState.CRITICAL, {"replay_workers": Reading(0)}),
    "an unknown lag": Finding(MonitorState.UNKNOWN, {"lag": GONE}),
    "unknown letters": Finding(MonitorState.UNKNOWN, {"dead_letters": GONE}),
    "unknown replays": Finding(MonitorState.UNKNOWN, {"replays_wait": GONE}),
    "unknown causes": Finding(MonitorState.UNKNOWN, causes=GONE),
}
NAMES = list(FINDINGS)
FIRST_ONLY = {"a log that is nearly deleted"}
"""What is needed of a log begins at the open root of partition 0."""

PARTITIONS = ((0, 0), (0, 1))


def fit(first: str, second: str, partitions: tuple[int, int]) -> bool:
    """Return whether two findings can be made at once: neither takes the other's place."""
    if any(name in FIRST_ONLY and place for name, place in zip((first, second), partitions, strict=True)):
        return False
    one, other = FINDINGS[first], FINDINGS[second]
    if first == second:
        return True
    if partitions == (0, 0) and NAMES.index(first) > NAMES.index(second):
        return False  # in one partition their order tells nothing
    is_same_value = partitions == (0, 0) and bool(one.values.keys() & other.values.keys())
    return not is_same_value and not (one.causes and other.causes)


PAIRS = [
    (first, second, partitions)
    for first, second, partitions in product(FINDINGS, FINDINGS, PARTITIONS)
    if fit(first, second, partitions)
]


@pytest.fixture(scope="module")
def world() -> World:
    return world_with_one_open()


@pytest.fixture(scope="module")
def sound(world: World) -> Snapshot:
    """Return the snapshot of an installation in which all is well."""
    with closing(Overview(world.cluster.log(), world.topics)) as overview:
        return overview.snapshot(world.now_ms)


def report_of(
    world: World, sound: Snapshot, findings: Sequence[Finding], partitions: Sequence[int]
) -> MonitorReport:
    """Return the report of some findings, each in a partition."""
    states = list(sound.partitions)
    causes: Reading[Sequence[SeenCause]] = NO_CAUSES
    for finding, partition in zip(findings, partitions, strict=True):
        states[partition] = replace(states[partition], **finding.values)  # type: ignore[arg-type]
        causes = finding.causes or causes
    return monitor_report(replace(sound, partitions=states), world.topics, WARNING, CRITICAL, causes)


def worst(findings: Sequence[Finding]) -> MonitorState:
    return min((finding.state for finding in findings), key=WORST_FIRST.index)


@pytest.mark.parametrize(("first", "second", "partitions"), PAIRS)
def test_the_worst_finding_that_could_be_read_is_the_state(
    world: World, sound: Snapshot, first: str, second: str, partitions: tuple[int, int]
) -> None:
    """In each format, and the problem that made it so comes first."""
    findings = [FINDINGS[first], FINDINGS[second]]
    report = report_of(world, sound, findings, partitions)
    state = worst(findings)
    assert report.state is state
    assert monitor_row(report)["code"] == int(state)
    assert nagios_lines(report)[0].startswith(f"WINDHOVER {state.name} - ")
    assert f"windhover_check_state {int(state)}" in prometheus_lines(report)
    ranks = [WORST_FIRST.index(problem.state) for problem in report.problems]
    assert ranks == sorted(ranks)
    wrong = {finding.state for finding in findings} - {MonitorState.OK}
    assert {problem.state for problem in report.problems} == wrong, "each of them is named"
