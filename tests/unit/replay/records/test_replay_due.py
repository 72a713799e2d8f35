"""What `_ack_due` holds."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from acker.errors import CodecError
from acker.identity import Position, Root, Source
from acker.kafka.port import Record, record_bytes
from acker.wire.verdict import Verdict
from replay.records.copies import build_copy
from replay.records.due import (
    HISTORY_BYTES_MAX,
    HISTORY_MAX,
    Due,
    Loss,
    Progress,
    append_loss,
    due_codec,
    history_json,
    left_out_of,
    parse_history,
    parse_root_key,
    root_key,
)
from replay.worker.outcome import OUR_HEADERS_BYTES_MAX

LOSS = Loss(1, Verdict.FAILED, "split", "ValueError", "bad", 1_000, 20, "sentences/0@7")
DUE = Due(65_536, 7, 9_000, "", "g", "sentences", "id", "sentences/0@7", 1, 0, 1_000, (LOSS,), 3, 2)

GOLDEN_DUE = (
    "c301be9d52c7d1ef92cd8080080ed08c010002671273656e74656e6365730469641a73656e74656e6365732f30"
    "40370200d00f0202000a73706c69741456616c75654572726f7206626164d00f281a73656e74656e6365732f30"
    "403700"
)
GOLDEN_DUE_2 = (
    "c301af06c45bd9905dba8080080ed08c010002671273656e74656e6365730469641a73656e74656e6365732f30"
    "4037020006d00f0202000a73706c69741456616c75654572726f7206626164d00f281a73656e74656e6365732f"
    "30403700"
)
GOLDEN_DUE_3 = (
    "c301f28c2f34cdc463c58080080ed08c010002671273656e74656e6365730469641a73656e74656e6365732f30"
    "403702000604d00f0202000a73706c69741456616c75654572726f7206626164d00f281a73656e74656e636573"
    "2f30403700"
)
GOLDEN_DUE_4 = (
    "c30101fd5d14bc4aac658080080ed08c010002671273656e74656e6365730469641a73656e74656e6365732f3040370200"
    "060401d00f0202000a73706c69741456616c75654572726f7206626164d00f281a73656e74656e6365732f30403700"
)
GOLDEN_PROGRESS = "c3015fde59de82e7cba52206"


def root(number: int) -> Root:
    return Root(Source(65_536), Position(number))


def test_what_is_encoded_is_decoded_again() -> None:
    codec = due_codec()
    for value in (DUE, Progress(17, 3)):
        assert codec.decode(codec.encode(value)) == value


def test_the_bytes_of_each_version_stay_what_they_are() -> None:
    """A published schema is never edited; a change of it is a new version beside the others."""
    codec = due_codec()
    assert codec.encode(DUE).hex() == GOLDEN_DUE_4
    assert codec.encode(Progress(17, 3)).hex() == GOLDEN_PROGRESS


def test_what_workers_of_former_versions_wrote_is_read() -> None:
    """The first counted no timeouts, the second not what was held; none of them has a leader epoch."""
    assert due_codec().decode(bytes.fromhex(GOLDEN_DUE)) == replace(DUE, timed_out=0, held=0)
    assert due_codec().decode(bytes.fromhex(GOLDEN_DUE_2)) == replace(DUE, held=0)
    assert due_codec().decode(bytes.fromhex(GOLDEN_DUE_3)) == DUE


def test_garbage_does_not_decode() -> None:
    with pytest.raises(CodecError):
        due_codec().decode(due_codec().encode(DUE)[:-1])


def test_a_key_names_its_root() -> None:
    assert parse_root_key(root_key(root(7))) == root(7)
    for key in (None, b"", b"progress", b"x" * 13):
        assert parse_root_key(key) is None


def lost(times: int, message: str = "bad") -> tuple[Loss, ...]:
    """Return the history of a root that was lost so often."""
    history: tuple[Loss, ...] = ()
    for attempt in range(1, times + 1):
        history = append_loss(history, LOSS._replace(attempt=attempt, message=message, emitted_ms=attempt))
    return history


def test_a_history_tells_of_a_hundred_losses_each() -> None:
    history = lost(100, "a cause of some hundred characters " * 3)
    assert [loss.attempt for loss in history] == [*range(1, 101)]
    assert left_out_of(history) == 0


@pytest.mark.parametrize("times", [101, 102, 1_000])
def test_a_history_that_leaves_losses_out_keeps_the_first_and_the_latest_and_says_how_many(
    times: int,
) -> None:
    history = lost(times)
    kept = HISTORY_MAX - 2
    assert [loss.attempt for loss in history] == [1, times - kept, *range(times - kept + 1, times + 1)]
    assert (history[1].error, history[1].message) == (
        "LEFT_OUT",
        f"losses left out here: {times - kept - 1}",
    )
    assert (history[1].emitted_ms, history[1].root) == (times - kept, "")
    assert left_out_of(history) == times - len(history) + 1
    assert parse_history(history_json(history)) == history
    assert due_codec().decode(due_codec().encode(replace(DUE, history=history))) == replace(
        DUE, history=history
    )


def test_long_causes_shorten_a_history_and_are_cut() -> None:
    history = lost(100, "ü" * 1_000)
    assert len(history[-1].message.encode()) == 512
    assert left_out_of(history) == 101 - len(history) > 0
    assert 40_000 < sum(len(text.encode()) for loss in history for text in loss[2:5]) <= HISTORY_BYTES_MAX
    assert parse_history(history_json(history)) == history


def test_a_cause_that_says_what_an_entry_for_others_says_is_a_loss_all_the_same() -> None:
    history = append_loss((), LOSS._replace(error="LEFT_OUT", message="losses left out here: 7"))
    assert left_out_of(history) == 0


def test_a_copy_is_never_larger_than_its_record_by_more_than_is_reckoned_with() -> None:
    worst = LOSS._replace(
        operator="\x01" * 256, error="\x01" * 256, message="\x01" * 512, root=f"{'t' * 249}/65535@{10**15}"
    )
    history: tuple[Loss, ...] = ()
    for attempt in range(1, 200):
        history = append_loss(history, worst._replace(attempt=attempt, emitted_ms=2**52, age_ms=2**52))
    record = Record("t", 0, 7, None, b"x", (), 77)
    copy = build_copy(replace(DUE, history=history, origin=worst.root), record, "t.replay")
    assert record_bytes(copy) - record_bytes(record) <= OUR_HEADERS_BYTES_MAX
    copy = build_copy(replace(DUE, history=lost(100, "\x01" * 440)), record, "t.replay")
    assert record_bytes(copy) - record_bytes(record) <= OUR_HEADERS_BYTES_MAX


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
        json.dumps([LOSS._asdict()] * (HISTORY_MAX + 1)).encode(),
        json.dumps([{**LOSS._asdict(), "reason": "BORED"}]).encode(),
        json.dumps([{**LOSS._asdict(), "attempt": "1"}]).encode(),
        json.dumps([{**LOSS._asdict(), "age_ms": 1e400}]).encode(),
        json.dumps([{**LOSS._asdict(), "message": None}]).encode(),
    ],
)
def test_a_history_that_is_none_of_ours_is_empty(value: bytes | None) -> None:
    assert parse_history(value) == ()


def test_losses_in_a_row_that_were_held_are_one_entry_of_a_history() -> None:
    """A head that waits for days must not push out what happened to those behind it."""
    held = LOSS._replace(error="HELD", message="waits for sentences/0@3")
    history = append_loss((), LOSS)
    for attempt in range(2, 100):
        history = append_loss(history, held._replace(attempt=attempt))
    history = append_loss(history, LOSS._replace(attempt=100))
    assert [(loss.attempt, loss.error) for loss in history] == [
        (1, "ValueError"),
        (99, "HELD"),
        (100, "ValueError"),
    ]


def test_a_glance_tells_root_and_due_time_of_all_versions() -> None:
    far = replace(DUE, source=2**31 - 1, position=2**62, due_ms=2**45)
    for value in (due_codec().encode(DUE), bytes.fromhex(GOLDEN_DUE_2), bytes.fromhex(GOLDEN_DUE)):
        assert due_codec().read_root_and_due_ms(value) == (root(7), 9_000)
    far_root = Root(Source(far.source), Position(far.position))
    assert due_codec().read_root_and_due_ms(due_codec().encode(far)) == (far_root, far.due_ms)


@pytest.mark.parametrize("value", [b"", b"x" * 40, *map(bytes.fromhex, (GOLDEN_PROGRESS, GOLDEN_DUE[:24]))])
def test_a_glance_at_something_else_is_refused(value: bytes) -> None:
    with pytest.raises(CodecError):
        due_codec().read_root_and_due_ms(value)
