"""Garbage under the key of a root in `_ack_due`: compaction may remove what a worker wrote beneath it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, replace

import pytest

from acker.errors import Aborted, DataLoss
from acker.identity import Position, Root, Source, acker_partition, position_at, source_of
from acker.kafka.port import TopicInfo
from replay.records.due import Aside, Due, due_codec, root_key
from tests.support.memory.clients import NoFaults
from tests.support.worlds.replay_world import (
    INPUT_ID,
    Client,
    Emission,
    FailOnce,
    World,
    header,
    history,
    limits,
)

GARBAGE = b"\xc3\x02nonsense"
HOUR_MS = 3_600_000


@pytest.fixture
def world() -> World:
    return World()


def key_of(root: Emission) -> bytes:
    return root_key(Root(Source(root.source), position_at(0, root.offset)))


def home_of(root: Emission) -> int:
    return acker_partition(root.source, position_at(0, root.offset), 2)


def spoil(world: World, root: Emission, value: bytes = GARBAGE) -> None:
    """Write over what waits."""
    world.send_due(key_of(root), value, home_of(root))


def restarted(world: World, *, later_ms: int = HOUR_MS) -> None:
    """Start another worker and let it do what is due until then."""
    world.settle(world.worker(), until_ms=world.now_ms + later_ms)


def begun(world: World) -> Emission:
    """Let a root wait for its second emission, and its worker die."""
    worker = world.worker()
    root = world.emit(b"x", key=b"k")
    world.lose(root, verdict_partition=home_of(root))
    world.settle(worker)
    world.kill(worker)
    return root


def test_garbage_over_a_waiting_root_costs_nothing_once_a_worker_has_begun_anew(world: World) -> None:
    """It writes again what stands beneath the garbage before compaction removes it."""
    root = begun(world)
    spoil(world, root)
    second = world.worker()
    world.settle(second)
    world.cluster.compact("_ack_due")
    world.settle(second, until_ms=world.now_ms + HOUR_MS)
    (copy,) = world.copies()
    assert (copy.key, copy.value, header(copy, "windhover.attempt")) == (b"k", b"x", "2")
    assert [loss["message"] for loss in history(copy)] == ["bad line"]
    assert [event.fields["root"] for event in world.events if event.name == "mended"] == ["sentences/0@0"]
    world.kill(second)
    restarted(world)
    assert (len(world.copies()), world.letters()) == (1, [])


def test_garbage_over_a_root_that_has_ended_wakes_nobody(world: World) -> None:
    """The tombstone is written again, so that it outlives the garbage."""
    root = begun(world)
    restarted(world)
    spoil(world, root)
    restarted(world)
    world.cluster.compact("_ack_due")
    restarted(world)
    assert (len(world.copies()), world.letters()) == (1, [])


def test_a_root_of_which_garbage_is_all_that_is_left_is_one_dead_letter(world: World) -> None:
    """Nobody knows its attempts, nor whether its topic was created again; it is not lost silently."""
    root = begun(world)
    spoil(world, root)
    world.cluster.compact("_ack_due")
    restarted(world)
    restarted(world)
    (letter,) = world.letters()
    assert (header(letter, "windhover.dead"), letter.value, letter.key) == ("UNREADABLE", None, None)
    assert header(letter, "windhover.origin") == "sentences/0@0"
    assert header(letter, "windhover.first-emitted") is None
    assert "_ack_due" in (header(letter, "__dlq.errors.message") or "")
    assert world.copies() == []


def test_a_worker_that_runs_while_its_entry_vanishes_stops_once_and_the_next_one_buries_it(
    world: World,
) -> None:
    worker = world.worker(limits=limits(waiting_bytes_max=0))
    root = world.emit(b"x")
    world.lose(root, verdict_partition=home_of(root))
    world.settle(worker)
    spoil(world, root)
    world.cluster.compact("_ack_due")
    with pytest.raises(DataLoss, match="Start the replay worker again"):
        world.settle(worker, until_ms=world.now_ms + HOUR_MS)
    world.kill(worker)
    restarted(world)
    assert [header(letter, "windhover.dead") for letter in world.letters()] == ["UNREADABLE"]


@pytest.mark.parametrize(
    "root",
    [
        Root(source_of(9, 0), Position(3)),
        Root(Source(0), Position(3)),
        Root(source_of(INPUT_ID, 0), Position(-1)),
    ],
)
def test_garbage_under_a_key_that_is_of_no_root_here_is_passed_over(world: World, root: Root) -> None:
    world.send_due(root_key(root), GARBAGE)
    restarted(world)
    assert (world.copies(), world.letters()) == ([], [])


def test_garbage_in_another_partition_than_the_root_s_own_is_passed_over(world: World) -> None:
    """The root waits where it belongs, and is replayed from there."""
    root = begun(world)
    world.send_due(key_of(root), GARBAGE, 1 - home_of(root))
    restarted(world)
    assert (len(world.copies()), world.letters()) == (1, [])


def test_a_mend_that_is_aborted_is_made_by_the_next_owner(world: World) -> None:
    """Nothing of it was written; the partition is opened again, and the root waits all the same."""
    root = begun(world)
    spoil(world, root)
    worker = world.worker(FailOnce("commit", Aborted("by the broker")))
    world.settle(worker, until_ms=world.now_ms + HOUR_MS)
    assert worker.status().aborted == 1
    assert (len(world.copies()), world.letters()) == (1, [])


def test_what_cannot_be_decoded_when_it_is_due_is_buried(world: World) -> None:
    """Its beginning tells a due time, which is all that a restart reads of it."""
    root = begun(world)
    (whole,) = [one.value for one in world.records("_ack_due", home_of(root)) if one.key == key_of(root)]
    assert whole is not None
    spoil(world, root, whole[:40])
    restarted(world)
    restarted(world)
    assert [header(letter, "windhover.dead") for letter in world.letters()] == ["UNREADABLE"]


def test_what_was_put_aside_without_its_loss_is_buried(world: World) -> None:
    """Nobody knows why it was lost, so nothing can be decided."""
    root = begun(world)
    (entry,) = [one.value for one in world.records("_ack_due", home_of(root)) if one.key == key_of(root)]
    due = due_codec().decode(entry)
    assert isinstance(due, Due)
    aside = Aside(**{each.name: getattr(due, each.name) for each in fields(due)})
    spoil(world, root, due_codec().encode(replace(aside, history=())))
    restarted(world)
    restarted(world)
    assert [header(letter, "windhover.dead") for letter in world.letters()] == ["UNREADABLE"]
    assert world.copies() == []


class AsksNoSettings(Client):
    """A replay worker's log: it may not ask for the settings of `_ack_due`."""

    def topics(self, names: Collection[str], *, settings: bool = False) -> Mapping[str, TopicInfo]:
        if settings and "_ack_due" in names:
            raise AssertionError("the settings of _ack_due were asked for")
        return super().topics(names, settings=settings)


def test_a_worker_needs_no_right_to_the_settings_of_ack_due(world: World) -> None:
    """An entry that is missing was asked about as a record of a topic, which needs DescribeConfigs."""
    worker = world.worker(
        limits=limits(waiting_bytes_max=0), client=AsksNoSettings(world.cluster, NoFaults())
    )
    root = world.emit(b"x")
    world.lose(root, verdict_partition=home_of(root))
    world.settle(worker)
    spoil(world, root)
    world.cluster.compact("_ack_due")
    with pytest.raises(DataLoss):
        world.settle(worker, until_ms=world.now_ms + HOUR_MS)
