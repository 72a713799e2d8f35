"""The model topology: small bolts with the real collectors, on records that say how they behave.

``split`` emits tuples anchored on its input and acks it; ``count`` receives them, and emits what a program in
another lane receives (``remote``). How a record behaves stands in its value, ``<number>|<kind>|<n>``:

========  =================================================================================
kind      what the bolts do with it
========  =================================================================================
ok        ack everything; ``n`` children
poison    fail, at every attempt
flaky     fail at the first ``n`` attempts
slow      leave every child open at the first attempt
touch     as slow, and reset the timeout
fickle    one of the others, drawn anew in every evaluation
remote    hand ``n`` tuples to the other lane, which acks them some time
========  =================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Final, NamedTuple

import numpy as np

from acker.identity import child_edge, first_source, partition_of, root_edge, subscription_key
from acker.kafka.port import Record
from acker.root_sets.root_set import RootSet
from acker.wire.events import SourceRun
from replay.records.headers import ATTEMPT, HELD
from spout.bolts.collectors import EmittedStream, Outlet, OutputCollector
from spout.planning.order import Gate
from spout.planning.plan import ReadTask
from spout.publishing.fold import Missing, TaskReport, indices_not_done, outstanding_of
from spout.publishing.root_marks import PLANNED, RootMark, RootMarks, roots_of
from spout.streaming.ordered_read import origin_of
from spout.tuples.failures import Cause
from spout.tuples.rows import ListRows
from spout.tuples.tuple import AnchoredTuple, Delivery
from tests.simulation.truth.facts import COMPLETE, FAILED, OPEN, Evaluation, SinkRow

SPLIT_TO_COUNT: Final = subscription_key("split", "default", "count")
COUNT_TO_REMOTE: Final = subscription_key("count", "default", "remote")
_ROWS: Final = ListRows(("value",), [(None,)])
_FICKLE: Final = ("ok", "ok", "poison", "slow", "remote")


class Sent(NamedTuple):
    """A tuple that the other lane receives."""

    source: int
    position: int
    edge: int


class Done(NamedTuple):
    """What one evaluation of a task did; `rows` are what each root gave the sink."""

    report: TaskReport
    results: dict[tuple[int, int], Evaluation]
    sent: list[Sent]
    rows: dict[tuple[int, int], tuple[SinkRow, ...]]


def _emits(subscription: int) -> dict[str, EmittedStream]:
    return {"default": EmittedStream(("value",), (Outlet(subscription),))}


class _Bolts:
    """The bolts of one task."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.split = OutputCollector("split", _emits(SPLIT_TO_COUNT))
        self.count = OutputCollector("count", _emits(COUNT_TO_REMOTE))
        self.remote = OutputCollector("remote", {})

    def execute(self, index: int, record: Record) -> tuple[str, tuple[Delivery, ...], Cause | None]:
        """Work on one record; return the result, what went to the other lane, and the cause of a failure."""
        _, kind, number = (record.value or b"0|ok|0").decode().split("|")
        headers = dict(record.headers)
        attempt = int(headers.get(ATTEMPT) or 1) - int(headers.get(HELD) or 0)
        n = int(number)
        if kind == "fickle":
            kind = self.rng.choice(_FICKLE)
            n = max(1, n)
        root = AnchoredTuple(_ROWS, 0, [(Delivery(index, ()),)], "split")
        self.split.receive(root)
        if kind == "poison" or (kind == "flaky" and attempt <= n):
            self.split.fail(root, ValueError(f"record {record.offset} does not parse"))
            return FAILED, (), self.split.failures[-1][1]
        if kind == "touch":
            self.split.reset_timeout(root)
        for _ in range(n):
            self.split.emit((None,), root)
        self.split.ack(root)
        emitted, self.split.sent = self.split.sent, []
        for emission in emitted:
            child = AnchoredTuple(_ROWS, 0, [emission.deliveries(0, SPLIT_TO_COUNT)], "count")
            self.count.receive(child)
            if kind in ("slow", "touch") and attempt <= 1:
                continue
            if kind == "remote":
                self.count.emit((None,), child)
            self.count.ack(child)
        sent: list[Delivery] = []
        passed, self.count.sent = self.count.sent, []
        for emission in passed:
            deliveries = emission.deliveries(0, COUNT_TO_REMOTE)
            self.remote.receive(AnchoredTuple(_ROWS, 0, [deliveries], "remote"))
            sent += deliveries
        is_open = kind in ("slow", "touch") and attempt <= 1 and n > 0
        return OPEN if is_open else COMPLETE, tuple(sent), None


