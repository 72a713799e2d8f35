"""Acks of a later batch: what the batches of a held tuple contribute sums up to its root's edge at last."""

from __future__ import annotations

import pickle
import zlib
from dataclasses import replace

import pytest

from acker.errors import TrackingError
from acker.identity import WIRE_BLOCK_BITS
from acker.wire.causes import LATE
from acker.wire.events import Acks, SourceRun, positions
from spout.planning.journal import Journal, SourceMark
from spout.planning.plan import BatchPlan
from spout.publishing.blob import decode, encode
from spout.publishing.delayed import (
    NEVER_MS,
    HeldAt,
    RootPositions,
    held_edges,
)
from spout.publishing.fold import outstanding_of
from spout.publishing.publish import BatchLane, Publication, publication_of
from spout.publishing.root_marks import RootMark, RootMarks
from spout.publishing.settle import Moment, settle
from spout.streaming.batch_log import Logged
from spout.tuples.failures import Cause
from spout.tuples.tuple import Delivery
from tests.support.outcomes import absent_of, held_of, places_of_marks, released_marks
from tests.support.reports import changed_report, held_in, keyed_marks, reported, task_report
from tests.support.worlds.held_batches import (
    LONGER_MS,
    A,
    B,
    Root,
    array,
    batch,
    held,
    open_roots,
    plan_of,
    released,
    sums,
)

BLOCK = 1 << WIRE_BLOCK_BITS
BAD = Cause("notify", "ValueError", "no address")

FIRST = plan_of(SourceRun(A, 10, 20), SourceRun(B, 5, 8))
SECOND = plan_of(SourceRun(A, 20, 30))
NOTHING = plan_of()


def failed_roots(publication: Publication) -> dict[Root, tuple[str, str]]:
    """Return the failed roots, with operator and error."""
    return {
        (record.source, int(position)): (cause.operator, cause.error)
        for record in publication.fails
        for cause in record.causes
        for position in positions(cause.positions)
    }


def test_a_held_root_is_open_until_every_tuple_of_it_was_released() -> None:
    """S31, S81, P49: one root has two tuples in two windows that close one after the other."""
    tuples = held(FIRST, 0, 0, 11)
    first = batch(FIRST, task_report("hold", held=tuples))
    assert open_roots(first) == {(A, 10), (B, 6)}
    second = batch(SECOND, task_report("ack", marks=released(FIRST, tuples, slice(0, 1))))
    assert open_roots(first, second) == {(A, 10), (B, 6)}
    third = batch(NOTHING, task_report("ack", marks=released(FIRST, tuples, slice(1, 3))))
    assert open_roots(first, second, third) == set()
    assert set(sums(first, second, third)) == {
        *((A, p) for p in range(10, 30)),
        *((B, p) for p in range(5, 8)),
    }


def test_what_is_held_and_released_in_one_batch_is_acked_with_it() -> None:
    tuples = held(FIRST, 3, 3)
    both = batch(FIRST, task_report("hold", held=tuples), task_report("ack", marks=released(FIRST, tuples)))
    assert open_roots(both) == set()
    assert all(not record.positions for record in both.acks), "a canonical record has them in runs"


def test_older_roots_share_the_record_of_their_block_and_have_records_of_their_own_elsewhere() -> None:
    """The wire's mark is kept per (source, block): two records of one batch for one block would be one."""
    far = plan_of(SourceRun(A, 15, 16), SourceRun(A, BLOCK * 3, BLOCK * 3 + 1), SourceRun(B, 5, 6))
    tuples = held(far, 0, 1, 2)
    publication = batch(SECOND, task_report("ack", marks=released(far, tuples)))
    assert [(record.source, record.block) for record in publication.acks] == [(A, 0), (A, 3), (B, 0)]
    assert publication.acks[0].runs == ((20, 30),)


def test_contributions_of_own_and_older_roots_stand_in_order() -> None:
    """A record is canonical, or a repeat of it would look like other content."""
    older, own = held(SECOND, 4), held(FIRST, 0, 9)
    publication = batch(
        FIRST, task_report("hold", held=own), task_report("ack", marks=released(SECOND, older))
    )
    assert positions(publication.acks[0].positions).tolist() == [10, 19, 24]
    both = [publication, batch(SECOND, task_report("hold", held=older))]
    assert open_roots(*both) == {(A, 10), (A, 19)}


