"""What the driver logs of a batch by name: bolts that left roots open, and records that were isolated.

A bolt leaves a tuple open when it neither acks nor fails it, so that its root waits for its timeout; Storm
says nothing until then (S81). A report lists, as outstanding, every tuple that a bolt left open, and what
was emitted on it; the bolt that is named is the one that received the tuple. Tuples that are held on purpose
(`spout.hold`, `spout.keyed`) are listed apart, and so are those that the bolt of `spout.ack_anchors` or one
behind a keyed bolt leaves open: their records may be of earlier batches. A record is isolated when it ended
or hung a process.

Source: docs/design/protocol.md, sections 3 (rule 11) and 5.2.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from acker.config.topics import Input
from acker.hot_paths import among, distinct
from acker.identity import I64
from acker.units import duration_text
from acker.untrusted import UntrustedName
from replay.records.places import record_place
from spout.planning.plan import BatchPlan
from spout.publishing.delayed import by_key
from spout.publishing.fold import BatchOutcome, Evaluated, left_by
from spout.publishing.root_marks import RootMark
from spout.tuples.failures import Cause
from spout.tuples.poison import HUNG, WORKER_DIED

WARN_MS: Final = 60_000
"""A bolt that goes on leaving tuples open is logged this often."""

LOGGED_MAX: Final = 100
"""Isolated records of one batch that are logged by name; more are counted only."""

_NONE: I64 = np.empty(0, np.int64)
_ISOLATED: Final = (WORKER_DIED, HUNG)
_LOGGER = logging.getLogger("windhover.spout")


class LeftOpen:
    """Logs what the bolts of one stream leave open: of each one at once, and then once a minute at most."""

    def __init__(self, now_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000) -> None:
        self._now_ms = now_ms
        self._logged_ms: dict[tuple[str, str], int] = {}
        self._unlogged: dict[tuple[str, str], int] = {}

    def warn(
        self, query: str, evaluations: Sequence[Evaluated], outcome: BatchOutcome, inputs: Sequence[Input]
    ) -> None:
        """Warn of the bolts that left roots of a batch open; `query` is the id of who runs it."""
        timeout_ms, place = outcome.plan.timeout_ms, places(outcome.plan, inputs)
        own = left_open(evaluations, outcome).items()
        after = f"after {duration_text(timeout_ms)}"
        found = [(bolt, len(roots), place(int(roots[0])), after) for bolt, roots in own]
        longest_ms = max((one.timeout_ms + one.held_longer_ms for one in inputs), default=timeout_ms)
        within = f"within {duration_text(longest_ms)}"  # they were emitted before, and held since
        for bolt, named in held_open(outcome).items():
            found.append((bolt, len(named), record_place(*named[0], inputs), within))
        for bolt, roots, first, when in found:
            key = query, bolt
            count = self._unlogged[key] = self._unlogged.get(key, 0) + roots
            now_ms = self._now_ms()
            if key in self._logged_ms and now_ms - self._logged_ms[key] < WARN_MS:
                continue
            self._logged_ms[key], self._unlogged[key] = now_ms, 0
            _LOGGER.warning(
                "left_open operator=%s roots=%d first=%s: bolt '%s' neither acked nor failed tuples of these"
                " roots; %s",
                UntrustedName(bolt),
                count,
                first,
                UntrustedName(bolt),
                f"they time out, the first {when}, and are replayed"
                if timeout_ms
                else "they stay open, since their input has no timeout",
            )


def left_open(evaluations: Iterable[Evaluated], outcome: BatchOutcome) -> dict[str, I64]:
    """Return the roots, `(n,) int64`, that each bolt left open, without failed and best-effort ones."""
    failed_roots = outcome.marks.of(RootMark.FAILED).roots()
    open_marks = outcome.marks.of(RootMark.OUTSTANDING).but(failed_roots).ascending()
    waiting = outcome.plan.index().find_roots(open_marks.sources, open_marks.positions)
    own = (each.report for each in evaluations if each.report.keyed_roots is None)
    found = by_key(pair for report in own for pair in left_by(report))
    # an evaluation that does not count has left open nothing of these
    here = {bolt: distinct(np.concatenate(parts)) for bolt, parts in found.items()}
    kept = {bolt: roots[among(roots, waiting)] for bolt, roots in sorted(here.items())}
    return {bolt: roots for bolt, roots in kept.items() if len(roots)}


def held_open(outcome: BatchOutcome) -> dict[str, list[tuple[int, int]]]:
    """Return source and position of the roots of tuples that were held, and left open, by bolt, ascending.

    Those that failed are left out.
    """
    failed_roots = outcome.marks.of(RootMark.FAILED).roots()
    roots_by_bolt: dict[str, set[tuple[int, int]]] = {}
    for source, position, _, _, cause in outcome.marks.of(RootMark.LEFT_OPEN).but(failed_roots).rows():
        if cause is not None:
            roots_by_bolt.setdefault(cause.operator, set()).add((source, position))
    return {bolt: sorted(roots) for bolt, roots in sorted(roots_by_bolt.items())}


class IsolatedRecord(NamedTuple):
    """A record that ended or hung a process: its place, as `places` names it, and why it failed."""

    place: str
    cause: Cause


def isolated_records(outcome: BatchOutcome, inputs: Sequence[Input]) -> Iterator[IsolatedRecord]:
    """Name what was isolated in a batch; a record of another input has its source's number."""
    for cause, marks in outcome.own(RootMark.FAILED).by_cause():
        if cause.error in _ISOLATED:
            for source, position in zip(marks.sources.tolist(), marks.positions.tolist(), strict=True):
                yield IsolatedRecord(record_place(source, position, inputs), cause)


def places(plan: BatchPlan, inputs: Sequence[Input]) -> Callable[[int], str]:
    """Return what names a root's record, by its index, as `record_place` does."""
    index = plan.index()

    def place(root: int) -> str:
        return record_place(*index.root(root), inputs)

    return place


def counted(outcome: BatchOutcome) -> Mapping[str, int]:
    """Count the isolated records of a batch, by error."""
    isolated = Counter[str]()
    for cause, marks in outcome.own(RootMark.FAILED).by_cause():
        if cause.error in _ISOLATED:
            isolated[cause.error] += len(marks)
    return isolated
