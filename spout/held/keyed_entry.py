"""How tuples of a topology reach its keyed bolt: Spark's state holds each with the edge of its delivery.

The last stage before the bolt passes its rows to this operator, which reports each tuple as outstanding. Only
the bolt acks it: when it settles the tuple in a later micro-batch, the same edge is contributed once more.
The edge is computed from the tuple's path from its root, so a stage that runs again writes the same edge to
the state store.

A tuple in the state has one anchor, so one root. If a tuple is anchored on several tuples of one root, its
edge is the sum of their edges. If it is anchored on tuples of several roots, all these roots fail. A tuple
without a root is held too, and is best effort.

Source: docs/design/protocol.md, sections 2 ("child edge") and 5.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from acker.errors import TupleError
from acker.identity import I64, U64, child_edges, root_edges
from spout.bolts.keyed_bolt import KeyedBolt
from spout.held.keyed_rows import keyed
from spout.publishing.delayed import NEVER_MS, Held, RootPositions
from spout.publishing.fold import TaskReport, failures_of
from spout.publishing.ledger import add
from spout.streaming.frames import new_identity, through
from spout.streaming.query_plan import label
from spout.topology.graph import Subscription
from spout.topology.stage_pass import StagePass, entry_of
from spout.tuples.anchor_columns import HELD_TYPE
from spout.tuples.anchors import Carry, Fingerprint, fingerprint_of
from spout.tuples.collector import SPARK, cause_of
from spout.tuples.columns import ANCHOR
from spout.tuples.counts import Counted, Counts, Measure, What
from spout.tuples.origins import ROOT

_WORD: Final = (1 << 32) - 1


class Entered(NamedTuple):
    """The result for one block of rows.

    Attributes:
        anchors: for each row the anchor for the state; null where it has no root, or several.
        held: roots, as indices into the batch's plan, and edges of the rows that have one root.
        refused: the rows with several roots.
        lost: the roots of the refused rows.
    """

    anchors: pa.Array
    held: Held
    refused: I64
    lost: I64


def entered(deliveries: pa.Array, roots: pa.Array) -> Entered:
    """Compute the anchors with which tuples are held.

    Args:
        deliveries: the places of each tuple in its trees, in the HOPS form of `spout.tuples.anchors`.
        roots: source and position of each tuple's root, in the form of `spout.tuples.origins`.
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
    """Return the edge of each delivery, uint64.

    Args:
        paths: lists of the root's index and the hops, in the HOPS form of `spout.tuples.anchors`.
        roots: source and position of each root.
    """
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
    """Unpacks the rows of the last stage in one task, gives each tuple its anchor, and reports it as
    outstanding.

    Attributes:
        bolt: the keyed bolt.
        upstream: name of the stage before.
        column: the column with the tuples.
        fields: their fields.
        stream: id of the `read_stream` call.
        ledger: the accumulator; None where nothing is tracked.
    """

    bolt: str
    upstream: str
    column: str
    fields: tuple[str, ...]
    stream: str
    ledger: Any

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give each tuple its anchor; report after the last one was taken."""
        took = Fingerprint()
        blocks: list[Entered] = []
        for batch in batches:
            took = took.plus(fingerprint_of(Carry.HOPS, batch.column(ANCHOR)))
            block = entered(batch.column(ANCHOR), batch.column(ROOT))
            columns = [*batch.column(self.column).flatten(), block.anchors]
            rows = pa.RecordBatch.from_arrays(columns, names=[*self.fields, ANCHOR])
            if len(block.refused):
                rows = rows.take(pa.array(np.setdiff1d(np.arange(rows.num_rows), block.refused)))
            yield rows
            blocks.append(block._replace(anchors=None))
        if self.ledger is not None:
            add(self.ledger, self.stream, self._report(blocks, took))

    def _report(self, blocks: list[Entered], took: Fingerprint) -> TaskReport:
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
            counts=self._refused(sum(len(block.refused) for block in blocks)),
            held=Held.together([block.held for block in blocks]),
        )

    def _refused(self, tuples: int) -> Counts:
        return {Counted(What.FAILED, self.bolt, SPARK): Measure(tuples)} if tuples else {}


def keyed_frame(
    rows: DataFrame, last: StagePass, reads: Subscription, bolt: KeyedBolt, stream: str, ledger: Any
) -> DataFrame:
    """Put a keyed bolt behind the rows of the last stage.

    Args:
        rows: the rows of the last stage.
        last: the last stage; its rows are all for the bolt.
        reads: the bolt's subscription.
        bolt: the keyed bolt.
        stream: id of the `read_stream` call.
        ledger: the accumulator; None where nothing is tracked.
    """
    [column] = [name for name in last.schema.names if name.startswith("s")]
    fields = last.schema.field(column).type
    names = tuple(fields.field(n).name for n in range(fields.num_fields))
    task = EntryTask(reads.consumer, last.name, column, names, stream, ledger)
    schema = pa.schema([*fields, pa.field(ANCHOR, HELD_TYPE)])
    named = "" if ledger is None else label(entry_of(reads.consumer), new_identity())
    held = through(rows, task, schema, named)
    return held.transform(keyed(bolt, by=reads.fields, name=reads.consumer))


def _numbers(column: pa.Array) -> I64:
    return np.asarray(column.fill_null(0), dtype=np.int64)
