"""One stage as its tasks get it: bolts, streams, who reads them, and columns between stages.

A *pass* is one run of a stage's bolts over the rows of a task; the classes here say what it has to
do. A chain of bolts on a DataFrame is a stage too (`spout.topology.chain`), with the DataFrame's
own columns. A bolt is *keyed* if it holds tuples by key across micro-batches.

Between two stages a row is one delivery (or one tuple for the sink). Rows travel in bundles
(`spout.topology.bundles`), those before a keyed bolt one by one:

``_to``
    The number of the subscription, or of the sink's output, that it belongs to.
``_task``
    The task that it goes to.
``_windhover``
    Its places in its trees (`spout.tuples.anchors.hops_column`).
``_root`` Before a keyed bolt: source and position of the root, which mean something behind the
    batch too. Null where the row has no root, or several.
``s0``, ``s1``, …
    One struct for each stream that goes on; null in all rows of other streams.

The last stage returns the rows of the sink: bare columns where it gets one stream, else ``_to``
and a struct for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from spout.bolts.bolts import AnyBolt, ArrowBolt
from spout.bolts.collectors import EmittedStream, Outlet
from spout.bolts.hooks import TaskHook
from spout.topology.bundles import BUNDLES, Bundling, PlacedRows, unbundled, unbundled_with_places
from spout.topology.stages import Layout, Route, SinkOutput
from spout.tuples.anchors import PATHS_TYPE, AnchorForm
from spout.tuples.casts import has_not_null
from spout.tuples.columns import ANCHOR, COLUMN, ROOT, ROOT_TYPE, TASK, TO
from spout.tuples.tuple import StreamId


@dataclass(frozen=True, slots=True)
class StreamPass:
    """A stream in a stage that emits it.

    Attributes:
        id: component and name.
        schema: its fields, as Arrow types.
        column: the column that holds its tuples on their way to a later stage, or to one of
            several outputs.
        routes: its subscriptions, and in which stage each is read.
        outputs: under which numbers the sink gets it; none: it does not.
        direct: whether its emitter names the task that gets a tuple (direct grouping).
        on_frame: whether its bolt works on a DataFrame, where it has no other stream.
        is_read_by_arrow_bolt: whether an `ArrowBolt` of the same stage reads it.
    """

    id: StreamId
    schema: pa.Schema
    column: str
    routes: tuple[Route, ...]
    outputs: tuple[SinkOutput, ...] = ()
    direct: bool = False
    on_frame: bool = False
    is_read_by_arrow_bolt: bool = False

    @property
    def emitted_stream(self) -> EmittedStream:
        """Return what the collector needs to know of it."""
        outlets = tuple(
            Outlet(route.subscription.key, route.tasks, route.receiving_tasks) for route in self.routes
        )
        return EmittedStream(tuple(self.schema.names), outlets, self.direct, self.on_frame)

    @property
    def delivery_count(self) -> int:
        """Return to how many tasks of bolts each of its tuples goes."""
        # a chain's last bolt has a route without a consumer, where Spark's operators read it
        return sum(route.receiving_tasks for route in self.routes if route.subscription.consumer)

    @property
    def leaves_task(self) -> bool:
        """Return whether its tuples leave the task: for a later stage, or for the sink."""
        return bool(self.outputs) or any(not route.stays_in_task for route in self.routes)

    @property
    def needs_arrow_rows(self) -> bool:
        """Return whether its tuples become Arrow rows, so that each of them must fit its types.

        Those of a stream that says NOT NULL always do, since nobody else would find a null.
        """
        return self.is_read_by_arrow_bolt or self.leaves_task or any(map(has_not_null, self.schema))


@dataclass(frozen=True, slots=True)
class BoltPass:
    """A bolt in its stage.

    Attributes:
        streams: what it emits, by the streams' names.
        tasks: in how many of the stage's tasks it runs; 0: in all.
        hooks: what watches it.
    """

    name: str
    bolt: AnyBolt
    streams: Mapping[str, StreamPass]
    tasks: int
    hooks: tuple[TaskHook, ...] = ()


class Arrival(NamedTuple):
    """Rows that arrive under a number in ``_to``: their stream, and the bolt that reads it."""

    consumer: str
    stream: StreamPass


@dataclass(frozen=True, slots=True)
class Frame:
    """How rows of a DataFrame enter a stage and leave it: with columns of their own, for its first bolt.

    Attributes:
        came_from: the stream of which the rows are.
        arriving_form, subscriptions, roots_arrive, leaving_form: as in
        `spout.topology.chain.Chain`.
        entry_key: key of the subscription on which Spark's operators deliver tuples, which they may
            drop or repeat; 0: what arrives is of the source, or of another chain of bolts.
        by_row: whether every bolt acks or fails a tuple before its call returns: then it is enough
            to know from which row each tuple descends (`spout.tuples.places.Descendants`).
    """

    came_from: StreamId
    arriving_form: AnchorForm
    subscriptions: tuple[int, ...]
    roots_arrive: bool
    entry_key: int
    leaving_form: AnchorForm
    by_row: bool


@dataclass(frozen=True, slots=True)
class StagePass:
    """What the tasks of one stage do.

    Attributes:
        name: its components, joined by ``+``; the first identifies it.
        bolts: producers before their consumers.
        spouts: in the first stage the spouts' streams, by the id of each input; empty in others.
        arriving_schema: of the rows that arrive in bundles; None: they arrive one by one.
        bundling: how the rows that leave are put into bundles; None: they leave one by one.
        keyed_stream: in the stage of a keyed bolt the stream that it emits; the other bolts of the
            stage are behind it. None: it is no such stage.
        is_behind_keyed: whether it is a keyed bolt's stage, or behind one: its roots are named
            by numbers (`spout.publishing.root_marks.NUMBERED`).
        arrival_by_number: in stages behind the first one what arrives for its own bolts, by the
            number in ``_to``.
        passing_streams: in the last stage the sink's outputs that earlier stages emit, by the
            number in ``_to``.
        schema: Arrow schema of the rows that leave.
        tasks: how many tasks each bolt of the topology has, for `BoltContext.tasks`.
        tracked: whether tuples are acked and failed.
        is_last: whether its rows are the sink's.
        upstream: name of the stage before, or empty.
        consumer: first component of the stage behind, or empty.
        frame: where the bolts work on a DataFrame: how rows come and leave; None in a topology.
    """

    name: str
    bolts: tuple[BoltPass, ...]
    schema: pa.Schema
    tracked: bool
    is_last: bool
    spouts: Mapping[int, StreamPass] = field(default_factory=dict)
    arrival_by_number: Mapping[int, Arrival] = field(default_factory=dict)
    passing_streams: Mapping[int, StreamPass] = field(default_factory=dict)
    tasks: Mapping[str, int] = field(default_factory=dict)
    upstream: str = ""
    consumer: str = ""
    frame: Frame | None = None
    arriving_schema: pa.Schema | None = None
    bundling: Bundling | None = None
    keyed_stream: StreamPass | None = None
    is_behind_keyed: bool = False

    @property
    def leaving_schema(self) -> pa.Schema:
        """Return the schema of what leaves: of bundles, or of the rows themselves."""
        return self.schema if self.bundling is None else BUNDLES

    def arriving_rows(self, batch: pa.RecordBatch) -> Iterator[PlacedRows]:
        """Return the rows that arrive in a batch of Spark's, taken out of their bundles.

        On a DataFrame they get their column of anchors back. In a topology their places stay beside
        them; rows whose bundle has no places keep the column.
        """
        if self.arriving_schema is None:  # no bundles: they arrive one by one
            return iter((PlacedRows(batch),))
        if self.frame is not None:
            return map(PlacedRows, unbundled(batch, self.arriving_schema))
        return unbundled_with_places(batch, self.arriving_schema)

    @property
    def carries_roots(self) -> bool:
        """Return whether the rows that leave name source and position of their roots."""
        return not self.is_last and ROOT in self.schema.names

    @property
    def has_bare_rows(self) -> bool:
        """Return whether the rows that leave have the columns of the only output, and no more."""
        return self.is_last and self.leaving_form is AnchorForm.NONE and TO not in self.schema.names

    @property
    def leaving_form(self) -> AnchorForm:
        """Return the form in which the rows that leave have their anchors."""
        if self.frame is not None:
            return self.frame.leaving_form
        return AnchorForm.NONE if self.is_last else AnchorForm.HOPS


@dataclass(frozen=True, slots=True)
class Parts:
    """What `passes_of` needs besides the layout: the bolts, and what their streams look like.

    Attributes:
        bolts: each bolt, by its name.
        schemas: the Arrow schema of each stream.
        inputs: the ids of the inputs that each spout reads, by the spout's name.
        hooks: what watches every bolt.
        tracked: whether tuples are acked and failed.
    """

    bolts: Mapping[str, AnyBolt]
    schemas: Mapping[StreamId, pa.Schema]
    inputs: Mapping[str, tuple[int, ...]]
    hooks: tuple[TaskHook, ...] = ()
    tracked: bool = True


def passes_of(layout: Layout, parts: Parts) -> tuple[StagePass, ...]:
    """Return what the tasks of each stage do, by the stage's number.

    In the stage of a keyed bolt, Spark's own operator calls that bolt; the result has the bolts
    behind it.
    """
    streams: dict[StreamId, StreamPass] = {}
    for number, stream_id in enumerate(parts.schemas):
        streams[stream_id] = _stream_pass(layout, parts, stream_id, number)
    stage_names = ["+".join(components) for components in layout.stages]
    tasks_by_bolt = _tasks_by_bolt(layout, parts)
    passes: list[StagePass] = []
    for stage, components in enumerate(layout.stages):
        is_last = stage + 1 == len(layout.stages)
        is_keyed = stage == layout.keyed_stage
        # rows for a keyed bolt go one by one, since Spark groups them by key
        is_before_keyed = stage + 1 == layout.keyed_stage
        arrives_in_bundles = stage > 0 and not is_keyed
        bundling = None
        if not is_last and not is_before_keyed:
            bundling = Bundling(tasks=layout.partitions[stage + 1])
        passes.append(
            StagePass(
                name=stage_names[stage],
                bolts=tuple(_bolts(layout, parts, streams, components)),
                spouts=_spout_streams(parts, streams, components),
                arrival_by_number=_arrivals(layout, streams, stage),
                passing_streams=_passing_outputs(layout, streams, stage) if is_last else {},
                schema=_schema_leaving(layout, streams, stage),
                tasks=tasks_by_bolt,
                tracked=parts.tracked,
                is_last=is_last,
                upstream=stage_names[stage - 1] if arrives_in_bundles else "",
                consumer="" if is_last else _consumer(layout, stage + 1),
                arriving_schema=passes[-1].schema if arrives_in_bundles else None,
                bundling=bundling,
                keyed_stream=streams[StreamId(layout.keyed_bolt)] if is_keyed else None,
                is_behind_keyed=0 <= layout.keyed_stage <= stage,  # it is -1 without a keyed bolt
            )
        )
    return tuple(passes)


def _tasks_by_bolt(layout: Layout, parts: Parts) -> dict[str, int]:
    """Return how many tasks each bolt has: its own number, or that of its stage.

    0: Spark decides, which is so in the first stage. The keyed bolt is left out.
    """
    tasks: dict[str, int] = {}
    for stage, components in enumerate(layout.stages):
        for name in components:
            if name in parts.bolts:
                tasks[name] = layout.tasks[name] or layout.partitions[stage]
    return tasks


def _bolts(
    layout: Layout, parts: Parts, streams: Mapping[StreamId, StreamPass], components: Iterable[str]
) -> Iterator[BoltPass]:
    """Yield the bolts of a stage, each with its own streams by their names."""
    for name in components:
        if name not in parts.bolts:  # a spout, or the keyed bolt, which Spark calls
            continue
        own_streams: dict[str, StreamPass] = {}
        for stream_id, stream in streams.items():
            if stream_id.component == name:
                own_streams[stream_id.stream] = stream
        yield BoltPass(name, parts.bolts[name], own_streams, layout.tasks[name], parts.hooks)


def _spout_streams(
    parts: Parts, streams: Mapping[StreamId, StreamPass], components: Iterable[str]
) -> dict[int, StreamPass]:
    """Return the streams on which a stage's spouts emit, by the id of the input."""
    streams_by_input: dict[int, StreamPass] = {}
    for name in components:
        for input_id in parts.inputs.get(name, ()):  # a bolt reads none
            streams_by_input[input_id] = streams[StreamId(name)]
    return streams_by_input


