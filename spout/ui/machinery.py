"""Acker partitions, replay workers and sessions: for the page and ``windhover machinery``; pure.

Topics say most of it; the broker says which processes live, and which partitions they have.

Source: docs/operate/page.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from acker.kafka.partition_troubles import PartitionTrouble
from acker.kafka.port import GroupMember, MissingBroker, broker_names
from acker.ledger.cohort import Session
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
    "the State of acker partition {} does not say when it was restored: neither does one that an"
    " acker writes in the step of its restore, nor one of an earlier version"
)
"""Why the last restore of an acker partition is unknown."""

SHARED_ANEW: Final = "the {} share their partitions out just now; in some seconds it is known again"
"""Why it is unknown which process has which partition: Kafka rebalances the group."""


@dataclass(frozen=True, slots=True)
class AckerPartition:
    """One acker partition.

    Attributes:
        acker: to which it is assigned; `NOBODY`: to none.
        open: how many of its roots are open.
        ranges: in how many ranges these are; the roots of one were emitted together.
        unsaved: records of ``_ack_init`` and ``_ack_ack`` behind its State: what the acker has
            still to do, and what a restart reads.
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
        """Return the partition as JSON has it: None if a value is unknown; `unknown` says why."""
        return row_of(self, (field.name for field in fields(self) if field.name != "is_old"))


@dataclass(frozen=True, slots=True)
class ReplayWorker:
    """What a replay worker has to do in its partitions; see `ReplayPartition`.

    Attributes:
        worker: its name; `NOBODY`: no worker owns these partitions.
        due: all lost roots that wait, with those that are `not_taken_over`.
    """

    worker: str
    partitions: Reading[Sequence[int]]
    due: Reading[int]
    not_taken_over: Reading[int]
    lag: Reading[int]


@dataclass(frozen=True, slots=True)
class GroupOwner:
    """The session that owns a group.

    Attributes:
        epoch: rises with each session that takes the group.
        stopped: why all inputs of the group are stopped on purpose; empty: one is not, or is
            read all the same.
    """

    group: str
    session: Reading[str]
    epoch: Reading[int]
    query_lives: Reading[bool]
    stopped: str = ""


