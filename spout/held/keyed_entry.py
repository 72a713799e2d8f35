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
from spout.publishing.delayed import NEVER_MS, Held, RootPositions
from spout.publishing.fold import TaskReport, failures_of
from spout.publishing.ledger import add
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
        held: roots, as indices into the batch's plan, and edges of the rows that have one root.
        refused: the rows with several roots; `lost`: those roots.
    """

    anchors: pa.Array
    held: Held
    refused: I64
    lost: I64


def entered(deliveries: pa.Array, roots: pa.Array) -> Entered:
    """Compute the anchors with which tuples are held.

    Args:
        deliveries: the places of each tuple in its trees, in the HOPS form of `spout.tuples.anchors`.
        roots: source and position of each tuple's root, in the form of `spout.tuples.columns`.
    """
    has_root = np.asarray(roots.is_valid())
    of_row = np.asarray(pc.list_parent_indices(deliveries), dtype=np.int64)
    paths = deliveries.flatten()
    firsts = np.asarray(pc.list_element(paths, 0), dtype=np.int64)
    kept = has_root[of_row]
    places = RootPositions(_numbers(roots.field("source")), _numbers(roots.field("position")))
    own = RootPositions(places.sources[of_row[kept]], places.positions[of_row[kept]])
    edges = np.zeros(len(roots), np.uint64)
    np.bitwise_xor.at(edges, of_row[kept], edges_of(paths.filter(pa.array(kept)), own))
    indices = np.zeros(len(roots), np.int64)
    indices[of_row[kept]] = firsts[kept]
    columns = [pa.array(places.sources), pa.array(places.positions), pa.array(edges.view(np.int64))]
    held = Held(indices[has_root], edges[has_root], np.full(int(has_root.sum()), NEVER_MS, np.int64))
    return Entered(
        pa.StructArray.from_arrays(columns, fields=list(HELD_TYPE), mask=pa.array(~has_root)),
        held,
        np.unique(of_row[~kept]),
        np.unique(firsts[~kept]),
    )


def edges_of(paths: pa.Array, roots: RootPositions) -> U64:
    """Return the edge of each delivery, `(n,) uint64`, of their paths in the HOPS form and their roots."""
    edges = np.empty(len(paths), np.uint64)
    for source, rows in roots.by_source():
        edges[rows] = root_edges(source, roots.positions[rows])
    widths = np.asarray(paths.value_lengths(), dtype=np.int64)
    for depth in range(1, int(widths.max(initial=0))):
        deep = np.flatnonzero(widths > depth)
        hops = np.asarray(pc.list_element(paths.take(pa.array(deep)), depth), dtype=np.int64)
        subscriptions = hops >> 32 & _WORD
        for subscription in np.unique(subscriptions).tolist():
            here = subscriptions == subscription
            edges[deep[here]] = child_edges(edges[deep[here]], subscription, hops[here] & _WORD)
    return edges


@dataclass(frozen=True, slots=True)
class EntryTask:
    """Gives each tuple of the last stage in one task its anchor, and reports it as outstanding.

    Attributes:
        streams: what the bolt reads, by the number of its subscription.
        ledger: the accumulator; None where nothing is tracked.
    """

    bolt: str
    upstream: str
    streams: Mapping[int, KeyedStream]
    stream: str
    ledger: Any

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give each tuple its anchor; report after the last one was taken."""
        took = Fingerprint()
        blocks: list[Entered] = []
        refused: Counter[int] = Counter()
        for batch in batches:
            took = took.plus(fingerprint_of(Carry.HOPS, batch.column(ANCHOR)))
            block = entered(batch.column(ANCHOR), batch.column(ROOT))
            columns = {**self._columns(batch), ANCHOR: block.anchors}
            rows = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
            if len(block.refused):
                refused.update(batch.column(TO).take(pa.array(block.refused)).to_pylist())
                rows = rows.take(pa.array(np.setdiff1d(np.arange(rows.num_rows), block.refused)))
            yield rows
            blocks.append(block._replace(anchors=None))
        if self.ledger is not None:
            add(self.ledger, self.stream, self._report(blocks, refused, took))

    def _columns(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return the key beside the tuples of each stream, which are null in the rows of the others."""
        streams = list(self.streams.values())
        tuples = {each.column: batch.column(each.column) for each in streams}
        if not streams[0].key:
            return {ONE_KEY: pa.repeat(pa.scalar(0, pa.int8()), batch.num_rows)} | tuples
        keys = zip(*(each.key for each in streams), strict=True)
        found = {
            KEY.format(n): pc.coalesce(
                *(
                    pc.struct_field(batch.column(each.column), name)
                    for each, name in zip(streams, names, strict=True)
                )
            )
            for n, names in enumerate(keys)
        }
        return found | tuples

    def schema(self, last: pa.Schema) -> pa.Schema:
        """Return the columns that leave, by those of the last stage."""
        nothing = pa.RecordBatch.from_pylist([], schema=last)
        columns = [pa.field(name, column.type) for name, column in self._columns(nothing).items()]
        return pa.schema([*columns, pa.field(ANCHOR, HELD_TYPE)])

    def _report(self, blocks: list[Entered], refused: Mapping[int, int], took: Fingerprint) -> TaskReport:
        error = TupleError(
            f"a tuple for {self.bolt!r}, a KeyedBolt, is anchored on tuples of several records, and a keyed"
            " bolt holds tuples of one: anchor it on one of them, or hold and join them in the keyed bolt"
        )
        cause = cause_of(self.bolt, error)
        return TaskReport(
            operator=entry_of(self.bolt),
            upstream=self.upstream,
            failures=failures_of([(root, cause) for block in blocks for root in block.lost.tolist()]),
            took=took,
            counts={
                Counted(What.FAILED, self.bolt, self.streams[number].id): Measure(tuples)
                for number, tuples in refused.items()
            },
            held=Held.together([block.held for block in blocks]),
        )


def keyed_streams(plan: Layout, stage: StagePass) -> dict[int, KeyedStream]:
    """Return what the keyed bolt of a stage reads, by the number of its subscription."""
    return {
        number: KeyedStream(
            arrival.stream.id,
            arrival.stream.column,
            tuple(arrival.stream.schema.names),
            plan.routes[number].subscription.fields,
        )
        for number, arrival in stage.arrivals.items()
    }


def keyed_frame(
    rows: DataFrame, last: StagePass, task: EntryTask, bolt: KeyedBolt, stage: StagePass
) -> DataFrame:
    """Put a keyed bolt, and the bolts of its stage, behind the rows of the stage before."""
    named = "" if task.ledger is None else label(entry_of(task.bolt))
    held = through(rows, task, task.schema(last.schema), named)
    if stage.keyed is None:
        raise TypeError(f"stage {stage.name} is no keyed bolt's")
    streams = {each.column: each.id for each in task.streams.values()}
    keys = {each.column: each.key for each in task.streams.values()}
    by_key = held_by_key(held, task.bolt, bolt, stage.keyed.schema, streams, keys)
    return behind_keyed(by_key, task.bolt, stage)


def _numbers(column: pa.Array) -> I64:
    return np.asarray(column.fill_null(0), dtype=np.int64)
