"""``python -m benchmarks order``: what an ordering costs in Spark, without failures and with some.

The same source, bolt and sink run without an ordering, by key and by partition, in turn, in one Spark
application: once where nothing fails, and once where one record in a thousand fails. One without an ordering
has batches as large as those by key, to see what that costs by itself. A round is over when so many records
have their ACKED verdict; it is timed from its first micro-batch on.

The bolt works record by record, since that is where a failure holds back what stands behind it at once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

import spout
from acker.errors import CheckFailed
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Log, Outgoing
from benchmarks.measure import (
    Figure,
    Sample,
    cpu_seconds_of_tree,
    medians,
    print_report,
)
from benchmarks.settled import Settled
from benchmarks.streams.pipelines import discard
from benchmarks.world import INPUT, PARTITIONS, World, bench_world, bulk_producer, input_name
from spout.bolts.collectors import BasicCollector
from spout.local.spark_session import local_session, warm_up
from spout.runtime.child import Child
from spout.tuples.tuple import Tuple

KEYS: Final = 10_000
FAILING: Final = 1_000
"""One record in so many fails."""

STOPS_MOST: Final = "partition"
STOPPED_SHARE: Final = 10
"""It has one in so many of the records with failures: each stops its partition until its copy is through."""

ROUND_SECONDS_MAX: Final = 900.0
READY_SECONDS_MAX: Final = 60.0
POLL_SECONDS: Final = 0.05
RETRY: Final[Mapping[str, Any]] = {"initial": "100ms", "multiplier": 1, "max": "100ms", "jitter": 0}
NO_LIMIT: Final = 1 << 40

SMALL_BATCHES: Final = "none, batches as by key"
"""It has at most as many records in a batch as by key: `max_held` of each partition."""

CONTESTANTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "none": {},
    SMALL_BATCHES: {},
    "key": {"ordering": "key"},
    "partition": {"ordering": "partition"},
    "key, max_held 10,000": {"ordering": "key", "max_held": 10_000},
}
"""Settings of the input of each."""


class Book(spout.BasicBolt):
    """Emits the length of a record; fails those whose offset says so, copies like any other record."""

    output = "bytes int"

    def __init__(self, failing: int) -> None:
        """Fail one in so many; 0: none."""
        self._failing = failing

    def execute(self, received: Tuple, collector: BasicCollector) -> None:
        """Book one record."""
        if self._failing and received["offset"] % self._failing == 0:
            raise ValueError("not this time")
        collector.emit((len(received["value"]),))


@dataclass(frozen=True, slots=True)
class OrderOptions:
    """What to run: records of a round without failures, of one with failures, and rounds."""

    records: int = 1_600_000
    failing: int = 800_000
    rounds: int = 3


def run(options: OrderOptions, *, json: bool) -> int:
    """Run the benchmark and print medians and ratios. Return 0.

    Raises:
        CheckFailed: a round did not come to its end.
    """
    console = Console(stderr=True)
    names = [name for _ in range(options.rounds + 1) for _ in range(2) for name in CONTESTANTS]
    settings = [{**CONTESTANTS[name], "hold": "100ms", "retry": dict(RETRY)} for name in names]
    with bench_world(console, len(names), settings=settings) as world:
        console.print(f"producing {options.records:,} records")
        _produce(world, options.records)
        spark = local_session("windhover-bench", world.folder / "spark")
        warm_up(spark)
        with Child("acker", world.config) as acker, Child("replay", world.config) as replays:
            acker.wait_ready(READY_SECONDS_MAX)
            replays.wait_ready(READY_SECONDS_MAX)
            samples = _rounds(options, world, spark, console)
        spark.stop()
    print_report(console, _figures(samples), samples, json=json)
    return 0


def _produce(world: World, records: int) -> None:
    """Write records of 100 bytes, a key's always to one partition."""
    with bulk_producer(world) as producer:
        for number in range(records):
            key = b"account-%d" % (number % KEYS)
            producer.send(Outgoing(INPUT, number % KEYS % PARTITIONS, b"%0100d" % number, key))


def _rounds(options: OrderOptions, world: World, spark: SparkSession, console: Console) -> list[Sample]:
    """Run all rounds; the first of each contestant warms up and does not count.

    Those without failures come first, since a query with failures leaves work to the replay workers when it
    is stopped.
    """
    samples: list[Sample] = []
    log = KafkaLog(world.topics.kafka)
    number = 0
    for failing, most in ((0, options.records), (FAILING, options.failing)):
        for lap in range(options.rounds + 1):
            for name in CONTESTANTS:
                number += 1
                records = most // STOPPED_SHARE if failing and name == STOPS_MOST else most
                sample = _round(world, spark, log, number, failing, records, name)
                rate = f"{sample.records_per_second:,.0f}/s"
                console.print(f"round {lap or 'to warm up'}: {sample.name}: {rate}", highlight=False)
                samples += [sample] if lap else []
    log.close()
    return samples


def _round(
    world: World, spark: SparkSession, log: Log, number: int, failing: int, records: int, name: str
) -> Sample:
    """Run one query until so many records are acked, and count all that are by then."""
    which = f"{name}{', failing' if failing else ''}"
    source = world.topics.inputs[input_name(number)]
    verdicts = Settled(log, world.topics, source, losses=True)
    rows = spout.read_stream(
        spark,
        world.topics,
        source.name,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=source.max_held * PARTITIONS if name == SMALL_BATCHES else NO_LIMIT,
    )
    before = cpu_seconds_of_tree(os.getpid())
    query = (
        rows.transform(spout.bolt(Book(failing), name="book"))
        .writeStream.foreachBatch(spout.sink(discard))
        .option("checkpointLocation", str(world.folder / f"checkpoint-{number}"))
        .start()
    )
    try:
        verdicts.wait_for(records, ROUND_SECONDS_MAX)
        ended = time.time()
        at = _first_batch(query)
    finally:
        query.stop()
    return Sample(which, verdicts.acked, ended - at, cpu_seconds_of_tree(os.getpid()) - before)


def _first_batch(query: StreamingQuery) -> float:
    """Return when the first micro-batch with records began, in seconds since 1970.

    Raises:
        CheckFailed: Spark does not tell.
    """
    deadline = time.monotonic() + READY_SECONDS_MAX
    while time.monotonic() < deadline and query.isActive:
        for progress in query.recentProgress:  # told a little after the batch's verdicts
            if progress.numInputRows:
                return datetime.fromisoformat(progress.timestamp).timestamp()
        time.sleep(POLL_SECONDS)
    raise CheckFailed(f"the query {query.id} told of no batch: {query.status}")


def _figures(samples: Sequence[Sample]) -> list[Figure]:
    middle = medians(samples)
    figures: list[Figure] = []
    for end, what in (("", "nothing fails"), (", failing", f"one in {FAILING:,} fails")):
        none = middle[f"none{end}"]
        figures.append(Figure(f"{what}: none", none.records_per_second / 1_000, "thousand records/s"))
        for name in list(CONTESTANTS)[1:]:
            rate = middle[f"{name}{end}"].records_per_second
            figures.append(Figure(f"{what}: {name}, to none", rate / none.records_per_second, ""))
        small, key = (middle[f"{name}{end}"].records_per_second for name in (SMALL_BATCHES, "key"))
        figures.append(Figure(f"{what}: key, to {SMALL_BATCHES}", key / small, ""))
    return figures
