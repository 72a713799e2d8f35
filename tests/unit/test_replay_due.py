"""What `_ack_due` holds, and the schedule that mirrors it."""

from __future__ import annotations

import json

import pytest

from acker.errors import CodecError
from acker.events import Reason
from acker.identity import Position, Root, Source
from replay.due import (
    HISTORY_MAX,
    Due,
    Loss,
    Progress,
    due_codec,
    extended,
    history_json,
    parse_history,
    parse_root_key,
    root_key,
)
from replay.schedule import Schedule

LOSS = Loss(1, Reason.FAILED, "split", "ValueError", "bad", 1_000, 20, "sentences/0@7")
DUE = Due(65_536, 7, 9_000, "", "g", "sentences", "id", "sentences/0@7", 1, 0, 1_000, (LOSS,))

GOLDEN_DUE = (
    "c301be9d52c7d1ef92cd8080080ed08c010002671273656e74656e6365730469641a73656e74656e6365732f30"
    "40370200d00f0202000a73706c69741456616c75654572726f7206626164d00f281a73656e74656e6365732f30"
    "403700"
)
GOLDEN_PROGRESS = "c3015fde59de82e7cba52206"


def root(number: int) -> Root:
    return Root(Source(65_536), Position(number))


def test_what_is_encoded_is_decoded_again() -> None:
    codec = due_codec()
    for value in (DUE, Progress(17, 3)):
        assert codec.decode(codec.encode(value)) == value


def test_the_bytes_of_version_1_stay_what_they_are() -> None:
    """A published schema is never edited; a change of it is a new version beside this one."""
    codec = due_codec()
    assert codec.encode(DUE).hex() == GOLDEN_DUE
    assert codec.encode(Progress(17, 3)).hex() == GOLDEN_PROGRESS


def test_garbage_does_not_decode() -> None:
    with pytest.raises(CodecError):
        due_codec().decode(due_codec().encode(DUE)[:-1])


def test_a_key_names_its_root() -> None:
    assert parse_root_key(root_key(root(7))) == root(7)
    for key in (None, b"", b"progress", b"x" * 13):
        assert parse_root_key(key) is None


def test_a_history_keeps_the_first_loss_and_the_latest() -> None:
    history: tuple[Loss, ...] = ()
    for attempt in range(1, 41):
        history = extended(history, LOSS._replace(attempt=attempt, message="ü" * 1_000))
    assert len(history) == HISTORY_MAX
    assert [loss.attempt for loss in history] == [1, *range(41 - HISTORY_MAX + 1, 41)]
    assert len(history[-1].message.encode()) == 512
    assert parse_history(history_json(history)) == history


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"{}",
        b"null",
        b"\xff",
        b"[" * 100_000,
        b"[1]",
        json.dumps([LOSS._asdict()] * 17).encode(),
        json.dumps([{**LOSS._asdict(), "reason": "BORED"}]).encode(),
        json.dumps([{**LOSS._asdict(), "attempt": "1"}]).encode(),
        json.dumps([{**LOSS._asdict(), "age_ms": 1e400}]).encode(),
        json.dumps([{**LOSS._asdict(), "message": None}]).encode(),
    ],
)
def test_a_history_that_is_none_of_ours_is_empty(value: bytes | None) -> None:
    assert parse_history(value) == ()


def test_of_what_waits_the_earliest_comes_first_and_equals_in_their_order() -> None:
    """S107, S108, S115"""
    schedule = Schedule()
    for number, due_ms in [(1, 30), (2, 10), (3, 20), (4, 10)]:
        schedule.put(root(number), due_ms, b"")
    assert [entry.root for entry in schedule.due(20, 10)] == [root(2), root(4), root(3)]
    assert [entry.root for entry in schedule.due(20, 2)] == [root(2), root(4)]
    assert schedule.due(9, 10) == []
    assert schedule.next_due_ms == 10


def test_looking_at_what_is_due_changes_nothing() -> None:
    schedule = Schedule()
    schedule.put(root(1), 10, b"v")
    assert schedule.due(10, 1) == schedule.due(10, 1)
    assert (len(schedule), root(1) in schedule) == (1, True)


def test_a_root_waits_once_and_its_last_due_time_counts() -> None:
    """S103, S105"""
    schedule = Schedule()
    schedule.put(root(1), 10, b"old")
    schedule.put(root(1), 50, b"new")
    assert schedule.due(49, 10) == []
    assert [entry.value for entry in schedule.due(50, 10)] == [b"new"]
    schedule.remove(root(1))
    assert (len(schedule), schedule.next_due_ms, schedule.memory_bytes) == (0, None, 0)


def test_removing_what_does_not_wait_does_nothing() -> None:
    """S106"""
    schedule = Schedule()
    schedule.put(root(1), 10, b"")
    schedule.remove(root(1))
    schedule.remove(root(1))
    assert (len(schedule), schedule.due(99, 9)) == (0, [])


def test_what_left_the_schedule_leaves_no_memory_behind() -> None:
    schedule = Schedule()
    for number in range(10_000):
        schedule.put(root(number), 10**9 + number, b"x" * 50)
        schedule.remove(root(number))
    assert schedule.memory_bytes == 0
    assert len(schedule._heap) <= 65
