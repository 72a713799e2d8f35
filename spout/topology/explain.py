"""The compiled plan of a topology in words: stages, shuffles, and where edges are carried; pure."""

from __future__ import annotations

from collections.abc import Iterator

from spout.topology.stages import Layout, Route


def explain(plan: Layout) -> str:
    """Describe a plan, a line for each thing that happens, in order."""
    return "\n".join(_lines(plan))


def _lines(plan: Layout) -> Iterator[str]:
    last = len(plan.stages) - 1
    for stage, names in enumerate(plan.stages):
        if stage == plan.keyed_stage:
            yield from _keyed(plan)
        else:
            where = "in the source's read task" if stage == 0 else _tasks(plan.partitions[stage])
            yield f"stage {stage}: one Python pass, {where}"
        for name in names:
            if name != plan.keyed:
                yield from _component(plan, stage, name)
        for output in plan.outputs:
            if output.stream.component in names:
                is_keyed = output.stream.component == plan.keyed
                done = "what is settled with these rows is acked" if is_keyed else "acked"
                yield f"  sink <- {output.stream}; {done} when the batch is written"
        if stage < last and stage + 1 != plan.keyed_stage:
            carried = ", ".join(map(str, plan.crossing(stage)))
            yield f"shuffle by task: {carried}; edges are carried{_through(plan, stage)}"


def _component(plan: Layout, stage: int, name: str) -> Iterator[str]:
    if plan.graph.components[name].is_spout:
        yield f"  spout {name}"
        return
    some = plan.tasks[name]
    tasks = f", {_tasks(some)}" if some and some != plan.partitions[stage] else ""
    yield f"  bolt {name}{tasks}"
    for route in plan.routes:
        if route.subscription.consumer == name:
            yield f"    <- {_way(route)}"


def _keyed(plan: Layout) -> Iterator[str]:
    reads = plan.graph.inputs_of(plan.keyed)
    yield f"shuffle by key: {', '.join(str(each.producer) for each in reads)}; each tuple is held by its edge"
    yield f"stage {plan.keyed_stage}: Spark's state store, spark.sql.shuffle.partitions tasks"
    yield f"  keyed bolt {plan.keyed}"
    for each in reads:
        how = f"{each.kind}({', '.join(each.fields)})" if each.fields else f"{each.kind}, one key"
        yield f"    <- {each.producer}, {how}: held by key across micro-batches, until it is acked"


def _way(route: Route) -> str:
    subscription = route.subscription
    by = f"({', '.join(subscription.fields)})" if subscription.fields else ""
    if route.stays:
        how = "stays in its task, edges are folded there"
    elif route.copies > 1:
        how = f"to each of {_tasks(route.tasks)}"
    else:
        how = f"to one of {_tasks(route.tasks)}" if route.tasks > 1 else "to the only task"
    return f"{subscription.producer}, {subscription.kind}{by}: {how}"


def _through(plan: Layout, stage: int) -> str:
    passing = [str(r.subscription.producer) for r in plan.routes if r.first <= stage and r.last > stage + 1]
    later = stage + 1 < len(plan.stages) - 1
    passing += [str(o.stream) for o in plan.outputs if o.first <= stage and later]
    found = ", ".join(dict.fromkeys(passing))
    return f" ({found} passes through the next stage)" if found else ""


def _tasks(count: int) -> str:
    return f"{count} task" if count == 1 else f"{count} tasks"
