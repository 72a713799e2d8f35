"""``python -m benchmarks planning``: planning with many source partitions and many acker partitions.

A planning process as Spark's source runner has it, without Spark: it takes the group, plans batches of all
partitions, whose records are acked at once, and then has nothing to do. A real acker answers. All is measured
twice, with few partitions and with many, so that one sees how it grows.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Final

from rich.console import Console

from acker.errors import CheckFailed
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing
from benchmarks.measure import Figure, print_report
from benchmarks.requests import Requests
from benchmarks.world import INPUT, World, bench_world, bulk_producer
from spout.group.sources import PlannerSpec
from spout.planning.journal import BEGINNING, Journal, batch_ranges
from spout.planning.plan import BatchPlan
from spout.planning_process.planner import Planner
from spout.publishing.fold import BatchOutcome
from spout.publishing.publish import BatchLane, Publisher, publication_of
from spout.runtime.child import Child
from tests.torture.stage.proxy import Proxy

READY_SECONDS_MAX: Final = 120.0
SETTLED_SECONDS_MAX: Final = 60.0
POLL_MS: Final = 50
"""As the planning process of a query polls."""

CLIENT: Final = f"windhover-spout-{INPUT}"

RECORDS: Final = 20
"""Records of each source partition in a batch."""


@dataclass(frozen=True, slots=True)
class PlanningOptions:
    """What to plan: partitions of the source topic, acker partitions, batches, and seconds of idling."""

    partitions: int = 200
    ackers: int = 64
    batches: int = 30
    seconds: int = 20


FEW: Final = (4, 4)
"""Source partitions and acker partitions of the installation that the large one is compared with."""


def run(options: PlanningOptions, *, json: bool) -> int:
    """Measure few partitions and many. Return 0.

    Raises:
        CheckFailed: a batch had not all records, or was not acked in time.
    """
    console = Console(stderr=True)
    figures: list[Figure] = []
    for partitions, ackers in (FEW, (options.partitions, options.ackers)):
        console.print(f"{partitions} source partitions, {ackers} acker partitions", highlight=False)
        figures += _measure(options, partitions, ackers, console)
    print_report(console, figures, json=json)
    return 0


def _measure(options: PlanningOptions, partitions: int, ackers: int, console: Console) -> list[Figure]:
    requests = Requests()
    with (
        Proxy(requests.connection) as proxy,
        bench_world(console, partitions=partitions, ackers=ackers, proxy=proxy) as world,
        Child("acker", world.config) as acker,
    ):
        acker.wait_ready(READY_SECONDS_MAX)
        _wait_for_all(acker, ackers)
        with _Query.of(world) as query:
            taking = _ms(query.take_group)
            batches = []
            for _ in range(options.batches):
                _produce(world, partitions)
                batches.append(_ms(partial(query.plan, partitions * RECORDS)))
                query.settle()
            empty = [_ms(partial(query.plan, 0)) for _ in range(options.batches)]
            requests.take()
            cpu, began = time.thread_time(), time.monotonic()
            query.idle(options.seconds)
            took = time.monotonic() - began
            cpu = time.thread_time() - cpu
            sent = sum(
                n for (client, _), n in requests.take().items() if client.startswith("windhover-spout")
            )
    name = f"{partitions}/{ackers}"
    return [
        Figure(f"{name}: taking the group", taking, "ms"),
        Figure(f"{name}: first batch", batches[0], "ms"),
        Figure(f"{name}: later batches", median(batches[1:] or batches), "ms", "50"),
        Figure(f"{name}: nothing to plan", median(empty), "ms"),
        Figure(f"{name}: CPU of the idle planning thread", 100 * cpu / took, "% of a core"),
        Figure(f"{name}: requests of the idle planning process", sent / took, "/s"),
    ]


def _wait_for_all(acker: Child, ackers: int) -> None:
    """Wait until every acker partition is restored; the first one makes an acker ready."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    while acker.log.read_bytes().count(b"acker.partition_restored") < ackers:
        if time.monotonic() > deadline:
            raise CheckFailed(acker.how_it_ended(READY_SECONDS_MAX))
        time.sleep(POLL_MS / 1000)


def _produce(world: World, partitions: int) -> None:
    with bulk_producer(world) as producer:
        for partition in range(partitions):
            for _ in range(RECORDS):
                producer.send(Outgoing(INPUT, partition, b"x" * 98))


class _Query:
    """A planning process in this thread, and a sink that acks every batch at once."""

    def __init__(self, world: World) -> None:
        settings = world.topics.kafka
        self._log = KafkaLog(settings, client_id=CLIENT)
        found = world.topics.input(INPUT)
        self._spec = PlannerSpec((found,), world.topics.ack_topics, world.topics.acker.partitions)
        self._id = uuid.uuid4().hex[:16]
        self._planner = Planner(self._log, self._spec, new_id=self._id)
        self._publisher = Publisher(lambda: KafkaLog(settings), world.topics.ack_topics)
        self._journal: Journal = BEGINNING
        self._ranges = batch_ranges(BEGINNING, BEGINNING)
        self._batches = 0

    @classmethod
    @contextmanager
    def of(cls, world: World) -> Iterator[_Query]:
        """Make one, and close it."""
        query = cls(world)
        try:
            yield query
        finally:
            query._planner.close()
            query._publisher.close()
            query._log.close()

    def take_group(self) -> None:
        """Open, until a batch can be planned."""
        self._planner.open(BEGINNING, _now_ms())
        while not self._planner.is_ready:
            self._step()

    def plan(self, records: int) -> None:
        """Plan one batch, which must have so many records; what Spark calls `latestOffset` for."""
        end = self._planner.plan(self._journal, None, _now_ms())
        self._ranges = batch_ranges(self._journal, end) if end != self._journal else ()
        self._journal = end
        count = sum(run.end - run.start for run in self._ranges)
        if count != records:
            raise CheckFailed(f"a batch has {count} records, of {records} that were produced")

    def settle(self) -> None:
        """Ack the batch, and wait for the verdicts."""
        self._batches += 1
        journal, spec = self._journal, self._spec
        plan = BatchPlan(
            spec.group,
            journal.session,
            journal.epoch,
            spec.partitions,
            journal.now,
            spec.timeout_ms,
            True,
            tuple(self._ranges),
        )
        lane = BatchLane(f"{self._id}/{journal.session}", self._batches)
        self._publisher.publish(publication_of(BatchOutcome(plan), lane), spec.partitions)
        deadline = time.monotonic() + SETTLED_SECONDS_MAX
        while pending := self._planner.status(_now_ms()).pending:
            if time.monotonic() > deadline:
                raise CheckFailed(f"{pending} roots have no verdict after {SETTLED_SECONDS_MAX:.0f} s")
            self._step()

    def idle(self, seconds: int) -> None:
        """Go on without anything to plan."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._step()

    def _step(self) -> None:
        self._planner.step(self._planner.poll(POLL_MS), _now_ms())


def _ms(call: Callable[[], None]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
