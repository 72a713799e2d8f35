"""What all parts of one planning process share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from acker.kafka.port import Log, TopicPartition
from spout.group.announce import Announcer
from spout.group.sources import PlannerSpec, SourceSpec

Report = Callable[[str, Mapping[str, object]], None]
"""Called with an event's name and its fields; the caller decides what happens to them, such as logging."""


class Reach(Protocol):
    """The offsets between which the records of a partition can be read; a `Log` gets them from the broker."""

    def starts(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the first offset of each partition that can be read."""

    def stable_ends(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return for each partition the offset behind the last one that can be read."""


@dataclass(frozen=True, slots=True)
class PlannerContext:
    """The cluster, the task, and the connection to the ackers (None where nothing is tracked)."""

    log: Log
    spec: PlannerSpec
    sources: dict[int, SourceSpec]
    announcer: Announcer | None
    report: Report
    reach: Reach
