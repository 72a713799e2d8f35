"""Records that stop their readers, and the mark that lets all pass over them."""

from __future__ import annotations

import contextlib

import pytest

from acker.config import topics as topics_yaml
from acker.config.topics import Topics
from acker.errors import Disagreement, UnknownVersion, Unreachable
from acker.kafka.port import Log, Outgoing, Producer, TopicPartition
from acker.service.passed_over import passed_over_mark, read_ack_topic
from acker.service.state import BIN_PART, Carried, StatePart, bin_part, part_key, state_codec
from replay.handling.repair import Unreadable, find_unreadable, pass_over
from replay.records.due import PROGRESS_KEY, root_key
from tests.support.garbage import DUE
from tests.support.memory.clients import MemoryProducer, NoFaults
from tests.support.memory.cluster import MemoryLog
from tests.support.worlds import acker_world, planning, replay_world
from tests.support.worlds.acker_world import TOPICS

GARBAGE = b"\xc3\x02nonsense"
NEWER = b"\xc3\x01\x01\x02\x03\x04\x05\x06\x07\x08and a body"


def repair(log: Log, topics: Topics) -> list[str]:
    """Let all pass over what is found; return what was."""
    found = [one for one in find_unreadable(log, topics) if not one.is_marked]
    pass_over(log, found, "a test wrote it", "me")
    return [str(one) for one in found]


@pytest.fixture
def world() -> replay_world.World:
    world = replay_world.World()
    world.cluster.create_topic("_ack_state", 2, compacted=True)
    return world


def test_what_stops_its_readers_is_shown_with_place_size_first_bytes_and_kind(
    world: replay_world.World,
) -> None:
    """What all pass over by themselves is not."""
    world.garbage(NEWER)
    world.garbage(GARBAGE)
    world.send_due(root_key(DUE), NEWER)
    world.send_due(b"elsewhere", GARBAGE)
    producer = world.cluster.log().producer()
    producer.send(Outgoing("_ack_state", 1, GARBAGE, part_key(1, 0)))
    producer.flush(0)
    producer.send(Outgoing("_ack_state", 0, state_codec().encode(StatePart(1, 0, 1, b"")), part_key(0, 0)))
    producer.flush(0)
    newer = (
        "20 bytes, first c3 01 01 02 03 04 05 06 07 08 61 6e 64 20 61 20; perhaps a newer Windhover's: C3 01"
    )
    assert [
        str(one).split(" and a fing")[0]
        for one in find_unreadable(world.cluster.log(), replay_world.topics())
    ] == [
        f"_ack_verdict/0@0: {newer}",
        f"_ack_due/0@0: {newer}",
        "_ack_state/0@0: 14 bytes, first c3 01 a4 45 27 f6 2b de 26 a5 02 00 02 00; not the part of this"
        " partition's State that its key names",
        "_ack_state/1@0: 10 bytes, first c3 02 6e 6f 6e 73 65 6e 73 65; garbage: it does not begin with C3 01"
        " as all records of Windhover do",
    ]


@pytest.mark.parametrize("is_due", [False, True])
def test_a_replay_worker_goes_on_behind_what_it_is_to_pass_over(
    world: replay_world.World, is_due: bool
) -> None:
    """Before, no worker could be started any more."""
    if is_due:
        world.send_due(PROGRESS_KEY, NEWER)
    else:
        world.garbage(NEWER)
    world.lose(world.emit(b"x"))
    worker = world.worker()
    with pytest.raises(UnknownVersion, match="windhover topics repair"):
        world.settle(worker)
    world.kill(worker)
    assert len(repair(world.cluster.log(), replay_world.topics())) == 1
    assert repair(world.cluster.log(), replay_world.topics()) == []
    for _ in range(2):
        worker = world.worker()
        world.settle(worker, until_ms=world.now_ms + 60_000)
        world.kill(worker)
    assert [copy.value for copy in world.copies()] == [b"x"]


