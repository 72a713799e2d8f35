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

Source: Storm's ``BoltExecutorStats``, which samples one tuple of twenty; nothing is sampled here (S74).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from spout.tuples.tuple import StreamId


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
    """How often, and how long in all, ns."""

    tuples: int = 0
    total_ns: int = 0

    @property
    def mean_ms(self) -> float:
        """How long on average, ms; 0 where nothing was counted."""
        return self.total_ns / self.tuples / 1_000_000 if self.tuples else 0.0


Counts = Mapping[Counted, Measure]


def added(every: Iterable[Counts]) -> Counts:
    """Return the sum of counts, ordered by what they are."""
    total: dict[Counted, Measure] = {}
    for counts in every:
        for counted, (tuples, total_ns) in counts.items():
            before = total.get(counted, Measure())
            total[counted] = Measure(before.tuples + tuples, before.total_ns + total_ns)
    return dict(sorted(total.items()))


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

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[Counted, list[int]] = {}

    def add(self, counted: Counted, count: int, total_ns: int = 0) -> None:
        found = self.slot(counted)
        found[0] += count
        found[1] += total_ns

    def slot(self, counted: Counted) -> list[int]:
        """Return the list [tuples, total ns] of a count; whoever counts each tuple changes it directly."""
        return self._found.setdefault(counted, [0, 0])

    def counts(self) -> Counts:
        return {counted: Measure(*found) for counted, found in self._found.items()}

    def clear(self) -> None:
        for found in self._found.values():
            found[:] = 0, 0
