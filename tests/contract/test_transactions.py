"""What the port promises of `Transactions`, and of readers beside them."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

import pytest

from acker.errors import Fenced, LogError, RecordRefused
from acker.kafka.port import Outgoing, TopicPartition, Transactions
from tests.contract.clusters import TIMEOUT_MS, Cluster, read_count, read_until, values
from tests.support.waiting import eventually


def _both(cluster: Cluster, name: str) -> tuple[str, TopicPartition]:
    topic = cluster.topic(name=name)
    return topic, TopicPartition(topic, 0)


def _ends(cluster: Cluster, partition: TopicPartition) -> tuple[int, int]:
    return cluster.log.stable_ends([partition])[partition], cluster.log.ends([partition])[partition]


def _sent(cluster: Cluster, partition: TopicPartition, end: int) -> None:
    """Wait until what was sent into an open transaction has reached the log."""
    eventually(lambda: cluster.log.ends([partition])[partition] >= end)


def test_what_is_committed_is_visible_to_every_reader(cluster: Cluster) -> None:
    """Committed readers and uncommitted ones see the same records."""
    topic, partition = _both(cluster, "topic")
    cluster.commit(cluster.owner(), Outgoing(topic, 0, b"1"), Outgoing(topic, 0, b"2"))
    for committed in (True, False):
        assert values(read_count(cluster.reader({partition: 0}, committed=committed), 2)) == [b"1", b"2"]


def test_where_each_record_of_a_transaction_stands_is_told_before_the_commit_returns(
    cluster: Cluster,
) -> None:
    """Of one partition in the order of sending, behind the markers of earlier transactions."""
    topic = cluster.topic(2)
    owner = cluster.owner()
    cluster.commit(owner, Outgoing(topic, 0, b"before"))
    placed: list[int] = []
    owner.begin()
    for number in range(500):
        owner.send(Outgoing(topic, 0, b"%d" % number), placed.append if number % 2 else None)
        owner.send(Outgoing(topic, 1, b"beside"))
    owner.commit(TIMEOUT_MS)
    read = read_count(cluster.reader({TopicPartition(topic, 0): 2}), 500)
    assert placed == [record.offset for record in read[1::2]]
    assert values(read[1::2]) == [b"%d" % number for number in range(1, 500, 2)]


def test_a_marker_takes_an_offset(cluster: Cluster) -> None:
    """One record and its commit marker: the end is 2, in both senses."""
    topic, partition = _both(cluster, "topic")
    cluster.commit(cluster.owner(), Outgoing(topic, 0, b"1"))
    assert _ends(cluster, partition) == (2, 2)


def test_an_aborted_record_is_in_the_log_and_invisible_to_committed_readers(cluster: Cluster) -> None:
    """So "not empty" is not "holds a committed record"."""
    topic, partition = _both(cluster, "topic")
    owner = cluster.owner()
    owner.begin()
    owner.send(Outgoing(topic, 0, b"aborted"))
    _sent(cluster, partition, 1)
    owner.abort(TIMEOUT_MS)
    cluster.settled([partition])
    assert _ends(cluster, partition) == (2, 2)
    assert values(read_until(cluster.reader({partition: 0}), {partition: 2})) == []
    uncommitted = cluster.reader({partition: 0}, committed=False)
    assert values(read_until(uncommitted, {partition: 2})) == [b"aborted"]


@pytest.mark.parametrize("committed", [True, False])
def test_a_position_passes_the_markers_at_the_end_of_a_partition(cluster: Cluster, committed: bool) -> None:
    """So that it can be compared with an end; three markers stand between and behind the records."""
    topic, partition = _both(cluster, "topic")
    owner = cluster.owner()
    for number in range(3):
        cluster.commit(owner, Outgoing(topic, 0, b"%d" % number))
    reader = cluster.reader({partition: 0}, committed=committed)
    assert values(read_until(reader, {partition: 6})) == [b"0", b"1", b"2"]
    assert reader.position(partition) == 6


def test_a_position_that_passed_a_marker_can_be_assigned_again(cluster: Cluster) -> None:
    """Behind a marker at the end, and right before it."""
    topic, partition = _both(cluster, "topic")
    owner = cluster.owner()
    cluster.commit(owner, Outgoing(topic, 0, b"1"))
    behind, before = cluster.reader({partition: 2}), cluster.reader({partition: 1})
    cluster.commit(owner, Outgoing(topic, 0, b"2"))
    assert values(read_until(behind, {partition: 4})) == [b"2"]
    assert values(read_until(before, {partition: 4})) == [b"2"]


def test_an_open_transaction_is_visible_to_uncommitted_readers_only(cluster: Cluster) -> None:
    """Its record holds the stable end, and the committed reader, back."""
    topic, partition = _both(cluster, "topic")
    owner = cluster.owner()
    owner.begin()
    owner.send(Outgoing(topic, 0, b"open"))
    assert values(read_count(cluster.reader({partition: 0}, committed=False), 1)) == [b"open"]
    assert _ends(cluster, partition) == (0, 1)
    reader = cluster.reader({partition: 0})
    assert list(reader.poll(300)) == []
    assert reader.position(partition) == 0
    owner.commit(TIMEOUT_MS)
    assert values(read_until(reader, {partition: 2})) == [b"open"]


def test_an_open_transaction_holds_back_what_others_committed_behind_it(cluster: Cluster) -> None:
    """A dead owner of one id hides the records of all, until it is fenced."""
    topic, partition = _both(cluster, "topic")
    slow, quick = cluster.owner("slow"), cluster.owner("quick")
    cluster.commit(quick, Outgoing(topic, 0, b"before"))
    slow.begin()
    slow.send(Outgoing(topic, 0, b"slow"))
    _sent(cluster, partition, 3)
    quick.begin()
    quick.send(Outgoing(topic, 0, b"quick"))
    quick.commit(TIMEOUT_MS)
    cluster.write(Outgoing(topic, 0, b"plain"))
    _sent(cluster, partition, 6)
    assert _ends(cluster, partition) == (2, 6)
    reader = cluster.reader({partition: 0})
    assert values(read_until(reader, {partition: 2})) == [b"before"]
    slow.abort(TIMEOUT_MS)
    assert values(read_until(reader, {partition: 7})) == [b"quick", b"plain"]


def test_a_transaction_over_several_partitions_is_committed_whole(cluster: Cluster) -> None:
    """And a partition that it did not touch gets no marker."""
    topic = cluster.topic(3)
    partitions = [TopicPartition(topic, p) for p in range(3)]
    cluster.commit(cluster.owner(), Outgoing(topic, 0, b"0"), Outgoing(topic, 1, b"1"))
    assert list(cluster.log.ends(partitions).values()) == [2, 2, 0]
    found = read_count(cluster.reader(dict.fromkeys(partitions, 0)), 2)
    assert sorted(str(record.value) for record in found) == [str(b"0"), str(b"1")]


def test_an_aborted_transaction_over_several_partitions_is_gone_whole(cluster: Cluster) -> None:
    """The next transaction of the same owner stands."""
    topic = cluster.topic(2)
    partitions = [TopicPartition(topic, p) for p in range(2)]
    owner = cluster.owner()
    owner.begin()
    for partition in partitions:
        owner.send(Outgoing(*partition, b"aborted"))
    owner.abort(TIMEOUT_MS)
    cluster.commit(owner, *[Outgoing(*partition, b"kept") for partition in partitions])
    found = read_until(cluster.reader(dict.fromkeys(partitions, 0)), cluster.log.ends(partitions))
    assert values(found) == [b"kept", b"kept"]


def test_a_new_owner_ends_the_transaction_of_its_predecessor(cluster: Cluster) -> None:
    """When `init` returns, the stable end has passed what the predecessor left open."""
    topic, partition = _both(cluster, "topic")
    dead = cluster.owner()
    dead.begin()
    dead.send(Outgoing(topic, 0, b"left open"))
    _sent(cluster, partition, 1)
    assert _ends(cluster, partition) == (0, 1)
    cluster.owner()
    assert _ends(cluster, partition) == (2, 2)
    assert values(read_until(cluster.reader({partition: 0}), {partition: 2})) == []


def test_a_closed_writer_leaves_its_transaction_open(cluster: Cluster) -> None:
    """As a crash does; a new owner ends it."""
    topic, partition = _both(cluster, "topic")
    leaving = cluster.owner()
    leaving.begin()
    leaving.send(Outgoing(topic, 0, b"left open"))
    _sent(cluster, partition, 1)
    leaving.close()
    assert _ends(cluster, partition) == (0, 1)
    cluster.owner()
    assert _ends(cluster, partition) == (2, 2)


def test_a_fenced_owner_commits_nothing(cluster: Cluster) -> None:
    """The zombie's commit raises `Fenced`, and so does whatever it tries afterwards."""
    topic, partition = _both(cluster, "topic")
    zombie = cluster.owner()
    zombie.begin()
    zombie.send(Outgoing(topic, 0, b"zombie"))
    _sent(cluster, partition, 1)
    cluster.commit(cluster.owner(), Outgoing(topic, 0, b"new"))
    with pytest.raises(Fenced):
        zombie.commit(TIMEOUT_MS)
    with pytest.raises(Fenced):
        zombie.begin()
    assert values(read_until(cluster.reader({partition: 0}), {partition: 4})) == [b"new"]


