"""What the port says of brokers, headers and troubles, and how it counts a record's bytes."""

from __future__ import annotations

import pytest

from acker.errors import PartitionStands
from acker.kafka.partition_troubles import PartitionTrouble, TroubleKind, TroubleTimes
from acker.kafka.port import (
    HEADER_OVERHEAD_BYTES,
    RECORD_OVERHEAD_BYTES,
    MissingBroker,
    OffsetAnswers,
    Outgoing,
    Record,
    TopicPartition,
    UnreadableName,
    broker_names,
    record_bytes,
    unwritable,
)
from acker.kafka.standing import all_answers

A, B = TopicPartition("words", 0), TopicPartition("words", 1)
NAME, UNKNOWN = UnreadableName.of(b"\xff\xfe"), UnreadableName.of(None)


@pytest.mark.parametrize(
    ("broker", "text"),
    [
        (
            MissingBroker(2, 1),
            "2 is missing, the other brokers do not see it: it has a copy of 1 partition",
        ),
        (MissingBroker(3, 1_200), "3 is missing, .*: it has a copy of 1,200 partitions of ours; start it"),
        (
            MissingBroker(2, 4, 3),
            "2 is missing, .* 4 partitions of ours, and 3 of them have no leader now;",
        ),
        (
            MissingBroker(2, 0, is_silent=True),
            "2 does not answer: it has a copy of 0 partitions of ours;",
        ),
    ],
)
def test_a_missing_broker_is_named_with_what_it_has(broker: MissingBroker, text: str) -> None:
    with pytest.raises(PartitionStands, match=f"broker {text}"):
        raise PartitionStands(str(broker))


def test_brokers_are_named_in_one_sentence() -> None:
    two, three = MissingBroker(2, 1), MissingBroker(3, 1)
    assert broker_names([]) == ""
    assert broker_names([two]) == "broker 2 is missing"
    assert broker_names([two, three]) == "brokers 2, 3 are missing"


def test_placeholders_are_told_from_names_that_look_like_them() -> None:
    headers = (("\\xff\\xfe", b"1"), (NAME, b"2"), (UNKNOWN, None), ("a", b"3"))
    record = Record("words", 1, 7, None, b"", headers, 0)
    assert record.unreadable_names == (NAME, UNKNOWN)
    assert [type(name) for name in record.unreadable_names] == [UnreadableName, UnreadableName]
    assert record.place == "words/1@7"
    error = str(unwritable(Outgoing("words", 1, b"", None, headers)))
    assert error.startswith(
        "writing words/1: the name of a header is no UTF-8 (\\xff\\xfe, \\x??), and no client"
    )


@pytest.mark.parametrize(
    "make", [lambda key, value, headers: Record("words", 0, 0, key, value, headers, 0), None]
)
def test_a_record_counts_as_many_bytes_as_its_parts_have(make: object) -> None:
    def size(key: bytes | None, value: bytes | None, *headers: tuple[str, bytes | None]) -> int:
        if callable(make):
            return record_bytes(make(key, value, headers))
        return record_bytes(Outgoing("words", 0, value, key, headers))

    assert size(None, None) == size(b"", b"") == RECORD_OVERHEAD_BYTES
    assert size(b"kk", b"vvv") == RECORD_OVERHEAD_BYTES + 5
    assert (
        size(None, None, ("abc", b"12"), ("a", None)) == RECORD_OVERHEAD_BYTES + 2 * HEADER_OVERHEAD_BYTES + 6
    )
    assert size(None, None, ("ü", b"")) == RECORD_OVERHEAD_BYTES + HEADER_OVERHEAD_BYTES + 2


def test_who_needs_all_answers_names_what_has_none() -> None:
    assert all_answers(OffsetAnswers({A: 1, B: 2}, {}), "it") == {A: 1, B: 2}
    troubles = {B: "has no leader", A: "is not there"}
    with pytest.raises(PartitionStands, match=r"^how far is unknown: words/0 is not there; words/1 has no"):
        all_answers(OffsetAnswers({}, troubles), "how far")


def test_a_trouble_has_one_beginning_until_it_is_over_by_any_clock() -> None:
    damaged, cut = (TroubleKind.DAMAGED, A), (TroubleKind.CUT, A)
    other = (TroubleKind.DAMAGED, B)
    times = TroubleTimes()
    assert times.record_troubles([damaged], 100) == {damaged: 100}
    assert times.record_troubles([damaged, cut, other], 200) == {damaged: 100, cut: 200, other: 200}
    assert times.record_troubles([cut, damaged], 150) == {cut: 150, damaged: 100}, "the clock was set back"
    assert times.record_troubles([cut], 300) == {cut: 150}
    assert times.record_troubles([damaged, cut], 400) == {damaged: 400, cut: 150}
    assert times.record_troubles([], 500) == {}


def test_a_trouble_is_shown_with_all_that_is_known_of_it() -> None:
    trouble = PartitionTrouble(TroubleKind.OVERSIZED, B, 77, ("one", "two"), "it is large", 5, 6)
    assert trouble.name == "words/1"
    assert trouble.row() == {
        "kind": "oversized",
        "topic": "words",
        "partition": 1,
        "since_ms": 77,
        "inputs": ["one", "two"],
        "detail": "it is large",
        "start": 5,
        "end": 6,
    }
