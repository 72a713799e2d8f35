"""When the roots of an emitted range expire, to the millisecond."""

from __future__ import annotations

import numpy as np
import pytest

from acker.hot_paths import Indices, as_array
from acker.ledger.cohort import NEVER, InitEmission, RootCohort, Session
from acker.ledger.ledger import Register
from acker.ledger.roots import Roots

SESSION = Session("g", 1, "s")
SOURCE, START, SIZE = 65_539, 1_000, 10
EMITTED_MS, TIMEOUT_MS = 500, 30_000
DUE_MS = EMITTED_MS + TIMEOUT_MS


def cohort_of(timeout_ms: int = TIMEOUT_MS, serial: int = 1) -> RootCohort:
    """Return ten open roots."""
    emission = InitEmission(SESSION, "lines", "id", EMITTED_MS, 0, timeout_ms)
    return RootCohort(Roots(SOURCE, START, SIZE), emission, 0, serial)


def indices(hits: Indices) -> list[int]:
    """Return the settled roots by their index."""
    return as_array(hits).tolist()


def touched(*at: int) -> RootCohort:
    """Return ten open roots, some of them touched 7 ms after they were emitted."""
    cohort = cohort_of()
    assert cohort.touch(np.array(at), EMITTED_MS + 7)
    return cohort


def test_roots_expire_when_the_clock_reaches_their_deadline_and_not_before() -> None:
    cohort = cohort_of()
    assert indices(cohort.expire(DUE_MS - 1)) == []
    assert cohort.next_deadline_ms(DUE_MS - 1) == DUE_MS
    assert indices(cohort.expire(DUE_MS)) == list(range(SIZE))
    assert cohort.roots.open_count == 0


def test_a_touched_root_expires_when_the_clock_reaches_its_own_deadline_and_not_before() -> None:
    """Were it still open then, it would be due at that moment again and again, and the acker would hang."""
    cohort = touched(3, 8)
    assert indices(cohort.expire(DUE_MS)) == [0, 1, 2, 4, 5, 6, 7, 9]
    assert cohort.next_deadline_ms(DUE_MS) == DUE_MS + 7
    assert indices(cohort.expire(DUE_MS + 6)) == []
    assert cohort.next_deadline_ms(DUE_MS + 6) == DUE_MS + 7
    assert indices(cohort.expire(DUE_MS + 7)) == [3, 8]
    assert cohort.next_deadline_ms(DUE_MS + 7) == NEVER


def test_each_touched_root_has_a_deadline_of_its_own() -> None:
    cohort = touched(3, 8)
    assert cohort.touch(np.array([8, 9]), EMITTED_MS + 20)
    cohort.expire(DUE_MS)
    assert indices(cohort.expire(DUE_MS + 7)) == [3]
    assert cohort.next_deadline_ms(DUE_MS + 7) == DUE_MS + 20
    assert indices(cohort.expire(DUE_MS + 20)) == [8, 9]


def test_the_next_deadline_is_that_of_the_touched_root_that_is_due_first() -> None:
    cohort = touched(3)
    assert cohort.touch(np.array([8]), EMITTED_MS + 20)
    cohort.expire(DUE_MS)
    assert cohort.next_deadline_ms(DUE_MS) == DUE_MS + 7


def test_a_touch_that_comes_late_moves_no_moved_deadline_backwards() -> None:
    cohort = touched(3)
    assert cohort.touch(np.array([3]), EMITTED_MS + 5)
    cohort.expire(DUE_MS)
    assert cohort.next_deadline_ms(DUE_MS) == DUE_MS + 7


