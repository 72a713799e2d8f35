"""Cuts what a batch comes to into blocks of the wire: each `Acks` and each `Fails` speaks of one.

A plan's ranges ascend, so a block is a stretch of indices: what concerns it is found by where that begins and
ends, in one search for all blocks, however many sources and causes there are. What a batch contributes to
roots of earlier batches is in positions already, and may stand in blocks of its own.

Source: docs/design/protocol.md, section 4 ("Wire").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from acker.identity import I64, U64, WIRE_BLOCK_BITS, root_edges
from acker.sorted_arrays import among
from acker.wire.events import PositionRun
from spout.planning.plan import by_block
from spout.publishing.delayed import Older
from spout.publishing.fold import Outcome
from spout.tuples.collector import Cause

NO_POSITIONS: I64 = np.empty(0, np.int64)
_NO_VALUES: U64 = np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True)
class Block:
    """What an outcome says of one block, in positions, ascending.

    `at` are the roots whose contribution, in `values`, is not their root edge; those of `runs` that it does
    not name, and that are neither failed nor absent, have theirs.
    """

    source: int
    number: int
    runs: tuple[PositionRun, ...] = ()
    causes: tuple[tuple[Cause, I64], ...] = ()
    absent: tuple[PositionRun, ...] = ()
    at: I64 = field(default_factory=NO_POSITIONS.copy)
    values: U64 = field(default_factory=_NO_VALUES.copy)
    touched: I64 = field(default_factory=NO_POSITIONS.copy)


def blocks_of(outcome: Outcome) -> Iterator[Block]:
    """Cut an outcome into blocks, ascending by source and number."""
    own = {(block.source, block.number): block for block in _own_blocks(outcome)}
    older = {(block.source, block.number): block for block in _older_blocks(outcome.older)}
    for key in sorted(own.keys() | older.keys()):
        yield _joined(own.get(key, Block(*key)), older[key]) if key in older else own[key]


def _own_blocks(outcome: Outcome) -> Iterator[Block]:
    """Cut what is said of the batch's own roots."""
    pieces = by_block(outcome.plan.ranges)
    absent = by_block(outcome.absent)
    bounds = np.cumsum([0, *(sum(end - start for start, end in runs) for runs in pieces.values())])
    at = _Positions(pieces)
    failed, number = _flat(outcome.failed)
    touched = outcome.touched[among(outcome.touched, outcome.partial)]
    columns = [(each, np.searchsorted(each, bounds).tolist()) for each in (failed, outcome.partial, touched)]
    for row, ((source, block), runs) in enumerate(pieces.items()):
        fails, partial, reset = (slice(ends[row], ends[row + 1]) for _, ends in columns)
        positions = at.of(outcome.partial[partial])
        yield Block(
            source, block, tuple(runs),
            _causes(outcome, at.of(failed[fails]), number[fails]),
            tuple(absent.get((source, block), ())),
            positions, root_edges(source, positions) ^ outcome.residual[partial], at.of(touched[reset]),
        )  # fmt: skip


def _older_blocks(older: Older) -> Iterator[Block]:
    """Cut what is said of the roots of earlier batches."""
    for source in older.sources:
        at, values = older.acked.get(source, (NO_POSITIONS, _NO_VALUES))
        failed = [(cause, found[source]) for cause, found in older.failed.items() if source in found]
        touched = older.touched.get(source, NO_POSITIONS)
        named = np.concatenate([at, touched, *(positions for _, positions in failed)])
        for number in np.unique(named >> WIRE_BLOCK_BITS).tolist():
            here = at >> WIRE_BLOCK_BITS == number
            parts = [
                (cause, positions[positions >> WIRE_BLOCK_BITS == number]) for cause, positions in failed
            ]
            causes = tuple((cause, part) for cause, part in parts if len(part))
            reset = touched[touched >> WIRE_BLOCK_BITS == number]
            yield Block(source, number, causes=causes, at=at[here], values=values[here], touched=reset)


def _joined(own: Block, older: Block) -> Block:
    """Join what is said of the roots of this batch and of earlier ones in one block; no root is in both."""
    causes: dict[Cause, list[I64]] = {}
    for cause, positions in (*own.causes, *older.causes):
        causes.setdefault(cause, []).append(positions)
    at, values = np.concatenate([own.at, older.at]), np.concatenate([own.values, older.values])
    order = np.argsort(at)
    return Block(
        own.source, own.number, own.runs,
        tuple((cause, np.sort(np.concatenate(found))) for cause, found in causes.items()),
        own.absent, at[order], values[order], np.sort(np.concatenate([own.touched, older.touched])),
    )  # fmt: skip


class _Positions:
    """Turns indices into a plan back into positions."""

    def __init__(self, pieces: Mapping[tuple[int, int], Sequence[PositionRun]]) -> None:
        runs = [run for of_block in pieces.values() for run in of_block]
        self._firsts = np.cumsum([0, *(end - start for start, end in runs)])[:-1]
        self._shifts = np.array([start for start, _ in runs], np.int64) - self._firsts

    def of(self, indices: I64) -> I64:
        """Return the position of each index, one for one."""
        if not len(indices):
            return NO_POSITIONS
        positions: I64 = indices + self._shifts[np.searchsorted(self._firsts, indices, side="right") - 1]
        return positions


def _flat(failed: Sequence[tuple[Cause, I64]]) -> tuple[I64, I64]:
    """Return all failed indices, ascending, and for each the number of its cause."""
    every = np.concatenate([NO_POSITIONS, *(indices for _, indices in failed)])
    number = np.repeat(np.arange(len(failed)), [len(indices) for _, indices in failed])
    order = np.argsort(every, kind="stable")
    return every[order], number[order]


def _causes(outcome: Outcome, positions: I64, number: I64) -> tuple[tuple[Cause, I64], ...]:
    """Group failed positions by the numbers of their causes."""
    if not len(positions):
        return ()
    order = np.argsort(number, kind="stable")
    named, firsts = np.unique(number[order], return_index=True)
    parts = np.split(positions[order], firsts[1:])
    return tuple((outcome.failed[n][0], part) for n, part in zip(named.tolist(), parts, strict=True))
