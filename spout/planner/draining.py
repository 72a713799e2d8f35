"""Whether a query that ends when all is done (`availableNow`) may end; else what it waits for.

It may end when, in this order: no root is pending, no record is left to plan, no lost root waits for its
replay, and no copy is left to plan. A verdict ends what is pending, and a replay worker what is lost. So each
of these waits has an end of its own where that never comes:

* Ackers that live give each root a verdict within its timeout: later than that and the time for which the
  broker may be away, `Unreachable`.
* An input that is paused waits for an operator (`ReplaysStand`), and so does what was put aside: a replay
  worker tries it again each minute, so it is given two tries.
* What is due, and not replayed for as long as the broker may be away, has no replay worker: `Unreachable`.

All of this is decided only when nothing else is left to do. Every wait is said each minute.

Source: docs/design/protocol.md, section 5.1; docs/design/conformance.md, D901 to D905.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import Final, NamedTuple

from acker.config.settings import longest_unreachable_ms
from acker.errors import ReplaysStand, Unreachable
from acker.units import any_time_text
from acker.untrusted import Untrusted
from acker.waits import LongWait
from spout.group.announce import PlannerContext
from spout.group.due import DueWatch, StandingInput
from spout.group.tenure import Tenure
from spout.planner.batches import Batches
from spout.planner.state_watch import StateWatch
from spout.planner.verdict_reader import VerdictReader

PAUSE_SEEN_MS: Final = 5_000
"""An input must be paused for so long: a moment ago somebody may have resumed it."""

ASIDE_SEEN_MS: Final = 120_000
"""A replay worker tries each minute at least what it has put aside: two tries did not help."""

OVERDUE_LOGGED_MS: Final = 10_000
"""A replay worker writes what is due within seconds; later it is said that perhaps none runs."""

AGAIN: Final = "All else is done, and nothing was passed over: then start the query again"

REPLAYS: Final = "waits_for_replays"


class PendingWait(NamedTuple):
    """What a query waits for: the event's name, and how far it has come."""

    event: str
    progress: Hashable
    fields: Mapping[str, object]


