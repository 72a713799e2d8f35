"""A hundred times the usual waits for an acker: it takes it in steps, each within its limits."""

from __future__ import annotations

import numpy as np
import pytest

from acker.config.limits import AckerLimits
from acker.identity import root_edges_of_run
from acker.service.step_reader import StepReader, StepRecords
from acker.wire.codec import RECORD_BYTES_MAX
from acker.wire.events import Acks, pack_positions, pack_values
from tests.support.cpu_time import within
from tests.support.worlds.acker_world import SOURCE, TOPICS, World

USUAL = 200
"""Records of contributions that a step finds where nothing is held up."""


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Records and bytes of ``_ack_ack`` in each step that has any."""
    seen: list[tuple[int, int]] = []
    original = StepReader.take_ready

    def take(self: StepReader, number: int) -> StepRecords:
        letters = original(self, number)
        if letters.acks:
            seen.append((len(letters.acks), sum(len(record.value or b"") for record in letters.acks)))
        return letters

    monkeypatch.setattr(StepReader, "take_ready", take)
    return seen


def test_a_burst_of_many_records_is_applied_in_steps_of_so_many(steps: list[tuple[int, int]]) -> None:
    """`step_records`: 20,000 batches were published while no acker ran; ticks and fails come in between."""
    world = World(limits=AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=0))
    writer = world.session()
    writer.take()
    world.settle()
    count, size = 100 * USUAL, 50
    writer.init((0, count * size))
    for seq in range(count):
        first = seq * size
        if seq % 1_000 == 0:
            writer.fails(first + 2, seq=seq)
            writer.acks(runs=[(first, first + 2), (first + 3, first + size)], seq=seq, block=first >> 15)
        elif first >> 15 == (first + size - 1) >> 15:
            writer.acks(runs=[(first, first + size)], seq=seq)
        else:
            edge = (first >> 15) + 1 << 15
            writer.acks(runs=[(first, edge)], seq=seq)
            writer.acks(runs=[(edge, first + size)], seq=seq)
        if seq % 500 == 0:
            writer.tick(seq)
    with within(cpu_seconds=20):
        world.settle()
    counts = world.status().counts
    assert (counts.acked, counts.failed, world.status().open_roots) == (count * size - 20, 20, 0)
    assert max(records for records, _ in steps) == AckerLimits().step_records
    assert len(steps) >= count / AckerLimits().step_records
    assert max(len(record.value or b"") for record in world.read(TOPICS.verdict)) < RECORD_BYTES_MAX


def test_a_burst_of_large_records_is_applied_in_steps_of_so_many_bytes(steps: list[tuple[int, int]]) -> None:
    """`step_bytes`: a poll of 200 records would bring 100 MB more than that; the last one may pass it.

    Every second root is acked, the others are not: the verdicts are as scattered as they can be.
    """
    step_bytes = 2 << 20
    world = World(limits=AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=0, step_bytes=step_bytes))
    writer = world.session()
    writer.take()
    blocks, size = 30, 1 << 15
    writer.init((0, blocks * size))
    world.settle()
    for block in range(blocks):
        at = np.arange(block * size, (block + 1) * size)
        values = root_edges_of_run(SOURCE, block * size, (block + 1) * size)
        values[1::2] ^= np.uint64(5)
        head = (writer.lane, 0, writer.group, writer.session, writer.epoch, SOURCE, block)
        world.write(TOPICS.ack, Acks(*head, (), pack_positions(at), pack_values(values), (), b"", 0))
    with within(cpu_seconds=15):
        world.settle()
    assert world.status().counts.acked == blocks * size // 2
    assert max(size for _, size in steps) < step_bytes + RECORD_BYTES_MAX
    assert len(steps) >= 6
    assert max(len(record.value or b"") for record in world.read(TOPICS.verdict)) < RECORD_BYTES_MAX


def test_a_limit_of_one_record_is_one_record(steps: list[tuple[int, int]]) -> None:
    """The lowest that topics.yaml allows."""
    world = World(limits=AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=0, step_records=1))
    writer = world.session()
    writer.take()
    writer.init((0, 5))
    for position in range(5):
        writer.acks(runs=[(position, position + 1)], seq=position)
    world.settle()
    assert [records for records, _ in steps] == [1] * 5
    assert world.of() == dict.fromkeys(range(5), "ACKED")