def _arrivals(layout: Layout, streams: Mapping[StreamId, StreamPass], stage: int) -> dict[int, Arrival]:
    """Return what arrives for the bolts of a stage from earlier ones, by the route's number."""
    arrivals: dict[int, Arrival] = {}
    for route in layout.routes:
        if route.first_stage < stage == route.last_stage:
            subscription = route.subscription
            arrivals[route.number] = Arrival(subscription.consumer, streams[subscription.producer])
    return arrivals


def _passing_outputs(
    layout: Layout, streams: Mapping[StreamId, StreamPass], last_stage: int
) -> dict[int, StreamPass]:
    """Return the streams that earlier stages emit for the sink, by the output's number.

    The last stage passes them on as they are.
    """
    outputs = layout.outputs
    return {output.number: streams[output.stream] for output in outputs if output.stage < last_stage}


def _consumer(layout: Layout, stage: int) -> str:
    """Return the name of the operator that gets the rows for a stage.

    It is the stage's first component, or what hands tuples to the keyed bolt.
    """
    component = layout.stages[stage][0]
    return entry_operator_name(component) if component == layout.keyed_bolt else component


def entry_operator_name(bolt: str) -> str:
    """Return the name of the operator that hands tuples to a keyed bolt.

    No component can be called so.
    """
    return f"{bolt}/hold"


