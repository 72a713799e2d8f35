"""A redrive: an order carried out for some inputs, slowly enough to see what becomes of the letters.

An order is to replay or to drop letters. A letter of which a copy was written is *open* until its
copy has a verdict, or is a dead letter again.

Drive it with `step` until it `is_done`; whoever drives it may `cancel` it between two steps.

1. For each input: fence other handlers, find the letters, write that the
   redrive began.
2. Handle letters in transactions, as the rate limit allows, and no more than
   `at_once` that are not settled.
3. Stop when `died_max` of them died again, or when none of those that are open
   is settled for `stalled_ms`.
4. Wait at most `wait_ms` until the last ones are settled; write how the
   redrive ended.

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
    existing_partitions,
    find_redrives,
    followed_topics,
)
from replay.records.letters import Filter, LetterAction
from replay.records.redrives import RedriveBegun, RedriveEnd, RedriveEnded, audit_record

AT_ONCE: Final = 1_000
"""So many letters of a redrive may be without an outcome at once."""

DIED_MAX: Final = 10
"""At so many letters that died again a redrive stops by itself."""

STALLED_MS: Final = 600_000
"""A redrive stops by itself when none of the letters without an outcome gets one for so long."""

STEP_MS_MAX: Final = 500
"""A redrive that waits is stepped again after this time; so often it reads what became of its letters."""


@dataclass(frozen=True, slots=True)
class RedriveLimits:
    """When a redrive waits or stops by itself; see above.

    Attributes:
        at_once: so many letters may be open.
        died_max: at so many letters that died again it stops.
        stalled_ms: it stops if no open letter gets an outcome for so long.
        wait_ms: at the end it waits so long for outcomes.
    """

    at_once: int = AT_ONCE
    died_max: int = DIED_MAX
    stalled_ms: int = STALLED_MS
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class RedriveProgress:
    """How far a redrive is.

    Attributes:
        letter_count: how many it found in the inputs that it has begun.
        handled_count, left_by_why, left_out_count: as in `LetterHandling`.
        outcomes: how many of the handled letters have each outcome.
        end: how it ended; None: it goes on.
    """

    letter_count: int = 0
    handled_count: int = 0
    left_by_why: Counter[Left] = field(default_factory=Counter)
    left_out_count: int = 0
    outcomes: Counter[LetterOutcome] = field(default_factory=Counter)
    end: RedriveEnd | None = None

    def __str__(self) -> str:
        """Return it as a text: ``5 of 20 handled; 4 acked, 0 died again, 1 open``."""
        handled_text = f"{self.handled_count:,} of {self.letter_count:,} handled"
        return f"{handled_text}; {outcome_text(self.outcomes)}"


def outcome_text(outcomes: Counter[LetterOutcome]) -> str:
    """Return outcomes as a text: ``12 acked, 3 died again``, and others if there are some."""
    words = {
        LetterOutcome.ACKED: "acked",
        LetterOutcome.DIED: "died again",
        LetterOutcome.OPEN: "open",
        LetterOutcome.GONE: "gone",
        LetterOutcome.UNKNOWN: "unknown",
    }
    always_shown = (LetterOutcome.ACKED, LetterOutcome.DIED)
    parts: list[str] = []
    for outcome, word in words.items():
        if outcomes[outcome] or outcome in always_shown:
            parts.append(f"{outcomes[outcome]:,} {word}")
    return ", ".join(parts)


class Redrive:
    """An order that is carried out; nothing is written or fenced before the first `step`."""

    def __init__(
        self,
        log: Log,
        topics: Topics,
        inputs_and_filters: Sequence[tuple[Input, Filter]],
        order: Order,
        rate_limit: RateLimit,
        limits: RedriveLimits = RedriveLimits(),
    ) -> None:
        """Prepare to carry out an order, input by input.

        Args:
            inputs_and_filters: the inputs in their order, each with a filter
                for its letters, which replaces that of the order.
            order: with the id of this redrive.
            rate_limit: how many letters may be handled now.
            limits: when it waits, or stops by itself.
        """
        self._log = log
        self._topics = topics
        self._order = order
        self._rate_limit = rate_limit
        self._limits = limits
        self._inputs_to_begin = list(inputs_and_filters)
        # the part of the input that is under way; None: the next input is not
        # begun, or there is none
        self._current_part: _RedriveOfInput | None = None
        self._progress_of_ended_parts = RedriveProgress()
        # how it is to end before all letters are handled; None: it goes on
        self._early_end: RedriveEnd | None = None

    @property
    def is_done(self) -> bool:
        """Whether no further `step` is needed."""
        if self._current_part is not None:
            return False
        return self._early_end is not None or not self._inputs_to_begin

    @property
    def progress(self) -> RedriveProgress:
        """How far it is, as of the last `step`."""
        before = self._progress_of_ended_parts
        part = self._current_part
        current = RedriveProgress() if part is None else part.progress
        end: RedriveEnd | None = None
        if self.is_done:
            end = self._early_end or RedriveEnd.DONE
        return RedriveProgress(
            letter_count=before.letter_count + current.letter_count,
            handled_count=before.handled_count + current.handled_count,
            left_by_why=before.left_by_why + current.left_by_why,
            left_out_count=before.left_out_count + current.left_out_count,
            outcomes=before.outcomes + current.outcomes,
            end=end,
        )

    def cancel(self) -> None:
        """Make the next step end it; nothing changes if it is to end already."""
        self._early_end = self._early_end or RedriveEnd.CANCELLED

    def step(self, now_ms: int) -> int:
        """Go on with the input that is under way, or begin the next one; return the wait, in ms.

        So long the caller waits before the next step. One step writes one
        transaction of letters at most. When an input has ended, its progress
        is kept, and the next step begins another one: unless it ended early,
        which ends the whole redrive.

        Raises:
            Aborted: nothing of the last transaction was written; begin another
                redrive.
            Fenced: somebody else handles letters of the input now, or has
                cancelled this redrive.
            Unreachable: it is not known whether the transaction was committed;
                begin another redrive.
            TopicError: a topic is missing.
        """
        # 1. begin the next input
        part = self._current_part
        if part is None:
            if self.is_done:
                return 0
            input, input_filter = self._inputs_to_begin.pop(0)
            order = replace(self._order, which=input_filter)
            part = _RedriveOfInput(self._log, self._topics, input, order, self._limits, now_ms)
            self._current_part = part
        # 2. handle letters, or end it
        wait_ms = part.step(self._rate_limit, self._early_end, now_ms)
        # 3. keep its progress when it has ended
        if part.end is not None:
            part.close()
            if part.end is not RedriveEnd.DONE:
                self._early_end = part.end  # no further input is begun
            # `progress` is that of all ended parts, and of this one
            self._progress_of_ended_parts = replace(self.progress, end=None)
            self._current_part = None
        return wait_ms

    def close(self) -> None:
        """Close it; if it is not done, it has no end in the log."""
        if self._current_part is not None:
            self._current_part.close()


class _RedriveOfInput:
    """A redrive's part for one input.

    Attributes:
        end: how it ended; None: it goes on.
    """

    def __init__(
        self,
        log: Log,
        topics: Topics,
        input: Input,
        order: Order,
        limits: RedriveLimits,
        now_ms: int,
    ) -> None:
        """Prepare; nothing is written or fenced before the first `step`."""
        self._log = log
        self._topics = topics
        self._input = input
        self._order = order
        self._limits = limits
        self._handling = LetterHandling(
            log,
            input,
            order,
            transactional_id_prefix=topics.acker.replay_group,
            limits=topics.replay.limits,
        )
        # what became of the letters that were replayed; None: they are
        # dropped, or it has not begun
        self._outcomes: RedriveOutcomes | None = None
        self._begun: RedriveBegun | None = None  # what was written at its beginning; None: it has not begun
        self._letter_count = 0  # how many letters it found
        self._outcomes_read_at_ms = now_ms  # when the outcomes were read last, wall time
        self._clock = PassedTime(now_ms)  # begins at 0, and is never set back
        # when letters were handled last, by `_clock`
        self._last_handled_at_ms = 0
        self.end: RedriveEnd | None = None

    @property
    def progress(self) -> RedriveProgress:
        """How far it is, as of the last `step`."""
        return RedriveProgress(
            letter_count=self._letter_count,
            handled_count=self._handling.handled_count,
            left_by_why=Counter(self._handling.left_by_why),
            left_out_count=self._handling.left_out_count,
            outcomes=self._count_by_outcome(),
        )

    def step(self, rate_limit: RateLimit, early_end: RedriveEnd | None, now_ms: int) -> int:
        """Go on, by one transaction at most, or end.

        It ends by `early_end`, if that is set, or by a reason of its own: all
        is done, too many letters died, or none is settled any more.

        Return how many ms to wait before the next step; raises as `Redrive.step`.
        """
        # 1. begin
        if self._begun is None:
            self._begin(now_ms)
            if not self._letter_count:
                self.end = early_end or RedriveEnd.DONE
                return 0
        # 2. end, if there is a reason
        self._read_outcomes(now_ms)
        open_count = self._count_by_outcome()[LetterOutcome.OPEN]
        # since letters were handled last
        idle_ms = self._clock.read(now_ms) - self._last_handled_at_ms
        end = early_end or self._why_to_stop(open_count, idle_ms)
        # for the outcomes of the last letters; without an open one there is nothing to wait for
        has_waited = not open_count or idle_ms >= self._limits.wait_ms
        if end is None and self._handling.is_done and has_waited:
            end = RedriveEnd.DONE
        if end is not None:
            self._write_end(end, now_ms)
            return 0
        # 3. handle letters, as many as may be open and as the rate limit allows
        room = rate_limit.allowed_letters(now_ms)
        if self._outcomes is not None:  # dropped letters are never open
            room = min(room, self._limits.at_once - open_count)
        if room > 0 and not self._handling.is_done:
            handled_count = self._handling.step(room, now_ms)
            rate_limit.record_handled(handled_count)
            self._last_handled_at_ms = self._clock.ms
            return min(STEP_MS_MAX, rate_limit.wait_ms(now_ms))
        # 4. wait for the rate limit, or for outcomes, which are read every `STEP_MS_MAX`
        wait_ms = rate_limit.wait_ms(now_ms) or STEP_MS_MAX
        return max(1, min(STEP_MS_MAX, wait_ms))

    def close(self) -> None:
        """Close the handler of the letters, and what reads their outcomes."""
        self._handling.close()
        if self._outcomes is not None:
            self._outcomes.close()

    def _begin(self, now_ms: int) -> None:
        """Fence other handlers, find the letters, and write that the redrive began, if there is a letter."""
        # fence other handlers, and read which letters are to be handled
        self._letter_count = self._handling.open()
        followed = followed_topics(self._topics, self._input)
        order = self._order
        # the ends of the three topics now: outcomes are read from there on
        self._begun = RedriveBegun(
            redrive=order.redrive,
            action=order.action.value,
            by=order.by,
            why=order.why,
            which=str(order.which),
            letters=self._letter_count,
            copies_from=self._ends_of_topic(followed.copies),
            letters_from=self._ends_of_topic(followed.letters),
            verdicts_from=self._ends_of_topic(followed.verdicts),
            at_ms=now_ms,
        )
        if not self._letter_count:
            # without a letter nothing is written, so the log does not show such
            # a redrive
            return
        self._handling.write([audit_record(self._begun, self._input.dead_letter.topic)])
        if order.action is LetterAction.REPLAYED:  # letters that are dropped have no outcome
            self._outcomes = RedriveOutcomes(self._log, self._topics, self._input, [self._begun])

    def _ends_of_topic(self, topic: str) -> tuple[int, ...]:
        """Return the end of each partition of a topic, by the partition's number."""
        ends = self._log.ends(existing_partitions(self._log, topic))
        return tuple(ends[partition] for partition in sorted(ends))

    def _read_outcomes(self, now_ms: int) -> None:
        """Read what became of the letters, if it was not read for `STEP_MS_MAX`."""
        # abs: a clock that was set back must not delay it for long
        if self._outcomes is None or abs(now_ms - self._outcomes_read_at_ms) < STEP_MS_MAX:
            return
        self._outcomes_read_at_ms = now_ms
        self._outcomes.read()

    def _count_by_outcome(self) -> Counter[LetterOutcome]:
        """Return how many handled letters have each outcome; none if they are dropped.

        Those handled since the outcomes were read last are open: what was read
        does not have them yet.
        """
        if self._outcomes is None:
            return Counter()
        count_by_outcome = self._outcomes.count_by_outcome(self._order.redrive)
        unread_count = self._handling.handled_count - count_by_outcome.total()
        count_by_outcome[LetterOutcome.OPEN] += unread_count
        return count_by_outcome

    def _why_to_stop(self, open_count: int, idle_ms: int) -> RedriveEnd | None:
        """Return why it stops before all letters are handled; None: it goes on.

        `open_count` letters are open, and for `idle_ms` none was handled.
        """
        if self._handling.is_done:
            return None
        if self._count_by_outcome()[LetterOutcome.DIED] >= self._limits.died_max:
            return RedriveEnd.DIED_AGAIN
        # one that is settled makes room, and the next one is handled: so a slow
        # query does not count as stalled
        is_full = open_count >= self._limits.at_once
        if is_full and idle_ms >= self._limits.stalled_ms:
            return RedriveEnd.STALLED
        return None

    def _write_end(self, end: RedriveEnd, now_ms: int) -> None:
        """Write how it ended, with the outcomes that are known by now, and set `end`."""
        if self._outcomes is not None:
            self._outcomes.read()
        count_by_outcome = self._count_by_outcome()
        ended = RedriveEnded(
            redrive=self._order.redrive,
            end=end.value,
            by=self._order.by,
            handled=self._handling.handled_count,
            acked=count_by_outcome[LetterOutcome.ACKED],
            died=count_by_outcome[LetterOutcome.DIED],
            at_ms=now_ms,
        )
        self._handling.write([audit_record(ended, self._input.dead_letter.topic)])
        self.end = end


