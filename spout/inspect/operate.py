"""What an operator does to a group from outside: release it, or rewind its offsets.

Both are a session that draws the next epoch, takes the group, and ends, so that the open roots of the session
before are abandoned and replayed. A group whose owner is alive is refused, unless the operator takes it over;
then its query gets an error that names the new owner, and stops. So both are safe at any time. A rewind also
begins a new generation of each partition, in which the offsets from the new place on are emitted (again).

Source: docs/design/protocol.md, sections 4 ("Take and Taken") and 5.3.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from acker.config.settings import Input
from acker.config.topics import Topics
from acker.errors import LogError, UsageError, WindhoverError
from acker.kafka.port import Log, ReadTo, TopicPartition
from acker.untrusted import UntrustedName
from spout.group.announce import Report
from spout.group.presence import Who
from spout.group.sources import PlannerSpec, sources_of
from spout.group.starting import COMMITTED_BY
from spout.planning.journal import BEGINNING
from spout.planning_process.planner import Planner

POLL_MS = 50

Place = str | int
"""Where to rewind to: ``earliest``, ``latest``, or an offset."""


@dataclass(frozen=True, slots=True)
class Move:
    """What a rewind does to one partition.

    Attributes:
        committed: the offset that the group has committed; None if it has none.
        offset: the offset from which it begins again.
        requested: the requested offset, if the log does not have it; else None.
        log_range: first offset of the log, and its end.
    """

    source: int
    place: TopicPartition
    committed: int | None
    offset: int
    requested: int | None = None
    log_range: tuple[int, int] = (0, 0)

    def __str__(self) -> str:
        if self.requested is None:
            return self._what_happens()
        log = f"the log has {self.log_range[0]:,} to {self.log_range[1]:,} here"
        return f"{self._what_happens()}; {self.requested:,} was asked for, and {log}"

    def _what_happens(self) -> str:
        here = f"{self.place.topic}/{self.place.partition}"
        if self.committed is None:
            return f"{here}: nothing committed, begins at {self.offset:,}"
        moved = f"{here}: {self.committed:,} to {self.offset:,}"
        if self.offset < self.committed:
            return f"{moved}, {self.committed - self.offset:,} offsets are emitted again"
        if self.offset > self.committed:
            return f"{moved}, {self.offset - self.committed:,} offsets are left out"
        return f"{moved}, as it is"


def inputs_of(topics: Topics, group: str) -> tuple[Input, ...]:
    """Return the tracked inputs of a group; `UsageError` if it has none."""
    found = tuple(one for one in topics.inputs.values() if one.group == group and one.tracked)
    if not found:
        groups = sorted({one.group for one in topics.inputs.values() if one.tracked})
        names = ", ".join(str(UntrustedName(name)) for name in groups) or "none"
        wrong = UntrustedName(group)
        raise UsageError(f"no tracked input of topics.yaml has group '{wrong}'; it has {names}")
    return found


def tracked_input(topics: Topics, name: str) -> Input:
    """Return a tracked input by its name; `UsageError` if there is none."""
    found = topics.inputs.get(name)
    if found is None:
        raise UsageError(
            f"no input '{UntrustedName(name)}' in topics.yaml;"
            f" it has {', '.join(sorted(topics.inputs)) or 'none'}"
        )
    if not found.tracked:
        raise UsageError(
            f"input '{found.name}' has ackers: 0, so no history here; move its offsets with Kafka's tools"
        )
    return found


def moves(
    log: Log, found: Input, to: Place, *, at_ms: int | None = None, partitions: Collection[int] = ()
) -> list[Move]:
    """Compute where a rewind of an input would lead; nothing is changed.

    Args:
        log: the cluster.
        found: the input.
        to: the place; an offset outside a partition's log becomes the nearest one inside.
        at_ms: wall time; if not None, the place is the first record at or after it, and `to` is ignored.
        partitions: those that are moved, while the others stay where they are; empty: all.

    Raises `UsageError`: the topic does not have one of the partitions.
    """
    specs = [spec for spec in sources_of(log, [found], tracked=True).values() if not spec.is_replay]
    missing = sorted(set(partitions) - {spec.place.partition for spec in specs})
    if missing:
        names = ", ".join(map(str, missing))
        raise UsageError(f"topic {found.topic} has no partition {names}; it has 0 to {len(specs) - 1}")
    if partitions:
        specs = [spec for spec in specs if spec.place.partition in partitions]
    places = [spec.place for spec in specs]
    starts, ends = log.starts(places), log.stable_ends(places)
    if at_ms is not None:
        offsets = log.offsets_at(places, at_ms)
    elif isinstance(to, int):
        offsets = dict.fromkeys(places, to)
    else:
        offsets = starts if to == "earliest" else ends
    committed = log.committed(found.group, places)
    found_moves: list[Move] = []
    for spec in specs:
        first, end = starts[spec.place], ends[spec.place]
        offset = min(max(offsets[spec.place], first), end)
        requested = to if at_ms is None and isinstance(to, int) and to != offset else None
        before = committed.get(spec.place)
        found_moves.append(Move(spec.source, spec.place, before, offset, requested, (first, end)))
    return found_moves + _cut_replays(log, found)


def _cut_replays(log: Log, found: Input) -> list[Move]:
    """Return where partitions of the replay topic begin whose logs were cut: at their first lost offsets.

    Others go on where they are, whatever the rewind: their copies are of this group alone.
    """
    specs = [spec for spec in sources_of(log, [found], tracked=True).values() if spec.is_replay]
    places = [spec.place for spec in specs]
    committed, epochs = log.committed(found.group, places), log.committed_epochs(found.group, places)
    read = {place: ReadTo(committed[place], epoch) for place, epoch in epochs.items() if place in committed}
    intact = log.intact_to(read)
    return [
        Move(spec.source, spec.place, committed[spec.place], intact[spec.place])
        for spec in specs
        if spec.place in intact and intact[spec.place] < committed[spec.place]
    ]


class GroupSession:
    """A session that takes a group over, rewinds it if there are moves, and ends; drive it with `step`."""

    def __init__(
        self,
        log: Log,
        topics: Topics,
        group: str,
        *,
        new_id: str,
        rewind: Sequence[Move] = (),
        take_over: bool = False,
        without_store: bool = False,
        who: Who | None = None,
        report: Report | None = None,
    ) -> None:
        """Prepare; nothing is written before the first step.

        `rewind` are partitions that begin a new generation; `take_over`: also from a query that is alive.
        `without_store`: also one that is written exactly once, whose store this session does not
        open.
        """
        spec = PlannerSpec(
            inputs_of(topics, group),
            topics.ack_topics,
            topics.acker.partitions,
            rewind={move.source: move.offset for move in rewind},
            checks_commits=False,
            take_over=take_over,
            way="--take-over",
            without_store=without_store,
        )
        self._log = log
        self._group = group
        self._rewind = rewind
        self._planner = Planner(log, spec, new_id=new_id, who=who, report=report)

    def step(self, now_ms: int) -> bool:
        """Go on; return whether all acker partitions have answered, so that `finish` may be called.

        Raises:
            Unreachable: acker partitions are silent for 60 s, or the broker does not answer.
            SessionRefused: a query that is alive owns the group, or a store may have what is open.
            Disagreement: the ackers have another N or topic than topics.yaml.
        """
        if not self._planner.is_open:
            self._planner.open(BEGINNING, now_ms)
        self._planner.step(self._planner.poll(POLL_MS), now_ms)
        return self._planner.is_ready

    def finish(self) -> None:
        """Commit the group's new offsets, for tools that show lag, and leave.

        Raises:
            LogError: the broker refuses the commit, since consumers of another program are in the group; the
                rewind, or the release, is done all the same. So it is with the other errors of a commit.
        """
        refused = self._planner.commit_refused
        if self._rewind:
            offsets = {move.place: move.offset for move in self._rewind}
            try:
                self._log.commit(self._group, offsets, COMMITTED_BY)
            except WindhoverError as error:
                raise type(error)(
                    f"the reset is done, its query begins there; but the committed offsets of group"
                    f" {UntrustedName(self._group)}, which other tools read, are the old ones:"
                    f" {error}"
                ) from error
        self._planner.close()
        if refused and not self._rewind:
            raise LogError(
                f"the release is done, and the committed offsets of group {UntrustedName(self._group)} are"
                f" not put right: {refused}; then release it again"
            )

    def close(self) -> None:
        self._planner.close()


def run_to_end(operation: GroupSession, clock: Callable[[], int]) -> None:
    """Step a session to its end, with a clock of wall ms; the ackers have a minute to answer."""
    try:
        while not operation.step(clock()):
            pass
        operation.finish()
    finally:
        operation.close()
