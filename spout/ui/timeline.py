"""What happened to a record, and when. Each attempt is drawn on a line of its own; pure.

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
from replay.records.due import Loss, left_out_count
from spout.inspect.letter_rows import moment
from spout.inspect.story import Evidence, TracedEmission, attempts_of, is_letter_of, losses_of_history

LINES_MAX: Final = 20
"""How many attempts are drawn, the latest ones; the table of events has all."""

SCALE: Final = 1_000
"""The width of a line; an x in it is from 0 to this."""


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


class AttemptEvent(NamedTuple):
    """An event of an attempt at a wall time; `x`, from 0 to `SCALE`, is where it is drawn."""

    at_ms: int
    kind: EventKind
    text: str
    x: int = 0


@dataclass(frozen=True, slots=True)
class AttemptLine:
    """The line on which one attempt is drawn.

    Attributes:
        root: the name of the root that the attempt emitted.
        begin_x: the x at which it was emitted; None: it is unknown when.
        end_x: the x up to which it was open; None: it is unknown.
    """

    attempt: int
    root: str
    state: str
    events: Sequence[AttemptEvent]
    begin_x: int | None = None
    end_x: int | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """The lines of a record; the x of all of them is the time from `begin_ms` to `end_ms`."""

    begin_ms: int
    end_ms: int
    lines: Sequence[AttemptLine] = ()

    @property
    def drawn(self) -> Sequence[AttemptLine]:
        return self.lines[-LINES_MAX:]

    def events(self) -> list[tuple[int, AttemptEvent]]:
        """Return all events but `NOW` with their attempts, in the order of time."""
        events = []
        for line in self.lines:
            past = [event for event in line.events if event.kind is not EventKind.NOW]
            events += [(line.attempt, event) for event in past]
        return sorted(events, key=lambda attempt_and_event: attempt_and_event[1].at_ms)


def timeline_of(evidence: Evidence, now_ms: int) -> Timeline:
    """Return the timeline of a record: a line for each emission, with its events up to what is due.

    It lacks events without a time, and emissions that only repeat the one beside them.
    """
    # 1. lines: one of each emission that the log has, and one of each loss that only a history has
    loss_by_emission, losses_without_emission = losses_of_history(evidence)
    lines: list[AttemptLine] = []
    for emission, loss in zip(evidence.emissions, loss_by_emission, strict=True):
        lines.append(_line_of(evidence, emission, loss, now_ms))
    # an entry for several losses has no time of its own
    single_losses = [loss for loss in losses_without_emission if not left_out_count(loss)]
    lines += [
        AttemptLine(loss.attempt, loss.root, loss.reason.value, _events_of_loss(loss))
        for loss in single_losses
    ]
    rows = attempts_of(evidence, now_ms)
    repeated = {(row["root"], row["emitted"]) for row in rows if row["repeats"]}
    lines = [line for line in lines if (line.root, _emission_moment(line)) not in repeated]

    # 2. their order: by time, since a record that was redriven counts its attempts from 1 again
    def first_event_ms(line: AttemptLine) -> int:
        return min((event.at_ms for event in line.events), default=now_ms)

    lines.sort(key=first_event_ms)
    if lines and isinstance(evidence.record, Record):
        written_ms = evidence.record.timestamp_ms
        # a producer sets this time: one that is later than the first emission is wrong
        if 0 < written_ms <= first_event_ms(lines[0]):
            written = AttemptEvent(written_ms, EventKind.WRITTEN, "written to its topic")
            lines[0] = replace(lines[0], events=[written, *lines[0].events])

    # 3. where events are drawn: all lines have one scale
    times_ms = [event.at_ms for line in lines for event in line.events]
    begin_ms, end_ms = min(times_ms, default=now_ms), max(times_ms, default=now_ms)
    length_ms = max(1, end_ms - begin_ms)
    return Timeline(begin_ms, end_ms, [_with_x(line, begin_ms, length_ms) for line in lines])


def _emission_moment(line: AttemptLine) -> str | None:
    """Return when the root of a line was emitted, as a row has it; None: it is unknown."""
    times_ms = [event.at_ms for event in line.events if event.kind is EventKind.EMITTED]
    return moment(times_ms[0]) if times_ms else None


def _line_of(
    evidence: Evidence, emission: TracedEmission, loss_in_history: Loss | None, now_ms: int
) -> AttemptLine:
    """Return the line of an emission that the log has.

    Where its events are drawn is not decided yet. `loss_in_history` is how the emission was lost
    by the history of a later copy or letter; None: none says it.
    """
    verdict = emission.verdict
    # the verdict says how it was lost; only if it was not read, a history does
    loss = loss_in_history if verdict is None else emission.loss
    events = _events_of_loss(loss) if loss is not None else []
    if verdict is not None:
        text = f"verdict {verdict.name} at {verdict.place}"
        events.append(AttemptEvent(verdict.at_ms, EventKind.VERDICT, text))
    elif loss is None and emission.open is not None:
        events.append(AttemptEvent(emission.open.emitted_ms, EventKind.EMITTED, "emitted"))
        if emission.open.left_ms is not None:
            deadline_ms = now_ms + emission.open.left_ms
            events.append(AttemptEvent(deadline_ms, EventKind.DEADLINE, "times out"))
        events.append(AttemptEvent(now_ms, EventKind.NOW, "now"))
    due = evidence.dues.get(emission.root)
    if due is not None:
        text = "becomes a dead letter" if due.dead else f"is due as attempt {due.attempt + 1}"
        events.append(AttemptEvent(due.due_ms, EventKind.DUE, text))
    if emission is evidence.emissions[-1]:  # a letter ends the last attempt
        for letter in evidence.letters:
            if is_letter_of(letter, emission):
                text = f"dead letter {letter.place} ({UntrustedName(letter.dead)})"
                events.append(AttemptEvent(letter.died_ms, EventKind.DEAD, text))
    return AttemptLine(emission.lineage.attempt, emission.name, emission.state, events)


def _events_of_loss(loss: Loss) -> list[AttemptEvent]:
    """Return when a root was emitted, and when and how it was lost."""
    ended_ms = loss.emitted_ms + loss.age_ms
    emitted = AttemptEvent(loss.emitted_ms, EventKind.EMITTED, "emitted")
    match loss.reason:
        case Verdict.TIMED_OUT:
            ended = AttemptEvent(ended_ms, EventKind.DEADLINE, "timed out")
        case Verdict.ABANDONED:
            text = "abandoned: another session took the group"
            ended = AttemptEvent(ended_ms, EventKind.FAILED, text)
        case Verdict.FAILED:
            operator, error = UntrustedName(loss.operator), UntrustedName(loss.error)
            text = f"failed at {operator or 'an unknown bolt'} by {error or 'no error'}"
            if loss.message:
                text = f"{text}: {Untrusted(loss.message)}"
            ended = AttemptEvent(ended_ms, EventKind.FAILED, text)
        case _:
            assert_never(loss.reason)
    return [emitted, ended]


def _with_x(line: AttemptLine, begin_ms: int, length_ms: int) -> AttemptLine:
    """Return a line with the x of each event, of its begin and of its end.

    All lines together begin at the wall time `begin_ms`, and are `length_ms` long.
    """
    events = []
    for event in line.events:
        x = (event.at_ms - begin_ms) * SCALE // length_ms
        events.append(event._replace(x=x))
    emitted_x = [event.x for event in events if event.kind is EventKind.EMITTED]
    if not emitted_x:  # without the time of its emission the line has no begin and no end
        return replace(line, events=events)
    # the first of these kinds that the line has ends it: an open root is open up to now
    end_kinds = (EventKind.NOW, EventKind.VERDICT, EventKind.FAILED, EventKind.DEADLINE)
    end_x = [event.x for kind in end_kinds for event in events if event.kind is kind]
    return replace(line, events=events, begin_x=emitted_x[0], end_x=end_x[0] if end_x else None)
