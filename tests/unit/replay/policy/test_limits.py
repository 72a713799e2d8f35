"""The limits of ackers and replay workers, as topics.yaml sets them."""

from __future__ import annotations

from acker.config.limits import AckerLimits, ReplayLimits, ReplaySettings
from acker.config.topics import parse
from tests.support.worlds.replay_world import World, topics


def test_a_file_that_says_nothing_leaves_every_limit_at_its_default() -> None:
    """And has a key for each of them: a missing one, or one too many, could not be handed over."""
    silent = parse("", file="topics.yaml", environ={})
    assert silent.acker.all_limits == AckerLimits()
    assert ReplayLimits(**silent.replay.limits.model_dump()) == ReplayLimits()


def test_each_limit_reaches_its_part_by_its_own_name() -> None:
    text = """
acker: {verdict_retention: 1d, limits: {unreachable: 2m, lanes: 500, refold_bytes: 0}}
replay: {limits: {poll: 1s, fetch_gap_bytes: 0}}
"""
    read = parse(text, file="topics.yaml", environ={})
    assert read.acker.all_limits == AckerLimits(
        unreachable_ms=120_000, lanes=500, refold_bytes=0, verdict_retention_ms=86_400_000
    )
    assert ReplayLimits(**read.replay.limits.model_dump()) == ReplayLimits(poll_ms=1_000, fetch_gap_bytes=0)


def test_a_replay_worker_keeps_to_the_limits_of_its_file() -> None:
    world = World()
    few = ReplaySettings(limits=ReplayLimits(waiting_max=4))
    worker = world.worker(limits=None, of=topics().model_copy(update={"replay": few}))
    world.lose(*[world.emit(b"%d" % number) for number in range(10)])
    world.settle(worker)
    assert worker.status().waiting == 4
