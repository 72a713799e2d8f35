"""What is published against the plainest model of the fold: every tuple an object, every edge computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from acker.config.settings import AckTopics
from acker.identity import child_edge, root_edge, subscription_key
from acker.wire.events import SourceRun
from spout.bolts.bolts import Bolt
from spout.bolts.collectors import OutputCollector
from spout.bolts.hooks import BoltContext
from spout.execution.stage_run import StageRun
from spout.planning.plan import BatchPlan
from spout.publishing.blob import decode, encode
from spout.publishing.fold import TaskReport
from spout.publishing.publish import BatchLane, ack_records, publication_of
from spout.publishing.settle import settle
from spout.topology.chain import Chain, Step
from spout.tuples.anchors import ORDINAL_BITS, AnchorForm, Anchors
from spout.tuples.rows import ArrowRows
from spout.tuples.tuple import Tuple
from tests.support.published import contributions, failed_roots
from tests.support.reports import failures_in, reported, task_report

SOURCE = 3 << 16 | 1
START = 32_766  # so that the roots lie in two blocks of the wire
OUTPUT = pa.schema([("number", pa.int64())])
ACTS = ("ack", "fail", "hold")


@dataclass(frozen=True, slots=True)
class Script:
    """What two bolts do: anchors of each emission of the first, and how each tuple is settled."""

    roots: int
    emissions: tuple[tuple[int, ...], ...]
    first: tuple[str, ...]
    second: tuple[str, ...]
    tasks: tuple[int, ...]


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    """Draw a history; most tuples are acked, so that whole trees are too."""
    roots = draw(st.integers(1, 6))
    act = st.sampled_from(("ack",) * 6 + ACTS)
    emissions = draw(st.lists(st.lists(st.integers(0, roots - 1), max_size=3, unique=True), max_size=10))
    return Script(
        roots,
        tuple(tuple(anchors) for anchors in emissions),
        tuple(draw(act) for _ in range(roots)),
        tuple(draw(act) for _ in emissions),
        tuple(draw(st.integers(0, 2)) for _ in emissions),
    )


class Scripted(Bolt):
    """Does with the tuples of a task, when all are there, what a script says."""

    output = "value string"

    def __init__(self, acts: Sequence[str], emissions: Sequence[Sequence[int]] = ()) -> None:
        self._acts = acts
        self._emissions = emissions

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Begin without tuples."""
        self._collector = collector
        self._held: dict[int, Tuple] = {}

    def execute(self, tuple: Tuple) -> None:
        """Wait for the others."""
        self._held[tuple["number"]] = tuple

    def cleanup(self) -> None:
        """Emit and settle as the script says."""
        for number, anchors in enumerate(self._emissions):
            self._collector.emit([number], anchors=[self._held[anchor] for anchor in anchors])
        for number, held in self._held.items():
            if self._acts[number] == "ack":
                self._collector.ack(held)
            elif self._acts[number] == "fail":
                self._collector.fail(held, f"{number}")


@dataclass(slots=True)
class Model:
    """Every tuple with its edge for each root; the value of each root by definition."""

    value: dict[int, int] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    complete: set[int] = field(default_factory=set)


def modelled(script: Script, hops: Sequence[int]) -> Model:
    """Fold a history tuple by tuple: an acked one contributes its edge and those of its children."""
    model = Model(value=dict.fromkeys(range(script.roots), 0))
    edge = {root: root_edge(SOURCE, START + root) for root in range(script.roots)}
    children: dict[int, list[int]] = {root: [] for root in edge}
    open_: set[int] = {root for root in edge if script.first[root] == "hold"}
    for number, anchors in enumerate(script.emissions):
        for root in anchors:
            born = child_edge(edge[root], hops[0], len(children[root]))
            children[root].append(born)
            if script.second[number] == "ack":
                model.value[root] ^= born
            elif script.second[number] == "fail":
                model.failed.add(root)
            else:
                open_.add(root)
    for root in edge:
        if script.first[root] == "ack":
            model.value[root] ^= edge[root]
            for born in children[root]:
                model.value[root] ^= born
        elif script.first[root] == "fail":
            model.failed.add(root)
    model.complete = set(edge) - model.failed - open_
    return model


