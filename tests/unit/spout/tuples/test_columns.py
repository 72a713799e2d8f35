"""Sources and positions of the roots of a task's input."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spout.tuples.columns import ROOT_TYPE, Origins


def named(*places: tuple[int, int] | None) -> pa.StructArray:
    """Make the column that names roots; None: there is none."""
    rows = [place and {"source": place[0], "position": place[1]} for place in places]
    return pa.array(rows, ROOT_TYPE)


def test_roots_are_named_by_source_and_position_in_any_order_and_as_often_as_asked() -> None:
    """Roots of several inputs and blocks, the root with index 0, and rows without a root."""
    origins = Origins()
    origins.add_roots(np.array([0, 7, -1]), named((65_536, 40), (65_537, 41), None))
    origins.add_roots(np.array([7, 3]), named((65_537, 41), (131_072, 0)))
    found = origins.column(np.array([3, -1, 0, 7, 0]))
    assert found.type == ROOT_TYPE
    assert found.equals(named((131_072, 0), None, (65_536, 40), (65_537, 41), (65_536, 40)))
    assert [found.field(name).to_pylist()[1] for name in ROOT_TYPE.names] == [0, 0], "0 stands below a null"


def test_no_rows_have_no_roots() -> None:
    origins = Origins()
    origins.add_roots(np.array([], np.int64), named())
    assert origins.column(np.array([], np.int64)).to_pylist() == []


def test_a_root_that_did_not_come_with_the_input_is_refused() -> None:
    origins = Origins()
    origins.add_roots(np.array([-1, 4]), named(None, (1, 2)))
    with pytest.raises(KeyError):
        origins.column(np.array([4, 5]))


def test_each_root_has_its_own_name() -> None:
    with pytest.raises(ValueError, match="zip"):
        Origins().add_roots(np.array([1, 2]), named((1, 2)))
