"""What happened to a record, and when: one lane for each attempt; pure.

Source: docs/operate/page.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple, assert_never

from acker.kafka.port import Record
from acker.untrusted import Untrusted, UntrustedName
from acker.wire.verdict import Verdict
from replay.records.due import Loss, left_out_by
from spout.inspect.story import Evidence, TracedEmission, attempts_of, is_of

LANES_MAX: Final = 20
"""So many attempts are drawn, the latest; the table of events has all."""

SCALE: Final = 1_000
"""The width of a lane; all places in it are from 0 to this."""


class EventKind(StrEnum):
    """What an event is; it is drawn by its own sign."""

    WRITTEN = "written"
    EMITTED = "emitted"
    FAILED = "failed"
    VERDICT = "verdict"
    DUE = "due"
    DEAD = "dead letter"
    DEADLINE = "deadline"
    NOW = "now"


class LaneEvent(NamedTuple):
    """An event of a lane at a wall time; `at` is its place in the lane."""

    at_ms: int
    kind: EventKind
    text: str
    at: int = 0


@dataclass(frozen=True, slots=True)
class Lane:
    """One attempt. From `begin` to `end` it was open; both are None where it is unknown when it began."""

    attempt: int
    root: str
    state: str
    events: Sequence[LaneEvent]
    begin: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """The lanes of a record, and those of them that are drawn."""

    begin_ms: int
    end_ms: int
    lanes: Sequence[Lane] = ()

    @property
    def drawn(self) -> Sequence[Lane]:
        return self.lanes[-LANES_MAX:]

    def events(self) -> list[tuple[int, LaneEvent]]:
        """Return all events but `NOW` with their attempts, in the order of time."""
        found = [(lane.attempt, each) for lane in self.lanes for each in lane.events]
        return sorted(
            (each for each in found if each[1].kind is not EventKind.NOW), key=lambda each: each[1].at_ms
        )


def timeline_of(evidence: Evidence, now_ms: int) -> Timeline:
    """Return what happened to a record, up to what is due.

    An event without a time is left out, likewise an emission that only repeats the ones beside it.
    """
    losses = {loss.root: loss for loss in evidence.history if not left_out_by(loss)}
    named = {one.place for one in evidence.emissions}
    past = [
        Lane(loss.attempt, loss.root, loss.reason.value, _lost(loss))
        for loss in losses.values()
        if loss.root not in named
    ]
    drafts = [*(_draft(evidence, one, losses.get(one.place), now_ms) for one in evidence.emissions), *past]
    repeated = {row["root"] for row in attempts_of(evidence, now_ms) if row["repeats"]}
    drafts = [lane for lane in drafts if lane.root not in repeated]
    # by time, since a record that was let live again from a dead letter counts its attempts from 1
    drafts.sort(key=lambda lane: min((each.at_ms for each in lane.events), default=now_ms))
    if drafts and isinstance(evidence.record, Record):
        written_ms = evidence.record.timestamp_ms
        first_ms = min((event.at_ms for event in drafts[0].events), default=now_ms)
        # producers write what they like: a time behind the first emission would stretch the lanes to it
        if 0 < written_ms <= first_ms:
            written = LaneEvent(written_ms, EventKind.WRITTEN, "written to its topic")
            drafts[0] = replace(drafts[0], events=[written, *drafts[0].events])
    times = [each.at_ms for lane in drafts for each in lane.events]
    begin_ms, end_ms = min(times, default=now_ms), max(times, default=now_ms)
    placed = [_placed(lane, begin_ms, max(1, end_ms - begin_ms)) for lane in drafts]
    return Timeline(begin_ms, end_ms, placed)


def _draft(evidence: Evidence, one: TracedEmission, loss: Loss | None, now_ms: int) -> Lane:
    """Return the lane of an emission, its events without their places."""
    verdict = one.verdict
    lost = loss if verdict is None else one.loss
    events = _lost(lost) if lost is not None else []
    if verdict is not None:
        text = f"verdict {verdict.name} at {verdict.place}"
        events.append(LaneEvent(verdict.at_ms, EventKind.VERDICT, text))
    elif lost is None and one.open is not None:
        events.append(LaneEvent(one.open.emitted_ms, EventKind.EMITTED, "emitted"))
        if one.open.left_ms is not None:
            events.append(LaneEvent(now_ms + one.open.left_ms, EventKind.DEADLINE, "times out"))
        events.append(LaneEvent(now_ms, EventKind.NOW, "now"))
    due = evidence.dues.get(one.root)
    if due is not None:
        fate = "becomes a dead letter" if due.dead else f"is due as attempt {due.attempt + 1}"
        events.append(LaneEvent(due.due_ms, EventKind.DUE, fate))
    if one is evidence.emissions[-1]:
        events += [
            LaneEvent(
                letter.died_ms, EventKind.DEAD, f"dead letter {letter.place} ({UntrustedName(letter.dead)})"
            )
            for letter in evidence.letters
            if is_of(letter, one)
        ]
    return Lane(one.lineage.attempt, one.name, one.state, events)


def _lost(loss: Loss) -> list[LaneEvent]:
    ended_ms = loss.emitted_ms + loss.age_ms
    emitted = LaneEvent(loss.emitted_ms, EventKind.EMITTED, "emitted")
    match loss.reason:
        case Verdict.TIMED_OUT:
            ended = LaneEvent(ended_ms, EventKind.DEADLINE, "timed out")
        case Verdict.ABANDONED:
            ended = LaneEvent(ended_ms, EventKind.FAILED, "abandoned: another session took the group")
        case Verdict.FAILED:
            operator, error = UntrustedName(loss.operator), UntrustedName(loss.error)
            by = f"failed at {operator or 'an unknown bolt'} by {error or 'no error'}"
            text = f"{by}: {Untrusted(loss.message)}" if loss.message else by
            ended = LaneEvent(ended_ms, EventKind.FAILED, text)
        case _:
            assert_never(loss.reason)
    return [emitted, ended]


def _placed(lane: Lane, begin_ms: int, length_ms: int) -> Lane:
    events = [each._replace(at=(each.at_ms - begin_ms) * SCALE // length_ms) for each in lane.events]
    begin = next((each.at for each in events if each.kind is EventKind.EMITTED), None)
    closing = (EventKind.NOW, EventKind.VERDICT, EventKind.FAILED, EventKind.DEADLINE)
    ends = [each.at for kind in closing for each in events if each.kind is kind]
    return replace(lane, events=events, begin=begin, end=ends[0] if begin is not None and ends else None)
