"""What a planning process knows of the records that Spark's state holds, of a query that may hold some.

A record that Spark's state has must not come again while it waits there: its copy would be in the same window
once more. The driver sees to that when it publishes the batch that holds the record (`Publication.held`).
Here is what is left:

1. A batch that runs for longer than the timeout, or that Spark runs again after a restart, has its rows in
   the state before it is published. So until then the timeouts of its roots are reset from here.
2. With the trigger availableNow a query ends when nothing is left to wait for. What the state holds is not:
   it is in the checkpoint, and the next start goes on with it.

Source: docs/design/protocol.md, section 5.2 ("Acks that wait").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from acker.root_sets.root_set import RootSet
from acker.wire.events import SourceRun
from spout.group.running_session import RunningSession
from spout.group.sources import PlannerSpec
from spout.planning.journal import Journal
from spout.planning_process.timeout_resets import TimeoutResets

RESETS_A_TIMEOUT: Final = 3
"""How often within a timeout the roots of a batch under way have it reset: one of these may come late."""

RUNS_MIN: Final = 1_000
"""What the state no longer holds is forgotten when most runs are of that, and not before so many."""


class StateWatch:
    """Follows the batches of one process, and which pending roots wait in Spark's state.

    Attributes:
        under_way: the offset behind a batch that is not published yet; None: there is none.
    """

    def __init__(
        self,
        session: RunningSession,
        resets: TimeoutResets,
        spec: PlannerSpec,
        under_way: Journal | None,
    ) -> None:
        """Begin with what a process before has left pending; `under_way`: a batch that Spark runs again.

        What was in Spark's journal then, and is of no batch under way, was published, and waits in the state.
        """
        self._session = session
        self._timeout_ms = spec.timeout_ms
        self._held_timeout_ms = max(input.held_timeout_ms for input in spec.inputs)
        self._resets = resets
        self._last_reset_ms = 0  # by the session's clock
        not_published = RootSet.of_runs(session.unjournalled)
        self.under_way: Journal | None = None
        if under_way is not None:
            not_published |= RootSet.of_runs(under_way.ranges)
            self.begin_batch(under_way)
        # pending roots that Spark's state may hold
        self._held_roots = session.window.pending_roots() - not_published

    def begin_batch(self, end: Journal) -> None:
        """Begin to reset the timeouts of the batch that ends at an offset.

        One without roots needs none.
        """
        if end.ranges:
            self.under_way = end
            self._last_reset_ms = end.now

    def end_batch(self, held: Sequence[SourceRun] | None) -> None:
        """End the batch under way, which is published: reset its timeouts no more.

        `held` has the roots of it that Spark's state holds. None: nobody listed them. Then all of
        the batch counts as held, so that the query may end before its last verdicts are read.
        """
        if self.under_way is not None:
            held_runs = self.under_way.ranges if held is None else held
            self._held_roots |= RootSet.of_runs(held_runs)
            self._forget_settled()
        self.under_way = None

    def reset_due_timeouts(self, session_ms: int) -> None:
        """Reset the timeouts of a batch under way, if that is due by the session's clock.

        Not for ever: a batch that hangs times out when what the state holds would.
        """
        batch = self.under_way
        if batch is None or not self._timeout_ms:  # timeout 0: no root times out
            return
        batch_age_ms = session_ms - batch.now
        if batch_age_ms >= self._held_timeout_ms:
            return
        if session_ms - self._last_reset_ms < self._timeout_ms // RESETS_A_TIMEOUT:
            return
        self._last_reset_ms = session_ms
        self._resets.reset(batch.ranges)

    def holds_all_pending(self) -> bool:
        """Return whether every pending root waits in Spark's state."""
        return not self._session.window.pending_roots() - self._held_roots

    def _forget_settled(self) -> None:
        """Forget the held roots that have a verdict by now, once these are most of what is listed."""
        window = self._session.window
        if len(self._held_roots.table) > RUNS_MIN + 2 * window.run_count:
            self._held_roots &= window.pending_roots()
