"""How a DataFrame with bolts was built, kept beside it, so that one more bolt can be added to the same chain.

A `Node` describes a DataFrame that this package built, for as long as that object lives. An operator of Spark
returns a new object without a node; behind it, the metadata of the hidden column describes the anchors.

Source: docs/design/protocol.md, section 5.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from acker.errors import UsageError
from spout.bolts.groupings import Grouping
from spout.spark.connect_back import tried_twice
from spout.spark.private import logical_plan, spark_schema_of
from spout.streaming.application import Application, Stream
from spout.streaming.map_task import MapTask
from spout.streaming.options import BOLTS_OPTION, STREAM_OPTION, SealedStage, SourceOptions
from spout.streaming.query_plan import label, new_identity, refuse_limit, streams_read
from spout.streaming.source import WindhoverSource
from spout.topology.bundles import Bundling
from spout.topology.chain import Chain, Step
from spout.topology.stage_pass import StagePass
from spout.tuples.anchor_columns import ANCHORS, HELD, kinds_of
from spout.tuples.anchors import Carry
from spout.tuples.columns import ANCHOR, TASK


class UntrackedSource(WindhoverSource):
    """The same source under another name, by which a plan shows that nothing in it is tracked."""

    FORMAT = "windhover_untracked"


_METADATA = "windhover"


@dataclass(frozen=True, slots=True)
class Node:
    """How a DataFrame of this package is built.

    Attributes:
        stream: the `read_stream` call that its roots come from; None where nothing is tracked.
        options: the source with the chain inside it, when the rows come directly from the source.
        base: the rows that `chain` works on, when they come from elsewhere.
        chain: the last bolts; None for a bare source.
        names: those of all bolts up to here.
        id: distinguishes its chain from others, so that no two chains of a query have one name.
    """

    session: SparkSession
    stream: Stream | None
    options: SourceOptions | None = None
    base: DataFrame | None = None
    chain: Chain | None = None
    names: tuple[str, ...] = ()
    id: str = field(default_factory=new_identity)

    def frame(self, *, anchored: bool = False) -> DataFrame:
        node = self.carrying() if anchored else self
        rows = node.read()
        if anchored and node.stream is not None and ANCHOR in rows.columns:
            about = {
                "stream": node.stream.id,
                "carry": str(node.stream.carry if node.chain is None else node.chain.carry),
                # As text, since Spark stores numbers in metadata as doubles in some places.
                "subscriptions": ",".join(map(str, () if node.chain is None else node.chain.leaving)),
            }
            rows = rows.withMetadata(ANCHOR, {_METADATA: about})
        _NODES[rows] = self
        return rows

    def carrying(self, consumer: str = "") -> Node:
        """Let the rows carry their anchors; `consumer` is the bolt, if any, that receives them directly."""
        if self.stream is None:
            return self
        if self.chain is None:
            return replace(self, options=self.options and replace(self.options, anchored=True))
        packed = not self.chain.rich and self.chain.roots_arrive
        # A row that may be held needs only its root, no path: `spout.hold` computes a new edge for each row.
        has_root = not self.chain.rich and self.chain.arrives is not Carry.HOPS
        wide = self.stream.carry is Carry.WIDE and has_root and not consumer
        carry = self.stream.carry if packed or wide else Carry.HOPS
        node = self.with_chain(replace(self.chain, carry=carry, consumer=consumer))
        return replace(node, id=new_identity()) if consumer else node

    def with_chain(self, chain: Chain) -> Node:
        if self.options is None:
            return replace(self, chain=chain)
        return replace(self, chain=chain, options=narrowed(self.options, chain.stage))

    def extended(self, step: Step) -> Node:
        if self.chain is None:
            chain = Chain((step,), arrives=Carry.NONE if self.stream is None else self.stream.carry)
            return replace(self.with_chain(chain), names=(step.name,))
        return replace(
            self.with_chain(replace(self.chain, steps=(*self.chain.steps, step))),
            names=(*self.names, step.name),
            id=new_identity(),
        )

    def grouped(self, step: Step, grouping: Grouping) -> Node:
        """Put a bolt behind a shuffle; behind another bolt the rows cross it in bundles."""
        before = self.carrying(step.name)
        chain = before.chain
        if chain is None:
            return loose(grouping.apply(self.frame(anchored=True)), step)
        grouping.check(chain.steps[-1].schema.names)
        tasks = grouping.tasks(self.session)
        rows = before.with_chain(replace(chain, bundling=Bundling(tasks, grouping.fields))).read()
        behind = Chain(
            (step,),
            upstream="" if self.stream is None else chain.name,
            arrives=chain.carry,
            subscriptions=() if self.stream is None else chain.leaving,
            arriving=chain.schema,
        )
        base = rows.repartitionById(tasks, sql.col(TASK))
        return Node(self.session, self.stream, base=base, chain=behind, names=(*self.names, step.name))

    def read(self) -> DataFrame:
        """Let the chain work, within the source or behind other rows."""
        if self.options is None:
            return self._mapped()
        source = WindhoverSource if self.stream is not None else UntrackedSource
        source = source.of(self.options, Application.of(self.session).number_of(self.session))
        self.session.dataSource.register(source)
        reader = self.session.readStream.format(source.name())
        if self.stream is None:
            return tried_twice("loading the source", reader.load)
        if self.chain is not None:
            # all reads of one stream share this label: a source that is read twice is refused when its batch
            # is settled
            reader = reader.option(BOLTS_OPTION, label(self.chain.name, "source"))
        return tried_twice("loading the source", reader.option(STREAM_OPTION, self.stream.id).load)

    def _mapped(self) -> DataFrame:
        if self.base is None or self.chain is None:
            raise UsageError("these rows do not come from a bolt")
        task = MapTask(self.chain.stage)
        if self.stream is not None:
            ledger = Application.of(self.session).ledger.accumulator
            task = MapTask(self.chain.stage, self.stream.id, ledger, self.stream.safety)
        named = "" if self.stream is None else label(self.chain.name, self.id)
        return through(self.base, task, self.chain.stage.leaving, named)


_NODES: WeakKeyDictionary[DataFrame, Node] = WeakKeyDictionary()


def through(
    rows: DataFrame,
    task: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
    named: str = "",
) -> DataFrame:
    """Run a task over rows; `named`: its name in plans (`label`), empty where nothing is tracked."""

    # mapInArrow needs a function; plans show it under its name
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return task(batches)

    if named:
        run.__name__ = named
    return rows.mapInArrow(run, spark_schema_of(schema))


def narrowed(options: SourceOptions, stage: StagePass) -> SourceOptions:
    """Return source options with which a stage runs inside the source's read task."""
    return replace(options, narrow=SealedStage(stage), schema=spark_schema_of(stage.leaving))


