"""Tables and pages that have a line for each verdict: a further one shall not be missing in any of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from pathlib import Path

import pytest

from acker.ledger.output import Counts
from acker.ledger.tally import REASONS
from acker.wire.verdict import Verdict
from spout.builder.tuple_metrics import ROOT_COUNTERS
from spout.planning_process.status import PlannerStatus

DOCS = Path(__file__).resolve().parents[3] / "docs"

COUNTS = {
    "an acker": {field.name for field in fields(Counts)},
    "an acker's metric": {reason.lower() for reason in REASONS},
    "a planning process": {field.name for field in fields(PlannerStatus)},
    "a stream's metrics": ROOT_COUNTERS.keys(),
}


@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
def test_roots_are_counted_by_each_verdict(counts: Collection[str]) -> None:
    assert [verdict for verdict in Verdict if verdict.lower() not in counts] == []


@pytest.mark.parametrize(
    ("page", "begin"), [("glossary.md", "| verdict |"), ("design/protocol.md", "2. **One verdict**")]
)
def test_the_pages_name_the_verdicts(page: str, begin: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    entry = text[text.index(f"\n{begin}") :].lstrip()[:400]
    assert [verdict for verdict in Verdict if verdict not in entry] == []
