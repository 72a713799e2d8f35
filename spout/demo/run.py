"""The main job from one command: a Storm word count on a real Kafka broker and a real Spark.

The demo breaks things on purpose (lines that fail, lines that are never acked, an acker killed
on the way) and then proves by counting, from the topics and against a plain count of the text,
that nothing was lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import cycle, islice

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

import spout
from acker.errors import CheckFailed, Unreachable, WindhoverError
from acker.kafka.port import Outgoing
from spout.demo.observer import OutcomeObserver
from spout.demo.report import DemoProgress, demo_uncommitted, judge_demo, print_report
from spout.demo.stage import INPUT, SPARK_LOG, DemoOptions, RunningDemo, phase, set_up, start_spark
from spout.demo.words import (
    COLUMNS,
    CheckLine,
    CountWord,
    DemoLine,
    SplitSentence,
    WordTable,
    demo_lines,
    lines_of_file,
    python_topics,
)
from spout.runtime.tether import last_lines

STALL_SECONDS_MAX = 120.0
"""The demo stops with an error when no record has been settled for this long."""

REHEARSED_LINES = 100_000
"""Enough for Java's second compiler; its time would else be the first micro-batches'."""

FIRST_BATCH_SECONDS_MAX = 180.0
COMMIT_SECONDS_MAX = 10.0
"""The spout commits every 3 s, and at once when nothing is pending."""

OBSERVER_WAIT_MS = 100
FLUSH_MS_MAX = 60_000
BATCHES_MIN = 8
BATCH_RECORDS_MIN = 2_500
"""A micro-batch has an eighth of the records, so that the acker dies with batches before and
behind it; but not fewer than this, since each batch has a fixed cost.
"""

KILL_AT = 4
"""The acker is killed when one record in so many is done. Its partitions move some 6 s later; the
stream goes on in the meantime.
"""


def run_demo(options: DemoOptions, environ: Mapping[str, str]) -> int:
    """Run the demo until it is judged; return the exit code: 0 if every check is passed, else 1.

    With ``--keep`` it goes on until a signal ends the process.
    """
    console = Console(stderr=True, markup=False, emoji=False)
    text = lines_of_file(options.input) if options.input else python_topics()
    lines = list(demo_lines(text, options.records))
    with ExitStack() as stack:
        demo = set_up(options, environ, console, stack)
        spark = start_spark(demo, stack)
        # the socket has kept the port free for the driver until now; the page has its address
        metrics_address = demo.metrics_address
        demo.metrics_socket.close()
        spout.serve_metrics(spark, metrics_address)
        with phase(demo.console, "bolts warmed up"):
            _rehearse(spark, text)
        observer = OutcomeObserver(demo.log, demo.topics, demo.input)
        stack.callback(observer.close)
        seconds = _run_topology(demo, spark, observer, lines)
        outcome, checks = judge_demo(demo, observer, lines, seconds)
        if options.keep:
            print_report(demo, outcome, checks)
            demo.console.print(f"kept running at {demo.bootstrap}; Ctrl-C ends it")
            threading.Event().wait()
    # behind the last output of all parts, so that the JSON object is the last line
    print_report(demo, outcome, checks)
    return 0 if all(check.passed for check in checks) else 1


def _rehearse(spark: SparkSession, text: Sequence[str]) -> None:
    """Run the bolts over lines that are no records, so that Java compiles what they use."""
    lines = list(islice(cycle(text), REHEARSED_LINES))
    rows = spark.createDataFrame(pa.table({"origin": pa.array(range(len(lines))), "line": lines}))
    WordTable().upsert(_words_of(rows).toArrow())


def _words_of(lines: DataFrame) -> DataFrame:
    """Return the rows (origin, ordinal, word) that the bolts emit for lines."""
    words = lines.transform(spout.bolt(SplitSentence(), name="split"))
    return words.transform(spout.bolt(CountWord(), name="count", grouping=spout.fields("word")))


def _start_query(demo: RunningDemo, spark: SparkSession) -> StreamingQuery:
    """Start the query, which reads the demo's input and writes its words into the demo's table."""
    lines = spout.read_stream(
        spark,
        demo.topics,
        INPUT,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=max(BATCH_RECORDS_MIN, demo.options.records // BATCHES_MIN),
        status_path=demo.status_path,
    )
    words = _words_of(lines.transform(spout.bolt(CheckLine(), name="check")))

    def upsert(batch: DataFrame, _batch_id: int) -> None:
        demo.words.upsert(batch.select(*COLUMNS).toArrow())

    return (
        words.writeStream.foreachBatch(spout.sink(upsert))
        .option("checkpointLocation", str(demo.folder / "checkpoint"))
        .start()
    )


def _produce(demo: RunningDemo, lines: Sequence[DemoLine]) -> None:
    """Write the lines to the input's partitions by turns, no faster than ``--rate``."""
    partition_count = len(demo.partitions())
    producer = demo.log.producer()
    started_s = time.monotonic()
    for index, line in enumerate(lines):
        if demo.options.rate:
            # at 100 a second line 50 is due after 0.5 s
            due_s = index / demo.options.rate
            early_s = due_s - (time.monotonic() - started_s)
            if early_s > 0.01:
                producer.flush(FLUSH_MS_MAX)
                time.sleep(early_s)
        partition = index % partition_count
        producer.send(Outgoing(demo.input.topic, partition, line.text.encode(), line.key or None))
    producer.flush(FLUSH_MS_MAX)
    producer.close()


