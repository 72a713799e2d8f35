"""What the port promises of leader epochs: a log that was cut and grew again is not the one that was read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pytest

from acker.errors import Disagreement
from acker.kafka.port import NO_EPOCH, Bound, Outgoing, ReadTo, TopicPartition
from spout.local.embedded import EmbeddedBroker
from tests.contract.clusters import Cluster, InMemoryCluster, KafkaCluster, read_count
from tests.support.cut_log import cut_log
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(600)

RECORDS = 15
CUT = 10


class Cuttable(Protocol):
    """A cluster whose logs can be cut."""

    cluster: Cluster

    def cut(self, place: TopicPartition, offset: int) -> None:
        """Lose what was written from an offset on; another leader is elected."""

    def elect(self, place: TopicPartition) -> None:
        """Let another leader be elected that has everything."""


class CuttableMemory:
    """The in-memory cluster."""

    def __init__(self, prefix: str) -> None:
        """Begin an empty cluster."""
        self.memory = InMemoryCluster(prefix)
        self.cluster: Cluster = self.memory

    def cut(self, place: TopicPartition, offset: int) -> None:
        """Cut it."""
        self.memory.memory.partition(place).cut(offset)

    def elect(self, place: TopicPartition) -> None:
        """Elect one."""
        self.memory.memory.elect_leader(*place)


class CuttableKafka:
    """A real broker that no other test uses."""

    def __init__(self, prefix: str, broker: EmbeddedBroker) -> None:
        """Connect to it."""
        self.cluster: Cluster = KafkaCluster(prefix, broker.bootstrap)
        self._broker = broker

    def cut(self, place: TopicPartition, offset: int) -> None:
        """Cut its files."""
        cut_log(self._broker, place, offset)
        eventually(lambda: not self.cluster.log.bounds(Bound.END, [place]).troubles)

    def elect(self, place: TopicPartition) -> None:
        """Start it again."""
        self._broker.restart()
        eventually(lambda: not self.cluster.log.bounds(Bound.END, [place]).troubles)


@pytest.fixture(scope="module")
def own_broker() -> Iterator[EmbeddedBroker]:
    """A broker that may be stopped."""
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(params=["memory", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.slow])])
def cuttable(request: pytest.FixtureRequest, prefix: str) -> Iterator[Cuttable]:
    """A cluster of each kind whose logs can be cut."""
    opened: Cuttable
    if request.param == "memory":
        opened = CuttableMemory(prefix)
    else:
        opened = CuttableKafka(prefix, request.getfixturevalue("own_broker"))
    yield opened
    opened.cluster.close()


def _written(cluster: Cluster, place: TopicPartition, count: int) -> None:
    """Write records, each in a batch of its own."""
    for number in range(count):
        cluster.write(Outgoing(*place, b"%d" % number))


def _filled(cuttable: Cuttable) -> TopicPartition:
    place = TopicPartition(cuttable.cluster.topic(), 0)
    _written(cuttable.cluster, place, RECORDS)
    return place


def _epoch(cuttable: Cuttable, place: TopicPartition) -> int:
    return cuttable.cluster.log.bounds(Bound.END, [place]).epochs[place]


def test_a_log_that_was_cut_and_grew_again_is_intact_to_its_first_lost_offset(cuttable: Cuttable) -> None:
    """O601: whatever was read of it, and though it is longer than it was."""
    place = _filled(cuttable)
    log = cuttable.cluster.log
    epoch = _epoch(cuttable, place)
    assert log.intact_to({place: ReadTo(RECORDS, epoch)}) == {place: RECORDS}

    cuttable.cut(place, CUT)
    _written(cuttable.cluster, place, 2 * RECORDS)

    assert log.ends([place]) == {place: CUT + 2 * RECORDS}
    assert _epoch(cuttable, place) > epoch
    for offset, intact in ((RECORDS, CUT), (CUT + 1, CUT), (CUT, CUT), (CUT - 3, CUT - 3)):
        assert log.intact_to({place: ReadTo(offset, epoch)}) == {place: intact}
    # what is read now is of the new leader
    assert log.intact_to({place: ReadTo(RECORDS, _epoch(cuttable, place))}) == {place: RECORDS}


def test_a_log_that_was_cut_and_did_not_grow_is_found_as_well(cuttable: Cuttable) -> None:
    """O601: its end is the first lost offset."""
    place = _filled(cuttable)
    epoch = _epoch(cuttable, place)
    cuttable.cut(place, CUT)
    assert cuttable.cluster.log.intact_to({place: ReadTo(RECORDS, epoch)}) == {place: CUT}


def test_another_leader_that_has_everything_is_no_cut(cuttable: Cuttable) -> None:
    """O602: its epoch is higher, and all records are as they were."""
    place = _filled(cuttable)
    log = cuttable.cluster.log
    epoch = _epoch(cuttable, place)
    cuttable.elect(place)
    _written(cuttable.cluster, place, 1)
    assert _epoch(cuttable, place) > epoch
    assert log.intact_to({place: ReadTo(RECORDS, epoch)}) == {place: RECORDS}


def test_records_have_the_epoch_of_the_leader_that_wrote_them(cuttable: Cuttable) -> None:
    """O603: so a record that took the place of another one has a higher one."""
    place = _filled(cuttable)
    before = _epoch(cuttable, place)
    cuttable.cut(place, CUT)
    _written(cuttable.cluster, place, RECORDS)
    records = read_count(cuttable.cluster.reader({place: 0}), CUT + RECORDS)
    assert {record.leader_epoch for record in records[:CUT]} == {before}
    assert {record.leader_epoch for record in records[CUT:]} == {_epoch(cuttable, place)}


def test_an_epoch_that_no_leader_had_is_another_cluster_s(cuttable: Cuttable) -> None:
    """O604: nobody can say what was lost, and the error names the partition."""
    place = _filled(cuttable)
    with pytest.raises(Disagreement, match=place.topic):
        cuttable.cluster.log.intact_to({place: ReadTo(RECORDS, _epoch(cuttable, place) + 7)})


def test_several_partitions_are_asked_about_at_once(cuttable: Cuttable) -> None:
    """O601: each has its own answer, an empty one too."""
    topic = cuttable.cluster.topic(3)
    places = [TopicPartition(topic, number) for number in range(3)]
    for place in places[:2]:
        _written(cuttable.cluster, place, RECORDS)
    epochs = cuttable.cluster.log.bounds(Bound.STABLE_END, places).epochs
    cuttable.cut(places[1], CUT)
    read = {place: ReadTo(RECORDS if place in places[:2] else 0, epochs[place]) for place in places}
    answers = cuttable.cluster.log.intact_to(read)
    assert answers == {places[0]: RECORDS, places[1]: CUT, places[2]: 0}


def test_a_commit_keeps_the_epoch_with_its_offset(cluster: Cluster) -> None:
    """O605: where one is known; a commit without one has none."""
    topic = cluster.topic(3)
    places = [TopicPartition(topic, number) for number in range(3)]
    group = cluster.name("group")
    cluster.log.commit(group, dict.fromkeys(places[:2], 5), "text", {places[0]: 7})
    assert cluster.log.committed_epochs(group, places) == {places[0]: 7}
    assert cluster.log.committed(group, places) == dict.fromkeys(places[:2], 5)
    cluster.log.commit(group, {places[0]: 6}, "text")
    assert cluster.log.committed_epochs(group, places) == {}


def test_a_start_tells_no_epoch(cluster: Cluster) -> None:
    """O605: Kafka has that of the first record there, which is no leader's of now."""
    place = TopicPartition(cluster.topic(), 0)
    assert cluster.log.bounds(Bound.START, [place]).epochs == {}
    assert cluster.log.bounds(Bound.END, [place]).epochs[place] > NO_EPOCH
