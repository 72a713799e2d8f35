"""A group with an ordered input in memory, and the simplest Spark: it runs a batch, or runs it again.

Reading, gate, fold and publication are the real ones, except the client of Kafka. The bolt is a function of
the record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from acker.identity import acker_partition, copies_source, first_source, offset_of, partition_of
from acker.kafka.port import Outgoing, Record, TopicPartition
from acker.wire.causes import HELD
from acker.wire.codec import wire_codec
from acker.wire.events import SourceRun
from replay.records.headers import parse_lineage
from spout.group.sources import topic_names
from spout.planning.journal import BEGINNING, Journal, batch_ranges, journal_of
from spout.planning.order import Gate
from spout.planning.plan import BatchPlan, ReadTask, read_tasks
from spout.planning_process.planner import Planner
from spout.publishing.fold import BatchOutcome, TaskReport
from spout.publishing.publish import BatchLane, not_acked, publication_of
from spout.publishing.settle import settle
from spout.streaming.ordered_read import origin_of
from spout.tuples.failures import Cause
from tests.support.reports import failures_of, reported, task_report
from tests.support.worlds.planning import FLUSH_MS, World

YAML = """
acker: {partitions: 2}
inputs:
  sentences:
    id: 1
    group: g
    partitions: 2
    timeout: %(timeout)s
    ordering: %(ordering)s
    max_held: %(max_held)s
    max_spout_pending: %(pending)s
    hold: 500ms
    retry: {attempts: %(attempts)s, initial: 300ms, multiplier: 2, max: 2s, jitter: 0}
