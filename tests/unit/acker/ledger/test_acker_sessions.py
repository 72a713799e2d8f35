"""Takes, ticks and inits: the fine print of docs/design/protocol.md, section 4, sentence by sentence."""

from __future__ import annotations

import pytest

from acker.identity import position_at, source_of
from acker.ledger.cohort import Session
from acker.ledger.output import AckerEventKind
from acker.ledger.sessions import (
    SIBLING_MS,
    UNSENT_MS_MAX,
    Barrier,
    Clock,
    QueuedTick,
    SessionRank,
    Sessions,
    TickQueue,
)
from acker.service.state import SHARED_HEADER, read_shared_until_ms
from acker.wire.events import Lost, Take, Taken, TakenSource, Verdicts
from spout.runtime.logs import WARNINGS
from tests.support.worlds.acker_world import (
    GROUP,
    SOURCE,
    TIMEOUT_MS,
    TOPIC_ID,
    TOPICS,
    World,
    Writer,
    edge,
)


@pytest.fixture
def world() -> World:
    """An acker with one partition."""
    return World()


def held(world: World, *, now: int = 0) -> Writer:
    """Return a session that has taken its group."""
    writer = world.session()
    writer.take(now=now)
    world.settle()
    return writer


def test_a_first_session_is_told_clock_zero_and_next_zero(world: World) -> None:
    """`next` before any init is 0; the first session's clock is 0, whatever its take says."""
    held(world, now=123)
    known = (TakenSource(SOURCE, TOPIC_ID, 0, 0, 0),)
    assert world.taken() == [Taken(GROUP, "s1", 1, "s1", "", 0, 1, 0, known, ())]


def test_a_restart_abandons_nothing_and_is_told_its_own_clock_and_open_roots(world: World) -> None:
    """The highest clock read, and `Take.now` counts only where it begins a session."""
    writer = held(world, now=100)
    writer.init((0, 10), now=100)
    writer.acks(runs=[(3, 5)])
    writer.tick(700)
    world.settle()
    writer.take(now=999_999)
    writer.tick(800)
    world.settle()
    answer = world.taken()[-1]
    assert (answer.clock, answer.refused, answer.sources[0].next) == (800, "", 10)
    assert [tuple(run) for run in answer.open] == [(SOURCE, 0, 3), (SOURCE, 5, 10)]
    writer.tick(TIMEOUT_MS + 99)
    world.settle()
    assert set(world.of()) == {3, 4}


def test_a_takeover_abandons_all_open_roots_oldest_first_and_is_told_the_clock_before(world: World) -> None:
    """Rule 9: by emission, then source and position; decided on the new session's clock."""
    other = SOURCE + 1
    old = world.session()
    old.take(sources=(SOURCE, other), now=10)
    old.init((0, 3), now=30)
    old.init((3, 5), now=20)
    old.init((0, 2), now=20, source=other)
    old.tick(600)
    world.settle()
    new = world.session("s2", 2)
    new.take(now=5_000, sources=(other,))
    world.settle()
    events = world.answers()
    assert isinstance(events[-1], Taken)
    assert (events[-1].clock, events[-1].open, events[-1].session) == (600, (), "s2")
    assert [source.source for source in events[-1].sources] == [SOURCE, other]
    lost = [entry for event in events if isinstance(event, Verdicts) for entry in event.lost]
    assert [(entry.emitted_at, entry.source, entry.decided_at) for entry in lost] == [
        (20, SOURCE, 5_000),
        (20, other, 5_000),
        (30, SOURCE, 5_000),
    ]
    assert {entry.reason.value for entry in lost} == {"ABANDONED"}


def test_what_the_log_held_before_a_takeover_still_counts(world: World) -> None:
    """P45: a take abandons only when the acks and fails that were there as it was read are applied."""
    old = held(world)
    old.init((0, 4))
    world.settle()
    world.session("s2", 2).take()
    old.acks(runs=[(0, 2)])
    old.fails(2)
    world.settle()
    assert world.of() == {0: "ACKED", 1: "ACKED", 2: "FAILED", 3: "ABANDONED"}


