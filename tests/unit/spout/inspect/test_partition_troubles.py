"""What is the matter with partitions, as data: `status`, `machinery` and `check` have it beside the words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from acker.config.limits import STANDS_MS
from acker.identity import acker_partition, source_of
from acker.kafka.port import Outgoing, TopicPartition
from spout.doctor.monitor import MonitorReport, monitor_report, monitor_row, prometheus_lines
from spout.inspect.overview import Overview, Snapshot
from spout.ui.attention import Thresholds
from spout.ui.machinery import machinery_of
from spout.ui.watch import NO_CAUSES
from tests.support.worlds.planning import World, emit_ten, world_with_one_open


@pytest.fixture
def world() -> World:
    world = World()
    emit_ten(world, skip=(2,))
    return world


@pytest.fixture
def overview(world: World) -> Iterator[Overview]:
    with closing(Overview(world.cluster.log(), world.topics)) as overview:
        yield overview


def report_of(world: World, snapshot: Snapshot) -> MonitorReport:
    return monitor_report(snapshot, world.topics, Thresholds(), Thresholds(), NO_CAUSES)


def lose_source(world: World) -> None:
    world.cluster.lose_leader("sentences", 1)


def lose_ack(world: World) -> None:
    world.cluster.lose_leader(world.topics.ack_topics.ack, 2)


def damage_due(world: World) -> None:
    place = TopicPartition(world.topics.ack_topics.due, 0)
    log = world.cluster.partition(place)
    producer = world.log.producer()
    for number in range(3):
        producer.send(Outgoing(*place, b"%d" % number, b"%d" % number))
    producer.flush(1_000)
    log.damage(log.end - 2, log.end)


def cut_source(world: World) -> None:
    world.cluster.partition(TopicPartition("sentences", 0)).cut(7)


CASES: list[tuple[Callable[[World], None], str, str, int]] = [
    (lose_source, "no_answer", "sentences", 1),
    (lose_ack, "no_answer", "_ack_ack", 2),
    (damage_due, "damaged", "_ack_due", 0),
    (cut_source, "cut", "sentences", 0),
]


@pytest.mark.parametrize(("harm", "kind", "topic", "partition"), CASES)
def test_it_is_data_in_each_machine_format(
    world: World, overview: Overview, harm: Callable[[World], None], kind: str, topic: str, partition: int
) -> None:
    """O419: and there is none before."""
    sound = overview.snapshot(world.now_ms)
    assert [row["troubles"] for row in sound.rows()] == [[], []]
    assert (machinery_of(sound).rows()["troubles"], monitor_row(report_of(world, sound))["troubles"]) == (
        [],
        [],
    )
    assert not any("trouble" in line for line in prometheus_lines(report_of(world, sound)))

    harm(world)

    with closing(Overview(world.cluster.log(), world.topics)) as anew:
        snapshot = anew.snapshot(world.now_ms)
    report = report_of(world, snapshot)
    row: dict[str, Any]
    for troubles in (
        *(row["troubles"] for row in snapshot.rows()),
        machinery_of(snapshot).rows()["troubles"],
        monitor_row(report)["troubles"],
    ):
        (row,) = troubles
        assert (row["kind"], row["topic"], row["partition"]) == (kind, topic, partition)
        assert (row["since_ms"], row["inputs"]) == (world.now_ms, ["sentences"])
        assert row["detail"]
        assert (row["start"] is None) == (kind == "no_answer")
    name = "windhover_check_partition_trouble"
    assert f'{name}{{kind="{kind}",topic="{topic}",partition="{partition}"}} 1' in prometheus_lines(report)


def test_a_log_that_was_cut_is_named_with_what_it_lost(world: World) -> None:
    """O420: nobody said it before a query began again."""
    cut_source(world)
    with closing(Overview(world.cluster.log(), world.topics)) as overview:
        snapshot = overview.snapshot(world.now_ms)
    (row,) = machinery_of(snapshot).rows()["troubles"]
    assert (row["start"], row["end"]) == (7, 10)
    (note,) = snapshot.troubles()
    assert note.startswith("sentences/0: its log ends at 7, and records up to 10 were emitted: it was cut")
    assert any(problem.name == "cut: sentences/0" for problem in report_of(world, snapshot).problems)


def test_a_trouble_has_the_time_of_the_first_look_until_it_is_over(world: World, overview: Overview) -> None:
    """O419: for who looks again and again; a clock that is set back makes none begin later than now."""
    begun_ms = world.now_ms
    times: list[int | None] = []
    for wait_ms, is_lost in ((0, True), (5_000, True), (10_000, False), (15_000, True), (12_000, True)):
        (world.cluster.lose_leader if is_lost else world.cluster.elect_leader)("sentences", 1)
        troubles = overview.snapshot(begun_ms + wait_ms).partition_troubles
        times.append(next((trouble.since_ms - begun_ms for trouble in troubles), None))
    assert times == [0, 0, None, 15_000, 12_000]


def test_who_lacks_old_records_has_its_partition_and_offsets() -> None:
    """O419: a replay worker that is a member of its group, and does nothing."""
    world = world_with_one_open()
    world.replays = None
    world.run(STANDS_MS + 10_000)  # the open root times out meanwhile
    with closing(Overview(world.cluster.log(), world.topics)) as overview:
        snapshot = overview.snapshot(world.now_ms)
    (row,) = machinery_of(snapshot).rows()["troubles"]
    number = acker_partition(source_of(1, 0), 0, 3)
    assert (row["kind"], row["topic"], row["partition"]) == ("late_reader", "_ack_verdict", number)
    assert (row["since_ms"], row["inputs"]) == (world.now_ms - STANDS_MS, ["sentences"])
    assert row["start"] < row["end"]
    assert row["detail"] == snapshot.troubles()[0]
