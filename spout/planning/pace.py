"""How many records a batch may have to end within a quarter of the timeout; pure (protocol.md, 5.1)."""

from __future__ import annotations

import math

FIRST_BATCH_RECORDS = 10_000
"""A batch has at most so many records before any batch was measured; with a timeout of more than 30 s it has
one for each `FIRST_RECORD_MS` of it, so bolts have as long for a record as they have with 30 s."""

FIRST_RECORD_MS = 3

FIRST_BATCH_RECORDS_MAX = 20_000
"""More than this never: most of such a batch's time is fixed, so a larger one would tell hardly more, and
slow bolts would keep a query's first output waiting."""

TIMEOUT_SHARE = 4
"""A batch should take at most 1 / this of the timeout: a quarter leaves room for a batch that is slow."""

FIRST_FIXED_MS = 250
"""While batches of one size alone were measured, so much of their time is not the records', at most half."""

PROBE_RECORDS = 1_000
"""Size of the batch after a first one that was too slow. A fixed time never shrinks a batch below this."""

SHRINK_MAX = 10
"""A batch has at least 1 / this of the records of the one before: it may have been slow by chance."""

CLEARLY_BELOW = 0.8
"""After a batch below this fraction of its target time the next is always larger, whatever was measured."""

REMEMBERED_BATCHES = 6
"""A measurement of a size is used for so many further batches; then a larger size is tried again."""

SIZES_DIFFER = 1.5
"""Two batches show which part of the time is fixed only if one is at least this many times as large."""


class BatchPace:
    """How many records a batch may have so that it ends within a quarter of the timeout.

    A batch's time runs from its Init to its first verdict or to the planning of the next batch, whichever is
    sooner. The model is time = fixed + records * per_record, a line through the newest batch, which ran under
    the present conditions. Of all such lines it is the one that explains most of the last batches of each
    other size, where younger ones count more:

    - One slow batch (a busy machine) shrinks the next one, but to no less than a tenth. If that one is as
      fast as before, the former line explains the batches again, and the size returns.
    - Larger batches that take no longer show a fixed time. It does not make batches smaller: a small batch
      would end no sooner, so it would seem slower still, down to one record at a time.
    - While a process warms up, each batch is faster than the one before. If the later ones are also smaller,
      their size seems to be the reason. So a larger size that was not used for some batches is tried again if
      half of a batch's time or more seems fixed, and the batch ends within half of the timeout.
    - The first batch includes all that starts cold. If it is too slow, it is not used as data: a small second
      batch shows more, and costs little if records really are that slow.
    """

    def __init__(self, timeout_ms: int) -> None:
        """Begin without measurements; with timeout 0 no batch is too large."""
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
        """Whether a batch was planned and `done` was not called for it yet."""
        return self._emitted_ms is not None

    def allowed(self) -> int | None:
        """Return how many records the next batch may have, 1 or more; None: any number."""
        if not self._timeout_ms:
            return None
        if not self._seen:
            return self._first() if self._is_first else PROBE_RECORDS
        points = list(self._seen.values())
        (count, took_ms), target_ms = points[-1], self._timeout_ms / TIMEOUT_SHARE
        fixed_ms, record_ms, explained = _line_through_newest(points)
        if fixed_ms >= self._timeout_ms or (took_ms > target_ms and not record_ms):
            if 2 * took_ms <= self._timeout_ms:
                return 2 * count  # fewer were as slow; even if all time is the records', none times out
            return max(count // 2, min(count, PROBE_RECORDS))
        # the records' own work may take half of the target even if the rest is fixed: less would not help
        work_ms = max(target_ms - fixed_ms, target_ms / 2)
        fits = work_ms / record_ms if record_ms else math.inf
        most = 2.0 * count
        if took_ms <= target_ms:
            # even if all of its time was the records', the next one ends within half of the timeout
            most = max(2 * target_ms * records / ms for records, ms in explained)
            if len(points) == 1:
                fits = target_ms * count / max(took_ms - FIRST_FIXED_MS, took_ms / 2)
            if len(explained) == 1:  # it is not known yet how much of it is fixed
                fits, most = max(fits, 2.0 * count, PROBE_RECORDS), max(most, PROBE_RECORDS)
            elif took_ms <= CLEARLY_BELOW * target_ms:
                fits = max(fits, 2.0 * count)
        if self._is_probe:
            fits, most = max(fits, 2.0 * count), max(most, 2.0 * count)
        return max(1, math.ceil(max(min(fits, most), count / SHRINK_MAX)))

    def _first(self) -> int:
        return min(max(FIRST_BATCH_RECORDS, self._timeout_ms // FIRST_RECORD_MS), FIRST_BATCH_RECORDS_MAX)

    def emitted(self, count: int, now_ms: int) -> None:
        """Note that a batch of `count` records was planned."""
        self._count = count
        self._emitted_ms = now_ms

    def discount(self, count: int) -> None:
        self._count = max(0, self._count - count)

    def done(self, now_ms: int) -> int | None:
        """Note that the batch has ended; return how long it took, ms; None: it was noted, or nobody knows."""
        if self._emitted_ms is None:
            return None
        since_ms, self._emitted_ms = self._emitted_ms, None
        if now_ms < since_ms:  # the wall clock has stepped back: as a time of 1 ms it would allow any number
            return None
        took_ms = max(1, now_ms - since_ms)
        if not self._count:
            return took_ms
        target_ms = self._timeout_ms / TIMEOUT_SHARE
        if not self._is_first or took_ms <= target_ms:
            size = self._count.bit_length()
            self._seen.pop(size, None)
            self._seen[size] = self._count, took_ms
            self._batches += 1
            self._ends[size] = self._batches
            kept_from = self._batches - REMEMBERED_BATCHES
            stale = [each for each in self._seen if each > size and self._ends[each] <= kept_from]
            fixed_ms = _line_through_newest(list(self._seen.values()))[0]
            self._is_probe = bool(stale) and took_ms <= 2 * min(fixed_ms, target_ms)
            if self._is_probe:
                self._ends.update(dict.fromkeys(stale, self._batches))
        self._is_first = False
        return took_ms


def _line_through_newest(points: list[tuple[int, int]]) -> tuple[float, float, list[tuple[int, int]]]:
    """Choose a fixed time and a time per record that fit the newest batch and explain most of the others.

    A line explains a batch the better, the nearer their times are, and not at all from a factor of two on. Of
    lines that explain equally much the steeper one is taken, because it allows fewer records.

    `points` has records and ms of batches, the newest last. Returns both times, ms, and what they explain.
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
