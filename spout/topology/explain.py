"""The compiled plan of a topology in words: stages, shuffles, and where edges are carried; pure."""

from __future__ import annotations

from collections.abc import Iterator

from spout.topology.stages import Layout, Route


def explain(layout: Layout) -> str:
    """Describe a layout, a line for each thing that happens, in order."""
    return "\n".join(_lines(layout))


def _lines(layout: Layout) -> Iterator[str]:
    """Yield what happens in each stage, and between it and the next one."""
    last_stage = len(layout.stages) - 1
    for stage, components in enumerate(layout.stages):
        if stage == layout.keyed_stage:
            yield from _lines_of_keyed_bolt(layout)
        else:
            tasks_text = _tasks_text(layout.partitions[stage])
            if stage == 0:
                tasks_text = "in the source's read task"
            yield f"stage {stage}: one Python pass, {tasks_text}"
        for component in components:
            if component != layout.keyed_bolt:
                yield from _lines_of_component(layout, stage, component)
        for output in layout.outputs:
            if output.stream.component in components:
                is_keyed = output.stream.component == layout.keyed_bolt
                acked_text = "what is settled with these rows is acked" if is_keyed else "acked"
                yield f"  sink <- {output.stream}; {acked_text} when the batch is written"
        # the shuffle before a keyed bolt is by key, and among its lines
        if stage < last_stage and stage + 1 != layout.keyed_stage:
            stream_names = ", ".join(map(str, layout.streams_leaving(stage)))
            passing_text = _passing_text(layout, stage)
            yield f"shuffle by task: {stream_names}; edges are carried{passing_text}"


def _lines_of_component(layout: Layout, stage: int, name: str) -> Iterator[str]:
    """Yield a line for a spout; for a bolt one with its tasks, and one for each stream that it
    reads.
    """
    if layout.graph.components[name].is_spout:
        yield f"  spout {name}"
        return
    bolt_tasks = layout.tasks[name]  # 0: as many as the stage, which was said in its line
    has_fewer_tasks = bolt_tasks > 0 and bolt_tasks != layout.partitions[stage]
    tasks_text = f", {_tasks_text(bolt_tasks)}" if has_fewer_tasks else ""
    yield f"  bolt {name}{tasks_text}"
    for route in layout.routes:
        if route.subscription.consumer == name:
            yield f"    <- {_route_text(route)}"


def _lines_of_keyed_bolt(layout: Layout) -> Iterator[str]:
    """Yield the lines of the shuffle before the keyed bolt, of its stage, and of what it reads."""
    subscriptions = layout.graph.inputs_of(layout.keyed_bolt)
    producers = ", ".join(str(subscription.producer) for subscription in subscriptions)
    yield f"shuffle by key: {producers}; each tuple is held by its edge"
    yield f"stage {layout.keyed_stage}: Spark's state store, spark.sql.shuffle.partitions tasks"
    yield f"  keyed bolt {layout.keyed_bolt}"
    for subscription in subscriptions:
        grouping = f"{subscription.kind}, one key"
        if subscription.fields:
            grouping = f"{subscription.kind}({', '.join(subscription.fields)})"
        yield (
            f"    <- {subscription.producer}, {grouping}: held by key across micro-batches, until it is acked"
        )


def _route_text(route: Route) -> str:
    """Return what a bolt reads, by which grouping, and to which tasks the tuples go."""
    subscription = route.subscription
    fields = f"({', '.join(subscription.fields)})" if subscription.fields else ""
    if route.stays_in_task:
        destination = "stays in its task, edges are folded there"
    elif route.receiving_tasks > 1:
        destination = f"to each of {_tasks_text(route.tasks)}"
    elif route.tasks > 1:
        destination = f"to one of {_tasks_text(route.tasks)}"
    else:
        destination = "to the only task"
    return f"{subscription.producer}, {subscription.kind}{fields}: {destination}"


def _passing_text(layout: Layout, stage: int) -> str:
    """Return which streams only pass through the stage after `stage`, in brackets.

    Empty: none does.
    """
    next_stage = stage + 1
    passing_streams = [
        str(route.subscription.producer)
        for route in layout.routes
        if route.first_stage <= stage and route.last_stage > next_stage
    ]
    if next_stage < len(layout.stages) - 1:
        # the last stage hands outputs to the sink: through any stage before it they only pass
        emitted_before = [output for output in layout.outputs if output.stage <= stage]
        passing_streams += [str(output.stream) for output in emitted_before]
    names = ", ".join(dict.fromkeys(passing_streams))
    return f" ({names} passes through the next stage)" if names else ""


def _tasks_text(count: int) -> str:
    """Return ``1 task`` or ``2 tasks``."""
    return f"{count} task" if count == 1 else f"{count} tasks"
