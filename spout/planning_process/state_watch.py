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
from spout.group.sources import PlannerSpec
from spout.group.tenure import Tenure
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
        self, tenure: Tenure, resets: TimeoutResets, spec: PlannerSpec, under_way: Journal | None
    ) -> None:
        """Begin with what a process before has left pending; `under_way`: a batch that Spark runs again.

        What was in Spark's journal then, and is of no batch under way, was published, and waits in the state.
        """
        self._tenure = tenure
        self._timeout_ms = spec.timeout_ms
        self._limit_ms = max(input.held_timeout_ms for input in spec.inputs)
        self._resets = resets
        self._reset_ms = 0  # when timeouts were reset last, by the session's clock
        not_published = RootSet.of_runs(tenure.unjournalled)
        self.under_way: Journal | None = None
        if under_way is not None:
            not_published |= RootSet.of_runs(under_way.ranges)
            self.begin_batch(under_way)
        # pending roots that Spark's state may hold
        self._held = tenure.window.pending_roots() - not_published

    def begin_batch(self, end: Journal) -> None:
        """Begin to reset the timeouts of the batch that ends at an offset.

        Without roots it needs none.
        """
        if end.ranges:
            self.under_way, self._reset_ms = end, end.now

    def end_batch(self, held: Sequence[SourceRun] | None) -> None:
        """Reset them no more, since the batch is published; record which of its roots the state holds.

        None: nobody listed them. Then all of it counts as held, so that the query may end before the last
        verdicts of this batch are read.
        """
        if self.under_way is not None:
            held_runs = self.under_way.ranges if held is None else held
            self._held |= RootSet.of_runs(held_runs)
            self._forget_settled()
        self.under_way = None

    def step(self, now: int) -> None:
        """Reset the timeouts of a batch under way, if that is due by the session's clock.

        Not for ever: a batch that hangs times out when what the state holds would.
        """
        batch = self.under_way
        if batch is None or not self._timeout_ms or now - batch.now >= self._limit_ms:
            return
        if now - self._reset_ms < self._timeout_ms // RESETS_A_TIMEOUT:
            return
        self._reset_ms = now
        self._resets.reset(batch.ranges)

    def holds_all(self) -> bool:
        """Return whether every pending root waits in Spark's state."""
        return not self._tenure.window.pending_roots() - self._held

    def _forget_settled(self) -> None:
        """Forget what has got its verdict since, once that is most of what is listed."""
        window = self._tenure.window
        if len(self._held.table) > RUNS_MIN + 2 * window.holes:
            self._held &= window.pending_roots()
