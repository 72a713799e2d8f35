"""One sink for several queries, and for several runs of a query: each run is written by its own plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from spout.publishing.report_accumulator import QUERY_PROPERTY, RUN_PROPERTY, BatchReports
from spout.publishing.watermarks import NOTHING_DROPPED, Dropped
from spout.sinks import foreach_batch
from spout.sinks.foreach_batch import RunPlan, Sink


@dataclass
class Queries:
    """Several queries of one application, without Spark, and the plan that the present run of each has.

    Attributes:
        plans: the plan of each query's present run.
        analysed: of which queries the plan was looked at.
        shuffled: of which queries it was looked whether a batch was shuffled, once for each such batch.
        dropped: for which queries it was asked what a watermark dropped, and behind which holds.
        forgotten: which batches the ledger forgot.
        sunk: the runs that are written by a sink.
    """

    plans: dict[str, RunPlan] = field(default_factory=dict)
    analysed: list[str] = field(default_factory=list)
    shuffled: list[str] = field(default_factory=list)
    dropped: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    forgotten: list[tuple[str, int]] = field(default_factory=list)
    sunk: set[str] = field(default_factory=set)

    def application(self) -> Any:
        """Return an application in which tasks of each batch report, and nothing is to be published."""
        reported = count()
        ledger = SimpleNamespace(
            forget=lambda query, batch: self.forgotten.append((query, batch)),
            count=lambda _query, _batch: next(reported),
        )
        nothing = BatchReports(frozenset(), (), has_untracked=False)
        return SimpleNamespace(
            ledger=ledger, sunk=self.sunk, streams={}, reports=lambda _query, _batch: nothing
        )

    def rows_of(self, query: str, run: str) -> Any:
        """Return the rows of a batch of a run."""
        properties = {QUERY_PROPERTY: query, RUN_PROPERTY: run}
        context = SimpleNamespace(getLocalProperty=properties.get)
        return SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context), columns=())

    def running(self, _session: object, query: str) -> Any:
        """Return the execution of a query; its executed plan is the query's name."""
        last = SimpleNamespace(executedPlan=lambda: query)
        return SimpleNamespace(
            query=query, analyzedPlan=lambda: self.analyse(query), lastExecution=lambda: last
        )

    def analyse(self, query: str) -> RunPlan:
        """Return the plan of the present run."""
        self.analysed.append(query)
        return self.plans[query]

    def crosses_stages(self, executed_plan: str) -> bool:
        """Return that a batch was not shuffled, and note that somebody looked."""
        self.shuffled.append(executed_plan)
        return False

    def dropped_rows(self, execution: Any, holds: tuple[str, ...]) -> Dropped:
        """Return that nothing was dropped, and note that somebody asked."""
        self.dropped.append((execution.query, holds))
        return NOTHING_DROPPED


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> Queries:
    """Let a sink write batches without Spark, and note by which plan it does."""
    made = Queries()
    application = made.application()
    monkeypatch.setattr(foreach_batch, "Application", SimpleNamespace(of=lambda _session: application))
    monkeypatch.setattr(foreach_batch, "execution_of_running_query", made.running)
    monkeypatch.setattr(foreach_batch, "refuse_query", lambda _plan: None)
    monkeypatch.setattr(foreach_batch, "log_unfit_rules_of", lambda _plan, _application: None)
    monkeypatch.setattr(foreach_batch, "may_shuffle", lambda plan: plan.may_shuffle)
    monkeypatch.setattr(
        foreach_batch, "hold_name_of_each_watermark", lambda plan: plan.hold_name_of_each_watermark
    )
    monkeypatch.setattr(foreach_batch, "jobs_of", lambda _context, _run: ())
    monkeypatch.setattr(foreach_batch, "crosses_stages", made.crosses_stages)
    monkeypatch.setattr(foreach_batch, "dropped_rows", made.dropped_rows)
    return made


NARROW, WIDE, HOLDING = RunPlan(), RunPlan(may_shuffle=True), RunPlan(hold_name_of_each_watermark=("wait",))


@pytest.mark.parametrize(
    "runs",
    [
        pytest.param([("p", "p1", NARROW), ("q", "q1", WIDE)], id="two queries"),
        pytest.param([("p", "p1", WIDE), ("p", "p2", NARROW)], id="a query that is started again"),
        pytest.param([("p", "p1", NARROW), ("p", "p2", WIDE)], id="one that shuffles from now on"),
        pytest.param([("p", "p1", NARROW), ("p", "p2", HOLDING), ("p", "p3", WIDE)], id="again and again"),
        pytest.param(
            [("p", "p1", NARROW), ("q", "q1", HOLDING), ("p", "p2", WIDE), ("q", "q2", NARROW)],
            id="two that are both started again",
        ),
    ],
)
def test_a_run_is_written_by_its_own_plan(queries: Queries, runs: list[tuple[str, str, RunPlan]]) -> None:
    """Between two runs somebody may have changed the query: rows behind a new shuffle would count unread."""
    written: list[int] = []
    sink = Sink(lambda _batch, batch_id: written.append(batch_id))
    batches: list[tuple[str, RunPlan]] = []
    for query, run, plan in runs:
        queries.plans[query] = plan
        for batch in range(2):
            sink(queries.rows_of(query, run), batch)
            batches.append((query, plan))
    assert queries.shuffled == [query for query, plan in batches if plan.may_shuffle]
    assert queries.dropped == [
        (query, plan.hold_name_of_each_watermark)
        for query, plan in batches
        if plan.hold_name_of_each_watermark
    ]
    assert queries.analysed == [query for query, _, _ in runs], "once for each run, not for each batch"
    assert queries.sunk == {run for _, run, _ in runs}
    assert written == [0, 1] * len(runs)
    assert queries.forgotten == [(query, batch) for query, _, _ in runs for batch in range(2)]
