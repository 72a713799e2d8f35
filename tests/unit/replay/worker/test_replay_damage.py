"""A damaged batch holds up the roots that lie in it, alone, visible and named; the others go on."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from acker.config.topics import Topics
from acker.errors import NOT_UNPACKED, TOO_LARGE, Damaged
from acker.kafka.port import Outgoing, Record, TopicPartition
from acker.service.passed_over import passed_over_mark
from acker.wire.causes import DAMAGED
from tests.support.memory.partition import DAMAGE_TEXT
from tests.support.worlds.replay_world import COPIES, TOPIC, Emission, World, header, topics

RETRY_MS = 60_000


@pytest.fixture
def world() -> World:
    return World()


def skipping() -> Topics:
    """Return the world's topics with `on_data_loss: skip`."""
    return topics(more="}\n    on_data_loss: skip\n    start: earliest\n    ordering: none #")


def emit(world: World, count: int, topic: str = TOPIC) -> list[Emission]:
    return [world.emit(b"%d" % number, topic=topic) for number in range(count)]


def damage(
    world: World, start: int, end: int, topic: str = TOPIC, partition: int = 0, why: str = DAMAGE_TEXT
) -> None:
    world.cluster.partition(TopicPartition(topic, partition)).damage(start, end, why)


def mend(world: World, topic: str = TOPIC) -> None:
    world.cluster.partition(TopicPartition(topic, 0)).mend()


def values(records: Sequence[Record]) -> list[bytes | None]:
    return [record.value for record in records]


def test_roots_in_a_damaged_batch_wait_and_all_others_are_copied(world: World) -> None:
    """O331: named with place and cause, once a minute; when the batch can be read, they are copied."""
    worker = world.worker()
    roots = emit(world, 6)
    damage(world, 2, 4)
    world.lose(*roots)
    world.settle(worker, until_ms=world.now_ms + 5_000)
    assert values(world.copies()) == [b"0", b"1", b"4", b"5"]
    assert world.letters() == []
    status = worker.status()
    assert (status.waiting, status.held_up) == (2, 2)
    [event] = [each for each in world.events if each.name == "held_up"]
    assert (event.fields["roots"], event.fields["damaged"]) == (2, "sentences/0@2 to 3")
    assert "checksum" in str(event.fields["why"])
    assert "on_data_loss: skip" in str(event.fields["next_step"])
    mend(world)
    world.settle(worker, until_ms=world.now_ms + RETRY_MS)
    assert values(world.copies()) == [b"0", b"1", b"4", b"5", b"2", b"3"]
    assert (worker.status().waiting, worker.status().held_up) == (0, 0)


def test_roots_that_are_lost_while_others_are_held_up_do_not_wait_for_them(world: World) -> None:
    """O332: nor do they make the worker read the damaged batch again each time."""
    worker = world.worker()
    roots = emit(world, 4)
    damage(world, 0, 2)
    world.lose(*roots[:2])
    world.settle(worker, until_ms=world.now_ms + 3_000)
    before = worker.status().fetched_records
    world.lose(roots[2])
    world.settle(worker, until_ms=world.now_ms + 3_000)
    world.lose(roots[3])
    world.settle(worker, until_ms=world.now_ms + 3_000)
    assert values(world.copies()) == [b"2", b"3"]
    assert worker.status().fetched_records == before + 2
    assert worker.status().held_up == 2


def test_roots_of_one_batch_that_are_due_one_after_the_other_are_all_held_up(world: World) -> None:
    """O337: the first one shows the batch from its own offset on, and another may lie before that."""
    worker = world.worker()
    roots = emit(world, 6)
    damage(world, 1, 5)
    for root in (roots[3], roots[1], roots[4], roots[2]):
        world.lose(root)
        world.settle(worker, until_ms=world.now_ms + 3_000)
    assert worker.status().held_up == 4
    assert worker.step(world.now_ms) is False, "nothing is due before they are tried again"
    mend(world)
    world.settle(worker, until_ms=world.now_ms + RETRY_MS)
    assert sorted(value or b"" for value in values(world.copies())) == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize(
    ("why", "reason", "missing"),
    [
        (DAMAGE_TEXT, "DAMAGED", "damaged on its broker's disk"),
        (f"{TOO_LARGE}a record of 200,000,000 bytes", "OVERSIZED", "larger than any reader can handle"),
        (f"{NOT_UNPACKED}, or to more", "NOT_UNPACKED", "does not unpack, or to more than a reader takes"),
    ],
    ids=["damaged", "oversized", "not_unpacked"],
)
def test_with_on_data_loss_skip_they_are_dead_letters_without_payload(
    world: World, why: str, reason: str, missing: str
) -> None:
    """O333, O1918: each says which record it was, and what is the matter with it."""
    worker = world.worker(of=skipping())
    roots = emit(world, 3)
    damage(world, 1, 2, why=why)
    world.lose(*roots)
    world.settle(worker, until_ms=world.now_ms + 5_000)
    assert values(world.copies()) == [b"0", b"2"]
    [letter] = world.letters()
    assert (header(letter, "windhover.dead"), letter.value) == (reason, None)
    assert header(letter, "windhover.origin") == "sentences/0@1"
    texts = [header(letter, name) or "" for name in ("windhover.missing", "__dlq.errors.message")]
    assert all(missing in text for text in texts)
    assert all(("damaged" in text) is (reason == "DAMAGED") for text in texts)


