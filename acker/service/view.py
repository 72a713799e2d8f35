"""Reads from outside which roots of an acker partition were emitted, and which are open; writes nothing.

The acker has this in memory, but State and the verdict log contain it too:
State has the ranges with open roots at the time when it was written, the
verdicts since then show which of these roots are settled. No contribution is
read, so a view does not contain what the open roots miss.

A view is as old as the State that it comes from. While anything happens, an
acker writes State at least every second (`AckerLimits.put_off_ms`); while
nothing happens, it writes none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from acker.config.limits import AckerLimits
from acker.config.settings import AckTopics
from acker.errors import Disagreement, OutOfRange
from acker.hot_paths import Indices
from acker.kafka.port import Log, TopicPartition
from acker.ledger.cohort import NEVER, Pin, RootCohort, Session
from acker.ledger.sessions import SourceGeneration
from acker.root_sets.root_set import RootSet
from acker.service.core import PartitionCore
from acker.service.passed_over import read_ack_topic
from acker.service.snapshot import load_deadlines, load_state
from acker.service.state import (
    EMPTY_SIZE,
    StateSize,
    damaged_state_as_disagreement,
    encode_state,
    read_last_state,
    state_codec,
)
from acker.service.state_notes import LastRestore, StateNotes
from acker.wire.checks import read_verdicts
from acker.wire.codec import wire_codec
from acker.wire.events import SourceRun, Verdicts, positions
from acker.writer_clocks import UNKNOWN_TIME, WriterTime

RUNS_MAX: Final = 10_000
"""So many runs of settled positions are kept of an acker partition; if there
are more, the next view reads them anew."""

NO_STATE: Final = "acker partition {} has no State yet: start an acker and a query, whichever does not run"
"""Why what an acker partition has is unknown, where it has no view."""

_TRIES: Final = 3
"""How often we read at most, where an acker shortens its logs meanwhile."""


@dataclass(frozen=True, slots=True)
class OpenRange:
    """Open roots that were emitted together.

    Attributes:
        source: a number; `group`, `session` and `epoch` are those of the session that
            emitted them.
        at: indices of the open roots, ascending; index i is the position
            ``start + i``.
        emitted_ms: wall time of the emission.
        ack_from: offset of ``_ack_ack`` from which on there may be
            contributions to them.
        carried: whether State carries them by value; then their contributions
            may no longer be in the log.
        left_ms: time until the first of them times out, by their session's
            clock; None: never.
        deadline_ms: wall time at which it does, if that clock goes on; None:
            never.
        in_state: whether the deadline of all of them was moved: mostly,
            Spark's state holds them, so that they time out later than others.
    """

    source: int
    start: int
    at: Indices
    group: str
    session: str
    epoch: int
    emitted_ms: int
    ack_from: int
    carried: bool
    left_ms: int | None
    deadline_ms: int | None
    in_state: bool = False

    @property
    def first(self) -> int:
        """Position of the first open root."""
        return self.start + int(self.at[0])


class AckerView:
    """One acker partition as of `at_ms`, the time at which its State was written.

    Attributes:
        at_ms: wall time of its State's record, by the acker's clock or the
            broker's.
        written: when State was written, by its acker's clock, and by the
            broker's.
        restored: None if State does not say it: an acker wrote it in the step
            of its restore, or an earlier version did.
        too_late: what came too late for a watermark, by group.
        size: of its State.
        is_behind: whether there are later inits, ticks or takes.
        next_init: offset of ``_ack_init`` up to which the view contains the
            inits; `init_next` of its core.
        next_ack: offset of ``_ack_ack`` up to which its State contains the
            contributions; `ack_next` of its core.
    """

    def __init__(
        self,
        core: PartitionCore,
        at_ms: int,
        notes: StateNotes,
        *,
        is_behind: bool,
        written: WriterTime = UNKNOWN_TIME,
        size: StateSize = EMPTY_SIZE,
    ) -> None:
        """Take over what a view shows of a `core` that was restored from State.

        `at_ms` is the wall time of State's record; `notes` has its headers.

        Args:
            is_behind: whether there are later records in ``_ack_init``.
            written: when State was written, by two clocks.
            size: the size of its State.
        """
        self.size = size
        self.partition = core.partition
        self.at_ms = at_ms
        self.written = written
        self.restored: LastRestore | None = notes.restored  # None: State has no time of a restore
        self.too_late = notes.too_late  # by group: counts of what came too late for a watermark
        self.is_behind = is_behind
        # offsets: where ``_ack_init`` and ``_ack_ack`` are read on
        self.next_init = core.init_next
        self.next_ack = core.ack_next
        self._core = core

    def owner(self, group: str) -> Session | None:
        """Return the session that owns a group; None: none ever took it."""
        owned_group = self._core.sessions.groups.get(group)
        return None if owned_group is None else owned_group.owner

    def sources(self) -> dict[int, SourceGeneration]:
        """Return every source that a session ever announced, by number, in its present generation."""
        return dict(self._core.sessions.sources)

    def watermark(self, source: int) -> int:
        """Return the first position of a source that was never emitted here."""
        return self._core.ledger.watermark(source)

    def open_ranges(self) -> Iterator[OpenRange]:
        """Return the ranges with open roots, in the order in which they were emitted."""
        return map(self._open_range, self._core.ledger.cohorts())

    def find(self, source: int, position: int) -> OpenRange | None:
        """Return the range in which a root is open; None when it is not open."""
        for open_range in self.open_ranges():
            index = position - open_range.start
            # `at`: the indices of its open roots
            if open_range.source == source and index in open_range.at:
                return open_range
        return None

    def _open_range(self, cohort: RootCohort) -> OpenRange:
        """Return the open roots of a cohort, with the time that is left to them as of the view."""
        emission = cohort.emission
        session = emission.session
        left_ms = None  # it never expires
        deadline_ms = None
        expires_ms = cohort.first_deadline_ms()  # by the session's clock
        if expires_ms != NEVER:
            left_ms = max(0, expires_ms - self._core.sessions.clock(session).read_ms)
            deadline_ms = self.at_ms + left_ms
        return OpenRange(
            source=cohort.roots.source,
            start=cohort.start,
            at=cohort.roots.open_at(),
            group=session.group,
            session=session.id,
            epoch=session.epoch,
            emitted_ms=emission.wall_ms,
            ack_from=cohort.ack_from,
            carried=cohort.bin_number is not None,
            left_ms=left_ms,
            deadline_ms=deadline_ms,
            in_state=cohort.is_moved,
        )


class _SettledRuns:
    """The positions of one acker partition that have a verdict in a part of the log, as runs.

    The part begins at offset `start`, and ends before `next_offset`.
    """

    def __init__(self, start: int) -> None:
        self.start = start
        self.next_offset = start  # offset of the next verdict to add
        self.runs: list[SourceRun] = []
        self._last_run_indices: dict[int, int] = {}  # by source: the index in `runs`

    def can_go_on(self, start: int, end: int) -> bool:
        """Return whether the runs can be completed to the verdicts in the offsets [`start`, `end`).

        Then only those in [`next_offset`, `end`) are missing. If not, the log was
        cut or begins anew, or the runs are too many to be kept, and all are read
        anew.
        """
        return self.start <= start <= self.next_offset <= end and len(self.runs) <= RUNS_MAX

    def add_verdicts(self, verdicts: Verdicts) -> None:
        """Add the positions of a record of the verdict log."""
        for run in verdicts.done_runs():
            self._add_run(run)
        for lost in verdicts.lost:
            for run in RootSet.of_positions(lost.source, positions(lost.positions)).runs():
                self._add_run(run)

    def _add_run(self, run: SourceRun) -> None:
        """Add a run of settled positions.

        If it begins where the last run of its source ends, join them.
        """
        index = self._last_run_indices.get(run.source)
        if index is not None and self.runs[index].end == run.start:
            self.runs[index] = self.runs[index]._replace(end=run.end)
        else:
            self._last_run_indices[run.source] = len(self.runs)
            self.runs.append(run)


@dataclass(frozen=True, slots=True)
class ViewReader:
    """Reads views of acker partitions from a cluster; what one view has read, the next one need not read."""

    log: Log
    topics: AckTopics
    partitions: int
    limits: AckerLimits
    # by acker partition, what the views so far have read of its verdicts
    _settled_runs: dict[int, _SettledRuns] = field(default_factory=dict, repr=False, compare=False)

    def view(self, partition: int) -> AckerView | None:
        """Read State and the verdicts behind it, and return what an acker partition has.

        None: it has no State. The first view reads the verdicts since the oldest
        open root, at most about `AckerLimits.refold_bytes`, and a later one those
        since the view before.

        Raises:
            Disagreement: its State was written with another N, or cannot be read.
            OutOfRange: the logs were shortened during each of several tries.
        """
        for _ in range(_TRIES - 1):
            with suppress(OutOfRange):  # an acker shortened a log while it was read: read it again
                return self._read_view(partition)
        return self._read_view(partition)  # the last time the error is raised

    def _read_view(self, partition: int) -> AckerView | None:
        """Read a view once; None without a State. Raises what `view` raises.

        It raises `OutOfRange` if the logs were shortened meanwhile.
        """
        place = TopicPartition(self.topics.state, partition)
        core = PartitionCore(partition, self.partitions, self.limits, wire_codec())
        with damaged_state_as_disagreement(place):
            last_state = read_last_state(self.log, place, state_codec(), wait_ms=self.limits.operation_ms)
            if last_state is None:
                return None
            state = last_state.state
            if state.partitions != self.partitions:
                raise Disagreement(
                    f"State of acker partition {state.partition} was written with acker.partitions:"
                    f" {state.partitions}, topics.yaml says {self.partitions}; give the topics.yaml of"
                    " the ackers"
                )
            load_state(core, state, last_state.bins)
            load_deadlines(core, last_state.notes.deadlines_ms)
        first_verdict_offset = state.verdict
        if first_verdict_offset >= 0:  # else no open range needs one
            self._settle_logged_roots(core, first_verdict_offset)
        init_place = TopicPartition(self.topics.init, partition)
        is_behind = self.log.ends([init_place])[init_place] > core.init_next
        return AckerView(
            core,
            at_ms=last_state.at_ms,
            notes=last_state.notes,
            is_behind=is_behind,
            written=last_state.written,
            size=encode_state(state_codec(), state).size,
        )

    def _settle_logged_roots(self, core: PartitionCore, first_verdict_offset: int) -> None:
        """Settle the roots that have a verdict at an offset or later, as a restart does.

        Verdicts that a view before this one has read are kept, and not read again.
        """
        place = TopicPartition(self.topics.verdict, core.partition)
        end = self.log.stable_ends([place])[place]
        wait_ms = self.limits.operation_ms
        # Taken out here, and put back at the end: verdicts that were read in
        # part before an error are not used again.
        settled_runs = self._settled_runs.pop(core.partition, None)
        # no view before this one, or its part of the log does not fit: read all from the first
        # verdict on
        if settled_runs is None or not settled_runs.can_go_on(first_verdict_offset, end):
            settled_runs = _SettledRuns(first_verdict_offset)
        for record in read_ack_topic(
            self.log, place, settled_runs.next_offset, end, committed=True, wait_ms=wait_ms
        ):
            # None: the record is an answer to a take, or cannot be read
            verdicts = read_verdicts(record.value)
            if verdicts is not None:
                settled_runs.add_verdicts(verdicts)
        settled_runs.next_offset = end
        self._settled_runs[core.partition] = settled_runs
        # All as acked: a view only needs that they are settled. A pin is what a restart needs,
        # and of a view none is used.
        settled_verdicts = Verdicts(acked=tuple(settled_runs.runs), absent=(), lost=())
        core.ledger.settle_logged(settled_verdicts, Pin(first_verdict_offset, bytes=0))
