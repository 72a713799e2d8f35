"""A copy that was too old for its topic once, and is refused for another reason later."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from acker.config.limits import ReplayLimits
from replay.worker.refusals import Refusals

INPUT, OFFSET = 7, 12

BETWEEN: dict[str, Callable[[Refusals], None]] = {
    "its input was left alone for a while": lambda refusals: refusals.end_search(INPUT),
    "its root was done, and its offset is of another one": lambda refusals: refusals.forget_done([OFFSET]),
    "nothing": lambda refusals: None,
}


@pytest.mark.parametrize("happens", BETWEEN.values(), ids=list(BETWEEN))
def test_a_copy_dies_by_the_reason_of_its_last_refusal(happens: Callable[[Refusals], None]) -> None:
    """Else it would wait for a topic that takes its age, and that never takes its size."""
    refusals = Refusals(ReplayLimits(), {})
    refusals.record_refused_copy(INPUT, OFFSET, "too old", is_too_old=True)
    happens(refusals)
    refusals.record_refused_copy(INPUT, OFFSET, "too large", is_too_old=False)
    refusals.decide_about_suspects(INPUT)
    assert refusals.why_refused_by_dying_offset == {OFFSET: "too large"}
    assert refusals.why_copy_waits(OFFSET) is None


def test_a_copy_that_is_too_old_still_waits() -> None:
    refusals = Refusals(ReplayLimits(), {})
    refusals.record_refused_copy(INPUT, OFFSET, "too large", is_too_old=False)
    refusals.end_search(INPUT)
    refusals.record_refused_copy(INPUT, OFFSET, "too old", is_too_old=True)
    refusals.decide_about_suspects(INPUT)
    assert refusals.why_refused_by_dying_offset == {}
    assert refusals.why_copy_waits(OFFSET) == "too old"
