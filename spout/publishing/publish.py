"""From the outcome of a micro-batch to records on the ack topics: the only place that acks and fails.

One `Acks` and at most one `Fails` for each block of 32,768 positions of one source. Records are canonical:
everything ascending, every root whose contribution is its root edge in a run. So a batch that is published
again is recognised by its bytes.

An outcome has one table of marks, of roots of the batch and of earlier ones. `fold` groups each kind of them
by source and block, and what has no mark is acked. Roots of earlier batches may be in blocks of their own.

Source: docs/design/protocol.md, section 4 ("Wire", "Fine print"; order (a)).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from acker.config.settings import UNREACHABLE_MS, AckTopics
from acker.hot_paths import among, distinct
from acker.identity import I64, U64, WIRE_BLOCK_BITS, acker_partition, input_id_of, root_edges
from acker.kafka.port import Headers, Log, Outgoing, Producer
from acker.listing import and_more
from acker.root_sets.root_set import NO_ROOTS, RootSet
from acker.wire.codec import RECORD_BYTES_MAX, wire_codec
from acker.wire.events import (
    FIRST_EMISSION_BYTES,
    FIRST_EMISSIONS,
    TRACE_BYTES,
    TRACES,
    Acks,
    FailCause,
    Fails,
    SourceRun,
    pack_positions,
    pack_root_numbers,
    pack_values,
)
from acker.wire.lateness import MOVED_BY_MAX, Mover, TooLate, too_late_header
from acker.wire.passed_calls import passed_calls_header, read_passed_calls
from acker.wire.stacks import CauseKey, Stacks, key_of, stacks_header
from spout.planning.order import NotAcked
from spout.planning.plan import BatchPlan
from spout.publishing.fold import BatchOutcome, LateNote
from spout.publishing.root_marks import NO_MARKS, RootMark, RootMarks
from spout.tuples.failures import Cause

CAUSES_MAX = 256
"""Causes in one record; 256 messages of 500 bytes and 32,768 positions stay below 900,000 bytes."""

NOT_ACKED_MAX = 100_000
"""Roots of a batch that the planning process learns of one by one; of more, it waits for all verdicts."""

HELD_RUNS_MAX = 10_000
"""Runs of held roots of a batch that the planning process learns of; of more, all of it counts as held."""

HELD_LANE = "held"
"""What the name of a lane ends with whose records move the deadlines of what Spark's state holds."""

BATCH_SKIPPED = "BATCH_SKIPPED"
"""The error of roots whose batch the sink had written before; see `spout.skipped`."""

_NO_POSITIONS: I64 = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Publication:
    """The records of one batch. `fails` must be durable before the first of `acks` is sent.

    Attributes:
        held: they move the deadlines of roots that Spark's state holds, in a lane of their own.
        firsts: by source and block of some of `acks`, the positions of copies, and when their records were
            emitted first.
        traces: in the same way, positions of roots and the ids of their traces.
        too_late: by source and block of some of `acks`, what a watermark dropped of the batch.
        stacks: of the exceptions behind `fails`, by their causes.
        note: a header of some records of `acks`, or of `fails` where there is none: calls that passed.
    """

    fails: tuple[Fails, ...]
    acks: tuple[Acks, ...]
    firsts: Mapping[tuple[int, int], tuple[I64, I64]] = field(default_factory=dict)
    traces: Mapping[tuple[int, int], tuple[I64, I64]] = field(default_factory=dict)
    held: tuple[Acks, ...] = ()
    too_late: Mapping[tuple[int, int], TooLate] = field(default_factory=dict)
    stacks: Stacks = field(default_factory=dict)
    note: Headers = ()


class BatchLane(NamedTuple):
    """Who publishes: `name` is ``<query id>/<session>``, `seq` the micro-batch id."""

    name: str
    seq: int


