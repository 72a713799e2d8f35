"""The limits of ackers and replay workers, as topics.yaml sets them."""

from __future__ import annotations

from acker.config.limits import AckerLimits, ReplayLimits, ReplaySettings
from acker.config.topics import parse
from tests.support.worlds.replay_world import World, topics


def test_a_file_that_says_nothing_leaves_every_limit_at_its_default() -> None:
    """And has a key for each of them: a missing one, or one too many, could not be handed over."""
    silent = parse("", file="topics.yaml", environ={})
    assert silent.acker.limits == AckerLimits()
    assert silent.replay.limits == ReplayLimits()


def test_each_limit_reaches_its_part_by_its_own_name() -> None:
    text = """
acker: {limits: {unreachable: 2m, refold_bytes: 0}}
replay: {limits: {input_retry: 2s, fetch_bytes_max: 1}}
"""
    read = parse(text, file="topics.yaml", environ={})
    assert read.acker.limits == AckerLimits(unreachable_ms=120_000, refold_bytes=0)
    assert read.replay.limits == ReplayLimits(input_retry_ms=2_000, fetch_bytes_max=1)


def test_a_limit_that_is_a_constant_is_passed_over_with_a_line_that_names_its_value() -> None:
    text = """
acker:
  limits: {unreachable: 2m, lanes: 500}
replay: {limits: {poll: 1, waiting_max: 4}}
"""
    lines: list[str] = []
    read = parse(text, file="old.yaml", environ={}, warn=lines.append)
    assert (read.acker.limits, read.replay.limits) == (
        AckerLimits(unreachable_ms=120_000),
        ReplayLimits(waiting_max=4),
    )
    assert lines == [
        "old.yaml:3: acker.limits.lanes: is a constant now, 10,000; remove the key",
        "old.yaml:4: replay.limits.poll: is a constant now, 500ms; remove the key",
    ]


def test_a_replay_worker_keeps_to_the_limits_of_its_file() -> None:
    world = World()
    few = ReplaySettings(limits=ReplayLimits(waiting_max=4))
    worker = world.worker(limits=None, of=topics().model_copy(update={"replay": few}))
    world.lose(*[world.emit(b"%d" % number) for number in range(10)])
    world.settle(worker)
    assert worker.status().waiting == 4
