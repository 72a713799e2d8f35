"""The places of roots, whatever a batch consists of: several ranges, partitions, inputs, and copies.

A root is named by its index in the plan. Each test compares what is said of some roots with the plainest
model: the list of all (source, position) of the plan. The roots are the first, a middle one and the last of
each range: an index that is off by one names a root of another range there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from acker.config.settings import AckTopics
from acker.config.topics import parse
from acker.errors import TrackingError
from acker.identity import (
    I64,
    WIRE_BLOCK_BITS,
    Source,
    copies_source,
    input_id_of,
    is_replay,
    partition_of,
    root_edge,
)
from acker.root_sets.root_set import RootSet
from acker.wire.codec import wire_codec
from acker.wire.events import (
    FIRST_EMISSIONS,
    TRACES,
    Acks,
    SourceRun,
    first_emissions,
    positions,
    traces,
    values,
)
from spout.planning.order import LinedRecords, NotAcked
from spout.planning.plan import BatchPlan, read_tasks
from spout.publishing.batch_warnings import held_left_open, isolated_records
from spout.publishing.delayed import RootPositions
from spout.publishing.fold import (
    BatchOutcome,
    LateNote,
    TaskReport,
    outstanding_of,
)
from spout.publishing.publish import (
    HELD_LANE,
    BatchLane,
    ack_records,
    held_runs,
    not_acked,
    publication_of,
    skipped_outcome,
)
from spout.publishing.root_marks import RootMark, RootMarks
from spout.publishing.settle import settle
from spout.tuples.failures import Cause
from spout.tuples.poison import WORKER_DIED
from spout.tuples.tuple import Delivery
from tests.support.outcomes import (
    failed_by_cause,
    held_of,
    older_failed,
    older_sums,
    open_edges_of,
    open_roots_of,
    outcome_from,
    plan_root_edges,
    released_marks,
    touched_of,
)
from tests.support.reports import Held, failures_of, reported, task_report

BLOCK = 1 << WIRE_BLOCK_BITS
LANE = BatchLane("q/s", 3)
BAD = Cause("split", "ValueError", "bad")
A, A1, B = Source(1 << 16), Source(1 << 16 | 1), Source(2 << 16)

Root = tuple[int, int]

PLANS = {
    "one range": [(A, 5, 10)],
    "two ranges of a partition": [(A, 5, 9), (A, 20, 25), (A, 25, 27)],
    "two partitions, the same offsets": [(A, 5, 9), (A1, 5, 9)],
    "two inputs, each from its beginning": [(A, 0, 3), (B, 0, 4)],
    "a partition and its copies": [(A, 7, 12), (copies_source(A), 0, 3)],
    "records that stand alone": [(A, 3, 4), (A, 8, 9), (A1, 3, 4), (B, 0, 1)],
    "both sides of a block's end": [(A, BLOCK - 3, BLOCK), (A, BLOCK, BLOCK + 3), (A1, BLOCK - 2, BLOCK + 2)],
    "all at once": [(A, 2, 4), (A, 6, 7), (A1, BLOCK - 1, BLOCK + 2), (B, 0, 2), (copies_source(A), 4, 9)],
}  # fmt: skip
"""What batches consist of, by name."""


def plan_of(name: str) -> BatchPlan:
    """Make the plan of that name."""
    ranges = sorted(SourceRun(*run) for run in PLANS[name])
    return BatchPlan("g", "s", 2, 4, 77, 30_000, tracked=True, ranges=tuple(ranges))


def roots_of(plan: BatchPlan) -> list[Root]:
    """List the roots of a plan, by their indices."""
    return [(run.source, position) for run in plan.ranges for position in range(run.start, run.end)]


def first_of_each_range(plan: BatchPlan) -> list[int]:
    """Return the indices of the first root of each range."""
    return list(plan.starts())


def middle_of_each_range(plan: BatchPlan) -> list[int]:
    """Return the index of a root in the middle of each range; of a short range it is an end of it."""
    return [start + (run.end - run.start) // 2 for start, run in zip(plan.starts(), plan.ranges, strict=True)]


def last_of_each_range(plan: BatchPlan) -> list[int]:
    """Return the indices of the last root of each range."""
    return [start + run.end - run.start - 1 for start, run in zip(plan.starts(), plan.ranges, strict=True)]


def last_of_all(plan: BatchPlan) -> list[int]:
    """Return the index of the last root: it stands alone."""
    return [plan.count - 1]


def every_root(plan: BatchPlan) -> list[int]:
    """Return all indices."""
    return list(range(plan.count))


WHICH = (first_of_each_range, middle_of_each_range, last_of_each_range, last_of_all, every_root)

of_some_roots = pytest.mark.parametrize(
    ("name", "chosen"),
    [
        pytest.param(name, which(plan_of(name)), id=f"{name}, {which.__name__}")
        for name in PLANS
        for which in WHICH
    ],
)


def numbers(indices: Iterable[int]) -> I64:
    """Make an array of indices into a plan."""
    return np.array(list(indices), np.int64)


def places_of(roots: Iterable[Root]) -> RootPositions:
    """Make the places of some roots."""
    listed = list(roots)
    return RootPositions(numbers(source for source, _ in listed), numbers(at for _, at in listed))


def open_outcome(plan: BatchPlan, indices: I64, **more: Any) -> BatchOutcome:
    """Return the outcome of a batch that leaves some roots open, without any contribution to them."""
    return outcome_from(plan, partial=indices, residual=plan_root_edges(plan, indices), **more)


def in_runs(runs: Iterable[SourceRun]) -> list[Root]:
    """List what is in runs."""
    return [(run.source, position) for run in runs for position in range(run.start, run.end)]


@of_some_roots
@pytest.mark.parametrize("how", ["failed", "open"])
def test_what_is_not_acked_is_named_by_its_partition_its_position_and_its_line(
    name: str, chosen: list[int], how: str
) -> None:
    """P32: another one would hold its line back, and this one's line would go on."""
    plan = plan_of(name)
    every = roots_of(plan)
    rows = np.array([(index, 100 + index, 1_000 + index) for index in range(0, plan.count, 2)], np.int64)
    lined_records = (LinedRecords("t/0", "split", rows),)
    if how == "failed":
        outcome = outcome_from(plan, ((BAD, numbers(chosen)),), lined_records=lined_records)
    else:
        outcome = open_outcome(plan, numbers(chosen), lined_records=lined_records)

    assert not_acked(outcome) == [
        NotAcked(*every[index], *((None, -1) if index % 2 else (100 + index, 1_000 + index)))
        for index in chosen
    ]


