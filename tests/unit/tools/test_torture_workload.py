"""The records of a torture, and the table that its sink writes."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from spout.demo.words import ALWAYS_FAILS, FAILS_TWICE, NEVER_ACKED_AT_FIRST, PLAIN
from tests.support.odd_records import ODD_RECORDS
from tests.torture.workload import (
    NUMBER,
    is_text,
    key_of,
    number_in,
    odd_of,
    raw_record,
    record_of,
    undone_record,
    words_of,
)
from tests.torture.writes import WriteTable


def test_a_record_carries_its_number_its_key_and_its_words() -> None:
    record = record_of(50, "t", 4)
    assert (record.topic, record.partition, record.key) == ("t", 2, FAILS_TWICE)
    assert record.value is not None
    assert tuple(record.value.decode().split()) == words_of(50)
    assert number_in(record.headers) == number_in(undone_record(50, "t", 4).headers) == 50
    assert number_in(()) is None


def test_no_two_records_have_the_same_words_but_those_that_have_none() -> None:
    words = Counter(words_of(number) for number in range(5_000))
    assert {text for text, count in words.items() if count > 1} == {()}


def test_most_records_are_plain_and_every_kind_falls_on_every_partition() -> None:
    keys = Counter(key_of(number) for number in range(10_000))
    assert keys[PLAIN] > 9_700
    for kind in (ALWAYS_FAILS, FAILS_TWICE, NEVER_ACKED_AT_FIRST):
        assert {number % 4 for number in range(10_000) if key_of(number) == kind} == {0, 1, 2, 3}


def test_a_tenth_of_the_records_is_odd_each_kind_on_every_partition() -> None:
    kinds = {(odd.kind, number % 4) for number in range(10_000) if (odd := odd_of(number)) is not None}
    names = {kind for kind, _ in kinds}
    small = {odd.kind for odd in ODD_RECORDS if "huge" not in odd.kind}
    assert names == small
    assert kinds == {(kind, partition) for kind in small for partition in range(4)}
    assert 1_000 <= sum(odd_of(number) is not None for number in range(10_000)) < 1_200


def test_an_odd_record_has_its_number_and_its_words_are_what_its_value_says() -> None:
    for number in range(10_000):
        raw = raw_record(number)
        assert number_in(record_of(number, "t", 4).headers) == number
        assert (raw.headers[0][0].decode(), raw.headers[0][1]) == (NUMBER, b"%d" % number)
        if is_text(number):
            assert tuple((raw.value or b"").decode().split()) == words_of(number)
        else:
            assert words_of(number) == ()


def test_the_table_counts_how_often_each_attempt_wrote_a_row_and_keeps_when_it_came_first(
    tmp_path: Path,
) -> None:
    table = WriteTable(tmp_path / "writes.sqlite")
    before_ms = time.time_ns() // 1_000_000
    table.upsert([("t/0@1", 0, 1, "a"), ("t/0@1", 1, 1, "b")])
    first = table.writes()
    table.upsert([("t/0@1", 0, 1, "a"), ("t/0@1", 0, 2, "a"), ("t/0@1", 1, 1, "other")])
    rows = {(row.ordinal, row.attempt): row for row in table.writes()}
    table.close()
    assert {place: row.times for place, row in rows.items()} == {(0, 1): 2, (0, 2): 1, (1, 1): 2}
    assert rows[1, 1].word == "b|other"  # what differs is seen, not replaced
    assert rows[0, 1].first_ms == first[0].first_ms
    assert abs(first[0].first_ms - before_ms) < 60_000


def test_what_one_process_wrote_another_one_reads(tmp_path: Path) -> None:
    one, other = WriteTable(tmp_path / "writes.sqlite"), WriteTable(tmp_path / "writes.sqlite")
    one.upsert([("t/0@1", 0, 1, "a")])
    assert [row.word for row in other.writes()] == ["a"]
    one.close()
    other.close()
