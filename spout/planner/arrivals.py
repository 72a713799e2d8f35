"""Waits for new records of partitions that are read to their ends, with a fetch that the broker answers late.

To ask for the ends again and again costs a request each time, and finds a record late by half the pause in
between. A reader at the ends costs two requests a second, and has a record as soon as the broker has it.

Source: docs/design/performance.md, "Idle".
"""

from __future__ import annotations

from collections.abc import Mapping

from acker.errors import OutOfRange
from acker.kafka.port import Log, Reader, TopicPartition


class Arrivals:
    """Follows partitions only while it waits for them: what it reads, a task reads again."""

    def __init__(self, log: Log) -> None:
        """Prepare; the reader is made when something is waited for."""
        self._log = log
        self._reader: Reader | None = None
        self._ends: dict[TopicPartition, int] = {}

    def wait(self, ends: Mapping[TopicPartition, int], wait_ms: int) -> bool:
        """Wait at most so long; return whether there may be something behind one of the ends.

        A reader that was taken off its partitions (`rest`) may have a fetch under way for half a second, and
        sends no other until it is answered. So wait a second before this is called again.

        Raises `Unreachable`: the broker does not answer.
        """
        if self._reader is None:
            self._reader = self._log.reader(committed=True, patient=True)
        if self._ends != ends:
            self._ends = dict(ends)
            self._reader.assign(self._ends)
        try:
            records = self._reader.poll(wait_ms, 1)
        except OutOfRange:  # a log is shorter than it was: planning finds out
            return True
        return bool(records) or any(self._reader.position(place) > end for place, end in ends.items())

    def rest(self) -> None:
        """Read nothing until the next `wait`."""
        if self._reader is not None and self._ends:
            self._ends = {}
            self._reader.assign({})

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = None
