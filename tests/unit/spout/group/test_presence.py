"""Who holds a group and whether he lives: a query with a checkpoint of its own ends no living one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest

from acker.errors import SessionRefused, Unreachable
from acker.kafka.port import Outgoing, Record, TopicPartition
from acker.wire.codec import wire_codec
from acker.wire.events import Tick
from spout.group.announce import SIGNS_AT
from spout.group.presence import (
    LEAVES_HEADER,
    SIGN_EVERY_MS,
    SILENT_MS_MAX,
    TEXT_MAX,
    UNREAD_MS_MAX,
    WHO_HEADER,
    Presence,
    Who,
    sign_headers,
)
from spout.planning.journal import BEGINNING
from spout.planning.session import SessionName
from spout.planning_process.planner import Planner
from tests.support.memory.clients import MemoryReader, NoFaults
from tests.support.memory.cluster import MemoryLog
from tests.support.worlds.planning import FLUSH_MS, STEP_MS, WALL_MS, WHO, World, batch

OTHER = Who("web-2", "words again", 12, WALL_MS)


def waited_ms(world: World, planner: Planner) -> int:
    """Let a planning process take its group and return how long that took."""
    began_ms = world.now_ms
    while not planner.is_ready and world.now_ms < began_ms + 60_000:
        world.run(STEP_MS)
    assert planner.is_ready
    return world.now_ms - began_ms


def look_for(world: World, presence: Presence, ms: int) -> None:
    """Let time pass for who looks again and again whether an owner lives."""
    for _ in range(ms // STEP_MS):
        world.cluster.now_ms += STEP_MS
        presence.read_new_signs(world.now_ms)


@pytest.mark.parametrize("records", [0, 10], ids=["idle", "with open roots"])
def test_a_second_query_of_a_living_group_is_refused_and_told_who_holds_it(records: int) -> None:
    world = World()
    world.produce(records)
    first = world.ready(who=WHO)
    if records:
        batch(first, BEGINNING, world)
    world.run(SILENT_MS_MAX + 5_000 if not records else 1_000)
    refusal = (
        r"group g is held by session 1/s1 \(words on host web-1, process 4711, since 2027-01-15"
        r" 08:00:00\+00:00, last sign of life \d\.\d s ago\).*spout\.read_stream\(\.\.\., take_over=True\)"
    )
    second = world.planner(who=OTHER)
    with pytest.raises(SessionRefused, match=refusal):
        world.run(SIGN_EVERY_MS + 1_000)
    world.kill(second)
    world.run(1_000)
    assert first.status(world.now_ms).state == "running"
    assert first.status(world.now_ms).session == "s1"


def test_a_second_source_of_the_same_application_is_told_what_reads_a_stream_twice() -> None:
    world = World()
    world.ready(who=WHO)
    world.planner(who=WHO._replace(pid=4712))
    with pytest.raises(SessionRefused, match=r"read one stream more than once; .*spout\.TopologyBuilder's"):
        world.run(SIGN_EVERY_MS + 1_000)


def test_a_group_whose_holder_died_is_taken_once_he_was_silent_for_the_limit_and_says_so() -> None:
    world = World()
    first = world.ready(who=WHO)
    world.run(3_000)
    world.kill(first)
    second = world.planner(who=OTHER)
    waited = waited_ms(world, second)
    assert SILENT_MS_MAX - SIGN_EVERY_MS <= waited <= SILENT_MS_MAX + 1_000
    assert world.told.count("group_is_held") == 1
    assert second.status(world.now_ms).epoch == 2


def test_a_start_does_not_end_the_writer_of_another_checkpoint_that_lives() -> None:
    """Rule 12: whoever opens the store fences, so nobody opens it who is refused then."""
    world = World()
    world.produce(3)
    grants: list[int] = []

    def grant(epoch_min: int) -> int:
        grants.append(epoch_min)
        return epoch_min

    first = world.ready(who=WHO, grant_epoch=grant)
    end = batch(first, BEGINNING, world)
    world.kill(first)
    world.ready(who=OTHER, take_over=True, grant_epoch=grant)
    second = world.planner(end, who=WHO, grant_epoch=grant)
    with pytest.raises(SessionRefused, match="group g is held by session 2/s2"):
        world.run(SIGN_EVERY_MS + 1_000)
    assert grants == [1, 2]
    assert not second.is_ready


def test_a_group_whose_holder_died_long_ago_is_taken_at_once() -> None:
    world = World()
    world.kill(world.ready(who=WHO))
    world.run(SILENT_MS_MAX + 1_000)
    assert waited_ms(world, world.planner()) < 1_000


def test_a_group_is_taken_at_once_when_its_holder_has_left_in_order() -> None:
    world = World()
    first = world.ready(who=WHO)
    world.kill(first)
    first.close()
    assert waited_ms(world, world.planner()) < 1_000
    assert "group_is_held" not in world.told


def test_a_group_is_taken_at_once_when_its_holder_died_on_this_machine() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as holder:
        who = Who.here("words", WALL_MS)._replace(pid=holder.pid)
        world = World()
        world.kill(world.ready(who=who))
        second = world.planner(who=OTHER)
        world.run(3_000)
        assert not second.is_ready
        holder.kill()
        holder.wait()
        assert waited_ms(world, second) < 1_000


def test_a_process_of_another_machine_is_never_known_to_be_dead() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    here = Who.here("words", WALL_MS)._replace(pid=ended.pid)
    assert here.is_dead
    assert not here._replace(space="another boot/pid:[1]").is_dead
    assert not here._replace(space="").is_dead
    assert not Who.here("words", WALL_MS).is_dead


def test_a_query_that_ends_and_plans_something_after_all_lives_again() -> None:
    world = World()
    first = world.ready(who=WHO)
    first.leave()
    world.produce(3)
    batch(first, BEGINNING, world)
    world.run(1_000)
    world.planner()
    with pytest.raises(SessionRefused):
        world.run(SIGN_EVERY_MS + 1_000)


@pytest.mark.parametrize("plans", [True, False])
@pytest.mark.parametrize("paused_ms", [STEP_MS, SILENT_MS_MAX])
def test_a_topology_that_is_resumed_and_finds_no_records_lives_again(plans: bool, paused_ms: int) -> None:
    """Its last sign said that it leaves, and the next records may come tomorrow."""
    world = World()
    first = world.ready(who=WHO)
    first.leave()
    world.run(paused_ms)
    if plans:
        batch(first, BEGINNING, world)
    else:
        first.wait_for_records(0)
    world.run(5 * STEP_MS)
    world.planner(who=OTHER)
    with pytest.raises(SessionRefused):
        world.run(SIGN_EVERY_MS + 1_000)


def test_a_restart_that_ends_within_seconds_leaves_for_good() -> None:
    """While the process before may live, it ticks with nothing open; not once it has left."""
    world = World()
    world.produce(3)
    first = world.ready(who=WHO)
    end = batch(first, BEGINNING, world)
    world.publish(BEGINNING, end)
    world.run(1_000)
    first.leave()
    world.kill(first)
    again = world.ready(end, who=OTHER)
    again.leave()
    world.run(1_000)
    world.kill(again)
    assert waited_ms(world, world.planner()) < 1_000


def test_a_restart_from_the_checkpoint_waits_for_nobody() -> None:
    world = World()
    world.produce(3)
    first = world.ready(who=WHO)
    end = batch(first, BEGINNING, world)
    world.kill(first)
    again = world.planner(end, who=OTHER)
    assert waited_ms(world, again) < 1_000
    assert again.status(world.now_ms).session == "s1"


def test_take_over_takes_a_living_group_at_once() -> None:
    world = World()
    world.kill(world.ready(who=WHO))
    assert waited_ms(world, world.planner(take_over=True)) < 1_000


def test_signs_of_a_lower_session_do_not_keep_a_group() -> None:
    """A query that was superseded ticks on until it notices; so does a frozen one that wakes up."""
    world = World()
    world.kill(world.ready())
    world.kill(world.ready(take_over=True))
    world.run(SILENT_MS_MAX)
    third = world.planner()
    zombie = Outgoing(world.topics.ack_topics.init, 0, wire_codec().encode(Tick("g", "s1", 1, WALL_MS)))
    producer = world.log.producer()
    for _ in range(5):
        producer.send(zombie)
        producer.flush(FLUSH_MS)
        world.run(STEP_MS)
    assert waited_ms(world, third) < 1_000


def test_where_an_acker_has_just_shortened_the_log_a_newcomer_looks_for_new_signs() -> None:
    world = World()
    world.ready(who=WHO)
    world.run(1_000)
    places = [TopicPartition(world.topics.ack_topics.init, p) for p in range(3)]
    world.log.delete_before(world.log.ends(places))
    world.planner()
    with pytest.raises(SessionRefused, match="web-1"):
        world.run(SIGN_EVERY_MS + 1_000)


def test_the_first_query_of_a_group_does_not_wait_where_signs_of_other_groups_were_shortened_away() -> None:
    world = World()
    producer = world.log.producer()
    other = wire_codec().encode(Tick("another", "s9", 1, WALL_MS))
    producer.send(Outgoing(world.topics.ack_topics.init, SIGNS_AT, other, headers=sign_headers(OTHER)))
    producer.flush(FLUSH_MS)
    world.run(1_000)
    places = [TopicPartition(world.topics.ack_topics.init, p) for p in range(3)]
    world.log.delete_before(world.log.ends(places))
    assert waited_ms(world, world.planner(who=WHO)) < 1_000


def test_a_process_that_leaves_does_not_speak_for_another_one_of_its_session() -> None:
    """Spark's old planning process may end after the new one has begun."""
    world = World()
    world.kill(world.ready())
    topic, name = world.topics.ack_topics.init, SessionName(1, "s1")
    tick = wire_codec().encode(Tick("g", "s1", 1, WALL_MS))
    producer = world.log.producer()
    world.run(SILENT_MS_MAX)
    producer.send(Outgoing(topic, SIGNS_AT, tick, headers=sign_headers(WHO)))
    producer.send(Outgoing(topic, SIGNS_AT, tick, headers=sign_headers(OTHER, leaves=True)))
    producer.flush(FLUSH_MS)
    presence = Presence(world.log, topic, 3, "g", world.now_ms)
    assert presence.wait_ms(name) == SILENT_MS_MAX
    producer.send(Outgoing(topic, SIGNS_AT, tick, headers=sign_headers(WHO, leaves=True)))
    producer.flush(FLUSH_MS)
    world.cluster.now_ms += 1_000
    presence.read_new_signs(world.now_ms)
    assert (presence.wait_ms(name), presence.lives(name)) == (0, False)


