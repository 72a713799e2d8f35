"""What ``python -m benchmarks tracking`` makes of the times at which queries have done something."""

from __future__ import annotations

from benchmarks.streams.tracking import first_figures


def test_the_first_ack_is_compared_with_the_untracked_batch_of_its_own_round() -> None:
    """A round in which the machine was busy is late in both."""
    firsts = {"narrow tracked": [1.5, 9.5, 1.25], "narrow untracked": [1.0, 9.0, 2.0]}
    assert [figure.value for figure in first_figures("narrow", firsts)] == [1.5, 2.0, 0.5]
