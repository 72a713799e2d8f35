"""A session: its name, its clock, and what N acker partitions answer to its `Take`.

The session's ticks carry its clock to the ackers. The clock moves only when the process reads it,
and by at most a second, so no root times out while the process sleeps. It does not move while the
process has no root pending, nor jump to wall time afterwards: another process of the session may
have roots pending, and this clock must not be ahead of that one's (see `spout.group.tenure`).

Source: docs/design/protocol.md, sections 2, 3 (rule 8) and 4 ("Take and
Taken").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from acker.ledger.sessions import UNSENT_MS_MAX
from acker.wire.events import SourceRun, Taken, TakenSource

STEP_MS_MAX: Final = UNSENT_MS_MAX
"""Reading the clock adds at most this, and so do all readings since the last tick together."""

QUESTION_SUFFIX = "?"
"""Suffix of the id in the `Take` that only asks, so that its late answers are
not taken for others.
"""

STORE_SUFFIX: Final = "-store"
"""Suffix of the id of a session that writes exactly once. The ackers keep the owner of a group, so
whoever asks for it knows that a store may have what is open.
"""


class SessionName(NamedTuple):
    """Orders the sessions of a group: by epoch, then by id."""

    epoch: int
    id: str

    @property
    def has_store(self) -> bool:
        """Whether the session writes into a store, exactly once."""
        return self.id.endswith(STORE_SUFFIX)

    def __str__(self) -> str:
        return f"{self.epoch}/{self.id}"


class SessionClock:
    """The clock of a session, ms; `now` is what it shows. It never falls."""

    __slots__ = ("_advanced_ms", "_sent", "now")

    def __init__(self, now: int, wall_ms: int) -> None:
        """Go on from `now`, the highest value that there is, at `wall_ms`."""
        self.now = now
        self._sent = now  # what the last tick or Init has sent to the ackers
        self._advanced_ms = wall_ms  # when it was moved on last, wall time

    def advance(self, wall_ms: int, *, idle: bool) -> int:
        """Move the clock on and return it.

        `idle`: nothing is pending, so it stands, and no tick carries it.
        """
        if not idle:
            # bounded twice: by the time since the last call, and by what the ackers have, so that a
            # sleeping process makes no root time out
            step_ms = min(STEP_MS_MAX, max(0, wall_ms - self._advanced_ms))
            self.now = min(self.now + step_ms, self._sent + STEP_MS_MAX)
        self._advanced_ms = wall_ms
        return self.now

    def lift(self, now: int) -> None:
        """Go on from the clock that another process of the session sent, if that is higher."""
        self.now = max(self.now, now)
        self.record_sent()

    def record_sent(self) -> None:
        """Record that a tick or an Init with the present clock is sent.

        The next adds at most `STEP_MS_MAX`. Else readings between two ticks
        and a sleep would add up, and a root time out up to 1.5 s late.
        """
        self._sent = self.now


class Answers:
    """Collects the first whole answer of each acker partition to one `Take`.

    Part 0 begins an answer.

    Later ones answer repetitions and contain nothing new.
    """

    __slots__ = ("_asked_by", "_group", "_partitions", "_parts_so_far", "_sources", "_whole_answers")

    def __init__(self, group: str, asked_by: str, partitions: int, sources: Iterable[int]) -> None:
        """Wait for N answers to the `Take` of session `asked_by` that names some sources.

        An answer that accepts without naming them all belongs to an earlier `Take`.
        """
        self._group = group
        self._asked_by = asked_by
        self._partitions = partitions
        self._sources = frozenset(sources)
        # by acker partition: the parts of the answer that is being read, and
        # those of the whole answer
        self._parts_so_far: dict[int, list[Taken]] = {}
        self._whole_answers: dict[int, tuple[Taken, ...]] = {}

    def read(self, partition: int, taken: Taken) -> bool:
        """Add one record of an acker partition.

        Return whether it completes that partition's answer.
        """
        if taken.group != self._group or taken.asked_by != self._asked_by:
            return False  # it answers another session
        if partition in self._whole_answers:
            return False
        if taken.part == 0:  # an answer begins, or is repeated
            self._parts_so_far[partition] = []
        parts = self._parts_so_far.get(partition)
        # The parts 0 and 1 of 3 are here: only part 2 goes on. Any other one
        # is of an answer whose start was not read.
        if parts is None or taken.part != len(parts):
            return False
        parts.append(taken)
        if len(parts) < taken.parts:
            return False
        # one that accepts and does not name all sources answers an earlier
        # `Take` of this session
        answered_sources = {entry.source for part in parts for entry in part.sources}
        if not taken.refused and not self._sources <= answered_sources:
            return False
        self._whole_answers[partition] = tuple(parts)
        return True

    def has(self, partition: int) -> bool:
        """Return whether the answer of an acker partition is complete."""
        return partition in self._whole_answers

    @property
    def missing(self) -> list[int]:
        """The acker partitions whose answer is not complete."""
        partitions = range(self._partitions)
        return [partition for partition in partitions if partition not in self._whole_answers]

    @property
    def owner(self) -> SessionName:
        """The highest session that any answer names."""
        owners = (SessionName(taken.epoch, taken.session) for taken in self._parts())
        return max(owners, default=SessionName(0, ""))

    @property
    def refusals(self) -> dict[int, str]:
        """The reason of each partition that refused."""
        reasons = {partition: parts[0].refused for partition, parts in self._whole_answers.items()}
        return {partition: reason for partition, reason in reasons.items() if reason}

    @property
    def clock(self) -> int:
        """The highest in any answer, ms."""
        return max((taken.clock for taken in self._parts()), default=0)

    @property
    def open(self) -> tuple[SourceRun, ...]:
        """The session's pending roots, ascending."""
        return tuple(sorted(run for taken in self._parts() for run in taken.open))

    def generations(self) -> dict[int, dict[int, int]]:
        """Return by acker partition that has answered the generation of each source that it knows."""
        generations: dict[int, dict[int, int]] = {}
        for partition, parts in self._whole_answers.items():
            generation_by_source: dict[int, int] = {}
            for part in parts:
                for entry in part.sources:
                    generation_by_source[entry.source] = entry.generation
            generations[partition] = generation_by_source
        return generations

    def sources(self) -> dict[int, SourceHistory]:
        """Return each source as the ackers know it, merged from all answers."""
        entries_by_source: dict[int, list[tuple[int, TakenSource]]] = {}
        for partition, parts in self._whole_answers.items():
            for part in parts:
                for entry in part.sources:
                    entries_by_source.setdefault(entry.source, []).append((partition, entry))
        return {source: _history(entries) for source, entries in entries_by_source.items()}

    def _parts(self) -> Iterable[Taken]:
        """Return the parts of all whole answers."""
        return (taken for parts in self._whole_answers.values() for taken in parts)


@dataclass(frozen=True, slots=True)
class SourceHistory:
    """The state of a source in N acker partitions, at the highest
    `generation` that any of them has.

    `from_` is where that generation begins: the lowest position that any of
    them names. `watermarks` has, by acker partition that knows the source,
    its first position that was never initialised.
    """

    generation: int
    topic_id: str
    from_: int
    watermarks: Mapping[int, int]


def _history(entries: Sequence[tuple[int, TakenSource]]) -> SourceHistory:
    """Merge what acker partitions have of one source: pairs of the partition
    and its entry, one at least.
    """
    generation = max(entry.generation for _, entry in entries)
    of_generation = [entry for _, entry in entries if entry.generation == generation]
    return SourceHistory(
        generation=generation,
        topic_id=of_generation[0].topic_id,
        from_=min(entry.from_ for entry in of_generation),
        # one of a lower generation, too: `cursor_of` passes it over
        watermarks={partition: entry.next for partition, entry in entries},
    )
