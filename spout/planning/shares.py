"""How much a batch takes, and from which source: fair shares, and what the timeout allows.

Source: docs/design/protocol.md, section 5.1, "Planning".
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from acker.identity import WIRE_BLOCK_BITS

FIRST_BATCH_RECORDS_MAX = 10_000
"""Before anything was measured a batch holds at most this many records."""

TIMEOUT_SHARE = 4
"""A batch should take at most this fraction of the timeout: a quarter leaves room for one that takes long."""


PROBE_RECORDS = 1_000
"""Records of the batch behind a first one that was too slow; and below this nothing fixed makes a batch."""

SHRINK_MAX = 10
"""A batch holds at least this fraction of the one before: one slow batch may be nobody's fault."""

CLEARLY_BELOW = 0.8
"""A batch within this fraction of its target is always followed by a larger one, whatever the others say."""

REMEMBERED_BATCHES = 6
"""What a batch told of its size holds for so many further ones; then a larger one is tried again."""

SIZES_DIFFER = 1.5
"""Two batches tell a fixed time from that of the records when one is this many times as large."""


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
    sooner: both come after its publication. The model is time = fixed + records * per_record, and what is
    known is the last batch of each size. The line goes through the newest batch, whose conditions are those
    of now, and is the one that explains most of the others, the younger the more:

    - A slow batch alone (a busy machine) shrinks the next one to a tenth at the least. When that one is as
      fast as before, the line from before holds again, and with it the size.
    - Larger batches that take no longer show a fixed time. It does not make batches smaller: a small one
      would end no sooner, and look slower still, down to one record at a time.
    - While things get warm each batch is faster than the one before, and where the later ones are the smaller
      ones, their size seems to have done it. So a larger size that was not seen for some batches is tried
      again where half of a batch's time or more seems fixed, as soon as it ends within half of the timeout.
    - The first batch pays for all that starts cold. When it is too slow it is not judged: a small second
      one tells more, and costs little where records really are that slow.
    """

    __slots__ = (
        "_batches",
        "_count",
        "_emitted_ms",
        "_ends",
        "_is_first",
        "_is_probe",
        "_seen",
        "_timeout_ms",
    )

    def __init__(self, timeout_ms: int) -> None:
        """Begin unmeasured.

        Args:
            timeout_ms: the shortest timeout of the sources; 0: never, and then no batch is too large.
        """
        self._timeout_ms = timeout_ms
        self._seen: dict[int, tuple[int, int]] = {}  # by the size's power of two, newest last: (records, ms)
        self._ends: dict[int, int] = {}  # of each size: which batch it was
        self._batches = 0
        self._is_probe = False
        self._is_first = True
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
            return FIRST_BATCH_RECORDS_MAX if self._is_first else PROBE_RECORDS
        points = list(self._seen.values())
        (count, took_ms), target_ms = points[-1], self._timeout_ms / TIMEOUT_SHARE
        fixed_ms, record_ms, explained = _line_through_newest(points)
        if fixed_ms >= self._timeout_ms or (took_ms > target_ms and not record_ms):
            if 2 * took_ms <= self._timeout_ms:
                return 2 * count  # fewer were as slow; and even if the records cost it all, no root times out
            return max(count // 2, min(count, PROBE_RECORDS))
        # whatever is fixed, the records' own work may take half of the target: with less it ends no sooner
        work_ms = max(target_ms - fixed_ms, target_ms / 2)
        fits = work_ms / record_ms if record_ms else math.inf
        most = 2.0 * count
        if took_ms <= target_ms:
            # even if all of its time was the records', the next one ends within half of the timeout
            most = max(2 * target_ms * records / ms for records, ms in explained)
            if len(explained) == 1:  # nothing tells yet how much of it is fixed
                fits, most = max(fits, 2.0 * count, PROBE_RECORDS), max(most, PROBE_RECORDS)
            elif took_ms <= CLEARLY_BELOW * target_ms:
                fits = max(fits, 2.0 * count)
        if self._is_probe:
            fits, most = max(fits, 2.0 * count), max(most, 2.0 * count)
        return max(1, math.ceil(max(min(fits, most), count / SHRINK_MAX)))

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
            if not self._is_first or took_ms * TIMEOUT_SHARE <= self._timeout_ms:
                size = self._count.bit_length()
                self._seen.pop(size, None)
                self._seen[size] = self._count, took_ms
                self._batches += 1
                self._ends[size] = self._batches
                known_from = self._batches - REMEMBERED_BATCHES
                stale = [each for each in self._seen if each > size and self._ends[each] <= known_from]
                fixed_ms = _line_through_newest(list(self._seen.values()))[0]
                self._is_probe = bool(stale) and took_ms <= 2 * min(
                    fixed_ms, self._timeout_ms / TIMEOUT_SHARE
                )
                if self._is_probe:
                    self._ends.update(dict.fromkeys(stale, self._batches))
            self._is_first = False
        return took_ms


def _line_through_newest(points: list[tuple[int, int]]) -> tuple[float, float, list[tuple[int, int]]]:
    """Choose fixed time and time per record so that they fit the newest batch and explain most of the others.

    A batch is explained the better the nearer its time is to the line's, up to a factor of two. Where lines
    explain as much, the steeper one is taken: it allows fewer records.

    Args:
        points: records and ms of batches, the newest last.

    Returns:
        Both times, 0 or more, in ms; and the batches that they explain.
    """
    count, took_ms = points[-1]
    lines = [(0.0, took_ms / count), (float(took_ms), 0.0)]
    for other, other_ms in points[:-1]:
        if max(other, count) >= SIZES_DIFFER * min(other, count):
            record_ms = (took_ms - other_ms) / (count - other)
            if 0 < record_ms < took_ms / count:
                lines.append((took_ms - record_ms * count, record_ms))

    def explains(line: tuple[float, float], point: tuple[int, int]) -> float:
        return max(0.0, 1 - abs(math.log2((line[0] + line[1] * point[0]) / point[1])))

    def score(line: tuple[float, float]) -> tuple[float, float]:
        weights = (2.0**-age * explains(line, point) for age, point in enumerate(reversed(points)))
        return round(sum(weights), 6), line[1]

    best = max(lines, key=score)
    return *best, [point for point in points if explains(best, point)]
