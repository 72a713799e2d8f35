"""Batches that unpack to much more than they weigh, on a real broker: they are read in small parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from acker.errors import Damaged
from acker.kafka.port import Picker, Reader, Record, TopicPartition
from acker.kafka.reader import TAKEN_BYTES_MAX
from tests.contract.clusters import KafkaCluster, read_until
from tests.support.brokers import Broker
from tests.support.raw_records import Codec
from tests.support.waiting import eventually

LARGE_BYTES = 1_000_000
RECORDS = 40
FEW = 32
"""So many records may be taken before anything is known of their sizes."""


@pytest.fixture
def kafka_cluster(broker: Broker, prefix: str) -> Iterator[KafkaCluster]:
    """A real broker's cluster; what was opened is closed."""
    opened = KafkaCluster(prefix, broker.bootstrap)
    yield opened
    opened.close()


def read_all(cluster: KafkaCluster, place: TopicPartition, by: str) -> list[list[Record]]:
    """Read a partition to its end, by single records or by all; return what each poll returned."""
    end = cluster.log.ends([place])[place]
    reader, poll = poll_of(cluster, place, by, end)
    polls: list[list[Record]] = []

    def is_at_end() -> bool:
        polls.append(poll())
        return reader.position(place) == end

    eventually(is_at_end)
    return polls


def poll_of(
    cluster: KafkaCluster, place: TopicPartition, by: str, end: int
) -> tuple[Reader | Picker, Callable[[], list[Record]]]:
    """Return a reader of a partition, and how it is asked for all that is there."""
    if by == "picker":
        picker = cluster.picker({place: 0})
        return picker, lambda: [*picker.pick(100, {place: range(end)}, 5_000).records]
    reader = cluster.reader({place: 0})
    return reader, lambda: [*reader.poll(100, 5_000)]


@pytest.mark.parametrize("by", ["reader", "picker"])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_a_batch_that_unpacks_to_much_is_read_in_parts(
    kafka_cluster: KafkaCluster, codec: Codec, by: str
) -> None:
    """O1915: 40 MB of a few dozen kilobytes; none is lost, and no poll copies all of them."""
    place = TopicPartition(kafka_cluster.topic(), 0)
    kafka_cluster.write_batch(place, [b"before"])
    kafka_cluster.write_batch(place, [bytes(LARGE_BYTES)] * RECORDS, codec)
    kafka_cluster.write_batch(place, [b"behind"])
    polls = read_all(kafka_cluster, place, by)
    records = [record for poll in polls for record in poll]
    assert [record.offset for record in records] == list(range(RECORDS + 2))
    largest = max(sum(len(record.value or b"") for record in poll) for poll in polls)
    assert largest <= max(TAKEN_BYTES_MAX, FEW * LARGE_BYTES) + LARGE_BYTES


def test_zstd_that_unpacks_to_more_than_the_client_takes_is_passed_over_alone(
    kafka_cluster: KafkaCluster,
) -> None:
    """O1915, O1918: as a damaged batch is, with its place and the setting, and not called damaged."""
    place = TopicPartition(kafka_cluster.topic(), 0)
    kafka_cluster.write_batch(place, [b"before"])
    bomb = kafka_cluster.write_batch(place, [bytes(LARGE_BYTES)] * 101, Codec.ZSTD)
    kafka_cluster.write_batch(place, [b"behind"])
    reader = kafka_cluster.reader({place: 0})
    values: list[bytes | None] = []
    reported: list[Damaged] = []

    def is_reported() -> bool:
        try:
            values.extend(record.value for record in reader.poll(100))
        except Damaged as error:
            reported.append(error)
        return bool(reported)

    eventually(is_reported)
    assert (reported[0].first, values) == (bomb.start, [b"before"])
    assert "to more than receive.message.max.bytes" in str(reported[0])
    assert "damaged" not in str(reported[0])
    assert reader.pass_over(place)[2:4] == (bomb.start, bomb.stop)
    assert [record.value for record in read_until(reader, {place: bomb.stop + 1})] == [b"behind"]
