"""A value as it was read from the topics, or the reason why it is unknown; pure.

One type serves the command line, JSON and the page, so that they cannot disagree: `Reading`. A value that
cannot be found is never 0, and never missing without a reason. The state of each partition of each input is
made of such values: `PartitionState`.

Source: docs/design/protocol.md, sections 2 and 5; docs/design/conformance.md, S146.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import numpy as np

from acker.config.settings import Input
from acker.identity import I64, offset_of, position_at, source_of
from acker.ledger.sessions import SourceGeneration
from acker.service.state_notes import GROUPS_MAX
from acker.service.view import NO_STATE, AckerView, OpenRange
from acker.untrusted import Untrusted, UntrustedName
from acker.wire.lateness import LateCounts
from spout.inspect.tables import span
from spout.inspect.waiting_roots import NOTHING_WAITS, BlockedRecords, Waiting, WaitingOffsets

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", covariant=True)
U = TypeVar("U")

WITHOUT_STATE: Final = NO_STATE.rpartition("{}")[2]
"""How a reason ends where an acker partition has no State. An acker that lives writes it within two seconds
of the first session, so no session was there."""

FORMER_STATE: Final = "an acker of an earlier version wrote the State of acker partition {}: replace it"

LEFT_OUT_OF_STATE: Final = (
    f"the State of acker partition {{}} says what came too late of {GROUPS_MAX} groups, and not of this one"
)

HELD_BY_SPARK: Final = "in Spark's state"
"""The text for where a root is that waits for its window, or in a keyed bolt."""

STOPPED_ON_PURPOSE: Final = "stopped on purpose"
"""What is said of an input with `stopped` in topics.yaml, before its reason."""

CLOCK_STOPPED: Final = "the clock of its timeout is stopped"

NO_TIMEOUT: Final = "does not time out before an acker works again"
"""The text for when a root times out, while no acker lives: what its State says was before."""

OLD_MS: Final = 10_000
"""A State that lacks records and is so old has no acker that works: a query that lives gives a sign of life
every 2 s, and an acker writes State 1 s after what it has read."""

OLD_STATE: Final = "the State of an acker partition is {} old and lacks what came since: "

NO_ACKER_WORKS: Final = (
    "no acker works on it; see `windhover machinery`, and start one with `windhover acker run`"
)

ACKER_STANDS: Final = "the acker that has it does not go on; see `windhover machinery`, and its log"

MAY_LIVE: Final = "{} now, so what shows no sign of life may live all the same: start the broker first"
"""Why it is unknown whether a process lives, where a broker is missing (`broker_names`)."""


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """A value, or why it is unknown.

    Attributes:
        value: what was read; None where there is no such thing (a group that never committed), or where it is
            unknown.
        unknown: why it is unknown, with the cure where there is one; empty: it is known.
        as_of_ms: wall time up to which the value is true; None: up to now.
    """

    value: T | None = None
    unknown: str = ""
    as_of_ms: int | None = None

    def then(self, use: Callable[[T], U | None]) -> Reading[U]:
        """Return a reading of what `use` makes of the value; of what is unknown or not there the same."""
        value = None if self.value is None else use(self.value)
        return Reading(value, self.unknown, self.as_of_ms)


def joined(use: Callable[..., U | None], *readings: Reading[Any]) -> Reading[U]:
    """Return a reading of what `use` makes of several values; it is unknown where one of them is.

    It is as old as the oldest of them.
    """
    for reading in readings:
        if reading.unknown:
            return Reading(unknown=reading.unknown)
    times_ms = [reading.as_of_ms for reading in readings if reading.as_of_ms is not None]
    values = [reading.value for reading in readings]
    return Reading(use(*values), as_of_ms=min(times_ms, default=None))


def without_old_zero(reading: Reading[U], age_ms: int, why: str = NO_ACKER_WORKS) -> Reading[U]:
    """Return a reading as it is; but one of 0, or of nothing, is unknown if it is of an old State.

    An old State lacks records, so more may be there by now.

    Args:
        age_ms: how long ago the State lacked nothing; 0: it lacks nothing now.
        why: what keeps a newer State from being written.
    """
    if reading.value or reading.unknown or age_ms < OLD_MS:
        return reading
    return Reading(unknown=OLD_STATE.format(span(age_ms)) + why)


def if_it_lives(reading: Reading[U], missing: str) -> Reading[U]:
    """Return whether, or how many, live; but unknown in place of "nobody" while a broker is missing.

    A process may wait for that broker, and its last sign of life may be there. That somebody lives
    is known even then. `missing` names the broker, as `broker_names` does; empty: none is missing.
    """
    if not missing or reading.unknown or reading.value:
        return reading
    return Reading(unknown=MAY_LIVE.format(missing))


def why_state_is_old(ackers: Reading[int], missing: str) -> str:
    """Return what keeps a State from being written, by how many ackers live and which broker is missing."""
    if missing:
        return MAY_LIVE.format(missing)
    return ACKER_STANDS if ackers.value else NO_ACKER_WORKS


def shown_by_now(reading: Reading[int], *, is_old: bool) -> Reading[str | int]:
    """Return a count as a table shows it: ``≥ 2`` where it is old, and more may have come since."""
    return reading.then(lambda count: f"≥ {count:,}" if is_old else count)


def row_of(state: DataclassInstance, names: Iterable[str] | None = None) -> dict[str, Any]:
    """Return the fields of a dataclass by name, None where one is unknown, and under ``unknown`` why.

    `names` are the fields to take; None: all.
    """
    row: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    for name in names or [field.name for field in fields(state)]:
        value = getattr(state, name)
        if isinstance(value, Reading):
            row[name] = value.value
            if value.unknown:
                unknown[name] = value.unknown
        else:
            row[name] = value
    return {**row, "unknown": unknown}


@dataclass(frozen=True, slots=True)
class Ends:
    """The ends of a partition at the broker: where the logs of its topic and of its copies begin and end.

    `start` is the first offset that could be emitted; `committed` has no value if the group never committed.
    The ids are Kafka's of the two topics; empty: unknown.
    """

    start: Reading[int]
    end: Reading[int]
    copies_end: Reading[int]
    committed: Reading[int]
    topic_id: str = ""
    copies_topic_id: str = ""


@dataclass(frozen=True, slots=True)
class LiveProcesses:
    """Which processes are alive: whether the group's query ticked recently, and members of other groups.

    `missing_brokers` names the brokers that are missing (`broker_names`); empty: none is. `is_read`: a query
    that lives may read the input.
    """

    query: Reading[bool]
    ackers: Reading[int]
    replay_workers: Reading[int]
    missing_brokers: str = ""
    is_read: bool = False


@dataclass(frozen=True, slots=True)
class DeadRecords:
    """The records of one partition that are dead letters nobody handled; parallel arrays of shape (n,).

    `offsets` are those of the records in their own topic, and `died_ms` is wall time.
    """

    offsets: I64
    died_ms: I64


Dead = Mapping[int | None, DeadRecords]
"""The dead letters of an input by partition; under None those of all partitions."""

_NO_DEAD: Final = DeadRecords(np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """How far one source was emitted, and which of its roots are open.

    Attributes:
        was_emitted: whether any session ever emitted from the source or took it.
        generation_start: the first position of its present generation.
        emitted_to: behind the last emitted position.
        ranges: the open ranges, in no order.
        complete_to_ms: wall time up to which the States have all; None: they have all now.
        recreated: the topic, if it was created again since its records were emitted; else empty.
    """

    was_emitted: bool
    generation_start: int
    emitted_to: int
    ranges: Sequence[OpenRange]
    complete_to_ms: int | None = None
    recreated: str = ""

    @property
    def pending(self) -> int:
        return sum(len(range.at) for range in self.ranges)

    @property
    def in_state(self) -> int:
        return sum(len(range.at) for range in self.ranges if range.in_state)

    def oldest_ms(self, now_ms: int, *, in_state: bool) -> int:
        """Return the age of the oldest root that Spark's state holds, or does not hold; 0 without one."""
        ages_ms = [now_ms - range.emitted_ms for range in self.ranges if range.in_state == in_state]
        return max(ages_ms, default=0)

    @property
    def blocking(self) -> OpenRange | None:
        """The range with the lowest open position of the generation, which no commit can pass.

        None: nothing of it is open.
        """
        present = [range for range in self.ranges if range.first >= self.generation_start]
        return min(present, key=lambda range: range.first, default=None)


