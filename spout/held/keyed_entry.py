"""How tuples of a topology reach its keyed bolt: Spark's state holds each with the edge of its delivery.

The last stage before the bolt passes its rows to this operator, which reports each tuple as outstanding. When
the bolt settles the tuple in a later micro-batch, the same edge is contributed once more. It is computed from
the tuple's path from its root, so a stage that runs again writes the same edge to the state store.

A tuple in the state has one anchor, so one root. If a tuple is anchored on several tuples of one root, its
edge is the sum of their edges. If it is anchored on tuples of several roots, all these roots fail. A tuple
without a root is held too, and is best effort.

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
from spout.held.keyed_exit import behind_keyed
from spout.held.keyed_rows import KEY, ONE_KEY, held_by_key
from spout.publishing.delayed import NEVER_MS, HeldTuples, RootPositions
from spout.publishing.fold import TaskReport
from spout.publishing.report_accumulator import add
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


class Entered(NamedTuple):
    """The result for one block of rows.

    Attributes:
        anchors: for each row the anchor for the state; null where it has no root, or several.
        held: roots and edges of the rows that have one root.
        refused: the numbers of the rows with several roots, ascending.
        lost: the roots of these rows, as indices into the batch's plan, ascending.
    """

    anchors: pa.Array
    held: HeldTuples
    refused: I64
    lost: I64


def entered(deliveries: pa.Array, roots: pa.Array) -> Entered:
    """Compute the anchors with which tuples are held.

    Args:
        deliveries: the places of each tuple in its trees, in the HOPS form of `spout.tuples.anchors`.
        roots: source and position of each tuple's root, in the form of `spout.tuples.columns`.
    """
    has_root = np.asarray(roots.is_valid())  # False: no root, or several
    paths = deliveries.flatten()
    # for each path its row, and its root as an index into the batch's plan
    path_rows = np.asarray(pc.list_parent_indices(deliveries), dtype=np.int64)
    path_roots = np.asarray(pc.list_element(paths, 0), dtype=np.int64)
    is_held = has_root[path_rows]
    held_rows = path_rows[is_held]
    places = RootPositions(_numbers(roots.field("source")), _numbers(roots.field("position")))
    held_edges = edges_of(paths.filter(pa.array(is_held)), places.at(held_rows))
    # a row that is anchored on several tuples of its root has several paths; its edge is their sum
    edges = np.zeros(len(roots), np.uint64)
    np.bitwise_xor.at(edges, held_rows, held_edges)
    # no watermark drops tuples before a keyed bolt
    until_ms = np.full(int(has_root.sum()), NEVER_MS, np.int64)
    columns = [
        pa.array(places.sources),
        pa.array(places.positions),
        pa.array(edges.view(np.int64)),
    ]
    # a row without a root has no path, so paths that are not held belong to rows with several roots
    return Entered(
        anchors=pa.StructArray.from_arrays(columns, fields=list(HELD_TYPE), mask=pa.array(~has_root)),
        held=HeldTuples(places.at(has_root), edges[has_root], until_ms),
        refused=np.unique(path_rows[~is_held]),
        lost=np.unique(path_roots[~is_held]),
    )


def edges_of(paths: pa.Array, roots: RootPositions) -> U64:
    """Return the edge of each delivery as uint64, one for each path.

    Args:
        paths: in the HOPS form: the root's index, then ``subscription << 32 | ordinal`` for every hop.
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
            # all of one subscription together, since their edges are computed so
            rows = deep_paths[is_subscribed]
            edges[rows] = child_edges(edges[rows], subscription, ordinals[is_subscribed])
    return edges


