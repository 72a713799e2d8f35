"""The replay worker under each kind of policy, from topics.yaml to the dead letter."""

from __future__ import annotations

import pytest

from acker.config.topics import Topics
from acker.kafka.port import Record
from acker.wire.verdict import Verdict
from replay.worker.service import ReplayService
from tests.support.worlds.replay_world import World, header, history, topics

HOUR_MS = 3_600_000
CAUSES = (
    ", causes: [{error: LookupError, operator: count, then: retry}, {error: LookupError, then: dead_letter},"
    " {error: OrderError, then: drop}]"
)


@pytest.fixture
def world() -> World:
    return World()


def lose_until_dead(world: World, worker: ReplayService, *reasons: Verdict) -> Record:
    """Lose one record for these reasons in turn, each as soon as it is emitted; return its dead letter."""
    root = world.emit(b"poison")
    for reason in reasons:
        assert world.letters() == []
        before = len(world.copies())
        world.lose(root, reason=reason)
        world.settle(worker)
        world.settle(worker, until_ms=worker.status().next_due_ms)
        if len(world.copies()) > before:
            root = world.emission_of(world.copies()[-1])
    (letter,) = world.letters()
    return letter


def of(more: str, **policy: object) -> Topics:
    return topics(more=more, **policy)


def test_a_cause_that_is_final_by_a_rule_is_a_dead_letter_at_once_with_its_payload(world: World) -> None:
    """P27, P36: fifty of fifty, by a parent that the bolt told of; a rule before it lets one bolt retry."""
    worker = world.worker(of=of(CAUSES))
    roots = [world.emit(b"%d" % number) for number in range(51)]
    world.lose(*roots[:50], error="NoSuchCity(CityError, LookupError)")
    world.lose(roots[50], error="KeyError", operator="count")
    world.settle(worker, until_ms=world.now_ms + HOUR_MS)
    letters = world.letters()
    assert sorted(letter.value or b"" for letter in letters) == sorted(b"%d" % number for number in range(50))
    assert {header(letter, "windhover.dead") for letter in letters} == {"CAUSE"}
    assert {header(letter, "windhover.attempt") for letter in letters} == {"1"}
    assert {header(letter, "windhover.cause") for letter in letters} == {"NoSuchCity: bad line"}
    assert {str(history(letter)[0]["error"]) for letter in letters} == {"NoSuchCity"}
    assert [copy.value for copy in world.copies()] == [b"50"]


@pytest.mark.parametrize("error", ["UnicodeDecodeError", "Undecodable(RejectTuple, FailTuple)"])
def test_an_undecodable_record_is_a_dead_letter_at_once_and_keeps_its_bytes(world: World, error: str) -> None:
    """S151, P46: by a rule that needs not be written; the records beside it are retried."""
    worker = world.worker()
    bad, good = world.emit(b"\xff\xfe", key=b"k"), world.emit(b"good")
    world.lose(bad, error=error, message="byte 0")
    world.lose(good)
    world.settle(worker, until_ms=world.now_ms + HOUR_MS)
    (letter,) = world.letters()
    assert (letter.key, letter.value) == (b"k", b"\xff\xfe")
    assert header(letter, "windhover.dead") == "CAUSE"
    assert header(letter, "__dlq.errors.message") == (
        "given up after 1 emissions because its cause is final by a rule; the last FAILED by split: "
        f"{error.partition('(')[0]}: byte 0"
    )
    assert [copy.value for copy in world.copies()] == [b"good"]


