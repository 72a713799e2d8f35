"""Publication: canonical records, one for each block, in the order that the ackers need."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acker.config.settings import longest_unreachable_ms
from acker.config.topics import AckTopics, parse
from acker.errors import Unreachable
from acker.identity import WIRE_BLOCK_BITS, Source, acker_partition, copies_source, root_edge
from acker.kafka.port import TopicPartition, record_bytes
from acker.root_sets.root_set import RootSet
from acker.wire.causes import TEXT_BYTES_MAX
from acker.wire.codec import RECORD_BYTES_MAX, wire_codec
from acker.wire.events import (
    FIRST_EMISSIONS,
    TRACES,
    Acks,
    Fails,
    SourceRun,
    first_emissions,
    positions,
    values,
)
from acker.wire.events import traces as traces_in
from spout.group.announce import Announcer
from spout.planning.plan import BatchPlan
from spout.planning.session import SessionName
from spout.publishing.delayed import RootPositions
from spout.publishing.fold import BatchOutcome
from spout.publishing.publish import (
    CAUSES_MAX,
    BatchLane,
    Publisher,
    ack_headers,
    merge_causes,
    publication_of,
    skipped_outcome,
)
from spout.publishing.root_marks import RootMark, RootMarks
from spout.tuples.failures import Cause
from tests.support.cpu_time import within
from tests.support.memory.cluster import MemoryCluster
from tests.support.outcomes import outcome_from, plan_root_edges

A, B = 1 << 16, 1 << 16 | 1
BLOCK = 1 << WIRE_BLOCK_BITS
LANE = BatchLane("q/s", 3)
BAD = Cause("split", "ValueError", "bad")


def plan_of(*ranges: SourceRun) -> BatchPlan:
    """Make a plan of ranges."""
    return BatchPlan("g", "s", 2, 4, 77, 30_000, True, ranges)


def indices(*roots: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Make an array of indices into a plan."""
    return np.array(roots, np.int64)


def test_a_batch_that_all_succeeded_is_runs_and_nothing_else() -> None:
    """Rule 5: one record for each block, and every position of the plan in one run."""
    publication = publication_of(outcome_from(plan_of(SourceRun(A, 5, BLOCK + 9), SourceRun(B, 1, 4))), LANE)
    assert publication.fails == ()
    assert [(r.source, r.block, r.runs) for r in publication.acks] == [
        (A, 0, ((5, BLOCK),)),
        (A, 1, ((BLOCK, BLOCK + 9),)),
        (B, 0, ((1, 4),)),
    ]
    first = publication.acks[0]
    assert (first.lane, first.seq, first.group, first.session, first.epoch) == ("q/s", 3, "g", "s", 2)
    assert (first.positions, first.absent, first.touched, first.touched_at) == (b"", (), b"", 77)


def test_failed_roots_are_left_out_of_the_acks() -> None:
    """Rule 4."""
    plan = plan_of(SourceRun(A, 10, 20))
    publication = publication_of(outcome_from(plan, ((BAD, indices(0, 4, 5)),)), LANE)
    assert [c.operator for c in publication.fails[0].causes] == ["split"]
    assert positions(publication.fails[0].causes[0].positions).tolist() == [10, 14, 15]
    assert publication.acks[0].runs == ((11, 14), (16, 20))


def test_a_block_of_which_all_failed_has_no_acks() -> None:
    publication = publication_of(skipped_outcome(plan_of(SourceRun(A, 10, 20))), LANE)
    assert publication.acks == ()
    assert publication.fails[0].causes[0].error == "BATCH_SKIPPED"
    assert len(positions(publication.fails[0].causes[0].positions)) == 10


