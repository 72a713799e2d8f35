"""``python -m benchmarks idle``: what an acker, a replay worker and a query cost with nothing to do.

Each is a process of its own, as in an installation. All their requests go through a proxy, which counts them
by client and kind; what the broker does for them is its own CPU time. What they do at their start does not
count.

A query has two processes: the driver's JVM, with Spark's own idle loop, and the planning process. In turn
with it idles one of Spark's own Kafka connector, which plans in the JVM. Behind each round single records
come, and what counts is when they are planned.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Final, Literal

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing, Producer
from benchmarks.measure import Figure, cpu_seconds_of, cpu_seconds_of_tree, print_report, wait_until
from benchmarks.requests import Requests, is_of, print_kinds
from benchmarks.streams.connector import connector_settings
from benchmarks.streams.contest import Contest, How
from benchmarks.streams.pipelines import PIPELINES
from benchmarks.world import ACKERS, INPUT, PARTITIONS, World, bench_world, input_name
from spout.local.spark_session import local_session, warm_up
from spout.runtime.child import Child
from tests.torture.stage.proxy import Proxy

READY_SECONDS_MAX: Final = 60.0
QUERIES: Mapping[str, How] = MappingProxyType({"query": How.TRACKED, "connector": How.CONNECTOR})
"""What reads, by name in the figures."""

LATE_SECONDS: Final = 3.0
"""How long a query idles before each of the records that come after a round."""

BATCH_SECONDS_MAX: Final = 60.0
A_BATCH: Final = "a batch of the query"

Part = Literal["acker", "replay"]
PARTS: Final[tuple[Part, ...]] = ("acker", "replay")


@dataclass(frozen=True, slots=True)
class IdleOptions:
    """Seconds of a round, rounds, and records that come one by one behind each round of a query.

    `partitions` of the source topic, `ackers`: acker partitions.
    `warm_seconds`: what counts begins so late. An owner asks for its partitions and topics for some seconds
    after it is ready.
    """

    seconds: int = 60
    rounds: int = 5
    warm_seconds: int = 10
    late_records: int = 5
    partitions: int = PARTITIONS
    ackers: int = ACKERS


def run(options: IdleOptions, *, json: bool) -> int:
    """Let the services idle, then queries, and print medians of the rounds. Return 0."""
    console = Console(stderr=True)
    requests = Requests()
    with (
        Proxy(requests.connection) as proxy,
        bench_world(
            console,
            options.rounds * len(QUERIES),
            proxy=proxy,
            partitions=options.partitions,
            ackers=options.ackers,
        ) as world,
        ExitStack() as stack,
    ):
        children = {part: stack.enter_context(Child(part, world.config)) for part in PARTS}
        for child in children.values():
            child.wait_ready(READY_SECONDS_MAX)
        time.sleep(options.warm_seconds)
        found = [_round(children, requests, options.seconds) for _ in range(options.rounds)]
        queries = _queries(world, requests, options, console)
    _print_kinds(console, [kinds for _, kinds in found])
    for of in queries.values():
        _print_kinds(console, [one.kinds for one in of])
    figures = []
    for part in PARTS:
        cpu = median(shares[part] for shares, _ in found)
        rate = median(sum(r for (name, _), r in kinds.items() if _is_of(name, part)) for _, kinds in found)
        figures += [
            Figure(f"{part}: CPU", 100 * cpu, "% of a core", "1"),
            Figure(f"{part}: requests", rate, "/s", "5"),
        ]
    print_report(console, [*figures, *_figures_of_queries(queries)], json=json)
    return 0


_Kinds = Mapping[tuple[str, int], float]


def _round(
    children: Mapping[Part, Child], requests: Requests, seconds: int
) -> tuple[Mapping[Part, float], _Kinds]:
    """Return the share of a core of each child, and requests a second by client and kind."""
    requests.take()
    before = {part: cpu_seconds_of_tree(child.pid or 0) for part, child in children.items()}
    began = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    after = {part: cpu_seconds_of_tree(child.pid or 0) for part, child in children.items()}
    counts = requests.take()
    shares = {part: (after[part] - before[part]) / took for part in children}
    return shares, {key: count / took for key, count in counts.items()}


def _is_of(client: str, part: Part) -> bool:
    return is_of(client, f"windhover-{part}")


@dataclass(frozen=True, slots=True)
class Idled:
    """A query in one round: shares of a core, requests a second, and how late records were planned, ms.

    `planning` is the share of the planning process; Spark's own connector has none.
    """

    jvm: float
    planning: float
    kinds: _Kinds
    late_ms: list[float]


def _queries(
    world: World, requests: Requests, options: IdleOptions, console: Console
) -> dict[str, list[Idled]]:
    """Let a query of each kind idle, in turn."""
    settings = {**connector_settings(), "spark.ui.enabled": "false"}
    spark = local_session("windhover-bench", world.folder / "spark", further=settings)
    warm_up(spark)
    found: dict[str, list[Idled]] = {name: [] for name in QUERIES}
    for number in range(options.rounds):
        for kind, (name, how) in enumerate(QUERIES.items()):
            source = input_name(number * len(QUERIES) + kind + 1)
            one = _query(world, spark, requests, options, source, how)
            late = ", ".join(f"{ms:.0f}" for ms in one.late_ms)
            shares = f"JVM {100 * one.jvm:.1f} %, planning process {100 * one.planning:.2f} % of a core"
            console.print(f"{name}: {shares}, planned after {late} ms", highlight=False)
            found[name].append(one)
    spark.stop()
    return found


def _query(
    world: World, spark: SparkSession, requests: Requests, options: IdleOptions, source: str, how: How
) -> Idled:
    checkpoint = world.folder / f"checkpoint-{source}"
    contest = Contest(spark, world.topics, source, how, checkpoint, 1_000, starting="latest")
    query = PIPELINES["split"].start(contest)
    with closing(KafkaLog(world.topics.kafka)) as log, closing(log.producer()) as producer:
        wait_until(lambda: query.lastProgress is not None, BATCH_SECONDS_MAX, A_BATCH)
        time.sleep(options.warm_seconds)
        requests.take()
        jvm = _child_of(os.getpid(), b"org.apache.spark.deploy.SparkSubmit") or 0
        pids = jvm, _child_of(jvm, b"python_streaming_source_runner") or 0
        before, began = [cpu_seconds_of(pid) for pid in pids], time.monotonic()
        time.sleep(options.seconds)
        after, took = [cpu_seconds_of(pid) for pid in pids], time.monotonic() - began
        kinds = _kinds_of_query(requests.take(), took)
        late_ms = []
        for _ in range(options.late_records):
            time.sleep(LATE_SECONDS)
            count = len(_batches(query))
            produced_ms = _produce(producer)
            wait_until(partial(_has_more, query, count), BATCH_SECONDS_MAX, A_BATCH)
            batch = _batches(query)[-1]
            began_ms = datetime.fromisoformat(batch["timestamp"]).timestamp() * 1000
            late_ms.append(began_ms + batch["durationMs"]["latestOffset"] - produced_ms)
        query.stop()
    of_jvm, of_planning = ((late - early) / took for early, late in zip(before, after, strict=True))
    return Idled(of_jvm, of_planning, kinds, late_ms)


def _kinds_of_query(counts: Mapping[tuple[str, int], int], took: float) -> _Kinds:
    """Return requests a second of a query's clients, each without its number.

    Left out are those of consumers that read tasks of an earlier query have kept for another task.
    """
    kinds = Counter[tuple[str, int]]()
    for (client, kind), count in counts.items():
        if not any(is_of(client, f"windhover-{other}") for other in (*PARTS, "read")):
            kinds[client.rstrip("-0123456789"), kind] += count
    return {key: count / took for key, count in kinds.items()}


def _batches(query: StreamingQuery) -> list[StreamingQueryProgress]:
    """Return what Spark says of those that had records."""
    return [one for one in query.recentProgress if one["numInputRows"]]


def _has_more(query: StreamingQuery, count: int) -> bool:
    return len(_batches(query)) > count


def _produce(producer: Producer) -> float:
    """Write one record; return when that began, ms since 1970."""
    began_ms = time.time_ns() / 1e6
    producer.send(Outgoing(INPUT, 0, b"the quick brown fox"))
    producer.flush(30_000)
    return began_ms


def _child_of(parent: int, program: bytes) -> int | None:
    """Return the child of a process that has this in its command line, the newest one; else None."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_child = f"PPid:\t{parent}\n" in (path / "status").read_text()
            if is_child and program in (path / "cmdline").read_bytes():
                found.append(int(path.name))
    return max(found, default=None)


def _figures_of_queries(found: Mapping[str, list[Idled]]) -> list[Figure]:
    figures: list[Figure] = []
    for name, of in found.items():
        is_ours = QUERIES[name] is How.TRACKED
        figures += [
            Figure(f"{name}: CPU of the JVM", 100 * median(one.jvm for one in of), "% of a core"),
            Figure(
                f"{name}: requests",
                median(sum(one.kinds.values()) for one in of),
                "/s",
                "5" if is_ours else "",
            ),
            Figure(
                f"{name}: a record is planned after", median(ms for one in of for ms in one.late_ms), "ms"
            ),
            Figure(f"{name}: the latest of them after", max(ms for one in of for ms in one.late_ms), "ms"),
        ]
        if is_ours:
            planning = 100 * median(one.planning for one in of)
            figures.append(Figure(f"{name}: CPU of the planning process", planning, "% of a core", "1"))
    return figures


def _print_kinds(console: Console, found: list[_Kinds]) -> None:
    every = set[tuple[str, int]]().union(*found)
    rates = {key: median(kinds.get(key, 0.0) for kinds in found) for key in every}
    print_kinds(console, rates, "a second (median)")
