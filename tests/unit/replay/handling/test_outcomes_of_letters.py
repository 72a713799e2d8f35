"""What becomes of letters that redrives have handled, whatever else is in the three topics."""

from __future__ import annotations

import pytest

from acker.errors import TopicError
from acker.identity import position_at, source_of
from acker.kafka.port import Headers, Outgoing, TopicPartition
from acker.wire.codec import wire_codec
from acker.wire.events import SourceRun, Verdicts
from acker.wire.verdict import Verdict
from replay.handling.outcomes import (
    FollowedLetter,
    LetterOutcome,
    RedriveOutcomes,
    audit_start,
    find_redrives,
)
from replay.policy.disposition import DeadReason
from replay.records.dead_letter import DEAD
from replay.records.due import Loss, history_json
from replay.records.headers import HISTORY
from replay.records.letters import LetterAction
from replay.records.redrives import RedriveBegun, RedriveEnd, audit_record
from tests.support.worlds.letters_world import DAY_MS, HOUR_MS, NOW_MS, SENTENCES, TOPICS, Kind
from tests.support.worlds.redrives_world import CopyPlace, RedrivesWorld

INPUT = TOPICS.input("sentences")
COPIES = INPUT.replay_topic
VERDICTS = "_ack_verdict"
OPEN, ACKED, DIED = LetterOutcome.OPEN, LetterOutcome.ACKED, LetterOutcome.DIED
GONE, UNKNOWN = LetterOutcome.GONE, LetterOutcome.UNKNOWN


@pytest.fixture
def world() -> RedrivesWorld:
    return RedrivesWorld()


def begun(world: RedrivesWorld, count: int, *, others: int = 0, redrive: str = "r1") -> list[CopyPlace]:
    """Let a redrive emit letters of one partition, behind some copies of others; return its copies."""
    letters = [world.let_die(SENTENCES, 0, Kind(), DAY_MS, b"k") for _ in range(count)]
    world.begin(SENTENCES, redrive, HOUR_MS)
    for _ in range(others):
        world.put(Outgoing(COPIES, 0, b"another's"))
    return [world.replay(letter, redrive) for letter in letters]


def following(world: RedrivesWorld) -> RedriveOutcomes:
    """Return what follows all redrives; nothing is read yet."""
    redrives = [record.begun for record in find_redrives(world.log, INPUT, wait_ms=100)]
    return RedriveOutcomes(world.log, TOPICS, INPUT, redrives)


def outcomes(world: RedrivesWorld, redrive: str = "r1") -> list[LetterOutcome]:
    """Return the outcomes of a redrive's letters, in the order in which it handled them."""
    followed = following(world)
    followed.read()
    assert followed.is_whole
    return list(followed.outcome_by_letter(redrive).values())


def settle_run(world: RedrivesWorld, source: int, start: int, end: int) -> None:
    """Let an acker write that roots of any source are acked."""
    run = SourceRun(source, position_at(0, start), position_at(0, end))
    world.put(Outgoing(VERDICTS, 0, wire_codec().encode(Verdicts((run,), (), ()))))


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize(("verdict", "outcome"), [(Verdict.ACKED, ACKED), (Verdict.ABSENT, GONE)])
def test_a_verdict_settles_its_own_copies_and_none_beside_them(
    world: RedrivesWorld, number: int, verdict: Verdict, outcome: LetterOutcome
) -> None:
    copies = begun(world, 3)
    world.settle(copies[number], verdict=verdict)
    assert outcomes(world) == [outcome if index == number else OPEN for index in range(3)]


def test_copies_of_others_among_a_redrives_own_count_for_nobody(world: RedrivesWorld) -> None:
    """A run may have many of them, or a redrive many copies beside it."""
    copies = begun(world, 3, others=4)
    replays = source_of(INPUT.id, 0, replay=True)
    settle_run(world, replays, 1, 2)
    settle_run(world, replays, 0, copies[0].offset + 1)
    assert outcomes(world) == [ACKED, OPEN, OPEN]
    settle_run(world, replays, copies[2].offset, copies[2].offset + 90)
    assert outcomes(world) == [ACKED, OPEN, ACKED]


def test_roots_of_the_source_and_of_other_inputs_are_no_copies(world: RedrivesWorld) -> None:
    """They have the offsets of the copies."""
    begun(world, 3)
    for source in (
        source_of(INPUT.id, 0),
        source_of(TOPICS.input("orders").id, 0, replay=True),
        source_of(INPUT.id, 1, replay=True),
    ):
        settle_run(world, source, 0, 9)
    assert outcomes(world) == [OPEN] * 3


