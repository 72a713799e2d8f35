"""What happened to a record, and when. A lane is the line on which one attempt is drawn; pure.

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
from spout.inspect.letter_rows import moment
from spout.inspect.story import (
    Evidence,
    TracedEmission,
    attempts_of,
    is_letter_of,
    loss_without_verdict,
)

LANES_MAX: Final = 20
"""How many attempts are drawn, the latest ones; the table of events has all."""

SCALE: Final = 1_000
"""The width of a lane; an x in it is from 0 to this."""


class EventKind(StrEnum):
    """What an event is; each kind has a sign of its own."""

    WRITTEN = "written"
    EMITTED = "emitted"
    FAILED = "failed"
    VERDICT = "verdict"
    DUE = "due"
    DEAD = "dead letter"
    DEADLINE = "deadline"
    NOW = "now"


class LaneEvent(NamedTuple):
    """An event of an attempt at a wall time; `x`, from 0 to `SCALE`, is where it is drawn."""

    at_ms: int
    kind: EventKind
    text: str
    x: int = 0


@dataclass(frozen=True, slots=True)
class Lane:
    """The line on which one attempt is drawn.

    Attributes:
        root: the name of the root that the attempt emitted.
        begin: the x at which it was emitted; None: it is unknown when.
        end: the x up to which it was open; None: it is unknown.
    """

    attempt: int
    root: str
    state: str
    events: Sequence[LaneEvent]
    begin: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """The lanes of a record; the x of all of them is the time from `begin_ms` to `end_ms`."""

    begin_ms: int
    end_ms: int
    lanes: Sequence[Lane] = ()

    @property
    def drawn(self) -> Sequence[Lane]:
        return self.lanes[-LANES_MAX:]

    def events(self) -> list[tuple[int, LaneEvent]]:
        """Return all events but `NOW` with their attempts, in the order of time."""
        events = []
        for lane in self.lanes:
            past = [event for event in lane.events if event.kind is not EventKind.NOW]
            events += [(lane.attempt, event) for event in past]
        return sorted(events, key=lambda attempt_and_event: attempt_and_event[1].at_ms)


def timeline_of(evidence: Evidence, now_ms: int) -> Timeline:
    """Return what happened to a record, up to what is due.

    It lacks events without a time, and emissions that only repeat the one beside them.
    """
    # 1. lanes: one of each emission that the log has, and one of each loss that only a history has
    losses = [loss for loss in evidence.history if not left_out_by(loss)]
    loss_by_root = {loss.root: loss for loss in losses}
    lanes: list[Lane] = []
    # a rewound record has losses of several generations at one place: the time tells them apart
    drawn_losses: set[tuple[str, int]] = set()
    for emission in evidence.emissions:
        loss_in_history = loss_without_verdict(emission, loss_by_root)
        lanes.append(_lane_of(evidence, emission, loss_in_history, now_ms))
        for drawn_loss in (emission.loss, loss_in_history):
            if drawn_loss is not None:
                drawn_losses.add((emission.place, drawn_loss.emitted_ms))
    lanes += [
        Lane(loss.attempt, loss.root, loss.reason.value, _events_of_loss(loss))
        for loss in losses
        if (loss.root, loss.emitted_ms) not in drawn_losses
    ]
    rows = attempts_of(evidence, now_ms)
    repeated = {(row["root"], row["emitted"]) for row in rows if row["repeats"]}
    lanes = [lane for lane in lanes if (lane.root, _emission_moment(lane)) not in repeated]

    # 2. their order: by time, since a record that was redriven counts its attempts from 1 again
    def first_ms(lane: Lane) -> int:
        return min((event.at_ms for event in lane.events), default=now_ms)

    lanes.sort(key=first_ms)
    if lanes and isinstance(evidence.record, Record):
        written_ms = evidence.record.timestamp_ms
        # a producer sets this time: one that is later than the first emission is wrong
        if 0 < written_ms <= first_ms(lanes[0]):
            written = LaneEvent(written_ms, EventKind.WRITTEN, "written to its topic")
            lanes[0] = replace(lanes[0], events=[written, *lanes[0].events])

    # 3. where events are drawn: all lanes have one scale
    times_ms = [event.at_ms for lane in lanes for event in lane.events]
    begin_ms, end_ms = min(times_ms, default=now_ms), max(times_ms, default=now_ms)
    length_ms = max(1, end_ms - begin_ms)
    return Timeline(begin_ms, end_ms, [_with_x(lane, begin_ms, length_ms) for lane in lanes])


def _emission_moment(lane: Lane) -> str | None:
    """Return when the root of a lane was emitted, as a row has it; None: it is unknown."""
    times_ms = [event.at_ms for event in lane.events if event.kind is EventKind.EMITTED]
    return moment(times_ms[0]) if times_ms else None


def _lane_of(evidence: Evidence, emission: TracedEmission, loss_in_history: Loss | None, now_ms: int) -> Lane:
    """Return the lane (the line on which one attempt is drawn) of an emission that the log has.

    Where its events are drawn is not decided yet. `loss_in_history` is how the emission was lost
    by the history of a later copy or letter; None: none says it.
    """
    verdict = emission.verdict
    # the verdict says how it was lost; only if it was not read, a history does
    loss = loss_in_history if verdict is None else emission.loss
    events = _events_of_loss(loss) if loss is not None else []
    if verdict is not None:
        text = f"verdict {verdict.name} at {verdict.place}"
        events.append(LaneEvent(verdict.at_ms, EventKind.VERDICT, text))
    elif loss is None and emission.open is not None:
        events.append(LaneEvent(emission.open.emitted_ms, EventKind.EMITTED, "emitted"))
        if emission.open.left_ms is not None:
            deadline_ms = now_ms + emission.open.left_ms
            events.append(LaneEvent(deadline_ms, EventKind.DEADLINE, "times out"))
        events.append(LaneEvent(now_ms, EventKind.NOW, "now"))
    due = evidence.dues.get(emission.root)
    if due is not None:
        text = "becomes a dead letter" if due.dead else f"is due as attempt {due.attempt + 1}"
        events.append(LaneEvent(due.due_ms, EventKind.DUE, text))
    if emission is evidence.emissions[-1]:  # a letter ends the last attempt
        for letter in evidence.letters:
            if is_letter_of(letter, emission):
                text = f"dead letter {letter.place} ({UntrustedName(letter.dead)})"
                events.append(LaneEvent(letter.died_ms, EventKind.DEAD, text))
    return Lane(emission.lineage.attempt, emission.name, emission.state, events)


def _events_of_loss(loss: Loss) -> list[LaneEvent]:
    """Return when a root was emitted, and when and how it was lost."""
    ended_ms = loss.emitted_ms + loss.age_ms
    emitted = LaneEvent(loss.emitted_ms, EventKind.EMITTED, "emitted")
    match loss.reason:
        case Verdict.TIMED_OUT:
            ended = LaneEvent(ended_ms, EventKind.DEADLINE, "timed out")
        case Verdict.ABANDONED:
            text = "abandoned: another session took the group"
            ended = LaneEvent(ended_ms, EventKind.FAILED, text)
        case Verdict.FAILED:
            operator, error = UntrustedName(loss.operator), UntrustedName(loss.error)
            text = f"failed at {operator or 'an unknown bolt'} by {error or 'no error'}"
            if loss.message:
                text = f"{text}: {Untrusted(loss.message)}"
            ended = LaneEvent(ended_ms, EventKind.FAILED, text)
        case _:
            assert_never(loss.reason)
    return [emitted, ended]


def _with_x(lane: Lane, begin_ms: int, length_ms: int) -> Lane:
    """Return a lane with the x of each event, of its begin and of its end.

    All lanes together begin at the wall time `begin_ms`, and are `length_ms` long.
    """
    events = []
    for event in lane.events:
        x = (event.at_ms - begin_ms) * SCALE // length_ms
        events.append(event._replace(x=x))
    emitted_x = [event.x for event in events if event.kind is EventKind.EMITTED]
    if not emitted_x:
        return replace(lane, events=events)
    # the first of these kinds that the lane has ends it: an open root is open up to now
    end_kinds = (EventKind.NOW, EventKind.VERDICT, EventKind.FAILED, EventKind.DEADLINE)
    end_x = [event.x for kind in end_kinds for event in events if event.kind is kind]
    return replace(lane, events=events, begin=emitted_x[0], end=end_x[0] if end_x else None)
