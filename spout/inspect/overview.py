"""The state of each partition of each input, from the topics alone: ``windhover status``.

The state of the acker partitions comes from their State, waiting replays from ``_ack_due``, dead letters from
their topics, and the group's position from its commits. A value that cannot be found is None, never 0: for
instance when an acker has not written its State yet, or when a topic has more records than are read.

Source: docs/design/protocol.md, sections 2 and 5; docs/design/conformance.md, S146.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from acker.config.settings import Input
from acker.config.topics import Topics
from acker.errors import TopicError
from acker.identity import offset_of, source_of
from acker.kafka.port import Log, TopicInfo, TopicPartition
from acker.service.view import AckerView, OpenRange, ViewReader
from replay.records.headers import parse_location
from replay.records.letters import Letter, Mark, parse_letter
from spout.group.presence import Presence
from spout.inspect.tables import span
from spout.inspect.waiting_roots import BlockedRecords, WaitingRoots
from spout.runtime.follow import READ_MAX, Follower


@dataclass(frozen=True, slots=True)
class Ends:
    """The ends of a partition at the broker: where the logs of its topic and of its copies begin and end.

    `start` is the first offset that could be emitted; `committed` is None if the group never committed.
    """

    start: int
    end: int
    copies_end: int
    committed: int | None


@dataclass(frozen=True, slots=True)
class LiveProcesses:
    """Which processes are alive: whether the group's query ticked recently, and members of other groups."""

    query: bool
    ackers: int
    replay_workers: int


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """How far one source was emitted, and which of its roots are open.

    Attributes:
        was_emitted: whether any session ever emitted from the source or took it.
        first: the first position of its present generation.
        emitted_to: behind the last emitted position.
        ranges: the open ranges, in no order.
        as_of_ms: wall time up to which this is true; None: up to now.
    """

    was_emitted: bool
    first: int
    emitted_to: int
    ranges: Sequence[OpenRange]
    as_of_ms: int | None

    @property
    def pending(self) -> int:
        """How many roots are open."""
        return sum(len(found.at) for found in self.ranges)

    @property
    def blocking(self) -> OpenRange | None:
        """The range with the lowest open position of the generation, which no commit can pass."""
        present = [found for found in self.ranges if found.first >= self.first]
        return min(present, key=lambda found: found.first, default=None)


def source_progress(views: Sequence[AckerView | None], source: int) -> SourceProgress | None:
    """Join what all acker partitions have about a source; None when the State of one cannot be read."""
    readable = [view for view in views if view is not None]
    if len(readable) < len(views):
        return None
    named = [found for view in readable if (found := view.sources().get(source)) is not None]
    held = [(view, found) for view in readable for found in view.open_ranges() if found.source == source]
    # A State is up to date while no later record has arrived and none of its roots is open.
    as_of_ms = min(
        [view.at_ms for view in readable if view.is_behind] + [view.at_ms for view, _ in held], default=None
    )
    if not named:
        return SourceProgress(False, 0, 0, (), as_of_ms)
    newest = max(named, key=lambda found: found.generation)
    emitted_to = max([newest.from_, *(view.watermark(source) for view in readable)])
    return SourceProgress(True, newest.from_, emitted_to, [found for _, found in held], as_of_ms)


