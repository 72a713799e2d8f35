"""How a planning process becomes the owner of its group: ask, take, and wait for N acker partitions.

1. First it asks, by a `Take` of epoch 0 that changes nothing, under an id that was never used: who
   owns the group, and what do the ackers have of its sources? A restart asks too, though it has its
   session from the journal: an old answer to the process before, which would show positions as free
   that were emitted since, comes before the answer to the question.
2. A fresh checkpoint does not take the group of an owner that lives. It waits until the owner gave
   no sign of life for `SILENT_MS_MAX`, and stops if there is one. With `take_over` it does neither.
3. It sends the `Take` that names every source, and repeats it every 5 s to partitions that do not
   answer. A *round* is one `Take` with its answers. The epoch of a new session is the owner's plus
   one; to create it is to *draw* it. While it is asked whether the owner lives, the owner is called
   the *holder*.
4. If some of them have a higher generation than it named, it takes once more, so that all have it.
   A restart whose first answer is old by then does so too: the process before may have moved the
   clock meanwhile. A query that writes exactly once is always a new session, also with the journal
   of another one. The store grants the epoch, and by that ends the writer of the owner
   (`spout.exactly_once.writer`). A restart of it waits for no silence where the owner is the
   session of its journal.
5. A refused session stops, unless it is a restart with the option `take_over`: then it creates a
   new session. The same holds where the planner finds that the checkpoint is older than what its
   session did.

`spout.group.session_state` has the states that this goes through: of step 1 ASKING, of 2
AWAITING_SILENCE, of 3 and 4 TAKING, or for a restart RESUMING and RESUMING_AGAIN.

What an acker partition writes after its answer already concerns the session; it is kept until all
partitions have answered.

A source's *history* is what the ackers have of it; how the session takes it, as one entry of a
`Take`, is called its *take*. A `clock_ms` is a session's clock, and `now_ms` wall time.

Source: docs/design/protocol.md, sections 4 ("Take and Taken") and 5.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, assert_never

from acker.errors import SessionRefused, Unreachable, UsageError
from acker.identity import GENERATION_MAX, offset_of, position_at
from acker.ledger.sessions import GENERATION_FIRST_MAX, GENERATION_STEP_MAX
from acker.waits import LastTime, PassedTime
from acker.wire.checks import CLOCK_AHEAD_MS_MAX, wrong_epoch
from acker.wire.events import Taken, TakeSource, Verdicts
from spout.group.announce import REPEAT_MS, Announcer, PlannerContext
from spout.group.carried import carried_commits
from spout.group.presence import Presence, Who, describe_session
from spout.group.session_state import SessionEvent, SessionState, SessionStates
from spout.group.sources import PlannerSpec, SourceSpec
from spout.group.starting import (
    Begun,
    Reached,
    check_commits,
    check_topic,
    clock_ahead,
    refused_by_acker,
    starting_offsets,
)
from spout.planning.journal import Journal
from spout.planning.session import (
    QUESTION_SUFFIX,
    STEP_MS_MAX,
    STORE_SUFFIX,
    Answers,
    SessionName,
    SourceHistory,
)

GIVE_UP_MS = 60_000
"""If some answers are still missing after this time, the query fails."""

RUN_ACKER: Final = "`windhover acker run`"

WAIT_REPORTED_MS = 10_000
"""After this time it is said in the log that it waits for the ackers."""

GrantEpoch = Callable[[int], int]
"""Returns the epoch of a new session: the given one or a higher one, as a store grants it."""


class Answered(NamedTuple):
    """What an acker partition wrote at an offset."""

    partition: int
    offset: int
    event: Taken | Verdicts


@dataclass(frozen=True, slots=True)
class Opened:
    """What a session begins with.

    Attributes:
        is_restart: whether the session is that of the journal.
        histories: by source, what the ackers have of it.
        answers: what all acker partitions have answered.
        clock_ms: the first value of the session's clock.
        later_events: what acker partitions wrote after their answers.
        answer_offsets: by acker partition, the offset of its answer.
    """

    name: SessionName
    is_restart: bool
    histories: Mapping[int, SourceHistory]
    answers: Answers
    clock_ms: int
    later_events: tuple[Answered, ...]
    answer_offsets: Mapping[int, int]


READ_TWICE: Final = (
    ". Both belong to one application: where they belong to one query, its branches read one stream more than"
    " once; bolts of branches that come together are a spout.TopologyBuilder's"
)


class _TakeRound:
    """One `Take` to all acker partitions, and their answers to it.

    Attributes:
        name: the session that takes, or that of the question.
        takes: the sources that the `Take` names, ascending.
        clock_ms: the clock of the `Take`.
        answers: what has been answered.
        later_events: what acker partitions wrote after their answers.
        answer_offsets: by acker partition, the offset of its answer.
    """

    def __init__(
        self,
        spec: PlannerSpec,
        name: SessionName,
        takes: Mapping[int, TakeSource],
        clock_ms: int,
        now_ms: int,
    ) -> None:
        """Begin without an answer.

        Args:
            spec: the group, and how many acker partitions there are.
            name: the session that takes, or that of the question.
            takes: by source, how it is taken.
            clock_ms: the clock of the `Take`.
            now_ms: wall time.
        """
        self.name = name
        self.takes = tuple(takes[source] for source in sorted(takes))
        self.clock_ms = clock_ms
        self.answers = Answers(spec.group, name.id, spec.partitions, takes)
        self.later_events: list[Answered] = []
        self.answer_offsets: dict[int, int] = {}
        self._acker_count = spec.partitions  # how many acker partitions there are
        self._waited = PassedTime(now_ms)  # since the round began
        self._first_answer_ms: int | None = None  # when the first answer had come, by `_waited`

    def record_event(self, partition: int, offset: int, event: Taken | Verdicts) -> None:
        """Record what an acker partition wrote; what came before its answer concerns another session."""
        if self.answers.is_complete(partition):
            self.later_events.append(Answered(partition, offset, event))
        elif isinstance(event, Taken):
            self.answers.add_part(partition, event)
            self.answer_offsets[partition] = offset

    def record_wait(self, now_ms: int) -> int:
        """Return for how long this round has waited for its answers, ms.

        Record when the first one has come: by the first call after that.
        """
        waited_ms = self._waited.read(now_ms)
        if self._first_answer_ms is None and len(self.answers.missing) < self._acker_count:
            self._first_answer_ms = waited_ms
        return waited_ms

    def first_answer_age_ms(self) -> int:
        """Return how old the first answer is, ms; 0: there is none."""
        return 0 if self._first_answer_ms is None else self._waited.ms - self._first_answer_ms


class _HolderWatch:
    """Watches whether the holder of a group lives, for a process that must not end it."""

    def __init__(self, context: PlannerContext, who: Who | None, now_ms: int) -> None:
        """Read the signs of life in the group.

        `who` is this process; None: signs do not name it.
        """
        spec = context.spec
        self._spec = spec
        self._report = context.report
        self._who = who
        self._has_reported_wait = False
        self._presence = Presence(
            context.log, spec.topics.init, spec.partitions, spec.group, now_ms, patient=True
        )

    def read_signs(self, now_ms: int) -> None:
        """Read new signs of life; an error if the broker does not send them (`Presence`)."""
        self._presence.read_new_signs(now_ms)

    def wait_ms(self, owner: SessionName) -> int:
        """Return how much longer the holder has to be silent, until its group may be taken; 0: it may.

        `owner` is the session that the ackers know as owner. A higher session that gave a sign of
        life is on its way to own the group, so it is the holder instead.

        Raises `SessionRefused`: the holder lives.
        """
        holder = self._presence.highest_seen(owner)
        if self._presence.lives(holder):
            raise self._refused_by(holder)
        wait_ms = self._presence.wait_ms(holder)
        if wait_ms:
            self._report_wait(holder, wait_ms)
        return wait_ms

    def _report_wait(self, holder: SessionName, wait_ms: int) -> None:
        """Log that the holder's silence is waited for; only the first call logs."""
        if self._has_reported_wait:
            return
        self._has_reported_wait = True
        fields = {
            "group": self._spec.group,
            "holder": self._presence.describe(holder),
            "wait_seconds": round(wait_ms / 1000, 1),
            "at_once_with": self._spec.way,
        }
        self._report("group_is_held", fields)

    def _refused_by(self, holder: SessionName) -> SessionRefused:
        """Build the error for a group whose holder lives."""
        spec = self._spec
        hint = ""
        if self._who is not None and self._presence.is_same_application(holder, self._who):
            hint = READ_TWICE
        return SessionRefused(
            f"group {spec.group} is held by {self._presence.describe(holder)}, and this one, with"
            " a checkpoint of its own, would end it; stop that one, or take the group over with"
            f" {spec.way}: what is open there is replayed here{hint}"
        )

    def close(self) -> None:
        """Read no more signs."""
        self._presence.close()