def test_a_skipped_batch_fails_what_has_a_record_and_nothing_else() -> None:
    plan = plan_of(SourceRun(A, 10, 14), SourceRun(B, 3, 6))
    publication = publication_of(skipped_outcome(plan, RootSet.of_runs([(B, 4, 5)])), LANE)
    assert [positions(f.causes[0].positions).tolist() for f in publication.fails] == [
        [10, 11, 12, 13],
        [3, 5],
    ]
    assert [(r.source, r.runs, r.absent) for r in publication.acks] == [(B, (), ((4, 5),))]


def test_a_skipped_batch_whose_records_leave_the_log_between_two_evaluations_is_canonical() -> None:
    """Each evaluation reports what it did not find; what any of them missed is absent, named once."""
    plan = plan_of(SourceRun(A, 10, 20))
    holes = [SourceRun(A, 10, 13), SourceRun(A, 10, 15), SourceRun(A, 16, 17)]
    [record] = publication_of(skipped_outcome(plan, RootSet.of_runs(holes)), LANE).acks
    assert record.absent == ((10, 15), (16, 17))


def test_a_root_that_failed_before_it_left_the_log_is_lost_and_not_absent() -> None:
    """It failed in the first evaluation of the batch; the second did not find it any more."""
    plan = plan_of(SourceRun(A, 10, 20))
    publication = publication_of(outcome_from(plan, ((BAD, indices(3)),), (SourceRun(A, 10, 15),)), LANE)
    assert positions(publication.fails[0].causes[0].positions).tolist() == [13]
    assert (publication.acks[0].absent, publication.acks[0].runs) == (((10, 13), (14, 15)), ((15, 20),))


def test_open_roots_get_their_partial_value_and_holes_are_absent() -> None:
    plan = plan_of(SourceRun(A, 10, 20))
    residual = np.array([7, root_edge(A, 16)], np.uint64)
    outcome = outcome_from(
        plan, (), (SourceRun(A, 12, 13), SourceRun(A, 13, 14)), indices(1, 6), residual, indices(1, 2)
    )
    [record] = publication_of(outcome, LANE).acks
    assert record.runs == ((10, 11), (14, 16), (17, 20))
    assert positions(record.positions).tolist() == [11]  # 16 got nothing at all: its value is 0
    assert values(record.values).tolist() == [root_edge(A, 11) ^ 7]
    assert record.absent == ((12, 14),)
    assert positions(record.touched).tolist() == [11]


def test_ranges_of_one_block_share_a_record() -> None:
    plan = plan_of(SourceRun(A, 10, 12), SourceRun(A, 14, 15), SourceRun(A, 15, 16))
    assert [r.runs for r in publication_of(outcome_from(plan), LANE).acks] == [((10, 12), (14, 16))]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_every_position_of_a_plan_is_named_once(data: st.DataObject) -> None:
    """And every record is canonical: ascending, disjoint, joined, inside its block."""
    edges = sorted(data.draw(st.sets(st.integers(BLOCK - 30, BLOCK + 30), min_size=2, max_size=8)))
    runs = [SourceRun(A, s, e) for s, e in zip(edges[::2], edges[1::2], strict=False)]
    plan = plan_of(*runs)
    kind = data.draw(st.lists(st.sampled_from("rrrrfpa"), min_size=plan.count, max_size=plan.count))
    at = [position for run in runs for position in range(run.start, run.end)]
    of = {k: indices(*(i for i, each in enumerate(kind) if each == k)) for k in "fpa"}
    absent = tuple(SourceRun(A, at[i], at[i] + 1) for i in of["a"].tolist())
    outcome = outcome_from(
        plan, ((BAD, of["f"]),), absent, of["p"], np.full(len(of["p"]), 5, np.uint64), of["p"]
    )
    publication = publication_of(outcome, LANE)
    said: dict[int, str] = {}
    for record in publication.acks:
        parts = {"r": record.runs, "a": record.absent}
        for letter, listed in parts.items():
            assert all(start < end for start, end in listed)
            assert all(one.end < two.start for one, two in itertools.pairwise(listed))
            said |= {p: letter for run in listed for p in range(*run)}
        packed = positions(record.positions).tolist()
        assert packed == sorted(set(packed))
        said |= dict.fromkeys(packed, "p")
    for fails in publication.fails:
        said |= {p: "f" for cause in fails.causes for p in positions(cause.positions).tolist()}
    assert said == dict(zip(at, kind, strict=True))
    written: list[Acks | Fails] = [*publication.acks, *publication.fails]
    for record in written:
        assert all(p >> WIRE_BLOCK_BITS == record.block for p in _named(record))


