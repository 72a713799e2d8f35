"""Which signs of life count, of whom, for how long, and what a reader knows where it cannot read all."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from typing import Final

import pytest

from acker.errors import PartitionStands, Unreachable
from acker.kafka.port import Outgoing, Reader, TopicPartition
from acker.wire.codec import wire_codec
from acker.wire.events import Acks, Event, Init, SourceRun, Take, Tick
from acker.writer_clocks import WriterTime, clock_header
from spout.group.presence import (
    CLIPPED_MS,
    READS_HEADER,
    SIGNS_EVERY_MS,
    SILENT_MS_MAX,
    TIMES_MAX,
    UNREAD_MS_MAX,
    WHO_HEADER,
    Presence,
    Who,
    describe_session,
    read_inputs,
    sign_headers,
)
from spout.group.sources import PlannerSpec
from spout.planning.session import SessionName
from tests.support.memory.clients import Failing, NoFaults
from tests.support.memory.cluster import Faults, MemoryCluster, MemoryLog
from tests.support.worlds.planning import WALL_MS, World

TOPIC: Final = "_ack_init"
PARTITIONS: Final = 3
NAME: Final = SessionName(4, "s")
LOWER: Final = SessionName(3, "t")
HERE: Final = Who("web-1", "words", 11, WALL_MS)
THERE: Final = Who("web-2", "words", 12, WALL_MS)


class Group:
    """The signs of life of a group, and who looks at them."""

    def __init__(self, now_ms: int = WALL_MS) -> None:
        """Create the topic."""
        self.cluster = MemoryCluster(now_ms)
        self.cluster.create_topic(TOPIC, PARTITIONS)
        self.log = self.cluster.log()

    def sign(
        self,
        name: SessionName = NAME,
        *,
        who: Who | None = HERE,
        age_ms: int = 0,
        partition: int = 0,
        leaves: bool = False,
        reads: Iterable[int] = (),
        event: Event | None = None,
        clock_ms: int | None = None,
    ) -> None:
        """Give a sign of life, a tick by default."""
        if event is None:
            event = Tick("g", name.id, name.epoch, 0)
        headers = (*sign_headers(who, leaves=leaves, reads=reads), *clock_header(clock_ms))
        producer = self.log.producer()
        at_ms = self.cluster.now_ms - age_ms
        value = wire_codec().encode(event)
        producer.send(Outgoing(TOPIC, partition, value, None, headers, timestamp_ms=at_ms))
        producer.flush(0)

    def append_times(self) -> None:
        """Let records have the broker's time from now on, in a topic without any yet."""
        self.cluster.delete_topic(TOPIC)
        self.cluster.create_topic(TOPIC, PARTITIONS, settings={"message.timestamp.type": "LogAppendTime"})

    def presence(
        self, log: MemoryLog | None = None, *, patient: bool = False, faults: Faults | None = None
    ) -> Presence:
        """Look for the first time."""
        log = log or self.cluster.log(faults)
        return Presence(log, TOPIC, PARTITIONS, "g", self.cluster.now_ms, patient=patient)

    def look(self, presence: Presence, ms: int = 1_000) -> None:
        """Look again, after some time."""
        self.cluster.now_ms += ms
        presence.read_new_signs(self.cluster.now_ms)


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.mark.parametrize(
    ("age_ms", "wait_ms"),
    [(0, SILENT_MS_MAX), (3_000, SILENT_MS_MAX - 3_000), (SILENT_MS_MAX, 0), (SILENT_MS_MAX + 1, 0)],
)
def test_a_session_is_waited_for_until_it_was_silent_for_the_limit(
    group: Group, age_ms: int, wait_ms: int
) -> None:
    group.sign(age_ms=age_ms)
    presence = group.presence()
    assert presence.wait_ms(NAME) == wait_ms
    is_read = age_ms <= SILENT_MS_MAX
    age = f" ({HERE}, last sign of life {age_ms / 1000:.1f} s ago)" if is_read else ""
    assert presence.describe(NAME) == f"session 4/s{age}"
    assert not presence.lives(NAME), "it may have died since"
    group.look(presence)
    assert presence.wait_ms(NAME) == max(0, wait_ms - 1_000)


def test_the_first_record_of_time_counts_as_every_other_one() -> None:
    group = Group(0)
    group.append_times()
    group.sign()
    group.cluster.now_ms = 5_000
    presence = group.presence()
    assert presence.wait_ms(NAME) == SILENT_MS_MAX - 5_000
    assert presence.last_sign_ms == 0


