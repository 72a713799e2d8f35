"""From the outcome of a micro-batch to the records that tell the ackers; pure.

One `Acks` and at most one `Fails` for each block of 32,768 positions of one source. Records are canonical:
everything ascending, every root whose contribution is its root edge in a run. So a batch that is published
again is recognised by its bytes.

Source: docs/design/protocol.md, section 4 ("Wire", "Fine print").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypedDict

import numpy as np

from acker.identity import I64
from acker.wire.events import (
    Acks,
    FailCause,
    Fails,
    SourceRun,
    difference,
    joined_runs,
    pack_positions,
    pack_values,
    runs_of,
    united,
)
from spout.planning.plan import BatchPlan
from spout.publishing.blocks import NO_POSITIONS, Block, blocks_of
from spout.publishing.fold import Outcome
from spout.tuples.collector import Cause, cut_text

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
    holes = united(absent)  # of several evaluations, between which records may have left the log
    left = np.ones(plan.count, np.bool_)
    for source, start, end in holes:
        first = int(plan.index_of(source, np.array([start]))[0])
        left[first : first + end - start] = False
    return Outcome(plan, ((Cause("sink", BATCH_SKIPPED, message), np.flatnonzero(left)),), holes)


def publication_of(outcome: Outcome, lane: Lane) -> Publication:
    """Write an outcome as records, ascending by source and block."""
    fails: list[Fails] = []
    acks: list[Acks] = []
    for block in blocks_of(outcome):
        if block.causes:
            fails.append(_fails(block, outcome.plan, lane))
        record = _acks(block, outcome.plan, lane)
        if record.runs or record.positions or record.absent or record.touched:
            acks.append(record)
    return Publication(tuple(fails), tuple(acks))


def _acks(block: Block, plan: BatchPlan, lane: Lane) -> Acks:
    """Write what a block's roots got; failed ones are left out, and so is a contribution of 0."""
    failed = [positions for _, positions in block.causes]
    taken = np.concatenate([NO_POSITIONS, *failed])
    kept = ~np.isin(block.at, taken)
    at, value = block.at[kept], block.values[kept]
    said = value != 0
    elsewhere = runs_of(np.sort(np.concatenate([taken, at]))) if failed or len(at) else []
    return Acks(
        **_header(block, plan, lane),
        runs=tuple(joined_runs(difference(block.runs, sorted([*block.absent, *elsewhere])))),
        positions=pack_positions(at[said]),
        values=pack_values(value[said]),
        # One that failed in one evaluation may have left the log before the next: it is lost, not absent.
        absent=tuple(joined_runs(difference(block.absent, runs_of(np.sort(taken))))),
        touched=pack_positions(block.touched[~np.isin(block.touched, taken)]),
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


def _header(block: Block, plan: BatchPlan, lane: Lane) -> _Header:
    return _Header(
        lane=lane.name, seq=lane.seq, group=plan.group, session=plan.session, epoch=plan.epoch,
        source=block.source, block=block.number,
    )  # fmt: skip


def _fails(block: Block, plan: BatchPlan, lane: Lane) -> Fails:
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
    message = cut_text(f"and {len(causes) - 1} more, first: {first.message}")
    return Cause(first.operator, first.error, message), np.sort(np.concatenate([p for _, p in causes]))
