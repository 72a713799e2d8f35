"""What `_ack_due` may hold, and what is impossible in it; who reads it tells the one from the other."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace

import pytest

from acker.errors import CodecError, UnknownVersion
from acker.identity import INPUT_ID_MAX, Position, Root, Source, source_of
from acker.kafka.port import Record
from acker.wire.causes import HELD
from acker.wire.verdict import Verdict
from replay.policy.disposition import DeadReason
from replay.records.due import (
    HISTORY_BYTES_MAX,
    HISTORY_MAX,
    PROGRESS_KEY,
    Aside,
    Due,
    DueCodec,
    Loss,
    Pause,
    Progress,
    RefusedRoot,
    Stored,
    append_loss,
    due_codec,
    flaw_of,
    history_json,
    left_out_entry,
    left_out_of,
    parse_history,
    parse_root_key,
    pause_key,
    refused_entry,
    root_key,
)
from replay.records.due_fold import whole_entry

LOSS = Loss(1, Verdict.FAILED, "split", "ValueError", "bad", 1_000, 20, "sentences/0@7")
DUE = Due(65_536, 7, 9_000, "", "g", "sentences", "id", "sentences/0@7", 1, 0, 1_000, (LOSS,), 3, 2)
KEY = root_key(DUE)
OF_DUE = {field.name: getattr(DUE, field.name) for field in fields(Due)}
ASIDE = Aside(**OF_DUE, error="it cannot go on")
REFUSED_COPY = RefusedRoot(**OF_DUE, copy_why="too large")
DEAD = {**OF_DUE, "dead": "REFUSED"}
REFUSED_LETTER = RefusedRoot(**DEAD, copy_why="too large", letter_why="no such topic")
NEWER = b"\xc3\x01" + b"\x07" * 8
"""What a version writes that is newer than this one: the magic, and a fingerprint that nobody knows."""


@pytest.mark.parametrize("value", [DUE, ASIDE, REFUSED_COPY, REFUSED_LETTER], ids=type)
@pytest.mark.parametrize("position", [0, 1, 7])
@pytest.mark.parametrize("source", [65_536, 65_537, source_of(INPUT_ID_MAX, 5, replay=True)])
def test_a_root_under_its_own_key_is_sound(source: int, position: int, value: Due) -> None:
    value = replace(value, source=source, position=position)
    key = root_key(value)
    assert flaw_of(key, value) == ""
    record = Record("_ack_due", 0, 1, key, due_codec().encode(value))
    assert whole_entry(record, parse_root_key(key)) == value
    root = Root(Source(source), Position(position))
    assert due_codec().read_root_and_due_ms(record.value or b"") == (root, 9_000)


@pytest.mark.parametrize("dead", ["", *DeadReason])
def test_each_reason_to_die_is_one(dead: str) -> None:
    assert flaw_of(KEY, replace(DUE, dead=dead)) == ""


IMPOSSIBLE: list[tuple[bytes | None, Stored, str]] = [
    (None, DUE, "the key is not that of the value"),
    (PROGRESS_KEY, DUE, "the key is not that of the value"),
    (root_key(replace(DUE, position=8)), DUE, "the key is not that of the value"),
    (root_key(replace(DUE, source=65_537)), DUE, "the key is not that of the value"),
    (root_key(replace(DUE, position=-1)), replace(DUE, position=-1), "it names no root"),
    (root_key(replace(DUE, source=-1)), replace(DUE, source=-1), "it names no root"),
    (KEY, replace(DUE, dead="BORED" * 9), "'BOREDBOREDBOREDBORED' is no reason to die"),
    (KEY, replace(ASIDE, history=()), "it has no loss"),
    (KEY, replace(REFUSED_COPY, copy_why="", letter_why="it has this"), "it does not say what was refused"),
    (KEY, replace(REFUSED_LETTER, letter_why=""), "it does not say what was refused"),
    (PROGRESS_KEY, Progress(-1, 0), "it tells no progress"),
    (PROGRESS_KEY, Progress(0, -1), "it tells no progress"),
    (b"owner", Progress(0, 0), "it tells no progress"),
    (None, Progress(5, 5), "it tells no progress"),
    (pause_key(2), Pause(1, 5, "why"), "it tells no pause"),
    (b"pause/", Pause(1, 5, "why"), "it tells no pause"),
    (None, Pause(1, 5, "why"), "it tells no pause"),
]


@pytest.mark.parametrize(("key", "value", "flaw"), IMPOSSIBLE)
def test_a_value_that_cannot_be_under_its_key_is_named_and_passed_over(
    key: bytes | None, value: Stored, flaw: str
) -> None:
    assert flaw_of(key, value) == flaw
    record = Record("_ack_due", 0, 1, key, due_codec().encode(value))
    with pytest.raises(CodecError, match=re.escape(flaw) if isinstance(value, Due) else "no root that waits"):
        whole_entry(record, parse_root_key(key))


@pytest.mark.parametrize("value", [Progress(0, 0), Progress(0, 1), Progress(1, 0), Progress(9, 4)])
def test_progress_is_sound_from_the_first_record_on(value: Progress) -> None:
    assert flaw_of(PROGRESS_KEY, value) == ""


@pytest.mark.parametrize("input_id", [0, 1, 32_767])
def test_a_pause_stands_under_the_id_of_its_input(input_id: int) -> None:
    assert pause_key(input_id) == f"pause/{input_id}".encode()
    assert flaw_of(pause_key(input_id), Pause(input_id, 5, "why")) == ""


def test_a_root_without_a_loss_is_sound_unless_it_was_put_aside() -> None:
    assert flaw_of(KEY, replace(DUE, history=())) == ""
    assert flaw_of(KEY, replace(REFUSED_COPY, history=())) == ""


def test_what_a_newer_worker_wrote_is_told_from_garbage() -> None:
    record = Record("_ack_due", 0, 1, KEY, NEWER)
    with pytest.raises(UnknownVersion):
        whole_entry(record, parse_root_key(KEY))
    with pytest.raises(UnknownVersion):
        due_codec().read_root_and_due_ms(NEWER)


@pytest.mark.parametrize("value", [Progress(17, 3), Pause(1, 5, "why")])
def test_a_glance_at_what_is_no_root_says_so(value: Stored) -> None:
    with pytest.raises(CodecError, match="it tells of no root that waits"):
        due_codec().read_root_and_due_ms(due_codec().encode(value))


def test_only_roots_that_were_put_aside_are_called_so() -> None:
    codec = DueCodec()
    for value in (ASIDE, REFUSED_COPY, REFUSED_LETTER):
        assert codec.is_aside(codec.encode(value))
    for other in (DUE, Progress(0, 0), Pause(1, 5, "why")):
        assert not codec.is_aside(codec.encode(other))
    assert not codec.is_aside(None)
    assert not codec.is_aside(b"")


@pytest.mark.parametrize("number", [0, 1, 2, 63, 64, 2**31, 2**62, 2**63 - 1])
def test_a_glance_reads_each_long_that_avro_writes(number: int) -> None:
    codec = due_codec()
    for due_ms in (number, -number, -number - 1):
        assert codec.read_root_and_due_ms(codec.encode(replace(DUE, due_ms=due_ms))) == ((65_536, 7), due_ms)


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x80", id="cut off"),
        pytest.param(b"\xff" * 10 + b"\x01", id="eleven bytes"),
        pytest.param(b"\xff" * 9 + b"\x02", id="65 bits"),
        pytest.param(b"\x80" * 9 + b"\x02", id="the 65th bit alone"),
        pytest.param(b"\x80" * 9 + b"\x04", id="the 66th bit alone"),
    ],
)
def test_a_glance_at_a_number_that_is_no_long_is_refused(number: bytes) -> None:
    header = due_codec().encode(DUE)[:10]
    with pytest.raises(CodecError, match="does not end, or has more than 64 bits"):
        due_codec().read_root_and_due_ms(header + number)


def test_the_largest_number_of_64_bits_is_read() -> None:
    header = due_codec().encode(DUE)[:10]
    root, due_ms = due_codec().read_root_and_due_ms(header + (b"\xff" * 9 + b"\x01") * 3)
    assert (root.source, root.position, due_ms) == (-(2**63), -(2**63), -(2**63))


def test_a_refused_root_keeps_what_it_was_and_is_tried_again_at_its_time() -> None:
    whole = replace(DUE, stack="Traceback", leader_epoch=4)
    entry = refused_entry(whole, 12_000, copy_why="c" * 600, letter_why="l" * 600)
    assert entry == RefusedRoot(
        **{**OF_DUE, "due_ms": 12_000, "stack": "Traceback", "leader_epoch": 4},
        copy_why="c" * 512,
        letter_why="l" * 512,
    )
    assert entry.stack == "Traceback"
    assert refused_entry(whole, 12_000, copy_why="no").letter_why == ""


def test_a_root_was_blocked_if_its_last_loss_says_so() -> None:
    held = LOSS._replace(error=HELD)
    assert not replace(DUE, history=()).last_was_blocked
    assert not replace(DUE, history=(held, LOSS)).last_was_blocked
    assert replace(DUE, history=(LOSS, held)).last_was_blocked


# -- histories


def losses(count: int, message: str = "bad") -> tuple[Loss, ...]:
    return tuple(LOSS._replace(attempt=attempt, message=message) for attempt in range(1, count + 1))


def text_bytes(history: tuple[Loss, ...]) -> int:
    return sum(
        len(text.encode())
        for loss in history
        for text in (loss.operator, loss.error, loss.message, loss.root)
    )


@pytest.mark.parametrize("count", [30, 31, 32, 60, 100])
def test_a_history_is_whole_as_long_as_its_texts_have_room_and_then_leaves_out_no_more_than_it_must(
    count: int,
) -> None:
    """Up to the last byte; the entry that says how many were left out has its own room of 1,536 bytes."""
    history = losses(count)
    room = HISTORY_BYTES_MAX - text_bytes(history)
    padded: list[Loss] = []
    for loss in history:
        more = min(512 - len(loss.message), room)
        padded.append(loss._replace(message=loss.message + "x" * more))
        room -= more
    full = append_loss(tuple(padded[:-1]), padded[-1])
    if room:  # so few entries always fit
        assert full == tuple(padded)
        return
    assert text_bytes(full) == HISTORY_BYTES_MAX
    assert full == tuple(padded)
    first_small = next(number for number, loss in enumerate(padded) if len(loss.message) < 512)
    padded[first_small] = padded[first_small]._replace(message=padded[first_small].message + "x")
    shortened = append_loss(tuple(padded[:-1]), padded[-1])
    left_out = left_out_of(shortened)
    assert shortened == (padded[0], left_out_entry(padded[left_out], left_out), *padded[1 + left_out :])
    kept = (padded[0], *padded[1 + left_out :])
    assert text_bytes(kept) + 1_536 <= HISTORY_BYTES_MAX < text_bytes((*kept, padded[left_out])) + 1_536


def test_the_entry_for_what_was_left_out_tells_of_no_place_and_no_age() -> None:
    entry = left_out_entry(LOSS._replace(attempt=7, emitted_ms=5_000), 3)
    assert entry == Loss(7, Verdict.FAILED, "", "LEFT_OUT", "losses left out here: 3", 5_000, 0, "")


def test_a_history_that_leaves_out_more_and_more_counts_on() -> None:
    history: tuple[Loss, ...] = ()
    for loss in losses(HISTORY_MAX + 50):
        history = append_loss(history, loss)
        assert left_out_of(history) + len(history) - (1 if left_out_of(history) else 0) == loss.attempt


@pytest.mark.parametrize("field", ["attempt", "emitted_ms", "age_ms"])
@pytest.mark.parametrize(
    ("number", "is_read"),
    [
        (0, True),
        (1, True),
        (2**53 - 1, True),
        (2**53, False),
        (-1, False),
        (True, False),
        (1.0, False),
        ("1", False),
    ],
)
def test_a_number_of_a_history_is_a_whole_one_that_every_reader_of_json_has(
    field: str, number: object, is_read: bool
) -> None:
    value = json.dumps([{**LOSS._asdict(), field: number}]).encode()
    assert bool(parse_history(value)) is is_read


def test_a_history_is_written_as_text_that_people_can_read() -> None:
    loss = LOSS._replace(message="grün")
    for history in ((loss,), (loss, loss)):
        assert (
            history_json(history)
            == json.dumps([entry._asdict() for entry in history], ensure_ascii=False).encode()
        )


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("last", [b"\x02", b"\x03", b"\x04", b"\x7f"])
@pytest.mark.parametrize("before", [b"\x80", b"\xff"])
def test_each_number_of_more_than_64_bits_is_refused_though_others_follow(
    before: bytes, last: bytes, place: int
) -> None:
    """The source, the position, and the time."""
    numbers = [b"\x02"] * 3
    numbers[place] = before * 9 + last
    with pytest.raises(CodecError, match="has more than 64 bits"):
        due_codec().read_root_and_due_ms(due_codec().encode(DUE)[:10] + b"".join(numbers))


def test_a_history_may_have_its_last_byte_of_room_when_it_was_shortened() -> None:
    """96 losses of 484 bytes and the entry for the others take just all; a hundred do not fit."""
    history = losses(100)
    padded = tuple(
        loss._replace(message=loss.message + "x" * (484 - text_bytes((loss,)))) for loss in history
    )
    assert HISTORY_BYTES_MAX == 96 * 484 + 1_536
    shortened = append_loss(padded[:-1], padded[-1])
    assert shortened == (padded[0], left_out_entry(padded[4], 4), *padded[5:])


@pytest.mark.parametrize(("count", "is_read"), [(1, True), (HISTORY_MAX, True), (HISTORY_MAX + 1, False)])
def test_a_history_of_as_many_losses_as_a_worker_writes_is_read(count: int, is_read: bool) -> None:
    written = history_json(losses(count))
    assert parse_history(written) == (losses(count) if is_read else ())


@pytest.mark.parametrize(("beyond", "is_read"), [(-1, True), (0, True), (1, False)])
def test_a_history_is_read_up_to_the_size_that_a_worker_may_write(beyond: int, is_read: bool) -> None:
    """That is where each character of each text has to be escaped."""
    bytes_max = HISTORY_MAX * (6 * (2 * 256 + 2 * 512) + 400)
    value = history_json((LOSS,)).ljust(bytes_max + beyond)
    assert parse_history(value) == ((LOSS,) if is_read else ())
