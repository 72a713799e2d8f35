"""Copies that are sorted in limited memory, and roots of which a first bolt marks that it received them."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from acker.errors import TrackingError
from replay.records.headers import ORIGIN
from spout.streaming.map_task import Received
from spout.streaming.ordered_read import RECORD_BYTES as EMPTY_BYTES
from spout.streaming.ordered_read import Copies, Copy, LeftCopy, origin_of


def copy(origin: int | None, position: int, size: int = 0, key: bytes | None = None) -> Copy:
    return Copy(origin, position, Message(topic="replay", value=bytes(size), key=key))


def rank(kept: Copy | LeftCopy) -> tuple[int, int]:
    """Return the place in the order: copies of other partitions come first."""
    return -1 if kept.origin is None else kept.origin, kept.position


COPIES = st.lists(
    st.tuples(st.none() | st.integers(0, 9), st.integers(0, 300)), max_size=30, unique_by=lambda made: made[1]
)


@given(COPIES, st.integers(0, 2_000), st.integers(1, 7), st.integers(1, 9))
def test_what_is_kept_lies_before_all_that_is_left_over_and_fits_or_is_one(
    made: list[tuple[int | None, int]], bytes_max: int, at_once: int, copies_max: int
) -> None:
    """One that comes late and has room all the same would overtake those that are left over."""
    copies = [copy(origin, position, size=position) for origin, position in made]
    kept_copies = Copies(bytes_max)
    for begin in range(0, len(copies), at_once):
        kept_copies.add(iter(copies[begin : begin + at_once]))
    lists = list(kept_copies.in_order(copies_max))
    kept = [kept_copy for part in lists for kept_copy in part]
    assert all(len(part) == copies_max for part in lists[:-1])
    assert all(0 < len(part) <= copies_max for part in lists)
    assert [rank(kept_copy) for kept_copy in kept] == sorted(map(rank, kept))
    left = kept_copies.left_over
    assert sorted([*map(rank, kept), *map(rank, left)]) == sorted(map(rank, copies))
    assert not kept or not left or max(map(rank, kept)) < min(map(rank, left))
    assert sum(kept_copy.bytes for kept_copy in kept) <= bytes_max or len(kept) == 1
    if sum(made_copy.bytes for made_copy in copies) <= bytes_max:
        assert left == []


def test_a_copy_counts_its_value_its_key_and_what_a_record_takes_besides() -> None:
    assert copy(None, 0).bytes == EMPTY_BYTES
    assert copy(None, 0, size=5, key=b"abc").bytes == EMPTY_BYTES + 8


def test_as_much_is_kept_as_there_is_room_for_to_the_last_byte() -> None:
    for room, kept in ((3 * EMPTY_BYTES, 3), (3 * EMPTY_BYTES - 1, 2), (0, 1)):
        copies = Copies(room)
        copies.add([copy(number, number) for number in range(3)])
        assert [len(part) for part in copies.in_order(9)] == [kept]


def test_what_is_left_over_is_refused_with_its_key_and_its_origin_in_the_order_it_was_left() -> None:
    copies = Copies(EMPTY_BYTES)
    copies.add([copy(3, 30, key=b"k"), copy(None, 10), copy(2, 20)])
    refused: list[tuple[int, bytes | None, int | None, str]] = []

    def refuse(index: int, key: bytes | None, origin: int | None, why: str) -> Any:
        refused.append((index, key, origin, why))
        return f"cause {index}"

    gate: Any = SimpleNamespace(partition_name="lines/0", refuse=refuse)
    assert copies.refuse_left_over(gate, lambda position: position + 1) == [
        (31, "cause 31"),
        (21, "cause 21"),
    ]
    why = "the task keeps 0 MiB of copies of lines/0"
    assert refused == [(31, b"k", 3, why), (21, None, 2, why)]
    mebibytes = Copies(5 << 20)
    mebibytes.left_over.append(LeftCopy(None, 1, None))
    mebibytes.refuse_left_over(gate, lambda position: position)
    assert refused[-1] == (1, None, None, "the task keeps 5 MiB of copies of lines/0")


@pytest.mark.parametrize(
    ("headers", "offset"),
    [
        ({ORIGIN: b"lines/0@7"}, 7),
        ({ORIGIN: b"lines/1@7"}, None),
        ({ORIGIN: b"words/0@7"}, None),
        ({ORIGIN: b"\xff"}, None),
        ({}, None),
    ],
)
def test_the_origin_of_a_copy_counts_where_it_was_in_this_partition(
    headers: Mapping[str, bytes], offset: int | None
) -> None:
    assert origin_of(tuple(headers.items()), "lines", 0) == offset


# roots that were received -----------------------------------------------------------------------------------


@given(st.lists(st.lists(st.integers(0, 200), max_size=20, unique=True), max_size=6))
def test_roots_are_marked_up_to_the_highest_and_none_twice(batches: list[list[int]]) -> None:
    received, expected = Received("split"), set[int]()
    for roots in batches:
        if expected & set(roots):
            with pytest.raises(TrackingError, match="bolt 'split' received a root twice"):
                received.mark(np.array(roots, np.int64))
            break
        received.mark(np.array(roots, np.int64))
        expected |= set(roots)
    marks = received.marks()
    assert set(np.flatnonzero(marks).tolist()) == expected
    assert len(marks) == max(expected, default=-1) + 1


def test_a_root_that_comes_twice_in_one_batch_was_received_twice() -> None:
    with pytest.raises(TrackingError, match="received a root twice"):
        Received("split").mark(np.array([3, 4, 3]))
