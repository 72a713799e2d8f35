"""The status of a planning process, and the file in which operators and the driver read it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PlannerStatus:
    """A planning process as it is now; roots are counted while this process ran.

    Attributes:
        state: ``idle``, ``taking`` (waiting for ackers), ``running``, ``failed``, or ``closed``; Spark kills
            the process at the end of a query, so the last one that is written is mostly ``running``.
        session, epoch: of the session; empty before there is one.
        emitted: roots emitted, copies on replay topics included.
        replayed: of these, copies on replay topics.
        pending: roots without a verdict.
        late: verdicts for roots that were settled before.
        unknown: verdicts for roots that this session never emitted.
        undecodable: records of the verdict topic that no acker wrote; they were passed over.
        lost_from_log: records that left the log before they were read (`on_data_loss: skip`).
        oldest_pending_ms: how long the longest pending root has waited, ms; 0: none is pending.
        batch_ms: how long the last batch took whose end was seen, ms; 0: none yet.
        batch_records_max: how many records the next batch may hold, so that it ends within a quarter of the
            timeout; 0: any number.
        limit_hits: how often a batch was chosen while an input had `max_spout_pending` roots pending.
        committed: offset committed last, by ``topic/partition``.
        held: roots that were blocked behind a record that waits (`ordering`); they are among `failed`.
        held_now: of each partition of an ordered input how many of its records wait behind another, by
            ``topic/partition``, when it was last looked at.
        waits: what partitions of ordered inputs wait for, those that go on left out.
        stands: partitions that have no leader, or of which nothing arrives, by ``topic/partition``, and why.
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
    limit_hits: int = 0
    clock: int = 0
    committed: Mapping[str, int] = field(default_factory=dict)
    commit_failures: int = 0
    held: int = 0
    held_now: Mapping[str, int] = field(default_factory=dict)
    stands: Mapping[str, str] = field(default_factory=dict)
    waits: Mapping[str, str] = field(default_factory=dict)
    error: str = ""
    wall: int = 0


_FIELDS = frozenset(status_field.name for status_field in fields(PlannerStatus))


def write_status(path: Path, status: PlannerStatus) -> None:
    """Replace the status file; raise OSError if its folder is not there or cannot be written."""
    # replaced whole, so that nobody reads half of one; another thread may write at the same time
    beside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    beside.write_text(json.dumps(asdict(status)) + "\n", encoding="utf-8")
    beside.replace(path)


def read_status(path: Path) -> PlannerStatus | None:
    """Return what a status file says; None: the planning process has not written one yet.

    A file that the user names may still be another version's.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return PlannerStatus(**{name: value for name, value in json.loads(text).items() if name in _FIELDS})
