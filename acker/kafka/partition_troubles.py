"""What is the matter with single partitions, as data: what commands and the page say of it is made from this.

Source: docs/reference/commands.md, "Trouble of partitions".
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from acker.errors import unreadable_kind
from acker.kafka.port import DamagedRun, TopicPartition


class TroubleKind(StrEnum):
    """What is the matter; a program may rely on these words."""

    NO_ANSWER = "no_answer"
    """It has no leader, or its leader is silent."""
    LATE_READER = "late_reader"
    """An acker or a replay worker has not read what was written long ago."""
    DAMAGED = "damaged"
    """This command could not read some offsets, and has passed over them: their batch is damaged on disk."""
    OVERSIZED = "oversized"
    """The same, and there is a record that no reader can handle."""
    NOT_UNPACKED = "not_unpacked"
    """The same, and their batch does not unpack, or to more than a reader takes."""
    FILLING = "filling"
    """State of an acker partition takes half of a limit or more; when it is full, verdicts are held back."""
    CUT = "cut"
    """Its log ends before what was emitted of it: another leader has lost the rest."""


@dataclass(frozen=True, slots=True)
class PartitionTrouble:
    """What is the matter with a partition.

    Attributes:
        since_ms: wall time since when, at the latest: a first look knows of nothing before it.
        inputs: the names of the inputs that need the partition.
        detail: what is the matter, for people.
        start: the first offset that is concerned; None: it has none. `end` is behind the last one.
    """

    kind: TroubleKind
    place: TopicPartition
    since_ms: int
    inputs: Sequence[str]
    detail: str
    start: int | None = None
    end: int | None = None

    @property
    def name(self) -> str:
        """Its partition, as ``topic/partition``."""
        return f"{self.place.topic}/{self.place.partition}"

    def row(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "kind": self.kind.value,
            "topic": self.place.topic,
            "partition": self.place.partition,
            "since_ms": self.since_ms,
            "inputs": list(self.inputs),
            "detail": self.detail,
            "start": self.start,
            "end": self.end,
        }


class TroubleTimes:
    """Since when troubles are there, for who looks again and again; pure."""

    def __init__(self) -> None:
        self._first_ms: dict[tuple[TroubleKind, TopicPartition], int] = {}

    def look(
        self, troubles: Collection[tuple[TroubleKind, TopicPartition]], now_ms: int
    ) -> dict[tuple[TroubleKind, TopicPartition], int]:
        """Take the troubles of one look at a wall time; return the time of the first look that had each."""
        # a clock that was set back makes no trouble begin later than now
        self._first_ms = {trouble: min(now_ms, self._first_ms.get(trouble, now_ms)) for trouble in troubles}
        return self._first_ms


def kind_of_run(run: DamagedRun) -> TroubleKind:
    """Return what is the matter with offsets that were passed over."""
    return TroubleKind[unreadable_kind(run.why).name]


def damage_text(run: DamagedRun) -> str:
    """Describe offsets that were passed over."""
    return f"the offsets from {run.start:,} to {run.end:,} cannot be read: {run.why}"


def cut_log_text(end: int, emitted_to: int) -> str:
    """Describe a log that ends before what was emitted of it."""
    return (
        f"its log ends at {end:,}, and records up to {emitted_to:,} were emitted: it was cut, and what is"
        " written there now are other records; `on_data_loss` says what the next start does"
    )
