"""What unpacks to much more than it weighs, in the own topics: no reader takes more than a bound."""

from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from acker.config import topics as topics_yaml
from acker.errors import CodecError, Disagreement
from acker.identity import acker_partition
from acker.kafka.port import Outgoing, TopicPartition
from acker.service.state import (
    BIN_PART,
    CARRIED_BYTES_MAX,
    CARRIED_ITEMS_MAX,
    STATE_BYTES_MAX,
    STATE_ITEMS_MAX,
    Carried,
    CarriedRange,
    State,
    StatePart,
    part_key,
    parts_of,
    state_codec,
    unpack_carried,
    unpack_state,
)
from acker.service.view import ViewReader
from acker.wire.codec import HEADER_BYTES, READ_BYTES_MAX, read_acks
from acker.wire.events import Acks, Event, FailCause, Fails, Init, Tick
from replay.handling.repair import find_unreadable, pass_over
from tests.support.worlds.acker_world import CODEC, GROUP, SOURCE, TOPICS, World

MIB = 1 << 20
EMPTY = State(0, 1, 0, 0, 0, 0, 0, (), (), (), (), (), (), b"")
NUMBERS_BEFORE_SOURCES = 7


def deflated(*parts: bytes, zeros: int = 0) -> bytes:
    """Return parts and then zeros, deflated, without having all of it in memory."""
    packing = zlib.compressobj(9)
    packed = [packing.compress(part) for part in parts]
    megabytes, bytes_left = divmod(zeros, MIB)
    packed += [packing.compress(bytes(MIB)) for _ in range(megabytes)]
    return b"".join([*packed, packing.compress(bytes(bytes_left)), packing.flush()])


def avro_long(number: int) -> bytes:
    """Return a number of zero or more as Avro writes it."""
    bits, encoded = number << 1, bytearray()
    while bits > 0x7F:
        encoded.append(bits & 0x7F | 0x80)
        bits >>= 7
    return bytes([*encoded, bits])


def head_of_state() -> bytes:
    """Return an empty State up to its sources."""
    return state_codec().encode(EMPTY)[: HEADER_BYTES + NUMBERS_BEFORE_SOURCES]


def many_sources(count: int) -> bytes:
    """Return a State of sources without names, which take seven bytes each."""
    return deflated(head_of_state(), avro_long(count), zeros=7 * count + 1 + 6)


def many_ranges(count: int) -> bytes:
    """Return a State of ranges that are all zero."""
    return deflated(state_codec().encode(EMPTY)[:-1], avro_long(32 * count), zeros=32 * count)


STATES = {
    "zeros": lambda: deflated(zeros=2 * STATE_BYTES_MAX),
    "zeros_behind_a_head": lambda: deflated(state_codec().header(State), zeros=2 * STATE_BYTES_MAX),
    "many_sources": lambda: many_sources(STATE_ITEMS_MAX + 1),
    "many_ranges": lambda: many_ranges(STATE_ITEMS_MAX + 1),
}


