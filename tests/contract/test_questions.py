"""What the port promises of the questions that a `Log` answers, and of offsets and retention."""

from __future__ import annotations

import pytest

from acker.errors import LogError, OutOfRange, TopicError
from acker.kafka.port import Outgoing, TopicPartition
from tests.contract.clusters import Cluster, read_count, values
from tests.support.waiting import eventually


def _filled(cluster: Cluster, count: int = 10) -> TopicPartition:
    topic = cluster.topic()
    cluster.write(*[Outgoing(topic, 0, b"%d" % n, timestamp_ms=1000 * (n + 1)) for n in range(count)])
    return TopicPartition(topic, 0)


def test_starts_and_ends_are_told_for_all_partitions_at_once(cluster: Cluster) -> None:
    """Of several topics, empty partitions included."""
    one, two = cluster.topic(2, name="one"), cluster.topic(name="two")
    cluster.write(Outgoing(one, 1, b"1"), Outgoing(two, 0, b"1"), Outgoing(two, 0, b"2"))
    partitions = [TopicPartition(one, 0), TopicPartition(one, 1), TopicPartition(two, 0)]
    expected = dict(zip(partitions, [0, 1, 2], strict=True))
    assert cluster.log.ends(partitions) == expected
    assert cluster.log.stable_ends(partitions) == expected
    assert cluster.log.starts(partitions) == dict.fromkeys(partitions, 0)


def test_questions_about_nothing_have_empty_answers(cluster: Cluster) -> None:
    """They do not even ask the broker."""
    log = cluster.log
    answers = [log.ends([]), log.stable_ends([]), log.starts([]), log.offsets_at([], 0), log.topics([])]
    assert answers == [{}] * 5
    assert log.committed(cluster.name("group"), []) == {}
    log.commit(cluster.name("group"), {})
    log.delete_before({})


def test_ends_of_a_topic_that_does_not_exist_are_an_error(cluster: Cluster) -> None:
    """Which names the topic; a missing partition is one too."""
    missing = cluster.name("missing")
    with pytest.raises(TopicError, match=missing):
        cluster.log.ends([TopicPartition(missing, 0)])
    topic = cluster.topic()
    with pytest.raises(TopicError, match=topic):
        cluster.log.ends([TopicPartition(topic, 1)])


def test_what_is_deleted_is_below_the_start(cluster: Cluster) -> None:
    """The end stays; deleting less than was deleted changes nothing."""
    partition = _filled(cluster)
    cluster.log.delete_before({partition: 4})
    cluster.log.delete_before({partition: 2})
    assert cluster.log.starts([partition]) == {partition: 4}
    assert cluster.log.ends([partition]) == {partition: 10}
    assert values(read_count(cluster.reader({partition: 4}), 6))[0] == b"4"


def test_everything_can_be_deleted(cluster: Cluster) -> None:
    """Start and end are the same then, and offsets go on from there."""
    partition = _filled(cluster)
    cluster.log.delete_before({partition: 10})
    assert cluster.log.starts([partition]) == cluster.log.ends([partition]) == {partition: 10}
    cluster.write(Outgoing(*partition, b"next"))
    assert read_count(cluster.reader({partition: 10}), 1)[0].offset == 10


def test_deleting_behind_the_end_is_an_error(cluster: Cluster) -> None:
    """And deletes nothing."""
    partition = _filled(cluster)
    with pytest.raises(OutOfRange):
        cluster.log.delete_before({partition: 11})
    assert cluster.log.starts([partition]) == {partition: 0}


def test_deleting_from_a_compacted_topic_is_an_error(cluster: Cluster) -> None:
    """Its keys decide what goes."""
    topic = cluster.topic(compacted=True)
    cluster.write(Outgoing(topic, 0, b"value", b"key"))
    with pytest.raises(LogError):
        cluster.log.delete_before({TopicPartition(topic, 0): 1})


def test_deleting_passes_an_open_transaction(cluster: Cluster) -> None:
    """The stable end never lies below the start."""
    topic = cluster.topic()
    partition = TopicPartition(topic, 0)
    owner = cluster.owner()
    owner.begin()
    owner.send(Outgoing(topic, 0, b"open"))
    eventually(lambda: cluster.log.ends([partition]) == {partition: 1})
    cluster.log.delete_before({partition: 1})
    assert cluster.log.stable_ends([partition]) == {partition: 1}


