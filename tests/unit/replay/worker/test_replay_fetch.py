"""Fetching single records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from acker.config.limits import ReplayLimits
from acker.errors import OutOfRange, Unreachable
from acker.kafka.port import RECORD_OVERHEAD_BYTES, Outgoing, Reader, Record, TopicPartition
from replay.records.headers import RecordPlace
from replay.worker.fetch import Absence, Answers, Fetcher
from tests.support.memory.clients import MemoryReader, NoFaults
from tests.support.memory.cluster import MemoryCluster, MemoryLog
from tests.support.worlds.replay_world import FailOnce


class CountingReader(MemoryReader):
    """Counts the records that it returned, and keeps where it was sent."""

    def __init__(self, log: CountingLog) -> None:
        super().__init__(log.cluster, log.faults, committed=True)
        self._log = log

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        super().assign(positions)
        self._log.assigned.append(dict(positions))

    def poll(self, timeout_ms: int, max_records: int = 1000) -> Sequence[Record]:
        records = super().poll(timeout_ms, min(max_records, 10))
        self._log.read += len(records)
        return records


class CountingLog(MemoryLog):
    """A log whose readers count."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.faults = NoFaults()
        super().__init__(cluster, self.faults)
        self.cluster = cluster
        self.read = 0
        self.assigned: list[dict[TopicPartition, int]] = []

    def reader(self, *, committed: bool, patient: bool = False) -> Reader:
        assert committed
        return CountingReader(self)


@pytest.fixture
def cluster() -> MemoryCluster:
    cluster = MemoryCluster()
    cluster.create_topic("t", 2)
    producer = cluster.log().producer()
    for number in range(2_000):
        producer.send(Outgoing("t", number % 2, b"%d" % (number // 2)))
    producer.flush(0)
    return cluster


def wanted(*offsets: int, partition: int = 0) -> list[RecordPlace]:
    return [RecordPlace("t", partition, offset) for offset in offsets]


def values(answers: Answers) -> dict[int, bytes | Absence | None]:
    return {
        place.offset: found if isinstance(found, Absence) else found.value for place, found in answers.items()
    }


def test_records_are_found_by_their_offsets_in_any_order(cluster: MemoryCluster) -> None:
    answers = Fetcher(cluster.log(), ReplayLimits()).fetch([*wanted(7, 3, 7), *wanted(5, partition=1)])
    assert {place: found.value for place, found in answers.items() if not isinstance(found, Absence)} == {
        RecordPlace("t", 0, 3): b"3",
        RecordPlace("t", 0, 7): b"7",
        RecordPlace("t", 1, 5): b"5",
    }


def test_small_gaps_are_read_through_and_large_ones_and_the_tail_are_not(cluster: MemoryCluster) -> None:
    log = CountingLog(cluster)
    fetcher = Fetcher(log, ReplayLimits(fetch_gap_bytes=20 * 1_024))
    assert values(fetcher.fetch(wanted(0, 15, 600))) == {0: b"0", 15: b"15", 600: b"600"}
    assert log.read == fetcher.read_records == 21
    assert fetcher.read_bytes == sum(RECORD_OVERHEAD_BYTES + len(b"%d" % n) for n in [*range(20), 600])
    assert log.assigned == [{TopicPartition("t", 0): 0}, {TopicPartition("t", 0): 600}, {}, {}]


def test_what_lies_outside_the_log_is_gone(cluster: MemoryCluster) -> None:
    cluster.delete_before(TopicPartition("t", 0), 10)
    answers = Fetcher(cluster.log(), ReplayLimits()).fetch(wanted(9, 10, 5_000))
    assert values(answers) == {9: Absence.GONE, 10: b"10", 5_000: Absence.GONE}


def test_where_a_marker_or_an_aborted_record_stands_there_never_was_one(cluster: MemoryCluster) -> None:
    writer = cluster.log().transactions("x")
    writer.init(0)
    writer.begin()
    writer.send(Outgoing("t", 0, b"aborted"))
    writer.abort(0)
    assert values(Fetcher(cluster.log(), ReplayLimits()).fetch(wanted(999, 1_000, 1_001))) == {
        999: b"999",
        1_000: Absence.NEVER,
        1_001: Absence.NEVER,
    }


def test_a_fetch_ends_when_its_bytes_are_full_and_answers_at_least_one(cluster: MemoryCluster) -> None:
    fetcher = Fetcher(CountingLog(cluster), ReplayLimits(fetch_bytes_max=1))
    left, rounds = set(wanted(*range(100))), 0
    while left:
        answers = fetcher.fetch(left)
        assert answers
        left -= set(answers)
        rounds += 1
    assert rounds == 10


@pytest.mark.parametrize(("gap_bytes", "fetches"), [(4_096, 4), (16_384, 5)])
def test_a_fetch_ends_when_it_has_passed_enough_and_answers_at_least_one(
    cluster: MemoryCluster, gap_bytes: int, fetches: int
) -> None:
    """Ten records with 8 kB between them, 12 kB at most: three skips in a fetch, or a gap and a half read."""
    limits = ReplayLimits(fetch_gap_bytes=gap_bytes, fetch_passed_bytes_max=12_288)
    fetcher = Fetcher(CountingLog(cluster), limits)
    left, asked = set(wanted(*range(0, 1_000, 100))), 0
    while left:
        answers = fetcher.fetch(left)
        assert answers
        left -= set(answers)
        asked += 1
    assert asked == fetches


def test_nothing_wanted_asks_nothing(cluster: MemoryCluster) -> None:
    assert Fetcher(cluster.log(FailOnce("poll", AssertionError())), ReplayLimits()).fetch([]) == {}


def test_retention_that_passes_a_wanted_offset_meanwhile_is_seen(cluster: MemoryCluster) -> None:
    faults = FailOnce("poll", OutOfRange("just deleted"))
    assert values(Fetcher(cluster.log(faults), ReplayLimits()).fetch(wanted(3))) == {3: b"3"}
    assert faults.happened


def test_a_log_that_sends_nothing_is_unreachable(cluster: MemoryCluster) -> None:
    class Silent(MemoryReader):
        def poll(self, timeout_ms: int, max_records: int = 1000) -> Sequence[Record]:
            return ()

    class SilentLog(MemoryLog):
        def reader(self, *, committed: bool, patient: bool = False) -> Reader:
            return Silent(cluster, NoFaults(), committed=committed)

    with pytest.raises(Unreachable, match="no record of t "):
        Fetcher(SilentLog(cluster, NoFaults()), ReplayLimits()).fetch(wanted(3))