def test_a_letter_whose_last_loss_was_at_a_copys_offset_of_the_source_is_no_death_of_the_copy(
    world: RedrivesWorld,
) -> None:
    copies = begun(world, 2)
    losses = ["sentences/0@0", "no place", "orders.h.replay/0@0", f"{COPIES}/1@0"]
    for root in losses:
        loss = Loss(1, Verdict.FAILED, "split", "ValueError", "bad", NOW_MS, 500, root)
        headers: Headers = ((DEAD, DeadReason.ATTEMPTS.encode()), (HISTORY, history_json((loss,))))
        world.put(Outgoing(SENTENCES, 0, b"{}", b"k", headers, NOW_MS))
    world.put(Outgoing(SENTENCES, 0, b"{}", b"k", ((DEAD, DeadReason.ATTEMPTS.encode()),), NOW_MS))
    assert outcomes(world) == [OPEN, OPEN]
    world.die_again(copies[1])
    assert outcomes(world) == [OPEN, DIED]


def test_a_letter_without_a_copy_is_unknown_once_all_is_read(world: RedrivesWorld) -> None:
    """Until then its copy may come."""
    begun(world, 1)
    world.handle(world.let_die(SENTENCES, 0, Kind(), DAY_MS, b"k"), LetterAction.REPLAYED, "r1")
    followed = following(world)
    world.cluster.lose_leader(COPIES, 0)
    followed.read()
    assert not followed.is_whole
    assert followed.count_by_outcome("r1") == {OPEN: 2}
    world.cluster.elect_leader(COPIES, 0)
    followed.read()
    assert list(followed.outcome_by_letter("r1").values()) == [OPEN, UNKNOWN]


@pytest.mark.parametrize("topic", [VERDICTS, SENTENCES, COPIES])
def test_it_is_whole_only_if_all_three_topics_were_read(world: RedrivesWorld, topic: str) -> None:
    """What was read of verdicts and letters meanwhile has its effect when the copies are there."""
    copies = begun(world, 2)
    world.settle(copies[0])
    world.die_again(copies[1])
    followed = following(world)
    assert not followed.is_whole
    world.cluster.lose_leader(topic, 0)
    followed.read()
    assert not followed.is_whole
    world.cluster.elect_leader(topic, 0)
    followed.read()
    assert followed.is_whole
    assert followed.count_by_outcome("r1") == {ACKED: 1, DIED: 1}
    assert followed.why_not_whole() == ""


@pytest.mark.parametrize("topic", [VERDICTS, SENTENCES, COPIES])
def test_what_is_open_is_unknown_if_a_part_of_any_of_the_three_topics_is_gone(
    world: RedrivesWorld, topic: str
) -> None:
    """What is known by then stays known, and a redrive that began later misses nothing."""
    world.put(Outgoing(VERDICTS, 1, b"another's"))
    world.put(Outgoing(COPIES, 1, b"another's"))
    world.put(Outgoing(SENTENCES, 1, b"another's"))
    copies = begun(world, 2)
    world.settle(copies[0])
    for name in (VERDICTS, SENTENCES, COPIES):
        world.put(Outgoing(name, 1, b"another's"))
    world.delete_before(topic, 1, 2)
    begun(world, 1, redrive="r2")
    assert outcomes(world) == [ACKED, UNKNOWN]
    assert outcomes(world, "r2") == [OPEN]


def test_of_two_copies_of_a_letter_the_one_that_is_settled_last_says_what_became_of_it(
    world: RedrivesWorld,
) -> None:
    """A copy may be doubled (protocol, section 5.3); what was read before is not applied again."""
    first, second = begun(world, 2)
    followed = following(world)
    pairs = [(world.emit_again(copy), world.emit_again(copy)) for copy in (first, second)]
    world.die_again(pairs[0][0])
    world.settle(pairs[1][0])
    followed.read()
    assert list(followed.outcome_by_letter("r1").values()) == [DIED, ACKED]
    world.settle(pairs[0][1])
    world.die_again(pairs[1][1])
    for _ in range(2):
        followed.read()
        assert list(followed.outcome_by_letter("r1").values()) == [ACKED, DIED]


def test_letters_that_were_dropped_are_followed_and_have_no_outcome(world: RedrivesWorld) -> None:
    """A mark of no redrive is of nobody's interest."""
    dropped, replayed, other = (world.let_die(SENTENCES, 0, Kind(), DAY_MS, b"k") for _ in range(3))
    world.begin(SENTENCES, "r1", HOUR_MS)
    world.handle(dropped, LetterAction.DROPPED, "r1")
    world.settle(world.replay(replayed, "r1"))
    world.handle(other, LetterAction.REPLAYED)
    followed = following(world)
    followed.read()
    assert list(followed.letters()) == [
        FollowedLetter("r1", dropped, None),
        FollowedLetter("r1", replayed, ACKED),
    ]
    assert followed.outcome_by_letter("r1") == {replayed: ACKED}
    assert (followed.handled_count("r1"), followed.handled_count("")) == (2, 0)


