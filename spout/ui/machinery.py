"""Acker partitions, replay workers and sessions, as their topics show them; pure.

Source: docs/operate/page.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from acker.service.view import AckerView
from spout.inspect.overview import AckEnds, Snapshot
from spout.inspect.readings import Reading, joined
from spout.inspect.waiting_roots import WaitingOffsets


@dataclass(frozen=True, slots=True)
class AckerPartition:
    """One acker partition.

    Attributes:
        open: its open roots, in `ranges` ranges that were emitted together.
        age_ms: how old its State is.
        unsaved: records of ``_ack_init`` and ``_ack_ack`` behind its State: what the acker has still to
            do, and what a restart reads.
    """

    number: int
    open: Reading[int]
    ranges: Reading[int]
    age_ms: Reading[int]
    unsaved: Reading[int]


@dataclass(frozen=True, slots=True)
class GroupOwner:
    """The session that owns a group. `epoch` rises with each session that takes it."""

    group: str
    session: Reading[str]
    epoch: Reading[int]
    lives: Reading[bool]


@dataclass(frozen=True, slots=True)
class Machinery:
    """All of it; `untaken` are lost roots that no replay worker has taken over."""

    partitions: Sequence[AckerPartition]
    ackers: Reading[int]
    replay_workers: Reading[int]
    due: Reading[int]
    untaken: Reading[int]
    owners: Sequence[GroupOwner]

    def rows(self) -> dict[str, Any]:
        """Return it for programs: None where a value is unknown."""
        return {
            "ackers": self.ackers.value,
            "replay_workers": self.replay_workers.value,
            "due": self.due.value,
            "not_taken_over": self.untaken.value,
            "acker_partitions": [
                {
                    "partition": each.number,
                    "open": each.open.value,
                    "ranges": each.ranges.value,
                    "state_age_ms": each.age_ms.value,
                    "unsaved": each.unsaved.value,
                }
                for each in self.partitions
            ],
            "groups": [
                {
                    "group": each.group,
                    "session": each.session.value,
                    "epoch": each.epoch.value,
                    "query_lives": each.lives.value,
                }
                for each in self.owners
            ],
        }


def machinery_of(snapshot: Snapshot) -> Machinery:
    """Return what one reading shows of it."""
    partitions = [
        AckerPartition(
            number,
            view.then(lambda each: sum(len(found.at) for found in each.open_ranges())),
            view.then(lambda each: sum(1 for _ in each.open_ranges())),
            view.then(lambda each: max(0, snapshot.at_ms - each.at_ms)),
            joined(_unsaved, view, ends),
        )
        for number, (view, ends) in enumerate(zip(snapshot.views, snapshot.ends, strict=True))
    ]
    states = snapshot.partitions
    first = states[0] if states else None
    nothing: Reading[Any] = Reading(unknown="topics.yaml has no tracked input")
    return Machinery(
        partitions,
        first.ackers if first else nothing,
        first.replay_workers if first else nothing,
        joined(lambda *due: sum(due), *(each.replays_due for each in states)),
        joined(lambda *due: sum(_untaken(each) for each in due), *(each.due_at for each in states)),
        [_owner(group, snapshot) for group in dict.fromkeys(each.group for each in states)],
    )


def _untaken(due: WaitingOffsets) -> int:
    return int((due.due_ms == 0).sum())


def _unsaved(view: AckerView, ends: AckEnds) -> int:
    return max(0, ends.init - view.next_init) + max(0, ends.ack - view.next_ack)


def _owner(group: str, snapshot: Snapshot) -> GroupOwner:
    """Return the owner of a group: the newest that any acker partition has read of."""
    lives = next(each.query_lives for each in snapshot.partitions if each.group == group)
    owner = joined(
        lambda *views: max((found for view in views if (found := view.owner(group))), default=None),
        *snapshot.views,
    )
    return GroupOwner(group, owner.then(lambda each: each.id), owner.then(lambda each: each.epoch), lives)
