"""An in-memory cluster with one input, whose roots a test loses, and replay workers that it may kill."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from acker.config import topics as topics_yaml
from acker.config.limits import ReplayLimits
from acker.config.topics import Topics
from acker.errors import Unreachable
from acker.identity import position_at, source_of
from acker.kafka.port import Headers, Membership, Outgoing, Record, TopicPartition
from acker.wire.codec import Codec, wire_codec
from acker.wire.events import Event, Lost, SourceRun, Verdicts, pack_positions
from acker.wire.verdict import Verdict
from replay.records.dead_letter import OUR_PREFIXES
from replay.records.headers import parted_headers
from replay.worker.report import ReplayEvent, Written
from replay.worker.service import ReplayService
from tests.support.memory.clients import Faults, NoFaults
from tests.support.memory.cluster import MemoryCluster, MemoryLog

INPUT_ID = 1
PARTITIONS = 2
TOPIC = "sentences"
COPIES = "sentences.g.replay"
LETTERS = "sentences.g.dlq"
LIMITS = ReplayLimits(position_interval_ms=0, fenced_pause_ms=1_000)

YAML = """
acker: {partitions: 2}
inputs:
  sentences:
    id: 1
    group: g
    partitions: 2
    retry: {attempts: %(attempts)s, %(waits)s, jitter: 0.2, max_abandoned: 2%(more)s}
    dead_letter: {max_ratio: %(max_ratio)s, max_consecutive: %(max_consecutive)s}
"""
POLICY: Mapping[str, object] = {
    "attempts": 3,
    "waits": "initial: 1s, max: 5m",
    "more": "",
    "max_ratio": 1.0,
    "max_consecutive": 1000,
}


@cache
def topics(**policy: object) -> Topics:
    """Parse the topics.yaml of the world, with some of its policy changed."""
    return topics_yaml.parse(YAML % {**POLICY, **policy}, file="topics.yaml", environ={})


@cache
def codec() -> Codec[Event]:
    """Return the codec of the wire, made once."""
    return wire_codec()


class Crash(Exception):
    """The process ends here; nothing in the product catches it."""


class CrashAt(NoFaults):
    """Ends the process before or after the n-th call to the cluster that can fail."""

    def __init__(self, n: int) -> None:
        self.left = n

    def before(self, operation: str) -> None:
        self._count()

    def after(self, operation: str) -> None:
        self._count()

    def _count(self) -> None:
        if self.left == 0:
            raise Crash
        self.left -= 1


class NoBroker(NoFaults):
    """No broker answers."""

    def before(self, operation: str) -> None:
        raise Unreachable(f"{operation}: no broker answers")


class FailOnce(NoFaults):
    """Raises an error once, when an operation is called; with `late` the operation takes effect before."""

    def __init__(self, operation: str, error: Exception, *, late: bool = False, skip: int = 0) -> None:
        self._operation, self._error, self._late, self._skip = operation, error, late, skip
        self.happened = False

    def before(self, operation: str) -> None:
        self._raise(operation, late=False)

    def after(self, operation: str) -> None:
        self._raise(operation, late=True)

    def _raise(self, operation: str, *, late: bool) -> None:
        if operation != self._operation or late != self._late or self.happened:
            return
        if self._skip:
            self._skip -= 1
            return
        self.happened = True
        raise self._error


class When(NoFaults):
    """Lets something else happen just before an operation, once."""

    def __init__(self, operation: str, happens: Callable[[], None], *, skip: int = 0) -> None:
        self._operation, self._happens, self._skip = operation, happens, skip

    def before(self, operation: str) -> None:
        if operation == self._operation:
            self._skip -= 1
            if self._skip == -1:
                self._happens()


class Client(MemoryLog):
    """A client's view that remembers its places in groups, so that a kill can give them up."""

    def __init__(self, cluster: MemoryCluster, faults: Faults) -> None:
        super().__init__(cluster, faults)
        self.places: list[Membership] = []

    def join(self, group: str, topics: Sequence[str], *, pause_ms: int | None = None) -> Membership:
        place = super().join(group, topics)
        self.places.append(place)
        return place

    def vanish(self) -> None:
        for place in self.places:
            place.vanish()  # type: ignore[attr-defined]  # the in-memory one can


class Emission(NamedTuple):
    """A record of the source or the replay topic, as a root."""

    source: int
    topic: str
    partition: int
    offset: int


