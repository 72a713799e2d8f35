"""From the outcome of a micro-batch to records on the ack topics: the only place that acks and fails.

One `Acks` and at most one `Fails` for each block of 32,768 positions of one source. Records are canonical:
everything ascending, every root whose contribution is its root edge in a run. So a batch that is published
again is recognised by its bytes.

What tasks say of roots names them by their indices in the plan. Each kind becomes positions once, in their
order, so that a block is a slice of it. What a batch contributes to roots of earlier batches is in positions
already, and may be in blocks of its own.

Source: docs/design/protocol.md, section 4 ("Wire", "Fine print"; order (a)).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from acker.config.settings import UNREACHABLE_MS, AckTopics
from acker.hot_paths import among
from acker.identity import I64, U64, WIRE_BLOCK_BITS, acker_partition, input_id_of, root_edges
from acker.kafka.port import Headers, Log, Outgoing, Producer
from acker.listing import and_more
from acker.root_sets.numbering import RootNumbers
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
    PositionRun,
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
from spout.publishing.delayed import Older, RootPositions, by_key
from spout.publishing.fold import BatchOutcome, LateNote
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
_NO_VALUES: U64 = np.empty(0, np.uint64)
_NOWHERE = slice(0)


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
    left = np.ones(plan.count, np.bool_)
    index = plan.index()
    for source, start, end in holes.runs():
        first = int(index.of(source, np.array([start]))[0])
        left[first : first + end - start] = False
    return BatchOutcome(
        plan, ((Cause.of("sink", BATCH_SKIPPED, message), np.flatnonzero(left)),), tuple(holes.runs())
    )


def not_acked(outcome: BatchOutcome) -> Sequence[NotAcked] | None:
    """Return which roots of a batch that is read in order its publication does not ack.

    None: nobody knows their lines, since the sink skipped the batch, or some could not be read; or there are
    more than `NOT_ACKED_MAX`.
    """
    if not outcome.lined or outcome.stops_for_damage:
        return None
    roots = np.unique(np.concatenate([outcome.partial, *(indices for _, indices in outcome.failed)]))
    if not len(roots):
        return []
    if len(roots) > NOT_ACKED_MAX:
        return None
    rows = np.concatenate([lined.rows for lined in outcome.lined])
    line_of = {index: (line, origin) for index, line, origin in rows[among(rows[:, 0], roots)].tolist()}
    places = _places(outcome.plan, roots)
    named = zip(roots.tolist(), places.sources.tolist(), places.positions.tolist(), strict=True)
    none: tuple[int | None, int] = None, -1
    return [NotAcked(source, at, *line_of.get(root, none)) for root, source, at in named]


def held_runs(outcome: BatchOutcome) -> Sequence[SourceRun] | None:
    """Return which roots of its own a batch leaves in Spark's state; None: more runs than `HELD_RUNS_MAX`."""
    held = _roots(outcome.plan, outcome.held)
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
    fails: list[Fails] = []
    acks: list[Acks] = []
    firsts = _by_block(outcome, *outcome.firsts)
    traces = _by_block(outcome, *outcome.traces)
    too_late = {} if late is None else _too_late(outcome, lane, late)
    for block in _blocks_of(outcome):
        if block.causes:
            fails.append(_fails(block, outcome.plan, lane))
        record = _acks(block, outcome.plan, lane)
        # what is all held, or all failed, has nothing else to publish
        is_noted = any((block.source, block.number) in notes for notes in (traces, too_late))
        if record.runs or record.positions or record.absent or record.touched or is_noted:
            acks.append(record)
    held = tuple(_held_acks(outcome, lane, held_longer_ms))
    stacks = {CauseKey.of(*raised.kind): raised.text for raised in outcome.raised}
    note = passed_calls_header(lane.name, lane.seq, outcome.passed)
    return Publication(tuple(fails), tuple(acks), firsts, traces, held, too_late, stacks, note)


def _too_late(outcome: BatchOutcome, lane: BatchLane, late: LateNote) -> dict[tuple[int, int], TooLate]:
    """Return what each block of a batch says of what a watermark dropped; the first one counts its rows.

    A block without such a root says it where rows were dropped: any of its records may have been among them.
    """
    late_roots = _roots(outcome.plan, outcome.late_roots).by_block()
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
    for source, held in sorted(_held_positions(outcome, longer_ms).items()):
        ahead_ms = longer_ms.get(input_id_of(source), 0)
        for number, here in _cut(held).items():
            head = _head(_Block(source, number), plan, own_lane)
            touched = pack_positions(held[here])
            yield Acks(*head, (), b"", b"", (), touched, touched_at=plan.now + ahead_ms)


