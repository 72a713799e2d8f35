"""How tuples of a topology reach its keyed bolt: Spark's state holds each with the edge of its delivery.

The last stage before the bolt passes its rows to this operator, which reports each tuple as outstanding. When
the bolt settles the tuple in a later micro-batch, the same edge is contributed once more. It is computed from
the tuple's path from its root, so a stage that runs again writes the same edge to the state store.

A tuple in the state has one anchor, so one root. If a tuple is anchored on several tuples of one root, its
edge is the XOR of their edges. If it is anchored on tuples of several roots, it is refused, and all
these roots fail. A tuple without a root is held too, and is best effort.

A *path* of a tuple leads from its root to it: the root's index in the batch's plan, then for each
hop the key of the subscription and the tuple's ordinal there (the so many-th that its parent
emitted).

Source: docs/design/protocol.md, sections 2 ("child edge") and 5.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from acker.errors import TupleError
from acker.identity import I64, U64, child_edges, root_edges
from spout.bolts.keyed_bolt import KeyedBolt
from spout.held.keyed_exit import with_keyed_stage
from spout.held.keyed_rows import KEY, ONE_KEY, reported_by_keyed_bolt
from spout.publishing.delayed import NEVER_MS, HeldTuples, RootPositions
from spout.publishing.fold import TaskReport
from spout.publishing.report_accumulator import add_report
from spout.publishing.root_marks import PLANNED, RootMark, RootMarks, roots_of
from spout.streaming.frames import through
from spout.streaming.query_plan import label
from spout.topology.stage_pass import StagePass, entry_of
from spout.topology.stages import Layout
from spout.tuples.anchor_columns import HELD_TYPE
from spout.tuples.anchors import Carry, Fingerprint, fingerprint_of
from spout.tuples.columns import ANCHOR, ROOT, TO
from spout.tuples.counts import Counted, Measure, What
from spout.tuples.failures import cause_of
from spout.tuples.tuple import StreamId

_WORD: Final = (1 << 32) - 1


class KeyedStream(NamedTuple):
    """A stream that a keyed bolt reads: the column with its tuples, and the fields that are the key."""

    id: StreamId
    column: str
    fields: tuple[str, ...]
    key: tuple[str, ...]


class HeldBlock(NamedTuple):
    """What becomes of the rows of one Arrow batch: they are held, or refused since they have
    several roots.

    Attributes:
        anchors: for each row the anchor for the state; null where it has no root, or several.
        held: roots and edges of the rows that have one root.
        refused_rows: the numbers of the rows with several roots, ascending.
        lost_roots: the roots of these rows, as indices into the batch's plan, ascending.
    """

    anchors: pa.Array
    held: HeldTuples
    refused_rows: I64
    lost_roots: I64


def held_block(deliveries: pa.Array, roots: pa.Array) -> HeldBlock:
    """Return the anchors with which tuples are held, and which tuples are refused.

    Args:
        deliveries: the places of each tuple in its trees, in the HOPS form of `spout.tuples.anchors`.
        roots: source and position of each tuple's root, in the form of `spout.tuples.columns`.
    """
    has_root = np.asarray(roots.is_valid())  # False: no root, or several
    paths = deliveries.flatten()
    # for each path its row, and its root as an index into the batch's plan
    path_rows = np.asarray(pc.list_parent_indices(deliveries), dtype=np.int64)
    path_roots = np.asarray(pc.list_element(paths, 0), dtype=np.int64)
    # paths of rows with one root; a row without any has no path, so all other paths are of rows
    # with several
    is_held = has_root[path_rows]
    held_path_rows = path_rows[is_held]
    row_roots = RootPositions(_numbers(roots.field("source")), _numbers(roots.field("position")))
    path_edges = edges_of(paths.filter(pa.array(is_held)), row_roots.at(held_path_rows))
    # a row that is anchored on several tuples of its root has several paths; its edge is the XOR of
    # theirs
    edges = np.zeros(len(roots), np.uint64)
    np.bitwise_xor.at(edges, held_path_rows, path_edges)
    # no watermark drops tuples before a keyed bolt
    until_ms = np.full(int(has_root.sum()), NEVER_MS, np.int64)
    columns = [
        pa.array(row_roots.sources),
        pa.array(row_roots.positions),
        pa.array(edges.view(np.int64)),
    ]
    return HeldBlock(
        anchors=pa.StructArray.from_arrays(columns, fields=list(HELD_TYPE), mask=pa.array(~has_root)),
        held=HeldTuples(row_roots.at(has_root), edges[has_root], until_ms),
        refused_rows=np.unique(path_rows[~is_held]),
        lost_roots=np.unique(path_roots[~is_held]),
    )


def edges_of(paths: pa.Array, roots: RootPositions) -> U64:
    """Return the edge of each delivery as uint64, one for each path.

    Args:
        paths: each as the root's index, then ``subscription << 32 | ordinal`` for every hop.
        roots: source and position of the root of each path.
    """
    edges = np.empty(len(paths), np.uint64)
    for source, rows in roots.by_source():
        edges[rows] = root_edges(source, roots.positions[rows])
    path_lengths = np.asarray(paths.value_lengths(), dtype=np.int64)
    # An edge is computed from its parent's, so all paths go down one hop at a time. Of [7] and [7, hop] the
    # first has its root's edge; the second takes one step at depth 1.
    for depth in range(1, int(path_lengths.max(initial=0))):
        deep_paths = np.flatnonzero(path_lengths > depth)
        hop_column = pc.list_element(paths.take(pa.array(deep_paths)), depth)
        hops = np.asarray(hop_column, dtype=np.int64)
        subscriptions = hops >> 32 & _WORD
        ordinals = hops & _WORD
        for subscription in np.unique(subscriptions).tolist():
            is_subscribed = subscriptions == subscription
            # all of one subscription at once, as `child_edges` takes them
            subscribed_paths = deep_paths[is_subscribed]
            edges[subscribed_paths] = child_edges(
                edges[subscribed_paths], subscription, ordinals[is_subscribed]
            )
    return edges


@dataclass(frozen=True, slots=True)
class EntryTask:
    """Gives each tuple of the last stage in one task its anchor, and reports it as outstanding.

    Attributes:
        bolt: the keyed bolt's name.
        upstream: name of the last stage before it.
        streams: what the bolt reads, by the number of its subscription (column ``_to``).
        stream: the id of the tracked stream; empty where nothing is tracked.
        ledger: the accumulator that reports go to; None where nothing is tracked.
    """

    bolt: str
    upstream: str
    streams: Mapping[int, KeyedStream]
    stream: str
    ledger: Any

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the key, the tuple and the anchor of each row.

        Report after the last one was taken.
        """
        received = Fingerprint()
        blocks: list[HeldBlock] = []
        refused_by_number: Counter[int] = Counter()  # refused tuples of each subscription
        for batch in batches:
            received = received.plus(fingerprint_of(Carry.HOPS, batch.column(ANCHOR)))
            block = held_block(batch.column(ANCHOR), batch.column(ROOT))
            columns = {**self._columns(batch), ANCHOR: block.anchors}
            rows = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
            if len(block.refused_rows):
                numbers = batch.column(TO).take(pa.array(block.refused_rows))
                refused_by_number.update(numbers.to_pylist())
                held_rows = np.setdiff1d(np.arange(rows.num_rows), block.refused_rows)
                rows = rows.take(pa.array(held_rows))
            yield rows
            blocks.append(block._replace(anchors=None))  # Spark has them now; the report needs the rest
        if self.ledger is not None:
            report = self._report(blocks, refused_by_number, received)
            add_report(self.ledger, self.stream, report)

    def _columns(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return the columns of the key, and those of the tuples: each is null in the rows of other
        streams.

        Example: a row is of `orders`, grouped by `user`, or of `visits`, grouped by `name`. The key of each
        row is its `orders.user`, or where that is null, its `visits.name`.
        """
        streams = list(self.streams.values())
        tuples = {stream.column: batch.column(stream.column) for stream in streams}
        if not streams[0].key:  # all tuples have one key
            one_key = pa.repeat(pa.scalar(0, pa.int8()), batch.num_rows)
            return {ONE_KEY: one_key} | tuples
        keys: dict[str, pa.Array] = {}
        # in the example there is one column of the key, with the names ("user", "name")
        names_of_columns = zip(*(stream.key for stream in streams), strict=True)
        for number, names in enumerate(names_of_columns):
            values_of_streams = [
                pc.struct_field(tuples[stream.column], name)
                for stream, name in zip(streams, names, strict=True)
            ]
            keys[KEY.format(number)] = pc.coalesce(*values_of_streams)
        return keys | tuples

    def schema(self, arriving: pa.Schema) -> pa.Schema:
        """Return the schema of the rows that leave, by that of those that arrive."""
        no_rows = pa.RecordBatch.from_pylist([], schema=arriving)
        columns = self._columns(no_rows)
        fields = [pa.field(name, column.type) for name, column in columns.items()]
        return pa.schema([*fields, pa.field(ANCHOR, HELD_TYPE)])

    def _report(
        self, blocks: list[HeldBlock], refused_by_number: Mapping[int, int], received: Fingerprint
    ) -> TaskReport:
        """Return the report of the task: what it holds, and the roots of the tuples that it
        refused.

        Args:
            refused_by_number: how many tuples of each subscription were refused, by its number.
            received: the fingerprint of all rows that arrived.
        """
        error = TupleError(
            f"a tuple for {self.bolt!r}, a KeyedBolt, is anchored on tuples of several records, and a keyed"
            " bolt holds tuples of one: anchor it on one of them, or hold and join them in the keyed bolt"
        )
        cause = cause_of(self.bolt, error)
        failed_counts: dict[Counted, Measure] = {}
        for number, tuples in refused_by_number.items():
            failed_counts[Counted(What.FAILED, self.bolt, self.streams[number].id)] = Measure(tuples)
        operator = entry_of(self.bolt)
        held_marks = HeldTuples.together(block.held for block in blocks).marks(operator)
        no_roots = np.empty(0, np.int64)  # so that no block at all is no error
        lost_roots = np.concatenate([no_roots, *(block.lost_roots for block in blocks)])
        failed_marks = RootMarks.of_roots(RootMark.FAILED, roots_of(PLANNED, lost_roots), cause=cause)
        return TaskReport(
            operator=operator,
            upstream=self.upstream,
            received_fingerprint=received,
            counts=failed_counts,
            marks=RootMarks.together([held_marks, failed_marks]),
        )


def keyed_streams(plan: Layout, stage: StagePass) -> dict[int, KeyedStream]:
    """Return what the keyed bolt of a stage reads, by the number of its subscription."""
    streams: dict[int, KeyedStream] = {}
    for number, arrival in stage.arrivals.items():
        stream = arrival.stream
        fields = tuple(stream.schema.names)
        key = plan.routes[number].subscription.fields
        streams[number] = KeyedStream(stream.id, stream.column, fields, key)
    return streams


def attach_keyed_bolt(
    rows: DataFrame, stage_before: StagePass, task: EntryTask, bolt: KeyedBolt, stage: StagePass
) -> DataFrame:
    """Return what leaves a keyed bolt's stage, by the rows of the stage before.

    1. The entry task gives each tuple its key and its anchor.
    2. Spark calls the bolt for each key, and has the rows in which it emits and reports.
    3. The exit task reports for it, and runs the bolts behind it.
    """
    if stage.keyed is None:
        raise TypeError(f"stage {stage.name} is no keyed bolt's")
    # step 1
    operator = "" if task.ledger is None else label(entry_of(task.bolt))
    held = through(rows, task, task.schema(stage_before.schema), operator)
    # step 2
    reported = reported_by_keyed_bolt(
        held,
        task.bolt,
        bolt,
        stage.keyed.schema,
        streams={stream.column: stream.id for stream in task.streams.values()},
        keys={stream.column: stream.key for stream in task.streams.values()},
    )
    # step 3
    return with_keyed_stage(reported, task.bolt, stage)


def _numbers(column: pa.Array) -> I64:
    """Return a column as an array, with 0 in place of its nulls."""
    return np.asarray(column.fill_null(0), dtype=np.int64)
