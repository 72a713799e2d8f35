"""Reports of tasks put together: what each says is kept, bounded, and of the roots that it names."""

from __future__ import annotations

import logging
import pickle
import zlib
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from acker.errors import TrackingError
from acker.identity import I64, child_edge, root_edge
from acker.wire.causes import HELD
from acker.wire.events import SourceRun
from spout.planning.plan import BatchPlan
from spout.publishing.batch_warnings import isolated_counts
from spout.publishing.blob import decode, encode
from spout.publishing.delayed import (
    NEVER_MS,
    HeldAt,
    HighestTime,
    RootPositions,
    find_keyed_roots,
    held_edges,
    held_marks,
    holder_of,
)
from spout.publishing.fold import BatchOutcome, LateNote, TaskReport, indices_not_done, merged, placed
from spout.publishing.report_accumulator import (
    LedgerParam,
    ReportLedger,
    TaskName,
    TracebackLog,
    Value,
    add_report,
    is_local,
    task_name,
)
from spout.publishing.root_marks import COMPRESSED_ROWS, RootMark, RootMarks
from spout.publishing.settle import Moment, settle
from spout.publishing.watermarks import RISES_KEPT, WARN_MS, TooLateLog, Watermarks, WatermarkStats
from spout.runtime.logs import RECURRING_EVERY_S
from spout.tuples.failures import ERRORS_MAX, Cause
from spout.tuples.poison import HUNG, WORKER_DIED
from spout.tuples.raised import Raised
from tests.support.outcomes import (
    absent_of,
    failed_by_cause,
    held_of,
    late_of,
    left_open_of,
    older_touched,
    outcome_from,
    positions_by_cause,
    released_marks,
    touched_of,
)
from tests.support.reports import Held, failures_in, held_in, keyed_marks, reported, task_report, touched_in

A, B = 1 << 16, 1 << 16 | 1
PLAN = BatchPlan("g", "s", 1, 4, 99, 30_000, tracked=True, ranges=(SourceRun(A, 10, 20), SourceRun(B, 5, 8)))
BAD = Cause("split", "ValueError", "bad")
READ = task_report("split", plan=PLAN, ranges=PLAN.ranges)


def numbers(*values: int) -> I64:
    """Make an array."""
    return np.array(values, np.int64)


def at(*roots: tuple[int, int]) -> RootPositions:
    """Make the places of roots."""
    return RootPositions(numbers(*(source for source, _ in roots)), numbers(*(place for _, place in roots)))


def settled(*reports: TaskReport, late_ms: int | None = None) -> BatchOutcome:
    """Settle a batch of one read task and of further reports, each of a stage of its own."""
    moment = None if late_ms is None else Moment(PLAN, late_ms)
    evaluated = [reported(stage, stage, 0, report) for stage, report in enumerate((READ, *reports))]
    return settle(evaluated, (), lambda _stage: 1, moment)


def test_parts_of_a_task_are_one_report_with_so_many_errors_of_each_bolt() -> None:
    errors = tuple(Cause(bolt, "E", f"{n:02}") for n in range(ERRORS_MAX - 1) for bolt in ("split", "count"))
    first = task_report(
        "split",
        failures=((BAD, numbers(1)),),
        outstanding={(7,): numbers(2, 0).reshape(1, 2)},
        touched=numbers(4, 3),
        errors=errors,
    )
    more = (Cause("split", "E", "x"), Cause("split", "E", "y"), Cause("count", "E", "z"))
    second = task_report(
        "split",
        failures=((BAD, numbers(5)),),
        outstanding={(7,): numbers(6, 1).reshape(1, 2)},
        touched=numbers(4),
        errors=more,
    )
    whole = merged([first, second])
    assert [(cause, roots.tolist()) for cause, roots in failures_in(whole)] == [(BAD, [1, 5])]
    assert {path: rows.tolist() for path, rows in whole.outstanding.items()} == {(7,): [[2, 0], [6, 1]]}
    assert touched_in(whole) == [3, 4]
    assert whole.errors == (*errors, more[0], more[2])
    assert merged([second]).operator == "split"
    assert indices_not_done(whole).tolist() == [1, 2, 5, 6]


