"""A spout without Spark, step by step: plans records for clients and publishes what they settled.

1. `open`, then `step` until `is_ready`: the group is taken, as a new session.
   The open roots of the session before it are abandoned and replayed.
2. `read` waits for records that clients request; `step` settles verdicts,
   plans, and queues items.
3. `publish` writes what was settled. Its publications form one *lane*: they
   are numbered, and an acker takes each number of a lane once.

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
    """The service behind a `KafkaSpout`.

    Attributes:
        queues: what clients open and settle; used under the guard.
        durable_number: of the last publication that is durable in Kafka, 0:
            none is; read under the guard.
    """

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
        self.durable_number = 0
        self._log = log = open_log()
        # by an input's name: what was read ahead, and which part of the room
        # new records get beside copies
        self._ahead_by_input: dict[str, InputAhead] = {}
        self._new_share_by_input: dict[str, NewShare] = {}
        for input in inputs:
            copies = ReadAhead(open_reader(), log)
            self._ahead_by_input[input.name] = InputAhead(copies, new=ReadAhead(open_reader(), log))
            self._new_share_by_input[input.name] = NewShare()
        self._spec = PlannerSpec(
            tuple(inputs),
            topics.ack_topics,
            topics.acker.partitions,
            tasks=1,
            paced=False,
            take_over=take_over,
            way="KafkaSpout(..., take_over=True)",
        )
        reaches = Reaches(chain.from_iterable(self._ahead_by_input.values()))
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
        self._lane_name = f"kestrel-{new_id}/{new_id}"
        self._guard = guard
        self._report = report
        self._journal: Journal = BEGINNING  # what was planned, up to the last `Planner.plan`
        self._traced = None if spans is None else TracedRoots(spans)
        self._inputs = {input.id: input for input in inputs}
        self._input_ids = {input.name: input.id for input in inputs}
        # how many sources the planner had, and how many acker partitions had
        # answered, at the last `_read_new_sources`
        self._source_counts = (0, 0)
        self._rotation_count = 0  # calls of `_rotated`

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
        """Read what clients request, waiting at most `wait_ms`; return whether some is not read
        yet.

        Report partitions that stand still: they have records that do not come.
        """
        if not self.is_ready:
            return False
        with self._guard:
            lacking = self.queues.lacking_counts(now_ms)
        is_unread = False
        for name, count in lacking.items():
            is_unread |= self._ahead_by_input[name].poll(wait_ms // len(lacking), count)
            self._report_standing(self._ahead_by_input[name].take_standing_news(now_ms))
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

        1. Let the planner settle verdicts and tick.
        2. Under the guard, take away items whose roots were lost, put back
           those that clients had open for too long, and see what clients lack.
        3. Hand on what the clients' calls left: resets of timeouts, and
           settlements that came too late.
        4. Plan what clients lack.

        Raises:
            SessionError: another session took the group.
            DataLoss: a record left the log before it was read, and
                `on_data_loss` is fail.
            Disagreement: a log was cut.
            OutOfRange: a partition ends before what was read.
            Unreachable: ackers or broker do not answer.
        """
        # 1. verdicts and the clock
        messages = self._planner.poll(0)
        self._planner.step(messages, now_ms)
        if not self.is_ready:
            return False
        self._read_new_sources()
        self._require_logs_of_before(now_ms)
        # 2. the queues
        with self._guard:
            has_lost = self._take_away_lost()
            returned_count = self.queues.expire(now_ms)
            lacking = self.queues.lacking_counts(now_ms)
            self.queues.keep_unopened(now_ms)
            late_names = self.queues.take_late_names()
            runs_to_reset = self.queues.take_runs_to_reset()
            if returned_count or has_lost:  # whose items were taken away may open others
                self._guard.notify_all()
        # 3. what the clients' calls left
        if self._traced is not None:
            for verdicts in self._new_verdicts:
                self._traced.settle(verdicts, self._inputs, now_ms)
        self._new_verdicts.clear()
        if runs_to_reset:
            self._planner.reset_timeouts(runs_to_reset)
        if late_names:
            cure = "raise the input's timeout, or call reset_timeout of the client while its work goes on"
            self._report("settled_after_the_timeout", {"roots": late_names, "next_step": cure})
        # 4. new items
        added_count = 0
        for name, count in lacking.items():
            added_count += self._plan_input(name, count, now_ms)
        return bool(added_count or returned_count)

    def _take_away_lost(self) -> bool:
        """Take away the items whose roots the new verdicts lost; return whether there was any."""
        has_lost = False
        for verdicts in self._new_verdicts:
            for lost in verdicts.lost:
                has_lost |= self.queues.take_away(lost)
        return has_lost

    def publish(self) -> int | None:
        """Publish everything settled so far; return the publication's number, None if there was nothing."""
        with self._guard:
            if not self.queues.publication:
                return None
            number = self.queues.publication.number
            # the fields of a batch's plan that an acker needs beside the roots
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
            outcome = self.queues.publication.take_outcome(self.queues.records, plan_without_ranges)
        publication = publication_of(outcome, BatchLane(self._lane_name, number))
        self._publisher.publish(publication, self._spec.partitions)  # returns once it is durable
        with self._guard:
            self.durable_number = number
            self._guard.notify_all()
        return number

    def status(self, now_ms: int, error: str = "") -> PlannerStatus:
        """Return the planner's status, with the partitions that this spout reads and that stand still."""
        status = self._planner.status(now_ms, error)
        why_by_partition = dict(status.stands)
        for ahead in self._ahead_by_input.values():
            for partition in ahead.standing():
                why_by_partition[partition.name] = str(partition)
        return replace(status, stands=why_by_partition)

    def close(self) -> None:
        """Commit what is settled and leave. Open records stay open until the next session takes the group."""
        with ExitStack() as stack:  # all of it, whatever the last commit raises
            stack.callback(self._log.close)
            for ahead in self._ahead_by_input.values():
                stack.callback(ahead.close)
            stack.callback(self._publisher.close)
            self._planner.close()

    def _read_new_sources(self) -> None:
        """Add the planner's sources to the readers, once there are more, or more ackers have answered."""
        sources = self._planner.sources
        counts = (len(sources), self._planner.joined_count)
        if counts == self._source_counts:  # the usual case: nothing is new
            return
        self._source_counts = counts
        free = self._planner.first_uninitialised_positions()
        for name, ahead in self._ahead_by_input.items():
            sources_of_input = {source: spec for source, spec in sources.items() if spec.input.name == name}
            ahead.add_sources(sources_of_input, free)

    def _require_logs_of_before(self, now_ms: int) -> None:
        """Where a reader is not in its log any more, find out why.

        If the log was cut, its source begins a new generation, and reading
        goes on there. If not, raise `OutOfRange`.
        """
        doubts = [ahead.doubt() for ahead in self._ahead_by_input.values()]
        first_doubt = next((doubt for doubt in doubts if doubt is not None), None)
        if first_doubt is None:
            return
        was_cut = self._planner.compare_logs(now_ms)
        if not was_cut:
            raise first_doubt

    def _plan_input(self, name: str, count: int, now_ms: int) -> int:
        """Plan at most `count` of an input's records that were read, and queue them; return how many.

        Copies are planned first. If there are more records than room, new ones
        get a part of it all the same (`NewShare`), so that copies of records
        that always fail do not keep them waiting.
        """
        ahead = self._ahead_by_input[name]
        share = self._new_share_by_input[name]
        copy_groups = ahead.copies.groups(self._spec.partitions)
        new_groups = self._rotated(ahead.new.groups(self._spec.partitions))
        room = min(count, self._planner.room(self._input_ids[name]))
        has_both = bool(copy_groups) and bool(new_groups)
        is_contested = has_both and ahead.copies.count + ahead.new.count > room
        room_for_new = min(share.kept_in(room), ahead.new.count) if is_contested else 0
        planned: list[TakenRun] = []
        with self._planner.together():
            copy_count = self._plan_groups(ahead.copies, copy_groups, room - room_for_new, now_ms, planned)
            new_count = self._plan_groups(ahead.new, new_groups, room - copy_count, now_ms, planned)
        if is_contested:
            share.record_share(room, new_count)
        if planned:
            with self._guard:
                self._queue_planned(name, planned)
                self._guard.notify_all()
        return copy_count + new_count

    def _queue_planned(self, name: str, planned: Iterable[TakenRun]) -> None:
        """Add what was planned of an input to the queues; settle what has no record. Under the guard."""
        for taken in planned:
            for records in taken.records:
                self.queues.put(records.source, records.messages, records.positions, records.topic_id)
            self.queues.publication.absent += taken.absent
            for unreadable in taken.unreadable:
                self._settle_unreadable(name, unreadable.run, unreadable.damaged)

    def _plan_groups(
        self,
        ahead: ReadAhead,
        groups: Iterable[Sequence[int]],
        count: int,
        now_ms: int,
        planned: list[TakenRun],
    ) -> int:
        """Plan at most `count` of what was read of sources, group by group; return how many records came.

        A group is sources that are planned together (`ReadAhead.groups`). What
        is planned is added to `planned`. Positions without a record do not
        count.
        """
        record_count = 0
        for sources in groups:
            if record_count >= count:
                break
            ahead.show_only(sources)
            end = self._planner.plan(self._journal, count - record_count, now_ms)
            ranges = batch_ranges(self._journal, end)
            self._journal = end
            taken = [ahead.take_run(self._planner.sources[run.source].place, run) for run in ranges]
            if not taken:  # perhaps a former owner has initialised what was read
                ahead.forget_below(self._planner.first_uninitialised_positions())
                continue
            planned += taken
            for records in chain.from_iterable(taken_run.records for taken_run in taken):
                record_count += len(records.messages)
                if self._traced is not None:
                    headers = map(headers_of, records.messages)
                    headers_by_position = zip(records.positions.tolist(), headers, strict=True)
                    self._traced.emit(records.source, headers_by_position, now_ms)
        ahead.show_only(())
        return record_count

    def _settle_unreadable(self, name: str, run: SourceRun, damaged: DamagedRun) -> None:
        """Settle and report positions of an input that cannot be read.

        They are absent if its `on_data_loss` is skip; else they fail, and no
        more is planned. Under the guard.
        """
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

    def _rotated(self, groups: Sequence[Sequence[int]]) -> list[Sequence[int]]:
        """Return the groups so that another one is the first at each call."""
        self._rotation_count += 1
        if not groups:
            return []
        first_index = self._rotation_count % len(groups)
        return [*groups[first_index:], *groups[:first_index]]
