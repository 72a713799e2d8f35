"""The process before, of the same session: for some seconds after a restart it may still be alive.

Each of the two processes has a clock and does not receive the other's. The next restart goes on from the
higher clock, and what was emitted by the lower one would suddenly be older by the difference. So while the
process before may be alive:

- the clock of this process moves even if it has no root pending, since the other's may move, and it is sent
  to all acker partitions. So what the other process emits by a slower clock still has its whole timeout.
- roots that this process emits get a longer timeout: longer by what its clock is behind wall time, and by one
  step more.

When the other process is gone for certain, this one asks the acker partitions for the last clock of the
other.

Source: docs/design/protocol.md, rule 8.
"""

from __future__ import annotations

from typing import Final

from acker.wire.events import Taken
from spout.planning.session import QUESTION_SUFFIX, STEP_MS_MAX, Answers, SessionClock, SessionName

SIBLING_MS: Final = 10_000
"""The process before may be alive for so long after a restart: Spark ends it within seconds."""

REPEAT_MS: Final = 5_000
"""The question is repeated this often to an acker partition that does not answer."""


class Sibling:
    """What this process has to do because of the one before it."""

    def __init__(
        self, group: str, name: SessionName, partitions: int, clock: SessionClock, now_ms: int
    ) -> None:
        """Begin at a restart.

        Args:
            group: the group.
            name: the session of both.
            partitions: N.
            clock: the clock of this process, at the value with which it began.
            now_ms: wall time of the restart.
        """
        self.question = SessionName(0, name.id + QUESTION_SUFFIX)
        self._clock = clock
        self._began, self._began_ms = clock.now, now_ms
        self._asked_ms: int | None = None
        self._answers = Answers(group, self.question.id, partitions, ())

    def grace_ms(self, now_ms: int) -> int:
        """Return how much longer the timeout of a root is that is emitted now, ms.

        At the restart the other clock may have been one step ahead of the last tick, and since then it may
        have moved by what this clock is behind wall time.
        """
        behind_ms = (now_ms - self._began_ms) - (self._clock.now - self._began)
        return STEP_MS_MAX + min(SIBLING_MS, max(0, behind_ms))

    def to_ask(self, now_ms: int) -> list[int]:
        """Return the acker partitions that should get the question for the session's clock now."""
        if 0 <= now_ms - self._began_ms < SIBLING_MS:
            return []
        if self._asked_ms is not None and 0 <= now_ms - self._asked_ms < REPEAT_MS:
            return []
        self._asked_ms = now_ms
        return self._answers.missing

    def read(self, partition: int, taken: Taken) -> None:
        """Read an answer; one that comes before our first question answers another process."""
        if self._asked_ms is not None:
            self._answers.read(partition, taken)

    @property
    def last_told(self) -> int | None:
        """The session's highest clock in the acker partitions, ms; None until all of them have answered."""
        return None if self._answers.missing else self._answers.clock
