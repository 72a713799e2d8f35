"""The planning process of a spout: takes its group, plans batches, settles, ticks and commits.

1. `open` with what the checkpoint holds; `step` until `is_ready`: the acker partitions have answered.
2. `plan` once for each micro-batch (``spout.planner.batches``).
3. `step` all the while: verdicts settle the window, ticks move the clock where roots are open, the prefix
   of what is settled is committed.

Single-threaded; time is an argument. `poll` alone may run beside the other calls.

Source: docs/design/protocol.md, sections 3, 4 and 5.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from acker.config.settings import longest_unreachable_ms
from acker.errors import UsageError
from acker.identity import position_at
from acker.kafka.port import Log, Record
from acker.wire.events import Verdicts
from spout.group.announce import Announcer
from spout.group.ground import Ground, Heard, Reach, Report
from spout.group.opening import Opening
from spout.group.presence import Who
from spout.group.sources import PlannerSpec, SourceSpec, sources_of
from spout.group.starting import check_journal, starting_offsets
from spout.group.tenure import Tenure, tenure_of
from spout.planner.batches import Batches
from spout.planner.held_group import HeldGroup
from spout.planner.mailbox import PlannerStatus
from spout.planner.order_watch import OrderWatch
from spout.planner.verdict_reader import VerdictReader
from spout.planning.cursor import SourceCursor
from spout.planning.journal import BEGINNING, Journal
from spout.planning.session import SessionClock, SessionName


def _nobody(_event: str, _fields: Mapping[str, object]) -> None:
    """Drop an event."""


def _unheard(_verdicts: Verdicts) -> None:
    """Drop verdicts: the window has settled them."""


class Planner:
    """The service of one planning process."""

    def __init__(
        self, log: Log, spec: PlannerSpec, *, new_id: str, report: Report | None = None,
        reach: Reach | None = None, heard: Heard = _unheard, who: Who | None = None,
    ) -> None:  # fmt: skip
        """Prepare; nothing is read or written before `open`.

        Args:
            log: the cluster; the planner does not close it.
            spec: what was asked for.
            new_id: never used before: id of the session that this process may draw, and of its lane.
            report: called with what a person may want to know; None: nobody is.
            reach: which records may be planned; None: what the broker has.
            heard: called with what the ackers decided, in `step`.
            who: runs the session, as others are to read it; None: it gives no name.

        Raises:
            UsageError: inputs of several groups, or tracked and untracked ones together.
        """
        if len({found.group for found in spec.inputs}) != 1:
            raise UsageError("one read_stream reads inputs of one group; read the others in another query")
        if spec.tracked and len({found.tracked for found in spec.inputs}) != 1:
            raise UsageError(
                "inputs with and without `ackers: 0` cannot share a read_stream; read them apart"
            )
        self._log = log
        self._spec = spec
        self._new_id = new_id
        self._report = report or _nobody
        self._reach: Reach = log if reach is None else reach
        self._heard = heard
        self._who = who
        if not spec.tracked and (ordered := [found.name for found in spec.inputs if found.ordered]):
            raise UsageError(
                f"input {ordered[0]} has an ordering, which needs tracking: without it nothing waits for its"
                " replay; read it without tracked=False, or set ordering: none"
            )
        self._is_tracked = spec.tracked and spec.inputs[0].tracked
        self._journal = BEGINNING
        self._specs: dict[int, SourceSpec] = {}
        self._targets: dict[int, int] = {}
        self._verdicts: VerdictReader | None = None
        self._announcer: Announcer | None = None
        self._opening: Opening | None = None
        self._running: HeldGroup | None = None
        self._is_closed = False

    @property
    def is_open(self) -> bool:
        """Whether `open` was called."""
        return bool(self._specs)

    @property
    def is_ready(self) -> bool:
        """Whether the group is taken, so that `plan` may be called."""
        return self._running is not None

    @property
    def is_reading(self) -> bool:
        """Whether `poll` waits for records; without tracking there are none."""
        return self._verdicts is not None

    def open(self, journal: Journal, now_ms: int) -> None:
        """Begin to take the group.

        Args:
            journal: the last offset in the checkpoint, `BEGINNING` when there is none.
            now_ms: wall time.

        Raises:
            TopicError: a topic is missing.
            Disagreement: the broker's N is not ours, somebody moved the group's offsets, or a topic was
                re-created.
        """
        self._journal = journal
        self._specs = sources_of(self._log, self._spec.inputs, tracked=self._is_tracked)
        if not self._spec.take_over:  # a session that takes over names the generation that a reset began
            check_journal(self._specs.values(), journal, tracked=self._is_tracked)
        if not self._is_tracked:
            self._run(self._untracked(now_ms), now_ms)
            return
        self._verdicts = VerdictReader(self._log, self._spec.topics, self._spec.partitions, self._report)
        self._announcer = Announcer(
            self._log, self._spec.topics, self._spec.group, self._spec.partitions, self._who,
            durable_ms=longest_unreachable_ms(self._spec.inputs),
        )  # fmt: skip
        self._opening = Opening(self._ground(), self._announcer, journal, self._new_id, now_ms)

    def stop_at_ends(self) -> None:
        """Read the inputs up to their ends as they are now, and no further; replays go on.

        Call it before `open`.
        """
        specs = sources_of(self._log, self._spec.inputs, tracked=False)
        ends = self._log.stable_ends([spec.place for spec in specs.values()])
        self._targets = {source: ends[spec.place] for source, spec in specs.items()}

    def poll(self, wait_ms: int) -> Sequence[Record]:
        """Return what came in on `_ack_verdict`, for `step`; wait at most `wait_ms` for the first record."""
        return self._verdicts.poll(wait_ms) if self._verdicts is not None else ()

    def step(self, records: Sequence[Record], now_ms: int) -> bool:
        """Go on: read answers and verdicts, tick, commit. Call it at least every 100 ms.

        Args:
            records: what `poll` returned.
            now_ms: wall time.

        Returns:
            Whether anything was read.

        Raises:
            SessionError: another session holds the group.
            Unreachable: ackers or broker do not answer.
            Disagreement: the ackers know another N, topic or committed offset than we do.
        """
        if self._verdicts is not None:
            self._verdicts.step(now_ms)
        for record in records:
            self._read(record, now_ms)
        if self._opening is not None:
            self._opening.step(now_ms)
            self._take_up(self._opening, now_ms)
        if self._running is not None:
            self._running.step(now_ms)
        return bool(records)

    def plan(self, start: Journal, limit: int | None, now_ms: int, tasks: int | None = None) -> Journal:
        """Plan a batch as `Batches.plan` does; only when `is_ready`."""
        return self._require().batches.plan(start, limit, now_ms, tasks)

    def together(self) -> AbstractContextManager[None]:
        """Plan several batches, each of other sources, with one wait; see `Announcer.together`."""
        return nullcontext() if self._announcer is None else self._announcer.together()

    def free(self) -> dict[int, int]:
        """Return the first position of each source that was never initialised; only when `is_ready`."""
        return self._require().free()

    @property
    def sources(self) -> Mapping[int, SourceSpec]:
        """The sources that are read, new partitions among them once they are found."""
        return self._specs

    def is_drained(self) -> bool:
        """Tell whether nothing is pending, due or left to plan; for queries that end then."""
        return self._require().is_drained()

    def commit(self) -> None:
        """Commit what is settled now, rather than in a few seconds."""
        self._require().commit()

    def leave(self) -> None:
        """Commit what is settled and say that the query ends; what is planned after all revokes it."""
        self.commit()
        self._require().leave()

    def status(self, now_ms: int, error: str = "") -> PlannerStatus:
        """Return what there is to tell; `error` says why the process stopped."""
        if self._running is None:
            state = "failed" if error else "taking" if self.is_open else "idle"
            return PlannerStatus(state, self._spec.group, error=error, wall=now_ms)
        state = "failed" if error else "closed" if self._is_closed else "running"
        undecodable = 0 if self._verdicts is None else self._verdicts.undecodable
        return replace(self._running.status(state, error, now_ms), undecodable=undecodable)

    def close(self) -> None:
        """Commit what is settled and leave. What is open stays open: its clock stands still."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._opening is not None:
            self._opening.close()
        if self._running is not None:
            self._running.close()
        if self._announcer is not None:
            self._announcer.close()
        if self._verdicts is not None:
            self._verdicts.close()

    def _require(self) -> HeldGroup:
        if self._running is None:
            raise UsageError("the planner has not taken its group; step it until is_ready")
        return self._running

    def _read(self, record: Record, now_ms: int) -> None:
        if self._verdicts is None:
            return
        event = self._verdicts.decode(record)
        if event is None:
            return
        if self._opening is not None:
            self._opening.read(record.partition, record.offset, event)
        elif self._running is not None:
            self._running.read(record.partition, record.offset, event, now_ms)

    def _take_up(self, opening: Opening, now_ms: int) -> None:
        """Begin to run when all acker partitions have answered."""
        opened = opening.opened
        if opened is None:
            return
        self._opening = None
        tenure = tenure_of(opened, self._journal, self._spec.group, self._spec.partitions, now_ms)
        running = self._run(tenure, now_ms, opened.answered_at)
        for partition, offset, event in opened.later:
            running.read(partition, offset, event, now_ms)
        name = opened.name
        self._report("session_began", {"session": name.id, "epoch": name.epoch, "restart": opened.is_restart})

    def _untracked(self, now_ms: int) -> Tenure:
        """Begin where the journal ends, or else where the group or the options say."""
        marks = self._journal.sources
        cursors = {s: SourceCursor(marks[s].from_, marks[s].next) for s in self._specs if s in marks}
        fresh = [spec for source, spec in self._specs.items() if source not in marks]
        for source, offset in starting_offsets(self._log, self._spec, fresh).items():
            cursors[source] = SourceCursor(position_at(0, offset), position_at(0, offset))
        return Tenure(SessionName(0, ""), SessionClock(now_ms, now_ms), cursors, self._spec.partitions)

    def _run(self, tenure: Tenure, now_ms: int, answered_at: Mapping[int, int] | None = None) -> HeldGroup:
        lane = f"planner-{self._new_id}/{tenure.name.id}"
        is_ordered = self._is_tracked and any(found.ordered for found in self._spec.inputs)
        order = OrderWatch(self._ground(), tenure, answered_at or {}) if is_ordered else None
        batches = Batches(self._ground(), tenure, lane, self._targets, order)
        self._running = HeldGroup(self._ground(), tenure, batches, now_ms, order)
        return self._running

    def _ground(self) -> Ground:
        return Ground(
            self._log, self._spec, self._specs, self._announcer, self._report, self._reach, self._heard
        )