def test_a_watermark_decides_what_is_late_and_the_policy_what_becomes_of_it() -> None:
    """S86: Spark drops at or below it; a tuple without event time is dropped always."""
    on_time, late, timeless = held(FIRST, 1, until_ms=1_001), held(FIRST, 2), held(FIRST, 3, until_ms=-1)
    for fails, name in ((False, "acks"), (True, "fails")):
        reports = [
            task_report(f"{name}{n}", held=replace(each, fails_late=fails))
            for n, each in enumerate((on_time, late, timeless))
        ]
        publication = batch(FIRST, *reports, watermark_ms=1_000)
        assert open_roots(publication) == {(A, 11)}
        lost = failed_roots(publication)
        assert lost == ({(A, 12): ("fails1", LATE), (A, 13): ("fails2", LATE)} if fails else {})


def test_a_row_that_fails_fails_the_roots_of_all_its_tuples_and_acks_none_of_them() -> None:
    """S29, S78: of earlier batches and of this one, under one cause."""
    older, own = held(FIRST, 0, 1, 12), held(SECOND, 4)
    places = [places_of_marks(released(FIRST, older, slice(0, 1))), places_of_marks(released(SECOND, own))]
    report = task_report(
        "notify",
        marks=RootMarks.together(
            [released(FIRST, older), released_marks(failures=tuple((BAD, each) for each in places))]
        ),
    )
    publication = batch(SECOND, task_report("hold", held=own), report)
    assert failed_roots(publication) == dict.fromkeys([(A, 10), (A, 24)], ("notify", "ValueError"))
    assert not {(A, 10), (A, 24)} & sums(publication).keys()
    assert {(A, 11), (B, 7)} <= sums(publication).keys()


def test_only_the_newest_evaluation_releases() -> None:
    """A sink with two actions evaluates the aggregate twice; acked twice the edges would cancel."""
    tuples = held(FIRST, 0)
    report = task_report("ack", marks=released(FIRST, tuples))
    twice = batch(NOTHING, report, report)
    assert open_roots(batch(FIRST, task_report("hold", held=tuples)), twice) == set()


def test_a_tuple_that_stands_in_several_rows_of_a_batch_is_acked_once() -> None:
    """Rule 3, P49: a join makes several rows of it, in one task or in two; two equal edges would cancel."""
    older, own = held(FIRST, 0, 12), held(SECOND, 4, 5)
    opened = batch(FIRST, task_report("hold", held=older))
    rows = [released(FIRST, older, slice(0, 1)), released(FIRST, older), released(SECOND, own)]
    rows.append(released(SECOND, own, slice(0, 1)))
    tasks = [reported(9, 9, part, task_report("ack", marks=each)) for part, each in enumerate(rows)]
    holding = reported(2, 2, 0, task_report("hold", held=own))
    reads = reported(1, 1, 0, task_report("read_stream", plan=SECOND, ranges=SECOND.ranges))
    outcome = settle([reads, holding, *tasks], (), lambda _stage: None, Moment(SECOND, 0))
    assert open_roots(opened, publication_of(outcome, BatchLane("q/s", 2))) == set()


def test_a_tuple_of_which_one_row_is_left_open_is_acked_by_no_other_row() -> None:
    """Rule 3: a join makes several rows of it, in one task or in two."""
    older, own = held(FIRST, 0, 12), held(SECOND, 4, 5)
    opened = batch(FIRST, task_report("hold", held=older))
    first, second = released(FIRST, older, slice(0, 1)), released(SECOND, own, slice(1, 2))
    left_open = [
        released_marks(open_places=places_of_marks(part), open_edges=part.edges) for part in (first, second)
    ]
    rows = [
        RootMarks.together([released(FIRST, older), left_open[0]]),
        RootMarks.together([released(SECOND, own), left_open[1]]),
    ]
    reports = [task_report(f"ack{number}", marks=each) for number, each in enumerate(rows)]
    assert open_roots(opened, batch(SECOND, task_report("hold", held=own), *reports)) == {(A, 10), (A, 25)}


def test_a_tuple_that_another_evaluation_left_open_is_not_acked() -> None:
    """Rule 3: its rows may be those that the sink got."""
    tuples = held(FIRST, 0, 12)
    opened = batch(FIRST, task_report("hold", held=tuples))
    part = released(FIRST, tuples, slice(0, 1))
    left = task_report("ack", marks=released_marks(open_places=places_of_marks(part), open_edges=part.edges))
    whole = task_report("ack", marks=released(FIRST, tuples))
    assert open_roots(opened, batch(NOTHING, left, whole)) == {(A, 10)}


