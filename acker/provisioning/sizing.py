"""How large an installation must be for a load: ``windhover size``. A pure model, in one file.

What the ack topics take does not depend on how many records there are, but on how many
micro-batches: what neighbouring records have in common is written once. A batch writes, for each
acker partition that it touches, an `Init`, its `Acks`, and in one transaction each the verdicts,
the State, and what replay workers note. Only trees that are acked across batches, and records that
are lost, are written one by one.

Requests follow the same writes. Each write is a request, a transaction is two more, and a
follower's fetch is answered at the first of several writes, and again for the rest of them. Writes
that one batch, or one tick, makes at once to several acker partitions are a *burst*.

Names end in their unit: `_per_s` is a rate, `_s` a time in seconds.

The sums below are for names of usual lengths: a group and a topic of 10 letters, and the ids that
Spark and Windhover draw. ``python -m benchmarks size`` measures all of it on a real broker.

Source: docs/operate/sizing.md; docs/design/protocol.md, section 4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from acker.identity import ACKER_BLOCK_BITS, WIRE_BLOCK_BITS
from acker.wire.stacks import STACK_BYTES_MAX, WAITING_STACK_BYTES_MAX

BATCH_BYTES: Final = 68
"""What Kafka adds to one write of one record: 61 bytes for the record batch, 7 for the record."""
RECORD_BYTES: Final = 7
"""What Kafka adds to each further record of a write."""
MARKER_BYTES: Final = 78
"""The end of a transaction in one partition: a record batch with a key of 4 and a value of 6 bytes."""

SIGN_BYTES: Final = 140
"""The header of an `Init` or `Tick` that says who sent it: host, application, boot, space."""
CLOCK_BYTES: Final = 30
"""The header that says what the writer's clock says: name 15, value 14."""
INIT_BYTES: Final = 90
"""Header 10, group 11, session 17, epoch 1, clock 4, wall time 6, timeout 3, partitions 1, topic 11, its id
23, and 3 for the list of runs."""
RUN_BYTES: Final = 12
"""Positions [start, end) of a source: 3 for the source, 4 to 5 for each position."""
TICK_BYTES: Final = 43
"""Header 10, group 11, session 17, epoch 1, clock 4."""
TICK_S: Final = 0.5
"""Between two ticks of a session in an acker partition in which it has open roots; one comes at once."""
SIGN_S: Final = 2.0
"""A session without open roots gives a sign of life so often, in one acker partition."""
ACKS_BYTES: Final = 122
"""Header 10, lane 54, sequence 2, group 11, session 17, epoch 1, source 3, block 2, run 12, empty arrays and
clock 10."""
MORE_ACKS_BYTES: Final = 20
"""Each further `Acks` of a write, which is compressed: another block and run, the rest as before."""
FAILS_BYTES: Final = 120
"""Without its positions: header 10, lane 54, group 11, session 17, source, block, and one cause."""
LOST_CAUSE_BYTES: Final = 34
"""What a verdict says of lost roots of one cause, without their positions."""
VERDICTS_BYTES: Final = 13
"""Header 10, and 3 for the lists."""
STATE_BYTES: Final = 240
"""Compressed, with its key of 9 bytes; the ids of session, lane and topic, which do not shrink, take half of
it."""
STATE_OF_SOURCE_BYTES: Final = 12
"""What each source adds to each State, compressed: its watermark, and of some a live range and a mark."""
STATE_PUT_OFF_S: Final = 1.0
"""Steps that read only inits and ticks put their transaction off so long; the tick behind it begins again."""
PROGRESS_BYTES: Final = 32
"""How far a replay worker has taken verdicts over: key 12, value 20."""
PROGRESS_S: Final = 1.0
"""It writes so often at most, where nothing is lost: for a verdict, and for the end of its transaction."""
EARLY_FAILS: Final = 0.5
"""Fails are flushed before acks are sent: so often an acker decides about them first."""

