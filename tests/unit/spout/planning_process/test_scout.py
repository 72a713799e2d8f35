"""A look at what comes next: how far it reads, when it waits, and that planning goes on without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from acker.errors import Unreachable
from acker.kafka.port import OffsetReader, TopicPartition
from spout.group.announce import SightRequest
from spout.planning_process.scout import PATIENCE, POLL_MS, POLL_RECORDS_MAX, RECORDS_MAX, WAIT_MS, Scout
from tests.support.holes import Aborted, Each, Records, write_stretches
from tests.support.memory.clients import MemoryOffsetReader, NoFaults
from tests.support.memory.cluster import MemoryCluster, MemoryLog

FIRST, SECOND = TopicPartition("lines", 0), TopicPartition("lines", 1)


class Reader(MemoryOffsetReader):
    """Answers for some partitions only when it has been asked often enough; counts what it was asked for."""

    waited_ms = 0
    polls = 0
    answers_after: Mapping[TopicPartition, int] = {}

    def offsets(self, timeout_ms: int, max_records: int = 1000) -> Mapping[TopicPartition, Sequence[int]]:
        self.polls += 1
        at = dict(self._positions)
        silent = {place: at[place] for place in at if self.polls <= self.answers_after.get(place, 0)}
        self._positions = {place: at[place] for place in at if place not in silent}
        found = super().offsets(timeout_ms, max_records) if self._positions else {}
        moved = self._positions != {place: at[place] for place in self._positions}
        self._positions |= silent
        self.waited_ms += 0 if found or moved else timeout_ms
        return found


class Log(MemoryLog):
    """Makes one such reader."""

    def __init__(self, cluster: MemoryCluster, faults: NoFaults) -> None:
        super().__init__(cluster, faults)
        self.made: list[Reader] = []
        self.answers_after: dict[TopicPartition, int] = {}

    def offset_reader(self) -> OffsetReader:
        reader = Reader(self._broker, self._faults, committed=True)
        reader.answers_after = self.answers_after
        self.made.append(reader)
        return reader


@pytest.fixture
def log() -> Log:
    cluster = MemoryCluster(1)
    cluster.create_topic("lines", 2)
    return Log(cluster, NoFaults())


def test_of_a_topic_without_holes_one_answer_is_enough(log: Log) -> None:
    end = write_stretches(log, FIRST, [Records(30_000)])
    seen = Scout(log).find_records({FIRST: SightRequest(0, end, 25_000)}).by_partition[FIRST]
    assert (seen.start, seen.end, len(seen.records)) == (0, POLL_RECORDS_MAX, POLL_RECORDS_MAX)


def test_where_many_positions_are_empty_it_reads_on_until_the_records_are_counted(log: Log) -> None:
    write_stretches(log, FIRST, [Each(5_000)])
    seen = Scout(log).find_records({FIRST: SightRequest(0, 10_000, 3_000)}).by_partition[FIRST]
    assert seen.records[:3_000].tolist() == list(range(0, 6_000, 2))


def test_it_counts_no_more_records_than_it_may(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spout.planning_process.scout.RECORDS_MAX", 2 * POLL_RECORDS_MAX)
    write_stretches(log, FIRST, [Each(5_000)])
    seen = Scout(log).find_records({FIRST: SightRequest(0, 10_000, 5_000)}).by_partition[FIRST]
    assert len(seen.records) == 2 * POLL_RECORDS_MAX < RECORDS_MAX


def test_what_it_has_seen_it_need_not_read_again(log: Log) -> None:
    end = write_stretches(log, FIRST, [Records(500)])
    scout = Scout(log)
    scout.find_records({FIRST: SightRequest(0, end, 100)})
    scout.fetch_ahead({FIRST: 100})
    polls = log.made[0].polls
    seen = scout.find_records({FIRST: SightRequest(100, end, 100)}).by_partition[FIRST]
    assert seen.records.tolist() == list(range(100, 500))
    assert log.made[0].polls == polls


def test_what_follows_a_batch_is_fetched_before_the_next_one_is_planned(log: Log) -> None:
    """It would cost each planning a round trip otherwise."""
    end = write_stretches(log, FIRST, [Records(10_000)])
    scout = Scout(log)
    scout.find_records({FIRST: SightRequest(0, end, 5_000)})
    scout.fetch_ahead({FIRST: 5_000})
    assert log.made[0].position(FIRST) == 5_000 + POLL_RECORDS_MAX
    scout.fetch_ahead({})
    assert log.made[0]._positions == {}, "of what is planned without a limit nothing is fetched"


def test_it_waits_for_what_comes_behind_a_hole_and_then_others_go_on(log: Log) -> None:
    write_stretches(log, FIRST, [Aborted(50), Records(5)])
    write_stretches(log, SECOND, [Records(55)])
    log.answers_after = {FIRST: WAIT_MS // POLL_MS + 2}
    scout, requests = Scout(log), {FIRST: SightRequest(0, 56, 10), SECOND: SightRequest(0, 55, 10)}
    first = scout.find_records(requests)
    assert (list(first.awaited), len(first.by_partition[SECOND].records)) == ([FIRST], 55)
    assert log.made[0].waited_ms == WAIT_MS
    assert list(scout.find_records(requests).awaited) == [FIRST]
    assert log.made[0].waited_ms == WAIT_MS + POLL_MS, "others are there: it only asks"
    second = scout.find_records(requests)
    assert (list(second.awaited), second.by_partition[FIRST].records.tolist()) == ([], list(range(51, 56)))


def test_its_patience_ends_and_what_it_learns_later_counts_all_the_same(log: Log) -> None:
    write_stretches(log, FIRST, [Aborted(50), Records(5)])
    log.answers_after = {FIRST: 10_000}
    scout = Scout(log)
    for _ in range(PATIENCE):
        assert list(scout.find_records({FIRST: SightRequest(0, 56, 10)}).awaited) == [FIRST]
    looked = scout.find_records({FIRST: SightRequest(0, 56, 10)})
    assert (list(looked.awaited), looked.by_partition[FIRST].end) == ([], 0), "it is planned one for one"
    waited_ms = log.made[0].waited_ms
    scout.fetch_ahead({FIRST: 10})
    log.answers_after.clear()
    seen = scout.find_records({FIRST: SightRequest(10, 56, 10)}).by_partition[FIRST]
    assert (seen.end, seen.records.tolist()) == (56, list(range(51, 56)))
    assert log.made[0].waited_ms - waited_ms <= POLL_MS


def test_a_partition_that_cannot_be_read_is_looked_at_no_more_and_others_are(log: Log) -> None:
    """Its positions are planned one for one, and the read task says what is wrong."""
    write_stretches(log, FIRST, [Records(50)])
    write_stretches(log, SECOND, [Aborted(50), Records(5)])
    log.delete_before({FIRST: 20})
    looked = Scout(log).find_records({FIRST: SightRequest(0, 50, 10), SECOND: SightRequest(0, 56, 10)})
    assert (list(looked.awaited), looked.by_partition[FIRST].end) == ([], 0)
    assert looked.by_partition[SECOND].records.tolist() == list(range(51, 56))


class Silent(NoFaults):
    """A broker that does not answer."""

    def before(self, operation: str) -> None:
        if operation == "poll":
            raise Unreachable("the broker is away")


def test_a_broker_that_does_not_answer_is_left_alone_for_a_while(log: Log) -> None:
    write_stretches(log, FIRST, [Records(50)])
    broken = Log(log._broker, Silent())  # type: ignore[arg-type]
    scout = Scout(broken)
    for _ in range(PATIENCE + 1):
        assert scout.find_records({FIRST: SightRequest(0, 50, 10)}).by_partition == {}
    assert len(broken.made) == 1
    scout.find_records({FIRST: SightRequest(0, 50, 10)})
    assert len(broken.made) == 2


def test_no_more_partitions_are_looked_at_than_there_is_memory_for(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spout.planning_process.scout.PLACES_MAX", 1)
    for place in (FIRST, SECOND):
        write_stretches(log, place, [Records(50)])
    scout = Scout(log)
    requests = {FIRST: SightRequest(0, 50, 10), SECOND: SightRequest(0, 50, 10)}
    assert list(scout.find_records(requests).by_partition) == [FIRST]
    scout.fetch_ahead({FIRST: 10, SECOND: 10})
    assert list(log.made[0]._positions) == [FIRST]
    scout.close()
