"""What a watermark drops is noted with what moved it, in every block of the batch and in the log."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from acker.config.topics import parse
from acker.identity import copies_source
from acker.wire.events import SourceRun
from acker.wire.lateness import MOVED_BY_MAX, Mover
from replay.records.movers import mover_record, mover_text
from spout.publishing.delayed import NEVER_MS, HighestTime
from spout.publishing.fold import BatchOutcome, LateNote, TaskReport
from spout.publishing.publish import BatchLane, Publication, ack_headers, publication_of
from spout.publishing.settle import Moment, settle
from spout.publishing.watermarks import (
    RISES_KEPT,
    WARN_MS,
    Dropped,
    TooLateLog,
    Watermarks,
    WatermarkStats,
)
from tests.support.outcomes import failed_by_cause, held_of, late_of, outcome_from
from tests.support.reports import reported, task_report
from tests.support.worlds.held_batches import A, B, array, held, plan_of

TOPICS = parse("inputs: {orders: {id: 1, group: g}}", file="topics.yaml", environ={})
INPUTS = TOPICS.inputs_of("g")
PLAN = plan_of(SourceRun(A, 10, 20), SourceRun(B, 5, 8))
WALL_MS = 1_795_255_200_000
TOMORROW_MS = WALL_MS + 86_400_000
NOTE = LateNote(WALL_MS, TOMORROW_MS - 10_000, 8, Mover(TOMORROW_MS, (SourceRun(A, 12, 13),)))


def settled(*reports: TaskReport, late_ms: int = 1_000, read: TaskReport | None = None) -> BatchOutcome:
    """Settle a batch of one read task and of what held its rows."""
    reads = read or task_report("split", plan=PLAN, ranges=PLAN.ranges)
    evaluations = [reported(number, number, 0, report) for number, report in enumerate((reads, *reports))]
    return settle(evaluations, (), lambda _stage: 1, Moment(PLAN, late_ms))


def published(outcome: BatchOutcome, note: LateNote | None = NOTE) -> Publication:
    return publication_of(outcome, BatchLane("q/s", 7), {}, note)


def test_the_roots_that_came_too_late_are_named_once_whatever_becomes_of_them() -> None:
    """O1501: one of two tuples may be in time, and a failed root is named as an acked one."""
    mixed = replace(held(PLAN, 1, 1, 2, 11), until_ms=array(900, 2_000, 2_000, 900))
    failing = replace(held(PLAN, 3, until_ms=-1), fails_late=True)
    outcome = settled(task_report("hold", held=mixed), task_report("other", held=failing))
    assert outcome.late_count == 3
    assert late_of(outcome).tolist() == [1, 3, 11]
    assert held_of(outcome).tolist() == [1, 2]
    [(cause, roots)] = failed_by_cause(outcome)
    assert (cause.error, roots.tolist()) == ("LATE", [3])
    assert cause.message == "a watermark of 1970-01-01T00:00:01Z dropped it"


def test_each_block_with_such_a_root_says_it_and_the_first_one_counts_the_rows() -> None:
    outcome = outcome_from(PLAN, late_count=2, late_roots=array(1, 11))
    publication = published(outcome)
    first, second = publication.too_late[A, 0], publication.too_late[B, 0]
    assert (first.first, second.first) == (True, False)
    assert (first.rows, first.rows_counted, second.rows, second.rows_counted) == (8, 8, 8, 0)
    assert (first.roots, second.roots) == ((SourceRun(A, 11, 12),), (SourceRun(B, 6, 7),))
    assert (first.batch, second.batch) == ((SourceRun(A, 10, 20),), (SourceRun(B, 5, 8),))
    assert (first.watermark, first.mover, first.lane, first.seq) == (
        TOMORROW_MS - 10_000,
        NOTE.mover,
        "q/s",
        7,
    )
    assert [[name for name, _ in ack_headers(acks, publication, 100)] for acks in publication.acks] == [
        ["windhover.too-late"]
    ] * 2


def test_without_dropped_rows_only_blocks_with_such_a_root_say_it() -> None:
    outcome = outcome_from(PLAN, late_count=1, late_roots=array(11))
    publication = published(outcome, NOTE._replace(row_count=0, mover=None))
    assert list(publication.too_late) == [(B, 0)]
    assert publication.too_late[B, 0].mover is None
    assert publication.too_late[B, 0].batch == ()
    assert published(outcome, None).too_late == {}


def test_a_block_that_has_nothing_else_to_say_says_it_all_the_same() -> None:
    """All of it failed."""
    plan = plan_of(SourceRun(A, 10, 12))
    everything = task_report("hold", held=replace(held(plan, 0, 1), fails_late=True, until_ms=array(1, 1)))
    reads = task_report("split", plan=plan, ranges=plan.ranges)
    evaluations = [reported(0, 0, 0, reads), reported(1, 1, 0, everything)]
    outcome = settle(evaluations, (), lambda _stage: 1, Moment(plan, 1_000))
    [acks] = published(outcome).acks
    assert (acks.runs, acks.positions) == ((), b"")
    assert published(outcome, None).acks == ()


def stats(highest_ms: int, column: str = "at", hold: str = "", delay_ms: int = 10_000) -> WatermarkStats:
    return WatermarkStats(column, hold, delay_ms, highest_ms)


def seen(*newest: HighestTime) -> BatchOutcome:
    """Return what a batch has seen."""
    return replace(settled(), highest_times=newest)


def test_a_held_record_is_named_that_moved_the_watermark() -> None:
    """O1503: by the time from which a watermark drops it, which rises with its own."""
    times = replace(held(PLAN, 3, 9, 12, 0), until_ms=array(5_000, 60_000, NEVER_MS, -1))
    outcome = settled(
        task_report("hold", held=times), task_report("none", held=held(PLAN, 1, until_ms=NEVER_MS))
    )
    assert outcome.highest_times == (HighestTime("hold", 60_000, SourceRun(A, 19, 20), is_held=True),)
    watermarks = Watermarks()
    watermarks.record_rises(outcome, [stats(31_000, hold="hold")])
    mover = watermarks.mover_to(21_000)
    assert mover == Mover(31_000, (SourceRun(A, 19, 20),))
    assert watermarks.mover_to(21_001) is None


def test_a_record_is_named_by_its_own_time_or_by_what_bolts_emitted() -> None:
    """O1503: where no hold is, a read task has seen the same time in a column."""
    exact = HighestTime("timestamp", 31_000, SourceRun(A, 12, 13))
    chunk = HighestTime("at", 31_000, SourceRun(A, 10, 20))
    other = HighestTime("seen", 30_999, SourceRun(B, 5, 6))
    for newest, runs in (
        ((other, exact), (SourceRun(A, 12, 13),)),
        ((exact, chunk), (SourceRun(A, 10, 20),)),
        ((other,), PLAN.ranges),
    ):
        watermarks = Watermarks()
        watermarks.record_rises(seen(*newest), [stats(31_000)])
        assert watermarks.mover_to(21_000) == Mover(31_000, tuple(runs))


def test_of_a_batch_with_many_runs_a_few_are_named() -> None:
    plan = plan_of(*(SourceRun(A, 2 * at, 2 * at + 1) for at in range(MOVED_BY_MAX + 5)))
    watermarks = Watermarks()
    watermarks.record_rises(outcome_from(plan), [stats(31_000)])
    mover = watermarks.mover_to(21_000)
    assert mover is not None
    assert mover.runs == plan.ranges[:MOVED_BY_MAX]


def test_of_two_watermarks_each_may_be_the_one_that_counts() -> None:
    """O1504: Spark takes the lower one of two inputs, or the higher one: the value says which it was."""
    watermarks = Watermarks()
    bought = HighestTime("bought", 90_000, SourceRun(A, 12, 13), is_held=True)
    paid = HighestTime("paid", 40_000, SourceRun(B, 6, 7), is_held=True)
    outcome = seen(bought, paid)
    rises = [stats(90_000, "b", "bought"), stats(40_000, "p", "paid", delay_ms=5_000)]
    watermarks.record_rises(outcome, rises)
    assert watermarks.mover_to(80_000) == Mover(90_000, (SourceRun(A, 12, 13),))
    assert watermarks.mover_to(35_000) == Mover(40_000, (SourceRun(B, 6, 7),))
    later = seen(bought._replace(run=SourceRun(A, 19, 20)))
    watermarks.record_rises(later, [stats(89_000, "b", "bought"), stats(90_000, "b", "bought")])
    assert watermarks.mover_to(80_000) == Mover(90_000, (SourceRun(A, 12, 13),)), "it was there before"


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2)])
def test_each_column_and_each_hold_has_a_watermark_of_its_own(order: Sequence[int]) -> None:
    """Two columns, each with a hold and without one: a higher one of them hides no other."""
    four = [
        stats(90_000, "at", "bought"),
        stats(80_000, "at"),
        stats(70_000, "seen", "bought"),
        stats(60_000, "seen"),
    ]
    watermarks = Watermarks()
    for number in order:
        watermarks.record_rises(seen(), [four[number]])
    for each in four:
        assert watermarks.mover_to(each.highest_ms - each.delay_ms) == Mover(each.highest_ms, PLAN.ranges)


def test_only_the_last_rises_are_remembered_and_one_that_none_follows_stays() -> None:
    watermarks = Watermarks()
    for second in range(RISES_KEPT + 5):
        watermarks.record_rises(seen(), [stats(1_000 * second, "busy"), stats(500, "quiet")])
    assert watermarks.mover_to(0 - 10_000) is None
    assert watermarks.mover_to(1_000 * (RISES_KEPT + 4) - 10_000) is not None
    assert watermarks.mover_to(500 - 10_000) == Mover(500, PLAN.ranges)


def test_rows_that_a_hold_knows_are_not_counted_twice() -> None:
    assert [Dropped(8).rows_without_record(held) for held in (0, 3, 8, 1_000)] == [8, 5, 0, 0]


def test_the_first_is_logged_at_once_and_then_once_a_minute_with_all_since(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """O1503: group, how many, the watermark, and the place and time of what moved it."""
    now_ms = [0]
    too_late_log = TooLateLog(lambda: now_ms[0])
    with caplog.at_level(logging.WARNING, "windhover.spout"):
        for at_ms in (0, 1, WARN_MS - 1, WARN_MS):
            now_ms[0] = at_ms
            too_late_log.report("g", 2, NOTE, INPUTS)
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith(
        "too_late group=g tuples=2 rows=8 watermark=2026-11-22T09:59:50Z moved_by=orders/0@12 (event time"
        " 2026-11-22T10:00:00Z): what ends at the watermark"
    )
    assert second.startswith("too_late group=g tuples=6 rows=24 ")


@pytest.mark.parametrize(
    ("at_ms", "runs", "text"),
    [
        (TOMORROW_MS, [SourceRun(A, 12, 13)], "orders/0@12 (event time 2026-11-22T10:00:00Z)"),
        (
            5,
            [SourceRun(copies_source(A), 0, 1)],
            "orders.g.replay/0@0 (event time 1970-01-01T00:00:00.005000Z)",
        ),
        (5, [SourceRun(9 << 16, 0, 1)], "589824/0@0 (event time 1970-01-01T00:00:00.005000Z)"),
        (5, [SourceRun(A, 1, 4)], "one of orders/0@1 to 3 (event time 1970-01-01T00:00:00.005000Z)"),
        (
            WALL_MS * 1_000,
            [SourceRun(A, at, at + 1) for at in range(5)],
            "one of orders/0@0, orders/0@1, orders/0@2, and 2 more runs (event time 1795255200000000 ms after"
            " 1970; as microseconds it is 2026-11-21T10:00:00Z)",
        ),
        (WALL_MS * 1_000_000, [SourceRun(A, 1, 2)],
         f"orders/0@1 (event time {WALL_MS * 1_000_000} ms after 1970; as nanoseconds it is"
         " 2026-11-21T10:00:00Z)"),
        (-5, [SourceRun(A, 1, 2)], "orders/0@1 (event time 1969-12-31T23:59:59.995000Z)"),
        (-(1 << 60), [SourceRun(A, 1, 2)], f"orders/0@1 (event time {-(1 << 60)} ms after 1970)"),
    ],
)  # fmt: skip
def test_what_moved_a_watermark_is_named_with_its_time_and_what_it_may_have_meant(
    at_ms: int, runs: Sequence[SourceRun], text: str
) -> None:
    """O1503: microseconds that were taken for milliseconds lie beyond all calendars."""
    assert mover_text(Mover(at_ms, tuple(runs)), INPUTS, WALL_MS) == text


def test_what_nobody_has_seen_is_called_unknown() -> None:
    assert "unknown" in mover_text(None, INPUTS, WALL_MS)
    assert mover_record(None, INPUTS) == mover_record(Mover(5, (SourceRun(A, 1, 4),)), INPUTS) == ""
    assert mover_record(NOTE.mover, INPUTS) == "orders/0@12"


def test_a_batch_holds_no_late_root_where_nothing_is_late() -> None:
    outcome = settled(task_report("hold", held=held(PLAN, 1, until_ms=2_000)))
    assert late_of(outcome).dtype == np.int64
    assert len(late_of(outcome)) == 0