def test_a_tuple_that_another_evaluation_left_open_behind_a_keyed_bolt_is_not_acked() -> None:
    tuples = held(FIRST, 0)
    opened = batch(FIRST, task_report("hold", held=tuples))
    places = places_of_marks(released(FIRST, tuples))
    acked = task_report("keyed", marks=released(FIRST, tuples), keyed_roots=keyed_marks(array(77), places))
    fine = task_report("last", keyed_roots=keyed_marks())
    left = task_report(
        "last", keyed_roots=keyed_marks(), outstanding=outstanding_of([Delivery(77, ((7, 0),))])
    )
    assert open_roots(opened, batch(NOTHING, acked, left, left, fine)) == {(A, 10)}
    assert open_roots(opened, batch(NOTHING, acked, fine)) == set()


def test_a_tuple_that_a_later_batch_acks_again_was_done_with_its_first_row() -> None:
    """One that is the only one of its root; of several, one that is acked evenly keeps its root open."""
    one, two = held(FIRST, 0), held(FIRST, 1, 1)
    first = batch(FIRST, task_report("hold", held=one), task_report("other", held=two))
    acks = [task_report("ack", marks=released(FIRST, each, slice(0, 1))) for each in (one, two)]
    assert open_roots(first, batch(NOTHING, acks[0])) == {(A, 11)}
    again = [first, *(batch(NOTHING, acks[1]) for _ in range(2))]
    rest = batch(NOTHING, task_report("ack", marks=released(FIRST, two, slice(1, 2))))
    assert open_roots(*again, rest) == {(A, 10), (A, 11)}, "never early: it times out and is replayed"


def test_two_sides_that_read_one_batch_count_it_once_and_hold_it_each() -> None:
    """Rule 3: a record that both take is open until both have let it go; one that neither takes is acked."""
    bought, paid = held(FIRST, 0, 1), replace(held(FIRST, 1, 2), edges=held(FIRST, 7, 8).edges)
    reports = [task_report("read_stream", plan=FIRST, ranges=FIRST.ranges)] * 2
    sides = [task_report("bought", held=bought), task_report("paid", held=paid)]
    for stages in ((1, 2), (1, 1)):  # the second without a shuffle: one partition has both sides
        evaluations = [reported(stage, 0, 0, read) for stage, read in zip(stages, reports, strict=True)]
        evaluations += [reported(stage, 0, 0, side) for stage, side in zip(stages, sides, strict=True)]
        outcome = settle(evaluations, ("bought", "paid"), lambda _stage: 1, Moment(FIRST, 0))
        first = publication_of(outcome, BatchLane("q/s", 1))
        assert open_roots(first) == {(A, 10), (A, 11), (A, 12)}
        left = batch(NOTHING, task_report("ack", marks=released(FIRST, bought)))
        assert open_roots(first, left) == {(A, 11), (A, 12)}
        places = places_of_marks(released(FIRST, held(FIRST, 1, 2)))
        right = batch(NOTHING, task_report("ack", marks=released_marks(places, paid.edges)))
        assert open_roots(first, left, right) == set()


def test_a_side_that_was_not_evaluated_fails_the_batch() -> None:
    reads = [reported(n, 0, 0, task_report("read_stream", plan=FIRST, ranges=FIRST.ranges)) for n in (1, 2)]
    bought = reported(1, 0, 0, task_report("bought", held=held(FIRST, 0)))
    with pytest.raises(TrackingError, match="'paid' was not evaluated to its end"):
        settle([*reads, bought], ("bought", "paid"), lambda _stage: 1, Moment(FIRST, 0))


@pytest.mark.parametrize("stages", [(1, 2), (2, 1), (1, 1)])
def test_a_record_that_one_side_alone_could_not_read_is_absent_and_never_acked(
    stages: tuple[int, int],
) -> None:
    """Rule 2: it left the log, or was compacted, between the two reads; the newer one need not know."""
    read = task_report("read_stream", plan=FIRST, ranges=FIRST.ranges)
    gone = changed_report(read, absent=(SourceRun(A, 12, 14), SourceRun(B, 5, 6)), lost_count=2)
    other = changed_report(read, absent=(SourceRun(A, 13, 15),))
    holds = task_report("bought", held=held(FIRST, 1)), task_report("paid", held=held(FIRST, 8))
    evaluations = [
        reported(stage, 0, 0, report)
        for stage, *reports in zip(stages, (gone, other), holds, strict=True)
        for report in reports
    ]
    outcome = settle(evaluations, ("bought", "paid"), lambda _stage: 1, Moment(FIRST, 0))
    assert outcome.missing.lost_count == 2
    assert absent_of(outcome.missing) == (SourceRun(A, 12, 15), SourceRun(B, 5, 6))
    publication = publication_of(outcome, BatchLane("q/s", 1))
    assert not {(A, 12), (A, 13), (A, 14), (B, 5)} & sums(publication).keys()
    assert {(A, 10), (B, 6)} <= sums(publication).keys()