PAIR_BYTES: Final = 16
"""A contribution that is written by itself: a position and a value, 8 bytes each."""
POSITION_BYTES: Final = 8
"""A lost root in `_ack_fail`, and again in `_ack_verdict`."""
DUE_BYTES: Final = 300
"""A root that waits, in `_ack_due`: its history, origin and cause, with its key of 12."""
STACK_PACKED_SHARE: Final = 0.55
"""What compression leaves of a stack that stands in a write for the first time."""
MORE_STACK_BYTES: Final = 30
"""What it leaves of each further one in a write, which is the same: those of one cause are alike."""
TOMBSTONE_BYTES: Final = 12
COPY_BYTES: Final = 300
"""Headers of a copy: lineage, history, and the cause."""
COPY_ACKS_BYTES: Final = 80
"""The acks of a copy, which has a block of its own, with the time of its record's first emission."""
COPY_STEPS: Final = 4
"""The jitter of a back-off spreads the copies of a batch over so many transactions of a partition."""

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

RUNS_PER_S: Final = 39_000_000
"""Contributions/s of one acker, through the broker to the verdict, where whole batches are acked."""
PAIRS_PER_S: Final = 5_600_000
"""The same where each is written by itself."""
NEAR_COPIES_PER_S: Final = 7_900
"""Copies/s of one replay worker where one record in a hundred is lost."""
FAR_COPIES_PER_S: Final = 130
"""The same where lost records are far apart: each of them is sought."""
NEAR: Final = 0.01
PLANNED_PART: Final = 0.5
"""Processes are planned for half of what they can do: one of two may be away."""
PROCESSES_MIN: Final = 2
PARTITIONS_MIN: Final = 4
GROWTH: Final = 4
"""Acker partitions are fixed for life: so many times the processes of today can share them."""
PARTITIONS_MAX: Final = 1_024

IDLE_FETCHES_PER_S: Final = 1 / 0.6
"""Fetches/s of a reader that waits: the broker answers an empty one after 600 ms."""
FETCHES_OF_BURST_MAX: Final = 2
"""A burst to several partitions of a reader answers a fetch at its first write, and another with the rest."""
FETCH_CUT_SHORT: Final = 0.5
"""Of a fetch that waits, so much is over, on average, when a write answers it: that much the less follow."""
MEMBER_REQUESTS_PER_S: Final = 1.0
"""A member's heartbeats; its commits of offsets come once a second at most besides."""
TRANSACTION_REQUESTS: Final = 2
"""Partitions are added, and it ends; each partition that it writes to is a request besides."""
ENDS_REQUESTS: Final = 2
"""An acker that reads contributions asks for the ends of fails, then for those of inits."""
COPY_REQUESTS: Final = 8
"""What precedes the copies of a transaction: the records are sought, and limits of the topic are read."""
PLANNING_REQUESTS: Final = 2
"""A batch is planned up to the ends of its sources, which are asked for twice."""
METADATA_REQUESTS_PER_S: Final = 0.5
"""A session asks so often for new partitions."""


@dataclass(frozen=True, slots=True)
class Load:
    """What an installation must carry.

    Attributes:
        records_per_s: records/s of the input.
        record_bytes: of one of them.
        tuples: of the tree of one record, its own not counted.
        timeout_s: how long a root may be open.
        batch_s: from one micro-batch to the next.
        work_s: how long a micro-batch takes, at most `batch_s`; 0: as long as that.
        sources: partitions of the input.
        partitions: acker partitions; 0: as many as are computed.
        lost: share of the emissions that fail or time out, 0 to 1.
        wait_s: how long a lost record waits for its replay, on average.
        holds: trees are acked across micro-batches (windows, joins), tuple by tuple.
        stack_bytes: of the exception by which a record fails, with ten frames; 0: it fails by a text, or
            times out.
    """

    records_per_s: float
    record_bytes: int = 1_000
    tuples: int = 10
    timeout_s: float = 30.0
    batch_s: float = 1.0
    work_s: float = 0.0
    sources: int = 4
    partitions: int = 0
    lost: float = 0.001
    wait_s: float = 10.0
    holds: bool = False
    stack_bytes: int = 1_000


