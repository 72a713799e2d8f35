"""The pending window: what is pending, what may be committed, and what a stray verdict does."""

from __future__ import annotations

import pytest

from acker.wire.events import PositionRun, SourceRun
from acker.wire.verdict import Verdict
from spout.planning.window import EMISSIONS_MAX, Window

SOURCE = 1 << 16


def window_of(*emitted: int) -> Window:
    """Make a window that emitted single positions."""
    window = Window()
    for position in emitted:
        window.emit([SourceRun(SOURCE, position, position + 1)], 0)
    return window


def ack(window: Window, *positions: int) -> int:
    """Ack single positions in the order given; return how many were pending."""
    return sum(window.settle(SOURCE, [PositionRun(p, p + 1)], Verdict.ACKED) for p in positions)


@pytest.mark.parametrize(
    ("case", "emitted", "acked", "committable"),
    [
        ("S87", [0, 1], [], 0),
        ("S88", [0], [0], 1),
        ("S89", [0, 1], [1, 0], 2),
        ("S90", [0, 1, 2], [0, 2], 1),
        ("S91, P6", [0, 2], [0, 2], 3),
        ("S92", [0, 1], [0], 1),
        ("S93", [0, 1, 2, 5, 6], [0, 1, 2, 6], 5),
        ("S93, then 5", [0, 1, 2, 5, 6], [0, 1, 2, 6, 5], 7),
        ("S94", [5, 6], [6], 5),
        ("S94, then 5", [5, 6], [6, 5], 7),
        ("S126", [0, 1, 2, 3, 4, 8, 9], [0, 1, 2, 3, 4, 8, 9], 10),
        ("S129", [0, 2], [0], 2),
        ("S128", [0, 1, 2], [0, 2], 1),
        ("S128, then 1", [0, 1, 2], [0, 2, 1], 3),
        ("P1", [99, 100, 101], [100, 101, 101], 99),
        ("P1, then 99", [99, 100, 101], [100, 101, 101, 99], 102),
        ("P3", [99, 102], [100, 101, 102], 99),
        ("P3, then 99", [99, 102], [100, 101, 102, 99], 103),
    ],
)
def test_the_committable_position_is_the_first_unsettled_emitted_one(
    case: str, emitted: list[int], acked: list[int], committable: int
) -> None:
    """S87, S88, S89, S90, S91, S92, S93, S94, S126, S128, S129, P1, P3, P6.

    Holes that were never emitted do not stop it.
    """
    window = window_of(*emitted)
    ack(window, *acked)
    assert window.committable(SOURCE) == committable, case


def test_nothing_is_committable_of_a_source_that_emitted_nothing() -> None:
    """S97, in the shape that a window has."""
    assert Window().committable(SOURCE) is None


def test_a_verdict_for_a_root_that_was_never_emitted_is_counted_and_changes_nothing() -> None:
    """S57, S98, S99, P5."""
    window = window_of(10, 11)
    assert ack(window, 3, 500) == 0
    assert (window.late, window.unknown) == (1, 1)
    assert window.committable(SOURCE) == 10
    assert window.pending == 2


def test_a_second_verdict_is_late_and_changes_nothing() -> None:
    """S58, P2, P4, S132: ack after fail, fail after ack, the same ack twice."""
    window = window_of(0, 1)
    ack(window, 0)
    assert window.settle(SOURCE, [PositionRun(0, 1)], "FAILED") == 0
    assert window.settle(SOURCE, [PositionRun(1, 2)], "TIMED_OUT") == 1
    assert ack(window, 1) == 0
    assert window.counts == {Verdict.ACKED: 1, "FAILED": 0, "TIMED_OUT": 1}
    assert window.late == 2


def test_a_failed_root_does_not_hold_back_the_commit() -> None:
    """P8, P38: once its verdict is durable the replay worker owns it."""
    window = window_of(0, 1, 2)
    ack(window, 0, 2)
    window.settle(SOURCE, [PositionRun(1, 2)], "FAILED")
    assert window.committable(SOURCE) == 3


def test_a_million_settled_roots_behind_one_hole_cost_one_interval() -> None:
    """S101."""
    window = Window()
    window.emit([SourceRun(SOURCE, 0, 1_000_001)], 0)
    window.settle(SOURCE, [PositionRun(1, 1_000_001)], Verdict.ACKED)
    assert (window.pending, window.run_count, window.committable(SOURCE)) == (1, 1, 0)


def test_a_verdict_of_many_single_positions_settles_them_all() -> None:
    """A record of 100,000 scattered positions is one pass, not 100,000."""
    window = Window()
    window.emit([SourceRun(SOURCE, 0, 200_000)], 0)
    assert window.settle(SOURCE, [PositionRun(p, p + 1) for p in range(0, 200_000, 2)], "FAILED") == 100_000
    assert (window.pending, window.committable(SOURCE)) == (100_000, 1)


def test_sources_do_not_touch_each_other() -> None:
    """S121."""
    window = Window()
    window.emit([SourceRun(SOURCE, 0, 5), SourceRun(SOURCE + 1, 0, 5)], 0)
    window.settle(SOURCE + 1, [PositionRun(0, 5)], Verdict.ABSENT)
    assert (window.committable(SOURCE), window.committable(SOURCE + 1)) == (0, 5)
    assert (window.count_pending(SOURCE), window.count_pending(SOURCE + 1)) == (5, 0)


def test_the_oldest_pending_root_is_that_of_the_first_cohort_with_one() -> None:
    """The age that a user sees is that of the longest waiting root."""
    window = Window()
    window.emit([SourceRun(SOURCE, 0, 10)], 1_000)
    window.emit([SourceRun(SOURCE, 10, 20)], 2_000)
    assert window.oldest_emitted_ms() == 1_000
    window.settle(SOURCE, [PositionRun(0, 9)], Verdict.ACKED)
    assert window.oldest_emitted_ms() == 1_000
    window.settle(SOURCE, [PositionRun(9, 10)], Verdict.ACKED)
    assert window.oldest_emitted_ms() == 2_000
    window.settle(SOURCE, [PositionRun(10, 20)], Verdict.ACKED)
    assert window.oldest_emitted_ms() is None


def test_restored_roots_are_pending_and_are_not_counted_as_emitted() -> None:
    """S160: what was settled before the restart stays so."""
    window = Window()
    window.open_source(SOURCE, 100)
    window.restore([SourceRun(SOURCE, 40, 42)], 0)
    assert (window.pending, window.emitted, window.committable(SOURCE)) == (2, 0, 40)
    ack(window, 40, 41)
    assert window.committable(SOURCE) == 100


def test_settled_cohorts_are_forgotten_behind_one_that_stays_open() -> None:
    """A root that is never decided does not make the window remember every batch."""
    window = Window()
    window.emit([SourceRun(SOURCE, 0, 1)], 0)
    for position in range(1, 3 * EMISSIONS_MAX):
        window.emit([SourceRun(SOURCE, position, position + 1)], position)
        ack(window, position)
    assert len(window._emissions) <= EMISSIONS_MAX
    assert window.oldest_emitted_ms() == 0
