"""What stands in the records of a batch, over drawn plans: each root once, each at its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from acker.config.settings import AckTopics
from acker.identity import (
    WIRE_BLOCK_BITS,
    acker_partition,
    child_edge,
    root_edge,
    root_edges,
    source_of,
    subscription_key,
)
from acker.root_sets.root_set import RootSet
from acker.wire.codec import RECORD_BYTES_MAX, wire_codec
from acker.wire.events import (
    FIRST_EMISSION_BYTES,
    FIRST_EMISSIONS,
    TRACE_BYTES,
    TRACES,
    Acks,
    Fails,
    SourceRun,
    pack_root_numbers,
)
from acker.wire.lateness import TooLate, too_late_header
from acker.wire.passed_calls import (
    CALLS_MAX,
    RUNS_MAX,
    PassedCall,
    PassedCalls,
    passed_calls_header,
    read_passed_calls,
)
from replay.records.places import record_place
from spout.planning.plan import BatchPlan
from spout.publishing.batch_warnings import held_left_open, isolated_counts, isolated_records, left_open
from spout.publishing.delayed import RootPositions, by_key
from spout.publishing.fold import (
    Subscriptions,
    TaskReport,
    indices_not_done,
    left_open_by_bolts,
    merged,
    outstanding_marks,
    outstanding_of,
    report_behind_keyed,
)
from spout.publishing.publish import (
    CAUSES_MAX,
    BatchLane,
    Publication,
    ack_headers,
    ack_records,
    held_runs,
    merge_causes,
    publication_of,
    skipped_outcome,
)
from spout.publishing.root_marks import NUMBERED, RootMark, RootMarks, roots_of
from spout.tuples.counts import Counted, Measure, What
from spout.tuples.failures import Cause
from spout.tuples.poison import HUNG, WORKER_DIED
from spout.tuples.tuple import Delivery, StreamId
from tests.support.outcomes import absent_of, failed_by_cause, outcome_from
from tests.support.reports import failures_in, failures_of, reported, task_report

BLOCK = 1 << WIRE_BLOCK_BITS
KEY = 7
TEXTS = st.text(max_size=8)


@st.composite
def plans(draw: st.DrawFn) -> BatchPlan:
    """Draw a plan of ranges of some sources, ascending; some begin shortly before the end of a block."""
    ranges = []
    for number in range(draw(st.integers(1, 3))):
        start = draw(st.sampled_from([0, 5, BLOCK - 3]))
        length = draw(st.integers(1, 8))
        ranges.append(SourceRun(source_of(1, number, replay=draw(st.booleans())), start, start + length))
    return BatchPlan("g", "s", 1, 4, 99, 30_000, True, tuple(sorted(ranges)))


def places_of(plan: BatchPlan) -> list[tuple[int, int]]:
    """Return source and position of each root of a plan, by index."""
    return [(source, position) for source, start, end in plan.ranges for position in range(start, end)]


@st.composite
def plans_with_roots(draw: st.DrawFn) -> tuple[BatchPlan, list[int]]:
    plan = draw(plans())
    return plan, draw(st.lists(st.integers(0, plan.count - 1), max_size=12))


@given(plans_with_roots())
def test_the_root_edges_of_a_plan_are_those_of_its_positions_in_any_order(
    drawn: tuple[BatchPlan, list[int]],
) -> None:
    plan, roots = drawn
    places = places_of(plan)
    edges = root_edges(*plan.index().roots(np.array(roots, np.int64))).tolist()
    assert edges == [root_edge(*places[root]) for root in roots]


@given(plans_with_roots(), st.lists(st.integers(0, 3), min_size=12, max_size=12))
def test_what_is_outstanding_is_the_xor_of_its_edges_and_zero_is_left_out(
    drawn: tuple[BatchPlan, list[int]], ordinals: list[int]
) -> None:
    plan, roots = drawn
    places = places_of(plan)
    deliveries = [Delivery(root, ((KEY, n),)) for root, n in zip(roots, ordinals, strict=False)]
    deliveries += [Delivery(root, ()) for root in roots[:3]]
    expected: dict[int, int] = {}
    for root, path in deliveries:
        edge = root_edge(*places[root])
        for subscription, ordinal in path:
            edge = child_edge(edge, subscription, ordinal)
        expected[root] = expected.get(root, 0) ^ edge
    index = plan.index()
    report = TaskReport("bolt", outstanding=outstanding_of(deliveries))
    lacking = outstanding_marks(index, [report]).summed(RootMark.OPEN)
    indices = index.find_roots(lacking.sources, lacking.positions).tolist()
    found = dict(zip(indices, lacking.edges.tolist(), strict=True))
    assert found == {root: value for root, value in expected.items() if value}
    assert indices == sorted(found)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from("ab")), max_size=10),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2)), max_size=10, unique=True),
    st.integers(0, 10),
)
def test_reports_of_one_task_say_together_what_each_says(
    failed: list[tuple[int, str]], left: list[tuple[int, int]], cut: int
) -> None:
    """However its rows are cut into pieces."""
    pairs = [(root, Cause("bolt", name, "")) for root, name in failed]
    pieces = [(pairs[:cut], left[:cut]), (pairs[cut:], left[cut:])]
    reports = [
        task_report(
            "bolt",
            failures=failures_of(some),
            outstanding=outstanding_of(Delivery(root, ((KEY, n),)) for root, n in others),
        )
        for some, others in pieces
    ]
    whole = merged(reports)
    found = [(root, cause) for cause, roots in failures_in(whole) for root in roots.tolist()]
    assert sorted(found) == sorted(pairs)
    rows: dict[Subscriptions, list[list[int]]] = {
        path: values.tolist() for path, values in whole.outstanding.items()
    }
    assert sorted(map(tuple, rows.get((KEY,), []))) == sorted(left)
    assert indices_not_done(whole).tolist() == sorted({root for root, _ in [*failed, *left]})


@given(st.lists(st.tuples(st.integers(0, 4), TEXTS)))
def test_values_are_found_by_their_keys_in_their_order(pairs: list[tuple[int, str]]) -> None:
    found = by_key(pairs)
    assert list(found) == list(dict.fromkeys(key for key, _ in pairs))
    assert all(found[key] == [value for other, value in pairs if other == key] for key in found)


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), TEXTS), max_size=20), st.integers(1, 9)
)
def test_causes_beyond_a_limit_are_brought_together_and_no_root_is_lost(
    drawn: list[tuple[str, str, str]], limit: int
) -> None:
    causes: Sequence[tuple[Cause, np.ndarray]] = [
        (Cause(*cause), np.array([number])) for number, cause in enumerate(dict.fromkeys(drawn))
    ]
    found = merge_causes(causes, limit)
    assert len(found) <= max(limit, 0)
    assert sorted(root for _, roots in found for root in roots.tolist()) == list(range(len(causes)))
    assert [cause for cause, _ in found] == sorted(cause for cause, _ in found)
    if len(causes) <= limit:
        assert {cause for cause, _ in found} == {cause for cause, _ in causes}
    assert merge_causes(causes) == merge_causes(causes, CAUSES_MAX)


@given(plans_with_roots())
def test_what_the_state_holds_is_named_by_runs_of_its_own_roots(drawn: tuple[BatchPlan, list[int]]) -> None:
    plan, roots = drawn
    held = np.array(sorted(set(roots)), np.int64)
    runs = held_runs(outcome_from(plan, held=held))
    assert runs is not None
    named = [(source, position) for source, start, end in runs for position in range(start, end)]
    places = places_of(plan)
    assert sorted(named) == sorted(places[root] for root in set(roots))
    assert len(named) == len(set(named))


@given(plans_with_roots())
def test_a_batch_that_the_sink_skipped_fails_each_root_that_has_a_record(
    drawn: tuple[BatchPlan, list[int]],
) -> None:
    plan, roots = drawn
    places = places_of(plan)
    absent = [SourceRun(source, at, at + 1) for source, at in (places[root] for root in roots)]
    outcome = skipped_outcome(plan, RootSet.of_runs(absent))
    failed = [root for _, named in failed_by_cause(outcome) for root in named.tolist()]
    assert failed == [root for root in range(plan.count) if root not in roots]
    named = [(source, at) for source, start, end in absent_of(outcome.missing) for at in range(start, end)]
    assert sorted(named) == sorted({places[root] for root in roots})


CALLS = st.builds(
    PassedCall,
    TEXTS,
    TEXTS,
    TEXTS,
    st.lists(
        st.builds(lambda source, start, length: SourceRun(source, start, start + length),
                  st.integers(0, 1 << 31), st.integers(0, 1 << 62), st.integers(1, 1_000)),
        max_size=RUNS_MAX,
    ).map(tuple),
)  # fmt: skip


@given(TEXTS, st.integers(0, 1 << 40), st.lists(CALLS, max_size=3))
def test_a_note_of_calls_comes_back_as_it_was(lane: str, seq: int, calls: list[PassedCall]) -> None:
    headers = passed_calls_header(lane, seq, calls)
    assert bool(headers) is bool(calls)
    assert read_passed_calls(headers) == (PassedCalls(lane, seq, tuple(calls)) if calls else None)
    many = passed_calls_header(lane, seq, calls * (CALLS_MAX + 1))
    note = read_passed_calls(many)
    assert note is None or len(note.calls) == CALLS_MAX


@given(st.binary(max_size=200))
def test_no_header_of_a_stranger_is_a_note_that_a_view_could_not_show(value: bytes) -> None:
    note = read_passed_calls([("windhover.passed-calls", value)])
    assert note is None or all(run.start < run.end for call in note.calls for run in call.runs)


# -- what bolts left open

AB, AC, BC = (
    subscription_key(*edge) for edge in (("a", "default", "b"), ("a", "default", "c"), ("b", "default", "c"))
)
RECEIVERS: Mapping[Subscriptions, str] = {(): "a", (AB,): "b", (AC,): "c", (AB, BC): "c"}
EXECUTED = {
    Counted(What.EXECUTED, bolt, StreamId(producer)): Measure(1)
    for producer, bolt in (("a", "b"), ("a", "c"), ("b", "c"))
}
TREE = [
    (root, *ordinals)
    for root in range(3)
    for ordinals in ((), (0,), (1,), (0, 0), (1, 0))
]  # fmt: skip
DELIVERIES = [
    Delivery(row[0], tuple(zip(path, row[1:], strict=True)))
    for path in RECEIVERS
    for row in TREE
    if len(row) == len(path) + 1
]
"""Of three roots: what `a` received, what `b` and `c` received of it, and `c` of `b`."""


def is_within(delivery: Delivery, other: Delivery) -> bool:
    """Return whether a delivery is another one, or was emitted on it."""
    return delivery.root == other.root and delivery.path[: len(other.path)] == other.path


def report_of(left: list[Delivery], operator: str = "a+b+c") -> TaskReport:
    """Return the report of a task whose bolts left deliveries open: with all that was emitted on these."""
    outstanding = [one for one in DELIVERIES if any(is_within(one, other) for other in left)]
    return task_report(operator, outstanding=outstanding_of(outstanding), counts=EXECUTED)


def named_roots(left: list[Delivery]) -> set[tuple[str, int]]:
    """Return the bolts that left a delivery open whose parent was not open, each with the root."""
    outermost = [one for one in left if not any(is_within(one, other) for other in left if other != one)]
    return {(RECEIVERS[tuple(key for key, _ in one.path)], one.root) for one in outermost}


LEFT = st.lists(st.sampled_from(DELIVERIES), unique=True, max_size=6)


@given(LEFT)
def test_the_bolt_that_received_a_tuple_first_left_it_open(left: list[Delivery]) -> None:
    assert {
        (bolt, root) for bolt, roots in left_open_by_bolts(report_of(left)) for root in roots.tolist()
    } == (named_roots(left))


@given(st.lists(LEFT, max_size=3), st.sets(st.integers(0, 2)), st.sets(st.integers(0, 2)))
def test_roots_are_left_open_by_a_bolt_if_they_wait_and_have_not_failed(
    tasks: list[list[Delivery]], waiting: set[int], failed: set[int]
) -> None:
    plan = BatchPlan("g", "s", 1, 4, 99, 30_000, True, (SourceRun(source_of(1, 0), 5, 8),))
    partial = np.array(sorted(waiting), np.int64)
    failures = ((Cause("b", "E", ""), np.array(sorted(failed), np.int64)),) if failed else ()
    outcome = outcome_from(plan, failures, partial=partial, residual=np.ones(len(partial), np.uint64))
    evaluations = [reported(0, 0, number, report_of(left)) for number, left in enumerate(tasks)]
    expected: dict[str, set[int]] = {}
    for left in tasks:
        for bolt, root in named_roots(left):
            if root in waiting - failed:
                expected.setdefault(bolt, set()).add(root)
    shown = left_open(evaluations, outcome)
    assert {bolt: roots.tolist() for bolt, roots in shown.items()} == {
        bolt: sorted(roots) for bolt, roots in expected.items()
    }
    assert list(shown) == sorted(shown)


@given(
    plans(), st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 99))), st.sets(st.integers(0, 99)),
    st.sets(st.integers(0, 9)),
)  # fmt: skip
def test_held_roots_are_open_if_they_failed_neither_in_this_batch_nor_as_older_ones(
    plan: BatchPlan, left: list[tuple[str, int]], failed: set[int], failed_older: set[int]
) -> None:
    """Half of what is drawn are roots of earlier batches, behind the plan's ranges."""
    source = plan.ranges[0].source
    older = [(source, 2 * BLOCK + number) for number in range(10)]
    places = [*places_of(plan), *older]
    named = [(bolt, places[number % len(places)]) for bolt, number in left]
    failed_here = sorted({number % plan.count for number in failed})
    cause = Cause("b", "E", "")
    outcome = outcome_from(
        plan,
        ((cause, np.array(failed_here, np.int64)),) if failed_here else (),
        failed_older={cause: {source: np.array([older[n][1] for n in sorted(failed_older)], np.int64)}},
        held_open=tuple(
            (bolt, RootPositions(*(np.array([place[axis]], np.int64) for axis in (0, 1))))
            for bolt, place in named
        ),
    )
    gone = {places[root] for root in failed_here} | {older[number] for number in failed_older}
    expected: dict[str, set[tuple[int, int]]] = {}
    for bolt, place in named:
        if place not in gone:
            expected.setdefault(bolt, set()).add(place)
    assert held_left_open(outcome) == {bolt: sorted(open_) for bolt, open_ in sorted(expected.items())}


