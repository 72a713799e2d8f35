"""The in-memory cluster's state: topics, transactional ids, groups. Deterministic, single-threaded.

Nothing here waits, draws a random number or reads a clock: `now_ms` is set by whoever runs the cluster.
The clients of ``tests.support.memory.clients`` act on it and keep positions, queues and epochs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from acker.errors import Fenced, LogError, OutOfRange, PartitionStands, RecordRefused, TopicError
from acker.kafka.port import (
    NO_EPOCH,
    GroupMember,
    MissingBroker,
    Outgoing,
    TimestampType,
    TopicInfo,
    TopicPartition,
    UnreadableName,
    record_bytes,
    unwritable,
)
from tests.support.memory.partition import MemoryPartition

METADATA_BYTES_MAX = 4095
"""What Kafka's default of ``offset.metadata.max.bytes`` lets through."""

NO_LIMIT_MS = (1 << 63) - 1

DEFAULT_SETTINGS: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "-1",
    "unclean.leader.election.enable": "false",
}


@dataclass(frozen=True, slots=True)
class MemoryTopic:
    """A topic: what `Log.topics` returns for it, and its partitions."""

    info: TopicInfo
    partitions: tuple[MemoryPartition, ...]
    compacted: bool
    message_bytes_max: int


class Committed(NamedTuple):
    """What a group has committed of one partition."""

    offset: int
    metadata: str
    leader_epoch: int = NO_EPOCH


@dataclass(slots=True)
class TransactionState:
    """The coordinator's state of a transactional id. A client with a lower epoch is fenced."""

    epoch: int = 0
    touched: dict[TopicPartition, MemoryPartition] = field(default_factory=dict)


@dataclass(slots=True)
class MemoryGroup:
    """A consumer group: its members in the order in which they joined, and what each owns."""

    partitions: int = 0
    members: list[int] = field(default_factory=list)
    owned: dict[int, frozenset[int]] = field(default_factory=dict)

    def rebalance(self) -> None:
        """Share partition numbers 0..partitions-1 as Kafka's range assignor does."""
        self.owned = {}
        if not self.members:
            return
        share, rest = divmod(self.partitions, len(self.members))
        first = 0
        for index, member in enumerate(self.members):
            until = first + share + (index < rest)
            self.owned[member] = frozenset(range(first, until))
            first = until


def refused(record: Outgoing, reason: str) -> RecordRefused:
    """Return the error of a record that the settings of its topic refuse."""
    return RecordRefused(f"writing {record.topic}/{record.partition}: {reason}", reason)


