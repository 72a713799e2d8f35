"""Records that no acker can apply: copied to the quarantine, whole, and never in the way of the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from acker.config.limits import AckerLimits
from acker.identity import acker_partition, source_of
from acker.kafka.port import Outgoing, TopicPartition, UnreadableName
from acker.ledger.output import AckerEventKind
from acker.service.partition import QUARANTINE_BYTES
from acker.wire.codec import RECORD_BYTES_MAX, read_acks
from acker.wire.events import (
    Acks,
    Event,
    FailCause,
    Fails,
    Init,
    PositionRun,
    SourceRun,
    Verdicts,
    pack_positions,
)
from tests.support.odd_keys import KEYS
from tests.support.odd_records import NO_UTF8, OddRecord, append_odd
from tests.support.raw_records import RawRecord
from tests.support.worlds.acker_world import (
    CODEC,
    GROUP,
    SOURCE,
    TOPIC,
    TOPIC_ID,
    TOPICS,
    World,
    Writer,
    edge,
)


@pytest.fixture
def world() -> World:
    """An acker with two partitions."""
    return World(partitions=2)


@pytest.fixture
def writer(world: World) -> Writer:
    """A session with ten open roots in the block of position 0."""
    writer = world.session()
    writer.take()
    writer.init((0, 10))
    world.settle()
    return writer


def home() -> int:
    """Return the partition of block 0."""
    return acker_partition(SOURCE, 0, 2)


def pack(*named: int) -> bytes:
    """Pack positions."""
    return pack_positions(np.array(named, np.int64))


GOOD = Acks(
    "query/s1", 9, GROUP, "s1", 1, SOURCE, 0, (PositionRun(0, 2),), pack(3), pack(1), (PositionRun(4, 5),),
    pack(6), 0,
)  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        replace(GOOD, runs=(PositionRun(0, 2), PositionRun(32_767, 32_769))),
        replace(GOOD, runs=(PositionRun(-1, 2),)),
        replace(GOOD, runs=(PositionRun(5, 4),)),
        replace(GOOD, absent=(PositionRun(40_000, 40_001),)),
        replace(GOOD, positions=pack(32_768)),
        replace(GOOD, positions=pack(-1)),
        replace(GOOD, positions=pack(3, 4)),
        replace(GOOD, values=pack(3, 4)),
        replace(GOOD, positions=b"1234567", values=b"1234567"),
        replace(GOOD, touched=b"123"),
        replace(GOOD, touched=pack(32_768)),
        replace(GOOD, block=1 << 50),
        replace(GOOD, block=-1, runs=(), absent=(), positions=b"", values=b"", touched=b""),
        replace(GOOD, lane="x" * 2_000),
    ],
)
def test_contributions_that_contradict_themselves_are_quarantined_whole(
    world: World, writer: Writer, wrong: Acks
) -> None:
    """A position outside the block, lengths that differ: nothing of the record is applied."""
    value = world.write(TOPICS.ack, wrong, home())
    world.settle()
    kept = world.quarantined(home())
    assert [record.value for record in kept] == [value]
    assert dict(kept[0].headers)["windhover.origin"] == f"{TOPICS.ack}/{home()}@0".encode()
    assert world.of() == {}
    writer.acks(runs=[(0, 10)])
    world.settle()
    assert world.of() == dict.fromkeys(range(10), "ACKED")


def test_a_block_or_run_of_another_acker_partition_is_quarantined(world: World, writer: Writer) -> None:
    """S69: whole: also the runs that would belong here."""
    far = next(block for block in range(1, 99) if acker_partition(SOURCE, block << 16, 2) != home())
    world.write(TOPICS.ack, GOOD, 1 - home())
    world.write(TOPICS.fail, Fails("query/s1", 1, GROUP, "s1", 1, SOURCE, 0, ()), 1 - home())
    runs = (SourceRun(SOURCE, 10, 12), SourceRun(SOURCE, far << 16, (far << 16) + 1))
    init = Init(GROUP, "s1", 1, 0, 0, 0, 2, TOPIC, TOPIC_ID, runs)
    world.write(TOPICS.init, init, home())
    crossing = SourceRun(SOURCE, 10, (far << 16) + 1)
    world.write(TOPICS.init, replace(init, runs=(crossing,)), home())
    world.settle()
    assert [len(world.quarantined(number)) for number in (home(), 1 - home())] == [2, 2]
    assert world.status().open_roots == 10


@pytest.mark.parametrize(
    "runs",
    [(SourceRun(SOURCE, 30, 20),), (SourceRun(SOURCE, 20, 10_000_000_000),)],
    ids=["backwards", "endless"],
)
def test_an_init_that_cannot_be_is_quarantined(
    world: World, writer: Writer, runs: tuple[SourceRun, ...]
) -> None:
    """Rule 10: an init may name so many positions, no more."""
    world.write(TOPICS.init, Init(GROUP, "s1", 1, 0, 0, 0, 2, TOPIC, TOPIC_ID, runs), home())
    world.settle()
    assert len(world.quarantined(home())) == 1
    assert world.status().open_roots == 10


@pytest.mark.parametrize("outside", [32_768, 40_000])
def test_fails_outside_their_block_are_quarantined(world: World, writer: Writer, outside: int) -> None:
    """Whole: also the causes that would be right."""
    causes = (FailCause("a", "", "", pack(1)), FailCause("b", "", "", pack(outside)))
    world.write(TOPICS.fail, Fails("query/s1", 0, GROUP, "s1", 1, SOURCE, 0, causes), home())
    world.settle()
    assert len(world.quarantined(home())) == 1
    assert world.of() == {}


def test_a_record_of_another_topic_is_quarantined(world: World, writer: Writer) -> None:
    """It decodes, and does not belong there."""
    world.write(TOPICS.init, GOOD, home())
    world.write(TOPICS.ack, Verdicts((), (), ()), home())
    world.write(TOPICS.fail, GOOD, home())
    world.settle()
    assert len(world.quarantined(home())) == 3


def test_quarantine_is_part_of_the_transaction_and_happens_once(world: World, writer: Writer) -> None:
    """A restart does not copy it again."""
    world.write_raw(TOPICS.ack, b"nonsense", home())
    world.settle()
    world.crash()
    world.settle()
    assert len(world.quarantined(home())) == 1
    kinds = [event.kind for event in world.events]
    assert kinds.count(AckerEventKind.QUARANTINED) == 1


def test_a_tombstone_and_an_oversized_value_do_not_stop_the_acker() -> None:
    """What would not fit into a record with its headers is cut."""
    world = World()
    world.cluster.delete_topic(TOPICS.ack)
    world.cluster.create_topic(TOPICS.ack, 1, settings={"max.message.bytes": "3000000"})
    world.write_raw(TOPICS.ack, b"x" * 2_000_000)
    world.settle()
    assert [len(record.value or b"") for record in world.quarantined()] == [900_000]


class Counted(bytes):
    """Bytes that count how many of them are looked at, one by one."""

    looked = 0

    def __getitem__(self, at: Any) -> Any:
        self.looked += 1
        if self.looked > 20:
            raise AssertionError(f"byte {at} of a number is looked at")
        return super().__getitem__(at)


def test_a_number_without_an_end_is_given_up_at_once(world: World, writer: Writer) -> None:
    """Read to its end it took half a minute, so that no acker came past it within the limit of a step."""
    header = CODEC.header(Acks)
    value = header.ljust(RECORD_BYTES_MAX, b"\xff")
    assert read_acks(Counted(value), header) is None
    world.write_raw(TOPICS.ack, value, home())
    writer.acks(runs=[(0, 10)])
    world.settle()
    assert [record.value for record in world.quarantined(home())] == [value]
    assert world.of() == dict.fromkeys(range(10), "ACKED")


def test_sessions_that_never_took_a_group_use_up_no_lane() -> None:
    """They have no roots, so there is nothing that could count twice."""
    world = World(limits=AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=0, lanes=3))
    writer = world.session()
    writer.take()
    writer.init((0, 2))
    world.settle()
    for number in range(5):
        stranger = world.session(f"x{number}", epoch=9, group=GROUP if number % 2 else f"other-{number}")
        stranger.acks(runs=[(0, 2)], source=SOURCE if number % 2 else source_of(7, 0))
        stranger.fails(0, source=SOURCE if number % 2 else source_of(7, 0))
    writer.acks(runs=[(0, 1)])
    writer.fails(1)
    world.settle()
    assert world.of() == {0: "ACKED", 1: "FAILED"}


def test_more_lanes_than_the_limit_are_quarantined() -> None:
    """Rule 10: a writer that invents lanes cannot fill the acker's memory."""
    world = World(limits=AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=0, lanes=3))
    writer = world.session()
    writer.take()
    writer.init((0, 10))
    for lane in range(5):
        writer.acks(runs=[(lane, lane + 1)], lane=f"{lane}/s1")
    world.settle()
    assert world.of() == dict.fromkeys(range(3), "ACKED")
    assert len(world.quarantined()) == 2


