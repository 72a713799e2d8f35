"""From the outcome of a micro-batch to records on the ack topics: the only place that acks and
fails.

One `Acks` and at most one `Fails` for each block of 32,768 positions of one source. Records are
canonical: everything ascending, every root whose contribution is its root edge in a run. So a batch
that is published again is recognised by its bytes.

An outcome has one table of marks, of roots of the batch and of earlier ones. What the records say
of them is cut once by source and block, and what has no mark is acked. Roots of earlier batches may
be in blocks of their own.

A *lane* is one series of numbered batches, of one session of a query: an acker applies each
number of it once. A *block* is 32,768 positions of one source, numbered from 0. What a batch has
XORed into the sum of a root is its *contribution*; a root of which all is acked contributes its
*root edge*, and is said to be *acked whole*. To *touch* a root is to begin its timeout anew.

Source: docs/design/protocol.md, section 4 ("Wire", "Fine print"; order (a)).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np

from acker.config.settings import UNREACHABLE_MS, AckTopics
from acker.hot_paths import among
from acker.identity import I64, WIRE_BLOCK_BITS, acker_partition, input_id_of
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
from spout.publishing.delayed import by_key
from spout.publishing.fold import BatchOutcome, LateNote, Missing
from spout.publishing.root_marks import NO_MARKS, RootMark, RootMarks
from spout.tuples.failures import Cause

CAUSES_MAX = 256
"""Causes in one record; 256 messages of 500 bytes and 32,768 positions stay below 900,000 bytes."""

NOT_ACKED_MAX = 100_000
"""Roots of a batch that the planning process learns of one by one; of more, it waits for all
verdicts."""

HELD_RUNS_MAX = 10_000
"""Runs of held roots of a batch that the planning process learns of; of more, all of it counts as
held."""

HELD_LANE = "held"
"""What the name of a lane ends with whose records move the deadlines of what Spark's state
holds."""

BATCH_SKIPPED = "BATCH_SKIPPED"
"""The error of roots whose batch the sink had written before; see `spout.skipped`."""

BlockKey = tuple[int, int]
"""A block of 32,768 positions: the source, and the number of the block in it."""

MarksByKind = Mapping[RootMark, Mapping[BlockKey, RootMarks]]
"""Marks by kind, then by block; a kind without any may be missing."""

_KINDS_IN_ACKS: Final = (
    RootMark.TOUCHED,
    RootMark.RELEASED,
    RootMark.OPEN,
    RootMark.FIRST_EMITTED,
    RootMark.TRACED,
)
"""The kinds of marks that `Acks` and their headers are made of."""


@dataclass(frozen=True, slots=True)
class Publication:
    """The records of one batch. `fails` must be durable before the first of `acks` is sent.

    Attributes:
        held: records that move the deadlines of roots that Spark's state holds, in a lane of their
            own.
        marks: what `acks` say of single roots; their headers say when copies were emitted first,
            and to which traces roots belong.
        too_late: by block, for some of `acks`: what a watermark dropped of the batch.
        stacks: of the exceptions behind `fails`, by their causes.
        note: the header about calls that passed when they were repeated, which some of `acks` get;
            of `fails`, if there are no `acks`. Empty: there is no such call.
    """

    fails: tuple[Fails, ...]
    acks: tuple[Acks, ...]
    marks: MarksByKind = field(default_factory=dict)
    held: tuple[Acks, ...] = ()
    too_late: Mapping[BlockKey, TooLate] = field(default_factory=dict)
    stacks: Stacks = field(default_factory=dict)
    note: Headers = ()


class BatchLane(NamedTuple):
    """The lane of a batch, ``<query id>/<session>``, and its number there, the micro-batch id."""

    name: str
    seq: int


def skipped_outcome(plan: BatchPlan, absent: RootSet = NO_ROOTS) -> BatchOutcome:
    """Return the outcome of a batch that the sink skipped: each root with a record is failed."""
    message = (
        "the sink skipped this batch: it had written it before, and its bolts may have done something else"
        " this time; or it had another checkpoint's batch under this id"
    )
    records = plan.roots() - absent
    cause = Cause.of("sink", BATCH_SKIPPED, message)
    marks = RootMarks.of_roots(RootMark.FAILED, records.each_root(), cause=cause)
    return BatchOutcome(plan, marks, Missing(absent))


def not_acked(outcome: BatchOutcome) -> Sequence[NotAcked] | None:
    """Return which roots of a batch that is read in order its publication does not ack.

    A *line* is the records of one partition that must be acked one after the other, as a hash of
    their key (`spout.planning.order`). Its *origin* orders a record in its line: the offset at
    which it was emitted first.

    None: nobody knows the lines of these roots, since the sink skipped the batch, or a part of it
    could not be read; or there are more than `NOT_ACKED_MAX`.
    """
    if not outcome.lined_records or outcome.stops_for_damage:
        return None
    roots = outcome.own_marks(RootMark.OPEN, RootMark.FAILED).roots()
    if not roots:
        return []
    if len(roots) > NOT_ACKED_MAX:
        return None
    sources, positions = roots.each_root()
    indices = outcome.plan.index().find_roots(sources, positions)
    line_and_origin_by_index: dict[int, tuple[int, int]] = {}
    for of_partition in outcome.lined_records:
        unacked = of_partition.at(among(of_partition.indices, indices))
        lines_and_origins = zip(unacked.lines.tolist(), unacked.origins.tolist(), strict=True)
        unacked_indices = unacked.indices.tolist()
        line_and_origin_by_index.update(zip(unacked_indices, lines_and_origins, strict=True))
    # what `NotAcked` says of a record that was emitted first in another partition
    in_no_line: tuple[int | None, int] = None, -1
    not_acked_roots: list[NotAcked] = []
    for index, source, position in zip(indices.tolist(), sources.tolist(), positions.tolist(), strict=True):
        line, origin = line_and_origin_by_index.get(index, in_no_line)
        not_acked_roots.append(NotAcked(source, position, line=line, origin=origin))
    return not_acked_roots


def held_runs(outcome: BatchOutcome) -> Sequence[SourceRun] | None:
    """Return the roots of its own that a batch leaves in Spark's state, as runs.

    None: there are more runs than `HELD_RUNS_MAX`.
    """
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
        held_longer_ms: by input id, how much longer a root may stay open that Spark's state holds;
            0, or no entry: no longer than others.
        late: what a watermark dropped; None: nothing.
    """
    marks = _marks_by_kind(outcome)
    too_late = {} if late is None else _too_late(outcome, lane, late)
    return Publication(
        fails=tuple(_fails(outcome, lane)),
        acks=tuple(_acks(outcome, lane, marks, too_late)),
        marks=marks,
        held=tuple(_held_acks(outcome, lane, held_longer_ms)),
        too_late=too_late,
        stacks={CauseKey.of(*raised.kind): raised.text for raised in outcome.raised},
        note=passed_calls_header(lane.name, lane.seq, outcome.passed),
    )


