"""When the roots of an emitted range expire, to the millisecond."""

from __future__ import annotations

import numpy as np
import pytest

from acker.hot_paths import Hits, as_array
from acker.ledger.cohort import NEVER, InitEmission, RootCohort, Session
from acker.ledger.ledger import Register
from acker.ledger.roots import Roots

SESSION = Session("g", 1, "s")
SOURCE, START, SIZE = 65_539, 1_000, 10
EMITTED_MS, TIMEOUT_MS = 500, 30_000
DUE_MS = EMITTED_MS + TIMEOUT_MS


def cohort_of(timeout_ms: int = TIMEOUT_MS) -> RootCohort:
    """Return ten open roots."""
    emission = InitEmission(SESSION, "lines", "id", EMITTED_MS, 0, timeout_ms)
    return RootCohort(Roots(SOURCE, START, SIZE), emission, 0, 1)


def indices(hits: Hits) -> list[int]:
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
    assert cohort.roots.open == 0


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
    assert list(register.due(SESSION, DUE_MS - 1)) == []
    assert list(register.due(SESSION, DUE_MS)) == [cohort]
    assert list(register.due(SESSION, DUE_MS)) == [], "it was not reminded of again"
