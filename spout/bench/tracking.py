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

from acker.codec import wire_codec
from acker.errors import CheckFailed
from acker.events import Verdicts
from acker.identity import input_id_of
from acker.kafka_log import KafkaLog
from acker.log import Log, Outgoing, TopicPartition
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
    verdicts = Settled(log, world, number) if tracked else None
    query = PIPELINES[name](contest)
    query.processAllAvailable()
    ended = time.time()
    if verdicts is not None:
        verdicts.wait_for(records)
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


class Settled:
    """Counts the verdicts of one input."""

    def __init__(self, log: Log, world: World, number: int) -> None:
        """Count from now on, for the input with that number."""
        topics = world.topics
        self._input_id = topics.inputs[input_name(number)].id
        verdicts = [TopicPartition(topics.ack_topics.verdict, p) for p in range(topics.acker.partitions)]
        self._reader = log.reader(committed=True)
        self._reader.assign(log.ends(verdicts))

    def wait_for(self, records: int) -> None:
        """Wait until so many roots are ACKED.

        Raises:
            CheckFailed: a root was lost, or the verdicts did not come in time.
        """
        acked, codec = 0, wire_codec()
        deadline = time.monotonic() + ROUND_SECONDS_MAX
        while acked < records:
            if time.monotonic() > deadline:
                raise CheckFailed(f"{acked} of {records} roots were acked in {ROUND_SECONDS_MAX:.0f} s")
            for record in self._reader.poll(100):
                event = codec.decode(record.value)
                if not isinstance(event, Verdicts):
                    continue
                acked += sum(r.end - r.start for r in event.acked if input_id_of(r.source) == self._input_id)
                lost = [each for each in event.lost if input_id_of(each.source) == self._input_id]
                if lost:
                    raise CheckFailed(f"roots were lost: {lost[0].reason} {lost[0].error} {lost[0].message}")
        self._reader.close()


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
