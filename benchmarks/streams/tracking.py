"""``python -m benchmarks tracking``: what the guarantee costs in Spark.

The same source, bolts and sink run tracked and untracked, in turn, in one Spark application, and some on
Spark's own Kafka connector, with a plain confluent-kafka loop beside them. A tracked round is over when every
root of it has its ACKED verdict.

Each round is read twice off one query: *from the start*, which is the start of its first micro-batch, and
*steady*, from the first micro-batch behind `LEAD_IN_RECORDS` on. In between lies what a query does once in
its life: Spark compiles its plan; a tracked one takes its group, and feels its way up from a batch of 10,000.
How long that takes is counted from the call that starts the query until something is done for the first time:
a root is acked, or, untracked, the first micro-batch has ended.
"""

from __future__ import annotations

import json as json_module
import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from acker.errors import CheckFailed, UsageError
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Log, Outgoing
from benchmarks.measure import (
    Figure,
    Sample,
    cpu_seconds_of_tree,
    medians,
    print_report,
    wait_until,
)
from benchmarks.settled import Settled
from benchmarks.streams.connector import connector_settings
from benchmarks.streams.contest import Contest, How
from benchmarks.streams.exact_stores import database_of
from benchmarks.streams.pipelines import PIPELINES, WORDS_PER_SENTENCE
from benchmarks.world import INPUT, PARTITIONS, TIMEOUT, World, bench_world, bulk_producer, input_name
from spout.local.spark_session import local_session, warm_up
from spout.planning.journal import journal_of
from spout.runtime.child import Child

BATCH_RECORDS = 1 << 20
"""Whole blocks of the wire in each of the four partitions, so that no batch is cut short for them."""

LEAD_IN_RECORDS = 1_000_000
"""Produced beside the records of a round; what of them a query has read does not count as steady."""

SPARK_MEMORY = "6g"
"""What an executor of a cluster has. With 2g, an eighth of the CPU of `delayed` is to collect garbage."""

VOCABULARY = 2_800
"""Distinct words: about those of the text that Storm's figures were taken with."""

ROUND_SECONDS_MAX = 300.0
READY_SECONDS_MAX = 60.0
POLL_SECONDS = 0.05
ACKED_SECONDS = 2.0
"""So long after a query was stopped, the acker has given the verdicts of what it had published."""

HOLDING_TIMEOUT = "10m"
"""Of inputs whose roots stay open over several batches; it cuts no batch short."""

LATER_MS = 3_600_000
"""By how much the records behind the last sentences are later: they end the last windows."""


@dataclass(frozen=True, slots=True)
class TrackingOptions:
    """What to run: records in a round, rounds, rounds before them that do not count, pipelines by name.

    `lead_in`: records beside those of a round, which do not count as steady; `batch`: of a micro-batch.
    """

    records: int = 4_000_000
    rounds: int = 5
    warm: int = 1
    pipelines: tuple[str, ...] = ("narrow", "grouped")
    lead_in: int = LEAD_IN_RECORDS
    batch: int = BATCH_RECORDS


def run(options: TrackingOptions, *, json: bool) -> int:
    """Run the benchmark and print medians and ratios. Return 0.

    Raises:
        UsageError: there is no such pipeline.
        CheckFailed: a round did not come to its end, or a root of a tracked round was lost.
    """
    console = Console(stderr=True)
    unknown = sorted(set(options.pipelines) - set(PIPELINES))
    if unknown:
        raise UsageError(f"no pipeline {', '.join(unknown)}; there are {', '.join(PIPELINES)}")
    restarting = sum(PIPELINES[name].restarts for name in options.pipelines)
    groups = (options.warm + options.rounds) * (len(options.pipelines) + restarting)
    holds = any(PIPELINES[name].holds for name in options.pipelines)
    with (
        database_of(options.pipelines) as database,
        bench_world(console, groups, HOLDING_TIMEOUT if holds else TIMEOUT) as world,
    ):
        console.print(f"producing {options.records + options.lead_in:,} sentences")
        produce_sentences(world, options.records + options.lead_in, ends_windows=holds)
        connector = any(PIPELINES[name].connector for name in options.pipelines)
        further = {"spark.driver.memory": SPARK_MEMORY, **(connector_settings() if connector else {})}
        spark = local_session("windhover-bench", world.folder / "spark", further=further)
        warm_up(spark)
        with Child("acker", world.config) as acker:
            acker.wait_ready(READY_SECONDS_MAX)
            with closing(KafkaLog(world.topics.kafka)) as log:
                stage = _Stage(options, world, spark, log, database)
                samples, firsts, restarts = _rounds(stage, console)
        spark.stop()
    print_report(console, _figures(options, samples, firsts, restarts), samples, json=json)
    return 0


