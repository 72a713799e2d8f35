"""A pass: consecutive narrow bolts that run in one Python function over the rows of a task.

`FastRun` serves passes of `BasicBolt` and `ArrowBolt` only: every input is acked or failed at once, so all
it keeps is which input row each emitted row descends from, as arrays. `spout.execution.anchored.AnchoredRun`
serves passes with a rich `Bolt`, where a tuple has places in trees and a state of its own.

Source: docs/design/protocol.md, section 5.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from acker.identity import I64, subscription_key
from spout.bolts.bolts import Bolt
from spout.bolts.hooks import BoltContext
from spout.execution.guards import Guarded
from spout.execution.steps import RowFailure, RowGate, Step, run_simple
from spout.execution.watching import Watch
from spout.planning.order import Gate
from spout.publishing.fold import TaskReport, failures_of
from spout.runtime.pulse import Pulse
from spout.tuples.anchors import Anchors, Carry, Fingerprint, fingerprint_of, pack, paths_column
from spout.tuples.collector import DEFAULT_STREAM, SPARK, MessageId, Rows, StreamId
from spout.tuples.columns import ANCHOR
from spout.tuples.counts import added
from spout.tuples.places import kept_of, places_of
from spout.tuples.raised import first_of_each
from spout.tuples.rows import ArrowRows, FindId, ListRows, arrow_of


@dataclass(frozen=True, slots=True)
class Pass:
    """Bolts that run in one Python function.

    Attributes:
        steps: the bolts, in order; at least one.
        upstream: the pass whose rows arrive directly; empty behind the source or Spark's operators.
        consumer: the pass that receives the rows directly; empty otherwise.
        arrives: how anchors arrive; `Carry.NONE` where nothing is tracked.
        subscriptions: the keys along the paths that arrive; none where roots arrive.
        carry: how the emitted rows carry their anchors.
    """

    steps: tuple[Step, ...]
    upstream: str = ""
    consumer: str = ""
    arrives: Carry = Carry.NONE
    subscriptions: tuple[int, ...] = ()
    carry: Carry = Carry.NONE

    @property
    def name(self) -> str:
        """The names of its bolts."""
        return "+".join(step.name for step in self.steps)

    @property
    def came_from(self) -> StreamId:
        """Where the rows come from that arrive: the last bolt of `upstream`, or Spark's operators."""
        return StreamId(self.upstream.rpartition("+")[2]) if self.upstream else SPARK

    @property
    def tracked(self) -> bool:
        """Whether tuples are acked and failed."""
        return self.arrives is not Carry.NONE

    @property
    def rich(self) -> bool:
        """Whether tuples need places and a state of their own."""
        return any(isinstance(step.bolt, Bolt) for step in self.steps)

    @property
    def loose(self) -> bool:
        """Whether tuples (not roots) arrive through Spark's operators, which may drop or repeat them."""
        return bool(self.subscriptions) and not self.upstream

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the emitted rows, anchors included."""
        emitted = self.steps[-1].schema
        if self.carry is Carry.NONE:
            return emitted
        return emitted.append(pa.field(ANCHOR, self.carry.type))

    def hop(self, step: int) -> int:
        """Return the key of the subscription on which a bolt of the pass emits."""
        last = step + 1 == len(self.steps)
        after = self.consumer.split("+")[0] if last else self.steps[step + 1].name
        return subscription_key(self.steps[step].name, DEFAULT_STREAM, after)

    @property
    def entry(self) -> int:
        """Return the key of the subscription on which Spark's operators deliver."""
        return subscription_key(SPARK.component, DEFAULT_STREAM, self.steps[0].name)

    @property
    def leaving(self) -> tuple[int, ...]:
        """The keys along the paths of emitted rows."""
        if not self.rich:
            return (*self.subscriptions, self.hop(len(self.steps) - 1))
        entry = (self.entry, self.entry) if self.loose else ()
        return (*self.subscriptions, *entry, *(self.hop(step) for step in range(len(self.steps))))


class Run(Protocol):
    """A pass at work in one task. `gate` is set while records are fed that stand in lines."""

    gate: Gate | None

    def feed(self, rows: Rows, anchors: Anchors | None) -> pa.RecordBatch:
        """Work on a batch of rows and return what was emitted."""

    def finish(self) -> list[pa.RecordBatch]:
        """Clean the bolts up, and return what was emitted meanwhile."""

    def report(self) -> TaskReport:
        """Return what was done; called last."""


