"""From `read_stream`'s options to the planner's settings and read tasks (docs/design/protocol.md, 5.1)."""

from __future__ import annotations

import os
from pathlib import Path

from acker.units import time_ms
from spout.group.sources import PlannerSpec, topic_names
from spout.planner.mailbox import Mailbox
from spout.planning.journal import Journal, batch_ranges
from spout.planning.plan import BatchPlan, ReadTask, read_tasks
from spout.streaming.options import SourceOptions
from spout.tuples.anchors import Carry


def batch_tasks(options: SourceOptions, start: Journal, end: Journal) -> list[ReadTask]:
    """Return the read tasks of the batch between two offsets: a pure function of its arguments."""
    spec = planner_spec(options)
    plan = BatchPlan(
        group=options.group,
        session=end.session,
        epoch=end.epoch,
        partitions=spec.partitions,
        now=end.now,
        timeout_ms=spec.timeout_ms,
        tracked=bool(end.session),
        ranges=batch_ranges(start, end),
    )
    # A batch without positions has one task too: its report proves that no report is missing.
    topics = topic_names(spec.inputs, plan.ranges)
    order = end.order if plan.ranges else {}
    return read_tasks(plan, topics, end.tasks, order) or [ReadTask(plan, (), {})]


def planner_spec(options: SourceOptions) -> PlannerSpec:
    start: str | int | None = options.starting_offsets
    if start is not None and start not in ("earliest", "latest", "committed"):
        start = time_ms(str(start))
    return PlannerSpec(
        inputs=options.read,
        topics=options.topics.ack_topics,
        partitions=options.topics.acker.partitions,
        start=start,
        fail_on_data_loss=options.fail_on_data_loss,
        tracked=options.tracked,
        take_over=options.take_over,
        tasks=tasks_now(options),
        wakes=options.roots_carry is Carry.WIDE,
    )


def tasks_now(options: SourceOptions) -> int:
    """Return how many read tasks a batch that is planned now may have at most: one for each core.

    On a cluster executors register after the query was built, and come and go; the driver writes the number
    of cores to a file after each batch.
    """
    noted = Mailbox(Path(options.sink_folder), options.stream).cores() if options.sink_folder else None
    return max(noted or options.parallelism or os.cpu_count() or 1, options.min_partitions or 1)
