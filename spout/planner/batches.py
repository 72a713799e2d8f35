"""Plans micro-batches of one tenure: chooses ranges, makes their Init durable, and journals them.

Source: docs/design/protocol.md, section 5.1, "Planning".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from acker.errors import DataLoss, Disagreement
from acker.identity import (
    copies_source,
    first_source,
    generation_of,
    is_replay,
    offset_of,
    position_at,
)
from acker.kafka.port import TopicPartition
from acker.wire.events import SourceRun
from spout.group.announce import PlannerContext
from spout.group.tenure import Tenure
from spout.planner.order_watch import OrderWatch
from spout.planning.intake import Room, choose_runs
from spout.planning.journal import Journal
from spout.planning.order import LineUp, Turn
from spout.planning.pace import BatchPace


class Batches:
    """Plans batches one after another.

    Attributes:
        read_to: the end of each partition, where the last plan found all of them read; else empty.
    """

    def __init__(
        self,
        context: PlannerContext,
        tenure: Tenure,
        lane: str,
        targets: Mapping[int, int],
        order: OrderWatch | None = None,
    ) -> None:
        """Plan for a tenure; `order` is None where no input is ordered.

        `lane`, of this process alone, names what it contributes for records that left the log; `targets` has
        offsets beyond which sources are not read.
        """
        self._order = order
        self._turns: dict[int, Turn] = {}
        self._copies: list[SourceRun] = []
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
        self._tenure = tenure
        self._lane = lane
        self._targets = targets
        is_paced = context.spec.paced and context.announcer is not None
        self._timeout_ms = context.spec.timeout_ms if is_paced else 0
        self.pace = BatchPace(self._timeout_ms)
        self._last: tuple[Journal, Journal] | None = None
        self._absences = 0
        self.read_to: Mapping[TopicPartition, int] = {}
        self._ends_seen: Mapping[int, int] = {}

    def plan(self, start: Journal, limit: int | None, now_ms: int, tasks: int | None = None) -> Journal:
        """Plan the batch behind `start`; return its end, `start` itself when there is nothing to do.

        A partition of an ordered input takes part when it is known what waits of it, and then with all its
        copies at once. A process that shall wake what Spark's state holds begins with a batch, be it empty.

        Raises:
            DataLoss: a record left the log before it was read, and `on_data_loss` is fail.
            Disagreement: a log ends before what was read of it.
            Unreachable: the broker does not answer; what was initialised is planned after a restart.
        """
        if self._last is not None and start == self._last[0]:
            return self._last[1]  # Spark did not journal it; the same batch again
        self.ended(now_ms)
        self.read_to, self._ends_seen = {}, {}
        old = self._unjournalled()
        new, most = self._choose(limit, sum(run.end - run.start for run in old))
        gone = self._gone([*old, *new])
        now = self._tenure.look(now_ms)
        if self._announcer is not None and new:
            grace_ms = self._tenure.grace_ms(now_ms)
            self._announcer.init(self._tenure.name, now, now_ms, new, self._specs, grace_ms=grace_ms)
        self._tenure.emit(new, now_ms)
        self._settle_gone(gone, now)
        ends = {(run.source, run.start): run.end for run in gone}
        there = (run._replace(start=ends.get((run.source, run.start), run.start)) for run in [*old, *new])
        ranges = tuple(sorted(run for run in there if run.start < run.end))
        name = self._tenure.name
        wakes = self._spec.wakes and not self.count
        goes_on = start.session == name.id and start.epoch == name.epoch and start.sources
        if not ranges and goes_on and not wakes:
            self.read_to = self._all_read()
            return start
        end = Journal(
            name.id,
            name.epoch,
            now,
            tasks or self._spec.tasks,
            MappingProxyType(self._tenure.marks()),
            ranges,
            {one.place.topic: one.topic_id for one in self._specs.values()},
            self._line_ups(ranges, most),
            now_ms,
        )
        self._last = (start, end)
        self.count += 1
        self.replayed += sum(run.end - run.start for run in ranges if self._specs[run.source].is_replay)
        counts = Counter[int]()
        for source, first, stop in ranges:
            counts[first_source(source)] += stop - first
        worked = (min(n, most or n) if source in end.order else n for source, n in counts.items())
        self.pace.emitted(sum(worked), now_ms)
        return end

    def progressed(self, now_ms: int) -> None:
        """Note that verdicts came in: the first one of the last batch ends its time."""
        if self._last is None or not self.pace.is_running:
            return
        ranges = self._last[1].ranges
        within = self._tenure.window.pending_within
        pending = sum(run.end - run.start for source, *ends in ranges for run in within(source, *ends))
        if pending < sum(run.end - run.start for run in ranges):
            self.ended(now_ms)

    def ended(self, now_ms: int) -> None:
        """Note that the last batch has ended, and say so when it took long."""
        took_ms = self.pace.done(now_ms)
        self.took_ms = self.took_ms if took_ms is None else took_ms
        timeout_ms = self._timeout_ms
        if took_ms is None or not timeout_ms or took_ms * 2 < timeout_ms:
            return
        event = "batch_over_timeout" if took_ms >= timeout_ms else "batch_over_half_the_timeout"
        cure = "raise the input's timeout, lower max_spout_pending, or make the bolts faster"
        self._report(event, {"took_ms": took_ms, "timeout_ms": timeout_ms, "next_step": cure})

    def is_last(self, end: Journal) -> bool:
        """Whether the last batch that this process has planned ends there."""
        return self._last is not None and self._last[1] == end

    def is_all_planned(self, *, replay: bool) -> bool:
        """Return whether everything there is was planned: of the inputs, or of their replay topics.

        Of these a copy counts that is not visible yet: its tombstone may be, since each partition of a
        transaction has a marker of its own.
        """
        sources = [source for source, one in self._specs.items() if one.is_replay == replay]
        ends = self._ends(sources, self._log.ends) if replay else self._readable(sources)
        found = [(self._tenure.cursors[source], end) for source, end in ends.items()]
        return not any(cursor.free_below(cursor.position_of(end)) for cursor, end in found)

    def _unjournalled(self) -> list[SourceRun]:
        runs = self._tenure.take_unjournalled()
        if self._order is None:
            return runs
        planned = Counter[int]()
        for source, start, end in runs:
            planned[source] += end - start
        self._turns = self._order.turns(planned)
        above_gaps = self._above_gaps(runs)
        self._copies = self._all_copies(planned)
        later = [run for run in runs if self._waits(run.source) or run.source in above_gaps]
        self._tenure.unjournalled += later
        return [run for run in runs if run not in later]

    def _above_gaps(self, runs: Iterable[SourceRun]) -> set[int]:
        """Return the ordered partitions of which a run stands behind positions that are free.

        A process died between the parts of one init. What is free stands before the run, so it is planned
        alone, and the run waits for the next batch.
        """
        last: dict[int, int] = {}
        for source, start, _ in runs:
            if self._is_ordered(source) and source in self._turns:
                last[source] = max(start, last.get(source, start))
        above: set[int] = set()
        for source, start in last.items():
            free = self._tenure.cursors[source].free_below(start)
            if free:
                self._turns[source] = self._turns[source]._replace(most=free)
                above.add(source)
        return above

    def _all_copies(self, planned: Mapping[int, int]) -> list[SourceRun]:
        """Return the copies of ordered partitions that have their turn, all of them.

        A partition waits where there is no room for all of its copies, unless nothing of the input is
        pending: then there will be no more room than now. Of copies no more are out than `blocked_max`, but
        between them lie the markers of their transactions, which may pass `max_spout_pending`.
        """
        sources = [copies_source(source) for source, turn in self._turns.items() if turn.takes_copies]
        ends = self._readable(sources)
        pending, under_way = Counter[int](), Counter[int]()
        for source, one in self._specs.items():
            count = self._tenure.window.pending_of(source)
            pending[one.input.id] += count
            waits = self._waits(source) or copies_source(first_source(source)) in sources
            under_way[one.input.id] += count - (planned.get(source, 0) if waits else 0)
        old = {source: planned.get(source, 0) + planned.get(first_source(source), 0) for source in sources}
        chosen: list[SourceRun] = []
        for source in sorted(sources, key=lambda source: (not old[source], source)):
            cursor, found = self._tenure.cursors[source], self._specs[source].input
            runs = cursor.free_runs(cursor.position_of(ends[source]))
            count = sum(run.end - run.start for run in runs)
            if under_way[found.id] and pending[found.id] + count > found.max_spout_pending:
                del self._turns[first_source(source)]
                continue
            pending[found.id] += count
            under_way[found.id] += count + old[source]
            chosen += [SourceRun(source, *run) for run in runs]
        return chosen

    def _is_ordered(self, source: int) -> bool:
        return self._order is not None and self._specs[source].input.ordered

    def _waits(self, source: int) -> bool:
        return self._is_ordered(source) and first_source(source) not in self._turns

    def _line_ups(self, ranges: Iterable[SourceRun], most: int | None) -> dict[int, LineUp]:
        sources = {first_source(run.source) for run in ranges if self._is_ordered(run.source)}
        return {source: replace(self._turns[source].line_up, most=most) for source in sorted(sources)}

    def _choose(self, limit: int | None, taken: int) -> tuple[list[SourceRun], int | None]:
        """Choose what is free beside `taken` records, and how many of each ordered partition bolts get."""
        limits = [most for most in (limit, self.pace.allowed()) if most is not None]
        total = max(0, min(limits) - taken) if limits else None
        copies, self._copies = self._copies, []
        most = None
        if total is not None:
            count = sum(run.end - run.start for run in copies)
            if count > total:
                most = max(1, total // len({run.source for run in copies}))
            total = max(0, total - count)
        pending = Counter[int]()
        input_ids = {source: one.input.id for source, one in self._specs.items()}
        for source, input_id in input_ids.items():
            pending[input_id] += self._tenure.window.pending_of(source)
        for run in copies:
            pending[input_ids[run.source]] += run.end - run.start
        by_input = {one.id: max(0, one.max_spout_pending - pending[one.id]) for one in self._spec.inputs}
        self.limit_hits += not all(by_input.values())
        if total == 0 or not any(by_input.values()):
            return copies, most
        self._ends_seen = ends = self._readable(list(self._specs))
        cursors = {  # without ordered partitions that wait, and those of copies, which are chosen already
            source: cursor
            for source, cursor in self._tenure.cursors.items()
            if not (self._waits(source) or (self._is_ordered(source) and self._specs[source].is_replay))
        }
        caps = {source: turn.most for source, turn in self._turns.items()}
        runs = choose_runs(cursors, ends, input_ids, Room(total, by_input), caps)
        return sorted([*copies, *runs]), most

    def _all_read(self) -> dict[TopicPartition, int]:
        """Return the ends of all partitions if nothing before them is left to plan, now or later; else none.

        A partition of an ordered input may wait for its turn, and one with a target is not read to its end.
        """
        ends, cursors = self._ends_seen, self._tenure.cursors
        if self._order is not None or self._targets or self._tenure.unjournalled or len(ends) < len(cursors):
            return {}
        if any(cursors[source].free_below(cursors[source].position_of(end)) for source, end in ends.items()):
            return {}
        return {self._specs[source].place: end for source, end in ends.items()}

    def _readable(self, sources: Sequence[int]) -> dict[int, int]:
        """Return where sources end for now: beyond the last stable offset a transaction is undecided.

        With targets a partition that came later is not read. Raises `Disagreement`: a log was cut.
        """
        ends = self._ends(sources, self._reach.stable_ends)
        if self._reach is self._log:
            self._require_uncut(ends)
        if not self._targets:
            return ends
        return {
            source: end if is_replay(source) else min(end, self._targets.get(source, 0))
            for source, end in ends.items()
        }

    def _require_uncut(self, ends: Mapping[int, int]) -> None:
        """Check that no log ends before what was read of it: other records would get those offsets."""
        read_to = {source: offset_of(self._tenure.cursors[source].next) for source in ends}
        short = [source for source, end in ends.items() if end < read_to[source]]
        for source, end in self._ends(short, self._log.ends).items() if short else ():
            one = self._specs[source]
            if end < read_to[source]:
                raise Disagreement(
                    f"{one} ends at {end}, and group {self._spec.group} has read it to {read_to[source]}:"
                    f" the log was cut; run `windhover offsets reset` for input {one.input.name} to begin a"
                    " new generation, then start with a fresh checkpoint"
                )

    def _ends(
        self, sources: Sequence[int], ask: Callable[[list[TopicPartition]], Mapping[TopicPartition, int]]
    ) -> dict[int, int]:
        found = ask([self._specs[source].place for source in sources])
        return {source: found[self._specs[source].place] for source in sources}

    def _gone(self, runs: Sequence[SourceRun]) -> list[SourceRun]:
        """Return what of chosen runs left the log; `DataLoss` if something did and `on_data_loss` is fail."""
        if not runs:
            return []
        starts = self._reach.starts({self._specs[run.source].place for run in runs})
        gone: list[SourceRun] = []
        for source, start, end in runs:
            one = self._specs[source]
            first = position_at(generation_of(start), starts[one.place])
            if first <= start:
                continue
            if one.input.fails_on_loss(self._spec.fail_on_data_loss):
                raise DataLoss(
                    f"{one} no longer holds offsets {offset_of(start)} to {offset_of(min(first, end)) - 1},"
                    f" which input {one.input.name} has not read; set on_data_loss: skip to go on without"
                    " them, or raise the topic's retention"
                )
            gone.append(SourceRun(source, start, min(first, end)))
        return gone

    def _settle_gone(self, gone: Sequence[SourceRun], now: int) -> None:
        """Contribute that what left the log is absent: as everything initialised it needs a verdict."""
        if not gone:
            return
        count = sum(run.end - run.start for run in gone)
        self.lost_from_log += count
        self._absences += 1
        if self._announcer is not None:
            self._announcer.absent(self._tenure.name, self._lane, self._absences, now, gone)
        self._report("records_left_the_log", {"records": count, "ranges": [tuple(run) for run in gone]})
