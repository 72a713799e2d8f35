"""The roots of rows that come to the driver, by their hidden column."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pytest

from acker.errors import TrackingError
from acker.wire.events import SourceRun
from spout.exactly_once.anchored_rows import rooted_rows
from spout.planning.plan import BatchPlan
from spout.tuples.anchors import PATHS_TYPE, AnchorForm, pack
from spout.tuples.columns import ANCHOR

A, B = 1 << 16, (1 << 16) + 1
PLAN: Final = BatchPlan("g", "s", 1, 4, 77, 30_000, True, (SourceRun(A, 10, 13), SourceRun(B, 5, 7)))
"""The roots 0 to 4: A at 10 to 12, B at 5 and 6."""


def packed(*roots: int) -> pa.Array:
    """Return a column of roots, each row another of its tuples."""
    indices = np.array(roots, np.int64)
    return pa.array(pack(indices, np.arange(len(roots)), "split"))


def hops(*rows: list[list[int]]) -> pa.Array:
    return pa.array(rows, PATHS_TYPE)


def table_of(column: pa.Array) -> pa.Table:
    return pa.table({"word": [f"w{number}" for number in range(len(column))], ANCHOR: column})


@pytest.mark.parametrize(
    ("carry", "column"),
    [
        (AnchorForm.PACKED, packed(4, 0, 0, 3)),
        (AnchorForm.HOPS, hops([[4]], [[0, 7, 8], [0, 7, 9], [0]], [[0, 3]], [[3, -1]])),
    ],
    ids=str,
)
def test_each_row_has_the_root_of_its_anchors(carry: AnchorForm, column: pa.Array) -> None:
    rows = rooted_rows(table_of(column), carry, PLAN)

    assert list(zip(rows.sources.tolist(), rows.positions.tolist(), strict=True)) == [
        (B, 6), (A, 10), (A, 10), (B, 5)
    ]  # fmt: skip
    assert rows.table.to_pydict() == {"word": ["w0", "w1", "w2", "w3"]}


@pytest.mark.parametrize("carry", [AnchorForm.PACKED, AnchorForm.HOPS])
def test_a_batch_may_have_no_rows(carry: AnchorForm) -> None:
    rows = rooted_rows(table_of(pa.array([], carry.type)), carry, PLAN)

    assert (rows.table.num_rows, len(rows.sources), len(rows.positions)) == (0, 0, 0)


@pytest.mark.parametrize("pieces", [1, 2])
def test_a_column_in_several_pieces_is_one(pieces: int) -> None:
    table = pa.concat_tables([table_of(hops([[4], [4, 1]], [[0]]))] * pieces)

    assert rooted_rows(table, AnchorForm.HOPS, PLAN).positions.tolist() == [6, 10] * pieces


@pytest.mark.parametrize(
    ("carry", "column", "message"),
    [
        (AnchorForm.PACKED, pa.array([5 << 24, None]), "the hidden column is null"),
        (AnchorForm.HOPS, hops([[1]], []), "emitted it without anchors"),
        (AnchorForm.HOPS, hops([[1]], [[2], [3, 1]]), "anchored it on tuples of several records"),
        (AnchorForm.PACKED, packed(5), "not in the plan"),
    ],
)
def test_a_row_of_no_record_or_of_several_is_refused(
    carry: AnchorForm, column: pa.Array, message: str
) -> None:
    with pytest.raises(TrackingError, match=message):
        rooted_rows(table_of(column), carry, PLAN)