def skipped_outcome(plan: BatchPlan, absent: Iterable[SourceRun] = ()) -> BatchOutcome:
    """Return the outcome of a batch that the sink skipped: every root that has a record is failed."""
    message = (
        "the sink skipped this batch: it had written it before, and its bolts may have done something else"
        " this time; or it had another checkpoint's batch under this id"
    )
    holes = RootSet.of_runs(absent)  # of several evaluations, between which records may have left the log
    records = RootSet.of_runs(plan.ranges) - holes
    cause = Cause.of("sink", BATCH_SKIPPED, message)
    marks = RootMarks.of_roots(RootMark.FAILED, records.each_root(), cause=cause)
    return BatchOutcome(plan, marks, tuple(holes.runs()))


def not_acked(outcome: BatchOutcome) -> Sequence[NotAcked] | None:
    """Return which roots of a batch that is read in order its publication does not ack.

    None: nobody knows their lines, since the sink skipped the batch, or some could not be read; or there are
    more than `NOT_ACKED_MAX`.
    """
    if not outcome.lined or outcome.stops_for_damage:
        return None
    roots = outcome.own(RootMark.OUTSTANDING, RootMark.FAILED).roots()
    if not roots:
        return []
    if len(roots) > NOT_ACKED_MAX:
        return None
    sources, positions = roots.each_root()
    indices = outcome.plan.index().find_roots(sources, positions)
    rows = np.concatenate([lined.rows for lined in outcome.lined])
    line_of = {index: (line, origin) for index, line, origin in rows[among(rows[:, 0], indices)].tolist()}
    named = zip(indices.tolist(), sources.tolist(), positions.tolist(), strict=True)
    none: tuple[int | None, int] = None, -1
    return [NotAcked(source, at, *line_of.get(index, none)) for index, source, at in named]


def held_runs(outcome: BatchOutcome) -> Sequence[SourceRun] | None:
    """Return which roots of its own a batch leaves in Spark's state; None: more runs than `HELD_RUNS_MAX`."""
    held = outcome.marks.of(RootMark.HELD).roots()
    return held.runs() if len(held.table) <= HELD_RUNS_MAX else None


def publication_of(
    outcome: BatchOutcome,
    lane: BatchLane,
    held_longer_ms: Mapping[int, int] = MappingProxyType({}),
    late: LateNote | None = None,
) -> Publication:
    """Write an outcome as records, ascending by source and block.

    Args:
        outcome: what became of the batch.
        lane: who publishes it.
        held_longer_ms: by input id, how much longer a root may stay open that Spark's state holds; 0, or no
            entry: no longer than others.
        late: what a watermark dropped; None: nothing.
    """
    failed_roots = outcome.marks.of(RootMark.FAILED).roots()
    first_emissions = outcome.marks.of(RootMark.FIRST_EMITTED).but(failed_roots).by_block()
    firsts = {block: (marks.positions, marks.values) for block, marks in first_emissions.items()}
    traced = outcome.marks.of(RootMark.TRACED).but(failed_roots).by_block()
    # a root has a row for each of the three numbers of its trace
    traces = {block: (marks.positions[::3], marks.values.reshape(-1, 3)) for block, marks in traced.items()}
    too_late = {} if late is None else _too_late(outcome, lane, late)
    fails, acks = fold(outcome, lane, noted=traces.keys() | too_late.keys())
    held = tuple(_held_acks(outcome, lane, held_longer_ms))
    stacks = {CauseKey.of(*raised.kind): raised.text for raised in outcome.raised}
    note = passed_calls_header(lane.name, lane.seq, outcome.passed)
    return Publication(fails, acks, firsts, traces, held, too_late, stacks, note)


def _too_late(outcome: BatchOutcome, lane: BatchLane, late: LateNote) -> dict[tuple[int, int], TooLate]:
    """Return what each block of a batch says of what a watermark dropped; the first one counts its rows.

    A block without such a root says it where rows were dropped: any of its records may have been among them.
    """
    late_roots = outcome.marks.of(RootMark.LATE).roots().by_block()
    emitted = RootSet.of_runs(outcome.plan.ranges).by_block() if late.rows else {}
    mover = late.mover or Mover(0, ())
    notes: dict[tuple[int, int], TooLate] = {}
    for block in sorted(late_roots.keys() | emitted.keys()):
        notes[block] = TooLate(
            outcome.plan.group,
            *lane,
            first=not notes,
            wall=late.wall_ms,
            watermark=late.watermark_ms,
            rows=late.rows,
            moved_at=mover.at_ms,
            moved_by=mover.runs[:MOVED_BY_MAX],
            roots=tuple(late_roots.get(block, NO_ROOTS).runs()),
            batch=tuple(emitted.get(block, NO_ROOTS).runs()),
        )
    return notes


