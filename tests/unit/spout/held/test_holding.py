"""What the task behind `spout.hold` makes of rows, without Spark."""

from __future__ import annotations

import pyarrow as pa

from acker.identity import source_of
from spout.held.holding import HoldTask
from spout.tuples.anchors import ORDINAL_BITS
from tests.support.fake_ledger import FakeLedger


def test_a_row_without_an_anchor_is_held_without_one() -> None:
    """It is of another stream in a union, or of a batch that was planned untracked: it is best effort."""
    ledger, source = FakeLedger(), source_of(1, 0)
    task = HoldTask("hold", "s", ledger, (), fails_late=False)
    columns = [
        [5 << ORDINAL_BITS, None, 7 << ORDINAL_BITS],
        [source, None, source],
        [50, None, 70],
        [9, 9, 9],
    ]
    [anchors] = task([tuple(pa.array(column, pa.int64()) for column in columns)])
    assert anchors.is_valid().to_pylist() == [True, False, True]
    assert anchors.field("position").take([0, 2]).to_pylist() == [50, 70]
    [report] = ledger.reports
    assert report.held.indices.tolist() == [5, 7]
    assert len(set(report.held.edges.tolist())) == len(report.held.until_ms) == 2
