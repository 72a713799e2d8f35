"""Damaged batches: what waits because of them, where, and until when."""

from __future__ import annotations

import pytest

from acker.errors import UnreadableKind
from acker.kafka.port import DamagedRun
from replay.policy.damage import DamagedBatches, held_up_cure

RETRY_MS = 60_000
NOW_MS = 1_700_000_000_000
RUN = DamagedRun("sentences", 3, 10, 20, "a CRC is wrong")


def met(*runs: DamagedRun, now_ms: int = NOW_MS) -> DamagedBatches:
    batches = DamagedBatches(RETRY_MS)
    batches.put_off(runs, now_ms)
    return batches


def held_offsets(
    batches: DamagedBatches, now_ms: int, topic: str = "sentences", partition: int = 3
) -> list[int]:
    """Return which of the first thirty offsets are not to be read."""
    return [
        offset for offset in range(30) if batches.put_off_run_at(topic, partition, offset, now_ms) is not None
    ]


def test_exactly_the_offsets_of_a_damaged_batch_wait_in_its_partition_alone() -> None:
    batches = met(RUN)
    assert held_offsets(batches, NOW_MS) == [*range(10, 20)]
    assert held_offsets(batches, NOW_MS, partition=0) == []
    assert held_offsets(batches, NOW_MS, topic="sentences.g.replay") == []
    held = batches.put_off_run_at("sentences", 3, 10, NOW_MS)
    assert held is not None
    assert (held.damaged_run, held.until_ms) == (RUN, NOW_MS + RETRY_MS)


@pytest.mark.parametrize(
    ("later_ms", "waits"),
    [
        (0, True),
        (RETRY_MS - 1, True),
        (RETRY_MS, False),
        (RETRY_MS + 1, False),
        (-1, False),
        (-RETRY_MS, False),
    ],
)
def test_a_batch_is_tried_again_when_its_time_is_over_or_the_clock_was_set_back(
    later_ms: int, waits: bool
) -> None:
    assert bool(held_offsets(met(RUN), NOW_MS + later_ms)) is waits


@pytest.mark.parametrize(
    ("start", "end", "until_ms"),
    [
        pytest.param(5, 11, NOW_MS + RETRY_MS, id="reaches into its first offset"),
        pytest.param(19, 25, NOW_MS + RETRY_MS, id="reaches into its last offset"),
        pytest.param(5, 25, NOW_MS + RETRY_MS, id="has it all"),
        pytest.param(5, 10, NOW_MS + 9 + RETRY_MS, id="ends before it"),
        pytest.param(20, 25, NOW_MS + 9 + RETRY_MS, id="begins behind it"),
    ],
)
def test_what_belongs_to_a_batch_that_is_known_is_tried_again_together_with_it(
    start: int, end: int, until_ms: int
) -> None:
    batches = met(RUN)
    batches.put_off([RUN._replace(start=start, end=end)], NOW_MS + 9)
    new = [offset for offset in range(start, end) if not 10 <= offset < 20]
    for offset in new:
        held = batches.put_off_run_at("sentences", 3, offset, NOW_MS + 9)
        assert held is not None
        assert held.until_ms == until_ms
    assert held_offsets(batches, NOW_MS + 9) == sorted({*range(10, 20), *new})


@pytest.mark.parametrize(("start", "end"), [(10, 20), (10, 12), (18, 20), (12, 18)])
def test_what_lies_in_a_batch_that_is_known_is_nothing_new(start: int, end: int) -> None:
    batches = met(RUN)
    batches.put_off([RUN._replace(start=start, end=end, why="again")], NOW_MS + 9)
    assert [entry.damaged_run for entry in batches._put_off_by_partition["sentences", 3]] == [RUN]


def test_a_run_without_an_offset_holds_nothing() -> None:
    batches = met(RUN._replace(end=10), RUN._replace(start=15, end=14))
    assert batches._put_off_by_partition["sentences", 3] == []


def test_of_several_runs_that_a_new_one_meets_the_earliest_says_when() -> None:
    batches = met(RUN)
    batches.put_off([RUN._replace(start=22, end=24)], NOW_MS + 500)
    batches.put_off([RUN._replace(start=19, end=23)], NOW_MS + 900)
    held = batches.put_off_run_at("sentences", 3, 21, NOW_MS + 900)
    assert held is not None
    assert held.until_ms == NOW_MS + RETRY_MS


@pytest.mark.parametrize(
    ("later_ms", "reports"),
    [(0, False), (RETRY_MS - 1, False), (RETRY_MS, True), (1 - RETRY_MS, False), (-RETRY_MS, True)],
)
def test_a_run_is_named_at_once_and_again_when_it_has_been_tried(later_ms: int, reports: bool) -> None:
    batches = DamagedBatches(RETRY_MS)
    assert batches.record_report_if_due(RUN, NOW_MS)
    assert batches.record_report_if_due(RUN, NOW_MS + later_ms) is reports
    # the same end that a reader came upon further in front is the same batch
    assert not batches.record_report_if_due(RUN._replace(start=12), NOW_MS + later_ms)


@pytest.mark.parametrize(
    "other", [RUN._replace(topic="words"), RUN._replace(partition=0), RUN._replace(end=30)]
)
def test_each_batch_is_named_by_itself(other: DamagedRun) -> None:
    batches = DamagedBatches(RETRY_MS)
    assert batches.record_report_if_due(RUN, NOW_MS)
    assert batches.record_report_if_due(other, NOW_MS)


def test_a_run_is_named_though_the_clock_stands_at_0() -> None:
    assert DamagedBatches(RETRY_MS).record_report_if_due(RUN, 0)


@pytest.mark.parametrize(
    ("kind", "begin"),
    [
        (UnreadableKind.DAMAGED, "Bring back a replica of the partition that is whole; or set on_data_loss"),
        (UnreadableKind.OVERSIZED, "Let its writer cut what it writes: every replica has it so. And set"),
        (
            UnreadableKind.NOT_UNPACKED,
            "Let its writer send smaller batches: every replica has it so. And set",
        ),
    ],
)
def test_each_kind_that_cannot_be_read_has_its_cure(kind: UnreadableKind, begin: str) -> None:
    assert held_up_cure(kind).startswith(begin)
    assert held_up_cure(kind).endswith("each of them becomes a dead letter without payload then")
