"""What came too late for a watermark: a note beside the acks, which an acker passes on beside its
verdicts.

Spark drops a row whose window has ended, and the record counts as done. No verdict says so: the
driver writes a note into a header of the records of its batch, and the acker that applies such a
record writes the same note behind its verdicts. No verdict depends on it, and a reader of another
version passes over it.

Source: docs/design/protocol.md, sections 4 and 5.2 ("What is too late").
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, NamedTuple

from acker.errors import CodecError
from acker.wire.codec import Codec, load_schema
from acker.wire.events import SourceRun, Verdicts
from acker.wire.headers import first_value

TOO_LATE: Final = "windhover.too-late"
"""The header, of records of `_ack_ack` and of `_ack_verdict`."""

MOVED_BY_MAX: Final = 10
"""So many runs are named among which the record is that moved the watermark, where it is not known itself."""

NOTHING_DECIDED: Final = Verdicts((), (), ())
"""The value of a record of `_ack_verdict` that has nothing but such a note."""


class Mover(NamedTuple):
    """What moved a watermark: an event time, ms, and the record that has it, or the runs in which it lies."""

    at_ms: int
    runs: tuple[SourceRun, ...]

    @property
    def record(self) -> SourceRun | None:
        """The record, as a run of one position; None: only the runs are known."""
        is_one_record = len(self.runs) == 1 and self.runs[0].end - self.runs[0].start == 1
        return self.runs[0] if is_one_record else None


@dataclass(frozen=True, slots=True)
class TooLate:
    """What a watermark dropped of one batch, as one block of its positions says it.

    See `too_late.avsc`. The fields are the schema's. A batch is number `seq` of its *lane*,
    one writer's sequence.

    Attributes:
        first: whether it is the first block of its batch, whose `rows` count for all blocks.
        wall: when it was noted (wall time), `watermark` what Spark's event time was, both in ms.
        rows: how many rows Spark dropped in the batch, without saying of which roots.
        moved_at: the event time, ms, of the record that moved the watermark.
        moved_by: the runs in which that record lies; empty: nobody knows.
        roots: those of which a tuple was held and came too late.
        batch: all roots of the block that were in the batch.
    """

    group: str
    lane: str
    seq: int
    first: bool
    wall: int
    watermark: int
    rows: int
    moved_at: int
    moved_by: tuple[SourceRun, ...]
    roots: tuple[SourceRun, ...]
    batch: tuple[SourceRun, ...]

    @property
    def mover(self) -> Mover | None:
        """What moved the watermark; None: nobody knows."""
        return Mover(self.moved_at, self.moved_by) if self.moved_by else None

    @property
    def root_count(self) -> int:
        """How many roots it names."""
        return sum(run.end - run.start for run in self.roots)

    @property
    def rows_counted(self) -> int:
        """The rows that this block adds to a sum over all blocks."""
        return self.rows if self.first else 0

    def names(self, source: int, position: int) -> bool:
        """Return whether a tuple of a root came too late."""
        return _holds(self.roots, source, position)

    def may_have_dropped(self, source: int, position: int) -> bool:
        """Return whether a root was in a batch of which rows were dropped."""
        return self.rows > 0 and _holds(self.batch, source, position)


def _holds(runs: Iterable[SourceRun], source: int, position: int) -> bool:
    """Return whether a position of a source is in one of some runs."""
    return any(run.source == source and run.start <= position < run.end for run in runs)


@dataclass(frozen=True, slots=True)
class LateCounts:
    """What came too late of one group, over all batches.

    Attributes:
        roots: how many, of which a tuple was held and came too late.
        rows: how many Spark dropped, and of which nobody knows the records.
        newest_note: the last note that was counted; None: none was.
    """

    roots: int = 0
    rows: int = 0
    newest_note: TooLate | None = None

    def plus(self, note: TooLate) -> LateCounts:
        """Return the counts with those of a note added, which becomes the newest one.

        It is kept without the roots that it names, since these may be many.
        """
        newest_note = replace(note, moved_by=note.moved_by[:MOVED_BY_MAX], roots=(), batch=())
        return LateCounts(self.roots + note.root_count, self.rows + note.rows_counted, newest_note)


@cache
def too_late_codec() -> Codec[TooLate]:
    """Make the codec of the note."""
    return Codec({TooLate: load_schema("acker.wire", "too_late")})


def too_late_header(note: TooLate) -> tuple[str, bytes]:
    """Return the header with a note."""
    return TOO_LATE, too_late_codec().encode(note)


def read_too_late(headers: Iterable[tuple[str, bytes | None]]) -> TooLate | None:
    """Return what the headers of a record say came too late for a watermark.

    None: they have no such note, or one that cannot be read.
    """
    value = first_value(headers, TOO_LATE)
    if value is None:
        return None
    try:
        note = too_late_codec().decode(value)
    except CodecError:
        return None
    # another program may have written it: check what the codec does not
    runs = (*note.moved_by, *note.roots, *note.batch)
    if note.rows < 0 or not all(0 <= run.start <= run.end for run in runs):
        return None
    return note
