"""The ledger: one value for each open root, one verdict for each root, and no memory of a settled
one.

The ledger is pure: records and positions go in, verdicts come out. It reads no clock and no log.

For each source it keeps a watermark. Positions below the watermark were initialised and cannot be
initialised again; positions from the watermark on have no root yet. So a root passes once through
three states::

    at or above the watermark ──init──► open, in a cohort ──verdict──► settled, in no cohort

The roots that one init opens in one wire block (32,768 positions) are a *cohort*. A *pin* is the
place in a log of the first record that a restart still needs for a cohort; `acker.ledger` lists the
other words.

A contribution or fail for a root that is not open, or that belongs to another session, is counted
and changes nothing else. In one step the caller applies inits, then `Ledger.fail`, then
`Ledger.settle_absent`, then `Ledger.fold`, then `Ledger.expire` and `Ledger.abandon`. By this order
FAILED goes before ABSENT, and ABSENT before ACKED.

Source: docs/design/protocol.md, section 3 (rules 1 to 4 and 8) and section 5.3.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from acker.hot_paths import Indices, distinct
from acker.identity import I64, WIRE_BLOCK_BITS
from acker.ledger.cohort import NEVER, InitEmission, Pin, RootCohort, Session
from acker.ledger.contribution import Contribution, clip, count_at_or_above
from acker.ledger.output import Counts
from acker.ledger.roots import Roots
from acker.ledger.verdicts import LossCause, RunCollector, VerdictSet
from acker.root_sets.root_set import RootSet
from acker.wire.events import PositionRun, SourceRun, Verdicts, positions
from acker.wire.verdict import Verdict

_BLOCK_SIZE: Final = 1 << WIRE_BLOCK_BITS
"""How many positions a wire block has."""


class Ledger:
    """The open roots of one acker partition.

    The next verdict gets offset `verdict_end_pin`, or a higher one.
    """

    def __init__(self) -> None:
        """Begin without a root and without a verdict."""
        self.settled = VerdictSet()  # the verdicts since `take_settled`
        self.counts = Counts()
        self.open_count = 0  # how many roots are open
        # where the verdict log ends: its end offset, and how many bytes lie before that
        self.verdict_end_pin = Pin(0, 0)
        # the number of the newest cohort; the first one gets 1
        self._newest_serial = 0
        self._watermarks: dict[int, int] = {}  # by source: the first position that has no root yet
        self._open_cohorts = Register()  # all cohorts with open roots
        # Cohorts with the pin of a contribution, the oldest pin first. One that needs its pin no
        # more leaves when it is first.
        self._ack_pinned: deque[RootCohort] = deque()
        # cohorts with the pin of a verdict: a heap, the lowest offset first
        self._verdict_pinned: list[_VerdictPinned] = []
        # by source: runs of roots with a verdict that a restart has read before their inits, see
        # `settle_logged`
        self._runs_without_init: dict[int, list[SourceRun]] = {}
        # the place of the first of these verdicts; None: there is none
        self.first_pin_without_init: Pin | None = None
        # numbers of the bins of State whose cohorts changed since `take_changed_bins`
        self._changed_bins: set[int] = set()

    # -- reading

    def watermark(self, source: int) -> int:
        """Return the first position of a source that was never initialised here.

        It is 0 before the first init.
        """
        return self._watermarks.get(source, 0)

    def set_watermark(self, source: int, position: int) -> None:
        """Set the watermark of a source, in a restart."""
        self._watermarks[source] = position

    @property
    def ranges(self) -> int:
        """How many ranges have open roots."""
        return self._open_cohorts.count()

    def cohorts(self) -> Iterator[RootCohort]:
        """Return all cohorts with open roots, in the order in which they were emitted."""
        return iter(self._open_cohorts.all_cohorts())

    def sessions(self, group: str) -> list[Session]:
        """Return the sessions of a group that have open roots, ascending."""
        return self._open_cohorts.sessions(group)

    def open_runs(self, session: Session) -> list[SourceRun]:
        """Return the open roots of a session as the fewest runs, ascending."""
        runs = RunCollector()
        for cohort in self._open_cohorts.cohorts_of(session):
            runs.add(cohort.roots.source, cohort.start, cohort.roots.open_at())
        return runs.runs()

    def take_settled(self) -> VerdictSet:
        """Return the verdicts since the last call, and start a new collection."""
        settled, self.settled = self.settled, VerdictSet()
        return settled

    # -- events

    def open_run(self, emission: InitEmission, run: SourceRun, ack_from: int) -> None:
        """Open the roots of a run that an init names, from the watermark of its source on.

        Positions below the watermark have been initialised before, and are only counted as
        ignored. Contributions below the offset `ack_from` of ``_ack_ack`` were read before this
        step: they are for no root of the run.
        """
        watermark = self.watermark(run.source)
        start = max(run.start, watermark)
        self.counts.ignored += max(0, min(run.end, watermark) - run.start)
        if start >= run.end:  # all of them were initialised before
            return
        self._watermarks[run.source] = run.end
        self.counts.initialised += run.end - start
        # one cohort for each wire block
        while start < run.end:
            block_end = (start // _BLOCK_SIZE + 1) * _BLOCK_SIZE
            end = min(run.end, block_end)
            # adds the cohort
            cohort = self.adopt(Roots(run.source, start, end - start), emission, ack_from)
            # at a restart: verdicts that were read before this init
            self._settle_by_earlier_verdicts(cohort)
            start = end

    def _settle_by_earlier_verdicts(self, cohort: RootCohort) -> None:
        """Settle those roots of a new cohort whose verdicts a restart has read before their init.

        These verdicts are kept by source in `_runs_without_init`, as runs of settled positions.
        """
        for settled_run in self._runs_without_init.get(cohort.roots.source, ()):
            if settled_run.start < cohort.end and settled_run.end > cohort.start:
                settled_indices = cohort.settle_between(settled_run.start, settled_run.end)
                # a restart reads verdicts from here on: the first of those that are kept
                first_verdict = self.first_pin_without_init or self.verdict_end_pin
                self._record_settled_at(cohort, len(settled_indices), first_verdict)

    def adopt(self, roots: Roots, emission: InitEmission, ack_from: int) -> RootCohort:
        """Add roots that share an init as a cohort, behind all others of their source.

        The source's watermark does not change. `ack_from` is as in `open_run`.
        """
        self._newest_serial += 1
        cohort = RootCohort(roots, emission, ack_from, self._newest_serial)
        self._open_cohorts.add(cohort)
        self.open_count += roots.open_count
        return cohort

    def fail(self, session: Session, source: int, failed_positions: I64, cause: LossCause) -> None:
        """Settle as lost, for a `cause`, the open roots of a session at some positions of a source.

        The positions ascend, are distinct, and lie in one block.
        """
        settled_count = 0
        for cohort in self._open_cohorts.cohorts_around(session, source, failed_positions):
            settled_indices = cohort.roots.settle(clip(failed_positions, cohort))
            self._record_lost(cohort, settled_indices, cause)
            settled_count += len(settled_indices)
        self.counts.failed += settled_count
        missed_count = len(failed_positions) - settled_count
        self._count_missed(source, missed_count, runs=(), scattered=failed_positions)

    def settle_absent(self, session: Session, source: int, runs: Sequence[PositionRun]) -> None:
        """Settle as ABSENT the open roots of a session in some runs, which all lie in one block."""
        settled_count = 0
        for run in runs:
            for cohort in self._open_cohorts.cohorts_within(session, source, run.start, run.end):
                settled_indices = cohort.settle_between(run.start, run.end)
                self.settled.absent.add(source, cohort.start, settled_indices)
                self._record_settled(cohort, len(settled_indices))
                settled_count += len(settled_indices)
        self.counts.absent += settled_count
        missed_count = sum(run.end - run.start for run in runs) - settled_count
        self._count_missed(source, missed_count, runs=runs, scattered=None)

    def fold(self, session: Session, contribution: Contribution, pin: Pin) -> None:
        """XOR a record's contributions into the values of its session's roots.

        Those that become complete are settled as ACKED. `pin` is the record's place in
        ``_ack_ack``. A cohort that it leaves open keeps that place: a restart has to apply the
        record again.
        """
        folded_count = 0
        source = contribution.source
        for cohort in self._open_cohorts.cohorts_within(
            session, source, contribution.start, contribution.end
        ):
            fold_result = contribution.fold_and_settle(cohort)
            for settled_indices in fold_result.settled_parts:
                self.settled.ack(cohort.emission, source, cohort.start, settled_indices)
                self.counts.acked += len(settled_indices)
            self._record_settled(cohort, sum(map(len, fold_result.settled_parts)))
            folded_count += fold_result.folded_count
            self._pin_contributed(cohort, fold_result.folded_count, pin)
        self.counts.folded += folded_count
        missed_count = contribution.count - folded_count  # those that met no open root
        if missed_count:
            runs, scattered = contribution.runs, contribution.positions
            self._count_missed(source, missed_count, runs=runs, scattered=scattered)

    def touch(
        self, session: Session, source: int, touched_positions: I64, touched_at_ms: int, pin: Pin
    ) -> None:
        """Move the deadlines of open roots at positions (ascending, distinct) of one block.

        Spark's state holds tuples of these roots since `touched_at_ms` of the session's clock: a
        root expires its timeout later. `pin` is the place of the record that says so: a restart
        has to apply it again.
        """
        for cohort in self._open_cohorts.cohorts_around(session, source, touched_positions):
            if cohort.touch(clip(touched_positions, cohort), touched_at_ms):
                self._pin(cohort, pin)

    def expire(self, session: Session, clock_ms: int) -> None:
        """Settle as TIMED_OUT every root of a session whose deadline the clock has reached."""
        for cohort in self._open_cohorts.pop_due(session, clock_ms):
            settled_indices = cohort.expire(clock_ms)
            self.counts.timed_out += len(settled_indices)
            cause = LossCause.without_operator(Verdict.TIMED_OUT, clock_ms)
            self._record_lost(cohort, settled_indices, cause)
            if cohort.roots.open_count:  # some have a later deadline
                self._open_cohorts.add_deadline(cohort, cohort.next_deadline_ms(clock_ms))

    def abandon(self, session: Session, decided_at_ms: int) -> None:
        """Settle as ABANDONED every open root of a session."""
        cause = LossCause.without_operator(Verdict.ABANDONED, decided_at_ms)
        for cohort in self._open_cohorts.cohorts_of(session):
            self._abandon_cohort(cohort, cause)

    def abandon_sources(self, sources: Collection[int], session_time_ms: Callable[[Session], int]) -> None:
        """Settle as ABANDONED every open root of some sources.

        `session_time_ms` returns what the clock of a session shows: the time of its verdicts.
        """
        for cohort in self._open_cohorts.all_cohorts():
            if cohort.roots.source in sources:
                decided_at_ms = session_time_ms(cohort.emission.session)
                self._abandon_cohort(cohort, LossCause.without_operator(Verdict.ABANDONED, decided_at_ms))

    def _abandon_cohort(self, cohort: RootCohort, cause: LossCause) -> None:
        """Settle as ABANDONED the open roots of a cohort."""
        settled_indices = cohort.roots.settle_all()
        self.counts.abandoned += len(settled_indices)
        self._record_lost(cohort, settled_indices, cause)

    # -- restore: none of these gives a new verdict

    def refold(self, session: Session, contribution: Contribution, pin: Pin) -> None:
        """XOR again, in a restart, contributions into the values of roots; no root gets a verdict.

        `pin` is the place of their record in ``_ack_ack``.
        """
        source = contribution.source
        start, end = contribution.start, contribution.end
        for cohort in self._open_cohorts.cohorts_within(session, source, start, end):
            if _must_repeat(cohort, pin):
                folded_count = contribution.fold_unsettled(cohort)
                self._pin_contributed(cohort, folded_count, pin)

    def retouch(
        self, session: Session, source: int, touched_positions: I64, touched_at_ms: int, pin: Pin
    ) -> None:
        """Move again, in a restart, the deadlines of roots that Spark's state holds; see `touch`.

        A cohort that is in a bin of State has its deadlines already, and a record before the
        cohort's init does not count: these are left out. `pin` is the record's place, kept for
        the next restart.
        """
        for cohort in self._open_cohorts.cohorts_around(session, source, touched_positions):
            if not _must_repeat(cohort, pin):
                continue
            # `touch` returns whether a deadline moved
            if cohort.touch(clip(touched_positions, cohort), touched_at_ms):
                self._pin(cohort, pin)

    def settle_logged(self, verdicts: Verdicts, pin: Pin) -> None:
        """Settle, in a restart, the roots that have a verdict in a record of the verdict log.

        `pin` is the record's place. A verdict at the watermark or above it is of a root whose
        init State does not have: the transaction of both was committed in part. It is kept. When
        the init is read again, `open_run` settles the root. `first_pin_without_init` is the
        place of the first such record.
        """
        # 1. roots that were acked or absent
        for run in verdicts.done_runs():
            self._keep_without_init(run, pin)
            for cohort in self._open_cohorts.cohorts_spanning(run):
                settled_count = len(cohort.settle_between(run.start, run.end))
                self._record_settled_at(cohort, settled_count, pin)
        # 2. lost roots: one list of positions for each cause and source
        for lost in verdicts.lost:
            lost_positions = distinct(positions(lost.positions))
            positions_without_init = lost_positions[lost_positions >= self.watermark(lost.source)]
            for run in RootSet.of_positions(lost.source, positions_without_init).runs():
                self._keep_without_init(run, pin)
            # each run is of one block, so that `clip` gives indices of one cohort
            for run in block_runs(lost.source, lost_positions):
                for cohort in self._open_cohorts.cohorts_spanning(run):
                    settled_count = len(cohort.roots.settle(clip(lost_positions, cohort)))
                    self._record_settled_at(cohort, settled_count, pin)

    def forget_verdicts_ahead(self) -> None:
        """Forget the verdicts that are kept for inits: all of these were read again."""
        self._runs_without_init, self.first_pin_without_init = {}, None

    # -- what a restart needs

    def oldest_ack_pinned(self) -> RootCohort | None:
        """Return the cohort that needs the oldest contribution at a restart.

        None if none needs any. A cohort whose roots' values are in a bin of
        State needs none.
        """
        # the oldest comes first; those that need none any more are removed only here
        pinned_cohorts = self._ack_pinned
        while pinned_cohorts and not _needs_its_pin(pinned_cohorts[0]):
            pinned_cohorts.popleft()
        return pinned_cohorts[0] if pinned_cohorts else None

    def oldest_verdict_pinned(self) -> RootCohort | None:
        """Return the cohort that needs the oldest verdict, chosen as in `oldest_ack_pinned`, or None."""
        pinned = self._verdict_pinned
        while pinned and not _needs_its_pin(pinned[0].cohort):
            heapq.heappop(pinned)
        return pinned[0].cohort if pinned else None

    def mark_bin_changed(self, cohort: RootCohort) -> None:
        """Mark the bin of a changed cohort as to be written.

        A cohort without a bin needs nothing.
        """
        if cohort.bin_number is not None:
            self._changed_bins.add(cohort.bin_number)

    def take_changed_bins(self) -> set[int]:
        """Return the bins whose cohorts changed since the last call, and start a new set."""
        changed_bins, self._changed_bins = self._changed_bins, set()
        return changed_bins

    # -- private

    def _keep_without_init(self, run: SourceRun, pin: Pin) -> None:
        """Keep the part of a run with verdicts that has no init yet, and the place of the first
        such verdict.

        `pin` is the place of the record that has the verdicts.
        """
        start = max(run.start, self.watermark(run.source))
        if start < run.end:
            self._runs_without_init.setdefault(run.source, []).append(run._replace(start=start))
            if self.first_pin_without_init is None:  # verdicts are read in the order of the log
                self.first_pin_without_init = pin

    def _count_missed(
        self, source: int, missed_count: int, *, runs: Sequence[PositionRun], scattered: I64 | None
    ) -> None:
        """Count contributions or fails that met no open root of their session: as `above` or
        `late`.

        `above` are those above the watermark, to which no init came yet; `late` are all others.

        Args:
            missed_count: how many of the record's positions they are.
            runs: all runs of the record.
            scattered: its other positions; None: there are none.
        """
        if missed_count <= 0:
            return
        # 7 of 10 positions were missed, and 3 are not below the watermark: these 3 came before
        # their inits, and the roots of the other 4 had their verdict, or are of another session
        above_count = count_at_or_above(self.watermark(source), runs, scattered)
        self.counts.above += min(above_count, missed_count)
        self.counts.late += max(0, missed_count - above_count)

    def _record_lost(self, cohort: RootCohort, settled_indices: Indices, cause: LossCause) -> None:
        """Collect the verdicts of roots that were just settled as lost, and count them as settled."""
        if len(settled_indices):
            self.settled.lose(cause, cohort.emission, cohort.roots.source, cohort.start, settled_indices)
            self._record_settled(cohort, len(settled_indices))

    def _record_settled(self, cohort: RootCohort, count: int) -> None:
        """Record that `count` roots of a cohort were settled by verdicts that will be written now."""
        if count:
            self._record_settled_at(cohort, count, self.verdict_end_pin)

    def _record_settled_at(self, cohort: RootCohort, count: int, first_verdict: Pin) -> None:
        """Record that `count` roots of a cohort were settled, by verdicts at the place
        `first_verdict` or after it.

        A cohort without open roots is dropped. If roots are left open, the cohort keeps the place
        of its first verdict: a restart begins with all its roots open, and reads the verdicts
        from there. A count of 0 changes nothing.
        """
        if not count:
            return
        self.open_count -= count
        self.mark_bin_changed(cohort)
        if not cohort.roots.open_count:
            self._open_cohorts.drop(cohort)
        elif cohort.verdict_pin is None:
            cohort.verdict_pin = first_verdict
            pinned = _VerdictPinned(first_verdict.offset, cohort.serial, cohort)
            heapq.heappush(self._verdict_pinned, pinned)

    def _pin_contributed(self, cohort: RootCohort, folded_count: int, pin: Pin) -> None:
        """Record that a restart needs the record at `pin` for a cohort.

        It does if `folded_count` (how many of its contributions counted) is not 0, and an open
        root may have one of them.
        """
        if folded_count and cohort.roots.open_count and cohort.roots.has_contributions:
            self._pin(cohort, pin)

    def _pin(self, cohort: RootCohort, pin: Pin) -> None:
        """Record that a restart needs the record at `pin` for a cohort, unless it needs an earlier one."""
        self.mark_bin_changed(cohort)
        if cohort.ack_pin is None:
            cohort.ack_pin = pin
            self._ack_pinned.append(cohort)


def _needs_its_pin(cohort: RootCohort) -> bool:
    """Return whether a cohort has open roots, and no bin of State has them."""
    return bool(cohort.roots.open_count) and cohort.bin_number is None


def _must_repeat(cohort: RootCohort, pin: Pin) -> bool:
    """Return whether a restart applies the contributions of the record at `pin` to a cohort again.

    If the cohort is in a bin of State, that has its values with all contributions. And what was
    read before the cohort's init did not count.
    """
    return cohort.bin_number is None and cohort.ack_from <= pin.offset


class _VerdictPinned(NamedTuple):
    """A cohort whose first verdict a restart needs, at `offset`; no two have the same serial."""

    offset: int
    serial: int
    cohort: RootCohort


class _Deadline(NamedTuple):
    """A deadline of a cohort, by its session's clock; no two cohorts have the same serial."""

    at_ms: int
    serial: int
    cohort: RootCohort


