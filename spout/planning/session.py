"""A session: its name, its clock, and what N acker partitions answer to its `Take`.

The session's ticks carry its clock to the ackers. The clock moves only when the process reads it, and by at
most a second, so no root times out while the process sleeps. It does not move while the process has no root
pending, nor jump to wall time afterwards: another process of the session may have roots pending, and this
clock must not be ahead of that one's (see `spout.group.tenure`).

Source: docs/design/protocol.md, sections 2, 3 (rule 8) and 4 ("Take and Taken").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from acker.ledger.sessions import UNSENT_MS_MAX
from acker.wire.events import SourceRun, Taken, TakenSource

STEP_MS_MAX: Final = UNSENT_MS_MAX
"""Reading the clock adds at most this, and so do all readings since the last tick together."""

QUESTION_SUFFIX = "?"
"""Suffix of the id in the `Take` that only asks, so that its late answers are not taken for others."""


class SessionName(NamedTuple):
    """Orders the sessions of a group: by epoch, then by id."""

    epoch: int
    id: str

    def __str__(self) -> str:
        return f"{self.epoch}/{self.id}"


class SessionClock:
    """The clock of a session, ms. It never falls."""

    __slots__ = ("_looked_ms", "_sent", "now")

    def __init__(self, now: int, wall_ms: int) -> None:
        """Go on from `now`, the highest value that there is, at `wall_ms`."""
        self.now = now
        self._sent = now
        self._looked_ms = wall_ms

    def look(self, wall_ms: int, *, idle: bool) -> int:
        """Move the clock on and return it; `idle`: nothing is pending, so that no tick carries it."""
        if not idle:
            step_ms = min(STEP_MS_MAX, max(0, wall_ms - self._looked_ms))
            self.now = min(self.now + step_ms, self._sent + STEP_MS_MAX)
        self._looked_ms = wall_ms
        return self.now

    def lift(self, now: int) -> None:
        """Go on from the clock that another process of the session sent, if that is higher."""
        self.now = max(self.now, now)
        self.sent()

    def sent(self) -> None:
        """Note that a tick or an Init with the present clock is sent: the next adds at most `STEP_MS_MAX`.

        Else readings between two ticks and a sleep would add up, and a root time out up to 1.5 s late.
        """
        self._sent = self.now


class Answers:
    """Collects the first whole answer of each acker partition to one `Take`; part 0 begins an answer.

    Later ones answer repetitions and contain nothing new.
    """

    __slots__ = ("_asked_by", "_group", "_partial", "_partitions", "_sources", "_whole")

    def __init__(self, group: str, asked_by: str, partitions: int, sources: Iterable[int]) -> None:
        """Wait for N answers to the `Take` of session `asked_by` that names some sources.

        An answer that accepts without naming them all belongs to an earlier `Take`.
        """
        self._group = group
        self._asked_by = asked_by
        self._partitions = partitions
        self._sources = frozenset(sources)
        self._partial: dict[int, list[Taken]] = {}
        self._whole: dict[int, tuple[Taken, ...]] = {}

    def read(self, partition: int, taken: Taken) -> bool:
        """Read one record of an acker partition; True: it completes that partition's answer."""
        if taken.group != self._group or taken.asked_by != self._asked_by or partition in self._whole:
            return False
        if taken.part == 0:
            self._partial[partition] = []
        found = self._partial.get(partition)
        if found is None or taken.part != len(found):
            return False
        found.append(taken)
        if len(found) < taken.parts:
            return False
        named = {source.source for part in found for source in part.sources}
        if not taken.refused and not self._sources <= named:
            return False
        self._whole[partition] = tuple(found)
        return True

    def has(self, partition: int) -> bool:
        return partition in self._whole

    @property
    def missing(self) -> list[int]:
        """The acker partitions whose answer is not complete."""
        return [p for p in range(self._partitions) if p not in self._whole]

    @property
    def owner(self) -> SessionName:
        """The highest session that any answer names."""
        return max((SessionName(t.epoch, t.session) for t in self._parts()), default=SessionName(0, ""))

    @property
    def refusals(self) -> dict[int, str]:
        """The reason of each partition that refused."""
        return {p: parts[0].refused for p, parts in self._whole.items() if parts[0].refused}

    @property
    def clock(self) -> int:
        """The highest in any answer, ms."""
        return max((t.clock for t in self._parts()), default=0)

    @property
    def open(self) -> tuple[SourceRun, ...]:
        """The session's pending roots, ascending."""
        return tuple(sorted(run for taken in self._parts() for run in taken.open))

    def generations(self) -> dict[int, dict[int, int]]:
        """Return by acker partition that has answered the generation of each source that it knows."""
        return {
            partition: {entry.source: entry.generation for part in parts for entry in part.sources}
            for partition, parts in self._whole.items()
        }

    def sources(self) -> dict[int, SourceHistory]:
        """Return each source as the ackers know it, merged from all answers."""
        found: dict[int, list[tuple[int, TakenSource]]] = {}
        for partition, parts in self._whole.items():
            for entry in (entry for part in parts for entry in part.sources):
                found.setdefault(entry.source, []).append((partition, entry))
        return {source: _history(entries) for source, entries in found.items()}

    def _parts(self) -> Iterable[Taken]:
        return (taken for parts in self._whole.values() for taken in parts)


@dataclass(frozen=True, slots=True)
class SourceHistory:
    """The state of a source in N acker partitions, at the highest `generation` that any of them has.

    `from_` is the lowest first position of that generation; `watermarks` has by acker partition that has the
    source its first position that was never initialised.
    """

    generation: int
    topic_id: str
    from_: int
    watermarks: Mapping[int, int]


def _history(entries: Iterable[tuple[int, TakenSource]]) -> SourceHistory:
    entries = list(entries)
    generation = max(entry.generation for _, entry in entries)
    current = [entry for _, entry in entries if entry.generation == generation]
    return SourceHistory(
        generation=generation,
        topic_id=current[0].topic_id,
        from_=min(entry.from_ for entry in current),
        watermarks={partition: entry.next for partition, entry in entries},
    )