def first_present(announced: SourceGeneration, topic_id: str) -> tuple[int, bool]:
    """Return the first position of what is in a source's log now, and whether its topic was created again.

    If it was, its records are emitted in the next generation, and none of them was yet.

    Args:
        announced: the source as a session announced it.
        topic_id: Kafka's id of the topic now; empty: it is unknown, and taken for that of then.
    """
    if topic_id in ("", announced.topic_id):
        return announced.from_, False
    return position_at(announced.generation + 1, 0), True


def source_progress(
    views: Sequence[Reading[AckerView]], source: int, topic_id: str
) -> Reading[SourceProgress]:
    """Join what the States of all acker partitions have about a source; unknown if one of them is.

    `topic_id` is Kafka's of its topic now; empty: unknown.
    """
    readable: list[AckerView] = []
    for number, view in enumerate(views):
        if view.unknown or view.value is None:
            return Reading(unknown=view.unknown or NO_STATE.format(number))
        readable.append(view.value)
    generations: list[SourceGeneration] = []
    ranges: list[OpenRange] = []
    # a State is as good as new while no record has come since that it lacks
    complete_to_ms = min((view.at_ms for view in readable if view.is_behind), default=None)
    times_ms = [] if complete_to_ms is None else [complete_to_ms]
    for state_view in readable:
        generation = state_view.sources().get(source)
        if generation is not None:
            generations.append(generation)
        own_ranges = [range for range in state_view.open_ranges() if range.source == source]
        ranges += own_ranges
        if own_ranges:
            times_ms.append(state_view.at_ms)
    as_of_ms = min(times_ms, default=None)

    if not generations:
        nothing_emitted = SourceProgress(
            was_emitted=False, generation_start=0, emitted_to=0, ranges=(), complete_to_ms=complete_to_ms
        )
        return Reading(nothing_emitted, as_of_ms=as_of_ms)
    newest = max(generations, key=lambda generation: generation.generation)
    generation_start, is_recreated = first_present(newest, topic_id)
    emitted_to = generation_start
    if not is_recreated:
        emitted_to = max([generation_start, *(view.watermark(source) for view in readable)])
    progress = SourceProgress(
        was_emitted=not is_recreated,
        generation_start=generation_start,
        emitted_to=emitted_to,
        ranges=ranges,
        complete_to_ms=complete_to_ms,
        recreated=newest.topic if is_recreated else "",
    )
    return Reading(progress, as_of_ms=as_of_ms)


