"""Verdicts counted by input, reason and cause, and how long acked roots took: for an acker's
metrics.

Whatever fails, the tally stays small: of one input it counts at most `CAUSES_MAX` pairs of
operator and error class one by one, and all others together. It has no message and no key. Of a
root only the place is kept, of the last one that took so long, as an example.

A time is from the first emission of a record to the step that gave the verdict, over all attempts.
When a copy's record was emitted first is in the copy's headers: who acks the copy passes it on, in
a header of the record on ``_ack_ack``. Where an acker has not read it, the time of a copy begins
with its own `Init`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, assert_never

import numpy as np

from acker.identity import I64, Position, Root, Source, input_id_of, is_replay
from acker.kafka.port import Record
from acker.ledger.verdicts import AckedCopies, LossCause, VerdictSet
from acker.wire.causes import EXPLICIT, HELD, error_class
from acker.wire.events import FIRST_EMISSIONS, first_emissions
from acker.wire.lateness import LateCounts, TooLate
from acker.wire.verdict import DONE_VERDICTS, LOST_VERDICTS, Verdict

CAUSES_MAX: Final = 100
"""So many pairs of operator and error class of an input have a count of their own; so many groups
of notes have one, too."""

FIRST_EMISSIONS_MAX: Final = 1_000_000
"""So many copies of a source may wait for their verdict, 16 bytes each.

If there are more, the oldest are forgotten.
"""

PARTS_MAX: Final = 1_000
"""So many headers of a source are kept as they came, some 500 bytes each.

More of them are joined to one.
"""

OTHERS: Final = "(others)"
"""Stands for all that has no count of its own."""

BLOCKED: Final = "BLOCKED"
"""The reason under which roots count that failed only since they wait behind another one (`ordering`)."""

REASONS: Final = (*DONE_VERDICTS, BLOCKED, *LOST_VERDICTS)
"""What roots are counted by: their verdict, or that they were blocked."""

BOUNDS_MS: Final = (
    10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000
)  # fmt: skip
"""Upper bounds of the classes of times; a last class has what took longer."""


class SlowRoot(NamedTuple):
    """A root that was acked, how long it took, and the wall time of its verdict."""

    root: Root
    took_ms: int
    at_ms: int


@dataclass(slots=True)
class InputTally:
    """What was decided about the roots of one input.

    Attributes:
        verdicts: how many roots, by one of `REASONS`.
        failures: how many failed roots, by operator and error class.
        took_counts: how many acked roots took a time of each class; class i is up to
            ``BOUNDS_MS[i]``, and the last one above all bounds.
        took_total_ms: the times of all acked roots together.
        slow_roots: by class, the last root that took such a time, as an example; None: there was
            none.
    """

    verdicts: Counter[str] = field(default_factory=Counter)
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    took_counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_MS) + 1))
    took_total_ms: int = 0
    slow_roots: list[SlowRoot | None] = field(default_factory=lambda: [None] * (len(BOUNDS_MS) + 1))

    def fail(self, operator: str, error: str, count: int) -> None:
        """Count failed roots of one cause; under `OTHERS` if there are too many causes."""
        cause = operator, error_class(error) or EXPLICIT
        if cause not in self.failures and len(self.failures) >= CAUSES_MAX:
            cause = OTHERS, OTHERS
        self.failures[cause] += count

    def ack(self, took_ms: int, count: int, root: Root, now_ms: int) -> None:
        """Count `count` acked roots that all took `took_ms`; `root` is one of them, as an example.

        `now_ms` is wall time.
        """
        time_class = bisect_left(BOUNDS_MS, took_ms)
        self.took_counts[time_class] += count
        self.took_total_ms += took_ms * count
        self.slow_roots[time_class] = SlowRoot(root, took_ms, now_ms)


class _CopyTimes(NamedTuple):
    """Positions of copies of one source, and the wall time of each one's first emission, one for one."""

    positions: I64
    emitted_ms: I64


class EmissionTimes:
    """When the records of copies were emitted first, until the copies are acked.

    Of each source `times_max` times are kept.
    """

    def __init__(self, times_max: int = FIRST_EMISSIONS_MAX) -> None:
        """Begin without a time."""
        self._times_max = times_max
        # by source: as they came, in any order and perhaps twice
        self._parts_by_source: dict[int, list[_CopyTimes]] = {}

    def add(self, source: int, copy_positions: I64, emitted_ms: I64) -> None:
        """Keep the wall times (ms) at which the records of some copies were emitted first.

        ``emitted_ms[i]`` is that of the copy at ``copy_positions[i]``.
        """
        if not len(copy_positions):
            return
        parts = self._parts_by_source.setdefault(source, [])
        parts.append(_CopyTimes(copy_positions, emitted_ms))
        kept_count = sum(len(part.positions) for part in parts)
        # To join the parts sorts them all. So it is done only if there are too many parts, or
        # twice as many times as are kept.
        if len(parts) > PARTS_MAX or kept_count > 2 * self._times_max:
            self._keep_latest(source, *_join_parts(parts))

    def take(self, source: int, copy_positions: I64, default_ms: int) -> I64:
        """Remove and return when the records of some copies were emitted first: wall times in ms,
        one for one.

        `default_ms` stands for a copy of which no time was kept.
        """
        parts = self._parts_by_source.pop(source, [])
        if not parts:
            return np.full(len(copy_positions), default_ms)
        kept_positions, emitted_ms = _join_parts(parts)
        is_untaken = ~np.isin(kept_positions, copy_positions)
        if is_untaken.any():
            self._keep_latest(source, kept_positions[is_untaken], emitted_ms[is_untaken])
        # The row where each position would be, at most the last one. Of kept 3 and 7, the positions
        # 3, 5 and 9 have the rows 0, 1 and 1, and only the first of them was kept.
        rows = np.minimum(np.searchsorted(kept_positions, copy_positions), len(kept_positions) - 1)
        was_kept = kept_positions[rows] == copy_positions
        return np.where(was_kept, emitted_ms[rows], default_ms)

    def _keep_latest(self, source: int, copy_positions: I64, emitted_ms: I64) -> None:
        """Replace the times of a source by these, of which the last `limit` are kept."""
        kept = _CopyTimes(copy_positions[-self._times_max :], emitted_ms[-self._times_max :])
        self._parts_by_source[source] = [kept]


