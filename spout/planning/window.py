"""The pending window: which emitted roots have no verdict yet, and up to where a group may commit.

For each source the window keeps the pending positions as intervals, those of them that are known to
be empty, and the position behind the highest emitted one. A verdict for a root that is not pending
changes nothing; it is counted as `late` below that position, as `unknown` above it.

Source: docs/design/protocol.md, sections 3 (rules 5 and 6) and 5.1;
docs/design/conformance.md, S57, S58, S87 to S102, P1 to P6.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from acker.root_sets.position_set import PositionSet
from acker.root_sets.root_set import RootSet
from acker.wire.events import PositionRun, SourceRun
from acker.wire.verdict import Verdict

EMISSIONS_MAX = 1_000
"""So many emissions are kept to know the oldest pending root; of more, settled ones are dropped."""


class _Emission(NamedTuple):
    """An emission: the ranges that were emitted together, at one wall time, ms."""

    emitted_ms: int
    ranges: tuple[SourceRun, ...]


class Window:
    """What one session has emitted and not settled.

    Attributes:
        counts: how many roots were settled, by verdict.
        emitted: how many positions were emitted.
        late, unknown: for how many positions a verdict came that were not pending: they were
            settled before, or had not been emitted (see above).
    """

    __slots__ = (
        "_emissions",
        "_emissions_max",
        "_emitted_to_by_source",
        "_empty_by_source",
        "_pending_by_source",
        "counts",
        "emitted",
        "late",
        "unknown",
    )

    def __init__(self) -> None:
        """Begin without a source."""
        # the positions that are pending,
        self._pending_by_source: dict[int, PositionSet] = {}
        # those of them that hold no record,
        self._empty_by_source: dict[int, PositionSet] = {}
        # and the position behind the highest emitted one.
        self._emitted_to_by_source: dict[int, int] = {}
        self._emissions: deque[_Emission] = deque()  # the oldest first
        self._emissions_max = EMISSIONS_MAX  # more, where more than that are pending
        self.counts = Counter[Verdict]()
        self.emitted = 0
        self.late = 0
        self.unknown = 0

    @property
    def pending(self) -> int:
        """How many roots are pending."""
        return sum(len(pending) for pending in self._pending_by_source.values())

    @property
    def run_count(self) -> int:
        """How many intervals the window needs."""
        return sum(pending.holes for pending in self._pending_by_source.values())

    def count_pending(self, source: int) -> int:
        """Return how many roots of a source are pending."""
        return len(self._pending_of(source))

    def count_empty(self, source: int) -> int:
        """Return how many pending positions of a source are known to hold no record."""
        return len(self._empty_by_source.get(source, ()))

    def count_records(self, source: int) -> int:
        """Return how many records of a source are pending, at most."""
        return self.count_pending(source) - self.count_empty(source)

    def open_source(self, source: int, high: int) -> None:
        """Add a source: everything below `high` was emitted, and is settled
        unless `restore` names it.
        """
        self._pending_of(source)
        emitted_to = self._emitted_to_by_source.get(source, high)
        self._emitted_to_by_source[source] = max(high, emitted_to)

    def restore(self, runs: Sequence[SourceRun], now_ms: int) -> None:
        """Add roots that an earlier process of this session emitted and that are still pending."""
        for source, start, end in runs:
            self._pending_of(source).add(start, end)
            self._emitted_to_by_source[source] = max(end, self._emitted_to_by_source.get(source, 0))
        self._add_emission(_Emission(now_ms, tuple(runs)))

    def emit(self, runs: Sequence[SourceRun], now_ms: int, empty: Sequence[SourceRun] = ()) -> None:
        """Add ranges that were emitted at a wall time, and are pending; `empty` hold no record."""
        for source, start, end in runs:
            self.emitted += self._pending_of(source).add(start, end)
            self._emitted_to_by_source[source] = max(end, self._emitted_to_by_source.get(source, 0))
        for source, start, end in empty:
            self._empty_by_source.setdefault(source, PositionSet()).add(start, end)
        self._add_emission(_Emission(now_ms, tuple(runs)))

    def settle(self, source: int, runs: Iterable[PositionRun], verdict: Verdict) -> int:
        """Settle ascending, disjoint runs of a source; return how many roots were pending."""
        runs = list(runs)  # it is gone through more than once
        settled_count = self._pending_of(source).remove_all(runs)
        if source in self._empty_by_source:
            self._empty_by_source[source].remove_all(runs)
        self.counts[verdict] += settled_count
        emitted_to = self._emitted_to_by_source.get(source, 0)
        # emitted up to 10: of [8, 13) three are unknown; 8 and 9 are late
        # unless they were pending
        unknown_count = sum(max(0, run.end - max(run.start, emitted_to)) for run in runs)
        position_count = sum(run.end - run.start for run in runs)
        self.unknown += unknown_count
        self.late += position_count - settled_count - unknown_count
        return settled_count

    def committable(self, source: int) -> int | None:
        """Return the position below which all that was emitted is settled.

        None: nothing was emitted.
        """
        first_pending = self._pending_of(source).first
        if first_pending is not None:
            return first_pending
        return self._emitted_to_by_source.get(source)

    def pending_within(self, source: int, start: int, end: int) -> list[PositionRun]:
        """Return the parts of [start, end) that are pending, ascending."""
        return self._pending_of(source).within(start, end)

    def pending_roots(self) -> RootSet:
        """Return all roots that are pending."""
        runs: list[SourceRun] = []
        for source, pending in self._pending_by_source.items():
            runs += [SourceRun(source, start, end) for start, end in pending]
        return RootSet.of_runs(runs)

    def oldest_emitted_ms(self) -> int | None:
        """Return the wall time at which the longest pending root was emitted, ms.

        None: none is pending.
        """
        # emissions that are settled by now leave: no later call needs them
        while self._emissions:
            if self._is_pending(self._emissions[0]):
                return self._emissions[0].emitted_ms
            self._emissions.popleft()
        return None

    def _add_emission(self, emission: _Emission) -> None:
        """Keep an emission.

        Of too many drop the settled ones, and keep room for as many as are left.
        """
        self._emissions.append(emission)
        if len(self._emissions) > self._emissions_max:
            self._emissions = deque(filter(self._is_pending, self._emissions))
            self._emissions_max = max(EMISSIONS_MAX, 2 * len(self._emissions))

    def _is_pending(self, emission: _Emission) -> bool:
        """Return whether a root of an emission is pending."""
        return any(self._pending_of(run.source).overlaps(run.start, run.end) for run in emission.ranges)

    def _pending_of(self, source: int) -> PositionSet:
        """Return the pending positions of a source; one that was not known is added."""
        return self._pending_by_source.setdefault(source, PositionSet())
