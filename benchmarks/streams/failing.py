"""``python -m benchmarks failing``: what a failing record costs the others, in Spark.

The same source, bolt and sink run untracked, tracked without a failure, and tracked where one
record in a thousand fails, in turn, in one Spark application. Untracked, such a record is dropped.
The bolt emits words; behind it Spark counts them. A replay worker runs in all rounds.

Each round is timed from the first micro-batch behind the lead-in on, to two ends: until the source
topic is through, and until the copies of its last batch are. The second end has the back-off of
these copies, a replay worker's transactions and a small batch, however many records there are. A
copy may fail again, as any other record.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.table import Table

import spout
from acker.errors import CheckFailed
from acker.identity import is_replay
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Log
from acker.wire.events import SourceRun
from benchmarks.measure import (
    Figure,
    Sample,
    cpu_seconds_by_program,
    cpu_seconds_of_tree,
    medians,
    print_report,
)
from benchmarks.settled import Settled
from benchmarks.streams.pipelines import discard, split
from benchmarks.streams.tracking import (
    READY_SECONDS_MAX,
    ROUND_SECONDS_MAX,
    SPARK_MEMORY,
    micro_batches,
    produce_sentences,
    wait_for_lead_in,
)
from benchmarks.world import PARTITIONS, World, bench_world, input_name
from spout.bolts.bolts import ArrowBolt, BatchCollector
from spout.bolts.collectors import BasicCollector
from spout.local.spark_session import local_session, warm_up
from spout.runtime.child import Child
from spout.tuples.tuple import Tuple

Form = Literal["columns", "rows"]
"""What the bolt is: an `ArrowBolt`, or a `BasicBolt`, which is called for each record."""

RETRY: Final[Mapping[str, Any]] = {"initial": "100ms", "multiplier": 1, "max": "100ms", "jitter": 0}
POLL_SECONDS: Final = 0.01


class SplitOrFail(ArrowBolt):
    """Splits each sentence at blanks; fails those whose offset says so."""

    output = "word string"
    fields = ("value", "offset")

    def __init__(self, fail_every: int) -> None:
        """Fail one in so many; 0: none."""
        self._fail_every = fail_every

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Emit one row for each word."""
        words = split(batch.column("value"))
        collector.emit([pc.list_flatten(words)], pc.list_parent_indices(words))
        if self._fail_every:
            offsets = batch.column("offset").to_numpy()
            for row in np.flatnonzero(offsets % self._fail_every == 0).tolist():
                collector.fail(row, "not this time")


class MeasureOrFail(spout.BasicBolt):
    """Emits the first word of each sentence; fails those whose offset says so."""

    output = "word string"

    def __init__(self, fail_every: int) -> None:
        """Fail one in so many; 0: none."""
        self._fail_every = fail_every

    def execute(self, received: Tuple, collector: BasicCollector) -> None:
        """Emit one row."""
        if self._fail_every and received["offset"] % self._fail_every == 0:
            raise spout.FailTuple("not this time")
        collector.emit((received["value"][:9].decode(),))


@dataclass(frozen=True, slots=True)
class Contestant:
    """Who takes part: whether with the guarantee, and whether records fail."""

    name: str
    tracked: bool
    fails: bool


UNTRACKED: Final = Contestant("untracked", tracked=False, fails=True)
FAULTLESS: Final = Contestant("tracked, nothing fails", tracked=True, fails=False)
FAILING: Final = Contestant("tracked, some fail", tracked=True, fails=True)
CONTESTANTS: Final = (UNTRACKED, FAULTLESS, FAILING)
TO_THE_LAST_COPY: Final = ", to the last copy"


@dataclass(frozen=True, slots=True)
class FailingOptions:
    """What to run.

    `fail_every`: one record in so many fails; `lead_in`: records beside those of a round, which do
    not count; `warm`: rounds that do not count; `batch`: of a micro-batch.
    """

    records: int = 4_000_000
    rounds: int = 5
    warm: int = 2
    fail_every: int = 1_000
    form: Form = "columns"
    lead_in: int = 1_000_000
    batch: int = 1 << 20


