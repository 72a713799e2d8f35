"""The planning process of a spout: takes its group, plans batches, settles, ticks and commits.

1. `open` with what the checkpoint holds; `step` until `is_ready`: the acker partitions have answered.
2. `plan` once for each micro-batch (`spout.planning_process.batches`); if there is none, `wait_for_records`.
3. `step` all the while: verdicts settle the window, ticks move the clock where roots are open, new partitions
   are added, and the prefix of what is settled is committed.

The states of the session, and what can happen in each, stand in `spout.group.session_state`. These
words come again in this room:

* of the session this process has the state (`RunningSession`): its clock, its window of pending
  roots, and by source a *cursor*, which knows the positions that were never initialised;
* the *journal* is the offset that Spark keeps of a batch, with all that the next one has to know;
* a batch is *under way* from its planning until the driver has *published* it: until what it acked
  and failed is durable;
* a partition *stands* while it has no leader, or nothing of it arrives.

Of two times `now_ms` is wall time, and `session_ms` that of the session's clock, by which roots
time out.

Single-threaded; time is an argument. `poll` may run beside the other calls, `wait_for_records` beside `poll`
and `step`.

Source: docs/design/protocol.md, sections 3 (rules 6 and 8), 4 and 5.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import replace
from threading import Lock
from typing import NamedTuple

from acker.clock_watch import ClockWatch
from acker.config.settings import longest_unreachable_ms
from acker.errors import OutOfRange, SessionSuperseded, Unreachable, UsageError
from acker.identity import offset_of, position_at
from acker.kafka.port import Bound, Log, Reader, Record, TopicPartition
from acker.kafka.standing import StandingNews
from acker.root_sets.position_set import PositionSet
from acker.units import second_text
from acker.waits import LastTime, LongWait
from acker.wire.causes import HELD
from acker.wire.events import SourceRun, Taken, Verdicts
from acker.wire.verdict import Verdict
from spout.group.announce import SIGNS_AT, Announcer, PlannerContext, Reach, Report, Sight
from spout.group.commits import Committer
from spout.group.growth import Growth
from spout.group.opening import GrantEpoch, Opened, Opening
from spout.group.presence import SIGN_EVERY_MS, SILENT_MS_MAX, Who, describe_session
from spout.group.running_session import RunningSession, running_session_of
from spout.group.session_state import SessionEvent, SessionState, SessionStates, status_word
from spout.group.sources import PlannerSpec, SourceSpec, sources_of
from spout.group.starting import (
    Begun,
    check_cluster,
    check_journal,
    commit_mark,
    older_checkpoint,
    starting_offsets,
)
from spout.group.strangers import END_IT, MovedCommit, StrangerWatch, members_text, moved_cure, strangers_now
from spout.group.troubles import Troubles
from spout.planning.intake import SourceCursor
from spout.planning.journal import BEGINNING, Journal
from spout.planning.order import NotAcked
from spout.planning.session import SessionClock, SessionName
from spout.planning_process.batches import UNKNOWN_TARGET, Batches
from spout.planning_process.continuity import kept_read_to
from spout.planning_process.draining import Draining, verdict_wait
from spout.planning_process.order_watch import OrderWatch
from spout.planning_process.scout import Scout
from spout.planning_process.state_watch import StateWatch
from spout.planning_process.status import PlannerStatus
from spout.planning_process.timeout_resets import TimeoutResets
from spout.planning_process.verdict_reader import VerdictReader, is_lost_of

TICK_EVERY_MS = 500
"""How often the session's clock is sent to the ackers while roots are open."""

POSITION_BYTES = 8
"""A lost root's position, as verdicts pack it."""


class Taking(NamedTuple):
    """A group that is being taken: who asks the ackers, who reads what they answer, and who will commit."""

    opening: Opening
    verdict_reader: VerdictReader
    committer: Committer


class Owned(NamedTuple):
    """An owned group: the state of its session, and what serves it.

    Attributes:
        session: the state of the session.
        batches: plans.
        committer: commits what is settled.
        growth: finds new partitions, and has the ackers know them before they are read.
        draining: says when a query that ends by itself has nothing left to do.
        verdict_reader: reads what the ackers decide; None: nothing is tracked.
        order_watch: decides how ordered partitions go on; None: no input is ordered.
        resets: lets timeouts begin anew; None: nothing is tracked.
        state_watch: follows what Spark's state holds; None: no bolt of the query holds tuples
            across batches.
    """

    session: RunningSession
    batches: Batches
    committer: Committer
    growth: Growth
    draining: Draining
    verdict_reader: VerdictReader | None
    order_watch: OrderWatch | None
    resets: TimeoutResets | None
    state_watch: StateWatch | None


