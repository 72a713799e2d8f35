"""What happens to a record by the policy that an input has when its section says nothing."""

from __future__ import annotations

import pytest

from acker.config.topics import parse
from acker.units import UNITS_MS
from acker.wire.verdict import Verdict
from replay.policy.disposition import DeadReason, GiveUp, LostEmission, Policy, Replay, dispose
from replay.worker.worker import policy_of
from tests.support.worlds.kestrel_world import KestrelWorld
from tests.support.worlds.planning import yaml_of

MINUTE_MS = UNITS_MS["m"]
RECORDS = 100
DOWN_MS = MINUTE_MS


def default_policy() -> Policy:
    """Return the policy of the shortest input that there is."""
    return policy_of(parse("inputs: {a: {id: 1, group: g}}", file="topics.yaml", environ={}).input("a"))


def lives(policy: Policy, down_ms: int, jitter: float) -> tuple[int, int, DeadReason | None]:
    """Let a record fail while a service is down; return its emissions, when the last one was, and its end."""
    now_ms = emissions = 0
    while True:
        emissions += 1
        if now_ms >= down_ms:
            return emissions, now_ms, None
        lost = LostEmission(Verdict.FAILED, emissions, lived_ms=now_ms, operator="b", error="ConnectionError")
        disposed = dispose(policy, lost, now_ms, jitter)
        if isinstance(disposed, GiveUp):
            return emissions, now_ms, disposed.reason
        assert isinstance(disposed, Replay)
        now_ms = disposed.due_ms


@pytest.mark.parametrize("jitter", [0.0, 0.999])
@pytest.mark.parametrize("down_ms", [1_000, 15_000, MINUTE_MS, 5 * MINUTE_MS, 8 * MINUTE_MS])
def test_a_service_may_be_down_for_minutes(down_ms: int, jitter: float) -> None:
    """D602: 500 records were 500 dead letters after 18 s; none is one now."""
    _, last_ms, reason = lives(default_policy(), down_ms, jitter)
    assert reason is None
    assert down_ms <= last_ms <= 3 * down_ms + 1_000, "it comes again soon after the service is back"


@pytest.mark.parametrize("jitter", [0.0, 0.999])
def test_what_always_fails_ends_within_ten_minutes_or_so(jitter: float) -> None:
    """D604: ten emissions."""
    emissions, last_ms, reason = lives(default_policy(), 1 << 60, jitter)
    assert (emissions, reason) == (10, DeadReason.ATTEMPTS)
    assert 8 * MINUTE_MS < last_ms < 11 * MINUTE_MS


def test_records_whose_service_is_down_for_a_minute_are_done_and_none_is_dead() -> None:
    """D602: through acker, replay worker and client, with the limits of the breaker by default."""
    world = KestrelWorld(yaml_of(timeout="30s"))
    world.start_replays()
    world.produce(RECORDS)
    spout_ = world.spout()
    client = spout_.client("bolt")
    began_ms, confirmed = world.now_ms, 0
    while confirmed < RECORDS and world.now_ms - began_ms < 3 * DOWN_MS:
        world.run(1_000)
        for item in client.open(RECORDS):
            if world.now_ms - began_ms < DOWN_MS:
                client.fail(item, ConnectionError("the service is down"))
            else:
                confirmed += client.confirm(item)
    assert confirmed == RECORDS
    assert list(world.records("sentences.g.dlq")) == []
