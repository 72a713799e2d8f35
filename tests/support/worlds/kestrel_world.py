"""A `KafkaSpout` on the in-memory Kafka, moved step by step: no thread, no waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import Message

from acker.kafka.port import Log, Record, TopicPartition
from spout.runtime.tracing import configured_spans
from spout.standalone.engine import Engine
from spout.standalone.kafka_spout import KafkaSpout
from spout.standalone.queues import SpoutStatus
from spout.standalone.service import SpoutService
from tests.support.memory.cluster import Faults
from tests.support.worlds.planning import READY_STEPS_MAX, STEP_MS, YAML, World

__all__ = ["YAML", "KestrelWorld", "Steps"]


class MemoryMessages:
    """Reads the in-memory log and returns the client's own messages."""

    def __init__(self, log: Log) -> None:
        self._reader = log.reader(committed=True)
        self.position = self._reader.position
        self.assign = self._reader.assign
        self.close = self._reader.close
        self.pass_over = self._reader.pass_over

    def poll_messages(self, timeout_ms: int, max_records: int) -> Mapping[TopicPartition, list[Message]]:
        """Return what is there."""
        found: dict[TopicPartition, list[Message]] = {}
        for record in self._reader.poll(timeout_ms, max_records):
            message = Message(
                topic=record.topic, partition=record.partition, offset=record.offset, key=record.key,
                value=record.value, headers=list(record.headers),
                timestamp=(record.timestamp_type + 1, record.timestamp_ms), leader_epoch=record.leader_epoch,
            )  # fmt: skip
            found.setdefault(TopicPartition(record.topic, record.partition), []).append(message)
        return found


class Steps(Engine):
    """Moves a spout when its world runs; nothing here waits."""

    def __init__(
        self, world: KestrelWorld, name: str, inputs: tuple[str, ...], faults: Faults | None
    ) -> None:
        # A client that waits for its confirmation publishes it here itself, and so takes the lock again.
        self.lock = threading.RLock()
        self.guard = threading.Condition(self.lock)
        self.is_usable = self.is_publishing_idle = True
        self.publishes = True
        self._world = world
        self.service = self._service = SpoutService(
            lambda: world.cluster.log(faults),
            lambda: MemoryMessages(world.cluster.log(faults)),
            world.topics,
            [world.topics.input(one) for one in inputs],
            self.guard,
            new_id=name,
            report=lambda event, fields: world.reports.append((event, dict(fields))),
            spans=configured_spans(),
        )

    def now_ms(self) -> int:
        """Return the world's time."""
        return self._world.now_ms

    def start(self, wait_ms: int) -> None:
        """Take the group."""
        self.service.open(self._world.now_ms)
        self._world.steps.append(self)
        for _ in range(READY_STEPS_MAX):
            if self.service.is_ready:
                return
            self._world.run(STEP_MS)
        raise TimeoutError("no acker answered")

    def stop(self) -> None:
        """Publish what was settled, and leave."""
        self.publish()
        self._world.steps.remove(self)
        self.service.close()

    def status(self) -> SpoutStatus:
        """Return the status."""
        return self.queues.status(self.service.status(self._world.now_ms))

    def check(self) -> None:
        """Nothing stops it but an error, which the test sees itself."""

    def wake_planning(self) -> None:
        """Read and plan what clients request."""

    def wake_publishing(self, *, at_once: bool) -> None:
        """Leave it to the next round; where a client waits, publish: there is no other thread to do it."""
        if at_once:
            self.publish()

    def add_orphan(self, client: str, closed: Callable[[str], None]) -> None:
        """Put back at once."""
        self.queues.put_back_of_client(client)
        closed(client)

    def round(self) -> None:
        """Read, plan and publish once."""
        self.service.read(self._world.now_ms, 0)
        self.service.step(self._world.now_ms)
        if self.publishes:
            self.publish()

    def publish(self) -> None:
        """Publish what was settled."""
        while self.service.publish() is not None:
            pass


class KestrelWorld(World):
    """A world with spouts in place of planning processes."""

    def __init__(self, text: str = YAML) -> None:
        self.steps: list[Steps] = []
        self.reports: list[tuple[str, dict[str, object]]] = []
        super().__init__(text)

    def spout(self, *inputs: str, faults: Faults | None = None) -> KafkaSpout:
        """Open a spout; it moves whenever the world runs."""
        return self.make_spout(*inputs, faults=faults).open()

    def make_spout(self, *inputs: str, faults: Faults | None = None) -> KafkaSpout:
        """Make a spout that is not open yet."""
        self._names += 1
        names = inputs or tuple(self.topics.inputs)
        self.latest = Steps(self, f"s{self._names}", names, faults)
        return KafkaSpout(self.topics, names, runner=self.latest)

    def records(self, topic: str) -> Sequence[Record]:
        """Return what is in the first partition of a topic."""
        reader = self.log.reader(committed=True)
        reader.assign({TopicPartition(topic, 0): 0})
        return reader.poll(0)

    def kill_spout(self) -> None:
        """Let the latest spout die wherever it is: nothing is closed, nothing published."""
        self.steps.remove(self.latest)

    def run(self, ms: int) -> None:
        """Let time pass for all of them."""
        for _ in range(max(1, ms // STEP_MS)):
            super().run(STEP_MS)
            for each in self.steps:
                each.round()
