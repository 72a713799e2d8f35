"""Which bolts share a Python pass: a topology cut into stages, one behind the other; pure.

A stage is what one task runs. Stage 0 runs inside the spout's own read task; between a stage and the next
Spark shuffles once, whatever the groupings: each tuple names the task that it goes to. A bolt whose groupings
all let tuples stay where they are joins the stage of what it reads; any other one stands behind a shuffle.
What a later stage or the sink reads passes through those between. So every batch is one chain of stages:
nothing is read twice, however the graph branches and joins. Nothing passes by Spark's state store: so a keyed
bolt stands behind every bolt that does not read from it, and at the head of its stage are those that do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spout.topology.graph import Graph, Kind, Subscription
from spout.tuples.tuple import StreamId


@dataclass(frozen=True, slots=True)
class Route:
    """A subscription as it is run: from stage `first` to stage `last`, to one or all of so many `tasks`.

    Which task of a keyed bolt a tuple goes to Spark decides by its key: such a route has one.
    """

    number: int
    subscription: Subscription
    first: int
    last: int
    tasks: int

    @property
    def stays(self) -> bool:
        """Whether its tuples never leave their task."""
        return self.first == self.last

    @property
    def copies(self) -> int:
        """To how many tasks each tuple goes."""
        return self.tasks if self.subscription.kind is Kind.ALL else 1


@dataclass(frozen=True, slots=True)
class SinkOutput:
    """A stream that the sink gets, and the stage that emits it. `number` tells its rows from others."""

    number: int
    stream: StreamId
    first: int


@dataclass(frozen=True, slots=True)
class Layout:
    """A topology in stages.

    Attributes:
        stages: the components of each stage, producers before their consumers; spouts are in stage 0.
        partitions: tasks of each stage; 0 for the first, which has as many as a batch has read tasks, and for
            that of a keyed bolt, which has ``spark.sql.shuffle.partitions``.
        tasks: tasks of each bolt; 0: as many as its stage has, wherever its tuples are.
        routes: how each subscription is run, in order.
        outputs: what the sink gets, in order.
    """

    graph: Graph
    stages: tuple[tuple[str, ...], ...]
    partitions: tuple[int, ...]
    tasks: Mapping[str, int]
    routes: tuple[Route, ...]
    outputs: tuple[SinkOutput, ...]

    @property
    def keyed(self) -> str:
        """Name of the keyed bolt; empty without one."""
        return self.graph.keyed

    @property
    def keyed_stage(self) -> int:
        """Number of the keyed bolt's stage; -1 without one."""
        return next((n for n, names in enumerate(self.stages) if self.keyed in names), -1)

    def crossing(self, stage: int) -> tuple[StreamId, ...]:
        """Return the streams with tuples that go from a stage to the next one, in order."""
        read = [r.subscription.producer for r in self.routes if r.first <= stage < r.last]
        return tuple(dict.fromkeys([*read, *(o.stream for o in self.outputs if o.first <= stage)]))


def layout(graph: Graph, outputs: tuple[StreamId, ...], cores: int) -> Layout:
    """Cut a checked topology into stages.

    Args:
        outputs: the streams that the sink gets.
        cores: tasks of a bolt behind a shuffle that says nothing of its parallelism.
    """
    at: dict[str, int] = {}
    tasks: dict[str, int] = {}
    behind = graph.behind(graph.keyed)
    order = sorted(graph.order, key=lambda name: (name in behind, graph.components[name].is_keyed))
    for name in order:
        component = graph.components[name]
        inputs = graph.inputs_of(name)
        stays = not component.is_spout and all(_may_stay(each, component.parallelism) for each in inputs)
        before = [at[each.producer.component] for each in inputs]
        if component.is_keyed:
            before = list(at.values())
        at[name] = max(before, default=0) if stays or component.is_spout else max(before) + 1
        has_own = not (stays or component.is_spout or component.is_keyed)
        tasks[name] = (component.parallelism or cores) if has_own else 0
    count = max(at.values()) + 1
    stages = tuple(tuple(name for name in order if at[name] == stage) for stage in range(count))
    partitions = tuple(
        0 if not number or graph.keyed in names else max(tasks[name] for name in names) or cores
        for number, names in enumerate(stages)
    )
    routes = [
        Route(
            n,
            each,
            at[each.producer.component],
            at[each.consumer],
            1 if each.consumer == graph.keyed else tasks[each.consumer] or partitions[at[each.consumer]],
        )
        for n, each in enumerate(graph.subscriptions)
    ]
    ends = [SinkOutput(len(routes) + n, stream, at[stream.component]) for n, stream in enumerate(outputs)]
    return Layout(graph, stages, partitions, tasks, tuple(routes), tuple(ends))


def _may_stay(subscription: Subscription, parallelism: int | None) -> bool:
    """Tell whether a grouping lets tuples stay where they are.

    A shuffle (and Storm's none, which is one) does where no parallelism is asked for: read tasks are cut to
    one size, so it would move every tuple and even nothing out.
    """
    if subscription.kind is Kind.LOCAL_OR_SHUFFLE:
        return True
    return subscription.kind in (Kind.SHUFFLE, Kind.NONE) and parallelism is None
