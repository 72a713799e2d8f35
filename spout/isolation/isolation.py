"""A stage whose bolts run in a child process, where a tuple that kills or hangs it is found.

The worker reads, keeps the task's report and talks to Spark; it runs no code of bolts. A *child*, a
process that it forks, runs the very stage that the worker would have run, with each bolt guarded
(`spout.execution.guards`). The worker, its *parent*, sends it one *block* of rows after the other,
and gets back what leaves the stage. A *poison* tuple kills or hangs the child; then the parent
forks the next one. What a child that ended had done is kept or done again:

* A stage of bolts that settle a tuple when `execute` returns, and do nothing
  in `cleanup`: each block that the child returned is kept; the next
  child goes on with the block in which it ended.
* Any other stage (rich bolts, a `cleanup` of their own, hooks) may hold
  tuples, or work that is not written yet, over many rows. What it held has
  died with the child: the next child begins with the task's first row, and
  nothing leaves the task before a child has cleaned up. For that all blocks are kept in a *spool*.
  Such a bolt may end its process by what it holds: when it does so in `cleanup`, or at more tuples
  than a few, the poison is searched for by trial (`spout.tuples.poison.PoisonSearch`).

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
from acker.waits import SteadyMs, steady_ms
from spout.bolts.bolts import AnyBolt, ArrowBolt, BasicBolt, Bolt
from spout.bolts.hooks import BoltContext
from spout.execution.guards import CallMemory, Guarded, guarded_bolt
from spout.execution.stage_run import StageRun
from spout.isolation.child_process import Channel, ChildEnded, ChildProcess
from spout.isolation.feeds import (
    BLOCK_ROWS,
    ChildAnswer,
    RowBlock,
    pack_answer,
    pack_block,
    pack_error,
    unpack_answer,
    unpack_block,
)
from spout.isolation.hang_notes import HangNote
from spout.isolation.poison_finder import PoisonFinder
from spout.planning.order import PARTITION, Gate, GateState, LineUp
from spout.publishing.fold import TaskReport, merged
from spout.publishing.root_marks import NUMBERED, PLANNED, RootMark, RootMarks, roots_of
from spout.topology.stage_pass import BoltPass, StagePass
from spout.tuples.anchors import AnchorForm, Anchors
from spout.tuples.columns import ANCHOR
from spout.tuples.poison import Orders
from spout.tuples.rows import ArrowRows, one_batch
from spout.tuples.tuple import Rows

SPOOL_BYTES: Final = 64 * 1024 * 1024
"""Blocks that are kept for another child go to a file beyond this."""

_FINISH: Final = -1
"""Is sent in the place of a block's number: finish the stage, clean up, and report."""

_NUMBER = struct.Struct("!q")
"""A number before other bytes: that of a block, or how many bytes follow."""

_NO_BLOCK: Final = b""
"""What is sent behind `_FINISH`."""

Begin = Callable[[StagePass], StageRun]
"""Starts a stage in the process that calls it."""