_CpuByProgram = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class _Round:
    """One round: its samples, and CPU seconds by program from the start of the query."""

    samples: list[Sample]
    cpu_by_program: _CpuByProgram


def run(options: FailingOptions, *, json: bool) -> int:
    """Run the benchmark and print medians and ratios. Return 0.

    Raises:
        CheckFailed: a round did not come to its end.
    """
    console = Console(stderr=True)
    lap_count = options.warm + options.rounds
    settings = [{"retry": dict(RETRY)}] * (lap_count * len(CONTESTANTS))
    with bench_world(console, len(settings), settings=settings) as world:
        console.print(f"producing {options.records + options.lead_in:,} sentences")
        produce_sentences(world, options.records + options.lead_in)
        further = {"spark.driver.memory": SPARK_MEMORY}
        spark = local_session("windhover-bench", world.folder / "spark", further=further)
        warm_up(spark)
        with Child("acker", world.config) as acker, Child("replay", world.config) as replays:
            acker.wait_ready(READY_SECONDS_MAX)
            replays.wait_ready(READY_SECONDS_MAX)
            with closing(KafkaLog(world.topics.kafka)) as log:
                rounds_by_name = _rounds(options, world, spark, log, console)
        spark.stop()
    samples: list[Sample] = []
    for rounds in rounds_by_name.values():
        for done in rounds:
            samples += done.samples
    _print_cpu(console, options, rounds_by_name)
    print_report(console, _figures(options, samples), samples, json=json)
    return 0


def _rounds(
    options: FailingOptions, world: World, spark: SparkSession, log: Log, console: Console
) -> Mapping[str, Sequence[_Round]]:
    """Run all rounds, the contestants in turn; return those that count, by contestant."""
    rounds_by_name: dict[str, list[_Round]] = {}
    number = 0
    for lap in range(1 - options.warm, options.rounds + 1):
        for contestant in CONTESTANTS:
            number += 1
            done = _round(options, world, spark, log, number, contestant)
            rates = ", ".join(f"{s.name} {s.records_per_second:,.0f}/s" for s in done.samples)
            console.print(f"round {lap if lap > 0 else 'to warm up'}: {rates}", highlight=False)
            if lap > 0:
                rounds_by_name.setdefault(contestant.name, []).append(done)
    return rounds_by_name


class _Progress:
    """Counts what is acked of the source topic, and keeps when its last record was."""

    def __init__(self, expected: int) -> None:
        self._left = expected
        self.through_at: float | None = None

    def add(self, run: SourceRun) -> None:
        """Count a run of acked roots; copies do not count."""
        if is_replay(run.source):
            return
        self._left -= run.end - run.start
        if self._left <= 0 and self.through_at is None:
            self.through_at = time.time()


def _round(
    options: FailingOptions,
    world: World,
    spark: SparkSession,
    log: Log,
    number: int,
    contestant: Contestant,
) -> _Round:
    """Run one query until all records are done."""
    records = options.records + options.lead_in
    fail_every = options.fail_every if contestant.fails else 0
    failing = failing_count(records, fail_every)
    source = world.topics.inputs[input_name(number)]
    progress = _Progress(records - failing)
    verdicts = None
    if contestant.tracked:
        verdicts = Settled(log, world.topics, source, losses=contestant.fails, acked=progress.add)
    cpu_by_program = cpu_seconds_by_program(os.getpid())
    query = _start(options, world, spark, number, contestant, fail_every)
    wait_for_lead_in(query, options.lead_in)
    cpu_at_lead_in = cpu_seconds_of_tree(os.getpid())
    query.processAllAvailable()
    through_at = time.time()
    ended = through_at
    if verdicts is not None:
        verdicts.wait_for(records, ROUND_SECONDS_MAX)
        ended = time.time()
        through_at = progress.through_at or ended
    batches = micro_batches(query)
    query.stop()
    cpu_seconds = cpu_seconds_of_tree(os.getpid()) - cpu_at_lead_in
    steady = next((batch for batch in batches if batch.read_before >= options.lead_in), None)
    if steady is None:
        lead_in = f"behind the first {options.lead_in:,} records"
        raise CheckFailed(f"{contestant.name}: no batch began {lead_in}")
    after = cpu_seconds_by_program(os.getpid())
    of_round = {name: seconds - cpu_by_program.get(name, 0.0) for name, seconds in after.items()}
    count = records - steady.read_before
    samples = [
        Sample(contestant.name, count, through_at - steady.at, cpu_seconds),
        Sample(f"{contestant.name}{TO_THE_LAST_COPY}", count, ended - steady.at, cpu_seconds),
    ]
    return _Round(samples, of_round)


