"""How many records a batch may have to end within a quarter of the timeout; pure.

Part of a batch's time is *fixed*: it does not depend on how many records it
has. The rest grows with them.

Source: docs/design/protocol.md, section 5.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

FIRST_BATCH_RECORDS = 10_000
"""A batch has at most so many records before any batch was measured; with a
timeout of more than 30 s it has one for each `FIRST_RECORD_MS` of it, so
bolts have as long for a record as they have with 30 s."""

FIRST_RECORD_MS = 3

FIRST_BATCH_RECORDS_MAX = 20_000
"""More than this never: most of such a batch's time is fixed, so a larger one would tell hardly
more, and slow bolts would keep a query's first output waiting."""

TIMEOUT_SHARE = 4
"""A batch should take at most 1 / this of the timeout: a quarter leaves room
for a batch that is slow.
"""

FIRST_FIXED_MS = 250
"""While batches of one size alone were measured, so much of their time is not
the records', at most half.
"""

PROBE_RECORDS = 1_000
"""Size of the batch after a first one that was too slow. A fixed time never
shrinks a batch below this.
"""

SHRINK_MAX = 10
"""A batch has at least 1 / this of the records of the one before: it may have
been slow by chance.
"""

CLEARLY_BELOW = 0.8
"""After a batch below this fraction of its target time the next is always
larger, whatever was measured.
"""

REMEMBERED_BATCHES = 6
"""A measurement of a size is used for so many further batches; then a larger
size is tried again.
"""

SIZES_DIFFER = 1.5
"""Two batches show which part of the time is fixed only if one is at least
this many times as large.
"""


class _Batch(NamedTuple):
    """A batch that was measured."""

    record_count: int
    took_ms: int


class _RecordBounds(NamedTuple):
    """How many records end within the target time: by the model, and even if the model is wrong."""

    by_model: float
    without_model: float


class _TimeModel(NamedTuple):
    """The model of a batch's time: `fixed_ms`, and `record_ms` for each of its records."""

    fixed_ms: float
    record_ms: float

    def likeness(self, batch: _Batch) -> float:
        """Return how near the time of a batch is to the model's: 1 if it is the same, 0 if it is
        half or twice as long, or still farther away.
        """
        model_ms = self.fixed_ms + self.record_ms * batch.record_count
        return max(0.0, 1 - abs(math.log2(model_ms / batch.took_ms)))


