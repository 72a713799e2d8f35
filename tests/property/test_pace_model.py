"""The size of batches after any history of batches, held against the rules of `BatchPace`, written plainly.

Sizes and times are drawn where a rule begins or ends: at the target, at half of it, at a factor of 1.5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spout.planning.pace import BatchPace

TIMEOUT_MS: Final = 4_000
TARGET_MS: Final = 1_000
SIZES: Final = [
    1,
    2,
    3,
    9,
    10,
    99,
    100,
    150,
    999,
    1_000,
    1_001,
    1_023,
    1_024,
    1_500,
    2_000,
    3_000,
    10_000,
    20_000,
]
TIMES_MS: Final = [1, 2, 100, 249, 250, 251, 400, 499, 500, 501, 750, 799, 800, 801, 999, 1_000, 1_001, 1_500,
                   1_999, 2_000, 2_001, 2_500, 3_999, 4_000, 4_001, 9_000]  # fmt: skip


@dataclass
class Batch:
    """A batch that counts: the last one of its size."""

    records: int
    ms: int
    number: int
    remembered_from: int

    @property
    def size(self) -> int:
        """Return the power of two below it."""
        return math.floor(math.log2(self.records))


@dataclass(frozen=True)
class Line:
    """A fixed time, and a time for each record."""

    fixed_ms: float
    record_ms: float

    def explains(self, batch: Batch) -> float:
        """Return 1 for the very time of a batch, and 0 for a time that is wrong by a factor of two."""
        ms = self.fixed_ms + self.record_ms * batch.records
        return max(0.0, 1 - abs(math.log2(ms / batch.ms)))


class PlainPace:
    """The rules, one after another."""

    def __init__(self) -> None:
        """Begin with no batch."""
        self.batches: list[Batch] = []
        self.count = 0
        self.is_first = True
        self.tries_larger = False

    def end(self, records: int, ms: int) -> None:
        """Note a batch."""
        is_slow_first = self.is_first and ms > TARGET_MS
        if records:
            self.is_first = False
        if not records or is_slow_first:
            return
        self.count += 1
        batch = Batch(records, ms, self.count, self.count)
        self.batches = [other for other in self.batches if other.size != batch.size] + [batch]
        forgotten = [
            other
            for other in self.batches
            if other.size > batch.size and self.count - other.remembered_from >= 6
        ]
        fixed_ms = self.line().fixed_ms
        self.tries_larger = bool(forgotten) and ms <= 2 * fixed_ms and ms <= 2 * TARGET_MS
        if self.tries_larger:
            for other in forgotten:
                other.remembered_from = self.count

    def line(self) -> Line:
        """Return the line through the newest batch that explains most; of two the steeper one."""
        newest = self.batches[-1]
        steepest = newest.ms / newest.records
        lines = [Line(0.0, steepest), Line(float(newest.ms), 0.0)]
        for other in self.batches[:-1]:
            larger, smaller = max(other.records, newest.records), min(other.records, newest.records)
            if 2 * larger < 3 * smaller:
                continue
            record_ms = (newest.ms - other.ms) / (newest.records - other.records)
            if 0 < record_ms < steepest:
                lines.append(Line(newest.ms - record_ms * newest.records, record_ms))

        def score(line: Line) -> tuple[float, float]:
            weighted = sum(line.explains(batch) / 2**age for age, batch in enumerate(self.batches[::-1]))
            return round(weighted, 6), line.record_ms

        return max(lines, key=score)

    def allowed(self) -> int:
        """Return how many records the next batch may have."""
        if not self.batches:
            return 10_000 if self.is_first else 1_000
        newest, line = self.batches[-1], self.line()
        count, ms = newest.records, newest.ms
        explained = [batch for batch in self.batches if line.explains(batch)]
        is_hopeless = line.fixed_ms >= TIMEOUT_MS or (ms > TARGET_MS and line.record_ms == 0)
        if is_hopeless and ms <= TIMEOUT_MS // 2:
            return 2 * count
        if is_hopeless:
            return max(count // 2, min(count, 1_000))
        work_ms = max(TARGET_MS - line.fixed_ms, TARGET_MS / 2)
        fits = work_ms / line.record_ms if line.record_ms else math.inf
        most: float = 2 * count
        if ms <= TARGET_MS:
            most = max(2 * TARGET_MS * batch.records / batch.ms for batch in explained)
            if len(self.batches) == 1:
                fits = TARGET_MS * count / max(ms - 250, ms / 2)
            if len(explained) == 1:
                fits, most = max(fits, 2 * count, 1_000), max(most, 1_000)
            elif ms <= 0.8 * TARGET_MS:
                fits = max(fits, 2 * count)
        if self.tries_larger:
            fits, most = max(fits, 2 * count), max(most, 2 * count)
        return max(1, math.ceil(max(min(fits, most), count / 10)))


HISTORY = st.lists(
    st.tuples(
        st.one_of(st.just(-1), st.sampled_from(SIZES), st.integers(0, 30_000)),
        st.one_of(st.sampled_from(TIMES_MS), st.integers(1, 5_000)),
    ),
    max_size=14,
)
"""Batches: how many records, -1 for as many as are allowed, and how long they take, ms."""


@settings(max_examples=400)
@example([(10, 900), (100, 4_100), (1_000, 5_000)])  # all of the timeout is fixed, to the millisecond
@example([(100, 400), (150, 500)])  # sizes that differ just enough to show a fixed time
@example([(10, 1_000)])  # a first batch of the very target counts
@given(HISTORY)
def test_a_batch_is_as_large_as_the_rules_say(history: Sequence[tuple[int, int]]) -> None:
    pace, plain = BatchPace(TIMEOUT_MS), PlainPace()
    now_ms = 0
    for drawn, ms in history:
        allowed = pace.next_records_max()
        assert allowed == plain.allowed()
        records = allowed if drawn < 0 else drawn
        pace.begin_batch(records, now_ms)
        now_ms += ms
        assert pace.end_batch(now_ms) == ms
        plain.end(records, ms)
    assert pace.next_records_max() == plain.allowed()


FIXED = st.integers(0, 3_000)


@settings(max_examples=100)
@given(FIXED, st.integers(1, 2_000).map(lambda thousandths: Fraction(thousandths, 1_000)))
def test_a_steady_query_comes_to_rest_within_its_timeout(fixed_ms: int, record_ms: Fraction) -> None:
    """Where most time is fixed a larger size is tried now and then; none of these times out."""
    pace, plain = BatchPace(TIMEOUT_MS), PlainPace()
    now_ms = 0
    took: list[int] = []
    for _ in range(30):
        records = pace.next_records_max() or 0
        assert records == plain.allowed()
        ms = max(1, int(fixed_ms + records * record_ms))
        pace.begin_batch(records, now_ms)
        now_ms += ms
        pace.end_batch(now_ms)
        plain.end(records, ms)
        took.append(ms)
    if fixed_ms <= TARGET_MS:
        assert max(took[5:]) <= TIMEOUT_MS


@pytest.mark.parametrize(
    ("timeout_ms", "records"),
    [(500, 10_000), (30_000, 10_000), (30_003, 10_001), (59_999, 19_999), (60_000, 20_000), (90_000, 20_000)],
)
def test_a_first_batch_has_as_long_for_a_record_as_with_half_a_minute(timeout_ms: int, records: int) -> None:
    assert BatchPace(timeout_ms).next_records_max() == records


def test_without_a_timeout_no_batch_is_too_large() -> None:
    pace = BatchPace(0)
    pace.begin_batch(10, 0)
    assert pace.end_batch(5) == 5
    assert pace.next_records_max() is None


def test_a_batch_runs_from_its_planning_to_its_end_and_is_noted_once() -> None:
    pace = BatchPace(TIMEOUT_MS)
    assert not pace.is_running
    assert pace.end_batch(5) is None
    pace.begin_batch(10_000, 1_000)
    assert pace.is_running
    assert pace.end_batch(1_500) == 500
    assert not pace.is_running
    allowed = pace.next_records_max()
    assert pace.end_batch(1_600) is None
    assert pace.next_records_max() == allowed == 40_000


@pytest.mark.parametrize(("ended_ms", "took_ms"), [(999, None), (1_000, 1), (1_001, 1), (1_002, 2)])
def test_a_batch_takes_a_millisecond_at_least_and_none_where_the_clock_was_set_back(
    ended_ms: int, took_ms: int | None
) -> None:
    pace = BatchPace(TIMEOUT_MS)
    pace.begin_batch(100, 1_000)
    assert pace.end_batch(ended_ms) == took_ms
    is_unchanged = pace.next_records_max() == 10_000
    assert is_unchanged == (took_ms is None), "of a time that nobody knows nothing is learned"


@pytest.mark.parametrize(("discounted", "left"), [(0, 100), (40, 60), (99, 1), (100, 0), (200, 0)])
def test_records_that_were_none_do_not_count(discounted: int, left: int) -> None:
    pace, other = BatchPace(TIMEOUT_MS), BatchPace(TIMEOUT_MS)
    for one, records in ((pace, 100), (other, left)):
        one.begin_batch(records, 0)
        if one is pace:
            one.take_off_records(discounted)
        assert one.end_batch(700) == 700
    assert pace.next_records_max() == other.next_records_max()
    assert (pace.next_records_max() == 10_000) == (left == 0)