def test_a_fenced_owner_cannot_begin_anew_and_commit(cluster: Cluster) -> None:
    """It was fenced between two of its transactions, so it learns it in the next one."""
    topic, partition = _both(cluster, "topic")
    zombie = cluster.owner()
    cluster.commit(zombie, Outgoing(topic, 0, b"while it owned"))
    cluster.owner()
    zombie.begin()
    zombie.send(Outgoing(topic, 0, b"zombie"))
    with pytest.raises(Fenced):
        zombie.commit(TIMEOUT_MS)
    assert values(read_until(cluster.reader({partition: 0}), {partition: 2})) == [b"while it owned"]
    assert _ends(cluster, partition) == (2, 2)


def test_a_fenced_owner_cannot_abort_its_successors_transaction(cluster: Cluster) -> None:
    """Its abort raises; what the successor has open goes on."""
    topic, partition = _both(cluster, "topic")
    zombie = cluster.owner()
    zombie.begin()
    zombie.send(Outgoing(topic, 0, b"zombie"))
    _sent(cluster, partition, 1)
    successor = cluster.owner()
    successor.begin()
    successor.send(Outgoing(topic, 0, b"successor"))
    with pytest.raises(Fenced):
        zombie.abort(TIMEOUT_MS)
    successor.commit(TIMEOUT_MS)
    assert values(read_until(cluster.reader({partition: 0}), {partition: 4})) == [b"successor"]