def test_a_root_whose_entry_is_to_be_passed_over_goes_on_waiting(world: replay_world.World) -> None:
    """The entry beneath still stands, so it is written again."""
    root = world.emit(b"x")
    first = world.worker()
    world.lose(root)
    world.settle(first)
    first.close()
    (waiting,) = [one for one in world.records("_ack_due") if one.key != PROGRESS_KEY]
    world.send_due(waiting.key or b"", NEWER)
    repair(world.cluster.log(), replay_world.topics())
    world.settle(world.worker(), until_ms=world.now_ms + 60_000)
    assert [copy.value for copy in world.copies()] == [b"x"]
    assert world.letters() == []


def test_a_mark_behind_many_records_is_found(world: replay_world.World) -> None:
    world.garbage(NEWER)
    repair(world.cluster.log(), replay_world.topics())
    for _ in range(2_500):
        world.garbage(GARBAGE)
    world.lose(world.emit(b"x"))
    world.settle(world.worker(), until_ms=world.now_ms + 60_000)
    assert [copy.value for copy in world.copies()] == [b"x"]


def test_no_mark_lets_an_acker_pass_over_a_state_that_it_can_read() -> None:
    """O1807: the State before it would count, whose records are deleted by then: no acker could start."""
    world = acker_world.World()
    writer = world.session()
    writer.take()
    writer.init((0, 10))
    world.settle()
    before = len(world.read(TOPICS.state))
    writer.acks(runs=[(0, 5)])
    writer.tick(500)
    world.settle()
    for _ in range(2):  # logs are shortened to what the last State needs
        world.now_ms += world.limits.retention_interval_ms
        world.step()
    producer = world.writer_log.producer()
    place = TopicPartition(TOPICS.state, 0)
    for record in world.read(TOPICS.state)[before:]:
        producer.send(passed_over_mark(place, record.offset, "a mark that nobody should believe", "x"))
    producer.flush(1)
    world.crash()
    world.settle()
    writer.init((10, 20), now=600)
    writer.acks(runs=[(5, 20)], seq=1)
    world.settle()
    assert world.of() == dict.fromkeys(range(20), "ACKED")
    assert world.status().counts.initialised == 10


@pytest.mark.parametrize("topic", [TOPICS.verdict, TOPICS.state])
def test_an_acker_restores_behind_what_it_is_to_pass_over(topic: str) -> None:
    world = acker_world.World()
    writer = world.session()
    writer.take()
    writer.init((0, 10))
    writer.acks(runs=[(0, 5)])
    world.settle()
    producer = world.writer_log.producer()
    producer.send(Outgoing(topic, 0, NEWER, part_key(0, 0) if topic == TOPICS.state else None))
    producer.flush(1)
    world.crash()
    with pytest.raises(Disagreement, match="windhover topics repair"):
        world.settle()
    topics = topics_yaml.parse("acker: {partitions: 1}", file="topics.yaml", environ={})
    assert len(repair(world.writer_log, topics)) == 1
    world.crash()
    world.settle()
    writer.acks(runs=[(5, 10)], seq=1)
    world.settle()
    assert world.status().open_roots == 0


def test_a_query_goes_on_behind_what_it_is_to_pass_over() -> None:
    world = planning.World()
    world.produce(3)
    planner = world.ready()
    producer = world.log.producer()
    for topic, key in ((TOPICS.verdict, None), (TOPICS.due, PROGRESS_KEY)):
        producer.send(Outgoing(topic, 1, NEWER, key))
    producer.flush(0)
    assert len(repair(world.log, world.topics)) == 2
    end = planning.batch(planner, planning.BEGINNING, world)
    world.publish(planning.BEGINNING, end)
    world.run(1_000)
    assert planner.status(world.now_ms).acked == 3
    world.start_replays()
    world.run(1_000)
    assert planner.is_drained()


def test_a_mark_is_reported_by_nobody(world: replay_world.World) -> None:
    """What it is about is, at each start."""
    world.garbage(NEWER)
    world.send_due(PROGRESS_KEY, NEWER)
    repair(world.cluster.log(), replay_world.topics())
    worker = world.worker()
    world.settle(worker)
    assert worker.status().undecodable == 2