def test_what_a_rule_drops_leaves_a_note_without_its_payload_and_is_counted(world: World) -> None:
    worker = world.worker(of=of(CAUSES, max_consecutive=2))
    roots = [
        world.emit(b"secret", key=b"k%d" % number, headers=(("trace", b"secret"),)) for number in range(5)
    ]
    world.lose(*roots, error="NoSuchOrder(OrderError)")
    world.settle(worker)
    notes = world.letters()
    assert [(note.key, note.value) for note in notes] == [(b"k%d" % number, None) for number in range(5)]
    assert not any(b"secret" in (value or b"") for note in notes for _, value in note.headers)
    assert [header(note, "windhover.origin") for note in notes] == [f"sentences/0@{n}" for n in range(5)]
    assert {header(note, "windhover.dead") for note in notes} == {"DROPPED"}
    assert "a rule drops" in (header(notes[0], "windhover.missing") or "")
    # five in a row, and the breaker's limit is two: what is dropped was expected
    status = worker.status()
    assert (status.dropped, status.dropped_by_input) == (5, {"sentences": 5})
    assert (status.dead_lettered, status.without_payload, status.waiting) == (0, 0, 0)
    dropped = [event for event in world.events if event.name == "dropped"]
    assert [event.fields["root"] for event in dropped] == [f"sentences/0@{number}" for number in range(5)]


def test_a_list_says_how_long_each_wait_is(world: World) -> None:
    """P34"""
    worker = world.worker(of=of("", attempts=5, waits="delays: [5s, 500ms, 20s]"))
    root, waits = world.emit(b"x"), []
    for _ in range(4):
        lost_at_ms, before = world.now_ms, len(world.copies())
        world.lose(root)
        while len(world.copies()) == before:
            world.settle(worker, until_ms=world.now_ms + 100)
        waits.append(world.now_ms - lost_at_ms)
        root = world.emission_of(world.copies()[-1])
    assert waits == [5_000, 500, 20_000, 20_000]


def test_the_next_failure_behind_the_time_limit_is_the_last(world: World) -> None:
    """P36: 250 ms before each loss are its emission's; the waits of 1 s, 2 s and 4 s lie between."""
    worker = world.worker(of=of(", time_limit: 6s", attempts=100))
    letter = lose_until_dead(world, worker, *[Verdict.FAILED] * 4)
    assert header(letter, "windhover.dead") == "TIME_LIMIT"
    assert header(letter, "windhover.attempt") == "4"


def test_a_worker_that_was_down_behind_the_time_limit_gives_up_nothing_for_that(world: World) -> None:
    """The verdict's time counts, not that at which it is read."""
    world.lose(world.emit(b"x"))
    world.now_ms += HOUR_MS
    worker = world.worker(of=of(", time_limit: 1m"))
    world.settle(worker, until_ms=world.now_ms + 1_000)
    assert (len(world.copies()), world.letters()) == (1, [])


def test_timeouts_that_are_not_counted_use_up_no_attempts_however_many_there_are(world: World) -> None:
    """They are told apart in the headers, since a history does not keep every loss."""
    worker = world.worker(of=of(", count_timed_out: false, time_limit: 30d", attempts=2))
    letter = lose_until_dead(world, worker, *[Verdict.TIMED_OUT] * 20, Verdict.FAILED, Verdict.FAILED)
    assert header(letter, "windhover.dead") == "ATTEMPTS"
    assert header(letter, "windhover.attempt") == "22"
    assert header(letter, "windhover.timed-out") == "20"


def test_takeovers_that_are_counted_use_up_attempts(world: World) -> None:
    worker = world.worker(of=of(", count_abandoned: true", attempts=3))
    letter = lose_until_dead(world, worker, Verdict.ABANDONED, Verdict.FAILED, Verdict.FAILED)
    assert header(letter, "windhover.dead") == "ATTEMPTS"


def test_rules_that_change_leave_what_waits_as_it_was_decided(world: World) -> None:
    """Decided once, in the first transaction."""
    first = world.worker()
    world.lose(world.emit(b"early"))
    world.settle(first)
    first.close()
    second = world.worker(of=of(", causes: [{error: ValueError, then: drop}]"))
    world.lose(world.emit(b"late"))
    world.settle(second, until_ms=world.now_ms + HOUR_MS)
    assert [copy.value for copy in world.copies()] == [b"early"]
    assert [header(note, "windhover.dead") for note in world.letters()] == ["DROPPED"]
