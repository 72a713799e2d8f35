"""How much a poll takes from the client, and records that are too large to work on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest
from confluent_kafka import Consumer, Message

from acker.kafka import reader
from acker.kafka.port import DamagedRun
from acker.kafka.reader import VALUE_BYTES_MAX, ready_messages, too_large_runs
from acker.kafka.writer import DEFAULTS

KIB = 1 << 10


def message(offset: int, size: int) -> Message:
    return Message(topic="lines", partition=3, offset=offset, value=bytes(size))


class Queue:
    """A client that has fetched messages of these sizes; `copied` is what was taken from it."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = list(sizes)
        self.copied = 0
        self.calls = 0

    def consume(self, most: int, _wait_s: float) -> list[Message]:
        taken, self.sizes = self.sizes[:most], self.sizes[most:]
        self.copied += sum(taken)
        self.calls += 1
        return [message(0, size) for size in taken]


def taken(queue: Queue, most: int, bytes_max: int) -> list[int]:
    """Return the sizes of what is taken behind a first message of one byte."""
    messages, value_bytes = ready_messages(cast("Consumer", queue), message(0, 1), most, bytes_max)
    assert len(messages[0]) == 1
    assert value_bytes == sum(map(len, messages))
    return [len(taken_message) for taken_message in messages[1:]]


@pytest.mark.parametrize("size", [100, 10 * KIB, 100 * KIB, 900 * KIB])
def test_no_more_is_copied_than_the_bound_and_a_few_records(size: int) -> None:
    """O1911: a fetched batch may be a gigabyte; what is not taken is there the next time."""
    queue = Queue([size] * 4_000)
    bytes_max = 1_000 * KIB
    found = taken(queue, 5_000, bytes_max)
    assert sum(found) == queue.copied <= max(bytes_max, 32 * size) + size
    assert len(found) + len(queue.sizes) == 4_000


def test_large_records_behind_small_ones_are_taken_in_steps() -> None:
    """O1911: sizes are known only once a record was copied, so no step is four times the one before."""
    queue = Queue([1] * 40 + [100 * KIB] * 1_000)
    assert sum(taken(queue, 5_000, 1_000 * KIB)) < 4 * 32 * 100 * KIB + 40


def test_small_records_are_taken_in_few_calls() -> None:
    """A call takes a microsecond, and the lock."""
    queue = Queue([100] * 8_192)
    assert len(taken(queue, 8_193, 64 << 20)) == 8_192
    assert queue.calls <= 7


@pytest.mark.parametrize("most", [1, 2, 33, 34, 200])
def test_never_more_are_taken_than_were_asked_for(most: int) -> None:
    """Nor is the client asked once more when it had fewer."""
    queue = Queue([1] * 100)
    assert len(taken(queue, most, KIB)) == min(most - 1, 100)
    assert queue.calls <= 3


def test_a_record_that_nobody_can_work_on_has_a_place_and_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """O1912: its neighbours are not named."""
    monkeypatch.setattr(reader, "VALUE_BYTES_MAX", 1_000)
    messages = [message(7, 1_000), message(8, 1_001), message(9, 0)]
    why = "it is too large: a record of 1,001 bytes, more than the 1,000 that can be handled"
    assert too_large_runs(messages) == [DamagedRun("lines", 3, 8, 9, why)]
    assert too_large_runs([]) == too_large_runs(messages[:1]) == []


def test_what_can_be_handled_is_what_can_be_copied() -> None:
    """O1912: else a record would be read that can neither be replayed nor become a dead letter."""
    assert DEFAULTS["message.max.bytes"] == VALUE_BYTES_MAX
