"""Dead letters of a worker whose clock is wrong, in a topic that does not take every time."""

from __future__ import annotations

import pytest

from replay.worker.service import ReplayService
from tests.support.worlds.replay_world import LETTERS, World, header, topics

AFTER = "message.timestamp.after.max.ms"
BEFORE = "message.timestamp.before.max.ms"
HOUR_MS = 3_600_000
STEP_MS = 500


def dated(world: World) -> None:
    """Let the broker date the verdicts, as it does in topics that `windhover topics create` makes."""
    world.cluster.delete_topic("_ack_verdict")
    world.cluster.create_topic("_ack_verdict", 2, settings={"message.timestamp.type": "LogAppendTime"})


def settle(world: World, worker: ReplayService, ahead_ms: int, for_ms: int) -> None:
    """Step a worker whose clock is ahead of the broker's."""
    end_ms = world.now_ms + for_ms
    while world.now_ms < end_ms:
        world.now_ms += STEP_MS
        world.cluster.now_ms = world.now_ms - ahead_ms
        while worker.step(world.now_ms):
            pass


@pytest.mark.parametrize("ahead_ms", [3_000, 2 * HOUR_MS, -2 * HOUR_MS, 0], ids=["3 s", "2 h", "-2 h", "0"])
@pytest.mark.parametrize("limit", [AFTER, BEFORE])
def test_letters_are_written_however_wrong_the_workers_clock_is(ahead_ms: int, limit: str) -> None:
    """D405: a topic that takes what is a second off; they were put aside without end."""
    world = World()
    world.now_ms = 10 * HOUR_MS
    dated(world)
    world.cluster.delete_topic(LETTERS)
    world.cluster.create_topic(LETTERS, 2, settings={limit: "1000"})
    worker = world.worker(of=topics(attempts=1))
    world.cluster.now_ms = world.now_ms - ahead_ms
    world.lose(*[world.emit(b"%d" % number) for number in range(20)])
    settle(world, worker, ahead_ms, 300_000)
    letters = world.letters()
    assert sorted(int(letter.value or b"") for letter in letters) == list(range(20))
    assert {header(letter, "windhover.dead") for letter in letters} == {"ATTEMPTS"}
    assert worker.status().aside == 0
    is_refused = ahead_ms > 0 if limit == AFTER else ahead_ms < 0
    end_ms = world.cluster.now_ms if is_refused else world.now_ms
    assert all(end_ms - 300_000 <= letter.timestamp_ms <= end_ms for letter in letters)


def test_a_topic_that_takes_every_time_gets_the_workers_own() -> None:
    """Nothing tells that the broker's clock is the right one."""
    world = World()
    world.now_ms = 10 * HOUR_MS
    dated(world)
    worker = world.worker(of=topics(attempts=1))
    world.lose(world.emit(b"1"))
    settle(world, worker, 2 * HOUR_MS, 5_000)
    (letter,) = world.letters()
    assert 0 <= world.now_ms - letter.timestamp_ms <= 5_000