@pytest.mark.parametrize("again", [(1, 0, 1), (1, 0, 0), (2, 0, 0), (2, 1, 0)])
def test_a_record_that_two_reports_miss_has_left_the_log_once(again: tuple[int, int, int]) -> None:
    """Two attempts of a task, and two sides of a join in one stage or in two, read the same ranges."""
    first_half, second_half = FIRST.ranges[:1], FIRST.ranges[1:]
    reads = [
        changed_report(task_report("read_stream", plan=FIRST, ranges=ranges), lost_count=lost_count)
        for ranges, lost_count in ((first_half, 2), (second_half, 1))
    ]
    stage, _, attempt = again
    evaluations = [reported(1, task, 0, read) for task, read in enumerate(reads)]
    evaluations += [reported(stage, task, attempt, read) for task, read in enumerate(reads)]
    evaluations.append(reported(1, 0, 0, task_report("bought", held=held(FIRST, 0))))
    evaluations.append(reported(stage, 0, attempt, task_report("paid", held=held(FIRST, 0))))
    outcome = settle(evaluations, ("bought", "paid"), lambda _stage: 1, Moment(FIRST, 0))
    assert outcome.missing.lost_count == 3


def touched(plan: BatchPlan, *roots: int) -> RootMarks:
    """Reset the timeouts of held roots, by index."""
    at = [(run.source, p) for run in plan.ranges for p in range(run.start, run.end)]
    sources, places = zip(*(at[root] for root in roots), strict=True)
    return released_marks(touched=RootPositions(array(*sources), array(*places)))


def resets(publication: Publication) -> list[tuple[int, int, list[int]]]:
    """Return source, block and positions of the records that reset timeouts."""
    named = [(each.source, each.block, positions(each.touched).tolist()) for each in publication.acks]
    return [each for each in named if each[2]]


def held_on(plan: BatchPlan, *roots: int) -> RootMarks:
    """Let a keyed bolt hold on tuples, by the index of their roots."""
    return released_marks(held_on=places_of_marks(touched(plan, *roots)))


def moved(publication: Publication) -> list[tuple[int, int, list[int]]]:
    """Return source, block and positions of the records that move the deadlines of what the state holds."""
    return [(each.source, each.block, positions(each.touched).tolist()) for each in publication.held]


def test_what_the_state_holds_gets_a_later_deadline_once_and_in_a_lane_of_its_own() -> None:
    """O1401: roots of this batch of which a tuple stays, by the time that an acker adds their timeout to."""
    tuples = held(FIRST, 0, 0, 11)
    publication = batch(FIRST, task_report("hold", held=tuples))
    assert moved(publication) == [(A, 0, [10]), (B, 0, [6])]
    assert {(each.lane, each.seq, each.touched_at) for each in publication.held} == {
        ("q/s/held", 1, 99 + LONGER_MS)
    }
    assert not any(each.runs or each.positions or each.absent for each in publication.held)
    later = batch(SECOND, task_report("ack", marks=released(FIRST, tuples, slice(0, 1))))
    assert moved(later) == [], "one tuple of it is let go, and the other one waits on"


def test_what_is_held_and_let_go_in_one_batch_or_failed_in_it_has_no_later_deadline() -> None:
    tuples = held(FIRST, 1, 2, 3)
    bad = task_report("check", failures=((BAD, array(2)),))
    publication = batch(
        FIRST,
        task_report("hold", held=tuples),
        task_report("ack", marks=released(FIRST, tuples, slice(0, 1))),
        bad,
    )
    assert moved(publication) == [(A, 0, [13])]


def test_what_comes_too_late_for_the_state_has_no_later_deadline() -> None:
    publication = batch(FIRST, task_report("hold", held=held(FIRST, 1, until_ms=1_000)), watermark_ms=1_000)
    assert moved(publication) == []