@dataclass(frozen=True, slots=True)
class EntryTask:
    """Gives each tuple of the last stage in one task its anchor, and reports it as outstanding.

    Attributes:
        bolt: the keyed bolt's name.
        upstream: name of the last stage before it.
        streams: what the bolt reads, by the number of its subscription.
        stream: the id of the tracked stream; empty where nothing is tracked.
        ledger: the accumulator; None where nothing is tracked.
    """

    bolt: str
    upstream: str
    streams: Mapping[int, KeyedStream]
    stream: str
    ledger: Any

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give each tuple its anchor; report after the last one was taken."""
        received = Fingerprint()
        blocks: list[Entered] = []
        refused_by_number: Counter[int] = Counter()  # refused tuples of each subscription
        for batch in batches:
            received = received.plus(fingerprint_of(Carry.HOPS, batch.column(ANCHOR)))
            block = entered(batch.column(ANCHOR), batch.column(ROOT))
            columns = {**self._columns(batch), ANCHOR: block.anchors}
            rows = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
            if len(block.refused):
                numbers = batch.column(TO).take(pa.array(block.refused))
                refused_by_number.update(numbers.to_pylist())
                held_rows = np.setdiff1d(np.arange(rows.num_rows), block.refused)
                rows = rows.take(pa.array(held_rows))
            yield rows
            blocks.append(block._replace(anchors=None))  # Spark has them now; the report needs the rest
        if self.ledger is not None:
            report = self._report(blocks, refused_by_number, received)
            add(self.ledger, self.stream, report)

    def _columns(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return the key beside the tuples of each stream, which are null in the rows of the others.

        Example: a row is of `orders`, grouped by `user`, or of `visits`, grouped by `name`. The key of each
        row is its `orders.user`, or where that is null, its `visits.name`.
        """
        streams = list(self.streams.values())
        tuples = {stream.column: batch.column(stream.column) for stream in streams}
        if not streams[0].key:  # all tuples have one key
            one_key = pa.repeat(pa.scalar(0, pa.int8()), batch.num_rows)
            return {ONE_KEY: one_key} | tuples
        keys: dict[str, pa.Array] = {}
        names_by_part = zip(*(stream.key for stream in streams), strict=True)
        for number, names in enumerate(names_by_part):
            # this part of the key, from the tuples of each stream
            parts = [
                pc.struct_field(tuples[stream.column], name)
                for stream, name in zip(streams, names, strict=True)
            ]
            keys[KEY.format(number)] = pc.coalesce(*parts)
        return keys | tuples

    def schema(self, arriving: pa.Schema) -> pa.Schema:
        """Return the schema of the rows that leave, by that of those that arrive."""
        no_rows = pa.RecordBatch.from_pylist([], schema=arriving)
        columns = self._columns(no_rows)
        fields = [pa.field(name, column.type) for name, column in columns.items()]
        return pa.schema([*fields, pa.field(ANCHOR, HELD_TYPE)])

    def _report(
        self, blocks: list[Entered], refused_by_number: Mapping[int, int], took: Fingerprint
    ) -> TaskReport:
        """Return the report of the task: what it holds, and the roots of the tuples that it refused."""
        error = TupleError(
            f"a tuple for {self.bolt!r}, a KeyedBolt, is anchored on tuples of several records, and a keyed"
            " bolt holds tuples of one: anchor it on one of them, or hold and join them in the keyed bolt"
        )
        cause = cause_of(self.bolt, error)
        lost = np.concatenate([np.empty(0, np.int64), *(block.lost for block in blocks)])
        return TaskReport(
            operator=entry_of(self.bolt),
            upstream=self.upstream,
            received_fingerprint=took,
            counts={
                Counted(What.FAILED, self.bolt, self.streams[number].id): Measure(tuples)
                for number, tuples in refused_by_number.items()
            },
            marks=RootMarks.together(
                [
                    HeldTuples.together(block.held for block in blocks).marks(entry_of(self.bolt)),
                    RootMarks.of_roots(RootMark.FAILED, roots_of(PLANNED, lost), cause=cause),
                ]
            ),
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


def keyed_frame(
    rows: DataFrame, stage_before: StagePass, task: EntryTask, bolt: KeyedBolt, stage: StagePass
) -> DataFrame:
    """Put a keyed bolt, and the bolts of its stage, behind the rows of the stage before."""
    operator = "" if task.ledger is None else label(entry_of(task.bolt))
    held = through(rows, task, task.schema(stage_before.schema), operator)
    if stage.keyed is None:
        raise TypeError(f"stage {stage.name} is no keyed bolt's")
    streams_by_column = {stream.column: stream.id for stream in task.streams.values()}
    keys_by_column = {stream.column: stream.key for stream in task.streams.values()}
    reported = held_by_key(held, task.bolt, bolt, stage.keyed.schema, streams_by_column, keys_by_column)
    return behind_keyed(reported, task.bolt, stage)


def _numbers(column: pa.Array) -> I64:
    """Return a column as an array, with 0 in place of its nulls."""
    return np.asarray(column.fill_null(0), dtype=np.int64)
