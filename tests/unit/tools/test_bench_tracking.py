"""What ``python -m benchmarks tracking`` makes of the times at which queries have done something."""

from __future__ import annotations

from benchmarks.streams.tracking import first_figures, restart_figures


def test_the_first_ack_is_compared_with_the_untracked_batch_of_its_own_round() -> None:
    """A round in which the machine was busy is late in both."""
    firsts = {"narrow tracked": [1.5, 9.5, 1.25], "narrow untracked": [1.0, 9.0, 2.0]}
    assert [figure.value for figure in first_figures("narrow", firsts)] == [1.5, 2.0, 0.5]


def test_a_restart_has_a_figure_for_each_contestant_of_its_pipeline() -> None:
    restarts = {
        "exact-kafka tracked": [3.0, 1.0, 2.0],
        "exact-kafka untracked": [1.0],
        "exact tracked": [9.0],
    }
    figures = restart_figures("exact-kafka", restarts)
    assert [(figure.name.split(":")[0], figure.value) for figure in figures] == [
        ("exact-kafka tracked", 2.0),
        ("exact-kafka untracked", 1.0),
    ]
    assert restart_figures("narrow", restarts) == []