def _held_acks(outcome: BatchOutcome, lane: BatchLane, longer_ms: Mapping[int, int]) -> Iterator[Acks]:
    """Yield the records that move the deadlines of what Spark's state holds, ascending by source and block.

    A deadline becomes `touched_at` and the timeout of the root. So a `touched_at` that lies `longer_ms`
    ahead gives the root so much more, by what every acker understands; once, when it is held, since a quiet
    topic has no batch that could do it again. A record has one `touched_at`, and roots of the same block may
    have had their timeout reset by a bolt: so these records are of a lane of their own.
    """
    plan = outcome.plan
    own_lane = lane._replace(name=f"{lane.name}/{HELD_LANE}")
    held, held_on = outcome.marks.of(RootMark.HELD), outcome.marks.of(RootMark.HELD_ON)
    # Roots of the batch itself have their whole timeout yet, so theirs moves only if it becomes longer.
    longer = [s for s in distinct(held.sources).tolist() if longer_ms.get(input_id_of(s), 0)]
    moved = RootMarks.together([held.at(np.isin(held.sources, longer)), held_on]).ascending()
    for (source, number), marks in moved.by_block().items():
        ahead_ms = longer_ms.get(input_id_of(source), 0)
        head = _head(plan, own_lane, source, number)
        touched = pack_positions(marks.positions)
        yield Acks(*head, (), b"", b"", (), touched, touched_at=plan.now + ahead_ms)


def fold(
    outcome: BatchOutcome, lane: BatchLane, noted: Collection[tuple[int, int]] = ()
) -> tuple[tuple[Fails, ...], tuple[Acks, ...]]:
    """Group the marks of a batch by source and block, and write each group as records, ascending.

    Args:
        noted: blocks, by source and number, that have an `Acks` though it may say nothing: a header does.
    """
    plan, marks = outcome.plan, outcome.marks
    failed, touched = marks.of(RootMark.FAILED), marks.of(RootMark.TOUCHED)
    outstanding, released = marks.of(RootMark.OUTSTANDING), marks.of(RootMark.RELEASED)
    planned, open_roots, failed_roots = RootSet.of_runs(plan.ranges), outstanding.roots(), failed.roots()
    whole, absent = _whole_and_absent(outcome, planned, failed_roots, open_roots)
    # a root that is acked whole has no timeout to reset
    reset = _not_failed(touched.but(planned - open_roots), failed_roots)

    planned_runs = planned.runs_by_block()
    # of most batches all is acked, and its runs are cut already
    whole_runs = planned_runs if whole is planned else whole.runs_by_block()
    absent_runs = absent.runs_by_block()
    failed_blocks = failed.ascending().by_block()
    outstanding_blocks = _not_failed(outstanding, failed_roots).ascending().by_block()
    released_blocks = _not_failed(released, failed_roots).ascending().by_block()
    reset_blocks = reset.ascending().by_block()

    fails: list[Fails] = []
    acks: list[Acks] = []
    for block in sorted({*planned_runs, *failed_blocks, *released_blocks, *reset_blocks}):
        source, number = block
        head = _head(plan, lane, source, number)
        if block in failed_blocks:
            fails.append(Fails(*head, _packed_causes(failed_blocks[block])))
        positions, values = _contributions(
            source, outstanding_blocks.get(block, NO_MARKS), released_blocks.get(block, NO_MARKS)
        )
        record = Acks(
            *head,
            runs=whole_runs.get(block, ()),
            positions=pack_positions(positions),
            values=pack_values(values),
            absent=absent_runs.get(block, ()),
            touched=pack_positions(reset_blocks.get(block, NO_MARKS).positions),
            touched_at=plan.now,
        )
        # what is all held, or all failed, has nothing else to publish
        if record.runs or record.positions or record.absent or record.touched or block in noted:
            acks.append(record)
    return tuple(fails), tuple(acks)


