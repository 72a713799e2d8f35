"""Which bolts run together: a topology cut into stages, one behind the other; pure.

A stage is what one task runs. Stage 0 runs inside the spout's own read task; between a stage
and the next Spark shuffles once, whatever the groupings: each tuple names the task that it goes
to. A bolt whose groupings all let tuples stay where they are joins the stage of what it reads;
any other one stands behind a shuffle. What a later stage or the sink reads passes through those
between. So every batch is one chain of stages: nothing is read twice, however the graph
branches and joins.

A bolt is *keyed* if it holds tuples by key, in Spark's state store. No row can go around that
store. So the keyed bolt is placed behind every bolt that does not read from it; those that do are
in its stage, behind it, or in later ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from spout.topology.graph import Graph, Kind, Subscription
from spout.tuples.tuple import StreamId


@dataclass(frozen=True, slots=True)
class Route:
    """A subscription as it is run.

    Attributes:
        number: tells its rows from others between two stages (column ``_to``).
        first_stage: the stage that emits its tuples.
        last_stage: the stage that reads them; the same one if they stay in their task.
        tasks: how many tasks the consumer has; a tuple goes to one of them, or to all. Of a keyed
            bolt it is 1: Spark chooses the task by the key.
    """

    number: int
    subscription: Subscription
    first_stage: int
    last_stage: int
    tasks: int

    @property
    def stays_in_task(self) -> bool:
        """Return whether its tuples never leave the task that emitted them."""
        return self.first_stage == self.last_stage

    @property
    def receiving_tasks(self) -> int:
        """Return how many of the consumer's tasks get each tuple: all of them, or one."""
        return self.tasks if self.subscription.kind is Kind.ALL else 1


@dataclass(frozen=True, slots=True)
class SinkOutput:
    """A stream that the sink gets, and the stage that emits it.

    `number` tells its rows from others, also from those of routes (column ``_to``).
    """

    number: int
    stream: StreamId
    stage: int


@dataclass(frozen=True, slots=True)
class Layout:
    """A topology in stages.

    Attributes:
        stages: the components of each stage, producers before their consumers; spouts are in
            stage 0.
        partitions: how many tasks each stage has; 0 for the first, which has as many as a batch has
            read tasks, and for that of a keyed bolt, which has ``spark.sql.shuffle.partitions``.
        tasks: in how many tasks of its stage each bolt runs, by the bolt's name; 0: in all of them.
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
    def keyed_bolt(self) -> str:
        """Return the name of the keyed bolt; empty without one."""
        return self.graph.keyed_bolt

    @property
    def keyed_stage(self) -> int:
        """Return the number of the keyed bolt's stage; -1 without one."""
        for number, components in enumerate(self.stages):
            if self.keyed_bolt in components:
                return number
        return -1

    def streams_leaving(self, stage: int) -> tuple[StreamId, ...]:
        """Return the streams with tuples that go from a stage to the next one, in order."""
        streams = [
            route.subscription.producer
            for route in self.routes
            if route.first_stage <= stage < route.last_stage
        ]
        # the sink reads behind the last stage
        streams += [output.stream for output in self.outputs if output.stage <= stage]
        return tuple(dict.fromkeys(streams))


class _Placement(NamedTuple):
    """In which stage each component runs.

    Attributes:
        order: the components, producers before their consumers, and the keyed bolt as late as it
            can be.
        stage_by_name: the number of each component's stage.
        tasks_by_name: in how many tasks each component runs; 0: as many as its stage has.
    """

    order: tuple[str, ...]
    stage_by_name: dict[str, int]
    tasks_by_name: dict[str, int]


