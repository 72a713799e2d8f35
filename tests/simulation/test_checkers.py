"""What the checkers see: each fault below is put into the product, and the rule that it breaks must fall."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

import acker.ledger.verdicts
import replay.records.copies
import replay.records.dead_letter
import replay.worker.accept
import replay.worker.firing
import replay.worker.outcome
from acker.kafka.port import Outgoing
from acker.wire.events import Lost, SourceRun
from acker.wire.verdict import Verdict
from replay.policy.disposition import Disposition, LostEmission, Policy, Replay, delay_ms, dispose
from replay.records.headers import FIRST_EMITTED, HISTORY
from replay.worker.outcome import RootOutcome, outcomes_of
from spout.group.commits import Committer
from tests.simulation.ablations.ablations import Ablation
from tests.simulation.checkers.loss_checkers import PutBack
from tests.simulation.checkers.verdict_checkers import EmittedOnce
from tests.simulation.options import draw
from tests.simulation.run import PROFILES, run_options
from tests.simulation.truth.facts import Broken, Holder, Journalled

OWN = Holder(1, "s1")

SEEDS = 200
"""In so many seeds a fault must be seen; most are in the first five, the rarest in one of sixty."""


def fell(rule: str, *texts: str, of: tuple[Any, str, Any]) -> bool:
    """Tell whether the first rule that breaks is this one, in these words.

    Args:
        rule: its name.
        texts: what its message holds.
        of: the fault: an owner, the name of one of its functions, and what takes its place.
    """
    faulty = Ablation("", lambda: [of], (rule,))
    runs = (run_options(draw(seed, PROFILES["mixed"], "mixed"), faulty) for seed in range(SEEDS))
    found = next((run.broken for run in runs if run.broken is not None), None)
    return found is not None and found.rule == rule and all(text in str(found) for text in texts)


def with_header(record: Outgoing, name: str, change: Callable[[bytes], bytes]) -> Outgoing:
    """Change the value of the last header of a name: one before it may have come with the record."""
    headers = list(record.headers)
    for place in range(len(headers) - 1, -1, -1):
        value = headers[place][1]
        if headers[place][0] == name and value is not None:
            headers[place] = (name, change(value))
            break
    return record._replace(headers=tuple(headers))


def cut(record: Outgoing) -> Outgoing:
    """Leave of a history its last entry."""
    return with_header(record, HISTORY, lambda value: json.dumps(json.loads(value)[-1:]).encode())


WRONG: Mapping[str, tuple[Callable[[Outgoing], Outgoing], str, str]] = {
    "no value": (lambda one: one._replace(value=None), "NoLoss", "value is None"),
    "another value": (lambda one: one._replace(value=b"7|ok|0"), "NoLoss", "value is b'7|ok|0'"),
    "no key": (lambda one: one._replace(key=None), "NoLoss", "key is None"),
    "no headers": (
        lambda one: one._replace(headers=tuple(h for h in one.headers if h[0] != "line")),
        "NoLoss",
        "headers is",
    ),
    "another partition": (lambda one: one._replace(partition=0), "NoLoss", "partition is 0"),
    "a short history": (cut, "FailureHasAName", "its history is"),
    "another first emission": (
        lambda one: with_header(one, FIRST_EMITTED, lambda _: b"1"),
        "FailureHasAName",
        "is 1, should be",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_copy_holds_all_of_its_record_and_its_past(name: str) -> None:
    change, rule, text = WRONG[name]
    build = replay.records.copies.build_copy
    fault = (replay.worker.outcome, "build_copy", lambda *args, **named: change(build(*args, **named)))

    assert fell(rule, "the copy of", text, of=fault)


@pytest.mark.parametrize("name", WRONG)
def test_a_dead_letter_holds_all_of_its_record_and_its_past(name: str) -> None:
    change, rule, text = WRONG[name]
    build = replay.records.dead_letter.build_dead_letter
    fault = (replay.worker.outcome, "build_dead_letter", lambda *args, **named: change(build(*args, **named)))

    assert fell(rule, "the dead letter of", text, of=fault)


def test_a_copy_has_the_timestamp_of_its_record() -> None:
    build = replay.records.copies.build_copy

    def undated(*args: Any, **named: Any) -> Outgoing:
        return build(*args, **named)._replace(timestamp_ms=None)

    fault = (replay.worker.outcome, "build_copy", undated)

    assert fell("NoLoss", "timestamp is None", of=fault)


def test_a_dead_letter_tells_the_offset_of_the_first_emission() -> None:
    build = replay.records.dead_letter.build_dead_letter
    fault = (
        replay.worker.outcome,
        "build_dead_letter",
        lambda *args, **named: with_header(build(*args, **named), "__dlq.errors.offset", lambda _: b"999"),
    )

    assert fell("FailureHasAName", "__dlq.errors.offset", of=fault)


@pytest.mark.parametrize("reason", [Verdict.FAILED, Verdict.ABANDONED])
def test_a_verdict_names_a_time_that_a_session_has_told(reason: Verdict) -> None:
    def lost(**fields: Any) -> Lost:
        made = Lost(**fields)
        return made._replace(decided_at=0) if made.reason == reason else made

    assert fell("HonestDeadlines", f"is {reason} at 0", of=(acker.ledger.verdicts, "Lost", lost))


def test_a_commit_does_not_wait_until_nothing_is_pending() -> None:
    original = Committer.step

    def step(
        self: Committer, committable: Callable[[], Mapping[int, int]], now_ms: int, *, idle: bool
    ) -> bool:
        return idle and original(self, committable, now_ms, idle=idle)

    assert fell("NothingBlocks", "was settled more than 3000 ms ago", of=(Committer, "step", step))


def test_a_worker_that_is_held_up_in_its_step_is_judged_by_when_it_began() -> None:
    """Seed 401403: a back-off of 600 ms ended while the worker, which had found nothing due, was held up."""
    retry = SimpleNamespace(initial_ms=500, multiplier=2.0, max_ms=60_000, jitter=0.2)
    root = SimpleNamespace(
        verdict="FAILED", verdict_at=1, waits_since_ms=None, attempt=1, abandoned=0, held=0, was_held=False
    )
    truth: Any = SimpleNamespace(
        now_ms=9_000, skew_ms_max=0, owing={0: [root]}, input_of=lambda _: SimpleNamespace(retry=retry)
    )
    judge = PutBack()
    judge.worker_rests(truth, 0, at=2, now_ms=1_000)
    judge.worker_rests(truth, 0, at=3, now_ms=1_600)
    with pytest.raises(Broken, match="601 ms after it knew; its back-off is at most 600 ms"):
        judge.worker_rests(truth, 0, at=4, now_ms=1_601)


@pytest.mark.parametrize(
    ("elsewhere", "generation", "falls"),
    [(Holder(2, "op1"), 1, False), (OWN, 1, True), (Holder(2, "op1"), 0, True)],
)
def test_a_zombie_may_plan_what_a_reset_that_reached_another_partition_began_anew(
    elsewhere: Holder, generation: int, falls: bool
) -> None:
    """Seed 900013 of the profile `ordered`: a reset reached one of two acker partitions, and died.

    A restart of the session spread the new generation to the other one, which still had the old holder, and
    was refused by the first. A zombie of the session, which had not heard of it yet, planned the old one.
    """
    here = SimpleNamespace(holders={"g": OWN}, known={65_536: SimpleNamespace(generation=generation)})
    there = SimpleNamespace(holders={"g": elsewhere}, known={})
    truth: Any = SimpleNamespace(roots={}, partitions=[there, here], partition_of=lambda *_: here)
    batch = Journalled("q", 1, "g", OWN, (SourceRun(65_536, 5, 6),), opened_at=1)
    with pytest.raises(Broken, match="was never initialised") if falls else nullcontext():
        EmittedOnce().journalled(truth, batch)


def test_copies_of_one_transaction_come_oldest_first() -> None:
    def youngest_first(*args: Any) -> list[RootOutcome]:
        return outcomes_of(*args)[::-1]

    fault = (replay.worker.firing, "outcomes_of", youngest_first)

    assert fell("PutBack", "after a root that was abandoned behind it", of=fault)


def waiting(reasons: Iterable[Verdict], wait_ms: Callable[[Policy], int]) -> Callable[..., Disposition]:
    """Let what was lost for some reasons wait longer."""

    def decide(policy: Policy, lost: LostEmission, now_ms: int, jitter: float) -> Disposition:
        decided = dispose(policy, lost, now_ms, jitter)
        if isinstance(decided, Replay) and lost.reason in reasons:
            return Replay(decided.due_ms + wait_ms(policy))
        return decided

    return decide


def test_the_first_replay_after_a_takeover_does_not_wait() -> None:
    back_off = waiting([Verdict.ABANDONED], lambda policy: delay_ms(policy.backoff, 1, 0.0))
    fault = (replay.worker.accept, "dispose", back_off)

    assert fell("PutBack", "ABANDONED and was not put back when the replay worker rested", of=fault)


def test_nothing_waits_longer_than_its_back_off() -> None:
    fault = (replay.worker.accept, "dispose", waiting(Verdict, lambda _: 60_000))

    assert fell("PutBack", "was not put back when the replay worker rested", of=fault)