def node_of(rows: DataFrame) -> Node | None:
    """Return how a DataFrame was built; None when the last operator was not one of this package."""
    return _NODES.get(rows)


def streams_behind(rows: DataFrame) -> list[Stream]:
    """Return the tracked streams of this application that a DataFrame reads."""
    streams = Application.of(rows.sparkSession).streams
    return [streams[each] for each in streams_read(rows) if each in streams]


def loose(rows: DataFrame, step: Step) -> Node:
    """Put a bolt on any DataFrame: behind Spark's own operators, or on rows of another source.

    Raises `UsageError`: the rows come from a tracked stream, and the hidden column was dropped on the way.
    """
    session = rows.sparkSession
    if ANCHOR not in rows.columns:
        if rows.isStreaming and streams_read(rows):
            raise UsageError(
                f"bolt {step.name!r} stands behind operators that dropped the hidden column {ANCHOR!r}, so"
                " what it fails could not be replayed: select it too"
                f' (.select("value", "{ANCHOR}")), make the bolt before it with bolt(..., anchored=True), or'
                " put this bolt directly behind that one"
            )
        return Node(session, None, base=rows, chain=Chain((step,)), names=(step.name,))
    stream, carry, subscriptions = hidden_column(rows, step.name)
    refuse_limit(logical_plan(rows))
    stream.loose.add(step.name)
    chain = Chain((step,), arrives=carry, subscriptions=subscriptions)
    return Node(session, stream, base=rows, chain=chain, names=(step.name,))


def hidden_column(rows: DataFrame, name: str) -> tuple[Stream, Carry, tuple[int, ...]]:
    """Read the hidden column's metadata: the stream, how anchors arrive, the subscriptions on their paths.

    Raises `UsageError`, for the `name` of an operator: the metadata is missing, or the rows are held.
    """
    if {HELD, ANCHORS}.intersection(kinds_of(rows)):
        raise UsageError(
            f"{name!r} stands behind spout.hold, where tuples wait for a later batch: give a bolt to what"
            " acks them, .transform(spout.ack_anchors(bolt)), or put it before the hold"
        )
    about = (rows.schema[ANCHOR].metadata or {}).get(_METADATA, {}) if ANCHOR in rows.columns else {}
    stream = Application.of(rows.sparkSession).streams.get(about.get("stream", ""))
    if stream is None:
        raise UsageError(
            f"bolt {name!r}: the column {ANCHOR!r} lost what describes it; keep it as it is, neither"
            " computed nor renamed"
        )
    subscriptions = tuple(int(key) for key in about["subscriptions"].split(",") if key)
    return stream, Carry(about["carry"]), subscriptions
