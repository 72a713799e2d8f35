"""Plans micro-batches of one tenure: chooses ranges, makes their Init durable, and journals them.

Source: DESIGN.md, section 5.1, "Planning".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from acker.errors import DataLoss
from acker.events import SourceRun
from acker.identity import generation_of, offset_of, position_at
from spout.ground import Ground
from spout.intake import Room, choose
from spout.journal import Journal
from spout.shares import Pace
from spout.tenure import Tenure


class Batches:
    """Plans one batch after another."""

    def __init__(self, ground: Ground, tenure: Tenure, lane: str, targets: Mapping[int, int]) -> None:
        """Plan for a tenure.

        Args:
            ground: cluster, task and sources.
            tenure: the session's books.
            lane: of this process alone; names what it contributes for records that left the log.
            targets: offsets beyond which sources are not read; those without one are read to their ends.
        """
        self.count = 0
        self.replayed = 0
        self.lost_from_log = 0
        self._log = ground.log
        self._spec = ground.spec
        self._specs = ground.sources
        self._announcer = ground.announcer
        self._report = ground.report
        self._tenure = tenure
        self._lane = lane
        self._targets = targets
        self._pace = Pace(ground.spec.timeout_ms if ground.announcer is not None else 0)
        self._last: tuple[Journal, Journal] | None = None
        self._absences = 0

    def plan(self, start: Journal, limit: int | None, now_ms: int) -> Journal:
        """Plan the batch behind `start`.

        1. What is initialised and not journalled comes first, as it is.
        2. Replays, then fair shares of the inputs, as far as there is room.
        3. What is new gets its Init, durable before anything names it.

        Args:
            start: the offset before the batch.
            limit: most records, or None.
            now_ms: wall time.

        Returns:
            The offset behind the batch; `start` itself when there is nothing to do.

        Raises:
            DataLoss: a record left the log before it was read, and `on_data_loss` is fail.
            Unreachable: the broker does not answer; what was initialised is planned after a restart.
        """
        if self._last is not None and start == self._last[0]:
            return self._last[1]  # Spark did not journal it; the same batch again
        self.ended(now_ms)
        old = self._tenure.take_unjournalled()
        new = self._choose(limit, sum(run.end - run.start for run in old))
        gone = self._gone([*old, *new])
        now = self._tenure.clock.look(now_ms, idle=self._tenure.is_idle)
        self._initialise(new, now, now_ms)
        self._settle_gone(gone, now)
        ranges = tuple(sorted(_without([*old, *new], gone)))
        name = self._tenure.name
        if not ranges and start.session == name.id and start.epoch == name.epoch and start.sources:
            return start
        end = Journal(
            name.id, name.epoch, now, self._spec.tasks, MappingProxyType(self._tenure.marks()), ranges
        )
        self._planned(start, end, now_ms)
        return end

    def progressed(self, now_ms: int) -> None:
        """Note that verdicts came in: the first one of the last batch ends its time."""
        if self._last is None or not self._pace.is_running:
            return
        ranges = self._last[1].ranges
        within = self._tenure.window.pending_within
        pending = sum(run.end - run.start for source, *ends in ranges for run in within(source, *ends))
        if pending < sum(run.end - run.start for run in ranges):
            self.ended(now_ms)

    def ended(self, now_ms: int) -> None:
        """Note that the last batch has ended, and say so when it took long."""
        took_ms = self._pace.done(now_ms)
        timeout_ms = self._spec.timeout_ms
        if took_ms is None or not timeout_ms or self._announcer is None or took_ms * 2 < timeout_ms:
            return
        event = "batch_over_timeout" if took_ms >= timeout_ms else "batch_over_half_the_timeout"
        cure = "raise the input's timeout, lower max_spout_pending, or make the bolts faster"
        self._report(event, {"took_ms": took_ms, "timeout_ms": timeout_ms, "next_step": cure})

    def is_all_planned(self, *, replay: bool) -> bool:
        """Tell whether everything there is was planned: of the inputs, or of their replay topics."""
        sources = [source for source, one in self._specs.items() if one.is_replay == replay]
        ends = self._readable(sources)
        return not any(
            self._tenure.cursors[s].free_below(
                position_at(generation_of(self._tenure.cursors[s].from_), ends[s])
            )
            for s in sources
        )

    def _choose(self, limit: int | None, taken: int) -> list[SourceRun]:
        """Choose what is free, as far as there is room beside `taken` records."""
        limits = [most for most in (limit, self._pace.allowed()) if most is not None]
        total = max(0, min(limits) - taken) if limits else None
        pending = Counter[int]()
        input_ids = {source: one.input.id for source, one in self._specs.items()}
        for source, input_id in input_ids.items():
            pending[input_id] += self._tenure.window.pending_of(source)
        by_input = {one.id: max(0, one.max_spout_pending - pending[one.id]) for one in self._spec.inputs}
        if total == 0 or not any(by_input.values()):
            return []
        ends = self._readable(list(self._specs))
        return choose(self._tenure.cursors, ends, input_ids, Room(total, by_input))

    def _readable(self, sources: Sequence[int]) -> dict[int, int]:
        ends = self._ends(sources)
        return {source: min(end, self._targets.get(source, end)) for source, end in ends.items()}

    def _ends(self, sources: Sequence[int]) -> dict[int, int]:
        """Return the last stable offset of sources: beyond it a transaction is undecided."""
        found = self._log.stable_ends([self._specs[source].place for source in sources])
        return {source: found[self._specs[source].place] for source in sources}

    def _gone(self, runs: Sequence[SourceRun]) -> list[SourceRun]:
        """Return what of chosen runs left the log already.

        Raises:
            DataLoss: something did, and `on_data_loss` is fail.
        """
        if not runs:
            return []
        starts = self._log.starts({self._specs[run.source].place for run in runs})
        gone: list[SourceRun] = []
        for source, start, end in runs:
            one = self._specs[source]
            first = position_at(generation_of(start), starts[one.place])
            if first <= start:
                continue
            if self._spec.fails_on_loss(one.input):
                raise DataLoss(
                    f"{one} no longer holds offsets {offset_of(start)} to {offset_of(min(first, end)) - 1},"
                    f" which input {one.input.name} has not read; set on_data_loss: skip to go on without"
                    " them, or raise the topic's retention"
                )
            gone.append(SourceRun(source, start, min(first, end)))
        return gone

    def _initialise(self, runs: Sequence[SourceRun], now: int, now_ms: int) -> None:
        if self._announcer is not None and runs:
            if self._tenure.is_idle:
                self._tenure.clock.told()  # the tick that follows adds at most a second to this Init's clock
            self._announcer.init(self._tenure.name, now, now_ms, runs, self._specs)
        self._tenure.emit(runs, now_ms)

    def _settle_gone(self, gone: Sequence[SourceRun], now: int) -> None:
        """Contribute that what left the log is absent: it needs a verdict as everything initialised does."""
        if not gone:
            return
        count = sum(run.end - run.start for run in gone)
        self.lost_from_log += count
        self._absences += 1
        if self._announcer is not None:
            self._announcer.absent(self._tenure.name, self._lane, self._absences, now, gone)
        self._report("records_left_the_log", {"records": count, "ranges": [tuple(run) for run in gone]})

    def _planned(self, start: Journal, end: Journal, now_ms: int) -> None:
        sizes = [(self._specs[run.source].is_replay, run.end - run.start) for run in end.ranges]
        self._last = (start, end)
        self.count += 1
        self.replayed += sum(size for replay, size in sizes if replay)
        self._pace.emitted(sum(size for _, size in sizes), now_ms)


def _without(runs: Iterable[SourceRun], gone: Sequence[SourceRun]) -> list[SourceRun]:
    """Cut off what is gone, which is always the beginning of a run."""
    ends = {(run.source, run.start): run.end for run in gone}
    cut = [SourceRun(run.source, ends.get((run.source, run.start), run.start), run.end) for run in runs]
    return [run for run in cut if run.start < run.end]
