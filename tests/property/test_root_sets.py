"""`RootSet` against plain sets of (source, position)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker.identity import ACKER_BLOCK_BITS, WIRE_BLOCK_BITS, acker_partition
from acker.root_sets.root_set import NO_ROOTS, RootSet
from acker.root_sets.runs import SOURCE_MAX, is_first_row, rows_within, runs_between, stretches_of_rows

Root = tuple[int, int]
Run = tuple[int, int, int]

SOURCES = st.sampled_from([0, 7, 8, SOURCE_MAX])
PLACES = [0, (1 << 15) - 6, (1 << 16) - 6, (1 << 48) - 6, (1 << 53) - 6, (1 << 63) - 30]
"""Where positions lie: around the ends of wire blocks, acker blocks and generations, and near both ends."""
POSITIONS = st.builds(int.__add__, st.sampled_from(PLACES), st.integers(0, 12))
ROOTS = st.lists(st.tuples(SOURCES, POSITIONS), max_size=40)
RUNS = st.lists(
    st.builds(
        lambda source, start, size: (source, start, start + size), SOURCES, POSITIONS, st.integers(0, 12)
    ),
    max_size=25,
)


def roots_of(runs: Iterable[Run]) -> list[Root]:
    """Return the roots of runs, in their order."""
    return [(source, position) for source, start, end in runs for position in range(start, end)]


def set_of(roots: Iterable[Root]) -> RootSet:
    """Return some roots as a `RootSet`, made of their positions."""
    table = np.array(list(roots), np.int64).reshape(-1, 2)
    return RootSet.of_positions(table[:, 0], table[:, 1])


def require_same(found: RootSet, roots: set[Root]) -> None:
    """Fail unless a set has these roots, in the fewest runs, ascending, and its one canonical table."""
    runs = found.runs()
    assert roots_of(runs) == sorted(roots)
    assert all(start < end for _, start, end in runs)
    assert all(former[0] < later[0] or former[2] < later[1] for former, later in pairwise(runs))
    assert found == RootSet(found.table.copy())


@given(RUNS)
def test_runs_in_any_order_become_the_set_of_their_roots(runs: list[Run]) -> None:
    roots = set(roots_of(runs))
    require_same(RootSet.of_runs(runs), roots)
    require_same(RootSet.of_runs(iter(sorted(runs))), roots)


@given(st.data(), SOURCES, st.sets(st.integers(1, 30), min_size=1))
def test_the_parts_of_a_run_are_one_run_again(data: st.DataObject, source: int, cuts: set[int]) -> None:
    edges = [0, *sorted(cuts), 31]
    parts = [(source, start, end) for start, end in pairwise(edges)]
    shuffled = data.draw(st.permutations(parts))
    assert RootSet.of_runs(shuffled).table.tolist() == [[source, 0, 31]]
    halves = RootSet.of_runs(shuffled[::2]), RootSet.of_runs(shuffled[1::2])
    assert (halves[0] | halves[1]).table.tolist() == [[source, 0, 31]]


@given(st.lists(RUNS))
def test_the_union_of_many_is_that_of_sets(many_runs: list[list[Run]]) -> None:
    union = RootSet.union_of(RootSet.of_runs(runs) for runs in many_runs)
    require_same(union, {root for runs in many_runs for root in roots_of(runs)})


@given(ROOTS)
def test_positions_in_any_order_become_their_set(roots: list[Root]) -> None:
    require_same(set_of(roots), set(roots))
    require_same(set_of(sorted(set(roots))), set(roots))
    assert set_of(roots) == RootSet.of_runs((source, at, at + 1) for source, at in roots)


@given(SOURCES, st.lists(POSITIONS))
def test_positions_of_one_source_have_it_named_once(source: int, positions: list[int]) -> None:
    found = RootSet.of_positions(source, np.array(positions, np.int64))
    require_same(found, {(source, position) for position in positions})


@given(RUNS, ROOTS)
def test_the_algebra_is_that_of_sets(runs: list[Run], others: list[Root]) -> None:
    left, right = RootSet.of_runs(runs), set_of(others)
    left_roots, right_roots = set(roots_of(runs)), set(others)
    require_same(left | right, left_roots | right_roots)
    require_same(left & right, left_roots & right_roots)
    require_same(left - right, left_roots - right_roots)
    require_same(right - left, right_roots - left_roots)


@given(RUNS, RUNS)
def test_runs_that_touch_runs_of_the_other_set_are_joined_with_them(
    runs: list[Run], others: list[Run]
) -> None:
    left, right = RootSet.of_runs(runs), RootSet.of_runs(others)
    assert left | right == RootSet.of_runs([*runs, *others]) == right | left
    assert (left - right) | (left & right) == left
    assert not (left - right) & right


def test_equal_positions_of_two_sources_are_different_roots() -> None:
    """Also where the first and the last run that are compared are of one source."""
    left = RootSet.of_runs([(0, 0, 5), (7, 0, 9)])
    right = RootSet.of_runs([(0, 3, 4)])
    assert (left - right).runs() == [(0, 0, 3), (0, 4, 5), (7, 0, 9)]
    assert (left & right).runs() == [(0, 3, 4)]
    assert (left | right) == left


@given(RUNS)
def test_a_set_counts_and_names_its_roots(runs: list[Run]) -> None:
    found, roots = RootSet.of_runs(runs), set(roots_of(runs))
    assert (len(found), bool(found)) == (len(roots), bool(roots))
    near = {(source, at + step) for source, at in roots for step in (-1, 0, 1)}
    near |= {(source + 1, at) for source, at in roots}
    assert {root for root in near if root in found} == roots


@given(RUNS, RUNS)
def test_equal_sets_are_equal_however_they_were_made(runs: list[Run], others: list[Run]) -> None:
    found, other = RootSet.of_runs(runs), RootSet.of_runs(others)
    assert (found == other) == (set(roots_of(runs)) == set(roots_of(others)))
    again = set_of(reversed(roots_of(runs)))
    assert found == again
    assert hash(found) == hash(again)
    assert repr(found) == repr(again)


@given(RUNS, SOURCES)
def test_the_runs_of_a_source_are_those_that_name_it(runs: list[Run], source: int) -> None:
    found = RootSet.of_runs(runs)
    assert found.runs_of_source(source) == [tuple(run[1:]) for run in found.runs() if run.source == source]


@given(RUNS)
def test_blocks_hold_each_root_once_in_their_order(runs: list[Run]) -> None:
    found = RootSet.of_runs(runs)
    blocks = found.by_block()
    assert list(blocks) == sorted(blocks)
    for (source, block), part in blocks.items():
        inside = {root for root in roots_of(found.runs()) if root[0] == source}
        require_same(part, {root for root in inside if root[1] >> WIRE_BLOCK_BITS == block})
    assert [root for part in blocks.values() for root in roots_of(part.runs())] == roots_of(found.runs())
    bounds = {key: tuple(run[1:] for run in part.runs()) for key, part in blocks.items()}
    assert list(found.runs_by_block().items()) == list(bounds.items())


@given(RUNS, st.integers(1, 5))
def test_acker_partitions_hold_each_root_once(runs: list[Run], partitions: int) -> None:
    found = RootSet.of_runs(runs)
    shares = found.by_acker_partition(partitions)
    assert list(shares) == sorted(shares)
    for owner, share in shares.items():
        require_same(
            share, {root for root in roots_of(found.runs()) if acker_partition(*root, partitions) == owner}
        )
    assert sum(map(len, shares.values())) == len(found)


@given(RUNS)
def test_a_set_is_what_it_was_when_it_is_unpacked(runs: list[Run]) -> None:
    found = RootSet.of_runs(runs)
    assert RootSet.unpacked(found.packed()) == found


@given(RUNS, st.data())
def test_bytes_that_were_changed_are_another_set_or_refused(runs: list[Run], data: st.DataObject) -> None:
    packed = RootSet.of_runs(runs).packed()
    at = data.draw(st.integers(0, len(packed) - 1))
    changed = packed[:at] + bytes([data.draw(st.integers(0, 255))]) + packed[at + 1 :]
    for broken in (changed, packed[:at], packed + b"\0"):
        try:
            found = RootSet.unpacked(broken)
        except ValueError:
            continue
        assert found == RootSet.of_runs(found.runs())
        assert broken == changed


@pytest.mark.parametrize("blocks", [1, 2, 3, 1_000])
def test_a_long_run_is_cut_at_every_block_that_it_meets(blocks: int) -> None:
    size = 1 << WIRE_BLOCK_BITS
    found = RootSet.of_runs([(7, 5, blocks * size - 5), (8, 0, size)])
    parts = found.by_block()
    assert list(parts) == [*((7, block) for block in range(blocks)), (8, 0)]
    assert [len(part) for part in parts.values()] == [
        min(blocks * size - 5, (block + 1) * size) - max(5, block * size) for block in range(blocks)
    ] + [size]
    assert RootSet.of_runs(run for part in parts.values() for run in part.runs()) == found


def test_neighbouring_blocks_of_one_acker_partition_are_one_run() -> None:
    end = 40 << ACKER_BLOCK_BITS
    shares = RootSet.of_runs([(7, 3, end - 3)]).by_acker_partition(2)
    assert [len(share.table) < 20 for share in shares.values()] == [True, True]
    assert list(RootSet.of_runs([(7, 3, end - 3)]).by_acker_partition(1)) == [0]
    assert RootSet.of_runs([(7, 3, end - 3)]).by_acker_partition(1)[0] == RootSet.of_runs([(7, 3, end - 3)])
    assert shares[0] | shares[1] == RootSet.of_runs([(7, 3, end - 3)])
    assert not shares[0] & shares[1]


def test_whole_sources_are_sets_like_others() -> None:
    """As many positions as an int64 can count, of several sources."""
    end = (1 << 63) - 1
    whole = RootSet.of_runs([(source, 0, end) for source in range(3)])
    hole = RootSet.of_runs([(1, 1 << 53, (1 << 53) + 1)])
    assert whole.table.tolist() == [[0, 0, end], [1, 0, end], [2, 0, end]]
    assert (whole - hole).runs_of_source(1) == [(0, 1 << 53), ((1 << 53) + 1, end)]
    assert (whole - hole) | hole == whole
    assert (1, end - 1) in whole
    assert (1, end) not in whole
    assert len(RootSet.of_runs([(7, 0, end)])) == end
    with pytest.raises(OverflowError):
        len(whole)
    assert RootSet.unpacked(whole.packed()) == whole


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 1)), max_size=12))
def test_rows_are_cut_into_stretches_where_a_column_changes(rows: list[tuple[int, int]]) -> None:
    columns = np.array(rows, np.int64).reshape(-1, 2).T
    expected = [list(stretch) for _, stretch in groupby(rows)]
    assert [rows[stretch] for stretch in stretches_of_rows(*columns)] == expected
    changes = [not number or row != rows[number - 1] for number, row in enumerate(rows)]
    assert is_first_row(*columns).tolist() == changes


@given(st.integers(0, 9), st.integers(0, 9), st.sets(st.integers(0, 12)), st.sampled_from([0, 1 << 48]))
def test_a_run_is_cut_at_the_positions_in_it(first: int, size: int, members: set[int], shift: int) -> None:
    start, end = first + shift, first + size + shift
    positions = np.array(sorted(members), np.int64) + shift
    inside = positions[rows_within(positions, start, end)]
    assert inside.tolist() == [at for at in positions.tolist() if start <= at < end]
    missing = [at for run in runs_between(start, end, inside) for at in range(*run)]
    assert missing == [at for at in range(start, end) if at - shift not in members]
    runs = runs_between(start, end, inside)
    assert all(before.end < after.start for before, after in pairwise(runs)), "as few runs as there can be"


def test_nothing_is_a_set_too() -> None:
    nothing = RootSet()
    assert nothing == NO_ROOTS == RootSet.of_runs([]) == RootSet.of_runs([(7, 5, 5)]) == set_of([])
    assert (nothing.runs(), len(nothing), bool(nothing), (0, 0) in nothing) == ([], 0, False, False)
    assert (nothing.by_block(), nothing.by_acker_partition(3)) == ({}, {})
    assert RootSet.unpacked(nothing.packed()) == nothing
    one = RootSet.of_runs([(7, 5, 6)])
    assert one | nothing == nothing | one == one - nothing == one
    assert nothing - one == one & nothing == nothing & one == one - one == nothing
    assert one != (7, 5)


@pytest.mark.parametrize("step", [1, 300, 100_000, 1 << 40])
def test_runs_that_are_close_to_each_other_take_few_bytes(step: int) -> None:
    runs = [
        (source, (1 << 50) + step * 2 * n, (1 << 50) + step * (2 * n + 1))
        for source in (7, 9)
        for n in range(100)
    ]
    width = {1: 1, 300: 2, 100_000: 4, 1 << 40: 8}[step]
    packed = RootSet.of_runs(runs).packed()
    assert len(packed) == 5 + 2 * 16 + 200 * 2 * width
    assert RootSet.unpacked(packed).table.tolist() == [list(run) for run in runs]
