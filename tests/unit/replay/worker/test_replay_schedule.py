"""The schedule of what waits, and the table that a restart makes it of."""

from __future__ import annotations

import numpy as np

from acker.identity import Position, Root, Source
from replay.worker.waiting import CHUNK, ENTRY_BYTES, UNSORTED_ALLOWED, DueRoot, DueTable, Schedule


def schedule_of(*entries: tuple[int, int]) -> Schedule:
    schedule = Schedule()
    for due_ms, offset in entries:
        schedule.add(due_ms, offset)
    return schedule


def root(number: int) -> Root:
    return Root(Source(65_536), Position(number))


def test_of_what_waits_the_earliest_comes_first_and_equals_in_their_order() -> None:
    """S107, S108, S115"""
    schedule = schedule_of((30, 1), (10, 2), (20, 3), (10, 4))
    assert schedule.next_due_ms == 10
    assert schedule.take(9, 10) == []
    assert schedule.take(20, 2) == [(10, 2), (10, 4)]
    assert schedule.take(20, 10) == [(20, 3)]
    assert (len(schedule), schedule.next_due_ms) == (1, 30)


def test_one_that_waits_is_ready_when_its_time_has_come_and_then_gone() -> None:
    """S103, S106"""
    schedule = schedule_of((50, 1))
    assert schedule.take(49, 10) == []
    assert schedule.take(50, 10) == [(50, 1)]
    assert (schedule.take(99, 10), len(schedule), schedule.next_due_ms) == ([], 0, None)


def test_of_those_that_were_just_added_none_is_taken_early() -> None:
    schedule = Schedule()
    schedule.add(60, 2)
    schedule.add(50, 1)
    assert schedule.take(59, 10) == [(50, 1)]
    assert schedule.take(60, 10) == [(60, 2)]


def test_what_is_put_back_goes_on_waiting_in_its_place() -> None:
    schedule = schedule_of((10, 1), (20, 2), (30, 3))
    for entry in schedule.take(20, 10)[1:]:
        schedule.add(*entry)
    assert schedule.take(30, 10) == [(20, 2), (30, 3)]


def test_many_entries_come_out_sorted_whatever_order_they_went_in() -> None:
    """Enough of them that chunks are merged, cut and emptied."""
    random = np.random.default_rng(1)
    entries = np.stack([random.integers(0, 1_000, 60_000), random.permutation(60_000)], axis=1)
    schedule = Schedule()
    schedule.add_all(entries[:30_000])
    for due_ms, offset in entries[30_000:].tolist():
        schedule.add(due_ms, offset)
    found: list[DueRoot] = []
    for now_ms in range(0, 1_001, 100):
        while taken := schedule.take(now_ms, 2_000):
            assert all(entry.due_ms <= now_ms for entry in taken)
            found += taken
    assert [tuple(entry) for entry in found] == sorted(map(tuple, entries.tolist()))
    assert len(schedule) == 0


def test_an_entry_costs_sixteen_bytes_and_the_chunks_hold_no_more() -> None:
    schedule = Schedule()
    for offset in range(100_000):
        schedule.add(offset * 7_919 % 100_003, offset)
    held = sum(chunk.base.nbytes if chunk.base is not None else chunk.nbytes for chunk in schedule._chunks)
    assert held + schedule._unsorted.itemsize * len(schedule._unsorted) == 100_000 * ENTRY_BYTES
    assert max(map(len, schedule._chunks)) < 2 * CHUNK
    assert len(schedule._unsorted) // 2 <= UNSORTED_ALLOWED
    assert schedule.memory_bytes == 1_600_000


def test_of_a_log_the_last_record_of_each_key_counts_and_a_tombstone_ends_it() -> None:
    """S105"""
    rows = DueTable()
    rows.put(root(1), 10, 500)
    rows.put(root(2), 11, 600)
    rows.put(root(1), 12, 700)
    rows.remove(root(2), 13)
    rows.remove(root(3), 14)
    rows.put(root(4), 15, -5)
    assert sorted(rows.by_input()[1].tolist()) == [[0, 15], [700, 12]]
    assert rows.among({root(1), root(2), root(5)}) == {root(1)}


def test_a_log_of_many_tombstones_takes_the_memory_of_what_waits() -> None:
    rows = DueTable(rows_min=64)
    for number in range(10_000):
        rows.put(root(number), 2 * number, number)
        if number % 100:
            rows.remove(root(number), 2 * number + 1)
    assert sorted(rows.by_input()[1].tolist()) == [[number, 2 * number] for number in range(0, 10_000, 100)]
    assert len(rows._rows) // 4 <= 2 * 100 + 64
