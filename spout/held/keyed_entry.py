"""How tuples of a topology reach its keyed bolt: Spark's state holds each with the edge of its
delivery.

The last stage before the bolt passes its rows to the operator here (`EntryTask`), which reports
each tuple as outstanding. When
the bolt settles the tuple in a later micro-batch, the same edge is contributed once more. It is
computed from the tuple's path from its root, so a stage that runs again writes the same edge to the
state store.

A tuple in the state has one anchor, so one root. If a tuple is anchored on several tuples of one
root, its edge is the XOR of their edges. If it is anchored on tuples of several roots, it is
refused, and all these roots fail. A tuple without a root is held too, and nothing is reported of
it.

A *path* of a tuple leads from its root to it: the root's index in the batch's plan, then for each
step (*hop*) the key of the subscription and the tuple's ordinal there (the so many-th that its
parent emitted). In the HOPS form a column has for each row a list of its paths.

The rows of the stage before have the *number* of the subscription on which they come, in the column
``_to``: the bolt may read several streams.

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
from spout.held.keyed_rows import KEY, ONE_KEY, rows_reported_by_keyed_bolt
from spout.publishing.delayed import NEVER_MS, RootPositions, held_marks, holder_of
from spout.publishing.fold import TaskReport
from spout.publishing.report_accumulator import add_report
from spout.publishing.root_marks import PLANNED, RootMark, RootMarks, roots_of
from spout.streaming.frames import through
from spout.streaming.query_plan import label
from spout.topology.stage_pass import StagePass, entry_operator_name
from spout.topology.stages import Layout
from spout.tuples.anchor_columns import HELD_TYPE
from spout.tuples.anchors import AnchorForm, Fingerprint, fingerprint_of
from spout.tuples.columns import ANCHOR, ROOT, TO
from spout.tuples.counts import Counted, Measure, What
from spout.tuples.failures import Cause, cause_of
from spout.tuples.tuple import StreamId

_LOWER_32_BITS: Final = (1 << 32) - 1


class KeyedStream(NamedTuple):
    """A stream that a keyed bolt reads.

    Attributes:
        column: has its tuples as structs; null in rows of other streams.
        fields: the names of the structs' fields.
        key_fields: those of them that are the key, in order; none: all tuples have one key.
    """

    id: StreamId
    column: str
    fields: tuple[str, ...]
    key_fields: tuple[str, ...]


class HeldBatch(NamedTuple):
    """What becomes of the rows of one batch: they are held, or refused for several roots.

    Attributes:
        anchors: for each row the anchor for the state; null where it has no root, or several.
        marks: of the rows that have one root: they are held.
        refused_rows: the numbers of the rows with several roots, ascending.
        lost_roots: the roots of these rows, as indices into the batch's plan, ascending.
    """

    anchors: pa.Array
    marks: RootMarks
    refused_rows: I64
    lost_roots: I64


def held_batch(paths_by_row: pa.Array, roots: pa.Array, holder: Cause) -> HeldBatch:
    """Return the anchors with which the tuples of a batch are held, and which tuples are refused.

    1. Find out whose each path is, and which paths are of rows with one root.
    2. Compute the edge of each such row.
    3. Make the anchors.

    Args:
        paths_by_row: the paths of each tuple, in the HOPS form of `spout.tuples.anchors`.
        roots: source and position of each tuple's root, in the form of `spout.tuples.columns`.
        holder: names, in reports, the operator that holds the tuples; `holder_of` makes it.
    """
    # step 1
    has_one_root = np.asarray(roots.is_valid())  # False: no root, or several
    paths = paths_by_row.flatten()
    row_by_path = np.asarray(pc.list_parent_indices(paths_by_row), dtype=np.int64)
    # as an index into the batch's plan
    root_by_path = np.asarray(pc.list_element(paths, 0), dtype=np.int64)
    # False: the path is of a row with several roots, since a row without any has no path
    is_held_path = has_one_root[row_by_path]
    # step 2
    held_path_rows = row_by_path[is_held_path]
    row_roots = RootPositions(_numbers(roots.field("source")), _numbers(roots.field("position")))
    path_edges = edges_of(paths.filter(pa.array(is_held_path)), row_roots.at(held_path_rows))
    # a row that is anchored on several tuples of its root has several paths; its edge is the XOR of
    # theirs
    edges = np.zeros(len(roots), np.uint64)
    np.bitwise_xor.at(edges, held_path_rows, path_edges)
    # step 3
    columns = [
        pa.array(row_roots.sources),
        pa.array(row_roots.positions),
        pa.array(edges.view(np.int64)),
    ]
    fields = list(HELD_TYPE)
    anchors = pa.StructArray.from_arrays(columns, fields=fields, mask=pa.array(~has_one_root))
    # no watermark drops tuples before a keyed bolt
    until_ms = np.full(int(has_one_root.sum()), NEVER_MS, np.int64)
    return HeldBatch(
        anchors=anchors,
        marks=held_marks(holder, row_roots.at(has_one_root), edges[has_one_root], until_ms),
        refused_rows=np.unique(row_by_path[~is_held_path]),
        lost_roots=np.unique(root_by_path[~is_held_path]),
    )


def edges_of(paths: pa.Array, roots: RootPositions) -> U64:
    """Return the edge of each delivery as uint64, one for each path.

    Args:
        paths: each as the root's index, then ``subscription << 32 | ordinal`` for every hop.
        roots: source and position of the root of each path.
    """
    # a path begins with the edge of its root
    edges = root_edges(roots.sources, roots.positions)
    path_lengths = np.asarray(paths.value_lengths(), dtype=np.int64)
    # An edge is computed from its parent's, so all paths go down one hop at a time. Of the paths
    # [7] and [7, hop] the first one has its root's edge; the second one goes one hop further, at
    # depth 1.
    for depth in range(1, int(path_lengths.max(initial=0))):
        deep_paths = np.flatnonzero(path_lengths > depth)
        hop_column = pc.list_element(paths.take(pa.array(deep_paths)), depth)
        hops = np.asarray(hop_column, dtype=np.int64)
        subscriptions = hops >> 32 & _LOWER_32_BITS
        ordinals = hops & _LOWER_32_BITS
        # `child_edges` takes all paths of one subscription at once
        for subscription in np.unique(subscriptions).tolist():
            is_of_subscription = subscriptions == subscription
            path_numbers = deep_paths[is_of_subscription]
            parent_edges = edges[path_numbers]
            edges[path_numbers] = child_edges(parent_edges, subscription, ordinals[is_of_subscription])
    return edges


@dataclass(frozen=True, slots=True)
class EntryTask:
    """Gives each tuple of the stage before, in one task, its anchor, and reports it as outstanding.

    Attributes:
        bolt: the keyed bolt's name.
        upstream: name of the last stage before it.
        streams: what the bolt reads, by the number of its subscription (column ``_to``).
        stream_id: of the tracked stream; empty where nothing is tracked.
        accumulator: reports go to it; None where nothing is tracked.
    """

    bolt: str
    upstream: str
    streams: Mapping[int, KeyedStream]
    stream_id: str
    accumulator: Any

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the key, the tuple and the anchor of each row that is held.

        Report after the last one was taken.
        """
        received = Fingerprint()
        held_batches: list[HeldBatch] = []
        holder = holder_of(entry_operator_name(self.bolt))
        refused_count_by_number: Counter[int] = Counter()  # by the number of the subscription
        for batch in batches:
            received = received.plus(fingerprint_of(AnchorForm.HOPS, batch.column(ANCHOR)))
            held = held_batch(batch.column(ANCHOR), batch.column(ROOT), holder)
            columns = {**self._columns(batch), ANCHOR: held.anchors}
            rows = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
            if len(held.refused_rows):
                numbers = batch.column(TO).take(pa.array(held.refused_rows))
                refused_count_by_number.update(numbers.to_pylist())
                held_rows = np.setdiff1d(np.arange(rows.num_rows), held.refused_rows)
                rows = rows.take(pa.array(held_rows))
            yield rows
            # without the anchors: Spark has them now, and the report needs the rest alone
            held_batches.append(held._replace(anchors=None))
        if self.accumulator is not None:
            report = self._report(held_batches, refused_count_by_number, received)
            add_report(self.accumulator, self.stream_id, report)

    def _columns(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return the columns of the key, then those of the tuples, by name.

        A column of tuples is null in the rows of other streams.

        Example: the bolt reads `orders`, grouped by `user`, and `visits`, grouped by `name`. The
        key of each row is its `orders.user`, or where that is null, its `visits.name`.
        """
        streams = list(self.streams.values())
        tuple_columns = {stream.column: batch.column(stream.column) for stream in streams}
        if not streams[0].key_fields:  # all tuples have one key
            one_key = pa.repeat(pa.scalar(0, pa.int8()), batch.num_rows)
            return {ONE_KEY: one_key} | tuple_columns
        key_columns: dict[str, pa.Array] = {}
        # for each column of the key its field in each stream; in the example once ("user", "name")
        fields_by_column = zip(*(stream.key_fields for stream in streams), strict=True)
        for column_number, fields in enumerate(fields_by_column):
            values_by_stream = [
                pc.struct_field(tuple_columns[stream.column], field)
                for stream, field in zip(streams, fields, strict=True)
            ]
            key_columns[KEY.format(column_number)] = pc.coalesce(*values_by_stream)
        return key_columns | tuple_columns

    def schema(self, schema_before: pa.Schema) -> pa.Schema:
        """Return the schema of the rows that leave, by that of the rows of the stage before."""
        no_rows = pa.RecordBatch.from_pylist([], schema=schema_before)
        columns = self._columns(no_rows)
        fields = [pa.field(name, column.type) for name, column in columns.items()]
        return pa.schema([*fields, pa.field(ANCHOR, HELD_TYPE)])

    def _report(
        self,
        held_batches: list[HeldBatch],
        refused_count_by_number: Mapping[int, int],
        received: Fingerprint,
    ) -> TaskReport:
        """Return the report of the task: what it holds, and the roots of refused tuples.

        Args:
            held_batches: of all rows of the task.
            refused_count_by_number: how many tuples of a subscription were refused, by its number.
            received: the fingerprint of all rows that the task received.
        """
        error = TupleError(
            f"a tuple for {self.bolt!r}, a KeyedBolt, is anchored on tuples of several records, and a keyed"
            " bolt holds tuples of one: anchor it on one of them, or hold and join them in the keyed bolt"
        )
        cause = cause_of(self.bolt, error)
        failed_counts: dict[Counted, Measure] = {}
        for number, refused_count in refused_count_by_number.items():
            counted = Counted(What.FAILED, self.bolt, self.streams[number].id)
            failed_counts[counted] = Measure(refused_count)
        no_roots = np.empty(0, np.int64)  # so that no batch at all is no error
        lost_roots = np.concatenate([no_roots, *(batch.lost_roots for batch in held_batches)])
        failed_roots = roots_of(PLANNED, lost_roots)
        failed_marks = RootMarks.of_roots(RootMark.FAILED, failed_roots, cause=cause)
        return TaskReport(
            operator=entry_operator_name(self.bolt),
            upstream=self.upstream,
            received_fingerprint=received,
            counts=failed_counts,
            marks=RootMarks.together([*(batch.marks for batch in held_batches), failed_marks]),
        )


def keyed_streams(layout: Layout, stage: StagePass) -> dict[int, KeyedStream]:
    """Return the streams that a keyed bolt reads, by the numbers of its subscriptions."""
    streams: dict[int, KeyedStream] = {}
    for number, arrival in stage.arrival_by_number.items():
        stream = arrival.stream
        fields = tuple(stream.schema.names)
        key_fields = layout.routes[number].subscription.fields
        streams[number] = KeyedStream(stream.id, stream.column, fields, key_fields)
    return streams


def attach_keyed_bolt(
    rows: DataFrame,
    stage_before: StagePass,
    entry_task: EntryTask,
    bolt: KeyedBolt,
    stage: StagePass,
) -> DataFrame:
    """Return the rows that leave a keyed bolt's stage; `rows` are those of the stage before.

    1. The entry task gives each tuple its key and its anchor.
    2. Spark calls the bolt for each key, and has the rows in which it emits and reports.
    3. The exit task reports for it, and runs the bolts behind it.
    """
    if stage.keyed_stream is None:
        raise TypeError(f"stage {stage.name} is no keyed bolt's")
    # step 1
    # empty where nothing is tracked
    plan_label = ""
    if entry_task.accumulator is not None:
        plan_label = label(entry_operator_name(entry_task.bolt))
    held = through(rows, entry_task, entry_task.schema(stage_before.schema), plan_label)
    # step 2
    key_paths = {}
    for stream in entry_task.streams.values():
        key_paths[stream.column] = [(field,) for field in stream.key_fields]
    reported_rows = rows_reported_by_keyed_bolt(
        held,
        entry_task.bolt,
        bolt,
        stage.keyed_stream.schema,
        streams={stream.column: stream.id for stream in entry_task.streams.values()},
        key_paths=key_paths,
    )
    # step 3
    return with_keyed_stage(reported_rows, entry_task.bolt, stage)


def _numbers(column: pa.Array) -> I64:
    """Return a column as an array, with 0 in place of its nulls."""
    return np.asarray(column.fill_null(0), dtype=np.int64)
