"""A stage whose bolts run in a child process, so that a tuple that kills or hangs it is found and failed.

The worker reads, keeps the task's report and talks to Spark; it runs no code
of bolts. Its child runs the very stage that the worker would have run, with
each bolt guarded (`spout.execution.guards`). What a child that died had done
is kept or done again:

* A stage of bolts that settle a tuple when `execute` returns, and do nothing
  in `cleanup`: each block of rows that the child returned is kept; the next
  child goes on with the block in which it died.
* Any other stage (rich bolts, a `cleanup` of their own, hooks) may hold
  tuples, or work that is not written yet, over many rows. What it held has
  died with the child: the next child begins with the task's first row, and
  nothing leaves the task before a child has cleaned up. Such a bolt may end
  its process by what it holds: when it does so in `cleanup`, or at more tuples
  than a few, the poison is searched for by trial
  (`spout.tuples.poison.PoisonSearch`).

So nothing is acked of which the work was lost, and nothing fails but poison.

Source: docs/design/protocol.md, section 5.2 ("A record that ends its worker").
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from tempfile import SpooledTemporaryFile
from typing import IO, Final

import numpy as np
import pyarrow as pa

from acker.errors import TrackingError
from spout.bolts.bolts import AnyBolt, ArrowBolt, BasicBolt, Bolt
from spout.bolts.hooks import BoltContext
from spout.execution.guards import CallMemory, Guarded, guarded_bolt
from spout.execution.stage_run import StageRun
from spout.isolation.child_process import Channel, ChildEnded, ChildProcess, ClockMs, monotonic_ms
from spout.isolation.feeds import (
    BLOCK_ROWS,
    ChildAnswer,
    Feed,
    pack_answer,
    pack_error,
    pack_feed,
    unpack_answer,
    unpack_feed,
)
from spout.isolation.hang_notes import HangNote
from spout.isolation.poison_finder import PoisonFinder
from spout.planning.order import PARTITION, Gate, GateState, LineUp
from spout.publishing.fold import TaskReport, merged
from spout.publishing.root_marks import NUMBERED, PLANNED, RootMark, RootMarks, roots_of
from spout.topology.stage_pass import StagePass
from spout.tuples.anchors import Anchors, Carry
from spout.tuples.columns import ANCHOR
from spout.tuples.poison import Orders
from spout.tuples.rows import ArrowRows, one_batch
from spout.tuples.tuple import Rows

SPOOL_BYTES: Final = 64 * 1024 * 1024
"""Rows that are kept for another child go to a file beyond this."""

_FINISH: Final = -1
"""In the place of a block's number: finish the stage, clean up, and report."""

_NUMBER = struct.Struct("!q")
"""A number before other bytes: that of a block, or how many bytes follow."""

Begin = Callable[[StagePass], StageRun]
"""Starts a stage in the process that calls it."""


