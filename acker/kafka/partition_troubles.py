"""Troubles of single partitions, as data: commands and the page make what they say from it.

Source: docs/reference/commands.md, "Trouble of partitions".
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from acker.errors import unreadable_kind
from acker.kafka.port import DamagedRun, TopicPartition
from acker.listing import offsets_text


class TroubleKind(StrEnum):
    """What is wrong with a partition; a program may rely on these words."""

    NO_ANSWER = "no_answer"
    """It has no leader, or its leader is silent."""
    LATE_READER = "late_reader"
    """An acker or a replay worker has not read what was written long ago."""
    DAMAGED = "damaged"
    """This command has passed over some offsets that it could not read: their batch is damaged on disk."""
    OVERSIZED = "oversized"
    """It has passed over some offsets: there is a record that is too large for any reader."""
    NOT_UNPACKED = "not_unpacked"
    """It has passed over some offsets: their batch does not unpack, or to more than a reader takes."""
    FILLING = "filling"
    """State of an acker partition takes half of a limit or more.

    When it is full, verdicts are held back.
    """
    CUT = "cut"
    """Its log ends before the last emitted record: another leader has lost the rest."""


@dataclass(frozen=True, slots=True)
class PartitionTrouble:
    """One thing that is wrong with one partition.

    Attributes:
        since_ms: wall time since when it is so, at the latest: a first call
            does not know since when.
        inputs: the names of the inputs that need the partition.
        detail: a sentence for people.
        start: the first offset that is concerned; None: no offsets are.
        end: behind the last offset that is concerned; None as `start`.
    """

    kind: TroubleKind
    partition: TopicPartition
    since_ms: int
    inputs: Sequence[str]
    detail: str
    start: int | None = None
    end: int | None = None

    @property
    def name(self) -> str:
        """The partition's name, ``topic/partition``."""
        return self.partition.name

    def row(self) -> dict[str, Any]:
        """Return the trouble as JSON has it.

        `start` and `end` are None where no offsets are concerned.
        """
        return {
            "kind": self.kind.value,
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "since_ms": self.since_ms,
            "inputs": list(self.inputs),
            "detail": self.detail,
            "start": self.start,
            "end": self.end,
        }


class TroubleTimes:
    """Remembers since when troubles are there, for a command that asks again and again; pure."""

    def __init__(self) -> None:
        self._began_ms_by_trouble: dict[tuple[TroubleKind, TopicPartition], int] = {}

    def record_troubles(
        self, troubles: Collection[tuple[TroubleKind, TopicPartition]], now_ms: int
    ) -> dict[tuple[TroubleKind, TopicPartition], int]:
        """Record the troubles that there are at a wall time; return for each since when it lasts,
        wall time.

        A trouble that is not among them is over: if it comes again, it begins anew.
        """
        began_ms_by_trouble: dict[tuple[TroubleKind, TopicPartition], int] = {}
        for trouble in troubles:
            # a clock that was set back makes no trouble begin later than now
            began_ms_by_trouble[trouble] = min(now_ms, self._began_ms_by_trouble.get(trouble, now_ms))
        self._began_ms_by_trouble = began_ms_by_trouble
        return began_ms_by_trouble


def kind_of_run(run: DamagedRun) -> TroubleKind:
    """Return what is wrong with offsets that were passed over."""
    return TroubleKind[unreadable_kind(run.why).name]


def damage_text(run: DamagedRun) -> str:
    """Return the sentence on offsets that were passed over."""
    return f"{offsets_text(run.start, run.end)} cannot be read: {run.why}"


def cut_log_text(end: int, emitted_to: int) -> str:
    """Return the sentence on a log that ends at `end`, though records below `emitted_to` were emitted."""
    return (
        f"its log ends at {end:,}, and records up to {emitted_to:,} were emitted: it was cut, and what is"
        " written there now are other records; `on_data_loss` says what the next start does"
    )