@dataclass(frozen=True, slots=True)
class Size:
    """What an installation needs for a load.

    Attributes:
        pending: open roots in a steady state; `pending_max` where nothing is acked until the timeout.
        acker_partitions: for `acker.partitions`.
        acker_bytes: memory of each acker where one of them does all the work; likewise `replay_bytes`.
        topic_bytes_per_s: bytes/s that each ack topic grows by, copies of partitions not counted.
        replay_topic_bytes_per_s: the same of the topic of copies.
        acker_requests_per_s: requests/s of all ackers at the brokers; likewise
            `replay_requests_per_s`.
        query_requests_per_s: the same of one query for plans, ticks, acks and verdicts; its
            records come on top.
    """

    pending: int
    pending_max: int
    acker_partitions: int
    acker_processes: int
    replay_processes: int
    acker_bytes: int
    replay_bytes: int
    topic_bytes_per_s: Mapping[str, float]
    replay_topic_bytes_per_s: float
    acker_requests_per_s: float
    replay_requests_per_s: float
    query_requests_per_s: float

    @property
    def ack_bytes_per_s(self) -> float:
        """Bytes/s that all ack topics together grow by."""
        return sum(self.topic_bytes_per_s.values())


def size_of(load: Load) -> Size:
    """Return what an installation needs for a load."""
    # 1. processes, by what comes each second
    lost_roots_per_s = load.records_per_s * load.lost
    # a tree that is acked tuple by tuple has a contribution for each, and one for its root
    contributions_per_record = load.tuples + 1 if load.holds else 1
    contributions_per_s = load.records_per_s * contributions_per_record
    acker_processes = _processes(contributions_per_s, PAIRS_PER_S if load.holds else RUNS_PER_S)
    # near records are read in one fetch
    copies_of_process_per_s = NEAR_COPIES_PER_S if load.lost >= NEAR else FAR_COPIES_PER_S
    replay_processes = _processes(lost_roots_per_s, copies_of_process_per_s)
    # 2. acker partitions: the next power of two, so that any number of processes that is one shares
    # them evenly. For 3 processes 4 times as many are 12, so 16.
    processes = max(acker_processes, replay_processes)
    power_of_two = 1 << (GROWTH * processes - 1).bit_length()
    computed_partitions = min(PARTITIONS_MAX, max(PARTITIONS_MIN, power_of_two))
    partitions = load.partitions or computed_partitions
    # 3. what is open, and what waits for its replay, at once
    pending = math.ceil(load.records_per_s * _open_time_s(load))
    pending_max = math.ceil(load.records_per_s * load.timeout_s)
    ranges = load.sources * math.ceil(load.timeout_s / load.batch_s)
    waiting_roots = lost_roots_per_s * load.wait_s
    # 4. what is written, and asked for, each second
    writes = _write_rates(load, partitions)
    copy_bytes = load.record_bytes + COPY_BYTES + BATCH_BYTES + MARKER_BYTES
    return Size(
        pending=pending,
        pending_max=pending_max,
        acker_partitions=partitions,
        acker_processes=acker_processes,
        replay_processes=replay_processes,
        acker_bytes=PROCESS_BYTES + math.ceil(ROOT_BYTES * pending_max) + RANGE_BYTES * ranges,
        replay_bytes=PROCESS_BYTES + FETCH_BYTES + math.ceil(WAITING_BYTES * waiting_roots),
        topic_bytes_per_s=_topic_bytes_per_s(load, writes),
        replay_topic_bytes_per_s=lost_roots_per_s * copy_bytes,
        acker_requests_per_s=_acker_requests_per_s(writes, acker_processes),
        replay_requests_per_s=_replay_requests_per_s(writes, replay_processes),
        query_requests_per_s=_query_requests_per_s(writes),
    )


