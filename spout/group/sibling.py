"""The process before, of the same session: for some seconds after a restart it may still live.

Each of the two has a clock, and neither hears the other's. A restart that comes later goes on from the higher
one, and what was emitted by the lower one would be older at once by the difference. So while the process
before may live

- the clock of this one runs on though it has nothing open, since the other one's may, and all acker
  partitions are told: what the other one emits by a slower clock has its whole time all the same,
- what it emits may stay open for as much longer as its clock stayed behind the wall's, and a step more,

and when the other one is gone for certain, the acker partitions are asked what it told last.

Source: docs/design/protocol.md, rule 8.
"""

from __future__ import annotations

from typing import Final

from acker.wire.events import Taken
from spout.planning.session import QUESTION_SUFFIX, STEP_MS_MAX, Answers, SessionClock, SessionName

SIBLING_MS: Final = 10_000
"""For so long after a restart the process before may still live: Spark ends it within seconds."""

REPEAT_MS: Final = 5_000
"""An acker partition that does not answer is asked again this often."""


class Sibling:
    """What this process knows of the one before it, and asks when that one is gone."""

    def __init__(
        self, group: str, name: SessionName, partitions: int, clock: SessionClock, now_ms: int
    ) -> None:
        """Begin at a restart.

        Args:
            group: the group.
            name: the session of both.
            partitions: N.
            clock: ours, as it was taken up.
            now_ms: wall time of the restart.
        """
        self.question = SessionName(0, name.id + QUESTION_SUFFIX)
        self._clock = clock
        self._began, self._began_ms = clock.now, now_ms
        self._asked_ms: int | None = None
        self._answers = Answers(group, self.question.id, partitions, ())

    def grace_ms(self, now_ms: int) -> int:
        """Return by how much longer a root may stay open that is emitted now, ms.

        The other one may be ahead of what it had told at the restart by a step of its clock, and since then
        by what ours lost.
        """
        behind_ms = (now_ms - self._began_ms) - (self._clock.now - self._began)
        return STEP_MS_MAX + min(SIBLING_MS, max(0, behind_ms))

    def to_ask(self, now_ms: int) -> list[int]:
        """Return the acker partitions that are to be asked now for the session's clock."""
        if 0 <= now_ms - self._began_ms < SIBLING_MS:
            return []
        if self._asked_ms is not None and 0 <= now_ms - self._asked_ms < REPEAT_MS:
            return []
        self._asked_ms = now_ms
        return self._answers.missing

    def read(self, partition: int, taken: Taken) -> None:
        """Read an answer; those to what nobody asked yet are of somebody else's question."""
        if self._asked_ms is not None:
            self._answers.read(partition, taken)

    @property
    def last_told(self) -> int | None:
        """The session's clock as the acker partitions heard it, ms; None before all of them have answered."""
        return None if self._answers.missing else self._answers.clock
