"""Messages of several partitions, as a client hands them out, and those of one at some offsets."""

from __future__ import annotations

from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from acker.kafka.port import TopicPartition
from acker.kafka.reader import by_partition, messages_at

PLACES = st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2)), max_size=30)


@given(PLACES)
def test_each_partition_has_its_messages_in_order(places: list[tuple[str, int]]) -> None:
    messages = [Message(topic=topic, partition=at, offset=n) for n, (topic, at) in enumerate(places)]
    found = {place: [m.offset() for m in group] for place, group in by_partition(messages).items()}
    wanted: dict[TopicPartition, list[int | None]] = {}
    for number, place in enumerate(places):
        wanted.setdefault(TopicPartition(*place), []).append(number)
    assert found == wanted


@given(st.lists(st.integers(0, 3), max_size=30))
def test_so_it_is_where_all_are_of_one_topic(partitions: list[int]) -> None:
    messages = [Message(topic="a", partition=at, offset=n) for n, at in enumerate(partitions)]
    found = by_partition(messages)
    assert {place.partition: len(group) for place, group in found.items()} == {
        at: partitions.count(at) for at in partitions
    }
    assert all(
        [m.partition() for m in group] == [place.partition] * len(group) for place, group in found.items()
    )


OFFSETS = st.sets(st.integers(0, 40)).map(sorted)


RANGES = st.builds(range, st.integers(0, 40), st.integers(0, 40))


@given(OFFSETS.filter(bool), st.one_of(OFFSETS, RANGES))
def test_the_messages_at_some_offsets_are_found_whatever_holes_the_log_has(
    log: list[int], offsets: list[int] | range
) -> None:
    """Nor is one returned that was not asked for, where an offset has no record."""
    messages = [Message(topic="a", partition=0, offset=offset) for offset in log]
    matching = [message.offset() for message in messages_at(offsets, messages)]
    assert matching == [offset for offset in log if offset in offsets]
