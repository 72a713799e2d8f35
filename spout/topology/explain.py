"""The compiled plan of a topology in words: stages, shuffles, and where edges are carried; pure."""

from __future__ import annotations

from collections.abc import Iterator

from spout.topology.stages import Layout, Route


def explain(plan: Layout) -> str:
    """Describe a plan, a line for each thing that happens, in order."""
    return "\n".join(_lines(plan))


def _lines(plan: Layout) -> Iterator[str]:
    """Yield what happens in each stage, and between it and the next one."""
    last_stage = len(plan.stages) - 1
    for stage, components in enumerate(plan.stages):
        if stage == plan.keyed_stage:
            yield from _keyed(plan)
        else:
            place = "in the source's read task" if stage == 0 else _tasks(plan.partitions[stage])
            yield f"stage {stage}: one Python pass, {place}"
        for component in components:
            if component != plan.keyed:
                yield from _component(plan, stage, component)
        for output in plan.outputs:
            if output.stream.component in components:
                is_keyed = output.stream.component == plan.keyed
                acked = "what is settled with these rows is acked" if is_keyed else "acked"
                yield f"  sink <- {output.stream}; {acked} when the batch is written"
        if stage < last_stage and stage + 1 != plan.keyed_stage:
            crossing = ", ".join(map(str, plan.crossing(stage)))
            yield f"shuffle by task: {crossing}; edges are carried{_passing_through(plan, stage)}"


def _component(plan: Layout, stage: int, name: str) -> Iterator[str]:
    """Yield a spout, or a bolt with its tasks and what it reads."""
    if plan.graph.components[name].is_spout:
        yield f"  spout {name}"
        return
    bolt_tasks = plan.tasks[name]
    has_fewer_tasks = bolt_tasks and bolt_tasks != plan.partitions[stage]
    yield f"  bolt {name}" + (f", {_tasks(bolt_tasks)}" if has_fewer_tasks else "")
    for route in plan.routes:
        if route.subscription.consumer == name:
            yield f"    <- {_way(route)}"


def _keyed(plan: Layout) -> Iterator[str]:
    """Yield the stage of the keyed bolt, and the shuffle before it."""
    subscriptions = plan.graph.inputs_of(plan.keyed)
    producers = ", ".join(str(subscription.producer) for subscription in subscriptions)
    yield f"shuffle by key: {producers}; each tuple is held by its edge"
    yield f"stage {plan.keyed_stage}: Spark's state store, spark.sql.shuffle.partitions tasks"
    yield f"  keyed bolt {plan.keyed}"
    for subscription in subscriptions:
        grouping = f"{subscription.kind}, one key"
        if subscription.fields:
            grouping = f"{subscription.kind}({', '.join(subscription.fields)})"
        yield (
            f"    <- {subscription.producer}, {grouping}: held by key across micro-batches, until it is acked"
        )


def _way(route: Route) -> str:
    """Return what a bolt reads, by which grouping, and to which tasks the tuples go."""
    subscription = route.subscription
    fields = f"({', '.join(subscription.fields)})" if subscription.fields else ""
    if route.stays:
        way = "stays in its task, edges are folded there"
    elif route.copies > 1:
        way = f"to each of {_tasks(route.tasks)}"
    elif route.tasks > 1:
        way = f"to one of {_tasks(route.tasks)}"
    else:
        way = "to the only task"
    return f"{subscription.producer}, {subscription.kind}{fields}: {way}"


def _passing_through(plan: Layout, stage: int) -> str:
    """Return which streams only pass through the stage behind `stage`; empty: none does."""
    next_stage = stage + 1
    passing = [
        str(route.subscription.producer)
        for route in plan.routes
        if route.first_stage <= stage and route.last_stage > next_stage
    ]
    if next_stage < len(plan.stages) - 1:
        # the sink reads behind the last stage
        passing += [str(output.stream) for output in plan.outputs if output.stage <= stage]
    names = ", ".join(dict.fromkeys(passing))
    return f" ({names} passes through the next stage)" if names else ""


def _tasks(count: int) -> str:
    return f"{count} task" if count == 1 else f"{count} tasks"
