"""Where a batch begins, if Spark does not say it: every order in which Spark 4.0 and 4.1 call a reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from spout.spark.reader_with_memory import ReaderWithMemory

INITIAL = {"at": 0}


class Reader(ReaderWithMemory):
    """Plans what it is given, and notes between which offsets."""

    def __init__(self, *ends: int) -> None:
        self._ends = list(ends)
        self.planned_from: list[int] = []
        self.ran: list[tuple[int, int]] = []

    @property
    def rows_max(self) -> int | None:
        return 100

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return INITIAL

    def stop_at_ends(self) -> None:
        raise AssertionError("these versions never say it")

    def plan_batch(self, start: dict[str, Any], rows_max: int | None) -> dict[str, Any]:
        assert rows_max == 100
        self.planned_from.append(start["at"])
        return {"at": self._ends.pop(0)} if self._ends else start

    def tasks_of_batch(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self.ran.append((start["at"], end["at"]))
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        raise AssertionError("only workers read")

    def latest(self) -> int:
        """Call it as Spark does; return the end."""
        return int(self.latestOffset()["at"])

    def run(self, start: int, end: int) -> int:
        """Call it as Spark does; return how many tasks there are."""
        return len(self.partitions({"at": start}, {"at": end}))


def test_a_fresh_checkpoint_begins_at_the_initial_offset() -> None:
    reader = Reader(4, 9)
    assert reader.latest() == 4
    assert reader.run(0, 4) == 1
    assert [reader.latest(), reader.latest()] == [9, 9]
    assert reader.planned_from == [0, 4, 9]
    assert reader.ran == [(0, 4)]


def test_after_a_batch_that_was_committed_it_goes_on_there_and_runs_nothing_again() -> None:
    reader = Reader(12)
    assert reader.run(7, 7) == 0
    assert reader.latest() == 12
    assert (reader.planned_from, reader.ran) == ([7], [])


def test_a_batch_that_was_not_committed_runs_again_and_the_next_begins_behind_it() -> None:
    reader = Reader(12)
    assert reader.run(7, 7) == 0
    assert reader.run(5, 7) == 1
    assert reader.latest() == 12
    assert (reader.planned_from, reader.ran) == ([7], [(5, 7)])


@pytest.mark.parametrize("restarts", [False, True])
def test_a_first_batch_without_records_begins_and_ends_at_the_initial_offset(restarts: bool) -> None:
    """It looks like Spark's word of where the checkpoint ends, which is only ever the first call."""
    reader = Reader()
    if restarts:
        assert reader.run(0, 0) == 0
    else:
        assert reader.latest() == 0
    assert reader.run(0, 0) == 1
    assert reader.ran == [(0, 0)]
    reader.latest()
    assert set(reader.planned_from) == {0}
