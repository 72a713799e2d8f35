"""Random histories of one group: planning processes and ackers die, sessions take over, roots fail.

The acker is the real one, the log the in-memory one, and Spark's part is the plainest there can be: it
journals an offset or dies before it does, it runs the batch, or runs it again.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from acker.errors import Unreachable
from acker.identity import is_replay
from acker.wire.events import positions as unpacked
from spout.planning.journal import BEGINNING, Journal, batch_ranges
from spout.planning_process.planner import Planner
from tests.support.worlds.planning import YAML, FlushesLeft, World

HISTORIES = 16
STEPS = 40
TEXT = YAML.replace("200000", "400000")
"""Half of the histories have a timeout; in the others what a crash forgets stays open for ever, and shows."""


class History:
    """One group's life, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        """Begin with records and a first session."""
        self.random = Random(seed)
        self.world = World(TEXT if seed % 2 else TEXT.replace("4s", "0"))
        self.produced = Counter[int]()
        self.emitted = Counter[tuple[int, int]]()
        self.done = BEGINNING
        self.running: Journal | None = None
        self.zombie: Planner | None = None
        self.faults = FlushesLeft()
        self.produced[0] = 150_000 if self.random.random() < 0.3 else 0
        self.world.produce(self.produced[0])
        self.produce()
        self.planner = self.world.ready(faults=self.faults)

    def produce(self) -> None:
        """Append records; seldom so many that they lie in several blocks of the ackers."""
        partition = self.random.randrange(2)
        count = self.random.choice([1, 7, 400, 400, 70_000])
        self.world.produce(count, partition=partition)
        self.produced[partition] += count

    def plan(self) -> None:
        """Plan a batch; Spark journals it, or dies before."""
        if self.running is not None:
            return
        self.faults.left = self.random.choice([0, 1, 1, 1_000, 1_000, 1_000])
        try:
            end = self.planner.plan(self.done, self.random.choice([None, None, 5, 300]), self.world.now_ms)
        except Unreachable:
            end = None
        self.faults.left = 1_000
        if end is None or self.random.random() < 0.2:
            self.restart_planner()
        elif end != self.done:
            self.journalled(end)

    def journalled(self, end: Journal) -> None:
        """Note what Spark will surely emit."""
        self.running = end
        for source, start, stop in batch_ranges(self.done, end):
            self.emitted.update((source, position) for position in range(start, stop))

    def publish(self) -> None:
        """End the batch that runs; one in ten times Spark dies before it says so, and runs it again."""
        if self.running is None:
            return
        ranges = batch_ranges(self.done, self.running)
        first = [run for run in ranges if run.source == 65_536]
        fails = [self.random.randrange(run.start, run.end) for run in first for _ in range(2)]
        self.world.publish(self.done, self.running, fail=fails)
        if self.random.random() < 0.9:
            self.done, self.running = self.running, None

    def restart_planner(self) -> None:
        """Start the planning process from the checkpoint; the old one dies, now or after a last batch."""
        self.bury_zombie()
        last = self.running if self.running is not None else self.done
        if self.random.random() < 0.5 and last.session:
            self.zombie = self.planner
        else:
            self.world.kill(self.planner)
        self.planner = self.world.ready(last, faults=self.faults)
        if self.zombie is not None:
            self.zombie.plan(last, None, self.world.now_ms)

    def bury_zombie(self) -> None:
        """Let what is left of an older process die."""
        if self.zombie is not None:
            self.world.kill(self.zombie)
        self.zombie = None

    def lose_checkpoint(self) -> None:
        """Start with a fresh checkpoint: another session takes over."""
        self.bury_zombie()
        self.world.kill(self.planner)
        self.done, self.running = BEGINNING, None
        self.planner = self.world.ready(faults=self.faults)

    def crash_acker(self) -> None:
        """Kill the acker; another takes its place at once."""
        self.world.kill_acker()
        self.world.start_acker()

    def pass_time(self) -> None:
        """Let some time pass, seldom enough for a timeout."""
        self.world.run(self.random.choice([100, 100, 700, 5_000, 5_000]))

    def live(self) -> None:
        """Let chance decide what happens, and in the end let everything come to rest."""
        deeds = [self.produce, self.plan, self.plan, self.publish, self.publish, self.pass_time]
        deeds += [self.pass_time, self.restart_planner, self.restart_planner, self.crash_acker]
        for _ in range(STEPS):
            self.random.choice(deeds)()
            if self.random.random() < 0.03:
                self.lose_checkpoint()
        self.bury_zombie()
        for _ in range(50):
            while self.running is not None:
                self.publish()
            self.world.run(5_000)
            end = self.planner.plan(self.done, None, self.world.now_ms)
            if end == self.done:
                return
            self.journalled(end)
        raise TimeoutError("the history does not come to rest")


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", range(HISTORIES))
def test_whatever_dies_every_record_is_emitted_at_most_once_and_gets_one_verdict(seed: int) -> None:
    """Rules 1, 2, 5 and 6; P56."""
    history = History(seed)
    history.live()
    world = history.world
    verdicts = Counter[tuple[int, int]]()
    for found in world.verdicts():
        for source, start, end in (*found.acked, *found.absent):
            verdicts.update((source, position) for position in range(start, end))
        for lost in found.lost:
            verdicts.update((lost.source, position) for position in unpacked(lost.positions).tolist())
    records = {
        (65_536 + partition, offset)
        for partition, count in history.produced.items()
        for offset in range(count)
    }
    assert {root for root in verdicts if not is_replay(root[0])} == records
    assert set(verdicts.values()) == {1}
    assert set(history.emitted.values()) == {1}
    assert history.emitted.keys() <= records
    assert history.planner.status(world.now_ms).pending == 0
    assert {p: world.committed(partition=p) or 0 for p in history.produced} == dict(history.produced)