def produce_sentences(world: World, records: int, *, ends_windows: bool = False) -> None:
    """Write sentences of ten words and 98 bytes, in turn to the partitions.

    `ends_windows` adds a record to each partition that is an hour later: a watermark passes all others.
    """
    generator = random.Random(1)  # the same sentences on every machine
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(generator.choices(letters, k=9 - i % 2)) for i in range(VOCABULARY)]
    with bulk_producer(world) as producer:
        for index in range(records):
            sentence = " ".join(generator.choices(words, k=WORDS_PER_SENTENCE))
            producer.send(Outgoing(INPUT, index % PARTITIONS, sentence.encode()))
        later_ms = time.time_ns() // 1_000_000 + LATER_MS
        for partition in range(PARTITIONS if ends_windows else 0):
            producer.send(Outgoing(INPUT, partition, b"the end", timestamp_ms=later_ms))


_Firsts = Mapping[str, Sequence[float]]
"""Seconds from the start of a query until something was done for the first time, by pipeline and how."""


@dataclass(frozen=True, slots=True)
class _Stage:
    """What all rounds share; `database`: the connection string of a PostgreSQL, if a pipeline needs one."""

    options: TrackingOptions
    world: World
    spark: SparkSession
    log: Log
    database: str

    @property
    def records(self) -> int:
        """How many there are in all."""
        return self.options.records + self.options.lead_in

    def contest(self, pipeline: str, number: int, how: How) -> Contest:
        """Return what the query of a pipeline reads, with the group of that number."""
        return Contest(
            self.spark,
            self.world.topics,
            input_name(number),
            how,
            self.world.folder / f"checkpoint-{number}-{how.value}",
            min(self.options.batch, PIPELINES[pipeline].batch_records or self.options.batch),
            database=self.database,
        )


def _rounds(stage: _Stage, console: Console) -> tuple[list[Sample], _Firsts, _Firsts]:
    """Run all rounds; of each pipeline the first `warm` do not count.

    Return the samples, and the seconds until the first was done, of queries that start and of those that
    start again.
    """
    samples: list[Sample] = []
    firsts: dict[str, list[float]] = {}
    restarts: dict[str, list[float]] = {}
    number = 0
    for name in stage.options.pipelines:
        contestants = [how for how in How if how is not How.CONNECTOR or PIPELINES[name].connector]
        for lap in range(1 - stage.options.warm, stage.options.rounds + 1):
            number += 1
            of_this_lap, began = [_plain(stage.world, stage.records)], dict[str, float]()
            for how in contestants:
                found, first_seconds = _spark(stage, name, number, how)
                of_this_lap += found
                began[f"{name} {how.value}"] = first_seconds
            began_again = dict[str, float]()
            if PIPELINES[name].restarts:
                number += 1
                for how in contestants:
                    began_again[f"{name} {how.value}"] = _restart(stage, name, number, how)
            rates = [f"{s.name} {s.records_per_second:,.0f}/s" for s in of_this_lap]
            rates += [f"{which}, first done after {seconds:.2f} s" for which, seconds in began.items()]
            rates += [
                f"{which}, first done after a restart {seconds:.2f} s"
                for which, seconds in began_again.items()
            ]
            is_warm = lap > 0
            label = f"round {lap}" if is_warm else "round to warm up"
            console.print(f"{name}, {label}: {', '.join(rates)}", highlight=False)
            if is_warm:
                samples += of_this_lap
                for which, seconds in began.items():
                    firsts.setdefault(which, []).append(seconds)
                for which, seconds in began_again.items():
                    restarts.setdefault(which, []).append(seconds)
    return samples, firsts, restarts