def _marks_by_kind(outcome: BatchOutcome) -> MarksByKind:
    """Return the marks that `Acks` and their headers are made of.

    Under `OPEN` are also those of released roots: all that is XORed into sums, ascending.
    """
    marks = outcome.marks.of(*_KINDS_IN_ACKS)
    if not marks:  # as of most batches
        return {}
    # `Fails` alone name a failed root, whatever else became of it
    failed_roots = _failed_roots(outcome)
    # a root that is acked whole has no timeout to reset
    not_open = outcome.plan.roots() - marks.of(RootMark.OPEN).roots()
    touched = marks.of(RootMark.TOUCHED).without(not_open).without(failed_roots)
    # to XOR 0 into a sum changes nothing
    released = marks.of(RootMark.RELEASED).with_values().without(failed_roots)
    contributed = marks.of(RootMark.OPEN).with_values().without(failed_roots)
    contributed_by_block = contributed.ascending().by_block()
    # few blocks have rows of both kinds: only these are sorted once more
    for block, released_marks in released.ascending().by_block().items():
        open_marks = contributed_by_block.get(block)
        if open_marks is not None:
            released_marks = RootMarks.together([open_marks, released_marks]).ascending()
        contributed_by_block[block] = released_marks
    return {
        RootMark.TOUCHED: touched.ascending().by_block(),
        RootMark.OPEN: contributed_by_block,
        RootMark.FIRST_EMITTED: marks.of(RootMark.FIRST_EMITTED).without(failed_roots).by_block(),
        RootMark.TRACED: marks.of(RootMark.TRACED).without(failed_roots).by_block(),
    }


