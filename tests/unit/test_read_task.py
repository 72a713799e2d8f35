"""What a read task reports of the positions that it did not find."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from acker.errors import TrackingError
from spout.map_task import Received
from spout.plan import holes
from spout.read_task import no_garbage_collection


def test_positions_between_records_are_holes() -> None:
    """S91, P6: they never held a record."""
    found = holes(7, 10, np.array([11, 12, 15, 19]))
    assert found == [(7, 10, 11), (7, 13, 15), (7, 16, 19)]
    assert holes(7, 11, np.array([11, 12, 13])) == []
    assert holes(7, 11, np.array([13])) == [(7, 11, 13)]


def test_the_collector_is_switched_on_again_whatever_happens() -> None:
    def fail() -> None:
        with no_garbage_collection():
            raise KeyError(gc.isenabled())

    with pytest.raises(KeyError, match="False"):
        fail()
    assert gc.isenabled()


def test_roots_that_come_once_are_marked_and_one_that_comes_twice_is_named() -> None:
    received = Received("split")
    received.mark(np.array([5, 0]))
    received.mark(np.array([], np.int64))
    received.mark(np.array([2]))
    assert received.marks().tolist() == [True, False, True, False, False, True]
    for again in ([2], [9, 9]):
        with pytest.raises(TrackingError, match="'split' received a root twice"):
            received.mark(np.array(again))
