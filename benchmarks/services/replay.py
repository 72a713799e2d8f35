"""``python -m benchmarks replay``: how fast lost roots are scheduled, taken over and copied.

A replay worker runs in this process against a broker of its own. Roots are lost by verdicts that the
benchmark writes; the time is an argument of the worker, so all of them are due at once whenever it says so.
Beside the copies stands a plain loop of confluent-kafka that copies the same records in transactions, beside
those of far scattered records a plain consumer that seeks to each of them.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from random import Random
from statistics import median
from typing import NamedTuple

import confluent_kafka
import numpy as np
from rich.console import Console

from acker.config.limits import ReplayLimits
from acker.errors import CheckFailed
from acker.identity import I64, source_of
from acker.kafka.client import CHECKED
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing
from acker.wire.codec import wire_codec
from acker.wire.events import Lost, Verdicts, pack_positions
from acker.wire.verdict import Verdict
from benchmarks.measure import Figure, print_report
from benchmarks.services.letters import letters_replayed
from benchmarks.services.plain_copies import copies_a_second
from benchmarks.world import INPUT, World, bench_world
from replay.worker.service import ReplayService
from replay.worker.waiting import Schedule

RECORD_BYTES = 100
ROOTS_OF_A_VERDICT = 10_000
FLUSH_MS_MAX = 60_000
STEPS_SECONDS_MAX = 300
SEEK_SECONDS_MAX = 30
RUN_MAX = 100_000
LAPS = 5
"""Of consecutive records, with the median taken; the first, in which all connect and a broker warms up, is
not counted. The others take long enough for one."""
DUE_AT_ONCE = 20_000
CHUNK = 10_000
SCATTERED = (("runs", 1, 50_000), ("one in 100", 100, 5_000), ("one in 100,000", 100_000, 0))
HOUR_MS = 3_600_000
NOW_MS = 1_800_000_000_000


def run(records: int, scheduled: int, *, json: bool) -> int:
    """Measure, and print.

    Args:
        records: of the source topic.
        scheduled: roots that wait at once, for the memory of one.
        json: print one JSON object as the last line.

    Returns:
        0.

    Raises:
        CheckFailed: a copy is missing.
    """
    console = Console(stderr=True)
    figures = [*_due_at_once(DUE_AT_ONCE), *_memory(scheduled)]
    with bench_world(console) as world:
        log = KafkaLog(world.topics.kafka)
        bench = _Bench(world, log)
        bench.fill(records)
        for name, step, aim in SCATTERED:
            wanted = np.arange(0, records, step, dtype=np.int64)[:RUN_MAX]
            figures += bench.measure(name, wanted, f"{aim:,}" if aim else "", laps=LAPS if step == 1 else 1)
        figures.append(bench.seek(np.arange(0, records, SCATTERED[-1][1], dtype=np.int64)))
        figures += letters_replayed(world, log, world.topics.inputs[INPUT])
        log.close()
    print_report(console, figures, json=json)
    return 0


def _due_at_once(roots: int) -> list[Figure]:
    """Time what the schedule takes for roots that are due at once, a transaction's worth at a time."""
    schedule = Schedule()
    for offset in range(roots):
        schedule.add(0, offset)
    begun = time.perf_counter()
    while schedule.take(0, ReplayLimits().fire_max):
        pass
    milliseconds = (time.perf_counter() - begun) * 1_000
    return [Figure(f"{roots:,} replays due at once: scheduling", milliseconds, "ms", "under 50")]


def _memory(roots: int) -> list[Figure]:
    """Weigh roots that wait, added one by one with the due times that jitter gives them."""
    due_ms = np.random.default_rng(0).integers(0, HOUR_MS, roots)
    tracemalloc.start()
    schedule = Schedule()
    for begin in range(0, roots, CHUNK):
        for number, at in enumerate(due_ms[begin : begin + CHUNK].tolist(), begin):
            schedule.add(at, number)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return [
        Figure(f"memory of a root that waits, of {roots:,}", held / roots, "bytes", "at most 32"),
        Figure("the same, at its highest while they came", peak / roots, "bytes"),
    ]


class _Lap(NamedTuple):
    """What one lap came to: bytes fetched for a copy, and roots taken over and copied in a second."""

    fetched: float
    taken_over: float
    copies: float


