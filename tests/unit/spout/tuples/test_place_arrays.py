"""Places as arrays are what a list of places would be: every form of a row's anchors, on few rows each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pyarrow as pa
import pytest

from acker.errors import TrackingError
from acker.identity import I64, mix64
from spout.tuples.anchors import (
    ORDINAL_BITS,
    ORDINALS_MAX,
    AnchorForm,
    Anchors,
    Fingerprint,
    fingerprint,
    fingerprint_of,
    hops_column,
    pack,
    wide_column,
)
from spout.tuples.places import (
    Deliveries,
    Descendants,
    Places,
    children_of,
    column_of,
    only_roots,
    ordinals_for_children,
    ordinals_of,
    place_number,
    places_of,
    uniform_places,
)
from spout.tuples.tuple import Delivery

WORD = (1 << 64) - 1
HIGH_KEY = 0xFFFF_FFFE
"""A subscription whose hop is below 0 in an int64."""


def place(root: int, *path: tuple[int, int]) -> Deliveries:
    """Make the place of a tuple with one anchor."""
    return (Delivery(root, path),)


def packed(roots: Sequence[int], ordinals: Sequence[int]) -> pa.Array:
    """Pack roots and ordinals."""
    numbers = [root << ORDINAL_BITS | ordinal for root, ordinal in zip(roots, ordinals, strict=True)]
    return pa.array(numbers, pa.int64())


def children(*hops: tuple[int, I64 | int]) -> tuple[Sequence[Deliveries], Sequence[Deliveries]]:
    """Return the places below three roots, behind some hops: by arrays, and in a list."""
    parents = np.array([2, 0, 1])
    fast: Sequence[Deliveries] = Places(np.array([5, 0, 9]))
    slow: Sequence[Deliveries] = [place(5), place(0), place(9)]
    for key, ordinals in hops:
        fast = children_of(fast, parents, key, ordinals)
        slow = children_of(slow, parents, key, ordinals)
    assert isinstance(fast, Places)
    return fast, slow


APART = np.array([0, 7, ORDINALS_MAX - 1])
HOPS: list[list[tuple[int, I64 | int]]] = [
    [],
    [(1, 0)],
    [(1, 3)],
    [(1, APART)],
    [(HIGH_KEY, 3)],
    [(HIGH_KEY, APART)],
    [(3, 2), (1, APART)],
    [(3, APART), (HIGH_KEY, 2)],
    [(3, 1), (7, 2), (HIGH_KEY, APART), (1, 4)],
]


@pytest.mark.parametrize("hops", HOPS, ids=str)
def test_arrays_of_places_are_what_the_list_is(hops: list[tuple[int, I64 | int]]) -> None:
    """As places, as numbers, as a column, as a fingerprint, and after they were sent."""
    fast, slow = children(*hops)
    assert isinstance(fast, Places)
    assert [fast[row] for row in range(len(fast))] == list(slow)
    assert list(fast[1:]) == list(slow[1:])
    assert list(fast.take(np.array([2, 2, 0]))) == [slow[2], slow[2], slow[0]]
    assert fast.numbers().tolist() == [place_number(delivery) for (delivery,) in slow]
    assert column_of(fast).equals(hops_column(slow))
    assert column_of(slow).equals(hops_column(slow))
    assert fast.fingerprint() == fingerprint_of(AnchorForm.HOPS, hops_column(slow))
    arrived = places_of(Anchors(AnchorForm.HOPS, column_of(fast)))
    assert isinstance(arrived, Places)
    assert list(arrived) == list(slow)
    assert only_roots(fast).tolist() == only_roots(slow).tolist() == [delivery.root for (delivery,) in slow]


def test_the_number_of_a_place_mixes_what_is_before_each_hop() -> None:
    assert place_number(Delivery(7, ())) == 7
    assert place_number(Delivery(7, ((3, 5),))) == (mix64(7) + (3 << 32 | 5)) & WORD
    two_hops = Delivery(7, ((HIGH_KEY, 5), (2, 0)))
    assert place_number(two_hops) == (mix64((mix64(7) + (HIGH_KEY << 32 | 5)) & WORD) + (2 << 32)) & WORD


@pytest.mark.parametrize("keys", [(1, 2, 3), (3, 3, HIGH_KEY), (HIGH_KEY, 1, 1)])
def test_rows_of_several_subscriptions_arrive_as_arrays(keys: tuple[int, ...]) -> None:
    """As many hops each, of other subscriptions: each row has its own."""
    sent = [place(root, (9, 1), (key, root + 4)) for root, key in enumerate(keys)]
    arrived = uniform_places(hops_column(sent))
    assert arrived is not None
    assert list(arrived) == sent
    assert arrived[0] == sent[0]
    assert column_of(arrived).equals(hops_column(sent))
    assert arrived.numbers().tolist() == [place_number(delivery) for (delivery,) in sent]
    assert arrived.fingerprint() == fingerprint_of(AnchorForm.HOPS, hops_column(sent))


@pytest.mark.parametrize("path", [(), ((3, 5),), ((3, 5), (HIGH_KEY, 0))])
def test_a_single_row_arrives_as_arrays(path: tuple[tuple[int, int], ...]) -> None:
    arrived = uniform_places(hops_column([place(7, *path)]))
    assert arrived is not None
    assert list(arrived) == [place(7, *path)]


ONE, OTHER = Delivery(4, ((1, 2),)), Delivery(5, ((1, 3),))
DEEP = Delivery(4, ((1, 2), (3, 0)))


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [()],
        [(ONE,), ()],
        [(ONE, OTHER)],
        [(ONE, OTHER), (ONE,)],
        [(ONE, OTHER), ()],  # as many places as rows
        [(), (ONE, OTHER), (OTHER,)],
        [(ONE,), (DEEP,)],
        [(DEEP,), (ONE,)],
    ],
    ids=str,
)
def test_rows_that_are_not_alike_arrive_as_a_list(rows: list[Deliveries]) -> None:
    column = hops_column(rows)
    assert uniform_places(column) is None
    arrived = places_of(Anchors(AnchorForm.HOPS, column))
    assert isinstance(arrived, list)
    assert arrived == rows


def test_rows_without_anchors_have_no_places() -> None:
    assert places_of(Anchors(AnchorForm.NONE, pa.nulls(2, pa.int64()))) == [(), ()]


def test_a_row_has_a_root_if_all_its_places_are_below_one() -> None:
    places = [(ONE,), (), (ONE, OTHER), (ONE, DEEP), place(0)]
    assert only_roots(places).tolist() == [4, -1, -1, 4, 0]


# -- narrow columns


@pytest.mark.parametrize("ordinals", [[0, 0, 0], [1, 2, 3], [0, 1, ORDINALS_MAX - 1]])
@pytest.mark.parametrize("subscriptions", [(), (7,), (7, HIGH_KEY)])
@pytest.mark.parametrize("carry", [AnchorForm.PACKED, AnchorForm.WIDE])
def test_narrow_columns_have_the_root_and_the_ordinal_of_each_row(
    carry: AnchorForm, subscriptions: tuple[int, ...], ordinals: list[int]
) -> None:
    roots = [3, 0, 1 << 38]
    column = packed(roots, ordinals)
    if carry is AnchorForm.WIDE:
        column = wide_column(column, pa.array([1, 2, None]), pa.array([4, 5, None]))
    anchors = Anchors(carry, column, subscriptions)
    assert anchors.roots().tolist() == roots
    assert anchors.ordinals().tolist() == ordinals
    expected = [
        place(root, *((key, ordinal) for key in subscriptions))
        for root, ordinal in zip(roots, ordinals, strict=True)
    ]
    assert list(places_of(anchors)) == list(anchors.deliveries()) == expected
    assert column.type == carry.type
    again = anchors.descendants_column(np.array([1, 0]), np.array([8, 9]))
    if carry is AnchorForm.PACKED:
        assert again.to_pylist() == [8, 9]
        return
    assert again.to_pylist() == [
        {"packed": 8, "source": 2, "position": 5},
        {"packed": 9, "source": 1, "position": 4},
    ]


def test_as_many_tuples_as_there_are_numbers_may_be_emitted_for_one() -> None:
    assert pack(np.array([2]), np.array([ORDINALS_MAX - 1]), "it").tolist() == [3 * ORDINALS_MAX - 1]
    assert pack(np.array([], np.int64), np.array([], np.int64), "it").tolist() == []
    for ordinals in ([ORDINALS_MAX], [0, ORDINALS_MAX + 5]):
        with pytest.raises(TrackingError, match=f"'it' emitted {ordinals[-1] + 1:,} tuples for one input"):
            pack(np.arange(len(ordinals)), np.array(ordinals), "it")


# -- descendants


def descendants(
    carry: AnchorForm, parents: list[int], subscription: int = 0, roots: Sequence[int] = (3, 8)
) -> Descendants:
    """Make tuples that descend from two rows that arrived, each with the ordinal 1 on a subscription 6."""
    column = packed(roots, [1] * len(roots))
    anchors = Anchors(carry, column, (6,))
    if carry is AnchorForm.HOPS:
        anchors = Anchors(carry, hops_column([place(root, (6, 1)) for root in roots]))
    return Descendants(anchors, np.array(parents, np.int64), lambda: places_of(anchors), subscription)


@pytest.mark.parametrize("carry", [AnchorForm.PACKED, AnchorForm.HOPS])
@pytest.mark.parametrize("parents", [[], [0, 0, 1], [1, 0, 1, 1, 0], [1, 1]])
def test_descendants_have_the_places_of_their_rows_until_they_leave(
    parents: list[int], carry: AnchorForm
) -> None:
    """Then each is numbered among those of its row."""
    arrived = [place(3, (6, 1)), place(8, (6, 1))]
    found = descendants(carry, parents, 9)
    assert list(found) == [arrived[parent] for parent in parents]
    assert list(found[1:]) == list(found)[1:]
    assert found.roots().tolist() == only_roots(found).tolist() == [(3, 8)[parent] for parent in parents]
    ordinals = [parents[:row].count(parent) for row, parent in enumerate(parents)]
    column = column_of(found, carry, "it")
    rows = list(zip(parents, ordinals, strict=True))
    if carry is AnchorForm.HOPS:
        sent = [place((3, 8)[parent], (6, 1), (9, ordinal)) for parent, ordinal in rows]
        assert column.equals(hops_column(sent))
    else:
        assert column.equals(packed([(3, 8)[parent] for parent, _ in rows], ordinals))


def test_what_descends_from_descendants_descends_from_the_rows_that_arrived() -> None:
    before = descendants(AnchorForm.HOPS, [1, 0, 1])
    found = children_of(before, np.array([2, 2, 1]), 9, ordinals_for_children(before, np.array([2, 2, 1]), 3))
    assert isinstance(found, Descendants)
    assert found.parents.tolist() == [1, 1, 0]
    assert column_of(found).equals(
        hops_column([place(8, (6, 1), (9, 0)), place(8, (6, 1), (9, 1)), place(3, (6, 1), (9, 0))])
    )


def test_descendants_of_rows_that_are_not_tracked_have_no_places() -> None:
    found = Descendants(None, np.array([0, 0, 1]), list)
    assert [found[row] for row in range(-3, 3)] == [()] * 6
    for beyond in (-4, 3):  # else a loop over them would not end
        with pytest.raises(IndexError):
            found[beyond]
    assert column_of(found, AnchorForm.PACKED, "it").equals(pa.nulls(3, pa.int64()))


@pytest.mark.parametrize("parents", sorted(set(permutations([0, 0, 1, 2, 2]))))
def test_rows_are_numbered_among_those_of_their_parent_in_order(parents: tuple[int, ...]) -> None:
    """Whatever their order; a parent without children is passed over. Descendants need no numbers yet."""
    expected = [parents[:row].count(parent) for row, parent in enumerate(parents)]
    given = np.array(parents)
    assert ordinals_of(given, 4).tolist() == expected
    arrays, listed = Places(np.arange(4)), [place(root) for root in range(4)]
    for places in (arrays, listed):
        numbers = ordinals_for_children(places, given, 4)
        assert not isinstance(numbers, int)
        assert numbers.tolist() == expected
    assert ordinals_for_children(descendants(AnchorForm.PACKED, [0, 1]), given, 4) == 0


# -- fingerprints


@pytest.mark.parametrize("numbers", [[], [0], [1, 2], [5, 5, -1, 2**62]])
def test_a_fingerprint_is_the_sum_of_the_mixed_numbers_of_the_rows(numbers: list[int]) -> None:
    mixed = [mix64(number & WORD) for number in numbers]
    assert fingerprint(len(numbers), np.array(numbers, np.int64)) == (len(numbers), sum(mixed) & WORD)


def test_two_parts_have_the_fingerprint_of_the_whole() -> None:
    parts = [Fingerprint(3, WORD), Fingerprint(2, 5), Fingerprint(), Fingerprint(1, WORD - 1)]
    total = Fingerprint()
    for part in parts:
        total = total.plus(part)
    assert total == (6, 2)


ROWS: list[Deliveries] = [(ONE,), (ONE, OTHER), (), (DEEP,), place(0)]


def hops_of(rows: Sequence[Deliveries]) -> Fingerprint:
    """Return the fingerprint of a column of hops."""
    return fingerprint_of(AnchorForm.HOPS, hops_column(rows))


def test_a_column_of_hops_has_the_fingerprint_of_its_parts_and_of_any_other_order() -> None:
    whole = hops_of(ROWS)
    assert whole.rows == len(ROWS)
    for cut in range(len(ROWS) + 1):
        assert hops_of(ROWS[:cut]).plus(hops_of(ROWS[cut:])) == whole
    assert hops_of(ROWS[::-1]) == whole
    assert hops_of([]) == Fingerprint()
    assert hops_of([(), ()]) == Fingerprint(2, 0)


@pytest.mark.parametrize(
    "changed",
    [
        place(1, (1, 2), (3, 4)),
        place(0, (1, 2), (3, 5)),
        place(0, (1, 3), (3, 4)),
        place(0, (2, 2), (3, 4)),
        place(0, (1, 2), (4, 4)),
        place(0, (3, 4), (1, 2)),
        place(0, (1, 4), (3, 2)),
        place(0, (1, 2)),
        place(0, (1, 2), (3, 4), (0, 1)),
    ],
    ids=str,
)
def test_each_part_of_a_path_is_in_its_fingerprint(changed: Deliveries) -> None:
    assert hops_of([changed]) != hops_of([place(0, (1, 2), (3, 4))])
    assert hops_of([changed, place(7)]) != hops_of([place(0, (1, 2), (3, 4)), place(7)])


def test_a_narrow_column_has_the_fingerprint_of_its_numbers() -> None:
    column = packed([3, 0], [1, 2])
    expected = fingerprint(2, np.asarray(column))
    assert fingerprint_of(AnchorForm.PACKED, column) == expected
    wide = wide_column(column, pa.array([1, 2]), pa.array([4, 5]))
    assert fingerprint_of(AnchorForm.WIDE, wide) == expected