class Planner:
    """The service of one planning process.

    Attributes:
        joined_count: how often a source has joined since `open`: a new partition, or one in a new
            generation.
    """

    def __init__(
        self,
        log: Log,
        spec: PlannerSpec,
        *,
        new_id: str,
        report: Report | None = None,
        reach: Reach | None = None,
        sight: Sight | None = None,
        on_verdicts: Callable[[Verdicts], None] | None = None,
        who: Who | None = None,
    ) -> None:
        """Prepare; nothing is read or written before `open`, and the planner does not close the log.

        Args:
            new_id: never used before: id of the session that this process may draw, and of its lane.
            reach: which records may be planned; None: what the broker has.
            sight: which of the next offsets hold records; None: a reader of its own looks.
            on_verdicts: called in `step` with what the ackers decided, once it is settled.
            who: the process, as its signs of life name it.

        Raises `UsageError`: inputs of several groups, or tracked and untracked ones together.
        """
        if len({input.group for input in spec.inputs}) != 1:
            raise UsageError("one read_stream reads inputs of one group; read the others in another query")
        if spec.tracked and len({input.tracked for input in spec.inputs}) != 1:
            raise UsageError(
                "inputs with and without `ackers: 0` cannot share a read_stream; read them apart"
            )
        ordered = [input.name for input in spec.inputs if input.ordered]
        if ordered and not spec.tracked:
            raise UsageError(
                f"input {ordered[0]} has an ordering, which needs tracking: without it nothing waits for its"
                " replay; read it without tracked=False, or set ordering: none"
            )
        self._spec = spec
        self._new_id = new_id
        self._who = who
        self._writes_exactly_once = False
        # the offset behind the batch that is not published;
        # it counts only if the query writes exactly once
        self._unpublished: Journal | None = None
        self._publication_wait = LongWait()
        self._on_verdicts = on_verdicts
        self._is_tracked = spec.tracked and spec.inputs[0].tracked
        self._context = PlannerContext(
            log=log,
            spec=spec,
            sources={},
            announcer=None,
            report=report or (lambda _event, _fields: None),
            reach=log if reach is None else reach,
            sight=Scout(log) if sight is None else sight,
            troubles=Troubles(log),
        )
        self._journal = BEGINNING
        # by source: the offset at which the query stops, or `UNKNOWN_TARGET`; empty: it does not
        # stop
        self._target_by_source: dict[int, int] = {}
        self._session_states = SessionStates()
        # `wait_for_records` may run beside `step`: what it says of the session must not undo what that says
        self._session_lock = Lock()
        # what serves the group, while it is taken and once it is owned; None: `open` was not called
        self._group: Taking | Owned | None = None
        self._stranger_watch = StrangerWatch(log, spec.group, self._context.report)
        # by source: the commit by somebody else that was reported last
        self._reported_move_by_source: dict[int, MovedCommit] = {}
        self._verdict_long_wait = LongWait()
        self._now_ms = 0  # of the last `step`
        self._arrivals = Arrivals(log)
        # by verdict partition: the offset behind the last verdict of a lost root
        self._lost_below_by_partition: dict[int, int] = {}
        self._clock_watch = ClockWatch()
        self._blocked_count = 0  # how many roots failed as blocked
        self._runs_again = False
        self.joined_count = 0
        self._last_tick = LastTime()
        self._last_sign = LastTime()  # of life: a tick is one, too
        self._to_close = ExitStack()
        self._to_close.callback(self._arrivals.close)
        self._to_close.callback(self._context.sight.close)

    @property
    def is_open(self) -> bool:
        """Whether `open` has found the sources."""
        return self._session_states.state is not SessionState.IDLE

    @property
    def is_ready(self) -> bool:
        """Whether the group is taken, so that `plan` may be called."""
        return isinstance(self._group, Owned)

    @property
    def is_idle(self) -> bool:
        """Whether the group is taken and nothing is pending: `step` is in no hurry."""
        if not isinstance(self._group, Owned):
            return False
        session = self._group.session
        return session.is_idle and session.sibling is None

    @property
    def is_reading(self) -> bool:
        """Whether `poll` waits for records; without tracking there are none."""
        return self._verdict_reader is not None

    @property
    def _verdict_reader(self) -> VerdictReader | None:
        """What reads the ackers' answers and verdicts.

        None: nothing is tracked, or `open` was not called.
        """
        return None if self._group is None else self._group.verdict_reader

    @property
    def sources(self) -> Mapping[int, SourceSpec]:
        """The sources that are read, new partitions among them once they are found."""
        return self._context.sources

    def open(
        self,
        journal: Journal,
        now_ms: int,
        *,
        runs_again: bool = False,
        grant_epoch: GrantEpoch | None = None,
    ) -> None:
        """Begin to take the group, from where the checkpoint ends; without tracking own it at once.

        Args:
            journal: the last offset of the checkpoint; `BEGINNING`: there is none.
            now_ms: wall time.
            runs_again: Spark runs the batch that ends there once more, before it plans another.
            grant_epoch: of a query that writes exactly once: opens its store, publishes what that
                has of the last batch, and returns the epoch of the session; None: of any other one.

        Raises:
            TopicError: a topic is missing.
            Disagreement: the ackers have another number of partitions than we know, somebody moved
                the group's offsets, or a topic or the cluster is another one now.
        """
        log, spec = self._context.log, self._spec
        self._context = replace(self._context, cluster_id=log.cluster_id())
        check_cluster(journal, self._context.cluster_id)
        self._journal, self._runs_again = journal, runs_again
        self._writes_exactly_once = grant_epoch is not None
        # 1. find the sources, and check that the journal is of them
        sources = sources_of(log, spec.inputs, tracked=self._is_tracked)
        self._session_states.process(SessionEvent.SOURCES_READ)
        self._context.sources.update(sources)
        specs_to_check = list(sources.values())
        if spec.take_over:
            # who takes over may go on in a generation that a reset began, which the
            # journal does not know; only what is read again has to be as before
            read_again = {run.source for run in journal.ranges if runs_again}
            specs_to_check = [sources[source] for source in sources if source in read_again]
        check_journal(specs_to_check, journal, tracked=self._is_tracked)
        # 2. without tracking nobody is asked
        if not self._is_tracked:
            self._begin_session(
                self._untracked_session(now_ms),
                Committer(log, spec.group, self.sources, commit_mark(spec.topics)),
                verdict_reader=None,
                answered_at={},
                now_ms=now_ms,
            )
            return
        # 3. ask the ackers for the group
        self._ask_for_group(journal, now_ms, grant_epoch)

    def _ask_for_group(self, journal: Journal, now_ms: int, grant_epoch: GrantEpoch | None) -> None:
        """Send the ackers the question for the group; `step` reads their answers. See `open`."""
        log, spec = self._context.log, self._spec
        verdict_reader = VerdictReader(log, spec.topics, spec.partitions, self._context.report)
        self._to_close.callback(verdict_reader.close)
        announcer = Announcer(
            log,
            spec.topics,
            spec.group,
            spec.partitions,
            self._who,
            durable_ms=longest_unreachable_ms(spec.inputs),
            reads=[input.id for input in spec.inputs],
        )
        self._to_close.callback(announcer.close)
        self._context = replace(self._context, announcer=announcer)
        with announcer.together():  # what is read here takes 100 ms, in which the ackers answer
            opening = Opening(
                self._context,
                announcer,
                journal,
                self._new_id,
                now_ms,
                self._session_states,
                grant_epoch,
            )
            with ExitStack() as undo:  # closes the opening if the rest of this fails
                undo.callback(opening.close)
                committer = Committer(log, spec.group, self.sources, commit_mark(spec.topics))
                self._group = Taking(opening, verdict_reader, committer)
                undo.pop_all()

    def waits_for(self) -> str:
        """Return what it waits for until it has its group, in words; empty: it has it, or was not opened."""
        return self._group.opening.waits_for() if isinstance(self._group, Taking) else ""

    def stop_at_ends(self) -> None:
        """Read the inputs up to their present ends, while replays go on.

        A partition without a leader is read up to the end that it has when it gets one.
        """
        specs = sources_of(self._context.log, self._spec.inputs, tracked=False)
        answers = self._context.log.bounds(Bound.STABLE_END, [spec.place for spec in specs.values()])
        ends = answers.offsets
        # in place: batches that are planned already have the same dictionary
        for source, spec in specs.items():
            self._target_by_source[source] = ends.get(spec.place, UNKNOWN_TARGET)

    def poll(self, wait_ms: int) -> Sequence[Record]:
        """Return what came in on `_ack_verdict`, for `step`; wait at most `wait_ms` for the first record."""
        return self._verdict_reader.poll(wait_ms) if self._verdict_reader is not None else ()

    def step(self, records: Sequence[Record], now_ms: int) -> bool:
        """Read what `poll` returned, tick, commit; call it every 100 ms, while `is_idle` every 250 ms.

        Return whether anything was read.

        Raises:
            SessionError: another session holds the group.
            Unreachable: ackers or broker do not answer.
            Disagreement: the ackers know another N, topic or committed offset than we do, or the checkpoint
                is older than what its session did.
        """
        self._now_ms = now_ms
        if isinstance(self._group, Taking):
            self._step_taking(self._group, records, now_ms)
        elif isinstance(self._group, Owned) and self._group.verdict_reader is not None:
            self._report_readings(self._group.verdict_reader, records, now_ms)
            for record in records:
                event = self._decode_and_record_lost(self._group.verdict_reader, record)
                if event is not None:
                    self._apply_event(self._group, record.partition, record.offset, event, now_ms)
        # also in the step in which the group was taken
        if isinstance(self._group, Owned):
            self._step_owned(self._group, now_ms)
        return bool(records)

    def _step_taking(self, taking: Taking, records: Sequence[Record], now_ms: int) -> None:
        """Read what the ackers answered, and own the group once all of them have accepted."""
        self._report_readings(taking.verdict_reader, records, now_ms)
        for record in records:
            event = self._decode_and_record_lost(taking.verdict_reader, record)
            if event is not None:
                taking.opening.read(record.partition, record.offset, event)
        taking.opening.step(now_ms)
        if taking.opening.opened is not None:
            self._begin_session_if_current(taking, taking.opening.opened, now_ms)

    def _step_owned(self, owned: Owned, now_ms: int) -> None:
        """Reset timeouts, tick, read new sources, commit.

        Report a batch that is under way for long, and partitions that stand or go on.
        """
        self._report_batch_under_way(now_ms)
        if owned.state_watch is not None:  # before the tick, by which a root may time out
            owned.state_watch.reset_due_timeouts(owned.session.clock.now)
        session_ms = owned.session.advance_clock(now_ms)
        self._send_to_ackers(owned, session_ms, now_ms)
        self._read_joined_sources(owned, session_ms, now_ms)
        self._commit_if_due(owned, now_ms)
        next_offset_by_partition: dict[TopicPartition, int] = {}
        for source, cursor in owned.session.cursors.items():
            next_offset = offset_of(cursor.first_uninitialised)
            next_offset_by_partition[self.sources[source].place] = next_offset
        self._report_standing(self._context.troubles.step(next_offset_by_partition, now_ms))

    def _report_batch_under_way(self, now_ms: int) -> None:
        """Report each minute for how long a batch is under way whose store keeps the clock standing."""
        if self.unpublished is None:
            self._publication_wait.over()
            return
        waited_ms = self._publication_wait.record_wait(self.unpublished.ranges, now_ms)
        if waited_ms is not None:
            cure = (
                "no root times out meanwhile; see in Spark's UI and the driver's log what the batch waits for"
            )
            fields = {"group": self._spec.group, "waited_s": waited_ms // 1000, "next_step": cure}
            self._context.report("batch_is_under_way", fields)

    def _report_readings(self, verdict_reader: VerdictReader, records: Sequence[Record], now_ms: int) -> None:
        """Report verdict partitions that stand, and clocks that differ, by what a poll brought."""
        self._report_standing(verdict_reader.check_standing(now_ms))
        clock_news = self._clock_watch.compare(records, now_ms)
        if clock_news:
            self._context.report("clocks_differ", {"group": self._spec.group, "why": clock_news})

    def _decode_and_record_lost(
        self, verdict_reader: VerdictReader, record: Record
    ) -> Taken | Verdicts | None:
        """Return what an acker partition wrote, and record if it lost roots of ours.

        None: it is passed over.
        """
        event = verdict_reader.decode(record)
        # also while the group is taken: by a Take roots are lost, too
        if is_lost_of(event, self.sources):
            self._lost_below_by_partition[record.partition] = record.offset + 1
        return event

    def plan(self, start: Journal, limit: int | None, now_ms: int, tasks: int | None = None) -> Journal:
        """Plan a batch as `Batches.plan` does, and record that it is under way.

        Only when `is_ready`.
        """
        owned = self._require_owned()
        self._process_event(SessionEvent.RECORDS_REQUESTED)
        if self._writes_exactly_once:
            # before the first root is initialised; an error
            # ends the process with a clock that stands
            owned.session.stop_clock(now_ms)
        end = owned.batches.plan(start, limit, now_ms, tasks)
        if end != start and end.ranges:  # of a batch without records nothing is published
            self._unpublished = end
        elif self._unpublished is None:
            # no batch keeps the clock standing
            owned.session.start_clock()
        if owned.state_watch is not None and end != start:
            owned.state_watch.begin_batch(end)
        return end

    @property
    def unpublished(self) -> Journal | None:
        """The offset behind a batch that a store may not have yet; None: none is under way.

        It has no place in a query that does not write exactly once.
        """
        return self._unpublished if self._writes_exactly_once else None

    @property
    def under_way(self) -> Journal | None:
        """The offset behind a batch that is not published, of a query that may hold records; else None."""
        if not isinstance(self._group, Owned) or self._group.state_watch is None:
            return None
        return self._group.state_watch.under_way

    def record_held_roots(self, held: Sequence[SourceRun] | None) -> None:
        """Record that the batch under way is published, and what of it Spark's state holds.

        None: unknown.
        """
        state_watch = self._require_owned().state_watch
        if state_watch is not None:
            state_watch.end_batch(held)

    def wait_for_records(self, wait_ms: int) -> bool:
        """Wait at most `wait_ms`; return whether there may be something to plan. False: `plan` finds nothing.

        Call it again and again while it returns False, and else not for a second; see
        `Arrivals.wait_for_record`.
        """
        read_to = self._require_owned().batches.ends_if_all_read
        self._process_event(SessionEvent.RECORDS_REQUESTED)
        # a source that has joined since the last plan has no end here: then something may be there
        is_all_read = len(read_to) == len(self.sources)
        if is_all_read and not self._arrivals.wait_for_record(read_to, wait_ms):
            return False
        self._arrivals.stop_reading()
        return True

    def compare_logs(self, now_ms: int) -> bool:
        """Compare the logs with what was read of them; see `Batches.compare_logs`.

        Only when `is_ready`.
        """
        return self._require_owned().batches.compare_logs(now_ms)

    def record_publication(self, end: Journal, not_acked: Sequence[NotAcked]) -> None:
        """Record that the acks of the last batch are durable, and which of its roots these do not ack."""
        owned = self._require_owned()
        if owned.order_watch is not None and owned.batches.is_end_of_last_batch(end):
            owned.order_watch.record_published(end, not_acked)

    def restart_clock(self, end: Journal) -> None:
        """Start the session's clock again: the store has the batch that ends at `end`."""
        if self._unpublished == end:
            self._unpublished = None
            self._require_owned().session.start_clock()

    def room(self, input_id: int) -> int:
        """Return how many more records of an input may be pending; only when `is_ready`."""
        return self._require_owned().batches.room(input_id)

    def together(self) -> AbstractContextManager[None]:
        """Hold back what is sent to the ackers until the context ends; see `Announcer.together`."""
        return nullcontext() if self._context.announcer is None else self._context.announcer.together()

    def first_uninitialised_positions(self) -> dict[int, int]:
        """Return the first position of each source that was never initialised; only when `is_ready`."""
        return {
            source: cursor.first_uninitialised
            for source, cursor in self._require_owned().session.cursors.items()
        }

    def is_drained(self) -> bool:
        """Return whether nothing is pending, due or left to plan; for queries that end then.

        Reports what is waited for, and raises, as `Draining.follow` does.
        """
        return self._require_owned().draining.follow(self._lost_below_by_partition, self._now_ms)

    def report_verdict_wait(self, now_ms: int) -> None:
        """Report each minute which verdicts are waited for; call it where `plan` found nothing to do.

        While a batch runs its roots are pending, and nobody waits: so it is not called then.
        """
        owned = self._require_owned()
        is_held = owned.state_watch is not None and owned.state_watch.holds_all_pending()
        if owned.verdict_reader is None or owned.session.is_idle or is_held:
            self._verdict_long_wait.over()
            return
        wait = verdict_wait(owned.session, now_ms)
        waited_ms = self._verdict_long_wait.record_wait((wait.event, wait.progress), now_ms)
        if waited_ms is not None:
            fields = {"group": self._spec.group, "waited_s": waited_ms // 1000, **wait.fields}
            self._context.report(wait.event, fields)

    def commit(self) -> None:
        """Commit what is settled now, rather than in a few seconds."""
        owned = self._require_owned()
        owned.committer.commit(owned.session.committable())

    @property
    def commit_refused(self) -> str:
        """Why the broker refused the last commit, with who keeps it back; empty: it did not."""
        refused = self._require_owned().committer.refused
        if not refused:
            return ""
        members = strangers_now(self._context.log, self._spec.group)
        return f"{refused}; in the group is {members}: {END_IT}" if members else refused

    def reset_timeouts(self, runs: Iterable[SourceRun]) -> None:
        """Begin the timeouts of roots without a verdict anew, by the session's clock.

        Raises `Unreachable`: the broker does not have it in time.
        """
        resets = self._require_owned().resets
        if resets is not None:
            resets.reset(runs)

    def leave(self) -> None:
        """Commit what is settled and write that the query ends.

        If it asks for records after all (`plan`, `wait_for_records`), the next `step` says that it lives.
        """
        if self._session_states.state in (SessionState.SUPERSEDED, SessionState.CLOSED):
            return  # the group is another's, and so are its commits: those of a reset are lower
        self.commit()
        if self._session_states.state is not SessionState.OWNING or self._context.announcer is None:
            return
        session = self._require_owned().session
        self._process_event(SessionEvent.GOODBYE_SENT)
        # if the query goes on after all, the next step sends a sign of life at once
        self._last_sign.at_ms = None
        with suppress(Unreachable):  # then others notice the silence, some seconds later
            self._context.announcer.send_goodbye(session.name, session.clock.now)

    def status(self, now_ms: int, error: str = "") -> PlannerStatus:
        """Return the status; `error` says why the process stopped."""
        state = "failed" if error else status_word(self._session_states.state)
        if not isinstance(self._group, Owned):
            return PlannerStatus(state, self._spec.group, error=error, wall=now_ms)
        owned = self._group
        session, batches, committer = owned.session, owned.batches, owned.committer
        window, counts = session.window, session.window.counts
        oldest_ms = window.oldest_emitted_ms()  # None: nothing is pending
        waits: dict[str, str] = {}
        blocked_now: dict[str, int] = {}
        if owned.order_watch is not None:
            waits = dict(owned.order_watch.wait_by_partition)
            blocked_now = dict(owned.order_watch.blocked_by_partition)
        return PlannerStatus(
            state=state,
            group=self._spec.group, session=session.name.id, epoch=session.name.epoch,
            batches=batches.batch_count, emitted=window.emitted, replayed=batches.replayed_count,
            pending=window.pending, acked=counts[Verdict.ACKED], absent=counts[Verdict.ABSENT],
            failed=counts[Verdict.FAILED], timed_out=counts[Verdict.TIMED_OUT],
            abandoned=counts[Verdict.ABANDONED], late=window.late, unknown=window.unknown,
            undecodable=0 if owned.verdict_reader is None else owned.verdict_reader.undecodable_count,
            lost_from_log=batches.lost_from_log_count,
            oldest_pending_ms=0 if oldest_ms is None else max(0, now_ms - oldest_ms),
            batch_ms=batches.last_took_ms, batch_records_max=batches.pace.next_records_max() or 0,
            limit_hits=batches.limit_hits,
            clock=session.clock.now,
            committed={
                str(self.sources[source]): offset for source, offset in committer.committed().items()
            },
            commit_failures=committer.failures, error=error, wall=now_ms,
            held=self._blocked_count,
            waits=waits,
            stands=self._why_stands(owned),
            held_now=blocked_now,
        )  # fmt: skip

    def _why_stands(self, owned: Owned) -> dict[str, str]:
        """Return by partition that stands why it does: it has no leader, or nothing of it arrives."""
        standing = () if owned.verdict_reader is None else owned.verdict_reader.standing()
        why_by_partition = {partition.name: str(partition) for partition in standing}
        return why_by_partition | self._context.troubles.texts()

    def close(self) -> None:
        """Commit what is settled, leave, and close all readers.

        Without effect if it is closed already.

        What is open stays open: its clock stands still.
        """
        if self._session_states.is_closed:
            return
        # at its end the context closes all of them, also if the last commit raises
        with self._to_close as readers_to_close:
            readers_to_close.callback(self._process_event, SessionEvent.CLOSE)
            if isinstance(self._group, Taking):
                readers_to_close.callback(self._group.opening.close)
            if isinstance(self._group, Owned):
                self.leave()

    def _process_event(self, event: SessionEvent) -> None:
        """Move the session to its next state, under the lock; see `SessionStates.process`."""
        with self._session_lock:
            self._session_states.process(event)

    def _report_standing(self, news: StandingNews) -> None:
        """Report which partitions stand, and which go on again."""
        for standing in news.stand:
            fields = {"partition": standing.name, "why": str(standing)}
            self._context.report("partition_stands", fields)
        for place in news.go_on:
            name = f"{place.topic}/{place.partition}"
            self._context.report("partition_goes_on", {"partition": name, "why": "it stood"})

    def _require_owned(self) -> Owned:
        """Return the group; `UsageError` if it is not taken yet."""
        if not isinstance(self._group, Owned):
            raise UsageError("the planner has not taken its group; step it until is_ready")
        return self._group

    def _begin_session_if_current(self, taking: Taking, opened: Opened, now_ms: int) -> None:
        """Begin a session with the group that all acker partitions have given us.

        If the checkpoint is an older copy, and the query takes over, ask for the group anew
        instead.
        """
        spec = self._spec
        session = running_session_of(opened, self._journal, spec.group, spec.partitions, now_ms)
        if opened.is_restart and self._report_if_older_checkpoint(session, taking.verdict_reader):
            taking.opening.take_anew(now_ms)
            return
        owned = self._begin_session(
            session, taking.committer, taking.verdict_reader, opened.answer_offsets, now_ms
        )
        # what acker partitions wrote behind their answers, before the last of these came
        for partition, offset, event in opened.later_events:
            self._apply_event(owned, partition, offset, event, now_ms)
        epoch, session_id = opened.name
        fields = {"session": session_id, "epoch": epoch, "restart": opened.is_restart}
        self._context.report("session_began", fields)

    def _report_if_older_checkpoint(self, session: RunningSession, verdict_reader: VerdictReader) -> bool:
        """Report a checkpoint that lacks a batch which its session acked; return whether it does.

        Raises `Disagreement` instead, unless the query takes over.
        """
        acked = self._find_acked_behind_checkpoint(session, verdict_reader)
        if acked is None:
            return False
        source_spec = self.sources[acked.source]
        if not self._spec.take_over:
            raise older_checkpoint(source_spec, acked, self._spec.way)
        self._context.report("checkpoint_is_older", {"acked": f"{source_spec}@{offset_of(acked.start)}"})
        return True

    def _find_acked_behind_checkpoint(
        self, session: RunningSession, verdict_reader: VerdictReader
    ) -> SourceRun | None:
        """Return some roots that were ACKED and are in no batch of this checkpoint.

        None: there are none.

        The driver acks only what Spark has journalled: so these were in a later checkpoint. What
        was ACKED since this process began proves nothing: another driver may be at its last batch.
        """
        settled_roots = session.settled_not_journalled(self._journal)
        if not settled_roots:
            return None
        # so far the clocks of two machines may differ
        since_ms = self._journal.at_ms - SILENT_MS_MAX
        patience_ms = longest_unreachable_ms(self._spec.inputs)
        return verdict_reader.find_acked(settled_roots, since_ms, patience_ms)

    def _untracked_session(self, now_ms: int) -> RunningSession:
        """Return the state of a query that is not tracked, so that its session has no name.

        It reads on where the journal ends, else where the group's commits or the options say.
        Sources of which nobody can say where they begin are left out until they have a leader.
        """
        # 1. what the journal knows goes on there
        marks = {source: mark for source, mark in self._journal.sources.items() if source in self.sources}
        cursors: dict[int, SourceCursor] = {}
        for source, mark in marks.items():
            cursors[source] = SourceCursor(mark.from_, mark.next, PositionSet(mark.gaps), mark.leader_epoch)
        # 2. the other sources begin where the group's commits or the options say, in generation 0
        without_mark = [spec for source, spec in self.sources.items() if source not in marks]
        left_out_before = dict.fromkeys(self._journal.waits, self._journal.at_ms)
        begun = Begun(marks, left_out_before)
        first_offsets = starting_offsets(self._context, without_mark, begun)
        for source, offset in first_offsets.items():
            first_position = position_at(0, offset)
            cursors[source] = SourceCursor(from_=first_position, next=first_position)
        # 3. those without a known start wait; by the journal a later process knows since when
        without_start = {spec.source for spec in without_mark} - first_offsets.keys()
        since_ms = {source: left_out_before.get(source, now_ms) for source in without_start}
        self._context.leave_out(since_ms)
        no_name = SessionName(0, "")
        clock = SessionClock(now_ms, now_ms)
        return RunningSession(no_name, clock, cursors, self._spec.partitions)

    def _begin_session(
        self,
        session: RunningSession,
        committer: Committer,
        verdict_reader: VerdictReader | None,
        answered_at: Mapping[int, int],
        now_ms: int,
    ) -> Owned:
        """Own the group from now on: make what serves the session, and return it.

        Args:
            verdict_reader: None: nothing is tracked.
            answered_at: by acker partition, the offset of its answer; empty: nothing is tracked.
        """
        context = self._context
        # 1. what plans
        is_ordered = self._is_tracked and any(input.ordered for input in self._spec.inputs)
        order_watch = OrderWatch(context, session, answered_at) if is_ordered else None
        if order_watch is not None:
            self._to_close.callback(order_watch.close)
        # a lane is a numbered sequence of messages to the ackers; its name is of this process and
        # session
        lane = f"planner-{self._new_id}/{session.name.id}"
        batches = Batches(context, session, lane, self._target_by_source, order_watch)
        # 2. what commits
        committer.use_cursors(session.cursors)
        # after the cursors, whose generation says which of the kept offsets still count
        batches.continuity.restore(kept_read_to(self._journal, committer.read_to(), session.cursors))
        committer.replace_foreign_commits(session.committable())
        # 3. what follows timeouts, and Spark's state
        self._last_sign.at_ms = now_ms  # the question for the group was one
        resets, state_watch = None, None
        if context.announcer is not None:
            resets = TimeoutResets(session, context.announcer, lane)
        if self._spec.wakes and resets is not None:
            batch_again = self._journal if self._runs_again else None
            state_watch = StateWatch(session, resets, self._spec, batch_again)
        # 4. what says when all is done
        draining = Draining(context, session, batches, state_watch, verdict_reader)
        self._to_close.callback(draining.close)
        owned = Owned(
            session,
            batches,
            committer,
            Growth(context, session.name, now_ms),
            draining,
            verdict_reader,
            order_watch,
            resets,
            state_watch,
        )
        is_untracked = verdict_reader is None
        self._process_event(SessionEvent.UNTRACKED_BEGUN if is_untracked else SessionEvent.GROUP_OWNED)
        self._group = owned
        return owned

    def _apply_event(
        self, owned: Owned, partition: int, offset: int, event: Taken | Verdicts, now_ms: int
    ) -> None:
        """Settle verdicts, or read an answer to a question that was sent since the group is owned.

        `partition` and `offset` are those of the acker's record. Raises `SessionSuperseded`: it is
        the answer to a higher session, which owns the group now.
        """
        if isinstance(event, Verdicts):
            self._apply_verdicts(owned, partition, offset, event, now_ms)
            return
        spec, session = self._spec, owned.session
        other = SessionName(event.epoch, event.session)
        if event.group == spec.group and other > session.name:
            self._process_event(SessionEvent.HIGHER_SESSION_SEEN)
            owner = describe_session(self._context.log, spec, other, now_ms)
            raise SessionSuperseded(
                f"{owner} took group {spec.group} from session {session.name}; what was open is replayed"
                f" there. Stop it, if it is a query, and start this one again with {spec.way}"
            )
        # it may answer the question about new sources, or that about the session beside this one
        owned.growth.read(partition, event)
        session.read(partition, event)

    def _apply_verdicts(
        self, owned: Owned, partition: int, offset: int, verdicts: Verdicts, now_ms: int
    ) -> None:
        """Settle what an acker partition decided, in the record at an offset."""
        if owned.order_watch is not None:
            owned.order_watch.record_lost(partition, offset, verdicts)
        blocked_count = 0
        for lost in verdicts.lost:
            if lost.error == HELD and lost.source in self.sources:
                blocked_count += len(lost.positions) // POSITION_BYTES
        self._blocked_count += blocked_count
        owned.batches.pace.take_off_records(blocked_count)  # no bolt had them: they took no time
        has_settled = owned.session.settle(partition, verdicts)
        if has_settled:
            owned.batches.record_progress(now_ms)
        if self._on_verdicts is not None:
            self._on_verdicts(verdicts)

    def _send_to_ackers(self, owned: Owned, session_ms: int, now_ms: int) -> None:
        """Send a tick where roots are open, a sign of life, a question: each if it is due.

        Without tracking nothing is sent.
        """
        session = owned.session
        announcer = self._context.announcer
        if announcer is None:
            return
        # a query that has left gives no sign of life, until Spark asks for records again
        has_left = self._session_states.state in (SessionState.LEFT, SessionState.CLOSED)
        partitions = session.ticked_partitions()
        if partitions and not has_left and self._last_tick.begin_if_due(now_ms, TICK_EVERY_MS):
            self._last_sign.at_ms = now_ms
            session.clock.record_sent()
            announcer.send_tick(session.name, session_ms, partitions, now_ms)
        if not has_left and self._last_sign.begin_if_due(now_ms, SIGN_EVERY_MS):
            # without open roots a tick is only a sign of
            # life: the clock that it has stands still
            announcer.send_tick(session.name, session_ms, (SIGNS_AT,), now_ms)
        # while the process before of this session may live: its clock counts, too
        if session.sibling is not None:
            partitions_to_ask = session.sibling.start_question(now_ms)
            if partitions_to_ask:
                announcer.send_take(session.sibling.question, session_ms, (), partitions_to_ask)

    def _commit_if_due(self, owned: Owned, now_ms: int) -> None:
        """Commit what is settled now and then; report who moves the commits, or has them refused."""
        committer = owned.committer
        committer.step(owned.session.committable, now_ms, idle=owned.session.is_idle)
        self._stranger_watch.step(committer.refused, now_ms)
        self._report_moved_commits(committer, now_ms)

    def _read_joined_sources(self, owned: Owned, session_ms: int, now_ms: int) -> None:
        """Read sources that have joined from now on: new partitions, and what begins a new generation."""
        # of sources whose logs were cut: where their next generation begins
        new_start_by_source = owned.batches.new_start_by_source
        # one kind at a time: both ask the ackers, and wait for their answers
        joined = owned.growth.step(session_ms, now_ms)
        if not joined:
            joined = owned.growth.begin_again(new_start_by_source, session_ms, now_ms)
        for spec, cursor in joined:
            self._context.sources[spec.source] = spec
            self._context.left_out.pop(spec.source, None)
            owned.session.add_source(spec.source, cursor)
            self.joined_count += 1
            if new_start_by_source.pop(spec.source, None) is not None:
                owned.committer.allow_lower_commit(spec.source)

    def _report_moved_commits(self, committer: Committer, now_ms: int) -> None:
        """Report commits of somebody else, each once for as long as the group has it."""
        for source, moved in committer.moved.items():
            if self._reported_move_by_source.get(source) != moved:
                strangers = members_text(self._stranger_watch.strangers) or "nobody"
                fields = {
                    "group": self._spec.group,
                    "moved": str(moved),
                    "seen": second_text(now_ms),
                    "in_the_group": strangers,
                    "next_step": moved_cure(self._spec.group, self.sources[source].input.name, moved),
                }
                self._context.report("commit_was_moved", fields)
        self._reported_move_by_source = dict(committer.moved)


class Arrivals:
    """Waits for new records of partitions that are read to their ends, by a fetch that is answered late.

    It follows partitions only while it waits for them, since what it reads a task reads again.

    Source: docs/design/performance.md, "Idle".
    """

    def __init__(self, log: Log) -> None:
        """Begin without a reader; the first wait opens one."""
        self._log = log
        self._reader: Reader | None = None
        # from where the reader reads now; empty: it reads nothing
        self._assigned_ends: dict[TopicPartition, int] = {}

    def wait_for_record(self, ends: Mapping[TopicPartition, int], wait_ms: int) -> bool:
        """Wait at most `wait_ms`; return whether there may be something behind one of the ends.

        A reader that was taken off its partitions (`stop_reading`) may have a fetch under way for
        600 ms, and sends no other until it is answered. So wait a second before this is called
        again.

        Raises `Unreachable`: the broker does not answer.
        """
        if self._reader is None:
            self._reader = self._log.reader(committed=True, patient=True)
        if self._assigned_ends != ends:
            self._assigned_ends = dict(ends)
            self._reader.assign(self._assigned_ends)
        try:
            records = self._reader.poll(wait_ms, max_records=1)
        except OutOfRange:  # a log is shorter than it was: planning finds out
            return True
        # a reader passes what is not a record, as markers of transactions: that moves its position
        has_moved = any(self._reader.position(place) > end for place, end in ends.items())
        return bool(records) or has_moved

    def stop_reading(self) -> None:
        """Read nothing until the next `wait_for_record`."""
        if self._reader is not None and self._assigned_ends:
            self._assigned_ends = {}
            self._reader.assign({})

    def close(self) -> None:
        """Close the reader, if there is one."""
        if self._reader is not None:
            self._reader.close()
        self._reader = None
