"""What a drain reports and counts, without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa

from spout.publishing.report_accumulator import Batch, LedgerParam, SentReport, Value
from spout.sinks.drain import partition_reporter, partitions_ended_in

BATCH: Batch = ("drain of q", 7)


@dataclass
class Tasks:
    """Stands for the accumulator: merges what tasks add, as Spark does."""

    value: Value = field(default_factory=dict)

    def add(self, term: Value) -> None:
        """Merge what a task added."""
        LedgerParam().addInPlace(self.value, pickle.loads(pickle.dumps(term)))

    def run(self, run: str, *columns: list[int], takes: int = 1_000) -> list[list[bool]]:
        """Let a task follow columns of partition numbers; whoever asks for them `takes` so many."""
        followed = partition_reporter(cast("Any", self), BATCH, run)(
            pa.array(each, pa.int32()) for each in columns
        )
        return [column.to_pylist() for _, column in zip(range(takes), followed, strict=False)]

    def ended(self, run: str) -> frozenset[int]:
        """Return what a run has read to its end."""
        return partitions_ended_in(self.value.get(BATCH, {}).values(), run)


def test_a_partition_is_reported_when_its_last_row_was_taken() -> None:
    """Rule 3: what stops early says nothing."""
    tasks = Tasks()
    assert tasks.run("r", [3, 3], [3], takes=2) == [[True, True], [True]]
    assert tasks.ended("r") == frozenset()
    assert tasks.run("r", [3, 3], [3]) == [[True, True], [True]]
    assert tasks.run("r", [0]) == [[True]]
    assert tasks.ended("r") == {0, 3}


def test_a_partition_without_rows_tells_nothing() -> None:
    """It knows no number, and a task may read several partitions."""
    tasks = Tasks()
    assert tasks.run("r") == []
    assert tasks.run("r", []) == [[]]
    assert tasks.ended("r") == frozenset()


def test_a_batch_that_runs_again_does_not_count_what_was_read_before() -> None:
    tasks = Tasks()
    tasks.run("before", [1])
    tasks.run("now", [2])
    assert tasks.ended("now") == {2}
    read: list[SentReport] = [("before", b"1")]
    assert partitions_ended_in(read, "now") == frozenset()


def test_what_is_followed_is_handed_on_one_by_one() -> None:
    """A batch of Arrow's is let go before the next is asked for: nothing is collected."""
    asked: list[int] = []

    def columns() -> Iterator[pa.Array]:
        for number in range(3):
            asked.append(number)
            yield pa.array([5] * number, pa.int32())

    followed = partition_reporter(cast("Any", Tasks()), BATCH, "r")(columns())
    assert [next(followed).to_pylist(), asked] == [[], [0]]
    assert [next(followed).to_pylist(), asked] == [[True], [0, 1]]
