"""Places by the column are the places that a list would hold, one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from spout.topology.graph import Kind
from spout.topology.routing import tasks_for
from spout.tuples.anchors import ORDINAL_BITS, AnchorForm, Anchors, fingerprint_of, hops_column
from spout.tuples.places import Places, children_of, column_of, place_number, places_of
from spout.tuples.tuple import Delivery

KEYS = st.integers(0, 2**32 - 1)
ORDINALS = st.integers(0, 2**24 - 1)
GENERATIONS = st.lists(
    st.tuples(KEYS, st.lists(st.tuples(st.integers(0, 2**30), ORDINALS), min_size=1, max_size=6)), max_size=4
)


def listed(roots: list[int]) -> list[tuple[Delivery, ...]]:
    """Return roots as a list of places."""
    return [(Delivery(root, ()),) for root in roots]


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**38), min_size=1, max_size=6), GENERATIONS)
def test_children_of_children_have_the_places_that_a_list_gives_them(
    roots: list[int], generations: list[tuple[int, list[tuple[int, int]]]]
) -> None:
    """Whatever the subscriptions and ordinals; also after a shuffle."""
    slow: list[tuple[Delivery, ...]] = listed(roots)
    fast = places_of(Anchors(AnchorForm.PACKED, pa.array(np.array(roots) << ORDINAL_BITS)))
    for key, born in generations:
        parents = np.array([parent % len(slow) for parent, _ in born])
        ordinals = np.array([ordinal for _, ordinal in born])
        slow = list(children_of(slow, parents, key, ordinals))
        fast = children_of(fast, parents, key, ordinals)
    assert isinstance(fast, Places)
    assert list(fast) == slow
    assert fast.numbers().tolist() == [place_number(place) for (place,) in slow]
    assert column_of(fast).equals(hops_column(slow))
    for kind in (Kind.SHUFFLE, Kind.LOCAL_OR_SHUFFLE):
        assert tasks_for(kind, 7, None, fast).tolist() == tasks_for(kind, 7, None, slow).tolist()
    assert fast.fingerprint() == fingerprint_of(AnchorForm.HOPS, hops_column(slow))
    arrived = places_of(Anchors(AnchorForm.HOPS, column_of(fast)))
    assert isinstance(arrived, Places)
    assert list(arrived) == slow
    assert list(fast[1:]) == slow[1:]


@settings(deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(ORDINALS, st.lists(st.tuples(KEYS, ORDINALS), max_size=3)), max_size=2), max_size=5
    )
)
def test_rows_of_any_places_arrive_as_they_were_sent(
    rows: list[list[tuple[int, list[tuple[int, int]]]]],
) -> None:
    """Unanchored rows, several anchors, different ways: what is not alike is a list, and the same."""
    sent = [tuple(Delivery(root, tuple(path)) for root, path in row) for row in rows]
    assert list(places_of(Anchors(AnchorForm.HOPS, hops_column(sent)))) == sent


def test_rows_that_exchanged_their_ordinals_have_another_fingerprint() -> None:
    """Though the roots, the ordinals and the sums of both are the same in all."""
    sent, arrived = (
        children_of(Places(np.arange(3)), np.arange(3), 7, np.array(ordinals))
        for ordinals in ([1, 2, 0], [2, 0, 1])
    )
    assert isinstance(sent, Places)
    assert isinstance(arrived, Places)
    assert sent.fingerprint() != arrived.fingerprint()
