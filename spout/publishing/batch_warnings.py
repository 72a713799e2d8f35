"""What the driver logs of a batch by name: bolts that left roots open, and records that were
isolated.

A bolt leaves a tuple open when it neither acks nor fails it, so that its root waits for its
timeout; Storm says nothing until then (S81). A report lists, as outstanding, every tuple that a
bolt left open, and what was emitted on it; the bolt that is named is the one that received the
tuple. Tuples that are held on purpose (`spout.hold`, `spout.keyed`) are listed apart, and so are
those that the bolt of `spout.ack_anchors` or one behind a keyed bolt leaves open: their records may
be of earlier batches. A record is isolated when it ended or hung a process.

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
from spout.publishing.delayed import by_key
from spout.publishing.fold import BatchOutcome, TaskReport, left_open_by_bolts
from spout.publishing.root_marks import RootMark
from spout.tuples.failures import Cause
from spout.tuples.poison import HUNG, WORKER_DIED

WARN_MS: Final = 60_000
"""A bolt that leaves tuples open is logged again after this time at the earliest."""

LOGGED_MAX: Final = 100
"""Isolated records of one batch that are logged by name; more are counted only."""

_ISOLATED: Final = (WORKER_DIED, HUNG)
_LOGGER = logging.getLogger("windhover.spout")


class _OpenRoots(NamedTuple):
    """What one bolt left open.

    Attributes:
        first_place: the first of the roots, as `record_place` names it.
        timeout_text: when that one times out, as in "after 30 s".
    """

    bolt: str
    root_count: int
    first_place: str
    timeout_text: str


class LeftOpen:
    """Logs what the bolts of one stream leave open.

    A bolt is logged at once, and then once in `WARN_MS` at most, with all roots that it left open
    since.
    """

    def __init__(self, now_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000) -> None:
        self._now_ms = now_ms
        # both by (query id, bolt): when it was logged last, and how many roots it left open since
        self._logged_at_ms: dict[tuple[str, str], int] = {}
        self._unlogged_counts: dict[tuple[str, str], int] = {}

    def warn(
        self, query: str, reports: Sequence[TaskReport], outcome: BatchOutcome, inputs: Sequence[Input]
    ) -> None:
        """Log the bolts that left roots of a batch open.

        A bolt that was logged within `WARN_MS` is only counted.

        Args:
            query: the id of the query that ran the batch.
            reports: of all tasks of the batch.
            outcome: of the batch.
            inputs: those of the stream, by whose names records are named.
        """
        for open_roots in _open_roots(reports, outcome, inputs):
            key = query, open_roots.bolt
            count = self._unlogged_counts.get(key, 0) + open_roots.root_count
            self._unlogged_counts[key] = count
            now_ms = self._now_ms()
            if key in self._logged_at_ms and now_ms - self._logged_at_ms[key] < WARN_MS:
                continue
            self._logged_at_ms[key] = now_ms
            self._unlogged_counts[key] = 0
            if outcome.plan.timeout_ms:
                outlook = f"they time out, the first {open_roots.timeout_text}, and are replayed"
            else:
                outlook = "they stay open, since their input has no timeout"
            _LOGGER.warning(
                "left_open operator=%s roots=%d first=%s: bolt '%s' neither acked nor failed tuples of these"
                " roots; %s",
                UntrustedName(open_roots.bolt),
                count,
                open_roots.first_place,
                UntrustedName(open_roots.bolt),
                outlook,
            )


def _open_roots(
    reports: Iterable[TaskReport], outcome: BatchOutcome, inputs: Sequence[Input]
) -> Iterator[_OpenRoots]:
    """Yield what bolts left open: of the batch's own tuples, then of those that had been held."""
    index = outcome.plan.index()
    timeout_ms = outcome.plan.timeout_ms
    after_timeout = f"after {duration_text(timeout_ms)}"
    for bolt, indices in left_open(reports, outcome).items():
        source, position = index.root(int(indices[0]))
        yield _OpenRoots(bolt, len(indices), record_place(source, position, inputs), after_timeout)
    # they were emitted before, and held since: they time out within the longest time of any input,
    # which for a held root is longer by what the input's `held_timeout` adds
    held_timeouts_ms = (input.timeout_ms + input.held_longer_ms for input in inputs)
    within_timeout = f"within {duration_text(max(held_timeouts_ms, default=timeout_ms))}"
    for bolt, held_roots in held_left_open(outcome).items():
        first_place = record_place(*held_roots[0], inputs)
        yield _OpenRoots(bolt, len(held_roots), first_place, within_timeout)


def left_open(reports: Iterable[TaskReport], outcome: BatchOutcome) -> dict[str, I64]:
    """Return the roots of the batch that each bolt left open, as ascending indices into the plan.

    Bolts ascend; one that left none open is missing. Failed and best-effort roots are left out, and
    so is what bolts behind a keyed one left open.
    """
    failed_roots = outcome.marks.of(RootMark.FAILED).roots()
    open_marks = outcome.marks.of(RootMark.OPEN).without(failed_roots).ascending()
    open_roots = outcome.plan.index().find_roots(open_marks.sources, open_marks.positions)
    # several reports may name one bolt, and one report names it once for each path
    index_parts_by_bolt = by_key(pair for report in reports for pair in left_open_by_bolts(report))
    indices_by_bolt: dict[str, I64] = {}
    for bolt, index_parts in sorted(index_parts_by_bolt.items()):
        indices = distinct(np.concatenate(index_parts))
        # a report that does not count may have left open what is acked
        indices = indices[among(indices, open_roots)]
        if len(indices):
            indices_by_bolt[bolt] = indices
    return indices_by_bolt


def held_left_open(outcome: BatchOutcome) -> dict[str, list[tuple[int, int]]]:
    """Return the roots, source and position, of held tuples that each bolt left open, ascending.

    Those that failed are left out.
    """
    failed_roots = outcome.marks.of(RootMark.FAILED).roots()
    roots_by_bolt: dict[str, set[tuple[int, int]]] = {}
    for row in outcome.marks.of(RootMark.LEFT_OPEN).without(failed_roots).rows():
        if row.cause is not None:  # each such mark has one: the bolt
            roots_by_bolt.setdefault(row.cause.operator, set()).add((row.source, row.position))
    return {bolt: sorted(roots) for bolt, roots in sorted(roots_by_bolt.items())}


class IsolatedRecord(NamedTuple):
    """A record that ended or hung a process; its place is as `record_place` names it."""

    place: str
    cause: Cause


def isolated_records(outcome: BatchOutcome, inputs: Sequence[Input]) -> Iterator[IsolatedRecord]:
    """Yield what was isolated in a batch; a record of another input has its source's number."""
    for cause, marks in outcome.own_marks(RootMark.FAILED).by_cause():
        if cause.error not in _ISOLATED:
            continue
        for source, position in zip(marks.sources.tolist(), marks.positions.tolist(), strict=True):
            yield IsolatedRecord(record_place(source, position, inputs), cause)


def isolated_counts(outcome: BatchOutcome) -> Mapping[str, int]:
    """Return how many records of a batch were isolated, by error."""
    isolated = Counter[str]()
    for cause, marks in outcome.own_marks(RootMark.FAILED).by_cause():
        if cause.error in _ISOLATED:
            isolated[cause.error] += len(marks)
    return isolated
