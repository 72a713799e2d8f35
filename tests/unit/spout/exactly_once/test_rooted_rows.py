"""Rows with their roots: which are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pytest

from acker.errors import TrackingError
from acker.root_sets.root_set import RootSet
from spout.exactly_once.rooted_rows import RootedRows

A, B = 1 << 16, 1 << 16 | 1
ROOTS: Final = ((A, 5), (A, 5), (B, 2), (A, 6))


def rows_of(roots: Sequence[tuple[int, int]] = ROOTS) -> RootedRows:
    """Make a row for each root, numbered from 0."""
    numbers = range(len(roots))
    return RootedRows(
        pa.table({"number": pa.array(numbers, pa.int64())}),
        np.array([source for source, _ in roots], np.int64),
        np.array([position for _, position in roots], np.int64),
    )


def test_the_rows_of_some_roots_are_chosen_with_what_belongs_to_them() -> None:
    chosen = rows_of().of_roots(RootSet.of_runs([(A, 5, 6), (B, 0, 3)]))

    assert chosen.table.column("number").to_pylist() == [0, 1, 2]
    assert chosen.sources.tolist() == [A, A, B]
    assert chosen.positions.tolist() == [5, 5, 2]


@pytest.mark.parametrize("roots", [RootSet.of_runs([]), RootSet.of_runs([(B, 5, 7)])])
def test_no_row_is_chosen_of_other_roots(roots: RootSet) -> None:
    """The position 5 of another partition is another root."""
    assert rows_of().of_roots(roots).table.num_rows == 0


def test_a_row_of_a_record_that_the_batch_does_not_have_is_refused_by_its_place() -> None:
    rows_of().refuse_strangers(RootSet.of_runs([(A, 5, 7), (B, 2, 3)]))

    with pytest.raises(TrackingError, match=f"1 rows .* source {B}, position 2; keep the hidden column"):
        rows_of().refuse_strangers(RootSet.of_runs([(A, 5, 7), (B, 3, 9)]))
