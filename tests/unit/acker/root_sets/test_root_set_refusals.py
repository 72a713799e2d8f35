"""What cannot be a set of roots is refused, and named."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from acker.root_sets.root_set import RootSet
from acker.root_sets.runs import SOURCE_MAX

Maker = Callable[[object], RootSet]


@pytest.mark.parametrize(
    "table",
    [
        np.zeros(3, np.int64),
        np.zeros((2, 2), np.int64),
        np.zeros((2, 4), np.int64),
        np.zeros((1, 2, 3), np.int64),
        np.zeros((2, 3), np.float64),
        np.zeros((2, 3), np.int32),
    ],
    ids=lambda table: f"{table.shape} {table.dtype}",
)
@pytest.mark.parametrize("maker", [RootSet, RootSet.of_table])
def test_a_table_has_three_columns_of_int64(maker: Maker, table: object) -> None:
    with pytest.raises(ValueError, match=r"an \(n, 3\) int64 array, not \("):
        maker(table)


@pytest.mark.parametrize("maker", [RootSet.of_runs, lambda runs: RootSet(np.array(runs, np.int64))])
@pytest.mark.parametrize(
    ("run", "words"),
    [
        ((7, 9, 5), r"ends before it starts: \[9, 5\) of source 7"),
        ((-1, 5, 9), rf"not in 0..{SOURCE_MAX}, or a position is negative: \[5, 9\) of source -1"),
        ((SOURCE_MAX + 1, 5, 9), rf"not in 0..{SOURCE_MAX}"),
        ((7, -5, 9), r"a position is negative: \[-5, 9\) of source 7"),
        ((7, -5, -4), r"a position is negative: \[-5, -4\) of source 7"),
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_run_that_can_be_none_is_refused_by_its_numbers(
    maker: Maker, run: tuple[int, int, int], words: str, place: int
) -> None:
    runs = [(3, 0, 4), (3, 6, 9)]
    runs.insert(place, run)
    with pytest.raises(ValueError, match=words):
        maker(runs)


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([(7, 5, 9), (7, 0, 4)], r"behind the one before it, and apart: \[0, 4\) of source 7"),
        ([(8, 0, 4), (7, 5, 9)], r"behind the one before it, and apart: \[5, 9\) of source 7"),
        ([(7, 0, 5), (7, 5, 9)], r"apart: \[5, 9\) of source 7; RootSet.of_runs takes runs in any order"),
        ([(7, 0, 5), (7, 4, 9)], r"apart: \[4, 9\) of source 7"),
        ([(7, 0, 5), (7, 6, 6)], r"a run is empty: \[6, 6\) of source 7"),
    ],
)
def test_a_table_that_is_not_canonical_is_refused(runs: list[tuple[int, int, int]], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        RootSet(np.array(runs, np.int64))
    assert RootSet.of_runs(runs)


@pytest.mark.parametrize(
    ("sources", "positions"),
    [
        (7, [5, -1]),
        (-7, [5]),
        (SOURCE_MAX + 1, [5]),
        ([7, -1], [5, 6]),
        (7, [(1 << 63) - 1]),  # the position behind it is no int64
    ],
)
def test_positions_that_can_be_none_are_refused(sources: int | list[int], positions: list[int]) -> None:
    each_source = np.array(sources, np.int64) if isinstance(sources, list) else sources
    with pytest.raises(ValueError, match=r"a source is not in|ends before it starts"):
        RootSet.of_positions(each_source, np.array(positions, np.int64))


def test_each_position_has_a_source() -> None:
    with pytest.raises(ValueError, match="2 sources are named for 3 positions"):
        RootSet.of_positions(np.array([7, 8]), np.array([1, 2, 3]))


PACKED = RootSet.of_runs([(7, 100, 200), (9, 5, 6)]).packed()


@pytest.mark.parametrize(
    ("packed", "words"),
    [
        (b"", "0 bytes do not begin as a packed table"),
        (PACKED[:4], "4 bytes do not begin as a packed table"),
        (b"\3" + PACKED[1:], "do not begin as a packed table"),
        (PACKED[:20], "a packed table of runs of 2 sources has only 20 bytes"),
        (PACKED[:-1], "3 bytes are not the 2 runs of a packed table"),
        (PACKED + b"\0", "5 bytes are not the 2 runs of a packed table"),
        (PACKED[:-1] + b"\0", r"a run is empty: \[5, 5\) of source 9"),
        (PACKED[:5] + PACKED[9:13] + PACKED[5:9] + PACKED[13:], "behind the one before it"),
    ],
)
def test_bytes_that_are_no_packed_set_are_refused(packed: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        RootSet.unpacked(packed)


def test_nobody_changes_a_set() -> None:
    found = RootSet.of_runs([(7, 0, 5)])
    with pytest.raises(AttributeError, match="table"):
        found.table = np.zeros((0, 3), np.int64)  # type: ignore[misc]