def test_isolated_records_are_counted_by_their_errors_and_others_are_not() -> None:
    died, hung = Cause("a", WORKER_DIED, "3"), Cause("b", HUNG, "60 s")
    failed = (
        (died, numbers(1, 2)),
        (BAD, numbers(3)),
        (hung, numbers(4)),
        (replace_operator(died), numbers(5)),
    )
    assert isolated_counts(outcome_from(PLAN, failed)) == {WORKER_DIED: 3, HUNG: 1}


def replace_operator(cause: Cause) -> Cause:
    """Return the cause of another bolt."""
    return cause._replace(operator="other")


ROOTS = keyed_marks(numbers(-5, 3, 77), at((A, 10), (B, 5), (A, 2)))


@pytest.mark.parametrize("missing", [-6, -4, 4, 78])
def test_a_number_on_which_a_keyed_bolt_emitted_nothing_is_refused(missing: int) -> None:
    """Rule 3: another root would be acked in its place."""
    for roots, count in ((ROOTS, "1"), (keyed_marks(), "2")):
        with pytest.raises(TrackingError, match=f"^{count} tuples behind a keyed bolt"):
            find_keyed_roots(roots, numbers(3, missing))
    assert find_keyed_roots(ROOTS, numbers(77, -5)).positions.tolist() == [2, 10]


def test_what_is_outstanding_behind_a_keyed_bolt_is_missing_from_the_sum_of_its_root() -> None:
    report = task_report(
        "last",
        keyed_roots=ROOTS,
        outstanding={(7,): numbers(77, 2, 3, 0).reshape(2, 2)},
        failures=((BAD, numbers(3)),),
        touched=numbers(77),
    )
    marks = placed(report.marks, PLAN.index(), ROOTS)
    assert marks.of(RootMark.RELEASED).edges.tolist() == [child_edge(77, 7, 2), child_edge(3, 7, 0)]
    assert marks.of(RootMark.RELEASED).positions.tolist() == [2, 5]
    assert marks.of(RootMark.TOUCHED).positions.tolist() == [2]
    assert positions_by_cause(marks) == [(BAD, [5])]
    acked = released_marks(at((A, 1)), np.ones(1, np.uint64))
    kinds = [kind for kind in RootMark if kind.is_of_any_evaluation]
    uncounted = placed(RootMarks.together([report.marks, acked]).of(*kinds), PLAN.index(), ROOTS)
    assert len(uncounted.of(RootMark.TOUCHED)) == 0
    assert uncounted.of(RootMark.RELEASED).positions.tolist() == [2, 5]


@pytest.mark.parametrize("index", [-1, PLAN.count])
def test_an_index_that_the_plan_does_not_have_is_refused(index: int) -> None:
    """Rule 3: the last root of the plan would be failed in its place."""
    with pytest.raises(TrackingError, match="not in the plan"):
        settled(task_report("count", failures=((BAD, numbers(0, index)),)))


def test_a_tuple_that_was_held_of_a_root_of_another_batch_is_refused() -> None:
    """Its edge would be missing from the sum of another root."""
    for root in ((A, 9), (B, 8), (A + 2, 10)):
        edges = np.arange(1, 3).astype(np.uint64)
        marks = held_marks(holder_of("hold"), at((A, 10), root), edges, numbers(5, 5))
        with pytest.raises(TrackingError, match="its batch did not emit"):
            settled(task_report("hold", marks=marks), late_ms=0)


def test_held_tuples_without_their_times_are_refused() -> None:
    """Each tuple has one time, in their order; else a watermark would drop another one."""
    marks = held_marks(holder_of("hold"), at((A, 10)), np.ones(1, np.uint64), numbers(5))
    with pytest.raises(TrackingError, match="1 tuples were held until 0 times"):
        settled(task_report("hold", marks=marks.of(RootMark.HELD_TUPLE)))