class IsolatedRun:
    """A stage at work in one task, in a child of this process."""

    def __init__(
        self,
        stage: StagePass,
        context: BoltContext,
        limit_ms: int,
        begin: Begin,
        *,
        earlier_hang: HangNote | None = None,
        clock_ms: SteadyMs = steady_ms,
    ) -> None:
        """Prepare; no child is forked before there are rows.

        Args:
            stage: the stage.
            context: of its bolts.
            limit_ms: how long one call of a bolt may last; 0: for ever.
            begin: starts the stage; the child calls it.
            earlier_hang: the call that hung when Spark tried this task before, without a child;
                None: none did.
            clock_ms: a clock that nobody can set.
        """
        # which records are blocked behind a failed one; None: the order of the records does not
        # matter
        self.gate: Gate | None = None
        # in the child: by topic and partition, its own gate, to which the parent sends what the
        # gate above knows
        self._child_gates: dict[str, Gate] = {}
        self._stage = stage
        self._limit_ms = limit_ms
        self._clock_ms = clock_ms
        self._begin = begin
        self._reports: list[TaskReport] = []  # of what is kept: each a block's, or the whole task's
        # shared with the child, which writes the call down that it is about to make
        self._memory = CallMemory([bolt_pass.name for bolt_pass in stage.bolts])
        self._child: ChildProcess | None = None
        # True: a block that a child has returned is done, and its rows leave. False: rows
        # leave at the end alone, and a new child begins again with the first row
        self._keeps_blocks = can_keep_blocks(stage)
        self._poison_finder = PoisonFinder(
            context,
            limit_ms,
            bolts_may_hold=not self._keeps_blocks,
            earlier_hang=earlier_hang,
        )
        # Small blocks, since the one in which a child ends is worked on again. An Arrow bolt gets
        # its batches as the task gets them
        has_arrow_bolt = any(isinstance(bolt_pass.bolt, ArrowBolt) for bolt_pass in stage.bolts)
        self._cuts_into_blocks = self._keeps_blocks and not has_arrow_bolt
        self._row_count = 0  # rows that the task has got so far
        self._block_count = 0  # blocks that were sent to children; the first one has the number 1
        self._spool = _Spool()  # all blocks, if a new child begins with the first row; else empty

    def feed(self, rows: Rows, anchors: Anchors | None) -> pa.RecordBatch:
        """Have a child work on rows; return those that leave now (else `finish` returns them)."""
        all_rows = RowBlock(rows, anchors, rows_before=self._row_count)
        self._row_count += len(rows)
        blocks = all_rows.cut(BLOCK_ROWS) if self._cuts_into_blocks else [all_rows]
        leaving: list[pa.RecordBatch] = []
        for block in blocks:
            leaving += self._work_on_block(block)
        return one_batch(leaving, self._stage.leaving_schema, self._stage.name)

    def finish(self) -> list[pa.RecordBatch]:
        """Have a child finish the stage, and clean up; return the rows that leave by that.

        Where blocks are not kept, a child does everything now, from the first block in the spool
        on. It is repeated until no child ends, and only poison was withheld from the last one.
        """
        if self._keeps_blocks:
            return self._keep_answer(self._ask_until_answered(_FINISH, _NO_BLOCK))
        while True:
            try:
                answer = self._ask_for_everything()
            except ChildEnded as end:
                self._change_orders(end)
                continue
            if self._poison_finder.record_success():
                return self._keep_answer(answer)
            self._end_child()  # it was a trial, in which tuples were withheld that are no poison

    def report(self) -> TaskReport:
        """Return what children reported whose work was kept, and which calls passed later.

        A call that *passed* is one at which a child ended, and no child when it was made again.
        """
        # by what roots are named: their index in the batch's plan; or, behind a keyed bolt, which
        # holds roots of earlier batches, the edge of the held tuple
        root_source = NUMBERED if self._stage.is_behind_keyed else PLANNED
        report = merged(self._reports)
        marks_of_passed: list[RootMarks] = []
        for number, call in enumerate(self._poison_finder.passed_calls()):
            roots = roots_of(root_source, call.roots)
            # roots with the same number are those of one call
            call_numbers = np.full(len(call.roots), number)
            marks = RootMarks.of_roots(RootMark.PASSED, roots, call_numbers, call.cause)
            marks_of_passed.append(marks)
        return replace(report, marks=RootMarks.together([report.marks, *marks_of_passed]))

    def close(self) -> None:
        """End the child, if there is one, and drop the spool."""
        self._end_child()
        self._spool.close()

    def _work_on_block(self, block: RowBlock) -> list[pa.RecordBatch]:
        """Have a child work on a block, and return the rows that leave.

        Where blocks are not kept, put it into the spool, and return nothing.
        """
        # the state of the gate is taken only now: rows of the blocks before may have failed,
        # and block rows of this one
        if self.gate is not None and block.anchors is not None:
            gate_state = self.gate.state_for(block.anchors.roots().tolist())
            block = block._replace(gate_state=gate_state)
        packed_block = pack_block(block)
        if not self._keeps_blocks:
            self._spool.add(packed_block)
            return []
        self._block_count += 1
        return self._keep_answer(self._ask_until_answered(self._block_count, packed_block))

    def _keep_answer(self, answer: ChildAnswer) -> list[pa.RecordBatch]:
        """Keep a child's report, block rows behind those that failed; return the rows."""
        if answer.report is None:
            raise TrackingError(f"a child of {self._stage.name!r} reported nothing")
        self._reports.append(answer.report)
        if self.gate is not None:
            failed = answer.report.marks.of(RootMark.FAILED)
            self.gate.fail_all(failed.positions.tolist())
        return answer.batches

    def _ask_for_everything(self) -> ChildAnswer:
        """Have one child do everything, from the first row to the report; or raise `ChildEnded`."""
        leaving: list[pa.RecordBatch] = []
        for block_number, packed_block in enumerate(self._spool.all(), start=1):
            leaving += self._ask_child(block_number, packed_block).batches
        end_answer = self._ask_child(_FINISH, _NO_BLOCK)
        return ChildAnswer(leaving + end_answer.batches, end_answer.report)

    def _ask_child(self, block_number: int, packed_block: bytes) -> ChildAnswer:
        """Send a block, or `_FINISH`, to the child, or to a new one; return the answer.

        Raises `ChildEnded`, or what was raised in the child.
        """
        if self._child is None:
            self._child = ChildProcess(
                self._serve_parent,
                self._memory,
                self._limit_ms,
                self._clock_ms,
            )
            # its first answer says only that the stage has begun; raises what was raised instead
            unpack_answer(self._child.ask())
        return unpack_answer(self._child.ask(_NUMBER.pack(block_number) + packed_block))

    def _ask_until_answered(self, block_number: int, packed_block: bytes) -> ChildAnswer:
        """Send a block, or `_FINISH` with no block, to a child; return the answer.

        If the child ends, it is sent to a new one, until one answers. What each child that ended
        was called for changes the orders of the next one.
        Raises `WorkerLost`: as `PoisonFinder.record_child_end`.
        """
        while True:
            try:
                return self._ask_child(block_number, packed_block)
            except ChildEnded as end:
                self._change_orders(end)

    def _change_orders(self, end: ChildEnded) -> None:
        """Find out at which call a child ended, and change the orders for the next one.

        Raises `WorkerLost`: as `PoisonFinder.record_child_end`.
        """
        self._end_child()
        last_call = self._memory.read_last_call()
        needs_search = self._poison_finder.record_child_end(end, last_call)
        if needs_search:
            self._poison_finder.begin_search(end, last_call, suspects=self._spooled_roots())

    def _spooled_roots(self) -> set[int]:
        """Return the roots of all rows in the spool, as indices of the plan."""
        roots: set[int] = set()
        for packed_block in self._spool.all():
            block = unpack_block(packed_block)
            roots.update(_roots_of(block.rows, block.anchors))
        return roots

    def _end_child(self) -> None:
        """End the child, if there is one; the next question forks another one."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def _serve_parent(self, channel: Channel) -> None:
        """Be the child: run the stage with guarded bolts, as long as the parent asks.

        `channel`: to the parent; each question gets an answer.
        """
        memory = self._memory
        memory.write_idle()
        try:
            guarded = guarded_pass(self._stage, memory, self._poison_finder.orders)
            bolts = [bolt_pass.bolt for bolt_pass in guarded.bolts]
            guards = [bolt.guard for bolt in bolts if isinstance(bolt, Guarded)]
            run = self._begin(guarded)
            channel.send(pack_answer(ChildAnswer(batches=[], report=None)))  # the stage has begun
            while question := channel.receive():
                (block_number,) = _NUMBER.unpack_from(question)
                packed_block = question[_NUMBER.size :]
                for guard in guards:
                    guard.begin_block(block_number)
                answer = self._answer_of_child(run, block_number, packed_block)
                channel.send(pack_answer(answer))
        except Exception as error:  # noqa: BLE001 - the top of the child: what is raised here is raised in the task
            channel.send(pack_error(error))

    def _answer_of_child(
        self,
        run: StageRun,
        block_number: int,
        packed_block: bytes,
    ) -> ChildAnswer:
        """In the child: work on a block, or finish the stage, and return what is sent back."""
        if block_number == _FINISH:
            return ChildAnswer(run.finish(), run.report())
        block = unpack_block(packed_block)
        # another child may have worked on the rows before, so the stage cannot have counted them
        run.frame_rows_received = block.rows_before
        run.gate = None
        if block.gate_state is not None:
            run.gate = self._updated_child_gate(block.gate_state)
        leaving = run.feed(block.rows, block.anchors)
        # where blocks are not kept, one report is enough: that of `_FINISH`
        report = run.pop_report() if self._keeps_blocks else None
        return ChildAnswer([leaving], report)

    def _updated_child_gate(self, gate_state: GateState) -> Gate:
        """Return the child's gate of a partition, after adding what the parent's gate knows."""
        new_gate = Gate(gate_state.partition_name, gate_state.operator, LineUp(PARTITION))
        gate = self._child_gates.setdefault(gate_state.partition_name, new_gate)
        gate.add_state(gate_state)
        return gate


def can_keep_blocks(stage: StagePass) -> bool:
    """Return whether no bolt holds anything beyond a call, so that a returned block is done."""
    return all(not bolt_pass.hooks and _is_done_in_execute(bolt_pass.bolt) for bolt_pass in stage.bolts)


def guarded_pass(stage: StagePass, memory: CallMemory, orders: Orders) -> StagePass:
    """Return a stage whose bolts write down their calls, and make them as `orders` says."""
    bolts: list[BoltPass] = []
    for bolt_pass in stage.bolts:
        bolt = guarded_bolt(bolt_pass.name, bolt_pass.bolt, memory, orders)
        bolts.append(replace(bolt_pass, bolt=bolt))
    return replace(stage, bolts=tuple(bolts))


def _roots_of(rows: Rows, anchors: Anchors | None) -> Iterator[int]:
    """Yield the roots that rows descend from, as their indices in the batch's plan.

    A root may come several times.

    `anchors`: of the rows; None: rows of a stage before have them as places or in a column; other
    rows have none.
    """
    if isinstance(rows, ArrowRows):
        if rows.places is not None:  # then there is neither a column nor `anchors`
            yield from rows.places.roots.tolist()
        elif ANCHOR in rows.names:
            # rows of the stage before have their places in this form
            anchors = Anchors(AnchorForm.HOPS, rows.batch.column(ANCHOR))
    if anchors is not None:
        for deliveries in anchors.deliveries():
            for delivery in deliveries:
                yield delivery.root


def _is_done_in_execute(bolt: AnyBolt) -> bool:
    """Return whether a bolt settles a tuple before `execute` returns, and has no `cleanup`."""
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
        while packed_size := self._file.read(_NUMBER.size):
            (block_bytes,) = _NUMBER.unpack(packed_size)
            yield self._file.read(block_bytes)

    def close(self) -> None:
        self._file.close()
