"""A planner that is called in any order: what its status says, and what is refused and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from acker.errors import SessionSuperseded, TopicError, Unreachable, UsageError
from acker.kafka.port import TopicPartition
from acker.wire.codec import wire_codec
from acker.wire.events import Tick
from spout.group.announce import LEAVE_MS, SIGNS_AT, Announcer
from spout.group.presence import LEAVES_HEADER, SIGN_EVERY_MS
from spout.planning.journal import BEGINNING
from spout.planning_process.planner import Planner
from tests.support.memory.cluster import MemoryLog
from tests.support.worlds.planning import WHO, World, batch


def word(planner: Planner, error: str = "") -> str:
    """Return what a status says of a planner."""
    return planner.status(0, error).state


def signs(world: World) -> list[bool]:
    """Return the ticks of the first acker partition, each as whether it says goodbye."""
    reader = world.log.reader(committed=True)
    reader.assign({TopicPartition(world.topics.ack_topics.init, SIGNS_AT): 0})
    records = reader.poll(0, 100_000)
    decoded = [(wire_codec().decode(record.value), dict(record.headers)) for record in records]
    return [LEAVES_HEADER in headers for event, headers in decoded if isinstance(event, Tick)]


def test_a_status_names_what_a_planner_is_from_its_beginning_to_its_end() -> None:
    world = World()
    planner = world.make()
    assert (word(planner), planner.is_open, planner.is_reading) == ("idle", False, False)
    planner.open(BEGINNING, world.now_ms)
    assert (word(planner), planner.is_open, planner.is_reading) == ("taking", True, True)
    assert not planner.is_ready
    world.run(1_000)
    assert (word(planner), planner.is_ready) == ("running", True)
    planner.leave()
    assert word(planner) == "running"
    assert word(planner, "a bolt is broken") == "failed"
    planner.close()
    assert (word(planner), word(planner, "a bolt is broken")) == ("closed", "failed")


def test_an_untracked_planner_is_ready_at_once_and_reads_nothing_of_the_ackers() -> None:
    world = World()
    planner = world.planner(tracked=False)
    assert (word(planner), planner.is_ready, planner.is_reading) == ("running", True, False)
    planner.leave()
    world.run(3 * SIGN_EVERY_MS)
    planner.close()
    assert (word(planner), signs(world)) == ("closed", [])


@pytest.mark.parametrize("is_opened", [False, True])
def test_what_needs_a_group_is_refused_before_it_is_taken_and_closing_is_not(is_opened: bool) -> None:
    world = World()
    planner = world.make()
    if is_opened:
        planner.open(BEGINNING, world.now_ms)
    calls: list[Callable[[], object]] = [
        lambda: planner.plan(BEGINNING, None, world.now_ms),
        lambda: planner.wait_for_records(0),
        planner.leave,
        planner.commit,
        planner.is_drained,
        planner.first_uninitialised_positions,
    ]
    for call in calls:
        with pytest.raises(UsageError, match="the planner has not taken its group; step it until is_ready"):
            call()
    assert word(planner) == ("taking" if is_opened else "idle")
    planner.close()
    planner.close()
    assert not planner.is_ready


def test_a_planner_is_opened_once_and_goes_on_where_it_is_opened_again() -> None:
    world = World()
    world.produce(3)
    planner = world.planner()
    with pytest.raises(
        UsageError, match=r"the session asks who owns the group, so it cannot happen that its"
    ):
        planner.open(BEGINNING, world.now_ms)
    world.run(1_000)
    assert planner.is_ready
    with pytest.raises(UsageError, match=r"the session owns the group, so it cannot happen"):
        planner.open(BEGINNING, world.now_ms)
    assert batch(planner, BEGINNING, world) != BEGINNING


def test_a_planner_whose_topics_are_missing_is_not_open_and_can_be_opened_when_they_are_there() -> None:
    world = World()
    world.cluster.delete_topic("sentences")
    planner = world.make()
    with pytest.raises(TopicError):
        planner.open(BEGINNING, world.now_ms)
    assert not planner.is_open
    world.cluster.create_topic("sentences", 2)
    planner.open(BEGINNING, world.now_ms)
    world.run(1_000)
    assert planner.is_ready


class Goodbyes:
    """An announcer's last signs of life, which the broker may not take."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, is_lost: bool = False) -> None:
        self.count = 0
        original = Announcer.send_goodbye

        def leave(announcer: Announcer, *arguments: Any) -> None:
            self.count += 1
            if is_lost:
                raise Unreachable(f"the broker did not have it after {LEAVE_MS} ms")
            original(announcer, *arguments)

        monkeypatch.setattr(Announcer, "send_goodbye", leave)


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_planner_says_goodbye_once_and_gives_no_sign_until_it_is_asked_for_records(
    monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    goodbyes = Goodbyes(monkeypatch, is_lost=is_lost)
    world = World()
    planner = world.ready(who=WHO)
    planner.leave()
    planner.leave()
    assert goodbyes.count == 1
    silent = len(signs(world))
    world.run(3 * SIGN_EVERY_MS)
    assert len(signs(world)) == silent
    planner.plan(BEGINNING, None, world.now_ms)
    world.run(100)
    assert signs(world)[silent:] == [False]
    planner.leave()
    silent = len(signs(world))
    planner.plan(BEGINNING, None, world.now_ms)
    world.run(100)
    assert signs(world)[silent:] == [False], "it says at once that it lives"
    planner.leave()
    planner.close()
    assert goodbyes.count == 3


CLOSINGS: Final[list[Callable[[Planner], object]]] = [Planner.close, Planner.leave]


@pytest.mark.parametrize("has_left", [False, True])
def test_a_planner_that_has_lost_its_group_commits_nothing_and_says_no_goodbye(
    monkeypatch: pytest.MonkeyPatch, has_left: bool
) -> None:
    """Its commits would be those from before a reset, and its goodbye nobody's."""
    goodbyes = Goodbyes(monkeypatch)
    world = World()
    world.produce(10)
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end)
    if has_left:
        planner.leave()
    before = goodbyes.count
    higher = world.make(who=WHO, take_over=True)
    higher.open(BEGINNING, world.now_ms)
    with pytest.raises(SessionSuperseded):
        world.run(2_000)
    commits: list[object] = []
    monkeypatch.setattr(MemoryLog, "commit", lambda *arguments: commits.append(arguments))
    assert word(planner) == "running"
    planner.wait_for_records(0)  # another thread may just do it
    for closing in (*CLOSINGS, *CLOSINGS):
        closing(planner)
    assert (commits, goodbyes.count) == ([], before)
    assert word(planner) == "closed"


