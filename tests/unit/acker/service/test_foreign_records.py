"""Records in the ack topics that none of our processes wrote, or that a newer one did.

Who reads what anybody may write (`_ack_init`, `_ack_ack`, `_ack_fail`) quarantines both. Where only ackers or
replay workers write, garbage is passed over and counted, but a record of an unknown version is one of ours:
passing over it would lose verdicts, so its reader stops and says which version to run.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from acker.errors import Disagreement, UnknownVersion
from acker.identity import position_at, source_of
from acker.kafka.port import Outgoing, TopicPartition
from acker.ledger.output import AckerEventKind
from acker.service.passed_over import passed_over_mark
from acker.service.state import part_key
from acker.wire.events import Acks, Event, Fails, Init, SourceRun, Take, TakeSource, Tick, Verdicts
from replay.records.due import PROGRESS_KEY, Progress, due_codec, root_key
from tests.support.garbage import DUE
from tests.support.worlds import planning, replay_world
from tests.support.worlds.acker_world import GROUP, SOURCE, TOPIC, TOPIC_ID, TOPICS, World, Writer

GARBAGE = b"\xc3\x02nonsense"
NEWER = b"\xc3\x01\x01\x02\x03\x04\x05\x06\x07\x08and a body"
FAR = 1 << 62
TAKE = Take("g2", "s1", 1, 0, 1, (TakeSource(source_of(2, 0), "t", "id", 0, 0),))
INIT = Init(GROUP, "s1", 1, 0, 0, 30_000, 1, TOPIC, TOPIC_ID, (SourceRun(SOURCE, 10, 12),))
ACKS = Acks("query/s1", 9, GROUP, "s1", 1, SOURCE, 0, (), b"", b"", (), b"", 0)


@pytest.fixture
def world() -> World:
    """An acker with one partition."""
    return World()


@pytest.fixture
def writer(world: World) -> Writer:
    """A session with ten open roots, five of which were acked."""
    writer = world.session()
    writer.take()
    writer.init((0, 10))
    writer.acks(runs=[(0, 5)])
    world.settle()
    return writer


@pytest.mark.parametrize(
    ("topic", "wrong"),
    [
        (TOPICS.init, replace(TAKE, sources=(TakeSource(1 << 40, "t", "id", 0, 0),))),
        (TOPICS.init, replace(TAKE, sources=(TakeSource(source_of(2, 0), "t", "id", 1 << 15, 0),))),
        (TOPICS.init, replace(TAKE, epoch=FAR)),
        (TOPICS.init, replace(TAKE, now=FAR)),
        (TOPICS.init, Tick(GROUP, "s1", 1, FAR)),
        (TOPICS.init, replace(INIT, timeout_ms=FAR)),
        (TOPICS.init, replace(INIT, now=-FAR)),
        (TOPICS.init, replace(INIT, runs=(SourceRun(-1, 10, 12),))),
        (TOPICS.ack, replace(ACKS, source=1 << 40)),
        (TOPICS.ack, replace(ACKS, touched_at=FAR)),
        (TOPICS.fail, Fails("query/s1", 9, GROUP, "s2", 2, 16_384 << 16, 0, ())),
    ],
)
def test_numbers_that_state_could_not_hold_are_quarantined(
    world: World, writer: Writer, topic: str, wrong: Event
) -> None:
    """Avro lets an int have 64 bits: such a source was learnt, could not be stored, and ended every acker."""
    value = world.write(topic, wrong)
    world.settle()
    world.crash()
    world.settle()
    assert [record.value for record in world.quarantined()] == [value]
    writer.init((20, 30), now=1_000)
    writer.acks(runs=[(5, 10), (20, 30)], seq=1)
    world.settle()
    assert set(world.of().values()) == {"ACKED"}


@pytest.mark.parametrize("topic", [TOPICS.init, TOPICS.ack, TOPICS.fail])
@pytest.mark.parametrize("value", [GARBAGE, NEWER, b""])
def test_what_no_acker_can_read_is_quarantined_and_told_once(
    world: World, writer: Writer, topic: str, value: bytes
) -> None:
    """Of an unknown version too: an acker answers for what it can read, and keeps the rest for who can."""
    for _ in range(3):
        world.write_raw(topic, value)
    world.settle()
    assert [record.value for record in world.quarantined()] == [value] * 3
    assert world.status().counts.quarantined_records == 3
    assert [event.kind for event in world.events].count(AckerEventKind.QUARANTINED) == 1


def test_a_restart_passes_over_garbage_among_the_verdicts(world: World, writer: Writer) -> None:
    """It settled nothing; before, an acker that had to read it again could not be started any more."""
    for value in (GARBAGE, GARBAGE, b""):
        world.write_raw(TOPICS.verdict, value)
    world.write(TOPICS.verdict, Verdicts((SourceRun(SOURCE, 9, 5),), (), ()))
    world.crash()
    writer.acks(runs=[(5, 10)], seq=1)
    world.settle()
    assert world.status().open_roots == 0
    assert world.status().counts.undecodable_records == 4
    told = [event.detail for event in world.events if event.kind is AckerEventKind.UNDECODABLE]
    assert [("C3 01" in one, "goes from 9 to 5" in one) for one in told] == [(True, False), (False, True)]


def test_a_restart_stops_at_verdicts_of_a_newer_acker(world: World, writer: Writer) -> None:
    """What they settled would be settled twice."""
    world.write_raw(TOPICS.verdict, NEWER)
    world.crash()
    with pytest.raises(Disagreement, match=r"_ack_verdict/0@\d+: unknown schema.*run that version"):
        world.settle()


def test_what_stands_in_the_state_topic_under_another_key_is_none_of_ours(
    world: World, writer: Writer
) -> None:
    """And garbage under one of our keys is no harm once the acker that runs has written State again."""
    producer = world.writer_log.producer()
    for key in (b"nonsense", b"0/x", b"00/0", b"1/0", b"0/" + b"9" * 5_000, part_key(0, 0)):
        producer.send(Outgoing(TOPICS.state, 0, GARBAGE, key))
    producer.flush(1)
    writer.acks(runs=[(5, 9)], seq=1)
    world.settle()
    world.crash()
    world.settle()
    assert world.status().open_roots == 1


def test_a_spout_passes_over_garbage_among_the_verdicts() -> None:
    """Counted in its status, told once for each kind; the query goes on."""
    world = planning.World()
    world.produce(10)
    planner = world.ready()
    end = planning.batch(planner, planning.BEGINNING, world)
    producer = world.log.producer()
    wrong = planning.wire_codec().encode(Verdicts((SourceRun(65_536, 9, 5),), (), ()))
    for value in (GARBAGE, GARBAGE, wrong, planning.wire_codec().encode(TAKE)):
        producer.send(Outgoing(world.topics.ack_topics.verdict, 0, value))
    producer.flush(0)
    world.publish(planning.BEGINNING, end)
    world.run(1_000)
    status = planner.status(world.now_ms)
    assert (status.state, status.pending, status.acked, status.undecodable) == ("running", 0, 10, 4)
    assert world.told.count("undecodable") == 3


def test_a_spout_stops_at_verdicts_of_a_newer_acker() -> None:
    """What they settle would stay pending for ever."""
    world = planning.World()
    world.ready()
    producer = world.log.producer()
    producer.send(Outgoing(world.topics.ack_topics.verdict, 1, NEWER))
    producer.flush(0)
    with pytest.raises(UnknownVersion, match=r"_ack_verdict/1@\d+: .*the version of the ackers"):
        world.run(200)


def test_a_query_that_ends_when_nothing_waits_does_not_wait_for_garbage() -> None:
    """Under the key of a root or of the progress: no replay worker takes it up, so it would stay for ever."""
    world = planning.World()
    world.start_replays()
    world.produce(3)
    planner = world.ready()
    end = planning.batch(planner, planning.BEGINNING, world)
    world.publish(planning.BEGINNING, end)
    world.run(500)
    producer = world.log.producer()
    for key in (root_key(DUE), root_key(replace(DUE, source=source_of(1, 0))), PROGRESS_KEY):
        producer.send(Outgoing(world.topics.ack_topics.due, 0, GARBAGE, key))
    producer.flush(0)
    assert planner.is_drained()
    producer.send(Outgoing(world.topics.ack_topics.due, 0, NEWER, PROGRESS_KEY))
    producer.flush(0)
    with pytest.raises(UnknownVersion, match="_ack_due/0@"):
        planner.is_drained()


def test_a_replay_worker_stops_at_what_a_newer_windhover_wrote() -> None:
    """Passed over, the roots that it says were lost would be neither replayed nor buried."""
    world = replay_world.World()
    world.garbage(NEWER)
    with pytest.raises(UnknownVersion, match=r"_ack_verdict/0@0: .*run a replay worker of that version"):
        world.settle(world.worker())
    world = replay_world.World()
    world.send_due(root_key(DUE), NEWER)
    with pytest.raises(UnknownVersion, match="_ack_due/0@0"):
        world.settle(world.worker())


def test_what_cannot_wait_is_passed_over_by_a_replay_worker() -> None:
    """Progress under another key would have skipped verdicts, and a reason that is none ended the worker.

    What stands under the key of a root of ours, and cannot be, is a dead letter.
    """
    world = replay_world.World()
    encode = due_codec().encode
    root = replace(DUE, source=source_of(1, 0), group="g", topic="sentences", due_ms=0)
    for key, value in (
        (b"elsewhere", Progress(5, 0)),
        (PROGRESS_KEY, Progress(-1, 0)),
        (PROGRESS_KEY, root),
        (root_key(root), replace(root, dead="nonsense")),
        (b"x" * 12, root),
    ):
        world.send_due(key, encode(value), 1)  # the root's own
    world.lose(world.emit(b"x"))
    worker = world.worker()
    world.settle(worker, until_ms=world.now_ms + 60_000)
    assert [copy.value for copy in world.copies()] == [b"x"]
    assert worker.status().undecodable == 5
    told = [replay_world.header(letter, "windhover.origin") for letter in world.letters()]
    assert told == ["sentences/0@1042"]


def test_a_lost_root_of_a_partition_that_never_was_is_a_dead_letter() -> None:
    """Before, it stopped every replay worker: no log could be asked for the offset."""
    world = replay_world.World()
    where = source_of(1, 7)
    world.lose(replay_world.Emission(where, "sentences", 7, int(position_at(0, 3))))
    world.lose(world.emit(b"x"))
    world.settle(world.worker(), until_ms=world.now_ms + 60_000)
    assert [copy.value for copy in world.copies()] == [b"x"]
    assert [replay_world.header(letter, "windhover.dead") for letter in world.letters()] == ["GONE"]


@pytest.mark.parametrize("value", [None, b"", GARBAGE], ids=["null", "empty", "garbage"])
def test_an_acker_starts_where_a_stranger_was_first_in_its_verdict_topic(
    world: World, value: bytes | None
) -> None:
    """O120: there is no State yet, and what no acker wrote is no verdict."""
    producer = world.writer_log.producer()
    producer.send(Outgoing(TOPICS.verdict, 0, value))
    producer.flush(1_000)
    world.crash()
    writer = world.session()
    writer.take()
    writer.init((0, 10))
    writer.acks(runs=[(0, 10)])
    world.settle()
    world.crash()
    world.settle()
    assert len(world.read(TOPICS.verdict)) == 3  # the stranger's, the answer to the take, the verdicts
    assert world.status().open_roots == 0


def test_an_acker_stops_at_an_unknown_version_before_its_first_state_until_it_is_marked(
    world: World,
) -> None:
    """O122: it may be a verdict, and State lost; the mark itself stops nobody."""
    world.write_raw(TOPICS.verdict, NEWER)
    world.crash()
    with pytest.raises(Disagreement, match=f"{TOPICS.verdict}/0@0"):
        world.settle()
    producer = world.writer_log.producer()
    producer.send(passed_over_mark(TopicPartition(TOPICS.verdict, 0), 0, "foreign", "kim"))
    producer.flush(1_000)
    world.crash()
    world.session().take()
    world.settle()
    assert len(world.read(TOPICS.verdict)) == 3  # theirs, the mark, the answer
