"""The states of a session in one process, and what leads from one to another.

Theory of operation
===================

A process that is to read a group goes through these states. The first row is the usual way of a
fresh checkpoint, the second that of a restart, the third that of a query without tracking::

    IDLE -> PREPARING -> ASKING -> (AWAITING_SILENCE) -> TAKING -> TAKEN -> OWNING
                         ASKING -> RESUMING -> (RESUMING_AGAIN) -> RESUMED -> OWNING
            PREPARING -> UNTRACKED

A restart has its session from the checkpoint. Where that cannot go on, it draws a new session and
goes on as a fresh checkpoint does, from TAKING on.

An owner that says goodbye has LEFT, and owns again once it asks for records. One that hears of a
higher session is SUPERSEDED for good: the group is the other's, and so are its commits.

`TRANSITIONS` has every event that can happen in a state. Any other one is an error of the caller:
it raises and changes nothing. An error that ends the query is no state: the session stays as it is
until it is closed.

Source: docs/design/protocol.md, sections 4 ("Take and Taken") and 5.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, unique
from types import MappingProxyType
from typing import Final, assert_never

from acker.errors import UsageError


@unique
class SessionState(Enum):
    """What a session can be; the values say it in words that follow "a session that"."""

    IDLE = "was not opened"
    PREPARING = "knows its sources, and has asked nobody yet"
    ASKING = "asks who owns the group"
    AWAITING_SILENCE = "waits for the holder of the group to be silent"
    TAKING = "takes the group as a new session"
    RESUMING = "takes the group as the session of the checkpoint"
    RESUMING_AGAIN = "takes the group as the session of the checkpoint once more"
    TAKEN = "was accepted as a new session"
    RESUMED = "was accepted as the session of the checkpoint"
    OWNING = "owns the group"
    LEFT = "has left, though it may come back"
    SUPERSEDED = "has lost the group to a higher session"
    UNTRACKED = "reads without tracking"
    CLOSED = "is closed"
    WITHDRAWN = "was closed before it had the group"


@unique
class SessionEvent(Enum):
    """What can happen to a session; the values say it as a sentence."""

    SOURCES_READ = "its sources were read"
    QUESTION_SENT = "it asks who owns the group"
    UNTRACKED_BEGUN = "it begins without tracking"
    HOLDER_MAY_LIVE = "the holder of the group may live"
    SESSION_RESUMED = "it takes the group as the session of the checkpoint"
    SESSION_DRAWN = "it takes the group as a new session"
    GENERATIONS_APART = "it takes the group again, with the highest generations"
    ANSWER_IS_OLD = "it takes the group again, since the first answer is old"
    ALL_ACCEPTED = "all acker partitions have accepted it"
    GROUP_OWNED = "it begins to plan"
    HIGHER_SESSION_SEEN = "a higher session took the group"
    GOODBYE_SENT = "it leaves"
    RECORDS_REQUESTED = "it asks for records"
    CLOSE = "it is closed"


_State, _Event = SessionState, SessionEvent

TRANSITIONS: Final[Mapping[SessionState, Mapping[SessionEvent, SessionState]]] = MappingProxyType(
    {
        _State.IDLE: {
            _Event.SOURCES_READ: _State.PREPARING,
            _Event.CLOSE: _State.WITHDRAWN,
        },
        _State.PREPARING: {
            _Event.QUESTION_SENT: _State.ASKING,
            _Event.UNTRACKED_BEGUN: _State.UNTRACKED,
            _Event.CLOSE: _State.WITHDRAWN,
        },
        _State.ASKING: {
            _Event.HOLDER_MAY_LIVE: _State.AWAITING_SILENCE,
            _Event.SESSION_RESUMED: _State.RESUMING,
            _Event.SESSION_DRAWN: _State.TAKING,
            _Event.CLOSE: _State.WITHDRAWN,
        },
        # only a fresh checkpoint waits, so no session can be resumed from here
        _State.AWAITING_SILENCE: {
            _Event.HOLDER_MAY_LIVE: _State.AWAITING_SILENCE,
            _Event.SESSION_DRAWN: _State.TAKING,
            _Event.CLOSE: _State.WITHDRAWN,
        },
        # a new session that is refused draws no other one: whoever is above it came after the question
        _State.TAKING: {
            _Event.GENERATIONS_APART: _State.TAKING,
            _Event.ALL_ACCEPTED: _State.TAKEN,
            _Event.CLOSE: _State.WITHDRAWN,
        },
        _State.RESUMING: {
            _Event.GENERATIONS_APART: _State.RESUMING,
            _Event.ANSWER_IS_OLD: _State.RESUMING_AGAIN,
            _Event.SESSION_DRAWN: _State.TAKING,
            _Event.ALL_ACCEPTED: _State.RESUMED,
            _Event.CLOSE: _State.WITHDRAWN,
        },
        # acker partitions that are always a second apart must not keep a restart here for ever
        _State.RESUMING_AGAIN: {
            _Event.GENERATIONS_APART: _State.RESUMING_AGAIN,
            _Event.SESSION_DRAWN: _State.TAKING,
            _Event.ALL_ACCEPTED: _State.RESUMED,
            _Event.CLOSE: _State.WITHDRAWN,
        },
        _State.TAKEN: {
            _Event.GROUP_OWNED: _State.OWNING,
            _Event.CLOSE: _State.WITHDRAWN,
        },
        # the checkpoint may turn out to be older than what its session did
        _State.RESUMED: {
            _Event.SESSION_DRAWN: _State.TAKING,
            _Event.GROUP_OWNED: _State.OWNING,
            _Event.CLOSE: _State.WITHDRAWN,
        },
        _State.OWNING: {
            _Event.RECORDS_REQUESTED: _State.OWNING,
            _Event.GOODBYE_SENT: _State.LEFT,
            _Event.HIGHER_SESSION_SEEN: _State.SUPERSEDED,
            _Event.CLOSE: _State.CLOSED,
        },
        _State.LEFT: {
            _Event.RECORDS_REQUESTED: _State.OWNING,
            _Event.HIGHER_SESSION_SEEN: _State.SUPERSEDED,
            _Event.CLOSE: _State.CLOSED,
        },
        # each acker partition tells of the higher session, and a thread may just ask for records
        _State.SUPERSEDED: {
            _Event.RECORDS_REQUESTED: _State.SUPERSEDED,
            _Event.HIGHER_SESSION_SEEN: _State.SUPERSEDED,
            _Event.CLOSE: _State.CLOSED,
        },
        _State.UNTRACKED: {
            _Event.RECORDS_REQUESTED: _State.UNTRACKED,
            _Event.CLOSE: _State.CLOSED,
        },
        _State.CLOSED: {_Event.CLOSE: _State.CLOSED},
        _State.WITHDRAWN: {_Event.CLOSE: _State.WITHDRAWN},
    }
)
"""By state: the events that can happen in it, each with the state that follows."""

RESTARTS: Final = frozenset({_State.RESUMING, _State.RESUMING_AGAIN, _State.RESUMED})
"""The states of a process that goes on with the session of its checkpoint."""


class SessionStates:
    """The state of one session in one process; planner and opening read it, and say here what happens."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        """Begin with a session that was not opened."""
        self._state = SessionState.IDLE

    @property
    def state(self) -> SessionState:
        """What the session is now."""
        return self._state

    @property
    def is_restart(self) -> bool:
        """Whether the process takes the group as the session of its checkpoint."""
        return self._state in RESTARTS

    @property
    def is_closed(self) -> bool:
        """Whether nothing can happen any more."""
        return self._state in (SessionState.CLOSED, SessionState.WITHDRAWN)

    def process(self, event: SessionEvent) -> SessionState:
        """Go to the state that follows on an event, and return it.

        Raises:
            UsageError: the event cannot happen in this state; the state stays as it is.
        """
        following = TRANSITIONS[self._state].get(event)
        if following is None:
            raise UsageError(
                f"the session {self._state.value}, so it cannot happen that {event.value}; call the planner"
                " in the order that `spout.planning_process.planner` names"
            )
        self._state = following
        return following


def status_word(state: SessionState) -> str:
    """Return what a status says of a session that no error has ended."""
    match state:
        case SessionState.IDLE:
            return "idle"
        case (
            SessionState.PREPARING
            | SessionState.ASKING
            | SessionState.AWAITING_SILENCE
            | SessionState.TAKING
            | SessionState.RESUMING
            | SessionState.RESUMING_AGAIN
            | SessionState.TAKEN
            | SessionState.RESUMED
            | SessionState.WITHDRAWN
        ):
            return "taking"
        case SessionState.OWNING | SessionState.LEFT | SessionState.SUPERSEDED | SessionState.UNTRACKED:
            return "running"
        case SessionState.CLOSED:
            return "closed"
        case _:
            assert_never(state)
