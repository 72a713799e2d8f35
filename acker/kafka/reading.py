"""Reads a piece of a partition to a known end, as a restart needs it (docs/design/protocol.md, 5.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from acker.errors import DataLoss, Unreachable
from acker.kafka.port import Log, Record, TopicPartition

POLLS: Final = 20
"""An answer is waited for in this many polls, so that a reader that moves on is never given up."""


def read_piece(
    log: Log,
    partition: TopicPartition,
    start: int,
    end: int,
    *,
    committed: bool,
    wait_ms: int,
    alive: Callable[[], None] = lambda: None,
) -> Iterator[Record]:
    """Yield the records of a partition in [start, end), where `end` is one that `Log` returned.

    `alive` is called before each poll, so that a long read does not count as hung.

    Raises `Unreachable`: nothing came for `wait_ms`, short of the end; `OutOfRange`: `start` is not there.
    """
    if start >= end:
        return
    reader = log.reader(committed=committed)
    try:
        reader.assign({partition: start})
        idle = 0
        while (at := reader.position(partition)) < end:
            alive()
            records = reader.poll(max(1, wait_ms // POLLS))
            within = not records or records[-1].offset < end
            yield from records if within else [record for record in records if record.offset < end]
            idle = 0 if reader.position(partition) > at else idle + 1
            if idle >= POLLS:
                raise Unreachable(
                    f"{partition.topic}/{partition.partition}: nothing after offset {at} for {wait_ms} ms,"
                    f" though it goes on to {end}"
                )
    finally:
        reader.close()


def require_start(log: Log, partition: TopicPartition, needed: int, what: str) -> None:
    """Raise `DataLoss` where a log no longer holds what a restart needs."""
    start = log.starts([partition])[partition]
    if start > needed:
        raise DataLoss(
            f"{partition.topic}/{partition.partition} begins at {start}, but {what} are needed from {needed}"
            " on: records were deleted that the acker had not finished; do not set a retention on the ack"
            " topics. What was open there can be had again by `windhover offsets reset`"
        )
