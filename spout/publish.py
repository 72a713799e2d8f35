"""From the outcome of a micro-batch to the records that tell the ackers; pure.

One `Acks` and at most one `Fails` for each block of 32,768 positions of one source. Records are canonical:
everything ascending, every root whose contribution is its root edge in a run. So a batch that is published
again is recognised by its bytes.

Source: DESIGN.md, section 4 ("Wire", "Fine print").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypedDict

import numpy as np

from acker.events import Acks, FailCause, Fails, Run, SourceRun, pack_positions, pack_values, runs_of
from acker.identity import I64, U64, WIRE_BLOCK_BITS, root_edges
from spout.collector import Cause, cut
from spout.fold import Outcome
from spout.plan import BatchPlan

CAUSES_MAX = 256
"""Causes in one record; 256 messages of 500 bytes and 32,768 positions stay below 900,000 bytes."""

BATCH_SKIPPED = "BATCH_SKIPPED"
"""The error of roots whose batch the sink had written before; see `spout.skipped`."""


@dataclass(frozen=True, slots=True)
class Publication:
    """The records of one batch. `fails` must be durable before the first of `acks` is sent."""

    fails: tuple[Fails, ...]
    acks: tuple[Acks, ...]


@dataclass(frozen=True, slots=True)
class Lane:
    """Who publishes: `name` is ``<query id>/<session>``, `seq` the micro-batch id."""

    name: str
    seq: int


def skipped(plan: BatchPlan, absent: Iterable[SourceRun] = ()) -> Outcome:
    """Return the outcome of a batch that the sink skipped: every root that has a record is failed."""
    message = "the sink had written this batch before; its bolts may have done something else this time"
    holes = tuple(sorted(set(absent)))
    left = np.ones(plan.count, np.bool_)
    for source, start, end in holes:
        first = int(plan.index_of(source, np.array([start]))[0])
        left[first : first + end - start] = False
    return Outcome(plan, ((Cause("sink", BATCH_SKIPPED, message), np.flatnonzero(left)),), holes)


def publication_of(outcome: Outcome, lane: Lane) -> Publication:
    """Write an outcome as records, ascending by source and block."""
    fails: list[Fails] = []
    acks: list[Acks] = []
    for block in _blocks(outcome):
        if block.causes:
            fails.append(_fails(block, outcome.plan, lane))
        record = _acks(block, outcome.plan, lane)
        if record.runs or record.positions or record.absent or record.touched:
            acks.append(record)
    return Publication(tuple(fails), tuple(acks))


@dataclass(frozen=True, slots=True)
class _Block:
    """What an outcome says of one block, in positions, ascending."""

    source: int
    number: int
    runs: tuple[Run, ...]
    causes: tuple[tuple[Cause, I64], ...]
    absent: tuple[Run, ...]
    partial: I64
    residual: U64
    touched: I64


def _blocks(outcome: Outcome) -> Iterator[_Block]:
    """Cut an outcome into blocks."""
    positions = _Positions(outcome.plan)
    causes = [(cause, positions.of(indices)) for cause, indices in outcome.failed]
    partial = positions.of(outcome.partial)
    touched = positions.of(np.intersect1d(outcome.touched, outcome.partial))
    for source, runs in groupby(outcome.plan.ranges, key=lambda run: run.source):
        here = [(cause, found[source]) for cause, found in causes if source in found]
        at, which = partial.get(source, (_NO_POSITIONS, _NO_POSITIONS))
        absent = [Run(run.start, run.end) for run in outcome.absent if run.source == source]
        reset = touched.get(source, (_NO_POSITIONS, _NO_POSITIONS))[0]
        for number, pieces in _cut(Run(run.start, run.end) for run in runs):
            low, high = number << WIRE_BLOCK_BITS, (number + 1) << WIRE_BLOCK_BITS
            inside = slice(*np.searchsorted(at, [low, high]).tolist())
            yield _Block(
                source,
                number,
                pieces,
                tuple((c, _between(p, low, high)) for c, (p, _) in here if len(_between(p, low, high))),
                tuple(
                    Run(max(r.start, low), min(r.end, high)) for r in absent if r.start < high and low < r.end
                ),
                at[inside],
                outcome.residual[which[inside]],
                _between(reset, low, high),
            )


_NO_POSITIONS: I64 = np.empty(0, np.int64)


class _Positions:
    """Turns indices into a plan back into positions."""

    def __init__(self, plan: BatchPlan) -> None:
        self._runs = list(zip(plan.ranges, plan.starts(), strict=True))

    def of(self, indices: I64) -> dict[int, tuple[I64, I64]]:
        """Return, for each source that has some, ascending positions and their places in `indices`."""
        found: dict[int, list[tuple[I64, I64]]] = {}
        if not len(indices):
            return {}
        for run, first in self._runs:
            low, high = np.searchsorted(indices, [first, first + run.end - run.start]).tolist()
            if low < high:
                found.setdefault(run.source, []).append(
                    (indices[low:high] - first + run.start, np.arange(low, high))
                )
        return {
            source: (np.concatenate([p for p, _ in parts]), np.concatenate([w for _, w in parts]))
            for source, parts in found.items()
        }


def _cut(runs: Iterable[Run]) -> Iterator[tuple[int, tuple[Run, ...]]]:
    """Cut ascending runs at the edges of blocks; return each block with what lies in it."""
    pieces: dict[int, list[Run]] = {}
    for start, end in runs:
        while start < end:
            number = start >> WIRE_BLOCK_BITS
            edge = min(end, (number + 1) << WIRE_BLOCK_BITS)
            pieces.setdefault(number, []).append(Run(start, edge))
            start = edge
    return ((number, tuple(pieces[number])) for number in sorted(pieces))


def _between(ascending: I64, low: int, high: int) -> I64:
    start, end = np.searchsorted(ascending, [low, high]).tolist()
    return ascending[start:end]


def _acks(block: _Block, plan: BatchPlan, lane: Lane) -> Acks:
    """Write what a block's roots got; failed ones are left out, and so is a contribution of 0."""
    failed = [positions for _, positions in block.causes]
    partial = ~np.isin(block.partial, np.concatenate([_NO_POSITIONS, *failed]))
    at = block.partial[partial]
    value = root_edges(block.source, at) ^ block.residual[partial]
    said = value != 0
    elsewhere = [runs_of(np.sort(np.concatenate([*failed, at])))] if failed or len(at) else []
    return Acks(
        **_header(block, plan, lane),
        runs=_without(block.runs, sorted([*block.absent, *(run for runs in elsewhere for run in runs)])),
        positions=pack_positions(at[said]),
        values=pack_values(value[said]),
        absent=_joined(block.absent),
        touched=pack_positions(np.intersect1d(block.touched, at)),
        touched_at=plan.now,
    )