_SETTLED_DEADLINES_KEPT: Final = 1_024
"""So many deadlines of settled cohorts a session may keep, however few open cohorts it has."""


class _SessionCohorts:
    """The cohorts of one session that have open roots, and a heap of deadlines.

    Attributes:
        cohorts: by serial, so in the order in which they were emitted.
        deadlines: the next one first; some may be of cohorts that are settled by now.
    """

    __slots__ = ("cohorts", "deadlines")

    def __init__(self) -> None:
        """Begin without a cohort."""
        self.cohorts: dict[int, RootCohort] = {}
        self.deadlines: list[_Deadline] = []

    def remove_settled_deadlines(self) -> None:
        """Remove the deadlines of settled cohorts if they are most of all, so that memory stays
        bounded.
        """
        if len(self.deadlines) > 4 * len(self.cohorts) + _SETTLED_DEADLINES_KEPT:
            self.deadlines = [deadline for deadline in self.deadlines if deadline.cohort.roots.open_count]
            heapq.heapify(self.deadlines)


class Register:
    """All cohorts of an acker partition that have open roots.

    A block is a wire block, by its number.
    """

    def __init__(self) -> None:
        """Begin without a cohort."""
        # by source, then by block; those of one block ascend and do not overlap
        self._cohorts_by_source_and_block: dict[int, dict[int, list[RootCohort]]] = {}
        self._cohorts_by_session: dict[Session, _SessionCohorts] = {}

    def add(self, cohort: RootCohort) -> None:
        """Add a cohort, behind all others of its source and of its session, with its deadline."""
        cohorts_by_block = self._cohorts_by_source_and_block.setdefault(cohort.roots.source, {})
        cohorts_by_block.setdefault(cohort.start >> WIRE_BLOCK_BITS, []).append(cohort)
        session = cohort.emission.session
        session_cohorts = self._cohorts_by_session.setdefault(session, _SessionCohorts())
        session_cohorts.cohorts[cohort.serial] = cohort
        self.add_deadline(cohort, cohort.deadline_ms)

    def drop(self, cohort: RootCohort) -> None:
        """Remove a cohort, and what was kept of its source and its session if it was their last one."""
        cohorts_by_block = self._cohorts_by_source_and_block[cohort.roots.source]
        block = cohort.start >> WIRE_BLOCK_BITS
        cohorts_by_block[block].remove(cohort)
        if not cohorts_by_block[block]:
            del cohorts_by_block[block]
        if not cohorts_by_block:
            del self._cohorts_by_source_and_block[cohort.roots.source]
        session_cohorts = self._cohorts_by_session[cohort.emission.session]
        del session_cohorts.cohorts[cohort.serial]
        session_cohorts.remove_settled_deadlines()
        if not session_cohorts.cohorts:
            del self._cohorts_by_session[cohort.emission.session]

    def count(self) -> int:
        """Return how many cohorts there are."""
        all_session_cohorts = self._cohorts_by_session.values()
        return sum(len(session_cohorts.cohorts) for session_cohorts in all_session_cohorts)

    def all_cohorts(self) -> list[RootCohort]:
        """Return all cohorts, in the order in which they were emitted."""
        cohorts: list[RootCohort] = []
        for session_cohorts in self._cohorts_by_session.values():
            cohorts += session_cohorts.cohorts.values()
        return sorted(cohorts, key=lambda cohort: cohort.serial)

    def sessions(self, group: str) -> list[Session]:
        """Return the sessions of a group that have cohorts, ascending."""
        return sorted(session for session in self._cohorts_by_session if session.group == group)

    def cohorts_of(self, session: Session) -> list[RootCohort]:
        """Return the cohorts of a session, in the order in which they were emitted."""
        session_cohorts = self._cohorts_by_session.get(session)
        return list(session_cohorts.cohorts.values()) if session_cohorts else []

    def cohorts_within(self, session: Session, source: int, start: int, end: int) -> Iterable[RootCohort]:
        """Return the cohorts of a session that overlap the positions [start, end), which lie in
        one block.
        """
        cohorts_of_block = self._cohorts_by_source_and_block.get(source, {}).get(start >> WIRE_BLOCK_BITS)
        if not cohorts_of_block or start >= end:
            return ()
        # mostly a block has one cohort
        if len(cohorts_of_block) == 1:
            cohort = cohorts_of_block[0]
            does_overlap = cohort.start < end and cohort.end > start
            return (cohort,) if does_overlap and cohort.emission.session == session else ()
        # Cohorts of a block ascend and do not overlap. So all begin in [start, end), but the one
        # before them, which may reach into it.
        first_index = max(0, bisect_right(cohorts_of_block, start, key=_start_of) - 1)
        end_index = bisect_right(cohorts_of_block, end - 1, key=_start_of)
        return [
            cohort
            for cohort in cohorts_of_block[first_index:end_index]
            if cohort.end > start and cohort.emission.session == session
        ]

    def cohorts_around(self, session: Session, source: int, some_positions: I64) -> Iterable[RootCohort]:
        """Return the cohorts of a session that overlap the run from the first to the last of some
        positions.

        The positions ascend, and lie in one block.
        """
        if not len(some_positions):
            return ()
        first_position, last_position = int(some_positions[0]), int(some_positions[-1])
        return self.cohorts_within(session, source, first_position, last_position + 1)

    def cohorts_spanning(self, run: SourceRun) -> Iterator[RootCohort]:
        """Yield the cohorts of any session that overlap a run of any length."""
        cohorts_by_block = self._cohorts_by_source_and_block.get(run.source, {})
        first_block, last_block = run.start >> WIRE_BLOCK_BITS, (run.end - 1) >> WIRE_BLOCK_BITS
        blocks: Iterable[int] = range(first_block, last_block + 1)
        # A run of a verdict may span millions of blocks: then only those few are
        # looked through that have cohorts.
        if last_block - first_block >= len(cohorts_by_block):
            blocks = [block for block in cohorts_by_block if first_block <= block <= last_block]
        for block in blocks:
            # a copy: the caller may drop the cohort
            for cohort in list(cohorts_by_block.get(block, ())):
                if cohort.start < run.end and cohort.end > run.start:
                    yield cohort

    def add_deadline(self, cohort: RootCohort, deadline_ms: int) -> None:
        """Add a deadline, at which `pop_due` returns the cohort; `NEVER` adds none."""
        if deadline_ms != NEVER:
            session_cohorts = self._cohorts_by_session[cohort.emission.session]
            heapq.heappush(session_cohorts.deadlines, _Deadline(deadline_ms, cohort.serial, cohort))

    def pop_due(self, session: Session, clock_ms: int) -> Iterator[RootCohort]:
        """Remove the deadlines that the clock has reached; yield their cohorts with open roots.

        A cohort comes once for each `add_deadline`.
        """
        session_cohorts = self._cohorts_by_session.get(session)
        if session_cohorts is None:
            return
        # the attribute is read anew each time: who gets a cohort may drop it, which may replace
        # the list
        while session_cohorts.deadlines and session_cohorts.deadlines[0].at_ms <= clock_ms:
            cohort = heapq.heappop(session_cohorts.deadlines).cohort
            if cohort.roots.open_count:
                yield cohort


def _start_of(cohort: RootCohort) -> int:
    """Return the first position of a cohort, by which `bisect_right` searches."""
    return cohort.start


def block_runs(source: int, some_positions: I64) -> Iterator[SourceRun]:
    """Yield for each block the run from the first to the last of those of some ascending
    positions in it.
    """
    # the rows at which another block begins: 1 for the blocks 0, 1, 1
    block_starts = np.flatnonzero(np.diff(some_positions >> WIRE_BLOCK_BITS)) + 1
    for positions_of_block in np.split(some_positions, block_starts):
        if len(positions_of_block):  # without any position there is one empty part
            yield SourceRun(source, int(positions_of_block[0]), int(positions_of_block[-1]) + 1)
