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
from acker.kafka.standing import StandingPartition, StandingReaders
from acker.service.state import FILLING_SHARE, FULL_CURE
from acker.service.view import NO_STATE, AckerView, ViewReader
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
    partition_state,
    too_late_counts,
)
from spout.inspect.tables import span
from spout.inspect.waiting_roots import (
    NotWhole,
    PartitionId,
    ReplayPartition,
    Waiting,
    WaitingRoots,
    not_whole,
)
from spout.planning.session import SessionName

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
        broker_error: why the broker could not be asked; None: it answered.
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
    broker_error: WindhoverError | None = None
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
        """Return a sentence for each trouble.

        They are: partitions without an answer, readers that stand, States that fill, logs that were
        cut, clocks, strangers, and inputs that no query reads, or that one reads though they are
        stopped. Left out are missing brokers (`missing_broker_texts`) and offsets that could not be
        read: a command prints those itself.
        """
        texts = [f"{name} {text}: what needs it waits" for name, text in self.leaderless.items()]
        texts += self.standing
        texts += [f"{name}: {text}" for name, text in self.filling.items()]
        texts += [f"{name}: {text}" for name, text in self.cut.items()]
        texts += [*self.clocks.values(), *self.strangers.values()]
        texts += [*self.unread.values(), *self.read_though_stopped.values()]
        return texts

    def rows(self) -> list[dict[str, Any]]:
        """Return the row of each partition."""
        return [self.row_of(state) for state in self.partitions]

    def row_of(self, state: PartitionState) -> dict[str, Any]:
        """Return the row of a partition; `troubles` are those of all partitions that its input needs."""
        troubles = [trouble.row() for trouble in self.partition_troubles if state.input in trouble.inputs]
        return state.row() | {"troubles": troubles}

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
    printed_pauses: set[str] = set()  # a pause is of a whole input, and is printed once
    sources_by_note: dict[str, list[str]] = {}  # partitions that share a note have one line
    for row in rows:
        pause = row["replays_wait"] or ""
        parts = _parts_of_note(row, "" if pause in printed_pauses else pause)
        printed_pauses.add(pause)
        if parts:
            sources_by_note.setdefault("; ".join(parts), []).append(row["source"])
    for note, sources in sources_by_note.items():
        yield f"{', '.join(sources)}: {note}"


def _parts_of_note(row: Mapping[str, Any], pause: str) -> list[str]:
    """Return what there is to say of a row, part by part; `pause` is why its replays wait, if that is new."""
    parts: list[str] = []
    if row["stopped"]:
        parts.append(f"{STOPPED_ON_PURPOSE}: {row['stopped']}")
    if row["blocking"] is not None:
        parts.append(f"offset {row['blocking']:,} blocks the commit: {row['why']}")
    elif row["why"]:
        parts.append(row["why"])
    if row["waits_for"]:
        parts.append(f"waits for {row['waits_for']}")
    if pause:
        parts.append(pause)
    if row["held"]:
        parts.append(f"{row['held']:,} blocked")
    if row["in_state"]:
        oldest = span(row["oldest_in_state_ms"] or 0)
        parts.append(f"{row['in_state']:,} {HELD_BY_SPARK}, the oldest for {oldest}")
    if row["as_of_ms"]:
        parts.append(f"as of {span(row['as_of_ms'])} ago")
    return parts


def late_notes(snapshot: Snapshot, topics: Topics) -> Iterator[str]:
    """Yield for each group with something that came too late what it was, and what moved its watermark."""
    for group in dict.fromkeys(state.group for state in snapshot.partitions):
        counts = too_late_counts(snapshot.views, group).value
        if counts is not None and counts.newest_note is not None:
            yield late_text(group, counts, counts.newest_note, topics)


def late_text(group: str, counts: LateCounts, newest: TooLate, topics: Topics) -> str:
    """Describe what came too late of a group; `newest` is the last note of it."""
    losses: list[str] = []
    if counts.roots == 1:
        losses.append("1 record came too late for its window")
    elif counts.roots:
        losses.append(f"{counts.roots:,} records came too late for their windows")
    if counts.rows:
        rows = "row" if counts.rows == 1 else "rows"
        losses.append(f"Spark dropped {counts.rows:,} {rows} that came too late")
    moved_by = mover_text(newest.mover, topics.inputs_of(group), newest.wall)
    return (
        f"group {group}: {' and '.join(losses)}, the last ones at {moment(newest.wall)} by"
        f" the watermark {any_time_text(newest.watermark)}, moved by {moved_by}"
    )