class IsolatedRun:
    """A stage at work in one task, in a child of this process."""

    def __init__(
        self,
        pass_: StagePass,
        context: BoltContext,
        limit_ms: int,
        begin: Begin,
        *,
        hung: HangNote | None = None,
        clock_ms: ClockMs = monotonic_ms,
    ) -> None:
        """Prepare; no child is forked before there are rows.

        Args:
            pass_: the stage.
            context: of its bolts.
            limit_ms: how long one call of a bolt may last; 0: for ever.
            begin: starts the stage; the child calls it.
            hung: the call that did not return when Spark tried this task before, without a child;
                None: it did not hang.
            clock_ms: monotonic milliseconds.
        """
        # for records that are read in order: which of them are blocked behind a failed one
        self.gate: Gate | None = None
        # in the child: a gate for each partition, by its name; the parent sends what its own one
        # knows
        self._child_gates: dict[str, Gate] = {}
        self._pass = pass_
        self._limit_ms = limit_ms
        self._clock_ms = clock_ms
        self._begin = begin
        self._reports: list[TaskReport] = []  # of blocks that are done
        # shared with the child, which writes the call down that it is about to make
        self._memory = CallMemory([bolt_pass.name for bolt_pass in pass_.bolts])
        self._child: ChildProcess | None = None
        # True: a block that a child has returned is done, and rows leave with it. False: rows
        # leave at the end alone, and a new child begins again with the first row
        self._keeps_blocks = can_keep_blocks(pass_)
        self._poison_finder = PoisonFinder(context, limit_ms, holds=not self._keeps_blocks, hung=hung)
        # rows of a block: at most so many are worked on again; 0: all rows of a `feed` are one
        # block
        has_arrow_bolt = any(isinstance(bolt_pass.bolt, ArrowBolt) for bolt_pass in pass_.bolts)
        self._block_rows = BLOCK_ROWS if self._keeps_blocks and not has_arrow_bolt else 0
        self._rows_fed = 0
        self._blocks_fed = 0
        self._spool = _Spool()  # if blocks are not kept: all of them, for the next child

    def feed(self, rows: Rows, anchors: Anchors | None) -> pa.RecordBatch:
        """Have a child work on rows; return what leaves the stage, which may be no row until `finish`."""
        feed = Feed(rows, anchors, self._rows_fed)
        self._rows_fed += len(rows)
        blocks = feed.blocks(self._block_rows) if self._block_rows else [feed]
        batches: list[pa.RecordBatch] = []
        for block in blocks:
            batches += self._feed_block(block)
        return one_batch(batches, self._pass.leaving_schema, self._pass.name)

    def finish(self) -> list[pa.RecordBatch]:
        """Have a child finish the stage, and clean up; return the rows that leave by that.

        Where blocks are not kept, it begins with the first row in the spool.
        """
        if self._keeps_blocks:
            return self._keep_report(self._ask_until_answered(_FINISH, b""))
        while True:
            try:
                answer = self._ask_for_everything()
            except ChildEnded as end:
                self._record_child_end(end)
                continue
            if self._poison_finder.record_success():
                return self._keep_report(answer)
            self._end_child()  # it was a trial, in which tuples were withheld that are no poison

    def report(self) -> TaskReport:
        """Return what all children reported whose work was kept, and which calls passed at a second
        try.
        """
        # roots are indices of the batch's plan; behind a keyed bolt they are numbered as they come
        source = NUMBERED if self._pass.is_behind_keyed else PLANNED
        report = merged(self._reports)
        passed_marks: list[RootMarks] = []
        for call_number, passed in enumerate(self._poison_finder.passed_calls()):
            roots = roots_of(source, passed.roots)
            call_numbers = np.full(len(passed.roots), call_number)
            passed_marks.append(RootMarks.of_roots(RootMark.PASSED, roots, call_numbers, passed.cause))
        return replace(report, marks=RootMarks.together([report.marks, *passed_marks]))

    def close(self) -> None:
        """End the child, if there is one, and forget the rows."""
        self._end_child()
        self._spool.close()

    def _feed_block(self, block: Feed) -> list[pa.RecordBatch]:
        """Have a child work on a block and return the rows that leave; or keep it for `finish`."""
        # the state of the gate is taken only now: rows of the blocks before may have failed,
        # and block those behind them
        if self.gate is not None and block.anchors is not None:
            block = block._replace(gate_state=self.gate.state_for(block.anchors.roots().tolist()))
        packed = pack_feed(block)
        if not self._keeps_blocks:
            self._spool.add(packed)
            return []
        self._blocks_fed += 1
        return self._keep_report(self._ask_until_answered(self._blocks_fed, packed))

    def _keep_report(self, answer: ChildAnswer) -> list[pa.RecordBatch]:
        """Add to the task's report what a child reported, and return the rows that it returned."""
        if answer.report is None:
            raise TrackingError(f"a child of {self._pass.name!r} reported nothing")
        self._reports.append(answer.report)
        if self.gate is not None:
            failed = answer.report.marks.of(RootMark.FAILED)
            self.gate.fail_all(failed.positions.tolist())
        return answer.batches

    def _ask_for_everything(self) -> ChildAnswer:
        """Have one child do everything, from the first row to the report; `ChildEnded`: it did not."""
        batches: list[pa.RecordBatch] = []
        for number, packed in enumerate(self._spool.all(), start=1):
            batches += self._ask(number, packed).batches
        finished = self._ask(_FINISH, b"")
        return ChildAnswer(batches + finished.batches, finished.report)

    def _ask(self, number: int, packed: bytes) -> ChildAnswer:
        """Have the child, forked if there is none, work on block `number`, or `_FINISH`.

        Return its answer.

        `packed`: the block. Raises `ChildEnded`, or what was raised in the child.
        """
        if self._child is None:
            self._child = ChildProcess(self._serve, self._memory, self._limit_ms, self._clock_ms)
            # an answer without content when the stage has begun; raises what was raised instead
            unpack_answer(self._child.ask())
        return unpack_answer(self._child.ask(_NUMBER.pack(number) + packed))

    def _ask_until_answered(self, number: int, packed: bytes) -> ChildAnswer:
        """Ask for the same until no child ends at it; `WorkerLost`: as
        `PoisonFinder.record_end`.
        """
        while True:
            try:
                return self._ask(number, packed)
            except ChildEnded as end:
                self._record_child_end(end)

    def _record_child_end(self, end: ChildEnded) -> None:
        """Find out at which call a child ended, and change the orders for the next one."""
        self._end_child()
        last_call = self._memory.read()
        needs_search = self._poison_finder.record_end(end, last_call)
        if needs_search:
            self._poison_finder.begin_search(end, last_call, self._spooled_roots())

    def _spooled_roots(self) -> set[int]:
        """Return the roots of all rows in the spool, as indices of the plan."""
        roots: set[int] = set()
        for packed in self._spool.all():
            feed = unpack_feed(packed)
            roots.update(_roots_of(feed.rows, feed.anchors))
        return roots

    def _end_child(self) -> None:
        """End the child, if there is one; the next question forks another one."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def _serve(self, channel: Channel) -> None:
        """Be the child: run the stage with guarded bolts, block by block, as long as the parent asks."""
        memory = self._memory
        memory.write_idle()
        try:
            guarded = guarded_pass(self._pass, memory, self._poison_finder.orders)
            bolts = [bolt_pass.bolt for bolt_pass in guarded.bolts]
            guards = [bolt.guard for bolt in bolts if isinstance(bolt, Guarded)]
            run = self._begin(guarded)
            channel.send(pack_answer(ChildAnswer(batches=[], report=None)))  # the stage has begun
            while frame := channel.receive():
                (number,) = _NUMBER.unpack_from(frame)
                packed = frame[_NUMBER.size :]
                for guard in guards:
                    guard.begin(number)
                channel.send(pack_answer(self._work(run, number, packed)))
        except Exception as error:  # noqa: BLE001 - the top of the child: what is raised here is raised in the task
            channel.send(pack_error(error))

    def _work(self, run: StageRun, number: int, packed: bytes) -> ChildAnswer:
        """Do in the child what `_ask` asks for, and return the answer."""
        if number == _FINISH:
            return ChildAnswer(run.finish(), run.report())
        feed = unpack_feed(packed)
        run.frame_rows_received = feed.rows_before
        run.gate = None if feed.gate_state is None else self._gate_of(feed.gate_state)
        batch = run.feed(feed.rows, feed.anchors)
        report = run.pop_report() if self._keeps_blocks else None
        return ChildAnswer([batch], report)

    def _gate_of(self, gate_state: GateState) -> Gate:
        """Return the child's gate of a partition, with what the gate of the task knows."""
        new_gate = Gate(gate_state.place, gate_state.operator, LineUp(PARTITION))
        gate = self._child_gates.setdefault(gate_state.place, new_gate)
        gate.add_state(gate_state)
        return gate


