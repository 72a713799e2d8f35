"""What a planning process tells about itself: one JSON file, replaced whole.

A file survives the process, needs no port, and a reader never sees half of one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PlannerStatus:
    """A planning process as it is now.

    Attributes:
        state: ``idle``, ``taking`` (waiting for ackers), ``running``, ``failed``, or ``closed``; Spark
            kills the process at the end of a query, so the last word is mostly ``running``.
        group: the group.
        session: id of the session, empty before it is known; likewise `epoch`.
        epoch: see `session`.
        batches: micro-batches planned by this process.
        emitted: roots emitted by this process, copies on replay topics included.
        replayed: of these, copies on replay topics.
        pending: roots without a verdict.
        acked: roots settled ACKED while this process ran; the next four likewise.
        absent: see `acked`.
        failed: see `acked`.
        timed_out: see `acked`.
        abandoned: see `acked`.
        late: verdicts for roots that were settled before.
        unknown: verdicts for roots that this session never emitted.
        undecodable: records of the verdict topic that no acker wrote; they were passed over.
        lost_from_log: records that left the log before they were read (`on_data_loss: skip`).
        oldest_pending_ms: how long the longest pending root has waited, ms; 0: none is pending.
        batch_ms: how long the last batch took whose end was seen, ms; 0: none yet.
        batch_records_max: how many records the next batch may hold, so that it ends within a quarter of the
            timeout; 0: any number.
        clock: the session's clock, ms.
        committed: offset committed last, by ``topic/partition``.
        commit_failures: commits that failed and were tried again.
        held: roots that were held back while this process ran, behind a record that waits (`ordering`); each
            of them is among `failed`.
        held_now: of each partition of an ordered input how many of its records wait behind another, by
            ``topic/partition``, when it was last looked at.
        waits: what partitions of ordered inputs wait for, those that go on left out.
        error: why it stopped; empty while it runs.
        wall: when this was written, wall time in ms.
    """

    state: str
    group: str
    session: str = ""
    epoch: int = 0
    batches: int = 0
    emitted: int = 0
    replayed: int = 0
    pending: int = 0
    acked: int = 0
    absent: int = 0
    failed: int = 0
    timed_out: int = 0
    abandoned: int = 0
    late: int = 0
    unknown: int = 0
    undecodable: int = 0
    lost_from_log: int = 0
    oldest_pending_ms: int = 0
    batch_ms: int = 0
    batch_records_max: int = 0
    clock: int = 0
    committed: Mapping[str, int] = field(default_factory=dict)
    commit_failures: int = 0
    held: int = 0
    held_now: Mapping[str, int] = field(default_factory=dict)
    waits: Mapping[str, str] = field(default_factory=dict)
    error: str = ""
    wall: int = 0


def write_status(path: Path, status: PlannerStatus) -> None:
    """Replace the status file whole.

    Raises:
        OSError: the folder is not there or cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(asdict(status)) + "\n", encoding="utf-8")
    beside.replace(path)


def read_status(path: Path) -> PlannerStatus | None:
    """Return what a status file says; None: the planning process has not written one yet."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return PlannerStatus(**found)
