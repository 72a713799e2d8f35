"""What the port promises where one partition of several has no leader."""

from __future__ import annotations

import re

import pytest

from acker.errors import PartitionStands, TopicError
from acker.kafka.port import Bound, Outgoing, TopicPartition
from tests.contract.clusters import LOST, Spread, values
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(600)

RECORDS = 4
BOUNDS = [(Bound.START, 2), (Bound.END, RECORDS), (Bound.STABLE_END, RECORDS), (3_000, 2), (9_000, RECORDS)]
"""What is asked for, a wall time in ms among it, and the answer of each partition that has a leader."""


def filled(spread: Spread, name: str = "topic") -> list[TopicPartition]:
    """Create a topic of three partitions with records of the seconds 1 to 4, the first two deleted."""
    topic = spread.spread_topic(name)
    places = [TopicPartition(topic, number) for number in range(3)]
    records = [
        Outgoing(*place, b"%d" % number, timestamp_ms=1_000 * (number + 1))
        for place in places
        for number in range(RECORDS)
    ]
    spread.cluster.write(*records)
    assert spread.cluster.log.delete_before(dict.fromkeys(places, 2)) == {}
    return places


def lose_leader(spread: Spread, places: list[TopicPartition]) -> None:
    """Take it away, and wait until the other brokers know it: at first a broker that died is only silent."""
    spread.lose_leader()
    eventually(
        lambda: "no leader" in spread.cluster.log.bounds(Bound.END, places).troubles.get(places[LOST], "")
    )


def test_a_question_is_answered_for_the_partitions_that_have_a_leader(spread: Spread) -> None:
    """O401: the others are named, with what is the matter; soon, however often one asks."""
    places = filled(spread)
    log = spread.cluster.log
    for bound, answer in BOUNDS:
        known = log.bounds(bound, places)
        assert (dict(known.offsets), known.troubles) == (dict.fromkeys(places, answer), {})

    lose_leader(spread, places)

    lost = places[LOST]
    sound = [place for place in places if place != lost]
    for bound, answer in BOUNDS:
        known = log.bounds(bound, places)
        assert dict(known.offsets) == dict.fromkeys(sound, answer)
        assert re.fullmatch(r"has no leader: its replicas are on broker \d", known.troubles[lost])
        alone = log.bounds(bound, [lost])
        assert (dict(alone.offsets), set(alone.troubles)) == ({}, {lost})

    spread.elect_leader()
    eventually(lambda: log.bounds(Bound.END, places).offsets == dict.fromkeys(places, RECORDS))


def test_who_needs_all_partitions_is_told_which_has_no_answer(spread: Spread) -> None:
    """O402: at the deadline; the addresses of brokers of which most answer say nothing of what is wrong."""
    places = filled(spread)
    log = spread.cluster.log
    lose_leader(spread, places)

    named = rf"{places[LOST].topic}/{LOST} has no leader: its replicas are on broker \d"
    for ask in (log.ends, log.stable_ends, log.starts, lambda every: log.offsets_at(every, 1)):
        with pytest.raises(PartitionStands, match=named):
            ask(places)


def test_a_partition_that_does_not_exist_is_an_error_beside_one_without_a_leader(spread: Spread) -> None:
    """It will not pass."""
    places = filled(spread)
    spread.lose_leader()
    for missing in (TopicPartition(places[0].topic, 3), TopicPartition(spread.cluster.name("none"), 0)):
        for some in ([*places, missing], [places[LOST], missing]):
            with pytest.raises(TopicError, match=missing.topic):
                spread.cluster.log.bounds(Bound.END, some)


def test_records_of_the_others_are_read_and_those_of_the_lost_one_come_with_its_leader(
    spread: Spread,
) -> None:
    """Its position stands meanwhile."""
    places = filled(spread)
    spread.lose_leader()
    reader = spread.cluster.reader(dict.fromkeys(places, 2))
    got = dict.fromkeys(places, 0)

    def read() -> None:
        for record in reader.poll(100):
            got[TopicPartition(record.topic, record.partition)] += 1

    sound = [place for place in places if place != places[LOST]]
    eventually(lambda: all(got[place] == RECORDS - 2 for place in sound), step=read)
    assert (got[places[LOST]], reader.position(places[LOST])) == (0, 2)
    spread.elect_leader()
    eventually(lambda: got[places[LOST]] == RECORDS - 2, step=read)


def test_what_is_written_to_the_others_is_in_the_log(spread: Spread) -> None:
    """The flush fails and names the partition; what waits is written once it has a leader."""
    places = filled(spread)
    spread.lose_leader()
    producer = spread.cluster.producer()
    for place in places:
        producer.send(Outgoing(*place, b"new"))
    with pytest.raises(PartitionStands, match=rf"{places[LOST].topic}/{LOST} has no leader"):
        producer.flush(15_000)
    sound = {place: RECORDS + 1 for place in places if place != places[LOST]}
    assert spread.cluster.log.bounds(Bound.END, places).offsets == sound
    spread.elect_leader()
    producer.flush(60_000)
    assert spread.cluster.log.ends(places) == dict.fromkeys(places, RECORDS + 1)


def test_a_transaction_that_writes_to_it_is_in_doubt_and_names_it(spread: Spread) -> None:
    """A new owner finds out what became of it."""
    places = filled(spread)
    owner = spread.cluster.owner()
    spread.lose_leader()
    owner.begin()
    for place in places:
        owner.send(Outgoing(*place, b"new"))
    with pytest.raises(PartitionStands, match=rf"{places[LOST].topic}/{LOST} has no leader"):
        owner.commit(15_000)
    spread.elect_leader()
    spread.cluster.owner()
    spread.cluster.settled(places)
    reader = spread.cluster.reader(dict.fromkeys(places, RECORDS))
    assert values(reader.poll(1_000)) == []


def test_records_are_deleted_of_the_others(spread: Spread) -> None:
    """The lost one is named, and can be asked for again."""
    places = filled(spread)
    log = spread.cluster.log
    lose_leader(spread, places)
    troubles = log.delete_before(dict.fromkeys(places, 3))
    assert set(troubles) == {places[LOST]}
    assert "no leader" in troubles[places[LOST]]
    starts = {place: 3 for place in places if place != places[LOST]}
    assert log.bounds(Bound.START, places).offsets == starts
    spread.elect_leader()
    eventually(lambda: log.delete_before(dict.fromkeys(places, 3)) == {})
    assert log.starts(places) == dict.fromkeys(places, 3)


def test_what_a_group_has_committed_is_known_of_all(spread: Spread) -> None:
    """Its coordinator knows it, not the leaders."""
    places = filled(spread)
    log, group = spread.cluster.log, spread.cluster.name("group")
    spread.lose_leader()
    log.commit(group, dict.fromkeys(places, 3), "text")
    assert log.committed(group, places) == dict.fromkeys(places, 3)
    assert log.commit_metadata(group, places) == dict.fromkeys(places, "text")
    assert log.topics([places[0].topic])[places[0].topic].partitions == 3
