"""Damaged batches that a worker has met: the roots that lie in them wait, alone, and are tried again.

A *damaged run* is neighbouring offsets of a partition that cannot be read. It is
*put off* while nobody tries to read it.

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


class PutOffRun(NamedTuple):
    """A run that could not be read, and until when nobody tries again (wall time, ms)."""

    damaged_run: DamagedRun
    until_ms: int


class DamagedBatches:
    """The damaged batches that were met lately, by their partitions."""

    def __init__(self, retry_ms: int) -> None:
        """Begin with none; `retry_ms`: after so long what could not be read is tried again."""
        self._retry_ms = retry_ms
        # by (topic, partition): its runs that are put off
        self._put_off_by_partition: dict[tuple[str, int], list[PutOffRun]] = {}
        # by (topic, partition, end of a run): when it was reported last, wall time
        self._reported_at_ms_by_run: dict[tuple[str, int, int], int] = {}

    def put_off(self, damaged_runs: Iterable[DamagedRun], now_ms: int) -> None:
        """Put off the runs that a fetch has passed over: they are not read for `retry_ms`.

        If a run overlaps with one that is put off already, it is tried again
        when that one is, not later. Otherwise a batch through which other
        records are read all the time is put off again and again, and never
        tried.
        """
        for damaged_run in damaged_runs:
            start, end = damaged_run.start, damaged_run.end
            partition = (damaged_run.topic, damaged_run.partition)
            self._forget_due_for_retry(partition, now_ms)
            put_off_runs = self._put_off_by_partition.setdefault(partition, [])
            is_covered = False
            until_ms = now_ms + self._retry_ms
            for earlier in put_off_runs:
                earlier_run = earlier.damaged_run
                if earlier_run.start <= start and end <= earlier_run.end:
                    is_covered = True
                if earlier_run.start < end and start < earlier_run.end:  # they overlap
                    until_ms = min(until_ms, earlier.until_ms)
            # empty: the reader could read on, so nothing is damaged any more
            is_empty = start >= end
            if not is_empty and not is_covered:
                put_off_runs.append(PutOffRun(damaged_run, until_ms))

    def put_off_run_at(self, topic: str, partition: int, offset: int, now_ms: int) -> PutOffRun | None:
        """Return the run in which an offset lies that is put off; None: it may be read.

        Runs that are to be tried again now are forgotten.
        """
        if (topic, partition) not in self._put_off_by_partition:
            return None
        self._forget_due_for_retry((topic, partition), now_ms)
        for put_off_run in self._put_off_by_partition[topic, partition]:
            damaged_run = put_off_run.damaged_run
            if damaged_run.start <= offset < damaged_run.end:
                return put_off_run
        return None

    def record_report_if_due(self, run: DamagedRun, now_ms: int) -> bool:
        """Return whether a run is to be reported now; if so, record that it is.

        It is reported at once, and again when it has been tried again.
        """
        # fetches that begin at different offsets of a batch find the same end
        key = (run.topic, run.partition, run.end)
        reported_at_ms = self._reported_at_ms_by_run.get(key)
        # abs: a clock that was set back must not keep a report back for long
        if reported_at_ms is not None and abs(now_ms - reported_at_ms) < self._retry_ms:
            return False
        self._reported_at_ms_by_run[key] = now_ms
        return True

    def _forget_due_for_retry(self, partition: tuple[str, int], now_ms: int) -> None:
        """Forget the runs of a partition, (topic, number), that are to be tried again now."""
        put_off_runs = self._put_off_by_partition.get(partition, [])
        # more than `retry_ms` can only be left if the clock was set back: then
        # it is tried now
        self._put_off_by_partition[partition] = [
            put_off for put_off in put_off_runs if 0 < put_off.until_ms - now_ms <= self._retry_ms
        ]
