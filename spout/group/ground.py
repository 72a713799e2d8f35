"""What all parts of one planning process stand on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from acker.kafka.port import Log, TopicPartition
from acker.wire.events import Verdicts
from spout.group.announce import Announcer
from spout.group.sources import PlannerSpec, SourceSpec

Report = Callable[[str, Mapping[str, object]], None]
"""Called with an event's name and its fields; what it does with them is the shell's business."""

Heard = Callable[[Verdicts], None]
"""Called with every record of verdicts, once it has settled the window."""


class Reach(Protocol):
    """Between where and where the records of a partition can be had; a `Log` asks the broker."""

    def starts(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the first offset that can be had of each partition."""

    def stable_ends(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the offset behind the last one that can be had of each partition."""


@dataclass(frozen=True, slots=True)
class Ground:
    """The cluster, the task, and the way to the ackers.

    Attributes:
        log: the cluster.
        spec: what was asked for.
        sources: the sources that are read; new partitions are added to it.
        announcer: writes to the ack topics; None where nothing is tracked.
        report: called with what a person may want to know.
        reach: which records there are to plan.
        heard: called with what the ackers decided.
    """

    log: Log
    spec: PlannerSpec
    sources: dict[int, SourceSpec]
    announcer: Announcer | None
    report: Report
    reach: Reach
    heard: Heard