class BatchPace:
    """How many records a batch may have so that it ends within a quarter of the timeout.

    A batch's time runs from its Init to its first verdict or to the planning of the next batch,
    whichever is sooner. The model is time = fixed + records * per_record, a line through the newest
    batch, which ran under the present conditions. Of all such lines it is the one that explains
    most of the last batches of each other size, where younger ones count more:

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
        # batches of 512 to 1,023 records have one size, those of 1,024 to
        # 2,047 the next: by size, the last batch of it, the newest one last
        self._last_by_size: dict[int, _Batch] = {}
        # by size, the number of its last batch; or of the batch that decided to try the size again
        self._number_by_size: dict[int, int] = {}
        self._batch_count = 0
        # whether the next batch tries a larger size again
        self._is_probe = False
        self._is_first = True  # no batch has ended yet
        # of the batch that was planned: its records, and when, wall ms; None:
        # it has ended
        self._record_count = 0
        self._emitted_ms: int | None = None

    @property
    def is_running(self) -> bool:
        """Whether a batch was planned and `end_batch` was not called for it yet."""
        return self._emitted_ms is not None

    def next_records_max(self) -> int | None:
        """Return how many records the next batch may have, 1 or more; None: any number.

        1. Choose the model that explains the last batches.
        2. If the newest was slow whatever its size, the number follows from
           that batch alone.
        3. Else find how many records end within the target by the model, and
           how many do even if the model is wrong; the lower number counts.
        4. A batch is no smaller than a tenth of the one before.
        """
        if not self._timeout_ms:
            return None
        if not self._last_by_size:  # nothing was measured, or a first batch that was too slow
            return self._first_records() if self._is_first else PROBE_RECORDS
        # 1. the model
        batches = list(self._last_by_size.values())
        newest = batches[-1]
        target_ms = self._timeout_ms / TIMEOUT_SHARE
        model = _model_through_newest(batches)
        # 2. slow whatever its size
        is_slow_by_fixed_time = newest.took_ms > target_ms and not model.record_ms
        if model.fixed_ms >= self._timeout_ms or is_slow_by_fixed_time:
            return self._max_behind_slow_batch(newest)
        # 3. within the target
        bounds = _record_bounds(batches, model, target_ms)
        by_model = bounds.by_model
        if self._is_probe:  # a larger size is tried; `without_model` allows twice as many at least
            by_model = max(by_model, 2.0 * newest.record_count)
        within_target = min(by_model, bounds.without_model)
        # 4. no smaller than a tenth
        records_min = newest.record_count / SHRINK_MAX
        return max(1, math.ceil(max(within_target, records_min)))

    def _max_behind_slow_batch(self, newest: _Batch) -> int:
        """Return how many records the next batch may have where the newest
        was slow, whatever its size.
        """
        if 2 * newest.took_ms <= self._timeout_ms:
            # Fewer records would be as slow. If the time grows with the
            # records after all, twice as many end within the timeout still.
            return 2 * newest.record_count
        # half as many, since its time may be the records' after all; but no
        # fewer than `PROBE_RECORDS`, or than it had
        return max(newest.record_count // 2, min(newest.record_count, PROBE_RECORDS))

    def _first_records(self) -> int:
        """Return how many records the first batch may have."""
        by_timeout = max(FIRST_BATCH_RECORDS, self._timeout_ms // FIRST_RECORD_MS)
        return min(by_timeout, FIRST_BATCH_RECORDS_MAX)

    def begin_batch(self, count: int, now_ms: int) -> None:
        """Begin to measure a batch of `count` records, which was planned at a wall time."""
        self._record_count = count
        self._emitted_ms = now_ms

    def take_off_records(self, count: int) -> None:
        """Take records off the batch that was planned: blocked ones, which took none of its time."""
        self._record_count = max(0, self._record_count - count)

    def end_batch(self, now_ms: int) -> int | None:
        """End the batch; return how long it took, ms; None: it has ended before, or nobody knows."""
        if self._emitted_ms is None:
            return None
        since_ms = self._emitted_ms
        self._emitted_ms = None
        if now_ms < since_ms:  # the wall clock has stepped back: as a time of 1 ms it would allow any number
            return None
        took_ms = max(1, now_ms - since_ms)
        if not self._record_count:
            return took_ms
        # a first batch that was too slow shows only how long processes take to start
        if not self._is_first or took_ms <= self._timeout_ms / TIMEOUT_SHARE:
            self._add_measurement(_Batch(self._record_count, took_ms))
        self._is_first = False
        return took_ms

    def _add_measurement(self, batch: _Batch) -> None:
        """Remember a batch, and decide whether the next one tries a larger size again."""
        # 1. remember it; 700 records have 10 bits, as all of 512 to 1,023 do
        size = batch.record_count.bit_length()
        self._last_by_size.pop(size, None)  # so that the newest one is the last
        self._last_by_size[size] = batch
        self._batch_count += 1
        self._number_by_size[size] = self._batch_count
        # 2. which larger sizes were not used for some batches
        stale_number = self._batch_count - REMEMBERED_BATCHES
        stale_sizes: list[int] = []
        for larger_size, number in self._number_by_size.items():
            if larger_size > size and number <= stale_number:
                stale_sizes.append(larger_size)
        # 3. try one, if half of this batch's time or more seems fixed, and it
        # took no more than half of the timeout
        model = _model_through_newest(list(self._last_by_size.values()))
        target_ms = self._timeout_ms / TIMEOUT_SHARE
        self._is_probe = bool(stale_sizes) and batch.took_ms <= 2 * min(model.fixed_ms, target_ms)
        if self._is_probe:
            # they are not stale any more: the next of them is tried after as
            # many batches again
            self._number_by_size.update(dict.fromkeys(stale_sizes, self._batch_count))


def _record_bounds(batches: Sequence[_Batch], model: _TimeModel, target_ms: float) -> _RecordBounds:
    """Return how many records end within the target time, by a model of some batches, the newest
    one last.
    """
    newest = batches[-1]
    # With a target of 1,000 ms, 800 ms fixed and 1 ms for a record, 500 end
    # in time, not 200: the records' own work may take half of the target even
    # if the rest is fixed, since less of it would not help.
    work_ms = max(target_ms - model.fixed_ms, target_ms / 2)
    by_model = work_ms / model.record_ms if model.record_ms else math.inf
    doubled = 2.0 * newest.record_count
    if newest.took_ms > target_ms:
        return _RecordBounds(by_model, without_model=doubled)
    explained = [batch for batch in batches if model.likeness(batch)]
    # Even if all of a batch's time was the records', the next one ends
    # within half of the timeout: behind 100 records in 400 ms it has
    # 500 at most, which end in 2,000 ms of 4,000.
    without_model = max(2 * target_ms * batch.record_count / batch.took_ms for batch in explained)
    if len(batches) == 1:
        own_ms = max(newest.took_ms - FIRST_FIXED_MS, newest.took_ms / 2)
        by_model = target_ms * newest.record_count / own_ms
    if len(explained) == 1:  # it is not known yet how much of its time is fixed
        by_model = max(by_model, doubled, PROBE_RECORDS)
        without_model = max(without_model, PROBE_RECORDS)
    elif newest.took_ms <= CLEARLY_BELOW * target_ms:
        by_model = max(by_model, doubled)
    return _RecordBounds(by_model, without_model)


def _model_through_newest(batches: Sequence[_Batch]) -> _TimeModel:
    """Choose the model that fits the newest batch, the last one, and explains most of the others.

    A model explains a batch the better, the nearer their times are, and not at
    all from a factor of two on. Of models that explain equally much that with
    the longer time per record is taken, because it allows fewer records.
    """
    record_count, took_ms = batches[-1]
    # all time is the records', or all of it is fixed
    models = [_TimeModel(0.0, took_ms / record_count), _TimeModel(float(took_ms), 0.0)]
    for earlier in batches[:-1]:
        larger, smaller = max(earlier.record_count, record_count), min(earlier.record_count, record_count)
        if larger < SIZES_DIFFER * smaller:
            continue
        # if 100 records took 300 ms, and the newest 200 took 400, then 1 ms
        # for each, and 200 ms fixed
        record_ms = (took_ms - earlier.took_ms) / (record_count - earlier.record_count)
        if 0 < record_ms < took_ms / record_count:
            models.append(_TimeModel(took_ms - record_ms * record_count, record_ms))

    def explanation_and_slope(model: _TimeModel) -> tuple[float, float]:
        """Return how well it explains all batches, each older one counting
        half as much, and its time per record.
        """
        newest_first = enumerate(reversed(batches))
        explanation = sum(2.0**-age * model.likeness(batch) for age, batch in newest_first)
        # rounded, so that models that explain the same are equal
        return round(explanation, 6), model.record_ms

    return max(models, key=explanation_and_slope)