class World:
    """The cluster, the time, and everything that a test does to them."""

    def __init__(self) -> None:
        self.cluster = MemoryCluster()
        self.now_ms = 1_000_000
        self.clock_set_ms = 0
        self.events: list[ReplayEvent] = []
        for name in (TOPIC, COPIES, LETTERS):
            self.cluster.create_topic(name, PARTITIONS)
        self.cluster.create_topic("_ack_verdict", 2)
        self.cluster.create_topic("_ack_due", 2, compacted=True)
        self._codec = codec()
        self._clients: dict[int, Client] = {}

    # --- what happens in the stream

    def emit(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int = 0,
        timestamp_ms: int = 77,
        topic: str = TOPIC,
    ) -> Emission:
        """Append a record to the source topic (or another one) and return it as a root."""
        place = TopicPartition(topic, partition)
        offset = self._log().ends([place])[place]
        self._send(Outgoing(topic, partition, value, key, headers, timestamp_ms))
        return Emission(source_of(INPUT_ID, partition, replay=topic == COPIES), topic, partition, offset)

    def lose(
        self,
        *roots: Emission,
        reason: Verdict = Verdict.FAILED,
        verdict_partition: int = 0,
        topic_id: str | None = None,
        group: str = "g",
        source: int | None = None,
        message: str = "bad line",
        error: str = "ValueError",
        operator: str = "split",
    ) -> None:
        """Let an acker write that roots of one source were lost."""
        first = roots[0]
        failed = reason is Verdict.FAILED
        lost = Lost(
            reason=reason,
            group=group,
            topic=first.topic,
            topic_id=topic_id or self.topic_id(first.topic),
            operator=operator if failed else "",
            error=error if failed else "",
            message=message if failed else "",
            emitted_at=5_000,
            emitted_wall=self.now_ms - 250,
            decided_at=5_200,
            source=first.source if source is None else source,
            positions=pack_positions(np.array([position_at(0, root.offset) for root in roots])),
        )
        self.verdict(Verdicts((), (), (lost,)), verdict_partition)

    def ack(self, source: int, start: int, end: int, verdict_partition: int = 0) -> None:
        """Let an acker write that roots were acked."""
        self.verdict(Verdicts((SourceRun(source, start, end),), (), ()), verdict_partition)

    def verdict(self, event: Verdicts, partition: int = 0) -> None:
        """Write a record of the verdict topic, in a transaction as an acker does."""
        writer = self._log().transactions(f"acker-{partition}")
        writer.init(0)
        writer.begin()
        writer.send(Outgoing("_ack_verdict", partition, self._codec.encode(event)))
        writer.commit(0)

    def garbage(self, value: bytes | None, partition: int = 0) -> None:
        """Write a record of the verdict topic that is none."""
        self._send(Outgoing("_ack_verdict", partition, value))

    def send_due(self, key: bytes, value: bytes, partition: int = 0) -> None:
        """Write a record of the due topic, whatever it is."""
        self._send(Outgoing("_ack_due", partition, value, key))

    def topic_id(self, name: str) -> str:
        """Return the id that the cluster gave a topic."""
        return self._log().topics([name])[name].id

    # --- workers

    def worker(
        self,
        faults: Faults | None = None,
        limits: ReplayLimits | None = LIMITS,
        of: Topics | None = None,
        jitter: float = 0.0,
        client: Client | None = None,
        written: Written | None = None,
    ) -> ReplayService:
        """Start a worker, by a `client` of its own or one with `faults`; `kill` ends it.

        Without `limits` it takes those of its topics.yaml.
        """
        client = client or Client(self.cluster, faults or NoFaults())
        service = ReplayService(
            client, of or topics(), jitter=lambda: jitter, limits=limits, report=self.events.append,
            on_written=written, clock_ms=lambda: self.now_ms - self.clock_set_ms,
        )  # fmt: skip
        self._clients[id(service)] = client
        return service

    def set_clock(self, by_ms: int) -> None:
        """Set the wall clock ahead, or back, while no time passes."""
        self.now_ms += by_ms
        self.clock_set_ms += by_ms

    def kill(self, service: ReplayService) -> None:
        """End a worker as SIGKILL does, and let its session time out."""
        self._clients[id(service)].vanish()

    def silence(self, service: ReplayService) -> None:
        """Let a worker's session time out while it runs on."""
        self.kill(service)

    def settle(self, *services: ReplayService, until_ms: int | None = None) -> None:
        """Step workers until none finds anything to do, jumping to the next due time up to `until_ms`."""
        until_ms = self.now_ms if until_ms is None else until_ms
        for _ in range(2_000):
            self.cluster.now_ms = self.now_ms
            worked = [service.step(self.now_ms) for service in services]
            if any(worked):
                continue
            waiting = [due for each in services if (due := each.status().next_due_ms) is not None]
            if self.now_ms == until_ms:
                return
            self.now_ms = max(self.now_ms, min([*waiting, until_ms]))
        raise AssertionError("the workers do not come to rest")

    # --- what they did

    def copies(self, partition: int | None = None) -> list[Record]:
        """Return the committed records of the replay topic."""
        return self.records(COPIES, partition)

    def letters(self, partition: int | None = None) -> list[Record]:
        """Return the committed records of the dead-letter topic."""
        return self.records(LETTERS, partition)

    def records(self, topic: str, partition: int | None = None) -> list[Record]:
        """Return the committed records of a topic, partition by partition."""
        reader = self._log().reader(committed=True)
        numbers = range(PARTITIONS) if partition is None else [partition]
        found: list[Record] = []
        for number in numbers:
            reader.assign({TopicPartition(topic, number): self.start(topic, number)})
            found += reader.poll(0, 1_000_000)
        return found

    def start(self, topic: str, partition: int) -> int:
        """Return a partition's log start."""
        place = TopicPartition(topic, partition)
        return self._log().starts([place])[place]

    def emission_of(self, copy: Record) -> Emission:
        """Return a copy as the root that a spout emits."""
        return Emission(
            source_of(INPUT_ID, copy.partition, replay=True), copy.topic, copy.partition, copy.offset
        )

    def _log(self) -> MemoryLog:
        return self.cluster.log()

    def _send(self, record: Outgoing) -> None:
        producer = self._log().producer()
        producer.send(record)
        producer.flush(0)


def header(record: Record, name: str) -> str | None:
    """Return the value of one of our headers, or else of the record's own, as text; or None."""
    own, ours = parted_headers(record.headers, OUR_PREFIXES)
    found = [value for key, value in ours if key == name] or [value for key, value in own if key == name]
    if len(found) > 1:
        raise AssertionError(f"header {name} comes {len(found)} times")
    return found[0].decode() if found and found[0] is not None else None


def history(record: Record) -> list[dict[str, object]]:
    """Return a record's history."""
    found: list[dict[str, object]] = json.loads(header(record, "windhover.history") or "[]")
    return found


def limits(**changed: int) -> ReplayLimits:
    """Return the world's limits with some changed."""
    return LIMITS.model_copy(update=changed)
