"""What a source needs, as one value that travels inside the data source's class.

Spark pickles the class of the source for the planning process and for every read task, and they
find the value there. Spark's own options do not serve: they are strings, and Spark shows them
in its plans, which may be stored anywhere, while Kafka's client settings have secrets.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark.cloudpickle import dumps, loads

from acker.config.topics import Input, Topics
from acker.identity import input_id_of
from acker.units import time_ms
from spout.group.sources import PlannerSpec, topic_names
from spout.isolation.safety import Safety
from spout.link.connection import DriverAddress
from spout.planning.journal import Journal, batch_ranges
from spout.planning.plan import BatchPlan, ReadTask, read_tasks
from spout.tuples.anchors import AnchorForm
from spout.tuples.columns import SOURCE_COLUMNS
from spout.tuples.tuple import Tuple

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from spout.topology.stage_pass import StagePass

STREAM_OPTION = "windhover_stream"
"""The option that shows, in Spark's plan, which tracked `read_stream` call a source belongs to."""

BOLTS_OPTION = "windhover_bolts"
"""The option that shows, in Spark's plan, which bolts run inside the source."""


class SealedStage:
    """A stage of bolts as bytes, so that the planning process imports nothing of it.

    That process only passes it on to the workers. Else it would import a user's modules, and what
    runs bolts, while the query waits for its first batch.
    """

    __slots__ = ("_pickled", "_stage")

    def __init__(self, stage: StagePass | None, pickled: bytes = b"") -> None:
        """Take one of both: the stage, or its bytes."""
        self._stage = stage
        self._pickled = pickled

    @property
    def stage(self) -> StagePass:
        """The stage, which the first call unpickles."""
        if self._stage is None:
            self._stage = loads(self._pickled)
        return self._stage

    def __reduce__(self) -> tuple[type[SealedStage], tuple[None, bytes]]:
        """Return how `pickle` makes this again: from the stage's bytes, not from the stage."""
        pickled = self._pickled
        if not pickled:
            pickled = dumps(self._stage)  # type: ignore[no-untyped-call]  # the package's stubs
        # no stage: the process that unpickles this unpickles the stage only when it is used
        return SealedStage, (None, pickled)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All settings of one `read_stream` call; see there for those that the user gives.

    Attributes:
        stream: id of this `read_stream` call within its application; blobs refer to it.
        starting_offsets: None: the `start` of each input.
        parallelism: cores that ran tasks when the stream was read, or None for those of the
            driver's machine; `spout.streaming.options.tasks_now` counts those that came since.
        fail_on_data_loss: overrides every input's `on_data_loss`, or None.
        application: name and id of the Spark application, which others that try to take the
            group are shown.
        status_path: file to which the planning process writes its status, or None.
        sink_folder: the folder of the application; empty: there is none.
        driver: where the planning process finds the driver; None: nobody tells it anything.
        schema: what a read task returns: Spark's DDL, or a schema, whose names and nulls need
            no DDL.
        zone: the zone that the times of records have for bolts: the Spark session's.
        columns: columns that the source returns when no bolt runs inside it.
        anchored: whether each row ends with the hidden anchor column.
        traced: whether read tasks report the trace contexts of records.
        sealed_stage: the bolts that run inside the read task, or None.
        ledger: the accumulator to which a tracked read task adds its blob, or None.
        awaits_workers: whether nothing is emitted before Spark has run a task since the query
            began.
    """

    topics: Topics
    inputs: tuple[str, ...]
    stream: str
    starting_offsets: str | None = None
    max_offsets_per_trigger: int | None = None
    min_partitions: int | None = None
    parallelism: int | None = None
    fail_on_data_loss: bool | None = None
    tracked: bool = True
    take_over: bool = False
    application: str = ""
    status_path: str | None = None
    sink_folder: str = ""
    driver: DriverAddress | None = field(default=None, repr=False)
    schema: str | StructType = ""
    zone: str = "UTC"
    columns: tuple[str, ...] = tuple(SOURCE_COLUMNS)
    anchored: bool = False
    root_form: AnchorForm = AnchorForm.PACKED
    traced: bool = False
    tracked_when: Callable[[Tuple], object] | None = None
    safety: Safety = field(default_factory=Safety)
    sealed_stage: SealedStage | None = None
    ledger: Any = field(default=None, repr=False)
    awaits_workers: bool = False

    @property
    def read(self) -> tuple[Input, ...]:
        """The inputs that are read; at least one."""
        return tuple(self.topics.inputs[name] for name in self.inputs)

    def input_of(self, source: int) -> Input:
        """Return the input that a source is of, among those that are read."""
        input_id = input_id_of(source)
        return next(input for input in self.read if input.id == input_id)

    @property
    def group(self) -> str:
        """The consumer group, which all of the inputs have."""
        return self.read[0].group


def batch_tasks(options: SourceOptions, start: Journal, end: Journal) -> list[ReadTask]:
    """Return the read tasks of the batch between two offsets, at least one.

    The same arguments give the same tasks: a batch that runs again has the tasks of its first run.
    """
    spec = planner_spec(options)
    plan = plan_between(start, end, options.group, spec.partitions, spec.timeout_ms)
    topics_by_source = topic_names(spec.inputs, plan.ranges)
    # a batch without positions has the offset of the one before it, whose order is not this batch's
    order = end.order if plan.ranges else {}
    tasks = read_tasks(plan, topics_by_source, end.tasks, order)
    if not tasks:
        # A batch without positions has one task, too: the driver takes a batch from which no task
        # has
        # reported for one that was not evaluated.
        tasks = [ReadTask(plan, (), {})]
    return [replace(task, topic_ids=dict(end.topics)) for task in tasks]


def plan_between(start: Journal, end: Journal, group: str, partitions: int, timeout_ms: int = 0) -> BatchPlan:
    """Return the plan of the batch between two offsets.

    If `end` has no session, the batch is not tracked. `partitions` is the number of acker
    partitions. `timeout_ms` 0: no timeout.
    """
    return BatchPlan(
        group=group,
        session=end.session,
        epoch=end.epoch,
        partitions=partitions,
        now=end.now,
        timeout_ms=timeout_ms,
        tracked=bool(end.session),
        ranges=batch_ranges(start, end),
    )


def planner_spec(options: SourceOptions) -> PlannerSpec:
    """Return what the planner needs of the options; a time to start at is in ms there."""
    start: str | int | None = options.starting_offsets  # None: the `start` of each input
    is_time = start is not None and start not in ("earliest", "latest", "committed")
    if is_time:
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
        # with delayed acks Spark's state may hold tuples: a first batch, even an empty one,
        # reaches the bolts that hold them
        wakes=options.root_form is AnchorForm.WIDE,
    )


def tasks_now(options: SourceOptions, cores: int | None = None) -> int:
    """Return how many read tasks a batch that is planned now may have: one for each core.

    With `minPartitions` they may be more. On a cluster executors register after the query was
    built, and come and go, so the driver sends how many `cores` there are after each batch.
    None: no batch has ended yet.
    """
    cores_now = cores or options.parallelism or os.cpu_count() or 1
    return max(cores_now, options.min_partitions or 1)
