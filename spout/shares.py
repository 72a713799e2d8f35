"""How much a batch takes, and from which source: fair shares, and what the timeout allows.

Source: DESIGN.md, section 5.1, "Planning".
"""

from __future__ import annotations

from collections.abc import Mapping

from acker.identity import WIRE_BLOCK_BITS

FIRST_BATCH_RECORDS_MAX = 10_000
"""Before anything was measured a batch holds at most this many records."""

TIMEOUT_SHARE = 4
"""A batch should take at most this fraction of the timeout: a quarter leaves room for one that takes long."""


def fair_shares(available: Mapping[int, int], budget: int) -> dict[int, int]:
    """Share a budget of records over sources.

    No source gets more than it has; what one leaves goes to the others in equal parts; what cannot be
    divided goes to the lowest sources.

    Args:
        available: records that each source has.
        budget: records to take in all, 0 or more.

    Returns:
        Records to take from each source, in ascending order of the sources; those with none are missing.
    """
    shares: dict[int, int] = {}
    by_size = sorted((count, source) for source, count in available.items() if count > 0)
    left = max(0, budget)
    for rank, (count, source) in enumerate(by_size):
        shares[source] = min(count, left // (len(by_size) - rank))
        left -= shares[source]
    for source in sorted(shares):
        more = min(left, available[source] - shares[source])
        shares[source] += more
        left -= more
    return {source: share for source, share in sorted(shares.items()) if share}


def near_block_end(start: int, count: int) -> int:
    """Return how many records to take so that the cut falls on the end of a block of the wire.

    Only where that gives up less than a quarter: records of whole blocks fold fastest.
    """
    block = 1 << WIRE_BLOCK_BITS
    whole = (start + count) // block * block - start
    return whole if whole * 4 >= count * 3 else count


class Pace:
    """How many records a batch may hold so that it ends within a quarter of the timeout.

    A batch's time runs from its Init to its first verdict or to the next batch's planning, whichever is
    sooner: both come after its publication. It is modelled as an overhead, which every batch has, and a
    time for each record: by the rate alone a small batch on a busy machine would look slow, the next would
    be smaller and look slower, down to one record at a time.
    """

    __slots__ = ("_count", "_emitted_ms", "_seen", "_timeout_ms")

    def __init__(self, timeout_ms: int) -> None:
        """Begin unmeasured.

        Args:
            timeout_ms: the shortest timeout of the sources; 0: never, and then no batch is too large.
        """
        self._timeout_ms = timeout_ms
        self._seen: dict[int, tuple[int, int]] = {}  # by the size's power of two: the last (records, ms)
        self._count = 0
        self._emitted_ms: int | None = None

    @property
    def is_running(self) -> bool:
        """Whether a batch was planned whose end was not noted yet."""
        return self._emitted_ms is not None

    def allowed(self) -> int | None:
        """Return how many records the next batch may hold, 1 or more; None: any number."""
        if not self._timeout_ms:
            return None
        if not self._seen:
            return FIRST_BATCH_RECORDS_MAX
        overhead_ms, record_ms = _line_through(list(self._seen.values()))
        if record_ms <= 0:  # larger batches took no longer: size is not what takes the time
            return 2 * max(count for count, _ in self._seen.values())
        target_ms = self._timeout_ms / TIMEOUT_SHARE
        # where the overhead alone is over the target, a batch that does little work does not end sooner
        work_ms = max(target_ms - overhead_ms, overhead_ms / 2)
        return max(1, round(work_ms / record_ms))

    def emitted(self, count: int, now_ms: int) -> None:
        """Note that a batch of `count` records was planned."""
        self._count = count
        self._emitted_ms = now_ms

    def discount(self, count: int) -> None:
        """Note that so many records of the batch took no time."""
        self._count = max(0, self._count - count)

    def done(self, now_ms: int) -> int | None:
        """Note that the batch has ended and return how long it took, ms; None when that was noted before."""
        if self._emitted_ms is None:
            return None
        took_ms = max(1, now_ms - self._emitted_ms)
        self._emitted_ms = None
        if self._count:
            self._seen[self._count.bit_length()] = self._count, took_ms
        return took_ms


def _line_through(points: list[tuple[int, int]]) -> tuple[float, float]:
    """Fit ms = overhead + per_record * records by least squares; through zero where there is one point.

    Returns:
        Overhead, 0 or more, and time per record, both in ms.
    """
    mean_count = sum(count for count, _ in points) / len(points)
    mean_ms = sum(ms for _, ms in points) / len(points)
    spread = sum((count - mean_count) ** 2 for count, _ in points)
    if not spread:
        return 0.0, mean_ms / mean_count
    slope = sum((count - mean_count) * (ms - mean_ms) for count, ms in points) / spread
    overhead = mean_ms - slope * mean_count
    return (overhead, slope) if overhead > 0 else (0.0, mean_ms / mean_count)
