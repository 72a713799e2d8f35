"""``windhover check``: its state, its figures and its formats, from the state of a running installation."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from acker.config.limits import STANDS_MS
from acker.errors import Unreachable
from acker.identity import acker_partition, source_of
from acker.kafka.port import TopicPartition
from acker.kafka.standing import StandingReaders
from spout.doctor.monitor import (
    NEAR_CRITICAL,
    MonitorReport,
    MonitorState,
    monitor_report,
    monitor_row,
    nagios_lines,
    prometheus_lines,
)
from spout.inspect.failures import CAUSE_NEW_MS, FailureGroup, SeenCause
from spout.inspect.overview import Overview, Snapshot
from spout.inspect.readings import DeadRecords, Reading
from spout.planning.journal import BEGINNING
from spout.ui.attention import APART_MS, Thresholds
from spout.ui.watch import NO_CAUSES
from tests.support.worlds.planning import World, world_with_one_open

WARNING = Thresholds(1.5, 0.8, 1, 900_000)
CRITICAL = Thresholds(2.0, 1.0, 3, 900_000, NEAR_CRITICAL)
GONE: Reading[Any] = Reading(unknown="the broker | is away")


@pytest.fixture
def world() -> World:
    return world_with_one_open()


def snapshot_of(world: World, **changed: object) -> Snapshot:
    """Read once, and change the state of partition 0."""
    with closing(Overview(world.cluster.log(), world.topics)) as overview:
        snapshot = overview.snapshot(world.now_ms)
    first, *others = snapshot.partitions
    return replace(snapshot, partitions=[replace(first, **changed), *others])  # type: ignore[arg-type]


def report_of(world: World, **changed: object) -> MonitorReport:
    return monitor_report(snapshot_of(world, **changed), world.topics, WARNING, CRITICAL, NO_CAUSES)


def dead(world: World, count: int) -> Reading[DeadRecords]:
    return Reading(DeadRecords(np.arange(count), np.full(count, world.now_ms - 1)))


def test_a_sound_installation_is_ok(world: World) -> None:
    report = report_of(world)
    assert (report.state, report.problems) == (MonitorState.OK, [])
    (line,) = nagios_lines(report)
    assert line.startswith("WINDHOVER OK - 1 input, nothing needs attention | 'sentences_pending'=1;")


@pytest.mark.parametrize(
    ("state", "changed"),
    [
        (MonitorState.OK, {"oldest_ms": Reading(6_000)}),
        (MonitorState.WARNING, {"oldest_ms": Reading(6_001)}),
        (MonitorState.CRITICAL, {"oldest_ms": Reading(8_001)}),
        (MonitorState.OK, {"pending": Reading(70_000)}),
        (MonitorState.WARNING, {"pending": Reading(80_000)}),
        (MonitorState.CRITICAL, {"pending": Reading(100_000)}),
        (MonitorState.CRITICAL, {"query_lives": Reading(False)}),
        (MonitorState.CRITICAL, {"ackers": Reading(0)}),
        (MonitorState.CRITICAL, {"replay_workers": Reading(0)}),
        (MonitorState.CRITICAL, {"replays_wait": Reading("replays are paused: too many die")}),
        (MonitorState.WARNING, {"start": Reading(2), "end": Reading(1_000)}),
        (MonitorState.CRITICAL, {"start": Reading(3), "end": Reading(1_000)}),
    ],
)
def test_each_condition_has_its_state(world: World, state: MonitorState, changed: dict[str, object]) -> None:
    if "pending" in changed:  # the limit of the whole input
        most = world.topics.input("sentences").max_spout_pending
        share = changed["pending"].value / 100_000  # type: ignore[attr-defined]
        changed = {"pending": Reading(int(most * share))}
    assert report_of(world, **changed).state is state


@pytest.mark.parametrize(
    ("count", "state"), [(0, MonitorState.OK), (1, MonitorState.WARNING), (3, MonitorState.CRITICAL)]
)
def test_new_dead_letters_are_counted(world: World, count: int, state: MonitorState) -> None:
    assert report_of(world, dead_at=dead(world, count)).state is state


@pytest.mark.parametrize(
    "name",
    [
        "pending",
        "oldest_ms",
        "lag",
        "dead_letters",
        "replays_wait",
        "query_lives",
        "ackers",
        "replay_workers",
    ],
)
def test_what_is_unknown_is_never_ok(world: World, name: str) -> None:
    report = report_of(world, **{name: GONE})
    assert report.state is MonitorState.UNKNOWN
    first, *_ = nagios_lines(report)
    text, _, _ = first.partition(" | ")
    assert "the broker / is away" in text


def test_what_is_wrong_goes_before_what_is_unknown(world: World) -> None:
    report = report_of(world, pending=GONE, ackers=Reading(0))
    assert report.state is MonitorState.CRITICAL
    assert [each.state for each in report.problems] == [MonitorState.CRITICAL, MonitorState.UNKNOWN]


def test_a_broker_that_is_away_and_a_file_without_inputs_are_unknown(world: World) -> None:
    snapshot = snapshot_of(world)
    for changed in (
        replace(snapshot, broker_error=Unreachable("no answer"), partitions=()),
        replace(snapshot, partitions=()),
    ):
        report = monitor_report(changed, world.topics, WARNING, CRITICAL, NO_CAUSES)
        assert report.state is MonitorState.UNKNOWN


@pytest.mark.parametrize(
    ("age_ms", "state"),
    [
        (APART_MS - 1, MonitorState.OK),
        (APART_MS, MonitorState.WARNING),
        (CAUSE_NEW_MS - 1, MonitorState.WARNING),
        (CAUSE_NEW_MS, MonitorState.OK),
    ],
)
def test_a_new_cause_is_a_warning_from_when_a_page_would_flag_it(
    world: World, age_ms: int, state: MonitorState
) -> None:
    snapshot = snapshot_of(world)
    cause = SeenCause(
        FailureGroup("sentences", "split", "ValueError"), snapshot.at_ms - age_ms, snapshot.at_ms, 2
    )
    report = monitor_report(snapshot, world.topics, WARNING, CRITICAL, Reading([cause]))
    assert report.state is state
    if state is MonitorState.WARNING:
        (problem,) = report.problems
        assert problem.text.startswith("sentences: bolt split fails records by ValueError, 2 in the last ")


def test_causes_that_could_not_be_read_are_unknown_and_never_ok(world: World) -> None:
    report = monitor_report(snapshot_of(world), world.topics, WARNING, CRITICAL, GONE)
    (problem,) = report.problems
    assert (report.state, problem.state) == (MonitorState.UNKNOWN, MonitorState.UNKNOWN)
    assert problem.text == "whether a cause of failures is new is unknown, since the broker | is away"


def test_an_unknown_figure_is_no_number_in_any_format(world: World) -> None:
    report = report_of(world, pending=GONE)
    assert "'sentences_pending'=U;" in nagios_lines(report)[0]
    assert not any(line.startswith("windhover_check_pending{") for line in prometheus_lines(report))
    assert "windhover_check_state 3" in prometheus_lines(report)
    (pending,) = [each for each in monitor_row(report)["figures"] if each["name"] == "pending"]
    assert (pending["value"], pending["unknown"]) == (None, GONE.unknown)


def test_prometheus_gets_each_figure_in_base_units(world: World) -> None:
    lines = prometheus_lines(report_of(world, oldest_ms=Reading(1_500)))
    assert 'windhover_check_oldest_seconds{input="sentences"} 1.5' in lines
    assert 'windhover_check_problems{state="critical"} 0' in lines


def critical(world: World) -> list[str]:
    return [each.text for each in report_of(world).problems if each.state is MonitorState.CRITICAL]


@pytest.mark.parametrize(
    "topic",
    ["sentences", "sentences.g.replay", "sentences.g.dlq", "_ack_init", "_ack_ack", "_ack_due", "_ack_state"],
)
def test_a_partition_without_a_leader_is_critical_and_named(world: World, topic: str) -> None:
    """O417: at once, and as one problem; what it hides is unknown, and all else is known."""
    world.cluster.lose_leader(topic, 1)
    report = report_of(world)
    assert report.state is MonitorState.CRITICAL
    assert critical(world) == [
        f"{topic}/1 has no leader: its replicas are on broker 1: what needs it waits; start what is missing"
    ]
    unknown = [each.text for each in report.problems if each.state is MonitorState.UNKNOWN]
    assert all(f"{topic}/1" in text for text in unknown), unknown


def test_an_acker_partition_that_does_not_read_on_is_critical_though_its_acker_lives(world: World) -> None:
    """O418: nothing is acked nor times out there, and all else looks as ever."""
    silent = acker_partition(source_of(1, 0), 0, 3)
    world.cluster.fall_silent("_ack_ack", silent)
    world.produce(5)
    planner = world.planners[0]
    start = BEGINNING
    for _ in range(3):
        end = planner.plan(start, None, world.now_ms)
        if end != start:
            world.publish(start, end)
        start = end
        world.run(500)
    assert report_of(world).state is MonitorState.OK, "it is only late"
    world.run(STANDS_MS + 1_000)
    assert any(f"_ack_ack/{silent} up to" in text for text in critical(world))
    world.cluster.speak_again("_ack_ack", silent)
    world.run(2_000)
    assert not any("_ack_ack" in text for text in critical(world))


def test_a_replay_worker_that_does_not_read_on_is_critical(world: World) -> None:
    """It is a member of its group, and does nothing."""
    worker, world.replays = world.replays, None
    world.run(STANDS_MS + 10_000)  # the open root times out meanwhile
    number = acker_partition(source_of(1, 0), 0, 3)
    text = f"the replay worker of partition {number} has taken over _ack_verdict/{number} up to"
    assert any(text in problem for problem in critical(world))
    world.replays = worker
    world.run(2_000)
    assert not any(text in problem for problem in critical(world))


def test_who_catches_up_is_not_taken_for_one_that_stands_by_who_looks_again(world: World) -> None:
    """The page knows that a position moves; a command that looks once does not."""
    late = StandingReaders()
    place = TopicPartition("_ack_ack", 0)
    first = [each.position for each in late.find_standing({place: 0}, {place: 90}, {place: 100}, 0)]
    moving = [
        late.find_standing({place: number}, {place: 90}, {place: 100}, number * 1_000)
        for number in range(1, 80)
    ]
    assert (first, [each for each in moving if each]) == ([0], [])
    stood = [
        late.find_standing({place: 79}, {place: 90}, {place: 100}, number * 1_000)
        for number in range(80, 120)
    ]
    assert [bool(each) for each in stood].index(True) == STANDS_MS // 1_000 - 1
