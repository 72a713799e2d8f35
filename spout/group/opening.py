"""How a planning process becomes the owner of its group: ask, take, and wait for N acker partitions.

1. First it asks, by a `Take` of epoch 0 that changes nothing, under an id that was never used: who owns the
   group, and what do the ackers have of its sources? A restart asks too, though it has its session from the
   journal: an old answer to the process before, which would show positions as free that were
   emitted since, comes before the answer to the question.
2. A fresh checkpoint does not take the group of an owner that lives. It waits until the owner gave no sign of
   life for `SILENT_MS_MAX`, and stops if there is one. With `take_over` it does neither.
3. It sends the `Take` that names every source, and repeats it every 5 s to partitions that do not
   answer. A
   *round* is one `Take` with its answers. The epoch of a new session is the owner's plus one; to
   create it is to *draw* it. While it is asked whether the owner lives, the owner is called the *holder*.
4. If some of them have a higher generation than it named, it takes once more, so that all have it. A restart
   whose first answer is old by then does so too: the process before may have moved the clock meanwhile.
   A query that writes exactly once is always a new session, also with the journal of another one.
   The store grants the epoch, and by that ends the writer of the owner
   (`spout.exactly_once.writer`). A restart of it waits for no silence where the owner is the
   session of its journal.
5. A refused session stops, unless it is a restart with the option `take_over`: then it creates a new session.
   The same holds where the planner finds that the checkpoint is older than what its session did.

`spout.group.session_state` has the states that this goes through: of step 1 ASKING, of 2 AWAITING_SILENCE,
of 3 and 4 TAKING, or for a restart RESUMING and RESUMING_AGAIN.

What an acker partition writes after its answer already concerns the session; it is kept until all partitions
have answered.

Source: docs/design/protocol.md, sections 4 ("Take and Taken") and 5.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, assert_never

from acker.errors import SessionRefused, Unreachable, UsageError
from acker.identity import GENERATION_MAX, offset_of, position_at
from acker.ledger.sessions import GENERATION_FIRST_MAX, GENERATION_STEP_MAX
from acker.waits import PassedTime
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
        now: the first value of the clock, ms.
        later: what acker partitions wrote after their answers.
        answered_at: by acker partition, the offset of its answer.
    """

    name: SessionName
    is_restart: bool
    histories: Mapping[int, SourceHistory]
    answers: Answers
    now: int
    later: tuple[Answered, ...]
    answered_at: Mapping[int, int]


READ_TWICE: Final = (
    ". Both belong to one application: where they belong to one query, its branches read one stream more than"
    " once; bolts of branches that come together are a spout.TopologyBuilder's"
)


class _TakeRound:
    """One `Take` to all acker partitions, and their answers to it.

    Attributes:
        name: the session that takes, or that of the question.
        takes: the sources that the `Take` names, ascending.
        now: the clock of the `Take`, ms.
        answers: what has been answered.
        later: what acker partitions wrote after their answers.
        answered_at: by acker partition, the offset of its answer.
    """

    def __init__(
        self, spec: PlannerSpec, name: SessionName, sources: Mapping[int, TakeSource], now: int, now_ms: int
    ) -> None:
        """Begin without an answer.

        `sources` has by source how it is taken, and `now_ms` is wall time.
        """
        self.name = name
        self.takes = tuple(sources[source] for source in sorted(sources))
        self.now = now
        self.answers = Answers(spec.group, name.id, spec.partitions, sources)
        self.later: list[Answered] = []
        self.answered_at: dict[int, int] = {}
        self._partitions = spec.partitions
        self._waited = PassedTime(now_ms)
        self._first_answer_ms: int | None = None  # when the first answer had come, by `_waited`

    def read(self, partition: int, offset: int, event: Taken | Verdicts) -> None:
        """Add what an acker partition wrote; what came before its answer concerns another session."""
        if self.answers.has(partition):
            self.later.append(Answered(partition, offset, event))
        elif isinstance(event, Taken):
            self.answers.read(partition, event)
            self.answered_at[partition] = offset

    def record_wait(self, now_ms: int) -> int:
        """Return how long all answers have been waited for, ms.

        Record when the first one has come.
        """
        waited_ms = self._waited.read(now_ms)
        if self._first_answer_ms is None and len(self.answers.missing) < self._partitions:
            self._first_answer_ms = waited_ms
        return waited_ms

    def first_answer_age_ms(self) -> int:
        """Return how old the first answer is, ms; 0: there is none."""
        return 0 if self._first_answer_ms is None else self._waited.ms - self._first_answer_ms