def _marks_in_block(marks: MarksByKind, kind: RootMark, block: BlockKey) -> RootMarks:
    """Return the marks of a kind in a block; often none."""
    return marks.get(kind, {}).get(block, NO_MARKS)


def _failed_roots(outcome: BatchOutcome) -> RootSet:
    """Return the roots that no `Acks` may name: failed ones, whatever else became of them."""
    return outcome.marks.of(RootMark.FAILED).roots()


def _too_late(outcome: BatchOutcome, lane: BatchLane, late: LateNote) -> dict[BlockKey, TooLate]:
    """Return by block, ascending, what the records of a batch say of what a watermark dropped.

    A block has such a note if a root of it is late. If Spark dropped rows of which nobody knows the
    records, each block has one, since any record of the batch may have been among them. Each note
    has the number of these rows; they are counted by the one that is marked as the `first`.
    """
    late_roots = outcome.marks.of(RootMark.LATE).roots().by_block()
    suspects = outcome.plan.roots().by_block() if late.row_count else {}
    mover = late.mover or Mover(0, ())
    notes: dict[BlockKey, TooLate] = {}
    for block in sorted(late_roots.keys() | suspects.keys()):
        notes[block] = TooLate(
            outcome.plan.group,
            *lane,
            first=not notes,
            wall=late.wall_ms,
            watermark=late.watermark_ms,
            rows=late.row_count,
            moved_at=mover.at_ms,
            moved_by=mover.runs[:MOVED_BY_MAX],
            roots=tuple(late_roots.get(block, NO_ROOTS).runs()),
            batch=tuple(suspects.get(block, NO_ROOTS).runs()),
        )
    return notes


def _held_acks(
    outcome: BatchOutcome, lane: BatchLane, longer_ms_by_input: Mapping[int, int]
) -> Iterator[Acks]:
    """Yield the records that move the deadlines of held roots, ascending by source and block.

    An acker sets the deadline of a touched root to `touched_at` plus the root's timeout. So a
    `touched_at` that lies 60 s ahead gives the root 60 s more, also by an acker that knows nothing
    of what is held. That is done once, when the tuple is held, since a quiet topic has no batch
    that could do it again.

    A record has one `touched_at`, and a bolt may have reset the timeout of other roots of the
    block. So these records are of a lane of their own.
    """
    lane_of_held = lane._replace(name=f"{lane.name}/{HELD_LANE}")
    held = outcome.marks.of(RootMark.HELD, RootMark.HELD_ON).ascending()
    for block, marks in held.by_block().items():
        source, _ = block
        ahead_ms = longer_ms_by_input.get(input_id_of(source), 0)
        # roots of the batch itself have their whole timeout yet, so theirs moves only if it becomes
        # longer
        touched = marks if ahead_ms else marks.of(RootMark.HELD_ON)
        if not touched:
            continue
        yield Acks(
            *_first_fields(outcome, lane_of_held, block),
            runs=(),
            positions=b"",
            values=b"",
            absent=(),
            touched=pack_positions(touched.positions),
            touched_at=outcome.plan.now + ahead_ms,
        )


