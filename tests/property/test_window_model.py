"""The pending window and its intervals against the plainest model: sets of positions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from acker.root_sets.position_set import PositionSet
from acker.wire.events import PositionRun, SourceRun
from acker.wire.verdict import Verdict
from spout.planning.window import Window

SOURCE = 7
positions = st.integers(0, 60)
spans = st.tuples(positions, st.integers(0, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))
sets = st.sets(positions, max_size=40)


def runs(members: set[int]) -> list[PositionRun]:
    """Return a set's runs, ascending."""
    starts = sorted(position for position in members if position - 1 not in members)
    ends = sorted(position + 1 for position in members if position + 1 not in members)
    return list(map(PositionRun, starts, ends))


@given(st.lists(st.tuples(st.booleans(), spans)), spans)
def test_an_interval_set_is_a_set_of_positions(
    changes: list[tuple[bool, tuple[int, int]]], asked: tuple[int, int]
) -> None:
    """Adding and removing runs in any order; counts are those of positions that changed."""
    model: set[int] = set()
    found = PositionSet()
    for adds, (start, end) in changes:
        span = set(range(start, end))
        if adds:
            assert found.add(start, end) == len(span - model)
            model |= span
        else:
            assert found.remove(start, end) == len(span & model)
            model -= span
        assert list(found) == runs(model)
        assert len(found) == len(model)
        assert found.first == min(model, default=None)
    span = set(range(*asked))
    assert found.within(*asked) == runs(model & span)
    assert found.outside(*asked) == runs(span - model)
    assert found.overlaps(*asked) == bool(model & span)
    assert all((p in found) == (p in model) for p in range(80))


@given(sets, sets)
def test_many_runs_are_removed_at_once(members: set[int], removed: set[int]) -> None:
    """One pass gives what single removals give."""
    found = PositionSet(runs(members))
    assert found.remove_all(runs(removed)) == len(members & removed)
    assert list(found) == runs(members - removed)


@given(st.lists(spans, max_size=8), st.lists(st.tuples(st.booleans(), sets), max_size=12))
def test_what_may_be_committed_is_the_first_unsettled_emitted_position(
    emitted: list[tuple[int, int]], steps: list[tuple[bool, set[int]]]
) -> None:
    """S102: any order of emissions and verdicts."""
    window = Window()
    pending: set[int] = set()
    seen: set[int] = set()
    settled = 0
    pieces = list(emitted)
    for emits, members in steps:
        if emits and pieces:
            start, end = pieces.pop()
            fresh = set(range(start, end)) - seen
            window.emit([SourceRun(SOURCE, *run) for run in runs(fresh)], 0)
            pending |= fresh
            seen |= fresh
        else:
            hits = pending & members
            assert window.settle(SOURCE, runs(members), Verdict.ACKED) == len(hits)
            pending -= members
            settled += len(hits)
        expected = min(pending) if pending else (max(seen) + 1 if seen else None)
        assert window.committable(SOURCE) == expected
        assert window.pending == len(pending)
        assert window.counts.get(Verdict.ACKED, 0) == settled