def test_a_lower_session_is_refused_and_told_who_holds_the_group(world: World) -> None:
    """Rule 9; its inits and ticks are refused and counted, its roots are none."""
    world.session("s2", 2).take(now=40)
    world.settle()
    for lower in (world.session("s9", 1), world.session("s1", 2)):
        lower.take()
        lower.init((0, 3))
        lower.tick(50)
    world.settle()
    answers = world.taken()[1:]
    assert [(a.asked_by, a.session, a.epoch, a.clock, a.part, a.parts) for a in answers] == [
        ("s9", "s2", 2, 40, 0, 1),
        ("s1", "s2", 2, 40, 0, 1),
    ]
    assert all(a.refused and not a.open and len(a.sources) == 1 for a in answers)
    assert world.status().counts.refused == 8
    assert world.quarantined() == []


def test_sessions_of_one_epoch_are_ordered_by_their_id(world: World) -> None:
    """Ordered by (epoch, id)."""
    world.session("b", 1).take()
    world.session("a", 1).take()
    world.session("c", 1).take()
    world.settle()
    assert [(a.asked_by, bool(a.refused)) for a in world.taken()] == [("a", True), ("b", True), ("c", False)]


def test_a_waiting_take_that_a_higher_one_overtakes_is_refused(world: World) -> None:
    """And the higher one takes over from it, with the clock that it began with."""
    held(world, now=7)
    world.session("s2", 2).take(now=1_000)
    world.session("s3", 3).take(now=2_000)
    world.settle()
    first, refused, taken = world.taken()
    assert (first.session, refused.asked_by, refused.session) == ("s1", "s2", "s3")
    assert refused.refused
    assert (taken.session, taken.clock, taken.refused) == ("s3", 1_000, "")


def test_epoch_zero_is_a_question_and_changes_nothing(world: World) -> None:
    """Always answered as refused: by nobody, by the holder."""
    question = world.session("q", 0)
    question.take()
    world.settle()
    question.init((0, 1))
    world.settle()
    held(world, now=9)
    question.take()
    world.settle()
    nobody, _, holder = world.taken()
    assert (nobody.session, nobody.epoch, nobody.clock, nobody.sources) == ("", 0, 0, ())
    assert (holder.session, holder.epoch, holder.clock) == ("s1", 1, 9)
    assert nobody.refused
    assert holder.refused
    assert len(world.quarantined()) == 1
    asked = [event.kind for event in world.events if "q" in event.detail]
    assert AckerEventKind.QUERIED in asked, "every start of a query asks: it is no refusal, and no warning"
    assert AckerEventKind.REFUSED not in asked
    assert str(AckerEventKind.QUERIED) not in WARNINGS


def test_a_take_with_another_n_is_quarantined_and_answered_with_the_ackers_n(world: World) -> None:
    """Take and Init carry N; whoever disagrees must stop."""
    world.session().take(partitions=8)
    world.settle()
    assert "1 partitions" in world.taken()[0].refused
    assert len(world.quarantined()) == 1
    held(world).init((0, 1), partitions=8)
    world.settle()
    assert len(world.quarantined()) == 2
    assert world.status().open_roots == 0


def test_inits_and_ticks_of_a_session_that_never_took_are_quarantined(world: World) -> None:
    """Of a higher session, or for a group that nobody holds."""
    stranger = world.session("s5", 5)
    stranger.init((0, 1))
    stranger.tick(5)
    world.settle()
    held(world)
    stranger.init((0, 1))
    stranger.tick(5)
    world.settle()
    assert len(world.quarantined()) == 4
    assert world.status().open_roots == 0


def test_an_input_that_comes_with_another_group_or_topic_is_refused(world: World) -> None:
    """The id of an input is never reused; its replay topic belongs to it."""
    held(world)
    world.session("x", 9, group="other").take()
    world.session("y", 9, topic="lines").take()
    world.session("z", 9, group="other", topic="copies").take(sources=(source_of(1, 3, replay=True),))
    world.settle()
    assert [bool(answer.refused) for answer in world.taken()] == [False, True, True, True]
    assert world.taken()[1].session == ""
    assert world.taken()[2].session == "s1"
    held(world).init((0, 1), topic="lines")
    world.session("x", 9, group="other").acks(runs=[(0, 1)])
    world.session("x", 9, group="other").fails(0)
    world.settle()
    assert len(world.quarantined()) == 6


