"""`RootNumbers` against a plain list of (source, position)."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from acker.identity import I64
from acker.root_sets.numbering import STRETCHES_MAX, RootNumbers
from acker.root_sets.root_set import NO_ROOTS, RootSet

SOURCES = st.sampled_from([0, 7, 8])
POSITIONS = st.integers(0, 30)
ROOTS = st.sets(st.tuples(SOURCES, POSITIONS), min_size=1, max_size=40)


def set_of(roots: set[tuple[int, int]]) -> RootSet:
    return RootSet.of_runs((source, position, position + 1) for source, position in roots)


def array(values: list[int]) -> I64:
    return np.array(values, np.int64)


@given(ROOTS, st.lists(POSITIONS, max_size=12))
def test_a_root_has_the_number_of_its_rank_and_every_other_one_has_none(
    roots: set[tuple[int, int]], positions: list[int]
) -> None:
    """Positions come in any order, and before, between and behind the runs."""
    numbers = RootNumbers(set_of(roots))
    ranks = {root: rank for rank, root in enumerate(sorted(roots))}
    for source in (0, 7, 8, 9):
        expected = [ranks.get((source, position), -1) for position in positions]
        assert numbers.find(source, array(positions)).tolist() == expected


@given(ROOTS, st.data())
def test_a_number_leads_back_to_its_root_in_any_order(
    roots: set[tuple[int, int]], data: st.DataObject
) -> None:
    """Ascending numbers are looked up in another way; one that comes twice is no exception."""
    ranked = sorted(roots)
    drawn = data.draw(st.lists(st.integers(0, len(ranked) - 1), max_size=20))
    numbers = RootNumbers(set_of(roots))
    for chosen in (drawn, sorted(drawn), sorted(drawn, reverse=True)):
        sources, positions = numbers.roots(array(chosen))
        assert list(zip(sources.tolist(), positions.tolist(), strict=True)) == [ranked[n] for n in chosen]


@given(ROOTS, st.lists(st.tuples(SOURCES, POSITIONS), max_size=12), st.sampled_from([1, STRETCHES_MAX]))
def test_roots_of_several_sources_are_found_however_often_the_source_changes(
    roots: set[tuple[int, int]], named: list[tuple[int, int]], times: int
) -> None:
    """Where it changes often they are sorted, and else not."""
    ranks = {root: rank for rank, root in enumerate(sorted(roots))}
    sources, positions = array([source for source, _ in named]), array([position for _, position in named])
    numbers = RootNumbers(set_of(roots)).find_roots(np.tile(sources, times), np.tile(positions, times))
    assert numbers.tolist() == [ranks.get(root, -1) for root in named] * times


def test_no_root_has_a_number_in_an_empty_set() -> None:
    numbers = RootNumbers(NO_ROOTS)
    assert numbers.find(7, array([0, 5])).tolist() == [-1, -1]
    assert [column.tolist() for column in numbers.roots(array([]))] == [[], []]
