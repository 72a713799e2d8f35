"""Plans micro-batches of one session: chooses ranges, makes their Init durable, and journals them.

The state of a session in this process is a `RunningSession`: it has the session's clock, and by
source a *cursor*, which knows the positions that were never initialised. To *initialise* roots is
to announce them to the ackers (`Init`), durably, before a task reads them. Further words of this
room:

* a *portion* is what a batch takes: `ranges` that tasks read, and *holes*, long stretches without a
  record, which no task reads. Holes are initialised with the ranges, and reported as absent at
  once;
* the *leftover* is what was initialised and not journalled, by a process that died then. It goes
  first;
* the *turn* of an ordered partition says what the next batch may read of it; one that waits has none;
* a *gap* is uninitialised positions below initialised ones, which a process left that died between
  the messages of one Init;
* a *lane* is a numbered sequence of messages to the ackers, which apply each number once.

Of two times `now_ms` is wall time, and `session_ms` that of the session's clock, by which roots
time out.

Source: docs/design/protocol.md, section 5.1, "Planning".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, NamedTuple

from acker.errors import DataLoss, UsageError
from acker.identity import (
    GENERATION_MAX,
    copies_source,
    first_source,
    generation_of,
    is_replay,
    offset_of,
    position_at,
)
from acker.kafka.port import Bound, OffsetAnswers, TopicPartition
from acker.root_sets.root_set import RootSet
from acker.wire.events import PositionRun, SourceRun
from spout.group.announce import PlannerContext, Reach
from spout.group.running_session import RunningSession
from spout.group.starting import log_was_cut
from spout.planning.intake import Room
from spout.planning.journal import Journal
from spout.planning.order import LineUp, Turn
from spout.planning.pace import BatchPace
from spout.planning.supply import HOLE_POSITIONS_MAX, Portion, joined_portions, positions_in
from spout.planning_process.choosing import Chooser
from spout.planning_process.continuity import Continuity, Cut
from spout.planning_process.order_watch import OrderWatch


class _Choice(NamedTuple):
    """What a batch takes besides what was initialised before.

    Attributes:
        portion: what is initialised now, `copies` among it.
        copies: the part of `portion` that was chosen first: copies of ordered partitions.
        gone: uninitialised positions that are taken though their records have left the log.
        copies_max: how many copies of each ordered partition may go to bolts; None: all of them.
        unreadable: sources of which nothing was taken, since nobody can say where their logs begin.
    """

    portion: Portion
    copies: Portion
    gone: Sequence[SourceRun]
    copies_max: int | None
    unreadable: Collection[int] = ()

    def without(self, sources: Collection[int]) -> _Choice:
        """Return what is left without some sources."""
        gone = [run for run in self.gone if run.source not in sources]
        return _Choice(
            portion=self.portion.without(sources),
            copies=self.copies.without(sources),
            gone=gone,
            copies_max=self.copies_max,
        )


class _Planned(NamedTuple):
    """A batch that was planned: the offsets before and behind it."""

    start: Journal
    end: Journal


class _Uninitialised(NamedTuple):
    """The positions that were never initialised, of each source of which the batch may take some.

    Attributes:
        runs_by_source: those that are in the log, ascending.
        gone: those that left it; of each run no more than a hole may have.
        unreadable: sources that are missing here, since nobody can say where their logs begin.
    """

    runs_by_source: Mapping[int, Sequence[PositionRun]]
    gone: Sequence[SourceRun]
    unreadable: Collection[int]


BATCH_CURE: Final = "raise the input's timeout, lower max_spout_pending, or make the bolts faster"

FIRST_BATCH_CURE: Final = (
    "it was the query's first batch, in which bolts are imported and prepared and connections are opened:"
    " raise the input's timeout above that, or let bolts do less at their start; later batches are faster"
)

UNKNOWN_TARGET: Final = -1
"""The target of a source that had no leader when it was asked for: its end when it is known first."""


class Batches:
    """Plans batches one after another.

    Attributes:
        batch_count: how many batches this process has planned.
        replayed_count: how many copies these batches had.
        lost_from_log_count: how many positions left the log before they were read.
        limit_hits: how many plans found an input without room under `max_spout_pending`.
        last_took_ms: how long the last batch took.
        pace: how many records the next batch may have, by how long batches took.
        ends_if_all_read: the end of each partition, if the last plan found nothing left before
            them; else empty.
        continuity: compares logs with what was read of them.
        new_start_by_source: of sources whose logs were cut, the first position of their next
            generation. Nothing is planned of them until the ackers know that generation.
    """

    def __init__(
        self,
        context: PlannerContext,
        session: RunningSession,
        lane: str,
        target_by_source: dict[int, int],
        order_watch: OrderWatch | None = None,
    ) -> None:
        """Plan for a running session.

        Args:
            lane: names this process's messages about records that the log does not have.
            target_by_source: the offset at which each source stops to be read, or `UNKNOWN_TARGET`;
                empty: the query reads without end.
            order_watch: decides how ordered partitions go on; None: no input is ordered.
        """
        self._order_watch = order_watch
        # These three are of the batch that is planned now, and are set anew by each `plan`.
        # By ordered source, of new records: its turn; one that is missing waits.
        self._turn_by_source: dict[int, Turn] = {}
        # By ordered source, those with a gap only: the position behind the gap, which goes before
        # all else.
        self._gap_end_by_source: Mapping[int, int] = {}
        # By source: the offset where its log ends, as this plan has seen it.
        self._seen_end_by_source: Mapping[int, int] = {}
        self.batch_count = 0
        self.replayed_count = 0
        self.lost_from_log_count = 0
        self.limit_hits = 0
        self.last_took_ms = 0
        self._log = context.log
        self._reach = context.reach  # what may be planned: the log, or less of it
        self._spec = context.spec
        self._spec_by_source = context.sources
        self._announcer = context.announcer
        self._report = context.report
        self._troubles = context.troubles
        # by source of which no start is known yet: since when, wall time
        self._left_out = context.left_out
        self._cluster_id = context.cluster_id
        self._session = session
        self._chooser = Chooser(context, session)
        self.continuity = Continuity(context.log, context.sources, session)
        self.new_start_by_source: dict[int, int] = {}
        self._now_ms = 0
        self._lane = lane
        self._target_by_source = target_by_source
        is_paced = context.spec.paced and context.announcer is not None
        self._timeout_ms = context.spec.timeout_ms if is_paced else 0
        self.pace = BatchPace(self._timeout_ms)
        self._last_planned: _Planned | None = None
        self._absent_seq = 0  # number of the last message on the lane
        self.ends_if_all_read: Mapping[TopicPartition, int] = {}

    def plan(self, start: Journal, limit: int | None, now_ms: int, tasks: int | None = None) -> Journal:
        """Plan the batch behind `start`; return its end, `start` itself when there is nothing to do.

        A partition of an ordered input takes part when it is known what waits of it, and then with all its
        copies at once. A process that shall wake what Spark's state holds begins with a batch, be it empty.

        Args:
            limit: how many records the user lets a batch have; None: any number.
            tasks: into how many read tasks it is divided at most; None: as many as the spec says.

        Raises:
            DataLoss: a record left the log before it was read, and `on_data_loss` is fail.
            Disagreement: a log ends before what was read of it.
            Unreachable: the broker does not answer; what was initialised is planned after a restart.
        """
        if self._last_planned is not None and start == self._last_planned.start:
            return self._last_planned.end  # Spark did not journal it; the same batch again
        self._now_ms = now_ms
        self.end_last_batch(now_ms)
        self.ends_if_all_read = {}
        self._seen_end_by_source = {}
        # 1. choose: first the leftover and copies, then new records beside them
        leftover_runs = self._session.take_unjournalled()
        leftover_counts = _positions_by_source(leftover_runs)
        copies = Portion()
        if self._order_watch is not None:
            self._decide_turns(self._order_watch, leftover_runs, leftover_counts)
            copies = self._choose_copies(leftover_counts)
        leftover = self._take_leftover(leftover_runs)
        choice = self._choose(limit, leftover.records, copies)
        leftover, choice, log_starts = self._leave_out_unreadable(leftover, choice)
        new = choice.portion
        # both were chosen before the starts of the logs were asked for: some may have left the log
        gone_before = self._runs_gone_from_log([*leftover.ranges, *choice.copies.ranges], log_starts)
        # 2. initialise what is new, durably, and only then count it as emitted: it is pending from
        # here on
        session_ms = self._session.advance_clock(now_ms)
        new_roots = RootSet.of_runs([*new.ranges, *new.holes, *choice.gone])
        self._initialise(new_roots, choice, session_ms, now_ms)
        gone = [*gone_before, *choice.gone]
        holes = [*leftover.holes, *new.holes]
        empty = [*leftover.empty, *new.empty]
        self._session.record_emitted(new_roots.runs(), now_ms, [*gone, *holes, *empty])
        self._report_gone_and_holes(gone, holes, session_ms)
        ranges = tuple(sorted(_without_gone([*leftover.ranges, *new.ranges], gone_before)))
        # 3. journal it, if there is anything; holes alone, too: a restart looks for what became of
        # positions that are initialised and not journalled
        if not ranges and not holes and not self._needs_empty_batch(start):
            self.ends_if_all_read = self._find_ends_if_all_read()
            return start
        line_ups = self._line_ups(ranges, choice.copies_max)
        end = self._offset_behind(ranges, line_ups, session_ms, now_ms, tasks or self._spec.tasks)
        self._last_planned = _Planned(start, end)
        # 4. count
        self.batch_count += 1
        record_counts = _records_by_source(ranges, empty)
        self.replayed_count += sum(count for source, count in record_counts.items() if is_replay(source))
        self.pace.begin_batch(_count_for_bolts(record_counts, end.order, choice.copies_max), now_ms)
        return end

    def _initialise(self, roots: RootSet, choice: _Choice, session_ms: int, now_ms: int) -> None:
        """Announce roots to the ackers, durably: only then may a task read them."""
        if self._announcer is None or not roots:  # without an announcer nothing is tracked
            return
        self._announcer.send_init(
            self._session.name,
            session_ms,
            now_ms,
            roots,
            self._spec_by_source,
            epochs=self._leader_epochs_without(choice.copies.sources),
            grace_ms=self._session.grace_ms(now_ms),
        )

    def _needs_empty_batch(self, start: Journal) -> bool:
        """Return whether a batch behind `start` is needed though it has no records.

        Spark's checkpoint must name this session, so the first batch behind an offset of another
        one is planned. So is the first batch of a query that has to wake what waits in Spark's
        state.
        """
        name = self._session.name
        is_of_this_session = start.session == name.id and start.epoch == name.epoch
        # no sources: `start` is before the first batch
        if not is_of_this_session or not start.sources:
            return True
        return self._spec.wakes and not self.batch_count

    def _offset_behind(
        self,
        ranges: tuple[SourceRun, ...],
        line_ups: Mapping[int, LineUp],
        session_ms: int,
        now_ms: int,
        tasks: int,
    ) -> Journal:
        """Return the offset behind a batch that emits these ranges, as Spark journals it.

        Args:
            line_ups: by ordered source, which of its records are blocked.
            session_ms: the session's clock.
            now_ms: wall time.
            tasks: into how many read tasks the batch is divided at most.
        """
        return Journal(
            session=self._session.name.id,
            epoch=self._session.name.epoch,
            now=session_ms,
            tasks=tasks,
            sources=MappingProxyType(self._session.marks()),
            ranges=ranges,
            topics={spec.place.topic: spec.topic_id for spec in self._spec_by_source.values()},
            order=line_ups,
            at_ms=now_ms,
            waits=tuple(sorted(self._left_out)),
            cluster=self._cluster_id,
        )

    def record_progress(self, now_ms: int) -> None:
        """End the time of the last batch, if a verdict of it has come in: its bolts are done with it."""
        if self._last_planned is None or not self.pace.is_running:
            return
        emitted_count = 0
        pending_count = 0
        for run in self._last_planned.end.ranges:
            emitted_count += run.end - run.start
            pending_runs = self._session.window.pending_within(run.source, run.start, run.end)
            pending_count += sum(pending.end - pending.start for pending in pending_runs)
        if pending_count < emitted_count:
            self.end_last_batch(now_ms)

    def end_last_batch(self, now_ms: int) -> None:
        """End the time of the last batch, unless that was done.

        Report one that took half the timeout.
        """
        took_ms = self.pace.end_batch(now_ms)
        if took_ms is None:  # it has ended before, or nobody knows how long it took
            return
        self.last_took_ms = took_ms
        timeout_ms = self._timeout_ms  # 0: batches have no pace, and are not reported
        if not timeout_ms or took_ms * 2 < timeout_ms:
            return
        is_first = self.batch_count <= 1
        if is_first and took_ms < timeout_ms:
            return  # in it processes start and connections open: only the next ones show how fast bolts are
        event = "batch_over_timeout" if took_ms >= timeout_ms else "batch_over_half_the_timeout"
        cure = FIRST_BATCH_CURE if is_first else BATCH_CURE
        self._report(event, {"took_ms": took_ms, "timeout_ms": timeout_ms, "next_step": cure})

    def is_end_of_last_batch(self, end: Journal) -> bool:
        """Return whether the last batch that this process has planned ends there."""
        return self._last_planned is not None and self._last_planned.end == end

    def is_all_planned(self, *, replay: bool) -> bool:
        """Return whether all that is in the logs is planned, of inputs, or if `replay` of copies.

        False also if a partition is in trouble: nobody knows its end. Replay topics are asked for
        their last offsets, those of open transactions too: a replay worker writes a copy, and
        removes the root from those that wait, in one transaction, and the removal may be visible
        before the copy is.
        """
        sources = [source for source, spec in self._spec_by_source.items() if spec.is_replay == replay]
        ends = self._ask_offsets(sources, self._log, Bound.END) if replay else self._readable_ends(sources)
        if len(ends) < len(sources):
            return False
        return not any(self._count_uninitialised_before(source, end) for source, end in ends.items())

    def _count_uninitialised_before(self, source: int, end: int) -> int:
        """Return how many positions of a source before an offset were never initialised."""
        cursor = self._session.cursors[source]
        return cursor.count_uninitialised_below(cursor.position_of(end))

    def _decide_turns(
        self,
        order_watch: OrderWatch,
        leftover_runs: Sequence[SourceRun],
        leftover_counts: Mapping[int, int],
    ) -> None:
        """Set which ordered partitions have their turn in this batch, and where their gaps end.

        `leftover_counts` has by source how many positions `leftover_runs` have.
        """
        self._turn_by_source = order_watch.read_turns(leftover_counts)
        self._gap_end_by_source = self._find_gap_ends(leftover_runs)
        for source, gap_end in self._gap_end_by_source.items():
            # of new records only the gap may be planned
            gap_count = self._session.cursors[source].count_uninitialised_below(gap_end)
            turn = self._turn_by_source[source]
            self._turn_by_source[source] = turn._replace(new_max=gap_count)

    def _find_gap_ends(self, leftover_runs: Iterable[SourceRun]) -> dict[int, int]:
        """Return, by ordered source with a gap, the position behind what has to be planned first of
        it.

        A leftover run with uninitialised positions below it waits for the next batch: they go
        first. Without such a run, the uninitialised positions below the cursor's end go before all
        behind that.
        """
        last_start_by_source: dict[int, int] = {}
        for run in leftover_runs:
            if run.source in self._turn_by_source:
                last_start = last_start_by_source.get(run.source, run.start)
                last_start_by_source[run.source] = max(run.start, last_start)
        gap_end_by_source: dict[int, int] = {}
        for source in self._turn_by_source:
            cursor = self._session.cursors[source]
            # 3 and 7 were never initialised, and the last run begins at 5: then 3 goes first, and 7
            # with a later batch. So the start of the last run is tried before the end of what was
            # initialised.
            possible_ends = (last_start_by_source.get(source), cursor.next)
            for end in possible_ends:
                if end is not None and cursor.count_uninitialised_below(end):
                    gap_end_by_source[source] = end
                    break
        return gap_end_by_source

    def _take_leftover(self, leftover_runs: Iterable[SourceRun]) -> Portion:
        """Return what this batch takes of the leftover; the rest is left for a later batch.

        What is left goes back to the session's `unjournalled`: initialised, and in no batch.
        """
        taken: list[SourceRun] = []
        for run in leftover_runs:
            if self._waits_for_turn(run.source) or self._is_behind_gap(run):
                self._session.unjournalled.append(run)
            else:
                taken.append(run)
        return self._chooser.divide(taken)

    def _is_behind_gap(self, run: SourceRun) -> bool:
        """Return whether a run has to wait for a gap below it; False also if its source has no gap."""
        gap_end = self._gap_end_by_source.get(run.source)
        return gap_end is not None and run.start >= gap_end

    def _choose_copies(self, leftover_counts: Mapping[int, int]) -> Portion:
        """Return all copies of the ordered partitions that have their turn.

        A partition whose copies cannot be taken loses its turn: it is removed from
        `_turn_by_source`. It waits where there is no room for all of its copies, unless nothing of
        the input is pending: then there will be no more room than now. Of copies no more are out
        than `blocked_max`, but between them lie the markers of their transactions, which may pass
        `max_spout_pending`.

        `leftover_counts` has by source how many positions of the leftover there are.
        """
        with_copies: list[int] = [
            copies_source(source) for source, turn in self._turn_by_source.items() if turn.takes_copies
        ]
        end_by_source = self._readable_ends(with_copies)
        # 1. partitions without a leader lose their turn: how many copies there are is unknown
        others_by_input = self._count_pending_of_others(leftover_counts, with_copies)
        for source in with_copies:
            if source not in end_by_source:
                del self._turn_by_source[first_source(source)]
        # 2. partitions with a leftover come first, then by number
        leftover_of_partition: dict[int, int] = {}
        for source in end_by_source:
            of_records = leftover_counts.get(first_source(source), 0)
            leftover_of_partition[source] = leftover_counts.get(source, 0) + of_records
        in_order = sorted(end_by_source, key=lambda source: (not leftover_of_partition[source], source))
        # 3. take the copies of each while there is room, all of them or none
        pending_by_input = self._count_pending_records()
        chosen: list[Portion] = []
        for source in in_order:
            cursor = self._session.cursors[source]
            input = self._spec_by_source[source].input
            runs = cursor.uninitialised_runs(cursor.position_of(end_by_source[source]))
            copies = self._chooser.divide([SourceRun(source, *run) for run in runs])
            has_room = pending_by_input[input.id] + copies.records <= input.max_spout_pending
            if others_by_input[input.id] and not has_room:
                del self._turn_by_source[first_source(source)]
                continue
            pending_by_input[input.id] += copies.records
            # for the partitions behind it, what it takes is pending and will make room
            others_by_input[input.id] += copies.records + leftover_of_partition[source]
            chosen.append(copies)
        return joined_portions(chosen)

    def _count_pending_of_others(
        self, leftover_counts: Mapping[int, int], with_copies: Collection[int]
    ) -> Counter[int]:
        """Return by input id how many pending positions will make room without this batch.

        Not those of the leftover of partitions that wait for their turn, or whose copies are asked
        for: they are pending, and in no batch yet, so that no verdict comes for them before they
        are planned.
        """
        others_by_input = Counter[int]()
        for source, spec in self._spec_by_source.items():
            others_by_input[spec.input.id] += self._session.window.count_pending(source)
            if self._waits_for_turn(source) or copies_source(first_source(source)) in with_copies:
                others_by_input[spec.input.id] -= leftover_counts.get(source, 0)
        return others_by_input

    def _count_pending_records(self) -> Counter[int]:
        """Return by input id how many records are pending."""
        pending_by_input = Counter[int]()
        for source, spec in self._spec_by_source.items():
            pending_by_input[spec.input.id] += self._session.window.count_records(source)
        return pending_by_input

    def _is_ordered(self, source: int) -> bool:
        """Return whether a source is of an ordered input."""
        return self._order_watch is not None and self._spec_by_source[source].input.ordered

    def _waits_for_turn(self, source: int) -> bool:
        """Return whether a source is of an ordered partition that does not have its turn."""
        return self._is_ordered(source) and first_source(source) not in self._turn_by_source

    def _line_ups(self, ranges: Iterable[SourceRun], copies_max: int | None) -> dict[int, LineUp]:
        """Return, by each ordered source of which ranges are read, which of its records are
        blocked.
        """
        ordered = {first_source(run.source) for run in ranges if self._is_ordered(run.source)}
        line_ups: dict[int, LineUp] = {}
        for source in sorted(ordered):
            line_ups[source] = replace(self._turn_by_source[source].line_up, copies_max=copies_max)
        return line_ups

    def _choose(self, limit: int | None, leftover_count: int, copies: Portion) -> _Choice:
        """Choose what was never initialised, beside `leftover_count` records, within `limit` and
        the pace.

        All `copies` of ordered partitions are in the choice; those that are too many will be
        blocked. Where new records have room, this keeps in `_seen_end_by_source` the ends up to
        which they were looked for.
        """
        # 1. how much room there is; None: any number of records
        limits = [records for records in (limit, self.pace.next_records_max()) if records is not None]
        total_room = max(0, min(limits) - leftover_count) if limits else None
        copy_counts = _records_by_source(copies.ranges, copies.empty)
        room_by_input = self._room_by_input(copy_counts)
        if not all(room_by_input.values()):
            self.limit_hits += 1
        # 2. without any, the copies alone
        if total_room == 0 or not any(room_by_input.values()):
            granted_copies = copy_counts.total() if total_room is None else total_room
            copies_max = _copies_max_of_partition(copy_counts, granted_copies)
            return _Choice(portion=copies, copies=copies, gone=[], copies_max=copies_max)
        # 3. else what was never initialised, too
        self._seen_end_by_source = self._readable_ends(list(self._spec_by_source))
        uninitialised = self._find_uninitialised(self._seen_end_by_source)
        new_max_by_source = {source: turn.new_max for source, turn in self._turn_by_source.items()}
        room = Room(total_room, room_by_input, caps=new_max_by_source, chosen=copy_counts)
        portion, granted_copies = self._chooser.choose(uninitialised.runs_by_source, room)
        return _Choice(
            portion=joined_portions([copies, portion]),
            copies=copies,
            gone=uninitialised.gone,
            copies_max=_copies_max_of_partition(copy_counts, granted_copies),
            unreadable=uninitialised.unreadable,
        )

    def _find_uninitialised(self, end_by_source: Mapping[int, int]) -> _Uninitialised:
        """Return what was never initialised before these offsets, and what of that left the log."""
        # 1. what was never initialised, of the sources whose logs can be asked where they begin
        all_runs_by_source = self._uninitialised_runs_of(end_by_source)
        log_starts = self._ask_offsets(list(all_runs_by_source), self._reach, Bound.START)
        runs_by_source: dict[int, list[PositionRun]] = {}
        in_question: list[SourceRun] = []
        for source, runs in all_runs_by_source.items():
            if source in log_starts:
                runs_by_source[source] = []
                in_question += [SourceRun(source, *run) for run in runs]
        # 2. divide it into what is in the log and what has left it
        gone = self._runs_gone_from_log(in_question, log_starts)
        for source, start, end in _without_gone(in_question, gone):
            runs_by_source[source].append(PositionRun(start, end))
        # 3. what left the log is initialised like a hole, and limited like one; the next batch goes
        # on
        limited = [run._replace(end=min(run.end, run.start + HOLE_POSITIONS_MAX)) for run in gone]
        unreadable = all_runs_by_source.keys() - log_starts.keys()
        return _Uninitialised(runs_by_source, gone=limited, unreadable=unreadable)

    def _uninitialised_runs_of(self, end_by_source: Mapping[int, int]) -> dict[int, Sequence[PositionRun]]:
        """Return by source the positions before an offset that were never initialised.

        Missing are sources without any, ordered partitions that wait for their turn, and the copies
        of the others, which are chosen already.
        """
        runs_by_source: dict[int, Sequence[PositionRun]] = {}
        for source, end in end_by_source.items():
            is_chosen_already = self._is_ordered(source) and self._spec_by_source[source].is_replay
            if self._waits_for_turn(source) or is_chosen_already:
                continue
            cursor = self._session.cursors[source]
            readable_to = cursor.position_of(end)
            # a gap goes first, and alone: what is behind it waits for the next batch
            gap_end = self._gap_end_by_source.get(source, readable_to)
            runs = cursor.uninitialised_runs(min(readable_to, gap_end))
            if runs:
                runs_by_source[source] = runs
        return runs_by_source

    def room(self, input_id: int) -> int:
        """Return how many more records of an input may be pending."""
        return self._room_by_input({})[input_id]

    def _room_by_input(self, copy_counts: Mapping[int, int]) -> dict[int, int]:
        """Return by input id how many more records may be pending.

        `copy_counts` has by source how many copies this batch takes: they will be pending, too.
        """
        pending = self._count_pending_records()
        for source, count in copy_counts.items():
            pending[self._spec_by_source[source].input.id] += count
        return {input.id: max(0, input.max_spout_pending - pending[input.id]) for input in self._spec.inputs}

    def _find_ends_if_all_read(self) -> dict[TopicPartition, int]:
        """Return the end of each partition if nothing before these is left to plan, now or later;
        else none.

        A reader that waits at these ends gets the next record that there is to plan.
        """
        # an ordered partition may wait for its turn, and one with a target is not read to its end
        may_stop_before_ends = self._order_watch is not None or bool(self._target_by_source)
        # empty: this batch had no room, so nobody has asked for the ends
        end_by_source = dict(self._seen_end_by_source)
        if may_stop_before_ends or self._session.unjournalled or not end_by_source:
            return {}
        for source, cursor in self._session.cursors.items():
            # a partition in trouble has no end: it will be read on from here
            is_in_trouble = self._spec_by_source[source].place in self._troubles
            if source not in end_by_source and is_in_trouble:
                end_by_source[source] = offset_of(cursor.first_uninitialised)
        if len(end_by_source) < len(self._session.cursors):
            return {}
        if any(self._count_uninitialised_before(source, end) for source, end in end_by_source.items()):
            return {}
        return {self._spec_by_source[source].place: end for source, end in end_by_source.items()}

    def _readable_ends(self, sources: Sequence[int]) -> dict[int, int]:
        """Return by source the offset up to which it can be read now: its last stable offset.

        Those in trouble are missing, and those whose logs were cut, which begin a new generation.
        Where the query stops at targets, the offset is no higher than the target; a target that was
        unknown is set. Raises `Disagreement`: a log was cut, and its input does not go on after
        that.
        """
        answers = self._ask_bounds(sources, self._reach, Bound.STABLE_END)
        end_by_source = self._offsets_by_source(sources, answers)
        perhaps_cut = self._handle_cut_logs(
            answers.epochs, end_by_source, knows_ends=self._reach is self._log
        )
        unreadable = self.new_start_by_source.keys() | perhaps_cut
        readable_ends = {source: end for source, end in end_by_source.items() if source not in unreadable}
        if not self._target_by_source:
            return readable_ends
        for source, end in readable_ends.items():
            if self._target_by_source.get(source) == UNKNOWN_TARGET:
                self._target_by_source[source] = end
            if not is_replay(source):  # replay topics have no target: copies of what is read may come later
                # 0: a partition that came later is not read
                readable_ends[source] = min(end, self._target_by_source.get(source, 0))
        return readable_ends

    def compare_logs(self, now_ms: int) -> bool:
        """Compare all logs with what was read of them now.

        Return whether a source begins a new generation.

        Raises as `plan` does. For a process whose own reader has found that its position is not in the log
        any more.
        """
        self._now_ms = now_ms
        sources = list(self._spec_by_source)
        answers = self._ask_bounds(sources, self._log, Bound.STABLE_END)
        end_by_source = self._offsets_by_source(sources, answers)
        self._handle_cut_logs(answers.epochs, end_by_source, knows_ends=True)
        return bool(self.new_start_by_source)

    def _handle_cut_logs(
        self,
        epochs: Mapping[TopicPartition, int],
        end_by_source: Mapping[int, int],
        *,
        knows_ends: bool,
    ) -> Collection[int]:
        """Begin a generation for each source whose log was cut.

        Return the sources of which nobody can say yet whether their logs were cut.

        Args:
            epochs: the leader epochs that came with the ends.
            end_by_source: offsets.
            knows_ends: whether these are the ends of the logs, and not only how far they were read.
        """
        compared = self.continuity.compare(epochs, self._now_ms)
        cut_by_source = {cut.source: cut for cut in compared.cuts}
        if knows_ends:
            for cut in self._logs_cut_short(end_by_source):
                # what epochs have found goes before: such a log may have grown again
                cut_by_source.setdefault(cut.source, cut)
        for source, cut in cut_by_source.items():
            if source not in self.new_start_by_source:
                self._begin_generation(cut, end_by_source.get(source))
        return compared.unknown

    def _logs_cut_short(self, end_by_source: Mapping[int, int]) -> list[Cut]:
        """Return the logs that end before what was read of them, as cuts, without using leader epochs.

        Other records will get the offsets that are missing.
        """
        cursors = self._session.cursors
        read_to = {source: offset_of(cursors[source].next) for source in end_by_source}
        short_sources = [source for source, end in end_by_source.items() if end < read_to[source]]
        if not short_sources:
            return []
        # these ends may be those of the last decided transactions: the logs are asked for their own
        cuts: list[Cut] = []
        for source, end in self._ask_offsets(short_sources, self._log, Bound.END).items():
            if end < read_to[source]:
                cursor = cursors[source]
                cuts.append(Cut(source, start=cursor.position_of(end), end=cursor.next))
        return cuts

    def _begin_generation(self, cut: Cut, end: int | None) -> None:
        """Begin a new generation of a source whose log was cut, at the first lost offset; or raise.

        What is pending from there on is in no log any more: it is ABSENT. `end` is where the log
        ends now; None: that is not known. Raises `Disagreement`: the input is ordered, and nobody
        could say what waits behind what; or it fails on data loss.
        """
        spec = self._spec_by_source[cut.source]
        if spec.input.fails_on_loss(self._spec.fail_on_data_loss) or spec.input.ordered:
            raise log_was_cut(spec, offset_of(cut.start), offset_of(cut.end), end)
        cursor = self._session.cursors[cut.source]
        # what was never initialised before the cut has to be read by the new generation, too
        goes_on_from = min(cut.start, cursor.first_uninitialised)
        generation = generation_of(goes_on_from) + 1
        if generation > GENERATION_MAX:
            raise UsageError(
                f"{spec} began {GENERATION_MAX:,} generations, the most there can be; give the input a new id"
                " in topics.yaml"
            )
        self.new_start_by_source[cut.source] = position_at(generation, offset_of(goes_on_from))
        lost_runs = self._session.window.pending_within(cut.source, cut.start, cut.end)
        lost = [SourceRun(cut.source, *run) for run in lost_runs]
        self._report_absent(lost, self._session.advance_clock(self._now_ms))
        self.lost_from_log_count += positions_in(lost)
        fields = {
            "partition": str(spec),
            "first_lost": offset_of(cut.start),
            "read_to": offset_of(cut.end),
            "open_roots": positions_in(lost),
            "goes_on_from": offset_of(goes_on_from),
        }
        self._report("log_was_cut", fields)

    def _ask_offsets(self, sources: Iterable[int], reach: Reach, bound: Bound) -> dict[int, int]:
        """Ask where logs of sources begin or end.

        Return the offsets by source, without those in trouble.
        """
        sources = list(sources)
        return self._offsets_by_source(sources, self._ask_bounds(sources, reach, bound))

    def _ask_bounds(self, sources: Iterable[int], reach: Reach, bound: Bound) -> OffsetAnswers:
        """Ask where logs of sources begin or end.

        Record the partitions in trouble, and return the answers.

        `reach` is asked: the log itself, or what may be planned of it.
        """
        answers = reach.bounds(bound, [self._spec_by_source[source].place for source in sources])
        self._troubles.record_answers(answers)
        return answers

    def _offsets_by_source(self, sources: Iterable[int], answers: OffsetAnswers) -> dict[int, int]:
        """Return the offsets of sources, by source; those without an answer are missing."""
        offsets: dict[int, int] = {}
        for source in sources:
            place = self._spec_by_source[source].place
            if place in answers.offsets:
                offsets[source] = answers.offsets[place]
        return offsets

    def _leader_epochs_without(self, copies: Collection[int]) -> dict[int, int]:
        """Return by source the leader epoch in which its log had all that is planned now; without `copies`.

        Ends and epochs come in one answer, except for the `copies` of ordered partitions: these
        were chosen up to an earlier end. Perhaps a later leader wrote some of them: with this epoch
        they would be taken for other records.
        """
        return {
            source: cursor.leader_epoch
            for source, cursor in self._session.cursors.items()
            if source not in copies
        }

    def _leave_out_unreadable(
        self, leftover: Portion, choice: _Choice
    ) -> tuple[Portion, _Choice, Mapping[int, int]]:
        """Return leftover and choice without partitions that cannot be read now, and logs' starts.

        The starts are offsets, by source. The leftover of those partitions goes back to the
        session's `unjournalled`, for a later batch. In an ordered partition neither
        copies nor new records go without the others.
        """
        sources = leftover.sources | choice.copies.sources
        log_starts = self._ask_offsets(sources, self._reach, Bound.START)
        without_start = sources - log_starts.keys()
        left_out = without_start | set(choice.unreadable) | (sources & self.new_start_by_source.keys())
        if not left_out:
            return leftover, choice, log_starts
        for source in list(left_out):
            if self._is_ordered(source):
                left_out |= {first_source(source), copies_source(first_source(source))}
        for run in (*leftover.ranges, *leftover.holes):
            if run.source in left_out:
                self._session.unjournalled.append(self._part_before_cut(run))
        return leftover.without(left_out), choice.without(left_out), log_starts

    def _part_before_cut(self, run: SourceRun) -> SourceRun:
        """Return the part of a run that is still in its log: the whole run, if the log was not cut."""
        new_start = self.new_start_by_source.get(run.source)
        if new_start is None or generation_of(run.start) == generation_of(new_start):
            return run
        # the new generation begins at the offset of the cut; here it is a position of the run's
        # generation
        cut_at = position_at(generation_of(run.start), offset_of(new_start))
        return run._replace(start=min(run.start, cut_at), end=min(run.end, cut_at))

    def _runs_gone_from_log(self, runs: Sequence[SourceRun], starts: Mapping[int, int]) -> list[SourceRun]:
        """Return what of chosen runs left the log; `DataLoss` if something did and `on_data_loss` is fail.

        `starts` are the offsets where the logs begin, by source.
        """
        gone: list[SourceRun] = []
        for source, start, end in runs:
            spec = self._spec_by_source[source]
            log_start = position_at(generation_of(start), starts[source])
            if log_start <= start:
                continue
            # a log loses its lowest offsets: of [5, 20) with a log from 9 on [5, 9) is gone
            gone_to = min(log_start, end)
            if spec.input.fails_on_loss(self._spec.fail_on_data_loss):
                raise DataLoss(
                    f"{spec} no longer holds offsets {offset_of(start)} to {offset_of(gone_to) - 1},"
                    f" which input {spec.input.name} has not read; set on_data_loss: skip to go on without"
                    " them, or raise the topic's retention"
                )
            gone.append(SourceRun(source, start, gone_to))
        return gone

    def _report_gone_and_holes(
        self, gone: Sequence[SourceRun], holes: Sequence[SourceRun], session_ms: int
    ) -> None:
        """Report to the ackers that what left the log, and holes, are absent; count what left the log.

        They were initialised, and all that is initialised needs a verdict.
        """
        self._report_absent([*gone, *holes], session_ms)
        if gone:
            self.lost_from_log_count += positions_in(gone)
            ranges = [tuple(run) for run in gone]
            self._report("records_left_the_log", {"records": positions_in(gone), "ranges": ranges})

    def _report_absent(self, runs: Sequence[SourceRun], session_ms: int) -> None:
        """Report to the ackers that the log has no records at some positions; without any nothing
        is sent.
        """
        if not runs:
            return
        self._absent_seq += 1
        if self._announcer is not None:
            roots = RootSet.of_runs(runs)
            name = self._session.name
            self._announcer.send_absent(name, self._lane, self._absent_seq, session_ms, roots)


def _without_gone(runs: Iterable[SourceRun], gone: Iterable[SourceRun]) -> list[SourceRun]:
    """Return runs without those of `gone`, each of which begins where one of `runs` does.

    A log loses its lowest offsets, so what is gone is the beginning of a run: of [5, 20) and gone
    [5, 9) it leaves [9, 20).
    """
    # by (source, start of a run): the end of what is gone of it
    gone_to_by_start = {(run.source, run.start): run.end for run in gone}
    remaining: list[SourceRun] = []
    for source, start, end in runs:
        start_in_log = gone_to_by_start.get((source, start), start)
        if start_in_log < end:
            remaining.append(SourceRun(source, start_in_log, end))
    return remaining


def _positions_by_source(runs: Iterable[SourceRun]) -> Counter[int]:
    """Return by source how many positions runs have."""
    count_by_source = Counter[int]()
    for run in runs:
        count_by_source[run.source] += run.end - run.start
    return count_by_source


def _records_by_source(ranges: Iterable[SourceRun], empty: Iterable[SourceRun]) -> Counter[int]:
    """Return by source how many records ranges hold at most; `empty`, parts of them, hold none."""
    count_by_source = _positions_by_source(ranges)
    count_by_source.subtract(_positions_by_source(empty))
    return count_by_source


def _copies_max_of_partition(copy_counts: Counter[int], granted_copies: int) -> int | None:
    """Return how many copies of each ordered partition may go to bolts; None: all of them.

    `copy_counts` has by source how many copies the batch has; there is room for `granted_copies` of
    them.
    """
    if copy_counts.total() <= granted_copies:
        return None
    # at least one: else the partition would never go on
    return max(1, granted_copies // len(copy_counts))


def _count_for_bolts(
    record_counts: Mapping[int, int], ordered: Collection[int], copies_max: int | None
) -> int:
    """Return how many records bolts get of a batch: of each `ordered` partition at most `copies_max` copies.

    `record_counts` are by source.
    """
    counts: list[int] = []
    for source, count in record_counts.items():
        are_copies = is_replay(source) and first_source(source) in ordered
        if copies_max is not None and are_copies:
            counts.append(min(count, copies_max))
        else:
            counts.append(count)
    return sum(counts)
