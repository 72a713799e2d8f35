"""The verdicts of one partition that were read and are not yet taken over into `_ack_due`.

A verdict record may contain more lost roots than one transaction should. So a batch may end in the middle of
a record, and `Progress` has the place. Records stay here until `advance` is called after a commit.

Source: docs/design/protocol.md, section 5.4.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from acker.wire.events import Lost, Verdicts, positions
from replay.records.due import Progress


class LostRoot(NamedTuple):
    """One lost root: its position, and the entry of the verdict record that it shares with others."""

    lost: Lost
    position: int


class Batch(NamedTuple):
    """Lost roots in the order of the verdicts, and the progress once they are taken over."""

    roots: Sequence[LostRoot]
    progress: Progress


@dataclass(frozen=True, slots=True)
class _Buffered:
    offset: int
    lost: tuple[Lost, ...]

    def roots(self) -> Iterator[LostRoot]:
        for lost in self.lost:
            for position in positions(lost.positions).tolist():
                yield LostRoot(lost, position)

    @property
    def count(self) -> int:
        return sum(len(lost.positions) // 8 for lost in self.lost)


class Intake:
    """A queue of verdict records from which single roots are taken."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.read_to = progress.next
        self._records: deque[_Buffered] = deque()

    def __len__(self) -> int:
        return len(self._records)

    def offer(self, offset: int, verdicts: Verdicts) -> None:
        """Add the record that was read at an offset; offsets must ascend."""
        if verdicts.lost:
            self._records.append(_Buffered(offset, verdicts.lost))

    def passed(self, position: int) -> None:
        """Record that everything below an offset of the log was read."""
        self.read_to = max(self.read_to, position)

    def peek(self, limit: int) -> Batch:
        """Return up to `limit` roots, and the progress once they are taken over; remove nothing."""
        roots: list[LostRoot] = []
        skip = self.progress.skip
        for record in self._records:
            room = limit - len(roots)
            roots += islice(record.roots(), skip, skip + room)
            if record.count - skip > room:
                return Batch(roots, Progress(record.offset, skip + room))
            skip = 0
        if self.read_to == self.progress.next:
            return Batch(roots, self.progress)  # a record that is half taken over may not be read again yet
        return Batch(roots, Progress(self.read_to, 0))

    def advance(self, progress: Progress) -> None:
        """Set the progress that was committed, and remove the records below it."""
        self.progress = progress
        while self._records and self._records[0].offset < progress.next:
            self._records.popleft()
