"""``python -m benchmarks latency``: how long a record takes at a steady rate, until it is durably done.

A process of its own produces at the rate, its clock in each value, with the client's own settings (records
linger 5 ms, those without a key go to one partition for a while).

- *Through Spark* the same pipelines are run by Windhover, tracked and untracked, and by Spark's own Kafka
  connector with the same Python, all into `foreachBatch`, in one Spark application; of exact-kafka only the
  tracked one, the others into Spark's own Kafka sink. Each query begins at the end of the topic. A record is
  done when its micro-batch has ended, so that Spark's commit log has it; a tracked one when its ACKED verdict
  is read.
- *Alone*, without Spark, a spout's client confirms with a wait, a share consumer and a plain one commit
  synchronously. Each is a process of its own, and reads first what the topic holds.

All run in turn, round after round. The first round does not count, since the broker still compiles what it
runs. Nor does in any round what is produced in the first `warm_seconds`: the first batches of a query.
"""

from __future__ import annotations

import json as json_module
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

import acker.config.topics
from acker.config.topics import Topics
from acker.errors import CheckFailed, UsageError
from acker.identity import offset_of, partition_of
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Log, TopicPartition
from acker.wire.events import SourceRun
from benchmarks.measure import Figure, print_report, wait_until
from benchmarks.settled import Settled
from benchmarks.streams.connector import connector_settings
from benchmarks.streams.contest import Contest, How
from benchmarks.streams.contestants import (
    Batch,
    Contestant,
    Plain,
    Share,
    Work,
    begin_share_group,
    leave_out,
    run_contestant,
)
from benchmarks.streams.exact_stores import database_of
from benchmarks.streams.pipelines import PIPELINES
from benchmarks.world import INPUT, PARTITIONS, World, bench_world, input_name
from spout.local.spark_session import local_session, warm_up
from spout.runtime.child import Child

MODULE: Final = "benchmarks.streams.latency"
THROUGH_SPARK: Final = ("split", "grouped", "exact-kafka", "exact-postgres")
ALONE: Final = "alone"
PIPELINES_OF_THIS: Final = (*THROUGH_SPARK, ALONE)
PIPELINES_MEASURED: Final = ("split", "grouped", ALONE)
"""Unless others are asked for."""

MARK = b"at "
"""What the values begin with that a clock follows in."""

PADDING = b"x" * 80
"""What a value is filled with: it is as long as a sentence of the throughput benchmarks."""

CONFIRM_MS_MAX = 30_000
QUIET_SECONDS = 2.0
"""So long nothing may come before the topic counts as read."""

BATCH_RECORDS: Final = 1_000_000
"""More than there ever are: a micro-batch reads what has come."""

READY_SECONDS_MAX: Final = 60.0
SETTLE_SECONDS_MAX: Final = 60.0

PROGRESS_MAX: Final = "10000"
"""So many micro-batches Spark remembers; by default 100, fewer than a query has here."""

PHASES: Final = ("latestOffset", "walCommit", "getBatch", "queryPlanning", "addBatch", "commitOffsets")
"""What Spark says of a micro-batch's time."""

BATCH_AIM: Final = "1.3"
ALONE_AIM: Final = "20"


@dataclass(frozen=True, slots=True)
class LatencyOptions:
    """What to run: records a second, seconds of each contestant, rounds of all, and which.

    `warm_seconds`: what is produced in the first of these seconds does not count.
    """

    rate: int = 2_000
    seconds: int = 20
    rounds: int = 3
    pipelines: Sequence[str] = PIPELINES_MEASURED
    warm_seconds: float = 5.0


@dataclass(slots=True)
class Lap:
    """One query in one round: latencies by what they end with, and of each micro-batch its phases, ms.

    `first_ms_max`: the longest of those that do not count.
    """

    name: str
    latencies: dict[str, list[float]] = field(default_factory=dict)
    first_ms_max: dict[str, float] = field(default_factory=dict)
    phases: dict[str, list[float]] = field(default_factory=dict)