class _Bench:
    """A worker, and the roots that it is given."""

    def __init__(self, world: World, log: KafkaLog) -> None:
        self._world = world
        self._log = log
        self._input = world.topics.inputs[INPUT]
        self._id = log.topics([self._input.topic])[self._input.topic].id

    def fill(self, records: int) -> None:
        """Write the source topic's partition 0."""
        producer = self._log.producer()
        random = Random(0)
        values = [random.randbytes(RECORD_BYTES // 2).hex().encode() for _ in range(10_000)]
        for number in range(records):
            producer.send(Outgoing(self._input.topic, 0, values[number % len(values)]))
        producer.flush(FLUSH_MS_MAX)
        producer.close()

    def measure(self, name: str, wanted: I64, aim: str, laps: int) -> list[Figure]:
        """Lose the roots at some offsets, and copy them; so many times."""
        found = [self._lap(wanted) for _ in range(laps)][laps > 1 :]
        copies = median(lap.copies for lap in found)
        return [
            Figure(f"{name}: bytes fetched for a copy", found[-1].fetched, "bytes"),
            Figure(f"{name}: roots taken over", median(lap.taken_over for lap in found), "roots/s"),
            Figure(f"{name}: copies", copies, "copies/s", aim),
            *self._beside(name, wanted, copies, laps),
        ]

    def _lap(self, wanted: I64) -> _Lap:
        self._lose(wanted)
        service = ReplayService(self._log, self._world.topics, jitter=lambda: 0.0)
        try:
            begun = time.perf_counter()
            self._step(service, NOW_MS, lambda: service.status().lost == len(wanted))
            taken_over = time.perf_counter() - begun
            begun = time.perf_counter()
            self._step(service, NOW_MS + HOUR_MS, lambda: service.status().replayed == len(wanted))
            copied = time.perf_counter() - begun
            status = service.status()
        finally:
            service.close()
        if status.replayed != len(wanted):
            raise CheckFailed(f"{status.replayed} of {len(wanted)} roots were copied")
        return _Lap(status.fetched_bytes / len(wanted), len(wanted) / taken_over, len(wanted) / copied)

    def _beside(self, name: str, wanted: I64, copies: float, laps: int) -> list[Figure]:
        """Let a plain loop copy the same records, where it need not read ten million for it."""
        if name == SCATTERED[-1][0]:
            return []
        topics = self._world.topics
        place = self._input.topic, self._input.replay_topic
        found = [copies_a_second(topics.kafka, *place, wanted) for _ in range(laps)][laps > 1 :]
        return [
            Figure(f"{name}: a plain loop that copies in transactions", median(found), "copies/s"),
            Figure(f"{name}: the worker to the plain loop", copies / median(found), ""),
        ]

    def seek(self, wanted: I64) -> Figure:
        """Let a plain consumer seek to each record, one after the other."""
        settings = {
            **self._world.topics.kafka,
            **CHECKED,
            "group.id": "bench-seek",
            "enable.auto.commit": False,
        }
        consumer = confluent_kafka.Consumer(settings)
        place = confluent_kafka.TopicPartition(self._input.topic, 0, int(wanted[0]))
        consumer.assign([place])
        consumer.poll(SEEK_SECONDS_MAX)  # the first one connects as well
        begun = time.perf_counter()
        for offset in wanted.tolist():
            place.offset = offset
            consumer.seek(place)
            found = consumer.poll(SEEK_SECONDS_MAX)
            if found is None or found.offset() != offset:
                raise CheckFailed(f"a plain consumer did not find offset {offset}")
        rate = len(wanted) / (time.perf_counter() - begun)
        consumer.close()
        return Figure(f"{SCATTERED[-1][0]}: a plain consumer that seeks", rate, "records/s")

    def _lose(self, wanted: I64) -> None:
        producer = self._log.producer()
        codec, now_ms = wire_codec(), NOW_MS
        for part in np.array_split(wanted, max(1, len(wanted) // ROOTS_OF_A_VERDICT)):
            lost = Lost(
                Verdict.FAILED, self._input.group, self._input.topic, self._id, "split", "ValueError",
                "a line without words", 0, now_ms, 0, source_of(self._input.id, 0), pack_positions(part),
            )  # fmt: skip
            verdict = self._world.topics.ack_topics.verdict
            producer.send(Outgoing(verdict, 0, codec.encode(Verdicts((), (), (lost,)))))
        producer.flush(FLUSH_MS_MAX)
        producer.close()

    @staticmethod
    def _step(service: ReplayService, now_ms: int, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + STEPS_SECONDS_MAX
        while not until():
            if time.monotonic() > deadline:
                raise CheckFailed(f"the replay worker did not get on within {STEPS_SECONDS_MAX} s")
            service.step(now_ms)
