"""What the port promises of `Membership`."""

from __future__ import annotations

from acker.errors import TopicError
from acker.kafka.port import Membership, TopicPartition
from tests.contract.clusters import Cluster
from tests.support.waiting import eventually


def _share(*members: Membership) -> list[frozenset[int]]:
    return [member.poll(100) for member in members]


def _shared(partitions: int, *members: Membership) -> bool:
    """Tell whether the members own all partitions between them, each one once, and no member waits."""
    owned = _share(*members)
    waiting = owned.count(frozenset())
    return (
        waiting == max(0, len(members) - partitions)
        and sum(map(len, owned)) == partitions
        and frozenset().union(*owned) == set(range(partitions))
    )


def _fails(member: Membership) -> bool:
    try:
        member.poll(100)
    except TopicError:
        return True
    return False


def test_a_single_member_owns_all_partitions(cluster: Cluster) -> None:
    """One number stands for that partition of every topic."""
    topics = [cluster.topic(3, name="one"), cluster.topic(3, name="two")]
    member = cluster.member("group", topics)
    eventually(lambda: member.poll(100) == {0, 1, 2})


def test_two_members_share_the_partitions(cluster: Cluster) -> None:
    """Each number belongs to one of them, and neither has none."""
    topics = [cluster.topic(4, name="one"), cluster.topic(4, name="two")]
    first = cluster.member("group", topics)
    eventually(lambda: _shared(4, first))
    second = cluster.member("group", topics)
    eventually(lambda: _shared(4, first, second))
    assert [len(owned) for owned in _share(first, second)] == [2, 2]


def test_a_member_too_many_owns_nothing(cluster: Cluster) -> None:
    """It waits for a place; that is no error."""
    topic = cluster.topic()
    first = cluster.member("group", [topic])
    eventually(lambda: _shared(1, first))
    second = cluster.member("group", [topic])
    eventually(lambda: _shared(1, first, second))


def test_a_partition_that_stays_is_owned_throughout_a_rebalance(cluster: Cluster) -> None:
    """What is taken away and given back at once must not be dropped and restored."""
    topic = cluster.topic(2)
    first = cluster.member("group", [topic])
    eventually(lambda: _shared(2, first))
    second = cluster.member("group", [topic])
    seen = []

    def settled() -> bool:
        seen.append(first.poll(50))
        return len(second.poll(50)) == 1 and len(seen[-1]) == 1

    eventually(settled)
    assert frozenset() not in seen
    assert all(seen[-1] <= owned for owned in seen)


def test_a_member_that_leaves_hands_its_partitions_over_at_once(cluster: Cluster) -> None:
    """Without waiting for its session to time out, which would take longer than this test may."""
    topic, log = cluster.topic(2), cluster.new_patient_log()
    first = cluster.member("group", [topic], log)
    eventually(lambda: _shared(2, first))
    second = cluster.member("group", [topic], log)
    eventually(lambda: _shared(2, first, second))
    second.close()
    eventually(lambda: _shared(2, first))


def test_a_member_that_vanishes_loses_its_partitions(cluster: Cluster) -> None:
    """Some seconds later, without a word of it."""
    topic = cluster.topic(2)
    first, second = cluster.member("group", [topic]), cluster.member("group", [topic])
    eventually(lambda: _shared(2, first, second))
    cluster.vanish(second)
    eventually(lambda: _shared(2, first))


def test_a_member_that_vanished_may_come_back(cluster: Cluster) -> None:
    """It was only slow; polling gives it a place again."""
    topic = cluster.topic(2)
    first, second = cluster.member("group", [topic]), cluster.member("group", [topic])
    eventually(lambda: _shared(2, first, second))
    cluster.vanish(second)
    eventually(lambda: _shared(2, first))
    eventually(lambda: _shared(2, first, second))


def test_groups_do_not_share_with_each_other(cluster: Cluster) -> None:
    """Each group has all partitions."""
    topic = cluster.topic(2)
    one, two = cluster.member("one", [topic]), cluster.member("two", [topic])
    eventually(lambda: _shared(2, one) and _shared(2, two))


def test_joining_for_topics_of_different_sizes_is_an_error(cluster: Cluster) -> None:
    """One number would belong to different members, or to none."""
    member = cluster.member("group", [cluster.topic(2, name="two"), cluster.topic(3, name="three")])
    eventually(lambda: _fails(member))


def test_joining_for_a_topic_that_does_not_exist_is_an_error(cluster: Cluster) -> None:
    """Rather than waiting for it without a word."""
    member = cluster.member("group", [cluster.name("missing")])
    eventually(lambda: _fails(member))


def test_the_offsets_of_a_group_follow_while_it_has_members(cluster: Cluster) -> None:
    """Without anybody waiting for them; the last ones count."""
    topic = cluster.topic(2)
    group, places = cluster.name("group"), [TopicPartition(topic, number) for number in range(2)]
    member = cluster.member("group", [topic])
    eventually(lambda: _shared(2, member))
    for offset in range(1, 4):
        member.commit_soon(dict.fromkeys(places, offset))
    eventually(
        lambda: _shared(2, member) and cluster.log.committed(group, places) == dict.fromkeys(places, 3)
    )


def test_what_a_member_commits_last_is_there_when_it_has_left(cluster: Cluster) -> None:
    """Also where the one before was not long ago."""
    topic = cluster.topic()
    place = TopicPartition(topic, 0)
    member = cluster.member("group", [topic])
    eventually(lambda: _shared(1, member))
    member.commit_soon({place: 1})
    eventually(
        lambda: _shared(1, member) and cluster.log.committed(cluster.name("group"), [place]) == {place: 1}
    )
    member.commit_soon({place: 2})
    member.close()
    assert cluster.log.committed(cluster.name("group"), [place]) == {place: 2}


def test_a_member_commits_nothing_for_what_another_one_has(cluster: Cluster) -> None:
    """Whoever has lost a partition knows less of it than its new owner."""
    topic = cluster.topic(2)
    group, places = cluster.name("group"), [TopicPartition(topic, number) for number in range(2)]
    first, second = cluster.member("group", [topic]), cluster.member("group", [topic])
    eventually(lambda: _shared(2, first, second))
    theirs = next(place for place in places if place.partition not in first.poll(100))
    first.commit_soon(dict.fromkeys(places, 5))
    second.commit_soon({theirs: 7})

    def follow() -> bool:
        return _shared(2, first, second) and len(cluster.log.committed(group, places)) == len(places)

    eventually(follow)
    assert cluster.log.committed(group, places) == {**dict.fromkeys(places, 5), theirs: 7}


def test_the_members_of_a_group_are_told_apart_and_have_their_partitions(cluster: Cluster) -> None:
    """So that `status` says where no process lives, and the page which one owns what."""
    topic, log = cluster.topic(2), cluster.log
    group = cluster.name("counted")
    assert list(log.members(group)) == []
    first, second = cluster.member("counted", [topic]), cluster.member("counted", [topic])
    eventually(lambda: _shared(2, first, second))
    owned = {member.poll(100) for member in (first, second)}

    def named() -> bool:  # while the group shares them out, nobody says which partitions are whose
        return {each.partitions for each in log.members(group)} == owned

    eventually(named)
    first.close()
    second.close()
    eventually(lambda: not log.members(group))
