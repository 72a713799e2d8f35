"""What a drain reports and counts, without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError

from spout.publishing.report_accumulator import Batch, LedgerParam, SentReport, Value
from spout.sinks import drain
from spout.sinks.drain import Drain, end_reporter, partition_reporter, partitions_ended_in

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


# the ends of partitions -------------------------------------------------------------------------------------


@dataclass
class BatchOfSpark:
    """Stands for the rows of foreachBatch, and for what is done with them.

    Attributes:
        tasks: the accumulator.
        partitions: how many partitions the rows have.
        ends: the functions that run behind them, with the number of their partitions.
        filtered: how often the rows went through the filter.
    """

    tasks: Tasks = field(default_factory=Tasks)
    partitions: int = 3
    ends: list[tuple[int, Any]] = field(default_factory=list)
    filtered: int = 0

    def drained(self) -> Any:
        """Return the rows with a drain behind them, which is another one each time."""
        ledger = SimpleNamespace(accumulator=self.tasks)
        self.drain = Drain(cast("Any", ledger), "q", 7)
        return self.drain.with_drain(cast("Any", self))

    @property
    def sparkSession(self) -> Any:  # noqa: N802 - Spark's name
        """A session that makes numbers, one in each partition."""

        def numbers(start: int, end: int, step: int, partition_count: int) -> Any:
            assert (start, end, step) == (0, partition_count, 1)
            return SimpleNamespace(schema="id", mapInArrow=lambda ends, _schema: (partition_count, ends))

        return SimpleNamespace(range=numbers)

    def withColumn(self, name: str, _column: object) -> BatchOfSpark:  # noqa: N802 - Spark's name
        """Do nothing: the filter's column."""
        assert name == drain.PARTITION
        return self

    def filter(self, _condition: object) -> BatchOfSpark:
        """Count the filter."""
        self.filtered += 1
        return self

    def drop(self, name: str) -> BatchOfSpark:
        """Do nothing: the filter's column."""
        assert name == drain.PARTITION
        return self


def continued(rows: BatchOfSpark, ends: tuple[int, Any]) -> str:
    """Put ends behind the partitions of rows."""
    rows.ends.append(ends)
    return "continued"


@pytest.fixture
def batch(monkeypatch: pytest.MonkeyPatch) -> BatchOfSpark:
    """A batch of three partitions, as foreachBatch gives it."""
    monkeypatch.setattr(drain, "CONTINUES_PARTITIONS", True)
    monkeypatch.setattr(drain, "are_of_batch", lambda _rows: True)
    monkeypatch.setattr(drain, "are_kept", lambda _rows: False)
    monkeypatch.setattr(drain, "prefer_executors", lambda _rows: False)
    monkeypatch.setattr(drain, "partition_count_of", lambda rows: rows.partitions)
    monkeypatch.setattr(drain, "continue_partitions", continued)
    monkeypatch.setattr(drain, "column_function", lambda _function, _type: lambda _column: "keeps")
    monkeypatch.setattr(drain, "sql", SimpleNamespace(spark_partition_id=lambda: "id", col=lambda name: name))
    return BatchOfSpark()


def numbers_of(*partitions: int) -> Iterator[pa.RecordBatch]:
    """Yield what the end of these partitions gets."""
    yield pa.RecordBatch.from_pydict({"id": pa.array(partitions, pa.int64())})


def test_the_end_of_a_partition_reports_its_number_and_has_no_rows() -> None:
    """Rule 3: not before Spark begins it."""
    tasks = Tasks()
    report_ends = end_reporter(cast("Any", tasks), BATCH, "r")
    begun = report_ends(numbers_of(4))
    assert tasks.ended("r") == frozenset()
    assert list(begun) == []
    assert tasks.ended("r") == {4}
    assert list(report_ends(numbers_of(0))) == []
    assert (tasks.ended("r"), tasks.ended("before")) == ({0, 4}, frozenset())


def test_rows_of_foreachbatch_get_an_end_behind_each_partition(batch: BatchOfSpark) -> None:
    assert batch.drained() == "continued"
    [(partition_count, report_ends)] = batch.ends
    assert (partition_count, batch.filtered) == (3, 0)
    assert batch.drain.ended_partitions == frozenset()
    list(report_ends(numbers_of(2)))
    assert batch.drain.ended_partitions == {2}
    first = batch.drain
    batch.drained()
    assert (first.ended_partitions, batch.drain.ended_partitions) == ({2}, frozenset())


def test_rows_without_partitions_stay_as_they_are(batch: BatchOfSpark) -> None:
    batch.partitions = 0
    assert batch.drained() is batch
    assert batch.ends == []


@pytest.mark.parametrize("name", ["CONTINUES_PARTITIONS", "are_of_batch"])
def test_other_rows_and_rows_of_an_older_spark_go_through_the_filter(
    batch: BatchOfSpark, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, name, False if name.isupper() else lambda _rows: False)
    assert batch.drained() is batch
    assert (batch.filtered, batch.ends) == (1, [])


@pytest.mark.parametrize("name", ["are_kept", "prefer_executors"])
def test_rows_that_somebody_keeps_or_that_have_their_state_on_executors_go_through_the_filter(
    batch: BatchOfSpark, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ends would read past the cache, and hide from Spark which executors have the state."""
    monkeypatch.setattr(drain, name, lambda _rows: True)
    assert batch.drained() is batch
    assert (batch.filtered, batch.ends) == (1, [])


@pytest.mark.parametrize("name", ["prefer_executors", "continue_partitions"])
def test_a_spark_that_lacks_a_class_for_ends_has_the_filter(
    batch: BatchOfSpark,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(*_arguments: object) -> bool:
        raise Py4JError("SQLPartitioningAwareUnionRDD does not exist in the JVM")

    monkeypatch.setattr(drain, name, refuse)
    with caplog.at_level("DEBUG", logger="windhover.spout"):
        assert batch.drained() is batch
    assert (batch.filtered, batch.ends) == (1, [])
    assert "ends_refused SQLPartitioningAwareUnionRDD does not exist in the JVM" in caplog.text
