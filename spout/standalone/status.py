"""The status of a spout without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spout.planner.mailbox import PlannerStatus
from spout.standalone.desk import Desk


@dataclass(frozen=True, slots=True)
class SpoutStatus:
    """A spout as it is now.

    Attributes:
        group: the group's session, its pending roots, verdicts and commits.
        waiting: how many records are ready to be opened, by input.
        open: how many records each client has open, by input.
        late: how many were settled after their root had timed out.
    """

    group: PlannerStatus
    waiting: Mapping[str, int]
    open: Mapping[str, Mapping[str, int]]
    late: int


def status_of(desk: Desk, group: PlannerStatus) -> SpoutStatus:
    """Join the desk's numbers and the planner's status."""
    waiting = {name: queue.store.waiting for name, queue in desk.queues.items()}
    return SpoutStatus(group, waiting, desk.open_by_client(), desk.late.count)
