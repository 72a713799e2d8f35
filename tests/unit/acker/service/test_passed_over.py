"""Marks that let all pass over what cannot be read: what is one, where it stands, how far it reaches."""

from __future__ import annotations

import pytest

from acker.errors import UnknownVersion
from acker.kafka.port import Outgoing, Record, TopicPartition
from acker.service.passed_over import (
    BY_HEADER,
    PASSED_OVER,
    UNTIL_HEADER,
    WHY_HEADER,
    is_passed_over,
    likely_writer,
    offset_to_pass_over,
    offsets_to_pass_over,
    passed_over_mark,
    require_passed_over,
)
from tests.support.memory.cluster import MemoryCluster, MemoryLog

PLACE = TopicPartition("_ack_state", 0)
TAIL = 1_000
"""So many last records are searched first."""


def record_of(outgoing: Outgoing) -> Record:
    return Record(outgoing.topic, outgoing.partition, 9, outgoing.key, outgoing.value, outgoing.headers)


@pytest.mark.parametrize(("until", "end"), [(0, 6), (5, 6), (6, 6), (7, 7), (8, 8), (1_000, 1_000)])
def test_a_mark_names_its_offsets(until: int, end: int) -> None:
    mark = passed_over_mark(PLACE, 5, "no power", "ann", until)
    names = [name for name, _ in mark.headers]
    assert names == [WHY_HEADER, BY_HEADER] + [UNTIL_HEADER] * (until > 6)
    assert offset_to_pass_over(record_of(mark)) == 5
    assert offsets_to_pass_over(record_of(mark)) == range(5, end)
    assert mark.value == b"passed over: no power"


@pytest.mark.parametrize(
    ("key", "value", "offset"),
    [
        (None, b"x", None),
        (PASSED_OVER + b"5", None, None),
        (PASSED_OVER + b"5", b"", 5),
        (PASSED_OVER + b"0", b"x", 0),
        (PASSED_OVER, b"x", None),
        (PASSED_OVER + b"-5", b"x", None),
        (PASSED_OVER + b"9" * 19, b"x", int("9" * 19)),
        (PASSED_OVER + b"9" * 20, b"x", None),
        (b"x" * len(PASSED_OVER) + b"5", b"x", None),
        (b"0/5", b"x", None),
    ],
)
def test_only_a_record_with_that_key_and_a_value_is_a_mark(
    key: bytes | None, value: bytes | None, offset: int | None
) -> None:
    record = Record(*PLACE, 9, key, value)
    assert offset_to_pass_over(record) == offset
    assert list(offsets_to_pass_over(record)) == ([] if offset is None else [offset])


@pytest.mark.parametrize("digits", [b"", b"x", b"-7", b"9" * 20])
def test_an_end_that_is_none_leaves_one_offset(digits: bytes) -> None:
    record = Record(*PLACE, 9, PASSED_OVER + b"5", b"x", ((UNTIL_HEADER, digits),))
    assert offsets_to_pass_over(record) == range(5, 6)


class Partition:
    """A partition, its log, and a writer of it."""

    def __init__(self) -> None:
        """Create it, empty."""
        self.cluster = MemoryCluster()
        self.cluster.create_topic(PLACE.topic, 1)
        self.log: MemoryLog = self.cluster.log()

    def write(self, *records: Outgoing) -> None:
        producer = self.log.producer()
        for record in records:
            producer.send(record)
        producer.flush(1_000)

    def fill(self, count: int) -> None:
        self.write(*(Outgoing(*PLACE, b"x") for _ in range(count)))

    def is_passed_over(self, offset: int) -> bool:
        return is_passed_over(self.log, Record(*PLACE, offset, None, b"x"), wait_ms=1_000)


def mark(offset: int, until: int = 0) -> Outgoing:
    return passed_over_mark(PLACE, offset, "why", "by", until)


@pytest.mark.parametrize("behind", [0, 1, TAIL - 2, TAIL - 1, TAIL, TAIL + 1, 9 * TAIL + 5])
@pytest.mark.parametrize("before", [0, 1])
def test_a_mark_is_found_wherever_it_stands_behind_its_record(before: int, behind: int) -> None:
    partition = Partition()
    partition.fill(11 + before)
    partition.write(mark(10))
    partition.fill(behind)
    assert partition.is_passed_over(10)
    assert not partition.is_passed_over(9)
    assert not partition.is_passed_over(11)


def test_a_mark_before_its_record_is_none() -> None:
    """Nobody could have known the record then: such a mark was copied."""
    partition = Partition()
    partition.fill(2)
    partition.write(mark(4), mark(4))
    partition.fill(3)
    assert not partition.is_passed_over(4)


def test_a_mark_of_a_transaction_that_was_aborted_is_none() -> None:
    partition = Partition()
    partition.fill(3)
    transactions = partition.log.transactions("repair")
    transactions.init(1_000)
    transactions.begin()
    transactions.send(mark(1))
    transactions.abort(1_000)
    partition.fill(1)
    assert not partition.is_passed_over(1)


def test_what_is_not_passed_over_is_an_error_with_both_cures() -> None:
    partition = Partition()
    partition.fill(2)
    record, error = Record(*PLACE, 1, None, b"x"), UnknownVersion("of tomorrow")
    with pytest.raises(UnknownVersion, match="_ack_state/0@1: of tomorrow: if run that; if none did, `wind"):
        require_passed_over(partition.log, record, error, "run that")
    partition.write(mark(0, until=2))
    assert require_passed_over(partition.log, record, error, "run that") == "of tomorrow"


@pytest.mark.parametrize(
    ("value", "is_newer"),
    [
        (None, False),
        (b"", False),
        (b"x" * 20, False),
        (b"\xc3\x01", False),
        (b"\xc3\x01" + bytes(7), False),
        (b"\xc3\x01" + bytes(8), True),
        (b"\xc3\x01" + bytes(90), True),
        (b"\xc3\x02" + bytes(90), False),
    ],
)
def test_garbage_is_told_from_what_may_be_a_newer_record(value: bytes | None, is_newer: bool) -> None:
    assert likely_writer(value).startswith("perhaps a newer" if is_newer else "garbage")
