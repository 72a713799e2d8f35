"""A spout without Spark, step by step: plans records for clients and publishes what they settled.

1. `open`, then `step` until `is_ready`: the group is taken, as a new session.
   The open roots of the session before it are abandoned and replayed.
2. `read` waits for records that clients request; `step` settles verdicts,
   plans, and queues items.
3. `publish` writes what was settled; its publications form one lane with a
   rising `seq`.

One thread calls `read` and `step`, another calls `publish`; they share the
queues, under the guard.

Source: docs/design/protocol.md, sections 3, 4 and 5.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from threading import Condition

from acker.config.settings import Input, longest_unreachable_ms
from acker.config.topics import Topics
from acker.errors import Damaged, UsageError, unreadable_kind
from acker.identity import input_id_of, offset_of
from acker.kafka.headers import headers_of
from acker.kafka.port import DamagedRun, Log
from acker.kafka.standing import StandingNews
from acker.wire.events import SourceRun, Verdicts
from spout.group.announce import Report
from spout.group.presence import Who
from spout.group.sources import PlannerSpec
from spout.planning.intake import NewShare
from spout.planning.journal import BEGINNING, Journal, batch_ranges
from spout.planning.plan import BatchPlan
from spout.planning_process.planner import Planner
from spout.planning_process.sink_watch import damage_cure
from spout.planning_process.status import PlannerStatus
from spout.publishing.publish import BatchLane, Publisher, publication_of
from spout.runtime.tracing import Spans, TracedRoots
from spout.standalone.queues import QueueCollection
from spout.standalone.read_ahead import (
    InputAhead,
    MessageReader,
    Reaches,
    ReadAhead,
    TakenRun,
)
from spout.tuples.failures import Cause


class SpoutService:
    """The service behind a `KafkaSpout`; under the guard, `durable` is the last durable publication."""

    def __init__(
        self,
        open_log: Callable[[], Log],
        open_reader: Callable[[], MessageReader],
        topics: Topics,
        inputs: Sequence[Input],
        guard: Condition,
        *,
        new_id: str,
        report: Report,
        take_over: bool = False,
        who: Who | None = None,
        spans: Spans | None = None,
    ) -> None:
        """Prepare; nothing is read or written before `open`.

        Args:
            open_log: called once to plan and once to publish.
            open_reader: called once for each input, and once for its replay
                topic.
            inputs: tracked and of one group, else `UsageError`.
            guard: locked while the queues are used, and notified when
                something has changed for clients.
            new_id: of the session.
            report: called with events that an operator should see.
            who: what other processes are shown of this one.
            spans: gets a span for each acked record with a trace context;
                None: nobody traces.
        """
        for input in inputs:
            if not input.tracked:
                raise UsageError(
                    f"input {input.name} has `ackers: 0`: nothing of it is tracked, so nothing can be"
                    " confirmed; read it with a plain consumer, or let it be tracked"
                )
        self._new_verdicts: list[Verdicts] = []  # those that came since the last step
        self.queues = QueueCollection(inputs)
        self.durable = 0
        self._log = log = open_log()
        # by an input's name: what was read ahead, and how room is shared
        # between new records and copies
        self._ahead: dict[str, InputAhead] = {}
        self._new_shares: dict[str, NewShare] = {}
        for input in inputs:
            copies = ReadAhead(open_reader(), log)
            self._ahead[input.name] = InputAhead(copies, new=ReadAhead(open_reader(), log))
            self._new_shares[input.name] = NewShare()
        self._spec = PlannerSpec(
            tuple(inputs),
            topics.ack_topics,
            topics.acker.partitions,
            tasks=1,
            paced=False,
            take_over=take_over,
            way="KafkaSpout(..., take_over=True)",
        )
        reaches = Reaches(chain.from_iterable(self._ahead.values()))
        self._planner = Planner(
            log,
            self._spec,
            new_id=new_id,
            report=report,
            reach=reaches,
            sight=reaches,
            who=who,
            on_verdicts=self._new_verdicts.append,
        )
        self._publisher = Publisher(open_log, topics.ack_topics, durable_ms=longest_unreachable_ms(inputs))
        self._lane = f"kestrel-{new_id}/{new_id}"
        self._guard = guard
        self._report = report
        self._journal: Journal = BEGINNING
        self._traced = None if spans is None else TracedRoots(spans)
        self._inputs = {input.id: input for input in inputs}
        self._input_ids = {input.name: input.id for input in inputs}
        # how many sources the planner had, and how many acker partitions had
        # answered, at the last `_follow`
        self._followed = (0, 0)
        self._turn = 0

    @property
    def is_ready(self) -> bool:
        """Whether the group is taken, so that records can be planned."""
        return self._planner.is_ready

    def waits_for(self) -> str:
        """See `Planner.waits_for`."""
        return self._planner.waits_for()

    def open(self, now_ms: int) -> None:
        """Begin to take the group; errors as `Planner.open`."""
        self._planner.open(BEGINNING, now_ms)

    def read(self, now_ms: int, wait_ms: int) -> bool:
        """Read what clients request, waiting at most `wait_ms`; return whether some is not read yet."""
        if not self.is_ready:
            return False
        with self._guard:
            lacking = self.queues.lacking(now_ms)
        is_unread = False
        for name, count in lacking.items():
            is_unread |= self._ahead[name].poll(wait_ms // len(lacking), count)
            self._report_standing(self._ahead[name].look(now_ms))
        return is_unread

    def _report_standing(self, news: StandingNews) -> None:
        """Report partitions that stand still, and those that go on again."""
        for partition in news.stand:
            self._report("partition_stands", {"partition": partition.name, "why": str(partition)})
        for place in news.go_on:
            fields = {"partition": f"{place.topic}/{place.partition}", "why": "it stood"}
            self._report("partition_goes_on", fields)

    def step(self, now_ms: int) -> bool:
        """Settle verdicts, tick, and plan what clients request; return whether items were added or put back.

        Raises:
            SessionError: another session took the group.
            DataLoss: a record left the log before it was read, and
                `on_data_loss` is fail.
            Disagreement: a log was cut.
            OutOfRange: a partition ends before what was read.
            Unreachable: ackers or broker do not answer.
        """
        self._planner.step(self._planner.poll(0), now_ms)
        if not self.is_ready:
            return False
        self._follow()
        self._compare(now_ms)
        with self._guard:
            has_lost = self._lose_items()
            returned_count = self.queues.expire(now_ms)
            lacking = self.queues.lacking(now_ms)
            late_names, self.queues.late_names = self.queues.late_names, []
            self.queues.keep_unopened(now_ms)
            touched, self.queues.touched = self.queues.touched, []
            if returned_count or has_lost:  # whose items were taken away may open others
                self._guard.notify_all()
        if self._traced is not None:
            for verdicts in self._new_verdicts:
                self._traced.settle(verdicts, self._inputs, now_ms)
        self._new_verdicts.clear()
        if touched:
            self._planner.reset_timeouts(touched)
        if late_names:
            cure = "raise the input's timeout, or call reset_timeout of the client while its work goes on"
            self._report("settled_after_the_timeout", {"roots": late_names, "next_step": cure})
        added_count = 0
        for name, count in lacking.items():
            added_count += self._feed(name, count, now_ms)
        return bool(added_count or returned_count)

    def _lose_items(self) -> bool:
        """Take away the items whose roots the new verdicts lost; return whether there was any."""
        has_lost = False
        for verdicts in self._new_verdicts:
            for lost in verdicts.lost:
                has_lost |= self.queues.lose(lost)
        return has_lost

    def publish(self) -> int | None:
        """Publish everything settled so far; return the publication's number, None if there was nothing."""
        with self._guard:
            if not self.queues.publication:
                return None
            number = self.queues.publication.number
            plan_without_ranges = BatchPlan(
                group=self._spec.group,
                session=self._journal.session,
                epoch=self._journal.epoch,
                partitions=self._spec.partitions,
                now=self._journal.now,
                timeout_ms=self._spec.timeout_ms,
                tracked=True,
                ranges=(),
            )
            outcome = self.queues.publication.take(self.queues.records, plan_without_ranges)
        self._publisher.publish(publication_of(outcome, BatchLane(self._lane, number)), self._spec.partitions)
        with self._guard:
            self.durable = number
            self._guard.notify_all()
        return number

    def status(self, now_ms: int, error: str = "") -> PlannerStatus:
        """Return the planner's status, with the partitions that this spout reads and that stand still."""
        status = self._planner.status(now_ms, error)
        why_by_partition = dict(status.stands)
        for ahead in self._ahead.values():
            for partition in ahead.standing():
                why_by_partition[partition.name] = str(partition)
        return replace(status, stands=why_by_partition)

    def close(self) -> None:
        """Commit what is settled and leave. Open records stay open until the next session takes the group."""
        with ExitStack() as stack:  # all of it, whatever the last commit raises
            stack.callback(self._log.close)
            for ahead in self._ahead.values():
                stack.callback(ahead.close)
            stack.callback(self._publisher.close)
            self._planner.close()

    def _follow(self) -> None:
        """Add the planner's sources to the readers, once there are more, or more ackers have answered."""
        sources = self._planner.sources
        answers = (len(sources), self._planner.joined)
        if answers == self._followed:
            return
        self._followed = answers
        free = self._planner.free()
        for name, ahead in self._ahead.items():
            sources_of_input = {source: spec for source, spec in sources.items() if spec.input.name == name}
            ahead.follow(sources_of_input, free)

    def _compare(self, now_ms: int) -> None:
        """Where a reader is not in its log any more, find out why; raise that where the log was not cut."""
        doubts = [ahead.doubt() for ahead in self._ahead.values()]
        first_doubt = next((doubt for doubt in doubts if doubt is not None), None)
        if first_doubt is not None and not self._planner.compare(now_ms):
            raise first_doubt

    def _feed(self, name: str, count: int, now_ms: int) -> int:
        """Plan at most `count` of an input's records that were read, and queue them; return how many.

        Copies are planned first. If there are more records than room, new ones
        have a share of it.
        """
        ahead = self._ahead[name]
        share = self._new_shares[name]
        copy_groups = ahead.copies.groups(self._spec.partitions)
        new_groups = self._in_turn(ahead.new.groups(self._spec.partitions))
        room = min(count, self._planner.room(self._input_ids[name]))
        has_both = bool(copy_groups) and bool(new_groups)
        is_contested = has_both and ahead.copies.count + ahead.new.count > room
        room_for_new = min(share.part_of(room), ahead.new.count) if is_contested else 0
        planned: list[TakenRun] = []
        with self._planner.together():
            copy_count = self._plan(ahead.copies, copy_groups, room - room_for_new, now_ms, planned)
            new_count = self._plan(ahead.new, new_groups, room - copy_count, now_ms, planned)
        if is_contested:
            share.record_share(room, new_count)
        if planned:
            with self._guard:
                self._queue(name, planned)
                self._guard.notify_all()
        return copy_count + new_count

    def _queue(self, name: str, planned: Iterable[TakenRun]) -> None:
        """Add what was planned of an input to the queues; settle what has no record. Under the guard."""
        for taken in planned:
            for records in taken.records:
                self.queues.put(*records)
            self.queues.publication.absent += taken.absent
            for unreadable in taken.unreadable:
                self._leave_out(name, unreadable.run, unreadable.damaged)

    def _plan(
        self,
        ahead: ReadAhead,
        groups: Iterable[Sequence[int]],
        count: int,
        now_ms: int,
        planned: list[TakenRun],
    ) -> int:
        """Plan at most `count` of what was read of sources, group by group; return how many records came.

        What is planned is added to `planned`. Positions without a record do
        not count.
        """
        record_count = 0
        for sources in groups:
            if record_count >= count:
                break
            ahead.show(sources)
            end = self._planner.plan(self._journal, count - record_count, now_ms)
            ranges = batch_ranges(self._journal, end)
            self._journal = end
            taken = [ahead.take(self._planner.sources[run.source].place, run) for run in ranges]
            if not taken:  # perhaps a former owner has initialised what was read
                ahead.forget_below(self._planner.free())
                continue
            planned += taken
            for records in chain.from_iterable(taken_run.records for taken_run in taken):
                record_count += len(records.messages)
                if self._traced is not None:
                    headers = map(headers_of, records.messages)
                    headers_by_position = zip(records.positions.tolist(), headers, strict=True)
                    self._traced.emit(records.source, headers_by_position, now_ms)
        ahead.show(())
        return record_count

    def _leave_out(self, name: str, run: SourceRun, damaged: DamagedRun) -> None:
        """Settle positions that cannot be read: absent, or failed, and then no more is planned."""
        fields = {"input": name, "records": run.end - run.start, "place": damaged, "why": damaged.why}
        self._report(unreadable_kind(damaged.why).event, fields)
        if not self._inputs[input_id_of(run.source)].fails_on_loss():
            self.queues.publication.absent.append(run)
            return
        start = offset_of(run.start)
        end = start + run.end - run.start
        place = f"{damaged.topic}/{damaged.partition}"
        text = f"offsets {start} to {end} of {place} cannot be read: {damaged.why}"
        cause = Cause.of("", unreadable_kind(damaged.why).value, text)
        self.queues.publication.unreadable.append((run, cause))
        if self.queues.damage is None:
            cure = damage_cure(start, end, damaged.why)
            self.queues.damage = Damaged(damaged.topic, damaged.partition, start, damaged.why, cure)

    def _in_turn(self, groups: Sequence[Sequence[int]]) -> list[Sequence[int]]:
        """Return groups so that another one is the first at each call."""
        self._turn += 1
        if not groups:
            return []
        first_index = self._turn % len(groups)
        return [*groups[first_index:], *groups[:first_index]]
