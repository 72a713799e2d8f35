"""What bolts did, counted exactly, by component and stream; pure.

Tasks count, a batch's counts are in its reports, and the driver adds those of the batches that it publishes.
So a task or a batch that runs again is counted once.

=============  ======================================================  ==========================
what           counted for                                             `total_ns`
=============  ======================================================  ==========================
emitted        a tuple that a component emitted on its stream          0
transferred    one for each delivery of it                             0
executed       a tuple that a bolt received, by the stream it is of    time within ``execute``
acked          likewise, when the bolt acked it                        from ``execute`` to ack
failed         likewise, when the bolt failed it                       from ``execute`` to fail
=============  ======================================================  ==========================

A bolt's rows are timed together, so of an executed tuple only the mean of its rows is known. `Measure.times`
is a histogram of these means, each for as many tuples as it had rows: one slow tuple among many fast ones
does not show.

Source: Storm's ``BoltExecutorStats``, which samples one tuple of twenty; nothing is sampled here (S74).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from spout.tuples.tuple import StreamId

TIME_BOUNDS_NS: Final = tuple(step * 10**exponent for exponent in range(3, 11) for step in (1, 2, 5))
"""Upper bounds of the classes of `Measure.times`, 1 us to 50 s; one class more has what took longer."""

Times = tuple[tuple[int, int], ...]
"""A histogram: ascending numbers of classes, each with how many tuples it has, those with none left out."""


class What(StrEnum):
    """What is counted."""

    EMITTED = "emitted"
    TRANSFERRED = "transferred"
    EXECUTED = "executed"
    ACKED = "acked"
    FAILED = "failed"


class Counted(NamedTuple):
    """What is counted, in which component, for which stream: its own, or the one that it reads."""

    what: What
    component: str
    stream: StreamId


class Measure(NamedTuple):
    """How often, and how long in all, ns; of what was executed also how long for each tuple."""

    tuples: int = 0
    total_ns: int = 0
    times: Times = ()

    @property
    def mean_ms(self) -> float:
        """How long on average, ms; 0 where nothing was counted."""
        return self.total_ns / self.tuples / 1_000_000 if self.tuples else 0.0


Counts = Mapping[Counted, Measure]


def added(every: Iterable[Counts]) -> Counts:
    """Return the sum of counts, sorted."""
    total: dict[Counted, Measure] = {}
    for counts in every:
        for counted, measure in counts.items():
            before = total.get(counted)
            total[counted] = measure if before is None else _sum(before, measure)
    return dict(sorted(total.items()))


def _sum(one: Measure, other: Measure) -> Measure:
    times = one.times or other.times
    if one.times and other.times:
        both = Counter(dict(one.times))
        both.update(dict(other.times))
        times = tuple(sorted(both.items()))
    return Measure(one.tuples + other.tuples, one.total_ns + other.total_ns, times)


def count_of(counts: Counts, what: What | str, component: str, source: str | None = None) -> int:
    """Add up the tuples of a component, of all streams or those of `source`; see `TopologyStatus.count`."""
    return sum(
        measure.tuples
        for counted, measure in counts.items()
        if (counted.what, counted.component) == (what, component)
        and source in (None, counted.stream.component)
    )


class Tally:
    """Counts in one task."""

    def __init__(self) -> None:
        self._found: dict[Counted, list[int]] = {}
        self._times: dict[Counted, Counter[int]] = {}

    def add(self, counted: Counted, count: int, total_ns: int = 0) -> None:
        """Count tuples that took so long together; `count` is not 0."""
        found = self.slot(counted)
        found[0] += count
        found[1] += total_ns
        if counted.what is What.EXECUTED:
            times = self._times.setdefault(counted, Counter())
            times[bisect_left(TIME_BOUNDS_NS, total_ns / count)] += count

    def slot(self, counted: Counted) -> list[int]:
        """Return the list [tuples, total ns] of a count; whoever counts each tuple changes it directly."""
        return self._found.setdefault(counted, [0, 0])

    def counts(self) -> Counts:
        return {
            counted: Measure(tuples, total_ns, tuple(sorted(self._times.get(counted, {}).items())))
            for counted, (tuples, total_ns) in self._found.items()
        }

    def clear(self) -> None:
        self._times.clear()
        for found in self._found.values():
            found[:] = 0, 0