class FastRun:
    """A pass without rich bolts at work in one task."""

    def __init__(self, pass_: Pass, context: BoltContext, pulse: Pulse | None = None) -> None:
        """Prepare the bolts for one task; `pulse` is told what they are at."""
        self.gate: Gate | None = None
        self._pass = pass_
        self._failed: list[RowFailure] = []
        self._took = Fingerprint()
        self._gave = Fingerprint()
        self._watches = watches_of(pass_, context, pulse or Pulse())
        for watch in self._watches:
            watch.prepare()

    def feed(self, rows: Rows, anchors: Anchors | None) -> pa.RecordBatch:
        """Work on a batch of rows and return what was emitted."""
        source = rows
        parents: I64 = np.arange(len(rows))
        failures: list[RowFailure] = []
        if self.gate is not None and anchors is not None:
            return self._in_order(rows, anchors, self.gate)
        for place, step in enumerate(self._pass.steps):
            last = place + 1 == len(self._pass.steps)
            if isinstance(step.bolt, Guarded) and anchors is not None:
                step.bolt.post.places = kept_of(places_of(anchors), parents.tolist())
            out = run_simple(step, rows, self._watches[place], tracked=self._pass.tracked, arrow=last)
            failures += [(int(parents[row]), cause) for row, cause in out.failures]
            parents = parents[out.parents]
            rows = out.rows if last else _related(out.rows, _finder(source, parents))
        batch = arrow_of(rows, None)
        return batch if anchors is None else self._anchor(batch, parents, anchors, failures)

    def _in_order(self, rows: Rows, anchors: Anchors, gate: Gate) -> pa.RecordBatch:
        """Work on rows that stand in lines: each bolt passes over what is held when its turn comes."""
        source = rows
        roots = anchors.roots().tolist()
        parents: I64 = np.arange(len(rows))
        failures: list[RowFailure] = []
        for place, step in enumerate(self._pass.steps):
            last = place + 1 == len(self._pass.steps)
            if isinstance(step.bolt, Guarded):
                step.bolt.post.places = kept_of(places_of(anchors), parents.tolist())
            at = [roots[parent] for parent in parents.tolist()]
            out = run_simple(
                step, rows, self._watches[place], tracked=True, arrow=last, gate=_row_gate(gate, at)
            )
            for row, cause in out.failures:
                failures.append((int(parents[row]), cause))
                gate.fail(at[row])  # a batch bolt's too, and what did not fit the output
            parents = parents[out.parents]
            rows = out.rows if last else _related(out.rows, _finder(source, parents))
        return self._anchor(arrow_of(rows, None), parents, anchors, failures)

    def finish(self) -> list[pa.RecordBatch]:
        """Clean the bolts up."""
        for watch in self._watches:
            watch.cleanup()
        return []

    def report(self) -> TaskReport:
        """Return what was done."""
        return TaskReport(
            operator=self._pass.name,
            upstream=self._pass.upstream,
            consumer=self._pass.consumer,
            failures=failures_of(self._failed),
            took=self._took,
            gave=self._gave,
            counts=added(watch.counts for watch in self._watches),
            errors=tuple(error for watch in self._watches for error in watch.errors),
            raised=first_of_each(each for watch in self._watches for each in watch.tracebacks),
        )

    def take_report(self) -> TaskReport:
        """Return what was done since this was called last."""
        report = self.report()
        self._failed = []
        self._took = self._gave = Fingerprint()
        for watch in self._watches:
            watch.forget()
        return report

    def _anchor(
        self, batch: pa.RecordBatch, parents: I64, anchors: Anchors, failures: list[RowFailure]
    ) -> pa.RecordBatch:
        """Attribute failures to roots, and give the rows their anchors."""
        pass_ = self._pass
        if pass_.upstream:
            self._took = self._took.plus(fingerprint_of(anchors.carry, anchors.column))
        if failures:
            self._failed += failed_roots(anchors, failures)
        if pass_.carry is Carry.NONE:
            return batch
        ordinals = ordinals_of(parents, len(anchors.column))
        if pass_.carry is not Carry.PATHS:
            column = anchors.again(parents, pack(anchors.roots()[parents], ordinals))
        else:
            hop = pass_.hop(len(pass_.steps) - 1)
            arrived = list(anchors.deliveries())
            pairs = zip(parents.tolist(), ordinals.tolist(), strict=True)
            column = paths_column([tuple(d.child(hop, o) for d in arrived[parent]) for parent, o in pairs])
        if pass_.consumer:
            self._gave = self._gave.plus(fingerprint_of(pass_.carry, column))
        return pa.RecordBatch.from_arrays([*batch.columns, column], schema=pass_.schema)


def watches_of(pass_: Pass, context: BoltContext, pulse: Pulse) -> list[Watch]:
    """Return what watches each bolt of a pass in one task; `pulse` is told what they are at."""
    last = len(pass_.steps) - 1
    return [
        Watch(
            step.name,
            step.bolt,
            context,
            step.hooks,
            pulse=pulse,
            delivers=place < last or bool(pass_.consumer),
        )
        for place, step in enumerate(pass_.steps)
    ]


def _row_gate(gate: Gate, roots: Sequence[int]) -> RowGate:
    """Let a gate be asked by row; `roots` is the root's index of each."""
    return RowGate(lambda row: gate.holds(roots[row]), lambda row: gate.fail(roots[row]))


def failed_roots(anchors: Anchors, failures: list[RowFailure]) -> list[RowFailure]:
    """Name the roots, by index, of failed rows."""
    if anchors.carry is not Carry.PATHS:
        roots = anchors.roots()
        return [(int(roots[row]), cause) for row, cause in failures]
    arrived = list(anchors.deliveries())
    return [(delivery.root, cause) for row, cause in failures for delivery in arrived[row]]


def ordinals_of(parents: I64, rows: int) -> I64:
    """Return each row's ordinal among the rows of its parent, in order; parents are in [0, rows)."""
    counts = np.bincount(parents, minlength=rows)
    firsts = np.cumsum(counts) - counts
    here = np.arange(len(parents))
    if not (np.diff(parents) < 0).any():
        ascending: I64 = here - firsts[parents]
        return ascending
    order = np.argsort(parents, kind="stable")
    ordinals = np.empty(len(parents), np.int64)
    ordinals[order] = here - firsts[parents[order]]
    return ordinals


def _finder(source: Rows, parents: I64) -> FindId:
    """Let rows find the message ids of the input rows that they descend from."""

    def find(row: int) -> MessageId:
        return source.message_id(int(parents[row]))

    return find


def _related(rows: Rows, find_id: FindId) -> Rows:
    return rows.related(find_id) if isinstance(rows, ListRows | ArrowRows) else rows