def layout(graph: Graph, outputs: tuple[StreamId, ...], cores: int) -> Layout:
    """Cut a checked topology into stages; return these, and how tuples go between them.

    Args:
        outputs: the streams that the sink gets.
        cores: tasks of a bolt behind a shuffle that says nothing of its parallelism.
    """
    # 1. the stages: which component runs where, and in how many tasks
    placement = _placement(graph, cores)
    stage_by_name = placement.stage_by_name
    tasks_by_name = placement.tasks_by_name
    stages: list[list[str]] = [[] for _ in range(max(stage_by_name.values()) + 1)]
    for name in placement.order:
        stages[stage_by_name[name]].append(name)
    partitions: list[int] = []
    for number, names in enumerate(stages):
        tasks_of_bolts = [tasks_by_name[name] for name in names]
        has_keyed_bolt = graph.keyed_bolt in names
        partitions.append(_partitions(number, tasks_of_bolts, cores, is_keyed=has_keyed_bolt))
    # 2. the routes, one for each subscription
    routes: list[Route] = []
    for subscription in graph.subscriptions:
        consumer = subscription.consumer
        last_stage = stage_by_name[consumer]
        tasks = tasks_by_name[consumer] or partitions[last_stage]
        if consumer == graph.keyed_bolt:
            tasks = 1  # Spark chooses the task by the key
        first_stage = stage_by_name[subscription.producer.component]
        routes.append(Route(len(routes), subscription, first_stage, last_stage, tasks))
    # 3. what the sink gets, numbered on from the routes, since rows of both are in one column
    # ``_to``
    sink_outputs: list[SinkOutput] = []
    for number, stream in enumerate(outputs, start=len(routes)):
        sink_outputs.append(SinkOutput(number, stream, stage_by_name[stream.component]))
    return Layout(
        graph,
        stages=tuple(map(tuple, stages)),
        partitions=tuple(partitions),
        tasks=tasks_by_name,
        routes=tuple(routes),
        outputs=tuple(sink_outputs),
    )


def _placement(graph: Graph, cores: int) -> _Placement:
    """Return the stage of each component: the last of its producers' stages, or the one behind it.

    It is the one behind it if a grouping needs a shuffle.
    """
    stage_by_name: dict[str, int] = {}
    tasks_by_name: dict[str, int] = {}
    # The keyed bolt after all bolts that do not read from it, and before those that do. The sort is
    # stable, so that producers stay before their consumers.
    behind_keyed = graph.behind(graph.keyed_bolt)
    order = sorted(graph.order, key=lambda name: (name in behind_keyed, graph.components[name].is_keyed))
    for name in order:
        component = graph.components[name]
        subscriptions = graph.inputs_of(name)
        parallelism = component.parallelism
        producers = [subscription.producer.component for subscription in subscriptions]
        earlier_stages = [stage_by_name[producer] for producer in producers]
        if component.is_keyed:
            # nothing goes around it: it is behind all that was placed so far
            earlier_stages = list(stage_by_name.values())
        may_all_stay = all(_keeps_tuples_in_task(source, parallelism) for source in subscriptions)
        if component.is_spout or may_all_stay:
            # a spout reads nothing: it is in stage 0
            stage_by_name[name] = max(earlier_stages, default=0)
            tasks_by_name[name] = 0
            continue
        # behind a shuffle
        stage_by_name[name] = max(earlier_stages) + 1
        if component.is_keyed:
            tasks_by_name[name] = 0  # Spark decides
        else:
            tasks_by_name[name] = parallelism or cores
    return _Placement(tuple(order), stage_by_name, tasks_by_name)


def _partitions(stage: int, bolt_tasks: Sequence[int], cores: int, *, is_keyed: bool) -> int:
    """Return how many tasks a stage has: as many as its bolt with the most, or `cores`.

    0: Spark decides, as `Layout.partitions` says. `bolt_tasks`: those of each of its bolts; 0: as
    many as the stage.
    """
    if stage == 0 or is_keyed:
        return 0
    return max(bolt_tasks) or cores


def _keeps_tuples_in_task(subscription: Subscription, parallelism: int | None) -> bool:
    """Return whether a grouping lets tuples stay in their task.

    A shuffle does (Storm's `none` is a shuffle) if the consumer has no `parallelism` of its own
    (None): read tasks are of about equal size, so a shuffle would move every tuple and balance
    nothing.
    """
    if subscription.kind is Kind.LOCAL_OR_SHUFFLE:
        return True
    return subscription.kind in (Kind.SHUFFLE, Kind.NONE) and parallelism is None
