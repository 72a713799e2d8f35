"""How a DataFrame with bolts was built, so that one more bolt can be added to its chain.

A `Node` describes a DataFrame that this package built, for as long as that object lives. An
operator of Spark returns a new object without a node; behind it, the metadata of the hidden
column describes the anchors. A *chain* is the bolts that run in one Python pass; its `AnchorForm`
says
how rows have their anchors, on arrival (`arriving_form`) and when they leave (`leaving_form`).

Source: docs/design/protocol.md, section 5.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from acker.errors import UsageError
from spout.bolts.groupings import Grouping
from spout.spark.arrow_types import spark_schema_of
from spout.spark.connect_back import tried_twice
from spout.spark.private import logical_plan
from spout.spark.renamed import to_partitions
from spout.streaming.application import Application, Stream
from spout.streaming.map_task import MapTask
from spout.streaming.options import BOLTS_OPTION, STREAM_OPTION, SealedStage, SourceOptions
from spout.streaming.query_plan import label, new_identity, refuse_limit, streams_read
from spout.streaming.source import WindhoverSource
from spout.topology.bundles import Bundling
from spout.topology.chain import Chain, Step
from spout.topology.stage_pass import StagePass
from spout.tuples.anchor_columns import ANCHORS, HELD, anchor_types_of
from spout.tuples.anchors import AnchorForm
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
        names: the names of all bolts up to this node.
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
        """Build the DataFrame.

        `anchored`: its rows have the hidden column, if anything is tracked.
        """
        node = self.carrying() if anchored else self
        rows = node.read()
        if anchored and node.stream is not None and ANCHOR in rows.columns:
            # what a bolt behind Spark's own operators has to know of the column (`hidden_column`)
            leaving_form = node.stream.root_form
            subscriptions: tuple[int, ...] = ()
            if node.chain is not None:
                leaving_form = node.chain.leaving_form
                subscriptions = node.chain.emitted_subscriptions
            metadata = {
                "stream": node.stream.id,
                "carry": str(leaving_form),
                # As text, since Spark stores numbers in metadata as doubles in some places.
                "subscriptions": ",".join(map(str, subscriptions)),
            }
            rows = rows.withMetadata(ANCHOR, {_METADATA: metadata})
        # the node as it was: the next bolt extends a chain that carries no anchors yet
        _NODES[rows] = self
        return rows

    def carrying(self, consumer: str = "") -> Node:
        """Return a node whose rows have their anchors; the same node where nothing is tracked.

        `consumer` is the bolt that receives the rows directly; empty: Spark's own operators do.
        """
        if self.stream is None:
            return self
        if self.chain is None:
            options = None if self.options is None else replace(self.options, anchored=True)
            return replace(self, options=options)
        # 1. the form of the anchors: that of the stream's roots, or hops, a path for each row
        is_by_row = not self.chain.has_rich_bolts  # so a row descends from the row that arrived
        receives_roots = is_by_row and self.chain.roots_arrive
        # A row that may be held needs only its root, no path: `spout.hold` computes a new edge
        # for each row.
        has_root = is_by_row and self.chain.arriving_form is not AnchorForm.HOPS
        may_be_held = self.stream.root_form is AnchorForm.WIDE and has_root and not consumer
        leaving_form = AnchorForm.HOPS
        if receives_roots or may_be_held:
            leaving_form = self.stream.root_form
        # 2. the chain in that form
        node = self.with_chain(replace(self.chain, leaving_form=leaving_form, consumer=consumer))
        # one DataFrame may go to several consumers: the chain to each gets an id of its own
        return replace(node, id=new_identity()) if consumer else node

    def with_chain(self, chain: Chain) -> Node:
        """Return a node with another chain; it runs inside the source if its rows come from there."""
        if self.options is None:
            # its rows come from elsewhere: the chain runs behind them
            return replace(self, chain=chain)
        return replace(self, chain=chain, options=narrowed(self.options, chain.stage))

    def extended(self, step: Step) -> Node:
        """Return a node with one more bolt, which receives the rows without a shuffle."""
        if self.chain is None:
            # the first bolt: its rows arrive as the source hands them out
            root_form = AnchorForm.NONE if self.stream is None else self.stream.root_form
            first_chain = Chain((step,), arriving_form=root_form)
            return replace(self.with_chain(first_chain), names=(step.name,))
        longer_chain = replace(self.chain, steps=(*self.chain.steps, step))
        # a new id, since the shorter chain may be used beside the longer one
        return replace(
            self.with_chain(longer_chain),
            names=(*self.names, step.name),
            id=new_identity(),
        )

    def grouped(self, step: Step, grouping: Grouping) -> Node:
        """Return a node with one more bolt behind a shuffle.

        The rows of a bolt cross it in bundles: what one task has for another task is one row.
        """
        # 1. the bolt before, whose rows leave with their anchors
        producer = self.carrying(consumer=step.name)
        producer_chain = producer.chain
        if producer_chain is None:
            # behind a bare source Spark shuffles its rows one by one
            return node_behind_spark(grouping.apply(self.frame(anchored=True)), step)
        grouping.check(producer_chain.steps[-1].schema.names)
        # 2. its rows in bundles, one for each task of the bolt behind
        tasks = grouping.tasks(self.session)
        bundling = Bundling(tasks, grouping.fields)
        bundles = producer.with_chain(replace(producer_chain, bundling=bundling)).read()
        # 3. the bolt behind, in a chain of its own
        is_tracked = self.stream is not None
        consumer_chain = Chain(
            (step,),
            upstream=producer_chain.name if is_tracked else "",
            arriving_form=producer_chain.leaving_form,
            subscriptions=producer_chain.emitted_subscriptions if is_tracked else (),
            arriving_schema=producer_chain.schema,
        )
        # the column TASK of a bundle has the number of the partition to which it goes
        base = to_partitions(bundles, tasks, TASK)
        names = (*self.names, step.name)
        return Node(self.session, self.stream, base=base, chain=consumer_chain, names=names)

    def read(self) -> DataFrame:
        """Return the rows of the chain, which runs inside the source or behind other rows."""
        if self.options is None:
            return self._rows_behind_base()
        source_kind = WindhoverSource if self.stream is not None else UntrackedSource
        session_number = Application.of(self.session).number_of(self.session)
        source = source_kind.of(self.options, session_number)
        self.session.dataSource.register(source)
        reader = self.session.readStream.format(source.name())
        # nothing is tracked, so nobody reads labels and ids from the plan
        if self.stream is None:
            return tried_twice("loading the source", reader.load)
        if self.chain is not None:
            # the identity is "source" in every plan: so a query that reads one stream twice is not
            # refused by its labels, and is refused when its batch is settled
            reader = reader.option(BOLTS_OPTION, label(self.chain.name, "source"))
        reader = reader.option(STREAM_OPTION, self.stream.id)
        return tried_twice("loading the source", reader.load)

    def _rows_behind_base(self) -> DataFrame:
        """Return the rows of a chain that runs behind `base`.

        Raises `UsageError`: there are no such rows, or no bolt works on them.
        """
        if self.base is None or self.chain is None:
            raise UsageError("these rows do not come from a bolt")
        stage = self.chain.stage
        if self.stream is None:
            return through(self.base, MapTask(stage), stage.leaving_schema)
        ledger = Application.of(self.session).ledger.accumulator
        task = MapTask(stage, self.stream.id, ledger, self.stream.safety)
        return through(self.base, task, stage.leaving_schema, label(self.chain.name, self.id))


_NODES: WeakKeyDictionary[DataFrame, Node] = WeakKeyDictionary()


def through(
    rows: DataFrame,
    run_task: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
    plan_label: str = "",
) -> DataFrame:
    """Return the rows that a function makes of `rows`, task by task; they have `schema`.

    Args:
        run_task: gets the batches of one task of Spark, and yields those that leave it.
        plan_label: the function's name in plans (`label`); empty: Spark shows `run`.
    """

    # mapInArrow needs a function, whose name plans show; `run_task` may be an object that is called
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_task(batches)

    if plan_label:
        run.__name__ = plan_label
    return rows.mapInArrow(run, spark_schema_of(schema))


def narrowed(options: SourceOptions, stage: StagePass) -> SourceOptions:
    """Return source options with which a stage runs inside the source's read task."""
    return replace(options, sealed_stage=SealedStage(stage), schema=spark_schema_of(stage.leaving_schema))


