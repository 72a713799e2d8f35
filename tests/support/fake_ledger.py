"""A ledger without Spark: what tasks report, decoded."""

from __future__ import annotations

from typing import Any

from spout.publishing.blob import decode
from spout.publishing.fold import TaskReport
from spout.publishing.report_accumulator import LedgerParam


class FakeLedger:
    """Takes reports, as Spark's accumulator does."""

    def __init__(self) -> None:
        self.reports: list[TaskReport] = []
        self.accum_param = LedgerParam()

    def add(self, value: dict[Any, dict[str, tuple[Any, ...]]]) -> None:
        """Take one."""
        [(*_, blob)] = [added for found in value.values() for added in found.values()]
        self.reports.append(decode(blob))
