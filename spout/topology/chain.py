"""A chain: bolts one behind the other on a DataFrame, which run in one Python function over a task's rows.

It is described here while the DataFrame is built, bolt by bolt; `Chain.stage` makes of it what
a task runs, the same as of a stage of a topology.
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
from spout.tuples.anchors import Carry
from spout.tuples.columns import ANCHOR
from spout.tuples.tuple import DEFAULT_STREAM, SPARK, StreamId


class Step(NamedTuple):
    """A bolt in a chain: its name (unique in the query), itself, its output's Arrow schema, its hooks."""

    name: str
    bolt: AnyBolt
    schema: pa.Schema
    hooks: tuple[TaskHook, ...] = ()


@dataclass(frozen=True, slots=True)
class Chain:
    """Bolts that run in one Python function.

    Attributes:
        steps: the bolts, in order; at least one.
        upstream: the chain whose rows arrive directly; empty behind the source or Spark's
            operators.
        consumer: the chain that receives the rows directly; empty otherwise.
        arrives: how anchors arrive; `Carry.NONE` where nothing is tracked.
        subscriptions: the keys along the paths that arrive, where roots and ordinals do.
        carry: how the emitted rows carry their anchors.
        arriving: schema of the rows that arrive in bundles; None: they arrive one by one.
        bundling: how emitted rows are put into bundles; None: they leave one by one.
    """

    steps: tuple[Step, ...]
    upstream: str = ""
    consumer: str = ""
    arrives: Carry = Carry.NONE
    subscriptions: tuple[int, ...] = ()
    carry: Carry = Carry.NONE
    arriving: pa.Schema | None = None
    bundling: Bundling | None = None

    @property
    def name(self) -> str:
        """The names of its bolts, joined by ``+``."""
        return "+".join(step.name for step in self.steps)

    @property
    def roots_arrive(self) -> bool:
        """Whether the rows that arrive are the roots themselves."""
        return self.arrives in (Carry.PACKED, Carry.WIDE) and not self.subscriptions

    @property
    def has_rich_bolts(self) -> bool:
        """Whether a bolt acks by hand: then tuples need places and a state of their own."""
        return any(isinstance(step.bolt, Bolt) for step in self.steps)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the emitted rows, anchors included."""
        emitted = self.steps[-1].schema
        if self.carry is Carry.NONE:
            return emitted
        return emitted.append(pa.field(ANCHOR, self.carry.type))

    @property
    def leaving(self) -> tuple[int, ...]:
        """The keys along the paths of emitted rows, where they carry roots and ordinals."""
        if self.has_rich_bolts or self.arrives is Carry.HOPS:
            return ()
        last_step = len(self.steps) - 1
        return *self.subscriptions, self._subscription(last_step).key

    @property
    def stage(self) -> StagePass:
        """What a task runs."""
        streams = [self._stream(number) for number in range(len(self.steps))]
        is_tracked = self.arrives is not Carry.NONE
        # behind Spark's own operators, which may drop or repeat tuples: they have an edge of
        # their own
        is_loose = is_tracked and not self.roots_arrive and not self.upstream
        entry_key = 0
        if is_loose:
            entry_key = subscription_key(SPARK.component, DEFAULT_STREAM, self.steps[0].name)
        # rows that arrive are of the last bolt of the chain before
        came_from = StreamId(self.upstream.rpartition("+")[2]) if self.upstream else SPARK
        frame = Frame(
            came_from=came_from,
            arrives=self.arrives,
            subscriptions=self.subscriptions,
            roots_arrive=self.roots_arrive,
            entry=entry_key,
            carry=self.carry,
            by_row=not self.has_rich_bolts,
        )
        bolts = [
            BoltPass(step.name, step.bolt, {DEFAULT_STREAM: stream}, tasks=0, hooks=step.hooks)
            for step, stream in zip(self.steps, streams, strict=True)
        ]
        return StagePass(
            name=self.name,
            bolts=tuple(bolts),
            schema=self.schema,
            tracked=is_tracked,
            is_last=True,
            upstream=self.upstream,
            consumer=self.consumer,
            frame=frame,
            arriving=self.arriving,
            bundling=self.bundling,
        )

    def _subscription(self, number: int) -> Subscription:
        """Return by what the rows of a step are read: the next step, or the first bolt of the consumer."""
        is_last = number + 1 == len(self.steps)
        reader = self.consumer.split("+")[0] if is_last else self.steps[number + 1].name
        return Subscription(StreamId(self.steps[number].name), reader, Kind.GLOBAL)

    def _stream(self, number: int) -> StreamPass:
        """Return what a step emits: to the next step, to another chain, or to the sink."""
        step = self.steps[number]
        is_last = number + 1 == len(self.steps)
        stream_id = StreamId(step.name)
        if is_last and self.carry is Carry.NONE:
            output = SinkOutput(number=0, stream=stream_id, stage=0)
            return StreamPass(stream_id, step.schema, "", routes=(), outputs=(output,), on_frame=True)
        route = Route(
            number=0,
            subscription=self._subscription(number),
            first_stage=0,
            last_stage=int(is_last),  # what the last step emits leaves the chain
            tasks=1,
        )
        is_batched = not is_last and isinstance(self.steps[number + 1].bolt, ArrowBolt)
        return StreamPass(stream_id, step.schema, "", routes=(route,), on_frame=True, batched=is_batched)
