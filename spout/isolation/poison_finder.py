"""Finds out which tuple makes the children of a task end, or that no record can be failed for it.

A *poison* tuple kills or hangs the process that works on it. A *child* is the process in which a
task's bolts are called; when it ends, the task forks the next one, which follows `orders` about
single calls:

* A call for one tuple at which a child ended: the tuple is poison, and the next child fails
  it unseen.
* A call for several rows: the next child makes it for each half of them, and so on down to one row.
* A bolt that holds tuples over many calls may end its process by one that it got before. If it
  ends it at several single tuples, all roots of the task become *suspects*, and a *search* begins:
  from each next child the tuples of some suspects are *withheld*, until it is known without which
  ones it survives (`spout.tuples.poison.PoisonSearch`). Each such child is a *trial*.

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
from spout.tuples.poison import HUNG, WORKER_DIED, Call, Isolated, Orders, PoisonSearch, Withheld

POISON_MAX: Final = 100
"""Poison tuples that one task may have; with more it is the bolt that is broken, and the task gives
up.
"""

GUESSES_MAX: Final = 3
"""Tuples of one bolt that count as poison because a child ended at the call for them, where the
bolt may hold others: at the next end, what it holds is searched for the cause."""

UNEXPLAINED_MAX: Final = 3
"""So many children of one task may end while no bolt is called; with more the task gives up."""

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

    `orders`: which calls the next child makes in another way.
    """

    def __init__(
        self,
        context: BoltContext,
        limit_ms: int,
        *,
        bolts_may_hold: bool,
        earlier_hang: HangNote | None = None,
    ) -> None:
        """Begin when no child of the task has ended yet.

        Args:
            context: names the task in messages.
            limit_ms: how long one call of a bolt may last; 0: for ever.
            bolts_may_hold: whether bolts of the task may hold tuples over many calls.
            earlier_hang: the call that hung when Spark tried this task before, without a child;
                None: none did.
        """
        self.orders = Orders()
        self._context = context
        self._limit_ms = limit_ms
        self._bolts_may_hold = bolts_may_hold
        self._earlier_hang = earlier_hang
        self._poison_count_by_bolt: Counter[str] = Counter()  # tuples that count as poison
        self._unexplained_count = 0  # children that ended while no bolt was called
        # the search for what one bolt holds and dies of, and the name of that bolt; None and empty:
        # there was no need to search yet
        self._search: PoisonSearch | None = None
        self._searched_bolt = ""
        # calls for several rows at which a child ended, in this order
        self._divided_calls: list[_DividedCall] = []

    def record_child_end(self, end: ChildEnded, last_call: LastCall) -> bool:
        """Record the end of a child at a call; return whether the caller must `begin_search`.

        1. No tuple is to blame: let the next child begin, or give up (`WorkerLost`).
        2. The bolt is searched already: go on with its search.
        3. The bolt may have held the tuple that is to blame: search, unless another bolt is
           searched.
        4. The call is to blame: if it is for one tuple, this is poison; if for several, divide it.

        Raises `WorkerLost`: too many children ended, or one ended of which no tuple can be the
        cause.
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
        # single tuples were blamed before, and children still end: perhaps none of them was the
        # cause
        has_blamed_enough = self._poison_count_by_bolt[call.bolt] >= GUESSES_MAX
        may_be_held = phase is Phase.CLEANUP or (self._bolts_may_hold and has_blamed_enough)
        if may_be_held and self._search is None:
            return True
        if phase is Phase.CLEANUP:  # of another bolt than the one that is searched
            raise self._error_without_tuple(last_call, end)
        # step 4
        self._blame_call(call, end)
        return False

    def _blame_call(self, call: Call, end: ChildEnded) -> None:
        """Order the next child to fail the call's only tuple, or to divide a call for several.

        Raises `WorkerLost`: the task has too many poison tuples.
        """
        error, message = self._error_and_message(end)
        is_poison = self.orders.record_end(call, error, message)
        if not is_poison:
            self._divided_calls.append(_DividedCall(call, Cause.of(call.bolt, error, message)))
            return
        self._poison_count_by_bolt[call.bolt] += 1
        self._log_poison(call.bolt, error, message, call.roots)
        self._raise_if_too_many(self._poison_count_by_bolt.total(), call.bolt, message)

    def passed_calls(self) -> tuple[CallThatPassed, ...]:
        """Return the calls at which a process ended, and which passed when they were made again.

        They are calls for several rows of which no row is poison, and the call
        that hung when the task was tried before.
        """
        passed = [
            CallThatPassed(divided.cause, _ascending(divided.call.roots))
            for divided in self._divided_calls_that_passed()
        ]
        hang = self._earlier_hang
        if hang is not None and not self._is_reported_otherwise(hang):
            cause = Cause.of(hang.bolt, HUNG, self._hung_message())
            passed.append(CallThatPassed(cause, _ascending(hang.roots)))
        return tuple(passed)

    def _divided_calls_that_passed(self) -> Iterator[_DividedCall]:
        """Yield the divided calls whose parts all passed when they were made.

        A call is left out if a child ended at one of its parts too, since that part names the cause
        more exactly; or if one of its rows is poison, since that row fails for it.
        """
        for index, divided in enumerate(self._divided_calls):
            call = divided.call
            # a call is recorded before its parts, so these can only be behind
            # it
            later_calls = self._divided_calls[index + 1 :]
            is_explained = any(_is_part(later.call, call) for later in later_calls)
            if not is_explained and not self.orders.isolates_part_of(call):
                yield divided

    def _is_reported_otherwise(self, hang: HangNote) -> bool:
        """Return whether a child, too, ended at a call of the bolt for a root that had hung before.

        Then that call is reported: as one that passed, or by its poison tuple.
        """
        # the roots of each call of the bolt at which a child ended, or which no child makes any
        # more
        roots_of_calls = [
            divided.call.roots for divided in self._divided_calls if divided.call.bolt == hang.bolt
        ]
        for bolt, poison_tuple in self.orders.poison:
            if bolt == hang.bolt:
                roots_of_calls.append(poison_tuple.roots)
        if hang.bolt in self.orders.withheld:
            roots_of_calls.append(self.orders.withheld[hang.bolt].roots)
        return any(not roots.isdisjoint(hang.roots) for roots in roots_of_calls)

    def begin_search(self, end: ChildEnded, last_call: LastCall, suspects: Iterable[int]) -> None:
        """Begin to search among suspect roots for those by which the bolt ends a child.

        The tuples of this bolt that counted as poison so far do not count any more: it may have
        ended its process by what it held.
        """
        self._searched_bolt = last_call.call.bolt
        self.orders.forget_poison_of(self._searched_bolt)
        self._poison_count_by_bolt[self._searched_bolt] = 0
        self._search = PoisonSearch(suspects)
        self._withhold(self._search, end)

    def record_success(self) -> bool:
        """Record that a child did everything; return whether what it did is the task's result.

        False: tuples were withheld from it that are perhaps no poison; the next child, from which
        others are withheld, must do everything again.
        """
        search = self._search
        if search is None:
            return True
        error = self.orders.withheld[self._searched_bolt].error
        is_search_over = search.record_survival()
        if not is_search_over:
            self.orders.withheld[self._searched_bolt] = Withheld(search.withheld, error)
            self._raise_if_too_many(len(search.poison), self._searched_bolt, str(error))
            return False
        self._log_poison(self._searched_bolt, error.error, str(error), frozenset(search.poison))
        return True

    def _withhold_others(self, search: PoisonSearch, end: ChildEnded) -> None:
        """Record that the bolt ended a child in a trial; withhold other roots from the next one.

        Raises `WorkerLost`: the bolt ends its process whatever is withheld, or too many roots are
        poison.
        """
        may_go_on = search.record_death()
        if not may_go_on:
            raise WorkerLost(
                f"bolt {self._searched_bolt!r} ended its process ({end.how}) whichever records were kept from"
                f" it, so that none can be failed for it; {_CURE}"
            )
        self._raise_if_too_many(len(search.poison), self._searched_bolt, end.how)
        self._withhold(search, end)

    def _withhold(self, search: PoisonSearch, end: ChildEnded) -> None:
        """Order that the next child keeps from the searched bolt what the search withholds."""
        error, message = self._error_and_message(end)
        withheld = Withheld(search.withheld, Isolated(error, message))
        self.orders.withheld[self._searched_bolt] = withheld

    def _error_and_message(self, end: ChildEnded) -> tuple[str, str]:
        """Return the error and the message by which tuples fail that made a child end."""
        if end.why is Why.HUNG:
            return HUNG, self._hung_message()
        return WORKER_DIED, end.how

    def _hung_message(self) -> str:
        """Return the message of the failure of a tuple whose call took too long."""
        return f"took longer than bolt_timeout, {duration_text(self._limit_ms)}"

    def _raise_if_too_many(self, poison_count: int, bolt: str, message: str) -> None:
        """Raise `WorkerLost` if there are more poison tuples than `POISON_MAX`.

        They are those of the whole task, or of one search in one of its batches.

        `bolt` and `message`, how its process ended, are of the last one.
        """
        if poison_count > POISON_MAX:
            raise WorkerLost(
                f"{poison_count} tuples of one task killed or hung their process, the last in bolt {bolt!r}"
                f" ({message}): it is the bolt that is broken; {_CURE}"
            )

    def _error_without_tuple(self, last_call: LastCall, end: ChildEnded) -> WorkerLost:
        """Return the error about the end of a child of which no tuple can be the cause."""
        phase_name = last_call.phase.name.lower()
        return WorkerLost(
            f"bolt {last_call.call.bolt!r} ended its process in {phase_name} ({end.how}), for which"
            f" no record can be failed; {_CURE}"
        )

    def _log_poison(self, bolt: str, error: str, message: str, roots: frozenset[int]) -> None:
        """Log of which roots tuples are poison for a bolt: the lowest ten."""
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
    call_of_part = (part.bolt, part.block_number, part.call_number)
    if call_of_part != (divided.bolt, divided.block_number, divided.call_number):
        return False
    return divided.first_row <= part.first_row and part.end_row <= divided.end_row