def _fails(outcome: BatchOutcome, lane: BatchLane) -> Iterator[Fails]:
    """Yield the records of failed roots, ascending by source and block."""
    failed = outcome.marks.of(RootMark.FAILED).ascending()
    for block, marks in failed.by_block().items():
        yield Fails(*_first_fields(outcome, lane, block), _packed_causes(marks))


def _acks(
    outcome: BatchOutcome,
    lane: BatchLane,
    marks: MarksByKind,
    too_late: Mapping[BlockKey, TooLate],
) -> Iterator[Acks]:
    """Yield the records of roots that did not fail, ascending by source and block.

    A block that has a trace, or is `too_late`, gets an `Acks` even where it says nothing, since its
    header does.
    """
    failed_roots = _failed_roots(outcome)
    open_roots = outcome.marks.of(RootMark.OPEN).roots()
    # A position without a record is absent. One that failed in one evaluation may have left the log
    # before the next: it is lost, not absent.
    absent = outcome.missing.absent - failed_roots
    acked_whole = outcome.plan.roots() - absent - failed_roots - open_roots
    acked_blocks = acked_whole.runs_by_block()
    absent_blocks = absent.runs_by_block()
    blocks = {*acked_blocks, *absent_blocks, *too_late}
    for kind in (RootMark.OPEN, RootMark.TOUCHED, RootMark.TRACED):
        blocks.update(marks.get(kind, {}))
    for block in sorted(blocks):
        contributed = _marks_in_block(marks, RootMark.OPEN, block)
        touched = _marks_in_block(marks, RootMark.TOUCHED, block)
        yield Acks(
            *_first_fields(outcome, lane, block),
            runs=acked_blocks.get(block, ()),
            positions=pack_positions(contributed.positions),
            values=pack_values(contributed.edges),
            absent=absent_blocks.get(block, ()),
            touched=pack_positions(touched.positions),
            touched_at=outcome.plan.now,
        )


def _packed_causes(failed: RootMarks) -> tuple[FailCause, ...]:
    """Return the causes of failed roots of one block, at most `CAUSES_MAX`, with positions."""
    causes = merge_causes([(cause, marks.positions) for cause, marks in failed.by_cause()])
    return tuple(FailCause(*cause, pack_positions(positions)) for cause, positions in causes)


def _first_fields(
    outcome: BatchOutcome, lane: BatchLane, block: BlockKey
) -> tuple[str, int, str, str, int, int, int]:
    """Return the fields with which `Acks` and `Fails` of a block begin, in their order."""
    return *lane, outcome.plan.group, outcome.plan.session, outcome.plan.epoch, *block


def merge_causes(causes: Sequence[tuple[Cause, I64]], limit: int = CAUSES_MAX) -> list[tuple[Cause, I64]]:
    """Return at most `limit` causes, ascending, each with its positions, ascending.

    If there are more, each kind, one operator and error, gets as many entries. With 256 entries for
    3 kinds, a kind gets 85: of more causes it keeps the first 84, and the others get one entry
    together, "and n more, first: …". If there are more kinds than entries, one entry is for all.
    """
    ascending = sorted(causes, key=_cause_of)
    if len(causes) <= limit:
        return ascending
    causes_by_kind = by_key(
        ((cause.operator, cause.error), (cause, positions)) for cause, positions in ascending
    )
    entries_of_kind = limit // len(causes_by_kind)
    if not entries_of_kind:
        return [_merged_cause(ascending)]
    merged: list[tuple[Cause, I64]] = []
    for causes_of_kind in causes_by_kind.values():
        if len(causes_of_kind) <= entries_of_kind:
            merged += causes_of_kind
        else:
            # the last entry is for all the others
            merged += causes_of_kind[: entries_of_kind - 1]
            merged.append(_merged_cause(causes_of_kind[entries_of_kind - 1 :]))
    return sorted(merged, key=_cause_of)


