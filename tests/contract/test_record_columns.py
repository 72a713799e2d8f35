"""What the port promises of records that are given by columns: they are as the same ones, sent one by one."""

from __future__ import annotations

import time

import pytest

from acker.errors import RecordRefused
from acker.kafka.port import OutgoingColumns, Record, TopicPartition
from tests.contract.clusters import TIMEOUT_MS, Cluster, read_until, values

RECORDS = 2_500
"""More than lie between two polls for callbacks."""


def _read(cluster: Cluster, topic: str, partitions: int) -> list[Record]:
    """Return the committed records of a topic, by partition."""
    ends = cluster.log.ends([TopicPartition(topic, number) for number in range(partitions)])
    records = read_until(cluster.reader(dict.fromkeys(ends, 0)), ends)
    return sorted(records, key=lambda record: (record.partition, record.offset))


def _numbered(topic: str, count: int) -> OutgoingColumns:
    return OutgoingColumns(topic, [0] * count, [b"%d" % number for number in range(count)])


def test_records_of_columns_have_what_the_columns_have_in_their_order(cluster: Cluster) -> None:
    topic, numbers = cluster.topic(3), range(RECORDS)
    now_ms = int(time.time() * 1_000)
    columns = OutgoingColumns(
        topic,
        [number % 3 for number in numbers],
        [None if number % 5 == 0 else b"v%d" % number for number in numbers],
        [None if number % 7 == 0 else b"" if number % 7 == 1 else b"\x00%d" % number for number in numbers],
        [(("name", b"%d" % number), ("none", None)) if number % 2 else () for number in numbers],
        [None if number % 11 == 0 else now_ms + number for number in numbers],
    )
    owner = cluster.owner()
    owner.begin()
    owner.send_columns(columns)
    owner.commit(TIMEOUT_MS)
    records = _read(cluster, topic, 3)
    assert len(records) == RECORDS
    sent = sorted(columns.records(), key=lambda record: record.partition)
    for record, outgoing in zip(records, sent, strict=True):
        assert (record.partition, record.value, record.key, record.headers) == (
            outgoing.partition,
            outgoing.value,
            outgoing.key,
            outgoing.headers,
        )
        assert outgoing.timestamp_ms in (None, record.timestamp_ms)


def test_columns_and_single_records_keep_the_order_of_their_calls(cluster: Cluster) -> None:
    topic = cluster.topic()
    columns = _numbered(topic, RECORDS)
    owner = cluster.owner()
    owner.begin()
    owner.send(columns.record(0)._replace(value=b"first"))
    owner.send_columns(columns)
    owner.send_all([columns.record(0)._replace(value=b"last")])
    owner.commit(TIMEOUT_MS)
    assert values(_read(cluster, topic, 1)) == [b"first", *columns.values, b"last"]


@pytest.mark.parametrize("row", [0, 1_700, RECORDS - 1], ids=["first", "middle", "last"])
def test_a_record_that_is_refused_among_columns_fails_the_commit_and_leaves_nothing(
    cluster: Cluster, row: int
) -> None:
    """O211: and the next transaction stands, each record once."""
    topic, compacted = cluster.topic(4), cluster.topic(name="compacted", compacted=True)
    keys: list[bytes | None] = [b"k"] * RECORDS
    keys[row] = None  # a compacted topic takes no record without a key
    beside = OutgoingColumns(topic, [number % 4 for number in range(8)], [b"beside"] * 8)
    owner = cluster.owner()
    for _ in range(2):
        owner.begin()
        owner.send_columns(beside)
        owner.send_columns(OutgoingColumns(compacted, [0] * RECORDS, [b"v"] * RECORDS, keys))
        with pytest.raises(RecordRefused) as refused:
            owner.commit(TIMEOUT_MS)
        assert "INVALID_RECORD" in refused.value.reason
    owner.begin()
    owner.send_columns(beside)
    owner.commit(TIMEOUT_MS)
    assert values(_read(cluster, topic, 4)) == [b"beside"] * 8
    assert _read(cluster, compacted, 1) == []


def test_columns_of_several_lengths_are_refused() -> None:
    """The records behind the end of the shorter one would be lost."""
    with pytest.raises(ValueError, match="for words have several lengths"):
        OutgoingColumns("words", [0, 0], [b"1", b"2"], [b"k"])
