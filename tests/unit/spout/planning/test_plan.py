"""Plans, their indices and tasks, and the journal that they are a function of."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker.errors import Disagreement, TrackingError
from acker.identity import position_at
from acker.wire.events import PositionRun, SourceRun
from spout.planning.journal import BEGINNING, Journal, SourceMark, batch_ranges, journal_of
from spout.planning.plan import BatchPlan, cut_ranges, read_tasks

BLOCK = 32_768
RANGES = (
    SourceRun(65_536, 10, 20),
    SourceRun(65_536, 30, 35),
    SourceRun(65_537, position_at(2, 0), position_at(2, 7)),
)
PLAN = BatchPlan("g", "s", 3, 4, 1_000, 30_000, tracked=True, ranges=RANGES)


@st.composite
def ranges(draw: st.DrawFn) -> tuple[SourceRun, ...]:
    """Ascending, disjoint ranges of a few sources."""
    found: list[SourceRun] = []
    for source in draw(st.lists(st.integers(1, 5), unique=True, max_size=4).map(sorted)):
        start = draw(st.integers(0, 100_000))
        for gap, length in draw(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 90_000)), max_size=3)):
            found.append(SourceRun(source, start + gap, start + gap + length))
            start += gap + length + 1
    return tuple(found)


def test_an_index_counts_positions_through_all_ranges() -> None:
    """Ten of the first range, then five, then those of the next source."""
    assert PLAN.count == 22
    assert PLAN.starts() == (0, 10, 15)
    assert PLAN.index().of(65_536, np.array([10, 19, 30, 34])).tolist() == [0, 9, 10, 14]
    assert PLAN.index().of(65_537, np.array([position_at(2, 6)])).tolist() == [21]
    assert PLAN.index().of(65_537, np.array([], np.int64)).tolist() == []


@pytest.mark.parametrize(
    ("source", "position"), [(65_536, 9), (65_536, 20), (65_536, 35), (65_537, 0), (9, 0)]
)
def test_a_position_outside_the_plan_is_refused(source: int, position: int) -> None:
    """A foreign anchor must never be folded into another root."""
    with pytest.raises(TrackingError):
        PLAN.index().of(source, np.array([position]))


@given(ranges(), st.integers(1, 9))
def test_shares_are_the_ranges_in_order_and_none_is_empty(found: tuple[SourceRun, ...], pieces: int) -> None:
    """Nothing is lost, doubled or moved by the cutting."""
    shares = cut_ranges(found, pieces)
    assert len(shares) <= pieces
    assert all(run.start < run.end for share in shares for run in share)
    joined: list[SourceRun] = []
    for run in (run for share in shares for run in share):
        if joined and joined[-1].source == run.source and joined[-1].end == run.start and run not in found:
            joined[-1] = joined[-1]._replace(end=run.end)
        else:
            joined.append(run)
    assert tuple(joined) == found


@given(ranges(), st.integers(1, 9))
def test_no_share_is_much_larger_than_the_others(found: tuple[SourceRun, ...], pieces: int) -> None:
    """At most half as much again as an even share."""
    total = sum(run.end - run.start for run in found)
    for share in cut_ranges(found, pieces):
        assert sum(run.end - run.start for run in share) <= total / pieces * 1.5 + 2


def test_one_partition_of_kafka_occupies_all_cores() -> None:
    """A range is cut at the ends of blocks where one is near."""
    tasks = read_tasks(replace(PLAN, ranges=(SourceRun(1, 0, 10 * BLOCK),)), {1: "t"}, 4)
    assert [task.ranges for task in tasks] == [
        (SourceRun(1, 0, 2 * BLOCK),),
        (SourceRun(1, 2 * BLOCK, 5 * BLOCK),),
        (SourceRun(1, 5 * BLOCK, 7 * BLOCK),),
        (SourceRun(1, 7 * BLOCK, 10 * BLOCK),),
    ]


def test_a_hundred_small_partitions_do_not_make_a_hundred_tasks() -> None:
    """A task may read several partitions."""
    plan = replace(PLAN, ranges=tuple(SourceRun(source, 0, 100) for source in range(1, 101)))
    tasks = read_tasks(plan, dict.fromkeys(range(1, 101), "t"), 4)
    assert [len(task.ranges) for task in tasks] == [25, 25, 25, 25]
    assert len(tasks[0].topics) == 25


def test_few_records_stay_in_one_task() -> None:
    """Below a thousand records a second task costs more than it gains."""
    assert len(read_tasks(PLAN, {65_536: "t", 65_537: "u"}, 8)) == 1


def test_an_empty_plan_has_no_tasks() -> None:
    """Batch 0 runs even if it is empty."""
    assert read_tasks(replace(PLAN, ranges=()), {}, 8) == []


def test_a_task_survives_pickling() -> None:
    """It travels to the executors, and with its plan in the blob back."""
    task = read_tasks(PLAN, {65_536: "t", 65_537: "u"}, 2)[0]
    assert pickle.loads(pickle.dumps(task)) == task


def test_an_offset_survives_the_journal_word_for_word() -> None:
    """Spark keeps and compares offsets as text."""
    marks = {65_537: SourceMark(5, 90, (PositionRun(10, 20), PositionRun(40, 41))), 65_536: SourceMark(0, 7)}
    journal = Journal("id", 3, 1_234, 4, marks, RANGES, at_ms=1_700_000_000_000)
    text = json.dumps(journal.to_json())
    assert journal_of(json.loads(text)) == journal
    assert json.dumps(journal_of(json.loads(text)).to_json()) == text
    assert journal_of(json.loads(json.dumps(BEGINNING.to_json()))) == BEGINNING


def test_an_offset_of_an_older_version_is_read_as_it_stands() -> None:
    """Rewritten in other words it would look to Spark like new records."""
    old = Journal("id", 3, 1_234, 4, {65_536: SourceMark(0, 7)}, RANGES)
    text = json.dumps(old.to_json())
    assert '"at"' not in text
    assert json.dumps(journal_of(json.loads(text)).to_json()) == text


@pytest.mark.parametrize("text", ["{}", '{"v": 2}', '{"v": 1, "session": 3}', "[]", '{"index": 4}'])
def test_an_offset_of_something_else_is_refused(text: str) -> None:
    """A checkpoint of another source, or of a later version."""
    with pytest.raises(Disagreement):
        journal_of(json.loads(text))


def test_a_batch_is_what_its_end_says_and_nothing_when_nothing_moved() -> None:
    """What Spark runs again it runs over the same ranges."""
    start = Journal("id", 3, 1, 2, {1: SourceMark(0, 7)}, (SourceRun(1, 0, 7),))
    end = Journal("id", 3, 2, 2, {1: SourceMark(0, 9)}, (SourceRun(1, 7, 9),))
    assert batch_ranges(start, end) == end.ranges
    assert batch_ranges(end, end) == ()
    assert batch_ranges(BEGINNING, BEGINNING) == ()


@given(st.sets(st.integers(0, 30)), st.integers(0, 31), st.integers(0, 31))
def test_a_mark_knows_what_was_emitted(gaps: set[int], start: int, end: int) -> None:
    """Below `next` everything but the gaps."""
    mark = SourceMark(0, 25, tuple(PositionRun(gap, gap + 1) for gap in sorted(gaps) if gap < 25))
    found = {p for run in mark.emitted(start, end) for p in range(*run)}
    assert found == {p for p in range(start, min(end, 25)) if p not in gaps}
