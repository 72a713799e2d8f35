"""A set of positions as intervals, against a plain set: every pair of short runs."""

from __future__ import annotations

from itertools import pairwise, product
from random import Random

import numpy as np
import pytest

from acker.root_sets.position_set import PositionSet

END = 8
RUNS = [(start, end) for start in range(END) for end in range(END)]
"""Empty and reversed ones among them."""


def runs_of(members: set[int]) -> list[tuple[int, int]]:
    """Return the maximal runs of a plain set."""
    edges = [position for position in range(END + 2) if (position in members) != (position - 1 in members)]
    return list(zip(edges[::2], edges[1::2], strict=True))


def assert_same(found: PositionSet, members: set[int]) -> None:
    """Compare a set of intervals with a plain set."""
    assert list(found) == runs_of(members)
    assert all(before.end < after.start for before, after in pairwise(found)), "neither overlap nor touch"
    assert len(found) == len(members)
    assert found.holes == len(runs_of(members))
    assert found.first == min(members, default=None)
    assert [position for position in range(-1, END + 1) if position in found] == sorted(members)


@pytest.mark.parametrize("start", range(END))
def test_runs_are_added_removed_and_looked_up_as_in_a_plain_set(start: int) -> None:
    """Each run beside each set of three others: before it, at its edges, within it, and all around it."""
    random = Random(start)
    for end, _ in product(range(END), range(30)):
        kept = random.sample(RUNS, 3)
        members = {position for run in kept for position in range(*run)}
        span = set(range(start, end))
        found = PositionSet(kept)
        assert_same(found, members)
        assert found.overlaps(start, end) is bool(members & span)
        assert found.within(start, end) == runs_of(members & span)
        assert found.outside(start, end) == runs_of(span - members)
        assert found.add(start, end) == len(span - members)
        assert_same(found, members | span)
        found = PositionSet(kept)
        assert found.remove(start, end) == len(span & members)
        assert_same(found, members - span)


@pytest.mark.parametrize("seed", range(40))
def test_many_runs_are_removed_at_once(seed: int) -> None:
    """Empty ones among them."""
    random = Random(seed)
    members, removed = ({position for position in range(END) if random.random() < 0.5} for _ in range(2))
    found = PositionSet(runs_of(members))
    runs = sorted([*runs_of(removed), (random.randrange(END),) * 2])
    assert found.remove_all(runs) == len(members & removed)
    assert_same(found, members - removed)


@pytest.mark.parametrize("seed", range(20))
def test_positions_in_any_order_become_a_set_that_may_change(seed: int) -> None:
    """Some come twice."""
    random = Random(seed)
    positions = random.choices(range(END), k=random.randrange(END))
    found = PositionSet.of_positions(np.array(positions, np.int64))
    assert_same(found, set(positions))
    found.add(2, 4)
    assert_same(found, {*positions, 2, 3})


def test_nothing_is_removed_from_nothing() -> None:
    found = PositionSet()
    assert found.remove_all([]) == found.remove(0, 9) == 0
    assert_same(found, set())


def test_a_set_shows_its_runs() -> None:
    assert repr(PositionSet([(5, 7), (1, 2)])) == "PositionSet([(1, 2), (5, 7)])"