def test_a_session_of_which_no_sign_is_there_is_gone(group: Group) -> None:
    group.sign(LOWER, partition=1)
    presence = group.presence()
    assert (presence.wait_ms(NAME), presence.wait_ms(SessionName(0, ""))) == (0, 0)
    assert presence.describe(NAME) == "session 4/s"
    assert presence.input_ids() is None


@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("others", [0, 4])
def test_where_one_log_was_shortened_new_signs_are_waited_for(group: Group, kept: int, others: int) -> None:
    """Of an owner that is known and has no sign; where what is left is young, signs may be missing too."""
    group.sign(LOWER, age_ms=5, partition=1)
    for _ in range(others):
        group.sign(LOWER, partition=2)
    for _ in range(kept):
        group.sign(LOWER, partition=1)
    group.cluster.delete_before(TopicPartition(TOPIC, 1), 1)
    presence = group.presence()
    assert presence.wait_ms(NAME) == CLIPPED_MS
    assert presence.wait_ms(SessionName(0, "")) == 0
    group.look(presence, 1_000)
    assert presence.wait_ms(NAME) == CLIPPED_MS - 1_000
    for _ in range(CLIPPED_MS // 1_000):
        group.look(presence, 1_000)
    assert presence.wait_ms(NAME) == 0


def test_a_log_that_was_shortened_long_ago_and_has_older_signs_lacks_none(group: Group) -> None:
    group.sign(LOWER, age_ms=SILENT_MS_MAX + 9)
    group.sign(LOWER, age_ms=SILENT_MS_MAX + 5)
    group.cluster.delete_before(TopicPartition(TOPIC, 0), 1)
    assert group.presence().wait_ms(NAME) == 0


def test_who_gives_a_sign_after_the_first_read_lives_until_it_leaves(group: Group) -> None:
    group.sign(who=HERE)
    group.sign(who=THERE)
    presence = group.presence()
    group.sign(who=HERE, leaves=True)
    group.look(presence)
    assert not presence.lives(NAME), "the last sign of a process is none that it lives"
    group.sign(who=THERE)
    group.look(presence)
    assert presence.lives(NAME)
    group.sign(who=THERE, leaves=True)
    group.look(presence)
    assert (presence.lives(NAME), presence.wait_ms(NAME), presence.last_sign_ms) == (False, 0, None)


@pytest.mark.parametrize("named", [SessionName(0, ""), NAME, SessionName(9, "z")])
def test_the_newest_session_is_the_highest_of_those_that_live(group: Group, named: SessionName) -> None:
    group.sign(SessionName(8, "old"))
    presence = group.presence()
    assert presence.highest_seen(named) == named
    group.sign(LOWER)
    group.sign(SessionName(5, "u"))
    group.look(presence)
    assert presence.highest_seen(named) == max(named, SessionName(5, "u"))


def test_of_several_processes_of_a_session_the_last_sign_counts(group: Group) -> None:
    group.sign(who=HERE, age_ms=6_000)
    group.sign(who=THERE, age_ms=2_000, partition=1)
    group.sign(who=None, age_ms=9_000, partition=2)
    presence = group.presence()
    assert presence.wait_ms(NAME) == SILENT_MS_MAX - 2_000
    assert presence.describe(NAME) == f"session 4/s ({THERE}, last sign of life 2.0 s ago)"
    assert presence.last_sign_ms == WALL_MS - 2_000
    assert presence.is_same_application(NAME, HERE._replace(pid=1))
    assert presence.is_same_application(NAME, THERE._replace(pid=1))
    assert not presence.is_same_application(NAME, Who("web-1", "other", 11, WALL_MS))
    assert not presence.is_same_application(LOWER, HERE)


def test_the_newest_sign_of_a_process_counts_in_whatever_order_they_are_read(group: Group) -> None:
    group.sign(age_ms=1_000, partition=0)
    group.sign(age_ms=7_000, partition=1)
    assert group.presence().wait_ms(NAME) == SILENT_MS_MAX - 1_000


@pytest.mark.parametrize(
    "event",
    [
        Tick("another", "s", 4, 0),
        Take("g", "s", 0, 0, 3, ()),
        Acks("lane", 1, "g", "s", 4, 65_536, 0, (), b"", b"", (), b"", 0),
    ],
    ids=["another group", "a question", "no sign"],
)
def test_what_is_no_sign_of_the_group_is_passed_over(group: Group, event: Event) -> None:
    group.sign(event=event)
    presence = group.presence()
    group.sign(event=event)
    group.look(presence)
    assert (presence.wait_ms(NAME), presence.lives(NAME), presence.last_sign_ms) == (0, False, None)


INIT: Final = Init("g", "s", 4, 0, WALL_MS - 700, 0, 3, "t", "id", (SourceRun(65_536, 0, 1),))


@pytest.mark.parametrize("event", [Take("g", "s", 4, 0, 3, ()), INIT], ids=["take", "init"])
def test_takes_and_inits_are_signs_too(group: Group, event: Event) -> None:
    presence = group.presence()
    group.sign(event=event, reads=[1])
    group.look(presence)
    assert presence.lives(NAME)
    assert presence.input_ids() is None, "a tick says it"


def test_the_inputs_that_living_processes_read(group: Group) -> None:
    group.sign(LOWER, reads=[7], leaves=True)
    group.sign(reads=[1, 2])
    group.sign(SessionName(5, "u"), reads=[2, 3])
    group.sign(SessionName(5, "u"), event=Init("g", "u", 5, 0, 0, 0, 3, "t", "id", ()))
    presence = group.presence()
    assert presence.input_ids() == frozenset({1, 2, 3})
    group.sign(SessionName(6, "v"))
    group.look(presence)
    assert presence.input_ids() is None, "one does not say it"


def test_what_the_reads_header_says() -> None:
    assert read_inputs(sign_headers(None, reads=[3, 1])) == frozenset({1, 3})
    assert read_inputs(()) is None
    assert read_inputs(((READS_HEADER, None),)) is None
    assert read_inputs(((READS_HEADER, b"1,x"),)) is None
    assert sign_headers(None) == ()
    assert dict(sign_headers(HERE)).keys() == {WHO_HEADER}


def test_the_times_of_the_newest_signs_of_the_living_are_kept() -> None:
    group = Group()
    topic_ms = group.cluster.now_ms
    group.append_times()
    for number in range(TIMES_MAX + 3):
        group.sign(clock_ms=topic_ms + number)
    group.sign(LOWER, clock_ms=5, leaves=True)
    group.sign(SessionName(5, "u"), event=INIT.__class__("g", "u", 5, 0, 99, 0, 3, "t", "id", ()))
    times = group.presence().writer_times()
    assert times == [
        *(WriterTime(topic_ms + number, topic_ms) for number in range(3, TIMES_MAX + 3)),
        WriterTime(99, topic_ms),
    ]


def test_signs_behind_an_open_transaction_are_read(group: Group) -> None:
    """Somebody else's: our signs are written outside of any."""
    writer = group.log.transactions("somebody's")
    writer.init(0)
    writer.begin()
    writer.send(Outgoing(TOPIC, 0, b"x"))
    writer.flush(0)
    group.sign()
    assert group.presence().wait_ms(NAME) == SILENT_MS_MAX


class Looks(NoFaults):
    """Counts how often ends are asked for."""

    def __init__(self) -> None:
        """Begin with none."""
        self.count = 0

    def before(self, operation: str) -> None:
        """Count one."""
        self.count += operation == "ends"


def test_it_looks_at_most_four_times_a_second(group: Group) -> None:
    looks = Looks()
    presence = group.presence(faults=looks)
    counts: list[int] = []
    for ms in (SIGNS_EVERY_MS - 1, 1, SIGNS_EVERY_MS - 1, 1, 1):
        group.look(presence, ms)
        counts.append(looks.count - 1)
    assert counts == [0, 1, 1, 2, 2]


# --- partitions without a leader


class LosingLog(MemoryLog):
    """A log of which a partition loses its leader when somebody begins to read."""

    def reader(self, *, committed: bool, patient: bool = False) -> Reader:
        """Make a reader."""
        self._broker.lose_leader(TOPIC, 1)
        return super().reader(committed=committed, patient=patient)


@pytest.mark.parametrize("is_lost_first", [True, False], ids=["before", "meanwhile"])
def test_who_does_not_wait_is_told_at_once_of_a_partition_without_a_leader(
    group: Group, is_lost_first: bool
) -> None:
    """And leaves no reader behind."""
    log = LosingLog(group.cluster, NoFaults())
    if is_lost_first:
        group.cluster.lose_leader(TOPIC, 1)
    with pytest.raises(PartitionStands, match=r"whether the owner of group g lives is unknown: _ack_init/1"):
        group.presence(log)
    assert not log.open_readers


def test_who_waits_reads_the_rest_when_there_is_a_leader_again(group: Group) -> None:
    group.sign(partition=1, age_ms=1_000)
    group.sign(LOWER, age_ms=1_000)
    log = LosingLog(group.cluster, NoFaults())
    presence = group.presence(log, patient=True)
    assert presence.wait_ms(NAME) == SIGNS_EVERY_MS
    assert presence.wait_ms(SessionName(0, "")) == 0, "nobody owns the group, so no sign can be missing"
    group.look(presence)
    assert presence.wait_ms(NAME) == SIGNS_EVERY_MS
    group.cluster.elect_leader(TOPIC, 1)
    group.look(presence)
    assert presence.wait_ms(NAME) == SILENT_MS_MAX - 3_000
    assert not presence.lives(NAME), "what the first read should have got is no sign that it lives"
    group.sign(partition=1)
    group.look(presence)
    assert presence.lives(NAME)


def test_a_question_that_needs_a_leader_at_the_start_is_not_answered_without(group: Group) -> None:
    group.cluster.lose_leader(TOPIC, 1)
    with pytest.raises(PartitionStands, match="has no leader") as raised:
        group.presence(patient=True)
    assert "is unknown" not in str(raised.value)


def test_a_partition_that_gets_no_leader_for_a_minute_ends_the_wait(group: Group) -> None:
    presence = group.presence(LosingLog(group.cluster, NoFaults()), patient=True)
    for _ in range(UNREAD_MS_MAX // 1_000 - 1):
        group.look(presence)
    with pytest.raises(PartitionStands, match="whether the owner of group g lives is unknown"):
        group.look(presence)


def test_signs_that_do_not_come_for_a_minute_end_the_wait_and_name_the_topic(group: Group) -> None:
    group.sign(partition=1)
    group.cluster.fall_silent(TOPIC, 1)
    presence = group.presence(patient=True)
    for _ in range(UNREAD_MS_MAX // 1_000 - 1):
        group.look(presence)
    with pytest.raises(Unreachable, match="_ack_init: the broker does not send all records of the last 10 s"):
        group.look(presence)


def test_once_all_was_read_a_lost_leader_holds_up_nobody(group: Group) -> None:
    presence = group.presence()
    group.cluster.lose_leader(TOPIC, 1)
    for _ in range(UNREAD_MS_MAX // 1_000 + 1):
        group.look(presence)
    assert presence.wait_ms(NAME) == 0
    group.sign()
    group.look(presence)
    assert presence.lives(NAME)


def test_a_reader_is_closed_with_it_and_where_the_first_read_fails(group: Group) -> None:
    group.sign()
    log = group.cluster.log()
    presence = group.presence(log)
    assert log.open_readers
    presence.close()
    assert not log.open_readers
    failing = group.cluster.log(failing_polls())
    with pytest.raises(Unreachable):
        group.presence(failing)
    assert not failing.open_readers


def failing_polls() -> Failing:
    faults = Failing("poll", Unreachable("gone"))
    faults.is_on = True
    return faults


# --- processes


def test_a_process_that_ended_and_was_not_waited_for_is_dead() -> None:
    """Its parent may be busy: a zombie plans nothing."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert Who.here("words", WALL_MS)._replace(pid=ended.pid).is_dead


def test_signs_of_a_process_that_died_on_this_machine_count_no_more(group: Group) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    dead = Who.here("words", WALL_MS)._replace(pid=ended.pid)
    group.sign(who=dead)
    presence = group.presence()
    assert presence.wait_ms(NAME) == 0
    group.sign(who=dead)
    group.look(presence)
    assert not presence.lives(NAME)


@pytest.mark.parametrize(("since_ms", "read_ms"), [(-5, 0), (0, 0), (1, 1), (1 << 70, 253_402_300_799_999)])
def test_a_beginning_outside_of_the_calendar_is_read_as_its_edge(since_ms: int, read_ms: int) -> None:
    who = Who.read(sign_headers(HERE._replace(since_ms=since_ms)))
    assert who is not None
    assert who.since_ms == read_ms


def test_a_session_is_described_after_one_read_and_by_its_name_alone_where_that_fails() -> None:
    world = World()
    spec = PlannerSpec(tuple(world.topics.inputs.values()), world.topics.ack_topics, 3)
    producer = world.log.producer()
    tick = wire_codec().encode(Tick("g", "s", 4, 0))
    producer.send(Outgoing(TOPIC, 0, tick, headers=sign_headers(HERE)))
    producer.flush(0)
    assert describe_session(world.log, spec, NAME, world.now_ms) == (
        f"session 4/s ({HERE}, last sign of life 0.0 s ago)"
    )
    world.cluster.lose_leader(TOPIC, 1)
    assert describe_session(world.log, spec, NAME, world.now_ms) == "session 4/s"
    world.cluster.elect_leader(TOPIC, 1)
    assert describe_session(world.cluster.log(failing_polls()), spec, NAME, world.now_ms) == "session 4/s"
