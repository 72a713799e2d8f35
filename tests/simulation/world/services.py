"""Ackers and replay workers of the simulation: the real services, stepped."""

from __future__ import annotations

from typing import Final

from acker.config.limits import AckerLimits, ReplayLimits
from acker.kafka.port import TopicPartition
from acker.service.service import AckerService
from replay.worker.service import ReplayService
from tests.simulation.world.process import Process, Setting

HOUR_MS = 3_600_000

_OLDER: Final = 0.5
"""How likely a replay worker starts with an older topics.yaml, where workers may."""

_READS_AGAIN: Final = 0.03
"""How likely such a worker reads the newer one in a step."""


class AckerProcess(Process):
    """One acker."""

    turns = 2

    def __init__(self, world: Setting, name: str) -> None:
        """Start a process; the service is made in its first step."""
        super().__init__(world, name)
        shortens = world.options.rate("shorten") > 0
        self._limits = AckerLimits(
            poll_ms=0,
            step_records=self.rng.choice((1, 3, 2_000)),
            refold_bytes=world.options.bytes_kept,
            fenced_ms=500,
            restore_attempts=1_000,
            retention_interval_ms=1_000 if shortens else HOUR_MS,
            unreachable_ms=HOUR_MS,
        )
        self._verdict_retention_ms = 30_000 if shortens else HOUR_MS
        self._service: AckerService | None = None

    def step(self) -> None:
        """Step the service; one that rests owes nothing."""
        topics = self.world.topics
        if self._service is None:
            self._service = AckerService(
                self.client, topics.ack_topics, topics.acker.partitions, group=topics.acker.group,
                replay_group=topics.acker.replay_group, limits=self._limits,
                verdict_retention_ms=self._verdict_retention_ms, clock_ms=lambda: self.world.now_ms,
            )  # fmt: skip
            return
        worked = self._service.step(self.wall_ms)
        if not worked and not self.is_disturbed and not self.is_zombie and self.world.truth.owed:
            for number in self._service.status().partitions:
                if self._has_all(number):
                    self.world.truth.acker_rests(number)

    def _has_all(self, number: int) -> bool:
        """Tell whether everything that is in the three topics was committed by a step."""
        names = self.world.topics.ack_topics
        committed = self.world.cluster.committed(self.world.topics.acker.group)
        for topic in (names.init, names.ack, names.fail):
            kept = committed.get(TopicPartition(topic, number))
            end = self.world.cluster.at(topic, number).end
            if end != (kept.offset if kept else 0):
                return False
        return True


class ReplayProcess(Process):
    """One replay worker."""

    def __init__(self, world: Setting, name: str) -> None:
        """Start a process; the service is made in its first step."""
        super().__init__(world, name)
        self._limits = ReplayLimits(
            poll_ms=0,
            intake_max=self.rng.choice((1, 3, 2_000)),
            fire_max=self.rng.choice((1, 3, 2_000)),
            waiting_max=self.rng.choice((4, 100_000)),
            position_interval_ms=self.rng.choice((0, 1_000)),
            fenced_pause_ms=500,
            aborts_max=1_000,
            input_retry_ms=1_000,
        )
        self._service: ReplayService | None = None
        topics = world.topics
        self._topics = topics
        if world.options.older and not world.is_healed and self.rng.random() < _OLDER:
            self._topics = topics.model_copy(update={"inputs": dict(list(topics.inputs.items())[:-1])})

    def step(self) -> None:
        """Step the service; one with an older topics.yaml reads the newer one at some time."""
        if self._service is None:
            self._service = ReplayService(
                self.client,
                self._topics,
                jitter=self.rng.random,
                limits=self._limits,
                clock_ms=lambda: self.world.now_ms,
            )
        elif self._topics is not self.world.topics and (
            self.world.is_healed or self.rng.random() < _READS_AGAIN
        ):
            self._topics = self.world.topics
            self._service.take_topics(self._topics)
        at, began_ms = self.world.truth.at, self.world.now_ms
        worked = self._service.step(self.wall_ms)
        if worked or self.is_disturbed or self.is_zombie or not self._is_roomy:
            return
        if self._service.status().aside:
            return
        if self.world.truth.undisposed:
            for number in self._service.status().partitions:
                self.world.truth.worker_rests(number, at, began_ms)

    @property
    def _is_roomy(self) -> bool:
        """Whether what waits for its back-off never keeps it from reading verdicts."""
        return self._limits.waiting_max > self.world.options.records * self.world.options.groups
