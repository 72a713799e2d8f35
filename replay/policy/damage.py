"""Damaged batches that a worker has met: the roots that lie in them wait, alone, and are tried again.

A worker knows what it met itself, and forgets it when the roots are tried
again: another replica may lead the partition by then. A new owner of a verdict
partition meets it anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from acker.errors import UnreadableKind
from acker.kafka.port import DamagedRun

_LET_THEM_DIE: Final = (
    "set on_data_loss: skip for the input and send the replay workers SIGHUP: each of them becomes a dead"
    " letter without payload then"
)
_HELD_UP_CURES: Final = {
    UnreadableKind.DAMAGED: f"Bring back a replica of the partition that is whole; or {_LET_THEM_DIE}",
    UnreadableKind.OVERSIZED: (
        f"Let its writer cut what it writes: every replica has it so. And {_LET_THEM_DIE}"
    ),
    UnreadableKind.NOT_UNPACKED: (
        f"Let its writer send smaller batches: every replica has it so. And {_LET_THEM_DIE}"
    ),
}


def held_up_cure(kind: UnreadableKind) -> str:
    """Return what to do about roots that wait, since their records cannot be read."""
    return _HELD_UP_CURES[kind]


class HeldUp(NamedTuple):
    """A run of offsets that cannot be read, and until when nobody tries (wall time, ms)."""

    run: DamagedRun
    until_ms: int


class DamagedBatches:
    """The damaged batches that were met lately, by their partitions."""

    def __init__(self, retry_ms: int) -> None:
        """Begin with none; `retry_ms`: after so long what could not be read is tried again."""
        self._retry_ms = retry_ms
        # by topic and partition
        self._held_up_by_partition: dict[tuple[str, int], list[HeldUp]] = {}
        # by topic, partition and end of a run
        self._reported_ms: dict[tuple[str, int, int], int] = {}

    def record(self, runs: Iterable[DamagedRun], now_ms: int) -> None:
        """Record the damaged runs that a fetch has passed over: they are not read for `retry_ms`.

        A run that overlaps with a recorded one is tried again when that is,
        not later. Else a batch through which other records are read all the
        time would be put off again and again, and never tried.
        """
        for run in runs:
            self._forget_past((run.topic, run.partition), now_ms)
            held_up_runs = self._held_up_by_partition.setdefault((run.topic, run.partition), [])
            overlapping = [
                held_up
                for held_up in held_up_runs
                if held_up.run.start < run.end and run.start < held_up.run.end
            ]
            is_recorded = any(
                held_up.run.start <= run.start and run.end <= held_up.run.end for held_up in overlapping
            )
            if run.start < run.end and not is_recorded:
                retry_ms = now_ms + self._retry_ms
                until_ms = min((held_up.until_ms for held_up in overlapping), default=retry_ms)
                held_up_runs.append(HeldUp(run, until_ms))

    def held_up_at(self, topic: str, partition: int, offset: int, now_ms: int) -> HeldUp | None:
        """Return the damaged run in which an offset lies that is not to be read now; None: read it."""
        if (topic, partition) not in self._held_up_by_partition:
            return None
        self._forget_past((topic, partition), now_ms)
        for held_up in self._held_up_by_partition[topic, partition]:
            if held_up.run.start <= offset < held_up.run.end:
                return held_up
        return None

    def take_due_report(self, run: DamagedRun, now_ms: int) -> bool:
        """Return whether a run is to be reported now; if so, record that it is.

        It is reported at once, and again when it has been tried again.
        """
        # fetches that begin at different offsets of a batch find the same end
        key = run.topic, run.partition, run.end
        reported_ms = self._reported_ms.get(key)
        # abs: a clock that was set back must not keep a report back for long
        if reported_ms is not None and abs(now_ms - reported_ms) < self._retry_ms:
            return False
        self._reported_ms[key] = now_ms
        return True

    def _forget_past(self, partition: tuple[str, int], now_ms: int) -> None:
        """Forget the runs of a partition that are to be tried again now."""
        held_up_runs = self._held_up_by_partition.get(partition, [])
        # more than `retry_ms` can only be left if the clock was set back: then
        # it is tried now
        self._held_up_by_partition[partition] = [
            held_up for held_up in held_up_runs if 0 < held_up.until_ms - now_ms <= self._retry_ms
        ]
