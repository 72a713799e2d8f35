"""The time of a record, in its copies and dead letters: the same at each attempt, whatever it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from acker.identity import Position, position_at, source_of
from acker.kafka.port import Outgoing, Record, TimestampType
from acker.wire.verdict import Verdict
from replay.policy.disposition import DeadReason
from replay.records.copies import build_copy
from replay.records.dead_letter import Death, LetterTopic, build_dead_letter
from replay.records.due import Due, Loss
from replay.records.letters import Letter, copy_of_letter, parse_letter
from replay.records.record_time import RecordTime, parse_record_time, time_of
from tests.support.memory.clients import as_sent
from tests.support.odd_times import ODD_TIMES_MS

NOW_MS = 1_800_000_000_000
OWN = (("trace", b"1"), ("windhover.timestamp", b"5"))
LOSS = Loss(1, Verdict.FAILED, "split", "ValueError", "no", 1, 2, "t/0@7")
LETTER_TOPIC = LetterTopic("t.dlq", 1, 1_000_000)


def due_of(*, is_copy: bool) -> Due:
    """Return a lost root of the source topic or of the replay topic."""
    source, topic = source_of(1, 0, replay=is_copy), "t.replay" if is_copy else "t"
    position = Position(position_at(0, 7))
    return Due(source, position, 0, "", "g", topic, "id", "t/0@7", 1, 0, 5, (LOSS,))


def written(outgoing: Outgoing, *, keeps_times: bool) -> Record:
    """Return a copy as it is read, of a topic that keeps its records' times or sets them itself."""
    topic, partition, value, key, headers, timestamp_ms = as_sent(outgoing)
    stamp_ms = timestamp_ms if keeps_times and timestamp_ms is not None else NOW_MS
    kind = TimestampType.CREATED if keeps_times else TimestampType.APPENDED
    return Record(topic, partition, 9, key, value, headers, stamp_ms, kind)


@pytest.mark.parametrize("keeps_times", [True, False], ids=["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("kind", TimestampType)
@pytest.mark.parametrize("own", [(), OWN], ids=["plain", "was a letter before"])
@pytest.mark.parametrize("time_ms", ODD_TIMES_MS)
def test_a_copy_of_a_copy_its_letter_and_its_redrive_tell_the_time_of_the_record(
    time_ms: int, own: tuple[tuple[str, bytes | None], ...], kind: TimestampType, keeps_times: bool
) -> None:
    """O1001: 0, what lies before 1970, microseconds and nanoseconds, and whose time it is."""
    wanted = RecordTime(time_ms, kind)
    record = Record("t", 0, 7, b"k", b"v", own, time_ms, kind)
    lost = due_of(is_copy=False)
    for _ in range(3):
        record = written(
            build_copy(lost, record, "t.replay", keeps_times=keeps_times), keeps_times=keeps_times
        )
        assert time_of(record, is_copy=True) == wanted
        lost = due_of(is_copy=True)
    dead = build_dead_letter(lost, Death(DeadReason.ATTEMPTS), record, LETTER_TOPIC, NOW_MS)
    assert dead.timestamp_ms == NOW_MS
    letter_record = Record(*dead[:2], 3, dead.key, dead.value, dead.headers, NOW_MS)
    letter = parse_letter(letter_record)
    assert isinstance(letter, Letter)
    assert letter.time == wanted
    again = written(
        copy_of_letter(letter, letter_record, "t.replay", "r1", keeps_times=keeps_times),
        keeps_times=keeps_times,
    )
    assert time_of(again, is_copy=True) == wanted


def test_a_usual_copy_says_its_time_itself_and_has_no_header_for_it() -> None:
    """So copies are to earlier versions and to all tools what they were."""
    record = Record("t", 0, 7, b"k", b"v", (), NOW_MS)
    copy = build_copy(due_of(is_copy=False), record, "t.replay")
    assert copy.timestamp_ms == NOW_MS
    assert [name for name, _ in copy.headers if name.startswith("windhover.timestamp")] == []


@pytest.mark.parametrize(
    "value", [b"", b"-", b"+1", b"1.5", b" 1", b"1\n", b"1_0", b"\xff", b"9" * 20, b"9223372036854775808"]
)
def test_a_time_that_is_no_int64_counts_as_missing(value: bytes) -> None:
    assert parse_record_time({"windhover.timestamp": value}) is None
    assert parse_record_time({}) is None


@pytest.mark.parametrize("kind", [b"", b"7", b"create", b"-2"])
def test_a_type_that_kafka_does_not_have_counts_as_the_producers(kind: bytes) -> None:
    told = parse_record_time({"windhover.timestamp": b"7", "windhover.timestamp-type": kind})
    assert told == RecordTime(7, TimestampType.CREATED)


def test_a_letter_that_tells_no_time_is_written_again_with_the_present_one() -> None:
    """As letters of earlier versions, of a record without a time."""
    record = Record("t", 0, 7, b"k", b"v", (), -1)
    dead = build_dead_letter(due_of(is_copy=False), Death(DeadReason.ATTEMPTS), record, LETTER_TOPIC, NOW_MS)
    letter = parse_letter(Record(*dead[:2], 3, dead.key, dead.value, dead.headers, NOW_MS))
    assert isinstance(letter, Letter)
    assert copy_of_letter(replace(letter, time=None), record, "t.replay").timestamp_ms is None
