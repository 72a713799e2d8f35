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

POLL_MS: Final = 10
POLLS_MAX: Final = 20
"""One look reads so often; what is left is read by the next."""

POLL_RECORDS_MAX: Final = 10_000

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
        self._places = [TopicPartition(topic, number) for number in range(partitions)]
        self._reader = log.reader(committed=True)
        self._reader.assign(log.starts(self._places))

    def read(self) -> bool:
        """Read on; tell whether everything was read that was stable when this was called.

        Raises:
            UnknownVersion: a newer replay worker wrote a record.
            Unreachable: the broker does not answer.
        """
        ends = self._log.stable_ends(self._places)
        for _ in range(POLLS_MAX):
            records = self._reader.poll(POLL_MS, POLL_RECORDS_MAX)
            for record in records:
                self._take(record)
            if all(self._reader.position(place) >= end for place, end in ends.items()):
                return True
            if not records:
                break
        return False

    def close(self) -> None:
        """Leave."""
        self._reader.close()

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
