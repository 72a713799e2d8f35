"""Rows that Spark's operators repeated, as explode does: each has an edge of its own, or two would cancel.

Then a root would be acked although both of its tuples are open.
"""

from __future__ import annotations

import os
from contextlib import closing
from functools import partial

import numpy as np
import pyarrow as pa
import pytest

import spout
from acker.wire.events import SourceRun
from spout.bolts.bolts import AnyBolt
from spout.execution.stage_run import StageRun, TaskRun
from spout.isolation.isolation import BLOCK_ROWS, IsolatedRun
from spout.planning.plan import BatchPlan
from spout.publishing.fold import TaskReport, outstanding_marks
from spout.publishing.root_marks import RootMark
from spout.topology.chain import Chain, Step
from spout.tuples.anchors import ORDINAL_BITS, AnchorForm, Anchors
from spout.tuples.rows import ArrowRows
from spout.tuples.tuple import Tuple
from tests.support.worlds.topology_world import SOURCE

WORD = pa.schema([("word", pa.string())])
PLAN = BatchPlan("g", "s", 1, 4, 77, 30_000, True, (SourceRun(SOURCE, 0, 8),))


class Leaves(spout.ArrowBolt):
    """Leaves rows open; ``exit`` ends its process."""

    output = "value string"

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> None:
        """Leave all open."""
        if "exit" in batch.column(0).to_pylist():
            os._exit(3)
        for row in range(batch.num_rows):
            collector.leave_open(row)


class Passes(spout.BasicBolt):
    """Emits what it gets; ``exit`` ends its process."""

    output = "value string"

    def execute(self, tuple: Tuple, collector: spout.BasicCollector) -> None:
        """Emit it."""
        if tuple["word"] == "exit":
            os._exit(3)
        collector.emit((tuple["word"],))


class Forgets(spout.Bolt):
    """Neither acks nor fails."""

    output = "value string"

    def prepare(self, context: spout.BoltContext, collector: spout.OutputCollector) -> None:
        """Need nothing."""

    def execute(self, tuple: Tuple) -> None:
        """Forget it."""


def begun(bolt: AnyBolt, task: int, *, child: bool = False, consumer: str = "") -> TaskRun:
    """Begin a task of a bolt behind Spark's operators, behind which is perhaps another one."""
    about = {"leaving_form": AnchorForm.HOPS, "consumer": consumer} if consumer else {}
    chain = Chain((Step("it", bolt, WORD),), arriving_form=AnchorForm.PACKED, subscriptions=(3,), **about)  # type: ignore[arg-type]  # two of them
    context = spout.BoltContext("it", task, 1)
    if child:
        return IsolatedRun(chain.stage, context, 0, partial(StageRun, context=context))
    return StageRun(chain.stage, context)


def fed(task: TaskRun, words: list[str], roots: list[int]) -> pa.RecordBatch:
    """Feed rows, each with its root."""
    anchors = Anchors(AnchorForm.PACKED, pa.array(np.array(roots) << ORDINAL_BITS))
    return task.feed(ArrowRows(pa.record_batch({"word": words})), anchors)


def reported(task: TaskRun) -> TaskReport:
    """Let a task end."""
    task.finish()
    return task.report()


def is_open(*reports: TaskReport) -> list[int]:
    """Return the roots that are open when these tasks have reported."""
    index = PLAN.index()
    lacking = outstanding_marks(index, reports).summed(RootMark.OPEN)
    roots: list[int] = index.find_roots(lacking.sources, lacking.positions).tolist()
    return roots


def test_rows_that_an_arrow_bolt_leaves_open_in_two_tasks_do_not_cancel() -> None:
    tasks = [begun(Leaves(), task) for task in range(2)]
    for task in tasks:
        fed(task, ["a"], [5])
    assert is_open(*map(reported, tasks)) == [5]


@pytest.mark.parametrize("batches", [[[5, 5]], [[5], [5]]])
@pytest.mark.parametrize("child", [False, True])
def test_rows_that_a_bolt_passes_on_do_not_cancel_where_the_next_one_leaves_both_open(
    batches: list[list[int]], child: bool
) -> None:
    before = begun(Passes(), 0, child=child, consumer="next")
    behind = StageRun(
        Chain((Step("next", Forgets(), WORD),), upstream="it", arriving_form=AnchorForm.HOPS).stage,
        spout.BoltContext("next", 0, 1),
    )
    for batch in batches:
        out = fed(before, ["a"] * len(batch), batch)
        behind.feed(ArrowRows(out.select(["word"])), Anchors(AnchorForm.HOPS, out.column(1)))
    if isinstance(before, IsolatedRun):
        before.close()
    assert is_open(reported(behind)) == [5]


def test_a_child_that_takes_the_place_of_another_counts_the_rows_on() -> None:
    """The rows of one root may come before and behind the row that ended the first child."""
    words, roots = ["a"] * (2 * BLOCK_ROWS), [5, *[1] * (2 * BLOCK_ROWS - 1)]
    words[1], roots[1] = "b", 2
    words[-1], roots[BLOCK_ROWS] = "exit", 5
    columns: list[pa.RecordBatch] = []
    for child in (False, True):
        task = begun(Passes(), 0, child=child, consumer="next")
        if isinstance(task, IsolatedRun):
            with closing(task):
                columns.append(fed(task, words, roots))
        else:
            columns.append(fed(task, [*words[:-1], "a"], roots).slice(0, len(words) - 1))
    assert columns[0].column(1).equals(columns[1].column(1))
