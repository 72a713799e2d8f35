"""The holes in what is known: each is a row of the table `unknown`; pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from acker.kafka.port import DamagedRun, Record, TopicPartition
from acker.listing import and_more
from spout.picture.database import Row

HOLES_MAX: Final = 1_000
"""So many records that cannot be read have a row of their own; the others are one row together."""


class Hole(NamedTuple):
    """Something that is not known: a row of `unknown`.

    Attributes:
        what: the table, or the column, of which it is missing.
        why: why it is not known, and what to do.
        topic: where it is; None: everywhere. Likewise `partition`, and `offset` up to `end_offset`.
    """

    what: str
    why: str
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    end_offset: int | None = None


class Holes:
    """What is not known.

    A record that cannot be read will never be readable, so its row stays. A topic that is missing,
    or a broker that is away, may be there at the next reading: `begin_reading` forgets those.
    """

    def __init__(self) -> None:
        self._of_reading: list[Hole] = []
        # by the place of what cannot be read
        self._unreadable: dict[str, Hole] = {}
        self._unlisted_count = 0

    def begin_reading(self) -> None:
        """Forget what was not known at the last reading, but keep records that cannot be read."""
        self._of_reading = []

    def note(self, hole: Hole) -> None:
        """Record a hole of this reading."""
        self._of_reading.append(hole)

    def note_record(self, what: str, record: Record, why: str) -> None:
        """Record that a record cannot be read; `what` are the tables that lack it."""
        end_offset = record.offset + 1
        hole = Hole(what, why, record.topic, record.partition, record.offset, end_offset)
        self._note_unreadable(record.place, hole)

    def note_passed_over(self, what: str, run: DamagedRun) -> None:
        """Record offsets that no reader could read; `what` are the tables that lack them."""
        self._note_unreadable(str(run), Hole(what, run.why, *run[:4]))

    def note_deleted(self, what: str, place: TopicPartition, offset: int, end_offset: int) -> None:
        """Record offsets that were deleted before they were read, while the log was followed."""
        why = "these records were deleted before they were read"
        self._note_unreadable(f"{place}@{offset}", Hole(what, why, *place, offset, end_offset))

    def _note_unreadable(self, place: str, hole: Hole) -> None:
        """Keep a hole in a log for all readings; of too many only how many they are."""
        if place not in self._unreadable and len(self._unreadable) >= HOLES_MAX:
            self._unlisted_count += 1
            return
        self._unreadable[place] = hole

    def rows(self) -> list[Row]:
        """Return the rows of `unknown`."""
        holes = [*self._of_reading, *self._unreadable.values()]
        if self._unlisted_count:
            why = and_more(self._unlisted_count, "records that cannot be read")
            holes.append(Hole("all tables", why))
        return [hole._asdict() for hole in holes]