def _cause_of(cause_and_positions: tuple[Cause, I64]) -> Cause:
    cause, _ = cause_and_positions
    return cause


def _merged_cause(causes: Sequence[tuple[Cause, I64]]) -> tuple[Cause, I64]:
    """Return one cause for several, called after the first of them, with the positions of all."""
    first_cause = _cause_of(causes[0])
    message = f"{and_more(len(causes) - 1)}, first: {first_cause.message}"
    positions = np.sort(np.concatenate([positions for _, positions in causes]))
    return Cause.of(first_cause.operator, first_cause.error, message), positions


def ack_headers(record: Acks, publication: Publication, value_bytes: int) -> Headers:
    """Return headers about the roots of a record that takes `value_bytes` already.

    They say what came too late; then when roots were emitted first, and the traces of roots, each
    of as many roots as the record has room for.
    """
    block = record.source, record.block
    room_bytes = RECORD_BYTES_MAX - value_bytes
    headers: list[tuple[str, bytes | None]] = []
    too_late = publication.too_late.get(block)
    if too_late is not None:
        name, value = too_late_header(too_late)
        room_bytes -= len(value)
        headers.append((name, value))
    # a trace has three rows in succession, one for each of its numbers
    for name, kind, rows_of_root, root_bytes in (
        (FIRST_EMISSIONS, RootMark.FIRST_EMITTED, 1, FIRST_EMISSION_BYTES),
        (TRACES, RootMark.TRACED, 3, TRACE_BYTES),
    ):
        noted = _marks_in_block(publication.marks, kind, block)
        # `room_bytes` is below 0 if what came too late took more than there was room for
        count = min(len(noted) // rows_of_root, room_bytes // root_bytes)
        if count > 0:
            noted = noted.at(slice(count * rows_of_root))
            packed = pack_root_numbers(record.source, noted.positions[::rows_of_root], noted.values)
            headers.append((name, packed))
            room_bytes -= count * root_bytes
    return tuple(headers)


def _bytes_of(headers: Headers) -> int:
    """Return how many bytes the values of headers have."""
    return sum(len(value or b"") for _, value in headers)


def _fitting(headers: Headers, room_bytes: int) -> Headers:
    """Return headers if they have room; else none: no verdict depends on them."""
    return headers if _bytes_of(headers) <= room_bytes else ()


def _acker_of(record: Acks | Fails, partitions: int) -> int:
    """Return the acker partition that has a record's block; `partitions`: how many there are."""
    return acker_partition(record.source, record.block << WIRE_BLOCK_BITS, partitions)


def _ids_of_noted_records(publication: Publication, partitions: int) -> set[int]:
    """Return the Python `id` of each record that gets the note of passed calls; none without a note.

    Of each acker partition that has a root of such a call, the first record gets it, so that
    whoever follows a root finds the note beside its verdict. If the batch has no record in any of
    them, the first record of all gets it. No further one does, since an acker passes on each note
    that it reads.
    """
    records: Sequence[Acks | Fails] = publication.acks or publication.fails
    if not publication.note or not records:  # as of nearly every batch
        return set()
    note = read_passed_calls(publication.note)
    calls = () if note is None else note.calls
    first_record_by_acker: dict[int, Acks | Fails] = {}
    for record in records:
        first_record_by_acker.setdefault(_acker_of(record, partitions), record)
    ackers_with_roots: set[int] = set()
    for call in calls:
        for run in call.runs:
            ackers_with_roots |= _ackers_of(run, partitions)
    noted_records: list[Acks | Fails] = []
    for acker, record in first_record_by_acker.items():
        if acker in ackers_with_roots:
            noted_records.append(record)
    return set(map(id, noted_records or records[:1]))


def _ackers_of(run: SourceRun, partitions: int) -> set[int]:
    """Return which of the acker partitions, `partitions` in number, have the blocks of a run."""
    first_block = run.start >> WIRE_BLOCK_BITS
    last_block = (run.end - 1) >> WIRE_BLOCK_BITS
    return {
        acker_partition(run.source, block << WIRE_BLOCK_BITS, partitions)
        for block in range(first_block, last_block + 1)
    }


class PublicationRecords(NamedTuple):
    """The records of one batch; `fails` must be durable before the first of `acks` is sent."""

    fails: tuple[Outgoing, ...]
    acks: tuple[Outgoing, ...]


def ack_records(publication: Publication, topics: AckTopics, partitions: int) -> PublicationRecords:
    """Return what goes to the ack topics, with its headers.

    `partitions`: how many acker partitions there are.
    """
    codec = wire_codec()
    # by Python's `id`: who gets the note of passed calls
    noted_ids = _ids_of_noted_records(publication, partitions)
    fails: list[Outgoing] = []
    for record in publication.fails:
        value = codec.encode(record)
        room_bytes = RECORD_BYTES_MAX - len(value)
        note = _fitting(publication.note, room_bytes) if id(record) in noted_ids else ()
        keys = [key_of(cause.operator, cause.error, cause.message) for cause in record.causes]
        stacks = stacks_header(keys, publication.stacks, room_bytes - _bytes_of(note))
        acker = _acker_of(record, partitions)
        fails.append(Outgoing(topics.fail, acker, value, headers=(*note, *stacks)))
    acks: list[Outgoing] = []
    for acked in publication.acks:
        value = codec.encode(acked)
        room_bytes = RECORD_BYTES_MAX - len(value)
        note = _fitting(publication.note, room_bytes) if id(acked) in noted_ids else ()
        root_headers = ack_headers(acked, publication, len(value) + _bytes_of(note))
        acker = _acker_of(acked, partitions)
        acks.append(Outgoing(topics.ack, acker, value, headers=(*note, *root_headers)))
    for moved in publication.held:  # behind the acks, without headers
        acker = _acker_of(moved, partitions)
        acks.append(Outgoing(topics.ack, acker, codec.encode(moved)))
    return PublicationRecords(tuple(fails), tuple(acks))


class Publisher:
    """Publishes the batches of one stream.

    Attributes:
        topics: names of the ack topics.
    """

    def __init__(
        self, open_log: Callable[[], Log], topics: AckTopics, *, durable_ms: int = UNREACHABLE_MS
    ) -> None:
        """Prepare; the first batch opens the log.

        Args:
            open_log: opens the log of the ack topics, which `close` closes.
            topics: names of the ack topics.
            durable_ms: how long `publish` waits each time until the brokers have the records.
        """
        self.topics = topics
        self._open_log = open_log
        self._durable_ms = durable_ms
        # both None until the first batch, and again after `close`
        self._log: Log | None = None
        self._producer: Producer | None = None

    def publish(self, publication: Publication, partitions: int) -> None:
        """Write a batch's records, and wait until they are durable; safe to repeat.

        `partitions`: how many acker partitions there are.
        """
        self.write(ack_records(publication, self.topics, partitions))

    def write(self, records: PublicationRecords) -> None:
        """Write the records of a publication, and wait until they are durable; safe to repeat."""
        if self._producer is None:
            self._log = self._open_log()
            self._producer = self._log.producer()
        producer = self._producer
        for record in records.fails:
            producer.send(record)
        # no ack is sent before the fails are durable: a crash in between must not ack half of a
        # tree
        if records.fails:
            producer.flush(self._durable_ms)
        for record in records.acks:
            producer.send(record)
        if records.acks:
            producer.flush(self._durable_ms)

    def close(self) -> None:
        """Close the log and its producer, if they are open; the next batch opens them anew."""
        if self._producer is not None and self._log is not None:
            self._producer.close()
            self._log.close()
        self._producer = self._log = None