def test_two_groups_have_clocks_and_holders_of_their_own(world: World) -> None:
    """Two groups on one topic are two inputs."""
    mine, theirs = held(world), world.session("t1", 7, group="other")
    source = source_of(2, 0)
    theirs.take(sources=(source,), now=50)
    mine.init((0, 1))
    theirs.init((0, 1), source=source, now=50)
    theirs.tick(TIMEOUT_MS + 50)
    world.settle()
    assert list(world.outcomes()) == [(source, 0)]
    assert world.status().sessions == ("other/t1", f"{GROUP}/s1")


def test_only_a_take_raises_a_generation_and_open_roots_of_the_old_one_live_on(world: World) -> None:
    """The unchanged session may raise it; runs of the old generation are refused and counted from then on."""
    writer = held(world)
    writer.init((0, 2))
    writer.init((position_at(1, 5), position_at(1, 6)))
    world.settle()
    assert (world.status().open_roots, world.status().counts.refused) == (2, 1)
    writer.take(generation=1, from_=position_at(1, 5), topic_id="new-id")
    writer.init((2, 4))
    writer.init((position_at(1, 5), position_at(1, 7)))
    writer.acks(runs=[(0, 2)])
    world.settle()
    assert world.of() == {0: "ACKED", 1: "ACKED"}
    assert (world.status().open_roots, world.status().counts.refused) == (2, 3)
    assert world.taken()[-1].sources == (
        TakenSource(SOURCE, "new-id", 1, position_at(1, 5), position_at(1, 7)),
    )


def test_the_first_take_of_a_generation_is_kept_and_a_lower_one_accepted(world: World) -> None:
    """A Take with a lower or equal generation is accepted and answered with the known values."""
    first = world.session()
    first.take(generation=2, from_=position_at(2, 9), topic_id="first")
    first.take(generation=2, from_=position_at(2, 1), topic_id="second")
    world.settle()
    world.session("s2", 2).take(generation=1, from_=0, topic_id="third")
    world.settle()
    known = {answer.sources for answer in world.taken()}
    assert known == {(TakenSource(SOURCE, "first", 2, position_at(2, 9), 0),)}
    assert [answer.refused for answer in world.taken()] == ["", "", ""]


def test_a_run_of_a_source_that_no_take_named_is_refused_and_counted(world: World) -> None:
    """The other runs of the init stand."""
    writer = held(world)
    writer.init((0, 5), source=SOURCE + 1)
    writer.init((0, 2))
    world.settle()
    assert (world.status().open_roots, world.status().counts.refused) == (2, 5)


def test_the_clock_never_falls(world: World) -> None:
    """A lower tick counts for nothing; nothing expires by it."""
    writer = held(world, now=1_000)
    writer.tick(5_000)
    writer.tick(2_000)
    writer.init((0, 1), now=5_000)
    world.settle()
    writer.take()
    world.settle()
    assert world.taken()[-1].clock == 5_000


def test_what_waits_counts_when_both_logs_are_applied_up_to_its_barrier() -> None:
    sessions = Sessions(pending_ticks_max=10)
    sessions.record_take(Take(GROUP, "s1", 1, 0, 1, ()))
    sessions.set_barrier(Barrier(ack=5, fail=3))
    assert list(sessions.pop_reached(Barrier(5, 2))) == []
    assert list(sessions.pop_reached(Barrier(4, 3))) == []
    assert len(list(sessions.pop_reached(Barrier(5, 3)))) == 1


def test_what_the_slower_of_two_clocks_emits_has_a_second_more_than_the_difference(world: World) -> None:
    """The process with the faster clock may not have sent its last second."""
    writer = held(world)
    writer.tick(5_000)
    writer.init((0, 1), now=4_000)
    writer.tick(4_000 + TIMEOUT_MS + 1_999)
    world.settle()
    assert world.of() == {}
    writer.tick(4_000 + TIMEOUT_MS + 2_000)
    world.settle()
    assert world.of() == {0: "TIMED_OUT"}


@pytest.mark.parametrize("ahead_ms", [0, 1, 400, UNSENT_MS_MAX, 5_000])
@pytest.mark.parametrize("crashes", [False, True])
def test_what_is_emitted_beside_another_process_outlives_what_that_one_has_not_sent(
    world: World, ahead_ms: int, crashes: bool
) -> None:
    """O1701: its clock stands at most a second above the highest one that was read, whoever sent that.

    An acker that is killed in between does not forget that there are two.
    """
    writer = held(world)
    writer.tick(5_000)
    writer.take()
    world.settle()
    if crashes:
        world.crash()
    writer.init((0, 1), now=5_000 + ahead_ms)
    deadline_ms = max(5_000 + UNSENT_MS_MAX, 5_000 + ahead_ms) + TIMEOUT_MS
    writer.tick(deadline_ms - 1)
    world.settle()
    assert world.of() == {}
    writer.tick(deadline_ms)
    world.settle()
    assert world.of() == {0: "TIMED_OUT"}