def test_the_first_root_of_a_batch_is_not_an_older_one() -> None:
    first = at((A, 10))
    marks = released_marks(touched=first, held_on=first, failures=((BAD, first),))
    outcome = settled(task_report("count", marks=marks))
    assert not outcome.marks.without(PLAN.roots())
    assert not outcome.marks.of(RootMark.HELD_ON), "a root of the batch has its whole timeout yet"
    assert touched_of(outcome).tolist() == [0]


@pytest.mark.parametrize("subscriptions", [(), (7,)])
def test_the_edge_of_a_held_tuple_is_of_its_root_its_way_and_its_row(subscriptions: tuple[int, ...]) -> None:
    """P49: two rows of one tuple in two tasks have two edges."""
    roots = [(A, 12), (B, 5), (A, 12)]
    entry = HeldAt(11, 3, 40)
    found = held_edges(at(*roots), subscriptions, numbers(9, 8, 7), entry)
    expected: list[int] = []
    for row, (root, ordinal) in enumerate(zip(roots, (9, 8, 7), strict=True)):
        edge = root_edge(*root)
        for subscription in subscriptions:
            edge = child_edge(edge, subscription, ordinal)
        expected.append(child_edge(child_edge(edge, 11, 3), 11, 40 + row))
    assert found.tolist() == expected


def test_anything_that_is_released_counts() -> None:
    one = at((A, 1))
    assert not task_report("ack").settles_held
    opened = released_marks(open_places=one, open_edges=np.ones(1, np.uint64))
    assert not task_report("ack", marks=opened).settles_held
    for released in (
        released_marks(one, np.ones(1, np.uint64)),
        released_marks(failures=((BAD, one),)),
        released_marks(held_on=one),
        released_marks(touched=one),
    ):
        assert task_report("ack", marks=released).settles_held


