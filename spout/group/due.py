"""The lost roots that wait for their replay, read from `_ack_due`.

A root leaves the topic in the transaction that writes its copy or its dead letter. So once nothing of a group
is in it, every copy is on the replay topic.

Source: docs/design/protocol.md, sections 5.1 and 5.4; `spout.planner.order_watch` says when it is exact.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from acker.errors import UnknownVersion
from acker.identity import first_source, input_id_of, offset_of, partition_of
from acker.kafka.port import Log, OffsetAnswers, Record, TopicPartition
from acker.kafka.reading import Follower
from acker.service.passed_over import damage_passed_over, require_passed_over
from acker.wire.clusters import require_cluster
from replay.records.due import Due, Pause, Progress, sound
from replay.records.headers import parse_location
from replay.worker.fetch import RecordPlace

PATIENCE_MS: Final = 10
READ_MAX: Final = 200_000
"""Records of one call; the next one reads the rest."""


class DueReader(ABC):
    """Follows N partitions of the topic from their beginning.

    Attributes:
        taken_over: by verdict partition, the first record that no replay worker has taken over completely.
    """

    def __init__(self, log: Log, topic: str, partitions: int) -> None:
        self.taken_over: dict[int, int] = dict.fromkeys(range(partitions), 0)
        self._log = log
        self._cluster_id = log.cluster_id()
        places = [TopicPartition(topic, number) for number in range(partitions)]
        self._follower = Follower(
            log, places, READ_MAX, patience_ms=PATIENCE_MS, on_damage=damage_passed_over(log)
        )

    def read(self) -> bool:
        """Read on; return whether everything was read that was stable at the time of this call.

        Raises `UnknownVersion` if a newer replay worker wrote a record, `Disagreement` if one was written in
        another cluster.
        """
        for record in self._follower.read():
            self._take(record)
        return self._follower.is_whole

    def answers(self) -> OffsetAnswers:
        """Return the ends of the partitions, as of the last `read`, and which of them have none."""
        return self._follower.answers

    def close(self) -> None:
        self._follower.close()

    def _take(self, record: Record) -> None:
        require_cluster(record.place, record.headers, self._cluster_id)
        try:
            value = None if record.value is None else sound(record)
        except UnknownVersion as error:
            cure = "a newer replay worker wrote it, run the spout with that version"
            require_passed_over(self._log, record, error, cure)
            value = None
        if isinstance(value, Progress):
            self.taken_over[record.partition] = value.next
        elif not isinstance(value, Pause):
            self._put(record, value)

    @abstractmethod
    def _put(self, record: Record, due: Due | None) -> None:
        """Note a record and the root in it; None: a tombstone, or garbage, which does have a value."""


class DueWatch(DueReader):
    """Whether a lost root of some sources still waits, for queries that end when none does."""

    def __init__(self, log: Log, topic: str, partitions: int, sources: frozenset[int]) -> None:
        super().__init__(log, topic, partitions)
        self._sources = sources
        self._waiting: set[tuple[int, bytes]] = set()

    def is_over(self, lost_below: Mapping[int, int]) -> bool:
        """Return whether nothing waits of what was read.

        `lost_below` has by verdict partition the offset behind the last verdict of a lost root.
        """
        return not self._waiting and all(self.taken_over[p] >= offset for p, offset in lost_below.items())

    def _put(self, record: Record, due: Due | None) -> None:
        name = record.partition, record.key or b""
        if record.value is None:
            self._waiting.discard(name)
        elif due is not None and due.source in self._sources:
            self._waiting.add(name)


class WaitingRoot(NamedTuple):
    """A root that waits for its replay; `is_blocked` if it did not fail itself.

    Its record was first emitted at `origin` (None: unknown), and is read from `place`, of it or its last
    copy.
    """

    origin: RecordPlace | None
    place: RecordPlace
    is_blocked: bool


class DueEntries(DueReader):
    """The waiting roots of some inputs, by their ids, for what is read in order."""

    def __init__(self, log: Log, topic: str, partitions: int, inputs: Iterable[int]) -> None:
        super().__init__(log, topic, partitions)
        self._inputs = frozenset(inputs)
        self._waiting: dict[int, dict[bytes, WaitingRoot]] = {}
        self._source_of: dict[bytes, int] = {}

    def of(self, source: int) -> Sequence[WaitingRoot]:
        """Return the waiting roots of a partition; `source` is its source, not that of its copies."""
        return list(self._waiting.get(source, {}).values())

    def _put(self, record: Record, due: Due | None) -> None:
        if due is None and record.value is not None:
            return  # what was beneath it waits on, as its replay worker has it
        key = record.key or b""
        before = self._source_of.pop(key, None)
        if before is not None:
            self._waiting[before].pop(key, None)
        if due is not None and input_id_of(due.source) in self._inputs:
            source = first_source(due.source)
            found = parse_location(due.origin)
            self._source_of[key] = source
            place = RecordPlace(due.topic, partition_of(due.source), offset_of(due.position))
            root = WaitingRoot(None if found is None else RecordPlace(*found), place, due.last_was_blocked)
            self._waiting.setdefault(source, {})[key] = root
