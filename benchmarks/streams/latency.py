"""Latency at a steady rate: from the producer's clock to the answer that the confirmation is durable.

Run as a process of its own, ``python -m benchmarks.streams.latency NAME CONFIG INPUT RATE SECONDS``. A second
process produces at the rate, its clock in each value, with the client's own settings (records linger 5 ms,
those without a key go to one partition for a while), to a topic that is all read before; what comes in the
first `WARM_SECONDS` does not count, for the broker has still to compile what it runs. Every batch waits for
its confirmation: a spout's client confirms with a wait, the others commit synchronously. Prints one JSON
line, in ms.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
from confluent_kafka import Producer

import acker.config.topics
from acker.config.topics import Topics
from acker.errors import CheckFailed
from benchmarks.streams.contestants import Batch, Contestant, Plain, Share, Work

WARM_SECONDS = 5.0
MARK = b"at "
"""What the values begin with that a clock follows in."""

PADDING = b"x" * 80
"""What a value is filled with: it is as long as a sentence of the throughput part."""

CONFIRM_MS_MAX = 30_000
QUIET_SECONDS = 2.0
"""So long nothing may come before the topic counts as read."""


class DurableBatch(Batch):
    """A spout whose client waits for each confirmation."""

    def consume(self, work: Work) -> int:
        """Open, confirm together, and wait."""
        items = self._client.open(1_000, wait_ms=200)
        if items:
            values = items.column("value")
            self._client.confirm(items, wait_ms=CONFIRM_MS_MAX)
            for value in values:
                work(value)
        return len(items)


class DurableShare(Share):
    """A share consumer that commits each batch synchronously."""

    def consume(self, work: Work) -> int:
        """Poll, accept, and commit."""
        messages = [m for m in self._consumer.poll(timeout=0.2) if m.error() is None]
        for message in messages:
            self._consumer.acknowledge(message)
        if messages:
            self._consumer.commit_sync(timeout=30.0)
        for message in messages:
            work(message.value() or b"")
        return len(messages)


class DurablePlain(Plain):
    """A consumer that commits each batch synchronously."""

    def consume(self, work: Work) -> int:
        """Consume what is there, and commit."""
        first = self._consumer.poll(0.2)
        found = [] if first is None else [first, *self._consumer.consume(1_000, timeout=0)]
        messages = [message for message in found if message.error() is None]
        if messages:
            self._consumer.commit(asynchronous=False)
        for message in messages:
            work(message.value() or b"")
        return len(messages)

    def finish(self) -> None:
        """Leave; all is committed."""
        self._consumer.close()


CONTESTANTS: Mapping[str, type[DurableBatch | DurableShare | DurablePlain]] = MappingProxyType(
    {"batch": DurableBatch, "share": DurableShare, "plain": DurablePlain}
)
"""By name."""


def produce(topics: Topics, topic: str, rate: int, seconds: float) -> None:
    """Write `rate` records a second, the clock in each."""
    producer = Producer({**topics.kafka, "acks": "all"})
    began = time.perf_counter()
    for number in range(int(rate * seconds)):
        early = began + number / rate - time.perf_counter()
        if early > 0:
            time.sleep(early)
        value = b"%s%d %s" % (MARK, time.time_ns(), PADDING)
        producer.produce(topic, value)
        producer.poll(0)
    producer.flush(30)


def measure(contestant: Contestant, records: int) -> list[float]:
    """Consume so many records and return their latencies, ms.

    Raises:
        CheckFailed: some did not come.
    """
    latencies: list[float] = []

    def work(value: bytes) -> None:
        if value.startswith(MARK):
            latencies.append((time.time_ns() - int(value[len(MARK) :].split()[0])) / 1e6)

    heard = time.monotonic()
    while len(latencies) < records:
        if contestant.consume(work):
            heard = time.monotonic()
        elif time.monotonic() - heard > CONFIRM_MS_MAX / 1000:
            raise CheckFailed(f"{len(latencies):,} of {records:,} records came")
    contestant.finish()
    return latencies


def read_all(contestant: Contestant) -> None:
    """Consume what is there from before, a record at least.

    Raises:
        CheckFailed: none came; a share consumer takes seconds to join its group.
    """
    began = time.monotonic()
    heard: float | None = None
    while heard is None or time.monotonic() - heard < QUIET_SECONDS:
        if contestant.consume(lambda _value: None):
            heard = time.monotonic()
        elif heard is None and time.monotonic() - began > CONFIRM_MS_MAX / 1000:
            raise CheckFailed("nothing came of what the topic holds")


def main() -> None:
    """Run from the command line."""
    name, config, input_name, rate, seconds = sys.argv[1:6]
    topics = acker.config.topics.load_topics(Path(config), os.environ)
    if name == "produce":
        produce(topics, topics.input(input_name).topic, int(rate), float(seconds))
        return
    contestant = CONTESTANTS[name](topics, input_name)
    read_all(contestant)
    program = [sys.executable, "-m", "benchmarks.streams.latency", "produce", *sys.argv[2:6]]
    with subprocess.Popen(program) as producer:
        found = measure(contestant, int(int(rate) * float(seconds)))
        producer.wait(CONFIRM_MS_MAX / 1000)
    counted = np.array(found[int(int(rate) * WARM_SECONDS) :])
    parts = {f"p{part}": float(np.percentile(counted, part)) for part in (50, 90, 99)}
    sys.stdout.write(json.dumps(parts) + "\n")


if __name__ == "__main__":
    main()