def run_task(
    task: ReadTask,
    records: Iterable[tuple[SourceRun, Record]],
    absent: list[SourceRun],
    rng: Random,
    evaluation: str = "",
) -> Done:
    """Evaluate one task.

    Args:
        task: the task.
        records: what was read, each with a run of its one position.
        absent: positions of the share without a record.
        rng: decides what bolts do with fickle records.
        evaluation: a name that no other evaluation has; rows of fickle records have it.
    """
    bolts = _Bolts(rng)
    index_of = task.plan.index()
    results: dict[tuple[int, int], Evaluation] = {}
    sent: list[Sent] = []
    gates = {source: Gate(f"lines/{partition_of(source)}", "spout", up) for source, up in task.order.items()}
    held: list[tuple[int, Cause]] = []
    rows: dict[tuple[int, int], tuple[SinkRow, ...]] = {}
    for run, record in records:
        index = int(index_of.of(run.source, np.array([run.start]))[0])
        gate = gates.get(first_source(run.source))
        if gate is not None and run.source == first_source(run.source):
            gate.begin_new()
        behind = gate and gate.admit(index, record.key, _origin(run, record))
        if behind:
            held.append((index, behind))
            causes = frozenset([(behind.operator, behind.error, behind.message)])
            results[run.source, run.start] = Evaluation(FAILED, frozenset(), causes)
            continue
        result, deliveries, cause = bolts.execute(index, record)
        if gate is not None and result == FAILED and rng.random() < 0.5:
            gate.fail(index)  # else as behind a shuffle, where the task does not see it
        edges = [Sent(run.source, run.start, _edge(run, delivery)) for delivery in deliveries]
        sent += edges
        causes = frozenset([(cause.operator, cause.error, cause.message)] if cause else [])
        results[run.source, run.start] = Evaluation(result, frozenset(e.edge for e in edges), causes)
        rows[run.source, run.start] = _rows(run, record, OPEN if edges else result, evaluation)
    collectors = (bolts.split, bolts.count, bolts.remote)
    touched = np.array(sorted(bolts.split.touched), np.int64)
    report = TaskReport(
        operator="split+count",
        plan=task.plan,
        ranges=task.ranges,
        missing=Missing(RootSet.of_runs(absent)),
        outstanding=outstanding_of(delivery for each in collectors for delivery in each.outstanding()),
        marks=RootMarks.together(
            [
                RootMarks.of_failures(
                    PLANNED, [*held, *(failure for each in collectors for failure in each.failures)]
                ),
                RootMarks.of_roots(RootMark.TOUCHED, roots_of(PLANNED, touched)),
            ]
        ),
    )
    lined_records = tuple(gate.lined_records(indices_not_done(report)) for gate in gates.values())
    return Done(replace(report, lined_records=lined_records), results, sent, rows)


def _rows(run: SourceRun, record: Record, result: str, evaluation: str) -> tuple[SinkRow, ...]:
    """Return what a record gives the sink: 1 to 3 rows, whatever becomes of it; bolts emit, and fail then."""
    _, kind, number = (record.value or b"0|ok|0").decode().split("|")
    total = max(1, int(number))
    name = evaluation if kind == "fickle" else ""
    return tuple(SinkRow(run.source, run.start, name, result, ordinal, total) for ordinal in range(total))


def _origin(run: SourceRun, record: Record) -> int | None:
    if run.source == first_source(run.source):
        return record.offset
    return origin_of(record.headers, "lines", partition_of(run.source))


def _edge(run: SourceRun, delivery: Delivery) -> int:
    edge = root_edge(run.source, run.start)
    for subscription, ordinal in delivery.path:
        edge = child_edge(edge, subscription, ordinal)
    return int(edge)
