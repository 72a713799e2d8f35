"""What bolts did, counted exactly, by component and stream; pure.

Tasks count, a batch's counts are in its reports, and the driver adds those of
the batches that it publishes. So a task or a batch that runs again is counted
once.

=============  ======================================================  ==========================
what           counted for                                             `total_ns`
=============  ======================================================  ==========================
emitted        a tuple that a component emitted on its stream          0
transferred    one for each delivery of it                             0
executed       a tuple that a bolt received, by the stream it is of    time within ``execute``
acked          likewise, when the bolt acked it                        from ``execute`` to ack
failed         likewise, when the bolt failed it                       from ``execute`` to fail
=============  ======================================================  ==========================

A bolt's rows are timed together, so of an executed tuple only the mean of its
rows is known. `Measure.times` is a histogram of these means, each for as many
tuples as it had rows: one slow tuple among many fast ones does not show.

Source: Storm's ``BoltExecutorStats``, which samples one tuple of twenty;
nothing is sampled here (S74).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from spout.tuples.tuple import StreamId

_POWERS_OF_TEN: Final = tuple(10**exponent for exponent in range(3, 11))

TIME_BOUNDS_NS: Final = tuple(factor * power for power in _POWERS_OF_TEN for factor in (1, 2, 5))
"""Upper bounds of the buckets of `Measure.times`, 1 us to 50 s; one bucket
more has what took longer.
"""

Times = tuple[tuple[int, int], ...]
"""A histogram: ascending numbers of buckets, each with how many tuples it
has; buckets without tuples are left out.
"""


class What(StrEnum):
    """What is counted."""

    EMITTED = "emitted"
    TRANSFERRED = "transferred"
    EXECUTED = "executed"
    ACKED = "acked"
    FAILED = "failed"


class Counted(NamedTuple):
    """What is counted, in which component, for which stream: of what it
    emitted its own stream, else the one that it reads.
    """

    what: What
    component: str
    stream: StreamId


class Measure(NamedTuple):
    """How many tuples, and how long in all, ns; of what was executed also
    `times`, a histogram.
    """

    tuples: int = 0
    total_ns: int = 0
    times: Times = ()

    @property
    def mean_ms(self) -> float:
        """How long on average, ms; 0 where nothing was counted."""
        return self.total_ns / self.tuples / 1_000_000 if self.tuples else 0.0


Counts = Mapping[Counted, Measure]
"""How much was counted, by what, component and stream."""


def sum_of_counts(summands: Iterable[Counts]) -> Counts:
    """Return the sum of counts, sorted."""
    total: dict[Counted, Measure] = {}
    for counts in summands:
        for counted, measure in counts.items():
            if counted in total:
                total[counted] = _sum(total[counted], measure)
            else:
                total[counted] = measure
    return dict(sorted(total.items()))


def _sum(measure: Measure, summand: Measure) -> Measure:
    """Return the sum of two measures of one component and stream."""
    times = measure.times or summand.times
    if measure.times and summand.times:
        tuples_by_bucket = Counter(dict(measure.times))
        tuples_by_bucket.update(dict(summand.times))
        times = tuple(sorted(tuples_by_bucket.items()))
    return Measure(measure.tuples + summand.tuples, measure.total_ns + summand.total_ns, times)


def count_of(counts: Counts, what: What | str, component: str, source: str | None = None) -> int:
    """Return how many tuples of a component are counted; see `TopologyStatus.count`.

    `source`: only those of streams of this component; None: of all streams.
    """
    tuples = 0
    for counted, measure in counts.items():
        is_of_component = (counted.what, counted.component) == (what, component)
        if is_of_component and source in (None, counted.stream.component):
            tuples += measure.tuples
    return tuples


class Tally:
    """Counts in one task."""

    def __init__(self) -> None:
        # by what is counted: a slot, which is a list of two numbers, the tuples and their total ns
        self._slots: dict[Counted, list[int]] = {}
        # by what is counted, if that is timed: the tuples by bucket of `TIME_BOUNDS_NS`
        self._histograms: dict[Counted, Counter[int]] = {}

    def add(self, counted: Counted, count: int, total_ns: int = 0) -> None:
        """Count tuples that took so long together; `count` is not 0."""
        slot = self.slot(counted)
        slot[0] += count
        slot[1] += total_ns
        if counted.what is What.EXECUTED:
            tuples_by_bucket = self._histograms.setdefault(counted, Counter())
            mean_ns = total_ns / count
            bucket = bisect_left(TIME_BOUNDS_NS, mean_ns)
            tuples_by_bucket[bucket] += count

    def slot(self, counted: Counted) -> list[int]:
        """Return the list [tuples, total ns] of a count; a new one has 0, 0.

        Who counts tuple by tuple adds to its numbers directly, which takes
        less time than `add`. It stays the same list after `clear`.
        """
        return self._slots.setdefault(counted, [0, 0])

    def counts(self) -> Counts:
        """Return what was counted since `clear`; what was counted only before
        it has 0 tuples.
        """
        measures: dict[Counted, Measure] = {}
        for counted, (tuples, total_ns) in self._slots.items():
            tuples_by_bucket = self._histograms.get(counted, Counter())
            times = tuple(sorted(tuples_by_bucket.items()))
            measures[counted] = Measure(tuples, total_ns, times)
        return measures

    def clear(self) -> None:
        """Count from 0 again, in the same slots."""
        self._histograms.clear()
        for slot in self._slots.values():
            slot[:] = 0, 0