@of_some_roots
def test_what_the_state_holds_is_named_by_its_partition_and_position(name: str, chosen: list[int]) -> None:
    plan = plan_of(name)
    outcome = open_outcome(plan, numbers(chosen), held=numbers(chosen))
    longer_ms = {1: 5_000, 2: 7_000}
    expected = [roots_of(plan)[index] for index in chosen]

    assert in_runs(held_runs(outcome) or ()) == expected
    records = publication_of(outcome, LANE, longer_ms).held
    assert [(r.source, at) for r in records for at in positions(r.touched).tolist()] == expected
    assert {r.lane for r in records} == {f"q/s/{HELD_LANE}"}
    ahead = {1: 77 + 5_000, 2: 77 + 7_000}
    assert all(r.touched_at == ahead[input_id_of(Source(r.source))] for r in records)


@of_some_roots
def test_each_root_of_the_records_has_what_became_of_it(name: str, chosen: list[int]) -> None:
    """One kind after the other for the same roots; all others are acked whole."""
    plan = plan_of(name)
    every = roots_of(plan)
    some = [every[index] for index in chosen]
    indices = numbers(chosen)
    hole = tuple(SourceRun(source, at, at + 1) for source, at in some)
    half = np.full(len(chosen), 5, np.uint64)
    outcomes = {
        "failed": outcome_from(plan, ((BAD, indices),)),
        "absent": outcome_from(plan, absent=hole),
        "partial": outcome_from(plan, partial=indices, residual=half, touched=indices),
        "touched": outcome_from(plan, touched=indices),
    }
    for kind, outcome in outcomes.items():
        publication = publication_of(outcome, LANE)
        found: defaultdict[str, list[Root]] = defaultdict(list)
        for record in publication.fails:
            failed = [at for cause in record.causes for at in positions(cause.positions).tolist()]
            found["failed"] += [(record.source, at) for at in failed]
        for acks in publication.acks:
            found["whole"] += in_runs(SourceRun(acks.source, *run) for run in acks.runs)
            found["absent"] += in_runs(SourceRun(acks.source, *run) for run in acks.absent)
            found["touched"] += [(acks.source, at) for at in positions(acks.touched).tolist()]
            at_of = positions(acks.positions).tolist()
            found["partial"] += [(acks.source, at) for at in at_of]
            edges = [root_edge(acks.source, at) ^ 5 for at in at_of]
            assert values(acks.values).tolist() == edges
        assert found.pop("whole", []) == (every if kind == "touched" else sorted(set(every) - set(some)))
        # a root that is acked whole has no timeout to reset
        expected = {"touched": {}, "partial": {"partial": some, "touched": some}}.get(kind, {kind: some})
        assert {key: roots for key, roots in found.items() if roots} == expected