@contextmanager
def _producing(demo: RunningDemo, lines: Sequence[DemoLine]) -> Iterator[None]:
    """Write the lines in a thread of its own while the body runs."""

    def produce() -> None:
        """Write the lines; keep an error for the main thread."""
        try:
            _produce(demo, lines)
        except WindhoverError as error:  # the main thread raises it
            demo.failures.append(error)

    thread = threading.Thread(target=produce, name="windhover-demo-producer", daemon=True)
    thread.start()
    yield
    # the body has seen the end of every record; what is left is to close the producer
    thread.join(FLUSH_MS_MAX / 1000)


def _run_topology(
    demo: RunningDemo, spark: SparkSession, observer: OutcomeObserver, lines: Sequence[DemoLine]
) -> float:
    """Run the topology over the lines.

    Return the seconds from the first record to the last verdict.
    """
    query = _start_query(demo, spark)
    try:
        with phase(demo.console, "first micro-batch, an empty one, ended"):
            _wait_until_warm(demo, query)
        demo.console.print(f"writing {len(lines):,} records, and working on them", highlight=False)
        started_s = time.monotonic()
        bar = DemoProgress(demo.console, demo.status_path, len(lines), demo.input.timeout_ms)
        with _producing(demo, lines), bar as progress:
            _wait_until_done(demo, query, observer, progress)
        elapsed_s = time.monotonic() - started_s
        # commits may come a little later; where this wait is too short, a check fails
        deadline_s = time.monotonic() + COMMIT_SECONDS_MAX
        while demo_uncommitted(demo) and time.monotonic() < deadline_s:
            time.sleep(OBSERVER_WAIT_MS / 1000)
        return elapsed_s
    finally:
        query.stop()


def _wait_until_warm(demo: RunningDemo, query: StreamingQuery) -> None:
    """Wait for the end of the first micro-batch, which is empty.

    It compiles the plan and starts workers. Raises `Unreachable`: it took longer than
    `FIRST_BATCH_SECONDS_MAX`; or what `_raise_failure` raises.
    """
    deadline_s = time.monotonic() + FIRST_BATCH_SECONDS_MAX
    while query.lastProgress is None:
        _raise_failure(demo, query)
        if time.monotonic() > deadline_s:
            raise Unreachable(f"Spark ended no micro-batch within {FIRST_BATCH_SECONDS_MAX:.0f} s")
        time.sleep(OBSERVER_WAIT_MS / 1000)


def _wait_until_done(
    demo: RunningDemo, query: StreamingQuery, observer: OutcomeObserver, progress: DemoProgress
) -> None:
    """Wait until every record is done; kill the acker once, when a quarter of them are done.

    Raises `CheckFailed`: the query ended, or nothing was settled for `STALL_SECONDS_MAX`; or what
    the producer raised.
    """
    records = demo.options.records
    counts = observer.outcomes.counts
    settled_before = -1  # roots with a verdict, when there was a new one last
    last_settled_s = time.monotonic()
    while True:
        observer.read_new_records(OBSERVER_WAIT_MS)
        # 1. kill the acker, once
        done = observer.outcomes.ended_records
        is_quarter_done = done * KILL_AT >= records
        if demo.acker is not None and not demo.acker_kills and is_quarter_done:
            demo.acker.kill()
            observer.record_kill(time.time_ns() // 1_000_000)
            demo.acker_kills += 1
            demo.console.print("a quarter is done: the acker was killed with SIGKILL, and is started again")
            demo.acker.start()
        progress.show(done, counts)
        # 2. the end: A record ends with its first acked root. Its other roots may still be open, so
        # each root that was emitted, for a record or as a copy, has to have its verdict, too.
        if done >= records and counts.settled >= records + counts.copies:
            return
        # 3. a failure, or nothing new for too long
        _raise_failure(demo, query)
        if counts.settled != settled_before:
            settled_before = counts.settled
            last_settled_s = time.monotonic()
        elif time.monotonic() - last_settled_s > STALL_SECONDS_MAX:
            raise CheckFailed(
                f"no record was settled for {STALL_SECONDS_MAX:.0f} s: {done} of {records} records are done; "
                f"Spark's log ends with:\n{last_lines(demo.folder / SPARK_LOG)}"
            )


def _raise_failure(demo: RunningDemo, query: StreamingQuery) -> None:
    """Raise what the producer raised, or `CheckFailed` if the query ended.

    Do nothing while both work.
    """
    if demo.failures:
        raise demo.failures[0]
    if not query.isActive:
        raise CheckFailed(
            f"the query ended by itself: {query.exception()}; Spark's log ends with:\n"
            f"{last_lines(demo.folder / SPARK_LOG)}"
        )