class SlowReader(MemoryReader):
    """Brings nothing while it is silent."""

    is_silent = True

    def poll(self, timeout_ms: int, max_records: int = 1000) -> Sequence[Record]:
        """Poll, or bring nothing."""
        return () if self.is_silent else super().poll(timeout_ms, max_records)


class SlowLog(MemoryLog):
    """A log whose reader waits for a leader that is silent."""

    def reader(self, *, committed: bool, patient: bool = False) -> SlowReader:
        """Make the reader."""
        self.slow = SlowReader(self._broker, self._faults, committed=committed)
        return self.slow


def test_a_holder_whose_signs_the_broker_does_not_send_is_waited_for() -> None:
    """It counted as gone, and a living query was ended."""
    world = World()
    world.ready(who=WHO)
    log, topic, name = SlowLog(world.cluster, NoFaults()), world.topics.ack_topics.init, SessionName(1, "s1")
    presence = Presence(log, topic, 3, "g", world.now_ms)
    assert presence.wait_ms(name) > 0
    look_for(world, presence, UNREAD_MS_MAX - STEP_MS)
    assert presence.wait_ms(name) > 0
    log.slow.is_silent = False
    world.cluster.now_ms += 1_000
    presence.read_new_signs(world.now_ms)
    assert (presence.wait_ms(name), presence.lives(name)) == (0, False), "it was silent since"