@contextmanager
def taking_at_most(bytes_max: int) -> Iterator[None]:
    """Fail where more memory than this is taken at once within."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < bytes_max
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", STATES)
def test_a_state_that_unpacks_to_too_much_has_a_place_and_a_way_out(kind: str) -> None:
    """O1901: acker and views stop at it by name, and go on once it is passed over; its size is told."""
    world = World()
    writer = world.session()
    writer.take()
    writer.init((0, 10))
    writer.acks(runs=[(0, 5)])
    world.settle()
    part = StatePart(0, 0, 1, STATES[kind]())
    producer = world.writer_log.producer()
    producer.send(Outgoing(TOPICS.state, 0, state_codec().encode(part), part_key(0, 0)))
    producer.flush(1)
    offset = world.read(TOPICS.state)[-1].offset
    named = rf"{TOPICS.state}/0@{offset} cannot be read as State: .* more than"
    world.crash()
    with taking_at_most(4 * STATE_BYTES_MAX):
        with pytest.raises(Disagreement, match=named):
            world.settle()
        with pytest.raises(Disagreement, match=named):
            ViewReader(world.writer_log, TOPICS, 1, world.limits).view(0)
    topics = topics_yaml.parse("acker: {partitions: 1}", file="topics.yaml", environ={})
    found = list(find_unreadable(world.writer_log, topics))
    at = [(unreadable.partition.topic, unreadable.offset) for unreadable in found]
    assert at == [(TOPICS.state, offset)]
    pass_over(world.writer_log, found, "a test wrote it", "me")
    world.crash()
    world.settle()
    writer.acks(runs=[(5, 10)], seq=1)
    world.settle()
    assert world.status().open_roots == 0


def test_a_bin_of_too_many_ranges_is_refused_before_they_are_made() -> None:
    """O1901: a range of six bytes takes a hundred times as much in memory."""
    count = 8 * CARRIED_ITEMS_MAX
    body = deflated(state_codec().header(Carried), avro_long(count), zeros=6 * count + 1)
    is_refused = pytest.raises(CodecError, match=f"more than {CARRIED_ITEMS_MAX:,} items")
    with taking_at_most(3 * CARRIED_BYTES_MAX), is_refused:
        unpack_carried(state_codec(), StatePart(0, BIN_PART, 1, body))


def test_what_an_acker_may_write_is_read_again() -> None:
    """O1902: a State as large as any, and a bin of as many ranges as any."""
    ranges = bytes(range(256)) * (STATE_ITEMS_MAX * 32 // 256)
    largest = State(0, 1, 0, 0, 0, 0, 0, (), (), (), (), (), (), ranges)
    parts = {part.part: part for part in parts_of(state_codec(), largest)}
    assert unpack_state(state_codec(), parts) == largest
    full = Carried(
        tuple(CarriedRange(1, at, bytes(4), bytes(24), b"", b"") for at in range(CARRIED_ITEMS_MAX))
    )
    part = StatePart(0, BIN_PART, 1, deflated(state_codec().encode(full)))
    assert unpack_carried(state_codec(), part) == full


def test_a_state_that_nobody_could_read_is_not_written() -> None:
    """O1902: the State before it stays the last one, so an acker can start again."""
    too_large = State(0, 1, 0, 0, 0, 0, 0, (), (), (), (), (), (), bytes(32 * (STATE_ITEMS_MAX + 1)))
    with pytest.raises(CodecError, match=r"would have 1,000,001 live ranges"):
        parts_of(state_codec(), too_large)


HUGE_TEXT = "x" * READ_BYTES_MAX
HUGE: dict[str, Callable[[], tuple[str, Event]]] = {
    "acks": lambda: (TOPICS.ack, Acks(HUGE_TEXT, 1, GROUP, "s", 1, SOURCE, 0, (), b"", b"", (), b"", 0)),
    "fails": lambda: (
        TOPICS.fail, Fails("l", 1, GROUP, "s", 1, SOURCE, 0, (FailCause("b", "E", HUGE_TEXT, b""),)),
    ),
    "init": lambda: (TOPICS.init, Init(GROUP, "s", 1, 0, 0, 1, 2, HUGE_TEXT, "", ())),
    "tick": lambda: (TOPICS.init, Tick(GROUP, HUGE_TEXT, 1, 0)),
}  # fmt: skip


@pytest.mark.parametrize("kind", HUGE)
def test_a_record_of_the_wire_that_is_too_large_is_quarantined_alone(kind: str) -> None:
    """O1903: its place is told, it is not decoded, and its neighbours count."""
    world = World(partitions=2)
    writer = world.session()
    writer.take()
    writer.init((0, 10))
    home = acker_partition(SOURCE, 0, 2)
    topic, event = HUGE[kind]()
    value = CODEC.encode(event)
    assert read_acks(value, CODEC.header(Acks)) is None
    place = TopicPartition(topic, home)
    world.cluster.partition(place).append(Outgoing(*place, value), world.now_ms)  # past all clients
    writer.acks(runs=[(0, 10)])
    world.settle()
    quarantined = world.quarantined(home)
    assert [dict(record.headers)["windhover.why"] for record in quarantined] == [
        f"it has {len(value):,} bytes, more than the {READ_BYTES_MAX:,} that are read".encode()
    ]
    assert world.of() == dict.fromkeys(range(10), "ACKED")