def test_ten_seconds_after_a_restart_the_process_before_is_gone(world: World) -> None:
    """By the clock of the session, which runs slower than time, if at all."""
    writer = held(world)
    writer.tick(5_000)
    writer.take()
    writer.tick(5_000 + SIBLING_MS)
    writer.init((0, 1), now=5_000 + SIBLING_MS)
    writer.tick(5_000 + SIBLING_MS + TIMEOUT_MS)
    world.settle()
    assert world.of() == {0: "TIMED_OUT"}


@pytest.mark.parametrize("value", [b"", b"nonsense", b"[[1]]", b'[["g","x","s",1]]', b"7", b"[" * 9_000])
def test_what_nobody_can_read_in_that_header_of_state_is_passed_over(value: bytes) -> None:
    assert read_shared_until_ms(((SHARED_HEADER, value),)) == {}


def test_roots_of_the_session_before_never_time_out_by_the_new_clock(world: World) -> None:
    """While a take waits, ticks read before it still count for the roots of their own session."""
    old = held(world)
    old.init((0, 1), timeout_ms=100)
    old.init((1, 2), timeout_ms=1_000)
    old.tick(100)
    new = world.session("s2", 2)
    new.take(now=1 << 20)
    new.tick(1 << 21)
    world.settle()
    assert world.of() == {0: "TIMED_OUT", 1: "ABANDONED"}


def test_marks_live_until_a_higher_session_holds_the_group(world: World) -> None:
    """Then the old session's lanes cost nothing."""
    old = held(world)
    old.init((0, 2))
    old.acks(values=[(0, 5)])
    world.settle()
    core = world.acker._owned_ackers[0].core
    assert len(list(core.ack_marks.latest.items())) == 1
    world.session("s2", 2).take()
    world.settle()
    old.acks(values=[(0, 5 ^ edge(0))], seq=3)
    world.settle()
    assert list(core.ack_marks.latest.items()) == []
    assert world.status().counts.late == 1


def test_every_open_root_stands_in_an_answer_of_several_parts(world: World) -> None:
    """Parts are consecutive records, part 0 first; every source stands in the answer."""
    writer = held(world)
    for block in range(3):
        first = block << 15
        writer.init((first, first + 32_768))
        writer.acks(runs=[(p, p + 1) for p in range(first, first + 32_768, 2)], seq=block)
    writer.take()
    world.settle()
    answer = world.taken()[1:]
    assert [a.part for a in answer] == list(range(len(answer)))
    assert {a.parts for a in answer} == {len(answer)}
    assert len(answer) > 1
    opened = [run.start for a in answer for run in a.open]
    assert opened == list(range(1, 3 << 15, 2))
    assert sum(len(a.sources) for a in answer) == 1
    assert max(len(record.value or b"") for record in world.read(TOPICS.verdict)) < 900_000


def test_verdicts_before_an_answer_stand_before_it(world: World) -> None:
    """A session reads the verdicts from its answer on: what it is told is open has its verdict after it."""
    writer = held(world)
    writer.init((0, 2), timeout_ms=50)
    writer.acks(runs=[(0, 1)])
    writer.take()
    writer.tick(50)
    world.settle()
    acked, taken, lost = world.answers()[1:]
    assert isinstance(acked, Verdicts)
    assert isinstance(taken, Taken)
    assert isinstance(lost, Verdicts)
    assert [tuple(run) for run in taken.open] == [(SOURCE, 1, 2)]
    assert [type(entry) for entry in lost.lost] == [Lost]


OWNER, NEVER_TOOK = Session(GROUP, 7, "owner"), Session(GROUP, 7, "stranger")


def test_a_session_that_never_took_has_a_clock_that_shows_nothing() -> None:
    """In a group that nobody has, and in one that another session has; asking keeps no clock of it."""
    sessions = Sessions(4)
    for _ in range(2):
        for stranger in (NEVER_TOOK, Session("other", 7, "owner")):
            assert sessions.clock(stranger) == Clock(0, 0, None)
            assert not sessions.clock(stranger).is_shared
            assert not sessions.has_clock(stranger)
        sessions.record_take(Take(GROUP, OWNER.id, OWNER.epoch, 500, 1, ()))
    assert sessions.clock(OWNER) == Clock(500, 500, 500 + SIBLING_MS)


