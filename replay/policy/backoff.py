"""How long a lost root waits before it is replayed.

Source: docs/design/protocol.md, section 5.4; Storm's KafkaSpoutRetryExponentialBackoff, whose power overflows
from the 44th failure on and then retries at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off, or a list of delays.

    Attributes:
        initial_ms: the delay after the first failure, at least 0.
        multiplier: each further delay is the one before times this, at least 1.
        max_ms: the longest delay, before jitter.
        jitter: 0 to 1; up to this share of the delay is added to it, so that roots that failed together are
            not replayed together.
        delays_ms: the delays as a list, whose last one is repeated; then `initial_ms`, `multiplier` and
            `max_ms` do not count. Empty: no list.
    """

    initial_ms: int
    multiplier: float
    max_ms: int
    jitter: float = 0.0
    delays_ms: tuple[int, ...] = ()


def delay_ms(backoff: Backoff, failures: int, jitter: float) -> int:
    """Return how long a root waits after its last failure, in ms.

    The exponent is limited before it is used, so the delay stays at its maximum however often a root failed.
    Jitter makes a delay longer, never shorter.

    Args:
        backoff: the curve of delays.
        failures: how often the root was lost, the last time included; at least 1.
        jitter: a random number in [0, 1).

    Raises:
        ValueError: `failures` is below 1, or `jitter` outside [0, 1).
    """
    if failures < 1:
        raise ValueError(f"a delay follows a failure, but failures is {failures}")
    if not 0.0 <= jitter < 1.0:
        raise ValueError(f"jitter {jitter} is not in [0, 1)")
    listed = backoff.delays_ms
    plain = listed[min(failures, len(listed)) - 1] if listed else _exponential(backoff, failures - 1)
    return math.ceil(plain * (1.0 + backoff.jitter * jitter))


def _exponential(backoff: Backoff, exponent: int) -> float:
    if backoff.initial_ms >= backoff.max_ms:
        return backoff.max_ms
    if backoff.initial_ms <= 0:
        return 0
    if backoff.multiplier <= 1.0:
        return backoff.initial_ms
    enough = math.log(backoff.max_ms / backoff.initial_ms) / math.log(backoff.multiplier)
    if exponent >= enough:
        return backoff.max_ms
    return min(backoff.initial_ms * backoff.multiplier**exponent, backoff.max_ms)