def unknown_values(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Describe which values are unknown and why, a line for each reason."""
    notes = []
    for why, values_by_source in unknown_by_reason(rows).items():
        values = dict.fromkeys(name for names in values_by_source.values() for name in names)
        sources = ", ".join(values_by_source)
        notes.append(f"{sources}: unknown are {', '.join(values)}, since {why}")
    return notes


def unknown_by_reason(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Return for each reason the names of the values that are unknown for it, by their partition."""
    values_by_reason: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        for name, why in row["unknown"].items():
            values_by_source = values_by_reason.setdefault(why, {})
            values_by_source.setdefault(row["source"], []).append(name)
    return values_by_reason


def missing_processes(rows: Sequence[Mapping[str, Any]], topics: Topics) -> list[str]:
    """Describe which processes are not alive, with the effect and the cure; empty if all are.

    Ackers come first: without one no query begins, and no group is released.
    """
    return [*missing_services(rows, topics), *silent_groups_notes(silent_groups(rows))]


def silent_groups(rows: Sequence[Mapping[str, Any]]) -> dict[str, bool]:
    """Return each group of which no query lives.

    The value says whether it may have open roots that `windhover release` can hand to others.
    Inputs that are stopped on purpose do not count.
    """
    # query_lives None: unknown, so the group is not called silent
    silent_rows = [row for row in rows if row["query_lives"] is False and not row["stopped"]]
    groups_with_open_roots: set[str] = set()
    for row in silent_rows:
        # without an acker (0) nothing can be released; None: it is unknown how many live
        if row["ackers"] != 0 and _may_be_pending(row):
            groups_with_open_roots.add(row["group"])
    return {row["group"]: row["group"] in groups_with_open_roots for row in silent_rows}


def _may_be_pending(row: Mapping[str, Any]) -> bool:
    """Return whether a partition has or may have pending roots; without a State it has none."""
    return row["pending"] != 0 and not row["unknown"].get("pending", "").endswith(WITHOUT_STATE)


def missing_services(rows: Sequence[Mapping[str, Any]], topics: Topics) -> list[str]:
    """Describe that no acker lives, or no replay worker; empty if both do."""
    services = {"ackers": topics.acker.group, "replay_workers": topics.acker.replay_group}
    missing = [group for column, group in services.items() if any(row[column] == 0 for row in rows)]
    return [_no_member_text(topics, group) for group in missing]


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
    names = list(topics.ack_topics.names())
    for input in topics.inputs.values():
        if input.tracked:
            names += input.topic_names()
    return names


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
    return [] if members.value else [_no_member_text(topics, group)]


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
    unknown: list[str] = []
    stopped: list[str] = []
    groups_without_query: list[str] = []
    for group in groups:
        query = ask(live_query, log, topics, group, now_ms)
        lives = if_it_lives(query.then(lambda signs: signs.lives), broker)
        if lives.unknown:
            unknown.append(_unknown_life("a query", group, lives.unknown))
            continue
        if lives.value:
            continue
        why_stopped = why_group_is_stopped(topics, group)
        if why_stopped:
            stopped.append(f"group {UntrustedName(group)} is {STOPPED_ON_PURPOSE}: {why_stopped}")
        else:
            groups_without_query.append(group)
    return [*unknown, *stopped, *silent_groups_notes(dict.fromkeys(groups_without_query, True))]


def _unknown_life(who: str, group: str, why: str) -> str:
    """Describe that nobody can say whether "a query" or "a member" of a group lives."""
    return f"whether {who} of group {UntrustedName(group)} lives is unknown, since {why}"


def why_group_is_stopped(topics: Topics, group: str) -> str:
    """Return why all inputs of a group are stopped on purpose; empty: one of them is not."""
    reasons = [input.stopped for input in topics.inputs_of(group)]
    return "; ".join(dict.fromkeys(reasons)) if all(reasons) else ""


class LiveQuery(NamedTuple):
    """What the signs of life in one group say of its query.

    Attributes:
        lives: whether any process of it lives.
        inputs: the ids of the inputs that it reads; None: it does not say.
        times: when its newest signs of life were written, by its driver's clock and the broker's.
        session_lives: whether the session lives that was named; without a name as `lives`.
    """

    lives: bool
    inputs: frozenset[int] | None
    times: Sequence[WriterTime]
    session_lives: bool

    @property
    def ahead_ms(self) -> int | None:
        """By how much its driver's clock is ahead of the broker's at least; None: unknown."""
        aheads_ms = [time.ahead_ms for time in self.times if time.ahead_ms is not None]
        return min(aheads_ms, key=abs, default=None)

    def may_read_input(self, input: Input) -> bool:
        """Return whether it reads an input, or may: one of an earlier version does not say it."""
        return self.inputs is None or input.id in self.inputs


def live_query(
    log: Log, topics: Topics, group: str, now_ms: int, session: SessionName | None = None
) -> LiveQuery:
    """Read a group's signs of life from ``_ack_init``, also those of one session if it is named.

    `now_ms` is wall time.
    """
    with closing(Presence(log, topics.ack_topics.init, topics.acker.partitions, group, now_ms)) as presence:
        lives = presence.last_sign_ms is not None
        session_lives = lives if session is None else presence.wait_ms(session) > 0
        return LiveQuery(lives, presence.input_ids(), presence.writer_times(), session_lives)


def unread_text(name: str, group: str, inputs_read: Iterable[str]) -> str:
    """Describe that no query reads an input, though one of its group lives, which reads others."""
    names_read = ", ".join(inputs_read) or "none of this topics.yaml"
    return (
        f"no query reads input {name}: the one of group {UntrustedName(group)} that lives reads"
        f" {names_read}; give its read_stream {name} as well, or the input a group of its own"
    )


def read_though_stopped_text(input: Input) -> str:
    """Describe that a query reads an input that is stopped on purpose."""
    return (
        f"input {input.name} is {STOPPED_ON_PURPOSE} ({input.stopped}), and a query of group"
        f" {UntrustedName(input.group)} that lives reads it all the same: end the query, or remove"
        f" `inputs.{input.name}.stopped`"
    )


def _unread(
    states: Sequence[PartitionState], queries: Mapping[str, Reading[LiveQuery]], inputs: Sequence[Input]
) -> dict[str, str]:
    """Describe, by name, inputs with work left that the living query of the group does not read."""
    names_by_id = {input.id: input.name for input in inputs}
    texts: dict[str, str] = {}
    for input in inputs:
        query = queries[input.group].value
        if query is None or not query.lives or input.stopped:
            continue
        if query.inputs is None or query.may_read_input(input):
            continue
        own_states = [state for state in states if state.input == input.name]
        if all(state.lag.value == 0 and state.replays_due.value == 0 for state in own_states):
            continue
        names_read = [names_by_id[id] for id in sorted(query.inputs) if id in names_by_id]
        texts[input.name] = unread_text(input.name, input.group, names_read)
    return texts


def silent_groups_notes(may_have_open_roots: Mapping[str, bool]) -> list[str]:
    """Return one note that no query of these groups lives; without groups there is none.

    `may_have_open_roots` is by group: roots that may be open can be given to others.
    """
    groups = list(may_have_open_roots)
    if not groups:
        return []
    with_open_roots = [group for group in groups if may_have_open_roots[group]]
    commands = " and ".join(f"`windhover release {shell_word(group)}`" for group in with_open_roots)
    names = ", ".join(str(UntrustedName(group)) for group in groups)
    if len(groups) == 1:
        subject, pronoun, pronoun_as_object = f"group {names}", "it", "it"
    else:
        subject, pronoun, pronoun_as_object = f"groups {names}", "they", "them"
    text = (
        f"no query of {subject} lives: nothing is read, and the clock of timeouts is stopped;"
        f" start {pronoun_as_object}"
    )
    if commands:
        text += f", or give what {pronoun} left open to others with {commands}"
    return [text]


def _no_member_text(topics: Topics, group: str) -> str:
    """Describe that no acker lives, or no replay worker; `group` is theirs, and has no member."""
    without_member = f"(group {UntrustedName(group)} has no member)"
    if group == topics.acker.group:
        return (
            f"no acker lives {without_member}: nothing is acked, fails or times out, and no query"
            " begins; start one with `windhover acker run`"
        )
    return (
        f"no replay worker lives {without_member}: lost records are neither replayed nor become dead"
        " letters; start one with `windhover replay run`"
    )


class Overview:
    """All inputs of an installation; each call of `snapshot` reads what is new."""

    def __init__(self, log: Log, topics: Topics, *, read_max: int = READ_MAX) -> None:
        """Prepare; nothing is read. Of one topic at most `read_max` records are read for one snapshot."""
        self._log = log
        self._topics = topics
        self._inputs = [input for input in topics.inputs.values() if input.tracked]
        self._acker_numbers = range(topics.acker.partitions)
        self._view_reader = ViewReader(log, topics.ack_topics, topics.acker.partitions, topics.acker.limits)
        self._read_max = read_max
        # wall time of the last snapshot that a broker answered; after STALE_MS all readers begin anew
        self._last_read_ms = 0
        # partitions that had no answer in this snapshot, and why
        self._why_unanswered: dict[TopicPartition, str] = {}
        # which ackers and replay workers do not go on
        self._standing_readers = StandingReaders()
        # since when each trouble lasts
        self._trouble_times = TroubleTimes()
        # it reads several topics, so it needs the info of none
        self._waiting_reader = _LastingReader(lambda _: WaitingRoots(log, topics, read_max))
        self._letter_readers = {
            input.name: _LastingReader(lambda info: _DeadLetters(log, info, read_max))
            for input in self._inputs
        }

    def snapshot(self, now_ms: int) -> Snapshot:
        """Read the state of all partitions. No error of Kafka is raised: what it hides is unknown.

        It waits no longer than one question may (`Log.share_deadline`).

        1. Which topics there are. Where the broker does not answer, nothing more is asked.
        2. What all inputs share: the acker partitions, what waits, and which processes live.
        3. Of each input its ends, commits and dead letters.
        """
        self._log.share_deadline()
        ask = Questions(self._log)
        # 1. topics
        answers = self._topic_infos(ask)
        if ask.broker_error is None:
            if now_ms - self._last_read_ms > STALE_MS:
                self.close()
            self._last_read_ms = now_ms
        # 2. what all inputs share
        names = self._topics.ack_topics
        self._why_unanswered = {}
        ack_topics = [name for name in names.names() if name in answers.infos]
        ack_places = [TopicPartition(name, number) for name in ack_topics for number in self._acker_numbers]
        ack_topic_ends = self._bounds(ask, Bound.END, ack_places)
        # only now: a leader that did not answer for an end is one that is silent
        brokers = ask(self._log.missing_brokers, topics_of_installation(self._topics)).value or ()
        missing = broker_names(brokers)  # a text; empty: none is missing
        numbers = self._acker_numbers
        views = [self._read_view(ask, answers, ack_topic_ends, acker, missing) for acker in numbers]
        waiting = answers.unknown_if_missing(names.due, names.verdict) or ask(
            self._waiting_reader.read, answers.infos[names.due]
        )
        ackers = if_it_lives(ask(self._log.members, self._topics.acker.group), missing)
        workers = if_it_lives(ask(self._log.members, self._topics.acker.replay_group), missing)
        queries = {
            group: answers.unknown_if_missing(names.init)
            or ask(live_query, self._log, self._topics, group, now_ms)
            for group in {input.group for input in self._inputs}
        }
        members_by_group = {group: ask(self._log.members, group).value or () for group in queries}
        members_of_services = {
            self._topics.acker.group: ackers.value or (),
            self._topics.acker.replay_group: workers.value or (),
        }
        # 3. inputs
        partitions: list[PartitionState] = []
        read_though_stopped: dict[str, str] = {}
        for input in self._inputs:
            query = queries[input.group]
            query_lives = if_it_lives(query.then(lambda signs: signs.lives), missing)
            is_read = query.value is not None and query.value.lives and query.value.may_read_input(input)
            if input.stopped and is_read:
                read_though_stopped[input.name] = read_though_stopped_text(input)
            processes = LiveProcesses(query_lives, ackers.then(len), workers.then(len), missing, is_read)
            letter_topic = input.dead_letter.topic
            dead = answers.unknown_if_missing(letter_topic) or ask(
                self._letter_readers[input.name].read, answers.infos[letter_topic]
            )
            partitions += [
                partition_state(input, partition, views, ends, waiting, dead, processes, now_ms)
                for partition, ends in self._ends(ask, answers, input)
            ]
        of_no_input: Sequence[str] = ()
        if waiting.value is not None:
            of_no_input = self._texts_on_unknown_inputs(waiting.value.due)
        not_readable = answers.unknown_if_missing(names.init, names.ack)
        ack_ends = [not_readable or self._ack_ends(ack_topic_ends, number) for number in self._acker_numbers]
        standing = self._find_standing(ask, ack_topic_ends, views, waiting, now_ms)
        # asked for its troubles alone: a leaderless partition of a dead-letter topic holds up replays
        letter_topics = {input.dead_letter.topic for input in self._inputs}
        for name in letter_topics & answers.infos.keys():
            numbers = range(answers.infos[name].partitions)
            self._bounds(ask, Bound.END, [TopicPartition(name, number) for number in numbers])
        return Snapshot(
            at_ms=now_ms,
            partitions=partitions,
            missing=answers.missing,
            broker_error=ask.broker_error,
            refused=ask.refused,
            of_no_input=of_no_input,
            views=views,
            ends=ack_ends,
            ackers=ackers,
            replay_workers=workers,
            to_replay=waiting.then(lambda replays: replays.partitions),
            partition_troubles=self._partition_troubles(partitions, standing, views, now_ms),
            strangers=stranger_texts(members_by_group, members_of_services),
            unread=_unread(partitions, queries, self._inputs),
            read_though_stopped=read_though_stopped,
            missing_brokers=brokers,
            clocks=wrong_clocks(self._writers(views, waiting, queries), now_ms),
        )

    def watch_clocks(self, wall_ms: Callable[[], int]) -> WatchedClocks:
        """Watch the sessions' signs of life for clocks that differ; where nobody answers, all is unknown."""
        signs = [TopicPartition(self._topics.ack_topics.init, number) for number in self._acker_numbers]
        return Questions(self._log)(watch_clocks, self._log, signs, wall_ms).value or WatchedClocks()

    def _writers(
        self,
        views: Sequence[Reading[AckerView]],
        waiting: Reading[Waiting],
        query_by_group: Mapping[str, Reading[LiveQuery]],
    ) -> Iterator[tuple[str, Sequence[WriterTime]]]:
        """Yield each process of which a topic has a sign of life, and when its signs were written."""
        for group, query in query_by_group.items():
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
        """Return what is the matter with partitions, each trouble with its age.

        Args:
            states: of all partitions of the inputs.
            late: the partitions that an acker or a replay worker does not go on with.
            views: of the acker partitions.
            now_ms: wall time.
        """

        def trouble(
            kind: TroubleKind, place: TopicPartition, detail: str, start: int | None, end: int | None
        ) -> PartitionTrouble:
            needed_by = self._needed_by(place.topic)
            return PartitionTrouble(kind, place, now_ms, needed_by, detail, start, end)

        troubles = [
            trouble(TroubleKind.NO_ANSWER, place, text, None, None)
            for place, text in sorted(self._why_unanswered.items())
        ]
        for partition in late:
            late_trouble = trouble(
                TroubleKind.LATE_READER,
                partition.partition,
                self._standing_text(partition),
                partition.position,
                partition.end,
            )
            troubles.append(replace(late_trouble, since_ms=partition.since_ms))
        for run in sorted(set(self._log.passed_over())):
            place = TopicPartition(run.topic, run.partition)
            troubles.append(trouble(kind_of_run(run), place, damage_text(run), run.start, run.end))
        for place, end, emitted_to in self._cuts(states):
            text = cut_log_text(end, emitted_to)
            troubles.append(trouble(TroubleKind.CUT, place, text, end, emitted_to))
        for view in filling_views(views):
            place = TopicPartition(self._topics.ack_topics.state, view.partition)
            troubles.append(trouble(TroubleKind.FILLING, place, filling_text(view), None, None))
        # a trouble is as old as the first snapshot that had it
        names = {(trouble.kind, trouble.partition) for trouble in troubles}
        first_seen_ms = self._trouble_times.record_troubles(names, now_ms)
        dated: list[PartitionTrouble] = []
        for trouble_now in troubles:
            seen_ms = first_seen_ms[trouble_now.kind, trouble_now.partition]
            dated.append(replace(trouble_now, since_ms=min(trouble_now.since_ms, seen_ms)))
        return dated

    def _cuts(self, states: Sequence[PartitionState]) -> Iterator[tuple[TopicPartition, int, int]]:
        """Yield partitions whose logs were cut: the end of each, and up to where it was emitted.

        The ends were asked after what the ackers have, so a log that nobody cut is never shorter.
        """
        for state in states:
            input = self._topics.inputs[state.input]
            sources = (
                (input.topic, state.progress.value, state.end.value),
                (input.replay_topic, state.copies.value, state.copies_end.value),
            )
            for topic, progress, end in sources:
                if state.partition is None or progress is None or end is None:
                    continue
                if progress.recreated:  # what was emitted was in another log
                    continue
                emitted_to = int(offset_of(progress.emitted_to)) if progress.was_emitted else 0
                if emitted_to > end:
                    yield TopicPartition(topic, state.partition), end, emitted_to

    def _needed_by(self, topic: str) -> list[str]:
        """Return the names of the inputs that need a topic: an ack topic is needed by all."""
        if topic in self._topics.ack_topics.names():
            return [input.name for input in self._inputs]
        return [input.name for input in self._inputs if topic in input.topic_names()]

    def close(self) -> None:
        self._waiting_reader.close()
        for letters in self._letter_readers.values():
            letters.close()

    def _topic_infos(self, ask: Questions) -> _TopicAnswers:
        """Ask which topics there are: for all at once, and if that is refused in parts.

        The parts are the ack topics, and the topics of each input.
        """
        names = self._topics.ack_topics
        ack_topics = [names.state, names.verdict, names.due, names.init, names.ack]
        topics_by_input = [input.topic_names() for input in self._inputs]
        all_topics = ack_topics.copy()
        for input_topics in topics_by_input:
            all_topics += input_topics
        answers = _TopicAnswers()
        answer = ask(self._log.topics, all_topics)
        if answer.value is not None:
            answers.record(all_topics, answer)
            return answers
        for some_topics in [ack_topics, *topics_by_input]:
            answers.record(some_topics, ask(self._log.topics, some_topics))
        return answers

    def _read_view(
        self,
        questions: Questions,
        answers: _TopicAnswers,
        ends: Mapping[TopicPartition, Reading[int]],
        number: int,
        missing_brokers: str,
    ) -> Reading[AckerView]:
        """Return what an acker partition has.

        `missing_brokers` names the brokers that are missing; empty: none is.
        """
        ack_topics = self._topics.ack_topics
        names = (ack_topics.state, ack_topics.verdict, ack_topics.init)
        unknown = answers.unknown_if_missing(*names)
        if unknown is not None:
            return unknown
        for name in names:
            why_no_end = ends[TopicPartition(name, number)].unknown
            if why_no_end:  # the partition does not answer: to read the view would wait for it
                return Reading(unknown=why_no_end)
        answer = questions(self._view_reader.view, number)
        if answer.value is not None or answer.unknown:
            return answer.then(lambda view: view)  # the same reading, of a type without None
        if missing_brokers:
            return Reading(unknown=f"acker partition {number} has no State yet, and {missing_brokers}")
        return Reading(unknown=NO_STATE.format(number))

    def _bounds(
        self, ask: Questions, bound: Bound | int, places: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Reading[int]]:
        """Ask for a bound of partitions, such as their ends; an int is a wall time in ms.

        A partition without an answer is unknown, and gets an entry in `_why_unanswered`.
        """
        answers = ask(self._log.bounds, bound, places)
        if answers.value is None:
            return dict.fromkeys(places, Reading(unknown=answers.unknown))
        self._why_unanswered |= answers.value.troubles
        readings: dict[TopicPartition, Reading[int]] = {}
        for place in places:
            if place in answers.value.offsets:
                readings[place] = Reading(answers.value.offsets[place])
            else:
                text = answers.value.troubles[place]
                readings[place] = Reading(unknown=f"{place.topic}/{place.partition} {text}")
        return readings

    def _ack_ends(self, ends: Mapping[TopicPartition, Reading[int]], number: int) -> Reading[AckEnds]:
        """Return where the ack topics of an acker partition end; `ends` has all of them."""
        names = self._topics.ack_topics
        init_end = ends[TopicPartition(names.init, number)]
        ack_end = ends[TopicPartition(names.ack, number)]
        return joined(AckEnds, init_end, ack_end)

    def _find_standing(
        self,
        ask: Questions,
        ends: Mapping[TopicPartition, Reading[int]],
        views: Sequence[Reading[AckerView]],
        waiting: Reading[Waiting],
        now_ms: int,
    ) -> list[StandingPartition]:
        """Return the partitions that an acker or a replay worker does not go on with."""
        positions = self._reader_positions(views, waiting)
        ends_by_place: dict[TopicPartition, int] = {}
        for place in positions:
            end = ends[place].value if place in ends else None
            if end is not None:
                ends_by_place[place] = end
        # from these offsets on records are young: a reader that lacks older ones stands
        young = self._bounds(ask, max(0, now_ms - STANDS_MS), list(ends_by_place))
        first_young = {place: offset.value for place, offset in young.items() if offset.value is not None}
        return self._standing_readers.find_standing(positions, first_young, ends_by_place, now_ms)

    def _reader_positions(
        self, views: Sequence[Reading[AckerView]], waiting: Reading[Waiting]
    ) -> dict[TopicPartition, int]:
        """Return up to where ackers and replay workers have read, as far as that is known.

        Workers that read no further on purpose, or have read all, are left out.
        """
        names = self._topics.ack_topics
        positions: dict[TopicPartition, int] = {}
        for number, view in enumerate(views):
            if view.value is not None:
                positions[TopicPartition(names.init, number)] = view.value.next_init
                positions[TopicPartition(names.ack, number)] = view.value.next_ack
        if waiting.value is None:
            return positions
        waiting_max = self._topics.replay.limits.waiting_max
        for number, partition in enumerate(waiting.value.partitions):
            # one that has as much as may wait reads no more on purpose; where nothing lags, it has read all
            if partition.lag and partition.due < waiting_max:
                positions[TopicPartition(names.verdict, number)] = partition.next
        return positions

    def _standing_text(self, standing: StandingPartition) -> str:
        """Describe a partition that its reader does not go on with, or in which it is behind."""
        number = standing.partition.partition
        reader = f"acker partition {number} has read"
        if standing.partition.topic == self._topics.ack_topics.verdict:
            reader = f"the replay worker of partition {number} has taken over"
        return (
            f"{reader} {standing.name} up to {standing.position:,} of {standing.end or 0:,}, and lacks"
            f" records that are older than {STANDS_MS // 1000} s: it stands, or catches up; see"
            " `windhover machinery`, and the log of its process"
        )

    def _texts_on_unknown_inputs(self, due: Counter[PartitionId]) -> list[str]:
        """Return a sentence for each input id that topics.yaml lacks and that replays wait for.

        `due` counts the replays that wait, by the place of their source: an input's id and a partition.
        """
        ids_of_inputs = {input.id for input in self._topics.inputs.values()}
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

    def _ends(
        self, ask: Questions, answers: _TopicAnswers, input: Input
    ) -> Iterator[tuple[int | None, Ends]]:
        """Yield each partition of an input with its ends; None where its partitions cannot be counted."""
        unknown = answers.unknown_if_missing(input.topic)
        if unknown is not None:
            yield None, Ends(unknown, unknown, unknown, unknown)
            return
        numbers = range(answers.infos[input.topic].partitions)
        places = [TopicPartition(input.topic, number) for number in numbers]
        starts = self._bounds(ask, Bound.START, places)
        ends = self._bounds(ask, Bound.STABLE_END, places)
        copies = [TopicPartition(input.replay_topic, number) for number in numbers]
        copies_unknown = answers.unknown_if_missing(input.replay_topic)
        if copies_unknown is None and answers.infos[input.replay_topic].partitions < len(numbers):
            copies_unknown = Reading(
                unknown=f"replay topic {input.replay_topic} has fewer partitions than {input.topic}; run"
                " `windhover topics create`"
            )
        if copies_unknown is not None:
            copies_ends: Mapping[TopicPartition, Reading[int]] = dict.fromkeys(copies, copies_unknown)
        else:
            copies_ends = self._bounds(ask, Bound.STABLE_END, copies)
        commits = ask(self._log.committed, input.group, places)
        for number, place, copy in zip(numbers, places, copies, strict=True):
            commit = None if commits.value is None else commits.value.get(place)
            yield (
                number,
                Ends(
                    start=starts[place],
                    end=ends[place],
                    copies_end=copies_ends[copy],
                    committed=Reading(commit, commits.unknown),
                    topic_id=answers.id_of(input.topic),
                    copies_topic_id=answers.id_of(input.replay_topic),
                ),
            )


def with_right_clock(overview: Overview, snapshot: Snapshot, wall_ms: Callable[[], int]) -> Snapshot:
    """Compare this machine's clock with the broker's, and say so in a snapshot that was just read.

    By a wrong clock a query that lives seems to be gone, and ages are wrong: then all is read again, by the
    broker's time. It takes up to `WATCH_MS`, until somebody writes.
    """
    clocks = overview.watch_clocks(wall_ms)
    our_now_ms = wall_ms()
    if clocks.correction_ms:
        snapshot = overview.snapshot(our_now_ms - clocks.correction_ms)
    return replace(snapshot, clocks={**clocks.texts(our_now_ms), **snapshot.clocks})


class _Reads(Protocol[T_co]):
    def read(self) -> T_co: ...
    def close(self) -> None: ...


class _LastingReader(Generic[T]):
    """A reader that lives as long as its topic has these partitions, and begins anew after an error."""

    def __init__(self, make: Callable[[TopicInfo], _Reads[T]]) -> None:
        self._make_reader = make
        self._reader: _Reads[T] | None = None
        # id and number of partitions of the topic that the reader reads
        self._id_and_partitions = "", 0  # there is no reader yet

    def read(self, info: TopicInfo) -> T:
        """Return what the reader of a topic reads.

        If the topic has another id or another number of partitions now, a new reader begins. An
        error other than `NotWhole` closes the reader, and the next call begins anew.
        """
        if self._id_and_partitions != (info.id, info.partitions):
            self.close()
        if self._reader is None:
            self._reader = self._make_reader(info)
            self._id_and_partitions = info.id, info.partitions
        try:
            return self._reader.read()
        except NotWhole:  # the next call reads on
            raise
        except WindhoverError:
            self.close()
            raise

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = None


class Questions:
    """Asks the log, and makes an error an unknown value: ``ask(log.committed, group, places)``.

    Once no broker answers for topics, which any of them could, nothing more is asked. Of several brokers one
    may be silent, so the questions should share a deadline (`Log.share_deadline`).

    Attributes:
        broker_error: why no broker answered for topics; None: one did.
        refused: the first right that was missing; None: none was.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self.broker_error: WindhoverError | None = None
        self.refused: NotAuthorized | None = None

    def __call__(self, question: Callable[P, T], *args: P.args, **options: P.kwargs) -> Reading[T]:
        """Call a method of the log; return its answer, or why that is unknown."""
        if self.broker_error is not None:
            return Reading(unknown=str(self.broker_error))
        try:
            return Reading(question(*args, **options))
        except Unreachable as error:
            if question == self._log.topics:
                self.broker_error = error
            return Reading(unknown=str(error))
        except NotAuthorized as error:
            self.refused = self.refused or error
            return Reading(unknown=str(error))
        except WindhoverError as error:
            return Reading(unknown=str(error))


class _TopicAnswers:
    """Which topics there are, and why others are missing or unknown.

    Attributes:
        infos: the topics that exist, by name.
    """

    def __init__(self) -> None:
        self.infos: dict[str, TopicInfo] = {}
        self._reasons: dict[str, str] = {}  # by the name of a topic that is missing, or unknown

    def id_of(self, name: str) -> str:
        """Return Kafka's id of a topic; empty: the topic is unknown."""
        return self.infos[name].id if name in self.infos else ""

    @property
    def missing(self) -> list[str]:
        """The topics that do not exist."""
        return sorted(name for name, why in self._reasons.items() if why == MISSING.format(name))

    def record(self, names: Sequence[str], infos: Reading[Mapping[str, TopicInfo]]) -> None:
        """Record the answer to a question for some topics."""
        self.infos.update(infos.value or {})
        for name in names:
            if name not in self.infos:
                self._reasons[name] = infos.unknown or MISSING.format(name)

    def unknown_if_missing(self, *names: str) -> Reading[Any] | None:
        """Return an unknown reading if one of some topics is missing; None: all are there."""
        for name in names:
            if name in self._reasons:
                return Reading(unknown=self._reasons[name])
        return None


class _Death(NamedTuple):
    """Where a dead letter's record was, and when it died (wall ms)."""

    partition: int
    offset: int
    died_ms: int


class _DeadLetters:
    """Which dead letters of a topic nobody has handled, by the partition of their records."""

    def __init__(self, log: Log, info: TopicInfo, read_max: int) -> None:
        places = [TopicPartition(info.name, number) for number in range(info.partitions)]
        self._topic = info.name
        self._log = log
        self._places = places
        self._follower = Follower(log, places, read_max, on_damage=pass_damage)
        # by the partition and offset of the letter itself
        self._deaths: dict[tuple[int, int], _Death] = {}

    def read(self) -> Dead:
        """Read what is new; return the letters of each partition, and under None those of all.

        Raises:
            NotWhole: not all was read.
        """
        for record in self._follower.read():
            parsed = parse_letter(record, last_loss_only=True)
            if isinstance(parsed, Letter) and not parsed.is_note:
                # -1: the letter does not say of which record it is
                _, partition, offset = parse_location(parsed.lineage.origin) or ("", parsed.partition, -1)
                self._deaths[parsed.partition, parsed.offset] = _Death(partition, offset, parsed.died_ms)
            elif isinstance(parsed, Mark):  # somebody has handled the letter
                _, partition, offset = parse_location(parsed.letter) or ("", -1, -1)
                self._deaths.pop((partition, offset), None)
        if not self._follower.is_whole:
            raise NotWhole(not_whole(self._topic, self._follower))
        # retention takes letters that were read long ago
        starts = self._log.bounds(Bound.START, self._places).offsets if self._deaths else {}
        for number, offset in list(self._deaths):
            if offset < starts.get(TopicPartition(self._topic, number), 0):
                del self._deaths[number, offset]
        deaths = np.array(list(self._deaths.values()), np.int64).reshape(-1, 3)
        partitions, offsets, died_ms = deaths.T
        dead: dict[int | None, DeadRecords] = {None: DeadRecords(offsets, died_ms)}
        for partition in np.unique(partitions).tolist():
            is_own = partitions == partition
            dead[partition] = DeadRecords(offsets[is_own], died_ms[is_own])
        return dead

    def close(self) -> None:
        """Close what reads the topic."""
        self._follower.close()
