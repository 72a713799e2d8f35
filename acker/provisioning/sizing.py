"""How large an installation must be for a load: ``windhover size``. A pure model, in one file.

What the ack topics take does not depend on how many records there are, but on how many micro-batches: what
neighbouring records have in common is written once. A batch writes, for each acker partition that it touches,
an `Init`, its `Acks`, and in one transaction each the verdicts, the State, and what replay workers note. Only
trees that are acked across batches, and records that are lost, are written one by one.

The sums below are for names of usual lengths: a group and a topic of 10 letters, and the ids that Spark and
Windhover draw. A test counts what the real processes write into a Kafka in memory.

Source: docs/operate/sizing.md; docs/design/protocol.md, section 4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from acker.identity import ACKER_BLOCK_BITS, WIRE_BLOCK_BITS

BATCH_BYTES: Final = 68
"""What Kafka adds to one write of one record: 61 bytes for the record batch, 7 for the record."""
RECORD_BYTES: Final = 7
"""What Kafka adds to each further record of a write."""
MARKER_BYTES: Final = 78
"""The end of a transaction in one partition: a record batch with a key of 4 and a value of 6 bytes."""

INIT_BYTES: Final = 90
"""Header 10, group 11, session 17, epoch 1, clock 4, wall time 6, timeout 3, partitions 1, topic 11, its id
23, and 3 for the list of runs."""
RUN_BYTES: Final = 12
"""Positions [start, end) of a source: 3 for the source, 4 to 5 for each position."""
TICK_BYTES: Final = 43
"""Header 10, group 11, session 17, epoch 1, clock 4."""
TICKS_S: Final = 2.0
"""A session ticks every 500 ms in each acker partition in which it has open roots."""
ACKS_BYTES: Final = 122
"""Header 10, lane 54, sequence 2, group 11, session 17, epoch 1, source 3, block 2, run 12, empty arrays and
clock 10."""
VERDICTS_BYTES: Final = 13
"""Header 10, and 3 for the lists."""
STATE_BYTES: Final = 240
"""Compressed, with its key of 9 bytes; the ids of session, lane and topic, which do not shrink, take half of
it."""
STATE_OF_SOURCE_BYTES: Final = 12
"""What each source adds to each State, compressed: its watermark, and of some a live range and a mark."""
STATE_EVERY_S: Final = 1.5
"""Steps that read only inits and ticks put their transaction off for a second; the next tick, which comes
within half a second, begins the next second."""
PROGRESS_BYTES: Final = 32
"""How far a replay worker has taken verdicts over: key 12, value 20."""

PAIR_BYTES: Final = 16
"""A contribution that is written by itself: a position and a value, 8 bytes each."""
LOST_BYTES: Final = 420
"""A record that is lost: 8 bytes in `_ack_fail`, 8 in `_ack_verdict`, some 300 in `_ack_due` with its
history, and a tombstone of 100 there."""

ROOT_BYTES: Final = 8.5
"""Memory of an acker for an open root: its value, and half a byte of marks; measured at ten million."""
RANGE_BYTES: Final = 600
"""Memory of an acker for a live range, which is one source in one batch."""
WAITING_BYTES: Final = 16
"""Memory of a replay worker for a root that waits."""
PROCESS_BYTES: Final = 120 << 20
"""Memory of an acker or a replay worker that does nothing, 80 MiB, and room for buffers."""
FETCH_BYTES: Final = 80 << 20
"""What a replay worker may use besides: `waiting_bytes_max` 64 MiB and `fetch_bytes_max` 16 MiB."""

RUNS_S: Final = 39_000_000
"""Contributions/s of one acker, through the broker to the verdict, where whole batches are acked."""
PAIRS_S: Final = 5_600_000
"""The same where each is written by itself."""
NEAR_COPIES_S: Final = 7_900
"""Copies/s of one replay worker where one record in a hundred is lost."""
FAR_COPIES_S: Final = 130
"""The same where lost records are far apart: each of them is sought."""
NEAR: Final = 0.01
SHARE: Final = 0.5
"""Plan processes for half of what they can do: one of two may be away."""
PROCESSES_MIN: Final = 2
PARTITIONS_MIN: Final = 4
GROWTH: Final = 4
"""Acker partitions are fixed for life: so many times the processes of today can share them."""
PARTITIONS_MAX: Final = 1_024


@dataclass(frozen=True, slots=True)
class Load:
    """What an installation must carry.

    Attributes:
        records_s: records/s of the input.
        record_bytes: of one of them.
        tuples: of the tree of one record, its own not counted.
        timeout_s: how long a root may be open.
        batch_s: from one micro-batch to the next.
        sources: partitions of the input.
        partitions: acker partitions; 0: as many as are computed.
        lost: share of the emissions that fail or time out, 0 to 1.
        wait_s: how long a lost record waits for its replay, on average.
        holds: trees are acked across micro-batches (windows, joins), tuple by tuple.
    """

    records_s: float
    record_bytes: int = 1_000
    tuples: int = 10
    timeout_s: float = 30.0
    batch_s: float = 1.0
    sources: int = 4
    partitions: int = 0
    lost: float = 0.001
    wait_s: float = 10.0
    holds: bool = False


@dataclass(frozen=True, slots=True)
class Size:
    """What it needs.

    Attributes:
        pending: open roots in a steady state; `pending_max` where nothing is acked until the timeout.
        acker_partitions: for `acker.partitions`.
        acker_bytes: memory of each acker where one of them does all the work; likewise `replay_bytes`.
        topic_bytes_s: bytes/s that each ack topic grows by, copies of partitions not counted.
        replay_topic_bytes_s: the same of the topic of copies.
    """

    pending: int
    pending_max: int
    acker_partitions: int
    acker_processes: int
    replay_processes: int
    acker_bytes: int
    replay_bytes: int
    topic_bytes_s: Mapping[str, float]
    replay_topic_bytes_s: float

    @property
    def ack_bytes_s(self) -> float:
        return sum(self.topic_bytes_s.values())


def size_of(load: Load) -> Size:
    lost_s = load.records_s * load.lost
    contributions_s = load.records_s * (load.tuples + 1 if load.holds else 1)
    ackers = _processes(contributions_s, PAIRS_S if load.holds else RUNS_S)
    replays = _processes(lost_s, NEAR_COPIES_S if load.lost >= NEAR else FAR_COPIES_S)
    partitions = load.partitions or min(
        PARTITIONS_MAX, max(PARTITIONS_MIN, _power_of_two(GROWTH * max(ackers, replays)))
    )
    # a record is open from its announcement to its verdict: on average for the batch, and half of the next
    pending = math.ceil(load.records_s * min(load.timeout_s, 1.5 * load.batch_s))
    pending_max = math.ceil(load.records_s * load.timeout_s)
    ranges = load.sources * math.ceil(load.timeout_s / load.batch_s)
    return Size(
        pending,
        pending_max,
        partitions,
        ackers,
        replays,
        PROCESS_BYTES + math.ceil(ROOT_BYTES * pending_max) + RANGE_BYTES * ranges,
        PROCESS_BYTES + FETCH_BYTES + math.ceil(WAITING_BYTES * lost_s * load.wait_s),
        _topics(load, partitions, lost_s),
        lost_s * (load.record_bytes + LOST_BYTES),
    )


def touched_partitions(load: Load, partitions: int) -> float:
    """Return how many acker partitions a batch touches, on average: blocks fall on them at random."""
    blocks = _blocks(load, ACKER_BLOCK_BITS)
    left: float = (1.0 - 1.0 / partitions) ** blocks
    return partitions * (1.0 - left)


def _blocks(load: Load, bits: int) -> float:
    """Return how many blocks of 2^bits positions a batch touches, on average."""
    return load.sources * (1.0 + load.records_s * load.batch_s / load.sources / (1 << bits))


def _topics(load: Load, partitions: int, lost_s: float) -> dict[str, float]:
    touched = touched_partitions(load, partitions)
    batches_s = 1.0 / load.batch_s
    runs_s = _blocks(load, ACKER_BLOCK_BITS) * RUN_BYTES * batches_s
    writes_s = touched * batches_s
    states_s = touched * (batches_s + max(0.0, 1.0 - batches_s) / STATE_EVERY_S)
    acks_s = _blocks(load, WIRE_BLOCK_BITS) * (RECORD_BYTES + ACKS_BYTES) * batches_s
    pairs_s = load.records_s * (load.tuples + 1) * PAIR_BYTES if load.holds else 0.0
    state_bytes = STATE_BYTES + STATE_OF_SOURCE_BYTES * load.sources
    return {
        "_ack_init": writes_s * (BATCH_BYTES + INIT_BYTES)
        + runs_s
        + TICKS_S * touched * (BATCH_BYTES + TICK_BYTES),
        "_ack_ack": writes_s * (BATCH_BYTES - RECORD_BYTES) + acks_s + pairs_s,
        "_ack_fail": lost_s * PAIR_BYTES / 2,
        "_ack_verdict": writes_s * (BATCH_BYTES + VERDICTS_BYTES + MARKER_BYTES)
        + runs_s
        + lost_s * PAIR_BYTES / 2,
        "_ack_state": states_s * (BATCH_BYTES + state_bytes + MARKER_BYTES),
        "_ack_due": writes_s * (BATCH_BYTES + PROGRESS_BYTES + MARKER_BYTES) + lost_s * LOST_BYTES,
    }


def _processes(needed_s: float, each_s: float) -> int:
    return max(PROCESSES_MIN, math.ceil(needed_s / (SHARE * each_s)))


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()
