"""Tests that take minutes each and differ by one dimension: each day CI runs a third of them."""

from __future__ import annotations

from collections.abc import Iterable

TURNS = 3
"""Within so many days each of these tests has run once."""


def turn_of_day(node_ids: Iterable[str], day: int) -> frozenset[str]:
    """Return the tests that run on a day.

    They are dealt out in the order of their names, so that neighbours, which differ by a parameter,
    run on different days: of ``a[x] a[y] a[z] b`` day 0 runs ``a[x]`` and ``b``.

    Args:
        node_ids: the tests that run by turns; without doublets.
        day: days since 1970, or any other number that grows by one.
    """
    return frozenset(
        node_id for place, node_id in enumerate(sorted(node_ids)) if place % TURNS == day % TURNS
    )
