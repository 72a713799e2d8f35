"""What the port promises of records that nobody expects: they are read, and their neighbours with them."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace

import pytest

from acker.errors import LogError
from acker.kafka.port import Outgoing, TopicPartition, UnreadableName
from tests.contract.clusters import TIMEOUT_MS, Cluster, pick_all, read_count
from tests.support.odd_records import NAMES, NO_UTF8, ODD_RECORDS, OddRecord, odd_record
from tests.support.raw_records import Codec

SMALL_BYTES = 100_000
"""Thirty such records fit into a batch that a broker takes by default."""

CALLS_THAT_SPECIALISE = 200
"""After some of the same calls Python replaces the instruction by one that looks for no pending exception."""


@pytest.mark.parametrize("odd", ODD_RECORDS, ids=lambda odd: odd.kind)
@pytest.mark.parametrize("by", ["reader", "picker"])
def test_an_odd_record_is_read_between_its_neighbours(cluster: Cluster, odd: OddRecord, by: str) -> None:
    """O101: what can be read of it is there; a name that cannot be has a placeholder, and keeps its value."""
    place = TopicPartition(cluster.topic(), 0)
    cluster.write(Outgoing(*place, b"before"))
    offset = cluster.write_raw(place, odd)
    cluster.write(Outgoing(*place, b"behind"))
    if by == "reader":
        before, found, behind = read_count(cluster.reader({place: 0}), 3)
    else:
        before, found, behind = pick_all(cluster.picker({place: 0}), {place: range(3)}, {place: 3})
    assert (before.value, behind.value) == (b"before", b"behind")
    assert found[:6] == (*place, offset, odd.record.key, odd.record.value, odd.headers)
    assert found.unreadable_names == tuple(
        name for name, _ in odd.headers if isinstance(name, UnreadableName)
    )


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("by", ["reader", "picker"])
def test_odd_records_in_packed_batches_are_read_as_others(cluster: Cluster, codec: Codec, by: str) -> None:
    """O124: of each kind one, and as many that are drawn, with sound ones between; none is lost or bent."""
    place = TopicPartition(cluster.topic(), 0)
    draw = random.Random(codec.value)
    kinds = [odd for odd in ODD_RECORDS if odd.record.size < SMALL_BYTES]
    odds = [*kinds, *(odd_record(draw) for _ in kinds)]
    draw.shuffle(odds)
    written: list[OddRecord] = []
    while len(written) < len(odds):
        batch = odds[len(written) : len(written) + draw.randint(1, 30)]
        # the times of a batch are kept as differences from its first one, of 64 bits
        batch = [replace(odd, record=replace(odd.record, timestamp_ms=None)) for odd in batch]
        assert cluster.write_odd_batch(place, batch, codec) == len(written)
        written += batch
    if by == "reader":
        found = read_count(cluster.reader({place: 0}), len(written))
    else:
        found = pick_all(cluster.picker({place: 0}), {place: range(len(written))}, {place: len(written)})
    assert [(record.offset, *record[3:6]) for record in found] == [
        (offset, odd.record.key, odd.record.value, odd.headers) for offset, odd in enumerate(written)
    ]


def test_many_records_with_names_that_cannot_be_read_are_all_read(cluster: Cluster) -> None:
    """O101: also when Python has run the same lines often, and calls the client in its quickest way."""
    place = TopicPartition(cluster.topic(), 0)
    kinds = [NAMES[number % len(NAMES)] for number in range(CALLS_THAT_SPECIALISE)]
    for odd in kinds:
        cluster.write_raw(place, odd)
    found = read_count(cluster.reader({place: 0}), len(kinds))
    assert [record.headers for record in found] == [odd.headers for odd in kinds]
    assert pickle.loads(pickle.dumps(found)) == found
    assert [record.unreadable_names for record in pickle.loads(pickle.dumps(found))] == [
        record.unreadable_names for record in found
    ], "another process sees which names are placeholders"


def test_no_client_writes_a_placeholder_as_if_it_were_the_name(cluster: Cluster) -> None:
    """O102: the record would get another header; nothing of it is written."""
    topic = cluster.topic()
    bent = Outgoing(topic, 0, b"v", headers=(("a", b"1"), (UnreadableName.of(NO_UTF8), b"2")))
    producer, owner = cluster.producer(), cluster.owner()

    def write_outside() -> None:
        producer.send(bent)
        producer.flush(TIMEOUT_MS)

    def write_in_transaction() -> None:
        owner.begin()
        owner.send(bent)
        owner.commit(TIMEOUT_MS)

    for write in (write_outside, write_in_transaction):
        with pytest.raises(LogError, match=r"no UTF-8.*\\xff\\xfe"):
            write()
    with_placeholder = bent._replace(headers=tuple((str(name), value) for name, value in bent.headers))
    cluster.write(with_placeholder)
    [record] = read_count(cluster.reader({TopicPartition(topic, 0): 0}), 1)
    assert (record.headers, record.unreadable_names) == (with_placeholder.headers, ())
