"""The arrays of the ledger: what they cost, and that every form of them says the same."""

from __future__ import annotations

import numpy as np
import pytest

from acker.hot_paths import among, as_array, distinct, xor_sums
from acker.identity import I64, root_edges, root_edges_of_run
from acker.ledger.roots import SPARSE_SHARE, Roots

SOURCE, START, SIZE = 65_539, 1_000, 1_024
EDGES = root_edges_of_run(SOURCE, START, START + SIZE)


def fresh(form: str) -> Roots:
    """Return roots of which the last 40 are open, in one of the forms."""
    roots = Roots(SOURCE, START, SIZE)
    if form == "dense":
        roots.fold(range(SIZE), np.ones(SIZE, np.uint64))
        roots.settle(np.arange(0, 900))
        roots.xor(np.arange(900, SIZE), np.ones(SIZE - 900, np.uint64))
        roots.settle(np.arange(900, SIZE - 100))
        roots.load(np.arange(SIZE - 100, SIZE), EDGES[SIZE - 100 :])
        return roots
    roots.settle_run(0, SIZE - 100)
    if form == "sparse":
        roots.settle_run(0, SIZE - 50)
        roots = fresh("untouched")
        roots.load(np.arange(SIZE - 100, SIZE), EDGES[SIZE - 100 :])
    return roots


@pytest.mark.parametrize("form", ["untouched", "dense", "sparse"])
def test_every_form_completes_the_same_roots(form: str) -> None:
    """Runs, neighbours, scattered ones, some twice, settled ones among them."""
    roots = fresh(form)
    some = np.array([5, SIZE - 90, SIZE - 7])
    assert roots.fold(some, np.array([1, 2, 3], np.uint64)) == (2, range(0))
    counted, hits = roots.complete_run(SIZE - 10, SIZE - 5)
    assert (counted, as_array(hits).tolist()) == (5, [1_014, 1_015, 1_016, 1_018])
    again = np.array([SIZE - 7, SIZE - 90, SIZE - 90, SIZE - 7])
    values = np.array([9, 2, EDGES[SIZE - 90], 9 ^ 3], np.uint64)
    counted, hits = roots.fold(again, values, is_distinct=False)
    assert (counted, as_array(hits).tolist()) == (4, [SIZE - 90, SIZE - 7])
    counted, hits = roots.complete_edges(np.array([0, SIZE - 3, SIZE - 1]))
    assert (counted, as_array(hits).tolist()) == (2, [SIZE - 3, SIZE - 1])
    assert roots.open_count == 100 - 8
    assert len(roots.open_at()) == roots.open_count
    assert as_array(roots.settle_all()).tolist()[:3] == [924, 925, 926]
    assert (roots.open_count, roots.bytes) == (0, 0)


@pytest.mark.parametrize("form", ["untouched", "dense", "sparse"])
def test_nothing_settles_twice_where_everything_is_settled(form: str) -> None:
    """Roots whose arrays are gone; a record of several runs may meet them."""
    roots = fresh(form)
    roots.settle_all()
    some, ones = np.array([0, SIZE - 1]), np.ones(2, np.uint64)
    assert roots.complete_run(3, 9) == (0, range(0))
    assert roots.complete_run(0, SIZE) == (0, range(0))
    assert roots.complete_edges(some) == (0, range(0))
    assert roots.fold(some, ones) == (0, range(0))
    assert roots.fold(range(2), ones) == (0, range(0))
    assert (roots.xor(some, ones), roots.xor_edges(some)) == (0, 0)
    assert len(roots.settle(some)) == len(roots.settle_run(0, SIZE)) == len(roots.settle_all()) == 0
    assert not roots.is_open(some).any()
    assert (roots.open_count, roots.bytes, len(roots.open_at())) == (0, 0, 0)


@pytest.mark.parametrize("form", ["untouched", "dense", "sparse"])
def test_what_is_carried_by_value_comes_back_the_same(form: str) -> None:
    """Open roots, and what each misses."""
    roots = fresh(form)
    roots.fold(np.array([SIZE - 50]), np.array([77], np.uint64))
    again = Roots(SOURCE, START, SIZE)
    again.load(as_array(roots.open_at()), roots.missing())
    assert (again.open_count, again.missing().tolist()) == (roots.open_count, roots.missing().tolist())
    rest = np.array([77 ^ int(EDGES[SIZE - 50])], np.uint64)
    assert as_array(again.fold(np.array([SIZE - 50]), rest)[1]).tolist() == [SIZE - 50]


