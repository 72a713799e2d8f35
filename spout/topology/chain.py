"""A chain: bolts behind each other on a DataFrame, which run in one Python function of a task.

A `Chain` is what is known while the DataFrame is built, bolt by bolt. `Chain.stage` turns it into a
`StagePass`, which a task runs, as if it were a stage of a topology.

Rows have their anchors in a hidden column, in one of the forms of `AnchorForm`. A *subscription*
is one
bolt's receiving of one stream; edges are computed from its key. A *rich* bolt is a `Bolt`, which
acks by hand; other bolts ack a tuple when their call returns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from acker.identity import subscription_key
from spout.bolts.bolts import AnyBolt, ArrowBolt, Bolt
from spout.bolts.hooks import TaskHook
from spout.topology.bundles import Bundling
from spout.topology.graph import Kind, Subscription
from spout.topology.stage_pass import BoltPass, Frame, StagePass, StreamPass
from spout.topology.stages import Route, SinkOutput
from spout.tuples.anchors import AnchorForm
from spout.tuples.columns import ANCHOR
from spout.tuples.tuple import DEFAULT_STREAM, SPARK, StreamId


class Step(NamedTuple):
    """A bolt in a chain.

    Attributes:
        name: unique in the query.
        schema: the Arrow schema of what it emits.
        hooks: what watches it.
    """

    name: str
    bolt: AnyBolt
    schema: pa.Schema
    hooks: tuple[TaskHook, ...] = ()


@dataclass(frozen=True, slots=True)
class Chain:
    """Bolts that run in one Python function.

    Attributes:
        steps: the bolts, in order; at least one.
        upstream: name of the chain whose rows arrive directly; empty behind the source or Spark's
            operators.
        consumer: name of the chain that receives the rows directly; empty: the sink or Spark's
            operators do.
        arriving_form: the form in which anchors arrive; `AnchorForm.NONE` where nothing is tracked.
        subscriptions: the keys of the subscriptions over which the rows that arrive came from the
            source, in order; empty where the form of the anchors has them, or they are the roots
            themselves.
        leaving_form: the form in which the emitted rows have their anchors.
        arriving_schema: of the rows that arrive in bundles; None: they arrive one by one.
        bundling: how emitted rows are put into bundles; None: they leave one by one.
    """

    steps: tuple[Step, ...]
    upstream: str = ""
    consumer: str = ""
    arriving_form: AnchorForm = AnchorForm.NONE
    subscriptions: tuple[int, ...] = ()
    leaving_form: AnchorForm = AnchorForm.NONE
    arriving_schema: pa.Schema | None = None
    bundling: Bundling | None = None

    @property
    def name(self) -> str:
        """Return the names of its bolts, joined by ``+``."""
        return "+".join(step.name for step in self.steps)

    @property
    def roots_arrive(self) -> bool:
        """Return whether the rows that arrive are the roots themselves."""
        return self.arriving_form in (AnchorForm.PACKED, AnchorForm.WIDE) and not self.subscriptions

    @property
    def has_rich_bolts(self) -> bool:
        """Return whether a bolt acks by hand: then tuples need places and a state of their own."""
        return any(isinstance(step.bolt, Bolt) for step in self.steps)

    @property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the emitted rows, anchors included."""
        emitted = self.steps[-1].schema
        if self.leaving_form is AnchorForm.NONE:
            return emitted
        return emitted.append(pa.field(ANCHOR, self.leaving_form.type))

    @property
    def emitted_subscriptions(self) -> tuple[int, ...]:
        """Return the keys of the subscriptions over which emitted rows came from the source, in order.

        Empty if each row has them in its own anchors: where a rich bolt is in this chain, or was in
        one before.
        """
        if self.has_rich_bolts or self.arriving_form is AnchorForm.HOPS:
            return ()
        last_step = len(self.steps) - 1
        return *self.subscriptions, self._subscription(last_step).key

    @property
    def stage(self) -> StagePass:
        """Return what a task runs."""
        # 1. how rows arrive
        is_tracked = self.arriving_form is not AnchorForm.NONE
        # Spark's own operators may drop or repeat tuples. Behind them each tuple has an edge of its
        # own, as if Spark were a bolt that had emitted it.
        is_behind_spark = is_tracked and not self.roots_arrive and not self.upstream
        entry_key = 0  # none
        if is_behind_spark:
            entry_key = subscription_key(SPARK.component, DEFAULT_STREAM, self.steps[0].name)
        came_from = SPARK
        if self.upstream:  # the rows that arrive are of the last bolt of the chain before
            last_bolt = self.upstream.rpartition("+")[2]
            came_from = StreamId(last_bolt)
        frame = Frame(
            came_from=came_from,
            arriving_form=self.arriving_form,
            subscriptions=self.subscriptions,
            roots_arrive=self.roots_arrive,
            entry_key=entry_key,
            leaving_form=self.leaving_form,
            by_row=not self.has_rich_bolts,
        )
        # 2. the bolts, each with its only stream
        bolts: list[BoltPass] = []
        for step_index, step in enumerate(self.steps):
            streams = {DEFAULT_STREAM: self._stream(step_index)}
            bolts.append(BoltPass(step.name, step.bolt, streams, tasks=0, hooks=step.hooks))
        return StagePass(
            name=self.name,
            bolts=tuple(bolts),
            schema=self.schema,
            tracked=is_tracked,
            is_last=True,  # no shuffle of ours is behind it
            upstream=self.upstream,
            consumer=self.consumer,
            frame=frame,
            arriving_schema=self.arriving_schema,
            bundling=self.bundling,
        )

    def _subscription(self, step_index: int) -> Subscription:
        """Return the subscription of the next step to what a step emits.

        Behind the last step it is that of the consumer's first bolt, or of a bolt without a name
        if there is no consumer.
        """
        readers = [step.name for step in self.steps[step_index + 1 :]]
        # a chain's name has the names of its bolts, joined by +
        first_reader = readers[0] if readers else self.consumer.split("+")[0]
        # any grouping would do: within a task each tuple goes to the one next step
        return Subscription(StreamId(self.steps[step_index].name), first_reader, Kind.GLOBAL)

    def _stream(self, step_index: int) -> StreamPass:
        """Return the stream that a step emits: to the next step, out of the chain, or to the sink.

        Its column is empty: rows have the stream's own fields, not a struct of them.
        """
        step = self.steps[step_index]
        is_last = step_index + 1 == len(self.steps)
        stream_id = StreamId(step.name)
        # rows without anchors leave as those of a sink
        if is_last and self.leaving_form is AnchorForm.NONE:
            output = SinkOutput(number=0, stream=stream_id, stage=0)
            return StreamPass(stream_id, step.schema, column="", routes=(), outputs=(output,), on_frame=True)
        route = Route(
            number=0,
            subscription=self._subscription(step_index),
            first_stage=0,
            last_stage=1 if is_last else 0,  # what the last step emits leaves the chain
            tasks=1,
        )
        is_read_by_arrow_bolt = not is_last and isinstance(self.steps[step_index + 1].bolt, ArrowBolt)
        return StreamPass(
            stream_id,
            step.schema,
            column="",
            routes=(route,),
            on_frame=True,
            is_read_by_arrow_bolt=is_read_by_arrow_bolt,
        )