class _HolderWatch:
    """Watches whether the holder of a group lives, for a process that must not end it."""

    def __init__(self, context: PlannerContext, who: Who | None, now_ms: int) -> None:
        """Read the signs of life in the group; `who` is this process."""
        spec = context.spec
        self._spec = spec
        self._report = context.report
        self._who = who
        self._has_reported = False
        self._presence = Presence(
            context.log, spec.topics.init, spec.partitions, spec.group, now_ms, patient=True
        )

    def must_wait_for(self, owner: SessionName, now_ms: int) -> bool:
        """Read new signs of life; return whether the owner has not been silent for long enough yet.

        Logs once that it is waited for. Raises `SessionRefused`: it lives.
        """
        self._presence.read_new_signs(now_ms)
        holder = self._presence.newest(owner)
        if self._presence.lives(holder):
            raise self._refused_by(holder)
        wait_ms = self._presence.wait_ms(holder)
        if wait_ms and not self._has_reported:
            self._has_reported = True
            fields = {
                "group": self._spec.group,
                "holder": self._presence.describe(holder),
                "wait_seconds": round(wait_ms / 1000, 1),
                "at_once_with": self._spec.way,
            }
            self._report("group_is_held", fields)
        return wait_ms > 0

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
    """One attempt to become a group's owner; call `read` and `step` until `opened` is not None.

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
        session: SessionStates,
        grant_epoch: GrantEpoch | None = None,
    ) -> None:
        """Send the question; `new_id` is that of a session that may be drawn.

        Args:
            context: what the planning process reads and writes with.
            announcer: writes the `Take`s.
            journal: the checkpoint's last offset.
            new_id: never used before.
            now_ms: wall time.
            session: its state, which changes on the way.
            grant_epoch: of a query that writes exactly once; None: of any other one.

        Raises `Disagreement`: somebody moved the group's offsets.
        """
        self.opened: Opened | None = None
        self._session = session
        self._log = context.log
        self._spec = context.spec
        self._sources = context.sources
        self._announcer = announcer
        self._report = context.report
        self._troubles = context.troubles
        self._leave_out = context.leave_out
        self._journal = journal
        # by source: when a former process left it out, since it had no leader
        self._left_out_before = dict.fromkeys(journal.waits, journal.at_ms)
        self._new_id = new_id
        # by acker partition, then by source: the generation that it answered last
        self._generations: Mapping[int, Mapping[int, int]] = {}
        self._has_reported_wait = False
        self._holder_watch: _HolderWatch | None = None  # None: nobody is waited for
        self._grant_epoch = grant_epoch  # None: the query does not write exactly once
        if journal.session:
            self._check_commits_of_journal(now_ms)
        self._ask_for_owner(now_ms)
        if not self._resumes and not self._spec.take_over:
            # it reads the signs of life meanwhile: the ackers need as long to answer
            self._holder_watch = _HolderWatch(context, announcer.who, now_ms)

    def read(self, partition: int, offset: int, event: Taken | Verdicts) -> None:
        """Read what an acker partition wrote at an offset."""
        self._round.read(partition, offset, event)

    def step(self, now_ms: int) -> None:
        """Go on if all partitions have answered; else repeat the `Take` to those that have not.

        Raises:
            Unreachable: acker partitions did not answer for 60 s.
            SessionRefused: a higher session owns the group, or a living one and this checkpoint is fresh.
            Disagreement: N, a topic or a committed offset differs between the ackers and this process.
        """
        waited_ms = self._round.record_wait(now_ms)
        silent = self._round.answers.missing
        if not silent:
            self._handle_answers(now_ms)
            return
        if waited_ms >= GIVE_UP_MS:
            raise Unreachable(
                f"acker partition {_numbers_text(silent)} did not answer group {self._spec.group} for"
                f" {GIVE_UP_MS // 1000} s; start an acker with `windhover acker run`"
            )
        # below 0 the clock was set back: without sending now, nothing would be sent for as long as that
        is_time = not 0 <= now_ms - self._sent_ms < REPEAT_MS
        if is_time:
            self._send_takes(silent, now_ms)
            if waited_ms >= WAIT_REPORTED_MS:
                self._report_wait(silent)

    def _report_wait(self, silent: Sequence[int]) -> None:
        """Log, once in this attempt, which acker partitions it waits for."""
        if self._has_reported_wait:
            return
        self._has_reported_wait = True
        fields = {
            "group": self._spec.group,
            "acker_partitions": ",".join(map(str, silent)),
            "next_step": f"where no acker runs, start one with {RUN_ACKER}",
        }
        self._report("waits_for_ackers", fields)

    def take_anew(self, now_ms: int) -> None:
        """Take the group once more, with a new session; only when it is opened with that of the journal."""
        answers = self._round.answers
        self._take_with_new_session(answers.owner, self._continued_or_starting(answers.sources()), now_ms)
        self.opened = None

    def waits_for(self) -> str:
        """Return what this attempt waits for, with what helps, in words that follow "it waits for"."""
        if self._session.state is SessionState.AWAITING_SILENCE:
            return "its holder to be silent, since nobody knows whether it lives"
        silent = _numbers_text(self._round.answers.missing)
        return f"acker partition {silent} to answer; where no acker runs, start one with {RUN_ACKER}"

    def close(self) -> None:
        """Watch the holder no more."""
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
        """Begin a round: send a `Take` to all acker partitions, which is `event` for the session.

        Args:
            name: the session that takes, or that of the question.
            takes: by source, how it is taken.
            clock_ms: the session's clock.
            now_ms: wall time.
        """
        self._session.process(event)
        self._round = _TakeRound(self._spec, name, takes, clock_ms, now_ms)
        self._send_takes(range(self._spec.partitions), now_ms)

    def _send_takes(self, partitions: range | list[int], now_ms: int) -> None:
        """Send the `Take` of the round to acker partitions, and before it what raises their generations."""
        self._sent_ms = now_ms
        name = self._round.name
        now = self._round.now
        takes = self._round.takes
        for partition in partitions:
            for step in generation_steps(takes, self._generations.get(partition, {})):
                self._announcer.send_take(name, now, step, [partition])
        self._announcer.send_take(name, now, takes, partitions)

    def _handle_answers(self, now_ms: int) -> None:
        """Go on by the session's state: all acker partitions have answered the question or the `Take`."""
        self._generations = self._round.answers.generations()
        match self._session.state:
            case SessionState.ASKING | SessionState.AWAITING_SILENCE:
                self._take_unless_held(self._round.answers, now_ms)
            case SessionState.TAKING | SessionState.RESUMING | SessionState.RESUMING_AGAIN:
                if self._round.answers.refusals:
                    self._take_over_or_raise(self._round.answers, now_ms)
                else:
                    self._open_or_take_again(self._round, now_ms)
            case SessionState.TAKEN | SessionState.RESUMED:
                pass  # the planner has not taken up what was opened
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
    def _resumes(self) -> bool:
        """Whether the session of the journal goes on, if it is not refused."""
        return bool(self._journal.session) and self._grant_epoch is None

    def _take_unless_held(self, answers: Answers, now_ms: int) -> None:
        """Take the group, now that it is known who owns it.

        1. A restart takes it as the session of its journal.
        2. Else nothing is done as long as the owner may live.
        3. Then it is taken as a new session: commits that somebody moved are refused, and sources
           are rewound where that was asked for.
        """
        # 1. restart
        journalled = SessionName(self._journal.epoch, self._journal.session)
        self._refuse_past_store(answers.owner)
        if self._resumes:
            self._refuse_past_store(journalled)
            takes = self._continued_or_starting(answers.sources())
            self._start_round(SessionEvent.SESSION_RESUMED, journalled, takes, clock_ms=now_ms, now_ms=now_ms)
            return
        # 2. an owner that may live
        is_others = answers.owner != journalled
        if (
            self._holder_watch is not None
            and is_others
            and self._holder_watch.must_wait_for(answers.owner, now_ms)
        ):
            self._session.process(SessionEvent.HOLDER_MAY_LIVE)
            return
        self.close()  # nobody is waited for any more
        # 3. a new session
        histories = answers.sources()
        if self._spec.checks_commits:
            self._check_commits(histories, now_ms)
        self._report_carried(histories)
        takes = self._with_rewinds(self._continued_or_starting(histories))
        self._take_with_new_session(answers.owner, takes, now_ms)

    def _open_or_take_again(self, accepted: _TakeRound, now_ms: int) -> None:
        """Begin with what the acker partitions answered, unless the group has to be taken once more."""
        histories = accepted.answers.sources()
        if any(histories[take.source].generation > take.generation for take in accepted.takes):
            # A reset that died half-way has sent a generation only to some acker partitions; the others
            # would refuse what is emitted in it.
            highest = {
                take.source: self._take_continued(take.source, histories[take.source])
                for take in accepted.takes
            }
            self._start_round(
                SessionEvent.GENERATIONS_APART, accepted.name, highest, clock_ms=accepted.now, now_ms=now_ms
            )
        elif self._session.is_restart and self._clock_ms > now_ms + CLOCK_AHEAD_MS_MAX:
            self._take_with_sound_clock(now_ms)
        elif self._session.state is SessionState.RESUMING and accepted.first_answer_age_ms() >= STEP_MS_MAX:
            # the process before may have moved the clock of the session since
            takes = {take.source: take for take in accepted.takes}
            self._start_round(
                SessionEvent.ANSWER_IS_OLD, accepted.name, takes, clock_ms=accepted.now, now_ms=now_ms
            )
        else:
            self._set_opened(accepted, now_ms)

    @property
    def _clock_ms(self) -> int:
        """The clock with which a restart goes on."""
        return max(self._round.answers.clock, self._journal.now)

    def _take_with_new_session(
        self, owner: SessionName, takes: Mapping[int, TakeSource], now_ms: int
    ) -> None:
        """Draw a session above the owner's, and take the group with it: a `Take` to all acker partitions.

        Its clock begins no lower than any clock before it. An epoch that no session can have, and a
        clock that is far ahead, were written by a stranger, or by a machine with a wrong clock.
        They are left behind: ackers let any session follow on such an owner.

        Raises `SessionRefused`: a store may have what is open, and this session does not open it.
        """
        group = self._spec.group
        self._refuse_past_store(owner)
        former_clock_ms = self._round.answers.clock
        # 1. its epoch and clock
        epoch = epoch_above(owner.epoch, now_ms)
        clock_ms = clock_after(former_clock_ms, now_ms)
        if epoch <= owner.epoch:
            self._report("epoch_left_behind", {"group": group, "owner": str(owner), "epoch": epoch})
        if clock_ms < former_clock_ms:
            ahead = f"{(former_clock_ms - now_ms) // 1_000} s"
            self._report("clock_left_behind", {"group": group, "owner": str(owner), "ahead": ahead})
        # 2. the store, which may grant a higher epoch; the name shows that there is one
        new_id = self._new_id
        if self._grant_epoch is not None:
            epoch = self._grant_epoch(epoch)
            new_id += STORE_SUFFIX
        # 3. the `Take`
        name = SessionName(epoch, new_id)
        self._start_round(SessionEvent.SESSION_DRAWN, name, takes, clock_ms=clock_ms, now_ms=now_ms)

    def _refuse_past_store(self, name: SessionName) -> None:
        """Raise an error if the session before writes into a store, and this one would not open that.

        Raises `SessionRefused`: the store may have what is open, and it would be written again.
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

    def _take_with_sound_clock(self, now_ms: int) -> None:
        """Go on with a new session, since no acker takes a tick with the clock of this one.

        Raises `Disagreement`: the option `take_over` is not given.
        """
        if not self._spec.take_over:
            raise clock_ahead(self._round.name, self._spec, self._clock_ms - now_ms)
        answers = self._round.answers
        self._take_with_new_session(answers.owner, self._continued_or_starting(answers.sources()), now_ms)

    def _with_rewinds(self, takes: Mapping[int, TakeSource]) -> dict[int, TakeSource]:
        """Return `takes` with a new generation for each source that is to be rewound.

        With them also the sources begin one whose replay topic was created again.
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

    def _take_continued(self, source: int, history: SourceHistory) -> TakeSource:
        """Return how to take a source that goes on as the ackers have it."""
        topic = self._sources[source].place.topic
        return TakeSource(source, topic, history.topic_id, history.generation, history.from_)

    def _set_opened(self, accepted: _TakeRound, now_ms: int) -> None:
        """Begin the session with what the acker partitions have of its sources: set `opened`."""
        # The ackers may have partitions that the topic has no more, and inputs that this query does not read.
        all_histories = accepted.answers.sources()
        histories = {source: history for source, history in all_histories.items() if source in self._sources}
        unknown = self._sources.keys() - histories.keys()
        self._leave_out({source: self._left_out_before.get(source, now_ms) for source in unknown})
        for source, spec in self._sources.items():
            check_topic(spec, histories[source])
        is_restart = self._session.is_restart
        self._session.process(SessionEvent.ALL_ACCEPTED)
        self.opened = Opened(
            name=accepted.name,
            is_restart=is_restart,
            histories=histories,
            answers=accepted.answers,
            now=self._clock_ms if is_restart else accepted.now,
            later=tuple(accepted.later),
            answered_at=dict(accepted.answered_at),
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
        # 0: an older version did not journal it
        reached = Reached(emitted_to, at_ms=self._journal.at_ms or None)
        check_commits(self._log, self._spec.group, begun, reached, now_ms)

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
            if watermark > history.from_:
                begun.append(spec)
                emitted_to[source] = int(offset_of(watermark))
        check_commits(self._log, self._spec.group, begun, Reached(emitted_to), now_ms)

    def _report_carried(self, histories: Mapping[int, SourceHistory]) -> None:
        """Report the inputs that begin at a commit of which the ackers have no history.

        The commit was carried here from another cluster, say. Records below it that waited for a
        replay there are left out here.
        """
        rewound = self._spec.rewind  # these begin where their user says
        fresh = [
            source_spec
            for source, source_spec in self._sources.items()
            if source not in histories and source not in rewound
        ]
        for carried in carried_commits(self._log, self._spec, fresh):
            self._report("commit_without_state", carried.fields())

    def _continued_or_starting(self, histories: Mapping[int, SourceHistory]) -> dict[int, TakeSource]:
        """Return how each source is taken: as the ackers or the journal have it, else from its first offset.

        A source of which nobody knows its first offset now is left out.
        """
        marks = self._journal.sources
        fresh = [
            spec for source, spec in self._sources.items() if source not in histories and source not in marks
        ]
        begun = Begun(histories.keys() | marks.keys(), self._left_out_before)
        starts = starting_offsets(self._log, self._spec, fresh, begun, self._troubles)
        takes: dict[int, TakeSource] = {}
        for source, spec in self._sources.items():
            if source in histories:
                takes[source] = self._take_continued(source, histories[source])
            elif source in marks and self._journal.session:
                takes[source] = spec.taken_from(marks[source].from_)
            elif source in marks:
                # The query ran untracked before: what it emitted then is done.
                mark = marks[source]
                first_not_emitted = min((gap.start for gap in mark.gaps), default=mark.next)
                takes[source] = spec.taken_from(first_not_emitted)
            elif source in starts:
                takes[source] = spec.taken_from(position_at(0, starts[source]))
        return takes

    def _take_over_or_raise(self, answers: Answers, now_ms: int) -> None:
        """Take the group with a new session, if a refused restart may take over.

        Else raise the refusal.
        """
        spec = self._spec
        name = self._round.name
        owner = answers.owner
        if spec.take_over and self._session.is_restart and owner > name:
            self._take_with_new_session(owner, self._continued_or_starting(answers.sources()), now_ms)
            return
        if owner > name:
            holder = describe_session(self._log, spec, owner, now_ms)
            raise SessionRefused(
                f"session {name} of group {spec.group} is refused: {holder} holds the group; stop the"
                f" query that runs it, or start this one with {spec.way} to abandon what is open there"
            )
        raise refused_by_acker(answers, name, spec.group)


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

    Where that is too far ahead, it begins with the present time. Half of what an acker lets pass is too far,
    since the broker's time may differ from this machine's.
    """
    is_real = former_ms <= now_ms + CLOCK_AHEAD_MS_MAX // 2
    return max(now_ms, former_ms) if is_real else now_ms


def generation_steps(
    takes: Sequence[TakeSource], generation_by_source: Mapping[int, int]
) -> Iterator[tuple[TakeSource, ...]]:
    """Yield what has to be taken before `takes`, so that an acker partition accepts their generations.

    An acker lets a take raise a generation by at most `GENERATION_STEP_MAX`, and the partition may be further
    behind where somebody wrote to other acker partitions alone. Example: from 3 to 40 it takes 19, and 35;
    then `takes` can follow.

    Args:
        takes: how the sources are to be taken in the end.
        generation_by_source: the partition's generation of each source that it knows.
    """
    # of a source that it does not know, the first step leads to GENERATION_FIRST_MAX
    below_first = GENERATION_FIRST_MAX - GENERATION_STEP_MAX
    reached = {take.source: generation_by_source.get(take.source, below_first) for take in takes}
    while True:
        step: list[TakeSource] = []
        for take in takes:
            if take.generation - reached[take.source] <= GENERATION_STEP_MAX:
                continue
            generation = reached[take.source] + GENERATION_STEP_MAX
            reached[take.source] = generation
            begin = position_at(generation, offset_of(take.from_))
            step.append(take._replace(generation=generation, from_=begin))
        if not step:
            return
        yield tuple(step)
