"""Why each lost root was lost: the rule by which replays are laid at somebody's door; pure.

The rule asks the log, not the clock on the wall. A root times out at the first tick of its session that
passes its deadline, and an acker counts a tick only when it has applied every contribution that stood in
`_ack_ack` before it. So:

- The contribution that completes the root stands in the log *before* that tick, and still it was lost: the
  acker's doing, whatever else happened meanwhile. A killed, stopped or cut-off acker must never cause it.
  Likewise for a root that was abandoned though its contribution stood there before the take.
- It stands there later, or never: the driver was late. It was away or slow; a blow on the driver, the broker,
  their network or the disk between the root's emission and that tick explains it, else the batch was slow.
- Spark plans a session's next batch when the one before has ended, and published its acks. So where that is
  planned after that tick, no blow fell in between, and still there is no contribution, acks were lost.
- Records that are meant to fail, or not to be acked, explain themselves.
- A verdict TIMED_OUT with no such tick before it came early, which is never right.
- Where there is no committed record (a transaction's marker, an aborted record) a position is ABSENT once a
  read task has said so; one that is lost before that is neither replayed nor buried.

A driver that ends by itself is started again, as a cluster would, but something must explain that it ended: a
blow on it, its network, its disk or a broker, not long before. That an executor died explains nothing: its
tasks run again.

What a replay worker's death costs needs no rule: a root that was lost has one copy or dead letter, or not.

Source: docs/design/protocol.md, rules 7, 8 and 9, section 4 ("Order between the three topics").
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from enum import StrEnum
from itertools import accumulate
from typing import Final, NamedTuple, assert_never

from acker.identity import Root
from acker.wire.causes import error_class
from acker.wire.verdict import Verdict
from spout.demo.words import (
    ALWAYS_FAILS,
    FAILING_ATTEMPTS,
    FAILS_TWICE,
    NEVER_ACKED_AT_FIRST,
    FlakyLineError,
    PoisonLineError,
)
from spout.planning.session import SessionName
from tests.torture.judging.evidence import DatedVerdict, Evidence, Mark, Story
from tests.torture.schedule import BROKERS, SPARK_WORKERS, Deed, Victim
from tests.torture.workload import ODD_ERRORS, UnluckyLineError, is_text, key_of


class Cause(StrEnum):
    """Why a root was lost. The values stand in the report."""

    MEANT_TO_FAIL = "meant to fail"
    MEANT_TO_TIME_OUT = "meant to time out"
    TAKEN_OVER = "session taken over"
    BROKER_AWAY = "broker away"
    NETWORK_CUT = "driver's network cut"
    DISK_FULL = "checkpoint disk full"
    DRIVER_AWAY = "driver away"
    EXECUTOR_AWAY = "executor away"
    SLOW_BATCH = "batch slower than the timeout"
    ACKER = "acker had the acks in time"
    ACKS_AWAY = "acks never came"
    EARLY = "timed out early"
    NO_RECORD = "no record there"
    UNEXPLAINED = "unexplained"


FAULTS: Final = (Cause.ACKER, Cause.ACKS_AWAY, Cause.EARLY, Cause.UNEXPLAINED)
"""Causes that no rule allows."""

ENDS_WITHIN_MS: Final = 30_000
"""A driver may end so long after a blow is over: so long its clients wait for an answer."""

_BY_DEED: Final = {
    Deed.CUT: Cause.NETWORK_CUT,
    Deed.SILENCE: Cause.NETWORK_CUT,
    Deed.FULL_DISK: Cause.DISK_FULL,
}


class Strike(NamedTuple):
    """A blow that fell, or a driver that ended by itself (`deed` None), from beginning to recovery."""

    victim: Victim
    deed: Deed | None
    began_ms: int
    over_ms: int


def unexplained_endings(strikes: Sequence[Strike]) -> list[Strike]:
    """Return drivers that ended by themselves though no blow explains it."""
    blows = [strike for strike in _on_driver(strikes, _ENDING) if strike.deed is not None]
    return [
        ending
        for ending in strikes
        if ending.deed is None
        and not any(blow.began_ms <= ending.began_ms <= blow.over_ms + ENDS_WITHIN_MS for blow in blows)
    ]


_ENDING: Final = (Victim.DRIVER, Victim.STORE, Victim.COORDINATORS, *BROKERS)
_DELAYING: Final = (*_ENDING, Victim.EXECUTOR, *SPARK_WORKERS)


def _on_driver(strikes: Sequence[Strike], felt: Sequence[Victim]) -> list[Strike]:
    """Return what a driver feels; a clock that steps explains nothing, since no deadline hangs on it."""
    return [strike for strike in strikes if strike.victim in felt and strike.deed is not Deed.CLOCK]


def _failed(number: int, attempt: int, error: str) -> Cause:
    """Say why a bolt failed an attempt of a record, by the class of the error."""
    key = key_of(number)
    if key == ALWAYS_FAILS and error == PoisonLineError.__name__:
        return Cause.MEANT_TO_FAIL
    if not is_text(number) and error in ODD_ERRORS:
        return Cause.MEANT_TO_FAIL
    if error == UnluckyLineError.__name__:
        return Cause.MEANT_TO_FAIL
    if key == FAILS_TWICE and attempt <= FAILING_ATTEMPTS and error == FlakyLineError.__name__:
        return Cause.MEANT_TO_FAIL
    return Cause.UNEXPLAINED


class CauseFinder:
    """Finds causes; what it needs of the evidence is prepared once."""

    def __init__(self, evidence: Evidence, strikes: Sequence[Strike]) -> None:
        """Prepare. `strikes` are in wall time, as the times of the evidence are."""
        self._evidence = evidence
        self._strikes = _on_driver(strikes, _DELAYING)
        self._planned = {session: sorted(times) for session, times in evidence.planned.items()}
        self._clocks = {
            key: (list(accumulate((mark.now for mark in marks), max)), marks)
            for key, marks in evidence.ticks.items()
        }

    def cause_of(self, root: Root, verdict: DatedVerdict) -> Cause:
        """Say why a root got a verdict other than ACKED and ABSENT."""
        story = self._evidence.stories.get(root)
        emission = self._evidence.outcomes.emission_of(root)
        if story is None:
            return Cause.UNEXPLAINED
        if emission is None or emission.origin not in self._evidence.numbers:
            return Cause.NO_RECORD
        number = self._evidence.numbers[emission.origin]
        key = key_of(number)
        match verdict.kind:
            case Verdict.ABANDONED:
                return self._abandoned(root, story)
            case Verdict.TIMED_OUT:
                meant = key == NEVER_ACKED_AT_FIRST and emission.attempt == 1
                cause = self._timed_out(root, story, verdict, meant=meant)
                may_fail = key == ALWAYS_FAILS or (
                    key == FAILS_TWICE and emission.attempt <= FAILING_ATTEMPTS
                )
                may_fail = may_fail or not is_text(number)
                return Cause.SLOW_BATCH if cause is Cause.ACKS_AWAY and may_fail else cause
            case Verdict.FAILED:
                return _failed(number, emission.attempt, error_class(verdict.error))
            case Verdict.ACKED | Verdict.ABSENT:
                raise ValueError(f"{root} is {verdict.kind}, and no loss")
            case _:
                assert_never(verdict.kind)

    def _abandoned(self, root: Root, story: Story) -> Cause:
        takes = self._evidence.takes.get(story.acker_partition, [])
        take = next((take for take in takes if take.session > story.session), None)
        if take is None:
            return Cause.UNEXPLAINED
        return Cause.ACKER if self._contributed_before(root, story, take.at_ms) else Cause.TAKEN_OVER

    def _timed_out(self, root: Root, story: Story, verdict: DatedVerdict, *, meant: bool) -> Cause:
        tick = self._first_tick_past(story.acker_partition, story.session, story.deadline)
        if tick is None or verdict.at_ms < tick.at_ms:
            return Cause.EARLY
        if self._contributed_before(root, story, tick.at_ms):
            return Cause.ACKER
        return Cause.MEANT_TO_TIME_OUT if meant else self._late(root, story, tick)

    def _first_tick_past(self, partition: int, session: SessionName, deadline: int) -> Mark | None:
        clock, marks = self._clocks.get((partition, session), ([], []))
        place = bisect_left(clock, deadline)
        return marks[place] if place < len(marks) else None

    def _contributed_before(self, root: Root, story: Story, at_ms: int) -> bool:
        """Tell whether the acks stood in the log before a time; within one millisecond nobody can tell."""
        contributed = self._evidence.contributed.get((root, story.session.id))
        return contributed is not None and contributed < at_ms

    def _late(self, root: Root, story: Story, tick: Mark) -> Cause:
        found = {_cause_of(strike) for strike in self._near(story.init_ms, tick.at_ms)}
        blow = next((cause for cause in _FIRST_EXPLAINS if cause in found), None)
        if blow is not None:
            return blow
        return Cause.ACKS_AWAY if self._acks_stayed_away(root, story, tick) else Cause.SLOW_BATCH

    def _acks_stayed_away(self, root: Root, story: Story, tick: Mark) -> bool:
        """Tell whether a batch was slow, but ended undisturbed, and still did not ack the root."""
        if (root, story.session.id) in self._evidence.contributed:
            return False
        planned = self._planned.get(story.session, [])
        after = bisect_right(planned, tick.at_ms)  # an Init of the batch itself stands before
        return after < len(planned) and not self._near(story.init_ms, planned[after])

    def _near(self, from_ms: int, to_ms: int) -> list[Strike]:
        return [strike for strike in self._strikes if strike.began_ms <= to_ms and strike.over_ms >= from_ms]


_FIRST_EXPLAINS: Final = (
    Cause.BROKER_AWAY, Cause.NETWORK_CUT, Cause.DISK_FULL, Cause.DRIVER_AWAY, Cause.EXECUTOR_AWAY,
)  # fmt: skip


def _cause_of(strike: Strike) -> Cause:
    if strike.victim in (*BROKERS, Victim.COORDINATORS):
        return Cause.BROKER_AWAY
    if strike.victim in (Victim.EXECUTOR, *SPARK_WORKERS):
        return Cause.EXECUTOR_AWAY
    return Cause.DRIVER_AWAY if strike.deed is None else _BY_DEED.get(strike.deed, Cause.DRIVER_AWAY)