class Opening:
    """One try to become a group's owner; call `read` and `step` until `opened` is not None.

    Attributes:
        opened: what the session begins with; None: not all acker partitions have accepted it.
    """

    def __init__(
        self,
        context: PlannerContext,
        announcer: Announcer,
        journal: Journal,
        new_id: str,
        now_ms: int,
        session_states: SessionStates,
        grant_epoch: GrantEpoch | None = None,
    ) -> None:
        """Send the question who owns the group.

        Args:
            context: what the planning process reads and writes with.
            announcer: writes the `Take`s.
            journal: the checkpoint's last offset.
            new_id: the id of a session that may be drawn; never used before.
            now_ms: wall time.
            session_states: the state of the session, which changes on the way.
            grant_epoch: asks the store of a query that writes exactly once; None: it writes into
                none.

        Raises `Disagreement`: somebody moved the group's offsets.
        """
        self.opened: Opened | None = None
        self._session_states = session_states
        self._context = context
        self._spec = context.spec
        self._sources = context.sources
        self._announcer = announcer
        self._journal = journal
        # by source: when a former process left it out, since it had no leader
        self._left_out_before = dict.fromkeys(journal.waits, journal.at_ms)
        self._new_id = new_id
        # by acker partition, then by source: the generation that it answered last
        self._generations: Mapping[int, Mapping[int, int]] = {}
        self._last_send = LastTime()  # of the round's `Take`
        self._has_reported_wait = False
        self._holder_watch: _HolderWatch | None = None  # None: nobody is waited for
        self._grant_epoch = grant_epoch  # None: the query does not write exactly once
        if journal.session:
            self._check_commits_of_journal(now_ms)
        self._ask_for_owner(now_ms)
        if not self._resumes_session and not self._spec.take_over:
            # it reads the signs of life meanwhile: the ackers need as long to answer
            self._holder_watch = _HolderWatch(context, announcer.who, now_ms)

    def read(self, partition: int, offset: int, event: Taken | Verdicts) -> None:
        """Record what an acker partition wrote at an offset; `step` goes on by it."""
        self._round.record_event(partition, offset, event)

    def step(self, now_ms: int) -> None:
        """Go on if all partitions have answered; else repeat the `Take` to those that have not.

        When all have accepted the session, this sets `opened`.

        Raises:
            Unreachable: acker partitions did not answer for 60 s.
            SessionRefused: a higher session owns the group, or a living one and this checkpoint is
                fresh.
            Disagreement: N, a topic or a committed offset differs between the ackers and this
                process.
        """
        waited_ms = self._round.record_wait(now_ms)
        silent_partitions = self._round.answers.missing
        if not silent_partitions:
            self._handle_answers(now_ms)
            return
        if waited_ms >= GIVE_UP_MS:
            raise Unreachable(
                f"acker partition {_numbers_text(silent_partitions)} did not answer group"
                f" {self._spec.group} for {GIVE_UP_MS // 1000} s; start an acker with"
                " `windhover acker run`"
            )
        if self._last_send.is_due(now_ms, REPEAT_MS):
            self._send_takes(silent_partitions, now_ms)
            if waited_ms >= WAIT_REPORTED_MS:
                self._report_wait(silent_partitions)

    def _report_wait(self, silent_partitions: Sequence[int]) -> None:
        """Log for which acker partitions this process waits; only the first call logs."""
        if self._has_reported_wait:
            return
        self._has_reported_wait = True
        fields = {
            "group": self._spec.group,
            "acker_partitions": ",".join(map(str, silent_partitions)),
            "next_step": f"where no acker runs, start one with {RUN_ACKER}",
        }
        self._context.report("waits_for_ackers", fields)

    def take_anew(self, now_ms: int) -> None:
        """Take the group once more, with a new session, and clear `opened`.

        Only when it was opened with the session of the journal.
        """
        self._take_sources_with_new_session(now_ms)
        self.opened = None

    def waits_for(self) -> str:
        """Return what is waited for, with what helps, in words that follow "it waits for"."""
        if self._session_states.state is SessionState.AWAITING_SILENCE:
            return "its holder to be silent, since nobody knows whether it lives"
        silent_text = _numbers_text(self._round.answers.missing)
        return f"acker partition {silent_text} to answer; where no acker runs, start one with {RUN_ACKER}"

    def close(self) -> None:
        """End the try: watch the holder no more."""
        self._stop_holder_watch()

    def _stop_holder_watch(self) -> None:
        """Read no more signs of life of the holder, if they are read."""
        if self._holder_watch is not None:
            self._holder_watch.close()
            self._holder_watch = None

    def _ask_for_owner(self, now_ms: int) -> None:
        """Ask who owns the group: a `Take` of epoch 0 that names no source."""
        question = SessionName(0, self._new_id + QUESTION_SUFFIX)
        self._start_round(SessionEvent.QUESTION_SENT, question, {}, clock_ms=now_ms, now_ms=now_ms)

    def _start_round(
        self,
        event: SessionEvent,
        name: SessionName,
        takes: Mapping[int, TakeSource],
        *,
        clock_ms: int,
        now_ms: int,
    ) -> None:
        """Begin a round: send a `Take` to all acker partitions.

        Args:
            event: what that is for the session's state.
            name: the session that takes, or that of the question.
            takes: by source, how it is taken.
            clock_ms: the session's clock.
            now_ms: wall time.
        """
        self._session_states.process(event)
        self._round = _TakeRound(self._spec, name, takes, clock_ms, now_ms)
        self._send_takes(range(self._spec.partitions), now_ms)

    def _send_takes(self, partitions: Sequence[int], now_ms: int) -> None:
        """Send the `Take` of the round to acker partitions, and before it what raises their generations."""
        self._last_send.at_ms = now_ms
        name, clock_ms, takes = self._round.name, self._round.clock_ms, self._round.takes
        for partition in partitions:
            # an acker refuses a generation that is far above the one that it has
            generation_by_source = self._generations.get(partition, {})
            for lower_takes in generation_steps(takes, generation_by_source):
                self._announcer.send_take(name, clock_ms, lower_takes, [partition])
        self._announcer.send_take(name, clock_ms, takes, partitions)

    def _handle_answers(self, now_ms: int) -> None:
        """Go on by the session's state, now that all acker partitions have answered the round."""
        self._generations = self._round.answers.generations()
        match self._session_states.state:
            case SessionState.ASKING | SessionState.AWAITING_SILENCE:
                self._take_unless_held(now_ms)
            case SessionState.TAKING | SessionState.RESUMING | SessionState.RESUMING_AGAIN:
                if self._round.answers.refusals:
                    self._take_over_or_raise(now_ms)
                else:
                    self._open_or_take_again(now_ms)
            case SessionState.TAKEN | SessionState.RESUMED:
                pass  # `opened` is set, and the planner has not begun with it
            case (
                SessionState.IDLE
                | SessionState.PREPARING
                | SessionState.OWNING
                | SessionState.LEFT
                | SessionState.SUPERSEDED
                | SessionState.UNTRACKED
                | SessionState.CLOSED
                | SessionState.WITHDRAWN
            ) as state:
                raise UsageError(f"the session {state.value}, so nothing is opened; step its planner alone")
            case state:
                assert_never(state)

    @property
    def _resumes_session(self) -> bool:
        """Whether the session of the journal goes on, if it is not refused."""
        return bool(self._journal.session) and self._grant_epoch is None

    def _take_unless_held(self, now_ms: int) -> None:
        """Take the group, now that it is known who owns it.

        1. A restart takes it as the session of its journal.
        2. Else nothing is done as long as the owner may live.
        3. Then it is taken as a new session: commits that somebody moved are refused, and sources
           are rewound where that was asked for.
        """
        owner, histories = self._round.answers.owner, self._round.answers.sources()
        journalled = SessionName(self._journal.epoch, self._journal.session)
        self._require_store_of(owner)
        # 1. restart
        if self._resumes_session:
            self._require_store_of(journalled)
            takes = self._takes_by_source(histories)
            self._start_round(SessionEvent.SESSION_RESUMED, journalled, takes, clock_ms=now_ms, now_ms=now_ms)
            return
        # 2. an owner that may live; a restart that writes exactly once may be the owner itself, and
        # does not wait for its own silence
        if self._holder_watch is not None and owner != journalled:
            self._holder_watch.read_signs(now_ms)
            if self._holder_watch.wait_ms(owner) > 0:
                self._session_states.process(SessionEvent.HOLDER_MAY_LIVE)
                return
        self._stop_holder_watch()
        # 3. a new session
        if self._spec.checks_commits:
            self._check_commits(histories, now_ms)
        self._report_commits_without_history(histories)
        takes = self._with_rewinds(self._takes_by_source(histories))
        self._take_with_new_session(takes, now_ms)

    def _open_or_take_again(self, now_ms: int) -> None:
        """Begin with what the acker partitions accepted, unless the group has to be taken once more.

        It is taken once more if

        1. some of them have a higher generation of a source than the others: a reset that died
           half-way has sent it only to some, and the others would refuse what is emitted in it.
        2. the clock with which a restart would go on is far ahead: no acker takes ticks with it.
           That takes a new session; without the option `take_over` it raises `Disagreement`.
        3. a restart waited long for the last answer: the process before may have moved the clock of
           the session since the first one.
        """
        accepted = self._round
        histories = accepted.answers.sources()
        takes = {take.source: take for take in accepted.takes}
        is_apart = any(histories[source].generation > take.generation for source, take in takes.items())
        is_old = accepted.first_answer_age_ms() >= STEP_MS_MAX
        if is_apart:
            highest = {source: self._take_of_history(source, histories[source]) for source in takes}
            self._start_round(
                SessionEvent.GENERATIONS_APART,
                accepted.name,
                highest,
                clock_ms=accepted.clock_ms,
                now_ms=now_ms,
            )
        elif self._session_states.is_restart and self._restart_clock_ms > now_ms + CLOCK_AHEAD_MS_MAX:
            if not self._spec.take_over:
                raise clock_ahead(accepted.name, self._spec, self._restart_clock_ms - now_ms)
            self._take_sources_with_new_session(now_ms)  # whose clock begins lower
        elif self._session_states.state is SessionState.RESUMING and is_old:
            self._start_round(
                SessionEvent.ANSWER_IS_OLD, accepted.name, takes, clock_ms=accepted.clock_ms, now_ms=now_ms
            )
        else:
            self._set_opened(now_ms)

    @property
    def _restart_clock_ms(self) -> int:
        """The clock with which a restart goes on: the highest that the ackers or the journal have."""
        return max(self._round.answers.highest_clock, self._journal.now)

    def _take_sources_with_new_session(self, now_ms: int) -> None:
        """Take the group with a new session, each source as `_takes_by_source` says."""
        takes = self._takes_by_source(self._round.answers.sources())
        self._take_with_new_session(takes, now_ms)

    def _take_with_new_session(self, takes: Mapping[int, TakeSource], now_ms: int) -> None:
        """Draw a session above the owner's, and take the group with it: a `Take` to all acker partitions.

        Its clock begins no lower than any clock before it. An epoch that no session can have, and a
        clock that is far ahead, were written by a stranger, or by a machine with a wrong clock.
        They are left behind: ackers let any session follow on such an owner.

        Raises `SessionRefused`: a store may have what is open, and this session does not open it.
        """
        group = self._spec.group
        owner = self._round.answers.owner
        self._require_store_of(owner)
        former_clock_ms = self._round.answers.highest_clock
        # 1. its epoch and clock
        epoch = epoch_above(owner.epoch, now_ms)
        clock_ms = clock_after(former_clock_ms, now_ms)
        if epoch <= owner.epoch:
            fields = {"group": group, "owner": str(owner), "epoch": epoch}
            self._context.report("epoch_left_behind", fields)
        if clock_ms < former_clock_ms:
            ahead = f"{(former_clock_ms - now_ms) // 1_000} s"
            fields = {"group": group, "owner": str(owner), "ahead": ahead}
            self._context.report("clock_left_behind", fields)
        # 2. the store, which may grant a higher epoch; the name shows that there is one
        new_id = self._new_id
        if self._grant_epoch is not None:
            epoch = self._grant_epoch(epoch)
            new_id += STORE_SUFFIX
        # 3. the `Take`
        name = SessionName(epoch, new_id)
        self._start_round(SessionEvent.SESSION_DRAWN, name, takes, clock_ms=clock_ms, now_ms=now_ms)

    def _require_store_of(self, name: SessionName) -> None:
        """Raise `SessionRefused` if a session before writes into a store, and this one opens none.

        The store may have what is open, and it would be written again.
        """
        if not name.has_store or self._grant_epoch is not None or self._spec.without_store:
            return
        group = self._spec.group
        # only `windhover offsets reset` rewinds; a release in its place would leave the offsets
        is_reset = bool(self._spec.rewind)
        cure = "add --without-store to this command"
        if not is_reset:
            cure = f"windhover release {group} --without-store"
        raise SessionRefused(
            f"group {group} is of session {name}, which writes exactly once into a store. What is"
            " open may be in the store already, and this session does not open it: it would be"
            " written again. Start the query that writes it with spout.exact_sink: it opens the"
            " store, and publishes what that has. If the store is gone, or the group is to be"
            f" written otherwise: {cure}, then start with a fresh checkpoint"
        )

    def _with_rewinds(self, takes: Mapping[int, TakeSource]) -> dict[int, TakeSource]:
        """Return `takes` with a new generation for each source that is to be rewound.

        With a rewind the sources of a replay topic that was created again begin one, too.
        """
        offset_by_source: dict[int, int] = {}  # at which the new generation begins
        if self._spec.rewind:
            for source, spec in self._sources.items():
                if spec.is_replay and source in takes and takes[source].topic_id != spec.topic_id:
                    offset_by_source[source] = 0  # its topic was created again: it is read from its beginning
        offset_by_source |= self._spec.rewind
        rewound = dict(takes)
        for source, offset in offset_by_source.items():
            # a source that is taken for the first time has generation 0 before
            former = takes.get(source) or self._sources[source].taken_from(0)
            generation = former.generation + 1
            if generation > GENERATION_MAX:
                raise UsageError(
                    f"{self._sources[source]} was rewound {GENERATION_MAX:,} times, the most there can be;"
                    " give the input a new id in topics.yaml"
                )
            rewound[source] = self._sources[source].taken_from(position_at(generation, offset))
        return rewound

    def _take_of_history(self, source: int, history: SourceHistory) -> TakeSource:
        """Return how to take a source that goes on as the ackers have it."""
        topic = self._sources[source].place.topic
        return TakeSource(source, topic, history.topic_id, history.generation, history.from_)

    def _set_opened(self, now_ms: int) -> None:
        """Set `opened`: begin the session with what the acker partitions have of its sources.

        Sources that they do not have are left out for now: they had no leader when the `Take` was
        sent.
        """
        accepted = self._round
        # The ackers may have partitions that the topic has no more, and inputs that this query does not read.
        all_histories = accepted.answers.sources()
        histories = {source: history for source, history in all_histories.items() if source in self._sources}
        not_taken = self._sources.keys() - histories.keys()
        since_ms = {source: self._left_out_before.get(source, now_ms) for source in not_taken}
        self._context.leave_out(since_ms)
        # `leave_out` has removed from `_sources` what was not taken: the others have histories
        for source, spec in self._sources.items():
            check_topic(spec, histories[source])
        is_restart = self._session_states.is_restart
        self._session_states.process(SessionEvent.ALL_ACCEPTED)
        self.opened = Opened(
            name=accepted.name,
            is_restart=is_restart,
            histories=histories,
            answers=accepted.answers,
            clock_ms=self._restart_clock_ms if is_restart else accepted.clock_ms,
            later_events=tuple(accepted.later_events),
            answer_offsets=dict(accepted.answer_offsets),
        )

    def _check_commits_of_journal(self, now_ms: int) -> None:
        """Raise `Disagreement` if somebody moved the offsets of a source of which the journal has emitted."""
        begun: list[SourceSpec] = []
        emitted_to: dict[int, int] = {}  # by source, an offset
        for source, mark in self._journal.sources.items():
            emitted_to[source] = int(offset_of(mark.next))
            has_emitted = mark.next > mark.from_
            if has_emitted and source in self._sources:
                begun.append(self._sources[source])
        # a journal that an older version wrote has no time: 0
        reached = Reached(emitted_to, at_ms=self._journal.at_ms or None)
        # what the ackers know of another installation is checked when they have answered
        check_commits(self._context, begun, reached, now_ms, other_prefix_passes=True)

    def _check_commits(self, histories: Mapping[int, SourceHistory], now_ms: int) -> None:
        """Raise `Disagreement` if somebody moved the offsets of a source that the ackers know.

        The ackers know a source if a root of its present generation was initialised.
        """
        begun: list[SourceSpec] = []
        emitted_to: dict[int, int] = {}  # by source, an offset
        for source, spec in self._sources.items():
            history = histories.get(source)
            if history is None:
                continue
            # each acker partition has a watermark of its own; the highest is behind all that was emitted
            watermark = max(history.watermarks.values(), default=0)
            has_emitted = watermark > history.from_
            if has_emitted:
                begun.append(spec)
                emitted_to[source] = int(offset_of(watermark))
        check_commits(self._context, begun, Reached(emitted_to), now_ms)

    def _report_commits_without_history(self, histories: Mapping[int, SourceHistory]) -> None:
        """Report the inputs that begin at a commit of which the ackers have no history.

        The commit was carried here from another cluster, say. Records below it that waited for a
        replay there are left out here.
        """
        rewound = self._spec.rewind  # these begin where their user says
        without_history: list[SourceSpec] = []
        for source, source_spec in self._sources.items():
            if source not in histories and source not in rewound:
                without_history.append(source_spec)
        for carried_commit in carried_commits(self._context.log, self._spec, without_history):
            self._context.report("commit_without_state", carried_commit.fields())

    def _takes_by_source(self, histories: Mapping[int, SourceHistory]) -> dict[int, TakeSource]:
        """Return how each source is taken: as the ackers or the journal have it, else from its first offset.

        A source of which nobody knows its first offset now is left out.
        """
        marks = self._journal.sources  # by source: what batches have emitted of it
        never_read: list[SourceSpec] = []
        for source, spec in self._sources.items():
            if source not in histories and source not in marks:
                never_read.append(spec)
        begun = Begun(histories.keys() | marks.keys(), self._left_out_before)
        first_offsets = starting_offsets(self._context, never_read, begun)
        takes: dict[int, TakeSource] = {}
        for source, spec in self._sources.items():
            if source in histories:
                takes[source] = self._take_of_history(source, histories[source])
            elif source in marks and self._journal.session:
                takes[source] = spec.taken_from(marks[source].from_)
            elif source in marks:
                # A journal without a session: the query ran untracked, and what it emitted then is done.
                mark = marks[source]
                first_not_emitted = min((gap.start for gap in mark.gaps), default=mark.next)
                takes[source] = spec.taken_from(first_not_emitted)
            elif source in first_offsets:
                takes[source] = spec.taken_from(position_at(0, first_offsets[source]))
        return takes

    def _take_over_or_raise(self, now_ms: int) -> None:
        """Take the group with a new session, if a refused restart may take over.

        Else raise the refusal.
        """
        spec, answers = self._spec, self._round.answers
        name, owner = self._round.name, answers.owner
        if owner <= name:  # it was refused for something else than a higher owner
            raise refused_by_acker(answers, name, spec.group)
        if not spec.take_over or not self._session_states.is_restart:
            owner_text = describe_session(self._context.log, spec, owner, now_ms)
            raise SessionRefused(
                f"session {name} of group {spec.group} is refused: {owner_text} holds the group; stop the"
                f" query that runs it, or start this one with {spec.way} to abandon what is open there"
            )
        self._take_sources_with_new_session(now_ms)


