"""What stands in the records of a batch, over drawn plans: each root once, each at its place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from acker.identity import WIRE_BLOCK_BITS, child_edge, root_edge, source_of
from acker.wire.events import SourceRun
from acker.wire.passed_calls import (
    CALLS_MAX,
    RUNS_MAX,
    PassedCall,
    PassedCalls,
    passed_calls_header,
    read_passed_calls,
)
from spout.planning.plan import BatchPlan
from spout.publishing.delayed import by_key
from spout.publishing.fold import (
    BatchOutcome,
    Subscriptions,
    TaskReport,
    failures_of,
    merged,
    not_done,
    outstanding_of,
    plan_root_edges,
    residuals,
)
from spout.publishing.publish import CAUSES_MAX, held_runs, merge_causes, skipped_outcome
from spout.tuples.failures import Cause
from spout.tuples.tuple import Delivery

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
    edges = plan_root_edges(plan, np.array(roots, np.int64)).tolist()
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
    indices, sums = residuals(plan, [outstanding_of(deliveries)])
    found = dict(zip(indices.tolist(), sums.tolist(), strict=True))
    assert found == {root: value for root, value in expected.items() if value}
    assert indices.tolist() == sorted(found)


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
        TaskReport(
            "bolt",
            failures=failures_of(some),
            outstanding=outstanding_of(Delivery(root, ((KEY, n),)) for root, n in others),
        )
        for some, others in pieces
    ]
    whole = merged(reports)
    found = [(root, cause) for cause, roots in whole.failures for root in roots.tolist()]
    assert sorted(found) == sorted(pairs)
    rows: dict[Subscriptions, list[list[int]]] = {
        path: values.tolist() for path, values in whole.outstanding.items()
    }
    assert sorted(map(tuple, rows.get((KEY,), []))) == sorted(left)
    assert not_done(whole).tolist() == sorted({root for root, _ in [*failed, *left]})


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
    runs = held_runs(BatchOutcome(plan, held=held))
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
    outcome = skipped_outcome(plan, absent)
    ((_, failed),) = outcome.failed
    assert failed.tolist() == [root for root in range(plan.count) if root not in roots]
    named = [(source, at) for source, start, end in outcome.absent for at in range(start, end)]
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
