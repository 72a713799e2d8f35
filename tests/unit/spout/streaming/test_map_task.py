"""What `mapInArrow` calls: the hidden column becomes anchors, and a report is added behind the last row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import spout
from acker.errors import TrackingError
from spout.publishing.fold import TaskReport
from spout.streaming import map_task
from spout.streaming.map_task import MapTask
from spout.topology.chain import Chain, Step
from spout.tuples.anchors import ORDINAL_BITS, AnchorForm
from spout.tuples.columns import ANCHOR

WORD = pa.schema([("word", pa.string())])


class Keep(spout.BasicBolt):
    """Passes words on; fails one that says so."""

    output = "word string"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit it."""
        assert ANCHOR not in tuple
        if tuple["word"] == "bad":
            raise ValueError("bad")
        collector.emit((tuple["word"],))


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The reports that tasks add, each with its ledger and its stream."""
    added: list[tuple[Any, ...]] = []
    monkeypatch.setattr(map_task, "add_report", lambda *report: added.append(report))
    return added


def rows_of(*words: str, roots: list[int | None] | None = None) -> pa.RecordBatch:
    """Return rows, with the hidden column if they have roots."""
    rows = pa.record_batch({"word": list(words)})
    if roots is None:
        return rows
    packed = [None if root is None else root << ORDINAL_BITS for root in roots]
    return rows.append_column(ANCHOR, pa.array(packed, pa.int64()))


def task_of(ledger: object = "ledger", **about: Any) -> MapTask:
    chain = Chain((Step("it", Keep(), WORD),), **{"arriving_form": AnchorForm.PACKED, **about})
    return MapTask(chain.stage, "stream", ledger)


def words_of(task: MapTask, *batches: pa.RecordBatch) -> list[str]:
    return [word for batch in task(batches) for word in batch.column("word").to_pylist()]


def test_roots_that_arrive_are_reported_behind_the_last_row(reports: list[tuple[Any, ...]]) -> None:
    rows = task_of()([rows_of("a", "bad", roots=[4, 1]), rows_of("c", roots=[2])])
    words: list[str] = []
    for batch in rows:
        assert reports == []
        words += batch.column("word").to_pylist()
    assert words == ["a", "c"]
    [(ledger, stream, report)] = reports
    assert (ledger, stream, report.operator) == ("ledger", "stream", "it")
    assert isinstance(report, TaskReport)
    assert report.received is not None
    assert np.flatnonzero(report.received).tolist() == [1, 2, 4]


def test_a_root_that_comes_twice_ends_the_task(reports: list[tuple[Any, ...]]) -> None:
    with pytest.raises(TrackingError, match="'it' received a root twice"):
        words_of(task_of(), rows_of("a", roots=[4]), rows_of("b", roots=[4]))
    assert reports == []


def test_behind_other_bolts_a_root_may_come_twice(reports: list[tuple[Any, ...]]) -> None:
    task = task_of(subscriptions=(5,), upstream="before")
    assert words_of(task, rows_of("a", "b", roots=[4, 4])) == ["a", "b"]
    assert reports[0][2].received is None


@pytest.mark.parametrize("roots", [[None], [4, None], [None, 4]])
def test_a_row_without_an_anchor_ends_the_task_with_the_cure(roots: list[int | None]) -> None:
    """Behind an outer join, or a union with another stream."""
    words = ["a", "b"][: len(roots)]
    with pytest.raises(TrackingError, match=r"bolt .it. received rows without anchors\. Where an outer join"):
        words_of(task_of(), rows_of(*words, roots=roots))


def test_what_is_not_tracked_has_no_anchors_and_no_report(reports: list[tuple[Any, ...]]) -> None:
    """Also where a hidden column is left over."""
    task = task_of(None, arriving_form=AnchorForm.NONE)
    assert words_of(task, rows_of("a"), rows_of("b", roots=[None]), rows_of("c", roots=[4])) == [
        "a",
        "b",
        "c",
    ]
    assert reports == []
    assert words_of(task_of(), rows_of("a")) == ["a"], "its query ran untracked in this batch"
    assert not reports[0][2].received.any()
