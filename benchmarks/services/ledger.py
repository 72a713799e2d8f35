"""``python -m benchmarks ledger``: how fast one acker folds, and what an open root costs in memory.

The first part feeds encoded records to the core of one acker partition and takes encoded verdicts from it:
no broker, one process, one core. The second does the same through a real broker and an acker process.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from rich.console import Console

from acker.config.limits import AckerLimits
from acker.errors import CheckFailed
from acker.identity import I64, U64, WIRE_BLOCK_BITS, root_edges_of_run, source_of
from acker.kafka.port import Record
from acker.service.core import PartitionCore
from acker.wire.codec import wire_codec
from acker.wire.events import (
    Acks,
    Init,
    PositionRun,
    SourceRun,
    Take,
    TakeSource,
    pack_positions,
    pack_values,
)
from benchmarks.measure import Figure, print_report
from benchmarks.services.throughput import through_the_broker
from benchmarks.world import bench_world

BLOCK = 1 << WIRE_BLOCK_BITS
SOURCE = source_of(1, 0)
GROUP, SESSION, EPOCH = "bench", "bench-session", 1
FOLDED_ROOTS = 4_000_000
"""Roots in each speed figure, whole blocks: a second or so of work at the slowest aim."""

RECORDS_PER_STEP = 16
"""What a fetch of a few megabytes brings where every record carries a block of packed values."""

Pattern = Callable[[int], Iterator[Acks]]


class Partition:
    """The core of one acker partition (N = 1), fed with encoded records."""

    def __init__(self) -> None:
        """Begin, with a session in place."""
        self._codec = wire_codec()
        self._core = PartitionCore(0, 1, AckerLimits(), self._codec)
        self._offsets = {"init": 0, "ack": 0}
        sources = (TakeSource(SOURCE, "bench", "topic-id", 0, 0),)
        self.init(Take(GROUP, SESSION, EPOCH, 0, 1, sources))

    @property
    def open(self) -> int:
        """Roots that are open."""
        return self._core.ledger.open_count

    def init(self, event: Take | Init) -> None:
        """Read one record of ``_ack_init``, as a step of its own."""
        self._core.read_inits([self._record("init", self._codec.encode(event))])
        self._finish_step()

    def open_block(self, block: int) -> None:
        """Initialise a whole block of roots."""
        run = SourceRun(SOURCE, block * BLOCK, (block + 1) * BLOCK)
        self.init(Init(GROUP, SESSION, EPOCH, 0, 0, 0, 1, "bench", "topic-id", (run,)))

    def encoded(self, events: Iterator[Acks]) -> list[Record]:
        """Encode records of ``_ack_ack``, so that writing them is not measured."""
        return [self._record("ack", self._codec.encode(event)) for event in events]

    def fold(self, records: list[Record]) -> None:
        """Apply records, some in a step as a service fetches them, and take the verdicts, encoded."""
        for start in range(0, len(records), RECORDS_PER_STEP):
            self._core.apply_acks(records[start : start + RECORDS_PER_STEP])
            self._finish_step()

    def _finish_step(self) -> None:
        if self._core.sessions.lacks_barrier():
            self._core.set_barrier(self._offsets["ack"], 0)
        self._core.apply_reached_ticks()
        output = self._core.take_output()
        self._core.move_verdict_end(output.verdicts)

    def _record(self, topic: str, value: bytes) -> Record:
        offset = self._offsets[topic]
        self._offsets[topic] = offset + 1
        return Record(topic, 0, offset, None, value)


def _acks(
    block: int,
    seq: int,
    runs: tuple[PositionRun, ...],
    at: I64 | None = None,
    of: U64 | None = None,
    lane: int = 0,
) -> Acks:
    where = pack_positions(at) if at is not None else b""
    what = pack_values(of) if of is not None else b""
    return Acks(
        f"bench-{lane}/{SESSION}", seq, GROUP, SESSION, EPOCH, SOURCE, block, runs, where, what, (), b"", 0
    )


def _random_positions(blocks: int) -> Iterator[Acks]:
    """Four records a block: two lanes contribute to a random half of it each, and later complete it."""
    for seq in (0, 1):
        for block in range(blocks):
            chosen = np.random.default_rng(block).random(BLOCK) < 0.5
            values = np.random.default_rng(block + blocks).integers(1, 1 << 63, BLOCK, np.uint64)
            if seq:
                values ^= root_edges_of_run(SOURCE, block * BLOCK, (block + 1) * BLOCK)
            for lane, half in enumerate((chosen, ~chosen)):
                yield _acks(block, seq, (), np.flatnonzero(half) + block * BLOCK, values[half], lane)


def consecutive_positions(blocks: int, first: int = 0) -> Iterator[Acks]:
    """Two records a block, each a contribution to every root of it; each first block has its lane."""
    for seq in (0, 1):
        for block in range(first, first + blocks):
            values = np.random.default_rng(block).integers(1, 1 << 63, BLOCK, np.uint64)
            if seq:
                values ^= root_edges_of_run(SOURCE, block * BLOCK, (block + 1) * BLOCK)
            at = np.arange(block * BLOCK, (block + 1) * BLOCK, dtype=np.int64)
            yield _acks(block, seq, (), at, values, lane=first)


def _runs(blocks: int) -> Iterator[Acks]:
    """One record a block: every root of it, acked whole."""
    for block in range(blocks):
        yield _acks(block, 0, (PositionRun(block * BLOCK, (block + 1) * BLOCK),))


def _speed(pattern: Pattern, per_root: int) -> float:
    """Fold a pattern and return millions of contributions a second.

    Raises:
        CheckFailed: a root stayed open.
    """
    blocks = FOLDED_ROOTS // BLOCK
    partition = Partition()
    for block in range(blocks):
        partition.open_block(block)
    records = partition.encoded(pattern(blocks))
    started = time.perf_counter()
    partition.fold(records)
    seconds = time.perf_counter() - started
    if partition.open:
        raise CheckFailed(f"{partition.open} roots stayed open after every contribution was folded")
    return blocks * BLOCK * per_root / seconds / 1e6


def resident_bytes() -> int:
    """Return how much memory this process holds."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _memory(roots: int) -> tuple[float, float]:
    """Return what an open root costs that has one contribution, and what a settled one costs, in bytes.

    As many roots again are opened and settled for the second figure: what the first ones leave is what a
    process takes once, for modules and for memory that it uses again.
    """
    blocks = max(1, roots // BLOCK)
    partition = Partition()
    found = [resident_bytes()]
    for first in (0, blocks):
        events = consecutive_positions(blocks, first)
        for block in range(first, first + blocks):
            partition.open_block(block)
        for _ in range(blocks):
            partition.fold(partition.encoded(iter([next(events)])))
        found.append(resident_bytes())
        for event in events:
            partition.fold(partition.encoded(iter([event])))
        found.append(resident_bytes())
        if partition.open:
            raise CheckFailed(f"{partition.open} roots stayed open")
    idle, full, settled, _, again = found
    return (full - idle) / (blocks * BLOCK), max(0, again - settled) / (blocks * BLOCK)


def run(roots: int, *, json: bool) -> int:
    """Measure folding, memory at `roots` open roots, and the same end to end. Return 0."""
    console = Console(stderr=True)
    open_bytes, settled_bytes = _memory(roots)
    figures = [
        Figure("memory of an open root", open_bytes, "bytes", "at most 10"),
        Figure("memory of a settled root", settled_bytes, "bytes", "0"),
    ]
    for name, pattern, per_root, aim in (
        ("random positions in a block", _random_positions, 2, 25),
        ("consecutive positions", consecutive_positions, 2, 100),
        ("runs", _runs, 1, 500),
    ):
        speed = _speed(pattern, per_root)
        figures.append(Figure(f"folded, {name}", speed, "million/s", f"at least {aim}"))
    with bench_world(console) as world:
        figures += through_the_broker(world, FOLDED_ROOTS)
    print_report(console, figures, json=json)
    return 0
