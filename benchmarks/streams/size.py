"""``python -m benchmarks size``: what `windhover size` computes, against a real run.

A Spark query reads at a steady rate and with a steady trigger; an acker and a replay worker run beside it.
What topics take is the size of their segments on the broker's disk. All clients reach the broker through a
proxy that counts their requests. Open roots are those between their `Init` and their verdict, by the times of
these records: the status of the planning process is written too seldom, and in step with the batches.

How long a batch takes depends on bolts and machine, and on a busy machine it begins later than its trigger
says. So the model is given both times as they were, and nothing else of the run.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

import spout
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing, TopicPartition
from acker.kafka.read_to_end import Follower
from acker.provisioning.sizing import Load, size_of
from acker.wire.codec import wire_codec
from acker.wire.events import Init, SourceRun, Verdicts, positions
from benchmarks.measure import Figure, print_report, wait_until
from benchmarks.requests import Requests, is_of, print_kinds
from benchmarks.world import World, bench_world, input_name
from spout.local.spark_session import local_session
from spout.runtime.child import Child
from tests.torture.stage.proxy import Proxy

RECORD: Final = (
    b"the hawk waits over the field for as long as it takes, and then it is gone before one sees it %d"
)
WARM_BATCHES: Final = 6
"""Before it is measured, Spark has compiled what it runs, and the first copies have been emitted."""
SAMPLE_S: Final = 0.1
SEND_EVERY_S: Final = 0.05
READY_SECONDS_MAX: Final = 60.0
BATCH_SECONDS_MAX: Final = 120.0
SEND_MS: Final = 30_000

BATCH: Final = "between two batches"
WORK: Final = "a batch takes"
TOTAL: Final = "all ack topics"
PENDING: Final = "open roots"
REPLAY_TOPIC: Final = "replay topic"
ACKERS: Final = "requests of all ackers"
REPLAYS: Final = "requests of all replay workers"
QUERY: Final = "requests of the query"
ACKER_MEMORY: Final = "memory of an acker"
REPLAY_MEMORY: Final = "memory of a replay worker"
PARTS: Final[Mapping[str, str]] = {
    "windhover-acker": ACKERS,
    "windhover-replay": REPLAYS,
    "windhover-spout": QUERY,
    "windhover-bolts": QUERY,
}
"""By what the name of a client begins with."""


@dataclass(frozen=True, slots=True)
class SizeOptions:
    """What to run.

    Attributes:
        rate: records/s.
        batch_s: between two micro-batches.
        sink_s: how long the sink takes for each of them; the rest of its time is Spark's.
        sources: partitions of the input.
        ackers: acker partitions.
        lost_every: each so manieth record fails, the first time; 0: none.
        seconds: how long it is measured at least.
    """

    rate: int = 2_000
    batch_s: float = 1.0
    sink_s: float = 0.0
    sources: int = 4
    ackers: int = 2
    lost_every: int = 0
    seconds: float = 30.0

    def load(self, batch_s: float, work_s: float) -> Load:
        """Return the load that a run is whose batches begin `batch_s` apart, and take `work_s`."""
        return Load(
            self.rate,
            len(RECORD),
            tuples=1,
            batch_s=batch_s,
            work_s=work_s,
            sources=self.sources,
            partitions=self.ackers,
            lost=1 / self.lost_every if self.lost_every else 0.0,
            stack_bytes=0,  # `Copied` fails records by a text
        )


class Copied(spout.BasicBolt):
    """Emits every record; it stands for any narrow bolt. Each so manieth record fails the first time."""

    output = "value binary"

    def __init__(self, lost_every: int) -> None:
        self._lost_every = lost_every

    def execute(self, tuple: spout.Tuple, collector: spout.BasicOutputCollector) -> None:
        value: bytes = tuple["value"]
        number = int(value.rpartition(b" ")[2])
        if self._lost_every and tuple.message_id.attempt == 1 and not number % self._lost_every:
            raise spout.FailTuple("the first time")
        collector.emit((value,))


def run(options: SizeOptions, *, json: bool) -> int:
    """Run the benchmark and print what was measured beside what is computed. Return 0."""
    console = Console(stderr=True)
    print_report(console, measured(options, console), json=json)
    return 0


def measured(options: SizeOptions, console: Console) -> list[Figure]:
    """Measure; the aim of each figure is what `size_of` computes.

    Raises:
        CheckFailed: a batch was not had in time.
    """
    requests, planned = Requests(), size_of(options.load(options.batch_s, 0.0))
    with (
        Proxy(requests.connection) as proxy,
        bench_world(console, proxy=proxy, partitions=options.sources, ackers=options.ackers) as world,
        ExitStack() as stack,
    ):
        ackers = [stack.enter_context(Child("acker", world.config)) for _ in range(planned.acker_processes)]
        replays = [
            stack.enter_context(Child("replay", world.config)) for _ in range(planned.replay_processes)
        ]
        for child in (*ackers, *replays):
            child.wait_ready(READY_SECONDS_MAX)
        spark = local_session("windhover-size", world.folder / "spark")
        stack.callback(spark.stop)
        roots = stack.enter_context(closing(_OpenRoots(world)))
        stack.enter_context(_produced(world, options))
        lines = spout.read_stream(spark, world.topics, input_name(1), startingOffsets="latest")
        query = _started(lines, world.folder, options)
        stack.callback(query.stop)

        first = last = _ended(query, WARM_BATCHES)
        requests.take()
        before, began, began_ms = _stored(world), time.monotonic(), time.time() * 1_000
        is_over = False
        while not is_over:
            time.sleep(SAMPLE_S)
            roots.read()
            took_s, previous, last = time.monotonic() - began, last, _ended(query, 0)
            is_over = took_s >= options.seconds and last > previous  # so whole batches are counted
        counts, after = requests.take(), _stored(world)
        roots.read()
        pending = roots.mean(began_ms, began_ms + took_s * 1_000)
        batches = [each for each in query.recentProgress if each.batchId > first]
        memory = [max(_resident_bytes(child.pid) for child in kind) for kind in (ackers, replays)]
    print_kinds(console, {key: count / took_s for key, count in counts.items()})

    batch_s = took_s / (last - first)
    # a record in a large batch, which is a long one, is open longer
    works = [each.durationMs["triggerExecution"] / 1_000 for each in batches]
    work_s = fmean(works, [each.numInputRows for each in batches])
    size = size_of(options.load(batch_s, work_s))
    grown = {name: (taken - before[name]) / took_s for name, taken in after.items()}
    of_replays = grown.pop(world.topics.input(input_name(1)).replay_topic)
    asked = Counter[str]()
    for (client, _), count in counts.items():
        asked[next((part for name, part in PARTS.items() if is_of(client, name)), client)] += count
    computed = {
        ACKERS: size.acker_requests_per_s,
        REPLAYS: size.replay_requests_per_s,
        QUERY: size.query_requests_per_s,
    }
    return [
        Figure(BATCH, batch_s, "s", f"{options.batch_s}"),
        Figure(WORK, work_s, "s"),
        *(
            Figure(name, grown[name], "bytes/s", f"{found:,.0f}")
            for name, found in size.topic_bytes_per_s.items()
        ),
        Figure(TOTAL, sum(grown.values()), "bytes/s", f"{size.ack_bytes_per_s:,.0f}"),
        Figure(REPLAY_TOPIC, of_replays, "bytes/s", f"{size.replay_topic_bytes_per_s:,.0f}"),
        Figure(PENDING, pending, "roots", f"{size.pending:,}"),
        *(
            Figure(name, asked.pop(name) / took_s, "requests/s", f"{found:,.1f}")
            for name, found in computed.items()
        ),
        *(Figure(f"{name}, not computed", count / took_s, "requests/s") for name, count in asked.items()),
        Figure(ACKER_MEMORY, memory[0], "bytes", f"at most {size.acker_bytes:,}"),
        Figure(REPLAY_MEMORY, memory[1], "bytes", f"at most {size.replay_bytes:,}"),
    ]


class _OpenRoots:
    """Follows inits and verdicts, past the proxy, and counts the roots that are open between them."""

    def __init__(self, world: World) -> None:
        self._log = KafkaLog({**world.topics.kafka, "bootstrap.servers": world.bootstrap})
        names = world.topics.ack_topics
        topics = (names.init, names.verdict)
        places = [TopicPartition(name, p) for name in topics for p in range(world.topics.acker.partitions)]
        self._records = Follower(self._log, places)
        self._changes: list[tuple[int, int]] = []

    def read(self) -> None:
        """Read what is new, so that no acker deletes it before."""
        codec = wire_codec()
        for record in self._records.read():
            event = codec.decode(record.value)
            if isinstance(event, Init):
                self._changes.append((record.timestamp_ms, _roots(event.runs)))
            elif isinstance(event, Verdicts):
                lost = sum(len(positions(each.positions)) for each in event.lost)
                self._changes.append((record.timestamp_ms, -_roots(event.done_runs()) - lost))

    def mean(self, began_ms: float, ended_ms: float) -> float:
        """Return how many were open on average between two wall times."""
        total = sum(
            roots * (ended_ms - max(at_ms, began_ms)) for at_ms, roots in self._changes if at_ms < ended_ms
        )
        return total / (ended_ms - began_ms)

    def close(self) -> None:
        self._records.close()
        self._log.close()


def _roots(runs: Iterable[SourceRun]) -> int:
    return sum(run.end - run.start for run in runs)


def _stored(world: World) -> dict[str, int]:
    """Return what each ack topic, and the topic of copies, takes on the broker's disk."""
    names = [*world.topics.ack_topics.names(), world.topics.input(input_name(1)).replay_topic]
    data = world.folder / "kafka" / "data"
    return {name: sum(each.stat().st_size for each in data.glob(f"{name}-*/*.log")) for name in names}


