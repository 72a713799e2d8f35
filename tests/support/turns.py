"""Which tests of many that differ by a parameter run today, and which of them run without the slow tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

TURNS = 3
"""Within so many days each test that is marked `by_turns` has run once in CI."""


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


def beyond_sample(places: int, every: int) -> Sequence[int]:
    """Return the places of those cases of a grid that run with the slow tests only.

    Cases 0, `every`, 2 * `every` and so on are the sample. The cases of a grid of two dimensions
    come row by row; if `every` does not divide the length of a row, the sample has every row and
    every column: of 4 columns and every third case it has 0 and 3, then 2, then 1.

    Raises `ValueError`: `every` is below 2, so nothing would be left out.
    """
    if every < 2:
        raise ValueError(f"every {every}. case is no sample: name 2 or more")
    return [place for place in range(places) if place % every]