def _open_time_s(load: Load) -> float:
    """Return how long a record is open that is acked, from the plan of its batch to its verdict.

    It is planned after Spark has begun its batch, and acked while Spark ends it: as long as a batch
    takes.
    """
    return min(load.timeout_s, load.work_s or load.batch_s)


def _blocks_per_batch(load: Load, bits: int) -> float:
    """Return how many blocks of 2^bits positions a batch touches, on average."""
    return load.sources * (1.0 + load.records_per_s * load.batch_s / load.sources / (1 << bits))


def _expected_hits(throws: float, cells: float) -> float:
    """Return how many of `cells` are hit, on average, by so many random throws at them.

    2 throws at 2 cells hit 1.5 of them. So the blocks of a batch fall into
    acker partitions.
    """
    if cells <= 1.0:  # the formula below is for more than one cell
        return min(1.0, throws)
    missed_share = (1.0 - 1.0 / cells) ** throws
    return float(cells * (1.0 - missed_share))


@dataclass(frozen=True, slots=True)
class _WriteRates:
    """How many writes and the like there are each second; a write goes to one acker partition.

    Attributes:
        batches_per_s: micro-batches.
        partitions_per_batch: how many acker partitions one batch writes to; this one is no rate.
        init_writes_per_s: writes of inits, and as many of acks.
        tick_rounds_per_s: moments at which a session ticks.
        tick_writes_per_s: writes of ticks, signs of life among them.
        fail_writes_per_s: writes of lost roots, each with those of one batch.
        lost_roots_per_s: lost roots.
        verdict_writes_per_s: writes of verdicts.
        state_writes_per_s: transactions of ackers, each with a write of State.
        progress_writes_per_s: transactions of replay workers without copies, some of them with lost
            roots.
        copy_writes_per_s: their transactions with copies.
    """

    batches_per_s: float
    partitions_per_batch: float
    init_writes_per_s: float
    tick_rounds_per_s: float
    tick_writes_per_s: float
    fail_writes_per_s: float
    lost_roots_per_s: float
    verdict_writes_per_s: float
    state_writes_per_s: float
    progress_writes_per_s: float
    copy_writes_per_s: float


def _write_rates(load: Load, partitions: int) -> _WriteRates:
    """Return the rates of all writes for a load, over `partitions` acker partitions."""
    # 1. inits: one in each acker partition that a batch touches
    batches_per_s = 1.0 / load.batch_s
    partitions_per_batch = _expected_hits(_blocks_per_batch(load, ACKER_BLOCK_BITS), partitions)
    inits_per_s = partitions_per_batch * batches_per_s
    # 2. ticks. A session ticks while it has open roots, which is `open_time_s` of each batch:
    # half a tick more than fits, since the first one comes at once. For the rest of the batch it
    # gives signs of life.
    open_time_s = min(load.batch_s, _open_time_s(load))
    tick_rounds_per_batch = min(load.batch_s / TICK_S, open_time_s / TICK_S + 0.5)
    tick_rounds_per_s = tick_rounds_per_batch * batches_per_s
    signs_of_life_per_s = math.floor((load.batch_s - open_time_s) / SIGN_S) * batches_per_s
    # 3. lost roots: those of a batch fall into some of the acker partitions that it touches
    lost_roots_per_s = load.records_per_s * load.lost
    lost_per_batch = lost_roots_per_s * load.batch_s
    fails_per_s = _expected_hits(lost_per_batch, partitions_per_batch) * batches_per_s
    # those that get a verdict before the acks of their batch
    early_fails_per_s = EARLY_FAILS * fails_per_s
    # 4. State: beside the one with its verdicts, a batch has one each time that a step was put off
    # for long enough
    put_off_writes_per_batch = max(0.0, open_time_s - STATE_PUT_OFF_S) / (STATE_PUT_OFF_S + TICK_S)
    # 5. replay workers: progress for the verdict of a batch and for the end of its transaction, and
    # copies in the acker partitions of the lost roots, spread by their back-off
    progress_of_partition_per_s = min(2 * batches_per_s, 1 / PROGRESS_S)
    copies_per_s = 0.0
    if fails_per_s:
        copies_per_s = fails_per_s * _expected_hits(lost_roots_per_s / fails_per_s, COPY_STEPS)
    progress_per_s = partitions_per_batch * progress_of_partition_per_s
    return _WriteRates(
        batches_per_s=batches_per_s,
        partitions_per_batch=partitions_per_batch,
        init_writes_per_s=inits_per_s,
        tick_rounds_per_s=tick_rounds_per_s,
        tick_writes_per_s=tick_rounds_per_s * partitions_per_batch + signs_of_life_per_s,
        fail_writes_per_s=fails_per_s,
        lost_roots_per_s=lost_roots_per_s,
        verdict_writes_per_s=inits_per_s + early_fails_per_s,
        state_writes_per_s=(
            inits_per_s * (1.0 + put_off_writes_per_batch) + early_fails_per_s + signs_of_life_per_s
        ),
        progress_writes_per_s=progress_per_s + early_fails_per_s,
        copy_writes_per_s=copies_per_s,
    )