def run(options: LatencyOptions, *, json: bool) -> int:
    """Run the benchmark and print medians over the rounds. Return 0.

    Raises:
        UsageError: there is no such pipeline.
        CheckFailed: a round did not come to its end, or a root was lost.
    """
    console = Console(stderr=True)
    if unknown := sorted(set(options.pipelines) - set(PIPELINES_OF_THIS)):
        raise UsageError(f"no pipeline {', '.join(unknown)}; there are {', '.join(PIPELINES_OF_THIS)}")
    pipelines = [name for name in THROUGH_SPARK if name in options.pipelines]
    in_a_round = [(name, how) for name in pipelines for how in How]
    queries = (options.rounds + 1) * len(in_a_round)
    alone = list(CONTESTANTS) if ALONE in options.pipelines else []
    laps: list[Lap] = []
    found_alone: dict[str, list[dict[str, float]]] = {}
    with database_of(pipelines) as database, bench_world(console, queries + len(CONTESTANTS)) as world:
        inputs = {name: input_name(queries + 1 + number) for number, name in enumerate(CONTESTANTS)}
        begin_share_group(world.topics, inputs["share"])
        spark = None
        if pipelines:
            further = {**connector_settings(), "spark.sql.streaming.numRecentProgressUpdates": PROGRESS_MAX}
            spark = local_session("windhover-bench", world.folder / "spark", further=further)
            warm_up(spark)
        with Child("acker", world.config) as acker:
            acker.wait_ready(READY_SECONDS_MAX)
            if alone:  # they begin with what is there, which shows that they have joined their groups
                produce(world.topics, INPUT, options.rate, 1)
            for lap in range(options.rounds + 1):
                for number, (pipeline, how) in enumerate(in_a_round):
                    source = input_name(lap * len(in_a_round) + number + 1)
                    found = _query(options, world, spark, database, source, pipeline, how)
                    _say(console, lap, found.name, _parts(found))
                    laps += [found] if lap else []
                for name in list(alone):
                    numbers = options.rate, options.seconds, options.warm_seconds
                    arguments = inputs[name], *map(str, numbers)
                    try:
                        parts = run_contestant(MODULE, name, world.config, *arguments)
                    except CheckFailed as error:
                        leave_out(alone, name, error, console)
                        continue
                    _say(console, lap, name, parts)
                    found_alone.setdefault(name, []).extend([parts] if lap else [])
        if spark is not None:
            spark.stop()
    _print_phases(console, laps)
    print_report(console, [*_figures(laps), *_figures_alone(found_alone)], json=json)
    return 0


# -- through Spark


def _query(
    options: LatencyOptions,
    world: World,
    spark: SparkSession | None,
    database: str,
    source: str,
    pipeline: str,
    how: How,
) -> Lap:
    """Run one query while records come, and return what it took."""
    if spark is None:
        raise UsageError("a pipeline through Spark needs a session")
    places = [TopicPartition(INPUT, partition) for partition in range(PARTITIONS)]
    acked: list[tuple[SourceRun, float]] = []
    name = f"{pipeline}, {how.value}"
    with closing(KafkaLog(world.topics.kafka)) as log, ThreadPoolExecutor(1) as pool:
        settled = Settled(
            log, world.topics, world.topics.input(source), acked=lambda run: acked.append((run, _now_ms()))
        )
        begin = log.ends(places)
        checkpoint = world.folder / f"checkpoint-{source}"
        contest = Contest(
            spark,
            world.topics,
            source,
            how,
            checkpoint,
            BATCH_RECORDS,
            starting="latest",
            database=database,
        )
        query = PIPELINES[pipeline].start(contest)
        try:
            wait_until(
                lambda: query.lastProgress is not None, SETTLE_SECONDS_MAX, f"an empty batch of {name}"
            )
            verdicts = None
            if how is How.TRACKED:
                patience = options.seconds + SETTLE_SECONDS_MAX
                verdicts = pool.submit(settled.wait_for, options.rate * options.seconds, patience)
            with _producer(world.config, source, options.rate, options.seconds) as producer:
                producer.wait(options.seconds + READY_SECONDS_MAX)
            if verdicts is not None:
                verdicts.result(SETTLE_SECONDS_MAX)
            ends = log.ends(places)
            last = {place.partition: end for place, end in ends.items()}
            wait_until(
                lambda: _has_read(_ended(query, how), last), SETTLE_SECONDS_MAX, f"the last batch of {name}"
            )
            ended = _ended(query, how)
            progress = [json_module.loads(one.json) for one in query.recentProgress]
        finally:
            query.stop()
        clocks = _clocks(log, {place: (begin[place], ends[place]) for place in places})
    counted_ms = min(times[0] for times in clocks.values() if len(times)) + options.warm_seconds * 1_000
    done = {"micro-batch": ended}
    if how is How.TRACKED:
        done["verdict"] = [
            (
                partition_of(run.source),
                offset_of(run.start),
                offset_of(run.start) + run.end - run.start,
                at_ms,
            )
            for run, at_ms in acked
        ]
    found = Lap(name)
    for what, runs in done.items():
        found.latencies[what], first = [], []
        for partition, start, end, at_ms in runs:
            low = begin[TopicPartition(INPUT, partition)]
            times = clocks[partition][max(0, start - low) : max(0, end - low)]
            found.latencies[what] += (at_ms - times[times >= counted_ms]).tolist()
            first += (at_ms - times[times < counted_ms]).tolist()
        found.first_ms_max[what] = max(first)
    for one in progress:
        if one["numInputRows"] and _time_ms(one) >= counted_ms:
            for phase in ("triggerExecution", *PHASES):
                found.phases.setdefault(phase, []).append(one["durationMs"].get(phase, 0))
    return found


