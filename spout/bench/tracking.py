"""``windhover bench tracking``: what the guarantee costs in Spark.

The same source, bolts and sink run tracked and untracked, in turn, in one Spark application, with a plain
confluent-kafka loop beside them. A tracked round is over when every root of it has its ACKED verdict. The
time runs from the start of the first micro-batch: starting a query costs the same for both.
"""

from __future__ import annotations

import json as json_module
import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from acker.errors import CheckFailed
from acker.kafka_log import KafkaLog
from acker.log import Log, Outgoing
from spout.bench.measure import (
    Figure,
    Sample,
    as_json,
    cpu_seconds_of_tree,
    medians,
    print_figures,
    print_samples,
)
from spout.bench.pipelines import PIPELINES, Contest
from spout.bench.settled import Settled
from spout.bench.world import INPUT, PARTITIONS, World, bench_world, input_name
from spout.child import Child
from spout.demo.spark import local_session, warm_up

BATCH_RECORDS = 1_000_000
WORDS_PER_SENTENCE = 10
VOCABULARY = 2_800
"""Distinct words: about those of the text that Storm's figures were taken with."""

ROUND_SECONDS_MAX = 300.0
READY_SECONDS_MAX = 60.0
AIMS = {"narrow": 0.90, "grouped": 0.75}
"""The share of the untracked throughput that the tracked one is to reach."""


@dataclass(frozen=True, slots=True)
class TrackingOptions:
    """What to run: records in a round, rounds, and the pipelines by name."""

    records: int = 2_000_000
    rounds: int = 7
    pipelines: tuple[str, ...] = ("narrow", "grouped")


def run(options: TrackingOptions, *, json: bool) -> int:
    """Run the benchmark and print medians and ratios. Return 0.

    Raises:
        CheckFailed: a round did not come to its end, or a root of a tracked round was lost.
    """
    console = Console(stderr=True)
    groups = (options.rounds + 1) * len(options.pipelines)
    with bench_world(console, groups) as world:
        console.print(f"producing {options.records:,} sentences")
        _produce(world, options.records)
        spark = local_session("windhover-bench", world.folder / "spark")
        warm_up(spark)
        with Child("acker", world.config) as acker:
            acker.wait_ready(READY_SECONDS_MAX)
            samples = _rounds(options, world, spark, console)
        spark.stop()
    figures = _figures(options, samples)
    print_samples(console, samples)
    print_figures(console, figures)
    if json:
        Console().out(as_json(figures, samples), highlight=False)
    return 0


def _produce(world: World, records: int) -> None:
    """Write sentences of ten words and 98 bytes, in turn to the partitions."""
    generator = random.Random(1)  # the same sentences on every machine
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(generator.choices(letters, k=9 - i % 2)) for i in range(VOCABULARY)]
    log = KafkaLog({**world.topics.kafka, "compression.type": "lz4", "linger.ms": "20"})
    producer = log.producer()
    for index in range(records):
        sentence = " ".join(generator.choices(words, k=WORDS_PER_SENTENCE))
        producer.send(Outgoing(INPUT, index % PARTITIONS, sentence.encode()))
    producer.flush(60_000)
    producer.close()
    log.close()


def _rounds(options: TrackingOptions, world: World, spark: SparkSession, console: Console) -> list[Sample]:
    """Run all rounds; the first of each pipeline warms up and does not count."""
    samples: list[Sample] = []
    log = KafkaLog(world.topics.kafka)
    number = 0
    for name in options.pipelines:
        for lap in range(options.rounds + 1):
            number += 1
            of_this_lap = [
                _plain(world, options.records),
                _spark(world, spark, log, name, number, options.records, tracked=False),
                _spark(world, spark, log, name, number, options.records, tracked=True),
            ]
            rates = ", ".join(f"{s.name} {s.records_per_second:,.0f}/s" for s in of_this_lap)
            console.print(f"{name}, round {lap or 'to warm up'}: {rates}", highlight=False)
            samples += of_this_lap if lap else []
    log.close()
    return samples


def _plain(world: World, records: int) -> Sample:
    command = [sys.executable, "-m", "spout.bench.plain", world.bootstrap, INPUT, str(records)]
    before = cpu_seconds_of_tree(os.getpid())
    done = subprocess.run(command, capture_output=True, text=True, timeout=ROUND_SECONDS_MAX, check=False)
    if done.returncode:
        raise CheckFailed(f"the plain consumer ended with {done.returncode}: {done.stderr.strip()}")
    seconds = float(json_module.loads(done.stdout)["seconds"])
    return Sample("plain consumer", records, seconds, cpu_seconds_of_tree(os.getpid()) - before)


def _spark(
    world: World, spark: SparkSession, log: Log, name: str, number: int, records: int, *, tracked: bool
) -> Sample:
    which = "tracked" if tracked else "untracked"
    contest = Contest(
        spark,
        world.topics,
        input_name(number),
        tracked,
        world.folder / f"checkpoint-{number}-{which}",
        BATCH_RECORDS,
    )
    before = cpu_seconds_of_tree(os.getpid())
    verdicts = Settled(log, world.topics, world.topics.inputs[input_name(number)]) if tracked else None
    query = PIPELINES[name](contest)
    query.processAllAvailable()
    ended = time.time()
    if verdicts is not None:
        verdicts.wait_for(records, ROUND_SECONDS_MAX)
        ended = time.time()
    seconds = ended - _first_batch_at(query)
    query.stop()
    return Sample(f"{name} {which}", records, seconds, cpu_seconds_of_tree(os.getpid()) - before)


def _first_batch_at(query: StreamingQuery) -> float:
    """Return when the first micro-batch with records in it began, in seconds since 1970."""
    for progress in query.recentProgress:
        if progress.numInputRows:
            return datetime.fromisoformat(progress.timestamp).timestamp()
    raise CheckFailed(f"the query {query.id} processed no record")


def _figures(options: TrackingOptions, samples: list[Sample]) -> list[Figure]:
    middle = medians(samples)
    figures = []
    for name in options.pipelines:
        tracked, untracked = middle[f"{name} tracked"], middle[f"{name} untracked"]
        figures += [
            Figure(
                f"{name}: throughput, tracked to untracked",
                tracked.records_per_second / untracked.records_per_second,
                "",
                f"at least {AIMS[name]}",
            ),
            Figure(
                f"{name}: CPU seconds, tracked to untracked", tracked.cpu_seconds / untracked.cpu_seconds, ""
            ),
            Figure(
                f"{name}: throughput, tracked to the plain consumer",
                tracked.records_per_second / middle["plain consumer"].records_per_second,
                "",
            ),
            Figure(f"{name}: tracked", tracked.records_per_second / 1000, "thousand sentences/s"),
        ]
    return figures
