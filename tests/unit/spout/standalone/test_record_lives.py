"""A record that was a dead letter, or comes from another pipeline, keeps its headers and its time."""

from __future__ import annotations

import pytest

from acker.kafka.port import Headers, Outgoing, Record, TopicPartition
from replay.handling.letter_handling import LetterHandling, Order
from replay.records.letters import Filter, Letter, LetterAction, own_headers, parse_letter
from spout.standalone.client import Client
from spout.standalone.items import Item
from tests.support.odd_times import ODD_TIMES_MS
from tests.support.worlds.kestrel_world import KestrelWorld

TIMEOUT_MS = 30_000
TRIAGE = """
acker: {partitions: 2}
inputs:
  orders:
    id: 1
    group: g
    partitions: 1
    retry: {attempts: 3, initial: 1s}
    dead_letter: {max_ratio: 1.0}
  triage:
    id: 2
    group: g
    topic: orders.g.dlq
    partitions: 1
    retry: {attempts: 3, initial: 1s}
    dead_letter: {max_ratio: 1.0}
"""

OWN: Headers = (
    ("trace", b"1"),
    ("windhover.note", b"of the user"),
    ("windhover.attempt", b"7"),
    ("windhover.held", b"5"),
    ("windhover.origin", b"elsewhere/9@9"),
    ("windhover.redrive", b"of another installation"),
    ("__dlq.errors.group", b"another"),
    ("__dlq.errors.message", None),
)
"""What a record may come with: headers of an earlier life, and a user's own that look like ours."""


def next_item(world: KestrelWorld, client: Client, name: str) -> Item:
    """Return the next record of an input, which will come."""
    for _ in range(100):
        items = client.open(1, name)
        if items:
            return items[0]
        world.run(100)
    raise AssertionError(f"no record of {name} came")


def failed_to_death(world: KestrelWorld, client: Client, name: str) -> list[tuple[int, Headers]]:
    """Fail a record until it is dead; return its attempts, each with the headers that the client saw."""
    seen: list[tuple[int, Headers]] = []
    for _ in range(3):
        item = next_item(world, client, name)
        seen.append((item.message_id.attempt, tuple(item["headers"])))
        client.fail(item, ValueError("no order"))
    world.run(3_000)
    return seen


def redrive(world: KestrelWorld, name: str) -> None:
    """Let all dead letters of an input be emitted again."""
    order = Order(LetterAction.REPLAYED, Filter(), "kim", "mended", "r1")
    handling = LetterHandling(
        world.log,
        world.topics.input(name),
        order,
        transactional_id_prefix="dlq",
        limits=world.topics.replay.limits,
    )
    handling.open()
    while not handling.is_done:
        handling.step(100, world.now_ms)
    handling.close()


def letters_in(world: KestrelWorld, topic: str) -> list[tuple[Letter, Record]]:
    """Return the dead letters of a topic."""
    parsed = [(parse_letter(record), record) for record in world.records(topic)]
    return [(letter, record) for letter, record in parsed if isinstance(letter, Letter)]


@pytest.fixture
def world() -> KestrelWorld:
    """Return a world with a record whose headers look like ours, and a replay worker."""
    made = KestrelWorld(TRIAGE)
    producer = made.log.producer()
    producer.send(Outgoing("orders", 0, b"order 1", b"k", OWN))
    producer.flush(TIMEOUT_MS)
    made.start_replays()
    return made


def test_a_record_shows_what_it_came_with_at_each_attempt_in_its_letter_and_when_it_lives_again(
    world: KestrelWorld,
) -> None:
    """O1301, O1303: neither the record's own headers are lost, nor are they believed."""
    client = world.spout("orders").client("bolt")
    assert failed_to_death(world, client, "orders") == [(1, OWN), (2, OWN), (3, OWN)]
    ((letter, record),) = letters_in(world, "orders.g.dlq")
    assert own_headers(record.headers) == OWN
    assert (letter.group, letter.lineage.attempt, letter.lineage.held) == ("g", 3, 0)
    assert letter.lineage.origin == "orders/0@0"
    redrive(world, "orders")
    assert failed_to_death(world, client, "orders") == [(1, OWN), (2, OWN), (3, OWN)]
    assert own_headers(letters_in(world, "orders.g.dlq")[1][1].headers) == OWN


def test_an_input_of_dead_letters_sees_the_letter_whole_at_each_attempt(world: KestrelWorld) -> None:
    """O1302: a triage bolt branches at attempt 3 as it does at attempt 1."""
    spout_ = world.spout("orders", "triage")
    client = spout_.client("bolt")
    failed_to_death(world, client, "orders")
    ((_, former),) = letters_in(world, "orders.g.dlq")
    letter = former.headers
    assert dict(letter)["windhover.dead"] == b"ATTEMPTS"
    assert failed_to_death(world, client, "triage") == [(1, letter), (2, letter), (3, letter)]
    ((dead, record),) = letters_in(world, "orders.g.dlq.g.dlq")
    assert own_headers(record.headers) == letter
    assert (dead.lineage.origin, dead.lineage.attempt, len(dead.history)) == ("orders.g.dlq/0@0", 3, 3)
    redrive(world, "triage")
    assert failed_to_death(world, client, "triage") == [(1, letter), (2, letter), (3, letter)]


def test_the_mark_of_a_handled_letter_is_a_record_like_any_other_to_an_input_of_dead_letters(
    world: KestrelWorld,
) -> None:
    """O1304: a letter of a mark is no mark: before, `dlq list` did not show it."""
    client = world.spout("orders", "triage").client("bolt")
    failed_to_death(world, client, "orders")
    client.confirm(next_item(world, client, "triage"))
    redrive(world, "orders")
    mark = world.records("orders.g.dlq")[-1]
    assert dict(mark.headers)["windhover.handled"] == b"REPLAYED"
    assert failed_to_death(world, client, "triage") == [(attempt, mark.headers) for attempt in (1, 2, 3)]
    ((letter, record),) = letters_in(world, "orders.g.dlq.g.dlq")
    assert letter.lineage.attempt == 3
    assert own_headers(record.headers) == mark.headers


def time_seen(item: Item) -> object:
    """Return the time of a record as a client sees it, or the text of the error with which it is refused."""
    try:
        return item["timestamp"], item["timestampType"]
    except ValueError as error:
        return str(error).partition("is ")[2]


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("time_ms", ODD_TIMES_MS)
def test_a_record_has_its_time_at_each_attempt_in_its_letter_and_when_it_lives_again(
    time_ms: int, kind: str
) -> None:
    """O1001, O1004: before, 0 and -1 became the present time in each copy, and microseconds in a redrive."""
    world = KestrelWorld(TRIAGE)
    world.cluster.delete_topic("orders")
    world.cluster.create_topic("orders", 1, settings={"message.timestamp.type": kind})
    place = TopicPartition("orders", 0)
    world.cluster.partition(place).append(Outgoing(*place, b"order 1", b"k", (), time_ms), time_ms)
    world.start_replays()
    client = world.spout("orders").client("bolt")
    first = next_item(world, client, "orders")
    wanted = time_seen(first)
    client.fail(first)
    for _ in range(2):
        item = next_item(world, client, "orders")
        assert time_seen(item) == wanted
        client.fail(item)
    world.run(3_000)
    ((letter, _),) = letters_in(world, "orders.g.dlq")
    assert letter.time == (time_ms, kind == "LogAppendTime")
    redrive(world, "orders")
    assert time_seen(next_item(world, client, "orders")) == wanted