def test_an_open_root_costs_at_most_ten_bytes_and_nothing_before_its_first_contribution() -> None:
    """And a run of root edges over untouched roots needs no array at all."""
    roots = Roots(SOURCE, START, 32_768)
    assert roots.bytes == 0
    roots.fold(range(32_768), np.ones(32_768, np.uint64))
    roots.settle(np.array([3]))
    assert roots.bytes / roots.open_count < 10
    whole = Roots(SOURCE, START, 32_768)
    assert whole.complete_run(0, 32_768) == (32_768, range(32_768))
    assert whole.bytes == 0


def test_a_nearly_settled_run_costs_what_is_open() -> None:
    """S40: with one root of 32,768 open, memory for about one root; its value is kept."""
    roots = Roots(SOURCE, START, 32_768)
    roots.fold(np.array([9]), np.array([5], np.uint64))
    roots.settle_run(10, 32_768)
    roots.settle_run(0, 9)
    assert (roots.open_count, roots.bytes) == (1, 12)
    last = np.array([5 ^ int(root_edges_of_run(SOURCE, START + 9, START + 10)[0])], np.uint64)
    assert as_array(roots.fold(np.array([9]), last)[1]).tolist() == [9]


def test_a_nearly_settled_run_still_misses_what_its_open_roots_miss() -> None:
    roots, at = Roots(SOURCE, START, 32_768), np.array([9, 20_000])
    given = np.array([5, 6], np.uint64)
    roots.fold(at, given)
    roots.settle(np.setdiff1d(np.arange(32_768), at))
    assert roots.open_count == 2
    assert roots.missing().tolist() == (root_edges(SOURCE, at + START) ^ given).tolist()


def array(*numbers: int) -> I64:
    """Make an array."""
    return np.array(numbers, np.int64)


def test_indices_are_sorted_and_looked_up_without_hashing() -> None:
    """Empty ones too."""
    assert distinct(array(3, 1, 3, 2)).tolist() == [1, 2, 3]
    assert distinct(array()).tolist() == []
    assert among(array(1, 5, 9), array(5, 6)).tolist() == [False, True, False]
    assert among(array(1), array()).tolist() == [False]
    assert as_array(range(2, 4)).tolist() == [2, 3]


@pytest.mark.parametrize("far", [0, 1 << 62], ids=["neighbours", "scattered"])
def test_edges_are_summed_up_by_what_they_are_named(far: int) -> None:
    """Neighbours are added in place, and scattered ones sorted; what cancels is left out of both."""
    named = np.array([7, 5, 7, 6 + far, 5, 9, 6 + far])
    members, sums = xor_sums(named, np.array([1, 2, 4, 8, 2, 16, 24], np.uint64))
    found = dict(zip(members.tolist(), sums.tolist(), strict=True))
    assert found == {7: 5, 9: 16, 6 + far: 16}
    assert list(found) == sorted(found)
    members, sums = xor_sums(array(5, 6, 6 + far + 1), np.array([3, 0, 4], np.uint64))
    assert (members.tolist(), sums.tolist()) == ([5, 6 + far + 1], [3, 4])
    members, sums = xor_sums(np.empty(0, np.int64), np.empty(0, np.uint64))
    assert (members.tolist(), sums.tolist()) == ([], [])


def test_contributions_to_settled_roots_do_not_count() -> None:
    roots = Roots(SOURCE, START, SIZE)
    roots.settle(np.array([2, 5]))
    at = np.array([1, 2, 3, 5])
    assert roots.xor(at, EDGES[at]) == 2
    assert roots.open_count == SIZE - 2


def test_all_roots_that_are_settled_together_come_as_a_run_and_leave_nothing() -> None:
    """Their verdicts then cost 16 bytes, and not 8 for each."""
    roots = Roots(SOURCE, START, SIZE)
    assert roots.settle(np.arange(SIZE)) == range(SIZE)
    assert (roots.open_count, roots.bytes) == (0, 0)


@pytest.mark.parametrize("size", [1, 2, SPARSE_SHARE - 1])
def test_roots_that_are_settled_one_by_one_leave_nothing(size: int) -> None:
    """Of so few that they never become sparse."""
    roots = Roots(SOURCE, START, size)
    roots.fold(range(size), np.ones(size, np.uint64))
    for at in range(size):
        assert roots.bytes > 0
        assert list(roots.settle(np.array([at]))) == [at]
    assert (roots.open_count, roots.bytes, list(roots.open_at())) == (0, 0, [])


@pytest.mark.parametrize("left", [1, 2, 3])
def test_only_the_open_roots_are_kept_once_they_are_few(left: int) -> None:
    """From a sixteenth of all on: 4 bytes for each, in place of a byte for each of all."""
    size = 2 * SPARSE_SHARE
    roots = Roots(SOURCE, START, size)
    roots.settle_run(0, size - left)
    assert roots.bytes == (4 * left if left <= 2 else size)
    assert list(roots.open_at()) == list(range(size - left, size))