def _topic_bytes_per_s(load: Load, writes: _WriteRates) -> dict[str, float]:
    """Return the bytes/s that each ack topic grows by."""
    run_bytes_per_s = _blocks_per_batch(load, ACKER_BLOCK_BITS) * RUN_BYTES * writes.batches_per_s
    stack_bytes = STACK_PACKED_SHARE * min(load.stack_bytes, STACK_BYTES_MAX)
    return {
        "_ack_init": _init_bytes_per_s(writes, run_bytes_per_s),
        "_ack_ack": _ack_bytes_per_s(load, writes),
        "_ack_fail": writes.fail_writes_per_s * (BATCH_BYTES + FAILS_BYTES + stack_bytes)
        + writes.lost_roots_per_s * POSITION_BYTES,
        "_ack_verdict": _verdict_bytes_per_s(writes, run_bytes_per_s, stack_bytes),
        "_ack_state": _state_bytes_per_s(load, writes),
        "_ack_due": _due_bytes_per_s(load, writes),
    }


def _init_bytes_per_s(writes: _WriteRates, run_bytes_per_s: float) -> float:
    """Return the bytes/s of `_ack_init`: inits and ticks."""
    inits_bytes_per_s = writes.init_writes_per_s * (BATCH_BYTES + SIGN_BYTES + INIT_BYTES)
    ticks_bytes_per_s = writes.tick_writes_per_s * (BATCH_BYTES + SIGN_BYTES + TICK_BYTES)
    clocks_bytes_per_s = writes.tick_rounds_per_s * CLOCK_BYTES
    return inits_bytes_per_s + run_bytes_per_s + ticks_bytes_per_s + clocks_bytes_per_s


def _ack_bytes_per_s(load: Load, writes: _WriteRates) -> float:
    """Return the bytes/s of `_ack_ack`: contributions.

    A batch writes a record of them for each wire block that it touches, in one write to each acker
    partition: the further records of a write are compressed to little.
    """
    wire_blocks_per_s = _blocks_per_batch(load, WIRE_BLOCK_BITS) * writes.batches_per_s
    records_per_s = max(writes.init_writes_per_s, wire_blocks_per_s)

    first_records_bytes_per_s = writes.init_writes_per_s * (BATCH_BYTES + ACKS_BYTES)
    more_records_bytes_per_s = (records_per_s - writes.init_writes_per_s) * MORE_ACKS_BYTES
    copies_bytes_per_s = writes.lost_roots_per_s * COPY_ACKS_BYTES
    # trees that are held are acked tuple by tuple
    pairs_bytes_per_s = load.records_per_s * (load.tuples + 1) * PAIR_BYTES if load.holds else 0.0
    records_bytes_per_s = first_records_bytes_per_s + more_records_bytes_per_s
    return records_bytes_per_s + copies_bytes_per_s + pairs_bytes_per_s