def too_late_counts(views: Sequence[Reading[AckerView]], group: str) -> Reading[LateCounts]:
    """Return how many roots and rows of a group came too late, summed over all acker partitions.

    Its note is the newest one.
    """
    total = LateCounts()
    for number, view in enumerate(views):
        if view.unknown or view.value is None:
            return Reading(unknown=view.unknown or NO_STATE.format(number))
        if view.value.owner(group) is None:  # no session has owned it here, so nothing came too late
            continue
        counts = view.value.too_late.get(group)
        if counts is None:
            # State of a former version has counts of no group, that of this one of at most GROUPS_MAX
            why = LEFT_OUT_OF_STATE if view.value.too_late else FORMER_STATE
            return Reading(unknown=why.format(number))
        notes = [note for note in (total.newest_note, counts.newest_note) if note is not None]
        newest = max(notes, key=lambda note: note.wall, default=None)
        total = LateCounts(total.roots + counts.roots, total.rows + counts.rows, newest)
    return Reading(total)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The state of a partition of an input, as of `now_ms`. Ages and durations are in ms.

    Attributes:
        source: ``input/partition``; ``input/?`` while the number of partitions is unknown.
        emitted: positions that its present generation has emitted.
        emitted_to: offset behind the last emitted one.
        end: offset at which its log ends.
        pending: open roots, copies among them.
        oldest_ms: age of the oldest open root that Spark's state does not hold; 0 without one.
        in_state: open roots that it holds.
        oldest_in_state_ms: age of the oldest of these; 0 without one.
        blocking: the lowest open offset, which no commit can pass.
        why: what blocks the commit.
        committed: the group's offset; no value: it never committed.
        lag: records that are not done, at most: offsets of transaction markers count where nothing was
            emitted yet.
        as_of_ms: how old the acker's part of this is.
        held: blocked records; no value where the input is not ordered.
        too_late: roots of its group of which a tuple came too late for its window.
        stopped: why its input is stopped on purpose; empty: it is not, or a query reads it all the same.
        dropped_rows: rows of its group that a watermark dropped, and of which nobody knows the records.
        is_old: whether a State is so old that more may be pending, and emitted, than is known; then what was
            nothing in it is unknown. Not in the row.
        why_old: why it is then so old. Not in the row.
        progress: what the ackers have of its records; not in the row. Likewise `copies`, `start`, and where
            its roots wait, the copies among them, and its dead letters come from.
    """

    source: str
    group: str
    emitted: Reading[int]
    emitted_to: Reading[int]
    end: Reading[int]
    pending: Reading[int]
    pending_max: int
    oldest_ms: Reading[int]
    in_state: Reading[int]
    oldest_in_state_ms: Reading[int]
    blocking: Reading[int]
    why: Reading[str]
    committed: Reading[int]
    lag: Reading[int]
    replays_due: Reading[int]
    held: Reading[int]
    waits_for: Reading[str]
    dead_letters: Reading[int]
    as_of_ms: Reading[int]
    query_lives: Reading[bool]
    ackers: Reading[int]
    replay_workers: Reading[int]
    replays_wait: Reading[str]
    too_late: Reading[int]
    dropped_rows: Reading[int]
    stopped: str
    input: str
    partition: int | None
    now_ms: int
    is_old: bool
    why_old: str
    start: Reading[int]
    progress: Reading[SourceProgress]
    copies: Reading[SourceProgress]
    copies_end: Reading[int]
    due_at: Reading[WaitingOffsets]
    copies_due_at: Reading[WaitingOffsets]
    dead_at: Reading[DeadRecords]

    @property
    def pending_shown(self) -> Reading[str | int]:
        """How many are pending as a table shows it: ``≥ 2`` where more may be by now."""
        return shown_by_now(self.pending, is_old=self.is_old)

    def row(self) -> dict[str, Any]:
        """Return it as a row of ``windhover status``."""
        return row_of(self, ROW)


_BESIDE_THE_ROW: Final = frozenset(
    {
        "input",
        "partition",
        "now_ms",
        "is_old",
        "why_old",
        "start",
        "progress",
        "copies",
        "copies_end",
        "due_at",
        "copies_due_at",
        "dead_at",
    }
)

ROW: Final = tuple(field.name for field in fields(PartitionState) if field.name not in _BESIDE_THE_ROW)
"""The fields of a row of ``windhover status``, in their order, without `unknown`."""


def partition_state(
    input: Input,
    partition: int | None,
    views: Sequence[Reading[AckerView]],
    ends: Ends,
    waiting: Reading[Waiting],
    dead: Reading[Dead],
    processes: LiveProcesses,
    now_ms: int,
) -> PartitionState:
    """Return the state of a partition of an input.

    `partition` None: its partitions cannot be counted, so one state is of the whole input.
    `views` are those of all acker partitions, and `now_ms` is wall time.
    """
    # what the ackers have: of the records themselves, and of their copies
    records_progress: Reading[SourceProgress] = Reading(unknown=ends.end.unknown)
    copies_progress = records_progress
    if partition is not None:
        source_of_records = source_of(input.id, partition)
        source_of_copies = source_of(input.id, partition, replay=True)
        records_progress = source_progress(views, source_of_records, ends.topic_id)
        copies_progress = source_progress(views, source_of_copies, ends.copies_topic_id)
    emitted_to = records_progress.then(_emitted_to_offset)
    pending = joined(
        lambda records, replayed: int(records.pending + replayed.pending),
        records_progress,
        copies_progress,
    )
    complete_to_ms = records_progress.then(lambda source: source.complete_to_ms).value
    # how long the States lack something; 0: they have all now
    age_ms = 0 if complete_to_ms is None else now_ms - complete_to_ms
    why_old = why_state_is_old(processes.ackers, processes.missing_brokers)

    def unknown_if_old(reading: Reading[U]) -> Reading[U]:
        """Return a figure; where it is 0 of an old State, it is unknown: there may be more by now."""
        return without_old_zero(reading, age_ms, why_old)

    def joined_figure(use: Callable[..., int]) -> Reading[int]:
        """Return a figure of the pending roots; where none is pending in an old State, 0 is unknown."""
        figure = joined(use, records_progress, copies_progress)
        return figure if pending.value else unknown_if_old(figure)

    def oldest_ms(*, in_state: bool) -> Reading[int]:
        def older_of_both(records: SourceProgress, replayed: SourceProgress) -> int:
            age_ms = records.oldest_ms(now_ms, in_state=in_state)
            return max(age_ms, replayed.oldest_ms(now_ms, in_state=in_state))

        return joined_figure(older_of_both)

    # what waits, and what died
    partition_id = input.id, -1 if partition is None else partition  # nothing waits in partition -1
    due = waiting.then(lambda replays: _replays_due(replays, input.id, partition))
    blocked: Reading[BlockedRecords] = Reading()
    waits_for: Reading[str] = Reading("")
    if input.ordered:
        blocked = waiting.then(lambda replays: replays.blocked.get(partition_id, BlockedRecords()))
        waits_for = blocked.then(lambda records: _waits_for_text(records, now_ms))
    own_dead = dead.then(lambda records: records.get(partition, _NO_DEAD))

    counts_of_group = too_late_counts(views, input.group)
    too_late = counts_of_group.then(lambda counts: counts.roots)
    dropped_rows = counts_of_group.then(lambda counts: counts.rows)
    if not pending.value:  # else the row says how old its figures are
        too_late = unknown_if_old(too_late)
        dropped_rows = unknown_if_old(dropped_rows)

    blocking = unknown_if_old(records_progress.then(lambda source: source.blocking))
    stopped = "" if processes.is_read else input.stopped
    why_commit_waits = _recreated_text(input, records_progress, copies_progress)
    if why_commit_waits is None:
        why_commit_waits = _why_commit_waits(
            blocking, records_progress, ends.committed, processes, now_ms, stopped
        )
    emitted = records_progress.then(lambda source: source.emitted_to - source.generation_start)
    return PartitionState(
        source=f"{input.name}/{'?' if partition is None else partition}",
        group=input.group,
        emitted=unknown_if_old(emitted),
        emitted_to=unknown_if_old(emitted_to),
        end=ends.end,
        pending=unknown_if_old(pending),
        pending_max=input.max_spout_pending,
        oldest_ms=oldest_ms(in_state=False),
        in_state=joined_figure(lambda records, replayed: records.in_state + replayed.in_state),
        oldest_in_state_ms=oldest_ms(in_state=True),
        blocking=blocking.then(lambda range: int(offset_of(range.first))),
        why=why_commit_waits,
        committed=ends.committed,
        lag=joined(_lag, ends.start, ends.end, ends.copies_end, emitted_to, copies_progress, pending, due),
        replays_due=due,
        # the name in JSON for what is blocked
        held=blocked.then(lambda records: records.blocked),
        waits_for=waits_for,
        dead_letters=own_dead.then(lambda records: len(records.offsets)),
        as_of_ms=_age_of_oldest(records_progress, copies_progress, now_ms),
        query_lives=processes.query,
        ackers=processes.ackers,
        replay_workers=processes.replay_workers,
        replays_wait=waiting.then(lambda replays: _why_replays_stop(input, partition, replays)),
        too_late=too_late,
        dropped_rows=dropped_rows,
        stopped=stopped,
        input=input.name,
        partition=partition,
        now_ms=now_ms,
        is_old=age_ms >= OLD_MS,
        why_old=why_old,
        start=ends.start,
        progress=records_progress,
        copies=copies_progress,
        copies_end=ends.copies_end,
        due_at=waiting.then(lambda replays: replays.offsets.get(partition_id, NOTHING_WAITS)),
        copies_due_at=waiting.then(lambda replays: replays.copies.get(partition_id, NOTHING_WAITS)),
        dead_at=own_dead,
    )


def _emitted_to_offset(progress: SourceProgress) -> int | None:
    """Return the offset behind the last emitted record; None: nothing was emitted yet."""
    return int(offset_of(progress.emitted_to)) if progress.was_emitted else None


def _replays_due(waiting: Waiting, input_id: int, partition: int | None) -> int:
    """Return how many replays wait of a partition of an input; None for its number: of the whole input."""
    if partition is not None:
        return waiting.due[input_id, partition]
    return sum(count for (waiting_id, _), count in waiting.due.items() if waiting_id == input_id)


def _age_of_oldest(
    progress: Reading[SourceProgress], copies: Reading[SourceProgress], now_ms: int
) -> Reading[int]:
    """Return how old the older of two readings is, in ms; 0: both are true up to now."""
    times_ms = [reading.as_of_ms for reading in (progress, copies) if reading.as_of_ms]
    # a State may be written while the others are read, so it can be younger than `now_ms`
    age_ms = max([0, *(now_ms - time_ms for time_ms in times_ms)])
    return joined(lambda _records, _replayed: age_ms, progress, copies)


def _lag(
    log_start: int,
    log_end: int,
    copies_end: int,
    emitted_to: int | None,
    copies_progress: SourceProgress,
    pending_count: int,
    due_count: int,
) -> int:
    """Return how many records are not done: not emitted yet, pending, or due for a replay.

    `log_start`, `log_end` and `copies_end` are offsets of the topic and of its replay topic.
    `emitted_to` is the offset behind the last emitted record; None: none was emitted.
    """
    first_not_emitted = log_start if emitted_to is None else emitted_to
    not_emitted = max(0, log_end - first_not_emitted)
    copies_not_emitted = max(0, copies_end - int(offset_of(copies_progress.emitted_to)))
    return not_emitted + copies_not_emitted + pending_count + due_count


def _waits_for_text(blocked: BlockedRecords, now_ms: int) -> str:
    """Describe which record a partition, or some keys of it, wait for."""
    if not blocked.first:
        return ""
    due = f"due in {span(blocked.due_ms - now_ms)}" if blocked.due_ms > now_ms else "due"
    return f"{UntrustedName(blocked.first)} first, {due}"


def _recreated_text(
    input: Input, progress: Reading[SourceProgress], copies: Reading[SourceProgress]
) -> Reading[str] | None:
    """Describe that a topic was created again, which no query survives; None: none was, or it is unknown."""
    sources = [reading.value for reading in (progress, copies) if reading.value is not None]
    topics = [source.recreated for source in sources if source.recreated]
    if not topics:
        return None
    names = " and ".join(str(UntrustedName(topic)) for topic in topics)
    return Reading(
        f"topic {names} was created again: no query of the group begins before the input is reset;"
        f" see `windhover offsets reset {input.name} --help`"
    )


def _why_commit_waits(
    blocking: Reading[OpenRange],
    progress: Reading[SourceProgress],
    committed: Reading[int],
    processes: LiveProcesses,
    now_ms: int,
    stopped: str,
) -> Reading[str]:
    """Describe what blocks the commit; empty: all that was emitted is committed.

    Args:
        blocking: the open range with the lowest position; no value: nothing is open.
        progress: how far the source was emitted.
        committed: the group's offset; no value: it has none.
        processes: which of them live.
        now_ms: wall time.
        stopped: why the input is stopped on purpose; empty: it is not.
    """
    if blocking.value is not None:
        # `progress` adds nothing to the text: if it is unknown, so is the reason
        return joined(lambda range, _progress: _why_open(range, processes, now_ms), blocking, progress)

    # `blocking` has no value: it is joined so that where it is unknown, so is the reason
    def why_not_committed(_blocking: None, progress: SourceProgress, committed: int | None) -> str:
        emitted_to = _emitted_to_offset(progress)
        if emitted_to is None:
            return ""
        # a group that never committed has a commit to make as soon as it has emitted something
        is_emitted = progress.emitted_to > progress.generation_start
        is_committed = committed >= emitted_to if committed is not None else not is_emitted
        if is_committed:
            return ""
        settled = "all is settled, and not committed yet"
        # while a broker is missing it is unknown whether a query lives; a stopped input needs none
        if processes.missing_brokers or stopped:
            return settled
        return f"{settled}; if it stays so, no query of the group runs"

    return joined(why_not_committed, blocking, progress, committed)


def _why_open(range: OpenRange, processes: LiveProcesses, now_ms: int) -> str:
    """Describe how long a range is open, and when it times out."""
    timeout = timeout_text(range, processes.query, processes.ackers)
    if timeout == CLOCK_STOPPED:
        timeout += ": no query lives"
    where = f" {HELD_BY_SPARK}" if range.in_state else ""
    return f"open for {span(max(0, now_ms - range.emitted_ms))}{where}, {timeout}"


def timeout_text(range: OpenRange, lives: Reading[bool], ackers: Reading[int]) -> str:
    """Describe when the roots of a range time out, or why they do not.

    `lives` says whether their session does, since its clock stops with it; `ackers` how many live.
    """
    if range.left_ms is None:
        return "never times out"
    if lives.value is False:
        return CLOCK_STOPPED
    if ackers.value == 0:
        return NO_TIMEOUT
    return f"times out in {span(range.left_ms)}"


def _why_replays_stop(input: Input, partition: int | None, waiting: Waiting) -> str:
    """Describe why replays of a partition are not made when they are due; empty if they are."""
    pause = waiting.pauses.get(input.id)
    if pause is not None:
        return f"replays are paused: {Untrusted(pause.why)}; run `windhover replay resume {input.name}`"
    aside_count = 0
    for (aside_id, aside_partition), count in waiting.aside.items():
        if aside_id == input.id and partition in (None, aside_partition):
            aside_count += count
    if not aside_count:
        return ""
    return (
        f"{aside_count:,} put aside, since the replay workers' topics.yaml lacks the input, they cannot read"
        " its topics, a topic refuses what is written, or another group emitted them under its id: give them"
        " this file (SIGHUP), or see"
        " `replay.put_aside` in their log"
    )
