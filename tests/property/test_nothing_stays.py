"""What State keeps is of what lives: after any history nothing of ended sessions, groups and ranges is in it.

A State that keeps a mark of each session that ever wrote grows with each restart without a checkpoint, and
is written again with every transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from acker.config.limits import AckerLimits
from acker.identity import source_of
from acker.kafka.port import TopicPartition
from acker.service.freeing import Freeing
from acker.service.state import LastState, read_last_state, state_codec
from tests.support.worlds.acker_world import TOPICS, World, Writer

TIMEOUT_MS = 2_000
SOURCES = {"one": source_of(1, 3), "two": source_of(2, 0)}
LANES = ("query", "another query")

groups = st.sampled_from(sorted(SOURCES))
steps = st.one_of(
    st.tuples(st.sampled_from(["take", "take_again", "crash", "work", "late"]), groups, st.just(0)),
    st.tuples(st.sampled_from(["emit", "emit", "ack", "ack", "fail", "tick"]), groups, st.integers(1, 4)),
)


@dataclass
class History:
    """What sessions of two groups write, and an acker that reads it."""

    world: World
    number: int = 0
    writers: dict[str, Writer] = field(default_factory=dict)
    former: dict[str, Writer] = field(default_factory=dict)
    emitted: dict[str, int] = field(default_factory=dict)
    clock_ms: int = 0

    def take(self, group: str) -> None:
        """Let a new session own a group."""
        self.number += 1
        if group in self.writers:
            self.former[group] = self.writers[group]
        topic = f"topic {group}"
        writer = self.world.session(f"s{self.number}", self.number, group, topic)
        writer.take(now=self.clock_ms, sources=[SOURCES[group]])
        self.writers[group] = writer

    def do(self, step: str, group: str, count: int) -> None:
        """Do one step; without a session of the group it is a take."""
        if step == "work":
            self.world.settle()
        elif step == "crash":
            self.world.crash()
        elif step == "take" or group not in self.writers:
            self.take(group)
        elif step == "take_again":
            self.writers[group].take(now=self.clock_ms, sources=[SOURCES[group]])
        elif step == "late":
            self.contribute(self.former.get(group, self.writers[group]), group, 1, is_fail=False)
            self.contribute(self.former.get(group, self.writers[group]), group, 1, is_fail=True)
        elif step == "tick":
            self.clock_ms += 700 * count
            self.writers[group].tick(self.clock_ms)
        elif step == "emit":
            first = self.emitted.get(group, 0)
            self.emitted[group] = first + count
            run = (first, first + count)
            source = SOURCES[group]
            self.writers[group].init(run, now=self.clock_ms, source=source, timeout_ms=TIMEOUT_MS)
        else:
            self.contribute(self.writers[group], group, count, is_fail=step == "fail")

    def contribute(self, writer: Writer, group: str, back: int, *, is_fail: bool) -> None:
        """Ack or fail a root near the end of what is emitted."""
        position = max(0, self.emitted.get(group, 0) - back)
        self.number += 1
        lane = f"{LANES[back % len(LANES)]}/{writer.session}"
        if is_fail:
            writer.fails(position, seq=self.number, lane=lane, source=SOURCES[group])
        else:
            run = (position, position + 1)
            writer.acks(runs=[run], seq=self.number, lane=lane, source=SOURCES[group])

    def state(self) -> LastState:
        """Return the last State in the log."""
        where = TopicPartition(TOPICS.state, 0)
        last = read_last_state(self.world.writer_log, where, state_codec(), wait_ms=0)
        assert last is not None
        return last


def history(refold_bytes: int, lanes: int = 1_000) -> History:
    limits = AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=0, refold_bytes=refold_bytes, lanes=lanes)
    return History(World(limits=limits))


def sessions_in(last: LastState) -> set[str]:
    """Return the ids of all sessions that a State names, wherever it does."""
    named = {stored.session for stored in last.state.sessions}
    return named | {session.id for session in last.shared}


def lanes_in(last: LastState) -> set[str]:
    """Return the ids of sessions of which a State has marks."""
    state = last.state
    return {state.sessions[lane.session].session for lane in (*state.acks, *state.fails)}


def require_owners_alone(play: History, *, late_contributions: bool) -> None:
    """Let other sessions take the groups, and require that State names these alone."""
    for group in SOURCES:
        play.take(group)
    play.world.settle()
    if late_contributions:
        for group in SOURCES:
            play.do("late", group, 1)
        play.world.settle()
        for group in SOURCES:  # so that State is written behind them
            play.do("emit", group, 1)
            play.do("ack", group, 1)
        play.world.settle()
    owners = {writer.session for writer in play.writers.values()}
    last = play.state()
    assert sessions_in(last) == owners
    assert lanes_in(last) == (owners if late_contributions else set())
    assert (last.state.emissions, last.state.pending, last.state.ranges) == ((), (), b"")
    assert (last.bins, last.notes.deadlines_ms, last.shared) == ({}, {}, {})
    assert {source.source for source in last.state.sources} <= set(SOURCES.values())


@given(st.lists(steps, max_size=30), st.booleans(), st.sampled_from([1, 1 << 20]))
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_after_a_takeover_of_each_group_state_names_its_owners_and_nothing_else(
    drawn: list[tuple[str, str, int]], late_contributions: bool, refold_bytes: int
) -> None:
    """Where what is carried in bins was open, the bins go with it; late contributions leave nothing."""
    play = history(refold_bytes)
    for step, group, count in drawn:
        play.do(step, group, count)
    require_owners_alone(play, late_contributions=late_contributions)


@pytest.mark.parametrize("works", [True, False], ids=["read before", "read together"])
@pytest.mark.parametrize("crashes", [True, False], ids=["after a restart", "in one process"])
@pytest.mark.parametrize("late_contributions", [True, False], ids=["writes on", "is silent"])
@pytest.mark.parametrize("refold_bytes", [1, 1 << 20], ids=["carried in bins", "read again"])
def test_a_takeover_leaves_nothing_of_the_sessions_before(
    works: bool, crashes: bool, late_contributions: bool, refold_bytes: int
) -> None:
    """The same for a few histories that are always the same: a bug shows at once."""
    play = history(refold_bytes)
    for group in (*SOURCES, *SOURCES):
        for step, count in (("take", 0), ("emit", 4), ("ack", 4), ("ack", 3), ("fail", 2), ("tick", 1)):
            play.do(step, group, count)
        if works:
            play.world.settle()
        if crashes:
            play.world.crash()
    require_owners_alone(play, late_contributions=late_contributions)


@given(st.lists(steps, max_size=25))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_at_no_time_does_state_name_more_sessions_than_own_or_wait(
    drawn: list[tuple[str, str, int]],
) -> None:
    """While takes count at once, a session that was taken over is gone from the next State."""
    play = history(1 << 20)
    play.take("one")
    for step, group, count in drawn:
        play.do(step, group, count)
        play.world.settle()
        owners = {writer.session for writer in play.writers.values()}
        last = play.state()
        assert sessions_in(last) <= owners
        assert len(last.state.acks) + len(last.state.fails) <= 2 * len(LANES) * len(SOURCES)


@pytest.mark.parametrize("crashes", [False, True], ids=["in one process", "with restarts"])
@pytest.mark.parametrize("is_fail", [False, True], ids=["acks", "fails"])
def test_ended_sessions_leave_room_for_the_lanes_of_others(crashes: bool, is_fail: bool) -> None:
    """More lanes than there may be at once are written one after another; none is put aside."""
    play = history(1 << 20, lanes=len(LANES))
    for _ in range(5):
        play.take("one")
        play.world.settle()  # the lanes of the session before are free when the take counts
        play.do("emit", "one", 4)
        for count in (1, 2, 3, 4):
            play.do("fail" if is_fail else "ack", "one", count)
        play.world.settle()
        if crashes:
            play.world.crash()
    assert play.world.quarantined() == []
    assert set(play.world.of(SOURCES["one"]).values()) == {"FAILED" if is_fail else "ACKED"}


def is_of_one(input_id: int, group: str) -> bool:
    return group == "one"


@pytest.mark.parametrize("crashes", [False, True], ids=["in one process", "after a restart"])
@pytest.mark.parametrize("is_open", [False, True], ids=["settled", "with an open root"])
@pytest.mark.parametrize("others", [0, 1], ids=["alone", "beside another group"])
def test_nothing_of_a_group_that_was_freed_stays(crashes: bool, is_open: bool, others: int) -> None:
    """Its sources keep their generation where positions were initialised, and no name."""
    play = history(1 << 20)
    for group in sorted(SOURCES)[: others + 1]:
        for step, count in (("take", 0), ("emit", 3), ("ack", 3), ("fail", 2), ("tick", 1)):
            play.do(step, group, count)
    play.world.settle()
    if not is_open:
        play.do("ack", "one", 1)
        play.world.settle()
    play.world.acker.close()
    freeing = Freeing(play.world.writer_log, TOPICS, 1, "windhover-acker", AckerLimits())
    claims = freeing.read_claims(is_of_one)
    assert freeing.free(is_of_one, claims, ["one"])
    if crashes:
        play.world.acker = play.world.start()
        play.world.settle()
    last = play.state()
    kept = {writer.session for group, writer in play.writers.items() if group != "one"}
    assert sessions_in(last) == kept
    assert lanes_in(last) == kept
    assert "one" not in {source.group for source in last.state.sources}
    assert len(last.state.emissions) == others