def test_what_a_bolt_left_open_beside_what_is_held_has_no_later_deadline() -> None:
    """Nobody will ack it: it times out as soon as any other root."""
    left = task_report("rich", outstanding=outstanding_of([Delivery(4, ((7, 0),)), Delivery(1, ((7, 0),))]))
    publication = batch(FIRST, task_report("hold", held=held(FIRST, 1, 2)), left)
    assert open_roots(publication) == {(A, 11), (A, 12), (A, 14)}
    assert moved(publication) == [(A, 0, [11, 12])], "the state holds a tuple of the former"


def test_a_keyed_bolt_that_resets_a_timeout_gives_it_the_time_of_what_is_held() -> None:
    """O1402: of older batches, in blocks of their own, beside what this batch begins to hold."""
    far = plan_of(SourceRun(A, 15, 17), SourceRun(A, BLOCK * 3, BLOCK * 3 + 1), SourceRun(B, 5, 6))
    publication = batch(
        SECOND,
        task_report("hold", held=held(SECOND, 4)),
        task_report("keyed", marks=held_on(far, 3, 1, 0, 2, 1)),
    )
    assert moved(publication) == [(A, 0, [15, 16, 24]), (A, 3, [BLOCK * 3]), (B, 0, [5])]
    assert resets(publication) == []
    again = [task_report("keyed", marks=held_on(far, 0)), task_report("keyed", marks=held_on(far, 1))]
    assert moved(batch(NOTHING, *again)) == [(A, 0, [16])], "only the newest evaluation counts"


@pytest.mark.parametrize("longer_ms", [{}, {1: 0}, {2: 9}])
def test_where_the_state_may_hold_no_longer_only_a_reset_moves_a_deadline(longer_ms: dict[int, int]) -> None:
    """S16: `held_timeout` is not longer than `timeout`, or there is no timeout."""
    read = task_report("split", plan=SECOND, ranges=SECOND.ranges)
    reports = [
        read,
        task_report("hold", held=held(SECOND, 1)),
        task_report("keyed", marks=held_on(FIRST, 3)),
    ]
    evaluations = [reported(stage, stage, 0, report) for stage, report in enumerate(reports)]
    outcome = settle(evaluations, (), lambda _stage: 1, Moment(SECOND, 0))
    assert held_of(outcome).tolist() == [1]
    publication = publication_of(outcome, BatchLane("q/s", 1), longer_ms)
    assert moved(publication) == [(A, 0, [13])]
    assert [each.touched_at for each in publication.held] == [99]


def test_a_timeout_is_reset_for_roots_of_older_batches_and_of_this_one() -> None:
    """S16, S21: in the record of their block, or in one of their own; what is open stays open."""
    far = plan_of(SourceRun(A, 15, 17), SourceRun(A, BLOCK * 3, BLOCK * 3 + 1), SourceRun(B, 5, 6))
    own = held(SECOND, 4)
    publication = batch(
        SECOND,
        task_report("hold", held=own),
        task_report("keyed", marks=touched(far, 3, 1, 0, 2, 1)),
        task_report("other", marks=touched(SECOND, 4)),
    )
    assert resets(publication) == [(A, 0, [15, 16, 24]), (A, 3, [BLOCK * 3]), (B, 0, [5])]
    assert {each.touched_at for each in publication.acks} == {99}
    assert open_roots(publication) == {(A, 24)}, "nothing is said of the others"
    assert publication.fails == ()


def test_a_timeout_is_reset_once_by_the_newest_evaluation_and_not_of_what_failed() -> None:
    """A tuple of a root may fail while another one is held on."""
    older, newer = touched(FIRST, 0, 1), touched(FIRST, 1, 2)
    failed = released_marks(failures=((BAD, places_of_marks(touched(FIRST, 2))),))
    failing = RootMarks.together([newer, failed])
    publication = batch(NOTHING, task_report("keyed", marks=older), task_report("keyed", marks=failing))
    assert resets(publication) == [(A, 0, [11])]
    assert failed_roots(publication) == {(A, 12): ("notify", "ValueError")}


def test_a_root_may_be_acked_and_reset_in_one_batch() -> None:
    """One of its tuples is done, another is held on."""
    tuples = held(FIRST, 0, 0)
    report = RootMarks.together([released(FIRST, tuples, slice(0, 1)), touched(FIRST, 0)])
    publication = batch(SECOND, task_report("keyed", marks=report))
    assert resets(publication) == [(A, 0, [10])]
    assert open_roots(batch(FIRST, task_report("hold", held=tuples)), publication) == {(A, 10)}


