"""How long the doctor waits for a cluster's executors."""

from __future__ import annotations

from spout.doctor.cluster import EXECUTORS_S, MORE_S, ExecutorWait


def test_an_executor_may_come_later_by_half_of_what_the_first_one_took() -> None:
    """On a busy machine the JVM of the second one starts seconds behind that of the first."""
    wait = ExecutorWait(10.0, 12.0)
    assert not wait.is_over(0, 15.9)
    assert not wait.is_over(1, 16.0)
    assert not wait.is_over(1, 18.9)
    assert not wait.is_over(2, 18.9)
    assert not wait.is_over(2, 21.8)
    assert wait.is_over(2, 22.0)
    assert wait.count == 2


def test_executors_that_are_there_at_once_are_waited_for_a_second() -> None:
    wait = ExecutorWait(12.0, 12.0)
    assert not wait.is_over(2, 12.1)
    assert not wait.is_over(2, 12.0 + MORE_S)
    assert wait.is_over(2, 12.2 + MORE_S)


def test_a_cluster_that_gives_none_is_given_up() -> None:
    wait = ExecutorWait(10.0, 12.0)
    assert not wait.is_over(0, 11.9 + EXECUTORS_S)
    assert wait.is_over(0, 12.0 + EXECUTORS_S)
    assert not wait.count


def test_a_first_executor_that_seems_to_have_taken_longer_than_it_may_does_not_stop_the_doctor() -> None:
    """The time it took is by a clock that may be set meanwhile."""
    wait = ExecutorWait(-90_000.0, 12.0)
    assert not wait.is_over(1, 13.0)
    assert wait.is_over(1, 13.0 + EXECUTORS_S)