class Draining:
    """Follows what is left to do; call `is_over` again and again while Spark runs no batch."""

    def __init__(
        self,
        context: PlannerContext,
        tenure: Tenure,
        batches: Batches,
        state: StateWatch | None,
        verdicts: VerdictReader | None,
    ) -> None:
        """Begin; nothing is read. `verdicts` is None where nothing is tracked."""
        self._context = context
        self._tenure = tenure
        self._batches = batches
        self._state = state
        self._verdicts = verdicts
        self._due: DueWatch | None = None
        self._lost_before: dict[int, int] | None = None
        self._patience_ms = longest_unreachable_ms(context.spec.inputs)
        self._long_wait = LongWait()
        self._replay_wait = LongWait(first_ms=0)  # soon: a batch job without replay workers is a usual slip
        self._still_wait = LongWait()
        self._next_due_ms: int | None = None

    def is_over(self, lost_below: Mapping[int, int], now_ms: int) -> bool:
        """Return whether nothing is left; else say now and then what is.

        It looks in this order, since a root that is lost is due before its copy is on the replay topic. What
        Spark's state holds is in the checkpoint, and is not waited for.

        Args:
            lost_below: by verdict partition the offset behind the last verdict of a lost root.
            now_ms: wall time.

        Raises:
            PartitionStands: nothing is left but to wait for a partition that has had no leader for too long.
            ReplaysStand: nothing is left but roots that wait for an operator.
            Unreachable: ackers, or replay workers, have done nothing for too long.
        """
        wait = self._wait(lost_below, now_ms)
        if wait is None:
            self._long_wait.over()
            self._replay_wait.over()
            self._still_wait.over()
            return True
        wait_log = self._replay_wait if wait.event == REPLAYS else self._long_wait
        waited_ms = wait_log.look(wait.event, now_ms)
        if waited_ms is not None:
            group = self._context.spec.group
            fields = {"group": group, "waited_s": waited_ms // 1000, **wait.fields}
            self._context.report(wait.event, fields)
        return False

    def close(self) -> None:
        if self._due is not None:
            self._due.close()

    def _wait(self, lost_below: Mapping[int, int], now_ms: int) -> PendingWait | None:
        tenure, batches = self._tenure, self._batches
        to_plan = sum(run.end - run.start for run in tenure.unjournalled)
        is_held = self._state is not None and self._state.holds_all()
        if tenure.window.pending > to_plan and not is_held:
            return self._for_verdicts(now_ms)
        has_more = bool(tenure.unjournalled or self._context.left_out)
        is_planned = not has_more and batches.is_all_planned(replay=False)
        if not is_planned and not self._is_ordered:
            return self._for_partitions()
        if self._verdicts is None:
            return None if is_planned else self._for_partitions()
        due = self._read_due()
        if due is None:
            return self._for_partitions()
        if self._lost_before is None:
            self._lost_before = self._verdicts.lost_before(due.taken_over, self._context.sources)
        if self._lost_before is None:
            return PendingWait("waits_for_broker", None, {"what": "the verdicts of the process before"})
        below = {**self._lost_before, **lost_below}
        if not due.is_over(below):  # of an ordered input it may be what keeps the others from being planned
            return self._for_replays(due, below, now_ms)
        if is_planned and batches.is_all_planned(replay=True):
            return None
        return self._for_partitions()

    @property
    def _is_ordered(self) -> bool:
        return any(found.ordered for found in self._context.spec.inputs)

    def _read_due(self) -> DueWatch | None:
        """Return what waits, read to its end; None: not all of it could be read."""
        spec = self._context.spec
        if self._due is None:
            sources = frozenset(self._context.sources)
            self._due = DueWatch(self._context.log, spec.topics.due, spec.partitions, spec.group, sources)
        is_whole = self._due.read()
        self._context.troubles.note(self._due.answers())
        return self._due if is_whole else None

    def _for_partitions(self) -> PendingWait:
        """Return the wait for what cannot be planned yet; raise where a partition has no leader for long."""
        troubles = self._context.troubles
        troubles.require_patience(self._patience_ms)
        why = "; ".join(f"{name} {text}" for name, text in troubles.texts().items())
        return PendingWait(
            "waits_for_records", None, {"why": why or "records, or copies, are not planned yet"}
        )

    def _for_verdicts(self, now_ms: int) -> PendingWait:
        wait = verdict_wait(self._tenure, now_ms)
        self._still_wait.look((wait.event, wait.progress), now_ms)
        timeouts_ms = [found.timeout_ms for found in self._context.spec.inputs]
        limit_ms = max(timeouts_ms) + self._patience_ms
        # an input without a timeout waits for its acks however long that takes
        if min(timeouts_ms) and self._still_wait.waited_ms(now_ms) >= limit_ms:
            raise Unreachable(
                f"{self._tenure.window.pending} roots of group {self._context.spec.group} have had no verdict"
                f" for {limit_ms // 1000} s, longer than their timeout (acker partitions"
                f" {wait.fields['acker_partitions']}); start an acker with `windhover acker run`, or look at"
                f" its log. What is open stays so: then start the query again"
            )
        return wait

    def _for_replays(self, due: DueWatch, lost_below: Mapping[int, int], now_ms: int) -> PendingWait:
        """Return the wait for lost roots; raise where only somebody can end it."""
        standing, behind = due.standing(), due.not_taken_over(lost_below)
        progress = (due.changes, tuple(due.taken_over[partition] for partition in behind))
        self._still_wait.look((REPLAYS, progress), now_ms)
        still_ms = self._still_wait.waited_ms(now_ms)
        if not still_ms:  # something has changed
            self._next_due_ms = due.next_due_ms()
        next_due_ms = self._next_due_ms
        if standing and next_due_ms is None and not behind:
            self._require_somebody(standing.values(), still_ms)
        late_ms = still_ms if next_due_ms is None else min(still_ms, now_ms - next_due_ms)
        if (behind or next_due_ms is not None) and late_ms >= self._patience_ms:
            raise Unreachable(
                f"{due.waiting} lost roots of group {self._context.spec.group} wait, and no replay worker has"
                f" done anything about them for {late_ms // 1000} s; start one with `windhover replay run`."
                " Where one runs, see `put_aside` and `held_up` in its log, and `windhover status`."
                f" {AGAIN}"
            )
        fields: dict[str, object] = {"roots": due.waiting}
        if behind:
            fields["not_taken_over"] = ",".join(map(str, behind))
        if next_due_ms is not None:
            fields["next_due"] = any_time_text(next_due_ms // 1000 * 1000)
        for found in standing.values():
            kind = "put_aside" if found.pause is None else "paused"
            fields[f"{kind}_{self._name_of(found.input_id)}"] = found.roots
        fields["next_step"] = self._next_step(standing.values(), late_ms)
        return PendingWait(REPLAYS, progress, fields)

    def _require_somebody(self, standing: Collection[StandingInput], still_ms: int) -> None:
        """Raise `ReplaysStand` where all that waits does so for an operator, and has done so long enough."""
        is_all_paused = all(found.pause is not None for found in standing)
        if still_ms < (PAUSE_SEEN_MS if is_all_paused else ASIDE_SEEN_MS):
            return
        group = self._context.spec.group
        texts = [self._text_of(found) for found in standing]
        raise ReplaysStand(f"group {group}: {'; '.join(texts)}. {AGAIN}")

    def _text_of(self, found: StandingInput) -> str:
        name = self._name_of(found.input_id)
        if found.pause is None:
            return (
                f"{found.roots} lost roots of input {name} are put aside: {Untrusted(found.why)}; see"
                " `windhover topics check`, and `put_aside` in the log of the replay worker"
            )
        since = any_time_text(found.pause.since_ms // 1000 * 1000)
        return (
            f"input {name} is paused since {since}, so that its {found.roots} lost roots are not replayed:"
            f" {Untrusted(found.pause.why)}; correct what fails them, then run"
            f" `windhover replay resume {name}`"
        )

    def _next_step(self, standing: Collection[StandingInput], late_ms: int) -> str:
        commands = [
            f"`windhover replay resume {self._name_of(found.input_id)}`"
            for found in standing
            if found.pause is not None
        ]
        if commands:
            return f"correct what fails, then run {' and '.join(commands)}"
        if standing:
            return "see `windhover topics check`, and `put_aside` in the log of the replay worker"
        if late_ms < OVERDUE_LOGGED_MS:
            return "a replay worker replays them when they are due; where none runs, `windhover replay run`"
        return (
            "where no replay worker runs, start one with `windhover replay run`; where one runs, see"
            " `windhover status` and its log"
        )

    def _name_of(self, input_id: int) -> str:
        names = {found.id: found.name for found in self._context.spec.inputs}
        return names.get(input_id, f"id {input_id}")


def verdict_wait(tenure: Tenure, now_ms: int) -> PendingWait:
    """Return the wait of a process for the verdicts of its roots: how many, how old, and of which ackers."""
    window = tenure.window
    oldest_ms = window.oldest_emitted_ms()
    fields = {
        "roots": window.pending,
        "oldest_s": 0 if oldest_ms is None else max(0, now_ms - oldest_ms) // 1000,
        "acker_partitions": ",".join(map(str, sorted(tenure.ticked_partitions()))),
        "next_step": "see `windhover roots` and `windhover status`; where no acker runs, start one with"
        " `windhover acker run`",
    }
    return PendingWait("waits_for_verdicts", (window.pending, window.counts.total()), fields)