@of_some_roots
def test_the_first_emission_and_the_trace_are_those_of_the_root(name: str, chosen: list[int]) -> None:
    """Of the roots that the batch fails none is named."""
    plan = plan_of(name)
    every = roots_of(plan)
    some = [every[index] for index in chosen]
    wall_ms = numbers(10_000 + index for index in range(plan.count))
    ids = np.stack([wall_ms, wall_ms + 1, wall_ms + 2], axis=1)
    outcome = outcome_from(
        plan,
        ((BAD, numbers(chosen)),),
        firsts=RootMarks.of_roots(RootMark.FIRST_EMITTED, places_of(every), wall_ms),
        traces=RootMarks.of_traces(places_of(every), ids),
    )
    readers = {FIRST_EMISSIONS: first_emissions, TRACES: traces}
    named: dict[str, dict[tuple[int, int], list[int]]] = {header: {} for header in readers}
    for record in ack_records(publication_of(outcome, LANE), AckTopics.with_prefix(""), 1).acks:
        acks = wire_codec().decode(record.value)
        assert isinstance(acks, Acks)
        for name_of_header, value in record.headers:
            header = readers[name_of_header](value)
            assert header is not None
            assert header.source == acks.source
            assert (header.positions >> WIRE_BLOCK_BITS == acks.block).all()
            numbers_of_roots = header.numbers.reshape(len(header.positions), -1).tolist()
            for position, of_root in zip(header.positions.tolist(), numbers_of_roots, strict=True):
                named[name_of_header][header.source, position] = of_root
    not_failed = {root: index for index, root in enumerate(every) if root not in some}
    assert named[FIRST_EMISSIONS] == {root: [wall_ms[index]] for root, index in not_failed.items()}
    assert named[TRACES] == {root: ids[index].tolist() for root, index in not_failed.items()}


@of_some_roots
def test_what_came_too_late_is_named_by_its_partition_and_position(name: str, chosen: list[int]) -> None:
    plan = plan_of(name)
    outcome = outcome_from(plan, late_count=len(chosen), late_roots=numbers(chosen))
    notes = publication_of(outcome, LANE, late=LateNote(5, 6, row_count=1, mover=None)).too_late
    assert in_runs(run for note in notes.values() for run in note.roots) == [
        roots_of(plan)[index] for index in chosen
    ]
    assert in_runs(run for note in notes.values() for run in note.batch) == roots_of(plan)
    assert [note.first for note in notes.values()] == [True] + [False] * (len(notes) - 1)


@of_some_roots
def test_an_index_and_a_place_lead_to_each_other_in_any_order(name: str, chosen: list[int]) -> None:
    """A plan looks up positions; `plan_root_edges` goes the other way, whatever the order of the indices."""
    plan = plan_of(name)
    every = roots_of(plan)
    indices = numbers(chosen[::-1])
    expected = [root_edge(*every[index]) for index in chosen[::-1]]
    assert plan_root_edges(plan, indices).tolist() == expected
    for index in chosen:
        source, position = every[index]
        assert plan.index().of(source, numbers([position])).tolist() == [index]


@pytest.mark.parametrize("name", PLANS)
def test_what_is_beside_a_range_is_not_in_the_plan(name: str) -> None:
    plan = plan_of(name)
    every = set(roots_of(plan))
    index = plan.index()
    for source, start, end in plan.ranges:
        for position in (start - 1, end):
            is_in_plan = (source, position) in every
            assert (index.find(source, numbers([position])) >= 0).tolist() == [is_in_plan]


@of_some_roots
def test_a_skipped_batch_fails_all_but_the_positions_without_a_record(name: str, chosen: list[int]) -> None:
    plan = plan_of(name)
    every = roots_of(plan)
    some = {every[index] for index in chosen}
    outcome = skipped_outcome(plan, RootSet.of_runs((source, at, at + 1) for source, at in some))
    failed = [every[index] for _, roots in failed_by_cause(outcome) for index in roots.tolist()]
    assert failed == [root for root in every if root not in some]


def read_reports(plan: BatchPlan, pieces: int) -> list[TaskReport]:
    """Return a report of each of so many read tasks, that did nothing but read."""
    tasks = read_tasks(plan, {run.source: "t" for run in plan.ranges}, pieces)
    return [task_report("split", plan=plan, ranges=task.ranges) for task in tasks]


def settled(plan: BatchPlan, *more: TaskReport) -> BatchOutcome:
    """Settle a batch of one read task, and of further reports of its bolt behind Spark's operators."""
    reads = [reported(1, number, number, report) for number, report in enumerate(read_reports(plan, 1))]
    return settle(
        [*reads, *(reported(2, number, number, report) for number, report in enumerate(more))],
        (),
        lambda _stage: None,
    )


