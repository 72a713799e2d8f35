"""A process whose clock is wrong: ``python -m tests.support.moved_clock AHEAD_MS windhover-arguments...``.

The clock is moved inside the process, for Python and for the times that librdkafka gives to records: a
library that moves it for all of the process hangs librdkafka.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka


def move_clock(ahead_ms: int) -> None:
    """Let this process's clock be ahead by so much; clients that exist already keep theirs."""
    right_s: Callable[[], float] = time.time
    right_ns: Callable[[], int] = time.time_ns
    right_producer = confluent_kafka.Producer

    class MovedProducer(right_producer):  # type: ignore[misc, valid-type]  # the class of that moment
        """Gives records without a time that of the moved clock, as librdkafka would there."""

        def produce(self, *args: Any, timestamp: int = 0, **others: Any) -> None:
            super().produce(*args, timestamp=timestamp or int(time.time() * 1_000), **others)

    time.time = lambda: right_s() + ahead_ms / 1_000
    time.time_ns = lambda: right_ns() + ahead_ms * 1_000_000
    confluent_kafka.Producer = MovedProducer  # type: ignore[misc]


def main() -> None:
    """Run a command of ours under the moved clock."""
    move_clock(int(sys.argv[1]))
    from spout.cli.main import run

    sys.exit(run(sys.argv[2:]))


if __name__ == "__main__":
    main()
