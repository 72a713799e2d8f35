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
from typing import NamedTuple

from acker.config.settings import Input, longest_unreachable_ms
from acker.config.topics import Topics
from acker.errors import Damaged, OutOfRange, UsageError, unreadable_kind
from acker.identity import input_id_of, offset_of
from acker.kafka.headers import headers_of
from acker.kafka.port import DamagedRun, Log
from acker.kafka.standing import StandingNews
from acker.listing import offsets_text
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
from spout.standalone.item_records import FailedRun
from spout.standalone.queues import QueueCollection
from spout.standalone.read_ahead import (
    GroupReach,
    InputAhead,
    MessageReader,
    ReadAhead,
    TakenRun,
)
from spout.tuples.failures import Cause


class _SourceCounts(NamedTuple):
    """How many sources the planner had, and how many acker partitions had answered it."""

    source_count: int
    acker_partition_count: int


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
            who: what other processes are shown of this one; None: nothing.
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
        # both by an input's name: what was read and is not planned, and which
        # part of a plan new records get beside copies
        self._read_ahead_by_input: dict[str, InputAhead] = {}
        self._new_share_by_input: dict[str, NewShare] = {}
        for input in inputs:
            copies = ReadAhead(open_reader(), log)
            new = ReadAhead(open_reader(), log)
            self._read_ahead_by_input[input.name] = InputAhead(copies, new)
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
        group_reach = GroupReach(chain.from_iterable(self._read_ahead_by_input.values()))
        self._planner = Planner(
            log,
            self._spec,
            new_id=new_id,
            report=report,
            reach=group_reach,
            sight=group_reach,
            who=who,
            on_verdicts=self._new_verdicts.append,
        )
        durable_ms = longest_unreachable_ms(inputs)
        self._publisher = Publisher(open_log, topics.ack_topics, durable_ms=durable_ms)
        self._lane_name = f"kestrel-{new_id}/{new_id}"
        self._guard = guard
        self._report = report
        self._journal: Journal = BEGINNING  # what was planned, up to the last `Planner.plan`
        self._traced_roots = None if spans is None else TracedRoots(spans)
        self._input_by_id = {input.id: input for input in inputs}
        self._input_id_by_name = {input.name: input.id for input in inputs}
        # at the last `_read_new_sources`
        self._counts_of_sources = _SourceCounts(source_count=0, acker_partition_count=0)
        self._rotation_count = 0  # calls of `_rotate`

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
        """Read what clients request, waiting at most `wait_ms`; return whether some is not read yet.

        Report partitions that stand still: they have records that do not come.
        """
        if not self.is_ready:
            return False
        with self._guard:
            lacking_count_by_input = self.queues.lacking_count_by_input(now_ms)
        is_unread = False
        for name, lacking_count in lacking_count_by_input.items():
            input_ahead = self._read_ahead_by_input[name]
            # one input after the other waits, so all together wait `wait_ms`
            input_wait_ms = wait_ms // len(lacking_count_by_input)
            is_unread |= input_ahead.poll(input_wait_ms, lacking_count)
            self._report_standing(input_ahead.take_standing_news(now_ms))
        return is_unread

    def _report_standing(self, news: StandingNews) -> None:
        """Report partitions that stand still, and those that go on again."""
        for standing in news.stand:
            self._report("partition_stands", {"partition": standing.name, "why": str(standing)})
        for partition in news.go_on:
            name = f"{partition.topic}/{partition.partition}"
            self._report("partition_goes_on", {"partition": name, "why": "it stood"})

    def step(self, now_ms: int) -> bool:
        """Settle verdicts, tick, and plan what clients request.

        Return whether items were added or put back, so that a client may open
        some.

        1. Let the planner settle verdicts and tick.
        2. Under the guard, remove items whose roots were lost, put back those
           that clients had open for too long, and ask what clients lack.
        3. Send the timeouts that are to begin anew, and report settlements
           that came too late.
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
        self._compare_logs_if_out_of_range(now_ms)
        # 2. the queues
        with self._guard:
            has_removed_items = self._remove_lost_items()
            returned_count = self.queues.put_back_expired(now_ms)
            lacking_count_by_input = self.queues.lacking_count_by_input(now_ms)
            # before `take_roots_to_reset`, which returns these roots, too
            self.queues.reset_unopened_timeouts(now_ms)
            late_names = self.queues.take_late_names()
            roots_to_reset = self.queues.take_roots_to_reset()
            # a client whose items were removed may open others
            if returned_count or has_removed_items:
                self._guard.notify_all()
        # 3. timeouts, and the traces of roots with a verdict
        if self._traced_roots is not None:
            for verdicts in self._new_verdicts:
                self._traced_roots.settle(verdicts, self._input_by_id, now_ms)
        self._new_verdicts.clear()
        if roots_to_reset:
            self._planner.reset_timeouts(roots_to_reset)
        if late_names:
            cure = "raise the input's timeout, or call reset_timeout of the client while its work goes on"
            self._report("settled_after_the_timeout", {"roots": late_names, "next_step": cure})
        # 4. new items
        added_count = 0
        for name, lacking_count in lacking_count_by_input.items():
            added_count += self._plan_input(name, lacking_count, now_ms)
        return bool(added_count or returned_count)

    def _remove_lost_items(self) -> bool:
        """Remove the items whose roots the new verdicts lost; return whether there was any."""
        has_removed = False
        for verdicts in self._new_verdicts:
            for lost in verdicts.lost:
                has_removed |= self.queues.remove_lost(lost)
        return has_removed

    def publish(self) -> int | None:
        """Publish all that was settled so far, durably; return the publication's number.

        None: nothing was settled since the last one.
        """
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
        """Return the planner's status, with the partitions of inputs that stand still."""
        status = self._planner.status(now_ms, error)
        why_by_partition = dict(status.stands)
        for input_ahead in self._read_ahead_by_input.values():
            for partition in input_ahead.standing():
                why_by_partition[partition.name] = str(partition)
        return replace(status, stands=why_by_partition)

    def close(self) -> None:
        """Commit what is settled, and leave the group.

        The roots of open items stay pending until the next session takes the
        group.
        """
        with ExitStack() as stack:  # everything is closed, whatever the last commit raises
            stack.callback(self._log.close)
            for input_ahead in self._read_ahead_by_input.values():
                stack.callback(input_ahead.close)
            stack.callback(self._publisher.close)
            self._planner.close()

    def _read_new_sources(self) -> None:
        """Add the planner's sources to the readers, if there are more, or more ackers answered."""
        sources = self._planner.sources
        counts_of_sources = _SourceCounts(len(sources), self._planner.joined_count)
        if counts_of_sources == self._counts_of_sources:  # the usual case: nothing is new
            return
        self._counts_of_sources = counts_of_sources
        first_free_by_source = self._planner.first_uninitialised_positions()
        for name, input_ahead in self._read_ahead_by_input.items():
            sources_of_input = {
                source: spec
                for source, spec in sources.items()
                if spec.input.name == name  # the others are of another `InputAhead`
            }
            input_ahead.add_sources(sources_of_input, first_free_by_source)

    def _compare_logs_if_out_of_range(self, now_ms: int) -> None:
        """Have the planner find out why a reader is not in its log any more, if one is not.

        If the log was cut, its source begins a new generation, and reading
        goes on there. If not, raise the reader's `OutOfRange`.
        """
        first_error: OutOfRange | None = None
        for input_ahead in self._read_ahead_by_input.values():
            first_error = first_error or input_ahead.out_of_range()
        if first_error is None:
            return
        was_cut = self._planner.compare_logs(now_ms)
        if not was_cut:
            raise first_error

    def _plan_input(self, name: str, count: int, now_ms: int) -> int:
        """Plan at most `count` records of an input that were read, and queue them; return how many.

        Copies are planned first. If more records were read than may be planned
        now, new ones get a part of the plan all the same (`NewShare`), so that
        copies of records that always fail do not keep them waiting.
        """
        input_ahead = self._read_ahead_by_input[name]
        new_share = self._new_share_by_input[name]
        copy_groups = input_ahead.copies.source_groups(self._spec.partitions)
        new_groups = self._rotate(input_ahead.new.source_groups(self._spec.partitions))
        # how many records may be planned, how many of them are kept for new ones
        room = min(count, self._planner.room(self._input_id_by_name[name]))
        room_for_new = 0
        has_both = bool(copy_groups) and bool(new_groups)
        read_count = input_ahead.copies.count + input_ahead.new.count
        must_share = has_both and read_count > room
        if must_share:
            room_for_new = min(new_share.kept_in(room), input_ahead.new.count)
        room_for_copies = room - room_for_new
        with self._planner.together():
            copy_runs = self._plan_groups(input_ahead.copies, copy_groups, room_for_copies, now_ms)
            copy_count = _record_count(copy_runs)
            # what the copies left of their room, too
            new_runs = self._plan_groups(input_ahead.new, new_groups, room - copy_count, now_ms)
            new_count = _record_count(new_runs)
        if must_share:
            new_share.record_share(room, new_count)
        if copy_runs or new_runs:
            with self._guard:
                self._queue_planned(name, [*copy_runs, *new_runs])
                self._guard.notify_all()
        return copy_count + new_count

    def _queue_planned(self, name: str, planned: Iterable[TakenRun]) -> None:
        """Add what was planned of an input to the queues; settle what has no record.

        Called under the guard.
        """
        for taken_run in planned:
            for source, messages, positions, topic_id in taken_run.records:
                self.queues.put(source, messages, positions, topic_id)
            self.queues.publication.absent_runs += taken_run.absent_runs
            for unreadable in taken_run.unreadable_runs:
                self._settle_unreadable(name, unreadable.run, unreadable.damaged)

    def _plan_groups(
        self, read_ahead: ReadAhead, groups: Iterable[Sequence[int]], count: int, now_ms: int
    ) -> list[TakenRun]:
        """Plan at most `count` records that were read, group by group; return what was planned.

        A group is sources that are planned together
        (`ReadAhead.source_groups`). Positions without a record do not count.
        """
        planned: list[TakenRun] = []
        room = count
        for sources in groups:
            if room <= 0:
                break
            read_ahead.plan_only(sources)
            # the journal has all that was planned: a plan is what it gains
            next_journal = self._planner.plan(self._journal, room, now_ms)
            ranges = batch_ranges(self._journal, next_journal)
            self._journal = next_journal
            taken_runs: list[TakenRun] = []
            for run in ranges:
                partition = self._planner.sources[run.source].place
                taken_runs.append(read_ahead.take_run(partition, run))
            if not taken_runs:
                # perhaps a former owner has initialised what was read, so that
                # it is never planned
                read_ahead.drop_below(self._planner.first_uninitialised_positions())
                continue
            self._keep_trace_contexts(taken_runs, now_ms)
            planned += taken_runs
            room -= _record_count(taken_runs)
        read_ahead.plan_only(())
        return planned

    def _keep_trace_contexts(self, taken_runs: Iterable[TakenRun], now_ms: int) -> None:
        """Keep the trace contexts of records that were planned, if somebody traces."""
        if self._traced_roots is None:
            return
        for taken_run in taken_runs:
            for records in taken_run.records:
                headers = map(headers_of, records.messages)
                headers_by_position = zip(records.positions.tolist(), headers, strict=True)
                self._traced_roots.emit(records.source, headers_by_position, now_ms)

    def _settle_unreadable(self, name: str, run: SourceRun, damaged: DamagedRun) -> None:
        """Settle and report positions of an input that cannot be read.

        They are absent if its `on_data_loss` is skip; else they fail, and no
        more is planned. Called under the guard.
        """
        count = run.end - run.start
        fields = {"input": name, "records": count, "place": damaged, "why": damaged.why}
        self._report(unreadable_kind(damaged.why).event, fields)
        if not self._input_by_id[input_id_of(run.source)].fails_on_loss():
            self.queues.publication.absent_runs.append(run)
            return
        start_offset = offset_of(run.start)
        end_offset = start_offset + count
        text = (
            f"{offsets_text(start_offset, end_offset)} of {damaged.topic}/{damaged.partition}"
            f" cannot be read: {damaged.why}"
        )
        # no operator: no bolt has seen them
        cause = Cause.of("", unreadable_kind(damaged.why).value, text)
        self.queues.publication.unreadable_runs.append(FailedRun(run, cause))
        if self.queues.damage is None:  # clients get to know the first one
            cure = damage_cure(start_offset, end_offset, damaged.why)
            self.queues.damage = Damaged(damaged.topic, damaged.partition, start_offset, damaged.why, cure)

    def _rotate(self, groups: Sequence[Sequence[int]]) -> list[Sequence[int]]:
        """Return the groups with another one first at each call, so that none always waits."""
        self._rotation_count += 1
        if not groups:
            return []
        first_index = self._rotation_count % len(groups)
        return [*groups[first_index:], *groups[:first_index]]


def _record_count(taken_runs: Iterable[TakenRun]) -> int:
    """Return how many records were taken; positions without a record do not count."""
    count = 0
    for taken_run in taken_runs:
        for records in taken_run.records:
            count += len(records.messages)
    return count