def can_keep_blocks(pass_: StagePass) -> bool:
    """Return whether a block is done when a child has returned it: no bolt holds anything beyond a
    call.
    """
    return all(not bolt_pass.hooks and _is_done_in_execute(bolt_pass.bolt) for bolt_pass in pass_.bolts)


def guarded_pass(pass_: StagePass, memory: CallMemory, orders: Orders) -> StagePass:
    """Return a stage whose bolts write their calls into `memory`, and do what `orders` says."""
    bolts = []
    for bolt_pass in pass_.bolts:
        bolt = guarded_bolt(bolt_pass.name, bolt_pass.bolt, memory, orders)
        bolts.append(replace(bolt_pass, bolt=bolt))
    return replace(pass_, bolts=tuple(bolts))


def _roots_of(rows: Rows, anchors: Anchors | None) -> Iterator[int]:
    """Yield the roots that rows descend from, as indices of the plan.

    Their anchors are in `anchors`, or in the rows themselves.
    """
    if isinstance(rows, ArrowRows):
        if rows.places is not None:
            yield from rows.places.roots.tolist()
        elif ANCHOR in rows.names:
            anchors = Anchors(Carry.HOPS, rows.batch.column(ANCHOR))
    if anchors is not None:
        for deliveries in anchors.deliveries():
            for delivery in deliveries:
                yield delivery.root


def _is_done_in_execute(bolt: AnyBolt) -> bool:
    """Return whether `execute` acks or fails a tuple before it returns, and `cleanup` does
    nothing.
    """
    if isinstance(bolt, Bolt):
        return False
    return type(bolt).cleanup in (BasicBolt.cleanup, ArrowBolt.cleanup)


class _Spool:
    """Blocks of rows, in order, to be read again and again; beyond `SPOOL_BYTES` in a file."""

    def __init__(self) -> None:
        """Begin without a block; the file is made when it is needed."""
        self._file: IO[bytes] = SpooledTemporaryFile(SPOOL_BYTES)  # noqa: SIM115 - `close` closes it

    def add(self, block: bytes) -> None:
        """Add a block behind all others."""
        self._file.seek(0, os.SEEK_END)
        self._file.write(_NUMBER.pack(len(block)) + block)

    def all(self) -> Iterator[bytes]:
        """Yield all blocks; nothing may be added meanwhile."""
        self._file.seek(0)
        while length := self._file.read(_NUMBER.size):
            (block_bytes,) = _NUMBER.unpack(length)
            yield self._file.read(block_bytes)

    def close(self) -> None:
        self._file.close()
