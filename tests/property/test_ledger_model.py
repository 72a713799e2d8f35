"""The ledger alone against one plain entry for each root: verdicts, counts, deadlines, needs of a restart."""

from __future__ import annotations

import pytest

from tests.support.worlds.ledger_model import LedgerScript


@pytest.mark.parametrize("seed", range(12))
def test_a_ledger_decides_counts_and_keeps_what_plain_roots_do(seed: int) -> None:
    """Rules 1 to 4 and 8: ranges at the ends of blocks, odd records, and re-reading."""
    script = LedgerScript(seed)
    for _ in range(120):
        script.step()
        script.compare()
    script.ledger.abandon_sources(set(script.ledger._watermarks), lambda session: 7)
    assert (script.ledger.open_count, script.ledger.ranges) == (0, 0)