def performed(script: Script, plan: BatchPlan) -> tuple[list[TaskReport], Chain]:
    """Run the real passes over a history: one read task, and up to three tasks behind a grouping."""
    first = Chain(
        (Step("one", Scripted(script.first, script.emissions), OUTPUT),),
        consumer="two",
        arriving_form=AnchorForm.PACKED,
        leaving_form=AnchorForm.HOPS,
    )
    second = Chain(
        (Step("two", Scripted(script.second), OUTPUT),),
        upstream="one",
        arriving_form=AnchorForm.HOPS,
    )
    run = StageRun(first.stage, BoltContext("one", 0, 5))
    numbers = pa.RecordBatch.from_pydict({"number": list(range(script.roots))})
    indices = pa.array(np.arange(script.roots) << ORDINAL_BITS)
    emitted = [run.feed(ArrowRows(numbers), Anchors(AnchorForm.PACKED, indices)), *run.finish()]
    rows = pa.Table.from_batches(emitted).combine_chunks().to_batches()
    read = run.report()
    reports = [_with_plan(read, plan)]
    for task in range(3):
        here = StageRun(second.stage, BoltContext("two", task, 5))
        for batch in rows:
            mine = pa.array(
                [script.tasks[number] == task for number in batch.column(0).to_pylist()], pa.bool_()
            )
            share = batch.filter(mine)
            anchors = Anchors(AnchorForm.HOPS, share.column(1))
            here.feed(ArrowRows(share.select([0])), anchors)
        here.finish()
        reports.append(here.report())
    evaluated = [reported(min(n, 1), n, n, decode(encode(report))) for n, report in enumerate(reports)]
    return evaluated, first


def _with_plan(report: TaskReport, plan: BatchPlan) -> TaskReport:
    return task_report(
        operator=report.operator,
        consumer=report.consumer,
        plan=plan,
        ranges=plan.ranges,
        failures=failures_in(report),
        outstanding=report.outstanding,
        sent_fingerprint=report.sent_fingerprint,
    )


@settings(max_examples=150, deadline=None)
@given(scripts())
def test_what_is_published_is_the_fold_of_what_was_acked(script: Script) -> None:
    """S26, S28, S76, P48, S166: complete if, and only if, all was received and acked and nothing failed."""
    plan = BatchPlan("g", "s", 1, 4, 77, 30_000, True, (SourceRun(SOURCE, START, START + script.roots),))
    evaluated, _ = performed(script, plan)
    publication = publication_of(settle(evaluated, (), lambda stage: None), BatchLane("q/s", 5))
    model = modelled(script, [subscription_key("one", "default", "two")])
    folded = contributions(publication, SOURCE, START)
    assert failed_roots(publication, START) == model.failed
    assert folded == {
        root: value for root, value in model.value.items() if value and root not in model.failed
    }
    complete = {root for root, value in folded.items() if value == root_edge(SOURCE, START + root)}
    assert complete == model.complete


@settings(max_examples=60, deadline=None)
@given(scripts(), st.randoms(use_true_random=False))
def test_the_records_do_not_depend_on_the_order_in_which_tasks_reported(
    script: Script,
    random: st.randoms,  # type: ignore[valid-type]
) -> None:
    """P56: a batch that is run again is recognised by its bytes."""
    plan = BatchPlan("g", "s", 1, 4, 77, 30_000, True, (SourceRun(SOURCE, START, START + script.roots),))
    evaluated, _ = performed(script, plan)
    shuffled = list(evaluated)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    lane = BatchLane("q/s", 5)
    topics = AckTopics.with_prefix("")
    expected, records = (
        ack_records(publication_of(settle(reports, (), lambda stage: None), lane), topics, plan.partitions)
        for reports in (evaluated, shuffled)
    )
    assert records == expected
