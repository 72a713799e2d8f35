"""What bolts did, added up over tasks and batches."""

from __future__ import annotations

import pytest

from spout.tuples.counts import TIME_BOUNDS_NS, Counted, Measure, Tally, What, count_of, sum_of_counts
from spout.tuples.tuple import StreamId

LINES, WORDS = StreamId("lines"), StreamId("split", "words")
RUN = Counted(What.EXECUTED, "split", LINES)
SENT = Counted(What.EMITTED, "split", WORDS)


@pytest.mark.parametrize(
    ("measure", "mean_ms"),
    [
        (Measure(), 0.0),
        (Measure(0, 5_000_000), 0.0),
        (Measure(1, 2_000_000), 2.0),
        (Measure(4, 2_000_000), 0.5),
        (Measure(8, 8), 1e-6),
    ],
)
def test_a_mean_is_in_milliseconds_and_is_nothing_where_nothing_ran(measure: Measure, mean_ms: float) -> None:
    assert measure.mean_ms == mean_ms


HISTOGRAMS = [(), ((0, 2),), ((3, 1),), ((0, 5), (3, 4), (7, 1))]


@pytest.mark.parametrize("other", HISTOGRAMS)
@pytest.mark.parametrize("times", HISTOGRAMS)
def test_histograms_are_added_class_by_class_and_one_that_is_empty_adds_nothing(
    times: tuple[tuple[int, int], ...], other: tuple[tuple[int, int], ...]
) -> None:
    found = sum_of_counts([{RUN: Measure(3, 30, times)}, {RUN: Measure(4, 400, other)}])[RUN]
    model = {number: dict(times).get(number, 0) + dict(other).get(number, 0) for number in range(9)}
    assert found == Measure(7, 430, tuple((number, count) for number, count in model.items() if count))


def test_counts_are_sorted_whatever_the_order_of_the_tasks() -> None:
    one, other = {RUN: Measure(1, 5)}, {SENT: Measure(2)}
    assert list(sum_of_counts([one, other])) == list(sum_of_counts([other, one])) == [SENT, RUN]


@pytest.mark.parametrize(
    ("what", "component", "source", "count"),
    [
        (What.EXECUTED, "split", None, 7),
        ("executed", "split", "lines", 3),
        (What.EXECUTED, "split", "split", 4),
        (What.EXECUTED, "split", "count", 0),
        (What.EXECUTED, "count", None, 9),
        (What.ACKED, "split", None, 0),
    ],
)
def test_tuples_are_counted_by_what_they_met_where_and_whence(
    what: What | str, component: str, source: str | None, count: int
) -> None:
    counts = {
        RUN: Measure(3),
        RUN._replace(stream=WORDS): Measure(4),
        RUN._replace(component="count"): Measure(9),
    }
    assert count_of(counts, what, component, source) == count


def test_a_task_counts_rows_in_the_class_of_their_mean_time() -> None:
    """A time on a bound is in the class of that bound; what takes longer than all is in the last class."""
    tally = Tally()
    for rows, total_ns in ((2, 2 * TIME_BOUNDS_NS[0]), (3, 3 * TIME_BOUNDS_NS[0] + 1), (1, 10**15)):
        tally.add(RUN, rows, total_ns)
    tally.add(SENT, 5)
    total_ns = 5 * TIME_BOUNDS_NS[0] + 1 + 10**15
    assert tally.counts() == {
        RUN: Measure(6, total_ns, ((0, 2), (1, 3), (len(TIME_BOUNDS_NS), 1))),
        SENT: Measure(5),
    }
    slot = tally.slot(SENT)
    tally.clear()
    slot[0] += 1
    assert tally.counts() == {RUN: Measure(), SENT: Measure(1)}, "whoever has a slot keeps it"
