"""Partitions that do not come up, since a broker does not answer for one of their logs.

One partition without a leader must not hold up the others of its process: it is left alone for a while, twice
as long each time, and the others come up and work. They wait only during a try: up to a request's deadline.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple


class _Try(NamedTuple):
    """When a partition was tried last, and how long it is left alone from then on."""

    at_ms: int
    wait_ms: int


class SilentPartitions:
    """The partitions of a process that did not come up, and when each is tried again."""

    def __init__(self, wait_ms: int, wait_ms_max: int) -> None:
        """Leave a partition alone for `wait_ms` after its first try."""
        self._wait_ms = wait_ms
        self._wait_ms_max = wait_ms_max
        self._last_tries: dict[int, _Try] = {}

    def in_turn(self, numbers: Collection[int], now_ms: int, *, others_work: bool) -> list[int]:
        """Return the partitions to be tried now, the one that was tried longest ago first.

        If no other works, none is left alone. Forget all but `numbers`.
        """
        tries = self._last_tries
        self._last_tries = {number: tries[number] for number in numbers if number in tries}
        by_last_try = sorted(numbers, key=self._order)
        if not others_work:
            return by_last_try
        return [number for number in by_last_try if not self._is_left_alone(number, now_ms)]

    def failed(self, number: int, now_ms: int) -> None:
        """Record that a partition did not come up: it is left alone twice as long as the time before."""
        last_try = self._last_tries.get(number)
        wait_ms = self._wait_ms if last_try is None else 2 * last_try.wait_ms
        self._last_tries[number] = _Try(now_ms, min(wait_ms, self._wait_ms_max))

    def _order(self, number: int) -> tuple[int, int, int]:
        """Return what partitions are sorted by: those that were never tried come first."""
        at_ms, wait_ms = self._last_tries.get(number, _Try(-1, 0))
        return at_ms, wait_ms, number

    def _is_left_alone(self, number: int, now_ms: int) -> bool:
        last_try = self._last_tries.get(number)
        # a clock that went back ends the wait
        return last_try is not None and 0 <= now_ms - last_try.at_ms < last_try.wait_ms