def _producer(config: Path, source: str, rate: int, seconds: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", MODULE, "produce", str(config), source, str(rate), str(seconds)]
    return subprocess.Popen(command)


_Done = tuple[int, int, int, float]
"""Partition, first offset, the offset behind the last, and when these records were done, ms since 1970."""


def _ended(query: StreamingQuery, how: How) -> list[_Done]:
    """Return what each micro-batch read, and when it ended."""
    found: list[_Done] = []
    for one in (json_module.loads(each.json) for each in query.recentProgress):
        at_ms = _time_ms(one) + one["durationMs"].get("triggerExecution", 0)
        start, end = one["sources"][0]["startOffset"] or {}, one["sources"][0]["endOffset"]
        if how is How.CONNECTOR:
            before = start.get(INPUT, {})
            found += [(int(part), before.get(part, at), at, at_ms) for part, at in end[INPUT].items()]
        elif start != end:
            found += [
                (partition_of(source), offset_of(low), offset_of(high), at_ms)
                for source, low, high in end["ranges"]
            ]
    return found


def _has_read(ended: Iterable[_Done], last: Mapping[int, int]) -> bool:
    read: dict[int, int] = {}
    for partition, _, end, _ in ended:
        read[partition] = max(end, read.get(partition, 0))
    return all(read.get(partition, 0) >= end for partition, end in last.items())


def _clocks(
    log: Log, spans: Mapping[TopicPartition, tuple[int, int]]
) -> dict[int, np.typing.NDArray[np.float64]]:
    """Return by partition when each record was produced, ms since 1970."""
    times: dict[int, list[float]] = {place.partition: [] for place in spans}
    missing = sum(end - start for start, end in spans.values())
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    with closing(log.reader(committed=True)) as reader:
        reader.assign({place: start for place, (start, _) in spans.items()})
        while missing and time.monotonic() < deadline:
            for record in reader.poll(200):
                times[record.partition].append(_clock_ms(record.value or b""))
                missing -= 1
    if missing:
        raise CheckFailed(f"{missing:,} records could not be read again")
    return {partition: np.array(found, float) for partition, found in times.items()}


def _time_ms(progress: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(progress["timestamp"]).timestamp() * 1_000


# -- without Spark


class DurableBatch(Batch):
    """A spout whose client waits for each confirmation."""

    def consume(self, work: Work) -> int:
        """Open, confirm together, and wait."""
        items = self._client.open(1_000, wait_ms=200)
        if items:
            values = items.column("value")
            self._client.confirm(items, wait_ms=CONFIRM_MS_MAX)
            for value in values:
                work(value)
        return len(items)


class DurableShare(Share):
    """A share consumer that commits each batch synchronously."""

    def consume(self, work: Work) -> int:
        """Poll, accept, and commit."""
        messages = [m for m in self._consumer.poll(timeout=0.2) if m.error() is None]
        for message in messages:
            self._consumer.acknowledge(message)
        if messages:
            self._consumer.commit_sync(timeout=30.0)
        for message in messages:
            work(message.value() or b"")
        return len(messages)


class DurablePlain(Plain):
    """A consumer that commits each batch synchronously."""

    def consume(self, work: Work) -> int:
        """Consume what is there, and commit."""
        first = self._consumer.poll(0.2)
        found = [] if first is None else [first, *self._consumer.consume(1_000, timeout=0)]
        messages = [message for message in found if message.error() is None]
        if messages:
            self._consumer.commit(asynchronous=False)
        for message in messages:
            work(message.value() or b"")
        return len(messages)

    def finish(self) -> None:
        """Leave; all is committed."""
        self._consumer.close()


CONTESTANTS: Mapping[str, type[DurableBatch | DurableShare | DurablePlain]] = MappingProxyType(
    {"batch": DurableBatch, "share": DurableShare, "plain": DurablePlain}
)
"""By name."""


def measure(contestant: Contestant, records: int) -> list[float]:
    """Consume so many records and return their latencies, ms.

    Raises:
        CheckFailed: some did not come.
    """
    latencies: list[float] = []

    def work(value: bytes) -> None:
        if value.startswith(MARK):
            latencies.append(_now_ms() - _clock_ms(value))

    heard = time.monotonic()
    while len(latencies) < records:
        if contestant.consume(work):
            heard = time.monotonic()
        elif time.monotonic() - heard > CONFIRM_MS_MAX / 1000:
            raise CheckFailed(f"{len(latencies):,} of {records:,} records came")
    contestant.finish()
    return latencies


def read_all(contestant: Contestant) -> None:
    """Consume what is there from before, a record at least.

    Raises:
        CheckFailed: none came; a share consumer takes seconds to join its group.
    """
    began = time.monotonic()
    heard: float | None = None
    while heard is None or time.monotonic() - heard < QUIET_SECONDS:
        if contestant.consume(lambda _value: None):
            heard = time.monotonic()
        elif heard is None and time.monotonic() - began > CONFIRM_MS_MAX / 1000:
            raise CheckFailed("nothing came of what the topic holds")


def produce(topics: Topics, topic: str, rate: int, seconds: float) -> None:
    """Write `rate` records a second, the clock in each."""
    producer = Producer({**topics.kafka, "acks": "all"})
    began = time.perf_counter()
    for number in range(int(rate * seconds)):
        early = began + number / rate - time.perf_counter()
        if early > 0:
            time.sleep(early)
        value = b"%s%d %s" % (MARK, time.time_ns(), PADDING)
        producer.produce(topic, value)
        producer.poll(0)
    producer.flush(30)


def _clock_ms(value: bytes) -> float:
    return int(value[len(MARK) :].split()[0]) / 1e6


def _now_ms() -> float:
    return time.time_ns() / 1e6


# -- the report


def _parts(lap: Lap) -> dict[str, float]:
    parts = {
        f"to the {what} p{part}": float(np.percentile(found, part))
        for what, found in lap.latencies.items()
        for part in (50, 99)
    }
    first = {f"to the {what}, longest at first": ms for what, ms in lap.first_ms_max.items()}
    return {**parts, **first, "batch": median(lap.phases["triggerExecution"])}


def _say(console: Console, lap: int, name: str, parts: Mapping[str, float]) -> None:
    text = ", ".join(f"{part} {value:,.1f} ms" for part, value in parts.items())
    console.print(f"round {lap or 'to warm up'}: {name}: {text}", highlight=False, soft_wrap=True)


def _print_phases(console: Console, laps: Sequence[Lap]) -> None:
    for name, of in _by_name(laps).items():
        whole = [ms for lap in of for ms in lap.phases["triggerExecution"]]
        phases = {phase: median(ms for lap in of for ms in lap.phases[phase]) for phase in PHASES}
        parts = ", ".join(f"{phase} {ms:.0f}" for phase, ms in phases.items())
        text = f"{name}: a micro-batch {median(whole):.0f} ms, at most {max(whole):.0f}: {parts}"
        console.print(text, highlight=False, soft_wrap=True)


def _figures(laps: Sequence[Lap]) -> list[Figure]:
    figures: list[Figure] = []
    batch: dict[str, float] = {}
    for name, of in _by_name(laps).items():
        parts = [_parts(lap) for lap in of]
        medians = {part: median(one[part] for one in parts) for part in parts[0]}
        figures += [Figure(f"{name}: {part}", value, "ms") for part, value in medians.items()]
        batch[name] = medians["batch"]
    for name in batch:
        pipeline, how = name.split(", ")
        if how != How.TRACKED.value:
            ratio = batch[f"{pipeline}, {How.TRACKED.value}"] / batch[name]
            figures.append(Figure(f"{pipeline}: a tracked batch to one {how}", ratio, "", BATCH_AIM))
    return figures


def _figures_alone(found: Mapping[str, Sequence[Mapping[str, float]]]) -> list[Figure]:
    return [
        Figure(
            f"{name}, produced to durably confirmed, {part}",
            median(lap[part] for lap in laps),
            "ms",
            ALONE_AIM if (name, part) == ("batch", "p99") else "",
        )
        for name, laps in found.items()
        if laps
        for part in laps[0]
    ]


def _by_name(laps: Sequence[Lap]) -> dict[str, list[Lap]]:
    found: dict[str, list[Lap]] = {}
    for lap in laps:
        found.setdefault(lap.name, []).append(lap)
    return found


def main() -> None:
    """Run a process of the benchmark: the producer, or a contestant that runs alone; prints one JSON line."""
    name, config, input_name, rate, seconds = sys.argv[1:6]
    topics = acker.config.topics.load_topics(Path(config), os.environ)
    if name == "produce":
        produce(topics, topics.input(input_name).topic, int(rate), float(seconds))
        return
    contestant = CONTESTANTS[name](topics, input_name)
    read_all(contestant)
    with _producer(Path(config), input_name, int(rate), float(seconds)) as producer:
        found = measure(contestant, int(int(rate) * float(seconds)))
        producer.wait(CONFIRM_MS_MAX / 1000)
    counted = np.array(found[int(int(rate) * float(sys.argv[6])) :])
    parts = {f"p{part}": float(np.percentile(counted, part)) for part in (50, 90, 99)}
    sys.stdout.write(json_module.dumps(parts) + "\n")


if __name__ == "__main__":
    main()
