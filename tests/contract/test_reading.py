"""What the port promises of `Reader` and `Producer`."""

from __future__ import annotations

import random
import time
from contextlib import closing

import pytest

from acker.errors import LogError, OutOfRange, TopicError, WindhoverError
from acker.kafka.port import Outgoing, TimestampType, TopicPartition
from acker.kafka.read_to_end import Follower
from tests.contract.clusters import (
    TIMEOUT_MS,
    Cluster,
    first_error,
    offsets_until,
    pick_all,
    read_count,
    read_until,
    values,
)
from tests.support.odd_times import ODD_TIMES_MS
from tests.support.waiting import committed, eventually

NO_LIMIT = str((1 << 63) - 1)


def _numbered(topic: str, count: int, partition: int = 0) -> list[Outgoing]:
    return [Outgoing(topic, partition, b"%d" % number) for number in range(count)]


def test_a_record_comes_back_whole(cluster: Cluster) -> None:
    """Key, value, headers (with their order, and None), timestamp, offset."""
    topic = cluster.topic()
    headers = (("a", b"1"), ("a", b"2"), ("none", None))
    cluster.write(Outgoing(topic, 0, b"value", b"key", headers, 1234), Outgoing(topic, 0, None))
    first, second = read_count(cluster.reader({TopicPartition(topic, 0): 0}), 2)
    assert first[:8] == (topic, 0, 0, b"key", b"value", headers, 1234, TimestampType.CREATED)
    assert second[:6] == (topic, 0, 1, None, None, ())


def test_a_record_without_a_timestamp_gets_the_brokers_time(cluster: Cluster) -> None:
    """Within a minute of ours, since both run on one machine."""
    topic = cluster.topic()
    cluster.write(Outgoing(topic, 0, b"v"))
    [record] = read_count(cluster.reader({TopicPartition(topic, 0): 0}), 1)
    assert abs(record.timestamp_ms - time.time() * 1000) < 60_000


@pytest.mark.parametrize("time_ms", ODD_TIMES_MS)
def test_a_record_has_the_time_that_was_written(cluster: Cluster, time_ms: int) -> None:
    """O1006: each int64 but 0, which is written as the present time; alone, and in a batch with others."""
    topic = cluster.topic(settings={"message.timestamp.after.max.ms": NO_LIMIT})
    began_ms = int(time.time() * 1_000) - 60_000
    cluster.write(Outgoing(topic, 0, b"alone", timestamp_ms=time_ms))
    cluster.write(*(Outgoing(topic, 0, b"among", timestamp_ms=one_ms) for one_ms in (1_000, time_ms, 2_000)))
    alone, before, among, after = read_count(cluster.reader({TopicPartition(topic, 0): 0}), 4)
    assert (before.timestamp_ms, after.timestamp_ms) == (1_000, 2_000)
    for record in (alone, among):
        assert record.timestamp_type == TimestampType.CREATED
        assert record.timestamp_ms == time_ms if time_ms else record.timestamp_ms >= began_ms


def test_a_topic_may_give_records_the_time_at_which_they_were_appended(cluster: Cluster) -> None:
    """O1006: then the record says so."""
    topic = cluster.topic(settings={"message.timestamp.type": "LogAppendTime"})
    cluster.write(Outgoing(topic, 0, b"v", timestamp_ms=1_234))
    [record] = read_count(cluster.reader({TopicPartition(topic, 0): 0}), 1)
    assert abs(record.timestamp_ms - time.time() * 1_000) < 60_000
    assert record.timestamp_type == TimestampType.APPENDED


def test_records_of_one_partition_keep_their_order(cluster: Cluster) -> None:
    """Offsets and values rise together, through many polls and batches."""
    topic = cluster.topic()
    partition = TopicPartition(topic, 0)
    cluster.write(*_numbered(topic, 5000))
    found = read_until(cluster.reader({partition: 0}), {partition: 5000})
    assert [record.offset for record in found] == list(range(5000))
    assert values(found) == [b"%d" % number for number in range(5000)]


