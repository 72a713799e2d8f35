"""What `_ack_sink` holds of a group: its newest state, in as many parts as it needs."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from acker.errors import TrackingError, UnknownVersion
from acker.kafka.port import Outgoing, Record, TopicPartition
from spout.exactly_once.sink_records import (
    PART_BYTES,
    SinkState,
    read_state,
    sink_partition,
    state_records,
)
from spout.exactly_once.store import BatchKey, LastBatch

PLACE = TopicPartition("_ack_sink", 1)
KEY = BatchKey("g/1", 7, "s", "q", 3)


def written(*records: Outgoing) -> list[Record]:
    return [
        Record(record.topic, record.partition, offset, record.key, record.value)
        for offset, record in enumerate(records)
    ]


def records_of(granted: int, batch: LastBatch | None, group: str = "g/1") -> list[Outgoing]:
    return list(state_records(PLACE, group, granted, batch))


def state_of(records: Iterable[Outgoing], group: str = "g/1") -> SinkState:
    return read_state(written(*records), group)


def test_of_a_group_that_never_was_there_is_nothing() -> None:
    assert state_of([]) == SinkState(0, None)
    assert state_of(records_of(3, None, group="g")) == SinkState(0, None)


def test_the_newest_state_counts() -> None:
    opened, batch = records_of(3, None), LastBatch(KEY, b"published")
    assert state_of(opened) == SinkState(3, None)
    assert state_of([*opened, *records_of(3, batch)]) == SinkState(3, batch)
    assert state_of([*records_of(3, batch), *records_of(9, batch)]) == SinkState(9, batch)


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES + 1])
def test_a_publication_of_any_size_comes_back_from_records_that_fit(size: int) -> None:
    batch = LastBatch(KEY, bytes(size))
    records = records_of(7, batch)
    assert all(len(record.value or b"") <= 900_000 for record in records)
    assert state_of(records) == SinkState(7, batch)


def test_parts_of_an_earlier_batch_count_for_nothing() -> None:
    large = LastBatch(KEY, bytes(3 * PART_BYTES))
    small = LastBatch(KEY._replace(batch=4), b"small")
    middle = LastBatch(KEY._replace(batch=5), b"x" * (2 * PART_BYTES))
    records = [*records_of(7, large), *records_of(7, small)]
    assert state_of(records) == SinkState(7, small)
    assert state_of([*records, *records_of(7, middle)]) == SinkState(7, middle)


def test_a_part_that_is_gone_is_no_shorter_publication() -> None:
    first_part, *rest = records_of(7, LastBatch(KEY, bytes(3 * PART_BYTES)))
    of_another = records_of(7, LastBatch(KEY._replace(batch=2), bytes(3 * PART_BYTES)))[0]
    for lacking in (rest, [of_another, *rest], [first_part._replace(value=None), *rest]):
        with pytest.raises(TrackingError, match="batch 3 of group g/1 lacks a part"):
            state_of(lacking)


def test_a_tombstone_is_no_state() -> None:
    [state] = records_of(7, LastBatch(KEY, b"published"))
    assert state_of([state, state._replace(value=None)]) == SinkState(0, None)


def test_a_record_that_cannot_be_read_is_no_older_state() -> None:
    [state] = records_of(7, LastBatch(KEY, b"published"))
    for value in (b"", b"garbage", (state.value or b"")[:-1]):
        with pytest.raises(TrackingError, match=r"_ack_sink/1@1 has the last batch of group g/1"):
            state_of([state, state._replace(value=value)])
    with pytest.raises(UnknownVersion, match=r"_ack_sink/1@1 .* a newer Windhover wrote it"):
        state_of([state, state._replace(value=b"\xc3\x0112345678")])
    part = records_of(7, LastBatch(KEY, bytes(PART_BYTES + 1)))[0]
    with pytest.raises(TrackingError, match="it is a part"):
        state_of([part._replace(key=state.key)])


def test_records_of_others_are_not_even_looked_at() -> None:
    mine = LastBatch(KEY, b"published")
    strange = [
        Outgoing(*PLACE, b"garbage", key)
        for key in (None, b"", b"state/", b"state/g", b"part/1/g", b"g/1", b"other/g/1", b"\xff")
    ]
    assert state_of([*records_of(7, mine), *strange]) == SinkState(7, mine)


def test_all_records_of_a_group_lie_in_one_partition_and_groups_in_several() -> None:
    places = {sink_partition("_ack_sink", 4, f"group-{number}") for number in range(50)}
    assert places == {TopicPartition("_ack_sink", number) for number in range(4)}
    # fixed for life: a group that moves would begin anew
    assert sink_partition("_ack_sink", 4, "word-count") == TopicPartition("_ack_sink", 2)
