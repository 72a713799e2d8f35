"""The contestants without Spark, of ``python -m benchmarks spout``: four ways to do the same work.

Each runs as a process of its own, ``python -m benchmarks.streams.contestants NAME CONFIG INPUT RECORDS``,
so that its CPU seconds are its own. It reads `RECORDS` records of the input's topic from the beginning,
splits them at blanks and counts the words, and prints one JSON line: records a second and how many words
there were.

All have the client settings of `SETTINGS`. None waits for a confirmation before the last one: the plain
consumer and the share consumer commit each batch asynchronously, a spout publishes in the background.
The clock starts when the first batch is done, whose records do not count: until then clients connect and
fetch for the first time. It stops with the last durable confirmation.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from confluent_kafka import Consumer, ShareConsumer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but the package has no __all__
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from rich.console import Console

import acker.config.topics
from acker.config.topics import Topics
from acker.errors import CheckFailed, Unreachable
from acker.kafka.client import CHECKED
from acker.kafka.reader import DEFAULTS
from spout.standalone.kafka_spout import KafkaSpout

BATCH_RECORDS = 10_000
"""Records asked for at once; a share consumer gets as many as the broker lets it have."""

WAIT_MS = 1_000
WAIT_S = WAIT_MS / 1000
IDLE_MS_MAX = 30_000
PROCESS_SECONDS_MAX = 120.0

SETTINGS: Mapping[str, Any] = MappingProxyType({**DEFAULTS, **CHECKED, "isolation.level": "read_committed"})
"""Client settings of every contestant: those of Windhover's own readers."""

NOT_FOR_SHARE = frozenset(
    {"isolation.level", "queued.min.messages", "queued.max.messages.kbytes", "fetch.queue.backoff.ms"}
)
"""What a share consumer refuses: it has no queue of its own, and the isolation level is its group's."""

Work = Callable[[bytes], None]
"""Works on the value of one record."""


class Contestant(Protocol):
    """One way to consume."""

    def consume(self, work: Work) -> int:
        """Work on the records that are there, confirm them, and return how many they were."""

    def finish(self) -> None:
        """Wait until all confirmations are durable, and leave."""


