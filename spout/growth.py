"""New partitions of a topic that is being read: name them to the ackers, then read them from their start.

The session takes again, naming only what is new; nothing is abandoned by it, and all the while the sources
that are known go on.

Source: DESIGN.md, section 4 ("Take and Taken"); CONFORMANCE S135.
"""

from __future__ import annotations

from acker.events import Taken, TakeSource
from spout.announce import Announcer
from spout.cursor import SourceCursor, cursor_of
from spout.ground import Ground
from spout.session import Answers, SessionName
from spout.sources import SourceSpec, sources_of

LOOK_EVERY_MS = 30_000
"""How often the broker is asked for new partitions."""

REPEAT_MS = 5_000


class Growth:
    """Looks for new partitions and takes them into a running session."""

    def __init__(self, ground: Ground, name: SessionName, now_ms: int) -> None:
        """Look from half a minute from now on."""
        self._ground = ground
        self._name = name
        self._looked_ms = now_ms
        self._asked_ms = now_ms
        self._found: dict[int, SourceSpec] = {}
        self._answers: Answers | None = None

    def read(self, partition: int, taken: Taken) -> None:
        """Read an answer of an acker partition."""
        if self._answers is not None:
            self._answers.read(partition, taken)

    def step(self, now: int, now_ms: int) -> list[NewSource]:
        """Look, ask, or return what all acker partitions know now.

        Args:
            now: the session's clock, ms.
            now_ms: wall time.
        """
        if self._found:
            return self._taken(now, now_ms)
        if not 0 <= now_ms - self._looked_ms < LOOK_EVERY_MS:
            self._looked_ms = now_ms
            tracked = self._ground.announcer is not None
            found = sources_of(self._ground.log, self._ground.spec.inputs, tracked=tracked)
            self._found = {s: spec for s, spec in found.items() if s not in self._ground.sources}
            if self._found:
                return self._ask(now, now_ms)
        return []

    def _ask(self, now: int, now_ms: int) -> list[NewSource]:
        if self._ground.announcer is None:
            found, self._found = self._found, {}
            return [(spec, SourceCursor(0, 0)) for spec in found.values()]
        self._asked_ms = now_ms
        self._answers = Answers(
            self._ground.spec.group, self._name.id, self._ground.spec.partitions, self._found
        )
        self._send(self._ground.announcer, now)
        return []

    def _taken(self, now: int, now_ms: int) -> list[NewSource]:
        if self._answers is None or self._ground.announcer is None:
            return []
        if self._answers.missing:
            if now_ms - self._asked_ms >= REPEAT_MS:
                self._asked_ms = now_ms
                self._send(self._ground.announcer, now)
            return []
        known = self._answers.sources()
        added = [
            (
                spec,
                cursor_of(
                    source, known[source].from_, known[source].watermarks, self._ground.spec.partitions
                ),
            )
            for source, spec in self._found.items()
        ]
        self._found, self._answers = {}, None
        return added

    def _send(self, announcer: Announcer, now: int) -> None:
        missing = [] if self._answers is None else self._answers.missing
        sources = [TakeSource(s, spec.place.topic, spec.topic_id, 0, 0) for s, spec in self._found.items()]
        announcer.take(self._name, now, sources, missing)


NewSource = tuple[SourceSpec, SourceCursor]
"""A source, and what of it is free."""