def test_roots_that_are_all_touched_share_a_deadline_and_need_no_memory_for_it() -> None:
    """What Spark's state holds is mostly all that a batch leaves open; a million may wait there for days."""
    cohort = touched(3)
    cohort.roots.settle(np.array([0, 1]))
    assert cohort.touch(np.arange(SIZE), EMITTED_MS + 5)
    assert cohort.is_moved
    assert cohort.first_deadline_ms() == DUE_MS + 5
    assert len(cohort._later_indices) == 1
    at, later_ms = cohort.touched()
    assert at.tolist() == [2, 3, 4, 5, 6, 7, 8, 9]
    assert later_ms.tolist() == [DUE_MS + 5, DUE_MS + 7, *[DUE_MS + 5] * 6]
    assert indices(cohort.expire(DUE_MS + 4)) == []
    assert indices(cohort.expire(DUE_MS + 5)) == [2, 4, 5, 6, 7, 8, 9]
    assert cohort.next_deadline_ms(DUE_MS + 5) == DUE_MS + 7
    assert indices(cohort.expire(DUE_MS + 7)) == [3]


def test_a_later_touch_of_some_leaves_the_shared_deadline_to_the_others() -> None:
    cohort = cohort_of()
    assert cohort.touch(np.arange(SIZE), EMITTED_MS + 5)
    assert cohort.touch(np.array([8]), EMITTED_MS + 20)
    assert not cohort.touch(np.array([8]), EMITTED_MS + 4)
    assert cohort.first_deadline_ms() == DUE_MS + 5
    assert len(cohort.expire(DUE_MS + 5)) == SIZE - 1
    assert cohort.first_deadline_ms() == DUE_MS + 20
    assert cohort.is_moved


@pytest.mark.parametrize("some", [(3,), tuple(range(SIZE)), ()])
def test_deadlines_come_whole_through_state(some: tuple[int, ...]) -> None:
    """A range that State carries by value has them there, those that all of its roots share as well."""
    cohort = cohort_of()
    if some:
        cohort.touch(np.array(some), EMITTED_MS + 5)
    cohort.touch(np.array([7]), EMITTED_MS + 9)
    loaded = cohort_of()
    loaded.load_touched(*cohort.touched())
    for clock_ms in (DUE_MS - 1, DUE_MS, DUE_MS + 5, DUE_MS + 9):
        assert indices(loaded.expire(clock_ms)) == indices(cohort.expire(clock_ms))
        assert loaded.next_deadline_ms(clock_ms) == cohort.next_deadline_ms(clock_ms)
    assert loaded.roots.open_count == 0


def test_a_cohort_of_which_only_some_roots_were_touched_is_due_as_it_was() -> None:
    cohort = touched(3, 8)
    assert not cohort.is_moved
    assert cohort.first_deadline_ms() == DUE_MS
    cohort.expire(DUE_MS)
    assert cohort.is_moved, "those that are left were all touched"


@pytest.mark.parametrize("touched_at_ms", [EMITTED_MS - 1, EMITTED_MS])
def test_a_touch_moves_no_deadline_backwards(touched_at_ms: int) -> None:
    cohort = cohort_of()
    assert not cohort.touch(np.array([3]), touched_at_ms)
    assert len(cohort.expire(DUE_MS)) == SIZE


def test_roots_without_a_timeout_never_expire() -> None:
    cohort = cohort_of(timeout_ms=0)
    assert not cohort.touch(np.array([3]), 10**9)
    assert indices(cohort.expire(10**15)) == []
    assert cohort.next_deadline_ms(10**15) == NEVER


def test_a_register_returns_a_cohort_when_the_clock_reaches_its_deadline_and_not_before() -> None:
    register = Register()
    cohort = cohort_of()
    register.add(cohort)
    assert list(register.pop_due(SESSION, DUE_MS - 1)) == []
    assert list(register.pop_due(SESSION, DUE_MS)) == [cohort]
    assert list(register.pop_due(SESSION, DUE_MS)) == [], "it was not reminded of again"