@dataclass(frozen=True, slots=True)
class Machinery:
    """The processes of an installation, and what each of them has to do.

    Attributes:
        ackers: how many live. Likewise `replay_workers`.
        due: all lost roots that wait.
        not_taken_over: those of them that no replay worker has taken over.
        workers: the replay workers, by name.
        owners: of each group of a tracked input.
        troubles: what is wrong with partitions, of all topics.
        missing_brokers: they have copies of the partitions, and are not there.
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
        """Return all as JSON has it: a value is None if it is unknown, and `unknown` says why."""
        workers = self.workers.value
        return {
            **row_of(self, ("ackers", "replay_workers", "due", "not_taken_over", "workers")),
            "workers": None if workers is None else [row_of(worker) for worker in workers],
            "acker_partitions": [partition.row() for partition in self.partitions],
            "groups": [row_of(owner) for owner in self.owners],
            "troubles": [trouble.row() for trouble in self.troubles],
            "missing_brokers": [
                {
                    "number": broker.number,
                    "copies": broker.replicas,
                    "leaderless": broker.leaderless,
                    "is_silent": broker.is_silent,
                }
                for broker in self.missing_brokers
            ],
        }

    def shown_groups(self) -> list[Row]:
        """Return the rows of the groups as a table shows them."""
        return [{**row_of(owner), "query_lives": _shown_life(owner)} for owner in self.owners]

    def shown_partitions(self) -> list[Row]:
        """Return the rows of the acker partitions as a table shows them: old figures are marked."""
        rows: list[Row] = []
        for partition in self.partitions:
            open_count = shown_by_now(partition.open, is_old=partition.is_old)
            rows.append({**partition.row(), "open": open_count.value})
        return rows


def _shown_life(owner: GroupOwner) -> str | None:
    """Return "yes" or "no", and why the group was stopped on purpose; None: it is unknown."""
    if owner.query_lives.value is None:
        return None
    text = "yes" if owner.query_lives.value else "no"
    return f"{text}, {STOPPED_ON_PURPOSE}: {owner.stopped}" if owner.stopped else text


def _numbers(numbers: Sequence[int]) -> str:
    """Return partition numbers as text, neighbours as one range: ``0-3, 7``."""
    runs = PositionSet((number, number + 1) for number in numbers)
    texts = (f"{start}" if end == start + 1 else f"{start}-{end - 1}" for start, end in runs)
    return ", ".join(texts) or "none"


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
    all_rows = [rows, *rows["acker_partitions"], *(rows["workers"] or ()), *rows["groups"]]
    return list(dict.fromkeys(reason for row in all_rows for reason in row["unknown"].values()))


def machinery_of(snapshot: Snapshot) -> Machinery:
    """Return what one reading shows of acker partitions, replay workers and sessions."""
    partitions = []
    # the lists have one entry for each acker partition, by number
    for number, (view, ends) in enumerate(zip(snapshot.views, snapshot.ends, strict=True)):
        partitions.append(_acker_partition(number, view, ends, snapshot))
    states = snapshot.partitions
    if states:
        due = joined(lambda *counts: sum(counts), *(state.replays_due for state in states))
    else:
        why = snapshot.to_replay.unknown or "topics.yaml has no tracked input"
        due = Reading(unknown=why)
    groups = dict.fromkeys(state.group for state in states)
    return Machinery(
        partitions=partitions,
        ackers=snapshot.ackers.then(len),
        replay_workers=snapshot.replay_workers.then(len),
        due=due,
        not_taken_over=snapshot.to_replay.then(_untaken),
        workers=_replay_workers(snapshot),
        owners=[_owner(group, snapshot) for group in groups],
        troubles=snapshot.partition_troubles,
        missing_brokers=snapshot.missing_brokers,
    )


def _acker_partition(
    number: int, view: Reading[AckerView], ends: Reading[AckEnds], snapshot: Snapshot
) -> AckerPartition:
    """Return what an acker partition has, by its State and the ends of the topics that it reads.

    Args:
        number: of the acker partition.
        view: its State; unknown: it has none, or nobody could read it.
        ends: where its `_ack_init` and `_ack_ack` end.
        snapshot: says which ackers live, and when all this was read.
    """
    restored = view.then(lambda state: state.restored)
    if view.value is not None and view.value.restored is None:
        restored = Reading(unknown=NO_RESTORE.format(number))
    # how long ago the State lacked nothing; 0: it lacks nothing now
    behind_ms = 0
    if view.value is not None and view.value.is_behind:
        behind_ms = snapshot.at_ms - view.value.at_ms
    why_old = why_state_is_old(snapshot.ackers.then(len), broker_names(snapshot.missing_brokers))

    def unsaved(state: AckerView, end: AckEnds) -> int:
        """Return how many inits and acks are behind the State."""
        init_count = max(0, end.init - state.next_init)
        ack_count = max(0, end.ack - state.next_ack)
        return init_count + ack_count

    def age_ms(at_ms: int) -> int:
        """Return how long ago a wall time is; a clock that was set back makes no age below 0."""
        return max(0, snapshot.at_ms - at_ms)

    roots = view.then(lambda state: sum(len(open_range.at) for open_range in state.open_ranges()))
    ranges = view.then(lambda state: sum(1 for _ in state.open_ranges()))
    return AckerPartition(
        partition=number,
        acker=_acker_of(number, snapshot.ackers),
        open=without_old_zero(roots, behind_ms, why_old),
        ranges=without_old_zero(ranges, behind_ms, why_old),
        state_age_ms=view.then(lambda state: age_ms(state.at_ms)),
        unsaved=joined(unsaved, view, ends),
        restore_ms=restored.then(lambda restore: restore.took_ms),
        restored_ago_ms=restored.then(lambda restore: age_ms(restore.at_ms)),
        is_old=behind_ms >= OLD_MS,
    )


def _acker_of(number: int, members: Reading[Sequence[GroupMember]]) -> Reading[str]:
    """Return the name of the acker to which a partition is assigned; `NOBODY`: to none."""
    if members.value is None:
        return Reading(unknown=members.unknown)
    if any(member.partitions is None for member in members.value):
        return Reading(unknown=SHARED_ANEW.format("ackers"))
    owners = [member.name for member in members.value if number in (member.partitions or ())]
    return Reading(owners[0] if owners else NOBODY)


def _replay_workers(snapshot: Snapshot) -> Reading[Sequence[ReplayWorker]]:
    """Return the workers by name, and at the end `NOBODY`, if no worker owns some partitions."""
    members, to_replay = snapshot.replay_workers, snapshot.to_replay
    if members.value is None:
        return Reading(unknown=members.unknown)
    if any(member.partitions is None for member in members.value):
        unknown: Reading[Any] = Reading(unknown=SHARED_ANEW.format("replay workers"))
        names = [member.name for member in members.value]
        return Reading([ReplayWorker(name, unknown, unknown, unknown, unknown) for name in names])
    workers = []
    unowned = set(range(len(snapshot.views)))
    for member in members.value:
        numbers = member.partitions or ()
        workers.append(_replay_worker(member.name, numbers, to_replay))
        unowned -= set(numbers)
    if unowned:
        workers.append(_replay_worker(NOBODY, unowned, to_replay))
    return Reading(workers)


def _replay_worker(
    name: str, numbers: Iterable[int], to_replay: Reading[Sequence[ReplayPartition]]
) -> ReplayWorker:
    """Return what a worker has to do in its partitions, whose numbers are `numbers`.

    `to_replay` has all partitions, by number.
    """
    sorted_numbers = sorted(numbers)

    def total_of(count: Callable[[ReplayPartition], int]) -> Reading[int]:
        """Return the sum of a count over the worker's partitions."""

        def total(partitions: Sequence[ReplayPartition]) -> int:
            return sum(count(partitions[number]) for number in sorted_numbers)

        return to_replay.then(total)

    return ReplayWorker(
        worker=name,
        partitions=Reading(sorted_numbers),
        due=total_of(lambda partition: partition.due + partition.untaken),
        not_taken_over=total_of(lambda partition: partition.untaken),
        lag=total_of(lambda partition: partition.lag),
    )


def _untaken(partitions: Sequence[ReplayPartition]) -> int:
    """Return how many lost roots no replay worker has taken over, in all these partitions."""
    return sum(partition.untaken for partition in partitions)


def _owner(group: str, snapshot: Snapshot) -> GroupOwner:
    """Return the owner of a group: the newest session that any acker partition has as its owner."""
    states = [state for state in snapshot.partitions if state.group == group]
    reasons = dict.fromkeys(state.stopped for state in states)
    # an empty reason: an input that is not stopped keeps the group alive
    stopped = "; ".join(reasons) if all(reasons) else ""

    def newest(*views: AckerView) -> Session | None:
        """Return the newest owner that the views have; None: they have none."""
        owners = [view.owner(group) for view in views]
        return max((owner for owner in owners if owner is not None), default=None)

    owner = joined(newest, *snapshot.views)
    return GroupOwner(
        group,
        session=owner.then(lambda session: session.id),
        epoch=owner.then(lambda session: session.epoch),
        query_lives=states[0].query_lives,  # it is the same in all partitions of a group
        stopped=stopped,
    )
