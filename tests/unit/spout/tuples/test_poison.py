"""Poison tuples: which calls the next child process cuts, and which roots are withheld from it."""

from __future__ import annotations

from itertools import product
from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spout.tuples.poison import HUNG, WORKER_DIED, Call, Isolated, Orders, PoisonSearch, Withheld

NOBODY: frozenset[int] = frozenset()


def call(
    first: int, end: int, *, bolt: str = "it", feed: int = 3, number: int = 5, roots: frozenset[int] = NOBODY
) -> Call:
    """Make a call with the rows [first, end)."""
    return Call(bolt, feed, number, first, end, roots)


# -- one call


@pytest.mark.parametrize(("first", "end"), [(0, 1), (7, 8), (0, 2), (0, 9), (4, 9), (5, 7)])
def test_the_poison_row_of_a_call_is_found_by_halves_and_is_alone_in_its_call(first: int, end: int) -> None:
    """Whichever row it is: each child makes the calls that are left, and dies in the one with that row."""
    for poison_row in range(first, end):
        orders, whole = Orders(), call(first, end)
        is_found, children = False, 0
        while not is_found:
            pieces = orders.pieces(whole, [])
            assert pieces[0][0] == first
            assert pieces[-1][1] == end
            assert [piece[1] for piece in pieces[:-1]] == [piece[0] for piece in pieces[1:]]
            [(low, high)] = [piece for piece in pieces if piece[0] <= poison_row < piece[1]]
            is_found = orders.record_end(call(low, high), HUNG, "it hangs")
            assert is_found is (high - low == 1)
            children += 1
            assert children <= 1 + ceil(log2(end - first))
        raised = orders.error_for(call(poison_row, poison_row + 1))
        assert raised is not None
        assert (raised.error, str(raised)) == (HUNG, "it hangs")


def test_a_poison_row_is_a_piece_of_its_own_beside_the_cuts_of_its_own_call_alone() -> None:
    orders = Orders()
    assert not orders.record_end(call(0, 8), HUNG, "")
    assert not orders.record_end(call(4, 8), HUNG, "")
    assert not orders.record_end(call(0, 4), HUNG, "")
    assert orders.pieces(call(0, 8), []) == [(0, 2), (2, 4), (4, 6), (6, 8)]
    assert orders.pieces(call(0, 8), [3, 4]) == [(0, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 8)]
    for other in (call(0, 8, bolt="other"), call(0, 8, feed=4), call(0, 8, number=6)):
        assert orders.pieces(other, []) == [(0, 8)]
        assert orders.pieces(other, [0, 7]) == [(0, 1), (1, 7), (7, 8)]


def test_a_blame_is_for_the_same_bolt_feed_number_row_and_roots() -> None:
    orders = Orders()
    poison = call(2, 3, roots=frozenset({9}))
    assert orders.record_end(poison, WORKER_DIED, "SIGSEGV")
    assert orders.error_for(poison) is not None
    for other in (
        call(2, 3),
        call(3, 4, roots=frozenset({9})),
        call(2, 3, roots=frozenset({8})),
        call(2, 3, roots=frozenset({9}), bolt="other"),
        call(2, 3, roots=frozenset({9}), feed=4),
        call(2, 3, roots=frozenset({9}), number=6),
    ):
        assert orders.error_for(other) is None


@pytest.mark.parametrize(("first", "end"), [(0, 3), (2, 3), (2, 5), (0, 2), (3, 5), (0, 9)])
@pytest.mark.parametrize(("bolt", "feed", "number"), list(product(["it", "other"], [3, 4], [5, 6])), ids=str)
def test_a_call_is_divided_only_if_one_of_its_own_rows_is_poison(
    bolt: str, feed: int, number: int, first: int, end: int
) -> None:
    orders = Orders()
    whole = call(first, end, bolt=bolt, feed=feed, number=number)
    assert not orders.isolates_part_of(whole)
    orders.record_end(call(2, 3), HUNG, "")
    orders.record_end(call(9, 10, number=9), HUNG, "")
    is_its = (bolt, feed, number) == ("it", 3, 5) and first <= 2 < end
    assert orders.isolates_part_of(whole) is is_its


def test_what_a_bolt_holds_is_divided_by_rows_while_it_is_searched() -> None:
    raised = Isolated(WORKER_DIED, "SIGSEGV")
    orders = Orders(withheld={"it": Withheld(frozenset({4, 6}), raised)})
    assert orders.isolates_part_of(call(0, 9))
    assert not orders.isolates_part_of(call(0, 9, bolt="other"))
    assert orders.error_for(call(0, 1, roots=frozenset({5, 6}))) is raised
    for harmless in (
        call(0, 1),
        call(0, 1, roots=frozenset({5})),
        call(0, 1, roots=frozenset({6}), bolt="x"),
    ):
        assert orders.error_for(harmless) is None


def test_a_poison_tuple_fails_for_what_it_did_itself_though_its_roots_are_withheld() -> None:
    orders = Orders(withheld={"it": Withheld(frozenset({4}), Isolated(WORKER_DIED, ""))})
    poison = call(0, 1, roots=frozenset({4}))
    orders.record_end(poison, HUNG, "itself")
    assert str(orders.error_for(poison)) == "itself"


def test_what_single_calls_of_a_bolt_named_is_forgotten_for_that_bolt_alone() -> None:
    orders = Orders()
    for bolt, row in product(["it", "other"], range(3)):
        orders.record_end(call(row, row + 1, bolt=bolt), HUNG, "")
    orders.forget_poison_of("it")
    assert {key[0] for key in orders.poison} == {"other"}
    assert len(orders.poison) == 3


# -- a search


@given(st.sets(st.integers(0, 99), min_size=1, max_size=40).flatmap(
    lambda suspects: st.tuples(st.just(suspects), st.sets(st.sampled_from(sorted(suspects)), min_size=1))
))  # fmt: skip
def test_a_search_finds_just_the_poison_from_the_last_one_on_in_few_children(
    case: tuple[set[int], set[int]],
) -> None:
    """A child dies unless all poison is withheld; each poison root takes as many children as halving does."""
    suspects, poison = case
    search = PoisonSearch(suspects)
    children = 0
    while True:
        children += 1
        assert search.withheld <= suspects
        if not poison <= search.withheld:
            assert search.record_death()
        elif search.record_survival():
            break
    assert search.poison == sorted(poison, reverse=True)
    assert search.withheld == poison
    assert children <= 1 + len(poison) * (1 + ceil(log2(len(suspects)) if len(suspects) > 1 else 0))


def test_a_search_ends_where_the_child_dies_though_all_suspects_are_withheld() -> None:
    assert not PoisonSearch([]).record_death()
    assert not PoisonSearch([1, 2]).record_death()


@pytest.mark.parametrize("suspects", [[4], [4, 5], [4, 5, 6]])
def test_a_search_ends_where_all_suspects_are_poison_and_the_child_dies_all_the_same(
    suspects: list[int],
) -> None:
    search = PoisonSearch(suspects)
    while len(search.poison) < len(suspects):
        if set(suspects) <= search.withheld:
            assert not search.record_survival()
        else:
            assert search.record_death()
    assert search.withheld == set(suspects)
    assert not search.record_death()


def test_without_suspects_a_child_that_survives_is_the_end() -> None:
    assert PoisonSearch([]).record_survival()