def test_a_batch_that_emits_nothing_counts_timeouts_from_its_own_time() -> None:
    """S16: a tick may come long after the last Init, by whose clock the timeout would not move at all."""
    marks = {A: SourceMark(0, 9)}
    last = Journal("s", 1, 500, 2, marks, (SourceRun(A, 4, 9),), at_ms=10_000)
    assert Logged(last, last, 0, 17_000).now == 7_500
    assert Logged(last, last, 0, 9_000).now == 500, "a wall clock that was set back moves nothing"
    assert Logged(last, replace(last, now=600, ranges=(SourceRun(A, 9, 10),)), 0, 17_000).now == 600
    old = replace(last, at_ms=0)
    assert Logged(old, old, 0, 17_000).now == 500, "an offset of an older version"


def test_a_batch_that_emitted_something_needs_its_read_tasks() -> None:
    report = task_report("ack", marks=released(FIRST, held(FIRST, 0)))
    with pytest.raises(TrackingError, match="no read task"):
        settle([reported(1, 1, 0, report)], (), lambda _stage: 1, Moment(SECOND, 0))


def test_rows_that_sparks_operators_made_of_one_tuple_have_edges_of_their_own() -> None:
    """Two equal edges would cancel, and their root be acked while both are held."""
    places = RootPositions(array(A, A, A), array(10, 10, 10))
    edges = held_edges(places, (), array(0, 0, 0), HeldAt(11, 0, 0))
    more = held_edges(places, (), array(0, 0, 0), HeldAt(11, 0, 3))
    other = held_edges(places, (), array(0, 0, 0), HeldAt(11, 1, 0))
    assert len({*edges.tolist(), *more.tolist(), *other.tolist()}) == 9


def test_the_records_of_a_batch_without_any_report_are_none() -> None:
    assert batch(NOTHING) == Publication((), ())
    assert isinstance(batch(SECOND).acks[0], Acks)


def test_what_is_held_and_released_comes_whole_from_an_executor() -> None:
    tuples = held(FIRST, 11, 0, 3, until_ms=-1)
    other = released_marks(
        failures=((BAD, places_of_marks(released(FIRST, held(FIRST, 4)))),),
        open_places=places_of_marks(released(FIRST, held(FIRST, 5))),
        open_edges=held(FIRST, 5).edges,
    )
    acked = RootMarks.together([released(FIRST, tuples), other])
    report = task_report("ack", held=tuples, marks=acked)
    assert repr(decode(encode(report))) == repr(report)


@pytest.mark.parametrize("far", [1, 1 << 6, 1 << 14, 1 << 30, 1 << 61])
def test_places_and_times_come_whole_however_far_apart_they_are(far: int) -> None:
    """They come in the order of groups, and differences are written in as few bytes as the largest needs."""
    far_apart = RootPositions(array(A, B, A), array(5 + far, 5, 5 + 2 * (far - 1)))
    tuples = replace(held(FIRST, 0, 3, 1, 2), until_ms=array(far, -1, NEVER_MS, 0))
    acked = released_marks(far_apart, tuples.edges[:3])
    came = decode(encode(task_report("ack", held=tuples, marks=acked)))
    assert held_in(came).until_ms.tolist() == tuples.until_ms.tolist()
    assert held_in(came).indices.tolist() == [0, 3, 1, 2]
    released_again = came.marks.of(RootMark.RELEASED)
    assert released_again.sources.tolist() == [A, B, A]
    assert released_again.positions.tolist() == far_apart.positions.tolist()
    assert released_again.edges.tolist() == acked.edges.tolist()


def test_a_report_of_another_version_is_refused() -> None:
    """Driver and executors need the same one."""
    version, *content = pickle.loads(zlib.decompress(encode(task_report("ack"))))
    for other in (version - 1, version + 1):
        with pytest.raises(TrackingError, match=f"version {other}, the driver reads {version}: install one"):
            decode(zlib.compress(pickle.dumps((other, *content[1:]))))


def test_a_report_without_an_edge_of_what_it_holds_is_refused() -> None:
    """Cut off on its way, it would hold a tuple with another one's edge, which nobody ever acks."""
    blob = encode(task_report("hold", held=held(FIRST, 0, 1, 2)))
    for wrong in (blob[:-8], blob + bytes(8), blob + bytes(10), blob[:-3]):
        with pytest.raises(TrackingError, match="cannot be read"):
            decode(wrong)
