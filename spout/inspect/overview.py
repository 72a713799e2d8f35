"""The state of each partition of each input, from the topics alone: ``windhover status``.

The state of the acker partitions comes from their State, waiting replays from ``_ack_due``, dead letters from
their topics, and the group's position from its commits. A value that cannot be found is unknown, never 0, and
has a reason: an acker has not written its State yet, a topic is missing or has more records than are read, or
the broker does not answer. What can be found is shown all the same.

Source: docs/design/protocol.md, sections 2 and 5; docs/design/conformance.md, S146.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, NamedTuple, ParamSpec, Protocol, TypeVar

import numpy as np

from acker.config.limits import STANDS_MS
from acker.config.settings import Input
from acker.config.topics import Topics
from acker.errors import NotAuthorized, Unreachable, WindhoverError
from acker.identity import offset_of
from acker.kafka.partition_troubles import (
    PartitionTrouble,
    TroubleKind,
    TroubleTimes,
    cut_log_text,
    damage_text,
    kind_of_run,
)
from acker.kafka.port import (
    Bound,
    GroupMember,
    Log,
    MissingBroker,
    TopicInfo,
    TopicPartition,
    broker_names,
)
from acker.kafka.read_to_end import READ_MAX, Follower, pass_damage
from acker.kafka.standing import LateReaders, StandingPartition
from acker.service.state import FILLING_SHARE, FULL_CURE
from acker.service.view import AckerView, ViewReader
from acker.units import any_time_text
from acker.untrusted import UntrustedName, shell_word
from acker.wire.lateness import LateCounts, TooLate
from acker.writer_clocks import WriterTime
from replay.records.headers import parse_location
from replay.records.letters import Letter, Mark, parse_letter
from replay.records.movers import mover_text
from spout.group.clocks import WatchedClocks, watch_clocks, wrong_clocks
from spout.group.presence import Presence
from spout.group.strangers import stranger_texts
from spout.inspect.letter_rows import moment
from spout.inspect.readings import (
    HELD_BY_SPARK,
    NO_STATE,
    STOPPED_ON_PURPOSE,
    WITHOUT_STATE,
    Dead,
    DeadRecords,
    Ends,
    LiveProcesses,
    PartitionState,
    Reading,
    if_it_lives,
    joined,
    late_counts,
    partition_state,
)
from spout.inspect.tables import span
from spout.inspect.waiting_roots import (
    NotWhole,
    Place,
    ReplayPartition,
    Waiting,
    WaitingRoots,
    not_whole,
)

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

STALE_MS: Final = 3_600_000
"""Who has read nothing for so long begins anew: tombstones may be gone that it has not read, after
`delete.retention.ms`, a day by default."""

MISSING: Final = "topic {} is missing; run `windhover topics create`"

_NOTHING: Final[Reading[Any]] = Reading(unknown="nothing was read yet")


class AckEnds(NamedTuple):
    """Where an acker partition's ``_ack_init`` and ``_ack_ack`` end."""

    init: int
    ack: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All partitions of all tracked inputs at one moment.

    Attributes:
        at_ms: wall time.
        partitions: their states, input by input; one for an input whose partitions cannot be counted.
        missing: topics that do not exist.
        away: why the broker could not be asked; None: it answered.
        refused: the first right that is missing, which hides values; None: none is missing.
        of_no_input: sentences on replays that wait for inputs missing in this topics.yaml.
        views: of the acker partitions, in their order. Likewise `ends`, of the ack topics.
        ackers: the members of their group. Likewise `replay_workers`.
        to_replay: what waits in each verdict partition, in their order.
        partition_troubles: what is the matter with partitions.
        strangers: by group, what is to be said of members that are not Windhover's.
        unread: by name, what is to be said of inputs that the living query of their group does not read.
        read_though_stopped: by name, what is to be said of inputs that are stopped on purpose, and read.
        missing_brokers: those that have copies of our partitions, and are not there.
        clocks: by whose they are, what is to be said of clocks that are wrong.
    """

    at_ms: int
    partitions: Sequence[PartitionState]
    missing: Sequence[str] = ()
    away: WindhoverError | None = None
    refused: NotAuthorized | None = None
    of_no_input: Sequence[str] = ()
    views: Sequence[Reading[AckerView]] = ()
    ends: Sequence[Reading[AckEnds]] = ()
    ackers: Reading[Sequence[GroupMember]] = _NOTHING
    replay_workers: Reading[Sequence[GroupMember]] = _NOTHING
    to_replay: Reading[Sequence[ReplayPartition]] = _NOTHING
    partition_troubles: Sequence[PartitionTrouble] = ()
    strangers: Mapping[str, str] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    read_though_stopped: Mapping[str, str] = field(default_factory=dict)
    missing_brokers: Sequence[MissingBroker] = ()
    clocks: Mapping[str, str] = field(default_factory=dict)

    @property
    def leaderless(self) -> Mapping[str, str]:
        """Why partitions have no answer, by ``topic/partition``."""
        return {trouble.name: trouble.detail for trouble in self._of_kind(TroubleKind.NO_ANSWER)}

    @property
    def standing(self) -> Sequence[str]:
        """Sentences on acker partitions and replay workers that do not go on."""
        return [trouble.detail for trouble in self._of_kind(TroubleKind.LATE_READER)]

    @property
    def cut(self) -> Mapping[str, str]:
        """What was lost of logs that were cut, by ``topic/partition``."""
        return {trouble.name: trouble.detail for trouble in self._of_kind(TroubleKind.CUT)}

    @property
    def filling(self) -> Mapping[str, str]:
        """Which States take half of a limit or more, by ``topic/partition``."""
        return {trouble.name: trouble.detail for trouble in self._of_kind(TroubleKind.FILLING)}

    def troubles(self) -> list[str]:
        """Describe what stands, fills or was cut; a command says at its end which offsets it could not read.

        A broker that is missing has been named before (`missing_broker_texts`).
        """
        named = [f"{name} {text}: what needs it waits" for name, text in self.leaderless.items()]
        cut = (f"{name}: {text}" for name, text in self.cut.items())
        of_inputs = [*self.unread.values(), *self.read_though_stopped.values()]
        filling = (f"{name}: {text}" for name, text in self.filling.items())
        others = [*self.clocks.values(), *self.strangers.values()]
        return [*named, *self.standing, *filling, *cut, *others, *of_inputs]

    def rows(self) -> list[dict[str, Any]]:
        """Return the row of each partition."""
        return [self.row_of(state) for state in self.partitions]

    def row_of(self, state: PartitionState) -> dict[str, Any]:
        """Return the row of a partition; `troubles` are those of all partitions that its input needs."""
        own = [trouble.row() for trouble in self.partition_troubles if state.input in trouble.inputs]
        return state.row() | {"troubles": own}

    def _of_kind(self, kind: TroubleKind) -> list[PartitionTrouble]:
        return [trouble for trouble in self.partition_troubles if trouble.kind is kind]


def filling_views(views: Sequence[Reading[AckerView]], share: float = FILLING_SHARE) -> list[AckerView]:
    """Return the acker partitions whose State takes this part of a limit, or more."""
    return [view.value for view in views if view.value is not None and view.value.size.share >= share]


def filling_text(view: AckerView) -> str:
    """Describe a State that fills, behind its place."""
    return (
        f"State of acker partition {view.partition} is {view.size.share:.0%} full ({view.size}). When it is"
        f" full, verdicts are held back: {FULL_CURE}"
    )


def notes_on(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what does not fit into 80 columns: why a commit is blocked, what waits, the values' age."""
    pauses: set[str | None] = set()  # a pause is of a whole input, and is printed once
    sources: dict[str, list[str]] = {}  # partitions that share a note have one line
    for row in rows:
        at = row["blocking"]
        why = row["why"] if at is None else f"offset {at:,} blocks the commit: {row['why']}"
        stopped = f"{STOPPED_ON_PURPOSE}: {row['stopped']}" if row["stopped"] else ""
        parts = [stopped, why, f"waits for {row['waits_for']}" if row["waits_for"] else ""]
        parts += [row["replays_wait"] if row["replays_wait"] not in pauses else ""]
        pauses.add(row["replays_wait"])
        parts += [f"{row['held']:,} blocked" if row["held"] else ""]
        held = (
            f"{row['in_state'] or 0:,} {HELD_BY_SPARK}, the oldest for {span(row['oldest_in_state_ms'] or 0)}"
        )
        parts += [held if row["in_state"] else ""]
        parts += [f"as of {span(row['as_of_ms'])} ago" if row["as_of_ms"] else ""]
        if any(parts):
            sources.setdefault("; ".join(text for text in parts if text), []).append(row["source"])
    for note, named in sources.items():
        yield f"{', '.join(named)}: {note}"