@pytest.mark.parametrize("rows", [1, COMPRESSED_ROWS, COMPRESSED_ROWS + 1, 10_000])
def test_a_released_tuple_takes_few_bytes_beside_its_edge(rows: int) -> None:
    """They are most of a report, and an edge is 8 bytes that nothing makes smaller."""
    random = np.random.default_rng(7)
    edges = random.integers(0, 1 << 63, rows).astype(np.uint64)
    released = released_marks(RootPositions(np.full(rows, A), random.permutation(rows)), edges)
    held = Held(numbers(3), np.full(1, 9, np.uint64), numbers(5))
    blob = encode(task_report("ack", marks=released, held=held))
    came = decode(blob)
    assert came.marks.of(RootMark.RELEASED).rows() == released.rows()
    assert (held_in(came).edges.tolist(), held_in(came).until_ms.tolist()) == ([9], [5])
    assert len(blob) < 2_000 + 13 * rows
    for end in (len(blob) - 1, len(blob) - 10, len(blob) // 2):
        with pytest.raises(TrackingError, match="a task's"):
            decode(blob[:end])


@pytest.mark.parametrize("rows", [0, 1, COMPRESSED_ROWS + 1])
@pytest.mark.parametrize("bits", [None, np.array([True, False, True])])
def test_marks_and_the_roots_that_a_first_bolt_received_come_together(
    rows: int, bits: np.typing.NDArray[np.bool_] | None
) -> None:
    marks = released_marks(RootPositions(np.full(rows, A), np.arange(rows)), np.ones(rows, np.uint64))
    came = decode(encode(task_report("first", marks=marks, received=bits)))
    assert came.marks.rows() == marks.rows()
    assert (None if came.received is None else came.received.tolist()) == (
        None if bits is None else bits.tolist()
    )


def test_a_report_that_is_cut_off_or_names_a_class_is_refused() -> None:
    blob = encode(task_report("ack"))
    with pytest.raises(TrackingError, match="cut off"):
        decode(blob[:20])
    with pytest.raises(TrackingError, match="does not belong into a report"):
        decode(zlib.compress(pickle.dumps(SourceRun(1, 2, 3))))
    empty = decode(encode(task_report("ack", held=Held())))
    assert len(empty.marks) == len(held_in(empty).indices) == 0


def test_a_released_tuple_that_an_evaluation_left_open_counts_once_for_its_bolt() -> None:
    opened = released_marks(open_places=at((A, 3)), open_edges=np.ones(1, np.uint64))
    outcome = settled(task_report("ack", marks=opened), task_report("other"))
    assert left_open_of(outcome) == [("ack", [3])]


def test_a_call_that_passed_behind_a_keyed_bolt_is_told_with_the_places_of_its_roots() -> None:
    report = task_report("last", keyed_roots=ROOTS, passed=((BAD, numbers(77, 3)),))
    [call] = settled(report, late_ms=0).passed
    assert sorted(call.runs) == [SourceRun(A, 2, 3), SourceRun(B, 5, 6)]


def test_a_watermark_drops_at_its_time_and_only_a_hold_that_fails_what_is_late_does() -> None:
    """S86: until 1,000 at a watermark of 1,000; without one nothing is late but what has no time."""
    held = Held(numbers(0, 1, 2, 3), np.arange(1, 5).astype(np.uint64), numbers(1_000, 1_001, -1, NEVER_MS))
    outcome = settled(task_report("hold", held=held), late_ms=1_000)
    assert (late_of(outcome).tolist(), held_of(outcome).tolist()) == ([0, 2], [1, 3])
    assert failed_by_cause(outcome) == ()
    assert late_of(settled(task_report("hold", held=held))).tolist() == [2]
    failing = replace(held, fails_late=True)
    outcome = settled(task_report("hold", held=failing), late_ms=1_000)
    [(cause, roots)] = failed_by_cause(outcome)
    assert (cause.operator, roots.tolist()) == ("hold", [0, 2])
    later = replace(failing, until_ms=numbers(*[5_000] * 4))
    assert failed_by_cause(settled(task_report("hold", held=later), late_ms=9)) == ()


def test_what_is_held_and_failed_is_not_held_and_the_first_highest_time_counts() -> None:
    held = Held(numbers(0, 1, 2), np.arange(1, 4).astype(np.uint64), numbers(0, 0, 0))
    column = HighestTime("at", 70, SourceRun(A, 10, 11))
    report = task_report(
        "hold",
        held=held,
        failures=((BAD, numbers(1)),),
        highest_times=(column, column._replace(run=SourceRun(B, 5, 6))),
    )
    outcome = settled(report)
    assert held_of(outcome).tolist() == [0, 2]
    assert outcome.highest_times == (column, HighestTime("hold", 0, SourceRun(A, 10, 11), is_held=True))


def test_a_root_received_twice_is_named_whatever_stands_between() -> None:
    """A report without marks between two with them changes nothing."""
    marks = np.array([True, False, True, False])
    tasks = [
        reported(2, 2, 0, task_report("late", received=marks)),
        reported(2, 3, 1, task_report("late")),
        reported(2, 4, 2, task_report("late", received=~marks & np.array([False, True, False, False]))),
    ]
    read = reported(1, 1, 0, READ)
    assert failed_by_cause(settle([read, *tasks], (), lambda _stage: None)) == ()
    tasks[2] = reported(2, 4, 2, task_report("late", received=np.array([False, True, True])))
    with pytest.raises(TrackingError, match=r"number 2 of the batch"):
        settle([read, *tasks], (), lambda _stage: None)


def test_what_failed_did_not_only_wait() -> None:
    """A root that one evaluation held back and another one failed stands under its failure, by any name."""
    for bolt in ("aaa", "zzz"):
        bad = Cause(bolt, "ValueError", "")
        report = task_report(
            "count", failures=((Cause("split", HELD, "waits"), numbers(3)), (bad, numbers(3)))
        )
        [(cause, roots)] = failed_by_cause(settled(report))
        assert (cause, roots.tolist()) == (bad, [3])


@pytest.mark.parametrize("is_newest", [True, False])
def test_only_an_evaluation_that_counts_resets_timeouts_of_older_roots(is_newest: bool) -> None:
    """P49: acked twice, the edges of two evaluations would cancel."""
    report = task_report("ack", marks=released_marks(touched=at((A, 3))))
    plain = task_report("ack")
    outcome = settled(*((plain, report) if is_newest else (report, plain)))
    assert bool(older_touched(outcome)) is is_newest


def test_what_a_bolt_behind_a_keyed_one_left_open_is_told_with_its_places() -> None:
    report = task_report("last", keyed_roots=ROOTS, outstanding={(7,): numbers(77, 2).reshape(1, 2)})
    assert left_open_of(settled(report, late_ms=0)) == [("last", [2])]


def test_a_batch_of_nothing_has_lost_nothing() -> None:
    """A watermark moved, and Spark evicted what it held."""
    empty = replace(PLAN, ranges=())
    outcome = settle([], (), lambda _stage: 1, Moment(empty, 5))
    assert (outcome.plan, outcome.missing.lost_count, absent_of(outcome.missing)) == (empty, 0, ())


class Driver:
    """A SparkContext and its accumulator, which keeps what is added."""

    def __init__(self, master: str | None = "local[2]") -> None:
        """Have a master."""
        self.master = master
        self.params: list[LedgerParam] = []

    def accumulator(self, value: Value, param: LedgerParam) -> Any:
        """Return an accumulator; what is added is merged at once."""
        self.params.append(param)
        found = SimpleNamespace(value=value, accum_param=param)
        found.add = lambda more: param.addInPlace(found.value, more)
        return found


@pytest.mark.parametrize(
    ("master", "has_executors"),
    [
        ("local", False),
        ("local[*]", False),
        ("local-cluster[2,1,1024]", True),
        ("spark://h:7077", True),
        (None, True),
    ],
)
def test_tasks_have_logs_of_their_own_where_they_are_in_other_processes(
    master: str | None, has_executors: bool
) -> None:
    driver = Driver(master)
    ReportLedger(cast("Any", driver))
    assert driver.params[0].has_executors is has_executors
    assert is_local(master or "") is not has_executors


@pytest.mark.parametrize("has_executors", [False, True])
def test_a_task_adds_its_report_and_an_executor_logs_what_was_raised(
    has_executors: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = TracebackLog(lambda: 0.0)
    monkeypatch.setattr("spout.publishing.report_accumulator.LOG_OF_WORKER", log)
    raised = Raised("split", "ValueError", "split.py:12", "Traceback of this")
    added: list[Any] = []
    accumulator = cast(
        "Any", SimpleNamespace(accum_param=LedgerParam(has_executors=has_executors), add=added.append)
    )
    with caplog.at_level(logging.WARNING, "windhover.spout"):
        for report in (task_report("split"), task_report("split", raised=(raised,)), None):
            add_report(accumulator, "stream", report)
    assert ("Traceback of this" in caplog.text) is has_executors
    rows = [row for each in added for tasks in each.values() for row in tasks.values()]
    assert [stream for stream, _ in rows] == ["stream"] * 3
    reports = [decode(blob) if blob else None for _, blob in rows]
    assert [report.operator if report else None for report in reports] == ["split", "split", None]
    assert {report.task for report in reports if report} == {(0, 0, 0)}
    assert {batch for each in added for batch in each} == {("", -1)}
    assert task_name() == TaskName("", -1, 0, 0, 0, 0)


def test_a_task_is_named_by_its_query_its_batch_and_its_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    properties: dict[str, str] = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "7"}
    context = SimpleNamespace(
        getLocalProperty=properties.get,
        stageId=lambda: 3,
        taskAttemptId=lambda: 9,
        partitionId=lambda: 2,
        attemptNumber=lambda: 1,
    )
    monkeypatch.setattr(
        "spout.publishing.report_accumulator.TaskContext", SimpleNamespace(get=lambda: context)
    )
    assert task_name() == TaskName("q", 7, 3, 9, 2, 1)
    properties.clear()
    assert task_name() == TaskName("", -1, 3, 9, 2, 1)


def test_a_report_that_cannot_be_merged_stops_the_batch_and_raises_nowhere_else() -> None:
    """An exception of the accumulator would silently stop all of them."""
    ledger = ReportLedger(cast("Any", Driver()))
    ledger.accumulator.add(cast("Any", {("q", 1): 5}))
    with pytest.raises(TrackingError, match=r"could not be merged, .*: TypeError"):
        ledger.read("q", 1)


def test_the_plan_is_that_of_a_read_task_and_untracked_rows_leave_nothing_to_publish() -> None:
    ledger = ReportLedger(cast("Any", Driver()))
    for name, report in (("1", task_report("count")), ("2", READ)):
        ledger.accumulator.add({("q", 1): {name: ("s", encode(report))}})
    assert ledger.read("q", 1).plan == PLAN
    assert not ledger.read("q", 1).nothing_to_publish
    assert (ledger.read("q", 2).plan, ledger.read("q", 2).nothing_to_publish) == (None, False)
    ledger.accumulator.add({("q", 3): {"1": ("s", b"")}})
    assert ledger.read("q", 3).nothing_to_publish
    ledger.accumulator.add({("q", 3): {"2": ("t", encode(READ))}})
    assert not ledger.read("q", 3).nothing_to_publish


def test_each_kind_of_exception_is_traced_once_in_its_time(caplog: pytest.LogCaptureFixture) -> None:
    now_s = [100.0]
    log = TracebackLog(lambda: now_s[0])
    one, other = Raised("a", "ValueError", "", "first"), Raised("b", "KeyError", "b.py:3", "second")
    with caplog.at_level(logging.WARNING, "windhover.spout"):
        log.warn([one], 1)
        log.warn([one, other], 2)
        now_s[0] += RECURRING_EVERY_S + 1
        log.warn([other], 3)
    logged = [record.getMessage() for record in caplog.records]
    assert [(text.split("batch=")[1][0], text.split("\n")[1]) for text in logged] == [
        ("1", "first"),
        ("2", "second"),
        ("3", "second"),
    ]
    assert ["place=none" in text for text in logged] == [True, False, False]


def stats(*highest_ms: int) -> Sequence[WatermarkStats]:
    """Return what Spark counted at watermarks of columns with the names of their places."""
    return [WatermarkStats(f"c{place}", "", 10, value) for place, value in enumerate(highest_ms)]


def test_a_watermark_that_stands_hides_no_other_one_that_rises() -> None:
    watermarks = Watermarks()
    assert watermarks.unpublished_row_count == 0
    outcome = outcome_from(PLAN)
    watermarks.record_rises(outcome, stats(50, 60))
    watermarks.record_rises(outcome, stats(50, 70))
    assert [watermarks.mover_to(at_ms - 10) is not None for at_ms in (50, 60, 70, 80)] == [
        True,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(("rises", "is_known"), [(RISES_KEPT, True), (RISES_KEPT + 1, False)])
def test_so_many_rises_are_known_and_the_oldest_goes_first(rises: int, is_known: bool) -> None:
    watermarks = Watermarks()
    for number in range(rises):
        watermarks.record_rises(outcome_from(PLAN), stats(100 + number))
    assert (watermarks.mover_to(90) is not None) is is_known
    assert watermarks.mover_to(91) is not None


def test_of_equal_times_the_shortest_run_is_named() -> None:
    long, short = HighestTime("x", 50, SourceRun(A, 0, 9)), HighestTime("y", 50, SourceRun(A, 7, 8))
    for newest in ((long, short), (short, long)):
        watermarks = Watermarks()
        watermarks.record_rises(outcome_from(PLAN, highest_times=newest), stats(50))
        mover = watermarks.mover_to(40)
        assert mover is not None
        assert mover.runs == (short.run,)


@pytest.mark.parametrize("began_ms", [0, 7_000_000])
def test_a_clock_that_runs_long_is_no_reason_to_log_more(
    began_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    now_ms = [began_ms]
    log = TooLateLog(lambda: now_ms[0])
    with caplog.at_level(logging.WARNING, "windhover.spout"):
        for later_ms in (0, 1, WARN_MS - 1, WARN_MS, WARN_MS + 1):
            now_ms[0] = began_ms + later_ms
            log.report("g", 1, LateNote(1, 2, 3, None), ())
    assert len(caplog.records) == 2
