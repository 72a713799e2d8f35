"""``python -m benchmarks page``: how soon the page shows something on a large log, and its memory.

The verdicts of an hour are written to ``_ack_verdict`` as ackers write them: each tenth of a second one
record for each source partition, with the roots that were acked; now and then one of them failed. Then the
page is started, once as if the replay workers had been away all the time, and once as if they had taken all
over.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
from rich.console import Console

from acker.identity import ACKER_BLOCK_BITS, acker_partition, source_of
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing, TopicPartition
from acker.service.view import ViewReader
from acker.wire.codec import wire_codec
from acker.wire.events import Lost, SourceRun, Verdicts, pack_positions
from acker.wire.verdict import Verdict
from benchmarks.measure import Figure, print_report, wait_until
from benchmarks.services.throughput import READY_SECONDS_MAX, writer_for
from benchmarks.services.wire import WireWriter
from benchmarks.world import INPUT, PARTITIONS, World, bench_world, bulk_producer
from spout.local.embedded import free_port
from spout.runtime.child import Child

STEP_MS = 100
"""What an acker reads within this time it settles in one transaction (`AckerLimits.pace_ms`)."""

FAILS_EVERY = 1_000
"""Each so manieth root fails."""

FAR = 1 << 40
SECONDS_MAX = 120
READING = "reading verdicts since"


def run(rate: int, seconds: int, *, stuck: bool, json: bool) -> int:
    """Measure with the verdicts of so many seconds at so many records a second, and print. Return 0.

    With `stuck` one root of each acker partition is open all the time: its State is joined with all verdicts
    since then.
    """
    console = Console(stderr=True)
    figures: list[Figure] = []
    with bench_world(console) as world:
        log = KafkaLog(world.topics.kafka)
        writer = writer_for(log, world.topics)
        with Child("acker", world.config) as acker:  # so that there is State
            acker.wait_ready(READY_SECONDS_MAX)
            writer.take()
            if stuck:
                _open_one_each(world, writer)
            writer.flush()
            acks = world.topics.acker
            observer = ViewReader(log, acks.topics, acks.partitions, acks.limits)
            wait_until(lambda: _has_state(observer, stuck=stuck), READY_SECONDS_MAX, "State")
        writer.close()
        records = _write(world, log, rate, seconds)
        verdicts = [TopicPartition(world.topics.ack_topics.verdict, p) for p in range(PARTITIONS)]
        figures.append(Figure("verdicts", rate * seconds, ""))
        figures.append(Figure("records of verdicts", records, ""))
        figures += _page(world, "replay workers away")
        log.commit(world.topics.acker.replay_group, log.stable_ends(verdicts))
        figures += _page(world, "all taken over")
        log.close()
    print_report(console, figures, json=json)
    return 0


def _has_state(observer: ViewReader, *, stuck: bool) -> bool:
    """Whether there is State of each acker partition; with `stuck` it has to hold the open root."""
    views = [observer.view(number) for number in range(observer.partitions)]
    return all(view is not None and (not stuck or any(view.open_ranges())) for view in views)


def _open_one_each(world: World, writer: WireWriter) -> None:
    """Open a root in each acker partition, far behind all others."""
    left, at = set(range(world.topics.acker.partitions)), FAR
    while left:
        number = acker_partition(writer.source, at, world.topics.acker.partitions)
        if number in left:
            left.discard(number)
            writer.init(at, at + 1)
        at += 1 << ACKER_BLOCK_BITS


def _write(world: World, log: KafkaLog, rate: int, seconds: int) -> int:
    """Write the verdicts of the last seconds; return how many records they are."""
    one = world.topics.inputs[INPUT]
    topic_id = log.topics([one.topic])[one.topic].id
    names, codec = world.topics.ack_topics, wire_codec()
    each = rate * STEP_MS // 1_000 // PARTITIONS
    began_ms = time.time_ns() // 1_000_000 - seconds * 1_000
    records = 0
    with bulk_producer(world) as producer:
        for step in range(seconds * 1_000 // STEP_MS):
            start, at_ms = step * each, began_ms + step * STEP_MS
            for number in range(PARTITIONS):
                source = source_of(one.id, number)
                lost: tuple[Lost, ...] = ()
                failed = number == 0 and step * each * PARTITIONS % FAILS_EVERY == 0
                if failed:
                    at = pack_positions(np.array([start]))
                    lost = (
                        Lost(
                            Verdict.FAILED, one.group, one.topic, topic_id, "split", "ValueError", "bad",
                            at_ms, at_ms, at_ms, source, at,
                        ),
                    )  # fmt: skip
                acked = (SourceRun(source, start + failed, start + each),)
                partition = acker_partition(source, start, world.topics.acker.partitions)
                value = codec.encode(Verdicts(acked, (), lost))
                producer.send(Outgoing(names.verdict, partition, value, timestamp_ms=at_ms))
                records += 1
    return records


def _page(world: World, name: str) -> list[Figure]:
    """Start the page, and wait until it shows everything."""
    address = f"http://127.0.0.1:{(port := free_port())}"
    program = ("-m", "spout.cli", "ui", "--config", str(world.config), "--port", str(port))
    began = time.monotonic()
    figures: list[Figure] = []

    def note(what: str, is_so: Callable[[], bool]) -> None:
        wait_until(is_so, SECONDS_MAX, what)
        figures.append(Figure(f"{name}: {what}", time.monotonic() - began, "s"))

    with Child("ui", world.config, log=world.folder / "page.log", program=program) as page:
        note("the page answers", lambda: bool(_get(address)))
        note("the first view", lambda: bool(_get(f"{address}/readyz")))
        note("the page of failures answers", lambda: bool(_get(f"{address}/failures")))
        note("all failures are counted", lambda: _shows(f"{address}/failures", "of 1 kind"))
        note("all causes are known", lambda: READING not in _get(address))
        slowest = max(_seconds(address) for _ in range(20))
        figures.append(Figure(f"{name}: slowest of 20 answers then", slowest, "s"))
        peak = Path(f"/proc/{page.pid}/status").read_text().partition("VmHWM:")[2].split()[0]
        figures.append(Figure(f"{name}: peak memory of the page", int(peak) / 1_024, "MiB"))
    return figures


def _get(address: str) -> str:
    """Return what a page shows; empty: nothing yet."""
    try:
        with urlopen(Request(address, headers={"accept": "text/html"}), timeout=SECONDS_MAX) as answer:
            return str(answer.read().decode())
    except (HTTPError, OSError):
        return ""


def _shows(address: str, text: str) -> bool:
    page = _get(address)
    return READING not in page and text in page


def _seconds(address: str) -> float:
    began = time.monotonic()
    _get(address)
    return time.monotonic() - began
