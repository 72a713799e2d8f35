"""The in-memory Kafka: the port of ``acker.kafka.port`` for tests and the simulation.

`MemoryCluster` is the broker, `MemoryLog` a client's view of it. Deterministic and single-threaded: no call
waits, and the cluster's clock is the value of its `now_ms`. The contract suite compares it with a real
broker.

    cluster = MemoryCluster()
    cluster.create_topic("sentences", 4)
    log = cluster.log()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TypeVar

from acker.errors import Unreachable
from acker.kafka.epochs import unknown_epoch
from acker.kafka.port import (
    NO_EPOCH,
    Bound,
    DamagedRun,
    GroupMember,
    Membership,
    MissingBroker,
    OffsetAnswers,
    OffsetReader,
    Picker,
    Producer,
    Reader,
    ReadTo,
    TopicInfo,
    TopicPartition,
    Transactions,
    UnderWay,
)
from tests.support.memory.broker import MemoryBroker
from tests.support.memory.clients import (
    Faults,
    MemoryCall,
    MemoryMembership,
    MemoryOffsetReader,
    MemoryPicker,
    MemoryProducer,
    MemoryReader,
    MemoryTransactions,
    NoFaults,
)
from tests.support.memory.partition import MemoryPartition

T = TypeVar("T")

__all__ = ["Faults", "MemoryCluster", "MemoryLog", "MemoryMembership", "NoFaults"]


class MemoryCluster(MemoryBroker):
    """An in-memory cluster. What a test may do to it is in `MemoryBroker`; clients come from `log`."""

    def log(self, faults: Faults | None = None) -> MemoryLog:
        """Make a client's view.

        Args:
            faults: decides which of this client's calls go wrong; none by default.
        """
        return MemoryLog(self, faults or NoFaults())


class MemoryLog:
    """A client's view of a `MemoryCluster`; implements `acker.kafka.port.Log`."""

    def __init__(self, broker: MemoryBroker, faults: Faults) -> None:
        """Look at a cluster; `MemoryCluster.log` is the way to call it."""
        self._broker = broker
        self._faults = faults
        self.open_readers: set[Reader] = set()
        self.deadlines_shared = 0
        self._passed_over: dict[DamagedRun, None] = {}

    def share_deadline(self) -> None:
        """Count it; no call waits."""
        self.deadlines_shared += 1

    def reader(self, *, committed: bool, patient: bool = False) -> Reader:
        """Make a reader."""
        return MemoryReader(
            self._broker,
            self._faults,
            committed=committed,
            open_readers=self.open_readers,
            passed_over=self._passed_over,
        )

    def picker(self) -> Picker:
        """Make a reader of single records."""
        return MemoryPicker(self.reader(committed=True))

    def offset_reader(self) -> OffsetReader:
        """Make a reader of offsets."""
        return MemoryOffsetReader(self._broker, self._faults, committed=True, open_readers=self.open_readers)

    def producer(self) -> Producer:
        """Make a producer without transactions."""
        return MemoryProducer(self._broker, self._faults)

    def transactions(self, transactional_id: str) -> Transactions:
        """Make a transactional producer."""
        return MemoryTransactions(self._broker, self._faults, transactional_id)

    def begin(self, call: Callable[[], T]) -> UnderWay[T]:
        """Make the call; it is over at once."""
        return MemoryCall(call)

    def join(self, group: str, topics: Sequence[str], *, pause_ms: int | None = None) -> Membership:
        """Join a consumer group; the place is taken by the membership's first `poll`."""
        return MemoryMembership(self._broker, self._faults, group, tuple(topics))

    def ends(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the high watermark of each partition."""
        return self._ask("ends", partitions, lambda partition: partition.end)

    def cluster_id(self) -> str:
        """Return the cluster's id."""
        return self._broker.cluster_id

    def stable_ends(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the last stable offset of each partition."""
        return self._ask("stable_ends", partitions, lambda partition: partition.stable_end)

    def starts(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the log start offset of each partition."""
        return self._ask("starts", partitions, lambda partition: partition.start)

    def offsets_at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> Mapping[TopicPartition, int]:
        """Return the first offset at or after a wall time for each partition, or its end."""
        return self._ask("offsets_at", partitions, lambda partition: partition.first_at(timestamp_ms))

    def bounds(self, bound: Bound | int, partitions: Iterable[TopicPartition]) -> OffsetAnswers:
        """Return what can be answered now; the faults are those of the question about all of them."""
        places = tuple(dict.fromkeys(partitions))
        troubles = {place: text for place in places if (text := self._broker.trouble_of(place))}
        sound = [place for place in places if place not in troubles]
        match bound:
            case Bound.START:
                return OffsetAnswers(self.starts(sound), troubles)
            case Bound.END:
                return OffsetAnswers(self.ends(sound), troubles, self._epochs(sound))
            case Bound.STABLE_END:
                return OffsetAnswers(self.stable_ends(sound), troubles, self._epochs(sound))
            case _:
                return OffsetAnswers(self.offsets_at(sound, bound), troubles)

    def intact_to(
        self, read_to_by_partition: Mapping[TopicPartition, ReadTo]
    ) -> Mapping[TopicPartition, int]:
        """Compare what was read with the epochs of the logs."""
        self._faults.before("intact_to")
        answers: dict[TopicPartition, int] = {}
        for place, (offset, epoch) in read_to_by_partition.items():
            if self._broker.trouble_of(place):
                continue
            end = self._broker.partition(place).end_of_epoch(epoch)
            if end is None:
                raise unknown_epoch(place, epoch)
            answers[place] = min(end, offset)
        return answers

    def topics(self, names: Iterable[str], *, settings: bool = False) -> Mapping[str, TopicInfo]:
        """Return those of the named topics that exist."""
        self._faults.before("topics")
        found = self._broker.infos(names)
        return found if settings else {name: replace(info, settings={}) for name, info in found.items()}

    def missing_brokers(self, names: Iterable[str]) -> Sequence[MissingBroker]:
        """Return the brokers that a test has taken away."""
        self._faults.before("missing_brokers")
        return list(self._broker.missing)

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the offsets that a group has committed."""
        self._faults.before("committed")
        offsets = self._broker.committed(group)
        return {name: offsets[name].offset for name in partitions if name in offsets}

    def committed_epochs(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Return the leader epoch beside each committed offset."""
        self._faults.before("committed")
        offsets = self._broker.committed(group)
        epochs = {name: offsets[name].leader_epoch for name in partitions if name in offsets}
        return {name: epoch for name, epoch in epochs.items() if epoch != NO_EPOCH}

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        metadata: str = "",
        epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> None:
        """Commit next offsets of a group that has no members, each with a short text."""
        self._faults.before("commit_offsets")
        self._broker.commit(group, offsets, metadata, epochs)
        self._faults.after("commit_offsets")

    def commit_metadata(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, str]:
        """Return the text kept beside each committed offset."""
        self._faults.before("committed")
        offsets = self._broker.committed(group)
        return {name: offsets[name].metadata for name in partitions if name in offsets}

    def members(self, group: str) -> Sequence[GroupMember]:
        """Return the members of a group, by name."""
        self._faults.before("members")
        found = self._broker.members(group)
        self._faults.after("members")
        return found

    def delete_before(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, str]:
        """Raise the log starts to the given offsets; return why it could not be done in some partitions."""
        self._faults.before("delete_before")
        troubles = {name: text for name in offsets if (text := self._broker.trouble_of(name))}
        for name, offset in offsets.items():
            if name not in troubles:
                self._broker.delete_before(name, offset)
        self._faults.after("delete_before")
        return troubles

    def passed_over(self) -> Sequence[DamagedRun]:
        """Return what readers of this view have left out."""
        return list(self._passed_over)

    def log_progress(self, partition: TopicPartition, position: int, end: int) -> None:
        """Note nothing: no read takes long."""

    def close(self) -> None:
        """Release nothing; there is nothing to release."""

    def _epochs(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: self._broker.partition(place).leader_epoch for place in places}

    def _ask(
        self, operation: str, partitions: Iterable[TopicPartition], answer: Callable[[MemoryPartition], int]
    ) -> dict[TopicPartition, int]:
        self._faults.before(operation)
        places = list(partitions)
        self._broker.require_leaders(places)
        return {name: answer(self._broker.partition(name)) for name in places}


class LeaderlessLog(MemoryLog):
    """A client's view of a cluster in which partitions of one topic have no leader."""

    def without(self, topic: str, *numbers: int) -> None:
        """Let these partitions be without a leader from now on, and no others."""
        self.leaderless = {TopicPartition(topic, number) for number in numbers}

    def stable_ends(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Fail as where nobody answers for a partition."""
        asked = set(partitions)
        if asked & self.leaderless:
            raise Unreachable(f"{asked & self.leaderless} have no leader")
        return super().stable_ends(asked)
