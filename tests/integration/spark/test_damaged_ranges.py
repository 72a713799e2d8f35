"""Exact ranges of partitions with damaged batches, from a real broker: all but the batch is returned."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from acker.kafka.cluster import KafkaLog
from acker.kafka.port import TopicPartition
from spout.local.embedded import EmbeddedBroker
from spout.streaming import consume
from spout.streaming.consume import KeptConsumers, RangeReader, Share, TaskReader, Together
from tests.support.brokers import Broker
from tests.support.damage import Damage, batches, spoil
from tests.support.raw_records import Codec, RawRecord, encode_batch, produce
from tests.support.waiting import eventually

BATCH_RECORDS = 10
SILENT = (Damage.PACKED, Damage.LONG_LENGTH)
"""Of these the client says nothing where the records are not compressed."""


class Topic:
    """A topic with batches of ten records, some of them damaged."""

    def __init__(self, broker: Broker, name: str, partitions: int = 1) -> None:
        assert isinstance(broker, EmbeddedBroker)
        self.name = name
        self.settings = {"bootstrap.servers": broker.bootstrap, "check.crcs": "false"}
        self._data = broker.directory / "data"
        self._bootstrap = broker.bootstrap
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
            future.result(30)
        log = KafkaLog(self.settings)
        eventually(lambda: name in log.topics([name]))

    def write(self, count: int, codec: Codec = Codec.NONE, partition: int = 0) -> None:
        for batch in range(count):
            values = [b"%d of batch %d" % (number, batch) for number in range(BATCH_RECORDS)]
            records = [RawRecord(value) for value in values]
            produce(self._bootstrap, TopicPartition(self.name, partition), encode_batch(records, codec))

    def spoil(self, batch: int, damage: Damage, partition: int = 0) -> None:
        spoil(batches(self._data, TopicPartition(self.name, partition))[batch], damage)

    def read(self, start: int, end: int) -> tuple[list[int | None], list[tuple[int, int]]]:
        """Return the offsets of what a range has, and those that cannot be read."""
        reader = RangeReader(self.settings, Share(self.name, 0, start, end), KeptConsumers())
        found = [message.offset() for chunk in reader.chunks() for message in chunk]
        return found, [(run.start, run.end) for run in reader.damaged]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume, "STALL_MS", 2_000)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("damage", "codec"),
    [
        (Damage.VALUE, Codec.NONE),
        (Damage.VALUE, Codec.ZSTD),
        (Damage.PACKED, Codec.LZ4),
        (Damage.PACKED, Codec.NONE),
        (Damage.MAGIC, Codec.NONE),
        (Damage.SHORT_LENGTH, Codec.NONE),
        (Damage.LAST_OFFSET, Codec.NONE),
    ],
    ids=lambda each: each.name.lower(),
)
def test_a_range_has_all_but_its_damaged_batch(
    broker: Broker, prefix: str, damage: Damage, codec: Codec
) -> None:
    """O351: also where the client is silent, or the user's settings switch the checksums off."""
    topic = Topic(broker, f"{prefix}t")
    topic.write(6, codec)
    topic.spoil(2, damage)
    found, damaged = topic.read(5, 55)
    [(start, end)] = damaged
    assert start == 20
    assert found == [*range(5, 20), *range(end, 55)]
    # a broker that cannot read a batch's head finds nothing behind it, up to the next entry of its index
    assert end == 30 if damage is not Damage.SHORT_LENGTH else end >= 30


@pytest.mark.parametrize(
    ("start", "end", "expected", "left_out"),
    [
        (20, 30, [], [(20, 30)]),
        (25, 35, range(30, 35), [(25, 30)]),
        (15, 25, range(15, 20), [(20, 25)]),
        (22, 27, [], [(22, 27)]),
        (30, 40, range(30, 40), []),
        (50, 60, [], [(50, 60)]),
    ],
)
def test_a_range_that_a_damaged_batch_reaches_across_leaves_out_its_part_alone(
    broker: Broker, prefix: str, start: int, end: int, expected: range, left_out: list[tuple[int, int]]
) -> None:
    """O352: first, middle and last batch; each range tells of its own offsets."""
    topic = Topic(broker, f"{prefix}t")
    topic.write(6)
    topic.spoil(2, Damage.VALUE)
    topic.spoil(5, Damage.VALUE)
    assert topic.read(start, end) == ([*expected], left_out)


def test_ranges_that_are_read_together_are_whole_but_for_the_damaged_batch(
    broker: Broker, prefix: str
) -> None:
    """O353: a partition's trouble takes nothing from the others, in this task and in the next."""
    topic = Topic(broker, f"{prefix}t", partitions=3)
    for partition in range(3):
        topic.write(4, Codec.LZ4, partition)
    topic.spoil(1, Damage.VALUE, partition=1)
    kept, together = KeptConsumers(), Together()
    for _ in range(2):
        shares = [Share(topic.name, partition, 0, 40) for partition in range(3)]
        task = TaskReader(topic.settings, shares, kept, together)
        found = {
            share.partition: [message.offset() for chunk in task.chunks(share) for message in chunk]
            for share in shares
        }
        assert found == {0: [*range(40)], 1: [*range(10), *range(20, 40)], 2: [*range(40)]}
        assert [run[1:4] for run in task.damaged] == [(1, 10, 20)]