"""


class Ran(NamedTuple):
    """A record that a bolt executed, or that was blocked. `failed` is empty where it succeeded."""

    batch: int
    partition: int
    origin: int
    key: bytes | None
    failed: str


Bolt = Callable[[Record, int, int], str]
"""Executes a record, from its partition and origin; returns an error, or nothing."""


class OrderWorld(World):
    """The group, its planning process, and what its bolt has done."""

    def __init__(
        self,
        ordering: str = "key",
        *,
        timeout: str = "30s",
        max_held: int = 1_000,
        attempts: int = 4,
        max_spout_pending: int = 1_000_000,
        more: str = "",
    ) -> None:
        """Start an acker and a replay worker; `more` has further inputs, which are not executed."""
        values = {
            "ordering": ordering,
            "timeout": timeout,
            "max_held": max_held,
            "attempts": attempts,
            "pending": max_spout_pending,
        }
        super().__init__(YAML % values + more)
        self.start_replays()
        self.done = BEGINNING
        self.running: Journal | None = None
        self.ran: list[Ran] = []
        self.batches = 0
        self.batch_of: dict[tuple[int, int], int] = {}
        self.bolt: Bolt = lambda _record, _partition, _origin: ""
        self.behind_a_shuffle = False
        self.names_not_acked = True
        self.spout: Planner = self.ready()

    def restart(self) -> None:
        """Let the planning process die, and start it again from what Spark journalled."""
        self.kill(self.spout)
        last = self.done if self.running is None else self.running
        self.spout = self.ready(journal_of(last.to_json()))

    def restart_replays(self) -> None:
        """Let the replay worker die, and start another."""
        self.kill_replays()
        self.start_replays()

    def kill_replays(self) -> None:
        """Let the replay worker die wherever it is; its place in the group is gone."""
        place = self.replays and self.replays._membership
        if place is not None:
            place.vanish()  # type: ignore[attr-defined]  # the in-memory one can
        self.replays = None

    def plan(self, limit: int | None = None) -> bool:
        """Plan a batch; return whether there is one."""
        if self.running is not None:
            return True
        end = self.spout.plan(self.done, limit, self.now_ms)
        self.running = journal_of(end.to_json()) if end != self.done else None
        return self.running is not None

    def execute(self, *, publish: bool = True, end: bool = True) -> list[Ran]:
        """Run the batch that was planned; `publish` its ledger; let it `end`, or be run again."""
        if self.running is None:
            return []
        before = len(self.ran)
        tasks = self.tasks()
        for source, start, stop in batch_ranges(self.done, self.running):
            self.batch_of.update(((source, position), self.batches) for position in range(start, stop))
        reports = [reported(1, 0, number, self._run(task)) for number, task in enumerate(tasks)]
        outcome = self._publish(reports) if publish else None
        if end:
            named = None if outcome is None or not self.names_not_acked else not_acked(outcome)
            if named is not None:
                self.spout.record_publication(self.running, named)
            self.done, self.running = self.running, None
            self.batches += 1
        return self.ran[before:]

    def tasks(self) -> list[ReadTask]:
        """Return the tasks of the batch that runs: a pure function of what was journalled."""
        if self.running is None:
            return []
        plan = BatchPlan(
            "g", self.running.session, self.running.epoch, self.topics.acker.partitions, self.running.now,
            4_000, True, batch_ranges(self.done, self.running),
        )  # fmt: skip
        inputs = tuple(self.topics.inputs.values())
        names = topic_names(inputs, plan.ranges)
        return read_tasks(plan, names, 3, self.running.order) or [ReadTask(plan, (), {})]

    def live(self, ms: int, *, limit: int | None = None) -> None:
        """Let the query run for some time."""
        until_ms = self.now_ms + ms
        while self.now_ms < until_ms:
            self.plan(limit)
            self.execute()
            self.run(100)

    def rest(self, *, most_ms: int = 120_000) -> None:
        """Let the query run until nothing is left to do."""
        until_ms = self.now_ms + most_ms
        while not self.spout.is_drained() or self.running is not None:
            if self.now_ms > until_ms:
                raise TimeoutError(f"it does not come to rest: {self.spout.status(self.now_ms)}")
            self.live(100)

    def succeeded(self, partition: int = 0, key: bytes | None = None) -> list[int]:
        """Return the origins of what was executed without failing, in that order."""
        return [
            ran.origin
            for ran in self.ran
            if ran.partition == partition and not ran.failed and key in (None, ran.key)
        ]

    def acked(self) -> list[tuple[int, int]]:
        """Return source and position of each acked root, batch by batch; within one copies come first."""
        runs = [run for each in self.verdicts() for run in each.acked]
        roots = [(source, position) for source, start, end in runs for position in range(start, end)]
        return sorted(roots, key=lambda root: (self.batch_of[root], -root[0], root[1]))

    def held(self) -> list[Ran]:
        """Return the blocked records."""
        return [ran for ran in self.ran if ran.failed == HELD]

    def letters(self) -> list[Record]:
        """Return the dead letters."""
        return self.records("sentences.g.dlq")

    def records(self, topic: str) -> list[Record]:
        """Return the committed records of a topic, partition by partition."""
        places = [TopicPartition(topic, number) for number in range(2)]
        return [record for place in places for record in self._read(place, 0, 1 << 40)]

    def _run(self, task: ReadTask) -> TaskReport:
        failed: list[tuple[int, Cause]] = []
        absent: list[SourceRun] = []
        lined_records = []
        for source, line_up in sorted(task.order.items()):
            place = TopicPartition("sentences", partition_of(source))
            gate = Gate(f"{place.topic}/{place.partition}", "sentences", line_up)
            rows: list[tuple[int, int, Record]] = []
            for run in task.ranges:
                if first_source(run.source) == source:
                    rows += self._rows(task, run, place, absent)
            copies = [row for row in rows if row[2].topic != place.topic]
            news = [row for row in rows if row[2].topic == place.topic]
            for index, origin, record in [*sorted(copies, key=lambda row: row[1]), *news]:
                if record.topic == place.topic:
                    gate.begin_new()
                cause = gate.admit(index, record.key, origin)
                error = HELD if cause else self.bolt(record, place.partition, origin)
                self.ran.append(Ran(self.batches, place.partition, origin, record.key, error))
                if error:
                    failed.append((index, cause or Cause("split", error, "")))
                    if not self.behind_a_shuffle:
                        gate.fail(index)
            lined_records.append(gate.lined_records())
        return task_report(
            "split", plan=task.plan, ranges=task.ranges, absent=tuple(sorted(absent)),
            failures=failures_of(failed), lined_records=tuple(lined_records),
        )  # fmt: skip

    def _rows(
        self, task: ReadTask, run: SourceRun, place: TopicPartition, absent: list[SourceRun]
    ) -> list[tuple[int, int, Record]]:
        first = offset_of(run.start)
        there = TopicPartition(task.topics[run.source], partition_of(run.source))
        found = self._read(there, first, first + run.end - run.start)
        shift = run.start - first
        seen = {record.offset for record in found}
        gone = (offset + shift for offset in range(first, first + run.end - run.start) if offset not in seen)
        absent += [SourceRun(run.source, position, position + 1) for position in gone]
        index = task.plan.index()
        rows = []
        for record in found:
            origin = record.offset
            if run.source == copies_source(run.source):
                origin = origin_of(record.headers, *place) or 0
            at = int(index.of(run.source, np.array([record.offset + shift]))[0])
            rows.append((at, origin, record))
        return rows

    def _read(self, place: TopicPartition, start: int, end: int) -> Sequence[Record]:
        reader = self.log.reader(committed=True)
        reader.assign({place: start})
        return [record for record in reader.poll(0, 1_000_000) if record.offset < end]

    def _publish(self, reports: Sequence[TaskReport]) -> BatchOutcome:
        outcome = settle(reports, (), lambda _stage: None)
        publication = publication_of(outcome, BatchLane("q/" + outcome.plan.session, self.batches))
        producer, codec, names = self.log.producer(), wire_codec(), self.topics.ack_topics
        for topic, records in ((names.fail, publication.fails), (names.ack, publication.acks)):
            for record in records:
                owner = acker_partition(record.source, record.block << 15, self.topics.acker.partitions)
                producer.send(Outgoing(topic, owner, codec.encode(record)))
            producer.flush(FLUSH_MS)
        return outcome


def attempt_of(record: Record) -> int:
    """Return which emission of its record this is."""
    return parse_lineage(record.headers, record.topic, record.partition, record.offset).attempt
