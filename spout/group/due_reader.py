"""Reads `_ack_due` from its beginning, for classes that keep the waiting roots, each in its own way.

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
"""Records of one call: a planning process does not wait, and the next call reads the rest."""

Put = Callable[[Record, Due | None], None]
"""Called with a record and the root in it; None: a tombstone, or garbage, which does have a value."""


class DueReader:
    """Follows N partitions of the topic.

    Attributes:
        taken_over: by verdict partition, the first record that no replay worker has taken over completely.
    """

    def __init__(self, log: Log, topic: str, partitions: int, put: Put) -> None:
        """Read N partitions; `put` is called with each record of a root."""
        self.taken_over: dict[int, int] = dict.fromkeys(range(partitions), 0)
        self._log = log
        self._put = put
        places = [TopicPartition(topic, number) for number in range(partitions)]
        self._follower = Follower(log, places, READ_MAX, patience_ms=PATIENCE_MS)

    def read(self) -> bool:
        """Read on; return whether everything was read that was stable at the time of this call.

        Raises:
            UnknownVersion: a newer replay worker wrote a record.
            Unreachable: the broker does not answer.
        """
        for record in self._follower.read():
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
