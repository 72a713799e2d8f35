"""What marks show of a record, now and at the safe position, against all records written down."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from acker.ledger.cohort import Session
from acker.ledger.marks import Content, LaneMark, Marks, Seen, SessionLane, TrailingMarks

SESSIONS = (Session("g", 1, "a"), Session("g", 2, "b"), Session("h", 1, "a"))
LANES = tuple(SessionLane(session, name) for session in SESSIONS for name in ("q", "r"))
LANES_MAX = 4

Written = tuple[int, SessionLane, Content]
"""A record that was NEW, with its offset."""


def seen_after(records: Iterable[Written], lane: SessionLane, content: Content) -> Seen:
    """Return what a record is after those that were applied: each rule by a look at all of them."""
    records = list(records)
    lanes = {known for _, known, _ in records}
    if lane not in lanes:
        return Seen.NO_ROOM if len(lanes) >= LANES_MAX else Seen.NEW
    contents_of_lane = [known for _, written, known in records if written == lane]
    if content.seq < max(known.seq for known in contents_of_lane):
        return Seen.REPEATED
    contents_alike = [known for known in contents_of_lane if known[:3] == content[:3]]
    if not contents_alike:
        return Seen.NEW
    return Seen.REPEATED if contents_alike[0].crc == content.crc else Seen.DIFFERENT


def marks_of(records: Iterable[Written]) -> dict[SessionLane, tuple[int, dict[tuple[int, int], int]]]:
    """Return of each lane its last batch, and what was applied of it."""
    marks: dict[SessionLane, tuple[int, dict[tuple[int, int], int]]] = {}
    records = list(records)
    for lane in {lane for _, lane, _ in records}:
        contents_of_lane = [content for _, written, content in records if written == lane]
        last_seq = max(content.seq for content in contents_of_lane)
        marks[lane] = (
            last_seq,
            {
                (applied.source, applied.block): applied.crc
                for applied in contents_of_lane
                if applied.seq == last_seq
            },
        )
    return marks


def held(marks: Marks) -> dict[SessionLane, tuple[int, dict[tuple[int, int], int]]]:
    """Return what marks hold."""
    return {lane: (mark.seq, mark.applied_crcs) for lane, mark in marks.items()}


@pytest.mark.parametrize("seed", range(8))
def test_marks_show_what_all_records_would_show_now_and_at_the_safe_position(seed: int) -> None:
    """Several groups, sessions, lanes, sources and blocks; repeated, older and different records; no room.

    The safe position moves on, a session is forgotten, and a restart begins with the safe marks.
    """
    random = Random(seed)
    marks = TrailingMarks(LANES_MAX)
    applied: list[Written] = []
    safe = 0
    for offset in range(300):
        lane = random.choice(LANES)
        content = Content(
            offset // 20 + random.choice([0, 0, 0, 1, -1]), *(random.randrange(2) for _ in "sbc")
        )
        expected = seen_after(applied, lane, content)
        assert marks.compare_and_mark(offset, lane, content) is expected
        if expected is Seen.NEW:
            applied.append((offset, lane, content))
        if random.random() < 0.1:
            safe = max(safe, offset - random.randrange(20))
            marks.move_safe_position(safe)
        if random.random() < 0.03:
            session = random.choice(SESSIONS)
            marks.forget(session)
            applied = [written for written in applied if written[1].session != session]
        below = [written for written in applied if written[0] < safe]
        assert held(marks.latest) == marks_of(applied)
        assert held(marks.safe) == marks_of(below)
        for group in ("g", "h"):
            assert marks.latest.sessions(group) == {
                lane.session for _, lane, _ in applied if lane.session.group == group
            }
        if random.random() < 0.02:
            again = TrailingMarks(LANES_MAX)
            for lane, mark in marks.safe.items():
                again.load(lane, mark)
            marks, applied = again, below


def test_marks_that_were_loaded_are_two_that_go_on_by_themselves() -> None:
    """What is read behind the safe position is not yet part of it."""
    marks, lane = TrailingMarks(LANES_MAX), LANES[0]
    marks.load(lane, LaneMark(3, {(1, 2): 9}))
    assert marks.compare_and_mark(10, lane, Content(3, 1, 2, 9)) is Seen.REPEATED
    assert marks.compare_and_mark(11, lane, Content(3, 1, 3, 8)) is Seen.NEW
    assert held(marks.safe) == {lane: (3, {(1, 2): 9})}
    assert held(marks.latest) == {lane: (3, {(1, 2): 9, (1, 3): 8})}
    marks.move_safe_position(11)
    assert held(marks.safe) == {lane: (3, {(1, 2): 9})}, "the record at the safe position comes behind it"
    marks.move_safe_position(12)
    assert held(marks.safe) == held(marks.latest)