def test_a_broker_that_never_sends_the_signs_of_a_group_is_unreachable() -> None:
    world = World()
    world.ready(who=WHO)
    topic = world.topics.ack_topics.init
    presence = Presence(SlowLog(world.cluster, NoFaults()), topic, 3, "g", world.now_ms)
    with pytest.raises(Unreachable, match=r"the owner of group g lives; start it, or wait"):
        look_for(world, presence, UNREAD_MS_MAX)


def test_signs_of_an_older_version_count_without_a_name() -> None:
    world = World()
    world.ready()
    world.planner()
    with pytest.raises(SessionRefused, match=r"held by session 1/s1 \(last sign of life \d\.\d s ago\)"):
        world.run(SIGN_EVERY_MS + 1_000)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"\xff",
        b"{}",
        b"[]",
        b'["a", "b", "c", 1, ""]',
        b'["a", "b", 1, 1e999, ""]',
        b"[1, 2",
        b"[" * 10_000,
    ],
)
def test_a_header_that_says_nothing_is_read_as_nobody(value: bytes | None) -> None:
    assert Who.read(((WHO_HEADER, value),)) is None


def test_names_travel_bounded_and_are_never_commands_to_a_terminal() -> None:
    found = Who.read(sign_headers(Who("h\x1b[2J", "a" * 1_000, 1, 1 << 70)))
    assert found is not None
    assert (found.host, found.application) == ("h\x1b[2J", "a" * TEXT_MAX)
    assert f"{'a' * TEXT_MAX} on host h%1B[2J, process 1" in str(found)
    assert "9999" in str(found)


def test_every_sign_names_its_process_and_an_idle_session_gives_one_now_and_then() -> None:
    world = World()
    world.ready(who=WHO)
    world.run(20_000)
    reader = world.log.reader(committed=False)
    reader.assign({TopicPartition(world.topics.ack_topics.init, p): 0 for p in range(3)})
    records: list[Record] = list(reader.poll(0, 100_000))
    ticks = [record for record in records if isinstance(wire_codec().decode(record.value), Tick)]
    assert {record.partition for record in ticks} == {SIGNS_AT}
    assert 20_000 // SIGN_EVERY_MS - 1 <= len(ticks) <= 20_000 // SIGN_EVERY_MS + 1
    assert {Who.read(record.headers) for record in records} == {WHO}
    assert not any(LEAVES_HEADER in dict(record.headers) for record in records)
