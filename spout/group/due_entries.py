"""The roots of ordered inputs that wait for a replay, as they are in `_ack_due`.

Source: docs/design/protocol.md, section 5.4; `spout.planner.order_watch` says when what stands here is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from acker.identity import first_source, input_id_of, offset_of, partition_of
from acker.kafka.port import Log, Record
from replay.records.due import Due
from replay.records.headers import parse_location
from replay.worker.fetch import RecordPlace
from spout.group.due_reader import DueReader


class Entry(NamedTuple):
    """A root that waits for its replay.

    Attributes:
        origin: the place where its record was first emitted; None: unknown.
        place: the place from which to read it: of the record, or of its last copy.
        is_held: whether it was blocked, and did not fail itself.
    """

    origin: RecordPlace | None
    place: RecordPlace
    is_held: bool


class DueEntries:
    """The entries of `_ack_due` for some inputs, read from the beginning of the topic."""

    def __init__(self, log: Log, topic: str, partitions: int, inputs: Iterable[int]) -> None:
        """Follow N partitions of the topic, for the roots of some inputs, by their ids."""
        self._inputs = frozenset(inputs)
        self._waiting: dict[int, dict[bytes, Entry]] = {}
        self._source_of: dict[bytes, int] = {}
        self._reader = DueReader(log, topic, partitions, self._put)

    @property
    def taken_over(self) -> Mapping[int, int]:
        """By verdict partition: the first record that no replay worker has taken over completely."""
        return self._reader.taken_over

    def read(self) -> bool:
        """Read on, as `DueReader.read`."""
        return self._reader.read()

    def of(self, source: int) -> Sequence[Entry]:
        """Return the waiting roots of a partition; `source` is its source, not that of its copies."""
        return list(self._waiting.get(source, {}).values())

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()

    def _put(self, record: Record, due: Due | None) -> None:
        key = record.key or b""
        before = self._source_of.pop(key, None)
        if before is not None:
            self._waiting[before].pop(key, None)
        if due is not None and input_id_of(due.source) in self._inputs:
            source = first_source(due.source)
            found = parse_location(due.origin)
            self._source_of[key] = source
            place = RecordPlace(due.topic, partition_of(due.source), offset_of(due.position))
            entry = Entry(None if found is None else RecordPlace(*found), place, due.last_was_blocked)
            self._waiting.setdefault(source, {})[key] = entry
