"""What the end of a child says: which tuple is poison, or that no record can be failed for it.

Source: docs/design/protocol.md, section 3 rule 11.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

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


class _DividedCall(NamedTuple):
    """A call for several rows at which a child ended, and the cause of that."""

    call: Call
    cause: Cause


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
        self._bolts_hold = holds
        self._poison_counts: Counter[str] = Counter()  # by bolt, the tuples that count as poison
        self._unexplained_count = 0  # children that ended while no bolt was called
        # the search among what one bolt holds, and the name of that bolt
        self._search: PoisonSearch | None = None
        self._searched_bolt = ""
        # calls for several rows at which a child ended, and that were divided
        # for the next one
        self._divided: list[_DividedCall] = []
        self._hung = hung

    def died(self, end: ChildEnded, last_call: LastCall) -> bool:
        """Record the end of a child; return whether to `search` what the task's bolts hold.

        1. Nobody is to blame, or no tuple can be: see the raises.
        2. The bolt is searched already: the search goes on.
        3. The bolt holds tuples, which may be the cause: search, unless
           another bolt is searched.
        4. The call is to blame. A call for one tuple is poison; one for
           several is divided.

        Raises `WorkerLost`: too many children ended, or one of which no tuple
        can be the cause.
        """
        if end.why is Why.SPARED:
            return False
        phase, call = last_call
        if end.why is Why.QUIET or phase is Phase.PREPARE:
            raise self._lost(last_call, end)
        if phase is Phase.IDLE:
            self._unexplained_count += 1
            if self._unexplained_count > UNEXPLAINED_MAX:
                raise WorkerLost(
                    f"{self._unexplained_count} processes of {self._context.name!r} ended while no bolt was"
                    f" called, the last by {end.how}; look who kills them, and at the memory of the machine"
                )
            return False
        if self._search is not None and call.bolt == self._searched_bolt:
            self._go_on_searching(self._search, end)
            return False
        is_guessed_enough = self._bolts_hold and self._poison_counts[call.bolt] >= GUESSES_MAX
        may_be_held = phase is Phase.CLEANUP or is_guessed_enough
        if may_be_held and self._search is None:
            return True
        if phase is Phase.CLEANUP:  # of another bolt than the one that is searched
            raise self._lost(last_call, end)
        self._blame(call, end)
        return False

    def _blame(self, call: Call, end: ChildEnded) -> None:
        """Record that a call ended its child: poison, or a call that the next child divides.

        Raises `WorkerLost`: the task has too many poison tuples.
        """
        error, how = self._cause(end)
        is_poison = self.orders.record_end(call, error, how)
        if not is_poison:
            self._divided.append(_DividedCall(call, Cause.of(call.bolt, error, how)))
            return
        self._poison_counts[call.bolt] += 1
        self._log_poison(call.bolt, error, how, call.roots)
        self._refuse_many(self._poison_counts.total(), call.bolt, how)

    def passed(self) -> tuple[tuple[Cause, I64], ...]:
        """Return the calls that did not return and passed when they were made again, with ascending roots.

        They are calls for several rows of which no row is poison, and the one
        at which the attempt before hung.
        """
        passed = [(cause, _ascending(call.roots)) for call, cause in self._divided_without_reason()]
        if self._hung is not None and not self._hangs_again(self._hung):
            cause = Cause.of(self._hung.bolt, HUNG, self._too_long())
            passed.append((cause, _ascending(self._hung.roots)))
        return tuple(passed)

    def _divided_without_reason(self) -> Iterator[_DividedCall]:
        """Yield the calls that were divided, and of which no part ended its process as well.

        Where a part did, that part is the reason; where a row of it is poison,
        that row is.
        """
        for place, divided in enumerate(self._divided):
            call = divided.call
            # a call is recorded before its parts, so these can only be behind
            # it
            behind = self._divided[place + 1 :]
            is_explained = any(_is_part(divided_later.call, call) for divided_later in behind)
            if not is_explained and not self.orders.isolates_part_of(call):
                yield divided

    def _hangs_again(self, hung: HangNote) -> bool:
        """Return whether a child ended at a call that had hung before: that call's cause says it all."""
        # roots of the calls of that bolt at which a child ended, or that are
        # not made any more
        ended_roots: list[frozenset[int]] = []
        for call, _ in self._divided:
            if call.bolt == hung.bolt:
                ended_roots.append(call.roots)
        for bolt, (_feed, _number, _row, roots) in self.orders.poison:
            if bolt == hung.bolt:
                ended_roots.append(roots)
        if hung.bolt in self.orders.withheld:
            withheld_roots, _ = self.orders.withheld[hung.bolt]
            ended_roots.append(withheld_roots)
        return any(not roots.isdisjoint(hung.roots) for roots in ended_roots)

    def search(self, end: ChildEnded, last_call: LastCall, suspects: Iterable[int]) -> None:
        """Begin to search among roots for the cause of a child's end."""
        self._searched_bolt = last_call.call.bolt
        self.orders.forget_poison_of(self._searched_bolt)
        self._poison_counts[self._searched_bolt] = 0
        self._search = PoisonSearch(suspects)
        self._withhold(self._search, end)

    def survived(self) -> bool:
        """Record that a child did everything; return whether that is the task's result.

        It is not while the search withholds tuples that are perhaps no poison:
        then the next child gets others.
        """
        search = self._search
        if search is None:
            return True
        _, raised = self.orders.withheld[self._searched_bolt]
        if not search.record_survival():
            self.orders.withheld[self._searched_bolt] = (search.withheld, raised)
            self._refuse_many(len(search.poison), self._searched_bolt, str(raised))
            return False
        self._log_poison(self._searched_bolt, raised.error, str(raised), frozenset(search.poison))
        return True

    def _go_on_searching(self, search: PoisonSearch, end: ChildEnded) -> None:
        """Record that the bolt ended another child, though tuples were withheld; withhold others.

        Raises `WorkerLost`: there are none left that may be the cause, or too
        many are.
        """
        if not search.record_death():
            raise WorkerLost(
                f"bolt {self._searched_bolt!r} ended its process ({end.how}) whichever records were kept from"
                f" it, so that none can be failed for it; {_CURE}"
            )
        self._refuse_many(len(search.poison), self._searched_bolt, end.how)
        self._withhold(search, end)

    def _withhold(self, search: PoisonSearch, end: ChildEnded) -> None:
        """Order that the next child keeps from the searched bolt what the search withholds."""
        error, how = self._cause(end)
        self.orders.withheld[self._searched_bolt] = (search.withheld, Isolated(error, how))

    def _cause(self, end: ChildEnded) -> tuple[str, str]:
        """Return by which error tuples fail for a child's end, and the message."""
        if end.why is Why.HUNG:
            return HUNG, self._too_long()
        return WORKER_DIED, end.how

    def _too_long(self) -> str:
        return f"took longer than bolt_timeout, {duration_text(self._limit_ms)}"

    def _refuse_many(self, poison_count: int, bolt: str, how: str) -> None:
        """Raise `WorkerLost` if the task has more poison tuples than `POISON_MAX`."""
        if poison_count > POISON_MAX:
            raise WorkerLost(
                f"{poison_count} tuples of one task killed or hung their process, the last in bolt {bolt!r}"
                f" by {how}: it is the bolt that is broken; {_CURE}"
            )

    def _lost(self, last_call: LastCall, end: ChildEnded) -> WorkerLost:
        """Return the error about the end of a child of which no tuple can be the cause."""
        phase_name = last_call.phase.name.lower()
        return WorkerLost(
            f"bolt {last_call.call.bolt!r} ended its process in {phase_name} ({end.how}), for which"
            f" no record can be failed; {_CURE}"
        )

    def _log_poison(self, bolt: str, error: str, how: str, roots: frozenset[int]) -> None:
        """Write which roots, by their indices in the plan, a bolt fails for what they do to its process."""
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


def _is_part(part: Call, divided: Call) -> bool:
    """Return whether a call was made for some rows of another one, which was divided."""
    is_same_call = (part.bolt, part.feed, part.number) == (divided.bolt, divided.feed, divided.number)
    return is_same_call and divided.first <= part.first and part.end <= divided.end