def node_of(rows: DataFrame) -> Node | None:
    """Return how a DataFrame was built; None when the last operator was not one of this package."""
    return _NODES.get(rows)


def streams_behind(rows: DataFrame) -> list[Stream]:
    """Return the tracked streams of this application that a DataFrame reads."""
    streams = Application.of(rows.sparkSession).streams
    return [streams[stream_id] for stream_id in streams_read(rows) if stream_id in streams]


def node_behind_spark(rows: DataFrame, step: Step) -> Node:
    """Return a node for a bolt on rows that this package did not build.

    They come from Spark's own operators, or from another source. Raises `UsageError`: they come
    from a tracked stream, and the hidden column was dropped on the way.
    """
    session = rows.sparkSession
    if ANCHOR not in rows.columns:
        # rows of a batch query are not tracked, so they need no hidden column
        if rows.isStreaming and streams_read(rows):
            raise UsageError(
                f"bolt {step.name!r} stands behind operators that dropped the hidden column"
                f" {ANCHOR!r}, so what it fails could not be replayed: select it too"
                f' (.select("value", "{ANCHOR}")), make the bolt before it with bolt(..., anchored=True), or'
                " put this bolt directly behind that one"
            )
        return Node(session, stream=None, base=rows, chain=Chain((step,)), names=(step.name,))
    stream, anchor_form, subscriptions = hidden_column(rows, step.name)
    # a limit before this bolt would ack what it cuts off
    refuse_limit(logical_plan(rows))
    stream.names_behind_spark.add(step.name)
    chain = Chain((step,), arriving_form=anchor_form, subscriptions=subscriptions)
    return Node(session, stream, base=rows, chain=chain, names=(step.name,))


def hidden_column(rows: DataFrame, operator: str) -> tuple[Stream, AnchorForm, tuple[int, ...]]:
    """Read the hidden column's metadata.

    Return the stream, how rows have their anchors, and the keys of the subscriptions on the
    anchors' paths; empty: the rows are roots.

    Raises `UsageError`, which names the `operator` that is to receive the rows: the metadata is
    missing, or the rows are held.
    """
    if {HELD, ANCHORS}.intersection(anchor_types_of(rows)):
        raise UsageError(
            f"{operator!r} stands behind spout.hold, where tuples wait for a later batch: give"
            " a bolt to what acks them, .transform(spout.ack_anchors(bolt)), or put it before"
            " the hold"
        )
    metadata: Mapping[str, str] = {}
    if ANCHOR in rows.columns:
        metadata = (rows.schema[ANCHOR].metadata or {}).get(_METADATA, {})
    stream = Application.of(rows.sparkSession).streams.get(metadata.get("stream", ""))
    if stream is None:
        raise UsageError(
            f"bolt {operator!r}: the column {ANCHOR!r} lost what describes it; keep it as it"
            " is, neither computed nor renamed"
        )
    subscriptions = tuple(int(key) for key in metadata["subscriptions"].split(",") if key)
    return stream, AnchorForm(metadata["carry"]), subscriptions