def cancel_redrive(log: Log, topics: Topics, input: Input, redrive: str, by: str, now_ms: int) -> None:
    """Cancel a redrive of an input from another process: fence it, and write its end.

    `redrive` is its id; `by` is who cancels it. Raises `UsageError`: there is no such redrive, or
    it has ended.
    """
    limits = topics.replay.limits
    # this handles no letter: the order is there for the handler, which fences
    # and writes
    order = Order(LetterAction.REPLAYED, which=Filter(), by=by, why="", redrive=redrive)
    handling = LetterHandling(
        log, input, order, transactional_id_prefix=topics.acker.replay_group, limits=limits
    )
    with closing(handling):
        redrives = find_redrives(log, input, wait_ms=limits.operation_timeout_ms)
        redrive_by_id = {record.begun.redrive: record for record in redrives}
        record = redrive_by_id.get(redrive)
        if record is None or not record.may_run:
            state = "there is none" if record is None else f"it is {record.state}"
            raise UsageError(f"redrive {redrive} of input {input.name} cannot be cancelled: {state}")
        handling.fence()
        unknown = -1  # who cancels it does not know how many were handled, acked, and died again
        ended = RedriveEnded(
            redrive=redrive,
            end=RedriveEnd.CANCELLED.value,
            by=by,
            handled=unknown,
            acked=unknown,
            died=unknown,
            at_ms=now_ms,
        )
        handling.write([audit_record(ended, input.dead_letter.topic)])