@of_some_roots
def test_each_root_of_an_outcome_is_that_of_the_report(name: str, chosen: list[int]) -> None:
    """What bolts failed, left open, held, touched, and which calls passed."""
    plan = plan_of(name)
    every = roots_of(plan)
    some = [every[index] for index in chosen]
    held = Held(numbers(chosen), np.full(len(chosen), 5, np.uint64), numbers(9 for _ in chosen))
    outcome = settled(plan, task_report("count", failures=failures_of((index, BAD) for index in chosen)))
    assert [roots.tolist() for _, roots in failed_by_cause(outcome)] == [chosen]

    outcome = settled(plan, task_report("count", outstanding=outstanding_of(Delivery(i, ()) for i in chosen)))
    assert open_roots_of(outcome).tolist() == chosen
    assert open_edges_of(outcome).tolist() == [root_edge(*root) for root in some]

    outcome = settled(plan, task_report("count", held=held, touched=numbers(chosen)))
    assert held_of(outcome).tolist() == chosen
    assert touched_of(outcome).tolist() == chosen
    highest = [time.run for time in outcome.highest_times if time.is_held]
    assert in_runs(highest) == some[:1]

    outcome = settled(plan, task_report("count", passed=((BAD, numbers(chosen)),)))
    assert in_runs(run for call in outcome.passed for run in call.runs) == some


@of_some_roots
def test_what_is_released_is_the_batch_s_own_or_an_older_root_by_its_place(
    name: str, chosen: list[int]
) -> None:
    """Own roots lie in the plan; the same positions of another input, or before a range, are older ones."""
    plan = plan_of(name)
    every = roots_of(plan)
    other = Source(9 << 16)
    own = [every[index] for index in chosen]
    older = sorted({*((other, at) for _, at in own), *((s, at - 1) for s, at in own if at)} - set(every))
    edges = np.arange(1, len(own) + len(older) + 1, dtype=np.uint64)
    released = released_marks(places_of([*own, *older]), edges, ((BAD, places_of([*own, *older])),))

    outcome = settled(plan, task_report("count", marks=released))

    assert open_roots_of(outcome).tolist() == chosen
    assert open_edges_of(outcome).tolist() == edges[: len(own)].tolist()
    assert [roots.tolist() for _, roots in failed_by_cause(outcome)] == [chosen]
    acked = {
        (source, at): value
        for source, (listed, sums) in older_sums(outcome).items()
        for at, value in zip(listed, sums, strict=True)
    }
    assert acked == dict(zip(older, edges[len(own) :].tolist(), strict=True))
    failed = [(s, at) for s, listed in older_failed(outcome).get(BAD, {}).items() for at in listed]
    assert sorted(failed) == older


INPUTS = parse(
    "inputs: {a: {id: 1, group: g}, b: {id: 2, group: g}}", file="topics.yaml", environ={}
).inputs_of("g")


def named(root: Root) -> str:
    """Return the place of a root as an operator reads it."""
    source, at = root
    topic = INPUTS[input_id_of(source) - 1]
    name = topic.replay_topic if is_replay(source) else topic.topic
    return f"{name}/{partition_of(source)}@{at}"


@of_some_roots
def test_an_operator_reads_the_place_of_the_root(name: str, chosen: list[int]) -> None:
    """In the line of a record that ended its process, and of bolts that left a tuple open."""
    plan = plan_of(name)
    every = roots_of(plan)
    some = [every[index] for index in chosen]
    died = Cause("split", WORKER_DIED, "exit status 3")
    isolated = isolated_records(outcome_from(plan, ((died, numbers(chosen)),)), INPUTS)
    assert [record.place for record in isolated] == list(map(named, some))
    opened = (("ack", places_of([*some, *some])),)
    assert held_left_open(outcome_from(plan, held_open=opened)) == {"ack": sorted(some)}
    failed = outcome_from(plan, ((BAD, numbers(chosen[:1])),), held_open=opened)
    assert held_left_open(failed) == ({"ack": sorted(some[1:])} if some[1:] else {})


@pytest.mark.parametrize("name", PLANS)
def test_a_range_that_no_task_has_read_is_missed_whichever_it_is(name: str) -> None:
    plan = plan_of(name)
    [whole] = read_reports(plan, 1)
    assert settle([reported(1, 0, 0, whole)], (), lambda _stage: None).plan == plan
    for missing in range(len(plan.ranges)):
        kept = tuple(run for number, run in enumerate(plan.ranges) if number != missing)
        with pytest.raises(TrackingError, match="read task"):
            settle([reported(1, 0, 0, replace(whole, ranges=kept))], (), lambda _stage: None)
