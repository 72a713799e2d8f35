"""Any tuples held in any batches and released in any later ones: a root is complete when all of its are."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from acker.wire.events import SourceRun, positions
from spout.publishing.delayed import RootPositions
from spout.publishing.root_marks import RootMarks
from tests.support.outcomes import released_marks
from tests.support.reports import Held, task_report
from tests.support.worlds.held_batches import A, B, array, batch, held, open_roots, plan_of

BATCHES = 4
ROOTS = 6
PLANS = [plan_of(SourceRun(A, 10 * n, 10 * n + 4), SourceRun(B, 7 * n, 7 * n + 2)) for n in range(BATCHES)]
"""Each batch emits six roots of two sources."""

Tuple = tuple[int, int, int]
"""The batch that holds it, its root there, and the batch that releases it; `BATCHES`: none does."""

tuples = st.tuples(st.integers(0, BATCHES - 1), st.integers(0, ROOTS - 1), st.integers(0, BATCHES))


def place(batch_number: int, root: int) -> tuple[int, int]:
    """Return source and position of a root."""
    every = [(run.source, at) for run in PLANS[batch_number].ranges for at in range(run.start, run.end)]
    return every[root]


@given(st.lists(tuples.filter(lambda each: each[2] >= each[0]), max_size=30))
def test_a_root_is_complete_when_every_tuple_of_it_was_released(script: list[Tuple]) -> None:
    """S26, S31, P49, P54: in whatever order, across whatever batches, and not before."""
    holds = {n: [each for each in script if each[0] == n] for n in range(BATCHES)}
    edges: dict[int, Held] = {n: held(PLANS[n], *(root for _, root, _ in holds[n])) for n in range(BATCHES)}
    done = []
    for n in range(BATCHES):
        parts = [
            (place(since, root), edges[since].edges[number])
            for since in range(n + 1)
            for number, (_, root, until) in enumerate(holds[since])
            if until == n
        ]
        at = RootPositions(array(*(source for (source, _), _ in parts)), array(*(p for (_, p), _ in parts)))
        acked = released_marks(at, np.array([edge for _, edge in parts], np.uint64))
        reports = [task_report("hold", held=edges[n]), task_report("ack", marks=acked)]
        done.append(batch(PLANS[n], *reports))
        waiting = {place(since, root) for since, root, until in script if since <= n < until}
        assert open_roots(*done) == waiting
        own = {place(since, root) for since, root, until in script if since == n < until}
        assert {(each.source, at) for each in done[n].held for at in positions(each.touched).tolist()} == own


emissions = st.tuples(st.integers(0, BATCHES - 1), st.integers(0, ROOTS - 1))


@given(st.sets(emissions), st.lists(st.tuples(st.integers(0, BATCHES - 1), emissions), max_size=30))
def test_a_batch_resets_the_timeouts_that_its_tasks_say_and_contributes_nothing_to_them(
    keeps: set[tuple[int, int]], script: list[tuple[int, tuple[int, int]]]
) -> None:
    """S16: of the roots of earlier batches, and of those of its own that it leaves open."""
    done = []
    for n in range(BATCHES):
        kept = [root for since, root in sorted(keeps) if since == n]
        named = [each for when, each in script if when == n and each[0] <= n]
        tasks = [
            task_report(f"keyed{number}", marks=touched(part))
            for number, part in enumerate((named[::2], named[1::2]))
        ]
        done.append(batch(PLANS[n], task_report("hold", held=held(PLANS[n], *kept)), *tasks))
        reset = {(each.source, at) for each in done[n].acks for at in positions(each.touched).tolist()}
        assert reset == {place(*each) for each in named if each[0] < n or each in keeps}
        assert open_roots(*done) == {place(*each) for each in keeps if each[0] <= n}


def touched(named: list[tuple[int, int]]) -> RootMarks:
    """Reset timeouts."""
    places = [place(*each) for each in named]
    return released_marks(
        touched=RootPositions(array(*(s for s, _ in places)), array(*(at for _, at in places)))
    )
