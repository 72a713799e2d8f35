"""The process before a restart may live on for ten seconds, whatever somebody sets the clock to meanwhile."""

from __future__ import annotations

import pytest

from spout.group.announce import REPEAT_MS
from spout.group.running_session import SIBLING_MS, Sibling
from spout.planning.session import STEP_MS_MAX, SessionClock, SessionName

HOUR_MS = 3_600_000
BEGAN_MS = 10 * HOUR_MS
LOOK_MS = 500
STEPS = pytest.mark.parametrize("step_ms", [0, -HOUR_MS, HOUR_MS], ids=["right", "set back", "set ahead"])


def sibling() -> Sibling:
    return Sibling("g", SessionName(1, "s"), 3, SessionClock(5_000, BEGAN_MS), BEGAN_MS)


@STEPS
def test_it_is_asked_for_its_clock_when_it_is_gone_for_certain(step_ms: int) -> None:
    """D413: by a clock that is set ahead it was asked at once, and may have ticked on."""
    other, now_ms = sibling(), BEGAN_MS
    looks = 0
    while not other.start_question(now_ms):
        looks += 1
        now_ms += LOOK_MS + (step_ms if looks == 3 else 0)
    # the look across the jump counts for nothing, or for a second
    assert looks * LOOK_MS == pytest.approx(SIBLING_MS, abs=2 * LOOK_MS)
    assert other.start_question(now_ms) == [], "it is not asked again at once"
    assert not [ms for ms in range(LOOK_MS, REPEAT_MS, LOOK_MS) if other.start_question(now_ms + ms)]
    assert other.start_question(now_ms + REPEAT_MS) == [0, 1, 2]


@STEPS
@pytest.mark.parametrize("between_ms", [LOOK_MS, 8_000], ids=["looks often", "was busy"])
def test_the_timeout_of_its_roots_is_never_shorter_for_that(step_ms: int, between_ms: int) -> None:
    """Its clock may be ahead by what this one is behind; at most by the time that it may live."""
    other = sibling()
    assert other.grace_ms(BEGAN_MS) == STEP_MS_MAX
    grace_ms = other.grace_ms(BEGAN_MS + between_ms + step_ms)
    least_ms = STEP_MS_MAX if step_ms < 0 else STEP_MS_MAX + between_ms
    assert least_ms <= grace_ms <= STEP_MS_MAX + SIBLING_MS
    later_ms = other.grace_ms(BEGAN_MS + 2 * between_ms + step_ms)
    assert later_ms >= min(STEP_MS_MAX + SIBLING_MS, least_ms + between_ms)