def _named(record: Acks | Fails) -> list[int]:
    if isinstance(record, Fails):
        return [p for cause in record.causes for p in positions(cause.positions).tolist()]
    ends = [p for run in (*record.runs, *record.absent) for p in (run.start, run.end - 1)]
    return [*ends, *positions(record.positions).tolist()]


def test_more_causes_than_a_record_holds_share_entries() -> None:
    causes = [(Cause("split", "ValueError", f"line {n:04}"), indices(n)) for n in range(1_000)]
    causes += [(Cause("count", "KeyError", "k"), indices(5_000))]
    merged = merge_causes(causes)
    assert len(merged) <= CAUSES_MAX
    assert merged == sorted(merged, key=lambda pair: pair[0])
    assert sorted(p for _, roots in merged for p in roots.tolist()) == [*range(1_000), 5_000]
    shared = [cause for cause, _ in merged if cause.message.startswith("and ")]
    assert [cause.message for cause in shared] == ["and 872 more, first: line 0127"]
    assert (Cause("count", "KeyError", "k"), [5_000]) in [(c, r.tolist()) for c, r in merged]


def test_more_kinds_of_causes_than_entries_share_one() -> None:
    causes = [(Cause(f"bolt{n:04}", "E", "m"), indices(n)) for n in range(300)]
    [(cause, roots)] = merge_causes(causes)
    assert (cause, len(roots)) == (Cause("bolt0000", "E", "and 299 more, first: m"), 300)