def _verdict_bytes_per_s(writes: _WriteRates, run_bytes_per_s: float, stack_bytes: float) -> float:
    """Return the bytes/s of `_ack_verdict`: acked runs, lost roots and their causes."""
    verdicts_bytes = BATCH_BYTES + VERDICTS_BYTES + MARKER_BYTES
    verdicts_bytes_per_s = writes.verdict_writes_per_s * verdicts_bytes
    causes_bytes_per_s = writes.fail_writes_per_s * (LOST_CAUSE_BYTES + stack_bytes)
    positions_bytes_per_s = writes.lost_roots_per_s * POSITION_BYTES
    return verdicts_bytes_per_s + run_bytes_per_s + causes_bytes_per_s + positions_bytes_per_s


def _state_bytes_per_s(load: Load, writes: _WriteRates) -> float:
    """Return the bytes/s of `_ack_state`."""
    state_bytes = STATE_BYTES + CLOCK_BYTES + STATE_OF_SOURCE_BYTES * load.sources
    return writes.state_writes_per_s * (BATCH_BYTES + state_bytes + MARKER_BYTES)


def _due_bytes_per_s(load: Load, writes: _WriteRates) -> float:
    """Return the bytes/s of `_ack_due`: progress, and roots that wait, until their tombstones."""
    progress_bytes = BATCH_BYTES + PROGRESS_BYTES + CLOCK_BYTES + MARKER_BYTES
    progress_bytes_per_s = writes.progress_writes_per_s * progress_bytes
    # the copies go to the replay topic; in `_ack_due` their transactions write tombstones, whose
    # bytes `roots_bytes_per_s` counts
    copies_bytes_per_s = writes.copy_writes_per_s * (BATCH_BYTES + MARKER_BYTES)
    # each lost root: the record with which it waits, later its tombstone, and Kafka's 7 bytes for a
    # further record of a write
    roots_bytes_per_s = writes.lost_roots_per_s * (DUE_BYTES + TOMBSTONE_BYTES + RECORD_BYTES)
    stacks_bytes_per_s = _waiting_stack_bytes_per_s(load, writes)
    return progress_bytes_per_s + copies_bytes_per_s + roots_bytes_per_s + stacks_bytes_per_s


def _waiting_stack_bytes_per_s(load: Load, writes: _WriteRates) -> float:
    """Return the bytes/s of the stacks in `_ack_due`: each root that waits has its own, cut to a limit.

    A replay worker writes the fails of one batch to one partition in one transaction. The first
    stack there is compressed by itself (`STACK_PACKED_SHARE`). Each further one takes
    `MORE_STACK_BYTES`, since the stacks of one cause are alike.
    """
    if not load.stack_bytes:
        return 0.0
    first_stack_bytes = STACK_PACKED_SHARE * min(load.stack_bytes, WAITING_STACK_BYTES_MAX)
    more_stacks_per_s = max(0.0, writes.lost_roots_per_s - writes.fail_writes_per_s)
    # by fail write one first stack; every other lost root has a further one
    return writes.fail_writes_per_s * first_stack_bytes + more_stacks_per_s * MORE_STACK_BYTES


def _fetches_per_s(bursts_per_s: float, partitions_per_burst: float) -> float:
    """Return the fetches/s of one reader, with those that the broker answers empty.

    `partitions_per_burst` is to how many of its partitions a burst writes, on average. Below 1 it
    is the share of the bursts that write to one of them: 0.25 is every fourth.
    """
    share_of_bursts = min(1.0, partitions_per_burst)
    fetches_per_burst = min(FETCHES_OF_BURST_MAX, max(1.0, partitions_per_burst))
    further_fetches_per_burst = fetches_per_burst - FETCH_CUT_SHORT
    return IDLE_FETCHES_PER_S + bursts_per_s * share_of_bursts * further_fetches_per_burst