def _not_failed(marks: RootMarks, failed: RootSet) -> RootMarks:
    """Return the marks that may be acked: whatever else became of a root that failed, it is failed alone."""
    return marks.but(failed)


def _whole_and_absent(
    outcome: BatchOutcome, planned: RootSet, failed: RootSet, open_roots: RootSet
) -> tuple[RootSet, RootSet]:
    """Return the planned roots whose contribution is their root edge, and those without a record."""
    absent = RootSet.of_runs(outcome.absent)
    # One that failed in one evaluation may have left the log before the next: it is lost, not absent.
    return planned - absent - failed - open_roots, absent - failed


def _contributions(source: int, outstanding: RootMarks, released: RootMarks) -> tuple[I64, U64]:
    """Return the roots of one block to which the batch contributes another value than their root edge.

    Positions ascend, and no value is 0. A root of the batch itself lacks the edges that are outstanding, and
    one of an earlier batch gets those that were outstanding then.
    """
    positions = outstanding.positions
    values = root_edges(source, positions) ^ outstanding.edges
    if len(released):
        positions = np.concatenate([positions, released.positions])
        values = np.concatenate([values, released.edges])
        order = np.argsort(positions)
        positions, values = positions[order], values[order]
    if values.all():
        return positions, values
    is_contributed = values != 0
    return positions[is_contributed], values[is_contributed]


def _packed_causes(failed: RootMarks) -> tuple[FailCause, ...]:
    causes = merge_causes([(cause, marks.positions) for cause, marks in failed.by_cause()])
    return tuple(FailCause(*cause, pack_positions(positions)) for cause, positions in causes)


def _head(
    plan: BatchPlan, lane: BatchLane, source: int, number: int
) -> tuple[str, int, str, str, int, int, int]:
    """Return the first fields of the records of one block."""
    return *lane, plan.group, plan.session, plan.epoch, source, number


def merge_causes(causes: Sequence[tuple[Cause, I64]], limit: int = CAUSES_MAX) -> list[tuple[Cause, I64]]:
    """Bring causes down to a limit: more of one operator and error share an entry, "and n more, first: …".

    Returns them ascending, each with ascending positions.
    """
    ascending = sorted(causes, key=lambda pair: pair[0])
    if len(causes) <= limit:
        return ascending
    kinds = [list(same) for _, same in groupby(ascending, lambda pair: (pair[0].operator, pair[0].error))]
    share = limit // len(kinds)
    if not share:
        return [_shared([pair for kind in kinds for pair in kind])]
    merged: list[tuple[Cause, I64]] = []
    for kind in kinds:
        merged += kind if len(kind) <= share else [*kind[: share - 1], _shared(kind[share - 1 :])]
    return sorted(merged, key=lambda pair: pair[0])


def _shared(causes: Sequence[tuple[Cause, I64]]) -> tuple[Cause, I64]:
    first = causes[0][0]
    cause = Cause.of(first.operator, first.error, f"{and_more(len(causes) - 1)}, first: {first.message}")
    return cause, np.sort(np.concatenate([p for _, p in causes]))