def test_long_texts_of_a_cause_are_cut_within_characters(world: World, writer: Writer) -> None:
    """Rule 11: a failure has a name, and the name is bounded."""
    writer.fails(1, error="e" * 5_000, message="é" * 300_000)
    world.settle()
    found = [event for event in world.answers(home()) if isinstance(event, Verdicts)]
    lost = [entry for event in found for entry in event.lost]
    assert (len(lost[0].error), lost[0].message) == (500, "é" * 250)
    assert len(CODEC.encode(Verdicts((), (), tuple(lost)))) < 2_000


def test_the_end_of_a_log_may_be_no_record(world: World, writer: Writer) -> None:
    """Another program's transaction in an ack topic: its marker does not hold a tick back."""
    foreign = world.writer_log.transactions("foreign")
    foreign.init(1_000)
    foreign.begin()
    foreign.send(Outgoing(TOPICS.fail, home(), b"nonsense"))
    foreign.abort(1_000)
    writer.tick(30_000)
    world.settle()
    assert world.of() == dict.fromkeys(range(10), "TIMED_OUT")
    where = TopicPartition(TOPICS.fail, home())
    assert world.writer_log.committed("windhover-acker", [where])[where] == 2


@pytest.mark.parametrize(
    ("settings", "copied"),
    [({"max.message.bytes": "500"}, [None]), ({"cleanup.policy": "compact"}, [])],
    ids=["only its place fits", "nothing is taken"],
)
def test_a_record_whose_copy_the_quarantine_refuses_does_not_end_the_acker(
    world: World, writer: Writer, settings: dict[str, str], copied: list[bytes | None]
) -> None:
    """O209: before, the acker restored the partition fifteen times, and ended; so did each one after it."""
    world.cluster.delete_topic(TOPICS.quarantine)
    world.cluster.create_topic(TOPICS.quarantine, 2, settings=settings)
    world.write_raw(TOPICS.ack, b"garbage" * 100, home())
    for _ in range(3):
        world.settle()
        world.now_ms += 20_000
    writer.acks(runs=[(0, 10)])
    world.settle()
    assert world.of() == dict.fromkeys(range(10), "ACKED")
    assert [record.value for record in world.quarantined(home())] == copied
    events = [event.detail for event in world.events if event.kind is AckerEventKind.NOT_COPIED]
    assert ("MSG_SIZE_TOO_LARGE" if copied else "INVALID_RECORD") in events[0]
    assert copied or any(f"{TOPICS.ack}/{home()}@0" in detail for detail in events)


