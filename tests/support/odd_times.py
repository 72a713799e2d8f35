"""Times that records may have: of each kind that producers write one, and the ends of what Kafka holds."""

from __future__ import annotations

from typing import Final

YEAR_2100_MS: Final = 4_102_444_800_000
YEAR_10000_MS: Final = 253_402_300_800_000
MICROSECONDS: Final = 1_700_000_000_000_000
"""What a producer writes that counts in microseconds: in ms it lies in the year 55840."""

NANOSECONDS: Final = 1_700_000_000_000_000_000
"""The same in nanoseconds: in microseconds no int64 holds it."""

ODD_TIMES_MS: Final = (
    -(1 << 63),
    -NANOSECONDS,
    -YEAR_2100_MS,
    -5,
    -1,  # Kafka's "no time"
    0,  # which librdkafka takes for none
    1,
    1_700_000_000,  # seconds
    1_700_000_000_000,
    YEAR_2100_MS,
    YEAR_10000_MS,
    MICROSECONDS,
    NANOSECONDS,
    (1 << 63) - 1,
)