def _plain(world: World, records: int) -> Sample:
    command = [sys.executable, "-m", "benchmarks.streams.plain", world.bootstrap, INPUT, str(records)]
    before = cpu_seconds_of_tree(os.getpid())
    done = subprocess.run(command, capture_output=True, text=True, timeout=ROUND_SECONDS_MAX, check=False)
    if done.returncode:
        raise CheckFailed(f"the plain consumer ended with {done.returncode}: {done.stderr.strip()}")
    seconds = float(json_module.loads(done.stdout)["seconds"])
    return Sample("plain consumer", records, seconds, cpu_seconds_of_tree(os.getpid()) - before)


def _spark(stage: _Stage, name: str, number: int, how: How) -> tuple[list[Sample], float]:
    """Run one query over all records and return two samples of it, steady and from the start, and after how
    many seconds something was done for the first time.
    """
    which, tracked = f"{name} {how.value}", how is How.TRACKED
    contest, records, lead_in = stage.contest(name, number, how), stage.records, stage.options.lead_in
    topics = stage.world.topics
    cpu_at_start = cpu_seconds_of_tree(os.getpid())
    verdicts = Settled(stage.log, topics, topics.inputs[contest.input_name]) if tracked else None
    started = time.time()
    query = PIPELINES[name].start(contest)
    wait_for_lead_in(query, lead_in)
    cpu_at_lead_in = cpu_seconds_of_tree(os.getpid())
    query.processAllAvailable()
    ended = time.time()
    if verdicts is not None:
        verdicts.wait_for(records, ROUND_SECONDS_MAX)
        ended = time.time()
    batches = micro_batches(query)
    query.stop()
    cpu = cpu_seconds_of_tree(os.getpid())
    steady = next((batch for batch in batches if batch.read_before >= lead_in), None)
    if steady is None:
        raise CheckFailed(f"{which}: no batch began behind the first {lead_in:,} records")
    first_done = batches[0].ended
    if verdicts is not None and verdicts.first_acked_ms is not None:
        first_done = verdicts.first_acked_ms / 1000
    samples = [
        Sample(which, records - steady.read_before, ended - steady.at, cpu - cpu_at_lead_in),
        Sample(f"{which}, from the start", records, ended - batches[0].at, cpu - cpu_at_start),
    ]
    return samples, first_done - started


def _restart(stage: _Stage, name: str, number: int, how: How) -> float:
    """Stop a query behind the lead-in, start it again, and return the seconds until it has done something."""
    contest = stage.contest(name, number, how)
    query = PIPELINES[name].start(contest)
    wait_for_lead_in(query, stage.options.lead_in)
    query.stop()
    time.sleep(ACKED_SECONDS)
    topics = stage.world.topics
    verdicts = None
    if how is How.TRACKED:  # what was under way is lost, and comes again
        verdicts = Settled(stage.log, topics, topics.inputs[contest.input_name], losses=True)
    started = time.time()
    query = PIPELINES[name].start(contest)
    if verdicts is not None:
        verdicts.wait_for(1, ROUND_SECONDS_MAX)
        ended_ms = verdicts.first_acked_ms or 0
        query.stop()
        return ended_ms / 1000 - started
    wait_until(lambda: bool(micro_batches(query)), ROUND_SECONDS_MAX, f"a batch of {name}")
    ended = micro_batches(query)[0].ended
    query.stop()
    return ended - started


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch: when it began and ended, seconds since 1970, and how many records were read before."""

    at: float
    ended: float
    read_before: int


def micro_batches(query: StreamingQuery) -> list[Batch]:
    """Return the micro-batches of a query so far that read anything."""
    batches, read = [], 0
    for progress in query.recentProgress:
        if progress.numInputRows:
            at = datetime.fromisoformat(progress.timestamp).timestamp()
            batches.append(Batch(at, at + progress.durationMs["triggerExecution"] / 1000, read))
            read += _records(progress)
    return batches


def _records(progress: StreamingQueryProgress) -> int:
    """Return how many records a micro-batch has read; our source's rows are what its bolts have emitted."""
    end = json_module.loads(progress.sources[0].endOffset or "{}")
    if "ranges" in end:
        return sum(run.end - run.start for run in journal_of(end).ranges)
    return progress.numInputRows


