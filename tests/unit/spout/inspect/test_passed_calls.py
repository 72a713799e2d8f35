"""A call that hung and passed when it was made again: it is in the driver's log, and in `failures`."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from acker.identity import WIRE_BLOCK_BITS, acker_partition, source_of
from acker.wire.events import SourceRun
from acker.wire.passed_calls import (
    CALLS_MAX,
    NOTE_BYTES_MAX,
    PASSED_CALLS,
    RUNS_MAX,
    PassedCall,
    PassedCalls,
    passed_calls_header,
    read_passed_calls,
)
from replay.records.places import run_places
from spout.inspect.diagnosis import explained
from spout.inspect.failures import FailureLog
from spout.inspect.trail import EvidenceReader
from spout.planning.journal import BEGINNING
from spout.planning.plan import BatchPlan
from spout.publishing.blob import decode, encode
from spout.publishing.delayed import RootPositions
from spout.publishing.publish import BatchLane, Publisher, publication_of
from spout.publishing.settle import settle
from spout.streaming.options import plan_between
from spout.tuples.failures import Cause
from spout.tuples.poison import HUNG
from tests.support.outcomes import outcome_from
from tests.support.reports import keyed_marks, reported, task_report
from tests.support.worlds.planning import World, batch

A = source_of(1, 0)
HOW = "took longer than bolt_timeout, 10s"
CALL = PassedCall("embed", HUNG, HOW, (SourceRun(A, 2, 5),))
WIDE = PassedCall("embed" * 40, HUNG, HOW * 5, tuple(SourceRun(2**62, n, 2**63 - 1) for n in range(RUNS_MAX)))


def published(*calls: PassedCall, fails_all: bool = False, times: int = 1) -> World:
    """Return a world whose one batch of ten records has such calls; all are acked, or all fail."""
    world = World()
    world.produce(10)
    end = batch(world.ready(), BEGINNING, world)
    plan = plan_between(BEGINNING, end, "g", world.topics.acker.partitions, 4_000)
    failed = ((Cause("embed", "ValueError", "boom"), np.arange(10)),) if fails_all else ()
    publication = publication_of(outcome_from(plan, failed, passed=calls), BatchLane(f"q/{end.session}", 1))
    for _ in range(times):
        Publisher(lambda: world.log, world.topics.ack_topics).publish(publication, plan.partitions)
        world.run(1_000)
    return world


@pytest.mark.parametrize("is_behind_keyed", [False, True], ids=["of the batch", "behind a keyed bolt"])
def test_the_driver_finds_the_records_of_a_task_that_reports_it(is_behind_keyed: bool) -> None:
    """D1405: behind a keyed bolt a task names roots by numbers of their own, also of earlier batches."""
    plan = BatchPlan("g", "s", 1, 4, 99, 30_000, True, (SourceRun(A, 10, 20), SourceRun(A + 1, 5, 15)))
    cause = Cause("embed", HUNG, HOW)
    passed = ((cause, np.array([70, 71]) if is_behind_keyed else np.array([8, 9, 10])),)
    reads = task_report("embed", plan=plan, ranges=plan.ranges, passed=() if is_behind_keyed else passed)
    reports = [decode(encode(reads))]
    if is_behind_keyed:
        places = RootPositions(np.array([A, A]), np.array([3, 4]))
        reports.append(task_report("keyed", keyed_roots=keyed_marks(np.array([70, 71]), places)))
        reports.append(decode(encode(task_report("last", keyed_roots=keyed_marks(), passed=passed))))
    evaluations = [reported(number, number, 0, report) for number, report in enumerate(reports[:1])]
    evaluations += [reported(number, 9, 0, report) for number, report in enumerate(reports[1:], start=1)]
    (call,) = settle(evaluations, (), lambda _stage: 1).passed
    of_batch = (SourceRun(A, 18, 20), SourceRun(A + 1, 5, 6))
    assert call == PassedCall("embed", HUNG, HOW, (SourceRun(A, 3, 5),) if is_behind_keyed else of_batch)


def failures_in(world: World) -> tuple[list[dict[str, Any]], list[str]]:
    with closing(FailureLog(world.log, world.topics, list(world.topics.inputs.values()), 0)) as found:
        found.read()
        return found.rows(world.now_ms), found.all_notes()


@pytest.mark.parametrize("fails_all", [False, True], ids=["acked", "failed"])
@pytest.mark.parametrize("times", [1, 2], ids=["once", "published twice"])
def test_failures_count_its_records_and_name_them(fails_all: bool, times: int) -> None:
    """D1406: none of them failed for it. A batch that is published again counts once."""
    rows, notes = failures_in(published(CALL, fails_all=fails_all, times=times))
    (row,) = [row for row in rows if row["passed"]]
    assert (row["input"], row["operator"], row["cause"]) == ("sentences", "embed", HUNG)
    assert (row["failures"], row["passed"], row["dead"]) == (0, 3, 0)
    (note,) = [note for note in notes if "passed when it was made again" in note]
    assert HOW in note
    assert note.endswith("sentences/0@2-4")
    assert (row["last_record"], row["last_attempt"]) == ("sentences/0@4", 1)


@pytest.mark.parametrize("fails_all", [False, True], ids=["acked", "failed"])
@pytest.mark.parametrize("times", [1, 2], ids=["once", "published twice"])
@pytest.mark.parametrize(("place", "is_named"), [("sentences/0@3", True), ("sentences/0@5", False)])
def test_inspect_shows_it_for_its_records_alone(
    fails_all: bool, times: int, place: str, is_named: bool
) -> None:
    """D1412"""
    story = inspected(published(CALL, fails_all=fails_all, times=times), place)
    row = {
        "attempt": 1,
        "root": place,
        "operator": "embed",
        "error": HUNG,
        "how": f"{HOW}, and passed when it was made again",
    }
    noted = [
        {name: value for name, value in call.items() if name != "noted"} for call in story["passed_calls"]
    ]
    assert noted == ([row] if is_named else [])
    assert all(call["noted"].startswith("2027-01-15T08:00:") for call in story["passed_calls"])


def inspected(world: World, place: str) -> dict[str, Any]:
    trail = EvidenceReader(world.cluster.log(), world.topics)
    (here,) = trail.records_at(place)
    evidence = trail.read_evidence(here)
    return explained(evidence, trail.circumstances(here, evidence, world.now_ms), world.now_ms)


def test_each_acker_of_such_a_record_has_the_note_beside_its_verdict() -> None:
    """D1412: who follows one record reads one acker partition. `failures` counts the note once."""
    world = World()
    for partition in range(2):
        world.produce(10, partition=partition)
    end = batch(world.ready(), BEGINNING, world)
    plan = plan_between(BEGINNING, end, "g", world.topics.acker.partitions, 4_000)
    ackers = {acker_partition(source, 0, world.topics.acker.partitions) for source in (A, A + 1)}
    assert len(ackers) == 2, "else both records have the same acker"
    call = PassedCall("embed", HUNG, HOW, (SourceRun(A, 2, 3), SourceRun(A + 1, 7, 8)))
    publication = publication_of(outcome_from(plan, passed=(call,)), BatchLane(f"q/{end.session}", 1))
    Publisher(lambda: world.log, world.topics.ack_topics).publish(publication, plan.partitions)
    world.run(1_000)
    for place in ("sentences/0@2", "sentences/1@7"):
        assert [row["root"] for row in inspected(world, place)["passed_calls"]] == [place]
    (row,) = failures_in(world)[0]
    assert row["passed"] == 2


def test_a_note_on_roots_that_this_batch_does_not_have_stands_in_its_first_record() -> None:
    """They are of earlier batches, behind a keyed bolt."""
    far = SourceRun(A, 40 << WIRE_BLOCK_BITS, (40 << WIRE_BLOCK_BITS) + 1)
    assert acker_partition(far.source, far.start, 3) != acker_partition(A, 0, 3)
    rows, _ = failures_in(published(CALL._replace(runs=(far,))))
    assert [row["passed"] for row in rows] == [1]


def test_what_a_former_life_of_the_query_has_noted_of_other_roots_is_left_out() -> None:
    """D1410: a note may be older than the batch that is run now."""
    plan = BatchPlan("g", "s", 1, 4, 99, 30_000, True, (SourceRun(A, 10, 20),))
    cause = Cause("embed", HUNG, HOW)
    reads = task_report(
        "embed",
        plan=plan,
        ranges=plan.ranges,
        passed=((cause, np.array([-1, 9, 10])), (cause, np.array([99]))),
    )
    (call,) = settle([reported(0, 0, 0, reads)], (), lambda _stage: 1).passed
    assert call.runs == (SourceRun(A, 19, 20),)


def test_a_batch_without_such_a_call_has_no_note() -> None:
    """So that nothing is written for what nearly every batch is."""
    rows, notes = failures_in(published())
    assert rows == []
    assert not [note for note in notes if "passed when" in note]


def test_an_acker_that_begins_again_writes_the_note_once_more_and_it_counts_once() -> None:
    """D1406: what it has not committed it does again."""
    world = published(CALL)
    world.kill_acker()
    world.start_acker()
    world.run(10_000)
    (row,) = failures_in(world)[0]
    assert row["passed"] == 3


def test_a_note_is_bounded_and_the_longest_one_can_be_read() -> None:
    """D1407"""
    ((_, value),) = passed_calls_header("q/s1" * 10, 1, [WIDE] * (CALLS_MAX + 5))
    assert len(value) <= NOTE_BYTES_MAX
    note = read_passed_calls([(PASSED_CALLS, value)])
    assert note is not None
    assert len(note.calls) == CALLS_MAX


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"{",
        b"7",
        b"[]",
        b"[" * 100_000,
        json.dumps(["q", 1, [["bolt", "HUNG", 7, []]]]).encode(),
        json.dumps(["q", 1, [["bolt", "HUNG", "how", [[1, 2]]]]]).encode(),
        json.dumps(["q", 1, [["bolt", "HUNG", "how", [[1, 5, 2]]]]]).encode(),
        json.dumps(["q", 1, [["bolt", "HUNG", "how", [[1, 2, 1 << 70]]]]]).encode(),
        json.dumps(["q", True, []]).encode(),
        json.dumps([7, 1, []]).encode(),
    ],
)
def test_what_a_stranger_writes_in_its_place_is_passed_over(value: bytes | None) -> None:
    """D1407"""
    assert read_passed_calls([(PASSED_CALLS, value)]) is None


def test_a_note_comes_back_as_it_was() -> None:
    (header,) = passed_calls_header("q/s1", 7, [CALL])
    assert read_passed_calls([header]) == PassedCalls("q/s1", 7, (CALL,))


def test_runs_are_named_by_their_records() -> None:
    """D1405: as the driver's log has them."""
    world = World()
    inputs = list(world.topics.inputs.values())
    assert (
        run_places([SourceRun(A, 4, 7), SourceRun(A + 1, 9, 10)], inputs) == "sentences/0@4-6, sentences/1@9"
    )
    assert run_places([], inputs) == "none"
    assert run_places([SourceRun(A, n, n + 1) for n in range(11)], inputs).endswith(", ...")