@pytest.mark.parametrize("kind", ["partial", "failed", "scattered"])
def test_the_largest_record_of_a_block_stays_below_the_brokers_limit(kind: str) -> None:
    """Wire: below 900,000 bytes whatever happens to the 32,768 roots of a block."""
    start = (3 << 48) + BLOCK * 12_345
    plan = plan_of(SourceRun(A, start, start + BLOCK))
    every = np.arange(BLOCK)
    if kind == "partial":
        outcome = outcome_from(plan, (), (), every, np.full(BLOCK, 5, np.uint64), every)
    elif kind == "failed":
        message = "é" * (TEXT_BYTES_MAX // 2)
        causes = [(Cause("b" * 50, "E" * 50, f"{n:04}{message}"[:250]), every[n::400]) for n in range(400)]
        outcome = outcome_from(plan, tuple(causes))
    else:
        absent = tuple(SourceRun(A, start + n, start + n + 1) for n in range(0, BLOCK, 4))
        odd = every[2::4]
        outcome = outcome_from(plan, (), absent, odd, np.full(len(odd), 5, np.uint64), odd)
    codec = wire_codec()
    publication = publication_of(outcome, LANE)
    assert max(len(codec.encode(r)) for r in (*publication.acks, *publication.fails)) < RECORD_BYTES_MAX


def test_a_million_roots_are_published_in_time() -> None:
    """The driver must not become what limits the rate: the work is a record for each block."""
    blocks = range(1_000 // BLOCK, -(-251_000 // BLOCK))
    outcome = outcome_from(plan_of(*(SourceRun(A + p, 1_000, 251_000) for p in range(4))))
    codec = wire_codec()
    with within(cpu_seconds=1):
        publication = publication_of(outcome, LANE)
        sizes = [len(codec.encode(record)) for record in publication.acks]
    assert len(sizes) <= 4 * len(blocks)
    assert sum(sizes) < 10_000


def topics() -> AckTopics:
    """Return the names of the ack topics."""
    text = "inputs: {sentences: {id: 1, group: g}}"
    return parse(text, file="topics.yaml", environ={}).ack_topics


def test_the_fails_are_durable_before_the_acks_are_sent() -> None:
    """Section 4, order (a)."""
    cluster = MemoryCluster()
    for name in (topics().ack, topics().fail):
        cluster.create_topic(name, 4)
    publisher = Publisher(cluster.log, topics())
    plan = plan_of(SourceRun(A, 10, 20))
    publisher.publish(publication_of(outcome_from(plan, ((BAD, indices(0)),)), LANE), 4)
    partition = acker_partition(A, 10, 4)
    reader = cluster.log().reader(committed=True)
    found = {}
    for topic in (topics().fail, topics().ack):
        reader.assign({TopicPartition(topic, partition): 0})
        found[topic] = [wire_codec().decode(record.value) for record in reader.poll(1_000)]
    assert [type(each) for each in found[topics().fail]] == [Fails]
    assert [type(each) for each in found[topics().ack]] == [Acks]
    publisher.close()


def headers_of(outcome: BatchOutcome) -> dict[tuple[int, int], dict[int, int]]:
    """Publish, and return by source and block which positions were emitted first when, as the records say."""
    cluster = MemoryCluster()
    for name in (topics().ack, topics().fail):
        cluster.create_topic(name, 1)
    publisher = Publisher(cluster.log, topics())
    publisher.publish(publication_of(outcome, LANE), 1)
    publisher.close()
    reader = cluster.log().reader(committed=True)
    reader.assign({TopicPartition(topics().ack, 0): 0})
    found = {}
    for record in reader.poll(1_000):
        acks = wire_codec().decode(record.value)
        assert isinstance(acks, Acks)
        for name, value in record.headers:
            header = first_emissions(value)
            assert (name, header is not None) == (FIRST_EMISSIONS, True)
            source, at, wall_ms = header or (0, indices(), indices())
            assert source == acks.source
            assert record_bytes(record) < RECORD_BYTES_MAX + 1_000
            found[source, acks.block] = dict(zip(at.tolist(), wall_ms.tolist(), strict=True))
    return found


def test_acks_of_copies_say_when_their_records_were_emitted_first() -> None:
    """By block, and not of those that the batch fails: they have another attempt."""
    copies = copies_source(Source(A))
    plan = plan_of(SourceRun(A, 10, 20), SourceRun(copies, BLOCK - 2, BLOCK + 3))
    at = indices(BLOCK - 2, BLOCK - 1, BLOCK, BLOCK + 1)
    firsts = RootMarks.of_roots(
        RootMark.FIRST_EMITTED, RootPositions(np.full(4, copies), at), indices(50, 60, 70, 80)
    )
    assert headers_of(outcome_from(plan, ((BAD, indices(0, 12)),), firsts=firsts)) == {
        (copies, 0): {BLOCK - 2: 50, BLOCK - 1: 60},
        (copies, 1): {BLOCK + 1: 80},
    }
    assert headers_of(outcome_from(plan)) == {}


def test_a_record_says_so_of_as_many_copies_as_it_has_room_for() -> None:
    copies = copies_source(Source(A))
    every = np.arange(BLOCK)
    firsts = RootMarks.of_roots(RootMark.FIRST_EMITTED, RootPositions(np.full(BLOCK, copies), every), every)
    plan = plan_of(SourceRun(copies, 0, BLOCK))
    held = outcome_from(plan, (), (), every, np.full(BLOCK, 5, np.uint64), every, firsts=firsts)
    [(_, some_of_them)] = headers_of(held).items()
    assert 0 < len(some_of_them) < BLOCK
    [(_, all_of_them)] = headers_of(outcome_from(plan, firsts=firsts)).items()
    assert len(all_of_them) == BLOCK


def test_acks_say_to_which_traces_roots_belong_also_where_all_of_them_are_held() -> None:
    """Beside the emission times of copies, and in what room those leave."""
    copies = copies_source(Source(A))
    plan = plan_of(SourceRun(A, 10, 12), SourceRun(copies, 0, BLOCK))
    every = np.arange(BLOCK)
    places = RootPositions(np.full(BLOCK, copies), every)
    of_root = RootPositions(np.array([A]), np.array([11]))
    traces = RootMarks.of_traces(
        RootPositions.together([of_root, places]), np.arange(3 * (BLOCK + 1)).reshape(-1, 3)
    )
    firsts = RootMarks.of_roots(RootMark.FIRST_EMITTED, places, every)
    at = indices(0, 1)
    outcome = outcome_from(plan, partial=at, residual=plan_root_edges(plan, at), firsts=firsts, traces=traces)
    publication = publication_of(outcome, LANE)
    held, whole = publication.acks
    assert (held.source, held.runs, held.positions) == (A, (), b"")
    [(name, value)] = ack_headers(held, publication, 100)
    assert name == TRACES
    found = traces_in(value)
    assert found is not None
    source, at, ids = found
    assert (source, at.tolist(), ids.tolist()) == (A, [11], [[0, 1, 2]])
    (_, times), (name, value) = ack_headers(whole, publication, 100)
    found = traces_in(value)
    assert found is not None
    source, at, ids = found
    assert (name, source) == (TRACES, copies)
    assert 0 < len(at) == len(ids) < BLOCK
    assert RECORD_BYTES_MAX - 200 < len(times or b"") + len(value or b"") < RECORD_BYTES_MAX


@pytest.mark.parametrize("value", [None, b"", b"x" * 31, b"x" * 32, b"x" * 24])
def test_what_is_no_header_of_traces_is_passed_over(value: bytes | None) -> None:
    assert traces_in(value) is None


class StuckProducer:
    """A producer whose records never become durable."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def send(self, record: object) -> None:
        """Keep the topic's name."""
        self.sent.append(str(getattr(record, "topic", "")))

    def flush(self, timeout_ms: int) -> None:
        """Say that nothing became durable."""
        raise Unreachable("no broker")

    def close(self) -> None:
        """Leave."""


def test_no_ack_is_sent_before_the_fails_are_durable() -> None:
    producer = StuckProducer()

    class StuckLog:
        def producer(self) -> StuckProducer:
            return producer

    publisher = Publisher(StuckLog, topics())  # type: ignore[arg-type, return-value]
    plan = plan_of(SourceRun(A, 10, 20))
    with pytest.raises(Unreachable):
        publisher.publish(publication_of(outcome_from(plan, ((BAD, indices(0)),)), LANE), 4)
    assert producer.sent == [topics().fail]


def test_a_query_waits_for_the_broker_for_as_long_as_its_inputs_say() -> None:
    """The loss of one broker of three is an outage of writes for some of its partitions, 14 s and more."""
    text = "inputs: {a: {id: 1, group: g, unreachable: 40s}, b: {id: 2, group: g, unreachable: 90s}}"
    found = parse(text, file="topics.yaml", environ={})
    waited: list[int] = []

    class Counting(StuckProducer):
        def flush(self, timeout_ms: int) -> None:
            waited.append(timeout_ms)

    class CountingLog:
        def producer(self) -> Counting:
            return Counting()

        def cluster_id(self) -> str:
            return ""

    durable_ms = longest_unreachable_ms(found.inputs_of("g"))
    log: Any = CountingLog
    plan = plan_of(SourceRun(A, 10, 20))
    outcome = publication_of(outcome_from(plan, ((BAD, indices(0)),)), LANE)
    Publisher(log, topics(), durable_ms=durable_ms).publish(outcome, 4)
    Announcer(log(), topics(), "g", 4, durable_ms=durable_ms).send_tick(SessionName(1, "s"), 5, [0])

    assert waited == [90_000] * 3
    assert parse("inputs: {a: {id: 1, group: g}}", file="", environ={}).input("a").unreachable_ms == 300_000
