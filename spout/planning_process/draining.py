"""Decides whether a query that ends when all is done may end; else names what it waits for.

Such are queries with the trigger `availableNow`, and those that `spout.run_once` ends.

It may end when these four hold, and they are looked at in this order:

1. No root is pending.
2. No record is left to plan.
3. No lost root waits for its replay.
4. No copy of a lost root is left to plan.

An acker ends the first wait by a verdict, a replay worker the third by a copy or a dead letter. If no such
process runs, the wait would last for ever. So each wait has a limit, and an error behind it:

* A live acker gives each root a verdict within its timeout. The limit is that timeout, and the time for which
  the broker may be away: `Unreachable`.
* A paused input waits for an operator: `ReplaysStand`. So does a root that was put aside; a replay worker
  tries it again each minute, and has two tries.
* A root that is due, and is not replayed for as long as the broker may be away, has no replay worker:
  `Unreachable`.

An error is raised only when nothing else is left to do. Every wait is reported each minute. An
input *stands* while its lost roots wait for an operator: it is paused, or they were put aside. A
lost root is *taken over* once a replay worker has read its verdict; then it waits in `_ack_due`
until it is *due*.

Source: docs/design/protocol.md, section 5.1; docs/design/conformance.md, D901 to D905.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import Final, NamedTuple

from acker.config.settings import longest_unreachable_ms
from acker.errors import ReplaysStand, Unreachable
from acker.units import second_text
from acker.untrusted import Untrusted
from acker.waits import LongWait, PassedTime
from spout.group.announce import PlannerContext
from spout.group.due import DueWatch, StandingInput
from spout.group.running_session import RunningSession
from spout.planning_process.batches import Batches
from spout.planning_process.state_watch import StateWatch
from spout.planning_process.verdict_reader import VerdictReader

PAUSE_SEEN_MS: Final = 5_000
"""An input must be paused for so long until it is an error: an operator may just be about to resume it."""

ASIDE_SEEN_MS: Final = 120_000
"""A replay worker tries what it has put aside each minute: after two minutes, two tries have failed."""

OVERDUE_LOGGED_MS: Final = 10_000
"""A replay worker writes what is due within seconds; what is later than this suggests that none runs."""

AGAIN: Final = "All else is done, and nothing was passed over: then start the query again"

REPLAYS: Final = "waits_for_replays"

LOG_OF_REPLAY_WORKER: Final = "see `windhover topics check`, and `put_aside` in the log of the replay worker"


class PendingWait(NamedTuple):
    """What a query waits for.

    Attributes:
        event: the name under which it is reported.
        fields: what the report says beside.
        progress: how far it has come; a wait whose progress changes has something that works for
            it. None: nobody measures it.
    """

    event: str
    fields: Mapping[str, object]
    progress: Hashable = None


class Draining:
    """Follows what is left to do.

    `follow` is called again and again while Spark runs no batch; it measures how long each wait
    lasts.
    """

    def __init__(
        self,
        context: PlannerContext,
        session: RunningSession,
        batches: Batches,
        state_watch: StateWatch | None,
        verdict_reader: VerdictReader | None,
    ) -> None:
        """Begin; nothing is read.

        Args:
            state_watch: what Spark's state holds; None: no bolt of the query holds tuples across
                batches.
            verdict_reader: None: nothing is tracked.
        """
        self._context = context
        self._session = session
        self._batches = batches
        self._state_watch = state_watch
        self._verdict_reader = verdict_reader
        # the lost roots in `_ack_due`; None: nobody has asked yet
        self._due_watch: DueWatch | None = None
        # by verdict partition: the offset behind the last verdict
        # of a root that a process before lost; None: not read yet
        self._lost_before_start_by_partition: dict[int, int] | None = None
        # as long as a query waits until what it writes is durable
        self._patience_ms = longest_unreachable_ms(context.spec.inputs)
        self._long_wait = LongWait()
        # reported at once: that a batch job has no replay workers is a frequent mistake
        self._replay_wait = LongWait(first_ms=0)
        self._wait_without_progress = LongWait()
        # what has passed here: a clock that is set ahead has made nobody wait, so no error may say
        # so
        self._passed_time = PassedTime()
        self._next_due_ms: int | None = None  # wall time; None: all that waits needs an operator

    def follow(self, lost_below: Mapping[int, int], now_ms: int) -> bool:
        """Find what is left to do, and report it each minute; return whether there is nothing.

        What Spark's state holds is in the checkpoint, and is not waited for.

        Args:
            lost_below: by verdict partition the offset behind the last verdict of a lost root.
            now_ms: wall time.

        Raises:
            PartitionStands: nothing is left but to wait for a partition that has had no leader for too long.
            ReplaysStand: nothing is left but roots that wait for an operator.
            Unreachable: ackers, or replay workers, have done nothing for too long.
        """
        self._passed_time.read(now_ms)
        wait = self._find_wait(lost_below, now_ms)
        if wait is None:
            self._long_wait.over()
            self._replay_wait.over()
            self._wait_without_progress.over()
            return True
        self._report_wait_if_due(wait, now_ms)
        return False

    def _report_wait_if_due(self, wait: PendingWait, now_ms: int) -> None:
        """Report a wait each minute, that for replays at once, too."""
        long_wait = self._replay_wait if wait.event == REPLAYS else self._long_wait
        waited_ms = long_wait.record_wait(wait.event, now_ms)
        if waited_ms is not None:  # None: it is not time for a report
            group = self._context.spec.group
            fields = {"group": group, "waited_s": waited_ms // 1000, **wait.fields}
            self._context.report(wait.event, fields)

    def close(self) -> None:
        """Close the reader of the lost roots, if there is one."""
        if self._due_watch is not None:
            self._due_watch.close()

    def _find_wait(self, lost_below: Mapping[int, int], now_ms: int) -> PendingWait | None:
        """Return what the query waits for, in the order of the module's list; None: nothing is left."""
        # 1. pending roots
        if self._has_pending_roots_to_wait_for():
            return self._wait_for_verdicts(now_ms)
        # 2. records; of an ordered input a lost root may be why later ones are not planned: then
        # look at 3
        are_records_planned = self._are_records_planned()
        is_ordered = any(input.ordered for input in self._context.spec.inputs)
        if not are_records_planned and not is_ordered:
            return self._wait_for_partitions()
        if self._verdict_reader is not None:
            # 3. lost roots
            wait = self._wait_for_lost_roots(self._verdict_reader, lost_below, now_ms)
            if wait is not None:
                return wait
            # 4. copies: one is on the replay topic when its root has left `_ack_due`, so they come
            # last
            if are_records_planned and not self._batches.is_all_planned(replay=True):
                return self._wait_for_partitions()
        return None if are_records_planned else self._wait_for_partitions()

    def _has_pending_roots_to_wait_for(self) -> bool:
        """Return whether a root is pending that tasks were given, and that Spark's state does not hold."""
        # what is not journalled yet is pending as well, but has still to be planned
        unjournalled_count = sum(run.end - run.start for run in self._session.unjournalled)
        is_all_held = self._state_watch is not None and self._state_watch.holds_all_pending()
        return self._session.window.pending > unjournalled_count and not is_all_held

    def _are_records_planned(self) -> bool:
        """Return whether every record of the inputs' own topics is in a batch."""
        if self._session.unjournalled or self._context.left_out:
            return False
        return self._batches.is_all_planned(replay=False)

    def _wait_for_lost_roots(
        self, verdict_reader: VerdictReader, lost_below: Mapping[int, int], now_ms: int
    ) -> PendingWait | None:
        """Return the wait for lost roots, or for the reading of them.

        None: every lost root is replayed.

        `lost_below` as in `follow`.
        """
        due_watch = self._read_due()
        if due_watch is None:
            return self._wait_for_partitions()
        # what a process before has lost is read once, however often this is asked
        if self._lost_before_start_by_partition is None:
            self._lost_before_start_by_partition = verdict_reader.read_lost_before(
                due_watch.taken_over_to, self._context.sources
            )
        # the broker was too slow: the next call reads on
        if self._lost_before_start_by_partition is None:
            return PendingWait("waits_for_broker", {"what": "the verdicts of the process before"})
        # where both know a partition, this process has read the later verdict
        lost_below_ever = {**self._lost_before_start_by_partition, **lost_below}
        if due_watch.has_replayed_all(lost_below_ever):
            return None
        return self._wait_for_replays(due_watch, lost_below_ever, now_ms)

    def _read_due(self) -> DueWatch | None:
        """Read `_ack_due` to its end.

        Return the lost roots that wait. None: not all of it could be read.
        """
        spec = self._context.spec
        if self._due_watch is None:
            sources = frozenset(self._context.sources)
            self._due_watch = DueWatch(
                self._context.log, spec.topics.due, spec.partitions, spec.group, sources
            )
        is_whole = self._due_watch.read()
        self._context.troubles.record_answers(self._due_watch.answers())
        return self._due_watch if is_whole else None

    def _wait_for_partitions(self) -> PendingWait:
        """Return the wait for what cannot be planned yet.

        Raises `PartitionStands`: a partition has had no leader for too long.
        """
        troubles = self._context.troubles
        troubles.raise_if_stood(self._patience_ms)
        partitions_in_trouble = "; ".join(f"{name} {text}" for name, text in troubles.texts().items())
        why = partitions_in_trouble or "records, or copies, are not planned yet"
        return PendingWait("waits_for_records", {"why": why})

    def _wait_for_verdicts(self, now_ms: int) -> PendingWait:
        """Return the wait for verdicts; `Unreachable`: no acker can be at work any more."""
        wait = verdict_wait(self._session, now_ms)
        self._wait_without_progress.record_wait((wait.event, wait.progress), self._passed_time.ms)
        timeouts_ms = [input.timeout_ms for input in self._context.spec.inputs]
        limit_ms = max(timeouts_ms) + self._patience_ms
        # timeout 0: an input without a timeout waits for its acks however long that takes
        has_timeouts = min(timeouts_ms) > 0
        unchanged_ms = self._wait_without_progress.waited_ms(self._passed_time.ms)
        if has_timeouts and unchanged_ms >= limit_ms:
            raise Unreachable(
                f"{self._session.window.pending} roots of group {self._context.spec.group} have had no"
                f" verdict for {limit_ms // 1000} s, longer than their timeout (acker partitions"
                f" {wait.fields['acker_partitions']}); start an acker with `windhover acker run`, or look at"
                f" its log. What is open stays so: then start the query again"
            )
        return wait

    def _wait_for_replays(
        self, due_watch: DueWatch, lost_below: Mapping[int, int], now_ms: int
    ) -> PendingWait:
        """Return the wait for lost roots.

        Raises `Unreachable`: no replay worker runs; `ReplaysStand`: all of them wait for an
        operator.
        """
        # 1. for how long nothing has changed
        standing_inputs = due_watch.standing().values()
        not_taken_over = due_watch.not_taken_over(lost_below)
        # it is stuck while no entry and no pause of `_ack_due` changes, and no further verdict is
        # taken over
        taken_over_to = [due_watch.taken_over_to[partition] for partition in not_taken_over]
        progress = (due_watch.changes, *taken_over_to)
        self._wait_without_progress.record_wait((REPLAYS, progress), self._passed_time.ms)
        unchanged_ms = self._wait_without_progress.waited_ms(self._passed_time.ms)
        if not unchanged_ms:  # the search goes through all roots, so only where one of them has changed
            self._next_due_ms = due_watch.next_due_ms()
        next_due_ms = self._next_due_ms
        # 2. an error, if that is too long
        if standing_inputs and next_due_ms is None and not not_taken_over:
            self._raise_if_stood(standing_inputs, unchanged_ms)
        # a root that is due in an hour is not late, though nothing has changed for ten minutes
        late_ms = unchanged_ms if next_due_ms is None else min(unchanged_ms, now_ms - next_due_ms)
        needs_worker = bool(not_taken_over) or next_due_ms is not None
        if needs_worker and late_ms >= self._patience_ms:
            raise Unreachable(
                f"{due_watch.waiting_count} lost roots of group {self._context.spec.group} wait, and no"
                f" replay worker has done anything about them for {late_ms // 1000} s; start one with"
                " `windhover replay run`."
                " Where one runs, see `put_aside` and `held_up` in its log, and `windhover status`."
                f" {AGAIN}"
            )
        # 3. what the report says
        fields: dict[str, object] = {"roots": due_watch.waiting_count}
        if not_taken_over:
            fields["not_taken_over"] = ",".join(map(str, not_taken_over))
        if next_due_ms is not None:
            fields["next_due"] = second_text(next_due_ms)
        for input in standing_inputs:
            kind = "put_aside" if input.pause is None else "paused"
            fields[f"{kind}_{self._name_of(input.input_id)}"] = input.roots
        fields["next_step"] = self._next_step(standing_inputs, late_ms)
        return PendingWait(REPLAYS, fields, progress)

    def _raise_if_stood(self, standing: Collection[StandingInput], unchanged_ms: int) -> None:
        """Raise `ReplaysStand` if all that waits for an operator has done so for long enough."""
        is_all_paused = all(input.pause is not None for input in standing)
        limit_ms = PAUSE_SEEN_MS if is_all_paused else ASIDE_SEEN_MS
        if unchanged_ms < limit_ms:
            return
        group = self._context.spec.group
        texts = [self._standing_text(input) for input in standing]
        raise ReplaysStand(f"group {group}: {'; '.join(texts)}. {AGAIN}")

    def _standing_text(self, input: StandingInput) -> str:
        """Return for what the lost roots of an input wait, and what an operator can do to end that."""
        name = self._name_of(input.input_id)
        if input.pause is None:
            return (
                f"{input.roots} lost roots of input {name} are put aside: {Untrusted(input.why)};"
                f" {LOG_OF_REPLAY_WORKER}"
            )
        since = second_text(input.pause.since_ms)
        return (
            f"input {name} is paused since {since}, so that its {input.roots} lost roots are not replayed:"
            f" {Untrusted(input.pause.why)}; correct what fails them, then run"
            f" `windhover replay resume {name}`"
        )

    def _next_step(self, standing: Collection[StandingInput], late_ms: int) -> str:
        """Return what an operator can do about lost roots that wait.

        Args:
            standing: inputs that wait for him: a paused one, then one whose roots were put aside,
                goes first.
            late_ms: for how long the others are due and not replayed; below 0: none is due yet.
        """
        paused = [self._name_of(input.input_id) for input in standing if input.pause is not None]
        if paused:
            commands = " and ".join(f"`windhover replay resume {name}`" for name in paused)
            return f"correct what fails, then run {commands}"
        if standing:
            return LOG_OF_REPLAY_WORKER
        if late_ms < OVERDUE_LOGGED_MS:
            return "a replay worker replays them when they are due; where none runs, `windhover replay run`"
        return (
            "where no replay worker runs, start one with `windhover replay run`; where one runs, see"
            " `windhover status` and its log"
        )

    def _name_of(self, input_id: int) -> str:
        """Return the name of an input; of one that this query does not read its id, as text."""
        names = {input.id: input.name for input in self._context.spec.inputs}
        return names.get(input_id, f"id {input_id}")


def verdict_wait(session: RunningSession, now_ms: int) -> PendingWait:
    """Return the wait of a process for the verdicts of its roots: how many, how old, and of which ackers."""
    window = session.window
    oldest_ms = window.oldest_emitted_ms()  # None: nothing is pending
    oldest_age_ms = 0 if oldest_ms is None else max(0, now_ms - oldest_ms)
    fields = {
        "roots": window.pending,
        "oldest_s": oldest_age_ms // 1000,
        "acker_partitions": ",".join(map(str, sorted(session.ticked_partitions()))),
        "next_step": "see `windhover roots` and `windhover status`; where no acker runs, start one with"
        " `windhover acker run`",
    }
    # it is stuck while no root comes, and none is settled
    progress = (window.pending, window.counts.total())
    return PendingWait("waits_for_verdicts", fields, progress)
