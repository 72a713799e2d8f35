"""What a session can be, and what can happen to it: each pair of both, and any sequence.

The states are compared with plain marks: what has happened to the session so far, as somebody would note it
who knows no table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker.errors import UsageError
from spout.group.session_state import (
    TRANSITIONS,
    SessionEvent,
    SessionState,
    SessionStates,
    status_word,
)


@dataclass
class Notes:
    """What has happened to a session.

    Attributes:
        has_sources: whether its sources are known.
        has_asked: whether the question was sent.
        waits: whether the holder of the group may live.
        takes_as: the session that takes, "new" or "own"; empty: none does.
        is_again: whether the session of the checkpoint took once more.
        is_accepted: whether all acker partitions have accepted it.
        begun: whether it plans, "owned" or "untracked"; empty: it does not.
        has_left: whether it said goodbye.
        is_lost: whether a higher session has the group.
        is_closed: whether it was closed.
    """

    has_sources: bool = False
    has_asked: bool = False
    waits: bool = False
    takes_as: str = ""
    is_again: bool = False
    is_accepted: bool = False
    begun: str = ""
    has_left: bool = False
    is_lost: bool = False
    is_closed: bool = False

    @property
    def is_question_open(self) -> bool:
        return self.has_asked and not self.takes_as

    @property
    def is_take_open(self) -> bool:
        return bool(self.takes_as) and not self.is_accepted

    def note(self, event: SessionEvent) -> bool:
        """Note an event; return False, and note nothing, if it cannot happen."""
        can_happen, happen = self._rules()[event]
        if self.is_closed:
            return event is SessionEvent.CLOSE
        if can_happen:
            happen()
        return can_happen

    def _rules(self) -> dict[SessionEvent, tuple[bool, Callable[[], None]]]:
        """Return of each event whether it can happen to a session that is not closed, and what it does."""
        is_untouched = self.has_sources and not self.has_asked and not self.begun
        may_draw = self.is_question_open or (self.takes_as == "own" and not self.begun)
        may_be_old = self.is_take_open and self.takes_as == "own" and not self.is_again
        is_here = self.begun == "owned" and not self.is_lost
        return {
            SessionEvent.SOURCES_READ: (not self.has_sources, lambda: self._set(has_sources=True)),
            SessionEvent.QUESTION_SENT: (is_untouched, lambda: self._set(has_asked=True)),
            SessionEvent.UNTRACKED_BEGUN: (is_untouched, lambda: self._set(begun="untracked")),
            SessionEvent.HOLDER_MAY_LIVE: (self.is_question_open, lambda: self._set(waits=True)),
            SessionEvent.SESSION_RESUMED: (
                self.is_question_open and not self.waits,
                lambda: self._set(takes_as="own"),
            ),
            SessionEvent.SESSION_DRAWN: (may_draw, lambda: self._set(takes_as="new", is_accepted=False)),
            SessionEvent.GENERATIONS_APART: (self.is_take_open, lambda: None),
            SessionEvent.ANSWER_IS_OLD: (may_be_old, lambda: self._set(is_again=True)),
            SessionEvent.ALL_ACCEPTED: (self.is_take_open, lambda: self._set(is_accepted=True)),
            SessionEvent.GROUP_OWNED: (
                self.is_accepted and not self.begun,
                lambda: self._set(begun="owned"),
            ),
            SessionEvent.HIGHER_SESSION_SEEN: (self.begun == "owned", lambda: self._set(is_lost=True)),
            SessionEvent.GOODBYE_SENT: (is_here and not self.has_left, lambda: self._set(has_left=True)),
            SessionEvent.RECORDS_REQUESTED: (bool(self.begun), lambda: self._set(has_left=False)),
            SessionEvent.CLOSE: (True, lambda: self._set(is_closed=True)),
        }

    def _set(self, **marks: object) -> None:
        for name, mark in marks.items():
            setattr(self, name, mark)

    def state(self) -> SessionState:
        """Return what the session is, by what has happened to it."""
        marks = [
            (self.is_closed and bool(self.begun), SessionState.CLOSED),
            (self.is_closed, SessionState.WITHDRAWN),
            (self.is_lost, SessionState.SUPERSEDED),
            (self.has_left, SessionState.LEFT),
            (self.begun == "owned", SessionState.OWNING),
            (self.begun == "untracked", SessionState.UNTRACKED),
            (self.is_accepted and self.takes_as == "own", SessionState.RESUMED),
            (self.is_accepted, SessionState.TAKEN),
            (self.takes_as == "own" and self.is_again, SessionState.RESUMING_AGAIN),
            (self.takes_as == "own", SessionState.RESUMING),
            (self.takes_as == "new", SessionState.TAKING),
            (self.waits, SessionState.AWAITING_SILENCE),
            (self.has_asked, SessionState.ASKING),
            (self.has_sources, SessionState.PREPARING),
            (True, SessionState.IDLE),
        ]
        return next(state for is_so, state in marks if is_so)

    def word(self) -> str:
        """Return what a status says of it."""
        if self.begun:
            return "closed" if self.is_closed else "running"
        return "taking" if self.has_sources or self.is_closed else "idle"


def ways() -> dict[SessionState, list[SessionEvent]]:
    """Return for each state a shortest sequence of events that leads to it."""
    known: dict[SessionState, list[SessionEvent]] = {SessionState.IDLE: []}
    to_follow = [SessionState.IDLE]
    while to_follow:
        state = to_follow.pop(0)
        for event, following in TRANSITIONS[state].items():
            if following not in known:
                known[following] = [*known[state], event]
                to_follow.append(following)
    return known


WAYS: Final = ways()


def led_to(state: SessionState) -> tuple[SessionStates, Notes]:
    """Return a session in a state, and the notes of what has happened to it."""
    session, notes = SessionStates(), Notes()
    for event in WAYS[state]:
        session.process(event)
        assert notes.note(event)
    return session, notes


def test_every_state_has_a_row_and_a_way_to_it() -> None:
    assert TRANSITIONS.keys() == set(SessionState)
    assert WAYS.keys() == set(SessionState)


@pytest.mark.parametrize("event", SessionEvent, ids=lambda event: event.name)
@pytest.mark.parametrize("state", SessionState, ids=lambda state: state.name)
def test_an_event_leads_on_where_it_can_happen_and_else_raises_and_changes_nothing(
    state: SessionState, event: SessionEvent
) -> None:
    session, notes = led_to(state)
    assert session.state is state
    if notes.note(event):
        following = notes.state()
        assert session.process(event) is following
    else:
        following = state
        with pytest.raises(UsageError) as raised:
            session.process(event)
        assert state.value in str(raised.value)
        assert event.value in str(raised.value)
    assert session.state is following
    assert status_word(session.state) == notes.word()
    assert session.is_closed == notes.is_closed


@given(st.lists(st.sampled_from(SessionEvent), max_size=30))
def test_any_sequence_of_events_leads_where_the_notes_say(events: list[SessionEvent]) -> None:
    session, notes = SessionStates(), Notes()
    for event in events:
        before = session.state
        if notes.note(event):
            assert session.process(event) is notes.state()
        else:
            with pytest.raises(UsageError):
                session.process(event)
            assert session.state is before
        is_of_checkpoint = notes.takes_as == "own" and not notes.begun and not notes.is_closed
        assert session.is_restart == is_of_checkpoint


@given(st.randoms(use_true_random=False))
def test_a_session_that_goes_any_way_that_is_open_agrees_with_the_notes(random: object) -> None:
    """Sequences of which each event can happen reach the far states, which others seldom do."""
    session, notes = SessionStates(), Notes()
    for _ in range(40):
        open_events = [event for event in TRANSITIONS[session.state] if event is not SessionEvent.CLOSE]
        if not open_events:
            break
        event = random.choice(open_events)  # type: ignore[attr-defined]
        assert notes.note(event)
        assert session.process(event) is notes.state()
        assert status_word(session.state) == notes.word()


@pytest.mark.parametrize("state", SessionState, ids=lambda state: state.name)
def test_a_closed_session_stays_closed_whatever_was_before(state: SessionState) -> None:
    session, _ = led_to(state)
    closed = session.process(SessionEvent.CLOSE)
    assert closed in (SessionState.CLOSED, SessionState.WITHDRAWN)
    assert session.process(SessionEvent.CLOSE) is closed
