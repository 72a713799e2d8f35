"""Why each lost root was lost: the rule by which replays are laid at somebody's door; pure.

The rule asks the log, not the clock on the wall. A root times out at the first tick of its session that
passes its deadline, and an acker counts a tick only when it has applied every contribution that stood in
`_ack_ack` before it. So:

- The contribution that completes the root stands in the log *before* that tick, and still it was lost: the
  acker's doing, whatever else happened meanwhile. A killed, stopped or cut-off acker must never cause it.
  Likewise for a root that was abandoned though its contribution stood there before the take.
- It stands there later, or never: the driver was late. It was away or slow; a blow on the driver, the broker,
  their network or the disk between the root's emission and that tick explains it, else the batch was slow.
- Records that are meant to fail, or not to be acked, explain themselves.
- A verdict TIMED_OUT with no such tick before it came early, which is never right.
- Where there is no committed record (a transaction's marker, an aborted record) a position is ABSENT once a
  read task has said so; one that is lost before that is neither replayed nor buried.

What a replay worker's death costs needs no rule: a root that was lost has one copy or dead letter, or not.

Source: DESIGN.md, rules 7, 8 and 9, section 4 ("Order between the three topics").
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from enum import StrEnum
from itertools import accumulate
from typing import Final, NamedTuple

from acker.causes import error_class
from acker.events import Reason
from spout.demo.text import ALWAYS_FAILS, FAILS_TWICE, NEVER_ACKED_AT_FIRST
from spout.demo.topology import FAILING_ATTEMPTS, FlakyLineError, PoisonLineError
from spout.session import SessionName
from spout.torture.evidence import Evidence, Mark, Root, Story, Verdict
from spout.torture.schedule import Deed, Victim
from spout.torture.workload import key_of


class Cause(StrEnum):
    """Why a root was lost. The values stand in the report."""

    MEANT_TO_FAIL = "meant to fail"
    MEANT_TO_TIME_OUT = "meant to time out"
    TAKEN_OVER = "session taken over"
    BROKER_AWAY = "broker away"
    NETWORK_CUT = "driver's network cut"
    DISK_FULL = "checkpoint disk full"
    DRIVER_AWAY = "driver away"
    SLOW_BATCH = "batch slower than the timeout"
    ACKER = "acker had the acks in time"
    EARLY = "timed out early"
    NO_RECORD = "no record there"
    UNEXPLAINED = "unexplained"


FAULTS: Final = (Cause.ACKER, Cause.EARLY, Cause.UNEXPLAINED)
"""Causes that no rule allows."""

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


class Inquest:
    """Finds causes; what it needs of the evidence is prepared once."""

    def __init__(self, evidence: Evidence, strikes: Sequence[Strike]) -> None:
        """Prepare. `strikes` are in wall time, as the times of the evidence are."""
        self._evidence = evidence
        self._strikes = [
            strike
            for strike in strikes
            if strike.victim in (Victim.DRIVER, Victim.BROKER) and strike.deed is not Deed.CLOCK
        ]
        self._clocks = {
            key: (list(accumulate((mark.now for mark in marks), max)), marks)
            for key, marks in evidence.ticks.items()
        }

    def cause_of(self, root: Root, verdict: Verdict) -> Cause:
        """Say why a root got a verdict other than ACKED and ABSENT."""
        story = self._evidence.stories.get(root)
        emission = self._evidence.emission_of(root)
        if story is None:
            return Cause.UNEXPLAINED
        if emission is None or emission.origin not in self._evidence.numbers:
            return Cause.NO_RECORD
        key = key_of(self._evidence.numbers[emission.origin])
        if verdict.reason == Reason.ABANDONED:
            return self._abandoned(root, story)
        if verdict.reason == Reason.TIMED_OUT:
            meant = key == NEVER_ACKED_AT_FIRST and emission.attempt == 1
            return self._timed_out(root, story, verdict, meant=meant)
        if key == ALWAYS_FAILS and error_class(verdict.error) == PoisonLineError.__name__:
            return Cause.MEANT_TO_FAIL
        flaky = key == FAILS_TWICE and emission.attempt <= FAILING_ATTEMPTS
        if flaky and error_class(verdict.error) == FlakyLineError.__name__:
            return Cause.MEANT_TO_FAIL
        return Cause.UNEXPLAINED

    def _abandoned(self, root: Root, story: Story) -> Cause:
        takes = self._evidence.takes.get(story.acker_partition, [])
        take = next((take for take in takes if take.session > story.session), None)
        if take is None:
            return Cause.UNEXPLAINED
        return Cause.ACKER if self._contributed_before(root, story, take.at_ms) else Cause.TAKEN_OVER

    def _timed_out(self, root: Root, story: Story, verdict: Verdict, *, meant: bool) -> Cause:
        tick = self._first_tick_past(story.acker_partition, story.session, story.deadline)
        if tick is None or verdict.at_ms < tick.at_ms:
            return Cause.EARLY
        if self._contributed_before(root, story, tick.at_ms):
            return Cause.ACKER
        return Cause.MEANT_TO_TIME_OUT if meant else self._late(story, tick)

    def _first_tick_past(self, partition: int, session: SessionName, deadline: int) -> Mark | None:
        clock, marks = self._clocks.get((partition, session), ([], []))
        place = bisect_left(clock, deadline)
        return marks[place] if place < len(marks) else None

    def _contributed_before(self, root: Root, story: Story, at_ms: int) -> bool:
        """Tell whether the acks stood in the log before a time; within one millisecond nobody can tell."""
        contributed = self._evidence.contributed.get((root, story.session.id))
        return contributed is not None and contributed < at_ms

    def _late(self, story: Story, tick: Mark) -> Cause:
        near = [s for s in self._strikes if s.began_ms <= tick.at_ms and s.over_ms >= story.init_ms]
        found = {_cause_of(strike) for strike in near}
        return next((cause for cause in _FIRST_EXPLAINS if cause in found), Cause.SLOW_BATCH)


_FIRST_EXPLAINS: Final = (Cause.BROKER_AWAY, Cause.NETWORK_CUT, Cause.DISK_FULL, Cause.DRIVER_AWAY)


def _cause_of(strike: Strike) -> Cause:
    if strike.victim is Victim.BROKER:
        return Cause.BROKER_AWAY
    return Cause.DRIVER_AWAY if strike.deed is None else _BY_DEED.get(strike.deed, Cause.DRIVER_AWAY)
