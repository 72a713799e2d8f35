"""When a running acker looks again at the partition counts of its topics, and which partitions wait."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from acker.errors import Disagreement, TopicError
from acker.kafka.port import TopicInfo
from acker.service.partition_counts import CHECK_EVERY_MS, PartitionCounts
from acker.service.silent import SilentPartitions

NAMES = ("_ack_init", "_ack_ack")


@dataclass
class Topics:
    """A log of which only the topics matter."""

    partitions: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NAMES, 3))
    calls: int = 0

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        self.calls += 1
        return {
            name: TopicInfo(name, "id", self.partitions[name], 1, {})
            for name in names
            if name in self.partitions
        }


@pytest.mark.parametrize("begin_ms", [0, 20_000, 1_800_000_000_000])
def test_counts_are_checked_again_when_that_is_due(begin_ms: int) -> None:
    """The first step only begins to count the time; a clock that is set back makes it due."""
    log = Topics()
    counts = PartitionCounts(log, NAMES, 3)
    assert log.calls == 1
    after_ms = [0, 0, 1, CHECK_EVERY_MS - 1, CHECK_EVERY_MS, CHECK_EVERY_MS, CHECK_EVERY_MS + 1,
                2 * CHECK_EVERY_MS - 1, 2 * CHECK_EVERY_MS, 2 * CHECK_EVERY_MS - 1]  # fmt: skip
    calls: list[int] = []
    for ms in after_ms:
        counts.check_if_due(begin_ms + ms)
        calls.append(log.calls)
    assert calls == [1, 1, 1, 1, 2, 2, 2, 2, 3, 4]


def test_a_check_that_is_due_ends_with_what_it_finds() -> None:
    log = Topics()
    counts = PartitionCounts(log, NAMES, 3)
    counts.check_if_due(5)
    log.partitions["_ack_ack"] = 4
    counts.check_if_due(6)
    with pytest.raises(Disagreement, match="_ack_ack has 4 partitions, topics"):
        counts.check_if_due(5 + CHECK_EVERY_MS)
    del log.partitions["_ack_ack"]
    with pytest.raises(TopicError, match="no topic _ack_ack; create"):
        PartitionCounts(log, NAMES, 3)


@pytest.mark.parametrize(
    ("numbers", "is_checked"),
    [((), False), ((0, 1, 2), False), ((2, 3), True), ((0, 1, 2, 3), True), ((3,), True), ((4, 0), True)],
)
def test_a_partition_that_should_not_be_there_is_checked_at_once(
    numbers: tuple[int, ...], is_checked: bool
) -> None:
    log = Topics()
    PartitionCounts(log, NAMES, 3).require(numbers)
    assert log.calls == 1 + is_checked


# partitions that do not come up ----------------------------------------------------------------------------


def test_a_partition_that_was_never_tried_is_tried_at_once() -> None:
    silent = SilentPartitions(1_000, 4_000)
    for now_ms in (0, 1, 5_000):
        assert silent.partitions_to_try([2, 1], now_ms, others_work=True) == [1, 2]


@pytest.mark.parametrize("others_work", [True, False])
def test_a_partition_is_left_alone_twice_as_long_each_time(others_work: bool) -> None:
    """So that the others work; where there are none, it is tried on and on."""
    silent = SilentPartitions(1_000, 4_000)
    now_ms = 7_000
    for wait_ms in (1_000, 2_000, 4_000, 4_000):
        silent.record_failure(1, now_ms)
        for passed_ms in (0, 1, wait_ms - 1):
            turn = silent.partitions_to_try([1], now_ms + passed_ms, others_work=others_work)
            assert turn == ([] if others_work else [1])
        assert silent.partitions_to_try([1], now_ms + wait_ms, others_work=others_work) == [1]
        # a clock that was set back says nothing
        assert silent.partitions_to_try([1], now_ms - 1, others_work=others_work) == [1]
        now_ms += wait_ms


def test_the_one_that_was_tried_longest_ago_comes_first() -> None:
    silent = SilentPartitions(1_000, 4_000)
    for number, now_ms in ((3, 0), (1, 10), (2, 5)):
        silent.record_failure(number, now_ms)
    assert silent.partitions_to_try([1, 2, 3, 4], 100, others_work=False) == [4, 3, 2, 1]
    # who is not ours any more is forgotten
    assert silent.partitions_to_try([1, 2], 100, others_work=True) == []
    assert silent.partitions_to_try([3, 1], 100, others_work=True) == [3]
