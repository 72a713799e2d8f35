"""What tasks of several queries report in one application: each has its own batches, and forgets its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spout.publishing.blob import encode
from spout.publishing.report_accumulator import BATCHES_KEPT, Batch, LedgerParam, ReportLedger, Value
from tests.support.reports import reported, task_report

ORDERS = {
    "in step": [("p", 0), ("q", 0), ("p", 1), ("q", 1), ("p", 2), ("q", 2), ("p", 3), ("q", 3)],
    "one far ahead": [("p", 0), ("q", 900), ("p", 1), ("q", 901), ("p", 2), ("q", 902), ("p", 3)],
    "one after the other": [("p", 7), ("p", 8), ("p", 9), ("q", 0), ("q", 1), ("q", 2)],
    "one has read nothing since long": [("q", 5), *(("p", number) for number in range(40))],
    "three": [("p", 4), ("q", 9), ("r", 1), ("r", 2), ("r", 3), ("q", 10), ("p", 5)],
    "one alone": [("p", number) for number in range(5)],
}
"""In which order tasks report, by query and batch."""


class Context:
    """A SparkContext whose accumulator keeps what it is given."""

    master = "local[2]"

    def accumulator(self, value: Value, _param: object) -> Any:
        """Return an accumulator that nobody adds to but the test."""
        return SimpleNamespace(value=value)


def ledger_with(batches: Sequence[Batch]) -> ReportLedger:
    """Return the ledger of an application where two tasks of each batch reported, in this order.

    The reports of a batch are of stream ``s-<query>``, and by an operator with the name of the batch.
    """
    ledger = ReportLedger(cast("Any", Context()))
    for query, number in batches:
        for task in range(2):
            blob = encode(reported(number, task, task, task_report(f"{query}{number}")))
            added = {f"{query}{number}.{task}": (f"s-{query}", blob)}
            LedgerParam().addInPlace(ledger.accumulator.value, {(query, number): added})
    return ledger


def kept_of(batches: Sequence[Batch]) -> dict[str, list[int]]:
    """Return which batches are kept: of each query the one that runs, and the one before it."""
    numbers: dict[str, list[int]] = {}
    for query, number in batches:
        numbers.setdefault(query, []).append(number)
    return {query: sorted(found)[-BATCHES_KEPT:] for query, found in numbers.items()}


by_order = pytest.mark.parametrize("batches", ORDERS.values(), ids=ORDERS)


@by_order
def test_a_batch_makes_room_among_those_of_its_own_query(batches: Sequence[Batch]) -> None:
    """Rule 3: without the reports of a batch that still runs, what failed in it would be acked."""
    value = ledger_with(batches).accumulator.value
    kept: dict[str, list[int]] = {}
    for query, number in sorted(value):
        kept.setdefault(query, []).append(number)
    assert kept == kept_of(batches)


@by_order
def test_a_batch_has_the_reports_of_its_own_tasks(batches: Sequence[Batch]) -> None:
    ledger = ledger_with(batches)
    for query, numbers in kept_of(batches).items():
        for number in numbers:
            assert ledger.streams(query, number) == {f"s-{query}"}
            assert ledger.count(query, number) == 2
            reports = ledger.read(query, number)
            operators = [report.operator for report in reports.tasks]
            assert operators == [f"{query}{number}"] * 2
            assert ledger.read(query, number, without=[f"s-{query}"]).tasks == ()
            assert len(ledger.read(query, number, without=["s-other"]).tasks) == 2
        assert ledger.has_reports(query, since=numbers[-1])
        assert not ledger.has_reports(query, since=numbers[-1] + 1)
    assert not ledger.has_reports("nobody", since=0)
    assert ledger.count("nobody", 0) == 0


@by_order
def test_what_is_forgotten_is_of_one_batch_or_of_one_query(batches: Sequence[Batch]) -> None:
    kept = kept_of(batches)
    for query, numbers in kept.items():
        others = {(other, number) for other in kept if other != query for number in kept[other]}
        ledger = ledger_with(batches)
        ledger.forget(query, numbers[-1])
        rest = {(query, number) for number in numbers[:-1]}
        assert set(ledger.accumulator.value) == others | rest
        ledger.forget_all(query)
        assert set(ledger.accumulator.value) == others


def test_an_attempt_that_comes_late_is_forgotten_with_its_own_batch() -> None:
    """It is of a batch that is over: it takes nothing with it, and goes when the next batch reports."""
    ledger = ledger_with([("p", 5), ("q", 1), ("p", 6), ("p", 2), ("q", 2)])
    value: Mapping[Batch, object] = ledger.accumulator.value
    assert {("p", 5), ("p", 6), ("q", 1), ("q", 2)} <= set(value)
    LedgerParam().addInPlace(ledger.accumulator.value, {("p", 7): {}})
    assert set(value) == {("p", 6), ("p", 7), ("q", 1), ("q", 2)}