def late_notes(snapshot: Snapshot, topics: Topics) -> Iterator[str]:
    """Yield for each group with something that came too late what it was, and what moved its watermark."""
    for group in dict.fromkeys(state.group for state in snapshot.partitions):
        counts = late_counts(snapshot.views, group).value
        if counts is not None and counts.last is not None:
            yield late_text(group, counts, counts.last, topics)


def late_text(group: str, counts: LateCounts, last: TooLate, topics: Topics) -> str:
    """Describe what came too late of a group."""
    records, windows = ("record", "its window") if counts.roots == 1 else ("records", "their windows")
    roots = f"{counts.roots:,} {records} came too late for {windows}" if counts.roots else ""
    rows = f"Spark dropped {counts.rows:,} {'row' if counts.rows == 1 else 'rows'}" if counts.rows else ""
    rows = rows and f"{rows} that came too late"
    moved_by = mover_text(last.mover, topics.inputs_of(group), last.wall)
    return (
        f"group {group}: {' and '.join(filter(None, [roots, rows]))}, the last ones at {moment(last.wall)} by"
        f" the watermark {any_time_text(last.watermark)}, moved by {moved_by}"
    )


def unknown_values(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Describe which values are unknown and why, a line for each reason."""
    notes = []
    for why, named in unknown_by_reason(rows).items():
        names = dict.fromkeys(name for each in named.values() for name in each)
        notes.append(f"{', '.join(named)}: unknown are {', '.join(names)}, since {why}")
    return notes


def unknown_by_reason(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Return for each reason the names of the values that are unknown for it, by their partition."""
    found: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        for name, why in row["unknown"].items():
            found.setdefault(why, {}).setdefault(row["source"], []).append(name)
    return found


def missing_processes(rows: Sequence[Mapping[str, Any]], topics: Topics) -> list[str]:
    """Describe which processes are not alive, with the effect and the cure; empty if all are.

    Ackers come first: without one no query begins, and no group is released.
    """
    return [*missing_services(rows, topics), *no_query(silent_groups(rows))]


def silent_groups(rows: Sequence[Mapping[str, Any]]) -> dict[str, bool]:
    """Return the groups of which no query lives; the values say which may have roots to release now.

    One of which all inputs are stopped on purpose is none of them.
    """
    silent = [row for row in rows if row["query_lives"] is False and not row["stopped"]]
    left_open = {row["group"] for row in silent if row["ackers"] != 0 and _may_be_pending(row)}
    return {row["group"]: row["group"] in left_open for row in silent}


def _may_be_pending(row: Mapping[str, Any]) -> bool:
    return row["pending"] != 0 and not row["unknown"].get("pending", "").endswith(WITHOUT_STATE)


def missing_services(rows: Sequence[Mapping[str, Any]], topics: Topics) -> list[str]:
    """Describe that no acker lives, or no replay worker; empty if both do."""
    absent = {"ackers": topics.acker.group, "replay_workers": topics.acker.replay_group}
    return [_absent(topics, group) for name, group in absent.items() if any(row[name] == 0 for row in rows)]


def missing_broker_texts(brokers: Sequence[MissingBroker]) -> list[str]:
    """Describe the brokers that are missing, each in a line; the last line says what nobody knows then.

    They are named before all else that a view says: what follows may be so because of them alone.
    """
    if not brokers:
        return []
    what_is_unknown = (
        f"while {broker_names(brokers)}, nobody knows whether a query, an acker or a replay worker without a"
        " sign of life is gone: release no group, and start no process for it"
    )
    return [*(str(broker) for broker in brokers), what_is_unknown]


def missing_brokers(log: Log, topics: Topics) -> Sequence[MissingBroker]:
    """Return the brokers that have copies of an installation's topics, and are not there.

    Where nobody says it, none: what asks next says why there is no answer.
    """
    return Questions(log)(log.missing_brokers, topics_of_installation(topics)).value or ()


def topics_of_installation(topics: Topics) -> list[str]:
    """Return the names of all topics that an installation reads or writes."""
    tracked = [own for own in topics.inputs.values() if own.tracked]
    of_inputs = [name for own in tracked for name in (own.topic, own.replay_topic, own.dead_letter.topic)]
    return [*topics.ack_topics.names(), *of_inputs]


def missing_members(
    log: Log, topics: Topics, group: str, brokers: Sequence[MissingBroker] | None = None
) -> list[str]:
    """Describe that no acker lives, or no replay worker, or that nobody knows; empty: one does.

    `group` is theirs; `brokers` are those that are missing, and None where nobody has asked for them yet.
    Without an acker there is no verdict, and no State of what is emitted: that nothing failed or is open then
    says little.
    """
    missing = broker_names(missing_brokers(log, topics) if brokers is None else brokers)
    members = if_it_lives(Questions(log)(log.members, group), missing)
    if members.unknown:
        return [_unknown_life("a member", group, members.unknown)]
    return [] if members.value else [_absent(topics, group)]


def missing_queries(
    log: Log,
    topics: Topics,
    groups: Iterable[str],
    now_ms: int,
    brokers: Sequence[MissingBroker] | None = None,
) -> list[str]:
    """Read the signs of life in some groups, and describe those in which no query is seen to live.

    `groups` have open roots, which wait for their query; `brokers` is as for `missing_members`. The lines
    come in this order: groups of which nobody knows it, those that are stopped on purpose, with the reason,
    and one for all whose query is gone.
    """
    ask = Questions(log)
    broker = broker_names(missing_brokers(log, topics) if brokers is None else brokers)
    unknown, stopped, gone = list[str](), list[str](), list[str]()
    for group in groups:
        lives = if_it_lives(ask(_query_lives, log, topics, group, now_ms), broker)
        if lives.unknown:
            unknown.append(_unknown_life("a query", group, lives.unknown))
        elif lives.value:
            continue
        elif why := why_group_is_stopped(topics, group):
            stopped.append(f"group {UntrustedName(group)} is {STOPPED_ON_PURPOSE}: {why}")
        else:
            gone.append(group)
    return [*unknown, *stopped, *no_query(dict.fromkeys(gone, True))]


def _unknown_life(who: str, group: str, why: str) -> str:
    return f"whether {who} of group {UntrustedName(group)} lives is unknown, since {why}"


def why_group_is_stopped(topics: Topics, group: str) -> str:
    """Return why all inputs of a group are stopped on purpose; empty: one of them is not."""
    reasons = [own.stopped for own in topics.inputs_of(group)]
    return "; ".join(dict.fromkeys(reasons)) if all(reasons) else ""


class LiveQuery(NamedTuple):
    """Whether a query of a group lives, and the ids of the inputs that it reads; None: it does not say.

    `times` are when its newest signs of life were written, by its driver's clock and the broker's.
    """

    lives: bool
    inputs: frozenset[int] | None = None
    times: Sequence[WriterTime] = ()

    @property
    def ahead_ms(self) -> int | None:
        """By how much its driver's clock is ahead of the broker's at least; None: unknown."""
        aheads_ms = [time.ahead_ms for time in self.times if time.ahead_ms is not None]
        return min(aheads_ms, key=abs, default=None)

    def may_read(self, one: Input) -> bool:
        """Return whether it lives and reads an input, or does not say what it reads."""
        return self.lives and (self.inputs is None or one.id in self.inputs)


def live_query(log: Log, topics: Topics, group: str, now_ms: int) -> LiveQuery:
    with closing(Presence(log, topics.ack_topics.init, topics.acker.partitions, group, now_ms)) as presence:
        return LiveQuery(presence.last_ms is not None, presence.inputs(), presence.times())


def _query_lives(log: Log, topics: Topics, group: str, now_ms: int) -> bool:
    return live_query(log, topics, group, now_ms).lives


def unread_text(name: str, group: str, others: Iterable[str]) -> str:
    """Say that no query reads an input, though one of its group lives, which reads others."""
    named = ", ".join(others) or "none of this topics.yaml"
    return (
        f"no query reads input {name}: the one of group {UntrustedName(group)} that lives reads {named}; give"
        f" its read_stream {name} as well, or the input a group of its own"
    )


def read_though_stopped_text(one: Input) -> str:
    """Say that a query reads an input that is stopped on purpose."""
    return (
        f"input {one.name} is {STOPPED_ON_PURPOSE} ({one.stopped}), and a query of group"
        f" {UntrustedName(one.group)} that lives reads it all the same: end the query, or remove"
        f" `inputs.{one.name}.stopped`"
    )


def _unread(
    states: Sequence[PartitionState], queries: Mapping[str, Reading[LiveQuery]], inputs: Sequence[Input]
) -> dict[str, str]:
    """Return, by name, what is to be said of inputs with work left that no query of their group reads."""
    names = {one.id: one.name for one in inputs}
    texts: dict[str, str] = {}
    for one in inputs:
        query = queries[one.group].value
        if query is None or not query.lives or query.inputs is None or one.id in query.inputs or one.stopped:
            continue
        own = [state for state in states if state.input == one.name]
        if all(state.lag.value == 0 and state.replays_due.value == 0 for state in own):
            continue
        texts[one.name] = unread_text(
            one.name, one.group, [names[i] for i in sorted(query.inputs) if i in names]
        )
    return texts


def no_query(groups: Mapping[str, bool]) -> list[str]:
    """Describe in one note that no query of some groups lives; the values say of which roots may be open."""
    if not groups:
        return []
    left_open = [group for group, is_open in groups.items() if is_open]
    release = " and ".join(f"`windhover release {shell_word(group)}`" for group in left_open)
    named = ", ".join(str(UntrustedName(group)) for group in groups)
    of, it, them = ("group", "it", "it") if len(groups) == 1 else ("groups", "they", "them")
    return [
        f"no query of {of} {named} lives: nothing is read, and the clock of timeouts is stopped;"
        f" start {them}{release and f', or give what {it} left open to others with {release}'}"
    ]


def _absent(topics: Topics, group: str) -> str:
    """Describe that a group of services has no member, with the effect and the cure."""
    who, effect, command = (
        ("acker", "nothing is acked, fails or times out, and no query begins", "acker run")
        if group == topics.acker.group
        else ("replay worker", "lost records are neither replayed nor become dead letters", "replay run")
    )
    name = UntrustedName(group)
    return f"no {who} lives (group {name} has no member): {effect}; start one with `windhover {command}`"


class Overview:
    """All inputs of an installation; each call of `snapshot` reads what is new."""

    def __init__(self, log: Log, topics: Topics, *, read_max: int = READ_MAX) -> None:
        """Prepare; nothing is read. Of one topic at most `read_max` records are read for one snapshot."""
        self._log = log
        self._topics = topics
        self._inputs = [one for one in topics.inputs.values() if one.tracked]
        self._numbers = range(topics.acker.partitions)
        self._observer = ViewReader(log, topics.ack_topics, topics.acker.partitions, topics.acker.limits)
        self._read_max = read_max
        self._read_ms = 0
        self._troubles: dict[TopicPartition, str] = {}
        self._late = LateReaders()
        self._trouble_times = TroubleTimes()
        self._waiting = _Kept(lambda _: WaitingRoots(log, topics, read_max))
        self._dead = {one.name: _Kept(lambda info: _DeadLetters(log, info, read_max)) for one in self._inputs}

    def snapshot(self, now_ms: int) -> Snapshot:
        """Read the state of all partitions. No error of Kafka is raised: what it hides is unknown.

        It waits no longer than one question may (`Log.share_deadline`).

        1. Which topics there are. Where the broker does not answer, nothing more is asked.
        2. What all inputs share: the acker partitions, what waits, and which processes live.
        3. Of each input its ends, commits and dead letters.
        """
        self._log.share_deadline()
        ask = Questions(self._log)
        infos = self._topic_infos(ask)
        if ask.away is None:
            if now_ms - self._read_ms > STALE_MS:
                self.close()
            self._read_ms = now_ms
        names = self._topics.ack_topics
        self._troubles = {}
        ack_topics = [name for name in names.names() if name in infos.found]
        ends_of_ours = self._each(
            ask, Bound.END, [TopicPartition(name, number) for name in ack_topics for number in self._numbers]
        )
        # only now: a leader that did not answer for an end is one that is silent
        absent = ask(self._log.missing_brokers, topics_of_installation(self._topics)).value or ()
        missing = broker_names(absent)
        views = [self._view(ask, infos, ends_of_ours, number, missing) for number in self._numbers]
        waiting = infos.require(names.due, names.verdict) or ask(self._waiting.read, infos.found[names.due])
        ackers = if_it_lives(ask(self._log.members, self._topics.acker.group), missing)
        workers = if_it_lives(ask(self._log.members, self._topics.acker.replay_group), missing)
        live = {
            group: infos.require(names.init) or ask(live_query, self._log, self._topics, group, now_ms)
            for group in {one.group for one in self._inputs}
        }
        queries = {
            group: if_it_lives(query.then(lambda found: found.lives), missing)
            for group, query in live.items()
        }
        in_group = {group: ask(self._log.members, group).value or () for group in queries}
        services = {self._topics.acker.group: ackers, self._topics.acker.replay_group: workers}
        in_services = {group: members.value or () for group, members in services.items()}
        partitions: list[PartitionState] = []
        read_though_stopped: dict[str, str] = {}
        for one in self._inputs:
            query = live[one.group].value
            is_read = query is not None and query.may_read(one)
            if one.stopped and is_read:
                read_though_stopped[one.name] = read_though_stopped_text(one)
            processes = LiveProcesses(
                queries[one.group], ackers.then(len), workers.then(len), missing, is_read
            )
            letters = one.dead_letter.topic
            dead = infos.require(letters) or ask(self._dead[one.name].read, infos.found[letters])
            partitions += [
                partition_state(one, partition, views, ends, waiting, dead, processes, now_ms)
                for partition, ends in self._ends(ask, infos, one)
            ]
        of_no_input = [] if waiting.value is None else self._of_no_input(waiting.value.due)
        unread = infos.require(names.init, names.ack)
        ack_ends = [unread or self._ack_ends(ends_of_ours, number) for number in self._numbers]
        standing = self._standing(ask, ends_of_ours, views, waiting, now_ms)
        for name in {letters.dead_letter.topic for letters in self._inputs} & infos.found.keys():
            numbers = range(infos.found[name].partitions)
            self._each(ask, Bound.END, [TopicPartition(name, number) for number in numbers])
        return Snapshot(
            now_ms,
            partitions,
            infos.missing,
            ask.away,
            ask.refused,
            of_no_input,
            views,
            ack_ends,
            ackers,
            workers,
            to_replay=waiting.then(lambda each: each.partitions),
            partition_troubles=self._partition_troubles(partitions, standing, views, now_ms),
            strangers=stranger_texts(in_group, in_services),
            unread=_unread(partitions, live, self._inputs),
            read_though_stopped=read_though_stopped,
            missing_brokers=absent,
            clocks=wrong_clocks(self._writers(views, waiting, live), now_ms),
        )

    def watch_clocks(self, wall_ms: Callable[[], int]) -> WatchedClocks:
        """Watch the sessions' signs of life for clocks that differ; where nobody answers, all is unknown."""
        signs = [TopicPartition(self._topics.ack_topics.init, number) for number in self._numbers]
        return Questions(self._log)(watch_clocks, self._log, signs, wall_ms).value or WatchedClocks()

    def _writers(
        self,
        views: Sequence[Reading[AckerView]],
        waiting: Reading[Waiting],
        live: Mapping[str, Reading[LiveQuery]],
    ) -> Iterator[tuple[str, Sequence[WriterTime]]]:
        """Yield each process of which a topic has a sign of life, and when its signs were written."""
        for group, query in live.items():
            if query.value is not None:
                yield f"the driver of group {UntrustedName(group)}", query.value.times
        for number, view in enumerate(views):
            if view.value is not None:
                yield f"the acker of partition {number}", [view.value.written]
        if waiting.value is not None:
            for number, written in sorted(waiting.value.written.items()):
                yield f"the replay worker of partition {number}", [written]

    def _partition_troubles(
        self,
        states: Sequence[PartitionState],
        late: Sequence[StandingPartition],
        views: Sequence[Reading[AckerView]],
        now_ms: int,
    ) -> list[PartitionTrouble]:
        """Return what is the matter with partitions, as this look has it."""

        def trouble(
            kind: TroubleKind, place: TopicPartition, detail: str, start: int | None, end: int | None
        ) -> PartitionTrouble:
            needed_by = self._needed_by(place.topic)
            return PartitionTrouble(kind, place, now_ms, needed_by, detail, start, end)

        found = [
            trouble(TroubleKind.NO_ANSWER, place, text, None, None)
            for place, text in sorted(self._troubles.items())
        ]
        for partition in late:
            late_trouble = trouble(
                TroubleKind.LATE_READER,
                partition.place,
                self._late_text(partition),
                partition.position,
                partition.end,
            )
            found.append(replace(late_trouble, since_ms=partition.since_ms))
        for run in sorted(set(self._log.passed_over())):
            place = TopicPartition(run.topic, run.partition)
            found.append(trouble(kind_of_run(run), place, damage_text(run), run.start, run.end))
        for place, end, emitted_to in self._cuts(states):
            found.append(trouble(TroubleKind.CUT, place, cut_log_text(end, emitted_to), end, emitted_to))
        for view in filling_views(views):
            place = TopicPartition(self._topics.ack_topics.state, view.partition)
            found.append(trouble(TroubleKind.FILLING, place, filling_text(view), None, None))
        first_ms = self._trouble_times.look({(trouble.kind, trouble.place) for trouble in found}, now_ms)
        return [
            replace(trouble, since_ms=min(trouble.since_ms, first_ms[trouble.kind, trouble.place]))
            for trouble in found
        ]

    def _cuts(self, states: Sequence[PartitionState]) -> Iterator[tuple[TopicPartition, int, int]]:
        """Yield the logs that end before what was emitted of them, with their end and up to where it was.

        The ends were asked after what the ackers have, so a log that nobody cut is never shorter.
        """
        for state in states:
            own = self._topics.inputs[state.input]
            sources = (
                (own.topic, state.progress, state.end),
                (own.replay_topic, state.copies, state.copies_end),
            )
            for topic, progress, end in sources:
                emitted, end_offset = progress.value, end.value
                # what was emitted of a topic that was created again was in another log
                if state.partition is None or emitted is None or emitted.recreated or end_offset is None:
                    continue
                emitted_to = int(offset_of(emitted.emitted_to)) if emitted.was_emitted else 0
                if emitted_to > end_offset:
                    yield TopicPartition(topic, state.partition), end_offset, emitted_to

    def _needed_by(self, topic: str) -> list[str]:
        """Return the names of the inputs that need a topic: an ack topic is needed by all."""
        if topic in self._topics.ack_topics.names():
            return [own.name for own in self._inputs]
        return [
            own.name for own in self._inputs if topic in (own.topic, own.replay_topic, own.dead_letter.topic)
        ]

    def close(self) -> None:
        self._waiting.close()
        for letters in self._dead.values():
            letters.close()

    def _topic_infos(self, ask: Questions) -> _Infos:
        """Ask for all topics at once; where one refuses, for the ack topics and those of each input alone."""
        names = self._topics.ack_topics
        ours = [names.state, names.verdict, names.due, names.init, names.ack]
        of_inputs = [[one.topic, one.replay_topic, one.dead_letter.topic] for one in self._inputs]
        every = [*ours, *(name for each in of_inputs for name in each)]
        infos = _Infos()
        whole = ask(self._log.topics, every)
        for some in [every] if whole.value is not None else [ours, *of_inputs]:
            infos.put(some, whole if whole.value is not None else ask(self._log.topics, some))
        return infos

    def _view(
        self,
        ask: Questions,
        infos: _Infos,
        ends: Mapping[TopicPartition, Reading[int]],
        number: int,
        missing: str,
    ) -> Reading[AckerView]:
        names = self._topics.ack_topics
        if lacking := infos.require(names.state, names.verdict, names.init):
            return lacking
        for name in (names.state, names.verdict, names.init):
            if unknown := ends[TopicPartition(name, number)].unknown:  # a question would wait for it
                return Reading(unknown=unknown)
        found = ask(self._observer.view, number)
        if found.value is not None or found.unknown:
            return found.then(lambda view: view)
        if missing:
            return Reading(unknown=f"acker partition {number} has no State yet, and {missing}")
        return Reading(unknown=NO_STATE.format(number))

    def _each(
        self, ask: Questions, bound: Bound | int, places: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Reading[int]]:
        """Ask about partitions; one that has no answer hides its own value, and is noted."""
        answers = ask(self._log.bounds, bound, places)
        if answers.value is None:
            return dict.fromkeys(places, Reading(unknown=answers.unknown))
        self._troubles |= answers.value.troubles
        readings: dict[TopicPartition, Reading[int]] = {}
        for place in places:
            if place in answers.value.offsets:
                readings[place] = Reading(answers.value.offsets[place])
            else:
                text = answers.value.troubles[place]
                readings[place] = Reading(unknown=f"{place.topic}/{place.partition} {text}")
        return readings

    def _ack_ends(self, ends: Mapping[TopicPartition, Reading[int]], number: int) -> Reading[AckEnds]:
        names = self._topics.ack_topics
        own = [ends[TopicPartition(name, number)] for name in (names.init, names.ack)]
        return joined(AckEnds, *own)

    def _standing(
        self,
        ask: Questions,
        ends: Mapping[TopicPartition, Reading[int]],
        views: Sequence[Reading[AckerView]],
        waiting: Reading[Waiting],
        now_ms: int,
    ) -> list[StandingPartition]:
        """Return which acker partitions and replay workers do not go on, as far as they have come."""
        names, limits = self._topics.ack_topics, self._topics.replay.limits
        positions: dict[TopicPartition, int] = {}
        for number, view in enumerate(views):
            if view.value is not None:
                positions[TopicPartition(names.init, number)] = view.value.next_init
                positions[TopicPartition(names.ack, number)] = view.value.next_ack
        for number, partition in enumerate(waiting.value.partitions if waiting.value is not None else ()):
            # one that has as much as may wait reads no more on purpose; where nothing lags, it has read all
            if partition.lag and partition.due < limits.waiting_max:
                positions[TopicPartition(names.verdict, number)] = partition.next
        answers = {
            place: end.value for place, end in ends.items() if place in positions and end.value is not None
        }
        young = self._each(ask, max(0, now_ms - STANDS_MS), list(answers))
        first_young = {place: offset.value for place, offset in young.items() if offset.value is not None}
        return self._late.look(positions, first_young, answers, now_ms)

    def _late_text(self, partition: StandingPartition) -> str:
        names, number = self._topics.ack_topics, partition.place.partition
        who = f"acker partition {number} has read"
        if partition.place.topic == names.verdict:
            who = f"the replay worker of partition {number} has taken over"
        return (
            f"{who} {partition.name} up to {partition.position:,} of {partition.end or 0:,}, and lacks"
            f" records that are older than {STANDS_MS // 1000} s: it stands, or catches up; see"
            " `windhover machinery`, and the log of its process"
        )

    def _of_no_input(self, due: Counter[Place]) -> list[str]:
        """Return a sentence for each input id that topics.yaml lacks and that replays wait for.

        `due` counts the replays that wait, by the place of their source: an input's id and a partition.
        """
        ids_of_inputs = {own.id for own in self._topics.inputs.values()}
        replays_by_id = Counter[int]()
        for (input_id, _partition), replays in due.items():
            if input_id not in ids_of_inputs:
                replays_by_id[input_id] += replays
        return [
            f"{replays:,} replays wait of an input with id {input_id}, which this topics.yaml does not have;"
            " nothing is decided about them before the replay workers have a file with it; where no input"
            f" ever had it, `windhover replay drop --id {input_id}` shows them, and drops them"
            for input_id, replays in sorted(replays_by_id.items())
            if replays
        ]

    def _ends(self, ask: Questions, infos: _Infos, one: Input) -> Iterator[tuple[int | None, Ends]]:
        """Yield each partition of an input with its ends; None where its partitions cannot be counted."""
        if lacking := infos.require(one.topic):
            yield None, Ends(lacking, lacking, lacking, lacking)
            return
        numbers = range(infos.found[one.topic].partitions)
        places = [TopicPartition(one.topic, number) for number in numbers]
        copies = [TopicPartition(one.replay_topic, number) for number in numbers]
        starts, ends = self._each(ask, Bound.START, places), self._each(ask, Bound.STABLE_END, places)
        no_copies = infos.require(one.replay_topic)
        if no_copies is None and infos.found[one.replay_topic].partitions < len(numbers):
            no_copies = Reading(
                unknown=f"replay topic {one.replay_topic} has fewer partitions than {one.topic}; run"
                " `windhover topics create`"
            )
        copies_ends = (
            dict.fromkeys(copies, no_copies) if no_copies else self._each(ask, Bound.STABLE_END, copies)
        )
        committed = ask(self._log.committed, one.group, places)
        names = (one.topic, one.replay_topic)
        ids = [infos.found[name].id if name in infos.found else "" for name in names]
        for number, place, copy in zip(numbers, places, copies, strict=True):
            at = None if committed.value is None else committed.value.get(place)
            commit = Reading(at, committed.unknown)
            yield number, Ends(starts[place], ends[place], copies_ends[copy], commit, *ids)


def with_right_clock(overview: Overview, snapshot: Snapshot, wall_ms: Callable[[], int]) -> Snapshot:
    """Compare this machine's clock with the broker's, and say so in a snapshot that was just read.

    By a wrong clock a query that lives seems to be gone, and ages are wrong: then all is read again, by the
    broker's time. It takes up to `WATCH_MS`, until somebody writes.
    """
    clocks = overview.watch_clocks(wall_ms)
    here_ms = wall_ms()
    if clocks.correction_ms:
        snapshot = overview.snapshot(here_ms - clocks.correction_ms)
    return replace(snapshot, clocks={**clocks.texts(here_ms), **snapshot.clocks})


class _Reads(Protocol[T_co]):
    def read(self) -> T_co: ...
    def close(self) -> None: ...


class _Kept(Generic[T]):
    """A reader that lives as long as its topic has these partitions, and begins anew after an error."""

    def __init__(self, make: Callable[[TopicInfo], _Reads[T]]) -> None:
        self._make = make
        self._reader: _Reads[T] | None = None
        self._read_from = "", 0

    def read(self, info: TopicInfo) -> T:
        if self._read_from != (info.id, info.partitions):
            self.close()
        if self._reader is None:
            self._reader, self._read_from = self._make(info), (info.id, info.partitions)
        try:
            return self._reader.read()
        except NotWhole:
            raise
        except WindhoverError:
            self.close()
            raise

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = None


class Questions:
    """Asks, and makes what goes wrong an unknown value. Once the broker is away, nothing more is asked.

    It is away when it does not answer for topics, which any broker could. Of several brokers one may be
    silent, so the questions should share a deadline (`Log.share_deadline`).
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self.away: WindhoverError | None = None
        self.refused: NotAuthorized | None = None

    def __call__(self, question: Callable[P, T], *args: P.args, **options: P.kwargs) -> Reading[T]:
        if self.away is not None:
            return Reading(unknown=str(self.away))
        try:
            return Reading(question(*args, **options))
        except Unreachable as error:
            if question == self._log.topics:
                self.away = error
            return Reading(unknown=str(error))
        except NotAuthorized as error:
            self.refused = self.refused or error
            return Reading(unknown=str(error))
        except WindhoverError as error:
            return Reading(unknown=str(error))


class _Infos:
    """Which topics there are."""

    def __init__(self) -> None:
        self.found: dict[str, TopicInfo] = {}
        self._why: dict[str, str] = {}

    @property
    def missing(self) -> list[str]:
        return sorted(name for name, why in self._why.items() if why == MISSING.format(name))

    def put(self, names: Sequence[str], infos: Reading[Mapping[str, TopicInfo]]) -> None:
        self.found.update(infos.value or {})
        self._why.update(
            {name: infos.unknown or MISSING.format(name) for name in names if name not in self.found}
        )

    def require(self, *names: str) -> Reading[Any] | None:
        """Return what is unknown where one of some topics is missing; None: all are there."""
        return next((Reading(unknown=self._why[name]) for name in names if name in self._why), None)


class _DeadLetters:
    """Which letters of a topic were not handled, by the partition of their origin."""

    def __init__(self, log: Log, info: TopicInfo, read_max: int) -> None:
        places = [TopicPartition(info.name, number) for number in range(info.partitions)]
        self._topic = info.name
        self._log = log
        self._places = places
        self._follower = Follower(log, places, read_max, on_damage=pass_damage)
        self._letters: dict[tuple[int, int], tuple[int, int, int]] = {}
        """Partition and offset of the origin, and the time of death, by the place of the letter."""

    def read(self) -> Dead:
        """Return those of each partition; `NotWhole`: not all were read."""
        for record in self._follower.read():
            found = parse_letter(record)
            if isinstance(found, Letter) and not found.is_note:
                _, partition, offset = parse_location(found.lineage.origin) or ("", found.partition, -1)
                self._letters[found.partition, found.offset] = partition, offset, found.died_ms
            elif isinstance(found, Mark):
                _, partition, offset = parse_location(found.letter) or ("", -1, -1)
                self._letters.pop((partition, offset), None)
        if not self._follower.is_whole:
            raise NotWhole(not_whole(self._topic, self._follower))
        # retention takes letters that were read long ago
        starts = self._log.bounds(Bound.START, self._places).offsets if self._letters else {}
        for number, offset in list(self._letters):
            if offset < starts.get(TopicPartition(self._topic, number), 0):
                del self._letters[number, offset]
        dead = np.array(list(self._letters.values()), np.int64).reshape(-1, 3)
        of: dict[int | None, DeadRecords] = {None: DeadRecords(dead[:, 1], dead[:, 2])}
        for partition in np.unique(dead[:, 0]).tolist():
            own = dead[dead[:, 0] == partition]
            of[partition] = DeadRecords(own[:, 1], own[:, 2])
        return of

    def close(self) -> None:
        self._follower.close()