def test_damaged_batches_are_found_in_every_ack_topic_and_marked(world: replay_world.World) -> None:
    """O347: with what is lost by passing over them; a second run finds nothing left to do."""
    log = world.cluster.log()
    topics = replay_world.topics()
    names = topics.ack_topics
    damaged = (names.init, names.ack, names.fail, names.verdict, names.due, names.state)
    for name in damaged:
        if name not in log.topics([name]):
            world.cluster.create_topic(name, 2)
        producer = log.producer()
        for number in range(4):
            producer.send(Outgoing(name, 1, GARBAGE, b"%d" % number))
        producer.flush(0)
        world.cluster.partition(TopicPartition(name, 1)).damage(1, 3)
    found = [str(one) for one in find_unreadable(log, topics) if one.until]
    assert sorted(one.partition(": ")[0] for one in found) == sorted(f"{name}/1@1 to 2" for name in damaged)
    assert all("a damaged batch (its checksum is wrong" in one and "with it is lost" in one for one in found)
    assert len(repair(log, topics)) == len(damaged)
    assert repair(world.cluster.log(), topics) == []
    for name in damaged:
        place = TopicPartition(name, 1)
        read = read_ack_topic(log, place, 0, 5, committed=True, wait_ms=1_000)
        assert [record.offset for record in read] == [0, 3, 4]


def put(world: replay_world.World, topic: str, value: bytes | None, key: bytes | None = b"k") -> None:
    """Write a record into the first partition of a topic."""
    producer = world.cluster.log().producer()
    producer.send(Outgoing(topic, 0, value, key))
    producer.flush(0)


def found(world: replay_world.World, topic: str) -> list[Unreadable]:
    """Return what stops the readers of the first partition of a topic."""
    place = TopicPartition(topic, 0)
    every = find_unreadable(world.cluster.log(), replay_world.topics())
    return [one for one in every if one.partition == place]


@pytest.mark.parametrize("topic", ["_ack_verdict", "_ack_due"])
def test_all_records_of_an_unknown_version_are_found_whatever_stands_between_them(
    world: replay_world.World, topic: str
) -> None:
    """Tombstones, garbage and marks do; a record counts as passed over by its own mark alone."""
    for value in (NEWER, None, GARBAGE, NEWER):
        put(world, topic, value)
    first, second = found(world, topic)
    assert [(one.offset, one.size, one.is_marked) for one in (first, second)] == [
        (0, 20, False),
        (3, 20, False),
    ]
    pass_over(world.cluster.log(), [second], "a test wrote it", "me")
    put(world, topic, NEWER)
    assert [(one.offset, one.is_marked) for one in found(world, topic)] == [(0, False), (3, True), (5, False)]
    pass_over(world.cluster.log(), [first], "a test wrote it", "me")
    assert [one.is_marked for one in found(world, topic)] == [True, True, False]
    assert [str(one).endswith("; passed over") for one in found(world, topic)] == [True, True, False]


@pytest.mark.parametrize("topic", ["_ack_init", "_ack_ack", "_ack_fail"])
def test_a_record_of_an_unknown_version_stops_no_reader_of_what_spouts_and_bolts_write(
    world: replay_world.World, topic: str
) -> None:
    """They pass over it by themselves. Topics before this one may be missing."""
    world.cluster.create_topic(topic, 2)
    for value in (NEWER, GARBAGE):
        put(world, topic, value)
    assert found(world, topic) == []
    world.cluster.partition(TopicPartition(topic, 0)).damage(0, 1)
    assert [(one.offset, one.until) for one in found(world, topic)] == [(0, 1)]


@pytest.mark.parametrize("topic", ["_ack_verdict", "_ack_due", "_ack_state"])
def test_what_was_aborted_stops_nobody(world: replay_world.World, topic: str) -> None:
    writer = world.cluster.log().transactions("somebody")
    writer.init(0)
    writer.begin()
    writer.send(Outgoing(topic, 0, NEWER, part_key(0, 0)))
    writer.abort(0)
    assert found(world, topic) == []


