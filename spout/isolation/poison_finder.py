"""What the end of a child says: which tuple is poison, or that no record can be failed for it.

Source: docs/design/protocol.md, section 3 rule 11.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from acker.errors import WorkerLost
from acker.identity import I64
from acker.units import duration_text
from acker.untrusted import UntrustedName
from spout.bolts.hooks import BoltContext
from spout.execution.guards import LastCall, Phase
from spout.isolation.child_process import ChildEnded, Why
from spout.isolation.hang_notes import HangNote
from spout.tuples.failures import Cause
from spout.tuples.poison import HUNG, WORKER_DIED, Call, Isolated, Orders, PoisonSearch

POISON_MAX: Final = 100
"""Poison tuples that one task may have; with more it is the bolt that is broken, and the task gives up."""

GUESSES_MAX: Final = 3
"""Tuples of one bolt that count as poison because it was called for them, where the bolt may hold others:
with more, what it holds is searched for the cause."""

UNEXPLAINED_MAX: Final = 3
"""Children of one task that may end while no bolt is called."""

_CURE: Final = "mend the bolt, and start the query again from its checkpoint"
_LOGGER = logging.getLogger("windhover.spout")


class PoisonFinder:
    """Finds the poison tuples of one task; `orders`: what its next child does otherwise."""

    def __init__(
        self, context: BoltContext, limit_ms: int, *, holds: bool, hung: HangNote | None = None
    ) -> None:
        """Look into the children of a task; `holds`: its bolts may hold tuples over many calls.

        `hung`: the call at which the attempt before hung, outside of a child.
        """
        self.orders = Orders()
        self._context = context
        self._limit_ms = limit_ms
        self._holds = holds
        self._poison_of: Counter[str] = Counter()
        self._unexplained = 0
        self._search: PoisonSearch | None = None
        self._searched = ""
        self._divided: list[tuple[Call, Cause]] = []
        self._hung = hung

    def died(self, end: ChildEnded, entry: LastCall) -> bool:
        """Record the end of a child; return whether to `search` what the task's bolts hold.

        Raises `WorkerLost`: too many children ended, or one of which no tuple can be the cause.
        """
        if end.why is Why.SPARED:
            return False
        phase, call = entry
        if end.why is Why.QUIET or phase is Phase.PREPARE:
            raise self._lost(entry, end)
        if phase is Phase.IDLE:
            self._unexplained += 1
            if self._unexplained > UNEXPLAINED_MAX:
                raise WorkerLost(
                    f"{self._unexplained} processes of {self._context.name!r} ended while no bolt was called,"
                    f" the last by {end.how}; look who kills them, and at the memory of the machine"
                )
            return False
        if self._search is not None and call.bolt == self._searched:
            self._go_on_searching(self._search, end)
            return False
        holds = phase is Phase.CLEANUP or (self._holds and self._poison_of[call.bolt] >= GUESSES_MAX)
        if holds and self._search is None:
            return True
        if phase is Phase.CLEANUP:  # of another bolt than the one that is searched
            raise self._lost(entry, end)
        error, how = self._cause(end)
        is_poison = self.orders.record_end(call, error, how)
        if not is_poison:
            self._divided.append((call, Cause.of(call.bolt, error, how)))
        if is_poison:
            self._poison_of[call.bolt] += 1
            self._tell(call.bolt, error, how, call.roots)
            self._refuse_many(sum(self._poison_of.values()), call.bolt, how)
        return False

    def passed(self) -> tuple[tuple[Cause, I64], ...]:
        """Return the calls that did not return and passed when they were made again, with ascending roots.

        They are calls for several rows of which no row is poison, and the one at which the attempt before
        hung.
        """
        passed = [(cause, _ascending(call.roots)) for call, cause in self._divided_without_reason()]
        if self._hung is not None and not self._hangs_again(self._hung):
            cause = Cause.of(self._hung.bolt, HUNG, self._too_long())
            passed.append((cause, _ascending(self._hung.roots)))
        return tuple(passed)

    def _divided_without_reason(self) -> Iterator[tuple[Call, Cause]]:
        """Yield the calls that were divided, and of which no part ended its process as well.

        Where a part did, that part is the reason; where a row of it is poison, that row is.
        """
        calls = [call for call, _ in self._divided]
        for place, (call, cause) in enumerate(self._divided):
            # the parts of a call are made behind it
            is_explained = any(_is_part(later, call) for later in calls[place + 1 :])
            if not is_explained and not self.orders.isolates_part_of(call):
                yield call, cause

    def _hangs_again(self, hung: HangNote) -> bool:
        """Return whether a child ended at a call that had hung before: that call's cause says it all."""
        roots = frozenset(hung.roots)
        calls = [call for call, _ in self._divided]
        ended = [(call.bolt, call.roots) for call in calls]
        ended += [(bolt, key[-1]) for bolt, key in self.orders.poison]
        ended += [(bolt, withheld) for bolt, (withheld, _) in self.orders.withheld.items()]
        return any(bolt == hung.bolt and not roots.isdisjoint(others) for bolt, others in ended)

    def search(self, end: ChildEnded, entry: LastCall, suspects: Iterable[int]) -> None:
        """Begin to search among roots for the cause of a child's end."""
        self._searched = entry.call.bolt
        self.orders.forget_poison_of(self._searched)
        self._poison_of[self._searched] = 0
        self._search = PoisonSearch(suspects)
        self._withhold(self._search, end)

    def survived(self) -> bool:
        """Record that a child did everything; return whether that is the task's result."""
        search = self._search
        if search is None:
            return True
        _, raised = self.orders.withheld[self._searched]
        if not search.survived():
            self.orders.withheld[self._searched] = (search.withheld, raised)
            self._refuse_many(len(search.poison), self._searched, str(raised))
            return False
        self._tell(self._searched, raised.error, str(raised), frozenset(search.poison))
        return True

    def _go_on_searching(self, search: PoisonSearch, end: ChildEnded) -> None:
        if not search.died():
            raise WorkerLost(
                f"bolt {self._searched!r} ended its process ({end.how}) whichever records were kept from it,"
                f" so that none can be failed for it; {_CURE}"
            )
        self._refuse_many(len(search.poison), self._searched, end.how)
        self._withhold(search, end)

    def _withhold(self, search: PoisonSearch, end: ChildEnded) -> None:
        self.orders.withheld[self._searched] = (search.withheld, Isolated(*self._cause(end)))

    def _cause(self, end: ChildEnded) -> tuple[str, str]:
        if end.why is Why.HUNG:
            return HUNG, self._too_long()
        return WORKER_DIED, end.how

    def _too_long(self) -> str:
        return f"took longer than bolt_timeout, {duration_text(self._limit_ms)}"

    def _refuse_many(self, poison_count: int, bolt: str, how: str) -> None:
        if poison_count > POISON_MAX:
            raise WorkerLost(
                f"{poison_count} tuples of one task killed or hung their process, the last in bolt {bolt!r}"
                f" by {how}: it is the bolt that is broken; {_CURE}"
            )

    def _lost(self, entry: LastCall, end: ChildEnded) -> WorkerLost:
        return WorkerLost(
            f"bolt {entry.call.bolt!r} ended its process in {entry.phase.name.lower()} ({end.how}), for which"
            f" no record can be failed; {_CURE}"
        )

    def _tell(self, bolt: str, error: str, how: str, roots: frozenset[int]) -> None:
        _LOGGER.error(
            "culprit_found bolt=%s error=%s how=%r batch=%d partition=%d roots=%s",
            UntrustedName(bolt),
            UntrustedName(error),
            how,
            self._context.batch_id,
            self._context.partition,
            sorted(roots)[:10],
        )


def _ascending(roots: Iterable[int]) -> I64:
    return np.array(sorted(roots), np.int64)


def _is_part(part: Call, whole: Call) -> bool:
    """Return whether a call was made for some rows of another one, which was divided."""
    is_same = (part.bolt, part.feed, part.number) == (whole.bolt, whole.feed, whole.number)
    return is_same and whole.first <= part.first and part.end <= whole.end
