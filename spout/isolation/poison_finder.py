"""Finds out why the children of a task end: which tuple is poison, or that no record can be failed
for it.

A *poison* tuple kills or hangs the process that works on it. A *child* is the process in which a
task's bolts are called; when it ends, the task forks the next one, which follows `orders` about
single calls:

* A call for one tuple at which a child ended: the tuple is poison, and the next child fails
  it unseen.
* A call for several rows: the next child makes it for each half of them, and so on down to one row.
* A bolt that holds tuples over many calls may die of one that it got before. After some guesses
  all roots of the task are *suspects*, and each next child *withholds* some of them from the bolt,
  until it is known without which ones it lives (`spout.tuples.poison.PoisonSearch`).

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
"""So many children of one task may end while no bolt is called."""

_CURE: Final = "mend the bolt, and start the query again from its checkpoint"
_LOGGER = logging.getLogger("windhover.spout")


class _DividedCall(NamedTuple):
    """A call for several rows at which a child ended, and the cause of that."""

    call: Call
    cause: Cause


class CallThatPassed(NamedTuple):
    """A call at which a process ended, and which passed when it was made again.

    `roots`: indices of the batch's plan, ascending.
    """

    cause: Cause
    roots: I64


class PoisonFinder:
    """Finds the poison tuples of one task.

    `orders`: which calls its next child makes in another way.
    """

    def __init__(
        self, context: BoltContext, limit_ms: int, *, holds: bool, hung: HangNote | None = None
    ) -> None:
        """Begin without a child that has ended.

        Args:
            limit_ms: how long one call of a bolt may last; 0: for ever.
            holds: whether bolts of the task may hold tuples over many calls.
            hung: the call at which the attempt before hung, outside of a child; None: it did not
                hang.
        """
        self.orders = Orders()
        self._context = context
        self._limit_ms = limit_ms
        self._bolts_hold = holds
        self._poison_counts: Counter[str] = Counter()  # by bolt, the tuples that count as poison
        self._unexplained_count = 0  # children that ended while no bolt was called
        # the search for what one bolt dies of, and the name of that bolt; None: there is none yet
        self._search: PoisonSearch | None = None
        self._searched_bolt = ""
        # calls for several rows at which a child ended, in this order
        self._divided_calls: list[_DividedCall] = []
        self._hung = hung

    def record_end(self, end: ChildEnded, last_call: LastCall) -> bool:
        """Record the end of a child at a call; return whether the caller is to `begin_search`.

        1. Nobody is to blame, or no tuple can be: see the raises.
        2. The bolt is searched already: the search goes on.
        3. The bolt holds tuples, which may be the cause: search, unless
           another bolt is searched.
        4. The call is to blame. Of a call for one tuple, that is poison; one for
           several is divided.

        Raises `WorkerLost`: too many children ended, or one of which no tuple
        can be the cause.
        """
        # step 1
        if end.why is Why.SPARED:
            return False
        phase, call = last_call
        if end.why is Why.QUIET or phase is Phase.PREPARE:
            raise self._error_without_tuple(last_call, end)
        if phase is Phase.IDLE:
            self._unexplained_count += 1
            if self._unexplained_count > UNEXPLAINED_MAX:
                raise WorkerLost(
                    f"{self._unexplained_count} processes of {self._context.name!r} ended while no bolt was"
                    f" called, the last by {end.how}; look who kills them, and at the memory of the machine"
                )
            return False
        # step 2
        if self._search is not None and call.bolt == self._searched_bolt:
            self._withhold_others(self._search, end)
            return False
        # step 3
        is_guessed_enough = self._bolts_hold and self._poison_counts[call.bolt] >= GUESSES_MAX
        may_be_held = phase is Phase.CLEANUP or is_guessed_enough
        if may_be_held and self._search is None:
            return True
        if phase is Phase.CLEANUP:  # of another bolt than the one that is searched
            raise self._error_without_tuple(last_call, end)
        # step 4
        self._blame_call(call, end)
        return False

    def _blame_call(self, call: Call, end: ChildEnded) -> None:
        """Order that the next child fails the call's tuple, or divides a call for several.

        Raises `WorkerLost`: the task has too many poison tuples.
        """
        error, message = self._error_and_message(end)
        is_poison = self.orders.record_end(call, error, message)
        if not is_poison:
            self._divided_calls.append(_DividedCall(call, Cause.of(call.bolt, error, message)))
            return
        self._poison_counts[call.bolt] += 1
        self._log_poison(call.bolt, error, message, call.roots)
        self._raise_if_too_many(self._poison_counts.total(), call.bolt, message)

    def passed_calls(self) -> tuple[CallThatPassed, ...]:
        """Return the calls at which a process ended, and which passed when they were made again.

        They are calls for several rows of which no row is poison, and the one
        at which the attempt before hung.
        """
        passed = [CallThatPassed(cause, _ascending(call.roots)) for call, cause in self._divided_and_passed()]
        if self._hung is not None and not self._hangs_again(self._hung):
            cause = Cause.of(self._hung.bolt, HUNG, self._hung_message())
            passed.append(CallThatPassed(cause, _ascending(self._hung.roots)))
        return tuple(passed)

    def _divided_and_passed(self) -> Iterator[_DividedCall]:
        """Yield the divided calls whose parts all passed.

        Where a part ended its process, that part is reported; where a row is
        poison, that row is.
        """
        for index, divided in enumerate(self._divided_calls):
            call = divided.call
            # a call is recorded before its parts, so these can only be behind
            # it
            later_calls = self._divided_calls[index + 1 :]
            is_explained = any(_is_part(later.call, call) for later in later_calls)
            if not is_explained and not self.orders.isolates_part_of(call):
                yield divided

    def _hangs_again(self, hung: HangNote) -> bool:
        """Return whether a child ended at a call that had hung before, which reports it better."""
        # roots of the calls of that bolt at which a child ended, or that are
        # not made any more
        ended_roots: list[frozenset[int]] = []
        for call, _ in self._divided_calls:
            if call.bolt == hung.bolt:
                ended_roots.append(call.roots)
        for bolt, (_feed, _number, _row, roots) in self.orders.poison:
            if bolt == hung.bolt:
                ended_roots.append(roots)
        if hung.bolt in self.orders.withheld:
            withheld_roots, _ = self.orders.withheld[hung.bolt]
            ended_roots.append(withheld_roots)
        return any(not roots.isdisjoint(hung.roots) for roots in ended_roots)

    def begin_search(self, end: ChildEnded, last_call: LastCall, suspects: Iterable[int]) -> None:
        """Begin to search among roots for the one that ends the bolt of the last call.

        What single calls named as its poison is forgotten: it may have died of what it held.
        """
        self._searched_bolt = last_call.call.bolt
        self.orders.forget_poison_of(self._searched_bolt)
        self._poison_counts[self._searched_bolt] = 0
        self._search = PoisonSearch(suspects)
        self._withhold(self._search, end)

    def record_success(self) -> bool:
        """Record that a child did everything; return whether what it did is the task's result.

        It is not while the search withholds tuples that are perhaps no poison:
        then the next child gets others.
        """
        search = self._search
        if search is None:
            return True
        _withheld_roots, raised = self.orders.withheld[self._searched_bolt]
        is_search_over = search.record_survival()
        if not is_search_over:
            self.orders.withheld[self._searched_bolt] = (search.withheld, raised)
            self._raise_if_too_many(len(search.poison), self._searched_bolt, str(raised))
            return False
        self._log_poison(self._searched_bolt, raised.error, str(raised), frozenset(search.poison))
        return True

    def _withhold_others(self, search: PoisonSearch, end: ChildEnded) -> None:
        """Record that the bolt ended another child, though tuples were withheld; withhold others.

        Raises `WorkerLost`: there are none left that may be the cause, or too
        many are.
        """
        has_suspects_left = search.record_death()
        if not has_suspects_left:
            raise WorkerLost(
                f"bolt {self._searched_bolt!r} ended its process ({end.how}) whichever records were kept from"
                f" it, so that none can be failed for it; {_CURE}"
            )
        self._raise_if_too_many(len(search.poison), self._searched_bolt, end.how)
        self._withhold(search, end)

    def _withhold(self, search: PoisonSearch, end: ChildEnded) -> None:
        """Order that the next child keeps from the searched bolt what the search withholds."""
        error, message = self._error_and_message(end)
        self.orders.withheld[self._searched_bolt] = (search.withheld, Isolated(error, message))

    def _error_and_message(self, end: ChildEnded) -> tuple[str, str]:
        """Return by which error tuples fail for a child's end, and the message."""
        if end.why is Why.HUNG:
            return HUNG, self._hung_message()
        return WORKER_DIED, end.how

    def _hung_message(self) -> str:
        return f"took longer than bolt_timeout, {duration_text(self._limit_ms)}"

    def _raise_if_too_many(self, poison_count: int, bolt: str, message: str) -> None:
        """Raise `WorkerLost` if the task has more poison tuples than `POISON_MAX`.

        `bolt` and `message` are of the last one.
        """
        if poison_count > POISON_MAX:
            raise WorkerLost(
                f"{poison_count} tuples of one task killed or hung their process, the last in bolt {bolt!r}"
                f" by {message}: it is the bolt that is broken; {_CURE}"
            )

    def _error_without_tuple(self, last_call: LastCall, end: ChildEnded) -> WorkerLost:
        """Return the error about the end of a child of which no tuple can be the cause."""
        phase_name = last_call.phase.name.lower()
        return WorkerLost(
            f"bolt {last_call.call.bolt!r} ended its process in {phase_name} ({end.how}), for which"
            f" no record can be failed; {_CURE}"
        )

    def _log_poison(self, bolt: str, error: str, message: str, roots: frozenset[int]) -> None:
        """Log of which roots tuples are poison for a bolt: the first ten, as indices of the batch's
        plan.
        """
        _LOGGER.error(
            "culprit_found bolt=%s error=%s how=%r batch=%d partition=%d roots=%s",
            UntrustedName(bolt),
            UntrustedName(error),
            message,
            self._context.batch_id,
            self._context.partition,
            sorted(roots)[:10],
        )


def _ascending(roots: Iterable[int]) -> I64:
    """Return roots in ascending order, `(n,) int64`."""
    return np.array(sorted(roots), np.int64)


def _is_part(part: Call, divided: Call) -> bool:
    """Return whether a call was made for some rows of another one, which was divided."""
    is_same_call = (part.bolt, part.feed, part.number) == (divided.bolt, divided.feed, divided.number)
    return is_same_call and divided.first <= part.first and part.end <= divided.end
