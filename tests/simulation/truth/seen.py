"""What the truth and its checkers ask of a cluster: what its logs hold, or once held.

The simulation's own cluster answers from memory; one that was recorded answers from what was read of it
(``tests.torture.judging.recording``), so the same checkers judge both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from acker.kafka.port import Record, TopicInfo, TopicPartition


class SeenOffset(Protocol):
    """A committed offset of a group."""

    @property
    def offset(self) -> int:
        """The next one to read."""


class SeenEnds(Protocol):
    """Where a partition begins and ends."""

    @property
    def start(self) -> int:
        """The first offset that is there."""

    @property
    def stable_end(self) -> int:
        """Where a read_committed reader stops."""


class SeenPartition(SeenEnds, Protocol):
    """A partition, and what stands in it."""

    def ever_held(self, offset: int) -> bool:
        """Tell whether a committed record has ever stood at an offset, whatever became of it."""

    def original(self, offset: int) -> Record | None:
        """Return the committed record that was written at an offset, whatever became of it."""

    def visible(self, offset: int) -> Record | None:
        """Return the committed record at an offset below the stable end; None where there is none."""


class SeenTopic(Protocol):
    """A topic."""

    @property
    def info(self) -> TopicInfo:
        """What `Log.topics` tells of it."""

    @property
    def partitions(self) -> Sequence[SeenEnds]:
        """Its partitions, by number."""


class SeenCluster(Protocol):
    """A cluster."""

    @property
    def now_ms(self) -> int:
        """The time."""

    def at(self, topic: str, partition: int) -> SeenPartition:
        """Return a partition."""

    def topic(self, name: str) -> SeenTopic:
        """Return a topic."""

    def committed(self, group: str) -> Mapping[TopicPartition, SeenOffset]:
        """Return what a group has committed."""
