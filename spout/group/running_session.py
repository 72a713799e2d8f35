"""The state of a running session: its clock, and which positions are free, pending, or not journalled yet.

A position is *free* if it was never initialised, so that it can still be planned. A source's
*cursor* has its free positions: all from `next` on, and gaps before it. Its *mark* in the journal
has what batches have emitted of it. The *window* has what is pending.

A *sibling* is the process before of the same session; for some seconds after a restart both may be
alive. A *question* is a `Take` that only asks for the session's clock.

Pure: the planner does the reading and writing.

Source: docs/design/protocol.md, sections 3 and 5.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from acker.identity import generation_of
from acker.ledger import sessions
from acker.root_sets.position_set import PositionSet
from acker.root_sets.root_set import RootSet
from acker.waits import PassedTime
from acker.wire.events import PositionRun, SourceRun, Taken, Verdicts, positions
from acker.wire.verdict import Verdict
from spout.group.announce import REPEAT_MS
from spout.group.opening import Opened
from spout.planning.intake import SourceCursor, cursor_of
from spout.planning.journal import Journal, SourceMark
from spout.planning.session import QUESTION_SUFFIX, STEP_MS_MAX, Answers, SessionClock, SessionName
from spout.planning.window import Window

SIBLING_MS: Final = sessions.SIBLING_MS
"""The process before may be alive for so long after a restart."""


class Sibling:
    """The process before, of the same session: for some seconds after a restart it may still be alive.

    Each of the two processes has a clock and does not receive the other's. The next restart goes on
    from the higher clock, and what was emitted by the lower one would suddenly be older by the
    difference. So while the sibling may be alive, this process's clock moves even if it has no root
    pending, and is sent to all acker partitions; and roots that it emits get a longer timeout
    (`grace_ms`). When the sibling is gone for certain, this process asks the acker partitions for
    its last clock.

    Source: docs/design/protocol.md, rule 8.
    """

    def __init__(
        self, group: str, name: SessionName, partitions: int, clock: SessionClock, now_ms: int
    ) -> None:
        """Begin at a restart.

        Args:
            group: the session's group.
            name: the session, which both processes have.
            partitions: how many acker partitions there are.
            clock: this process's; it goes on from the sibling's when all partitions have answered.
            now_ms: wall time.
        """
        # an epoch of 0 asks and takes nothing, under an id of its own
        self.question = SessionName(0, name.id + QUESTION_SUFFIX)
        self._clock = clock
        self._clock_at_restart = clock.now
        # since the restart, by a clock that is never set: one that is set ahead ends no process
        self._passed = PassedTime(now_ms)
        # How far the sibling's clock may have come. It may have gone on while this process did not
        # look, so a step counts up to SIBLING_MS: if it stood still instead, the grace is only longer
        # than it must be.
        self._sibling_passed = PassedTime(now_ms, between_ms_max=SIBLING_MS)
        self._question_sent_ms: int | None = None  # by `_passed`; None: it was not sent yet
        self._answers = Answers(group, self.question.id, partitions, ())

    def grace_ms(self, now_ms: int) -> int:
        """Return how much longer the timeout of a root is that is emitted now, ms.

        At the restart the sibling's clock may have been a step ahead of the last tick, and have
        moved since by what this process's clock is behind wall time.
        """
        sibling_moved_ms = self._sibling_passed.read(now_ms)
        moved_ms = self._clock.now - self._clock_at_restart
        behind_ms = max(0, sibling_moved_ms - moved_ms)
        return STEP_MS_MAX + min(SIBLING_MS, behind_ms)

    def start_question(self, now_ms: int) -> list[int]:
        """Return the acker partitions to which the question has to be sent now, and count it as sent.

        These are all that have not answered. None before the sibling is gone for certain, nor again
        before `REPEAT_MS` have passed.
        """
        passed_ms = self._passed.read(now_ms)
        if passed_ms < SIBLING_MS:
            return []
        if self._question_sent_ms is not None and passed_ms - self._question_sent_ms < REPEAT_MS:
            return []
        self._question_sent_ms = passed_ms
        return self._answers.missing

    def read(self, partition: int, taken: Taken) -> bool:
        """Record an answer to the question; return whether all partitions have answered.

        Then this process's clock goes on from the sibling's, if that is higher.
        """
        if self._question_sent_ms is not None:
            self._answers.add_part(partition, taken)
        if self._answers.missing:
            return False
        self._clock.lift(self._answers.highest_clock)
        return True


class RunningSession:
    """The state of one session in one process: its clock, what is free, and what is pending.

    Attributes:
        cursors: by source, its free positions.
        window: what is pending.
        clock: the session's.
        unjournalled: what a former process initialised, and no batch of the journal has.
        sibling: the process before; None: there is none, or it is certain that it is gone.
    """

    def __init__(
        self, name: SessionName, clock: SessionClock, cursors: Mapping[int, SourceCursor], partitions: int
    ) -> None:
        """Begin with nothing emitted and nothing pending.

        Args:
            name: of an untracked query ``(0, "")``.
            clock: the session's.
            cursors: by source, the positions that were never initialised.
            partitions: how many acker partitions there are.
        """
        self.name = name
        self.clock = clock
        self.cursors: dict[int, SourceCursor] = {}
        self.window = Window()
        self.unjournalled: list[SourceRun] = []
        self.sibling: Sibling | None = None
        self._clock_stands = False  # see `stop_clock`
        self._pending_count_by_partition = Counter[int]()  # by acker partition
        self._acker_count = partitions  # how many acker partitions there are
        for source, cursor in cursors.items():
            self.add_source(source, cursor)

    def add_source(self, source: int, cursor: SourceCursor) -> None:
        """Add a source, or begin a new generation of one; its free positions are planned from now on."""
        self.cursors[source] = cursor
        self.window.open_source(source, cursor.next)

    @property
    def is_idle(self) -> bool:
        """Whether no root is pending."""
        return not self.window.pending

    def restore(self, runs: Sequence[SourceRun], journal: Journal, now_ms: int) -> None:
        """Make the roots pending that an earlier process left pending.

        Those that the journal does not have as emitted become `unjournalled`.
        """
        self.window.restore(runs, now_ms)
        self._count_pending(runs)
        not_journalled = {source: mark.not_emitted() for source, mark in journal.sources.items()}
        # a source that the journal does not have has emitted nothing
        not_of_journal = SourceMark(from_=0, next=0).not_emitted()
        for source, start, end in runs:
            parts = not_journalled.get(source, not_of_journal).within(start, end)
            self.unjournalled += [SourceRun(source, *part) for part in parts]

    def settled_not_journalled(self, journal: Journal) -> RootSet:
        """Return the settled roots that the journal does not have as emitted.

        Of a restart these are a few at most: what timed out, or left the log, before Spark
        journalled it. A source that the journal does not have may have been read by another
        session; it is passed over.
        """
        not_journalled: list[SourceRun] = []
        uninitialised: list[SourceRun] = []
        for source, mark in journal.sources.items():
            cursor = self.cursors.get(source)
            # not read any more, or rewound since: its positions are of another generation
            if cursor is None or generation_of(mark.from_) != generation_of(cursor.from_):
                continue
            not_emitted = mark.not_emitted().within(mark.from_, cursor.next)
            not_journalled += [SourceRun(source, *run) for run in not_emitted]
            gaps = cursor.uninitialised_runs(cursor.next)
            uninitialised += [SourceRun(source, *run) for run in gaps]
        # Below the end of what was initialised, `next`, a position is in a gap, pending or settled:
        # of 0 to 9 with a gap at 3 and 7 pending, all but 3 and 7 are settled.
        unsettled = RootSet.of_runs(uninitialised) | self.window.pending_roots()
        return RootSet.of_runs(not_journalled) - unsettled

    def stop_clock(self, now_ms: int) -> None:
        """Move the clock once more, and stop it until `start_clock`.

        For a query that writes exactly once: until the store has a batch, none of the batch's roots
        may time out, and by a clock that stands none does.
        """
        self.advance_clock(now_ms)
        self._clock_stands = True

    def start_clock(self) -> None:
        """Go on with the clock from where it stands."""
        self._clock_stands = False

    def advance_clock(self, now_ms: int) -> int:
        """Move the session's clock on by this machine's, and return it, ms.

        It stands while no root is pending here, unless the sibling may live; and after
        `stop_clock`.
        """
        nobody_needs_it = self.is_idle and self.sibling is None
        clock_ms = self.clock.advance(now_ms, idle=nobody_needs_it or self._clock_stands)
        if nobody_needs_it:
            # A clock may go at most a second beyond what was sent of it. While it stands nothing is
            # sent, so it counts as sent: then the first tick behind the next Init adds at most a
            # second to it.
            self.clock.record_sent()
        return clock_ms

    def grace_ms(self, now_ms: int) -> int:
        """Return how much longer, ms, the timeout of a root is that is emitted now; see `Sibling`."""
        return 0 if self.sibling is None else self.sibling.grace_ms(now_ms)

    def read(self, partition: int, taken: Taken) -> None:
        """Record an answer to the sibling's question; with the last one the sibling is gone."""
        if self.sibling is not None and self.sibling.read(partition, taken):
            self.sibling = None

    def take_unjournalled(self) -> list[SourceRun]:
        """Take out of `unjournalled` all that it has, and return what of it is still pending.

        The caller plans it now.
        """
        unjournalled, self.unjournalled = self.unjournalled, []
        pending: list[SourceRun] = []
        for source, start, end in unjournalled:
            # parts of it may have been settled since
            parts = self.window.pending_within(source, start, end)
            pending += [SourceRun(source, *part) for part in parts]
        return pending

    def marks(self) -> dict[int, SourceMark]:
        """Return by source what batches have emitted of it, for the journal.

        What `unjournalled` still has is initialised, and no batch has emitted it: it is a gap.
        """
        mark_by_source = {source: cursor.mark() for source, cursor in self.cursors.items()}
        for source, start, end in self.unjournalled:
            mark = mark_by_source[source]
            gaps = PositionSet(mark.gaps)
            gaps.add(start, end)
            mark_by_source[source] = mark._replace(gaps=tuple(gaps))
        return mark_by_source

    def record_emitted(self, runs: Sequence[SourceRun], now_ms: int, empty: Sequence[SourceRun] = ()) -> None:
        """Record runs as emitted: no longer free, and pending; where nothing is tracked, settled at once.

        `empty` are positions that hold no record: those of `runs`, and others that are pending
        already.
        """
        for source, start, end in runs:
            self.cursors[source].mark_initialised(start, end)
        self.window.emit(runs, now_ms, empty)
        is_tracked = bool(self.name.id)
        if is_tracked:
            self._count_pending(runs)
        else:
            for source, start, end in runs:
                self.window.settle(source, (PositionRun(start, end),), Verdict.ACKED)

    def settle(self, partition: int, verdicts: Verdicts) -> int:
        """Settle what an acker partition decided; return how many of these roots were pending."""
        settled_count = 0
        for verdict, runs in verdicts.done():  # ACKED and ABSENT
            runs_by_source: dict[int, list[PositionRun]] = {}
            for source, start, end in sorted(runs):
                runs_by_source.setdefault(source, []).append(PositionRun(start, end))
            for source, source_runs in runs_by_source.items():
                settled_count += self._settle_source(source, source_runs, verdict)
        for lost in verdicts.lost:
            lost_runs = list(PositionSet.of_positions(positions(lost.positions)))
            settled_count += self._settle_source(lost.source, lost_runs, verdict=lost.reason)
        self._pending_count_by_partition[partition] -= settled_count
        return settled_count

    def ticked_partitions(self) -> list[int]:
        """Return the acker partitions that should get the clock: those that have pending roots.

        While the process before may be alive, these are all partitions: it may have roots in any.
        """
        if self.sibling is not None:
            return list(range(self._acker_count))
        counts = self._pending_count_by_partition
        return sorted(partition for partition, count in counts.items() if count > 0)

    def committable(self) -> dict[int, int]:
        """Return by source the position below which everything is settled: what may be committed.

        With 5 pending, and a gap from 3 on, which was never emitted, that is 3.
        """
        settled_below: dict[int, int] = {}
        for source, cursor in self.cursors.items():
            first_unsettled = self.window.committable(source)
            if first_unsettled is None:  # nothing was emitted yet
                settled_below[source] = cursor.first_uninitialised
            else:
                # a gap stops the commit as a pending root does
                settled_below[source] = min(first_unsettled, cursor.first_uninitialised)
        return settled_below

    def _settle_source(self, source: int, runs: Sequence[PositionRun], verdict: Verdict) -> int:
        """Settle runs of a source, ascending; return how many roots of them were pending."""
        cursor = self.cursors.get(source)
        if cursor is None or not runs:  # None: this process does not read the source
            return 0
        settled_count = self.window.settle(source, runs, verdict)
        # behind the lowest free one a settled position may be free here: the sibling emitted it
        if runs[-1].end > cursor.first_uninitialised:
            self._mark_settled_as_initialised(source, cursor, runs)
        return settled_count

    def _mark_settled_as_initialised(
        self, source: int, cursor: SourceCursor, runs: Iterable[PositionRun]
    ) -> None:
        """Make settled positions no longer free, so that none of them is planned.

        The sibling may have initialised them after the ackers had answered the `Take` of this
        process. Their verdict will not come a second time, so if they were emitted here, they would
        be pending for ever.
        """
        for start, end in runs:
            # a verdict of a former generation says nothing of this one
            if generation_of(start) != generation_of(cursor.from_):
                continue
            for free in cursor.uninitialised_runs(end):
                if free.end > start:
                    cursor.mark_initialised(max(start, free.start), free.end)
        self.window.open_source(source, cursor.next)

    def _count_pending(self, runs: Iterable[SourceRun]) -> None:
        """Add roots that are pending now to the counts of the acker partitions that own them."""
        for owner, roots in RootSet.of_runs(runs).by_acker_partition(self._acker_count).items():
            self._pending_count_by_partition[owner] += len(roots)


def running_session_of(
    opened: Opened, journal: Journal, group: str, partitions: int, now_ms: int
) -> RunningSession:
    """Return the state of a session that the ackers accepted, as it is when the session begins.

    Args:
        opened: what the acker partitions answered.
        journal: the checkpoint's last offset.
        group: the session's group.
        partitions: how many acker partitions there are.
        now_ms: wall time.
    """
    cursors = {
        source: cursor_of(source, history.from_, history.watermarks, partitions)
        for source, history in opened.histories.items()
    }
    clock = SessionClock(opened.clock_ms, now_ms)
    clock.record_sent()  # the acker partitions have this value already
    session = RunningSession(opened.name, clock, cursors, partitions)
    if opened.is_restart:
        # the session goes on: the process before may still live, and what it left pending is pending here
        session.sibling = Sibling(group, opened.name, partitions, clock, now_ms)
        open_runs = [run for run in opened.answers.pending_runs if run.source in cursors]
        session.restore(open_runs, journal, now_ms)
    return session