class Plain:
    """A consumer that commits each batch."""

    def __init__(self, topics: Topics, input_name: str) -> None:
        found = topics.input(input_name)
        self._consumer = Consumer(
            {
                **topics.kafka,
                **SETTINGS,
                "group.id": f"{found.group}-plain",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        partitions = self._consumer.list_topics(found.topic, timeout=10).topics[found.topic].partitions
        self._consumer.assign([TopicPartition(found.topic, p, 0) for p in partitions])

    def consume(self, work: Work) -> int:
        """Consume, and commit."""
        messages = [m for m in self._consumer.consume(BATCH_RECORDS, timeout=WAIT_S) if m.error() is None]
        for message in messages:
            work(message.value() or b"")
        if messages:
            self._consumer.commit(asynchronous=True)
        return len(messages)

    def finish(self) -> None:
        """Commit the positions: to commit what is stored fails where it is committed already."""
        positions = self._consumer.position(self._consumer.assignment())
        self._consumer.commit(offsets=positions, asynchronous=False)
        self._consumer.close()


class Share:
    """A share consumer in explicit mode: every record is acknowledged, every batch committed."""

    def __init__(self, topics: Topics, input_name: str) -> None:
        found = topics.input(input_name)
        shared = {name: value for name, value in SETTINGS.items() if name not in NOT_FOR_SHARE}
        self._consumer = ShareConsumer(
            {
                **topics.kafka,
                **shared,
                "group.id": share_group(found.group),
                "share.acknowledgement.mode": "explicit",
            }
        )
        self._consumer.subscribe([found.topic])

    def consume(self, work: Work) -> int:
        """Poll, accept each record, and commit."""
        messages = [m for m in self._consumer.poll(timeout=WAIT_S) if m.error() is None]
        for message in messages:
            work(message.value() or b"")
            self._consumer.acknowledge(message)
        if messages:
            self._consumer.commit_async()
        return len(messages)

    def finish(self) -> None:
        """Commit for good."""
        self._consumer.commit_sync(timeout=30.0)
        self._consumer.close()


class Batch:
    """A spout whose client confirms together what it opened together."""

    def __init__(self, topics: Topics, input_name: str) -> None:
        self._spout = KafkaSpout(topics, input_name).open()
        self._client = self._spout.client("bench")

    def consume(self, work: Work) -> int:
        """Open, and confirm together."""
        items = self._client.open(BATCH_RECORDS, wait_ms=WAIT_MS)
        for value in items.column("value"):
            work(value)
        self._client.confirm(items)
        return len(items)

    def finish(self) -> None:
        """Wait for the last publication."""
        self._client.confirm([], wait_ms=IDLE_MS_MAX)
        self._spout.close()


class Record(Batch):
    """A spout whose client confirms each record alone, when its work is done."""

    def consume(self, work: Work) -> int:
        """Open some, and confirm one by one."""
        items = self._client.open(BATCH_RECORDS, wait_ms=WAIT_MS)
        for item in items:
            work(item["value"])
            self._client.confirm(item)
        return len(items)


CONTESTANTS: Mapping[str, Callable[[Topics, str], Contestant]] = MappingProxyType(
    {"plain": Plain, "share": Share, "batch": Batch, "record": Record}
)
"""By name."""


def share_group(group: str) -> str:
    """Name the share group that stands beside a group."""
    return f"{group}-share"


def begin_share_group(topics: Topics, input_name: str) -> None:
    """Let the share group of an input begin at the first record; by default it begins behind the last."""
    admin = AdminClient(dict(topics.kafka))
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    group = share_group(topics.input(input_name).group)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[earliest])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(PROCESS_SECONDS_MAX)


def run_contestant(
    module: str, name: str, config: Path, input_name: str, *arguments: str
) -> dict[str, float]:
    """Run a process of a module to its end and return what it printed.

    Raises:
        CheckFailed: it failed.
    """
    command = [sys.executable, "-m", module, name, str(config), input_name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROCESS_SECONDS_MAX, check=False)
    if done.returncode:
        raise CheckFailed(f"contestant {name} ended with {done.returncode}: {done.stderr.strip()}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def leave_out(names: list[str], name: str, error: CheckFailed, console: Console) -> None:
    """Go on without a contestant, and say so; only without the share consumer, a preview of its makers."""
    if name != "share":
        raise error
    names.remove(name)
    console.print(f"without the share consumer, and without its figures: {error}", highlight=False)


def consume(contestant: Contestant, records: int) -> tuple[float, int]:
    """Consume so many records, split and count them; return records a second and words.

    Raises:
        Unreachable: nothing came for 30 s.
    """
    counts: Counter[str] = Counter()

    def work(value: bytes) -> None:
        counts.update(value.decode().split())

    left, counted, started, heard = records, 0, 0.0, time.perf_counter()
    with _uncollected():
        while left > 0:
            count = contestant.consume(work)
            now = time.perf_counter()
            if count:
                heard = now
            elif now - heard > IDLE_MS_MAX / 1000:
                raise Unreachable(f"no record for {IDLE_MS_MAX // 1000} s, {left} still to come")
            left -= count
            if count and not started:
                counted, started = left, now
        contestant.finish()
        return counted / (time.perf_counter() - started), counts.total()


@contextmanager
def _uncollected() -> Iterator[None]:
    """Switch the cyclic collector off: thousands of messages, none of them in a cycle, would trigger it."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def main() -> None:
    """Run from the command line."""
    name, config, input_name, records = sys.argv[1:5]
    topics = acker.config.topics.load_topics(Path(config), os.environ)
    rate, words = consume(CONTESTANTS[name](topics, input_name), int(records))
    sys.stdout.write(json.dumps({"rate": rate, "words": words}) + "\n")


if __name__ == "__main__":
    main()
