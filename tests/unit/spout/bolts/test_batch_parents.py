"""The parents of what an Arrow bolt emits: what they may be, and what the error says of others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from acker.errors import TupleError
from spout.bolts.bolts import BatchCollector

ROWS = 3


@pytest.mark.parametrize(
    "parents",
    [0, np.int64(2), np.array(1), [[0, 1]], [0.0, 1.0], ["a"], [True, False, True], None, np.zeros((0, 2))],
    ids=repr,
)
def test_what_is_no_list_of_whole_numbers_is_refused_with_its_type_and_shape(parents: Any) -> None:
    collector = BatchCollector("split", rows=ROWS)
    with pytest.raises(TupleError, match=r"with parents of .*, shape \(.*\); they are \(n,\) numbers"):
        collector.emit({"word": pa.array(["a"])}, parents)
    assert not collector.columns


@pytest.mark.parametrize("parents", [[3], [-1], [0, 1, 3]])
def test_a_parent_that_is_no_row_is_refused(parents: list[int]) -> None:
    collector = BatchCollector("split", rows=ROWS)
    with pytest.raises(TupleError, match=r"not in 0\.\.2"):
        collector.emit({"word": pa.array(["a"] * len(parents))}, parents)


@pytest.mark.parametrize(
    "parents", [[], np.empty(0), [2, 0, 0], np.array([1, 2], np.uint8), pa.array([1])], ids=str
)
def test_whole_numbers_of_any_type_are_taken_and_of_none_the_type_does_not_matter(parents: Any) -> None:
    collector = BatchCollector("split", rows=ROWS)
    collector.emit({"word": pa.array(["a"] * len(parents))}, parents)
    (rows,) = collector.parents
    assert rows.dtype == np.int64
    assert rows.tolist() == list(np.asarray(parents))