@pytest.mark.parametrize(
    ("timestamp_ms", "offset"), [(0, 0), (1000, 0), (1001, 1), (10_000, 9), (10_001, 10)]
)
def test_offsets_at_a_time_are_those_of_the_first_record_then_or_later(
    cluster: Cluster, timestamp_ms: int, offset: int
) -> None:
    """Ten records, a second apart, from 1,000 on; when none is so late, it is the end."""
    partition = _filled(cluster)
    assert cluster.log.offsets_at([partition], timestamp_ms) == {partition: offset}


def test_offsets_at_a_time_of_an_empty_partition_are_its_end(cluster: Cluster) -> None:
    """Which is 0 for a new one."""
    partition = TopicPartition(cluster.topic(), 0)
    assert cluster.log.offsets_at([partition], 1) == {partition: 0}


def test_topics_are_told_as_the_broker_has_them(cluster: Cluster) -> None:
    """Those that do not exist are left out."""
    topic = cluster.topic(3, compacted=True)
    found = cluster.log.topics([topic, cluster.name("missing")], settings=True)
    assert list(found) == [topic]
    info = found[topic]
    assert (info.name, info.partitions, info.replication) == (topic, 3, 1)
    assert info.settings["cleanup.policy"] == "compact"
    assert {"retention.ms", "min.insync.replicas", "max.message.bytes"} <= set(info.settings)
    assert info.id


def test_a_topic_keeps_its_id_until_it_is_created_anew(cluster: Cluster) -> None:
    """The new one begins at offset 0, and no group has committed anything of it."""
    topic = cluster.topic()
    partition, group = TopicPartition(topic, 0), cluster.name("group")
    before = cluster.log.topics([topic])[topic].id
    assert cluster.new_log().topics([topic])[topic].id == before
    cluster.write(Outgoing(topic, 0, b"old"))
    cluster.log.commit(group, {partition: 1})
    cluster.delete(topic)
    cluster.create(topic)
    assert cluster.log.topics([topic])[topic].id != before
    eventually(lambda: cluster.log.ends([partition]) == {partition: 0})
    eventually(lambda: cluster.log.committed(group, [partition]) == {})


def test_ids_of_different_topics_differ(cluster: Cluster) -> None:
    """An id names one topic of the cluster."""
    found = cluster.log.topics([cluster.topic(name="one"), cluster.topic(name="two")])
    assert len({info.id for info in found.values()}) == 2


def test_offsets_that_a_group_commits_are_kept(cluster: Cluster) -> None:
    """The last one counts, also when it is lower; partitions without one are missing."""
    topic = cluster.topic(3)
    one, two, none = (TopicPartition(topic, p) for p in range(3))
    group = cluster.name("group")
    assert cluster.log.committed(group, [one, two, none]) == {}
    cluster.log.commit(group, {one: 5, two: 0})
    cluster.log.commit(group, {one: 3})
    assert cluster.new_log().committed(group, [one, two, none]) == {one: 3, two: 0}
    assert cluster.log.committed(cluster.name("other"), [one]) == {}


def test_a_text_is_kept_beside_a_committed_offset(cluster: Cluster) -> None:
    """It goes with the next commit; up to 4,000 bytes are kept."""
    topic = cluster.topic(2)
    one, none = TopicPartition(topic, 0), TopicPartition(topic, 1)
    group = cluster.name("group")
    cluster.log.commit(group, {one: 5}, "x" * 4000)
    assert cluster.log.commit_metadata(group, [one, none]) == {one: "x" * 4000}
    assert cluster.log.committed(group, [one]) == {one: 5}
    cluster.log.commit(group, {one: 6})
    assert cluster.log.commit_metadata(group, [one]) == {one: ""}


def test_a_text_that_is_too_long_is_an_error(cluster: Cluster) -> None:
    """And nothing is committed."""
    partition, group = TopicPartition(cluster.topic(), 0), cluster.name("group")
    with pytest.raises(LogError):
        cluster.log.commit(group, {partition: 5}, "x" * 5000)
    assert cluster.log.committed(group, [partition]) == {}


def test_offsets_of_a_group_with_members_cannot_be_committed_from_outside(cluster: Cluster) -> None:
    """Only a transaction, or a member, may move them."""
    topic = cluster.topic()
    partition, group = TopicPartition(topic, 0), cluster.name("group")
    member = cluster.member("group", [topic])
    eventually(lambda: member.poll(100) == {0})
    with pytest.raises(LogError):
        cluster.log.commit(group, {partition: 1})
    assert cluster.log.committed(group, [partition]) == {}