def test_a_picker_returns_what_is_wanted_and_counts_the_rest(cluster: Cluster) -> None:
    """It jumps forward and back; its position passes what nobody wants."""
    topic = cluster.topic(2)
    cluster.write(*_numbered(topic, 3000), *_numbered(topic, 10, 1))
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    picker = cluster.picker({first: 5, second: 0})
    wanted = {first: [7, 2500], second: [3]}
    found = pick_all(picker, wanted, {first: 3000, second: 10})
    assert [(record.partition, record.offset) for record in found] == [(0, 7), (0, 2500), (1, 3)]
    assert values(found) == [b"7", b"2500", b"3"]
    picker.assign({first: 2999})
    assert [r.offset for r in pick_all(picker, {first: [2999]}, {first: 3000})] == [2999]
    picker.assign({first: 0})
    picked = picker.pick(TIMEOUT_MS, {first: [0]}, 1)
    assert ([r.offset for r in picked.records], picked.passed, picked.passed_bytes) == ([0], 0, 0)
    picked = picker.pick(TIMEOUT_MS, {}, 1)
    assert (list(picked.records), picked.passed, picked.passed_bytes) == ([], 1, 1)


def test_a_reader_of_offsets_tells_which_hold_a_committed_record(cluster: Cluster) -> None:
    """What was aborted, and markers, it passes; its position shows how far it has come."""
    topic = cluster.topic(2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    owner = cluster.owner()
    cluster.write(*_numbered(topic, 3))
    owner.begin()
    owner.send_all(_numbered(topic, 2_000))
    owner.flush(TIMEOUT_MS)
    owner.abort(TIMEOUT_MS)
    cluster.commit(owner, *_numbered(topic, 2), *_numbered(topic, 1, 1))
    reader = cluster.offset_reader({first: 1, second: 0})
    found = offsets_until(reader, {first: 2_007, second: 2})
    assert found == {first: [1, 2, 2_004, 2_005], second: [0]}
    reader.assign({second: 0})
    assert offsets_until(reader, {second: 2}) == {second: [0]}
    assert not reader.offsets(50)


def test_a_reader_of_offsets_passes_nothing_that_is_not_decided(cluster: Cluster) -> None:
    """What it passes counts as empty for ever, so it stops where a transaction is open."""
    topic = cluster.topic()
    place = TopicPartition(topic, 0)
    owner = cluster.owner()
    cluster.write(*_numbered(topic, 3))
    owner.begin()
    owner.send_all(_numbered(topic, 5))
    owner.flush(TIMEOUT_MS)
    cluster.write(*_numbered(topic, 2))
    reader = cluster.offset_reader({place: 0})
    found = offsets_until(reader, {place: 3})[place]
    for _ in range(20):  # the broker answers meanwhile that there is nothing more
        found += reader.offsets(50).get(place, ())
    assert (found, reader.position(place)) == ([0, 1, 2], 3)
    owner.commit(TIMEOUT_MS)
    assert offsets_until(reader, {place: 10}) == {place: [*range(3, 10)]}


def test_a_reader_of_offsets_returns_no_more_than_it_is_asked_for(cluster: Cluster) -> None:
    topic = cluster.topic()
    place = TopicPartition(topic, 0)
    cluster.write(*_numbered(topic, 100))
    reader = cluster.offset_reader({place: 40})
    eventually(lambda: reader.offsets(100, 7))
    assert 41 <= reader.position(place) <= 47


def test_a_reader_of_offsets_names_the_partition_that_it_cannot_read(cluster: Cluster) -> None:
    """Its user goes on without it."""
    topic = cluster.topic(2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    cluster.write(*_numbered(topic, 5), *_numbered(topic, 5, 1))
    cluster.log.delete_before({first: 3})
    reader = cluster.offset_reader({first: 0, second: 0})
    found: list[int] = []

    def refused() -> bool:
        try:
            found.extend(reader.offsets(100).get(second, ()))
        except OutOfRange:
            return True
        return False

    eventually(refused)
    assert list(reader.troubled) == [first]
    reader.assign({second: reader.position(second)})
    assert list(reader.troubled) == []
    assert [*found, *offsets_until(reader, {second: 5})[second]] == [0, 1, 2, 3, 4]


def test_all_assigned_partitions_are_read(cluster: Cluster) -> None:
    """Three partitions of one topic, each from its own offset."""
    topic = cluster.topic(3)
    cluster.write(*[record for p in range(3) for record in _numbered(topic, 10, p)])
    starts = {TopicPartition(topic, p): p for p in range(3)}
    found = read_until(cluster.reader(starts), dict.fromkeys(starts, 10))
    assert sorted((r.partition, r.offset) for r in found) == [(p, o) for p in range(3) for o in range(p, 10)]


def test_poll_returns_at_most_as_many_records_as_asked(cluster: Cluster) -> None:
    """And what was held back comes with the next polls."""
    topic = cluster.topic()
    partition = TopicPartition(topic, 0)
    cluster.write(*_numbered(topic, 100))
    reader = cluster.reader({partition: 0})
    sizes = []

    def done() -> bool:
        sizes.append(len(reader.poll(100, max_records=7)))
        return reader.position(partition) == 100

    eventually(done)
    assert max(sizes) <= 7
    assert sum(sizes) == 100


def test_poll_without_records_returns_none_of_them(cluster: Cluster) -> None:
    """An empty partition is no error."""
    topic = cluster.topic()
    reader = cluster.reader({TopicPartition(topic, 0): 0})
    assert list(reader.poll(300)) == []


def test_a_reader_without_partitions_reads_nothing(cluster: Cluster) -> None:
    """An empty assignment is no error either."""
    assert list(cluster.reader({}).poll(50)) == []


def test_a_record_written_while_reading_comes_without_a_new_assignment(cluster: Cluster) -> None:
    """Reading goes on at the end of a partition."""
    topic = cluster.topic()
    reader = cluster.reader({TopicPartition(topic, 0): 0})
    for number in range(3):
        cluster.write(Outgoing(topic, 0, b"%d" % number))
        assert values(read_count(reader, 1)) == [b"%d" % number]


def test_position_is_the_offset_behind_the_last_record_returned(cluster: Cluster) -> None:
    """It begins at the assigned offset."""
    topic = cluster.topic()
    partition = TopicPartition(topic, 0)
    cluster.write(*_numbered(topic, 10))
    reader = cluster.reader({partition: 4})
    assert reader.position(partition) == 4
    found = reader.poll(TIMEOUT_MS, max_records=3)
    assert reader.position(partition) == found[-1].offset + 1


def test_position_of_a_partition_that_is_not_assigned_is_an_error(cluster: Cluster) -> None:
    """Not 0, and not the end."""
    with pytest.raises(LogError):
        cluster.reader({}).position(TopicPartition("nowhere", 0))


def test_a_new_assignment_replaces_the_old_one(cluster: Cluster) -> None:
    """A partition goes, one comes, one is read again from an earlier offset, one goes on."""
    topic = cluster.topic(4)
    cluster.write(*[record for p in range(4) for record in _numbered(topic, 10, p)])
    gone, new, again, on = (TopicPartition(topic, p) for p in range(4))
    reader = cluster.reader({gone: 0, again: 0, on: 0})
    read_until(reader, {gone: 10, again: 10, on: 10})
    reader.assign({new: 2, again: 5, on: 10})
    cluster.write(Outgoing(topic, gone.partition, b"unseen"), Outgoing(topic, on.partition, b"on"))
    found = read_until(reader, {new: 10, again: 10, on: 11})
    expected = {(1, offset) for offset in range(2, 10)} | {(2, offset) for offset in range(5, 10)} | {(3, 10)}
    assert sorted((record.partition, record.offset) for record in found) == sorted(expected)


def test_a_partition_that_stays_is_neither_read_twice_nor_skipped(cluster: Cluster) -> None:
    """S137, P11: re-assigned at its present position in the middle of reading, after every poll."""
    topic = cluster.topic(2)
    partition, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    cluster.write(*_numbered(topic, 2000))
    reader = cluster.reader({partition: 0})
    found = []

    def done() -> bool:
        found.extend(reader.poll(100, max_records=100))
        reader.assign({partition: reader.position(partition), other: 0})
        return reader.position(partition) == 2000

    eventually(done)
    assert [record.offset for record in found] == list(range(2000))


@pytest.mark.parametrize("position", [3, 11])
def test_a_position_outside_the_log_is_an_error_that_names_it(cluster: Cluster, position: int) -> None:
    """Below the log start and above the end; never a silent jump."""
    topic = cluster.topic()
    partition = TopicPartition(topic, 0)
    cluster.write(*_numbered(topic, 10))
    cluster.log.delete_before({partition: 5})
    error = first_error(cluster.reader({partition: position}), OutOfRange)
    assert topic in str(error)
    assert str(position) in str(error)


def test_after_a_position_outside_the_log_a_new_assignment_reads_on(cluster: Cluster) -> None:
    """The error belongs to the position, not to the reader."""
    topic = cluster.topic()
    partition = TopicPartition(topic, 0)
    cluster.write(*_numbered(topic, 10))
    reader = cluster.reader({partition: 99})
    first_error(reader, OutOfRange)
    first_error(reader, OutOfRange)
    reader.assign({partition: 9})
    assert values(read_count(reader, 1)) == [b"9"]


def test_log_start_and_end_are_positions_of_the_log(cluster: Cluster) -> None:
    """The borders themselves are no error."""
    topic = cluster.topic()
    partition = TopicPartition(topic, 0)
    cluster.write(*_numbered(topic, 10))
    cluster.log.delete_before({partition: 5})
    assert values(read_count(cluster.reader({partition: 5}), 5))[0] == b"5"
    assert list(cluster.reader({partition: 10}).poll(300)) == []


def test_retention_that_overtakes_a_reader_is_an_error(cluster: Cluster) -> None:
    """The position was in the log when it was assigned."""
    topic = cluster.topic()
    partition = TopicPartition(topic, 0)
    cluster.write(*_numbered(topic, 10))
    reader = cluster.reader({partition: 10})
    list(reader.poll(100))
    reader.assign({partition: 2})
    cluster.log.delete_before({partition: 8})
    other = cluster.reader({partition: 2})
    first_error(other, OutOfRange)


def test_reading_a_topic_that_does_not_exist_is_an_error(cluster: Cluster) -> None:
    """Rather than waiting for it without a word."""
    missing = cluster.name("missing")
    error = first_error(cluster.reader({TopicPartition(missing, 0): 0}), TopicError)
    assert missing in str(error)


def test_reading_a_partition_that_does_not_exist_is_an_error(cluster: Cluster) -> None:
    """The topic has one partition, number 0."""
    topic = cluster.topic()
    first_error(cluster.reader({TopicPartition(topic, 1): 0}), TopicError)


def test_flush_without_records_returns(cluster: Cluster) -> None:
    """There is nothing to wait for, and the producer writes on."""
    topic = cluster.topic()
    producer = cluster.producer()
    producer.flush(TIMEOUT_MS)
    producer.send(Outgoing(topic, 0, b"v"))
    producer.flush(TIMEOUT_MS)
    producer.flush(TIMEOUT_MS)
    assert values(committed(cluster.log, [TopicPartition(topic, 0)])) == [b"v"]


def test_a_refused_record_is_raised_by_flush_and_names_its_topic(cluster: Cluster) -> None:
    """A compacted topic takes no record without a key."""
    topic = cluster.topic(compacted=True)
    producer = cluster.producer()
    producer.send(Outgoing(topic, 0, b"no key"))
    with pytest.raises(LogError, match=topic):
        producer.flush(TIMEOUT_MS)


def test_a_follower_reads_a_partition_that_it_gets_later_from_its_begin_and_the_others_on(
    cluster: Cluster,
) -> None:
    topic = cluster.topic(2)
    places = [TopicPartition(topic, number) for number in range(2)]
    cluster.write(*_numbered(topic, 3), *_numbered(topic, 2, 1))
    with closing(Follower(cluster.log, places[:1])) as follower:
        assert values(follower.read()) == [b"0", b"1", b"2"]
        follower.follow(places)
        follower.follow(places)
        cluster.write(Outgoing(topic, 0, b"later"))
        found = list(follower.read())
        assert values(each for each in found if each.partition == 0) == [b"later"]
        assert values(each for each in found if each.partition == 1) == [b"0", b"1"]
        assert follower.is_whole


def test_a_record_that_is_too_large_is_raised_by_flush(cluster: Cluster) -> None:
    """And the producer writes on."""
    topic = cluster.topic()
    producer = cluster.producer()
    producer.send(Outgoing(topic, 0, random.Random(1).randbytes(2_000_000)))
    with pytest.raises(LogError, match=topic):
        producer.flush(TIMEOUT_MS)
    producer.send(Outgoing(topic, 0, b"small"))
    producer.flush(TIMEOUT_MS)
    assert values(read_count(cluster.reader({TopicPartition(topic, 0): 0}), 1)) == [b"small"]


def test_writing_to_a_topic_that_does_not_exist_is_raised_by_flush(cluster: Cluster) -> None:
    """A topic that is made by accident would lose data."""
    producer = cluster.producer()
    producer.send(Outgoing(cluster.name("missing"), 0, b"v"))
    with pytest.raises(WindhoverError, match="missing"):
        producer.flush(TIMEOUT_MS)
    assert not cluster.log.topics([cluster.name("missing")])


def test_a_producer_that_did_not_flush_may_be_closed(cluster: Cluster) -> None:
    """Closing does not wait, and does not raise; who writes next is not disturbed."""
    topic = cluster.topic()
    producer = cluster.producer()
    producer.send(Outgoing(topic, 0, b"v"))
    producer.close()
    cluster.write(Outgoing(topic, 0, b"later"))
    assert b"later" in values(committed(cluster.log, [TopicPartition(topic, 0)]))
