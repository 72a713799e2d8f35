"""A session: its name, its clock, and what N acker partitions answer to its question for the group
(`Take`).

The session's ticks carry its clock to the ackers. The clock moves only when the process reads it,
and by at most a second, so no root times out while the process sleeps. It does not move while the
process has no root pending, nor jump to wall time afterwards: another process of the session may
have roots pending, and this clock must not be ahead of that one's (see
`spout.group.running_session`).

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

    __slots__ = ("_advanced_ms", "_last_sent", "now")

    def __init__(self, now: int, wall_ms: int) -> None:
        """Go on from `now`, the highest value that there is, at `wall_ms`."""
        self.now = now
        self._last_sent = now  # what it showed when the last tick or Init was sent to the ackers
        self._advanced_ms = wall_ms  # when it was moved on last, wall time

    def advance(self, wall_ms: int, *, idle: bool) -> int:
        """Move the clock on to a wall time, by a second at most, and return what it shows.

        `idle`: nothing is pending, so it stands, and no tick carries it.
        """
        if not idle:
            # bounded twice: by the time since the last call, and by what the ackers have, so that a
            # sleeping process makes no root time out
            step_ms = min(STEP_MS_MAX, max(0, wall_ms - self._advanced_ms))
            self.now = min(self.now + step_ms, self._last_sent + STEP_MS_MAX)
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
        self._last_sent = self.now


class Answers:
    """Collects the first whole answer of each acker partition to one `Take`.

    An answer has several *parts*, each a record (`Taken`); part 0 begins it. Later answers of a
    partition answer repetitions of the `Take` and contain nothing new.
    """

    __slots__ = ("_asked_by", "_group", "_partitions", "_parts_so_far", "_sources", "_whole_answers")

    def __init__(self, group: str, asked_by: str, partitions: int, sources: Iterable[int]) -> None:
        """Wait for the answers of all acker partitions, `partitions`, to the `Take` of a session.

        `asked_by` is the session's id. An answer that accepts without naming all `sources` belongs
        to an earlier `Take`.
        """
        self._group = group
        self._asked_by = asked_by
        self._partitions = partitions
        self._sources = frozenset(sources)
        # by acker partition: the parts of the answer that is being read, and
        # those of the whole answer
        self._parts_so_far: dict[int, list[Taken]] = {}
        self._whole_answers: dict[int, tuple[Taken, ...]] = {}

    def add_part(self, partition: int, taken: Taken) -> bool:
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

    def is_complete(self, partition: int) -> bool:
        """Return whether the answer of an acker partition is complete."""
        return partition in self._whole_answers

    @property
    def missing(self) -> list[int]:
        """The acker partitions whose answer is not complete."""
        partitions = range(self._partitions)
        return [partition for partition in partitions if partition not in self._whole_answers]

    @property
    def owner(self) -> SessionName:
        """The highest session that any answer names; epoch 0 and no id: none is named."""
        owners = (SessionName(taken.epoch, taken.session) for taken in self._all_parts())
        return max(owners, default=SessionName(0, ""))

    @property
    def refusals(self) -> dict[int, str]:
        """By acker partition that refused, the reason."""
        reasons: dict[int, str] = {}
        for partition, parts in self._whole_answers.items():
            if parts[0].refused:
                reasons[partition] = parts[0].refused
        return reasons

    @property
    def highest_clock(self) -> int:
        """The highest clock in any answer, ms; 0: there is no answer."""
        return max((taken.clock for taken in self._all_parts()), default=0)

    @property
    def pending_runs(self) -> tuple[SourceRun, ...]:
        """The session's pending roots, ascending."""
        return tuple(sorted(run for taken in self._all_parts() for run in taken.open))

    def generations(self) -> dict[int, dict[int, int]]:
        """Return by acker partition that has answered, then by source, the generation that it
        knows.
        """
        generations: dict[int, dict[int, int]] = {}
        for partition, parts in self._whole_answers.items():
            generation_by_source: dict[int, int] = {}
            for part in parts:
                for entry in part.sources:
                    generation_by_source[entry.source] = entry.generation
            generations[partition] = generation_by_source
        return generations

    def sources(self) -> dict[int, SourceHistory]:
        """Return by source what the ackers know of it, merged from all answers."""
        answers_by_source: dict[int, list[_SourceAnswer]] = {}
        for partition, parts in self._whole_answers.items():
            for part in parts:
                for entry in part.sources:
                    answer = _SourceAnswer(partition, entry)
                    answers_by_source.setdefault(entry.source, []).append(answer)
        return {source: _merged_history(answers) for source, answers in answers_by_source.items()}

    def _all_parts(self) -> Iterable[Taken]:
        """Return the parts of all whole answers."""
        return (taken for parts in self._whole_answers.values() for taken in parts)


@dataclass(frozen=True, slots=True)
class SourceHistory:
    """The state of a source in N acker partitions, at the highest
    `generation` that any of them has.

    Attributes:
        topic_id: Kafka's id of its topic, as any of them has it.
        from_: where that generation begins: the lowest position that any of them names.
        watermarks: by acker partition that knows the source, its first position that was never
            initialised.
    """

    generation: int
    topic_id: str
    from_: int
    watermarks: Mapping[int, int]


class _SourceAnswer(NamedTuple):
    """What an acker partition has of one source."""

    partition: int
    entry: TakenSource


def _merged_history(answers: Sequence[_SourceAnswer]) -> SourceHistory:
    """Merge what acker partitions, one at least, have of one source."""
    generation = max(answer.entry.generation for answer in answers)
    # acker partitions of a lower generation do not count: they have nothing of the highest one
    entries = [answer.entry for answer in answers if answer.entry.generation == generation]
    return SourceHistory(
        generation=generation,
        topic_id=entries[0].topic_id,
        from_=min(entry.from_ for entry in entries),
        # one of a lower generation, too: `cursor_of` passes it over
        watermarks={answer.partition: answer.entry.next for answer in answers},
    )
