"""Bins: which one a cohort goes into, and when each is written again."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field

import pytest

from acker.service.bins import BIN_ROOTS, REWRITE_STEPS, Bins


@dataclass
class Open:
    """How many roots are open."""

    open_count: int


@dataclass(eq=False)
class Cohort:
    """What bins see of a cohort."""

    roots: Open
    bin_number: int | None = None


def cohort(count: int) -> Cohort:
    return Cohort(Open(count))


@dataclass
class Filled:
    """Bins, and the cohorts that were put into them."""

    bins: Bins = field(default_factory=Bins)

    def put(self, count: int) -> Cohort:
        put = cohort(count)
        self.bins.add(put)
        return put


@pytest.fixture
def filled() -> Filled:
    return Filled()


def test_a_bin_is_filled_to_the_last_root(filled: Filled) -> None:
    sizes = [1, BIN_ROOTS - 3, 2, 1, BIN_ROOTS - 1, BIN_ROOTS, 5]
    assert [filled.put(size).bin_number for size in sizes] == [0, 0, 0, 1, 1, 2, 3]
    assert list(filled.bins.numbers()) == [0, 1, 2, 3]


def test_room_that_roots_leave_is_used_again(filled: Filled) -> None:
    first, second = filled.put(BIN_ROOTS - 10), filled.put(10)
    first.roots.open_count = 5
    # 15 are open: exactly as many more have room
    assert filled.put(BIN_ROOTS - 15).bin_number == 0
    second.roots.open_count = 9
    assert filled.put(2).bin_number == 1


def test_the_lowest_number_that_is_free_is_taken(filled: Filled) -> None:
    cohorts = [filled.put(BIN_ROOTS) for _ in range(4)]
    for number in (1, 2):
        cohorts[number].roots.open_count = 0
        assert filled.bins.remove_settled(number) == []
    assert list(filled.bins.numbers()) == [0, 3]
    assert filled.put(BIN_ROOTS).bin_number == 1
    assert filled.put(1).bin_number == 2


def test_after_a_restart_the_last_bin_is_filled_on(filled: Filled) -> None:
    loaded = cohort(7)
    filled.bins.load(5, loaded)
    assert loaded.bin_number == 5
    assert filled.put(BIN_ROOTS - 7).bin_number == 5
    assert filled.put(1).bin_number == 0


def test_after_a_restart_a_full_bin_gets_no_root_more(filled: Filled) -> None:
    filled.bins.load(5, cohort(BIN_ROOTS))
    assert filled.put(1).bin_number == 0


def test_a_bin_has_its_cohorts_with_open_roots_and_keeps_no_other(filled: Filled) -> None:
    kept, settled = filled.put(3), filled.put(4)
    assert filled.bins.remove_settled(0) == [kept, settled]
    settled.roots.open_count = 0
    assert filled.bins.remove_settled(0) == [kept]
    gone = weakref.ref(settled)
    del settled
    assert gone() is None
    assert filled.bins.remove_settled(9) == []


def test_bins_that_changed_are_written_also_those_that_are_empty_now(filled: Filled) -> None:
    filled.put(3)
    assert filled.bins.take_due_bins({0, 7}) == {0, 7}
    assert filled.bins.take_due_bins(set()) == set()


def dues(bins: Bins, steps: int) -> dict[int, set[int]]:
    """Return what is due without a change, by step, where anything is."""
    by_step = {step: bins.take_due_bins(set()) for step in range(1, steps + 1)}
    return {step: due for step, due in by_step.items() if due}


def test_a_bin_that_did_not_change_is_written_again_at_times(filled: Filled) -> None:
    """A new one is due at once, since it was never written."""
    filled.put(3)
    assert dues(filled.bins, 3 * REWRITE_STEPS) == {
        1: {0},
        REWRITE_STEPS + 2: {0},
        2 * REWRITE_STEPS + 3: {0},
    }


def test_of_several_bins_one_is_written_again_in_a_step_the_oldest_first(filled: Filled) -> None:
    for _ in range(3):
        filled.put(BIN_ROOTS)
    assert dues(filled.bins, REWRITE_STEPS) == {1: {0}, 2: {1}, 3: {2}}
    assert filled.bins.take_due_bins({0}) == {0}
    # that was step 1,001; bin 1 was written in step 2, bin 2 in step 3
    assert dues(filled.bins, REWRITE_STEPS + 10) == {
        2: {1},
        3: {2},
        REWRITE_STEPS + 1: {0},
        REWRITE_STEPS + 3: {1},
        REWRITE_STEPS + 4: {2},
    }


def test_a_bin_that_is_empty_is_not_written_again(filled: Filled) -> None:
    filled.put(3).roots.open_count = 0
    assert filled.bins.remove_settled(0) == []
    assert dues(filled.bins, 2 * REWRITE_STEPS) == {}


def test_a_bin_that_grows_is_not_older_by_that(filled: Filled) -> None:
    filled.put(3)
    assert filled.bins.take_due_bins(set()) == {0}
    filled.put(4)
    assert dues(filled.bins, REWRITE_STEPS) == {}
