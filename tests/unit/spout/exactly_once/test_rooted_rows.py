"""Rows with their roots: which are written, and whether they are those that were settled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pytest

from acker.errors import RowsChanged, TrackingError
from acker.root_sets.root_set import RootSet
from spout.exactly_once.rooted_rows import RootedRows, RowSum

A, B = 1 << 16, 1 << 16 | 1
ROOTS: Final = ((A, 5), (A, 5), (B, 2), (A, 6))


def rows_of(roots: Sequence[tuple[int, int]] = ROOTS, hashes: Sequence[int] | None = None) -> RootedRows:
    """Make a row for each root, numbered from 0."""
    numbers = range(len(roots))
    return RootedRows(
        pa.table({"number": pa.array(numbers, pa.int64())}),
        np.array([source for source, _ in roots], np.int64),
        np.array([position for _, position in roots], np.int64),
        np.array([10 + number for number in numbers] if hashes is None else hashes, np.uint64),
    )


def test_the_rows_of_some_roots_are_chosen_with_what_belongs_to_them() -> None:
    chosen = rows_of().of_roots(RootSet.of_runs([(A, 5, 6), (B, 0, 3)]))

    assert chosen.table.column("number").to_pylist() == [0, 1, 2]
    assert chosen.sources.tolist() == [A, A, B]
    assert chosen.positions.tolist() == [5, 5, 2]
    assert chosen.hashes.tolist() == [10, 11, 12]


@pytest.mark.parametrize("roots", [RootSet.of_runs([]), RootSet.of_runs([(B, 5, 7)])])
def test_no_row_is_chosen_of_other_roots(roots: RootSet) -> None:
    """The position 5 of another partition is another root."""
    assert rows_of().of_roots(roots).sum() == RowSum(0, 0)


def test_a_sum_does_not_depend_on_the_order_and_wraps_around() -> None:
    rows = rows_of(ROOTS[:2], [(1 << 64) - 1, 3])

    assert rows.sum() == rows_of(ROOTS[:2], [3, (1 << 64) - 1]).sum() == RowSum(2, 2)


def test_rows_that_were_settled_pass() -> None:
    rows_of().refuse_change(rows_of().sum())
    rows_of(()).refuse_change(RowSum(0, 0))
    assert rows_of().sum() == RowSum(4, 46)


@pytest.mark.parametrize(
    "evaluated_again",
    [
        rows_of(ROOTS[:3]),
        rows_of((*ROOTS, (A, 6))),
        rows_of(ROOTS, [10, 11, 12, 14]),
        rows_of((*ROOTS, (A, 6)), [10, 11, 12, 13, 0]),
    ],
    ids=["one less", "one more", "another row", "one more that adds nothing to the fingerprint"],
)
def test_rows_of_another_evaluation_are_refused(evaluated_again: RootedRows) -> None:
    with pytest.raises(RowsChanged, match="run the batch again"):
        evaluated_again.refuse_change(rows_of().sum())


def test_a_row_of_a_record_that_the_batch_does_not_have_is_refused_by_its_place() -> None:
    rows_of().refuse_strangers(RootSet.of_runs([(A, 5, 7), (B, 2, 3)]))

    with pytest.raises(TrackingError, match=f"1 rows .* source {B}, position 2; keep the hidden column"):
        rows_of().refuse_strangers(RootSet.of_runs([(A, 5, 7), (B, 3, 9)]))
