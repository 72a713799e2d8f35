"""The roots of one partition that are *put aside* until a topic takes what is written for them.

Their entries in `_ack_due` (`replay.records.due.RefusedRoot`) have the
broker's words. They are tried again from time to time, apart from all others,
so that those are not refused with them: one of an input after a while
(`next_wait_ms`, at most `ReplayLimits.input_retry_ms`). Once one is accepted,
twice as many are tried each time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from replay.records.due import RefusedRoot
from replay.worker.waiting import DueRoot

_FIRST_WAIT_DIVISOR: Final = 64
"""The first wait is the longest one divided by this."""


def next_wait_ms(former_ms: int | None, longest_ms: int) -> int:
    """Return how long to wait for the next try: a 64th of the longest wait, then twice as long.

    `former_ms` is the wait before; None: there was none.

    >>> next_wait_ms(None, 64_000), next_wait_ms(1_000, 64_000), next_wait_ms(60_000, 64_000)
    (1000, 2000, 64000)
    """
    if former_ms is None:
        return longest_ms // _FIRST_WAIT_DIVISOR
    return min(longest_ms, 2 * former_ms)


@dataclass(slots=True)
class _AsideRoots:
    """The roots of one input that are put aside, and how they are tried again.

    Attributes:
        offsets: of their entries in `_ack_due`.
        why: the broker's words on one of them.
        wait_after_refusal_ms: so long after a try that is refused comes the next
            one.
        next_try_max: so many of them are tried together at most.
    """

    offsets: set[int]
    why: str
    wait_after_refusal_ms: int
    next_try_max: int = 1


class AsideCount(NamedTuple):
    """How many roots of an input are put aside, and why; empty: the partitions do not know."""

    root_count: int = 0
    why: str = ""


class RefusedAside:
    """Which roots are put aside; each is named by the offset of its entry in `_ack_due`."""

    def __init__(self, wait_ms_max: int, tried_max: int) -> None:
        """Begin with none.

        Args:
            wait_ms_max: the longest time between two tries of an input.
            tried_max: how many roots are tried in one transaction at most.
        """
        self._wait_ms_max = wait_ms_max
        self._tried_max = tried_max
        self._aside_by_input: dict[int, _AsideRoots] = {}  # by an input's id; none is empty

    def __bool__(self) -> bool:
        """Return whether any root is put aside."""
        return bool(self._aside_by_input)

    def has(self, offset: int) -> bool:
        """Return whether the root with the entry at this offset is put aside."""
        return any(offset in aside.offsets for aside in self._aside_by_input.values())

    def leave_out_roots_aside(self, due_roots: Sequence[DueRoot]) -> Sequence[DueRoot]:
        """Return the due roots that are not put aside."""
        if not self._aside_by_input:
            return due_roots
        aside_offsets: set[int] = set()
        for aside in self._aside_by_input.values():
            aside_offsets |= aside.offsets
        return [root for root in due_roots if root.offset not in aside_offsets]

    def choose_due_aside(self, due_roots: Sequence[DueRoot]) -> Sequence[DueRoot]:
        """Return which of the due roots that are put aside are tried together, all of one input.

        That is the input of the first of them. One of `due_roots` or more must
        be put aside.
        """
        for first_root in due_roots:
            for aside in self._aside_by_input.values():
                if first_root.offset in aside.offsets:
                    due_aside = [root for root in due_roots if root.offset in aside.offsets]
                    return due_aside[: aside.next_try_max]
        raise ValueError("none of the due roots is put aside")

    def next_try_ms(self, input_id: int, now_ms: int) -> int:
        """Return when a root that is put aside now is tried again, wall time."""
        aside = self._aside_by_input.get(input_id)
        if aside is None:
            return now_ms + next_wait_ms(None, self._wait_ms_max)
        return now_ms + aside.wait_after_refusal_ms

    def put(self, input_id: int, offset: int, entry: RefusedRoot) -> None:
        """Record that a root is put aside, with its entry and the offset of that.

        This owner of the partition put it aside, or one before.
        """
        why = entry.letter_why or entry.copy_why
        first_wait_ms = next_wait_ms(None, self._wait_ms_max)
        aside = self._aside_by_input.setdefault(
            input_id, _AsideRoots(offsets=set(), why=why, wait_after_refusal_ms=first_wait_ms)
        )
        aside.offsets.add(offset)

    def record_try_accepted(self, input_id: int) -> None:
        """Record that the topic took those of an input that were tried; twice as many are tried next."""
        aside = self._aside_by_input.get(input_id)
        if aside is not None:  # else those that were tried were its only ones
            aside.next_try_max = min(self._tried_max, 2 * aside.next_try_max)

    def record_try_refused(self, input_id: int, tried_count: int, why: str) -> int:
        """Record that `tried_count` roots of an input that were put aside were tried, and refused.

        If it was one, return for how many ms all such roots of the input are
        left alone, twice as long each time. If several were tried together,
        return 0: the next try has half as many, to single out one that the
        topic takes.
        """
        aside = self._aside_by_input[input_id]
        aside.next_try_max = max(1, tried_count // 2)
        if tried_count > 1:
            return 0
        aside.why = why
        this_wait_ms = aside.wait_after_refusal_ms
        aside.wait_after_refusal_ms = next_wait_ms(this_wait_ms, self._wait_ms_max)
        return this_wait_ms

    def forget_done(self, offsets: Collection[int]) -> None:
        """Forget the roots whose entries, at these offsets of `_ack_due`, got a tombstone."""
        for input_id, aside in list(self._aside_by_input.items()):
            aside.offsets.difference_update(offsets)
            if not aside.offsets:
                del self._aside_by_input[input_id]

    def count_by_input(self) -> Mapping[int, AsideCount]:
        """Return how many are put aside by the input's id, with the broker's words on one of them.

        An input without one is missing.
        """
        count_by_input: dict[int, AsideCount] = {}
        for input_id, aside in self._aside_by_input.items():
            count_by_input[input_id] = AsideCount(len(aside.offsets), aside.why)
        return count_by_input
