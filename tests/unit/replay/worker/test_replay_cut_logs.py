"""A log that was cut and grew again while a lost root waited: no copy is made of the record of now."""

from __future__ import annotations

from dataclasses import fields

import pytest

from acker.kafka.port import NO_EPOCH, TopicPartition
from acker.wire.codec import Codec, load_schema
from acker.wire.verdict import Verdict
from replay.records.due import Aside, Due, Loss, RefusedRoot, due_codec
from tests.support.worlds.replay_world import TOPIC, World, header


@pytest.fixture
def world() -> World:
    """A cluster with one input and no worker."""
    return World()


def test_a_record_that_took_the_place_of_a_lost_one_is_not_copied(world: World) -> None:
    """O615: its leader's epoch is higher; the letter has no payload, which would be the other record's."""
    root, worker = world.emit(b"before"), world.worker()
    world.lose(root)
    world.settle(worker)
    world.cluster.partition(TopicPartition(TOPIC, 0)).cut(0)
    world.emit(b"after")
    world.settle(worker, until_ms=world.now_ms + 60_000)
    assert world.copies() == []
    (letter,) = world.letters()
    assert (header(letter, "windhover.dead"), letter.value) == ("RECREATED", None)
    assert b"log cut" in (dict(letter.headers)["__dlq.errors.message"] or b"")


def test_a_lost_record_is_copied_after_another_leader_s_election(world: World) -> None:
    """O616: it is the same record, of the leader before."""
    root, worker = world.emit(b"before"), world.worker()
    world.lose(root)
    world.settle(worker)
    world.cluster.elect_leader(TOPIC, 0)
    world.emit(b"another")
    world.settle(worker, until_ms=world.now_ms + 60_000)
    assert [copy.value for copy in world.copies()] == [b"before"]


@pytest.mark.parametrize(
    ("kind", "former"),
    [(Due, "due_3"), (Due, "due_2"), (Due, "due"), (Aside, "aside"), (RefusedRoot, "refused_root")],
)
def test_entries_of_former_versions_have_no_epoch_and_are_not_compared(kind: type[Due], former: str) -> None:
    """O617: each of them is read as it was."""
    schema = load_schema("replay.records", former)
    names = {field["name"] for field in schema["fields"]}
    loss = Loss(1, Verdict.FAILED, "split", "ValueError", "boom", 5, 7, "sentences/0@3")
    values: dict[str, object] = {
        "source": 65_536,
        "position": 3,
        "due_ms": 9,
        "dead": "",
        "group": "g",
        "topic": "sentences",
        "topic_id": "id",
        "origin": "sentences/0@3",
        "attempt": 1,
        "abandoned": 0,
        "first_emitted_ms": 4,
        "history": (loss,),
        "timed_out": 0,
        "held": 0,
        "error": "ValueError",
        "copy_why": "no",
        "letter_why": "",
    }
    own = {field.name for field in fields(kind)}
    entry = kind(**{name: value for name, value in values.items() if name in own})  # type: ignore[arg-type]
    former_codec: Codec[Due] = Codec({kind: {**schema}})
    written = former_codec.encode(entry)
    assert "leader_epoch" not in names
    assert due_codec().decode(written) == entry
    assert entry.leader_epoch == NO_EPOCH


@pytest.mark.parametrize("kind", [Due, Aside, RefusedRoot])
def test_an_epoch_is_in_every_kind_of_entry_and_back(kind: type[Due]) -> None:
    """O617: a root that is put aside keeps it."""
    loss = Loss(1, Verdict.FAILED, "split", "ValueError", "boom", 5, 7, "sentences/0@3")
    more = {"copy_why": "no"} if kind is RefusedRoot else {"error": "E"} if kind is Aside else {}
    entry = kind(65_536, 3, 9, "", "g", "sentences", "id", "o", 1, 0, 4, (loss,), 0, 0, 8, **more)
    read = due_codec().decode(due_codec().encode(entry))
    assert read == entry