def _ended(query: StreamingQuery, least: int) -> int:
    """Wait for a batch, and return the number of the last one that has ended."""

    def number() -> int:
        return -1 if query.lastProgress is None else int(query.lastProgress.batchId)

    wait_until(lambda: number() >= least, BATCH_SECONDS_MAX, f"batch {least} of the query")
    return number()


def _resident_bytes(pid: int | None) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return 1_024 * int(re.findall(r"^VmRSS:\s+(\d+) kB$", text, re.MULTILINE)[0])


def _started(lines: DataFrame, folder: Path, options: SizeOptions) -> StreamingQuery:
    def write(batch: DataFrame, _batch_id: int) -> None:
        batch.foreach(lambda _row: None)
        time.sleep(options.sink_s)

    rows = lines.transform(spout.bolt(Copied(options.lost_every)))
    return (
        rows.writeStream.foreachBatch(spout.sink(write))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime=f"{options.batch_s} seconds")
        .start()
    )


@contextmanager
def _produced(world: World, options: SizeOptions) -> Iterator[None]:
    """Produce at the rate, past the proxy, while the context lasts."""
    is_over = threading.Event()
    topic = world.topics.input(input_name(1)).topic

    def produce() -> None:
        log = KafkaLog({**world.topics.kafka, "bootstrap.servers": world.bootstrap})
        producer = log.producer()
        began, sent = time.monotonic(), 0
        while not is_over.wait(SEND_EVERY_S):
            due = int((time.monotonic() - began) * options.rate)
            for number in range(sent, due):
                producer.send(Outgoing(topic, number % options.sources, RECORD % number))
            sent = due
            producer.flush(SEND_MS)
        producer.close()
        log.close()

    thread = threading.Thread(target=produce, name="windhover-producer")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