def partition_row(
    found: Input, partition: int, views: Sequence[AckerView | None], ends: Ends, due: int | None,
    dead: int | None, now_ms: int, blocked: BlockedRecords | None = None, lives: LiveProcesses | None = None,
    stopped: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return the state of a partition of an input as a row.

    Args:
        found: its input.
        partition: its number.
        views: of all acker partitions.
        ends: from the broker.
        due: how many of its roots wait for a replay, or to become a dead letter; None: unknown.
        dead: its dead letters that were not handled; None: unknown.
        now_ms: wall time.
        blocked: its blocked records, if the input is ordered.
        lives: which processes are alive.
        stopped: why replays wait longer than until they are due, and the cure; empty: they do not.

    Returns:
        A row. None stands for a value that is unknown or does not exist: the committed offset of a group that
        never committed, or the blocking offset where nothing blocks. `lag` counts offsets that are not
        emitted yet, with those of transaction markers; so at most this many records are not done.
    """
    source = source_progress(views, source_of(found.id, partition))
    copies = source_progress(views, source_of(found.id, partition, replay=True))
    row: dict[str, Any] = {
        "source": f"{found.name}/{partition}", "group": found.group,
        "emitted": None, "emitted_to": None, "end": ends.end, "pending": None,
        "pending_max": found.max_spout_pending, "oldest_ms": None, "blocking": None, "why": None,
        "committed": ends.committed,
        "lag": None, "replays_due": due, "held": blocked.blocked if blocked and found.ordered else None,
        "waits_for": _waits(found, blocked, now_ms),
        "dead_letters": dead, "as_of_ms": None, "query_lives": None if lives is None else lives.query,
        "ackers": None if lives is None else lives.ackers,
        "replay_workers": None if lives is None else lives.replay_workers,
        "replays_wait": stopped,
    }  # fmt: skip
    if source is None or copies is None:
        return row
    emitted_to = int(offset_of(source.emitted_to)) if source.was_emitted else None
    left = ends.end - (ends.start if emitted_to is None else emitted_to)
    copies_left = max(0, ends.copies_end - int(offset_of(copies.emitted_to)))
    pending = source.pending + copies.pending
    blocking = source.blocking
    row |= {
        "emitted": source.emitted_to - source.first,
        "emitted_to": emitted_to,
        "pending": pending,
        "oldest_ms": max((now_ms - each.emitted_ms for each in (*source.ranges, *copies.ranges)), default=0),
        "blocking": None if blocking is None else int(offset_of(blocking.first)),
        "why": _why(
            blocking, emitted_to, ends.committed, now_ms, no_query=lives is not None and not lives.query
        ),
        "lag": None if due is None else max(0, left) + copies_left + pending + due,
        "as_of_ms": max((now_ms - at for each in (source, copies) if (at := each.as_of_ms)), default=0),
    }
    return row


def _waits(found: Input, blocked: BlockedRecords | None, now_ms: int) -> str | None:
    """Describe which record a partition, or some keys of it, wait for."""
    if blocked is None or not found.ordered:
        return None if found.ordered else ""
    if not blocked.first:
        return ""
    due = f"due in {span(blocked.due_ms - now_ms)}" if blocked.due_ms > now_ms else "due"
    return f"{blocked.first} first, {due}"


def _why(
    blocking: OpenRange | None, emitted_to: int | None, committed: int | None, now_ms: int, *, no_query: bool
) -> str:
    """Describe what blocks the commit; without a query the clock of timeouts stands still."""
    if blocking is not None:
        left = "never times out" if blocking.left_ms is None else f"times out in {span(blocking.left_ms)}"
        if no_query and blocking.left_ms is not None:
            left = "the clock of its timeout stands still: no query lives"
        return f"open for {span(max(0, now_ms - blocking.emitted_ms))}, {left}"
    if emitted_to is not None and committed is not None and committed < emitted_to:
        return "all is settled, and not committed yet; if it stays so, no query of the group runs"
    return ""


def notes_on(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what does not fit into 80 columns: why a commit is blocked, what waits, the values' age."""
    pauses: set[str | None] = set()  # a pause is of a whole input, and is printed once
    for row in rows:
        at = row["blocking"]
        why = row["why"] if at is None else f"offset {at:,} blocks the commit: {row['why']}"
        parts = [why, f"waits for {row['waits_for']}" if row["waits_for"] else ""]
        parts += [row["replays_wait"] if row["replays_wait"] not in pauses else ""]
        pauses.add(row["replays_wait"])
        parts += [f"{row['held']:,} held" if row["held"] else ""]
        parts += [f"as of {span(row['as_of_ms'])} ago" if row["as_of_ms"] else ""]
        if any(parts):
            yield f"{row['source']}: {'; '.join(text for text in parts if text)}"


def missing_processes(rows: Sequence[Mapping[str, Any]], topics: Topics) -> list[str]:
    """Describe which processes are not alive, with the effect and the cure; empty if all are."""
    notes = [
        f"no query of group {group} lives: nothing is read, and the clock of timeouts stands still; start it,"
        f" or give what it left open to others with `windhover release {group}`"
        for group in dict.fromkeys(row["group"] for row in rows if row["query_lives"] is False)
    ]
    if any(row["ackers"] == 0 for row in rows):
        notes.append(
            f"no acker lives (group {topics.acker.group} has no member): nothing is acked, fails or times"
            " out; start one with `windhover acker run`"
        )
    if any(row["replay_workers"] == 0 for row in rows):
        notes.append(
            f"no replay worker lives (group {topics.acker.replay_group} has no member): what is lost is not"
            " replayed; start one with `windhover replay run`"
        )
    return notes


class Overview:
    """All inputs of an installation; each call of `rows` returns fresh rows."""

    def __init__(self, log: Log, topics: Topics, *, read_max: int = READ_MAX) -> None:
        """Check that the topics exist; `TopicError` if one is missing."""
        self._log = log
        self._topics = topics
        self._inputs = [one for one in topics.inputs.values() if one.tracked]
        self._infos = _infos(log, topics, self._inputs)
        names = topics.ack_topics
        self._numbers = range(topics.acker.partitions)
        self._observer = ViewReader(log, names, topics.acker.partitions, topics.acker.all_limits)
        self._waiting = WaitingRoots(log, topics, read_max)
        self._dead = {one.name: _DeadLetters(log, self._infos[one.dead_letter.topic], read_max)
                      for one in self._inputs}  # fmt: skip
        self._due: Mapping[tuple[int, int], int] | None = None

    def rows(self, now_ms: int) -> list[dict[str, Any]]:
        """Return a row for each partition of each tracked input."""
        views = [self._observer.view(number) for number in self._numbers]
        due = self._due = self._waiting.count()
        blocked = None if due is None else self._waiting.blocked()
        ackers = self._log.members(self._topics.acker.group)
        replay_workers = self._log.members(self._topics.acker.replay_group)
        queries = {group: self._query_lives(group, now_ms) for group in {one.group for one in self._inputs}}
        rows: list[dict[str, Any]] = []
        for one in self._inputs:
            dead = self._dead[one.name].count()
            lives = LiveProcesses(queries[one.group], ackers, replay_workers)
            for partition, ends in self._ends(one).items():
                waiting = None if due is None else due[one.id, partition]
                died = None if dead is None else dead[partition]
                behind = None if blocked is None else blocked.get((one.id, partition), BlockedRecords())
                stopped = None if due is None else self._stopped(one, partition)
                rows.append(
                    partition_row(one, partition, views, ends, waiting, died, now_ms, behind, lives, stopped)
                )
        return rows

    def of_no_input(self) -> list[str]:
        """Describe replays that wait for inputs missing in this topics.yaml, as of the last `rows`."""
        own = {one.id for one in self._topics.inputs.values()}
        counts = Counter[int]()
        for (input_id, _), count in (self._due or {}).items():
            counts[input_id] += count
        return [
            f"{count:,} replays wait of an input with id {input_id}, which this topics.yaml does not have;"
            " nothing is decided about them before the replay workers have a file with it"
            for input_id, count in sorted(counts.items())
            if input_id not in own and count
        ]

    def close(self) -> None:
        self._waiting.close()
        for letters in self._dead.values():
            letters.close()

    def _query_lives(self, group: str, now_ms: int) -> bool:
        init = self._topics.ack_topics.init
        with closing(Presence(self._log, init, len(self._numbers), group, now_ms)) as presence:
            return presence.last_ms is not None

    def _stopped(self, one: Input, partition: int) -> str:
        """Describe why replays of a partition are not made when they are due; empty if they are."""
        pause = self._waiting.pauses().get(one.id)
        if pause is not None:
            return f"replays are paused: {pause.why}; run `windhover replay resume {one.name}`"
        aside = self._waiting.aside().get((one.id, partition), 0)
        return (
            f"{aside:,} put aside, since the replay workers' topics.yaml lacks the input or they cannot read"
            " its topics: give them this file (SIGHUP), or see `replay.put_aside` in their log"
            if aside
            else ""
        )

    def _ends(self, one: Input) -> Mapping[int, Ends]:
        numbers = range(self._infos[one.topic].partitions)
        places = [TopicPartition(one.topic, number) for number in numbers]
        copies = [TopicPartition(one.replay_topic, number) for number in numbers]
        starts, ends = self._log.starts(places), self._log.stable_ends([*places, *copies])
        committed = self._log.committed(one.group, places)
        return {
            number: Ends(starts[place], ends[place], ends[copies[number]], committed.get(place))
            for number, place in zip(numbers, places, strict=True)
        }


class _DeadLetters:
    """Which letters of a topic were not handled, by the partition of their origin."""

    def __init__(self, log: Log, info: TopicInfo, read_max: int) -> None:
        places = [TopicPartition(info.name, number) for number in range(info.partitions)]
        self._follower = Follower(log, places, read_max)
        self._letters: dict[tuple[int, int], int] = {}

    def count(self) -> Counter[int] | None:
        """Return how many there are for each partition; None when not all were read."""
        for record in self._follower.read():
            found = parse_letter(record)
            if isinstance(found, Letter) and not found.is_note:
                self._letters[found.partition, found.offset] = found.origin_partition
            elif isinstance(found, Mark):
                _, partition, offset = parse_location(found.letter) or ("", -1, -1)
                self._letters.pop((partition, offset), None)
        return Counter(self._letters.values()) if self._follower.is_whole else None

    def close(self) -> None:
        self._follower.close()


def _infos(log: Log, topics: Topics, inputs: Sequence[Input]) -> Mapping[str, TopicInfo]:
    names = [name for one in inputs for name in (one.topic, one.replay_topic, one.dead_letter.topic)]
    names += [topics.ack_topics.state, topics.ack_topics.verdict, topics.ack_topics.due]
    infos = log.topics(names)
    missing = sorted(set(names) - set(infos))
    if missing:
        raise TopicError(f"topics {', '.join(missing)} are missing; run `windhover topics create`")
    for one in inputs:
        if infos[one.replay_topic].partitions < infos[one.topic].partitions:
            raise TopicError(
                f"replay topic {one.replay_topic} has fewer partitions than {one.topic}; run"
                " `windhover topics create`"
            )
    return infos