def test_without_a_redrive_all_is_read_that_is_there(world: RedrivesWorld) -> None:
    begun(world, 2)
    followed = RedriveOutcomes(world.log, TOPICS, INPUT, [])
    followed.read()
    assert followed.count_by_outcome("r1") == {OPEN: 2}


def test_it_is_read_from_where_the_first_of_the_redrives_began(world: RedrivesWorld) -> None:
    """What an earlier one did is not read, and takes no time."""
    begun(world, 2)
    begun(world, 1, redrive="r2")
    begun(world, 1, redrive="r3")
    _, *later = (record.begun for record in find_redrives(world.log, INPUT, wait_ms=100))
    followed = RedriveOutcomes(world.log, TOPICS, INPUT, reversed(later))
    followed.read()
    assert [followed.handled_count(name) for name in ("r1", "r2", "r3")] == [0, 1, 1]
    assert followed.count_by_outcome("r2") == {OPEN: 1}


def test_the_readers_of_all_three_topics_are_closed(world: RedrivesWorld) -> None:
    begun(world, 1)
    followed = following(world)
    assert len(world.log.open_readers) == 3
    followed.read()
    followed.close()
    assert not world.log.open_readers


@pytest.mark.parametrize("topic", [VERDICTS, SENTENCES, COPIES])
def test_a_topic_that_is_missing_is_named_with_the_way_out(world: RedrivesWorld, topic: str) -> None:
    begun(world, 1)
    redrives = [record.begun for record in find_redrives(world.log, INPUT, wait_ms=100)]
    world.cluster.delete_topic(topic)
    with pytest.raises(TopicError, match=rf"topic {topic} does not exist; run `windhover topics create`"):
        RedriveOutcomes(world.log, TOPICS, INPUT, redrives)
    assert not world.log.open_readers


def test_of_two_ends_of_a_redrive_the_first_one_counts(world: RedrivesWorld) -> None:
    """Somebody cancelled it, and it was killed before it noticed, or it ended by itself just then."""
    world.begin(SENTENCES, "r1", HOUR_MS)
    world.end(SENTENCES, "r1", HOUR_MS, RedriveEnd.CANCELLED)
    world.end(SENTENCES, "r1", HOUR_MS, RedriveEnd.DONE)
    (record,) = find_redrives(world.log, INPUT, wait_ms=100)
    assert (record.state, record.may_run) == ("CANCELLED", False)


def test_a_redrive_may_run_until_it_ends_or_a_later_one_begins(world: RedrivesWorld) -> None:
    world.begin(SENTENCES, "r1", HOUR_MS)
    world.begin(SENTENCES, "r2", HOUR_MS)
    world.end(SENTENCES, "r2", HOUR_MS)
    world.begin(SENTENCES, "r3", HOUR_MS)
    states = [(one.state, one.may_run) for one in find_redrives(world.log, INPUT, wait_ms=100)]
    assert states == [("INTERRUPTED", False), ("DONE", False), ("NOT ENDED", True)]


def test_a_redrive_whose_beginning_was_aborted_has_not_begun(world: RedrivesWorld) -> None:
    """It could not write it: another one had fenced it."""
    world.begin(SENTENCES, "r1", HOUR_MS)
    writer = world.log.transactions("somebody")
    writer.init(0)
    writer.begin()
    aborted = RedriveBegun("r2", "REPLAYED", "kim", "", "all", 1, (0, 0), (0, 0), (0, 0), NOW_MS)
    writer.send(audit_record(aborted, SENTENCES))
    writer.abort(0)
    states = [(one.begun.redrive, one.state) for one in find_redrives(world.log, INPUT, wait_ms=100)]
    assert states == [("r1", "NOT ENDED")]


def test_redrives_since_a_time_are_read_from_the_first_one_of_that_time(world: RedrivesWorld) -> None:
    world.begin(SENTENCES, "r1", DAY_MS)
    world.begin(SENTENCES, "r2", HOUR_MS)
    first = TopicPartition(SENTENCES, 0)
    assert audit_start(world.log, INPUT) == (first, 0)
    assert audit_start(world.log, INPUT, NOW_MS - 2 * HOUR_MS) == (first, 1)
    world.delete_before(SENTENCES, 0, 1)
    assert audit_start(world.log, INPUT) == (first, 1)
