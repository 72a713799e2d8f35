"""Who does what in an installation, from a Kafka in memory: the page of the machinery, and its command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from acker.config.topics import Topics
from acker.kafka.port import GroupMember, Log, Outgoing, TopicPartition
from acker.service.partition import RESTORE_WRITTEN_AFTER_MS
from replay.worker.service import ReplayService
from spout.cli import inspect as cli_inspect
from spout.cli import main as cli
from spout.inspect.overview import Overview, Snapshot
from spout.inspect.readings import OLD_MS, Reading
from spout.ui.machinery import NOBODY, machinery_notes, machinery_of
from tests.support.worlds.planning import (
    World,
    batch,
    emit_ten,
    fail_first_copy_untaken,
    world_with_one_open,
    yaml_of,
)


def read(world: World) -> Snapshot:
    with closing(Overview(world.cluster.log(), world.topics)) as overview:
        return overview.snapshot(world.now_ms)


def machinery(world: World) -> dict[str, Any]:
    return machinery_of(read(world)).rows()


def world_with_lost_roots() -> World:
    """Of ten records of partition 0 two fail; an acker runs, and no replay worker."""
    world = World()
    emit_ten(world, fail=(2, 7))
    return world


def test_without_a_worker_nobody_has_the_partitions_and_what_waits_there() -> None:
    """They are due there, as they are in all figures."""
    found = machinery(world_with_lost_roots())
    [nobody] = found["workers"]
    assert (nobody["worker"], nobody["partitions"]) == (NOBODY, [0, 1, 2])
    assert (nobody["due"], nobody["not_taken_over"]) == (found["due"], found["not_taken_over"]) == (2, 2)
    assert nobody["lag"] > 0


def test_a_lost_copy_that_nobody_has_taken_over_counts_as_much_as_a_record() -> None:
    world = World(yaml_of(retry="{initial: 1s, jitter: 0}", dead_letter="{max_ratio: 1}"))
    world.start_replays()
    fail_first_copy_untaken(world, *emit_ten(world, fail=(2,), then_ms=2_500))
    found = machinery(world)
    assert (found["due"], found["not_taken_over"], found["workers"][-1]["not_taken_over"]) == (1, 1, 1)


def test_each_worker_has_its_partitions_and_what_is_due_in_them() -> None:
    world = world_with_lost_roots()
    world.start_replays()
    with closing(ReplayService(world.cluster.log(), world.topics, jitter=lambda: 0.0)) as second:
        for _ in range(5):
            world.run(100)
            second.step(world.now_ms)
        found = machinery(world)
    workers = found["workers"]
    assert [each["partitions"] for each in workers] == [[0, 1], [2]]
    assert len({each["worker"] for each in workers}) == 2
    assert sum(each["due"] for each in workers) == found["due"] == 2
    assert [each["due"] for each in workers if each["partitions"] == [2]] == [0]
    assert {each["not_taken_over"] for each in workers} == {0}
    assert found["unknown"] == {}


def test_the_lag_of_a_worker_that_hangs_grows() -> None:
    world = world_with_one_open()
    world.run(1_500)
    [before] = machinery(world)["workers"]
    world.replays = None  # it is a member all the same
    world.run(4_000)  # what is open times out meanwhile
    [after] = machinery(world)["workers"]
    assert after["worker"] == before["worker"]
    assert after["lag"] > before["lag"]
    assert (before["not_taken_over"], after["not_taken_over"]) == (0, 1)


def test_while_a_group_shares_its_partitions_out_nobody_knows_whose_they_are() -> None:
    world = world_with_lost_roots()
    world.start_replays()
    world.run(1_000)
    anew = Reading([GroupMember("a", None), GroupMember("b", None)])
    found = machinery_of(replace(read(world), replay_workers=anew, ackers=anew)).rows()
    assert [each["worker"] for each in found["workers"]] == ["a", "b"]
    for each in found["workers"]:
        assert (each["partitions"], each["due"], each["lag"]) == (None, None, None)
        assert "share their partitions out just now" in each["unknown"]["lag"]
    assert {each["acker"] for each in found["acker_partitions"]} == {None}


def test_each_acker_partition_has_its_acker_and_how_long_its_last_restore_took() -> None:
    world = world_with_lost_roots()
    first = machinery(world)["acker_partitions"]
    assert {each["acker"] for each in first} == {"windhover-member-1"}
    world.kill_acker()
    world.run(5_000)
    assert {each["acker"] for each in machinery(world)["acker_partitions"]} == {NOBODY}
    started_ms = world.now_ms
    world.start_acker()
    world.run(RESTORE_WRITTEN_AFTER_MS + 1_000)
    again = machinery(world)["acker_partitions"]
    assert {each["acker"] for each in again} == {"windhover-member-2"}
    # one partition a step of 100 ms, and each is timed in the step behind it
    assert [each["restore_ms"] for each in again] == [100, 200, 300]
    assert all(world.now_ms - each["restored_ago_ms"] > started_ms for each in again)


def test_a_restore_is_in_state_within_seconds_although_nothing_happens() -> None:
    world = world_with_lost_roots()
    [planner] = world.planners
    world.kill(planner)
    world.run(1_000)
    killed_ms = world.now_ms
    world.kill_acker()
    world.start_acker()
    world.run(RESTORE_WRITTEN_AFTER_MS + 500)  # three steps restore
    ago_ms = [each["restored_ago_ms"] for each in machinery(world)["acker_partitions"]]
    assert all(world.now_ms - each > killed_ms for each in ago_ms)
    ends = world.log.ends([TopicPartition(world.topics.ack_topics.state, number) for number in range(3)])
    world.run(2 * RESTORE_WRITTEN_AFTER_MS)
    assert world.log.ends(ends) == ends, "it is written once"


def test_open_roots_of_an_acker_that_is_away_are_at_least_so_many_and_never_0() -> None:
    world = World()
    planner, end = emit_ten(world, skip=(2,))
    world.kill_acker()
    world.produce(2_000, partition=1)
    batch(planner, end, world)  # of which no State has anything
    world.run(OLD_MS)
    found = machinery_of(read(world))
    assert [each["open"] for each in found.rows()["acker_partitions"]] == [None, 1, 0], (
        "nothing came to the last"
    )
    assert [each["open"] for each in found.shown_partitions()] == [None, "≥ 1", 0]
    assert any("lacks what came since" in note for note in machinery_notes(found.rows()))


def test_a_state_without_its_restore_says_so_and_accuses_no_version() -> None:
    """D909: an acker of an earlier version wrote it, or one of this version in the step of its restore."""
    world = world_with_lost_roots()
    world.kill_acker()
    topic = world.topics.ack_topics.state
    places = [TopicPartition(topic, number) for number in range(3)]
    reader = world.log.reader(committed=True)
    reader.assign(dict.fromkeys(places, 0))
    producer = world.log.producer()
    for record in reader.poll(0, 10_000):
        producer.send(Outgoing(topic, record.partition, record.value, record.key))
    producer.flush(1_000)
    found = machinery(world)
    assert {each["restore_ms"] for each in found["acker_partitions"]} == {None}
    assert {each["restored_ago_ms"] for each in found["acker_partitions"]} == {None}
    notes = machinery_notes(found)
    assert any(
        "partition 0 does not say when it was restored: neither does one that" in note for note in notes
    )
    assert not any("an acker of an earlier version wrote" in note for note in notes)
    assert {each["open"] is None for each in found["acker_partitions"]} == {False}, "it is State all the same"


def test_nothing_is_a_number_before_anything_was_read() -> None:
    found = machinery_of(Snapshot(0, ())).rows()
    for name in ("ackers", "replay_workers", "due", "not_taken_over", "workers"):
        assert found[name] is None
        assert found["unknown"][name] == "nothing was read yet"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Let the command see a cluster in memory, at its time."""
    world = world_with_lost_roots()
    world.start_replays()
    world.run(1_000)

    @contextmanager
    def opened(config: Path, command: str) -> Iterator[tuple[Topics, Log]]:
        yield world.topics, world.cluster.log()

    monkeypatch.setattr(cli_inspect, "opened", opened)
    monkeypatch.setattr(cli_inspect, "wall_ms", lambda: world.now_ms)
    return world


def test_the_command_prints_what_the_page_has(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["machinery", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == machinery(world)
    assert cli.run(["machinery"]) == 0
    table = capsys.readouterr().out
    for text in ("member-1", "member-2", "0-2", "restore took", "s1", "yes"):
        assert text in table


def test_the_command_says_why_something_is_unknown(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.cluster.delete_topic(world.topics.ack_topics.due)
    assert cli.run(["machinery"]) == 4
    printed = capsys.readouterr()
    assert "unknown" in printed.out
    assert "note: unknown, since topic _ack_due is missing; run `windhover topics create`" in printed.err
