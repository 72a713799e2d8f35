"""Acker partitions, replay workers and sessions, for the page and for ``windhover machinery``; pure.

All of it comes from topics, except who lives and which partitions it has: that the broker knows.

Source: docs/operate/page.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from acker.kafka.partition_troubles import PartitionTrouble
from acker.kafka.port import GroupMember, MissingBroker, broker_names
from acker.root_sets.position_set import PositionSet
from acker.service.view import AckerView
from spout.inspect.overview import AckEnds, Snapshot
from spout.inspect.readings import (
    OLD_MS,
    STOPPED_ON_PURPOSE,
    Reading,
    joined,
    row_of,
    shown_by_now,
    why_state_is_old,
    without_old_zero,
)
from spout.inspect.tables import Column, Row, count, span
from spout.inspect.waiting_roots import ReplayPartition

NOBODY: Final = "nobody"
"""Stands for the owner of what has none."""

NO_RESTORE: Final = (
    "the State of acker partition {} does not say when it was restored: neither does one that an acker writes"
    " in the step of its restore, nor one of an earlier version"
)
SHARED_ANEW: Final = "the {} share their partitions out just now; in some seconds it is known again"


@dataclass(frozen=True, slots=True)
class AckerPartition:
    """One acker partition.

    Attributes:
        acker: to which it is assigned; `NOBODY`: to none.
        open: its open roots, in `ranges` ranges that were emitted together.
        unsaved: records of ``_ack_init`` and ``_ack_ack`` behind its State: what the acker has still to
            do, and what a restart reads.
        restore_ms: how long its last restore took, from its assignment on.
        is_old: whether its State is so old that more may be open than is known. Not in the row.
    """

    partition: int
    acker: Reading[str]
    open: Reading[int]
    ranges: Reading[int]
    state_age_ms: Reading[int]
    unsaved: Reading[int]
    restore_ms: Reading[int]
    restored_ago_ms: Reading[int]
    is_old: bool

    def row(self) -> dict[str, Any]:
        return row_of(self, (each.name for each in fields(self) if each.name != "is_old"))


@dataclass(frozen=True, slots=True)
class ReplayWorker:
    """One replay worker, with what its partitions of the verdicts have to do; see `ReplayPartition`.

    `due` counts all lost roots that wait, also those that are `not_taken_over`, as everywhere. `worker` is
    its name, or `NOBODY` for the partitions that no worker owns.
    """

    worker: str
    partitions: Reading[Sequence[int]]
    due: Reading[int]
    not_taken_over: Reading[int]
    lag: Reading[int]


@dataclass(frozen=True, slots=True)
class GroupOwner:
    """The session that owns a group. `epoch` rises with each session that takes it.

    `stopped` says why all inputs of the group are stopped on purpose; empty: one is not, or is read.
    """

    group: str
    session: Reading[str]
    epoch: Reading[int]
    query_lives: Reading[bool]
    stopped: str = ""


@dataclass(frozen=True, slots=True)
class Machinery:
    """All of it; `not_taken_over` are lost roots that no replay worker has taken over.

    Attributes:
        ackers: how many live. Likewise `replay_workers`.
        workers: the replay workers, by name.
        troubles: what is the matter with partitions, of all topics.
        missing_brokers: those that have copies of them, and are not there.
    """

    partitions: Sequence[AckerPartition]
    ackers: Reading[int]
    replay_workers: Reading[int]
    due: Reading[int]
    not_taken_over: Reading[int]
    workers: Reading[Sequence[ReplayWorker]]
    owners: Sequence[GroupOwner]
    troubles: Sequence[PartitionTrouble] = ()
    missing_brokers: Sequence[MissingBroker] = ()

    def rows(self) -> dict[str, Any]:
        """Return it for programs: None where a value is unknown, and `unknown` says why."""
        workers = self.workers.value
        return {
            **row_of(self, ("ackers", "replay_workers", "due", "not_taken_over", "workers")),
            "workers": None if workers is None else [row_of(each) for each in workers],
            "acker_partitions": [each.row() for each in self.partitions],
            "groups": [row_of(each) for each in self.owners],
            "troubles": [trouble.row() for trouble in self.troubles],
            "missing_brokers": [asdict(broker) for broker in self.missing_brokers],
        }

    def shown_groups(self) -> list[Row]:
        """Return the rows of the groups as a table shows them."""
        return [{**row_of(owner), "query_lives": _shown_life(owner)} for owner in self.owners]

    def shown_partitions(self) -> list[Row]:
        """Return the rows of the acker partitions as a table shows them."""
        return [
            {**each.row(), "open": shown_by_now(each.open, is_old=each.is_old).value}
            for each in self.partitions
        ]


def _shown_life(owner: GroupOwner) -> str | None:
    """Return whether a query of a group lives, and that it is not to; None: it is unknown."""
    if owner.query_lives.value is None:
        return None
    stopped = f", {STOPPED_ON_PURPOSE}: {owner.stopped}" if owner.stopped else ""
    return f"{'yes' if owner.query_lives.value else 'no'}{stopped}"


def _numbers(numbers: Sequence[int]) -> str:
    """Return partition numbers as text, neighbours as one range: ``0-3, 7``."""
    runs = PositionSet((number, number + 1) for number in numbers)
    named = (f"{start}" if end == start + 1 else f"{start}-{end - 1}" for start, end in runs)
    return ", ".join(named) or "none"


ACKER_PARTITIONS: Final = (
    Column("partition", "partition", count),
    Column("acker", "acker"),
    Column("open roots", "open", count),
    Column("in ranges", "ranges", count),
    Column("State is older by", "state_age_ms", span),
    Column("records behind it", "unsaved", count),
    Column("restore took", "restore_ms", span),
    Column("ago", "restored_ago_ms", span),
)
REPLAY_WORKERS: Final = (
    Column("replay worker", "worker"),
    Column("partitions", "partitions", _numbers),
    Column("lag ≤", "lag", count),
    Column("due", "due", count),
    Column("of them not taken over", "not_taken_over", count),
)
SESSIONS: Final = (
    Column("group", "group"),
    Column("owner", "session", none="none"),
    Column("epoch", "epoch", count, "-"),
    Column("query lives", "query_lives"),
)


def machinery_notes(rows: Row) -> list[str]:
    """Return why values of `Machinery.rows` are unknown, each reason once."""
    every = [rows, *rows["acker_partitions"], *(rows["workers"] or ()), *rows["groups"]]
    return list(dict.fromkeys(why for each in every for why in each["unknown"].values()))


def machinery_of(snapshot: Snapshot) -> Machinery:
    """Return what one reading shows of it."""
    partitions = [
        _acker_partition(number, view, ends, snapshot)
        for number, (view, ends) in enumerate(zip(snapshot.views, snapshot.ends, strict=True))
    ]
    states = snapshot.partitions
    nothing: Reading[int] = Reading(unknown=snapshot.to_replay.unknown or "topics.yaml has no tracked input")
    due = nothing
    if states:
        due = joined(lambda *counts: sum(counts), *(each.replays_due for each in states))
    return Machinery(
        partitions,
        snapshot.ackers.then(len),
        snapshot.replay_workers.then(len),
        due,
        snapshot.to_replay.then(lambda each: sum(one.untaken for one in each)),
        _replay_workers(snapshot),
        [_owner(group, snapshot) for group in dict.fromkeys(each.group for each in states)],
        snapshot.partition_troubles,
        snapshot.missing_brokers,
    )


def _acker_partition(
    number: int, view: Reading[AckerView], ends: Reading[AckEnds], snapshot: Snapshot
) -> AckerPartition:
    restored = view.then(lambda each: each.restored)
    if view.value is not None and view.value.restored is None:
        restored = Reading(unknown=NO_RESTORE.format(number))
    lacks_ms = view.then(lambda each: snapshot.at_ms - each.at_ms if each.is_behind else 0).value or 0
    why_old = why_state_is_old(snapshot.ackers.then(len), broker_names(snapshot.missing_brokers))
    return AckerPartition(
        number,
        _owner_of(number, snapshot.ackers),
        without_old_zero(
            view.then(lambda each: sum(len(found.at) for found in each.open_ranges())), lacks_ms, why_old
        ),
        without_old_zero(view.then(lambda each: sum(1 for _ in each.open_ranges())), lacks_ms, why_old),
        view.then(lambda each: max(0, snapshot.at_ms - each.at_ms)),
        joined(
            lambda seen, end: max(0, end.init - seen.next_init) + max(0, end.ack - seen.next_ack), view, ends
        ),
        restored.then(lambda each: each.took_ms),
        restored.then(lambda each: max(0, snapshot.at_ms - each.at_ms)),
        lacks_ms >= OLD_MS,
    )


def _owner_of(number: int, members: Reading[Sequence[GroupMember]]) -> Reading[str]:
    if members.value is None:
        return Reading(unknown=members.unknown)
    if any(each.partitions is None for each in members.value):
        return Reading(unknown=SHARED_ANEW.format("ackers"))
    return Reading(next((each.name for each in members.value if number in (each.partitions or ())), NOBODY))


def _replay_workers(snapshot: Snapshot) -> Reading[Sequence[ReplayWorker]]:
    """Return the workers by name, and behind them what no worker owns."""
    members, to_do = snapshot.replay_workers, snapshot.to_replay
    if members.value is None:
        return Reading(unknown=members.unknown)
    if any(each.partitions is None for each in members.value):
        anew: Reading[Any] = Reading(unknown=SHARED_ANEW.format("replay workers"))
        return Reading([ReplayWorker(each.name, anew, anew, anew, anew) for each in members.value])
    workers = [_replay_worker(each.name, each.partitions or (), to_do) for each in members.value]
    owned = frozenset[int]().union(*(each.partitions or () for each in members.value))
    left = [number for number in range(len(snapshot.views)) if number not in owned]
    return Reading([*workers, _replay_worker(NOBODY, left, to_do)] if left else workers)


def _replay_worker(
    name: str, numbers: Iterable[int], to_do: Reading[Sequence[ReplayPartition]]
) -> ReplayWorker:
    own = sorted(numbers)
    of = to_do.then(lambda each: [each[number] for number in own])
    return ReplayWorker(
        name,
        Reading(own),
        of.then(lambda each: sum(one.due + one.untaken for one in each)),
        of.then(lambda each: sum(one.untaken for one in each)),
        of.then(lambda each: sum(one.lag for one in each)),
    )


def _owner(group: str, snapshot: Snapshot) -> GroupOwner:
    """Return the owner of a group: the newest that any acker partition has read of."""
    states = [state for state in snapshot.partitions if state.group == group]
    reasons = dict.fromkeys(state.stopped for state in states)
    stopped = "; ".join(reasons) if all(reasons) else ""
    owner = joined(
        lambda *views: max((found for view in views if (found := view.owner(group))), default=None),
        *snapshot.views,
    )
    return GroupOwner(
        group,
        owner.then(lambda each: each.id),
        owner.then(lambda each: each.epoch),
        states[0].query_lives,
        stopped,
    )