def wait_for_lead_in(query: StreamingQuery, records: int) -> None:
    """Wait until a batch has ended behind the lead-in.

    Raises:
        CheckFailed: it took too long.
    """
    deadline = time.monotonic() + ROUND_SECONDS_MAX
    while sum(map(_records, query.recentProgress)) < records:
        if time.monotonic() > deadline or not query.isActive:
            raise CheckFailed(f"the query {query.id} did not read {records:,} records: {query.status}")
        time.sleep(POLL_SECONDS)


def _figures(
    options: TrackingOptions, samples: list[Sample], firsts: _Firsts, restarts: _Firsts
) -> list[Figure]:
    middle = medians(samples)
    plain = middle["plain consumer"].records_per_second
    figures = []
    for name in options.pipelines:
        tracked, untracked = middle[f"{name} tracked"], middle[f"{name} untracked"]
        speed = tracked.records_per_second / untracked.records_per_second
        from_start = [middle[f"{name} {which}, from the start"] for which in ("tracked", "untracked")]
        speed_from_start = from_start[0].records_per_second / from_start[1].records_per_second
        aim = f"at least {PIPELINES[name].aim}" if PIPELINES[name].aim else ""
        cpu = (tracked.cpu_seconds / tracked.records) / (untracked.cpu_seconds / untracked.records)
        figures += [
            Figure(f"{name}: throughput, tracked to untracked", speed, "", aim),
            Figure(f"{name}: the same, from the start of the query", speed_from_start, ""),
            Figure(f"{name}: CPU seconds a record, tracked to untracked", cpu, ""),
            Figure(
                f"{name}: throughput, tracked to the plain consumer", tracked.records_per_second / plain, ""
            ),
            Figure(f"{name}: tracked", tracked.records_per_second / 1000, "thousand sentences/s"),
            *first_figures(name, firsts),
            *restart_figures(name, restarts),
        ]
        if PIPELINES[name].connector:
            connector, whole = (middle[f"{name} connector{part}"] for part in ("", ", from the start"))
            to_connector = tracked.records_per_second / connector.records_per_second
            whole_to_connector = from_start[0].records_per_second / whole.records_per_second
            aim_of_it = PIPELINES[name].connector_aim
            connector_aim = f"at least {aim_of_it}" if aim_of_it else ""
            figures += [
                Figure(f"{name}: tracked to Spark's connector", to_connector, "", connector_aim),
                Figure(
                    f"{name}: tracked to Spark's connector, from the start of the query",
                    whole_to_connector,
                    "",
                ),
            ]
    return figures


def first_figures(name: str, firsts: _Firsts) -> list[Figure]:
    """Return when a pipeline's queries had done something, by medians; both were started in each round."""
    acked, ended = firsts[f"{name} tracked"], firsts[f"{name} untracked"]
    beyond = median(one - other for one, other in zip(acked, ended, strict=True))
    return [
        Figure(f"{name}: from the start to the first ack", median(acked), "s"),
        Figure(f"{name}: the same, to the end of an untracked query's first batch", median(ended), "s"),
        Figure(f"{name}: the first ack, beyond that batch", beyond, "s", "at most 1"),
    ]


def restart_figures(name: str, restarts: _Firsts) -> list[Figure]:
    """Return when the queries of a pipeline had done something after a restart, if that was measured."""
    return [
        Figure(f"{which}: from a restart to what is done first", median(seconds), "s")
        for which, seconds in restarts.items()
        if which.startswith(f"{name} ")
    ]