def test_owners_of_different_ids_do_not_fence_each_other(cluster: Cluster) -> None:
    """One id is one acker partition."""
    topic, partition = _both(cluster, "topic")
    one = cluster.owner("one")
    two = cluster.owner("two")
    cluster.commit(one, Outgoing(topic, 0, b"1"))
    cluster.commit(two, Outgoing(topic, 0, b"2"))
    cluster.commit(one, Outgoing(topic, 0, b"3"))
    assert values(read_until(cluster.reader({partition: 0}), {partition: 6})) == [b"1", b"2", b"3"]


def test_a_refused_record_aborts_the_whole_transaction(cluster: Cluster) -> None:
    """A compacted topic takes no record without a key; the next transaction may be begun at once."""
    topic, partition = _both(cluster, "topic")
    compacted = cluster.topic(name="compacted", compacted=True)
    owner = cluster.owner()
    owner.begin()
    owner.send(Outgoing(topic, 0, b"good"))
    owner.send(Outgoing(compacted, 0, b"without key"))
    with pytest.raises(RecordRefused):
        owner.commit(TIMEOUT_MS)
    cluster.commit(owner, Outgoing(topic, 0, b"written again"))
    end = cluster.log.ends([partition])
    assert values(read_until(cluster.reader({partition: 0}), end)) == [b"written again"]