@pytest.mark.parametrize("others", [0, 3])
def test_deadlines_of_settled_cohorts_are_removed_when_they_are_most_of_all(others: int) -> None:
    """A session that lives for months has few open ranges, and emits some each second; each stays due."""
    register = Register()
    kept = [cohort_of(timeout_ms=TIMEOUT_MS + number, serial=number) for number in range(1 + others)]
    for cohort in kept:
        register.add(cohort)
    deadlines_max = 4 * len(kept) + 1_024
    sizes = []
    for serial in range(10, 10 + 3 * deadlines_max):
        passing = cohort_of(serial=serial)
        register.add(passing)
        passing.roots.settle_all()
        register.drop(passing)
        sizes.append(len(register._cohorts_by_session[SESSION].deadlines))
    assert max(sizes) == deadlines_max, "it is not done at each drop, which would be dear"
    assert min(sizes[deadlines_max:]) == len(kept)
    assert list(register.pop_due(SESSION, DUE_MS + others)) == kept
    for cohort in kept:
        register.drop(cohort)
    assert (
        register.count(),
        register.sessions("g"),
        register._cohorts_by_source_and_block,
        register._cohorts_by_session,
    ) == (0, [], {}, {})


def test_only_deadlines_behind_the_shared_one_need_memory() -> None:
    """Of one that is the same nothing is kept, also after State carried it."""
    cohort = cohort_of()
    assert cohort.touch(np.array([3]), EMITTED_MS + 5)
    assert cohort.touch(np.arange(SIZE), EMITTED_MS + 5)
    assert len(cohort._later_indices) == 0
    assert cohort.touch(np.array([3]), EMITTED_MS + 6)
    loaded = cohort_of()
    loaded.load_touched(*cohort.touched())
    assert loaded._later_indices.tolist() == [3]


@pytest.mark.parametrize("some", [(3,), (3, 8)])
def test_a_cohort_is_moved_when_all_that_are_left_were_touched(some: tuple[int, ...]) -> None:
    cohort = touched(*some)
    cohort.roots.settle(np.setdiff1d(np.arange(SIZE), some))
    assert cohort.is_moved


def test_a_timeout_of_a_millisecond_is_one() -> None:
    cohort = cohort_of(timeout_ms=1)
    assert len(cohort.expire(EMITTED_MS)) == 0
    assert len(cohort.expire(EMITTED_MS + 1)) == SIZE


def test_a_touch_of_roots_that_are_settled_moves_nothing() -> None:
    cohort = cohort_of()
    cohort.roots.settle(np.array([3]))
    assert not cohort.touch(np.array([3]), EMITTED_MS + 7)


@pytest.mark.parametrize(("start", "end"), [(990, 1_003), (1_008, 1_020), (1_002, 1_004), (900, 1_100)])
def test_what_is_settled_between_positions_are_the_roots_there(start: int, end: int) -> None:
    cohort = cohort_of()
    settled = [START + index for index in indices(cohort.settle_between(start, end))]
    assert settled == [position for position in range(START, START + SIZE) if start <= position < end]


def test_the_first_deadline_stays_first_when_those_of_settled_cohorts_are_removed() -> None:
    """What is left of a heap without its root is no heap by itself."""
    register = Register()
    first, late, soon = (cohort_of(ms, serial) for serial, ms in enumerate((10, 500, 20), start=1))
    for cohort in (first, late, soon):
        register.add(cohort)
    first.roots.settle_all()
    register.drop(first)
    deadlines = 3
    for serial in range(4, 2_000):
        passing = cohort_of(1_000, serial)
        register.add(passing)
        passing.roots.settle_all()
        register.drop(passing)
        deadlines, before = len(register._cohorts_by_session[SESSION].deadlines), deadlines
        if deadlines < before:
            break
    assert deadlines == 2
    assert list(register.pop_due(SESSION, EMITTED_MS + 19)) == []
    assert list(register.pop_due(SESSION, EMITTED_MS + 20)) == [soon]
    assert list(register.pop_due(SESSION, EMITTED_MS + 500)) == [late]