@given(plans_with_roots(), st.sampled_from([WORKER_DIED, HUNG, "ValueError"]))
def test_only_what_ended_or_hung_a_process_is_an_isolated_record(
    drawn: tuple[BatchPlan, list[int]], error: str
) -> None:
    plan, roots = drawn
    cause, other = Cause("b", error, "m"), Cause("b", "ValueError", "other")
    outcome = outcome_from(
        plan, ((other, np.array([0], np.int64)), (cause, np.array(sorted(set(roots)), np.int64)))
    )
    names = [record_place(*places_of(plan)[root], ()) for root in sorted(set(roots))]
    expected = [] if error == "ValueError" else [(name, cause) for name in names]
    assert [tuple(record) for record in isolated_records(outcome, ())] == expected
    assert isolated_counts(outcome) == ({error: len(expected)} if expected else {})


@given(
    st.integers(0, 6), st.integers(0, 6), st.booleans(), st.integers(0, 1 << 40),
    st.integers(0, 400) | st.just(RECORD_BYTES_MAX),
)  # fmt: skip
def test_headers_of_acks_name_the_first_roots_as_far_as_the_record_has_room(
    copies: int, traced: int, has_late: bool, time_ms: int, room: int
) -> None:
    source, block = source_of(1, 0), 0
    positions = np.arange(6, dtype=np.int64)
    ids = np.arange(18, dtype=np.int64).reshape(6, 3)
    key = (source, block)
    note = TooLate("q", "c", 1, False, 1, 2, 3, 4, (), (), ())
    first_copies, first_traced = positions[:copies], positions[:traced]
    emitted = RootMarks.of_roots(
        RootMark.FIRST_EMITTED, roots_of(source, first_copies), first_copies + time_ms
    )
    of_traces = RootMarks.of_traces(roots_of(source, first_traced), ids[:traced])
    publication = Publication(
        (), (),
        marks={RootMark.FIRST_EMITTED: {key: emitted}, RootMark.TRACED: {key: of_traces}},
        too_late={key: note} if has_late else {},
    )  # fmt: skip
    record = Acks("lane", 1, "g", "s", 1, source, block, (), b"", b"", (), b"", 0)
    headers = ack_headers(record, publication, RECORD_BYTES_MAX - room)
    left = room
    expected: list[object] = []
    if has_late:
        expected.append(too_late_header(note))
        left -= len(too_late_header(note)[1] or b"")
    for name, count, size in ((FIRST_EMISSIONS, copies, FIRST_EMISSION_BYTES), (TRACES, traced, TRACE_BYTES)):
        fitting = max(0, min(count, left // size))
        left -= fitting * size
        values = positions[:fitting] + time_ms if name == FIRST_EMISSIONS else ids[:fitting]
        if fitting:
            expected.append((name, pack_root_numbers(source, positions[:fitting], values)))
    assert list(headers) == expected


@given(plans_with_roots(), st.integers(1, 7))
def test_each_block_of_a_publication_is_one_record_in_the_partition_of_its_acker(
    drawn: tuple[BatchPlan, list[int]], partitions: int
) -> None:
    plan, failed = drawn
    failures = ((Cause("b", "E", "m"), np.unique(np.array(failed, np.int64))),) if failed else ()
    publication = publication_of(outcome_from(plan, failures), BatchLane("query/s", 3))
    topics = AckTopics.with_prefix("")

    records = ack_records(publication, topics, partitions)

    for written, events, topic in (
        (records.fails, publication.fails, topics.fail),
        (records.acks, publication.acks, topics.ack),
    ):
        assert [wire_codec().decode(record.value) for record in written] == list(events)
        for record, event in zip(written, events, strict=True):
            assert isinstance(event, Acks | Fails)
            first_position = event.block << WIRE_BLOCK_BITS
            assert record.topic == topic
            assert record.partition == acker_partition(event.source, first_position, partitions)


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**40)), max_size=8))
def test_what_is_outstanding_behind_a_keyed_bolt_is_marked_with_its_edges(
    tuples: list[tuple[int, int]],
) -> None:
    """A root's number is the edge of its anchor, from which the tuple's edge is made."""
    rows = np.array(tuples, np.int64).reshape(-1, 2)
    report = task_report("op", "", outstanding={(KEY,): rows})

    marked = report_behind_keyed(report)

    marks = marked.marks.of(RootMark.OUTSTANDING)
    edges = [child_edge(number % 2**64, KEY, ordinal) for number, ordinal in tuples]
    assert not marked.outstanding
    assert (marks.sources == NUMBERED).all()
    assert sorted(zip(marks.positions.tolist(), marks.values.astype(np.uint64).tolist(), strict=True)) == (
        sorted(zip([number for number, _ in tuples], edges, strict=True))
    )