def failing_count(records: int, fail_every: int) -> int:
    """Return how many of the records of a round fail; they are dealt to the partitions in turn."""
    if not fail_every:
        return 0
    failing = 0
    for partition in range(PARTITIONS):
        count = len(range(partition, records, PARTITIONS))
        failing += len(range(0, count, fail_every))
    return failing


def _start(
    options: FailingOptions,
    world: World,
    spark: SparkSession,
    number: int,
    contestant: Contestant,
    fail_every: int,
) -> StreamingQuery:
    """Start the query of a round."""
    lines = spout.read_stream(
        spark,
        world.topics,
        input_name(number),
        startingOffsets="earliest",
        maxOffsetsPerTrigger=options.batch,
        tracked=contestant.tracked,
    )
    bolt = SplitOrFail(fail_every) if options.form == "columns" else MeasureOrFail(fail_every)
    words = lines.transform(spout.bolt(bolt, name="split"))
    return (
        words.groupBy("word")
        .count()
        .writeStream.foreachBatch(spout.sink(discard))
        .outputMode("update")
        .option("checkpointLocation", str(world.folder / f"checkpoint-{number}"))
        .start()
    )


def _print_cpu(
    console: Console, options: FailingOptions, rounds_by_name: Mapping[str, Sequence[_Round]]
) -> None:
    """Print CPU by program in µs a record, medians of the rounds."""
    records = options.records + options.lead_in
    programs: set[str] = set()
    for rounds in rounds_by_name.values():
        for done in rounds:
            programs |= done.cpu_by_program.keys()
    table = Table("CPU, µs a record", *rounds_by_name)
    for program in sorted(programs):
        cells: list[str] = []
        for rounds in rounds_by_name.values():
            seconds = median(done.cpu_by_program.get(program, 0.0) for done in rounds)
            cells.append(f"{seconds / records * 1e6:.3f}")
        table.add_row(program, *cells)
    console.print(table)


def _figures(options: FailingOptions, samples: Sequence[Sample]) -> list[Figure]:
    """Return the shares of throughput and CPU; aims are those of one record in 1,000."""
    middle = medians(samples)
    untracked, faultless = middle[UNTRACKED.name], middle[FAULTLESS.name]
    failing = middle[FAILING.name]
    to_last_copy = middle[f"{FAILING.name}{TO_THE_LAST_COPY}"]
    what = f"one in {options.fail_every:,} fails"
    aim = "at least 0.85" if options.fail_every == 1_000 else ""
    rate = failing.records_per_second
    return [
        Figure(f"{what}: tracked to untracked", rate / untracked.records_per_second, "", aim),
        Figure(
            f"{what}: the same, to the last copy",
            to_last_copy.records_per_second / untracked.records_per_second,
            "",
        ),
        Figure(
            "nothing fails: tracked to untracked",
            faultless.records_per_second / untracked.records_per_second,
            "",
        ),
        Figure(f"{what}: to nothing fails, both tracked", rate / faultless.records_per_second, ""),
        Figure(f"{what}: CPU to untracked", failing.cpu_seconds / untracked.cpu_seconds, ""),
        Figure(f"{what}: CPU to nothing fails", failing.cpu_seconds / faultless.cpu_seconds, ""),
        Figure(f"{what}: tracked", rate / 1000, "thousand records/s"),
    ]
