"""A redrive: an order carried out for some inputs, slowly enough to see what becomes of the letters.

Drive it with `step` until it `is_done`; whoever drives it may `cancel` it between two steps.

1. For each input: fence other handlers, find the letters, write that the redrive began.
2. Handle letters in transactions, as the rate limit allows, and no more than `at_once` that are not settled.
3. Stop when `died_max` of them died again, or when none of those that are open is settled for `stalled_ms`.
4. Wait at most `wait_ms` until the last ones are settled; write how the redrive ended.

A redrive that is killed has no end in the log. Its successor handles the letters that it did not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final

from acker.config.settings import Input
from acker.config.topics import Topics
from acker.errors import UsageError
from acker.kafka.port import Log
from acker.waits import PassedTime
from replay.handling.letter_handling import Left, LetterHandling, Order, RateLimit
from replay.handling.outcomes import (
    LetterOutcome,
    RedriveOutcomes,
    existing_places,
    find_redrives,
    followed_topics,
)
from replay.records.letters import Filter, LetterAction
from replay.records.redrives import RedriveBegun, RedriveEnd, RedriveEnded, audit_record

AT_ONCE: Final = 1_000
DIED_MAX: Final = 10
STALLED_MS: Final = 600_000

STEP_MS_MAX: Final = 500
"""A redrive that waits is stepped again after this time; so often it reads what became of its letters."""


@dataclass(frozen=True, slots=True)
class RedriveLimits:
    """When a redrive waits or stops by itself; see above."""

    at_once: int = AT_ONCE
    died_max: int = DIED_MAX
    stalled_ms: int = STALLED_MS
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class RedriveProgress:
    """How far a redrive is, as in `LetterHandling`; `letters` it found in the inputs that it has begun."""

    letters: int = 0
    done: int = 0
    left: Counter[Left] = field(default_factory=Counter)
    left_out: int = 0
    outcomes: Counter[LetterOutcome] = field(default_factory=Counter)
    end: RedriveEnd | None = None

    def __str__(self) -> str:
        return f"{self.done:,} of {self.letters:,} handled; {outcome_text(self.outcomes)}"


def outcome_text(outcomes: Counter[LetterOutcome]) -> str:
    """Format outcomes: ``12 acked, 3 died again``, and others if there are some."""
    words = {
        LetterOutcome.ACKED: "acked",
        LetterOutcome.DIED: "died again",
        LetterOutcome.OPEN: "open",
        LetterOutcome.GONE: "gone",
        LetterOutcome.UNKNOWN: "unknown",
    }
    always = (LetterOutcome.ACKED, LetterOutcome.DIED)
    shown = [outcome for outcome in words if outcomes[outcome] or outcome in always]
    return ", ".join(f"{outcomes[outcome]:,} {words[outcome]}" for outcome in shown)


class Redrive:
    """An order that is carried out; nothing is written or fenced before the first `step`."""

    def __init__(
        self,
        log: Log,
        topics: Topics,
        meant: Sequence[tuple[Input, Filter]],
        order: Order,
        pace: RateLimit,
        limits: RedriveLimits = RedriveLimits(),
    ) -> None:
        """Prepare an order with a new id; the filters of `meant` replace its own."""
        self._log = log
        self._topics = topics
        self._order = order
        self._pace = pace
        self._limits = limits
        self._left_to_do = list(meant)
        self._current: _OneInput | None = None
        self._ended_inputs = RedriveProgress()
        self._end: RedriveEnd | None = None

    @property
    def is_done(self) -> bool:
        return self._current is None and (self._end is not None or not self._left_to_do)

    @property
    def progress(self) -> RedriveProgress:
        """How far it is, as of the last `step`."""
        current = self._current.progress if self._current else RedriveProgress()
        ended = self._ended_inputs
        end = (self._end or RedriveEnd.DONE) if self.is_done else None
        return RedriveProgress(
            ended.letters + current.letters,
            ended.done + current.done,
            ended.left + current.left,
            ended.left_out + current.left_out,
            ended.outcomes + current.outcomes,
            end,
        )

    def cancel(self) -> None:
        """Let the next step end it."""
        self._end = self._end or RedriveEnd.CANCELLED

    def step(self, now_ms: int) -> int:
        """Go on, by one transaction at most; return how many ms to wait before the next step.

        Raises:
            Aborted: nothing of the last transaction was written; begin another redrive.
            Fenced: somebody else handles letters of the input now, or has cancelled this redrive.
            Unreachable: it is not known whether the transaction was committed; begin another redrive.
            TopicError: a topic is missing.
        """
        if self._current is None:
            if self.is_done:
                return 0
            input, matching = self._left_to_do.pop(0)
            order = replace(self._order, which=matching)
            self._current = _OneInput(self._log, self._topics, input, order, self._limits, now_ms)
        wait_ms = self._current.step(self._pace, self._end, now_ms)
        if self._current.end is not None:
            self._current.close()
            if self._current.end is not RedriveEnd.DONE:
                self._end = self._current.end
            self._ended_inputs = replace(self.progress, end=None)
            self._current = None
        return wait_ms

    def close(self) -> None:
        """Close it; if it is not done, it has no end in the log."""
        if self._current is not None:
            self._current.close()


class _OneInput:
    def __init__(
        self,
        log: Log,
        topics: Topics,
        input: Input,
        order: Order,
        limits: RedriveLimits,
        now_ms: int,
    ) -> None:
        self._log = log
        self._topics = topics
        self._input = input
        self._order = order
        self._limits = limits
        self._handling = LetterHandling(
            log, input, order, owner=topics.acker.replay_group, limits=topics.replay.limits
        )
        self._outcomes: RedriveOutcomes | None = None
        self._begun: RedriveBegun | None = None
        self._letters = 0
        self._read_ms = now_ms
        self._passed = PassedTime(now_ms)
        self._handled_at_ms = 0
        self.end: RedriveEnd | None = None

    @property
    def progress(self) -> RedriveProgress:
        handling = self._handling
        return RedriveProgress(
            self._letters, handling.done, Counter(handling.left), handling.left_out, self._counted()
        )

    def step(self, pace: RateLimit, stop: RedriveEnd | None, now_ms: int) -> int:
        if self._begun is None:
            self._begin(now_ms)
            if not self._letters:
                self.end = stop or RedriveEnd.DONE
                return 0
        self._follow(now_ms)
        open_ = self._counted()[LetterOutcome.OPEN]
        idle_ms = self._passed.read(now_ms) - self._handled_at_ms
        end = stop or self._must_stop(open_, idle_ms)
        has_waited = not open_ or idle_ms >= self._limits.wait_ms
        if end is None and self._handling.is_done and has_waited:
            end = RedriveEnd.DONE
        if end is not None:
            self._finish(end, now_ms)
            return 0
        # only replayed letters can be open; of dropped ones all may go at once
        open_room = self._limits.at_once - open_ if self._outcomes else self._letters
        room = min(pace.room(now_ms), open_room)
        if room > 0 and not self._handling.is_done:
            pace.spend(self._handling.step(room, now_ms))
            self._handled_at_ms = self._passed.ms
            return min(STEP_MS_MAX, pace.wait_ms(now_ms))
        return max(1, min(STEP_MS_MAX, pace.wait_ms(now_ms) or STEP_MS_MAX))

    def close(self) -> None:
        self._handling.close()
        if self._outcomes is not None:
            self._outcomes.close()

    def _begin(self, now_ms: int) -> None:
        self._letters = self._handling.open()
        verdict_topic, letter_topic, replay_topic = followed_topics(self._topics, self._input)
        order = self._order
        self._begun = RedriveBegun(
            order.redrive,
            order.action.value,
            order.by,
            order.why,
            str(order.which),
            self._letters,
            self._ends(replay_topic),
            self._ends(letter_topic),
            self._ends(verdict_topic),
            now_ms,
        )
        if not self._letters:
            return
        self._handling.write([audit_record(self._begun, self._input.dead_letter.topic)])
        if order.action is LetterAction.REPLAYED:
            self._outcomes = RedriveOutcomes(self._log, self._topics, self._input, [self._begun])

    def _ends(self, topic: str) -> tuple[int, ...]:
        """Return the end of each partition of a topic, by the partition's number."""
        ends = self._log.ends(existing_places(self._log, topic))
        return tuple(ends[place] for place in sorted(ends))

    def _follow(self, now_ms: int) -> None:
        """Read what became of the letters, every `STEP_MS_MAX`."""
        if self._outcomes is None or abs(now_ms - self._read_ms) < STEP_MS_MAX:
            return
        self._read_ms = now_ms
        self._outcomes.read()

    def _counted(self) -> Counter[LetterOutcome]:
        """Count outcomes; letters that were handled since the last reading are open."""
        if self._outcomes is None:
            return Counter()
        counted = self._outcomes.count(self._order.redrive)
        counted[LetterOutcome.OPEN] += self._handling.done - counted.total()
        return counted

    def _must_stop(self, open_: int, idle_ms: int) -> RedriveEnd | None:
        """Return why it ends now; `idle_ms`: since the last letters were handled."""
        if self._handling.is_done:
            return None
        if self._counted()[LetterOutcome.DIED] >= self._limits.died_max:
            return RedriveEnd.DIED_AGAIN
        # one that is settled makes room, and is followed by the next one: so a slow query stalls nothing
        is_full = open_ >= self._limits.at_once
        return RedriveEnd.STALLED if is_full and idle_ms >= self._limits.stalled_ms else None

    def _finish(self, end: RedriveEnd, now_ms: int) -> None:
        if self._outcomes is not None:
            self._outcomes.read()
        counted, order = self._counted(), self._order
        ended = RedriveEnded(
            order.redrive,
            end.value,
            order.by,
            self._handling.done,
            counted[LetterOutcome.ACKED],
            counted[LetterOutcome.DIED],
            now_ms,
        )
        self._handling.write([audit_record(ended, self._input.dead_letter.topic)])
        self.end = end


def cancel_redrive(log: Log, topics: Topics, input: Input, redrive: str, by: str, now_ms: int) -> None:
    """Cancel a redrive of an input from outside: it is fenced, and its end is written.

    Raises `UsageError`: there is no such redrive, or it has ended.
    """
    wait_ms = topics.replay.limits.operation_timeout_ms
    order = Order(LetterAction.REPLAYED, Filter(), by, "", redrive)
    handling = LetterHandling(log, input, order, owner=topics.acker.replay_group, limits=topics.replay.limits)
    with closing(handling):
        records = {record.begun.redrive: record for record in find_redrives(log, input, wait_ms=wait_ms)}
        record_of_redrive = records.get(redrive)
        if record_of_redrive is None or record_of_redrive.ended is not None or record_of_redrive.is_over:
            state = "there is none" if record_of_redrive is None else f"it is {record_of_redrive.state}"
            raise UsageError(f"redrive {redrive} of input {input.name} cannot be cancelled: {state}")
        handling.fence()
        unknown = -1  # who cancels it does not know how many were handled, acked, and died again
        ended = RedriveEnded(redrive, RedriveEnd.CANCELLED.value, by, unknown, unknown, unknown, now_ms)
        handling.write([audit_record(ended, input.dead_letter.topic)])