class _Header(TypedDict):
    """What every record begins with."""

    lane: str
    seq: int
    group: str
    session: str
    epoch: int
    source: int
    block: int


def _header(block: _Block, plan: BatchPlan, lane: Lane) -> _Header:
    return _Header(
        lane=lane.name, seq=lane.seq, group=plan.group, session=plan.session, epoch=plan.epoch,
        source=block.source, block=block.number,
    )  # fmt: skip


def _joined(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Join ascending runs that touch each other."""
    joined: list[Run] = []
    for run in runs:
        if joined and joined[-1].end == run.start:
            joined[-1] = Run(joined[-1].start, run.end)
        else:
            joined.append(run)
    return tuple(joined)


def _without(runs: Sequence[Run], taken: Sequence[Run]) -> tuple[Run, ...]:
    """Return what is left of ascending runs without others, ascending and joined."""
    left: list[Run] = []
    place = 0
    for start, end in runs:
        while place < len(taken) and taken[place].end <= start:
            place += 1
        at = place
        while at < len(taken) and taken[at].start < end:
            if start < taken[at].start:
                left.append(Run(start, taken[at].start))
            start = max(start, taken[at].end)
            at += 1
        if start < end:
            left.append(Run(start, end))
    return _joined(left)


def _fails(block: _Block, plan: BatchPlan, lane: Lane) -> Fails:
    causes = merge_causes(block.causes)
    return Fails(
        **_header(block, plan, lane),
        causes=tuple(FailCause(*cause, pack_positions(positions)) for cause, positions in causes),
    )


def merge_causes(causes: Sequence[tuple[Cause, I64]], limit: int = CAUSES_MAX) -> list[tuple[Cause, I64]]:
    """Bring causes down to a limit: more of one operator and error share an entry.

    Returns:
        At most `limit` causes, ascending, each with ascending positions. The shared entry's message is
        "and n more, first: …".
    """
    if len(causes) <= limit:
        return sorted(causes, key=lambda pair: pair[0])
    kinds = [list(same) for _, same in groupby(sorted(causes, key=lambda pair: pair[0]), key=_kind)]
    share = limit // len(kinds)
    if not share:
        return [_shared([pair for kind in kinds for pair in kind])]
    merged: list[tuple[Cause, I64]] = []
    for kind in kinds:
        merged += kind if len(kind) <= share else [*kind[: share - 1], _shared(kind[share - 1 :])]
    return sorted(merged, key=lambda pair: pair[0])


def _kind(pair: tuple[Cause, I64]) -> tuple[str, str]:
    return pair[0].operator, pair[0].error


def _shared(causes: Sequence[tuple[Cause, I64]]) -> tuple[Cause, I64]:
    first = causes[0][0]
    message = cut(f"and {len(causes) - 1} more, first: {first.message}")
    return Cause(first.operator, first.error, message), np.sort(np.concatenate([p for _, p in causes]))
