"""What all parts of one planning process stand on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from acker.log import Log
from spout.announce import Announcer
from spout.sources import PlannerSpec, SourceSpec

Report = Callable[[str, Mapping[str, object]], None]
"""Called with an event's name and its fields; what it does with them is the shell's business."""


@dataclass(frozen=True, slots=True)
class Ground:
    """The cluster, the task, and the way to the ackers.

    Attributes:
        log: the cluster.
        spec: what was asked for.
        sources: the sources that are read; new partitions are added to it.
        announcer: writes to the ack topics; None where nothing is tracked.
        report: called with what a person may want to know.
    """

    log: Log
    spec: PlannerSpec
    sources: dict[int, SourceSpec]
    announcer: Announcer | None
    report: Report