def ack_headers(record: Acks, publication: Publication, value_bytes: int) -> Headers:
    """Say what came too late, and of as many roots as there is room for when they were emitted first, and
    their traces.
    """
    key, room = (record.source, record.block), RECORD_BYTES_MAX - value_bytes
    headers: list[tuple[str, bytes | None]] = []
    if (note := publication.too_late.get(key)) is not None:
        name, value = too_late_header(note)
        room -= len(value)
        headers.append((name, value))
    for name, named, size in (
        (FIRST_EMISSIONS, publication.firsts, FIRST_EMISSION_BYTES),
        (TRACES, publication.traces, TRACE_BYTES),
    ):
        at, values = named.get(key, (_NO_POSITIONS, _NO_POSITIONS))
        count = min(len(at), room // size)
        if count > 0:
            headers.append((name, pack_root_numbers(record.source, at[:count], values[:count])))
            room -= count * size
    return tuple(headers)


def _bytes_of(headers: Headers) -> int:
    return sum(len(value or b"") for _, value in headers)


def _fitting(headers: Headers, room: int) -> Headers:
    """Return headers where a record has room for them; else none: they decide nothing."""
    return headers if _bytes_of(headers) <= room else ()


def _acker_of(record: Acks | Fails, partitions: int) -> int:
    return acker_partition(record.source, record.block << WIRE_BLOCK_BITS, partitions)


def _noted_records(publication: Publication, partitions: int) -> set[int]:
    """Return the `id` of each record that gets the note of a batch; empty: it has none.

    For each acker partition that has a root of such a call it is the first record there, so that who follows
    one root finds the note beside its verdict. Where the batch has no record there, it is the first of all.
    No other one has it, since the acker passes on what each of them has.
    """
    records: Sequence[Acks | Fails] = publication.acks or publication.fails
    if not publication.note or not records:  # as of nearly every batch
        return set()
    note = read_passed_calls(publication.note)
    firsts: dict[int, Acks | Fails] = {}
    for record in records:
        firsts.setdefault(_acker_of(record, partitions), record)
    ackers = {
        acker_partition(run.source, block << WIRE_BLOCK_BITS, partitions)
        for call in (() if note is None else note.calls)
        for run in call.runs
        for block in range(run.start >> WIRE_BLOCK_BITS, ((run.end - 1) >> WIRE_BLOCK_BITS) + 1)
    }
    return {id(firsts[acker]) for acker in ackers if acker in firsts} or {id(records[0])}


class Publisher:
    """Publishes the batches of one stream."""

    def __init__(
        self, open_log: Callable[[], Log], topics: AckTopics, *, durable_ms: int = UNREACHABLE_MS
    ) -> None:
        """Prepare; the first batch opens the log."""
        self._durable_ms = durable_ms
        self._open_log = open_log
        self._topics = topics
        self._codec = wire_codec()
        self._log: Log | None = None
        self._producer: Producer | None = None

    def publish(self, publication: Publication, partitions: int) -> None:
        """Write a batch's records for N acker partitions, and wait until they are durable; safe to repeat."""
        if self._producer is None:
            self._log = self._open_log()
            self._producer = self._log.producer()
        producer = self._producer
        noted = _noted_records(publication, partitions)
        for fails in publication.fails:
            sent = self._outgoing(fails, partitions)
            keys = [key_of(cause.operator, cause.error, cause.message) for cause in fails.causes]
            room = RECORD_BYTES_MAX - len(sent.value or b"")
            note = _fitting(publication.note, room) if id(fails) in noted else ()
            stacks = stacks_header(keys, publication.stacks, room - _bytes_of(note))
            producer.send(sent._replace(headers=(*note, *stacks)))
        if publication.fails:
            producer.flush(self._durable_ms)
        for acks in publication.acks:
            sent = self._outgoing(acks, partitions)
            value_bytes = len(sent.value or b"")
            room = RECORD_BYTES_MAX - value_bytes
            note = _fitting(publication.note, room) if id(acks) in noted else ()
            others = ack_headers(acks, publication, value_bytes + _bytes_of(note))
            producer.send(sent._replace(headers=(*note, *others)))
        for acks in publication.held:
            producer.send(self._outgoing(acks, partitions))
        if publication.acks or publication.held:
            producer.flush(self._durable_ms)

    def _outgoing(self, record: Acks | Fails, partitions: int) -> Outgoing:
        topic = self._topics.fail if isinstance(record, Fails) else self._topics.ack
        return Outgoing(topic, _acker_of(record, partitions), self._codec.encode(record))

    def close(self) -> None:
        if self._producer is not None and self._log is not None:
            self._producer.close()
            self._log.close()
        self._producer = self._log = None
