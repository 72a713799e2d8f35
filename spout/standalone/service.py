"""A spout without Spark, step by step: plans records for clients and publishes what they settled.

1. `open`, then `step` until `is_ready`: the group is taken, as a new session. The open roots of the session
   before it are abandoned and replayed.
2. `read` waits for records that clients request; `step` settles verdicts, plans, and queues items.
3. `publish` writes what was settled; its publications form one lane with a rising `seq`.

One thread calls `read` and `step`, another calls `publish`; they share the queues, under the guard.

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
            open_reader: called once for each input, and once for its replay topic.
            inputs: tracked and of one group, else `UsageError`.
            guard: locked while the queues are used, and notified when something has changed for clients.
            new_id: of the session.
            report: called with events that an operator should see.
            who: what other processes are shown of this one.
            spans: gets a span for each acked record with a trace context; None: nobody traces.
        """
        untracked = [found.name for found in inputs if not found.tracked]
        if untracked:
            raise UsageError(
                f"input {untracked[0]} has `ackers: 0`: nothing of it is tracked, so nothing can be"
                " confirmed; read it with a plain consumer, or let it be tracked"
            )
        self._verdicts: list[Verdicts] = []
        self.queues = QueueCollection(inputs)
        self.durable = 0
        self._log = log = open_log()
        self._ahead = {
            found.name: InputAhead(ReadAhead(open_reader(), log), ReadAhead(open_reader(), log))
            for found in inputs
        }
        self._new_shares = {found.name: NewShare() for found in inputs}
        self._spec = spec = PlannerSpec(
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
            spec,
            new_id=new_id,
            report=report,
            reach=reaches,
            sight=reaches,
            who=who,
            on_verdicts=self._verdicts.append,
        )
        self._publisher = Publisher(open_log, topics.ack_topics, durable_ms=longest_unreachable_ms(inputs))
        self._lane = f"kestrel-{new_id}/{new_id}"
        self._guard = guard
        self._report = report
        self._journal: Journal = BEGINNING
        self._traced = None if spans is None else TracedRoots(spans)
        self._inputs = {found.id: found for found in inputs}
        self._input_ids = {found.name: found.id for found in inputs}
        self._followed = 0, 0
        self._turn = 0

    @property
    def is_ready(self) -> bool:
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
            news = self._ahead[name].look(now_ms)
            for partition in news.stand:
                self._report("partition_stands", {"partition": partition.name, "why": str(partition)})
            for place in news.go_on:
                fields = {"partition": f"{place.topic}/{place.partition}", "why": "it stood"}
                self._report("partition_goes_on", fields)
        return is_unread

    def step(self, now_ms: int) -> bool:
        """Settle verdicts, tick, and plan what clients request; return whether items were added or put back.

        Raises:
            SessionError: another session took the group.
            DataLoss: a record left the log before it was read, and `on_data_loss` is fail.
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
            lost = [self.queues.lose(each) for verdicts in self._verdicts for each in verdicts.lost]
            returned = self.queues.expire(now_ms)
            lacking = self.queues.lacking(now_ms)
            late, self.queues.late_names = self.queues.late_names, []
            touched, self.queues.touched = self.queues.touched, []
            if returned or any(lost):  # whose items were taken away may open others
                self._guard.notify_all()
        if self._traced is not None:
            for verdicts in self._verdicts:
                self._traced.settle(verdicts, self._inputs, now_ms)
        self._verdicts.clear()
        if touched:
            self._planner.reset_timeouts(touched)
        if late:
            cure = "raise the input's timeout, or call reset_timeout of the client while its work goes on"
            self._report("settled_after_the_timeout", {"roots": late, "next_step": cure})
        came = sum([self._feed(name, count, now_ms) for name, count in lacking.items()])
        return bool(came or returned)

    def publish(self) -> int | None:
        """Publish everything settled so far; return the publication's number, None if there was nothing."""
        with self._guard:
            if not self.queues.publication:
                return None
            number, spec, at = self.queues.publication.number, self._spec, self._journal
            around = BatchPlan(
                spec.group, at.session, at.epoch, spec.partitions, at.now, spec.timeout_ms, True, ()
            )
            outcome = self.queues.publication.take(self.queues.records, around)
        self._publisher.publish(publication_of(outcome, BatchLane(self._lane, number)), self._spec.partitions)
        with self._guard:
            self.durable = number
            self._guard.notify_all()
        return number

    def status(self, now_ms: int, error: str = "") -> PlannerStatus:
        status = self._planner.status(now_ms, error)
        standing = [partition for ahead in self._ahead.values() for partition in ahead.standing()]
        stands = {partition.name: str(partition) for partition in standing}
        return replace(status, stands={**status.stands, **stands})

    def close(self) -> None:
        """Commit what is settled and leave. Open records stay open until the next session takes the group."""
        with ExitStack() as stack:  # all of it, whatever the last commit raises
            stack.callback(self._log.close)
            for ahead in self._ahead.values():
                stack.callback(ahead.close)
            stack.callback(self._publisher.close)
            self._planner.close()

    def _follow(self) -> None:
        sources = self._planner.sources
        answers = len(sources), self._planner.joined
        if answers == self._followed:
            return
        self._followed = answers
        free = self._planner.free()
        for name, ahead in self._ahead.items():
            ahead.follow({s: spec for s, spec in sources.items() if spec.input.name == name}, free)

    def _compare(self, now_ms: int) -> None:
        """Where a reader is not in its log any more, find out why; raise that where the log was not cut."""
        doubts = [doubt for ahead in self._ahead.values() if (doubt := ahead.doubt()) is not None]
        if doubts and not self._planner.compare(now_ms):
            raise doubts[0]

    def _feed(self, name: str, count: int, now_ms: int) -> int:
        """Plan at most `count` of an input's records that were read, and queue them; return how many."""
        ahead, share = self._ahead[name], self._new_shares[name]
        copies = ahead.copies.groups(self._spec.partitions)
        others = self._in_turn(ahead.new.groups(self._spec.partitions))
        room = min(count, self._planner.room(self._input_ids[name]))
        competes = bool(copies) and bool(others) and ahead.copies.count + ahead.new.count > room
        kept = min(share.of(room), ahead.new.count) if competes else 0
        planned: list[TakenRun] = []
        with self._planner.together():
            came = self._plan(ahead.copies, copies, room - kept, now_ms, planned)
            of_others = self._plan(ahead.new, others, room - came, now_ms, planned)
        if competes:
            share.note(room, of_others)
        if planned:
            with self._guard:
                for records, absent, unreadable in planned:
                    for part in records:
                        self.queues.put(*part)
                    self.queues.publication.absent += absent
                    for each in unreadable:
                        self._leave_out(name, *each)
                self._guard.notify_all()
        return came + of_others

    def _plan(
        self,
        ahead: ReadAhead,
        groups: Iterable[Sequence[int]],
        count: int,
        now_ms: int,
        planned: list[TakenRun],
    ) -> int:
        """Plan at most `count` of what was read of sources, group by group; return how many records came.

        What is planned is added to `planned`. Positions without a record do not count.
        """
        came = 0
        for sources in groups:
            if came >= count:
                break
            ahead.show(sources)
            end = self._planner.plan(self._journal, count - came, now_ms)
            ranges, self._journal = batch_ranges(self._journal, end), end
            taken = [ahead.take(self._planner.sources[run.source].place, run) for run in ranges]
            if not taken:
                ahead.forget_below(self._planner.free())
                continue
            planned += taken
            for source, messages, positions, _ in chain.from_iterable(part.records for part in taken):
                came += len(messages)
                if self._traced is not None:
                    headers = zip(positions.tolist(), map(headers_of, messages), strict=True)
                    self._traced.emit(source, headers, now_ms)
        ahead.show(())
        return came

    def _leave_out(self, name: str, run: SourceRun, damaged: DamagedRun) -> None:
        """Settle positions that cannot be read: absent, or failed, and then no more is planned."""
        fields = {"input": name, "records": run.end - run.start, "place": damaged, "why": damaged.why}
        self._report(unreadable_kind(damaged.why).event, fields)
        if not self._inputs[input_id_of(run.source)].fails_on_loss():
            self.queues.publication.absent.append(run)
            return
        first, end = offset_of(run.start), offset_of(run.start) + run.end - run.start
        place = f"{damaged.topic}/{damaged.partition}"
        text = f"offsets {first} to {end} of {place} cannot be read: {damaged.why}"
        cause = Cause.of("", unreadable_kind(damaged.why).value, text)
        self.queues.publication.unreadable.append((run, cause))
        if self.queues.damage is None:
            cure = damage_cure(first, end, damaged.why)
            self.queues.damage = Damaged(damaged.topic, damaged.partition, first, damaged.why, cure)

    def _in_turn(self, groups: Sequence[Sequence[int]]) -> list[Sequence[int]]:
        """Return groups so that another one is the first at each call."""
        self._turn += 1
        first = self._turn % len(groups) if groups else 0
        return [*groups[first:], *groups[:first]]
