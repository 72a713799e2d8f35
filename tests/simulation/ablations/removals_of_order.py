"""How the safeguards of ordered inputs are taken out. See `removals`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import spout.publishing.settle
from acker.identity import I64
from spout.planning.journal import Journal
from spout.planning.order import Gate, LinedRecords, NotAcked
from spout.planning_process.order_watch import OrderWatch
from spout.tuples.failures import Cause

Replaced = list[tuple[Any, str, Any]]


def gate() -> Replaced:
    """Let the read task hand every record to the bolts."""
    original = Gate.admit

    def admit(self: Gate, index: int, key: bytes | None, origin: int | None) -> Cause | None:
        original(self, index, key, origin)
        return None

    return [(Gate, "admit", admit)]


def behind() -> Replaced:
    """Let what ran behind a failure that the task did not see be acked."""

    def behind(
        lined_records: Iterable[LinedRecords], failed: I64, open_: I64, free: I64
    ) -> list[tuple[Cause, I64]]:
        return []

    return [(spout.publishing.settle, "behind", behind)]


def pending() -> Replaced:
    """Plan a partition while roots of it are pending."""

    def _why_undecidable(self: OrderWatch, source: int, planned: Mapping[int, int]) -> str:
        return ""

    return [(OrderWatch, "_why_undecidable", _why_undecidable)]


def taken_over() -> Replaced:
    """Plan a partition before a replay worker has taken over what was lost of it."""

    def _not_taken_over(self: OrderWatch, source: int) -> str:
        return ""

    return [(OrderWatch, "_not_taken_over", _not_taken_over)]


def not_acked() -> Replaced:
    """Go on behind a published batch as if all of its roots were acked by that."""
    original = OrderWatch.record_published

    def record_published(self: OrderWatch, end: Journal, not_acked: Sequence[NotAcked]) -> None:
        original(self, end, ())

    return [(OrderWatch, "record_published", record_published)]
