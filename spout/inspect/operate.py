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
from spout.group.starting import commit_mark
from spout.planning.journal import BEGINNING
from spout.planning_process.planner import Planner

POLL_MS = 50

RewindTarget = str | int
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
        log = f"the log begins at {self.log_range[0]:,} and ends at {self.log_range[1]:,} here"
        return f"{self._what_happens()}; {self.requested:,} was asked for, and {log}"

    def _what_happens(self) -> str:
        """Return where the partition moves from and to, and what that means for its records."""
        place = f"{self.place.topic}/{self.place.partition}"
        if self.committed is None:
            return f"{place}: nothing committed, begins at {self.offset:,}"
        text = f"{place}: {self.committed:,} to {self.offset:,}"
        if self.offset < self.committed:
            return f"{text}, {self.committed - self.offset:,} offsets are emitted again"
        if self.offset > self.committed:
            return f"{text}, {self.offset - self.committed:,} offsets are left out"
        return f"{text}, as it is"


def inputs_of(topics: Topics, group: str) -> tuple[Input, ...]:
    """Return the tracked inputs of a group; `UsageError` if it has none."""
    tracked = [input for input in topics.inputs.values() if input.tracked]
    inputs = tuple(input for input in tracked if input.group == group)
    if not inputs:
        groups = sorted({input.group for input in tracked})
        names = ", ".join(str(UntrustedName(name)) for name in groups) or "none"
        wrong = UntrustedName(group)
        raise UsageError(f"no tracked input of topics.yaml has group '{wrong}'; it has {names}")
    return inputs


def tracked_input(topics: Topics, name: str) -> Input:
    """Return a tracked input by its name; `UsageError` if there is none."""
    input = topics.inputs.get(name)
    if input is None:
        raise UsageError(
            f"no input '{UntrustedName(name)}' in topics.yaml;"
            f" it has {', '.join(sorted(topics.inputs)) or 'none'}"
        )
    if not input.tracked:
        raise UsageError(
            f"input '{input.name}' has ackers: 0, so no history here; move its offsets with Kafka's tools"
        )
    return input


def moves_of_rewind(
    log: Log,
    input: Input,
    to: RewindTarget,
    *,
    at_ms: int | None = None,
    partitions: Collection[int] = (),
) -> list[Move]:
    """Compute where a rewind of an input would lead; nothing is changed.

    Args:
        log: the cluster.
        input: the input.
        to: earliest, latest or an offset; an offset outside a partition's log becomes the nearest
            one inside.
        at_ms: wall time; if not None, the place is the first record at or after it, and `to` is ignored.
        partitions: those that are moved, while the others stay where they are; empty: all.

    Raises `UsageError`: the topic does not have one of the partitions.
    """
    specs = [spec for spec in sources_of(log, [input], tracked=True).values() if not spec.is_replay]
    missing = sorted(set(partitions) - {spec.place.partition for spec in specs})
    if missing:
        numbers = ", ".join(map(str, missing))
        raise UsageError(f"topic {input.topic} has no partition {numbers}; it has 0 to {len(specs) - 1}")
    if partitions:
        specs = [spec for spec in specs if spec.place.partition in partitions]
    places = [spec.place for spec in specs]
    starts, ends = log.starts(places), log.stable_ends(places)
    if at_ms is not None:
        target_offsets = log.offsets_at(places, at_ms)
    elif isinstance(to, int):
        target_offsets = dict.fromkeys(places, to)
    else:
        target_offsets = starts if to == "earliest" else ends
    committed = log.committed(input.group, places)
    moves_of_input: list[Move] = []
    for spec in specs:
        start, end = starts[spec.place], ends[spec.place]
        offset = min(max(target_offsets[spec.place], start), end)
        requested = None  # else: the offset that was requested, if it lies outside the log
        if at_ms is None and isinstance(to, int) and to != offset:
            requested = to
        move = Move(
            source=spec.source,
            place=spec.place,
            committed=committed.get(spec.place),
            offset=offset,
            requested=requested,
            log_range=(start, end),
        )
        moves_of_input.append(move)
    # partitions of the replay topic whose log was cut begin again, too, whatever the target is
    return moves_of_input + _moves_of_cut_logs(log, input)


def _moves_of_cut_logs(log: Log, input: Input) -> list[Move]:
    """Return moves of partitions of the replay topic whose logs were cut, to the first lost offsets.

    A log is cut where a broker without the last records became its leader: the group has committed
    90, and from 70 on the log has other records or none, so it begins again at 70. Others go on
    where they are, whatever the rewind: their copies are of this group alone.
    """
    specs = [spec for spec in sources_of(log, [input], tracked=True).values() if spec.is_replay]
    places = [spec.place for spec in specs]
    committed = log.committed(input.group, places)
    epoch_by_place = log.committed_epochs(input.group, places)
    read_to = {
        place: ReadTo(committed[place], epoch)
        for place, epoch in epoch_by_place.items()
        if place in committed
    }
    intact_to = log.intact_to(read_to)  # only of places where the broker can tell
    return [
        Move(spec.source, spec.place, committed[spec.place], offset=intact_to[spec.place])
        for spec in specs
        if spec.place in intact_to and intact_to[spec.place] < committed[spec.place]
    ]


class GroupSession:
    """A session that takes a group over, rewinds it if there are moves, and ends.

    Call `step` until it returns True, then `finish`; `run_to_end` does both.
    """

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

        Args:
            new_id: the id of the session.
            rewind: partitions that begin a new generation.
            take_over: also from a query that is alive.
            without_store: also from one that writes exactly once, whose store this session does not open.
            who: the process, as its signs of life name it.
            report: is called with an event and its fields; None: nothing is.
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
        self._commit_mark = commit_mark(topics.ack_topics)
        self._planner = Planner(log, spec, new_id=new_id, who=who, report=report)

    def step(self, now_ms: int) -> bool:
        """Open the session, or read what the ackers have answered, and go on.

        Return whether all acker partitions have answered, so that `finish` may be called.

        Raises:
            Unreachable: acker partitions are silent for 60 s, or the broker does not answer.
            SessionRefused: a query that lives owns the group; or a query that writes exactly once owned
                it, and what is open may be in its store, which this session does not open.
            Disagreement: the ackers have another number of acker partitions or another topic than
                topics.yaml.
        """
        if not self._planner.is_open:
            # a command has no checkpoint
            self._planner.open(BEGINNING, now_ms)
        # `poll` returns what the ackers have answered
        self._planner.step(self._planner.poll(POLL_MS), now_ms)
        return self._planner.is_ready

    def finish(self) -> None:
        """Commit the group's new offsets, for tools that show lag, and end the session.

        Raises:
            LogError: the broker refuses the commit, since consumers of another program are in the group; the
                rewind, or the release, is done all the same. So it is with the other errors of a commit.
        """
        refused = self._planner.commit_refused
        if self._rewind:
            offsets = {move.place: move.offset for move in self._rewind}
            try:
                self._log.commit(self._group, offsets, self._commit_mark)
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
        """End the session, whatever was done."""
        self._planner.close()


def run_to_end(operation: GroupSession, clock: Callable[[], int]) -> None:
    """Take and rewind the group of a session, and end it; the ackers have a minute to answer.

    `clock` returns wall time in ms.
    """
    try:
        while not operation.step(clock()):
            pass
        operation.finish()
    finally:
        operation.close()
