"""One sink for several queries, and for several runs of a query: each run is written by its own plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from spout.publishing.ledger import QUERY_PROPERTY, RUN_PROPERTY
from spout.publishing.watermarks import NOTHING_DROPPED
from spout.sinks import foreach_batch
from spout.sinks.foreach_batch import Ran, RunPlan, Sink


@dataclass
class Queries:
    """Several queries of one application, and the plan that the present run of each has.

    Attributes:
        plans: the plan of each query's present run.
        analysed: of which queries a plan was looked at.
        used: the plans by which batches were written, by query.
        forgotten: which batches the ledger forgot.
    """

    plans: dict[str, RunPlan] = field(default_factory=dict)
    analysed: list[str] = field(default_factory=list)
    used: list[tuple[str, RunPlan]] = field(default_factory=list)
    forgotten: list[tuple[str, int]] = field(default_factory=list)
    sunk: set[str] = field(default_factory=set)

    def rows_of(self, query: str, run: str) -> Any:
        """Return the rows of a batch of a run."""
        properties = {QUERY_PROPERTY: query, RUN_PROPERTY: run}
        context = SimpleNamespace(getLocalProperty=properties.get)
        return SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))

    def running(self, _session: object, query: str) -> Any:
        """Return the execution of a query."""
        self.analysed.append(query)
        return SimpleNamespace(analyzedPlan=lambda: self.plans[query])

    def forget(self, query: str, batch: int) -> None:
        """Note that the ledger forgets a batch."""
        self.forgotten.append((query, batch))


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> Queries:
    """Let a sink write batches without Spark, and keep by which plan it did."""
    made = Queries()
    application = SimpleNamespace(ledger=SimpleNamespace(forget=made.forget), sunk=made.sunk)
    monkeypatch.setattr(foreach_batch, "Application", SimpleNamespace(of=lambda _session: application))
    monkeypatch.setattr(foreach_batch, "running", made.running)
    monkeypatch.setattr(foreach_batch, "refuse_query", lambda _plan: None)
    monkeypatch.setattr(foreach_batch, "name_unfit_rules_of", lambda _plan, _application: None)
    monkeypatch.setattr(foreach_batch, "is_wide", lambda plan: plan.may_shuffle)
    monkeypatch.setattr(foreach_batch, "watermark_holds", lambda plan: plan.holds)

    def run(_sink: Sink, end: Any, _rows: object, plan: RunPlan, _drain: object) -> Ran:
        made.used.append((end.lane.name, plan))
        return Ran(skips=False, dropped=NOTHING_DROPPED)

    monkeypatch.setattr(Sink, "_run", run)
    monkeypatch.setattr(Sink, "_drain", lambda _sink, _end, _rows: None)
    monkeypatch.setattr(Sink, "_publish", lambda _sink, _end, _rows, _ran: None)
    return made


NARROW, WIDE, HOLDING = RunPlan(), RunPlan(may_shuffle=True), RunPlan(holds=("wait",))


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
    sink = Sink(lambda batch, batch_id: None)
    expected: list[tuple[str, RunPlan]] = []
    for query, run, plan in runs:
        queries.plans[query] = plan
        for batch in range(2):
            sink(queries.rows_of(query, run), batch)
            expected.append((query, plan))
    assert queries.used == expected
    assert queries.analysed == [query for query, _, _ in runs], "once for each run, not for each batch"
    assert queries.sunk == {run for _, run, _ in runs}
    assert queries.forgotten == [(query, batch) for query, _, _ in runs for batch in range(2)]
