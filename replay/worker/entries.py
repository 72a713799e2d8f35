"""Reads the entries of `_ack_due`: all of them for a new owner of the partition, later those that are due.

An *entry* is the record by which a root waits. A new owner decodes only its due
time; the rest is decoded when it is due.

Only replay workers may write to `_ack_due`. If there is garbage under a root's
key, compaction will sooner or later remove the entry that a worker wrote
before it. So a new owner of the partition reads the topic once more and writes
that entry again while it is still there. If no sound entry is left, the root
becomes a dead letter without payload, since its topic id and attempt are lost:
one dead letter too many is better than a record that is lost silently. A key
that is not of a root of a tracked input is ignored.

Source: docs/design/protocol.md, section 3 rule 5 and section 5.4.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, assert_never

from acker.errors import CodecError, Damaged, DataLoss, UnknownVersion
from acker.identity import Root, acker_partition, offset_of, partition_of
from acker.kafka.port import Outgoing, Record, TopicPartition
from acker.service.passed_over import DAMAGE_CURE, read_ack_topic
from acker.wire.checks import wrong_source
from acker.wire.clusters import require_cluster
from acker.wire.stacks import read_stack
from replay.policy.disposition import DeadReason
from replay.records.due import Due, Pause, Progress, parse_root_key, root_key
from replay.records.due_fold import DueFold, DueStep, Flawed, due_ms_of, of_roots, whole_entry
from replay.records.headers import RecordPlace, location
from replay.records.places import topic_of
from replay.worker.fetch import Absence, cannot_be_read
from replay.worker.waiting import DueTable
from replay.worker.worker import Worker, require_newer_passed_over

MENDS_MAX = 10_000
"""So many flawed keys are mended at once; further ones are reported, and the next owner mends them."""


class Mend(NamedTuple):
    """What to write under the key of a root whose last record is flawed.

    Attributes:
        name: of the root, as people read it.
        entry: the one that is written; None: a tombstone is.
        written: the record.
    """

    root: Root
    name: str
    entry: Due | None
    written: Outgoing


class Restored(NamedTuple):
    """The contents of a partition of `_ack_due`.

    Attributes:
        table: the roots that wait, except those in `mends`.
        progress: how far the verdicts are accepted; None: none ever was.
        roots_past_progress: roots with an entry or a tombstone behind the
            progress. They are accepted, too, though it may not say so: a
            transaction was cut. (Of an entry that has ended, compaction leaves
            only the tombstone.)
        mends: what to write in place of flawed records.
        pauses: of paused inputs, by an input's id.
    """

    table: DueTable
    progress: Progress | None
    roots_past_progress: Collection[Root]
    mends: Sequence[Mend]
    pauses: Mapping[int, Pause]


def restore(worker: Worker, due_partition: TopicPartition) -> Restored:
    """Read a partition of `_ack_due` to its stable end; the last record of each key counts.

    Flawed records are reported.

    Raises `Disagreement`: a record was written in another cluster, where it is
    about other records.
    """
    own_cluster = worker.log.cluster_id()
    restored_roots = _RestoredRoots()
    on_newer = partial(require_newer_passed_over, worker.log)
    fold = DueFold(due_ms_of, restored_roots, on_newer=on_newer)
    for record in _stored_records(worker, due_partition):
        require_cluster(record.place, record.headers, record.value, own_cluster)
        meaning = fold.put(record)  # calls `restored_roots` for an entry or a tombstone
        match meaning:
            case DueStep() | Pause():
                pass  # `put` or `end` of `restored_roots` was called, or the fold keeps the pause
            case Progress():
                # only what comes behind the last one counts
                restored_roots.roots_past_progress.clear()
            case Flawed(why, root):
                worker.report_undecodable(*due_partition, record.offset, why)
                # more than that would take too much memory; the next owner mends
                # the rest
                if root is not None and len(restored_roots.flawed_offset_by_root) < MENDS_MAX:
                    restored_roots.flawed_offset_by_root[root] = record.offset
            case _:
                assert_never(meaning)
    flawed_offset_by_root = restored_roots.flawed_offset_by_root
    mends: Sequence[Mend] = ()
    if flawed_offset_by_root:
        mends = _build_mends(worker, due_partition, flawed_offset_by_root)
    for mend in mends:
        # until its new entry is written it must not be due;
        # `VerdictPartition._mend_entries` adds it then
        restored_roots.table.remove(mend.root, flawed_offset_by_root[mend.root])
    progress = fold.progress.get(due_partition.partition)
    return Restored(
        restored_roots.table,
        progress,
        restored_roots.roots_past_progress,
        mends,
        fold.paused(),
    )


class _RestoredRoots:
    """What a new owner remembers of each root; `DueFold` calls `put` and `end`.

    Attributes:
        table: those that wait.
        roots_past_progress: those with an entry or a tombstone behind the last
            progress.
        flawed_offset_by_root: of each root whose last record is flawed, the
            offset of that.
    """

    def __init__(self) -> None:
        """Begin without a root."""
        self.table = DueTable()
        self.roots_past_progress: set[Root] = set()
        self.flawed_offset_by_root: dict[Root, int] = {}

    def put(self, record: Record, root: Root, due_ms: int) -> None:
        """Record that a root waits until a wall time."""
        self.table.put(root, record.offset, due_ms)
        self.roots_past_progress.add(root)
        if self.flawed_offset_by_root:  # nearly always there is no flawed record
            self.flawed_offset_by_root.pop(root, None)  # a sound record behind a flawed one counts

    def end(self, record: Record, root: Root) -> None:
        """Record that a root waits no more: the record is its tombstone."""
        self.table.remove(root, record.offset)
        self.roots_past_progress.add(root)
        if self.flawed_offset_by_root:
            self.flawed_offset_by_root.pop(root, None)  # as in `put`


def _stored_records(worker: Worker, due_partition: TopicPartition) -> Iterator[Record]:
    """Read what is committed in a partition of `_ack_due` now, in its order."""
    start = worker.log.starts([due_partition])[due_partition]
    end = worker.log.stable_ends([due_partition])[due_partition]
    operation = f"reading what waits in partition {due_partition.partition}"
    return read_ack_topic(
        worker.log,
        due_partition,
        start,
        end,
        committed=True,
        wait_ms=worker.limits.operation_timeout_ms,
        report_alive=lambda: worker.note_operation(operation),
    )


def _build_mends(
    worker: Worker, due_partition: TopicPartition, flawed_roots: Collection[Root]
) -> Sequence[Mend]:
    """Return what to write under the keys of some roots, whose last record is flawed.

    That is the last sound entry or tombstone that is still there. If there is
    none, it is the entry of a dead letter; but nothing if the key is not of a
    root of ours.
    """
    sound_entries = _SoundEntries()
    fold = DueFold(whole_entry, sound_entries, keeps_key=of_roots(flawed_roots))
    for record in _stored_records(worker, due_partition):
        fold.put(record)  # calls `sound_entries`
    mends: list[Mend] = []
    for root in flawed_roots:
        if root in sound_entries.entry_by_root:
            entry = sound_entries.entry_by_root[root]
        else:
            entry = _dying_entry_of_key(worker, root, due_partition.partition)
            if entry is None:  # not a root of ours: nothing is written
                continue
        value = None if entry is None else worker.due_codec.encode(entry)
        written = worker.waiting_record(due_partition, root_key(root), value)
        mends.append(Mend(root, _root_name(worker, root), entry, written))
    return mends


class _SoundEntries:
    """Remembers the last sound record of each root; `DueFold` calls `put` and `end`.

    Attributes:
        entry_by_root: the entry of each root; None: a tombstone.
    """

    def __init__(self) -> None:
        """Begin with no record."""
        self.entry_by_root: dict[Root, Due | None] = {}

    def put(self, record: Record, root: Root, entry: Due) -> None:
        """Remember the entry of a root."""
        self.entry_by_root[root] = entry

    def end(self, record: Record, root: Root) -> None:
        """Remember that a root has a tombstone."""
        self.entry_by_root[root] = None


def _dying_entry_of_key(worker: Worker, root: Root, partition: int) -> Due | None:
    """Return an entry that makes a dead letter of a root of which only the key is left.

    None if the key is not of a tracked input, or does not belong to this
    partition: a worker wrote no such key, and there is no record to make a
    dead letter of.
    """
    if wrong_source(root.source) or root.position < 0:
        return None
    input = worker.tracked_input(root.source)
    if input is None:
        return None
    if acker_partition(root.source, root.position, worker.partition_count) != partition:
        return None
    return Due(
        source=root.source,
        position=root.position,
        due_ms=0,
        dead=DeadReason.UNREADABLE,
        group=input.group,
        topic=topic_of(input, root.source),
        topic_id="",
        origin=_root_name(worker, root),
        attempt=1,
        abandoned=0,
        first_emitted_ms=-1,  # it is unknown
        history=(),
    )


def _root_name(worker: Worker, root: Root) -> str:
    """Return what people call a root, such as ``sentences/3@1042``."""
    input = worker.tracked_input(root.source)
    if input is None:
        return f"source {root.source}, position {root.position}"
    topic = topic_of(input, root.source)
    return location(topic, partition_of(root.source), offset_of(root.position))


def read_entries(
    worker: Worker, due_partition: TopicPartition, entries_in_memory: Mapping[int, Due | None]
) -> Mapping[int, Due | None]:
    """Return the entry of `_ack_due` at each offset, in the order of `entries_in_memory`.

    `entries_in_memory` has, by offset, the entries that are there, and None for
    each that must be read. In what is returned None is an entry that cannot be
    read, and is not about a root of ours.

    Left out are entries after the stable end, since the broker confirms a
    commit before it writes the markers; and those that do not fit into one
    fetch, since with long histories they would take too much memory, and their
    payloads do not fit either.

    Raises `DataLoss`: an entry is missing; `UnknownVersion`.
    """
    entries = {offset: entry for offset, entry in entries_in_memory.items() if entry is not None}
    if len(entries) == len(entries_in_memory):  # the usual case: nothing is to be read
        return entries
    stable_end = worker.log.stable_ends([due_partition])[due_partition]
    to_read: set[RecordPlace] = set()
    for offset in entries_in_memory:
        if offset not in entries and offset < stable_end:
            to_read.add(RecordPlace(*due_partition, offset))
    worker.note_operation("reading what is due")
    answers = worker.fetcher.fetch(to_read, tells_never=False)
    entry_by_offset: dict[int, Due | None] = dict(entries)
    for place, answer in answers.items():
        entry_by_offset[place.offset] = _decode_or_report(worker, place, answer)
    # in the order of `entries_in_memory`
    return {offset: entry_by_offset[offset] for offset in entries_in_memory if offset in entry_by_offset}


def _decode_or_report(worker: Worker, place: RecordPlace, answer: Record | Absence) -> Due | None:
    """Return the entry that was read at a place of `_ack_due`.

    If it is flawed, report it, and return in its place an entry with which the
    root becomes a dead letter; None: the key is not of a root of a tracked
    input.

    Raises `Damaged`: the entry cannot be read; `DataLoss`: it is missing;
    `UnknownVersion`: a newer version wrote it, and no operator lets it be
    passed over.
    """
    if cannot_be_read(answer):
        raise Damaged(*place, "a root waits in it", DAMAGE_CURE)
    if isinstance(answer, Absence):
        raise DataLoss(
            f"a root waits at offset {place.offset} of {place.topic}/{place.partition}, which no longer"
            " holds it: somebody deleted from the topic, or wrote to it under the root's key. Start the"
            " replay worker again: of a root whose key is still there it makes a dead letter"
        )
    root = parse_root_key(answer.key)
    try:
        # the stack is in a header, not in the value
        return replace(whole_entry(answer, root), stack=read_stack(answer.headers))
    except UnknownVersion as error:
        flaw = require_newer_passed_over(worker.log, answer, error)
    except CodecError as error:
        flaw = str(error)
    worker.report_undecodable(*place, flaw)
    return None if root is None else _dying_entry_of_key(worker, root, place.partition)