def _stream_pass(layout: Layout, parts: Parts, stream_id: StreamId, number: int) -> StreamPass:
    """Return a stream as the stage that emits it knows it.

    `number`: of the stream, by which its column is named.
    """
    routes = tuple(route for route in layout.routes if route.subscription.producer == stream_id)
    is_read_by_arrow_bolt = False
    for route in routes:
        reader = parts.bolts.get(route.subscription.consumer)  # None: the keyed bolt
        # a bolt of a later stage gets Arrow rows in any case
        if route.stays_in_task and isinstance(reader, ArrowBolt):
            is_read_by_arrow_bolt = True
    output_stream = layout.graph.components[stream_id.component].streams[stream_id.stream]
    return StreamPass(
        id=stream_id,
        schema=parts.schemas[stream_id],
        column=COLUMN.format(number),
        routes=routes,
        outputs=tuple(output for output in layout.outputs if output.stream == stream_id),
        direct=output_stream.direct,
        is_read_by_arrow_bolt=is_read_by_arrow_bolt,
    )


def _schema_leaving(layout: Layout, streams: Mapping[StreamId, StreamPass], stage: int) -> pa.Schema:
    """Return the schema of the rows that leave a stage; the module's docstring has its columns."""
    is_last = stage + 1 == len(layout.stages)
    # 1. a sink that gets one stream gets the stream's own fields alone
    if is_last and len(layout.outputs) == 1:
        return streams[layout.outputs[0].stream].schema
    # 2. where a row goes, and to other stages also its place
    fields = [pa.field(TO, pa.int32())]
    if not is_last:
        fields += [pa.field(TASK, pa.int32()), pa.field(ANCHOR, PATHS_TYPE)]
        # never true without a keyed bolt: its stage is -1 then
        if stage < layout.keyed_stage:  # the keyed bolt holds tuples, and needs their roots later
            fields.append(pa.field(ROOT, ROOT_TYPE))
    # 3. a struct for each stream that leaves; a stream that is several outputs is there once
    stream_ids = layout.streams_leaving(stage)
    if is_last:
        stream_ids = tuple(output.stream for output in layout.outputs)
    for stream_id in dict.fromkeys(stream_ids):
        stream = streams[stream_id]
        fields.append(pa.field(stream.column, pa.struct(list(stream.schema))))
    return pa.schema(fields)
