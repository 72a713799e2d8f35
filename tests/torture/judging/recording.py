"""What was read of a run's topics, kept as the simulation's checkers ask for it.

Source: docs/design/protocol.md, section 4.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from acker.kafka.port import Record, TopicInfo, TopicPartition

_NOTHING: Mapping[int, Record] = {}


class Kept(NamedTuple):
    """A committed offset."""

    offset: int


class RecordedPartition(NamedTuple):
    """A partition: what a read_committed reader has read of it, from its first record to its end."""

    records: Mapping[int, Record]
    start: int
    stable_end: int

    def ever_held(self, offset: int) -> bool:
        """Tell whether a committed record stood at an offset."""
        return offset in self.records

    def original(self, offset: int) -> Record | None:
        """Return the committed record that was written at an offset."""
        return self.records.get(offset)

    def visible(self, offset: int) -> Record | None:
        """Return the same: nothing is deleted that somebody still asks for."""
        return self.records.get(offset)


class RecordedTopic(NamedTuple):
    """A topic."""

    info: TopicInfo
    partitions: Sequence[RecordedPartition]


@dataclass(slots=True)
class Recording:
    """Every committed record that was read, by partition, in the log's order.

    Attributes:
        records: by partition and offset.
        infos: the topics.
        ends: how far each partition was read.
        commits: what the group has committed at the end.
    """

    records: dict[TopicPartition, dict[int, Record]] = field(default_factory=lambda: defaultdict(dict))
    infos: Mapping[str, TopicInfo] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    commits: Mapping[TopicPartition, int] = field(default_factory=dict)

    def read(self, record: Record) -> None:
        """Keep a record."""
        self.records[TopicPartition(record.topic, record.partition)][record.offset] = record

    def topic(self, name: str) -> RecordedTopic:
        """Return a topic as it was at the end."""
        info = self.infos[name]
        return RecordedTopic(info, [self._partition(name, number) for number in range(info.partitions)])

    def _partition(self, name: str, number: int) -> RecordedPartition:
        place = TopicPartition(name, number)
        return RecordedPartition(self.records.get(place, _NOTHING), 0, self.ends.get(place, 0))


class RecordedCluster:
    """A cluster that is over.

    Attributes:
        now_ms: the time of the event that is being judged.
    """

    def __init__(self, recording: Recording) -> None:
        """Answer from a recording that is complete."""
        self.now_ms = 0
        self._recording = recording
        self._topics = {name: recording.topic(name) for name in recording.infos}

    def at(self, topic: str, partition: int) -> RecordedPartition:
        """Return a partition."""
        return self._topics[topic].partitions[partition]

    def topic(self, name: str) -> RecordedTopic:
        """Return a topic."""
        return self._topics[name]

    def committed(self, group: str) -> Mapping[TopicPartition, Kept]:
        """Return what the group has committed."""
        return {place: Kept(offset) for place, offset in self._recording.commits.items()}