def test_roots_that_wait_for_a_batch_that_does_not_unpack_wait_for_no_replica(world: World) -> None:
    """O1918: it is the same on each of them, so the cure is another one."""
    worker = world.worker()
    roots = emit(world, 2)
    damage(world, 1, 2, why=f"{NOT_UNPACKED}, or to more")
    world.lose(*roots)
    world.settle(worker, until_ms=world.now_ms + 5_000)
    [event] = [each for each in world.events if each.name == "held_up"]
    assert NOT_UNPACKED in str(event.fields["why"])
    assert "a replica" not in str(event.fields["next_step"])
    assert "on_data_loss: skip" in str(event.fields["next_step"])


def test_a_worker_that_learns_of_skip_lets_what_is_held_up_die(world: World) -> None:
    """O334: the way out where no replica is whole; a restart of the worker does the same."""
    worker = world.worker()
    roots = emit(world, 2)
    damage(world, 0, 2)
    world.lose(*roots)
    world.settle(worker, until_ms=world.now_ms + 5_000)
    assert (world.copies(), world.letters()) == ([], [])
    worker.take_topics(skipping())
    world.settle(worker, until_ms=world.now_ms + 5_000)
    dead = [header(letter, "windhover.origin") for letter in world.letters()]
    assert dead == ["sentences/0@0", "sentences/0@1"]


def test_a_copy_in_a_damaged_batch_holds_up_its_own_root_alone(world: World) -> None:
    """O335: what was before it stands in its headers, so nobody knows its attempt until it can be read."""
    worker = world.worker()
    world.lose(*emit(world, 3))
    world.settle(worker, until_ms=world.now_ms + 5_000)
    copies = world.copies()
    damage(world, copies[1].offset, copies[1].offset + 1, COPIES)
    world.lose(*(world.emission_of(copy) for copy in copies))
    world.settle(worker, until_ms=world.now_ms + 10_000)
    assert (worker.status().replayed, worker.status().held_up) == (5, 1)
    mend(world, COPIES)
    world.settle(worker, until_ms=world.now_ms + RETRY_MS + 10_000)
    again = [(header(copy, "windhover.origin"), header(copy, "windhover.attempt")) for copy in world.copies()]
    assert again[3:] == [("sentences/0@0", "3"), ("sentences/0@2", "3"), ("sentences/0@1", "3")]


def test_a_position_of_a_damaged_batch_that_never_had_a_record_becomes_nothing(world: World) -> None:
    """O336: a read task fails all offsets that it could not read, and a marker may be among them."""
    worker = world.worker()
    [root] = emit(world, 1)
    undone = world.cluster.log().transactions("undone")
    undone.init(0)
    undone.begin()
    undone.send(Outgoing(TOPIC, 0, b"undone"))
    undone.abort(0)
    record, marker = (root._replace(offset=offset) for offset in (1, 2))
    damage(world, 0, 3)
    world.lose(root, record, marker, operator="", error=DAMAGED)
    world.settle(worker, until_ms=world.now_ms + 5_000)
    assert worker.status().held_up == 3
    mend(world)
    world.settle(worker, until_ms=world.now_ms + RETRY_MS)
    assert (values(world.copies()), world.letters(), worker.status().waiting) == ([b"0"], [], 0)


@pytest.mark.parametrize("topic", ["_ack_verdict", "_ack_due"])
def test_a_damaged_batch_of_an_ack_topic_stops_its_partition_alone(world: World, topic: str) -> None:
    """O341: with the place and the way out; the worker goes on with its other partitions."""
    worker = world.worker()
    first, second = emit(world, 2)
    world.lose(first, verdict_partition=0)
    world.settle(worker)
    world.kill(worker)
    damage(world, 0, 1, topic, 0)
    worker = world.worker()
    if topic == "_ack_verdict":
        damage(world, 2, 3, topic, 0)
        world.lose(first, verdict_partition=0)
    world.lose(second, verdict_partition=1)
    world.settle(worker, until_ms=world.now_ms + 5_000)
    assert b"1" in values(world.copies())
    [event] = [each for each in world.events if each.name == "damaged"][:1]
    assert event.fields["partition"] == 0
    assert f"{topic}/0@" in str(event.fields["error"])
    assert "topics repair" in str(event.fields["error"])


def test_a_worker_of_which_every_partition_is_damaged_ends_with_the_error(world: World) -> None:
    """O342: there is nothing that it could do."""
    worker = world.worker()
    world.lose(emit(world, 1)[0], verdict_partition=0)
    world.lose(emit(world, 1)[0], verdict_partition=1)
    world.settle(worker)
    world.kill(worker)
    for partition in range(2):
        damage(world, 0, 1, "_ack_due", partition)
    with pytest.raises(Damaged, match="topics repair"):
        world.settle(world.worker())


def test_a_marked_batch_of_an_ack_topic_is_passed_over(world: World) -> None:
    """O343: what lies behind it counts; what it held is lost, as the operator was told."""
    worker = world.worker()
    lost, kept = emit(world, 2)
    world.lose(lost)
    world.settle(worker)
    world.lose(kept)
    world.settle(worker)
    world.kill(worker)
    damage(world, 0, 1, "_ack_due", 0)
    producer = world.cluster.log().producer()
    producer.send(passed_over_mark(TopicPartition("_ack_due", 0), 0, "lost", "me", until=1))
    producer.flush(0)
    world.settle(world.worker(), until_ms=world.now_ms + 5_000)
    assert values(world.copies()) == [b"1"]
