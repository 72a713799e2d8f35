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
    """Offsets that cannot be read, and until when nobody tries (wall time, ms)."""

    run: DamagedRun
    until_ms: int


class DamagedBatches:
    """The damaged batches that were met lately, by their partitions."""

    def __init__(self, retry_ms: int) -> None:
        """Begin with none; `retry_ms`: after so long what could not be read is tried again."""
        self._retry_ms = retry_ms
        self._held_up: dict[tuple[str, int], list[HeldUp]] = {}  # by topic and partition
        self._reported_ms: dict[tuple[str, int, int], int] = {}  # by topic, partition and end of a run

    def note(self, runs: Iterable[DamagedRun], now_ms: int) -> None:
        """Record what a fetch has passed over.

        Of a batch that is known in part the rest is tried again together with
        that, and not later: else a batch through which others are read all the
        time would never be tried again.
        """
        for run in runs:
            held_up = self._without_past((run.topic, run.partition), now_ms)
            retries_ms: list[int] = []  # of those that the run overlaps with
            is_known = False
            for known in held_up:
                if known.run.start < run.end and run.start < known.run.end:
                    retries_ms.append(known.until_ms)
                    is_known |= known.run.start <= run.start and run.end <= known.run.end
            if run.start < run.end and not is_known:
                until_ms = min(retries_ms, default=now_ms + self._retry_ms)
                held_up.append(HeldUp(run, until_ms))

    def holding(self, topic: str, partition: int, offset: int, now_ms: int) -> HeldUp | None:
        """Return the run in which an offset lies that is not to be read now; None: read it."""
        place = (topic, partition)
        if place not in self._held_up:
            return None
        for held_up in self._without_past(place, now_ms):
            if held_up.run.start <= offset < held_up.run.end:
                return held_up
        return None

    def is_to_report(self, run: DamagedRun, now_ms: int) -> bool:
        """Return whether a run is to be reported now, and record that it is.

        It is reported at once, and then when it has been tried again.
        """
        place = run.topic, run.partition, run.end  # another fetch may have come upon it further in front
        reported_ms = self._reported_ms.get(place)
        if reported_ms is not None and abs(now_ms - reported_ms) < self._retry_ms:
            return False
        self._reported_ms[place] = now_ms
        return True

    def _without_past(self, place: tuple[str, int], now_ms: int) -> list[HeldUp]:
        """Return what is held up of a partition; forget what is to be tried again now."""
        # a clock that was set back must not hold anything up for long
        self._held_up[place] = [
            held_up
            for held_up in self._held_up.get(place, ())
            if 0 < held_up.until_ms - now_ms <= self._retry_ms
        ]
        return self._held_up[place]