def _join_parts(parts: Sequence[_CopyTimes]) -> _CopyTimes:
    """Join parts to ascending, distinct positions.

    Of a position that comes twice the first time counts.
    """
    all_positions = np.concatenate([part.positions for part in parts])
    all_emitted_ms = np.concatenate([part.emitted_ms for part in parts])
    positions, first_rows = np.unique(all_positions, return_index=True)
    return _CopyTimes(positions, all_emitted_ms[first_rows])


class VerdictTally:
    """The tallies of all inputs, by their ids.

    `too_late` has what a watermark dropped, by group.
    """

    def __init__(self) -> None:
        """Begin without a verdict."""
        self.inputs: dict[int, InputTally] = {}
        self.too_late: dict[str, LateCounts] = {}
        self._emission_times = EmissionTimes()

    def record_headers(self, records: Sequence[Record]) -> None:
        """Keep from headers of ``_ack_ack`` when the records of copies were emitted first.

        It is called before the records are applied, so that the verdicts of this step have their
        times.
        """
        for record in records:
            for name, value in record.headers:
                emitted = first_emissions(value) if name == FIRST_EMISSIONS else None
                if emitted is not None and is_replay(emitted.source):
                    self._emission_times.add(emitted.source, emitted.positions, emitted.numbers)

    def add(self, settled: Sequence[VerdictSet], now_ms: int) -> None:
        """Count the verdicts of a step by input, and how long acked roots took; `now_ms` is wall
        time.
        """
        for verdicts in settled:
            for copies in verdicts.acked_copies:
                self._add_copies(copies, now_ms)
            for acked in verdicts.acked_roots:
                tally = self._tally_of(acked.source)
                tally.verdicts[Verdict.ACKED] += len(acked.indices)
                took_ms = max(0, now_ms - acked.emission.wall_ms)
                first_position = acked.start + int(acked.indices[0])
                first_root = Root(Source(acked.source), Position(first_position))
                # they were emitted together, so all took the same time; the first is the example
                tally.ack(took_ms, len(acked.indices), first_root, now_ms)
            for run in verdicts.absent.runs():
                self._tally_of(run.source).verdicts[Verdict.ABSENT] += run.end - run.start
            for cause, source, count in verdicts.lost_counts():
                self._add_lost(cause, source, count)

    def _add_lost(self, cause: LossCause, source: int, count: int) -> None:
        """Count lost roots of one cause at the input of their source."""
        tally = self._tally_of(source)
        if cause.error == HELD:  # they only waited behind an earlier record
            tally.verdicts[BLOCKED] += count
            return
        tally.verdicts[cause.reason] += count
        match cause.reason:
            case Verdict.FAILED:
                tally.fail(cause.operator, cause.error, count)
            case Verdict.TIMED_OUT | Verdict.ABANDONED:
                pass  # nobody failed them
            case _:
                assert_never(cause.reason)

    def add_too_late(self, notes: Sequence[TooLate]) -> None:
        """Count what steps noted of a watermark.

        Groups beyond `CAUSES_MAX` count together, as `OTHERS`.
        """
        for note in notes:
            has_room = note.group in self.too_late or len(self.too_late) < CAUSES_MAX
            group = note.group if has_room else OTHERS
            self.too_late[group] = self.too_late.get(group, LateCounts()).plus(note)

    def _add_copies(self, copies: AckedCopies, now_ms: int) -> None:
        """Count acked copies, and how long it took since their records were emitted first."""
        tally = self._tally_of(copies.source)
        tally.verdicts[Verdict.ACKED] += len(copies.positions)
        # the wall time of the first emission of each copy's record; where no header said it, of the
        # copy's own emission
        copy_emitted_ms = copies.emission.wall_ms
        emitted_ms = self._emission_times.take(copies.source, copies.positions, copy_emitted_ms)
        # records of one batch were emitted at one time, so there are few different times
        for batch_ms in np.unique(emitted_ms).tolist():
            rows = np.flatnonzero(emitted_ms == batch_ms)
            first_position = int(copies.positions[rows[0]])
            root = Root(Source(copies.source), Position(first_position))
            tally.ack(max(0, now_ms - batch_ms), len(rows), root, now_ms)

    def copy(self) -> VerdictTally:
        """Return a copy that later verdicts do not change."""
        copied = VerdictTally()
        for input_id, tally in self.inputs.items():
            copied.inputs[input_id] = InputTally(
                verdicts=Counter(tally.verdicts),
                failures=Counter(tally.failures),
                took_counts=list(tally.took_counts),
                took_total_ms=tally.took_total_ms,
                slow_roots=list(tally.slow_roots),
            )
        copied.too_late = dict(self.too_late)
        return copied

    def _tally_of(self, source: int) -> InputTally:
        """Return the tally of a source's input; begin one if there is none."""
        return self.inputs.setdefault(input_id_of(source), InputTally())