def test_a_closed_planner_plans_nothing() -> None:
    world = World()
    world.produce(10)
    planner = world.ready()
    planner.close()
    with pytest.raises(UsageError, match=r"the session is closed, so it cannot happen that it asks"):
        planner.plan(BEGINNING, None, world.now_ms)
    assert planner.status(world.now_ms).emitted == 0


class Refused(Exception):
    """What a commit raises, of a kind that nobody expects."""


def test_all_of_a_planner_is_closed_though_its_last_commit_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    closed: list[str] = []
    original = Announcer.close

    def close(announcer: Announcer) -> None:
        closed.append("announcer")
        original(announcer)

    def refuse(_planner: Planner) -> None:
        raise Refused

    monkeypatch.setattr(Announcer, "close", close)
    planner = world.ready()
    monkeypatch.setattr(Planner, "commit", refuse)
    with pytest.raises(Refused):
        planner.close()
    assert (closed, word(planner)) == (["announcer"], "closed")


def test_a_holder_that_may_live_is_named_as_what_is_waited_for() -> None:
    world = World()
    old = world.ready(who=WHO)
    world.run(500)
    world.kill(old)
    planner = world.planner()
    assert "acker partition 0, 1, 2 to answer" in planner.waits_for()
    world.run(1_000)
    assert planner.waits_for() == "its holder to be silent, since nobody knows whether it lives"
    assert word(planner) == "taking"
    world.run(20_000)
    assert (planner.waits_for(), planner.is_ready) == ("", True)
