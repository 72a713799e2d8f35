"""The roots of one partition that wait, each for itself, until a topic takes what is written for them.

Their entries in `_ack_due` (`replay.records.due.RefusedRoot`) have the
broker's words. They are tried again from time to time, apart from all others,
so that those are not refused with them: one of an input after
`ReplayLimits.input_retry_ms` divided by 64, then after twice as long each
time. Once one is accepted, twice as many are tried each time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from replay.records.due import RefusedRoot
from replay.worker.waiting import DueRoot

_FIRST_WAIT_DIVISOR: Final = 64
"""The first wait is the longest one divided by this: with 64 s, 1 s, and then 2 s, 4 s and so on.
"""


@dataclass(slots=True)
class _AsideRoots:
    """Roots of one input: the offsets of their entries in `_ack_due`, and how they are tried again.

    `why` has the broker's words. The next try has at most `try_max` of the
    roots. If it is refused, the one behind it is `wait_ms` later.
    """

    offsets: set[int]
    why: str
    wait_ms: int
    try_max: int = 1


class AsideCount(NamedTuple):
    """How many roots of an input wait for a topic, and the broker's words on one of them."""

    roots: int
    why: str


class RefusedAside:
    """Which roots are put aside; each is named by the offset of its entry in `_ack_due`."""

    def __init__(self, retry_ms_max: int, at_once_max: int) -> None:
        """Begin with none.

        Args:
            retry_ms_max: the longest time between two tries.
            at_once_max: how many roots are written at once at most.
        """
        self._retry_ms_max = retry_ms_max
        self._at_once_max = at_once_max
        self._roots_by_input: dict[int, _AsideRoots] = {}  # by an input's id

    def __bool__(self) -> bool:
        return bool(self._roots_by_input)

    def has(self, offset: int) -> bool:
        """Return whether the root with the entry at this offset is put aside."""
        return any(offset in roots.offsets for roots in self._roots_by_input.values())

    def leave_out_aside(self, due: Sequence[DueRoot]) -> Sequence[DueRoot]:
        """Return the due roots that are not put aside."""
        if not self._roots_by_input:
            return due
        aside_offsets: set[int] = set()
        for roots in self._roots_by_input.values():
            aside_offsets |= roots.offsets
        return [root for root in due if root.offset not in aside_offsets]

    def choose_roots(self, due: Sequence[DueRoot]) -> Sequence[DueRoot]:
        """Return which of the due roots that are put aside are tried together, all of one input.

        That is the input of the one that is due first. One root or more must
        be put aside.
        """
        for first_root in due:
            for roots in self._roots_by_input.values():
                if first_root.offset in roots.offsets:
                    due_of_input = [root for root in due if root.offset in roots.offsets]
                    return due_of_input[: roots.try_max]
        raise ValueError("none of the due roots is put aside")

    def next_try_ms(self, input_id: int, now_ms: int) -> int:
        """Return when a root that is put aside now is tried again, wall time."""
        roots = self._roots_by_input.get(input_id)
        wait_ms = self._first_wait_ms if roots is None else roots.wait_ms
        return now_ms + wait_ms

    def put(self, input_id: int, offset: int, refused: RefusedRoot) -> None:
        """Record the entry of a root that is put aside, by this owner of the partition or one
        before.
        """
        why = refused.letter_why or refused.copy_why
        first_of_input = _AsideRoots(set(), why, self._first_wait_ms)
        roots = self._roots_by_input.setdefault(input_id, first_of_input)
        roots.offsets.add(offset)

    def record_accepted(self, input_id: int) -> None:
        """Record that the topic took those of an input that were tried; twice as many are tried next."""
        roots = self._roots_by_input.get(input_id)
        if roots is not None:  # else those that were tried were its only ones
            roots.try_max = min(self._at_once_max, 2 * roots.try_max)

    def record_refused(self, input_id: int, tried_count: int, why: str) -> int:
        """Record that so many roots of an input were tried, and refused again.

        Return for how many ms all of the input are left alone; 0 if fewer of
        them are tried first.
        """
        roots = self._roots_by_input[input_id]
        roots.try_max = max(1, tried_count // 2)
        if tried_count > 1:
            return 0
        roots.why = why
        wait_ms = roots.wait_ms
        roots.wait_ms = min(self._retry_ms_max, 2 * wait_ms)
        return wait_ms

    def forget_done(self, offsets: Collection[int]) -> None:
        """Forget the roots of entries that are no more."""
        for input_id, roots in list(self._roots_by_input.items()):
            roots.offsets.difference_update(offsets)
            if not roots.offsets:
                del self._roots_by_input[input_id]

    def counts(self) -> Mapping[int, AsideCount]:
        """Return how many roots wait, by the input's id."""
        counts: dict[int, AsideCount] = {}
        for input_id, roots in self._roots_by_input.items():
            counts[input_id] = AsideCount(len(roots.offsets), roots.why)
        return counts

    @property
    def _first_wait_ms(self) -> int:
        return self._retry_ms_max // _FIRST_WAIT_DIVISOR