def _held_positions(outcome: BatchOutcome, longer_ms: Mapping[int, int]) -> dict[int, I64]:
    """Return the positions, ascending, of roots whose deadline moves since the state holds them, by source.

    Roots of the batch itself have their whole timeout yet, so theirs moves only if it becomes longer.
    """
    found = dict(outcome.older.held_on)
    own = _places(outcome.plan, outcome.held)
    for source, rows in own.by_source():
        if longer_ms.get(input_id_of(source), 0):
            older = found.get(source, _NO_POSITIONS)
            found[source] = np.sort(np.concatenate([older, own.positions[rows]]))
    return found


def _by_block(
    outcome: BatchOutcome, places: RootPositions, values: I64
) -> dict[tuple[int, int], tuple[I64, I64]]:
    """Return by source and block those roots of a batch that it does not fail, each with its value."""
    found: dict[tuple[int, int], tuple[I64, I64]] = {}
    if not len(values):
        return found
    failed = np.concatenate([_NO_POSITIONS, *(indices for _, indices in outcome.failed)])
    index = outcome.plan.index()
    for source, every in places.by_source():
        rows = every[~np.isin(index.of(source, places.positions[every]), failed)]
        blocks = places.positions[rows] >> WIRE_BLOCK_BITS
        for block in np.unique(blocks).tolist():
            here = rows[blocks == block]
            found[source, block] = places.positions[here], values[here]
    return found


def _acks(block: _Block, plan: BatchPlan, lane: BatchLane) -> Acks:
    failed = [positions for _, positions in block.causes]
    taken = np.concatenate([_NO_POSITIONS, *failed])
    at, value = block.at, block.values
    if failed:
        kept = ~np.isin(at, taken)
        at, value = at[kept], value[kept]
    if not value.all():
        at, value = at[value != 0], value[value != 0]
    return Acks(
        *_head(block, plan, lane),
        runs=block.runs,
        positions=pack_positions(at),
        values=pack_values(value),
        absent=block.absent,
        touched=pack_positions(block.touched[~np.isin(block.touched, taken)]),
        touched_at=plan.now,
    )


def _fails(block: _Block, plan: BatchPlan, lane: BatchLane) -> Fails:
    causes = merge_causes(block.causes)
    packed = tuple(FailCause(*cause, pack_positions(positions)) for cause, positions in causes)
    return Fails(*_head(block, plan, lane), packed)


def _head(block: _Block, plan: BatchPlan, lane: BatchLane) -> tuple[str, int, str, str, int, int, int]:
    return *lane, plan.group, plan.session, plan.epoch, block.source, block.number


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


@dataclass(frozen=True, slots=True)
class _Block:
    """What an outcome says of one block, in positions, ascending.

    `runs` have the roots whose contribution is their root edge. `at` are those with another one, in `values`,
    which may have failed as well.
    """

    source: int
    number: int
    runs: tuple[PositionRun, ...] = ()
    causes: tuple[tuple[Cause, I64], ...] = ()
    absent: tuple[PositionRun, ...] = ()
    at: I64 = field(default_factory=_NO_POSITIONS.copy)
    values: U64 = field(default_factory=_NO_VALUES.copy)
    touched: I64 = field(default_factory=_NO_POSITIONS.copy)


def _blocks_of(outcome: BatchOutcome) -> Iterator[_Block]:
    own = {(block.source, block.number): block for block in _own_blocks(outcome)}
    older = {(block.source, block.number): block for block in _older_blocks(outcome.older)}
    for key in sorted(own.keys() | older.keys()):
        both = key in own and key in older
        yield _joined(own[key], older[key]) if both else own.get(key) or older[key]