class MemoryBroker:
    """Topics, transactions and groups of an in-memory cluster."""

    def __init__(self, now_ms: int = 0) -> None:
        """Begin without topics.

        Args:
            now_ms: the cluster's clock, wall time; settable afterwards as the attribute of that name.
        """
        self.now_ms = now_ms
        self.cluster_id = "memory"
        self.missing: list[MissingBroker] = []
        """The brokers that are not there, as the metadata have it; a test sets them."""
        self._leaderless: set[TopicPartition] = set()
        self._mute: set[TopicPartition] = set()
        self._topics: dict[str, MemoryTopic] = {}
        self._transactions: dict[str, TransactionState] = {}
        self._groups: dict[str, MemoryGroup] = {}
        self._committed: dict[str, dict[TopicPartition, Committed]] = {}
        self._topics_made = 0
        self._members_made = 0

    # --- trouble

    def lose_leader(self, topic: str, *numbers: int) -> None:
        """Let partitions be without a leader: nothing of them can be asked, read or written."""
        self._leaderless |= {TopicPartition(topic, number) for number in numbers}

    def elect_leader(self, topic: str, *numbers: int) -> None:
        """Let partitions have a leader again, another one."""
        self._leaderless -= {TopicPartition(topic, number) for number in numbers}
        for number in numbers:
            self.partition(TopicPartition(topic, number)).begin_epoch()

    def fall_silent(self, topic: str, *numbers: int) -> None:
        """Let readers get nothing of partitions, while everything else about them is as ever."""
        self._mute |= {TopicPartition(topic, number) for number in numbers}

    def speak_again(self, topic: str, *numbers: int) -> None:
        """Let readers get the records of partitions again."""
        self._mute -= {TopicPartition(topic, number) for number in numbers}

    def is_readable(self, place: TopicPartition) -> bool:
        """Tell whether records of a partition reach its readers."""
        return place not in self._leaderless and place not in self._mute

    def trouble_of(self, place: TopicPartition) -> str:
        """Return why nothing can be asked of a partition; empty: it can."""
        return "has no leader: its replicas are on broker 1" if place in self._leaderless else ""

    def require_leaders(self, places: Iterable[TopicPartition]) -> None:
        """Raise `PartitionStands` where a partition has no leader, as once the deadline is over."""
        named = [f"{p.topic}/{p.partition} {text}" for p in places if (text := self.trouble_of(p))]
        if named:
            raise PartitionStands("; ".join(named))

    # --- topics

    def create_topic(
        self,
        name: str,
        partitions: int,
        compacted: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic with empty partitions 0..partitions-1 and an id that no topic had before.

        Raises:
            TopicError: there is a topic of that name.
        """
        if name in self._topics:
            raise TopicError(f"topic {name} exists already; delete it first")
        policy = "compact" if compacted else "delete"
        merged = {**DEFAULT_SETTINGS, "cleanup.policy": policy, **(settings or {})}
        self._topics_made += 1
        info = TopicInfo(
            name=name,
            id=f"memory-{self._topics_made}",
            partitions=partitions,
            replication=1,
            settings=merged,
        )
        parts = tuple(self.new_partition(TopicPartition(name, number)) for number in range(partitions))
        if merged["message.timestamp.type"] == "LogAppendTime":
            for part in parts:
                part.timestamp_type = TimestampType.APPENDED
        self._topics[name] = MemoryTopic(
            info, parts, "compact" in merged["cleanup.policy"], int(merged["max.message.bytes"])
        )

    def add_partitions(self, name: str, partitions: int) -> None:
        """Give a topic empty partitions up to the number 0..partitions-1; its id stays.

        Raises:
            TopicError: there is no such topic.
        """
        topic = self.topic(name)
        info = replace(topic.info, partitions=partitions)
        more = tuple(
            self.new_partition(TopicPartition(name, number))
            for number in range(len(topic.partitions), partitions)
        )
        self._topics[name] = replace(topic, info=info, partitions=(*topic.partitions, *more))

    def new_partition(self, name: TopicPartition) -> MemoryPartition:
        """Create the log of a new partition; a subclass that watches writes creates another kind."""
        return MemoryPartition(name)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records, and what groups have committed of it.

        Raises:
            TopicError: there is no such topic.
        """
        self.topic(name)
        del self._topics[name]
        for offsets in self._committed.values():
            for partition in [p for p in offsets if p.topic == name]:
                del offsets[partition]

    def compact(self, name: str, *, drop_tombstones: bool = False, young_ms: int | None = None) -> None:
        """Compact a topic now; see `MemoryPartition.compact`.

        Raises:
            TopicError: there is no such topic, or it is not compacted.
        """
        topic = self.topic(name)
        if not topic.compacted:
            raise TopicError(f"topic {name} has cleanup.policy={topic.info.settings['cleanup.policy']}")
        for partition in topic.partitions:
            partition.compact(drop_tombstones=drop_tombstones, young_ms=young_ms)

    def topic(self, name: str) -> MemoryTopic:
        """Return a topic.

        Raises:
            TopicError: there is none of that name.
        """
        topic = self._topics.get(name)
        if topic is None:
            raise TopicError(f"topic {name} does not exist; run `windhover topics create`")
        return topic

    def infos(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Return the infos of those of these topics that exist."""
        return {name: self._topics[name].info for name in names if name in self._topics}

    def partition(self, name: TopicPartition) -> MemoryPartition:
        """Return a partition.

        Raises:
            TopicError: there is no such topic, or it has fewer partitions.
        """
        partitions = self.topic(name.topic).partitions
        if not 0 <= name.partition < len(partitions):
            raise TopicError(f"topic {name.topic} has {len(partitions)} partitions, no {name.partition}")
        return partitions[name.partition]

    def delete_before(self, name: TopicPartition, offset: int) -> None:
        """Raise a partition's log start.

        Raises:
            OutOfRange: the offset lies behind the partition's end.
            LogError: the topic is compacted, from which nothing may be deleted.
        """
        partition = self.partition(name)
        if self.topic(name.topic).compacted:
            raise LogError(f"records of the compacted topic {name.topic} cannot be deleted")
        if not 0 <= offset <= partition.end:
            raise OutOfRange(f"cannot delete before {offset} of {name}: its end is {partition.end}")
        partition.delete_before(offset)

    def configure(self, name: str, setting: str, value: str) -> None:
        """Change a setting of a topic, as `kafka-configs.sh --alter` does."""
        topic = self.topic(name)
        info = replace(topic.info, settings={**topic.info.settings, setting: value})
        self._topics[name] = replace(topic, info=info)

    def check(self, record: Outgoing) -> MemoryPartition:
        """Return the partition to which a record may be appended.

        Raises:
            TopicError: there is no such partition.
            RecordRefused: the broker would refuse the record.
        """
        partition = self.partition(TopicPartition(record.topic, record.partition))
        topic = self._topics[record.topic]
        settings = topic.info.settings
        if record_bytes(record) > topic.message_bytes_max:
            raise refused(record, "MSG_SIZE_TOO_LARGE: Broker: Message size too large")
        if any(isinstance(name, UnreadableName) or "\0" in name for name, _ in record.headers):
            raise unwritable(record)
        if record.key is None and topic.compacted:
            raise refused(record, "INVALID_RECORD: Broker: Broker failed to validate record")
        if record.timestamp_ms and settings["message.timestamp.type"] == "CreateTime":
            after_ms = int(settings.get("message.timestamp.after.max.ms", NO_LIMIT_MS))
            before_ms = int(settings.get("message.timestamp.before.max.ms", NO_LIMIT_MS))
            # 64 bits, as in the broker: the age of the lowest times comes out as one of the future
            age_ms = (self.now_ms - record.timestamp_ms + (1 << 63)) % (1 << 64) - (1 << 63)
            if age_ms > before_ms or -age_ms > after_ms:
                raise refused(record, "INVALID_TIMESTAMP: Broker: Invalid timestamp")
        return partition

    # --- transactions

    def init_transactions(self, transactional_id: str) -> int:
        """Abort what is open under an id, fence its owner, and return the new owner's epoch."""
        state = self._transactions.setdefault(transactional_id, TransactionState())
        self.end_transaction(transactional_id, committed=False)
        state.epoch += 1
        return state.epoch

    def expire_transaction(self, transactional_id: str) -> None:
        """Do what the broker does when a transaction is open too long: abort it and fence its owner."""
        self.init_transactions(transactional_id)

    def transaction(self, transactional_id: str, epoch: int) -> TransactionState:
        """Return the state of an id for an owner that still owns it.

        Raises:
            Fenced: another owner was initialised.
        """
        state = self._transactions[transactional_id]
        if state.epoch != epoch:
            raise Fenced(f"transactional id {transactional_id} has another owner; give its partition up")
        return state

    def end_transaction(self, transactional_id: str, *, committed: bool) -> None:
        """Write the markers of what is open under an id."""
        state = self._transactions[transactional_id]
        for partition in state.touched.values():
            partition.end_transaction(transactional_id, self.now_ms, committed=committed)
        state.touched = {}

    # --- groups

    def committed(self, group: str) -> Mapping[TopicPartition, Committed]:
        """Return all that a group has committed."""
        return self._committed.get(group, {})

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        metadata: str,
        epochs: Mapping[TopicPartition, int],
    ) -> None:
        """Commit offsets for a group outside any transaction.

        Raises:
            LogError: the group has members, so that only they may commit; or the metadata is too long.
        """
        if len(metadata) > METADATA_BYTES_MAX:
            raise LogError(f"metadata of {len(metadata)} bytes is more than {METADATA_BYTES_MAX}")
        if self._groups.get(group, MemoryGroup()).members:
            raise LogError(f"group {group} has members; offsets can be committed when it has none")
        self._keep(group, offsets, metadata, epochs)

    def forget_commits(self, group: str) -> None:
        """Lose what a group without members has committed, as after `offsets.retention.minutes`."""
        self._committed.pop(group, None)

    def commit_of_member(self, group: str, member: int, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets for a member of a group.

        Raises:
            LogError: it is no longer a member.
        """
        if self.owned(group, member) is None:
            raise LogError(f"group {group} has no member {member}")
        self._keep(group, offsets, "", {})

    def join(self, group: str, topics: tuple[str, ...]) -> int:
        """Add a member to a group, rebalance, and return the member's number.

        Raises:
            TopicError: the topics are not there, or have different numbers of partitions.
        """
        counts = {self.topic(name).info.partitions for name in topics}
        if len(counts) != 1:
            raise TopicError(f"topics {', '.join(topics)} have different numbers of partitions")
        state = self._groups.setdefault(group, MemoryGroup())
        self._members_made += 1
        state.partitions = counts.pop()
        state.members.append(self._members_made)
        state.rebalance()
        return self._members_made

    def members(self, group: str) -> Sequence[GroupMember]:
        """Return the members of a group, by name."""
        state = self._groups.get(group, MemoryGroup())
        return [GroupMember(f"windhover-member-{each}", state.owned.get(each)) for each in state.members]

    def leave(self, group: str, member: int) -> None:
        """Take a member out of a group and share its partitions among the others."""
        state = self._groups[group]
        if member in state.members:
            state.members.remove(member)
            state.rebalance()

    def owned(self, group: str, member: int) -> frozenset[int] | None:
        """Return the partition numbers of a member, or None for one that is no longer a member."""
        return self._groups[group].owned.get(member)

    def _keep(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        metadata: str,
        epochs: Mapping[TopicPartition, int],
    ) -> None:
        kept = self._committed.setdefault(group, {})
        for partition, offset in offsets.items():
            kept[partition] = Committed(offset, metadata, epochs.get(partition, NO_EPOCH))
