"""Partitions that do not come up, since a broker does not answer for one of their logs.

One partition without a leader must not hold up the others of its process: it is left alone for a while, twice
as long each time, and the others come up and work. They wait only during a try: up to a request's deadline.
"""

from __future__ import annotations

from collections.abc import Collection


class SilentPartitions:
    """When each of them was tried last (ms), and how long it is left alone from then on (ms)."""

    def __init__(self, wait_ms: int, wait_ms_max: int) -> None:
        """Leave a partition alone for `wait_ms` after its first try."""
        self._wait_ms = wait_ms
        self._wait_ms_max = wait_ms_max
        self._tried: dict[int, tuple[int, int]] = {}

    def in_turn(self, numbers: Collection[int], now_ms: int, *, others_work: bool) -> list[int]:
        """Return the partitions to be tried now, the one that was tried longest ago first.

        If no other works, none is left alone. Forget all but `numbers`.
        """
        self._tried = {number: self._tried[number] for number in numbers if number in self._tried}
        found = sorted(numbers, key=lambda number: (self._tried.get(number, (-1, 0)), number))
        return [number for number in found if not (others_work and self._is_left_alone(number, now_ms))]

    def failed(self, number: int, now_ms: int) -> None:
        """Take note that a partition did not come up."""
        _, wait_ms = self._tried.get(number, (0, self._wait_ms // 2))
        self._tried[number] = now_ms, min(2 * wait_ms, self._wait_ms_max)

    def _is_left_alone(self, number: int, now_ms: int) -> bool:
        since_ms, wait_ms = self._tried.get(number, (0, 0))
        return 0 <= now_ms - since_ms < wait_ms