@pytest.mark.parametrize(
    ("session", "rank"),
    [
        (Session(GROUP, 6, "z"), SessionRank.LOWER),
        (Session(GROUP, 7, "o"), SessionRank.LOWER),
        (OWNER, SessionRank.OWNER),
        (Session(GROUP, 7, "owner2"), SessionRank.HIGHER),
        (Session(GROUP, 8, ""), SessionRank.HIGHER),
        (Session("other", 8, "s"), SessionRank.NO_OWNER),
    ],
)
def test_a_session_is_ranked_by_its_epoch_and_then_by_its_id(session: Session, rank: SessionRank) -> None:
    sessions = Sessions(4)
    sessions.record_take(Take(GROUP, OWNER.id, OWNER.epoch, 500, 1, ()))
    assert sessions.rank(session) is rank


def test_the_line_remembers_nobody_who_does_not_wait_in_it() -> None:
    """An acker lives for months, and each batch of each query is a session's tick."""
    line = TickQueue()
    items = [QueuedTick(session, now_ms, is_take=take)
             for session in (OWNER, NEVER_TOOK) for now_ms in range(3) for take in (False, True)]  # fmt: skip
    for item in items:
        line.append(item)
    assert [line.pop_oldest() for _ in items] == items
    assert not line
    assert line._waiting_by_session_and_kind == {}
    assert list(line.withdraw_takes(OWNER)) == []


def test_too_many_waiting_ticks_of_a_session_are_merged(world: World) -> None:
    """Rule 10: the limit makes deadlines late, never early."""
    core = held(world) and world.acker._owned_ackers[0].core
    for now in range(core.limits.pending_ticks + 50):
        core.sessions.record_tick(core.sessions.groups[GROUP].owner, now)
    assert len(core.sessions.queue) == core.limits.pending_ticks
    times = [item.now_ms for item in core.sessions.queue]
    assert times[:3] == [0, 1, 2]
    assert times[-2:] == [core.limits.pending_ticks - 2, core.limits.pending_ticks + 49]


@pytest.mark.parametrize("counts", [True, False], ids=["counted", "only read"])
@pytest.mark.parametrize("crashes", [False, True], ids=["in one process", "after a restart"])
@pytest.mark.parametrize("by", ["tick", "init", "both"])
@pytest.mark.parametrize(
    "who", ["a takeover", "a restart", "a question", "a lower session", "a second takeover"]
)
def test_whoever_takes_or_asks_is_told_the_highest_clock_that_was_read(
    world: World, counts: bool, crashes: bool, by: str, who: str
) -> None:
    """Rule 9: a session that begins below it would expire the roots of the one before too late, or its own.

    A tick does not count yet while acks and fails before it wait; its clock is in the answer all the same.
    """
    owner = held(world, now=100)
    if who == "a second takeover":
        world.session("s0", 2).take(now=150)
        owner = world.session("s2", 3)
        owner.take(now=200)
        world.settle()
    owner.init((0, 2), now=300)
    world.settle()
    if crashes:
        world.crash()
    if by != "init":
        owner.tick(900)
    if by != "tick":
        owner.init((2, 3), now=800)
    if counts:
        world.settle()
    writers = {
        "a takeover": world.session("s9", 9),
        "a restart": owner,
        "a question": world.session("s1?", 0),
        "a lower session": world.session("s", 1),
        "a second takeover": world.session("s9", 9),
    }
    writers[who].take(now=50)
    world.settle()
    assert world.taken()[-1].clock == (800 if by == "init" else 900)


@pytest.mark.parametrize("counts", [True, False], ids=["counted", "only read"])
def test_the_process_before_may_live_for_its_time_from_the_highest_clock_on(
    world: World, counts: bool
) -> None:
    """Its last tick was read a moment before the take of the next process of the session."""
    writer = held(world)
    writer.tick(5_000)
    if counts:
        world.settle()
    writer.take()
    world.settle()
    last = world.read(TOPICS.state)[-1]
    assert list(read_shared_until_ms(last.headers).values()) == [5_000 + SIBLING_MS]
