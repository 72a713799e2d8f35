"""The replay worker and roots that were held back behind a record that waits (`ordering`)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from acker.kafka.port import Record
from acker.wire.causes import HELD
from acker.wire.verdict import Verdict
from replay.policy.disposition import (
    Action,
    Backoff,
    DeadReason,
    GiveUp,
    LostEmission,
    Policy,
    Replay,
    Rule,
    dispose,
)
from replay.records.due import parse_root_key
from replay.records.due_fold import whole_entry
from replay.records.headers import build_headers, parse_lineage
from replay.worker.service import ReplayService
from tests.support.worlds.replay_world import Emission, World, header, history, topics

POLICY = Policy(3, 2, Backoff(1_000, 2.0, 60_000, 0.0), time_limit_ms=10_000, hold_ms=500)
NOW_MS = 1_800_000_000_123


@pytest.fixture
def world() -> World:
    return World()


def held(attempt: int, count: int, lived_ms: int = 0) -> LostEmission:
    return LostEmission(Verdict.FAILED, attempt, blocked=count, lived_ms=lived_ms, operator="s", error=HELD)


def emissions(world: World, worker: ReplayService, root: Emission, times: int) -> Emission:
    """Hold a record back so many times; return its emission after that."""
    for _ in range(times):
        before = len(world.copies())
        world.lose(root, error=HELD, operator="sentences", message="waits for sentences/0@3")
        while len(world.copies()) == before:
            world.settle(worker, until_ms=world.now_ms + 100)
        root = world.emission_of(world.copies()[-1])
    return root


def test_a_held_root_is_never_given_up_however_often_and_however_long() -> None:
    policy = replace(POLICY, rules=(Rule(None, "s", Action.DROP), Rule(HELD, None, Action.DEAD_LETTER)))
    for count in (1, 3, 4, 1_000):
        due = dispose(policy, held(count, count, lived_ms=10**9), NOW_MS, 0.9)
        assert due == Replay(1_800_000_000_500)


def test_held_roots_come_back_together_at_multiples_of_the_period() -> None:
    """Else those of one key would come back apart, and be held again, one behind the other."""
    assert {dispose(POLICY, held(n, n), NOW_MS + n, n / 500) for n in range(1, 377)} == {
        Replay(1_800_000_000_500)
    }
    assert dispose(POLICY, held(1, 1), 1_800_000_000_500, 0.0) == Replay(1_800_000_001_000)


def test_what_was_held_uses_up_no_attempt_and_no_back_off() -> None:
    failed = LostEmission(Verdict.FAILED, 42, blocked=41, error="ValueError")
    assert dispose(POLICY, failed, NOW_MS, 0.0) == Replay(NOW_MS + 1_000)
    assert dispose(POLICY, replace(failed, blocked=40), NOW_MS, 0.0) == Replay(NOW_MS + 2_000)
    assert dispose(POLICY, replace(failed, blocked=39), NOW_MS, 0.0) == GiveUp(DeadReason.ATTEMPTS)


def test_an_exception_that_is_called_held_is_a_failure_as_any_other() -> None:
    """The wire tells an exception's class apart by its parentheses."""
    failed = LostEmission(Verdict.FAILED, 3, error="HELD()")
    assert dispose(POLICY, failed, NOW_MS, 0.0) == GiveUp(DeadReason.ATTEMPTS)


def test_headers_count_what_was_held() -> None:
    lineage = parse_lineage(
        (("windhover.attempt", b"9"), ("windhover.timed-out", b"2"), ("windhover.held", b"4")), "t", 0, 1
    )
    assert (lineage.attempt, lineage.timed_out, lineage.held) == (9, 2, 4)
    assert parse_lineage(build_headers(lineage), "t", 0, 1) == replace(lineage, origin="t/0@1")
    more = parse_lineage((("windhover.attempt", b"3"), ("windhover.held", b"4")), "t", 0, 1)
    assert more.held == 2


def test_a_record_that_was_held_often_has_all_its_attempts_left(world: World) -> None:
    """Its history tells of it once, with the attempt that was the last of them."""
    worker = world.worker(of=topics(more=", time_limit: 1m"))
    root = emissions(world, worker, world.emit(b"patient"), 100)
    assert (header(world.copies()[-1], "windhover.held"), len(history(world.copies()[-1]))) == ("100", 1)
    for _ in range(2):
        before = len(world.copies())
        world.lose(root, error="ValueError")
        world.settle(worker, until_ms=world.now_ms + 5_000)
        assert (len(world.copies()), world.letters()) == (before + 1, [])
        root = world.emission_of(world.copies()[-1])
    world.lose(root, error="ValueError")
    world.settle(worker, until_ms=world.now_ms + 5_000)
    (letter,) = world.letters()
    assert (header(letter, "windhover.dead"), header(letter, "windhover.attempt")) == ("ATTEMPTS", "103")
    assert [(loss["error"], loss["attempt"]) for loss in history(letter)] == [
        (HELD, 100),
        ("ValueError", 101),
        ("ValueError", 102),
        ("ValueError", 103),
    ]
    status = worker.status()
    assert (status.held, status.lost) == (100, 103)


def test_the_time_limit_of_a_held_record_begins_when_a_bolt_first_sees_it(world: World) -> None:
    worker = world.worker(of=topics(more=", time_limit: 10s"))
    root = emissions(world, worker, world.emit(b"patient"), 30)
    first = int(header(world.copies()[-1], "windhover.first-emitted") or 0)
    assert 0 <= world.now_ms - first < 1_000
    assert world.copies()[-1].value == b"patient"
    assert root.offset == 29 + 29  # a marker behind each copy


def test_held_roots_of_one_input_come_back_in_one_go(world: World) -> None:
    worker = world.worker(jitter=0.9)
    roots = [world.emit(b"%d" % number) for number in range(20)]
    for root in roots:
        world.lose(root, error=HELD)
        world.settle(worker)
        world.now_ms += 10
    world.settle(worker, until_ms=world.now_ms + 1_000)
    copies = world.copies()
    assert sorted(int(copy.value or b"") for copy in copies) == list(range(20))
    assert [copy.offset for copy in copies] == list(range(20))  # one transaction: no marker between them


def test_held_dues_do_not_feed_the_breaker(world: World) -> None:
    worker = world.worker(of=topics(max_ratio=0.0, max_consecutive=1))
    for number in range(300):
        world.lose(world.emit(b"%d" % number), error=HELD)
    world.settle(worker, until_ms=world.now_ms + 60_000)
    assert (len(world.copies()), world.letters()) == (300, [])


def dues(world: World) -> list[Record]:
    return [record for record in world.records("_ack_due") if record.value and record.key != b"progress"]


def test_the_due_of_a_held_root_tells_its_origin_and_that_it_was_held(world: World) -> None:
    worker = world.worker()
    root = emissions(world, worker, world.emit(b"patient"), 2)
    world.lose(root, error=HELD, message="waits for sentences/0@3")
    world.settle(worker)
    record = dues(world)[-1]
    last = whole_entry(record, parse_root_key(record.key))
    assert (last.held, last.attempt, last.last_was_blocked, last.origin) == (3, 3, True, "sentences/0@0")
