"""Reads `_ack_due` from its beginning, for those who keep what waits in their own way.

Source: docs/design/protocol.md, section 5.4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from acker.errors import UnknownVersion
from acker.kafka.port import Log, Record, TopicPartition
from acker.service.passed_over import CURE, is_passed_over
from replay.records.due import Due, Pause, Progress, sound
from spout.runtime.follow import Follower

PATIENCE_MS: Final = 10
READ_MAX: Final = 200_000
"""A planning process does not wait: what one look leaves is read by the next."""

Put = Callable[[Record, Due | None], None]
"""Takes a record of a root with what it holds: None of a tombstone, and of garbage, which has a value."""


class DueReader:
    """Follows N partitions of the topic.

    Attributes:
        taken_over: of each verdict partition, the first record that no replay worker has wholly taken over.
    """

    def __init__(self, log: Log, topic: str, partitions: int, put: Put) -> None:
        """Begin; `put` is given what is read of roots."""
        self.taken_over: dict[int, int] = dict.fromkeys(range(partitions), 0)
        self._log = log
        self._put = put
        places = [TopicPartition(topic, number) for number in range(partitions)]
        self._follower = Follower(log, places, READ_MAX, patience_ms=PATIENCE_MS)

    def read(self) -> bool:
        """Read on; tell whether everything was read that was stable when this was called.

        Raises:
            UnknownVersion: a newer replay worker wrote a record.
            Unreachable: the broker does not answer.
        """
        for record in self._follower.look():
            self._take(record)
        return self._follower.is_whole

    def close(self) -> None:
        """Leave."""
        self._follower.close()

    def _take(self, record: Record) -> None:
        try:
            value = None if record.value is None else sound(record)
        except UnknownVersion as error:
            if not is_passed_over(self._log, record):
                place = f"{record.topic}/{record.partition}@{record.offset}"
                raise UnknownVersion(
                    f"{place}: {error}; if a newer replay worker wrote it, run the spout with that version;"
                    f" {CURE}"
                ) from error
            value = None
        if isinstance(value, Progress):
            self.taken_over[record.partition] = value.next
        elif not isinstance(value, Pause):
            self._put(record, value)
