"""How a planning process becomes the owner of its group: ask, take, and wait for N acker partitions.

1. First it asks, by a `Take` of epoch 0 that changes nothing, under an id that was never used: who owns the
   group, and what do the ackers have of its sources? A restart asks too, though it has its session from the
   journal: an old answer to the process before, which would show positions as free that were
   emitted since, comes before the answer to the question.
2. A fresh checkpoint does not take the group of an owner that lives. It waits until the owner gave no sign of
   life for `SILENT_MS_MAX`, and stops if there is one. With `take_over` it does neither.
3. It sends the `Take` that names every source, and repeats it every 5 s to partitions that do not answer. The
   epoch of a new session is the owner's plus one.
4. If some of them have a higher generation than it named, it takes once more, so that all have it. A restart
   whose first answer is old by then does so too: the process before may have moved the clock meanwhile.
5. A refused session stops, unless it is a restart with the option `take_over`: then it creates a new session.
   The same holds where the planner finds that the checkpoint is older than what its session did.

What an acker partition writes after its answer already concerns the session; it is kept until all partitions
have answered.

Source: docs/design/protocol.md, sections 4 ("Take and Taken") and 5.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from acker.errors import SessionRefused, Unreachable, UsageError
from acker.identity import GENERATION_MAX, offset_of, position_at
from acker.ledger.sessions import GENERATION_FIRST_MAX, GENERATION_STEP_MAX
from acker.waits import PassedTime
from acker.wire.checks import CLOCK_AHEAD_MS_MAX, wrong_epoch
from acker.wire.events import Taken, TakeSource, Verdicts
from spout.group.announce import REPEAT_MS, Announcer, PlannerContext
from spout.group.carried import carried_commits
from spout.group.presence import Presence, describe_session
from spout.group.sources import SourceSpec
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
from spout.planning.session import QUESTION_SUFFIX, STEP_MS_MAX, Answers, SessionName, SourceHistory

GIVE_UP_MS = 60_000
"""If some answers are still missing after this time, the query fails."""

RUN_ACKER: Final = "`windhover acker run`"

WAIT_REPORTED_MS = 10_000
"""After this time it is said in the log that it waits for the ackers."""

Answered = tuple[int, int, Taken | Verdicts]
"""Acker partition, offset and record."""


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


class Opening:
    """One attempt to become a group's owner; call `read` and `step` until `opened` is not None."""

    def __init__(
        self, context: PlannerContext, announcer: Announcer, journal: Journal, new_id: str, now_ms: int
    ) -> None:
        """Send the first `Take`; `new_id` is that of a session that may be drawn.

        Raises `Disagreement`: somebody moved the group's offsets.
        """
        self.opened: Opened | None = None
        self._log = context.log
        self._spec = context.spec
        self._sources = context.sources
        self._announcer = announcer
        self._report = context.report
        self._troubles = context.troubles
        self._leave_out = context.leave_out
        self._journal = journal
        self._left_out_before = dict.fromkeys(journal.waits, journal.at_ms)
        self._new_id = new_id
        self._answers = Answers(context.spec.group, "", 0, ())
        self._later: list[Answered] = []
        self._answered_at: dict[int, int] = {}
        self._first_answer_ms: int | None = None
        self._has_taken_again = False
        self._has_reported_owner = self._has_reported_wait = False
        self._presence: Presence | None = None
        spec = self._spec
        if journal.session:
            marks = journal.sources.items()
            begun = [source for source, mark in marks if mark.next > mark.from_ and source in self._sources]
            emitted_to = {source: int(offset_of(mark.next)) for source, mark in marks}
            reached = Reached(emitted_to, journal.at_ms or None)
            own = [self._sources[source] for source in begun]
            check_commits(self._log, spec.group, own, reached, now_ms)
        self._begin(now_ms)
        if not journal.session and not spec.take_over:  # read while the ackers answer
            topic = spec.topics.init
            self._presence = Presence(self._log, topic, spec.partitions, spec.group, now_ms, patient=True)

    def read(self, partition: int, offset: int, event: Taken | Verdicts) -> None:
        if self._answers.has(partition):
            self._later.append((partition, offset, event))
        elif isinstance(event, Taken):
            self._answers.read(partition, event)
            self._answered_at[partition] = offset

    def step(self, now_ms: int) -> None:
        """Go on when all partitions have answered; else repeat the `Take` to those that have not.

        Raises:
            Unreachable: acker partitions did not answer for 60 s.
            SessionRefused: a higher session owns the group, or a living one and this checkpoint is fresh.
            Disagreement: N, a topic or a committed offset differs between the ackers and this process.
        """
        waited_ms = self._waited.read(now_ms)
        silent = self._answers.missing
        if self._first_answer_ms is None and len(silent) < self._spec.partitions:
            self._first_answer_ms = waited_ms
        if not silent:
            self._answered(now_ms)
            return
        if waited_ms >= GIVE_UP_MS:
            raise Unreachable(
                f"acker partition {_listed(silent)} did not answer group {self._spec.group} for"
                f" {GIVE_UP_MS // 1000} s; start an acker with `windhover acker run`"
            )
        # below 0 the clock was set back: without sending now, nothing would be sent for as long as that
        is_time = not 0 <= now_ms - self._sent_ms < REPEAT_MS
        if is_time:
            self._send(silent, now_ms)
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
        self.opened = None
        self._draw(self._answers.owner, self._continued_or_starting(self._answers.sources()), now_ms)

    def waits_for(self) -> str:
        """Return what this attempt waits for, with what helps, in words that follow "it waits for"."""
        if self._answers.missing:
            silent = _listed(self._answers.missing)
            return f"acker partition {silent} to answer; where no acker runs, start one with {RUN_ACKER}"
        return "its holder to be silent, since nobody knows whether it lives"

    def close(self) -> None:
        if self._presence is not None:
            self._presence.close()
            self._presence = None

    def _begin(self, now_ms: int) -> None:
        self._ask(SessionName(0, self._new_id + QUESTION_SUFFIX), {}, now_ms, now_ms)

    def _ask(self, name: SessionName, sources: Mapping[int, TakeSource], now: int, now_ms: int) -> None:
        self._name = name
        self._named = tuple(sources[source] for source in sorted(sources))
        self._now = now
        self._waited = PassedTime(now_ms)
        self._first_answer_ms = None
        self._later.clear()
        self._generations = self._answers.generations()
        self._answers = Answers(self._spec.group, name.id, self._spec.partitions, sources)
        self._send(range(self._spec.partitions), now_ms)

    def _send(self, partitions: range | list[int], now_ms: int) -> None:
        """Send the `Take` to acker partitions, and before it what leads each up to its generations."""
        self._sent_ms = now_ms
        for partition in partitions:
            for step in generation_steps(self._named, self._generations.get(partition, {})):
                self._announcer.take(self._name, self._now, step, [partition])
        self._announcer.take(self._name, self._now, self._named, partitions)

    def _answered(self, now_ms: int) -> None:
        answers = self._answers
        if self._name.epoch == 0 and self._journal.session:
            session = SessionName(self._journal.epoch, self._journal.session)
            self._ask(session, self._continued_or_starting(answers.sources()), now_ms, now_ms)
        elif self._name.epoch == 0 and self._has_to_wait(answers.owner, now_ms):
            return
        elif self._name.epoch == 0:
            if self._spec.checks_commits:
                self._check_commits(answers.sources(), now_ms)
            self._report_carried(answers.sources())
            self._draw(answers.owner, self._rewound(self._continued_or_starting(answers.sources())), now_ms)
        elif not answers.refusals:
            histories = answers.sources()
            if any(histories[take.source].generation > take.generation for take in self._named):
                # A reset that died half-way has sent a generation only to some acker partitions; the others
                # would refuse what is emitted in it.
                highest = {
                    take.source: self._as_before(take.source, histories[take.source]) for take in self._named
                }
                self._ask(self._name, highest, self._now, now_ms)
            elif self._is_restart and self._clock_ms > now_ms + CLOCK_AHEAD_MS_MAX:
                self._leave_clock(now_ms)
            elif self._is_stale():
                self._has_taken_again = True
                self._ask(self._name, {take.source: take for take in self._named}, self._now, now_ms)
            else:
                self._open(now_ms)
        elif self._spec.take_over and self._is_restart and answers.owner > self._name:
            self._draw(answers.owner, self._continued_or_starting(answers.sources()), now_ms)
        else:
            self._refused(answers, now_ms)

    def _has_to_wait(self, owner: SessionName, now_ms: int) -> bool:
        """Return whether the owner may live; `SessionRefused`: it does."""
        spec = self._spec
        if self._presence is None:
            return False
        self._presence.look(now_ms)
        owner = self._presence.newest(owner)
        if self._presence.lives(owner):
            same = self._announcer.who is not None and self._presence.is_of(owner, self._announcer.who)
            raise SessionRefused(
                f"group {spec.group} is held by {self._presence.describe(owner)}, and this one, with"
                " a checkpoint of its own, would end it; stop that one, or take the group over with"
                f" {spec.way}: what is open there is replayed here{READ_TWICE if same else ''}"
            )
        wait_ms = self._presence.wait_ms(owner)
        if wait_ms and not self._has_reported_owner:
            self._has_reported_owner = True
            fields = {
                "group": spec.group,
                "holder": self._presence.describe(owner),
                "wait_seconds": round(wait_ms / 1000, 1),
                "at_once_with": spec.way,
            }
            self._report("group_is_held", fields)
        if not wait_ms:
            self.close()
        return wait_ms > 0

    def _is_stale(self) -> bool:
        """Return whether a restart should take once more, to get the present clock of its session."""
        may_take = self._is_restart and not self._has_taken_again
        if not may_take or self._first_answer_ms is None:
            return False
        return self._waited.ms - self._first_answer_ms >= STEP_MS_MAX

    @property
    def _clock_ms(self) -> int:
        """The clock with which a restart goes on."""
        return max(self._answers.clock, self._journal.now)

    @property
    def _is_restart(self) -> bool:
        return self._name.id == self._journal.session

    def _draw(self, owner: SessionName, sources: Mapping[int, TakeSource], now_ms: int) -> None:
        """Create a session above the owner's; its clock begins no lower than any clock before it.

        An epoch that no session can have, and a clock that is far ahead, were written by a stranger, or by a
        machine with a wrong clock. They are left behind: ackers let any session follow on such an owner.
        """
        group, before_ms = self._spec.group, self._answers.clock
        epoch, clock_ms = epoch_above(owner.epoch, now_ms), clock_after(before_ms, now_ms)
        if epoch <= owner.epoch:
            self._report("epoch_left_behind", {"group": group, "owner": str(owner), "epoch": epoch})
        if clock_ms < before_ms:
            ahead = f"{(before_ms - now_ms) // 1_000} s"
            self._report("clock_left_behind", {"group": group, "owner": str(owner), "ahead": ahead})
        self._ask(SessionName(epoch, self._new_id), sources, clock_ms, now_ms)

    def _leave_clock(self, now_ms: int) -> None:
        """Go on with a new session, since no acker takes a tick with the clock of this one."""
        if not self._spec.take_over:
            raise clock_ahead(self._name, self._spec, self._clock_ms - now_ms)
        self._draw(self._answers.owner, self._continued_or_starting(self._answers.sources()), now_ms)

    def _rewound(self, named: dict[int, TakeSource]) -> dict[int, TakeSource]:
        """Begin a new generation of the sources that are to be rewound, and of re-created replay topics."""
        offsets: dict[int, int] = {}
        if self._spec.rewind:
            for source, spec in self._sources.items():
                if spec.is_replay and source in named and named[source].topic_id != spec.topic_id:
                    offsets[source] = 0  # its topic was created again: it is read from its beginning
        offsets |= self._spec.rewind
        for source, offset in offsets.items():
            before = named.get(source) or self._sources[source].taken_from(0)
            generation = before.generation + 1
            if generation > GENERATION_MAX:
                raise UsageError(
                    f"{self._sources[source]} was rewound {GENERATION_MAX:,} times, the most there can be;"
                    " give the input a new id in topics.yaml"
                )
            named[source] = self._sources[source].taken_from(position_at(generation, offset))
        return named

    def _as_before(self, source: int, history: SourceHistory) -> TakeSource:
        topic = self._sources[source].place.topic
        return TakeSource(source, topic, history.topic_id, history.generation, history.from_)

    def _open(self, now_ms: int) -> None:
        # The ackers may have partitions that the topic has no more, and inputs that this query does not read.
        all_histories = self._answers.sources()
        histories = {source: history for source, history in all_histories.items() if source in self._sources}
        unknown = self._sources.keys() - histories.keys()
        self._leave_out({source: self._left_out_before.get(source, now_ms) for source in unknown})
        for source, spec in self._sources.items():
            check_topic(spec, histories[source])
        now = self._clock_ms if self._is_restart else self._now
        later, answered_at = tuple(self._later), dict(self._answered_at)
        self.opened = Opened(self._name, self._is_restart, histories, self._answers, now, later, answered_at)

    def _check_commits(self, histories: Mapping[int, SourceHistory], now_ms: int) -> None:
        """Refuse moved offsets of sources of whose present generation something is initialised."""
        begun: list[SourceSpec] = []
        emitted_to: dict[int, int] = {}
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
        """Log which inputs begin at a commit of which the ackers have no history.

        It came from another cluster, say. Records below it that waited for a replay there are left out here.
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
                takes[source] = self._as_before(source, histories[source])
            elif source in marks and self._journal.session:
                takes[source] = spec.taken_from(marks[source].from_)
            elif source in marks:
                # The query ran untracked before: what it emitted then is done.
                first = min((gap.start for gap in marks[source].gaps), default=marks[source].next)
                takes[source] = spec.taken_from(first)
            elif source in starts:
                takes[source] = spec.taken_from(position_at(0, starts[source]))
        return takes

    def _refused(self, answers: Answers, now_ms: int) -> None:
        if answers.owner > self._name:
            spec = self._spec
            owner = describe_session(self._log, spec, answers.owner, now_ms)
            raise SessionRefused(
                f"session {self._name} of group {spec.group} is refused: {owner} holds the group; stop the"
                f" query that runs it, or start this one with {spec.way} to abandon what is open there"
            )
        raise refused_by_acker(answers, self._name, self._spec.group)


def _listed(partitions: Sequence[int]) -> str:
    return ", ".join(map(str, partitions))


def epoch_above(owner: int, now_ms: int) -> int:
    """Return the epoch of the session that follows on an owner's: one more, if a session can have that.

    Else it is the present time: higher than any epoch that sessions have come to one by one.
    """
    return now_ms if wrong_epoch(owner + 1, now_ms) else owner + 1


def clock_after(before_ms: int, now_ms: int) -> int:
    """Return with which clock a new session begins: no lower than the one before it, unless that is too far
    ahead.

    Half of what an acker lets pass is too far, since the broker's time may differ from this machine's.
    """
    is_real = before_ms <= now_ms + CLOCK_AHEAD_MS_MAX // 2
    return max(now_ms, before_ms) if is_real else now_ms


def generation_steps(
    named: Sequence[TakeSource], present: Mapping[int, int]
) -> Iterator[tuple[TakeSource, ...]]:
    """Yield the takes that lead an acker partition up to the generations of `named`, which is the last one.

    An acker lets a take raise a generation by at most `GENERATION_STEP_MAX`, and `present` may be further
    behind where somebody wrote to other acker partitions alone. Example: from 3 to 40 it takes 19, 35, and
    `named`.

    Args:
        present: the partition's generation of each source that it knows.
    """
    # of a source that it does not know, the first step leads to GENERATION_FIRST_MAX
    first = GENERATION_FIRST_MAX - GENERATION_STEP_MAX
    reached = {take.source: present.get(take.source, first) for take in named}
    while behind := [t for t in named if t.generation - reached[t.source] > GENERATION_STEP_MAX]:
        step: list[TakeSource] = []
        for take in behind:
            generation = reached[take.source] + GENERATION_STEP_MAX
            reached[take.source] = generation
            begin = position_at(generation, offset_of(take.from_))
            step.append(take._replace(generation=generation, from_=begin))
        yield tuple(step)
