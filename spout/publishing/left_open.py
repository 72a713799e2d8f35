"""What bolts left open: tuples that one neither acked nor failed, so that their roots wait for their timeout.

A report lists, as outstanding, every tuple that a bolt left open, and what was emitted on it: the whole tree
misses them. The bolt that is named is the one that received the tuple, not those that acked what was emitted
on it. Tuples that are held on purpose (`spout.hold`, `spout.keyed`) are listed apart, and are not told of.

Source: docs/design/protocol.md, section 5.2; Storm says nothing until the timeout (S81).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from acker.config.topics import Input
from acker.identity import I64, subscription_key
from acker.sorted_arrays import among, distinct
from acker.units import duration_text
from spout.publishing.fold import Evaluated, Outcome, TaskReport
from spout.publishing.isolated_records import places
from spout.tuples.counts import What

TELL_MS: Final = 60_000
"""A bolt that goes on leaving tuples open is told of this often."""

_NONE: I64 = np.empty(0, np.int64)
_LOGGER = logging.getLogger("windhover.spout")


class LeftOpen:
    """Tells what the bolts of one stream leave open: of each one at once, and then once a minute at most."""

    def __init__(self, now_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000) -> None:
        """Begin with nothing told."""
        self._now_ms = now_ms
        self._told_ms: dict[tuple[str, str], int] = {}
        self._untold: dict[tuple[str, str], int] = {}

    def tell(
        self, query: str, evaluations: Sequence[Evaluated], outcome: Outcome, inputs: Sequence[Input]
    ) -> None:
        """Warn of the bolts that left roots of a batch open; `query` is the id of who runs it."""
        for bolt, roots in left_open(evaluations, outcome).items():
            key = query, bolt
            count = self._untold[key] = self._untold.get(key, 0) + len(roots)
            now_ms = self._now_ms()
            if key in self._told_ms and now_ms - self._told_ms[key] < TELL_MS:
                continue
            self._told_ms[key], self._untold[key] = now_ms, 0
            _LOGGER.warning(
                "left_open operator=%s roots=%d first=%s: bolt %r neither acked nor failed tuples of these"
                " roots; %s",
                bolt, count, places(outcome.plan, inputs)(int(roots[0])), bolt, _end_of(outcome),
            )  # fmt: skip


def left_open(evaluations: Iterable[Evaluated], outcome: Outcome) -> dict[str, I64]:
    """Return which roots of a batch each bolt left open, as ascending indices.

    Roots that failed are left out, which need no timeout, and those that are best effort, which have none.
    """
    failed = distinct(np.concatenate([_NONE, *(roots for _, roots in outcome.failed)]))
    waiting = outcome.partial[~among(outcome.partial, failed)]
    found: dict[str, list[I64]] = {}
    for each in evaluations:
        for bolt, roots in _left(each.report):
            found.setdefault(bolt, []).append(roots)
    # an evaluation that does not count has left open nothing of these
    here = {bolt: distinct(np.concatenate(parts)) for bolt, parts in found.items()}
    kept = {bolt: roots[among(roots, waiting)] for bolt, roots in sorted(here.items())}
    return {bolt: roots for bolt, roots in kept.items() if len(roots)}


def _left(report: TaskReport) -> Iterator[tuple[str, I64]]:
    """Yield the bolts of a report that left tuples open, with the indices of their roots."""
    if not report.outstanding:
        return
    receivers = {
        subscription_key(stream.component, stream.stream, bolt): bolt
        for what, bolt, stream in report.counts
        if what is What.EXECUTED
    }
    known = {path: set(map(tuple, rows.tolist())) for path, rows in report.outstanding.items()}
    for path, rows in report.outstanding.items():
        parents = known.get(path[:-1], set()) if path else set()
        own = [row[0] for row in rows.tolist() if tuple(row[:-1]) not in parents]
        if own:
            bolt = receivers.get(path[-1], report.operator) if path else report.head
            yield bolt, np.array(own, np.int64)


def _end_of(outcome: Outcome) -> str:
    timeout_ms = outcome.plan.timeout_ms
    if not timeout_ms:
        return "they stay open, since their input has no timeout"
    return f"they time out, the first after {duration_text(timeout_ms)}, and are replayed"