def test_of_each_part_of_state_what_stands_behind_the_last_sound_one_is_found(
    world: replay_world.World,
) -> None:
    """Whatever else is in the topic: other keys, tombstones, parts of other partitions."""
    sound = state_codec().encode(bin_part(state_codec(), 0, 0, Carried(())))
    put(world, "_ack_state", GARBAGE, b"no part")
    put(world, "_ack_state", None, part_key(0, BIN_PART))
    put(world, "_ack_state", GARBAGE, part_key(1, BIN_PART))
    put(world, "_ack_state", GARBAGE, part_key(0, BIN_PART))
    put(world, "_ack_state", GARBAGE, part_key(0, BIN_PART + 1))
    put(world, "_ack_state", NEWER, part_key(0, BIN_PART + 1))
    assert [one.offset for one in found(world, "_ack_state")] == [3, 4, 5]
    put(world, "_ack_state", sound, part_key(0, BIN_PART))
    assert [one.offset for one in found(world, "_ack_state")] == [4, 5]


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (StatePart(1, 0, 1, b""), "not the part of this partition's State that its key names"),
        (StatePart(0, 1, 2, b""), "not the part of this partition's State that its key names"),
        (Carried(()), "not the part of this partition's State that its key names"),
        (StatePart(0, 0, 1, b"no deflate"), "a part of State that does not unpack, or to more than is read"),
    ],
    ids=["another partition", "another part", "no part", "does not unpack"],
)
def test_a_part_of_state_that_is_another_or_does_not_unpack_is_named(
    world: replay_world.World, state: StatePart | Carried, kind: str
) -> None:
    put(world, "_ack_state", state_codec().encode(state), part_key(0, 0))
    assert [one.what_is_wrong for one in found(world, "_ack_state")] == [kind]


def test_a_damaged_batch_counts_as_passed_over_only_if_one_mark_covers_all_of_it(
    world: replay_world.World,
) -> None:
    place = TopicPartition("_ack_due", 0)
    for _ in range(9):
        put(world, "_ack_due", GARBAGE)
    partition = world.cluster.partition(place)
    partition.damage(1, 3)
    partition.damage(5, 8)
    first, second = found(world, "_ack_due")
    assert [(one.offset, one.until, one.size, one.first_bytes_hex) for one in (first, second)] == [
        (1, 3, 0, ""),
        (5, 8, 0, ""),
    ]
    pass_over(world.cluster.log(), [first, second._replace(until=7)], "a test", "me")
    assert [one.is_marked for one in found(world, "_ack_due")] == [True, False]
    pass_over(world.cluster.log(), [second._replace(offset=6)], "a test", "me")
    assert [one.is_marked for one in found(world, "_ack_due")] == [True, False]
    pass_over(world.cluster.log(), [second], "a test", "me")
    assert [str(one).endswith("; passed over") for one in found(world, "_ack_due")] == [True, True]


class ClosingLog(MemoryLog):
    """A log that counts its producers that are closed, and may not write."""

    closed = 0

    def producer(self) -> Producer:
        """Make one that counts."""
        log = self

        class Counted(MemoryProducer):
            def close(self) -> None:
                """Count it."""
                log.closed += 1

        return Counted(self._broker, self._faults)


@pytest.mark.parametrize("fails", [False, True])
def test_what_writes_marks_is_closed_though_the_broker_is_away(
    world: replay_world.World, fails: bool
) -> None:
    world.garbage(NEWER)
    marks = list(find_unreadable(world.cluster.log(), replay_world.topics()))
    log = ClosingLog(world.cluster, replay_world.NoBroker() if fails else NoFaults())
    with pytest.raises(Unreachable) if fails else contextlib.nullcontext():
        pass_over(log, marks, "a test", "me")
    assert log.closed == 1
