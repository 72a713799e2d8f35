"""How long what is refused, or in trouble, is left alone between two tries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from replay.worker.refused_aside import next_wait_ms


@given(st.integers(0, 1 << 40))
def test_each_wait_is_twice_the_one_before_up_to_the_longest(longest_ms: int) -> None:
    waits_ms = [next_wait_ms(None, longest_ms)]
    for _ in range(8):
        waits_ms.append(next_wait_ms(waits_ms[-1], longest_ms))
    assert waits_ms[0] == longest_ms // 64
    assert waits_ms == [min(longest_ms, waits_ms[0] << number) for number in range(9)]


def test_a_minute_is_reached_from_a_second_in_six_tries() -> None:
    waits_ms = [next_wait_ms(None, 64_000)]
    while waits_ms[-1] < 64_000:
        waits_ms.append(next_wait_ms(waits_ms[-1], 64_000))
    assert waits_ms == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000]