def _acker_requests_per_s(writes: _WriteRates, ackers: int) -> float:
    """Return the requests/s of all ackers: fetches, ends of topics, group and transactions.

    A *burst* is the writes of one batch, or of one round of ticks, to all its acker partitions.
    """
    # to how many partitions of one acker a burst writes; 0.25: every fourth burst writes to one of
    # them
    partitions_per_burst = writes.partitions_per_batch / ackers
    share_of_bursts = min(1.0, partitions_per_burst)
    # each answer to a fetch of contributions begins a step
    fetches_per_burst = min(FETCHES_OF_BURST_MAX, max(1.0, partitions_per_burst))
    steps_per_s = share_of_bursts * fetches_per_burst * writes.batches_per_s
    init_bursts_per_s = writes.batches_per_s + writes.tick_rounds_per_s
    init_fetches_per_s = _fetches_per_s(init_bursts_per_s, partitions_per_burst)
    ack_fetches_per_s = _fetches_per_s(writes.batches_per_s, partitions_per_burst)
    # Before a tick counts, the acker asks for the ends of contributions and fails (its barrier):
    # one request more.
    end_requests_per_s = ENDS_REQUESTS * steps_per_s + share_of_bursts * writes.tick_rounds_per_s
    member_requests_per_s = MEMBER_REQUESTS_PER_S + min(1.0, writes.state_writes_per_s / ackers)
    # of all ackers, unlike the sums above: each transaction has its own requests and a write of
    # State, and some have a write of verdicts
    transaction_requests_of_all_per_s = (
        TRANSACTION_REQUESTS * writes.state_writes_per_s
        + writes.state_writes_per_s
        + writes.verdict_writes_per_s
    )
    requests_of_acker_per_s = (
        init_fetches_per_s + ack_fetches_per_s + end_requests_per_s + member_requests_per_s
    )
    return ackers * requests_of_acker_per_s + transaction_requests_of_all_per_s


def _replay_requests_per_s(writes: _WriteRates, workers: int) -> float:
    """Return the requests/s of all replay workers: fetches, group and transactions."""
    # to how many partitions of one worker a batch writes
    partitions_per_burst = writes.partitions_per_batch / workers
    transactions_per_s = writes.progress_writes_per_s + writes.copy_writes_per_s
    member_requests_per_s = MEMBER_REQUESTS_PER_S + min(1.0, transactions_per_s / workers)
    # + 1: the write to `_ack_due`
    progress_requests_per_s = (TRANSACTION_REQUESTS + 1) * writes.progress_writes_per_s
    # + 2: the writes to `_ack_due` and to the replay topic
    copy_requests_per_s = (TRANSACTION_REQUESTS + 2 + COPY_REQUESTS) * writes.copy_writes_per_s
    fetches_per_s = _fetches_per_s(writes.batches_per_s, partitions_per_burst)
    requests_of_all_per_s = progress_requests_per_s + copy_requests_per_s
    return workers * (fetches_per_s + member_requests_per_s) + requests_of_all_per_s


def _query_requests_per_s(writes: _WriteRates) -> float:
    """Return the requests/s of one query beside its records: plans, writes and verdicts."""
    # the ends of sources, the group's commits (once a second at most), and new partitions
    commits_per_s = min(1.0, writes.batches_per_s)
    plans_per_s = PLANNING_REQUESTS * writes.batches_per_s + commits_per_s + METADATA_REQUESTS_PER_S
    # as many writes of acks as of inits
    writes_per_s = 2 * writes.init_writes_per_s + writes.tick_writes_per_s + writes.fail_writes_per_s
    fetches_per_s = _fetches_per_s(writes.batches_per_s, writes.partitions_per_batch)
    return writes_per_s + plans_per_s + fetches_per_s


def _processes(needed_per_s: float, process_per_s: float) -> int:
    """Return how many processes the rate `needed_per_s` needs, if each can do `process_per_s`."""
    planned_per_s = PLANNED_PART * process_per_s
    return max(PROCESSES_MIN, math.ceil(needed_per_s / planned_per_s))