def _own_blocks(outcome: BatchOutcome) -> Iterator[_Block]:
    planned = RootSet.of_runs(outcome.plan.ranges)
    numbers = RootNumbers(planned)
    failed_indices, cause_numbers = _flat(outcome.failed)
    reset = outcome.touched[among(outcome.touched, outcome.partial)]
    failed = RootPositions(*numbers.roots(failed_indices))
    partial = RootPositions(*numbers.roots(outcome.partial))
    touched = RootPositions(*numbers.roots(reset))
    failed_rows, partial_rows, touched_rows = (roots.rows_by_block() for roots in (failed, partial, touched))
    failed_roots, partial_roots = RootSet.of_positions(*failed), RootSet.of_positions(*partial)
    whole, absent = _whole_and_absent(outcome, planned, failed_roots, partial_roots)
    planned_runs = planned.runs_by_block()
    # of most batches all is acked, and its runs are cut already
    whole_runs = planned_runs if whole is planned else whole.runs_by_block()
    absent_runs = absent.runs_by_block()
    for key in planned_runs:
        source, block = key
        fails, others = failed_rows.get(key, _NOWHERE), partial_rows.get(key, _NOWHERE)
        at = partial.positions[others]
        yield _Block(
            source,
            block,
            whole_runs.get(key, ()),
            _causes(outcome, failed.positions[fails], cause_numbers[fails]),
            absent_runs.get(key, ()),
            at,
            root_edges(source, at) ^ outcome.residual[others],
            touched.positions[touched_rows.get(key, _NOWHERE)],
        )


def _whole_and_absent(
    outcome: BatchOutcome, planned: RootSet, failed: RootSet, partial: RootSet
) -> tuple[RootSet, RootSet]:
    """Return the planned roots whose contribution is their root edge, and those without a record."""
    absent = RootSet.of_runs(outcome.absent)
    # One that failed in one evaluation may have left the log before the next: it is lost, not absent.
    return planned - absent - failed - partial, absent - failed


def _places(plan: BatchPlan, indices: I64) -> RootPositions:
    """Return the places of roots of the plan, by their indices."""
    if not len(indices):  # as of most kinds of roots in most batches: no index is built
        return RootPositions.together(())
    return RootPositions(*plan.index().roots(indices))


def _roots(plan: BatchPlan, indices: I64) -> RootSet:
    return RootSet.of_positions(*_places(plan, indices))


def _older_blocks(older: Older) -> Iterator[_Block]:
    for source in {*older.acked, *older.touched, *(each for of in older.failed.values() for each in of)}:
        at, values = older.acked.get(source, (_NO_POSITIONS, _NO_VALUES))
        failed = [(cause, found[source]) for cause, found in older.failed.items() if source in found]
        touched = older.touched.get(source, _NO_POSITIONS)
        parts = [(cause, every, _cut(every)) for cause, every in failed]
        at_of, touched_of = _cut(at), _cut(touched)
        for number in sorted({*at_of, *touched_of, *(each for _, _, cuts in parts for each in cuts)}):
            here = at_of.get(number, _NOWHERE)
            causes = tuple((cause, every[cuts[number]]) for cause, every, cuts in parts if number in cuts)
            reset = touched[touched_of.get(number, _NOWHERE)]
            yield _Block(source, number, causes=causes, at=at[here], values=values[here], touched=reset)


def _cut(positions: I64) -> dict[int, slice]:
    """Return which of ascending positions are in each block."""
    blocks = positions >> WIRE_BLOCK_BITS
    starts = np.flatnonzero(np.diff(blocks, prepend=-1))
    numbers, bounds = blocks[starts].tolist(), [*starts.tolist(), len(positions)]
    return {number: slice(*ends) for number, ends in zip(numbers, pairwise(bounds), strict=True)}


def _joined(own: _Block, older: _Block) -> _Block:
    causes = by_key((*own.causes, *older.causes))
    at, values = np.concatenate([own.at, older.at]), np.concatenate([own.values, older.values])
    order = np.argsort(at)
    return _Block(
        own.source,
        own.number,
        own.runs,
        tuple((cause, np.sort(np.concatenate(found))) for cause, found in causes.items()),
        own.absent,
        at[order],
        values[order],
        np.sort(np.concatenate([own.touched, older.touched])),
    )


def _flat(failed: Sequence[tuple[Cause, I64]]) -> tuple[I64, I64]:
    """Return all failed indices, ascending, and for each the number of its cause."""
    every = np.concatenate([_NO_POSITIONS, *(indices for _, indices in failed)])
    number = np.repeat(np.arange(len(failed)), [len(indices) for _, indices in failed])
    order = np.argsort(every, kind="stable")
    return every[order], number[order]


def _causes(outcome: BatchOutcome, positions: I64, number: I64) -> tuple[tuple[Cause, I64], ...]:
    if not len(positions):
        return ()
    order = np.argsort(number, kind="stable")
    named, firsts = np.unique(number[order], return_index=True)
    parts = np.split(positions[order], firsts[1:])
    return tuple((outcome.failed[n][0], part) for n, part in zip(named.tolist(), parts, strict=True))


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
