"""Plans micro-batches of one tenure: chooses ranges, makes their Init durable, and journals them.

A *tenure* is the time in which this process owns the group. These words of `spout.planning` come
again:

* a *portion* is what a batch takes: `ranges` that tasks read, and *holes*, long empty stretches that no task
  reads. Holes are initialised with the ranges, and reported as absent at once;
* the *leftover* is what was initialised and not journalled, by a process that died then;
* the *turn* of an ordered partition says what the next batch may read of it; one that waits has none;
* positions are *free* if they were never initialised. A *gap* is free positions below initialised ones, which
  a process left that died between the parts of one init.

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
from spout.group.starting import log_was_cut
from spout.group.tenure import Tenure
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
        copies: the part of `portion` that was chosen first, of ordered partitions.
        gone: free positions that are taken though their records have left the log.
        copies_max: how many copies of each ordered partition may go to bolts; None: all of them.
        unreadable: sources that took no part, since nobody can say where their logs begin.
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


class _Free(NamedTuple):
    """What may be planned of each source that takes part.

    Attributes:
        runs: by source, the free positions that are in the log.
        gone: those that left it, no more of a source than a hole may have.
        unreadable: sources that take no part, since nobody can say where their logs begin.
    """

    runs: Mapping[int, Sequence[PositionRun]]
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
        count: how many batches this process has planned.
        replayed: how many copies they had.
        lost_from_log: how many positions left the log before they were read.
        limit_hits: how often an input had no room under `max_spout_pending`.
        took_ms: how long the last batch took.
        pace: how many records the next batch may have, by how long batches took.
        read_to: the end of each partition, where the last plan found all of them read; else empty.
        continuity: compares logs with what was read of them.
        begins_again: sources whose logs were cut, and that take no part until they are in a new generation,
            each with the first position of that.
    """

    def __init__(
        self,
        context: PlannerContext,
        tenure: Tenure,
        lane: str,
        targets: dict[int, int],
        order: OrderWatch | None = None,
    ) -> None:
        """Plan for a tenure; `order` is None where no input is ordered.

        `lane`, of this process alone, names what it contributes for records that left the log; `targets` has
        offsets beyond which sources are not read, or `UNKNOWN_TARGET`.
        """
        self._order = order
        # These three are of the batch that is planned now.
        # By source: the turn of an ordered partition,
        self._turn_by_source: dict[int, Turn] = {}
        # the position behind its gap, which goes before all else of it,
        self._gap_end_by_source: Mapping[int, int] = {}
        # and the offset where its log ends, as this plan has seen it.
        self._ends_seen: Mapping[int, int] = {}
        self.count = 0
        self.replayed = 0
        self.lost_from_log = 0
        self.limit_hits = 0
        self.took_ms = 0
        self._log = context.log
        self._reach = context.reach
        self._spec = context.spec
        self._specs = context.sources
        self._announcer = context.announcer
        self._report = context.report
        self._troubles = context.troubles
        self._left_out = context.left_out
        self._cluster_id = context.cluster_id
        self._tenure = tenure
        self._chooser = Chooser(context, tenure)
        self.continuity = Continuity(context.log, context.sources, tenure)
        self.begins_again: dict[int, int] = {}
        self._now_ms = 0
        self._lane = lane
        self._targets = targets
        is_paced = context.spec.paced and context.announcer is not None
        self._timeout_ms = context.spec.timeout_ms if is_paced else 0
        self.pace = BatchPace(self._timeout_ms)
        self._last_planned: _Planned | None = None
        self._absent_seq = 0  # number of the last message about absent records
        self.read_to: Mapping[TopicPartition, int] = {}

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
        self.read_to = {}
        self._ends_seen = {}
        # 1. choose: first the leftover and copies, then new records beside them
        leftover, copies = self._take_leftover()
        choice = self._choose(limit, leftover.records, copies)
        leftover, choice, log_starts = self._leave_out_unreadable(leftover, choice)
        new = choice.portion
        # both were chosen before the starts of the logs were asked for: some may have left the log
        gone_before = self._runs_gone_from_log([*leftover.ranges, *choice.copies.ranges], log_starts)
        # 2. initialise what is new, and emit it: it is pending from here on
        now = self._tenure.advance_clock(now_ms)
        new_roots = RootSet.of_runs([*new.ranges, *new.holes, *choice.gone])
        self._initialise(new_roots, choice, now, now_ms)
        gone = [*gone_before, *choice.gone]
        holes = [*leftover.holes, *new.holes]
        empty = [*leftover.empty, *new.empty]
        self._tenure.record_emitted(new_roots.runs(), now_ms, [*gone, *holes, *empty])
        self._report_gone_and_holes(gone, holes, now)
        ranges = tuple(sorted(_without_gone([*leftover.ranges, *new.ranges], gone_before)))
        # 3. journal it, if there is anything; holes alone, too: a restart looks for what became of
        # positions that are initialised and not journalled
        if not ranges and not holes and not self._needs_batch(start):
            self.read_to = self._ends_if_all_read()
            return start
        end = self._journal(ranges, choice.copies_max, now, now_ms, tasks or self._spec.tasks)
        self._last_planned = _Planned(start, end)
        # 4. count
        self.count += 1
        record_counts = _records_by_source(ranges, empty)
        self.replayed += sum(count for source, count in record_counts.items() if is_replay(source))
        self.pace.begin_batch(_count_for_bolts(record_counts, end.order, choice.copies_max), now_ms)
        return end

    def _initialise(self, roots: RootSet, choice: _Choice, now: int, now_ms: int) -> None:
        """Announce roots to the ackers, durably: only then may a task read them."""
        if self._announcer is None or not roots:
            return
        self._announcer.send_init(
            self._tenure.name,
            now,
            now_ms,
            roots,
            self._specs,
            epochs=self._epochs_without(choice.copies.sources),
            grace_ms=self._tenure.grace_ms(now_ms),
        )

    def _needs_batch(self, start: Journal) -> bool:
        """Return whether a batch is needed though it has no records.

        It is the first one behind an offset of another session, or the one that wakes Spark's state.
        """
        name = self._tenure.name
        goes_on = start.session == name.id and start.epoch == name.epoch and start.sources
        wakes = self._spec.wakes and not self.count
        return wakes or not goes_on

    def _journal(
        self, ranges: tuple[SourceRun, ...], copies_max: int | None, now: int, now_ms: int, tasks: int
    ) -> Journal:
        """Return the offset behind a batch that emits these ranges, as Spark journals it."""
        return Journal(
            session=self._tenure.name.id,
            epoch=self._tenure.name.epoch,
            now=now,
            tasks=tasks,
            sources=MappingProxyType(self._tenure.marks()),
            ranges=ranges,
            topics={spec.place.topic: spec.topic_id for spec in self._specs.values()},
            order=self._line_ups(ranges, copies_max),
            at_ms=now_ms,
            waits=tuple(sorted(self._left_out)),
            cluster=self._cluster_id,
        )

    def record_progress(self, now_ms: int) -> None:
        """End the time of the last batch, if a verdict of it has come in: its bolts are done with it."""
        if self._last_planned is None or not self.pace.is_running:
            return
        emitted = 0
        pending = 0
        for run in self._last_planned.end.ranges:
            emitted += run.end - run.start
            parts = self._tenure.window.pending_within(*run)
            pending += sum(part.end - part.start for part in parts)
        if pending < emitted:
            self.end_last_batch(now_ms)

    def end_last_batch(self, now_ms: int) -> None:
        """End the time of the last batch, unless that was done.

        Report it if it took half the timeout.
        """
        took_ms = self.pace.end_batch(now_ms)
        if took_ms is not None:
            self.took_ms = took_ms
        timeout_ms = self._timeout_ms
        if took_ms is None or not timeout_ms or took_ms * 2 < timeout_ms:
            return
        is_first = self.count <= 1
        if is_first and took_ms < timeout_ms:
            return  # in it processes start and connections open: only the next ones show how fast bolts are
        event = "batch_over_timeout" if took_ms >= timeout_ms else "batch_over_half_the_timeout"
        cure = FIRST_BATCH_CURE if is_first else BATCH_CURE
        self._report(event, {"took_ms": took_ms, "timeout_ms": timeout_ms, "next_step": cure})

    def is_end_of_last_batch(self, end: Journal) -> bool:
        """Return whether the last batch that this process has planned ends there."""
        return self._last_planned is not None and self._last_planned.end == end

    def is_all_planned(self, *, replay: bool) -> bool:
        """Return whether all that is in the logs was planned: of the inputs, or of their replay topics.

        False also if a partition is in trouble: nobody knows its end. Of replay topics a copy
        counts whose transaction is open for readers. The end of its wait, a tombstone on another
        partition, may be visible already, since each partition of a transaction has a marker of its
        own.
        """
        sources = [source for source, spec in self._specs.items() if spec.is_replay == replay]
        ends = self._offsets(sources, self._log, Bound.END) if replay else self._readable_ends(sources)
        if len(ends) < len(sources):
            return False
        return not any(self._free_before(source, end) for source, end in ends.items())

    def _free_before(self, source: int, end: int) -> int:
        """Return how many positions of a source are free before an offset."""
        cursor = self._tenure.cursors[source]
        return cursor.free_below(cursor.position_of(end))

    def _take_leftover(self) -> tuple[Portion, Portion]:
        """Take the leftover of the tenure; return it, and the copies that were chosen of ordered partitions.

        What of the leftover has to wait for a later batch stays with the tenure. Where inputs are
        ordered this sets which partitions have their turn, and where their gaps end.
        """
        runs = self._tenure.take_unjournalled()
        if self._order is None:
            return self._chooser.divide(runs), Portion()
        count_by_source = Counter[int]()
        for source, start, end in runs:
            count_by_source[source] += end - start
        self._turn_by_source = self._order.turns(count_by_source)
        self._gap_end_by_source = self._find_gap_ends(runs)
        for source, end in self._gap_end_by_source.items():
            # of new records only the gap may be planned
            turn = self._turn_by_source[source]
            self._turn_by_source[source] = turn._replace(new_max=self._free_count_below(source, end))
        copies = self._choose_copies(count_by_source)
        taken: list[SourceRun] = []
        for run in runs:
            if self._has_no_turn(run.source) or run.start >= self._end_of_run_or_gap(run):
                self._tenure.unjournalled.append(run)
            else:
                taken.append(run)
        return self._chooser.divide(taken), copies

    def _find_gap_ends(self, runs: Iterable[SourceRun]) -> dict[int, int]:
        """Return, by ordered partition with a gap, the position behind what has to be planned first of it.

        `runs` is the leftover. A run with free positions below it waits for the next batch: they go
        first. Without such a run, free positions below what was initialised go before all behind
        that.
        """
        last_start_by_source: dict[int, int] = {}
        for source, start, _ in runs:
            if source in self._turn_by_source:
                last_start_by_source[source] = max(start, last_start_by_source.get(source, start))
        gap_end_by_source: dict[int, int] = {}
        for source in self._turn_by_source:
            # free are 3 and 7, and the last run begins at 5: then 3 goes first, and 7 with a later
            # batch. So the start of the last run is tried before the end of what was initialised.
            possible_ends = (last_start_by_source.get(source), self._tenure.cursors[source].next)
            for end in possible_ends:
                if end is not None and self._free_count_below(source, end):
                    gap_end_by_source[source] = end
                    break
        return gap_end_by_source

    def _end_of_run_or_gap(self, run: SourceRun) -> int:
        """Return where the gap of a run's source ends.

        It is the run's own end if the source has no gap.
        """
        return self._gap_end_by_source.get(run.source, run.end)

    def _free_count_below(self, source: int, position: int) -> int:
        """Return how many positions of a source are free below one."""
        return self._tenure.cursors[source].free_below(position)

    def _choose_copies(self, leftover_count: Mapping[int, int]) -> Portion:
        """Return all copies of the ordered partitions that have their turn.

        `leftover_count` has by source how many positions of the leftover there are. A partition
        whose copies cannot be taken loses its turn: it is removed from `_turn_by_source`.

        A partition waits where there is no room for all of its copies, unless nothing of the input is
        pending: then there will be no more room than now. Of copies no more are out than `blocked_max`, but
        between them lie the markers of their transactions, which may pass `max_spout_pending`.
        """
        sources = [
            copies_source(source) for source, turn in self._turn_by_source.items() if turn.takes_copies
        ]
        ends = self._readable_ends(sources)
        window = self._tenure.window
        # 1. by input: how many records are pending, and how many positions beside this batch's
        pending = Counter[int]()
        under_way = Counter[int]()
        for source, spec in self._specs.items():
            pending[spec.input.id] += window.records_of(source)
            under_way[spec.input.id] += window.pending_of(source)
            if self._has_no_turn(source) or copies_source(first_source(source)) in sources:
                # the leftover is pending, too, and would be in this batch
                under_way[spec.input.id] -= leftover_count.get(source, 0)
        # 2. take the turn from partitions without a leader: how many copies there are is unknown
        for source in sources:
            if source not in ends:
                del self._turn_by_source[first_source(source)]
        # 3. by source of copies: the leftover of its partition, records and copies
        leftover_of_partition: dict[int, int] = {}
        for source in ends:
            records = leftover_count.get(first_source(source), 0)
            leftover_of_partition[source] = leftover_count.get(source, 0) + records
        # 4. take the copies while there is room; partitions with a leftover come first
        in_order = sorted(ends, key=lambda source: (not leftover_of_partition[source], source))
        chosen: list[Portion] = []
        for source in in_order:
            cursor = self._tenure.cursors[source]
            input = self._specs[source].input
            runs = cursor.free_runs(cursor.position_of(ends[source]))
            copies = self._chooser.divide([SourceRun(source, *run) for run in runs])
            has_room = pending[input.id] + copies.records <= input.max_spout_pending
            if under_way[input.id] and not has_room:
                del self._turn_by_source[first_source(source)]
                continue
            pending[input.id] += copies.records
            under_way[input.id] += copies.records + leftover_of_partition[source]
            chosen.append(copies)
        return joined_portions(chosen)

    def _is_ordered(self, source: int) -> bool:
        """Return whether a source is of an ordered input."""
        return self._order is not None and self._specs[source].input.ordered

    def _has_no_turn(self, source: int) -> bool:
        """Return whether a source is of an ordered partition that does not have its turn."""
        return self._is_ordered(source) and first_source(source) not in self._turn_by_source

    def _line_ups(self, ranges: Iterable[SourceRun], copies_max: int | None) -> dict[int, LineUp]:
        """Return for each ordered partition of ranges which of its records are blocked."""
        ordered = {first_source(run.source) for run in ranges if self._is_ordered(run.source)}
        line_ups: dict[int, LineUp] = {}
        for source in sorted(ordered):
            line_ups[source] = replace(self._turn_by_source[source].line_up, copies_max=copies_max)
        return line_ups

    def _choose(self, limit: int | None, leftover_count: int, copies: Portion) -> _Choice:
        """Choose what is free beside `leftover_count` records, within `limit` and the pace.

        All `copies` of ordered partitions are in the choice; those that are too many will be
        blocked.
        """
        # 1. how much room there is; None: any number of records
        limits = [records for records in (limit, self.pace.allowed()) if records is not None]
        total_room = max(0, min(limits) - leftover_count) if limits else None
        copy_counts = _records_by_source(copies.ranges, copies.empty)
        room_by_input = self._room_by_input(copy_counts)
        self.limit_hits += not all(room_by_input.values())
        # 2. without any, the copies alone
        if total_room == 0 or not any(room_by_input.values()):
            granted_copies = copy_counts.total() if total_room is None else total_room
            copies_max = _copies_max(copy_counts, granted_copies)
            return _Choice(portion=copies, copies=copies, gone=[], copies_max=copies_max)
        # 3. else what is free, too
        self._ends_seen = self._readable_ends(list(self._specs))
        free = self._free_in_log(self._ends_seen)
        new_max_by_source = {source: turn.new_max for source, turn in self._turn_by_source.items()}
        room = Room(total_room, room_by_input, caps=new_max_by_source, chosen=copy_counts)
        portion, granted_copies = self._chooser.choose(free.runs, room)
        return _Choice(
            portion=joined_portions([copies, portion]),
            copies=copies,
            gone=free.gone,
            copies_max=_copies_max(copy_counts, granted_copies),
            unreadable=free.unreadable,
        )

    def _free_in_log(self, ends: Mapping[int, int]) -> _Free:
        """Return what is free below the ends of sources, and what of that is no longer in the log."""
        free = self._free_runs(ends)
        starts = self._offsets(list(free), self._reach, Bound.START)
        readable = {source: runs for source, runs in free.items() if source in starts}
        in_question = [SourceRun(source, *run) for source, runs in readable.items() for run in runs]
        gone = self._runs_gone_from_log(in_question, starts)
        runs: dict[int, list[PositionRun]] = {source: [] for source in readable}
        for source, start, end in _without_gone(in_question, gone):
            runs[source].append(PositionRun(start, end))
        # what left the log is initialised like a hole, and limited like one; the next batch goes on
        passed = [run._replace(end=min(run.end, run.start + HOLE_POSITIONS_MAX)) for run in gone]
        return _Free(runs, gone=passed, unreadable=free.keys() - starts.keys())

    def _free_runs(self, ends: Mapping[int, int]) -> dict[int, Sequence[PositionRun]]:
        """Return by source the free positions of those that take part.

        `ends` are offsets, by source.
        """
        free: dict[int, Sequence[PositionRun]] = {}
        for source, end in ends.items():
            # ordered partitions without a turn take no part;
            # of the others the copies are chosen already
            if self._has_no_turn(source) or (self._is_ordered(source) and self._specs[source].is_replay):
                continue
            cursor = self._tenure.cursors[source]
            readable_to = cursor.position_of(end)
            # a gap goes first, and alone
            runs = cursor.free_runs(min(readable_to, self._gap_end_by_source.get(source, readable_to)))
            if runs:
                free[source] = runs
        return free

    def room(self, input_id: int) -> int:
        """Return how many more records of an input may be pending."""
        return self._room_by_input({})[input_id]

    def _room_by_input(self, copy_counts: Mapping[int, int]) -> dict[int, int]:
        """Return by input how many more records may be pending.

        Besides what is pending now, `copy_counts` of each source will be.
        """
        pending = Counter[int]()
        for source, spec in self._specs.items():
            pending[spec.input.id] += self._tenure.window.records_of(source)
        for source, count in copy_counts.items():
            pending[self._specs[source].input.id] += count
        return {input.id: max(0, input.max_spout_pending - pending[input.id]) for input in self._spec.inputs}

    def _ends_if_all_read(self) -> dict[TopicPartition, int]:
        """Return the ends of all partitions if nothing before them is left to plan, now or later; else none.

        A reader that waits at these ends gets the next record that there is to plan.
        """
        ends = dict(self._ends_seen)
        cursors = self._tenure.cursors
        # an ordered partition may wait for its turn, and one with a target is not read to its end
        if self._order is not None or self._targets or self._tenure.unjournalled or not ends:
            return {}
        for source, cursor in cursors.items():
            # one in trouble has no end: it will be read on here
            if source not in ends and self._specs[source].place in self._troubles:
                ends[source] = offset_of(cursor.first_free)
        if len(ends) < len(cursors):
            return {}
        if any(self._free_before(source, end) for source, end in ends.items()):
            return {}
        return {self._specs[source].place: end for source, end in ends.items()}

    def _readable_ends(self, sources: Sequence[int]) -> dict[int, int]:
        """Return by source the offset up to which it can be read now: its last stable offset.

        Those in trouble are missing, and those whose logs were cut, which begin a new generation.
        Where the query stops at targets, the offset is no higher than the target. Raises
        `Disagreement`: a log was cut, and its input does not go on after that.
        """
        answers = self._bounds(sources, self._reach, Bound.STABLE_END)
        ends = self._offsets_by_source(sources, answers)
        unknown = self._handle_cut_logs(answers.epochs, ends, knows_ends=self._reach is self._log)
        left_out = self.begins_again.keys() | unknown
        ends = {source: end for source, end in ends.items() if source not in left_out}
        if not self._targets:
            return ends
        for source, end in ends.items():
            if self._targets.get(source) == UNKNOWN_TARGET:
                self._targets[source] = end
            if not is_replay(source):  # replay topics have no target: copies of what is read may come later
                # 0: a partition that came later is not read
                ends[source] = min(end, self._targets.get(source, 0))
        return ends

    def compare_logs(self, now_ms: int) -> bool:
        """Compare all logs with what was read of them now; return whether a source begins again.

        Raises as `plan` does. For a process whose own reader has found that its position is not in the log
        any more.
        """
        self._now_ms = now_ms
        sources = list(self._specs)
        answers = self._bounds(sources, self._log, Bound.STABLE_END)
        self._handle_cut_logs(answers.epochs, self._offsets_by_source(sources, answers), knows_ends=True)
        return bool(self.begins_again)

    def _handle_cut_logs(
        self, epochs: Mapping[TopicPartition, int], ends: Mapping[int, int], *, knows_ends: bool
    ) -> Collection[int]:
        """Begin a generation for each source whose log was cut; return those of which that is not known yet.

        Args:
            epochs: the leader epochs that came with the ends.
            ends: offsets, by source.
            knows_ends: whether these are the ends of the logs, and not only how far they were read.
        """
        compared = self.continuity.compare(epochs, self._now_ms)
        cuts = {cut.source: cut for cut in compared.cuts}
        if knows_ends:
            for cut in self._logs_cut_short(ends):
                # what epochs have found goes before: such a log may have grown again
                cuts.setdefault(cut.source, cut)
        for source, cut in cuts.items():
            if source not in self.begins_again:
                self._begin_generation(cut, ends.get(source))
        return compared.unknown

    def _logs_cut_short(self, ends: Mapping[int, int]) -> list[Cut]:
        """Return the logs that end before what was read of them, as cuts, without using leader epochs.

        Other records will get the offsets that are missing.
        """
        read_to = {source: offset_of(self._tenure.cursors[source].next) for source in ends}
        short_sources = [source for source, end in ends.items() if end < read_to[source]]
        if not short_sources:
            return []
        # these ends may be those of the last decided transactions: the logs are asked for their own
        cuts: list[Cut] = []
        for source, end in self._offsets(short_sources, self._log, Bound.END).items():
            if end < read_to[source]:
                cursor = self._tenure.cursors[source]
                cuts.append(Cut(source, start=cursor.position_of(end), end=cursor.next))
        return cuts

    def _begin_generation(self, cut: Cut, end: int | None) -> None:
        """Begin a new generation of a source whose log was cut, at the first lost offset, or stop.

        What is pending from there on is in no log any more: it is ABSENT. `end` is where the log ends now, as
        far as that is known. An ordered input stops: nobody could say what waits behind what.
        """
        spec = self._specs[cut.source]
        if spec.input.fails_on_loss(self._spec.fail_on_data_loss) or spec.input.ordered:
            raise log_was_cut(spec, offset_of(cut.start), offset_of(cut.end), end)
        cursor = self._tenure.cursors[cut.source]
        # the first free position, if that is before the cut: the new generation has to read it, too
        goes_on_from = min(cut.start, cursor.first_free)
        generation = generation_of(goes_on_from) + 1
        if generation > GENERATION_MAX:
            raise UsageError(
                f"{spec} began {GENERATION_MAX:,} generations, the most there can be; give the input a new id"
                " in topics.yaml"
            )
        self.begins_again[cut.source] = position_at(generation, offset_of(goes_on_from))
        pending = self._tenure.window.pending_within(cut.source, cut.start, cut.end)
        lost = [SourceRun(cut.source, *run) for run in pending]
        self._report_absent(lost, self._tenure.advance_clock(self._now_ms))
        self.lost_from_log += positions_in(lost)
        fields = {
            "partition": str(spec),
            "first_lost": offset_of(cut.start),
            "read_to": offset_of(cut.end),
            "open_roots": positions_in(lost),
            "goes_on_from": offset_of(goes_on_from),
        }
        self._report("log_was_cut", fields)

    def _offsets(self, sources: Iterable[int], reach: Reach, bound: Bound) -> dict[int, int]:
        """Return by source where its log begins or ends, an offset.

        Partitions in trouble are missing.
        """
        sources = list(sources)
        return self._offsets_by_source(sources, self._bounds(sources, reach, bound))

    def _bounds(self, sources: Iterable[int], reach: Reach, bound: Bound) -> OffsetAnswers:
        """Ask where logs of sources begin or end; record the partitions in trouble.

        Return the answers.
        """
        answers = reach.bounds(bound, [self._specs[source].place for source in sources])
        self._troubles.record_answers(answers)
        return answers

    def _offsets_by_source(self, sources: Iterable[int], answers: OffsetAnswers) -> dict[int, int]:
        """Return the offsets of sources, by source; those without an answer are missing."""
        offsets: dict[int, int] = {}
        for source in sources:
            place = self._specs[source].place
            if place in answers.offsets:
                offsets[source] = answers.offsets[place]
        return offsets

    def _epochs_without(self, copies: Collection[int]) -> dict[int, int]:
        """Return by source the leader epoch in which its log had all that is planned now; without `copies`.

        Ends and epochs come in one answer, except for the `copies` of ordered partitions: these
        were chosen up to an earlier end. Perhaps a later leader wrote some of them: with this epoch
        they would be taken for other records.
        """
        return {
            source: cursor.leader_epoch
            for source, cursor in self._tenure.cursors.items()
            if source not in copies
        }

    def _leave_out_unreadable(
        self, leftover: Portion, choice: _Choice
    ) -> tuple[Portion, _Choice, Mapping[int, int]]:
        """Leave out partitions that cannot be read now; return both without them, and where logs begin.

        Their leftover goes back to the tenure, for a later batch. In an ordered partition neither
        copies nor new records go without the others. The starts are offsets, by source.
        """
        sources = leftover.sources | choice.copies.sources
        log_starts = self._offsets(sources, self._reach, Bound.START)
        without_start = sources - log_starts.keys()
        left_out = without_start | set(choice.unreadable) | (sources & self.begins_again.keys())
        if not left_out:
            return leftover, choice, log_starts
        for source in list(left_out):
            if self._is_ordered(source):
                left_out |= {first_source(source), copies_source(first_source(source))}
        for run in (*leftover.ranges, *leftover.holes):
            if run.source in left_out:
                self._tenure.unjournalled.append(self._without_lost(run))
        return leftover.without(left_out), choice.without(left_out), log_starts

    def _without_lost(self, run: SourceRun) -> SourceRun:
        """Return the part of a run that is still in its log, where that was cut.

        It is the whole run if the log was not cut.
        """
        new_start = self.begins_again.get(run.source)
        if new_start is None or generation_of(run.start) == generation_of(new_start):
            return run
        # `begins_again` has the offset of the cut: the same one in the former generation of the run
        first_lost = position_at(generation_of(run.start), offset_of(new_start))
        return run._replace(start=min(run.start, first_lost), end=min(run.end, first_lost))

    def _runs_gone_from_log(self, runs: Sequence[SourceRun], starts: Mapping[int, int]) -> list[SourceRun]:
        """Return what of chosen runs left the log; `DataLoss` if something did and `on_data_loss` is fail.

        `starts` are the offsets where the logs begin, by source.
        """
        gone: list[SourceRun] = []
        for source, start, end in runs:
            spec = self._specs[source]
            log_start = position_at(generation_of(start), starts[source])
            if log_start <= start:
                continue
            gone_to = min(log_start, end)
            if spec.input.fails_on_loss(self._spec.fail_on_data_loss):
                raise DataLoss(
                    f"{spec} no longer holds offsets {offset_of(start)} to {offset_of(gone_to) - 1},"
                    f" which input {spec.input.name} has not read; set on_data_loss: skip to go on without"
                    " them, or raise the topic's retention"
                )
            gone.append(SourceRun(source, start, gone_to))
        return gone

    def _report_gone_and_holes(self, gone: Sequence[SourceRun], holes: Sequence[SourceRun], now: int) -> None:
        """Report to the ackers that what left the log, and holes, are absent; count what left the log.

        They were initialised, and all that is initialised needs a verdict.
        """
        self._report_absent([*gone, *holes], now)
        if gone:
            self.lost_from_log += positions_in(gone)
            fields = {"records": positions_in(gone), "ranges": [tuple(run) for run in gone]}
            self._report("records_left_the_log", fields)

    def _report_absent(self, runs: Sequence[SourceRun], now: int) -> None:
        """Report to the ackers that the log has no records at some positions.

        Without any nothing is sent.
        """
        if not runs:
            return
        self._absent_seq += 1
        if self._announcer is not None:
            roots = RootSet.of_runs(runs)
            self._announcer.send_absent(self._tenure.name, self._lane, self._absent_seq, now, roots)


def _without_gone(runs: Iterable[SourceRun], gone: Iterable[SourceRun]) -> list[SourceRun]:
    """Return runs without those of `gone`, each of which begins where one of `runs` does.

    A log loses its lowest offsets, so what is gone is the beginning of a run: of [5, 20) and gone
    [5, 9) it leaves [9, 20).
    """
    gone_to = {(run.source, run.start): run.end for run in gone}
    remaining: list[SourceRun] = []
    for source, start, end in runs:
        start_in_log = gone_to.get((source, start), start)
        if start_in_log < end:
            remaining.append(SourceRun(source, start_in_log, end))
    return remaining


def _records_by_source(ranges: Iterable[SourceRun], empty: Iterable[SourceRun]) -> Counter[int]:
    """Return how many records the ranges hold at most, by source; those of `empty` hold none."""
    records = Counter[int]()
    for source, start, end in ranges:
        records[source] += end - start
    for source, start, end in empty:
        records[source] -= end - start
    return records


def _copies_max(copy_counts: Counter[int], granted_copies: int) -> int | None:
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