def test_a_quarantine_that_takes_records_again_gets_them_whole(world: World, writer: Writer) -> None:
    """O209: a record that was too large is no reason to copy less of the next one for ever."""
    world.cluster.delete_topic(TOPICS.quarantine)
    world.cluster.create_topic(TOPICS.quarantine, 2, settings={"max.message.bytes": "500"})
    for value in (b"garbage" * 100, b"small", b"small too"):
        world.write_raw(TOPICS.ack, value, home())
        world.settle()
        world.now_ms += 20_000
    assert [record.value for record in world.quarantined(home())] == [None, b"small", b"small too"]


INIT = Init(GROUP, "s1", 1, 0, 1_000_000, 30_000, 2, TOPIC, TOPIC_ID, (SourceRun(SOURCE, 10, 12),))
FAILS = Fails("query/s1", 9, GROUP, "s1", 1, SOURCE, 0, (FailCause("split", "E", "no", pack(0)),))


@pytest.mark.parametrize(
    ("topic", "event"),
    [(TOPICS.init, INIT), (TOPICS.ack, GOOD), (TOPICS.fail, FAILS)],
    ids=TOPICS.names()[:3],
)
def test_a_record_with_a_header_that_no_program_of_ours_writes_is_quarantined(
    world: World, writer: Writer, topic: str, event: Event
) -> None:
    """O104: whatever its value says; a restart, which reads contributions again, leaves it out as well."""
    value = CODEC.encode(event)
    spoilt = OddRecord("spoilt", RawRecord(value), ((UnreadableName.of(NO_UTF8), b"1"),))
    append_odd(world.cluster, TopicPartition(topic, home()), spoilt)
    world.settle()
    [kept] = world.quarantined(home())
    assert (kept.value, world.of()) == (value, {})
    assert dict(kept.headers)["windhover.why"] == rb"the name of a header is no UTF-8: \xff\xfe"
    writer.acks(values=[(7, edge(7) ^ 1)])
    world.settle()
    world.crash()
    writer.acks(runs=[(0, 7)], values=[(7, 1)], seq=1)
    world.settle()
    assert world.of() == dict.fromkeys(range(8), "ACKED")
    assert len(world.quarantined(home())) == 1


@pytest.mark.parametrize("value", [b"", b"garbage", NO_UTF8, None], ids=["empty", "text", "no UTF-8", "null"])
@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_what_is_quarantined_has_its_key_and_value(
    world: World, writer: Writer, key: bytes | None, value: bytes | None
) -> None:
    """Null stays null, and empty empty: whoever looks for its writer finds what that wrote."""
    producer = world.writer_log.producer()
    for topic in (TOPICS.ack, TOPICS.fail, TOPICS.init):
        producer.send(Outgoing(topic, home(), value, key))
    producer.flush(1_000)
    world.settle()
    assert [(record.key, record.value) for record in world.quarantined(home())] == [(key, value)] * 3


@pytest.mark.parametrize("excess", [-1, 0, 1])
def test_a_long_key_of_a_quarantined_record_is_cut_with_its_value(
    world: World, writer: Writer, excess: int
) -> None:
    """Both together have room; the key comes first. An empty value is not a null one."""
    long_key = b"k" * (QUARANTINE_BYTES + excess)
    producer = world.writer_log.producer()
    producer.send(Outgoing(TOPICS.ack, home(), b"value", long_key))
    producer.flush(1_000)
    world.settle()
    [kept] = world.quarantined(home())
    assert kept.key == long_key[:QUARANTINE_BYTES]
    assert kept.value == b"value"[: max(0, -excess)]
