"""Somebody else's consumer in a group of ours: ``python -m ... BROKERS GROUP TOPIC``, until it is killed.

It reads as `kafka-console-consumer --group GROUP` does, and commits nothing. While it is a member, the broker
refuses the driver's commits.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from confluent_kafka import Consumer

from acker.kafka.client import CHECKED

SESSION_MS: Final = 6_000
"""The broker forgets the consumer so long after it was killed: the least that a broker allows by default."""

POLL_SECONDS: Final = 0.2


def main(arguments: Sequence[str]) -> None:
    """Join the group and read."""
    brokers, group, topic = arguments
    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": group,
            "client.id": "stranger",
            **CHECKED,
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_MS,
        }
    )
    consumer.subscribe([topic])
    while True:
        consumer.poll(POLL_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1:])
