"""A Spark application of the simulation: the planning process, and the driver that runs its batches.

The checkpoint is what Spark keeps: the offset of a batch is written before the batch, its commit after it;
a second writer of the same entry fails. Between the two stand the effects of a batch, each a step of its
own: read and evaluate, write the sink, publish, commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from acker.config.settings import Input
from acker.errors import SessionError, UsageError, WindhoverError
from acker.identity import first_source, offset_of, partition_of
from acker.kafka.port import Record
from acker.wire.causes import HELD
from acker.wire.events import SourceRun
from spout.group.opening import GrantEpoch
from spout.group.sources import PlannerSpec, topic_names
from spout.planning.journal import BEGINNING, Journal, batch_ranges
from spout.planning.plan import BatchPlan, ReadTask, cut_ranges, read_tasks
from spout.planning_process.planner import Planner
from spout.publishing import publish
from spout.publishing.fold import BatchOutcome, TaskReport
from spout.publishing.publish import BatchLane, Publisher, not_acked, publication_of
from spout.publishing.report_accumulator import BatchReports
from spout.publishing.settle import settle
from spout.streaming.ordered_read import origin_of
from tests.simulation.truth.facts import FAILED, Broken, Evaluation, Holder, Journalled, SinkRow, SpoutLook
from tests.simulation.world.durable import Checkpoint
from tests.simulation.world.process import Process, Setting
from tests.simulation.world.topology import Done, Sent, run_task
from tests.support.outcomes import failed_by_cause
from tests.support.reports import reported

FOREVER_MS: Final = 1 << 60


@dataclass(slots=True)
class Running:
    """A batch on its way.

    Attributes:
        batch: its number.
        start: the offset before it.
        end: the offset behind it.
        phase: what comes next: read, sink, publish or commit.
        tasks: of the last evaluation.
        reports: all that its tasks reported.
        rows: by root, those of the last evaluation.
    """

    batch: int
    start: Journal
    end: Journal
    phase: str = "read"
    plan: BatchPlan | None = None
    outcome: BatchOutcome | None = None
    results: dict[tuple[int, int], Evaluation] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)
    skips: bool = False
    tasks: list[ReadTask] = field(default_factory=list)
    reports: list[TaskReport] = field(default_factory=list)
    rows: dict[tuple[int, int], tuple[SinkRow, ...]] = field(default_factory=dict)


class QueryProcess(Process):
    """One application that runs one query.

    Attributes:
        phases: the effects of a batch, in their order.
        vouches: whether the sink says that its bolts are deterministic, as `deterministic=True` does.
    """

    turns = 5
    phases = ("read", "sink", "publish", "commit")
    vouches = False

    def __init__(
        self, world: Setting, name: str, checkpoint: Checkpoint, found: Input, take_over: bool
    ) -> None:
        """Start an application on a checkpoint."""
        super().__init__(world, name)
        self.checkpoint = checkpoint
        self._input = found
        self._spec = PlannerSpec(
            inputs=(found,),
            topics=world.topics.ack_topics,
            partitions=world.topics.acker.partitions,
            take_over=take_over,
            tasks=world.options.tasks,
            hole_min=world.options.hole_min,
        )
        self._publisher = Publisher(lambda: self.client, world.topics.ack_topics)
        self._planner = Planner(
            self.client,
            self._spec,
            new_id=world.new_id("s"),
            report=self._refuse_alarms,
        )
        self._running: Running | None = None
        self._error: WindhoverError | None = None
        self._span: list[int] | None = None
        self._calm_since_ms: int | None = None
        self._opened_at = world.truth.at
        self._read_offsets = 0
        self._stage = 0
        self._evaluations = 0
        # What the engine holds in memory: the next batch, and the offset before it. A zombie goes on from
        # there, and learns from the checkpoint that another driver was faster.
        self._batch = checkpoint.commits
        self._before = checkpoint.offsets[self._batch - 1] if self._batch else BEGINNING
        self._again = checkpoint.offsets[self._batch] if self._batch < len(checkpoint.offsets) else None

    def grant_epoch(self) -> GrantEpoch | None:
        """Return what grants the epoch of the session; None: the session draws it itself."""
        return None

    # -- steps

    def step(self) -> None:
        """Step the planning thread or the engine."""
        if not self._planner.is_open:
            offsets = self.checkpoint.offsets
            self._read_offsets = len(offsets)
            self._opened_at = self.world.truth.at
            last_offset = offsets[-1] if offsets else BEGINNING
            self._planner.open(last_offset, self.wall_ms, grant_epoch=self.grant_epoch())
        elif self._error is None and self.rng.random() < 0.4:
            self._thread()
        else:
            self._engine()

    def _refuse_alarms(self, event: str, _fields: Mapping[str, object]) -> None:
        """Let no restart take its checkpoint for an older copy: here each begins from the newest.

        Unless another driver has written to it since this one has read it, and before it read any verdict.
        """
        if event == "checkpoint_is_older" and len(self.checkpoint.offsets) == self._read_offsets:
            raise Broken("NothingBlocks", "a restart took its checkpoint for an older copy")

    def ended(self) -> None:
        """End the session's span."""
        if self._span is not None:
            self._span[1] = self.world.now_ms

    @property
    def is_superseded(self) -> bool:
        """Whether the planning thread has heard of a higher session."""
        return isinstance(self._error, SessionError)

    def _thread(self) -> None:
        """Poll and step the planner; what goes wrong surfaces when the engine plans next."""
        try:
            records = self._planner.poll(0)
            began_ms = self.wall_ms
            self._planner.step(records, began_ms)
        except WindhoverError as error:
            self._error = error
            return
        self._tell_of_step(began_ms)
        if self._planner.is_ready and self._span is None:
            session = self._planner.status(self.wall_ms).session
            self._span = [self.started_ms, FOREVER_MS]
            self.world.truth.alive.setdefault(session, []).append(self._span)

    def _tell_of_step(self, began_ms: int) -> None:
        """Tell that all verdicts were read, and could be committed, where nothing was in the way."""
        if self.is_disturbed or self.is_zombie or not self._planner.is_ready:
            self._calm_since_ms = None
            return
        if self._calm_since_ms is None:
            self._calm_since_ms = self.wall_ms
        if not self.world.is_healed and self.world.options.rate("uneven"):
            return
        status = self._planner.status(self.wall_ms)
        self.world.truth.spout_stepped(
            SpoutLook(
                self.name, self._input.group, Holder(status.epoch, status.session), began_ms,
                self.wall_ms, self._calm_since_ms,
            )
        )  # fmt: skip

    def _engine(self) -> None:
        """Go on with the batch, or plan the next one."""
        if self._running is None:
            self._running = self._next()
        elif self._running.phase == "read":
            self._read(self._running)
            self._advance(self._running)
        elif self._running.phase == "sink":
            self._sink(self._running)
            self._advance(self._running)
        elif self._running.phase == "publish":
            self._publish(self._running)
            self._advance(self._running)
        else:
            self.before("commit_log")
            self.checkpoint.commit(self._running.batch)
            self.world.tell("done", self.name, self._running.batch)
            self._batch, self._before = self._running.batch + 1, self._running.end
            if self._running.outcome is not None and self._planner.is_ready:
                named = not_acked(self._running.outcome)
                if named is not None:
                    self._planner.record_publication(self._running.end, named)
            self._running = None

    def _advance(self, running: Running) -> None:
        running.phase = self.phases[self.phases.index(running.phase) + 1]

    def _next(self) -> Running | None:
        if self._again is not None:
            again, self._again = self._again, None
            return Running(self._batch, self._before, again)
        if self._error is not None:
            raise self._error
        if not self._planner.is_ready:
            return None
        start, batch = self._before, self._batch
        end = self._planner.plan(start, self.world.options.batch_records, self.wall_ms)
        if end == start:
            return None
        self.before("offset_log")
        self.checkpoint.add(batch, end)
        ranges = batch_ranges(start, end)
        self.world.tell("plan", self.name, batch, f"{end.epoch}/{end.session}", *map(tuple, ranges))
        holder = Holder(end.epoch, end.session)
        self.world.truth.journalled(
            Journalled(self.checkpoint.query, batch, self._input.group, holder, ranges, self._opened_at)
        )
        return Running(batch, start, end)

    def _read(self, running: Running) -> None:
        """Evaluate the batch, now and then twice, as Spark does behind a shuffle."""
        end = running.end
        running.plan = plan = BatchPlan(
            group=self._input.group, session=end.session, epoch=end.epoch, partitions=self._spec.partitions,
            now=end.now, timeout_ms=self._spec.timeout_ms, tracked=True,
            ranges=batch_ranges(running.start, end),
        )  # fmt: skip
        names = topic_names(self._spec.inputs, plan.ranges)
        tasks = [ReadTask(plan, share, names) for share in cut_ranges(plan.ranges, end.tasks)]
        if end.order:
            tasks = read_tasks(plan, names, end.tasks, end.order)
        running.tasks = tasks = tasks or [ReadTask(plan, (), {})]
        evaluations: list[TaskReport] = []
        running.reports = evaluations
        rounds = 2 if self.world.happens("twice") else 1
        failed: dict[tuple[int, int], Evaluation] = {}
        for _ in range(rounds):
            self._stage += 1
            failed |= {place: one for place, one in running.results.items() if one.result == FAILED}
            running.results, running.sent, running.rows = {}, [], {}
            for number, task in enumerate(tasks):
                done = self._task(task)
                evaluations.append(reported(self._stage, self._stage * 100 + number, number, done.report))
                running.results |= done.results
                running.sent += done.sent
                running.rows |= done.rows
        running.results |= failed
        self.before("evaluated")
        running.skips = self.world.options.skipping_sink and running.batch in self.checkpoint.written
        if running.skips and not self.vouches:
            reports = BatchReports(frozenset(), tuple(evaluations), has_untracked=False)
            running.outcome = publish.skipped_outcome(plan, reports.absent)
        else:
            running.outcome = settle(evaluations, (), lambda _: None)
            running.results |= _held(running.outcome)

    def _task(self, task: ReadTask) -> Done:
        """Read a task's ranges and run the bolts, in an executor."""
        records: list[tuple[SourceRun, Record]] = []
        absent: list[SourceRun] = []
        for source, start, end in task.ranges:
            log = self.world.cluster.at(task.topics[source], partition_of(source))
            self.before("poll")
            offset, shift = int(offset_of(start)), start - int(offset_of(start))
            found, _ = log.read(max(offset, log.start), 1_000_000, committed=True)
            expected = start
            for record in found:
                position = record.offset + shift
                if position >= end:
                    break
                if position > expected:
                    absent.append(SourceRun(source, expected, position))
                records.append((SourceRun(source, position, position + 1), record))
                expected = position + 1
            if expected < end:
                absent.append(SourceRun(source, expected, end))
        if task.order:
            records.sort(key=lambda each: _rank(*each))
        self._evaluations += 1
        name = f"{self.name}.{self._evaluations}"
        return run_task(task, records, sorted(absent), self.rng, name)

    def _sink(self, running: Running) -> None:
        """Write the output, unless the sink has this batch already; it stands from here on."""
        self.before("sink")
        if running.skips:
            self.world.tell("skip", self.name, running.batch)
            running.results = {place: Evaluation(FAILED) for place in running.results}
            running.sent = []
        else:
            self.world.tell("sink", self.name, running.batch)
            self.checkpoint.written.add(running.batch)
        for (source, position), one in running.results.items():
            one.written = not running.skips
            self.world.truth.evaluated(running.end.session, source, position, one)
        self.world.remote_of(self.checkpoint.group).receive(
            running.end.session, running.end.epoch, running.sent
        )
        self.after("sink")

    def _publish(self, running: Running) -> None:
        if running.outcome is None:
            raise UsageError("a batch is published before it was evaluated")
        lane = BatchLane(f"{self.checkpoint.query}/{running.end.session}", running.batch)
        is_late = self.world.truth.has_gone_on(self._input.group, lane.name, lane.seq)
        self._publisher.publish(publication_of(running.outcome, lane), self._spec.partitions)
        if is_late:  # another driver has published a later batch, so that nothing of this one counts
            return
        for one in running.results.values():
            one.published_at = self.world.truth.at
        self.after("publish")


def _rank(run: SourceRun, record: Record) -> tuple[int, bool, int]:
    """Put the copies of a partition before what is new, by their origins."""
    first = first_source(run.source)
    if run.source == first:
        return first, True, run.start
    return first, False, origin_of(record.headers, "lines", partition_of(first)) or 0


def _held(outcome: BatchOutcome) -> dict[tuple[int, int], Evaluation]:
    """Return what the driver failed since it stood behind a record that failed."""
    held: dict[tuple[int, int], Evaluation] = {}
    for cause, indices in failed_by_cause(outcome):
        for index in indices.tolist() if cause.error == HELD else ():
            for run, first in zip(outcome.plan.ranges, outcome.plan.starts(), strict=True):
                if first <= index < first + run.end - run.start:
                    held[run.source, run.start + index - first] = Evaluation(
                        FAILED, causes=frozenset([(cause.operator, cause.error, cause.message)])
                    )
    return held
