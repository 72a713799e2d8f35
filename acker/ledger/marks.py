"""Marks: they make a record count once, however often it is written or read.

A *lane* is one writer's sequence of numbered batches: one query of one session. Of one batch it
writes at most one record for each wire block (32,768 positions) of a source. Its mark keeps the
highest number, `seq`, and, for that batch, of which (source, block) pairs the record was applied,
each with its CRC-32. A restart reads contributions again from the safe position on, and for this
it needs the marks *as they were at that position*. So `TrailingMarks` keeps both.

Source: docs/design/protocol.md, section 4, "Exactly once into the acker".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from acker.ledger.cohort import Session


class SessionLane(NamedTuple):
    """A writer: a session, and the name under which it writes."""

    session: Session
    name: str


class Content(NamedTuple):
    """What identifies one record in its lane, and what it contains.

    Attributes:
        seq: the number of its batch; it rises with each batch of the lane.
        block: the number of its wire block, in the source.
        crc: the CRC-32 of its bytes.
    """

    seq: int
    source: int
    block: int
    crc: int


class _MarkedRecord(NamedTuple):
    """A record of ``_ack_ack`` that was marked, and its offset."""

    offset: int
    lane: SessionLane
    content: Content


@dataclass(slots=True)
class LaneMark:
    """The last batch of a lane: its seq, and by (source, block) the CRC-32 of each record applied."""

    seq: int
    applied_crcs: dict[tuple[int, int], int] = field(default_factory=dict)


class Seen(Enum):
    """What the marks show about a record."""

    NEW = auto()
    """It was not applied yet."""
    REPEATED = auto()
    """It was applied before, or is of a batch before the last one of its lane."""
    DIFFERENT = auto()
    """A record with other content was applied in its place."""
    NO_ROOM = auto()
    """Its lane has no mark, and there are too many lanes already."""


class Marks:
    """The marks of one topic of one acker partition."""

    def __init__(self, lanes_max: int) -> None:
        """Begin without a mark; no more than `lanes_max` lanes are kept."""
        self._lanes_max = lanes_max
        self._mark_by_lane: dict[SessionLane, LaneMark] = {}

    def compare_and_mark(self, lane: SessionLane, content: Content) -> Seen:
        """Return whether a record of a lane was applied before; if it is NEW, mark it as applied.

        The mark of a lane is the number of its last batch, and which of that batch's records were
        applied. A record that is not NEW changes no mark.
        """
        mark = self._mark_by_lane.get(lane)
        if mark is None:
            if len(self._mark_by_lane) >= self._lanes_max:
                return Seen.NO_ROOM
            mark = self._mark_by_lane[lane] = LaneMark(content.seq)
        if content.seq < mark.seq:
            return Seen.REPEATED
        if content.seq > mark.seq:  # a batch begins: what the last one applied is not needed any more
            mark.seq, mark.applied_crcs = content.seq, {}
        applied_crc = mark.applied_crcs.get((content.source, content.block))
        if applied_crc is None:
            mark.applied_crcs[content.source, content.block] = content.crc
            return Seen.NEW
        return Seen.REPEATED if applied_crc == content.crc else Seen.DIFFERENT

    def forget(self, session: Session) -> None:
        """Remove the marks of all lanes of a session."""
        for lane in [lane for lane in self._mark_by_lane if lane.session == session]:
            del self._mark_by_lane[lane]

    def sessions(self, group: str) -> set[Session]:
        """Return the sessions of a group that have a mark."""
        return {lane.session for lane in self._mark_by_lane if lane.session.group == group}

    def load(self, lane: SessionLane, mark: LaneMark) -> None:
        """Set the mark of a lane, from State."""
        self._mark_by_lane[lane] = mark

    def items(self) -> Iterator[tuple[SessionLane, LaneMark]]:
        """Return each lane with its mark."""
        return iter(self._mark_by_lane.items())


class TrailingMarks:
    """The marks twice: `latest` is after the last record read, `safe` before the record at the
    safe position.

    The safe position is the first contribution that a restart reads again.
    """

    def __init__(self, lanes_max: int) -> None:
        """Begin without a mark; no more than `lanes_max` lanes are kept."""
        self.latest = Marks(lanes_max)
        self.safe = Marks(lanes_max)
        # the records that are marked in `latest` and not yet in `safe`, by ascending offset
        self._records_not_in_safe: deque[_MarkedRecord] = deque()

    def compare_and_mark(self, offset: int, lane: SessionLane, content: Content) -> Seen:
        """Return whether the record at an offset was applied before; mark one that is NEW.

        A new one is marked as applied in `latest`, and kept for `safe`.
        """
        seen = self.latest.compare_and_mark(lane, content)
        if seen is Seen.NEW:
            # `safe` gets the mark when the safe position has moved behind the record
            self._records_not_in_safe.append(_MarkedRecord(offset, lane, content))
        return seen

    def move_safe_position(self, safe_offset: int) -> None:
        """Move the safe position: marks of the records below it become part of `safe`."""
        while self._records_not_in_safe and self._records_not_in_safe[0].offset < safe_offset:
            _, lane, content = self._records_not_in_safe.popleft()
            self.safe.compare_and_mark(lane, content)

    def forget(self, session: Session) -> None:
        """Remove the marks of all lanes of a session, from `latest` and `safe`."""
        self.latest.forget(session)
        self.safe.forget(session)
        self._records_not_in_safe = deque(
            record for record in self._records_not_in_safe if record.lane.session != session
        )

    def load(self, lane: SessionLane, mark: LaneMark) -> None:
        """Set the mark of a lane at the safe position; `latest` starts with the same."""
        self.safe.load(lane, mark)
        self.latest.load(lane, LaneMark(mark.seq, dict(mark.applied_crcs)))