def _numbers_text(partitions: Sequence[int]) -> str:
    """Return the numbers of partitions as a sentence has them: ``0, 3, 7``."""
    return ", ".join(map(str, partitions))


def epoch_above(owner: int, now_ms: int) -> int:
    """Return the epoch of the session that follows on an owner's: one more, if a session can have that.

    Else it is the present time: higher than any epoch that sessions have come to one by one.
    """
    return now_ms if wrong_epoch(owner + 1, now_ms) else owner + 1


def clock_after(former_ms: int, now_ms: int) -> int:
    """Return with which clock a new session begins: no lower than that of the session before it.

    Where that is too far ahead, it begins with the present time. Half of what an acker lets pass is
    too far, since the broker's time may differ from this machine's.
    """
    is_real = former_ms <= now_ms + CLOCK_AHEAD_MS_MAX // 2
    return max(now_ms, former_ms) if is_real else now_ms


def generation_steps(
    takes: Sequence[TakeSource], generation_by_source: Mapping[int, int]
) -> Iterator[tuple[TakeSource, ...]]:
    """Yield what has to be taken before `takes`, so that an acker partition accepts their generations.

    An acker lets a take raise a generation by at most `GENERATION_STEP_MAX`, 16, and the partition
    may be further behind where somebody wrote to other acker partitions alone. Example: from 3 to
    40 it takes 19, and 35; then `takes` can follow.

    Args:
        takes: how the sources are to be taken in the end.
        generation_by_source: the partition's generation of each source that it knows.
    """
    # of a source that it does not know, the first step leads to GENERATION_FIRST_MAX
    below_first = GENERATION_FIRST_MAX - GENERATION_STEP_MAX
    raised_to = {take.source: generation_by_source.get(take.source, below_first) for take in takes}
    while True:
        step: list[TakeSource] = []
        for take in takes:
            if take.generation - raised_to[take.source] <= GENERATION_STEP_MAX:
                continue
            generation = raised_to[take.source] + GENERATION_STEP_MAX
            raised_to[take.source] = generation
            begin = position_at(generation, offset_of(take.from_))
            step.append(take._replace(generation=generation, from_=begin))
        if not step:
            return
        yield tuple(step)
