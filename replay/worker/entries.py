"""Reads the entries of `_ack_due`: all of them for a new owner of the partition, later those that are due.

A new owner decodes only the due time of a waiting root; the rest is decoded
when it is due.

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

from acker.config.topics import Input
from acker.errors import CodecError, Damaged, DataLoss, UnknownVersion
from acker.identity import Root, acker_partition, is_replay, offset_of, partition_of
from acker.kafka.port import Outgoing, Record, TopicPartition
from acker.service.passed_over import DAMAGE_CURE, read_ack_topic
from acker.wire.checks import wrong_source
from acker.wire.clusters import require_cluster
from acker.wire.stacks import read_stack
from replay.policy.disposition import DeadReason
from replay.records.due import Due, Pause, Progress, parse_root_key, root_key
from replay.records.due_fold import DueFold, DueStep, Flawed, due_ms_of, of_roots, whole_entry
from replay.records.headers import location
from replay.worker.fetch import Absence, RecordPlace, cannot_be_read
from replay.worker.waiting import DueTable
from replay.worker.worker import Worker, require_newer_passed_over

SPOILED_MAX = 10_000
"""So many keys are repaired at once; further ones are reported, and the next owner repairs them."""


class Mend(NamedTuple):
    """What to write under the key of a root: an entry; a tombstone if `due` is None. People read `name`."""

    root: Root
    name: str
    due: Due | None
    written: Outgoing


class Restored(NamedTuple):
    """The contents of a partition of `_ack_due`: the roots that wait are in `table`, except those in `mends`.

    `progress` is None if no verdict was ever accepted; `pauses` are by the id
    of the input. Roots with an entry or a tombstone `behind` the progress are
    accepted, too, though it may not say so: a transaction was cut. Of an entry
    that has ended, compaction leaves only the tombstone.
    """

    table: DueTable
    progress: Progress | None
    behind: Collection[Root]
    mends: Sequence[Mend]
    pauses: Mapping[int, Pause]


def restore(worker: Worker, due: TopicPartition) -> Restored:
    """Read a partition of `_ack_due` to its stable end; the last record of each key counts.

    Raises `Disagreement`: a record was written in another cluster, where it is
    about other records.
    """
    own_cluster = worker.log.cluster_id()
    owned = _OwnedRoots()
    fold = DueFold(due_ms_of, owned, on_newer=partial(require_newer_passed_over, worker.log))
    for record in _stored_records(worker, due):
        require_cluster(record.place, record.headers, record.value, own_cluster)
        meaning = fold.put(record)
        match meaning:
            case DueStep() | Pause():
                pass  # the fold has put it into `owned`, or remembers the pause
            case Progress():
                owned.behind.clear()  # only what comes behind the last one counts
            case Flawed(why, root):
                worker.report_undecodable(*due, record.offset, why)
                if root is not None and len(owned.spoiled) < SPOILED_MAX:
                    owned.spoiled[root] = record.offset
            case _:
                assert_never(meaning)
    mends = _mends(worker, due, owned.spoiled) if owned.spoiled else ()
    for mend in mends:
        # it waits again under its new offset, once written
        owned.table.remove(mend.root, owned.spoiled[mend.root])
    return Restored(owned.table, fold.progress.get(due.partition), owned.behind, mends, fold.paused())


class _OwnedRoots:
    """What a new owner remembers of each root; `DueFold` calls `put` and `end`.

    Attributes:
        table: those that wait.
        behind: those with an entry or a tombstone behind the last progress.
        spoiled: where a flawed record is the last one under a root's key.
    """

    def __init__(self) -> None:
        self.table = DueTable()
        self.behind: set[Root] = set()
        self.spoiled: dict[Root, int] = {}

    def put(self, record: Record, root: Root, due_ms: int) -> None:
        """Record that a root waits until a wall time."""
        self.table.put(root, record.offset, due_ms)
        self.behind.add(root)
        if self.spoiled:  # a sound record behind a flawed one counts; nearly always there is no flawed one
            self.spoiled.pop(root, None)

    def end(self, record: Record, root: Root) -> None:
        """Record that a root waits no more: the record is its tombstone."""
        self.table.remove(root, record.offset)
        self.behind.add(root)
        if self.spoiled:
            self.spoiled.pop(root, None)


def _stored_records(worker: Worker, due: TopicPartition) -> Iterator[Record]:
    """Read what is committed in a partition of `_ack_due` now, in its order."""
    start = worker.log.starts([due])[due]
    end = worker.log.stable_ends([due])[due]
    return read_ack_topic(
        worker.log,
        due,
        start,
        end,
        committed=True,
        wait_ms=worker.limits.operation_timeout_ms,
        alive=lambda: worker.note_operation(f"reading what waits in partition {due.partition}"),
    )


def _mends(worker: Worker, place: TopicPartition, spoiled: Collection[Root]) -> Sequence[Mend]:
    """Return what to write under the keys of some roots, whose last record is flawed.

    That is the last sound entry or tombstone that is still there. If there is
    none, it is the entry of a dead letter; but nothing if the key is not of a
    root of ours.
    """
    sound = _SoundEntries()
    fold = DueFold(whole_entry, sound, wants=of_roots(spoiled))
    for record in _stored_records(worker, place):
        fold.put(record)
    mends: list[Mend] = []
    for root in spoiled:
        if root in sound.entries:
            due = sound.entries[root]
        else:
            due = _unreadable_due(worker, root, place.partition)
            if due is None:
                continue
        value = None if due is None else worker.due_codec.encode(due)
        written = worker.waiting_record(place, root_key(root), value)
        mends.append(Mend(root, _name(worker, root), due, written))
    return mends


class _SoundEntries:
    """Remembers the last sound record of each root: `entries` has its entry, or None for a tombstone."""

    def __init__(self) -> None:
        """Begin with no record; `DueFold` calls `put` and `end`."""
        self.entries: dict[Root, Due | None] = {}

    def put(self, record: Record, root: Root, due: Due) -> None:
        self.entries[root] = due

    def end(self, record: Record, root: Root) -> None:
        self.entries[root] = None


def _unreadable_due(worker: Worker, root: Root, partition: int) -> Due | None:
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
    if acker_partition(root.source, root.position, worker.partitions) != partition:
        return None
    return Due(
        source=root.source,
        position=root.position,
        due_ms=0,
        dead=DeadReason.UNREADABLE,
        group=input.group,
        topic=_topic(input, root),
        topic_id="",
        origin=_name(worker, root),
        attempt=1,
        abandoned=0,
        first_emitted_ms=-1,  # it is unknown
        history=(),
    )


def _topic(input: Input, root: Root) -> str:
    """Return the topic that a root of an input was emitted from: its own, or that of the copies."""
    return input.replay_topic if is_replay(root.source) else input.topic


def _name(worker: Worker, root: Root) -> str:
    """Return what people call a root, such as ``sentences/3@1042``."""
    input = worker.tracked_input(root.source)
    if input is None:
        return f"source {root.source}, position {root.position}"
    return location(_topic(input, root), partition_of(root.source), offset_of(root.position))


def entries_of(
    worker: Worker, place: TopicPartition, due_by_offset: Mapping[int, Due | None]
) -> Mapping[int, Due | None]:
    """Return the entry of `_ack_due` at each offset; None if it is unreadable and not about a root of ours.

    `due_by_offset` has the entries that are in memory, and None for each that
    must be read. Left out are entries after the stable end, since the broker
    confirms a commit before it writes the markers; and those that do not fit
    into one fetch, since with long histories they would take too much memory,
    and their payloads do not fit either.

    Raises `DataLoss`: an entry is missing; `UnknownVersion`.
    """
    in_memory = {offset: due for offset, due in due_by_offset.items() if due is not None}
    if len(in_memory) == len(due_by_offset):
        return in_memory
    stable_end = worker.log.stable_ends([place])[place]
    to_read: set[RecordPlace] = set()
    for offset in due_by_offset:
        if offset not in in_memory and offset < stable_end:
            to_read.add(RecordPlace(*place, offset))
    worker.note_operation("reading what is due")
    answers = worker.fetcher.fetch(to_read, why=False)
    entries: dict[int, Due | None] = dict(in_memory)
    for entry_place, answer in answers.items():
        entries[entry_place.offset] = _decoded(worker, entry_place, answer)
    # in the order in which they were asked for, which is that of their due
    # times
    return {offset: entries[offset] for offset in due_by_offset if offset in entries}


def _decoded(worker: Worker, place: RecordPlace, answer: Record | Absence) -> Due | None:
    """Return the entry that was read at a place of `_ack_due`.

    One that is flawed is reported, and becomes an entry of a dead letter; None
    if its key is not of a root of ours.

    Raises `Damaged`, `DataLoss` or `UnknownVersion`: the entry cannot be read,
    is missing, or is newer.
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
        return replace(whole_entry(answer, root), stack=read_stack(answer.headers))
    except UnknownVersion as error:
        flaw = require_newer_passed_over(worker.log, answer, error)
    except CodecError as error:
        flaw = str(error)
    worker.report_undecodable(*place, flaw)
    return None if root is None else _unreadable_due(worker, root, place.partition)