HOUR_MS = "3600000"
FAR_MS = 1 << 45
INCOMPRESSIBLE = random.Random(1).randbytes(5_000)
REFUSED = {
    "no key": ({"cleanup.policy": "compact"}, {"key": None}, "INVALID_RECORD: Broker: Broker failed to"),
    "dated ahead": (
        {"message.timestamp.after.max.ms": HOUR_MS},
        {"timestamp_ms": FAR_MS},
        "INVALID_TIMESTAMP: Broker: Invalid timestamp",
    ),
    "too old": (
        {"message.timestamp.before.max.ms": HOUR_MS},
        {"timestamp_ms": 1},
        "INVALID_TIMESTAMP: Broker: Invalid timestamp",
    ),
    "too large": (
        {"max.message.bytes": "1000"},
        {"value": INCOMPRESSIBLE},
        "MSG_SIZE_TOO_LARGE: Broker: Message size too large",
    ),
}


def _write_all(owner: Transactions, records: Sequence[Outgoing], *, is_flushed: bool) -> None:
    owner.send_all(records)
    if is_flushed:
        owner.flush(TIMEOUT_MS)
    owner.commit(TIMEOUT_MS)


@pytest.mark.sample(3)
@pytest.mark.parametrize(("settings", "odd", "words"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_refused_record_is_named_by_the_brokers_words_and_the_others_are_taken_without_it(
    cluster: Cluster, settings: dict[str, str], odd: dict[str, Any], words: str, is_flushed: bool
) -> None:
    """O211: so that who wrote it can find it; whether the refusal comes with the flush or with the commit."""
    topic, now_ms = cluster.topic(settings=settings), int(time.time() * 1_000)
    owner = cluster.owner()
    good = [Outgoing(topic, 0, b"%d" % number, b"k", timestamp_ms=now_ms) for number in range(4)]
    for _ in range(2):
        owner.begin()
        with pytest.raises(RecordRefused) as refused:
            _write_all(owner, [*good, good[0]._replace(**odd)], is_flushed=is_flushed)
        assert words in refused.value.reason
        owner.abort(TIMEOUT_MS)
    cluster.commit(owner, *good)
    end = cluster.log.ends([TopicPartition(topic, 0)])
    assert values(read_until(cluster.reader(dict.fromkeys(end, 0)), end)) == [b"0", b"1", b"2", b"3"]


def test_a_refused_record_outside_a_transaction_is_named_too(cluster: Cluster) -> None:
    """O211"""
    topic = cluster.topic(settings={"message.timestamp.after.max.ms": HOUR_MS})
    producer = cluster.producer()
    producer.send(Outgoing(topic, 0, b"v", timestamp_ms=FAR_MS))
    with pytest.raises(RecordRefused) as refused:
        producer.flush(TIMEOUT_MS)
    assert refused.value.reason == "INVALID_TIMESTAMP: Broker: Invalid timestamp"


def test_a_refusal_leaves_no_gap_for_the_next_transaction(cluster: Cluster) -> None:
    """What was queued beside the refused record is dropped; the next transaction stands."""
    topic = cluster.topic(4)
    partitions = [TopicPartition(topic, p) for p in range(4)]
    compacted = cluster.topic(name="compacted", compacted=True)
    for number in range(5):
        owner = cluster.owner(f"{number}")
        owner.begin()
        owner.send_all([Outgoing(*partition, b"dropped") for partition in partitions])
        owner.send(Outgoing(compacted, 0, b"without key"))
        with pytest.raises(RecordRefused):
            owner.commit(TIMEOUT_MS)
        owner.begin()
        owner.send_all(Outgoing(*partition, b"all") for partition in partitions[:2])
        places: list[int] = []
        for partition in partitions[2:]:
            owner.send(Outgoing(*partition, b"each"), places.append)
        owner.commit(TIMEOUT_MS)
        assert len(places) == 2
    found = read_until(cluster.reader(dict.fromkeys(partitions, 0)), cluster.log.ends(partitions))
    assert sorted(values(found)) == [b"all"] * 10 + [b"each"] * 10


def test_a_flush_does_not_meet_what_a_refused_record_left_behind_either(cluster: Cluster) -> None:
    """The transaction after one that was refused stands, in the order in which it was written."""
    topic = cluster.topic(4)
    partitions = [TopicPartition(topic, p) for p in range(4)]
    compacted = cluster.topic(name="compacted", compacted=True)
    for number in range(5):
        owner = cluster.owner(f"{number}")
        owner.begin()
        owner.send_all([Outgoing(*partition, b"dropped") for partition in partitions])
        owner.send(Outgoing(compacted, 0, b"without key"))
        with pytest.raises(RecordRefused):
            owner.commit(TIMEOUT_MS)
        owner.begin()
        owner.send_all(Outgoing(*partition, b"first") for partition in partitions[:2])
        owner.flush(TIMEOUT_MS)
        owner.send_all(Outgoing(*partition, b"second") for partition in partitions[2:])
        owner.commit(TIMEOUT_MS)
    found = read_until(cluster.reader(dict.fromkeys(partitions, 0)), cluster.log.ends(partitions))
    assert sorted(values(found)) == [b"first"] * 10 + [b"second"] * 10


def test_a_record_that_is_refused_again_is_told_again(cluster: Cluster) -> None:
    """A transaction is written once more for what its predecessor left behind, not for its own fault."""
    compacted = cluster.topic(name="compacted", compacted=True)
    owner = cluster.owner()
    for _ in range(2):
        owner.begin()
        owner.send(Outgoing(compacted, 0, b"without key"))
        with pytest.raises(RecordRefused):
            owner.commit(TIMEOUT_MS)


def test_what_was_flushed_is_in_the_log_before_the_rest_and_not_visible(cluster: Cluster) -> None:
    """A transaction that ends early has what was flushed, and nothing of what comes then."""
    first, second = _both(cluster, "first")[1], _both(cluster, "second")[1]
    owner = cluster.owner()
    owner.begin()
    owner.send_all([Outgoing(*first, b"1"), Outgoing(*first, b"2")])
    owner.flush(TIMEOUT_MS)
    assert _ends(cluster, first) == (0, 2)
    owner.send(Outgoing(*second, b"3"))
    owner.commit(TIMEOUT_MS)
    assert values(read_count(cluster.reader({first: 0}), 2)) == [b"1", b"2"]
    assert values(read_count(cluster.reader({second: 0}), 1)) == [b"3"]


def test_an_empty_transaction_commits(cluster: Cluster) -> None:
    """And leaves no trace."""
    _topic, partition = _both(cluster, "topic")
    owner = cluster.owner()
    owner.begin()
    owner.commit(TIMEOUT_MS)
    assert _ends(cluster, partition) == (0, 0)


def test_an_abort_without_a_transaction_does_nothing(cluster: Cluster) -> None:
    """Before the first, and after one that was committed."""
    topic, partition = _both(cluster, "topic")
    owner = cluster.owner()
    owner.abort(TIMEOUT_MS)
    cluster.commit(owner, Outgoing(topic, 0, b"1"))
    owner.abort(TIMEOUT_MS)
    assert values(read_count(cluster.reader({partition: 0}), 1)) == [b"1"]


def test_calls_without_an_open_transaction_are_errors(cluster: Cluster) -> None:
    """`send` and `commit`; neither of them writes anything."""
    topic, partition = _both(cluster, "topic")
    owner = cluster.owner()
    with pytest.raises(LogError):
        owner.send(Outgoing(topic, 0, b"v"))
    with pytest.raises(LogError):
        owner.commit(TIMEOUT_MS)
    assert _ends(cluster, partition) == (0, 0)


def test_a_second_begin_is_an_error(cluster: Cluster) -> None:
    """The open transaction stays as it is."""
    topic, partition = _both(cluster, "topic")
    owner = cluster.owner()
    owner.begin()
    owner.send(Outgoing(topic, 0, b"1"))
    with pytest.raises(LogError):
        owner.begin()
    owner.commit(TIMEOUT_MS)
    assert values(read_count(cluster.reader({partition: 0}), 1)) == [b"1"]


def test_begin_before_init_is_an_error(cluster: Cluster) -> None:
    """A transaction without fencing would be worth nothing."""
    owner = cluster.log.transactions(cluster.name("owner"))
    with pytest.raises(LogError):
        owner.begin()
    owner.close()
